//! The terms of a shutdown: what is requested, and what applies from then on.
//!
//! The first request sets the terms, `Now` shortens them, and every other request only observes.

use std::io;
use std::time::{Duration, Instant};

use crate::report::EndCause;

/// The default quiet period; the same as Netty's.
pub(crate) const QUIET: Duration = Duration::from_secs(2);
/// The default timeout; the same as Netty's.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

/// Validates the terms of a graceful shutdown.
pub(crate) fn graceful(quiet: Duration, timeout: Duration) -> io::Result<ShutdownRequest> {
    if timeout < quiet {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("timeout ({timeout:?}) must not be shorter than quiet ({quiet:?})"),
        ));
    }
    Ok(ShutdownRequest::Graceful { quiet, timeout })
}

/// A request to shut down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShutdownRequest {
    Graceful {
        quiet: Duration,
        timeout: Duration,
    },
    Drain {
        scope: DrainScope,
        timeout: Duration,
    },
    Now,
}

/// The tasks that a drain waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainScope {
    Loop,
    /// All loops of the group: they end together, so that tasks can submit to each other until the end.
    Group,
}

/// The shutdown requested so far, if any.
#[derive(Debug, Default)]
pub(crate) struct ShutdownControl(Option<ShutdownTerms>);

/// The terms that apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShutdownTerms {
    pub(crate) requested_at: Instant,
    pub(crate) until: EndCondition,
    /// `None` if it is beyond the range of the clock.
    pub(crate) deadline: Option<Instant>,
}

/// What ends a shutdown besides its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCondition {
    Quiet(Duration),
    Drained(DrainScope),
    Now,
}

impl ShutdownControl {
    /// Records a request; returns whether it changes anything.
    pub(crate) fn note(&mut self, request: ShutdownRequest, now: Instant) -> bool {
        match (&mut self.0, request) {
            (Some(terms), ShutdownRequest::Now) if terms.until != EndCondition::Now => {
                terms.until = EndCondition::Now
            }
            (Some(_), _) => return false,
            (none, request) => {
                let (until, timeout) = match request {
                    ShutdownRequest::Graceful { quiet, timeout } => {
                        (EndCondition::Quiet(quiet), timeout)
                    }
                    ShutdownRequest::Drain { scope, timeout } => {
                        (EndCondition::Drained(scope), timeout)
                    }
                    ShutdownRequest::Now => (EndCondition::Now, Duration::ZERO),
                };
                *none = Some(ShutdownTerms {
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

    pub(crate) fn terms(&self) -> Option<ShutdownTerms> {
        self.0
    }

    /// The cause of an end with nothing to wait for.
    pub(crate) fn cause_when_idle(&self) -> EndCause {
        match self.0.map(|terms| terms.until) {
            Some(EndCondition::Drained(_)) => EndCause::Drained,
            Some(EndCondition::Now) => EndCause::Now,
            _ => EndCause::Idle,
        }
    }
}
