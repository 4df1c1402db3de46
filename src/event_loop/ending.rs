//! The last steps of a loop's life: it makes its report and announces its end.

use std::io;

use crate::event_loop::shared::Shared;
use crate::event_loop::terms::ShutdownTerms;
use crate::left_tasks::LeftTasks;
use crate::report::{EndCause, LoopReport};
use crate::sync::Arc;
use crate::trace;

/// How a loop ended.
pub(crate) struct Ending {
    pub(crate) started: bool,
    pub(crate) cause: EndCause,
    pub(crate) error: Option<io::Error>,
    pub(crate) terms: Option<ShutdownTerms>,
    /// The tasks that were ended by force.
    pub(crate) left: Vec<LeftTasks>,
}

impl Shared {
    /// Makes the report, and announces the end to the siblings and to all observers.
    pub(crate) fn terminate(&self, end: Ending) {
        let figures = self.place.counters.figures(self.inbox.accepted());
        debug_assert_eq!(
            figures.accepted,
            figures.completed + figures.panicked + figures.cancelled,
            "every accepted task has ended"
        );
        let now = self.config.clock.now();
        let report = LoopReport {
            index: self.index,
            started: end.started,
            paused: self.is_paused(),
            cause: end.cause,
            error: end.error.map(Arc::new),
            requested_at: end.terms.map_or(now, |terms| terms.requested_at),
            ended_at: now,
            figures,
            rejected: Arc::clone(&self.rejected),
            left: end.left.into(),
        };
        self.inbox.lock().edit(|life| life.end());
        self.number.release();
        self.announce_shutdown();
        trace::loop_ended(&report);
        // Siblings first: an observer is foreign code, and may take its time.
        self.parent.sibling_ended(self.index);
        self.termination.child_done(0, report.clone());
        self.parent.report(report);
    }
}
