//! Limits of time: the watchdog of a test, its progress, and waits for what nobody announces.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::setting;

/// The longest any test may take without progress; far above what it needs, also on two busy cores.
pub const WATCHDOG: Duration = Duration::from_secs(60);

/// A limit of time, times `LOOPGROUP_PATIENCE`: under a sanitizer everything takes longer.
pub fn patiently(limit: Duration) -> Duration {
    let times = setting("LOOPGROUP_PATIENCE").unwrap_or(1);
    limit * u32::try_from(times).unwrap()
}

/// Runs a test body under the watchdog: a hang is a failure, not a silence.
///
/// A body that does something thousands of times says so with [`progress`]: then the watchdog limits the time
/// without progress, not the sum.
#[track_caller]
pub fn within<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    within_for(patiently(WATCHDOG), body)
}

/// As [`within`], with a limit of its own.
#[track_caller]
pub fn within_for<T: Send + 'static>(
    limit: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let progress = Progress::default();
    let watched = progress.clone();
    let thread = thread::Builder::new()
        .name("test-body".into())
        .spawn(move || {
            // Also when it panics.
            let _end = Ends(watched.clone());
            PROGRESS.set(Some(watched));
            body()
        })
        .unwrap();
    if let Some(hang) = progress.watch(limit) {
        panic!("watchdog: {hang}");
    }
    thread
        .join()
        .unwrap_or_else(|payload| resume_unwind(payload))
}

/// What a test has done so far; its watchdog looks at it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Steps>);

#[derive(Debug, Default)]
struct Steps {
    unit: OnceLock<&'static str>,
    done: AtomicU64,
    ended: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    /// That of the test whose body runs on this thread.
    static PROGRESS: RefCell<Option<Progress>> = const { RefCell::new(None) };
}

/// The progress of this test, in rounds, connections or whatever it counts; to be asked for in its body, and
/// to be taken along to other threads. Without a watchdog it only counts.
pub fn progress(unit: &'static str) -> Progress {
    let progress = PROGRESS.with_borrow(Clone::clone).unwrap_or_default();
    let _ = progress.0.unit.set(unit);
    progress
}

impl Progress {
    /// Notes that one more is done.
    pub fn tick(&self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the end; says what hangs if nothing is done for as long as `limit`.
    fn watch(&self, limit: Duration) -> Option<String> {
        let mut ended = self.0.ended.lock().unwrap();
        loop {
            let before = self.0.done.load(Ordering::Relaxed);
            let wait = self
                .0
                .changed
                .wait_timeout_while(ended, limit, |ended| !*ended);
            ended = wait.unwrap().0;
            if *ended {
                return None;
            }
            let done = self.0.done.load(Ordering::Relaxed);
            if done == before {
                return Some(match self.0.unit.get() {
                    None => "the test hangs".to_owned(),
                    Some(unit) => {
                        let number = grouped(done + 1);
                        format!("no progress for {limit:?} at {unit} {number}")
                    }
                });
            }
        }
    }
}

/// Tells the watchdog that the body has ended.
struct Ends(Progress);

impl Drop for Ends {
    fn drop(&mut self) {
        *self.0.0.ended.lock().unwrap() = true;
        self.0.0.changed.notify_all();
    }
}

/// `12345` as `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Waits until `condition` holds; for things that nobody announces (the end of an OS thread).
#[track_caller]
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    eventually_within(patiently(Duration::from_secs(30)), what, condition);
}

/// As [`eventually`], with a patience of its own: short where it is known to be in vain.
#[track_caller]
pub fn eventually_within(patience: Duration, what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + patience;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        thread::yield_now();
    }
}
