//! A descriptor with a home: readiness of anything that the system can poll.
//!
//! - It is tried before it is registered, and registered with the loop that first had to wait for it:
//!   an acceptor can hand a fresh socket to another loop without registering it twice.
//! - An operation that would block clears the readiness it was tried on, and no other error does: a
//!   listener that ran out of descriptors hears nothing more from an edge-triggered selector, so its
//!   readiness must stand.
//! - A task that always finds its descriptor ready still yields: each poll of a task has a budget.
//! - Drop order: out of the selector, out of the table, then closed.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use mio::{Interest, Token};

use crate::event_loop::EventLoop;
use crate::event_loop::context;
use crate::event_loop::shared::Shared;
use crate::reactor::source::{Direction, Look, Source, Tick};
use crate::sync::{Arc, Mutex};

/// A descriptor whose readiness can be awaited.
///
/// For pipes, event descriptors, timers, a child's output, sockets of other crates: anything that
/// `epoll` or `kqueue` can watch. Regular files cannot be watched; read them with
/// [`blocking::unblock`](crate::blocking::unblock).
///
/// It belongs to the loop that first waits for it. Inside `group.block_on` that is
/// [`group.next()`](crate::EventLoopGroup::next).
///
/// # Examples
///
/// ```
/// use loopgroup::io::{Interest, Registered};
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// let text = loopgroup::run(async {
///     let (ours, mut theirs) = UnixStream::pair()?;
///     let ours = Registered::new(ours)?;
///     theirs.write_all(b"hello")?;
///     loop {
///         ours.readable().await?;
///         let mut text = [0; 5];
///         match ours.try_io(Interest::READABLE, |mut stream| stream.read_exact(&mut text)) {
///             Ok(()) => return std::io::Result::Ok(text),
///             Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
///             Err(error) => return Err(error),
///         }
///     }
/// })??;
/// assert_eq!(&text, b"hello");
/// # std::io::Result::Ok(())
/// ```
pub struct Registered<T: AsFd> {
    /// `None` only on the way out.
    io: Option<T>,
    registration: OnceLock<Registration>,
    /// Held while the descriptor goes to a selector: the second of two threads waits for the outcome.
    registering: Mutex<()>,
}

/// Where a descriptor is watched.
struct Registration {
    home: Arc<Shared>,
    token: Token,
    source: Arc<Source>,
}

impl<T: AsFd> Registered<T> {
    /// Takes a descriptor and makes it non-blocking; it is registered when somebody waits for it.
    ///
    /// # Errors
    ///
    /// What the system says when it cannot be made non-blocking.
    pub fn new(io: T) -> io::Result<Registered<T>> {
        socket2::SockRef::from(&io).set_nonblocking(true)?;
        Ok(Registered::from_nonblocking(io))
    }

    /// Takes a descriptor that is non-blocking already.
    pub(crate) fn from_nonblocking(io: T) -> Registered<T> {
        Registered {
            io: Some(io),
            registration: OnceLock::new(),
            registering: Mutex::new(()),
        }
    }

    /// Returns the descriptor's owner.
    pub fn get_ref(&self) -> &T {
        self.io.as_ref().expect("it is there until the end")
    }

    /// Takes the descriptor's owner out; it is watched no more and stays non-blocking.
    pub fn into_inner(mut self) -> T {
        self.deregister();
        self.io.take().expect("it is there until the end")
    }

    /// Returns the loop that it is registered with, if it is.
    pub fn event_loop(&self) -> Option<EventLoop> {
        let registration = self.registration.get()?;
        Some(EventLoop::new(&registration.home))
    }

