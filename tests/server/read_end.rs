//! The shutdown of a worker loop ends the reads of its connections, after what has arrived.

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as Client};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::io::Interest;
use loopgroup::net::{ServerHandle, TcpStream};
use loopgroup::{EndCause, block_on};

use crate::util::{HOUR, LONG, alone, eventually, group, ms, stall, within};
use crate::{connect, serve_on};

async fn echo(stream: TcpStream, _peer: SocketAddr) {
    let _ = futures::io::copy(&stream, &mut &stream).await;
}

/// Connects, and waits until the handler waits to read.
fn idle_client(server: &ServerHandle) -> Client {
    let before = server.accepted();
    let mut client = connect(server);
    eventually("it is accepted", || server.accepted() > before);
    client.write_all(b"!").unwrap();
    client.read_exact(&mut [0]).unwrap();
    client
}

fn rest_of(client: &mut Client) -> Vec<u8> {
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    rest
}

#[test]
fn idle_clients_do_not_delay_a_drain() {
    within(|| {
        for loops in [1, 3] {
            let workers = group(loops);
            let server = serve_on(&workers).serve(echo).unwrap();
            let mut clients: Vec<_> = (0..20).map(|_| idle_client(&server)).collect();
            let report = workers.drain(HOUR).wait();
            assert!(report.is_clean(), "{report}");
            assert!(
                report
                    .loops()
                    .iter()
                    .all(|one| one.cause() == EndCause::Drained)
            );
            assert_eq!(
                report.channels_closed(),
                0,
                "every handler has closed its own"
            );
            for client in &mut clients {
                assert_eq!(rest_of(client), b"");
            }
            let report = block_on(server);
            assert_eq!((report.accepted(), report.completed()), (20, 20));
        }
    });
}

#[test]
fn a_graceful_shutdown_without_a_quiet_period_ends_idle_handlers_as_well() {
    within(|| {
        for _ in 0..50 {
            let workers = group(2);
            let server = serve_on(&workers).serve(echo).unwrap();
            let clients: Vec<_> = (0..4).map(|_| idle_client(&server)).collect();
            let end = workers
                .shutdown_gracefully_with(Duration::ZERO, LONG)
                .unwrap();
            // The listener, perhaps: no connection.
            assert!(end.wait().channels_closed() <= 1);
            assert_eq!(block_on(server).completed(), 4);
            drop(clients);
        }
    });
}

#[test]
fn what_has_arrived_is_read_and_answered_before_the_end() {
    const BYTES: usize = 40_000;
    within(|| {
        let (boss, workers) = (group(1), group(2));
        let server = serve_on(&workers).boss(&boss).serve(echo).unwrap();
        let mut clients: Vec<_> = (0..8).map(|_| idle_client(&server)).collect();
        // All of it arrives while no loop can read, and the shutdown begins before they can.
        let stalls: Vec<_> = workers.loops().iter().map(stall).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            client.write_all(&vec![index as u8; BYTES]).unwrap();
        }
        let end = workers.drain(HOUR);
        stalls.iter().for_each(|stall| stall.open());
        for (index, client) in clients.iter_mut().enumerate() {
            assert_eq!(rest_of(client), vec![index as u8; BYTES]);
        }
        assert!(end.wait().is_clean());
        assert_eq!(block_on(server).completed(), 8);
    });
}

#[test]
fn data_that_arrives_after_a_short_read_is_found_although_no_event_was_reported() {
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers)
            .serve(|mut stream, _| async move {
                let mut buf = [0; 16];
                assert_eq!(stream.read(&mut buf).await?, 1); // short: the readiness is cleared
                stream.write_all(b"1").await?;
                // Within this poll: more arrives, and the shutdown begins. The selector is not asked.
                let mut peer = [0; 1];
                while stream
                    .try_io(Interest::READABLE, |s| s.peek(&mut peer))
                    .is_err()
                    && stream.get_peek(&mut peer) != 1
                {
                    thread::yield_now();
                }
                let here = loopgroup::EventLoop::current().unwrap();
                drop(here.drain(HOUR));
                let n = stream.read(&mut buf).await?;
                stream.write_all(&buf[..n]).await?;
                assert_eq!(stream.read(&mut buf).await?, 0);
                io::Result::Ok(())
            })
            .unwrap();
        let mut client = connect(&server);
        client.write_all(b"?").unwrap();
        client.read_exact(&mut [0]).unwrap();
        client.write_all(b"more").unwrap();
        assert_eq!(rest_of(&mut client), b"more");
        assert_eq!(block_on(server).completed(), 1);
        workers.drain(LONG).wait();
    });
}

