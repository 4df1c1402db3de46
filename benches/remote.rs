//! Work that crosses threads: spawn from outside, ping-pong between loops, parked and spinning.
//!
//!     cargo bench --bench remote
#![allow(missing_docs)]

mod util;

use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use loopgroup::{EventLoopGroup, WaitStrategy};
use util::bench;

fn main() {
    let one = EventLoopGroup::new(1).unwrap();
    bench("spawn from outside", 100_000, || {
        for _ in 1..100_000 {
            drop(one.spawn(async {}));
        }
        one.block_on(one.spawn(async {})).unwrap();
    });
    for (name, strategy) in [
        ("ping-pong, two loops, parked", WaitStrategy::Park),
        (
            "ping-pong, two loops, spinning",
            WaitStrategy::SpinThenPark(Duration::from_millis(1)),
        ),
    ] {
        let two = EventLoopGroup::builder()
            .loops(2)
            .wait_strategy(strategy)
            .build()
            .unwrap();
        bench(name, 2_000, || ping_pong(&two, 2_000));
    }
}

fn ping_pong(group: &EventLoopGroup, rounds: u32) {
    let (ping, mut pinged) = mpsc::unbounded();
    let (pong, mut ponged) = mpsc::unbounded();
    let other = group.spawn_on(1, async move {
        while let Some(n) = pinged.next().await {
            pong.unbounded_send(n).unwrap();
        }
    });
    let this = group.spawn_on(0, async move {
        for n in 0..rounds {
            ping.unbounded_send(n).unwrap();
            assert_eq!(ponged.next().await, Some(n));
        }
    });
    group.block_on(this).unwrap();
    group.block_on(other).unwrap();
}
