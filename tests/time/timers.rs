//! Timers fire on time, in order, where they are polled, and leave nothing behind.

#![allow(clippy::async_yields_async)] // timers are handed from thread to thread unawaited

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use loopgroup::blocking::BlockingGroup;
use loopgroup::testing::TestLoop;
use loopgroup::time::{
    Elapsed, Interval, MissedTick, Sleep, Timeout, interval, interval_at, now, sleep, sleep_until,
    timeout, timeout_at,
};
use loopgroup::{EventLoopGroup, WaitStrategy, block_on};

use crate::util::{self, DropCount, eventually, ms, within};

/// A waker that counts its calls and is counted when it is dropped.
struct CountingWaker {
    wakes: AtomicUsize,
    _guard: util::CountOnDrop,
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

fn counting_waker(drops: &DropCount) -> (Arc<CountingWaker>, Waker) {
    let counting = Arc::new(CountingWaker {
        wakes: AtomicUsize::new(0),
        _guard: drops.guard(),
    });
    let waker = Waker::from(Arc::clone(&counting));
    (counting, waker)
}

#[test]
fn timer_futures_are_send_sync_and_unpin() {
    fn check<T: Send + Sync + Unpin>() {}
    check::<Sleep>();
    check::<Interval>();
    check::<Timeout<std::future::Ready<()>>>();
    check::<Elapsed>();
}

#[test]
fn a_sleep_is_never_early() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let tasks: Vec<_> = [0, 1, 2, 5, 17]
            .into_iter()
            .map(|millis| {
                group.spawn(async move {
                    let start = Instant::now();
                    sleep(ms(millis)).await;
                    (start.elapsed(), ms(millis))
                })
            })
            .collect();
        for task in tasks {
            let (took, asked) = block_on(task).unwrap();
            assert!(took >= asked, "{took:?} for {asked:?}");
        }
    });
}

#[test]
fn sleeps_end_in_the_order_of_their_deadlines() {
    let mut test = TestLoop::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    for millis in [500, 100, 1000, 100] {
        let order = Arc::clone(&order);
        drop(test.spawn(async move {
            sleep(ms(millis)).await;
            order.lock().unwrap().push(millis);
        }));
    }
    test.run_until_stalled();
    for (advance, expected) in [
        (ms(99), &[][..]),
        (ms(1), &[100, 100][..]),
        (ms(400), &[100, 100, 500][..]),
        (ms(500), &[100, 100, 500, 1000][..]),
    ] {
        test.advance(advance);
        assert_eq!(*order.lock().unwrap(), expected);
    }
}

#[test]
fn equal_deadlines_fire_in_the_order_of_insertion() {
    let mut test = TestLoop::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let deadline = test.now() + ms(50);
    for number in 0..101 {
        let order = Arc::clone(&order);
        drop(test.spawn(async move {
            sleep_until(deadline).await;
            order.lock().unwrap().push(number);
        }));
    }
    test.advance(ms(50));
    assert_eq!(*order.lock().unwrap(), (0..101).collect::<Vec<_>>());
}

#[test]
fn the_longest_duration_means_never_and_can_be_cancelled() {
    let mut test = TestLoop::new();
    let task = test.spawn(sleep(Duration::MAX));
    let bounded = test.spawn(timeout(ms(5), sleep(Duration::MAX)));
    test.advance(Duration::from_secs(60 * 60 * 24 * 365 * 10));
    assert!(!task.is_finished());
    assert!(test.block_on(bounded).unwrap().is_err());
    task.abort();
    test.run_until_stalled();
    assert_eq!(test.pending(), 0);
}

/// Waits that never end, in every way there is: none is over, none panics, and none makes another late.
async fn wait_for_ever() {
    let never = Duration::MAX;
    let far = Instant::now() + Duration::from_secs(60 * 60 * 24 * 365 * 500);
    let mut ticks = interval(never);
    ticks.tick().await; // the first one comes at once
    let mut later = interval_at(far, never);
    let mut moved = sleep(ms(1));
    assert!(futures::poll!(&mut moved).is_pending());
    moved.reset(far);
    let mut sleeps = [sleep(never), sleep_until(far), moved];
    for _ in 0..2 {
        for wait in &mut sleeps {
            assert!(futures::poll!(wait).is_pending());
        }
        for ticks in [&mut ticks, &mut later] {
            assert!(futures::poll!(ticks.next()).is_pending());
        }
        assert_eq!(timeout(never, sleep(ms(1))).await, Ok(()));
        assert_eq!(timeout_at(far, sleep(ms(1))).await, Ok(()));
    }
}

