//! TCP: listeners and streams.

use std::fmt;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::io::{AsyncRead, AsyncWrite};
use mio::Interest;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::event_loop::budget;
use crate::event_loop::handle::EventLoop;
use crate::io::registered::{Registered, Short};
use crate::net::addr::{ToSocketAddrs, first, first_in_time};
use crate::net::incoming::Incoming;
use crate::net::stream::{asked, stream, write, write_vectored};
use crate::reactor::source::Direction;

/// Connections that may wait to be accepted; the system may allow fewer.
pub(super) const BACKLOG: usize = 1024;

/// The most that the system takes in an option; cut off to its size, a larger number may be nothing at all.
const MOST: usize = i32::MAX as usize;
/// How long an address is tried while there is another one.
const EACH: Duration = Duration::from_secs(5);

/// Waits for TCP connections.
///
/// All it can do is shown in [the guide](crate::guide::sockets#connect-and-accept).
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
///     assert!(listener.event_loop().is_none()); // it never had to wait
///     let _same = TcpListener::from_std(listener.into_std())?;
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct TcpListener {
    // mio's listener accepts and makes non-blocking in one system call.
    io: Registered<mio::net::TcpListener>,
}

impl TcpListener {
    /// Listens on an address, the first that can be bound, with `SO_REUSEADDR`.
    ///
    /// # Errors
    ///
    /// What the system says, as `AddrInUse`.
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<TcpListener> {
        first(&address, |address| async move {
            budget::pay().await;
            TcpListener::listen(address, BACKLOG, false)
        })
        .await
    }

