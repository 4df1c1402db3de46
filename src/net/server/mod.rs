//! The boss/worker bootstrap: who accepts, who serves, and how that ends.
//!
//! ```text
//!   boss loop                            worker loop
//!   acceptor: accept ─▶ next() ─▶ inbox ─▶ handler(stream, peer) ─▶ its future, a task of this loop
//!        │ stop(), or shutdown of the boss loop or of all workers: the listener closes first
//!        └ no room, no descriptors, a full queue: it waits; connections wait in the backlog
//! ```
//!
//! - A connection that was accepted ends in one of three ways, and the report counts each: its handler
//!   returned, its handler panicked or was cancelled, or no worker took it.
//! - The handler's future is made, polled and dropped on its worker loop; it need not be `Send`.
//! - The acceptor holds its groups weakly: a server keeps nothing alive.
//! - The server has ended when every acceptor and every connection is gone. Who is gone last says so.

mod acceptor;
mod handle;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::Location;

use crate::error::Rejected;
use crate::event_loop::handle::EventLoop;
use crate::group::handle::EventLoopGroup;
use crate::net::TcpStream;
use crate::net::server::acceptor::{Acceptor, Placement};
use crate::net::server::handle::{Host, State};
use crate::net::tcp::{BACKLOG, TcpListener};
use crate::sync::Arc;

pub use handle::{ServerHandle, ServerReport};

/// Accepts TCP connections on one group and serves them on another.
///
/// A *boss* loop accepts; each connection goes to the next loop of the *workers*, where the handler makes
/// its future, and stays there. Boss and workers may be one group, of one loop or of many.
///
/// An accept that fails for want of descriptors or memory is tried again a little later, for ever; the
/// failures are counted. A connection that the workers' bounded queues refuse is offered again, and the
/// acceptor waits with it: whoever comes next waits in the system's backlog.
///
/// The server ends by [`ServerHandle::stop`], or when the boss loop or all workers are asked to shut down:
/// then it accepts no more, and connections go on until their handlers return or their loops end. It holds
/// its groups weakly: drop the last handle of a group, and the group ends, and the server with it.
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
/// let server = Server::bind("127.0.0.1:0")?
///     .boss(&boss)
///     .workers(&workers)
///     .max_connections(1000)
///     .serve(|stream, _peer| async move {
///         let _ = futures::io::copy(&stream, &mut &stream).await; // until the peer is done
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
    /// Notes where to listen: the first of these addresses that can be bound. Port 0 lets the system choose.
    ///
    /// The socket is made by [`serve`](Server::serve). A host name is looked up here and now, on this thread.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for what is no address, else what the system says about the name.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::Server;
    ///
    /// let server = Server::bind("127.0.0.1:0")?; // nothing is bound before serve
    /// assert!(Server::bind("no port").is_err());
    /// # drop(server);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Server> {
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

    /// Sets the group that accepts, on [`next`](EventLoopGroup::next) of its loops; the workers, if it is
    /// not set.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let (boss, workers) = (EventLoopGroup::new(1)?, EventLoopGroup::new(2)?);
    /// let server = Server::bind("127.0.0.1:0")?
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

    /// Sets the group that serves: one [`next`](EventLoopGroup::next) per connection; the boss, if it is not
    /// set.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(2)?; // accepts and serves
    /// Server::bind("127.0.0.1:0")?.workers(&group).serve(|_, _| async {})?.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn workers(mut self, group: &EventLoopGroup) -> Server {
        self.workers = Some(group.clone());
        self
    }

    /// Sets how many connections may wait to be accepted, 1024 by default; the system may allow fewer.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::bind("127.0.0.1:0")?.workers(&group);
    /// server.backlog(16).serve(|_, _| async {})?.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backlog(mut self, connections: usize) -> Server {
        self.backlog = connections;
        self
    }

    /// Sets how many connections may be open at a time, without limit by default.
    ///
    /// Those above it wait in the backlog until one of the others has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::io::AsyncReadExt;
    /// use loopgroup::{EventLoopGroup, net::{Server, TcpStream}};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::bind("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .max_connections(1)
    ///     .serve(|stream, _| async move {
    ///         let _ = (&stream).read(&mut [0]).await; // until the peer is gone
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
    ///         loopgroup::yield_now().await; // its turn has come
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

    /// Gives each worker loop a listener of its own (`SO_REUSEPORT`), and lets the system spread the
    /// connections; each stays on the loop that accepted it. A loop that was shut down alone gets none.
    ///
    /// There is no hop between loops then, and no say in who serves: neither boss nor chooser is asked, and
    /// the spread is even only on average.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let server = Server::bind("127.0.0.1:0")?
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
    /// `handler` is called on the worker loop for each connection, and the future it makes runs there.
    /// Dropping the handle that this returns detaches the server.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no group, or a figure is 0; `Unsupported` for a group built `without_io`;
    /// `BrokenPipe` if one of the groups is shut down, or was asked to; else what the system says when it
    /// cannot bind, as `AddrInUse`.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::{Server, TcpStream}};
    /// use std::cell::Cell;
    ///
    /// thread_local! { // a counter per loop, without a lock: handlers of one loop never run at once
    ///     static SERVED: Cell<u32> = const { Cell::new(0) };
    /// }
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::bind("127.0.0.1:0")?.workers(&group).serve(|_stream, peer| async move {
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
                "max_connections(0) would serve nobody: leave it out for no limit",
            ));
        }
        let (homes, placement): (Vec<EventLoop>, _) = if self.reuse_port {
            (accepting(&workers), Placement::Here)
        } else {
            (vec![boss.next().clone()], Placement::next_of(&workers))
        };
        let listeners = self.listeners(homes.len())?;
        let state = Arc::new(State::new(listeners[0].local_addr()?, self.max_connections));
        let host = Arc::new(Host::new(handler, Arc::clone(&state), location));
        for (home, listener) in homes.iter().zip(listeners) {
            let acceptor = Acceptor {
                listener,
                placement: placement.clone(),
                host: Arc::clone(&host),
            };
            if let Err(rejected) = home.try_spawn_at(acceptor.run(), location) {
                state.stop(); // those that run already
                let error = io::Error::from(Rejected::new((), rejected.reason()));
                let text = format!("the group that should accept for the server refuses: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
        }
        Ok(ServerHandle::new(state))
    }

    /// The groups that accept and serve, each with I/O.
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

    /// So many listeners on one port of the first address that can be bound.
    fn listeners(&self, count: usize) -> io::Result<Vec<TcpListener>> {
        let mut last = None;
        for &address in &self.addresses {
            let first = TcpListener::listen(address, self.backlog, self.reuse_port);
            match first.and_then(|first| self.siblings(first, count)) {
                Ok(listeners) => return Ok(listeners),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is at least one address"))
    }

    fn siblings(&self, first: TcpListener, count: usize) -> io::Result<Vec<TcpListener>> {
        // With port 0 the first one has learned the port that all others share.
        let address = first.local_addr()?;
        let mut listeners = vec![first];
        while listeners.len() < count {
            listeners.push(TcpListener::listen(address, self.backlog, true)?);
        }
        Ok(listeners)
    }
}

/// The loops that are not on their way out, as `next()` would have it; all of them if there is none, and they say
/// so.
fn accepting(group: &EventLoopGroup) -> Vec<EventLoop> {
    let stays = |one: &&EventLoop| !one.state().is_shutting_down();
    let staying: Vec<_> = group.loops().iter().filter(stays).cloned().collect();
    if staying.is_empty() {
        return group.loops().to_vec();
    }
    staying
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
