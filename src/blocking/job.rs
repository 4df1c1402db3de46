//! A blocking job as an async-task task: the same handle and outcome as a task of a loop, one allocation.
//!
//! - It is polled once, on a thread of the pool, and is then finished; it is never woken.
//! - A job that is dropped without being polled counts as cancelled.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_task::{Builder, FallibleTask};

use crate::error::Caller;
use crate::event_loop::counters::TaskEnd;
use crate::panic::{PanicReporter, PanicSite};
use crate::task::harness::Outcome;
use crate::unwind::{contain, contain_drop};

/// A job that is ready to run.
pub(crate) type JobRunnable = async_task::Runnable<()>;

/// Creates a job from a closure.
pub(crate) fn new<F, T>(
    call: F,
    location: Caller,
    count: impl Fn(TaskEnd) + Send + 'static,
) -> (JobRunnable, FallibleTask<Outcome<T>, ()>)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let job = Job {
        call: Some(call),
        location,
        count,
    };
    // A polled job is finished, and any other is already in the queue: the schedule function never has
    // anything to do.
    let (runnable, task) = Builder::new().spawn(|()| job, drop);
    (runnable, task.fallible())
}

struct Job<F, C: Fn(TaskEnd)> {
    call: Option<F>,
    location: Caller,
    /// Counts the end of the job.
    count: C,
}

// The closure is moved out before it is called and never pinned.
impl<F, C: Fn(TaskEnd)> Unpin for Job<F, C> {}

impl<F: FnOnce() -> T, T, C: Fn(TaskEnd)> Future for Job<F, C> {
    type Output = Outcome<T>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome<T>> {
        let call = self.call.take().expect("a finished job is not polled");
        Poll::Ready(match contain(call) {
            Ok(value) => {
                (self.count)(TaskEnd::Completed);
                Outcome::value(value)
            }
            Err(payload) => {
                (self.count)(TaskEnd::Panicked);
                Outcome::panicked(payload, self.location)
            }
        })
    }
}

impl<F, C: Fn(TaskEnd)> Drop for Job<F, C> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            (self.count)(drop_uncalled(call, self.location));
        }
    }
}

/// Drops a closure that will not be called: the job is cancelled, or panicked if the destructor does.
pub(crate) fn drop_uncalled<F>(call: F, location: Caller) -> TaskEnd {
    match contain_drop(call) {
        Ok(()) => TaskEnd::Cancelled,
        Err(payload) => {
            PanicReporter::STDERR.report(PanicSite::Destructor, payload, Some(location));
            TaskEnd::Panicked
        }
    }
}
