//! Time limits, the accept rate, results of handlers, and hooks.

use std::future::pending;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream as Client;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{ConnectionEnd, TcpStream};
use loopgroup::time::sleep;
use loopgroup::{PanicSite, WaitsFor, block_on};

use crate::util::{HOUR, LONG, eventually, flush, group, ms, patiently, within};
use crate::{connect, group_that_reports, serve_on};

/// Short for a test, and long for a machine that is busy.
fn limit() -> Duration {
    patiently(ms(200))
}

async fn echo(stream: TcpStream) -> io::Result<()> {
    futures::io::copy(&stream, &mut &stream).await.map(drop)
}

fn rest_of(client: &mut Client) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    rest
}

#[test]
fn silent_clients_give_their_place_to_others() {
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers)
            .max_connections(2)
            .first_byte_timeout(limit())
            .serve(|stream, _| echo(stream))
            .unwrap();
        let mut silent: Vec<_> = (0..4).map(|_| connect(&server)).collect();
        let mut talks = connect(&server); // behind four that say nothing
        talks.write_all(b"hello").unwrap();
        talks.read_exact(&mut [0; 5]).unwrap();
        for client in &mut silent {
            assert_eq!(rest_of(client), b"");
        }
        // The first byte has come: the limit is over.
        thread::sleep(limit() * 2);
        talks.write_all(b"again").unwrap();
        talks.read_exact(&mut [0; 5]).unwrap();
        assert_eq!((server.timed_out(), server.connections()), (4, 1));
        drop(talks);
        server.stop();
        let report = block_on(server);
        assert_eq!(
            (report.accepted(), report.completed(), report.failed()),
            (5, 1, 4)
        );
        assert_eq!(report.timed_out(), 4);
    });
}

#[test]
fn an_idle_connection_fails_after_its_limit_and_not_before() {
    within(|| {
        let workers = group(1);
        let (tell, told) = mpsc::channel();
        let server = serve_on(&workers)
            .idle_timeout(limit())
            .serve(move |mut stream, _| {
                let tell = tell.clone();
                async move {
                    let mut byte = [0];
                    let mut last = Instant::now();
                    loop {
                        match stream.read(&mut byte).await {
                            Ok(0) => return Ok(()),
                            Ok(_) => last = Instant::now(),
                            Err(error) => {
                                tell.send((error.kind(), last.elapsed())).unwrap();
                                let farewell = stream.write_all(b"too slow").await;
                                assert!(farewell.is_ok(), "what need not wait succeeds");
                                return Err(error);
                            }
                        }
                    }
                }
            })
            .unwrap();
        let mut client = connect(&server);
        // Longer than the limit in sum, never for as long at a time.
        for _ in 0..8 {
            thread::sleep(limit() / 4);
            client.write_all(b"!").unwrap();
        }
        assert_eq!(rest_of(&mut client), b"too slow");
        let (kind, idle) = told.recv().unwrap();
        assert_eq!(kind, ErrorKind::TimedOut);
        assert!(idle >= limit(), "{idle:?}");
        server.stop();
        let report = block_on(server);
        assert_eq!((report.failed(), report.timed_out()), (1, 1));
    });
}

#[test]
fn a_server_that_only_sends_is_not_idle_and_one_that_computes_is_not_waiting() {
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers)
            .idle_timeout(limit())
            .serve(|mut stream, _| async move {
                let mut kind = [0];
                stream.read_exact(&mut kind).await?;
                if kind == *b"s" {
                    let mut reader = [0];
                    let (mut read, mut write) = stream.into_split();
                    let sends = async {
                        for _ in 0..12 {
                            sleep(limit() / 4).await;
                            write.write_all(b".").await?;
                        }
                        io::Result::Ok(())
                    };
                    // It waits to read all the time, and nothing ever arrives.
                    let reads = std::pin::pin!(read.read(&mut reader));
                    match futures::future::select(std::pin::pin!(sends), reads).await {
                        futures::future::Either::Left((sent, _)) => sent,
                        futures::future::Either::Right((read, _)) => panic!("{read:?}"),
                    }
                } else {
                    sleep(limit() * 3).await; // a slow backend
                    stream.write_all(b"answer").await?;
                    assert_eq!(stream.read(&mut kind).await?, 1);
                    Ok(())
                }
            })
            .unwrap();
        let (mut sends, mut computes) = (connect(&server), connect(&server));
        sends.write_all(b"s").unwrap();
        computes.write_all(b"c").unwrap();
        assert_eq!(rest_of(&mut sends), b"............");
        let mut answer = [0; 6];
        computes.read_exact(&mut answer).unwrap();
        computes.write_all(b"!").unwrap();
        assert_eq!(rest_of(&mut computes), b"");
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.timed_out()), (2, 0), "{report}");
    });
}

