//! A group has the loops, threads and figures that its builder was asked for.

mod blocking;
mod builder;
mod choosers;
mod executor_group;
mod metrics;
mod pinning;
mod threads;
mod unwinding;

#[path = "../util/mod.rs"]
mod util;
