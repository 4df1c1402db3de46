//! What the guide promises on its pages about sockets, cancel safety, shutdown and running, where no other
//! file asserts it. All of these promises, each with its tests, are listed in docs/RELIABILITY.md.

use std::cell::Cell;
use std::future::pending;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, lazy, select};
use futures::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use loopgroup::io::Interest;
use loopgroup::net::{
    Server, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use loopgroup::testing::{TestGroup, TestLoop};
use loopgroup::time::{interval, sleep, timeout};
use loopgroup::{EndCause, EventLoopGroup, RejectReason, block_on, blocking, signal};

use crate::util::{
    Door, DropCount, Log, Probe, TempPath, Waiting, alone, entries, eventually, ms, on_a_loop,
    poll_once, restless, secs, stall, thread_of, within,
};

/// Never reached: a test that waits for it has failed.
const LONG: Duration = Duration::from_secs(300);
const ZERO: Duration = Duration::ZERO;
const NANO: Duration = Duration::from_nanos(1);

/// Sends this thread SIGINT, which has been handled when this returns.
fn raise() {
    // SAFETY: it takes a number, and checks it.
    assert_eq!(unsafe { libc::raise(libc::SIGINT) }, 0);
}

// Sockets.

#[test]
fn an_accepted_stream_belongs_to_the_loop_that_first_waits_for_it() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let accepted = group.spawn_on(0, async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let client = TcpStream::connect(listener.local_addr()?).await?;
            let (server, _) = listener.accept().await?;
            io::Result::Ok((client, server))
        });
        let (_client, server) = block_on(accepted).unwrap().unwrap();
        assert_eq!(server.event_loop(), None);
        let waited = group.spawn_on(1, async move {
            server.writable().await?;
            io::Result::Ok(server.event_loop().map(|ev| ev.index()))
        });
        assert_eq!(block_on(waited).unwrap().unwrap(), Some(1));
    });
}

#[test]
fn unix_sockets_lend_their_descriptors_too() {
    on_a_loop(|| async {
        fn number(socket: &impl AsFd) -> i32 {
            socket.as_fd().as_raw_fd()
        }
        let path = TempPath::new("lend");
        let listener = UnixListener::bind(&path.0)?;
        let (stream, _other) = UnixStream::pair()?;
        let datagrams = UnixDatagram::unbound()?;
        let numbers = [number(&listener), number(&stream), number(&datagrams)];
        assert!(numbers.iter().all(|&number| number > 2), "{numbers:?}");
        Ok(())
    });
}

#[test]
fn a_stream_that_goes_to_the_standard_library_stays_non_blocking() {
    within(|| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = ours.into_std().read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    });
}

#[test]
fn readiness_crosses_to_the_loop_of_the_task_that_waits() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let ours = UnixStream::from_std(ours).unwrap();
        let registered = group.spawn_on(0, async move {
            assert!(futures::poll!(pin!(ours.readable())).is_pending());
            ours
        });
        let mut ours = block_on(registered).unwrap();
        assert_eq!(ours.event_loop().as_ref(), Some(&group.loops()[0]));
        let log = Log::new();
        let reading = group.spawn_on(
            1,
            Probe::new(&log, async move { ours.read(&mut [0; 8]).await }),
        );
        eventually("it is polled", || log.polls() == 1);
        thread_of(&group.loops()[1]); // and that poll is over
        theirs.write_all(b"hello").unwrap();
        assert_eq!(block_on(reading).unwrap().unwrap(), 5);
        // What a turn has counted is told at its end.
        for ev in [0, 0, 1, 1].map(|index| &group.loops()[index]) {
            thread_of(ev);
        }
        assert!(group.metrics().wakes(Some(0), 1) >= 1);
    });
}

#[test]
fn of_two_readers_of_a_stream_only_the_last_is_woken() {
    on_a_loop(|| async {
        let (ours, theirs) = UnixStream::pair()?;
        let read = || {
            let mut half = &ours;
            Waiting::new(async move { half.read(&mut [0; 1]).await })
        };
        let (first, mut last) = (read(), read());
        (&theirs).write_all(b"x").await?;
        last.woken().await;
        assert_eq!((first.wakes(), last.wakes()), (0, 1));
        assert!(last.poll().is_ready());
        Ok(())
    });
}

