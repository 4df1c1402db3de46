//! WebSockets: tungstenite by tokio's traits on one side and by those of futures on the other.

use async_tungstenite::tungstenite::Message;
use futures::{SinkExt, StreamExt};

use crate::tcp_pair;
use crate::util::on_a_loop;

#[test]
fn tokio_tungstenite_talks_to_async_tungstenite() {
    on_a_loop(|| async {
        let (client, server) = tcp_pair().await?;
        let echo = loopgroup::spawn_local(async move {
            let mut socket = async_tungstenite::accept_async(server).await?;
            let mut count = 0;
            while let Some(message) = socket.next().await {
                match message? {
                    Message::Close(_) => break,
                    message => socket.send(message).await?,
                }
                count += 1;
            }
            // Sends what is left of the closing handshake.
            let _ = socket.close(None).await;
            Ok::<_, async_tungstenite::tungstenite::Error>(count)
        });
        let url = "ws://localhost/";
        let (mut socket, _) = tokio_tungstenite::client_async(url, client).await.unwrap();
        for size in [0, 125, 70_000, 1_000_000] {
            let message = Message::binary(vec![size as u8; size]);
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        socket.close(None).await.unwrap();
        while let Some(Ok(_)) = socket.next().await {}
        assert_eq!(echo.await?.unwrap(), 4);
        Ok(())
    });
}
