//! A future stays on its home loop, and a thread is a loop or it is not.

mod affinity;
mod block_on;
mod loop_bound;
mod manual_loop;
mod per_loop;
mod run;
mod thread_locals;

#[path = "../util/mod.rs"]
mod util;
