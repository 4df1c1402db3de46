//! HTTP servers: the settings, the two functions that need none, and the handle.
//!
//! - The accepting is [`Server`]'s. Each connection is a task of a worker loop: see `connection`.
//! - A setting that cannot work is an error of `serve`, before anything is bound.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::service::TowerToHyperService;

use crate::compat::hyper::activity::HttpActivity;
use crate::compat::hyper::connection::Connection;
use crate::compat::hyper::listen::Listen;
use crate::compat::hyper::moving::{Fixed, HeldStream, Luggage, Moving};
use crate::compat::hyper::rt::LocalExecutor;
use crate::compat::hyper::services::{ServiceRef, Services};
use crate::compat::hyper::settings::{Protocols, Settings};
use crate::compat::hyper::stop::{Stop, StopSignal};
use crate::compat::hyper::tracked::Tracked;
use crate::event_loop::handle::EventLoop;
use crate::group::handle::EventLoopGroup;
use crate::net::{LegEnd, LegStart, ServerHandle, ServerReport, TcpStream};
use crate::sync::{Arc, AtomicU64, Ordering};

/// Serves HTTP/1 and HTTP/2 with a hyper service per loop: [`Http::serve`] with the default settings.
///
/// # Errors
///
/// Those of [`Http::serve`].
///
/// # Examples
///
/// ```
/// use std::{cell::Cell, convert::Infallible, rc::Rc, time::Duration};
/// use hyper::{Response, service::service_fn};
/// use loopgroup::{EventLoopGroup, compat::hyper::serve};
///
/// let workers = EventLoopGroup::new(2)?;
/// let server = serve(&workers, "127.0.0.1:0", |_loop| {
///     let visits = Rc::new(Cell::new(0)); // of this loop: no lock, and not Send
///     service_fn(move |_request| {
///         visits.set(visits.get() + 1);
///         let text = format!("visit {}\n", visits.get());
///         async move { Ok::<_, Infallible>(Response::new(text)) }
///     })
/// })?;
/// println!("http://{}/", server.local_addr());
/// # use std::io::{Read, Write};
/// # let mut client = std::net::TcpStream::connect(server.local_addr())?;
/// # client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")?;
/// # let mut head = [0; 12];
/// # client.read_exact(&mut head)?;
/// # assert_eq!(&head, b"HTTP/1.1 200");
/// assert!(workers.drain(Duration::from_secs(5)).wait().is_clean()); // answers what is under way
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn serve<L, N, S, B>(
    workers: &EventLoopGroup,
    listener: L,
    factory: N,
) -> io::Result<HttpHandle>
where
    L: Listen,
    N: Fn(&EventLoop) -> S + Send + Sync + 'static, // what is not Send is made inside of it
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Http::new().serve(workers, listener, factory)
}

/// Serves HTTP/1 and HTTP/2 with a tower service per loop, such as an axum `Router`: [`Http::serve_tower`]
/// with the default settings.
///
/// With axum it is one line; see [the module](super#axum) for state per loop.
///
/// ```ignore
/// let server = serve_tower(&workers, "0.0.0.0:8080", move |_| router.clone())?;
/// ```
///
/// # Errors
///
/// Those of [`Http::serve`].
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, future::{Ready, ready}, task::{Context, Poll}};
/// use hyper::{Request, Response, body::Incoming};
/// use loopgroup::{EventLoopGroup, compat::hyper::serve_tower};
///
/// #[derive(Clone)]
/// struct Hello;
///
/// impl tower_service::Service<Request<Incoming>> for Hello {
///     type Response = Response<String>;
///     type Error = Infallible;
///     type Future = Ready<Result<Response<String>, Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, _: Request<Incoming>) -> Self::Future {
///         ready(Ok(Response::new("hello\n".to_owned())))
///     }
/// }
///
/// let workers = EventLoopGroup::new(1)?;
/// let server = serve_tower(&workers, "127.0.0.1:0", |_loop| Hello)?;
/// server.stop();
/// assert_eq!(workers.block_on(server).accepted(), 0);
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn serve_tower<L, N, S, B>(
    workers: &EventLoopGroup,
    listener: L,
    factory: N,
) -> io::Result<HttpHandle>
where
    L: Listen,
    N: Fn(&EventLoop) -> S + Send + Sync + 'static, // what is not Send is made inside of it
    S: tower_service::Service<Request<Incoming>, Response = Response<B>> + Clone + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Http::new().serve_tower(workers, listener, factory)
}

