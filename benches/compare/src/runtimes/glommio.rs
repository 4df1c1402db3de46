//! glommio, on io_uring only; fed through a channel from outside.
#![cfg(feature = "full")]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ::glommio::net::TcpListener;
use ::glommio::timer::Timer;
use ::glommio::{LocalExecutor, LocalExecutorBuilder, Placement, Task};

use super::echo::echo;
use super::fed::fed_loop;
use super::{Serve, Spawn};

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

    async fn sleep_until(deadline: Instant) {
        timer(deadline).await;
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

impl Serve for Glommio {
    fn serve(buffer: usize) -> SocketAddr {
        let (say, address) = mpsc::channel();
        std::thread::spawn(move || {
            Glommio::run(async move {
                // Its listener is made on its executor, and from nothing else.
                let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
                let address = listener.local_addr().expect("it is bound");
                say.send(address).expect("somebody waits for it");
                loop {
                    if let Ok(stream) = listener.accept().await
                        && stream.set_nodelay(true).is_ok()
                    {
                        ::glommio::spawn_local(echo(stream, buffer, Duration::ZERO)).detach();
                    }
                }
            })
        });
        address.recv().expect("the executor starts")
    }
}
