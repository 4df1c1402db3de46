//! Groups in thread-locals and statics, and thread-locals of loops: destructors may do anything.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use loopgroup::time::sleep;
use loopgroup::{EventLoop, EventLoopGroup, ManualLoop, RejectReason, TerminationFuture, block_on};

use crate::util::{
    self, Door, DropCount, LONG, Log, OnDrop, Probe, alone, eventually, group, in_child, is_child,
    thread_of, within,
};

type Call = Box<dyn FnOnce()>;

thread_local! {
    /// The last thing that a thread does. Destroyed after what the thread used later than this.
    static LAST: RefCell<Option<OnDrop<Call>>> = const { RefCell::new(None) };
    static GROUP: RefCell<Option<EventLoopGroup>> = const { RefCell::new(None) };
    static MANUAL: RefCell<Option<ManualLoop>> = const { RefCell::new(None) };
}

/// Has `call` run by the destructors of this thread's locals.
fn at_exit(call: impl FnOnce() + 'static) {
    LAST.set(Some(OnDrop::new(Box::new(call))));
}

#[test]
fn a_group_in_a_thread_local_ends_with_its_thread() {
    within(|| {
        let log = Log::new();
        let probe = Probe::new(&log, std::future::pending::<()>());
        let (termination, home) = thread::spawn(move || {
            let group = group(1);
            drop(group.spawn(probe));
            let (termination, home) = (group.termination(), thread_of(group.next()));
            GROUP.set(Some(group));
            (termination, home)
        })
        .join()
        .unwrap();
        let report = termination.wait();
        assert_eq!((report.completed(), report.cancelled()), (1, 1));
        log.assert_home(home);
    });
}

#[test]
fn an_unused_group_in_a_thread_local_ends_with_its_thread() {
    within(|| {
        let termination = thread::spawn(|| {
            let group = EventLoopGroup::new(3).unwrap();
            let termination = group.termination();
            GROUP.set(Some(group));
            termination
        })
        .join()
        .unwrap();
        assert!(termination.wait().loops().iter().all(|one| !one.started()));
    });
}

#[test]
fn a_group_in_a_static_works_and_lets_the_process_end() {
    static SHARED: OnceLock<EventLoopGroup> = OnceLock::new();
    alone("a_group_in_a_static_works_and_lets_the_process_end", || {
        let group = SHARED.get_or_init(|| group(1));
        assert_eq!(group.block_on(group.spawn(async { 3 })).unwrap(), 3);
        // Left behind with a task that never ends, and with a thread-local of the main thread's kind.
        drop(group.spawn(std::future::pending::<()>()));
        GROUP.set(Some(group.clone()));
    });
}

#[test]
fn a_destructor_of_a_thread_local_can_submit_and_cancel() {
    within(|| {
        let group = group(1);
        let (tx, rx) = mpsc::channel();
        let ev = group.next().clone();
        let handle = group.clone();
        thread::spawn(move || {
            at_exit(move || {
                tx.send(ev.spawn(async { 1 })).unwrap();
                tx.send(handle.try_spawn(async { 2 }).unwrap()).unwrap();
                tx.send(ev.spawn_with(|| async { 3 })).unwrap();
                tx.send(ev.submit(|| 4)).unwrap();
                ev.spawn(std::future::pending::<()>()).abort();
                assert!(EventLoop::current().is_none());
            });
            // The crate's own thread-locals are used after LAST, so they are gone before it.
            assert!(EventLoop::current().is_none());
        })
        .join()
        .unwrap();
        let sum: i32 = rx.iter().map(|one| group.block_on(one).unwrap()).sum();
        assert_eq!(sum, 10);
        let report = group.drain(LONG).wait();
        assert_eq!((report.completed(), report.cancelled()), (4, 1));
    });
}

#[test]
fn a_destructor_of_a_thread_local_can_wake_a_task() {
    within(|| {
        let group = group(1);
        let (door, log) = (Door::new(), Log::new());
        let waiting = group.spawn(Probe::new(&log, door.opened()));
        eventually("the task waits", || door.waiting() == 1);
        thread::spawn(move || {
            at_exit(move || door.open());
            assert!(EventLoop::current().is_none());
        })
        .join()
        .unwrap();
        group.block_on(waiting).unwrap();
        assert_eq!(log.polls(), 2);
        log.assert_home(thread_of(group.next()));
    });
}

#[test]
fn a_destructor_of_a_thread_local_can_block_on_a_task() {
    alone("a_destructor_of_a_thread_local_can_block_on_a_task", || {
        let group = group(1);
        let (tx, rx) = mpsc::channel();
        let inside = group.clone();
        thread::spawn(move || {
            at_exit(move || {
                let free = loopgroup::block_on(inside.spawn(async { 1 })).unwrap();
                let entered = inside.block_on(inside.spawn(async { 2 })).unwrap();
                tx.send(free + entered).unwrap();
            });
            loopgroup::block_on(async {});
            // A thread-local that block_on needs is destroyed before LAST.
            assert_eq!(util::group(1).block_on(async { 1 }), 1);
        })
        .join()
        .unwrap();
        assert_eq!(rx.recv().unwrap(), 3);
    });
}

