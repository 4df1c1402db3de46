//! The life of a loop's thread, turn by turn.
//!
//! ```text
//!   turn:  work:  collect the inbox
//!                 run I/O tasks (woken by readiness), measured
//!                 run other tasks, for their share of that time
//!                 fire due timers, and run what they woke
//!                 run tail tasks
//!                 one step of the shutdown, if there is one
//!          rest:  wait in the driver, or just look if something is queued
//! ```
//!
//! - Fairness: a turn runs the I/O tasks that were queued when it began and then other tasks for
//!   `t_io·(100−r)/r`, or for 1 ms or 1,024 tasks if there was no I/O. What is woken meanwhile goes
//!   behind what is queued. So sockets, tasks, timers and the shutdown wait for one turn at most.
//! - At most 1,024 timers fire in a turn: however many are due, tasks get their slice in between.
//! - The reactor is looked at once per turn, not once per task.
//! - The clock is read once per turn while there are timers or a shutdown, and by the slice after 64
//!   tasks at the earliest; a loop with neither does not read it.
//! - The loop sleeps only if nothing is queued on either side; `sleeping` is set under the inbox lock.
//! - Whatever ends the turns — terms, failure, a panic — [`Runner::finish`] comes after them.
//! - A test loop drives the same [`Runner`] by hand: `work` without `rest`, over a clock it moves.

use std::any::Any;
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::clock::earlier;
use crate::event_loop::context::{self, LoopGuard};
use crate::event_loop::inbox::Batch;
use crate::event_loop::launch::Parts;
use crate::event_loop::local::Local;
use crate::event_loop::shared::{Ending, Mail};
use crate::event_loop::shutdown::{self, Progress, Step};
use crate::panic::{PanicSite, contain, contain_drop, discard, message};
use crate::reactor::{Driver, Until};
use crate::report::Cause;
use crate::settings::{CloseChannels, WaitStrategy};
use crate::sync::{self, Arc};
use crate::trace;

/// Tasks between two looks at the clock.
const BATCH: u32 = 64;
/// Tasks of a turn without I/O, at most.
const SLICE_TASKS: u32 = 1024;
/// Time of a turn without I/O, at most.
const SLICE: Duration = Duration::from_millis(1);
/// Timers that fire in one turn, at most.
const TIMERS: usize = 1024;

/// Makes the calling thread the loop until its shutdown.
pub(crate) fn run_loop(parts: Parts) {
    let shared = Arc::clone(&parts.shared);
    let place = shared.config.place.as_ref();
    // Before anything of the loop's own is made: it belongs near the core it is for.
    let placed = place.map_or(Ok(()), |place| place(shared.index));
    drive(parts, |runner| {
        if let Err(error) = placed {
            return (Cause::Failed, Some(error));
        }
        loop {
            match runner.turn(|| true) {
                Ok(None) => {}
                Ok(Some(cause)) => return (cause, None),
                Err(error) => return (Cause::Failed, Some(error)),
            }
        }
    });
}

/// Sets a loop up, lets `body` drive it, and takes it down again, whatever `body` does.
pub(super) fn drive(parts: Parts, body: impl FnOnce(&mut Runner) -> (Cause, Option<io::Error>)) {
    let mut runner = Runner::new(parts);
    let entered = context::enter_loop(&runner.local).expect("the caller has looked");
    let _span = trace::loop_started(&runner.local.shared);
    let guard = start_hook(&runner.local);
    let (cause, error) = match contain(|| body(&mut runner)) {
        Ok(ending) => ending,
        Err(payload) => {
            let error = io::Error::other(format!("event loop panicked: {}", message(&*payload)));
            discard(payload);
            (Cause::Failed, Some(error))
        }
    };
    runner.finish(cause, error, guard, entered);
}

/// Calls the user's hook for a new loop thread; a panic leaves the loop without a guard.
fn start_hook(local: &Local) -> Option<Box<dyn Any>> {
    let hook = local.shared.config.on_thread_start.as_ref()?;
    let this = &local.core.loops[local.shared.index];
    match contain(|| hook(this)) {
        Ok(guard) => Some(guard),
        Err(payload) => {
            local
                .shared
                .report_panic(PanicSite::ThreadHook, &*payload, None);
            discard(payload);
            None
        }
    }
}

/// A loop at work; loop thread only.
pub(crate) struct Runner {
    local: Rc<Local>,
    driver: Driver,
    mail: Mail,
    /// Wakers on their way from the timers or the selector; empty in between.
    due: Vec<Waker>,
    /// `Some` once the loop has noticed that it shuts down.
    progress: Option<Progress>,
    /// Tasks of a turn without I/O, at most.
    slice_tasks: u32,
}

