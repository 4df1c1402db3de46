//! UDP sockets, connected or not.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::event_loop::budget;
use crate::event_loop::handle::EventLoop;
use crate::io::interest::Interest;
use crate::io::registered::Registered;
use crate::net::addr::{ToSocketAddrs, try_each};
use crate::reactor::direction::Direction;

/// A UDP socket.
///
/// Any number of tasks may send and receive on one socket concurrently. The system truncates a datagram
/// that is longer than the buffer; an empty datagram is received as 0 bytes.
///
/// # Examples
///
/// ```
/// use loopgroup::net::UdpSocket;
///
/// loopgroup::run(async {
///     let one = UdpSocket::bind("127.0.0.1:0").await?;
///     let other = UdpSocket::bind("127.0.0.1:0").await?;
///     one.send_to(b"hello", other.local_addr()?).await?;
///     let mut buf = [0; 16];
///     let (n, from) = other.recv_from(&mut buf).await?;
///     assert_eq!((&buf[..n], from), (&b"hello"[..], one.local_addr()?));
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct UdpSocket {
    io: Registered<std::net::UdpSocket>,
}

impl UdpSocket {
    /// Binds to the first address that can be bound.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `AddrInUse`.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    ///
    /// let address = loopgroup::run(async { UdpSocket::bind("127.0.0.1:0").await?.local_addr() })??;
    /// assert_ne!(address.port(), 0); // the system chose one
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<UdpSocket> {
        try_each(&address, |address| async move {
            budget::proceed_and_spend().await;
            let socket = std::net::UdpSocket::bind(address).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot bind {address}: {error}"))
            })?;
            UdpSocket::from_std(socket)
        })
        .await
    }

    /// Converts a standard library socket and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be made non-blocking.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
        Ok(UdpSocket {
            io: Registered::new(socket)?,
        })
    }

    /// Converts into the standard library's socket, which stays non-blocking.
    pub fn into_std(self) -> std::net::UdpSocket {
        self.io.into_inner()
    }

    /// Returns the standard library's socket, to set options.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    ///
    /// let socket = UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    /// socket.as_std().set_broadcast(true)?; // set with the standard library's methods
    /// let back: std::net::UdpSocket = socket.into_std();
    /// assert!(back.broadcast()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn as_std(&self) -> &std::net::UdpSocket {
        self.io.get_ref()
    }

    /// Returns the local address that this socket is bound to.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    /// Returns the address of the connected peer.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the socket is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().peer_addr()
    }

    /// Connects to a peer: `send` sends to it, and only its datagrams are received.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error for the last address.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    ///
    /// loopgroup::run(async {
    ///     let server = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let client = UdpSocket::bind("127.0.0.1:0").await?;
    ///     client.connect(server.local_addr()?).await?;
    ///     assert_eq!(client.peer_addr()?, server.local_addr()?);
    ///     client.send(b"ping").await?;
    ///     let mut buf = [0; 8];
    ///     let (n, from) = server.recv_from(&mut buf).await?;
    ///     server.send_to(&buf[..n], from).await?;
    ///     assert_eq!(client.recv(&mut buf).await?, 4);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn connect<A: ToSocketAddrs>(&self, address: A) -> io::Result<()> {
        let socket = self.io.get_ref();
        try_each(&address, |address| async move {
            budget::proceed_and_spend().await;
            socket.connect(address)
        })
        .await
    }

    /// Sends a datagram to the connected peer.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `ConnectionRefused` may refer to an earlier datagram.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the datagram is sent whole or not at all.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.io
            .io(Direction::Write, |socket| socket.send(buf))
            .await
    }

    /// Sends a datagram to an address.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the datagram is sent whole or not at all.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    ///
    /// loopgroup::run(async {
    ///     let socket = UdpSocket::bind("127.0.0.1:0").await?;
    ///     assert_eq!(socket.send_to(b"to itself", socket.local_addr()?).await?, 9);
    ///     let mut buf = [0; 4]; // too short: the datagram is truncated
    ///     assert_eq!(socket.recv_from(&mut buf).await?.0, 4);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], address: A) -> io::Result<usize> {
        try_each(&address, |address| {
            self.io
                .io(Direction::Write, move |socket| socket.send_to(buf, address))
        })
        .await
    }

    /// Receives a datagram from the connected peer.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no datagram is lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    ///
    /// loopgroup::run(async {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0").await?, UdpSocket::bind("127.0.0.1:0").await?);
    ///     one.connect(other.local_addr()?).await?;
    ///     other.connect(one.local_addr()?).await?;
    ///     let (sent, received) = futures::join!(one.send(b"hello"), async {
    ///         let mut buf = [0; 8];
    ///         other.recv(&mut buf).await.map(|n| buf[..n].to_vec())
    ///     });
    ///     assert_eq!((sent?, received?), (5, b"hello".to_vec()));
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.io(Direction::Read, |socket| socket.recv(buf)).await
    }

    /// Receives a datagram and returns the address of its sender.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no datagram is lost.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io
            .io(Direction::Read, |socket| socket.recv_from(buf))
            .await
    }

    /// Receives a datagram without removing it from the queue.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    ///
    /// loopgroup::run(async {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0").await?, UdpSocket::bind("127.0.0.1:0").await?);
    ///     one.send_to(b"hello", other.local_addr()?).await?;
    ///     let mut buf = [0; 8];
    ///     assert_eq!(other.peek_from(&mut buf).await?.0, 5); // still there
    ///     assert_eq!(other.recv_from(&mut buf).await?.0, 5);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io
            .io(Direction::Read, |socket| socket.peek_from(buf))
            .await
    }

    /// Waits until there is a datagram to receive.
    ///
    /// # Errors
    ///
    /// The same as [`Registered::readable`].
    pub async fn readable(&self) -> io::Result<()> {
        self.io.readable().await
    }

    /// Waits until there is room to send a datagram.
    ///
    /// # Errors
    ///
    /// The same as [`Registered::readable`].
    pub async fn writable(&self) -> io::Result<()> {
        self.io.writable().await
    }

    /// Tries an operation on the standard library's socket; see [`Registered::try_io`].
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket is not ready; otherwise the error of `operation`.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{io::Interest, net::UdpSocket};
    /// use std::io::ErrorKind;
    ///
    /// loopgroup::run(async {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0").await?, UdpSocket::bind("127.0.0.1:0").await?);
    ///     one.writable().await?;
    ///     one.send_to(b"hello", other.local_addr()?).await?;
    ///     let mut buf = [0; 8];
    ///     loop {
    ///         other.readable().await?;
    ///         match other.try_io(Interest::READABLE, |socket| socket.recv(&mut buf)) {
    ///             Err(error) if error.kind() == ErrorKind::WouldBlock => continue, // readiness is a hint
    ///             received => return received,
    ///         }
    ///     }
    /// })
    /// .map(|received| assert_eq!(received.unwrap(), 5))?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce(&std::net::UdpSocket) -> io::Result<R>,
    ) -> io::Result<R> {
        self.io.try_io(interest, operation)
    }

    /// Returns the loop that the socket is registered with, if any.
    pub fn event_loop(&self) -> Option<EventLoop> {
        self.io.event_loop()
    }

    /// Moves the socket to another loop.
    ///
    /// # Errors
    ///
    /// The same as [`Registered::migrate_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::UdpSocket};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let home = group.block_on(async {
    ///     let mut socket = UdpSocket::bind("127.0.0.1:0").await?;
    ///     socket.migrate_to(&group.loops()[1]).await?;
    ///     std::io::Result::Ok(socket.event_loop())
    /// })?;
    /// assert_eq!(home.as_ref(), Some(&group.loops()[1]));
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn migrate_to(&mut self, event_loop: &EventLoop) -> io::Result<()> {
        self.io.migrate_to(event_loop).await
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UdpSocket")
            .field(&self.local_addr())
            .finish()
    }
}

descriptors!(UdpSocket);
