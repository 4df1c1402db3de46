//! Unix domain streams and listeners.

use std::fmt;
use std::io;
use std::os::unix::net::{self, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::io::{AsyncRead, AsyncWrite};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::event_loop::handle::EventLoop;
use crate::event_loop::{budget, context};
use crate::io::interest::Interest;
use crate::io::registered::{Registered, Short};
use crate::io::waiter::Waiter;
use crate::net::address_error::cannot_bind;
use crate::net::backoff::Backoff;
use crate::net::behind::{self, Behind, path_of};
use crate::net::send::requested;
use crate::net::socket::{descriptors, socket, try_from_std};
use crate::net::stream::{end_of_stream, stream};
use crate::net::tcp::BACKLOG;
use crate::net::unix_addr::{ShownPath, from_path, to_sock_addr};
use crate::reactor::direction::Direction;
use crate::reactor::wait_list::Intent;
use crate::sim::{self, SimulatedHost};

/// A Unix domain stream.
///
/// Reads and writes use the traits of `futures::io`, implemented for the stream and for `&UnixStream`.
///
/// A write that waits for room is woken when the peer reads or closes the stream. Linux does not report
/// that the peer shut down its read half: the next write fails, but a write that already waits is not
/// woken.
///
/// # Examples
///
/// ```
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::net::UnixStream;
///
/// loopgroup::run(async {
///     let (mut one, mut other) = UnixStream::pair()?;
///     one.write_all(b"hello").await?;
///     drop(one);
///     let mut text = String::new();
///     other.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct UnixStream {
    io: Registered<Behind<net::UnixStream>>,
}

socket!(UnixStream, net::UnixStream);
stream!(
    UnixStream,
    net::UnixStream,
    SocketAddr,
    UnixOwnedReadHalf,
    UnixOwnedWriteHalf,
    Short::No
);

