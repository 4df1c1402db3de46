//! W3: many tasks on one loop that let each other go first, time and again.
//!
//! Measured is a turn: one yield and the poll after it. The spawns of the tasks are in the time, one for
//! each `yields` turns.

use crate::child::Figures;
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::Spawn;
use crate::stats::Stopwatch;

pub(crate) async fn run<R: Spawn>(params: Params) -> Figures {
    let (tasks, turns) = (params.get("tasks"), params.get("yields"));
    let mut watch = Stopwatch::new(tasks * turns);
    for _ in 0..=params.get("reps") {
        let latch = Latch::leak(tasks);
        watch.start();
        for _ in 0..tasks {
            R::detach(async move {
                for _ in 0..turns {
                    R::yield_now().await;
                }
                latch.count_down();
            });
        }
        latch.opened().await;
        watch.stop();
    }
    Figures::one("yield_ns", watch.nanos())
}
