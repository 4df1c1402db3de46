//! An operation that waits for a descriptor, one of any number at a time.
//!
//! - Its entry in the wait list is kept from the first wait until the operation has an outcome,
//!   across attempts that would block: that keeps its position. Success, failure and cancellation
//!   all leave in the same way, so all of them pass on the baton that
//!   [`source`](crate::reactor::source) describes.
//! - The next waiter is woken with no lock held; a panic of its waker is contained, as this may be
//!   a destructor.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use crate::event_loop::{budget, context};
use crate::io::interest::Interest;
use crate::io::ready::Ready;
use crate::io::registered::{self, Registered, reads_ended, would_block};
use crate::noted;
use crate::reactor::direction::Direction;
use crate::reactor::source::Handover;
use crate::reactor::wait_list::{Intent, WaitKey};

impl<T: AsFd> Registered<T> {
    /// Waits until it is readable, or the peer has closed.
    ///
    /// Readiness is a hint: the operation may still return `WouldBlock`.
    ///
    /// # Errors
    ///
    /// If the thread has no event loop to wait on, the descriptor cannot be watched, or its loop ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it consumes nothing.
    pub async fn readable(&self) -> io::Result<()> {
        self.wait(Direction::Read).await
    }

    /// Waits until it is writable, or the peer has closed.
    ///
    /// Errors and cancel safety are those of [`readable`](Registered::readable).
    pub async fn writable(&self) -> io::Result<()> {
        self.wait(Direction::Write).await
    }

    /// Waits until it is ready for one of the interests at least, and returns what it is ready for, of
    /// these. Urgent data counts as readable.
    ///
    /// Errors and cancel safety are those of [`readable`](Registered::readable).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::io::{Interest, Registered};
    /// use std::{io::Write, os::unix::net::UnixStream};
    ///
    /// loopgroup::run(async {
    ///     let (ours, mut theirs) = UnixStream::pair()?;
    ///     theirs.write_all(b"!")?;
    ///     let ours = Registered::new(ours)?;
    ///     let both = Interest::READABLE | Interest::WRITABLE;
    ///     let ready = ours.ready(both).await?;
    ///     assert!(ready.is_readable() && ready.is_writable());
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        budget::proceed().await;
        let mut waiters = interest.directions().map(|direction| {
            direction.map(|direction| Waiter::new(self, direction, Intent::Observe))
        });
        poll_fn(|cx| {
            let mut found = Ready::default();
            for waiter in waiters.iter_mut().flatten() {
                match waiter.poll_ready(cx) {
                    Poll::Ready(Ok(_)) => found.insert(waiter.direction),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {}
                }
            }
            match found.is_empty() {
                true => Poll::Pending,
                false => Poll::Ready(Ok(found)),
            }
        })
        .await
    }

    /// Runs an operation until it returns anything but `WouldBlock`; any number of tasks may do so
    /// at once.
    pub(crate) async fn io<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let mut waiter = Waiter::new(self, direction, Intent::Operate);
        poll_fn(|cx| waiter.poll_io(cx, &mut operation)).await
    }

    /// Runs a read in the same way; it returns `end` if it would block after the reads have ended.
    pub(crate) async fn read_io<R>(
        &self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
        end: impl Fn() -> R,
    ) -> io::Result<R> {
        let mut waiter = Waiter::new(self, Direction::Read, Intent::Operate);
        poll_fn(|cx| waiter.poll_io_or(cx, &mut operation, || Ok(end()))).await
    }

    async fn wait(&self, direction: Direction) -> io::Result<()> {
        budget::proceed().await;
        let mut waiter = Waiter::new(self, direction, Intent::Observe);
        poll_fn(|cx| waiter.poll_ready(cx)).await.map(drop)
    }
}

/// One waiter for a descriptor; it leaves the wait list when its operation has an outcome, or when
/// it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a, T: AsFd> {
    registered: &'a Registered<T>,
    direction: Direction,
    intent: Intent,
    key: Option<WaitKey>,
}

impl<'a, T: AsFd> Waiter<'a, T> {
    /// Creates a waiter without an entry in the wait list: it gets one when it first has to wait.
    pub(crate) fn new(registered: &'a Registered<T>, direction: Direction, intent: Intent) -> Self {
        Waiter {
            registered,
            direction,
            intent,
            key: None,
        }
    }

    /// Polls an operation until it returns anything but `WouldBlock`; the next poll begins another one.
    pub(crate) fn poll_io<R>(
        &mut self,
        cx: &mut Context<'_>,
        operation: &mut impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_io_or(cx, operation, || Err(reads_ended()))
    }

    /// As [`poll_io`](Waiter::poll_io); `end` is the outcome of an operation that would block after the
    /// reads have ended.
    fn poll_io_or<R>(
        &mut self,
        cx: &mut Context<'_>,
        operation: &mut impl FnMut(&T) -> io::Result<R>,
        end: impl FnOnce() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        if self.key.is_none() {
            ready!(budget::poll_proceed(cx));
            if let Some(result) = self.registered.try_unregistered(operation) {
                return Poll::Ready(result);
            }
        }
        loop {
            let (source, tick) = match ready!(self.poll_ready(cx)) {
                Ok(ready) => ready,
                Err(error) => {
                    // Without an entry, the next poll checks the budget again.
                    self.leave();
                    return Poll::Ready(Err(error));
                }
            };
            let result = operation(self.registered.get_ref());
            if !would_block(&result) {
                self.leave();
                return Poll::Ready(result);
            }
            if tick.is_end() {
                self.leave();
                return Poll::Ready(end());
            }
            source.blocked(self.direction, tick);
        }
    }

    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<registered::ReadySource<'a>> {
        let Waiter {
            registered,
            direction,
            intent,
            ref mut key,
        } = *self;
        registered.poll_ready_or(direction, |source| {
            source.enlist(key, direction, intent, cx.waker().clone())
        })
    }

    /// Leaves the wait list, and passes the baton to the next waiter if this one held it.
    fn leave(&mut self) {
        let watched = &self.registered.watched;
        if let (Some(key), Some(source)) = (self.key.take(), watched.source()) {
            let Handover { own, next } = source.leave(key);
            context::wake_for_io(next);
            drop(own);
        }
    }
}

impl<T: AsFd> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        if self.key.is_some() {
            noted::cancelled(self.registered.descriptor(), self.direction);
            self.leave();
        }
    }
}
