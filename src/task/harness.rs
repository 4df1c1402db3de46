//! The wrapper of a user's future inside its task: it counts the task and contains panics.
//!
//! - `Fresh → Running → Live → Ended`; a task is counted as begun once and as ended once.
//! - A task that is [cancelled](crate::event_loop::local::cancel_task) is polled once more: the harness
//!   drops the future instead of polling it, and the outcome says so.
//! - The future is dropped by the harness, under `contain`: async-task would abort the process if a
//!   destructor panics. The same holds for the output, which [`TaskOutcome`] drops.
//! - The entry in the live table is removed only after the future is dropped.
//! - The stage shares a word with the tag that says whether the future is present: a task is small.
//!
//! ```text
//!   Fresh ──poll──▶ Running ──Pending──▶ Live(key) ──poll──▶ …
//!     │               │                    │
//!     └──cancel───────┴──Ready, panic──────┴──Ready, panic, cancel──▶ Ended
//! ```

use std::borrow::Cow;
use std::future::Future;
use std::mem::needs_drop;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;

use crate::error::{Caller, JoinError, PanicRecord, RejectReason};
use crate::event_loop::context;
use crate::event_loop::counters::TaskEnd;
use crate::event_loop::live::LiveKey;
use crate::event_loop::place::Place;
use crate::panic::{PanicReporter, PanicSite};
use crate::task::origin::Origin;
use crate::this_thread::{self, SpecialPoll};
use crate::trace;
use crate::unwind::{Payload, contain, contain_drop};

pin_project! {
    /// The future of a task, with its bookkeeping.
    pub(crate) struct Harness<F: Future, O: Origin> {
        #[pin]
        body: Body<F>,
        origin: O,
    }

    impl<F: Future, O: Origin> PinnedDrop for Harness<F, O> {
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

    /// Enters a task in the live table.
    #[inline(never)] // Once in the life of a task that waits.
    fn enter_live(waker: &Waker) -> Stage {
        let waker = waker.clone();
        let entered = context::with_local(|local| local.enter_live(waker));
        let key = entered.expect("a task is polled on its loop");
        debug_assert!(
            key.0 < Stage::RUNNING.0,
            "so many tasks do not fit in memory"
        );
        Stage(key.0)
    }
}

/// Counts a task that is about to be polled for the first time; returns the place that counts its end.
#[inline]
fn begin() -> &'static Place {
    match this_thread::unlimited_place() {
        Some(place) => {
            place.counters.begin_unlimited();
            place
        }
        None => begin_limited(),
    }
}

#[inline(never)]
fn begin_limited() -> &'static Place {
    let place = this_thread::place().expect("a task is polled on its loop");
    place.counters.begin();
    place
}