/// The settings of HTTP connections, and the ways to serve them.
///
/// | setting | default | |
/// |---|---|---|
/// | [`header_timeout`](Http::header_timeout) | 30 s | for the head of a request, from its first byte; for the first byte of a connection |
/// | [`idle_timeout`](Http::idle_timeout) | 75 s | between two requests |
/// | [`request_timeout`](Http::request_timeout) | none | for the service, from the head of a request to that of its response |
/// | [`nodelay`](Http::nodelay) | on | `TCP_NODELAY` |
/// | [`http1_only`](Http::http1_only), [`http2_only`](Http::http2_only) | both | HTTP/2 with prior knowledge, told by its preface |
/// | [`peer_extension`](Http::peer_extension) | off | the client's address in each request |
/// | [`movable`](Http::movable) | off | idle HTTP/1 connections can move to another loop |
/// | [`http1`](Http::http1), [`http2`](Http::http2) | hyper's | everything else |
///
/// There is no limit for a client that reads its response slowly; a drain has its own.
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, time::Duration};
/// use hyper::{Response, service::service_fn};
/// use loopgroup::{EventLoopGroup, compat::hyper::Http, net::Server};
///
/// let (boss, workers) = (EventLoopGroup::new(1)?, EventLoopGroup::new(2)?);
/// let listener = Server::new("127.0.0.1:0")?.boss(&boss).max_connections(10_000);
/// let server = Http::new()
///     .header_timeout(Duration::from_secs(10))
///     .idle_timeout(None) // no limit
///     .http2(|http2| {
///         http2.max_concurrent_streams(64);
///     })
///     .on_error(|error, peer| eprintln!("{peer}: {error}"))
///     .serve(&workers, listener, |_loop| {
///         service_fn(|_request| async { Ok::<_, Infallible>(Response::new("hello\n".to_owned())) })
///     })?;
/// server.stop();
/// assert_eq!(boss.block_on(server).accepted(), 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
#[must_use = "settings do nothing until serve"]
pub struct Http {
    settings: Settings,
    nodelay: bool,
    peer_extension: bool,
    movable: bool,
    on_error: Option<Arc<HttpErrorHook>>,
}

type HttpErrorHook = dyn Fn(&io::Error, SocketAddr) + Send + Sync;

impl Http {
    /// The default settings.
    pub fn new() -> Http {
        Http {
            settings: Settings::new(),
            nodelay: true,
            peer_extension: false,
            movable: false,
            on_error: None,
        }
    }

    /// Limits the time for the head of a request; 30 s by default, `None` for no limit.
    ///
    /// It counts from the first byte of the head. A connection that does not send its first byte in this
    /// time is closed as well, and so is one that the server has ended and that the client keeps open. With
    /// HTTP/2, heads are frames of a connection, which [`idle_timeout`](Http::idle_timeout) limits.
    pub fn header_timeout(mut self, limit: impl Into<Option<Duration>>) -> Http {
        self.settings.header_timeout = limit.into();
        self
    }

    /// Limits the time between two requests of a connection; 75 s by default, `None` for no limit.
    ///
    /// The connection then ends gracefully: an HTTP/2 client gets a GOAWAY.
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Http {
        self.settings.idle_timeout = limit.into();
        self
    }

