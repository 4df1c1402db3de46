//! The half of a loop that only its own thread can reach.
//!
//! - `!Send` by its `Rc` and cells: the compiler keeps it on the loop thread.
//! - A field is borrowed for one push, pop or swap; no borrow is alive while user code runs (poll,
//!   wake, drop, hook, closure).
//! - `open` mirrors the inbox's gate. Once the loop runs only its own thread closes that gate, so
//!   there this cell is as good as the lock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use crate::event_loop::arena::{Arena, Key};
use crate::event_loop::budget;
use crate::event_loop::counters::End;
use crate::event_loop::inbox::Lane;
use crate::event_loop::shared::{Mail, Notice, Shared};
use crate::group::core::GroupCore;
use crate::panic::{PanicSite, contain, contain_drop, discard};
use crate::sync::{self, Arc};
use crate::task::Runnable;
use crate::task::live::{Live, LiveKey};
use crate::time::queue;
use crate::time::timers::{Away, HomeId, Timers};
use crate::trace;

/// The loop thread's half.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    /// The group, kept alive by its loop threads; `loopgroup::spawn` finds its siblings here.
    pub(crate) core: Arc<GroupCore>,
    /// Tasks to run.
    run: RefCell<VecDeque<Runnable>>,
    /// Tasks woken by readiness in this turn.
    io: RefCell<VecDeque<Runnable>>,
    /// Tasks whose timers fired in this turn.
    timed: RefCell<VecDeque<Runnable>>,
    /// Tasks for the end of the iteration.
    tail: RefCell<VecDeque<Runnable>>,
    /// Which queue a task woken on this thread goes to.
    waking: Cell<Waking>,
    /// Tasks that gave themselves up, to be dropped by the loop.
    doomed: RefCell<VecDeque<Runnable>>,
    /// The wakers of tasks that give themselves up.
    pub(crate) given_up: RefCell<Vec<Waker>>,
    /// Scheduled closures are cancelled from here on.
    pub(crate) closing: Cell<bool>,
    pub(crate) timers: Timers,
    live: RefCell<Live>,
    pub(crate) arena: RefCell<Arena>,
    /// Whether new tasks are let in.
    open: Cell<bool>,
    /// Runnables run, ever; a change of it is activity.
    polls: Cell<u64>,
    /// Tasks woken on this thread, ever.
    woken: Cell<u64>,
    /// Whether polls are timed.
    measure_time: bool,
}

/// Why a task is woken, which decides where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waking {
    /// Something happened to it.
    Task,
    /// The reactor found something ready: I/O work.
    Io,
    /// Its timer fired: it runs in this very turn.
    Timer,
    /// It is to be dropped.
    Doomed,
}

impl Local {
    pub(crate) fn new(shared: Arc<Shared>, core: Arc<GroupCore>) -> Local {
        let measure_time = shared.config.measure_time;
        Local {
            timers: Timers::new(HomeId::of_loop(&shared), shared.config.clock.now()),
            shared,
            core,
            run: RefCell::default(),
            io: RefCell::default(),
            timed: RefCell::default(),
            tail: RefCell::default(),
            waking: Cell::new(Waking::Task),
            doomed: RefCell::default(),
            given_up: RefCell::default(),
            closing: Cell::new(false),
            live: RefCell::default(),
            arena: RefCell::default(),
            open: Cell::new(true),
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
            Waking::Doomed => &self.doomed,
        };
        queue.borrow_mut().push_back(runnable);
    }

    /// Queues a task that was submitted on this thread, past an open gate.
    pub(crate) fn push_new(&self, runnable: Runnable, lane: Lane) {
        match lane {
            Lane::Main => self.push_main(runnable),
            Lane::Tail => {
                self.shared.counters.accept_at_home();
                self.tail.borrow_mut().push_back(runnable);
            }
        }
    }

    /// As [`Local::push_new`], to the main lane.
    #[inline]
    pub(crate) fn push_main(&self, runnable: Runnable) {
        self.shared.counters.accept_at_home();
        self.run.borrow_mut().push_back(runnable);
    }

    /// Takes the mail in: items to their queues, messages done at once.
    pub(crate) fn collect(&self, mail: &mut Mail) {
        if !self.shared.inbox.drain(mail) {
            return;
        }
        self.run.borrow_mut().extend(mail.main.drain(..));
        self.tail.borrow_mut().extend(mail.tail.drain(..));
        for notice in mail.notices.drain(..) {
            match notice {
                Notice::Unbind(key) => self.unbind(key),
                Notice::Timer(key, away) => self.remove_timer(key, away),
            }
        }
    }

    /// Removes a timer that was dropped or reset elsewhere.
    fn remove_timer(&self, key: queue::Key, away: Away) {
        let waker = self.timers.cancel(key);
        // A foreign waker.
        let done = contain(|| match away {
            Away::Dropped => drop(waker),
            Away::Reset => waker.map_or((), Waker::wake),
        });
        if let Err(payload) = done {
            self.shared.report_panic(PanicSite::Waker, &*payload, None);
            discard(payload);
        }
    }

