//! W13: the same on a group of one loop and of two.
//!
//! On two cores the second loop shares them with the producer, or with the clients: a ratio of two is out of
//! reach there, and below one is possible. An echo costs the clients as much as the server, so one loop and
//! its clients have a core each and fill both; a second loop can only take turns with them. With work for
//! each request there is something to share. tokio is there with as many workers, to tell the machine's part
//! from the runtime's.

use std::time::Duration;

use ::loopgroup::WaitStrategy;

use super::{server, spawn};
use crate::child::{Figures, Outcome};
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::loopgroup::{self, group};
use crate::runtimes::{Loopgroup, Runtime, echo, tokio_current, tokio_multi};
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

/// W8, with work for each request.
pub(crate) fn echo(runtime: Runtime, params: &Params) -> Outcome {
    let (loops, micros) = (params.get("loops"), params.get("work") as u64);
    let work = Duration::from_micros(micros);
    let serve = |buffer| match runtime {
        Runtime::TokioMulti => tokio_multi::serve_with(loops, move |stream| {
            drop(tokio::spawn(tokio_current::echo(stream, buffer, work)));
        }),
        _ => loopgroup::serve_with(loops, move |stream| echo::echo(stream, buffer, work)),
    };
    server::echo(serve, params)
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
