//! Every way to submit work runs it once, on the right loop and in order, or hands it back.

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, RejectReason, WaitStrategy, block_on, spawn_local,
    try_spawn_local, yield_now,
};

use crate::util::{
    self, Door, DropCount, Log, OnDrop, Probe, eventually, flush, group, panic_of, poll_once,
    stall, thread_of, within,
};

/// What ran, in order.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<&'static str>>>);

impl Trace {
    fn add(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    /// A closure that notes `what`.
    fn note(&self, what: &'static str) -> impl FnOnce() + Send + use<> {
        let this = self.clone();
        move || this.add(what)
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A group whose loops refuse everything.
fn ended(loops: usize) -> EventLoopGroup {
    let group = group(loops);
    group.start().unwrap();
    group.shutdown_now().wait();
    group
}

/// The index of the loop that polls it.
async fn here() -> Option<usize> {
    EventLoop::current().map(|ev| ev.index())
}

#[test]
fn spawn_takes_the_loops_in_turn() {
    within(|| {
        let group = group(3);
        let seen: Vec<_> = (0..6)
            .map(|_| block_on(group.spawn(here())).unwrap())
            .collect();
        assert_eq!(seen, [0, 1, 2, 0, 1, 2].map(Some));
    });
}

#[test]
fn spawn_on_runs_on_the_loop_with_that_index() {
    within(|| {
        let group = group(3);
        for index in [2, 0, 1] {
            assert_eq!(
                block_on(group.spawn_on(index, here())).unwrap(),
                Some(index)
            );
        }
    });
}

#[test]
fn spawn_on_a_loop_that_does_not_exist_is_refused_and_counted() {
    within(|| {
        let group = group(2);
        for index in [2, usize::MAX] {
            let log = Log::new();
            let handle = group.spawn_on(index, Probe::new(&log, async {}));
            assert!(handle.is_finished());
            let error = block_on(handle).unwrap_err();
            assert_eq!(error.reject_reason(), Some(RejectReason::NoSuchLoop));
            assert_eq!((log.polls(), log.drops()), (0, 1));
        }
        let report = group.shutdown_now().wait();
        assert_eq!((report.accepted(), report.rejected()), (0, 2));
    });
}

#[test]
fn spawn_with_makes_a_future_that_is_not_send_on_its_loop() {
    within(|| {
        let group = group(2);
        let submitter = thread::current().id();
        for index in [0, 1, 0] {
            let handle = group.spawn_with(move || {
                let made_by = thread::current().id();
                let local = Rc::new(Cell::new(0));
                async move {
                    for _ in 0..3 {
                        yield_now().await;
                        local.set(local.get() + 1);
                    }
                    assert_eq!(thread::current().id(), made_by);
                    (here().await, made_by, local.get())
                }
            });
            let (ran_on, made_by, count) = block_on(handle).unwrap();
            assert_eq!((ran_on, count), (Some(index), 3));
            assert_ne!(made_by, submitter);
        }
    });
}

#[test]
fn cancel_of_spawn_with_resolves_only_once_the_inner_future_is_dropped() {
    /// Takes its time to go.
    struct SlowDrop(Door, Door, DropCount);

    impl Drop for SlowDrop {
        fn drop(&mut self) {
            self.0.open();
            self.1.pass();
            drop(self.2.guard());
        }
    }

    within(|| {
        let group = group(1);
        let (waits, entered, release) = (Door::new(), Door::new(), Door::new());
        let dropped = DropCount::new();
        let slow = SlowDrop(entered.clone(), release.clone(), dropped.clone());
        let opened = waits.opened();
        let handle = group.spawn_with(move || async move {
            let _slow = (slow, Rc::new(()));
            opened.await;
        });
        eventually("the task waits", || waits.waiting() == 1);
        let mut cancel = Box::pin(handle.cancel());
        assert!(poll_once(&mut cancel).is_pending());
        entered.pass();
        assert!(poll_once(&mut cancel).is_pending(), "the drop is under way");
        assert_eq!(dropped.get(), 0);
        release.open();
        assert_eq!(block_on(cancel), None);
        assert_eq!(dropped.get(), 1);
        assert_eq!(dropped.thread(), Some(thread_of(group.next())));
    });
}

#[test]
fn try_spawn_hands_the_future_back_when_the_loop_is_shut_down() {
    within(|| {
        let group = ended(2);
        let log = Log::new();
        let rejected = group
            .try_spawn(Probe::new(&log, async { 42 }))
            .expect_err("the group has ended");
        assert_eq!(rejected.reason(), RejectReason::ShutDown);
        assert_eq!(
            rejected.to_string(),
            "submission rejected: the event loop is shut down"
        );
        assert_eq!((log.polls(), log.drops()), (0, 0));
        assert_eq!(block_on(rejected.into_inner()), 42);
        assert_eq!((log.polls(), log.drops()), (1, 1));
        assert_eq!(group.termination().wait().rejected(), 1);
    });
}

#[test]
fn try_spawn_hands_the_future_back_when_the_queue_is_full() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(1)
            .max_pending_tasks(1)
            .build()
            .unwrap();
        let release = stall(group.next());
        let first = group.try_spawn(async { 1 }).unwrap();
        let rejected = group.try_spawn(async { 2 }).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::QueueFull);
        assert_eq!(
            std::io::Error::from(rejected).kind(),
            std::io::ErrorKind::ResourceBusy
        );
        release.open();
        assert_eq!(block_on(first).unwrap(), 1);
        assert_eq!(block_on(group.try_spawn(async { 3 }).unwrap()).unwrap(), 3);
    });
}

