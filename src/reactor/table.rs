//! The descriptors that a reactor watches.
//!
//! - A token is an index and a generation: an event for a descriptor that is gone does not reach the
//!   one that has its index now. It is ignored and counted.
//! - Registering, reporting, rebuilding and closing take one lock; wakers are collected under it, once
//!   per batch of events, and woken by the caller with none held.
//! - Order of an end: deregister, free the slot, close the descriptor. The first two are here, under
//!   the lock; the third is the owner's, afterwards.
//! - It knows sources, not who owns them: a slot holds whatever has a source to show.
//! - The table keeps raw descriptors, which the sources' owners keep open for as long as they are in
//!   here: that is what makes it possible to register them all again.

use std::borrow::Borrow;
use std::io;
use std::os::fd::RawFd;
use std::task::Waker;

use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};
use slab::Slab;

use crate::metrics::gauges::Gauge;
use crate::reactor::source::Source;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};

/// Both directions; and urgent data where it is told apart, since a read stops short of it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const INTEREST: Interest = Interest::READABLE
    .add(Interest::WRITABLE)
    .add(Interest::PRIORITY);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// Half of a token is the index, the other half the generation.
/// The token of the bell.
pub(crate) const BELL: Token = Token(usize::MAX);

const HALF: u32 = usize::BITS / 2;
/// Never all ones, which with the last index of all would be the bell's token.
const GENERATIONS: u32 = ((1_u64 << HALF) - 1) as u32;

/// Slots that an empty table keeps room for; the room of a larger crowd is given back when the last one goes.
const KEPT: usize = 1024;

/// The table.
#[derive(Debug)]
pub(crate) struct Table<W> {
    inner: Mutex<Inner<W>>,
    /// Descriptors in here; to be read without the lock.
    len: AtomicUsize,
    /// The process whose selector it is: a forked child shares it, and must not take anything out.
    process: u32,
    /// Events for descriptors, written by the loop thread; and those for descriptors that were gone.
    pub(crate) events: Gauge,
    pub(crate) stale: Gauge,
    pub(crate) rebuilds: Gauge,
}

#[derive(Debug)]
struct Inner<W> {
    /// `None` once the loop has ended.
    registry: Option<Registry>,
    slots: Slab<Slot<W>>,
    generation: u32,
}

#[derive(Debug)]
struct Slot<W> {
    generation: u32,
    fd: RawFd,
    watched: Arc<W>,
}

