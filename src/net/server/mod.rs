//! The boss/worker server bootstrap: acceptors, workers and shutdown.
//!
//! ```text
//!   boss loop                            worker loop
//!   acceptor: accept ─▶ next() ─▶ inbox ─▶ handler(stream, peer) ─▶ its future, a task of this loop
//!        │ stop(), or shutdown of the boss loop or of all workers: the listener closes first
//!        └ connection limit, no descriptors, a full queue: it waits; connections stay in the backlog
//! ```
//!
//! - An accepted connection ends in one of three ways, and the report counts each: its handler
//!   returned, its handler panicked or was cancelled, or no worker accepted it.
//! - The handler's future is created, polled and dropped on its worker loop; it need not be `Send`.
//! - The acceptor holds weak references to its groups: a server keeps no group alive.
//! - The server has ended when every acceptor and every connection is dropped; the last drop notifies the
//!   handles.

mod acceptor;
mod handle;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::Location;

use crate::error::Rejected;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::group::handle::EventLoopGroup;
use crate::net::TcpStream;
use crate::net::server::acceptor::{Acceptor, WorkerChoice};
use crate::net::server::handle::{ServerCore, ServerState};
use crate::net::tcp::{BACKLOG, TcpListener};
use crate::sync::Arc;

pub use handle::{ServerHandle, ServerReport};

/// Accepts TCP connections on one group and serves them on another.
///
/// A *boss* loop accepts; each connection is sent to the next loop of the *workers*, where the handler
/// creates its future, and stays there. Boss and workers may be the same group, of one loop or many.
///
/// An accept that fails for lack of descriptors or memory is retried after a short delay, without
/// limit; the failures are counted. A connection that the workers' bounded queues refuse is offered
/// again, and the acceptor waits until it is accepted: further connections wait in the system's
/// backlog.
///
/// The server ends by [`ServerHandle::stop`], or when a shutdown of the boss loop or of all workers is
/// requested: it then accepts no more connections, and open ones continue until their handlers return or
/// their loops end. It holds weak references to its groups: dropping the last handle of a group ends the
/// group, and the server with it.
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
pub struct Server {
    addresses: Vec<SocketAddr>,
    boss: Option<EventLoopGroup>,
    workers: Option<EventLoopGroup>,
    backlog: usize,
    max_connections: Option<usize>,
    reuse_port: bool,
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
        Ok(Server {
            addresses,
            boss: None,
            workers: None,
            backlog: BACKLOG,
            max_connections: None,
            reuse_port: false,
        })
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

