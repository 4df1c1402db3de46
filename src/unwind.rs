//! Containing panics of user code.
//!
//! - Every call into user code that no caller awaits runs under [`contain`]: a loop never unwinds
//!   because of a task, a destructor, a hook, a waker, a chooser or a factory.
//! - A payload is user data with a destructor: [`discard`] drops it under `contain` as well.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The payload of a panic.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Calls user code; a panic ends here.
pub(crate) fn contain<R>(call: impl FnOnce() -> R) -> Result<R, Payload> {
    // Unwind safety: callers hand in values that are not looked at again after a panic.
    catch_unwind(AssertUnwindSafe(call))
}

/// Drops user data; a panic of its destructor ends here, and so does one of its payload.
pub(crate) fn contain_drop<T>(value: T) -> Result<(), Payload> {
    contain(|| drop(value))
}

/// How many payloads are dropped in a row, each from the destructor of the previous one.
const PAYLOADS: usize = 8;

/// Drops a payload.
pub(crate) fn discard(mut payload: Payload) {
    for _ in 0..PAYLOADS {
        match contain_drop(payload) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    // The chain may be endless: this payload is leaked on purpose.
    let _ = Box::leak(payload);
}

/// The text of a payload, as the standard panic hook would show it.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "Box<dyn Any>"
    }
}

/// What to do about a panic whose text is known; empty if it is not.
pub(crate) fn advice(message: &str) -> &'static str {
    // tokio's sentence, of its timers, sockets and `tokio::spawn`.
    if message.contains("Tokio 1.x runtime") {
        " (use loopgroup::time, loopgroup::net and loopgroup::spawn instead; for a crate that needs tokio's \
         own, see \"Crates that need tokio's runtime\" in the guide's page on other crates)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Arc, AtomicUsize, Ordering};

    /// Counts its drop, and panics in it with the next of its kind.
    struct Chain {
        left: usize,
        drops: Arc<AtomicUsize>,
    }

    impl Drop for Chain {
        fn drop(&mut self) {
            self.drops.fetch_add(1, Ordering::SeqCst);
            if self.left > 0 {
                let (left, drops) = (self.left - 1, Arc::clone(&self.drops));
                std::panic::resume_unwind(Box::new(Chain { left, drops }));
            }
        }
    }

    #[test]
    fn payloads_that_panic_when_they_go_are_dropped_too_but_not_for_ever() {
        for (left, dropped) in [(0, 1), (1, 2), (PAYLOADS - 1, PAYLOADS)] {
            let drops = Arc::new(AtomicUsize::new(0));
            discard(Box::new(Chain {
                left,
                drops: Arc::clone(&drops),
            }));
            assert_eq!(drops.load(Ordering::SeqCst), dropped);
            assert_eq!(Arc::strong_count(&drops), 1, "nothing is left of it");
        }
        // An endless chain is cut off. Its payload has no size, so nothing leaks here.
        struct Endless;
        impl Drop for Endless {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new(Endless));
            }
        }
        discard(Box::new(Endless));
    }
}
