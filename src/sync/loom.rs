//! loom's primitives, in the shape that the rest of the crate expects.
//!
//! - They live for one execution of a model: they cannot be made in a constant, nor kept in a static.
//! - Time stands still for them: a wait with a timeout ends by a notification only, so nothing that a model
//!   waits for can be rescued by a deadline.

pub(crate) use ::loom::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use ::loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use thread_local_of_models as thread_local;

use std::cell::Cell;
use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use ::loom::thread::LocalKey;

pub(crate) mod thread {
    pub(crate) use ::loom::thread::*;

    /// Lets others go first: time stands still.
    pub(crate) fn sleep(_: std::time::Duration) {
        yield_now();
    }
}

/// Reads the clock, which decides nothing here: see above.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits in a selector; models have loops without one.
pub(crate) fn select(
    poll: &mut mio::Poll,
    events: &mut mio::Events,
    timeout: Option<Duration>,
) -> io::Result<()> {
    poll.poll(events, timeout)
}

/// The lock of a table that belongs to the process; never held where loom might switch threads.
#[derive(Debug)]
pub(crate) struct PlainMutex<T>(std::sync::Mutex<T>);

impl<T> PlainMutex<T> {
    pub(crate) const fn new(value: T) -> PlainMutex<T> {
        PlainMutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As the standard library's macro: all threads of a model share one thread of the system.
macro_rules! thread_local_of_models {
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
pub(crate) use thread_local_of_models;

/// What the standard library's keys can do and loom's cannot.
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
