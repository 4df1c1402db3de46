//! Waiting for a future on a thread that is not a loop.
//!
//! - Each call has its own [`Parker`], so a permit of `std::thread::park` that user code leaves is
//!   neither consumed nor mistaken for a wake. This holds for nested calls too.
//! - It panics on the thread of a loop, of any group: the loop would be blocked, and if the future
//!   needs that loop, blocked for ever.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use waker_fn::waker_fn;

use crate::park::{Parker, round_up};
use crate::sync::{self, Arc};
use crate::this_thread::{OwnWaker, refuse_on_loop};
use crate::time::block_on::Waiting;

/// Polls `future` on this thread until it completes, and parks in between.
///
/// Futures of any runtime may be awaited; that runtime drives them. To have a group for
/// [`spawn`](crate::spawn) inside, use [`EventLoopGroup::block_on`](crate::EventLoopGroup::block_on).
///
/// A loop that this thread drives itself does not run meanwhile: a task of a
/// [`TestLoop`](crate::testing::TestLoop) or a [`ManualLoop`](crate::ManualLoop) never completes in here. Use
/// [`TestLoop::block_on`](crate::testing::TestLoop::block_on), or drive the loop until the task is finished.
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
    let unparker = Arc::clone(&parker);
    let waker = waker_fn(move || unparker.unpark());
    let mut cx = Context::from_waker(&waker);
    let waiting = Waiting::enter();
    // Dropped before `waiting`: its timers are cancelled while this thread is still their home.
    let mut future = pin!(future);
    loop {
        let noted = OwnWaker::note(&waker);
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        drop(noted);
        let timeout = waiting.fire(&parker).map(|deadline| {
            // Whole milliseconds, as in a loop, so that nearby timers share a wake-up.
            round_up(deadline.saturating_duration_since(sync::now()))
        });
        parker.park(timeout);
    }
}
