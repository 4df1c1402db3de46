//! W2: spawn on the loop, joined and detached.
//!
//!     cargo bench --bench w02_spawn_home
#![allow(missing_docs)]

mod util;

use std::cell::Cell;
use std::rc::Rc;

use loopgroup::{run, spawn_local, yield_now};
use util::bench;

const BATCHES: u32 = 100;
const BATCH: u32 = 1_000;

fn main() {
    bench("W2 spawn at home, joined", BATCHES * BATCH, || {
        run(joined()).unwrap();
    });
    bench("W2 spawn at home, detached", BATCHES * BATCH, || {
        run(detached()).unwrap();
    });
}

async fn joined() {
    let mut tasks = Vec::with_capacity(BATCH as usize);
    for _ in 0..BATCHES {
        tasks.extend((0..BATCH).map(|n| spawn_local(async move { n })));
        for task in tasks.drain(..) {
            task.await.unwrap();
        }
    }
}

async fn detached() {
    let left = Rc::new(Cell::new(0));
    for _ in 0..BATCHES {
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