/// What is to come after the work of a turn.
pub(crate) enum Next {
    /// Wait, until then at most.
    Rest(Option<Until>),
    End(Cause),
}

impl Runner {
    pub(crate) fn new(parts: Parts) -> Runner {
        Runner {
            local: Rc::new(Local::new(parts.shared, parts.core)),
            driver: parts.driver,
            mail: Batch::new(),
            due: Vec::new(),
            progress: None,
            slice_tasks: SLICE_TASKS,
        }
    }

    pub(crate) fn local(&self) -> &Rc<Local> {
        &self.local
    }

    /// Makes turns shorter, to have more of them.
    pub(crate) fn set_slice_tasks(&mut self, tasks: u32) {
        self.slice_tasks = tasks;
    }

    /// One turn; `Some` if it was the last. `may_sleep` is asked just before the loop would.
    pub(super) fn turn(&mut self, may_sleep: impl Fn() -> bool) -> io::Result<Option<Cause>> {
        match self.work() {
            Next::End(cause) => Ok(Some(cause)),
            Next::Rest(until) => self.rest(until, may_sleep).map(|()| None),
        }
    }

    /// The work of a turn: everything but the wait.
    pub(crate) fn work(&mut self) -> Next {
        self.local.collect(&mut self.mail);
        let io_time = self.run_io_tasks();
        self.run_tasks(io_time);
        let shutting_down = self.local.shared.state.get().is_shutting_down();
        let timers = !self.local.timers.is_empty();
        let mut now = (shutting_down || timers).then(|| self.now());
        if let (Some(now), true) = (now, timers) {
            self.local.fire_timers(now, TIMERS, &mut self.due);
        }
        // What timers woke runs at once, ahead of the queue: a timer is late by the rest of a slice,
        // not by a queue. Both take their time, which the next deadline is not to wait for again.
        if self.local.run_timed() + self.local.run_tail() > 0 {
            now = now.map(|_| self.now());
        }
        self.local.publish();
        let mut deadline = self.local.timers.next_deadline();
        if let (Some(now), true) = (now, shutting_down) {
            match self.step(now) {
                Step::End(cause) => return Next::End(cause),
                Step::Wait(step) => deadline = earlier(deadline, step),
            }
        }
        // Only a tail task that armed the first timer of all leaves a deadline without a reading.
        Next::Rest(deadline.map(|deadline| Until {
            deadline,
            now: now.unwrap_or_else(|| self.now()),
        }))
    }

    fn now(&self) -> Instant {
        self.local.shared.config.clock.now()
    }

    /// Runs the tasks that readiness has woken; returns the time it took, if there were any.
    fn run_io_tasks(&self) -> Option<Duration> {
        if self.local.queued_io() == 0 {
            return None;
        }
        let start = self.now();
        self.local.run_io();
        Some(self.now().saturating_duration_since(start))
    }

    /// Runs queued tasks for their share of the turn.
    fn run_tasks(&self, io_time: Option<Duration>) {
        let ratio = self.local.shared.config.io_ratio;
        let (limit, slice) = match io_time {
            // With a ratio of 100, everything that is queued now, and nothing that comes meanwhile.
            Some(_) if ratio >= 100 => {
                (u32::try_from(self.local.queued()).unwrap_or(u32::MAX), None)
            }
            Some(io_time) => {
                let share = io_time.saturating_mul(100 - ratio) / ratio;
                (u32::MAX, Some(share))
            }
            None => (self.slice_tasks, Some(SLICE)),
        };
        // With timers armed, one task that takes long must not be followed by sixty-three others.
        let mut look = if self.local.timers.is_empty() {
            BATCH
        } else {
            1
        };
        let mut start = None;
        let mut run = 0_u32;
        while run < limit {
            let Some(runnable) = self.local.next_task() else {
                return;
            };
            self.local.run_one(runnable);
            run += 1;
            if run == look {
                look += look.min(BATCH);
                if let Some(slice) = slice {
                    // Without timers the first batch is free: most turns never read the clock here.
                    let now = self.now();
                    if now.saturating_duration_since(*start.get_or_insert(now)) >= slice {
                        return;
                    }
                }
            }
        }
    }

    /// One step of the shutdown.
    fn step(&mut self, now: Instant) -> Step {
        let local = &self.local;
        let terms = local.shared.control.lock().terms();
        let terms = terms.expect("the terms are set before the state");
        let progress = self.progress.get_or_insert_with(|| {
            trace::shutdown(&local.shared, "shutting down");
            local.start_closing();
            if local.shared.config.close_channels == CloseChannels::Immediately {
                local.close_channels();
            }
            Progress::begin(local, now)
        });
        local.drop_given_up();
        progress.step(local, &terms, now)
    }

