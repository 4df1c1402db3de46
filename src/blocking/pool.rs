//! The threads of a blocking group and the queue between them.
//!
//! - A job is accepted in the critical section that queues it; the gate is looked at there.
//! - A thread is started for a job before the job is accepted: if the system refuses the thread, the
//!   job is handed back (or waits for a thread that exists).
//! - A worker is arriving, idle, running a job, or gone. Those that arrive or idle are enough for the
//!   queue, or there are `max_threads` of them.
//! - Whoever looks at the state steps the shutdown, workers and submitters alike; the last thread that
//!   leaves after the gate has closed makes the report.
//! - The timeout closes the gate and cancels the queued jobs also while every worker is busy: then the
//!   [keeper](super::keeper) watches the deadline.
//! - A thread cannot be stopped: the end waits for the jobs that run. The report tells how many of them the
//!   timeout found running.

use std::collections::VecDeque;
use std::io;
use std::panic::Location;
use std::time::{Duration, Instant};

use crate::blocking::WhenFull;
use crate::blocking::inner::{Inner, Look};
use crate::blocking::job::{self, Runnable};
use crate::error::{RejectReason, Rejected};
use crate::event_loop::counters::End;
use crate::event_loop::state::{State, StateCell};
use crate::event_loop::terms::Request;
use crate::report::{Cause, LoopReport};
use crate::sync::{self, Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, thread};
use crate::task::join::JoinHandle;
use crate::termination::{Termination, ThreadSlot};
use crate::this_thread;

/// How long a thread stays without a job.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What a group was built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) max_threads: usize,
    pub(crate) when_full: WhenFull,
}

/// The pool.
pub(crate) struct Pool {
    settings: Settings,
    pub(super) inner: Mutex<Inner>,
    /// Notified when there is a job, or the shutdown has moved.
    pub(super) changed: Condvar,
    /// Notified when the gate is closed; the keeper waits here.
    pub(super) closed: Condvar,
    pub(crate) state: StateCell,
    pub(crate) termination: Arc<Termination>,
    rejected: Arc<AtomicU64>,
}

impl Pool {
    pub(crate) fn new(settings: Settings) -> Arc<Pool> {
        Arc::new(Pool {
            settings,
            inner: Mutex::new(Inner::new()),
            changed: Condvar::new(),
            closed: Condvar::new(),
            state: StateCell::new(),
            termination: Termination::new(1, None),
            rejected: Arc::default(),
        })
    }

    pub(crate) fn threads(&self) -> usize {
        self.inner.lock().threads
    }

    pub(crate) fn pending(&self) -> usize {
        self.inner.lock().queue.len()
    }

    /// Counts the end of a job.
    pub(crate) fn ended(&self, end: End) {
        let figures = &mut self.inner.lock().figures;
        *match end {
            End::Completed => &mut figures.completed,
            End::Panicked => &mut figures.panicked,
            End::Cancelled => &mut figures.cancelled,
        } += 1;
    }

