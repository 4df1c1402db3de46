//! W14: the shutdown of a group with a million tasks that wait.
//!
//!     cargo bench --bench w14_shutdown
#![allow(missing_docs)]

mod util;

use std::future::pending;
use std::time::Instant;

use loopgroup::EventLoopGroup;

const TASKS: u32 = 1_000_000;

fn main() {
    let mut nanos: Vec<f64> = (0..5).map(|_| shutdown()).collect();
    nanos.sort_by(f64::total_cmp);
    util::print("W14 shutdown, 1,000,000 tasks", &nanos);
}

fn shutdown() -> f64 {
    let group = EventLoopGroup::new(1).unwrap();
    for _ in 0..TASKS {
        drop(group.spawn(pending::<()>()));
    }
    group.block_on(group.spawn(async {})).unwrap(); // all of them wait by now
    let start = Instant::now();
    let report = group.shutdown_now().wait();
    let elapsed = start.elapsed();
    assert_eq!(report.cancelled(), u64::from(TASKS));
    elapsed.as_nanos() as f64 / f64::from(TASKS)
}
