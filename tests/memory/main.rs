//! A loop allocates little, sleeps when it is idle, and gives back everything.

mod allocations;
mod allocator;
mod churn;
mod idle;
mod leaks;
mod parked;
mod records;

#[path = "../util/mod.rs"]
mod util;
