//! The state shared by a server's acceptors and connections, and the handle to it.
//!
//! - A connection is a [`PendingConnection`] until its handler is called, and a [`ServedConnection`]
//!   from then on. It is counted exactly once at its end: rejected, aborted or completed.
//! - Acceptors and connections hold the [`ServerCore`]; the server ends when that is dropped, after the
//!   handler was dropped.
//! - The connection limit is acquired before the accept and released if there was nothing to accept. A
//!   release at the limit wakes the waiting acceptors; these store their wakers first and check again
//!   after that, so no release is missed.
//! - Wakers are woken with no lock held; panics of foreign ones are contained.

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
use crate::waiters::EventWaiters;

/// The counters and events of a server.
#[derive(Debug)]
pub(super) struct ServerState {
    local: SocketAddr,
    accepted: AtomicU64,
    completed: AtomicU64,
    aborted: AtomicU64,
    rejected: AtomicU64,
    accept_errors: AtomicU64,
    last_error: Mutex<Option<Arc<io::Error>>>,
    /// `None` if the number of connections is not limited.
    limit: Option<ConnectionLimit>,
    /// Set before `stop` fires, when the server is to accept no more connections.
    stopping: AtomicBool,
    stop: Mutex<EventWaiters>,
    /// Fired when the server has ended.
    end: Mutex<EventWaiters>,
}

/// Limits the number of open connections.
#[derive(Debug)]
struct ConnectionLimit {
    max: usize,
    open: AtomicUsize,
    /// The acceptors that wait for a release.
    waiting: Mutex<Vec<Waker>>,
}

impl ServerState {
    pub(super) fn new(local: SocketAddr, max: Option<usize>) -> ServerState {
        ServerState {
            local,
            accepted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
            limit: max.map(|max| ConnectionLimit {
                max,
                open: AtomicUsize::new(0),
                waiting: Mutex::default(),
            }),
            stopping: AtomicBool::new(false),
            stop: Mutex::new(EventWaiters::new()),
            end: Mutex::new(EventWaiters::new()),
        }
    }

    /// Stops the acceptors.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let wakers = self.stop.lock().fire();
        context::panics().wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }

    /// Releases the wakers of acceptors that have ended: the handle would keep their loops alive.
    fn release_acceptor_wakers(&self) {
        self.stop();
        if let Some(limit) = &self.limit {
            limit.wake_waiting();
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
        // After the error is stored: a caller that sees the new count finds the error.
        self.accept_errors.fetch_add(1, Ordering::Release);
    }

    /// Acquires the right to open one more connection; `false` at the limit.
    pub(super) fn try_acquire(&self) -> bool {
        self.limit.as_ref().is_none_or(ConnectionLimit::try_acquire)
    }

    pub(super) fn release(&self) {
        if let Some(limit) = &self.limit {
            limit.release();
        }
    }

    /// Counts the end of a connection and releases it from the limit.
    fn connection_ended(&self, outcome: &AtomicU64) {
        outcome.fetch_add(1, Ordering::Release);
        self.release();
    }

    /// Waits until the server is below its connection limit.
    pub(super) fn poll_below_limit(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = &self.limit else {
            return Poll::Ready(());
        };
        let mut waiting = limit.waiting.lock();
        // One entry per acceptor, however often it is polled for other reasons.
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        drop(waiting);
        // After the waker is stored: a release is either seen here or wakes the stored waker.
        if limit.open.load(Ordering::Acquire) < limit.max {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn connections(&self) -> usize {
        // The ended ones first: a connection that ends between the loads counts as open, not as never
        // accepted.
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

impl ConnectionLimit {
    fn try_acquire(&self) -> bool {
        self.open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
                (open < self.max).then_some(open + 1)
            })
            .is_ok()
    }

    fn release(&self) {
        // Acceptors wait only at the limit.
        if self.open.fetch_sub(1, Ordering::AcqRel) == self.max {
            self.wake_waiting();
        }
    }

    fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Waits for an event that happens once.
fn poll_event(
    event: &Mutex<EventWaiters>,
    key: &mut Option<usize>,
    cx: &mut Context<'_>,
) -> Poll<()> {
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

/// The handler and the state, held by every acceptor and connection; the server ends with its drop.
pub(super) struct ServerCore<H> {
    /// `None` only during the drop.
    handler: Option<H>,
    pub(super) state: Arc<ServerState>,
    /// Where `serve` was called.
    pub(super) location: &'static Location<'static>,
}

impl<H> ServerCore<H> {
    pub(super) fn new(
        handler: H,
        state: Arc<ServerState>,
        location: &'static Location<'static>,
    ) -> ServerCore<H> {
        ServerCore {
            handler: Some(handler),
            state,
            location,
        }
    }

    pub(super) fn handler(&self) -> &H {
        self.handler.as_ref().expect("taken only by the drop")
    }
}

impl<H> Drop for ServerCore<H> {
    fn drop(&mut self) {
        // The handler is dropped before the server counts as ended. Its destructor is user code, and
        // this drop may run while the last connection unwinds from a panic.
        let (site, location) = (PanicSite::Destructor, Some(self.location));
        context::panics_in_drop().drop(site, location, self.handler.take());
        self.state.release_acceptor_wakers();
        let wakers = self.state.end.lock().fire();
        context::panics().wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }
}

/// An accepted connection whose handler has not been called yet; dropped, it counts as rejected.
pub(super) struct PendingConnection<H>(Option<Arc<ServerCore<H>>>);

impl<H> PendingConnection<H> {
    /// Counts an accepted connection; the caller has acquired the limit for it.
    pub(super) fn new(core: &Arc<ServerCore<H>>) -> PendingConnection<H> {
        core.state.accepted.fetch_add(1, Ordering::Release);
        PendingConnection(Some(Arc::clone(core)))
    }

    pub(super) fn into_served(mut self) -> ServedConnection<H> {
        ServedConnection(self.0.take())
    }
}

impl<H> Drop for PendingConnection<H> {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.state.connection_ended(&core.state.rejected);
        }
    }
}

/// A connection whose handler has been called; dropped before [`complete`](Self::complete), it counts as
/// aborted.
pub(super) struct ServedConnection<H>(Option<Arc<ServerCore<H>>>);

impl<H> ServedConnection<H> {
    pub(super) fn core(&self) -> &ServerCore<H> {
        self.0.as_ref().expect("taken only at the end")
    }

    pub(super) fn complete(mut self) {
        if let Some(core) = self.0.take() {
            core.state.connection_ended(&core.state.completed);
        }
    }
}

impl<H> Drop for ServedConnection<H> {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            core.state.connection_ended(&core.state.aborted);
        }
    }
}

