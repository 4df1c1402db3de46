//! An elastic group uses more loops under load and fewer without; a loop without work ends its thread, and
//! gets another one for whatever is submitted to it. The books are exact all the while.

use std::io::{self, Read, Write};
use std::net::TcpStream as Client;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream, Turn, UnixStream};
use loopgroup::time::sleep;
use loopgroup::{
    Elastic, EventLoop, EventLoopGroup, LoopState, TerminationReport, block_on, yield_now,
};

use crate::util::{
    Door, HOUR, LONG, allow_descriptors, alone_after, eventually, ms, setting, within,
};

/// How often something is repeated that has to hold in every race.
fn rounds(usual: u64) -> usize {
    (usual * setting("LOOPGROUP_ROUNDS").unwrap_or(1)) as usize
}

const PATIENCE: Duration = Duration::from_millis(5);

fn rule(min: usize, max: usize) -> Elastic {
    Elastic {
        min,
        max,
        patience: PATIENCE,
        ..Elastic::default()
    }
}

fn elastic(min: usize, max: usize) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().elastic(rule(min, max));
    builder.build().unwrap()
}

fn active(group: &EventLoopGroup) -> usize {
    group.loops().iter().filter(|ev| !ev.is_paused()).count()
}

fn is_parked(ev: &EventLoop) -> bool {
    ev.metrics().is_parked()
}

/// Has a loop that is not needed start, and waits until its thread has ended again.
fn park(ev: &EventLoop) {
    block_on(ev.submit(|| ())).unwrap();
    eventually("the loop is parked", || is_parked(ev));
}

/// Work for both loops of a group, as long as it lives.
struct Load(Arc<AtomicBool>);

impl Load {
    /// Returns when both loops are active.
    fn on(group: &EventLoopGroup) -> Load {
        let load = Load(Arc::default());
        for ev in group.loops() {
            // The first one is enough for the second loop to become active, and not for more.
            let stop = Arc::clone(&load.0);
            drop(ev.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    yield_now().await;
                }
            }));
            eventually("both loops are active", || active(group) == 2);
        }
        load
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn assert_adds_up(report: &TerminationReport) {
    for one in report.loops() {
        let ended = one.completed() + one.panicked() + one.cancelled();
        assert_eq!(one.accepted(), ended, "{report}");
    }
}

#[test]
fn only_the_fewest_loops_are_active_at_first_and_only_they_are_started() {
    within(|| {
        let group = elastic(2, 4);
        group.start().unwrap();
        let states: Vec<_> = group.loops().iter().map(EventLoop::state).collect();
        let (yes, no) = (LoopState::Started, LoopState::NotStarted);
        assert_eq!(states, [yes, yes, no, no]);
        let picked: Vec<_> = (0..4).map(|_| group.next().index()).collect();
        assert_eq!(picked, [0, 1, 0, 1]);
        let report = group.drain(LONG).wait();
        assert!(report.is_clean());
    });
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let refused = |elastic, loops: Option<usize>| {
        let builder = EventLoopGroup::builder().elastic(elastic);
        let builder = match loops {
            Some(loops) => builder.loops(loops),
            None => builder,
        };
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    assert!(refused(rule(0, 2), None).contains("min must be at least 1"));
    assert!(refused(rule(3, 2), None).contains("above max"));
    assert!(refused(rule(1, 2), Some(3)).contains("leave `loops` out"));
    let agreed = EventLoopGroup::builder().elastic(rule(1, 2)).loops(2);
    assert_eq!(agreed.build().unwrap().len(), 2);
}

#[test]
fn loops_become_active_under_load_and_are_parked_without_it() {
    within(|| {
        let group = elastic(1, 3);
        let stop = Arc::new(AtomicBool::new(false));
        // Work for as many loops as there are.
        let busy = |ev: &EventLoop| {
            let stop = Arc::clone(&stop);
            ev.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    yield_now().await;
                }
            })
        };
        let first = busy(group.next());
        eventually("so many loops are active", || active(&group) == 2);
        assert!(!group.loops()[1].is_paused());
        let second = busy(&group.loops()[1]);
        eventually("so many loops are active", || active(&group) == 3);
        stop.store(true, Ordering::Relaxed);
        block_on(first).unwrap();
        block_on(second).unwrap();
        eventually("so many loops are active", || active(&group) == 1);
        // The second loop had a thread, the third one never needed one.
        eventually("the loop is parked", || is_parked(&group.loops()[1]));
        assert_eq!(group.loops()[1].state(), LoopState::Started);
        assert_eq!(group.loops()[2].state(), LoopState::NotStarted);
        let report = group.drain(LONG).wait();
        assert!(report.is_clean(), "{report}");
        let started: Vec<_> = report.loops().iter().map(|one| one.started()).collect();
        assert_eq!(started, [true, true, false]);
        assert_adds_up(&report);
    });
}

