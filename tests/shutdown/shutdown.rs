//! A shutdown ends on its terms, runs or cancels everything it accepted, and never hangs.

use std::any::Any;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::time::sleep;
use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, JoinHandle, LoopState, RejectReason, TerminationFuture,
    WaitStrategy,
};

use crate::util::{
    Door, DropCount, HOUR, Log, Probe, eventually, ms, one_loop, poll_once, restless, stall,
    thread_of, within,
};

const ZERO: Duration = Duration::ZERO;

/// A task that waits at a door, and has been polled once.
fn waiting_task(ev: &EventLoop, door: &Door) -> JoinHandle<()> {
    let before = door.waiting();
    let task = ev.spawn(door.opened());
    eventually("the task waits", || door.waiting() > before);
    task
}

/// The shutdown goes on: looked at for a moment, for nothing announces that nothing happens.
#[track_caller]
fn assert_goes_on(end: &TerminationFuture) {
    assert!(end.wait_timeout(ms(20)).is_none(), "it ended too early");
}

// ---- quiet period -----------------------------------------------------------------------------

#[test]
fn quiet_period_restarts_with_every_new_task() {
    within(|| {
        let quiet = ms(100);
        let (group, ev) = one_loop();
        // The first task makes the request itself: the loop is awake and must take what follows.
        let requester = group.clone();
        let first = ev.submit(move || {
            let end = requester.shutdown_gracefully_with(quiet, HOUR).unwrap();
            (end, Instant::now())
        });
        let (end, mut last_run) = loopgroup::block_on(first).unwrap();
        let started = Instant::now();
        while started.elapsed() < 3 * quiet {
            if end.wait_timeout(quiet / 4).is_some() {
                break;
            }
            match loopgroup::block_on(ev.submit(Instant::now)) {
                Ok(ran) => last_run = ran,
                // A machine that slept through the quiet period; the loop was right to end.
                Err(error) => {
                    assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
                    break;
                }
            }
        }
        let report = end.wait();
        assert!(last_run.elapsed() >= quiet, "each task restarts the period");
        assert_eq!(report.loops()[0].cause(), EndCause::Quiet);
        assert!(report.is_clean());
    });
}

#[test]
fn quiet_period_restarts_with_a_wake() {
    within(|| {
        let quiet = ms(60);
        let (group, ev) = one_loop();
        let door = Door::new();
        let opened = door.opened();
        let task = ev.spawn(async move {
            opened.await;
            Instant::now()
        });
        eventually("the task waits", || door.waiting() == 1);
        let end = group.shutdown_gracefully_with(quiet, HOUR).unwrap();
        let _ = end.wait_timeout(quiet / 2);
        door.open();
        let report = end.wait();
        match loopgroup::block_on(task) {
            Ok(ran) => {
                assert!(ran.elapsed() >= quiet);
                assert!(report.elapsed() >= quiet + quiet / 2);
            }
            // The machine slept; a task that waits longer than the quiet period is cancelled.
            Err(error) => assert!(error.is_cancelled() && report.elapsed() >= quiet),
        }
        assert_eq!(report.loops()[0].cause(), EndCause::Quiet);
    });
}

#[test]
fn quiet_period_counts_from_the_last_task_also_if_the_loop_was_busy_at_the_request() {
    within(|| {
        let quiet = ms(60);
        let (group, ev) = one_loop();
        let before = stall(&ev);
        // Taken in together, so that both are of one turn and the request falls between them.
        let (entered, release) = (Door::new(), Door::new());
        let (inside, until) = (entered.clone(), release.clone());
        ev.execute(move || {
            inside.open();
            until.pass();
        })
        .unwrap();
        let queued = ev.submit(Instant::now);
        before.open();
        entered.pass();
        let end = group.shutdown_gracefully_with(quiet, HOUR).unwrap();
        // The loop is held for longer than the quiet period: that is work, not quiet.
        assert!(end.wait_timeout(quiet + ms(10)).is_none());
        release.open();
        end.wait();
        let ran = loopgroup::block_on(queued).unwrap();
        assert!(ran.elapsed() >= quiet, "{:?} after a task", ran.elapsed());
    });
}

#[test]
fn quiet_period_is_kept_by_every_way_to_wait() {
    within(|| {
        let quiet = ms(20);
        let spin = WaitStrategy::SpinThenPark(ms(1));
        for strategy in [WaitStrategy::Park, spin, WaitStrategy::Busy] {
            for io in [true, false] {
                let builder = EventLoopGroup::builder().loops(1).wait_strategy(strategy);
                let builder = if io { builder } else { builder.without_io() };
                let group = builder.build().unwrap();
                group.start().unwrap();
                let end = group.shutdown_gracefully_with(quiet, HOUR).unwrap();
                let report = end.wait();
                assert_eq!(report.loops()[0].cause(), EndCause::Quiet);
                assert!(report.elapsed() >= quiet);
            }
        }
    });
}

#[test]
fn quiet_period_without_end_does_not_overflow() {
    within(|| {
        let (group, ev) = one_loop();
        group.start().unwrap();
        let end = group
            .shutdown_gracefully_with(Duration::MAX, Duration::MAX)
            .unwrap();
        assert_goes_on(&end);
        assert_eq!(loopgroup::block_on(ev.spawn(async { 1 })).unwrap(), 1);
        drop(group.shutdown_now());
        assert_eq!(end.wait().loops()[0].cause(), EndCause::Now);
    });
}

#[test]
fn quiet_period_longer_than_the_timeout_is_an_invalid_input() {
    within(|| {
        let (group, ev) = one_loop();
        let refusals = [
            group.shutdown_gracefully_with(ms(2), ms(1)),
            ev.shutdown_gracefully_with(HOUR, ZERO),
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("timeout"), "{error}");
        }
        assert_eq!(ev.state(), LoopState::NotStarted, "nothing was requested");
        assert_eq!(loopgroup::block_on(ev.spawn(async { 1 })).unwrap(), 1);
        let end = group.shutdown_gracefully_with(ZERO, ZERO).unwrap();
        end.wait();
    });
}