trait PeekNow {
    fn get_peek(&self, buf: &mut [u8]) -> usize;
}

impl PeekNow for TcpStream {
    /// Looks at what has arrived, past what is known of readiness.
    fn get_peek(&self, buf: &mut [u8]) -> usize {
        use std::os::fd::AsFd;
        let socket = self.as_fd().try_clone_to_owned().unwrap();
        std::net::TcpStream::from(socket).peek(buf).unwrap_or(0)
    }
}

#[test]
fn a_connection_that_starts_after_the_shutdown_began_reads_what_was_sent_and_then_the_end() {
    within(|| {
        let (boss, workers) = (group(1), group(1));
        let server = serve_on(&workers).boss(&boss).serve(echo).unwrap();
        let stall = stall(&workers.loops()[0]);
        let mut clients: Vec<_> = (0..5).map(|_| connect(&server)).collect();
        for client in &mut clients {
            client.write_all(b"hello").unwrap();
        }
        eventually("they are accepted", || server.accepted() == 5);
        let end = workers.drain(HOUR);
        stall.open();
        for client in &mut clients {
            assert_eq!(rest_of(client), b"hello");
        }
        assert!(end.wait().is_clean());
        assert_eq!(block_on(server).completed(), 5);
    });
}

#[test]
fn a_long_answer_is_delivered_although_reads_have_ended() {
    const BYTES: usize = 20 << 20;
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers)
            .serve(|mut stream, _| async move {
                let mut byte = [0];
                while stream.read(&mut byte).await? == 1 {
                    stream.write_all(&vec![byte[0]; BYTES]).await?;
                }
                stream.close().await
            })
            .unwrap();
        let mut client = connect(&server);
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0; 100]).unwrap(); // the answer is under way, the rest does not fit
        let end = workers.drain(HOUR);
        let rest = rest_of(&mut client);
        assert_eq!(rest.len(), BYTES - 100);
        assert!(rest.iter().all(|byte| *byte == b'x'));
        assert!(end.wait().is_clean());
        assert_eq!(block_on(server).completed(), 1);
    });
}

/// Serves with `wait`, which is to end when the reads do, while a client is idle.
fn ends<W, F>(wait: W)
where
    W: Fn(TcpStream) -> F + Send + Sync + 'static,
    F: Future<Output = io::Result<()>> + 'static,
{
    let workers = group(1);
    let server = serve_on(&workers)
        .on_error(|error| panic!("{error}"))
        .serve(move |stream, _| wait(stream))
        .unwrap();
    let client = connect(&server);
    eventually("it waits", || workers.loops()[0].registered_channels() == 2);
    let report = workers.drain(HOUR).wait();
    assert_eq!(report.panicked(), 0, "{report}");
    assert_eq!(block_on(server).completed(), 1);
    drop(client);
}

