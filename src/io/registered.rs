//! A descriptor and its loop: awaits readiness of anything that the system can poll.
//!
//! - An operation is tried before the descriptor is registered, and the descriptor is registered
//!   with the loop that first has to wait for it: an acceptor can pass a new socket to another loop
//!   without registering it twice.
//! - An operation that would block clears the readiness that it was tried on, and no other error
//!   does: a listener that ran out of descriptors gets no further event from an edge-triggered
//!   selector, so its readiness must stay set.
//! - A task that always finds its descriptor ready still yields: each poll of a task has a budget,
//!   which is spent by operations that complete, not by those that wait.
//! - Once the reads of a connection have ended, an operation that would block is still tried: what has
//!   arrived is read first, whatever is known of its readiness.
//! - Drop order: leave the selector, leave the table, close the descriptor.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::task::{Context, Poll, ready};

use crate::event_loop::budget;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::shared::Watched;
use crate::io::control::Control;
use crate::io::described;
use crate::io::interest::Interest;
use crate::io::register_error::RegisterError;
use crate::io::watched::shut;
use crate::noted;
use crate::reactor::direction::Direction;
use crate::reactor::source::{Enlisted, Readiness, Source, Tick};
use crate::sync::Arc;

/// A descriptor whose readiness can be awaited.
///
/// For pipes, event descriptors, timers, a child's output, sockets of other crates: anything that
/// `epoll` or `kqueue` can watch. Regular files cannot be watched; read them with
/// [`blocking::unblock`](crate::blocking::unblock).
///
/// It is registered with the loop on which it is first waited for. Inside `group.block_on` that is
/// [`group.next()`](crate::EventLoopGroup::next).
///
/// # Examples
///
/// ```
/// use loopgroup::io::{Interest, Registered};
/// use std::io::{ErrorKind, Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// let text = loopgroup::run(async {
///     let (ours, mut theirs) = UnixStream::pair()?;
///     let ours = Registered::new(ours)?;
///     theirs.write_all(b"hel")?;
///     let rest = loopgroup::spawn_local(async move { theirs.write_all(b"lo") }); // a little later
///     let (mut text, mut len) = ([0; 5], 0);
///     while len < text.len() {
///         ours.readable().await?;
///         // One call at a time, not `read_exact`: that would lose what it has read if the rest is late.
///         match ours.try_io(Interest::READABLE, |mut stream| stream.read(&mut text[len..])) {
///             Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
///             Ok(n) => len += n,
///             Err(error) if error.kind() == ErrorKind::WouldBlock => {} // readiness is a hint
///             Err(error) => return Err(error),
///         }
///     }
///     rest.await??;
///     std::io::Result::Ok(text)
/// })??;
/// assert_eq!(&text, b"hello");
/// # std::io::Result::Ok(())
/// ```
pub struct Registered<T: AsFd> {
    /// `None` only after `into_inner` has taken it.
    io: Option<T>,
    pub(super) watched: Arc<Watched>,
}

impl<T: AsFd> Registered<T> {
    /// Wraps a descriptor and makes it non-blocking; it is registered when it is first waited for.
    ///
    /// # Errors
    ///
    /// The error of the system if it cannot be made non-blocking.
    pub fn new(io: T) -> io::Result<Registered<T>> {
        Ok(Registered::try_new(io)?)
    }