#[test]
fn the_longest_duration_is_taken_wherever_there_is_one() {
    within(|| {
        let never = Duration::MAX;
        block_on(wait_for_ever());
        loopgroup::run(wait_for_ever()).unwrap();
        let one = || EventLoopGroup::builder().loops(1);
        let spinning = one().wait_strategy(WaitStrategy::SpinThenPark(never));
        for builder in [one(), one().without_io(), spinning] {
            let group = builder.build().unwrap();
            let ev = group.next();
            let closures = [
                ev.schedule(never, || ()),
                ev.schedule_at_fixed_rate(never, never, || ()).unwrap(),
                ev.schedule_with_fixed_delay(ms(0), never, || ()).unwrap(),
            ];
            block_on(group.spawn(wait_for_ever())).unwrap();
            assert!(closures.iter().all(|closure| !closure.is_finished()));
            let report = group.drain(never).wait();
            assert_eq!((report.completed(), report.cancelled()), (1, 3));
        }
        let blocking = BlockingGroup::new(1).unwrap();
        block_on(blocking.spawn(|| ())).unwrap();
        let end = blocking.shutdown_gracefully_with(never, never).unwrap();
        block_on(blocking.spawn(|| ())).unwrap();
        drop(blocking.shutdown_now());
        assert_eq!(end.wait().completed(), 2);
    });
}

#[test]
fn a_deadline_in_the_past_is_over_by_the_next_turn() {
    within(|| {
        let past = Instant::now();
        block_on(sleep_until(past));
        let group = EventLoopGroup::new(1).unwrap();
        block_on(group.spawn(async move {
            sleep_until(past).await;
            sleep(Duration::ZERO).await;
            assert!(
                timeout_at(past, std::future::pending::<()>())
                    .await
                    .is_err()
            );
        }))
        .unwrap();
    });
}

#[test]
fn a_deadline_that_has_passed_is_ready_at_the_poll() {
    async fn passed() {
        let mut wait = sleep(Duration::from_secs(3600));
        assert!(futures::poll!(&mut wait).is_pending());
        wait.reset(now()); // armed, and due
        assert!(futures::poll!(&mut wait).is_ready());
        assert!(futures::poll!(sleep_until(now())).is_ready());
        assert!(futures::poll!(sleep(Duration::ZERO)).is_ready());
        let mut late = timeout_at(now(), std::future::pending::<()>());
        assert!(futures::poll!(&mut late).is_ready());
        let mut ticks = interval(ms(3_600_000));
        assert!(futures::poll!(ticks.next()).is_ready());
        assert!(futures::poll!(ticks.next()).is_pending());
    }
    within(|| {
        TestLoop::new().block_on(passed());
        loopgroup::run(passed()).unwrap();
        block_on(passed());
    });
}

#[test]
fn sleeping_for_no_time_again_and_again_lets_others_in() {
    async fn restless() {
        loop {
            sleep(Duration::ZERO).await;
        }
    }
    within(|| {
        let mut test = TestLoop::new();
        let forever = test.spawn(restless());
        let other = test.spawn(async { 7 });
        assert_eq!(test.block_on(other).unwrap(), 7);
        assert!(!forever.is_finished());
        let group = EventLoopGroup::new(1).unwrap();
        drop(group.spawn(restless()));
        block_on(group.spawn(sleep(ms(2)))).unwrap();
        block_on(futures::future::select(
            Box::pin(restless()),
            Box::pin(sleep(ms(2))),
        ));
    });
}

#[test]
fn a_dropped_sleep_frees_its_waker_at_once() {
    within(|| {
        block_on(async {
            let drops = DropCount::new();
            let (counting, waker) = counting_waker(&drops);
            let mut wait = sleep(Duration::from_secs(3600));
            let polled = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            drop((counting, waker));
            assert_eq!(drops.get(), 0, "the timer holds the waker");
            drop(wait);
            assert_eq!(
                drops.get(),
                1,
                "and lets it go with the sleep, not at the deadline"
            );
        });
    });
}

