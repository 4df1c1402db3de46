//! The life of a loop's thread, turn by turn.
//!
//! ```text
//!   turn:  work:  collect the inbox
//!                 run I/O tasks (woken by readiness), measured
//!                 run other tasks, for their share of that time
//!                 fire due timers, and run the tasks they woke
//!                 run tail tasks
//!                 one step of the shutdown, if there is one
//!          rest:  wait in the driver, or poll it without waiting if a task is queued
//! ```
//!
//! - Fairness: a turn runs the I/O tasks that were queued when it began and then other tasks for
//!   `t_io·(100−r)/r` ([`LONGEST_SLICE`] at most), or for 1 ms or 1,024 tasks if there was no I/O. Tasks
//!   woken meanwhile are queued behind the others. So I/O, tasks, timers and the shutdown wait for one turn
//!   at most.
//! - A turn is bounded: the tasks of each kind stop at the next deadline, of a timer or of the shutdown, with
//!   the task that is running then ([`Pace`]). Due timers fire before any other task runs.
//! - At most 1,024 timers fire at a time: however many are due, tasks get their slice in between.
//! - The reactor is polled once per turn, not once per task.
//! - The clock is read once per turn while there are timers or a shutdown, and as often as the [`Pace`]
//!   demands: after up to 64 tasks if no deadline is near. A short turn without timers, shutdown and I/O does
//!   not read it. A [`Reading`] is good until something runs: that of the end of a wait, or of the I/O tasks,
//!   serves what follows.
//! - The loop sleeps only if its queues and its inbox are empty; `sleeping` is set under the inbox lock.
//! - Whatever ends the turns (terms, failure, a panic), [`Runner::end`] runs after them.
//! - A test loop drives the same [`Runner`] by hand: `work` without `rest`, with a clock that it advances.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::clock::earlier;
use crate::config::CloseChannels;
use crate::event_loop::context::{self, LoopGuard};
use crate::event_loop::ending::Ending;
use crate::event_loop::flow::Flow;
use crate::event_loop::inbox::{Batch, KEPT_CAPACITY};
use crate::event_loop::lifecycle;
use crate::event_loop::local::{Local, QueueKind};
use crate::event_loop::pace::{BATCH, Pace, SLICE};
use crate::event_loop::shared::{LoopParts, Mail, Shared};
use crate::event_loop::shutdown::{self, LastRun, Outlook, ShuttingDown};
use crate::event_loop::spin::SpinPolicy;
use crate::metrics::pulse::Tick;
use crate::panic::PanicSite;
use crate::reactor::{Driver, WaitUntil};
use crate::report::EndCause;
use crate::sync::Arc;
use crate::this_thread;
use crate::trace;
use crate::unwind::{contain, contain_drop, discard, message};
use crate::watchdog::{self, WatchGuard};

/// The most tasks of a turn without I/O.
const SLICE_TASKS: u32 = 1024;
/// The longest slice for other tasks in a turn with I/O, however long the I/O took: in nanoseconds.
const LONGEST_SLICE: u64 = 10_000_000;
/// The most timers that fire at a time.
const MAX_TIMERS: usize = 1024;

/// What ends the turns of a loop on a thread.
pub(super) enum Exit {
    /// The loop ends: why, and the error if it has failed.
    End(EndCause, Option<io::Error>),
    /// The loop is not needed, and may be parked.
    Park,
}

/// Runs the loop on the calling thread until it ends or parks.
pub(crate) fn run_loop(mut parts: LoopParts) {
    let shared = Arc::clone(&parts.shared);
    let pin = shared.config.pin_thread.as_ref();
    // Before the loop allocates anything, so that its memory is near its core.
    let mut pinned = pin.map_or(Ok(()), |pin| pin(shared.index));
    loop {
        let pinned = std::mem::replace(&mut pinned, Ok(()));
        let left = drive(parts, |runner| match pinned {
            Ok(()) => runner.run(),
            Err(error) => Exit::End(EndCause::Failed, Some(error)),
        });
        match left.map(Shared::park) {
            None | Some(Ok(())) => return,
            // Something has arrived meanwhile.
            Some(Err(back)) => parts = back,
        }
    }
}

