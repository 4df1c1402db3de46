//! Chooses by load: of two loops the one with more time left for what it has to do.
//!
//! - The price of a loop is its work of late, divided by its room. Work is what this chooser has given to the
//!   loop in about the last second, or its queue if that is longer; room is the share of time that the loop
//!   does not work, less if it is slow to wake up. The cheaper of two random loops is chosen.
//! - So a burst is divided by room: it does not end up on the loop that was the least busy when it began, and
//!   the measured utilization, which lags by a second, need not change meanwhile. Placements are forgotten at
//!   the pace at which utilization is measured: what they cost is then part of it.
//! - Utilization counts in whole percents, so that loops without a real difference are equal. Equal loops
//!   are chosen at random.

use std::time::{Duration, Instant};

use crate::chooser::{Chooser, GroupView};
use crate::random::scramble;
use crate::sync::Ordering;
use crate::sync::plain::{AtomicUsize, Mutex};

/// The work that every loop is taken to have, in placements: while there are fewer of them than this,
/// utilization decides.
const BASE: f64 = 4.0;
/// The room of a loop that works all the time: it may be about to finish.
const LEAST_ROOM: f64 = 0.01;
/// A loop that takes this long to wake up has half the room.
const SLOW_WAKE: f64 = 0.002;
/// How often placements fade, at most.
const FADE_STEP: Duration = Duration::from_millis(16);

/// Compares two different loops and chooses the one that is less busy, by its
/// [utilization](crate::LoopMetrics::utilization), its [delay](crate::LoopMetrics::wake_delay) when it is
/// woken, and its queue.
///
/// For work of very different weight, such as connections of which a few are heavy: [`LeastLoaded`] counts
/// tasks, which all weigh the same there. What was placed in about the last second counts as well, as its
/// cost cannot be measured yet: a burst is divided among the loops in proportion to the time that they have
/// left. Of loops that are equally busy, a random one is chosen. Loops that are shutting down or paused are
/// skipped.
///
/// The chooser compares two loops, not all of them: measured load is always a little old, and the least busy
/// loop of all would be given everything until the next measurement.
///
/// [`LeastLoaded`]: crate::LeastLoaded
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, LeastBusy};
/// use std::{sync::mpsc, thread, time::Duration};
///
/// let group = EventLoopGroup::builder().loops(2).chooser(LeastBusy::default()).build()?;
/// let (release, held) = mpsc::channel::<()>();
/// group.loops()[0].execute(move || held.recv().unwrap_or(())).unwrap(); // a single task, but a long one
/// while group.loops()[0].metrics().utilization() < 0.3 {
///     thread::sleep(Duration::from_millis(10));
/// }
/// assert_eq!(group.next().index(), 1);
/// drop(release);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Default)]
pub struct LeastBusy {
    calls: AtomicUsize,
    placed: Mutex<Placements>,
}

impl Chooser for LeastBusy {
    fn choose(&self, group: &GroupView<'_>) -> usize {
        if group.len() == 1 {
            return 0;
        }
        // Relaxed: the counter does not synchronise anything else.
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let random = scramble(call as u64);
        let pair = pair(random, group.len(), |index| group.is_accepting(index));
        let now = group.now();
        let pair = pair.map(|index| {
            let (utilization, delay) = group.pulse(index, now);
            let (queue, room) = (group.pending(index), room(utilization, delay));
            Candidate { index, queue, room }
        });
        let mut placed = self.placed.lock();
        placed.fade(now, group.len());
        placed.place(pair)
    }
}

/// Two different loops in random order, of those that are open; the same loop twice if there is only one.
/// Any two if none is.
fn pair(random: u64, len: usize, is_open: impl Fn(usize) -> bool) -> [usize; 2] {
    let (high, low) = ((random >> 32) as usize, random as u32 as usize);
    let one = high % len;
    let other = (one + 1 + low % (len - 1)) % len;
    if is_open(one) && is_open(other) {
        return [one, other];
    }
    let open: Vec<_> = (0..len).filter(|&index| is_open(index)).collect();
    match open[..] {
        [] => [one, other],
        [only] => [only, only],
        _ => {
            let one = high % open.len();
            let other = (one + 1 + low % (open.len() - 1)) % open.len();
            [open[one], open[other]]
        }
    }
}

/// The share of its time that a loop has left, in whole percents.
fn room(utilization: f64, delay: Duration) -> f64 {
    let idle = (1.0 - utilization).max(LEAST_ROOM);
    let idle = (idle * 100.0).round() / 100.0;
    // A delay below a tenth of the slow one is that of a healthy loop.
    let slow = (delay.as_secs_f64() / SLOW_WAKE - 0.1).max(0.0);
    idle / (1.0 + slow)
}

/// A loop that may be chosen.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    index: usize,
    queue: usize,
    room: f64,
}

impl Candidate {
    fn price(&self, placed: f64) -> f64 {
        // What was placed is in the queue at first: it must not count twice.
        (BASE + placed.max(self.queue as f64)) / self.room
    }
}

