//! A TCP proxy whose two sides, and both directions, share one loop.
//!
//!     cargo run --release --example tcp_proxy -- 9000 127.0.0.1:8080
//!     curl http://127.0.0.1:9000/                               # what 127.0.0.1:8080 answers
//!
//! `PreferCurrent` keeps what a handler spawns on the handler's loop: no byte crosses a thread.

use std::net::{Shutdown, SocketAddr};

use futures::future::try_join;
use loopgroup::net::TcpStream;
use loopgroup::{EventLoop, EventLoopGroup, PreferCurrent};

fn main() -> std::io::Result<()> {
    let argument = std::env::args().nth(2).unwrap_or_default();
    let Ok(upstream) = argument.parse::<SocketAddr>() else {
        eprintln!("the second argument is the address to connect to, not {argument:?}");
        std::process::exit(2)
    };
    let workers = EventLoopGroup::builder()
        .loops(2)
        .chooser(PreferCurrent::default())
        .build()?;
    ecosystem::serve_on(&workers, "tcp_proxy", move |client, peer| async move {
        if let Err(error) = proxy(client, upstream).await {
            eprintln!("{peer} to {upstream}: {error}");
        }
    })
}

async fn proxy(client: TcpStream, upstream: SocketAddr) -> std::io::Result<()> {
    let home = EventLoop::current();
    let server = TcpStream::connect(upstream).await?;
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    // By the group's chooser, and yet not to another loop.
    let answers = loopgroup::spawn(async move {
        assert_eq!(EventLoop::current(), home);
        copy(server_read, client_write).await
    });
    let requests = copy(client_read, server_write);
    try_join(requests, async { answers.await? }).await?;
    Ok(())
}

/// Copies to the end, and passes the end on.
async fn copy(
    from: loopgroup::net::OwnedReadHalf,
    mut to: loopgroup::net::OwnedWriteHalf,
) -> std::io::Result<()> {
    let copied = futures::io::copy(from, &mut to).await;
    to.as_ref()
        .shutdown(Shutdown::Write)
        .or_else(|error| match error.kind() {
            std::io::ErrorKind::NotConnected => Ok(()), // they were faster
            _ => Err(error),
        })?;
    copied.map(drop)
}
