//! loom's primitives, with the API that the rest of the crate expects.
//!
//! - They live for one execution of a model: they cannot be created in a constant, nor kept in a
//!   static.
//! - Time does not advance for them: only a notification ends a wait with a timeout, so no deadline
//!   can rescue a wait whose notification was lost.

pub(crate) use ::loom::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use ::loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use model_thread_local as thread_local;

use std::cell::Cell;
use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use ::loom::thread::LocalKey;

/// A model keeps every thread that has started, to join it.
pub(crate) fn has_finished(_: &thread::JoinHandle<()>) -> bool {
    false
}

pub(crate) mod thread {
    pub(crate) use ::loom::thread::*;

    /// Yields to the other threads: time does not advance.
    pub(crate) fn sleep(_: std::time::Duration) {
        yield_now();
    }
}

/// Reads the clock, which ends no wait here: see the module docs.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits in a selector; the loops of the models have none.
pub(crate) fn select(
    poll: &mut mio::Poll,
    events: &mut mio::Events,
    timeout: Option<Duration>,
) -> io::Result<()> {
    poll.poll(events, timeout)
}

/// The lock of process-wide data; never held where loom might switch threads.
#[derive(Debug, Default)]
pub(crate) struct PlainMutex<T>(std::sync::Mutex<T>);

impl<T> PlainMutex<T> {
    pub(crate) const fn new(value: T) -> PlainMutex<T> {
        PlainMutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Like the standard library's macro, which does not work here: all threads of a model share one OS
/// thread.
macro_rules! model_thread_local {
    () => {};
    ($(#[$attr:meta])* static $name:ident: $type:ty = const { $init:expr }; $($rest:tt)*) => {
        $crate::sync::thread_local! { $(#[$attr])* static $name: $type = $init; $($rest)* }
    };
    ($(#[$attr:meta])* static $name:ident: $type:ty = $init:expr; $($rest:tt)*) => {
        ::loom::thread_local! { $(#[$attr])* static $name: $type = $init; }
        #[allow(unused_imports)]
        use $crate::sync::loom::CellKey as _;
        $crate::sync::thread_local! { $($rest)* }
    };
}
pub(crate) use model_thread_local;

/// Methods that the standard library's keys have and loom's lack.
pub(crate) trait CellKey<T> {
    fn get(&'static self) -> T
    where
        T: Copy;

    fn set(&'static self, value: T);
}

impl<T: 'static> CellKey<T> for LocalKey<Cell<T>> {
    fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }
}
