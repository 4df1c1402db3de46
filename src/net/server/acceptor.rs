//! The task that accepts: one per listener.
//!
//! - What it waits for (a connection, room, a free descriptor, a worker with room in its queue) it waits for
//!   together with the signals to stop, which are looked at first.
//! - An accept that fails leaves the listener's readiness standing (an edge-triggered selector has nothing to
//!   add), so the next try is a timer's: at once after a connection that its peer gave up, else after 2 ms and
//!   then twice as long each time, at most half a second.
//! - A connection in its hands is handed over or counted as rejected; it is never just dropped.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::event_loop::handle::EventLoop;
use crate::group::core::GroupCore;
use crate::group::handle::EventLoopGroup;
use crate::net::TcpStream;
use crate::net::server::handle::{Host, Seat, Started, State};
use crate::net::tcp::TcpListener;
use crate::shutdown_requested::{ShutdownRequested, shutdown_requested};
use crate::sync::{Arc, Weak};
use crate::time::sleep;

/// The first wait after a failure; each is twice as long as the last.
const SHORTEST_WAIT: Duration = Duration::from_millis(2);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Connections in a row that their peers may have given up before the next try has to wait.
const GIVEN_UP: u32 = 16;

/// A listener, and who serves what it hears.
///
/// In the order of its drop: the listener is closed before the server can count as ended.
pub(super) struct Acceptor<H> {
    pub(super) listener: TcpListener,
    pub(super) placement: Placement,
    pub(super) host: Arc<Host<H>>,
}

impl<H, F> Acceptor<H>
where
    H: Fn(TcpStream, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    /// Accepts until it is told to stop.
    pub(super) async fn run(self) {
        let mut stop = Stop::new(&self.host.state, &self.placement);
        let mut failures = Failures::none();
        loop {
            match stop.or(poll_fn(|cx| self.poll_accept(cx))).await {
                None => return,
                Some(Ok((stream, peer, seat))) => {
                    failures = Failures::none();
                    let serve = move || serve(stream, peer, seat);
                    let given = self
                        .placement
                        .hand_over(serve, self.host.location, &mut stop);
                    if given.await.is_none() {
                        return;
                    }
                }
                Some(Err(error)) => {
                    let wait = failures.wait_after(&error);
                    self.host.state.accept_failed(error);
                    if !wait.is_zero() && stop.or(sleep(wait)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Accepts a connection if there is one, and room for it.
    fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr, Seat<H>)>> {
        let state = &self.host.state;
        loop {
            let accepted = self.listener.poll_accept_with(cx, |accept| {
                if !state.take_place() {
                    // Neither an error nor `WouldBlock`: the listener stays ready.
                    return Ok(None);
                }
                match accept() {
                    Ok((stream, peer)) => Ok(Some((stream, peer, Seat::new(&self.host)))),
                    Err(error) => {
                        state.leave_place();
                        Err(error)
                    }
                }
            });
            if let Some(connection) = ready!(accepted)? {
                return Poll::Ready(Ok(connection));
            }
            ready!(state.poll_room(cx));
        }
    }
}

/// Has the handler make its future; on the worker loop.
fn serve<H, F>(stream: TcpStream, peer: SocketAddr, seat: Seat<H>) -> Serving<F, H>
where
    H: Fn(TcpStream, SocketAddr) -> F,
{
    let started = seat.start();
    let future = started.host().handler()(stream, peer);
    Serving {
        future: Some(future),
        started: Some(started),
    }
}

pin_project_lite::pin_project! {
    /// A handler's future and its seat, which it leaves when it is done and its future gone: what that holds,
    /// the connection say, may outlive its last poll.
    struct Serving<F, H> {
        #[pin]
        future: Option<F>,
        started: Option<Started<H>>,
    }
}

impl<F: Future<Output = ()>, H> Future for Serving<F, H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let Some(future) = this.future.as_mut().as_pin_mut() {
            ready!(future.poll(cx));
        }
        this.future.set(None);
        if let Some(started) = this.started.take() {
            started.complete();
        }
        Poll::Ready(())
    }
}

/// Which loop gets a connection.
#[derive(Clone)]
pub(super) enum Placement {
    /// The one that accepted it.
    Here,
    /// The next one of a group.
    Next(Weak<GroupCore>),
}

impl Placement {
    pub(super) fn next_of(group: &EventLoopGroup) -> Placement {
        Placement::Next(Arc::downgrade(group.core()))
    }

    /// Resolves when all who could be given a connection shut down.
    fn shutdown_requested(&self) -> ShutdownRequested {
        match self {
            Placement::Here => shutdown_requested(),
            Placement::Next(group) => {
                let group = group.upgrade();
                let loops = group.iter().flat_map(|group| group.loops.iter());
                ShutdownRequested::of(loops.map(|one| Arc::clone(one.shared())).collect())
            }
        }
    }

    /// Gives a connection to a loop, and waits until one takes it; `None` if none ever will.
    async fn hand_over<C, F>(
        &self,
        mut serve: C,
        location: &'static Location<'static>,
        stop: &mut Stop<'_>,
    ) -> Option<()>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let mut wait = SHORTEST_WAIT;
        loop {
            match self.offer(serve, location) {
                Offer::Taken => return Some(()),
                Offer::Ended => return None,
                // Every queue is full, or a thread could not be started.
                Offer::Refused(back) => serve = back,
            }
            stop.or(sleep(wait)).await?;
            wait = longer(wait);
        }
    }

    fn offer<C, F>(&self, serve: C, location: &'static Location<'static>) -> Offer<C>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let (offered, ended) = match self {
            Placement::Here => {
                let here = EventLoop::current().expect("an acceptor is a task of a loop");
                let offered = here.offer_local(serve, location);
                if let Err(refused) = &offered {
                    here.shared().note_refusal(refused.reason(), location);
                }
                (offered, here.state().is_shutdown())
            }
            Placement::Next(group) => {
                let Some(group) = group.upgrade() else {
                    return Offer::Ended;
                };
                let offered = group.start(serve, location);
                let ended = group.loops.iter().all(|one| one.state().is_shutdown());
                (offered, ended)
            }
        };
        match offered {
            Ok(()) => Offer::Taken,
            Err(_) if ended => Offer::Ended,
            Err(refused) => Offer::Refused(refused.into_inner()),
        }
    }
}

