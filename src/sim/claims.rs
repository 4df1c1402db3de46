//! The addresses and ports that sockets may have, and get.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::errno::{self, error, fail};
use super::host::HostId;
use super::kernel::Kernel;
use super::ports::{Port, Protocol};
use super::socket_id::SocketId;
use super::table::{Kind, Owner};

impl Kernel {
    /// The address that a socket is bound to, if it may be bound to `address`.
    pub(super) fn claim(
        &mut self,
        host: HostId,
        protocol: Protocol,
        address: SocketAddr,
        shared: bool,
    ) -> io::Result<SocketAddr> {
        self.check_up(host)?;
        if !self.hosts.may_bind(host, address.ip()) {
            return fail(errno::EADDRNOTAVAIL);
        }
        if address.port() == 0 {
            let free = self.ports.ephemeral(host, protocol, &mut self.draws);
            let port = free.ok_or_else(|| error(errno::EADDRINUSE))?;
            return Ok(SocketAddr::new(address.ip(), port));
        }
        let port = (host, protocol, address.port());
        match self.ports.in_the_way(port, address, shared) {
            true => fail(errno::EADDRINUSE),
            false => Ok(address),
        }
    }

    pub(super) fn check_up(&self, host: HostId) -> io::Result<()> {
        match self.hosts.get(host).up {
            true => Ok(()),
            false => fail(errno::ENETDOWN),
        }
    }

    /// Adds a socket to the table, to its host and to the users of its port.
    pub(super) fn add(
        &mut self,
        host: HostId,
        owner: Owner,
        kind: Kind,
        port: Option<Port>,
    ) -> SocketId {
        let id = self.table.add(host, owner, kind);
        self.hosts.get_mut(host).sockets.insert(id);
        if let (Some(port), Some(entry)) = (port, self.table.get_mut(id)) {
            entry.port = Some(port);
            self.ports.take(port);
        }
        id
    }

    /// The local address of a connection to `to`.
    pub(super) fn connecting_from(
        &mut self,
        host: HostId,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<SocketAddr> {
        let (ip, port) = from.map_or((None, 0), |from| (Some(from.ip()), from.port()));
        let bound = ip.filter(|ip| !ip.is_unspecified());
        if bound.is_some_and(|ip| !self.hosts.may_bind(host, ip)) {
            return fail(errno::EADDRNOTAVAIL);
        }
        if ip.is_some_and(|ip| ip.is_ipv4() != to.is_ipv4()) {
            return fail(errno::EAFNOSUPPORT);
        }
        if bound.is_some_and(|ip| ip.is_loopback()) && self.hosts.route(host, to.ip()) != Some(host)
        {
            return fail(errno::EINVAL);
        }
        let routed = bound.or_else(|| self.hosts.source(host, to.ip()));
        let ip = routed.ok_or_else(|| error(errno::ENETUNREACH))?;
        if port == 0 {
            let free = self.ports.ephemeral(host, Protocol::Tcp, &mut self.draws);
            let port = free.ok_or_else(|| error(errno::EADDRNOTAVAIL))?;
            return Ok(SocketAddr::new(ip, port));
        }
        let (local, key) = (SocketAddr::new(ip, port), (host, Protocol::Tcp, port));
        if self.ports.in_the_way(key, local, false) {
            return fail(errno::EADDRINUSE);
        }
        match self.ports.is_used(key) && self.has_connection(host, local, to) {
            true => fail(errno::EADDRNOTAVAIL),
            false => Ok(local),
        }
    }

    fn has_connection(&self, host: HostId, from: SocketAddr, to: SocketAddr) -> bool {
        let sockets = self.hosts.get(host).sockets.iter();
        let mut entries = sockets.filter_map(|&id| self.table.get(id));
        entries.any(|entry| match &entry.kind {
            Kind::Stream(stream) => stream.way.local == from && stream.way.peer == to,
            _ => false,
        })
    }
}

/// A packet to the unspecified address goes to the host itself.
pub(super) fn instead_of_any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        other => other,
    }
}
