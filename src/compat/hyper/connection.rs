//! The task of an HTTP connection: drives hyper, keeps the time limits, and ends it gracefully.
//!
//! - hyper is polled first, and everything else is decided from what that poll has done.
//! - A graceful end never cuts off a response: hyper finishes those under way, and closes. An HTTP/1
//!   connection that is idle closes at once; with HTTP/2 a GOAWAY tells the client which requests will be
//!   answered.
//! - Before an idle HTTP/1 connection is closed, the loop looks at its socket once more ([`LAST_LOOK`]): a
//!   request that has arrived meanwhile is answered. Two short timers, since a turn that is late fires the
//!   first before the loop has looked.
//! - One timer per connection. It is moved only to an earlier deadline; if it fires early, it is armed again.
//!
//! ```text
//!            signal                     last look, or a request          hyper is done
//!   Staying ────────▶ Asked(since) ─────────────────────────▶ Leaving ────────────────▶ end
//!      │                    │                                    ▲  │
//!      │ idle_timeout       │ half a head: HEAD_AT_SHUTDOWN      │  │ the client does not react:
//!      └────────────────────┼────────────────────────────────────┘  │ header_timeout
//!                           └──────────────▶ end ◀──────────────────┘
//! ```

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, Service};
use hyper::{Request, Response};

use crate::compat::hyper::activity::{HttpActivity, HttpPhase};
use crate::compat::hyper::moving::{HeldStream, Luggage, Mobility, Moving};
use crate::compat::hyper::rt::LocalExecutor;
use crate::compat::hyper::settings::{Protocols, Settings};
use crate::compat::hyper::stop::StopSignal;
use crate::compat::hyper::tracked::Tracked;
use crate::compat::hyper::transport::{Transport, Version};
use crate::event_loop::context;
use crate::event_loop::local::Local;
use crate::left_tasks::WaitsFor;
use crate::limit_timer::LimitTimer;
use crate::net::{Mover, TcpStream};
use crate::shutdown_requested::{ShutdownRequested, shutdown_requested};
use crate::sync::Arc;
use crate::this_thread;
use crate::time;

/// How long an idle connection stays open after the signal, twice: at least one turn of the loop, in which
/// it reads what has already arrived.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// How long the rest of a request head may take after the signal.
const HEAD_AT_SHUTDOWN: Duration = Duration::from_secs(1);

pin_project_lite::pin_project! {
    /// Serves one connection.
    #[must_use = "futures do nothing unless awaited"]
    pub(super) struct Connection<I, S, M>
    where
        Tracked<S>: HttpService<Incoming>,
    {
        #[pin]
        protocol: Protocol<I, S>,
        settings: Arc<Settings>,
        activity: Arc<HttpActivity>,
        signals: EndSignals,
        course: Course,
        watch: LimitWatch,
        mobility: M,
    }
}

pin_project_lite::pin_project! {
    #[project = ProtocolProj]
    #[project_replace = ProtocolOwned]
    enum Protocol<I, S>
    where
        Tracked<S>: HttpService<Incoming>,
    {
        // Waits for the bytes that tell the version; taken out when these have come.
        Unknown { parts: Option<(Transport<I>, Tracked<S>)> },
        // Not pinned: it is taken out when it moves.
        Http1 { connection: http1::UpgradeableConnection<Transport<I>, Tracked<S>> },
        Http2 { #[pin] connection: http2::Connection<Transport<I>, Tracked<S>, LocalExecutor> },
        // On the way to another loop.
        Gone,
    }
}

/// How often the loop has looked at an idle socket after the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    First,
    Last,
}

/// Whether the connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Staying,
    /// The signal came, or the first look ended, at this time.
    Asked(Instant, Look),
    /// hyper has been told, at this time.
    Leaving(Instant),
}

