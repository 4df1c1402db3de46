//! HTTP/1 and HTTP/2 by hyper, each connection and all its streams on one loop.
//!
//!     cargo run --release --example hyper_hello -- 8080
//!     curl http://127.0.0.1:8080/                              # hello over HTTP/1.1, visit 1 on loop 0
//!     curl --http2-prior-knowledge http://127.0.0.1:8080/      # hello over HTTP/2.0, visit 1 on loop 1
//!
//! Ctrl-C ends it after the requests at hand.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::server::conn::auto::Builder;
use loopgroup::EventLoop;
use loopgroup::compat::hyper::{LocalExecutor, Timer};
use loopgroup::net::TcpStream;

thread_local! {
    /// Of this loop: no lock, as only this thread comes here.
    static VISITS: Rc<Cell<u64>> = Rc::default();
}

fn main() -> std::io::Result<()> {
    ecosystem::serve("hyper_hello", |stream, _peer| connection(stream))
}

async fn connection(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let visits = VISITS.with(Rc::clone); // not Send, and need not be
    let service = service_fn(move |request| hello(request, Rc::clone(&visits)));
    let mut builder = Builder::new(LocalExecutor);
    builder
        .http1()
        .timer(Timer)
        .header_read_timeout(Duration::from_secs(30));
    builder
        .http2()
        .timer(Timer)
        .keep_alive_interval(Duration::from_secs(30));
    let served = ecosystem::until_shutdown(builder.serve_connection(stream, service)).await;
    if let Err(error) = served {
        eprintln!("a connection failed: {error}");
    }
}

async fn hello(
    request: Request<Incoming>,
    visits: Rc<Cell<u64>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    visits.set(visits.get() + 1);
    let home = EventLoop::current().expect("a handler has a loop").index();
    let text = format!(
        "hello over {:?}, visit {} on loop {home}\n",
        request.version(),
        visits.get()
    );
    Ok(Response::new(Full::from(text)))
}
