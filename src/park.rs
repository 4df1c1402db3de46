//! A parker for one thread, with its own permit.
//!
//! - `unpark` before `park` is remembered: the next `park` returns at once and takes the permit.
//! - Any number of `unpark`s leave one permit.
//! - It does not use the thread's park token, which user code may use for itself.

use std::time::Duration;

use crate::sync::{self, Condvar, Mutex};

/// Blocks one thread until another one leaves a permit.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    permit: Mutex<bool>,
    permit_left: Condvar,
}

impl Parker {
    pub(crate) fn new() -> Parker {
        Parker::default()
    }

    /// Waits for a permit and takes it; a `timeout` of `None` waits for ever.
    ///
    /// Returns whether a permit was taken.
    pub(crate) fn park(&self, timeout: Option<Duration>) -> bool {
        // A deadline beyond the range of the clock is the same as none.
        let deadline = timeout.and_then(|timeout| sync::now().checked_add(timeout));
        let mut permit = self.permit.lock();
        while !*permit {
            if deadline.is_some_and(|deadline| sync::now() >= deadline) {
                return false;
            }
            permit = self.permit_left.wait_until(permit, deadline);
        }
        *permit = false;
        true
    }

    /// Whether there is a permit.
    pub(crate) fn has_permit(&self) -> bool {
        *self.permit.lock()
    }

    /// Leaves a permit and wakes the parked thread.
    pub(crate) fn unpark(&self) {
        *self.permit.lock() = true;
        self.permit_left.notify_one();
    }
}

/// Rounds up to whole milliseconds, like the selector.
pub(crate) fn round_up(timeout: Duration) -> Duration {
    const MILLI: u32 = 1_000_000;
    let over = timeout.subsec_nanos() % MILLI;
    if over == 0 {
        return timeout;
    }
    timeout.saturating_add(Duration::from_nanos(u64::from(MILLI - over)))
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
    fn a_timeout_is_rounded_up_never_down() {
        let nanos = Duration::from_nanos;
        assert_eq!(round_up(nanos(0)), nanos(0));
        assert_eq!(round_up(nanos(1)), nanos(1_000_000));
        assert_eq!(round_up(nanos(1_000_000)), nanos(1_000_000));
        assert_eq!(round_up(nanos(1_999_999_999)), nanos(2_000_000_000));
        assert_eq!(round_up(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn an_unlimited_wait_is_ended_from_another_thread() {
        let parker = Arc::new(Parker::new());
        let other = Arc::clone(&parker);
        let thread = std::thread::spawn(move || other.unpark());
        assert!(parker.park(Some(Duration::MAX)));
        thread.join().unwrap();
    }
}
