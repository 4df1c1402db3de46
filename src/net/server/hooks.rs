//! What a server tells its user while it runs: errors of handlers, starts and ends of connections.
//!
//! - Hooks are called on the worker loop, with no lock held; their panics are contained and reported as
//!   [`PanicSite::Server`].
//! - A server without hooks keeps nothing for them per connection.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::event_loop::handle::EventLoop;
use crate::net::server::outcome::ErrorRef;
use crate::panic::PanicSite;
use crate::sync::Arc;
use crate::time::here;

type ErrorHook = dyn Fn(&ServeError<'_>) + Send + Sync;
type ConnectionHook = dyn Fn(&ConnectionEvent<'_>) + Send + Sync;

/// The hooks of a server.
#[derive(Clone, Default)]
pub(super) struct ServerHooks {
    pub(super) on_error: Option<Arc<ErrorHook>>,
    pub(super) on_connection: Option<Arc<ConnectionHook>>,
}

impl ServerHooks {
    /// Begins to watch a connection, if there is a hook.
    pub(super) fn watch(&self, peer: Option<SocketAddr>) -> Option<Box<ConnectionWatch>> {
        if self.on_error.is_none() && self.on_connection.is_none() {
            return None;
        }
        let watch = ConnectionWatch {
            peer,
            start: here::now(),
        };
        self.tell(&watch, None);
        Some(Box::new(watch))
    }

    /// Reports the error of a handler, or of a factory.
    pub(super) fn error(&self, watch: Option<&ConnectionWatch>, error: ErrorRef<'_>) {
        if let (Some(hook), Some(here)) = (&self.on_error, EventLoop::current()) {
            let error = ServeError {
                error,
                peer: watch.and_then(|watch| watch.peer),
                event_loop: &here,
            };
            here.shared()
                .panics
                .call(PanicSite::Server, || hook(&error));
        }
    }

    /// Reports the end of a connection.
    pub(super) fn ended(&self, watch: &ConnectionWatch, how: ConnectionEnd) {
        self.tell(
            watch,
            Some((how, here::now().saturating_duration_since(watch.start))),
        );
    }

    fn tell(&self, watch: &ConnectionWatch, end: Option<(ConnectionEnd, Duration)>) {
        if let (Some(hook), Some(here)) = (&self.on_connection, EventLoop::current()) {
            let event = ConnectionEvent {
                peer: watch.peer,
                event_loop: &here,
                end,
            };
            here.shared()
                .panics
                .call(PanicSite::Server, || hook(&event));
        }
    }
}

impl fmt::Debug for ServerHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("on_error", &self.on_error.is_some())
            .field("on_connection", &self.on_connection.is_some())
            .finish()
    }
}

/// A connection that hooks are told about.
#[derive(Debug)]
pub(super) struct ConnectionWatch {
    peer: Option<SocketAddr>,
    start: Instant,
}

/// An error that a handler or a handler factory has returned, for
/// [`Server::on_error`](super::Server::on_error).
///
/// It displays as the error itself.
///
/// # Examples
///
/// ```
/// use loopgroup::net::Server;
/// use std::io;
///
/// let server = Server::new("127.0.0.1:0")?.on_error(|error| {
///     // What clients do all the time is not worth a line.
///     let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
///     if kind != Some(io::ErrorKind::ConnectionReset) {
///         let peer = error.peer().expect("a TCP client, as no factory can fail here");
///         eprintln!("loop {}: {peer}: {error}", error.event_loop().index());
///     }
/// });
/// # drop(server);
/// # io::Result::Ok(())
/// ```
pub struct ServeError<'a> {
    error: ErrorRef<'a>,
    peer: Option<SocketAddr>,
    event_loop: &'a EventLoop,
}

impl<'a> ServeError<'a> {
    /// Returns the address of the client; `None` on a Unix socket, and for the error of a factory.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the loop on which it happened.
    pub fn event_loop(&self) -> &EventLoop {
        self.event_loop
    }

    /// Returns the error as its own type, if that is `E`.
    pub fn downcast_ref<E: Any>(&self) -> Option<&'a E> {
        self.error.value.downcast_ref()
    }
}

impl fmt::Display for ServeError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error.text, f)
    }
}

impl fmt::Debug for ServeError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeError")
            .field("error", &self.error)
            .field("peer", &self.peer)
            .field("event_loop", &self.event_loop)
            .finish()
    }
}

/// The start or the end of a connection, for [`Server::on_connection`](super::Server::on_connection).
///
/// # Examples
///
/// ```
/// use loopgroup::net::Server;
///
/// let server = Server::new("127.0.0.1:0")?.on_connection(|event| match event.end() {
///     None => println!("{:?} is served by loop {}", event.peer(), event.event_loop().index()),
///     Some((how, time)) => println!("{:?}: {how:?} after {time:?}", event.peer()),
/// });
/// # drop(server);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ConnectionEvent<'a> {
    peer: Option<SocketAddr>,
    event_loop: &'a EventLoop,
    end: Option<(ConnectionEnd, Duration)>,
}

impl ConnectionEvent<'_> {
    /// Returns the address of the client; `None` on a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the loop that serves the connection.
    pub fn event_loop(&self) -> &EventLoop {
        self.event_loop
    }

    /// Returns how the connection has ended, and how long it was served; `None` at its start.
    pub fn end(&self) -> Option<(ConnectionEnd, Duration)> {
        self.end
    }
}

/// How a served connection has ended.
///
/// # Examples
///
/// ```
/// use loopgroup::net::ConnectionEnd;
/// assert_ne!(ConnectionEnd::Completed, ConnectionEnd::Aborted);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// The handler has completed, without an error.
    Completed,
    /// The handler has returned an error.
    Failed,
    /// The handler has panicked, was cancelled, or has returned because its loop ended and closed a channel
    /// for which it waited.
    Aborted,
}
