//! Ending a task through its handle, and a handle that can do nothing else.
//!
//! - A handle asks the task's loop. On the loop's own thread that takes effect at once: the task is not
//!   polled again. From elsewhere the loop is told, and looks before it runs its next task.
//! - A task that is polled at that moment ends with its poll if that is the last one: its result counts.
//! - A job of a blocking group is asked when a thread takes it out of the queue, and not once it runs.

use std::collections::BTreeMap;
use std::fmt;

use crate::event_loop::context;
use crate::event_loop::local::Local;
use crate::event_loop::requests::{EndFlag, Request, Wish};
use crate::event_loop::shared::{LOOPS, Shared, TaskMeta};
use crate::sync::{Arc, AtomicBool, Ordering, Weak, plain};
use crate::task_id::{AbortTarget, TaskId};

impl TaskMeta {
    /// Aborts the task, which had not ended a moment ago.
    pub(crate) fn abort(&self) {
        if self.is_job() {
            return self.find_job().iter().for_each(|job| job.abort());
        }
        let Some(home) = LOOPS.find(self.home()) else {
            return; // it has ended with its loop
        };
        let target = self.target();
        if context::with_home(&home, |_| ()).is_some() {
            abort_at_home(target);
        } else {
            let wish = Wish::Abort;
            home.post_request(Request { target, wish });
        }
    }

    /// The control of a job, if it has not ended.
    fn find_job(&self) -> Option<Arc<JobControl>> {
        JOBS.lock().get(&self.id()).and_then(Weak::upgrade)
    }
}

/// Aborts a task of this thread's loop that has not ended.
fn abort_at_home(target: AbortTarget) {
    // A wake of our own tasks calls no user code, but it needs the context.
    if let Some(local) = context::current() {
        local.abort(target);
    }
}

/// All jobs of the process that have not ended.
static JOBS: plain::Mutex<BTreeMap<TaskId, Weak<JobControl>>> = plain::Mutex::new(BTreeMap::new());

/// What the handle of a job shares with the job.
#[derive(Debug)]
pub(crate) struct JobControl {
    id: TaskId,
    aborted: AtomicBool,
    ended: AtomicBool,
}

impl JobControl {
    pub(crate) fn new() -> Arc<JobControl> {
        let control = Arc::new(JobControl {
            id: TaskId::next(),
            aborted: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&control);
        JOBS.lock().insert(control.id, weak);
        control
    }

    /// The metadata of the job's task.
    pub(crate) fn meta(&self) -> TaskMeta {
        TaskMeta::of_job(self.id)
    }

    fn abort(&self) {
        // Release pairs with the Acquire in `is_aborted`.
        self.aborted.store(true, Ordering::Release);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Records that the job has ended.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl Drop for JobControl {
    fn drop(&mut self) {
        // It may be the last reference to the memory: it is dropped with no lock held.
        let entry = JOBS.lock().remove(&self.id);
        drop(entry);
    }
}

/// Aborts a task, and says whether it has ended; cannot await it.
///
/// [`JoinHandle::abort_handle`](crate::JoinHandle::abort_handle) creates it. It may outlive the
/// [`JoinHandle`](crate::JoinHandle), and be cloned and sent anywhere, whatever the task returns. It does not
/// keep the task or its loop alive.
///
/// # Examples
///
/// ```
/// let group = loopgroup::EventLoopGroup::new(1)?;
/// let task = group.spawn(std::future::pending::<()>());
/// let abort = task.abort_handle();
/// std::thread::spawn(move || abort.abort());
/// assert!(group.block_on(task).unwrap_err().is_cancelled());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct AbortHandle(AbortRepr);

#[derive(Clone)]
enum AbortRepr {
    Task {
        home: Weak<Shared>,
        target: AbortTarget,
        flag: Arc<EndFlag>,
    },
    Job(Arc<JobControl>),
    /// It had ended, or was refused.
    Ended(TaskId),
}

impl AbortHandle {
    /// The handle of a task that had not ended a moment ago.
    pub(crate) fn new(meta: &TaskMeta) -> AbortHandle {
        if meta.is_job() {
            let job = meta.find_job().map(AbortRepr::Job);
            return AbortHandle(job.unwrap_or(AbortRepr::Ended(meta.id())));
        }
        let Some(home) = LOOPS.find(meta.home()) else {
            return AbortHandle::of_ended(meta.id());
        };
        let (target, flag) = (meta.target(), Arc::<EndFlag>::default());
        let watch = |local: &Local| local.watch(target, Arc::clone(&flag));
        if context::with_home(&home, watch).is_none() {
            let wish = Wish::Watch(Arc::clone(&flag));
            home.post_request(Request { target, wish });
        }
        AbortHandle(AbortRepr::Task {
            home: Arc::downgrade(&home),
            target,
            flag,
        })
    }

    pub(crate) fn of_ended(id: TaskId) -> AbortHandle {
        AbortHandle(AbortRepr::Ended(id))
    }

    /// Aborts the task, as [`JoinHandle::abort`](crate::JoinHandle::abort) does. Does nothing to a task that
    /// has ended.
    pub fn abort(&self) {
        match &self.0 {
            AbortRepr::Task { home, target, flag } => {
                let home = match home.upgrade() {
                    Some(home) if !flag.has_ended() => home,
                    _ => return,
                };
                let target = *target;
                if context::with_home(&home, |_| ()).is_some() {
                    return abort_at_home(target);
                }
                let wish = Wish::Abort;
                home.post_request(Request { target, wish });
            }
            AbortRepr::Job(control) => control.abort(),
            AbortRepr::Ended(_) => {}
        }
    }

    /// Says whether the task has ended, in whatever way.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// let abort = test.spawn(async {}).abort_handle(); // the task is detached
    /// assert!(!abort.is_finished());
    /// test.run_until_stalled();
    /// assert!(abort.is_finished());
    /// ```
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            AbortRepr::Task { home, flag, .. } => {
                flag.has_ended() || home.upgrade().is_none_or(|home| home.is_sealed())
            }
            AbortRepr::Job(control) => control.ended.load(Ordering::Acquire),
            AbortRepr::Ended(_) => true,
        }
    }

    /// Returns the id of the task.
    pub fn id(&self) -> TaskId {
        match &self.0 {
            AbortRepr::Task { target, .. } => target.id,
            AbortRepr::Job(control) => control.id,
            AbortRepr::Ended(id) => *id,
        }
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("id", &self.id())
            .field("finished", &self.is_finished())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_task_is_that_of_its_wakers_whatever_its_future_is() {
        fn check<F: Future<Output = ()> + Send + 'static>(future: F) {
            let meta = TaskMeta::of_no_loop();
            let builder = async_task::Builder::new().metadata(meta);
            let (runnable, task) = builder.spawn(|_| future, drop);
            let address = task.metadata().target().address;
            assert_eq!(address, runnable.waker().data().addr());
            task.detach();
        }
        #[repr(align(128))]
        struct Aligned;
        check(async {});
        check(async {
            let large = [7_u8; 1000];
            crate::yield_now().await;
            std::hint::black_box(large);
        });
        check(async {
            let aligned = Aligned;
            crate::yield_now().await;
            std::hint::black_box(aligned);
        });
    }
}
