//! What `src/sync.rs` takes in place of the system's primitives: those of shuttle, which runs the threads of
//! a model one at a time, in an order that it chooses and can repeat.
//!
//! - Every operation on a lock, an atomic or a thread is a point where it may switch. async-task's own
//!   atomics are not.
//! - Memory is sequentially consistent: orderings that are too weak are not found here.
//! - Time is virtual: see [`time`].

#![forbid(unsafe_code)]

mod condvar;
mod local;
pub mod thread;
pub mod time;

use std::io;
use std::time::Duration;

use mio::{Events, Poll};

pub use condvar::Condvar;
pub use local::LocalKey;
pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
pub use shuttle::sync::{Mutex, MutexGuard};
pub use time::now;

/// Whether a thread has ended. Every thread is kept, to be joined.
pub fn has_finished(_: &thread::JoinHandle<()>) -> bool {
    false
}

/// Looks into a real selector until something is ready, and lets the others run in between.
///
/// A thread that looks again and again never stands still, so no clock would run for it: a wait with an end
/// lets that time pass after one look.
pub fn select(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    loop {
        poll.poll(events, Some(Duration::ZERO))?;
        if !events.is_empty() || timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        thread::yield_now();
        if let Some(timeout) = timeout {
            time::pass(timeout);
            return poll.poll(events, Some(Duration::ZERO));
        }
    }
}
