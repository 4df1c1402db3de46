//! What the loops of a group share, and what ends them when nobody is left who holds the group.

use std::future::Future;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::panic::Location;
use std::time::Duration;

use crate::chooser::{Chooser, GroupView, RoundRobin};
use crate::error::RejectReason;
use crate::event_loop::EventLoop;
use crate::event_loop::shutdown::{self, Request};
use crate::event_loop::state::State;
use crate::panic::{PanicSite, Payload, TaskPanic, contain, contain_drop, discard, report};
use crate::sync::{Arc, Ordering, fence};
use crate::task::join::JoinHandle;
use crate::termination::Termination;

/// What the loops of a group share.
pub(crate) struct GroupCore {
    pub(crate) loops: Box<[EventLoop]>,
    /// `None` is round-robin, without the detour through a vtable.
    pub(crate) chooser: Option<Box<dyn Chooser>>,
    /// The default, and what a panicking chooser falls back to.
    pub(crate) fallback: RoundRobin,
    pub(crate) keys: Keys,
    pub(crate) termination: Arc<Termination>,
}

/// Where a key belongs.
pub(crate) enum Keys {
    /// Secret, so that nobody can aim all keys at one loop.
    Secret(RandomState),
    /// The same in every run of a test.
    Known,
}

impl Keys {
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
pub(crate) struct Token {
    core: Arc<GroupCore>,
}

impl Token {
    pub(crate) fn new(core: Arc<GroupCore>) -> Token {
        Token { core }
    }

    pub(crate) fn core(&self) -> &Arc<GroupCore> {
        &self.core
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.core.request(Request::Graceful {
            quiet: Duration::ZERO,
            timeout: shutdown::TIMEOUT,
        });
    }
}

impl GroupCore {
    /// The loop for the next submission.
    pub(crate) fn next(&self) -> &EventLoop {
        let len = self.loops.len();
        let index = match &self.chooser {
            None => self.fallback.pick(len),
            Some(chooser) => self.ask(&**chooser) % len,
        };
        let chosen = &self.loops[index];
        if chosen.state() < State::ShuttingDown {
            return chosen;
        }
        self.around(index)
    }

    fn ask(&self, chooser: &dyn Chooser) -> usize {
        contain(|| chooser.choose(&GroupView::new(self))).unwrap_or_else(|payload| {
            self.report_panic(PanicSite::Chooser, payload, None);
            self.fallback.pick(self.loops.len())
        })
    }

    /// Refuses a task that is for none of the loops.
    #[cold]
    pub(crate) fn refuse_stray<F: Future>(
        &self,
        future: F,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output> {
        self.termination.count_stray();
        if let Err(payload) = contain_drop(future) {
            self.report_panic(PanicSite::Destructor, payload, Some(location));
        }
        JoinHandle::refused(RejectReason::NoSuchLoop)
    }

    /// Reports a panic that is of no loop.
    #[cold]
    fn report_panic(
        &self,
        site: PanicSite,
        payload: Payload,
        location: Option<&'static Location<'static>>,
    ) {
        let panic = TaskPanic {
            site,
            payload: &*payload,
            location,
            index: None,
        };
        report(self.loops[0].shared().config.on_panic.as_deref(), &panic);
        discard(payload);
    }

    /// Looks past a loop that is going away alone: for one that is not, else for one that accepts.
    #[cold]
    fn around(&self, index: usize) -> &EventLoop {
        let (before, from) = self.loops.split_at(index);
        let find = |limit: State| from.iter().chain(before).find(|one| one.state() < limit);
        find(State::ShuttingDown)
            .or_else(|| find(State::Shutdown))
            .unwrap_or(&self.loops[index])
    }

    /// Whether nothing is queued or live on any loop.
    ///
    /// Of two loops that come to rest at the same time, at least one sees both.
    pub(crate) fn is_at_rest(&self) -> bool {
        let accepted = || {
            self.loops
                .iter()
                .map(|one| one.shared().accepted())
                .sum::<u64>()
        };
        // Each comes here after writing its own figures, and reads the others' behind the fence.
        fence(Ordering::SeqCst);
        let before = accepted();
        // A task that submits elsewhere is live until after that: if nothing was accepted while we
        // looked at all loops one by one, no work slipped from one that we had not yet seen to one
        // that we had.
        self.loops.iter().all(|one| one.shared().is_at_rest()) && accepted() == before
    }

    /// Has every loop take a turn.
    pub(crate) fn nudge(&self) {
        for one in &self.loops {
            one.shared().nudge();
        }
    }

    pub(crate) fn request(&self, request: Request) {
        for one in &self.loops {
            one.shared().request(request);
        }
    }
}
