//! What a thread has been doing, as Linux tells it: computing, waiting for a processor, or waiting for
//! something else.
//!
//! - `/proc/self/task/<tid>/schedstat` has the time on a processor and the time that the thread was ready
//!   but had none; `stat` has its state. Neither needs a privilege.
//! - Over an interval, what is neither of the two was spent in a system call. A kernel without `schedstat`
//!   leaves the state at the moment of the reading.
//! - Elsewhere there is no answer.

use std::time::Duration;

use crate::watchdog::stall::StallKind;

/// The longest time, in nanoseconds, that passes between two ticks of the kernel.
const TICK: u64 = 10_000_000;

/// What a thread has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadUse {
    /// Whether it runs or is ready to.
    is_ready: bool,
    /// On a processor, and ready without one, in nanoseconds; `None` if the kernel does not count.
    times: Option<(u64, u64)>,
}

impl ThreadUse {
    /// Reads what a thread of this process has done.
    pub(crate) fn of(thread: u64) -> Option<ThreadUse> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{file}"));
        let stat = read("stat").ok()?;
        ThreadUse::parse(&stat, read("schedstat").ok().as_deref())
    }

    fn parse(stat: &str, schedstat: Option<&str>) -> Option<ThreadUse> {
        // The name of a thread may contain anything, so the state comes after the last bracket.
        let state = stat.rsplit(')').next()?.split_whitespace().next()?;
        let times = schedstat.and_then(|text| {
            let mut numbers = text.split_whitespace().map(str::parse::<u64>);
            match (numbers.next(), numbers.next()) {
                (Some(Ok(running)), Some(Ok(ready))) => Some((running, ready)),
                _ => None,
            }
        });
        Some(ThreadUse {
            is_ready: state == "R",
            times: times.filter(|&times| times != (0, 0)),
        })
    }

    /// What the thread did for most of the time since an earlier reading, this long ago.
    pub(crate) fn since(&self, earlier: &ThreadUse, passed: Duration) -> StallKind {
        let (Some(now), Some(then)) = (self.times, earlier.times) else {
            return match self.is_ready {
                true => StallKind::Computing,
                false => StallKind::Blocked,
            };
        };
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let running = now.0.saturating_sub(then.0);
        let ready = now.1.saturating_sub(then.1);
        let rest = passed.saturating_sub(running).saturating_sub(ready);
        // The kernel counts the time of a thread that runs at the next tick, and that of a thread that waits
        // for a processor once it has got one. So the rest belongs to what the thread does now.
        let (blocked, ready) = match self.is_ready {
            true => (0, ready + rest.saturating_sub(TICK)),
            false => (rest, ready),
        };
        if blocked > running.max(ready) {
            StallKind::Blocked
        } else if ready > running {
            StallKind::Starved
        } else {
            StallKind::Computing
        }
    }
}

/// What the system calls the calling thread.
pub(crate) fn this_thread() -> Option<u64> {
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread_use(state: &str, schedstat: &str) -> ThreadUse {
        let stat = format!("17 (a name ) R with (brackets)) {state} 1 2 3");
        ThreadUse::parse(&stat, Some(schedstat)).unwrap()
    }

    #[test]
    fn a_thread_does_what_it_did_for_most_of_the_time() {
        let before = thread_use("R", "1000 1000 1\n");
        let after =
            |state, times| thread_use(state, times).since(&before, Duration::from_nanos(100));
        assert_eq!(after("R", "1090 1005 2"), StallKind::Computing);
        assert_eq!(after("R", "1010 1080 9"), StallKind::Starved);
        assert_eq!(after("S", "1010 1001 3"), StallKind::Blocked);
        assert_eq!(after("D", "1000 1000 1"), StallKind::Blocked);
        assert_eq!(
            after("S", "1060 1001 4"),
            StallKind::Computing,
            "it sleeps now"
        );
        assert_eq!(
            after("R", "1000 1000 1"),
            StallKind::Computing,
            "a tick is missing"
        );
        let starved = thread_use("R", "5000000 1000 2").since(&before, Duration::from_millis(80));
        assert_eq!(
            starved,
            StallKind::Starved,
            "it waits for a processor still"
        );
        let computing =
            thread_use("R", "75000000 1000 2").since(&before, Duration::from_millis(80));
        assert_eq!(computing, StallKind::Computing);
    }

    #[test]
    fn without_times_there_is_the_state() {
        for times in ["", "0 0 0", "none at all"] {
            let before = thread_use("S", times);
            let since = |state| thread_use(state, times).since(&before, Duration::from_secs(1));
            assert_eq!(
                [since("R"), since("S")],
                [StallKind::Computing, StallKind::Blocked]
            );
        }
        assert_eq!(ThreadUse::parse("", None), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_finds_itself() {
        let this = this_thread().unwrap();
        assert!(ThreadUse::of(this).unwrap().is_ready, "it is running");
        assert_eq!(ThreadUse::of(u64::MAX), None);
    }
}
