//! smol's `LocalExecutor`, leaked as [`Smol`](super::Smol) is; fed through a channel from outside.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use async_executor::{LocalExecutor, StaticLocalExecutor, Task};
use async_io::Timer;

use super::echo::listener;
use super::fed::fed_loop;
use super::smol::{NO_END, accept};
use super::{Serve, Spawn};

thread_local! {
    static CURRENT: &'static StaticLocalExecutor = LocalExecutor::new().leak();
}

pub(crate) struct SmolLocal;

impl SmolLocal {
    pub(crate) fn run<F: Future>(future: F) -> F::Output {
        let executor = CURRENT.with(|current| *current);
        async_io::block_on(executor.run(future))
    }

    pub(crate) fn run_then_drop<F: Future<Output = ()>>(_: F) -> Duration {
        unreachable!("{NO_END}")
    }
}

impl Spawn for SmolLocal {
    type Handle<T: Send + 'static> = Task<T>;
    type Loop = FedLoop;

    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        CURRENT.with(|current| current.spawn(future))
    }

    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        SmolLocal::spawn(future).detach();
    }

    async fn sleep_until(deadline: Instant) {
        Timer::at(deadline).await;
    }

    fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static) {
        SmolLocal::detach(async move {
            Timer::at(deadline).await;
            call();
        });
    }
}

fed_loop!(SmolLocal);

impl Serve for SmolLocal {
    fn serve(buffer: usize) -> SocketAddr {
        let (listener, address) = listener();
        std::thread::spawn(move || SmolLocal::run(accept::<SmolLocal>(listener, buffer)));
        address
    }
}
