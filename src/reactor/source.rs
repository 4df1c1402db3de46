//! What is known about one descriptor: whether it is ready, and who waits for it.
//!
//! - Readiness is one word: bits below, a tick above. Every event sets bits and counts the tick up; a
//!   direction is cleared only if the tick is still the one it was read at. So an event that comes
//!   between the system call and the clearing is not lost.
//! - What a short call clears is only readiness for data. That the other side is gone, that there is an
//!   error to fetch, or urgent data, which a read stops at, stands until a call says `WouldBlock`: errors
//!   are told once and then are over, and what was closed may be opened again (a FIFO). An error stands
//!   for both directions, each of which has to find out by itself, and both are woken.
//! - A waiter is stored first and the word looked at again after: of an event and a waiter that meet,
//!   one sees the other (the waiters' lock orders them).
//! - One place per direction for the poll traits, whose last caller counts, and a list for futures,
//!   which take themselves out. So nothing piles up, and many tasks may wait for one socket.
//! - It knows nothing of loops and sockets.

use std::task::Waker;

use mio::event::Event;

use crate::sync::{AtomicUsize, Mutex, Ordering};

const READABLE: usize = 1;
const WRITABLE: usize = 1 << 1;
/// Closed, in error, or urgent: worth a system call, also after one that was short.
const READ_STANDS: usize = 1 << 2;
const WRITE_STANDS: usize = 1 << 3;
/// The loop is gone: nothing will be reported any more.
const SHUT: usize = 1 << 4;
const BITS: usize = (1 << 5) - 1;
const TICK: usize = 1 << 5;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// The bits that make a system call in this direction worth while; `WouldBlock` clears them.
    fn mask(self) -> usize {
        match self {
            Direction::Read => READABLE | READ_STANDS,
            Direction::Write => WRITABLE | WRITE_STANDS,
        }
    }

    /// The bit that a short call clears.
    fn data(self) -> usize {
        match self {
            Direction::Read => READABLE,
            Direction::Write => WRITABLE,
        }
    }
}

/// The state of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Worth a system call; the tick is for [`Source::blocked`] and [`Source::short`].
    Ready(Tick),
    NotReady,
    /// The loop that would report is gone.
    Shut,
}

/// When readiness was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(usize);

/// One descriptor, as its reactor and its users see it.
#[derive(Debug, Default)]
pub(crate) struct Source {
    word: AtomicUsize,
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    read: Option<Waker>,
    write: Option<Waker>,
    /// Made when the first future waits: most sockets are read and written by poll functions alone, and
    /// there are many of them.
    crowd: Option<Box<Crowd>>,
}

#[derive(Debug, Default)]
struct Crowd {
    futures: Vec<Waiter>,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    direction: Direction,
    waker: Waker,
}

impl Source {
    pub(crate) fn look(&self, direction: Direction) -> Look {
        // Acquire pairs with the Release of whoever set the bits.
        let word = self.word.load(Ordering::Acquire);
        if word & SHUT != 0 {
            Look::Shut
        } else if word & direction.mask() != 0 {
            Look::Ready(Tick(word / TICK))
        } else {
            Look::NotReady
        }
    }

    /// Notes that a system call would block, unless something was reported since the look.
    pub(crate) fn blocked(&self, direction: Direction, tick: Tick) {
        self.clear(direction.mask(), tick);
    }

    /// Notes that a system call took all the data, or all the room, there was, unless something was
    /// reported since the look.
    pub(crate) fn short(&self, direction: Direction, tick: Tick) {
        self.clear(direction.data(), tick);
    }

    fn clear(&self, bits: usize, tick: Tick) {
        let clear =
            |word: usize| (word / TICK == tick.0 && word & bits != 0).then_some(word & !bits);
        // A newer tick: the readiness of that event stands.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, clear);
    }

    /// Notes what the selector reported; hands out whoever waits for it.
    pub(crate) fn report(&self, event: &Event, woken: &mut Vec<Waker>) {
        let mut bits = 0;
        for (set, bit) in [
            (event.is_readable(), READABLE),
            (event.is_writable(), WRITABLE),
            (event.is_read_closed() || event.is_priority(), READ_STANDS),
            (event.is_write_closed(), WRITE_STANDS),
            (event.is_error(), READ_STANDS | WRITE_STANDS),
        ] {
            bits |= if set { bit } else { 0 };
        }
        self.set(bits, woken);
    }

    /// Notes that the loop is gone; hands everybody out.
    pub(crate) fn shut(&self, woken: &mut Vec<Waker>) {
        self.set(SHUT | BITS, woken);
    }

