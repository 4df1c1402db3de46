//! W1 and W6: spawning onto one loop from threads that are no loops.
//!
//! Measured is the time from the first spawn until the last task has run, per task; so the slower of
//! producers and loop decides. The tasks only count. Handles are dropped at once.

use std::sync::Arc;
use std::sync::Barrier;

use crate::child::Figures;
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::Remote;
use crate::runtimes::floor::mailbox::Mailbox;
use crate::stats::Stopwatch;

pub(crate) fn run<L: Remote>(params: &Params, producers: usize) -> Figures {
    let target = L::start();
    flood(params, producers, target, |target, latch| {
        target.spawn(async { latch.count_down() });
    })
}

pub(crate) fn floor(params: &Params, producers: usize) -> Figures {
    flood(params, producers, Mailbox::start(), |mailbox, latch| {
        mailbox.push(|| latch.count_down());
    })
}

/// Calls `spawn` so often from so many threads.
fn flood<L: Send + Sync + 'static>(
    params: &Params,
    producers: usize,
    target: L,
    spawn: fn(&L, &'static Latch),
) -> Figures {
    let share = params.get("tasks") / producers;
    let target = Arc::new(target);
    let mut watch = Stopwatch::new(share * producers);
    for _ in 0..=params.get("reps") {
        let latch = Latch::leak(share * producers);
        // This thread is the last producer; the others are there before the clock starts.
        let start = Arc::new(Barrier::new(producers));
        let others: Vec<_> = (1..producers)
            .map(|_| {
                let (target, start) = (Arc::clone(&target), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    (0..share).for_each(|_| spawn(&target, latch));
                })
            })
            .collect();
        start.wait();
        watch.start();
        (0..share).for_each(|_| spawn(&target, latch));
        latch.wait();
        watch.stop();
        for other in others {
            other.join().expect("a producer does not panic");
        }
    }
    Figures::one("task_ns", watch.nanos())
}