#[test]
fn every_other_submission_is_refused_after_the_end_and_says_so() {
    within(|| {
        let group = ended(1);
        let ev = group.next();
        let shut = Some(RejectReason::ShutDown);
        let reason = |error: loopgroup::JoinError| error.reject_reason();
        assert_eq!(block_on(group.spawn(async {})).map_err(reason), Err(shut));
        assert_eq!(
            block_on(group.spawn_with(|| async {})).map_err(reason),
            Err(shut)
        );
        assert_eq!(
            block_on(group.spawn_keyed(&1, async {})).map_err(reason),
            Err(shut)
        );
        assert_eq!(block_on(ev.submit(|| ())).map_err(reason), Err(shut));
        let trace = Trace::default();
        for refused in [
            ev.execute(trace.note("execute")).unwrap_err().into_inner(),
            ev.dispatch(trace.note("execute")).unwrap_err().into_inner(),
            ev.lazy_execute(trace.note("execute"))
                .unwrap_err()
                .into_inner(),
            ev.execute_after_iteration(trace.note("execute"))
                .unwrap_err()
                .into_inner(),
        ] {
            assert_eq!(trace.take(), [""; 0]);
            refused();
            assert_eq!(trace.take(), ["execute"], "the closure came back whole");
        }
        assert_eq!(group.termination().wait().rejected(), 8);
    });
}

#[test]
fn spawn_keyed_sends_a_key_to_the_same_loop_for_ever() {
    within(|| {
        let group = group(4);
        let homes = |_| -> Vec<_> {
            (0..200)
                .map(|key| block_on(group.spawn_keyed(&key, here())).unwrap().unwrap())
                .collect()
        };
        let rounds = [(); 3].map(homes);
        assert_eq!(rounds[0], rounds[1]);
        assert_eq!(rounds[1], rounds[2]);
        assert!(
            rounds[0].iter().any(|&home| home != rounds[0][0]),
            "keys are spread"
        );
        // Equal keys of different types agree, as in a map.
        let text = block_on(group.spawn_keyed("user", here())).unwrap();
        assert_eq!(
            block_on(group.spawn_keyed(&"user".to_owned(), here())).unwrap(),
            text
        );
    });
}

#[test]
fn free_spawn_in_a_task_takes_the_loops_of_its_group_in_turn() {
    within(|| {
        let group = group(3);
        let seen = group.spawn_on(1, async {
            let mut seen = Vec::new();
            for _ in 0..6 {
                seen.push(loopgroup::spawn(here()).await.unwrap().unwrap());
            }
            seen
        });
        assert_eq!(block_on(seen).unwrap(), [0, 1, 2, 0, 1, 2]);
    });
}

