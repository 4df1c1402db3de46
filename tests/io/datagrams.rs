//! Datagrams of UDP and of Unix: whole, numbered and checked, and what goes wrong with them.
#![cfg(target_os = "linux")]

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram as StdUnixDatagram};
use std::rc::Rc;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use loopgroup::net::{UdpSocket, UnixDatagram};
use loopgroup::time::timeout;
use loopgroup::{EventLoop, EventLoopGroup, block_on};

use crate::util::{LONG, Log, Probe, TempPath, on_a_loop, within};

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Number, checksum of the rest, the rest; what is too short for that is cut off.
fn datagram(number: u64, size: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes: Vec<u8> = (0..size.max(16))
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let sum = checksum(&bytes[16..]);
    bytes[8..16].copy_from_slice(&sum.to_le_bytes());
    bytes.truncate(size);
    bytes
}

/// Whether the receiver can tell that it is one of ours, and whole.
fn is_whole(bytes: &[u8]) -> bool {
    bytes.len() < 16 || bytes[8..16] == checksum(&bytes[16..]).to_le_bytes()
}

#[test]
fn numbered_datagrams_come_back_from_an_unconnected_server_to_each_of_its_clients() {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 1_401;
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (tx, rx) = mpsc::channel();
        let server = group.spawn(async move {
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            tx.send(socket.local_addr()?).unwrap();
            let mut buf = [0; 2048];
            for _ in 0..CLIENTS * EACH {
                let (n, from) = socket.recv_from(&mut buf).await?;
                assert!(is_whole(&buf[..n]), "{n} bytes from {from}");
                assert_eq!(socket.send_to(&buf[..n], from).await?, n);
            }
            io::Result::Ok(())
        });
        let address = rx.recv().unwrap();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                group.spawn(async move {
                    let socket = UdpSocket::bind("127.0.0.1:0").await?;
                    let connected = client % 2 == 0;
                    if connected {
                        socket.connect(address).await?;
                    }
                    let mut buf = [0; 2048];
                    for turn in 0..EACH {
                        // Every size once, the empty one among them, in an order of the client's own.
                        let size = ((turn + client * 175) % EACH) as usize;
                        let sent = datagram(client << 32 | turn, size);
                        let n = if connected {
                            assert_eq!(socket.send(&sent).await?, size);
                            socket.recv(&mut buf).await?
                        } else {
                            assert_eq!(socket.send_to(&sent, address).await?, size);
                            let (n, from) = socket.recv_from(&mut buf).await?;
                            assert_eq!(from, address);
                            n
                        };
                        assert!(buf[..n] == sent[..], "client {client}, size {size}");
                    }
                    io::Result::Ok(())
                })
            })
            .collect();
        for client in clients {
            block_on(client).unwrap().unwrap();
        }
        block_on(server).unwrap().unwrap();
        let report = group.drain(LONG).wait();
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.channels_closed(), 0, "all were closed before");
    });
}

#[test]
fn unix_datagrams_of_up_to_64_kib_come_back_connected_and_by_path() {
    on_a_loop(|| async {
        let (here, there) = (TempPath::new("dgram-here"), TempPath::new("dgram-there"));
        let server = UnixDatagram::bind(&there.0)?;
        let client = UnixDatagram::bind(&here.0)?;
        let echo = loopgroup::spawn_local(async move {
            let mut buf = vec![0; 64 << 10];
            for _ in 0..600 {
                let (n, from) = server.recv_from(&mut buf).await?;
                assert!(is_whole(&buf[..n]), "{n} bytes");
                let path = from.as_pathname().expect("the client is bound").to_owned();
                assert_eq!(server.send_to(&buf[..n], path).await?, n);
            }
            io::Result::Ok(())
        });
        let mut buf = vec![0; 64 << 10];
        for number in 0..600_u64 {
            if number == 300 {
                client.connect(&there.0)?;
            }
            // 0, 1, 64 KiB, and sizes in between.
            let size = [0, 1, 64 << 10, number as usize * 109][number as usize % 4];
            let sent = datagram(number, size);
            let n = if number < 300 {
                client.send_to(&sent, &there.0).await?
            } else {
                client.send(&sent).await?
            };
            assert_eq!(n, size);
            assert_eq!(client.recv(&mut buf).await?, size);
            assert!(buf[..n] == sent[..], "datagram {number} of {size}");
        }
        echo.await??;
        Ok(())
    });
}

