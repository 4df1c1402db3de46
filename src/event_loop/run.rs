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
//!   `t_io·(100−r)/r` ([`LONGEST_SLICE`] at most), or for 1 ms or 1,024 tasks if there was no I/O. What is woken
//!   meanwhile goes behind what is queued. So sockets, tasks, timers and the shutdown wait for one turn at most.
//! - A turn is bounded: each kind of task ends at the next deadline, a timer's or the shutdown's, and with the task
//!   that runs then ([`Pace`]). A timer that is due is fired before anything else goes on.
//! - At most 1,024 timers fire at a time: however many are due, tasks get their slice in between.
//! - The reactor is looked at once per turn, not once per task.
//! - The clock is read once per turn while there are timers or a shutdown, and by the pace, after 64
//!   tasks at the earliest if no deadline is near; a loop with neither does not read it.
//! - The loop sleeps only if nothing is queued on either side; `sleeping` is set under the inbox lock.
//! - Whatever ends the turns (terms, failure, a panic), [`Runner::end`] comes after them.
//! - A test loop drives the same [`Runner`] by hand: `work` without `rest`, over a clock it moves.

use std::any::Any;
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::clock::earlier;
use crate::config::CloseChannels;
use crate::event_loop::context::{self, LoopGuard};
use crate::event_loop::ending::Ending;
use crate::event_loop::inbox::Batch;
use crate::event_loop::lifecycle;
use crate::event_loop::local::{Local, QueueKind};
use crate::event_loop::pace::{BATCH, Pace, SLICE};
use crate::event_loop::shared::{LoopParts, Mail};
use crate::event_loop::shutdown::{self, Outlook, ShuttingDown};
use crate::panic::PanicSite;
use crate::reactor::{Driver, WaitUntil};
use crate::report::EndCause;
use crate::sync::Arc;
use crate::this_thread;
use crate::trace;
use crate::unwind::{contain, contain_drop, discard, message};

/// Tasks of a turn without I/O, at most.
const SLICE_TASKS: u32 = 1024;
/// Time of a turn with I/O, at most, whatever that took.
const LONGEST_SLICE: Duration = Duration::from_millis(10);
/// Timers that fire at a time, at most.
const TIMERS: usize = 1024;

/// Makes the calling thread the loop until its shutdown.
pub(crate) fn run_loop(parts: LoopParts) {
    let shared = Arc::clone(&parts.shared);
    let pin = shared.config.pin_thread.as_ref();
    // Before anything of the loop's own is allocated: memory belongs near the core that uses it.
    let pinned = pin.map_or(Ok(()), |pin| pin(shared.index));
    drive(parts, |runner| {
        if let Err(error) = pinned {
            return (EndCause::Failed, Some(error));
        }
        loop {
            match runner.turn(|| true) {
                Ok(None) => {}
                Ok(Some(cause)) => return (cause, None),
                Err(error) => return (EndCause::Failed, Some(error)),
            }
        }
    });
}

/// Sets a loop up, lets `body` drive it, and takes it down again, whatever `body` does.
pub(super) fn drive(
    parts: LoopParts,
    body: impl FnOnce(&mut Runner) -> (EndCause, Option<io::Error>),
) {
    let mut runner = Runner::new(parts);
    let entered = context::enter_loop(&runner.local).expect("the caller has looked");
    let _span = trace::loop_started(runner.local.shared.index);
    let shared = &runner.local.shared;
    let guard = shared.parent.thread_started(shared);
    let (cause, error) = match contain(|| body(&mut runner)) {
        Ok(ending) => ending,
        Err(payload) => {
            let error = io::Error::other(format!("event loop panicked: {}", message(&*payload)));
            discard(payload);
            (EndCause::Failed, Some(error))
        }
    };
    runner.end(cause, error, guard, entered);
}

/// A loop at work; loop thread only.
pub(crate) struct Runner {
    pub(super) local: Rc<Local>,
    pub(super) driver: Driver,
    pub(super) mail: Mail,
    /// Wakers on their way from the timers or the selector; empty in between.
    pub(super) due: Vec<Waker>,
    mode: Mode,
    /// Timers have had their turn, and do not cut others off before this.
    not_before: Option<Instant>,
    /// Tasks between two looks at the clock, by how long the last ones took.
    step: u32,
    /// Tasks of a turn without I/O, at most.
    slice_tasks: u32,
}

/// What the loop is about, as its own thread sees it.
enum Mode {
    /// Its work, until further notice.
    Working,
    /// It has noticed that it shuts down.
    ShuttingDown(ShuttingDown),
}

/// What is to come after the work of a turn.
pub(crate) enum Next {
    /// Wait, until then at most.
    Rest(Option<WaitUntil>),
    End(EndCause),
}

