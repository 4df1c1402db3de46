//! The hosts of a network: their names, their addresses, and whether they are up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::socket_id::SocketId;

/// One host of a network.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub(crate) struct HostId(pub(crate) u32);

#[derive(Debug, Default)]
pub(super) struct Hosts {
    all: Vec<Host>,
    by_name: BTreeMap<String, HostId>,
    /// By their numbers.
    names: Vec<String>,
    by_address: BTreeMap<IpAddr, HostId>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) up: bool,
    pub(super) sockets: BTreeSet<SocketId>,
}

impl Hosts {
    pub(super) fn add(&mut self, name: &str, address: IpAddr) -> Result<HostId, AddHostError> {
        if name == "localhost" {
            return Err(AddHostError::Localhost);
        }
        if self.by_name.contains_key(name) {
            return Err(AddHostError::NameTaken);
        }
        let host = HostId(u32::try_from(self.all.len()).expect("a network has fewer hosts"));
        self.claim(host, address)?;
        self.by_name.insert(name.to_owned(), host);
        self.names.push(name.to_owned());
        self.all.push(Host {
            addresses: vec![address],
            up: true,
            sockets: BTreeSet::new(),
        });
        Ok(host)
    }

    pub(super) fn add_address(
        &mut self,
        host: HostId,
        address: IpAddr,
    ) -> Result<(), AddHostError> {
        self.claim(host, address)?;
        self.get_mut(host).addresses.push(address);
        Ok(())
    }

    fn claim(&mut self, host: HostId, address: IpAddr) -> Result<(), AddHostError> {
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            return Err(AddHostError::NotForHosts);
        }
        if self.by_address.contains_key(&address) {
            return Err(AddHostError::AddressTaken);
        }
        self.by_address.insert(address, host);
        Ok(())
    }

    pub(super) fn get(&self, host: HostId) -> &Host {
        &self.all[host.0 as usize]
    }

    pub(super) fn get_mut(&mut self, host: HostId) -> &mut Host {
        &mut self.all[host.0 as usize]
    }

    pub(super) fn named(&self, name: &str) -> Option<HostId> {
        self.by_name.get(name).copied()
    }

    pub(super) fn resolve(&self, name: &str) -> Option<Vec<IpAddr>> {
        if name == "localhost" {
            return Some(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        }
        self.named(name)
            .map(|host| self.get(host).addresses.clone())
    }

    /// The host that `address` leads to from `host`.
    pub(super) fn route(&self, host: HostId, address: IpAddr) -> Option<HostId> {
        if address.is_loopback() {
            return Some(host);
        }
        self.by_address.get(&address).copied()
    }

    /// The names of all hosts, in the order in which they came.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Why `host` may not bind to `address`, and what it may bind to; `None` if it may.
    pub(super) fn why_not_bind(&self, host: HostId, address: IpAddr) -> Option<String> {
        if self.may_bind(host, address) {
            return None;
        }
        let whose = match self.route(host, address) {
            Some(other) => format!(
                "that is the address of host {:?}",
                self.names[other.0 as usize]
            ),
            None => "no host has that address".to_owned(),
        };
        let own: Vec<_> = self
            .get(host)
            .addresses
            .iter()
            .map(IpAddr::to_string)
            .collect();
        let any = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
        let own = own.join(", ");
        Some(format!("{whose}; this host has {own}: bind that or {any}"))
    }

    /// Whether a socket of `host` may be bound to `address`.
    pub(super) fn may_bind(&self, host: HostId, address: IpAddr) -> bool {
        address.is_unspecified() || self.route(host, address) == Some(host)
    }

    /// The address of `host` that its packets to `peer` come from.
    pub(super) fn source(&self, host: HostId, peer: IpAddr) -> Option<IpAddr> {
        if self.route(host, peer) == Some(host) {
            // All of 127.0.0.0/8 is the host itself, whose packets come from the first address of it.
            let is_ipv4_loopback = peer.is_loopback() && peer.is_ipv4();
            return Some(if is_ipv4_loopback {
                Ipv4Addr::LOCALHOST.into()
            } else {
                peer
            });
        }
        let addresses = &self.get(host).addresses;
        addresses
            .iter()
            .copied()
            .find(|own| own.is_ipv4() == peer.is_ipv4())
    }
}

/// Why a host, or an address of one, was not added.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum AddHostError {
    NameTaken,
    /// The name that every host has for itself.
    Localhost,
    AddressTaken,
    /// An unspecified, loopback or multicast address.
    NotForHosts,
}

impl fmt::Display for AddHostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddHostError::NameTaken => "another host has this name",
            AddHostError::Localhost => "each host has this name for itself",
            AddHostError::AddressTaken => "another host has this address",
            AddHostError::NotForHosts => "this address cannot be the address of one host",
        })
    }
}

impl std::error::Error for AddHostError {}
