//! The settings of an inspector, and its start.
//!
//! - A mistake in a setting is an error of `serve`, before anything is bound.
//! - The service holds the inspector's own group, so that the inspector lives until it is told to stop.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::process;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::compat::hyper::Http;
use crate::group::handle::EventLoopGroup;
use crate::inspect::guard::Guard;
use crate::inspect::handle::InspectorHandle;
use crate::inspect::page::Page;
use crate::inspect::routes::Answers;
use crate::inspect::shown::is_invisible;
use crate::inspect::studio::{Exhibits, Studio};
use crate::inspect::token::TokenHash;
use crate::inspect::watched::{WatchedGroup, WatchedServer};
use crate::net::{Server, ServerHandle};
use crate::sync::{self, Arc};

/// How many connections may be open; further ones wait until one of them has ended.
const CONNECTIONS: usize = 128;
/// How long a client has for the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// How long a client may be silent between two requests.
const IDLE: Duration = Duration::from_secs(15);
/// How long a client may leave an answer unread.
const UNREAD: Duration = Duration::from_secs(10);
/// How much of an answer the system keeps for a client that does not read, about; without it, megabytes.
const UNREAD_BYTES: usize = 128 * 1024;
/// The longest head of a request, in bytes.
const HEAD_SIZE: usize = 16 * 1024;
/// How many headers a request may have.
const HEADERS: usize = 64;
/// The longest name of a group or server, in characters.
const NAME: usize = 64;

/// A page that shows groups and servers while they run: what to show, and to whom.
///
/// See [the module](super) for what there is to see and who may look.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, inspect::Inspector, net::Server};
/// use std::time::Duration;
///
/// let workers = EventLoopGroup::builder()
///     .loops(2)
///     .measure_time(true) // histograms
///     .watchdog(Duration::from_millis(50)) // stalls
///     .build()?;
/// let echo = Server::new("127.0.0.1:0")?.workers(&workers).serve(|stream, _| async move {
///     futures::io::copy(&stream, &mut &stream).await.map(drop)
/// })?;
/// let inspector = Inspector::new()
///     .watch("workers", &workers)
///     .watch_server("echo", &echo)
///     .serve("127.0.0.1:0")?; // on a loop of its own
/// println!("{}", inspector.url());
/// # inspector.stop();
/// # std::io::Result::Ok(())
/// ```
#[derive(Default)]
#[must_use = "an inspector does nothing until serve"]
pub struct Inspector {
    groups: Vec<WatchedGroup>,
    servers: Vec<WatchedServer>,
    token: Option<String>,
    /// The first mistake, for `serve` to report.
    mistake: Option<String>,
}

impl Inspector {
    /// An inspector that shows nothing yet.
    pub fn new() -> Inspector {
        Inspector::default()
    }