#[test]
fn free_spawn_in_block_on_uses_that_group_and_the_innermost_one() {
    within(|| {
        let (outer, inner) = (group(1), group(1));
        let home = |group: &EventLoopGroup| group.loops()[0].clone();
        outer.block_on(async {
            let here = || async { EventLoop::current().unwrap() };
            assert_eq!(loopgroup::spawn(here()).await.unwrap(), home(&outer));
            // A nested block_on on a thread that is no loop is fine.
            inner.block_on(async {
                assert_eq!(loopgroup::spawn(here()).await.unwrap(), home(&inner));
                let tried = loopgroup::try_spawn(here()).unwrap();
                assert_eq!(tried.await.unwrap(), home(&inner));
            });
            assert_eq!(loopgroup::spawn(here()).await.unwrap(), home(&outer));
        });
        assert!(
            loopgroup::try_spawn(async {}).is_err(),
            "the context is gone"
        );
    });
}

#[test]
fn free_functions_without_a_context_panic_and_say_what_is_missing() {
    within(|| {
        let text = panic_of(|| loopgroup::spawn(async {}));
        assert!(
            text.starts_with("loopgroup::spawn needs an event loop around it"),
            "{text}"
        );
        assert!(text.contains("group.spawn"), "{text}");
        let text = panic_of(|| spawn_local(async {}));
        assert!(
            text.starts_with("loopgroup::spawn_local needs an event loop"),
            "{text}"
        );
        let text = panic_of(loopgroup::shutdown_requested);
        assert!(
            text.starts_with("loopgroup::shutdown_requested needs an event loop"),
            "{text}"
        );
        let group = group(1);
        let text = group.block_on(async { panic_of(|| spawn_local(async {})) });
        assert!(
            text.contains("group.spawn_with") && !text.contains("block_on"),
            "it names no place where it would panic again: {text}"
        );
    });
}

#[test]
fn free_functions_without_a_context_panic_at_the_callers_line() {
    const NAME: &str = "free_functions_without_a_context_panic_at_the_callers_line";
    const LINE: u32 = line!() + 2;
    if util::is_child() {
        drop(loopgroup::spawn(async {}));
        return;
    }
    let output = within(|| util::in_child(NAME));
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(&format!("{}:{LINE}:", file!())), "{text}");
}

#[test]
fn try_functions_without_a_context_hand_the_future_back() {
    within(|| {
        let rejected = loopgroup::try_spawn(async { 1 }).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::NoContext);
        assert!(
            rejected
                .to_string()
                .contains("this thread is not an event loop")
        );
        assert_eq!(block_on(rejected.into_inner()), 1);
        let local = Rc::new(2);
        let rejected = try_spawn_local(async move { *local }).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::NoContext);
        assert_eq!(block_on(rejected.into_inner()), 2);
        let group = group(1);
        let reason = group.block_on(async { try_spawn_local(async {}).unwrap_err().reason() });
        assert_eq!(reason, RejectReason::NoContext);
    });
}

#[test]
fn spawn_local_stays_on_its_loop_and_runs_after_the_caller() {
    within(|| {
        let group = group(2);
        for index in [0, 1] {
            let seen = group.loops()[index].spawn_with(|| async {
                let before = Rc::new(Cell::new(false));
                let flag = Rc::clone(&before);
                let handle = spawn_local(async move { (flag.get(), here().await) });
                before.set(true);
                handle.await.unwrap()
            });
            assert_eq!(block_on(seen).unwrap(), (true, Some(index)));
        }
        let tried = group.spawn_on(1, async { try_spawn_local(here()).unwrap().await.unwrap() });
        assert_eq!(block_on(tried).unwrap(), Some(1));
    });
}

