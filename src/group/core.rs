//! The state that the loops of a group share, and the token whose drop shuts the group down.

use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, RandomState};
use std::time::Duration;

use crate::chooser::{Chooser, GroupView, RoundRobin};
use crate::clock::Clock;
use crate::error::{Caller, RejectReason};
use crate::event_loop::handle::EventLoop;
use crate::event_loop::local::Local;
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::{self, ShutdownRequest};
use crate::group::end::GroupEnd;
use crate::group::scaler::Scaler;
use crate::panic::{PanicReporter, PanicSite};
use crate::sync::Arc;
use crate::task::join::JoinHandle;

/// The state that the loops of a group share.
pub(crate) struct GroupCore {
    pub(crate) loops: Box<[EventLoop]>,
    /// `None` is round-robin, without a virtual call.
    pub(crate) chooser: Option<Box<dyn Chooser>>,
    /// The default chooser, and the fallback after a chooser has panicked.
    pub(crate) fallback: RoundRobin,
    keys: Keys,
    /// Coordinates the end of the loops.
    pub(crate) end: Arc<GroupEnd>,
    /// For panics that belong to no loop.
    panics: PanicReporter,
    /// Only if the group is elastic.
    pub(crate) scaler: Option<Scaler>,
    /// Round-robin over the remaining loops, if the chooser picks one that is shutting down or paused.
    pub(crate) remaining: RoundRobin,
}

/// How keys are hashed, to assign them to loops.
pub(crate) enum Keys {
    /// With a random secret, so that an attacker cannot direct all keys to one loop.
    Secret(RandomState),
    /// Without a secret: the same in every run of a test.
    Fixed,
}

impl Keys {
    pub(crate) fn for_clock(clock: &Clock) -> Keys {
        match clock {
            Clock::System => Keys::Secret(RandomState::new()),
            Clock::Virtual(_) => Keys::Fixed,
        }
    }

    fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        match self {
            Keys::Secret(state) => state.hash_one(key),
            Keys::Fixed => BuildHasherDefault::<DefaultHasher>::default().hash_one(key),
        }
    }
}

/// Shared by all user handles of a group: its drop requests the shutdown of the loops.
pub(crate) struct HandleToken {
    core: Arc<GroupCore>,
    /// `false` for a handle that only looks.
    ends_group: bool,
}

impl HandleToken {
    pub(crate) fn new(core: Arc<GroupCore>) -> HandleToken {
        HandleToken {
            core,
            ends_group: true,
        }
    }

    /// A token that neither keeps the group from ending nor ends it.
    #[cfg(feature = "inspect")]
    pub(crate) fn of_observer(core: Arc<GroupCore>) -> HandleToken {
        HandleToken {
            core,
            ends_group: false,
        }
    }

    pub(crate) fn core(&self) -> &Arc<GroupCore> {
        &self.core
    }
}

impl Drop for HandleToken {
    fn drop(&mut self) {
        if self.ends_group {
            self.core.request(ShutdownRequest::Graceful {
                quiet: Duration::ZERO,
                timeout: terms::TIMEOUT,
            });
        }
    }
}

impl Drop for GroupCore {
    fn drop(&mut self) {
        // A waker may keep a loop alive, and so its `GroupEnd`; it should not keep the stacks of threads.
        self.end.termination.release_threads();
    }
}

impl GroupCore {
    pub(crate) fn new(
        loops: Box<[EventLoop]>,
        chooser: Option<Box<dyn Chooser>>,
        keys: Keys,
        end: Arc<GroupEnd>,
        panics: PanicReporter,
        scaler: Option<Scaler>,
    ) -> GroupCore {
        GroupCore {
            loops,
            chooser,
            fallback: RoundRobin::default(),
            remaining: RoundRobin::default(),
            keys,
            end,
            panics,
            scaler,
        }
    }

    /// Returns the group of a loop.
    pub(crate) fn of(local: &Local) -> &GroupCore {
        let core = local.group.downcast_ref::<GroupCore>();
        core.expect("a loop is made with its group")
    }

    /// Returns the loop for the next submission.
    pub(crate) fn next(&self) -> &EventLoop {
        let len = self.loops.len();
        if self.end.some_set_apart() {
            return self.next_of_remaining();
        }
        let index = match &self.chooser {
            None => self.fallback.pick(len),
            Some(chooser) => self.ask_chooser(&**chooser) % len,
        };
        &self.loops[index]
    }

    /// Returns the loop for the next submission when some are shutting down or paused: one that is neither,
    /// else one that is paused, else one that accepts, else any.
    #[cold]
    fn next_of_remaining(&self) -> &EventLoop {
        let is_left = |one: &&EventLoop, (limit, paused): (LoopState, bool)| {
            one.state() < limit && (paused || !one.is_paused())
        };
        // If all are paused, none is: there has to be a next one.
        let limits = [
            (LoopState::ShuttingDown, false),
            (LoopState::ShuttingDown, true),
            (LoopState::Shutdown, false),
            (LoopState::Shutdown, true),
        ];
        let left = |limit| self.loops.iter().filter(move |one| is_left(one, limit));
        let limit = limits
            .into_iter()
            .find(|limit| left(*limit).next().is_some());
        let Some(limit) = limit else {
            return &self.loops[self.fallback.pick(self.loops.len())];
        };
        // Exactly round-robin as long as the same loops remain.
        let turns = match &self.chooser {
            None => &self.fallback,
            Some(chooser) => {
                let chosen = &self.loops[self.ask_chooser(&**chooser) % self.loops.len()];
                if is_left(&chosen, limit) {
                    return chosen;
                }
                &self.remaining
            }
        };
        let number = turns.pick(left(limit).count().max(1));
        // A loop that has left meanwhile may be the last one.
        left(limit).nth(number).unwrap_or(&self.loops[0])
    }

    fn ask_chooser(&self, chooser: &dyn Chooser) -> usize {
        let choose = || chooser.choose(&GroupView::new(&self.loops));
        let chosen = self.panics.call(PanicSite::Chooser, choose);
        chosen.unwrap_or_else(|| self.fallback.pick(self.loops.len()))
    }

    /// The index of the loop that a key belongs to.
    pub(crate) fn index_for(&self, key: &(impl Hash + ?Sized)) -> usize {
        (self.keys.hash(key) % self.loops.len() as u64) as usize
    }

    /// Rejects a task for a loop index that does not exist.
    #[cold]
    pub(crate) fn refuse_no_such_loop<F: Future>(
        &self,
        future: F,
        location: Caller,
    ) -> JoinHandle<F::Output>
    where
        F::Output: 'static,
    {
        self.end.termination.count_rejected();
        self.panics
            .drop(PanicSite::Destructor, Some(location), future);
        JoinHandle::refused(RejectReason::NoSuchLoop)
    }

    pub(crate) fn request(&self, request: ShutdownRequest) {
        let now = self.loops[0].shared().config.clock.now();
        self.end.request(request, now);
    }
}
