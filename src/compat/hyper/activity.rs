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
    /// Whether the last write has to wait for the peer: a response is not written completely.
    write_blocked: AtomicBool,
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
    /// Between two requests.
    Idle,
}

impl HttpActivity {
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
        self.write_blocked.store(blocked, Ordering::Relaxed);
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
        self.open.load(Ordering::Relaxed) > 0 && !self.write_blocked.load(Ordering::Relaxed)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0 || self.write_blocked.load(Ordering::Relaxed)
    }
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<HttpActivity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.bytes_arrived.store(false, Ordering::Relaxed);
    }
}
