//! Where an HTTP server listens: an address, a listener, or a [`Server`] with settings.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::net::{Server, TcpListener};

/// Where an HTTP server listens: an address, as for [`Server::new`], a listener of this crate or of the
/// standard library, or a [`Server`] with settings of its own.
///
/// The trait is sealed.
///
/// # Examples
///
/// ```
/// use loopgroup::{compat::hyper::Listen, net::Server};
///
/// fn listens(_: impl Listen) {}
///
/// listens("localhost:8080");
/// listens(([0, 0, 0, 0], 8080));
/// listens(std::net::TcpListener::bind("127.0.0.1:0")?);
/// listens(Server::new("127.0.0.1:0")?.reuse_port(true).backlog(4096));
/// # std::io::Result::Ok(())
/// ```
pub trait Listen: sealed::Sealed {}

impl<T: sealed::Sealed> Listen for T {}

pub(super) mod sealed {
    pub trait Sealed {
        #[doc(hidden)]
        fn into_server(self) -> std::io::Result<crate::net::Server>;
    }
}

impl sealed::Sealed for Server {
    fn into_server(self) -> io::Result<Server> {
        Ok(self)
    }
}

impl sealed::Sealed for TcpListener {
    fn into_server(self) -> io::Result<Server> {
        Server::from_listener(self)
    }
}

impl sealed::Sealed for std::net::TcpListener {
    fn into_server(self) -> io::Result<Server> {
        Server::from_listener(self)
    }
}

/// For types that convert themselves; a blanket implementation would exclude listeners of the standard
/// library.
macro_rules! by_address {
    ($($address:ty),* $(,)?) => {$(
        impl sealed::Sealed for $address {
            fn into_server(self) -> io::Result<Server> {
                Server::new(self)
            }
        }
    )*};
}

by_address!(
    &str,
    String,
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (&str, u16),
    (String, u16),
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16),
    &[SocketAddr],
);

impl sealed::Sealed for ([u8; 4], u16) {
    fn into_server(self) -> io::Result<Server> {
        Server::new(SocketAddr::from(self))
    }
}