impl<I, S, B, M> Connection<I, S, M>
where
    I: Read + Write + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Must be called on a loop, or inside `group.block_on`.
    #[track_caller]
    pub(super) fn new(
        settings: Arc<Settings>,
        io: I,
        service: Tracked<S>,
        stop: Option<StopSignal>,
        mobility: M,
    ) -> Connection<I, S, M> {
        let transport = Transport::new(io, Arc::clone(&service.activity));
        Connection::of(settings, transport, service, stop, mobility)
    }

    #[track_caller]
    fn of(
        settings: Arc<Settings>,
        transport: Transport<I>,
        service: Tracked<S>,
        stop: Option<StopSignal>,
        mobility: M,
    ) -> Connection<I, S, M> {
        let activity = Arc::clone(&service.activity);
        let protocol = match settings.protocols {
            Protocols::Both => Protocol::Unknown {
                parts: Some((transport, service)),
            },
            Protocols::Http1 => Protocol::of(Version::Http1, &settings, transport, service),
            Protocols::Http2 => Protocol::of(Version::Http2, &settings, transport, service),
        };
        Connection {
            protocol,
            settings,
            activity,
            signals: EndSignals::new(stop),
            course: Course::Staying,
            watch: LimitWatch::new(),
            mobility,
        }
    }
}

impl<S, B> Connection<HeldStream, S, Moving>
where
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Continues a connection that comes from another loop. Its notes are those of the service.
    #[track_caller]
    pub(super) fn resume(
        settings: Arc<Settings>,
        stream: HeldStream,
        luggage: Luggage,
        service: Tracked<S>,
        stop: Option<StopSignal>,
        mobility: Moving,
    ) -> Connection<HeldStream, S, Moving> {
        luggage.activity.arrive(!luggage.ahead.is_empty());
        let transport = Transport::resume(stream, luggage.activity, luggage.ahead);
        let mut connection = if luggage.is_http1 {
            Connection {
                activity: Arc::clone(&service.activity),
                protocol: Protocol::of(Version::Http1, &settings, transport, service),
                settings,
                signals: EndSignals::new(stop),
                course: Course::Staying,
                watch: LimitWatch::new(),
                mobility,
            }
        } else {
            Connection::of(settings, transport, service, stop, mobility)
        };
        connection.watch.seen = luggage.seen;
        connection
    }

    /// Takes the connection apart if it has ended in order to move.
    pub(super) fn take_leaving(self: Pin<&mut Self>) -> Option<(TcpStream, Luggage, Mover)> {
        let this = self.project();
        let mover = this.mobility.take_leaving()?;
        let (transport, mut ahead, is_http1) = match this.protocol.project_replace(Protocol::Gone) {
            ProtocolOwned::Unknown { parts } => (parts?.0, Vec::new(), false),
            ProtocolOwned::Http1 { connection } => {
                let parts = connection.into_parts()?;
                (parts.io, parts.read_buf.to_vec(), true)
            }
            ProtocolOwned::Http2 { .. } | ProtocolOwned::Gone => return None,
        };
        let (stream, rest) = transport.into_parts();
        // What hyper has read came first.
        ahead.extend_from_slice(&rest);
        let luggage = Luggage {
            ahead,
            activity: stream.activity,
            seen: this.watch.seen,
            is_http1,
        };
        Some((stream.stream, luggage, mover))
    }
}