#[test]
fn every_way_to_wait_for_data_is_woken() {
    within(|| {
        ends(|mut stream| async move {
            assert_eq!(stream.read(&mut [0]).await?, 0);
            assert_eq!(stream.read(&mut [0]).await?, 0, "from then on");
            Ok(())
        });
        ends(|mut stream| async move {
            let error = stream.read_exact(&mut [0; 4]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
            Ok(())
        });
        ends(|stream| async move {
            assert_eq!(stream.peek(&mut [0]).await?, 0);
            Ok(())
        });
        ends(|stream| async move {
            stream.readable().await?;
            // Not `WouldBlock`: a loop around both would spin.
            let read = stream.try_io(Interest::READABLE, |mut stream| stream.read(&mut [0]));
            assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof);
            stream.writable().await?;
            let write = stream.try_io(Interest::WRITABLE, |mut stream| stream.write(b"bye"));
            assert_eq!(write?, 3);
            Ok(())
        });
        ends(|stream| async move {
            let (mut read, mut write) = stream.into_split();
            let reader = loopgroup::spawn_local(async move { read.read(&mut [0]).await });
            assert_eq!(reader.await??, 0);
            write.write_all(b"bye").await
        });
        ends(|mut stream| async move {
            use tokio::io::AsyncReadExt;
            assert_eq!(AsyncReadExt::read(&mut stream, &mut [0]).await?, 0);
            Ok(())
        });
        ends(|mut stream| async move {
            let mut storage = [0; 8];
            let mut buf = hyper_buf(&mut storage);
            poll_fn(|cx| hyper::rt::Read::poll_read(Pin::new(&mut stream), cx, buf.unfilled()))
                .await?;
            assert_eq!(buf.filled().len(), 0);
            Ok(())
        });
        // Two that observe, and one that reads.
        ends(|stream| async move {
            let reads = futures::join!(stream.readable(), stream.readable(), async {
                (&stream).read(&mut [0]).await
            });
            assert!(matches!(reads, (Ok(()), Ok(()), Ok(0))));
            Ok(())
        });
    });
}

fn hyper_buf(storage: &mut [u8]) -> hyper::rt::ReadBuf<'_> {
    hyper::rt::ReadBuf::new(storage)
}

#[test]
fn a_stream_that_has_migrated_is_reached_wherever_it_is() {
    within(|| {
        let (workers, elsewhere) = (group(1), group(1));
        let other = elsewhere.loops()[0].clone();
        let server = serve_on(&workers)
            .serve(move |mut stream, _| {
                let other = other.clone();
                async move {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).await?; // registered here
                    stream.migrate_to(&other).await?;
                    stream.write_all(&byte).await?;
                    assert_eq!(stream.read(&mut byte).await?, 0);
                    assert_eq!(stream.event_loop(), Some(other));
                    io::Result::Ok(())
                }
            })
            .unwrap();
        let client = idle_client(&server);
        assert!(workers.drain(HOUR).wait().is_clean());
        assert_eq!(block_on(server).completed(), 1);
        assert!(!elsewhere.is_shutting_down());
        drop(client);
    });
}

#[test]
fn a_stream_that_migrates_after_its_reads_have_ended_stays_ended() {
    within(|| {
        let (workers, elsewhere) = (group(1), group(1));
        let other = elsewhere.loops()[0].clone();
        let server = serve_on(&workers)
            .serve(move |mut stream, _| {
                let other = other.clone();
                async move {
                    stream.write_all(b"!").await?;
                    assert_eq!(stream.read(&mut [0]).await?, 0);
                    stream.migrate_to(&other).await?;
                    assert_eq!(stream.read(&mut [0]).await?, 0);
                    io::Result::Ok(())
                }
            })
            .unwrap();
        let mut client = connect(&server);
        client.read_exact(&mut [0]).unwrap();
        assert!(workers.drain(HOUR).wait().is_clean());
        assert_eq!(block_on(server).completed(), 1);
    });
}

