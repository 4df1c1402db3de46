//! QUIC by quinn, on our UDP and timers: echoes every stream of every connection.
//!
//!     cargo run --release --example quic_echo -- 4433 certificate.pem
//!
//! It writes its certificate, made for this run, to the file. Any QUIC client will do that trusts
//! it, says `echo` as application protocol and opens streams in both directions; without a port it
//! is its own client and prints `quic_echo: 5 bytes came back to loop 1: hello`, or to loop 0.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use ecosystem::certificate::SelfSigned;
use ecosystem::quic::LoopRuntime;
use loopgroup::{EventLoop, EventLoopGroup, signal};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, Incoming, ServerConfig};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let group = EventLoopGroup::new(2)?;
    let certificate = SelfSigned::new();
    let config = QuicServerConfig::try_from(certificate.server(&["echo"]))?;
    let config = ServerConfig::with_crypto(Arc::new(config));
    let has_port = std::env::args().len() > 1;
    let port = if has_port { ecosystem::port() } else { 0 };
    let server = endpoint(&group, port, Some(config))?;
    if let Some(file) = std::env::args().nth(2) {
        std::fs::write(file, certificate.pem())?;
    }
    let accepting = group.spawn(accept(server.clone()));
    if has_port {
        println!("quic_echo: on {}, until Ctrl-C", server.local_addr()?);
        group.block_on(signal::shutdown())?;
    } else {
        group.block_on(group.spawn(client(group.clone(), server.clone(), certificate)))??;
    }
    server.close(0_u32.into(), b"the server ends");
    group.block_on(async { futures::join!(accepting, server.wait_idle()).0 })?;
    drop(server);
    println!("loops: {}", group.drain(Duration::from_secs(5)).wait());
    Ok(())
}

fn endpoint(group: &EventLoopGroup, port: u16, server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = UdpSocket::bind(("127.0.0.1", port))?;
    let runtime = Arc::new(LoopRuntime(group.clone()));
    Ok(Endpoint::new(
        EndpointConfig::default(),
        server,
        socket,
        runtime,
    )?)
}

/// Each connection gets a task on the next loop.
async fn accept(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        drop(loopgroup::spawn(async move {
            if let Err(error) = serve(incoming).await {
                eprintln!("a connection failed: {error}");
            }
        }));
    }
}

async fn serve(incoming: Incoming) -> Result<()> {
    let connection = incoming.await?;
    // Until the peer or the endpoint closes the connection.
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        drop(loopgroup::spawn_local(async move {
            let text = receive.read_to_end(1 << 20).await?;
            send.write_all(&text).await?;
            send.finish()?;
            Result::Ok(())
        }));
    }
    Ok(())
}

async fn client(group: EventLoopGroup, server: Endpoint, certificate: SelfSigned) -> Result<()> {
    let crypto = QuicClientConfig::try_from(certificate.client(&["echo"]))?;
    let mut client = endpoint(&group, 0, None)?;
    client.set_default_client_config(ClientConfig::new(Arc::new(crypto)));
    let connection: Connection = client.connect(server.local_addr()?, "localhost")?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"hello").await?;
    send.finish()?;
    let back = receive.read_to_end(100).await?;
    let home = EventLoop::current().expect("a task has a loop").index();
    let text = String::from_utf8(back)?;
    println!(
        "quic_echo: {} bytes came back to loop {home}: {text}",
        text.len()
    );
    connection.close(0_u32.into(), b"done");
    client.wait_idle().await;
    Ok(())
}
