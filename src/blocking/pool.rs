//! The threads of a blocking group and the queue that they share.
//!
//! - A job is accepted in the critical section that queues it, which also checks that the pool is not
//!   closed.
//! - The thread for a job is started before the job is accepted: if the system refuses the thread, the
//!   job is handed back (or waits for an existing thread).
//! - A worker is idle (from its start on), running a job, or ended. The idle workers are enough for the
//!   queue, or there are `max_threads` workers.
//! - Workers and submitters advance the shutdown whenever they hold the lock; the last thread to end
//!   after the pool was closed publishes the report.
//! - The timeout closes the pool and cancels the queued jobs even while every worker is busy: then the
//!   [keeper](super::keeper) watches the deadline.
//! - A thread cannot be stopped: termination waits for running jobs. The report counts those that were
//!   running at the timeout.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::blocking::job::{self, JobEnd};
use crate::blocking::pool_state::{PoolState, ShutdownPhase};
use crate::error::{Caller, RejectReason, Rejected};
use crate::event_loop::shared::Runnable;
use crate::event_loop::state::{LoopState, StateCell};
use crate::event_loop::terms::ShutdownRequest;
use crate::report::{EndCause, LoopReport};
use crate::sync::{self, Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, thread};
use crate::task::join::JoinHandle;
use crate::termination::{Termination, ThreadSlot};
use crate::this_thread;

/// How long an idle worker waits for a job before it retires.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What happens to a job when every thread is busy.
///
/// # Examples
///
/// ```
/// use loopgroup::RejectReason;
/// use loopgroup::blocking::{BlockingGroup, WhenFull};
/// use std::sync::mpsc;
///
/// let group = BlockingGroup::builder().max_threads(1).when_full(WhenFull::Reject).build()?;
/// let (release, blocked) = mpsc::channel::<()>();
/// let first = group.spawn(move || blocked.recv());
/// let second = group.try_spawn(|| "too much").unwrap_err();
/// assert_eq!(second.reason(), RejectReason::QueueFull);
/// release.send(()).unwrap();
/// assert_eq!(loopgroup::block_on(first).unwrap(), Ok(()));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// The job waits for a thread: the default.
    #[default]
    Wait,
    /// The job is rejected. A thread becomes free shortly after the handle of its job has resolved, not
    /// before.
    Reject,
}

/// The shared state of a blocking group.
pub(crate) struct Pool {
    max_threads: usize,
    when_full: WhenFull,
    pub(super) inner: Mutex<PoolState>,
    /// Notified when a job is queued, or the shutdown has advanced; workers wait here.
    pub(super) changed: Condvar,
    /// Notified when the pool is closed; the keeper waits here.
    pub(super) closed: Condvar,
    pub(crate) state: StateCell,
    pub(crate) termination: Arc<Termination>,
    rejected: Arc<AtomicU64>,
}

