//! tokio, `current_thread` with a `LocalSet`: `spawn_local` at home, fed through a channel from outside.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::echo::listener;
use super::fed::fed_loop;
use super::tokio_current::{accept, echo, runtime};
use super::{Serve, Spawn};

pub(crate) struct TokioLocal;

impl TokioLocal {
    pub(crate) fn run<F: Future>(future: F) -> F::Output {
        LocalSet::new().block_on(&runtime(), future)
    }

    pub(crate) fn run_then_drop<F: Future<Output = ()>>(future: F) -> Duration {
        let (runtime, local) = (runtime(), LocalSet::new());
        local.block_on(&runtime, future);
        let start = Instant::now();
        drop((local, runtime));
        start.elapsed()
    }
}

impl Spawn for TokioLocal {
    type Handle<T: Send + 'static> = JoinHandle<T>;
    type Loop = FedLoop;

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_local(future)
    }

    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(spawn_local(future));
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> {
        tokio::time::sleep_until(deadline.into())
    }

    fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static) {
        drop(spawn_local(async move {
            tokio::time::sleep_until(deadline.into()).await;
            call();
        }));
    }
}

fed_loop!(TokioLocal);

impl Serve for TokioLocal {
    fn serve(buffer: usize) -> SocketAddr {
        let (listener, address) = listener();
        std::thread::spawn(move || {
            TokioLocal::run(accept(listener, |stream| {
                spawn_local(echo(stream, buffer, Duration::ZERO));
            }))
        });
        address
    }
}
