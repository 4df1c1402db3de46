//! Handles of tasks: aborting by reference and from afar, ids, names, sets of tasks.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use loopgroup::blocking::{BlockingGroup, unblock};
use loopgroup::testing::TestLoop;
use loopgroup::time::sleep;
use loopgroup::{
    AbortHandle, EventLoopGroup, JoinHandle, JoinSet, ManualLoop, RejectReason, TaskId, block_on,
    spawn_local, task_id, yield_now,
};

use crate::util::{
    Door, DropCount, HOUR, LONG, Log, OnDrop, Probe, Random, eventually, flush, group, on_a_loop,
    one_loop, panic_of, restless, stall, thread_of, within,
};

/// Runs a future on a loop of its own and returns its value.
fn local<T: Send + 'static, F: Future<Output = T>>(main: impl FnOnce() -> F + Send + 'static) -> T {
    on_a_loop(|| async { Ok(main().await) })
}

#[test]
fn cancel_during_the_poll_that_completes_the_task_returns_its_value() {
    within(|| {
        for cancel_first in [false, true] {
            let group = group(1);
            let (inside, finish) = (Door::new(), Door::new());
            let task = group.spawn({
                let (inside, finish) = (inside.clone(), finish.clone());
                async move {
                    inside.open();
                    finish.pass(); // the poll waits, on purpose
                    "the value"
                }
            });
            inside.pass();
            let result = if cancel_first {
                let cancelling = task.cancel();
                finish.open();
                block_on(cancelling)
            } else {
                task.abort();
                finish.open();
                block_on(task).ok()
            };
            assert_eq!(result, Some("the value"));
            let report = group.shutdown_now().wait();
            assert_eq!((report.completed(), report.cancelled()), (1, 0));
        }
    });
}

#[test]
fn a_task_that_cancels_itself_in_its_last_poll_has_its_value() {
    let seen = local(|| async {
        let own: Rc<Cell<Option<JoinHandle<u32>>>> = Rc::default();
        let task = spawn_local({
            let own = Rc::clone(&own);
            async move {
                let handle = own.take().expect("it was put there");
                let abort = handle.abort_handle();
                handle.abort();
                drop(handle); // detached, and so the value is dropped
                yield_now().await;
                unreachable!("{abort:?} does not keep the task from being aborted")
            }
        });
        let abort = task.abort_handle();
        own.set(Some(task));
        while !abort.is_finished() {
            yield_now().await;
        }
        // Once more, and the poll completes the task.
        let own: Rc<Cell<Option<AbortHandle>>> = Rc::default();
        let task = spawn_local({
            let own = Rc::clone(&own);
            async move {
                own.take().expect("it was put there").abort();
                7
            }
        });
        own.set(Some(task.abort_handle()));
        task.await.unwrap()
    });
    assert_eq!(seen, 7);
}

#[test]
fn a_task_that_watches_and_aborts_itself_and_completes_leaves_nothing_behind() {
    within(|| {
        let (group, ev) = one_loop();
        for waits in [false, true] {
            let (tx, rx) = mpsc::channel::<AbortHandle>();
            let (give, take) = mpsc::channel::<JoinHandle<()>>();
            let release = stall(&ev);
            let task = ev.spawn(async move {
                if waits {
                    yield_now().await;
                }
                let own = take.recv().unwrap();
                let abort = own.abort_handle();
                own.abort();
                abort.abort();
                tx.send(abort).unwrap();
            });
            give.send(task).unwrap();
            release.open();
            let abort = rx.recv().unwrap();
            eventually("its end is told", || abort.is_finished());
        }
        let report = group.drain(LONG).wait();
        assert_eq!((report.cancelled(), report.panicked()), (0, 0), "{report}");
    });
}