impl<W: Borrow<Source>> Table<W> {
    pub(crate) fn new(registry: Registry) -> Table<W> {
        Table {
            inner: Mutex::new(Inner {
                registry: Some(registry),
                slots: Slab::new(),
                generation: 0,
            }),
            len: AtomicUsize::new(0),
            process: std::process::id(),
            events: Gauge::default(),
            stale: Gauge::default(),
            rebuilds: Gauge::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Brings the generations close to where they begin again.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn age(&self) {
        self.inner.lock().generation = GENERATIONS - 5;
    }

    /// Whether it takes no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.lock().registry.is_none()
    }

    /// Watches a descriptor, in both directions; `None` if the loop has ended.
    pub(crate) fn register(&self, fd: RawFd, watched: &Arc<W>) -> Option<io::Result<Token>> {
        let mut inner = self.inner.lock();
        let Inner {
            registry,
            slots,
            generation,
        } = &mut *inner;
        let registry = registry.as_ref()?;
        *generation = (*generation + 1) % GENERATIONS;
        let entry = slots.vacant_entry();
        let token = token(entry.key(), *generation);
        debug_assert_ne!(token, BELL);
        if let Err(error) = registry.register(&mut SourceFd(&fd), token, INTEREST) {
            return Some(Err(error));
        }
        entry.insert(Slot {
            generation: *generation,
            fd,
            watched: Arc::clone(watched),
        });
        self.len.store(slots.len(), Ordering::Relaxed);
        Some(Ok(token))
    }

    /// Watches a descriptor no more; the caller may close it then.
    pub(crate) fn deregister(&self, token: Token) {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.slot(token) else {
            return;
        };
        let fd = slot.fd;
        if let (Some(registry), true) = (&inner.registry, self.process == std::process::id()) {
            // It can only fail if the selector is broken, and then a rebuild leaves it behind.
            let _ = registry.deregister(&mut SourceFd(&fd));
        }
        let slot = inner.slots.remove(index(token));
        self.len.store(inner.slots.len(), Ordering::Relaxed);
        // Generations go on counting, so a token of the past finds nothing in new slots either.
        let over = inner.slots.is_empty() && inner.slots.capacity() > KEPT;
        let room = over.then(|| std::mem::take(&mut inner.slots));
        drop(inner);
        drop(slot);
        drop(room);
    }

    /// Tells the sources what the selector reported; hands out whoever waits for it.
    pub(crate) fn report(&self, events: &Events, woken: &mut Vec<Waker>) {
        let inner = self.inner.lock();
        for event in events {
            if event.token() == BELL {
                continue;
            }
            self.events.add(1);
            match inner.slot(event.token()) {
                Some(slot) => slot.source().report(event, woken),
                None => self.stale.add(1),
            }
        }
    }

    /// Registers everything again, with a new selector.
    ///
    /// A descriptor that cannot be registered again is shut; its users are handed out.
    pub(crate) fn rebuild(&self, registry: Registry, woken: &mut Vec<Waker>) {
        let mut inner = self.inner.lock();
        self.rebuilds.add(1);
        if inner.registry.is_none() {
            return; // closed before its loop has ended: it stays so
        }
        for (index, slot) in &inner.slots {
            let token = token(index, slot.generation);
            let fd = &mut SourceFd(&slot.fd);
            if registry.register(fd, token, INTEREST).is_err() {
                slot.source().shut(woken);
            }
        }
        inner.registry = Some(registry);
    }

    /// Shuts every source and takes no more; returns how many there were.
    pub(crate) fn close(&self, woken: &mut Vec<Waker>) -> usize {
        let mut inner = self.inner.lock();
        let closed = inner.slots.len();
        for (_, slot) in &inner.slots {
            slot.source().shut(woken);
        }
        // Descriptors leave the selector when they are closed, or with the selector.
        let slots = std::mem::take(&mut inner.slots);
        inner.registry = None;
        self.len.store(0, Ordering::Relaxed);
        drop(inner);
        drop(slots);
        closed
    }
}

impl<W> Inner<W> {
    fn slot(&self, token: Token) -> Option<&Slot<W>> {
        self.slots
            .get(index(token))
            .filter(|slot| slot.generation as usize == token.0 >> HALF)
    }
}

impl<W: Borrow<Source>> Slot<W> {
    fn source(&self) -> &Source {
        (*self.watched).borrow()
    }
}

fn token(index: usize, generation: u32) -> Token {
    Token(index | (generation as usize) << HALF)
}

fn index(token: Token) -> usize {
    token.0 & ((1 << HALF) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::source::{Direction, Look};
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn pair() -> (UnixStream, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        (one, other)
    }

    #[test]
    fn an_event_for_a_descriptor_that_is_gone_does_not_reach_its_successor() {
        let mut poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        let (one, mut other) = pair();
        let first = Arc::new(Source::default());
        let token = table.register(one.as_raw_fd(), &first).unwrap().unwrap();
        other.write_all(b"x").unwrap();
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::from_secs(5)))
            .unwrap();
        assert!(!events.is_empty());
        // The descriptor goes, and another takes its slot, before the events are looked at.
        table.deregister(token);
        let (two, _open) = pair();
        let second = Arc::new(Source::default());
        let successor = table.register(two.as_raw_fd(), &second).unwrap().unwrap();
        assert_eq!(index(token), index(successor));
        let mut woken = Vec::new();
        drop(second.store(Direction::Read, Waker::noop().clone()));
        table.report(&events, &mut woken);
        assert!(woken.is_empty());
        assert_eq!(table.stale.get(), 1);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_closed_table_takes_nothing_and_shuts_what_it_had() {
        let poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        let (one, _other) = pair();
        let source = Arc::new(Source::default());
        let token = table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        assert_eq!(table.close(&mut Vec::new()), 1);
        assert_eq!(source.look(Direction::Read), Look::Shut);
        table.deregister(token); // late, and harmless
        assert!(table.register(one.as_raw_fd(), &source).is_none());
        // A loop that closes its channels first works on for a while, and may find its selector broken.
        let again = mio::Poll::new().unwrap();
        table.rebuild(again.registry().try_clone().unwrap(), &mut Vec::new());
        assert!(table.register(one.as_raw_fd(), &source).is_none());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn what_cannot_be_registered_again_is_shut_and_the_others_are_watched() {
        let poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        let pairs = [pair(), pair()];
        let fds = pairs.each_ref().map(|(one, _)| one.as_raw_fd());
        let sources = [(); 2].map(|()| Arc::new(Source::default()));
        for (fd, source) in fds.iter().zip(&sources) {
            table.register(*fd, source).unwrap().unwrap();
            drop(source.store(Direction::Read, Waker::noop().clone()));
        }
        // Somebody has it in there already: the new selector refuses it.
        let again = mio::Poll::new().unwrap();
        let (fd, token) = (&mut SourceFd(&fds[0]), Token(7));
        again.registry().register(fd, token, INTEREST).unwrap();
        let mut woken = Vec::new();
        table.rebuild(again.registry().try_clone().unwrap(), &mut woken);
        assert_eq!(woken.len(), 1, "who would wait in vain hears of it");
        let looks = sources.map(|source| source.look(Direction::Read));
        assert_eq!(looks, [Look::Shut, Look::NotReady]);
        let refused = again
            .registry()
            .register(&mut SourceFd(&fds[1]), token, INTEREST);
        assert!(refused.is_err(), "the other one is watched");
    }

    #[test]
    fn what_cannot_be_polled_is_an_error_and_leaves_no_slot() {
        let poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let source = Arc::new(Source::default());
        let error = table
            .register(file.as_raw_fd(), &source)
            .unwrap()
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_crowd_that_has_gone_leaves_no_room_behind_and_its_tokens_mean_nothing() {
        let poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        // One descriptor is watched once; the rest take slots without one.
        let (one, _other) = pair();
        let source = Arc::new(Source::default());
        let token = table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        let room = |table: &Table<Source>| table.inner.lock().slots.capacity();
        for slots in [KEPT, KEPT + 1] {
            let mut inner = table.inner.lock();
            inner.slots.reserve_exact(slots - 1);
            assert_eq!(inner.slots.capacity(), slots);
            drop(inner);
            let (two, _open) = pair();
            let last = table.register(two.as_raw_fd(), &source).unwrap().unwrap();
            table.deregister(last);
            assert_eq!(room(&table), slots, "it is not empty");
        }
        table.deregister(token);
        assert_eq!((room(&table), table.len()), (0, 0));
        let again = table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        assert_eq!(index(again), index(token));
        table.deregister(token);
        assert_eq!(table.len(), 1, "a token of the past");
        table.deregister(again);
        assert_ne!(room(&table), 0, "a small one keeps it");
    }
}