#[test]
fn everything_is_accepted_while_the_loop_shuts_down() {
    within(|| {
        let (group, ev) = one_loop();
        group.start().unwrap();
        let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
        assert!(group.is_shutting_down() && !group.is_shutdown());
        let handles: Vec<_> = (0..100).map(|n| group.spawn(async move { n })).collect();
        for (n, handle) in handles.into_iter().enumerate() {
            assert_eq!(loopgroup::block_on(handle).unwrap(), n);
        }
        ev.execute(|| {}).unwrap();
        ev.lazy_execute(|| {}).unwrap();
        ev.execute_after_iteration(|| {}).unwrap();
        let local = ev.spawn_with(|| async { loopgroup::spawn_local(async { 5 }).await.unwrap() });
        assert_eq!(loopgroup::block_on(local).unwrap(), 5);
        let bound = ev.bind(|| 1);
        assert_eq!(loopgroup::block_on(bound.with(|n| *n + 1)).unwrap(), 2);
        assert_eq!(ev.state(), LoopState::ShuttingDown);
        drop(group.shutdown_now());
        let report = end.wait();
        assert_eq!(report.rejected(), 0);
        // 100, three closures, a resident and its local task, the init and the visit.
        assert_eq!((report.accepted(), report.completed()), (107, 107));
    });
}

#[test]
fn a_live_task_is_cancelled_at_the_end_of_the_quiet_period_on_its_loop() {
    within(|| {
        let (group, ev) = one_loop();
        let home = thread_of(&ev);
        let (door, log) = (Door::new(), Log::new());
        let task = ev.spawn(Probe::new(&log, door.opened()));
        eventually("the task waits", || door.waiting() == 1);
        let report = group.shutdown_gracefully_with(ZERO, HOUR).unwrap().wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Quiet);
        assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
        assert_eq!(log.polls(), 1);
        log.assert_home(home);
        assert_eq!((report.completed(), report.cancelled()), (1, 1));
        // The waker outlives the loop and is inert.
        door.open();
        assert_eq!(log.polls(), 1);
    });
}

// ---- what is queued ---------------------------------------------------------------------------

#[test]
fn what_is_queued_behind_a_stall_runs_although_there_is_no_quiet_period() {
    within(|| {
        let (group, ev) = one_loop();
        let release = stall(&ev);
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |n: u32| {
            let order = Arc::clone(&order);
            move || order.lock().unwrap().push(n)
        };
        ev.execute_after_iteration(note(5)).unwrap();
        ev.execute(note(1)).unwrap();
        ev.lazy_execute(note(2)).unwrap();
        let end = group.shutdown_gracefully_with(ZERO, HOUR).unwrap();
        // The loop shuts down, and accepts.
        ev.execute(note(3)).unwrap();
        let last = ev.submit(note(4));
        release.open();
        let report = end.wait();
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5]);
        assert!(last.is_finished());
        assert_eq!((report.completed(), report.cancelled()), (6, 0));
        assert_eq!(report.loops()[0].cause(), EndCause::Quiet);
    });
}

#[test]
fn a_queue_of_many_turns_runs_although_there_is_no_quiet_period() {
    within(|| {
        let (group, ev) = one_loop();
        let release = stall(&ev);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..5000 {
            let ran = Arc::clone(&ran);
            drop(ev.spawn(async move {
                loopgroup::yield_now().await;
                ran.fetch_add(1, Ordering::SeqCst);
            }));
        }
        let end = group.shutdown_gracefully_with(ZERO, HOUR).unwrap();
        release.open();
        let report = end.wait();
        assert_eq!(ran.load(Ordering::SeqCst), 5000);
        assert_eq!((report.completed(), report.cancelled()), (5001, 0));
    });
}

#[test]
fn a_lazy_closure_on_a_parked_loop_is_not_lost() {
    within(|| {
        let (group, ev) = one_loop();
        thread_of(&ev);
        let ran = DropCount::new();
        let guard = ran.guard();
        ev.lazy_execute(move || drop(guard)).unwrap();
        let report = group.shutdown_gracefully_with(ZERO, HOUR).unwrap().wait();
        assert_eq!((ran.get(), report.completed()), (1, 2));
    });
}

#[test]
fn submissions_against_the_end_are_run_or_refused_and_none_is_lost() {
    const PRODUCERS: usize = 2;
    within(|| {
        for round in 0..60 {
            let group = EventLoopGroup::new(2).unwrap();
            let ran = Arc::new(AtomicUsize::new(0));
            let barrier = Arc::new(Barrier::new(PRODUCERS + 1));
            let produce = || {
                let (group, ran) = (group.clone(), Arc::clone(&ran));
                let barrier = Arc::clone(&barrier);
                thread::spawn(move || {
                    barrier.wait();
                    let (mut handles, mut refused) = (Vec::new(), 0_u64);
                    // Until the end has been seen, so that the race is always there.
                    while refused < 10 {
                        let ran = Arc::clone(&ran);
                        let count = async move {
                            ran.fetch_add(1, Ordering::SeqCst);
                        };
                        match group.try_spawn(count) {
                            Ok(handle) => handles.push(handle),
                            Err(rejected) => {
                                assert_eq!(rejected.reason(), RejectReason::ShutDown);
                                drop(rejected.into_inner());
                                refused += 1;
                            }
                        }
                    }
                    (handles, refused)
                })
            };
            let producers: Vec<_> = (0..PRODUCERS).map(|_| produce()).collect();
            barrier.wait();
            let end = match round % 3 {
                0 => group.shutdown_now(),
                1 => group.drain(ms(5)),
                _ => group.shutdown_gracefully_with(ZERO, ms(5)).unwrap(),
            };
            let (mut completed, mut cancelled, mut refused) = (0, 0, 0);
            for producer in producers {
                let (handles, refusals) = producer.join().unwrap();
                refused += refusals;
                for handle in handles {
                    match loopgroup::block_on(handle) {
                        Ok(()) => completed += 1,
                        Err(error) => {
                            assert!(error.is_cancelled());
                            cancelled += 1;
                        }
                    }
                }
            }
            let report = end.wait();
            assert_eq!(ran.load(Ordering::SeqCst) as u64, completed);
            assert_eq!(report.completed(), completed);
            assert_eq!(report.cancelled(), cancelled);
            assert_eq!(report.accepted(), completed + cancelled);
            assert_eq!(report.rejected(), refused);
            for ev in group.loops() {
                assert_eq!((ev.pending_tasks(), ev.live_tasks()), (0, 0));
            }
        }
    });
}

