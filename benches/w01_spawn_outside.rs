//! W1: spawn and execute from outside onto one loop, until all have run.
//!
//!     cargo bench --bench w01_spawn_outside
#![allow(missing_docs)]

mod util;

use loopgroup::EventLoopGroup;
use util::{bench, submit};

const TASKS: u32 = 100_000;

fn main() {
    let group = EventLoopGroup::new(1).unwrap();
    for (name, work) in submit::ALL {
        bench(&format!("W1 {name} from outside"), TASKS, || {
            work(group.next(), TASKS - 1);
            // Behind all others in the queue.
            group.block_on(group.spawn(async {})).unwrap();
        });
    }
}
