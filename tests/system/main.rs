//! Failing system calls, signals and missing threads or descriptors break no loop.

mod faults;
mod signals;

#[path = "../util/mod.rs"]
mod util;
