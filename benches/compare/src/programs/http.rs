//! An axum router: "hello", and a small API that reads and writes JSON.

use std::net::SocketAddr;
use std::time::Duration;

use ::loopgroup::compat::hyper::Http;
use ::loopgroup::net::{Rebalance, Server};
use ::loopgroup::{Builder, CorePinning, Elastic, EventLoopGroup, WaitStrategy};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::spinner::Spinner;
use super::{figures, tools};
use crate::child::{Cannot, Outcome};
use crate::params::Params;
use crate::runtimes::{Runtime, loopgroup::group};
use crate::sys;

/// As many loops, or workers.
const LOOPS: usize = 2;

const ORDER: &str = r#"{"id":4711,"customer":"A. Person","items":[
{"name":"nut","quantity":12,"cents":5},
{"name":"bolt","quantity":12,"cents":9},
{"name":"tin","quantity":1,"cents":1250}]}"#;

pub(super) fn hello(runtime: Runtime, params: &Params) -> Outcome {
    measure(serve(runtime, false)?, "/", None, params)
}

pub(super) fn json(runtime: Runtime, params: &Params) -> Outcome {
    measure(serve(runtime, false)?, "/total", Some(ORDER), params)
}

/// "hello" on loops that share the load, perhaps while one core is busy with something else.
pub(super) fn moving(runtime: Runtime, params: &Params) -> Outcome {
    let moves = matches!(
        runtime,
        Runtime::Loopgroup | Runtime::LoopgroupPinned | Runtime::LoopgroupElastic
    );
    let address = serve(runtime, moves)?;
    let _spinner = params.find("spinner").map(Spinner::on).transpose()?;
    measure(address, "/", None, params)
}

fn router() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/total", post(total))
}

#[derive(Deserialize)]
struct Order {
    id: u64,
    customer: String,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    name: String,
    quantity: u64,
    cents: u64,
}

#[derive(Serialize)]
struct Total {
    id: u64,
    customer: String,
    names: Vec<String>,
    cents: u64,
}

async fn total(Json(order): Json<Order>) -> Json<Total> {
    Json(Total {
        id: order.id,
        customer: order.customer,
        cents: order.items.iter().map(|it| it.quantity * it.cents).sum(),
        names: order.items.into_iter().map(|it| it.name).collect(),
    })
}

/// Starts the server; with `moves` it moves connections from a busy loop to the other one.
fn serve(runtime: Runtime, moves: bool) -> Result<SocketAddr, Cannot> {
    let workers = EventLoopGroup::builder().loops(LOOPS);
    match runtime {
        Runtime::Loopgroup | Runtime::LoopgroupUnmoved => {
            on_loopgroup(Accept::EachLoop, moves, workers)
        }
        Runtime::LoopgroupPinned => {
            let workers = workers.pin_cores(CorePinning::RoundRobin);
            on_loopgroup(Accept::EachLoop, moves, workers)
        }
        Runtime::LoopgroupElastic => {
            let workers = EventLoopGroup::builder().elastic(ELASTIC);
            on_loopgroup(Accept::OneLoop, moves, workers)
        }
        Runtime::LoopgroupBoss => on_loopgroup(Accept::Boss, moves, workers),
        Runtime::TokioMulti => on_tokio(),
        other => return Err(format!("{} has no such program", other.name()).into()),
    }
    .map_err(|error| Cannot(error.to_string()))
}

fn measure(address: SocketAddr, path: &str, body: Option<&str>, params: &Params) -> Outcome {
    let url = format!("http://{address}{path}");
    let before = sys::cpu_time();
    let counted = match params.get("http") {
        1 => tools::wrk(&url, body, params)?,
        _ => tools::h2load(&url, body, params)?,
    };
    let cpu = sys::cpu_time() - before;
    let counted = match params.get("http") {
        1 => counted,
        // A log of each request costs the clients time: it is written in a run of its own.
        _ => tools::h2load_latencies(counted, &url, body, params)?,
    };
    Ok(figures(&counted, cpu.as_nanos() as f64))
}

/// Who accepts connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accept {
    /// Each loop, on a listener of its own.
    EachLoop,
    /// One of the loops, for those that are active.
    OneLoop,
    /// A loop that does nothing else.
    Boss,
}

/// A second loop is started when one loop has no time left.
const ELASTIC: Elastic = Elastic {
    min: 1,
    max: LOOPS,
    up: 0.98,
    down: 0.4,
    patience: Duration::from_secs(1),
};

fn on_loopgroup(accept: Accept, moves: bool, workers: Builder) -> std::io::Result<SocketAddr> {
    let workers = workers.build()?;
    if accept != Accept::OneLoop {
        workers.start()?;
    }
    let server = Server::new("127.0.0.1:0")?;
    let bosses = (accept == Accept::Boss).then(|| group(1, WaitStrategy::Park));
    let server = match &bosses {
        Some(bosses) => server.boss(bosses),
        None => server.reuse_port(accept == Accept::EachLoop),
    };
    let server = match moves {
        true => server.rebalance(Rebalance::by_utilization()),
        false => server,
    };
    let router = router();
    let server = Http::new().serve_tower(&workers, server, move |_| router.clone())?;
    let address = server.local_addr();
    // The groups live as long as the server, and that until the process ends.
    std::thread::spawn(move || (workers.block_on(server), bosses));
    Ok(address)
}

/// `axum::serve`, as its documentation has it.
fn on_tokio() -> std::io::Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(LOOPS)
        .enable_all()
        .build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    // Nagle's algorithm is off on the other side, too.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let server = runtime.spawn(async move { axum::serve(listener, router()).await });
    std::thread::spawn(move || runtime.block_on(server));
    Ok(address)
}
