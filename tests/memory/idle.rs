//! A loop that has nothing to do does nothing.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream as Client;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream, Turn};
use loopgroup::{Elastic, EventLoopGroup, block_on};

use crate::allocator::live_bytes;
use crate::util::{Door, alone, eventually, group_with_io, stall, tid_of, within};

/// How long a loop is watched; far longer than the tick of any scheduler of tasks.
const WATCH: Duration = Duration::from_millis(300);

/// A group whose loops run.
fn group(loops: usize, io: bool) -> EventLoopGroup {
    let group = group_with_io(loops, io);
    group.start().unwrap();
    group
}

/// What the system says about a thread of this process.
struct Thread {
    sleeps: bool,
    voluntary: u64,
    involuntary: u64,
}

impl Thread {
    fn look(tid: i32) -> Thread {
        let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
        let field = |name| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        Thread {
            sleeps: field("State:") == "S",
            voluntary: field("voluntary_ctxt_switches:").parse().unwrap(),
            involuntary: field("nonvoluntary_ctxt_switches:").parse().unwrap(),
        }
    }

    fn switches(&self) -> u64 {
        self.voluntary + self.involuntary
    }

    /// Waits until the thread sleeps and its way into the sleep is counted.
    fn parked(tid: i32) -> Thread {
        loop {
            eventually("the loop parks", || Thread::look(tid).sleeps);
            let first = Thread::look(tid);
            // Asleep is said a little before the switch is counted.
            thread::sleep(Duration::from_millis(30));
            let second = Thread::look(tid);
            if second.sleeps && first.switches() == second.switches() {
                return second;
            }
        }
    }
}

#[test]
fn a_parked_loop_never_runs() {
    within(|| {
        let groups = [group(2, true), group(2, false)];
        // A task that waits is no reason to look.
        let door = Door::new();
        for group in &groups {
            drop(group.spawn(door.opened()));
        }
        let tids: Vec<_> = groups
            .iter()
            .flat_map(|group| group.loops().iter().map(tid_of))
            .collect();
        let before: Vec<_> = tids
            .iter()
            .map(|&tid| Thread::parked(tid).switches())
            .collect();
        thread::sleep(WATCH);
        let after: Vec<_> = tids
            .iter()
            .map(|&tid| Thread::look(tid).switches())
            .collect();
        assert_eq!(before, after);
        door.open();
    });
}

#[test]
fn a_loop_in_its_quiet_period_sleeps_through_it() {
    within(|| {
        for io in [true, false] {
            let group = group(1, io);
            let tid = tid_of(group.next());
            let quiet = Duration::from_secs(3_600);
            drop(group.shutdown_gracefully_with(quiet, quiet).unwrap());
            let before = Thread::parked(tid);
            thread::sleep(WATCH);
            assert_eq!(Thread::look(tid).switches(), before.switches());
            group.shutdown_now().wait();
        }
    });
}

