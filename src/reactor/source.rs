//! Readiness of one descriptor, and the wakers and futures that wait for it.
//!
//! - Readiness is one word: bits below, a tick above. Every event sets bits and increments the
//!   tick. A direction is cleared only if the tick is still the one that was read with the
//!   readiness, so an event between the system call and the clear is not lost.
//! - A short call clears only the data bit. The sticky bit (the peer has closed, an error is
//!   pending, or there is urgent data, at which a read stops) stays until a call returns
//!   `WouldBlock`: an error is reported once and is gone afterwards, and what was closed may be
//!   opened again (a FIFO). An error sets the sticky bits of both directions, since each has to
//!   find it by its own call, and wakes both.
//! - An event sets its bits first and takes the waiters' lock afterwards. A waiter reads the word
//!   while it holds that lock, or after it has held it: of an event and a waiter that race, one
//!   sees the other.
//! - Each direction has one waker for the poll functions, which the last caller replaces and every
//!   event wakes; and there is a [wait list](super::wait_list) of futures, which remove themselves. So
//!   nothing accumulates, and many tasks may wait for one socket.
//! - Three more facts share the word, set by the owner of a connection and kept by
//!   [`reopen`](Source::reopen): the reads have [ended](Source::end_reads), an [expired](Source::expire) time
//!   limit, and whether use is recorded for such a limit. They are read only where an operation would have to
//!   wait, or in the branch that also handles the end of a loop: a source without them pays nothing.
//! - It knows nothing of loops and sockets.
//!
//! # The baton
//!
//! The selector reports edges: after one event there may be one datagram or many, and no further
//! event until another one arrives. Waking every future that waits would cost time in proportion to
//! their number, for one datagram; waking one and no more would leave the remaining datagrams
//! unread. So an event that brings data gives a *baton* to the first future in the queue that waits
//! to operate, and wakes only that future.
//!
//! - The holder tries its system call. On any outcome but `WouldBlock`, and also if the future is
//!   dropped before it is polled, the holder *leaves*, and [`leave`](Source::leave) passes the
//!   baton to the next future in the queue if the direction is still ready. No other function
//!   passes it on.
//! - A holder whose call returns `WouldBlock` clears the readiness. If an event arrived in between,
//!   the clear fails and the holder tries again, still with the baton. Otherwise it requeues, at
//!   the front, and the baton ends.
//! - Futures that only observe readiness take nothing and never hold a baton: every event wakes all
//!   of them. The same applies to the wakers of the poll functions.
//! - An error, a hang-up, urgent data and the end of the loop concern every waiter, and wake every
//!   waiter.
//!
//! No wake-up is lost, because of one invariant: *while a direction is ready and a future that
//! waits to operate sleeps in the queue, an event has yet to take the lock, or some future holds a
//! baton.* Such a future goes to sleep with the lock held and the word not ready, so the event that
//! makes the word ready takes the lock later, finds the queue not empty, and gives out a baton.
//! From there on a baton ends in two ways, both under the lock: in `leave`, which passes it on if
//! the word is ready; and in [`enlist`](Source::enlist), if the word is not. If the word is ready
//! there, the holder keeps the baton and tries again. A future that finds a direction ready without
//! a baton (it has just arrived, or was woken together with all others) may take what is there and
//! has nothing to pass on.
//!
//! There can be several batons, one for each event, held on several loops; each success and each
//! event wakes at most one future. A holder that is neither polled nor dropped keeps its baton:
//! such a future ignores its waker.

use std::task::Waker;

use mio::event::Event;

use crate::reactor::direction::Direction;
use crate::reactor::wait_list::{Intent, WaitKey, WaitList};
use crate::sim::Ready;
use crate::sync::{AtomicUsize, Mutex, Ordering};

