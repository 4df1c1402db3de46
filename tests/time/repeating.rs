//! Closures that are not `Send`, that end themselves, that start at a deadline or with jitter; tail closures
//! that are taken back.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use loopgroup::testing::{TestGroup, TestLoop};
use loopgroup::{EventLoop, EventLoopGroup, RejectReason, Repeat, Scheduled, block_on, time};

use crate::util::{DropCount, HOUR, LONG, OnDrop, blow_up, ms, one_loop, thread_of, within};

fn here() -> EventLoop {
    EventLoop::current().unwrap()
}

#[test]
fn a_closure_runs_at_its_deadline_or_at_once_if_that_has_passed() {
    let mut test = TestLoop::new();
    test.advance(ms(50));
    let (past, soon) = (test.now() - ms(10), test.now() + ms(10));
    let late = test.schedule_at(past, time::now);
    let exact = test.schedule_at(soon, time::now);
    let start = test.now();
    assert_eq!(test.block_on(late).unwrap(), start);
    assert_eq!(test.block_on(exact).unwrap(), soon);
}

#[test]
fn a_closure_that_is_not_send_runs_on_its_loop_and_returns_what_is_not_send() {
    let mut test = TestLoop::new();
    let (value, elapsed) = test.block_on(async {
        let start = time::now();
        let text = Rc::new("local");
        let value = here().schedule_local(ms(5), move || text).await.unwrap();
        (value, time::now() - start)
    });
    assert_eq!((*value, elapsed), ("local", ms(5)));
}

#[test]
fn what_is_not_send_is_refused_on_every_other_thread_and_dropped_there() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let drops = DropCount::new();
        let ev = &group.loops()[0];
        let refuse = |scheduled: Scheduled<()>| {
            assert!(scheduled.is_finished() && !scheduled.cancel());
            let error = block_on(scheduled).unwrap_err();
            assert_eq!(error.reject_reason(), Some(RejectReason::NotOnLoop));
            assert!(error.to_string().contains("not Send"), "{error}");
        };
        let guard = drops.guard();
        let local = Rc::new(());
        refuse(ev.schedule_local(ms(1), move || drop((guard, local))));
        assert_eq!(drops.get(), 1);
        assert_eq!(drops.thread(), Some(std::thread::current().id()));
        let repeated = Rc::new(());
        let call = move || drop(Rc::clone(&repeated));
        refuse(
            ev.schedule_at_fixed_rate_local(ms(1), ms(1), call.clone())
                .unwrap(),
        );
        refuse(
            ev.schedule_with_fixed_delay_local(ms(1), ms(1), call)
                .unwrap(),
        );
        // A sibling is another thread as well.
        let ev = ev.clone();
        let sibling = group.loops()[1].submit(move || ev.schedule_local(ms(1), || ()));
        refuse(block_on(sibling).unwrap());
        assert_eq!(group.shutdown_now().wait().rejected(), 4);
    });
}

#[test]
fn a_shutdown_cancels_local_closures_and_drops_them_on_their_loop() {
    within(|| {
        let (group, ev) = one_loop();
        let home = thread_of(&ev);
        let drops = DropCount::new();
        let (one, other) = (drops.guard(), drops.guard());
        let own = ev.clone();
        let (handle, beat) = block_on(ev.submit(move || {
            let cell = Rc::new(Cell::new(0));
            let once = own.schedule_local(HOUR, move || drop((one, cell)));
            let keep = Rc::new(other);
            let beat = own.schedule_at_fixed_rate_local(HOUR, HOUR, move || drop(Rc::clone(&keep)));
            (once, beat.unwrap())
        }))
        .unwrap();
        let report = group.drain(LONG).wait();
        assert_eq!((drops.get(), drops.thread()), (2, Some(home)));
        assert!(block_on(handle).unwrap_err().is_cancelled());
        assert!(block_on(beat).unwrap_err().is_cancelled());
        assert_eq!(report.accepted(), report.completed() + report.cancelled());
    });
}

#[test]
fn a_local_closure_that_comes_too_late_is_refused_not_lost() {
    within(|| {
        let (group, ev) = one_loop();
        let (tx, rx) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        drop(ev.spawn(async move {
            let _end = OnDrop::new(move || {
                // The gate is closed: tasks are being cancelled.
                let late = here().schedule_local(Duration::ZERO, || ());
                tx.send(late).unwrap();
            });
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        }));
        begins.recv().unwrap();
        group.shutdown_now().wait();
        let error = block_on(rx.recv().unwrap()).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
    });
}

