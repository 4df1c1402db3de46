//! Threads of the model.

pub use shuttle::thread::{Builder, JoinHandle, ThreadId, current, spawn, yield_now};

use std::time::Duration;

use crate::{Condvar, Mutex};

/// Waits until the clock has moved by `time`.
pub fn sleep(time: Duration) {
    let end = crate::now() + time;
    let (lock, never) = (Mutex::new(()), Condvar::new());
    let mut guard = lock.lock().expect("nobody else has it");
    while crate::now() < end {
        (guard, ()) = never
            .wait_timeout(guard, end - crate::now())
            .expect("nobody else has it");
    }
}
