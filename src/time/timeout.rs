//! A limit on the time that a future may take.

use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::time::sleep::{Sleep, sleep, sleep_until};

/// Limits `future` to `duration`; resolves to [`Elapsed`] if it does not complete in that time.
///
/// The future is polled first: if it is ready, its output is returned, however late it is.
///
/// # Panics
///
/// Like [`sleep`].
///
/// # Cancel safety
///
/// As cancel safe as `future` is: when the time has elapsed it is not polled again, and it is dropped
/// with the `Timeout`.
///
/// # Examples
///
/// ```
/// use loopgroup::time::timeout;
/// use std::time::Duration;
///
/// loopgroup::block_on(async {
///     assert_eq!(timeout(Duration::ZERO, async { 7 }).await, Ok(7));
///     let late = timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
///     assert_eq!(late.unwrap_err().to_string(), "deadline has elapsed");
/// });
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        sleep: sleep(duration),
    }
}

/// Limits `future` to complete before `deadline`; see [`timeout`].
///
/// # Examples
///
/// ```
/// use loopgroup::time::timeout_at;
/// use std::time::Instant;
///
/// let late = timeout_at(Instant::now(), std::future::pending::<()>());
/// assert!(loopgroup::block_on(late).is_err());
/// ```
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        sleep: sleep_until(deadline),
    }
}

pin_project! {
    /// The future of [`timeout`] and [`timeout_at`].
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::time::{Timeout, timeout};
    /// use std::{future::Ready, future::ready, time::Duration};
    ///
    /// let soon: Timeout<Ready<u32>> = timeout(Duration::from_secs(1), ready(7));
    /// assert_eq!(loopgroup::block_on(soon), Ok(7));
    /// ```
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> Timeout<F> {
    /// Returns the inner future, which may be polled further.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::{sleep, timeout}};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// let mut test = TestLoop::new();
    /// test.block_on(async {
    ///     let mut short = Box::pin(sleep(2 * second));
    ///     let mut first = timeout(second, short.as_mut());
    ///     assert!((&mut first).await.is_err());
    ///     first.into_inner().await; // not lost: it continues where it was
    /// });
    /// assert_eq!(test.elapsed(), 2 * second);
    /// ```
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.sleep).poll(cx).map(|()| Err(Elapsed(())))
    }
}

/// The error of a [`Timeout`] whose future did not complete in time.
///
/// # Examples
///
/// ```
/// use loopgroup::time::{Elapsed, timeout};
/// use std::time::Duration;
///
/// async fn answer() -> std::io::Result<u32> {
///     Ok(timeout(Duration::from_millis(1), std::future::pending()).await?) // as an io::Error
/// }
///
/// let late: Result<(), Elapsed> = loopgroup::block_on(timeout(Duration::ZERO, std::future::pending()));
/// assert!(late.is_err());
/// assert_eq!(loopgroup::block_on(answer()).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}