/// Sets a loop up, runs `body` to drive it, and takes it down, whatever `body` does; returns the parts of a
/// loop that may be parked.
pub(super) fn drive(parts: LoopParts, body: impl FnOnce(&mut Runner) -> Exit) -> Option<LoopParts> {
    let mut runner = Runner::new(parts);
    let entered = context::enter_loop(&runner.local)
        .expect("the caller has checked that this thread is no loop");
    let _span = trace::loop_started(runner.local.shared.index);
    let shared = &runner.local.shared;
    let guard = shared.parent.thread_started(shared);
    let (cause, error) = match contain(|| body(&mut runner)) {
        Ok(Exit::End(cause, error)) => (cause, error),
        Ok(Exit::Park) => return Some(runner.leave(guard, entered)),
        Err(payload) => {
            let error = io::Error::other(format!("event loop panicked: {}", message(&*payload)));
            discard(payload);
            (EndCause::Failed, Some(error))
        }
    };
    runner.end(cause, error, guard, entered);
    None
}

/// A running loop; loop thread only.
pub(crate) struct Runner {
    pub(super) local: Rc<Local>,
    pub(super) driver: Driver,
    pub(super) mail: Mail,
    /// Wakers of due timers or ready descriptors, to be woken; empty in between.
    pub(super) due: Vec<Waker>,
    /// Whether it spins before it sleeps, if its wait strategy is to spin.
    pub(super) spin_policy: SpinPolicy,
    /// Whether it pauses before it collects the inbox again.
    pub(super) flow: Flow,
    mode: Mode,
    /// Timers have just fired, and do not cut tasks off before this instant.
    not_before: Option<Instant>,
    /// Tasks between two readings of the clock, by how long the last ones took.
    step: u32,
    /// The most tasks of a turn without I/O.
    slice_tasks: u32,
    /// The last reading of the clock that was kept, and how many polls there were before it.
    reading: Cell<Reading>,
    polls_before: Cell<u64>,
    /// Keeps the loop watched, if its group has a watchdog.
    _watched: Option<WatchGuard>,
    /// How many polls there were when the loop last had nothing to do; kept by loops that never sleep.
    pub(super) rested_polls: u64,
    /// At how many polls the queues and tables are looked at again: they may have grown.
    pub(super) shrinks_at: u64,
    /// When the loop parks if nothing happens until then, and how many polls there were before.
    parks_at: Option<(Instant, u64)>,
}

/// A reading of the clock; and the same for the pulse, which is dear to compute.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) now: Instant,
    pub(super) tick: Tick,
}

/// Instead of a number of polls: the reading is out of date.
const OUT_OF_DATE: u64 = u64::MAX;

/// What the loop does, as its own thread sees it.
enum Mode {
    /// It has not noticed a shutdown request.
    Working,
    /// It has noticed that it is shutting down.
    ShuttingDown(ShuttingDown),
}

/// What follows the work of a turn.
pub(crate) enum Next {
    /// Wait, until this deadline at most.
    Rest(Option<WaitUntil>),
    End(EndCause),
}

impl Runner {
    pub(crate) fn new(parts: LoopParts) -> Runner {
        let watched = parts.shared.beacon.as_ref().map(watchdog::watch);
        let reading = Reading::new(&parts.shared);
        parts.shared.pulse.wake(reading.tick);
        Runner {
            _watched: watched,
            local: Rc::new(Local::new(parts.shared, parts.group)),
            driver: parts.driver,
            mail: Batch::new(),
            due: Vec::new(),
            spin_policy: SpinPolicy::default(),
            flow: Flow::default(),
            mode: Mode::Working,
            not_before: None,
            step: BATCH,
            slice_tasks: SLICE_TASKS,
            reading: Cell::new(reading),
            polls_before: Cell::new(OUT_OF_DATE),
            rested_polls: 0,
            shrinks_at: KEPT_CAPACITY as u64,
            parks_at: None,
        }
    }

