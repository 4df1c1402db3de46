//! What happened in a network, an event at a time.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::host::HostId;
use crate::sync::Arc;

/// A packet was sent, or something became of one.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct NetEvent {
    pub(crate) at: Duration,
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    /// The address at the sending host; port 0 of the unspecified address for Unix sockets.
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) what: What,
    /// When the packet that was sent gets there, unless it is lost or held up on the way.
    pub(crate) arrives: Option<Duration>,
    /// A hash of the bytes that it carries; 0 if there are none.
    pub(crate) content: u64,
}

impl NetEvent {
    /// The event in a line, with the names of the hosts.
    pub(crate) fn line(&self, names: &[Arc<str>]) -> String {
        let name = |host: HostId| names.get(host.0 as usize).map_or("?", |name| &**name);
        let (from, to) = (name(self.from), name(self.to));
        let (at, what) = (self.at.as_secs_f64(), self.what);
        let is_unix = self.local.ip().is_unspecified() && self.local.port() == 0;
        match is_unix && self.peer.port() == 0 {
            true => format!("{at:>12.6} s  {from}, unix: {what}"),
            false => {
                let ports = (self.local.port(), self.peer.port());
                format!(
                    "{at:>12.6} s  {from}:{} → {to}:{}  {what}",
                    ports.0, ports.1
                )
            }
        }
    }
}

/// What an event is about: first the packets that are sent, then what can become of one.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum What {
    Syn,
    SynAck,
    /// So many bytes of a stream.
    Data(usize),
    Fin,
    Rst,
    /// The peer may send so many more bytes.
    Ack(u64),
    Datagram(usize),
    /// The port of a datagram is nobody's: the answer to its sender.
    PortClosed,
    /// The packet did not arrive.
    Lost(&'static str),
    /// Nobody listens at the address of a connect.
    Refused,
    /// A listener with a full backlog dropped a connect.
    BacklogFull,
    /// A full receive buffer dropped a datagram.
    Overflow(usize),
    /// A second copy of a datagram was sent.
    Duplicate(usize),
    /// A connect, a connection's data or a FIN is sent again.
    Again,
}

impl What {
    pub(super) fn name(self) -> &'static str {
        match self {
            What::Syn => "SYN",
            What::SynAck => "SYN-ACK",
            What::Data(_) => "data",
            What::Fin => "FIN",
            What::Rst => "RST",
            What::Ack(_) => "ACK",
            What::Datagram(_) => "datagram",
            What::PortClosed => "port closed",
            What::Lost(_) => "lost",
            What::Refused => "refused",
            What::BacklogFull => "backlog full",
            What::Overflow(_) => "overflow",
            What::Duplicate(_) => "duplicate",
            What::Again => "retransmission",
        }
    }

    /// The event as numbers, for the trace.
    pub(super) fn words(self) -> [u64; 2] {
        match self {
            What::Syn => [1, 0],
            What::SynAck => [2, 0],
            What::Data(bytes) => [3, bytes as u64],
            What::Fin => [4, 0],
            What::Rst => [5, 0],
            What::Ack(window) => [6, window],
            What::Datagram(bytes) => [7, bytes as u64],
            What::PortClosed => [8, 0],
            What::Lost(_) => [9, 0],
            What::Refused => [10, 0],
            What::BacklogFull => [11, 0],
            What::Overflow(bytes) => [12, bytes as u64],
            What::Duplicate(bytes) => [13, bytes as u64],
            What::Again => [14, 0],
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            What::Data(number)
            | What::Datagram(number)
            | What::Overflow(number)
            | What::Duplicate(number) => {
                let plural = if *number == 1 { "" } else { "s" };
                write!(f, "{name} of {number} byte{plural}")
            }
            What::Ack(window) => write!(f, "{name}, window {window}"),
            What::Lost(what) => write!(f, "{what} lost"),
            _ => f.write_str(name),
        }
    }
}

impl fmt::Display for NetEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NetEvent {
            at, local, peer, ..
        } = self;
        let (from, to) = (self.from.0, self.to.0);
        write!(f, "{:>14.6} s  host {from} → host {to}  ", at.as_secs_f64())?;
        match local.ip().is_unspecified() && local.port() == 0 && peer.port() == 0 {
            true => write!(f, "unix  {}", self.what),
            false => write!(f, "{local} → {peer}  {}", self.what),
        }
    }
}
