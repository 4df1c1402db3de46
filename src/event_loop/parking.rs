//! How a loop that is not needed gives its thread back, and gets another one.
//!
//! - A loop parks on its own thread, when its group has paused it for want of load and it has been empty
//!   for the patience of the group: nothing queued or live, no timer, no channel, no loop-bound value. Values
//!   that can be made again ([`spares`](super::spares)) are dropped then.
//! - The thread first stops being the loop: it drops the guard of `on_thread_start` and everything that was
//!   the thread's, and only then parks the loop, in the critical section that finds the inbox empty. So two
//!   threads are never one loop, and work that was accepted is never in a loop without a thread: if something
//!   has arrived meanwhile, the same thread becomes the loop again.
//! - A parked loop is a sleeping loop whose bell starts a thread: it accepts as before, and the producer
//!   that has the duty to ring ([`inbox`](super::inbox)) starts the thread instead. There is one such
//!   producer per sleep, and so one start.
//! - If that start fails, what was accepted is cancelled and counted, as if the loop had ended; the loop is
//!   parked again, and the next submission tries again. If its end was requested meanwhile, the thread whose
//!   start has failed ends it.
//! - A descriptor may be registered with a parked loop from another thread, without a submission. Its thread
//!   looks at `shown` after it has registered, and a thread that parks looks at the table after it has shown
//!   the loop as parked: one of them sees the other.
//! - A parked loop ends on the thread that requests it, if it would end at once with a thread, too, and has
//!   neither hooks nor mail. Otherwise it gets a thread for it, and accepts meanwhile what its siblings
//!   submit.

use std::io;

use crate::error::RejectReason;
use crate::event_loop::context;
use crate::event_loop::lifecycle;
use crate::event_loop::local::Local;
use crate::event_loop::shared::{LOOPS, LoopParts, Shared};
use crate::panic::PanicSite;
use crate::sync::{Arc, Ordering, fence, thread};

impl Shared {
    /// Whether the loop is parked: it has no thread, and accepts work as before.
    pub(crate) fn is_parked(&self) -> bool {
        lifecycle::is_parked(self.place.shown.get())
    }

    /// Whether the loop has a thread that runs it.
    pub(crate) fn has_thread(&self) -> bool {
        let shown = self.place.shown.get();
        lifecycle::has_thread(shown) && !lifecycle::is_parked(shown)
    }

    /// Parks the loop, whose thread has left it; returns the parts if it has something to do after all.
    pub(crate) fn park(parts: LoopParts) -> Result<(), LoopParts> {
        let LoopParts {
            shared,
            group,
            driver,
        } = parts;
        let mut guard = shared.inbox.lock();
        let parked = match guard.try_sleep() {
            true => guard.edit(|life| life.park(driver)),
            false => Err(driver),
        };
        let parked = match parked {
            // Pairs with the fence in `unpark_for_channel`.
            Ok(()) => {
                fence(Ordering::SeqCst);
                let by = thread::current().id();
                match shared.channels() {
                    0 => Ok(()),
                    _ => Err(guard.edit(|life| life.begin_restart(by))),
                }
            }
            Err(driver) => Err(Some(driver)),
        };
        match parked {
            Ok(()) => {
                drop(guard);
                // May be the last reference to the group, whose drop is user code.
                drop(group);
                Ok(())
            }
            Err(driver) => {
                let driver = driver.expect("it was parked under this lock");
                guard.edit(|life| life.begun());
                drop(guard);
                shared.inbox.awake();
                Err(LoopParts {
                    shared,
                    group,
                    driver,
                })
            }
        }
    }

    /// Starts a thread for a parked loop; returns `false` if the loop has one, or gets one.
    #[cold]
    pub(crate) fn restart(&self) -> bool {
        let by = thread::current().id();
        let Some(driver) = self.inbox.lock().edit(|life| life.begin_restart(by)) else {
            return false;
        };
        let this = LOOPS.find(self.number.get());
        let this = this.expect("it is borrowed, and was not dropped");
        let Some(group) = self.parent.group() else {
            // Nothing but the loop is left, and no thread can run it. The drop of the group has requested its
            // end, and has found it being started.
            drop(this.start_again_failed(driver));
            this.end_after_failure(RejectReason::ThreadStart(io::ErrorKind::Other));
            return true;
        };
        let parts = LoopParts {
            shared: Arc::clone(&this),
            group,
            driver,
        };
        if this.start(parts).is_ok() {
            let mut guard = self.inbox.lock();
            guard.edit(|life| life.await_start(by));
            let has_failed = guard.gate().has_failed_to_restart();
            drop(guard);
            if has_failed {
                // The factory has dropped the `LoopThread`.
                this.end_after_failure(RejectReason::ThreadStart(io::ErrorKind::Other));
            }
        }
        true
    }

    /// Has a parked loop watch a descriptor that was just registered with it.
    pub(crate) fn unpark_for_channel(&self) {
        if self.config.patience.is_none() {
            return;
        }
        // Pairs with the fence in `park`.
        fence(Ordering::SeqCst);
        if self.is_parked() {
            self.nudge();
        }
    }

    /// Has a loop that nothing else keeps on its thread find out that it may park: a descriptor of it was
    /// removed, perhaps the last one, and perhaps on another thread.
    pub(crate) fn note_channel_left(self: &Arc<Shared>) {
        let may_park =
            self.config.patience.is_some() && self.is_set_aside() && self.channels() == 0;
        if may_park && self.has_thread() && !context::is_home(self) {
            self.nudge();
        }
    }

    /// The number of registered channels.
    pub(crate) fn channels(&self) -> usize {
        self.port.table.as_ref().map_or(0, |table| table.len())
    }
}

impl Local {
    /// Whether nothing keeps the loop on its thread.
    pub(crate) fn may_leave_thread(&self) -> bool {
        let shared = &self.shared;
        shared.is_at_rest()
            && self.queued() == 0
            && self.timers.is_empty()
            && shared.channels() == 0
            && self.arena.borrow().is_spare()
            && !shared.state().is_shutting_down()
    }

    /// Drops what can be made again, as the last thing that the loop does on its thread; returns `false` if
    /// the destructors, which are user code, have given it something to do.
    pub(crate) fn leave_nothing(&self) -> bool {
        let spares = self.arena.borrow_mut().take_spares();
        for value in spares {
            self.shared.panics.drop(PanicSite::LoopBound, None, value);
        }
        self.may_leave_thread() && self.arena.borrow().is_empty()
    }
}