    /// Limits the time that the service has for a request; `None`, which is no limit, by default.
    ///
    /// It counts from the call of the service until its future returns the response. The future of a service
    /// that is late is dropped, and the client gets 408 and no body. The time that the body of a response
    /// takes is not limited. For one route, or another status, put [`timeout`](crate::time::timeout) around
    /// a handler; the timeout layers of tower and tower-http need tokio's timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{convert::Infallible, io::{Read, Write}, time::Duration};
    /// use hyper::{Response, service::service_fn};
    /// use loopgroup::{EventLoopGroup, compat::hyper::Http};
    ///
    /// let workers = EventLoopGroup::new(1)?;
    /// let http = Http::new().request_timeout(Duration::from_millis(20));
    /// let server = http.serve(&workers, "127.0.0.1:0", |_loop| {
    ///     service_fn(|_| std::future::pending::<Result<Response<String>, Infallible>>())
    /// })?;
    /// let mut client = std::net::TcpStream::connect(server.local_addr())?;
    /// client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")?;
    /// let mut head = [0; 12];
    /// client.read_exact(&mut head)?;
    /// assert_eq!(&head, b"HTTP/1.1 408");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn request_timeout(mut self, limit: impl Into<Option<Duration>>) -> Http {
        self.settings.request_timeout = limit.into();
        self
    }

    /// How long a client may leave a response unread: the connection ends when no byte of it could be written
    /// for so long. No limit by default.
    #[cfg(feature = "inspect")]
    pub(crate) fn write_timeout(mut self, limit: Duration) -> Http {
        self.settings.write_timeout = Some(limit);
        self
    }

    /// Sets `TCP_NODELAY` on each connection; on by default. hyper writes whole messages, which Nagle's
    /// algorithm would only delay.
    pub fn nodelay(mut self, nodelay: bool) -> Http {
        self.nodelay = nodelay;
        self
    }

    /// Speaks HTTP/1 only. An HTTP/2 preface is then an error.
    pub fn http1_only(mut self) -> Http {
        self.settings.protocols = Protocols::Http1;
        self
    }

    /// Speaks HTTP/2 only.
    pub fn http2_only(mut self) -> Http {
        self.settings.protocols = Protocols::Http2;
        self
    }

    /// Changes hyper's settings for HTTP/1.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::compat::hyper::Http;
    ///
    /// let http = Http::new().http1(|http1| {
    ///     http1.max_headers(32).half_close(true);
    /// });
    /// # drop(http);
    /// ```
    pub fn http1(mut self, change: impl FnOnce(&mut http1::Builder)) -> Http {
        change(&mut self.settings.http1);
        self
    }

    /// Changes hyper's settings for HTTP/2.
    pub fn http2(mut self, change: impl FnOnce(&mut http2::Builder<LocalExecutor>)) -> Http {
        change(&mut self.settings.http2);
        self
    }

    /// Inserts the client's address into the extensions of each request, as a [`Peer`](super::Peer); off by
    /// default, since it costs an allocation per request.
    pub fn peer_extension(mut self, insert: bool) -> Http {
        self.peer_extension = insert;
        self
    }

    /// Lets idle HTTP/1 connections move to another loop; off by default, and on with
    /// [`Server::rebalance`](crate::net::Server::rebalance).
    ///
    /// A connection that waits for its next request moves at once when it is asked to, by
    /// [`move_connections`](ServerHandle::move_connections) of [`HttpHandle::server`] or by the load. One
    /// with a request under way moves after the response. The client does not notice: bytes stay in order,
    /// and requests that have already arrived are answered on the new loop, by the service of that loop. Time
    /// limits go on; the one for a request head that has arrived in part begins again.
    ///
    /// HTTP/2 connections do not move, and neither do upgraded ones. hyper's `pipeline_flush` is off then.
    ///
    /// It costs an allocation for each connection, and a look at the headers of each request. With
    /// `rebalance`, each poll of a connection also reads the clock twice.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{convert::Infallible, io::{Read, Write}};
    /// use hyper::{Response, service::service_fn};
    /// use loopgroup::{EventLoopGroup, compat::hyper::Http};
    ///
    /// let workers = EventLoopGroup::new(2)?;
    /// let server = Http::new().movable(true).serve(&workers, "127.0.0.1:0", |here| {
    ///     let index = here.index();
    ///     service_fn(move |_| async move { Ok::<_, Infallible>(Response::new(format!("loop {index}"))) })
    /// })?;
    /// let mut client = std::net::TcpStream::connect(server.local_addr())?;
    /// let mut answer = || {
    ///     client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")?;
    ///     let mut received = [0; 1024];
    ///     let n = client.read(&mut received)?; // the whole of it: the response is short
    ///     Ok::<_, std::io::Error>(received[n - 1] - b'0')
    /// };
    /// let from = usize::from(answer()?);
    /// assert_eq!(server.server().move_connections(from, 1 - from, 1), 1);
    /// while server.server().moves() == 0 {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(usize::from(answer()?), 1 - from);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn movable(mut self, movable: bool) -> Http {
        self.movable = movable;
        self
    }

    /// Calls `hook` for each connection that ends with an error: a request that cannot be parsed, a head
    /// that does not come in time, a client that disconnects in the middle of a request, a service that
    /// returns an error.
    ///
    /// It runs on the connection's loop. Without a hook these errors are only counted, by
    /// [`ServerReport::failed`]: they are mostly the clients'.
    pub fn on_error(
        mut self,
        hook: impl Fn(&io::Error, SocketAddr) + Send + Sync + 'static,
    ) -> Http {
        self.on_error = Some(Arc::new(hook));
        self
    }

    /// Serves on the worker loops, with a hyper service per loop.
    ///
    /// `listener` is an address, a listener, or a [`Server`](crate::net::Server) with settings of its own,
    /// except for `end_reads_on_shutdown`, which is off: hyper has its own graceful end. `factory`
    /// runs on each worker loop, at its first connection, and makes the service that all connections of the
    /// loop share. Neither the service nor its futures need be `Send`: they never leave the loop. If the
    /// factory panics, it fails that connection, and runs again for the loop's next one.
    ///
    /// A service that panics answers 500; the connection continues. The panic is
    /// [counted](ServerReport::service_panics), and reported to [`on_panic`](crate::Builder::on_panic) as
    /// [`PanicSite::Service`](crate::PanicSite::Service).
    ///
    /// A connection that ends with an error, as [`on_error`](Http::on_error) sees it, counts as
    /// [`failed`](ServerReport::failed). A client that closes an idle connection is no error. A connection
    /// with a request that is not answered when the workers end by force counts as
    /// [`aborted`](ServerReport::aborted).
    ///
    /// See [the module](super#shutdown) for how the server ends.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a time limit of zero, and for HTTP/2 connections that are to move; and the errors
    /// of [`Server::serve`](crate::net::Server::serve).
    #[track_caller]
    pub fn serve<L, N, S, B>(
        self,
        workers: &EventLoopGroup,
        listener: L,
        factory: N,
    ) -> io::Result<HttpHandle>
    where
        L: Listen,
        N: Fn(&EventLoop) -> S + Send + Sync + 'static, // what is not Send is made inside of it
        S: Service<Request<Incoming>, Response = Response<B>> + 'static,
        S::Future: 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let location = Location::caller();
        let server = listener.into_server()?;
        let movable = self.movable || server.rebalances();
        let mut settings = self.settings;
        settings.check()?;
        if movable {
            settings.check_movable()?;
            // A response that hyper holds back would be lost with its connection.
            settings.http1.pipeline_flush(false);
        }
        let panics = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(Stop::new());
        let common = Common {
            settings: Arc::new(settings),
            services: Services::new(factory, workers.loops()),
            stop: Arc::clone(&stop),
            panics: Arc::clone(&panics),
            nodelay: self.nodelay,
            peer_extension: self.peer_extension,
            on_error: self.on_error,
            location,
        };
        let server = server
            .count_service_panics(Arc::clone(&panics))
            .workers(workers)
            // hyper takes the end of the stream for a client that has given up, and drops its requests.
            .end_reads_on_shutdown(false);
        let server = if movable {
            server.serve_legs(move |start| common.serve_leg(start))
        } else {
            server.serve(move |stream, peer| common.serve(stream, peer))
        }?;
        Ok(HttpHandle {
            server,
            stop,
            panics,
        })
    }

    /// As [`serve`](Http::serve), with a tower service per loop, such as an axum `Router`.
    ///
    /// tower's services take `&mut self`: each request gets a clone.
    ///
    /// # Errors
    ///
    /// Those of [`serve`](Http::serve).
    #[track_caller]
    pub fn serve_tower<L, N, S, B>(
        self,
        workers: &EventLoopGroup,
        listener: L,
        factory: N,
    ) -> io::Result<HttpHandle>
    where
        L: Listen,
        N: Fn(&EventLoop) -> S + Send + Sync + 'static, // what is not Send is made inside of it
        S: tower_service::Service<Request<Incoming>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.serve(workers, listener, move |here| {
            TowerToHyperService::new(factory(here))
        })
    }

    /// Serves one connection, on any stream: a Unix socket, TLS, a test's pipe.
    ///
    /// It has the same time limits, answers and graceful end as a connection of [`serve`](Http::serve), and
    /// resolves at its end. From an upgrade on (WebSocket, `CONNECT`), the connection belongs to the task
    /// that awaits it by `hyper::upgrade::on`. `nodelay`, `peer_extension`, `movable` and `on_error` are not
    /// used.
    ///
    /// # Errors
    ///
    /// `TimedOut` for a time limit, `InvalidInput` for a limit of zero; otherwise an error that contains
    /// hyper's.
    ///
    /// # Panics
    ///
    /// If the thread is neither a loop nor inside `group.block_on`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection, and drops the requests under way.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use futures::io::{AsyncReadExt, AsyncWriteExt};
    /// use hyper::{Response, service::service_fn};
    /// use loopgroup::{compat::hyper::Http, net::UnixStream};
    ///
    /// loopgroup::run(async {
    ///     let (mut client, server) = UnixStream::pair()?;
    ///     let hello = service_fn(|_| async { Ok::<_, Infallible>(Response::new("hi".to_owned())) });
    ///     let server = loopgroup::spawn_local(Http::new().serve_connection(server, hello));
    ///     client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
    ///     let mut answer = String::new();
    ///     client.read_to_string(&mut answer).await?;
    ///     assert!(answer.ends_with("\r\n\r\nhi"));
    ///     server.await?
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn serve_connection<I, S, B>(
        &self,
        io: I,
        service: S,
    ) -> impl Future<Output = io::Result<()>> + use<I, S, B>
    where
        I: Read + Write + Unpin + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>> + 'static,
        S::Future: 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let checked = self.settings.check();
        let service = Tracked {
            service: ServiceRef::Own(Rc::new(service)),
            activity: Arc::new(HttpActivity::default()),
            peer: None,
            limit: self.settings.request_timeout,
            location: Location::caller(),
            panics: Arc::default(), // it is not read
        };
        let settings = Arc::new(self.settings.clone());
        let connection = Connection::new(settings, io, service, None, Fixed);
        async move {
            checked?;
            connection.await
        }
    }
}

