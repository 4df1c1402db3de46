//! Addresses to bind or connect to: socket addresses directly, host names resolved off the loop.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::blocking;
use crate::error::JoinError;
use crate::time::here::has_timers;
use crate::time::sleep::sleep;

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

/// Resolves the host name, if there is one; returns at least one address, or an error.
pub(crate) async fn resolve<A: ToSocketAddrs + ?Sized>(address: &A) -> io::Result<Vec<SocketAddr>> {
    let (addresses, name) = match address.target().0 {
        Target::Known(addresses) => (addresses, String::from("an empty list")),
        Target::Name(name) => {
            let host = name.clone();
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
            (found, format!("{name:?}"))
        }
    };
    if addresses.is_empty() {
        let text = format!("{name} gives no address");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(addresses)
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

/// Like [`try_each`], with a time limit for each address but the last.
pub(crate) async fn try_each_with_limit<A, R, F>(
    address: &A,
    limit: Duration,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> io::Result<R>
where
    A: ToSocketAddrs + ?Sized,
    F: Future<Output = io::Result<R>>,
{
    let mut addresses = resolve(address).await?;
    let last = addresses.pop().expect("there is at least one address");
    for address in addresses {
        if let Some(Ok(done)) = with_limit(limit, attempt(address)).await {
            return Ok(done);
        }
    }
    attempt(last).await
}

/// Awaits a future for at most `limit`; without a limit where there are no timers.
async fn with_limit<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut pause) = (pin!(future), sleep(limit));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if has_timers() => pin!(&mut pause).poll(cx).map(|()| None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Tries the addresses in order until an attempt succeeds; returns the last error if none does.
pub(crate) async fn try_each<A, R, F>(
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
