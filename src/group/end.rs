//! The end of a group: one object that collects the status of every loop, and decides when a drain is over.
//!
//! - A loop that shuts down reports when it becomes idle (nothing queued, nothing live, no hook waiting or
//!   running), when it is busy again, before it takes any work, and when it has ended, whatever the cause. A
//!   loop that has reported nothing is busy.
//! - A group's drain may be over when no loop is busy. Then all inboxes are locked: if they are empty and no
//!   hook waits, every loop that drains with the group closes its gate in that step; otherwise none does. In
//!   that case the loop with the mail or hook becomes busy, then idle again, and the check is repeated.
//! - So while a group drains, all work that its own tasks and hooks submit to a started loop of it is
//!   accepted: a running task or hook keeps its loop busy, and the submitted work is in an inbox, or keeps
//!   another loop busy.
//! - A loop on terms of its own (`ev.drain`, `ev.shutdown_now`, an earlier request, a failure) closes by
//!   itself. The drain waits until it is idle or ended all the same: its tasks may submit to the others.
//! - The group's drain has one deadline: the first loop that finds it passed closes all.
//!
//! Lock order: the tally, then the inboxes by index; the tally is never locked while an inbox is held.
//!
//! ```text
//!            ┌─────note_busy─────┐
//!            ▼                   │
//!          Busy ──note_idle──▶ Idle ──ended──▶ Ended
//!            └─────────────────ended─────────────▲
//! ```

use std::sync::OnceLock;
use std::time::Instant;

use crate::event_loop::inbox::Ring;
use crate::event_loop::lifecycle::{Asked, Phase};
use crate::event_loop::shared::{InboxGuard, Shared};
use crate::event_loop::terms::{DrainScope, EndCondition, ShutdownRequest};
use crate::report::EndCause;
use crate::sync::{Arc, AtomicUsize, Mutex, MutexGuard, Ordering, Weak};
use crate::termination::Termination;

/// The end of a group.
pub(crate) struct GroupEnd {
    /// The loops, in order; set once, before the group is shared.
    loops: OnceLock<Box<[Weak<Shared>]>>,
    /// The last status of every loop.
    tally: Mutex<Tally>,
    /// Unless it is zero, loops are not interchangeable: [`LEAVING`] if one was requested to shut down or has
    /// ended, and [`PAUSED`] for each one that is paused.
    set_apart: AtomicUsize,
    pub(crate) termination: Arc<Termination>,
}

const LEAVING: usize = 1;
const PAUSED: usize = 2;

type Tally = Box<[LoopStatus]>;

/// The status that a loop has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopStatus {
    Busy,
    Idle,
    Ended,
}

impl GroupEnd {
    pub(crate) fn new(loops: usize, termination: Arc<Termination>) -> GroupEnd {
        GroupEnd {
            loops: OnceLock::new(),
            tally: Mutex::new(vec![LoopStatus::Busy; loops].into()),
            set_apart: AtomicUsize::new(0),
            termination,
        }
    }

    /// Sets the loops, once.
    pub(crate) fn set_members(&self, loops: Box<[Weak<Shared>]>) {
        let first = self.loops.set(loops);
        debug_assert!(first.is_ok(), "a group is built once");
    }

