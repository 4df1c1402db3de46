//! W1: spawn from outside onto one loop, until all have run.
//!
//!     cargo bench --bench w01_spawn_outside
#![allow(missing_docs)]

mod util;

use loopgroup::EventLoopGroup;
use util::bench;

const TASKS: u32 = 100_000;

fn main() {
    let group = EventLoopGroup::new(1).unwrap();
    bench("W1 spawn from outside", TASKS, || {
        for _ in 1..TASKS {
            drop(group.spawn(async {}));
        }
        // Behind all others in the queue.
        group.block_on(group.spawn(async {})).unwrap();
    });
}