    /// Waits until it can be read, or the other side is closed.
    ///
    /// Readiness is a hint: the operation may still say `WouldBlock`.
    ///
    /// # Errors
    ///
    /// If the thread has no loop to wait on, the descriptor cannot be watched, or its loop ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it takes nothing.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Direction::Read).await.map(drop)
    }

    /// Waits until it can be written, or the other side is closed.
    ///
    /// Errors and cancel safety as [`readable`](Registered::readable).
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Direction::Write).await.map(drop)
    }

    /// Polls for readability; the last caller is the one that is woken.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(Direction::Read, cx).map_ok(drop)
    }

    /// Polls for writability; the last caller is the one that is woken.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(Direction::Write, cx).map_ok(drop)
    }

    /// Tries an operation if the descriptor is, or may be, ready for it.
    ///
    /// When it says `WouldBlock`, the readiness is cleared, so that the next wait waits for news; any
    /// other error leaves it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it is not ready; else what `operation` returns.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let direction = if interest.is_readable() {
            Direction::Read
        } else {
            Direction::Write
        };
        let Some(registration) = self.registration.get() else {
            return operation(self.get_ref());
        };
        match registration.source.look(direction) {
            Look::Shut => Err(shut()),
            Look::NotReady => Err(io::ErrorKind::WouldBlock.into()),
            Look::Ready(tick) => {
                let result = operation(self.get_ref());
                self.settle(direction, tick, &result);
                result
            }
        }
    }

    /// Moves it to another loop; whoever waits for it is woken and waits there.
    ///
    /// # Errors
    ///
    /// If that loop cannot be started, has no selector or has ended; then it is registered nowhere, and
    /// again with the loop that next waits for it.
    pub async fn migrate_to(&mut self, event_loop: &EventLoop) -> io::Result<()> {
        self.deregister();
        self.register_with(event_loop.shared())
    }

    /// Polls an operation until it does not say `WouldBlock`.
    ///
    /// Reads or writes that come back short say so through [`Short`]: a stream that gave less than it
    /// was asked for has no more, and the system call that would find that out is saved.
    pub(crate) fn poll_io<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
        short: impl Fn(&R) -> Short,
    ) -> Poll<io::Result<R>> {
        if !context::may_go_on() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // A fresh descriptor is tried first: it may never have to wait at all.
        if self.registration.get().is_none() {
            match operation(self.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
        loop {
            let tick = ready!(self.poll_ready(direction, cx))?;
            let result = operation(self.get_ref());
            self.settle(direction, tick, &result);
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    if let (Ok(done), Some(registration)) = (&result, self.registration.get()) {
                        if short(done) == Short::Yes {
                            registration.source.short(direction, tick);
                        }
                    }
                    return Poll::Ready(result);
                }
            }
        }
    }

    /// Runs an operation until it does not say `WouldBlock`; any number of tasks may do so at once.
    pub(crate) async fn io<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        context::go_on().await;
        if self.registration.get().is_none() {
            match operation(self.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
        loop {
            let tick = self.ready(direction).await?;
            let result = operation(self.get_ref());
            self.settle(direction, tick, &result);
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Clears the readiness that an operation found to be none.
    fn settle<R>(&self, direction: Direction, tick: Tick, result: &io::Result<R>) {
        let would_block = matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if let (true, Some(registration)) = (would_block, self.registration.get()) {
            registration.source.blocked(direction, tick);
        }
    }

    fn poll_ready(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<io::Result<Tick>> {
        let registration = match self.registration() {
            Ok(registration) => registration,
            Err(error) => return Poll::Ready(Err(error)),
        };
        match registration.source.look(direction) {
            Look::Ready(tick) => return Poll::Ready(Ok(tick)),
            Look::Shut => return Poll::Ready(Err(shut())),
            Look::NotReady => {}
        }
        // Stored first, looked at again after: see the invariants of `Source`.
        let old = registration.source.store(direction, cx.waker().clone());
        drop(old);
        match registration.source.look(direction) {
            Look::Ready(tick) => Poll::Ready(Ok(tick)),
            Look::Shut => Poll::Ready(Err(shut())),
            Look::NotReady => Poll::Pending,
        }
    }

    fn ready(&self, direction: Direction) -> Readiness<'_, T> {
        Readiness {
            registered: self,
            direction,
            id: None,
        }
    }

    /// Where it is watched; from now on, if it was not.
    fn registration(&self) -> io::Result<&Registration> {
        if self.registration.get().is_none() {
            let home = home()?;
            self.register_with(&home)?;
        }
        Ok(self.registration.get().expect("registered a line ago"))
    }

    fn register_with(&self, home: &Arc<Shared>) -> io::Result<()> {
        let Some(table) = &home.port.table else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this event loop has no selector (its group was built without_io): \
                 use the socket on a loop of a group with I/O",
            ));
        };
        // Somebody has to wait in that selector.
        home.ensure_started()
            .map_err(|reason| crate::error::Rejected::new((), reason))?;
        let source = Arc::new(Source::default());
        let fd = self.as_raw_fd();
        let registering = self.registering.lock();
        if self.registration.get().is_some() {
            // Another thread was first, perhaps with another loop.
            return Ok(());
        }
        let token = table.register(fd, &source).ok_or_else(shut)??;
        let fresh = Registration {
            home: Arc::clone(home),
            token,
            source,
        };
        let set = self.registration.set(fresh);
        debug_assert!(set.is_ok(), "only set with the lock held");
        drop(registering);
        Ok(())
    }

    fn deregister(&mut self) {
        if let Some(registration) = self.registration.take() {
            if let Some(table) = &registration.home.port.table {
                table.deregister(registration.token);
            }
            // Whoever waits has to look again.
            let mut woken = Vec::new();
            registration.source.shut(&mut woken);
            for waker in woken {
                waker.wake();
            }
        }
    }
}

