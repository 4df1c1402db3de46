//! An HTTP server whose idle HTTP/1 connections move between two loops as often as possible.
//!
//! Run it, and put load on it with any client; at the end of its standard input it stops, and prints what it
//! has counted:
//!
//! ```text
//! cargo run --release --example moving_http -- 127.0.0.1:8080
//! wrk -c 64 -d 5 http://127.0.0.1:8080/
//! ```

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use loopgroup::EventLoopGroup;
use loopgroup::compat::hyper::Http;

/// Answers with the number of bytes that were sent.
async fn answer(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    let (mut body, mut bytes) = (request.into_body(), 0);
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        bytes += frame.data_ref().map_or(0, |data| data.len());
    }
    Ok(Response::new(format!("{bytes} bytes\n")))
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let workers = EventLoopGroup::new(2)?;
    let served: Arc<[AtomicU64; 2]> = Arc::default();
    let counts = Arc::clone(&served);
    let server = Http::new().movable(true).serve(
        &workers,
        address.as_deref().unwrap_or("127.0.0.1:8080"),
        move |here| {
            let (counts, index) = (Arc::clone(&counts), here.index());
            service_fn(move |request| {
                counts[index].fetch_add(1, Ordering::Relaxed);
                answer(request)
            })
        },
    )?;
    println!("http://{}/", server.local_addr());

    let stop = Arc::new(AtomicBool::new(false));
    let (stopping, handle) = (Arc::clone(&stop), server.server().clone());
    let mover = thread::spawn(move || {
        while !stopping.load(Ordering::Relaxed) {
            let asked = handle.move_connections(0, 1, usize::MAX);
            if asked + handle.move_connections(1, 0, usize::MAX) == 0 {
                thread::sleep(Duration::from_micros(50)); // all of them are busy, or asked already
            }
        }
    });
    io::stdin().read_to_end(&mut Vec::new())?;
    stop.store(true, Ordering::Relaxed);
    mover.join().expect("it does not panic");

    server.stop();
    let report = workers.block_on(server);
    let [first, second] = [0, 1].map(|index| served[index].load(Ordering::Relaxed));
    println!(
        "requests={} first={first} second={second} moves={} accepted={} completed={} failed={} aborted={} rejected={}",
        first + second,
        report.moves(),
        report.accepted(),
        report.completed(),
        report.failed(),
        report.aborted(),
        report.rejected(),
    );
    workers.drain(Duration::from_secs(5)).wait();
    Ok(())
}
