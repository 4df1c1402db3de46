//! Precise timers: never early, in order, and still woken by everything else.
//!
//! On Linux these loops have an alarm in their selector, elsewhere a selector that needs none.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use futures::future::join_all;
use loopgroup::net::UnixStream;
use loopgroup::time::{sleep, sleep_until, timeout};
use loopgroup::{EndCause, EventLoopGroup, WaitStrategy, block_on};

use crate::util::{ms, within};

const HOUR: Duration = Duration::from_secs(3600);

/// A precise group of one loop, with a selector and without.
fn groups() -> [EventLoopGroup; 2] {
    let builder = || EventLoopGroup::builder().loops(1).precise_timers(true);
    [builder(), builder().without_io()].map(|builder| builder.build().unwrap())
}

#[test]
fn precise_timers_fire_in_order_and_never_early() {
    within(|| {
        for group in groups() {
            let fired = Arc::new(Mutex::new(Vec::new()));
            let log = Arc::clone(&fired);
            let task = group.spawn(async move {
                let start = Instant::now();
                // Scrambled, many in each millisecond, each deadline twice.
                let sleeps = (0..2_000_u64).map(|number| {
                    let micros = 10_000 + number / 2 * 617 % 1_000 * 30;
                    let deadline = start + Duration::from_micros(micros);
                    let log = Arc::clone(&log);
                    loopgroup::spawn_local(async move {
                        let mut wait = sleep_until(deadline);
                        let armed = futures::poll!(&mut wait).is_pending();
                        if armed {
                            wait.await;
                            log.lock().unwrap().push((deadline, number));
                        }
                        assert!(Instant::now() >= deadline, "early");
                        armed
                    })
                });
                let armed = join_all(sleeps).await;
                armed
                    .into_iter()
                    .filter(|armed| *armed.as_ref().unwrap())
                    .count()
            });
            let armed = block_on(task).unwrap();
            let fired = fired.lock().unwrap();
            assert_eq!(fired.len(), armed);
            assert!(
                fired.is_sorted(),
                "by deadline, and equal ones by their age"
            );
        }
    });
}

#[test]
fn a_precise_loop_wakes_up_between_two_milliseconds() {
    within(|| {
        for group in groups() {
            // In whole milliseconds each of these is late by 0.7 ms or more. A loaded machine may take that
            // long as well, but not a hundred times.
            let least = block_on(group.spawn(async {
                let mut least = Duration::MAX;
                for _ in 0..100 {
                    let deadline = Instant::now() + Duration::from_micros(1_300);
                    sleep_until(deadline).await;
                    least = least.min(deadline.elapsed());
                }
                least
            }));
            assert!(least.unwrap() < Duration::from_micros(600));
        }
    });
}

#[test]
fn other_threads_wake_a_loop_in_a_precise_wait() {
    within(|| {
        for group in groups() {
            let (tx, rx) = mpsc::channel();
            let waiting = group.spawn(async move {
                let mut far = std::pin::pin!(sleep(HOUR));
                assert!(futures::poll!(far.as_mut()).is_pending());
                tx.send(()).unwrap();
                far.await;
            });
            rx.recv().unwrap();
            for number in 0..100 {
                let answer = group.spawn(async move { number });
                assert_eq!(block_on(answer).unwrap(), number);
            }
            drop(waiting);
            assert_eq!(group.shutdown_now().wait().completed(), 100);
        }
    });
}

#[test]
fn a_socket_ends_a_precise_wait() {
    within(|| {
        let [group, _] = groups();
        let task = group.spawn(async {
            let (one, mut other) = UnixStream::pair()?;
            let reader = loopgroup::spawn_local(async move {
                let readable = timeout(HOUR, one.readable()).await;
                readable.expect("within the hour")
            });
            sleep(ms(1)).await;
            futures::AsyncWriteExt::write_all(&mut other, b"x").await?;
            reader.await.unwrap()
        });
        block_on(task).unwrap().unwrap();
    });
}

#[test]
fn a_shutdown_deadline_ends_a_precise_wait() {
    within(|| {
        for group in groups() {
            drop(group.spawn(sleep(HOUR)));
            let start = Instant::now();
            let report = group.drain(ms(5)).wait();
            assert!(start.elapsed() >= ms(5), "not before its deadline");
            assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
            assert_eq!(report.cancelled(), 1);
        }
    });
}

#[test]
fn a_cancelled_precise_timer_wakes_its_loop_once_at_most() {
    within(|| {
        for group in groups() {
            let ev = group.next().clone();
            let parks = block_on(group.spawn(async move {
                // The loop sleeps until the first of them; the other is alone then.
                let cancelled = timeout(ms(10), sleep(ms(1))).await;
                cancelled.unwrap();
                let before = ev.metrics().parks();
                sleep(ms(30)).await;
                ev.metrics().parks() - before
            }));
            // Until the alarm of the cancelled one, and until the other.
            assert!(parks.unwrap() <= 2);
        }
    });
}

#[test]
fn precise_timers_go_with_every_way_to_wait() {
    within(|| {
        for strategy in [
            WaitStrategy::Park,
            WaitStrategy::SpinThenPark(Duration::from_micros(20)),
            WaitStrategy::Busy,
        ] {
            let builder = EventLoopGroup::builder().loops(1).precise_timers(true);
            let group = builder.wait_strategy(strategy).build().unwrap();
            let task = group.spawn(async {
                let start = Instant::now();
                sleep(Duration::from_micros(700)).await;
                start.elapsed()
            });
            let slept = block_on(task).unwrap();
            assert!(slept >= Duration::from_micros(700), "{strategy:?}");
        }
    });
}
