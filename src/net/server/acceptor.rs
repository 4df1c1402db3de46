//! The task that accepts connections: one per listener.
//!
//! - Every wait (for a connection, for the connection limit, for the accept rate, for a free descriptor, for
//!   room in a worker's queue) also waits for the stop signals, which are checked first.
//! - A failed accept keeps the listener's readiness, since an edge-triggered selector would not report
//!   it again; a timer triggers the retry. It is immediate after a connection that its peer aborted,
//!   otherwise after 2 ms, doubled each time up to half a second.
//! - After an accept there may be more connections, and no further event for them: see `backlog`.
//! - An accepted connection is given to a worker or counted as rejected; it is never dropped silently.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::event_loop::context;
use crate::event_loop::enqueue::Admission;
use crate::event_loop::handle::EventLoop;
use crate::group::core::GroupCore;
use crate::group::handle::EventLoopGroup;
use crate::net::server::backlog::{BacklogLooks, NextLook};
use crate::net::server::connection::{PendingConnection, ServerCore};
use crate::net::server::limits::AcceptRate;
use crate::net::server::listener::{Listener, Sealed};
use crate::net::server::state::ServerState;
use crate::shutdown_requested::{ShutdownRequested, shutdown_requested};
use crate::sync::{Arc, Weak};
use crate::time::sleep;

/// The first delay after a failure; each is twice as long as the last.
const FIRST_DELAY: Duration = Duration::from_millis(2);
const MAX_DELAY: Duration = Duration::from_millis(500);
/// Consecutive connections that their peers may have aborted before the next retry is delayed.
const MAX_IMMEDIATE_RETRIES: u32 = 16;

/// A listener, and the workers that serve its connections.
///
/// The field order is the drop order: the listener is closed before the server can count as ended.
pub(super) struct Acceptor<L, P> {
    pub(super) listener: L,
    pub(super) workers: WorkerChoice,
    pub(super) core: Arc<ServerCore<P>>,
}

/// A connection that was just accepted.
type Accepted<L, P> = (
    <L as Sealed>::Stream,
    <L as Sealed>::Addr,
    PendingConnection<P>,
);