#[test]
fn a_client_that_takes_nothing_fails_the_write_also_during_a_drain() {
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers)
            .idle_timeout(limit())
            .serve(|mut stream, _| async move { stream.write_all(&vec![0; 64 << 20]).await })
            .unwrap();
        let client = connect(&server);
        eventually("it is accepted", || server.accepted() == 1);
        let report = workers.drain(HOUR).wait(); // reads end, and this is a write
        assert!(report.is_clean(), "{report}");
        let report = block_on(server);
        assert_eq!((report.failed(), report.timed_out()), (1, 1));
        drop(client);
    });
}

#[test]
fn a_shutdown_in_the_middle_of_a_limit_ends_reads_as_without_one() {
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers)
            .idle_timeout(HOUR)
            .first_byte_timeout(HOUR)
            .serve(|stream, _| echo(stream))
            .unwrap();
        let mut clients: Vec<_> = (0..3).map(|_| connect(&server)).collect();
        clients[0].write_all(b"hello").unwrap();
        clients[0].read_exact(&mut [0; 5]).unwrap();
        eventually("they are served", || {
            workers.loops()[0].registered_channels() == 4
        });
        assert!(workers.drain(HOUR).wait().is_clean());
        let report = block_on(server);
        assert_eq!((report.completed(), report.timed_out()), (3, 0));
    });
}

#[test]
fn the_accept_rate_makes_clients_wait_and_loses_none() {
    within(|| {
        for reuse_port in [false, true] {
            let workers = group(2);
            let server = serve_on(&workers)
                .reuse_port(reuse_port)
                .max_accept_rate(100)
                .serve(|stream, _| echo(stream))
                .unwrap();
            let start = Instant::now();
            let clients: Vec<_> = (0..40).map(|_| connect(&server)).collect();
            for mut client in &clients {
                client.write_all(b"!").unwrap();
                client.read_exact(&mut [0]).unwrap();
            }
            // 10 ms each, but for one in the bucket and one of each acceptor that overdraws it.
            assert!(start.elapsed() >= ms(360), "{:?}", start.elapsed());
            drop(clients);
            server.stop(); // also while an acceptor waits for its rate
            assert_eq!(block_on(server).completed(), 40);
        }
    });
}

#[test]
fn stop_is_heard_while_the_rate_is_waited_for() {
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers)
            .max_accept_rate(1)
            .serve(|stream, _| echo(stream))
            .unwrap();
        let clients: Vec<_> = (0..5).map(|_| connect(&server)).collect();
        eventually("the first one is accepted", || server.accepted() == 1);
        let start = Instant::now();
        server.drain();
        assert_eq!(block_on(server).accepted(), 1);
        assert!(start.elapsed() < LONG);
        drop(clients);
    });
}

#[test]
fn handlers_that_return_errors_for_ever_are_counted_and_reported() {
    within(|| {
        let workers = group(2);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let server = serve_on(&workers)
            .on_error(move |error| {
                let text = error.downcast_ref::<String>().cloned();
                log.lock()
                    .unwrap()
                    .push((error.peer(), text, error.to_string()));
            })
            .serve(|_, peer| async move { Err::<(), _>(format!("not you, {peer}")) })
            .unwrap();
        let mut expected = Vec::new();
        for _ in 0..100 {
            let mut client = connect(&server);
            let peer = client.local_addr().unwrap();
            let text = format!("not you, {peer}");
            expected.push((Some(peer), Some(text.clone()), text));
            assert_eq!(rest_of(&mut client), b"");
        }
        eventually("all are counted", || server.failed() == 100);
        server.stop();
        let report = block_on(server);
        assert_eq!(
            (report.accepted(), report.failed(), report.completed()),
            (100, 100, 0)
        );
        assert!(report.to_string().contains("100 failed"), "{report}");
        let mut seen = std::mem::take(&mut *seen.lock().unwrap());
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
        assert!(
            workers.drain(LONG).wait().is_clean(),
            "errors are not panics"
        );
    });
}