#[test]
fn a_task_aborted_on_its_own_loop_is_not_polled_again() {
    let (before, after, drops) = local(|| async {
        let log = Log::new();
        let task = spawn_local(Probe::new(&log, restless()));
        while log.polls() < 3 {
            yield_now().await;
        }
        task.abort();
        let before = log.polls();
        assert!(task.await.unwrap_err().is_cancelled());
        // Never polled, and aborted before its first turn.
        let fresh = spawn_local(Probe::new(&log, restless()));
        fresh.abort();
        assert!(fresh.await.unwrap_err().is_cancelled());
        (before, log.polls(), log.drops())
    });
    assert_eq!((before, drops), (after, 2), "and its future is dropped");
}

#[test]
fn a_task_that_aborts_itself_in_its_first_poll_and_waits_is_cancelled() {
    let dropped = local(|| async {
        let own: Rc<Cell<Option<AbortHandle>>> = Rc::default();
        let dropped = DropCount::new();
        let task = spawn_local({
            let (own, guard) = (Rc::clone(&own), dropped.guard());
            async move {
                own.take().expect("it was put there").abort();
                pending::<()>().await;
                drop(guard);
            }
        });
        own.set(Some(task.abort_handle()));
        assert!(task.await.unwrap_err().is_cancelled());
        dropped.get()
    });
    assert_eq!(dropped, 1);
}

