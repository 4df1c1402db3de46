//! A Unix socket of datagrams: its path, its peer, and the datagrams that it has got.
//!
//! - What is sent is there at once: there is no packet on its way, and no fault.
//! - A receiver holds a number of datagrams, whatever their sizes, as Linux has it; from a socket that it is
//!   connected to in turn, as many as that one's buffer has room for. A sender whose peer is full is told to
//!   wait, and hears of the next datagram that is taken.

use std::collections::VecDeque;
use std::path::PathBuf;

use super::selector::Polled;
use super::socket_id::SocketId;

/// The datagrams that a receiver holds: one more than `net.unix.max_dgram_qlen`.
pub(super) const HELD: usize = 11;
/// What a send buffer holds by default.
const BUFFER: usize = 212_992;
/// The longest datagram: the system keeps a little of the buffer.
pub(super) const LONGEST: usize = BUFFER - 32;
/// What a datagram takes of the buffer besides its bytes.
const OVERHEAD: usize = 768;

/// A socket of Unix datagrams.
#[derive(Debug, Default)]
pub(super) struct Letters {
    pub(super) path: Option<PathBuf>,
    /// The socket that it is connected to; it may be gone.
    pub(super) peer: Option<SocketId>,
    /// The path of that socket, at the connect.
    pub(super) peer_path: Option<PathBuf>,
    pub(super) received: VecDeque<(Vec<u8>, Option<PathBuf>)>,
    pub(super) read_shut: bool,
    pub(super) write_shut: bool,
}

impl Letters {
    /// Whether it holds all that it can from a sender.
    pub(super) fn is_full(&self, sender: SocketId) -> bool {
        match self.peer == Some(sender) {
            false => self.received.len() >= HELD,
            true => {
                let sizes = self
                    .received
                    .iter()
                    .map(|(bytes, _)| bytes.len() + OVERHEAD);
                sizes.sum::<usize>() >= BUFFER
            }
        }
    }

    /// The number of datagrams to read.
    pub(super) fn held(&self) -> usize {
        self.received.len()
    }

    pub(super) fn polled(&self, peer_is_full: bool) -> Polled {
        Polled {
            input: !self.received.is_empty() || self.read_shut,
            output: !peer_is_full,
            peer_closed: self.read_shut,
            hung_up: self.read_shut && self.write_shut,
            ..Polled::default()
        }
    }
}
