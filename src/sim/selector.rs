//! A simulated epoll instance of one loop: what its sockets are ready for.
//!
//! - A report says all that a socket is ready for at its time, as a wait in epoll does; a later report
//!   of the same token takes its place.
//! - A selector rings its bell for a report, outside of its own lock.

use std::collections::BTreeMap;

use super::bell::Bell;
use crate::sync::{Arc, Mutex};

/// What a socket is ready for.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) read_closed: bool,
    pub(crate) write_closed: bool,
    pub(crate) error: bool,
}

/// The flags of `poll`, as a kernel has them for a socket.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub(super) struct Polled {
    /// `EPOLLIN`.
    pub(super) input: bool,
    /// `EPOLLOUT`.
    pub(super) output: bool,
    /// `EPOLLRDHUP`.
    pub(super) peer_closed: bool,
    /// `EPOLLHUP`.
    pub(super) hung_up: bool,
    /// `EPOLLERR`.
    pub(super) error: bool,
}

impl Polled {
    /// Whether there is anything to report.
    pub(super) fn any(self) -> bool {
        self != Polled::default()
    }

    /// The flags as mio's events read them.
    pub(super) fn ready(self) -> Ready {
        let only_error = self.error && !self.input && !self.output && !self.peer_closed;
        Ready {
            readable: self.input,
            writable: self.output,
            read_closed: self.hung_up || self.input && self.peer_closed,
            write_closed: self.hung_up || self.output && self.error || only_error,
            error: self.error,
        }
    }
}

/// One report.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct ReadyEvent {
    pub(crate) token: usize,
    pub(crate) ready: Ready,
}

/// The reports that a loop has not taken yet.
#[derive(Debug)]
pub(crate) struct Selector {
    bell: Bell,
    reports: Mutex<Reports>,
}

#[derive(Debug, Default)]
struct Reports {
    /// In the order of the first report of each token; `None` for a token that is not watched any more.
    events: Vec<Option<ReadyEvent>>,
    places: BTreeMap<usize, usize>,
}

impl Selector {
    pub(crate) fn new(bell: Bell) -> Arc<Selector> {
        Arc::new(Selector {
            bell,
            reports: Mutex::new(Reports::default()),
        })
    }

    /// Moves the reports to the end of `into`.
    pub(crate) fn take(&self, into: &mut Vec<ReadyEvent>) {
        let mut reports = self.reports.lock();
        reports.places.clear();
        into.extend(reports.events.drain(..).flatten());
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.reports.lock().places.is_empty()
    }

    pub(super) fn report(&self, event: ReadyEvent) {
        let mut reports = self.reports.lock();
        match reports.places.get(&event.token).copied() {
            Some(place) => reports.events[place] = Some(event),
            None => {
                let place = reports.events.len();
                reports.events.push(Some(event));
                reports.places.insert(event.token, place);
            }
        }
        drop(reports);
        self.bell.ring();
    }

    /// Takes back the report of a token whose socket is not watched any more.
    pub(super) fn forget(&self, token: usize) {
        let mut reports = self.reports.lock();
        if let Some(place) = reports.places.remove(&token) {
            reports.events[place] = None;
        }
    }
}

#[cfg(test)]
mod tests;
