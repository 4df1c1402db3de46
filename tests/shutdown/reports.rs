//! A report tells the truth: what was ended by force is counted and named, and nothing else is a stain.

use std::future::pending;
use std::io::{Read, Write};
use std::net::TcpStream as StdStream;
use std::time::Duration;

use futures::io::AsyncReadExt;
use futures::stream::{FuturesUnordered, StreamExt};
use loopgroup::net::{TcpListener, TcpStream, UdpSocket};
use loopgroup::time::sleep;
use loopgroup::{CloseChannels, EndCause, EventLoopGroup, WaitsFor, block_on};

use crate::util::{Door, HOUR, LONG, eventually, flush, ms, one_loop, secs, within};

/// Connects `count` clients to a listener of `group` and starts a task for each, which reads until it fails.
fn idle_readers(group: &EventLoopGroup, count: usize) -> Vec<StdStream> {
    let listener = group.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let clients = (0..count).map(|_| StdStream::connect(address).unwrap());
    let clients: Vec<_> = clients.collect();
    for _ in 0..count {
        let (mut stream, _) = group.block_on(listener.accept()).unwrap();
        let reader = async move {
            let mut buf = [0; 16];
            stream.read(&mut buf).await.unwrap_err();
        };
        drop(group.task().name("session").spawn(reader));
    }
    eventually("all wait", || {
        group
            .loops()
            .iter()
            .map(|ev| ev.live_tasks())
            .sum::<usize>()
            == count
    });
    group.loops().iter().for_each(flush);
    clients
}

#[test]
fn a_drain_that_closes_channels_under_its_tasks_is_not_clean_and_names_them() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let clients = idle_readers(&group, 4);
        let report = group.drain(ms(50)).wait();
        assert!(
            report
                .loops()
                .iter()
                .all(|one| one.cause() == EndCause::Timeout)
        );
        assert!(!report.is_clean(), "{report}");
        // They ended by themselves, in the poll that the close gave them.
        assert_eq!((report.interrupted(), report.cancelled()), (4, 0));
        let [left] = report.left() else {
            panic!("one place: {report}")
        };
        assert_eq!((left.count(), left.name()), (4, Some("session")));
        assert_eq!(left.waits_for(), Some(WaitsFor::Read));
        let line = left.location().line();
        let text = format!("4 tasks from {}:{line} (session), waiting to read", file!());
        assert_eq!(left.to_string(), text);
        assert!(report.to_string().ends_with(&text), "{report}");
        drop(clients);
    });
}

#[test]
fn channels_that_are_closed_at_once_are_a_stain_too() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(1)
            .close_channels(CloseChannels::Immediately)
            .build()
            .unwrap();
        let clients = idle_readers(&group, 3);
        let report = group.drain(LONG).wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        assert_eq!((report.interrupted(), report.channels_closed()), (3, 3));
        assert!(
            !report.is_clean() && report.left()[0].count() == 3,
            "{report}"
        );
        drop(clients);
    });
}

#[test]
fn a_heartbeat_and_an_orderly_drain_are_clean() {
    within(|| {
        let (group, ev) = one_loop();
        let beat = ev
            .schedule_at_fixed_rate(Duration::ZERO, ms(1), || {})
            .unwrap();
        let later = ev.schedule(HOUR, || ());
        block_on(ev.submit(|| ())).unwrap();
        let report = group.drain(LONG).wait();
        assert_eq!((report.cancelled(), report.unscheduled()), (2, 2));
        assert!(report.is_clean() && report.left().is_empty(), "{report}");
        assert!(block_on(later).unwrap_err().is_cancelled());
        drop(beat);
        let text = report.to_string();
        assert!(
            !text.contains('\n') && text.starts_with("terminated cleanly"),
            "{text}"
        );
        assert!(text.ends_with("1 task completed, 2 unscheduled"), "{text}");
    });
}

#[test]
fn an_end_by_force_names_what_every_task_waited_for() {
    within(|| {
        let (group, ev) = one_loop();
        let udp = group.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        drop(ev.spawn(async move {
            // Reads, fails once when its channel is closed, and then waits for something else.
            let _ = udp.recv(&mut [0; 8]).await;
            pending::<()>().await;
        }));
        drop(ev.spawn(sleep(HOUR)));
        drop(ev.spawn(pending::<()>()));
        drop(ev.spawn(async {
            // Wakers of its own: what it waits for is not known.
            let sleeps: FuturesUnordered<_> = (0..3).map(|_| sleep(HOUR)).collect();
            sleeps.collect::<Vec<_>>().await;
        }));
        flush(&ev);
        let report = group.shutdown_now().wait();
        assert_eq!((report.cancelled(), report.interrupted()), (4, 0));
        let mut waits: Vec<_> = report.left().iter().map(|left| left.waits_for()).collect();
        waits.sort();
        assert_eq!(
            waits,
            [None, None, Some(WaitsFor::Read), Some(WaitsFor::Timer)]
        );
        assert!(!report.is_clean());
    });
}

