//! A future that lets other tasks of its loop run first.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets every other queued task run first, once.
///
/// It works in any runtime: it only uses its waker.
///
/// # Cancel safety
///
/// Cancel safe: it has no effect besides the wait.
///
/// # Examples
///
/// ```
/// loopgroup::run(async {
///     let other = loopgroup::spawn_local(async {});
///     loopgroup::yield_now().await;
///     assert!(other.is_finished());
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
///
/// # Examples
///
/// ```
/// let mut test = loopgroup::testing::TestLoop::new();
/// let once: loopgroup::YieldNow = loopgroup::yield_now();
/// test.spawn(once);
/// assert_eq!(test.run_until_stalled(), 2); // it yields, then completes
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
