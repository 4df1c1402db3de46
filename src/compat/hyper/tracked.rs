//! The service above hyper's connection: notes each request, and answers for one that panics or is late.
//!
//! - A request is under way from the call until its response body is dropped, or its future if that comes
//!   first.
//! - A panic in the call or in the future is reported and counted, and answered with 500: the connection,
//!   and every other request on it, continues. (A panic of a response body comes too late for an answer. It
//!   ends the connection, or with HTTP/2 the stream.)
//! - A future that is not ready within the request timeout is dropped, and answered with 408. An answer that
//!   is ready at the same poll wins.

use std::future::Future;
use std::net::SocketAddr;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HeaderMap};
use hyper::service::Service;
use hyper::{Request, Response, StatusCode, Version};

use crate::compat::hyper::activity::{HttpActivity, OpenRequest};
use crate::compat::hyper::services::ServiceRef;
use crate::event_loop::context;
use crate::limit_timer::LimitTimer;
use crate::panic::PanicSite;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::unwind::{Payload, contain};

/// The client's address, in the extensions of a request: see
/// [`Http::peer_extension`](super::Http::peer_extension).
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use hyper::{Response, service::service_fn};
/// use loopgroup::{EventLoopGroup, compat::hyper::{Http, Peer}};
///
/// let workers = EventLoopGroup::new(1)?;
/// let server = Http::new().peer_extension(true).serve(&workers, "127.0.0.1:0", |_loop| {
///     service_fn(|request| async move {
///         let Peer(address) = request.extensions().get().expect("peer_extension is on");
///         Ok::<_, Infallible>(Response::new(address.to_string()))
///     })
/// })?;
/// server.stop();
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub SocketAddr);

/// A service of the user's, and the notes of the connection that it serves.
#[derive(Debug)]
pub(super) struct Tracked<S> {
    pub(super) service: ServiceRef<S>,
    pub(super) activity: Arc<HttpActivity>,
    /// Inserted into each request.
    pub(super) peer: Option<SocketAddr>,
    /// The time for each answer.
    pub(super) limit: Option<Duration>,
    /// Where the server was started, for reports of panics.
    pub(super) location: &'static Location<'static>,
    /// How many requests the service has answered with a panic.
    pub(super) panics: Arc<AtomicU64>,
}

impl<S, B> Service<Request<Incoming>> for Tracked<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    type Response = Response<TrackedBody<B>>;
    type Error = S::Error;
    type Future = TrackedFuture<S::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let open = self.activity.begin_request();
        if self.activity.is_movable() {
            self.activity.note_body(!request.body().is_end_stream());
            if !keeps_alive(request.version(), request.headers()) {
                self.activity.note_last();
            }
        }
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(Peer(peer));
        }
        // Before the call, which may take its time: that counts.
        let limit = self.limit.map(|limit| Box::new(LimitTimer::after(limit)));
        let future = contain(|| self.service.call(request));
        TrackedFuture {
            future: future
                .map_err(|payload| report(payload, &self.panics, self.location))
                .ok(),
            open: Some(open),
            limit,
            location: self.location,
            panics: Arc::clone(&self.panics),
        }
    }
}

pin_project_lite::pin_project! {
    /// The future of a response.
    pub(super) struct TrackedFuture<F> {
        // `None` once it has panicked, or was dropped for being late.
        #[pin]
        future: Option<F>,
        open: Option<OpenRequest>,
        // In a box: without a limit a request is not to pay for it.
        limit: Option<Box<LimitTimer>>,
        location: &'static Location<'static>,
        panics: Arc<AtomicU64>,
    }
}

impl<F, B, E> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<TrackedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let answer = match this.future.as_mut().as_pin_mut() {
            None => Err(StatusCode::INTERNAL_SERVER_ERROR),
            Some(future) => match contain(|| future.poll(cx)) {
                Ok(Poll::Ready(answer)) => Ok(answer),
                Ok(Poll::Pending) => {
                    let Some(limit) = this.limit.as_deref_mut() else {
                        return Poll::Pending;
                    };
                    ready!(limit.poll(cx));
                    Err(StatusCode::REQUEST_TIMEOUT)
                }
                Err(payload) => {
                    report(payload, this.panics, this.location);
                    Err(StatusCode::INTERNAL_SERVER_ERROR)
                }
            },
        };
        let open = this.open.take();
        Poll::Ready(match answer {
            Ok(answer) => answer.map(|response| {
                if let Some(activity) = open.as_ref().map(OpenRequest::activity) {
                    if activity.is_movable() && names(response.headers(), "close") {
                        activity.note_last();
                    }
                }
                response.map(|body| TrackedBody {
                    body: Some(body),
                    open,
                })
            }),
            Err(status) => {
                if let Err(payload) = contain(|| this.future.set(None)) {
                    report(payload, this.panics, this.location);
                }
                let mut instead = Response::new(TrackedBody { body: None, open });
                *instead.status_mut() = status;
                Ok(instead)
            }
        })
    }
}

/// Whether the client wants the connection to stay open.
fn keeps_alive(version: Version, headers: &HeaderMap) -> bool {
    match version {
        Version::HTTP_11 => !names(headers, "close"),
        _ => names(headers, "keep-alive"),
    }
}

/// Whether the header `connection` has this option.
fn names(headers: &HeaderMap, option: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let mut options = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    options.any(|one| one.trim().eq_ignore_ascii_case(option))
}

/// Counts a panic of the service, and reports it to the handler of its group.
#[cold]
fn report(payload: Payload, panics: &AtomicU64, location: &'static Location<'static>) {
    panics.fetch_add(1, Ordering::Release);
    context::panics().report(PanicSite::Service, payload, Some(location));
}

pin_project_lite::pin_project! {
    /// The body of a response; `None` is empty.
    pub(super) struct TrackedBody<B> {
        #[pin]
        body: Option<B>,
        open: Option<OpenRequest>,
    }
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().body.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