// ---- timeout ----------------------------------------------------------------------------------

#[test]
fn timeout_holds_against_a_task_that_wakes_itself() {
    within(|| {
        let timeout = ms(40);
        for drain in [false, true] {
            let (group, ev) = one_loop();
            let tasks: Vec<_> = (0..3).map(|_| ev.spawn(restless())).collect();
            let end = if drain {
                group.drain(timeout)
            } else {
                group.shutdown_gracefully_with(ZERO, timeout).unwrap()
            };
            let report = end.wait();
            assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
            assert!(report.elapsed() >= timeout);
            assert_eq!((report.accepted(), report.cancelled()), (3, 3));
            for task in tasks {
                assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
            }
        }
    });
}

#[test]
fn timeout_holds_against_tasks_that_spawn_their_successor() {
    fn local() {
        // Refused at the end, and then the chain is over.
        drop(loopgroup::spawn_local(async { local() }));
    }
    fn tail(ev: EventLoop) {
        let next = ev.clone();
        let _ = ev.execute_after_iteration(move || tail(next));
    }
    fn ping(from: EventLoop, to: EventLoop) {
        let (next_from, next_to) = (to.clone(), from);
        let _ = to.execute(move || ping(next_from, next_to));
    }
    within(|| {
        let timeout = ms(40);
        let group = EventLoopGroup::new(3).unwrap();
        let [a, b, c] = group.loops() else {
            panic!("three loops")
        };
        a.execute(local).unwrap();
        let own = a.clone();
        a.execute(move || tail(own)).unwrap();
        let (from, to) = (b.clone(), c.clone());
        b.execute(move || ping(from, to)).unwrap();
        let report = group.drain(timeout).wait();
        let chained = &report.loops()[0];
        assert_eq!(chained.cause(), EndCause::Timeout);
        assert!(chained.elapsed() >= timeout);
        // The gates of all loops close in one step, whoever finds the timeout passed: a successor was queued
        // or refused.
        assert_eq!(chained.cancelled() + chained.rejected(), 2, "{report}");
        for one in report.loops() {
            assert_eq!(one.accepted(), one.completed() + one.cancelled());
        }
    });
}

#[test]
fn timeout_of_zero_ends_a_loop_with_live_tasks() {
    within(|| {
        let (group, ev) = one_loop();
        let task = waiting_task(&ev, &Door::new());
        let report = group.drain(ZERO).wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
    });
}

// ---- without threads --------------------------------------------------------------------------

#[test]
fn a_group_that_never_started_ends_at_once_and_without_threads() {
    within(|| {
        let ways: [fn(&EventLoopGroup) -> TerminationFuture; 4] = [
            EventLoopGroup::shutdown_gracefully,
            EventLoopGroup::shutdown_now,
            |group| group.drain(HOUR),
            |group| group.shutdown_gracefully_with(HOUR, HOUR).unwrap(),
        ];
        let causes = [
            EndCause::Idle,
            EndCause::Now,
            EndCause::Drained,
            EndCause::Idle,
        ];
        for (way, cause) in ways.into_iter().zip(causes) {
            let threads = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&threads);
            let group = EventLoopGroup::builder()
                .loops(8)
                .thread_factory(move |lt| {
                    count.fetch_add(1, Ordering::SeqCst);
                    thread::spawn(move || lt.run());
                    Ok(())
                })
                .build()
                .unwrap();
            let Poll::Ready(report) = poll_once(&mut way(&group)) else {
                panic!("nothing to wait for")
            };
            assert!(group.is_terminated());
            assert_eq!(report.loops().len(), 8);
            for one in report.loops() {
                assert_eq!((one.started(), one.cause()), (false, cause));
            }
            let refused = loopgroup::block_on(group.spawn(async {})).unwrap_err();
            assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));
            assert_eq!(threads.load(Ordering::SeqCst), 0);
        }
    });
}

#[test]
fn loops_that_never_started_do_not_wait_for_those_that_did() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        let release = stall(&group.loops()[1]);
        let end = group.shutdown_gracefully();
        let states: Vec<_> = group.loops().iter().map(EventLoop::state).collect();
        use LoopState::{ShuttingDown, Terminated};
        assert_eq!(states, [Terminated, ShuttingDown, Terminated]);
        assert!(group.is_shutting_down() && !group.is_shutdown());
        release.open();
        drop(group.shutdown_now());
        let started: Vec<_> = end.wait().loops().iter().map(|one| one.started()).collect();
        assert_eq!(started, [false, true, false]);
    });
}

/// Two loops that run, in every other round without I/O.
fn two_started(round: usize) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(2);
    let builder = match round % 2 {
        0 => builder,
        _ => builder.without_io(),
    };
    let group = builder.build().unwrap();
    group.start().unwrap();
    group
}

