//! TCP: bytes arrive whole and in order, on the loop where their socket is at home.

use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures::StreamExt;
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
use loopgroup::time::{sleep, timeout};
use loopgroup::{CloseChannels, EventLoop, EventLoopGroup, block_on};

use crate::util::{self, LONG, on_a_loop, within};

/// Two ends of one connection.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (client, server) = futures::join!(TcpStream::connect(address), listener.accept());
    Ok((client?, server?.0))
}

/// Bytes that depend on their place, so that a gap or a swap shows.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Echoes until the other side is done.
async fn echo(stream: TcpStream) -> io::Result<u64> {
    let mut writer = &stream;
    let copied = futures::io::copy(&stream, &mut writer).await?;
    writer.close().await?;
    Ok(copied)
}

#[test]
fn what_is_written_is_read_in_chunks_of_every_size() {
    on_a_loop(|| async {
        let (client, server) = pair().await?;
        let echo = loopgroup::spawn_local(echo(server));
        let sent = pattern(1, 3_000_000);
        let (mut read, mut write) = client.into_split();
        let to_send = sent.clone();
        let sender = loopgroup::spawn_local(async move {
            let mut rest = &to_send[..];
            let mut size = 1;
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at(size.min(rest.len()));
                write.write_all(chunk).await?;
                rest = tail;
                size = size * 3 % 70_001 + 1;
            }
            write.close().await
        });
        let mut received = Vec::new();
        let mut size = 7;
        loop {
            let mut chunk = vec![0; size];
            let n = read.read(&mut chunk).await?;
            if n == 0 {
                break;
            }
            received.extend_from_slice(&chunk[..n]);
            size = size * 5 % 40_009 + 1;
        }
        sender.await??;
        assert_eq!(echo.await??, sent.len() as u64);
        assert!(
            received == sent,
            "{} of {} bytes",
            received.len(),
            sent.len()
        );
        Ok(())
    });
}

#[test]
fn sixty_four_connections_echo_at_once_over_two_loops() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let worker = group.clone();
        let (tx, rx) = mpsc::channel();
        drop(group.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tx.send(listener.local_addr().unwrap()).unwrap();
            for _ in 0..64 {
                let (stream, _) = listener.accept().await.unwrap();
                // Handed to the next loop before it has a home: it gets its home there.
                drop(worker.spawn_with(move || async move {
                    let home = EventLoop::current().unwrap();
                    let not_send = Rc::new(());
                    let mut buf = vec![0; 4096];
                    loop {
                        let n = (&stream).read(&mut buf).await.unwrap();
                        assert!(home.in_event_loop(), "read away from home");
                        if n == 0 {
                            break;
                        }
                        (&stream).write_all(&buf[..n]).await.unwrap();
                    }
                    // One that never had to wait has no home at all.
                    assert!(stream.event_loop().is_none_or(|its| its == home));
                    drop(not_send);
                }));
            }
        }));
        let address = rx.recv().unwrap();
        let clients: Vec<_> = (0..64)
            .map(|seed| {
                group.spawn(async move {
                    let stream = TcpStream::connect(address).await.unwrap();
                    let sent = pattern(seed, 50_000);
                    let mut received = vec![0; sent.len()];
                    let (mut write, mut read) = (&stream, &stream);
                    let (wrote, read) =
                        futures::join!(write.write_all(&sent), read.read_exact(&mut received));
                    wrote.unwrap();
                    read.unwrap();
                    assert!(sent == received);
                })
            })
            .collect();
        for client in clients {
            block_on(client).unwrap();
        }
        let report = group.drain(LONG).wait();
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn half_a_connection_closes_and_the_other_half_goes_on() {
    on_a_loop(|| async {
        let (mut client, mut server) = pair().await?;
        client.write_all(b"last words").await?;
        client.shutdown(Shutdown::Write)?;
        let mut text = String::new();
        server.read_to_string(&mut text).await?;
        assert_eq!(text, "last words");
        // The other way is open still, for as long as it takes.
        loopgroup::yield_now().await;
        server.write_all(b"answer").await?;
        drop(server);
        text.clear();
        client.read_to_string(&mut text).await?;
        assert_eq!(text, "answer");
        Ok(())
    });
}

