//! Work that stays on one loop: spawn joined and detached, yield, ping-pong.
//!
//!     cargo bench --bench local
#![allow(missing_docs)]

mod util;

use futures::StreamExt;
use futures::channel::mpsc;
use util::bench;

const TASKS: u32 = 10_000;

fn main() {
    bench("spawn_local, joined", TASKS, || {
        loopgroup::run(async {
            let tasks: Vec<_> = (0..TASKS)
                .map(|n| loopgroup::spawn_local(async move { n }))
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        })
        .unwrap();
    });
    bench("spawn_local, detached", TASKS, || {
        loopgroup::run(async {
            for _ in 1..TASKS {
                drop(loopgroup::spawn_local(async {}));
            }
            loopgroup::spawn_local(async {}).await.unwrap();
        })
        .unwrap();
    });
    bench("yield, 1,000 tasks", 1_000 * 100, || {
        loopgroup::run(async {
            let tasks: Vec<_> = (0..1_000)
                .map(|_| {
                    loopgroup::spawn_local(async {
                        for _ in 0..100 {
                            loopgroup::yield_now().await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        })
        .unwrap();
    });
    bench("ping-pong, one loop", TASKS, || {
        loopgroup::run(async {
            let (ping, mut pinged) = mpsc::unbounded();
            let (pong, mut ponged) = mpsc::unbounded();
            let other = loopgroup::spawn_local(async move {
                while let Some(n) = pinged.next().await {
                    pong.unbounded_send(n).unwrap();
                }
            });
            for n in 0..TASKS {
                ping.unbounded_send(n).unwrap();
                assert_eq!(ponged.next().await, Some(n));
            }
            drop(ping);
            other.await.unwrap();
        })
        .unwrap();
    });
}