#[test]
fn an_idle_loop_without_quiet_period_ends_at_once() {
    within(|| {
        let quickest = (0..20).map(|round| {
            let group = two_started(round);
            // What waits for later is no reason to wait for it.
            let far = group.spawn_on(1, sleep(HOUR));
            eventually("it waits", || group.loops()[1].live_tasks() == 1);
            let report = group.shutdown_gracefully_with(ZERO, HOUR).unwrap().wait();
            for one in report.loops() {
                assert_eq!((one.started(), one.cause()), (true, EndCause::Quiet));
            }
            assert!(loopgroup::block_on(far).unwrap_err().is_cancelled());
            report.elapsed()
        });
        // A look at the clock every so often would show in all of them; a busy machine in some.
        let quickest = quickest.min().unwrap();
        assert!(quickest < ms(50), "{quickest:?}");
    });
}

// ---- terms ------------------------------------------------------------------------------------

#[test]
fn the_first_terms_count() {
    within(|| {
        for drain_first in [false, true] {
            let (group, ev) = one_loop();
            let door = Door::new();
            let task = waiting_task(&ev, &door);
            let first = if drain_first {
                group.drain(HOUR)
            } else {
                group.shutdown_gracefully_with(HOUR, HOUR).unwrap()
            };
            let later = [
                group.shutdown_gracefully_with(ZERO, ZERO).unwrap(),
                group.drain(ZERO),
                ev.drain(ZERO),
                ev.shutdown_gracefully_with(ZERO, ZERO).unwrap(),
            ];
            assert_goes_on(&first);
            assert_eq!(ev.state(), LoopState::ShuttingDown);
            door.open();
            loopgroup::block_on(task).unwrap();
            if !drain_first {
                assert_goes_on(&first);
                drop(group.shutdown_now());
            }
            let cause = if drain_first {
                EndCause::Drained
            } else {
                EndCause::Now
            };
            for end in later.into_iter().chain([first]) {
                assert_eq!(end.wait().loops()[0].cause(), cause);
            }
        }
    });
}

#[test]
fn shutdown_now_shortens_what_is_under_way() {
    within(|| {
        let starts: [fn(&EventLoopGroup) -> TerminationFuture; 3] = [
            EventLoopGroup::shutdown_gracefully,
            |group| group.shutdown_gracefully_with(HOUR, HOUR).unwrap(),
            |group| group.drain(HOUR),
        ];
        for start in starts {
            let (group, ev) = one_loop();
            let task = waiting_task(&ev, &Door::new());
            let end = start(&group);
            let now = group.shutdown_now();
            let report = end.wait();
            assert_eq!(report.loops()[0].cause(), EndCause::Now);
            assert_eq!(now.wait().cancelled(), 1);
            assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn shutdown_now_after_the_end_changes_nothing() {
    within(|| {
        let (group, ev) = one_loop();
        ev.execute(|| {}).unwrap();
        assert_eq!(
            group.drain(HOUR).wait().loops()[0].cause(),
            EndCause::Drained
        );
        let again = group.shutdown_now().wait();
        assert_eq!(again.loops()[0].cause(), EndCause::Drained);
        assert_eq!(again.completed(), 1);
    });
}

#[test]
fn drain_waits_for_live_tasks_and_for_what_they_spawn() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let door = Door::new();
        let opened = door.opened();
        let task = group.spawn_on(0, async move {
            opened.await;
            let child = loopgroup::spawn_local(async {
                loopgroup::yield_now().await;
                2
            });
            child.await.unwrap() + 1
        });
        eventually("the task waits", || door.waiting() == 1);
        let end = group.drain(HOUR);
        assert_goes_on(&end);
        let late = group.spawn_on(0, async { 1 });
        assert_eq!(loopgroup::block_on(late).unwrap(), 1);
        assert_goes_on(&end);
        door.open();
        let report = end.wait();
        assert_eq!(loopgroup::block_on(task).unwrap(), 3);
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        assert_eq!((report.completed(), report.cancelled()), (3, 0));
        assert!(report.is_clean());
    });
}

#[test]
fn drain_cancels_at_its_timeout() {
    within(|| {
        let timeout = ms(30);
        let (group, ev) = one_loop();
        let home = thread_of(&ev);
        let (door, log) = (Door::new(), Log::new());
        let task = ev.spawn(Probe::new(&log, door.opened()));
        eventually("the task waits", || door.waiting() == 1);
        let report = group.drain(timeout).wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert!(report.elapsed() >= timeout);
        assert_eq!((report.completed(), report.cancelled()), (1, 1));
        assert!(!report.is_clean());
        assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
        log.assert_home(home);
    });
}

#[test]
fn drain_does_not_wait_for_handles() {
    within(|| {
        let (group, ev) = one_loop();
        let bound = ev.bind(|| 1);
        let report = group.drain(HOUR).wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        let refused = loopgroup::block_on(bound.with(|n| *n)).unwrap_err();
        assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));
    });
}

// ---- nobody left ------------------------------------------------------------------------------

#[test]
fn a_long_quiet_period_ends_with_the_last_handle_and_not_before() {
    within(|| {
        for last in 0..3 {
            let (group, ev) = one_loop();
            let bound = ev.bind(|| 1);
            loopgroup::block_on(bound.with(|n| *n)).unwrap();
            let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
            let mut keepers: Vec<Box<dyn Any>> =
                vec![Box::new(group), Box::new(ev), Box::new(bound)];
            // Each kind of handle is the last one once.
            keepers.rotate_left(last);
            while keepers.len() > 1 {
                keepers.pop();
                assert_goes_on(&end);
            }
            drop(keepers);
            let report = end.wait();
            assert_eq!(report.loops()[0].cause(), EndCause::Idle);
            assert!(report.is_clean());
        }
    });
}

