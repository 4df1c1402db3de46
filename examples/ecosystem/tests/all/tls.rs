//! rustls on our streams, by tokio's traits.

use std::sync::Arc;

use ecosystem::certificate::SelfSigned;
use loopgroup::net::TcpStream;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::tcp_pair;
use crate::util::on_a_loop;

async fn echo(stream: TcpStream, acceptor: TlsAcceptor) -> std::io::Result<u64> {
    let stream = acceptor.accept(stream).await?;
    let (mut read, mut write) = tokio::io::split(stream);
    let copied = tokio::io::copy(&mut read, &mut write).await?;
    write.shutdown().await?;
    Ok(copied)
}

fn acceptor(certificate: &SelfSigned) -> TlsAcceptor {
    TlsAcceptor::from(Arc::new(certificate.server(&[])))
}

fn connector(certificate: &SelfSigned) -> TlsConnector {
    TlsConnector::from(Arc::new(certificate.client(&[])))
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

#[test]
fn a_megabyte_goes_through_tls_and_comes_back() {
    on_a_loop(|| async {
        let certificate = SelfSigned::new();
        let (client, server) = tcp_pair().await?;
        let echo = loopgroup::spawn_local(echo(server, acceptor(&certificate)));
        let client = connector(&certificate).connect(localhost(), client).await?;
        let (mut read, mut write) = tokio::io::split(client);
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let mut back = Vec::new();
        let send = async {
            write.write_all(&sent).await?;
            write.shutdown().await
        };
        futures::try_join!(send, read.read_to_end(&mut back))?;
        assert!(back == sent, "what came back is not what was sent");
        assert_eq!(echo.await??, 1_000_000);
        Ok(())
    });
}

#[test]
fn a_certificate_that_is_not_trusted_ends_both_sides_with_an_error() {
    on_a_loop(|| async {
        let (client, server) = tcp_pair().await?;
        let echo = loopgroup::spawn_local(echo(server, acceptor(&SelfSigned::new())));
        let stranger = connector(&SelfSigned::new());
        let error = stranger.connect(localhost(), client).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
        assert!(echo.await?.is_err());
        Ok(())
    });
}
