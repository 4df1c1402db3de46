//! Server-sent events: a picture now, and then one every [`PERIOD`].
//!
//! - A picture is taken when a stream is ready to send it, so nothing is taken while nobody looks, or while
//!   a client does not read.
//! - Streams share their pictures: a second page costs the bytes, not the reading.
//! - The number of streams is limited. A stream ends when the inspector is to stop.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::FutureExt;
use hyper::body::Bytes;

use crate::inspect::permit::Permit;
use crate::inspect::studio::{PERIOD, Studio};
use crate::shutdown_requested::{ShutdownRequested, shutdown_requested};
use crate::sync;
use crate::time::{self, Sleep};

/// The events of one client.
pub(super) struct Events {
    studio: Rc<Studio>,
    next: Sleep,
    stop: ShutdownRequested,
    is_first: bool,
    _permit: Permit,
}

impl Events {
    /// Opens a stream; `None` if there are too many.
    pub(super) fn open(studio: &Rc<Studio>) -> Option<Events> {
        let permit = studio.streams.take()?;
        Some(Events {
            studio: Rc::clone(studio),
            next: time::sleep(Duration::ZERO),
            stop: shutdown_requested(),
            is_first: true,
            _permit: permit,
        })
    }

    /// The bytes of the next event; `None` at the end.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.stop.poll_unpin(cx).is_ready() {
            return Poll::Ready(None);
        }
        // A client that reconnects does so after a second.
        let head = if self.is_first { "retry: 1000\n" } else { "" };
        if !self.is_first {
            ready!(self.next.poll_unpin(cx));
        }
        self.is_first = false;
        self.next.reset(sync::now() + PERIOD);
        let picture = self.studio.recent_picture();
        let mut event = Vec::with_capacity(picture.len() + 40);
        event.extend_from_slice(head.as_bytes());
        event.extend_from_slice(b"event: picture\ndata: ");
        event.extend_from_slice(&picture);
        event.extend_from_slice(b"\n\n");
        Poll::Ready(Some(event.into()))
    }
}