/// What became of a connection that was offered to a loop.
enum Offer<C> {
    Taken,
    Refused(C),
    /// There is no loop left that would take it.
    Ended,
}

/// The signals to stop: of the handle, of this loop, and of all workers.
struct Stop<'a> {
    state: &'a State,
    asked: Option<usize>,
    here: ShutdownRequested,
    workers: ShutdownRequested,
}

impl<'a> Stop<'a> {
    fn new(state: &'a State, placement: &Placement) -> Stop<'a> {
        Stop {
            state,
            asked: None,
            here: shutdown_requested(),
            workers: placement.shutdown_requested(),
        }
    }

    /// Waits for `future`, or for a signal: `None`.
    async fn or<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            // A plain look first: whoever comes after the signal is not accepted any more.
            if self.is_given() {
                return Poll::Ready(None);
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => self.poll(cx).map(|()| None),
            }
        })
        .await
    }

    fn is_given(&self) -> bool {
        self.state.is_stopping() || self.here.is_requested() || self.workers.is_requested()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.state.poll_stop(&mut self.asked, cx).is_ready()
            || Pin::new(&mut self.here).poll(cx).is_ready()
        {
            return Poll::Ready(());
        }
        Pin::new(&mut self.workers).poll(cx)
    }
}

/// Accepts that failed in a row.
#[derive(Debug)]
struct Failures {
    given_up: u32,
    wait: Duration,
}

impl Failures {
    fn none() -> Failures {
        Failures {
            given_up: 0,
            wait: SHORTEST_WAIT,
        }
    }

    /// How long to wait before the next try.
    fn wait_after(&mut self, error: &io::Error) -> Duration {
        // These took a connection out of the backlog: the next one may be fine.
        let gone = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted
        );
        if gone && self.given_up < GIVEN_UP {
            self.given_up += 1;
            return Duration::ZERO;
        }
        let wait = self.wait;
        self.wait = longer(wait);
        wait
    }
}

fn longer(wait: Duration) -> Duration {
    (wait * 2).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_second() {
        let mut failures = Failures::none();
        let full = io::Error::from_raw_os_error(libc::EMFILE);
        let waits: Vec<_> = (0..9)
            .map(|_| failures.wait_after(&full).as_millis())
            .collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 500]);
    }

    #[test]
    fn connections_that_were_given_up_are_passed_by_at_once_but_not_for_ever() {
        let mut failures = Failures::none();
        let gone = io::Error::from_raw_os_error(libc::ECONNABORTED);
        for _ in 0..GIVEN_UP {
            assert_eq!(failures.wait_after(&gone), Duration::ZERO);
        }
        assert_eq!(failures.wait_after(&gone), SHORTEST_WAIT);
    }
}
