//! Closures and detached futures travel in runs, and each of them is still a task of its own.

use std::future::pending;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::testing::TestLoop;
use loopgroup::time::sleep;
use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, PanicSite, RejectReason, TaskId, block_on, task_id,
    yield_now,
};

use crate::util::{
    Door, DropCount, LONG, Log, OnDrop, Probe, Random, blow_up, flush, group, one_loop, poll_once,
    stall, thread_of, within,
};

/// What ran, in order.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<usize>>>);

impl Trace {
    fn add(&self, what: usize) {
        self.0.lock().unwrap().push(what);
    }

    /// A closure that notes `what`; all of them are of one type.
    fn note(&self, what: usize) -> impl FnOnce() + Send + use<> {
        let this = self.clone();
        move || this.add(what)
    }

    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Executes from one place, whoever calls it: such closures make one run.
fn execute_here(ev: &EventLoop, call: impl FnOnce() + Send + 'static) {
    ev.execute(call).unwrap();
}

/// Works for so long.
fn busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

/// Submits `what` in the way that `way` selects.
fn submit_by(way: usize, ev: &EventLoop, trace: &Trace, what: usize) {
    let note = trace.note(what);
    match way {
        0 => ev.execute(note).unwrap(),
        1 => ev
            .execute(Box::new(note) as Box<dyn FnOnce() + Send>)
            .unwrap(),
        2 => ev.lazy_execute(note).unwrap(),
        3 => drop(ev.submit(note)),
        4 => drop(ev.spawn(async move { note() })),
        5 => drop(ev.try_spawn(async move { note() }).unwrap()),
        6 => ev.spawn_detached(async move { note() }).unwrap(),
        _ => {
            let named = ev.task().name("named");
            named.spawn_detached(async move { note() }).unwrap();
        }
    }
}

#[test]
fn whatever_one_thread_submits_begins_in_that_order_also_across_runs_of_many_lengths() {
    within(|| {
        let (_group, ev) = one_loop();
        let trace = Trace::default();
        for seed in 0..20 {
            let mut random = Random(seed);
            let release = stall(&ev); // all of it waits in the inbox at once
            let mut submitted = 0;
            while submitted < 4_000 {
                let way = random.index(8);
                let length = [1, 1, 2, 5, 70, 2_500][random.index(6)];
                for _ in 0..length {
                    submit_by(way, &ev, &trace, submitted);
                    submitted += 1;
                }
            }
            release.open();
            flush(&ev);
            assert_eq!(trace.take(), (0..submitted).collect::<Vec<_>>(), "{seed}");
        }
    });
}

#[test]
fn what_a_closure_submits_at_home_comes_behind_what_is_queued_and_in_order() {
    within(|| {
        let (_group, ev) = one_loop();
        let trace = Trace::default();
        let release = stall(&ev);
        for n in 0..6 {
            let (own, trace) = (ev.clone(), trace.clone());
            execute_here(&ev, move || {
                trace.add(n);
                for way in 0..8 {
                    submit_by(way, &own, &trace, 100 * (n + 1) + way);
                }
            });
        }
        release.open();
        flush(&ev); // behind the six
        flush(&ev); // behind what they have submitted
        let later = (1..=6).flat_map(|n| (0..8).map(move |way| 100 * n + way));
        assert_eq!(trace.take(), (0..6).chain(later).collect::<Vec<_>>());
    });
}

#[test]
fn a_wake_between_two_closures_is_served_between_them() {
    within(|| {
        let mut test = TestLoop::new();
        let (trace, door) = (Trace::default(), Door::new());
        let (own, opened) = (trace.clone(), door.opened());
        drop(test.spawn(async move {
            opened.await;
            own.add(1);
        }));
        test.run_until_stalled();
        execute_here(&test, trace.note(0));
        door.open();
        execute_here(&test, trace.note(2));
        execute_here(&test, trace.note(3));
        test.run_until_stalled();
        assert_eq!(trace.take(), [0, 1, 2, 3]);
    });
}

#[test]
fn a_timer_that_is_armed_between_two_closures_is_armed_in_its_place() {
    within(|| {
        let mut test = TestLoop::new();
        let trace = Trace::default();
        execute_here(&test, trace.note(0));
        let scheduled = test.schedule(Duration::ZERO, trace.note(9));
        execute_here(&test, trace.note(1));
        assert!(test.run_one());
        assert_eq!(trace.take(), [0]);
        while test.run_one() {}
        let mut ran = trace.take();
        ran.sort_unstable();
        assert_eq!(ran, [1, 9]);
        drop(scheduled);
    });
}

#[test]
fn a_step_of_a_test_loop_is_one_closure() {
    within(|| {
        let mut test = TestLoop::new();
        let trace = Trace::default();
        for n in 0..5 {
            execute_here(&test, trace.note(n));
        }
        for n in 0..5 {
            assert_eq!(test.pending_tasks(), 5 - n);
            assert!(test.run_one());
            assert_eq!(trace.take(), [n]);
        }
        assert!(!test.run_one());
        assert_eq!(test.metrics().polls(), 5);
    });
}

#[test]
fn closures_are_counted_one_by_one_also_if_some_panic() {
    const CALLS: usize = 300;
    within(|| {
        let panics = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&panics);
        let builder = EventLoopGroup::builder().loops(1);
        let group = builder
            .on_panic(move |panic| {
                let place = panic.location().unwrap();
                let count = EventLoop::current().unwrap().metrics().panicked();
                seen.lock().unwrap().push((panic.site(), place, count));
            })
            .build()
            .unwrap();
        let ev = group.next().clone();
        let release = stall(&ev);
        let pending = Trace::default();
        let (mut first, mut second) = (0, 0);
        for n in 0..CALLS {
            let (own, pending) = (ev.clone(), pending.clone());
            let call = move || {
                assert_eq!(own.live_tasks(), 1, "itself");
                pending.add(own.pending_tasks());
                if n % 3 == 0 {
                    blow_up();
                }
            };
            // Two places with closures of one type: each panic is reported with its own.
            if n % 50 < 25 {
                first = line!() + 1;
                ev.execute(call).unwrap();
            } else {
                second = line!() + 1;
                ev.execute(call).unwrap();
            }
        }
        assert_eq!(ev.pending_tasks(), CALLS);
        release.open();
        flush(&ev);
        let report = group.shutdown_now().wait();
        // The last of them ran while the flush was queued, perhaps.
        let pending = pending.take();
        assert_eq!(pending.len(), CALLS);
        for (n, pending) in pending.into_iter().enumerate() {
            assert!(
                (CALLS - 1 - n..=CALLS - n).contains(&pending),
                "{n}: {pending}"
            );
        }
        let panics = panics.lock().unwrap();
        assert_eq!(panics.len(), CALLS / 3);
        for (number, (n, panic)) in (0..CALLS).step_by(3).zip(&*panics).enumerate() {
            let line = if n % 50 < 25 { first } else { second };
            let (site, place, count) = *panic;
            assert_eq!((site, place.line()), (PanicSite::Task, line));
            assert_eq!(count, number as u64 + 1, "counted before it is reported");
        }
        assert_eq!(report.panicked(), CALLS as u64 / 3);
        assert_eq!(report.cancelled(), 0);
    });
}

