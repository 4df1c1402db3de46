//! What is known about one descriptor: whether it is ready, and who waits for it.
//!
//! - Readiness is one word: bits below, a tick above. Every event sets bits and counts the tick up; a
//!   direction is cleared only if the tick is still the one it was read at. So an event that comes
//!   between the system call and the clearing is not lost.
//! - What a short call clears is only readiness for data. That the other side is gone, that there is an
//!   error to fetch, or urgent data, which a read stops at, stands until a call says `WouldBlock`: errors
//!   are told once and then are over, and what was closed may be opened again (a FIFO). An error stands
//!   for both directions, each of which has to find out by itself, and both are woken.
//! - An event sets its bits first and takes the waiters' lock after. A waiter looks at the word with that lock
//!   held, or after it was: of an event and a waiter that meet, one sees the other.
//! - One place per direction for the poll traits, whose last caller counts and is woken by every event; and a
//!   [crowd](super::crowd) of futures, which take themselves out. So nothing piles up, and many tasks may wait
//!   for one socket.
//! - It knows nothing of loops and sockets.
//!
//! # The baton
//!
//! The selector reports edges: after one event there may be one datagram or many, and no further event until
//! one more arrives. To wake every future that waits would cost as much as the crowd is large, for one
//! datagram; to wake one and no more would leave the rest of the datagrams where they are. So an event that
//! brings data gives a *baton* to the first future in line, and wakes that one only.
//!
//! - The holder tries its system call. Whatever comes of it but `WouldBlock`, and also if the future is dropped
//!   before it is polled, the holder *leaves*, and [`leave`](Source::leave) passes the baton to the next in
//!   line if the direction is still ready. It is the only place that does.
//! - A holder that is told `WouldBlock` clears the readiness. If an event came in between, the clearing fails
//!   and the holder tries again, baton in hand. Else it lines up again, in front, and the baton is over.
//! - Futures that only want to know of readiness take nothing and never hold a baton: every event wakes them all.
//!   The same goes for the poll functions' places.
//! - An error, a hang-up, urgent data and the end of the loop concern everybody, and wake everybody.
//!
//! No wake-up is lost, because of one invariant: *while a direction is ready and a taker sleeps in line, an event
//! is still about to take the lock, or somebody holds a baton.* A taker lies down with the lock held and the word
//! not ready, so the event that makes it ready takes the lock later, finds the line not empty, and gives a baton
//! out. From there on a baton ends in two ways, both under the lock: in `leave`, which passes it on if the
//! word is ready; and in [`enlist`](Source::enlist), if the word is not. If the word is ready there, the holder
//! keeps the baton and tries again. Who finds a direction ready without a baton (it has just come, or was woken
//! together with all) may take what is there and owes nothing.
//!
//! Batons can be several, one for each event, on several loops; each success and each event wakes one future at
//! most. A holder that is neither polled nor dropped keeps its baton: that is a future which ignores its waker.

use std::task::Waker;

use mio::event::Event;

use crate::reactor::crowd::{Aim, Crowd, Key};
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

/// The outcome of [`Source::enlist`], and a waker that is not needed any more, to be dropped with nothing held.
#[derive(Debug)]
pub(crate) struct Enlisted {
    pub(crate) look: Look,
    pub(crate) spare: Option<Waker>,
}

/// Who left, to be dropped; and who is next, to be woken. Both with nothing held.
#[derive(Debug)]
#[must_use = "the baton is on its way to the next one"]
pub(crate) struct Handover {
    pub(crate) own: Option<Waker>,
    pub(crate) next: Option<Waker>,
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

    pub(crate) fn is_shut(&self) -> bool {
        self.word.load(Ordering::Acquire) & SHUT != 0
    }

    /// Begins anew, for another loop: what is ready is what that will report.
    pub(crate) fn reopen(&self) {
        let reopen = |word: usize| Some((word & !BITS).wrapping_add(TICK));
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, reopen);
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
        for direction in [Direction::Read, Direction::Write] {
            waiters.call(direction, bits, woken);
        }
    }

    /// Stores the waker of a poll function, in the place of the last one, which is handed out.
    pub(crate) fn store(&self, direction: Direction, waker: Waker) -> Option<Waker> {
        let mut waiters = self.waiters.lock();
        waiters.slot(direction).replace(waker)
    }

    /// Has a future wait, unless the direction is ready or shut; its place is made when it first does.
    pub(crate) fn enlist(
        &self,
        key: &mut Option<Key>,
        direction: Direction,
        aim: Aim,
        waker: Waker,
    ) -> Enlisted {
        let mut waiters = self.waiters.lock();
        // With the lock held: a holder of the baton must not lie down on a direction that is ready.
        let look = self.look(direction);
        let spare = if look == Look::NotReady {
            let crowd = waiters.crowd.get_or_insert_default();
            match *key {
                Some(key) => crowd.again(key, waker),
                None => {
                    *key = Some(crowd.join(direction, aim, waker));
                    None
                }
            }
        } else {
            Some(waker)
        };
        Enlisted { look, spare }
    }

    /// Takes a future out; the baton, if it held one, goes to the next in line if there is something left.
    pub(crate) fn leave(&self, key: Key) -> Handover {
        let mut waiters = self.waiters.lock();
        let crowd = waiters.crowd.as_mut().expect("made when it was enlisted");
        let left = crowd.leave(key);
        let on = |way: &Direction| matches!(self.look(*way), Look::Ready(_));
        let next = left.baton.filter(on).and_then(|way| crowd.call_one(way));
        Handover {
            own: left.waker,
            next,
        }
    }
}

impl Waiters {
    /// Hands out who has to be told of `bits` in one direction.
    fn call(&mut self, direction: Direction, bits: usize, woken: &mut Vec<Waker>) {
        if bits & direction.mask() == 0 {
            return;
        }
        woken.extend(self.slot(direction).take());
        let Some(crowd) = &mut self.crowd else {
            return;
        };
        crowd.call_all(direction, Aim::Know, woken);
        if bits & direction.mask() == direction.data() {
            woken.extend(crowd.call_one(direction));
        } else {
            crowd.call_all(direction, Aim::Take, woken);
        }
    }

    fn slot(&mut self, direction: Direction) -> &mut Option<Waker> {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }
}

#[cfg(test)]
mod tests;
