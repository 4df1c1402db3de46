//! Responses, with the headers that every one of them has.
//!
//! A long text is passed on in slices: it is freed, and its permit with it, soon after the client has read
//! it, or has gone.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::inspect::guard::Refusal;
use crate::inspect::permit::Permit;
use crate::inspect::stream::Events;

/// How much of a text is passed on at a time.
const SLICE: usize = 64 * 1024;

/// The body of a response: a text, or events without an end.
pub(super) enum Content {
    /// With a permit if it is too long to be held for many clients at a time.
    Text {
        rest: Bytes,
        _permit: Option<Permit>,
    },
    Events(Events),
}

/// What every response says, besides the policy of the page: it is not to be kept, guessed at, framed or
/// passed on.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    // Not plain `same-origin`: the page could not hand a trace to the window that it opens.
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin-allow-popups",
    ),
];

/// A response with a text of a kind.
pub(super) fn text(kind: &'static str, text: impl Into<Bytes>) -> Response<Content> {
    let (rest, _permit) = (text.into(), None);
    of(kind, Content::Text { rest, _permit })
}

/// A response with a long text of a kind.
pub(super) fn long(kind: &'static str, text: String, permit: Permit) -> Response<Content> {
    let (rest, _permit) = (text.into(), Some(permit));
    of(kind, Content::Text { rest, _permit })
}

/// A response of events.
pub(super) fn events(events: Events) -> Response<Content> {
    of("text/event-stream", Content::Events(events))
}

/// A response that says what is wrong.
pub(super) fn error(status: StatusCode, reason: &str) -> Response<Content> {
    let mut response = text("text/plain; charset=utf-8", format!("{reason}\n"));
    *response.status_mut() = status;
    response
}

pub(super) fn refused(refusal: Refusal) -> Response<Content> {
    let mut response = error(refusal.status, refusal.reason);
    response.headers_mut().extend(refusal.header);
    if refusal.status == StatusCode::PAYLOAD_TOO_LARGE {
        // Nobody reads the body.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// Adds the headers of every response.
pub(super) fn secured(mut response: Response<Content>, policy: &HeaderValue) -> Response<Content> {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    response
}

fn of(kind: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut *self {
            Content::Text { rest, .. } if rest.is_empty() => None,
            Content::Text { rest, .. } => Some(rest.split_to(rest.len().min(SLICE))),
            Content::Events(events) => ready!(events.poll_next(cx)),
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Content::Text { rest, .. } if rest.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Text { rest, .. } => SizeHint::with_exact(rest.len() as u64),
            Content::Events(_) => SizeHint::default(),
        }
    }
}
