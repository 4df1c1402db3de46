//! What a server's acceptors and connections share, and what its user sees of it.
//!
//! - A connection is a [`Seat`] until its handler is called and [`Started`] from then on; however it goes, it
//!   leaves one entry in the counts: rejected, aborted or completed.
//! - Acceptors and seats keep the [`Host`]; its drop is the end of the server, and comes once. The handler is
//!   gone by then.
//! - Room: a seat is taken before the accept and given back if there was nothing to accept. A release that
//!   finds every place taken wakes the acceptors that wait; they store their wakers first and look again
//!   after, so no release is missed.
//! - Wakers are woken with no lock held, and foreign ones contained.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::event_loop::context;
use crate::panic::PanicSite;
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::waiters::Waiters;

/// What the handle sees.
#[derive(Debug)]
pub(super) struct State {
    local: SocketAddr,
    accepted: AtomicU64,
    completed: AtomicU64,
    aborted: AtomicU64,
    rejected: AtomicU64,
    accept_errors: AtomicU64,
    last_error: Mutex<Option<Arc<io::Error>>>,
    room: Option<Room>,
    /// Set, and fired, when the server is to accept no more.
    stopping: AtomicBool,
    stop: Mutex<Waiters>,
    /// Fired when the server has ended.
    end: Mutex<Waiters>,
}

/// Places for connections, when they are limited.
#[derive(Debug)]
struct Room {
    max: usize,
    taken: AtomicUsize,
    waiting: Mutex<Vec<Waker>>,
}

impl State {
    pub(super) fn new(local: SocketAddr, max: Option<usize>) -> State {
        State {
            local,
            accepted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
            room: max.map(|max| Room {
                max,
                taken: AtomicUsize::new(0),
                waiting: Mutex::default(),
            }),
            stopping: AtomicBool::new(false),
            stop: Mutex::new(Waiters::new()),
            end: Mutex::new(Waiters::new()),
        }
    }

    /// Tells the acceptors to stop.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let wakers = self.stop.lock().fire();
        context::panics().wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }

    /// Lets the wakers of acceptors go that are gone themselves: they would keep their loops for the handle.
    fn forget_acceptors(&self) {
        self.stop();
        if let Some(room) = &self.room {
            room.wake_waiting();
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ready once the acceptors are to stop.
    pub(super) fn poll_stop(&self, key: &mut Option<usize>, cx: &mut Context<'_>) -> Poll<()> {
        poll_event(&self.stop, key, cx)
    }

    pub(super) fn accept_failed(&self, error: io::Error) {
        *self.last_error.lock() = Some(Arc::new(error));
        self.accept_errors.fetch_add(1, Ordering::Release); // after it: who sees the count finds it
    }

    /// Takes a place, if there is one.
    pub(super) fn take_place(&self) -> bool {
        self.room.as_ref().is_none_or(Room::take)
    }

    /// Gives a place back.
    pub(super) fn leave_place(&self) {
        if let Some(room) = &self.room {
            room.leave();
        }
    }

    /// Counts the end of a connection.
    fn leave(&self, outcome: &AtomicU64) {
        outcome.fetch_add(1, Ordering::Release);
        self.leave_place();
    }

    /// Waits for a place; ready if there is one now.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(room) = &self.room else {
            return Poll::Ready(());
        };
        let mut waiting = room.waiting.lock();
        // Each acceptor has one place, however often it is woken for other reasons.
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        drop(waiting);
        if room.taken.load(Ordering::Acquire) < room.max {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn connections(&self) -> usize {
        // The ends first: a connection that ends in between is counted as open, not as never there.
        let ended = self.completed.load(Ordering::Acquire)
            + self.aborted.load(Ordering::Acquire)
            + self.rejected.load(Ordering::Acquire);
        let open = self.accepted.load(Ordering::Acquire).saturating_sub(ended);
        usize::try_from(open).unwrap_or(usize::MAX)
    }

    fn report(&self) -> ServerReport {
        ServerReport {
            accepted: self.accepted.load(Ordering::Acquire),
            completed: self.completed.load(Ordering::Acquire),
            aborted: self.aborted.load(Ordering::Acquire),
            rejected: self.rejected.load(Ordering::Acquire),
            accept_errors: self.accept_errors.load(Ordering::Acquire),
            last_error: self.last_error.lock().clone(),
        }
    }
}

impl Room {
    fn take(&self) -> bool {
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < self.max).then_some(taken + 1)
            })
            .is_ok()
    }

    fn leave(&self) {
        // Nobody waits while there is room.
        if self.taken.fetch_sub(1, Ordering::AcqRel) == self.max {
            self.wake_waiting();
        }
    }

    fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Waits for an event that happens once.
