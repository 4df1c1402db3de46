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
use crate::compat::hyper::rt::LocalExecutor;
use crate::compat::hyper::settings::{Protocols, Settings};
use crate::compat::hyper::stop::StopSignal;
use crate::compat::hyper::tracked::Tracked;
use crate::compat::hyper::transport::{Transport, Version};
use crate::event_loop::context;
use crate::event_loop::local::Local;
use crate::left_tasks::WaitsFor;
use crate::limit_timer::LimitTimer;
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
    pub(super) struct Connection<I, S>
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
    }
}

pin_project_lite::pin_project! {
    #[project = ProtocolProj]
    enum Protocol<I, S>
    where
        Tracked<S>: HttpService<Incoming>,
    {
        // Waits for the bytes that tell the version; taken out when these have come.
        Unknown { parts: Option<(Transport<I>, Tracked<S>)> },
        Http1 { #[pin] connection: http1::UpgradeableConnection<Transport<I>, Tracked<S>> },
        Http2 { #[pin] connection: http2::Connection<Transport<I>, Tracked<S>, LocalExecutor> },
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

impl<I, S, B> Connection<I, S>
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
    ) -> Connection<I, S> {
        let activity = Arc::clone(&service.activity);
        let transport = Transport::new(io, Arc::clone(&activity));
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
        }
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
                    return connection.poll(cx).map_err(io::Error::other);
                }
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

    fn phase(self: Pin<&mut Self>, activity: &HttpActivity) -> HttpPhase {
        let is_http2 = match self.project() {
            ProtocolProj::Http2 { .. } => true,
            ProtocolProj::Unknown { .. } | ProtocolProj::Http1 { .. } => false,
        };
        if activity.is_busy() {
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
            ProtocolProj::Unknown { .. } => return false,
            ProtocolProj::Http1 { connection } => connection.graceful_shutdown(),
            ProtocolProj::Http2 { connection } => connection.graceful_shutdown(),
        }
        true
    }
}

impl<I, S, B> Future for Connection<I, S>
where
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
            let phase = this.protocol.as_mut().phase(this.activity);
            let since = this.watch.since(phase, this.activity.begun());
            let (when, step) = next_step(*this.course, phase, since, this.settings);
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
        // The end of an HTTP/2 stream need not wake the task of its connection.
        (Course::Staying, HttpPhase::Busy) => (
            When::after(since, settings.idle_timeout),
            LimitStep::LookAgain,
        ),
        (Course::Staying, HttpPhase::Idle) => {
            (When::after(since, settings.idle_timeout), LimitStep::Leave)
        }
        (Course::Asked(..), HttpPhase::Busy) => (When::Now, LimitStep::Leave),
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
        (Course::Leaving(_), HttpPhase::Busy) => (When::Never, LimitStep::LookAgain),
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

    /// Returns when the phase began. `begun` tells apart two equal phases with a request in between.
    fn since(&mut self, phase: HttpPhase, begun: u64) -> Instant {
        match self.seen {
            Some((seen, count, since)) if seen == phase && count == begun => since,
            _ => {
                let now = time::now();
                self.seen = Some((phase, begun, now));
                now
            }
        }
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
