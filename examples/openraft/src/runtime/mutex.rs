//! A lock that is held over an await: that of futures.

use futures::lock::{Mutex, MutexGuard};
use openraft_rt::OptionalSend;

/// The lock of [`LoopRuntime`](super::LoopRuntime).
#[derive(Debug)]
pub struct LoopMutex<T>(Mutex<T>);

impl<T: OptionalSend + 'static> openraft_rt::Mutex<T> for LoopMutex<T> {
    type Guard<'a> = MutexGuard<'a, T>;

    fn new(value: T) -> Self {
        LoopMutex(Mutex::new(value))
    }

    async fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().await
    }
}