    pub(crate) fn local(&self) -> &Rc<Local> {
        &self.local
    }

    /// Limits the tasks of a turn without I/O, for shorter turns.
    pub(crate) fn set_slice_tasks(&mut self, tasks: u32) {
        self.slice_tasks = tasks;
    }

    /// Runs turns until the loop ends, or may park.
    fn run(&mut self) -> Exit {
        loop {
            let rested = match self.work() {
                Next::End(cause) => return Exit::End(cause, None),
                Next::Rest(until) => match self.until_park(until) {
                    Some(until) => self.rest(until, || true),
                    None => return Exit::Park,
                },
            };
            if let Err(error) = rested {
                return Exit::End(EndCause::Failed, Some(error));
            }
        }
    }

    /// Until when the loop rests; `None` if it has been empty for so long that it parks.
    #[inline]
    fn until_park(&mut self, until: Option<WaitUntil>) -> Option<Option<WaitUntil>> {
        match self.local.shared.config.patience {
            Some(patience) if self.local.shared.is_set_aside() => self.park_after(patience, until),
            _ => Some(until),
        }
    }

    #[cold]
    fn park_after(
        &mut self,
        patience: Duration,
        until: Option<WaitUntil>,
    ) -> Option<Option<WaitUntil>> {
        if !self.local.may_leave_thread() {
            self.parks_at = None;
            return Some(until);
        }
        let (now, polls) = (self.now(), self.local.polls());
        let at = match self.parks_at {
            Some((at, before)) if before == polls => at,
            // An instant beyond the range of the clock never comes.
            _ => match now.checked_add(patience) {
                Some(at) => at,
                None => return Some(until),
            },
        };
        self.parks_at = Some((at, polls));
        if now >= at {
            if self.local.leave_nothing() {
                return None;
            }
            // A destructor has given the loop something to do: another turn, at once.
            self.parks_at = None;
            self.forget_reading();
            return Some(Some(WaitUntil { deadline: now, now }));
        }
        let deadline = until.map_or(at, |until| until.deadline.min(at));
        Some(Some(WaitUntil { deadline, now }))
    }

    /// Runs one turn; returns `Some` if it was the last. `may_sleep` is called just before the loop sleeps.
    pub(crate) fn turn(&mut self, may_sleep: impl Fn() -> bool) -> io::Result<Option<EndCause>> {
        match self.work() {
            Next::End(cause) => Ok(Some(cause)),
            Next::Rest(until) => self.rest(until, may_sleep).map(|()| None),
        }
    }

    /// The work of a turn: everything but the wait.
    pub(crate) fn work(&mut self) -> Next {
        self.collect();
        let mut pace = Pace::new(self.local.timers.watch(), self.not_before, self.step);
        pace.shown = self.local.shared.place.shown.get();
        if !lifecycle::is_plain(pace.shown) {
            self.update_shutdown(&mut pace);
        }
        // Closures scheduled by other threads arm their timers here, ahead of the queue.
        self.run_queue(QueueKind::Timed, &mut pace);
        let io_time = self.run_io_tasks(&mut pace);
        if pace.is_due() {
            self.run_timers(&mut pace);
        }
        self.run_tasks(io_time, &mut pace);
        let mut now = self.run_timers(&mut pace);
        // The time that tail tasks took must not be added to the wait for the next deadline.
        let ran = self.run_queue(QueueKind::Tail, &mut pace);
        if pace.is_due() {
            now = self.run_timers(&mut pace);
        } else if ran > 0 {
            now = now.map(|_| self.read().now);
        }
        self.step = pace.step();
        self.local.publish();
        self.local.settle_requests();
        let mut deadline = self.local.timers.next_deadline();
        if lifecycle::is_shutting_down(self.local.shared.place.shown.get()) {
            match self.shut_down(now) {
                Outlook::End(cause) => return Next::End(cause),
                Outlook::Wait(until) => deadline = earlier(deadline, until),
            }
        } else if self.local.shared.config.patience.is_some() {
            deadline = earlier(deadline, self.scale(now));
        }
        Next::Rest(deadline.map(|deadline| WaitUntil {
            deadline,
            now: now.unwrap_or_else(|| self.recent().now),
        }))
    }

