//! The counters and events of a server, shared by its acceptors, its connections and its handles.
//!
//! - A connection is counted once when it is accepted and once at its end: completed, failed, aborted or
//!   rejected.
//! - The connection limit is acquired before the accept and released if there was nothing to accept. A
//!   release at the limit wakes the waiting acceptors; these store their wakers first and check again
//!   after that, so no release is missed.
//! - Wakers are woken with no lock held; panics of foreign ones are contained.

use std::io;
use std::task::{Context, Poll, Waker};

use crate::error::Caller;
use crate::event_loop::context;
use crate::event_loop::shared::AtShutdown;
use crate::net::server::limits::AcceptRate;
use crate::net::server::mobile::MobileConnections;
use crate::net::server::open::OpenConnections;
use crate::net::server::report::ServerReport;
use crate::noted::{self, Noted};
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::waiters::EventWaiters;

/// The counters and events of a server.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) accepted: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) aborted: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) moves: AtomicU64,
    /// Counted by the service that the handlers call.
    pub(super) service_panics: Arc<AtomicU64>,
    pub(super) failed_loops: AtomicUsize,
    pub(super) accept_errors: AtomicU64,
    pub(super) last_error: Mutex<Option<Arc<io::Error>>>,
    /// `None` if the number of connections is not limited.
    limit: Option<ConnectionLimit>,
    pub(super) rate: Option<AcceptRate>,
    /// The open connections on each worker loop, by its index.
    pub(super) open: Box<[OpenConnections]>,
    /// Where the server was started.
    #[cfg_attr(not(feature = "inspect"), allow(dead_code))]
    pub(super) location: Caller,
    /// Those that can move.
    pub(super) mobile: Arc<MobileConnections>,
    /// Set before `stop` fires, when the server is to accept no more connections.
    stopping: AtomicBool,
    stop: Mutex<EventWaiters>,
    /// Fired when the server has ended.
    pub(super) end: Mutex<EventWaiters>,
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
    /// The state of a server with so many worker loops.
    pub(super) fn new(
        loops: usize,
        max: Option<usize>,
        rate: Option<u32>,
        service_panics: Arc<AtomicU64>,
        location: Caller,
    ) -> ServerState {
        ServerState {
            accepted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            service_panics,
            failed_loops: AtomicUsize::new(0),
            accept_errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
            limit: max.map(|max| ConnectionLimit {
                max,
                open: AtomicUsize::new(0),
                waiting: Mutex::default(),
            }),
            rate: rate.map(AcceptRate::new),
            open: (0..loops).map(|_| OpenConnections::default()).collect(),
            location,
            mobile: Arc::new(MobileConnections::new(loops)),
            stopping: AtomicBool::new(false),
            stop: Mutex::new(EventWaiters::new()),
            end: Mutex::new(EventWaiters::new()),
        }
    }

    /// The state of a server without limits, for tests.
    #[cfg(test)]
    #[track_caller]
    pub(super) fn for_tests(loops: usize) -> ServerState {
        let location = std::panic::Location::caller();
        ServerState::new(loops, None, None, Arc::default(), location)
    }

    /// Stops the acceptors.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let wakers = self.stop.lock().fire();
        context::panics().wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }

    /// Ends the reads of all connections.
    pub(super) fn end_reads(&self) {
        for connections in &self.open {
            connections.end_reads();
        }
    }

    /// Announces the end of the server, after its last acceptor, connection and handler.
    fn ended(&self) {
        // Releases the wakers of acceptors that have ended: the handle would keep their loops alive.
        self.stop();
        if let Some(limit) = &self.limit {
            limit.wake_waiting();
        }
        let wakers = self.end.lock().fire();
        context::panics().wake_all(wakers.into_iter().map(|(_, waker)| waker));
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

    /// Counts an accepted connection, which has acquired the limit.
    pub(super) fn connection_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Release);
        if let Some(rate) = &self.rate {
            rate.take();
        }
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
    pub(super) fn connection_ended(&self, outcome: &AtomicU64) {
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
            noted::waits_for(|| Noted::Event("room for another connection"));
            Poll::Pending
        }
    }

    pub(super) fn connections(&self) -> usize {
        // The ended ones first: a connection that ends between the loads counts as open, not as never
        // accepted.
        let ended = [&self.completed, &self.failed, &self.aborted, &self.rejected];
        let ended: u64 = ended
            .iter()
            .map(|count| count.load(Ordering::Acquire))
            .sum();
        let open = self.accepted.load(Ordering::Acquire).saturating_sub(ended);
        usize::try_from(open).unwrap_or(usize::MAX)
    }

    pub(super) fn report(&self) -> ServerReport {
        ServerReport {
            completed: self.completed.load(Ordering::Acquire),
            failed: self.failed.load(Ordering::Acquire),
            aborted: self.aborted.load(Ordering::Acquire),
            rejected: self.rejected.load(Ordering::Acquire),
            timed_out: self.timed_out.load(Ordering::Acquire),
            moves: self.moves.load(Ordering::Acquire),
            service_panics: self.service_panics.load(Ordering::Acquire),
            failed_loops: self.failed_loops.load(Ordering::Acquire),
            accept_errors: self.accept_errors.load(Ordering::Acquire),
            last_error: self.last_error.lock().clone(),
            // After the ends: a report of a running server has no more ends than connections.
            accepted: self.accepted.load(Ordering::Acquire),
        }
    }
}

impl AtShutdown for ServerState {
    fn shutdown_began(&self, index: usize) {
        self.open[index].end_reads();
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

/// Held by everything that is part of a server; the server ends with the last one.
#[derive(Debug)]
pub(super) struct Lifetime(pub(super) Arc<ServerState>);

impl Drop for Lifetime {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Waits for an event that happens once.
pub(super) fn poll_event(
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
