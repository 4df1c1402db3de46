//! The half of a loop that only its own thread can reach.
//!
//! - `!Send` by its `Rc` and cells: the compiler keeps it on the loop thread.
//! - A field is borrowed for one push, pop or swap; no borrow is alive while user code runs (poll,
//!   wake, drop, hook, closure).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use crate::error::Caller;
use crate::event_loop::arena::{Arena, ArenaKey};
use crate::event_loop::budget;
use crate::event_loop::counters::TaskEnd;
use crate::event_loop::inbox::{Before, KEPT_CAPACITY, Lane, RunPlaces};
use crate::event_loop::leftovers::Leftovers;
use crate::event_loop::live::{Live, LiveKey};
use crate::event_loop::observer::{Observer, Queues};
use crate::event_loop::requests::{EndFlag, Request, Requests, Wish};
use crate::event_loop::run_queue::{self, RunQueue};
use crate::event_loop::runs::Run;
use crate::event_loop::shared::{AtShutdown, Mail, Message, Runnable, Shared};
use crate::event_loop::tracker::{Turn, WakeSource};
use crate::event_loop::waits::{Lengths, QueueName};
use crate::left_tasks::{LeftKind, WaitsFor};
use crate::panic::PanicSite;
use crate::recorder::event::WakeCause;
use crate::report::EndCause;
use crate::sync::{Arc, Weak};
use crate::task_id::{AbortTarget, TaskId};
use crate::this_thread::{self, CancelReason, SpecialPoll};
use crate::time::queue;
use crate::time::timers::{Away, HomeId, Timers};
use crate::unwind::{contain, contain_drop};

/// The loop thread's half.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    /// The group, which its loop threads keep alive.
    pub(crate) group: Arc<dyn Any + Send + Sync>,
    /// Tasks to run, while the loop is not on its thread: else they are in [`run_queue`].
    pub(crate) away: RefCell<RunQueue>,
    /// Tasks woken by readiness, and not run yet.
    io: RefCell<VecDeque<Runnable>>,
    /// Tasks whose timers have fired, and closures that were scheduled, not run yet.
    timed: RefCell<VecDeque<Runnable>>,
    /// Tasks for the end of the iteration.
    tail: RefCell<VecDeque<Runnable>>,
    /// Selects the queue for tasks that are woken on this thread.
    waking: Cell<Waking>,
    /// What `waking` is while a wake is a push and nothing more.
    plain_waking: Waking,
    /// Tasks that gave themselves up, to be dropped by the loop.
    to_drop: RefCell<VecDeque<Runnable>>,
    /// The wakers of tasks that give themselves up.
    pub(crate) given_up: RefCell<Vec<Waker>>,
    pub(crate) timers: Timers,
    live: RefCell<Live>,
    pub(crate) arena: RefCell<Arena>,
    /// Runnables run, ever; a change of it is activity.
    polls: Cell<u64>,
    /// What is noted of polls.
    pub(crate) observer: Observer,
    /// What handles ask of tasks.
    requests: RefCell<Requests>,
    pub(crate) leftovers: RefCell<Leftovers>,
    /// Whether a task is looked at before it is run: polls are observed, or ends of tasks are noted.
    special: Cell<bool>,
    /// Whether a task that ends is noted: a handle waits for that, or a channel was closed by force.
    noting: Cell<bool>,
    /// The thread has left the loop, which was empty and may be another thread's by now.
    pub(crate) is_left: Cell<bool>,
}

/// A queue of more tasks is long: closures that arm timers do not wait behind it.
const LONG_QUEUE: usize = 64;

// An entry of twice the size costs every wake at home: closures are in a list of their own.
const _: () = assert!(size_of::<Runnable>() == size_of::<usize>());

/// What is taken out of the queues.
pub(crate) enum Queued {
    Task(Runnable),
    Closures(Box<dyn Run>),
}

/// Which queue, besides the plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Woken by readiness.
    Io,
    /// Woken by a timer.
    Timed,
    /// For the end of the iteration.
    Tail,
}

impl From<QueueKind> for QueueName {
    fn from(kind: QueueKind) -> QueueName {
        match kind {
            QueueKind::Io => QueueName::Io,
            QueueKind::Timed => QueueName::Timed,
            QueueKind::Tail => QueueName::Tail,
        }
    }
}