    /// Listens on an address, alone or with others that share its port.
    pub(super) fn listen(
        address: SocketAddr,
        backlog: usize,
        reuse_port: bool,
    ) -> io::Result<TcpListener> {
        let socket = stream_socket(address)?;
        socket.set_reuse_address(true)?;
        if reuse_port {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&address.into()).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot bind {address}: {error}"))
        })?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(TcpListener::of(socket.into()))
    }

    /// `listener` is non-blocking already.
    fn of(listener: std::net::TcpListener) -> TcpListener {
        TcpListener {
            io: Registered::from_nonblocking(mio::net::TcpListener::from_std(listener)),
        }
    }

    /// Takes a listener of the standard library and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// What the system says when it cannot be made non-blocking.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        Ok(TcpListener::of(listener))
    }

    /// Gives the standard library's listener back, which stays non-blocking.
    pub fn into_std(self) -> std::net::TcpListener {
        self.io.into_inner().into()
    }

    /// Returns the address that it is bound to.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    /// Waits for a connection.
    ///
    /// The stream is not registered yet: it belongs to the loop that first waits for it.
    ///
    /// # Errors
    ///
    /// What the system says. After an error like `EMFILE` the connection is still waiting: accept
    /// again, a little later.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no connection is lost.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = self.io.io(Direction::Read, |listener| listener.accept());
        accepted
            .await
            .map(|(stream, peer)| (TcpStream::of(stream.into()), peer))
    }

    /// Polls for a connection; the last caller is the one that is woken. See [an
    /// example](crate::guide::sockets#connect-and-accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.poll_accept_with(cx, |accept| accept())
    }

    /// Polls for a connection, which `take` accepts, if it will.
    pub(super) fn poll_accept_with<R>(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&dyn Fn() -> io::Result<(TcpStream, SocketAddr)>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let accept = |listener: &mio::net::TcpListener| {
            take(&|| {
                let (stream, peer) = listener.accept()?;
                Ok((TcpStream::of(stream.into()), peer))
            })
        };
        self.io.poll_io(Direction::Read, cx, accept, |_| Short::No)
    }

    /// Returns the connections as a stream, which never ends; see [an example](crate::guide::sockets#connect-and-accept).
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming::of(&self.io)
    }

    /// Returns the loop that the listener is registered with, if it is.
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
/// Reading and writing are those of `futures::io`, on the stream and on `&TcpStream`.
///
/// All it can do is shown in [the guide](crate::guide::sockets).
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
    /// Connects to an address, the first that answers; host names are looked up off the loop.
    ///
    /// Of several addresses each is tried for 5 s at most, and the last one for as long as the system does.
    ///
    /// # Errors
    ///
    /// What the system says about the last address.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a connection under way is given up.
    pub async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
        first_in_time(&address, EACH, |address| async move {
            budget::pay().await;
            let socket = stream_socket(address)?;
            match socket.connect(&address.into()) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
                Err(error) => return Err(error),
            }
            let stream = TcpStream::of(socket.into());
            stream.connected().await?;
            Ok(stream)
        })
        .await
    }

    /// Waits for the outcome of a connect.
    async fn connected(&self) -> io::Result<()> {
        let look = |stream: &std::net::TcpStream| match stream.take_error()? {
            Some(error) => Err(error),
            None => match stream.peer_addr() {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Err(error) => Err(error),
            },
        };
        self.io.io(Direction::Write, look).await
    }

    /// `stream` is non-blocking already.
    pub(super) fn of(stream: std::net::TcpStream) -> TcpStream {
        TcpStream {
            io: Registered::from_nonblocking(stream),
        }
    }

    /// Reads without taking: the next read returns the same bytes. See [an
    /// example](crate::guide::sockets#look-before-reading).
    ///
    /// # Errors
    ///
    /// What the system says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it takes nothing.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.io(Direction::Read, |stream| stream.peek(buf)).await
    }

    /// Returns the address of the other side.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().peer_addr()
    }

    /// Returns the address of this side.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    /// Sets `TCP_NODELAY`: small writes go out at once. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// What the system says, as for all options below.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io.get_ref().set_nodelay(nodelay)
    }

    /// Returns `TCP_NODELAY`.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.io.get_ref().nodelay()
    }

    /// Sets the time to live of packets. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io.get_ref().set_ttl(ttl)
    }

    /// Returns the time to live of packets.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io.get_ref().ttl()
    }

    /// Sets `SO_LINGER`: how long closing waits for unsent data; `Some(ZERO)` resets the connection.
    /// [Example](crate::guide::sockets#options)
    ///
    /// Closing is what the drop does, and it waits although the socket is non-blocking: with any other
    /// time than zero, do not drop the stream on a loop. The system counts whole seconds: a part of one
    /// is one more, and more than it can count is the most that it can.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.options().set_linger(linger.map(whole_seconds))
    }

    /// Returns `SO_LINGER`.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.options().linger()
    }

    /// Sends keep-alive probes after so long without traffic, in whole seconds: a part of one is one more;
    /// `None` turns them off. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// What the system says, as of a time that is zero or too long (Linux: 32,767 s); nothing is changed then.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        let Some(idle) = idle else {
            return self.options().set_keepalive(false);
        };
        let before = self.keepalive()?;
        let probes = TcpKeepalive::new().with_time(whole_seconds(idle));
        let set = self.options().set_tcp_keepalive(&probes);
        if set.is_err() {
            // They are turned on before the time is looked at.
            self.options().set_keepalive(before)?;
        }
        set
    }

    /// Says whether keep-alive probes are sent.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.options().keepalive()
    }

    /// Sets the size of the system's receive buffer, in bytes. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.options().set_recv_buffer_size(bytes.min(MOST))
    }

    /// Returns the size of the system's receive buffer, in bytes.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        self.options().recv_buffer_size()
    }

    /// Sets the size of the system's send buffer, in bytes. [Example](crate::guide::sockets#options)
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.options().set_send_buffer_size(bytes.min(MOST))
    }

    /// Returns the size of the system's send buffer, in bytes.
    ///
    /// # Errors
    ///
    /// What the system says.
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

/// A socket for `address`, not bound, not connected, non-blocking and closed on exec.
fn stream_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// So many seconds or one more: none would be a reset.
fn whole_seconds(time: Duration) -> Duration {
    let begun = u64::from(time.subsec_nanos() > 0);
    Duration::from_secs(time.as_secs().saturating_add(begun).min(MOST as u64))
}

descriptors!(TcpListener, TcpStream);
