//! What a server needs of a listener: TCP and Unix sockets differ here, and nowhere else.
//!
//! - Options of connections are set on the listener, before it listens: the system copies them to each
//!   connection, so they cost nothing per connection. (A receive buffer must be set there anyway: its size
//!   decides on the window that the handshake offers.)
//! - A listener that the server did not bind keeps its options, except those that were asked for: it may be
//!   shared with another process.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::io::control::Control;
use crate::net::option_values::whole_seconds;
use crate::net::tcp::{BACKLOG, TcpListener, TcpStream};
use crate::net::unix::{UnixListener, UnixStream};

/// A listener that a [`Server`](super::Server) accepts from: [`TcpListener`] or [`UnixListener`].
///
/// It decides what handlers are called with: a [`TcpStream`] and a [`std::net::SocketAddr`], or a
/// [`UnixStream`] and a [`std::os::unix::net::SocketAddr`]. The trait is sealed.
///
/// # Examples
///
/// ```
/// use loopgroup::net::{Listener, Server, TcpListener};
///
/// fn limited<L: Listener>(server: Server<L>) -> Server<L> {
///     server.max_connections(1000).backlog(128)
/// }
/// let server: Server<TcpListener> = limited(Server::new("127.0.0.1:0")?); // the same as `Server`
/// # drop(server);
/// # std::io::Result::Ok(())
/// ```
pub trait Listener: Sealed {}

impl Listener for TcpListener {}
impl Listener for UnixListener {}

/// A socket that [`Server::from_listener`](super::Server::from_listener) takes: a [`TcpListener`] or a
/// [`UnixListener`], of this crate or of the standard library. The trait is sealed.
///
/// # Examples
///
/// ```
/// use loopgroup::net::{IntoListener, Server, TcpListener};
///
/// fn serve_on<S: IntoListener<Listener = TcpListener>>(socket: S) -> std::io::Result<Server> {
///     Server::from_listener(socket)
/// }
/// let server = serve_on(std::net::TcpListener::bind("127.0.0.1:0")?)?;
/// # drop(server);
/// # std::io::Result::Ok(())
/// ```
pub trait IntoListener: IntoSealed {}

impl<T: IntoSealed> IntoListener for T {}

/// The conversion behind [`IntoListener`].
pub trait IntoSealed: AsFd {
    /// What it is converted into.
    type Listener: Listener;
    #[doc(hidden)]
    fn into_listener(self) -> io::Result<Self::Listener>;
    /// Checks that it listens.
    #[doc(hidden)]
    fn check(&self) -> io::Result<()>
    where
        Self: Sized,
    {
        check_listening(self)
    }
}

impl IntoSealed for TcpListener {
    type Listener = TcpListener;

    fn into_listener(self) -> io::Result<TcpListener> {
        Ok(self)
    }

    fn check(&self) -> io::Result<()> {
        match self.is_simulated() {
            true => Ok(()), // there is no other kind
            false => check_listening(self),
        }
    }
}

impl IntoSealed for std::net::TcpListener {
    type Listener = TcpListener;

    fn into_listener(self) -> io::Result<TcpListener> {
        TcpListener::from_std(self)
    }
}

impl IntoSealed for UnixListener {
    type Listener = UnixListener;

    fn into_listener(self) -> io::Result<UnixListener> {
        Ok(self)
    }

    fn check(&self) -> io::Result<()> {
        match self.is_simulated() {
            true => Ok(()), // there is no other kind
            false => check_listening(self),
        }
    }
}

impl IntoSealed for unix::UnixListener {
    type Listener = UnixListener;

    fn into_listener(self) -> io::Result<UnixListener> {
        UnixListener::from_std(self)
    }
}