#[test]
fn a_writer_that_waits_is_named_as_one() {
    within(|| {
        let (group, ev) = one_loop();
        let listener = group.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = StdStream::connect(address).unwrap();
        let (stream, _) = group.block_on(listener.accept()).unwrap();
        drop(ev.spawn(async move {
            let data = vec![7; 1 << 20];
            let mut stream = stream;
            while futures::io::AsyncWriteExt::write_all(&mut stream, &data)
                .await
                .is_ok()
            {}
        }));
        client.read_exact(&mut [0; 1]).unwrap();
        eventually("it waits for room", || {
            let before = ev.metrics().polls();
            std::thread::yield_now();
            before == ev.metrics().polls() && before > 0
        });
        let report = group.drain(ms(200)).wait();
        assert_eq!(
            report.left()[0].waits_for(),
            Some(WaitsFor::Write),
            "{report}"
        );
        let _ = client.write(b"x");
    });
}

#[test]
fn a_channel_without_a_task_that_waits_is_no_stain() {
    within(|| {
        let (group, ev) = one_loop();
        let (keep, kept) = std::sync::mpsc::channel();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // The task waits, gives up, and ends; its stream stays registered.
        block_on(ev.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let waited = loopgroup::time::timeout(ms(1), stream.read(&mut [0; 1])).await;
            assert!(waited.is_err());
            keep.send(stream).unwrap();
        }))
        .unwrap();
        let report = group.drain(secs(5)).wait();
        assert_eq!(report.channels_closed(), 1);
        assert!(report.is_clean(), "{report}");
        drop((kept, listener));
    });
}

#[test]
fn places_are_summed_over_loops_and_the_largest_comes_first() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        for index in 0..3 {
            for _ in 0..=index {
                drop(group.spawn_on(index, pending::<()>()));
            }
        }
        drop(group.task().name("one").spawn(pending::<()>()));
        group.loops().iter().for_each(flush);
        let report = group.shutdown_now().wait();
        let counts: Vec<_> = report.left().iter().map(|left| left.count()).collect();
        assert_eq!(counts, [6, 1]);
        let of_loops: u64 = report
            .loops()
            .iter()
            .flat_map(|one| one.left())
            .map(|left| left.count())
            .sum();
        assert_eq!(of_loops, 7);
    });
}

#[test]
fn a_heartbeat_is_no_stain_however_soon_the_end_comes() {
    within(|| {
        for now in [true, false] {
            let (group, ev) = one_loop();
            drop(ev.schedule_at_fixed_rate(HOUR, HOUR, || ()).unwrap());
            flush(&ev);
            let end = if now {
                group.shutdown_now()
            } else {
                group.drain(Duration::ZERO)
            };
            let report = end.wait();
            assert_eq!(
                (report.cancelled(), report.unscheduled()),
                (1, 1),
                "{report}"
            );
            assert!(report.is_clean());
        }
    });
}

#[test]
fn a_task_is_interrupted_if_an_operation_fails_and_only_then() {
    within(|| {
        let immediately = || {
            let builder = EventLoopGroup::builder().loops(1);
            let builder = builder.close_channels(CloseChannels::Immediately);
            builder.build().unwrap()
        };
        // It waits through a combinator with wakers of its own.
        let group = immediately();
        let accepting = group.spawn(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let accepts = std::iter::once(async { listener.accept().await.map(drop) });
            let mut accepts: FuturesUnordered<_> = accepts.collect();
            accepts.next().await.unwrap().is_err()
        });
        flush(group.next());
        eventually("it is registered", || {
            group.next().registered_channels() == 1
        });
        let report = group.drain(LONG).wait();
        assert!(block_on(accepting).unwrap());
        assert!(!report.is_clean() && report.interrupted() == 1, "{report}");
        // It has given up waiting, and works on.
        let group = immediately();
        let (begun, release) = (Door::new(), Door::new());
        let working = group.spawn({
            let (begun, opened) = (begun.clone(), release.opened());
            async move {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let mut stream = TcpStream::connect(address).await.unwrap();
                let mut buf = [0; 1];
                let read = loopgroup::time::timeout(ms(1), stream.read(&mut buf));
                assert!(read.await.is_err());
                begun.open();
                opened.await;
            }
        });
        begun.pass();
        let end = group.drain(LONG);
        flush(group.next());
        release.open();
        let report = end.wait();
        block_on(working).unwrap();
        assert_eq!((report.channels_closed(), report.interrupted()), (1, 0));
        assert!(report.is_clean(), "{report}");
    });
}
