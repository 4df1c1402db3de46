//! Choosers select the loop for the next task.
//!
//! - A chooser returns an index, which the group takes modulo its length: it cannot be out of range. If a
//!   chooser panics, the group falls back to round-robin.
//! - Round-robin is exact: over any `k·len` consecutive calls each loop is chosen `k` times, for every
//!   length and across an overflow of the counter.
//! - A chooser reads the state of the loops from the calling thread; the values may be slightly stale.

pub(crate) mod least_busy;

use std::fmt;
use std::time::{Duration, Instant};

use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::panic::Contained;
use crate::random::scramble;
use crate::sync::plain::AtomicUsize;
use crate::sync::{Arc, Ordering};

/// Chooses the loop for the next task.
///
/// It is called by [`EventLoopGroup::next`](crate::EventLoopGroup::next) and everything that uses it:
/// `spawn`, `spawn_with`, `try_spawn`. A chosen loop that is shutting down individually, or is paused, is
/// skipped.
///
/// # Examples
///
/// A chooser that always takes the loop with the fewest live tasks:
///
/// ```
/// use loopgroup::{Chooser, EventLoopGroup, GroupView};
///
/// struct FewestLive;
///
/// impl Chooser for FewestLive {
///     fn choose(&self, group: &GroupView<'_>) -> usize {
///         (0..group.len()).min_by_key(|&i| group.live(i)).unwrap_or(0)
///     }
/// }
///
/// let group = EventLoopGroup::builder().loops(3).chooser(FewestLive).build()?;
/// assert_eq!(group.next().index(), 0);
/// # std::io::Result::Ok(())
/// ```
pub trait Chooser: Send + Sync {
    /// Returns the index of a loop; it is taken modulo [`GroupView::len`].
    ///
    /// Called on the submitting thread. A panic is contained; the group falls back to round-robin.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{Chooser, EventLoopGroup, GroupView};
    ///
    /// struct Last;
    ///
    /// impl Chooser for Last {
    ///     fn choose(&self, group: &GroupView<'_>) -> usize {
    ///         group.len() - 1
    ///     }
    /// }
    ///
    /// let group = EventLoopGroup::builder().loops(3).chooser(Last).build()?;
    /// assert_eq!(group.next().index(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    fn choose(&self, group: &GroupView<'_>) -> usize;
}

/// A closure can be used as a chooser.
///
/// ```
/// use loopgroup::{EventLoopGroup, GroupView};
///
/// let last = |group: &GroupView<'_>| group.len() - 1;
/// let group = EventLoopGroup::builder().loops(3).chooser(last).build()?;
/// assert_eq!(group.next().index(), 2);
/// # std::io::Result::Ok(())
/// ```
impl<F> Chooser for F
where
    F: Fn(&GroupView<'_>) -> usize + Send + Sync,
{
    fn choose(&self, group: &GroupView<'_>) -> usize {
        self(group)
    }
}

/// The form in which a builder stores a chooser.
impl<C: Chooser> Chooser for Contained<C> {
    fn choose(&self, group: &GroupView<'_>) -> usize {
        self.get().choose(group)
    }
}

/// The state of a group as seen by its [`Chooser`]; the values may be slightly stale.
///
/// # Examples
///
/// A chooser that stays on the caller's loop unless that is much busier than another one:
///
/// ```
/// use loopgroup::{Chooser, EventLoopGroup, GroupView};
///
/// struct Near;
///
/// impl Chooser for Near {
///     fn choose(&self, group: &GroupView<'_>) -> usize {
///         let load = |i: usize| group.pending(i) + group.live(i) + group.channels(i);
///         let open = (0..group.len()).filter(|&i| group.is_accepting(i));
///         let best = open.min_by_key(|&i| load(i)).unwrap_or(0);
///         match group.current() {
///             Some(here) if load(here) <= 2 * load(best) + 8 => here,
///             _ => best,
///         }
///     }
/// }
///
/// let group = EventLoopGroup::builder().loops(2).chooser(Near).build()?;
/// let inner = group.clone();
/// let next = group.spawn_on(1, async move { inner.next().index() });
/// assert_eq!(group.block_on(next).unwrap(), 1);
/// # std::io::Result::Ok(())
/// ```
pub struct GroupView<'a> {
    loops: &'a [EventLoop],
}