impl<F: Future, O: Origin> Harness<F, O> {
    pub(crate) fn new(future: F, origin: O) -> Harness<F, O> {
        Harness {
            body: Body::Present {
                stage: Stage::FRESH,
                future,
            },
            origin,
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

    /// Ends a task that is dropped before it has ended: cancelled, or panicked if its destructor does.
    /// Returns whether it is cancelled.
    fn drop_unfinished(self: Pin<&mut Self>) -> bool {
        let location = self.origin.location();
        let dropped = self.end(TaskEnd::Cancelled);
        dropped
            .map_err(|payload| {
                context::panics_in_drop().report(PanicSite::Destructor, payload, Some(location));
            })
            .is_ok()
    }

    /// A poll that differs from others.
    #[cold]
    fn poll_specially(
        mut self: Pin<&mut Self>,
        special: SpecialPoll,
        cx: &mut Context<'_>,
    ) -> Poll<TaskOutcome<F::Output>> {
        let reason = match special {
            SpecialPoll::Cancel(reason) => reason,
            SpecialPoll::NoteEnd => {
                let polled = self.as_mut().poll(cx);
                if let Poll::Ready(outcome) = &polled {
                    self.note_end(outcome.end(), cx.waker());
                }
                return polled;
            }
        };
        let cancelled = self.as_mut().drop_unfinished();
        let origin = self.origin.left_kind();
        context::with_local(|local| match cancelled {
            true => local.note_cancelled(reason, origin, cx.waker()),
            false => local.note_end(TaskEnd::Panicked, origin, cx.waker()),
        });
        Poll::Ready(TaskOutcome::cancelled())
    }

    /// Has the loop take a note of an end.
    fn note_end(&self, end: TaskEnd, waker: &Waker) {
        let origin = self.origin.left_kind();
        context::with_local(|local| local.note_end(end, origin, waker));
    }

    /// Ends a task whose future panicked: in a poll, or, if there is a `value`, when it was dropped.
    #[cold]
    fn panicked(
        mut self: Pin<&mut Self>,
        payload: Payload,
        first: bool,
        before: Stage,
        value: Option<F::Output>,
    ) -> TaskOutcome<F::Output> {
        let body = self.as_mut().project().body;
        let stage = if first { Stage::RUNNING } else { before };
        if let (true, BodyProjection::Present { stage, .. }) = (first, body.project()) {
            *stage = Stage::RUNNING;
        }
        let (location, name) = (self.origin.location(), self.origin.name().cloned());
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
        TaskOutcome::panicked(payload, location, name)
    }
}

impl Stage {
    /// Counts the end of a task whose future is dropped, and removes it from the live table.
    #[inline(never)]
    fn record_end(self, end: TaskEnd) {
        context::with_local(|local| match self {
            // A refused task was never counted.
            Stage::FRESH if context::refused_by().is_none() => local.dropped_unpolled(end),
            Stage::FRESH => {}
            Stage::RUNNING => local.shared.place.counters.end(end),
            Stage(key) => {
                local.leave_live(LiveKey(key));
                local.shared.place.counters.end(end);
            }
        });
    }
}

impl<F: Future, O: Origin> Future for Harness<F, O> {
    type Output = TaskOutcome<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TaskOutcome<F::Output>> {
        if let Some(special) = this_thread::take_special_poll() {
            return self.poll_specially(special, cx);
        }
        trace::polling(self.origin.location());
        let mut body = self.as_mut().project().body;
        // Set in the first poll; then the stage in the body is not up to date before it has ended.
        let mut first = None;
        let mut before = Stage::RUNNING;
        let mut value = None;
        // One `contain` for the poll and, if it was the last, for the drop of the future.
        let polled = contain(|| {
            let BodyProjection::Present { stage, future } = body.as_mut().project() else {
                unreachable!("async-task does not poll a finished future")
            };
            if *stage == Stage::FRESH {
                first = Some(begin());
            }
            match future.poll(cx) {
                Poll::Ready(ready) => {
                    before = *stage;
                    value = Some(ready);
                    body.set(Body::Ended);
                }
                Poll::Pending if first.is_some() => *stage = Stage::enter_live(cx.waker()),
                Poll::Pending => {}
            }
        });
        match (polled, value) {
            (Ok(()), None) => Poll::Pending,
            (Ok(()), Some(value)) => {
                match first {
                    // The shortest life, and the shortest way.
                    Some(place) => place.counters.end(TaskEnd::Completed),
                    None => before.record_end(TaskEnd::Completed),
                }
                Poll::Ready(TaskOutcome::value(value))
            }
            (Err(payload), value) => {
                let first = first.is_some();
                Poll::Ready(self.panicked(payload, first, before, value))
            }
        }
    }
}

/// The output of a task: a value, or a panic that is reported if it is not joined, or neither of them if the
/// task was cancelled.
///
/// - async-task drops an output that is not taken, and aborts if that panics: hence the `Drop` here.
/// - A tag and a payload, no more: async-task copies an output several times between the poll and the join,
///   in parts of other sizes than it was written in, and each copy waits for the one before.
pub(crate) struct TaskOutcome<T>(OutcomeRepr<T>);

enum OutcomeRepr<T> {
    Value(T),
    /// Boxed, for one pointer and a tag go through registers.
    Failed(Box<Failure>),
    /// Cancelled, or taken.
    Nothing,
}

enum Failure {
    Panicked(Unjoined),
    Refused(RejectReason),
}

impl<T> TaskOutcome<T> {
    #[inline]
    pub(crate) fn value(value: T) -> TaskOutcome<T> {
        TaskOutcome(OutcomeRepr::Value(value))
    }

    pub(crate) fn cancelled() -> TaskOutcome<T> {
        TaskOutcome(OutcomeRepr::Nothing)
    }

    pub(crate) fn refused(reason: RejectReason) -> TaskOutcome<T> {
        TaskOutcome(OutcomeRepr::Failed(Box::new(Failure::Refused(reason))))
    }

    #[cold]
    pub(crate) fn panicked(
        payload: Payload,
        location: Caller,
        name: Option<Cow<'static, str>>,
    ) -> TaskOutcome<T> {
        // A job of a blocking group has no loop.
        let panics = context::with_local(|local| local.shared.panics.clone());
        let panics = panics.unwrap_or(PanicReporter::STDERR);
        panics.trace(PanicSite::Task, &payload, Some(location));
        let record = Some(Box::new(PanicRecord::new(payload, location, name)));
        let failure = Failure::Panicked(Unjoined { record, panics });
        TaskOutcome(OutcomeRepr::Failed(Box::new(failure)))
    }

    /// Takes the result, for a join.
    #[inline]
    pub(crate) fn join(mut self) -> Result<T, JoinError> {
        match self.take() {
            OutcomeRepr::Value(value) => Ok(value),
            other => Err(other.join_failure()),
        }
    }

    /// Takes the value, if any; a panic is reported.
    pub(crate) fn value_or_report(mut self) -> Option<T> {
        match self.take() {
            OutcomeRepr::Value(value) => Some(value),
            _ => None,
        }
    }

    /// How the task has ended, which was not refused.
    fn end(&self) -> TaskEnd {
        match self.0 {
            OutcomeRepr::Value(_) => TaskEnd::Completed,
            OutcomeRepr::Failed(_) => TaskEnd::Panicked,
            OutcomeRepr::Nothing => TaskEnd::Cancelled,
        }
    }

    #[inline]
    fn take(&mut self) -> OutcomeRepr<T> {
        std::mem::replace(&mut self.0, OutcomeRepr::Nothing)
    }
}

impl<T> OutcomeRepr<T> {
    #[cold]
    fn join_failure(self) -> JoinError {
        let failure = match self {
            OutcomeRepr::Failed(failure) => *failure,
            OutcomeRepr::Value(_) | OutcomeRepr::Nothing => return JoinError::cancelled(),
        };
        match failure {
            Failure::Refused(reason) => JoinError::rejected(reason),
            Failure::Panicked(mut unjoined) => {
                let record = unjoined.record.take().expect("the panic is taken once");
                JoinError::panic(record)
            }
        }
    }
}

impl<T> Drop for TaskOutcome<T> {
    #[inline]
    fn drop(&mut self) {
        // Values without a destructor need no protection from it.
        if needs_drop::<T>() {
            if let OutcomeRepr::Value(_) = self.0 {
                drop_value(self.take());
            }
        }
    }
}

/// Drops a value that was not joined.
fn drop_value<T>(value: OutcomeRepr<T>) {
    if let Err(payload) = contain_drop(value) {
        context::panics_in_drop().report(PanicSite::Destructor, payload, None);
    }
}

/// A panic that was not joined yet; reported when it is dropped.
struct Unjoined {
    record: Option<Box<PanicRecord>>,
    panics: PanicReporter,
}

impl Drop for Unjoined {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.panics.show_task(*record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_adds_two_words() {
        type Words = std::future::Ready<[u64; 8]>;
        let extra = size_of::<Harness<Words, Caller>>() - size_of::<Words>();
        assert!(extra <= 16, "{extra} bytes");
        async fn sleeper() {
            crate::yield_now().await;
        }
        fn extra_of<F: Future>(_: &F) -> usize {
            size_of::<Harness<F, Caller>>() - size_of::<F>()
        }
        let extra = extra_of(&sleeper());
        assert!(extra <= 24, "{extra} bytes, of which some are padding");
    }
}
