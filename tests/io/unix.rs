//! Unix domain sockets: the same shape as TCP, over paths.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{UnixDatagram, UnixListener, UnixStream};
use loopgroup::time::timeout;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::util::{Log, Probe, TempPath, on_a_loop};

#[test]
fn streams_carry_bytes_both_ways_at_once() {
    on_a_loop(|| async {
        let (one, other) = UnixStream::pair()?;
        let (mut read, mut write) = one.into_split();
        let echo = loopgroup::spawn_local(async move {
            let mut writer = &other;
            let copied = futures::io::copy(&other, &mut writer).await?;
            writer.close().await?;
            io::Result::Ok(copied)
        });
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let mut received = Vec::new();
        let sending = async {
            write.write_all(&sent).await?;
            write.close().await
        };
        let (wrote, got) = futures::join!(sending, read.read_to_end(&mut received));
        wrote?;
        got?;
        assert!(sent == received);
        assert_eq!(echo.await??, 1_000_000);
        Ok(())
    });
}

#[test]
fn a_listener_accepts_at_its_path() {
    on_a_loop(|| async {
        let path = TempPath::new("listener");
        let listener = UnixListener::bind(&path.0)?;
        assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path.0));
        let (client, server) = futures::join!(UnixStream::connect(&path.0), listener.accept());
        let (mut client, mut server) = (client?, server?.0);
        client.write_all(b"hi").await?;
        let mut buf = [0; 2];
        server.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"hi");
        assert!(UnixListener::bind(&path.0).is_err(), "the path is taken");
        Ok(())
    });
}

#[test]
fn connects_wait_for_a_full_backlog_instead_of_failing() {
    on_a_loop(|| async {
        let path = TempPath::new("backlog");
        let listener = UnixListener::bind(&path.0)?;
        let target = path.0.clone();
        // Far more than any backlog, before the first is accepted.
        let clients = loopgroup::spawn_local(async move {
            let connects = (0..600).map(|_| UnixStream::connect(target.clone()));
            futures::future::join_all(connects).await
        });
        loopgroup::yield_now().await;
        let accepted: Vec<_> = listener.incoming().take(600).collect().await;
        assert!(accepted.iter().all(Result::is_ok));
        assert!(clients.await?.iter().all(Result::is_ok));
        Ok(())
    });
}

#[test]
fn a_missing_or_overlong_path_says_so() {
    on_a_loop(|| async {
        let path = TempPath::new("missing");
        let error = UnixStream::connect(&path.0).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let long = "x".repeat(200);
        assert!(UnixStream::connect(&long).await.is_err());
        assert!(UnixListener::bind(&long).is_err());
        Ok(())
    });
}

#[cfg(target_os = "linux")]
#[test]
fn an_abstract_name_begins_with_a_zero_and_may_have_more() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net;

    on_a_loop(|| async {
        let name = format!("loopgroup-{}\0abstract", std::process::id());
        let address = net::SocketAddr::from_abstract_name(&name)?;
        let listener = UnixListener::from_std(net::UnixListener::bind_addr(&address)?)?;
        let (client, server) =
            futures::join!(UnixStream::connect(format!("\0{name}")), listener.accept());
        client?;
        server?;
        Ok(())
    });
}

#[test]
fn datagrams_go_by_path_and_by_pair() {
    on_a_loop(|| async {
        let path = TempPath::new("datagram");
        let server = UnixDatagram::bind(&path.0)?;
        let client = UnixDatagram::unbound()?;
        client.send_to(b"one", &path.0).await?;
        client.connect(&path.0)?;
        client.send(b"two").await?;
        let mut buf = [0; 8];
        assert_eq!(server.recv_from(&mut buf).await?.0, 3);
        assert_eq!(server.recv(&mut buf).await?, 3);
        assert_eq!(&buf[..3], b"two");
        let (one, other) = UnixDatagram::pair()?;
        // A sender that is faster than its peer waits for room.
        let sending = async {
            for number in 0..2_000_u32 {
                one.send(&number.to_be_bytes()).await?;
            }
            io::Result::Ok(())
        };
        let receiving = async {
            for number in 0..2_000_u32 {
                let mut buf = [0; 4];
                assert_eq!(other.recv(&mut buf).await?, 4);
                assert_eq!(buf, number.to_be_bytes());
            }
            io::Result::Ok(())
        };
        let (sent, received) = futures::join!(sending, receiving);
        sent?;
        received
    });
}