/// Why a task is woken; selects its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waking {
    /// Something happened to it.
    Task,
    /// The reactor found something ready: I/O work.
    Io,
    /// Its timer fired: it runs ahead of the queue.
    Timer,
    /// It is to be dropped.
    ToDrop,
    /// No reason at all.
    Never,
}

impl Local {
    pub(crate) fn new(shared: Arc<Shared>, group: Arc<dyn Any + Send + Sync>) -> Local {
        let observer = Observer::new(&shared);
        // A loop that was parked counts on.
        let polls = shared.gauges.polls.get();
        let mut queue = RunQueue::default();
        queue.woken = shared.gauges.woken_here.get();
        Local {
            timers: Timers::new(
                HomeId::register(Arc::<Shared>::downgrade(&shared)),
                shared.config.clock.clone(),
            ),
            shared,
            group,
            away: RefCell::new(queue),
            io: RefCell::default(),
            timed: RefCell::default(),
            tail: RefCell::default(),
            waking: Cell::new(Waking::Task),
            plain_waking: match observer.records() || observer.lists_tasks() {
                true => Waking::Never,
                false => Waking::Task,
            },
            to_drop: RefCell::default(),
            given_up: RefCell::default(),
            live: RefCell::default(),
            arena: RefCell::default(),
            polls: Cell::new(polls),
            requests: RefCell::default(),
            leftovers: RefCell::default(),
            special: Cell::new(observer.is_on()),
            noting: Cell::new(false),
            is_left: Cell::new(false),
            observer,
        }
    }

    /// Queues a task that was woken on this thread for a reason of its own.
    pub(crate) fn push_wake(&self, runnable: Runnable) {
        if self.plain_waking == Waking::Never {
            return self.push_noted_wake(runnable);
        }
        self.push_woken(runnable);
    }

    #[inline(always)] // The noted way is cold, and must not make the other one longer.
    fn push_woken(&self, runnable: Runnable) {
        let queue = match self.waking.get() {
            Waking::Task | Waking::Never => return run_queue::push_woken(runnable),
            Waking::Io => &self.io,
            Waking::Timer => &self.timed,
            // Nothing has happened to it: this is how the loop takes hold of a task, and not counted.
            Waking::ToDrop => return self.to_drop.borrow_mut().push_back(runnable),
        };
        run_queue::with(|queue| queue.woken += 1);
        queue.borrow_mut().push_back(runnable);
    }

    /// Notes a wake, for the recorder and for the list of tasks, and queues the task.
    #[cold]
    #[inline(never)]
    fn push_noted_wake(&self, runnable: Runnable) {
        let source = match self.waking.get() {
            Waking::Task => Some((WakeCause::Loop, WakeSource::Loop(self.shared.index))),
            Waking::Io => Some((WakeCause::Io, WakeSource::Io)),
            Waking::Timer => Some((WakeCause::Timer, WakeSource::Timer)),
            Waking::ToDrop | Waking::Never => None,
        };
        if let Some((cause, by)) = source {
            let meta = runnable.metadata();
            self.observer.woke(meta.id_halves(), cause);
            if let (Some(tracker), Some(id)) = (&self.shared.tracker, meta.try_id()) {
                tracker.woken(id, by);
            }
        }
        self.push_woken(runnable);
    }

    /// Whether tasks that are woken go to the run queue without a look at the loop.
    pub(crate) fn wakes_to_run(&self) -> bool {
        self.waking.get() == self.plain_waking
    }

    /// Selects the queue for tasks that are woken; returns the previous one.
    fn set_waking(&self, waking: Waking) -> Waking {
        let outer = self.waking.replace(waking);
        this_thread::set_wakes_to_run(self.wakes_to_run());
        outer
    }

    /// Queues a task that was submitted on this thread, past an open gate.
    pub(crate) fn push_new(&self, runnable: Runnable, lane: Lane) {
        if self.observer.records() {
            self.observer.spawned(runnable.metadata().id_halves());
        }
        match lane {
            Lane::Main => self.push_main(runnable),
            Lane::Tail => {
                self.shared.place.counters.accept_local();
                self.tail.borrow_mut().push_back(runnable);
            }
            // In order of submission, unless the queue is long.
            Lane::Timed if run_queue::with(|queue| queue.ahead()) <= LONG_QUEUE => {
                self.push_main(runnable)
            }
            Lane::Timed => {
                self.shared.place.counters.accept_local();
                self.timed.borrow_mut().push_back(runnable);
            }
        }
    }

