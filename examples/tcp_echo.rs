//! An echo server: one loop accepts, every connection gets the next loop and stays there.
//!
//!     cargo run --example tcp_echo                      # talks to itself for a moment
//!     cargo run --example tcp_echo -- 127.0.0.1:7777    # then: nc 127.0.0.1 7777
//!
//! Without an address it starts eight clients, prints which loop served how many of them, and shuts
//! down; with one it serves until it is killed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{TcpListener, TcpStream};
use loopgroup::time::sleep;
use loopgroup::{EventLoop, EventLoopGroup};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let workers = EventLoopGroup::new(2)?;
    let boss = EventLoopGroup::new(1)?;

    let bind = address.clone().unwrap_or("127.0.0.1:0".into());
    let listener = boss.block_on(TcpListener::bind(bind))?;
    let local = listener.local_addr()?;
    println!("listening on {local}");
    let accepting = boss.spawn(accept(listener, workers.clone()));

    if address.is_some() {
        return boss.block_on(accepting)?;
    }
    let clients: Vec<_> = (0..8).map(|n| workers.spawn(client(local, n))).collect();
    for client in clients {
        println!("{}", workers.block_on(client)??);
    }
    accepting.abort();
    for group in [boss, workers] {
        println!("{}", group.drain(Duration::from_secs(5)).wait());
    }
    Ok(())
}

/// Hands every connection to the next worker loop, where it gets its home.
async fn accept(listener: TcpListener, workers: EventLoopGroup) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(workers.spawn_with(move || serve(stream))),
            // Out of descriptors, say: the connection waits, and so do we.
            Err(error) => {
                eprintln!("cannot accept: {error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Echoes until the peer is done. Everything in here stays on one thread.
async fn serve(stream: TcpStream) {
    let mut writer = &stream;
    if let Err(error) = futures::io::copy(&stream, &mut writer).await {
        eprintln!("connection lost: {error}");
    }
}

async fn client(server: SocketAddr, number: u32) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    let sent = format!("hello from client {number}");
    stream.write_all(sent.as_bytes()).await?;
    stream.close().await?;
    let mut received = String::new();
    stream.read_to_string(&mut received).await?;
    assert_eq!(sent, received);
    let home = EventLoop::current().expect("a task has a loop").index();
    Ok(format!("client {number} on loop {home} got its echo"))
}
