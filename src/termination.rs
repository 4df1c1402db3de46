//! The termination of a group or loop, as a future that any task or thread may wait for.
//!
//! - Each child counts down once; the last one creates the report.
//! - Any number of futures, in any runtime or thread, see the same report; one created after the
//!   end is ready at once.
//! - Wakers are woken outside the lock, and panics are contained one by one: a waker that panics
//!   does not keep the others from being woken.
//! - A call that no thread is left to make can be deferred to the observers: the first one that
//!   polls or waits at its due time or later makes it, with no lock held, and an observer that
//!   blocks wakes up at that time.
//! - `wait` also joins the threads that this crate started, so that nothing of a loop is left
//!   when it returns. A thread that no future can join any more is detached: a waker that outlives
//!   its loop keeps the loop's termination, but not the stack of a thread that has ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::clock::earlier;
use crate::noted::{self, Noted};
use crate::panic::{PanicHandler, PanicReporter};
use crate::report::{LoopReport, TerminationReport};
use crate::sync::thread::JoinHandle;
use crate::sync::{self, Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::this_thread;
use crate::waiters::EventWaiters;

/// The thread of a loop, once it is started; shared by the loop's and the group's termination.
///
/// Locked for the whole join, so that every waiter returns after it.
pub(crate) type ThreadSlot = Arc<Mutex<Option<JoinHandle<()>>>>;

/// Threads to join: kept by the futures that may do so, and by the terminations that may create
/// such a future.
type Threads = Mutex<Vec<ThreadSlot>>;

/// Whether a thread may still have to be joined; one that has ended is released.
fn is_needed(slot: &ThreadSlot) -> bool {
    // Locked by others only while it is started or joined.
    let Some(mut thread) = slot.try_lock() else {
        return true;
    };
    let is_needed = thread.as_ref().is_some_and(|one| !sync::has_finished(one));
    if !is_needed {
        *thread = None;
    }
    is_needed
}

/// The state shared by all futures of one group or loop.
pub(crate) struct Termination {
    state: Mutex<TerminationState>,
    ended: Condvar,
    threads: Mutex<Arc<Threads>>,
    /// Submissions that were rejected before a loop was chosen.
    strays: Arc<AtomicU64>,
    on_panic: Option<Arc<PanicHandler>>,
}

/// A call that is deferred to the observers, and when it is due.
struct DeferredCall {
    at: Instant,
    call: Box<dyn FnOnce() + Send>,
}

struct TerminationState {
    deferred: Option<DeferredCall>,
    children: Vec<Option<LoopReport>>,
    remaining: usize,
    report: Option<TerminationReport>,
    waiters: EventWaiters,
}

impl Termination {
    pub(crate) fn new(children: usize, on_panic: Option<Arc<PanicHandler>>) -> Arc<Termination> {
        Arc::new(Termination {
            state: Mutex::new(TerminationState {
                deferred: None,
                children: vec![None; children],
                remaining: children,
                report: None,
                waiters: EventWaiters::new(),
            }),
            ended: Condvar::new(),
            threads: Mutex::default(),
            strays: Arc::default(),
            on_panic,
        })
    }

    /// Records the end of child `index`; the last one resolves every future.
    pub(crate) fn child_done(&self, index: usize, child: LoopReport) {
        // A loop's own termination has one child, whatever the loop's index in its group.
        let loop_index = child.index;
        let mut state = self.state.lock();
        if state.children[index].replace(child).is_some() {
            debug_assert!(false, "child {index} ended twice");
            return;
        }
        state.remaining -= 1;
        if state.remaining > 0 {
            return;
        }
        let children = state.children.drain(..).flatten().collect();
        state.report = Some(TerminationReport::new(children, Arc::clone(&self.strays)));
        let wakers = state.waiters.fire();
        drop(state);
        self.ended.notify_all();
        PanicReporter::new(Some(loop_index), self.on_panic.clone())
            .wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }

    /// Defers `call` to the first observer that polls or waits at `at` or later.
    pub(crate) fn defer_to_observers(&self, at: Instant, call: Box<dyn FnOnce() + Send>) {
        self.state.lock().deferred = Some(DeferredCall { at, call });
        // Observers that already wait have to wake up at `at`.
        self.ended.notify_all();
    }

    /// Makes the deferred call if it is due, with the lock released meanwhile.
    fn run_deferred<'a>(
        &'a self,
        mut state: MutexGuard<'a, TerminationState>,
    ) -> MutexGuard<'a, TerminationState> {
        while let Some(deferred) = state
            .deferred
            .take_if(|deferred| sync::now() >= deferred.at)
        {
            drop(state);
            (deferred.call)();
            state = self.state.lock();
        }
        state
    }

    /// Adds a thread for [`TerminationFuture::wait`] to join.
    pub(crate) fn add_thread(&self, thread: ThreadSlot) {
        let threads = self.threads();
        let mut threads = threads.lock();
        threads.retain(is_needed);
        threads.push(thread);
    }

    /// Releases the threads that have ended: those of loops that were parked.
    pub(crate) fn reap_threads(&self) {
        self.threads().lock().retain(is_needed);
    }

    /// Removes a thread that failed to start.
    pub(crate) fn remove_thread(&self, thread: &ThreadSlot) {
        self.threads()
            .lock()
            .retain(|other| !Arc::ptr_eq(other, thread));
    }

    /// Leaves the threads to the existing futures: no further one can be requested.
    pub(crate) fn release_threads(&self) {
        let abandoned = std::mem::take(&mut *self.threads.lock());
        drop(abandoned);
    }

    fn threads(&self) -> Arc<Threads> {
        Arc::clone(&self.threads.lock())
    }

    pub(crate) fn count_rejected(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }

    /// The report, once there is one.
    #[cfg(feature = "inspect")]
    pub(crate) fn report(&self) -> Option<TerminationReport> {
        self.state.lock().report.clone()
    }

    pub(crate) fn future(self: &Arc<Termination>) -> TerminationFuture {
        TerminationFuture {
            termination: Arc::clone(self),
            threads: self.threads(),
            key: None,
        }
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<TerminationReport> {
        let mut state = self.state.lock();
        loop {
            state = self.run_deferred(state);
            if let Some(report) = &state.report {
                return Some(report.clone());
            }
            if deadline.is_some_and(|deadline| sync::now() >= deadline) {
                return None;
            }
            let due = state.deferred.as_ref().map(|deferred| deferred.at);
            state = self.ended.wait_until(state, earlier(deadline, due));
        }
    }
}