impl<I, S, B> Protocol<I, S>
where
    I: Read + Write + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn of(
        version: Version,
        settings: &Settings,
        transport: Transport<I>,
        service: Tracked<S>,
    ) -> Protocol<I, S> {
        match version {
            Version::Http1 => {
                let connection = settings.http1.serve_connection(transport, service);
                Protocol::Http1 {
                    connection: connection.with_upgrades(),
                }
            }
            Version::Http2 => Protocol::Http2 {
                connection: settings.http2.serve_connection(transport, service),
            },
        }
    }

    /// Drives the connection; ready at its end.
    fn poll(
        mut self: Pin<&mut Self>,
        settings: &Settings,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let next = match self.as_mut().project() {
                ProtocolProj::Http1 { connection } => {
                    return Pin::new(connection).poll(cx).map_err(io::Error::other);
                }
                ProtocolProj::Gone => return Poll::Ready(Ok(())),
                ProtocolProj::Http2 { connection } => {
                    return connection.poll(cx).map_err(io::Error::other);
                }
                ProtocolProj::Unknown { parts } => {
                    let (transport, _) = parts.as_mut().expect("taken when the version is known");
                    let Some(version) = ready!(transport.poll_version(cx))? else {
                        return Poll::Ready(Ok(()));
                    };
                    let (transport, service) = parts.take().expect("borrowed above");
                    Protocol::of(version, settings, transport, service)
                }
            };
            self.set(next);
        }
    }

    fn is_http2(self: Pin<&mut Self>) -> bool {
        match self.project() {
            ProtocolProj::Http2 { .. } => true,
            ProtocolProj::Unknown { .. } | ProtocolProj::Http1 { .. } | ProtocolProj::Gone => false,
        }
    }

    fn phase(self: Pin<&mut Self>, activity: &HttpActivity) -> HttpPhase {
        let is_http2 = self.is_http2();
        if activity.is_unread() {
            HttpPhase::Unread
        } else if activity.is_busy() {
            HttpPhase::Busy
        } else if is_http2 {
            HttpPhase::Idle
        } else if activity.has_bytes() {
            HttpPhase::Head
        } else if activity.begun() == 0 {
            HttpPhase::New
        } else {
            HttpPhase::Idle
        }
    }

    /// Begins a graceful end; `false` if there is nothing to wait for.
    fn leave(self: Pin<&mut Self>) -> bool {
        match self.project() {
            ProtocolProj::Unknown { .. } | ProtocolProj::Gone => return false,
            ProtocolProj::Http1 { connection } => Pin::new(connection).graceful_shutdown(),
            ProtocolProj::Http2 { connection } => connection.graceful_shutdown(),
        }
        true
    }

    /// Has hyper give back a connection that is asked to move, if it is idle. Ready if it leaves, or has
    /// ended meanwhile.
    fn poll_leave<M: Mobility>(
        mut self: Pin<&mut Self>,
        activity: &HttpActivity,
        mobility: &mut M,
        settings: &Settings,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !mobility.may_leave(self.as_mut().phase(activity), activity) {
            return Poll::Pending;
        }
        if let ProtocolProj::Unknown { .. } = self.as_mut().project() {
            return match mobility.accept() {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            };
        }
        activity.hold();
        if activity.had_body() {
            // If the rest of the body is missing, hyper waits for its reader, or for its bytes. It is only in
            // the second case that the response is complete and hyper tries to read nevertheless.
            if let Poll::Ready(ended) = self.as_mut().poll(settings, cx) {
                activity.release();
                return Poll::Ready(ended);
            }
            let phase = self.as_mut().phase(activity);
            if !activity.has_tried() || !mobility.may_leave(phase, activity) {
                return stays(activity, cx);
            }
        }
        if !mobility.accept() {
            return stays(activity, cx);
        }
        activity.hold(); // forgets the attempts
        self.as_mut().leave();
        match self.poll(settings, cx) {
            // An idle connection is given back at once; what is read here is of a body.
            Poll::Ready(Ok(())) if !activity.has_tried() => Poll::Ready(Ok(())),
            ended => {
                mobility.stay();
                // The service has answered and goes on to read: hyper ends after the request. Rare, and never
                // before the response is written.
                let _ = stays(activity, cx);
                ended
            }
        }
    }
}