#[test]
fn a_sleep_dropped_on_another_thread_is_freed_soon() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let drops = DropCount::new();
        let (counting, waker) = counting_waker(&drops);
        let armed = group.spawn(async move {
            let mut wait = sleep(Duration::from_secs(3600));
            let polled = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            wait
        });
        let wait = block_on(armed).unwrap();
        drop(counting);
        drop(wait); // here, not on the loop
        block_on(group.spawn(async {})).unwrap(); // the loop is awake once
        assert_eq!(drops.get(), 1);
    });
}

/// A timer of an hour, armed here for a waker that is counted when it is dropped.
fn an_hour_armed(drops: &DropCount) -> Sleep {
    let (_, waker) = counting_waker(drops);
    let mut wait = sleep(Duration::from_secs(3600));
    let polled = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    wait
}

#[test]
fn a_sleep_dropped_elsewhere_is_freed_although_its_loop_sleeps() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let drops = DropCount::new();
        let count = drops.clone();
        let wait = block_on(group.spawn(async move { an_hour_armed(&count) })).unwrap();
        let parks = group.next().metrics().parks();
        drop(group.next().spawn(async {})); // one more turn, and another park
        eventually("the loop sleeps again", || {
            group.next().metrics().parks() > parks && group.next().live_tasks() == 0
        });
        drop(wait);
        eventually("the waker is dropped", || drops.get() == 1);
    });
}

#[test]
fn a_sleep_dropped_elsewhere_is_freed_although_its_thread_is_parked_in_block_on() {
    within(|| {
        let drops = DropCount::new();
        let count = drops.clone();
        let (tx, rx) = mpsc::channel();
        let door = util::Door::new();
        let opened = door.opened();
        let parked = thread::spawn(move || {
            block_on(async move {
                let wait = an_hour_armed(&count);
                // Armed last: when it has fired, the thread has been parked for a while.
                sleep(ms(5)).await;
                tx.send(wait).unwrap();
                opened.await;
            });
        });
        let wait = rx.recv().unwrap();
        drop(wait);
        eventually("the waker is dropped", || drops.get() == 1);
        door.open();
        parked.join().unwrap();
    });
}

#[test]
fn the_outermost_block_on_leaves_no_timer_armed() {
    within(|| {
        let drops = DropCount::new();
        let (counting, waker) = counting_waker(&drops);
        let mut waits = Vec::new();
        for round in 1..=100 {
            waits.push(block_on(async {
                let mut wait = sleep(ms(1));
                let polled = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
                // A call inside of this one is not the outermost.
                block_on(async {});
                assert_eq!(Arc::strong_count(&counting), 3, "armed");
                wait
            }));
            assert_eq!(Arc::strong_count(&counting), 2, "the thread is no home");
            assert_eq!(counting.wakes.load(Ordering::SeqCst), round, "told so");
        }
        // Each is armed anew where it is polled next, and none is taken for one that has fired.
        let far = sleep(Duration::from_secs(3600));
        let mut far = block_on(async move {
            let mut far = far;
            assert!(futures::poll!(&mut far).is_pending());
            far
        });
        block_on(async { assert!(futures::poll!(&mut far).is_pending()) });
        thread::spawn(move || block_on(futures::future::join_all(waits)))
            .join()
            .unwrap();
    });
}

#[test]
fn sleeps_dropped_elsewhere_do_not_pile_up_in_a_block_on_that_never_parks() {
    const TIMERS: usize = 10_000;
    within(|| {
        let drops = DropCount::new();
        let (tx, rx) = mpsc::channel::<Sleep>();
        let (dropped, turn) = mpsc::channel();
        let dropper = thread::spawn(move || {
            for wait in rx {
                drop(wait);
                dropped.send(()).unwrap();
            }
        });
        block_on(async {
            for armed in 1..=TIMERS {
                tx.send(an_hour_armed(&drops)).unwrap();
                turn.recv().unwrap();
                let kept = armed - drops.get();
                assert!(kept <= 100, "{kept} wakers of dropped timers");
            }
        });
        assert_eq!(drops.get(), TIMERS);
        drop(tx);
        dropper.join().unwrap();
    });
}

#[test]
fn a_sleep_polled_here_and_then_there_fires_there() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let deadline = Instant::now() + ms(30);
        let first = group.spawn_on(0, async move {
            let mut wait = sleep_until(deadline);
            assert!(futures::poll!(&mut wait).is_pending());
            wait
        });
        let mut wait = block_on(first).unwrap();
        // Once on a thread that only blocks, then on another loop.
        block_on(async { assert!(futures::poll!(&mut wait).is_pending()) });
        let second = group.spawn_on(1, async move {
            wait.await;
            Instant::now()
        });
        assert!(block_on(second).unwrap() >= deadline);
    });
}

