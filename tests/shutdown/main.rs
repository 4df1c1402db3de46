//! A shutdown ends on its terms, runs every hook, and reports figures that add up.

mod hooks;
mod lifecycle;
mod reports;
mod shutdown;
mod termination;

#[path = "../util/mod.rs"]
mod util;
