//! What makes a group elastic: it measures the load, and pauses and resumes loops by it.
//!
//! - There is no thread for it. Each loop looks after its turn whether the next look is due; the first one
//!   that finds it so, looks. A busy loop has turns anyway. An idle one wakes up for the next look only while
//!   there may be something to do: more than the fewest loops are active, or fewer, or one that was set aside
//!   still has connections that can move. So an idle group with its fewest loops does not tick. A pause or
//!   resume by a user wakes a loop to look.
//! - Loops become active in order of their index, and are set aside in the reverse order. A loop that a user
//!   has paused or shuts down is neither; one that a user resumes is active until the load says otherwise.
//! - A loop that is set aside gets nothing from `next()`. Connections that can move are asked to, at once and
//!   with every look. When the loop has been empty for the patience of the group, it parks by itself
//!   ([`parking`](crate::event_loop::parking)).
//! - The lock is held for a look, and no user code runs under it: what was decided is done after it.

use std::time::{Duration, Instant};

use crate::elastic::{Elastic, Step};
use crate::event_loop::handle::EventLoop;
use crate::event_loop::shared::{BY_LOAD, Shared};
use crate::metrics::pulse;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Weak};
use crate::trace;

/// Something with connections that can move to another loop.
pub(crate) trait Mover: Send + Sync {
    /// Asks the connections of loop `from` to move to these loops.
    fn move_away(&self, from: usize, to: &[usize]);
    /// Whether there are any on loop `from`.
    fn has_any(&self, from: usize) -> bool;
}

/// The scaler of a group.
pub(crate) struct Scaler {
    rule: Elastic,
    /// Times are in nanoseconds since then.
    zero: Instant,
    /// When the next look is due; written under the lock.
    next: AtomicU64,
    last: Mutex<Option<Look>>,
    movers: Mutex<Vec<Weak<dyn Mover>>>,
}

/// What the last look has read.
struct Look {
    at: Instant,
    utilizations: Vec<f64>,
}

/// A loop that becomes active, or is set aside.
struct Change<'a> {
    one: &'a Shared,
    step: Step,
    load: f64,
}

impl Change<'_> {
    fn carry_out(&self) {
        if self.step == Step::Up {
            return self.one.resume(BY_LOAD);
        }
        self.one.pause(BY_LOAD);
        // It may sleep without end, and has to find out that it may park.
        if self.one.has_thread() {
            self.one.nudge();
        }
    }
}

impl Scaler {
    pub(crate) fn new(rule: Elastic, now: Instant) -> Scaler {
        Scaler {
            rule,
            zero: now,
            next: AtomicU64::new(0),
            last: Mutex::new(None),
            movers: Mutex::default(),
        }
    }

    /// Has a server's connections leave loops that are set aside.
    pub(crate) fn add_mover(&self, mover: Weak<dyn Mover>) {
        let mut movers = self.movers.lock();
        movers.retain(|one| one.strong_count() > 0);
        movers.push(mover);
    }

    /// Looks if it is time; returns when to look next, if that needs a loop to be awake.
    pub(crate) fn look_if_due(&self, loops: &[EventLoop], now: Instant) -> Option<Instant> {
        if self.is_due(now) {
            // Another loop that looks at the same time does the same.
            let mut last = self.last.lock();
            let mut chosen = None;
            if self.is_due(now) {
                let (look, step) = self.look(loops, now, last.take());
                (*last, chosen) = (Some(look), step);
                let next = self.nanos(now).saturating_add(nanos_of(self.rule.patience));
                // Relaxed: a loop that reads the old time finds the new one under the lock.
                self.next.store(next, Ordering::Relaxed);
            }
            drop(last);
            // Not under the lock: both are traced, which is user code. Both may come twice, if the loop that
            // looks is slow.
            if let Some(change) = chosen {
                change.carry_out();
                let active = active(loops).count();
                trace::scaled(active, change.load / active.max(1) as f64);
            }
            self.move_away(loops);
        }
        let may_change = match active(loops).count().cmp(&self.rule.min) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => false,
            // A user has paused one: another takes its place.
            std::cmp::Ordering::Less => loops.iter().any(may_become_active),
        };
        if !may_change && !self.has_any_to_move(loops) {
            return None;
        }
        let next = Duration::from_nanos(self.next.load(Ordering::Relaxed));
        self.zero.checked_add(next)
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.nanos(now) >= self.next.load(Ordering::Relaxed)
    }

    fn nanos(&self, now: Instant) -> u64 {
        nanos_of(now.saturating_duration_since(self.zero))
    }

    /// Reads the loops, and decides.
    fn look<'a>(
        &self,
        loops: &'a [EventLoop],
        now: Instant,
        last: Option<Look>,
    ) -> (Look, Option<Change<'a>>) {
        let utilization = |one: &EventLoop| {
            let pulse = &one.shared().pulse;
            pulse.utilization(pulse.tick(now))
        };
        let look = Look {
            at: now,
            utilizations: loops.iter().map(utilization).collect(),
        };
        let Some(last) = last else {
            return (look, None);
        };
        let period = now.saturating_duration_since(last.at);
        let readings = last.utilizations.iter().zip(&look.utilizations);
        let load: f64 = readings
            .map(|(before, after)| pulse::share_between(*before, *after, period))
            .sum();
        let active = active(loops).count();
        let step = self.rule.decide(active, load);
        let one = match step {
            Step::Stay => None,
            Step::Up => {
                let mut aside = loops.iter().filter(|one| may_become_active(one));
                aside.next().map(EventLoop::shared)
            }
            Step::Down => self::active(loops).last().map(EventLoop::shared),
        };
        (look, one.map(|one| Change { one, step, load }))
    }

    /// Asks connections to leave the loops that are set aside.
    fn move_away(&self, loops: &[EventLoop]) {
        let to: Vec<usize> = active(loops).map(EventLoop::index).collect();
        let from: Vec<usize> = left(loops).collect();
        if to.is_empty() || from.is_empty() {
            return;
        }
        for mover in self.movers() {
            from.iter().for_each(|from| mover.move_away(*from, &to));
        }
    }

    /// Whether a loop that is set aside has connections that can move.
    fn has_any_to_move(&self, loops: &[EventLoop]) -> bool {
        let from: Vec<usize> = left(loops).collect();
        let has_any = |mover: &Arc<dyn Mover>| from.iter().any(|from| mover.has_any(*from));
        !from.is_empty() && self.movers().iter().any(has_any)
    }

    /// The servers that still run.
    fn movers(&self) -> Vec<Arc<dyn Mover>> {
        let movers = self.movers.lock();
        movers.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The loops that are set aside and still have channels.
fn left(loops: &[EventLoop]) -> impl Iterator<Item = usize> {
    let is_left = |one: &&EventLoop| one.shared().is_set_aside() && one.shared().channels() > 0;
    loops.iter().filter(is_left).map(EventLoop::index)
}

/// Whether only the load keeps the loop from being active.
fn may_become_active(one: &EventLoop) -> bool {
    one.shared().is_set_aside_only() && !one.state().is_shutting_down()
}

/// The loops that `next()` chooses from.
fn active(loops: &[EventLoop]) -> impl Iterator<Item = &EventLoop> {
    loops
        .iter()
        .filter(|one| !one.is_paused() && !one.state().is_shutting_down())
}

fn nanos_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