#[test]
fn a_woken_receiver_that_is_kept_aside_keeps_its_datagram_until_another_arrives() {
    on_a_loop(|| async {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
        client.connect(socket.local_addr()?)?;
        let receive = || {
            let socket = &socket;
            Waiting::new(async move {
                let mut buf = [0; 1];
                socket.recv(&mut buf).await.map(|_| buf[0])
            })
        };
        let (kept, mut next) = (receive(), receive());
        client.send(b"a")?;
        kept.woken().await;
        // Many turns in which nothing else arrives.
        for _ in 0..100 {
            loopgroup::yield_now().await;
        }
        assert_eq!((kept.wakes(), next.wakes()), (1, 0));
        client.send(b"b")?;
        next.woken().await;
        assert!(matches!(next.poll(), Poll::Ready(Ok(b'a'))));
        Ok(())
    });
}

#[test]
fn a_writer_that_waits_in_a_unix_stream_is_told_when_its_peer_reads_or_closes() {
    on_a_loop(|| async {
        let block = [7; 1 << 16];
        for closes in [false, true] {
            let (ours, theirs) = UnixStream::pair()?;
            let fill = || ours.try_io(Interest::WRITABLE, |mut stream| stream.write(&block));
            while fill().is_ok() {}
            let mut half = &ours;
            let mut writer = Waiting::new(async move { half.write(&block).await });
            if closes {
                drop(theirs);
                writer.woken().await;
                assert!(matches!(writer.poll(), Poll::Ready(Err(_))));
            } else {
                let mut buf = [0; 1 << 16];
                let mut take =
                    || theirs.try_io(Interest::READABLE, |mut stream| stream.read(&mut buf));
                while take().is_ok() {}
                writer.woken().await;
                assert!(matches!(writer.poll(), Poll::Ready(Ok(_))));
            }
        }
        Ok(())
    });
}

// Cancel safety.

#[test]
fn an_accept_that_is_given_up_after_its_wake_loses_no_connection() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let _client = {
            let accept = Waiting::new(listener.accept());
            let client = std::net::TcpStream::connect(address)?;
            accept.woken().await;
            client
        };
        let _client = {
            let mut incoming = listener.incoming();
            let first = incoming.next().await.unwrap()?;
            assert_eq!(first.local_addr()?, address);
            let next = Waiting::new(incoming.next());
            let client = std::net::TcpStream::connect(address)?;
            next.woken().await;
            client
        };
        listener.accept().await?;
        let path = TempPath::new("given-up");
        let listener = UnixListener::bind(&path.0)?;
        let accept = Waiting::new(listener.accept());
        let _client = std::os::unix::net::UnixStream::connect(&path.0)?;
        accept.woken().await;
        drop(accept);
        listener.accept().await?;
        Ok(())
    });
}

#[test]
fn a_bind_or_connect_that_is_given_up_leaves_no_socket_behind() {
    alone(
        "a_bind_or_connect_that_is_given_up_leaves_no_socket_behind",
        || {
            let group = EventLoopGroup::new(1).unwrap();
            let before = entries("/proc/self/fd");
            group.block_on(async {
                for _ in 0..20 {
                    // Each is polled once, in its look-up as a rule, and given up; done or not.
                    let _ = futures::poll!(pin!(TcpListener::bind("localhost:0")));
                    let _ = futures::poll!(pin!(UdpSocket::bind("localhost:0")));
                    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                    let _ = futures::poll!(pin!(udp.connect("localhost:1")));
                    // The socket is as good as before.
                    udp.connect("127.0.0.1:2").await.unwrap();
                    assert_eq!(udp.peer_addr().unwrap().port(), 2);
                }
            });
            eventually("the look-ups are over", || {
                entries("/proc/self/fd") == before
            });
        },
    );
}

#[test]
fn a_unix_connect_that_is_given_up_leaves_no_connection() {
    on_a_loop(|| async {
        let path = TempPath::new("given-up-connect");
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        socket.bind(&socket2::SockAddr::unix(&path.0)?)?;
        socket.listen(0)?;
        socket.set_nonblocking(true)?;
        let _first = std::os::unix::net::UnixStream::connect(&path.0)?;
        drop(Waiting::new(UnixStream::connect(path.0.clone())));
        socket.accept()?;
        assert!(socket.accept().is_err(), "the second gave up");
        Ok(())
    });
}

