//! How connections of TCP begin: listeners, SYN, SYN-ACK, ACK, and the queue of a listener.
//!
//! - A connect has a timer, which sends the SYN again; the listener's side starts one only when its
//!   SYN-ACK or the answer to it is lost.
//! - A connection is in the queue of its listener once the peer's first segment after the SYN has arrived.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::claims::instead_of_any;
use super::errno::{self, error, fail};
use super::family::{as_ipv4, plain, seen_by};
use super::host::HostId;
use super::kernel::Kernel;
use super::listener::{Listener, ListenerName};
use super::net_event::What;
use super::packet::{Body, Packet, Way};
use super::ports::{Bound, Protocol};
use super::socket_id::SocketId;
use super::stream::{Names, State};
use super::table::{Kind, Owner};
use crate::random::scramble;

/// How often a SYN is sent again, after 1, 2, 4, … seconds.
const SYN_RETRIES: u32 = 6;
/// The same for a SYN-ACK.
const SYN_ACK_RETRIES: u32 = 5;
/// When a connect to an address that no host has is given up.
const NO_ROUTE: Duration = Duration::from_secs(3);

impl Kernel {
    /// Binds a socket, which does not listen yet.
    pub(super) fn tcp_bind(
        &mut self,
        host: HostId,
        address: SocketAddr,
        shared: bool,
    ) -> io::Result<SocketId> {
        let address = self.claim(host, Protocol::Tcp, address, shared)?;
        let listener = Listener::new(ListenerName::Tcp(address));
        let port = (host, Protocol::Tcp, address.port());
        let kind = Kind::Listener(Box::new(listener));
        let id = self.add(host, Owner::Program, kind, Some(port));
        self.ports.bind(
            port,
            Bound {
                id,
                address,
                shared,
            },
        );
        Ok(id)
    }

    pub(super) fn tcp_connect(
        &mut self,
        host: HostId,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<SocketId> {
        self.check_up(host)?;
        let to = SocketAddr::new(instead_of_any(to.ip()), to.port());
        let (named, to) = (to, plain(to));
        let is_ipv6 = named.is_ipv6();
        let from = match named == to {
            true => from,
            // IPv4 by a socket of IPv6.
            false => from.map(as_ipv4),
        };
        let local = self.connecting_from(host, from, to)?;
        let route = self.hosts.route(host, to.ip());
        let way = Way {
            from: host,
            to: route.unwrap_or(host),
            local,
            peer: to,
            unix: false,
        };
        let state = match route {
            Some(_) => State::Connecting(0),
            None => State::NoRoute,
        };
        let names = Names::Tcp {
            local: seen_by(is_ipv6, local),
            peer: named,
        };
        let stream = self.new_stream(state, names, way, None);
        let window = stream.input.acknowledgement().1;
        let port = (host, Protocol::Tcp, local.port());
        let kind = Kind::Stream(Box::new(stream));
        let id = self.add(host, Owner::Program, kind, Some(port));
        if route.is_some() {
            self.emit(id, Body::Syn { window });
        }
        let wait = route.map_or(NO_ROUTE, |_| seconds(0));
        self.arm(id, wait);
        Ok(id)
    }

    pub(super) fn fire(&mut self, id: SocketId) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        stream.timer = None;
        let window = stream.input.acknowledgement().1;
        match stream.state {
            State::NoRoute => self.break_off(id, errno::EHOSTUNREACH),
            State::Connecting(SYN_RETRIES) => {
                self.record.reached.connect_timeouts += 1;
                self.break_off(id, errno::ETIMEDOUT);
            }
            State::Connecting(again) => {
                stream.state = State::Connecting(again + 1);
                self.again(id);
                self.emit(id, Body::Syn { window });
                self.arm(id, seconds(again + 1));
            }
            State::HalfOpen { again, .. } if again >= SYN_ACK_RETRIES => self.remove(id),
            State::HalfOpen { listener, again } => {
                let again = again + 1;
                stream.state = State::HalfOpen { listener, again };
                self.again(id);
                self.emit(id, Body::SynAck { window });
            }
            State::Open => self.retransmit(id),
            State::Dead => {}
        }
    }