#[test]
fn a_clone_of_a_handle_holds_the_quiet_period_too() {
    within(|| {
        let (group, ev) = one_loop();
        group.start().unwrap();
        let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
        let (second, parent) = (ev.clone(), ev.parent().unwrap());
        drop((group, ev));
        assert_goes_on(&end);
        drop(parent);
        assert!(second.parent().is_none());
        assert_goes_on(&end);
        assert_eq!(loopgroup::block_on(second.spawn(async { 3 })).unwrap(), 3);
        drop(second);
        assert_eq!(end.wait().loops()[0].cause(), EndCause::Idle);
    });
}

#[test]
fn a_live_task_holds_the_quiet_period_when_nobody_else_is_left() {
    within(|| {
        let (group, ev) = one_loop();
        let door = Door::new();
        let task = waiting_task(&ev, &door);
        let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
        drop((group, ev));
        assert_goes_on(&end);
        // A JoinHandle and a TerminationFuture cannot submit: they hold nothing.
        door.open();
        assert_eq!(end.wait().loops()[0].cause(), EndCause::Idle);
        loopgroup::block_on(task).unwrap();
    });
}

#[test]
fn each_loop_of_a_group_ends_by_itself_when_nobody_is_left() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let (held, free) = (group.loops()[0].clone(), group.loops()[1].termination());
        let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
        drop(group);
        assert_eq!(free.wait().loops()[0].cause(), EndCause::Idle);
        assert_goes_on(&end);
        drop(held);
        assert_eq!(end.wait().loops()[0].cause(), EndCause::Idle);
    });
}

#[test]
fn the_last_handle_dropped_elsewhere_ends_parked_loops_in_every_round() {
    within(|| {
        for round in 0..200 {
            let group = two_started(round);
            // Every second pair of rounds under explicit terms, where only the notice of the last
            // drop can end the loops.
            if round % 4 < 2 {
                drop(group.shutdown_gracefully_with(HOUR, HOUR).unwrap());
            }
            let end = group.termination();
            let barrier = Arc::new(Barrier::new(3));
            let threads: Vec<_> = [Some(group.clone()), Some(group), None]
                .into_iter()
                .map(|handle| {
                    let barrier = Arc::clone(&barrier);
                    thread::spawn(move || {
                        barrier.wait();
                        drop(handle);
                    })
                })
                .collect();
            let report = end.wait();
            assert!(report.is_clean());
            for thread in threads {
                thread.join().unwrap();
            }
        }
    });
}

#[test]
fn loop_handles_dropped_against_the_request_end_the_loop_in_every_round() {
    within(|| {
        for _ in 0..100 {
            let (group, ev) = one_loop();
            group.start().unwrap();
            let end = group.termination();
            let barrier = Arc::new(Barrier::new(2));
            let ready = Arc::clone(&barrier);
            let dropper = thread::spawn(move || {
                ready.wait();
                drop(ev);
            });
            barrier.wait();
            drop(group.shutdown_gracefully_with(HOUR, HOUR).unwrap());
            drop(group);
            assert_eq!(end.wait().loops()[0].cause(), EndCause::Idle);
            dropper.join().unwrap();
        }
    });
}

// ---- one loop alone ---------------------------------------------------------------------------

#[test]
fn a_loop_that_was_shut_down_alone_is_skipped_and_the_others_work() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        group.start().unwrap();
        let report = group.loops()[1].shutdown_now().wait();
        assert_eq!(report.loops().len(), 1);
        assert_eq!(report.loops()[0].index(), 1);
        for _ in 0..30 {
            assert_ne!(group.next().index(), 1);
        }
        let homes: Vec<_> = (0..9)
            .map(|_| async { EventLoop::current().unwrap().index() })
            .map(|home| loopgroup::block_on(group.spawn(home)).unwrap())
            .collect();
        assert!(homes.contains(&0) && homes.contains(&2) && !homes.contains(&1));
        let refused = loopgroup::block_on(group.spawn_on(1, async {})).unwrap_err();
        assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));
        assert!(!group.is_shutting_down(), "only one loop is");
        assert_goes_on(&group.termination());
        let report = group.drain(HOUR).wait();
        let causes: Vec<_> = report.loops().iter().map(|one| one.cause()).collect();
        assert_eq!(
            causes,
            [EndCause::Drained, EndCause::Now, EndCause::Drained]
        );
        assert_eq!(report.rejected(), 1);
    });
}

#[test]
fn a_loop_that_shuts_down_alone_is_skipped_and_still_accepts() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let end = group.loops()[0].shutdown_gracefully_with(HOUR, HOUR);
        let end = end.unwrap();
        for _ in 0..10 {
            assert_eq!(group.next().index(), 1);
        }
        assert_eq!(
            loopgroup::block_on(group.spawn_on(0, async { 1 })).unwrap(),
            1
        );
        // The one that accepts is better than the one that is gone.
        group.loops()[1].shutdown_now().wait();
        for _ in 0..10 {
            assert_eq!(group.next().index(), 0);
        }
        assert_eq!(loopgroup::block_on(group.spawn(async { 2 })).unwrap(), 2);
        assert_goes_on(&end);
        drop(group.shutdown_now());
        assert_eq!(end.wait().completed(), 2);
    });
}

#[test]
fn a_loop_that_never_started_is_shut_down_alone() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let mut end = group.loops()[0].shutdown_gracefully();
        assert!(poll_once(&mut end).is_ready());
        assert_eq!(group.loops()[0].state(), LoopState::Terminated);
        assert_eq!(group.loops()[1].state(), LoopState::NotStarted);
        assert_eq!(loopgroup::block_on(group.spawn(async { 1 })).unwrap(), 1);
    });
}

// ---- teardown ---------------------------------------------------------------------------------

/// Calls its closure when it is dropped.
struct Last<F: FnMut()>(F);

impl<F: FnMut()> Drop for Last<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Spawns a successor from its destructor, `left` times, and sends every handle out.
struct Heir {
    ev: EventLoop,
    left: u32,
    handles: mpsc::Sender<JoinHandle<()>>,
}