    /// Waits for work as the wait strategy says; only looks if there is some.
    fn rest(&mut self, mut until: Option<Until>, may_sleep: impl Fn() -> bool) -> io::Result<()> {
        let local = Rc::clone(&self.local);
        let shared = &local.shared;
        if local.queued() > 0 || !may_sleep() {
            return self.look();
        }
        match shared.config.wait_strategy {
            WaitStrategy::Park => {}
            WaitStrategy::SpinThenPark(spin) => {
                if self.spin(spin, until)? {
                    return Ok(());
                }
                // The time it spun for is not to be waited for again.
                until = until.map(|until| until.read_again());
            }
            WaitStrategy::Busy => {
                std::hint::spin_loop();
                return self.look();
            }
        }
        if !shared.inbox.try_sleep(until.map(|until| until.deadline)) {
            return self.look();
        }
        shared.gauges.parks.add(1);
        let result = self.driver.wait(&shared.port, until, &mut self.due);
        shared.inbox.awake();
        local.wake_ready(&mut self.due);
        result
    }

    /// Takes what is ready now.
    fn look(&mut self) -> io::Result<()> {
        let result = self.driver.look(&self.local.shared.port, &mut self.due);
        self.local.wake_ready(&mut self.due);
        result
    }

    /// Looks for work without blocking, for `spin` at most; `true` if the turn is over.
    fn spin(&mut self, spin: Duration, until: Option<Until>) -> io::Result<bool> {
        let start = sync::now();
        loop {
            for _ in 0..16 {
                if self.local.shared.inbox.has_mail() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            self.look()?;
            if self.local.queued() > 0 {
                return Ok(true);
            }
            let now = sync::now();
            if until.is_some_and(|until| now >= until.deadline) {
                return Ok(true);
            }
            if now.saturating_duration_since(start) >= spin {
                return Ok(false);
            }
        }
    }

    /// Takes the loop down, in its context, and announces its end as the very last thing.
    pub(crate) fn finish(
        self,
        cause: Cause,
        error: Option<io::Error>,
        guard: Option<Box<dyn Any>>,
        entered: LoopGuard,
    ) {
        let Runner {
            local,
            mut driver,
            mut mail,
            ..
        } = self;
        let _ending = context::end_loop(local.shared.index);
        shutdown::finish(&local, &mut driver, &mut mail, cause);
        let shared = Arc::clone(&local.shared);
        let group = Arc::clone(&local.core.termination);
        if let Err(payload) = contain_drop(guard) {
            shared.report_panic(PanicSite::ThreadHook, &*payload, None);
            discard(payload);
        }
        drop(entered);
        // Timers that were armed here and carried away: nobody fires them any more, so whoever waits for
        // one is told to look again, and arms it where it is now. Not here: this thread is no loop by now.
        local.timers.home().leave();
        shared.wake_all(local.timers.clear());
        // The last reference to the group may go here, and with it the user's closures.
        if let Err(payload) = contain_drop(local) {
            discard(payload);
        }
        drop(driver);
        shared.wake_all(shared.port.close());
        let terms = shared.control.lock().terms();
        let ending = Ending {
            started: true,
            cause,
            error,
            requested_at: terms
                .map_or_else(|| shared.config.clock.now(), |terms| terms.requested_at),
        };
        shared.terminate(ending, Some(&group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::clock::{Clock, VirtualClock};
    use crate::time::sleep;

    #[test]
    fn what_tail_tasks_took_is_not_waited_for_again() {
        let clock = Arc::new(VirtualClock::new());
        let group = Builder::new()
            .loops(1)
            .without_io()
            .clock(Clock::Virtual(Arc::clone(&clock)))
            .build()
            .expect("no selector, no error");
        let ev = group.next();
        let shared = Arc::clone(ev.shared());
        let mut runner = Runner::new(Parts {
            driver: shared.take_seat().expect("it is free"),
            core: Arc::clone(group.core()),
            shared,
        });
        let entered = context::enter_loop(runner.local()).expect("a test's thread is no loop");
        let ms = Duration::from_millis;
        drop(ev.spawn(sleep(ms(50))));
        let (slow, end) = (Arc::clone(&clock), clock.now() + ms(40));
        ev.execute_after_iteration(move || slow.move_to(end))
            .expect("the loop is open");
        let Next::Rest(Some(until)) = runner.work() else {
            panic!("a timer is armed")
        };
        assert_eq!(until.deadline - until.now, ms(10));
        runner.finish(Cause::Now, None, None, entered);
    }
}
