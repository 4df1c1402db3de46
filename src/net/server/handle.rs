//! The handle to a running server.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::metrics::prometheus::{Prometheus, ServerCounts};
use crate::net::server::report::ServerReport;
use crate::net::server::state::{ServerState, poll_event};
use crate::sync::{Arc, Ordering};

/// A handle to a running [`Server`](super::Server), and a future that resolves when the server has ended.
///
/// Clones refer to the same server. Dropping all of them detaches it. `A` is the address that the server
/// listens on: that of a [`Server::unix`](super::Server::unix) is a Unix address.
///
/// # Cancel safety
///
/// Cancel safe: the report stays available to every other and later handle.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, net::Server};
///
/// let group = EventLoopGroup::new(1)?;
/// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?;
/// println!("listening on {}", server.local_addr());
/// assert_eq!((server.accepted(), server.connections(), server.accept_errors()), (0, 0, 0));
/// assert!(server.last_accept_error().is_none());
/// server.stop();
/// assert_eq!(group.block_on(server).accepted(), 0);
/// # std::io::Result::Ok(())
/// ```
pub struct ServerHandle<A = SocketAddr> {
    state: Arc<ServerState>,
    local: A,
    /// The key of this handle among the waiters for the end.
    end_key: Option<usize>,
}

impl Prometheus {
    /// Adds what a server has counted up to now, with its name as the label `server`. Counts that were added
    /// with the same name before are replaced.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, Prometheus, net::Server};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?;
    /// let text = Prometheus::new()
    ///     .group("workers", &group.metrics())
    ///     .server("echo", &server)
    ///     .to_string();
    /// assert!(text.contains("\nloopgroup_server_accepted_total{server=\"echo\"} 0\n"));
    /// # server.stop();
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use = "this returns the text with the server in it"]
    pub fn server<A>(self, name: impl Into<String>, server: &ServerHandle<A>) -> Prometheus {
        self.counts(name.into(), counts(&server.state))
    }
}

/// What a server has counted up to now.
pub(super) fn counts(state: &ServerState) -> ServerCounts {
    let report = state.report();
    ServerCounts {
        connections: state.connections() as u64,
        accepted: report.accepted(),
        completed: report.completed(),
        failed: report.failed(),
        aborted: report.aborted(),
        rejected: report.rejected(),
        timed_out: report.timed_out(),
        accept_errors: report.accept_errors(),
        moves: report.moves(),
        move_requests: state.mobile.asked(),
        rebalanced: state.mobile.balanced(),
    }
}

impl<A> ServerHandle<A> {
    pub(super) fn new(state: Arc<ServerState>, local: A) -> ServerHandle<A> {
        ServerHandle {
            state,
            local,
            end_key: None,
        }
    }

    #[cfg(feature = "inspect")]
    pub(super) fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    /// Returns the address that the server listens on, with the port that the system chose.
    pub fn local_addr(&self) -> A
    where
        A: Clone,
    {
        self.local.clone()
    }

    /// Returns the number of open connections: accepted and not ended.
    pub fn connections(&self) -> usize {
        self.state.connections()
    }

