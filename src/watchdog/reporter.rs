//! Where the stalls of a group are reported, and how many of them.
//!
//! - A group reports [`BURST`] stalls at once, and one more per [`REFILL`]. Those that are left out are
//!   counted, and the next report has the count.
//! - The last [`RECENT`] stalls are kept, also those that are left out: one for each poll, with what its last
//!   report says.
//! - A stall freezes the flight recorder of its group, if it is to, before anything else happens.
//! - The handler is user code: it is called on the watchdog's thread with no lock held, and its panics are
//!   contained.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use crate::recorder::tape::Recorder;
use crate::sync::{Arc, plain};
use crate::trace;
use crate::unwind::{contain, discard};
use crate::watchdog::stall::Stall;

/// The most reports at once.
const BURST: u32 = 10;
/// How long it takes until there may be one more.
const REFILL: Duration = Duration::from_secs(6);

/// How many stalls are kept.
const RECENT: usize = 32;

/// A handler of the user's.
pub(crate) type StallHandler = dyn Fn(&Stall) + Send + Sync;

/// The reporter of a group.
pub(crate) struct StallReporter {
    pub(crate) threshold: Duration,
    /// `None` is stderr.
    handler: Option<Arc<StallHandler>>,
    /// Frozen by a stall.
    recorder: Option<Arc<Recorder>>,
    limit: plain::Mutex<Limit>,
    /// The oldest one first.
    recent: plain::Mutex<VecDeque<Stall>>,
}

/// How many reports may be made.
#[derive(Debug)]
struct Limit {
    left: u32,
    /// Since when `left` has not grown.
    since: Option<Instant>,
    suppressed: u64,
}

impl StallReporter {
    pub(crate) fn new(
        threshold: Duration,
        handler: Option<Arc<StallHandler>>,
        recorder: Option<Arc<Recorder>>,
    ) -> StallReporter {
        StallReporter {
            threshold,
            handler,
            recorder,
            limit: plain::Mutex::new(Limit::new()),
            recent: plain::Mutex::new(VecDeque::new()),
        }
    }

    /// Returns the last stalls, the oldest one first.
    pub(crate) fn recent(&self) -> Vec<Stall> {
        self.recent.lock().iter().cloned().collect()
    }

    /// Keeps a stall, in the place of what was kept of the same poll.
    fn keep(&self, stall: &Stall) {
        let mut recent = self.recent.lock();
        let is_same = |one: &&mut Stall| (one.index, one.poll) == (stall.index, stall.poll);
        if let Some(known) = recent.iter_mut().find(is_same) {
            known.clone_from(stall);
            return;
        }
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(stall.clone());
    }

    /// Reports a stall, or counts it.
    pub(crate) fn report(&self, mut stall: Stall, now: Instant) {
        if let (Some(recorder), 1) = (&self.recorder, stall.reports) {
            recorder.freeze();
        }
        let taken = self.limit.lock().take(now);
        stall.suppressed = taken.unwrap_or(0);
        self.keep(&stall);
        if taken.is_none() {
            return;
        }
        trace::stalled(&stall);
        match &self.handler {
            None => print(&stall),
            Some(handler) => {
                if let Err(payload) = contain(|| handler(&stall)) {
                    print(&stall);
                    discard(payload);
                }
            }
        }
    }
}

impl fmt::Debug for StallReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StallReporter")
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}

impl Limit {
    fn new() -> Limit {
        Limit {
            left: BURST,
            since: None,
            suppressed: 0,
        }
    }

    /// Whether a report may be made; then how many were left out before it.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let more = now.saturating_duration_since(since).as_nanos() / REFILL.as_nanos();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(BURST);
            self.since = Some(now);
        }
        if self.left == 0 {
            self.suppressed += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Prints a stall, as one write; it is lost if stderr is closed.
fn print(stall: &Stall) {
    let _ = std::io::stderr().write_all(format!("loopgroup: {stall}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::clock::Clock;
    use crate::watchdog::stall::{PollNumber, StallKind, Subject};

    #[test]
    fn reports_are_limited_and_those_left_out_are_counted() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut limit = Limit::new();
        for _ in 0..BURST {
            assert_eq!(limit.take(start), Some(0));
        }
        assert_eq!([limit.take(at(1)), limit.take(at(5))], [None, None]);
        assert_eq!([limit.take(at(6)), limit.take(at(6))], [Some(2), None]);
        assert_eq!(limit.take(at(12)), Some(1));
        let burst = (0..100).filter(|_| limit.take(at(10_000)).is_some());
        assert_eq!(burst.count() as u32, BURST);
    }

    fn stall(poll: u64, reports: u32) -> Stall {
        Stall {
            at: SystemTime::now(),
            poll: PollNumber::new(poll),
            index: 0,
            thread_name: String::new(),
            subject: Subject::MainFuture,
            location: None,
            name: None,
            duration: Duration::from_secs(1),
            kind: StallKind::Unknown,
            reports,
            suppressed: 0,
        }
    }

    #[test]
    fn the_last_stalls_are_kept_one_for_each_poll() {
        let (handler, start) = (Arc::new(|_: &Stall| ()), Instant::now());
        let reporter = StallReporter::new(Duration::from_secs(1), Some(handler), None);
        for poll in 0..100 {
            for reports in 1..=3 {
                reporter.report(stall(poll, reports), start);
            }
        }
        let recent = reporter.recent();
        let kept: Vec<_> = recent.iter().map(|one| (one.poll, one.reports)).collect();
        let expected: Vec<_> = (68..100).map(|poll| (PollNumber::new(poll), 3)).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn the_first_report_of_a_poll_freezes_the_recorder_and_later_ones_do_not() {
        let recorder = Arc::new(Recorder::new(Clock::System));
        let handler = Arc::new(|_: &Stall| ());
        let frozen = Some(Arc::clone(&recorder));
        let reporter = StallReporter::new(Duration::from_secs(1), Some(handler), frozen);
        reporter.report(stall(1, 1), Instant::now());
        assert!(recorder.frozen().is_some());
        recorder.resume();
        reporter.report(stall(1, 2), Instant::now());
        assert!(recorder.frozen().is_none());
    }
}