#[test]
fn a_unix_datagram_that_does_not_fit_is_cut_off_and_an_empty_one_is_one() {
    on_a_loop(|| async {
        let (one, other) = UnixDatagram::pair()?;
        let mut buf = [9; 4];
        // Once found ready at once, once waited for.
        for _ in 0..2 {
            let receiving = async {
                let mut sizes = Vec::new();
                for _ in 0..3 {
                    sizes.push(other.recv(&mut buf).await?);
                }
                io::Result::Ok(sizes)
            };
            let sending = async {
                one.send(b"too long").await?;
                one.send(b"").await?;
                one.send(b"fits").await
            };
            let (received, sent) = futures::join!(receiving, sending);
            assert_eq!((received?, sent?), (vec![4, 0, 4], 4));
            assert_eq!(&buf, b"fits", "nothing is left of the long one");
        }
        Ok(())
    });
}

#[test]
fn a_refused_datagram_is_told_once_and_the_socket_goes_on() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let gone = UdpSocket::bind("127.0.0.1:0").await?;
        let address = gone.local_addr()?;
        socket.connect(address).await?;
        drop(gone);
        let socket = Rc::new(socket);
        let receiver = Rc::clone(&socket);
        let waiting = loopgroup::spawn_local(async move { receiver.recv(&mut [0; 8]).await });
        while here.registered_channels() == 0 {
            loopgroup::yield_now().await; // until the receiver waits
        }
        socket.send(b"to nobody").await?;
        let error = timeout(LONG, waiting).await??.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // The error was all there was: the next one waits, and the loop goes on meanwhile.
        let receiver = Rc::clone(&socket);
        let waiting = loopgroup::spawn_local(async move { receiver.recv(&mut [0; 8]).await });
        for _ in 0..10 {
            loopgroup::yield_now().await;
        }
        assert!(!waiting.is_finished());
        let back = UdpSocket::bind(address).await?;
        back.send_to(b"again", socket.local_addr()?).await?;
        assert_eq!(timeout(LONG, waiting).await???, 5);
        Ok(())
    });
}

#[test]
fn a_sender_by_path_is_not_forgotten_when_others_have_filled_the_queue() {
    on_a_loop(|| async {
        let path = TempPath::new("dgram-full");
        let server = UnixDatagram::bind(&path.0)?;
        // The queue is full of somebody else's datagrams: nothing of the late sender's own will ever
        // be taken out of it to tell that there is room.
        let crowd = StdUnixDatagram::unbound()?;
        crowd.set_nonblocking(true)?;
        let mut queued = 0;
        while crowd.send_to(b"crowd", &path.0).is_ok() {
            queued += 1;
        }
        let (target, log) = (path.0.clone(), Log::new());
        let late = loopgroup::spawn_local(Probe::new(&log, async move {
            UnixDatagram::unbound()?.send_to(b"late", target).await
        }));
        // Until it has waited, has been told that its own buffer is empty, and waits again.
        while log.polls() < 2 {
            loopgroup::yield_now().await;
        }
        assert!(!late.is_finished(), "there is no room");
        let mut buf = [0; 8];
        for _ in 0..queued {
            assert_eq!(server.recv(&mut buf).await?, 5);
        }
        assert_eq!(timeout(LONG, late).await???, 4);
        assert_eq!(server.recv(&mut buf).await?, 4);
        assert_eq!(&buf[..4], b"late");
        Ok(())
    });
}

