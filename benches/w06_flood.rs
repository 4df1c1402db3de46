//! W6: four threads spawn and execute onto one loop at once.
//!
//!     cargo bench --bench w06_flood
#![allow(missing_docs)]

mod util;

use loopgroup::EventLoopGroup;
use util::{bench, submit};

const TASKS: u32 = 25_000;

fn main() {
    let group = EventLoopGroup::new(1).unwrap();
    for (name, work) in submit::ALL {
        bench(&format!("W6 {name} from 4 threads"), 4 * TASKS, || {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| work(group.next(), TASKS));
                }
            });
            group.block_on(group.spawn(async {})).unwrap();
        });
    }
}
