//! Serves the metrics of two groups and a server for Prometheus, of a program that is always doing something.
//!
//!     cargo run --release --example metrics -- 127.0.0.1:9464
//!     curl http://127.0.0.1:9464/metrics
//!
//! Ctrl-C ends it.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, body::Incoming};
use loopgroup::compat::hyper::serve;
use loopgroup::net::{Server, ServerHandle};
use loopgroup::time::interval;
use loopgroup::{EventLoopGroup, Prometheus, shutdown_requested, signal};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:9464".to_owned());
    // The metrics have a loop of their own: they can be had while the workers are stuck.
    let observer = EventLoopGroup::new(1)?;
    let workers = EventLoopGroup::builder()
        .loops(2)
        .measure_time(true)
        .build()?;
    for index in 0..workers.len() {
        drop(workers.spawn_on(index, work(index)));
    }
    let echo = Server::new("127.0.0.1:0")?
        .workers(&workers)
        .serve(|stream, _| async move { futures::io::copy(&stream, &mut &stream).await })?;
    let seen = (observer.clone(), workers.clone(), echo);
    let server = serve(&observer, &*address, move |_| {
        let seen = seen.clone();
        service_fn(move |request| {
            let response = answer(&request, &seen);
            async { Ok::<_, Infallible>(response) }
        })
    })?;
    println!("http://{}/metrics", server.local_addr());
    observer.block_on(signal::shutdown())?;
    println!("{}", workers.drain(Duration::from_secs(5)).wait());
    println!("{}", observer.drain(Duration::from_secs(5)).wait());
    Ok(())
}

/// Computes for a millisecond now and then, until the shutdown.
async fn work(index: usize) {
    let mut ticks = interval(Duration::from_millis(10 + index as u64));
    let mut shutdown = pin!(shutdown_requested());
    while let Either::Left(_) = select(pin!(ticks.tick()), &mut shutdown).await {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1) {}
    }
}

fn answer(
    request: &Request<Incoming>,
    (observer, workers, echo): &(EventLoopGroup, EventLoopGroup, ServerHandle),
) -> Response<String> {
    if request.uri().path() != "/metrics" {
        let mut response = Response::new("there is only /metrics\n".to_owned());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let text = Prometheus::new()
        .group("observer", &observer.metrics())
        .group("workers", &workers.metrics())
        .server("echo", echo);
    let mut response = Response::new(text.to_string());
    let kind = HeaderValue::from_static(Prometheus::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
