//! compio, on io_uring where the kernel allows it; fed through a channel from outside.
#![cfg(feature = "full")]

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::compio::BufResult;
use ::compio::buf::{IntoInner, IoBuf};
use ::compio::io::{AsyncRead, AsyncWriteExt};
use ::compio::net::{TcpListener, TcpStream};
use ::compio::runtime::{JoinHandle, Runtime, spawn};
use ::compio::time::sleep_until;

use super::echo::listener;
use super::fed::fed_loop;
use super::{Serve, Spawn};

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

/// Which driver the runtime chooses here.
pub(crate) fn driver() -> &'static str {
    match Runtime::new() {
        Ok(runtime) if runtime.driver_type().is_iouring() => "io_uring",
        Ok(_) => "epoll",
        Err(_) => "nothing",
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

impl Serve for Compio {
    fn serve(buffer: usize) -> SocketAddr {
        let (listener, address) = listener();
        std::thread::spawn(move || {
            Compio::run(async move {
                let listener = TcpListener::from_std(listener).expect("the runtime has I/O");
                loop {
                    if let Ok((stream, _)) = listener.accept().await {
                        spawn(echo(stream, buffer)).detach();
                    }
                }
            })
        });
        address
    }
}

async fn echo(mut stream: TcpStream, buffer: usize) {
    let mut buffer = Vec::with_capacity(buffer);
    if stream.set_nodelay(true).is_err() {
        return;
    }
    loop {
        let BufResult(len, filled) = stream.read(buffer).await;
        let Ok(len @ 1..) = len else { return };
        let BufResult(written, slice) = stream.write_all(filled.slice(..len)).await;
        if written.is_err() {
            return;
        }
        buffer = slice.into_inner();
        buffer.clear();
    }
}
