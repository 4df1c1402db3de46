//! An echo server behind TLS: rustls on our streams, by the feature `tokio-io`.
//!
//!     cargo run --release --example tls_echo -- 8443 certificate.pem
//!     openssl s_client -connect 127.0.0.1:8443 -servername localhost -CAfile certificate.pem
//!     -verify_return_error
//!
//! It writes its certificate, made for this run, to the file, and echoes what is typed into openssl.

use std::sync::Arc;

use ecosystem::certificate::SelfSigned;
use futures::future::{Either, select};
use loopgroup::net::TcpStream;
use loopgroup::shutdown_requested;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

fn main() -> std::io::Result<()> {
    ecosystem::port(); // a wrong one ends it here, before a file is written
    let certificate = SelfSigned::new();
    if let Some(file) = std::env::args().nth(2) {
        std::fs::write(file, certificate.pem())?;
    }
    let acceptor = TlsAcceptor::from(Arc::new(certificate.server(&[])));
    ecosystem::serve("tls_echo", move |stream, peer| {
        let acceptor = acceptor.clone();
        async move {
            if let Err(error) = echo(stream, acceptor).await {
                eprintln!("{peer}: {error}");
            }
        }
    })
}

async fn echo(stream: TcpStream, acceptor: TlsAcceptor) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut buf = vec![0; 16 * 1024];
    let mut asked_to_end = shutdown_requested();
    loop {
        let read = std::pin::pin!(stream.read(&mut buf));
        let read = match select(read, &mut asked_to_end).await {
            Either::Left((read, _)) => read?,
            Either::Right(_) => 0,
        };
        if read == 0 {
            return stream.shutdown().await; // says goodbye, as TLS wants it
        }
        stream.write_all(&buf[..read]).await?;
        stream.flush().await?;
    }
}
