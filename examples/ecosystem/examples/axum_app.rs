//! An axum router, with tower layers, over loopgroup's server.
//!
//!     cargo run --release --example axum_app -- 8080
//!     curl http://127.0.0.1:8080/                              # routes: / /hello/{name} /slow
//!     curl -i http://127.0.0.1:8080/hello/you                  # hello, you    (and a header, x-loop: 0)
//!     curl http://127.0.0.1:8080/nowhere                       # 404
//!
//! Ctrl-C ends it after the requests at hand: try it during `curl http://127.0.0.1:8080/slow`.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::get;
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use loopgroup::compat::hyper::{LocalExecutor, Timer};
use loopgroup::net::TcpStream;
use loopgroup::{EventLoop, time};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::util::MapResponseLayer;

fn main() -> std::io::Result<()> {
    let router = Router::new()
        .route("/", get(|| async { "routes: / /hello/{name} /slow\n" }))
        .route("/hello/{name}", get(hello))
        .route("/slow", get(slow))
        // One limit for all loops: a semaphore of tokio, which needs no runtime of tokio.
        .layer(GlobalConcurrencyLimitLayer::new(1000))
        .layer(MapResponseLayer::new(name_the_loop));
    ecosystem::serve("axum_app", move |stream, _peer| {
        connection(stream, router.clone())
    })
}

async fn connection(stream: TcpStream, router: Router) {
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(LocalExecutor);
    builder
        .http1()
        .timer(Timer)
        .header_read_timeout(Duration::from_secs(30));
    builder.http2().timer(Timer);
    let connection = builder.serve_connection(stream, TowerToHyperService::new(router));
    if let Err(error) = ecosystem::until_shutdown(connection).await {
        eprintln!("a connection failed: {error}");
    }
}

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}\n")
}

async fn slow() -> &'static str {
    time::sleep(Duration::from_secs(1)).await; // a timer of the loop
    "that took a second\n"
}

/// A tower layer like any other; it runs where the connection is at home.
fn name_the_loop(mut response: Response) -> Response {
    let home = EventLoop::current().expect("a handler has a loop").index();
    response
        .headers_mut()
        .insert("x-loop", HeaderValue::from(home));
    response
}
