//! W2: spawning on the loop itself, in batches; tasks that are done at their first poll.
//!
//! - Joined: every handle of a batch is kept and awaited.
//! - Detached: handles are dropped, a latch opens when the whole batch has run.

use std::hint::black_box;

use crate::child::Figures;
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::Spawn;
use crate::stats::Stopwatch;

pub(crate) async fn run<R: Spawn>(params: Params) -> Figures {
    let (batches, batch) = (params.get("batches"), params.get("batch"));
    let mut joined = Stopwatch::new(batches * batch);
    let mut handles = Vec::with_capacity(batch);
    for _ in 0..=params.get("reps") {
        joined.start();
        for _ in 0..batches {
            handles.extend((0..batch).map(|place| R::spawn(async move { black_box(place) })));
            for handle in handles.drain(..) {
                black_box(handle.await);
            }
        }
        joined.stop();
    }
    let mut detached = Stopwatch::new(batches * batch);
    for _ in 0..=params.get("reps") {
        detached.start();
        for _ in 0..batches {
            let latch = Latch::leak(batch);
            (0..batch).for_each(|_| R::detach(async { latch.count_down() }));
            latch.opened().await;
        }
        detached.stop();
    }
    Figures::one("joined_ns", joined.nanos()).with("detached_ns", detached.nanos())
}
