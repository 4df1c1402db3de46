//! quinn on our UDP and timers, client and server.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use ecosystem::certificate::SelfSigned;
use ecosystem::quic::LoopRuntime;
use loopgroup::EventLoopGroup;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TransportConfig};

use crate::util::within;

pub(crate) fn endpoint(group: &EventLoopGroup, server: Option<ServerConfig>) -> Endpoint {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let runtime = Arc::new(LoopRuntime(group.clone()));
    Endpoint::new(EndpointConfig::default(), server, socket, runtime).unwrap()
}

/// A server's endpoint and a client's that trusts it, whose connections end after so long without a word.
pub(crate) fn endpoints(group: &EventLoopGroup, idle: Duration) -> (Endpoint, Endpoint) {
    let certificate = SelfSigned::new();
    let crypto = QuicServerConfig::try_from(certificate.server(&["test"])).unwrap();
    let server = endpoint(group, Some(ServerConfig::with_crypto(Arc::new(crypto))));
    let crypto = QuicClientConfig::try_from(certificate.client(&["test"])).unwrap();
    let mut config = ClientConfig::new(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(idle.try_into().unwrap()));
    config.transport_config(Arc::new(transport));
    let mut client = endpoint(group, None);
    client.set_default_client_config(config);
    (server, client)
}

async fn echo(connection: Connection) {
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        drop(loopgroup::spawn_local(async move {
            let bytes = receive.read_to_end(1 << 20).await.unwrap();
            send.write_all(&bytes).await.unwrap();
            send.finish().unwrap();
        }));
    }
}

#[test]
fn streams_of_several_connections_come_back_whole() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (server, client) = endpoints(&group, Duration::from_secs(30));
        let address = server.local_addr().unwrap();
        let accepting = server.clone();
        drop(group.spawn(async move {
            while let Some(incoming) = accepting.accept().await {
                drop(loopgroup::spawn(async move {
                    echo(incoming.await.unwrap()).await
                }));
            }
        }));
        let connections: Vec<_> = (0..4_u8)
            .map(|number| {
                let client = client.clone();
                group.spawn(async move {
                    let connecting = client.connect(address, "localhost").unwrap();
                    let connection = connecting.await.unwrap();
                    for size in [1, 1000, 1_000_000] {
                        let sent = vec![number; size];
                        let (mut send, mut receive) = connection.open_bi().await.unwrap();
                        let send = async {
                            send.write_all(&sent).await.unwrap();
                            send.finish().unwrap();
                        };
                        let ((), back) = futures::join!(send, receive.read_to_end(1 << 20));
                        assert!(back.unwrap() == sent, "what came back is not what was sent");
                    }
                    connection.close(0_u32.into(), b"done");
                })
            })
            .collect();
        for connection in connections {
            group.block_on(connection).unwrap();
        }
        server.close(0_u32.into(), b"done");
        // From a thread that is no loop: quinn's own tasks are at home elsewhere.
        loopgroup::block_on(async { futures::join!(server.wait_idle(), client.wait_idle()) });
    });
}

#[test]
fn a_server_that_is_not_there_is_timed_out_by_our_timers() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (_server, client) = endpoints(&group, Duration::from_millis(100));
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let connecting = client
            .connect(silent.local_addr().unwrap(), "localhost")
            .unwrap();
        let error = loopgroup::block_on(connecting).unwrap_err();
        assert_eq!(error, quinn::ConnectionError::TimedOut);
    });
}
