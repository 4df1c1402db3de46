//! W6: four threads spawn onto one loop at once.
//!
//!     cargo bench --bench w06_flood
#![allow(missing_docs)]

mod util;

use loopgroup::EventLoopGroup;
use util::bench;

const TASKS: u32 = 25_000;

fn main() {
    let group = EventLoopGroup::new(1).unwrap();
    bench("W6 flood from 4 threads", 4 * TASKS, || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..TASKS {
                        drop(group.spawn(async {}));
                    }
                });
            }
        });
        group.block_on(group.spawn(async {})).unwrap();
    });
}