    /// Shows a group, under this name.
    ///
    /// The inspector does not keep the group alive: when its last handle is dropped, it ends as if nobody
    /// watched. It may have ended already, and it stays on the page after its end, with its report.
    ///
    /// A name has 1 to 64 characters and no control characters; names are unique, and a group is watched
    /// once. Otherwise [`serve`](Inspector::serve) fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, inspect::Inspector};
    ///
    /// let (acceptors, workers) = (EventLoopGroup::new(1)?, EventLoopGroup::new(2)?);
    /// let inspector = Inspector::new().watch("acceptors", &acceptors).watch("workers", &workers);
    /// let inspector = inspector.serve("127.0.0.1:0")?;
    /// let end = workers.termination();
    /// drop(workers); // ends the group, also while it is watched
    /// assert!(end.wait().is_clean());
    /// # inspector.stop();
    ///
    /// let twice = Inspector::new().watch("one", &acceptors).watch("two", &acceptors);
    /// let error = twice.serve("127.0.0.1:0").unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// assert!(error.to_string().contains("\"two\" is the same group as \"one\""));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn watch(mut self, name: impl Into<String>, group: &EventLoopGroup) -> Inspector {
        let name = name.into();
        let names = self.groups.iter().map(|one| &*one.name);
        if let Some(mistake) = mistake_in_name("group", &name, names) {
            return self.mistaken(mistake);
        }
        if let Some(known) = self.groups.iter().find(|one| one.is(group)) {
            let mistake = format!(
                "{name:?} is the same group as {:?}: watch it once",
                known.name
            );
            return self.mistaken(mistake);
        }
        self.groups.push(WatchedGroup::new(name, group));
        self
    }

    /// Shows a server, under this name: its connections, by loop and by how they ended.
    ///
    /// The server of HTTP is [`HttpHandle::server`](crate::compat::hyper::HttpHandle::server). The rules for
    /// names are those of [`watch`](Inspector::watch).
    ///
    /// # Examples
    ///
    /// ```
    /// use hyper::{Response, service::service_fn};
    /// use loopgroup::{EventLoopGroup, compat::hyper::serve, inspect::Inspector};
    ///
    /// let workers = EventLoopGroup::new(1)?;
    /// let http = serve(&workers, "127.0.0.1:0", |_loop| {
    ///     service_fn(|_| async { Ok::<_, std::convert::Infallible>(Response::new("hello\n".to_owned())) })
    /// })?;
    /// let inspector = Inspector::new().watch_server("http", http.server()).serve("127.0.0.1:0")?;
    /// # inspector.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn watch_server<A: fmt::Debug + Clone>(
        mut self,
        name: impl Into<String>,
        server: &ServerHandle<A>,
    ) -> Inspector {
        let (name, probe) = (name.into(), server.probe());
        let names = self.servers.iter().map(|one| &*one.name);
        if let Some(mistake) = mistake_in_name("server", &name, names) {
            return self.mistaken(mistake);
        }
        if let Some(known) = self.servers.iter().find(|one| one.probe.is(&probe)) {
            let mistake = format!(
                "{name:?} is the same server as {:?}: watch it once",
                known.name
            );
            return self.mistaken(mistake);
        }
        self.servers.push(WatchedServer {
            name,
            address: format!("{:?}", server.local_addr()),
            probe,
        });
        self
    }

    /// Allows addresses that other machines can reach, to clients that present this token.
    ///
    /// From then on every request needs the token, also from this machine:
    ///
    /// - A person opens [`InspectorHandle::url`], which contains the token. The page removes it from the
    ///   address bar, and the browser keeps it as a cookie. Two places still have it: the browser's history
    ///   has the link, and other servers of the same host get the cookie, since cookies know no ports.
    /// - A program sends the header `Authorization: Bearer <token>`. In Prometheus, that is
    ///   `authorization: { credentials: <token> }`.
    ///
    /// The token has 16 to 256 ASCII letters, digits, `-`, `.`, `_` and `~`. It is to be random: everybody
    /// who has it sees the names, places and peers of all tasks. The connection is not encrypted.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, inspect::Inspector};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let refused = Inspector::new().watch("workers", &group).serve("0.0.0.0:0").unwrap_err();
    /// assert!(refused.to_string().contains("allow_remote"));
    ///
    /// let token = "c2f1a0b8e5d94c7f"; // from a secret of the deployment
    /// let inspector = Inspector::new().watch("workers", &group).allow_remote(token).serve("0.0.0.0:0")?;
    /// assert!(inspector.url().ends_with("/?token=c2f1a0b8e5d94c7f"));
    /// # inspector.stop();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn allow_remote(mut self, token: impl Into<String>) -> Inspector {
        self.token = Some(token.into());
        self
    }

    /// Starts to serve, on a loop of its own; port 0 lets the system choose one.
    ///
    /// It may be called on any thread, also on a loop. A host name is looked up on the calling thread.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a name cannot be used, a group is watched twice, the token is too short, or the
    /// address can be reached from other machines without [`allow_remote`](Inspector::allow_remote); the
    /// message says what to do. Otherwise the error of the operating system when it cannot bind, such as
    /// `AddrInUse`, with the address, or when the loop cannot be created.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, inspect::Inspector};
    /// use std::io::ErrorKind;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let taken = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    /// # let listener = std::net::TcpListener::bind(taken)?;
    /// let error = Inspector::new().watch("workers", &group).serve(taken).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::AddrInUse);
    /// assert!(error.to_string().contains(&taken.to_string()));
    /// # drop(listener);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn serve(self, address: impl ToSocketAddrs) -> io::Result<InspectorHandle> {
        if let Some(mistake) = self.mistake {
            return Err(invalid(mistake));
        }
        let hash = self.token.as_deref().map(TokenHash::of).transpose()?;
        let listener = listen(address, hash.is_some())?;
        // For its connections; where they do not inherit it, a silent client is only noticed later.
        let _ = socket2::SockRef::from(&listener).set_send_buffer_size(UNREAD_BYTES);
        let local = listener.local_addr()?;
        let own = EventLoopGroup::builder()
            .loops(1)
            .thread_name(|_| "inspector")
            .build()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let exhibits = Arc::new(Exhibits {
            groups: self.groups.into_iter().map(Arc::new).collect(),
            servers: self.servers,
            guard: Guard::new(local, hash),
            page: Page::new(),
            instance: format!("{}-{}", process::id(), now.unwrap_or_default().as_nanos()),
            start: sync::now(),
            own: own.clone(),
        });
        let watched = exhibits.groups.clone();
        let server = Server::from_listener(listener)?.max_connections(CONNECTIONS);
        let http = Http::new()
            .http1_only()
            .header_timeout(HEAD)
            .idle_timeout(IDLE)
            .write_timeout(UNREAD)
            .http1(|http1| {
                http1.max_buf_size(HEAD_SIZE).max_headers(HEADERS);
            });
        http.serve(&own, server, move |_loop| {
            Answers(Rc::new(Studio::new(Arc::clone(&exhibits))))
        })?;
        for group in watched {
            // Refused only by a group that is shut down already, and this one is new.
            let _ = own.spawn_detached(async move { group.follow().await });
        }
        Ok(InspectorHandle::new(own, local, self.token))
    }

    /// Keeps the first mistake.
    fn mistaken(mut self, mistake: String) -> Inspector {
        self.mistake.get_or_insert(mistake);
        self
    }
}

