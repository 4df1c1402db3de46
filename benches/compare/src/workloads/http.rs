//! W9: hyper says "hello", on loopgroup's traits and on tokio's.

use std::convert::Infallible;
use std::net::SocketAddr;

use ::loopgroup::compat::hyper::Timer;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::server;
use crate::child::Outcome;
use crate::params::Params;
use crate::runtimes::{Runtime, loopgroup, tokio_current, tokio_multi};

pub(super) fn run(runtime: Runtime, params: &Params) -> Outcome {
    let address: SocketAddr = match runtime {
        Runtime::Loopgroup => loopgroup::serve_with(1, |stream| {
            hello(stream, Builder::new().timer(Timer).clone())
        }),
        Runtime::TokioCurrent => tokio_current::serve_with(spawn),
        Runtime::TokioMulti => tokio_multi::serve_with(1, spawn),
        _ => return Err("hyper has no traits for it here".into()),
    };
    server::requests(
        "http",
        &["conns", "depth", "core", "millis"],
        address,
        params,
    )
}

fn spawn(stream: TcpStream) {
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new());
    tokio::spawn(hello(TokioIo::new(stream), builder));
}

async fn hello(stream: impl Read + Write + Unpin + 'static, builder: Builder) {
    let answer = |_: Request<_>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) };
    // The end of a connection is nobody's business: clients may reset it.
    let _ = builder.serve_connection(stream, service_fn(answer)).await;
}