#[test]
fn a_datagram_whose_sending_is_given_up_is_not_sent() {
    on_a_loop(|| async {
        let (ours, theirs) = StdUnixDatagram::pair()?;
        theirs.set_nonblocking(true)?;
        let ours = UnixDatagram::from_std(ours)?;
        let fill = || ours.try_io(Interest::WRITABLE, |socket| socket.send(b"full"));
        while fill().is_ok() {}
        drop(Waiting::new(ours.send(b"given up")));
        let mut buf = [0; 16];
        while let Ok(len) = theirs.recv(&mut buf) {
            assert_eq!(&buf[..len], b"full");
        }
        // To a path, where there is no telling of room.
        let path = TempPath::new("given-up-datagram");
        let receiver = StdUnixDatagram::bind(&path.0)?;
        receiver.set_nonblocking(true)?;
        let other = StdUnixDatagram::unbound()?;
        other.set_nonblocking(true)?;
        while other.send_to(b"full", &path.0).is_ok() {}
        let sender = UnixDatagram::unbound()?;
        drop(Waiting::new(sender.send_to(b"given up", &path.0)));
        while let Ok(len) = receiver.recv(&mut buf) {
            assert_eq!(&buf[..len], b"full");
        }
        Ok(())
    });
}

#[test]
fn a_migration_is_done_by_its_first_poll() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        let target = &group.loops()[1];
        assert!(poll_once(&mut pin!(ours.migrate_to(target))).is_ready());
        assert_eq!(ours.event_loop().as_ref(), Some(target));
    });
}

#[test]
fn a_tick_that_is_given_up_is_not_lost_and_a_sleep_goes_on_by_reference() {
    let mut test = TestLoop::new();
    let start = test.now();
    test.block_on(async {
        let mut ticks = interval(ms(10));
        ticks.tick().await;
        for _ in 0..2 {
            assert!(timeout(ms(4), ticks.tick()).await.is_err());
        }
        assert_eq!(ticks.tick().await, start + ms(10));
        assert!(timeout(ms(4), ticks.next()).await.is_err());
        assert_eq!(ticks.next().await, Some(start + ms(20)));
        let mut wait = sleep(ms(10));
        assert!(timeout(ms(6), &mut wait).await.is_err());
        assert!(timeout(ms(6), &mut wait).await.is_ok());
        for _ in 0..3 {
            assert!(timeout(ms(6), sleep(ms(10))).await.is_err());
        }
    });
}

#[test]
fn the_future_of_a_timeout_is_dropped_with_it() {
    TestLoop::new().block_on(async {
        let drops = DropCount::new();
        let guard = drops.guard();
        let late = timeout(ms(1), async move {
            let _guard = guard;
            pending::<()>().await;
        });
        assert!(late.await.is_err());
        assert_eq!(drops.get(), 1);
    });
}

#[test]
fn a_wait_for_the_shutdown_may_be_given_up_and_taken_up_again() {
    let mut test = TestLoop::new();
    let task = test.spawn(async {
        for _ in 0..3 {
            assert!(futures::poll!(pin!(loopgroup::shutdown_requested())).is_pending());
            assert!(futures::poll!(pin!(loopgroup::yield_now())).is_pending());
        }
        loopgroup::shutdown_requested().await;
    });
    test.run_until_stalled();
    assert!(!task.is_finished());
    drop(test.drain(secs(60)));
    test.run_until_stalled();
    block_on(task).unwrap();
}

#[test]
fn a_signal_between_two_new_listeners_is_missed() {
    alone("a_signal_between_two_new_listeners_is_missed", || {
        let first = signal::ctrl_c();
        raise();
        block_on(first).unwrap();
        raise();
        let mut second = signal::ctrl_c();
        assert!(poll_once(&mut second).is_pending());
        raise();
        block_on(second).unwrap();
    });
}

#[test]
fn what_is_read_stays_in_the_buffer_or_in_the_reader() {
    on_a_loop(|| async {
        let (ours, mut theirs) = UnixStream::pair()?;
        let mut reader = BufReader::new(ours);
        // A line that comes in two parts; the first call for it is given up.
        theirs.write_all(b"one").await?;
        let mut line = Vec::new();
        assert!(futures::poll!(pin!(reader.read_until(b'\n', &mut line))).is_pending());
        theirs.write_all(b" two\n").await?;
        reader.read_until(b'\n', &mut line).await?;
        assert_eq!(line, b"one two\n");
        // What was not consumed is there again.
        theirs.write_all(b"three").await?;
        assert_eq!(reader.fill_buf().await?, b"three");
        assert_eq!(reader.fill_buf().await?, b"three");
        let mut lines = reader.lines();
        assert!(futures::poll!(pin!(lines.next())).is_pending());
        theirs.write_all(b" four\nfive").await?;
        assert_eq!(lines.next().await.unwrap()?, "three four");

        let (mut ours, mut theirs) = UnixStream::pair()?;
        theirs.write_all(b"six").await?;
        let mut all = Vec::new();
        assert!(futures::poll!(pin!(ours.read_to_end(&mut all))).is_pending());
        // Nor does a read that waits take anything.
        assert!(futures::poll!(pin!(ours.read(&mut [0; 8]))).is_pending());
        theirs.write_all(b" seven").await?;
        drop(theirs);
        ours.read_to_end(&mut all).await?;
        assert_eq!(all, b"six seven");
        Ok(())
    });
}

