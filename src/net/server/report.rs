//! The final counts of a server.

use std::fmt;
use std::io;

use crate::sync::Arc;

/// The final counts of a [`Server`](super::Server): `accepted = completed + failed + aborted + rejected`.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, net::Server};
/// let group = EventLoopGroup::new(1)?;
/// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?;
/// server.stop();
/// let report = group.block_on(server);
/// println!("{report}"); // 0 connections accepted = 0 completed + 0 failed + 0 aborted + 0 rejected; ...
/// let ended = report.completed() + report.failed() + report.aborted() + report.rejected();
/// assert_eq!(report.accepted(), ended);
/// assert!(report.accept_errors() == 0 && report.last_accept_error().is_none());
/// assert!(report.timed_out() == 0 && report.failed_loops() == 0 && report.service_panics() == 0);
/// assert_eq!(report.moves(), 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct ServerReport {
    pub(super) accepted: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) aborted: u64,
    pub(super) rejected: u64,
    pub(super) timed_out: u64,
    pub(super) moves: u64,
    pub(super) service_panics: u64,
    pub(super) failed_loops: usize,
    pub(super) accept_errors: u64,
    pub(super) last_error: Option<Arc<io::Error>>,
}

impl ServerReport {
    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number of handlers that ran to completion, without an error.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the number of handlers that returned an error.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns the number of handlers that panicked, were cancelled, or returned after the end of their loop
    /// had closed a channel for which they waited.
    pub fn aborted(&self) -> u64 {
        self.aborted
    }

    /// Returns the number of accepted connections that no worker accepted: all were shutting down, their
    /// queues were full until the stop, or none of them has a handler.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Returns the number of connections for which a time limit expired; each of them is also counted by
    /// what its handler made of it.
    pub fn timed_out(&self) -> u64 {
        self.timed_out
    }

    /// Returns the number of requests that an HTTP service answered with a panic, and so with 500; zero for
    /// a server of another kind. The connections of these requests are counted by how they ended.
    pub fn service_panics(&self) -> u64 {
        self.service_panics
    }

    /// Returns how often a connection moved to another loop; see
    /// [`Server::serve_turns`](super::Server::serve_turns). A connection counts as often as it moved.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Returns the number of loops whose handler factory failed or panicked; see
    /// [`Server::serve_with`](super::Server::serve_with).
    pub fn failed_loops(&self) -> usize {
        self.failed_loops
    }

    /// Returns the number of accepts that failed.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors
    }

    /// Returns the error of the last failed accept.
    pub fn last_accept_error(&self) -> Option<&io::Error> {
        self.last_error.as_deref()
    }
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |number: u64| if number == 1 { "" } else { "s" };
        write!(
            f,
            "{} connection{} accepted = {} completed + {} failed + {} aborted + {} rejected",
            self.accepted,
            plural(self.accepted),
            self.completed,
            self.failed,
            self.aborted,
            self.rejected
        )?;
        if self.timed_out > 0 {
            write!(f, "; {} timed out", self.timed_out)?;
        }
        if self.moves > 0 {
            write!(f, "; {} move{}", self.moves, plural(self.moves))?;
        }
        if self.service_panics > 0 {
            let panics = self.service_panics;
            write!(f, "; {panics} panic{} of the service", plural(panics))?;
        }
        if self.failed_loops > 0 {
            let loops = self.failed_loops as u64;
            write!(f, "; {loops} loop{} without a handler", plural(loops))?;
        }
        let errors = self.accept_errors;
        write!(f, "; {errors} accept error{}", plural(errors))?;
        match &self.last_error {
            Some(error) => write!(f, ", the last: {error}"),
            None => Ok(()),
        }
    }
}