    /// Wakes the tasks of due timers, `limit` of them at most.
    pub(crate) fn fire_timers(&self, now: Instant, limit: usize, woken: &mut Vec<Waker>) {
        self.timers.collect_due(now, limit, woken);
        self.shared.gauges.timers_fired.add(woken.len() as u64);
        self.wake_all(Waking::Timer, woken);
    }

    /// Runs the tasks that timers have woken in this turn; returns how many there were.
    pub(crate) fn run_timed(&self) -> usize {
        self.run_all(&self.timed)
    }

    /// Runs the tail tasks of this iteration; what they queue belongs to the next.
    pub(crate) fn run_tail(&self) -> usize {
        self.run_all(&self.tail)
    }

    /// Runs what is in a queue now.
    fn run_all(&self, queue: &RefCell<VecDeque<Runnable>>) -> usize {
        let queued = queue.borrow().len();
        for _ in 0..queued {
            let runnable = queue.borrow_mut().pop_front();
            if let Some(runnable) = runnable {
                self.run_one(runnable);
            }
        }
        queued
    }

    /// Wakes everybody, to the queue that `why` leads to.
    fn wake_all(&self, why: Waking, woken: &mut Vec<Waker>) {
        self.waking.set(why);
        self.shared.wake_all(woken.drain(..));
        self.waking.set(Waking::Task);
    }

    /// Wakes whoever waited for what the selector found ready: I/O work.
    pub(crate) fn wake_ready(&self, ready: &mut Vec<Waker>) {
        self.wake_all(Waking::Io, ready);
    }

    /// Closes every channel of the loop; whoever waits for one is woken to an error.
    pub(crate) fn close_channels(&self) {
        if let Some(table) = &self.shared.port.table {
            let mut woken = Vec::new();
            let closed = table.close(&mut woken);
            self.shared.counters.channels_closed(closed);
            self.wake_ready(&mut woken);
        }
    }

    /// Has every scheduled closure look at the shutdown that begins, and give itself up.
    pub(crate) fn start_closing(&self) {
        self.closing.set(true);
        for waker in self.timers.scheduled() {
            waker.wake();
        }
    }

    /// Drops the tasks that gave themselves up.
    pub(crate) fn drop_given_up(&self) {
        let given_up = self.given_up.take();
        self.waking.set(Waking::Doomed);
        for waker in given_up {
            // The task's own waker: it leads to `push_wake`.
            waker.wake();
        }
        self.waking.set(Waking::Task);
        let doomed = self.doomed.take();
        drop(doomed);
    }

    /// Drops a loop-bound value whose last handle is gone.
    fn unbind(&self, key: Key) {
        let value = self.arena.borrow_mut().remove(key);
        if let Err(payload) = contain_drop(value) {
            self.shared
                .report_panic(PanicSite::LoopBound, &*payload, None);
            discard(payload);
        }
    }

    pub(crate) fn next_task(&self) -> Option<Runnable> {
        self.run.borrow_mut().pop_front()
    }

    /// Runs the tasks that readiness has woken; what it wakes meanwhile belongs to the next turn.
    pub(crate) fn run_io(&self) -> usize {
        self.run_all(&self.io)
    }

    /// Any queued task at all.
    pub(crate) fn next_of_any(&self) -> Option<Runnable> {
        self.next_task()
            .or_else(|| self.io.borrow_mut().pop_front())
            .or_else(|| self.timed.borrow_mut().pop_front())
            .or_else(|| self.tail.borrow_mut().pop_front())
    }

    /// How many tasks are queued on this side of the inbox.
    pub(crate) fn queued(&self) -> usize {
        let queues = [&self.run, &self.io, &self.timed, &self.tail];
        queues.iter().map(|queue| queue.borrow().len()).sum()
    }

    pub(crate) fn queued_io(&self) -> usize {
        self.io.borrow().len()
    }

    /// Runs a task once.
    #[inline]
    pub(crate) fn run_one(&self, runnable: Runnable) {
        self.polls.set(self.polls.get() + 1);
        budget::renew();
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
        trace::polled(&self.shared, time);
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Shows others what was counted: once per turn, so that counting is one instruction.
    pub(crate) fn publish(&self) {
        self.shared.gauges.polls.set(self.polls.get());
        self.shared.gauges.woken_here.set(self.woken.get());
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Refuses new tasks from here on, if none is waiting.
    pub(crate) fn refuse_new_if_empty(&self) -> bool {
        let empty = self.queued() == 0 && self.shared.inbox.refuse_new_if_empty();
        if empty {
            self.open.set(false);
        }
        empty
    }

    /// Refuses new tasks from here on, on this side and on the other.
    pub(crate) fn refuse_new(&self) {
        self.open.set(false);
        self.shared.inbox.refuse_new();
    }

    /// Notes that a task leaves the queue for the first time.
    pub(crate) fn begin(&self) {
        self.shared.counters.begin();
        if let Some(bound) = &self.shared.bound {
            bound.release();
        }
    }

    /// Notes that a task is dropped that was never polled.
    pub(crate) fn dropped_unpolled(&self, end: End) {
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
        self.live.borrow_mut().take()
    }
}
