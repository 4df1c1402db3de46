//! HTTP/1 and HTTP/2 by hyper, each connection and all its streams on one loop.
//!
//!     cargo run --release --example hyper_hello -- 8080
//!     curl http://127.0.0.1:8080/                              # hello over HTTP/1.1, visit 1 on loop 0
//!     curl --http2-prior-knowledge http://127.0.0.1:8080/      # hello over HTTP/2.0, visit 1 on loop 1
//!
//! Ctrl-C ends it after the requests under way.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use loopgroup::EventLoopGroup;
use loopgroup::compat::hyper::serve;

fn main() -> std::io::Result<()> {
    let workers = EventLoopGroup::new(2)?;
    let server = serve(&workers, ("127.0.0.1", ecosystem::port()), |here| {
        let home = here.index();
        let visits = Rc::new(Cell::new(0)); // of this loop: no lock, as it never leaves its thread
        service_fn(move |request| hello(request, home, Rc::clone(&visits)))
    })?;
    ecosystem::until_ctrl_c("hyper_hello", &workers, server)
}

async fn hello(
    request: Request<Incoming>,
    home: usize,
    visits: Rc<Cell<u64>>,
) -> Result<Response<String>, Infallible> {
    visits.set(visits.get() + 1);
    let text = format!(
        "hello over {:?}, visit {} on loop {home}\n",
        request.version(),
        visits.get()
    );
    Ok(Response::new(text))
}
