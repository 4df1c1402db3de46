//! What a loop notes of its polls, for those who look at it: the watchdog, the flight recorder, the times of
//! polls and waits, and the list of tasks.
//!
//! - Loop thread only. A loop that nobody looks at asks [`Observer::is_on`], or not even that, and calls
//!   nothing else here.
//! - A poll is begun, shown and ended: *begun* with the id of what is polled, *shown* with its place and its
//!   name once the harness knows them, *ended* when it has returned. Closures, the destructors of tasks that
//!   are cancelled, shutdown hooks and main futures are polls as well. A poll that was not begun here is not
//!   shown: a task may be refused, and dropped, inside of another poll.
//! - The watchdog is told when polls begin, and of their ends only when no other poll follows.
//! - It never calls user code.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use crate::clock::Clock;
use crate::error::Caller;
use crate::event_loop::counters::TaskEnd;
use crate::event_loop::shared::Shared;
use crate::event_loop::tracker::Subject;
use crate::event_loop::waits::{Lengths, QueueName, Waits};
use crate::noted::{self, Noted, OuterPoll};
use crate::recorder::event::{Event, WakeCause, Work, WorkKind};
use crate::recorder::pen::Pen;
use crate::site::Site;
use crate::sync::{self, Arc};
use crate::task_id::{HOOK, MAIN, TaskId};
use crate::this_thread;
use crate::time::queue::TimerKey;
use crate::trace;
use crate::watchdog::beacon::Named;

/// The observer of one loop.
pub(crate) struct Observer {
    shared: Arc<Shared>,
    /// Whether polls are timed.
    measure_time: bool,
    /// Whether polls are timed, recorded, shown to the watchdog, or noted in the list of tasks.
    is_on: bool,
    /// Only if the group has a flight recorder.
    pen: Option<Pen>,
    /// The number of what has begun and is not shown yet; and when it has begun, if it is timed.
    to_show: Cell<Option<(u64, Option<Instant>)>>,
    /// The place of the poll that is timed, if it was shown.
    timed: Cell<Option<Site>>,
    /// Since when tasks are queued, if polls are timed.
    waits: RefCell<Waits>,
    /// How many closures of the run that is worked off have begun, if polls are timed.
    begun: Cell<usize>,
    /// The poll of another loop that this loop runs inside of, while it polls.
    outer: Cell<OuterPoll>,
    /// What the task waits for whose poll has just ended; empty otherwise.
    noted: RefCell<Vec<Noted>>,
}

/// What an observer asks of its loop.
pub(crate) trait Queues {
    /// How many tasks are in each queue; closures count until their run is worked off.
    fn lengths(&self) -> Lengths;
    /// Whether a timer is armed.
    fn is_armed(&self, key: TimerKey) -> bool;
}

impl Observer {
    pub(crate) fn new(shared: &Arc<Shared>) -> Observer {
        let measure_time = shared.config.measure_time;
        Observer {
            shared: Arc::clone(shared),
            measure_time,
            is_on: measure_time
                || shared.beacon.is_some()
                || shared.tape.is_some()
                || shared.tracker.is_some(),
            pen: shared.tape.as_ref().map(Pen::new),
            to_show: Cell::new(None),
            timed: Cell::new(None),
            waits: RefCell::default(),
            begun: Cell::new(0),
            outer: Cell::default(),
            noted: RefCell::default(),
        }
    }

    /// Whether polls are observed at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether the harness of a task has to [show](Observer::show) what is polled, or a slow poll is
    /// reported.
    pub(crate) fn wants_place(&self) -> bool {
        self.shared.beacon.is_some() || self.pen.is_some() || self.shared.config.slow_poll.is_some()
    }

