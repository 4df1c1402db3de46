//! The rules of the shutdown, each proved to the nanosecond on a loop that the test drives.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loopgroup::testing::{TestGroup, TestLoop};
use loopgroup::time::{interval, now, sleep, sleep_until, timeout};
use loopgroup::{EndCause, EventLoopGroup, LoopState, block_on};

use crate::util::{self, restless, secs};

const NANO: Duration = Duration::from_nanos(1);

/// Asks for a graceful shutdown and has the loop notice it.
fn shut_down(test: &mut TestLoop, quiet: Duration, timeout: Duration) {
    drop(test.shutdown_gracefully_with(quiet, timeout).unwrap());
    test.run_until_stalled();
}

fn cause(test: &TestLoop) -> Option<EndCause> {
    test.report().map(|report| report.loops()[0].cause())
}

#[test]
fn an_idle_loop_ends_exactly_at_the_end_of_its_quiet_period() {
    let mut test = TestLoop::new();
    shut_down(&mut test, secs(2), secs(15));
    assert_eq!(test.state(), LoopState::ShuttingDown);
    test.advance(secs(2) - NANO);
    assert_eq!(cause(&test), None);
    test.advance(NANO);
    assert_eq!(cause(&test), Some(EndCause::Quiet));
    assert_eq!(test.report().unwrap().elapsed(), secs(2));
    assert_eq!(test.state(), LoopState::Terminated);
}

#[test]
fn every_task_starts_the_quiet_period_again() {
    let mut test = TestLoop::new();
    shut_down(&mut test, secs(2), secs(60));
    for _ in 0..10 {
        test.advance(secs(1));
        let task = test.spawn(async {});
        test.run_until_stalled();
        assert!(task.is_finished(), "accepted and run while shutting down");
    }
    test.advance(secs(2) - NANO);
    assert_eq!(cause(&test), None);
    test.advance(NANO);
    assert_eq!(cause(&test), Some(EndCause::Quiet));
    assert_eq!(test.report().unwrap().elapsed(), secs(12));
}

#[test]
fn the_timeout_ends_a_loop_that_never_comes_to_rest() {
    let mut test = TestLoop::new();
    let restless = test.spawn(async {
        loop {
            loopgroup::yield_now().await;
        }
    });
    let end = test.shutdown_gracefully_with(secs(2), secs(15)).unwrap();
    test.advance(secs(15) - NANO);
    assert_eq!(cause(&test), None);
    test.advance(NANO);
    assert_eq!(cause(&test), Some(EndCause::Timeout));
    assert_eq!(end.wait().elapsed(), secs(15));
    let error: Result<(), _> = test.block_on(restless);
    assert!(error.unwrap_err().is_cancelled());
}

#[test]
fn the_timeout_ends_a_loop_whose_tasks_spawn_tasks_for_ever() {
    fn again() {
        drop(loopgroup::try_spawn_local(async { again() }));
    }
    let mut test = TestLoop::new();
    drop(test.spawn(async { again() }));
    shut_down(&mut test, secs(1), secs(3));
    test.advance(secs(3));
    let report = test.report().unwrap();
    assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
    assert_eq!(
        report.accepted(),
        report.completed() + report.cancelled(),
        "what was queued at the end is accounted for"
    );
}

#[test]
fn a_task_that_waits_longer_than_the_quiet_period_is_cancelled_at_its_end() {
    let mut test = TestLoop::new();
    let slow = test.spawn(sleep(secs(10)));
    test.run_until_stalled();
    shut_down(&mut test, secs(2), secs(15));
    test.advance(secs(2));
    assert_eq!(cause(&test), Some(EndCause::Quiet));
    assert!(test.block_on(slow).unwrap_err().is_cancelled());
}

#[test]
fn a_drain_waits_for_that_task_instead() {
    let mut test = TestLoop::new();
    let slow = test.spawn(sleep(secs(10)));
    test.run_until_stalled();
    drop(test.drain(secs(60)));
    test.advance(secs(10) - NANO);
    assert_eq!(cause(&test), None);
    test.advance(NANO);
    assert_eq!(cause(&test), Some(EndCause::Drained));
    assert!(test.block_on(slow).is_ok());
}

#[test]
fn a_drain_that_takes_too_long_ends_at_its_timeout() {
    let mut test = TestLoop::new();
    let stuck = test.spawn(std::future::pending::<()>());
    drop(test.drain(secs(60)));
    test.advance(secs(60) - NANO);
    assert_eq!(cause(&test), None);
    test.advance(NANO);
    assert_eq!(cause(&test), Some(EndCause::Timeout));
    assert!(test.block_on(stuck).unwrap_err().is_cancelled());
}