    /// Returns the number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Acquire)
    }

    /// Returns the number of handlers that have returned an error so far.
    pub fn failed(&self) -> u64 {
        self.state.failed.load(Ordering::Acquire)
    }

    /// Returns the number of connections so far for which a time limit of the server has expired.
    pub fn timed_out(&self) -> u64 {
        self.state.timed_out.load(Ordering::Acquire)
    }

    /// Returns how often a connection has moved to another loop so far; see
    /// [`move_connections`](ServerHandle::move_connections).
    pub fn moves(&self) -> u64 {
        self.state.moves.load(Ordering::Acquire)
    }

    /// Returns how often a connection was asked to move so far: by
    /// [`move_connections`](ServerHandle::move_connections) or to [rebalance](super::Server::rebalance) the
    /// load. Requests that came to nothing are among them.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?;
    /// assert_eq!((server.move_requests(), server.moves()), (0, 0));
    /// # server.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn move_requests(&self) -> u64 {
        self.state.mobile.asked()
    }

    /// Returns how often [`Server::rebalance`](super::Server::rebalance) has asked a connection to move so
    /// far; these are among the [`move_requests`](ServerHandle::move_requests).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::{Rebalance, Server, TcpStream, Turn}};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .rebalance(Rebalance::by_utilization())
    ///     .serve_turns(|_, _| (), async |_: &TcpStream, _: &mut ()| Turn::Close)?;
    /// assert_eq!(server.rebalanced(), 0); // the loops are idle
    /// # server.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn rebalanced(&self) -> u64 {
        self.state.mobile.balanced()
    }

    /// Asks connections of the worker loop `from` to move to the worker loop `to`, `count` at most; returns
    /// how many were asked.
    ///
    /// Connections of [`serve_turns`](super::Server::serve_turns) can move, and HTTP/1 connections of
    /// `compat::hyper` with `Http::movable`; others are not asked. One that waits for its next request moves
    /// at once; one that is in a turn, or that has a request under way, moves after it. Those that were asked
    /// before and have not moved yet are not asked again. A request comes to nothing if the connection ends
    /// first, or if the loop `to` shuts down or rejects it: then the connection stays where it is.
    /// [`moves`](ServerHandle::moves) counts connections that have arrived.
    ///
    /// Zero if there is no such loop, or if both are the same.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::{Server, TcpStream, Turn}};
    ///
    /// let (boss, group) = (EventLoopGroup::new(1)?, EventLoopGroup::new(2)?);
    /// let server = Server::new("127.0.0.1:0")?
    ///     .boss(&boss)
    ///     .workers(&group)
    ///     .serve_turns(|_, _| (), async |stream: &TcpStream, _| match stream.try_read(&mut [0; 64]) {
    ///         Ok(0) | Err(_) => Turn::Close,
    ///         Ok(_) => Turn::Next,
    ///     })?;
    /// let client = std::net::TcpStream::connect(server.local_addr())?;
    /// while server.move_connections(0, 1, usize::MAX) == 0 {
    ///     std::thread::yield_now(); // until the connection is there
    /// }
    /// while server.moves() == 0 {
    ///     std::thread::yield_now();
    /// }
    /// drop(client);
    /// server.stop();
    /// let report = group.block_on(server);
    /// assert_eq!((report.completed(), report.moves()), (1, 1));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn move_connections(&self, from: usize, to: usize, count: usize) -> usize {
        self.state.mobile.ask(from, to, count)
    }

    /// Returns the number of loops whose handler factory has failed or panicked; see
    /// [`Server::serve_with`](super::Server::serve_with).
    pub fn failed_loops(&self) -> usize {
        self.state.failed_loops.load(Ordering::Acquire)
    }

    /// Returns the number of accepts that failed so far; the server continues after each.
    pub fn accept_errors(&self) -> u64 {
        self.state.accept_errors.load(Ordering::Acquire)
    }

    /// Returns the error of the last failed accept.
    pub fn last_accept_error(&self) -> Option<Arc<io::Error>> {
        self.state.last_error.lock().clone()
    }

    /// Closes the listener and lets open connections finish; await the handle to wait for the end.
    ///
    /// It does not block and may be called more than once. Connections that are still in the system's
    /// backlog, or that no worker's queue had room for, are refused. A client that stays connected keeps
    /// its handler waiting: [`drain`](ServerHandle::drain) ends that, and so does a shutdown of the workers.
    pub fn stop(&self) {
        self.state.stop();
    }

    /// Closes the listener, and ends the reads of open connections: a read that would have to wait finds the
    /// end of the stream, as at a [shutdown](super::Server::end_reads_on_shutdown) of the workers.
    ///
    /// For a server that ends while its groups continue. It does not block and may be called more than once,
    /// before or after [`stop`](ServerHandle::stop). Await the handle to wait for the end.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|stream, _| async move {
    ///     let _ = futures::io::copy(&stream, &mut &stream).await; // until the peer closes, or the drain
    /// })?;
    /// let _idle = std::net::TcpStream::connect(server.local_addr())?;
    /// while server.accepted() < 1 {
    ///     std::thread::yield_now();
    /// }
    /// server.drain();
    /// assert_eq!(group.block_on(server).completed(), 1); // although the client is still there
    /// # std::io::Result::Ok(())
    /// ```
    pub fn drain(&self) {
        self.state.stop();
        self.state.end_reads();
    }
}

impl<A: Unpin> Future for ServerHandle<A> {
    type Output = ServerReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ServerReport> {
        let this = &mut *self;
        poll_event(&this.state.end, &mut this.end_key, cx).map(|()| this.state.report())
    }
}

impl<A: Clone> Clone for ServerHandle<A> {
    fn clone(&self) -> ServerHandle<A> {
        ServerHandle::new(Arc::clone(&self.state), self.local.clone())
    }
}

impl<A> Drop for ServerHandle<A> {
    fn drop(&mut self) {
        let waker = self.state.end.lock().remove(&mut self.end_key);
        drop(waker);
    }
}

impl<A: fmt::Debug> fmt::Debug for ServerHandle<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("local_addr", &self.local)
            .field("connections", &self.connections())
            .field("accepted", &self.accepted())
            .field("accept_errors", &self.accept_errors())
            .finish_non_exhaustive()
    }
}
