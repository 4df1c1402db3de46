//! The boss/worker server.
//!
//! ```text
//!   boss loop                            worker loop
//!   acceptor: accept ─▶ next() ─▶ inbox ─▶ handler(stream, peer) ─▶ its future, a task of this loop
//!        │ stop(), or shutdown of the boss loop or of all workers: the listener closes first
//!        └ limit, rate, no descriptors, a full queue: it waits; connections stay in the backlog
//! ```
//!
//! - An accepted connection ends in one of four ways, and the report counts each: its handler
//!   returned, returned an error, was ended by force or by a panic, or no worker accepted the connection.
//! - With `serve_turns` a connection is a state and a sequence of turns, each a future of its own; between
//!   two turns it may move to another loop.
//! - The handler's future is created, polled and dropped on its worker loop; it need not be `Send`.
//! - The acceptor holds weak references to its groups: a server keeps no group alive.
//! - The server has ended when every acceptor, connection and handler is dropped; the last drop notifies the
//!   handles.
//!
//! `settings` is what a user writes, and `start` checks it. `listener` is what differs between TCP and Unix
//! sockets, `acceptor` accepts and distributes. `connection` is one connection; `handlers`, `hooks`,
//! `limits` and `open` are what it needs. `turns` is one that is served by turns: `turn` is what a turn
//! returns. `legs` is one whose handler is called anew on each loop. `transit` is how both move, `mobile` how
//! they are asked to; `rebalance` decides when, and `balancer` measures for it.
//! `state`, `handle` and `report` are the counts and events, and how they are seen.

mod acceptor;
mod backlog;
mod balancer;
mod connection;
mod handle;
mod handlers;
mod hooks;
#[cfg(feature = "hyper")]
mod legs;
mod limits;
mod listener;
pub(crate) mod mobile;
mod open;
mod outcome;
#[cfg(feature = "inspect")]
pub(crate) mod probe;
mod rebalance;
mod report;
mod settings;
mod start;
mod state;
mod transit;
mod turn;
mod turns;

use std::io;
use std::net::ToSocketAddrs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use crate::group::handle::EventLoopGroup;
use crate::net::server::hooks::ServerHooks;
use crate::net::server::limits::TimeLimits;
use crate::net::server::listener::{ListenSettings, invalid};
use crate::net::tcp::TcpListener;
use crate::net::unix::UnixListener;
use crate::sync::{Arc, AtomicU64};

pub use handle::ServerHandle;
pub use hooks::{ConnectionEnd, ConnectionEvent, ServeError};
#[cfg(feature = "hyper")]
pub(crate) use legs::{LegEnd, LegStart, Mover};
pub use listener::{IntoListener, Listener};
pub use outcome::Outcome;
pub use rebalance::Rebalance;
pub use report::ServerReport;
pub use turn::{Turn, TurnOutcome};

/// Accepts connections on one group and serves them on another.
///
/// A *boss* loop accepts; each connection is sent to the next loop of the *workers*, where the handler
/// creates its future, and stays there. Boss and workers may be the same group, of one loop or many.
///
/// An accept that fails for lack of descriptors or memory is retried after a short delay, without
/// limit; the failures are counted. A connection that the workers' bounded queues reject is offered
/// again, and the acceptor waits until it is accepted: further connections wait in the system's
/// backlog.
///
/// The server ends by [`ServerHandle::stop`], or when a shutdown of the boss loop or of all workers is
/// requested: it then accepts no more connections, and open ones continue until their handlers return or
/// their loops end. It holds weak references to its groups: dropping the last handle of a group ends the
/// group, and the server with it.
///
/// When the shutdown of a worker loop begins, the reads of its connections end: a read first returns all
/// that has arrived, and then, where it would have to wait, the end of the stream. Writes are not affected.
/// So a handler that reads until the end answers what it has read and returns, and a server with idle
/// clients drains at once. See [`end_reads_on_shutdown`](Server::end_reads_on_shutdown).
///
/// `L` is the kind of listener: `Server` alone means TCP, [`Server::unix`] is a `Server<UnixListener>`.
///
/// # Examples
///
/// ```
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::EventLoopGroup;
/// use loopgroup::net::{Server, TcpStream};
///
/// let boss = EventLoopGroup::new(1)?;
/// let workers = EventLoopGroup::new(2)?;
/// let server = Server::new("127.0.0.1:0")?
///     .boss(&boss)
///     .workers(&workers)
///     .max_connections(1000)
///     .serve(|stream, _peer| async move {
///         let _ = futures::io::copy(&stream, &mut &stream).await; // until the peer closes
///     })?;
///
/// let address = server.local_addr();
/// let echo = workers.block_on(async move {
///     let mut stream = TcpStream::connect(address).await?;
///     stream.write_all(b"hello").await?;
///     stream.close().await?;
///     let mut echo = String::new();
///     stream.read_to_string(&mut echo).await?;
///     std::io::Result::Ok(echo)
/// })?;
/// assert_eq!(echo, "hello");
///
/// server.stop();
/// let report = workers.block_on(server);
/// assert_eq!((report.accepted(), report.completed()), (1, 1));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "a server does nothing until serve"]
pub struct Server<L: Listener = TcpListener> {
    source: ListenerSource<L>,
    boss: Option<EventLoopGroup>,
    workers: Option<EventLoopGroup>,
    listen: ListenSettings,
    max_connections: Option<usize>,
    accept_rate: Option<u32>,
    limits: TimeLimits,
    end_reads: bool,
    rebalance: Option<Rebalance>,
    hooks: ServerHooks,
    service_panics: Arc<AtomicU64>,
}

