//! The terms of a shutdown: what is requested, and what applies from then on.
//!
//! The first request sets the terms, `Now` shortens them, and every other request only observes.

use std::io;
use std::time::{Duration, Instant};

/// The default quiet period; the same as Netty's.
pub(crate) const QUIET: Duration = Duration::from_secs(2);
/// The default timeout; the same as Netty's.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

/// Validates the terms of a graceful shutdown.
pub(crate) fn graceful(quiet: Duration, timeout: Duration) -> io::Result<Request> {
    if timeout < quiet {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("timeout ({timeout:?}) must not be shorter than quiet ({quiet:?})"),
        ));
    }
    Ok(Request::Graceful { quiet, timeout })
}

/// A request to shut down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Graceful { quiet: Duration, timeout: Duration },
    Drain { scope: Scope, timeout: Duration },
    Now,
}

/// The tasks that a drain waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Loop,
    /// All loops of the group: they end together, so that tasks can submit to each other until the end.
    Group,
}

/// The shutdown requested so far, if any.
#[derive(Debug, Default)]
pub(crate) struct Control(Option<Terms>);

/// The terms that apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) requested_at: Instant,
    pub(crate) until: Until,
    /// `None` if it is beyond the range of the clock.
    pub(crate) deadline: Option<Instant>,
}

/// What ends a shutdown besides its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Quiet(Duration),
    Drained(Scope),
    Now,
}

impl Control {
    /// Records a request; returns whether it changes anything.
    pub(crate) fn note(&mut self, request: Request, now: Instant) -> bool {
        match (&mut self.0, request) {
            (Some(terms), Request::Now) if terms.until != Until::Now => terms.until = Until::Now,
            (Some(_), _) => return false,
            (none, request) => {
                let (until, timeout) = match request {
                    Request::Graceful { quiet, timeout } => (Until::Quiet(quiet), timeout),
                    Request::Drain { scope, timeout } => (Until::Drained(scope), timeout),
                    Request::Now => (Until::Now, Duration::ZERO),
                };
                *none = Some(Terms {
                    requested_at: now,
                    until,
                    deadline: now.checked_add(timeout),
                });
            }
        }
        true
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn terms(&self) -> Option<Terms> {
        self.0
    }
}
