//! W13: the same on a group of one loop and of two.
//!
//! On two cores the second loop shares them with the producer, or with the clients and the kernel: a ratio
//! of two is out of reach there, and below one is possible.

use loopgroup::WaitStrategy;

use super::spawn;
use crate::child::{Figures, Outcome};
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::{Loopgroup, loopgroup::group};
use crate::stats::Stopwatch;

/// W1, with tasks that go to the loops in turn.
pub(crate) fn outside(params: &Params) -> Figures {
    let group = group(params.get("loops"), WaitStrategy::Park);
    let tasks = params.get("tasks");
    let mut watch = Stopwatch::new(tasks);
    for _ in 0..=params.get("reps") {
        let latch = Latch::leak(tasks);
        watch.start();
        (0..tasks).for_each(|_| drop(group.spawn(async { latch.count_down() })));
        latch.wait();
        watch.stop();
    }
    Figures::one("task_ns", watch.nanos())
}

/// W2, on all loops at the same time; the figures are per task of any loop.
pub(crate) fn home(params: &Params) -> Outcome {
    let loops = params.get("loops");
    let group = group(loops, WaitStrategy::Park);
    let tasks: Vec<_> = (0..loops)
        .map(|index| group.spawn_on(index, spawn::run::<Loopgroup>(params.clone())))
        .collect();
    let mut joined = 0.0;
    for task in tasks {
        let figures = group.block_on(task).map_err(|error| error.to_string())?;
        // Loops work side by side: each adds its rate.
        joined += 1.0 / figures.get("joined_ns");
    }
    Ok(Figures::one("joined_ns", 1.0 / joined))
}
