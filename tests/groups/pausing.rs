//! A paused loop gets nothing from `next`, keeps what it has, and shows that it is paused.

use std::future::pending;
use std::io::{Read, Write};
use std::net::TcpStream as Client;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{
    EventLoop, EventLoopGroup, GroupView, LeastBusy, LeastLoaded, LoopState, PreferCurrent,
    RejectReason, RoundRobin, block_on,
};

use crate::util::{Door, LONG, eventually, flush, group, ms, stall, within};

fn picks(group: &EventLoopGroup, count: usize) -> Vec<usize> {
    (0..count).map(|_| group.next().index()).collect()
}

/// A group with each kind of chooser.
fn groups(loops: usize) -> [EventLoopGroup; 5] {
    let builder = || EventLoopGroup::builder().loops(loops);
    [
        builder().chooser(RoundRobin::default()),
        builder().chooser(LeastLoaded::default()),
        builder().chooser(LeastBusy::default()),
        builder().chooser(PreferCurrent::default()),
        builder().chooser(|_: &GroupView<'_>| 1), // always the one that the tests pause
    ]
    .map(|builder| builder.build().unwrap())
}

#[test]
fn no_chooser_gets_a_paused_loop_and_every_one_gets_it_again() {
    within(|| {
        for group in groups(3) {
            let paused = &group.loops()[1];
            paused.pause();
            let picked = picks(&group, 60);
            assert!(!picked.contains(&1), "{picked:?}");
            assert!(picked.contains(&0) && picked.contains(&2), "{picked:?}");
            // Also on the loop itself.
            let inner = group.clone();
            let next = paused.submit(move || inner.next().index());
            assert_ne!(block_on(next).unwrap(), 1);
            paused.resume();
            assert!(picks(&group, 60).contains(&1));
        }
    });
}

#[test]
fn turns_are_exact_over_the_loops_that_are_not_paused() {
    within(|| {
        let group = group(4);
        group.loops()[2].pause();
        assert_eq!(picks(&group, 6), [0, 1, 3, 0, 1, 3]);
        group.loops()[0].pause();
        let picked = picks(&group, 4);
        assert!(
            picked == [1, 3, 1, 3] || picked == [3, 1, 3, 1],
            "{picked:?}"
        );
    });
}

#[test]
fn a_paused_loop_keeps_what_it_has_and_accepts_what_is_submitted_to_it() {
    within(|| {
        let group = group(2);
        let paused = &group.loops()[1];
        let door = Door::new();
        let waits = paused.spawn(door.opened());
        flush(paused);
        paused.pause();
        door.open();
        block_on(waits).unwrap();
        assert_eq!(block_on(paused.submit(|| 7)).unwrap(), 7);
        let home = async { EventLoop::current().unwrap().index() };
        assert_eq!(block_on(group.spawn_on(1, home)).unwrap(), 1);
        let local = paused.spawn_with(|| async {
            let here = async { EventLoop::current().unwrap().index() };
            loopgroup::spawn_local(here).await.unwrap()
        });
        assert_eq!(block_on(local).unwrap(), 1);
        // A task of the paused loop that spawns on its group spawns elsewhere.
        let elsewhere = paused.spawn(async {
            let here = async { EventLoop::current().unwrap().index() };
            loopgroup::spawn(here).await.unwrap()
        });
        assert_eq!(block_on(elsewhere).unwrap(), 0);
        let report = group.drain(LONG).wait();
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn a_key_keeps_its_loop_while_that_is_paused() {
    within(|| {
        let group = group(3);
        let homes: Vec<_> = (0..30_usize)
            .map(|key| group.loop_for(&key).index())
            .collect();
        group.loops().iter().for_each(EventLoop::pause);
        for (key, expected) in homes.into_iter().enumerate() {
            let home = group.spawn_keyed(&key, async { EventLoop::current().unwrap().index() });
            assert_eq!(block_on(home).unwrap(), expected);
        }
    });
}

#[test]
fn if_all_loops_are_paused_the_choice_is_as_if_none_were() {
    within(|| {
        for group in groups(3) {
            group.loops().iter().for_each(EventLoop::pause);
            let picked = picks(&group, 30);
            assert!(picked.iter().all(|index| *index < 3));
            assert!(block_on(group.spawn(async {})).is_ok());
        }
        let group = group(3);
        group.loops().iter().for_each(EventLoop::pause);
        assert_eq!(picks(&group, 6), [0, 1, 2, 0, 1, 2]);
        let single = EventLoopGroup::new(1).unwrap();
        single.next().pause();
        assert!(block_on(single.spawn(async {})).is_ok());
    });
}

#[test]
fn a_paused_loop_is_chosen_before_one_that_shuts_down() {
    within(|| {
        let group = group(3);
        let held = group.spawn_on(0, pending::<()>());
        drop(group.loops()[0].drain(LONG)); // waits for its task
        assert_eq!(group.loops()[0].state(), LoopState::ShuttingDown);
        group.loops()[2].pause();
        assert_eq!(picks(&group, 4), [1; 4]);
        group.loops()[1].pause();
        let picked = picks(&group, 20);
        assert!(
            picked.iter().all(|index| [1, 2].contains(index)),
            "{picked:?}"
        );
        drop(group.drain(LONG)); // all shut down: the first one alone is not paused
        assert_eq!(picks(&group, 4), [0; 4]);
        held.abort();
        let report = group.termination().wait();
        assert!(report.is_clean(), "{report}");
        let paused: Vec<_> = report.loops().iter().map(|one| one.paused()).collect();
        assert_eq!(paused, [false, true, true]);
    });
}

#[test]
fn a_loop_that_never_ran_or_has_ended_may_be_paused_and_resumed() {
    within(|| {
        let group = group(2);
        let ev = &group.loops()[0];
        ev.pause();
        assert_eq!(ev.state(), LoopState::NotStarted, "no thread for a pause");
        ev.shutdown_now().wait();
        assert!(ev.is_paused() && ev.termination().wait().loops()[0].paused());
        ev.resume();
        assert!(!ev.is_paused());
        ev.pause();
        assert_eq!(picks(&group, 3), [1; 3]);
        group.loops()[1].shutdown_now().wait();
        let error = block_on(group.spawn(async {})).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
        group.loops().iter().for_each(EventLoop::resume);
        assert!(block_on(group.spawn(async {})).unwrap_err().is_rejected());
    });
}

#[test]
fn a_loop_that_closes_under_a_spawn_passes_it_to_a_loop_that_is_not_paused() {
    within(|| {
        for _ in 0..200 {
            let group = EventLoopGroup::builder()
                .loops(3)
                .without_io()
                .build()
                .unwrap();
            group.loops()[1].pause();
            let barrier = Arc::new(Barrier::new(2));
            let (closing, start) = (group.loops()[0].clone(), Arc::clone(&barrier));
            let closer = thread::spawn(move || {
                start.wait();
                drop(closing.shutdown_now());
            });
            barrier.wait();
            let home = || async { EventLoop::current().unwrap().index() };
            let tasks: Vec<_> = (0..4).map(|_| group.spawn(home())).collect();
            closer.join().unwrap();
            for task in tasks {
                match block_on(task) {
                    Ok(index) => assert_ne!(index, 1),
                    Err(error) => assert!(error.is_cancelled(), "{error}"),
                }
            }
        }
    });
}

#[test]
fn pauses_and_resumes_on_many_threads_leave_the_choice_exact() {
    within(|| {
        let group = group(4);
        let stop = Arc::new(AtomicBool::new(false));
        let togglers: Vec<_> = (0..4)
            .map(|number: usize| {
                let (group, stop) = (group.clone(), Arc::clone(&stop));
                thread::spawn(move || {
                    // Two threads for each of the loops 1 and 2.
                    let ev = &group.loops()[1 + number % 2];
                    while !stop.load(Ordering::Relaxed) {
                        ev.pause();
                        ev.resume();
                    }
                })
            })
            .collect();
        group.loops()[3].pause();
        // However the others change: this one was paused before, and the first one never is.
        for index in picks(&group, 50_000) {
            assert_ne!(index, 3);
        }
        stop.store(true, Ordering::Relaxed);
        togglers.into_iter().for_each(|one| one.join().unwrap());
        group.loops().iter().for_each(EventLoop::resume);
        let first = group.next().index();
        let expected: Vec<_> = (1..=8).map(|step| (first + step) % 4).collect();
        assert_eq!(picks(&group, 8), expected, "all are interchangeable again");
    });
}

#[test]
fn pauses_during_a_shutdown_change_nothing_of_its_sums() {
    within(|| {
        for round in 0..50 {
            let group = EventLoopGroup::builder()
                .loops(3)
                .without_io()
                .build()
                .unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let (loops, stopping) = (group.loops().to_vec(), Arc::clone(&stop));
            let toggler = thread::spawn(move || {
                while !stopping.load(Ordering::Relaxed) {
                    loops.iter().for_each(EventLoop::pause);
                    loops.iter().for_each(EventLoop::resume);
                }
            });
            let tasks: Vec<_> = (0..200)
                .map(|_| group.spawn(async { loopgroup::yield_now().await }))
                .collect();
            let end = match round % 2 {
                0 => group.drain(LONG),
                _ => group.shutdown_now(),
            };
            let report = end.wait();
            stop.store(true, Ordering::Relaxed);
            toggler.join().unwrap();
            assert_eq!(report.accepted(), 200);
            let ended = report.completed() + report.cancelled();
            assert_eq!(ended, 200);
            assert!(tasks.iter().all(|task| task.is_finished()));
        }
    });
}

#[test]
fn metrics_and_reports_show_a_pause() {
    within(|| {
        let group = group(2);
        assert!(!group.metrics().to_string().contains("paused"));
        group.loops()[1].pause();
        let metrics = group.metrics();
        let paused: Vec<_> = metrics.loops().iter().map(|one| one.is_paused()).collect();
        assert_eq!(paused, [false, true]);
        assert_eq!(
            metrics.to_string(),
            "loop   paused\n0           0\n1           1\ntotal       1"
        );
        assert_eq!(metrics.loops()[1].to_string(), "loop 1: paused");
        let text = metrics.to_prometheus();
        assert!(text.contains("\nloopgroup_paused{group=\"default\",loop=\"0\"} 0\n"));
        assert!(text.contains("\nloopgroup_paused{group=\"default\",loop=\"1\"} 1\n"));
        let report = group.shutdown_now().wait();
        assert!(report.to_string().ends_with("1 loop paused"), "{report}");
        assert!(report.loops()[1].to_string().contains("paused"));
        assert!(!report.loops()[0].to_string().contains("paused"));
    });
}

/// Answers every byte with the index of its loop.
async fn tell_home(mut stream: TcpStream) {
    let home = EventLoop::current().unwrap().index() as u8;
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte).await {
        if stream.write_all(&[home]).await.is_err() {
            break;
        }
    }
}

fn ask(client: &mut Client) -> u8 {
    client.write_all(b"?").unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    answer[0]
}

#[test]
fn a_server_gives_new_connections_to_other_loops_and_the_old_ones_stay() {
    within(|| {
        for reuse_port in [false, true] {
            let group = group(2);
            let server = Server::new("127.0.0.1:0").unwrap();
            let server = server.workers(&group).reuse_port(reuse_port);
            let server = server.serve(|stream, _| tell_home(stream)).unwrap();
            let connect = || Client::connect(server.local_addr()).unwrap();
            let mut clients: Vec<_> = (0..16).map(|_| connect()).collect();
            let homes: Vec<_> = clients.iter_mut().map(ask).collect();
            let paused = usize::from(*homes.iter().max().unwrap());
            group.loops()[paused].pause();
            // On a shared port the system chooses the listener: some connections arrive on the paused loop.
            let mut later: Vec<_> = (0..16).map(|_| connect()).collect();
            for client in &mut later {
                assert_ne!(usize::from(ask(client)), paused);
            }
            let again: Vec<_> = clients.iter_mut().map(ask).collect();
            assert_eq!(again, homes);
            drop((clients, later));
            server.stop();
            let report = block_on(server);
            assert_eq!((report.accepted(), report.completed()), (32, 32));
            assert!(group.drain(LONG).wait().is_clean());
        }
    });
}

#[test]
fn what_waits_in_the_accept_queue_of_a_loop_that_is_paused_is_served() {
    within(|| {
        let group = group(2);
        let server = Server::new("127.0.0.1:0").unwrap();
        let server = server.workers(&group).reuse_port(true);
        let server = server.serve(|stream, _| tell_home(stream)).unwrap();
        for paused in [0, 1] {
            let (ev, other) = (&group.loops()[paused], &group.loops()[1 - paused]);
            let (served, before) = (server.accepted(), other.registered_channels());
            // Neither loop accepts, while the system puts the connections in the queues of both.
            let (release, free) = (stall(ev), stall(other));
            let mut clients: Vec<_> = (0..64)
                .map(|_| Client::connect(server.local_addr()).unwrap())
                .collect();
            assert_eq!(server.accepted(), served);
            free.open();
            eventually("the other loop serves what is in its queue", || {
                other.registered_channels() > before
            });
            flush(other);
            let waiting = 64 - (server.accepted() - served);
            assert!(waiting > 0, "none of 64 is in the queue of the loop");
            ev.pause();
            release.open();
            for client in &mut clients {
                client.set_read_timeout(Some(LONG)).unwrap();
                assert_eq!(usize::from(ask(client)), 1 - paused);
            }
            assert_eq!(server.accepted(), served + 64);
            ev.resume();
        }
        server.stop();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (128, 128));
        assert!(group.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_connection_that_finds_every_queue_full_waits_and_is_not_given_to_a_paused_loop() {
    within(|| {
        let boss = group(1);
        let workers = EventLoopGroup::builder()
            .loops(2)
            .max_pending_tasks(1)
            .build()
            .unwrap();
        let server = Server::new("127.0.0.1:0").unwrap();
        let server = server.boss(&boss).workers(&workers);
        let server = server.serve(|stream, _| tell_home(stream)).unwrap();
        workers.loops()[1].pause();
        let release = stall(&workers.loops()[0]);
        let mut clients: Vec<_> = (0..3)
            .map(|_| Client::connect(server.local_addr()).unwrap())
            .collect();
        eventually("one is queued, and one is refused", || {
            workers.loops()[0].metrics().rejected() > 0
        });
        assert_eq!(workers.loops()[1].metrics().accepted(), 0);
        release.open();
        for client in &mut clients {
            client.set_read_timeout(Some(LONG)).unwrap();
            assert_eq!(ask(client), 0);
        }
        drop(clients);
        server.stop();
        assert_eq!(block_on(server).completed(), 3);
        assert!(workers.drain(LONG).wait().elapsed() < LONG - ms(1));
    });
}