impl Default for Http {
    fn default() -> Http {
        Http::new()
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("protocols", &self.settings.protocols)
            .field("header_timeout", &self.settings.header_timeout)
            .field("idle_timeout", &self.settings.idle_timeout)
            .field("request_timeout", &self.settings.request_timeout)
            .field("nodelay", &self.nodelay)
            .field("peer_extension", &self.peer_extension)
            .field("movable", &self.movable)
            .finish_non_exhaustive()
    }
}

/// What all connections of a server share.
struct Common<N, S> {
    settings: Arc<Settings>,
    services: Services<N, S>,
    stop: Arc<Stop>,
    panics: Arc<AtomicU64>,
    nodelay: bool,
    peer_extension: bool,
    on_error: Option<Arc<HttpErrorHook>>,
    location: &'static Location<'static>,
}

impl<N, S, B> Common<N, S>
where
    N: Fn(&EventLoop) -> S + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Serves a connection that stays on this loop.
    fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = io::Result<()>> + use<N, S, B> {
        self.set_options(&stream);
        let service = self.service(peer, Arc::new(HttpActivity::default()));
        let (settings, stop) = (Arc::clone(&self.settings), StopSignal::of(&self.stop));
        let connection = Connection::new(settings, stream, service, Some(stop), Fixed);
        let on_error = self.on_error.clone();
        async move {
            let ended = connection.await;
            report(&ended, on_error, peer);
            ended
        }
    }

    /// Serves a connection on this loop, until its end or until it moves.
    fn serve_leg(
        &self,
        start: LegStart<TcpStream, SocketAddr, Luggage>,
    ) -> impl Future<Output = LegEnd<TcpStream, Luggage, io::Result<()>>> + use<N, S, B> {
        let LegStart {
            stream,
            peer,
            luggage,
            mover,
        } = start;
        let activity = match &luggage {
            Some(luggage) => Arc::clone(&luggage.activity),
            None => {
                self.set_options(&stream);
                Arc::new(HttpActivity::movable())
            }
        };
        let mobility = Moving::new(mover, &activity);
        let stream = HeldStream {
            stream,
            activity: Arc::clone(&activity),
        };
        let service = self.service(peer, activity);
        let (settings, stop) = (Arc::clone(&self.settings), StopSignal::of(&self.stop));
        let stop = Some(stop);
        let connection = match luggage {
            None => Connection::new(settings, stream, service, stop, mobility),
            Some(luggage) => Connection::resume(settings, stream, luggage, service, stop, mobility),
        };
        let on_error = self.on_error.clone();
        async move {
            let mut connection = pin!(connection);
            let ended = connection.as_mut().await;
            if let Some((stream, luggage, mover)) = connection.take_leaving() {
                return LegEnd::Moves {
                    stream,
                    luggage,
                    mover,
                };
            }
            report(&ended, on_error, peer);
            LegEnd::Over(ended)
        }
    }

    fn set_options(&self, stream: &TcpStream) {
        if self.nodelay {
            // Fails on a connection that the client has reset; the first read says so.
            let _ = stream.set_nodelay(true);
        }
    }

    /// The service of this loop, for a connection with these notes.
    fn service(&self, peer: SocketAddr, activity: Arc<HttpActivity>) -> Tracked<S> {
        Tracked {
            service: self.services.here(),
            activity,
            peer: self.peer_extension.then_some(peer),
            limit: self.settings.request_timeout,
            location: self.location,
            panics: Arc::clone(&self.panics),
        }
    }
}