#[test]
fn spawn_local_works_in_run_and_what_is_left_is_dropped_there() {
    within(|| {
        let log = Log::new();
        let sum = loopgroup::run(async {
            drop(spawn_local(Probe::new(&log, pending::<()>())));
            let tasks: Vec<_> = (1..=4).map(|n| spawn_local(async move { n })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(sum.unwrap(), 10);
        assert_eq!(log.polls(), 1);
        log.assert_home(thread::current().id());
        assert!(EventLoop::current().is_none());
    });
}

#[test]
fn blocking_on_a_loop_thread_is_refused_with_the_name_of_the_loop() {
    within(|| {
        let (one, two) = (group(2), group(1));
        let other = two.clone();
        let texts = one.loops()[1].submit(move || {
            let kind = loopgroup::run(async {}).unwrap_err().kind();
            assert_eq!(kind, std::io::ErrorKind::Deadlock);
            [
                panic_of(|| block_on(async {})),
                panic_of(|| other.block_on(async {})),
                panic_of(|| other.termination().wait()),
            ]
        });
        let texts = block_on(texts).unwrap();
        for text in &texts {
            assert!(
                text.contains("was called on the thread of event loop 1"),
                "{text}"
            );
            assert!(text.contains("Await the "), "{text}");
        }
        assert!(
            texts[1].starts_with("EventLoopGroup::block_on"),
            "{}",
            texts[1]
        );
        assert!(
            texts[2].starts_with("TerminationFuture::wait"),
            "{}",
            texts[2]
        );
        assert_eq!(
            block_on(one.spawn_on(1, here())).unwrap(),
            Some(1),
            "the loop lives"
        );
    });
}

#[test]
fn execute_and_submit_on_the_loop_wait_for_their_turn() {
    within(|| {
        let group = group(1);
        let ev = group.next().clone();
        let trace = Trace::default();
        let (this, notes) = (ev.clone(), trace.clone());
        ev.execute(move || {
            this.execute(notes.note("execute")).unwrap();
            drop(this.submit(notes.note("submit")));
            notes.add("caller");
        })
        .unwrap();
        // One for the caller's turn, one for what it has queued.
        flush(&ev);
        flush(&ev);
        assert_eq!(trace.take(), ["caller", "execute", "submit"]);
    });
}

#[test]
fn dispatch_on_the_loop_runs_before_it_returns_and_nests() {
    within(|| {
        let group = group(1);
        let ev = group.next().clone();
        let trace = Trace::default();
        let (this, notes) = (ev.clone(), trace.clone());
        let done = ev.submit(move || {
            let (inner, inside) = (this.clone(), notes.clone());
            this.dispatch(move || {
                inside.add("outer");
                inner.dispatch(inside.note("inner")).unwrap();
                inside.add("outer again");
            })
            .unwrap();
            notes.add("caller");
        });
        block_on(done).unwrap();
        assert_eq!(trace.take(), ["outer", "inner", "outer again", "caller"]);
        let report = group.shutdown_now().wait();
        assert_eq!((report.accepted(), report.completed()), (3, 3));
    });
}

#[test]
fn dispatch_from_elsewhere_hops_and_keeps_the_order() {
    within(|| {
        let group = group(2);
        let ev = group.loops()[0].clone();
        let trace = Trace::default();
        let release = stall(&ev);
        ev.execute(trace.note("first")).unwrap();
        ev.dispatch(trace.note("second")).unwrap();
        // A sibling loop is elsewhere, too.
        let (far, notes) = (ev.clone(), trace.clone());
        block_on(group.loops()[1].submit(move || far.dispatch(notes.note("third")).unwrap()))
            .unwrap();
        assert_eq!(trace.take(), [""; 0]);
        release.open();
        flush(&ev);
        assert_eq!(trace.take(), ["first", "second", "third"]);
    });
}

#[test]
fn lazy_execute_does_not_wake_a_parked_loop_and_the_next_task_flushes_it_in_order() {
    within(|| {
        for group in [
            group(2),
            EventLoopGroup::builder()
                .loops(2)
                .without_io()
                .build()
                .unwrap(),
        ] {
            let (ev, other) = (&group.loops()[0], &group.loops()[1]);
            let trace = Trace::default();
            // Nobody announces that a loop has parked, so now and then it may still be awake.
            let stayed = (0..10).filter(|_| {
                flush(ev);
                (0..20).for_each(|_| flush(other));
                ev.lazy_execute(trace.note("one")).unwrap();
                ev.lazy_execute(trace.note("two")).unwrap();
                // Time enough for a loop that was woken.
                (0..60).for_each(|_| flush(other));
                let stayed = trace.0.lock().unwrap().is_empty();
                ev.execute(trace.note("three")).unwrap();
                flush(ev);
                assert_eq!(trace.take(), ["one", "two", "three"]);
                stayed
            });
            assert!(stayed.count() >= 5, "a parked loop was woken");
        }
    });
}

#[test]
fn a_lazy_closure_is_not_lost_at_shutdown() {
    within(|| {
        let group = group(1);
        let ev = group.next();
        flush(ev);
        let trace = Trace::default();
        ev.lazy_execute(trace.note("lazy")).unwrap();
        let report = group.drain(Duration::from_secs(30)).wait();
        assert_eq!(trace.take(), ["lazy"]);
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        assert_eq!((report.accepted(), report.completed()), (2, 2));
    });
}

#[test]
fn a_queue_full_of_lazy_closures_does_not_refuse_for_ever() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(2).max_pending_tasks(2);
        let group = builder.build().unwrap();
        let (ev, other) = (&group.loops()[0], &group.loops()[1]);
        for _ in 0..20 {
            flush(ev);
            // Most likely the loop has parked by now; if it has not, there is nothing to see.
            (0..20).for_each(|_| flush(other));
            let trace = Trace::default();
            ev.lazy_execute(trace.note("one")).unwrap();
            ev.lazy_execute(trace.note("two")).unwrap();
            eventually("somebody gets in", || {
                ev.execute(trace.note("three")).is_ok()
            });
            eventually("all have run", || trace.0.lock().unwrap().len() == 3);
            assert_eq!(trace.take(), ["one", "two", "three"]);
        }
    });
}