fn poll_event(event: &Mutex<Waiters>, key: &mut Option<usize>, cx: &mut Context<'_>) -> Poll<()> {
    // Cloning and dropping wakers is user code: both happen outside the lock.
    let waker = cx.waker().clone();
    let mut waiters = event.lock();
    if waiters.has_fired() {
        return Poll::Ready(());
    }
    let replaced = waiters.store(key, waker);
    drop(waiters);
    drop(replaced);
    Poll::Pending
}

/// The handler, kept by whoever may still call it or run its futures.
pub(super) struct Host<H> {
    /// `None` only on the way out.
    handler: Option<H>,
    pub(super) state: Arc<State>,
    /// Where `serve` was called.
    pub(super) location: &'static Location<'static>,
}

impl<H> Host<H> {
    pub(super) fn new(
        handler: H,
        state: Arc<State>,
        location: &'static Location<'static>,
    ) -> Host<H> {
        Host {
            handler: Some(handler),
            state,
            location,
        }
    }

    pub(super) fn handler(&self) -> &H {
        self.handler.as_ref().expect("it is there until the end")
    }
}

impl<H> Drop for Host<H> {
    fn drop(&mut self) {
        // What the handler holds is gone before the server counts as ended. Its destructor is user code, and
        // the connection that goes last may be on its way out of a panic already.
        let (site, location) = (PanicSite::Destructor, Some(self.location));
        context::panics().drop(site, location, self.handler.take());
        self.state.forget_acceptors();
        let wakers = self.state.end.lock().fire();
        context::panics().wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }
}

/// One accepted connection, for which no handler was called yet.
pub(super) struct Seat<H>(Option<Arc<Host<H>>>);

impl<H> Seat<H> {
    /// Counts a connection whose place is taken.
    pub(super) fn new(host: &Arc<Host<H>>) -> Seat<H> {
        host.state.accepted.fetch_add(1, Ordering::Release);
        Seat(Some(Arc::clone(host)))
    }

    pub(super) fn start(mut self) -> Started<H> {
        Started(self.0.take())
    }
}

impl<H> Drop for Seat<H> {
    fn drop(&mut self) {
        if let Some(host) = self.0.take() {
            host.state.leave(&host.state.rejected);
        }
    }
}

/// One connection in the hands of its handler.
pub(super) struct Started<H>(Option<Arc<Host<H>>>);

impl<H> Started<H> {
    pub(super) fn host(&self) -> &Host<H> {
        self.0.as_ref().expect("it has its host until it ends")
    }

    pub(super) fn complete(mut self) {
        if let Some(host) = self.0.take() {
            host.state.leave(&host.state.completed);
        }
    }
}

impl<H> Drop for Started<H> {
    fn drop(&mut self) {
        if let Some(host) = self.0.take() {
            host.state.leave(&host.state.aborted);
        }
    }
}