impl Runner {
    pub(crate) fn new(parts: LoopParts) -> Runner {
        Runner {
            local: Rc::new(Local::new(parts.shared, parts.group)),
            driver: parts.driver,
            mail: Batch::new(),
            due: Vec::new(),
            mode: Mode::Working,
            not_before: None,
            step: BATCH,
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
    pub(super) fn turn(&mut self, may_sleep: impl Fn() -> bool) -> io::Result<Option<EndCause>> {
        match self.work() {
            Next::End(cause) => Ok(Some(cause)),
            Next::Rest(until) => self.rest(until, may_sleep).map(|()| None),
        }
    }

    /// The work of a turn: everything but the wait.
    pub(crate) fn work(&mut self) -> Next {
        self.collect();
        let mut pace = self.pace();
        // Closures that were scheduled from elsewhere, to arm their timers: not behind a queue.
        self.run_some(QueueKind::Timed, &mut pace);
        let io_time = self.run_io_tasks(&mut pace);
        if pace.is_due() {
            self.run_timers(&mut pace);
        }
        self.run_tasks(io_time, &mut pace);
        let mut now = self.run_timers(&mut pace);
        // Tail tasks take their time, as timed ones do, which the next deadline is not to wait for again.
        let ran = self.run_some(QueueKind::Tail, &mut pace);
        if pace.is_due() {
            now = self.run_timers(&mut pace);
        } else if ran > 0 {
            now = now.map(|_| self.now());
        }
        self.step = pace.step();
        self.local.publish();
        let mut deadline = self.local.timers.next_deadline();
        if self.local.shared.state().is_shutting_down() {
            match self.shut_down(now) {
                Outlook::End(cause) => return Next::End(cause),
                Outlook::Wait(until) => deadline = earlier(deadline, until),
            }
        }
        Next::Rest(deadline.map(|deadline| WaitUntil {
            deadline,
            now: now.unwrap_or_else(|| self.now()),
        }))
    }

    fn now(&self) -> Instant {
        self.local.shared.config.clock.now()
    }

    /// Takes the mail in. A loop that rests says first that it stirs.
    pub(crate) fn collect(&mut self) {
        if let Mode::ShuttingDown(mode) = &mut self.mode {
            if mode.is_idle() && !self.local.shared.inbox.has_mail() {
                return;
            }
            mode.note_busy(&self.local.shared);
        }
        self.local.collect(&mut self.mail);
    }

    /// How far this turn may go.
    fn pace(&self) -> Pace {
        let mut pace = Pace::new(self.local.timers.watch(), self.not_before, self.step);
        self.learn(&mut pace);
        pace
    }

    /// Learns what was asked of the loop: its end may be near, or decided.
    fn learn(&self, pace: &mut Pace) {
        let shared = &self.local.shared;
        pace.shown = shared.inbox.shown();
        if !lifecycle::state_of(pace.shown).is_shutting_down() {
            return;
        }
        let guard = shared.inbox.lock();
        pace.set_shutdown(match guard.gate().decided() {
            None => guard.gate().terms().and_then(|terms| terms.deadline),
            // This turn is the last, and not a long one.
            Some(_) => self.now().checked_add(SLICE),
        });
    }

    /// Counts a task; says whether it is time for a look around.
    #[inline]
    fn must_read_clock(&self, pace: &Pace) -> bool {
        self.local.timers.count() || self.local.shared.inbox.shown() != pace.shown
    }

    /// Looks at the clock, and at what has changed since the last look.
    fn read_clock(&self, pace: &mut Pace) -> Instant {
        let timers = &self.local.timers;
        if timers.has_news() {
            pace.set_timer(timers.watch());
        }
        if self.local.shared.inbox.shown() != pace.shown {
            self.learn(pace);
        }
        let now = self.now();
        pace.update(now);
        now
    }

    /// Runs the tasks of a kind that are queued now, as far as the pace allows; returns how many it ran.
    fn run_some(&self, kind: QueueKind, pace: &mut Pace) -> usize {
        let queued = self.local.queued_of(kind);
        if pace.is_over() {
            return 0;
        }
        self.local.timers.plan(pace.stride());
        for ran in 1..=queued {
            if let Some(runnable) = self.local.next_of(kind) {
                self.local.run_one(runnable);
            }
            if self.must_read_clock(pace) {
                self.read_clock(pace);
                if pace.is_due() {
                    return ran;
                }
                self.local.timers.plan(pace.stride());
            }
        }
        queued
    }

    /// Runs the tasks that readiness has woken; returns the time it took, if there were any.
    fn run_io_tasks(&self, pace: &mut Pace) -> Option<Duration> {
        if self.local.queued_of(QueueKind::Io) == 0 {
            return None;
        }
        let start = self.now();
        pace.update(start);
        self.run_some(QueueKind::Io, pace);
        Some(self.now().saturating_duration_since(start))
    }

    /// Runs queued tasks for their share of the turn.
    fn run_tasks(&self, io_time: Option<Duration>, pace: &mut Pace) {
        let ratio = self.local.shared.config.io_ratio;
        let (limit, slice) = match io_time {
            // With a ratio of 100, everything that is queued now, and nothing that comes meanwhile.
            Some(_) if ratio >= 100 => (to_u32(self.local.queued()).max(1), None),
            Some(io_time) => {
                let share = io_time.saturating_mul(100 - ratio) / ratio;
                (u32::MAX, Some(share.min(LONGEST_SLICE)))
            }
            None => (self.slice_tasks, Some(SLICE)),
        };
        if pace.is_over() {
            return;
        }
        let mut start = None;
        let mut left = limit;
        self.local.timers.plan(pace.stride().min(left));
        while let Some(runnable) = self.local.next_task() {
            self.local.run_one(runnable);
            if !self.must_read_clock(pace) {
                continue;
            }
            left -= self.local.timers.counted();
            if left == 0 {
                return;
            }
            // Far from a deadline the first batch is free: most turns never read the clock here.
            let now = self.read_clock(pace);
            let start = *start.get_or_insert(now);
            let over = |slice| now.saturating_duration_since(start) >= slice;
            if pace.is_due() || slice.is_some_and(over) {
                return;
            }
            self.local.timers.plan(pace.stride().min(left));
        }
    }

    /// Fires the timers that are due, and runs what they woke at once, ahead of the queue: a timer is late by the
    /// task that ran, not by a queue. Returns the reading of the clock, if there was a reason for one.
    fn run_timers(&mut self, pace: &mut Pace) -> Option<Instant> {
        let timers = !self.local.timers.is_empty();
        // What timers have woken may be left over, and the timers be gone.
        let woken = self.local.queued_of(QueueKind::Timed) > 0;
        if !timers && !woken && !self.local.shared.state().is_shutting_down() {
            return None;
        }
        let now = self.now();
        if timers {
            self.local.timers.collect_due(now, TIMERS, &mut self.due);
            if !self.due.is_empty() {
                self.note_busy();
                self.local.wake_timed(&mut self.due);
            }
        }
        pace.set_timer(self.local.timers.watch());
        pace.update(now);
        if self.run_some(QueueKind::Timed, pace) == 0 {
            return Some(now);
        }
        let end = self.now();
        self.not_before = end.checked_add(SLICE);
        pace.set_not_before(self.not_before);
        pace.update(end);
        Some(end)
    }

    /// Says that this loop is about to call somebody, if it rests.
    pub(super) fn note_busy(&mut self) {
        if let Mode::ShuttingDown(mode) = &mut self.mode {
            mode.note_busy(&self.local.shared);
        }
    }

    /// The part of a turn that a shutdown has.
    fn shut_down(&mut self, now: Option<Instant>) -> Outlook {
        let local = Rc::clone(&self.local);
        let now = now.unwrap_or_else(|| self.now());
        if let Mode::Working = self.mode {
            trace::shutdown(local.shared.index, "shutting down");
            local.wake_scheduled();
            if local.shared.config.close_channels == CloseChannels::Immediately {
                local.close_channels();
            }
            self.mode = Mode::ShuttingDown(ShuttingDown::begin(&local, now));
        }
        local.drop_given_up();
        match &mut self.mode {
            Mode::ShuttingDown(mode) => mode.outlook(&local, now),
            Mode::Working => unreachable!("it was set a few lines ago"),
        }
    }

    /// Takes the loop down, in its context, and announces its end as the very last thing.
    pub(crate) fn end(
        self,
        cause: EndCause,
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
        let _ending = this_thread::end_loop(local.shared.index);
        let cause = shutdown::take_down(&local, &mut driver, &mut mail, cause);
        let shared = Arc::clone(&local.shared);
        shared.panics.drop(PanicSite::ThreadHook, None, guard);
        drop(entered);
        // Timers that were armed here and carried away: nobody fires them any more, so whoever waits for
        // one is told to look again, and arms it where it is now. Not here: this thread is no loop by now.
        local.timers.home().deregister();
        shared.panics.wake_all(local.timers.clear());
        // The last reference to the group may go here, and with it the user's closures.
        if let Err(payload) = contain_drop(local) {
            discard(payload);
        }
        drop(driver);
        shared.panics.wake_all(shared.port.close());
        let terms = shared.inbox.lock().gate().terms();
        shared.terminate(Ending {
            started: true,
            cause,
            error,
            terms,
        });
    }
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