#[test]
fn lazy_execute_on_the_loop_itself_runs_before_the_loop_parks() {
    within(|| {
        let group = group(1);
        let ev = group.next().clone();
        let (tx, rx) = mpsc::channel();
        let this = ev.clone();
        ev.execute(move || this.lazy_execute(move || tx.send(()).unwrap()).unwrap())
            .unwrap();
        rx.recv().unwrap();
    });
}

#[test]
fn execute_after_iteration_runs_once_after_the_tasks_of_its_iteration() {
    within(|| {
        let group = group(1);
        let ev = group.next().clone();
        let trace = Trace::default();
        let release = stall(&ev);
        // From elsewhere: taken in with the two tasks that come after it.
        ev.execute_after_iteration(trace.note("tail from elsewhere"))
            .unwrap();
        let (this, notes) = (ev.clone(), trace.clone());
        ev.execute(move || {
            // From a task: belongs to the iteration under way.
            this.execute_after_iteration(notes.note("tail from a task"))
                .unwrap();
            this.execute(notes.note("third")).unwrap();
            notes.add("first");
        })
        .unwrap();
        ev.execute(trace.note("second")).unwrap();
        release.open();
        flush(&ev);
        flush(&ev);
        assert_eq!(
            trace.take(),
            [
                "first",
                "second",
                "third",
                "tail from elsewhere",
                "tail from a task"
            ]
        );
        assert_eq!(trace.take(), [""; 0], "once");
    });
}

#[test]
fn what_a_tail_task_queues_belongs_to_the_next_iteration() {
    within(|| {
        let group = group(1);
        let ev = group.next().clone();
        let trace = Trace::default();
        let (this, notes) = (ev.clone(), trace.clone());
        let (tx, rx) = mpsc::channel();
        ev.execute_after_iteration(move || {
            let last = notes.clone();
            this.execute_after_iteration(move || {
                last.add("next tail");
                tx.send(()).unwrap();
            })
            .unwrap();
            this.execute(notes.note("task")).unwrap();
            notes.add("tail");
        })
        .unwrap();
        rx.recv().unwrap();
        assert_eq!(trace.take(), ["tail", "task", "next tail"]);
    });
}

