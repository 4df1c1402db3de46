//! The half of a loop that only its own thread can reach.
//!
//! - `!Send` by its `Rc` and cells: the compiler keeps it on the loop thread.
//! - A field is borrowed for one push, pop or swap; no borrow is alive while user code runs (poll,
//!   wake, drop, hook, closure).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use crate::event_loop::arena::{Arena, ArenaKey};
use crate::event_loop::budget;
use crate::event_loop::counters::TaskEnd;
use crate::event_loop::inbox::{KEPT_CAPACITY, Lane};
use crate::event_loop::live::{Live, LiveKey};
use crate::event_loop::shared::{Mail, Message, Runnable, Shared};
use crate::panic::PanicSite;
use crate::sync::{self, Arc, Weak};
use crate::time::queue;
use crate::time::timers::{Away, HomeId, Timers};
use crate::trace;

/// The loop thread's half.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    /// The group, which its loop threads keep alive.
    pub(crate) group: Arc<dyn Any + Send + Sync>,
    /// Tasks to run.
    run: RefCell<VecDeque<Runnable>>,
    /// Tasks woken by readiness, and not run yet.
    io: RefCell<VecDeque<Runnable>>,
    /// Tasks whose timers have fired, and closures that were scheduled, not run yet.
    timed: RefCell<VecDeque<Runnable>>,
    /// Tasks for the end of the iteration.
    tail: RefCell<VecDeque<Runnable>>,
    /// Selects the queue for tasks that are woken on this thread.
    waking: Cell<Waking>,
    /// Tasks that gave themselves up, to be dropped by the loop.
    to_drop: RefCell<VecDeque<Runnable>>,
    /// The wakers of tasks that give themselves up.
    pub(crate) given_up: RefCell<Vec<Waker>>,
    pub(crate) timers: Timers,
    live: RefCell<Live>,
    pub(crate) arena: RefCell<Arena>,
    /// Told when the shutdown begins; what has ended is dropped when the next one is added.
    at_shutdown: RefCell<Vec<Weak<dyn AtShutdown>>>,
    /// Runnables run, ever; a change of it is activity.
    polls: Cell<u64>,
    /// Tasks woken on this thread, ever.
    woken: Cell<u64>,
    /// Whether polls are timed.
    measure_time: bool,
}

/// A queue of more tasks is long: closures that arm timers do not wait behind it.
const LONG_QUEUE: usize = 64;

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
}

/// Something that is told when the shutdown of a loop begins.
pub(crate) trait AtShutdown: Send + Sync {
    /// The shutdown of the loop with this index has begun: called on its thread, with nothing held.
    fn shutdown_began(&self, index: usize);
}

impl Local {
    pub(crate) fn new(shared: Arc<Shared>, group: Arc<dyn Any + Send + Sync>) -> Local {
        let measure_time = shared.config.measure_time;
        Local {
            timers: Timers::new(
                HomeId::register(Arc::<Shared>::downgrade(&shared)),
                shared.config.clock.clone(),
            ),
            shared,
            group,
            run: RefCell::default(),
            io: RefCell::default(),
            timed: RefCell::default(),
            tail: RefCell::default(),
            waking: Cell::new(Waking::Task),
            to_drop: RefCell::default(),
            given_up: RefCell::default(),
            live: RefCell::default(),
            arena: RefCell::default(),
            at_shutdown: RefCell::default(),
            polls: Cell::new(0),
            woken: Cell::new(0),
            measure_time,
        }
    }

    /// Queues a task that was woken on this thread.
    #[inline]
    pub(crate) fn push_wake(&self, runnable: Runnable) {
        self.woken.set(self.woken.get() + 1);
        let queue = match self.waking.get() {
            Waking::Task => &self.run,
            Waking::Io => &self.io,
            Waking::Timer => &self.timed,
            Waking::ToDrop => &self.to_drop,
        };
        queue.borrow_mut().push_back(runnable);
    }

    /// Queues a task that was submitted on this thread, past an open gate.
    pub(crate) fn push_new(&self, runnable: Runnable, lane: Lane) {
        match lane {
            Lane::Main => self.push_main(runnable),
            Lane::Tail => {
                self.shared.counters.accept_local();
                self.tail.borrow_mut().push_back(runnable);
            }
            // In order of submission, unless the queue is long.
            Lane::Timed if self.run.borrow().len() <= LONG_QUEUE => self.push_main(runnable),
            Lane::Timed => {
                self.shared.counters.accept_local();
                self.timed.borrow_mut().push_back(runnable);
            }
        }
    }

    /// As [`Local::push_new`], to the main lane.
    #[inline]
    pub(crate) fn push_main(&self, runnable: Runnable) {
        self.shared.counters.accept_local();
        self.run.borrow_mut().push_back(runnable);
    }

    /// Takes the mail in: items to their queues, messages done at once.
    pub(crate) fn collect(&self, mail: &mut Mail) {
        if !self.shared.inbox.drain(mail) {
            return;
        }
        if mail.timed.is_empty() {
            self.run.borrow_mut().extend(mail.main.drain(..));
        } else {
            self.collect_timed(mail);
        }
        self.tail.borrow_mut().extend(mail.tail.drain(..));
        for message in mail.messages.drain(..) {
            match message {
                Message::Make(make) => {
                    // Counted when the message was accepted.
                    let runnable = make(&self.shared);
                    self.run.borrow_mut().push_back(runnable);
                }
                Message::Unbind(key) => self.unbind(key),
                Message::Timer(key, away) => self.remove_timer(key, away),
            }
        }
    }

