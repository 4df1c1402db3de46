//! Addresses to bind or connect to: socket addresses directly, host names resolved off the loop.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::blocking;
use crate::error::JoinError;
use crate::net::behind;

/// An address to bind or connect to: a socket address, a pair of host and port, or `"host:port"`.
///
/// The system resolves host names on a thread of [`blocking::unblock`](crate::blocking::unblock), so that
/// no loop blocks on them. The trait is sealed.
///
/// # Examples
///
/// ```
/// use loopgroup::net::UdpSocket;
///
/// loopgroup::run(async {
///     UdpSocket::bind("127.0.0.1:0").await?;
///     UdpSocket::bind(("127.0.0.1", 0)).await?;
///     UdpSocket::bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).await?;
///     UdpSocket::bind("localhost:0").await?; // looked up on another thread
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub trait ToSocketAddrs: sealed::Sealed {}

impl<T: sealed::Sealed + ?Sized> ToSocketAddrs for T {}

/// Addresses, or a host name to resolve.
pub(crate) enum Target {
    Known(Vec<SocketAddr>),
    Name(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Known(addresses) => {
                for (place, address) in addresses.iter().enumerate() {
                    let separator = if place == 0 { "" } else { " or " };
                    write!(f, "{separator}{address}")?;
                }
                Ok(())
            }
            Target::Name(name) => write!(f, "{name:?}"),
        }
    }
}

pub(crate) mod sealed {
    pub trait Sealed {
        #[doc(hidden)]
        fn target(&self) -> super::TargetBox;
    }
}

/// Keeps [`Target`] out of the public trait's signature.
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub struct TargetBox(pub(crate) Target);

/// Looks up the addresses of a host; the system does so on a thread of
/// [`blocking::unblock`](crate::blocking::unblock), and no loop waits.
///
/// There is at least one address, in the order that the system's resolver prefers.
///
/// # Errors
///
/// Returns an error that names the host if it has no address, or if `host` is none; a port is part of it.
///
/// # Cancel safety
///
/// Cancel safe: the thread completes the look-up, and its result is dropped.
///
/// # Examples
///
/// ```
/// loopgroup::run(async {
///     let mut found = loopgroup::net::lookup_host("localhost:80").await?;
///     assert!(found.all(|address| address.ip().is_loopback() && address.port() == 80));
///     let error = loopgroup::net::lookup_host("localhost").await.unwrap_err();
///     assert!(error.to_string().contains("expected \"host:port\""));
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub async fn lookup_host<A: ToSocketAddrs>(host: A) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    Ok(resolve(&host).await?.into_iter())
}

/// Resolves the host name, if there is one; returns at least one address, or an error.
pub(super) async fn resolve<A: ToSocketAddrs + ?Sized>(address: &A) -> io::Result<Vec<SocketAddr>> {
    match address.target().0 {
        Target::Known(addresses) if addresses.is_empty() => Err(no_address("an empty list")),
        Target::Known(addresses) => Ok(addresses),
        Target::Name(name) => look_up(&name).await,
    }
}

/// Looks up a host name off the loop; returns at least one address, or an error.
pub(super) async fn look_up(name: &str) -> io::Result<Vec<SocketAddr>> {
    if let Some(host) = behind::host() {
        return host.net.look_up(name);
    }
    let host = name.to_owned();
    let look_up = move || {
        std::net::ToSocketAddrs::to_socket_addrs(&*host)
            .map(|addresses| addresses.collect::<Vec<_>>())
    };
    let found = blocking::unblock(look_up).await.map_err(lookup_error)?;
    let found = found.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::InvalidInput => " (expected \"host:port\")",
            _ => "",
        };
        let text = format!("cannot look up {name:?}: {error}{hint}");
        io::Error::new(error.kind(), text)
    })?;
    if found.is_empty() {
        return Err(no_address(&format!("{name:?}")));
    }
    Ok(found)
}

#[cold]
pub(super) fn no_address(name: &str) -> io::Error {
    let text = format!("{name} gives no address");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Converts the error of a look-up that did not run. The kind is never `WouldBlock`, which a failed
/// thread start may have: the caller would take it for a socket to wait for, and nothing would wake it.
#[cold]
fn lookup_error(error: JoinError) -> io::Error {
    let error = io::Error::from(error);
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other(error),
        _ => error,
    }
}

/// Tries the addresses in order until an attempt succeeds; returns the last error if none does.
pub(super) async fn try_each<A, R, F>(
    address: &A,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> io::Result<R>
where
    A: ToSocketAddrs + ?Sized,
    F: Future<Output = io::Result<R>>,
{
    let mut last = None;
    for address in resolve(address).await? {
        match attempt(address).await {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("there is at least one address"))
}

macro_rules! known {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {
            fn target(&self) -> TargetBox {
                TargetBox(Target::Known(vec![SocketAddr::from(*self)]))
            }
        }
    )*};
}

known!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16)
);

impl sealed::Sealed for [SocketAddr] {
    fn target(&self) -> TargetBox {
        TargetBox(Target::Known(self.to_vec()))
    }
}

impl sealed::Sealed for str {
    fn target(&self) -> TargetBox {
        TargetBox(match self.parse() {
            Ok(address) => Target::Known(vec![address]),
            Err(_) => Target::Name(self.to_owned()),
        })
    }
}

impl sealed::Sealed for String {
    fn target(&self) -> TargetBox {
        self.as_str().target()
    }
}

impl sealed::Sealed for (&str, u16) {
    fn target(&self) -> TargetBox {
        let (host, port) = *self;
        TargetBox(match host.parse::<IpAddr>() {
            Ok(ip) => Target::Known(vec![(ip, port).into()]),
            Err(_) => Target::Name(format!("{host}:{port}")),
        })
    }
}

impl sealed::Sealed for (String, u16) {
    fn target(&self) -> TargetBox {
        (self.0.as_str(), self.1).target()
    }
}

impl<T: sealed::Sealed + ?Sized> sealed::Sealed for &T {
    fn target(&self) -> TargetBox {
        (**self).target()
    }
}
