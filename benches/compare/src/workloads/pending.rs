//! W11 and W14: a million tasks that wait, and the end of them.
//!
//! - The future has 64 bytes, among them the waker of its own task: so it is not forgotten, neither by a
//!   runtime that keeps no list of its tasks nor by the one that measures.
//! - W11: growth of the heap and of the resident size, per task. They are spawned a thousand at a time, so
//!   that the run queue does not count.
//! - W14: the shutdown of a runtime that has them, until the last future is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::alloc;
use crate::child::{Figures, Outcome};
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::Spawn;
use crate::sys;

/// Spawned at a time.
const BATCH: usize = 1_000;

static DROPPED: AtomicUsize = AtomicUsize::new(0);

pub(crate) async fn memory<R: Spawn>(params: Params) -> Figures {
    let tasks = params.get("tasks");
    alloc::start();
    fill::<R>(BATCH).await; // what a runtime makes for its first tasks is not counted
    let (heap, resident) = (alloc::in_use(), sys::resident());
    fill::<R>(tasks).await;
    Figures::one("heap_b", (alloc::in_use() - heap) as f64 / tasks as f64)
        .with("rss_b", (sys::resident() - resident) as f64 / tasks as f64)
}

/// Judges a shutdown that took so long.
pub(crate) fn ended(params: &Params, time: Duration) -> Outcome {
    let (tasks, dropped) = (params.get("tasks"), DROPPED.load(Relaxed));
    if dropped < tasks {
        return Err(format!("{} of {tasks} futures are never dropped", tasks - dropped).into());
    }
    Ok(Figures::one(
        "task_ns",
        time.as_nanos() as f64 / tasks as f64,
    ))
}

/// Spawns tasks until so many wait.
pub(crate) async fn fill<R: Spawn>(tasks: usize) {
    let mut left = tasks;
    while left > 0 {
        let batch = left.min(BATCH);
        let polled = Latch::leak(batch);
        (0..batch).for_each(|_| R::detach(Waits::new(polled)));
        polled.opened().await;
        left -= batch;
    }
}

/// 64 bytes that wait for ever.
struct Waits {
    polled: &'static Latch,
    me: Option<Waker>,
    _payload: [u64; 5],
}

const _: () = assert!(size_of::<Waits>() == 64);

impl Waits {
    fn new(polled: &'static Latch) -> Waits {
        Waits {
            polled,
            me: None,
            _payload: [0; 5],
        }
    }
}

impl Future for Waits {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.me.is_none() {
            self.me = Some(cx.waker().clone());
            self.polled.count_down();
        }
        Poll::Pending
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
    }
}