/// A handle to a running [`Server`](super::Server), and a future that resolves when the server has ended.
///
/// Clones refer to the same server. Dropping all of them detaches it.
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
/// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?;
/// println!("listening on {}", server.local_addr());
/// assert_eq!((server.accepted(), server.connections(), server.accept_errors()), (0, 0, 0));
/// assert!(server.last_accept_error().is_none());
/// server.stop();
/// assert_eq!(group.block_on(server).accepted(), 0);
/// # std::io::Result::Ok(())
/// ```
pub struct ServerHandle {
    state: Arc<ServerState>,
    /// The key of this handle among the waiters for the end.
    end_key: Option<usize>,
}

impl ServerHandle {
    pub(super) fn new(state: Arc<ServerState>) -> ServerHandle {
        ServerHandle {
            state,
            end_key: None,
        }
    }

    /// Returns the address that the server listens on, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.state.local
    }

    /// Returns the number of open connections: accepted and not ended.
    pub fn connections(&self) -> usize {
        self.state.connections()
    }

    /// Returns the number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Acquire)
    }

    /// Returns the number of accepts that failed so far; the server continues after each.
    pub fn accept_errors(&self) -> u64 {
        self.state.accept_errors.load(Ordering::Acquire)
    }

    /// Returns the error of the last failed accept.
    pub fn last_accept_error(&self) -> Option<Arc<io::Error>> {
        self.state.last_error.lock().clone()
    }

    /// Closes the listener and lets open connections finish; await the handle to wait for the end.
    ///
    /// It does not block and may be called more than once. Connections that are still in the system's
    /// backlog, or that no worker's queue had room for, are refused. A handler that never returns ends
    /// with its loop: shut down the workers, and let the handler wait for
    /// [`shutdown_requested`](crate::shutdown_requested).
    pub fn stop(&self) {
        self.state.stop();
    }
}

impl Future for ServerHandle {
    type Output = ServerReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ServerReport> {
        let this = &mut *self;
        poll_event(&this.state.end, &mut this.end_key, cx).map(|()| this.state.report())
    }
}

impl Clone for ServerHandle {
    fn clone(&self) -> ServerHandle {
        ServerHandle::new(Arc::clone(&self.state))
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        let waker = self.state.end.lock().remove(&mut self.end_key);
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

/// The final counts of a [`Server`](super::Server): `accepted = completed + aborted + rejected`.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, net::Server};
/// let group = EventLoopGroup::new(1)?;
/// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?;
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
    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number of handlers that ran to completion.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the number of handlers that panicked or were cancelled.
    pub fn aborted(&self) -> u64 {
        self.aborted
    }

    /// Returns the number of accepted connections that no worker accepted: all were shutting down, or
    /// their queues were full until the stop.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Returns the number of accepts that failed.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors
    }

    /// Returns the error of the last failed accept.
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