/// Reports the error of a connection.
fn report(ended: &io::Result<()>, on_error: Option<Arc<HttpErrorHook>>, peer: SocketAddr) {
    if let (Err(error), Some(hook)) = (ended, on_error) {
        hook(error, peer);
    }
}

/// A handle to a running HTTP server, and a future that resolves when the server has ended.
///
/// Clones refer to the same server. Dropping all of them detaches it.
///
/// # Cancel safety
///
/// Cancel safe: the report stays available to every other and later handle.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use hyper::{Response, service::service_fn};
/// use loopgroup::{EventLoopGroup, compat::hyper::serve};
///
/// let workers = EventLoopGroup::new(1)?;
/// let server = serve(&workers, "127.0.0.1:0", |_loop| {
///     service_fn(|_| async { Ok::<_, Infallible>(Response::new("hello\n".to_owned())) })
/// })?;
/// let idle = std::net::TcpStream::connect(server.local_addr())?;
/// server.stop(); // ends idle connections at once; the group goes on
/// println!("{}", workers.block_on(server));
/// # drop(idle);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct HttpHandle {
    server: ServerHandle,
    stop: Arc<Stop>,
    panics: Arc<AtomicU64>,
}

impl HttpHandle {
    /// Returns the address that the server listens on, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Returns the number of open connections: accepted and not ended.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Returns the number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.server.accepted()
    }

    /// Returns the number of requests so far that the service answered with a panic, and so with 500.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{convert::Infallible, io::{Read, Write}};
    /// use hyper::{Response, service::service_fn};
    /// use loopgroup::{EventLoopGroup, compat::hyper::serve};
    ///
    /// let workers = EventLoopGroup::builder().loops(1).on_panic(|panic| eprintln!("{panic}")).build()?;
    /// let server = serve(&workers, "127.0.0.1:0", |_loop| {
    ///     service_fn(|request| async move {
    ///         assert_eq!(request.uri().path(), "/");
    ///         Ok::<_, Infallible>(Response::new(String::new()))
    ///     })
    /// })?;
    /// let mut client = std::net::TcpStream::connect(server.local_addr())?;
    /// client.write_all(b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n")?;
    /// let mut head = [0; 12];
    /// client.read_exact(&mut head)?;
    /// assert_eq!(&head, b"HTTP/1.1 500");
    /// assert_eq!(server.service_panics(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn service_panics(&self) -> u64 {
        self.panics.load(Ordering::Acquire)
    }

    /// Returns the handle of the server below, for its other figures.
    ///
    /// Its [`stop`](ServerHandle::stop) only closes the listener; idle connections stay open.
    pub fn server(&self) -> &ServerHandle {
        &self.server
    }

    /// Closes the listener, and ends all connections gracefully, as a shutdown of the workers would: idle
    /// ones at once, the others after the requests under way.
    ///
    /// It does not block and may be called more than once. Await the handle to wait for the end.
    pub fn stop(&self) {
        self.server.stop();
        self.stop.stop();
    }
}

impl Future for HttpHandle {
    type Output = ServerReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ServerReport> {
        Pin::new(&mut self.server).poll(cx)
    }
}

impl fmt::Debug for HttpHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpHandle")
            .field("local_addr", &self.local_addr())
            .field("connections", &self.connections())
            .field("accepted", &self.accepted())
            .field("service_panics", &self.service_panics())
            .finish_non_exhaustive()
    }
}
