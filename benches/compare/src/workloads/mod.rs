//! The workloads: each written once and run on every runtime that can express it.
//!
//! - A workload is a function of the runtime's type; [`with_runtime!`] makes the instances.
//! - The floor has versions of its own: it has no futures.

mod outside;
mod ping_pong;
mod spawn;
mod yields;

use crate::child::{Cannot, Outcome};
use crate::params::Params;
use crate::runtimes::floor;
use crate::runtimes::{Runtime, Spawn, with_runtime};

/// Runs the workload of that name on that runtime.
pub(crate) fn run(runtime: Runtime, workload: &str, params: &Params) -> Outcome {
    if !runtime.is_built() {
        return Err("not in this build: add --features full".into());
    }
    if let Some(reason) = refusal(runtime, workload) {
        return Err(reason.into());
    }
    let owned = params.clone();
    match (workload, runtime) {
        ("w1", Runtime::Floor) => Ok(outside::floor(params, 1)),
        ("w1", _) => with_runtime!(runtime, R => outside::run::<<R as Spawn>::Loop>(params, 1)),
        ("w2", Runtime::Floor) => Ok(floor::queue::spawn(params)),
        ("w2", _) => with_runtime!(runtime, R => R::run(spawn::run::<R>(owned))),
        ("w3", Runtime::Floor) => Ok(floor::queue::yields(params)),
        ("w3", _) => with_runtime!(runtime, R => R::run(yields::run::<R>(owned))),
        ("w4", Runtime::Floor) => Ok(floor::queue::ping_pong(params)),
        ("w4", _) => with_runtime!(runtime, R => R::run(ping_pong::run::<R>(owned))),
        ("w6", Runtime::Floor) => Ok(outside::floor(params, 4)),
        ("w6", _) => with_runtime!(runtime, R => outside::run::<<R as Spawn>::Loop>(params, 4)),
        _ => Err(Cannot(format!("no workload {workload}"))),
    }
}

/// Why a runtime cannot do a workload, as far as that can be told beforehand.
fn refusal(_runtime: Runtime, _workload: &str) -> Option<&'static str> {
    None
}