#[test]
fn shutdown_now_shortens_what_is_under_way() {
    for drain in [false, true] {
        let mut test = TestLoop::new();
        drop(test.spawn(std::future::pending::<()>()));
        if drain {
            drop(test.drain(secs(600)));
        } else {
            drop(test.shutdown_gracefully_with(secs(300), secs(600)).unwrap());
        }
        test.advance(secs(1));
        assert_eq!(cause(&test), None);
        drop(test.shutdown_now());
        test.run_until_stalled();
        assert_eq!(cause(&test), Some(EndCause::Now));
        assert_eq!(test.report().unwrap().elapsed(), secs(1));
    }
}

#[test]
fn later_terms_do_not_change_the_first_ones() {
    let mut test = TestLoop::new();
    shut_down(&mut test, secs(5), secs(60));
    shut_down(&mut test, secs(1), secs(1));
    drop(test.drain(secs(1)));
    test.advance(secs(5) - NANO);
    assert_eq!(cause(&test), None);
    test.advance(NANO);
    assert_eq!(cause(&test), Some(EndCause::Quiet));
}

#[test]
fn hooks_run_when_the_queue_first_runs_empty_and_start_the_quiet_period_again() {
    let mut test = TestLoop::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |text: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(text)
    };
    test.add_shutdown_hook(note("hook 1")).unwrap();
    let ev = test.group().next().clone();
    let late = note("hook 3, added by 2");
    let second = note("hook 2");
    test.add_shutdown_hook(move || {
        second();
        ev.add_shutdown_hook(late).unwrap();
    })
    .unwrap();
    let queued = note("task");
    test.execute(queued).unwrap();
    test.advance(secs(5)); // hooks wait for the shutdown
    shut_down(&mut test, secs(2), secs(60));
    assert_eq!(
        *order.lock().unwrap(),
        ["task", "hook 1", "hook 2", "hook 3, added by 2"]
    );
    test.advance(secs(2));
    assert_eq!(test.report().unwrap().hooks_run(), 3);
}

#[test]
fn a_loop_ends_as_idle_once_nobody_can_submit() {
    let mut test = TestLoop::new();
    let handle = (*test).clone();
    let bound = test.bind(|| Rc::new(1));
    test.run_until_stalled();
    shut_down(&mut test, secs(100), secs(200));
    // Each of three handles could still submit; with the last one the wait is over.
    test.advance(secs(10));
    test.let_go();
    test.advance(secs(10));
    drop(handle);
    test.advance(secs(10));
    assert_eq!(cause(&test), None);
    drop(bound);
    test.run_until_stalled();
    assert_eq!(cause(&test), Some(EndCause::Idle));
    assert_eq!(test.report().unwrap().elapsed(), secs(30));
}

#[test]
fn a_live_task_keeps_a_loop_from_being_idle() {
    let mut test = TestLoop::new();
    let task = test.spawn(sleep(secs(10)));
    test.run_until_stalled();
    shut_down(&mut test, secs(100), secs(200));
    test.let_go();
    test.advance(secs(10) - NANO);
    assert_eq!(cause(&test), None);
    test.advance(NANO);
    assert_eq!(cause(&test), Some(EndCause::Idle));
    assert!(test.block_on(task).is_ok());
}

#[test]
fn letting_the_last_handle_go_is_a_request_without_quiet_period() {
    let mut test = TestLoop::new();
    let waiting = test.spawn(std::future::pending::<()>());
    test.run_until_stalled();
    test.let_go();
    assert_eq!(test.state(), LoopState::ShuttingDown);
    test.run_until_stalled();
    assert_eq!(cause(&test), Some(EndCause::Quiet));
    assert!(test.block_on(waiting).unwrap_err().is_cancelled());
}

#[test]
fn quiet_zero_runs_what_is_queued_and_ends() {
    let mut test = TestLoop::new();
    let runs = Arc::new(AtomicUsize::new(0));
    for _ in 0..3_000 {
        let runs = Arc::clone(&runs);
        drop(test.spawn(async move {
            loopgroup::yield_now().await;
            runs.fetch_add(1, Ordering::SeqCst);
        }));
    }
    shut_down(&mut test, Duration::ZERO, secs(15));
    assert_eq!(runs.load(Ordering::SeqCst), 3_000);
    assert_eq!(cause(&test), Some(EndCause::Quiet));
    assert_eq!(test.elapsed(), Duration::ZERO);
}

