//! What loops tell `tracing`: nothing, and at no cost, unless the feature of that name is on.
//!
//! - A loop's thread is inside a span `event_loop` from start to end, so what tasks log shows where it
//!   was logged.
//! - Subscribers are foreign code: they are called with no lock and no borrow held, and what they panic with
//!   ends here.
//! - A subscriber may submit to a loop, and be refused. What happens on a thread while it tells is not told by that
//!   thread again: a refusal of the telling would be the next event, and so on until the stack is full.
//! - Events name the place in the source where the task was spawned, wherever there is a task.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(feature = "tracing")]
mod on {
    use std::cell::Cell;
    use std::fmt::Display;
    use std::io;
    use std::panic::Location;
    use std::time::Duration;

    use tracing::{debug, debug_span, error, info, warn};

    use crate::error::RejectReason;

    use crate::report::LoopReport;
    use crate::unwind::{contain, discard};

    thread_local! {
        /// Where the task that is polled right now was spawned.
        static POLLED: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
        /// The subscriber is being called.
        static TELLING: Cell<bool> = const { Cell::new(false) };
    }

    /// Keeps the thread inside the span of its loop.
    pub(crate) struct LoopSpan(Option<tracing::span::EnteredSpan>);

    impl Drop for LoopSpan {
        fn drop(&mut self) {
            tell(|| drop(self.0.take()));
        }
    }

    /// Calls the subscriber, unless it is the subscriber who asks for it.
    fn tell<R>(call: impl FnOnce() -> R) -> Option<R> {
        if TELLING.replace(true) {
            return None;
        }
        let told = contain(call);
        TELLING.set(false);
        told.map_err(discard).ok()
    }

    fn place(location: Option<&'static Location<'static>>) -> Option<impl tracing::Value> {
        location.map(|location| tracing::field::display(location as &dyn Display))
    }

    pub(crate) fn loop_started(index: usize) -> LoopSpan {
        LoopSpan(tell(|| {
            let span = debug_span!("event_loop", index).entered();
            info!(index, "event loop started");
            span
        }))
    }

    pub(crate) fn loop_ended(report: &LoopReport) {
        tell(|| {
            info!(
                index = report.index(),
                cause = ?report.cause(),
                error = report.error().map(tracing::field::display),
                completed = report.completed(),
                panicked = report.panicked(),
                cancelled = report.cancelled(),
                "event loop ended"
            );
        });
    }

    /// A step on the way to the end of a loop.
    pub(crate) fn shutdown(index: usize, phase: &'static str) {
        tell(|| debug!(index, phase, "event loop shuts down"));
    }

    pub(crate) fn panicked(
        site: &dyn Display,
        message: &str,
        index: Option<usize>,
        location: Option<&'static Location<'static>>,
    ) {
        tell(|| {
            error!(
                site = %site,
                message,
                index,
                spawned_at = place(location),
                "panic caught"
            );
        });
    }

    pub(crate) fn rejected(
        index: usize,
        reason: RejectReason,
        location: &'static Location<'static>,
    ) {
        tell(|| {
            warn!(
                index,
                reason = %reason,
                spawned_at = place(Some(location)),
                "task refused"
            );
        });
    }

    pub(crate) fn rebuilt(error: Option<&io::Error>) {
        let error = error.map(tracing::field::display);
        tell(|| warn!(error, "selector rebuilt"));
    }

    /// Notes which task is polled, for [`polled`].
    pub(crate) fn polling(location: &'static Location<'static>) {
        POLLED.set(Some(location));
    }

    /// Tells of a poll that took `time`, if the loop's limit says that this is long.
    pub(crate) fn polled(index: usize, slow: Option<Duration>, time: Duration) {
        let location = POLLED.take();
        if slow.is_none_or(|slow| time < slow) {
            return;
        }
        tell(|| {
            warn!(index, ?time, spawned_at = place(location), "slow poll");
        });
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use std::fmt::Display;
    use std::io;
    use std::panic::Location;
    use std::time::Duration;

    use crate::error::RejectReason;
    use crate::report::LoopReport;

    pub(crate) struct LoopSpan;

    pub(crate) fn loop_started(_: usize) -> LoopSpan {
        LoopSpan
    }

    pub(crate) fn loop_ended(_: &LoopReport) {}

    pub(crate) fn shutdown(_: usize, _: &'static str) {}

    pub(crate) fn panicked(
        _: &dyn Display,
        _: &str,
        _: Option<usize>,
        _: Option<&'static Location<'static>>,
    ) {
    }

    pub(crate) fn rejected(_: usize, _: RejectReason, _: &'static Location<'static>) {}

    pub(crate) fn rebuilt(_: Option<&io::Error>) {}

    pub(crate) fn polling(_: &'static Location<'static>) {}

    pub(crate) fn polled(_: usize, _: Option<Duration>, _: Duration) {}
}