#[test]
fn a_destructor_of_a_thread_local_can_try_to_be_a_loop() {
    alone(
        "a_destructor_of_a_thread_local_can_try_to_be_a_loop",
        || {
            let (tx, rx) = mpsc::channel();
            thread::spawn(move || {
                at_exit(move || {
                    let result = catch_unwind(AssertUnwindSafe(|| loopgroup::run(async { 1 })));
                    tx.send(result.map(|run| run.ok()).ok()).unwrap();
                });
                assert_eq!(loopgroup::run(async { 1 }).unwrap(), 1);
            })
            .join()
            .unwrap();
            // Too late for that is an answer; a panic is not.
            assert!(rx.recv().unwrap().is_some(), "run panicked");
        },
    );
}

#[test]
fn a_thread_local_of_a_loop_is_dropped_on_its_thread_before_wait_returns() {
    within(|| {
        let group = group(1);
        let drops = DropCount::new();
        let guard = drops.guard();
        group
            .next()
            .execute(move || at_exit(move || drop(guard)))
            .unwrap();
        let home = thread_of(group.next());
        assert_eq!(drops.get(), 0);
        group.shutdown_now().wait();
        assert_eq!((drops.get(), drops.thread()), (1, Some(home)));
    });
}

#[test]
fn a_thread_local_of_a_loop_is_refused_when_it_submits_too_late() {
    within(|| {
        let group = group(1);
        let (tx, rx) = mpsc::channel();
        let (ev, handle) = (group.next().clone(), group.clone());
        let call = move || {
            at_exit(move || {
                assert!(EventLoop::current().is_none() && !ev.in_event_loop());
                tx.send(ev.try_spawn(async {}).unwrap_err().reason())
                    .unwrap();
                tx.send(handle.next().execute(|| ()).unwrap_err().reason())
                    .unwrap();
                tx.send(ev.dispatch(|| ()).unwrap_err().reason()).unwrap();
                tx.send(loopgroup::try_spawn_local(async {}).unwrap_err().reason())
                    .unwrap();
                let joined = loopgroup::block_on(ev.spawn(async {}));
                tx.send(joined.unwrap_err().reject_reason().unwrap())
                    .unwrap();
            });
        };
        group.next().execute(call).unwrap();
        let report = group.drain(LONG).wait();
        use RejectReason::{NoContext, ShutDown};
        let answers: Vec<_> = rx.iter().collect();
        assert_eq!(answers, [ShutDown, ShutDown, ShutDown, NoContext, ShutDown]);
        assert_eq!((report.accepted(), report.rejected()), (1, 4));
    });
}

#[test]
fn a_thread_local_of_a_loop_can_hold_the_last_handle_of_its_group() {
    within(|| {
        let group = group(1);
        let termination = group.termination();
        let handle = group.clone();
        group
            .next()
            .execute(move || GROUP.set(Some(handle)))
            .unwrap();
        // Also a group of its own, whose loop starts and ends from here.
        group
            .next()
            .execute(|| at_exit(|| drop(util::group(1).spawn(async {}))))
            .unwrap();
        thread_of(group.next());
        drop(group.shutdown_now());
        drop(group);
        assert_eq!(termination.wait().completed(), 3);
    });
}

/// Waits for the end with somebody else than this thread: the wait may be what hangs.
fn ends(termination: TerminationFuture) -> bool {
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || tx.send(termination.wait().loops().len()));
    rx.recv_timeout(Duration::from_secs(20)).is_ok()
}

#[test]
fn a_thread_local_of_a_loop_can_wait_for_the_end_while_others_do() {
    within(|| {
        let group = group(1);
        let own = group.termination();
        let (waits, others) = (Door::new(), Door::new());
        let (about, until) = (waits.clone(), others.clone());
        let call = move || {
            at_exit(move || {
                about.open();
                until.pass();
                own.wait();
            });
        };
        group.next().execute(call).unwrap();
        thread_of(group.next());
        let termination = group.shutdown_now();
        waits.pass();
        let waiter = thread::spawn(move || ends(termination));
        // The other waiter is let in first, to where it joins this very thread.
        thread::sleep(Duration::from_millis(20));
        others.open();
        assert!(waiter.join().unwrap(), "two waiters wait for each other");
    });
}

#[test]
fn thread_locals_of_two_loops_can_both_wait_for_the_end() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for ev in group.loops() {
            let (own, ran) = (group.termination(), Arc::clone(&ran));
            let call = move || {
                at_exit(move || {
                    own.wait();
                    ran.fetch_add(1, Ordering::SeqCst);
                });
            };
            ev.execute(call).unwrap();
            thread_of(ev);
        }
        drop(group.shutdown_now());
        eventually("both have seen the end", || ran.load(Ordering::SeqCst) == 2);
        assert!(ends(group.termination()));
    });
}