    /// Sets the group that accepts, on its [`next`](EventLoopGroup::next) loop; the workers by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let (boss, workers) = (EventLoopGroup::new(1)?, EventLoopGroup::new(2)?);
    /// let server = Server::new("127.0.0.1:0")?
    ///     .boss(&boss)
    ///     .workers(&workers)
    ///     .serve(|_, _| async {})?;
    /// server.stop();
    /// assert_eq!(boss.block_on(server).accepted(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn boss(mut self, group: &EventLoopGroup) -> Server {
        self.boss = Some(group.clone());
        self
    }

    /// Sets the group that serves, with one [`next`](EventLoopGroup::next) per connection; the boss
    /// group by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(2)?; // accepts and serves
    /// Server::new("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn workers(mut self, group: &EventLoopGroup) -> Server {
        self.workers = Some(group.clone());
        self
    }

    /// Sets how many connections may wait to be accepted; 1024 by default. The system may allow fewer.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group);
    /// server.backlog(16).serve(|_, _| async {})?.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backlog(mut self, connections: usize) -> Server {
        self.backlog = connections;
        self
    }

    /// Limits how many connections may be open at a time; no limit by default.
    ///
    /// Connections above the limit wait in the backlog until an open one has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::io::AsyncReadExt;
    /// use loopgroup::{EventLoopGroup, net::{Server, TcpStream}};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .max_connections(1)
    ///     .serve(|stream, _| async move {
    ///         let _ = (&stream).read(&mut [0]).await; // until the peer closes
    ///     })?;
    /// group.block_on(async {
    ///     let first = TcpStream::connect(server.local_addr()).await?;
    ///     let second = TcpStream::connect(server.local_addr()).await?; // waits in the backlog
    ///     while server.accepted() < 1 {
    ///         loopgroup::yield_now().await;
    ///     }
    ///     assert_eq!(server.connections(), 1);
    ///     drop(first);
    ///     while server.accepted() < 2 {
    ///         loopgroup::yield_now().await; // until the second is accepted
    ///     }
    ///     drop(second);
    ///     server.stop();
    ///     std::io::Result::Ok(())
    /// })?;
    /// assert_eq!(group.block_on(server).completed(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn max_connections(mut self, connections: usize) -> Server {
        self.max_connections = Some(connections);
        self
    }

    /// Gives each worker loop its own listener (`SO_REUSEPORT`) and lets the system distribute the
    /// connections; each stays on the loop that accepted it. A loop that was shut down individually
    /// gets none.
    ///
    /// Connections then need no hop between loops, but neither the boss group nor a chooser is used,
    /// and the distribution is even only on average.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .reuse_port(true) // two listeners on one port
    ///     .serve(|_, _| async {})?;
    /// server.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn reuse_port(mut self, reuse: bool) -> Server {
        self.reuse_port = reuse;
        self
    }

    /// Starts to listen and to serve.
    ///
    /// `handler` is called on the worker loop for each connection, and the future it returns runs there.
    /// Dropping the returned handle detaches the server.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if no group is set, or a setting is 0; `Unsupported` for a group built
    /// `without_io`; `BrokenPipe` if one of the groups is shut down or shutting down; otherwise the
    /// operating system's error when it cannot bind, such as `AddrInUse`.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::{Server, TcpStream}};
    /// use std::cell::Cell;
    ///
    /// thread_local! { // a counter per loop, without a lock: handlers of one loop never run in parallel
    ///     static SERVED: Cell<u32> = const { Cell::new(0) };
    /// }
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|_stream, peer| async move {
    ///     SERVED.set(SERVED.get() + 1);
    ///     println!("{peer} is number {} here", SERVED.get());
    /// })?;
    /// group.block_on(TcpStream::connect(server.local_addr()))?;
    /// # while server.accepted() < 1 { std::thread::yield_now() }
    /// server.stop();
    /// assert_eq!(group.block_on(server).completed(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn serve<H, F>(self, handler: H) -> io::Result<ServerHandle>
    where
        H: Fn(TcpStream, SocketAddr) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + 'static,
    {
        let location = Location::caller();
        let (boss, workers) = self.groups()?;
        if self.backlog == 0 {
            return Err(invalid(
                "backlog(0): at least one connection has to be able to wait",
            ));
        }
        if self.max_connections == Some(0) {
            return Err(invalid(
                "max_connections(0) would serve no connection: omit the call for no limit",
            ));
        }
        let (acceptor_loops, workers): (Vec<EventLoop>, _) = if self.reuse_port {
            (open_loops(&workers), WorkerChoice::AcceptingLoop)
        } else {
            (vec![boss.next().clone()], WorkerChoice::next_of(&workers))
        };
        let listeners = self.listeners(acceptor_loops.len())?;
        let local_addr = listeners[0].local_addr()?;
        let state = Arc::new(ServerState::new(local_addr, self.max_connections));
        let core = Arc::new(ServerCore::new(handler, Arc::clone(&state), location));
        for (acceptor_loop, listener) in acceptor_loops.iter().zip(listeners) {
            let acceptor = Acceptor {
                listener,
                workers: workers.clone(),
                core: Arc::clone(&core),
            };
            let (lane, urgency) = (Lane::Main, Urgency::Now);
            let run = acceptor.run();
            if let Err(rejected) = acceptor_loop.offer(run, |run| run, lane, urgency, location) {
                let reason = rejected.reason();
                acceptor_loop.shared().note_refusal(reason, location);
                state.stop(); // stops the acceptors that already run
                let error = io::Error::from(Rejected::new((), reason));
                let text = format!("the group that should accept for the server refuses: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
        }
        Ok(ServerHandle::new(state))
    }

    /// Returns the groups that accept and serve, checked for I/O and shutdown.
    fn groups(&self) -> io::Result<(EventLoopGroup, EventLoopGroup)> {
        let ((boss, accepts), (workers, serves)) = match (&self.boss, &self.workers) {
            (Some(boss), Some(workers)) => ((boss, "boss"), (workers, "workers")),
            (Some(one), None) => ((one, "boss"), (one, "boss")),
            (None, Some(one)) => ((one, "workers"), (one, "workers")),
            (None, None) => {
                return Err(invalid(
                    "a server needs loops: call workers(&group) before serve",
                ));
            }
        };
        for (group, role) in [(boss, accepts), (workers, serves)] {
            if !group.has_io() {
                let text = format!(
                    "the {role} group was built without_io and cannot wait for sockets: give the server \
                     a group with I/O, and let its handlers send work to this one"
                );
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            if group.is_shutting_down() {
                let text =
                    format!("the {role} group is shut down: give the server one that is not");
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
            }
        }
        Ok((boss.clone(), workers.clone()))
    }

    /// Binds `count` listeners to one port of the first address that can be bound.
    fn listeners(&self, count: usize) -> io::Result<Vec<TcpListener>> {
        let mut last = None;
        for &address in &self.addresses {
            let first = TcpListener::listen(address, self.backlog, self.reuse_port);
            match first.and_then(|first| self.share_port(first, count)) {
                Ok(listeners) => return Ok(listeners),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is at least one address"))
    }

    fn share_port(&self, first: TcpListener, count: usize) -> io::Result<Vec<TcpListener>> {
        // With port 0, the system chose the port when the first listener was bound.
        let address = first.local_addr()?;
        let mut listeners = vec![first];
        while listeners.len() < count {
            listeners.push(TcpListener::listen(address, self.backlog, true)?);
        }
        Ok(listeners)
    }
}

/// Returns the loops that are not shutting down, as `next()` would choose them. If there are none,
/// returns all loops: these refuse the acceptor with the reason.
fn open_loops(group: &EventLoopGroup) -> Vec<EventLoop> {
    let is_open = |one: &&EventLoop| !one.state().is_shutting_down();
    let open: Vec<_> = group.loops().iter().filter(is_open).cloned().collect();
    if open.is_empty() {
        return group.loops().to_vec();
    }
    open
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