impl<'a> GroupView<'a> {
    pub(crate) fn new(loops: &'a [EventLoop]) -> GroupView<'a> {
        GroupView { loops }
    }

    /// Returns the number of loops; never 0.
    pub fn len(&self) -> usize {
        self.loops.len()
    }

    /// Returns `false`: a group has at least one loop.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns how many tasks wait for their first poll on loop `index`; 0 if there is no such loop.
    pub fn pending(&self, index: usize) -> usize {
        self.loops.get(index).map_or(0, |one| one.pending_tasks())
    }

    /// Returns how many tasks of loop `index` have been polled and are not finished; 0 if there is no
    /// such loop.
    pub fn live(&self, index: usize) -> usize {
        self.loops.get(index).map_or(0, |one| one.live_tasks())
    }

    /// Returns how many channels are registered with loop `index`; 0 if there is no such loop.
    pub fn channels(&self, index: usize) -> usize {
        self.loops
            .get(index)
            .map_or(0, |one| one.registered_channels())
    }

    /// Returns the busy share of loop `index` in about the last second, from 0.0 to 1.0, as
    /// [`LoopMetrics::utilization`](crate::LoopMetrics::utilization); 0.0 if there is no such loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, GroupView};
    ///
    /// // Everything on the first loop that has time left, so that the others may sleep.
    /// let compact = |group: &GroupView<'_>| {
    ///     (0..group.len()).find(|&i| group.utilization(i) < 0.7).unwrap_or(0)
    /// };
    /// let group = EventLoopGroup::builder().loops(3).chooser(compact).build()?;
    /// assert_eq!((group.next().index(), group.next().index()), (0, 0));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn utilization(&self, index: usize) -> f64 {
        self.pulse(index, self.now()).0
    }

    /// Returns how long loop `index` took to wake up of late, as
    /// [`LoopMetrics::wake_delay`](crate::LoopMetrics::wake_delay); zero if there is no such loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, GroupView};
    ///
    /// let promptest = |group: &GroupView<'_>| {
    ///     (0..group.len()).min_by_key(|&i| group.wake_delay(i)).unwrap_or(0)
    /// };
    /// let group = EventLoopGroup::builder().loops(3).chooser(promptest).build()?;
    /// assert_eq!(group.next().index(), 0); // no loop has been woken yet
    /// # std::io::Result::Ok(())
    /// ```
    pub fn wake_delay(&self, index: usize) -> Duration {
        self.pulse(index, self.now()).1
    }

    /// The time by the clock of the group.
    pub(crate) fn now(&self) -> Instant {
        self.loops[0].shared().config.clock.now()
    }

    /// The utilization of loop `index`, and its delay when it is woken.
    pub(crate) fn pulse(&self, index: usize, now: Instant) -> (f64, Duration) {
        let Some(one) = self.loops.get(index) else {
            return (0.0, Duration::ZERO);
        };
        let pulse = &one.shared().pulse;
        let now = pulse.tick(now);
        (pulse.utilization(now), pulse.delay(now))
    }

    /// Returns whether loop `index` exists, no shutdown of it was requested and it is not paused. (A loop
    /// that is shutting down still accepts tasks for a while, and a paused one accepts what is submitted to
    /// it directly, but they should not be chosen: the group would take another loop instead, in turn.)
    pub fn is_accepting(&self, index: usize) -> bool {
        self.loops
            .get(index)
            .is_some_and(|one| !one.state().is_shutting_down() && !one.is_paused())
    }

    /// Returns whether loop `index` exists and is [paused](crate::EventLoop::pause).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, GroupView};
    ///
    /// let first = |group: &GroupView<'_>| {
    ///     (0..group.len()).find(|&i| !group.is_paused(i)).unwrap_or(0)
    /// };
    /// let group = EventLoopGroup::builder().loops(3).chooser(first).build()?;
    /// group.loops()[0].pause();
    /// assert_eq!(group.next().index(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_paused(&self, index: usize) -> bool {
        self.loops.get(index).is_some_and(EventLoop::is_paused)
    }

    /// Returns the index of the calling thread's loop, if it belongs to this group.
    pub fn current(&self) -> Option<usize> {
        context::with_local(|local| {
            let here = self.loops.get(local.shared.index)?;
            Arc::ptr_eq(here.shared(), &local.shared).then_some(local.shared.index)
        })
        .flatten()
    }
}

impl fmt::Debug for GroupView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupView")
            .field("len", &self.len())
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}