#[test]
fn switched_off_reads_wait_for_their_client_and_the_timeout_ends_them() {
    within(|| {
        let workers = group(1);
        let errors = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&errors);
        let server = serve_on(&workers)
            .end_reads_on_shutdown(false)
            .serve(move |mut stream, _| {
                let seen = Arc::clone(&seen);
                async move {
                    let _ = stream.write_all(b"!").await;
                    if stream.read(&mut [0]).await.is_err() {
                        seen.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
            .unwrap();
        let (mut stays, mut leaves) = (connect(&server), connect(&server));
        stays.read_exact(&mut [0]).unwrap();
        leaves.read_exact(&mut [0]).unwrap();
        let end = workers.drain(ms(100));
        leaves.shutdown(Shutdown::Write).unwrap();
        let report = end.wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert_eq!(errors.load(Ordering::SeqCst), 1, "the client that stayed");
    });
}

#[test]
fn a_handle_drains_its_own_server_and_no_other() {
    within(|| {
        let workers = group(2);
        let drained = serve_on(&workers).serve(echo).unwrap();
        let other = serve_on(&workers)
            .end_reads_on_shutdown(false)
            .serve(echo)
            .unwrap();
        let mut clients: Vec<_> = (0..4).map(|_| idle_client(&drained)).collect();
        let mut stranger = idle_client(&other);
        drained.drain();
        drained.drain();
        assert_eq!(block_on(drained).completed(), 4);
        for client in &mut clients {
            assert_eq!(rest_of(client), b"");
        }
        stranger.write_all(b"still").unwrap();
        stranger.read_exact(&mut [0; 5]).unwrap();
        other.stop();
        other.drain(); // after a stop, and although a shutdown would not
        assert_eq!(block_on(other).completed(), 1);
        assert!(workers.drain(HOUR).wait().is_clean());
    });
}

#[test]
fn the_shutdown_of_one_loop_ends_the_reads_of_its_connections_only() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers).serve(echo).unwrap();
        let mut clients: Vec<_> = (0..6).map(|_| idle_client(&server)).collect(); // in turn
        let boss = 0; // next() of a new group
        let report = workers.loops()[1 - boss].drain(HOUR).wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        eventually("its connections end", || server.connections() == 3);
        let alive = clients.iter_mut().filter_map(|client| {
            client.write_all(b"?").ok()?;
            client.read_exact(&mut [0]).ok()
        });
        assert_eq!(alive.count(), 3);
        assert!(workers.drain(HOUR).wait().is_clean());
        assert_eq!(block_on(server).completed(), 6);
    });
}

#[test]
fn clients_that_talk_during_a_shutdown_get_whole_answers() {
    const REQUEST: usize = 100;
    within(|| {
        for round in 0..20 {
            let workers = group(2);
            let server = serve_on(&workers)
                .serve(|mut stream, _| async move {
                    let mut request = [0; REQUEST];
                    while stream.read_exact(&mut request).await.is_ok() {
                        stream.write_all(&request).await?;
                    }
                    io::Result::Ok(())
                })
                .unwrap();
            let address = server.local_addr();
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    thread::spawn(move || {
                        let mut client = Client::connect(address).unwrap();
                        let mut answers = 0;
                        loop {
                            if client.write_all(&[7; REQUEST]).is_err() {
                                return answers;
                            }
                            let mut answer = [0; REQUEST];
                            match client.read(&mut answer).unwrap_or(0) {
                                0 => return answers, // not answered at all
                                n => client.read_exact(&mut answer[n..]).expect("a whole answer"),
                            }
                            answers += 1;
                        }
                    })
                })
                .collect();
            let start = Instant::now();
            eventually("they talk", || {
                server.accepted() == 4 && start.elapsed() > ms(round % 5)
            });
            assert!(workers.drain(HOUR).wait().is_clean());
            for client in clients {
                client.join().unwrap();
            }
            assert_eq!(block_on(server).completed(), 4);
        }
    });
}

#[test]
fn the_server_of_the_front_page_ends_at_once_by_ctrl_c_whoever_is_connected() {
    alone(
        "the_server_of_the_front_page_ends_at_once_by_ctrl_c_whoever_is_connected",
        || {
            let workers = group(2);
            let server = serve_on(&workers).serve(echo).unwrap();
            let mut idle: Vec<_> = (0..20).map(|_| idle_client(&server)).collect();
            let mut talks = idle_client(&server);
            let interrupted = thread::spawn({
                let workers = workers.clone();
                move || workers.block_on(async { loopgroup::signal::shutdown().await })
            });
            eventually("the signal is waited for", || {
                let masks = std::fs::read_to_string("/proc/self/status").unwrap();
                let caught = masks.lines().find_map(|line| line.strip_prefix("SigCgt:"));
                u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & 2 != 0
            });
            talks.write_all(&[7; 10_000]).unwrap();
            let pid = std::process::id().to_string();
            let kill = std::process::Command::new("kill")
                .args(["-INT", &pid])
                .status();
            assert!(kill.unwrap().success());
            interrupted.join().unwrap().unwrap();
            let report = workers.drain(HOUR).wait();
            assert!(report.is_clean(), "{report}");
            assert_eq!(rest_of(&mut talks), [7; 10_000]);
            for client in &mut idle {
                assert_eq!(rest_of(client), b"");
            }
            assert_eq!(block_on(server).completed(), 21);
        },
    );
}