/// What was placed on each loop of late, fading as the measured utilization does.
#[derive(Debug, Default)]
struct Placements {
    by_loop: Vec<f64>,
    faded: Option<Instant>,
}

impl Placements {
    fn fade(&mut self, now: Instant, len: usize) {
        self.by_loop.resize(len, 0.0);
        let Some(faded) = self.faded else {
            self.faded = Some(now);
            return;
        };
        let passed = now.saturating_duration_since(faded);
        if passed >= FADE_STEP {
            let rest = (-passed.as_secs_f64()).exp();
            self.by_loop.iter_mut().for_each(|placed| *placed *= rest);
            self.faded = Some(now);
        }
    }

    /// Chooses the cheaper loop, and counts the placement.
    fn place(&mut self, pair: [Candidate; 2]) -> usize {
        let [one, other] = pair.map(|one| one.price(self.by_loop[one.index]));
        // The pair is in random order: if both cost the same, the first is a random one.
        let chosen = pair[usize::from(other < one)].index;
        self.by_loop[chosen] += 1.0;
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_two_open_loops_if_there_are_two_and_every_order_occurs() {
        let mut seen = [[0; 4]; 4];
        for call in 0..10_000 {
            let [one, other] = pair(scramble(call), 4, |index| index != 2);
            seen[one][other] += 1;
        }
        for (one, row) in seen.iter().enumerate() {
            for (other, &times) in row.iter().enumerate() {
                let possible = one != other && one != 2 && other != 2;
                assert_eq!(times > 0, possible, "{one} {other}");
                assert!(!possible || (1_300..2_000).contains(&times), "{times}");
            }
        }
        assert_eq!(pair(7, 3, |index| index == 1), [1, 1]);
        let [one, other] = pair(7, 3, |_| false);
        assert!(one < 3 && other < 3 && one != other);
    }

    #[test]
    fn room_shrinks_with_utilization_and_with_slow_wake_ups() {
        let (micros, millis) = (Duration::from_micros, Duration::from_millis);
        assert_eq!(room(0.0, Duration::ZERO), 1.0);
        assert_eq!(room(0.0, micros(150)), 1.0, "that of a healthy loop");
        assert_eq!(room(0.501, Duration::ZERO), room(0.499, Duration::ZERO));
        assert_eq!(room(1.0, Duration::ZERO), 0.01);
        assert!(room(0.0, millis(4)) < 0.4, "its core is taken");
        assert!(room(0.0, Duration::MAX) > 0.0);
    }

    /// Places so many on loops with this room, at one moment; returns how many each has got.
    fn burst(rooms: &[f64], placements: u64) -> Vec<usize> {
        let mut placed = Placements::default();
        placed.fade(Instant::now(), rooms.len());
        let mut shares = vec![0; rooms.len()];
        for call in 0..placements {
            let pair = pair(scramble(call), rooms.len(), |_| true);
            let pair = pair.map(|index| Candidate {
                index,
                queue: shares[index],
                room: rooms[index],
            });
            shares[placed.place(pair)] += 1;
        }
        shares
    }

    #[test]
    fn a_burst_is_divided_by_room() {
        for len in 2..=16 {
            let shares = burst(&vec![0.7; len], 10_000);
            let fair = 10_000.0 / len as f64;
            let most = *shares.iter().max().unwrap() as f64;
            assert!(most <= 1.05 * fair, "{shares:?}");
        }
        let shares = burst(&[1.0, 0.5], 9_000);
        assert!((5_900..=6_100).contains(&shares[0]), "{shares:?}");
        let busy = burst(&[1.0, 1.0, LEAST_ROOM, 1.0], 10_000);
        assert!(busy[2] <= 50, "a busy loop gets nearly nothing: {busy:?}");
    }

    #[test]
    fn a_queue_and_what_was_placed_in_it_count_once() {
        let queue_of = |queue| Candidate {
            index: 0,
            queue,
            room: 1.0,
        };
        assert_eq!(queue_of(10).price(10.0), queue_of(0).price(10.0));
        assert!(queue_of(500).price(10.0) > queue_of(10).price(10.0));
    }

    #[test]
    fn placements_fade_with_time_and_do_not_fade_without() {
        let start = Instant::now();
        let mut placed = Placements::default();
        placed.fade(start, 2);
        placed.by_loop[1] = 100.0;
        placed.fade(start, 2);
        assert_eq!(placed.by_loop, [0.0, 100.0]);
        for millis in 1..=1000 {
            placed.fade(start + Duration::from_millis(millis), 2);
        }
        let rest = placed.by_loop[1];
        assert!((rest - 100.0 / std::f64::consts::E).abs() < 2.0, "{rest}");
        placed.fade(start + Duration::from_secs(60), 3);
        assert!(placed.by_loop[1] < 1e-9 && placed.by_loop[2] == 0.0);
    }
}
