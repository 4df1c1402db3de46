//! What surrounds a user's future inside its task: it counts, and panics end here.
//!
//! - `Fresh → Running → Live → Ended`; a task is counted as begun once and as ended once.
//! - The future is dropped by the harness, under `contain`: async-task would abort the process over
//!   a panicking destructor. The same holds for the output, which [`Outcome`] drops.
//! - The entry in the live table leaves it only once the future is gone.
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
use crate::event_loop::counters::End;
use crate::event_loop::local::Local;
use crate::event_loop::shared::Shared;
use crate::panic::{PanicSite, Payload, contain, contain_drop, discard};
use crate::sync::Arc;
use crate::task::live::LiveKey;

pin_project! {
    /// The future of a task, with its book-keeping.
    pub(crate) struct Harness<F: Future> {
        #[pin]
        future: Option<F>,
        stage: Stage,
        location: &'static Location<'static>,
    }

    impl<F: Future> PinnedDrop for Harness<F> {
        fn drop(this: Pin<&mut Self>) {
            this.drop_unfinished();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fresh,
    Running,
    Live(LiveKey),
    Ended,
}

impl<F: Future> Harness<F> {
    pub(crate) fn new(future: F, location: &'static Location<'static>) -> Harness<F> {
        Harness {
            future: Some(future),
            stage: Stage::Fresh,
            location,
        }
    }

    /// Drops the future and leaves the live table; the task ends as `end` unless that panics.
    fn end(self: Pin<&mut Self>, end: End) -> Result<(), Payload> {
        let mut this = self.project();
        let dropped = contain(|| this.future.set(None));
        let end = if dropped.is_err() { End::Panicked } else { end };
        let stage = std::mem::replace(this.stage, Stage::Ended);
        context::with_local(|local| match stage {
            // A refused task was never ours to count.
            Stage::Fresh if context::refused_by().is_none() => local.dropped_unpolled(end),
            Stage::Fresh => {}
            Stage::Running => local.shared.counters.end(end),
            Stage::Live(key) => {
                local.leave_live(key);
                local.shared.counters.end(end);
            }
            Stage::Ended => {}
        });
        dropped
    }

    /// A task dropped before its end: cancelled.
    fn drop_unfinished(self: Pin<&mut Self>) {
        if self.stage == Stage::Ended {
            return;
        }
        let location = self.location;
        if let Err(payload) = self.end(End::Cancelled) {
            report_here(PanicSite::Destructor, payload, Some(location));
        }
    }
}

impl<F: Future> Future for Harness<F> {
    type Output = Outcome<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<F::Output>> {
        if self.stage == Stage::Fresh {
            context::with_local(Local::begin);
            *self.as_mut().project().stage = Stage::Running;
        }
        let polled = contain(|| {
            self.as_mut()
                .project()
                .future
                .as_pin_mut()
                .expect("async-task does not poll a finished future")
                .poll(cx)
        });
        match polled {
            Ok(Poll::Pending) => {
                if self.stage == Stage::Running {
                    let waker = cx.waker().clone();
                    let key = context::with_local(|local| local.enter_live(waker));
                    *self.as_mut().project().stage =
                        Stage::Live(key.expect("a task is polled on its loop"));
                }
                Poll::Pending
            }
            Ok(Poll::Ready(value)) => {
                let location = self.location;
                Poll::Ready(match self.end(End::Completed) {
                    Ok(()) => Outcome::value(value),
                    Err(payload) => {
                        // The value goes the way of its task.
                        if let Err(second) = contain_drop(value) {
                            report_here(PanicSite::Destructor, second, Some(location));
                        }
                        Outcome::panicked(payload, location)
                    }
                })
            }
            Err(payload) => {
                let location = self.location;
                if let Err(second) = self.end(End::Panicked) {
                    report_here(PanicSite::Destructor, second, Some(location));
                }
                Poll::Ready(Outcome::panicked(payload, location))
            }
        }
    }
}

/// Reports a panic through the loop that refused the task, else through the loop of this thread.
#[cold]
fn report_here(site: PanicSite, payload: Payload, location: Option<&'static Location<'static>>) {
    let shared =
        context::refused_by().or_else(|| context::with_local(|local| Arc::clone(&local.shared)));
    Shared::report_panic_of(shared.as_deref(), site, &*payload, location);
    discard(payload);
}

/// The output of a task: a value, or a panic that is reported if nobody joins it.
///
/// async-task drops an output that nobody takes, and aborts if that panics: hence the guard here.
pub(crate) struct Outcome<T>(Option<Result<T, Box<Unjoined>>>);

impl<T> Outcome<T> {
    pub(crate) fn value(value: T) -> Outcome<T> {
        Outcome(Some(Ok(value)))
    }

    #[cold]
    pub(crate) fn panicked(payload: Payload, location: &'static Location<'static>) -> Outcome<T> {
        Outcome(Some(Err(Box::new(Unjoined {
            payload: Some(payload),
            location,
            home: context::with_local(|local| Arc::clone(&local.shared)),
        }))))
    }

    /// Hands the result to the one who joins.
    pub(crate) fn join(mut self) -> Result<T, (Payload, &'static Location<'static>)> {
        match self.0.take().expect("an outcome is joined once") {
            Ok(value) => Ok(value),
            Err(mut unjoined) => {
                let payload = unjoined.payload.take().expect("it is still there");
                Err((payload, unjoined.location))
            }
        }
    }

    /// Hands out the value, for one who does not want to hear of a panic: that is reported.
    pub(crate) fn value_or_report(mut self) -> Option<T> {
        self.0.take().and_then(Result::ok)
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        if let Some(Ok(value)) = self.0.take() {
            if let Err(payload) = contain_drop(value) {
                report_here(PanicSite::Destructor, payload, None);
            }
        }
    }
}

/// A panic on its way to whoever joins; on its drop it is reported, for nobody will.
pub(crate) struct Unjoined {
    payload: Option<Payload>,
    location: &'static Location<'static>,
    /// `None` for a job of a blocking group.
    home: Option<Arc<Shared>>,
}

impl Drop for Unjoined {
    fn drop(&mut self) {
        if let Some(payload) = self.payload.take() {
            let location = Some(self.location);
            let home = self.home.as_deref();
            Shared::report_panic_of(home, PanicSite::Task, &*payload, location);
            discard(payload);
        }
    }
}
