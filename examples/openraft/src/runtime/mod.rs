//! openraft's [`AsyncRuntime`] on the current loop.
//!
//! A task is spawned on the loop of its parent and stays there, so a whole Raft node lives on one loop: its
//! futures need not be `Send`, and its watch channel has no lock. The clock is that of the loop: virtual on a
//! test loop.

mod instant;
mod mpsc;
mod mutex;
mod oneshot;
mod queue;
mod watch;

use std::future::Future;
use std::time::Duration;

use loopgroup::{JoinError, JoinHandle, time};
use openraft_rt::{AsyncRuntime, OptionalSend};

pub use instant::LoopInstant;
pub use mpsc::LoopMpsc;
pub use mutex::LoopMutex;
pub use oneshot::LoopOneshot;
pub use watch::LoopWatch;

/// The runtime that is the current loop.
#[derive(Debug)]
pub struct LoopRuntime;

impl AsyncRuntime for LoopRuntime {
    type JoinError = JoinError;
    type JoinHandle<T: OptionalSend + 'static> = JoinHandle<T>;
    type Sleep = time::Sleep;
    type Instant = LoopInstant;
    type TimeoutError = time::Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = time::Timeout<T>;
    type ThreadLocalRng = rand::rngs::ThreadRng;
    type Mpsc = LoopMpsc;
    type Watch = LoopWatch;
    type Oneshot = LoopOneshot;
    type Mutex<T: OptionalSend + 'static> = LoopMutex<T>;

    fn spawn<T>(future: T) -> JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        loopgroup::spawn_local(future)
    }

    fn sleep(duration: Duration) -> time::Sleep {
        time::sleep(duration)
    }

    fn sleep_until(deadline: LoopInstant) -> time::Sleep {
        time::sleep_until(deadline.into())
    }

    fn timeout<R, F>(duration: Duration, future: F) -> time::Timeout<F>
    where
        F: Future<Output = R> + OptionalSend,
    {
        time::timeout(duration, future)
    }

    fn timeout_at<R, F>(deadline: LoopInstant, future: F) -> time::Timeout<F>
    where
        F: Future<Output = R> + OptionalSend,
    {
        time::timeout_at(deadline.into(), future)
    }

    fn is_panic(error: &JoinError) -> bool {
        error.is_panic()
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        rand::rng()
    }

    /// One loop, however many threads are asked for: a task stays where its parent is.
    fn new(_threads: usize) -> Self {
        LoopRuntime
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        loopgroup::run(future).expect("this thread can become a loop")
    }
}