#[test]
fn a_reset_is_an_error_to_the_reader_and_then_an_end() {
    on_a_loop(|| async {
        let (client, mut server) = pair().await?;
        let reading = loopgroup::spawn_local(async move {
            let error = server.read(&mut [0; 16]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            server
        });
        loopgroup::yield_now().await;
        client.set_linger(Some(Duration::ZERO))?;
        drop(client);
        let mut server = reading.await?;
        assert_eq!(server.read(&mut [0; 16]).await?, 0, "told once");
        assert!(server.write(b"x").await.is_err());
        Ok(())
    });
}

#[test]
fn an_end_and_then_a_reset_wake_both_directions_and_free_the_slot() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        for _ in 0..100 {
            let (client, server) = pair().await?;
            client.shutdown(Shutdown::Write)?; // FIN
            assert_eq!((&server).read(&mut [0; 16]).await?, 0);
            // The server writes until nothing goes any more, and waits.
            let server = Rc::new(server);
            let writing = Rc::clone(&server);
            let stuck = loopgroup::spawn_local(async move {
                let block = vec![0; 1 << 20];
                loop {
                    if let Err(error) = (&*writing).write(&block).await {
                        return error.kind();
                    }
                }
            });
            while futures::poll!(std::pin::pin!(server.writable())).is_ready() {
                loopgroup::yield_now().await;
            }
            client.set_linger(Some(Duration::ZERO))?;
            drop(client); // RST
            let kind = timeout(LONG, stuck).await??;
            assert!(
                matches!(
                    kind,
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ),
                "{kind:?}"
            );
            timeout(LONG, server.readable()).await??;
        }
        assert_eq!(here.registered_channels(), 0);
        Ok(())
    });
}

#[test]
fn a_refused_connection_says_so_and_leaves_no_slot() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        drop(listener);
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(here.registered_channels(), 0);
        Ok(())
    });
}

#[test]
fn an_address_in_use_and_one_that_is_none_say_so() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let error = TcpListener::bind(address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        let error = TcpStream::connect("no port here").await.unwrap_err();
        assert!(error.to_string().contains("no port here"), "{error}");
        let none: &[std::net::SocketAddr] = &[];
        let error = TcpStream::connect(none).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        Ok(())
    });
}

#[test]
fn a_host_name_is_looked_up_off_the_loop() {
    on_a_loop(|| async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (stream, _) =
            futures::join!(TcpStream::connect(("localhost", port)), listener.accept());
        assert_eq!(stream?.peer_addr()?.port(), port);
        Ok(())
    });
}

#[test]
fn a_socket_that_waits_without_a_loop_says_what_is_missing() {
    within(|| {
        // Binding does not wait; accepting does.
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let error = block_on(listener.accept()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("no event loop"), "{error}");
        let executors = EventLoopGroup::builder()
            .loops(1)
            .without_io()
            .build()
            .unwrap();
        let error = block_on(executors.spawn(async move { listener.accept().await.map(drop) }));
        let error = error.unwrap().unwrap_err();
        assert!(error.to_string().contains("without_io"), "{error}");
    });
}

#[test]
fn sockets_work_inside_block_on_of_a_group() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.block_on(async {
            let (mut client, mut server) = pair().await.unwrap();
            let mut buf = [0; 4];
            let (wrote, read) =
                futures::join!(client.write_all(b"ping"), server.read_exact(&mut buf));
            wrote.unwrap();
            read.unwrap();
            assert_eq!(&buf, b"ping");
        });
    });
}

#[test]
fn a_peer_that_never_reads_holds_the_writer_and_nothing_else() {
    on_a_loop(|| async {
        let (client, server) = pair().await?;
        let block = vec![7; 1 << 20];
        let mut sent = 0;
        while let Ok(n) = timeout(Duration::from_millis(50), (&client).write(&block)).await {
            sent += n?;
        }
        assert!(sent > 0);
        // It goes on where it was once the other side reads.
        let reading = loopgroup::spawn_local(async move {
            let mut buf = vec![0; 1 << 16];
            let mut got = 0;
            while got < sent + 1 {
                got += (&server).read(&mut buf).await?;
            }
            io::Result::Ok(got)
        });
        (&client).write_all(&[7]).await?;
        assert_eq!(timeout(LONG, reading).await???, sent + 1);
        Ok(())
    });
}

