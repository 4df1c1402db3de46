//! Connections that are served by turns, and can move to another loop between two of them.
//!
//! - A connection is a state of the user's and a sequence of turns. Between turns the server waits for the
//!   next byte, and reads nothing: what a turn has read is in the state, the rest is in the system.
//! - How it moves is in `transit`; what is left of its state and of its limits moves along.
//! - The future of a turn is boxed for the time of the turn: an idle connection does not keep its memory.
//! - On each loop it looks at its stream and its limits before it moves on. Otherwise requests to move that
//!   never cease would keep it from its bytes, its end and its limits.
//!
//! ```text
//!              Next                      something arrives
//!   ┌─▶ turn ────────▶ waits for bytes ────────────────────▶ turn
//!   │    │ Again             │ asked to move
//!   │    └─▶ asked to move? ─┴──depart──▶ under way ──settle──▶ waits, or turn, on the other loop
//!   └──────────┘ no            │ rejected: stays    │ dropped: back to the first loop
//! ```

use std::future::{Future, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::panic::Location;
use std::task::Poll;

use crate::event_loop::budget;
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::net::server::Server;
use crate::net::server::connection::{PendingConnection, ServedConnection};
use crate::net::server::handle::ServerHandle;
use crate::net::server::limits::TimeWatch;
use crate::net::server::listener::Listener;
use crate::net::server::mobile::MobileSeat;
use crate::net::server::transit::{self, Travels};
use crate::net::server::turn::{Turn, TurnOutcome};
use crate::sync::{self, Arc};
use crate::time::here;

impl<L: Listener> Server<L> {
    /// Starts to listen and to serve by turns: a connection may move to another loop between two requests.
    ///
    /// `open` is called for each connection, on its worker loop, and returns its state. `turn` is called
    /// when something arrives, usually once per request: it reads the request, answers it, and says how to
    /// [continue](Turn). Its future is made and run on the loop that serves the connection at that time, and
    /// need not be `Send`. The state must be, since it moves along; a turn keeps what it has read of the
    /// next request there.
    ///
    /// Between two turns the server waits for the next byte, without reading it. A connection that waits is
    /// small, as it has no future of a turn, and can be moved at once: by hand with
    /// [`move_connections`](ServerHandle::move_connections), or by load with
    /// [`rebalance`](Server::rebalance). One that is in a turn moves after it. Bytes stay in order, and
    /// whatever happens to the connection on the way (bytes, its end, a reset) is found by its next turn.
    /// Limits, hooks and the report see one connection, which may have begun on one loop and ended on
    /// another.
    ///
    /// The first turn begins when the first bytes arrive. A server that speaks first writes its greeting in
    /// `open`, with `try_write`.
    ///
    /// # The end of a connection
    ///
    /// A turn is also called when the peer has closed or reset the connection, when a shutdown or
    /// [`drain`](ServerHandle::drain) ends the reads, and when a time limit has expired: its reads show
    /// which. It is expected to return [`Turn::Close`]; an end of the stream that it does not want to know
    /// of, with [`Turn::Next`], is shown to it again. After an expired limit and after the end of its loop,
    /// `Next` closes the connection as well.
    ///
    /// # Errors
    ///
    /// Those of [`serve`](Server::serve).
    ///
    /// # Examples
    ///
    /// Answers each line in capitals, also if several lines arrive together, or one in parts:
    ///
    /// ```
    /// use futures::io::{AsyncReadExt, AsyncWriteExt};
    /// use loopgroup::{EventLoopGroup, net::{Server, TcpStream, Turn}};
    /// use std::io::{BufRead, BufReader, Write};
    ///
    /// async fn answer(mut stream: &TcpStream, received: &mut Vec<u8>) -> std::io::Result<Turn> {
    ///     let end = loop {
    ///         if let Some(end) = received.iter().position(|byte| *byte == b'\n') {
    ///             break end;
    ///         }
    ///         let mut buf = [0; 1024];
    ///         match stream.read(&mut buf).await? {
    ///             0 => return Ok(Turn::Close),
    ///             n => received.extend_from_slice(&buf[..n]),
    ///         }
    ///     };
    ///     let line: Vec<u8> = received.drain(..=end).collect();
    ///     stream.write_all(&line.to_ascii_uppercase()).await?;
    ///     // Another whole line: the next turn need not wait for bytes.
    ///     Ok(if received.contains(&b'\n') { Turn::Again } else { Turn::Next })
    /// }
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .serve_turns(|_stream, _peer| Vec::new(), answer)?;
    ///
    /// let client = std::net::TcpStream::connect(server.local_addr())?;
    /// (&client).write_all(b"one\ntwo\nthr")?;
    /// let mut lines = BufReader::new(&client).lines();
    /// assert_eq!((lines.next().unwrap()?, lines.next().unwrap()?), ("ONE".into(), "TWO".into()));
    /// server.move_connections(0, 1, 1); // whichever loop it is on, of the two
    /// server.move_connections(1, 0, 1);
    /// (&client).write_all(b"ee\n")?;
    /// assert_eq!(lines.next().unwrap()?, "THREE");
    /// drop(lines);
    /// drop(client);
    /// server.stop();
    /// assert_eq!(group.block_on(server).completed(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn serve_turns<S, O, T, R>(mut self, open: O, turn: T) -> io::Result<ServerHandle<L::Addr>>
    where
        O: Fn(&L::Stream, L::Addr) -> S + Send + Sync + 'static,
        S: Send + 'static,
        T: AsyncFn(&L::Stream, &mut S) -> R + Send + Sync + 'static,
        R: TurnOutcome + 'static,
    {
        let rebalance = self.rebalance.take();
        let measures = rebalance.is_some();
        let handlers = |_: &[EventLoop], _, _| TurnHandlers {
            open,
            turn,
            measures,
            returns: PhantomData,
        };
        let begin = begin::<L, S, O, T, R>;
        self.start(Location::caller(), handlers, begin, rebalance)
    }
}

/// What the user serves turns with.
struct TurnHandlers<S, O, T, R> {
    open: O,
    turn: T,
    /// Whether the time of turns is measured.
    measures: bool,
    /// What `open` and `turn` return.
    returns: PhantomData<fn() -> (S, R)>,
}

/// A connection between two turns, with all that moves along.
///
/// The field order is the drop order: the state and the stream are dropped before the connection has ended.
struct TurnConnection<L: Listener, S, P> {
    state: S,
    stream: L::Stream,
    limits: Option<Box<TimeWatch>>,
    seat: MobileSeat,
    /// How it continues.
    next: Turn,
    /// Whether it has come from another loop, and has not looked at its stream on this one.
    has_arrived: bool,
    served: ServedConnection<P>,
}

/// What ends a series of turns on one loop.
enum SeriesEnd<R> {
    Over(R),
    Move(EventLoop),
}

/// What ends the wait for the next turn.
enum Arrival {
    Something,
    /// The connection cannot be waited for any more.
    Failed,
    /// It is asked to move to the loop of this index.
    Asked(usize),
}

/// Serves a connection that was just accepted.
fn begin<L, S, O, T, R>(
    stream: L::Stream,
    peer: L::Addr,
    pending: PendingConnection<TurnHandlers<S, O, T, R>>,
) -> impl Future<Output = ()> + 'static
where
    L: Listener,
    O: Fn(&L::Stream, L::Addr) -> S + Send + Sync + 'static,
    S: Send + 'static,
    T: AsyncFn(&L::Stream, &mut S) -> R + Send + Sync + 'static,
    R: TurnOutcome + 'static,
{
    let local = context::current().expect("a connection is started by a task of a loop");
    let served = pending.begin(&local, L::control(&stream), L::peer(&peer));
    // Dropped first if `open` panics: the stream is closed before the connection has ended.
    let stream = stream;
    let core = Arc::clone(served.core());
    let limits = core.start_limits::<L>(&stream);
    let state = (core.handlers().open)(&stream, peer);
    let (lists, control) = (&core.state.mobile, L::control(&stream));
    let connection = TurnConnection::<L, S, _> {
        state,
        limits,
        seat: MobileSeat::take(lists, local.shared.index, control),
        stream,
        next: Turn::Next,
        has_arrived: false,
        served,
    };
    connection.run()
}

impl<L, S, O, T, R> Travels for TurnConnection<L, S, TurnHandlers<S, O, T, R>>
where
    L: Listener,
    O: Fn(&L::Stream, L::Addr) -> S + Send + Sync + 'static,
    S: Send + 'static,
    T: AsyncFn(&L::Stream, &mut S) -> R + Send + Sync + 'static,
    R: TurnOutcome + 'static,
{
    type Handlers = TurnHandlers<S, O, T, R>;

    fn served(&self) -> &ServedConnection<Self::Handlers> {
        &self.served
    }

    fn pack(&mut self) {
        transit::detach::<L>(&mut self.stream, &mut self.limits);
    }

    fn unpack(&mut self) {
        self.has_arrived = true;
        let has_limits = self.limits.is_some();
        transit::attach::<L, _>(&self.stream, has_limits, &mut self.served, &mut self.seat);
    }

    async fn run(mut self) {
        loop {
            let target = match self.serve().await {
                SeriesEnd::Over(outcome) => return self.end(outcome),
                SeriesEnd::Move(target) => target,
            };
            match transit::depart(self, &target) {
                None => return,
                Some(back) => self = *back,
            }
        }
    }
}

impl<L, S, O, T, R> TurnConnection<L, S, TurnHandlers<S, O, T, R>>
where
    L: Listener,
    T: AsyncFn(&L::Stream, &mut S) -> R,
    R: TurnOutcome,
{
    /// Takes turns until the connection is over or moves.
    async fn serve(&mut self) -> SeriesEnd<R> {
        loop {
            let is_last = match self.arrival().await {
                Arrival::Something => false,
                Arrival::Failed => true,
                Arrival::Asked(index) => match self.destination(index) {
                    Some(target) => return SeriesEnd::Move(target),
                    None => continue,
                },
            };
            let outcome = self.turn().await;
            match outcome.result() {
                Ok(next @ (Turn::Next | Turn::Again)) if !(is_last && next == Turn::Next) => {
                    self.next = next;
                }
                _ => return SeriesEnd::Over(outcome),
            }
        }
    }

    /// Waits until the next turn can begin.
    async fn arrival(&mut self) -> Arrival {
        let request = self.seat.connection();
        let mut looks_first = mem::take(&mut self.has_arrived);
        if self.next == Turn::Again {
            // A task that always has something to do yields nevertheless.
            budget::proceed_and_spend().await;
            if looks_first {
                return Arrival::Something;
            }
            let asked = request.take_request();
            return asked.map_or(Arrival::Something, Arrival::Asked);
        }
        // What the last turn has not read, or may not have read.
        L::look_for_more(&self.stream);
        let (stream, limits, served) = (&self.stream, &mut self.limits, &self.served);
        poll_fn(|cx| {
            if !mem::take(&mut looks_first) {
                if let Some(index) = request.take_request() {
                    return Poll::Ready(Arrival::Asked(index));
                }
            }
            if let Poll::Ready(arrived) = L::poll_arrival(stream, cx) {
                let failed = |_| Arrival::Failed;
                return Poll::Ready(arrived.map_or_else(failed, |()| Arrival::Something));
            }
            if let Some(limits) = limits {
                served.poll_limits(limits, cx);
            }
            // After the waker is stored: a request is either seen here or wakes it.
            match request.take_request() {
                Some(index) => Poll::Ready(Arrival::Asked(index)),
                None => Poll::Pending,
            }
        })
        .await
    }

    async fn turn(&mut self) -> R {
        let handlers = self.served.core().handlers();
        let mut turn = Box::pin((handlers.turn)(&self.stream, &mut self.state));
        let (limits, served) = (&mut self.limits, &self.served);
        let (measures, mobile) = (handlers.measures, self.seat.connection());
        poll_fn(|cx| {
            let begun = measures.then(sync::now);
            let polled = turn.as_mut().poll(cx);
            if let Some(begun) = begun {
                mobile.worked(here::poll_time(begun));
            }
            if let (Poll::Pending, Some(limits)) = (&polled, limits.as_mut()) {
                served.poll_limits(limits, cx);
            }
            polled
        })
        .await
    }
}

impl<L: Listener, S, P> TurnConnection<L, S, P> {
    /// The loop to move to, if it is another one that stays.
    fn destination(&self, index: usize) -> Option<EventLoop> {
        let workers = &self.served.core().workers;
        transit::destination(workers, self.served.loop_index(), index)
    }

    fn end<R: TurnOutcome>(self, outcome: R) {
        let TurnConnection {
            state,
            stream,
            limits,
            seat,
            mut served,
            next: _,
            has_arrived: _,
        } = self;
        let how = served.judge(outcome.result().err());
        drop((state, stream, limits, seat));
        served.end(how);
        // An error is user code as well: its destructor may panic, which is the task's panic.
        drop(outcome);
    }
}
