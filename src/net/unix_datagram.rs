//! Unix domain datagram sockets.

use std::io;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::task::{Context, Poll};

use crate::io::interest::Interest;
use crate::io::registered::{Registered, Short};
use crate::net::address_error::cannot_bind;
use crate::net::backoff::Backoff;
use crate::net::behind::{self, Behind, path_of};
use crate::net::datagram::datagram;
use crate::net::socket::socket;
use crate::net::unix_addr::{ShownPath, from_path, require_name};
use crate::reactor::direction::Direction;
use crate::sim::{self, SimulatedHost};

/// A Unix domain datagram socket.
///
/// Any number of tasks may send and receive on one socket concurrently. `writable` waits for room in this
/// socket; the queue of the receiver may still be full.
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
    io: Registered<Behind<net::UnixDatagram>>,
}

socket!(UnixDatagram, net::UnixDatagram);
datagram!(UnixDatagram, net::UnixDatagram, SocketAddr);

impl UnixDatagram {
    /// Binds to `path`, which must not exist yet; a path that begins with a zero byte is an abstract name
    /// (Linux), here and wherever this socket takes a path.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `AddrInUse`, with the path; `InvalidInput` for
    /// a path that is too long, or for a zero byte within it.
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
        if let Some(host) = behind::host() {
            let bound = UnixDatagram::simulated(&host, Some(path));
            return bound.map_err(|error| cannot_bind(ShownPath(path), error));
        }
        let bound = from_path(path).and_then(|address| net::UnixDatagram::bind_addr(&address));
        UnixDatagram::from_std(bound.map_err(|error| cannot_bind(ShownPath(path), error))?)
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
        if let Some(host) = behind::host() {
            let bound =
                path_of(address).and_then(|path| UnixDatagram::simulated(&host, Some(path)));
            return bound.map_err(|error| cannot_bind(format_args!("{address:?}"), error));
        }
        let bound = net::UnixDatagram::bind_addr(address);
        let with_address = |error| cannot_bind(format_args!("{address:?}"), error);
        UnixDatagram::from_std(bound.map_err(with_address)?)
    }

    /// Creates a socket that is not bound to an address.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn unbound() -> io::Result<UnixDatagram> {
        if let Some(host) = behind::host() {
            return UnixDatagram::simulated(&host, None);
        }
        UnixDatagram::from_std(net::UnixDatagram::unbound()?)
    }

    /// Creates a simulated socket, which is bound if there is a path.
    pub(super) fn simulated(host: &SimulatedHost, path: Option<&Path>) -> io::Result<UnixDatagram> {
        sim::Socket::letters(&host.net, path).map(UnixDatagram::from_simulated)
    }

    /// Wraps a simulated socket.
    pub(super) fn from_simulated(socket: sim::Socket) -> UnixDatagram {
        let io = Behind::simulated(socket);
        UnixDatagram { io }
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
        if let Some(host) = behind::host() {
            let (one, other) = sim::Socket::letters_pair(&host.net)?;
            let [one, other] = [one, other].map(Behind::simulated);
            return Ok((UnixDatagram { io: one }, UnixDatagram { io: other }));
        }
        let (one, other) = net::UnixDatagram::pair()?;
        Ok((UnixDatagram::from_std(one)?, UnixDatagram::from_std(other)?))
    }

    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.connect_addr(&from_path(path.as_ref())?)
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
        let address = from_path(path.as_ref())?;
        self.send_to_addr(buf, &address).await
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

    /// Tries to send a datagram to the socket at `path`, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if this socket has no room, or if the queue of the receiver is full. The system does
    /// not report when the queue has room, and [`writable`](UnixDatagram::writable) does not wait for it:
    /// use [`send_to`](UnixDatagram::send_to), or try again after a delay. Otherwise the same errors as
    /// [`send_to`](UnixDatagram::send_to).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UnixDatagram;
    ///
    /// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-try", std::process::id()));
    /// let server = UnixDatagram::bind(&path)?;
    /// UnixDatagram::unbound()?.try_send_to(b"hello", &path)?;
    /// assert_eq!(server.try_recv(&mut [0; 8])?, 5);
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        let address = from_path(path.as_ref())?;
        require_name(&address)?;
        // A full queue elsewhere says nothing about this socket: its readiness stays.
        let send = |socket: &Behind<net::UnixDatagram>| Ok(socket.send_to_addr(buf, &address));
        self.io.try_io(Interest::WRITABLE, send)?
    }

    /// Shuts down the receiving half, the sending half, or both.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `NotConnected` if the socket is not connected.
    pub fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        self.io.get_ref().shutdown(how)
    }

    /// Sends to a socket that this one is not connected to; retries after a delay while its queue is
    /// full.
    async fn send_with_backoff(
        &self,
        send: impl Fn(&Behind<net::UnixDatagram>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut backoff = Backoff::new();
        loop {
            // The socket itself stays writable, and each attempt makes the system report that again:
            // waiting for readiness would busy-loop.
            let attempt = |socket: &Behind<net::UnixDatagram>| match send(socket) {
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
