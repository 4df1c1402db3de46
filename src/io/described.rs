//! Sockets that tasks wait for, by their addresses; asked for only while tasks are listed.
//!
//! - The system is asked when a task begins to wait: a descriptor that another thread looks at later may be
//!   closed by then, and be another one.
//! - A loop remembers what it has learnt of connections and listeners, whose addresses do not change, by the
//!   token of the registration, which no other descriptor ever has. Datagram sockets are asked every time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};

use mio::Token;
use socket2::{SockAddr, SockRef, Type};

use crate::endpoint::Endpoint;
use crate::event_loop::shared::{Registration, Watched};
use crate::noted::{Noted, SocketWait};
use crate::reactor::direction::Direction;
use crate::reactor::registrar;
use crate::sync::thread_local;

/// A loop remembers twice as many as it watches, and so many more.
const SPARE: usize = 1024;

/// A descriptor, as far as it is known.
#[derive(Clone, Debug)]
struct Described {
    endpoint: Endpoint,
    listens: bool,
    /// Whether it stays as it is.
    is_final: bool,
}

thread_local! {
    /// By the serial number of the loop that watches it, and its token. The number of a loop is used again.
    static KNOWN: RefCell<HashMap<(u64, Token), Described>> = RefCell::new(HashMap::new());
}

/// What a task waits for that waits for a descriptor in this direction.
#[cold]
pub(super) fn noted(watched: &Watched, io: &impl AsFd, direction: Direction) -> Noted {
    let Described {
        endpoint, listens, ..
    } = described(watched, io);
    let wait = match direction {
        Direction::Read if listens => SocketWait::Accept,
        Direction::Read => SocketWait::Read,
        Direction::Write => SocketWait::Write,
    };
    Noted::Socket(wait, endpoint)
}

fn described(watched: &Watched, io: &impl AsFd) -> Described {
    if let Some(socket) = watched.simulated {
        return describe_simulated(watched, socket.get() - 1);
    }
    let registration = watched.registration.lock();
    let key = registration
        .as_ref()
        .map(|one| ((one.home.number.serial(), one.token), watched_by(one)));
    drop(registration);
    let Some((key, watched)) = key else {
        return describe(io);
    };
    let known = KNOWN.try_with(|known| known.borrow().get(&key).cloned());
    if let Ok(Some(known)) = known {
        return known;
    }
    let new = describe(io);
    if new.is_final {
        let _ = KNOWN.try_with(|known| {
            let mut known = known.borrow_mut();
            if known.len() > 2 * watched + SPARE {
                known.clear(); // most of them are closed
            }
            known.insert(key, new.clone());
        });
    }
    new
}

/// How many descriptors the loop of a registration watches.
fn watched_by(registration: &Registration) -> usize {
    let table = registration.home.port.table.as_ref();
    table.map_or(0, |table| table.len())
}

/// Asks the simulated network.
fn describe_simulated(watched: &Watched, socket: u32) -> Described {
    let host = watched
        .home()
        .and_then(|home| home.config.simulated.clone());
    let names = host.and_then(|host| host.net.network.names_of(socket));
    let names = names.unwrap_or_default();
    Described {
        endpoint: Endpoint::new(registrar::descriptor_of(socket), names.local, names.peer),
        listens: names.listens,
        is_final: false,
    }
}

/// Asks the system.
fn describe(io: &impl AsFd) -> Described {
    let socket = SockRef::from(io);
    let name = |address: std::io::Result<SockAddr>| address.ok().and_then(|one| name_of(&one));
    let (local, peer) = (socket.local_addr(), socket.peer_addr());
    let kind = socket.r#type().ok();
    let is_stream = kind == Some(Type::STREAM);
    let listens = is_stream && peer.is_err() && is_listener(&socket);
    // Before a connection is established, a socket has no peer. What is no socket has no type.
    let is_final = kind.is_none() || listens || (is_stream && peer.is_ok());
    Described {
        endpoint: Endpoint::new(io.as_fd().as_raw_fd(), name(local), name(peer)),
        listens,
        is_final,
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn is_listener(socket: &SockRef<'_>) -> bool {
    socket.is_listener().unwrap_or(false)
}

/// Elsewhere nothing says so: a socket without a peer listens, or connects, and then it is not read from.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn is_listener(socket: &SockRef<'_>) -> bool {
    socket.peer_addr().is_err()
}

/// An address as text; `None` for a Unix socket without a name.
fn name_of(address: &SockAddr) -> Option<String> {
    if let Some(address) = address.as_socket() {
        return Some(address.to_string());
    }
    if let Some(path) = address.as_pathname() {
        return Some(path.display().to_string());
    }
    let name = address.as_abstract_namespace()?;
    Some(format!("@{}", String::from_utf8_lossy(name)))
}
