//! smol: the shared `Executor` of async-executor, run by one thread (two in W16), with async-io's reactor.
//!
//! - Leaked (`StaticExecutor`), as it is at its best: then tasks need no list. It has no end either.
//! - A loop has an executor of its own. Code on it finds it in a thread-local.

use std::cell::Cell;
use std::future::{Future, pending};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use async_executor::{Executor, StaticExecutor, Task};
use async_io::{Async, Timer};

use super::echo::{echo, listener};
use super::{Remote, Serve, Spawn};

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

    async fn sleep_until(deadline: Instant) {
        Timer::at(deadline).await;
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
    type Handle<T: Send + 'static> = Task<T>;

    fn start() -> SmolLoop {
        let executor = Executor::new().leak();
        std::thread::spawn(|| {
            CURRENT.set(Some(executor));
            async_io::block_on(executor.run(pending::<()>()))
        });
        SmolLoop(executor)
    }

    fn spawn_joined<F>(&self, future: F) -> Task<F::Output>
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
        self.0.spawn(future).detach();
    }
}

impl Serve for Smol {
    fn serve(buffer: usize) -> SocketAddr {
        let (listener, address) = listener();
        std::thread::spawn(move || Smol::run(accept::<Smol>(listener, buffer)));
        address
    }
}

/// Serves on so many threads that run one executor, each connection in a task of it.
pub(crate) fn serve_with<F>(
    threads: usize,
    handler: impl Fn(Async<TcpStream>) -> F + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let (listener, address) = listener();
    let executor = Executor::new().leak();
    let accepting = executor.spawn(async move {
        let listener = Async::new_nonblocking(listener).expect("the reactor takes it");
        loop {
            if let Ok((stream, _)) = listener.accept().await
                && stream.get_ref().set_nodelay(true).is_ok()
            {
                executor.spawn(handler(stream)).detach();
            }
        }
    });
    accepting.detach();
    for _ in 0..threads {
        std::thread::spawn(|| async_io::block_on(executor.run(pending::<()>())));
    }
    address
}

/// Accepts and serves, each connection in a task of the runtime.
pub(super) async fn accept<R: Spawn>(listener: TcpListener, buffer: usize) {
    let listener = Async::new_nonblocking(listener).expect("the reactor takes it");
    loop {
        if let Ok((stream, _)) = listener.accept().await
            && stream.get_ref().set_nodelay(true).is_ok()
        {
            R::detach(echo(stream, buffer, Duration::ZERO));
        }
    }
}
