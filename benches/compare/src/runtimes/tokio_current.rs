//! tokio, `current_thread`: `tokio::spawn` at home, `Handle::spawn` from outside.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use super::echo::{listener, spend};
use super::{Remote, Serve, Spawn};

pub(crate) struct TokioCurrent;

impl TokioCurrent {
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

pub(super) fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

/// What both tokio runtimes do alike once code runs on them.
macro_rules! tokio_spawn {
    ($runtime:ident, $loop:ident) => {
        impl Spawn for $runtime {
            type Handle<T: Send + 'static> = JoinHandle<T>;
            type Loop = $loop;

            fn spawn<F>(future: F) -> JoinHandle<F::Output>
            where
                F: Future + Send + 'static,
                F::Output: Send + 'static,
            {
                tokio::spawn(future)
            }

            fn detach<F>(future: F)
            where
                F: Future<Output = ()> + Send + 'static,
            {
                drop(tokio::spawn(future));
            }

            fn yield_now() -> impl Future<Output = ()> + Send {
                tokio::task::yield_now()
            }

            fn sleep_until(deadline: Instant) -> impl Future<Output = ()> {
                tokio::time::sleep_until(deadline.into())
            }

            fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static) {
                drop(tokio::spawn(async move {
                    tokio::time::sleep_until(deadline.into()).await;
                    call();
                }));
            }
        }
    };
}
pub(super) use tokio_spawn;

tokio_spawn!(TokioCurrent, CurrentLoop);

pub(crate) struct CurrentLoop(Handle);

impl Remote for CurrentLoop {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    fn start() -> CurrentLoop {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        CurrentLoop(handle)
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

impl Serve for TokioCurrent {
    fn serve(buffer: usize) -> SocketAddr {
        serve_with(move |stream| drop(tokio::spawn(echo(stream, buffer, Duration::ZERO))))
    }
}

/// Serves, each connection in a task that `spawn` makes.
pub(crate) fn serve_with(spawn: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || TokioCurrent::run(accept(listener, spawn)));
    address
}

/// Accepts and serves, each connection in a task that `spawn` makes.
pub(super) async fn accept(listener: std::net::TcpListener, spawn: impl Fn(TcpStream)) {
    let listener = TcpListener::from_std(listener).expect("the runtime has I/O");
    loop {
        if let Ok((stream, _)) = listener.accept().await
            && stream.set_nodelay(true).is_ok()
        {
            spawn(stream);
        }
    }
}

pub(crate) async fn echo(mut stream: TcpStream, buffer: usize, work: Duration) {
    let mut buffer = vec![0; buffer];
    while let Ok(len @ 1..) = stream.read(&mut buffer).await {
        spend(work);
        if stream.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}
