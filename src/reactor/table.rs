//! The descriptors that a reactor watches.
//!
//! - A token is an index and a generation: an event for a descriptor that was deregistered does not
//!   reach the one that has its index now. Such an event is ignored and counted.
//! - Registering, reporting, rebuilding and closing take one lock; wakers are collected under it, once
//!   per batch of events, and woken by the caller with no lock held.
//! - Order of deregistration: leave the selector, free the slot, close the descriptor. The first
//!   two happen here, under the lock; the third is up to the owner, afterwards.
//! - A descriptor that was reported once is reported again only after another edge, or after
//!   [`look_again`](Table::look_again).
//! - It knows sources, not their owners: a slot holds any value that has a source.
//! - The table keeps raw descriptors, which the owners of the sources keep open for as long as they are
//!   registered: that makes it possible to register them all again.

use std::borrow::Borrow;
use std::io;
use std::os::fd::RawFd;
use std::task::Waker;

use mio::{Events, Registry, Token};
use slab::Slab;

use crate::metrics::gauges::Gauge;
use crate::reactor::registrar::Registrar;
use crate::reactor::source::Source;
use crate::sim::ReadyEvent;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};

/// Half of a token is the index, the other half the generation.
const HALF_BITS: u32 = usize::BITS / 2;
/// Excludes the generation of all ones, which with the greatest index would be the bell's token.
const GENERATIONS: u32 = ((1_u64 << HALF_BITS) - 1) as u32;

/// The token of the bell.
pub(crate) const BELL: Token = Token(usize::MAX);
/// The token of the alarm. Like the bell's, it is of the generation that no slot has.
pub(crate) const ALARM: Token = Token(usize::MAX - 1);

/// Capacity that an empty table keeps; a larger allocation is freed when the last descriptor is
/// deregistered.
const KEPT_SLOTS: usize = 1024;

/// The table; `W` is what the owner of a descriptor shares with it.
#[derive(Debug)]
pub(crate) struct Table<W> {
    inner: Mutex<TableInner<W>>,
    /// Number of descriptors in the table; can be read without the lock.
    len: AtomicUsize,
    /// The process that created the selector: a forked child shares it, and must not deregister
    /// anything.
    process: u32,
    /// Events for descriptors; written by the loop thread.
    pub(crate) events: Gauge,
    /// Events for descriptors that had been deregistered; written by the loop thread.
    pub(crate) stale: Gauge,
    pub(crate) rebuilds: Gauge,
}

#[derive(Debug)]
struct TableInner<W> {
    /// `None` once the loop has ended.
    registrar: Option<Registrar>,
    slots: Slab<TableSlot<W>>,
    generation: u32,
}

#[derive(Debug)]
struct TableSlot<W> {
    generation: u32,
    /// Negative for a socket of a simulated network: see [`registrar`](super::registrar).
    fd: RawFd,
    watched: Arc<W>,
}