    pub(super) fn now(&self) -> Instant {
        self.local.shared.config.clock.now()
    }

    /// Reads the clock, and keeps the reading: it is good until something runs.
    pub(super) fn read(&self) -> Reading {
        let reading = Reading::new(&self.local.shared);
        self.reading.set(reading);
        self.polls_before.set(self.local.polls());
        reading
    }

    /// Notes that something has run that is no task: the reading is out of date.
    pub(crate) fn forget_reading(&self) {
        self.polls_before.set(OUT_OF_DATE);
    }

    /// The reading that was kept if nothing has run since, else a new one.
    pub(super) fn recent(&self) -> Reading {
        match self.polls_before.get() == self.local.polls() {
            true => self.reading.get(),
            false => self.read(),
        }
    }

    /// Collects the inbox. An idle loop notifies its group first that it is busy.
    pub(crate) fn collect(&mut self) {
        if let Mode::ShuttingDown(mode) = &mut self.mode {
            if mode.is_idle() && !self.local.shared.inbox.has_mail() {
                return;
            }
            mode.note_busy(&self.local.shared);
        }
        let mut collected = 0;
        if self.local.shared.inbox.has_mail() {
            self.forget_reading(); // messages may drop values of users
            collected = self.local.collect(&mut self.mail);
        }
        self.flow.collected(collected);
        if lifecycle::has_requests(self.local.shared.place.shown.get()) {
            self.take_requests();
        }
    }

    /// Does what handles ask of tasks, which may drop some.
    fn take_requests(&self) {
        self.local.take_requests();
        self.forget_reading();
    }

    /// Serves requests, and updates the pace with the shutdown: its deadline, or a slice if the end is
    /// decided.
    fn update_shutdown(&self, pace: &mut Pace) {
        let shared = &self.local.shared;
        if lifecycle::has_requests(shared.place.shown.get()) {
            self.take_requests();
        }
        pace.shown = shared.place.shown.get();
        if !lifecycle::is_shutting_down(pace.shown) {
            return;
        }
        let guard = shared.inbox.lock();
        pace.set_shutdown(match guard.gate().decided() {
            None => guard.gate().terms().and_then(|terms| terms.deadline),
            // This turn is the last one, and is kept short.
            Some(_) => self.now().checked_add(SLICE),
        });
    }

    /// Counts a task; returns whether the clock has to be read, or the phase has changed.
    #[inline]
    fn must_read_clock(&self, pace: &Pace) -> bool {
        self.local.count_task(pace.shown)
    }

    /// Reads the clock, and updates the pace with what has changed since the last reading.
    fn read_clock(&self, pace: &mut Pace) -> Instant {
        let timers = &self.local.timers;
        if timers.has_earlier_deadline() {
            pace.set_timer(timers.watch());
        }
        if self.local.shared.place.shown.get() != pace.shown {
            self.update_shutdown(pace);
        }
        let now = self.now();
        pace.update(now);
        now
    }

    /// Runs the tasks of a kind that are queued now, as far as the pace allows; returns how many it ran.
    #[inline]
    fn run_queue(&self, kind: QueueKind, pace: &mut Pace) -> usize {
        match self.local.queued_of(kind) {
            0 => 0,
            queued => self.run_queued(kind, queued, pace),
        }
    }

    #[inline(never)] // Most turns have tasks of one kind.
    fn run_queued(&self, kind: QueueKind, queued: usize, pace: &mut Pace) -> usize {
        if pace.is_over() {
            return 0;
        }
        self.local.timers.set_stride(pace.stride());
        for ran in 1..=queued {
            if let Some(runnable) = self.local.next_of(kind) {
                self.local.run_one(runnable, kind.into());
            }
            if self.must_read_clock(pace) {
                self.read_clock(pace);
                if pace.is_due() {
                    return ran;
                }
                self.local.timers.set_stride(pace.stride());
            }
        }
        queued
    }