/// Resolves to the [`TerminationReport`] once every loop has ended.
///
/// It only observes: dropping it changes nothing, and any number of clones may be awaited in any
/// runtime, or waited for on any thread that is not a loop. Polled again after it was ready, it returns
/// the report again.
///
/// When it resolves every task has been dropped, but the threads may still be about to exit;
/// [`wait`](TerminationFuture::wait) also joins them.
///
/// # Cancel safety
///
/// Cancel safe: the report stays available to every other and later future.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(2)?;
/// let observer = group.termination();
/// let report = loopgroup::block_on(group.shutdown_now());
/// assert_eq!(report.loops().len(), 2);
/// assert!(observer.wait().is_clean()); // the same report, from another future
/// # std::io::Result::Ok(())
/// ```
#[must_use = "the shutdown continues without it, but its end is not observed; await it, or call wait()"]
pub struct TerminationFuture {
    termination: Arc<Termination>,
    threads: Arc<Threads>,
    key: Option<usize>,
}

impl TerminationFuture {
    /// Blocks until termination and joins the threads that the group started.
    ///
    /// # Panics
    ///
    /// On a thread that is an event loop, of any group: the loop would wait for itself or for a
    /// sibling that waits for it. Await the future instead. (A job of a blocking group must not
    /// wait for the end of its own group either, which waits for the job; that is not detected.)
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// group.start()?;
    /// let report = group.shutdown_now().wait(); // both threads have exited
    /// assert!(report.loops().iter().all(|one| one.started()));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn wait(&self) -> TerminationReport {
        refuse_on_loop("TerminationFuture::wait");
        let report = self
            .termination
            .wait(None)
            .expect("a wait without deadline ends with a report");
        // A thread-local destructor on a loop's thread must join neither its own thread nor that of
        // a sibling that does the same.
        if this_thread::is_leaving() {
            return report;
        }
        let threads = self.threads.lock().clone();
        for slot in threads {
            let mut slot = slot.lock();
            if let Some(thread) = slot.take() {
                // A loop contains every panic; one in a thread-local destructor is not the loop's.
                drop(thread.join());
            }
        }
        report
    }

    /// Blocks until termination, for `timeout` at most; returns `None` if it has not happened by
    /// then. Joins no thread.
    ///
    /// # Panics
    ///
    /// On a thread that is an event loop, like [`wait`](TerminationFuture::wait).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let end = group.termination();
    /// assert!(end.wait_timeout(Duration::from_millis(1)).is_none()); // no shutdown was requested
    /// group.shutdown_now();
    /// assert!(end.wait_timeout(Duration::from_secs(60)).is_some());
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<TerminationReport> {
        refuse_on_loop("TerminationFuture::wait_timeout");
        self.termination.wait(sync::now().checked_add(timeout))
    }
}

