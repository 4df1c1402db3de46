//! A stopwatch for benches: rounds, median and minimum, per operation; and what several of them do.
#![allow(dead_code)]

pub(crate) mod submit;

use std::time::Instant;

use futures::StreamExt;
use futures::channel::mpsc;
use loopgroup::EventLoopGroup;

/// Runs `round` a few times; each call does `operations` operations.
pub(crate) fn bench(name: &str, operations: u32, mut round: impl FnMut()) {
    round(); // warm-up
    let mut nanos: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / f64::from(operations)
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    print(name, &nanos);
}

/// Prints sorted figures.
pub(crate) fn print(name: &str, nanos: &[f64]) {
    let (median, least) = (nanos[nanos.len() / 2], nanos[0]);
    println!("{name:32} median {median:8.1} ns   min {least:8.1} ns");
}

/// Sends messages from a task on one loop to a task on another, or the same, and back.
pub(crate) fn ping_pong(group: &EventLoopGroup, (from, to): (usize, usize), trips: u32) {
    let (ping, mut pinged) = mpsc::unbounded();
    let (pong, mut ponged) = mpsc::unbounded();
    let other = group.spawn_on(to, async move {
        while let Some(n) = pinged.next().await {
            pong.unbounded_send(n).unwrap();
        }
    });
    let this = group.spawn_on(from, async move {
        for n in 0..trips {
            ping.unbounded_send(n).unwrap();
            assert_eq!(ponged.next().await, Some(n));
        }
    });
    group.block_on(this).unwrap();
    group.block_on(other).unwrap();
}
