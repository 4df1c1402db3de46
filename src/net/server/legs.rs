//! Connections that are served by one handler call for each loop they are on.
//!
//! - A leg is what happens on one loop: the handler gets the stream, and its future ends with the connection,
//!   or returns the stream and its luggage to move on. The next loop calls the handler of the next leg.
//! - The future decides when it can move: it asks its [`Mover`] when it is between two messages. One that
//!   cannot move any more drops the mover, and is not asked again.
//! - How it moves is in `transit`.
//!
//! ```text
//!   begin ──▶ leg ──Over──▶ end
//!              ▲ └──Moves──▶ under way ─┐
//!              └────────────────────────┘ on another loop, or on this one if that rejects it
//! ```

use std::future::{Future, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::Poll;

use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::group::core::GroupCore;
use crate::net::server::Server;
use crate::net::server::connection::{PendingConnection, ServedConnection};
use crate::net::server::handle::ServerHandle;
use crate::net::server::limits::TimeWatch;
use crate::net::server::listener::Listener;
use crate::net::server::mobile::{Mobile, MobileSeat};
use crate::net::server::outcome::Outcome;
use crate::net::server::transit::{self, Travels};
use crate::sync::{self, Arc, Weak};
use crate::time::here;

impl<L: Listener> Server<L> {
    /// Whether connections are to be moved by load.
    pub(crate) fn rebalances(&self) -> bool {
        self.rebalance.is_some()
    }

    /// As [`serve`](Server::serve), with connections that can move: `handler` is called for each leg.
    #[track_caller]
    pub(crate) fn serve_legs<H, F, G, R>(mut self, handler: H) -> io::Result<ServerHandle<L::Addr>>
    where
        H: Fn(LegStart<L::Stream, L::Addr, G>) -> F + Send + Sync + 'static,
        F: Future<Output = LegEnd<L::Stream, G, R>> + 'static,
        G: Send + 'static,
        R: Outcome + 'static,
    {
        let rebalance = self.rebalance.take();
        let measures = rebalance.is_some();
        let handlers = |_: &[EventLoop], _, _| LegHandlers {
            handler,
            measures,
            returns: PhantomData,
        };
        let begin = begin::<L, H, F, G, R>;
        self.start(Location::caller(), handlers, begin, rebalance)
    }
}

/// What a handler gets for a leg.
#[derive(Debug)]
pub(crate) struct LegStart<St, A, G> {
    pub(crate) stream: St,
    pub(crate) peer: A,
    /// `None` for the first leg.
    pub(crate) luggage: Option<G>,
    pub(crate) mover: Mover,
}

/// How a leg ends.
#[derive(Debug)]
pub(crate) enum LegEnd<St, G, R> {
    /// So does the connection.
    Over(R),
    /// On the way to the destination that the mover has accepted.
    Moves {
        stream: St,
        luggage: G,
        mover: Mover,
    },
}

/// The place of a connection among those that can move, and its requests to do so. Dropped, the connection
/// stays on its loop for ever.
#[derive(Debug)]
pub(crate) struct Mover {
    seat: MobileSeat,
    workers: Weak<GroupCore>,
    /// Set when the connection begins to leave.
    target: Option<EventLoop>,
}

impl Mover {
    /// Whether the connection is asked to move.
    pub(crate) fn is_asked(&self) -> bool {
        self.seat.connection().is_asked()
    }

    /// Takes the request; `false` if there is nowhere to move to.
    pub(crate) fn accept(&mut self) -> bool {
        let request = self.seat.connection().take_request();
        let here = self.seat.index();
        self.target = request.and_then(|index| transit::destination(&self.workers, here, index));
        self.target.is_some()
    }

    /// Whether the connection is leaving.
    pub(crate) fn is_leaving(&self) -> bool {
        self.target.is_some()
    }
}

/// Makes a type that is `Send` and `Sync` whatever is named in it.
type Returns<T> = fn() -> T;

struct LegHandlers<H, F, G, R> {
    handler: H,
    /// Whether the time of polls is measured.
    measures: bool,
    /// What belongs to the handler.
    returns: PhantomData<Returns<(F, G, R)>>,
}

/// A connection between two legs.
///
/// The field order is the drop order: the stream is dropped before the connection has ended.
struct LegConnection<L: Listener, P, G> {
    stream: L::Stream,
    peer: L::Addr,
    luggage: Option<G>,
    mover: Mover,
    limits: Option<Box<TimeWatch>>,
    served: ServedConnection<P>,
}

/// Serves a connection that was just accepted.
fn begin<L, H, F, G, R>(
    stream: L::Stream,
    peer: L::Addr,
    pending: PendingConnection<LegHandlers<H, F, G, R>>,
) -> impl Future<Output = ()> + 'static
where
    L: Listener,
    H: Fn(LegStart<L::Stream, L::Addr, G>) -> F + Send + Sync + 'static,
    F: Future<Output = LegEnd<L::Stream, G, R>> + 'static,
    G: Send + 'static,
    R: Outcome + 'static,
{
    let local = context::current().expect("a connection is started by a task of a loop");
    let served = pending.begin(&local, L::control(&stream), L::peer(&peer));
    let core = served.core();
    let (lists, control) = (&core.state.mobile, L::control(&stream));
    LegConnection::<L, _, G> {
        limits: core.start_limits::<L>(&stream),
        mover: Mover {
            seat: MobileSeat::take(lists, local.shared.index, control),
            workers: Weak::clone(&core.workers),
            target: None,
        },
        stream,
        peer,
        luggage: None,
        served,
    }
    .run()
}

impl<L, H, F, G, R> Travels for LegConnection<L, LegHandlers<H, F, G, R>, G>
where
    L: Listener,
    H: Fn(LegStart<L::Stream, L::Addr, G>) -> F + Send + Sync + 'static,
    F: Future<Output = LegEnd<L::Stream, G, R>> + 'static,
    G: Send + 'static,
    R: Outcome + 'static,
{
    type Handlers = LegHandlers<H, F, G, R>;

    fn served(&self) -> &ServedConnection<Self::Handlers> {
        &self.served
    }

    fn pack(&mut self) {
        transit::detach::<L>(&mut self.stream, &mut self.limits);
    }

    fn unpack(&mut self) {
        let (has_limits, seat) = (self.limits.is_some(), &mut self.mover.seat);
        transit::attach::<L, _>(&self.stream, has_limits, &mut self.served, seat);
    }

    fn run(self) -> impl Future<Output = ()> + 'static {
        // The handler is called now, as that of `serve` is: a panic is one of the task that starts.
        let mut leg = self.start();
        async move {
            loop {
                let (end, mut arrived) = leg.serve().await;
                let (stream, luggage, mut mover) = match end {
                    LegEnd::Over(outcome) => return arrived.end(outcome),
                    LegEnd::Moves {
                        stream,
                        luggage,
                        mover,
                    } => (stream, luggage, mover),
                };
                let target = mover.target.take().expect("it leaves for a destination");
                let connection = LegConnection::<L, _, G> {
                    stream,
                    peer: arrived.peer,
                    luggage: Some(luggage),
                    mover,
                    limits: arrived.limits.take(),
                    served: arrived.served,
                };
                match transit::depart(connection, &target) {
                    None => return,
                    Some(back) => leg = back.start(),
                }
            }
        }
    }
}