const READABLE: usize = 1;
const WRITABLE: usize = 1 << 1;
/// Closed, in error, or urgent: worth a system call even after a short one.
const READ_STICKY: usize = 1 << 2;
const WRITE_STICKY: usize = 1 << 3;
/// The loop has ended: no further events will be reported.
const SHUT: usize = 1 << 4;
/// The bits above: what the selector and the end of the loop have reported.
const EVENTS: usize = (1 << 5) - 1;
/// A read that would have to wait finds the end of the stream.
const READS_ENDED: usize = 1 << 5;
/// An operation that would have to wait fails: a time limit has expired.
const EXPIRED: usize = 1 << 6;
/// Use is recorded in the two bits below.
const LIMITED: usize = 1 << 7;
/// It was ready for an operation since the last look; see [`Source::take_use`].
const USED: usize = 1 << 8;
/// It was ready for a read at least once.
const RECEIVED: usize = 1 << 9;
/// A waker was taken to have its task look for something else; see [`Source::take_awaited`].
const NUDGED: usize = 1 << 10;
const TICK: usize = 1 << 11;
/// All bits below the tick.
const BITS: usize = TICK - 1;

impl Direction {
    /// The bits that make a system call in this direction worthwhile; `WouldBlock` clears them.
    fn mask(self) -> usize {
        match self {
            Direction::Read => READABLE | READ_STICKY,
            Direction::Write => WRITABLE | WRITE_STICKY,
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

/// The readiness of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Worth a system call; the tick is for [`Source::blocked`] and [`Source::short`].
    Ready(Tick),
    NotReady,
    /// Reads have ended: an operation that would block has nothing to wait for.
    Ended,
    /// Not ready, and a time limit has expired.
    Expired,
    /// The loop that would report events has ended.
    Shut,
}

/// The tick at which readiness was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(usize);

impl Tick {
    /// Stands for [`Readiness::Ended`] where readiness is expected. It clears nothing: no tick is as large.
    pub(crate) const END: Tick = Tick(usize::MAX);

    pub(crate) fn is_end(self) -> bool {
        self == Tick::END
    }
}

/// The readiness and the waiters of one descriptor, shared by its reactor and its users.
#[derive(Debug, Default)]
pub(crate) struct Source {
    word: AtomicUsize,
    waiters: Mutex<SourceWaiters>,
}

#[derive(Debug, Default)]
struct SourceWaiters {
    poll_read: Option<Waker>,
    poll_write: Option<Waker>,
    /// Allocated when the first future waits: most sockets are read and written by poll functions
    /// alone, and there are many of them.
    futures: Option<Box<WaitList>>,
}

/// The outcome of [`Source::enlist`], and a waker that is no longer needed, to be dropped with no
/// lock held.
#[derive(Debug)]
pub(crate) struct Enlisted {
    pub(crate) look: Readiness,
    pub(crate) spare: Option<Waker>,
}

/// The waker of the future that left, to be dropped, and of the next one, to be woken; both with no
/// lock held.
#[derive(Debug)]
#[must_use = "the next holder of the baton has to be woken"]
pub(crate) struct Handover {
    pub(crate) own: Option<Waker>,
    pub(crate) next: Option<Waker>,
}

impl Source {
    pub(crate) fn readiness(&self, direction: Direction) -> Readiness {
        // Acquire pairs with the Release of the update that set the bits.
        let word = self.word.load(Ordering::Acquire);
        if word & (SHUT | LIMITED) != 0 {
            self.rare_readiness(direction, word)
        } else if word & direction.mask() != 0 {
            Readiness::Ready(Tick(word / TICK))
        } else if word & READS_ENDED != 0 && direction == Direction::Read {
            Readiness::Ended
        } else {
            Readiness::NotReady
        }
    }

    /// The readiness of a source that is shut, or whose use is recorded.
    #[cold]
    fn rare_readiness(&self, direction: Direction, word: usize) -> Readiness {
        if word & SHUT != 0 {
            return Readiness::Shut;
        }
        if word & direction.mask() != 0 {
            let used = match direction {
                Direction::Read => USED | RECEIVED,
                Direction::Write => USED,
            };
            if word & used != used {
                self.word.fetch_or(used, Ordering::AcqRel);
            }
            return Readiness::Ready(Tick(word / TICK));
        }
        if word & READS_ENDED != 0 && direction == Direction::Read {
            Readiness::Ended
        } else if word & EXPIRED != 0 {
            Readiness::Expired
        } else {
            Readiness::NotReady
        }
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.word.load(Ordering::Acquire) & SHUT != 0
    }

    /// Clears all events, for registration with another loop: readiness is what that loop reports
    /// from now on.
    pub(crate) fn reopen(&self) {
        let reopen = |word: usize| Some((word & !EVENTS).wrapping_add(TICK));
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, reopen);
    }

    /// Records that a system call would block, unless an event was reported since `tick`.
    pub(crate) fn blocked(&self, direction: Direction, tick: Tick) {
        self.clear(direction.mask(), tick);
    }

    /// Records that a system call used up all the data, or all the buffer space, there was, unless
    /// an event was reported since `tick`.
    pub(crate) fn short(&self, direction: Direction, tick: Tick) {
        self.clear(direction.data(), tick);
    }

    fn clear(&self, bits: usize, tick: Tick) {
        let clear =
            |word: usize| (word / TICK == tick.0 && word & bits != 0).then_some(word & !bits);
        // If the tick is newer, the readiness that its event reported stays.
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, clear);
    }