/// Without the token.
impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector")
            .field("groups", &self.groups)
            .field("servers", &self.servers)
            .field("allows_remote", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

/// What is wrong with a name, if anything is.
fn mistake_in_name<'a>(
    what: &str,
    name: &str,
    mut known: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let length = name.chars().count();
    if name.trim().is_empty() {
        Some(format!("the name of a watched {what} is empty"))
    } else if length > NAME {
        Some(format!(
            "the name of a watched {what} has {length} characters: use {NAME} at most"
        ))
    } else if name.chars().any(is_invisible) {
        Some(format!(
            "the name of a watched {what} has control characters: {name:?}"
        ))
    } else if known.any(|known| known == name) {
        Some(format!("two watched {what}s have the name {name:?}"))
    } else {
        None
    }
}

/// Binds the first of the addresses that can be bound.
fn listen(address: impl ToSocketAddrs, allows_remote: bool) -> io::Result<TcpListener> {
    let addresses = address.to_socket_addrs().map_err(|error| {
        let text = format!("cannot tell where to inspect: {error} (expected \"host:port\")");
        io::Error::new(error.kind(), text)
    })?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    let is_remote = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    if let Some(remote) = addresses.iter().find(is_remote).filter(|_| !allows_remote) {
        return Err(invalid(format!(
            "{remote} can be reached from other machines: inspect a loopback address such as \
             127.0.0.1:{}, or set a token by allow_remote",
            remote.port()
        )));
    }
    let mut last = invalid("there is no address to inspect at: the list is empty".to_owned());
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                let text = format!("cannot bind the inspector to {address}: {error}");
                last = io::Error::new(error.kind(), text);
            }
        }
    }
    Err(last)
}

fn invalid(mistake: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, mistake)
}
