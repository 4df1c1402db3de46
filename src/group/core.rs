//! What the loops of a group share, and what ends them when nobody is left who holds the group.

use std::future::Future;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::panic::Location;
use std::time::Duration;

use crate::chooser::{Chooser, GroupView, RoundRobin};
use crate::clock::Clock;
use crate::error::RejectReason;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::local::Local;
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::{self, ShutdownRequest};
use crate::group::end::GroupEnd;
use crate::panic::{PanicReporter, PanicSite};
use crate::sync::Arc;
use crate::task::join::JoinHandle;

/// What the loops of a group share.
pub(crate) struct GroupCore {
    pub(crate) loops: Box<[EventLoop]>,
    /// `None` is round-robin, without the detour through a vtable.
    pub(crate) chooser: Option<Box<dyn Chooser>>,
    /// The default, and what a panicking chooser falls back to.
    pub(crate) fallback: RoundRobin,
    pub(crate) keys: Keys,
    /// What ends them.
    pub(crate) end: Arc<GroupEnd>,
    /// For panics that belong to no loop.
    panics: PanicReporter,
    /// Goes round the loops that are left, when some are not.
    pub(crate) detour: RoundRobin,
}

/// Where a key belongs.
pub(crate) enum Keys {
    /// Secret, so that nobody can aim all keys at one loop.
    Secret(RandomState),
    /// The same in every run of a test.
    Known,
}

impl Keys {
    pub(crate) fn by(clock: &Clock) -> Keys {
        match clock {
            Clock::System => Keys::Secret(RandomState::new()),
            Clock::Virtual(_) => Keys::Known,
        }
    }

    pub(crate) fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        match self {
            Keys::Secret(state) => state.hash_one(key),
            Keys::Known => {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                hasher.finish()
            }
        }
    }
}

/// What all user handles of a group share: its drop asks the loops to end.
pub(crate) struct HandleToken {
    core: Arc<GroupCore>,
}

impl HandleToken {
    pub(crate) fn new(core: Arc<GroupCore>) -> HandleToken {
        HandleToken { core }
    }

    pub(crate) fn core(&self) -> &Arc<GroupCore> {
        &self.core
    }
}

impl Drop for HandleToken {
    fn drop(&mut self) {
        self.core.request(ShutdownRequest::Graceful {
            quiet: Duration::ZERO,
            timeout: terms::TIMEOUT,
        });
    }
}

impl Drop for GroupCore {
    fn drop(&mut self) {
        // A waker may keep a loop, and by that the end of its group; it need not keep the stacks of their threads.
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
    ) -> GroupCore {
        GroupCore {
            loops,
            chooser,
            fallback: RoundRobin::default(),
            detour: RoundRobin::default(),
            keys,
            end,
            panics,
        }
    }

    /// Returns the group of a loop.
    pub(crate) fn of(local: &Local) -> &GroupCore {
        let core = local.group.downcast_ref::<GroupCore>();
        core.expect("a loop is made with its group")
    }

    /// The loop for the next submission.
    pub(crate) fn next(&self) -> &EventLoop {
        let len = self.loops.len();
        if self.end.some_leave() {
            return self.next_of_some();
        }
        let index = match &self.chooser {
            None => self.fallback.pick(len),
            Some(chooser) => self.ask(&**chooser) % len,
        };
        &self.loops[index]
    }

    /// The loop for the next submission when some are going away: of those that are not, else of those that
    /// accept, else any.
    #[cold]
    fn next_of_some(&self) -> &EventLoop {
        let below = |limit: LoopState| self.loops.iter().filter(move |one| one.state() < limit);
        let limits = [LoopState::ShuttingDown, LoopState::Shutdown];
        let limit = limits
            .into_iter()
            .find(|&limit| below(limit).next().is_some());
        let chosen = match (&self.chooser, limit) {
            (Some(chooser), _) => Some(self.ask(&**chooser) % self.loops.len()),
            (None, None) => Some(self.fallback.pick(self.loops.len())),
            (None, Some(_)) => None,
        };
        let Some(limit) = limit else {
            return &self.loops[chosen.unwrap_or_default()];
        };
        if let Some(chosen) = chosen.filter(|&chosen| self.loops[chosen].state() < limit) {
            return &self.loops[chosen];
        }
        // In turn, and exactly so for as long as the same loops are left.
        let turn = match chosen {
            None => &self.fallback,
            Some(_) => &self.detour,
        };
        let left = below(limit).count().max(1);
        let index = turn.pick(left);
        // A loop may have left since they were counted: then it has a successor.
        let left = below(limit).nth(index).or_else(|| below(limit).next());
        left.unwrap_or(&self.loops[0])
    }

    fn ask(&self, chooser: &dyn Chooser) -> usize {
        let choose = || chooser.choose(&GroupView::new(&self.loops));
        let chosen = self.panics.call(PanicSite::Chooser, choose);
        chosen.unwrap_or_else(|| self.fallback.pick(self.loops.len()))
    }

    /// Refuses a task that is for none of the loops.
    #[cold]
    pub(crate) fn refuse_stray<F: Future>(
        &self,
        future: F,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output> {
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