/// Where the listener comes from.
#[derive(Debug)]
enum ListenerSource<L: Listener> {
    /// `serve` creates it.
    Bind(L::Place),
    Existing(Existing<L>),
}

/// A listener that the server did not create.
struct Existing<L>(L);

impl<L> std::fmt::Debug for Existing<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an existing listener")
    }
}

impl Server {
    /// Sets the addresses to listen on, of which the first that can be bound is used. Port 0 lets the
    /// system choose.
    ///
    /// [`serve`](Server::serve) creates the socket. A host name is resolved by this call, on this thread.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid address, otherwise the operating system's error for the host name.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::Server;
    ///
    /// let server = Server::new("127.0.0.1:0")?; // serve() binds the socket
    /// assert!(Server::new("no port").is_err());
    /// # drop(server);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new(address: impl ToSocketAddrs) -> io::Result<Server> {
        let addresses: Vec<_> = address
            .to_socket_addrs()
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot tell where to listen: {error} (expected \"host:port\")"),
                )
            })?
            .collect();
        if addresses.is_empty() {
            return Err(invalid(
                "there is no address to listen on: the list is empty",
            ));
        }
        Ok(Server::of(ListenerSource::Bind(addresses)))
    }

    /// As [`Server::new`]: it has never bound anything.
    ///
    /// # Errors
    ///
    /// As [`Server::new`].
    #[deprecated(
        since = "0.1.0",
        note = "renamed to `Server::new`: the socket is bound by `serve`"
    )]
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Server> {
        Server::new(address)
    }

    /// Serves the connections of an existing listener: of this crate or of the standard library, for TCP or
    /// for Unix sockets.
    ///
    /// Its options stay as they are, except those that are set by a method of the server: `nodelay`, which is
    /// on by default for a socket that the server binds, is not changed here. [`backlog`](Server::backlog)
    /// and [`reuse_port`](Server::reuse_port) come too late for it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the socket does not listen; the error of the system if it cannot be made
    /// non-blocking.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let server = Server::from_listener(listener)?.workers(&group).serve(|_, _| async {})?;
    /// assert_eq!(server.local_addr(), address);
    /// server.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_listener<S: IntoListener>(listener: S) -> io::Result<Server<S::Listener>> {
        listener.check()?;
        let listener = listener.into_listener()?;
        Ok(Server::of(ListenerSource::Existing(Existing(listener))))
    }

    /// Serves the connections of a TCP listener that another process has created: a service manager, or the
    /// former instance of this program.
    ///
    /// How a descriptor is inherited is the business of the process that passes it. In safe code only
    /// standard input can be taken over: see [`from_stdin`](Server::from_stdin). For descriptors that the
    /// variable `LISTEN_FDS` announces (systemd), the crate `listenfd` has listeners of the standard
    /// library: `Server::from_listener(ListenFd::from_env().take_tcp_listener(0)?.unwrap())`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is not a socket, not a TCP socket, or does not listen; the message says which.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    /// use std::net::{TcpListener, UdpSocket};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let fd = TcpListener::bind("127.0.0.1:0")?.into();
    /// Server::from_fd(fd)?.workers(&group).serve(|_, _| async {})?.stop();
    ///
    /// let error = Server::from_fd(UdpSocket::bind("127.0.0.1:0")?.into()).unwrap_err();
    /// assert!(error.to_string().contains("datagram"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_fd(fd: OwnedFd) -> io::Result<Server> {
        let listener = listener::tcp_listener(fd)?;
        Ok(Server::of(ListenerSource::Existing(Existing(listener))))
    }

    /// Serves the connections of a TCP listener that is the standard input of this process.
    ///
    /// This is how a listener is passed between processes without `unsafe`, and without an agreement on a
    /// number: the parent calls [`Command::stdin`](std::process::Command::stdin) with a clone of its
    /// listener, and the connections that wait in the backlog wait for the child as well. systemd does the
    /// same for a service with `StandardInput=socket`. The example `handover` replaces its own process in
    /// this way.
    ///
    /// # Errors
    ///
    /// Those of [`from_fd`](Server::from_fd), such as `InvalidInput` if standard input is a terminal.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// // Started by a service manager or a former instance, or by hand.
    /// let server = match Server::from_stdin() {
    ///     Ok(server) => server,
    ///     Err(_) => Server::new("127.0.0.1:8080")?,
    /// };
    /// let server = server.workers(&group).serve(|_, _| async {})?;
    /// # drop(server);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_stdin() -> io::Result<Server> {
        Server::from_fd(std::io::stdin().as_fd().try_clone_to_owned()?)
    }
}

