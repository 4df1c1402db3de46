//! Models of the crate's protocols, explored by loom: every interleaving of the threads, up to a
//! bound on preemptions, and every value that the memory model lets a load see.
//!
//! - They are compiled into the crate and run its own code; only the primitives in `src/sync.rs`
//!   are replaced.
//! - Time does not advance: no timeout ends a wait. A lost wake-up is a deadlock, which loom reports.
//! - loom keeps only the last access of each atomic: a thread that loads and then stores, as the
//!   single writer of a counter does, hides earlier loads by other threads. In models of such
//!   counters the writer is the thread that runs first.
//! - A task's panic is contained by the loop that runs it, so assertions are made outside of tasks.
//!
//! `.ci/loom` runs each model in its own process: one that fails may abort the process.

mod block_on;
mod counters;
mod group;
mod group_end;
mod inbox;
mod park;
mod parking;
mod pool;
mod ring;
mod shutdown;
mod source;
mod termination;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The bound on preemptions for most models.
const BOUND: usize = 3;
/// The bound for models of the core: nothing works if one of them fails.
const CORE_BOUND: usize = 4;

/// The bound for models of whole loops, where more would take minutes.
const WHOLE_BOUND: usize = 2;

/// Explores a model.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_to(BOUND, model);
}

/// Explores a model of the core, with more preemptions than the others.
fn explore_core(model: impl Fn() + Send + Sync + 'static) {
    explore_to(CORE_BOUND, model);
}

/// Explores a model of whole loops, with fewer preemptions than the others.
fn explore_whole(model: impl Fn() + Send + Sync + 'static) {
    explore_to(WHOLE_BOUND, model);
}

/// Runs the setup or teardown of a model, in one interleaving only.
fn unexplored<T>(act: impl FnOnce() -> T) -> T {
    loom::stop_exploring();
    let done = act();
    loom::explore();
    done
}

/// Explores a model with up to `bound` preemptions; `LOOM_MAX_PREEMPTIONS` overrides the bound.
fn explore_to(bound: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut loom = loom::model::Builder::new();
    let bound = *loom.preemption_bound.get_or_insert(bound);
    loom.max_branches = 100_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let start = Instant::now();
    loom.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    assert!(executions > 1, "nothing was interleaved");
    println!(
        "bound {bound}: {executions} executions in {:.1} s",
        start.elapsed().as_secs_f64()
    );
}
