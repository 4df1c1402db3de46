//! W3: a thousand tasks on one loop that yield in turn.
//!
//!     cargo bench --bench w03_yield
#![allow(missing_docs)]

mod util;

use loopgroup::{run, spawn_local, yield_now};
use util::bench;

const TASKS: u32 = 1_000;
const YIELDS: u32 = 200;

fn main() {
    bench("W3 yield, 1,000 tasks", TASKS * YIELDS, || {
        run(async {
            let tasks: Vec<_> = (0..TASKS)
                .map(|_| {
                    spawn_local(async {
                        for _ in 0..YIELDS {
                            yield_now().await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        })
        .unwrap();
    });
}