#[test]
fn every_start_has_its_end_and_hooks_that_panic_break_nothing() {
    within(|| {
        let (workers, panics) = group_that_reports(2);
        let events = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&events);
        let starts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&starts);
        let server = serve_on(&workers)
            .on_connection(move |event| {
                assert!(event.event_loop().in_event_loop());
                log.lock()
                    .unwrap()
                    .push((event.peer(), event.end().map(|(how, _)| how)));
                if event.end().is_none() && counted.fetch_add(1, Ordering::SeqCst) == 3 {
                    panic!("a hook that panics");
                }
            })
            .on_error(|_| panic!("another one"))
            .serve(|mut stream, _| async move {
                let mut kind = [0];
                stream.read_exact(&mut kind).await?;
                match kind[0] {
                    b'p' => panic!("a handler that panics"),
                    b'e' => Err(io::Error::other("an error")),
                    _ => Ok(()),
                }
            })
            .unwrap();
        let mut expected = Vec::new();
        for (kind, end) in [
            (b'c', ConnectionEnd::Completed),
            (b'e', ConnectionEnd::Failed),
            (b'p', ConnectionEnd::Aborted),
            (b'c', ConnectionEnd::Completed),
        ] {
            let mut client = connect(&server);
            let peer = client.local_addr().ok();
            client.write_all(&[kind]).unwrap();
            rest_of(&mut client);
            expected.extend([(peer, None), (peer, Some(end))]);
            eventually("its end is told", || {
                events.lock().unwrap().len() == expected.len()
            });
            eventually("it has ended", || server.connections() == 0);
        }
        assert_eq!(*events.lock().unwrap(), expected);
        server.stop();
        let report = block_on(server);
        let ends = (report.completed(), report.failed(), report.aborted());
        assert_eq!(ends, (2, 1, 1));
        let expected = [PanicSite::Server, PanicSite::Task, PanicSite::Server];
        assert_eq!(*panics.lock().unwrap(), expected);
        workers.drain(LONG).wait();
    });
}

#[test]
fn handlers_may_return_nothing_a_result_or_never() {
    within(|| {
        let workers = group(1);
        serve_on(&workers).serve(|_, _| async {}).unwrap().stop();
        serve_on(&workers)
            .serve(|_, _| async { Err::<(), _>("text") })
            .unwrap()
            .stop();
        let boxed =
            |_, _| async { Err::<(), Box<dyn std::error::Error + Send + Sync>>("x".into()) };
        serve_on(&workers).serve(boxed).unwrap().stop();
        let server = serve_on(&workers).serve(|mut stream: TcpStream, _| async move {
            loop {
                let _ = stream.write_all(b".").await;
                sleep(HOUR).await;
            }
        });
        server.unwrap().stop();
    });
}

#[test]
fn the_timers_of_limits_are_not_what_a_handler_waits_for() {
    within(|| {
        for waits_for in [None, Some(WaitsFor::Timer), Some(WaitsFor::Read)] {
            let group = group(1);
            let server = serve_on(&group)
                .idle_timeout(HOUR)
                .first_byte_timeout(HOUR)
                .end_reads_on_shutdown(false)
                .serve(move |mut stream, _| async move {
                    match waits_for {
                        None => drop(loopgroup::spawn_local(pending::<()>()).await),
                        Some(WaitsFor::Timer) => sleep(HOUR).await,
                        _ => drop(stream.read(&mut [0]).await),
                    }
                })
                .unwrap();
            let _client = connect(&server);
            eventually("it is served", || server.connections() == 1);
            flush(&group.loops()[0]);
            let report = group.drain(ms(20)).wait();
            let waits: Vec<_> = report.left().iter().map(|left| left.waits_for()).collect();
            assert!(!waits.is_empty(), "it is named");
            assert!(waits.iter().all(|what| *what == waits_for), "{report}");
        }
    });
}

#[test]
fn the_error_of_a_result_in_a_result_counts_and_its_numbers_are_ignored() {
    within(|| {
        let workers = group(1);
        let (errors, seen) = mpsc::channel();
        let errors = Mutex::new(errors);
        let next = AtomicUsize::new(0);
        let server = serve_on(&workers)
            .on_error(move |error| errors.lock().unwrap().send(error.to_string()).unwrap())
            .serve(move |_, _| {
                let number = next.fetch_add(1, Ordering::SeqCst);
                async move {
                    match number {
                        0 => Ok(Ok(7_u64)), // as of a timeout around a copy
                        1 => Ok(Err(io::Error::other("inside"))),
                        _ => Err("outside"),
                    }
                }
            })
            .unwrap();
        for served in 1..=3 {
            drop(connect(&server));
            eventually("it is served", || {
                server.accepted() == served && server.connections() == 0
            });
        }
        assert_eq!(
            (seen.recv().unwrap(), seen.recv().unwrap()),
            ("inside".into(), "outside".into())
        );
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.failed()), (1, 2));
    });
}