#[test]
fn a_reset_sleep_wakes_at_the_new_moment_without_another_poll() {
    let mut test = TestLoop::new();
    let (tx, rx) = mpsc::channel();
    let start = test.now();
    drop(test.spawn(async move {
        let mut wait = sleep_until(start + ms(10));
        assert!(futures::poll!(&mut wait).is_pending());
        wait.reset(start + ms(50));
        assert_eq!(wait.deadline(), Some(start + ms(50)));
        (&mut wait).await;
        tx.send("late").unwrap();
        wait.reset(start + ms(60)); // also after it was ready
        wait.await;
        tx.send("later").unwrap();
    }));
    test.advance(ms(49));
    assert!(rx.try_recv().is_err());
    test.advance(ms(1));
    assert_eq!(rx.try_recv(), Ok("late"));
    test.advance(ms(10));
    assert_eq!(rx.try_recv(), Ok("later"));
}

#[test]
fn a_sleep_keeps_the_newest_waker() {
    within(|| {
        block_on(async {
            let drops = DropCount::new();
            let (old, old_waker) = counting_waker(&drops);
            let (new, new_waker) = counting_waker(&drops);
            let mut wait = sleep(ms(5));
            for waker in [&old_waker, &new_waker] {
                let polled = Pin::new(&mut wait).poll(&mut Context::from_waker(waker));
                assert!(polled.is_pending());
            }
            sleep(ms(10)).await;
            assert_eq!(old.wakes.load(Ordering::SeqCst), 0);
            assert_eq!(new.wakes.load(Ordering::SeqCst), 1);
        });
    });
}

#[test]
fn timers_work_in_block_on_in_nested_ones_and_in_run() {
    within(|| {
        let start = Instant::now();
        block_on(async {
            sleep(ms(1)).await;
            block_on(sleep(ms(1)));
            sleep(ms(1)).await;
        });
        loopgroup::run(sleep(ms(1))).unwrap();
        assert!(start.elapsed() >= ms(4));
    });
}

#[test]
fn an_inner_block_on_fires_the_timers_of_the_outer_one() {
    within(|| {
        block_on(async {
            let mut outer = sleep(ms(1));
            assert!(futures::poll!(&mut outer).is_pending());
            block_on(sleep(ms(20)));
            assert!(futures::poll!(&mut outer).is_ready());
        });
    });
}

#[test]
fn a_timer_without_a_loop_says_what_is_missing() {
    within(|| {
        let mut wait = sleep(Duration::from_secs(1));
        let panic = thread::spawn(move || util::poll_once(&mut wait))
            .join()
            .unwrap_err();
        let text = panic.downcast_ref::<&str>().expect("a sentence");
        assert!(
            text.contains("no timers") && text.contains("block_on"),
            "{text}"
        );
    });
}

#[test]
fn timeout_looks_at_the_value_first() {
    TestLoop::new().block_on(async {
        assert_eq!(timeout(Duration::ZERO, async { 7 }).await, Ok(7));
        assert_eq!(timeout(ms(1), sleep(ms(1))).await, Ok(()), "due together");
        let late = timeout(ms(1), std::future::pending::<()>()).await;
        let error = std::io::Error::from(late.unwrap_err());
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        let mut inner = timeout(ms(1), sleep(ms(3)));
        assert!((&mut inner).await.is_err());
        inner.into_inner().await; // the future can be polled on
    });
}

#[test]
fn a_timeout_that_is_not_needed_leaves_no_timer() {
    let mut test = TestLoop::new();
    let task = test.spawn(async {
        for _ in 0..1000 {
            timeout(Duration::from_secs(3600), loopgroup::yield_now())
                .await
                .unwrap();
        }
    });
    test.block_on(task).unwrap();
    // Nothing to step through: the time passes in one go.
    test.advance(Duration::from_secs(7200));
    assert_eq!(test.elapsed(), Duration::from_secs(7200));
}

#[test]
fn an_interval_ticks_at_once_and_then_on_its_grid() {
    let mut test = TestLoop::new();
    let start = test.now();
    let ticks = test.block_on(async {
        let mut ticks = interval(ms(10));
        assert_eq!(ticks.period(), ms(10));
        let mut seen = vec![ticks.tick().await];
        for _ in 0..3 {
            sleep(ms(4)).await; // work between two ticks does not shift the grid
            seen.push(ticks.tick().await);
        }
        seen
    });
    let expected: Vec<_> = (0..4).map(|n| start + ms(10 * n)).collect();
    assert_eq!(ticks, expected);
}