    pub(crate) fn submit<F, T>(
        self: &Arc<Pool>,
        call: F,
        location: &'static Location<'static>,
    ) -> Result<JoinHandle<T>, Rejected<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let mut inner = match self.find_thread() {
            Ok(inner) => inner,
            Err(reason) => {
                self.rejected.fetch_add(1, Ordering::Relaxed);
                return Err(Rejected::new(call, reason));
            }
        };
        let (runnable, task) = job::new(self, call, location);
        inner.figures.accepted += 1;
        inner.last_activity = sync::now();
        inner.queue.push_back(runnable);
        drop(inner);
        self.changed.notify_one();
        Ok(JoinHandle::of_job(task))
    }

    /// Makes sure that some thread will take one more job; returns with the lock held.
    fn find_thread(self: &Arc<Pool>) -> Result<MutexGuard<'_, Inner>, RejectReason> {
        let mut inner = self.inner.lock();
        loop {
            let doomed = self.look(&mut inner);
            if inner.cause.is_some() {
                drop(inner);
                self.cancel(doomed);
                return Err(RejectReason::ShutDown);
            }
            if inner.queue.len() < inner.idle + inner.arriving {
                return Ok(inner);
            }
            if inner.threads == self.settings.max_threads {
                return match self.settings.when_full {
                    WhenFull::Wait => Ok(inner),
                    WhenFull::Reject => Err(RejectReason::QueueFull),
                };
            }
            match self.start_thread(&mut inner) {
                Ok(()) => {}
                // A thread that exists will get to it.
                Err(_) if inner.threads > 0 && self.settings.when_full == WhenFull::Wait => {
                    return Ok(inner);
                }
                Err(error) => return Err(RejectReason::ThreadStart(error.kind())),
            }
        }
    }

    /// Starts a worker, with the lock held: it counts from here on and waits for the lock first.
    fn start_thread(self: &Arc<Pool>, inner: &mut Inner) -> io::Result<()> {
        self.launch("loop-blocking", Pool::work)?;
        self.state.advance(State::Started);
        inner.ever_started = true;
        inner.threads += 1;
        inner.arriving += 1;
        Ok(())
    }

    /// Starts a thread that is joined at the end.
    pub(super) fn launch(
        self: &Arc<Pool>,
        name: &str,
        life: fn(Arc<Pool>, &ThreadSlot),
    ) -> io::Result<()> {
        let pool = Arc::clone(self);
        let slot = ThreadSlot::default();
        let own = Arc::clone(&slot);
        let builder = thread::Builder::new().name(name.to_owned());
        *slot.lock() = Some(builder.spawn(move || life(pool, &own))?);
        self.termination.adopt(slot);
        Ok(())
    }

    /// The life of a worker.
    fn work(self: Arc<Pool>, slot: &ThreadSlot) {
        let mut inner = self.inner.lock();
        inner.arriving -= 1;
        loop {
            // Before every job: one that has not begun at the timeout does not begin any more.
            let look;
            (inner, look) = self.look_and_cancel(inner);
            let (deadline, retire) = match look {
                Look::Open => (sync::now().checked_add(KEEP_ALIVE), true),
                Look::ShuttingDown(deadline) => (deadline, false),
                Look::Closed => break,
            };
            if let Some(runnable) = inner.next_job() {
                inner.running += 1;
                if !retire {
                    self.watch(&mut inner);
                }
                drop(inner);
                // Contains every panic of the job, its destructor and its output.
                runnable.run();
                inner = self.inner.lock();
                inner.running -= 1;
                inner.last_activity = sync::now();
                continue;
            }
            inner.idle += 1;
            let timed_out;
            (inner, timed_out) = wait(&self.changed, inner, deadline);
            inner.idle -= 1;
            // A shutdown that was requested meanwhile counts on this thread.
            let requested = inner.control.is_requested();
            if retire && timed_out && inner.queue.is_empty() && !requested {
                break;
            }
        }
        inner.threads -= 1;
        self.leave(inner, slot);
    }

    /// The end of a thread.
    pub(super) fn leave(&self, inner: MutexGuard<'_, Inner>, slot: &ThreadSlot) {
        let retired = inner.cause.is_none();
        let last = inner.is_over();
        drop(inner);
        this_thread::leave();
        if retired {
            // Nobody will join it: without this its stack would stay for the group's life.
            self.termination.disown(slot);
        }
        if last {
            self.report();
        }
    }

    /// Looks at the shutdown and drops what it has cancelled, with the lock released meanwhile.
    pub(super) fn look_and_cancel<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
    ) -> (MutexGuard<'a, Inner>, Look) {
        let doomed = self.look(&mut inner);
        if !doomed.is_empty() {
            drop(inner);
            self.cancel(doomed);
            inner = self.inner.lock();
        }
        let look = inner.outlook();
        (inner, look)
    }

    /// Closes the gate if the terms say so; returns the jobs that are cancelled by it, for
    /// [`Pool::cancel`] once the lock is gone.
    fn look(&self, inner: &mut Inner) -> VecDeque<Runnable> {
        if inner.cause.is_some() {
            return VecDeque::new();
        }
        let Some(cause) = inner.verdict(sync::now()) else {
            return VecDeque::new();
        };
        inner.cause = Some(cause);
        if cause == Cause::Timeout {
            inner.figures.running = inner.begun();
        }
        self.state.advance(State::Shutdown);
        self.changed.notify_all();
        self.closed.notify_one();
        if !inner.queue.is_empty() {
            inner.cancelling += 1;
        }
        std::mem::take(&mut inner.queue)
    }

    /// Drops cancelled jobs, without the lock: their destructors are user code.
    fn cancel(&self, doomed: VecDeque<Runnable>) {
        if doomed.is_empty() {
            return;
        }
        drop(doomed);
        let mut inner = self.inner.lock();
        inner.cancelling -= 1;
        let last = inner.is_over();
        drop(inner);
        if last {
            self.report();
        }
    }

    /// Notes that nobody can submit any more.
    pub(crate) fn orphaned(&self) {
        self.inner.lock().orphaned = true;
    }

    /// Asks the pool to end.
    pub(crate) fn request(self: &Arc<Pool>, request: Request) {
        let mut inner = self.inner.lock();
        inner.control.note(request, sync::now());
        self.state.advance(State::ShuttingDown);
        if !inner.ever_started && inner.threads == 0 && inner.cause.is_none() {
            // Never used: nothing to wait for, and no thread to start for it.
            inner.cause = Some(inner.cause_at_rest());
            self.state.advance(State::Shutdown);
            drop(inner);
            self.report();
            return;
        }
        let doomed = self.look(&mut inner);
        if inner.threads == 0 && inner.cause.is_none() {
            // All threads have retired: one has to wait for the quiet period.
            if let Err(error) = self.start_thread(&mut inner) {
                inner.cause = Some(Cause::Failed);
                inner.error = Some(Arc::new(error));
                self.state.advance(State::Shutdown);
            }
        }
        self.watch(&mut inner);
        let ended = inner.is_over();
        drop(inner);
        self.cancel(doomed);
        self.changed.notify_all();
        if ended {
            self.report();
        }
    }

    /// The end, by the last who leaves.
    fn report(&self) {
        let inner = self.inner.lock();
        if self.state.get().is_terminated() {
            return;
        }
        self.state.advance(State::Terminated);
        let now = sync::now();
        let terms = inner.control.terms();
        let report = LoopReport {
            index: 0,
            started: inner.ever_started,
            cause: inner.cause.unwrap_or(Cause::Failed),
            error: inner.error.clone(),
            requested_at: terms.map_or(now, |terms| terms.requested_at),
            ended_at: now,
            figures: inner.figures,
            rejected: Arc::clone(&self.rejected),
        };
        drop(inner);
        self.termination.child_done(0, report);
    }
}

/// Waits for a notification; says whether the deadline has passed instead.
pub(super) fn wait<'a>(
    changed: &Condvar,
    inner: MutexGuard<'a, Inner>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, Inner>, bool) {
    match deadline {
        None => (changed.wait(inner), false),
        Some(deadline) => {
            let left = deadline.saturating_duration_since(sync::now());
            let inner = changed.wait_timeout(inner, left);
            (inner, sync::now() >= deadline)
        }
    }
}