#[test]
fn whatever_is_submitted_to_a_parked_loop_starts_its_thread_again() {
    within(|| {
        let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        struct Guard(Arc<AtomicUsize>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let hook = {
            let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
            move |ev: &EventLoop| {
                (ev.index() == 1).then(|| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    Guard(Arc::clone(&ended))
                })
            }
        };
        let builder = EventLoopGroup::builder().elastic(rule(1, 2));
        let group = builder.on_thread_start(hook).build().unwrap();
        let ev = group.loops()[1].clone();
        let polls = || ev.metrics().polls();
        type Submit = fn(&EventLoopGroup, &EventLoop);
        let ways: [Submit; 7] = [
            |group, _| assert_eq!(block_on(group.spawn_on(1, async { 1 })).unwrap(), 1),
            |_, ev| block_on(ev.submit(|| ())).unwrap(),
            |_, ev| block_on(ev.schedule(ms(1), || ())).unwrap(),
            |_, ev| block_on(ev.spawn_with(|| async {})).unwrap(),
            |_, ev| {
                // By a task of a sibling, which must not wait.
                let ev = ev.clone();
                let sibling = ev.parent().unwrap().spawn_on(0, async move {
                    let inner = ev.spawn(async { EventLoop::current().unwrap().index() });
                    inner.await.unwrap()
                });
                assert_eq!(block_on(sibling).unwrap(), 1);
            },
            |_, ev| {
                let value = ev.bind(|| std::rc::Rc::new(5));
                assert_eq!(block_on(value.with(|value| **value)).unwrap(), 5);
            },
            |_, ev| {
                let (tx, rx) = futures::channel::oneshot::channel();
                ev.execute(move || tx.send(()).unwrap()).unwrap();
                block_on(rx).unwrap();
            },
        ];
        let starts = || begun.load(Ordering::SeqCst);
        for submit in ways {
            let (before, started) = (polls(), starts());
            submit(&group, &ev);
            eventually("the loop is parked", || is_parked(&ev));
            assert!(polls() > before, "the figures of a parked loop go on");
            // Usually one start. On busy cores the loops may look busy, and become active and idle again:
            // a thread that is just leaving then becomes the loop once more.
            assert!(starts() > started, "a thread for each");
            eventually("the guard is dropped", || {
                is_parked(&ev) && ended.load(Ordering::SeqCst) == starts()
            });
            assert_eq!(ev.state(), LoopState::Started);
        }
        let started = starts();
        let end = group.shutdown_gracefully_with(Duration::ZERO, LONG);
        let report = end.unwrap().wait();
        assert!(report.is_clean(), "{report}");
        assert_eq!(starts(), started, "no thread is started to end a loop");
        assert_adds_up(&report);
    });
}

#[test]
fn a_loop_with_a_timer_a_socket_or_a_value_keeps_its_thread() {
    within(|| {
        let group = elastic(1, 2);
        let ev = &group.loops()[1];
        let keeps = |what: &str| {
            // Longer than the patience, on the loop that would look.
            let until = Instant::now() + 4 * PATIENCE;
            while Instant::now() < until {
                assert!(!is_parked(ev), "{what}");
                thread::yield_now();
            }
        };
        let timer = ev.spawn(sleep(LONG));
        keeps("a timer");
        timer.abort();
        assert!(block_on(timer).unwrap_err().is_cancelled());
        eventually("the loop is parked", || is_parked(ev));
        let value = ev.bind(|| std::cell::Cell::new(0));
        block_on(value.with(|_| ())).unwrap();
        keeps("a value");
        drop(value);
        eventually("the loop is parked", || is_parked(ev));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = ev.spawn(async move {
            let stream = TcpStream::connect(address).await.unwrap();
            (&stream).read(&mut [0; 8]).await.unwrap()
        });
        let (mut peer, _) = listener.accept().unwrap();
        keeps("a socket");
        peer.write_all(b"bye").unwrap();
        assert_eq!(block_on(waiting).unwrap(), 3);
        eventually("the loop is parked", || is_parked(ev));
    });
}