/// A task that waits for the end of its own loop would keep that loop from ending, on whatever thread it lets
/// somebody wait.
#[track_caller]
fn refuse_on_loop(what: &str) {
    let instead = "Await the TerminationFuture instead, outside of the group that ends: on a thread that is \
                   no loop, or in a task of another group";
    this_thread::refuse_on_loop_with(what, instead);
}

impl Future for TerminationFuture {
    type Output = TerminationReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TerminationReport> {
        let this = &mut *self;
        // Cloning and dropping wakers is user code: both happen outside the lock.
        let waker = cx.waker().clone();
        let mut state = this.termination.run_deferred(this.termination.state.lock());
        if let Some(report) = &state.report {
            return Poll::Ready(report.clone());
        }
        let replaced = state.waiters.store(&mut this.key, waker);
        drop(state);
        drop(replaced);
        noted::waits_for(|| Noted::Event("the end of a group or a loop"));
        Poll::Pending
    }
}

impl Clone for TerminationFuture {
    fn clone(&self) -> TerminationFuture {
        TerminationFuture {
            termination: Arc::clone(&self.termination),
            threads: Arc::clone(&self.threads),
            key: None,
        }
    }
}

impl Drop for TerminationFuture {
    fn drop(&mut self) {
        if self.key.is_some() {
            let removed = self.termination.state.lock().waiters.remove(&mut self.key);
            drop(removed);
        }
    }
}

impl fmt::Debug for TerminationFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Formatted with no lock held: the writer may itself wait for the termination that the lock
        // protects.
        let report = self.termination.state.lock().report.clone();
        f.debug_struct("TerminationFuture")
            .field("report", &report)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_disowned_thread_is_removed() {
        let termination = Termination::new(1, None);
        let slots: [ThreadSlot; 3] = Default::default();
        // As while they are filled.
        let _filling = slots.each_ref().map(|slot| slot.lock());
        for slot in &slots {
            termination.add_thread(Arc::clone(slot));
        }
        termination.remove_thread(&slots[1]);
        let threads = termination.threads();
        let left = threads.lock();
        assert_eq!(left.len(), 2);
        assert!(Arc::ptr_eq(&left[0], &slots[0]) && Arc::ptr_eq(&left[1], &slots[2]));
    }

    #[test]
    fn threads_that_have_ended_are_released() {
        let termination = Termination::new(1, None);
        let builder = sync::thread::Builder::new;
        let (release, held) = std::sync::mpsc::channel::<()>();
        let ended = builder().spawn(|| ()).unwrap();
        let runs = builder().spawn(move || held.recv().unwrap_or(())).unwrap();
        while !sync::has_finished(&ended) {
            sync::thread::yield_now();
        }
        let slots = [ended, runs].map(|thread| Arc::new(Mutex::new(Some(thread))));
        for slot in &slots {
            termination.add_thread(Arc::clone(slot));
        }
        termination.reap_threads();
        assert_eq!(termination.threads().lock().len(), 1);
        assert!(slots[0].lock().is_none() && slots[1].lock().is_some());
        drop(release);
    }

    #[test]
    fn abandoned_threads_stay_with_the_existing_futures() {
        let termination = Termination::new(1, None);
        termination.add_thread(ThreadSlot::default());
        let before = termination.future();
        termination.release_threads();
        let after = termination.future();
        let known = [&before, &before.clone(), &after].map(|end| end.threads.lock().len());
        assert_eq!(known, [1, 1, 0]);
    }

    #[test]
    fn the_future_shows_whether_there_is_a_report() {
        let termination = Termination::new(1, None);
        let shown = format!("{:?}", termination.future());
        assert_eq!(shown, "TerminationFuture { report: None }");
    }

    #[test]
    fn strays_are_counted() {
        let termination = Termination::new(1, None);
        termination.count_rejected();
        termination.count_rejected();
        assert_eq!(termination.strays.load(Ordering::Relaxed), 2);
    }
}
