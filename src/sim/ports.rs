//! Which ports of which hosts are taken, and by whom.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::draws::Draws;
use super::family::{covers, overlap};
use super::host::HostId;
use super::socket_id::SocketId;

/// The first and the number of the ports that a socket gets if it names none.
const EPHEMERAL: (u16, u16) = (32_768, 60_999 - 32_768 + 1);

#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// A port of a host.
pub(super) type Port = (HostId, Protocol, u16);

#[derive(Debug, Default)]
pub(super) struct Ports {
    /// How many sockets have a port, whatever for.
    used: BTreeMap<Port, usize>,
    /// The sockets that packets to a port are for: listeners, and every socket of UDP.
    bound: BTreeMap<Port, Vec<Bound>>,
}

/// A socket that packets to an address are for.
#[derive(Copy, Clone, Debug)]
pub(super) struct Bound {
    pub(super) id: SocketId,
    pub(super) address: SocketAddr,
    /// Others may be bound to the same address, if they say so too.
    pub(super) shared: bool,
}

impl Ports {
    /// Notes that one more socket has the port.
    pub(super) fn take(&mut self, port: Port) {
        *self.used.entry(port).or_default() += 1;
    }

    /// Notes that a socket does not have the port any more.
    pub(super) fn give_back(&mut self, port: Port, id: SocketId) {
        if let Some(count) = self.used.get_mut(&port) {
            *count -= 1;
            if *count == 0 {
                self.used.remove(&port);
            }
        }
        if let Some(bound) = self.bound.get_mut(&port) {
            bound.retain(|one| one.id != id);
            if bound.is_empty() {
                self.bound.remove(&port);
            }
        }
    }

    pub(super) fn is_used(&self, port: Port) -> bool {
        self.used.contains_key(&port)
    }

    pub(super) fn bind(&mut self, port: Port, bound: Bound) {
        self.bound.entry(port).or_default().push(bound);
    }

    /// Whether a socket at `address` would get packets that another one gets.
    pub(super) fn in_the_way(&self, port: Port, address: SocketAddr, shared: bool) -> bool {
        self.at(port)
            .iter()
            .any(|other| overlap(address.ip(), other.address.ip()) && !(shared && other.shared))
    }

    /// The sockets that packets to `address` are for: those at this very address, or else those at every one.
    pub(super) fn serving(&self, port: Port, address: SocketAddr) -> Vec<Bound> {
        let of = |wanted: &dyn Fn(SocketAddr) -> bool| -> Vec<Bound> {
            let all = self.at(port).iter().copied();
            all.filter(|one| wanted(one.address)).collect()
        };
        let exact = of(&|own| own.ip() == address.ip());
        match exact.is_empty() {
            false => exact,
            true => of(&|own| covers(own.ip(), address.ip())),
        }
    }

    fn at(&self, port: Port) -> &[Bound] {
        self.bound.get(&port).map_or(&[], Vec::as_slice)
    }

    /// A port that no socket of the host has.
    pub(super) fn ephemeral(
        &self,
        host: HostId,
        protocol: Protocol,
        draws: &mut Draws,
    ) -> Option<u16> {
        let (first, count) = EPHEMERAL;
        let start = draws.port(count);
        let ports = (0..count).map(|step| first + (start + step) % count);
        let mut free = ports.filter(|&port| !self.is_used((host, protocol, port)));
        free.next()
    }
}
