//! HTTP with hyper and axum: servers in one line, a pooled client, and hyper's traits on our types.
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//! use hyper::{Response, service::service_fn};
//! use loopgroup::{EventLoopGroup, compat::hyper::serve};
//!
//! let workers = EventLoopGroup::new(2)?;
//! let server = serve(&workers, "127.0.0.1:0", |_loop| {
//!     service_fn(|_request| async { Ok::<_, Infallible>(Response::new("hello\n".to_owned())) })
//! })?;
//! println!("http://{}/, HTTP/1 and HTTP/2", server.local_addr());
//! workers.drain(Duration::from_secs(5)).wait(); // until the requests under way are answered
//! # std::io::Result::Ok(())
//! ```
//!
//! | | |
//! |---|---|
//! | [`serve`], [`serve_tower`], [`Http`] | servers for hyper's and for tower's services: time limits, graceful end |
//! | [`Http::serve_connection`] | the same for one connection, on a stream of any kind |
//! | `client`, `Client`, `Connector` | hyper-util's pooled client (feature `hyper-client`) |
//! | [`LocalExecutor`], [`Timer`] | for hyper's own builders |
//!
//! A connection, its HTTP/2 streams, its service and all futures of them stay on one loop (a connection that
//! [moves](#connections-that-move) begins anew on another one). The service is
//! made there, once per loop, so it may hold an `Rc`, a `RefCell` or a [`client`](#client) of its own.
//!
//! # Shutdown
//!
//! When the shutdown of the workers is requested ([`drain`](crate::EventLoopGroup::drain), say), or
//! [`HttpHandle::stop`] is called:
//!
//! - The listener is closed.
//! - Every request under way is answered completely. An HTTP/1 response then says `connection: close` if
//!   its head is not written yet; an HTTP/2 client gets a GOAWAY.
//! - An idle connection is closed at once, unless a request has arrived meanwhile. A request head that has
//!   arrived in part has one second for the rest.
//! - The service of a loop is dropped after the last connection.
//!
//! A client that does not read its response, or an HTTP/2 client that does not react to the GOAWAY, is waited
//! for until the limit of the drain.
//!
//! # Connections that move
//!
//! With [`Http::movable`], or with [`Server::rebalance`](crate::net::Server::rebalance), an idle HTTP/1
//! connection can move to another loop, and its next request is served there, by the service of that loop. A
//! connection with a request under way moves after the response. HTTP/2 connections and upgraded ones do not
//! move. A service that answers before it has read the whole body of a request, and reads on afterwards, may
//! find that its connection is closed after that body.
//!
//! # axum
//!
//! A `Router` is a tower service:
//!
//! ```ignore
//! let router = Router::new().route("/", get(|| async { "hello\n" }));
//! let server = loopgroup::compat::hyper::serve_tower(&workers, "0.0.0.0:8080", move |_| router.clone())?;
//! ```
//!
//! axum's feature `tokio` is not needed; turn it off. axum requires `Send` of its handlers, of their
//! futures and of its state, although here they never leave their loop. What this means for state:
//!
//! - Shared by all loops: `Router::with_state` with an `Arc`, as anywhere.
//! - Per loop and `Send`: the factory runs once per loop, so it can make the state there:
//!   `move |_| routes().with_state(Cache::new())`. (A loop of an [elastic](crate::Builder::elastic) group that
//!   is not needed drops its service, and makes another one when it is needed again.)
//! - Per loop and not `Send`: a value bound to the loop, by [`EventLoop::bind`]. The
//!   [`LoopBound`](crate::LoopBound) is `Send`, `Sync` and `Clone`, so it may be the state of a router, and
//!   in a handler of the same loop `with_local` reaches the value without a hop:
//!
//! ```ignore
//! serve_tower(&workers, "0.0.0.0:8080", |here| {
//!     let visits = here.bind(|| Rc::new(Cell::new(0))); // not Send, of this loop
//!     Router::new().route("/", get(count)).with_state(visits)
//! })?;
//!
//! async fn count(State(visits): State<LoopBound<Rc<Cell<u64>>>>) -> String {
//!     visits.with_local(|visits| {
//!         visits.set(visits.get() + 1);
//!         format!("visit {}\n", visits.get())
//!     })
//! }
//! ```
//!
//! - A future that is not `Send` inside a handler, such as one of [`spawn_local`](crate::spawn_local):
//!   spawn it, and await its handle, which is `Send` if the result is.
//!
//! hyper's own `Service` requires none of this: use [`serve`] where `Send` is in the way.
//!
//! # Client
//!
//! With feature `hyper-client`, `client()` is hyper-util's pooled `Client`, with our sockets and timers.
//! Make one in the factory of the service: its pool then belongs to the loop, and a request and its
//! upstream connection share a thread. A client that several loops share works too: a connection lives on
//! the loop that opened it, and requests of other loops hop there.
//!
//! The connections of a pool are tasks. A drain waits for them until the client and its clones are dropped:
//! a client that the service owns is dropped with it, after the last connection.
//!
//! # Traits
//!
//! [`TcpStream`](crate::net::TcpStream) and [`UnixStream`](crate::net::UnixStream), their halves and shared
//! references to them implement hyper's `Read` and `Write`: no wrapper is needed. The executor of an
//! HTTP/2 connection is [`LocalExecutor`], which keeps the HTTP/2 streams on the connection's own loop
//! and does not require `Send`; or an [`EventLoop`] or an [`EventLoopGroup`], which accept `Send`
//! futures from any thread. Give every builder a [`Timer`]: hyper panics if a timeout is set without a
//! timer.
//!
//! ```
//! use hyper::rt::{Read, Timer as _, Write};
//! use loopgroup::{compat::hyper::Timer, net::UnixStream};
//! use std::time::Duration;
//!
//! fn serve<S: Read + Write>(_stream: S) {} // the bounds of hyper's connections
//!
//! loopgroup::run(async {
//!     let (ours, _theirs) = UnixStream::pair()?;
//!     serve(ours);
//!     Timer.sleep(Duration::from_millis(1)).await;
//!     std::io::Result::Ok(())
//! })??;
//! # std::io::Result::Ok(())
//! ```
//!
//! hyper's `Executor` cannot report a rejection. If the loop is shut down, the future is dropped, which
//! hyper's connection observes as a closed channel, and counted as rejected in the loop's report.
//!
//! A group handle that is held by an executor prevents the group from shutting down on its own: end such a
//! group with [`drain`](crate::EventLoopGroup::drain) or
//! [`shutdown_gracefully`](crate::EventLoopGroup::shutdown_gracefully).
//!
//! Complete programs are in `examples/ecosystem`: `hyper_hello`, `axum_app`, `api_gateway`.
//!
//! [`EventLoop`]: crate::EventLoop
//! [`EventLoop::bind`]: crate::EventLoop::bind
//! [`EventLoopGroup`]: crate::EventLoopGroup

mod activity;
mod connection;
#[cfg(feature = "hyper-client")]
mod connector;
mod listen;
mod moving;
mod rt;
mod serve;
mod services;
mod settings;
mod stop;
mod tracked;
mod transport;

#[cfg(feature = "hyper-client")]
#[cfg_attr(docsrs, doc(cfg(feature = "hyper-client")))]
pub use connector::{Client, Connector, CurrentExecutor, client};
pub use listen::Listen;
pub use rt::{LocalExecutor, Timer};
pub use serve::{Http, HttpHandle, serve, serve_tower};
pub use tracked::Peer;
