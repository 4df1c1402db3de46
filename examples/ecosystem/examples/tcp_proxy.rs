//! A TCP proxy whose two sides, and both directions, share one loop.
//!
//!     cargo run --release --example tcp_proxy -- 9000 127.0.0.1:8080
//!     curl http://127.0.0.1:9000/                               # what 127.0.0.1:8080 answers
//!
//! The connection to the server is registered with the loop of the handler: no byte crosses a thread.

use std::net::SocketAddr;

use loopgroup::io::copy_bidirectional;
use loopgroup::net::TcpStream;

fn main() -> std::io::Result<()> {
    let argument = std::env::args().nth(2).unwrap_or_default();
    let Ok(upstream) = argument.parse::<SocketAddr>() else {
        eprintln!("the second argument is the address to connect to, not {argument:?}");
        std::process::exit(2)
    };
    ecosystem::serve("tcp_proxy", move |client, peer| async move {
        match proxy(client, upstream).await {
            Ok((up, down)) => println!("{peer}: {up} bytes to {upstream}, {down} back"),
            Err(error) => eprintln!("{peer} to {upstream}: {error}"),
        }
    })
}

async fn proxy(mut client: TcpStream, upstream: SocketAddr) -> std::io::Result<(u64, u64)> {
    let mut server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    // Passes the end of each direction on, and the other one continues.
    copy_bidirectional(&mut client, &mut server).await
}
