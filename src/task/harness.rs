//! The wrapper of a user's future inside its task: it counts the task and contains panics.
//!
//! - `Fresh → Running → Live → Ended`; a task is counted as begun once and as ended once.
//! - The future is dropped by the harness, under `contain`: async-task would abort the process if a
//!   destructor panics. The same holds for the output, which [`Outcome`] drops.
//! - The entry in the live table is removed only after the future is dropped.
//! - The stage shares a word with the tag that says whether the future is present: a task is small.
//!
//! ```text
//!   Fresh ──poll──▶ Running ──Pending──▶ Live(key) ──poll──▶ …
//!     │               │                    │
//!     └──drop─────────┴──Ready, panic──────┴──Ready, panic, drop──▶ Ended
//! ```

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::event_loop::context;
use crate::event_loop::counters::TaskEnd;
use crate::event_loop::live::LiveKey;
use crate::event_loop::local::Local;
use crate::panic::{PanicReporter, PanicSite};
use crate::this_thread;
use crate::trace;
use crate::unwind::{Payload, contain, contain_drop};

pin_project! {
    /// The future of a task, with its bookkeeping.
    pub(crate) struct Harness<F: Future> {
        #[pin]
        body: Body<F>,
        location: &'static Location<'static>,
    }

    impl<F: Future> PinnedDrop for Harness<F> {
        fn drop(this: Pin<&mut Self>) {
            this.drop_unfinished();
        }
    }
}

pin_project! {
    #[project = BodyProjection]
    enum Body<F> {
        Present {
            stage: Stage,
            #[pin]
            future: F,
        },
        Ended,
    }
}

/// The stage of a task that has not ended: 32 bits, to fit beside the tag of its [`Body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage(u32);

impl Stage {
    /// Never polled.
    const FRESH: Stage = Stage(u32::MAX);
    /// In its first poll.
    const RUNNING: Stage = Stage(u32::MAX - 1);

    /// In the live table.
    fn live(key: LiveKey) -> Stage {
        debug_assert!(
            key.0 < Stage::RUNNING.0,
            "so many tasks do not fit in memory"
        );
        Stage(key.0)
    }
}

impl<F: Future> Harness<F> {
    pub(crate) fn new(future: F, location: &'static Location<'static>) -> Harness<F> {
        Harness {
            body: Body::Present {
                stage: Stage::FRESH,
                future,
            },
            location,
        }
    }

    /// Drops the future; the task ends as `end`, or as panicked if the drop panics.
    fn end(self: Pin<&mut Self>, end: TaskEnd) -> Result<(), Payload> {
        let mut body = self.project().body;
        let BodyProjection::Present { stage, .. } = body.as_mut().project() else {
            return Ok(());
        };
        let stage = *stage;
        let dropped = contain(|| body.set(Body::Ended));
        let end = if dropped.is_err() {
            TaskEnd::Panicked
        } else {
            end
        };
        stage.record_end(end);
        dropped
    }

    /// Ends a task that is dropped before it has ended: cancelled.
    fn drop_unfinished(self: Pin<&mut Self>) {
        let location = self.location;
        if let Err(payload) = self.end(TaskEnd::Cancelled) {
            context::panics_in_drop().report(PanicSite::Destructor, payload, Some(location));
        }
    }

    /// Ends a task whose future panicked: in a poll, or, if there is a `value`, when it was dropped.
    #[cold]
    fn panicked(
        self: Pin<&mut Self>,
        payload: Payload,
        stage: Stage,
        value: Option<F::Output>,
    ) -> Outcome<F::Output> {
        let location = self.location;
        let second = if value.is_some() {
            stage.record_end(TaskEnd::Panicked);
            // The task has panicked, so its value is dropped.
            contain_drop(value)
        } else {
            self.end(TaskEnd::Panicked)
        };
        if let Err(second) = second {
            context::panics_in_drop().report(PanicSite::Destructor, second, Some(location));
        }
        Outcome::panicked(payload, location)
    }
}

impl Stage {
    /// Counts the end of a task whose future is dropped, and removes it from the live table.
    fn record_end(self, end: TaskEnd) {
        context::with_local(|local| match self {
            // A refused task was never counted.
            Stage::FRESH if context::refused_by().is_none() => local.dropped_unpolled(end),
            Stage::FRESH => {}
            Stage::RUNNING => local.shared.counters.end(end),
            Stage(key) => {
                local.leave_live(LiveKey(key));
                local.shared.counters.end(end);
            }
        });
    }
}