/// The operations behind [`Listener`].
pub trait Sealed: AsFd + Sized + Send + Sync + 'static {
    /// What an accept returns.
    type Stream: Send + 'static;
    /// The address of a peer, and of the listener itself.
    type Addr: Clone + fmt::Debug + Send + Sync + 'static;
    /// Where to listen, before there is a socket.
    #[doc(hidden)]
    type Place: fmt::Debug;
    #[doc(hidden)]
    fn listen(
        place: &Self::Place,
        settings: &ListenSettings,
        count: usize,
    ) -> io::Result<Vec<Self>>;
    #[doc(hidden)]
    fn address(&self) -> io::Result<Self::Addr>;
    #[doc(hidden)]
    fn poll_admit<R>(
        &self,
        cx: &mut Context<'_>,
        admit: impl FnMut(&dyn Fn() -> io::Result<(Self::Stream, Self::Addr)>) -> io::Result<R>,
    ) -> Poll<io::Result<R>>;
    /// Has the selector look for further connections, so that no accept has to.
    #[doc(hidden)]
    fn look_again(&self);
    #[doc(hidden)]
    fn control(stream: &Self::Stream) -> Control;
    #[doc(hidden)]
    fn register(stream: &Self::Stream) -> io::Result<()>;
    /// Registers a stream with no loop.
    #[doc(hidden)]
    fn detach(stream: &mut Self::Stream);
    /// Waits for bytes, the end of the stream or an error, without reading.
    #[doc(hidden)]
    fn poll_arrival(stream: &Self::Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Has the selector look for bytes that were not read.
    #[doc(hidden)]
    fn look_for_more(stream: &Self::Stream);
    #[doc(hidden)]
    fn peer(address: &Self::Addr) -> Option<SocketAddr>;
}

impl Sealed for TcpListener {
    type Stream = TcpStream;
    type Addr = SocketAddr;
    type Place = Vec<SocketAddr>;

