//! A blocking job as an async-task task: the same handle and outcome as a task of a loop, one allocation.
//!
//! - It is polled once, on a thread of the pool, and is then finished; it is never woken.
//! - A job that is cancelled is polled as well, and drops its closure instead of calling it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_task::Builder;

use crate::error::Caller;
use crate::event_loop::shared::Runnable;
use crate::panic::{PanicReporter, PanicSite};
use crate::sync::Arc;
use crate::task::Task;
use crate::task::abort::JobControl;
use crate::task::harness::TaskOutcome;
use crate::this_thread::{self, CancelReason, SpecialPoll};
use crate::unwind::{contain, contain_drop};

/// Creates a job from a closure.
pub(crate) fn new<F, T>(
    call: F,
    location: Caller,
    count: impl Fn(JobEnd) + Send + 'static,
) -> (Runnable, Task<T>)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let control = JobControl::new();
    let meta = control.meta();
    let job = Job {
        call: Some(call),
        location,
        control,
        count,
    };
    // A polled job is finished, and any other is already in the queue: the schedule function never has
    // anything to do.
    Builder::new().metadata(meta).spawn(|_| job, drop)
}

/// Cancels a job that has not begun: its group ends.
pub(crate) fn cancel(runnable: Runnable) {
    let special = SpecialPoll::Cancel(CancelReason::Ended);
    this_thread::set_special_poll(Some(special));
    runnable.run();
    this_thread::set_special_poll(None);
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    Completed,
    Panicked,
    /// By the end of its group.
    Cancelled,
    /// By its handle.
    Aborted,
}

struct Job<F, C: Fn(JobEnd)> {
    call: Option<F>,
    location: Caller,
    control: Arc<JobControl>,
    /// Counts the end of the job.
    count: C,
}

// The closure is moved out before it is called and never pinned.
impl<F, C: Fn(JobEnd)> Unpin for Job<F, C> {}

impl<F: FnOnce() -> T, T, C: Fn(JobEnd)> Future for Job<F, C> {
    type Output = TaskOutcome<T>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<TaskOutcome<T>> {
        let call = self.call.take().expect("a finished job is not polled");
        let ended = this_thread::take_special_poll().is_some();
        let unwanted = match self.control.is_aborted() {
            true => Some(JobEnd::Aborted),
            false => ended.then_some(JobEnd::Cancelled),
        };
        let (end, outcome) = match unwanted {
            Some(end) => {
                let end = drop_uncalled(call, self.location, end);
                (end, TaskOutcome::cancelled())
            }
            None => match contain(call) {
                Ok(value) => (JobEnd::Completed, TaskOutcome::value(value)),
                Err(payload) => {
                    let outcome = TaskOutcome::panicked(payload, self.location, None);
                    (JobEnd::Panicked, outcome)
                }
            },
        };
        (self.count)(end);
        self.control.set_ended();
        Poll::Ready(outcome)
    }
}

impl<F, C: Fn(JobEnd)> Drop for Job<F, C> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            (self.count)(drop_uncalled(call, self.location, JobEnd::Cancelled));
            self.control.set_ended();
        }
    }
}

/// Drops a closure that will not be called: the job ends as `end`, or as panicked if the destructor does.
pub(crate) fn drop_uncalled<F>(call: F, location: Caller, end: JobEnd) -> JobEnd {
    match contain_drop(call) {
        Ok(()) => end,
        Err(payload) => {
            PanicReporter::STDERR.report(PanicSite::Destructor, payload, Some(location));
            JobEnd::Panicked
        }
    }
}
