//! A look at a running server, from outside: for the inspector.
//!
//! - It keeps neither the server nor its groups alive, as a handle does not.
//! - Reading costs the server nothing but the lock of a list per loop, for the length of one read.

use crate::error::Caller;
use crate::metrics::prometheus::ServerCounts;
use crate::net::server::handle::{ServerHandle, counts};
use crate::net::server::mobile::Decision;
use crate::net::server::report::ServerReport;
use crate::net::server::state::ServerState;
use crate::sync::Arc;

/// Reads the figures of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerProbe(Arc<ServerState>);

impl<A> ServerHandle<A> {
    pub(crate) fn probe(&self) -> ServerProbe {
        ServerProbe(Arc::clone(self.state()))
    }
}

impl ServerProbe {
    /// Whether both look at the same server.
    pub(crate) fn is(&self, other: &ServerProbe) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The counts up to now.
    pub(crate) fn report(&self) -> ServerReport {
        self.0.report()
    }

    /// The number of open connections, also of those that wait for their worker.
    pub(crate) fn connections(&self) -> usize {
        self.0.connections()
    }

    /// The number of connections whose handlers run on each worker loop.
    pub(crate) fn connections_by_loop(&self) -> Vec<usize> {
        self.0.open.iter().map(|one| one.len()).collect()
    }

    /// How often a connection was asked to move.
    pub(crate) fn move_requests(&self) -> u64 {
        self.0.mobile.asked()
    }

    /// The last decisions of the balancer, the newest first.
    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.0.mobile.decisions()
    }

    /// What the server has counted, for Prometheus.
    pub(crate) fn counts(&self) -> ServerCounts {
        counts(&self.0)
    }

    /// Whether the server accepts no more connections.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.is_stopping()
    }

    /// Whether the server has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.end.lock().has_fired()
    }

    /// Where the server was started: its connections are tasks from there.
    pub(crate) fn location(&self) -> Caller {
        self.0.location
    }
}
