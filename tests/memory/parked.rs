//! A loop that parks gives back its thread and its buffers, and however often it gets another thread, nothing
//! is left of the last one.
//!
//! `LOOPGROUP_CYCLES` is the number of threads that it gets; 1,000 in a release build, 200 in a debug build.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::net::{TcpListener, TcpStream as Client};
use std::time::Duration;

use futures::io::AsyncReadExt;
use loopgroup::net::TcpStream;
use loopgroup::time::sleep;
use loopgroup::{Elastic, EventLoop, EventLoopGroup, block_on};

use crate::allocator::live_bytes;
use crate::util::{Door, alone, entries, eventually, ms, others_sleep, progress, setting};

fn elastic(max: usize) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().elastic(Elastic {
        min: 1,
        max,
        patience: ms(2),
        ..Elastic::default()
    });
    let group = builder.build().unwrap();
    group.start().unwrap();
    group
}

fn is_parked(ev: &EventLoop) -> bool {
    ev.metrics().is_parked()
}

fn threads() -> usize {
    entries("/proc/self/task")
}

/// Bytes, descriptors and threads, when the loops above the first one are parked and their threads are gone.
fn held(group: &EventLoopGroup, threads: usize) -> (isize, usize, usize) {
    eventually("the loops are parked", || {
        group.loops()[1..].iter().all(is_parked)
    });
    eventually("their threads are gone", || self::threads() == threads);
    eventually("all threads wait", others_sleep);
    (live_bytes(), entries("/proc/self/fd"), self::threads())
}

#[test]
fn a_loop_that_parks_and_gets_another_thread_leaves_nothing_behind() {
    alone(
        "a_loop_that_parks_and_gets_another_thread_leaves_nothing_behind",
        || {
            let group = elastic(2);
            let ev = group.loops()[1].clone();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            eventually("the harness waits for this test", others_sleep);
            let few = threads();
            // A closure, a task, a timer, a value and a socket.
            let cycle = || {
                block_on(ev.submit(|| ())).unwrap();
                drop(ev.spawn(sleep(Duration::ZERO)));
                let value = ev.bind(|| vec![0_u8; 100]);
                assert_eq!(block_on(value.with(|bytes| bytes.len())).unwrap(), 100);
                let reading = ev.spawn(async move {
                    let mut stream = TcpStream::connect(address).await?;
                    stream.read(&mut [0; 8]).await
                });
                let (mut peer, _): (Client, _) = listener.accept().unwrap();
                peer.write_all(b"bye").unwrap();
                assert_eq!(block_on(reading).unwrap().unwrap(), 3);
                drop(value);
                eventually("the loop is parked", || is_parked(&ev));
            };
            (0..20).for_each(|_| cycle()); // tables and queues have their size then, but for a few races
            let before = held(&group, few);
            let usual = if cfg!(debug_assertions) { 200 } else { 1_000 };
            let cycles = setting("LOOPGROUP_CYCLES").unwrap_or(usual).max(200);
            let progress = progress("cycle");
            for _ in 0..cycles {
                cycle();
                progress.tick();
            }
            let after = held(&group, few);
            assert_eq!(
                (after.1, after.2),
                (before.1, before.2),
                "descriptors, threads"
            );
            // How large a queue is depends on how much has met in it, which is a few hundred bytes more or
            // less, once. No allocation is so small that one for each cycle would not be seen.
            let more = after.0 - before.0;
            eprintln!("{more} bytes more after {cycles} cycles");
            assert!(
                more < 4 * cycles as isize,
                "{before:?} before {cycles} cycles, then {after:?}"
            );
        },
    );
}

#[test]
fn parked_loops_have_no_threads_and_hold_less_memory_than_idle_ones() {
    alone(
        "parked_loops_have_no_threads_and_hold_less_memory_than_idle_ones",
        || {
            const LOOPS: usize = 4;
            let group = elastic(1 + LOOPS);
            let others = &group.loops()[1..];
            eventually("the harness waits for this test", others_sleep);
            let few = threads();
            for ev in others {
                block_on(ev.submit(|| ())).unwrap();
            }
            let parked = held(&group, few);
            // Tasks that wait keep the threads, and do nothing.
            let door = Door::new();
            let tasks: Vec<_> = others.iter().map(|ev| ev.spawn(door.opened())).collect();
            eventually("all tasks wait", || door.waiting() == LOOPS);
            eventually("all threads wait", others_sleep);
            assert_eq!(threads(), few + LOOPS);
            let idle = live_bytes();
            door.open();
            for task in tasks {
                block_on(task).unwrap();
            }
            drop(door);
            assert_eq!(held(&group, few).2, few, "the threads are gone");
            let each = (idle - parked.0) / LOOPS as isize;
            eprintln!(
                "{each} bytes for each loop that runs and is idle, above those of a parked one"
            );
            // Of the task and its waker there are a few hundred.
            assert!(each > 2_048, "{each} bytes for each loop");
        },
    );
}
