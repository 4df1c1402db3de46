//! tokio's I/O traits on our streams: the same bytes, the same end, the same errors as with `futures::io`.

use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::Poll;

use loopgroup::EventLoopGroup;
use loopgroup::net::{TcpListener, TcpStream, UnixStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::util::{self, on_a_loop, within};

async fn tcp_pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}

/// Sends a megabyte each way at once, and the end after it.
async fn both_ways<S: AsyncRead + AsyncWrite + Unpin>(mut one: S, mut other: S) {
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let there = async {
        one.write_all(&bytes).await.unwrap();
        one.shutdown().await.unwrap();
        let mut back = Vec::new();
        one.read_to_end(&mut back).await.unwrap();
        assert!(back == bytes, "what came back is not what was sent");
    };
    let and_back = async {
        let mut got = Vec::new();
        other.read_to_end(&mut got).await.unwrap();
        other.write_all(&got).await.unwrap();
        other.shutdown().await.unwrap();
    };
    futures::join!(there, and_back);
}

#[test]
fn a_megabyte_goes_through_tcp_and_unix_streams_and_comes_back() {
    on_a_loop(|| async {
        let (one, other) = tcp_pair().await?;
        both_ways(one, other).await;
        let (one, other) = UnixStream::pair()?;
        both_ways(one, other).await;
        Ok(())
    });
}

#[test]
fn shared_references_and_halves_read_and_write() {
    on_a_loop(|| async {
        let (one, other) = tcp_pair().await?;
        both_ways(&one, &other).await;
        let (one, other) = UnixStream::pair()?;
        let (mut read, mut write) = one.into_split();
        let (mut other_read, mut other_write) = other.into_split();
        write.write_all(b"ping").await?;
        drop(write); // the end
        let mut text = String::new();
        other_read.read_to_string(&mut text).await?;
        other_write.write_all(text.as_bytes()).await?;
        other_write.shutdown().await?;
        assert_eq!(read.read_u32().await?, u32::from_be_bytes(*b"ping"));
        assert_eq!(read.read(&mut [0; 8]).await?, 0);
        Ok(())
    });
}

#[test]
fn several_buffers_go_out_in_one_write() {
    on_a_loop(|| async {
        let (mut one, mut other) = tcp_pair().await?;
        assert!(one.is_write_vectored());
        let buffers = [&b"two "[..], b"", b"words"].map(IoSlice::new);
        assert_eq!(one.write_vectored(&buffers).await?, 9);
        let mut text = [0; 9];
        other.read_exact(&mut text).await?;
        assert_eq!(&text, b"two words");
        Ok(())
    });
}

#[test]
fn a_read_leaves_what_the_buffer_holds_and_takes_no_more_than_fits() {
    on_a_loop(|| async {
        let (mut one, mut other) = UnixStream::pair()?;
        one.write_all(b"abcdef").await?;
        let mut space = [std::mem::MaybeUninit::uninit(); 6];
        let mut buf = ReadBuf::uninit(&mut space);
        buf.put_slice(b"..");
        std::future::poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut buf)).await?;
        assert_eq!(buf.filled(), b"..abcd");
        // A full buffer is an empty read, not the end.
        std::future::poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut buf)).await?;
        assert_eq!(other.read_u16().await?, u16::from_be_bytes(*b"ef"));
        Ok(())
    });
}

#[test]
fn a_wait_away_from_any_loop_is_an_error_and_no_hang() {
    within(|| {
        let (mut one, _other) = UnixStream::pair().unwrap();
        let error = loopgroup::block_on(one.read(&mut [0; 1])).unwrap_err();
        assert!(error.to_string().contains("loop"), "{error}");
    });
}

#[test]
fn a_read_that_waits_when_its_loop_ends_gets_an_error() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (mut one, _other) = UnixStream::pair().unwrap();
        let (began, begun) = std::sync::mpsc::channel();
        let (ended, end) = std::sync::mpsc::channel();
        drop(group.spawn(async move {
            let mut buf = [0; 1];
            let mut read = Box::pin(one.read(&mut buf));
            assert!(matches!(futures::poll!(&mut read), Poll::Pending));
            began.send(()).unwrap();
            ended.send(read.await).unwrap();
        }));
        begun.recv().unwrap();
        group
            .shutdown_gracefully_with(Default::default(), util::WATCHDOG)
            .unwrap()
            .wait();
        assert_eq!(
            end.recv().unwrap().unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
    });
}

#[test]
fn a_stream_in_memory_has_the_traits_of_tokio_too() {
    on_a_loop(|| async {
        let (one, other) = loopgroup::io::duplex(512);
        both_ways_in_parts(one, other).await;
        Ok(())
    });
}

/// As [`both_ways`], for streams that hold less than is sent.
async fn both_ways_in_parts<S: AsyncRead + AsyncWrite + Unpin>(one: S, other: S) {
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(one);
    let (mut from, mut to) = tokio::io::split(other);
    let there = async {
        writer.write_all(&bytes).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let back = async {
        let mut back = Vec::new();
        reader.read_to_end(&mut back).await.unwrap();
        assert!(back == bytes, "what came back is not what was sent");
    };
    let echo = async {
        assert_eq!(tokio::io::copy(&mut from, &mut to).await.unwrap(), 100_000);
        to.shutdown().await.unwrap();
    };
    futures::join!(there, back, echo);
}