/// A handle to a running [`Server`](super::Server), and a future that resolves when it has ended.
///
/// Clones lead to the same server. Dropping them all detaches it.
///
/// # Cancel safety
///
/// Cancel safe: the report stays available to every other and later handle.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, net::Server};
///
/// let group = EventLoopGroup::new(1)?;
/// let server = Server::bind("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?;
/// println!("listening on {}", server.local_addr());
/// assert_eq!((server.accepted(), server.connections(), server.accept_errors()), (0, 0, 0));
/// assert!(server.last_accept_error().is_none());
/// server.stop();
/// assert_eq!(group.block_on(server).accepted(), 0);
/// # std::io::Result::Ok(())
/// ```
pub struct ServerHandle {
    state: Arc<State>,
    key: Option<usize>,
}

impl ServerHandle {
    pub(super) fn new(state: Arc<State>) -> ServerHandle {
        ServerHandle { state, key: None }
    }

    /// Returns the address that it listens on, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.state.local
    }

    /// Returns how many connections are open: accepted, and not yet done with.
    pub fn connections(&self) -> usize {
        self.state.connections()
    }

    /// Returns how many connections were accepted so far.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Acquire)
    }

    /// Returns how many accepts have failed so far; the server goes on after each.
    pub fn accept_errors(&self) -> u64 {
        self.state.accept_errors.load(Ordering::Acquire)
    }

    /// Returns the error of the accept that failed last.
    pub fn last_accept_error(&self) -> Option<Arc<io::Error>> {
        self.state.last_error.lock().clone()
    }

    /// Closes the listener and lets open connections finish; await the handle to see the end.
    ///
    /// It does not wait and may be called again. Connections that the system has not yet handed over, or that
    /// no worker had room for yet, are refused. A handler that would go on for ever ends with its loop: shut
    /// the workers down, and have it wait for [`shutdown_requested`](crate::shutdown_requested).
    pub fn stop(&self) {
        self.state.stop();
    }
}

impl Future for ServerHandle {
    type Output = ServerReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ServerReport> {
        let this = &mut *self;
        poll_event(&this.state.end, &mut this.key, cx).map(|()| this.state.report())
    }
}

impl Clone for ServerHandle {
    fn clone(&self) -> ServerHandle {
        ServerHandle::new(Arc::clone(&self.state))
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        let waker = self.state.end.lock().remove(&mut self.key);
        drop(waker);
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("local_addr", &self.local_addr())
            .field("connections", &self.connections())
            .field("accepted", &self.accepted())
            .field("accept_errors", &self.accept_errors())
            .finish_non_exhaustive()
    }
}

/// What a [`Server`](super::Server) has done: `accepted = completed + aborted + rejected`.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, net::Server};
/// let group = EventLoopGroup::new(1)?;
/// let server = Server::bind("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?;
/// server.stop();
/// let report = group.block_on(server);
/// println!("{report}"); // 0 connections accepted = 0 completed + 0 aborted + 0 rejected; ...
/// assert_eq!(report.accepted(), report.completed() + report.aborted() + report.rejected());
/// assert!(report.accept_errors() == 0 && report.last_accept_error().is_none());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct ServerReport {
    accepted: u64,
    completed: u64,
    aborted: u64,
    rejected: u64,
    accept_errors: u64,
    last_error: Option<Arc<io::Error>>,
}

impl ServerReport {
    /// Returns how many connections were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns how many handlers came to their end.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns how many handlers panicked or were cancelled.
    pub fn aborted(&self) -> u64 {
        self.aborted
    }

    /// Returns how many connections were accepted and then taken by no worker: all were ending, or full until the stop.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Returns how many accepts failed.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors
    }

    /// Returns the error of the accept that failed last.
    pub fn last_accept_error(&self) -> Option<&io::Error> {
        self.last_error.as_deref()
    }
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections accepted = {} completed + {} aborted + {} rejected; {} accept errors",
            self.accepted, self.completed, self.aborted, self.rejected, self.accept_errors
        )?;
        match &self.last_error {
            Some(error) => write!(f, ", the last: {error}"),
            None => Ok(()),
        }
    }
}