impl Future for Heir {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        if self.left > 0 {
            let heir = Heir {
                ev: self.ev.clone(),
                left: self.left - 1,
                handles: self.handles.clone(),
            };
            self.handles.send(self.ev.spawn(heir)).unwrap();
        }
    }
}

#[test]
fn a_spawn_from_a_destructor_during_teardown_is_refused_and_the_end_comes() {
    within(|| {
        let (group, ev) = one_loop();
        let (handles, received) = mpsc::channel();
        let left = 10;
        let heir = Heir {
            ev: ev.clone(),
            left,
            handles,
        };
        let first = ev.spawn(heir);
        eventually("it is live", || ev.live_tasks() == 1);
        let report = group.shutdown_now().wait();
        assert!(loopgroup::block_on(first).unwrap_err().is_cancelled());
        let heirs: Vec<_> = received.iter().collect();
        assert_eq!(heirs.len(), left as usize);
        for heir in heirs {
            let error = loopgroup::block_on(heir).unwrap_err();
            assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
        }
        assert_eq!((report.accepted(), report.cancelled()), (1, 1));
        assert_eq!(report.rejected(), u64::from(left));
    });
}

#[test]
fn a_destructor_during_teardown_finds_every_way_in_closed() {
    within(|| {
        let (group, ev) = one_loop();
        let (results, received) = mpsc::channel();
        let inside = ev.clone();
        let task = ev.spawn_with(move || async move {
            let _last = Last(move || {
                let reasons = [
                    inside.execute(|| {}).map_err(|r| r.reason()),
                    inside.lazy_execute(|| {}).map_err(|r| r.reason()),
                    inside
                        .execute_after_iteration(|| {})
                        .map_err(|r| r.reason()),
                    inside.dispatch(|| {}).map_err(|r| r.reason()),
                    inside.try_spawn(async {}).map(drop).map_err(|r| r.reason()),
                    loopgroup::try_spawn(async {})
                        .map(drop)
                        .map_err(|r| r.reason()),
                    loopgroup::try_spawn_local(async {})
                        .map(drop)
                        .map_err(|r| r.reason()),
                    inside
                        .add_shutdown_hook(|| {})
                        .map(drop)
                        .map_err(|r| r.reason()),
                ];
                results.send((inside.state(), reasons)).unwrap();
            });
            std::future::pending::<()>().await;
        });
        eventually("it is live", || ev.live_tasks() == 1);
        let report = group.shutdown_now().wait();
        let (state, reasons) = received.recv().unwrap();
        assert_eq!(state, LoopState::Shutdown);
        assert_eq!(reasons, [Err(RejectReason::ShutDown); 8]);
        assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
        // A refused hook was no submission of a task.
        assert_eq!((report.rejected(), report.cancelled()), (7, 1));
    });
}

#[test]
fn a_destructor_that_panics_during_teardown_is_counted_and_the_end_comes() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the destructor");
        }
    }
    within(|| {
        let group = EventLoopGroup::builder().loops(1).on_panic(|_| {});
        let group = group.build().unwrap();
        let ev = group.next().clone();
        for _ in 0..3 {
            let bomb = Bomb;
            drop(ev.spawn(async move {
                let _bomb = bomb;
                std::future::pending::<()>().await;
            }));
        }
        let quiet_one = ev.spawn(std::future::pending::<()>());
        eventually("all are live", || ev.live_tasks() == 4);
        let report = group.shutdown_now().wait();
        assert_eq!((report.panicked(), report.cancelled()), (3, 1));
        assert!(loopgroup::block_on(quiet_one).unwrap_err().is_cancelled());
    });
}

#[test]
fn destructors_that_wake_and_abort_each_other_during_teardown_end() {
    struct Push(Arc<Mutex<Vec<Waker>>>, Option<JoinHandle<()>>);
    impl Drop for Push {
        fn drop(&mut self) {
            let wakers: Vec<_> = self.0.lock().unwrap().clone();
            wakers.iter().for_each(Waker::wake_by_ref);
            if let Some(handle) = self.1.take() {
                handle.abort();
            }
        }
    }
    within(|| {
        let (group, ev) = one_loop();
        let wakers = Arc::new(Mutex::new(Vec::new()));
        let drops = DropCount::new();
        let mut previous = None;
        for _ in 0..10 {
            let push = Push(Arc::clone(&wakers), previous.take());
            let (wakers, guard) = (Arc::clone(&wakers), drops.guard());
            previous = Some(ev.spawn(async move {
                let _both = (push, guard);
                std::future::poll_fn(|cx| {
                    wakers.lock().unwrap().push(cx.waker().clone());
                    Poll::<()>::Pending
                })
                .await;
            }));
        }
        eventually("all are live", || ev.live_tasks() == 10);
        let home = thread_of(&ev);
        let report = group.shutdown_now().wait();
        assert_eq!((report.completed(), report.cancelled()), (1, 10));
        assert_eq!((drops.get(), drops.thread()), (10, Some(home)));
    });
}

