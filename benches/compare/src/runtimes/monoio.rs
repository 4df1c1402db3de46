//! monoio, on io_uring where the kernel allows it, else on epoll; fed through a channel from outside.
//!
//! - It has no yield of its own, and a task that wakes itself goes to the *front* of the queue: its figure
//!   for W3 is not comparable, since no other task runs in between.
#![cfg(feature = "full")]

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::monoio::buf::IoBuf;
use ::monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use ::monoio::net::{TcpListener, TcpStream};
use ::monoio::time::sleep_until;
use ::monoio::{FusionDriver, RuntimeBuilder, task::JoinHandle};

use super::echo::listener;
use super::fed::fed_loop;
use super::{Serve, Spawn};

pub(crate) struct Monoio;

/// A runtime as a value: its type is long, and differs by build.
macro_rules! runtime {
    () => {
        RuntimeBuilder::<FusionDriver>::new()
            .enable_timer()
            .build()
            .expect("a runtime can be built")
    };
}

impl Monoio {
    pub(crate) fn run<F: Future + 'static>(future: F) -> F::Output {
        runtime!().block_on(future)
    }

    pub(crate) fn run_then_drop<F: Future<Output = ()> + 'static>(future: F) -> Duration {
        let mut runtime = runtime!();
        runtime.block_on(future);
        let start = Instant::now();
        drop(runtime);
        start.elapsed()
    }
}

/// Which driver the runtime chooses here.
pub(crate) fn driver() -> &'static str {
    match ::monoio::utils::detect_uring() {
        true => "io_uring",
        false => "epoll",
    }
}

impl Spawn for Monoio {
    type Handle<T: Send + 'static> = JoinHandle<T>;
    type Loop = FedLoop;

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        ::monoio::spawn(future)
    }

    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(::monoio::spawn(future));
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> {
        sleep_until(deadline.into())
    }

    fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static) {
        drop(::monoio::spawn(async move {
            sleep_until(deadline.into()).await;
            call();
        }));
    }
}

fed_loop!(Monoio);

impl Serve for Monoio {
    fn serve(buffer: usize) -> SocketAddr {
        let (listener, address) = listener();
        std::thread::spawn(move || {
            Monoio::run(async move {
                let listener = TcpListener::from_std(listener).expect("the runtime has I/O");
                loop {
                    if let Ok((stream, _)) = listener.accept().await {
                        ::monoio::spawn(echo(stream, buffer));
                    }
                }
            })
        });
        address
    }
}

async fn echo(mut stream: TcpStream, buffer: usize) {
    let mut buffer = vec![0; buffer];
    if stream.set_nodelay(true).is_err() {
        return;
    }
    loop {
        let (len, filled) = stream.read(buffer).await;
        let Ok(len @ 1..) = len else { return };
        let (written, slice) = stream.write_all(filled.slice(..len)).await;
        if written.is_err() {
            return;
        }
        buffer = slice.into_inner();
    }
}
