//! An axum router with tower layers, on our loops.
//!
//!     cargo run --release --example axum_app -- 8080
//!     curl http://127.0.0.1:8080/                              # routes: / /hello/{name} /visits /slow
//!     curl -i http://127.0.0.1:8080/hello/you                  # hello, you    (and a header, x-loop: 0)
//!     curl http://127.0.0.1:8080/visits                        # visit 1 on this loop
//!     curl http://127.0.0.1:8080/nowhere                       # 404
//!
//! Ctrl-C ends it after the requests under way: try it during `curl http://127.0.0.1:8080/slow`.
//!
//! axum's handlers and states have to be `Send`. State that is not, such as the counter here, is bound to
//! its loop: the `LoopBound` is `Send`, and reaches the value without a hop, as the handlers of a loop run
//! on it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::response::Response;
use axum::routing::get;
use loopgroup::compat::hyper::serve_tower;
use loopgroup::{EventLoop, EventLoopGroup, LoopBound, time};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::util::MapResponseLayer;

type Visits = LoopBound<Rc<Cell<u64>>>;

fn main() -> std::io::Result<()> {
    let workers = EventLoopGroup::new(2)?;
    // One limit for all loops: a semaphore of tokio, which needs no runtime of tokio.
    let limit = GlobalConcurrencyLimitLayer::new(1000);
    let address = ("127.0.0.1", ecosystem::port());
    let server = serve_tower(&workers, address, move |here| {
        router(here).layer(limit.clone())
    })?;
    ecosystem::until_ctrl_c("axum_app", &workers, server)
}

/// The routes, and the state of one loop.
fn router(here: &EventLoop) -> Router {
    Router::new()
        .route(
            "/",
            get(|| async { "routes: / /hello/{name} /visits /slow\n" }),
        )
        .route("/hello/{name}", get(hello))
        .route("/visits", get(visits))
        .route("/slow", get(slow))
        .with_state(here.bind(Rc::default))
        .layer(MapResponseLayer::new(name_the_loop))
}

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}\n")
}

async fn visits(State(visits): State<Visits>) -> String {
    visits.with_local(|visits| {
        visits.set(visits.get() + 1);
        format!("visit {} on this loop\n", visits.get())
    })
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
