//! tokio, `multi_thread`, with its default of a worker per core: the one here that moves tasks about.
//!
//! - As a server it has one worker, as all have.
//! - The workload itself runs on a worker, not on the thread that waits in `block_on`.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::echo::listener;
use super::tokio_current::{accept, echo, tokio_spawn};
use super::{Remote, Serve, Spawn};

pub(crate) struct TokioMulti;

impl TokioMulti {
    pub(crate) fn run<F>(future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let runtime = runtime();
        let task = runtime.spawn(future);
        runtime.block_on(task).expect("nobody cancels it")
    }

    pub(crate) fn run_then_drop<F>(future: F) -> Duration
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = runtime();
        let task = runtime.spawn(future);
        runtime.block_on(task).expect("nobody cancels it");
        let start = Instant::now();
        drop(runtime);
        start.elapsed()
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

tokio_spawn!(TokioMulti, MultiLoop);

/// All workers: there is no spawning onto one of them.
pub(crate) struct MultiLoop(Runtime);

impl Remote for MultiLoop {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    fn start() -> MultiLoop {
        MultiLoop(runtime())
    }

    fn spawn_joined<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.spawn(future)
    }

    fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(self.0.spawn(future));
    }
}

impl Serve for TokioMulti {
    fn serve(buffer: usize) -> SocketAddr {
        serve_with(1, move |stream| {
            drop(tokio::spawn(echo(stream, buffer, Duration::ZERO)))
        })
    }
}

/// Serves on so many workers, each connection in a task that `spawn` makes.
pub(crate) fn serve_with(
    workers: usize,
    spawn: impl Fn(TcpStream) + Send + Sync + 'static,
) -> SocketAddr {
    let (listener, address) = listener();
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let server = runtime.spawn(accept(listener, spawn));
    std::thread::spawn(move || runtime.block_on(server));
    address
}
