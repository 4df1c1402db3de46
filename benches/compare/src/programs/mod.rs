//! Whole programs, beside what a user would pick instead, under the load generators that others use.
//!
//! - HTTP: the same axum router on two loops and on two workers of tokio. Clients are `wrk` and `h2load`.
//! - A cache: the example `resp` beside `redis-server`. The client is `redis-benchmark`.
//! - W17 is the first of them with connections that move, also while a process that is none of theirs works
//!   on one core.
//! - Everything is on loopback and on the same cores, clients included, and every run is bounded.
//! - CPU time is that of the server's process, from before the first connection until the clients have ended.

mod http;
mod redis;
mod server;
mod spinner;
mod tools;

use crate::child::{Figures, Outcome};
use crate::params::Params;
use crate::runtimes::Runtime;
use tools::Counted;

/// Runs the program of that name, as `programs.hello` or `w17`.
pub(crate) fn run(runtime: Runtime, workload: &str, params: &Params) -> Outcome {
    match workload {
        "w17" => http::moving(runtime, params),
        "programs.hello" => http::hello(runtime, params),
        "programs.json" => http::json(runtime, params),
        "programs.ping" => redis::run(runtime, "ping_mbulk", params),
        "programs.set" => redis::run(runtime, "set", params),
        "programs.get" => redis::run(runtime, "get", params),
        _ => Err(format!("no such program: {workload}").into()),
    }
}

/// The figures of a run in which the server used so many nanoseconds.
fn figures(counted: &Counted, cpu_nanos: f64) -> Figures {
    Figures::one("per_s", counted.per_second)
        .with("p50_us", counted.p50_us)
        .with("p99_us", counted.p99_us)
        .with("cpu_ns", cpu_nanos / counted.requests)
}