    fn set(&self, bits: usize, woken: &mut Vec<Waker>) {
        let set = |word: usize| Some(((word & BITS) | bits) | (word & !BITS).wrapping_add(TICK));
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
        let mut waiters = self.waiters.lock();
        if bits & Direction::Read.mask() != 0 {
            woken.extend(waiters.read.take());
        }
        if bits & Direction::Write.mask() != 0 {
            woken.extend(waiters.write.take());
        }
        if let Some(crowd) = &mut waiters.crowd {
            crowd.take(bits, woken);
        }
    }

    /// Stores the waker of a poll function, in the place of the last one, which is handed out.
    pub(crate) fn store(&self, direction: Direction, waker: Waker) -> Option<Waker> {
        let mut waiters = self.waiters.lock();
        match direction {
            Direction::Read => waiters.read.replace(waker),
            Direction::Write => waiters.write.replace(waker),
        }
    }

    /// Stores the waker of a future under its id; the one that is not needed any more is handed out.
    pub(crate) fn enlist(
        &self,
        id: &mut Option<u64>,
        direction: Direction,
        waker: Waker,
    ) -> Option<Waker> {
        let mut waiters = self.waiters.lock();
        let crowd = waiters.crowd.get_or_insert_default();
        let mut futures = crowd.futures.iter_mut();
        if let Some(waiter) = futures.find(|one| Some(one.id) == *id) {
            return Some(std::mem::replace(&mut waiter.waker, waker));
        }
        let fresh = crowd.next;
        crowd.next += 1;
        *id = Some(fresh);
        crowd.futures.push(Waiter {
            id: fresh,
            direction,
            waker,
        });
        None
    }

    /// Takes a future's waker out.
    pub(crate) fn delist(&self, id: u64) -> Option<Waker> {
        let mut waiters = self.waiters.lock();
        let futures = &mut waiters.crowd.as_mut()?.futures;
        let index = futures.iter().position(|one| one.id == id)?;
        Some(futures.swap_remove(index).waker)
    }
}