    /// Queues closures that arm timers: in order of submission, unless the queue is long.
    #[cold]
    fn collect_timed(&self, mail: &mut Mail) {
        let mut run = self.run.borrow_mut();
        let timed = mail.timed.drain(..);
        if run.len() + mail.main.len() > LONG_QUEUE {
            run.extend(mail.main.drain(..));
            let timed = timed.map(|(_, runnable)| runnable);
            self.timed.borrow_mut().extend(timed);
            return;
        }
        let mut others = mail.main.drain(..);
        let mut taken = 0;
        for (before, runnable) in timed {
            run.extend(others.by_ref().take(before - taken));
            taken = before;
            run.push_back(runnable);
        }
        run.extend(others);
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
        self.wake_into(Waking::Timer, woken);
    }

    /// Wakes tasks into the queue that `why` selects.
    fn wake_into(&self, why: Waking, woken: &mut Vec<Waker>) {
        // Calls nest: a task that is dropped may wake the next waiter of its socket.
        let outer = self.waking.replace(why);
        self.shared.panics.wake_all(woken.drain(..));
        self.waking.set(outer);
    }

    /// Wakes tasks whose descriptors are ready: I/O work.
    pub(crate) fn wake_ready(&self, ready: &mut Vec<Waker>) {
        self.wake_into(Waking::Io, ready);
    }

    /// Has `observer` told when the shutdown of this loop begins, on this thread and before the loop can come
    /// to rest.
    pub(crate) fn tell_at_shutdown(&self, observer: Weak<dyn AtShutdown>) {
        let mut observers = self.at_shutdown.borrow_mut();
        observers.retain(|one| one.strong_count() > 0);
        observers.push(observer);
    }

    /// Tells what waits for it that the shutdown begins.
    pub(crate) fn note_shutdown(&self) {
        let observers = self.at_shutdown.take();
        for observer in observers.iter().filter_map(Weak::upgrade) {
            observer.shutdown_began(self.shared.index);
        }
    }

    /// Closes every channel of the loop; tasks that wait for one are woken and get an error.
    pub(crate) fn close_channels(&self) {
        if let Some(table) = &self.shared.port.table {
            let mut woken = Vec::new();
            let closed = table.close(&mut woken);
            self.shared.counters.channels_closed(closed);
            self.wake_ready(&mut woken);
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
        self.waking.set(Waking::ToDrop);
        for waker in given_up {
            // The task's own waker: it leads to `push_wake`.
            waker.wake();
        }
        self.waking.set(Waking::Task);
        let to_drop = self.to_drop.take();
        drop(to_drop);
    }

    /// Drops a loop-bound value whose last handle was dropped.
    fn unbind(&self, key: ArenaKey) {
        let value = self.arena.borrow_mut().remove(key);
        self.shared.panics.drop(PanicSite::LoopBound, None, value);
    }

    pub(crate) fn next_task(&self) -> Option<Runnable> {
        self.run.borrow_mut().pop_front()
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
                self.run_one(runnable);
            }
        }
    }

    /// Any queued task at all.
    pub(crate) fn next_of_any(&self) -> Option<Runnable> {
        self.next_task()
            .or_else(|| self.next_of(QueueKind::Io))
            .or_else(|| self.next_of(QueueKind::Timed))
            .or_else(|| self.next_of(QueueKind::Tail))
    }

    /// How many tasks are queued on this side of the inbox.
    pub(crate) fn queued(&self) -> usize {
        let kinds = [QueueKind::Io, QueueKind::Timed, QueueKind::Tail];
        let others: usize = kinds.map(|kind| self.queued_of(kind)).into_iter().sum();
        self.run.borrow().len() + others
    }

    /// Frees the memory of a past burst, before the loop sleeps.
    pub(crate) fn shrink(&self) {
        for queue in [&self.run, &self.io, &self.timed, &self.tail] {
            let mut queue = queue.borrow_mut();
            if queue.capacity() > KEPT_CAPACITY && queue.is_empty() {
                *queue = VecDeque::new();
            }
        }
        self.live.borrow_mut().shrink(KEPT_CAPACITY);
        self.arena.borrow_mut().shrink(KEPT_CAPACITY);
    }

    /// Runs a task once.
    #[inline]
    pub(crate) fn run_one(&self, runnable: Runnable) {
        self.polls.set(self.polls.get() + 1);
        budget::reset();
        if self.measure_time {
            self.run_and_measure(runnable);
        } else {
            runnable.run();
        }
    }

    #[cold]
    fn run_and_measure(&self, runnable: Runnable) {
        let start = sync::now();
        runnable.run();
        let time = start.elapsed();
        self.shared.gauges.polled(time);
        let config = &self.shared.config;
        trace::polled(self.shared.index, config.slow_poll, time);
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Copies the figures that are counted in cells to the gauges: once per turn and at the end, so
    /// that counting is one instruction.
    pub(crate) fn publish(&self) {
        self.shared.gauges.polls.set(self.polls.get());
        self.shared.gauges.woken_here.set(self.woken.get());
    }

    /// Notes that a task leaves the queue for the first time.
    pub(crate) fn begin(&self) {
        self.shared.counters.begin();
        if let Some(bound) = &self.shared.bound {
            bound.release();
        }
    }

    /// Notes that a task is dropped that was never polled.
    pub(crate) fn dropped_unpolled(&self, end: TaskEnd) {
        self.begin();
        self.shared.counters.end(end);
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
