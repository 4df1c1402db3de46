//! The wrapper of a user's future inside its task: it counts the task and contains panics.
//!
//! - `Fresh → Running → Live → Ended`; a task is counted as begun once and as ended once.
//! - A task that is [cancelled](crate::event_loop::local::cancel_task) is polled once more: the harness
//!   drops the future instead of polling it, and the outcome says so.
//! - The future is dropped by the harness, under `contain`: async-task would abort the process if a
//!   destructor panics. The same holds for the output, which [`TaskOutcome`] drops.
//! - The entry in the live table is removed only after the future is dropped.
//! - The stage and the [number](crate::site) of the place of the spawn share a word, and whether the future
//!   is present shows in the stage: a task is small.
//!
//! ```text
//!   Fresh ──poll──▶ Running ──Pending──▶ Live(key) ──poll──▶ …
//!     │               │                    │
//!     └──cancel───────┴──Ready, panic──────┴──Ready, panic, cancel──▶ Ended
//! ```

use std::borrow::Cow;
use std::future::Future;
use std::mem::needs_drop;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;

use crate::error::{Caller, JoinError, PanicRecord, RejectReason};
use crate::event_loop::context;
use crate::event_loop::counters::TaskEnd;
use crate::event_loop::live::LiveKey;
use crate::event_loop::place::Place;
use crate::left_tasks::LeftKind;
use crate::panic::{PanicReporter, PanicSite};
use crate::recorder::event::WorkKind;
use crate::site::Site;
use crate::task::origin::{Origin, TaskName};
use crate::this_thread::{self, CancelReason, SpecialPoll};
use crate::unwind::{Payload, contain, contain_drop};

pin_project! {
    /// The future of a task, with its bookkeeping.
    pub(crate) struct Harness<F: Future, N: TaskName> {
        #[pin]
        body: Body<F>,
        name: N,
    }

    impl<F: Future, N: TaskName> PinnedDrop for Harness<F, N> {
        fn drop(this: Pin<&mut Self>) {
            // Most have ended: asked here, that takes no call.
            if let Body::Present { .. } = this.body {
                this.drop_unfinished();
            }
        }
    }
}

pin_project! {
    #[project = BodyProjection]
    enum Body<F> {
        Present {
            mark: Mark,
            #[pin]
            future: F,
        },
        Ended,
    }
}

/// The stage of a task that has not ended, and the place of its spawn: a word, of which zero is left to say
/// that a [`Body`] has ended. The mark of a fresh task is the number of its place.
///
/// A task is written to the stack and then copied to its memory. Two halves that are written one by one and
/// copied as a word make the copy wait; the bench that pays for it is `w2` of `benches/compare`.
#[derive(Clone, Copy, Debug)]
struct Mark(NonZeroU64);

impl Mark {
    #[inline]
    fn new(stage: Stage, site: Site) -> Mark {
        Mark(NonZeroU64::from(site.number()) | u64::from(stage.0) << 32)
    }

    #[inline]
    fn stage(self) -> Stage {
        Stage((self.0.get() >> 32) as u32)
    }

    #[inline]
    fn site(self) -> Site {
        Site::numbered(self.0.get() as u32).expect("a mark is made of a site")
    }

    fn set_stage(&mut self, stage: Stage) {
        *self = Mark::new(stage, self.site());
    }
}

/// The stage of a task that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage(u32);

impl Stage {
    /// Never polled. The only one without the highest bit: its sign is found in a [`Mark`] at once.
    const FRESH: Stage = Stage(0);
    /// With the key in the live table.
    const LIVE: u32 = 1 << 31;
    /// In its first poll. No key is as high.
    const RUNNING: Stage = Stage(u32::MAX);

    #[inline]
    fn is_fresh(self) -> bool {
        self.0 < Stage::LIVE
    }

    /// Enters a task in the live table.
    #[inline(never)] // Once in the life of a task that waits.
    fn enter_live(waker: &Waker) -> Stage {
        let waker = waker.clone();
        let entered = context::with_local(|local| local.enter_live(waker));
        let LiveKey(key) = entered.expect("a task is polled on its loop");
        assert!(
            key < Stage::RUNNING.0 - Stage::LIVE,
            "so many tasks do not fit in memory"
        );
        Stage(Stage::LIVE | key)
    }