#[test]
fn waking_under_a_lock_that_the_destructor_takes_does_not_deadlock() {
    /// A task that registers its waker in a table and takes itself out when it is dropped.
    struct Entry(Arc<Mutex<Vec<Waker>>>);
    impl Future for Entry {
        type Output = ();
        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let mut table = self.0.lock().unwrap();
            if table.is_empty() {
                table.push(cx.waker().clone());
            }
            Poll::Pending
        }
    }
    impl Drop for Entry {
        fn drop(&mut self) {
            self.0.lock().unwrap().clear();
        }
    }
    within(|| {
        for round in 0..50 {
            let (group, ev) = one_loop();
            let table = Arc::new(Mutex::new(Vec::<Waker>::new()));
            let task = ev.spawn(Entry(Arc::clone(&table)));
            let over = Arc::new(AtomicBool::new(false));
            let hammers: Vec<_> = (0..2)
                .map(|_| {
                    let (table, over) = (Arc::clone(&table), Arc::clone(&over));
                    thread::spawn(move || {
                        while !over.load(Ordering::SeqCst) {
                            let table = table.lock().unwrap();
                            table.iter().for_each(Waker::wake_by_ref);
                        }
                    })
                })
                .collect();
            eventually("it is live", || ev.live_tasks() == 1);
            let end = if round % 2 == 0 {
                group.shutdown_now()
            } else {
                group.drain(ms(2))
            };
            let report = end.wait();
            over.store(true, Ordering::SeqCst);
            for hammer in hammers {
                hammer.join().unwrap();
            }
            assert_eq!(report.cancelled(), 1);
            assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_value_bound_to_the_loop_outlives_its_tasks_and_is_dropped_there() {
    within(|| {
        let (group, ev) = one_loop();
        let home = thread_of(&ev);
        let (drops, seen) = (DropCount::new(), DropCount::new());
        let guard = drops.guard();
        let bound = ev.bind(move || guard);
        let (visitor, order, mark) = (bound.clone(), drops.clone(), seen.guard());
        let last = Last(move || {
            let _mark = &mark;
            // Still there, for the task that is being cancelled.
            visitor.with_local(|_| assert_eq!(order.get(), 0));
        });
        drop(ev.spawn(async move {
            let _last = last;
            std::future::pending::<()>().await;
        }));
        eventually("it is live", || ev.live_tasks() == 1);
        let report = group.shutdown_now().wait();
        assert_eq!(report.panicked(), 0, "the assertion in the destructor held");
        assert_eq!((drops.get(), drops.thread()), (1, Some(home)));
        assert_eq!(seen.get(), 1);
        drop(bound);
        assert_eq!(drops.get(), 1);
    });
}

// ---- from inside ------------------------------------------------------------------------------

#[test]
fn a_shutdown_from_inside_a_loop_ends_it() {
    within(|| {
        let ways: [fn(&EventLoopGroup) -> TerminationFuture; 3] = [
            EventLoopGroup::shutdown_now,
            |group| group.drain(HOUR),
            |group| group.shutdown_gracefully_with(ZERO, HOUR).unwrap(),
        ];
        for way in ways {
            let group = EventLoopGroup::new(2).unwrap();
            group.start().unwrap();
            let inside = group.clone();
            let end = group.loops()[1].submit(move || way(&inside));
            let end = loopgroup::block_on(end).unwrap();
            let report = end.wait();
            assert_eq!(report.completed(), 1);
            assert!(report.is_clean());
        }
    });
}

#[test]
fn a_loop_ends_itself_while_the_others_go_on() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let own = || EventLoop::current().unwrap().shutdown_now();
        let end = group.loops()[0].submit(own);
        let end = loopgroup::block_on(end).unwrap();
        assert_eq!(end.wait().loops()[0].index(), 0);
        assert_eq!(
            loopgroup::block_on(group.spawn_on(1, async { 1 })).unwrap(),
            1
        );
    });
}

#[test]
fn a_group_dropped_on_its_own_loop_ends_after_its_tasks() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let end = group.termination();
        let ev = group.loops()[0].clone();
        let go = Door::new();
        let until = go.opened();
        let inside = group.clone();
        let task = ev.spawn(async move {
            until.await;
            let ev = EventLoop::current().unwrap();
            assert!(ev.parent().is_some());
            drop(inside);
            // The last handle is gone: the loop still takes what its own tasks have.
            assert!(ev.parent().is_none());
            assert_eq!(ev.state(), LoopState::ShuttingDown);
            loopgroup::spawn(async { 1 }).await.unwrap()
                + loopgroup::spawn_local(async { 2 }).await.unwrap()
        });
        drop((group, ev));
        go.open();
        let report = end.wait();
        assert_eq!(loopgroup::block_on(task).unwrap(), 3);
        assert_eq!((report.completed(), report.cancelled()), (3, 0));
    });
}

#[test]
fn a_group_whose_last_handle_is_cancelled_with_its_task_ends() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let end = group.termination();
        let (ev, inside) = (group.loops()[0].clone(), group.clone());
        drop(ev.spawn(async move {
            let _group = inside;
            std::future::pending::<()>().await;
        }));
        eventually("it is live", || ev.live_tasks() == 1);
        drop(group);
        assert_goes_on(&end);
        // The loop drops the task, the task the last handle, and that ends the other loop.
        drop(ev.shutdown_now());
        let report = end.wait();
        assert_eq!(report.cancelled(), 1);
        assert_eq!(report.loops()[0].cause(), EndCause::Now);
        assert!(!report.loops()[1].started());
    });
}

#[test]
fn a_dropped_group_runs_what_it_has_accepted() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let end = group.termination();
        let tasks: Vec<_> = (0..100).map(|n| group.spawn(async move { n })).collect();
        drop(group);
        for (n, task) in tasks.into_iter().enumerate() {
            assert_eq!(loopgroup::block_on(task).unwrap(), n);
        }
        assert_eq!(end.wait().completed(), 100);
    });
}

// ---- shutdown_requested -----------------------------------------------------------------------

#[test]
fn shutdown_requested_lets_a_task_end_by_itself() {
    within(|| {
        let (group, ev) = one_loop();
        let entered = Door::new();
        let inside = entered.clone();
        let task = ev.spawn(async move {
            let requested = loopgroup::shutdown_requested();
            inside.open();
            requested.await;
            // Known at once from here on.
            loopgroup::shutdown_requested().await;
            EventLoop::current().unwrap().state()
        });
        entered.pass();
        let report = group.drain(HOUR).wait();
        assert_eq!(loopgroup::block_on(task).unwrap(), LoopState::ShuttingDown);
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
    });
}