#[test]
fn a_socket_that_is_moved_to_a_parked_loop_is_watched_there() {
    within(|| {
        let group = elastic(1, 2);
        let parked = group.loops()[1].clone();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..rounds(20) {
            park(&parked);
            let to = parked.clone();
            let reading = group.spawn_on(0, async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.migrate_to(&to).await.unwrap();
                // Read by a task of another loop: the parked one has to say when there is something.
                (&stream).read(&mut [0; 8]).await.unwrap()
            });
            let (mut peer, _) = listener.accept().unwrap();
            eventually("the socket is registered", || {
                parked.registered_channels() == 1
            });
            peer.write_all(b"hello").unwrap();
            assert_eq!(block_on(reading).unwrap(), 5);
        }
    });
}

#[test]
fn a_socket_whose_loop_has_ended_is_watched_by_a_parked_one() {
    within(|| {
        let group = elastic(1, 2);
        let (home, parked) = (&group.loops()[0], &group.loops()[1]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = group.block_on(TcpStream::connect(address)).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let mut read_at = |ev: &EventLoop| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    eventually("the socket is registered", || ev.registered_channels() == 1);
                    peer.write_all(b"hello").unwrap();
                });
                // By a thread that is no loop.
                let read = group.block_on(async { (&stream).read(&mut [0; 8]).await });
                assert_eq!(read.unwrap(), 5);
            });
        };
        read_at(home);
        park(parked);
        home.shutdown_now().wait();
        read_at(parked);
    });
}

#[test]
fn sockets_are_moved_to_a_loop_that_parks_all_the_while_and_every_one_is_watched() {
    within(|| {
        let elastic = Elastic {
            patience: Duration::from_nanos(1),
            ..rule(1, 2)
        };
        let group = EventLoopGroup::builder().elastic(elastic).build().unwrap();
        let parks = group.loops()[1].clone();
        let rounds = rounds(300);
        // Begins to park again and again: whenever the last socket has left, and after each of these.
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, submits) = (Arc::clone(&stop), parks.clone());
        let submitter = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                block_on(submits.submit(|| ())).unwrap();
                thread::sleep(Duration::from_micros(50)); // a loop parks after a time without work
            }
        });
        let to = parks.clone();
        let mover = group.spawn_on(0, async move {
            let mut answers = 0;
            for round in 0..rounds {
                let (mut peer, ours) = std::os::unix::net::UnixStream::pair().unwrap();
                let mut ours = UnixStream::from_std(ours).unwrap();
                ours.migrate_to(&to).await.unwrap();
                if round % 2 == 0 {
                    // Nothing else will ever wake the loop that parks.
                    yield_now().await;
                }
                peer.write_all(b"?").unwrap();
                let mut byte = [0];
                (&ours).read_exact(&mut byte).await.unwrap();
                answers += usize::from(byte == *b"?");
            }
            answers
        });
        assert_eq!(block_on(mover).unwrap(), rounds);
        stop.store(true, Ordering::Relaxed);
        submitter.join().unwrap();
        let report = group.drain(LONG).wait();
        assert!(report.is_clean(), "{report}");
        assert_adds_up(&report);
    });
}

#[test]
fn submissions_race_with_parking_and_none_is_lost() {
    within(|| {
        let elastic = Elastic {
            patience: Duration::from_nanos(1),
            ..rule(1, 3)
        };
        let group = EventLoopGroup::builder().elastic(elastic).build().unwrap();
        let (ran, threads, each) = (Arc::new(AtomicUsize::new(0)), 3, rounds(300));
        let start = Barrier::new(threads);
        thread::scope(|scope| {
            for thread in 0..threads {
                let (group, ran, start) = (&group, &ran, &start);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..each {
                        let ran = Arc::clone(ran);
                        let handle = group.spawn_on(1 + (thread + round) % 2, async move {
                            ran.fetch_add(1, Ordering::SeqCst);
                        });
                        // Most threads find the loop parked, some while it parks.
                        if round % 3 != 0 {
                            block_on(handle).unwrap();
                        }
                    }
                });
            }
        });
        let report = group.drain(LONG).wait();
        assert!(report.is_clean(), "{report}");
        assert_eq!(ran.load(Ordering::SeqCst), threads * each);
        assert_eq!(report.completed(), (threads * each) as u64);
        assert_adds_up(&report);
    });
}

