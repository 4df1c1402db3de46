//! What travels between the sockets of a network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::host::HostId;
use super::net_event::{NetEvent, What};
use super::socket_id::SocketId;

#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) way: Way,
    /// The socket that gets the answer.
    pub(super) sender: SocketId,
    /// The socket that it is for; `None` if the address of the peer decides it on arrival.
    pub(super) target: Option<SocketId>,
    pub(super) body: Body,
    /// When it was sent.
    pub(super) sent: Duration,
    /// It does not arrive.
    pub(super) lost: bool,
    /// How often the path had been cut when it was sent: a cut loses what is under way.
    pub(super) cuts: u32,
}

/// Where a packet comes from and where it goes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Way {
    pub(super) from: HostId,
    pub(super) to: HostId,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Between Unix sockets: takes no time.
    pub(super) unix: bool,
}

impl Way {
    pub(super) fn unix(host: HostId) -> Way {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Way {
            from: host,
            to: host,
            local: nowhere,
            peer: nowhere,
            unix: true,
        }
    }

    pub(super) fn back(self) -> Way {
        Way {
            from: self.to,
            to: self.from,
            local: self.peer,
            peer: self.local,
            unix: self.unix,
        }
    }

    /// Whether it stays on its host, where nothing is ever lost.
    pub(super) fn is_inside(&self) -> bool {
        self.from == self.to
    }

    pub(super) fn event(&self, at: Duration, what: What) -> NetEvent {
        NetEvent {
            at,
            from: self.from,
            to: self.to,
            local: self.local,
            peer: self.peer,
            what,
            arrives: None,
            content: 0,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Syn {
        window: u64,
    },
    SynAck {
        window: u64,
    },
    Data {
        seq: u64,
        bytes: Vec<u8>,
    },
    /// Takes one number of the sequence.
    Fin {
        seq: u64,
        /// The sender does not read any more either.
        closed: bool,
    },
    /// Everything before `upto` has arrived, and everything before `limit` may be sent.
    Ack {
        upto: u64,
        limit: u64,
    },
    Rst,
    Datagram(Vec<u8>),
    /// Nobody has the port that a datagram of `target` went to.
    PortClosed,
}

impl Body {
    /// The bytes that a link carries for it.
    pub(super) fn size(&self) -> usize {
        match self {
            Body::Data { bytes, .. } | Body::Datagram(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// A hash of the bytes: runs that repeat carry the same.
    pub(super) fn content(&self) -> u64 {
        let (Body::Data { bytes, .. } | Body::Datagram(bytes)) = self else {
            return 0;
        };
        // FNV-1a, a word at a time.
        bytes.chunks(8).fold(0xCBF2_9CE4_8422_2325, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }

    pub(super) fn what(&self) -> What {
        match self {
            Body::Syn { .. } => What::Syn,
            Body::SynAck { .. } => What::SynAck,
            Body::Data { bytes, .. } => What::Data(bytes.len()),
            Body::Fin { .. } => What::Fin,
            Body::Ack { limit, upto } => What::Ack(limit.saturating_sub(*upto)),
            Body::Rst => What::Rst,
            Body::Datagram(bytes) => What::Datagram(bytes.len()),
            Body::PortClosed => What::PortClosed,
        }
    }
}
