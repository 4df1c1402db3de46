//! Waiting for a future on a thread that is not a loop.
//!
//! - The thread parks on a place of its own, so a permit that user code leaves for the thread is
//!   neither stolen nor mistaken for a wake.
//! - Nested calls have a place each.
//! - On a loop thread, of any group, it refuses: the loop would stand still, and if the future needs
//!   that loop it would stand still for ever.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use waker_fn::waker_fn;

use crate::park::{Parker, round_up};
use crate::sync::{self, Arc};
use crate::this_thread::{OwnWaker, refuse_on_loop};
use crate::time::block_on::Waiting;

/// Polls `future` on this thread until it is done, and parks in between.
///
/// Futures of every runtime may be awaited; they make progress where they belong. To have a group
/// for [`spawn`](crate::spawn) inside, use [`EventLoopGroup::block_on`](crate::EventLoopGroup::block_on).
///
/// # Panics
///
/// On a thread that is an event loop, of any group.
///
/// # Examples
///
/// ```
/// assert_eq!(loopgroup::block_on(async { 1 + 1 }), 2);
/// ```
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    refuse_on_loop("block_on");
    let parker = Arc::new(Parker::new());
    let bell = Arc::clone(&parker);
    let waker = waker_fn(move || bell.unpark());
    let mut cx = Context::from_waker(&waker);
    let waiting = Waiting::enter();
    // Dropped before `waiting`: the timers that it gives up are still at home.
    let mut future = pin!(future);
    loop {
        let noted = OwnWaker::note(&waker);
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        drop(noted);
        let timeout = waiting.fire(&parker).map(|deadline| {
            // As the loops: whole milliseconds, so that a crowd of timers shares its wake-ups.
            round_up(deadline.saturating_duration_since(sync::now()))
        });
        parker.park(timeout);
    }
}
