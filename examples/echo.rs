//! Messages go from tasks on one loop to an echo task on the next one and back.
//!
//!     cargo run --release --example echo [-- --loops 2 --clients 64 --seconds 2]
//!
//! Prints how the work was spread over the loops, the latency of a round trip, and the report of the
//! shutdown:
//!
//!     echo: 2 loops, 64 clients, 2 s
//!     loop | thread          | clients | round trips
//!        0 | loop-0-0        |      32 | ...
//!     latency: p50 ..., p99 ..., max ...
//!     terminated after ...: 66 accepted = 66 completed + 0 panicked + 0 cancelled; 0 rejected

use std::time::{Duration, Instant};

use futures::channel::{mpsc, oneshot};
use futures::{SinkExt, StreamExt};
use loopgroup::{EventLoop, EventLoopGroup};

/// A message and where its echo goes.
type Message = (Vec<u8>, oneshot::Sender<Vec<u8>>);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let loops = option("--loops", 2)?;
    let clients = option("--clients", 64)?;
    let seconds = option("--seconds", 2)?;
    println!("echo: {loops} loops, {clients} clients, {seconds} s");

    let group = EventLoopGroup::new(loops)?;
    let servers: Vec<_> = group.loops().iter().map(serve).collect();
    let until = Instant::now() + Duration::from_secs(seconds as u64);
    // One `next()` per client: round-robin spreads them evenly.
    let work: Vec<_> = (0..clients)
        .map(|_| {
            let home = group.next();
            let server = servers[(home.index() + 1) % loops].clone();
            home.spawn(client(server, until))
        })
        .collect();
    drop(servers); // the echo tasks end with their last client

    let mut rows = vec![(String::new(), 0, 0); loops];
    let mut latencies = Vec::new();
    for client in work {
        let (index, thread, mut one) = group.block_on(client)?;
        rows[index] = (thread, rows[index].1 + 1, rows[index].2 + one.len());
        latencies.append(&mut one);
    }
    println!("loop | thread          | clients | round trips");
    for (index, (thread, clients, trips)) in rows.iter().enumerate() {
        println!("{index:4} | {thread:15} | {clients:7} | {trips}");
    }
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    let (half, most, all) = (at(50), at(99), at(100));
    println!("latency: p50 {half:?}, p99 {most:?}, max {all:?}");
    println!("{}", group.drain(Duration::from_secs(5)).wait());
    Ok(())
}

/// Starts the echo task of a loop.
fn serve(home: &EventLoop) -> mpsc::Sender<Message> {
    let (tx, mut rx) = mpsc::channel::<Message>(16);
    drop(home.spawn(async move {
        while let Some((message, reply)) = rx.next().await {
            let _ = reply.send(message);
        }
    })); // dropping the handle detaches the task: it goes on by itself
    tx
}

/// Sends and awaits the echo, one message at a time, at least once.
async fn client(mut to: mpsc::Sender<Message>, until: Instant) -> (usize, String, Vec<Duration>) {
    let home = EventLoop::current().expect("a task has a loop").index();
    let mut latencies = Vec::new();
    let mut message = b"hello".to_vec();
    while latencies.is_empty() || Instant::now() < until {
        let start = Instant::now();
        let (reply, echo) = oneshot::channel();
        to.send((message, reply)).await.expect("the server runs");
        message = echo.await.expect("the server answers");
        assert_eq!(message, b"hello");
        latencies.push(start.elapsed());
    }
    let thread = std::thread::current().name().unwrap_or("?").to_owned();
    (home, thread, latencies)
}

/// The number behind an option.
fn option(name: &str, default: usize) -> Result<usize, String> {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    if args.next().is_none() {
        return Ok(default);
    }
    let value = args.next().unwrap_or_default();
    let number = value.parse().ok().filter(|&number| number > 0);
    number.ok_or(format!("{name} needs a number above 0, not {value:?}"))
}
