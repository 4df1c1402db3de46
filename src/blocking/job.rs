//! A blocking job as an async-task task: the same handle and outcome as a task of a loop, one allocation.
//!
//! - It is polled once, on a thread of the pool, and is then finished; it is never woken.
//! - A job that is dropped without being polled counts as cancelled.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_task::{Builder, FallibleTask};

use crate::blocking::pool::Pool;
use crate::event_loop::counters::End;
use crate::event_loop::shared::Shared;
use crate::panic::{PanicSite, contain, contain_drop, discard};
use crate::sync::Arc;
use crate::task::harness::Outcome;

/// A job that is ready to run.
pub(crate) type Runnable = async_task::Runnable<()>;

/// Creates a job from a closure.
pub(crate) fn new<F, T>(
    pool: &Arc<Pool>,
    call: F,
    location: &'static Location<'static>,
) -> (Runnable, FallibleTask<Outcome<T>, ()>)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let job = Job {
        call: Some(call),
        pool: Arc::clone(pool),
        location,
    };
    // A polled job is finished, and any other is already in the queue: the schedule function never has
    // anything to do.
    let (runnable, task) = Builder::new().spawn(|()| job, drop);
    (runnable, task.fallible())
}

struct Job<F> {
    call: Option<F>,
    pool: Arc<Pool>,
    location: &'static Location<'static>,
}

// The closure is moved out before it is called and never pinned.
impl<F> Unpin for Job<F> {}

impl<F: FnOnce() -> T, T> Future for Job<F> {
    type Output = Outcome<T>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome<T>> {
        let call = self.call.take().expect("a finished job is not polled");
        Poll::Ready(match contain(call) {
            Ok(value) => {
                self.pool.count_ended(End::Completed);
                Outcome::value(value)
            }
            Err(payload) => {
                self.pool.count_ended(End::Panicked);
                Outcome::panicked(payload, self.location)
            }
        })
    }
}

impl<F> Drop for Job<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.pool.count_ended(drop_uncalled(call, self.location));
        }
    }
}

/// Drops a closure that will not be called: the job is cancelled, or panicked if the destructor does.
pub(crate) fn drop_uncalled<F>(call: F, location: &'static Location<'static>) -> End {
    match contain_drop(call) {
        Ok(()) => End::Cancelled,
        Err(payload) => {
            Shared::report_panic_of(None, PanicSite::Destructor, &*payload, Some(location));
            discard(payload);
            End::Panicked
        }
    }
}
