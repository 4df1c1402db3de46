//! Workloads for a machine that counts instructions instead of time: the same count in every run.
//!
//!     .ci/instructions            # compares with benches/instructions.txt
//!     .ci/instructions --store    # writes it
//!
//! Each runs `count` operations on one loop and nothing else, so that the difference between two
//! counts is the cost of the operations alone.
#![allow(missing_docs)]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use loopgroup::{spawn_local, yield_now};

const BATCH: u32 = 1_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let (name, count) = (
        args.next(),
        args.next().and_then(|count| count.parse().ok()),
    );
    // `cargo bench` passes a flag, and no work.
    let (Some(name), Some(count)) = (name, count) else {
        return;
    };
    let done = match &*name {
        "spawn-joined" => loopgroup::run(spawn_joined(count)),
        "spawn-detached" => loopgroup::run(spawn_detached(count)),
        "yield" => loopgroup::run(yields(count)),
        "ping-pong" => loopgroup::run(ping_pong(count)),
        "wake" => loopgroup::run(wakes(count)),
        other => panic!("there is no workload {other:?}"),
    };
    done.unwrap();
}

/// Spawns in batches and awaits every handle.
async fn spawn_joined(count: u32) {
    let mut tasks = Vec::with_capacity(BATCH as usize);
    for _ in 0..count / BATCH {
        tasks.extend((0..BATCH).map(|n| spawn_local(async move { n })));
        for task in tasks.drain(..) {
            task.await.unwrap();
        }
    }
}

/// Spawns in batches and lets go of every handle.
async fn spawn_detached(count: u32) {
    let left = Rc::new(Cell::new(0));
    for _ in 0..count / BATCH {
        left.set(BATCH);
        for _ in 0..BATCH {
            let left = Rc::clone(&left);
            drop(spawn_local(async move { left.set(left.get() - 1) }));
        }
        while left.get() > 0 {
            yield_now().await;
        }
    }
}

/// A thousand tasks that yield in turn.
async fn yields(count: u32) {
    let tasks: Vec<_> = (0..BATCH)
        .map(|_| {
            spawn_local(async move {
                for _ in 0..count / BATCH {
                    yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// One place for a value, and for the waker of whoever waits for it.
#[derive(Default)]
struct Slot {
    value: Cell<Option<u32>>,
    waker: RefCell<Option<Waker>>,
}

impl Slot {
    fn put(&self, value: u32) {
        self.value.set(Some(value));
        let waker = self.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn take(&self) -> u32 {
        poll_fn(|cx| match self.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                let mut waker = self.waker.borrow_mut();
                if !waker
                    .as_ref()
                    .is_some_and(|waker| waker.will_wake(cx.waker()))
                {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}

/// A value goes to another task and back.
async fn ping_pong(count: u32) {
    let (there, back) = (Rc::new(Slot::default()), Rc::new(Slot::default()));
    let (input, output) = (Rc::clone(&there), Rc::clone(&back));
    let other = spawn_local(async move {
        for _ in 0..count {
            output.put(input.take().await);
        }
    });
    let one = spawn_local(async move {
        for n in 0..count {
            there.put(n);
            assert_eq!(back.take().await, n);
        }
    });
    one.await.unwrap();
    other.await.unwrap();
}

/// A task wakes itself through a clone of its waker, as a timer or a socket would.
async fn wakes(count: u32) {
    let task = spawn_local(async move {
        let mut left = count;
        poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            let waker = cx.waker().clone();
            waker.wake();
            Poll::Pending
        })
        .await;
    });
    task.await.unwrap();
}