    /// A SYN has arrived.
    pub(super) fn syn(&mut self, packet: Packet) {
        let Body::Syn { window } = packet.body else {
            return;
        };
        let way = packet.way.back();
        if let Some(&accepted) = self.accepting.get(&packet.sender) {
            return self.syn_again(accepted);
        }
        let port = (way.from, Protocol::Tcp, way.local.port());
        let mut serving = self.ports.serving(port, way.local);
        let mut listens = |id| self.table.listener(id).is_some_and(|one| one.listens());
        serving.retain(|one| listens(one.id));
        if serving.is_empty() {
            self.record.reached.refused += 1;
            self.record.note(way.event(self.now, What::Refused));
            return self.refuse(&packet);
        }
        let Bound {
            id: listener,
            address,
            ..
        } = serving[spread(way.peer, serving.len())];
        let full = self
            .table
            .listener(listener)
            .is_none_or(|listener| listener.is_full());
        if full {
            self.record.reached.backlog_full += 1;
            return self.record.note(way.event(self.now, What::BacklogFull));
        }
        let state = State::HalfOpen { listener, again: 0 };
        let names = Names::Tcp {
            local: seen_by(address.is_ipv6(), way.local),
            peer: seen_by(address.is_ipv6(), way.peer),
        };
        let mut stream = self.new_stream(state, names, way, Some(packet.sender));
        stream.output.set_limit(window);
        let window = stream.input.acknowledgement().1;
        let kind = Kind::Stream(Box::new(stream));
        let id = self.add(way.from, Owner::Listener, kind, Some(port));
        self.accepting.insert(packet.sender, id);
        if let Some(listener) = self.table.listener(listener) {
            listener.half_open.insert(id);
        }
        self.emit(id, Body::SynAck { window });
    }

    /// A SYN has arrived a second time.
    fn syn_again(&mut self, id: SocketId) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let window = stream.input.acknowledgement().1;
        if matches!(stream.state, State::HalfOpen { .. }) {
            self.emit(id, Body::SynAck { window });
        }
    }

    /// A SYN-ACK has arrived.
    pub(super) fn syn_ack(&mut self, id: SocketId, sender: SocketId, window: u64) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let connects = matches!(stream.state, State::Connecting(_));
        if connects {
            stream.state = State::Open;
            stream.peer = Some(sender);
            stream.output.set_limit(window);
            self.disarm(id);
        }
        self.acknowledge(id);
        if connects {
            self.edge(id);
        }
    }

    /// The peer of a half-open connection has answered: the listener has it now.
    pub(super) fn establish(&mut self, id: SocketId) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let State::HalfOpen { listener, .. } = stream.state else {
            return;
        };
        stream.state = State::Open;
        self.disarm(id);
        if let Some(waiting) = self.table.listener(listener) {
            waiting.half_open.remove(&id);
            waiting.ready.push_back(id);
            self.edge(listener);
        }
    }

    pub(super) fn accept(&mut self, id: SocketId) -> io::Result<(SocketId, Names)> {
        let entry = self.table.owned(id).ok_or_else(|| error(errno::EBADF))?;
        let Kind::Listener(listener) = &mut entry.kind else {
            return fail(errno::EINVAL);
        };
        let first = listener.ready.pop_front();
        let accepted = first.ok_or_else(|| error(errno::EAGAIN))?;
        let entry = self
            .table
            .get_mut(accepted)
            .ok_or_else(|| error(errno::EAGAIN))?;
        entry.owner = Owner::Program;
        match &entry.kind {
            Kind::Stream(stream) => Ok((accepted, stream.names.clone())),
            _ => fail(errno::EINVAL),
        }
    }

    /// Whether a connect is over, and how.
    #[cfg(test)]
    pub(super) fn connected(&mut self, id: SocketId) -> io::Result<()> {
        let stream = self.owned_stream(id)?;
        let code = match stream.state {
            State::Open => stream.error.take(),
            State::Dead => Some(stream.error.take().unwrap_or(errno::ENOTCONN)),
            _ => Some(errno::EAGAIN),
        };
        code.map_or(Ok(()), fail)
    }
}

/// The wait before a SYN or a SYN-ACK is sent for the `again`th time.
pub(super) fn seconds(again: u32) -> Duration {
    Duration::from_secs(1 << again)
}

/// Which of several listeners of a port gets the connections from `peer`.
fn spread(peer: SocketAddr, listeners: usize) -> usize {
    let ip = match peer.ip() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ ip.to_bits() as u64,
    };
    (scramble(scramble(ip).wrapping_add(u64::from(peer.port()))) % listeners as u64) as usize
}

#[cfg(test)]
mod tests;