    /// Like [`new`](Registered::new), and gives the value back if it fails.
    ///
    /// A descriptor that the selector cannot watch is accepted here and fails when it is first waited
    /// for: [`into_inner`](Registered::into_inner) returns it.
    ///
    /// # Errors
    ///
    /// The error of the system if it cannot be made non-blocking, with the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::io::Registered;
    ///
    /// let (one, _other) = std::os::unix::net::UnixStream::pair()?;
    /// let registered = match Registered::try_new(one) {
    ///     Ok(registered) => registered,
    ///     Err(failed) => {
    ///         let (error, _one) = failed.into_parts(); // to use it in another way
    ///         return Err(error);
    ///     }
    /// };
    /// # drop(registered);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_new(io: T) -> Result<Registered<T>, RegisterError<T>> {
        match socket2::SockRef::from(&io).set_nonblocking(true) {
            Ok(()) => Ok(Registered::from_nonblocking(io)),
            Err(error) => Err(RegisterError::new(error, io)),
        }
    }

    /// Wraps a descriptor that is already non-blocking.
    pub(crate) fn from_nonblocking(io: T) -> Registered<T> {
        Registered {
            io: Some(io),
            watched: Arc::default(),
        }
    }

    /// Wraps a socket of a simulated network, by its number there, and that of the network.
    pub(crate) fn simulated(io: T, socket: u32, network: u16) -> Registered<T> {
        Registered {
            io: Some(io),
            watched: Arc::new(Watched::of_simulated(socket, network)),
        }
    }

    /// What tables and notes know it by: see [`Watched::descriptor`].
    pub(crate) fn descriptor(&self) -> RawFd {
        self.watched.descriptor(|| self.as_raw_fd())
    }

    /// Returns a reference to the value that owns the descriptor.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::io::Registered;
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// let (one, _other) = UnixDatagram::pair()?;
    /// let registered = Registered::new(one)?; // non-blocking from here on
    /// assert!(registered.get_ref().local_addr()?.is_unnamed());
    /// assert!(registered.event_loop().is_none()); // not waited for yet
    /// let _back: UnixDatagram = registered.into_inner();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn get_ref(&self) -> &T {
        self.io.as_ref().expect("present until into_inner")
    }

    /// Deregisters the descriptor and returns the value that owns it; it stays non-blocking.
    pub fn into_inner(mut self) -> T {
        self.watched.deregister();
        self.io.take().expect("present until into_inner")
    }

    /// Returns the loop that it is registered with, if any.
    pub fn event_loop(&self) -> Option<EventLoop> {
        self.watched.home().map(|home| EventLoop::new(&home))
    }

    /// Polls for readability; only the task that polled last is woken.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::io::Registered;
    /// use std::{future::poll_fn, io::Write, os::unix::net::UnixStream};
    ///
    /// loopgroup::run(async {
    ///     let (ours, mut theirs) = UnixStream::pair()?;
    ///     let ours = Registered::new(ours)?;
    ///     poll_fn(|cx| ours.poll_writable(cx)).await?;
    ///     theirs.write_all(b"!")?;
    ///     poll_fn(|cx| ours.poll_readable(cx)).await
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_wait(Direction::Read, cx)
    }

    /// Polls for writability; only the task that polled last is woken.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_wait(Direction::Write, cx)
    }

    /// Tries an operation if the descriptor is, or may be, ready for it; of several interests, one
    /// that is ready is enough. Urgent data counts as readable.
    ///
    /// If it returns `WouldBlock`, the readiness that it was tried on is cleared, so that the next
    /// wait waits for a new event; any other error leaves the readiness set.
    ///
    /// `operation` should be a single system call. If it makes several, as `read_exact` and
    /// `write_all` do, a later one may return `WouldBlock`, and how much the earlier ones have done
    /// is unknown.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it is not ready; otherwise what `operation` returns. On a connection of a
    /// [`Server`](crate::net::Server): `UnexpectedEof` instead of `WouldBlock` if its reads have ended, and
    /// `TimedOut` if a time limit of the server has expired.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::io::{Interest, Registered};
    /// use std::{io::Read, os::unix::net::UnixStream};
    ///
    /// let (ours, theirs) = UnixStream::pair()?;
    /// let ours = Registered::new(ours)?;
    /// let read = || ours.try_io(Interest::READABLE, |mut stream| stream.read(&mut [0; 8]));
    /// assert_eq!(read().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    /// drop(theirs);
    /// assert_eq!(read()?, 0); // the end
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let Some(source) = self.watched.source() else {
            return operation(self.get_ref());
        };
        let looks = interest
            .directions()
            .map(|direction| direction.map(|direction| (direction, source.readiness(direction))));
        let mut ready = [None; 2];
        for (ready, look) in ready.iter_mut().zip(looks) {
            *ready = match look {
                Some((direction, Readiness::Shut)) => return Err(shut(Some(direction))),
                Some((_, Readiness::Expired)) => return Err(expired()),
                Some((direction, Readiness::Ready(tick))) => Some((direction, tick)),
                Some((direction, Readiness::Ended)) => Some((direction, Tick::END)),
                Some((_, Readiness::NotReady)) | None => None,
            };
        }
        if ready == [None; 2] {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = operation(self.get_ref());
        if would_block(&result) {
            for (direction, tick) in ready.into_iter().flatten() {
                if tick.is_end() {
                    // Not `WouldBlock`: `readable` would resolve at once, for ever.
                    return Err(reads_ended());
                }
                source.blocked(direction, tick);
            }
        }
        result
    }

    /// Moves it to another loop; tasks that wait for it are woken and wait there.
    ///
    /// # Errors
    ///
    /// If that loop cannot be started, has no selector or has ended. The descriptor is then
    /// registered with no loop, until a task next waits for it on one.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, io::Registered};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let mut ours = Registered::new(ours)?;
    /// group.block_on(ours.migrate_to(&group.loops()[1]))?;
    /// assert_eq!(ours.event_loop().as_ref(), Some(&group.loops()[1]));
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn migrate_to(&mut self, event_loop: &EventLoop) -> io::Result<()> {
        let fd = self.descriptor();
        self.watched.migrate(event_loop.shared(), fd)
    }

    /// Registers it with no loop, until a task next waits for it.
    pub(crate) fn detach(&mut self) {
        self.watched.detach();
    }

    /// Returns what ends its reads, or limits its time, from elsewhere.
    pub(crate) fn control(&self) -> Control {
        Control::new(&self.watched)
    }

    /// Registers it with this thread's loop now, not when it first has to wait.
    pub(crate) fn register(&self) -> io::Result<()> {
        self.watched.source_of(|| self.as_raw_fd()).map(drop)
    }

    /// Polls an operation until it returns anything but `WouldBlock`.
    ///
    /// `short` says whether a read or write was short: a stream that returned less than it was
    /// asked for has no more, so the system call that would return `WouldBlock` is saved.
    pub(crate) fn poll_io<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        operation: impl FnMut(&T) -> io::Result<R>,
        short: impl Fn(&R) -> Short,
    ) -> Poll<io::Result<R>> {
        self.poll_io_or(direction, cx, operation, short, || Err(reads_ended()))
    }

    /// As [`poll_io`](Registered::poll_io); `end` is the outcome of an operation that would block after
    /// the reads have ended.
    pub(crate) fn poll_io_or<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
        short: impl Fn(&R) -> Short,
        end: impl FnOnce() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        ready!(budget::poll_proceed(cx));
        if let Some(result) = self.try_unregistered(&mut operation) {
            return Poll::Ready(result);
        }
        loop {
            let (source, tick) = ready!(self.poll_ready(direction, cx))?;
            let result = operation(self.get_ref());
            if would_block(&result) {
                if tick.is_end() {
                    return Poll::Ready(end());
                }
                source.blocked(direction, tick);
                continue;
            }
            if result.as_ref().is_ok_and(|done| short(done) == Short::Yes) {
                source.short(direction, tick);
            }
            return Poll::Ready(result);
        }
    }

    /// Clears the readiness and has the selector look: if the descriptor is ready, the next wait of the loop
    /// reports it. Where a system call finds nothing at a high price, that saves it.
    ///
    /// Nothing is cleared if the descriptor is not registered, or if the selector cannot be asked.
    pub(crate) fn look_again(&self, direction: Direction) {
        let Some(source) = self.watched.source() else {
            return;
        };
        // The tick precedes the look: an event that another thread records in between is not cleared.
        if let Readiness::Ready(tick) = source.readiness(direction) {
            if self.watched.look_again() {
                source.short(direction, tick);
            }
        }
    }

    /// Tries an operation on a descriptor that is not registered: it may never have to wait at all.
    pub(super) fn try_unregistered<R>(
        &self,
        operation: &mut impl FnMut(&T) -> io::Result<R>,
    ) -> Option<io::Result<R>> {
        if self.watched.source().is_some() {
            return None;
        }
        let result = operation(self.get_ref());
        if would_block(&result) {
            return None;
        }
        budget::spend();
        Some(result)
    }

    fn poll_wait(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(budget::poll_proceed(cx));
        self.poll_ready(direction, cx).map_ok(drop)
    }

    fn poll_ready(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<ReadySource<'_>> {
        self.poll_ready_or(direction, |source| {
            let spare = source.store(direction, cx.waker().clone());
            // The waker is stored first and readiness read again afterwards: see the invariants of
            // `Source`.
            let look = source.readiness(direction);
            Enlisted { look, spare }
        })
    }

    /// Checks readiness, and calls `enlist` to store a waker if it is not ready.
    ///
    /// Any outcome spends budget, an error too: a task that retries after each error must yield as
    /// well.
    pub(super) fn poll_ready_or(
        &self,
        direction: Direction,
        enlist: impl FnOnce(&Source) -> Enlisted,
    ) -> Poll<ReadySource<'_>> {
        let source = self.watched.source_of(|| self.as_raw_fd());
        let ready = source.and_then(|mut source| {
            let mut look = source.readiness(direction);
            if look == Readiness::Shut {
                source = self.watched.move_on(self.descriptor(), direction)?;
                look = source.readiness(direction);
            }
            if look == Readiness::NotReady {
                let enlisted = enlist(source);
                look = enlisted.look;
                drop(enlisted.spare);
            }
            match look {
                Readiness::Ready(tick) => Ok(Some((source, tick))),
                Readiness::Ended => Ok(Some((source, Tick::END))),
                Readiness::Expired => Err(expired()),
                Readiness::Shut => Err(shut(Some(direction))),
                Readiness::NotReady => Ok(None),
            }
        });
        let Some(ready) = ready.transpose() else {
            noted::waits_for(|| described::noted(&self.watched, self.get_ref(), direction));
            return Poll::Pending;
        };
        budget::spend();
        Poll::Ready(ready)
    }
}

/// Whether an operation transferred less than it was asked to.
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

// Wakers are foreign code, which makes the compiler doubt it. They are called with no lock held and
// their panics are contained, so that a panic never leaves a descriptor half changed.
impl<T: AsFd + UnwindSafe> UnwindSafe for Registered<T> {}
impl<T: AsFd + RefUnwindSafe> RefUnwindSafe for Registered<T> {}

impl<T: AsFd> Drop for Registered<T> {
    fn drop(&mut self) {
        // `None` after `into_inner`, which has deregistered it.
        if self.io.is_some() {
            self.watched.deregister();
        }
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Registered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let home = self.watched.home().map(|home| home.index);
        f.debug_struct("Registered")
            .field("io", &self.io)
            .field("event_loop", &home)
            .finish()
    }
}

pub(super) fn would_block<R>(result: &io::Result<R>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

#[cold]
pub(super) fn reads_ended() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "reads of this connection have ended: its server is shutting down",
    )
}

#[cold]
fn expired() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "a time limit of the server that accepted this connection has expired",
    )
}

/// The source that is ready, and the tick at which its readiness was read; [`Tick::END`] if its reads have
/// ended.
pub(super) type ReadySource<'a> = io::Result<(&'a Source, Tick)>;