#[test]
fn ends_race_with_parking_and_with_new_threads_and_the_books_are_exact() {
    within(|| {
        for round in 0..rounds(60) {
            let elastic = Elastic {
                patience: Duration::from_nanos(1),
                ..rule(1, 2)
            };
            let group = EventLoopGroup::builder().elastic(elastic).build().unwrap();
            let ev = group.loops()[1].clone();
            block_on(ev.submit(|| ())).unwrap();
            let start = Barrier::new(2);
            let report = thread::scope(|scope| {
                let submitter = scope.spawn(|| {
                    start.wait();
                    (0..20).map(|_| ev.spawn(async {})).collect::<Vec<_>>()
                });
                start.wait();
                let end = match round % 3 {
                    0 => group.shutdown_now(),
                    1 => group.drain(LONG),
                    _ => group
                        .shutdown_gracefully_with(Duration::ZERO, LONG)
                        .unwrap(),
                };
                let handles = submitter.join().unwrap();
                let done = handles.into_iter().filter(|_| true).map(block_on);
                let done = done.filter(Result::is_ok).count() as u64;
                let report = end.wait();
                assert!(report.completed() >= done);
                report
            });
            assert_adds_up(&report);
            let one = &report.loops()[1];
            assert!(one.started());
            assert_eq!(one.accepted() + one.rejected(), 21, "{report}");
        }
    });
}

#[test]
fn hooks_of_a_parked_loop_run_at_the_end() {
    within(|| {
        let group = elastic(1, 2);
        let ev = &group.loops()[1];
        park(ev);
        let ran = Arc::new(AtomicUsize::new(0));
        let hook = Arc::clone(&ran);
        ev.add_shutdown_hook(move || {
            hook.fetch_add(1 + EventLoop::current().unwrap().index(), Ordering::SeqCst);
        })
        .unwrap();
        let report = group.drain(LONG).wait();
        assert!(report.is_clean(), "{report}");
        assert_eq!((ran.load(Ordering::SeqCst), report.hooks_run()), (2, 1));
    });
}

#[test]
fn a_thread_that_cannot_be_started_again_cancels_what_was_accepted_and_the_next_one_is_tried() {
    within(|| {
        let fails = Arc::new(AtomicBool::new(false));
        let factory = {
            let fails = Arc::clone(&fails);
            move |lt: loopgroup::LoopThread| {
                if fails.load(Ordering::SeqCst) {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                let builder = thread::Builder::new();
                builder.spawn(move || lt.run()).map(drop)
            }
        };
        let builder = EventLoopGroup::builder().elastic(rule(1, 2));
        let group = builder.thread_factory(factory).build().unwrap();
        let ev = &group.loops()[1];
        park(ev);
        fails.store(true, Ordering::SeqCst);
        assert!(block_on(ev.spawn(async {})).unwrap_err().is_cancelled());
        assert!(block_on(ev.submit(|| ())).unwrap_err().is_cancelled());
        assert!(is_parked(ev));
        fails.store(false, Ordering::SeqCst);
        block_on(ev.spawn(async {})).unwrap();
        let report = group.drain(LONG).wait();
        assert_adds_up(&report);
        assert_eq!(report.loops()[1].cancelled(), 2, "{report}");
    });
}

/// A group whose second loop is parked and cannot be started again: that opens the first door, and fails once
/// the second one is open.
fn not_to_be_started_again(begun: &Door, door: &Door) -> EventLoopGroup {
    let fails = Arc::new(AtomicBool::new(false));
    let (failing, begun, door) = (Arc::clone(&fails), begun.clone(), door.clone());
    let factory = move |lt: loopgroup::LoopThread| {
        if failing.load(Ordering::SeqCst) {
            begun.open();
            door.pass();
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let builder = thread::Builder::new();
        builder.spawn(move || lt.run()).map(drop)
    };
    let builder = EventLoopGroup::builder().elastic(rule(1, 2));
    let group = builder.thread_factory(factory).build().unwrap();
    park(&group.loops()[1]);
    block_on(group.spawn_on(0, async {})).unwrap();
    fails.store(true, Ordering::SeqCst);
    group
}

#[test]
fn an_end_that_is_requested_during_a_failing_restart_comes_at_once() {
    within(|| {
        for drains in [true, false] {
            let (begun, door) = (Door::new(), Door::new());
            let group = not_to_be_started_again(&begun, &door);
            let ev = group.loops()[1].clone();
            let submitter = thread::spawn(move || block_on(ev.spawn(async {})));
            begun.pass();
            let end = match drains {
                true => group.drain(HOUR),
                false => group
                    .shutdown_gracefully_with(Duration::ZERO, HOUR)
                    .unwrap(),
            };
            door.open();
            let report = end.wait();
            assert!(submitter.join().unwrap().unwrap_err().is_cancelled());
            assert_adds_up(&report);
            assert_eq!(report.loops()[1].cancelled(), 1, "{report}");
        }
    });
}

#[test]
fn a_loop_that_cannot_be_started_again_says_that_its_tasks_have_ended() {
    within(|| {
        let (begun, door) = (Door::new(), Door::new());
        let group = not_to_be_started_again(&begun, &door);
        let ev = group.loops()[1].clone();
        let starter = thread::spawn(move || block_on(ev.spawn(async {})));
        begun.pass();
        // Accepted while the loop is being started.
        let task = group.loops()[1].spawn(async {});
        let abort = task.abort_handle();
        assert!(!abort.is_finished());
        door.open();
        assert!(block_on(task).unwrap_err().is_cancelled());
        assert!(starter.join().unwrap().unwrap_err().is_cancelled());
        assert!(abort.is_finished());
    });
}

#[test]
fn tasks_of_a_draining_group_find_a_parked_loop_to_the_last() {
    within(|| {
        let group = elastic(1, 3);
        group.loops()[1..].iter().for_each(park);
        let there = group.loops()[1].clone();
        let visitor = group.spawn_on(0, async move {
            loopgroup::shutdown_requested().await;
            for _ in 0..2 {
                sleep(2 * PATIENCE).await;
                there.spawn(async {}).await.unwrap();
            }
        });
        let report = group.drain(LONG).wait();
        block_on(visitor).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.completed(), report.rejected()), (5, 0), "{report}");
    });
}

