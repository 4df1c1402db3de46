//! A small network for the tests of this folder.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::*;
use crate::sync::Arc;

/// Two hosts, `a` at 10.0.0.1 and `b` at 10.0.0.2, with links of 1 ms and whole reads and writes.
pub(super) struct World {
    pub(super) network: Arc<Network>,
    pub(super) a: HostNet,
    pub(super) b: HostNet,
}

impl World {
    pub(super) fn new() -> World {
        World::seeded(1)
    }

    pub(super) fn seeded(seed: u64) -> World {
        let network = Network::new(seed);
        network.set_partial(0.0);
        let add = |name: &str, last: u8| HostNet {
            network: Arc::clone(&network),
            host: network.add_host(name, ip(last)).unwrap(),
        };
        World {
            a: add("a", 1),
            b: add("b", 2),
            network,
        }
    }

    /// Sets the link in both directions.
    pub(super) fn link(&self, link: Link) {
        self.network.set_default_link(link);
    }

    pub(super) fn cut(&self) {
        self.network.cut(self.a.host, self.b.host);
        self.network.cut(self.b.host, self.a.host);
    }

    /// Lets time pass.
    pub(super) fn pass(&self, time: Duration) {
        self.network.advance(self.network.now() + time);
    }

    /// Runs until nothing more is to come.
    pub(super) fn settle(&self) {
        for _ in 0..100_000 {
            match self.network.next_event() {
                Some(at) => self.network.advance(at),
                None => return,
            }
        }
        panic!(
            "the network does not come to rest: {:?}",
            self.network.last_events()
        );
    }

    /// A listener of `b` at port 80.
    pub(super) fn listen(&self) -> Socket {
        Socket::tcp_listen(&self.b, address(2, 80), 128, false).unwrap()
    }

    /// A connect of `a` to port 80 of `b`, just begun.
    pub(super) fn connect(&self) -> Socket {
        Socket::tcp_connect(&self.a, None, address(2, 80)).unwrap()
    }

    /// A connection: the end at `a` and the end at `b`.
    pub(super) fn pair(&self) -> (Socket, Socket) {
        let listener = self.listen();
        let client = self.connect();
        self.settle();
        client.connected().unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, server)
    }
}

/// A selector, and what it has got for token 7.
pub(super) struct Watcher(Arc<Selector>);

impl Watcher {
    pub(super) fn of(socket: &Socket) -> Watcher {
        let watcher = Watcher(Selector::new(Bell::new(0, Arc::new(Awake::new()))));
        socket.watch(&watcher.0, 7).unwrap();
        watcher
    }

    /// The last report since the last call, as letters: readable, writable, read closed (R), write
    /// closed (W), error.
    pub(super) fn edge(&self) -> String {
        let mut events = Vec::new();
        self.0.take(&mut events);
        assert!(events.len() <= 1, "one report per token");
        let mut letters = String::new();
        for ReadyEvent { token, ready } in events {
            assert_eq!(token, 7);
            let flags = [
                (ready.readable, 'r'),
                (ready.writable, 'w'),
                (ready.read_closed, 'R'),
                (ready.write_closed, 'W'),
                (ready.error, 'e'),
            ];
            letters.extend(
                flags
                    .iter()
                    .filter(|(is_set, _)| *is_set)
                    .map(|(_, letter)| letter),
            );
        }
        letters
    }
}

pub(super) fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

pub(super) fn address(last: u8, port: u16) -> SocketAddr {
    SocketAddr::new(ip(last), port)
}

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The number of an error.
pub(super) fn code<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// Reads until there is nothing more to read now; says whether the end was found.
pub(super) fn read_all(socket: &Socket) -> (Vec<u8>, bool) {
    let (mut all, mut part) = (Vec::new(), [0; 1000]);
    loop {
        match socket.read(&mut part) {
            Ok(0) => return (all, true),
            Ok(bytes) => all.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (all, false),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes until there is no space, at most `limit` bytes of a counting pattern that starts at `from`.
pub(super) fn write_all(socket: &Socket, from: usize, limit: usize) -> usize {
    let mut written = 0;
    while written < limit {
        let chunk = pattern(from + written, (limit - written).min(5000));
        match socket.write(&chunk) {
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    written
}

pub(super) fn pattern(from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes)
        .map(|number| (number % 251) as u8)
        .collect()
}