#[test]
fn a_local_closure_that_panics_is_contained() {
    within(|| {
        let (_group, ev) = one_loop();
        let own = ev.clone();
        let beat = ev.submit(move || {
            let local = Rc::new(());
            own.schedule_with_fixed_delay_local(ms(1), ms(1), move || {
                drop(Rc::clone(&local));
                blow_up();
            })
            .unwrap()
        });
        let beat = block_on(beat).unwrap();
        assert!(block_on(beat).unwrap_err().is_panic());
        thread_of(&ev);
    });
}

#[test]
fn a_repeated_closure_that_breaks_has_completed_with_its_value() {
    let mut test = TestLoop::new();
    let drops = DropCount::new();
    let guard = drops.guard();
    let mut runs = 0;
    let repeat = Repeat::at_fixed_rate(ms(10)).starting_in(ms(3));
    let count = test
        .repeat(repeat, move || {
            let _keep = &guard;
            runs += 1;
            if runs < 4 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(runs)
            }
        })
        .unwrap();
    test.advance(ms(32));
    assert_eq!(drops.get(), 0);
    assert!(!count.is_finished());
    test.advance(ms(1));
    assert_eq!(drops.get(), 1, "dropped with its last run");
    assert!(!count.cancel(), "too late");
    assert_eq!(test.block_on(count).unwrap(), 4);
    test.advance(ms(100));
    let metrics = test.metrics();
    assert_eq!((metrics.completed(), metrics.cancelled()), (1, 0));
}

#[test]
fn the_first_run_is_after_one_period_unless_it_is_said_otherwise() {
    let first = |repeat: fn(Instant) -> Repeat| {
        let mut test = TestLoop::new();
        let repeat = repeat(test.now());
        let start = test.now();
        let run = test.repeat(repeat, move || ControlFlow::Break(time::now() - start));
        test.block_on(run.unwrap()).unwrap()
    };
    assert_eq!(first(|_| Repeat::at_fixed_rate(ms(7))), ms(7));
    assert_eq!(first(|_| Repeat::with_fixed_delay(ms(8))), ms(8));
    assert_eq!(
        first(|_| Repeat::at_fixed_rate(ms(7)).starting_in(ms(0))),
        ms(0)
    );
    assert_eq!(
        first(|now| Repeat::at_fixed_rate(ms(7)).starting_at(now + ms(3))),
        ms(3)
    );
    assert_eq!(
        first(|now| Repeat::at_fixed_rate(ms(7)).starting_at(now)),
        ms(0)
    );
}

#[test]
fn zero_rhythms_of_every_kind_are_refused_by_name() {
    let mut test = TestLoop::new();
    let end = || ControlFlow::Break(());
    let error = test
        .repeat(Repeat::at_fixed_rate(Duration::ZERO), end)
        .unwrap_err();
    assert!(error.to_string().contains("period"), "{error}");
    let error = test.block_on(async {
        let local = here();
        let error = local.repeat_local(Repeat::with_fixed_delay(Duration::ZERO), end);
        assert!(
            local
                .schedule_at_fixed_rate_local(ms(1), Duration::ZERO, || ())
                .is_err()
        );
        error.unwrap_err()
    });
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("delay"), "{error}");
}

#[test]
fn a_closure_that_ends_itself_while_it_is_cancelled_is_one_of_the_two() {
    within(|| {
        let (_group, ev) = one_loop();
        let (mut cancelled, mut broken) = (0, 0);
        for round in 0..400 {
            let runs = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&runs);
            let drops = DropCount::new();
            let guard = drops.guard();
            let repeat = Repeat::with_fixed_delay(ms(1)).starting_in(Duration::ZERO);
            let once = ev
                .repeat(repeat, move || {
                    let _keep = &guard;
                    counted.fetch_add(1, Ordering::SeqCst);
                    ControlFlow::Break(7)
                })
                .unwrap();
            for _ in 0..round % 50 {
                std::hint::spin_loop();
            }
            let in_time = once.cancel();
            match block_on(once) {
                Ok(7) if !in_time => broken += 1,
                Err(error) if in_time && error.is_cancelled() => cancelled += 1,
                other => panic!("cancel said {in_time}, the handle {other:?}"),
            }
            thread_of(&ev);
            assert!(runs.load(Ordering::SeqCst) <= 1);
            assert_eq!(drops.get(), 1);
        }
        assert_eq!(cancelled + broken, 400);
    });
}