impl Server<UnixListener> {
    /// Sets the path to listen on. On Linux, a path that begins with a zero byte is an abstract name.
    ///
    /// [`serve`](Server::serve) creates the socket, and the file with it. A file that exists already, for
    /// example because a former process did not remove it, is the error `AddrInUse`: remove it first. The
    /// server does not remove the file at its end.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::io::{AsyncReadExt, AsyncWriteExt};
    /// use loopgroup::{EventLoopGroup, net::{Server, UnixStream}};
    ///
    /// let path = std::env::temp_dir().join(format!("loopgroup-doc-{}-server", std::process::id()));
    /// let group = EventLoopGroup::new(2)?;
    /// let server = Server::unix(&path).workers(&group).serve(|mut stream, _| async move {
    ///     stream.write_all(b"hello").await // a UnixStream
    /// })?;
    /// assert_eq!(server.local_addr().as_pathname(), Some(path.as_path()));
    /// let text = group.block_on(async {
    ///     let mut text = String::new();
    ///     UnixStream::connect(&path).await?.read_to_string(&mut text).await?;
    ///     std::io::Result::Ok(text)
    /// })?;
    /// assert_eq!(text, "hello");
    /// server.stop();
    /// std::fs::remove_file(&path)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn unix(path: impl Into<PathBuf>) -> Server<UnixListener> {
        Server::of(ListenerSource::Bind(path.into()))
    }

    /// As [`Server::from_fd`], for a Unix listener.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is not a socket, not a Unix stream socket, or does not listen.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::Server;
    ///
    /// let tcp = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// assert!(Server::unix_from_fd(tcp.into()).unwrap_err().to_string().contains("from_fd"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn unix_from_fd(fd: OwnedFd) -> io::Result<Server<UnixListener>> {
        let listener = listener::unix_listener(fd)?;
        Ok(Server::of(ListenerSource::Existing(Existing(listener))))
    }
}

impl<L: Listener> Server<L> {
    /// Has the report show panics that the handlers' service counts here.
    #[cfg(feature = "hyper")]
    pub(crate) fn count_service_panics(mut self, panics: Arc<AtomicU64>) -> Server<L> {
        self.service_panics = panics;
        self
    }

    fn of(source: ListenerSource<L>) -> Server<L> {
        Server {
            source,
            boss: None,
            workers: None,
            listen: ListenSettings::default(),
            max_connections: None,
            accept_rate: None,
            limits: TimeLimits::default(),
            end_reads: true,
            rebalance: None,
            hooks: ServerHooks::default(),
            service_panics: Arc::default(),
        }
    }
}