impl UnixStream {
    /// Connects to the listener at `path`; a path that begins with a zero byte is an abstract name.
    ///
    /// If the listener's backlog is full, the connect is retried, after 1 ms at first and at most 100
    /// ms: the system does not report when there is room.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `NotFound` or `ConnectionRefused`;
    /// `InvalidInput` for a zero byte within the path.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a pending connection attempt is abandoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UnixStream;
    /// use std::io::ErrorKind;
    ///
    /// let missing = loopgroup::run(UnixStream::connect("/nonexistent/socket"))?;
    /// assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        let address = from_path(path.as_ref())?;
        UnixStream::connect_addr(&address).await
    }

    /// Connects to the listener at `address`, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// The same as [`connect`](UnixStream::connect); `InvalidInput` for an unnamed address.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a pending connection attempt is abandoned.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::{UnixListener, UnixStream};
    /// use std::os::unix::net::SocketAddr;
    ///
    /// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-addr", std::process::id()));
    /// let address = SocketAddr::from_pathname(&path)?; // or an abstract name, on Linux
    /// loopgroup::run(async {
    ///     let listener = UnixListener::bind_addr(&address)?;
    ///     assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    ///     UnixStream::connect_addr(&address).await?;
    ///     std::fs::remove_file(&path)
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        // Before the socket is created: a task that retries without descriptors yields as well.
        budget::proceed_and_spend().await;
        if let Some(host) = behind::host() {
            return UnixStream::connect_simulated(&host, None, address).await;
        }
        let address = to_sock_addr(address)?;
        UnixStream::connect_socket(new_socket(Type::STREAM)?, address).await
    }

    /// Connects a socket that is non-blocking; the caller spends budget.
    pub(super) async fn connect_socket(
        socket: Socket,
        address: SockAddr,
    ) -> io::Result<UnixStream> {
        let mut backoff = Backoff::new();
        loop {
            match socket.connect(&address) {
                Ok(()) => break,
                // The backlog is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.wait().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(UnixStream {
            io: Behind::nonblocking(socket.into()),
        })
    }

    /// Connects a simulated socket, as [`connect_socket`](UnixStream::connect_socket) does.
    pub(super) async fn connect_simulated(
        host: &SimulatedHost,
        from: Option<PathBuf>,
        address: &SocketAddr,
    ) -> io::Result<UnixStream> {
        let path = path_of(address)?;
        let mut backoff = Backoff::new();
        loop {
            match sim::Socket::unix_connect(&host.net, from.clone(), path) {
                Ok(socket) => {
                    let io = Behind::simulated(socket);
                    return Ok(UnixStream { io });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.wait().await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates two streams that are connected to each other.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UnixStream;
    ///
    /// let (one, _other) = UnixStream::pair()?; // needs no loop before the first wait
    /// assert!(one.event_loop().is_none());
    /// let back: std::os::unix::net::UnixStream = one.into_std();
    /// let again = UnixStream::from_std(back)?;
    /// assert!(again.local_addr()?.is_unnamed());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        if let Some(host) = behind::host() {
            let (one, other) = sim::Socket::unix_pair(&host.net);
            let [one, other] = [one, other].map(Behind::simulated);
            return Ok((UnixStream { io: one }, UnixStream { io: other }));
        }
        let (one, other) = net::UnixStream::pair()?;
        Ok((UnixStream::from_std(one)?, UnixStream::from_std(other)?))
    }
}

/// A Unix domain listener.
///
/// Dropping it does not remove the socket file at its path.
///
/// # Examples
///
/// ```
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::net::{UnixListener, UnixStream};
///
/// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-listener", std::process::id()));
/// loopgroup::run(async {
///     let listener = UnixListener::bind(&path)?;
///     let mut client = UnixStream::connect(&path).await?;
///     let (mut server, _) = listener.accept().await?;
///     assert_eq!(client.peer_addr()?.as_pathname(), Some(&*path));
///     client.write_all(b"hello").await?;
///     drop(client);
///     let mut text = String::new();
///     server.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     std::fs::remove_file(&path) // not done by the drop
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct UnixListener {
    // mio's listener accepts a connection and makes it non-blocking in one system call.
    io: Registered<Behind<mio::net::UnixListener>>,
}

impl UnixListener {
    /// Listens at `path`, which must not exist yet; a path that begins with a zero byte is an abstract name
    /// (Linux), which needs no file.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `AddrInUse`, with the path; `InvalidInput` for
    /// a path that is too long, or for a zero byte within it.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        let path = path.as_ref();
        if let Some(host) = behind::host() {
            return UnixListener::listen_simulated(&host, path, BACKLOG);
        }
        let bound = from_path(path).and_then(|address| net::UnixListener::bind_addr(&address));
        UnixListener::from_std(bound.map_err(|error| cannot_bind(ShownPath(path), error))?)
    }

    /// Listens at `address`, which may be an abstract one (the standard library's `from_abstract_name`).
    ///
    /// # Errors
    ///
    /// The same as [`bind`](UnixListener::bind).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UnixListener;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-bind", std::process::id()));
    /// let listener = UnixListener::bind_addr(&SocketAddr::from_pathname(&path)?)?;
    /// assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        if let Some(host) = behind::host() {
            return UnixListener::listen_simulated(&host, path_of(address)?, BACKLOG);
        }
        let bound = net::UnixListener::bind_addr(address);
        UnixListener::from_std(
            bound.map_err(|error| cannot_bind(format_args!("{address:?}"), error))?,
        )
    }

    /// Listens on a path, or on an abstract name, with a socket that `prepare` has set options of.
    pub(super) fn listen(
        path: &Path,
        backlog: usize,
        prepare: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> io::Result<UnixListener> {
        if let Some(host) = behind::host() {
            return UnixListener::listen_simulated(&host, path, backlog);
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        prepare(&socket)?;
        let bound = SockAddr::unix(path).and_then(|address| socket.bind(&address));
        bound.map_err(|error| cannot_bind(path.display(), error))?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        UnixListener::from_std(socket.into())
    }

    /// Converts a standard library listener and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be made non-blocking.
    pub fn from_std(listener: net::UnixListener) -> io::Result<UnixListener> {
        listener.set_nonblocking(true)?;
        Ok(UnixListener {
            io: Behind::nonblocking(mio::net::UnixListener::from_std(listener)),
        })
    }

    fn listen_simulated(
        host: &SimulatedHost,
        path: &Path,
        backlog: usize,
    ) -> io::Result<UnixListener> {
        let bound = sim::Socket::unix_listen(&host.net, path, backlog);
        let bound = bound.map_err(|error| cannot_bind(path.display(), error))?;
        Ok(UnixListener::simulated(bound))
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.io.get_ref().is_simulated()
    }

    /// Wraps a simulated socket that listens.
    pub(super) fn simulated(socket: sim::Socket) -> UnixListener {
        let io = Behind::simulated(socket);
        UnixListener { io }
    }

    /// Converts into the standard library's listener, which stays non-blocking.
    pub fn into_std(self) -> net::UnixListener {
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
    /// # Errors
    ///
    /// Returns any error from the operating system; see
    /// [`TcpListener::accept`](crate::net::TcpListener::accept).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no connection is lost.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let accepted = self.io.io(Direction::Read, |listener| listener.accept());
        accepted.await.map(accepted_stream)
    }

    /// Tries to accept a connection, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise the same as [`accept`](UnixListener::accept).
    pub fn try_accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let accepted = self
            .io
            .try_io(Interest::READABLE, |listener| listener.accept());
        accepted.map(accepted_stream)
    }

    /// Polls for a connection; only the waker of the last call is woken.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::{UnixListener, UnixStream};
    /// use std::future::poll_fn;
    ///
    /// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-poll", std::process::id()));
    /// loopgroup::run(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let _client = UnixStream::connect(&path).await?;
    ///     poll_fn(|cx| listener.poll_accept(cx)).await?;
    ///     assert!(listener.event_loop().is_none()); // it has never had to wait
    ///     listener.into_std().set_nonblocking(false)?; // a std listener again
    ///     std::fs::remove_file(&path)
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        self.poll_accept_with(cx, |accept| accept())
    }

    /// As [`poll_accept`](UnixListener::poll_accept); `admit` calls the accept, or refuses to.
    pub(super) fn poll_accept_with<R>(
        &self,
        cx: &mut Context<'_>,
        mut admit: impl FnMut(&dyn Fn() -> io::Result<(UnixStream, SocketAddr)>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let accept = |listener: &Behind<mio::net::UnixListener>| {
            admit(&|| listener.accept().map(accepted_stream))
        };
        self.io.poll_io(Direction::Read, cx, accept, |_| Short::No)
    }

    /// Has the selector look for further connections.
    pub(super) fn look_again(&self) {
        self.io.look_again(Direction::Read);
    }

    /// Returns a stream of connections, which never ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::StreamExt;
    /// use loopgroup::net::{UnixListener, UnixStream};
    ///
    /// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-incoming", std::process::id()));
    /// loopgroup::run(async {
    ///     let listener = UnixListener::from_std(std::os::unix::net::UnixListener::bind(&path)?)?;
    ///     for _ in 0..2 {
    ///         UnixStream::connect(&path).await?;
    ///     }
    ///     let accepted = listener.incoming().take(2).filter(|one| std::future::ready(one.is_ok()));
    ///     assert_eq!(accepted.count().await, 2);
    ///     std::fs::remove_file(&path)
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming(Waiter::new(&self.io, Direction::Read, Intent::Observe))
    }

    /// Returns the loop that the listener is registered with, if any.
    pub fn event_loop(&self) -> Option<EventLoop> {
        self.io.event_loop()
    }
}

