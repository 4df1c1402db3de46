//! Clients that send, await the echo, and note how long it took.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::TcpStream;
use loopgroup::{EventLoopGroup, time};

use crate::figures::{count, counted};
use crate::latency::Latencies;
use crate::options::Options;

/// Runs the clients on a loop of their own; `echoes` tells how many there were so far.
pub(crate) fn run(
    server: SocketAddr,
    options: &Options,
    echoes: impl Fn() -> u64,
) -> Result<Latencies, Box<dyn std::error::Error>> {
    let clients = EventLoopGroup::new(1)?;
    let Options {
        connections,
        size,
        seconds,
        ..
    } = *options;
    let (clients_text, bytes) = (counted(connections, "connection"), counted(size, "byte"));
    println!("{clients_text}, messages of {bytes}, for {seconds} s");
    let start = Instant::now();
    let until = start
        .checked_add(Duration::from_secs(seconds as u64))
        .ok_or("--seconds is beyond the end of the clock")?;
    let tasks: Vec<_> = (0..connections)
        .map(|_| clients.spawn(client(server, size, until)))
        .collect();
    let moving = io::stdout().is_terminal();
    while Instant::now() < until {
        let next = until.min(Instant::now() + Duration::from_millis(200));
        clients.block_on(time::sleep_until(next));
        if moving || next == until {
            let (echoes, seconds) = (echoes(), start.elapsed().as_secs_f64());
            let rate = count((echoes as f64 / seconds) as u64);
            let from = if moving { "\r" } else { "" };
            print!("{from}{seconds:.1} s: {} echoes, {rate}/s", count(echoes));
            io::stdout().flush()?;
        }
    }
    println!("\n");
    let mut all = Latencies::default();
    for task in tasks {
        all.add(&clients.block_on(task)??);
    }
    clients.drain(Duration::from_secs(5)).wait();
    Ok(all)
}

/// Sends and awaits the echo, one message at a time, at least once.
async fn client(server: SocketAddr, size: usize, until: Instant) -> io::Result<Latencies> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let (mut latencies, mut echo) = (Latencies::default(), vec![0; size]);
    let mut start = Instant::now();
    for round in 0_u64.. {
        let message = vec![round as u8; size];
        let (mut reader, mut writer) = (&stream, &stream);
        // Both at once: a large message comes back before it is all sent.
        let both = futures::join!(writer.write_all(&message), reader.read_exact(&mut echo));
        both.0.and(both.1)?;
        assert_eq!(message, echo, "the echo of round {round}");
        let end = Instant::now();
        latencies.note(end - start);
        start = end;
        if end >= until {
            break;
        }
    }
    stream.close().await?;
    Ok(latencies)
}
