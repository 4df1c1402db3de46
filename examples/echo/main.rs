//! An echo server: a boss loop accepts, worker loops serve, and clients of its own put it to work.
//!
//!     cargo run --release --example echo
//!     cargo run --release --example echo -- --listen 127.0.0.1:7777     # then: nc 127.0.0.1 7777
//!
//! Prints how the work was spread over the loops, the latencies, and what server and loops say at their end:
//!
//!     echo: 1 boss, 2 workers on 127.0.0.1:...
//!     64 connections of 64 bytes, for 3 s
//!     3.0 s: ... echoes, ... a second
//!     worker | connections | echoes
//!          0 |          32 | ...
//!          1 |          32 | ...
//!     latency of ... round trips: p50 ..., p90 ..., p99 ..., p99.9 ..., max ...
//!     workers: terminated after ...: ... accepted = ... completed + 0 panicked + 0 cancelled; 0 rejected
//!     server: 64 connections accepted = 64 completed + 0 aborted + 0 rejected; 0 accept errors
//!
//! With `--listen` it serves until Ctrl-C (or SIGTERM) and then lets its connections finish, 5 s at most.

mod latency;
mod load;
mod options;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoop, EventLoopGroup, shutdown_requested, signal};
use options::Options;

/// What each worker loop has done.
#[derive(Default)]
struct Row {
    connections: AtomicU64,
    echoes: AtomicU64,
}

fn main() -> ExitCode {
    match Options::from_args().and_then(|options| serve(&options).map_err(|e| e.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let (boss, workers) = (EventLoopGroup::new(1)?, EventLoopGroup::new(options.loops)?);
    let rows: Arc<[Row]> = (0..options.loops).map(|_| Row::default()).collect();
    let counts = Arc::clone(&rows);
    let server = Server::new(&*options.address())?
        .boss(&boss)
        .workers(&workers)
        .serve(move |stream, _peer| echo(stream, Arc::clone(&counts)))?;
    println!(
        "echo: 1 boss, {} workers on {}",
        options.loops,
        server.local_addr()
    );
    if options.listen.is_some() {
        workers.block_on(signal::shutdown())?; // Ctrl-C
    } else {
        let echoes = || rows.iter().map(|row| row.echoes.load(Relaxed)).sum();
        let latencies = load::run(server.local_addr(), options, echoes)?;
        println!("worker | connections | echoes");
        for (index, row) in rows.iter().enumerate() {
            let (connections, echoes) = (row.connections.load(Relaxed), row.echoes.load(Relaxed));
            println!("{index:6} | {connections:11} | {echoes}");
        }
        println!("latency of {latencies}");
    }
    server.stop(); // nobody new; who is here may finish
    println!("workers: {}", workers.drain(Duration::from_secs(5)).wait());
    println!("server: {}", boss.block_on(server));
    println!("boss: {}", boss.drain(Duration::from_secs(5)).wait());
    Ok(())
}

/// Echoes what it reads until the peer is done, or the loop is to end. It never leaves its loop.
async fn echo(mut stream: TcpStream, rows: Arc<[Row]>) {
    let row = &rows[EventLoop::current().expect("a handler has a loop").index()];
    row.connections.fetch_add(1, Relaxed);
    let mut buf = vec![0; 16 * 1024];
    let mut asked_to_end = std::pin::pin!(shutdown_requested());
    let _ = stream.set_nodelay(true);
    loop {
        let read = futures::future::select(stream.read(&mut buf), &mut asked_to_end).await;
        let futures::future::Either::Left((Ok(read @ 1..), _)) = read else {
            return;
        };
        if stream.write_all(&buf[..read]).await.is_err() {
            return;
        }
        row.echoes.fetch_add(1, Relaxed);
    }
}