#[test]
fn driving_a_test_loop_uses_no_real_time() {
    let mut test = TestLoop::new();
    let start = std::time::Instant::now();
    let task = test.spawn(async {
        for _ in 0..1_000 {
            sleep(secs(3600)).await;
        }
    });
    test.block_on(task).unwrap();
    assert_eq!(test.elapsed(), secs(3_600_000));
    assert!(
        start.elapsed() < secs(30),
        "forty-one days took {:?}",
        start.elapsed()
    );
}

/// Lets real time pass; a test loop's clock stands still meanwhile.
fn spend(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn the_clock_of_a_test_loop_is_not_that_of_real_timers_made_beside_it() {
    util::within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let long = Duration::from_millis(20);
        let real = |ahead: bool| {
            let mut test = TestLoop::new();
            if ahead {
                test.advance(secs(24 * 3600));
            }
            spend(long); // else the clocks would hardly differ
            let mut waits: Vec<Duration> = Vec::new();
            let mut note = |start: Instant| waits.push(start.elapsed());
            let start = Instant::now();
            block_on(sleep(long));
            note(start);
            let start = Instant::now();
            block_on(async move { sleep(long).await });
            note(start);
            let start = Instant::now();
            block_on(group.spawn(sleep(long))).unwrap();
            note(start);
            let start = Instant::now();
            let late = block_on(timeout(long, std::future::pending::<()>()));
            assert!(late.is_err());
            note(start);
            let start = Instant::now();
            let mut ticks = interval(long);
            block_on(async {
                assert!(ticks.tick().await >= start);
                ticks.tick().await;
            });
            note(start);
            block_on(async {
                let start = now();
                sleep(long).await;
                waits.push(now() - start);
            });
            assert!(waits.iter().all(|&wait| wait >= long), "{waits:?}");
            drop(test);
        };
        real(false);
        real(true);
    });
}

#[test]
fn a_sleep_made_by_the_test_counts_by_the_clock_of_the_test_loop_that_polls_it() {
    let hour = secs(3600);
    let mut first = TestLoop::new();
    first.advance(24 * hour);
    let mut second = TestLoop::new();
    spend(Duration::from_millis(2));
    let wait = sleep(hour);
    assert_eq!(wait.deadline(), Some(second.now() + hour));
    let ours = second.spawn(wait);
    let beat = second.spawn(async move {
        let mut ticks = interval(hour);
        ticks.tick().await;
        ticks.tick().await;
    });
    let bounded = second.spawn(timeout(hour, std::future::pending::<()>()));
    second.advance(hour - NANO);
    assert_eq!(second.pending(), 3);
    second.advance(NANO);
    assert!(ours.is_finished() && beat.is_finished() && bounded.is_finished());
    // The other one's clock is a day ahead: there it counts from the first poll.
    let theirs = first.spawn(sleep(hour));
    first.run_until_stalled();
    first.advance(hour - NANO);
    assert!(!theirs.is_finished());
    first.advance(NANO);
    assert!(theirs.is_finished());
}

#[test]
fn a_test_loop_is_a_loop_while_it_is_driven_and_only_then() {
    let mut test = TestLoop::new();
    assert!(loopgroup::EventLoop::current().is_none());
    assert!(!test.in_event_loop());
    let ev = (*test).clone();
    let inside = test.submit(move || ev.in_event_loop());
    assert!(test.block_on(inside).unwrap());
    assert!(loopgroup::EventLoop::current().is_none());
    // A local future, and what it holds, may stay on the test's thread.
    let count = Rc::new(Cell::new(0));
    let counted = Rc::clone(&count);
    test.block_on(async move {
        loopgroup::spawn_local(async move { counted.set(1) })
            .await
            .unwrap();
    });
    assert_eq!(count.get(), 1);
}

#[test]
#[should_panic(expected = "waits for ever")]
fn a_future_that_nothing_can_wake_is_reported_not_waited_for() {
    TestLoop::new().block_on(std::future::pending::<()>());
}

