//! The start of a server: checks of all settings, listeners, and one acceptor for each.
//!
//! - Nothing is bound before every setting is checked, and a wrong one is named.

use std::future::Future;
use std::io;
use std::panic::Location;
use std::time::Duration;

use socket2::SockRef;

use crate::error::Rejected;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::group::handle::EventLoopGroup;
use crate::group::scaler::Mover;
use crate::net::server::acceptor::{Acceptor, WorkerChoice};
use crate::net::server::balancer::Balancer;
use crate::net::server::connection::{PendingConnection, ServerCore, serve};
use crate::net::server::handle::ServerHandle;
use crate::net::server::handlers::{LoopHandlers, SharedHandler};
use crate::net::server::listener::{Listener, invalid};
use crate::net::server::outcome::Outcome;
use crate::net::server::rebalance::Rebalance;
use crate::net::server::state::{Lifetime, ServerState};
use crate::net::server::{Existing, ListenerSource, Server};
use crate::sync::Arc;

#[cfg(doc)]
use crate::net::ServerReport;

impl<L: Listener> Server<L> {
    /// Starts to listen and to serve.
    ///
    /// `handler` is called on the worker loop for each connection, and the future it returns runs there; it
    /// returns `()`, or a `Result` whose error is [counted](ServerReport::failed) and
    /// [reported](Server::on_error). Dropping the returned handle detaches the server.
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
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group).serve(|_stream, peer| async move {
    ///     println!("{peer} is connected");
    /// })?;
    /// group.block_on(TcpStream::connect(server.local_addr()))?;
    /// # while server.accepted() < 1 { std::thread::yield_now() }
    /// server.stop();
    /// assert_eq!(group.block_on(server).completed(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn serve<H, F>(self, handler: H) -> io::Result<ServerHandle<L::Addr>>
    where
        H: Fn(L::Stream, L::Addr) -> F + Send + Sync + 'static, // state that is not Send: serve_with
        F: Future<Output: Outcome> + 'static,
    {
        let handlers = |_: &[EventLoop], _, _| SharedHandler(handler);
        self.start(Location::caller(), handlers, serve::<L, _, F>, None)
    }

    /// Starts to listen and to serve, with a handler for each loop, which may own what is not `Send`.
    ///
    /// `factory` is called on a worker loop, once, when the first connection arrives there; the handler that
    /// it returns serves all connections of this loop. So handlers of one loop share what the factory has
    /// made, without a lock: an `Rc`, a `RefCell`, a connection pool. It is dropped on its loop, after the
    /// last handler's future, and before the end of the loop or of the server is announced. A loop of an
    /// [elastic](crate::Builder::elastic) group drops it when it parks, and calls the factory again for the
    /// next connection.
    ///
    /// If the factory panics on a loop, this loop serves no connection: its connections are passed to other
    /// loops. They are [rejected](ServerReport::rejected) if there is none.
    /// [`failed_loops`](ServerReport::failed_loops) counts such loops; the panic is reported as
    /// [`PanicSite::Server`](crate::PanicSite::Server).
    ///
    /// # Errors
    ///
    /// Those of [`serve`](Server::serve).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::{Server, TcpStream}};
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let server = Server::new("127.0.0.1:0")?.workers(&group).serve_with(|event_loop| {
    ///     let (index, served) = (event_loop.index(), Rc::new(Cell::new(0))); // one for each loop
    ///     move |_stream, peer| {
    ///         let served = Rc::clone(&served);
    ///         async move {
    ///             served.set(served.get() + 1);
    ///             println!("{peer} is number {} on loop {index}", served.get());
    ///         }
    ///     }
    /// })?;
    /// group.block_on(TcpStream::connect(server.local_addr()))?;
    /// # while server.accepted() < 1 { std::thread::yield_now() }
    /// server.stop();
    /// assert_eq!(group.block_on(server).completed(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn serve_with<M, H, F>(self, factory: M) -> io::Result<ServerHandle<L::Addr>>
    where
        M: Fn(&EventLoop) -> H + Send + Sync + 'static,
        H: Fn(L::Stream, L::Addr) -> F + 'static,
        F: Future<Output: Outcome> + 'static,
    {
        self.try_serve_with(move |event_loop| Ok(factory(event_loop)))
    }

    /// As [`serve_with`](Server::serve_with), with a factory that may fail.
    ///
    /// An error is treated as a panic is: this loop serves no connection, others serve them instead. It is
    /// passed to [`on_error`](Server::on_error). The factory is not called again on this loop.
    ///
    /// # Errors
    ///
    /// Those of [`serve`](Server::serve). An error of the factory is not among them: it is called later.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, net::Server};
    /// use std::{fs::File, io::Read, rc::Rc};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let server = Server::new("127.0.0.1:0")?
    ///     .workers(&group)
    ///     .on_error(|error| eprintln!("loop {}: {error}", error.event_loop().index()))
    ///     .try_serve_with(|_| {
    ///         let file = Rc::new(File::open("/nowhere/at/all")?); // fails, on each loop
    ///         Ok(move |_stream, _peer| {
    ///             let file = Rc::clone(&file);
    ///             async move { file.as_ref().read(&mut [0]).map(drop) }
    ///         })
    ///     })?;
    /// let mut client = std::net::TcpStream::connect(server.local_addr())?;
    /// assert_eq!(client.read(&mut [0])?, 0); // rejected: no loop can serve it
    /// assert_eq!(server.failed_loops(), 1);
    /// server.stop();
    /// assert_eq!(group.block_on(server).rejected(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_serve_with<M, H, F>(self, factory: M) -> io::Result<ServerHandle<L::Addr>>
    where
        M: Fn(&EventLoop) -> io::Result<H> + Send + Sync + 'static,
        H: Fn(L::Stream, L::Addr) -> F + 'static,
        F: Future<Output: Outcome> + 'static,
    {
        let (location, hooks) = (Location::caller(), self.hooks.clone());
        let handlers = |loops: &[EventLoop], lifetime, location| {
            LoopHandlers::new(Box::new(factory), loops, lifetime, hooks, location)
        };
        self.start(location, handlers, serve::<L, _, F>, None)
    }

    /// Starts to listen; `serve` is called for each connection, on its worker loop.
    pub(super) fn start<P, C, F>(
        self,
        location: &'static Location<'static>,
        handlers: impl FnOnce(&[EventLoop], Arc<Lifetime>, &'static Location<'static>) -> P,
        serve: C,
        rebalance: Option<Rebalance>,
    ) -> io::Result<ServerHandle<L::Addr>>
    where
        P: Send + Sync + 'static,
        C: Fn(L::Stream, L::Addr, PendingConnection<P>) -> F + Copy + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let (boss, workers) = self.groups()?;
        self.check()?;
        rebalance.as_ref().map_or(Ok(()), Rebalance::check)?;
        let (acceptor_loops, choice): (Vec<EventLoop>, _) = if self.listen.reuse_port {
            (
                open_loops(&workers),
                WorkerChoice::accepting_loop_of(&workers),
            )
        } else {
            (vec![boss.next().clone()], WorkerChoice::next_of(&workers))
        };
        let listeners = match self.source {
            ListenerSource::Bind(place) => L::listen(&place, &self.listen, acceptor_loops.len())?,
            ListenerSource::Existing(Existing(listener)) => {
                self.listen.options.apply(&SockRef::from(&listener))?;
                vec![listener]
            }
        };
        let local = listeners[0].address()?;
        let state = Arc::new(ServerState::new(
            workers.len(),
            self.max_connections,
            self.accept_rate,
            self.service_panics,
            location,
        ));
        let lifetime = Arc::new(Lifetime(Arc::clone(&state)));
        let core = Arc::new(ServerCore::new(
            handlers(workers.loops(), Arc::clone(&lifetime), location),
            lifetime,
            self.hooks,
            self.limits,
            Arc::downgrade(workers.core()),
            location,
            self.end_reads,
        ));
        for (acceptor_loop, listener) in acceptor_loops.iter().zip(listeners) {
            let acceptor = Acceptor {
                listener,
                workers: choice.clone(),
                core: Arc::clone(&core),
            };
            run_on(acceptor_loop, acceptor.run(serve), location, &state)?;
        }
        if let Some(scaler) = &workers.core().scaler {
            let mover: Arc<dyn Mover> = state.mobile.clone();
            scaler.add_mover(Arc::downgrade(&mover));
        }
        if let Some(rule) = rebalance {
            let balancer = Balancer {
                rule,
                workers: Arc::downgrade(workers.core()),
                state: Arc::clone(&state),
            };
            run_on(&acceptor_loops[0], balancer.run(), location, &state)?;
        }
        Ok(ServerHandle::new(state, local))
    }

    /// Checks what the setters accept without a look.
    fn check(&self) -> io::Result<()> {
        let listen = &self.listen;
        let options = &listen.options;
        let zero = Some(Duration::ZERO);
        for (wrong, text) in [
            (
                listen.backlog == Some(0),
                "backlog(0): at least one connection has to be able to wait",
            ),
            (
                self.max_connections == Some(0),
                "max_connections(0) would serve no connection: omit the call for no limit",
            ),
            (
                self.accept_rate == Some(0),
                "max_accept_rate(0) would accept no connection: omit the call for no limit",
            ),
            (
                self.limits.first_byte == zero,
                "first_byte_timeout of zero would fail every connection: omit the call for no limit",
            ),
            (
                self.limits.idle == zero,
                "idle_timeout of zero would fail every connection: omit the call for no limit",
            ),
            (
                self.rebalance.is_some(),
                "rebalance needs connections that can move: serve them with serve_turns, or HTTP with compat::hyper",
            ),
            (
                options.keepalive == zero,
                "keepalive of zero: omit the call for no probes",
            ),
            (
                options.send_buffer == Some(0),
                "send_buffer_size(0): omit the call for the size that the system chooses",
            ),
            (
                options.recv_buffer == Some(0),
                "recv_buffer_size(0): omit the call for the size that the system chooses",
            ),
        ] {
            if wrong {
                return Err(invalid(text));
            }
        }
        if let ListenerSource::Existing(_) = self.source {
            if listen.backlog.is_some() {
                return Err(invalid(
                    "backlog comes too late for an existing listener: pass it to listen",
                ));
            }
            if listen.reuse_port {
                return Err(invalid(
                    "reuse_port needs a listener for each loop, and there is one already: omit it, or let \
                     Server::new bind them",
                ));
            }
        }
        Ok(())
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
}

/// Starts a task of the server itself; stops those that already run if it is rejected.
fn run_on(
    home: &EventLoop,
    task: impl Future<Output = ()> + Send + 'static,
    location: &'static Location<'static>,
    state: &ServerState,
) -> io::Result<()> {
    let (lane, urgency) = (Lane::Main, Urgency::Now);
    let Err(rejected) = home.offer(task, |task| task, lane, urgency, location) else {
        return Ok(());
    };
    let reason = rejected.reason();
    home.shared().note_refusal(reason, location);
    state.stop();
    let error = io::Error::from(Rejected::new((), reason));
    let text = format!("the group that should accept for the server rejects its acceptor: {error}");
    Err(io::Error::new(error.kind(), text))
}

/// Returns the loops that are not shutting down, as `next()` would choose them. If there are none,
/// returns all loops: these reject the acceptor with the reason.
fn open_loops(group: &EventLoopGroup) -> Vec<EventLoop> {
    let is_open = |one: &&EventLoop| !one.state().is_shutting_down();
    let open: Vec<_> = group.loops().iter().filter(is_open).cloned().collect();
    if open.is_empty() {
        return group.loops().to_vec();
    }
    open
}
