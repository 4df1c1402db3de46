//! TCP listeners and streams.

use std::fmt;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::io::{AsyncRead, AsyncWrite};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::event_loop::budget;
use crate::event_loop::handle::EventLoop;
use crate::io::interest::Interest;
use crate::io::registered::{Registered, Short};
use crate::net::addr::{ToSocketAddrs, try_each, try_each_with_limit};
use crate::net::incoming::Incoming;
use crate::net::stream::{requested, stream, write, write_vectored};
use crate::reactor::direction::Direction;

/// The default backlog of a listener; the system may allow fewer connections.
pub(super) const BACKLOG: usize = 1024;

/// The largest option value that the system accepts. Options are C ints: truncation of a larger value may
/// give 0.
const MAX_OPTION: usize = i32::MAX as usize;
/// The time limit for each address but the last.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A TCP listener.
///
/// [The guide](crate::guide::sockets#connect-and-accept) shows all of its operations.
///
/// # Examples
///
/// ```
/// use loopgroup::net::{TcpListener, TcpStream};
///
/// loopgroup::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     let (_server, peer) = listener.accept().await?;
///     assert_eq!(peer, client.local_addr()?);
///     assert!(listener.event_loop().is_none()); // it has never had to wait
///     let _same = TcpListener::from_std(listener.into_std())?;
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct TcpListener {
    // mio's listener accepts a connection and makes it non-blocking in one system call.
    io: Registered<mio::net::TcpListener>,
}

impl TcpListener {
    /// Listens on the first address that can be bound, with `SO_REUSEADDR`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `AddrInUse`.
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<TcpListener> {
        try_each(&address, |address| async move {
            budget::proceed_and_spend().await;
            TcpListener::listen(address, BACKLOG, |_| Ok(()))
        })
        .await
    }

    /// Listens on an address, with a socket that `prepare` has set options of.
    pub(super) fn listen(
        address: SocketAddr,
        backlog: usize,
        prepare: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> io::Result<TcpListener> {
        let socket = stream_socket(address)?;
        socket.set_reuse_address(true)?;
        prepare(&socket)?;
        socket.bind(&address.into()).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot bind {address}: {error}"))
        })?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(TcpListener::from_nonblocking(socket.into()))
    }

    fn from_nonblocking(listener: std::net::TcpListener) -> TcpListener {
        TcpListener {
            io: Registered::from_nonblocking(mio::net::TcpListener::from_std(listener)),
        }
    }

    /// Converts a standard library listener and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be made non-blocking.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        Ok(TcpListener::from_nonblocking(listener))
    }

    /// Converts into the standard library's listener, which stays non-blocking.
    pub fn into_std(self) -> std::net::TcpListener {
        self.io.into_inner().into()
    }

    /// Returns the local address that this socket is bound to.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    /// Waits for a connection.
    ///
    /// The accepted stream is not registered yet: it will belong to the loop that first waits for it.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system. After an error such as `EMFILE` the connection is
    /// still in the backlog: accept again after a short delay.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no connection is lost.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = self.io.io(Direction::Read, |listener| listener.accept());
        accepted
            .await
            .map(|(stream, peer)| (TcpStream::from_nonblocking(stream.into()), peer))
    }

    /// Polls for a connection; only the waker of the last call is woken. See [an
    /// example](crate::guide::sockets#connect-and-accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.poll_accept_with(cx, |accept| accept())
    }

    /// Polls for a connection; `admit` decides whether to accept it.
    pub(super) fn poll_accept_with<R>(
        &self,
        cx: &mut Context<'_>,
        mut admit: impl FnMut(&dyn Fn() -> io::Result<(TcpStream, SocketAddr)>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let accept = |listener: &mio::net::TcpListener| {
            admit(&|| {
                let (stream, peer) = listener.accept()?;
                Ok((TcpStream::from_nonblocking(stream.into()), peer))
            })
        };
        self.io.poll_io(Direction::Read, cx, accept, |_| Short::No)
    }

    /// Returns a stream of connections, which never ends; see [an
    /// example](crate::guide::sockets#connect-and-accept).
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming::new(&self.io)
    }

    /// Returns the loop that the listener is registered with, if any.
    pub fn event_loop(&self) -> Option<EventLoop> {
        self.io.event_loop()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpListener")
            .field(&self.local_addr())
            .finish()
    }
}

/// A TCP connection.
///
/// Reads and writes use the traits of `futures::io`, implemented for the stream and for `&TcpStream`.
///
/// [The guide](crate::guide::sockets) shows all of its operations.
///
/// # Examples
///
/// ```
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::net::{TcpListener, TcpStream};
///
/// loopgroup::run(async {
///     let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
///     let mut client = TcpStream::connect(listener.local_addr()?).await?;
///     let (server, _) = listener.accept().await?;
///     client.set_nodelay(true)?;
///     client.write_all(b"ping").await?;
///     let mut buf = [0; 4];
///     (&server).read_exact(&mut buf).await?; // a shared reference is enough
///     assert_eq!(&buf, b"ping");
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct TcpStream {
    io: Registered<std::net::TcpStream>,
}