#[test]
fn a_socket_that_is_always_ready_does_not_starve_its_loop() {
    on_a_loop(|| async {
        let (client, server) = pair().await?;
        let flood = loopgroup::spawn_local(async move {
            let block = vec![0; 1 << 16];
            loop {
                if (&client).write(&block).await.is_err() {
                    return;
                }
            }
        });
        let read = Rc::new(std::cell::Cell::new(0_u64));
        let count = Rc::clone(&read);
        let reading = loopgroup::spawn_local(async move {
            let mut buf = [0; 512]; // never short: always ready
            while (&server).read(&mut buf).await.is_ok_and(|n| n > 0) {
                count.set(count.get() + 1);
            }
        });
        for _ in 0..20 {
            sleep(Duration::from_millis(1)).await;
            loopgroup::yield_now().await;
        }
        assert!(read.get() > 0);
        reading.abort();
        flood.abort();
        Ok(())
    });
}

#[test]
fn a_stream_moves_to_another_loop_and_goes_on_there() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let first = group.spawn_on(0, async {
            let (client, mut server) = pair().await.unwrap();
            (&client).write_all(b"one").await.unwrap();
            let mut buf = [0; 3];
            server.read_exact(&mut buf).await.unwrap();
            // Registered here: it has waited here.
            let waited = timeout(Duration::from_millis(1), server.read(&mut buf)).await;
            assert!(waited.is_err());
            assert_eq!(server.event_loop(), EventLoop::current());
            (client, server)
        });
        let (client, mut server) = block_on(first).unwrap();
        let other = group.loops()[1].clone();
        let second = group.spawn_on(1, async move {
            server.migrate_to(&other).await.unwrap();
            assert_eq!(server.event_loop(), Some(other));
            (&client).write_all(b"two").await.unwrap();
            let mut buf = [0; 3];
            server.read_exact(&mut buf).await.unwrap();
            buf
        });
        assert_eq!(&block_on(second).unwrap(), b"two");
        assert_eq!(group.loops()[0].registered_channels(), 0);
    });
}

#[test]
fn channels_are_counted_while_they_are_registered() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let (client, server) = pair().await?;
        let before = here.registered_channels();
        let mut buf = [0; 1];
        assert!(
            timeout(Duration::from_millis(1), (&server).read(&mut buf))
                .await
                .is_err()
        );
        assert_eq!(here.registered_channels(), before + 1);
        drop(server);
        assert_eq!(here.registered_channels(), before);
        drop(client);
        assert_eq!(here.registered_channels(), 0);
        Ok(())
    });
}

#[test]
fn a_loop_that_ends_wakes_who_waits_for_a_socket_and_says_why() {
    for close in [CloseChannels::AtEnd, CloseChannels::Immediately] {
        within(move || {
            let group = EventLoopGroup::builder()
                .loops(1)
                .close_channels(close)
                .build()
                .unwrap();
            let (tx, rx) = mpsc::channel();
            drop(group.spawn(async move {
                let (client, mut server) = pair().await.unwrap();
                tx.send("waiting".to_owned()).unwrap();
                let error = server.read(&mut [0; 1]).await.unwrap_err();
                // A handler gets this one poll to clean up.
                tx.send(error.to_string()).unwrap();
                drop(client);
            }));
            assert_eq!(rx.recv().unwrap(), "waiting");
            util::eventually("it is registered", || {
                group.next().registered_channels() > 0
            });
            let end = group
                .shutdown_gracefully_with(Duration::ZERO, LONG)
                .unwrap();
            let report = end.wait();
            assert!(rx.recv().unwrap().contains("shutting down"));
            assert_eq!(report.completed(), 1, "{report}");
            assert!(report.channels_closed() >= 1);
        });
    }
}