    /// Records what the selector reported; adds the wakers of the affected waiters to `woken`.
    pub(crate) fn report(&self, event: &Event, woken: &mut Vec<Waker>) {
        let bits = bits_of([
            event.is_readable(),
            event.is_writable(),
            event.is_read_closed() || event.is_priority(),
            event.is_write_closed(),
            event.is_error(),
        ]);
        self.set(bits, woken);
    }

    /// Records what a simulated selector reported, as [`report`](Source::report) does.
    pub(crate) fn report_simulated(&self, ready: &Ready, woken: &mut Vec<Waker>) {
        let bits = bits_of([
            ready.readable,
            ready.writable,
            ready.read_closed,
            ready.write_closed,
            ready.error,
        ]);
        self.set(bits, woken);
    }

    /// Records that the loop has ended; adds the wakers of all waiters to `woken`.
    pub(crate) fn shut(&self, woken: &mut Vec<Waker>) {
        self.set(SHUT | EVENTS, woken);
    }

    /// Ends the reads: from now on a read that would block finds the end of the stream. Adds the wakers
    /// of those that wait to read to `woken`.
    pub(crate) fn end_reads(&self, woken: &mut Vec<Waker>) {
        self.word.fetch_or(READS_ENDED, Ordering::AcqRel);
        let mut waiters = self.waiters.lock();
        waiters.collect_woken(Direction::Read, READ_STICKY, woken);
    }

    /// Adds the wakers of those that wait to read to `woken`, although nothing has arrived.
    pub(crate) fn wake_readers(&self, woken: &mut Vec<Waker>) {
        let before = woken.len();
        let mut waiters = self.waiters.lock();
        waiters.collect_woken(Direction::Read, READ_STICKY, woken);
        if woken.len() > before {
            self.word.fetch_or(NUDGED, Ordering::AcqRel);
        }
    }

    /// Has every operation that would have to wait fail; adds the wakers of all waiters to `woken`. Use
    /// must be [recorded](Source::record_use).
    pub(crate) fn expire(&self, woken: &mut Vec<Waker>) {
        let before = self.word.fetch_or(EXPIRED, Ordering::AcqRel);
        debug_assert_ne!(before & LIMITED, 0, "otherwise nobody looks at the bit");
        let mut waiters = self.waiters.lock();
        for direction in [Direction::Read, Direction::Write] {
            waiters.collect_woken(direction, READ_STICKY | WRITE_STICKY, woken);
        }
    }

    /// Records from now on whether the source is used; see [`take_use`](Source::take_use).
    pub(crate) fn record_use(&self) {
        self.word.fetch_or(LIMITED, Ordering::AcqRel);
    }

    /// Whether it was ready for an operation since the last call.
    pub(crate) fn take_use(&self) -> bool {
        self.word.fetch_and(!USED, Ordering::AcqRel) & USED != 0
    }

    /// Whether anything has arrived to be read, the end of the stream included.
    pub(crate) fn has_received(&self) -> bool {
        let arrived = RECEIVED | READABLE | READ_STICKY;
        self.word.load(Ordering::Acquire) & arrived != 0
    }