#[test]
fn a_closure_may_cancel_its_own_handle_and_break_in_one_run() {
    let mut test = TestLoop::new();
    let runs = test.block_on(async {
        let handle: Rc<RefCell<Option<Scheduled<()>>>> = Rc::default();
        let runs = Rc::new(Cell::new(0));
        let (own, count) = (Rc::clone(&handle), Rc::clone(&runs));
        let beat = here().repeat_local(Repeat::at_fixed_rate(ms(1)), move || {
            count.set(count.get() + 1);
            assert!(own.borrow().as_ref().unwrap().cancel());
            ControlFlow::Break(())
        });
        *handle.borrow_mut() = Some(beat.unwrap());
        time::sleep(ms(10)).await;
        let handle = handle.take().unwrap();
        assert!(
            handle.await.unwrap_err().is_cancelled(),
            "the cancellation came first"
        );
        runs.get()
    });
    assert_eq!((runs, test.pending()), (1, 0));
}

/// The delays of ten runs behind their points of a grid of 100 ms, with a jitter of 40 ms.
fn delays(seed: u64) -> Vec<Duration> {
    let mut test = TestGroup::seeded(seed, 2);
    let start = test.now();
    let runs: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let log = Arc::clone(&runs);
    let repeat = Repeat::at_fixed_rate(ms(100)).jitter(ms(40));
    let beat = test.group().next().repeat(repeat, move || {
        log.lock().unwrap().push(time::now());
        ControlFlow::<()>::Continue(())
    });
    test.advance(ms(1_050));
    assert!(beat.unwrap().cancel());
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), 10, "the grid is kept");
    let due = (1..).map(|n| start + n * ms(100));
    runs.iter().zip(due).map(|(run, due)| *run - due).collect()
}

#[test]
fn jitter_delays_each_run_within_its_limit_and_is_determined_by_the_seed() {
    let first = delays(7);
    assert!(first.iter().all(|delay| *delay <= ms(40)), "{first:?}");
    let distinct: std::collections::HashSet<_> = first.iter().collect();
    assert!(distinct.len() > 5, "{first:?}");
    assert_eq!(first, delays(7));
    assert_ne!(first, delays(8));
}

#[test]
fn jitter_differs_between_two_closures_and_may_be_longer_than_the_period() {
    let mut test = TestLoop::new();
    let runs: Vec<Arc<Mutex<Vec<Instant>>>> = (0..2).map(|_| Arc::default()).collect();
    for log in &runs {
        let log = Arc::clone(log);
        let repeat = Repeat::at_fixed_rate(ms(10)).jitter(ms(35));
        let beat = test.repeat(repeat, move || {
            log.lock().unwrap().push(time::now());
            ControlFlow::<()>::Continue(())
        });
        drop(beat.unwrap());
    }
    test.advance(ms(10_000));
    let (one, other) = (runs[0].lock().unwrap(), runs[1].lock().unwrap());
    assert_ne!(*one, *other);
    // A run waits for the previous one; none is lost.
    assert!(one.is_sorted() && one.len() >= 995, "{}", one.len());
    let repeat = Repeat::with_fixed_delay(ms(1)).jitter(Duration::MAX);
    let never = test.repeat(repeat, || ControlFlow::<()>::Continue(()));
    assert!(never.unwrap().cancel());
}

#[test]
fn a_tail_closure_is_taken_back_or_has_run() {
    within(|| {
        let (_group, ev) = one_loop();
        let home = thread_of(&ev);
        let drops = DropCount::new();
        let guard = drops.guard();
        let own = ev.clone();
        // Taken back in the iteration that would run it: on the loop, before its end.
        let taken = block_on(ev.submit(move || {
            let tail = own.submit_after_iteration(move || {
                let _keep = &guard;
                unreachable!("it was taken back")
            });
            tail.cancel()
        }));
        assert_eq!(block_on(taken.unwrap()), None::<()>);
        assert_eq!((drops.get(), drops.thread()), (1, Some(home)));
        // Too late: it has run.
        let tail = ev.submit_after_iteration(|| 7);
        while !tail.is_finished() {
            thread_of(&ev);
        }
        assert_eq!(block_on(tail.cancel()), Some(7));
        let panicked: Result<(), _> = block_on(ev.submit_after_iteration(|| blow_up()));
        assert!(panicked.unwrap_err().is_panic());
        ev.shutdown_now().wait();
        let refused = block_on(ev.submit_after_iteration(|| ())).unwrap_err();
        assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));
    });
}
