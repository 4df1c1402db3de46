//! TCP listeners and streams.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::io::{AsyncRead, AsyncWrite};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::event_loop::handle::EventLoop;
use crate::event_loop::{budget, context};
use crate::io::interest::Interest;
use crate::io::registered::{Registered, Short};
use crate::net::addr::{ToSocketAddrs, try_each};
use crate::net::address_error::{cannot_bind, cannot_bind_on};
use crate::net::behind::{self, Behind};
use crate::net::connect::{connect, connect_within};
use crate::net::incoming::Incoming;
use crate::net::send::requested;
use crate::net::socket::{descriptors, socket, try_from_std};
use crate::net::stream::{end_of_stream, stream};
use crate::net::tcp_options::tcp_options;
use crate::noted;
use crate::reactor::direction::Direction;
use crate::sim::{self, SimulatedHost};
use crate::sync::AtomicBool;
use crate::sync::plain::OnceLock;

/// The default backlog of a listener; the system may allow fewer connections.
pub(super) const BACKLOG: usize = 1024;

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
    io: Registered<Behind<mio::net::TcpListener>>,
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
            TcpListener::listen(address, BACKLOG, false, |_| Ok(()))
        })
        .await
    }

    /// Listens on an address, with a socket that `prepare` has set options of.
    pub(super) fn listen(
        address: SocketAddr,
        backlog: usize,
        reuse_port: bool,
        prepare: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> io::Result<TcpListener> {
        if let Some(host) = behind::host() {
            let bound = sim::Socket::tcp_listen(&host.net, address, backlog, reuse_port);
            let bound = bound.map_err(|error| cannot_bind_on(&host.net, address, error))?;
            return Ok(TcpListener::simulated(bound));
        }
        let socket = stream_socket(address)?;
        socket.set_reuse_address(true)?;
        if reuse_port {
            socket.set_reuse_port(true)?;
        }
        prepare(&socket)?;
        let bound = socket.bind(&address.into());
        bound.map_err(|error| cannot_bind(address, error))?;
        TcpListener::listen_socket(socket, backlog)
    }

    /// Listens on a socket that is bound and non-blocking.
    pub(super) fn listen_socket(socket: Socket, backlog: usize) -> io::Result<TcpListener> {
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(TcpListener::from_nonblocking(socket.into()))
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.io.get_ref().is_simulated()
    }

    /// Wraps a simulated socket that listens.
    pub(super) fn simulated(socket: sim::Socket) -> TcpListener {
        let io = Behind::simulated(socket);
        TcpListener { io }
    }

    fn from_nonblocking(listener: std::net::TcpListener) -> TcpListener {
        TcpListener {
            io: Behind::nonblocking(mio::net::TcpListener::from_std(listener)),
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
        self.io.into_inner().into_system().into()
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
        accepted.await.map(TcpStream::accepted)
    }

    /// Tries to accept a connection, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise the same as [`accept`](TcpListener::accept).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::TcpListener;
    /// use std::io::ErrorKind;
    ///
    /// let listener = TcpListener::try_from(std::net::TcpListener::bind("127.0.0.1:0")?)?;
    /// assert_eq!(listener.try_accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    /// let client = std::net::TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(listener.try_accept()?.1, client.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = self
            .io
            .try_io(Interest::READABLE, |listener| listener.accept());
        accepted.map(TcpStream::accepted)
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
        let accept = |listener: &Behind<mio::net::TcpListener>| {
            admit(&|| listener.accept().map(TcpStream::accepted))
        };
        self.io.poll_io(Direction::Read, cx, accept, |_| Short::No)
    }

    /// Has the selector look for further connections.
    pub(super) fn look_again(&self) {
        self.io.look_again(Direction::Read);
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
    io: Registered<Behind<std::net::TcpStream>>,
}

socket!(TcpStream, std::net::TcpStream);
stream!(
    TcpStream,
    std::net::TcpStream,
    SocketAddr,
    OwnedReadHalf,
    OwnedWriteHalf,
    Short::Yes
);

impl TcpStream {
    /// Connects to the first address that accepts the connection; host names are resolved off the loop.
    ///
    /// The addresses of a host name are tried as RFC 8305 (Happy Eyeballs) says: IPv6 and IPv4 take turns,
    /// the next attempt begins when the last one fails, and after 250 ms at the latest, and the first
    /// connection wins. A list of addresses is tried in its order; each attempt but the last is limited to
    /// 5 s. The last attempt, and a connect to one address, have the system's own timeout;
    /// [`connect_timeout`](TcpStream::connect_timeout) sets another one.
    ///
    /// # Errors
    ///
    /// For one given address, returns the error of the operating system, which has a
    /// [`raw_os_error`](io::Error::raw_os_error). For a host name or a list, returns a
    /// [`ConnectError`](crate::net::ConnectError) that names every address and its error; its kind and its
    /// source are those of the last address. (An `io::Error` cannot have both a number and a text of its
    /// own.)
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: pending connection attempts are abandoned, and their sockets closed.
    pub async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
        connect(&address, TcpStream::connect_to).await
    }

    /// Connects like [`connect`](TcpStream::connect), within `limit`: the look-up of a host name and all
    /// attempts together.
    ///
    /// # Errors
    ///
    /// `TimedOut`, with a text that names the address, if the time has passed; `InvalidInput` if the limit
    /// is zero; otherwise the same as [`connect`](TcpStream::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: pending connection attempts are abandoned, and their sockets closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// loopgroup::run(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let address = listener.local_addr()?;
    ///     let stream = TcpStream::connect_timeout(address, Duration::from_secs(2)).await?;
    ///     assert_eq!(stream.peer_addr()?, address);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn connect_timeout<A: ToSocketAddrs>(
        address: A,
        limit: Duration,
    ) -> io::Result<TcpStream> {
        connect_within(limit, &address, TcpStream::connect_to).await
    }

    async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
        // Before the socket is created: a task that retries without descriptors yields as well.
        budget::proceed_and_spend().await;
        match behind::host() {
            None => TcpStream::connect_socket(stream_socket(address)?, address).await,
            Some(host) => TcpStream::connect_simulated(&host, None, address, OnceLock::new()).await,
        }
    }

    /// Connects a simulated socket, from an address or from one that its host chooses, with a stand-in that
    /// may have options.
    pub(super) async fn connect_simulated(
        host: &SimulatedHost,
        from: Option<SocketAddr>,
        address: SocketAddr,
        stand_in: OnceLock<std::net::TcpStream>,
    ) -> io::Result<TcpStream> {
        let socket = sim::Socket::tcp_connect(&host.net, from, address)?;
        let stream = TcpStream {
            io: Behind::simulated_with(socket, stand_in),
        };
        stream.connected(address).await?;
        Ok(stream)
    }

    /// Connects a socket that is non-blocking; the caller spends budget.
    pub(super) async fn connect_socket(
        socket: Socket,
        address: SocketAddr,
    ) -> io::Result<TcpStream> {
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let stream = TcpStream::from_nonblocking(socket.into());
        stream.connected(address).await?;
        Ok(stream)
    }

    /// Waits until a pending connect has succeeded or failed.
    async fn connected(&self, address: SocketAddr) -> io::Result<()> {
        let outcome = |stream: &Behind<std::net::TcpStream>| match stream.take_error()? {
            Some(error) => Err(error),
            None => match stream.peer_addr() {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Err(error) => Err(error),
            },
        };
        let mut connected = pin!(self.io.io(Direction::Write, outcome));
        poll_fn(|cx| {
            let polled = connected.as_mut().poll(cx);
            if polled.is_pending() {
                noted::was_connect(self.io.descriptor(), || address.to_string());
            }
            polled
        })
        .await
    }

    /// A connection that was accepted just now.
    pub(super) fn accepted(
        (io, peer): (Registered<Behind<std::net::TcpStream>>, SocketAddr),
    ) -> (TcpStream, SocketAddr) {
        context::record_accept();
        (TcpStream { io }, peer)
    }

    fn from_nonblocking(stream: std::net::TcpStream) -> TcpStream {
        TcpStream {
            io: Behind::nonblocking(stream),
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

    /// Polls to read without consuming. It shares its waker with the reads of this stream: only the last
    /// task that polls is woken.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let peek = |stream: &Behind<std::net::TcpStream>| stream.peek(buf);
        self.io
            .poll_io_or(Direction::Read, cx, peek, |_| Short::No, || Ok(0))
    }

    /// Where a simulated socket keeps `TCP_NODELAY`.
    fn kept_nodelay(&self) -> Option<&AtomicBool> {
        match self.io.get_ref() {
            Behind::System(_) => None,
            Behind::Simulated(simulated) => Some(&simulated.nodelay),
        }
    }

    /// A simulated socket resets at its end as well, with a linger of zero.
    pub(super) fn note_linger(&self, linger: Option<Duration>) {
        if let Behind::Simulated(simulated) = self.io.get_ref() {
            simulated.socket.set_linger(linger);
        }
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(self.io.get_ref())
    }
}

tcp_options!(TcpStream);

impl OwnedReadHalf {
    /// Reads without consuming; the same as [`TcpStream::peek`].
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.as_ref().peek(buf).await
    }
}

fn stream_socket(address: SocketAddr) -> io::Result<Socket> {
    new_socket(Domain::for_address(address))
}

/// Creates a socket: not bound, not connected, non-blocking and close-on-exec.
pub(super) fn new_socket(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

descriptors!(TcpListener);
try_from_std!(TcpListener, std::net::TcpListener);
