//! A group has the loops, threads and figures that its builder was asked for.

mod attacks;
mod blocking;
mod builder;
mod choosers;
mod elastic;
mod executor_group;
mod metrics;
mod parking;
mod pausing;
mod pinning;
mod prometheus;
mod recorder;
mod stalls;
mod tasks_listed;
mod threads;
mod unwinding;

#[path = "../util/mod.rs"]
mod util;