#[test]
fn options_are_set_and_read_back() {
    on_a_loop(|| async {
        let (client, _server) = pair().await?;
        client.set_nodelay(true)?;
        assert!(client.nodelay()?);
        client.set_ttl(42)?;
        assert_eq!(client.ttl()?, 42);
        client.set_linger(Some(Duration::from_secs(3)))?;
        assert_eq!(client.linger()?, Some(Duration::from_secs(3)));
        client.set_keepalive(Some(Duration::from_secs(60)))?;
        assert!(client.keepalive()?);
        client.set_keepalive(None)?;
        assert!(!client.keepalive()?);
        client.set_recv_buffer_size(32 << 10)?;
        client.set_send_buffer_size(32 << 10)?;
        assert!(client.recv_buffer_size()? >= 32 << 10);
        assert!(client.send_buffer_size()? >= 32 << 10);
        assert!(client.take_error()?.is_none());
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn an_option_beyond_what_the_system_counts_is_the_most_and_never_the_least() {
    on_a_loop(|| async {
        let (client, _server) = pair().await?;
        // Not a reset, which zero would be: neither what is cut off nor what is too small to count.
        for (asked, seconds) in [
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(1_500), 2),
            (Duration::from_secs(1 << 32), i32::MAX as u64),
            (Duration::MAX, i32::MAX as u64),
            (Duration::ZERO, 0),
        ] {
            client.set_linger(Some(asked))?;
            let seconds = Duration::from_secs(seconds);
            assert_eq!(client.linger()?, Some(seconds), "{asked:?}");
        }
        client.set_linger(None)?;
        for (asked, seconds) in [(1, 1), (1_500, 2), (32_767_000, 32_767)] {
            client.set_keepalive(None)?;
            client.set_keepalive(Some(Duration::from_millis(asked)))?;
            assert!(client.keepalive()?);
            let set = socket2::SockRef::from(&client).tcp_keepalive_time()?;
            assert_eq!(set.as_secs(), seconds, "{asked} ms");
        }
        for on in [true, false] {
            for wrong in [Duration::ZERO, Duration::from_secs(32_768), Duration::MAX] {
                let refused = client.set_keepalive(Some(wrong)).unwrap_err();
                // Said, not cut off; and nothing else has changed.
                assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{wrong:?}");
                assert_eq!(client.keepalive()?, on, "{wrong:?}");
            }
            client.set_keepalive(None)?;
        }
        for huge in [1 << 32, usize::MAX] {
            client.set_recv_buffer_size(0)?;
            client.set_send_buffer_size(0)?;
            let least = (client.recv_buffer_size()?, client.send_buffer_size()?);
            client.set_recv_buffer_size(huge)?;
            client.set_send_buffer_size(huge)?;
            assert!(client.recv_buffer_size()? > least.0, "{huge}");
            assert!(client.send_buffer_size()? > least.1, "{huge}");
        }
        Ok(())
    });
}

#[test]
fn peeking_takes_nothing_and_vectored_calls_fill_every_buffer() {
    on_a_loop(|| async {
        let (mut client, mut server) = pair().await?;
        let bufs = [io::IoSlice::new(b"ab"), io::IoSlice::new(b"cdef")];
        assert_eq!(client.write_vectored(&bufs).await?, 6);
        let mut peeked = [0; 6];
        assert_eq!(server.peek(&mut peeked).await?, 6);
        assert_eq!(&peeked, b"abcdef");
        let (mut one, mut two) = ([0; 3], [0; 3]);
        let mut bufs = [io::IoSliceMut::new(&mut one), io::IoSliceMut::new(&mut two)];
        assert_eq!(server.read_vectored(&mut bufs).await?, 6);
        assert_eq!((&one, &two), (b"abc", b"def"));
        Ok(())
    });
}

#[test]
fn halves_come_together_again_and_a_dropped_write_half_is_an_end() {
    on_a_loop(|| async {
        let (client, mut server) = pair().await?;
        let (other, _keep) = pair().await?;
        let (read, write) = client.into_split();
        let (other_read, _other_write) = other.into_split();
        let (write, read) = match other_read.reunite(write) {
            Ok(_) => panic!("halves of two streams"),
            Err((_, write)) => (write, read),
        };
        let client = read.reunite(write).expect("halves of one stream");
        let (_read, write): (OwnedReadHalf, OwnedWriteHalf) = client.into_split();
        drop(write);
        assert_eq!(server.read(&mut [0; 1]).await?, 0);
        Ok(())
    });
}

#[test]
fn incoming_is_a_stream_of_connections() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let clients = loopgroup::spawn_local(async move {
            let mut clients = Vec::new();
            for _ in 0..3 {
                clients.push(TcpStream::connect(address).await.unwrap());
            }
            clients
        });
        let accepted: Vec<_> = listener.incoming().take(3).collect().await;
        assert!(accepted.iter().all(Result::is_ok));
        assert_eq!(clients.await?.len(), 3);
        Ok(())
    });
}