#[test]
fn missed_ticks_burst_delay_or_skip() {
    // The tick of 10 ms is taken at 25 ms; what follows differs.
    for (missed, expected) in [
        (MissedTick::Burst, [0, 10, 20, 30, 40]),
        (MissedTick::Delay, [0, 10, 35, 45, 55]),
        (MissedTick::Skip, [0, 10, 30, 40, 50]),
    ] {
        let mut test = TestLoop::new();
        let start = test.now();
        let seen = test.block_on(async move {
            let mut ticks = interval_at(start, ms(10));
            ticks.set_missed_tick(missed);
            assert_eq!(ticks.missed_tick(), missed);
            let mut seen = Vec::new();
            seen.push(ticks.next().await.unwrap());
            sleep(ms(25)).await;
            for _ in 0..4 {
                seen.push(ticks.tick().await);
            }
            seen
        });
        let seen: Vec<_> = seen
            .iter()
            .map(|tick| (*tick - start).as_millis())
            .collect();
        assert_eq!(seen, expected, "{missed:?}");
    }
}

#[test]
fn a_delayed_interval_ticks_a_period_after_a_tick_that_was_late_by_less_than_one() {
    let mut test = TestLoop::new();
    let start = test.now();
    let taken = test.block_on(async move {
        let mut ticks = interval_at(start, ms(100));
        ticks.set_missed_tick(MissedTick::Delay);
        let mut taken = Vec::new();
        for pause in [190, 0, 104, 0, 0] {
            ticks.tick().await;
            taken.push((now() - start).as_millis());
            sleep(ms(pause)).await;
        }
        taken
    });
    // The second is taken 90 ms late; the fourth 4 ms, which is not worth leaving the grid.
    assert_eq!(taken, [0, 190, 290, 394, 490]);
}

#[test]
fn a_reset_drops_a_tick_that_is_due_and_begins_a_new_grid() {
    type Reset = fn(&mut Interval);
    let resets: [(&str, Reset, [u128; 3]); 5] = [
        ("reset", Interval::reset, [35, 45, 55]),
        ("immediately", Interval::reset_immediately, [25, 35, 45]),
        ("after", |ticks| ticks.reset_after(ms(3)), [28, 38, 48]),
        ("at", |ticks| ticks.reset_at(now() + ms(7)), [32, 42, 52]),
        ("past", |ticks| ticks.reset_at(now() - ms(12)), [13, 23, 33]),
    ];
    for (name, reset, expected) in resets {
        for polled in [false, true] {
            let mut test = TestLoop::new();
            let start = test.now();
            let seen = test.block_on(async move {
                let mut ticks = interval(ms(10));
                ticks.tick().await;
                if polled {
                    assert!(futures::poll!(ticks.next()).is_pending()); // armed
                }
                sleep(ms(25)).await; // the tick of 10 ms is due, and fired if it was armed
                reset(&mut ticks);
                let mut seen = Vec::new();
                for _ in 0..3 {
                    seen.push((ticks.tick().await - start).as_millis());
                    assert!(now() >= start + ms(*seen.last().unwrap() as u64), "early");
                }
                seen
            });
            assert_eq!(seen, expected, "{name}, polled: {polled}");
        }
    }
}

#[test]
fn a_reset_moves_a_tick_that_is_waited_for_without_another_poll() {
    let mut test = TestLoop::new();
    let start = test.now();
    let ticks = Arc::new(Mutex::new(interval_at(start + ms(10), ms(10))));
    let (tx, rx) = mpsc::channel();
    let waited_for = Arc::clone(&ticks);
    drop(test.spawn(async move {
        let tick = std::future::poll_fn(|cx| waited_for.lock().unwrap().poll_tick(cx));
        tx.send(tick.await - start).unwrap();
    }));
    test.advance(ms(9));
    ticks.lock().unwrap().reset();
    test.advance(ms(9));
    assert!(rx.try_recv().is_err(), "it is moved to 19 ms");
    ticks.lock().unwrap().reset_after(Duration::MAX);
    test.advance(ms(1000));
    assert!(rx.try_recv().is_err(), "and then to no time at all");
    ticks.lock().unwrap().reset_immediately();
    let seen = test.block_on(async {
        sleep(ms(1)).await;
        std::future::poll_fn(|cx| ticks.lock().unwrap().poll_tick(cx)).await - start
    });
    assert_eq!(seen, ms(1018), "it is stopped no longer");
}