impl<F: Future> Future for Harness<F> {
    type Output = Outcome<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<F::Output>> {
        trace::polling(self.location);
        let mut body = self.as_mut().project().body;
        let mut before = Stage::RUNNING;
        let mut value = None;
        this_thread::note_own_waker(cx.waker());
        // One `contain` for the poll and, if it was the last, for the drop of the future.
        let polled = contain(|| {
            let BodyProjection::Present { stage, future } = body.as_mut().project() else {
                unreachable!("async-task does not poll a finished future")
            };
            if *stage == Stage::FRESH {
                context::with_local(Local::begin);
                *stage = Stage::RUNNING;
            }
            before = *stage;
            match future.poll(cx) {
                Poll::Ready(ready) => {
                    value = Some(ready);
                    body.set(Body::Ended);
                }
                Poll::Pending if before == Stage::RUNNING => {
                    let waker = cx.waker().clone();
                    let key = context::with_local(|local| local.enter_live(waker));
                    *stage = Stage::live(key.expect("a task is polled on its loop"));
                }
                Poll::Pending => {}
            }
        });
        this_thread::forget_own_waker();
        match (polled, value) {
            (Ok(()), None) => Poll::Pending,
            (Ok(()), Some(value)) => {
                before.record_end(TaskEnd::Completed);
                Poll::Ready(Outcome::value(value))
            }
            (Err(payload), value) => Poll::Ready(self.panicked(payload, before, value)),
        }
    }
}

/// The output of a task: a value, or a panic that is reported if it is not joined.
///
/// async-task drops an output that is not taken, and aborts if that panics: hence the `Drop` here.
pub(crate) struct Outcome<T> {
    /// `None` once it is taken, and after a panic.
    value: Option<T>,
    panic: Option<Box<Unjoined>>,
}

impl<T> Outcome<T> {
    pub(crate) fn value(value: T) -> Outcome<T> {
        Outcome {
            value: Some(value),
            panic: None,
        }
    }

    #[cold]
    pub(crate) fn panicked(payload: Payload, location: &'static Location<'static>) -> Outcome<T> {
        // A job of a blocking group has no loop.
        let panics = context::with_local(|local| local.shared.panics.clone());
        let panics = panics.unwrap_or(PanicReporter::STDERR);
        panics.trace(PanicSite::Task, &payload, Some(location));
        let unjoined = Unjoined {
            payload: Some(payload),
            location,
            panics,
        };
        Outcome {
            value: None,
            panic: Some(Box::new(unjoined)),
        }
    }

    /// Takes the result, for a join; by reference, since moving `self` would copy the value once more.
    pub(crate) fn join(&mut self) -> Result<T, (Payload, &'static Location<'static>)> {
        match self.panic.take() {
            None => Ok(self.value.take().expect("an outcome is joined once")),
            Some(mut unjoined) => {
                let payload = unjoined.payload.take().expect("the payload is taken once");
                Err((payload, unjoined.location))
            }
        }
    }

    /// Takes the value, if any; a panic is reported.
    pub(crate) fn value_or_report(mut self) -> Option<T> {
        self.value.take()
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            if let Err(payload) = contain_drop(value) {
                context::panics_in_drop().report(PanicSite::Destructor, payload, None);
            }
        }
    }
}

/// A panic that was not joined yet; reported when it is dropped.
pub(crate) struct Unjoined {
    payload: Option<Payload>,
    location: &'static Location<'static>,
    panics: PanicReporter,
}

impl Drop for Unjoined {
    fn drop(&mut self) {
        if let Some(payload) = self.payload.take() {
            self.panics
                .show(PanicSite::Task, payload, Some(self.location));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_adds_two_words() {
        type Words = std::future::Ready<[u64; 8]>;
        let extra = size_of::<Harness<Words>>() - size_of::<Words>();
        assert!(extra <= 16, "{extra} bytes");
        async fn sleeper() {
            crate::yield_now().await;
        }
        fn extra_of<F: Future>(_: &F) -> usize {
            size_of::<Harness<F>>() - size_of::<F>()
        }
        let extra = extra_of(&sleeper());
        assert!(extra <= 24, "{extra} bytes, of which some are padding");
    }
}
