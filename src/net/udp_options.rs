//! The options of a UDP socket: broadcast, multicast, time to live and type of service.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use socket2::SockRef;

use crate::net::option_values::one_byte;
use crate::net::udp::UdpSocket;

/// Options. All of them return any error from the operating system.
impl UdpSocket {
    /// Sets `SO_BROADCAST`: without it, sending to a broadcast address is an error.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; the same holds for all options below.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    ///
    /// let socket = UdpSocket::try_from(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    /// socket.set_broadcast(true)?;
    /// socket.set_ttl(16)?;
    /// assert!(socket.broadcast()? && socket.ttl()? == 16);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.as_std().set_broadcast(broadcast)
    }

    /// Returns `SO_BROADCAST`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.as_std().broadcast()
    }

    /// Sets the time to live of outgoing unicast datagrams (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `InvalidInput` for more than 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.as_std().set_ttl(one_byte("time to live", ttl)?)
    }

    /// Returns the time to live of outgoing unicast datagrams.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.as_std().ttl()
    }

    /// Joins an IPv4 multicast group on the interface with the given address; with
    /// [`Ipv4Addr::UNSPECIFIED`], the system chooses one.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, for example if `group` is not a multicast address.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    /// use std::net::Ipv4Addr;
    ///
    /// loopgroup::run(async {
    ///     let socket = UdpSocket::bind("0.0.0.0:0").await?;
    ///     let (group, interface) = (Ipv4Addr::new(239, 1, 2, 3), Ipv4Addr::LOCALHOST);
    ///     socket.join_multicast_v4(group, interface)?;
    ///     socket.set_multicast_loop_v4(true)?; // our own datagrams come back
    ///     socket.leave_multicast_v4(group, interface)
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.as_std().join_multicast_v4(&group, &interface)
    }

    /// Leaves an IPv4 multicast group; the arguments are those of
    /// [`join_multicast_v4`](UdpSocket::join_multicast_v4).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, for example if the socket is not a member.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.as_std().leave_multicast_v4(&group, &interface)
    }

    /// Joins an IPv6 multicast group on the interface with the given index; with 0, the system chooses
    /// one.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, for example if `group` is not a multicast address.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.as_std().join_multicast_v6(group, interface)
    }

    /// Leaves an IPv6 multicast group; the arguments are those of
    /// [`join_multicast_v6`](UdpSocket::join_multicast_v6).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, for example if the socket is not a member.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.as_std().leave_multicast_v6(group, interface)
    }

    /// Sets the interface that IPv4 multicast datagrams are sent from, by its address
    /// (`IP_MULTICAST_IF`).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn set_multicast_if_v4(&self, interface: Ipv4Addr) -> io::Result<()> {
        self.options().set_multicast_if_v4(&interface)
    }

    /// Returns the address of the interface that IPv4 multicast datagrams are sent from.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn multicast_if_v4(&self) -> io::Result<Ipv4Addr> {
        self.options().multicast_if_v4()
    }

    /// Sets whether this machine receives the IPv4 multicast datagrams that the socket sends
    /// (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn set_multicast_loop_v4(&self, enabled: bool) -> io::Result<()> {
        self.as_std().set_multicast_loop_v4(enabled)
    }

    /// Returns `IP_MULTICAST_LOOP`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.as_std().multicast_loop_v4()
    }

    /// Sets whether this machine receives the IPv6 multicast datagrams that the socket sends
    /// (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn set_multicast_loop_v6(&self, enabled: bool) -> io::Result<()> {
        self.as_std().set_multicast_loop_v6(enabled)
    }

    /// Returns `IPV6_MULTICAST_LOOP`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.as_std().multicast_loop_v6()
    }

    /// Sets how many routers an IPv4 multicast datagram may pass, plus one (`IP_MULTICAST_TTL`): 1, the
    /// default, keeps it in the local network.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `InvalidInput` for more than 255.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.as_std()
            .set_multicast_ttl_v4(one_byte("time to live", ttl)?)
    }

    /// Returns `IP_MULTICAST_TTL`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.as_std().multicast_ttl_v4()
    }

    /// Sets the type of service of outgoing IPv4 datagrams (`IP_TOS`), which DSCP and ECN share.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `InvalidInput` for more than 255.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.options().set_tos_v4(one_byte("type of service", tos)?)
    }

    /// Returns the type of service of outgoing IPv4 datagrams.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.options().tos_v4()
    }

    /// Sets the traffic class of outgoing IPv6 datagrams (`IPV6_TCLASS`).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `InvalidInput` for more than 255.
    pub fn set_tclass_v6(&self, class: u32) -> io::Result<()> {
        self.options()
            .set_tclass_v6(one_byte("traffic class", class)?)
    }

    /// Returns the traffic class of outgoing IPv6 datagrams.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.options().tclass_v6()
    }

    fn options(&self) -> SockRef<'_> {
        SockRef::from(self.as_std())
    }
}