    /// Runs the tasks woken by readiness; returns how many nanoseconds that took, if there were any.
    fn run_io_tasks(&self, pace: &mut Pace) -> Option<u64> {
        if self.local.queued_of(QueueKind::Io) == 0 {
            return None;
        }
        let start = self.recent();
        pace.update(start.now);
        self.run_queue(QueueKind::Io, pace);
        Some(self.read().tick.since(start.tick))
    }

    /// Runs other queued tasks for their share of the turn.
    fn run_tasks(&self, io_time: Option<u64>, pace: &mut Pace) {
        let ratio = u64::from(self.local.shared.config.io_ratio);
        let (limit, slice) = match io_time {
            // With a ratio of 100, all tasks that are queued now, and none that are queued meanwhile.
            Some(_) if ratio >= 100 => (to_u32(self.local.queued()).max(1), None),
            Some(io_time) => {
                let share = io_time.saturating_mul(100 - ratio) / ratio;
                (u32::MAX, Some(share.min(LONGEST_SLICE)))
            }
            None => (self.slice_tasks, Some(SLICE.as_nanos() as u64)),
        };
        if pace.is_over() {
            return;
        }
        let mut start = None;
        let mut left = limit;
        self.local.timers.set_stride(pace.stride().min(left));
        while self.run_stride(pace) {
            left -= self.local.timers.tasks_counted();
            if left == 0 {
                return;
            }
            // Far from a deadline the first batch needs no reading: most turns never read the clock here.
            let now = self.read_clock(pace);
            let start = *start.get_or_insert(now);
            let over = |slice| now.saturating_duration_since(start) >= Duration::from_nanos(slice);
            if pace.is_due() || slice.is_some_and(over) {
                return;
            }
            self.local.timers.set_stride(pace.stride().min(left));
        }
    }

    /// Runs queued tasks until the clock has to be read, or the phase has changed; `false` if none is left.
    #[inline]
    fn run_stride(&self, pace: &Pace) -> bool {
        let (local, place) = (&*self.local, self.local.shared.place.get());
        let stopped = loop {
            let Some(runnable) = local.next_task() else {
                match local.run_closures(pace.shown) {
                    Some(false) => continue,
                    Some(true) => break true,
                    None => break false,
                }
            };
            local.run_next(runnable);
            if local.timers.count_task() || place.shown.get() != pace.shown {
                break true;
            }
        };
        this_thread::forget_own_waker();
        stopped
    }

    /// Fires due timers, and runs the tasks they woke at once, ahead of the queue: a timer is late by the
    /// running task, not by the length of the queue. Returns the reading of the clock, if one was needed.
    fn run_timers(&mut self, pace: &mut Pace) -> Option<Instant> {
        let timers = !self.local.timers.is_empty();
        // Tasks woken by earlier timers may be left, although no timer is armed any more.
        let woken = self.local.queued_of(QueueKind::Timed) > 0;
        let shown = self.local.shared.place.shown.get();
        if !timers && !woken && !lifecycle::is_shutting_down(shown) {
            return None;
        }
        let now = self.recent().now;
        if timers {
            self.local
                .timers
                .collect_due(now, MAX_TIMERS, &mut self.due);
            if !self.due.is_empty() {
                self.note_busy();
                self.local.wake_timed(&mut self.due);
            }
        }
        pace.set_timer(self.local.timers.watch());
        pace.update(now);
        if self.run_queue(QueueKind::Timed, pace) == 0 {
            return Some(now);
        }
        let end = self.read().now;
        self.not_before = end.checked_add(SLICE);
        pace.set_not_before(self.not_before);
        pace.update(end);
        Some(end)
    }

    /// Notifies the group that this loop is about to wake tasks, if it was idle.
    pub(crate) fn note_busy(&mut self) {
        if let Mode::ShuttingDown(mode) = &mut self.mode {
            mode.note_busy(&self.local.shared);
        }
    }

