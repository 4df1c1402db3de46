//! IPv4 by a socket of IPv6: one that is bound to `[::]` gets both, and sees IPv4 as `::ffff:a.b.c.d`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The address that packets have.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// An address to bind to, for a connection of IPv4 by a socket of IPv6.
pub(super) fn as_ipv4(address: SocketAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()),
        false => plain(address),
    }
}

/// The address as a socket sees it.
pub(super) fn seen_by(is_ipv6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if is_ipv6 => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// Whether sockets bound to these addresses would get packets to the same address.
pub(super) fn overlap(one: IpAddr, other: IpAddr) -> bool {
    one == other || covers(one, other) || covers(other, one)
}

/// Whether `any` is the unspecified address, and that of a family which `address` can be reached by.
pub(super) fn covers(any: IpAddr, address: IpAddr) -> bool {
    any.is_unspecified() && (any.is_ipv6() || address.is_ipv4())
}