#[test]
fn a_reset_beside_a_test_loop_counts_on_the_clock_that_polls() {
    within(|| {
        let mut test = TestLoop::new();
        test.advance(Duration::from_secs(3600));
        // One for a real loop, one for the test loop; both are reset here.
        let [mut real, mut virtual_one] = [(); 2].map(|()| interval(ms(1)));
        real.reset();
        virtual_one.reset();
        let group = EventLoopGroup::new(1).unwrap();
        let start = Instant::now();
        let tick = block_on(group.spawn(async move { real.tick().await })).unwrap();
        assert!(tick <= start + ms(1) && Instant::now() >= tick);
        let tick = test.block_on(async { virtual_one.tick().await });
        assert_eq!(tick, test.now());
        assert_eq!(test.elapsed(), Duration::from_secs(3600) + ms(1));
    });
}

#[test]
fn a_sleep_is_elapsed_from_its_deadline_on_polled_or_not() {
    let mut test = TestLoop::new();
    let start = test.now();
    let beside = sleep(ms(10));
    test.block_on(async move {
        let never_polled = sleep(ms(10));
        let mut polled = sleep(ms(10));
        assert!(futures::poll!(&mut polled).is_pending());
        sleep_until(start + ms(9)).await;
        assert!(
            ![&beside, &never_polled, &polled]
                .map(Sleep::is_elapsed)
                .contains(&true)
        );
        sleep_until(start + ms(10)).await;
        assert_eq!(
            [&beside, &never_polled, &polled].map(Sleep::is_elapsed),
            [true; 3]
        );
        assert!(futures::poll!(&mut polled).is_ready());
        assert!(polled.is_elapsed(), "also once it was ready");
        polled.reset(start + ms(11));
        assert!(!polled.is_elapsed());
        assert!(!sleep(Duration::MAX).is_elapsed());
    });
}

#[test]
#[should_panic(expected = "period of an interval must be above zero")]
fn an_interval_of_zero_is_refused() {
    let _ = interval(Duration::ZERO);
}

#[test]
fn a_self_waking_task_does_not_starve_a_timer() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let restless = group.spawn(async {
            loop {
                loopgroup::yield_now().await;
            }
        });
        block_on(group.spawn(sleep(ms(2)))).unwrap();
        restless.abort();
    });
}

#[test]
fn ten_thousand_self_waking_tasks_do_not_starve_a_timer() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        for _ in 0..10_000 {
            drop(group.spawn(async {
                loop {
                    loopgroup::yield_now().await;
                }
            }));
        }
        block_on(group.spawn(sleep(Duration::from_micros(10)))).unwrap();
        let report = group.shutdown_now().wait();
        assert_eq!(report.cancelled(), 10_000);
    });
}

#[test]
fn a_hundred_thousand_due_timers_do_not_starve_a_task() {
    let mut test = TestLoop::new();
    let deadline = test.now() + ms(1);
    let fired = Arc::new(AtomicUsize::new(0));
    for _ in 0..100_000 {
        let fired = Arc::clone(&fired);
        drop(test.spawn(async move {
            sleep_until(deadline).await;
            fired.fetch_add(1, Ordering::SeqCst);
        }));
    }
    test.run_until_stalled();
    // A task that looks at every turn how far the timers are.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (fired_too, seen_too) = (Arc::clone(&fired), Arc::clone(&seen));
    drop(test.spawn(async move {
        while fired_too.load(Ordering::SeqCst) < 100_000 {
            seen_too
                .lock()
                .unwrap()
                .push(fired_too.load(Ordering::SeqCst));
            loopgroup::yield_now().await;
        }
    }));
    test.advance(ms(1));
    assert_eq!(fired.load(Ordering::SeqCst), 100_000);
    assert!(seen.lock().unwrap().len() > 50, "it ran all the while");
}

#[test]
fn more_tasks_than_a_slice_do_not_wait_for_a_far_timer() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let far = group.spawn(sleep(Duration::from_secs(60)));
        let release = util::stall(group.next());
        let tasks: Vec<_> = (0..5_000).map(|_| group.spawn(async {})).collect();
        release.open();
        for task in tasks {
            block_on(task).unwrap();
        }
        assert!(!far.is_finished());
        far.abort();
    });
}

