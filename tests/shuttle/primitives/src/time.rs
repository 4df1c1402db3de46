//! Time that passes only when the model says so.
//!
//! - It begins anew with each schedule, at the same moment.
//! - Who waits for a moment sets an alarm. A thread of the model, the clock, moves the time to the earliest
//!   alarm and notifies who waits. When that thread may run is up to the scheduler: only when all others
//!   stand still, or at any point.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError};
use std::time::{Duration, Instant};

use shuttle::sync::{Condvar, Mutex, MutexGuard};
use shuttle::thread::{self, JoinHandle};

/// The name of the clock's thread.
pub const CLOCK: &str = "clock";

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

shuttle::lazy_static! {
    static ref TIME: Time = Time::default();
}

#[derive(Default)]
struct Time {
    /// Nanoseconds since the start. Not shuttle's: reading the clock is no point to switch at.
    passed: AtomicU64,
    alarms: Mutex<Alarms>,
    changed: Condvar,
}

#[derive(Default)]
struct Alarms {
    /// By moment, then in the order of their setting.
    set: BTreeMap<(Instant, u64), Arc<Condvar>>,
    next: u64,
    stopped: bool,
}

impl Time {
    fn alarms(&self) -> MutexGuard<'_, Alarms> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the virtual clock.
pub fn now() -> Instant {
    *START + passed()
}

/// The time that has passed since the schedule began.
pub fn passed() -> Duration {
    Duration::from_nanos(TIME.passed.load(Ordering::Relaxed))
}

/// Lets `time` pass.
pub fn pass(time: Duration) {
    move_to(now() + time);
}

fn move_to(moment: Instant) {
    let passed = moment.saturating_duration_since(*START).as_nanos();
    let passed = u64::try_from(passed).expect("models do not wait for centuries");
    TIME.passed.fetch_max(passed, Ordering::Relaxed);
}

/// The thread that moves the time.
#[derive(Debug)]
pub struct Clock(JoinHandle<()>);

impl Clock {
    pub fn start() -> Clock {
        let run = || {
            let mut alarms = TIME.alarms();
            loop {
                let Some((&(moment, _), waiter)) = alarms.set.first_key_value() else {
                    if alarms.stopped {
                        return;
                    }
                    alarms = TIME
                        .changed
                        .wait(alarms)
                        .unwrap_or_else(PoisonError::into_inner);
                    continue;
                };
                let waiter = Arc::clone(waiter);
                move_to(moment);
                drop(alarms);
                // Who has set the alarm may not have begun to wait: it rings until it is taken back.
                waiter.notify_all();
                thread::yield_now();
                alarms = TIME.alarms();
            }
        };
        let thread = thread::Builder::new().name(CLOCK.to_owned()).spawn(run);
        Clock(thread.expect("shuttle starts every thread"))
    }

    /// Ends the clock: nobody waits for a moment any more.
    pub fn stop(self) {
        TIME.alarms().stopped = true;
        TIME.changed.notify_all();
        self.0.join().expect("a clock does not panic");
    }
}

/// Something to be notified at a moment, until it is dropped.
#[derive(Debug)]
pub(crate) struct Alarm((Instant, u64));

impl Alarm {
    pub(crate) fn set(timeout: Duration, waiter: &Arc<Condvar>) -> Alarm {
        let mut alarms = TIME.alarms();
        alarms.next += 1;
        let key = (now() + timeout, alarms.next);
        alarms.set.insert(key, Arc::clone(waiter));
        drop(alarms);
        TIME.changed.notify_all();
        Alarm(key)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        TIME.alarms().set.remove(&self.0);
    }
}
