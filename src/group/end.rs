//! The end of a group: one object that every loop tells where it statuses, and that alone says when a drain is over.
//!
//! - A loop that shuts down tells when it comes to rest (nothing queued, nothing live, no hook waiting or running),
//!   when it stirs again, before it takes anything in, and when it has ended, whatever the cause. A loop that has said
//!   nothing is busy.
//! - A group's drain is over when no loop is busy. Then, with the locks of all inboxes held, nothing may be inside any
//!   of them; if so, every loop that drains with the group closes its gate in that step, and else none does. What keeps
//!   one from closing is mail: its loop stirs for it, comes to rest again, and the question is asked anew.
//! - So while a draining group lives, whatever its own tasks and hooks submit to a started loop of it is accepted: a
//!   task or a hook that runs keeps its loop busy, and what it has submitted is mail, or keeps another loop busy.
//! - A loop on terms of its own (`ev.drain`, `ev.shutdown_now`, an earlier request, a failure) closes by itself. It is
//!   waited for all the same, at rest or ended: its tasks may submit to the others until then.
//! - The deadline of a group's drain is one, too: the first loop that finds it passed closes all.
//!
//! Order of locks: the tally, then the inboxes by index; nobody who holds an inbox takes the tally.
//!
//! ```text
//!            ┌──stirs──┐
//!            ▼         │
//!          Busy ──rests──▶ Idle ──ended──▶ Ended
//!            └───────────────ended──────────────▲
//! ```

use std::sync::OnceLock;
use std::time::Instant;

use crate::event_loop::inbox::Ring;
use crate::event_loop::lifecycle::{Asked, Phase};
use crate::event_loop::shared::{InboxGuard, Shared};
use crate::event_loop::terms::{DrainScope, EndCondition, ShutdownRequest};
use crate::report::EndCause;
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, Weak};
use crate::termination::Termination;

/// The end of a group.
pub(crate) struct GroupEnd {
    /// The loops, in order; set once, before anybody can ask.
    loops: OnceLock<Box<[Weak<Shared>]>>,
    tally: Mutex<Tally>,
    /// A loop was asked to end, or has ended: not every loop is as good as any other any more.
    some_leave: AtomicBool,
    pub(crate) termination: Arc<Termination>,
}

struct Tally {
    statuses: Box<[LoopStatus]>,
    busy: usize,
}

/// What a loop has told.
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
            tally: Mutex::new(Tally {
                statuses: vec![LoopStatus::Busy; loops].into(),
                busy: loops,
            }),
            some_leave: AtomicBool::new(false),
            termination,
        }
    }

    /// Sets the loops, once.
    pub(crate) fn set_members(&self, loops: Box<[Weak<Shared>]>) {
        let first = self.loops.set(loops);
        debug_assert!(first.is_ok(), "a group is built once");
    }

    /// Whether a loop was asked to end, or has ended.
    #[inline]
    pub(crate) fn some_leave(&self) -> bool {
        // Relaxed: whoever asked a loop to end sees it in its own order; to others it may come a moment later.
        self.some_leave.load(Ordering::Relaxed)
    }

    pub(crate) fn note_leaving(&self) {
        self.some_leave.store(true, Ordering::Relaxed);
    }

    /// Loop `index` has nothing to do; the drain may be over.
    pub(crate) fn note_idle(&self, index: usize) {
        let tally = self.note(index, LoopStatus::Idle);
        self.close_if_over(tally);
    }

    /// Loop `index` is about to take something in.
    pub(crate) fn note_busy(&self, index: usize) {
        drop(self.note(index, LoopStatus::Busy));
    }

    /// Loop `index` has ended; the drain of the others may be over.
    pub(crate) fn ended(&self, index: usize) {
        self.note_leaving();
        let tally = self.note(index, LoopStatus::Ended);
        self.close_if_over(tally);
    }

    /// A loop that drains with the group has found the deadline passed: all of them close.
    pub(crate) fn time_out(&self) {
        let _tally = self.tally.lock();
        let loops = self.members();
        let mut guards = lock_all(&loops);
        // An idle group that is given no time at all has drained nevertheless. Loops that have not come to say so are
        // asked by their books, which status still while nothing is live and nothing comes in.
        let at_rest = |(one, guard): (&Arc<Shared>, &InboxGuard<'_>)| {
            one.is_at_rest() && guard.is_empty() && guard.gate().hooks.is_at_rest()
        };
        let drained = loops.iter().zip(&guards).all(at_rest);
        let cause = if drained {
            EndCause::Drained
        } else {
            EndCause::Timeout
        };
        let rings = close_members(&mut guards, cause);
        drop(guards);
        ring_all(&loops, rings);
    }

    /// Asks every loop to end, in one step.
    pub(crate) fn request(&self, request: ShutdownRequest, now: Instant) {
        self.note_leaving();
        let loops = self.members();
        let mut guards = lock_all(&loops);
        let asked: Vec<(Asked, Ring)> = guards
            .iter_mut()
            .map(|guard| Shared::ask(guard, request, now))
            .collect();
        drop(guards);
        // The loops hear of it first: whoever waits for the request is foreign code, and may take its time.
        let asked: Vec<Asked> = loops
            .iter()
            .zip(asked)
            .map(|(one, (asked, ring))| {
                one.ring_if_needed(ring);
                asked
            })
            .collect();
        // Loops that need a thread for their hooks come last: a factory may run one where it is called, and that one
        // waits for its siblings.
        let (hooked, others): (Vec<_>, Vec<_>) = loops
            .iter()
            .zip(asked)
            .partition(|(_, asked)| matches!(asked, Asked::Unstarted));
        for (one, asked) in others.into_iter().chain(hooked) {
            one.follow(asked);
        }
    }

    fn note(&self, index: usize, status: LoopStatus) -> MutexGuard<'_, Tally> {
        let mut tally = self.tally.lock();
        let before = std::mem::replace(&mut tally.statuses[index], status);
        tally.busy += usize::from(status == LoopStatus::Busy);
        tally.busy -= usize::from(before == LoopStatus::Busy);
        tally
    }

    /// Closes every loop that drains with the group, if none has anything to do.
    fn close_if_over(&self, tally: MutexGuard<'_, Tally>) {
        if tally.busy > 0 {
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

    /// The loops; all of them, for one that is gone has neither handles nor a group.
    fn members(&self) -> Vec<Arc<Shared>> {
        let loops = self.loops.get().map_or(&[][..], |loops| loops);
        loops.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Takes the locks of all inboxes, in order.
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