    /// Whether a task waits for it, or did when it was last polled. One that was woken only to
    /// [look for something else](Source::wake_readers) has waited up to now, and counts once.
    pub(crate) fn take_awaited(&self) -> bool {
        let waiters = self.waiters.lock();
        // With the lock held: a waker is either still there or has left its mark.
        let nudged = self.word.fetch_and(!NUDGED, Ordering::AcqRel) & NUDGED != 0;
        let futures = waiters.futures.as_ref();
        nudged
            || waiters.poll_read.is_some()
            || waiters.poll_write.is_some()
            || futures.is_some_and(|futures| !futures.is_empty())
    }

    fn set(&self, bits: usize, woken: &mut Vec<Waker>) {
        let set = |word: usize| Some(((word & BITS) | bits) | (word & !BITS).wrapping_add(TICK));
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
        let mut waiters = self.waiters.lock();
        for direction in [Direction::Read, Direction::Write] {
            waiters.collect_woken(direction, bits, woken);
        }
    }

    /// Stores the waker of a poll function; returns the one that it replaces.
    pub(crate) fn store(&self, direction: Direction, waker: Waker) -> Option<Waker> {
        let mut waiters = self.waiters.lock();
        waiters.poll_waker(direction).replace(waker)
    }

    /// Enqueues a future, unless the direction is ready or shut; its entry is created by the first
    /// call that does.
    pub(crate) fn enlist(
        &self,
        key: &mut Option<WaitKey>,
        direction: Direction,
        intent: Intent,
        waker: Waker,
    ) -> Enlisted {
        let mut waiters = self.waiters.lock();
        // With the lock held: a holder of the baton must not go to sleep on a direction that is ready.
        let look = self.readiness(direction);
        let spare = if look == Readiness::NotReady {
            let futures = waiters.futures.get_or_insert_default();
            match *key {
                Some(key) => futures.requeue(key, waker),
                None => {
                    *key = Some(futures.insert(direction, intent, waker));
                    None
                }
            }
        } else {
            Some(waker)
        };
        Enlisted { look, spare }
    }

    /// Removes a future; a baton that it held passes to the next in the queue if the direction is
    /// still ready.
    pub(crate) fn leave(&self, key: WaitKey) -> Handover {
        let mut waiters = self.waiters.lock();
        let futures = waiters
            .futures
            .as_mut()
            .expect("created when the future was enlisted");
        let removed = futures.remove(key);
        let still_ready =
            |direction: &Direction| matches!(self.readiness(*direction), Readiness::Ready(_));
        let next = removed
            .baton
            .filter(still_ready)
            .and_then(|direction| futures.notify_one(direction));
        Handover {
            own: removed.waker,
            next,
        }
    }
}

/// The bits of an event: readable, writable, read closed, write closed, error.
#[inline]
fn bits_of(event: [bool; 5]) -> usize {
    const BITS: [usize; 5] = [
        READABLE,
        WRITABLE,
        READ_STICKY,
        WRITE_STICKY,
        READ_STICKY | WRITE_STICKY,
    ];
    let bits = event.into_iter().zip(BITS);
    bits.fold(0, |all, (set, bit)| all | if set { bit } else { 0 })
}

impl SourceWaiters {
    /// Adds the wakers that `bits` wake in one direction to `woken`.
    fn collect_woken(&mut self, direction: Direction, bits: usize, woken: &mut Vec<Waker>) {
        if bits & direction.mask() == 0 {
            return;
        }
        woken.extend(self.poll_waker(direction).take());
        let Some(futures) = &mut self.futures else {
            return;
        };
        futures.notify_all(direction, Intent::Observe, woken);
        if bits & direction.mask() == direction.data() {
            woken.extend(futures.notify_one(direction));
        } else {
            futures.notify_all(direction, Intent::Operate, woken);
        }
    }

    fn poll_waker(&mut self, direction: Direction) -> &mut Option<Waker> {
        match direction {
            Direction::Read => &mut self.poll_read,
            Direction::Write => &mut self.poll_write,
        }
    }
}

#[cfg(test)]
mod tests;