    /// As [`Local::push_new`], to the main lane.
    #[inline]
    pub(crate) fn push_main(&self, runnable: Runnable) {
        self.shared.place.counters.accept_local();
        run_queue::push(runnable);
    }

    /// Takes the mail in: items to their queues, messages done at once. Returns how many items of the run
    /// queue there were.
    pub(crate) fn collect(&self, mail: &mut Mail) -> usize {
        if mail.spare.is_none() {
            mail.spare = run_queue::with(|queue| queue.spare.take());
        }
        if !self.shared.inbox.drain(mail) {
            return 0;
        }
        let items = mail.main.len() + mail.in_runs;
        if mail.timed.is_empty() {
            self.collect_main(mail);
        } else {
            self.collect_timed(mail);
        }
        self.tail.borrow_mut().extend(mail.tail.drain(..));
        for message in mail.messages.drain(..) {
            match message {
                Message::Make(make) => {
                    // Counted when the message was accepted.
                    let runnable = make(&self.shared);
                    if self.observer.records() {
                        self.observer.spawned(runnable.metadata().id_halves());
                    }
                    run_queue::push(runnable);
                }
                Message::Unbind(key) => self.unbind(key),
                Message::Timer(home, key, away) if home == self.timers.home() => {
                    self.remove_timer(key, away);
                }
                Message::Timer(..) => {}
            }
        }
        self.observer.collected(self);
        items
    }

    /// Queues tasks and runs of closures.
    fn collect_main(&self, mail: &mut Mail) {
        run_queue::with(|queue| {
            let mut tasks = mail.main.drain(..);
            let mut taken = 0;
            queue.count_closures(std::mem::take(&mut mail.in_runs));
            for (before, closures) in mail.runs.drain(..) {
                queue.extend(tasks.by_ref().take(before - taken));
                taken = before;
                queue.push_run(closures);
            }
            queue.extend(tasks);
        });
    }

    /// Queues closures that arm timers: in order of submission, unless the queue is long.
    #[cold]
    fn collect_timed(&self, mail: &mut Mail) {
        if run_queue::len() + mail.main.len() + mail.in_runs > LONG_QUEUE {
            let timed = mail.timed.drain(..).map(|(_, runnable)| runnable);
            self.timed.borrow_mut().extend(timed);
            return self.collect_main(mail);
        }
        let in_runs = std::mem::take(&mut mail.in_runs);
        let mut others = mail.main.drain(..);
        let mut runs = mail.runs.drain(..);
        let (mut taken, mut runs_taken) = (0, 0);
        run_queue::with(|queue| {
            queue.count_closures(in_runs);
            for (
                Before {
                    items,
                    runs: to_take,
                },
                runnable,
            ) in mail.timed.drain(..)
            {
                for (before, closures) in runs.by_ref().take(to_take - runs_taken) {
                    queue.extend(others.by_ref().take(before - taken));
                    taken = before;
                    queue.push_run(closures);
                }
                queue.extend(others.by_ref().take(items - taken));
                (taken, runs_taken) = (items, to_take);
                queue.push(runnable);
            }
            for (before, closures) in runs {
                queue.extend(others.by_ref().take(before - taken));
                taken = before;
                queue.push_run(closures);
            }
            queue.extend(others);
        });
    }

