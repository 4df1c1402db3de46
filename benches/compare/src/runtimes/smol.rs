//! smol: the shared `Executor` of async-executor, run by one thread, with the reactor of async-io.
//!
//! - Leaked (`StaticExecutor`), as it is at its best: then tasks need no list. It has no end either.
//! - A loop has an executor of its own. Code on it finds it in a thread-local.

use std::cell::Cell;
use std::future::{Future, pending};
use std::time::{Duration, Instant};

use async_executor::{Executor, StaticExecutor, Task};
use async_io::Timer;

use super::{Remote, Spawn};

thread_local! {
    static CURRENT: Cell<Option<&'static StaticExecutor>> = const { Cell::new(None) };
}

fn current() -> &'static StaticExecutor {
    CURRENT.get().expect("this thread runs an executor")
}

/// Why there is no shutdown to measure.
pub(crate) const NO_END: &str = "a static executor is never dropped";

pub(crate) struct Smol;

impl Smol {
    pub(crate) fn run<F: Future>(future: F) -> F::Output {
        let executor = Executor::new().leak();
        CURRENT.set(Some(executor));
        async_io::block_on(executor.run(future))
    }

    pub(crate) fn run_then_drop<F: Future<Output = ()>>(_: F) -> Duration {
        unreachable!("{NO_END}")
    }
}

impl Spawn for Smol {
    type Handle<T: Send + 'static> = Task<T>;
    type Loop = SmolLoop;

    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        current().spawn(future)
    }

    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        current().spawn(future).detach();
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> {
        async move {
            Timer::at(deadline).await;
        }
    }

    fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static) {
        Smol::detach(async move {
            Timer::at(deadline).await;
            call();
        });
    }
}

pub(crate) struct SmolLoop(&'static StaticExecutor);

impl Remote for SmolLoop {
    fn start() -> SmolLoop {
        let executor = Executor::new().leak();
        std::thread::spawn(|| {
            CURRENT.set(Some(executor));
            async_io::block_on(executor.run(pending::<()>()))
        });
        SmolLoop(executor)
    }

    fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.spawn(future).detach();
    }
}
