//! Copying in both directions: ends and errors are passed on, nothing is lost, and others get their turn.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use loopgroup::io::{copy_bidirectional, copy_bidirectional_with_sizes, duplex};
use loopgroup::net::{TcpListener, TcpStream, UnixStream};
use loopgroup::testing::TestLoop;
use loopgroup::{block_on, spawn_local, yield_now};

use crate::util::{LONG, Waiting, group, on_a_loop, poll_once, within};

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|n| ((n + seed) % 251) as u8).collect()
}

async fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}

/// What a reader gives, in this order; what a writer takes, and what happens to it.
#[derive(Default)]
struct Script {
    reads: Vec<Poll<io::Result<Vec<u8>>>>,
    log: Rc<RefCell<Vec<String>>>,
    /// So many bytes are taken by each write.
    takes: usize,
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self.reads.pop() {
            None => Poll::Pending,
            Some(next) => next.map_ok(|bytes| {
                buf[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            }),
        }
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = buf.len().min(self.takes);
        let text = String::from_utf8_lossy(&buf[..count]).into_owned();
        self.log.borrow_mut().push(text);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.log.borrow_mut().push("flush".into());
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.log.borrow_mut().push("close".into());
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_proxy_between_loops_carries_megabytes_both_ways_at_once() {
    within(|| {
        let group = group(2);
        const LENGTH: usize = 2_000_000;
        let copied = group.spawn_on(0, async {
            let (mut client, mut inbound) = tcp_pair().await?;
            let (mut outbound, mut server) = UnixStream::pair()?;
            let proxy =
                loopgroup::spawn(
                    async move { copy_bidirectional(&mut inbound, &mut outbound).await },
                );
            let at_client = async {
                let (mut reader, mut writer) = (&mut client).split();
                let sent = pattern(LENGTH, 1);
                let write = async {
                    writer.write_all(&sent).await?;
                    writer.close().await
                };
                let mut back = Vec::new();
                let both = futures::join!(write, reader.read_to_end(&mut back));
                both.0.unwrap();
                assert!(back == pattern(LENGTH, 2));
            };
            let at_server = async {
                let (mut reader, mut writer) = (&mut server).split();
                let sent = pattern(LENGTH, 2);
                let write = async {
                    writer.write_all(&sent).await?;
                    writer.close().await
                };
                let mut back = Vec::new();
                let both = futures::join!(write, reader.read_to_end(&mut back));
                both.0.unwrap();
                assert!(back == pattern(LENGTH, 1));
            };
            futures::join!(at_client, at_server);
            proxy.await?
        });
        let copied = block_on(copied).unwrap().unwrap();
        assert_eq!(copied, (LENGTH as u64, LENGTH as u64));
        assert!(group.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_half_close_is_passed_on_and_the_other_direction_continues_both_ways() {
    on_a_loop(|| async {
        for swapped in [false, true] {
            let (mut client, mut inbound) = tcp_pair().await?;
            let (mut outbound, mut server) = tcp_pair().await?;
            let proxy = spawn_local(async move {
                match swapped {
                    false => copy_bidirectional(&mut inbound, &mut outbound).await,
                    true => copy_bidirectional(&mut outbound, &mut inbound).await,
                }
            });
            client.write_all(b"question").await?;
            client.close().await?;
            let mut question = String::new();
            server.read_to_string(&mut question).await?;
            assert_eq!(question, "question");
            assert!(!proxy.is_finished(), "the other direction is open");
            for part in ["an ", "answer", "!"] {
                server.write_all(part.as_bytes()).await?;
                let mut buf = vec![0; part.len()];
                client.read_exact(&mut buf).await?;
                assert_eq!(buf, part.as_bytes());
            }
            server.shutdown(Shutdown::Write)?;
            assert_eq!(client.read(&mut [0]).await?, 0);
            let expected = if swapped { (10, 8) } else { (8, 10) };
            assert_eq!(proxy.await??, expected);
        }
        Ok(())
    });
}

#[test]
fn a_reset_on_one_side_ends_both_directions_with_its_error() {
    on_a_loop(|| async {
        let (client, mut inbound) = tcp_pair().await?;
        let (mut outbound, mut server) = tcp_pair().await?;
        let proxy = spawn_local(async move {
            let copied = copy_bidirectional(&mut inbound, &mut outbound).await;
            (copied, inbound, outbound)
        });
        server.write_all(b"never read by the client").await?;
        client.readable().await?;
        drop(client); // with bytes unread: a reset
        let (copied, inbound, outbound) = proxy.await?;
        assert_eq!(copied.unwrap_err().kind(), ErrorKind::ConnectionReset);
        // The streams are still the caller's; dropping them tells the other peer.
        drop((inbound, outbound));
        let mut rest = Vec::new();
        let _ = server.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
        Ok(())
    });
}

#[test]
fn a_peer_that_is_gone_while_bytes_wait_for_it_is_an_error() {
    on_a_loop(|| async {
        let (mut client, mut inbound) = duplex(16);
        let (mut outbound, server) = duplex(16);
        let proxy =
            spawn_local(async move { copy_bidirectional(&mut inbound, &mut outbound).await });
        // Until all buffers are full: the server's, the proxy's, and the one at the proxy's door.
        let mut sent = 0;
        for _ in 0..10 {
            if let Poll::Ready(count) = poll_once(&mut client.write(&[1; 16])) {
                sent += count?;
            }
            yield_now().await;
        }
        assert_eq!(sent, 48);
        drop(server);
        assert_eq!(proxy.await?.unwrap_err().kind(), ErrorKind::BrokenPipe);
        Ok(())
    });
}

#[test]
fn bytes_are_flushed_when_the_reader_has_no_more_and_before_the_end() {
    let mut one = Script {
        // From the last to the first.
        reads: vec![
            Poll::Ready(Ok(Vec::new())),
            Poll::Ready(Ok(b"third".to_vec())),
            Poll::Pending,
            Poll::Pending,
            Poll::Ready(Ok(b"second".to_vec())),
            Poll::Ready(Ok(b"first".to_vec())),
        ],
        takes: usize::MAX,
        ..Script::default()
    };
    let mut other = Script {
        takes: 4,
        ..Script::default()
    };
    let log = Rc::clone(&other.log);
    let mut copy = Waiting::new(copy_bidirectional(&mut one, &mut other));
    let seen = || std::mem::take(&mut *log.borrow_mut());
    assert_eq!(seen(), ["firs", "t", "seco", "nd", "flush"]);
    assert!(copy.poll().is_pending());
    assert!(seen().is_empty(), "nothing new to flush");
    assert!(copy.poll().is_pending());
    assert_eq!(seen(), ["thir", "d", "flush", "close"]);
    assert!(copy.poll().is_pending(), "the other direction never ends");
    assert!(seen().is_empty(), "closed once");
}

#[test]
fn errors_and_writers_that_take_nothing_end_the_copy() {
    let failing = || Script {
        reads: vec![Poll::Ready(Err(ErrorKind::TimedOut.into()))],
        ..Script::default()
    };
    let mut copy = Box::pin(async {
        let mut silent = Script::default();
        let one = copy_bidirectional(&mut failing(), &mut silent).await;
        let other = copy_bidirectional(&mut silent, &mut failing()).await;
        [one, other].map(|copied| copied.unwrap_err().kind())
    });
    let Poll::Ready(kinds) = poll_once(&mut copy) else {
        panic!("an error in either direction is the end");
    };
    assert_eq!(kinds, [ErrorKind::TimedOut; 2]);

    let mut one = Script {
        reads: vec![Poll::Ready(Ok(b"bytes".to_vec()))],
        ..Script::default()
    };
    let mut full = Script::default();
    let copied = poll_once(&mut Box::pin(copy_bidirectional(&mut one, &mut full)));
    let Poll::Ready(Err(error)) = copied else {
        panic!("it would wait for ever");
    };
    assert_eq!(error.kind(), ErrorKind::WriteZero);
}

/// Always has bytes, and takes them all.
struct Endless;

impl AsyncRead for Endless {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Counts what is written to it.
struct Counting(Endless, Rc<Cell<u64>>);

impl AsyncRead for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1.set(self.1.get() + 1);
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

#[test]
fn streams_that_are_always_ready_share_their_loop_and_both_directions_their_time() {
    let mut test = TestLoop::new();
    let counts = [(); 2].map(|()| Rc::new(Cell::new(0)));
    let [mut one, mut other] = counts.clone().map(|count| Counting(Endless, count));
    test.block_on(async move {
        let copy = spawn_local(async move { copy_bidirectional(&mut one, &mut other).await });
        for _ in 0..10 {
            yield_now().await; // would not return if the copy kept the loop
        }
        drop(copy);
    });
    let [back, there] = counts.map(|count| count.get());
    assert!(there > 1_000 && back > 1_000, "{there} there, {back} back");
    let ratio = there as f64 / back as f64;
    assert!((0.9..1.1).contains(&ratio), "{there} there, {back} back");
}

#[test]
fn sizes_are_kept_and_wrong_ones_are_named() {
    on_a_loop(|| async {
        let (mut client, mut inbound) = duplex(1024);
        let (mut outbound, mut server) = duplex(1024);
        for (sizes, name) in [
            ((0, 1), "a_to_b_size"),
            ((1, 0), "b_to_a_size"),
            ((usize::MAX, 1), "a_to_b_size"),
        ] {
            let copy =
                copy_bidirectional_with_sizes(&mut inbound, &mut outbound, sizes.0, sizes.1).await;
            let error = copy.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with(name), "{error}");
        }
        let mut copy = Waiting::new(copy_bidirectional_with_sizes(
            &mut inbound,
            &mut outbound,
            1,
            3,
        ));
        client.write_all(b"one by one").await?;
        server.write_all(b"three by three").await?;
        assert!(copy.poll().is_pending());
        let mut text = [0; 10];
        server.read_exact(&mut text).await?;
        assert_eq!(&text, b"one by one");
        drop((client, server));
        // Both ends are gone: the rest has no reader.
        drop(copy);
        Ok(())
    });
}
