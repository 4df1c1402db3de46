//! The send buffer of a stream, and what the peer has acknowledged of it.
//!
//! - Bytes are numbered from 0; the FIN takes the number after the last one.
//! - After a loss the sender goes back to the first byte that is not acknowledged.
//!
//! ```text
//!      base ── acknowledge ──►      next ── next_segment ──►      end
//! acknowledged | sent, may be lost | written, not sent | fin
//! ```

use std::collections::VecDeque;
use std::time::Duration;

/// The most bytes of one segment.
const SEGMENT: usize = 64 * 1024;

/// How long a sender waits for an acknowledgement before it sends again, at first.
const FIRST_RTO: Duration = Duration::from_millis(200);

/// The direction to the peer.
#[derive(Debug)]
pub(super) struct Output {
    /// From the first byte that is not acknowledged.
    buffer: VecDeque<u8>,
    /// The number of the first byte of the buffer.
    base: u64,
    /// The number of the first byte that is not sent.
    next: u64,
    /// The window: only bytes before this one may be sent.
    limit: u64,
    pub(super) capacity: usize,
    /// Nothing more can be written.
    pub(super) shut: bool,
    /// The number of the FIN.
    fin: Option<u64>,
    /// The FIN is acknowledged.
    pub(super) finished: bool,
    /// A write or a look found no space: an edge is due when there is some.
    pub(super) starved: bool,
    /// An acknowledgement was lost: the window may be open.
    pub(super) stale: bool,
    pub(super) rto: Duration,
    /// Since when everything that was sent is lost.
    pub(super) failing: Option<Duration>,
}

pub(super) enum Segment {
    Data { seq: u64, bytes: Vec<u8> },
    Fin { seq: u64 },
}

impl Output {
    pub(super) fn new(capacity: usize) -> Output {
        Output {
            buffer: VecDeque::new(),
            base: 0,
            next: 0,
            limit: 0,
            capacity: capacity.max(1),
            shut: false,
            fin: None,
            finished: false,
            starved: false,
            stale: false,
            rto: FIRST_RTO,
            failing: None,
        }
    }

    pub(super) fn space(&self) -> usize {
        self.capacity.saturating_sub(self.buffer.len())
    }

    /// The bytes that the peer has not acknowledged.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    fn end(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Ends the stream after what has been written; `false` if it was ended before.
    pub(super) fn finish(&mut self) -> bool {
        self.shut = true;
        let is_first = self.fin.is_none();
        self.fin.get_or_insert(self.base + self.buffer.len() as u64);
        is_first
    }

    /// The number of the FIN, if there is one.
    pub(super) fn fin(&self) -> Option<u64> {
        self.fin
    }

    pub(super) fn next_segment(&mut self) -> Option<Segment> {
        let seq = self.next;
        if seq < self.end() {
            let open = self.end().min(self.limit).saturating_sub(seq) as usize;
            let bytes = copy(&self.buffer, (seq - self.base) as usize, open.min(SEGMENT));
            self.next += bytes.len() as u64;
            return (!bytes.is_empty()).then_some(Segment::Data { seq, bytes });
        }
        if self.fin != Some(seq) || self.finished {
            return None;
        }
        self.next += 1;
        Some(Segment::Fin { seq })
    }

    /// A segment without bytes, which the peer answers with its window.
    pub(super) fn probe(&self) -> Segment {
        Segment::Data {
            seq: self.base,
            bytes: Vec::new(),
        }
    }

    /// Whether something was sent that is not acknowledged.
    pub(super) fn is_in_flight(&self) -> bool {
        self.next > self.base && !self.finished
    }

    /// Whether there is something that the peer has not acknowledged.
    pub(super) fn is_waiting(&self) -> bool {
        !self.buffer.is_empty() || self.fin.is_some() && !self.finished
    }

    /// Goes back to the first byte that is not acknowledged.
    pub(super) fn rewind(&mut self) {
        self.next = self.base;
    }

    /// Takes an acknowledgement; says whether it is one of something new.
    pub(super) fn acknowledge(&mut self, upto: u64, limit: u64) -> bool {
        self.stale = false;
        self.failing = None;
        self.set_limit(limit);
        let end = self.end();
        let bytes = upto.min(end).saturating_sub(self.base);
        self.buffer.drain(..bytes as usize);
        tidy(&mut self.buffer);
        self.base += bytes;
        let is_end = !self.finished && self.fin.is_some_and(|fin| upto > fin);
        self.finished |= is_end;
        self.next = self.next.max(upto.min(end + u64::from(self.finished)));
        if bytes > 0 || is_end {
            self.rto = FIRST_RTO;
        }
        bytes > 0 || is_end
    }

    /// Forgets everything that has not arrived.
    pub(super) fn clear(&mut self) {
        self.buffer = VecDeque::new();
        self.shut = true;
        self.fin = None;
        self.next = self.base;
    }
}

fn copy(buffer: &VecDeque<u8>, from: usize, bytes: usize) -> Vec<u8> {
    let (first, second) = buffer.as_slices();
    let part = |slice: &[u8], start: usize| {
        let end = (from + bytes).saturating_sub(start).min(slice.len());
        let begin = from.saturating_sub(start).min(end);
        begin..end
    };
    let mut copied = Vec::with_capacity(bytes);
    copied.extend_from_slice(&first[part(first, 0)]);
    copied.extend_from_slice(&second[part(second, first.len())]);
    copied
}

/// Frees the memory of an empty buffer that has grown.
pub(super) fn tidy(buffer: &mut VecDeque<u8>) {
    if buffer.is_empty() && buffer.capacity() > 4096 {
        *buffer = VecDeque::new();
    }
}
