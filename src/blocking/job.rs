//! A blocking job as an async-task: the same handle, the same outcome, one allocation.
//!
//! - It is polled once, on a thread of the pool, and is done then; it is never woken.
//! - A job dropped unpolled is cancelled, and counted so.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_task::{Builder, FallibleTask};

use crate::blocking::pool::Pool;
use crate::event_loop::counters::End;
use crate::panic::{PanicReporter, PanicSite};
use crate::sync::Arc;
use crate::task::harness::Outcome;
use crate::unwind::{contain, contain_drop};

/// A job that is ready to be run.
pub(crate) type Runnable = async_task::Runnable<()>;

/// Makes a job out of a closure.
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
    // A job that has been polled is done, and one that has not is in the queue: it is never
    // scheduled again.
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
                self.pool.ended(End::Completed);
                Outcome::value(value)
            }
            Err(payload) => {
                self.pool.ended(End::Panicked);
                Outcome::panicked(payload, self.location)
            }
        })
    }
}

impl<F> Drop for Job<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.pool.ended(drop_uncalled(call, self.location));
        }
    }
}

/// Drops a closure that will not be called, and says how that ended.
pub(crate) fn drop_uncalled<F>(call: F, location: &'static Location<'static>) -> End {
    match contain_drop(call) {
        Ok(()) => End::Cancelled,
        Err(payload) => {
            PanicReporter::STDERR.report(PanicSite::Destructor, payload, Some(location));
            End::Panicked
        }
    }
}
