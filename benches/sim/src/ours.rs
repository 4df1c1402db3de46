//! loopgroup: the sockets and clocks of production, on simulated hosts.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{TcpListener, TcpStream};
use loopgroup::spawn_local;
use loopgroup::testing::sim::{Link, Simulation};
use loopgroup::time::{interval, sleep};

use crate::{BEAT, LATENCY, PORT, name, peers};

/// Returns how many answers have arrived.
pub(crate) fn loopgroup(hosts: usize, virtual_time: Duration) -> u64 {
    let heartbeats = Rc::<Cell<u64>>::default();
    let link = Link::default()
        .latency(LATENCY[0])
        .jitter(LATENCY[1] - LATENCY[0]);
    let mut sim = Simulation::builder().seed(1).link(link).build();
    for index in 0..hosts {
        let heartbeats = Rc::clone(&heartbeats);
        sim.host(&name(index), move |_| {
            host(peers(index, hosts), Rc::clone(&heartbeats))
        });
    }
    sim.run_for(virtual_time).expect("no host fails");
    heartbeats.get()
}

async fn host(peers: Vec<usize>, heartbeats: Rc<Cell<u64>>) -> io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    for peer in peers {
        drop(spawn_local(beat(peer, Rc::clone(&heartbeats))));
    }
    loop {
        let (stream, _) = listener.accept().await?;
        drop(spawn_local(answer(stream)));
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
        match TcpStream::connect((name(peer).as_str(), PORT)).await {
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