#[test]
fn code_between_two_awaits_is_never_cut() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (entered, go) = (Door::new(), Door::new());
        let (inside, until) = (entered.clone(), go.clone());
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&steps);
        let task = group.spawn(async move {
            inside.open();
            until.pass(); // aborted here
            counted.fetch_add(1, Ordering::SeqCst);
            loopgroup::yield_now().await;
            counted.fetch_add(1, Ordering::SeqCst);
        });
        entered.pass();
        task.abort();
        go.open();
        let report = group.drain(LONG).wait();
        assert_eq!(steps.load(Ordering::SeqCst), 1);
        assert_eq!((report.completed(), report.cancelled()), (0, 1));
    });
}

#[test]
fn a_blocking_job_that_has_begun_runs_to_its_end_dropped_or_aborted() {
    within(|| {
        for aborted in [false, true] {
            let (entered, go) = (Door::new(), Door::new());
            let (inside, until) = (entered.clone(), go.clone());
            let (tell, told) = mpsc::channel();
            let job = blocking::unblock(move || {
                inside.open();
                until.pass();
                tell.send(()).unwrap();
            });
            entered.pass();
            if aborted {
                job.abort();
            } else {
                drop(job);
            }
            go.open();
            told.recv().unwrap();
        }
    });
}

#[test]
fn dropping_a_loop_handle_ends_nothing() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next().clone();
        assert_eq!(block_on(ev.spawn(async { 1 })).unwrap(), 1);
        drop(ev);
        assert_eq!(block_on(group.spawn(async { 2 })).unwrap(), 2);
        assert!(!group.is_shutting_down());
    });
}

// Shutdown.

fn cause(test: &TestLoop) -> Option<EndCause> {
    test.report().map(|report| report.loops()[0].cause())
}

#[test]
fn the_default_terms_are_two_seconds_of_quiet_and_a_timeout_of_fifteen() {
    let mut idle = TestLoop::new();
    drop(idle.shutdown_gracefully());
    idle.advance(secs(2) - NANO);
    assert_eq!(cause(&idle), None);
    idle.advance(NANO);
    assert_eq!(cause(&idle), Some(EndCause::Quiet));
    // A drop of the last group handle has the same timeout, and no quiet period.
    for dropped in [false, true] {
        let mut busy = TestLoop::new();
        drop(busy.spawn(restless()));
        if dropped {
            busy.let_go();
        } else {
            drop(busy.shutdown_gracefully());
        }
        busy.advance(secs(15) - NANO);
        assert_eq!(cause(&busy), None);
        busy.advance(NANO);
        assert_eq!(cause(&busy), Some(EndCause::Timeout));
    }
}

#[test]
fn a_quiet_loop_ends_and_refuses_what_a_busy_sibling_submits() {
    let mut test = TestGroup::seeded(1, 2);
    drop(test.group().spawn_on(1, async {}));
    let group = test.group().clone();
    let busy = test.group().spawn_on(0, async move {
        for _ in 0..5 {
            sleep(secs(1)).await;
        }
        group.spawn_on(1, async {}).await
    });
    test.run_until_stalled();
    drop(
        test.group()
            .shutdown_gracefully_with(secs(2), secs(60))
            .unwrap(),
    );
    test.advance(secs(10));
    let refused = block_on(busy).unwrap().unwrap_err();
    assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));
    assert!(test.report().is_some());
}

#[test]
fn a_loop_that_never_ran_refuses_what_is_placed_there_unless_it_was_started() {
    within(|| {
        for started in [false, true] {
            let group = EventLoopGroup::new(2).unwrap();
            if started {
                group.start().unwrap();
            }
            let door = Door::new();
            drop(group.spawn_on(0, door.opened()));
            eventually("it waits", || door.waiting() == 1);
            let end = group.drain(LONG);
            assert_eq!(
                block_on(group.spawn_on(1, async {})).is_ok(),
                started,
                "by index"
            );
            let by_key = (0..64).all(|key| block_on(group.spawn_keyed(&key, async {})).is_ok());
            assert_eq!(by_key, started);
            block_on(group.spawn(async {})).unwrap();
            if !started {
                assert_eq!(group.next().index(), 0);
            }
            door.open();
            end.wait();
        }
    });
}