#[test]
fn a_datagram_to_a_peer_that_is_gone_is_an_error_and_no_signal() {
    on_a_loop(|| async {
        let (one, other) = UnixDatagram::pair()?;
        drop(other);
        let error = one.send(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let path = TempPath::new("dgram-gone");
        let error = one.send_to(b"x", &path.0).await.unwrap_err();
        // Connected sockets may not send elsewhere, or the path is looked at first.
        assert!(
            matches!(error.raw_os_error(), Some(libc::EISCONN | libc::ENOENT)),
            "{error}"
        );
        let error = UnixDatagram::unbound()?.send_to(b"x", &path.0).await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
fn a_datagram_larger_than_the_system_sends_is_an_error_and_does_not_wait() {
    on_a_loop(|| async {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        let huge = vec![0; 70_000];
        let error = socket.send_to(&huge, address).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        let (one, _other) = UnixDatagram::pair()?;
        let error = one.send(&vec![0; 8 << 20]).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        Ok(())
    });
}

#[test]
fn abstract_names_come_in_by_the_standard_library() {
    on_a_loop(|| async {
        let name = format!("loopgroup-{}-abstract", std::process::id());
        let address = UnixAddr::from_abstract_name(name.as_bytes())?;
        let server = UnixDatagram::from_std(StdUnixDatagram::bind_addr(&address)?)?;
        let client = StdUnixDatagram::unbound()?;
        client.connect_addr(&address)?;
        let client = UnixDatagram::from_std(client)?;
        let mut buf = [0; 8];
        let (received, sent) = futures::join!(server.recv(&mut buf), client.send(b"hello"));
        assert_eq!((received?, sent?), (5, 5));
        assert_eq!(
            server.local_addr()?.as_abstract_name(),
            Some(name.as_bytes())
        );
        Ok(())
    });
}

#[test]
fn two_threads_that_wait_first_at_once_register_one_socket_once() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..500 {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            let socket = Arc::new(UdpSocket::from_std(socket).unwrap());
            let (there, start) = (Arc::clone(&socket), Arc::new(Barrier::new(2)));
            let together = Arc::clone(&start);
            let task = group.spawn_with(move || {
                together.wait();
                async move { there.recv(&mut [0; 1]).await.map(drop) }
            });
            // This thread waits with the selector of the same loop.
            group.block_on(async {
                start.wait();
                let mut buf = [0; 1];
                let ours = async {
                    let mut receiving = std::pin::pin!(socket.recv(&mut buf));
                    // Registered, or an error; nothing can have come yet.
                    let first = futures::poll!(&mut receiving);
                    assert!(first.is_pending(), "{first:?}");
                    for _ in 0..2 {
                        sender.send_to(b"x", address).unwrap();
                    }
                    receiving.await
                };
                assert_eq!(ours.await.unwrap(), 1);
                task.await.unwrap().unwrap();
            });
            assert_eq!(group.next().registered_channels(), 1);
        }
        assert_eq!(group.next().registered_channels(), 0);
    });
}

#[test]
fn a_unix_datagram_socket_moves_to_another_loop_and_goes_on_there() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (one, mut other) = UnixDatagram::pair().unwrap();
        let target = group.loops()[1].clone();
        let moved = group.spawn_on(0, async move {
            let mut buf = [0; 8];
            // Waits, and so is registered here.
            let waits = timeout(Duration::from_millis(1), other.readable()).await;
            assert!(waits.is_err());
            assert_eq!(other.event_loop().map(|ev| ev.index()), Some(0));
            other.migrate_to(&target).await?;
            one.send(b"moved").await?;
            let read = target.spawn(async move {
                other.readable().await?;
                let len = other.recv(&mut buf).await?;
                io::Result::Ok((buf[..len].to_vec(), other.event_loop().map(|ev| ev.index())))
            });
            read.await.unwrap()
        });
        let (text, home) = block_on(moved).unwrap().unwrap();
        assert_eq!((&*text, home), (&b"moved"[..], Some(1)));
    });
}

#[test]
fn a_unix_datagram_socket_knows_its_peer_once_it_is_connected() {
    on_a_loop(|| async {
        let path = TempPath::new("peer");
        let _peer = UnixDatagram::bind(&path.0)?;
        let socket = UnixDatagram::unbound()?;
        let error = socket.peer_addr().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        socket.connect(&path.0)?;
        socket.writable().await?;
        assert_eq!(socket.peer_addr()?.as_pathname(), Some(&*path.0));
        Ok(())
    });
}
