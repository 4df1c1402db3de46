//! The only module that uses `std::sync` locks and atomics directly.
//!
//! - A lock here never reports poisoning: this crate calls no user code with a lock held, so a panic
//!   under a lock is a bug of this crate, which a second panic would only make worse.
//! - Every module with a protocol imports locks, atomics, threads, thread-locals, the clock and the
//!   wait in a selector from here, so that a model checker can replace them in one place:
//!   `tests/loom` and `tests/shuttle` do. `Arc` is not replaced: reference counting is left to the
//!   standard library.

#[cfg(loom)]
#[path = "../tests/loom/primitives.rs"]
pub(crate) mod loom;

#[cfg(loom)]
use self::loom as imp;
#[cfg(shuttle)]
use shuttle_primitives as imp;

pub(crate) use self::imp::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, MutexGuard, Ordering, fence, has_finished, now,
    select, thread, thread_local,
};
pub(crate) use std::sync::{Arc, Weak};

use std::sync::PoisonError;
use std::time::Instant;

/// The primitives of the standard library.
#[cfg(not(any(loom, shuttle)))]
mod imp {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread_local;

    use std::io;
    use std::time::{Duration, Instant};

    pub(crate) mod thread {
        pub(crate) use std::thread::{Builder, JoinHandle, ThreadId, current, sleep, yield_now};
    }

    /// Whether a thread has ended, its thread-locals included.
    pub(crate) fn has_finished(thread: &thread::JoinHandle<()>) -> bool {
        thread.is_finished()
    }

    /// Reads the monotonic clock.
    #[inline]
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// Waits in a selector.
    #[inline]
    pub(crate) fn select(
        poll: &mut mio::Poll,
        events: &mut mio::Events,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        poll.poll(events, timeout)
    }
}

/// Primitives for values that belong to the process or are created in a constant, that order no
/// other access and that no wait depends on: ids, counts, round-robin positions. Model checkers do
/// not replace them.
pub(crate) mod plain {
    pub(crate) use std::sync::OnceLock;
    pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize};

    #[cfg(not(loom))]
    pub(crate) use super::Mutex;
    #[cfg(loom)]
    pub(crate) use super::loom::PlainMutex as Mutex;
}

/// A mutex without poisoning.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(imp::Mutex::new(value))
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(imp::Condvar);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar(imp::Condvar::new())
    }

    /// Waits for a notification, until `deadline` at most if there is one; may also wake spuriously.
    pub(crate) fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        let Some(deadline) = deadline else {
            return self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        let left = deadline.saturating_duration_since(now());
        let waited = self.0.wait_timeout(guard, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
