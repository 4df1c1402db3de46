//! A future that completes when the shutdown of a loop is requested.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::event_loop::context;
use crate::event_loop::shared::Shared;
use crate::group::entered::{entered_group, no_context};
use crate::noted::{self, Noted};
use crate::sync::Arc;

/// Resolves when the shutdown of this loop is requested, so that a long-lived task can end by itself.
///
/// Inside `group.block_on` it resolves when the shutdown of every loop of the group was requested.
///
/// # Panics
///
/// If the calling thread is neither a loop nor inside `group.block_on`. The call counts, not the
/// await: `group.block_on(shutdown_requested())` calls it outside, and
/// `group.block_on(async { shutdown_requested().await })` inside.
///
/// # Cancel safety
///
/// Cancel safe: the request is permanent, and every later future is ready at once.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::new(1)?;
/// let task = group.spawn(async {
///     loopgroup::shutdown_requested().await;
///     "said good-bye"
/// });
/// group.drain(Duration::from_secs(5)).wait();
/// assert_eq!(loopgroup::block_on(task).unwrap(), "said good-bye");
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn shutdown_requested() -> ShutdownRequested {
    let loops = match context::with_local(|local| Arc::clone(&local.shared)) {
        Some(shared) => vec![shared],
        None => match entered_group() {
            Some(group) => {
                let loops = group.loops().iter();
                loops.map(|one| Arc::clone(one.shared())).collect()
            }
            None => no_context("shutdown_requested"),
        },
    };
    ShutdownRequested::of(loops)
}

/// The future of [`shutdown_requested`].
///
/// # Examples
///
/// ```
/// use futures::future::{Either, select};
/// use loopgroup::{EventLoopGroup, ShutdownRequested, time::interval};
/// use std::{pin::pin, time::Duration};
///
/// let group = EventLoopGroup::new(1)?;
/// let beats = group.spawn(async {
///     let mut end: ShutdownRequested = loopgroup::shutdown_requested(); // one, for all rounds
///     let mut ticks = interval(Duration::from_secs(1));
///     let mut beats = 0;
///     while let Either::Right(_) = select(&mut end, pin!(ticks.tick())).await {
///         beats += 1;
///     }
///     beats
/// });
/// group.drain(Duration::from_secs(60)).wait();
/// println!("{} beats", loopgroup::block_on(beats).unwrap());
/// # std::io::Result::Ok(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct ShutdownRequested {
    /// The loops to wait for, the next one last; a group shuts down when all its loops do.
    loops: Vec<Arc<Shared>>,
    /// The key of this future among the waiters of the next loop.
    key: Option<usize>,
}

impl ShutdownRequested {
    /// Resolves when the shutdown of all `loops` was requested.
    pub(crate) fn of(loops: Vec<Arc<Shared>>) -> ShutdownRequested {
        ShutdownRequested { loops, key: None }
    }

    /// Whether it is ready, or about to be: the state changes just before the waiters are woken.
    pub(crate) fn is_requested(&self) -> bool {
        let mut loops = self.loops.iter();
        loops.all(|one| one.state().is_shutting_down())
    }
}

impl Future for ShutdownRequested {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // Cloning and dropping wakers is user code: both happen outside the lock.
        let waker = cx.waker().clone();
        while let Some(next) = this.loops.last() {
            let mut waiters = next.shutdown_waiters.lock();
            // A request changes the state first and then takes the waiters, under this lock.
            if !next.state().is_shutting_down() {
                let replaced = waiters.store(&mut this.key, waker);
                drop(waiters);
                drop(replaced);
                noted::waits_for(|| Noted::Event("a shutdown request"));
                return Poll::Pending;
            }
            drop(waiters);
            this.loops.pop();
            this.key = None;
        }
        Poll::Ready(())
    }
}

impl Drop for ShutdownRequested {
    fn drop(&mut self) {
        if let (Some(next), Some(_)) = (self.loops.last(), self.key) {
            let removed = next.shutdown_waiters.lock().remove(&mut self.key);
            drop(removed);
        }
    }
}

impl fmt::Debug for ShutdownRequested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownRequested")
            .field("loops_to_wait_for", &self.loops.len())
            .finish()
    }
}
