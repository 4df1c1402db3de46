//! W16: two loops, and the connections that matter are all on one of them. W18: so little load that one loop
//! would do.
//!
//! - The first half of the connections is hot. Placed evenly, connections alternate between the loops; placed
//!   unluckily, the hot ones are all on the first loop, and the others on the second.
//! - loopgroup and Netty place by the order in which connections are accepted. tokio and smol have no places:
//!   their workers take what is ready.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::loopgroup::net::{Rebalance, Server, ServerHandle, TcpStream, Turn};
use ::loopgroup::{Elastic, EventLoop, EventLoopGroup, GroupView};
use futures::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::hashing::{REQUEST, answer};
use super::server;
use crate::child::{Figures, Outcome};
use crate::params::Params;
use crate::runtimes::{Runtime, smol, tokio_multi};

const LOOPS: usize = 2;

pub(super) fn run(runtime: Runtime, params: &Params) -> Outcome {
    let steps = params.get("work");
    match runtime {
        Runtime::TokioMulti => {
            let address = tokio_multi::serve_with(LOOPS, move |stream| {
                drop(tokio::spawn(on_tokio(stream, steps)));
            });
            measure(address, params)
        }
        Runtime::Smol => {
            let serve = move |stream| serve_all(stream, steps);
            measure(smol::serve_with(LOOPS, serve), params)
        }
        Runtime::Loopgroup | Runtime::LoopgroupUnmoved | Runtime::LoopgroupEven => {
            let place = match runtime {
                Runtime::LoopgroupEven => Place::Even,
                _ => Place::of(params),
            };
            on_loopgroup(runtime, place, params)
        }
        other => Err(format!("{} has one thread here", other.name()).into()),
    }
}

/// W18: connections that ask now and then, and two loops, two workers, or as many loops as it takes.
pub(super) fn low(runtime: Runtime, params: &Params) -> Outcome {
    let builder = match runtime {
        Runtime::LoopgroupElastic => EventLoopGroup::builder().elastic(Elastic {
            max: LOOPS,
            patience: Duration::from_millis(250),
            ..Elastic::default()
        }),
        Runtime::Loopgroup => EventLoopGroup::builder().loops(LOOPS),
        other => return run(other, params),
    };
    let group = builder.build().map_err(|error| error.to_string())?;
    // As after a time of higher load.
    group.loops().iter().for_each(EventLoop::resume);
    let server = serve(Runtime::LoopgroupUnmoved, &group, params.get("work"));
    let server = server.map_err(|error| error.to_string())?;
    let figures = measure(server.local_addr(), params)?;
    Ok(figures.with("moves", server.moves() as f64))
}

/// Where connections are placed, by the order in which they are accepted.
#[derive(Clone, Copy)]
enum Place {
    Even,
    /// The hot ones on one loop, and the others on the other.
    Unlucky {
        hot: usize,
        of: usize,
    },
}

impl Place {
    fn of(params: &Params) -> Place {
        match params.get("unlucky") {
            0 => Place::Even,
            _ => Place::Unlucky {
                hot: params.get("hot"),
                of: params.get("conns"),
            },
        }
    }

    fn index(self, accepted: usize) -> usize {
        match self {
            Place::Even => accepted % LOOPS,
            Place::Unlucky { hot, of } => usize::from(accepted % of >= hot),
        }
    }
}

fn on_loopgroup(runtime: Runtime, place: Place, params: &Params) -> Outcome {
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    let group = EventLoopGroup::builder()
        .loops(LOOPS)
        .chooser(move |_: &GroupView<'_>| place.index(counter.fetch_add(1, Ordering::Relaxed)))
        .build()
        .map_err(|error| error.to_string())?;
    let server = serve(runtime, &group, params.get("work")).map_err(|error| error.to_string())?;
    // The server has chosen a loop to accept on: what is chosen from here on is for connections.
    accepted.store(0, Ordering::Relaxed);
    let figures = measure(server.local_addr(), params)?;
    Ok(figures.with("moves", server.moves() as f64))
}

fn serve(runtime: Runtime, group: &EventLoopGroup, steps: usize) -> io::Result<ServerHandle> {
    let server = Server::new("127.0.0.1:0")?.workers(group).nodelay(true);
    let turn = async move |mut stream: &TcpStream, _: &mut ()| {
        let mut request = [0; REQUEST];
        match stream.read_exact(&mut request).await {
            Ok(()) => {
                stream.write_all(&answer(&request, steps)).await?;
                io::Result::Ok(Turn::Next)
            }
            Err(_) => Ok(Turn::Close),
        }
    };
    match runtime {
        Runtime::LoopgroupEven => server.serve(move |stream, _| serve_all(stream, steps)),
        Runtime::LoopgroupUnmoved => server.serve_turns(|_, _| (), turn),
        _ => {
            let server = server.rebalance(Rebalance::by_utilization());
            server.serve_turns(|_, _| (), turn)
        }
    }
}

/// Answers until the peer is done.
async fn serve_all(mut stream: impl AsyncRead + AsyncWrite + Unpin, steps: usize) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).await.is_ok() {
        if stream.write_all(&answer(&request, steps)).await.is_err() {
            return;
        }
    }
}

async fn on_tokio(mut stream: tokio::net::TcpStream, steps: usize) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).await.is_ok() {
        if stream.write_all(&answer(&request, steps)).await.is_err() {
            return;
        }
    }
}

fn measure(address: SocketAddr, params: &Params) -> Result<Figures, crate::child::Cannot> {
    server::latencies(
        "uneven",
        &["conns", "hot", "work", "warm", "millis"],
        address,
        params,
    )
}