/// Chooses the loops in turn: the default.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, RoundRobin};
///
/// let group = EventLoopGroup::builder()
///     .loops(3)
///     .chooser(RoundRobin::starting_at(usize::MAX)) // exact across the overflow as well
///     .build()?;
/// let first = group.next().index();
/// assert_eq!(group.next().index(), (first + 1) % 3);
/// assert_eq!(group.next().index(), (first + 2) % 3);
/// assert_eq!(group.next().index(), first);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: AtomicUsize,
}

impl RoundRobin {
    /// Starts at `first` modulo the number of loops.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, RoundRobin};
    ///
    /// let group = EventLoopGroup::builder().loops(4).chooser(RoundRobin::starting_at(6)).build()?;
    /// assert_eq!(group.next().index(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub const fn starting_at(first: usize) -> RoundRobin {
        RoundRobin {
            next: AtomicUsize::new(first),
        }
    }

    /// The next index below `len`, which is not 0.
    pub(crate) fn pick(&self, len: usize) -> usize {
        // Relaxed: the counter does not synchronise anything else.
        if len.is_power_of_two() {
            // The counter overflows at a multiple of len.
            return self.next.fetch_add(1, Ordering::Relaxed) & (len - 1);
        }
        // Kept below len after the first step, so that it never overflows in the middle of a round.
        let advance = |next: usize| Some((next % len + 1) % len);
        let before = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        before.unwrap_or_default() % len
    }
}

impl Chooser for RoundRobin {
    fn choose(&self, group: &GroupView<'_>) -> usize {
        self.pick(group.len())
    }
}

/// Compares two different loops and chooses the less loaded one, by pending and live tasks and channels.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, LeastLoaded};
///
/// let group = EventLoopGroup::builder().loops(2).chooser(LeastLoaded::default()).build()?;
/// group.spawn_on(0, std::future::pending::<()>());
/// group.spawn_on(0, std::future::pending::<()>());
/// assert_eq!(group.next().index(), 1);
/// # group.shutdown_now().wait();
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Default)]
pub struct LeastLoaded {
    calls: AtomicUsize,
}

impl Chooser for LeastLoaded {
    fn choose(&self, group: &GroupView<'_>) -> usize {
        let len = group.len();
        let first = self.calls.fetch_add(1, Ordering::Relaxed) % len;
        if len == 1 {
            return first;
        }
        // The distance to the second loop is scrambled, so that the pairs do not form a pattern that
        // correlates with a periodic workload.
        let distance = 1 + scramble(self.calls.load(Ordering::Relaxed) as u64) as usize % (len - 1);
        let second = (first + distance) % len;
        let load = |index: usize| {
            // A loop that is shutting down or paused is chosen only if the other one is, too.
            let is_left_out = !group.is_accepting(index);
            let load = group.pending(index) + group.live(index) + group.channels(index);
            (is_left_out, load)
        };
        if load(second) < load(first) {
            second
        } else {
            first
        }
    }
}

/// Chooses the caller's loop if it belongs to the group, otherwise the loops in turn.
///
/// With it, both sides of a proxied connection share one loop and need no lock between them.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, PreferCurrent};
///
/// let group = EventLoopGroup::builder().loops(4).chooser(PreferCurrent::default()).build()?;
/// let inner = group.clone();
/// let stayed = group.spawn_on(2, async move { inner.next().index() });
/// assert_eq!(group.block_on(stayed).unwrap(), 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Default)]
pub struct PreferCurrent {
    others: RoundRobin,
}

impl Chooser for PreferCurrent {
    fn choose(&self, group: &GroupView<'_>) -> usize {
        group.current().unwrap_or_else(|| self.others.choose(group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_robin_is_exact_for_every_length_and_across_the_overflow() {
        for len in 1..=17 {
            for start in [0, 1, usize::MAX - 5, usize::MAX] {
                let chooser = RoundRobin::starting_at(start);
                let first = chooser.pick(len);
                assert_eq!(first, start % len);
                for step in 1..5 * len {
                    assert_eq!(
                        chooser.pick(len),
                        (first + step) % len,
                        "{len} {start} {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn scrambled_distances_reach_every_other_loop() {
        for len in 2..9 {
            let mut seen = vec![false; len - 1];
            for counter in 0..200 {
                seen[scramble(counter) as usize % (len - 1)] = true;
            }
            assert!(seen.iter().all(|&seen| seen), "{len}");
        }
    }
}