stream!(
    TcpStream,
    std::net::TcpStream,
    OwnedReadHalf,
    OwnedWriteHalf,
    Short::Yes
);

impl TcpStream {
    /// Connects to the first address that accepts the connection; host names are resolved off the loop.
    ///
    /// With several addresses, each attempt but the last is limited to 5 s; the last has the system's own
    /// timeout.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error for the last address.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a pending connection attempt is abandoned.
    pub async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
        try_each_with_limit(&address, CONNECT_LIMIT, |address| async move {
            budget::proceed_and_spend().await;
            let socket = stream_socket(address)?;
            match socket.connect(&address.into()) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
                Err(error) => return Err(error),
            }
            let stream = TcpStream::from_nonblocking(socket.into());
            stream.connected().await?;
            Ok(stream)
        })
        .await
    }

    /// Waits until a pending connect has succeeded or failed.
    async fn connected(&self) -> io::Result<()> {
        let outcome = |stream: &std::net::TcpStream| match stream.take_error()? {
            Some(error) => Err(error),
            None => match stream.peer_addr() {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Err(error) => Err(error),
            },
        };
        self.io.io(Direction::Write, outcome).await
    }

    pub(super) fn from_nonblocking(stream: std::net::TcpStream) -> TcpStream {
        TcpStream {
            io: Registered::from_nonblocking(stream),
        }
    }

    /// Reads without consuming: the next read returns the same bytes. See [an
    /// example](crate::guide::sockets#look-before-reading).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.read_io(|stream| stream.peek(buf), || 0).await
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().peer_addr()
    }

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    /// Sets `TCP_NODELAY`: small writes are sent immediately. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; the same holds for all options below.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io.get_ref().set_nodelay(nodelay)
    }

    /// Returns `TCP_NODELAY`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.io.get_ref().nodelay()
    }

    /// Sets the time to live of outgoing packets (`IP_TTL`). [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io.get_ref().set_ttl(ttl)
    }

    /// Returns the time to live of outgoing packets.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io.get_ref().ttl()
    }

    /// Sets `SO_LINGER`: how long closing waits for unsent data; `Some(ZERO)` resets the connection.
    /// [Example](crate::guide::sockets#options)
    ///
    /// Dropping the stream closes it, and the close blocks although the socket is non-blocking: with any
    /// time other than zero, do not drop the stream on a loop. The system counts whole seconds: fractions
    /// are rounded up, and values beyond its range are clamped.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.options().set_linger(linger.map(whole_seconds))
    }

    /// Returns `SO_LINGER`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.options().linger()
    }

    /// Sends keep-alive probes after the connection was idle for this long, rounded up to whole seconds;
    /// `None` turns them off. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, for example for a time that is zero or too long
    /// (Linux: more than 32,767 s); nothing is changed then.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        let Some(idle) = idle else {
            return self.options().set_keepalive(false);
        };
        let before = self.keepalive()?;
        let probes = TcpKeepalive::new().with_time(whole_seconds(idle));
        let set = self.options().set_tcp_keepalive(&probes);
        if set.is_err() {
            // The call enables the probes before it sets the time.
            self.options().set_keepalive(before)?;
        }
        set
    }

    /// Returns whether keep-alive probes are sent.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.options().keepalive()
    }

    /// Sets the size of the system's receive buffer, in bytes. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.options().set_recv_buffer_size(bytes.min(MAX_OPTION))
    }

    /// Returns the size of the system's receive buffer, in bytes.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        self.options().recv_buffer_size()
    }

    /// Sets the size of the system's send buffer, in bytes. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.options().set_send_buffer_size(bytes.min(MAX_OPTION))
    }

    /// Returns the size of the system's send buffer, in bytes.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        self.options().send_buffer_size()
    }

    fn options(&self) -> SockRef<'_> {
        SockRef::from(self.io.get_ref())
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("local", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish()
    }
}

/// Creates a socket for `address`: not bound, not connected, non-blocking and close-on-exec.
fn stream_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Rounds up to whole seconds: rounded down to zero, a linger time would mean a reset.
pub(super) fn whole_seconds(time: Duration) -> Duration {
    let fraction = u64::from(time.subsec_nanos() > 0);
    let seconds = time.as_secs().saturating_add(fraction);
    Duration::from_secs(seconds.min(MAX_OPTION as u64))
}

descriptors!(TcpListener, TcpStream);
