//! The events to come, by time; events of the same time are due in the order in which they were added.

use std::collections::BTreeMap;
use std::time::Duration;

use super::host::HostId;
use super::packet::Packet;
use super::socket_id::SocketId;

#[derive(Debug)]
pub(super) enum Event {
    /// A packet is at the end of its path.
    Arrive(Box<Packet>),
    /// The timer of a stream has run out.
    Timer(SocketId),
    /// A path may let out what waits in it.
    Drain(HostId, HostId),
}

/// Names an event that can be taken back.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub(super) struct Key {
    at: Duration,
    seq: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// A map, not a heap: timers are taken back, so that no event is due for nothing.
    events: BTreeMap<Key, Event>,
    added: u64,
}

impl Queue {
    pub(super) fn add(&mut self, at: Duration, event: Event) -> Key {
        let key = Key {
            at,
            seq: self.added,
        };
        self.added += 1;
        self.events.insert(key, event);
        key
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.events.remove(&key);
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.events.keys().next().map(|key| key.at)
    }

    /// Takes the first event if it is due by `to`.
    pub(super) fn pop(&mut self, to: Duration) -> Option<(Duration, Event)> {
        let first = self.events.first_entry()?;
        let at = first.key().at;
        (at <= to).then(|| (at, first.remove()))
    }
}
