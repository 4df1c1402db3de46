//! shuttle's condition variable, whose timed wait ends in virtual time. (shuttle's own never ends.)

use std::sync::{Arc, LockResult, OnceLock, PoisonError};
use std::time::Duration;

use shuttle::sync::MutexGuard;

use crate::time::Alarm;

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(OnceLock<Arc<shuttle::sync::Condvar>>);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(OnceLock::new())
    }

    /// Made on first use: `new` is to be `const`, and the clock wants to share it.
    fn inner(&self) -> &Arc<shuttle::sync::Condvar> {
        self.0.get_or_init(Arc::default)
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.inner().wait(guard)
    }

    /// Waits for a notification or until the clock has reached the end; the second value says nothing.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let alarm = Alarm::set(timeout, self.inner());
        let guard = self.inner().wait(guard);
        drop(alarm);
        guard
            .map(|guard| (guard, ()))
            .map_err(|poisoned| PoisonError::new((poisoned.into_inner(), ())))
    }

    pub fn notify_one(&self) {
        self.inner().notify_one();
    }

    pub fn notify_all(&self) {
        self.inner().notify_all();
    }
}