#[test]
fn the_rest_of_a_run_is_dropped_on_the_loop_if_one_of_it_shuts_the_loop_down() {
    within(|| {
        let sites = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sites);
        let builder = EventLoopGroup::builder().loops(1);
        let group = builder
            .on_panic(move |panic| seen.lock().unwrap().push(panic.site()))
            .build()
            .unwrap();
        let ev = group.next().clone();
        let home = thread_of(&ev);
        let (trace, drops) = (Trace::default(), DropCount::new());
        let release = stall(&ev);
        let place = Location::caller();
        for n in 0..20 {
            let (own, trace, guard) = (ev.clone(), trace.clone(), drops.guard());
            // The destructor of the last one panics, if it is dropped before it runs.
            let bomb = OnDrop::new(move || {
                if n == 19 && !thread::panicking() {
                    blow_up();
                }
            });
            execute_here(&ev, move || {
                trace.add(n);
                match n {
                    7 => drop(own.shutdown_now()),
                    8 => busy(Duration::from_millis(5)), // longer than the last turn
                    _ => {}
                }
                drop((guard, bomb));
            });
        }
        release.open();
        let report = group.termination().wait();
        let ran = trace.take();
        assert_eq!(ran, (0..ran.len()).collect::<Vec<_>>());
        assert!((8..=9).contains(&ran.len()), "{ran:?}");
        assert_eq!((drops.get(), drops.thread()), (20, Some(home)));
        assert_eq!(report.loops()[0].cause(), EndCause::Now);
        // The thread's id and the stall come first. The last one of the run panics when it is dropped.
        let (completed, cancelled) = (ran.len() as u64 + 2, 19 - ran.len() as u64);
        assert_eq!(report.completed(), completed);
        assert_eq!((report.cancelled(), report.panicked()), (cancelled, 1));
        assert_eq!(*sites.lock().unwrap(), [PanicSite::Destructor]);
        let left = report.left();
        assert_eq!(
            (left.len(), left[0].count(), left[0].waits_for()),
            (1, cancelled, None)
        );
        assert_eq!(left[0].location().file(), place.file());
    });
}

