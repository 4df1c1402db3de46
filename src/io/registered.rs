//! A descriptor with a home: readiness of anything that the system can poll.
//!
//! - It is tried before it is registered, and registered with the loop that first had to wait for it:
//!   an acceptor can hand a fresh socket to another loop without registering it twice.
//! - An operation that would block clears the readiness it was tried on, and no other error does: a
//!   listener that ran out of descriptors hears nothing more from an edge-triggered selector, so its
//!   readiness must stand.
//! - A task that always finds its descriptor ready still yields: each poll of a task has a budget, out
//!   of which it pays for what it gets, and not for what it waits for.
//! - Drop order: out of the selector, out of the table, then closed.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll, ready};

use mio::Interest;

use crate::event_loop::budget;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::shared::Watched;
use crate::io::watched::shut;
use crate::reactor::source::{Direction, Enlisted, Look, Source, Tick};
use crate::sync::Arc;

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
///         // One call at a time, not `read_exact`: what it had read would be lost when the rest is late.
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
    /// `None` only on the way out.
    io: Option<T>,
    pub(super) watched: Arc<Watched>,
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
            watched: Arc::default(),
        }
    }

    /// Returns the descriptor's owner.
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
    /// assert!(registered.event_loop().is_none()); // nobody has waited yet
    /// let _back: UnixDatagram = registered.into_inner();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn get_ref(&self) -> &T {
        self.io.as_ref().expect("it is there until the end")
    }

    /// Takes the descriptor's owner out; it is watched no more and stays non-blocking.
    pub fn into_inner(mut self) -> T {
        self.watched.end();
        self.io.take().expect("it is there until the end")
    }

    /// Returns the loop that it is registered with, if it is.
    pub fn event_loop(&self) -> Option<EventLoop> {
        self.watched.home().map(|home| EventLoop::new(&home))
    }

    /// Polls for readability; the last caller is the one that is woken.
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

    /// Polls for writability; the last caller is the one that is woken.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_wait(Direction::Write, cx)
    }

    /// Tries an operation if the descriptor is, or may be, ready for it: for one of several interests, if
    /// there are. Urgent data is read.
    ///
    /// When it says `WouldBlock`, the readiness that it was tried on is cleared, so that the next wait
    /// waits for news; any other error leaves it.
    ///
    /// Let `operation` be one system call. Of several, as in `read_exact` and `write_all`, a later one may say
    /// `WouldBlock`, and nobody knows what the earlier ones have done.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it is not ready; else what `operation` returns.
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
        let looks = directions(interest).map(|way| way.map(|way| (way, source.look(way))));
        let mut ready = [None; 2];
        for (place, look) in ready.iter_mut().zip(looks) {
            *place = match look {
                Some((_, Look::Shut)) => return Err(shut()),
                Some((way, Look::Ready(tick))) => Some((way, tick)),
                Some((_, Look::NotReady)) | None => None,
            };
        }
        if ready == [None; 2] {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = operation(self.get_ref());
        if would_block(&result) {
            for (way, tick) in ready.into_iter().flatten() {
                source.blocked(way, tick);
            }
        }
        result
    }

    /// Moves it to another loop; whoever waits for it is woken and waits there.
    ///
    /// # Errors
    ///
    /// If that loop cannot be started, has no selector or has ended; then it is registered nowhere, and
    /// again with the loop that next waits for it.
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
        self.watched.end();
        self.watched = Arc::default();
        self.watched.register(event_loop.shared(), self.as_raw_fd())
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
        ready!(budget::poll_go_on(cx));
        if let Some(result) = self.try_fresh(&mut operation) {
            return Poll::Ready(result);
        }
        loop {
            let (source, tick) = ready!(self.poll_ready(direction, cx))?;
            let result = operation(self.get_ref());
            if would_block(&result) {
                source.blocked(direction, tick);
                continue;
            }
            if result.as_ref().is_ok_and(|done| short(done) == Short::Yes) {
                source.short(direction, tick);
            }
            return Poll::Ready(result);
        }
    }

    /// Tries an operation on a descriptor that nobody has waited for: it may never have to wait at all.
    pub(super) fn try_fresh<R>(
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
        ready!(budget::poll_go_on(cx));
        self.poll_ready(direction, cx).map_ok(drop)
    }

    fn poll_ready(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<Ready<'_>> {
        self.poll_ready_or(direction, |source| {
            let spare = source.store(direction, cx.waker().clone());
            // Stored first, looked at again after: see the invariants of `Source`.
            let look = source.look(direction);
            Enlisted { look, spare }
        })
    }

    /// Looks whether it is ready, and has `enlist` leave a waker if it is not.
    ///
    /// An answer is paid for, an error too: a task that tries again after each must yield as well.
    pub(super) fn poll_ready_or(
        &self,
        direction: Direction,
        enlist: impl FnOnce(&Source) -> Enlisted,
    ) -> Poll<Ready<'_>> {
        let source = self.watched.source_of(self.as_raw_fd());
        let ready = source.and_then(|mut source| {
            let mut look = source.look(direction);
            if look == Look::Shut {
                source = self.watched.move_on(self.as_raw_fd())?;
                look = source.look(direction);
            }
            if look == Look::NotReady {
                let enlisted = enlist(source);
                look = enlisted.look;
                drop(enlisted.spare);
            }
            match look {
                Look::Ready(tick) => Ok(Some((source, tick))),
                Look::Shut => Err(shut()),
                Look::NotReady => Ok(None),
            }
        });
        let Some(ready) = ready.transpose() else {
            return Poll::Pending;
        };
        budget::spend();
        Poll::Ready(ready)
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
        // Not after `into_inner`.
        if self.io.is_some() {
            self.watched.end();
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

/// The ways that an interest goes: whatever is not for writing is for reading.
fn directions(interest: Interest) -> [Option<Direction>; 2] {
    let reads = interest.remove(Interest::WRITABLE).is_some();
    [
        reads.then_some(Direction::Read),
        interest.is_writable().then_some(Direction::Write),
    ]
}

pub(super) fn would_block<R>(result: &io::Result<R>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// What is ready, and since when.
pub(super) type Ready<'a> = io::Result<(&'a Source, Tick)>;