impl Crowd {
    /// Hands out who waits for one of `bits`.
    fn take(&mut self, bits: usize, woken: &mut Vec<Waker>) {
        let mut index = 0;
        while index < self.futures.len() {
            if bits & self.futures[index].direction.mask() != 0 {
                woken.push(self.futures.swap_remove(index).waker);
            } else {
                index += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;

    fn set(source: &Source, bits: usize) -> usize {
        let mut woken = Vec::new();
        source.set(bits, &mut woken);
        woken.len()
    }

    fn ready(source: &Source, direction: Direction) -> bool {
        matches!(source.look(direction), Look::Ready(_))
    }

    #[test]
    fn a_clear_that_is_out_of_date_does_nothing() {
        let source = Source::default();
        set(&source, READABLE);
        let Look::Ready(old) = source.look(Direction::Read) else {
            panic!("it was set")
        };
        set(&source, READABLE); // an event between the system call and the clearing
        source.blocked(Direction::Read, old);
        assert!(ready(&source, Direction::Read), "the newer event stands");
        let Look::Ready(new) = source.look(Direction::Read) else {
            panic!("it stands")
        };
        source.blocked(Direction::Read, new);
        assert_eq!(source.look(Direction::Read), Look::NotReady);
    }

    #[test]
    fn clearing_one_direction_leaves_the_other() {
        let source = Source::default();
        set(&source, BITS & !SHUT);
        let Look::Ready(tick) = source.look(Direction::Read) else {
            panic!("it was set")
        };
        source.blocked(Direction::Read, tick);
        assert!(!ready(&source, Direction::Read));
        assert!(ready(&source, Direction::Write));
    }

    #[test]
    fn what_is_closed_stays_ready_until_a_call_would_block() {
        let source = Source::default();
        set(&source, READABLE | READ_STANDS);
        let Look::Ready(tick) = source.look(Direction::Read) else {
            panic!("it was set")
        };
        source.short(Direction::Read, tick);
        assert!(
            ready(&source, Direction::Read),
            "the end of the stream can be read"
        );
        assert!(!ready(&source, Direction::Write));
        source.blocked(Direction::Read, tick);
        assert_eq!(source.look(Direction::Read), Look::NotReady);
    }

    #[test]
    fn one_error_event_wakes_both_directions_once() {
        let source = Source::default();
        let noop = || Waker::noop().clone();
        drop(source.store(Direction::Read, noop()));
        drop(source.store(Direction::Write, noop()));
        let mut id = None;
        drop(source.enlist(&mut id, Direction::Write, noop()));
        assert_eq!(set(&source, READ_STANDS | WRITE_STANDS), 3);
        assert_eq!(set(&source, READ_STANDS), 0, "nobody is woken twice");
        assert!(ready(&source, Direction::Read) && ready(&source, Direction::Write));
    }

    #[test]
    fn waiters_do_not_pile_up_and_futures_take_themselves_out() {
        let source = Source::default();
        let noop = || Waker::noop().clone();
        let (mut first, mut second) = (None, None);
        for _ in 0..10 {
            drop(source.store(Direction::Read, noop()));
            drop(source.enlist(&mut first, Direction::Read, noop()));
            drop(source.enlist(&mut second, Direction::Read, noop()));
        }
        assert!(source.delist(first.unwrap()).is_some());
        assert!(source.delist(first.unwrap()).is_none());
        assert_eq!(
            set(&source, READABLE),
            2,
            "the poll place and the second future"
        );
        assert!(source.delist(second.unwrap()).is_none());
    }

    #[test]
    fn a_shut_source_says_so_in_both_directions() {
        let source = Source::default();
        drop(source.store(Direction::Read, Waker::noop().clone()));
        let mut woken = Vec::new();
        source.shut(&mut woken);
        assert_eq!(woken.len(), 1);
        assert_eq!(source.look(Direction::Read), Look::Shut);
        assert_eq!(source.look(Direction::Write), Look::Shut);
    }

    #[test]
    fn the_tick_wraps_without_touching_the_bits() {
        let source = Source::default();
        source.word.store(!BITS, Ordering::Relaxed); // the last tick of all
        set(&source, READABLE);
        assert_eq!(source.word.load(Ordering::Relaxed), READABLE);
    }

    #[test]
    fn a_short_call_after_the_wrap_of_the_tick_clears_too() {
        let source = Source::default();
        source.word.store(!BITS, Ordering::Relaxed);
        set(&source, READABLE);
        source.short(Direction::Read, Tick(0));
        assert_eq!(source.look(Direction::Read), Look::NotReady);
    }

    #[test]
    fn an_event_wakes_its_own_direction_only() {
        for (direction, bit, other) in [
            (Direction::Read, READABLE, WRITABLE),
            (Direction::Write, WRITABLE, READABLE),
        ] {
            let source = Source::default();
            let noop = || Waker::noop().clone();
            drop(source.store(direction, noop()));
            for one in [Direction::Read, Direction::Write, direction] {
                drop(source.enlist(&mut None, one, noop()));
            }
            assert_eq!(set(&source, other), 1, "the future of the other direction");
            assert_eq!(set(&source, bit), 3);
            assert_eq!(set(&source, bit | other), 0);
            let Look::Ready(tick) = source.look(direction) else {
                panic!("it was set")
            };
            source.short(direction, tick);
            assert_eq!(source.look(direction), Look::NotReady);
            assert_eq!(bits(&source), other, "the other direction is as it was");
        }
    }

    #[test]
    fn a_future_takes_its_own_waker_out() {
        struct Quiet;
        impl std::task::Wake for Quiet {
            fn wake(self: Arc<Self>) {}
        }
        let source = Source::default();
        let wakers = [0; 3].map(|_| Waker::from(Arc::new(Quiet)));
        let ids = wakers.each_ref().map(|waker| {
            let mut id = None;
            drop(source.enlist(&mut id, Direction::Read, waker.clone()));
            id.unwrap()
        });
        for index in [1, 0, 2] {
            let waker = source.delist(ids[index]).unwrap();
            assert!(waker.will_wake(&wakers[index]));
        }
    }

    /// What a selector reports of `fd` now.
    fn reported(fd: &impl std::os::fd::AsRawFd) -> Source {
        let mut poll = mio::Poll::new().unwrap();
        let fd = fd.as_raw_fd();
        let mut watched = mio::unix::SourceFd(&fd);
        let both = mio::Interest::READABLE | mio::Interest::WRITABLE;
        let registry = poll.registry();
        registry
            .register(&mut watched, mio::Token(0), both)
            .unwrap();
        let mut events = mio::Events::with_capacity(1);
        let long = std::time::Duration::from_secs(30);
        poll.poll(&mut events, Some(long)).unwrap();
        let source = Source::default();
        source.report(events.iter().next().unwrap(), &mut Vec::new());
        source
    }

    fn bits(source: &Source) -> usize {
        source.word.load(Ordering::Relaxed) & BITS
    }

    #[test]
    fn what_the_selector_reports_is_what_is_noted() {
        use std::io::Write;
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(bits(&reported(&one)), WRITABLE);
        other.write_all(b"x").unwrap();
        assert_eq!(bits(&reported(&one)), READABLE | WRITABLE);
        other.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(bits(&reported(&one)), READABLE | WRITABLE | READ_STANDS);
        drop(other);
        let both = READABLE | WRITABLE | READ_STANDS | WRITE_STANDS;
        assert_eq!(bits(&reported(&one)), both);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_error_stands_for_both_directions() {
        let address = {
            let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            gone.local_addr().unwrap()
        };
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        socket.send(b"x").unwrap(); // nobody is there, and the answer says so
        let source = reported(&socket);
        assert_eq!(
            bits(&source) & (READ_STANDS | WRITE_STANDS),
            READ_STANDS | WRITE_STANDS
        );
    }
}
