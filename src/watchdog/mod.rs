//! The watchdog: one thread for the process, which reports polls that do not return while they do not.
//!
//! - A loop of a group with a [threshold](crate::Builder::watchdog) is watched from the start of its thread
//!   to its end. The watchdog's thread starts with the first such loop, and ends when there is none.
//! - It samples the [beacons](beacon) four times per threshold. A poll that it has seen for the whole
//!   threshold is reported, again after twice that time, four times, and so on. A loop that sleeps, or is
//!   between two polls, shows no poll.
//! - What the thread of the loop did meanwhile is read from the second sample of a poll on: most polls have
//!   none.
//! - A time in which the watchdog itself got no processor is not counted: a machine that stood still for half
//!   a second has not one stalled poll.
//! - The registry is locked for a look at all beacons, and never while a handler is called.
//!
//! ```text
//!   first seen ──threshold──▶ report 1 ──2×──▶ report 2 ──4×──▶ report 3 …
//!       └── another poll, or none ──▶ forgotten
//! ```

pub(crate) mod beacon;
pub(crate) mod reporter;
pub(crate) mod stall;
pub(crate) mod thread_use;

use std::time::{Duration, Instant, SystemTime};

use crate::sync::{self, Arc, plain, thread};
use crate::watchdog::beacon::{Beacon, Polled};
use crate::watchdog::stall::{PollNumber, Stall, StallKind};
use crate::watchdog::thread_use::ThreadUse;

/// Samples per threshold.
const SAMPLES: u32 = 4;
/// The bounds of the time between two samples.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);

static REGISTRY: plain::Mutex<Registry> = plain::Mutex::new(Registry {
    watched: Vec::new(),
    has_thread: false,
});

struct Registry {
    watched: Vec<Watched>,
    /// Whether the watchdog's thread runs; it stops under the lock.
    has_thread: bool,
}

/// A loop that is watched.
struct Watched {
    beacon: Arc<Beacon>,
    seen: Option<Sighting>,
}

/// A poll that was under way.
#[derive(Debug)]
struct Sighting {
    number: PollNumber,
    since: Instant,
    /// What the thread had done by when; read when the poll was seen again.
    before: Option<(Instant, Option<ThreadUse>)>,
    reports: u32,
}

/// Watches a loop, whose thread calls this, until the guard is dropped.
///
/// If there is no thread to be had for the watchdog, the loop goes unwatched until another one is added.
pub(crate) fn watch(beacon: &Arc<Beacon>) -> WatchGuard {
    beacon.enter_thread();
    let mut registry = REGISTRY.lock();
    registry.watched.push(Watched {
        beacon: Arc::clone(beacon),
        seen: None,
    });
    if !registry.has_thread {
        let builder = thread::Builder::new().name("loopgroup-watchdog".to_owned());
        registry.has_thread = builder.spawn(run).is_ok();
    }
    WatchGuard(Arc::clone(beacon))
}

/// What the watchdog sees a loop in, and since when, if it has seen that before.
pub(crate) fn sighting(beacon: &Arc<Beacon>) -> Option<(Polled, Instant)> {
    let registry = REGISTRY.lock();
    let mut watched = registry.watched.iter();
    let found = watched.find(|one| Arc::ptr_eq(&one.beacon, beacon))?;
    let (number, since) = found.seen.as_ref().map(|seen| (seen.number, seen.since))?;
    drop(registry);
    Some((beacon.read(number)?, since))
}

/// Keeps a loop watched.
#[derive(Debug)]
pub(crate) struct WatchGuard(Arc<Beacon>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut registry = REGISTRY.lock();
        let found = registry
            .watched
            .iter()
            .position(|one| Arc::ptr_eq(&one.beacon, &self.0));
        let removed = found.map(|index| registry.watched.swap_remove(index));
        drop(registry);
        // Perhaps the last owner of a handler of the user's.
        drop(removed);
    }
}

