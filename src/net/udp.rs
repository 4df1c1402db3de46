//! UDP sockets, connected or not.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use crate::event_loop::budget;
use crate::io::interest::Interest;
use crate::io::registered::{Registered, Short};
use crate::net::addr::{ToSocketAddrs, try_each};
use crate::net::address_error::{cannot_bind, cannot_bind_on};
use crate::net::behind::{self, Behind};
use crate::net::datagram::datagram;
use crate::net::socket::socket;
use crate::reactor::direction::Direction;
use crate::sim;

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
    io: Registered<Behind<std::net::UdpSocket>>,
}

socket!(UdpSocket, std::net::UdpSocket);
datagram!(UdpSocket, std::net::UdpSocket, SocketAddr);

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
            if let Some(host) = behind::host() {
                let bound = sim::Socket::udp_bind(&host.net, address);
                let bound = bound.map_err(|error| cannot_bind_on(&host.net, address, error))?;
                let io = Behind::simulated(bound);
                return Ok(UdpSocket { io });
            }
            let bound = std::net::UdpSocket::bind(address);
            UdpSocket::from_std(bound.map_err(|error| cannot_bind(address, error))?)
        })
        .await
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
        self.io.get_ref().system()
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
    /// Tries to send a datagram to an address, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room: wait with [`writable`](UdpSocket::writable), and try again.
    /// Otherwise any error from the operating system.
    pub fn try_send_to(&self, buf: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.io
            .try_io(Interest::WRITABLE, |socket| socket.send_to(buf, address))
    }

    /// Polls to send a datagram to an address; of the tasks that poll to send, only the last is woken.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        address: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let send = |socket: &Behind<std::net::UdpSocket>| socket.send_to(buf, address);
        self.io.poll_io(Direction::Write, cx, send, |_| Short::No)
    }

    /// Receives a datagram from the connected peer without removing it from the queue.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.io(Direction::Read, |socket| socket.peek(buf)).await
    }

    /// Polls for the next datagram of the connected peer without removing it from the queue; of the tasks
    /// that poll to receive, only the last is woken.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let peek = |socket: &Behind<std::net::UdpSocket>| socket.peek(buf);
        self.io.poll_io(Direction::Read, cx, peek, |_| Short::No)
    }

    /// Polls for the next datagram without removing it from the queue; of the tasks that poll to receive,
    /// only the last is woken.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let peek = |socket: &Behind<std::net::UdpSocket>| socket.peek_from(buf);
        self.io.poll_io(Direction::Read, cx, peek, |_| Short::No)
    }

    /// Tries to peek at the next datagram, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise any error from the operating system.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UdpSocket;
    ///
    /// let socket = UdpSocket::try_from(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    /// let own = socket.local_addr()?;
    /// socket.try_send_to(b"hello", own)?;
    /// let mut buf = [0; 8];
    /// assert_eq!(socket.try_peek_from(&mut buf)?, (5, own)); // still there
    /// assert_eq!(socket.try_recv_from(&mut buf)?, (5, own));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io
            .try_io(Interest::READABLE, |socket| socket.peek_from(buf))
    }
}
