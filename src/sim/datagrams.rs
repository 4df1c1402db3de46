//! A socket of UDP: its names, and the datagrams that it has got.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::selector::Polled;
use super::stream::Wire;

/// The bytes of a receive buffer, as Linux counts them by default.
const BUFFER: usize = 208 * 1024;
/// What a datagram takes besides its bytes.
const OVERHEAD: usize = 256;

#[derive(Debug)]
pub(super) struct Datagrams {
    pub(super) local: SocketAddr,
    pub(super) peer: Option<SocketAddr>,
    received: VecDeque<(Vec<u8>, SocketAddr)>,
    taken: usize,
    pub(super) error: Option<i32>,
    pub(super) wire: Wire,
}

impl Datagrams {
    pub(super) fn new(local: SocketAddr) -> Datagrams {
        Datagrams {
            local,
            peer: None,
            received: VecDeque::new(),
            taken: 0,
            error: None,
            wire: Wire::default(),
        }
    }

    /// Adds a datagram; `false` if it does not fit.
    pub(super) fn put(&mut self, bytes: Vec<u8>, from: SocketAddr) -> bool {
        let size = bytes.len() + OVERHEAD;
        let fits = self.taken + size <= BUFFER;
        if fits {
            self.taken += size;
            self.received.push_back((bytes, from));
        }
        fits
    }

    pub(super) fn first(&self) -> Option<(&[u8], SocketAddr)> {
        let (bytes, from) = self.received.front()?;
        Some((bytes, *from))
    }

    pub(super) fn remove_first(&mut self) {
        if let Some((bytes, _)) = self.received.pop_front() {
            self.taken -= bytes.len() + OVERHEAD;
        }
    }

    /// The bytes that its buffer counts.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// As `datagram_poll` has it.
    pub(super) fn polled(&self) -> Polled {
        Polled {
            input: !self.received.is_empty(),
            output: true,
            error: self.error.is_some(),
            ..Polled::default()
        }
    }
}
