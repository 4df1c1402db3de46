//! A future that is created by its own task, in its first poll.
//!
//! The closure that creates it is user code: it runs inside the task, and its panic is the task's.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

pin_project! {
    /// The closure, then the future.
    #[project = LazyProjection]
    pub(crate) enum Lazy<I, F> {
        Init { init: Option<I> },
        Made { #[pin] future: F },
    }
}

impl<I, F> Lazy<I, F> {
    pub(crate) fn new(init: I) -> Lazy<I, F> {
        Lazy::Init { init: Some(init) }
    }
}

impl<I, F> Future for Lazy<I, F>
where
    I: FnOnce() -> F,
    F: Future,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let LazyProjection::Init { init } = self.as_mut().project() {
            let init = init.take().expect("the closure is called once");
            let future = init();
            self.set(Lazy::Made { future });
        }
        match self.project() {
            LazyProjection::Made { future } => future.poll(cx),
            LazyProjection::Init { .. } => unreachable!("the future was created above"),
        }
    }
}