#[test]
fn each_producer_sees_its_submissions_run_in_order() {
    const PRODUCERS: usize = 4;
    const EACH: usize = 1_000;
    within(|| {
        let group = group(1);
        let seen = Arc::new(Mutex::new(vec![Vec::new(); PRODUCERS]));
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (ev, seen) = (group.next().clone(), Arc::clone(&seen));
                thread::spawn(move || {
                    for n in 0..EACH {
                        let seen = Arc::clone(&seen);
                        let note = move || seen.lock().unwrap()[producer].push(n);
                        // Every way in shares one queue.
                        match n % 7 {
                            0 => ev.execute(note).unwrap(),
                            6 => ev.spawn_detached(async move { note() }).unwrap(),
                            1 => drop(ev.submit(note)),
                            2 => drop(ev.spawn(async move { note() })),
                            3 => drop(ev.try_spawn(async move { note() }).unwrap()),
                            4 => ev.lazy_execute(note).unwrap(),
                            _ => drop(ev.spawn_with(move || async move { note() })),
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        flush(group.next());
        let expected: Vec<_> = (0..EACH).collect();
        for order in &*seen.lock().unwrap() {
            assert_eq!(*order, expected);
        }
    });
}

#[test]
fn a_task_that_wakes_itself_goes_behind_all_others() {
    within(|| {
        let group = group(1);
        let ev = group.next();
        let trace = Trace::default();
        let release = stall(ev);
        let notes = trace.clone();
        let mut tasks = vec![ev.spawn(async move {
            notes.add("self 1");
            yield_now().await;
            notes.add("self 2");
            yield_now().await;
            notes.add("self 3");
        })];
        for what in ["a", "b", "c"] {
            let notes = trace.clone();
            tasks.push(ev.spawn(async move {
                notes.add(what);
                yield_now().await;
                notes.add(what);
            }));
        }
        release.open();
        for task in tasks {
            block_on(task).unwrap();
        }
        assert_eq!(
            trace.take(),
            ["self 1", "a", "b", "c", "self 2", "a", "b", "c", "self 3"]
        );
    });
}

#[test]
fn a_spawn_on_the_own_loop_runs_before_it_parks_whoever_makes_it() {
    within(|| {
        for strategy in [
            WaitStrategy::Park,
            WaitStrategy::SpinThenPark(Duration::from_micros(10)),
        ] {
            let (tx, rx) = mpsc::channel();
            let started = tx.clone();
            let group = EventLoopGroup::builder()
                .loops(1)
                .wait_strategy(strategy)
                .on_thread_start(move |_| {
                    let tx = started.clone();
                    drop(spawn_local(async move { tx.send("thread hook").unwrap() }));
                })
                .build()
                .unwrap();
            let ev = group.next().clone();
            group.start().unwrap();
            // Nothing but its own spawn can wake the loop after each of these.
            let spawns = |what: &'static str| {
                let tx = tx.clone();
                move || drop(spawn_local(async move { tx.send(what).unwrap() }))
            };
            assert_eq!(rx.recv().unwrap(), "thread hook");
            ev.execute(spawns("closure")).unwrap();
            assert_eq!(rx.recv().unwrap(), "closure");
            let spawn = spawns("task");
            drop(ev.spawn(async move {
                yield_now().await;
                spawn();
            }));
            assert_eq!(rx.recv().unwrap(), "task");
            ev.execute_after_iteration(spawns("tail")).unwrap();
            assert_eq!(rx.recv().unwrap(), "tail");
            let spawn = OnDrop::new(spawns("destructor"));
            drop(ev.spawn(async move { drop(spawn) }));
            assert_eq!(rx.recv().unwrap(), "destructor");
            let bound = ev.bind({
                let spawn = OnDrop::new(spawns("loop-bound value"));
                move || spawn
            });
            block_on(bound.with(|_| ())).unwrap();
            drop(bound);
            assert_eq!(rx.recv().unwrap(), "loop-bound value");
            ev.add_shutdown_hook(spawns("hook")).unwrap();
            let report = group.drain(Duration::from_secs(30)).wait();
            assert_eq!(rx.recv().unwrap(), "hook");
            assert!(report.is_clean());
        }
    });
}

#[test]
fn pending_and_live_tasks_are_counted_exactly() {
    within(|| {
        let group = group(1);
        let ev = group.next();
        let counts = || (ev.pending_tasks(), ev.live_tasks());
        assert_eq!(counts(), (0, 0));
        let release = stall(ev);
        assert_eq!(counts(), (0, 1), "the closure that stalls is at work");
        let door = Door::new();
        let handles: Vec<_> = (0..3).map(|_| ev.spawn(door.opened())).collect();
        ev.execute_after_iteration(|| ()).unwrap();
        ev.lazy_execute(|| ()).unwrap();
        assert_eq!(counts(), (5, 1));
        release.open();
        eventually("three tasks wait", || {
            counts() == (0, 3) && door.waiting() == 3
        });
        door.open();
        for handle in handles {
            block_on(handle).unwrap();
        }
        eventually("all have ended", || counts() == (0, 0));
        let cancelled = ev.spawn(pending::<()>());
        eventually("it waits", || counts() == (0, 1));
        assert_eq!(block_on(cancelled.cancel()), None);
        assert_eq!(counts(), (0, 0), "cancelled means gone");
    });
}

#[test]
fn pending_tasks_counts_what_the_loop_spawns_for_itself() {
    within(|| {
        let group = group(1);
        let ev = group.next().clone();
        let this = ev.clone();
        let seen = ev.submit(move || {
            let handles: Vec<_> = (0..3).map(|_| spawn_local(async {})).collect();
            this.execute_after_iteration(|| ()).unwrap();
            let before = (this.pending_tasks(), this.live_tasks());
            (before, handles)
        });
        let (before, handles) = block_on(seen).unwrap();
        assert_eq!(before, (4, 1));
        for handle in handles {
            block_on(handle).unwrap();
        }
    });
}

#[test]
fn a_spawn_by_a_destructor_during_teardown_is_refused_and_the_end_comes() {
    within(|| {
        let group = group(1);
        let (door, reasons) = (Door::new(), Arc::new(Mutex::new(Vec::new())));
        let (opened, noted, ev) = (door.opened(), Arc::clone(&reasons), group.next().clone());
        let guard = OnDrop::new(move || {
            let mut noted = noted.lock().unwrap();
            noted.push(try_spawn_local(async {}).map(drop).map_err(|r| r.reason()));
            noted.push(
                loopgroup::try_spawn(async {})
                    .map(drop)
                    .map_err(|r| r.reason()),
            );
            noted.push(ev.dispatch(|| ()).map_err(|r| r.reason()));
            let handle = spawn_local(async {});
            assert!(handle.is_finished(), "refused");
        });
        drop(group.spawn(async move {
            let _guard = guard;
            opened.await;
        }));
        eventually("the task waits", || door.waiting() == 1);
        let report = group.shutdown_now().wait();
        assert_eq!(*reasons.lock().unwrap(), [Err(RejectReason::ShutDown); 3]);
        assert_eq!(
            (report.accepted(), report.cancelled(), report.rejected()),
            (1, 1, 4)
        );
    });
}

#[test]
fn yield_now_lets_every_queued_task_go_first() {
    within(|| {
        let done = loopgroup::run(async {
            let others: Vec<_> = (0..10).map(|_| spawn_local(async {})).collect();
            spawn_local(async move {
                yield_now().await;
                others.iter().all(|other| other.is_finished())
            })
            .await
            .unwrap()
        });
        assert!(done.unwrap());
    });
}

#[test]
fn a_submission_from_a_thread_that_has_exited_still_runs() {
    within(|| {
        let group = group(1);
        let ev = group.next();
        let release = stall(ev);
        let far = ev.clone();
        let handle = thread::spawn(move || far.spawn(here())).join().unwrap();
        release.open();
        assert_eq!(block_on(handle).unwrap(), Some(0));
    });
}

#[test]
fn first_uses_from_many_threads_start_one_thread_per_loop() {
    within(|| {
        let starts = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&starts);
        let group = EventLoopGroup::builder()
            .loops(2)
            .on_thread_start(move |ev| noted.lock().unwrap().push(ev.index()))
            .build()
            .unwrap();
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let group = group.clone();
                thread::spawn(move || block_on(group.spawn_on(n % 2, here())).unwrap())
            })
            .collect();
        for (n, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), Some(n % 2));
        }
        let mut starts = starts.lock().unwrap().clone();
        starts.sort_unstable();
        assert_eq!(starts, [0, 1]);
    });
}

#[test]
fn futures_spawn_traits_submit_like_the_handles_they_stand_for() {
    use futures::task::{LocalSpawn, LocalSpawnExt, SpawnExt};
    within(|| {
        let group = group(2);
        let (tx, rx) = mpsc::channel();
        for _ in 0..4 {
            let tx = tx.clone();
            SpawnExt::spawn(&group, async move { tx.send(here().await).unwrap() }).unwrap();
        }
        let mut seen: Vec<_> = rx.iter().take(4).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 0, 1, 1].map(Some));
        let ev = group.loops()[1].clone();
        assert!(ev.status_local().is_err(), "not on the loop");
        let this = ev.clone();
        block_on(ev.submit(move || {
            let local = Rc::new(tx);
            let send = async move { local.send(here().await).unwrap() };
            LocalSpawnExt::spawn_local(&this, send).unwrap();
        }))
        .unwrap();
        assert_eq!(rx.recv().unwrap(), Some(1));
        group.shutdown_now().wait();
        assert!(SpawnExt::spawn(&group, async {}).unwrap_err().is_shutdown());
    });
}
