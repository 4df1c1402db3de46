//! How tests drive loops: a future in virtual time over a whole group, one task at a time, and a group for
//! the length of one future.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures::channel::oneshot;
use loopgroup::testing::{TestGroup, TestLoop};
use loopgroup::time::{interval, now, sleep};
use loopgroup::{EndCause, EventLoop, EventLoopGroup, LoopState};

use crate::util::{DropCount, blow_up, ms, panic_of, restless, secs, within};

#[test]
fn a_test_group_drives_a_future_over_its_loops_in_virtual_time() {
    for seed in 0..50 {
        let mut test = TestGroup::seeded(seed, 3);
        let group = test.group().clone();
        let sum = test.block_on(async move {
            let start = now();
            let tasks: Vec<_> = (0..9)
                .map(|n| {
                    loopgroup::spawn(async move {
                        sleep(secs(n)).await;
                        EventLoop::current().unwrap().index()
                    })
                })
                .collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            assert_eq!(now() - start, secs(8));
            assert_eq!(group.len(), 3);
            sum
        });
        assert_eq!((sum, test.elapsed()), (9, secs(8)), "seed {seed}");
    }
}

#[test]
fn the_future_of_a_test_group_may_be_local_and_is_woken_by_its_own_loop() {
    let mut test = TestGroup::seeded(1, 2);
    let (tx, rx) = oneshot::channel();
    let text = Rc::new(Cell::new("nothing"));
    let seen = Rc::clone(&text);
    test.block_on(async move {
        // A wake between two futures of loop 0, which rings no bell.
        let local = loopgroup::spawn_local(async move {
            seen.set(rx.await.unwrap());
        });
        loopgroup::yield_now().await;
        tx.send("sent").unwrap();
        local.await.unwrap();
    });
    assert_eq!(text.get(), "sent");
    assert_eq!(test.elapsed(), Duration::ZERO);
}

