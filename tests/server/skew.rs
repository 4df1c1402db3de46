//! A burst of connections is spread over the loops, and those that are left are when some have closed.
//!
//! `LOOPGROUP_CONNECTS` is the number of connections; 10,000 in a release build, 1,000 in a debug build. Each
//! needs two descriptors of this process: if the system allows fewer, there are fewer connections.
#![cfg(target_os = "linux")]

use std::net::TcpStream as Client;
use std::time::Duration;

use futures::io::AsyncReadExt;
use loopgroup::net::TcpStream;
use loopgroup::{Chooser, EventLoop, EventLoopGroup, LeastBusy, RoundRobin, block_on};

use crate::util::{
    Door, LONG, Random, allow_descriptors, allowed_descriptors, alone_after, eventually, flush,
    group, setting, stall,
};
use crate::{connect, serve_on};

const LOOPS: usize = 3;
/// The most that a loop may have, in fair shares.
const SKEW: f64 = 1.1;

/// How many connections there are: as many as asked for, if there are descriptors for them.
fn connections() -> usize {
    let usual = if cfg!(debug_assertions) {
        1_000
    } else {
        10_000
    };
    let wanted = setting("LOOPGROUP_CONNECTS").map_or(usual, |count| count as usize);
    let most = (allowed_descriptors() - 100) / 2;
    if most < wanted {
        eprintln!("{most} connections instead of {wanted}: no more descriptors are allowed");
    }
    wanted.min(most)
}

fn channels(workers: &EventLoopGroup) -> Vec<usize> {
    let each = workers.loops().iter().map(EventLoop::registered_channels);
    each.collect()
}

/// The most that a loop has, in fair shares.
fn skew(counts: &[usize]) -> f64 {
    let most = *counts.iter().max().unwrap() as f64;
    most * counts.len() as f64 / counts.iter().sum::<usize>() as f64
}

/// Whether no loop has more than [`SKEW`] fair shares, or five standard deviations more than one: of a few
/// hundred connections, chance alone takes away that many.
fn is_even(counts: &[usize]) -> bool {
    let loops = counts.len() as f64;
    let fair = counts.iter().sum::<usize>() as f64 / loops;
    let chance = (fair * (1.0 - 1.0 / loops)).sqrt();
    skew(counts) * fair <= (SKEW * fair).max(fair + 5.0 * chance)
}

/// Keeps all loops busy, each of which was quick to wake up: nothing tells them apart.
fn stall_all(workers: &EventLoopGroup) -> Vec<Door> {
    const QUICK: Duration = Duration::from_micros(200);
    loop {
        let doors: Vec<_> = workers.loops().iter().map(stall).collect();
        let mut delays = workers.loops().iter().map(|ev| ev.metrics().wake_delay());
        if delays.all(|delay| delay < QUICK) {
            return doors;
        }
        // The mean of the last wake-ups: some more of them.
        doors.iter().for_each(Door::open);
        workers.loops().iter().for_each(flush);
    }
}

/// Opens connections in a burst, and closes a random half; returns how many each loop has before and after.
fn open_and_close(chooser: impl Chooser + 'static, stalled: bool, seed: u64) -> [Vec<usize>; 2] {
    let boss = group(1);
    let builder = EventLoopGroup::builder().loops(LOOPS).chooser(chooser);
    let workers = builder.build().unwrap();
    workers.start().unwrap();
    let server = serve_on(&workers).boss(&boss);
    let server = server
        .serve(|mut stream: TcpStream, _| async move { stream.read(&mut [0]).await.map(drop) })
        .unwrap();
    let doors = if stalled {
        stall_all(&workers)
    } else {
        Vec::new()
    };
    let count = connections();
    let mut clients: Vec<Client> = (0..count).map(|_| connect(&server)).collect();
    eventually("all are placed", || server.accepted() == count as u64);
    doors.iter().for_each(Door::open);
    let settle = |count: usize| {
        eventually("so many are open", || {
            channels(&workers).iter().sum::<usize>() == count && server.connections() == count
        });
        channels(&workers)
    };
    let before = settle(count);
    let mut random = Random(seed + 1);
    while clients.len() > count / 2 {
        drop(clients.swap_remove(random.index(clients.len())));
    }
    let after = settle(count / 2);
    drop(clients);
    server.stop();
    let report = block_on(server);
    assert_eq!(report.completed(), count as u64, "{report}");
    assert!(workers.drain(LONG).wait().is_clean());
    let skews = (skew(&before), skew(&after));
    eprintln!("{before:?}, then {after:?}: {skews:.3?}");
    [before, after]
}

#[test]
fn a_burst_is_even_on_loops_that_are_equally_busy_and_so_is_the_half_that_a_random_half_leaves() {
    let name = "a_burst_is_even_on_loops_that_are_equally_busy_and_so_is_the_half_that_a_random_half_leaves";
    alone_after(&allow_descriptors(24_000), name, || {
        for seed in 0..3 {
            let by_load = open_and_close(LeastBusy::default(), true, seed);
            assert!(by_load.iter().all(|counts| is_even(counts)), "{by_load:?}");
            let [before, after] = open_and_close(RoundRobin::default(), true, seed);
            assert!(
                skew(&before) < 1.01 && is_even(&after),
                "{before:?}, then {after:?}"
            );
        }
    });
}

#[test]
fn a_burst_does_not_end_up_on_one_loop_whatever_else_the_cores_do() {
    let name = "a_burst_does_not_end_up_on_one_loop_whatever_else_the_cores_do";
    alone_after(&allow_descriptors(24_000), name, || {
        // By the time that each loop has left, and how fast it wakes up: these differ if the cores are busy.
        let by_load = open_and_close(LeastBusy::default(), false, 7);
        assert!(
            by_load.iter().all(|counts| skew(counts) < 2.5),
            "{by_load:?}"
        );
    });
}
