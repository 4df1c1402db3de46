//! The ecosystem on our loops: what works, that everything keeps its home, and what misuse says.

mod channels;
mod codec;
mod h2;
mod http;
mod locks;
mod misuse;
mod pooled_client;
mod quic;
mod side_by_side;
mod simulated_http;
mod tls;
#[path = "../../../../tests/util/mod.rs"]
mod util;
mod websocket;

use loopgroup::net::{TcpListener, TcpStream};

/// A connection to ourselves.
async fn tcp_pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}
