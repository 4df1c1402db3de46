//! What an HTTP connection is doing, gathered from below and above hyper.
//!
//! hyper does not tell whether a connection is idle. Its transport sees bytes, and its service sees
//! requests; both note them here, and the connection's task derives the [`Phase`].
//!
//! - All fields are written on the connection's loop. They are atomic, all `Relaxed`, because hyper
//!   requires the transport of an upgraded connection to be `Send`; no other data is published through
//!   them.
//! - A request is under way from the call of the service until its response body is dropped.
//! - Bytes that arrive while no request is under way belong to the head of the next one. (For HTTP/2 the task
//!   does not ask: its frames are no heads.)

use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The notes of one connection.
#[derive(Debug, Default)]
pub(super) struct HttpActivity {
    /// Requests under way.
    open: AtomicUsize,
    /// Requests so far.
    begun: AtomicU64,
    /// Whether bytes have arrived since the last request began or ended.
    bytes_arrived: AtomicBool,
    /// Odd while the last write has to wait for the peer: a response is not written completely. Counts the
    /// changes, so that two waits with a write in between are told apart.
    write_blocked: AtomicU64,
    /// Whether the connection can move: the fields below are of use then only.
    movable: bool,
    /// Whether the last request had a body.
    had_body: AtomicBool,
    /// Whether the connection ends after the last request.
    last: AtomicBool,
    /// Whether the stream is held, so that nothing is read.
    held: AtomicBool,
    /// Whether hyper has tried to read while it is.
    tried: AtomicBool,
}

/// The phase of a connection between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpPhase {
    /// Nothing has arrived yet.
    New,
    /// Part of a request head has arrived.
    Head,
    /// A request is under way, or a response is being written.
    Busy,
    /// A response is being written, and the client does not read it.
    Unread,
    /// Between two requests.
    Idle,
}

impl HttpActivity {
    /// The notes of a connection that can move.
    pub(super) fn movable() -> HttpActivity {
        HttpActivity {
            movable: true,
            ..HttpActivity::default()
        }
    }

    pub(super) fn begin_request(self: &Arc<HttpActivity>) -> OpenRequest {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.bytes_arrived.store(false, Ordering::Relaxed);
        OpenRequest(Arc::clone(self))
    }

    pub(super) fn note_bytes(&self) {
        self.bytes_arrived.store(true, Ordering::Relaxed);
    }

    pub(super) fn note_write(&self, blocked: bool) {
        let changes = self.write_blocked.load(Ordering::Relaxed);
        if blocked != is_blocked(changes) {
            self.write_blocked.store(changes + 1, Ordering::Relaxed);
        }
    }

    /// Returns the number of requests so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether bytes have arrived that belong to no request yet.
    pub(super) fn has_bytes(&self) -> bool {
        self.bytes_arrived.load(Ordering::Relaxed)
    }

    /// Whether a request is under way, and the client takes what the service has answered so far.
    pub(super) fn awaits_service(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0 && !self.is_unread()
    }

    /// How often a write began or ceased to wait for the client.
    pub(super) fn write_changes(&self) -> u64 {
        self.write_blocked.load(Ordering::Relaxed)
    }

    /// Whether a write waits for the client.
    pub(super) fn is_unread(&self) -> bool {
        is_blocked(self.write_changes())
    }

    /// Whether the connection can move.
    pub(super) fn is_movable(&self) -> bool {
        self.movable
    }

    pub(super) fn note_body(&self, had_body: bool) {
        self.had_body.store(had_body, Ordering::Relaxed);
    }

    /// Whether the last request had a body.
    pub(super) fn had_body(&self) -> bool {
        self.had_body.load(Ordering::Relaxed)
    }

    pub(super) fn note_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ends after the last request.
    pub(super) fn is_last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// Holds the stream: from now on nothing is read.
    pub(super) fn hold(&self) {
        self.tried.store(false, Ordering::Relaxed);
        self.held.store(true, Ordering::Relaxed);
    }

    pub(super) fn release(&self) {
        self.held.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn note_try(&self) {
        self.tried.store(true, Ordering::Relaxed);
    }

    /// Whether there was an attempt to read since the stream is held.
    pub(super) fn has_tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    /// Begins on another loop, where bytes that were read ahead are the first to be read.
    pub(super) fn arrive(&self, has_bytes: bool) {
        self.release();
        self.note_body(false);
        self.bytes_arrived.store(has_bytes, Ordering::Relaxed);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0 || self.is_unread()
    }
}

fn is_blocked(changes: u64) -> bool {
    changes % 2 == 1
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<HttpActivity>);

impl OpenRequest {
    pub(super) fn activity(&self) -> &HttpActivity {
        &self.0
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.bytes_arrived.store(false, Ordering::Relaxed);
    }
}