impl Pool {
    pub(crate) fn new(max_threads: usize, when_full: WhenFull) -> Arc<Pool> {
        Arc::new(Pool {
            max_threads,
            when_full,
            inner: Mutex::default(),
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
    pub(crate) fn count_ended(&self, end: JobEnd) {
        let figures = &mut self.inner.lock().figures;
        *match end {
            JobEnd::Completed => &mut figures.completed,
            JobEnd::Panicked => &mut figures.panicked,
            JobEnd::Cancelled | JobEnd::Aborted => &mut figures.cancelled,
        } += 1;
        figures.aborted += u64::from(end == JobEnd::Aborted);
    }

    pub(crate) fn submit<F, T>(
        self: &Arc<Pool>,
        call: F,
        location: Caller,
    ) -> Result<JoinHandle<T>, Rejected<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let mut inner = match self.reserve_thread() {
            Ok(inner) => inner,
            Err(reason) => {
                self.rejected.fetch_add(1, Ordering::Relaxed);
                return Err(Rejected::new(call, reason));
            }
        };
        let (runnable, task) = job::new(call, location, {
            let pool = Arc::clone(self);
            move |end| pool.count_ended(end)
        });
        inner.figures.accepted += 1;
        inner.last_activity = Some(sync::now());
        inner.queue.push_back(runnable);
        drop(inner);
        self.changed.notify_one();
        Ok(JoinHandle::new(task))
    }

    /// Makes sure that a thread will run one more job; returns with the lock held.
    fn reserve_thread(self: &Arc<Pool>) -> Result<MutexGuard<'_, PoolState>, RejectReason> {
        let mut inner = self.inner.lock();
        loop {
            let cancelled = self.close_if_due(&mut inner);
            if inner.cause.is_some() {
                drop(inner);
                self.drop_cancelled(cancelled);
                return Err(RejectReason::ShutDown);
            }
            if inner.queue.len() < inner.idle {
                return Ok(inner);
            }
            if inner.threads == self.max_threads {
                return match self.when_full {
                    WhenFull::Wait => Ok(inner),
                    WhenFull::Reject => Err(RejectReason::QueueFull),
                };
            }
            match self.start_thread(&mut inner) {
                Ok(()) => {}
                // An existing thread will run it later.
                Err(_) if inner.threads > 0 && self.when_full == WhenFull::Wait => {
                    return Ok(inner);
                }
                Err(error) => return Err(RejectReason::ThreadStart(error.kind())),
            }
        }
    }

    /// Starts a worker, with the lock held: it is counted before it can acquire the lock.
    fn start_thread(self: &Arc<Pool>, inner: &mut PoolState) -> io::Result<()> {
        self.launch("loop-blocking", Pool::run_worker)?;
        self.state.advance(LoopState::Started);
        inner.ever_started = true;
        inner.threads += 1;
        inner.idle += 1;
        Ok(())
    }

    /// Starts a thread that is joined at termination.
    pub(super) fn launch(
        self: &Arc<Pool>,
        name: &str,
        main: fn(Arc<Pool>, &ThreadSlot),
    ) -> io::Result<()> {
        let pool = Arc::clone(self);
        let slot = ThreadSlot::default();
        let own = Arc::clone(&slot);
        let builder = thread::Builder::new().name(name.to_owned());
        *slot.lock() = Some(builder.spawn(move || main(pool, &own))?);
        self.termination.add_thread(slot);
        Ok(())
    }

    /// The main function of a worker thread.
    fn run_worker(self: Arc<Pool>, slot: &ThreadSlot) {
        let mut inner = self.inner.lock();
        inner.idle -= 1;
        loop {
            // Before every job: a job that has not begun at the timeout must not begin after it.
            inner = self.advance_shutdown(inner);
            let (deadline, retire) = match inner.shutdown_phase() {
                ShutdownPhase::Open => (sync::now().checked_add(KEEP_ALIVE), true),
                ShutdownPhase::ShuttingDown(deadline) => (deadline, false),
                ShutdownPhase::Closed => break,
            };
            if let Some(runnable) = inner.next_job() {
                inner.running += 1;
                if !retire {
                    self.ensure_deadline_watched(&mut inner);
                }
                drop(inner);
                // Contains panics of the job, its destructor and its output.
                runnable.run();
                inner = self.inner.lock();
                inner.running -= 1;
                inner.last_activity = Some(sync::now());
                continue;
            }
            inner.idle += 1;
            inner = self.changed.wait_until(inner, deadline);
            let timed_out = deadline.is_some_and(|deadline| sync::now() >= deadline);
            inner.idle -= 1;
            // A shutdown that was requested in the meantime relies on this thread.
            let requested = inner.control.is_requested();
            if retire && timed_out && inner.queue.is_empty() && !requested {
                break;
            }
        }
        inner.threads -= 1;
        self.finish_thread(inner, slot);
    }

    /// Ends a thread of the pool.
    pub(super) fn finish_thread(&self, inner: MutexGuard<'_, PoolState>, slot: &ThreadSlot) {
        let retired = inner.cause.is_none();
        this_thread::leave();
        self.release(inner);
        if retired {
            // It is not joined: without this its stack would be kept until the group ends.
            self.termination.remove_thread(slot);
        }
    }

    /// Closes the pool if its shutdown is due, and drops the cancelled jobs with the lock released.
    pub(super) fn advance_shutdown<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState>,
    ) -> MutexGuard<'a, PoolState> {
        let cancelled = self.close_if_due(&mut inner);
        if !cancelled.is_empty() {
            drop(inner);
            self.drop_cancelled(cancelled);
            inner = self.inner.lock();
        }
        inner
    }

    /// Closes the pool if its shutdown terms are met; returns the jobs that this cancels, for
    /// [`Pool::drop_cancelled`] once the lock is released.
    fn close_if_due(&self, inner: &mut PoolState) -> VecDeque<Runnable> {
        if inner.cause.is_some() {
            return VecDeque::new();
        }
        let Some(cause) = inner.due_cause(sync::now()) else {
            return VecDeque::new();
        };
        inner.cause = Some(cause);
        if cause == EndCause::Timeout {
            inner.figures.running = inner.begun();
        }
        self.state.advance(LoopState::Shutdown);
        self.changed.notify_all();
        self.closed.notify_one();
        if !inner.queue.is_empty() {
            inner.cancelling += 1;
        }
        std::mem::take(&mut inner.queue)
    }

    /// Drops cancelled jobs, without the lock: their destructors are user code.
    fn drop_cancelled(&self, jobs: VecDeque<Runnable>) {
        if jobs.is_empty() {
            return;
        }
        jobs.into_iter().for_each(job::cancel);
        let mut inner = self.inner.lock();
        inner.cancelling -= 1;
        self.release(inner);
    }

    /// Records that every handle was dropped, so that no more jobs can be submitted.
    pub(crate) fn set_orphaned(&self) {
        self.inner.lock().orphaned = true;
    }

    /// Requests a shutdown.
    pub(crate) fn request(self: &Arc<Pool>, request: ShutdownRequest) {
        let mut inner = self.inner.lock();
        inner.control.note(request, sync::now());
        self.state.advance(LoopState::ShuttingDown);
        if !inner.ever_started && inner.cause.is_none() {
            // Never used: there is nothing to wait for, and no thread is needed.
            inner.cause = Some(inner.control.cause_when_idle());
            self.state.advance(LoopState::Shutdown);
        }
        let cancelled = self.close_if_due(&mut inner);
        if inner.threads == 0 && inner.cause.is_none() {
            // All workers have retired: a new one waits for the end of the quiet period.
            if let Err(error) = self.start_thread(&mut inner) {
                inner.cause = Some(EndCause::Failed);
                inner.error = Some(Arc::new(error));
                self.state.advance(LoopState::Shutdown);
            }
        }
        self.ensure_deadline_watched(&mut inner);
        self.changed.notify_all();
        self.release(inner);
        self.drop_cancelled(cancelled);
    }

    /// Releases the lock. The thread that finds the pool finished publishes the report, once.
    fn release(&self, inner: MutexGuard<'_, PoolState>) {
        if !inner.is_finished() || self.state.get().is_terminated() {
            return;
        }
        self.state.advance(LoopState::Terminated);
        let now = sync::now();
        let terms = inner.control.terms();
        let report = LoopReport {
            index: 0,
            started: inner.ever_started,
            paused: false,
            cause: inner.cause.unwrap_or(EndCause::Failed),
            error: inner.error.clone(),
            requested_at: terms.map_or(now, |terms| terms.requested_at),
            ended_at: now,
            figures: inner.figures,
            rejected: Arc::clone(&self.rejected),
            left: Arc::default(),
        };
        drop(inner);
        self.termination.child_done(0, report);
    }
}