    /// Queues a closure that was submitted on this thread, past an open gate; see [`RunQueue::push_closure`].
    pub(crate) fn push_closure(
        &self,
        join: impl FnOnce(RunPlaces<'_, Box<dyn Run>>) -> Option<Box<dyn Run>>,
    ) {
        self.shared.place.counters.accept_local();
        run_queue::with(|queue| queue.push_closure(join));
    }

    /// Removes a timer that was dropped or reset elsewhere.
    fn remove_timer(&self, key: queue::TimerKey, away: Away) {
        let waker = self.timers.cancel(key);
        let panics = &self.shared.panics;
        match away {
            Away::Dropped => panics.drop(PanicSite::Waker, None, waker),
            Away::Reset => panics.wake_all(waker),
        }
    }

    /// Wakes the tasks of due timers.
    pub(crate) fn wake_timed(&self, woken: &mut Vec<Waker>) {
        self.shared.gauges.timers_fired.add(woken.len() as u64);
        if self.observer.is_on() {
            self.observer.timers_fired(woken.len());
        }
        self.wake_into(Waking::Timer, woken);
    }

    /// Wakes tasks into the queue that `why` selects.
    fn wake_into(&self, why: Waking, woken: &mut Vec<Waker>) {
        // Calls nest: a task that is dropped may wake the next waiter of its socket.
        let outer = self.set_waking(why);
        self.shared.panics.wake_all(woken.drain(..));
        self.set_waking(outer);
        self.observer.woken(self);
    }

    /// Wakes tasks whose descriptors are ready: I/O work.
    pub(crate) fn wake_ready(&self, ready: &mut Vec<Waker>) {
        self.wake_into(Waking::Io, ready);
    }

    /// Has `observer` told when the shutdown of this loop begins, on this thread and before the loop can come
    /// to rest.
    pub(crate) fn tell_at_shutdown(&self, observer: Weak<dyn AtShutdown>) {
        let mut observers = self.shared.at_shutdown.lock();
        observers.retain(|one| one.strong_count() > 0);
        observers.push(observer);
    }

    /// Tells what waits for it that the shutdown begins.
    pub(crate) fn note_shutdown(&self) {
        let observers = std::mem::take(&mut *self.shared.at_shutdown.lock());
        for observer in observers.iter().filter_map(Weak::upgrade) {
            observer.shutdown_began(self.shared.index);
        }
    }

    /// Closes every channel of the loop; tasks that wait for one are woken and get an error.
    pub(crate) fn close_channels(&self) {
        if let Some(table) = &self.shared.port.table {
            self.leftovers.borrow_mut().closed = true;
            self.update_flags();
            let mut woken = Vec::new();
            let closed = table.close(&mut woken);
            self.shared.place.counters.channels_closed(closed);
            self.wake_ready(&mut woken);
        }
    }

    /// Closes every channel at the end, and polls the tasks that waited for one once more.
    pub(crate) fn close_channels_at_end(&self) {
        self.close_channels();
        self.run_io_once();
    }

    /// Notes that an operation of the task that is polled has failed: its channel is closed.
    pub(crate) fn note_interrupted(&self, what: Option<WaitsFor>) {
        let mut leftovers = self.leftovers.borrow_mut();
        if let (true, Some(id)) = (leftovers.closed, this_thread::task()) {
            if leftovers.interrupt(id, what) {
                self.shared.place.counters.channel_interrupted();
            }
        }
    }

    /// Notes what tasks wait for, before they are cancelled.
    pub(crate) fn note_waits(&self) {
        let mut leftovers = self.leftovers.borrow_mut();
        self.timers
            .for_each_waker(|waker| leftovers.sleeps(waker.data().addr()));
        for waker in self.timers.scheduled() {
            leftovers.note_scheduled(waker.data().addr());
        }
    }

    /// Has every scheduled closure look at the shutdown that has begun, and give itself up.
    pub(crate) fn wake_scheduled(&self) {
        for waker in self.timers.scheduled() {
            waker.wake();
        }
    }

    /// Drops the tasks that gave themselves up.
    pub(crate) fn drop_given_up(&self) {
        let given_up = self.given_up.take();
        self.set_waking(Waking::ToDrop);
        for waker in given_up {
            // The task's own waker: it leads to `push_wake`.
            waker.wake();
        }
        self.set_waking(Waking::Task);
        for runnable in self.to_drop.take() {
            self.cancel(runnable, CancelReason::Unscheduled);
        }
    }

    /// Cancels a task: its future is dropped here.
    pub(crate) fn cancel(&self, runnable: Runnable, reason: CancelReason) {
        let address = runnable.metadata().target().address;
        let reason = if self.is_to_be_aborted(&runnable) {
            CancelReason::Aborted
        } else if self.leftovers.borrow().was_scheduled(address) {
            CancelReason::Unscheduled
        } else {
            reason
        };
        let id = runnable.metadata().id_halves();
        let _observed = self.observer.begin_cancel(id);
        cancel_task(runnable, reason);
    }

    /// Whether a handle has asked for the end of a task that is about to run.
    fn is_to_be_aborted(&self, runnable: &Runnable) -> bool {
        let mut requests = self.requests.borrow_mut();
        !requests.is_empty() && requests.look(runnable.metadata().target())
    }

    /// Serves a request of a task of this loop, perhaps while it is polled.
    fn serve(&self, request: Request) {
        let address = request.target.address;
        self.requests.borrow_mut().add(request);
        self.update_flags();
        let waker = self.live.borrow_mut().find(address);
        if let Some(waker) = waker {
            waker.wake(); // one of our own: its turn comes, and it is looked at then
        }
    }

    /// Aborts a task of this loop that has not ended; on the loop's own thread.
    pub(crate) fn abort(&self, target: AbortTarget) {
        let abort = || Request {
            target,
            wish: Wish::Abort,
        };
        // A task in its first poll is not in the table yet, and nothing may wake it: the loop serves the
        // request again after the poll.
        let waits = self.live.borrow_mut().find(target.address).is_some();
        self.serve(abort());
        if !waits {
            self.shared.post_request(abort());
        }
    }

    /// Has the end of a task told that has not ended; on the loop's own thread.
    pub(crate) fn watch(&self, target: AbortTarget, flag: Arc<EndFlag>) {
        let wish = Wish::Watch(flag);
        self.requests.borrow_mut().add(Request { target, wish });
        self.update_flags();
    }

    /// Takes what handles on other threads have asked; between two tasks.
    #[cold]
    pub(crate) fn take_requests(&self) {
        let mut guard = self.shared.inbox.lock();
        let requests = guard.edit(|life| std::mem::take(&mut life.requests));
        drop(guard);
        for request in requests {
            self.serve_now(request);
        }
    }

    /// Serves a request between two tasks. A task that waits is cancelled here and now: what its canceller
    /// submits next comes after that.
    fn serve_now(&self, request: Request) {
        let address = request.target.address;
        self.requests.borrow_mut().add(request);
        self.update_flags();
        let waker = self.live.borrow_mut().find(address);
        let outer = self.set_waking(Waking::ToDrop);
        waker.into_iter().for_each(Waker::wake);
        self.set_waking(outer);
        let runnable = self.to_drop.borrow_mut().pop_back();
        match runnable {
            // It is queued, or about to be: it is looked at when its turn comes.
            None => {}
            Some(runnable) if self.is_to_be_aborted(&runnable) => {
                let _observed = self.observer.begin_cancel(runnable.metadata().id_halves());
                cancel_task(runnable, CancelReason::Aborted);
            }
            // It is only watched, or another task has the address by now: a poll without a reason.
            Some(runnable) => run_queue::push(runnable),
        }
    }

    /// Ends the requests of tasks that have ended, if no task is queued.
    pub(crate) fn settle_requests(&self) {
        if self.requests.borrow().is_empty() || self.queued() > 0 || self.shared.inbox.has_mail() {
            return;
        }
        let mut live = self.live.borrow_mut();
        let lives = live.addresses();
        self.requests
            .borrow_mut()
            .retain(|address| lives.contains_key(&address));
        drop(live);
        self.update_flags();
    }

    /// Notes that a task has ended: a handle may wait for that, its channel may have been closed, or it is
    /// listed.
    pub(crate) fn note_end(&self, end: TaskEnd, origin: LeftKind, waker: &Waker) {
        self.observer.task_ended(this_thread::last_task());
        self.requests.borrow_mut().ended(waker.data().addr());
        self.note_interrupted_end(end, origin);
        self.update_flags();
    }

    /// Notes the end of a task or closure whose channel may have been closed.
    #[cold]
    fn note_interrupted_end(&self, end: TaskEnd, origin: LeftKind) {
        let mut leftovers = self.leftovers.borrow_mut();
        let interrupted = leftovers.take_interrupted(this_thread::last_task());
        if let (Some(what), TaskEnd::Completed) = (interrupted, end) {
            leftovers.add(origin.waiting_for(what));
            self.shared.place.counters.interrupted();
        }
    }

    /// Notes that a task was cancelled, and why.
    pub(crate) fn note_cancelled(&self, reason: CancelReason, origin: LeftKind, waker: &Waker) {
        let address = waker.data().addr();
        match reason {
            CancelReason::Aborted => self.shared.place.counters.aborted(),
            CancelReason::Unscheduled => self.shared.place.counters.unscheduled(),
            CancelReason::Ended => {
                let mut leftovers = self.leftovers.borrow_mut();
                let interrupted = leftovers.take_interrupted(this_thread::last_task());
                let what = interrupted.unwrap_or_else(|| leftovers.waits(address));
                leftovers.add(origin.clone().waiting_for(what));
            }
            CancelReason::Refused => return,
        }
        self.note_end(TaskEnd::Cancelled, origin, waker);
    }

    /// Sets the flags that the paths of every task check.
    fn update_flags(&self) {
        let requests = self.requests.borrow();
        let closed = self.leftovers.borrow().closed;
        self.noting.set(closed || !requests.is_empty());
        self.special.set(self.observer.is_on() || self.noting.get());
    }

    /// Drops a loop-bound value whose last handle was dropped.
    fn unbind(&self, key: ArenaKey) {
        let value = self.arena.borrow_mut().remove(key);
        self.shared.panics.drop(PanicSite::LoopBound, None, value);
    }

    /// The next task of the run queue; `None` if there is none, or if closures come first.
    #[inline]
    pub(crate) fn next_task(&self) -> Option<Runnable> {
        run_queue::pop()
    }

    /// Runs the closures that are next in the run queue, as many as may run before the clock has to be read;
    /// returns whether it has to be read now, or `None` if there are none.
    pub(crate) fn run_closures(&self, shown: u8) -> Option<bool> {
        let mut run = run_queue::with(RunQueue::take_run)?;
        let must_read = run.begin(shown);
        run_queue::with(|queue| queue.put_back(run));
        self.observer.run_ended();
        Some(must_read)
    }

    /// Counts a task; returns whether the clock has to be read, or the inbox no longer shows `shown`.
    #[inline]
    pub(crate) fn count_task(&self, shown: u8) -> bool {
        self.timers.count_task() || self.shared.place.shown.get() != shown
    }

    /// Runs what was taken out of a queue: a task once, closures all.
    pub(crate) fn run_queued(&self, queued: Queued) {
        match queued {
            Queued::Task(runnable) => self.run_one(runnable, QueueName::Tasks),
            Queued::Closures(mut run) => {
                while run.len() > 0 {
                    run.begin(self.shared.place.shown.get());
                }
            }
        }
    }

    /// Calls a closure, as a task of its own.
    #[inline]
    pub(crate) fn run_closure(&self, call: impl FnOnce(), location: Caller) {
        self.polls.set(self.polls.get() + 1);
        budget::reset();
        self.shared.place.counters.begin();
        let id = TaskId::next();
        let start = match self.observer.is_on() {
            true => self.observer.begin_closure(id, location, self),
            false => None,
        };
        this_thread::enter_closure(id);
        let result = contain(call);
        this_thread::forget_own_waker();
        // Counted before it is reported: the handler of panics may read the counters.
        let end = match &result {
            Ok(()) => TaskEnd::Completed,
            Err(_) => TaskEnd::Panicked,
        };
        self.shared.place.counters.end(end);
        if self.noting.get() {
            self.note_interrupted_end(end, LeftKind::new(location, None));
        }
        if let Err(payload) = result {
            let panics = &self.shared.panics;
            panics.report(PanicSite::Task, payload, Some(location));
        }
        if self.observer.is_on() {
            self.observer.end(start, self);
        }
    }

    /// Drops a closure that has not begun, or a future: its loop has ended.
    pub(crate) fn drop_unbegun<E>(&self, errand: E, kind: LeftKind, location: Caller) {
        match contain_drop(errand) {
            Ok(()) => {
                self.dropped_unpolled(TaskEnd::Cancelled);
                self.leftovers.borrow_mut().add(kind);
            }
            Err(payload) => {
                self.dropped_unpolled(TaskEnd::Panicked);
                let panics = &self.shared.panics;
                panics.report(PanicSite::Destructor, payload, Some(location));
            }
        }
    }

    /// The next task of a kind.
    pub(crate) fn next_of(&self, kind: QueueKind) -> Option<Runnable> {
        self.queue(kind).borrow_mut().pop_front()
    }

    /// How many tasks of a kind are queued.
    pub(crate) fn queued_of(&self, kind: QueueKind) -> usize {
        self.queue(kind).borrow().len()
    }

    fn queue(&self, kind: QueueKind) -> &RefCell<VecDeque<Runnable>> {
        match kind {
            QueueKind::Io => &self.io,
            QueueKind::Timed => &self.timed,
            QueueKind::Tail => &self.tail,
        }
    }

    /// Runs, once each, the tasks that readiness has woken: at the end, when no turn follows.
    pub(crate) fn run_io_once(&self) {
        for _ in 0..self.queued_of(QueueKind::Io) {
            if let Some(runnable) = self.next_of(QueueKind::Io) {
                self.run_one(runnable, QueueName::Io);
            }
        }
        if self.observer.is_on() {
            self.observer.end_turn();
        }
    }

    /// Any queued task or closure at all.
    pub(crate) fn next_of_any(&self) -> Option<Queued> {
        if let Some(run) = run_queue::with(RunQueue::take_run) {
            return Some(Queued::Closures(run));
        }
        self.next_task()
            .or_else(|| self.next_of(QueueKind::Io))
            .or_else(|| self.next_of(QueueKind::Timed))
            .or_else(|| self.next_of(QueueKind::Tail))
            .map(Queued::Task)
    }

    /// How many tasks and closures are queued on this side of the inbox.
    pub(crate) fn queued(&self) -> usize {
        let kinds = [QueueKind::Io, QueueKind::Timed, QueueKind::Tail];
        let others: usize = kinds.map(|kind| self.queued_of(kind)).into_iter().sum();
        debug_assert!(this_thread::is_home(self.shared.number.get()));
        run_queue::len() + others
    }

    /// Frees the memory of a past burst; returns whether none is left that could be freed later.
    pub(crate) fn shrink(&self) -> bool {
        let queues = [&self.io, &self.timed, &self.tail];
        let are_small = queues.map(|queue| shrink(&mut queue.borrow_mut()));
        let is_small = run_queue::with(|queue| queue.shrink(KEPT_CAPACITY));
        let is_live_small = self.live.borrow_mut().shrink(KEPT_CAPACITY);
        are_small == [true; 3] && is_small && is_live_small
    }

    /// Runs a task once, which was taken out of this queue.
    pub(crate) fn run_one(&self, runnable: Runnable, queue: QueueName) {
        self.run(runnable, queue);
        this_thread::forget_own_waker();
    }

    /// Runs a task of the run queue once, and another one after it: the caller has the thread forget the
    /// last one.
    #[inline]
    pub(crate) fn run_next(&self, runnable: Runnable) {
        self.run(runnable, QueueName::Tasks);
    }

    #[inline]
    fn run(&self, runnable: Runnable, queue: QueueName) {
        self.polls.set(self.polls.get() + 1);
        budget::reset();
        let meta = runnable.metadata();
        this_thread::set_task(meta.id_halves(), meta.address());
        if self.special.get() {
            self.run_special(runnable, queue);
        } else {
            runnable.run();
        }
    }

    #[cold]
    fn run_special(&self, runnable: Runnable, queue: QueueName) {
        let id = runnable.metadata().id_halves();
        let start = self.observer.begin(queue, id, self);
        if self.is_to_be_aborted(&runnable) {
            cancel_task(runnable, CancelReason::Aborted);
            return self.observer.end(None, self);
        }
        if self.noting.get() || self.observer.lists_tasks() {
            run_specially(runnable, SpecialPoll::NoteEnd);
        } else if self.observer.wants_place() {
            run_specially(runnable, SpecialPoll::Shown);
        } else {
            runnable.run();
        }
        self.observer.end(start, self);
    }

    /// How many tasks are in each queue; closures count until their run is worked off.
    fn lengths(&self) -> Lengths {
        let (tasks, closures) = run_queue::with(|queue| queue.lengths());
        let kinds = [QueueKind::Io, QueueKind::Timed, QueueKind::Tail];
        let [io, timed, tail] = kinds.map(|kind| self.queued_of(kind));
        [tasks, closures, io, timed, tail]
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Copies the figures that are counted in cells to the gauges: once per turn, after its polls, and at the
    /// end, so that counting is one instruction.
    pub(crate) fn publish(&self) {
        self.shared.gauges.polls.set(self.polls.get());
        self.shared
            .gauges
            .woken_here
            .set(run_queue::with(|queue| queue.woken));
        if self.observer.is_on() {
            self.publish_turn();
        }
    }

    /// Publishes what the loop alone knows, for a dump, and notes the end of the turn's polls.
    #[cold]
    #[inline(never)]
    fn publish_turn(&self) {
        if let Some(tracker) = &self.shared.tracker {
            tracker.publish(Turn {
                queued: self.lengths(),
                timers: self.timers.len(),
                next_deadline: self.timers.next_deadline(),
            });
        }
        self.observer.end_turn();
    }

    /// Notes that a task is dropped that was never polled.
    pub(crate) fn dropped_unpolled(&self, end: TaskEnd) {
        self.shared.place.counters.begin();
        self.shared.place.counters.end(end);
    }

    pub(crate) fn enter_live(&self, waker: Waker) -> LiveKey {
        self.live.borrow_mut().insert(waker)
    }

    pub(crate) fn leave_live(&self, key: LiveKey) {
        let waker = self.live.borrow_mut().remove(key);
        drop(waker);
    }

    /// Takes the wakers of all live tasks out of the table: nothing will be polled any more.
    pub(crate) fn take_live(&self) -> impl Iterator<Item = Waker> + use<> {
        self.live.borrow_mut().take_all()
    }
}

impl Drop for Local {
    /// Cancels what is left if the loop did not come to its end: it was dropped while the thread-locals of
    /// its thread are destroyed, and no loop can run there any more. Handles resolve all the same.
    fn drop(&mut self) {
        if self.shared.is_sealed() || self.is_left.get() {
            return;
        }
        let outer = run_queue::replace(self.away.take());
        let mut mail = Mail::new();
        // What destructors submit is rejected, and what was on its way is here by the time the gate is
        // closed.
        let mut guard = self.shared.inbox.lock();
        guard.edit(|life| life.close(EndCause::Failed));
        drop(guard);
        loop {
            self.take_live().for_each(Waker::wake);
            self.collect(&mut mail);
            match self.next_of_any() {
                Some(Queued::Task(runnable)) => cancel_task(runnable, CancelReason::Ended),
                Some(Queued::Closures(mut run)) => run.discard(&self.shared.panics),
                None => break,
            }
        }
        run_queue::replace(outer);
        // Its tasks have ended where the loop could not be found any more.
        if let Some(tracker) = &self.shared.tracker {
            tracker.clear();
        }
    }
}

impl Queues for Local {
    /// How many tasks are in each queue; closures count until their run is worked off.
    fn lengths(&self) -> Lengths {
        Local::lengths(self)
    }

    fn is_armed(&self, key: queue::TimerKey) -> bool {
        self.timers.is_armed(key)
    }
}

/// Frees the memory of an empty queue that was long; returns whether it is not long.
fn shrink(queue: &mut VecDeque<Runnable>) -> bool {
    if queue.capacity() > KEPT_CAPACITY && queue.is_empty() {
        *queue = VecDeque::new();
    }
    queue.capacity() <= KEPT_CAPACITY
}

/// Cancels a task, on its home thread: its future is dropped, and its handle resolves to cancelled.
pub(crate) fn cancel_task(runnable: Runnable, reason: CancelReason) {
    let outer = this_thread::save_poll();
    this_thread::set_task(runnable.metadata().id_halves(), 0);
    run_specially(runnable, SpecialPoll::Cancel(reason));
    drop(outer);
}

/// Runs a task whose poll differs from others.
fn run_specially(runnable: Runnable, special: SpecialPoll) {
    this_thread::set_special_poll(Some(special));
    runnable.run();
    // It is still set if there was nothing to poll.
    this_thread::set_special_poll(None);
}