#[test]
fn writing_to_a_stream_without_a_reader_is_an_error_and_no_signal() {
    on_a_loop(|| async {
        let (mut one, other) = UnixStream::pair()?;
        drop(other);
        let error = one.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
}

#[cfg(target_os = "linux")]
#[test]
fn abstract_names_need_no_file() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    on_a_loop(|| async {
        let name = |what: &str| {
            let name = format!("loopgroup-{}-{what}", std::process::id());
            SocketAddr::from_abstract_name(name).unwrap()
        };
        let address = name("stream");
        let listener = UnixListener::bind_addr(&address)?;
        let taken = UnixListener::bind_addr(&address).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let mut client = UnixStream::connect_addr(&address).await?;
        let (mut server, _) = listener.accept().await?;
        client.write_all(b"hello").await?;
        let mut text = [0; 5];
        server.read_exact(&mut text).await?;
        assert_eq!(&text, b"hello");

        let (one, other) = (name("one"), name("other"));
        let (left, right) = (
            UnixDatagram::bind_addr(&one)?,
            UnixDatagram::bind_addr(&other)?,
        );
        left.send_to_addr(b"there", &other).await?;
        let (read, from) = right.recv_from(&mut text).await?;
        assert_eq!(
            (&text[..read], from.as_abstract_name()),
            (&b"there"[..], one.as_abstract_name())
        );
        right.send_to_addr(b"and", &from).await?;
        left.connect_addr(&other)?;
        assert_eq!(left.recv(&mut text).await?, 3);

        let unnamed = UnixDatagram::unbound()?.local_addr()?;
        let error = UnixStream::connect_addr(&unnamed).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        drop(listener);
        let gone = UnixStream::connect_addr(&address).await.unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
        Ok(())
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_stream_knows_who_is_at_its_other_end() {
    on_a_loop(|| async {
        let path = TempPath::new("cred");
        let listener = UnixListener::bind(&path.0)?;
        let client = UnixStream::connect(&path.0).await?;
        let (server, _) = listener.accept().await?;
        for stream in [&client, &server] {
            let peer = stream.peer_cred()?;
            assert_eq!(peer.pid(), Some(std::process::id()));
            let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self")?);
            assert_eq!(peer.uid(), owner);
        }
        Ok(())
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_socket_without_a_peer_has_no_process_at_its_other_end() {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    let stream = UnixStream::from_std(socket.into()).unwrap();
    assert_eq!(stream.peer_cred().unwrap().pid(), None);
}

/// A listener that takes no more connections, and those that fill it.
fn full_listener(path: &std::path::Path) -> (Socket, Vec<Socket>) {
    let address = SockAddr::unix(path).unwrap();
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.connect(&address).map(|()| socket).ok()
    };
    (listener, std::iter::from_fn(connect).collect())
}

#[test]
fn a_connect_to_a_full_backlog_is_tried_less_and_less_often_and_succeeds() {
    on_a_loop(|| async {
        let path = TempPath::new("jam");
        let (listener, waiting) = full_listener(&path.0);
        let log = Log::new();
        let mut connecting = Probe::new(&log, UnixStream::connect(path.0.clone()));
        let late = timeout(Duration::from_millis(300), &mut connecting).await;
        assert!(late.is_err(), "nobody accepts");
        // After 1, 2, 4, ... ms: 300 times if it was after each millisecond.
        assert!(log.polls() <= 12, "{} polls", log.polls());
        for _ in &waiting {
            listener.accept()?;
        }
        connecting.await?;
        Ok(())
    });
}

#[test]
fn a_datagram_for_a_full_queue_is_tried_less_and_less_often_and_arrives() {
    on_a_loop(|| async {
        let path = TempPath::new("jam-dgram");
        let receiver = std::os::unix::net::UnixDatagram::bind(&path.0)?;
        receiver.set_nonblocking(true)?;
        let other = std::os::unix::net::UnixDatagram::unbound()?;
        other.set_nonblocking(true)?;
        while other.send_to(b"full", &path.0).is_ok() {}
        let sender = UnixDatagram::unbound()?;
        let log = Log::new();
        let mut sending = Probe::new(&log, sender.send_to(b"late", &path.0));
        let late = timeout(Duration::from_millis(300), &mut sending).await;
        assert!(late.is_err(), "nobody reads");
        assert!(log.polls() <= 12, "{} polls", log.polls());
        let mut buf = [0; 8];
        while receiver.recv(&mut buf).is_ok() {}
        assert_eq!(sending.await?, 4);
        assert_eq!(receiver.recv(&mut buf)?, 4);
        assert_eq!(&buf[..4], b"late");
        Ok(())
    });
}