#[test]
fn a_bound_counts_every_closure_of_a_run() {
    within(|| {
        let builder = EventLoopGroup::builder().max_pending_tasks(4);
        let mut test = TestLoop::from_builder(builder).unwrap();
        let trace = Trace::default();
        let execute = |test: &TestLoop, n| test.execute(trace.note(n));
        for n in 0..4 {
            execute(&test, n).unwrap();
        }
        let refused = execute(&test, 9).unwrap_err();
        assert_eq!(refused.reason(), RejectReason::QueueFull);
        refused.into_inner()(); // it was not taken apart
        assert_eq!(trace.take(), [9]);
        for n in 4..8 {
            assert!(test.run_one());
            execute(&test, n).unwrap();
            assert!(execute(&test, 9).is_err());
            let detached = test.spawn_detached(async {}).unwrap_err();
            assert_eq!(detached.reason(), RejectReason::QueueFull);
            assert_eq!(test.pending_tasks(), 4);
        }
        test.run_until_stalled();
        assert_eq!(trace.take(), (0..8).collect::<Vec<_>>());
        assert_eq!(test.metrics().rejected(), 9);
    });
}

#[test]
fn a_drain_waits_for_every_closure() {
    within(|| {
        let (group, ev) = one_loop();
        let trace = Trace::default();
        let release = stall(&ev);
        for n in 0..1_500 {
            execute_here(&ev, trace.note(n));
        }
        let drain = group.drain(LONG);
        release.open();
        let report = drain.wait();
        assert_eq!(trace.take().len(), 1_500);
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.completed(), 1_501);
    });
}

#[test]
fn a_timer_does_not_wait_for_the_end_of_a_run() {
    within(|| {
        const CALLS: usize = 2_000;
        let (_group, ev) = one_loop();
        let ran = Arc::new(AtomicUsize::new(0));
        let release = stall(&ev);
        let seen = Arc::clone(&ran);
        let timer = ev.spawn(async move {
            sleep(Duration::from_millis(5)).await;
            seen.load(Ordering::Relaxed)
        });
        for _ in 0..CALLS {
            let ran = Arc::clone(&ran);
            execute_here(&ev, move || {
                busy(Duration::from_micros(100));
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        release.open();
        // Fifty fit in before it. Far fewer than all have run, also if this thread was held up.
        let before = block_on(timer).unwrap();
        assert!(before < CALLS / 2, "{before}");
    });
}

#[test]
fn every_closure_is_a_task_with_an_id_of_its_own() {
    within(|| {
        let (_group, ev) = one_loop();
        let (tx, rx) = mpsc::channel();
        let release = stall(&ev);
        for _ in 0..3 {
            let tx = tx.clone();
            execute_here(&ev, move || tx.send(task_id()).unwrap());
        }
        let task = ev.spawn(async move { tx.send(task_id()).unwrap() });
        let id = task.id();
        release.open();
        block_on(task).unwrap();
        let ids: Vec<TaskId> = rx.iter().map(Option::unwrap).collect();
        assert_eq!(ids.len(), 4);
        for (n, one) in ids.iter().enumerate() {
            assert!(!ids[..n].contains(one));
        }
        assert_eq!(ids[3], id);
    });
}

#[test]
fn closures_are_measured_one_by_one() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(1).measure_time(true);
        let group = builder.build().unwrap();
        let ev = group.next().clone();
        let release = stall(&ev);
        for n in 0..3 {
            execute_here(&ev, move || thread::sleep(Duration::from_millis(2 * n)));
        }
        release.open();
        flush(&ev);
        let report = group.shutdown_now().wait();
        assert_eq!(report.completed(), 5);
        let metrics = ev.metrics();
        assert_eq!(metrics.polls(), 5);
        assert!(
            metrics.busy().unwrap() >= Duration::from_millis(6),
            "{metrics}"
        );
    });
}

#[test]
fn a_detached_future_is_polled_and_dropped_at_home_however_often_it_waits() {
    within(|| {
        let (group, ev) = one_loop();
        let home = thread_of(&ev);
        let logs: Vec<_> = (0..50).map(|_| Log::new()).collect();
        let release = stall(&ev);
        for (n, log) in logs.iter().enumerate() {
            let body = async move {
                for _ in 0..n % 5 {
                    yield_now().await;
                }
                if n % 7 == 0 {
                    blow_up();
                }
            };
            ev.spawn_detached(Probe::new(log, body)).unwrap();
        }
        assert_eq!(ev.pending_tasks(), 50);
        release.open();
        let report = group.drain(LONG).wait();
        for (n, log) in logs.iter().enumerate() {
            assert_eq!(log.polls(), n % 5 + 1);
            log.assert_home(home);
        }
        assert_eq!((report.completed(), report.panicked()), (44, 8));
    });
}

