//! An echo server: a boss loop accepts, worker loops serve, and clients of its own put it to work.
//!
//!     cargo run --release --example echo
//!     cargo run --release --example echo -- --listen 127.0.0.1:7777     # then: nc 127.0.0.1 7777
//!
//! Prints how the work was spread over the loops, the latencies, and how it ended:
//!
//!     echo: 1 boss, 2 workers on 127.0.0.1:...
//!     64 connections, messages of 64 bytes, for 3 s
//!     3.0 s: 75,249 echoes, 25,021/s
//!
//!     worker  connections  echoes
//!     0                32  33,344
//!     1                32  41,905
//!
//!     round trips     p50      p90      p99    p99.9      max
//!     75,249       721 µs  7.86 ms  21.0 ms  46.1 ms  58.7 ms
//!
//!     clean: 64 connections served, 3 loops ended in 171 µs
//!
//! With `--listen` it serves until Ctrl-C (or SIGTERM) and then lets its connections finish, 5 s at most.

mod figures;
mod latency;
mod load;
mod options;
mod rows;
mod verdict;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use figures::counted;
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoop, EventLoopGroup, shutdown_requested, signal};
use options::Options;
use rows::Row;

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
    let (loops, address) = (counted(options.loops, "worker"), server.local_addr());
    println!("echo: 1 boss, {loops} on {address}");
    if options.listen.is_some() {
        workers.block_on(signal::shutdown())?; // Ctrl-C
    } else {
        let echoes = || rows.iter().map(|row| row.echoes.load(Relaxed)).sum();
        let latencies = load::run(address, options, echoes)?;
        rows::print(&rows);
        println!();
        latencies.print();
        println!();
    }
    if options.metrics {
        println!("{}\n", workers.metrics());
    }
    server.stop(); // nobody new; who is here may finish
    let workers = workers.drain(Duration::from_secs(5)).wait();
    let server = boss.block_on(server);
    let boss = boss.drain(Duration::from_secs(5)).wait();
    verdict::print(&server, &[("workers", workers), ("boss", boss)]);
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