#[test]
fn one_seed_is_one_interleaving_with_a_future_as_well() {
    let run = |seed| {
        let mut test = TestGroup::seeded(seed, 3);
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let log = Arc::clone(&order);
        test.block_on(async move {
            let tasks: Vec<_> = (0..6)
                .map(|n| {
                    let log = Arc::clone(&log);
                    loopgroup::spawn(async move {
                        loopgroup::yield_now().await;
                        log.lock().unwrap().push(n);
                    })
                })
                .collect();
            for _ in 0..5 {
                loopgroup::yield_now().await;
                log.lock().unwrap().push(100);
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        let order = order.lock().unwrap().clone();
        (test.trace(), order)
    };
    assert_eq!(run(3), run(3));
    let orders: std::collections::HashSet<_> = (0..20).map(|seed| run(seed).1).collect();
    assert!(
        orders.len() > 5,
        "the seed determines when the future is polled"
    );
}

#[test]
fn a_future_that_nothing_in_the_group_can_wake_is_reported_with_what_waits() {
    let mut test = TestGroup::seeded(1, 2);
    drop(test.group().spawn_on(1, std::future::pending::<()>()));
    drop(test.group().loops()[0].shutdown_now());
    let text = panic_of(|| test.block_on(std::future::pending::<()>()));
    assert!(text.contains("waits for ever"), "{text}");
    assert!(
        text.contains("loop 0 has ended, loop 1 has 1 waiting tasks"),
        "{text}"
    );
    // The group is usable afterwards.
    assert_eq!(test.block_on(async { 7 }), 7);
}

#[test]
fn a_restless_task_holds_neither_time_nor_the_future_of_a_test_group() {
    let mut test = TestGroup::seeded(1, 2);
    drop(test.group().spawn(restless()));
    test.block_on(async {
        let mut ticks = interval(secs(60));
        for _ in 0..3 {
            ticks.tick().await;
        }
    });
    assert_eq!(test.elapsed(), secs(120));
}

#[test]
fn a_test_group_may_shut_down_around_its_future() {
    let mut test = TestGroup::seeded(1, 2);
    let group = test.group().clone();
    let report = test.block_on(async move {
        let task = group.spawn(sleep(secs(5)));
        let report = group.drain(secs(10)).await;
        assert!(task.is_finished());
        report
    });
    assert!(
        report
            .loops()
            .iter()
            .all(|one| one.cause() == EndCause::Drained),
        "{report}"
    );
    assert_eq!(test.elapsed(), secs(5));
}

#[test]
fn a_test_group_cannot_be_driven_from_a_task() {
    let mut test = TestLoop::new();
    let text = test.block_on(async {
        let mut inner = TestGroup::seeded(1, 1);
        panic_of(|| inner.block_on(async {}))
    });
    assert!(text.contains("on the thread of an event loop"), "{text}");
}

#[test]
fn run_one_polls_one_task_in_the_order_of_a_turn() {
    let mut test = TestLoop::new();
    let order: Arc<Mutex<Vec<&str>>> = Arc::default();
    let log = |what: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(what)
    };
    test.execute_after_iteration(log("tail")).unwrap();
    test.execute(log("first")).unwrap();
    test.execute(log("second")).unwrap();
    let waiting = log("timer");
    drop(test.spawn(async move {
        sleep(ms(1)).await;
        waiting();
    }));
    let taken = || std::mem::take(&mut *order.lock().unwrap());
    assert!(test.run_one());
    assert_eq!(taken(), ["first"]);
    assert!(test.run_one());
    assert_eq!(taken(), ["second"]);
    assert!(test.run_one());
    assert!(taken().is_empty(), "the sleeper was polled, and waits");
    assert!(test.run_one());
    assert_eq!(taken(), ["tail"]);
    assert!(!test.run_one());
    test.advance(ms(2));
    assert_eq!(taken(), ["timer"]);
}

#[test]
fn run_one_fires_due_timers_first_and_one_at_a_time() {
    let mut test = TestLoop::new();
    let runs: Arc<Mutex<Vec<usize>>> = Arc::default();
    for n in 0..3 {
        let runs = Arc::clone(&runs);
        drop(test.schedule(Duration::ZERO, move || runs.lock().unwrap().push(n)));
    }
    let mut polls = 0;
    while test.run_one() {
        polls += 1;
        assert!(runs.lock().unwrap().len() <= polls);
    }
    assert_eq!(*runs.lock().unwrap(), [0, 1, 2]);
    assert_eq!(test.pending(), 0);
    // What another thread submits while the loop sleeps is found; an ended loop has nothing to run.
    test.run_until_stalled();
    let ev = (*test).clone();
    std::thread::spawn(move || ev.execute(|| ()).unwrap())
        .join()
        .unwrap();
    assert!(test.run_one() && !test.run_one());
    drop(test.shutdown_now());
    test.run_until_stalled();
    assert!(!test.run_one());
}

#[test]
fn a_scope_waits_for_the_tasks_that_are_left_and_reports() {
    within(|| {
        let (tx, rx) = mpsc::channel();
        let (value, report) = loopgroup::scope(2, async |group| {
            for _ in 0..4 {
                let tx = tx.clone();
                drop(loopgroup::spawn(async move {
                    sleep(ms(5)).await;
                    tx.send(()).unwrap();
                }));
            }
            group.len()
        })
        .unwrap();
        assert_eq!((value, report.completed(), report.is_clean()), (2, 4, true));
        drop(tx);
        assert_eq!(rx.iter().count(), 4);
        // A closure that returns a future will do, and it may borrow.
        let text = String::from("borrowed");
        let (length, _) = loopgroup::scope(1, |_| async { text.len() }).unwrap();
        assert_eq!(length, 8);
    });
}

#[test]
fn a_scope_cancels_what_is_left_at_its_bound() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(1);
        let ((), report) = builder
            .scope(ms(1), async |group| {
                drop(group.spawn(std::future::pending::<()>()));
            })
            .unwrap();
        assert_eq!(report.cancelled(), 1);
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
    });
}

#[test]
fn a_scope_whose_future_panics_cancels_its_tasks_first() {
    within(|| {
        let drops = DropCount::new();
        let (guard, counted) = (drops.guard(), drops.clone());
        let (tx, rx) = mpsc::channel();
        let text = panic_of(move || {
            loopgroup::scope(1, async |group| {
                let (begun, begins) = oneshot::channel();
                drop(group.spawn(async move {
                    let _guard = guard;
                    begun.send(()).unwrap();
                    std::future::pending::<()>().await;
                }));
                begins.await.unwrap();
                tx.send(group.next().clone()).unwrap();
                blow_up()
            })
            .map(|((), _)| ())
        });
        assert_eq!((text.as_str(), counted.get()), ("deliberate", 1));
        assert_eq!(rx.recv().unwrap().state(), LoopState::Terminated);
        drop(drops);
    });
}

#[test]
fn a_scope_with_bad_settings_or_on_a_loop_is_an_error() {
    within(|| {
        let error = loopgroup::scope(0, async |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let inner = loopgroup::run(async { loopgroup::scope(1, async |_| ()) });
        let error = inner.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock);
        assert!(error.to_string().contains("thread of its own"), "{error}");
    });
}