/// The watchdog's thread.
fn run() {
    let mut late = Duration::ZERO;
    loop {
        let mut registry = REGISTRY.lock();
        if registry.watched.is_empty() {
            registry.has_thread = false;
            return;
        }
        let now = sync::now();
        let mut stalls = Vec::new();
        let mut pause = LONGEST;
        for one in &mut registry.watched {
            pause = pause.min(one.beacon.reporter.threshold / SAMPLES);
            one.excuse(late);
            if let Some(stall) = one.look(now) {
                stalls.push((Arc::clone(&one.beacon), stall));
            }
        }
        drop(registry);
        for (beacon, stall) in stalls {
            beacon.reporter.report(stall, now);
        }
        let pause = pause.max(SHORTEST);
        let before = sync::now();
        thread::sleep(pause);
        late = lateness(pause, sync::now().saturating_duration_since(before));
    }
}

/// By how much a pause of the watchdog was too long, if that is no matter of a short delay.
fn lateness(pause: Duration, passed: Duration) -> Duration {
    match passed.saturating_sub(pause) {
        late if late > pause => late,
        _ => Duration::ZERO,
    }
}

impl Watched {
    /// Does not count a time in which the watchdog itself did not run: the machine stood still, or had no
    /// processor for the process, and a poll that could not go on has not stalled.
    fn excuse(&mut self, late: Duration) {
        if let Some(seen) = &mut self.seen {
            seen.since += late;
            if let Some((then, _)) = &mut seen.before {
                *then += late;
            }
        }
    }

    /// Takes a sample; returns what is to be reported.
    fn look(&mut self, now: Instant) -> Option<Stall> {
        let number = self.beacon.poll_under_way();
        let (Some(number), Some(seen)) = (number, &mut self.seen) else {
            self.seen = number.map(|number| Sighting::new(number, now));
            return None;
        };
        if seen.number != number {
            *seen = Sighting::new(number, now);
            return None;
        }
        let read = || self.beacon.thread().and_then(ThreadUse::of);
        let (then, before) = *seen.before.get_or_insert_with(|| (now, read()));
        let duration = now.saturating_duration_since(seen.since);
        if duration < seen.next_report(self.beacon.reporter.threshold) {
            return None;
        }
        let kind = match (before, read()) {
            (Some(before), Some(after)) => {
                after.since(&before, now.saturating_duration_since(then))
            }
            _ => StallKind::Unknown,
        };
        let polled = self.beacon.read(number)?;
        seen.reports += 1;
        if seen.reports == 1 {
            self.beacon.stalls.add(1);
        }
        Some(Stall {
            at: SystemTime::now(),
            poll: number,
            index: self.beacon.index,
            thread_name: self.beacon.thread_name.clone(),
            subject: polled.subject,
            location: polled.location,
            name: polled.name,
            duration,
            kind,
            reports: seen.reports,
            suppressed: 0,
        })
    }
}

impl Sighting {
    fn new(number: PollNumber, now: Instant) -> Sighting {
        Sighting {
            number,
            since: now,
            before: None,
            reports: 0,
        }
    }

