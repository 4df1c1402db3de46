//! What a network keeps of the events in it: a hash of all of them, the last ones, all if asked to, and
//! counts.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::net_event::NetEvent;

#[derive(Debug)]
pub(super) struct Record {
    trace: u64,
    last: VecDeque<NetEvent>,
    keep: usize,
    all: Option<Vec<NetEvent>>,
    pub(super) reached: Reached,
}

impl Reached {
    /// Each situation by its name, and how often it was reached.
    pub(crate) fn named(&self) -> [(&'static str, u64); 13] {
        [
            ("network: a connect is refused", self.refused),
            ("network: a backlog is full", self.backlog_full),
            ("network: a connect times out", self.connect_timeouts),
            ("network: a connection is reset", self.resets),
            ("network: a connection is half closed", self.half_closes),
            ("network: a write is partial", self.partial_writes),
            ("network: a read is partial", self.partial_reads),
            ("network: a writer waits for its reader", self.window_full),
            ("network: a segment is sent again", self.retransmissions),
            ("network: a datagram is lost", self.datagrams_lost),
            (
                "network: a datagram arrives twice",
                self.datagrams_duplicated,
            ),
            ("network: a datagram is overtaken", self.datagrams_reordered),
            (
                "network: a receive buffer overflows",
                self.datagrams_overflowed,
            ),
        ]
    }
}

/// How often something rare happened, to see whether a simulation reached it at all.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub(crate) struct Reached {
    /// Connects that found no listener.
    pub(crate) refused: u64,
    /// Connects that found a full backlog.
    pub(crate) backlog_full: u64,
    pub(crate) connect_timeouts: u64,
    /// Connections that a socket found reset.
    pub(crate) resets: u64,
    pub(crate) half_closes: u64,
    pub(crate) partial_writes: u64,
    pub(crate) partial_reads: u64,
    /// Writes that found no space.
    pub(crate) window_full: u64,
    pub(crate) retransmissions: u64,
    pub(crate) datagrams_lost: u64,
    pub(crate) datagrams_duplicated: u64,
    pub(crate) datagrams_reordered: u64,
    pub(crate) datagrams_overflowed: u64,
}

impl Record {
    pub(super) fn new() -> Record {
        Record {
            trace: 0xCBF2_9CE4_8422_2325,
            last: VecDeque::new(),
            keep: 50,
            all: None,
            reached: Reached::default(),
        }
    }

    pub(super) fn note(&mut self, event: NetEvent) {
        let [what, number] = event.what.words();
        self.word(event.at.as_nanos() as u64);
        self.word(u64::from(event.from.0) << 32 | u64::from(event.to.0));
        self.address(event.local);
        self.address(event.peer);
        self.word(what);
        self.word(number);
        self.word(event.content);
        if self.keep > 0 {
            if self.last.len() >= self.keep {
                self.last.pop_front();
            }
            self.last.push_back(event);
        }
        if let Some(all) = &mut self.all {
            all.push(event);
        }
    }

    /// Notes that an event of the queue is due.
    pub(super) fn step(&mut self, at: Duration) {
        self.word(at.as_nanos() as u64);
    }

    fn address(&mut self, address: SocketAddr) {
        let bits = match address.ip() {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        self.word(bits as u64 ^ (bits >> 64) as u64);
        self.word(u64::from(address.port()));
    }

    fn word(&mut self, word: u64) {
        // FNV-1a, a word at a time.
        self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3);
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace
    }

    pub(super) fn last(&self) -> Vec<NetEvent> {
        self.last.iter().copied().collect()
    }

    #[cfg(test)]
    pub(super) fn keep_last(&mut self, keep: usize) {
        self.keep = keep;
        while self.last.len() > keep {
            self.last.pop_front();
        }
    }

    pub(super) fn record(&mut self, on: bool) {
        self.all = on.then(|| self.all.take().unwrap_or_default());
    }

    pub(super) fn recorded(&self) -> Vec<NetEvent> {
        self.all.clone().unwrap_or_default()
    }
}