    /// Whether wakes and spawns are recorded.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        self.pen.is_some()
    }

    /// Whether the loop has a record of every task.
    pub(crate) fn lists_tasks(&self) -> bool {
        self.shared.tracker.is_some()
    }

    /// Begins a poll of the task with this id; returns when, if it is timed.
    pub(crate) fn begin(
        &self,
        queue: QueueName,
        id: [u32; 2],
        queues: &impl Queues,
    ) -> Option<Instant> {
        let subject = TaskId::from_halves(id).map(Subject::Task);
        self.begin_polled(queue, id, subject, None, queues)
    }

    /// Begins the call of a closure; returns when, if it is timed.
    #[cold]
    pub(crate) fn begin_closure(
        &self,
        id: TaskId,
        location: Caller,
        queues: &impl Queues,
    ) -> Option<Instant> {
        let site = Site::of(location);
        let (queue, subject) = (QueueName::Closures, Some(Subject::Closure(id)));
        let start = self.begin_polled(queue, id.to_halves(), subject, Some(site), queues);
        self.show(WorkKind::Closure, Some(site), None);
        start
    }

    fn begin_polled(
        &self,
        queue: QueueName,
        id: [u32; 2],
        subject: Option<Subject>,
        site: Option<Site>,
        queues: &impl Queues,
    ) -> Option<Instant> {
        let start = (self.measure_time || self.lists_tasks()).then(sync::now);
        if let (Some(start), true) = (start, self.measure_time) {
            self.begin_timed(queue, start, queues.lengths());
        }
        if let Some(subject) = subject {
            self.begin_listed(subject, site, start);
        }
        self.to_show.set(Some((TaskId::number_of(id), start)));
        start
    }

    /// Begins the cancellation of a task, which runs its destructors, until the guard is dropped.
    #[inline]
    pub(crate) fn begin_cancel(&self, id: [u32; 2]) -> Option<ObservedPoll<'_>> {
        self.is_on.then(|| self.cancel_begins(id))
    }

    #[cold]
    fn cancel_begins(&self, id: [u32; 2]) -> ObservedPoll<'_> {
        if let Some(id) = TaskId::from_halves(id) {
            self.begin_listed(Subject::Task(id), None, None);
        }
        self.to_show.set(Some((TaskId::number_of(id), None)));
        ObservedPoll(self)
    }

    /// Begins a poll of the main future, until the guard is dropped.
    #[inline]
    pub(crate) fn begin_main(&self) -> Option<ObservedPoll<'_>> {
        self.is_on.then(|| self.main_begins())
    }

    #[cold]
    fn main_begins(&self) -> ObservedPoll<'_> {
        self.begin_listed(Subject::MainFuture, None, None);
        self.to_show.set(Some((MAIN, None)));
        self.show(WorkKind::Poll, None, None);
        ObservedPoll(self)
    }

    /// Begins a shutdown hook that was added at this place, until the guard is dropped.
    pub(crate) fn begin_hook(&self, location: Caller) -> Option<ObservedPoll<'_>> {
        if !self.is_on {
            return None;
        }
        let site = Some(Site::of(location));
        self.begin_listed(Subject::ShutdownHook, site, None);
        self.to_show.set(Some((HOOK, None)));
        self.show(WorkKind::Poll, site, None);
        Some(ObservedPoll(self))
    }

    /// Notes the beginning of a poll in the list of tasks, if there is one. It has begun now, unless `start`
    /// says when.
    fn begin_listed(&self, subject: Subject, site: Option<Site>, start: Option<Instant>) {
        if let Some(tracker) = &self.shared.tracker {
            self.outer.set(noted::begin());
            tracker.begin(subject, site, start.unwrap_or_else(sync::now));
        }
    }

    /// Shows what is polled, if it was begun here: what it is, and where it comes from.
    pub(crate) fn show(&self, kind: WorkKind, site: Option<Site>, name: Option<&Named>) {
        let Some((id, start)) = self.to_show.take() else {
            return;
        };
        if start.is_some() {
            self.timed.set(site); // and kept while a task is cancelled inside of this poll
        }
        if let Some(beacon) = &self.shared.beacon {
            beacon.begin(id, site, name);
        }
        if let Some(pen) = &self.pen {
            let work = Work {
                kind,
                id,
                site,
                name: 0,
            };
            pen.begin(work, name.map(|name| &name.text), start);
        }
    }

    /// Notes that the task that is polled has made its future, of so many bytes.
    pub(crate) fn made(&self, size: usize) {
        if let (Some(tracker), Some(id)) = (&self.shared.tracker, this_thread::task()) {
            tracker.set_size(id, size);
        }
    }

    /// Notes that a task has ended: its future is dropped.
    pub(crate) fn task_ended(&self, id: Option<TaskId>) {
        if let (Some(tracker), Some(id)) = (&self.shared.tracker, id) {
            tracker.remove(id);
        }
    }

    /// Notes that the task that is polled has ended.
    pub(crate) fn note_task_end(&self, end: TaskEnd) {
        if let Some(pen) = &self.pen {
            pen.note_task_end(end);
        }
    }

    /// Ends a poll, which is timed if it has a start.
    #[cold]
    pub(crate) fn end(&self, start: Option<Instant>, queues: &impl Queues) {
        self.to_show.set(None);
        let end = (start.is_some() || self.lists_tasks()).then(sync::now);
        if let Some(end) = end {
            self.end_listed(end, |key| queues.is_armed(key));
            if let (Some(start), true) = (start, self.measure_time) {
                self.note_poll_time(start, end, queues.lengths());
            }
        }
        if let Some(pen) = &self.pen {
            pen.end_poll(end);
        }
    }

    /// Ends what is no poll of a turn.
    #[cold]
    fn end_untimed(&self) {
        self.to_show.set(None);
        self.show_none();
        if self.lists_tasks() {
            self.end_listed(sync::now(), |_| true);
        }
        if let Some(pen) = &self.pen {
            pen.end_work();
        }
    }

    /// Notes the end of a poll in the list of tasks, and what its task waits for, if there is one.
    fn end_listed(&self, now: Instant, is_armed: impl Fn(TimerKey) -> bool) {
        if let Some(tracker) = &self.shared.tracker {
            let mut waits = self.noted.take();
            let reached = noted::take(self.outer.take(), &mut waits, is_armed);
            tracker.end(&mut waits, reached, now);
            self.noted.replace(waits);
        }
    }

    /// Shows to the watchdog that no poll is under way.
    pub(crate) fn show_none(&self) {
        if let Some(beacon) = &self.shared.beacon {
            beacon.end();
        }
    }

    /// Notes that the polls of a turn are over.
    #[cold]
    pub(crate) fn end_turn(&self) {
        self.show_none();
        if let Some(pen) = &self.pen {
            pen.end_turn();
        }
    }

    /// Notes that timers have fired, whose tasks are woken now.
    #[cold]
    pub(crate) fn timers_fired(&self, count: usize) {
        self.show_none();
        if let Some(pen) = &self.pen {
            pen.timers_fired(count);
        }
    }

    /// Notes that the loop sleeps from now on.
    #[cold]
    pub(crate) fn park(&self, now: Instant) {
        if let Some(pen) = &self.pen {
            pen.park(now);
        }
    }

    /// Notes that the loop is awake from now on.
    #[cold]
    pub(crate) fn unpark(&self, now: Instant) {
        if let Some(pen) = &self.pen {
            pen.unpark(now);
        }
    }

    /// Notes that a task is about to be queued because it was woken on this thread; perhaps one of another
    /// loop.
    #[cold]
    pub(crate) fn woke(&self, id: [u32; 2], cause: WakeCause) {
        if let Some(pen) = &self.pen {
            pen.woke(TaskId::number_of(id), cause);
        }
    }

    /// Notes that a task is about to be queued for the first time; perhaps on another loop.
    #[cold]
    pub(crate) fn spawned(&self, id: [u32; 2]) {
        if let Some(pen) = &self.pen {
            pen.note(Event::Spawned(TaskId::number_of(id)));
        }
    }

    /// Notes that a connection was accepted.
    #[cold]
    pub(crate) fn accepted(&self) {
        if let Some(pen) = &self.pen {
            pen.note(Event::Accepted);
        }
    }

    /// Notes that a run of closures was put back: none of them runs.
    #[inline]
    pub(crate) fn run_ended(&self) {
        self.begun.set(0);
    }

    /// Notes that timers or readiness have woken tasks, which are in their queues by now.
    #[inline]
    pub(crate) fn woken(&self, queues: &impl Queues) {
        if self.measure_time {
            self.stamp_woken(queues);
        }
    }

    #[cold]
    #[inline(never)]
    fn stamp_woken(&self, queues: &impl Queues) {
        let (lengths, now) = (self.waiting(queues.lengths()), sync::now());
        self.waits.borrow_mut().look(lengths, now);
    }

    /// Notes that the mail was queued.
    #[inline]
    pub(crate) fn collected(&self, queues: &impl Queues) {
        if self.measure_time {
            self.stamp_mail(queues);
        }
    }

    /// Notes since when the mail that was just queued was there.
    #[cold]
    #[inline(never)]
    fn stamp_mail(&self, queues: &impl Queues) {
        let rung = match self.shared.config.clock {
            Clock::System => self.shared.pulse.last_ring(),
            Clock::Virtual(_) => None, // of another time
        };
        let (lengths, now) = (self.waiting(queues.lengths()), sync::now());
        self.waits.borrow_mut().collected(lengths, rung, now);
    }

    /// Begins the poll of a task of this queue at `start`, and counts how long it waited.
    fn begin_timed(&self, queue: QueueName, start: Instant, lengths: Lengths) {
        if queue == QueueName::Closures {
            self.begun.set(self.begun.get() + 1);
        }
        let left = self.waiting(lengths)[queue as usize];
        let woken = self.waits.borrow_mut().take(queue, left, start);
        if let Some(durations) = &self.shared.durations {
            durations
                .waits
                .count(start.saturating_duration_since(woken));
        }
    }

    /// Records how long a poll took.
    fn note_poll_time(&self, start: Instant, end: Instant, lengths: Lengths) {
        let time = end.saturating_duration_since(start);
        self.shared.gauges.polled(time);
        if let Some(durations) = &self.shared.durations {
            durations.polls.count(time);
        }
        let (lengths, has_mail) = (self.waiting(lengths), self.shared.inbox.has_mail());
        let mut waits = self.waits.borrow_mut();
        waits.look(lengths, end);
        waits.look_at_mail(has_mail, start, end);
        drop(waits);
        let slow = self.shared.config.slow_poll;
        trace::polled(self.shared.index, slow, time, self.timed.take());
    }

    /// The lengths of the queues without what has begun of the run that is worked off.
    fn waiting(&self, mut lengths: Lengths) -> Lengths {
        let closures = &mut lengths[QueueName::Closures as usize];
        *closures = closures.saturating_sub(self.begun.get());
        lengths
    }
}

/// Ends a poll that is not timed when it is dropped.
pub(crate) struct ObservedPoll<'a>(&'a Observer);

impl Drop for ObservedPoll<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.end_untimed();
    }
}
