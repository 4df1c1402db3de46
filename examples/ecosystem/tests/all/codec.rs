//! tokio-util's codecs, over streams and over halves.

use futures::{SinkExt, StreamExt};
use loopgroup::net::UnixStream;
use tokio_util::bytes::Bytes;
use tokio_util::codec::{Framed, FramedRead, FramedWrite, LengthDelimitedCodec, LinesCodec};

use crate::tcp_pair;
use crate::util::on_a_loop;

#[test]
fn frames_with_a_length_come_back_as_they_went() {
    on_a_loop(|| async {
        let (one, other) = tcp_pair().await?;
        let codec = LengthDelimitedCodec::new;
        let (mut one, other) = (Framed::new(one, codec()), Framed::new(other, codec()));
        let echo = loopgroup::spawn_local(async move {
            let (sink, frames) = other.split();
            frames
                .map(|frame| frame.map(|frame| frame.freeze()))
                .forward(sink)
                .await
        });
        for size in [0, 1, 8 * 1024, 1_000_000] {
            let frame = Bytes::from(vec![size as u8; size]);
            one.send(frame.clone()).await?;
            assert_eq!(one.next().await.unwrap()?, frame);
        }
        drop(one);
        echo.await?
    });
}

#[test]
fn lines_go_through_halves() {
    on_a_loop(|| async {
        let (one, other) = UnixStream::pair()?;
        let (_keep, write) = one.into_split();
        let (read, _keep_too) = other.into_split();
        let mut lines = FramedWrite::new(write, LinesCodec::new());
        for line in ["one", "", "three"] {
            lines.send(line).await.map_err(std::io::Error::other)?;
        }
        drop(lines);
        let lines: Vec<_> = FramedRead::new(read, LinesCodec::new())
            .map(Result::unwrap)
            .collect()
            .await;
        assert_eq!(lines, ["one", "", "three"]);
        Ok(())
    });
}