#[test]
fn sockets_go_to_the_standard_library_and_back() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let listener = TcpListener::from_std(listener.into_std())?;
        let address = listener.local_addr()?;
        let (client, server) = futures::join!(TcpStream::connect(address), listener.accept());
        let mut client = TcpStream::from_std(client?.into_std())?;
        let mut server = TcpStream::from_std(server?.0.into_std())?;
        client.write_all(b"x").await?;
        server.read_exact(&mut [0; 1]).await?;
        Ok(())
    });
}

#[test]
fn many_short_connections_leave_nothing_behind() {
    util::alone("many_short_connections_leave_nothing_behind", || {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let before = util::entries("/proc/self/fd");
        let done = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let done = Arc::clone(&done);
                group.spawn(async move {
                    for _ in 0..500 {
                        let (mut client, mut server) = pair().await.unwrap();
                        client.write_all(b"x").await.unwrap();
                        server.read_exact(&mut [0; 1]).await.unwrap();
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for task in tasks {
            block_on(task).unwrap();
        }
        assert_eq!(done.load(Ordering::SeqCst), 2_000);
        assert_eq!(util::entries("/proc/self/fd"), before);
        let registered: usize = group
            .loops()
            .iter()
            .map(EventLoop::registered_channels)
            .sum();
        assert_eq!(registered, 0);
    });
}

#[test]
fn a_listener_without_descriptors_keeps_its_connection_and_accepts_it_later() {
    util::alone(
        "a_listener_without_descriptors_keeps_its_connection_and_accepts_it_later",
        || {
            loopgroup::run(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                // Registered, so that readiness counts.
                assert!(
                    timeout(Duration::from_millis(1), listener.accept())
                        .await
                        .is_err()
                );
                let address = listener.local_addr().unwrap();
                let client = std::net::TcpStream::connect(address).unwrap();
                let mut hoard = Vec::new();
                while let Ok(file) = std::fs::File::open("/dev/null") {
                    hoard.push(file);
                }
                let error = listener.accept().await.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                hoard.clear();
                // No new connection comes, and no new event: the readiness stands.
                let accepted = timeout(LONG, listener.accept()).await.unwrap().unwrap();
                assert_eq!(accepted.1, client.local_addr().unwrap());
            })
            .unwrap();
        },
    );
}

#[test]
fn an_address_that_does_not_answer_does_not_keep_the_next_one_waiting() {
    use socket2::{Domain, Socket, Type};

    on_a_loop(|| async {
        // One connection fills it, and the system leaves the next one without an answer.
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        silent.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
        silent.listen(0)?;
        let silent = std::net::TcpListener::from(silent);
        let full = silent.local_addr()?;
        let _first = std::net::TcpStream::connect(full)?;
        loopgroup::io::Registered::new(silent.try_clone()?)?
            .readable()
            .await?;
        assert!(
            timeout(Duration::from_millis(20), TcpStream::connect(full))
                .await
                .is_err()
        );
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addresses = [full, listener.local_addr()?];
        // The system would try the first for two minutes.
        let stream = TcpStream::connect(&addresses[..]).await?;
        assert_eq!(stream.peer_addr()?, addresses[1]);
        Ok(())
    });
}