#[test]
fn a_thousand_submissions_to_a_busy_loop_wake_it_not_once() {
    within(|| {
        for io in [true, false] {
            let group = group(1, io);
            let ev = group.next();
            let tid = tid_of(ev);
            let release = stall(ev);
            let before = Thread::parked(tid);
            let ran = Arc::new(Mutex::new(Vec::new()));
            for n in 0..1_000 {
                let ran = Arc::clone(&ran);
                ev.execute(move || ran.lock().unwrap().push(n)).unwrap();
            }
            assert_eq!(Thread::look(tid).switches(), before.switches());
            release.open();
            let after = Thread::parked(tid);
            assert_eq!(*ran.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
            // Out of the stall and back into the wait; a ring left over would be one more. The lock
            // of the door may cost another.
            let voluntary = after.voluntary - before.voluntary;
            assert!(voluntary <= 4, "{voluntary} sleeps for one batch");
        }
    });
}

#[test]
fn lazy_submissions_do_not_wake_a_parked_loop() {
    within(|| {
        for io in [true, false] {
            let group = group(1, io);
            let ev = group.next();
            let tid = tid_of(ev);
            let before = Thread::parked(tid);
            let ran = Arc::new(Mutex::new(Vec::new()));
            for n in 0..100 {
                let ran = Arc::clone(&ran);
                ev.lazy_execute(move || ran.lock().unwrap().push(n))
                    .unwrap();
            }
            thread::sleep(WATCH / 3);
            assert_eq!(Thread::look(tid).switches(), before.switches());
            assert!(ran.lock().unwrap().is_empty());
            loopgroup::block_on(ev.submit(|| ())).unwrap();
            assert_eq!(*ran.lock().unwrap(), (0..100).collect::<Vec<_>>());
        }
    });
}

#[test]
fn an_elastic_group_with_its_fewest_loops_does_not_tick_for_channels_that_stay() {
    within(|| {
        let elastic = Elastic {
            min: 1,
            max: 2,
            patience: Duration::from_millis(5),
            ..Elastic::default()
        };
        let group = EventLoopGroup::builder().elastic(elastic).build().unwrap();
        // A listener on each loop: the second one is not needed, and is not parked either.
        let server = Server::new("127.0.0.1:0")
            .unwrap()
            .workers(&group)
            .reuse_port(true);
        let server = server.serve(|stream, _| async move {
            let _ = (&stream).read(&mut [0]).await;
        });
        let server = server.unwrap();
        let _client = Client::connect(server.local_addr()).unwrap();
        eventually("it is accepted", || server.accepted() == 1);
        let tids: Vec<_> = group.loops().iter().map(tid_of).collect();
        let switches = || {
            tids.iter()
                .map(|&tid| Thread::parked(tid).switches())
                .collect::<Vec<_>>()
        };
        // What the start has cost may still set a loop aside.
        eventually("it is at rest", || {
            let before = switches();
            thread::sleep(WATCH);
            before == switches()
        });
        let ev = &group.loops()[1];
        assert!(ev.is_paused() && ev.registered_channels() > 0);
        server.stop();
    });
}

#[test]
fn a_group_that_was_only_built_has_no_threads() {
    within(|| {
        let ours = |name: &str| {
            fs::read_dir("/proc/self/task")
                .unwrap()
                .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok())
                .filter(|comm| comm.trim_end() == name)
                .count()
        };
        let group = EventLoopGroup::builder()
            .loops(4)
            .thread_name(|_| "idle-unused")
            .build()
            .unwrap();
        assert_eq!(ours("idle-unused"), 0);
        group.block_on(group.spawn_on(2, async {})).unwrap();
        assert_eq!(ours("idle-unused"), 1, "the one that is used");
        let report = group.drain(Duration::from_secs(30)).wait();
        let started: Vec<_> = report.loops().iter().map(|one| one.started()).collect();
        assert_eq!(started, [false, false, true, false]);
    });
}

#[test]
fn an_idle_connection_that_is_served_by_turns_is_small_although_its_turns_are_not() {
    let name = "an_idle_connection_that_is_served_by_turns_is_small_although_its_turns_are_not";
    alone(name, || {
        const CONNECTIONS: usize = 200;
        let (boss, workers) = (group(1, true), group(1, true));
        let server = Server::new("127.0.0.1:0").unwrap();
        let server = server.boss(&boss).workers(&workers);
        let server = server
            .serve_turns(
                |_, _| (),
                async |mut stream: &TcpStream, _: &mut ()| {
                    let mut buf = [0; 16 * 1024]; // part of the future
                    let n = stream.read(&mut buf).await?;
                    stream.write_all(&buf[..n]).await?;
                    std::io::Result::Ok(if n == 0 { Turn::Close } else { Turn::Next })
                },
            )
            .unwrap();
        let ask = |client: &mut Client| {
            client.write_all(b"?").unwrap();
            client.read_exact(&mut [0]).unwrap();
        };
        ask(&mut Client::connect(server.local_addr()).unwrap());
        let before = live_bytes();
        let mut clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| Client::connect(server.local_addr()).unwrap())
            .collect();
        clients.iter_mut().for_each(ask);
        // The last turns have ended a little after their answers.
        let each = || (live_bytes() - before) / CONNECTIONS as isize;
        eventually("an idle connection has less than a kilobyte", || {
            each() < 1024
        });
        drop(clients);
        server.stop();
        block_on(server);
    });
}
