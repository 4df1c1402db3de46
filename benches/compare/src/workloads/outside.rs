//! W1 and W6: giving work to one loop, from one thread that is none and from four.
//!
//! Measured is the time from the first call until the last task has run, per task; so the slower of
//! producers and loop decides. Rounds take milliseconds: they are repeated for [`WARM_UP`] before the first
//! one counts, until the system has settled which thread is on which core. The tasks only count. There are
//! five ways to hand them over:
//!
//! - `""`: spawned, and the handle dropped at once.
//! - `detached`: spawned in the way that makes no handle, where there is one.
//! - `joined`: spawned, each handle kept by its producer and awaited at the end.
//! - `execute`: a closure; a future that is ready at once, where closures are not taken.
//! - `two_types`: closures of two types in turn, which no queue can take for one kind.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::child::Figures;
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::Remote;
use crate::runtimes::floor::mailbox::Mailbox;
use crate::stats::Stopwatch;

/// The way in the name of a workload, as `w1.execute`, and from how many threads.
fn way(workload: &str) -> Option<(usize, &str)> {
    let (family, way) = workload.split_once('.').unwrap_or((workload, ""));
    match family {
        "w1" => Some((1, way)),
        "w6" => Some((4, way)),
        _ => None,
    }
}

/// `None` if this is no workload from outside.
pub(crate) fn run<L: Remote>(workload: &str, params: &Params) -> Option<Figures> {
    let (producers, way) = way(workload)?;
    let target = L::start;
    Some(match way {
        "" => flood(params, producers, target(), |target, latch, share| {
            (0..share).for_each(|_| target.spawn(async { latch.count_down() }));
        }),
        "detached" => flood(params, producers, target(), |target, latch, share| {
            (0..share).for_each(|_| target.spawn_detached(async { latch.count_down() }));
        }),
        "joined" => flood(params, producers, target(), |target, latch, share| {
            let spawn = |_| target.spawn_joined(async { latch.count_down() });
            let handles: Vec<_> = (0..share).map(spawn).collect();
            futures::executor::block_on(async {
                for handle in handles {
                    handle.await;
                }
            });
        }),
        "execute" => flood(params, producers, target(), |target, latch, share| {
            (0..share).for_each(|_| target.execute(|| latch.count_down()));
        }),
        "two_types" => flood(params, producers, target(), |target, latch, share| {
            for number in 0..share {
                match number % 2 {
                    0 => target.execute(|| latch.count_down()),
                    // Another type, of the same size.
                    _ => target.execute(move || black_box(latch).count_down()),
                }
            }
        }),
        _ => return None,
    })
}

/// `None` if this is no workload from outside, or one with futures.
pub(crate) fn floor(workload: &str, params: &Params) -> Option<Figures> {
    let (producers, way) = way(workload)?;
    let target = Mailbox::start();
    Some(match way {
        "" | "execute" => flood(params, producers, target, |target, latch, share| {
            (0..share).for_each(|_| target.push(|| latch.count_down()));
        }),
        "two_types" => flood(params, producers, target, |target, latch, share| {
            for number in 0..share {
                match number % 2 {
                    0 => target.push(|| latch.count_down()),
                    _ => target.push(move || black_box(latch).count_down()),
                }
            }
        }),
        _ => return None,
    })
}

/// How long rounds are repeated that do not count.
const WARM_UP: Duration = Duration::from_millis(200);

/// Has so many threads call `produce`, each with its share of the tasks.
fn flood<L: Send + Sync + 'static>(
    params: &Params,
    producers: usize,
    target: L,
    produce: fn(&L, &'static Latch, usize),
) -> Figures {
    let share = params.get("tasks") / producers;
    let target = Arc::new(target);
    let mut watch = Stopwatch::new(share * producers);
    let mut reps = params.get("reps");
    let begin = Instant::now();
    while reps > 0 {
        let latch = Latch::leak(share * producers);
        // This thread is the last producer; the others are there before the clock starts.
        let start = Arc::new(Barrier::new(producers));
        let others: Vec<_> = (1..producers)
            .map(|_| {
                let (target, start) = (Arc::clone(&target), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    produce(&target, latch, share);
                })
            })
            .collect();
        start.wait();
        let start_time = Instant::now();
        produce(&target, latch, share);
        latch.wait();
        let round = start_time.elapsed();
        for other in others {
            other.join().expect("a producer does not panic");
        }
        if !watch.is_empty() || begin.elapsed() >= WARM_UP {
            // The stopwatch drops its first round.
            reps -= usize::from(!watch.is_empty());
            watch.add(round);
        }
    }
    Figures::one("task_ns", watch.nanos())
}