    /// Binds `count` listeners to one port of the first address that can be bound.
    fn listen(
        place: &Vec<SocketAddr>,
        settings: &ListenSettings,
        count: usize,
    ) -> io::Result<Vec<TcpListener>> {
        let backlog = settings.backlog.unwrap_or(BACKLOG);
        let prepare = |socket: &Socket| {
            settings
                .options
                .with_defaults()
                .apply(&SockRef::from(socket))
        };
        let bind_all = |address: SocketAddr| {
            let first = TcpListener::listen(address, backlog, settings.reuse_port, prepare)?;
            // With port 0, the system has chosen the port now.
            let address = first.local_addr()?;
            let mut listeners = vec![first];
            while listeners.len() < count {
                listeners.push(TcpListener::listen(
                    address,
                    backlog,
                    settings.reuse_port,
                    prepare,
                )?);
            }
            Ok(listeners)
        };
        let mut last = None;
        for &address in place {
            match bind_all(address) {
                Ok(listeners) => return Ok(listeners),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is at least one address"))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn poll_admit<R>(
        &self,
        cx: &mut Context<'_>,
        admit: impl FnMut(&dyn Fn() -> io::Result<(TcpStream, SocketAddr)>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_accept_with(cx, admit)
    }

    fn look_again(&self) {
        self.look_again();
    }

    fn control(stream: &TcpStream) -> Control {
        stream.control()
    }

    fn register(stream: &TcpStream) -> io::Result<()> {
        stream.register()
    }

    fn detach(stream: &mut TcpStream) {
        stream.detach();
    }

    fn poll_arrival(stream: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        stream.poll_read_ready(cx)
    }

    fn look_for_more(stream: &TcpStream) {
        stream.look_again();
    }

    fn peer(address: &SocketAddr) -> Option<SocketAddr> {
        Some(*address)
    }
}

impl Sealed for UnixListener {
    type Stream = UnixStream;
    type Addr = unix::SocketAddr;
    type Place = PathBuf;

    fn listen(
        place: &PathBuf,
        settings: &ListenSettings,
        _count: usize,
    ) -> io::Result<Vec<UnixListener>> {
        let backlog = settings.backlog.unwrap_or(BACKLOG);
        let prepare = |socket: &Socket| settings.options.apply(&SockRef::from(socket));
        let path: &Path = place;
        Ok(vec![UnixListener::listen(path, backlog, prepare)?])
    }

    fn address(&self) -> io::Result<unix::SocketAddr> {
        self.local_addr()
    }

    fn poll_admit<R>(
        &self,
        cx: &mut Context<'_>,
        admit: impl FnMut(&dyn Fn() -> io::Result<(UnixStream, unix::SocketAddr)>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_accept_with(cx, admit)
    }

    fn look_again(&self) {
        self.look_again();
    }

    fn control(stream: &UnixStream) -> Control {
        stream.control()
    }

    fn register(stream: &UnixStream) -> io::Result<()> {
        stream.register()
    }

    fn detach(stream: &mut UnixStream) {
        stream.detach();
    }

    fn poll_arrival(stream: &UnixStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        stream.poll_read_ready(cx)
    }

    fn look_for_more(stream: &UnixStream) {
        stream.look_again();
    }

    fn peer(_address: &unix::SocketAddr) -> Option<SocketAddr> {
        None
    }
}

/// How to listen.
#[derive(Clone, Debug, Default)]
pub struct ListenSettings {
    pub(super) backlog: Option<usize>,
    pub(super) reuse_port: bool,
    pub(super) options: SocketOptions,
}

/// Options that connections inherit from their listener; `None` leaves the system's setting.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketOptions {
    pub(super) nodelay: Option<bool>,
    pub(super) keepalive: Option<Duration>,
    pub(super) send_buffer: Option<usize>,
    pub(super) recv_buffer: Option<usize>,
}

impl SocketOptions {
    /// The options of a TCP listener that the server binds.
    fn with_defaults(&self) -> SocketOptions {
        SocketOptions {
            nodelay: Some(self.nodelay.unwrap_or(true)),
            ..self.clone()
        }
    }

    pub(super) fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        if let Some(nodelay) = self.nodelay {
            socket.set_tcp_nodelay(nodelay)?;
        }
        if let Some(idle) = self.keepalive {
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(whole_seconds(idle)))?;
        }
        if let Some(bytes) = self.send_buffer {
            socket.set_send_buffer_size(bytes.min(i32::MAX as usize))?;
        }
        if let Some(bytes) = self.recv_buffer {
            socket.set_recv_buffer_size(bytes.min(i32::MAX as usize))?;
        }
        Ok(())
    }
}

/// Takes a descriptor for a TCP listener, after checks.
pub(super) fn tcp_listener(fd: OwnedFd) -> io::Result<TcpListener> {
    let domain = stream_domain(&fd)?;
    if domain == Domain::UNIX {
        return Err(invalid(
            "this descriptor is a Unix socket: use Server::unix_from_fd",
        ));
    }
    if domain != Domain::IPV4 && domain != Domain::IPV6 {
        return Err(invalid("this descriptor is not a TCP socket"));
    }
    let listener = TcpListener::from_std(Socket::from(fd).into())?;
    check_listening(&listener)?;
    Ok(listener)
}

/// Takes a descriptor for a Unix listener, after checks.
pub(super) fn unix_listener(fd: OwnedFd) -> io::Result<UnixListener> {
    if stream_domain(&fd)? != Domain::UNIX {
        return Err(invalid(
            "this descriptor is not a Unix socket: use Server::from_fd for TCP",
        ));
    }
    let listener = UnixListener::from_std(Socket::from(fd).into())?;
    check_listening(&listener)?;
    Ok(listener)
}

/// Returns the domain of a stream socket.
fn stream_domain(fd: &OwnedFd) -> io::Result<Domain> {
    let socket = SockRef::from(fd);
    let kind = socket.r#type().map_err(|error| {
        let text = format!("this descriptor is not a socket: {error}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    if kind != Type::STREAM {
        let what = match kind {
            Type::DGRAM => "a datagram socket, which has no connections",
            _ => "not a stream socket",
        };
        return Err(invalid(&format!(
            "this descriptor is {what}: a server needs a listening TCP or Unix stream socket"
        )));
    }
    Ok(socket.local_addr()?.domain())
}

/// Checks that a socket listens: otherwise every accept would fail.
pub(super) fn check_listening(socket: &impl AsFd) -> io::Result<()> {
    if is_listening(socket)? {
        return Ok(());
    }
    Err(invalid(
        "this socket does not listen: call listen on it first, or let Server::new bind one",
    ))
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn is_listening(socket: &impl AsFd) -> io::Result<bool> {
    SockRef::from(socket).is_listener()
}

/// The system cannot be asked: the first accept tells.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn is_listening(_socket: &impl AsFd) -> io::Result<bool> {
    Ok(true)
}

pub(super) fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