#[test]
fn a_far_timer_does_not_hold_a_shutdown() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let waiting = group.spawn(sleep(Duration::from_secs(3600)));
        block_on(group.spawn(async {})).unwrap();
        let report = group
            .shutdown_gracefully_with(Duration::ZERO, Duration::from_secs(3600))
            .unwrap()
            .wait();
        assert_eq!((report.completed(), report.cancelled()), (1, 1));
        assert!(block_on(waiting).unwrap_err().is_cancelled());
    });
}

#[test]
fn timers_that_fire_while_they_are_dropped_and_loops_end_are_harmless() {
    within(|| {
        for round in 0..100 {
            let group = EventLoopGroup::new(2).unwrap();
            let (tx, rx) = mpsc::channel();
            for number in 0..20_u64 {
                let tx = tx.clone();
                drop(group.spawn(async move {
                    let mut wait = sleep(Duration::from_micros(50 * number));
                    let polled = futures::poll!(&mut wait);
                    let _ = tx.send(wait); // dropped elsewhere, armed here
                    let _ = polled;
                    sleep(Duration::from_micros(40 * number)).await;
                }));
            }
            drop(tx);
            let dropper = thread::spawn(move || rx.into_iter().count());
            if round % 2 == 0 {
                thread::yield_now();
            }
            let report = group.shutdown_now().wait();
            assert_eq!(report.accepted(), report.completed() + report.cancelled());
            drop(group);
            dropper.join().unwrap();
        }
    });
}

#[test]
fn a_sleep_that_outlives_its_loop_is_polled_elsewhere() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let armed = group.spawn(async {
            let mut wait = sleep(ms(20));
            assert!(futures::poll!(&mut wait).is_pending());
            wait
        });
        let wait = block_on(armed).unwrap();
        group.shutdown_now().wait();
        block_on(wait);
    });
}

#[test]
fn a_poll_after_ready_is_ready_again() {
    within(|| {
        block_on(async {
            let mut wait = sleep(Duration::ZERO);
            (&mut wait).await;
            assert_eq!(futures::poll!(&mut wait), Poll::Ready(()));
        });
    });
}

#[test]
fn timers_dropped_elsewhere_while_they_fire_and_loops_end_leave_no_waker_behind() {
    const TIMERS: usize = 40;
    within(|| {
        for round in 0..60 {
            let group = EventLoopGroup::new(2).unwrap();
            let drops = DropCount::new();
            let (tx, rx) = mpsc::channel();
            let mut wakers = Vec::new();
            for number in 0..TIMERS {
                let (counting, waker) = counting_waker(&drops);
                wakers.push(Arc::downgrade(&counting));
                drop(counting);
                let tx = tx.clone();
                drop(group.spawn(async move {
                    let mut wait = sleep(Duration::from_micros(10 * (number as u64 % 16)));
                    let _ = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
                    drop(waker);
                    let _ = tx.send((number, wait));
                }));
            }
            drop(tx);
            let elsewhere = thread::spawn(move || {
                for (number, mut wait) in rx {
                    // Dropped, or moved, on a thread that has no timers of its own.
                    match number % 3 {
                        0 => drop(wait),
                        1 => wait.reset(Instant::now() + ms(60_000)),
                        _ => block_on(wait),
                    }
                }
            });
            if round % 2 == 0 {
                thread::yield_now();
            }
            let report = group.shutdown_now().wait();
            assert_eq!(report.accepted(), report.completed() + report.cancelled());
            elsewhere.join().unwrap();
            assert_eq!(drops.get(), TIMERS, "every waker is gone");
            assert!(wakers.iter().all(|waker| waker.upgrade().is_none()));
        }
    });
}

