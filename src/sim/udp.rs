//! Datagrams: lost, duplicated and overtaken as their path has it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::claims::instead_of_any;
use super::datagrams::Datagrams;
use super::errno::{self, error, fail};
use super::family::{plain, seen_by};
use super::host::HostId;
use super::kernel::Kernel;
use super::net_event::What;
use super::packet::{Body, Packet, Way};
use super::ports::{Bound, Protocol};
use super::socket_id::SocketId;
use super::stream::Wire;
use super::table::{Kind, Owner};

/// The most bytes of a datagram.
const LARGEST: usize = 65_507;

impl Kernel {
    pub(super) fn udp_bind(&mut self, host: HostId, address: SocketAddr) -> io::Result<SocketId> {
        let address = self.claim(host, Protocol::Udp, address, false)?;
        let port = (host, Protocol::Udp, address.port());
        let kind = Kind::Datagrams(Box::new(Datagrams::new(address)));
        let id = self.add(host, Owner::Program, kind, Some(port));
        let shared = false;
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

    fn owned_datagrams(&mut self, id: SocketId) -> io::Result<&mut Datagrams> {
        let entry = self.table.owned(id).ok_or_else(|| error(errno::EBADF))?;
        match &mut entry.kind {
            Kind::Datagrams(datagrams) => Ok(datagrams),
            _ => fail(errno::EOPNOTSUPP),
        }
    }

    pub(super) fn udp_connect(&mut self, id: SocketId, to: SocketAddr) -> io::Result<()> {
        let local = self.owned_datagrams(id)?.local;
        let (_, peer, source) = self.leading_to(id, local, to)?;
        let datagrams = self.owned_datagrams(id)?;
        let is_ipv6 = local.is_ipv6();
        datagrams.peer = Some(seen_by(is_ipv6, peer));
        datagrams.local = seen_by(is_ipv6, source);
        Ok(())
    }

    /// What `id` sends to `to`: to which host, if any, to which address, from which one.
    fn leading_to(
        &mut self,
        id: SocketId,
        local: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<(Option<HostId>, SocketAddr, SocketAddr)> {
        let host = self.host_of(id)?;
        if to.is_ipv6() && local.is_ipv4() {
            return fail(errno::EAFNOSUPPORT);
        }
        let to = plain(SocketAddr::new(instead_of_any(to.ip()), to.port()));
        let is_any = local.ip().is_unspecified();
        let local = plain(local);
        if !is_any && local.is_ipv4() != to.is_ipv4() {
            return fail(errno::ENETUNREACH);
        }
        let route = self.hosts.route(host, to.ip());
        if local.ip().is_loopback() && route != Some(host) {
            return fail(errno::EINVAL);
        }
        let source = match is_any {
            true => self.hosts.source(host, to.ip()),
            false => Some(local.ip()),
        };
        let source = source.ok_or_else(|| error(errno::ENETUNREACH))?;
        Ok((route, to, SocketAddr::new(source, local.port())))
    }

    pub(super) fn host_of(&self, id: SocketId) -> io::Result<HostId> {
        let entry = self
            .table
            .get(id)
            .filter(|entry| entry.owner == Owner::Program);
        entry
            .map(|entry| entry.host)
            .ok_or_else(|| error(errno::EBADF))
    }

    pub(super) fn udp_send(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> io::Result<usize> {
        if to.is_some_and(|to| to.port() == 0) {
            return fail(errno::EINVAL);
        }
        let datagrams = self.owned_datagrams(id)?;
        let to = to
            .or(datagrams.peer)
            .ok_or_else(|| error(errno::EDESTADDRREQ))?;
        let local = datagrams.local;
        if bytes.len() > LARGEST {
            return fail(errno::EMSGSIZE);
        }
        if let Some(code) = datagrams.error.take() {
            return fail(code);
        }
        let (route, peer, local) = self.leading_to(id, local, to)?;
        let from = self.host_of(id)?;
        let way = Way {
            from,
            to: route.unwrap_or(from),
            local,
            peer,
            unix: false,
        };
        match route {
            Some(_) => self.send_datagram(id, way, bytes.to_vec()),
            None => {
                self.record.reached.datagrams_lost += 1;
                let lost = What::Lost(What::Datagram(0).name());
                self.record.note(way.event(self.now, lost));
            }
        }
        Ok(bytes.len())
    }

    fn send_datagram(&mut self, id: SocketId, way: Way, bytes: Vec<u8>) {
        let packet = Packet {
            way,
            sender: id,
            target: None,
            body: Body::Datagram(bytes),
            sent: Duration::ZERO,
            lost: false,
            cuts: 0,
        };
        let mut earliest = Duration::ZERO;
        if !way.is_inside() {
            let link = self.links.get(way.from, way.to);
            let (duplicate, usual) = (link.duplicate, link.latency.saturating_add(link.jitter));
            if self.draws.fault(link.reorder) {
                self.record.reached.datagrams_reordered += 1;
                let late = self.draws.jitter(usual.saturating_mul(4));
                let late = late.saturating_add(Duration::from_nanos(1));
                earliest = self.now.saturating_add(usual).saturating_add(late);
            }
            if self.draws.fault(duplicate) {
                self.record.reached.datagrams_duplicated += 1;
                let what = What::Duplicate(packet.body.size());
                self.record.note(way.event(self.now, what));
                self.send_one(packet.clone(), Duration::ZERO);
            }
        }
        self.send_one(packet, earliest);
    }

    /// Sends a datagram, which arrives at `earliest` or later; nothing keeps it behind the ones before it.
    fn send_one(&mut self, packet: Packet, earliest: Duration) {
        let id = packet.sender;
        let sender = self.table.datagrams(id);
        let busy = sender.map_or(Duration::ZERO, |sender| sender.wire.busy);
        let wire = Wire {
            last: earliest,
            busy,
        };
        let wire = self.send(packet, wire);
        if let Some(sender) = self.table.datagrams(id) {
            sender.wire.busy = wire.busy;
        }
    }

    /// A datagram has arrived.
    pub(super) fn datagram(&mut self, packet: Packet) {
        let way = packet.way;
        let port = (way.to, Protocol::Udp, way.peer.port());
        let serving = self.ports.serving(port, way.peer).into_iter();
        let mut takers = serving.filter(|bound| {
            let taker = self.table.datagrams(bound.id);
            taker.is_some_and(|taker| taker.peer.is_none_or(|peer| plain(peer) == way.local))
        });
        let Some(taker) = takers.next().map(|bound| bound.id) else {
            return self.answer_port_closed(&packet);
        };
        let Body::Datagram(bytes) = packet.body else {
            return;
        };
        let size = bytes.len();
        let fits = self
            .table
            .datagrams(taker)
            .is_some_and(|taker| taker.put(bytes, seen_by(taker.local.is_ipv6(), way.local)));
        if fits {
            return self.edge(taker);
        }
        self.record.reached.datagrams_overflowed += 1;
        self.record.note(way.event(self.now, What::Overflow(size)));
    }

    fn answer_port_closed(&mut self, packet: &Packet) {
        let answer = Packet {
            way: packet.way.back(),
            sender: packet.sender,
            target: Some(packet.sender),
            body: Body::PortClosed,
            sent: Duration::ZERO,
            lost: false,
            cuts: 0,
        };
        self.send(answer, Wire::default());
    }

    /// A datagram of a connected socket found nobody.
    pub(super) fn port_closed(&mut self, packet: Packet) {
        let Some(id) = packet.target else {
            return;
        };
        let Some(sender) = self.table.datagrams(id) else {
            return;
        };
        if sender.peer.map(plain) == Some(packet.way.local) {
            sender.error = Some(errno::ECONNREFUSED);
            self.edge(id);
        }
    }

    /// Takes a datagram, or looks at it only: what does not fit into `into` is lost.
    pub(super) fn udp_receive(
        &mut self,
        id: SocketId,
        into: &mut [u8],
        keep: bool,
    ) -> io::Result<(usize, SocketAddr)> {
        let datagrams = self.owned_datagrams(id)?;
        if let Some(code) = datagrams.error.take() {
            return fail(code);
        }
        let (bytes, from) = datagrams.first().ok_or_else(|| error(errno::EAGAIN))?;
        let size = bytes.len().min(into.len());
        into[..size].copy_from_slice(&bytes[..size]);
        if !keep {
            datagrams.remove_first();
        }
        Ok((size, from))
    }
}

#[cfg(test)]
mod tests;
