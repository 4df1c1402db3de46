//! UDP: datagrams arrive whole, to one of many receivers, and are cut off as the system cuts them.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use loopgroup::net::UdpSocket;
use loopgroup::time::timeout;
use loopgroup::{EventLoop, EventLoopGroup, block_on};

use crate::util::{on_a_loop, within};

async fn pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let one = UdpSocket::bind("127.0.0.1:0").await?;
    let other = UdpSocket::bind("127.0.0.1:0").await?;
    one.connect(other.local_addr()?).await?;
    other.connect(one.local_addr()?).await?;
    Ok((one, other))
}

#[test]
fn thousands_of_datagrams_come_back_from_an_echo() {
    on_a_loop(|| async {
        let (client, server) = pair().await?;
        let echo = loopgroup::spawn_local(async move {
            let mut buf = [0; 2048];
            loop {
                let n = server.recv(&mut buf).await?;
                if n == 0 {
                    return io::Result::Ok(());
                }
                server.send(&buf[..n]).await?;
            }
        });
        let mut buf = [0; 2048];
        for number in 0..5_000_u32 {
            let size = 4 + number as usize % 1400;
            let mut sent = vec![number as u8; size];
            sent[..4].copy_from_slice(&number.to_be_bytes());
            client.send(&sent).await?;
            let n = client.recv(&mut buf).await?;
            assert!(buf[..n] == sent[..], "datagram {number}");
        }
        client.send(&[]).await?; // an empty datagram is one, too
        echo.await??;
        Ok(())
    });
}

#[test]
fn a_datagram_that_does_not_fit_is_cut_off_and_the_next_one_is_whole() {
    on_a_loop(|| async {
        let (one, other) = pair().await?;
        one.send(b"too long").await?;
        one.send(b"fits").await?;
        let mut buf = [0; 4];
        assert_eq!(other.recv(&mut buf).await?, 4);
        assert_eq!(&buf, b"too ");
        assert_eq!(other.recv(&mut buf).await?, 4);
        assert_eq!(&buf, b"fits");
        Ok(())
    });
}

#[test]
fn many_tasks_wait_for_one_socket_and_each_gets_its_datagram() {
    on_a_loop(|| async {
        let server = Rc::new(UdpSocket::bind("127.0.0.1:0").await?);
        let receivers: Vec<_> = (0..10)
            .map(|_| {
                let server = Rc::clone(&server);
                loopgroup::spawn_local(async move {
                    let mut buf = [0; 1];
                    server.recv_from(&mut buf).await.map(|_| buf[0])
                })
            })
            .collect();
        loopgroup::yield_now().await;
        let client = UdpSocket::bind("127.0.0.1:0").await?;
        for number in 0..10 {
            client.send_to(&[number], server.local_addr()?).await?;
        }
        let mut seen = Vec::new();
        for receiver in receivers {
            seen.push(receiver.await??);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn a_receive_that_is_given_up_loses_no_datagram() {
    on_a_loop(|| async {
        let (one, other) = pair().await?;
        let mut buf = [0; 8];
        for _ in 0..3 {
            let late = timeout(Duration::from_millis(1), other.recv(&mut buf)).await;
            assert!(late.is_err());
        }
        one.send(b"late").await?;
        assert_eq!(other.peek_from(&mut buf).await?.0, 4, "peeked, not taken");
        assert_eq!(other.recv(&mut buf).await?, 4);
        Ok(())
    });
}

#[test]
fn a_socket_moves_to_another_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let first = group.spawn_on(0, async {
            let (one, other) = pair().await.unwrap();
            let waited = timeout(Duration::from_millis(1), other.recv(&mut [0; 1])).await;
            assert!(waited.is_err());
            (one, other)
        });
        let (one, mut other) = block_on(first).unwrap();
        let second = group.spawn_on(1, async move {
            let here = EventLoop::current().unwrap();
            other.migrate_to(&here).await.unwrap();
            one.send(b"x").await.unwrap();
            other.recv(&mut [0; 1]).await.unwrap();
            assert_eq!(other.event_loop(), Some(here));
        });
        block_on(second).unwrap();
    });
}

#[test]
fn a_refused_datagram_is_told_to_the_sender() {
    on_a_loop(|| async {
        let (one, other) = pair().await?;
        drop(other);
        one.send(b"x").await?;
        let error = one.recv(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(one.as_std().local_addr()?, one.local_addr()?);
        assert!(one.peer_addr().is_ok());
        Ok(())
    });
}
