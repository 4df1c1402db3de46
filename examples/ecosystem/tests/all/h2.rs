//! h2 itself, client and server, by tokio's traits.

use h2::{client, server};
use hyper::body::Bytes;
use hyper::{Request, Response};

use crate::tcp_pair;
use crate::util::on_a_loop;

/// Answers each request with its body; all on this loop.
async fn echo(stream: loopgroup::net::TcpStream) -> Result<(), h2::Error> {
    let mut connection = server::handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        drop(loopgroup::spawn_local(async move {
            let mut send = respond.send_response(Response::new(()), false)?;
            let mut body = request.into_body();
            while let Some(part) = body.data().await {
                let part = part?;
                let _ = body.flow_control().release_capacity(part.len());
                send.send_data(part, false)?;
            }
            send.send_data(Bytes::new(), true)
        }));
    }
    Ok(())
}

#[test]
fn a_hundred_streams_share_a_connection() {
    on_a_loop(|| async {
        let (client, server) = tcp_pair().await?;
        let server = loopgroup::spawn_local(echo(server));
        let (send, connection) = client::handshake(client)
            .await
            .map_err(std::io::Error::other)?;
        let connection = loopgroup::spawn_local(connection);
        let requests = (0..100_u32).map(|number| {
            let send = send.clone();
            async move {
                let body = Bytes::from(vec![number as u8; 10_000]);
                let request = Request::post("http://localhost/").body(()).unwrap();
                let mut send = send.ready().await?;
                let (response, mut stream) = send.send_request(request, false)?;
                stream.send_data(body.clone(), true)?;
                let mut back = Vec::new();
                let mut parts = response.await?.into_body();
                while let Some(part) = parts.data().await {
                    let part = part?;
                    parts.flow_control().release_capacity(part.len())?;
                    back.extend_from_slice(&part);
                }
                assert!(back == body, "stream {number}");
                Ok::<(), h2::Error>(())
            }
        });
        futures::future::try_join_all(requests)
            .await
            .map_err(std::io::Error::other)?;
        drop(send);
        connection.await?.map_err(std::io::Error::other)?;
        server.await?.map_err(std::io::Error::other)
    });
}