    /// After what time the next report is due.
    fn next_report(&self, threshold: Duration) -> Duration {
        let times = 1_u32.checked_shl(self.reports).unwrap_or(u32::MAX);
        threshold.saturating_mul(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Site;
    use crate::task_id::{HOOK, MAIN, TaskId};
    use crate::watchdog::beacon::Named;
    use crate::watchdog::reporter::StallReporter;

    fn watched(threshold: Duration) -> (Watched, impl Fn(u64) -> Instant) {
        let reporter = Arc::new(StallReporter::new(threshold, None, None));
        let beacon = Arc::new(Beacon::new(3, "one".to_owned(), reporter));
        let start = Instant::now();
        (Watched { beacon, seen: None }, move |millis| {
            start + Duration::from_millis(millis)
        })
    }

    fn number(id: TaskId) -> u64 {
        TaskId::number_of(id.to_halves())
    }

    fn begin(beacon: &Beacon, id: TaskId) {
        beacon.begin(number(id), None, None);
    }

    const THRESHOLD: Duration = Duration::from_millis(100);

    #[test]
    fn a_poll_is_reported_at_the_threshold_and_whenever_the_time_has_doubled() {
        let (mut one, at) = watched(THRESHOLD);
        let id = TaskId::next();
        begin(&one.beacon, id);
        let reported: Vec<_> = (0..200)
            .map(|sample| sample * 10)
            .filter_map(|millis| one.look(at(millis)))
            .map(|stall| (stall.duration().as_millis(), stall.reports()))
            .collect();
        assert_eq!(
            one.beacon.stalls.get(),
            1,
            "one poll, however often it is reported"
        );
        assert_eq!(
            reported,
            [(100, 1), (200, 2), (400, 3), (800, 4), (1600, 5)]
        );
        one.beacon.end();
        assert!(one.look(at(10_000)).is_none(), "it has returned");
    }

    #[test]
    fn many_short_polls_are_no_long_one_and_neither_is_a_sleep() {
        let (mut one, at) = watched(THRESHOLD);
        for millis in 0..1_000 {
            begin(&one.beacon, TaskId::next());
            assert!(one.look(at(millis * 50)).is_none());
        }
        one.beacon.end();
        for millis in 1_000..2_000 {
            assert!(one.look(at(millis * 50)).is_none(), "it sleeps");
        }
    }

    #[test]
    fn a_poll_begins_when_it_is_first_seen() {
        let (mut one, at) = watched(THRESHOLD);
        begin(&one.beacon, TaskId::next());
        assert!(one.look(at(5_000)).is_none());
        assert!(one.look(at(5_099)).is_none());
        let stall = one.look(at(5_100)).unwrap();
        assert_eq!((stall.loop_index(), stall.thread_name()), (3, "one"));
        assert_eq!(stall.duration(), THRESHOLD);
    }

    #[test]
    fn a_time_in_which_the_watchdog_did_not_run_is_no_stall_of_a_poll() {
        let (pause, late) = (Duration::from_millis(10), Duration::from_millis(490));
        assert_eq!(lateness(pause, Duration::from_millis(500)), late);
        assert_eq!(lateness(pause, Duration::from_millis(20)), Duration::ZERO);
        assert_eq!(lateness(pause, Duration::ZERO), Duration::ZERO);
        let (mut one, at) = watched(THRESHOLD);
        begin(&one.beacon, TaskId::next());
        assert!(one.look(at(0)).is_none());
        one.excuse(late);
        assert!(one.look(at(500)).is_none(), "the machine stood still");
        assert!(one.look(at(580)).is_none());
        // It goes on although the machine does.
        assert_eq!(one.look(at(590)).unwrap().duration(), THRESHOLD);
        one.excuse(late);
        assert!(one.look(at(1_170)).is_none());
        assert_eq!(one.look(at(1_180)).unwrap().duration(), 2 * THRESHOLD);
    }

    #[test]
    fn the_report_names_what_is_polled() {
        let (mut one, at) = watched(THRESHOLD);
        let beacon = Arc::clone(&one.beacon);
        let (place, name) = (std::panic::Location::caller(), Named::new("a name".into()));
        let site = Site::of(place);
        let mut report = |millis| {
            assert!(one.look(at(millis)).is_none());
            one.look(at(millis + 100)).unwrap()
        };
        let (first, second) = (TaskId::next(), TaskId::next());
        beacon.begin(number(first), Some(site), Some(&name));
        let stall = report(0);
        assert_eq!(
            (stall.task_id(), stall.name()),
            (Some(first), Some("a name"))
        );
        assert_eq!(stall.location(), Some(place));
        beacon.end();
        beacon.begin(number(first), Some(site), Some(&name));
        assert_eq!(
            report(500).name(),
            Some("a name"),
            "its second poll as well"
        );
        beacon.end();
        drop(name);
        beacon.begin(number(second), Some(site), None);
        let stall = report(1_000);
        assert_eq!((stall.task_id(), stall.name()), (Some(second), None));
        beacon.end();
        beacon.begin(HOOK, None, None);
        let stall = report(2_000);
        assert_eq!((stall.task_id(), stall.location()), (None, None));
        assert!(
            stall
                .to_string()
                .contains("a shutdown hook has not returned")
        );
        beacon.end();
        beacon.begin(MAIN, None, None);
        assert!(report(3_000).to_string().contains("the main future has"));
        beacon.end();
    }
}
