//! The receive buffer of a stream, and the window that the peer was told.
//!
//! - Segments are taken in order only: the peer sends everything again that comes after a lost one.

use std::collections::VecDeque;

use super::output::tidy;

/// The direction from the peer.
#[derive(Debug)]
pub(super) struct Input {
    buffer: VecDeque<u8>,
    /// The number that comes next.
    next: u64,
    /// How many bytes were read.
    read: u64,
    /// The window that the peer was told: it may send the bytes before this one.
    limit: u64,
    capacity: usize,
    /// The FIN has arrived.
    pub(super) fin: bool,
    /// Reads find the end once the buffer is empty.
    pub(super) shut: bool,
}

impl Input {
    pub(super) fn new(capacity: usize) -> Input {
        let capacity = capacity.max(1);
        Input {
            buffer: VecDeque::new(),
            next: 0,
            read: 0,
            limit: capacity as u64,
            capacity,
            fin: false,
            shut: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether a segment is the next one, with new bytes.
    pub(super) fn is_new(&self, seq: u64, bytes: &[u8]) -> bool {
        seq <= self.next && seq + bytes.len() as u64 > self.next && !self.fin
    }

    /// Takes a segment if it is the next one.
    pub(super) fn take(&mut self, seq: u64, bytes: &[u8]) {
        if self.is_new(seq, bytes) {
            let known = (self.next - seq) as usize;
            self.buffer.extend(&bytes[known..]);
            self.next = seq + bytes.len() as u64;
        }
    }

    /// Takes the FIN if it comes next.
    pub(super) fn take_fin(&mut self, seq: u64) -> bool {
        let is_next = seq == self.next && !self.fin;
        if is_next {
            self.fin = true;
            self.next += 1;
        }
        is_next
    }

    /// Copies the first bytes into `into`, from `skip` on.
    pub(super) fn copy_to(&self, skip: usize, into: &mut [u8]) {
        let (first, second) = self.buffer.as_slices();
        for (slice, start) in [(first, 0), (second, first.len())] {
            let from = skip.max(start) - start;
            let place = start + from;
            if from >= slice.len() || place - skip >= into.len() {
                continue;
            }
            let target = &mut into[place - skip..];
            let bytes = target.len().min(slice.len() - from);
            target[..bytes].copy_from_slice(&slice[from..from + bytes]);
        }
    }

    /// Removes bytes that were read.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.buffer.drain(..bytes);
        tidy(&mut self.buffer);
        self.read += bytes as u64;
    }

    /// Opens the window again if half of the buffer was read since it was told; says whether it did.
    pub(super) fn open_window(&mut self) -> bool {
        let limit = self.read + self.capacity as u64;
        let is_worth_it = !self.fin && limit - self.limit >= (self.capacity as u64).div_ceil(2);
        if is_worth_it {
            self.limit = limit;
        }
        is_worth_it
    }

    /// What an acknowledgement says: what comes next, and the window.
    pub(super) fn acknowledgement(&self) -> (u64, u64) {
        (self.next, self.limit)
    }
}
