//! One end of a connection: its two buffers, and how far it is.
//!
//! ```text
//! Connecting ── SYN-ACK ──► Open ── reset, fail ──► Dead
//! HalfOpen ── ACK, data ──┘
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::input::Input;
use super::output::Output;
use super::packet::Way;
use super::queue::Key;
use super::selector::Polled;
use super::socket_id::SocketId;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) state: State,
    pub(super) names: Names,
    pub(super) way: Way,
    pub(super) peer: Option<SocketId>,
    pub(super) output: Output,
    pub(super) input: Input,
    pub(super) wire: Wire,
    /// Sends something again.
    pub(super) timer: Option<Key>,
    /// The pending error: taken by the first call that finds it.
    pub(super) error: Option<i32>,
    /// Closing it resets the connection.
    pub(super) linger_zero: bool,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum State {
    /// So many SYNs were sent again.
    Connecting(u32),
    /// There is no host with the address of the peer.
    NoRoute,
    /// The listener's side of a connect, and how many SYN-ACKs were sent again.
    HalfOpen {
        listener: SocketId,
        again: u32,
    },
    Open,
    /// Reset, or not connected in the end.
    Dead,
}

/// The names of the two ends.
#[derive(Clone, Debug)]
pub(super) enum Names {
    Tcp {
        local: SocketAddr,
        peer: SocketAddr,
    },
    Unix {
        local: Option<PathBuf>,
        peer: Option<PathBuf>,
    },
}

/// What keeps the packets of one sender in order.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Wire {
    /// When the last packet arrives.
    pub(super) last: Duration,
    /// Until then the bandwidth is used up.
    pub(super) busy: Duration,
}

impl Stream {
    pub(super) fn is_unix(&self) -> bool {
        self.way.unix
    }

    /// Whether it is or was connected, and not reset.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether both directions have ended: a system keeps no connection for it any more.
    pub(super) fn is_over(&self) -> bool {
        !self.way.unix && self.input.fin && self.output.finished
    }

    pub(super) fn is_connecting(&self) -> bool {
        !matches!(self.state, State::Open | State::Dead)
    }

    /// As `tcp_poll` and `unix_poll` have it.
    pub(super) fn polled(&mut self) -> Polled {
        if self.is_connecting() {
            return Polled::default();
        }
        let dead = self.state == State::Dead;
        let read_shut = dead || self.input.fin || self.input.shut;
        let write_shut = dead || self.output.shut;
        self.output.starved |= !write_shut && self.output.space() == 0;
        Polled {
            input: read_shut || self.input.len() > 0,
            output: write_shut || self.output.space() > 0,
            peer_closed: read_shut,
            hung_up: read_shut && write_shut,
            error: self.error.is_some(),
        }
    }
}
