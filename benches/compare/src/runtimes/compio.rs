//! compio, on io_uring where the kernel allows it; fed through a channel from outside.
#![cfg(feature = "full")]

use std::future::Future;
use std::time::{Duration, Instant};

use ::compio::runtime::{JoinHandle, Runtime, spawn};
use ::compio::time::sleep_until;

use super::Spawn;
use super::fed::fed_loop;

pub(crate) struct Compio;

impl Compio {
    pub(crate) fn run<F: Future>(future: F) -> F::Output {
        runtime().block_on(future)
    }

    pub(crate) fn run_then_drop<F: Future<Output = ()>>(future: F) -> Duration {
        let runtime = runtime();
        runtime.block_on(future);
        let start = Instant::now();
        drop(runtime);
        start.elapsed()
    }
}

fn runtime() -> Runtime {
    Runtime::new().expect("a runtime can be built")
}

impl Spawn for Compio {
    type Handle<T: Send + 'static> = JoinHandle<T>;
    type Loop = FedLoop;

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn(future)
    }

    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        spawn(future).detach();
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> {
        sleep_until(deadline)
    }

    fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static) {
        spawn(async move {
            sleep_until(deadline).await;
            call();
        })
        .detach();
    }
}

fed_loop!(Compio);
