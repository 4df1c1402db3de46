//! turmoil: sockets of its own beside tokio's, a tick of 1 ms, a runtime of tokio for each host.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;
use tokio::time::{interval, sleep};
use turmoil::net::{TcpListener, TcpStream};

use crate::{BEAT, LATENCY, PORT, name, peers};

/// Returns how many answers have arrived.
pub(crate) fn turmoil(hosts: usize, virtual_time: Duration) -> u64 {
    let heartbeats = Rc::<Cell<u64>>::default();
    let mut sim = turmoil::Builder::new()
        .simulation_duration(virtual_time + BEAT)
        .min_message_latency(LATENCY[0])
        .max_message_latency(LATENCY[1])
        .rng_seed(1)
        .build();
    for index in 0..hosts {
        let heartbeats = Rc::clone(&heartbeats);
        sim.host(name(index), move || {
            host(peers(index, hosts), Rc::clone(&heartbeats))
        });
    }
    while sim.elapsed() < virtual_time {
        sim.step().expect("no host fails");
    }
    heartbeats.get()
}

async fn host(peers: Vec<usize>, heartbeats: Rc<Cell<u64>>) -> turmoil::Result {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    for peer in peers {
        spawn_local(beat(peer, Rc::clone(&heartbeats)));
    }
    loop {
        let (stream, _) = listener.accept().await?;
        spawn_local(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut message = [0; 8];
    loop {
        stream.read_exact(&mut message).await?;
        stream.write_all(&message).await?;
    }
}

async fn beat(peer: usize, heartbeats: Rc<Cell<u64>>) -> io::Result<()> {
    let mut stream = loop {
        match TcpStream::connect((name(peer), PORT)).await {
            Ok(stream) => break stream,
            Err(_) => sleep(BEAT / 100).await, // it does not listen yet
        }
    };
    let mut ticks = interval(BEAT);
    for number in 0_u64.. {
        ticks.tick().await;
        let (message, mut echo) = (number.to_be_bytes(), [0; 8]);
        stream.write_all(&message).await?;
        stream.read_exact(&mut echo).await?;
        assert_eq!(echo, message);
        heartbeats.set(heartbeats.get() + 1);
    }
    Ok(())
}