impl<L: Listener, P> Acceptor<L, P> {
    /// Accepts connections until a stop signal; `serve` is called for each, on its worker loop.
    pub(super) async fn run<C, F>(self, serve: C)
    where
        C: Fn(L::Stream, L::Addr, PendingConnection<P>) -> F + Copy + Send + 'static,
        P: Send + Sync + 'static,
        F: Future<Output = ()> + 'static,
    {
        let state = &self.core.state;
        let mut stop = StopSignals::new(state, &self.workers);
        let mut backoff = AcceptBackoff::new();
        let mut looks = BacklogLooks::default();
        loop {
            if let Some(delay) = state.rate.as_ref().and_then(AcceptRate::delay) {
                if stop.unless_stopped(sleep(delay)).await.is_none() {
                    return;
                }
                continue;
            }
            let accepted = poll_fn(|cx| self.poll_accept(cx, &mut looks));
            match stop.unless_stopped(accepted).await {
                None => return,
                Some(Ok((stream, peer, connection))) => {
                    backoff = AcceptBackoff::new();
                    if looks.accepted() == NextLook::Ask {
                        self.listener.look_again();
                    }
                    let start = move || serve(stream, peer, connection);
                    let submitted = self.workers.submit(start, self.core.location, &mut stop);
                    if submitted.await.is_none() {
                        return;
                    }
                }
                Some(Err(error)) => {
                    let delay = backoff.delay_after(&error);
                    state.accept_failed(error);
                    if !delay.is_zero() && stop.unless_stopped(sleep(delay)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Accepts a connection if there is one and the limit allows it.
    fn poll_accept(
        &self,
        cx: &mut Context<'_>,
        looks: &mut BacklogLooks,
    ) -> Poll<io::Result<Accepted<L, P>>> {
        let state = &self.core.state;
        loop {
            let accepted = self.listener.poll_admit(cx, |accept| {
                if !state.try_acquire() {
                    // Neither an error nor `WouldBlock`: the listener stays ready.
                    return Ok(None);
                }
                match accept() {
                    Ok((stream, peer)) => {
                        Ok(Some((stream, peer, PendingConnection::new(&self.core))))
                    }
                    Err(error) => {
                        state.release();
                        Err(error)
                    }
                }
            });
            let Poll::Ready(accepted) = accepted else {
                looks.empty();
                return Poll::Pending;
            };
            if let Some(connection) = accepted? {
                return Poll::Ready(Ok(connection));
            }
            ready!(state.poll_below_limit(cx));
        }
    }
}

/// Selects the loop that serves a connection.
#[derive(Clone)]
pub(super) enum WorkerChoice {
    /// The loop that accepted it; while that is paused, the next one of its group.
    AcceptingLoop(Weak<GroupCore>),
    /// The next loop of a group.
    NextOf(Weak<GroupCore>),
}

impl WorkerChoice {
    pub(super) fn accepting_loop_of(group: &EventLoopGroup) -> WorkerChoice {
        WorkerChoice::AcceptingLoop(Arc::downgrade(group.core()))
    }

    pub(super) fn next_of(group: &EventLoopGroup) -> WorkerChoice {
        WorkerChoice::NextOf(Arc::downgrade(group.core()))
    }

    /// Resolves when a shutdown of every loop that could serve was requested.
    fn shutdown_requested(&self) -> ShutdownRequested {
        match self {
            WorkerChoice::AcceptingLoop(_) => shutdown_requested(),
            WorkerChoice::NextOf(group) => {
                let group = group.upgrade();
                let loops = group.iter().flat_map(|group| group.loops.iter());
                ShutdownRequested::of(loops.map(|one| Arc::clone(one.shared())).collect())
            }
        }
    }

    /// Submits a connection to a loop, and retries until one accepts it; `None` if all have shut down,
    /// or after a stop signal.
    async fn submit<C, F>(
        &self,
        mut serve: C,
        location: &'static Location<'static>,
        stop: &mut StopSignals<'_>,
    ) -> Option<()>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let mut delay = FIRST_DELAY;
        loop {
            // Neither the group nor a handle is held across the await below.
            let (started, is_open) = match self {
                WorkerChoice::AcceptingLoop(_) if !is_paused_here() => {
                    let here = EventLoop::current().expect("an acceptor is a task of a loop");
                    let started = here.offer_local(serve, Admission::New, location);
                    let note = |reason| here.shared().note_refusal(reason, location);
                    let started = started.inspect_err(|refused| note(refused.reason()));
                    (started, !here.state().is_shutdown())
                }
                WorkerChoice::AcceptingLoop(group) | WorkerChoice::NextOf(group) => {
                    let group = group.upgrade()?;
                    let started = group.start_connection(serve, location);
                    let mut loops = group.loops.iter();
                    (started, loops.any(|one| !one.state().is_shutdown()))
                }
            };
            match started {
                Ok(()) => return Some(()),
                // Every queue is full, or a thread could not be started.
                Err(refused) if is_open => serve = refused.into_inner(),
                Err(_) => return None,
            }
            stop.unless_stopped(sleep(delay)).await?;
            delay = doubled(delay);
        }
    }
}

/// Whether the loop of this thread is paused.
fn is_paused_here() -> bool {
    context::with_local(|local| local.shared.is_paused()).unwrap_or(false)
}

/// The stop signals of an acceptor: from the handle, from its own loop, and from all workers.
pub(super) struct StopSignals<'a> {
    state: &'a ServerState,
    /// The key of this acceptor among the waiters for [`ServerHandle::stop`](super::ServerHandle::stop).
    stop_key: Option<usize>,
    own_loop: ShutdownRequested,
    workers: ShutdownRequested,
}

impl<'a> StopSignals<'a> {
    pub(super) fn new(state: &'a ServerState, workers: &WorkerChoice) -> StopSignals<'a> {
        StopSignals {
            state,
            stop_key: None,
            own_loop: shutdown_requested(),
            workers: workers.shutdown_requested(),
        }
    }

    /// Awaits `future`; returns `None` on a stop signal.
    pub(super) async fn unless_stopped<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            // Checked before the poll: no connection is accepted after the signal.
            if self.is_stopping() {
                return Poll::Ready(None);
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => self.poll(cx).map(|()| None),
            }
        })
        .await
    }

    fn is_stopping(&self) -> bool {
        self.state.is_stopping() || self.own_loop.is_requested() || self.workers.is_requested()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.state.poll_stop(&mut self.stop_key, cx).is_ready()
            || Pin::new(&mut self.own_loop).poll(cx).is_ready()
        {
            return Poll::Ready(());
        }
        Pin::new(&mut self.workers).poll(cx)
    }
}

/// The delays between consecutive accepts that fail.
#[derive(Debug)]
struct AcceptBackoff {
    immediate_retries: u32,
    delay: Duration,
}

impl AcceptBackoff {
    fn new() -> AcceptBackoff {
        AcceptBackoff {
            immediate_retries: 0,
            delay: FIRST_DELAY,
        }
    }

    /// Returns how long to wait before the next attempt.
    fn delay_after(&mut self, error: &io::Error) -> Duration {
        // These errors removed a connection from the backlog: the next one may be fine.
        let removed = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted
        );
        if removed && self.immediate_retries < MAX_IMMEDIATE_RETRIES {
            self.immediate_retries += 1;
            return Duration::ZERO;
        }
        let delay = self.delay;
        self.delay = doubled(delay);
        delay
    }
}

fn doubled(delay: Duration) -> Duration {
    (delay * 2).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_half_a_second() {
        let mut backoff = AcceptBackoff::new();
        let no_descriptors = io::Error::from_raw_os_error(libc::EMFILE);
        let delays: Vec<_> = (0..9)
            .map(|_| backoff.delay_after(&no_descriptors).as_millis())
            .collect();
        assert_eq!(delays, [2, 4, 8, 16, 32, 64, 128, 256, 500]);
    }

    #[test]
    fn aborted_connections_are_retried_immediately_a_limited_number_of_times() {
        let mut backoff = AcceptBackoff::new();
        let aborted = io::Error::from_raw_os_error(libc::ECONNABORTED);
        for _ in 0..MAX_IMMEDIATE_RETRIES {
            assert_eq!(backoff.delay_after(&aborted), Duration::ZERO);
        }
        assert_eq!(backoff.delay_after(&aborted), FIRST_DELAY);
    }
}
