//! The pooled client of hyper-util on our sockets, timers and loops.
//!
//! - A connection is opened, registered and driven on the loop of the request that opened it.
//! - The connector speaks plain HTTP. TLS wraps it, as with every connector of hyper-util.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::body::Body;
use hyper::rt;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

use crate::compat::hyper::rt::Timer;
use crate::event_loop::handle::EventLoop;
use crate::net::{TcpStream, UnixStream};
use crate::time;

/// The type of [`client`]: hyper-util's pooled client over the crate's sockets. `B` is the body of requests.
///
/// To name it, a program need not depend on hyper-util.
///
/// # Examples
///
/// ```
/// use loopgroup::compat::hyper::{Client, client};
///
/// #[derive(Clone)]
/// struct Upstream {
///     client: Client<String>,
///     address: String,
/// }
///
/// let upstream = Upstream { client: client(), address: "http://127.0.0.1:8080/".to_owned() };
/// # drop((upstream.client, upstream.address));
/// ```
pub type Client<B> = legacy::Client<Connector, B>;

/// Makes a client with a pool of connections: HTTP/1 over TCP, connections that are idle for 90 s are closed.
///
/// Make one per loop if you can: see [the module](super#client). For other settings, use hyper-util's
/// builder:
///
/// ```
/// use std::time::Duration;
/// use hyper_util::client::legacy::Client;
/// use loopgroup::compat::hyper::{Connector, CurrentExecutor, Timer};
///
/// let client: Client<Connector, String> = Client::builder(CurrentExecutor)
///     .pool_timer(Timer)
///     .pool_idle_timeout(Duration::from_secs(10))
///     .http2_only(true)
///     .build(Connector::new().connect_timeout(Duration::from_secs(1)));
/// # drop(client);
/// ```
///
/// A request has no time limit of its own: use [`timeout`](crate::time::timeout), which cancels it.
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, time::Duration};
/// use hyper::{Request, Response, service::service_fn};
/// use loopgroup::{EventLoopGroup, compat::hyper::{client, serve}, time::timeout};
///
/// let group = EventLoopGroup::new(2)?;
/// let server = serve(&group, "127.0.0.1:0", |_loop| {
///     service_fn(|_| async { Ok::<_, Infallible>(Response::new("hello\n".to_owned())) })
/// })?;
/// let request = Request::get(format!("http://{}/", server.local_addr())).body(String::new()).unwrap();
/// let status = group.spawn(async move {
///     let response = timeout(Duration::from_secs(5), client().request(request)).await;
///     response.expect("in time").expect("answered").status()
/// });
/// assert_eq!(group.block_on(status).unwrap(), 200);
/// # std::io::Result::Ok(())
/// ```
pub fn client<B>() -> Client<B>
where
    B: Body + Send,
    B::Data: Send,
{
    legacy::Client::builder(CurrentExecutor)
        .timer(Timer)
        .pool_timer(Timer)
        .build(Connector::new())
}

/// Opens TCP connections for hyper-util's `Client`.
///
/// Host names are resolved off the loop. `nodelay` is on, and the connect timeout 10 s, by default.
///
/// Its connections implement hyper-util's `Connection`, and so does [`UnixStream`], for connectors of your
/// own.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use loopgroup::compat::hyper::Connector;
/// use tower_service::Service;
///
/// loopgroup::run(async {
///     let mut connector = Connector::new().connect_timeout(Duration::from_secs(1));
///     let error = connector.call("https://localhost/".parse().unwrap()).await.unwrap_err();
///     assert!(error.to_string().contains("https"));
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    nodelay: bool,
    connect_timeout: Option<Duration>,
}

impl Connector {
    /// The default settings.
    pub fn new() -> Connector {
        Connector {
            nodelay: true,
            connect_timeout: Some(Duration::from_secs(10)),
        }
    }

    /// Sets `TCP_NODELAY` on each connection; on by default.
    #[must_use = "returns the changed connector"]
    pub fn nodelay(mut self, nodelay: bool) -> Connector {
        self.nodelay = nodelay;
        self
    }

    /// Limits the time for the look-up of the name and the connect together; 10 s by default, `None` for the
    /// system's limit.
    #[must_use = "returns the changed connector"]
    pub fn connect_timeout(mut self, limit: impl Into<Option<Duration>>) -> Connector {
        self.connect_timeout = limit.into();
        self
    }
}

impl Default for Connector {
    fn default() -> Connector {
        Connector::new()
    }
}

impl Service<Uri> for Connector {
    type Response = TcpStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Connector {
            nodelay,
            connect_timeout,
        } = *self;
        Box::pin(async move {
            let (host, port) = target(&uri)?;
            let connect = TcpStream::connect((host, port));
            let connected = match connect_timeout {
                None => connect.await,
                Some(limit) => time::timeout(limit, connect).await.unwrap_or_else(|_| {
                    let text = format!("no connection within {limit:?} (connect_timeout)");
                    Err(io::Error::new(io::ErrorKind::TimedOut, text))
                }),
            };
            let stream = connected.map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot connect to {host}:{port}: {error}"),
                )
            })?;
            // Fails on a connection that the server has reset already; the first read says so.
            let _ = stream.set_nodelay(nodelay);
            Ok(stream)
        })
    }
}

/// The host and port of a request's target.
fn target(uri: &Uri) -> io::Result<(&str, u16)> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    match uri.scheme_str() {
        Some("http") | None => {}
        Some(other) => {
            let text = format!(
                "{uri}: the connector speaks http, not {other}: for TLS, wrap it in a connector that does \
                 the handshake"
            );
            return Err(invalid(text));
        }
    }
    let host = uri.host().ok_or_else(|| {
        invalid(format!(
            "{uri}: a client needs the whole address, with the host"
        ))
    })?;
    // Resolvers expect an IPv6 address without the brackets of a URI.
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    Ok((bare.unwrap_or(host), uri.port_u16().unwrap_or(80)))
}

impl Connection for TcpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Connection for UnixStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Executes hyper's futures where they come from: on the current loop, or, inside `group.block_on`, on the
/// group.
///
/// The executor of hyper-util's `Client`, which requires `Send`. It holds no group.
///
/// # Panics
///
/// If the thread is neither a loop nor inside `group.block_on`, like [`spawn`](crate::spawn()).
///
/// # Examples
///
/// ```
/// use hyper::rt::Executor;
/// use loopgroup::{EventLoop, EventLoopGroup, compat::hyper::CurrentExecutor};
///
/// let group = EventLoopGroup::new(2)?;
/// let here = group.loops()[1].clone();
/// let (done, wait) = futures::channel::oneshot::channel();
/// let task = here.spawn(async move {
///     CurrentExecutor.execute(async move { done.send(EventLoop::current()).unwrap() });
/// });
/// assert_eq!(group.block_on(wait).unwrap(), Some(here));
/// # drop(task);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CurrentExecutor;

impl<F> rt::Executor<F> for CurrentExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn execute(&self, future: F) {
        match EventLoop::current() {
            Some(_) => drop(crate::spawn_local(future)),
            None => drop(crate::spawn(future)),
        }
    }
}