    /// The shutdown's part of a turn.
    fn shut_down(&mut self, now: Option<Instant>) -> Outlook {
        let local = Rc::clone(&self.local);
        let now = now.unwrap_or_else(|| self.now());
        if let Mode::Working = self.mode {
            trace::shutdown(local.shared.index, "shutting down");
            local.note_shutdown();
            local.wake_scheduled();
            if local.shared.config.close_channels == CloseChannels::Immediately {
                local.close_channels();
            }
            self.mode = Mode::ShuttingDown(ShuttingDown::begin(&local, now));
        }
        local.drop_given_up();
        match &mut self.mode {
            Mode::ShuttingDown(mode) => mode.advance(&local, now),
            Mode::Working => unreachable!("it was set a few lines ago"),
        }
    }

    /// Has the group look whether it needs more loops, or fewer.
    #[cold]
    fn scale(&self, now: Option<Instant>) -> Option<Instant> {
        let now = now.unwrap_or_else(|| self.now());
        self.local.shared.parent.scale(now)
    }

    /// Leaves the loop, which is empty, so that it can be parked; returns what its next thread needs.
    fn leave(self, guard: Option<Box<dyn Any>>, entered: LoopGuard) -> LoopParts {
        let Runner { local, driver, .. } = self;
        let shared = Arc::clone(&local.shared);
        let group = Arc::clone(&local.group);
        local.publish();
        local.is_left.set(true);
        drop(entered);
        // No longer as the loop: what a subscriber and the guard submit is in the inbox, and not on this
        // thread. But they must not wait for it here.
        let leaving = this_thread::end_loop(shared.index);
        trace::parked(shared.index);
        shared.panics.drop(PanicSite::ThreadHook, None, guard);
        drop(leaving);
        local.timers.home().deregister();
        shared.panics.wake_all(local.timers.clear());
        if let Err(payload) = contain_drop(local) {
            discard(payload);
        }
        shared.pulse.sleep(Reading::new(&shared).tick);
        LoopParts {
            shared,
            group,
            driver,
        }
    }

    /// Takes the loop down, in its context, and announces its end as the last step.
    pub(crate) fn end(
        self,
        cause: EndCause,
        error: Option<io::Error>,
        guard: Option<Box<dyn Any>>,
        entered: LoopGuard,
    ) {
        self.end_with(LastRun::Yes, cause, error, guard, entered);
    }

    /// Ends the loop as the end of its process would: nothing of the user's runs any more but destructors.
    pub(crate) fn kill(self, entered: LoopGuard) {
        let hooks = self
            .local
            .shared
            .inbox
            .lock()
            .edit(|life| life.hooks.take_all());
        for hook in hooks {
            self.local.shared.drop_hook(hook);
        }
        self.end_with(LastRun::No, EndCause::Now, None, None, entered);
    }

    fn end_with(
        self,
        last_run: LastRun,
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
        let cause = shutdown::take_down(&local, &mut driver, &mut mail, cause, last_run);
        let left = local.leftovers.borrow_mut().take();
        let shared = Arc::clone(&local.shared);
        shared.panics.drop(PanicSite::ThreadHook, None, guard);
        drop(entered);
        // Timers that were armed here and moved to other threads no longer fire, so the tasks that wait for
        // them are woken to arm them where they are. That cannot be here: this thread is no longer a loop.
        local.timers.home().deregister();
        shared.panics.wake_all(local.timers.clear());
        // This may drop the last reference to the group, and with it user closures.
        if let Err(payload) = contain_drop(local) {
            discard(payload);
        }
        drop(driver);
        shared.panics.wake_all(shared.port.close());
        shared.pulse.sleep(Reading::new(&shared).tick);
        let terms = shared.inbox.lock().gate().terms();
        shared.terminate(Ending {
            started: true,
            cause,
            error,
            terms,
            left,
        });
    }
}

impl Reading {
    #[inline]
    fn new(shared: &Shared) -> Reading {
        let now = shared.config.clock.now();
        let tick = shared.pulse.tick(now);
        Reading { now, tick }
    }
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