#[test]
fn a_task_that_never_began_is_not_begun_by_shutdown_now() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let release = stall(group.next());
        let log = Log::new();
        let task = group.spawn(Probe::new(&log, async {}));
        let end = group.shutdown_now();
        release.open();
        assert_eq!(end.wait().cancelled(), 1);
        assert!(block_on(task).unwrap_err().is_cancelled());
        assert_eq!((log.polls(), log.drops()), (0, 1));
    });
}

#[test]
fn a_handler_that_waits_is_cancelled_at_the_end_of_its_loop() {
    within(|| {
        let workers = EventLoopGroup::new(1).unwrap();
        let drops = DropCount::new();
        let kept = drops.clone();
        let door = Door::new();
        let entered = door.clone();
        let server = Server::new("127.0.0.1:0").unwrap().workers(&workers);
        let server = server
            .serve(move |_stream, _| {
                let guard = kept.guard();
                entered.open();
                async move {
                    let _guard = guard;
                    pending::<()>().await;
                }
            })
            .unwrap();
        let _client = std::net::TcpStream::connect(server.local_addr()).unwrap();
        door.pass();
        let report = workers.shutdown_gracefully_with(ZERO, LONG).unwrap().wait();
        assert_eq!((drops.get(), report.cancelled()), (1, 1), "{report}");
        block_on(server);
    });
}

#[test]
fn what_a_hook_submits_after_the_end_was_decided_is_refused() {
    within(|| {
        for now in [false, true] {
            let group = EventLoopGroup::new(1).unwrap();
            let ev = group.next().clone();
            let (tell, told) = mpsc::channel();
            let inside = ev.clone();
            ev.add_shutdown_hook(move || {
                let refused = inside.execute(|| ()).map_err(|rejected| rejected.reason());
                tell.send(refused).unwrap();
            })
            .unwrap();
            // The queue never runs empty, so the hook has to wait for the end.
            drop(ev.spawn(restless()));
            let end = if now {
                group.shutdown_now()
            } else {
                group.drain(ms(20))
            };
            assert_eq!(told.recv().unwrap(), Err(RejectReason::ShutDown));
            assert_eq!(end.wait().hooks_run(), 1);
        }
    });
}

#[test]
fn what_a_task_submits_in_its_last_poll_is_refused() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        let (tell, told) = mpsc::channel();
        drop(group.spawn(async move {
            let failed = ours.read(&mut [0; 1]).await.is_err();
            let spawned = loopgroup::try_spawn_local(async {}).map(drop);
            tell.send((failed, spawned.map_err(|rejected| rejected.reason())))
                .unwrap();
        }));
        eventually("it waits", || group.next().registered_channels() == 1);
        let end = group.shutdown_gracefully_with(ZERO, LONG).unwrap();
        assert_eq!(told.recv().unwrap(), (true, Err(RejectReason::ShutDown)));
        assert_eq!(end.wait().rejected(), 1);
    });
}

#[test]
fn a_second_signal_stops_a_drain_at_once() {
    alone("a_second_signal_stops_a_drain_at_once", || {
        let group = EventLoopGroup::new(2).unwrap();
        drop(group.spawn(pending::<()>()));
        let mut asked = signal::shutdown();
        raise();
        group.block_on(&mut asked).unwrap();
        let end = group.drain(LONG);
        raise(); // kept, although nobody awaits it yet
        let second = group.block_on(select(end.clone(), asked));
        assert!(matches!(second, Either::Right((Ok(_), _))));
        drop(group.shutdown_now());
        let report = end.wait();
        assert!(
            report
                .loops()
                .iter()
                .any(|one| one.cause() == EndCause::Now)
        );
        assert_eq!(report.cancelled(), 1);
    });
}

// Running it.

#[test]
fn a_group_that_is_only_waited_in_ends_with_that_line() {
    within(|| {
        let left = EventLoopGroup::new(2)
            .unwrap()
            .block_on(lazy(|_| loopgroup::spawn(pending::<()>())));
        assert!(block_on(left).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_thread_factory_runs_its_loop_inside_a_context_of_its_own() {
    thread_local!(static CONTEXT: Cell<u32> = const { Cell::new(0) });
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(|thread| {
                std::thread::spawn(move || {
                    CONTEXT.set(7);
                    thread.run();
                });
                Ok(())
            })
            .build()
            .unwrap();
        assert_eq!(block_on(group.spawn(async { CONTEXT.get() })).unwrap(), 7);
    });
}