/// Lets a stream be read again.
fn stays(activity: &HttpActivity, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    activity.release();
    if activity.has_tried() {
        // The attempt has stored no waker.
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}

impl<I, S, B, M> Future for Connection<I, S, M>
where
    M: Mobility,
    I: Read + Write + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut this = self.project();
        loop {
            // Before the poll, since hyper drops a service that is not ready with its connection.
            let awaits_service = this.activity.awaits_service();
            if let Poll::Ready(ended) = this.protocol.as_mut().poll(this.settings, cx) {
                if awaits_service {
                    note_service();
                }
                return Poll::Ready(ended);
            }
            if *this.course == Course::Staying && this.signals.poll(cx).is_ready() {
                *this.course = Course::Asked(time::now(), Look::First);
            }
            if this.mobility.can_move() && this.protocol.as_mut().is_http2() {
                this.mobility.stay();
            }
            let phase = this.protocol.as_mut().phase(this.activity);
            let (mut when, mut step) =
                this.watch
                    .next_step(*this.course, phase, this.activity, this.settings);
            // After hyper has stored the waker that a request wakes. A limit comes first: requests that never
            // cease would put it off.
            let may_move = *this.course == Course::Staying && this.mobility.is_asked();
            if may_move && !when.is_due() {
                let (protocol, mobility) = (this.protocol.as_mut(), &mut *this.mobility);
                let left = protocol.poll_leave(this.activity, mobility, this.settings, cx);
                if left.is_ready() {
                    return left;
                }
                // hyper may have gone on.
                let phase = this.protocol.as_mut().phase(this.activity);
                (when, step) =
                    this.watch
                        .next_step(*this.course, phase, this.activity, this.settings);
            }
            ready!(this.watch.poll(when, cx));
            match step {
                LimitStep::Leave => {
                    *this.course = Course::Leaving(time::now());
                    if !this.protocol.as_mut().leave() {
                        return Poll::Ready(Ok(()));
                    }
                }
                LimitStep::Close => return Poll::Ready(Ok(())),
                LimitStep::Fail(text) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
                }
                LimitStep::LastLook => *this.course = Course::Asked(time::now(), Look::Last),
                LimitStep::LookAgain => this.watch.look_again(),
            }
        }
    }
}

/// If the end of the loop has ended the connection: what it waited for is its service, although hyper was
/// reading, to learn of a client that gives up.
fn note_service() {
    let correct = |local: &Local| {
        if let Some(id) = this_thread::task() {
            let mut leftovers = local.leftovers.borrow_mut();
            leftovers.correct_interrupted(id, WaitsFor::Service);
        }
    };
    context::with_local(correct);
}

/// When something happens if hyper has nothing to do until then.
#[derive(Clone, Copy, Debug)]
enum When {
    Now,
    At(Instant),
    Never,
}

impl When {
    fn after(start: Instant, limit: impl Into<Option<Duration>>) -> When {
        let deadline = limit.into().and_then(|limit| start.checked_add(limit));
        deadline.map_or(When::Never, When::At)
    }

    fn is_due(self) -> bool {
        match self {
            When::Now => true,
            When::At(deadline) => deadline <= time::now(),
            When::Never => false,
        }
    }
}