    /// Whether a loop was requested to shut down, has ended, or is paused.
    #[inline]
    pub(crate) fn some_set_apart(&self) -> bool {
        // Relaxed: the requesting thread sees its own change; other threads may see it later.
        self.set_apart.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn note_leaving(&self) {
        self.set_apart.fetch_or(LEAVING, Ordering::Relaxed);
    }

    pub(crate) fn note_paused(&self) {
        self.set_apart.fetch_add(PAUSED, Ordering::Relaxed);
    }

    pub(crate) fn note_resumed(&self) {
        self.set_apart.fetch_sub(PAUSED, Ordering::Relaxed);
    }

    /// Records that loop `index` is idle; the drain may be over.
    pub(crate) fn note_idle(&self, index: usize) {
        let tally = self.note(index, LoopStatus::Idle);
        self.close_if_over(tally);
    }

    /// Records that loop `index` is about to take work.
    pub(crate) fn note_busy(&self, index: usize) {
        drop(self.note(index, LoopStatus::Busy));
    }

    /// Records that loop `index` has ended; the drain of the others may be over.
    pub(crate) fn ended(&self, index: usize) {
        self.note_leaving();
        let tally = self.note(index, LoopStatus::Ended);
        self.close_if_over(tally);
    }

    /// Closes every loop that drains with the group: one of them has found the deadline passed.
    pub(crate) fn time_out(&self) {
        let _tally = self.tally.lock();
        let loops = self.members();
        let mut guards = lock_all(&loops);
        // An idle group with a timeout of zero has drained nevertheless.
        let cause = if are_at_rest(&loops, &guards) {
            EndCause::Drained
        } else {
            EndCause::Timeout
        };
        let rings = close_members(&mut guards, cause);
        drop(guards);
        ring_all(&loops, rings);
    }

    /// Requests the shutdown of every loop, in one step.
    pub(crate) fn request(&self, request: ShutdownRequest, now: Instant) {
        self.note_leaving();
        let loops = self.members();
        let mut guards = lock_all(&loops);
        let is_over = are_at_rest(&loops, &guards);
        let asked: Vec<(Asked, Ring)> = guards
            .iter_mut()
            .map(|guard| Shared::ask(guard, request, now, is_over))
            .collect();
        drop(guards);
        // The loops are woken first: wakers of `ShutdownRequested` futures are user code, and may be slow.
        for (one, (_, ring)) in loops.iter().zip(&asked) {
            one.ring_if_needed(*ring);
        }
        // Loops that need a thread come last: a factory may run a loop on this thread, and that loop waits
        // for its siblings.
        let needs_thread =
            |asked: &Asked| matches!(asked, Asked::NeedsThread | Asked::NeedsRestart);
        let mut asked: Vec<_> = loops.iter().zip(asked).collect();
        asked.sort_by_key(|(_, (asked, _))| needs_thread(asked));
        for (one, (asked, _)) in asked {
            one.follow(asked);
        }
    }

    fn note(&self, index: usize, status: LoopStatus) -> MutexGuard<'_, Tally> {
        let mut tally = self.tally.lock();
        tally[index] = status;
        tally
    }

    /// Closes every loop that drains with the group, if no loop is busy, has mail or has a hook waiting.
    fn close_if_over(&self, tally: MutexGuard<'_, Tally>) {
        if tally.contains(&LoopStatus::Busy) {
            return;
        }
        let loops = self.members();
        let mut guards = lock_all(&loops);
        let over = guards
            .iter()
            .all(|guard| guard.is_empty() && guard.gate().hooks.is_empty());
        let rings = if over {
            close_members(&mut guards, EndCause::Drained)
        } else {
            Vec::new()
        };
        drop(guards);
        drop(tally);
        ring_all(&loops, rings);
    }

    /// Returns the loops that still exist; one that was dropped has neither handles nor a group.
    fn members(&self) -> Vec<Arc<Shared>> {
        let loops = self.loops.get().map_or(&[][..], |loops| loops);
        loops.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Whether nothing is left to do. Loops that have not reported yet are judged by their counters, which do not
/// change while no task is live and none is accepted.
fn are_at_rest(loops: &[Arc<Shared>], guards: &[InboxGuard<'_>]) -> bool {
    let at_rest = |(one, guard): (&Arc<Shared>, &InboxGuard<'_>)| {
        one.is_at_rest() && guard.is_empty() && guard.gate().hooks.is_at_rest()
    };
    loops.iter().zip(guards).all(at_rest)
}

/// Locks all inboxes, in order.
fn lock_all(loops: &[Arc<Shared>]) -> Vec<InboxGuard<'_>> {
    loops.iter().map(|one| one.inbox.lock()).collect()
}

/// Closes the gates of the loops that drain with their group.
fn close_members(guards: &mut [InboxGuard<'_>], cause: EndCause) -> Vec<Ring> {
    let close = |guard: &mut InboxGuard<'_>| {
        let life = guard.gate();
        let drains =
            life.terms().map(|terms| terms.until) == Some(EndCondition::Drained(DrainScope::Group));
        if drains && matches!(life.phase(), Phase::ShuttingDown) {
            guard.edit(|life| life.close(cause));
            guard.nudge()
        } else {
            Ring::NotNeeded
        }
    };
    guards.iter_mut().map(close).collect()
}

fn ring_all(loops: &[Arc<Shared>], rings: Vec<Ring>) {
    for (one, ring) in loops.iter().zip(rings) {
        one.ring_if_needed(ring);
    }
}
