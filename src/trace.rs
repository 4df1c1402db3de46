//! The events that loops emit through `tracing`: none, and at no cost, unless that feature is enabled.
//!
//! - A loop's thread is inside a span `event_loop` from start to end, so events that tasks log show
//!   their loop.
//! - Subscribers are user code: they are called with no lock and no borrow held, and their panics are
//!   contained here.
//! - A subscriber may submit to a loop, and be rejected. While a thread calls the subscriber it emits no
//!   further events: each rejection would emit the next one, until the stack overflows.
//! - Events about a task name the source location that spawned it.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(feature = "tracing")]
mod on {
    use std::cell::Cell;
    use std::fmt::Display;
    use std::io;
    use std::time::Duration;

    use tracing::{debug, debug_span, error, info, warn};

    use crate::error::{Caller, RejectReason};

    use crate::report::LoopReport;
    use crate::site::Site;
    use crate::unwind::{contain, discard};
    use crate::watchdog::stall::Stall;

    thread_local! {
        /// Whether this thread is calling the subscriber.
        static IN_SUBSCRIBER: Cell<bool> = const { Cell::new(false) };
    }

    /// Keeps the thread inside the span of its loop.
    pub(crate) struct LoopSpan(Option<tracing::span::EnteredSpan>);

    impl Drop for LoopSpan {
        fn drop(&mut self) {
            emit(|| drop(self.0.take()));
        }
    }

    /// Calls the subscriber, unless this is called by the subscriber itself.
    fn emit<R>(call: impl FnOnce() -> R) -> Option<R> {
        if IN_SUBSCRIBER.replace(true) {
            return None;
        }
        let result = contain(call);
        IN_SUBSCRIBER.set(false);
        result.map_err(discard).ok()
    }

    fn location_field(location: Option<Caller>) -> Option<impl tracing::Value> {
        location.map(|location| tracing::field::display(location as &dyn Display))
    }

    pub(crate) fn loop_started(index: usize) -> LoopSpan {
        LoopSpan(emit(|| {
            let span = debug_span!("event_loop", index).entered();
            info!(index, "event loop started");
            span
        }))
    }

    pub(crate) fn loop_ended(report: &LoopReport) {
        emit(|| {
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

    /// Records that a loop has reached a phase of its shutdown.
    pub(crate) fn shutdown(index: usize, phase: &'static str) {
        emit(|| debug!(index, phase, "event loop shuts down"));
    }

    /// Records that a loop was paused, or resumed.
    pub(crate) fn paused(index: usize, paused: bool) {
        emit(|| match paused {
            true => info!(index, "event loop paused"),
            false => info!(index, "event loop resumed"),
        });
    }

    /// Records that a loop without work ends its thread.
    pub(crate) fn parked(index: usize) {
        emit(|| info!(index, "event loop parks"));
    }

    /// Records that an elastic group needs more loops or fewer.
    pub(crate) fn scaled(active: usize, utilization: f64) {
        emit(|| info!(active, utilization, "event loop group scales"));
    }

    /// Records that a server asks a connection to move.
    pub(crate) fn rebalanced(from: usize, to: usize, share: f64, utilizations: (f64, f64)) {
        emit(|| {
            debug!(
                from,
                to,
                share,
                from_utilization = utilizations.0,
                to_utilization = utilizations.1,
                "connection rebalanced"
            );
        });
    }

    pub(crate) fn panicked(
        site: &dyn Display,
        message: &str,
        index: Option<usize>,
        location: Option<Caller>,
    ) {
        emit(|| {
            error!(
                site = %site,
                message,
                index,
                spawned_at = location_field(location),
                "panic caught"
            );
        });
    }

    pub(crate) fn rejected(index: usize, reason: RejectReason, location: Caller) {
        emit(|| {
            warn!(
                index,
                reason = %reason,
                spawned_at = location_field(Some(location)),
                "task rejected"
            );
        });
    }

    pub(crate) fn rebuilt(error: Option<&io::Error>) {
        let error = error.map(tracing::field::display);
        emit(|| warn!(error, "selector rebuilt"));
    }

    /// Logs a poll that has not returned.
    pub(crate) fn stalled(stall: &Stall) {
        emit(|| {
            warn!(
                index = stall.loop_index(),
                task = stall.task_id().map(tracing::field::display),
                name = stall.name(),
                spawned_at = location_field(stall.location()),
                time = ?stall.duration(),
                kind = %stall.kind(),
                suppressed = stall.suppressed(),
                "stall"
            );
        });
    }

    /// Logs a poll that took `time`, if that reaches the limit `slow`.
    pub(crate) fn polled(index: usize, slow: Option<Duration>, time: Duration, site: Option<Site>) {
        if slow.is_none_or(|slow| time < slow) {
            return;
        }
        emit(|| {
            warn!(
                index,
                ?time,
                spawned_at = location_field(site.map(Site::location)),
                "slow poll"
            );
        });
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use std::fmt::Display;
    use std::io;
    use std::time::Duration;

    use crate::error::{Caller, RejectReason};
    use crate::report::LoopReport;
    use crate::site::Site;
    use crate::watchdog::stall::Stall;

    pub(crate) struct LoopSpan;

    pub(crate) fn loop_started(_: usize) -> LoopSpan {
        LoopSpan
    }

    pub(crate) fn loop_ended(_: &LoopReport) {}

    pub(crate) fn shutdown(_: usize, _: &'static str) {}

    pub(crate) fn paused(_: usize, _: bool) {}

    pub(crate) fn parked(_: usize) {}

    pub(crate) fn scaled(_: usize, _: f64) {}

    pub(crate) fn rebalanced(_: usize, _: usize, _: f64, _: (f64, f64)) {}

    pub(crate) fn panicked(_: &dyn Display, _: &str, _: Option<usize>, _: Option<Caller>) {}

    pub(crate) fn rejected(_: usize, _: RejectReason, _: Caller) {}

    pub(crate) fn rebuilt(_: Option<&io::Error>) {}

    pub(crate) fn stalled(_: &Stall) {}

    pub(crate) fn polled(_: usize, _: Option<Duration>, _: Duration, _: Option<Site>) {}
}