/// What happens then.
enum LimitStep {
    Leave,
    LastLook,
    Close,
    Fail(&'static str),
    /// The phase may have changed without a poll.
    LookAgain,
}

fn next_step(
    course: Course,
    phase: HttpPhase,
    since: Instant,
    settings: &Settings,
) -> (When, LimitStep) {
    match (course, phase) {
        (Course::Staying, HttpPhase::New) => (
            When::after(since, settings.header_timeout),
            LimitStep::Close,
        ),
        (Course::Staying, HttpPhase::Head) => (
            When::after(since, settings.header_timeout),
            LimitStep::Fail(
                "the client did not send a complete request head in time (header_timeout)",
            ),
        ),
        (Course::Staying | Course::Leaving(_), HttpPhase::Unread)
            if settings.write_timeout.is_some() =>
        {
            (
                When::after(since, settings.write_timeout),
                LimitStep::Fail("the client did not read a response for too long"),
            )
        }
        // The end of an HTTP/2 stream need not wake the task of its connection.
        (Course::Staying, HttpPhase::Busy | HttpPhase::Unread) => (
            When::after(since, settings.idle_timeout),
            LimitStep::LookAgain,
        ),
        (Course::Staying, HttpPhase::Idle) => {
            (When::after(since, settings.idle_timeout), LimitStep::Leave)
        }
        (Course::Asked(..), HttpPhase::Busy | HttpPhase::Unread) => (When::Now, LimitStep::Leave),
        (Course::Asked(asked, look), HttpPhase::New | HttpPhase::Idle) => {
            let step = match look {
                Look::First => LimitStep::LastLook,
                Look::Last => LimitStep::Leave,
            };
            (When::after(asked, LAST_LOOK), step)
        }
        (Course::Asked(asked, _), HttpPhase::Head) => (
            When::after(asked, HEAD_AT_SHUTDOWN),
            LimitStep::Fail(
                "the server shut down before the client had sent a complete request head",
            ),
        ),
        (Course::Leaving(_), HttpPhase::Busy | HttpPhase::Unread) => {
            (When::Never, LimitStep::LookAgain)
        }
        (Course::Leaving(left), _) => (
            When::after(left.max(since), settings.header_timeout),
            LimitStep::Fail("the client did not close a connection that the server had ended"),
        ),
    }
}

/// The signals to end: the shutdown of the loop, and [`HttpHandle::stop`](super::HttpHandle::stop).
struct EndSignals {
    shutdown: ShutdownRequested,
    stop: Option<StopSignal>,
    /// The waker that both know.
    registered: Option<Waker>,
}

impl EndSignals {
    #[track_caller]
    fn new(stop: Option<StopSignal>) -> EndSignals {
        EndSignals {
            shutdown: shutdown_requested(),
            stop,
            registered: None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let stopped = |stop: &StopSignal| stop.is_stopping();
        if self.shutdown.is_requested() || self.stop.as_ref().is_some_and(stopped) {
            return Poll::Ready(());
        }
        // A task has one waker: registering takes locks, and is done once.
        let is_known = |waker: &Waker| waker.will_wake(cx.waker());
        if self.registered.as_ref().is_some_and(is_known) {
            return Poll::Pending;
        }
        self.registered = Some(cx.waker().clone());
        if let Some(stop) = &mut self.stop {
            if stop.poll(cx).is_ready() {
                return Poll::Ready(());
            }
        }
        Pin::new(&mut self.shutdown).poll(cx)
    }
}

/// Since when the connection is in its phase, and the timer of its deadline.
struct LimitWatch {
    /// `None` before the first poll.
    seen: Option<(HttpPhase, u64, Instant)>,
    timer: Option<LimitTimer>,
}

impl LimitWatch {
    fn new() -> LimitWatch {
        LimitWatch {
            seen: None,
            timer: None,
        }
    }

    /// Returns when the phase began. `count` tells apart two equal phases with a request, or with a write, in
    /// between.
    fn since(&mut self, phase: HttpPhase, count: u64) -> Instant {
        match self.seen {
            Some((seen, known, since)) if seen == phase && known == count => since,
            _ => {
                let now = time::now();
                self.seen = Some((phase, count, now));
                now
            }
        }
    }

    /// What happens next, and when, if hyper has nothing to do until then.
    fn next_step(
        &mut self,
        course: Course,
        phase: HttpPhase,
        activity: &HttpActivity,
        settings: &Settings,
    ) -> (When, LimitStep) {
        let count = match phase {
            HttpPhase::Unread => activity.write_changes(),
            _ => activity.begun(),
        };
        next_step(course, phase, self.since(phase, count), settings)
    }

    /// Counts the phase from now on.
    fn look_again(&mut self) {
        self.seen = None;
    }

    /// Ready when the time has come.
    fn poll(&mut self, when: When, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = match when {
            When::Now => return Poll::Ready(()),
            // A timer that is still armed wakes the task once, for nothing.
            When::Never => return Poll::Pending,
            When::At(deadline) => deadline,
        };
        let timer = self.timer.get_or_insert_with(|| LimitTimer::at(deadline));
        loop {
            if timer.deadline().is_none_or(|armed| deadline < armed) {
                timer.reset(deadline);
            }
            ready!(timer.poll(cx));
            if timer.deadline().is_some_and(|fired| fired >= deadline) {
                return Poll::Ready(());
            }
            timer.reset(deadline); // it was armed for an earlier phase
        }
    }
}