impl<W: Borrow<Source>> Table<W> {
    pub(crate) fn new(registrar: impl Into<Registrar>) -> Table<W> {
        Table {
            inner: Mutex::new(TableInner {
                registrar: Some(registrar.into()),
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

    /// Brings the generation counter close to where it wraps around.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn age(&self) {
        self.inner.lock().generation = GENERATIONS - 5;
    }

    /// Whether it refuses new descriptors.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.lock().registrar.is_none()
    }

    /// Registers a descriptor, in both directions; `None` if the loop has ended.
    pub(crate) fn register(&self, fd: RawFd, watched: &Arc<W>) -> Option<io::Result<Token>> {
        let mut inner = self.inner.lock();
        let TableInner {
            registrar,
            slots,
            generation,
        } = &mut *inner;
        let registrar = registrar.as_ref()?;
        *generation = (*generation + 1) % GENERATIONS;
        let entry = slots.vacant_entry();
        let token = token(entry.key(), *generation);
        debug_assert!(token != BELL && token != ALARM);
        if let Err(error) = registrar.register(fd, token) {
            return Some(Err(error));
        }
        entry.insert(TableSlot {
            generation: *generation,
            fd,
            watched: Arc::clone(watched),
        });
        self.len.store(slots.len(), Ordering::Relaxed);
        Some(Ok(token))
    }

    /// Deregisters a descriptor; the caller may close it afterwards.
    pub(crate) fn deregister(&self, token: Token) {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.slot(token) else {
            return;
        };
        let fd = slot.fd;
        if let (Some(registrar), true) = (&inner.registrar, self.process == std::process::id()) {
            registrar.deregister(fd);
        }
        let slot = inner.slots.remove(index(token));
        self.len.store(inner.slots.len(), Ordering::Relaxed);
        // The generation counter is kept, so an old token finds nothing in new slots either.
        let excess = inner.slots.is_empty() && inner.slots.capacity() > KEPT_SLOTS;
        let freed = excess.then(|| std::mem::take(&mut inner.slots));
        drop(inner);
        drop(slot);
        drop(freed);
    }

    /// Has the selector report a descriptor again if it is ready, although it has reported that edge; `false`
    /// if the selector does not do so, or is broken.
    pub(crate) fn look_again(&self, token: Token) -> bool {
        let inner = self.inner.lock();
        let (Some(slot), Some(registrar)) = (inner.slot(token), &inner.registrar) else {
            return false;
        };
        registrar.look_again(slot.fd, token)
    }

    /// Passes what the selector reported to the sources; adds the wakers of their waiters to `woken`.
    pub(crate) fn report(&self, events: &Events, woken: &mut Vec<Waker>) {
        let inner = self.inner.lock();
        for event in events {
            if matches!(event.token(), BELL | ALARM) {
                continue;
            }
            self.events.add(1);
            match inner.slot(event.token()) {
                Some(slot) => slot.source().report(event, woken),
                None => self.stale.add(1),
            }
        }
    }

    /// Passes what a simulated selector reported to the sources, as [`report`](Table::report) does.
    pub(crate) fn report_simulated(&self, events: &[ReadyEvent], woken: &mut Vec<Waker>) {
        let inner = self.inner.lock();
        for event in events {
            self.events.add(1);
            match inner.slot(Token(event.token)) {
                Some(slot) => slot.source().report_simulated(&event.ready, woken),
                None => self.stale.add(1),
            }
        }
    }

    /// Registers all descriptors again, with a new selector.
    ///
    /// A descriptor that cannot be registered again is shut; the wakers of its waiters are added to
    /// `woken`.
    pub(crate) fn rebuild(&self, registry: Registry, woken: &mut Vec<Waker>) {
        let mut inner = self.inner.lock();
        self.rebuilds.add(1);
        if inner.registrar.is_none() {
            return; // closed before its loop has ended: it stays closed
        }
        let registrar = Registrar::from(registry);
        for (index, slot) in &inner.slots {
            let token = token(index, slot.generation);
            if registrar.register(slot.fd, token).is_err() {
                slot.source().shut(woken);
            }
        }
        inner.registrar = Some(registrar);
    }

    /// Shuts every source and refuses new ones; returns how many there were.
    pub(crate) fn close(&self, woken: &mut Vec<Waker>) -> usize {
        let mut inner = self.inner.lock();
        let closed = inner.slots.len();
        for (_, slot) in &inner.slots {
            slot.source().shut(woken);
        }
        // Descriptors leave the selector when they are closed, or when the selector is dropped.
        let slots = std::mem::take(&mut inner.slots);
        inner.registrar = None;
        self.len.store(0, Ordering::Relaxed);
        drop(inner);
        drop(slots);
        closed
    }
}

impl<W> TableInner<W> {
    fn slot(&self, token: Token) -> Option<&TableSlot<W>> {
        self.slots
            .get(index(token))
            .filter(|slot| slot.generation as usize == token.0 >> HALF_BITS)
    }
}

impl<W: Borrow<Source>> TableSlot<W> {
    fn source(&self) -> &Source {
        (*self.watched).borrow()
    }
}

fn token(index: usize, generation: u32) -> Token {
    Token(index | (generation as usize) << HALF_BITS)
}

fn index(token: Token) -> usize {
    token.0 & ((1 << HALF_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::direction::Direction;
    use crate::reactor::registrar::INTEREST;
    use crate::reactor::source::Readiness;
    use mio::unix::SourceFd;
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
    fn an_event_for_a_deregistered_descriptor_does_not_reach_its_successor() {
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
        // The descriptor is deregistered, and another takes its slot, before the events are processed.
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

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn a_look_reports_an_edge_again_and_only_if_it_is_still_there() {
        use std::io::Read;
        let mut poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        let (mut one, mut other) = pair();
        let source = Arc::new(Source::default());
        let token = table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        other.write_all(b"x").unwrap();
        let mut events = Events::with_capacity(8);
        let mut readable = || {
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            events.iter().any(|event| event.is_readable())
        };
        assert!(readable());
        assert!(!readable(), "an edge is reported once");
        assert!(table.look_again(token));
        assert!(readable());
        one.read_exact(&mut [0]).unwrap();
        assert!(table.look_again(token));
        assert!(!readable());
        table.deregister(token);
        assert!(!table.look_again(token));
    }

    #[test]
    fn a_closed_table_refuses_descriptors_and_shuts_those_it_had() {
        let poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        let (one, _other) = pair();
        let source = Arc::new(Source::default());
        let token = table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        assert_eq!(table.close(&mut Vec::new()), 1);
        assert_eq!(source.readiness(Direction::Read), Readiness::Shut);
        table.deregister(token); // late, but harmless
        assert!(table.register(one.as_raw_fd(), &source).is_none());
        // A loop runs on for a while after it has closed its channels, and may find its selector
        // broken.
        let again = mio::Poll::new().unwrap();
        table.rebuild(again.registry().try_clone().unwrap(), &mut Vec::new());
        assert!(table.register(one.as_raw_fd(), &source).is_none());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_descriptor_that_cannot_be_registered_again_is_shut_and_the_others_are_watched() {
        let poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        let pairs = [pair(), pair()];
        let fds = pairs.each_ref().map(|(one, _)| one.as_raw_fd());
        let sources = [(); 2].map(|()| Arc::new(Source::default()));
        for (fd, source) in fds.iter().zip(&sources) {
            table.register(*fd, source).unwrap().unwrap();
            drop(source.store(Direction::Read, Waker::noop().clone()));
        }
        // It is registered there already: the new selector refuses it.
        let again = mio::Poll::new().unwrap();
        let (fd, token) = (&mut SourceFd(&fds[0]), Token(7));
        again.registry().register(fd, token, INTEREST).unwrap();
        let mut woken = Vec::new();
        table.rebuild(again.registry().try_clone().unwrap(), &mut woken);
        assert_eq!(woken.len(), 1, "the waiter of the shut source");
        let looks = sources.map(|source| source.readiness(Direction::Read));
        assert_eq!(looks, [Readiness::Shut, Readiness::NotReady]);
        let refused = again
            .registry()
            .register(&mut SourceFd(&fds[1]), token, INTEREST);
        assert!(refused.is_err(), "the other descriptor is watched");
    }

    #[test]
    fn a_descriptor_that_cannot_be_polled_is_an_error_and_leaves_no_slot() {
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
    fn an_emptied_table_frees_its_memory_and_old_tokens_stay_stale() {
        let poll = mio::Poll::new().unwrap();
        let table = Table::new(poll.registry().try_clone().unwrap());
        // A descriptor can be registered only once; the other slots are reserved without one.
        let (one, _other) = pair();
        let source = Arc::new(Source::default());
        let token = table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        let capacity = |table: &Table<Source>| table.inner.lock().slots.capacity();
        for slots in [KEPT_SLOTS, KEPT_SLOTS + 1] {
            let mut inner = table.inner.lock();
            inner.slots.reserve_exact(slots - 1);
            assert_eq!(inner.slots.capacity(), slots);
            drop(inner);
            let (two, _open) = pair();
            let last = table.register(two.as_raw_fd(), &source).unwrap().unwrap();
            table.deregister(last);
            assert_eq!(capacity(&table), slots, "the table is not empty");
        }
        table.deregister(token);
        assert_eq!((capacity(&table), table.len()), (0, 0));
        let again = table.register(one.as_raw_fd(), &source).unwrap().unwrap();
        assert_eq!(index(again), index(token));
        table.deregister(token);
        assert_eq!(table.len(), 1, "the token was stale");
        table.deregister(again);
        assert_ne!(capacity(&table), 0, "a small table keeps its memory");
    }
}
