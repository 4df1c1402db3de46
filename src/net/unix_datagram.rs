//! Unix domain datagram sockets.

use std::io;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::task::{Context, Poll};

use crate::io::interest::Interest;
use crate::io::registered::{Registered, Short};
use crate::net::backoff::Backoff;
use crate::net::datagram::datagram;
use crate::net::socket::socket;
use crate::net::unix::{cannot_bind, unnamed_address};
use crate::reactor::direction::Direction;

/// A Unix domain datagram socket.
///
/// # Examples
///
/// ```
/// use loopgroup::net::UnixDatagram;
///
/// loopgroup::run(async {
///     let (one, other) = UnixDatagram::pair()?;
///     one.send(b"hello").await?;
///     let mut buf = [0; 16];
///     assert_eq!(other.recv(&mut buf).await?, 5);
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct UnixDatagram {
    io: Registered<net::UnixDatagram>,
}

socket!(UnixDatagram, net::UnixDatagram);
datagram!(UnixDatagram, net::UnixDatagram, SocketAddr);

impl UnixDatagram {
    /// Binds to `path`, which must not exist yet.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `AddrInUse`.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UnixDatagram;
    ///
    /// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-datagram", std::process::id()));
    /// loopgroup::run(async {
    ///     let server = UnixDatagram::bind(&path)?;
    ///     let client = UnixDatagram::unbound()?; // can send, but cannot receive a reply
    ///     client.send_to(b"to a path", &path).await?;
    ///     client.send_to_addr(b"to an address", &server.local_addr()?).await?;
    ///     client.connect(&path)?;
    ///     client.send(b"to the peer").await?;
    ///     let mut buf = [0; 16];
    ///     for length in [9, 13, 11] {
    ///         let (n, from) = server.recv_from(&mut buf).await?;
    ///         assert_eq!((n, from.is_unnamed()), (length, true));
    ///     }
    ///     std::fs::remove_file(&path)
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        let path = path.as_ref();
        let bound = net::UnixDatagram::bind(path);
        UnixDatagram::from_std(bound.map_err(|error| cannot_bind(path.display(), &error))?)
    }

    /// Binds to `address`, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// The same as [`bind`](UnixDatagram::bind).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UnixDatagram;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-bind-addr", std::process::id()));
    /// let address = SocketAddr::from_pathname(&path)?; // or an abstract name, on Linux
    /// loopgroup::run(async {
    ///     let server = UnixDatagram::bind_addr(&address)?;
    ///     let client = UnixDatagram::unbound()?;
    ///     client.connect_addr(&address)?;
    ///     client.send(b"hello").await?;
    ///     assert_eq!(server.recv(&mut [0; 8]).await?, 5);
    ///     std::fs::remove_file(&path)
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixDatagram> {
        let bound = net::UnixDatagram::bind_addr(address);
        let with_address = |error| cannot_bind(format_args!("{address:?}"), &error);
        UnixDatagram::from_std(bound.map_err(with_address)?)
    }

    /// Creates a socket that is not bound to an address.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn unbound() -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(net::UnixDatagram::unbound()?)
    }

    /// Creates two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UnixDatagram;
    ///
    /// let (one, other) = UnixDatagram::pair()?;
    /// let received = loopgroup::run(async {
    ///     one.send(b"").await?; // an empty datagram is a datagram
    ///     other.recv(&mut [0; 8]).await
    /// })?;
    /// assert_eq!(received?, 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (one, other) = net::UnixDatagram::pair()?;
        Ok((UnixDatagram::from_std(one)?, UnixDatagram::from_std(other)?))
    }

    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.io.get_ref().connect(path)
    }

    /// Connects to the socket at `address`, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `InvalidInput` for an unnamed address.
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        require_name(address)?;
        self.io.get_ref().connect_addr(address)
    }

    /// Sends a datagram to the socket at `path`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the datagram is sent whole or not at all.
    pub async fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        self.send_with_backoff(|socket| socket.send_to(buf, path))
            .await
    }

    /// Sends a datagram to the socket at `address`, such as the sender of a received datagram.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `InvalidInput` for an unnamed address, such as that
    /// of a sender that is not bound.
    ///
    /// # Cancel safety
    ///
    /// The same as [`send_to`](UnixDatagram::send_to).
    pub async fn send_to_addr(&self, buf: &[u8], address: &SocketAddr) -> io::Result<usize> {
        require_name(address)?;
        self.send_with_backoff(|socket| socket.send_to_addr(buf, address))
            .await
    }

    /// Sends to a socket that this one is not connected to; retries after a delay while its queue is
    /// full.
    async fn send_with_backoff(
        &self,
        send: impl Fn(&net::UnixDatagram) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut backoff = Backoff::new();
        loop {
            // The socket itself stays writable, and each attempt makes the system report that again:
            // waiting for readiness would busy-loop.
            let attempt = |socket: &net::UnixDatagram| match send(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                result => result.map(Some),
            };
            match self.io.io(Direction::Write, attempt).await? {
                Some(sent) => return Ok(sent),
                None => backoff.wait().await?,
            }
        }
    }
}

/// Returns an error for an unnamed address.
fn require_name(address: &SocketAddr) -> io::Result<()> {
    if address.is_unnamed() {
        return Err(unnamed_address());
    }
    Ok(())
}
