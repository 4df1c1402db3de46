//! Work that is submitted runs once, ends once, and tells how it ended.

mod bounds;
mod closures;
mod fairness;
mod handles;
mod join;
mod panics;
mod regressions;
mod spawn;
mod wakers;

#[path = "../util/mod.rs"]
mod util;