impl<L, H, F, G, R> LegConnection<L, LegHandlers<H, F, G, R>, G>
where
    L: Listener,
    H: Fn(LegStart<L::Stream, L::Addr, G>) -> F,
{
    /// Calls the handler.
    fn start(self) -> Leg<F, L::Addr, LegHandlers<H, F, G, R>> {
        // Dropped last if the handler panics: the stream is closed before the connection has ended.
        let (served, limits) = (self.served, self.limits);
        let handlers = served.core().handlers();
        let measured = handlers.measures.then(|| self.mover.seat.shared());
        let future = (handlers.handler)(LegStart {
            stream: self.stream,
            peer: self.peer.clone(),
            luggage: self.luggage,
            mover: self.mover,
        });
        Leg {
            future: Box::pin(future),
            measured,
            rest: Arrived {
                peer: self.peer,
                limits,
                served,
            },
        }
    }
}

/// A leg that is served.
///
/// The field order is the drop order: the future, which owns the stream, before the connection has ended.
struct Leg<F, A, P> {
    future: Pin<Box<F>>,
    /// `None` if the time of polls is not measured.
    measured: Option<Arc<Mobile>>,
    rest: Arrived<A, P>,
}

/// What is left after a leg.
struct Arrived<A, P> {
    peer: A,
    limits: Option<Box<TimeWatch>>,
    served: ServedConnection<P>,
}

impl<F, St, G, R, A, P> Leg<F, A, P>
where
    F: Future<Output = LegEnd<St, G, R>>,
{
    /// Polls the future until its end, and drops it.
    async fn serve(mut self) -> (F::Output, Arrived<A, P>) {
        let (future, measured, rest) = (&mut self.future, &self.measured, &mut self.rest);
        let end = poll_fn(|cx| {
            let begun = measured.is_some().then(sync::now);
            let polled = future.as_mut().poll(cx);
            if let (Some(begun), Some(mobile)) = (begun, measured) {
                mobile.worked(here::poll_time(begun));
            }
            // Also before it moves on: requests to move that never cease would keep it from its limits.
            let goes_on = !matches!(polled, Poll::Ready(LegEnd::Over(_)));
            if let (true, Some(limits)) = (goes_on, rest.limits.as_mut()) {
                rest.served.poll_limits(limits, cx);
            }
            polled
        })
        .await;
        let Leg { future, rest, .. } = self;
        drop(future);
        (end, rest)
    }
}

impl<A, P> Arrived<A, P> {
    fn end<R: Outcome>(mut self, outcome: R) {
        let how = self.served.judge(outcome.error());
        drop(self.limits);
        self.served.end(how);
        // An error is user code as well: its destructor may panic, which is the task's panic.
        drop(outcome);
    }
}