#[test]
fn a_detached_future_that_never_began_is_dropped_at_home_and_is_cancelled() {
    within(|| {
        let (group, ev) = one_loop();
        let home = thread_of(&ev);
        let release = stall(&ev);
        let logs: Vec<_> = (0..4).map(|_| Log::new()).collect();
        for log in &logs[..3] {
            let named = ev.task().name("session");
            let future = Probe::new(log, pending::<()>());
            named.spawn_detached(future).unwrap();
        }
        let bomb = OnDrop::new(|| blow_up());
        let log = Arc::clone(&logs[3]);
        ev.spawn_detached(async move {
            let _bomb = bomb;
            Probe::new(&log, pending::<()>()).await;
        })
        .unwrap();
        let end = group.shutdown_now();
        release.open();
        let report = end.wait();
        for log in &logs[..3] {
            assert_eq!(log.polls(), 0);
            log.assert_home(home);
        }
        assert_eq!(
            (report.completed(), report.cancelled(), report.panicked()),
            (2, 3, 1)
        );
        let left = report.left();
        assert_eq!(
            (left.len(), left[0].count(), left[0].name()),
            (1, 3, Some("session"))
        );
    });
}

#[test]
fn a_refused_detached_future_is_handed_back_untouched() {
    within(|| {
        let group = group(2);
        let log = Log::new();
        let make = || Probe::new(&log, async { 7 });
        group.loops()[0].shutdown_now().wait();
        // The group retries on a loop that accepts; a loop does not.
        for _ in 0..4 {
            group.spawn_detached(async {}).unwrap();
        }
        let refused = group.loops()[0].spawn_detached(make()).unwrap_err();
        assert_eq!(refused.reason(), RejectReason::ShutDown);
        assert!(poll_once(&mut refused.into_inner()).is_ready());
        group.shutdown_now().wait();
        let refused = group.spawn_detached(make()).unwrap_err();
        assert_eq!(refused.reason(), RejectReason::ShutDown);
        assert!(poll_once(&mut refused.into_inner()).is_ready());
        let refused = loopgroup::spawn_detached(make()).unwrap_err();
        assert_eq!(refused.reason(), RejectReason::NoContext);
        assert!(poll_once(&mut refused.into_inner()).is_ready());
        let refused = loopgroup::task().name("early").spawn_detached(make());
        assert_eq!(refused.unwrap_err().reason(), RejectReason::NoContext);
        assert_eq!((log.polls(), log.drops()), (3, 4));
        let report = group.termination().wait();
        assert_eq!((report.completed(), report.rejected()), (4, 2));
    });
}

#[test]
fn a_detached_future_at_home_and_from_a_sibling_runs_as_a_spawned_one() {
    within(|| {
        let group = group(2);
        let (tx, rx) = mpsc::channel();
        let other = group.loops()[1].clone();
        let task = group.spawn_on(0, async move {
            let here = EventLoop::current().unwrap();
            for (target, n) in [(&here, 0), (&other, 1), (&here, 0), (&other, 1)] {
                let tx = tx.clone();
                let body = async move {
                    yield_now().await;
                    assert!(task_id().is_some());
                    let index = EventLoop::current().unwrap().index();
                    tx.send(index == n).unwrap();
                };
                target.spawn_detached(body).unwrap();
            }
            loopgroup::spawn_detached(async move { tx.send(true).unwrap() }).unwrap();
        });
        block_on(task).unwrap();
        assert_eq!(rx.iter().collect::<Vec<_>>(), [true; 5]);
    });
}

#[test]
fn a_closure_that_is_scheduled_in_a_long_run_does_not_wait_for_the_rest_of_it() {
    within(|| {
        let (_group, ev) = one_loop();
        let release = stall(&ev); // so that all of them are one run
        let (ran, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for n in 0..300 {
            let (home, ran, seen) = (ev.clone(), Arc::clone(&ran), Arc::clone(&seen));
            let call = move || {
                if n == 0 {
                    let (ran, seen) = (Arc::clone(&ran), seen);
                    let note = move || seen.store(ran.load(Ordering::SeqCst), Ordering::SeqCst);
                    drop(home.schedule(Duration::ZERO, note));
                }
                thread::sleep(Duration::from_millis(1)); // the work
                ran.fetch_add(1, Ordering::SeqCst);
            };
            ev.execute(call).unwrap();
        }
        release.open();
        flush(&ev);
        let seen = seen.load(Ordering::SeqCst);
        assert!((1..200).contains(&seen), "it ran behind {seen} of 300");
    });
}
