//! The `LocalPool` of the futures crate: tasks on one thread, no timers and no sockets.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::executor::{LocalPool, LocalSpawner};
use futures::future::RemoteHandle;
use futures::task::LocalSpawnExt;

use super::fed::fed_loop;
use super::{Serve, Spawn};

thread_local! {
    static CURRENT: RefCell<Option<LocalSpawner>> = const { RefCell::new(None) };
}

/// Why there is none of the workloads with timers and sockets.
pub(crate) const NO_DRIVER: &str = "LocalPool has neither timers nor sockets";

pub(crate) struct Futures;

impl Futures {
    pub(crate) fn run<F: Future>(future: F) -> F::Output {
        pool().run_until(future)
    }

    pub(crate) fn run_then_drop<F: Future<Output = ()>>(future: F) -> Duration {
        let mut pool = pool();
        pool.run_until(future);
        let start = Instant::now();
        drop(pool);
        start.elapsed()
    }
}

fn pool() -> LocalPool {
    let pool = LocalPool::new();
    CURRENT.set(Some(pool.spawner()));
    pool
}

fn with_spawner<T>(call: impl FnOnce(&LocalSpawner) -> T) -> T {
    CURRENT.with_borrow(|spawner| call(spawner.as_ref().expect("this thread runs a pool")))
}

impl Spawn for Futures {
    type Handle<T: Send + 'static> = RemoteHandle<T>;
    type Loop = FedLoop;

    fn spawn<F>(future: F) -> RemoteHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        with_spawner(|spawner| spawner.spawn_local_with_handle(future)).expect("the pool is there")
    }

    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        with_spawner(|spawner| spawner.spawn_local(future)).expect("the pool is there");
    }

    async fn sleep_until(_: Instant) {
        unreachable!("{NO_DRIVER}")
    }

    fn detach_at(_: Instant, _: impl FnOnce() + Send + 'static) {
        unreachable!("{NO_DRIVER}")
    }
}

fed_loop!(Futures);

impl Serve for Futures {
    fn serve(_: usize) -> SocketAddr {
        unreachable!("{NO_DRIVER}")
    }
}
