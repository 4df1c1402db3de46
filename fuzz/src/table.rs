//! The registration table, with a real selector, beside a list of what is in it.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::task::Waker;
use std::time::Duration;

use mio::{Events, Poll, Token};

use crate::fuzzing::Bytes;
use crate::reactor::direction::Direction;
use crate::reactor::source::{Readiness, Source};
use crate::reactor::table::Table;
use crate::sync::Arc;

/// Pairs of sockets: so many may be registered at a time.
const PAIRS: usize = 6;

struct World {
    poll: Poll,
    table: Table<Source>,
    /// The registered end, and the one that makes it readable.
    pairs: Vec<(UnixStream, UnixStream)>,
    /// What is registered, by pair.
    live: [Option<Entry>; PAIRS],
    /// Tokens of descriptors that were deregistered.
    stale: Vec<Token>,
    events: Events,
    /// Events that had to be ignored.
    ignored: u64,
}

struct Entry {
    token: Token,
    source: Arc<Source>,
    /// A waker is in place.
    waits: bool,
}

/// Runs the operations that `data` spells.
pub fn table(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut world = World::new();
    if bytes.below(2) == 1 {
        world.table.age();
    }
    while let Some(operation) = bytes.next() {
        let which = bytes.below(PAIRS);
        match operation % 8 {
            0..=1 => world.register(which),
            2 => world.deregister(which),
            3 if !world.stale.is_empty() => {
                let token = world.stale[bytes.below(world.stale.len().min(256))];
                world.table.deregister(token); // late, and harmless
            }
            4 => world.toggle(which, bytes.below(2) == 0),
            5 => world.poll(),
            6 => world.report(),
            7 if operation > 192 => world.rebuild(),
            _ => world.wait(which),
        }
        world.check();
    }
    world.close();
}

impl World {
    fn new() -> World {
        let poll = Poll::new().expect("a selector");
        let registry = poll.registry().try_clone().expect("a registry");
        let pair = |_| {
            let (one, other) = UnixStream::pair().expect("two descriptors");
            one.set_nonblocking(true).expect("a mode");
            other.set_nonblocking(true).expect("a mode");
            (one, other)
        };
        World {
            poll,
            table: Table::new(registry),
            pairs: (0..PAIRS).map(pair).collect(),
            live: Default::default(),
            stale: Vec::new(),
            events: Events::with_capacity(16),
            ignored: 0,
        }
    }

    fn register(&mut self, which: usize) {
        let source = Arc::new(Source::default());
        let fd = self.pairs[which].0.as_raw_fd();
        let result = self.table.register(fd, &source).expect("it is open");
        if self.live[which].is_some() {
            result.expect_err("a descriptor is registered once");
            return;
        }
        let token = result.expect("a socket can be registered");
        let others = self.live.iter().flatten().map(|entry| entry.token);
        let taken = others
            .chain(self.stale.iter().copied())
            .any(|other| other == token);
        assert!(!taken, "no token is given twice");
        self.live[which] = Some(Entry {
            token,
            source,
            waits: false,
        });
    }

    fn deregister(&mut self, which: usize) {
        if let Some(entry) = self.live[which].take() {
            self.table.deregister(entry.token);
            self.stale.push(entry.token);
            assert_eq!(Arc::strong_count(&entry.source), 1, "the table lets go");
        }
    }

    /// Makes a descriptor readable, or not.
    fn toggle(&mut self, which: usize, readable: bool) {
        let (one, other) = &mut self.pairs[which];
        if readable {
            let _ = other.write(&[1]);
        } else {
            let _ = one.read(&mut [0; 64]);
        }
    }

    /// Fetches events; what happens before they are reported makes them stale.
    fn poll(&mut self) {
        self.poll
            .poll(&mut self.events, Some(Duration::ZERO))
            .expect("the selector works");
    }

    fn report(&mut self) {
        let mut woken = Vec::new();
        self.table.report(&self.events, &mut woken);
        let mut expected = 0;
        for event in &self.events {
            let mut live = self.live.iter_mut().flatten();
            match live.find(|entry| entry.token == event.token()) {
                Some(entry) => {
                    let ready = |direction| {
                        matches!(entry.source.readiness(direction), Readiness::Ready(_))
                    };
                    assert!(!event.is_readable() || ready(Direction::Read));
                    assert!(!event.is_writable() || ready(Direction::Write));
                    if event.is_writable() && std::mem::take(&mut entry.waits) {
                        expected += 1;
                    }
                }
                None => self.ignored += 1,
            }
        }
        assert_eq!(
            woken.len(),
            expected,
            "who waits for a live one, and nobody else"
        );
        self.events.clear();
    }

    /// Has somebody wait for room, which every event of a socket reports.
    fn wait(&mut self, which: usize) {
        if let Some(entry) = &mut self.live[which] {
            let replaced = entry.source.store(Direction::Write, Waker::noop().clone());
            assert_eq!(replaced.is_some(), entry.waits);
            entry.waits = true;
        }
    }

    fn rebuild(&mut self) {
        let poll = Poll::new().expect("a selector");
        let mut woken = Vec::new();
        let registry = poll.registry().try_clone().expect("a registry");
        self.table.rebuild(registry, &mut woken);
        assert!(woken.is_empty(), "all could be registered again");
        self.poll = poll;
        // All of them are writable, and the new selector says so.
        self.poll();
        let tokens: Vec<Token> = self.events.iter().map(|event| event.token()).collect();
        for entry in self.live.iter().flatten() {
            assert!(tokens.contains(&entry.token), "it kept its token");
        }
        assert_eq!(tokens.len(), self.table.len());
    }

    fn check(&self) {
        assert_eq!(self.table.len(), self.live.iter().flatten().count());
        assert_eq!(self.table.stale.get(), self.ignored);
    }

    fn close(mut self) {
        let mut woken = Vec::new();
        let entries: Vec<Entry> = self.live.iter_mut().filter_map(Option::take).collect();
        assert_eq!(self.table.close(&mut woken), entries.len());
        let waiting = entries.iter().filter(|entry| entry.waits).count();
        assert_eq!(woken.len(), waiting, "nobody waits for what is closed");
        for entry in entries {
            assert_eq!(entry.source.readiness(Direction::Read), Readiness::Shut);
            self.table.deregister(entry.token); // late, and harmless
        }
        assert_eq!(self.table.len(), 0);
        let (one, _) = &self.pairs[0];
        let refused = self.table.register(one.as_raw_fd(), &Arc::default());
        assert!(refused.is_none(), "a closed table takes nothing");
    }
}