#[test]
fn shutdown_requested_resolves_in_block_on_when_the_group_shuts_down() {
    within(|| {
        for started in [true, false] {
            let group = EventLoopGroup::new(2).unwrap();
            if started {
                group.start().unwrap();
            }
            let polled = Door::new();
            let (seen, stopper) = (polled.clone(), group.clone());
            let thread = thread::spawn(move || {
                seen.pass();
                stopper.shutdown_now().wait()
            });
            group.block_on(async {
                let mut requested = loopgroup::shutdown_requested();
                assert!(poll_once(&mut requested).is_pending());
                polled.open();
                requested.await;
            });
            assert!(group.is_shutting_down());
            thread.join().unwrap();
        }
    });
}

#[test]
fn shutdown_requested_in_block_on_is_about_the_group_and_not_about_one_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.block_on(async {
            let mut requested = loopgroup::shutdown_requested();
            for ev in group.loops() {
                let mut fresh = loopgroup::shutdown_requested();
                assert!(!group.is_shutting_down());
                assert!(poll_once(&mut requested).is_pending());
                assert!(poll_once(&mut fresh).is_pending());
                drop(ev.shutdown_now());
            }
            assert!(group.is_shutting_down());
            assert!(poll_once(&mut requested).is_ready());
            assert!(poll_once(&mut loopgroup::shutdown_requested()).is_ready());
        });
    });
}

#[test]
fn shutdown_requested_is_about_the_loop_of_the_task() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let both = Arc::new(AtomicUsize::new(0));
        let mut tasks: Vec<_> = (0..2)
            .map(|index| {
                let both = Arc::clone(&both);
                group.spawn_on(index, async move {
                    let mut requested = loopgroup::shutdown_requested();
                    assert!(poll_once(&mut requested).is_pending());
                    both.fetch_add(1, Ordering::SeqCst);
                    requested.await;
                })
            })
            .collect();
        eventually("both wait", || both.load(Ordering::SeqCst) == 2);
        let end = group.loops()[1].drain(HOUR);
        loopgroup::block_on(tasks.pop().unwrap()).unwrap();
        end.wait();
        assert!(!tasks[0].is_finished());
        group.drain(HOUR).wait();
        loopgroup::block_on(tasks.pop().unwrap()).unwrap();
    });
}

// ---- states -----------------------------------------------------------------------------------

#[test]
fn states_are_seen_in_order() {
    within(|| {
        let (group, ev) = one_loop();
        let seen = Arc::new(Mutex::new(vec![ev.state()]));
        let look = || {
            let (ev, seen) = (ev.clone(), Arc::clone(&seen));
            move || seen.lock().unwrap().push(ev.state())
        };
        loopgroup::block_on(ev.submit(look())).unwrap();
        ev.add_shutdown_hook(look()).unwrap();
        let last = Last(look());
        drop(ev.spawn(async move {
            let _last = last;
            std::future::pending::<()>().await;
        }));
        eventually("it is live", || ev.live_tasks() == 1);
        group.shutdown_gracefully_with(ZERO, HOUR).unwrap().wait();
        look()();
        use LoopState::{NotStarted, Shutdown, ShuttingDown, Started, Terminated};
        assert_eq!(
            *seen.lock().unwrap(),
            [NotStarted, Started, ShuttingDown, Shutdown, Terminated]
        );
    });
}

#[test]
fn predicates_of_a_group_hold_when_they_hold_for_every_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let predicates = || {
            (
                group.is_shutting_down(),
                group.is_shutdown(),
                group.is_terminated(),
            )
        };
        assert_eq!(predicates(), (false, false, false));
        let release = stall(&group.loops()[0]);
        assert_eq!(predicates(), (false, false, false));
        group.loops()[1].shutdown_now().wait();
        assert_eq!(predicates(), (false, false, false));
        drop(group.loops()[0].drain(HOUR));
        assert_eq!(predicates(), (true, false, false));
        drop(group.loops()[0].shutdown_now());
        // It is stalled and cannot have seen it, but accepts nothing from here on.
        assert_eq!(predicates(), (true, true, false));
        release.open();
        group.termination().wait();
        assert_eq!(predicates(), (true, true, true));
    });
}

#[test]
fn many_groups_are_shut_down_over_and_over() {
    within(|| {
        for round in 0..30 {
            let group = EventLoopGroup::new(8).unwrap();
            let tasks: Vec<_> = (0..40)
                .map(|_| group.spawn(std::future::pending::<()>()))
                .collect();
            let end = if round % 2 == 0 {
                group.shutdown_now()
            } else {
                group.shutdown_gracefully_with(ZERO, HOUR).unwrap()
            };
            let report = end.wait();
            assert_eq!((report.accepted(), report.cancelled()), (40, 40));
            for task in tasks {
                assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
            }
        }
    });
}

#[test]
fn a_submission_against_the_end_of_a_loop_that_never_started_is_not_stranded() {
    within(|| {
        for _ in 0..100 {
            let group = EventLoopGroup::builder().loops(64).without_io().build();
            let group = group.unwrap();
            let barrier = Arc::new(Barrier::new(2));
            let (chaser, ready) = (group.clone(), Arc::clone(&barrier));
            // It follows the shutdown from loop to loop; a loop that it starts itself throws it
            // back behind, so the two meet again and again.
            let submitter = thread::spawn(move || {
                ready.wait();
                let submit = |ev: &EventLoop| ev.submit(|| ());
                chaser.loops().iter().map(submit).collect::<Vec<_>>()
            });
            barrier.wait();
            let end = group.drain(HOUR);
            let submitted = submitter.join().unwrap();
            let report = end.wait();
            for (handle, one) in submitted.into_iter().zip(report.loops()) {
                let accepted = loopgroup::block_on(handle).is_ok();
                assert_eq!(one.completed(), u64::from(accepted));
                assert_eq!(one.rejected(), u64::from(!accepted));
            }
        }
    });
}