/// Whether an operation did less than it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    Yes,
    No,
}

impl<T: AsFd> AsFd for Registered<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl<T: AsFd> AsRawFd for Registered<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> Drop for Registered<T> {
    fn drop(&mut self) {
        self.deregister();
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Registered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let home = self.registration.get().map(|one| one.home.index);
        f.debug_struct("Registered")
            .field("io", &self.io)
            .field("event_loop", &home)
            .finish()
    }
}

/// The loop that this thread's descriptors are registered with.
fn home() -> io::Result<Arc<Shared>> {
    if let Some(shared) = context::with_local(|local| Arc::clone(&local.shared)) {
        return Ok(shared);
    }
    match context::entered_group() {
        Some(group) => Ok(Arc::clone(group.next().shared())),
        None => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a socket of loopgroup waited on a thread that has no event loop: use it inside a task, \
             inside loopgroup::run or inside group.block_on",
        )),
    }
}

#[cold]
fn shut() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the event loop of this socket is shutting down or has ended",
    )
}

/// Waits for readiness; takes its waker out when it is dropped.
struct Readiness<'a, T: AsFd> {
    registered: &'a Registered<T>,
    direction: Direction,
    id: Option<u64>,
}

impl<T: AsFd> Future for Readiness<'_, T> {
    type Output = io::Result<Tick>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Tick>> {
        let this = &mut *self;
        let registration = match this.registered.registration() {
            Ok(registration) => registration,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let source = &registration.source;
        match source.look(this.direction) {
            Look::Ready(tick) => return Poll::Ready(Ok(tick)),
            Look::Shut => return Poll::Ready(Err(shut())),
            Look::NotReady => {}
        }
        let old = source.enlist(&mut this.id, this.direction, cx.waker().clone());
        drop(old);
        match source.look(this.direction) {
            Look::Ready(tick) => Poll::Ready(Ok(tick)),
            Look::Shut => Poll::Ready(Err(shut())),
            Look::NotReady => Poll::Pending,
        }
    }
}

impl<T: AsFd> Drop for Readiness<'_, T> {
    fn drop(&mut self) {
        if let (Some(id), Some(registration)) = (self.id, self.registered.registration.get()) {
            let waker = registration.source.delist(id);
            drop(waker);
        }
    }
}
