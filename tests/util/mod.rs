//! What all tests share. `tests/README.md` lists the binaries, and every variable that they read.
//!
//! - `watchdog`: a test that hangs fails; waits with a limit.
//! - `process`: tests that need a process of their own, and figures of the process.
//! - `loops`: groups and loops in common states.
//! - `probes`: futures, values and wakers that record what happens to them.
//! - `door`: a gate between threads and tasks that opens once.
//! - `random`: numbers from a seed.
//! - `json`: what a text of JSON says.
#![allow(dead_code, unused_imports, missing_docs, unreachable_pub)]

mod door;
mod json;
mod loops;
mod probes;
mod process;
mod random;
mod watchdog;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use door::Door;
pub use json::Json;
pub use loops::{flush, group, group_with_io, local, on_a_loop, one_loop, stall, thread_of};
pub use probes::{
    CountOnDrop, DropCount, Log, OnDrop, Probe, Waiting, WakeCount, blow_up, discard, panic_of,
    poll_once, restless,
};
pub use process::{
    allow_descriptors, allowed_descriptors, alone, alone_after, entries, in_child, in_child_after,
    is_child, others_sleep, tid, tid_of,
};
pub use random::Random;
pub use watchdog::{
    Progress, WATCHDOG, eventually, eventually_within, patiently, progress, within, within_for,
};

/// A limit that no test reaches: whatever takes as long has failed, before the watchdog says so.
pub const LONG: Duration = Duration::from_secs(30);

/// Longer than any test: a shutdown on these terms ends for another reason, or hangs.
pub const HOUR: Duration = Duration::from_secs(3600);

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A number from the environment, to repeat or to prolong a test: `None` if it is not set.
#[track_caller]
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// A path of a test's own, removed at its end.
pub struct TempPath(pub PathBuf);

impl TempPath {
    pub fn new(name: &str) -> TempPath {
        // Tests of several modules run in one process, and may choose the same name.
        static PATHS: AtomicUsize = AtomicUsize::new(0);
        let number = PATHS.fetch_add(1, Ordering::Relaxed);
        let file = format!("loopgroup-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        TempPath(path)
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