#[test]
fn timers_may_be_made_polled_and_reset_while_their_task_is_torn_down() {
    struct Timer {
        wait: Option<Sleep>,
        waker: Waker,
    }
    impl Drop for Timer {
        fn drop(&mut self) {
            let mut cx = Context::from_waker(&self.waker);
            let mut wait = self.wait.take().unwrap();
            wait.reset(Instant::now() + ms(60_000));
            assert!(Pin::new(&mut wait).poll(&mut cx).is_pending());
            let mut fresh = sleep(ms(60_000));
            assert!(Pin::new(&mut fresh).poll(&mut cx).is_pending());
            // Left armed: its end is the loop's.
            thread::spawn(move || drop(fresh)).join().unwrap();
        }
    }
    within(|| {
        let drops = DropCount::new();
        let (counting, waker) = counting_waker(&drops);
        let group = EventLoopGroup::new(1).unwrap();
        let armed = util::Door::new();
        for _ in 0..2 {
            let (armed, waker) = (armed.clone(), waker.clone());
            drop(group.spawn(async move {
                let mut wait = sleep(ms(60_000));
                assert!(futures::poll!(&mut wait).is_pending());
                let wait = Some(wait);
                let _timer = Timer { wait, waker };
                armed.open();
                std::future::pending::<()>().await;
            }));
        }
        armed.pass();
        let report = group.shutdown_now().wait();
        assert_eq!((report.cancelled(), report.panicked()), (2, 0));
        drop(waker);
        assert_eq!(counting.wakes.load(Ordering::SeqCst), 0);
        assert_eq!(Arc::strong_count(&counting), 1, "the loop has let go of it");
    });
}

#[test]
fn a_sleep_in_a_thread_local_outlives_its_loop() {
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<Sleep>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    within(|| {
        let drops = DropCount::new();
        let (counting, waker) = counting_waker(&drops);
        let keep = move || {
            let mut wait = sleep(ms(60_000));
            let polled = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            KEPT.with_borrow_mut(|kept| kept.push(wait));
        };
        let group = EventLoopGroup::new(1).unwrap();
        let kept = keep.clone();
        block_on(group.next().submit(kept)).unwrap();
        thread::spawn(move || block_on(async move { keep() }))
            .join()
            .unwrap();
        group.shutdown_now().wait();
        assert_eq!(Arc::strong_count(&counting), 1);
        // Told at the end of the loop to look again; at that of the thread if its timers went first.
        let wakes = counting.wakes.load(Ordering::SeqCst);
        assert!((1..=2).contains(&wakes), "{wakes} wakes");
    });
}

#[test]
fn a_sleep_wanders_between_loops_and_blocked_threads_and_is_never_early() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        let deadline = Instant::now() + ms(30);
        let mut wait = sleep_until(deadline);
        let mut hop = 0;
        let ready = loop {
            hop += 1;
            let poll = async move {
                let polled = futures::poll!(&mut wait);
                (polled, wait, Instant::now())
            };
            let (polled, back, now) = match hop % 4 {
                3 => block_on(poll),
                index => block_on(group.spawn_on(index, poll)).unwrap(),
            };
            wait = back;
            assert!(polled.is_pending() || now >= deadline, "early");
            if polled.is_ready() {
                break now;
            }
            assert!(now < deadline + Duration::from_secs(20), "never ready");
        };
        assert!(ready >= deadline && hop > 1);
    });
}

/// Timers that are polled when they are woken and not before.
fn an_hour() -> FuturesUnordered<Sleep> {
    FuturesUnordered::from_iter([sleep_until(Instant::now() + Duration::from_secs(3600))])
}

#[test]
fn a_timer_whose_loop_has_ended_fires_where_it_was_carried() {
    within(|| {
        let mut timers = an_hour();
        TestLoop::new().block_on(async {
            assert!(futures::poll!(timers.next()).is_pending());
        });
        let mut elsewhere = TestLoop::new();
        elsewhere.block_on(timers.next()).unwrap();
        assert!(elsewhere.elapsed() > Duration::from_secs(3500));
    });
}

#[test]
fn a_timer_whose_thread_has_ended_fires_where_it_was_carried() {
    within(|| {
        let mut timers = an_hour();
        let armed = thread::spawn(move || {
            assert!(block_on(async { futures::poll!(timers.next()) }).is_pending());
            timers
        });
        let mut timers = armed.join().unwrap();
        let mut elsewhere = TestLoop::new();
        elsewhere.block_on(timers.next()).unwrap();
        assert!(elsewhere.elapsed() > Duration::from_secs(3500));
    });
}

#[test]
fn a_main_future_whose_timers_are_always_due_comes_to_its_end() {
    async fn many() {
        let past = now();
        sleep(ms(1)).await;
        for _ in 0..1000 {
            sleep_until(past).await;
        }
    }
    within(|| {
        block_on(many());
        loopgroup::run(many()).unwrap();
        TestLoop::new().block_on(many());
    });
}
