//! The settings of a server; `start` checks them.

use std::time::Duration;

use crate::group::handle::EventLoopGroup;
use crate::net::server::Server;
use crate::net::server::hooks::{ConnectionEvent, ServeError};
use crate::net::server::listener::Listener;
use crate::net::server::rebalance::Rebalance;
use crate::sync::Arc;

impl<L: Listener> Server<L> {
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
    pub fn boss(mut self, group: &EventLoopGroup) -> Server<L> {
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
    pub fn workers(mut self, group: &EventLoopGroup) -> Server<L> {
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
    pub fn backlog(mut self, connections: usize) -> Server<L> {
        self.listen.backlog = Some(connections);
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
    pub fn max_connections(mut self, connections: usize) -> Server<L> {
        self.max_connections = Some(connections);
        self
    }

    /// Limits how many connections are accepted per second; no limit by default.
    ///
    /// Connections above the rate wait in the backlog, and are accepted later. After a pause, as many as
    /// belong to a hundredth of a second are accepted at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group);
    /// server.max_accept_rate(500).serve(|_, _| async {})?.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn max_accept_rate(mut self, per_second: u32) -> Server<L> {
        self.accept_rate = Some(per_second);
        self
    }

    /// Sets the size of the send buffer of connections (`SO_SNDBUF`); the system's by default, which adapts
    /// it. Linux doubles the value.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::Server;
    ///
    /// let server = Server::new("127.0.0.1:0")?.send_buffer_size(64 * 1024).recv_buffer_size(64 * 1024);
    /// # drop(server);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn send_buffer_size(mut self, bytes: usize) -> Server<L> {
        self.listen.options.send_buffer = Some(bytes);
        self
    }

    /// Sets the size of the receive buffer of connections (`SO_RCVBUF`); the system's by default, which
    /// adapts it. Linux doubles the value.
    pub fn recv_buffer_size(mut self, bytes: usize) -> Server<L> {
        self.listen.options.recv_buffer = Some(bytes);
        self
    }

    /// Sets whether the reads of a connection end when the shutdown of its worker loop begins; `true` by
    /// default.
    ///
    /// Ended reads first return all that has arrived. Where a read would have to wait, it returns the end of
    /// the stream, as if the client had closed its side: `Ok(0)`, or what a library above makes of it. Tasks
    /// that wait to read are woken, and so are those that wait in `readable`. Writes are not affected, and
    /// the client notices nothing until the handler closes the connection. It applies while the handler
    /// runs, also to halves of the stream and after `migrate_to`.
    ///
    /// With `false`, handlers that wait for their clients keep a drain waiting until its timeout; they may
    /// await [`shutdown_requested`](crate::shutdown_requested) themselves. That is for protocols in which
    /// the client must have the last word, and for clients that are expected to finish soon.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    /// use std::time::{Duration, Instant};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|stream, _| async move {
    ///     let _ = futures::io::copy(&stream, &mut &stream).await;
    /// })?;
    /// let _idle = std::net::TcpStream::connect(server.local_addr())?;
    /// while server.accepted() < 1 {
    ///     std::thread::yield_now();
    /// }
    /// let start = Instant::now();
    /// assert!(group.drain(Duration::from_secs(30)).wait().is_clean()); // with an idle client
    /// assert!(start.elapsed() < Duration::from_secs(10));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn end_reads_on_shutdown(mut self, end: bool) -> Server<L> {
        self.end_reads = end;
        self
    }

