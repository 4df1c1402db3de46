//! glommio, on io_uring only; fed through a channel from outside.
#![cfg(feature = "full")]

use std::future::Future;
use std::time::{Duration, Instant};

use ::glommio::timer::Timer;
use ::glommio::{LocalExecutor, LocalExecutorBuilder, Placement, Task};

use super::Spawn;
use super::fed::fed_loop;

pub(crate) struct Glommio;

impl Glommio {
    pub(crate) fn run<F: Future>(future: F) -> F::Output {
        executor().run(future)
    }

    pub(crate) fn run_then_drop<F: Future<Output = ()>>(future: F) -> Duration {
        let executor = executor();
        executor.run(future);
        let start = Instant::now();
        drop(executor);
        start.elapsed()
    }
}

fn executor() -> LocalExecutor {
    LocalExecutorBuilder::new(Placement::Unbound)
        .make()
        .expect("io_uring is allowed, and so is its memory")
}

fn timer(deadline: Instant) -> Timer {
    Timer::new(deadline.saturating_duration_since(Instant::now()))
}

impl Spawn for Glommio {
    type Handle<T: Send + 'static> = Task<T>;
    type Loop = FedLoop;

    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        ::glommio::spawn_local(future)
    }

    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        ::glommio::spawn_local(future).detach();
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> {
        async move {
            timer(deadline).await;
        }
    }

    fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static) {
        ::glommio::spawn_local(async move {
            timer(deadline).await;
            call();
        })
        .detach();
    }
}

fed_loop!(Glommio);