#[test]
fn leftover_tasks_are_visible_and_cancelled_when_the_test_loop_goes() {
    let drops = util::DropCount::new();
    let mut test = TestLoop::new();
    for _ in 0..3 {
        let guard = drops.guard();
        drop(test.spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        }));
    }
    assert_eq!(test.pending(), 3);
    test.run_until_stalled();
    assert_eq!((test.pending(), test.live_tasks()), (3, 3));
    drop(test);
    assert_eq!(drops.get(), 3);
}

#[test]
fn submissions_from_other_threads_reach_a_test_loop() {
    let mut test = TestLoop::new();
    let ev = (*test).clone();
    let handle = std::thread::spawn(move || ev.spawn(async { 7 }))
        .join()
        .unwrap();
    assert_eq!(test.block_on(handle).unwrap(), 7);
}

#[test]
fn what_the_test_submits_before_block_on_runs_before_what_it_submits_inside() {
    let mut test = TestLoop::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |number: u32| {
        let order = Arc::clone(&order);
        async move { order.lock().unwrap().push(number) }
    };
    let ev = (*test).clone();
    drop(test.spawn(note(1)));
    test.block_on(async {
        drop(ev.spawn(note(2)));
        drop(loopgroup::spawn_local(note(3)));
        loopgroup::yield_now().await;
    });
    test.run_until_stalled();
    assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn a_test_loop_cannot_be_driven_from_a_task() {
    util::within(|| {
        let group = loopgroup::EventLoopGroup::new(1).unwrap();
        let error = loopgroup::block_on(group.spawn(async {
            TestLoop::new().run_until_stalled();
        }))
        .unwrap_err();
        assert!(
            error.to_string().contains("drive it from the test"),
            "{error}"
        );
    });
}

#[test]
fn polls_are_counted_to_the_end_of_a_loop() {
    let mut test = TestLoop::new();
    for _ in 0..3 {
        drop(test.spawn(loopgroup::yield_now()));
    }
    drop(test.drain(secs(1)));
    assert_eq!(test.run_until_stalled(), 6);
    assert_eq!(cause(&test), Some(EndCause::Drained));
    assert_eq!(test.run_until_stalled(), 0);
}

#[test]
fn a_restless_task_does_not_hold_the_end_of_its_test_loop_or_test_group() {
    util::within(|| {
        let (one, several) = (TestLoop::new(), TestGroup::seeded(1, 2));
        let tasks = [one.spawn(restless()), several.group().spawn(restless())];
        drop((one, several));
        for task in tasks {
            assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_test_loop_that_goes_inside_another_loop_leaves_that_ones_books_alone() {
    util::within(|| {
        let mut one = TestLoop::new();
        let mut several = TestGroup::seeded(1, 2);
        let theirs = [
            one.spawn(restless()),
            several.group().spawn_on(1, restless()),
        ];
        one.turn();
        while several.group().loops()[1].live_tasks() == 0 {
            several.step();
        }
        let drops = util::DropCount::new();
        let guard = drops.guard();
        let (ours, ev) = loopgroup::run(async move {
            let ours = loopgroup::spawn_local(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
            loopgroup::yield_now().await;
            let ev = loopgroup::EventLoop::current().unwrap();
            drop((one, several));
            assert!(ev.in_event_loop());
            assert_eq!((ev.live_tasks(), ev.metrics().cancelled()), (1, 0));
            (ours, ev)
        })
        .unwrap();
        assert_eq!(drops.get(), 1);
        for task in theirs.into_iter().chain([ours]) {
            assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
        }
        assert_eq!(ev.termination().wait().cancelled(), 1);
    });
}

#[test]
fn loops_of_a_test_group_pass_messages_in_virtual_time() {
    let mut test = TestGroup::seeded(3, 4);
    let handles: Vec<_> = (0..4)
        .map(|index| {
            let group = test.group().clone();
            test.group().spawn_on(index, async move {
                sleep(secs(10)).await;
                group
                    .spawn_on((index + 1) % 4, sleep(secs(10)))
                    .await
                    .unwrap();
            })
        })
        .collect();
    test.advance(secs(20) - NANO);
    assert!(handles.iter().all(|handle| !handle.is_finished()));
    test.advance(NANO);
    assert!(handles.iter().all(|handle| handle.is_finished()));
    assert_eq!(test.pending(), 0);
}

#[test]
fn one_seed_is_one_interleaving() {
    let run = |seed| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut test = TestGroup::seeded(seed, 3);
        for task in 0..12 {
            let order = Arc::clone(&order);
            drop(test.group().spawn(async move {
                for step in 0..3 {
                    order.lock().unwrap().push((task, step));
                    sleep(Duration::from_millis(task % 4)).await;
                }
            }));
        }
        test.advance(secs(1));
        assert_eq!(test.pending(), 0);
        (test.trace(), std::mem::take(&mut *order.lock().unwrap()))
    };
    let mut orders = std::collections::HashSet::new();
    for seed in 0..50 {
        let first = run(seed);
        assert_eq!(first, run(seed), "seed {seed}");
        orders.insert(first.1);
    }
    assert!(orders.len() > 40, "{} different orders of 50", orders.len());
}

#[test]
fn loops_of_a_group_drain_together_so_that_tasks_can_submit_to_each_other() {
    for seed in 0..200 {
        let mut test = TestGroup::seeded(seed, 3);
        // Every loop has run once: one that never did would end at once.
        for index in 0..3 {
            drop(test.group().spawn_on(index, async {}));
        }
        test.run_until_stalled();
        let group = test.group().clone();
        let relay = test.group().spawn_on(0, async move {
            for hop in 1..=6 {
                sleep(secs(1)).await;
                group
                    .spawn_on(hop % 3, sleep(secs(1)))
                    .await
                    .expect("the others wait for this one");
            }
        });
        test.run_until_stalled();
        drop(test.group().drain(secs(60)));
        test.advance(secs(12) - NANO);
        assert!(test.report().is_none(), "seed {seed}");
        test.advance(NANO);
        assert!(relay.is_finished());
        let report = test.report().expect("drained");
        assert!(report.is_clean(), "seed {seed}: {report}");
        assert!(
            report
                .loops()
                .iter()
                .all(|one| one.cause() == EndCause::Drained)
        );
        assert_eq!(report.elapsed(), secs(12));
    }
}

#[test]
fn two_test_loops_on_one_thread_have_a_clock_each() {
    let mut first = TestLoop::new();
    let mut second = TestLoop::new();
    first.advance(secs(1_000));
    assert_eq!((first.elapsed(), second.elapsed()), (secs(1_000), secs(0)));
    // Made here, it is read on the clock of the loop that was made last, wherever it runs.
    assert_eq!(sleep(secs(5)).deadline(), Some(second.now() + secs(5)));
    let on_first = first.spawn(async { sleep(secs(5)).deadline() });
    let expected = Some(first.now() + secs(5));
    assert_eq!(first.block_on(on_first).unwrap(), expected);

    let waiting = second.spawn(sleep(secs(5)));
    second.advance(secs(5) - NANO);
    assert!(!waiting.is_finished());
    second.advance(NANO);
    assert!(waiting.is_finished());
    drop(second);
    assert_eq!(sleep(secs(5)).deadline(), Some(first.now() + secs(5)));
    // A task of one can wait for one of the other.
    let mut third = TestLoop::new();
    let later = third.spawn(sleep(secs(3)));
    let both = first.spawn(later);
    first.advance(secs(10));
    assert!(!both.is_finished());
    third.advance(secs(3));
    first.run_until_stalled();
    assert!(both.is_finished());
}

#[test]
fn a_test_loop_that_goes_takes_everything_along() {
    let drops = util::DropCount::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let mut test = TestLoop::new();
    let ev = (*test).clone();
    let held = |drops: &util::DropCount| {
        let guard = drops.guard();
        async move {
            let _guard = guard;
            sleep(secs(3_600)).await;
        }
    };
    let live = test.spawn(held(&drops));
    let guard = drops.guard();
    let scheduled = test.schedule(secs(3_600), move || drop(guard));
    let guard = drops.guard();
    let bound = test.bind(move || guard);
    let (counted, guard) = (Arc::clone(&ran), drops.guard());
    test.add_shutdown_hook(move || {
        drop(guard);
        counted.fetch_add(1, Ordering::SeqCst);
    })
    .unwrap();
    test.run_until_stalled();
    let queued = test.spawn(held(&drops)); // never polled
    drop(test);
    assert_eq!((drops.get(), ran.load(Ordering::SeqCst)), (5, 1));
    assert_eq!(drops.thread(), Some(std::thread::current().id()));
    for handle in [live, queued] {
        assert!(loopgroup::block_on(handle).unwrap_err().is_cancelled());
    }
    let error = loopgroup::block_on(scheduled).unwrap_err();
    assert!(error.is_cancelled());
    let error = loopgroup::block_on(bound.with(|_| ())).unwrap_err();
    assert!(error.is_rejected());
    assert_eq!(ev.state(), loopgroup::LoopState::Terminated);
    assert!(loopgroup::block_on(ev.spawn(async {})).is_err());
}

#[test]
fn a_driven_task_that_panics_is_its_own_affair() {
    let mut test = TestLoop::new();
    let broken = test.spawn(async {
        sleep(secs(1)).await;
        std::panic::resume_unwind(Box::new("broken"));
    });
    let whole = test.spawn(sleep(secs(2)));
    test.advance(secs(2));
    assert!(whole.is_finished());
    assert!(test.block_on(broken).unwrap_err().is_panic());
    // Also the future of `block_on` itself: the loop is as good as before.
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        test.block_on(async {
            sleep(secs(1)).await;
            std::panic::resume_unwind(Box::new("broken"));
        })
    }));
    assert!(unwound.is_err());
    assert!(loopgroup::EventLoop::current().is_none());
    test.block_on(sleep(secs(1)));
    assert_eq!(test.elapsed(), secs(4));
}

#[test]
fn a_century_of_days_is_counted_exactly() {
    let day = secs(24 * 3600);
    let mut test = TestLoop::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let beat = test
        .schedule_at_fixed_rate(day, day, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    test.advance(Duration::MAX); // as far as it makes sense: a hundred years
    assert_eq!(test.elapsed(), day * 36_500);
    assert_eq!(runs.load(Ordering::SeqCst), 36_500);
    assert!(beat.cancel());
    test.advance(day);
    assert_eq!(runs.load(Ordering::SeqCst), 36_500);
}

#[test]
fn a_crowd_of_timers_at_one_moment_fires_at_that_moment() {
    const CROWD: usize = 220_000; // more than a test loop's turns have patience for
    let mut test = TestLoop::new();
    let late = Arc::new(AtomicUsize::new(0));
    let due = test.now() + secs(10);
    for _ in 0..CROWD {
        let late = Arc::clone(&late);
        drop(test.spawn(async move {
            sleep_until(due).await;
            if sleep(Duration::ZERO).deadline() != Some(due) {
                late.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    test.advance(secs(20));
    assert_eq!((test.pending(), late.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn threads_that_submit_while_a_test_drives_lose_nothing() {
    util::within(|| {
        let mut test = TestLoop::new();
        let ran = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (ev, ran) = ((*test).clone(), Arc::clone(&ran));
                std::thread::spawn(move || {
                    for _ in 0..1_000 {
                        let ran = Arc::clone(&ran);
                        drop(ev.spawn(async move {
                            loopgroup::yield_now().await;
                            ran.fetch_add(1, Ordering::SeqCst);
                        }));
                    }
                })
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            test.run_until_stalled();
            test.advance(secs(1));
        }
        test.run_until_stalled();
        assert_eq!((ran.load(Ordering::SeqCst), test.pending()), (3_000, 0));
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_group_of_any_seed_drains_to_the_last_task_that_its_tasks_submit() {
    /// Spawns two children on other loops, down to `depth`; all are awaited by nobody.
    fn grow(group: loopgroup::EventLoopGroup, depth: u32, ran: Arc<AtomicUsize>) {
        let here = loopgroup::EventLoop::current().unwrap().index();
        ran.fetch_add(1, Ordering::SeqCst);
        for child in 1..=2 {
            if depth > 0 {
                let (again, ran) = (group.clone(), Arc::clone(&ran));
                drop(group.spawn_on((here + child) % 3, async move {
                    sleep(Duration::from_millis(u64::from(depth) % 3)).await;
                    grow(again, depth - 1, ran);
                }));
            }
        }
    }
    for seed in 0..60 {
        let mut test = TestGroup::seeded(seed, 3);
        let ran = Arc::new(AtomicUsize::new(0));
        for index in 0..3 {
            let (group, ran) = (test.group().clone(), Arc::clone(&ran));
            drop(
                test.group()
                    .spawn_on(index, async move { grow(group, 5, ran) }),
            );
        }
        for _ in 0..seed % 7 {
            test.step();
        }
        drop(test.group().drain(secs(60)));
        test.advance(secs(1));
        let report = test.report().expect("drained");
        // Three trees of 1 + 2 + 4 + … + 32.
        assert_eq!(ran.load(Ordering::SeqCst), 3 * 63, "seed {seed}");
        assert_eq!((report.accepted(), report.completed()), (189, 189));
        assert_eq!(report.rejected(), 0, "seed {seed}");
    }
}
