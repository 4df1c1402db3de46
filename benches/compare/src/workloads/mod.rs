//! The workloads: each written once and run on every runtime that can express it.
//!
//! - A workload is a function of the runtime's type; [`with_runtime!`] makes the instances.
//! - The floor has versions of its own: it has no futures.

pub(crate) mod across;
pub(crate) mod hashing;
#[cfg(feature = "hyper")]
mod http;
mod loops;
mod outside;
pub(crate) mod parked;
mod pending;
mod ping_pong;
mod placement;
mod server;
mod spawn;
pub(crate) mod timers;
mod yields;

use crate::child::{Cannot, Outcome};
use crate::params::Params;
use crate::runtimes::{
    Loopgroup, Remote, Runtime, Serve, Spawn, floor, loopgroup, refusal, with_runtime,
};

/// Runs the workload of that name on that runtime.
pub(crate) fn run(runtime: Runtime, workload: &str, params: &Params) -> Outcome {
    if !runtime.is_built() {
        let feature = runtime.feature().unwrap_or_default();
        return Err(format!("not in this build: add --features {feature}").into());
    }
    #[cfg(feature = "programs")]
    if workload == "w17" || workload.starts_with("programs.") {
        return crate::programs::run(runtime, workload, params);
    }
    if let Some(reason) = refusal(runtime, workload) {
        return Err(reason.into());
    }
    match runtime {
        Runtime::Floor => on_floor(workload, params),
        Runtime::FloorSpin => match workload {
            "w5" => Ok(floor::across::spinning(params)),
            _ => none(workload),
        },
        Runtime::LoopgroupSpin => match workload {
            "w5" => on_loop::<loopgroup::SpinningLoop>(workload, params),
            _ => none(workload),
        },
        Runtime::LoopgroupPrecise => match workload {
            "w7.lateness" => {
                let owned = params.clone();
                Loopgroup::run_precisely(timers::lateness::<Loopgroup>(owned))
            }
            _ => none(workload),
        },
        _ => on_runtime(runtime, workload, params),
    }
}

fn none(workload: &str) -> Outcome {
    Err(Cannot(format!("it has no workload {workload}")))
}

fn on_runtime(runtime: Runtime, workload: &str, params: &Params) -> Outcome {
    let owned = params.clone();
    match workload {
        "w2" => Ok(with_runtime!(runtime, R => R::run(spawn::run::<R>(owned)))),
        "w3" => Ok(with_runtime!(runtime, R => R::run(yields::run::<R>(owned)))),
        "w4" => Ok(with_runtime!(runtime, R => R::run(ping_pong::run::<R>(owned)))),
        "w7.churn" => Ok(with_runtime!(runtime, R => R::run(timers::churn::<R>(owned)))),
        "w7.lateness" => with_runtime!(runtime, R => R::run(timers::lateness::<R>(owned))),
        "w8" | "w10.idle" | "w10.rate" => {
            with_runtime!(runtime, R => on_server(workload, <R as Serve>::serve, params))
        }
        #[cfg(feature = "hyper")]
        "w9" => http::run(runtime, params),
        "w11" => Ok(with_runtime!(runtime, R => R::run(pending::memory::<R>(owned)))),
        "w13.outside" => Ok(loops::outside(params)),
        "w13.home" => loops::home(params),
        "w13.echo" => loops::echo(runtime, params),
        "w16" => placement::run(runtime, params),
        "w18" => placement::low(runtime, params),
        "w14" => {
            let tasks = params.get("tasks");
            let time = with_runtime!(runtime, R => R::run_then_drop(pending::fill::<R>(tasks)));
            pending::ended(params, time)
        }
        _ => with_runtime!(runtime, R => on_loop::<<R as Spawn>::Loop>(workload, params)),
    }
}

/// The workloads that come from outside.
fn on_loop<L: Remote>(workload: &str, params: &Params) -> Outcome {
    match workload {
        "w5" => Ok(across::run::<L>(params)),
        "w12.wake" => Ok(parked::wake::<L>(params)),
        "w12.idle" => Ok(parked::idle::<L>(params)),
        _ => outside::run::<L>(workload, params).map_or_else(|| none(workload), Ok),
    }
}

fn on_server(workload: &str, serve: fn(usize) -> std::net::SocketAddr, params: &Params) -> Outcome {
    match workload {
        "w8" => server::echo(serve, params),
        "w10.idle" => server::idle(serve, params),
        _ => server::rate(serve, params),
    }
}

fn on_floor(workload: &str, params: &Params) -> Outcome {
    match workload {
        "w2" => Ok(floor::queue::spawn(params)),
        "w3" => Ok(floor::queue::yields(params)),
        "w4" => Ok(floor::queue::ping_pong(params)),
        "w5" => Ok(floor::across::parked(params)),
        "w7.churn" => Ok(floor::timers::churn(params)),
        "w7.lateness" => floor::timers::lateness(params),
        "w8" | "w10.idle" | "w10.rate" => on_server(workload, floor::echo::serve, params),
        "w11" => Ok(floor::pending::memory(params)),
        "w12.wake" => Ok(floor::across::wake(params)),
        "w12.idle" => Ok(floor::across::idle(params)),
        "w14" => Ok(floor::pending::end(params)),
        _ => outside::floor(workload, params).map_or_else(|| none(workload), Ok),
    }
}
