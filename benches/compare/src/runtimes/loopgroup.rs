//! loopgroup: `loopgroup::run` for work on one loop, a group of one for work from outside.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::loopgroup::net::{Server, TcpStream};
use ::loopgroup::{EventLoop, EventLoopGroup, JoinHandle, WaitStrategy};

use super::echo::echo;
use super::{Remote, Serve, Spawn};

pub(crate) struct Loopgroup;

impl Loopgroup {
    pub(crate) fn run<F: Future>(future: F) -> F::Output {
        ::loopgroup::run(future).expect("a selector can be made")
    }

    /// Runs `future` on a group of one loop with precise timers.
    pub(crate) fn run_precisely<F>(future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let builder = EventLoopGroup::builder().loops(1).precise_timers(true);
        let group = builder.build().expect("a group can be built");
        group.block_on(group.spawn(future)).expect("it is done")
    }

    /// Runs `future` on a group of one loop, and times the shutdown of what it leaves behind.
    pub(crate) fn run_then_drop<F>(future: F) -> Duration
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let group = group(1, WaitStrategy::Park);
        group.block_on(group.spawn(future)).expect("it is done");
        let start = Instant::now();
        group.shutdown_now().wait();
        start.elapsed()
    }
}

impl Spawn for Loopgroup {
    type Handle<T: Send + 'static> = JoinHandle<T>;
    type Loop = OneLoop;

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        ::loopgroup::spawn_local(future)
    }

    fn detach<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(::loopgroup::spawn_local(future));
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        ::loopgroup::yield_now()
    }

    fn sleep_until(deadline: Instant) -> impl Future<Output = ()> {
        ::loopgroup::time::sleep_until(deadline)
    }

    fn detach_at(deadline: Instant, call: impl FnOnce() + Send + 'static) {
        drop(::loopgroup::spawn_local(async move {
            ::loopgroup::time::sleep_until(deadline).await;
            call();
        }));
    }
}

impl Serve for Loopgroup {
    fn serve(buffer: usize) -> SocketAddr {
        serve_with(1, move |stream| echo(stream, buffer, Duration::ZERO))
    }
}

/// Serves on a group of so many loops; the first of them accepts, too.
pub(crate) fn serve_with<F>(
    loops: usize,
    handler: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + 'static,
{
    let group = group(loops, WaitStrategy::Park);
    let server = Server::new("127.0.0.1:0")
        .expect("that is an address")
        .workers(&group)
        .nodelay(true)
        .serve(move |stream, _| handler(stream))
        .expect("there is a free port");
    let address = server.local_addr();
    // The server holds its group weakly: this keeps both until the process ends.
    std::thread::spawn(move || group.block_on(server));
    address
}

/// A group of one loop that parks when it has nothing to do.
pub(crate) struct OneLoop {
    home: EventLoop,
    /// Dropped, it would end its loop.
    _group: EventLoopGroup,
}

impl Remote for OneLoop {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    fn start() -> OneLoop {
        let group = group(1, WaitStrategy::Park);
        OneLoop {
            home: group.next().clone(),
            _group: group,
        }
    }

    fn spawn_joined<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.home.spawn(future)
    }

    fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(self.home.spawn(future));
    }

    fn spawn_detached<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let spawned = self.home.spawn_detached(future);
        spawned
            .map_err(|rejected| rejected.reason())
            .expect("the loop is open");
    }

    fn execute(&self, call: impl FnOnce() + Send + 'static) {
        self.home.execute(call).expect("the loop is open");
    }
}

/// A group of one loop that spins for a while before it parks.
pub(crate) struct SpinningLoop(OneLoop);

impl Remote for SpinningLoop {
    type Handle<T: Send + 'static> = JoinHandle<T>;

    fn start() -> SpinningLoop {
        let strategy = WaitStrategy::SpinThenPark(Duration::from_micros(50));
        let group = group(1, strategy);
        SpinningLoop(OneLoop {
            home: group.next().clone(),
            _group: group,
        })
    }

    fn spawn_joined<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.spawn_joined(future)
    }

    fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.spawn(future);
    }
}

/// A group whose threads run already.
pub(crate) fn group(loops: usize, strategy: WaitStrategy) -> EventLoopGroup {
    let group = EventLoopGroup::builder()
        .loops(loops)
        .wait_strategy(strategy)
        .build()
        .expect("a group can be built");
    group.start().expect("its threads can be started");
    group
}