#[test]
fn a_queued_task_that_is_aborted_from_outside_never_starts() {
    within(|| {
        let (group, ev) = one_loop();
        // In the inbox of a loop that is busy.
        let release = stall(&ev);
        let log = Log::new();
        let task = ev.spawn(Probe::new(&log, async {}));
        task.abort();
        release.open();
        assert!(block_on(task).unwrap_err().is_cancelled());
        assert_eq!((log.polls(), log.drops()), (0, 1));
        log.assert_home(thread_of(&ev));

        // In the run queue, behind a task that is being polled: the loop looks before it goes on.
        let (inside, finish) = (Door::new(), Door::new());
        let (tx, rx) = mpsc::channel();
        let log = Log::new();
        let both = ev.submit({
            let (inside, finish, log) = (inside.clone(), finish.clone(), Arc::clone(&log));
            move || {
                drop(spawn_local(async move {
                    inside.open();
                    finish.pass();
                }));
                let victim = spawn_local(Probe::new(&log, async {}));
                tx.send(victim).unwrap();
            }
        });
        block_on(both).unwrap();
        let victim = rx.recv().unwrap();
        inside.pass();
        victim.abort();
        finish.open();
        assert!(block_on(victim).unwrap_err().is_cancelled());
        assert_eq!((log.polls(), log.drops()), (0, 1));
        let report = group.shutdown_now().wait();
        assert_eq!((report.cancelled(), report.aborted()), (2, 2));
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn a_waiting_task_is_aborted_on_its_loop_from_any_thread() {
    within(|| {
        let group = group(2);
        for index in [0, 1] {
            let home = thread_of(&group.loops()[index]);
            let log = Log::new();
            let task = group.spawn_on(index, Probe::new(&log, pending::<()>()));
            flush(&group.loops()[index]);
            let abort = task.abort_handle();
            // From its sibling, by a handle that knows nothing of its type.
            let sibling = group.spawn_on(1 - index, async move {
                abort.abort();
                abort
            });
            let abort = block_on(sibling).unwrap();
            assert!(block_on(task).unwrap_err().is_cancelled());
            log.assert_home(home);
            assert_eq!(log.drops(), 1);
            eventually("the flag is set", || abort.is_finished());
            abort.abort(); // again, and nothing happens
        }
    });
}

#[test]
fn an_abort_handle_outlives_the_join_handle_the_task_and_the_loop() {
    within(|| {
        let (group, ev) = one_loop();
        let waiting = ev.spawn(pending::<()>()).abort_handle();
        let ended = {
            let task = ev.spawn(async {});
            let abort = task.abort_handle();
            block_on(task).unwrap();
            abort
        };
        eventually("it ends", || ended.is_finished());
        assert!(!waiting.is_finished());
        waiting.abort();
        eventually("it is dropped", || waiting.is_finished());
        let last = ev.spawn(pending::<()>()).abort_handle();
        let report = group.shutdown_now().wait();
        assert!(last.is_finished(), "with its loop");
        assert_eq!((report.cancelled(), report.aborted()), (2, 1));
        drop((group, ev));
        for handle in [&waiting, &ended, &last] {
            handle.abort();
            assert!(handle.is_finished());
        }
        let ids: HashSet<TaskId> = [waiting.id(), ended.id(), last.id()].into();
        assert_eq!(ids.len(), 3);
    });
}

#[test]
fn a_late_abort_does_not_hit_the_task_that_has_the_address_now() {
    within(|| {
        let (group, ev) = one_loop();
        for round in 0..2_000 {
            // Tasks of one type, one after the other: the allocator gives the same address again and again.
            let first = ev.spawn(yield_now());
            let late = first.abort_handle();
            block_on(first).unwrap();
            let second = ev.spawn(yield_now());
            late.abort();
            block_on(second).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        let report = group.shutdown_now().wait();
        assert_eq!((report.completed(), report.aborted()), (4_000, 0));
    });
}

#[test]
fn aborts_that_race_with_completions_leave_exact_sums() {
    within(|| {
        let group = group(2);
        let mut random = Random(16);
        let (tx, rx) = mpsc::channel::<AbortHandle>();
        let aborter = thread::spawn(move || rx.iter().for_each(|handle| handle.abort()));
        let mut handles = Vec::new();
        for _ in 0..20_000 {
            let yields = random.below(4);
            let task = group.spawn(async move {
                for _ in 0..yields {
                    yield_now().await;
                }
            });
            if random.one_in(2) {
                tx.send(task.abort_handle()).unwrap();
            }
            if random.one_in(4) {
                task.abort();
            }
            handles.push(task);
        }
        drop(tx);
        aborter.join().unwrap();
        let mut cancelled = 0;
        for handle in handles {
            match block_on(handle) {
                Ok(()) => {}
                Err(error) if error.is_cancelled() => cancelled += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let report = group.drain(LONG).wait();
        assert_eq!(report.completed() + report.cancelled(), 20_000);
        assert_eq!(
            (report.cancelled(), report.aborted()),
            (cancelled, cancelled)
        );
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn handles_of_refused_ended_and_blocking_work_abort_what_can_be_aborted() {
    within(|| {
        let (group, ev) = one_loop();
        let (inside, finish) = (Door::new(), Door::new());
        let pool = BlockingGroup::new(1).unwrap();
        let running = pool.spawn({
            let (inside, finish) = (inside.clone(), finish.clone());
            move || {
                inside.open();
                finish.pass();
                5
            }
        });
        inside.pass();
        let queued = pool.spawn(|| -> u32 { unreachable!("it is aborted before it begins") });
        let (first, second) = (running.abort_handle(), queued.abort_handle());
        first.abort(); // too late
        second.abort();
        assert!(!first.is_finished() && !second.is_finished());
        finish.open();
        assert_eq!(block_on(running).unwrap(), 5);
        assert!(block_on(queued).unwrap_err().is_cancelled());
        eventually("both have ended", || {
            first.is_finished() && second.is_finished()
        });
        let report = pool.drain(LONG).wait();
        assert_eq!((report.completed(), report.aborted()), (1, 1));
        assert!(report.is_clean(), "{report}");

        group.shutdown_now().wait();
        let refused = ev.spawn(async {});
        let abort = refused.abort_handle();
        assert_eq!(abort.id(), refused.id());
        refused.abort();
        assert!(abort.is_finished());
        assert_eq!(
            block_on(refused).unwrap_err().reject_reason(),
            Some(RejectReason::ShutDown)
        );
    });
}

#[test]
fn an_id_is_known_inside_and_outside_of_a_task_and_nowhere_else() {
    within(|| {
        let (group, ev) = one_loop();
        assert_eq!(task_id(), None);
        let task = ev.spawn(async {
            let before = task_id();
            yield_now().await;
            let inner = spawn_local(async { task_id() });
            let inner_id = inner.id();
            assert_eq!(inner.await.unwrap(), Some(inner_id));
            (before, task_id())
        });
        let id = task.id();
        let (before, after) = group.block_on(async move {
            assert_eq!(task_id(), None, "block_on is no task");
            task.await.unwrap()
        });
        assert_eq!((before, after), (Some(id), Some(id)));
        assert_eq!(id.to_string(), format!("task {}", &id.to_string()[5..]));
        let closure = ev.submit(task_id);
        let closure_id = closure.id();
        assert_eq!(block_on(closure).unwrap(), Some(closure_id));
        let (tx, rx) = mpsc::channel();
        ev.add_shutdown_hook(move || tx.send(task_id()).unwrap())
            .unwrap();
        group.shutdown_now().wait();
        assert_eq!(rx.recv(), Ok(None), "a hook is no task");
        let main = loopgroup::run(async {
            drop(spawn_local(async {}));
            yield_now().await;
            task_id()
        });
        assert_eq!(main.unwrap(), None, "the main future is no task");
        assert_eq!(block_on(unblock(task_id)).unwrap(), None);
    });
}

#[test]
fn a_name_shows_in_panics_and_in_the_report() {
    within(|| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_panic({
                let seen = Arc::clone(&seen);
                move |panic| seen.lock().unwrap().push(panic.to_string())
            })
            .build()
            .unwrap();
        drop(group.task().name("worker").spawn(async { panic!("oh") }));
        let joined = group
            .task()
            .name(format!("worker {}", 2))
            .spawn(async { panic!("ah") });
        let error = block_on(joined).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("task \"worker 2\" spawned at"),
            "{error}"
        );
        let seen = seen.lock().unwrap().join("\n");
        assert!(
            seen.contains("task \"worker\" from") && seen.contains("oh"),
            "{seen}"
        );
        // On a loop, local, with an init, refused.
        let ev = group.next().clone();
        let inner = ev.task().name("outer").spawn({
            let ev = ev.clone();
            async move {
                let local = ev.task().name("inner").spawn_local(async { 1 });
                let here = loopgroup::task().name("here").spawn(async { 2 });
                let with = loopgroup::task().name("with").spawn_with(|| {
                    let three = Rc::new(3);
                    async move { *three }
                });
                local.await.unwrap() + here.await.unwrap() + with.await.unwrap()
            }
        });
        assert_eq!(block_on(inner).unwrap(), 6);
        let elsewhere = panic_of(|| ev.task().spawn_local(async {}));
        assert!(elsewhere.contains("outside of event loop 0"), "{elsewhere}");
        let left = group.task().name("left\nover").spawn(sleep(HOUR));
        flush(&ev);
        let report = group.shutdown_now().wait();
        let text = report.to_string();
        assert!(
            text.contains("(left\\nover), waiting for a timer"),
            "{text}"
        );
        assert!(block_on(left).unwrap_err().is_cancelled());
        let refused = group.task().name("late").try_spawn(async {}).unwrap_err();
        assert_eq!(refused.reason(), RejectReason::ShutDown);
    });
}

#[test]
fn a_set_returns_results_as_tasks_end_and_aborts_the_rest_when_it_is_dropped() {
    within(|| {
        let (group, ev) = one_loop();
        let dropped = DropCount::new();
        let home = thread_of(&ev);
        group.block_on(async {
            let mut set = JoinSet::new();
            let (first, second) = (Door::new(), Door::new());
            for (n, door) in [(1, &second), (2, &first)] {
                let opened = door.opened();
                set.spawn(async move {
                    opened.await;
                    n
                });
            }
            let guard = dropped.guard();
            let forever = set.spawn(async move {
                pending::<()>().await;
                drop(guard);
                0
            });
            assert_eq!(set.len(), 3);
            first.open();
            assert_eq!(set.join_next().await.unwrap().unwrap(), 2);
            second.open();
            assert_eq!(set.join_next().await.unwrap().unwrap(), 1);
            assert!(!forever.is_finished());
            drop(set);
            eventually("the task is dropped", || forever.is_finished());
        });
        assert_eq!((dropped.get(), dropped.thread()), (1, Some(home)));
        let report = group.drain(LONG).wait();
        assert_eq!((report.completed(), report.aborted()), (3, 1)); // one of them asked for the thread
    });
}

#[test]
fn shutdown_of_a_set_waits_until_every_future_is_dropped() {
    within(|| {
        let group = group(2);
        let dropped = DropCount::new();
        let total = 500;
        group.block_on(async {
            let mut set = JoinSet::new();
            for n in 0..total {
                let guard = dropped.guard();
                set.spawn_on(&group.loops()[n % 2], async move {
                    let _guard = guard;
                    pending::<()>().await;
                });
            }
            set.shutdown().await;
            assert!(set.is_empty());
            assert_eq!(dropped.get(), total);
            assert!(set.join_next().await.is_none());
        });
    });
}

#[test]
fn a_set_carries_panics_refusals_and_detached_tasks() {
    within(|| {
        let group = group(1);
        let ran = Arc::new(AtomicUsize::new(0));
        group.block_on(async {
            let mut set = JoinSet::new();
            set.spawn(async { panic!("inside") });
            assert!(set.join_next().await.unwrap().unwrap_err().is_panic());
            let ran = Arc::clone(&ran);
            set.spawn(async move {
                yield_now().await;
                ran.fetch_add(1, Ordering::SeqCst);
            });
            set.detach_all();
            assert!(set.is_empty());
        });
        let report = group.drain(LONG).wait();
        assert_eq!((ran.load(Ordering::SeqCst), report.cancelled()), (1, 0));
        let late: JoinSet<()> = [group.spawn(async {})].into_iter().collect();
        let failed = catch_unwind(AssertUnwindSafe(|| block_on(late.join_all())));
        let message = panic_of(|| failed.map_err(std::panic::resume_unwind));
        assert!(message.contains("rejected"), "{message}");
    });
}

#[test]
fn ten_thousand_tasks_are_aborted_in_time_wherever_they_are() {
    within(|| {
        let (group, ev) = one_loop();
        let count = 10_000;
        // Waiting, aborted on their loop.
        let dropped = DropCount::new();
        let at_home = ev.spawn({
            let dropped = dropped.clone();
            async move {
                let mut set = JoinSet::new();
                for _ in 0..count {
                    let guard = dropped.guard();
                    set.spawn_local(async move {
                        let _guard = guard;
                        pending::<()>().await;
                    });
                }
                yield_now().await;
                set.shutdown().await;
            }
        });
        block_on(at_home).unwrap();
        assert_eq!(dropped.get(), count);
        // Queued, aborted from outside while the loop is busy.
        let release = stall(&ev);
        let tasks: Vec<_> = (0..count).map(|_| ev.spawn(pending::<()>())).collect();
        tasks.iter().for_each(JoinHandle::abort);
        release.open();
        for task in tasks {
            assert!(block_on(task).unwrap_err().is_cancelled());
        }
        let report = group.drain(LONG).wait();
        assert_eq!(report.aborted(), 2 * count as u64);
    });
}

#[test]
fn destructors_of_aborted_tasks_may_do_anything() {
    within(|| {
        let (group, ev) = one_loop();
        let (tx, rx) = mpsc::channel();
        // The destructor aborts another task, spawns one, and panics.
        let other = ev.spawn(pending::<()>());
        let abort_other = other.abort_handle();
        let task = ev.spawn({
            let guard = OnDrop::new(move || {
                abort_other.abort();
                drop(spawn_local(async move { tx.send(task_id()).unwrap() }));
                panic!("in the destructor");
            });
            async move {
                let _guard = guard;
                pending::<()>().await;
            }
        });
        flush(&ev);
        task.abort();
        assert!(block_on(task).unwrap_err().is_cancelled());
        assert!(block_on(other).unwrap_err().is_cancelled());
        assert!(rx.recv().unwrap().is_some());
        let report = group.drain(LONG).wait();
        assert_eq!((report.panicked(), report.aborted()), (1, 1));
    });
}

#[test]
fn a_test_loop_aborts_in_its_next_turn() {
    let mut test = TestLoop::new();
    let task = test.spawn(pending::<()>());
    test.run_until_stalled();
    let abort = task.abort_handle();
    abort.abort();
    assert!(!abort.is_finished());
    test.run_until_stalled();
    assert!(abort.is_finished() && task.is_finished());
}

#[test]
fn aborts_that_come_together_do_not_hide_each_other() {
    // A task in the inbox, and one that waits and is watched in the same batch.
    let mut test = TestLoop::new();
    let waiting = test.spawn(pending::<()>());
    test.run_until_stalled();
    let fresh = test.spawn(pending::<()>());
    fresh.abort();
    waiting.abort_handle().abort();
    test.run_until_stalled();
    assert!(fresh.is_finished() && waiting.is_finished());
    // The destructor of one wakes the other, which is to be aborted next.
    let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
    let woken = test.spawn({
        let slot = Arc::clone(&slot);
        poll_fn(move |cx| {
            *slot.lock().unwrap() = Some(cx.waker().clone());
            Poll::<()>::Pending
        })
    });
    let waking = test.spawn({
        let guard = OnDrop::new(move || {
            slot.lock()
                .unwrap()
                .take()
                .into_iter()
                .for_each(Waker::wake)
        });
        async move {
            let _guard = guard;
            pending::<()>().await;
        }
    });
    test.run_until_stalled();
    let fresh = test.spawn(pending::<()>());
    let tasks = [fresh, waking, woken];
    tasks.iter().for_each(JoinHandle::abort);
    test.run_until_stalled();
    assert!(tasks.iter().all(JoinHandle::is_finished));
    assert_eq!(test.metrics().cancelled(), 5);
}

#[test]
fn a_set_that_is_dropped_away_from_a_sleeping_loop_ends_every_task() {
    within(|| {
        for _ in 0..200 {
            let (group, ev) = one_loop();
            let waiting = ev.spawn(pending::<()>());
            flush(&ev);
            let mut set = JoinSet::new();
            set.insert(ev.spawn(pending::<()>()));
            set.insert(waiting);
            drop(set);
            eventually("both are cancelled", || {
                group.metrics().loops()[0].cancelled() == 2
            });
        }
    });
}

#[test]
fn an_abort_that_races_with_wakes_from_other_threads_is_not_lost() {
    within(|| {
        let (_group, ev) = one_loop();
        let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
        let over = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let (slot, over, ev) = (Arc::clone(&slot), Arc::clone(&over), ev.clone());
                thread::spawn(move || {
                    while over.load(Ordering::SeqCst) == 0 {
                        let waker = slot.lock().unwrap().clone();
                        waker.into_iter().for_each(Waker::wake);
                        if n == 0 {
                            ev.execute(|| ()).unwrap(); // other mail
                        }
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..1_000 {
            let slot = Arc::clone(&slot);
            let task = ev.spawn(poll_fn(move |cx| {
                *slot.lock().unwrap() = Some(cx.waker().clone());
                Poll::<()>::Pending
            }));
            thread::yield_now();
            task.abort();
            assert!(block_on(task).unwrap_err().is_cancelled());
        }
        over.store(1, Ordering::SeqCst);
        threads.into_iter().for_each(|one| one.join().unwrap());
    });
}

thread_local! {
    static LAST: RefCell<Option<ManualLoop>> = const { RefCell::new(None) };
}

#[test]
fn handles_resolve_even_if_a_loop_is_dropped_with_its_thread() {
    within(|| {
        let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
        let polled: Arc<Mutex<Vec<thread::ThreadId>>> = Arc::default();
        let home = thread::spawn({
            let (slot, polled) = (Arc::clone(&slot), Arc::clone(&polled));
            move || {
                LAST.with(|last| {
                    let mut manual = ManualLoop::new().unwrap();
                    let waiting = manual.event_loop().spawn(poll_fn(move |cx| {
                        *slot.lock().unwrap() = Some(cx.waker().clone());
                        polled.lock().unwrap().push(thread::current().id());
                        Poll::<()>::Pending
                    }));
                    manual.turn(Some(Duration::ZERO)).unwrap();
                    let queued = manual.spawn_local(async {});
                    *last.borrow_mut() = Some(manual);
                    (thread::current().id(), waiting, queued)
                })
            }
        });
        let (home, waiting, queued) = home.join().unwrap();
        assert!(block_on(queued).is_err());
        assert!(block_on(waiting).is_err());
        // A waker that was kept does not reach a loop that was made since.
        let group = group(8);
        group.loops().iter().for_each(flush);
        slot.lock().unwrap().take().unwrap().wake();
        group.loops().iter().for_each(flush);
        assert_eq!(*polled.lock().unwrap(), [home]);
        assert_eq!(group.drain(LONG).wait().completed(), 16);
    });
}

#[test]
fn a_loop_driven_by_hand_serves_aborts_before_the_next_task() {
    let mut test = TestLoop::new();
    let log = Log::new();
    let task = test.spawn(Probe::new(&log, async {}));
    task.abort();
    while test.run_one() {}
    assert_eq!((log.polls(), log.drops()), (0, 1));
    let watched = test.spawn(async {}).abort_handle();
    while test.run_one() {}
    test.run_until_stalled();
    assert!(watched.is_finished());

    let group = group(1);
    let mut manual = ManualLoop::claim(&group, 0).unwrap();
    let task = group.spawn(pending::<()>());
    manual.turn(Some(Duration::ZERO)).unwrap();
    let id = manual.block_on(async {
        spawn_local(async {}).await.unwrap();
        task_id()
    });
    assert_eq!(id.unwrap(), None, "the main future is no task");
    task.abort();
    drop(manual);
    let report = group.shutdown_now().wait();
    assert_eq!((report.cancelled(), report.aborted()), (1, 1));
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_job_that_is_aborted_before_its_group_ends_was_aborted() {
    within(|| {
        let pool = BlockingGroup::new(1).unwrap();
        let (inside, finish) = (Door::new(), Door::new());
        let running = pool.spawn({
            let (inside, finish) = (inside.clone(), finish.clone());
            move || {
                inside.open();
                finish.pass();
            }
        });
        inside.pass();
        let queued = pool.spawn(|| ());
        queued.abort();
        let end = pool.shutdown_now();
        finish.open();
        let report = end.wait();
        assert_eq!((report.cancelled(), report.aborted()), (1, 1), "{report}");
        block_on(running).unwrap();
    });
}

#[test]
fn a_task_that_a_refused_one_aborts_in_its_first_poll_ends() {
    let ended = group(1);
    ended.shutdown_now().wait();
    let mut test = TestLoop::new();
    let slot: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::default();
    let task = test.spawn({
        let slot = Arc::clone(&slot);
        async move {
            let guard = OnDrop::new(move || slot.lock().unwrap().as_ref().unwrap().abort());
            drop(ended.spawn(async move { drop(guard) })); // refused, and dropped here
            pending::<()>().await;
        }
    });
    *slot.lock().unwrap() = Some(task);
    test.run_until_stalled();
    assert!(slot.lock().unwrap().as_ref().unwrap().is_finished());
}

#[test]
fn what_a_canceller_submits_next_runs_after_the_cancellation() {
    within(|| {
        let (_group, ev) = one_loop();
        for round in 0..500 {
            let dropped = DropCount::new();
            let guard = dropped.guard();
            let task = ev.spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            });
            flush(&ev);
            // Abort and closure are in one batch: the loop is busy.
            let release = stall(&ev);
            task.abort();
            let seen = ev.submit(move || dropped.get());
            release.open();
            assert_eq!(block_on(seen).unwrap(), 1, "round {round}");
        }
    });
}