#[test]
fn a_loop_that_is_not_needed_drains_by_moving_its_connections_and_closes_none() {
    const IDLE: usize = 1_000;
    let name = "a_loop_that_is_not_needed_drains_by_moving_its_connections_and_closes_none";
    alone_after(&allow_descriptors(4 * IDLE), name, || {
        let group = elastic(1, 2);
        let answer = async |mut stream: &TcpStream, (): &mut ()| -> io::Result<Turn> {
            let mut byte = [0];
            if stream.read(&mut byte).await? == 0 {
                return Ok(Turn::Close);
            }
            stream.write_all(&byte).await?;
            Ok(Turn::Next)
        };
        let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
        let server = server.serve_turns(|_, _| (), answer).unwrap();
        // Both loops are needed while the connections come.
        let ev = &group.loops()[1];
        let load = Load::on(&group);
        let mut clients: Vec<_> = (0..IDLE)
            .map(|_| Client::connect(server.local_addr()).unwrap())
            .collect();
        let mut ask = || {
            for client in &mut clients {
                client.write_all(b"x").unwrap();
            }
            for client in &mut clients {
                client.read_exact(&mut [0]).unwrap();
            }
        };
        eventually("the connections are all on the second loop", || {
            server.move_connections(0, 1, usize::MAX);
            ev.registered_channels() == IDLE
        });
        ask();
        assert_eq!((ev.registered_channels(), ev.is_paused()), (IDLE, false));
        let moves = server.moves();
        drop(load);
        eventually("the loop is paused", || ev.is_paused());
        eventually("the loop is parked", || is_parked(ev));
        eventually("the connections have arrived", || {
            server.moves() == moves + IDLE as u64
        });
        ask();
        assert_eq!(server.connections(), IDLE);
        assert!(is_parked(ev), "nothing is served there");
        drop(clients);
        eventually("the connections are closed", || server.connections() == 0);
        server.stop();
        let report = block_on(server);
        let ends = (report.accepted(), report.completed());
        assert_eq!(ends, (IDLE as u64, IDLE as u64), "{report}");
        let report = group.drain(LONG).wait();
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn a_loop_that_a_user_has_paused_is_neither_resumed_nor_parked_by_load() {
    within(|| {
        let group = elastic(1, 2);
        let ev = &group.loops()[1];
        ev.resume();
        ev.pause();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let busy = group.spawn_on(0, async move {
            while !flag.load(Ordering::Relaxed) {
                yield_now().await;
            }
        });
        // Long enough for some steps.
        let until = Instant::now() + 10 * PATIENCE;
        while Instant::now() < until {
            assert!(ev.is_paused());
        }
        stop.store(true, Ordering::Relaxed);
        block_on(busy).unwrap();
        ev.resume();
        assert!(!ev.is_paused());
    });
}

#[test]
fn a_pause_or_resume_by_hand_is_followed_by_the_load_although_all_loops_sleep() {
    within(|| {
        let group = elastic(1, 3);
        let [first, second, third] = group.loops() else {
            panic!("three loops")
        };
        block_on(group.spawn(async {})).unwrap();
        for _ in 0..rounds(20) {
            // Two active loops are one too many: the one of the higher index is set aside.
            second.resume();
            eventually("the second loop is set aside", || second.is_paused());
            assert!(!first.is_paused());
            // The only active loop is paused: another one takes its place.
            first.pause();
            eventually("the second loop is active", || !second.is_paused());
            first.resume();
            eventually("the second loop is set aside again", || second.is_paused());
            assert!(third.is_paused());
        }
        assert!(group.drain(LONG).wait().is_clean());
    });
}