    /// The key in the live table.
    fn key(self) -> LiveKey {
        LiveKey(self.0 & !Stage::LIVE)
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

impl<F: Future, N: TaskName> Harness<F, N> {
    pub(crate) fn new(future: F, origin: impl Origin<Name = N>) -> Harness<F, N> {
        Harness {
            body: Body::Present {
                mark: Mark::new(Stage::FRESH, origin.site()),
                future,
            },
            name: origin.into_name(),
        }
    }

    /// The place of the spawn, while the task has not ended.
    fn site(&self) -> Option<Site> {
        match &self.body {
            Body::Present { mark, .. } => Some(mark.site()),
            Body::Ended => None,
        }
    }

    /// What the poll that begins is to a recorder.
    fn kind_of_poll(&self) -> WorkKind {
        match self.body {
            Body::Present { mark, .. } if mark.stage().is_fresh() => WorkKind::FirstPoll,
            _ => WorkKind::Poll,
        }
    }

    /// The origin, for a report of tasks that were left over.
    fn left_kind(&self, site: Site) -> LeftKind {
        LeftKind::new(site.location(), self.name.get().cloned())
    }

    /// Drops the future; the task ends as `end`, or as panicked if the drop panics.
    fn end(self: Pin<&mut Self>, end: TaskEnd) -> Result<(), Payload> {
        let mut body = self.project().body;
        let BodyProjection::Present { mark, .. } = body.as_mut().project() else {
            return Ok(());
        };
        let stage = mark.stage();
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
    #[inline(never)]
    fn drop_unfinished(self: Pin<&mut Self>) -> bool {
        let site = self.site();
        let dropped = self.end(TaskEnd::Cancelled);
        dropped
            .map_err(|payload| {
                let location = site.map(Site::location);
                context::panics_in_drop().report(PanicSite::Destructor, payload, location);
            })
            .is_ok()
    }

    /// A poll that differs from others.
    #[cold]
    fn poll_specially(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<TaskOutcome<F::Output>> {
        // Taken, for a poll inside of this one is as others.
        let special = this_thread::take_special_poll();
        let special = special.expect("the poll is special");
        let site = self.site().expect("a task that has ended is not polled");
        let kind = match special {
            SpecialPoll::Cancel(_) => WorkKind::Cancel,
            SpecialPoll::Shown | SpecialPoll::NoteEnd => self.kind_of_poll(),
        };
        context::with_local(|local| local.observer.show(kind, Some(site), self.name.named()));
        let reason = match special {
            SpecialPoll::Cancel(reason) => reason,
            SpecialPoll::Shown | SpecialPoll::NoteEnd => {
                let polled = self.as_mut().poll(cx);
                if let Poll::Ready(outcome) = &polled {
                    let end = outcome.end();
                    context::with_local(|local| local.observer.note_task_end(end));
                    if special == SpecialPoll::NoteEnd {
                        let origin = self.left_kind(site);
                        context::with_local(|local| local.note_end(end, origin, cx.waker()));
                    }
                }
                return polled;
            }
        };
        let cancelled = self.as_mut().drop_unfinished();
        let origin = self.left_kind(site);
        let end = match cancelled {
            true => TaskEnd::Cancelled,
            false => TaskEnd::Panicked,
        };
        context::with_local(|local| {
            // A refused task is dropped in what submits it, which has not ended.
            if reason != CancelReason::Refused {
                local.observer.note_task_end(end);
            }
            match cancelled {
                true => local.note_cancelled(reason, origin, cx.waker()),
                false => local.note_end(end, origin, cx.waker()),
            }
        });
        Poll::Ready(TaskOutcome::cancelled())
    }

    /// Ends a task whose future panicked: in a poll, or when it was dropped, after the `last` one; with what
    /// that one has returned, and the mark that the body had.
    #[cold]
    fn panicked(
        mut self: Pin<&mut Self>,
        payload: Payload,
        first: bool,
        last: Option<(F::Output, Mark)>,
    ) -> TaskOutcome<F::Output> {
        let (mark, value) = match (last, self.as_mut().project().body.project()) {
            (Some((value, mark)), _) => (mark, Some(value)),
            (None, BodyProjection::Present { mark, .. }) => {
                if first {
                    mark.set_stage(Stage::RUNNING);
                }
                (*mark, None)
            }
            (None, BodyProjection::Ended) => unreachable!("a future was polled"),
        };
        let (location, name) = (mark.site().location(), self.name.get().cloned());
        let second = if value.is_some() {
            let stage = if first { Stage::RUNNING } else { mark.stage() };
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
            live => {
                local.leave_live(live.key());
                local.shared.place.counters.end(end);
            }
        });
    }
}

impl<F: Future, N: TaskName> Future for Harness<F, N> {
    type Output = TaskOutcome<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TaskOutcome<F::Output>> {
        if this_thread::is_special_poll() {
            return self.poll_specially(cx);
        }
        let mut body = self.as_mut().project().body;
        // Set in the first poll; then the stage in the body is not up to date before it has ended.
        let mut first = None;
        // Set in the last poll: what it returned, and the mark, which the body then no longer has.
        let mut last = None;
        // One `contain` for the poll and, if it was the last, for the drop of the future.
        let polled = contain(|| {
            let BodyProjection::Present { mark, future } = body.as_mut().project() else {
                unreachable!("async-task does not poll a finished future")
            };
            if mark.stage().is_fresh() {
                first = Some(begin());
            }
            match future.poll(cx) {
                Poll::Ready(value) => {
                    last = Some((value, *mark));
                    body.set(Body::Ended);
                }
                Poll::Pending if first.is_some() => {
                    mark.set_stage(Stage::enter_live(cx.waker()));
                }
                Poll::Pending => {}
            }
        });
        match (polled, last) {
            (Ok(()), None) => Poll::Pending,
            (Ok(()), Some((value, mark))) => {
                match first {
                    // The shortest life, and the shortest way.
                    Some(place) => place.counters.end(TaskEnd::Completed),
                    None => mark.stage().record_end(TaskEnd::Completed),
                }
                Poll::Ready(TaskOutcome::value(value))
            }
            (Err(payload), last) => Poll::Ready(self.panicked(payload, first.is_some(), last)),
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
        let record = Some(PanicRecord::new(payload, location, name));
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
    record: Option<PanicRecord>,
    panics: PanicReporter,
}

impl Drop for Unjoined {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.panics.show_task(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::origin::Unnamed;

    #[test]
    fn the_harness_adds_a_word() {
        struct Words([u64; 8]);
        impl Future for Words {
            type Output = u64;
            fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u64> {
                Poll::Ready(self.0[0])
            }
        }
        let extra = size_of::<Harness<Words, Unnamed>>() - size_of::<Words>();
        assert_eq!(extra, 8);
        async fn sleeper() {
            crate::yield_now().await;
        }
        fn extra_of<F: Future>(_: &F) -> usize {
            size_of::<Harness<F, Unnamed>>() - size_of::<F>()
        }
        let extra = extra_of(&sleeper());
        assert!(extra <= 16, "{extra} bytes, of which some are padding");
    }
}
