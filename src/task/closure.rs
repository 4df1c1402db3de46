//! A closure as a future that is ready at its first poll: closures and futures share one queue, one
//! order and one bookkeeping.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Calls its closure on the first poll.
pub(crate) struct Closure<F>(Option<F>);

impl<F> Closure<F> {
    pub(crate) fn new(call: F) -> Closure<F> {
        Closure(Some(call))
    }
}

// The closure is moved out before it is called and never pinned.
impl<F> Unpin for Closure<F> {}

impl<F: FnOnce() -> T, T> Future for Closure<F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let call = self.0.take().expect("a finished future is not polled");
        Poll::Ready(call())
    }
}
