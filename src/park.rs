//! A parking place for one thread, with a permit of its own.
//!
//! - `unpark` before `park` is remembered: the next `park` returns at once and takes the permit.
//! - Any number of `unpark`s leave one permit.
//! - It does not use the thread's park token: user code may use that for itself.

use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex};

/// The parking place.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    permit: Mutex<bool>,
    arrival: Condvar,
}

impl Parker {
    pub(crate) const fn new() -> Parker {
        Parker {
            permit: Mutex::new(false),
            arrival: Condvar::new(),
        }
    }

    /// Waits for a permit and takes it; `timeout` of `None` waits for ever.
    ///
    /// Returns whether a permit was taken.
    pub(crate) fn park(&self, timeout: Option<Duration>) -> bool {
        // A deadline past the end of the clock is the same as none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut permit = self.permit.lock();
        while !*permit {
            permit = match deadline {
                None => self.arrival.wait(permit),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.arrival.wait_timeout(permit, left)
                }
            };
        }
        *permit = false;
        true
    }

    /// Leaves a permit and wakes the parked thread.
    pub(crate) fn unpark(&self) {
        *self.permit.lock() = true;
        self.arrival.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_permit_left_before_the_wait_is_taken_at_once() {
        let parker = Parker::new();
        parker.unpark();
        parker.unpark();
        assert!(parker.park(None));
        assert!(
            !parker.park(Some(Duration::ZERO)),
            "two unparks leave one permit"
        );
    }

    #[test]
    fn a_wait_without_end_is_ended_from_another_thread() {
        let parker = Arc::new(Parker::new());
        let other = Arc::clone(&parker);
        let thread = std::thread::spawn(move || other.unpark());
        assert!(parker.park(Some(Duration::MAX)));
        thread.join().unwrap();
    }
}