/// A connection that was accepted just now.
fn accepted_stream(
    (io, peer): (Registered<Behind<net::UnixStream>>, SocketAddr),
) -> (UnixStream, SocketAddr) {
    context::record_accept();
    (UnixStream { io }, peer)
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnixListener")
            .field(&self.local_addr())
            .finish()
    }
}

/// The connections of a [`UnixListener`] as a stream; any number of tasks may each poll one.
///
/// # Examples
///
/// ```
/// use futures::StreamExt;
/// use loopgroup::net::{UnixIncoming, UnixListener, UnixStream};
///
/// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-stream", std::process::id()));
/// loopgroup::run(async {
///     let listener = UnixListener::bind(&path)?;
///     let _client = UnixStream::connect(&path).await?;
///     let mut connections: UnixIncoming<'_> = listener.incoming();
///     assert!(connections.next().await.expect("the stream never ends").is_ok());
///     std::fs::remove_file(&path)
/// })??;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct UnixIncoming<'a>(Waiter<'a, Behind<mio::net::UnixListener>>);

impl Stream for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .poll_io(cx, &mut |listener| listener.accept())
            .map_ok(|accepted| accepted_stream(accepted).0)
            .map(Some)
    }
}

/// Creates a socket: not bound, not connected, non-blocking and close-on-exec.
pub(super) fn new_socket(kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, kind, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

descriptors!(UnixListener);
try_from_std!(UnixListener, net::UnixListener);