#[test]
fn the_guard_of_a_thread_hook_still_finds_its_loop() {
    within(|| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_thread_start(move |ev| {
                let (ev, log) = (ev.clone(), Arc::clone(&log));
                OnDrop::new(move || {
                    let refused = loopgroup::try_spawn_local(async {}).unwrap_err();
                    log.lock()
                        .unwrap()
                        .push((ev.in_event_loop(), refused.reason()));
                })
            })
            .build()
            .unwrap();
        thread_of(group.next());
        let report = group.shutdown_now().wait();
        assert_eq!(*seen.lock().unwrap(), [(true, RejectReason::ShutDown)]);
        assert_eq!((report.accepted(), report.rejected()), (1, 1));
    });
}

#[test]
fn the_waker_of_a_timer_that_outlives_its_thread_may_panic_when_it_goes() {
    struct PanicsInDrop;
    impl Wake for PanicsInDrop {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    // In a process of its own: a panic in the destructor of a thread-local is the end of it.
    let test = "the_waker_of_a_timer_that_outlives_its_thread_may_panic_when_it_goes";
    alone(test, || {
        let armed = thread::spawn(|| {
            let mut wait = sleep(LONG);
            loopgroup::block_on(async {
                let waker = Waker::from(Arc::new(PanicsInDrop));
                let poll = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
                assert!(poll.is_pending());
            });
            wait // with the last reference to its waker left in the thread's timers
        });
        drop(armed.join().unwrap());
    });
}

#[test]
fn a_task_that_ends_the_process_may_leave_a_thread_local_that_wakes_another() {
    let test = "a_task_that_ends_the_process_may_leave_a_thread_local_that_wakes_another";
    if !is_child() {
        let output = in_child(test);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{text}");
        assert!(text.contains("woken, NoContext"), "{text}");
        return;
    }
    within(|| {
        let door = Door::new();
        let shut = door.clone();
        // Used before the loop's own thread-locals, so it is destroyed after them.
        at_exit(move || {
            door.open();
            let refused = loopgroup::try_spawn_local(async {}).unwrap_err();
            eprintln!("woken, {:?}", refused.reason());
        });
        let ended = loopgroup::run(async {
            let _waiting = loopgroup::spawn_local(shut.opened());
            while shut.waiting() == 0 {
                loopgroup::yield_now().await;
            }
            std::process::exit(7)
        });
        ended.unwrap()
    });
}

#[test]
fn a_task_that_ends_the_process_may_leave_a_thread_local_that_waits_for_a_group() {
    let test = "a_task_that_ends_the_process_may_leave_a_thread_local_that_waits_for_a_group";
    if !is_child() {
        let output = in_child(test);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{text}");
        assert!(text.contains("waited, 2 loops"), "{text}");
        return;
    }
    within(|| {
        let group = util::group(2);
        group.start().unwrap();
        // Used before the loop's own thread-locals, so it is destroyed after them.
        at_exit(move || {
            let report = group.shutdown_now().wait();
            eprintln!("waited, {} loops", report.loops().len());
        });
        loopgroup::run(async { std::process::exit(7) }).unwrap()
    });
}

#[test]
fn what_destructors_submit_to_a_loop_that_is_dropped_with_its_thread_is_rejected() {
    within(|| {
        let (tx, rx) = mpsc::channel();
        let ev = thread::spawn(move || {
            MANUAL.set(None); // destroyed after what the loop uses
            let mut manual = ManualLoop::new().unwrap();
            manual.turn(Some(Duration::ZERO)).unwrap();
            let ev = manual.event_loop().clone();
            let home = ev.clone();
            let late = OnDrop::new(move || {
                let executed = home.execute(|| unreachable!("no loop is left"));
                let reason = executed.unwrap_err().reason();
                tx.send((reason, home.spawn(async {}))).unwrap();
            });
            ev.execute(move || drop(late)).unwrap();
            MANUAL.set(Some(manual));
            ev
        });
        let ev = ev.join().unwrap();
        let (reason, task) = rx.recv().unwrap();
        assert_eq!(reason, RejectReason::ShutDown);
        assert!(block_on(task).unwrap_err().is_rejected());
        drop(ev);
    });
}

#[test]
fn after_a_task_has_called_exit_nothing_is_dispatched_to_its_loop() {
    let test = "after_a_task_has_called_exit_nothing_is_dispatched_to_its_loop";
    if !is_child() {
        let output = in_child(test);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{text}");
        assert!(text.contains("dispatched: ShutDown"), "{text}");
        return;
    }
    within(|| {
        let (tx, rx) = mpsc::channel::<EventLoop>();
        // Used before the loop's own thread-locals, so it is destroyed after them.
        at_exit(move || {
            let refused = rx.recv().unwrap().dispatch(|| ()).unwrap_err();
            eprintln!("dispatched: {:?}", refused.reason());
        });
        let ended = loopgroup::run(async move {
            tx.send(EventLoop::current().unwrap()).unwrap();
            std::process::exit(7)
        });
        ended.unwrap()
    });
}