    /// Limits how long a client may take to send its first byte; no limit by default.
    ///
    /// If nothing has arrived this long after the handler was called, operations that have to wait fail with
    /// `TimedOut`, from then on; others still succeed, so that a handler can send a farewell. The connection
    /// is counted by [`timed_out`](super::ServerHandle::timed_out).
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::io::AsyncReadExt;
    /// use loopgroup::{EventLoopGroup, net::Server};
    /// use std::{io::Read, time::Duration};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .first_byte_timeout(Duration::from_millis(20))
    ///     .serve(|mut stream, _| async move { stream.read(&mut [0; 64]).await.map(drop) })?;
    /// let mut silent = std::net::TcpStream::connect(server.local_addr())?;
    /// assert_eq!(silent.read(&mut [0])?, 0); // closed
    /// server.stop();
    /// let report = group.block_on(server);
    /// assert_eq!((report.timed_out(), report.failed()), (1, 1));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn first_byte_timeout(mut self, limit: Duration) -> Server<L> {
        self.limits.first_byte = Some(limit);
        self
    }

    /// Limits how long a handler waits for a client that neither sends nor takes anything; no limit by
    /// default.
    ///
    /// After `limit` to 1.25 times `limit` without a transfer in either direction, while a task waits for the
    /// connection, operations that have to wait fail with `TimedOut`, from then on; others still succeed.
    /// The time that a handler takes without waiting for its connection does not count. The connection is
    /// counted by [`timed_out`](super::ServerHandle::timed_out).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    /// use std::{io::{Read, Write}, time::Duration};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .idle_timeout(Duration::from_millis(40))
    ///     .serve(|stream, _| async move { futures::io::copy(&stream, &mut &stream).await.map(drop) })?;
    /// let mut client = std::net::TcpStream::connect(server.local_addr())?;
    /// client.write_all(b"hello")?;
    /// let mut text = String::new();
    /// client.read_to_string(&mut text)?; // until the server closes: this client has no more to say
    /// assert_eq!((text.as_str(), server.timed_out()), ("hello", 1));
    /// # server.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn idle_timeout(mut self, limit: Duration) -> Server<L> {
        self.limits.idle = Some(limit);
        self
    }

    /// Has connections move from busy loops to less busy ones; off by default. For
    /// [`serve_turns`](Server::serve_turns), whose connections can move between two turns, and for the HTTP
    /// servers of `compat::hyper`, whose HTTP/1 connections can move between two requests.
    ///
    /// Where a connection is placed is decided when it is accepted, before anything is known of it: a few
    /// heavy ones may meet on one loop while others are idle. The server then measures how busy its
    /// connections are, which costs two readings of the clock for each poll of a turn, and looks at the
    /// loops once per [period](Rebalance::period), on the boss loop, until it is stopped. Loops that are
    /// paused or shut down get nothing. [`ServerHandle::moves`](super::ServerHandle::moves) counts, and with
    /// the feature `tracing` each decision is an event.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::io::{AsyncReadExt, AsyncWriteExt};
    /// use loopgroup::{EventLoopGroup, net::{Rebalance, Server, TcpStream, Turn}};
    ///
    /// async fn echo(mut stream: &TcpStream, _: &mut ()) -> std::io::Result<Turn> {
    ///     let mut buf = [0; 1024];
    ///     let n = stream.read(&mut buf).await?;
    ///     stream.write_all(&buf[..n]).await?;
    ///     Ok(if n == 0 { Turn::Close } else { Turn::Next })
    /// }
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .rebalance(Rebalance::by_utilization())
    ///     .serve_turns(|_, _| (), echo)?;
    /// server.stop();
    /// assert_eq!(group.block_on(server).moves(), 0); // nothing to balance
    /// # std::io::Result::Ok(())
    /// ```
    pub fn rebalance(mut self, rule: Rebalance) -> Server<L> {
        self.rebalance = Some(rule);
        self
    }

    /// Sets a hook for the errors that handlers return, and handler factories.
    ///
    /// It is called on the worker loop, before the connection counts as ended. Without it errors are only
    /// counted: [`ServerHandle::failed`](super::ServerHandle::failed). A second call replaces the first.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .on_error(|error| eprintln!("{:?}: {error}", error.peer()))
    ///     .serve(|_, _| async { Err::<(), _>("no service on Sundays") })?;
    /// server.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_error(mut self, hook: impl Fn(&ServeError<'_>) + Send + Sync + 'static) -> Server<L> {
        self.hooks.on_error = Some(Arc::new(hook));
        self
    }

    /// Sets a hook for the start and the end of each connection.
    ///
    /// It is called on the worker loop, before the handler is called and after its future was dropped. An
    /// accepted connection that is rejected, so that no handler sees it, is not reported. A second call
    /// replaces the first.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::{ConnectionEnd, Server}};
    /// use std::sync::mpsc;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let (events, seen) = mpsc::channel();
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .on_connection(move |event| {
    ///         let _ = events.send((event.peer(), event.end().map(|(how, _time)| how)));
    ///     })
    ///     .serve(|_, _| async {})?;
    /// let client = std::net::TcpStream::connect(server.local_addr())?;
    /// let peer = Some(client.local_addr()?);
    /// assert_eq!(seen.recv(), Ok((peer, None)));
    /// assert_eq!(seen.recv(), Ok((peer, Some(ConnectionEnd::Completed))));
    /// server.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_connection(
        mut self,
        hook: impl Fn(&ConnectionEvent<'_>) + Send + Sync + 'static,
    ) -> Server<L> {
        self.hooks.on_connection = Some(Arc::new(hook));
        self
    }
}

impl Server {
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
        self.listen.reuse_port = reuse;
        self
    }

    /// Sets `TCP_NODELAY` of connections; `true` by default.
    ///
    /// Without it, the system holds back a small write while an earlier one is not acknowledged, which costs
    /// a dialogue up to 40 ms per answer. Netty, Go and nginx turn it on as well. A server that writes many
    /// small pieces in a row should buffer them, or set `false`.
    ///
    /// It is set on the listener, from which connections inherit it: it costs no system call each.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|stream, _| async move {
    ///     assert!(stream.nodelay()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::net::TcpStream::connect(server.local_addr())?;
    /// # while server.accepted() < 1 || server.connections() > 0 { std::thread::yield_now() }
    /// # assert_eq!(server.failed(), 0);
    /// server.stop();
    /// # assert_eq!(group.block_on(server).completed(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn nodelay(mut self, nodelay: bool) -> Server {
        self.listen.options.nodelay = Some(nodelay);
        self
    }

    /// Has the system probe connections after they were silent for this long (`SO_KEEPALIVE`); it does not by
    /// default.
    ///
    /// Probes find clients that have disappeared: reads of their connections fail. The time is rounded up to
    /// whole seconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::Server;
    /// use std::time::Duration;
    ///
    /// let server = Server::new("127.0.0.1:0")?.keepalive(Duration::from_secs(60)).nodelay(false);
    /// # drop(server);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn keepalive(mut self, idle: Duration) -> Server {
        self.listen.options.keepalive = Some(idle);
        self
    }
}
