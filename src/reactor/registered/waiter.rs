//! An operation that waits for a descriptor, one of any number at a time.
//!
//! - Its entry in the wait list is kept from the first wait until the operation has an outcome,
//!   across attempts that would block: that keeps its position. Success, failure and cancellation
//!   all leave in the same way, so all of them pass on the baton that
//!   [`source`](crate::reactor::source) describes.
//! - The next waiter is woken with no lock held; a panic of its waker is contained, as this may be
//!   a destructor.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use super::{Ready, Registered, would_block};
use crate::event_loop::{budget, context};
use crate::reactor::crowd::{Aim, Key};
use crate::reactor::source::{Direction, Handover};

/// One waiter for a descriptor; it leaves the wait list when its operation has an outcome, or when
/// it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a, T: AsFd> {
    registered: &'a Registered<T>,
    direction: Direction,
    aim: Aim,
    key: Option<Key>,
}

impl<'a, T: AsFd> Waiter<'a, T> {
    /// Creates a waiter without an entry in the wait list: it gets one when it first has to wait.
    pub(crate) fn new(registered: &'a Registered<T>, direction: Direction, aim: Aim) -> Self {
        Waiter {
            registered,
            direction,
            aim,
            key: None,
        }
    }

    /// Polls an operation until it returns anything but `WouldBlock`; the next poll begins another one.
    pub(crate) fn poll_io<R>(
        &mut self,
        cx: &mut Context<'_>,
        operation: &mut impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        if self.key.is_none() {
            ready!(budget::poll_go_on(cx));
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
            source.blocked(self.direction, tick);
        }
    }

    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Ready<'a>> {
        let Waiter {
            registered,
            direction,
            aim,
            ref mut key,
        } = *self;
        registered.poll_ready_or(direction, |source| {
            source.enlist(key, direction, aim, cx.waker().clone())
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
        self.leave();
    }
}
