//! `run` makes a thread a loop for as long as one future takes, and an ordinary thread again.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use loopgroup::{
    EventLoop, EventLoopGroup, LoopState, RejectReason, block_on, run, spawn, spawn_local,
    try_spawn_local, yield_now,
};

use crate::util::{Door, DropCount, Log, Probe, eventually, within};

/// The thread has no loop around it, and nothing of one.
#[track_caller]
fn assert_ordinary() {
    assert_eq!(EventLoop::current(), None);
    let rejected = try_spawn_local(async {}).unwrap_err();
    assert_eq!(rejected.reason(), RejectReason::NoContext);
    assert_eq!(block_on(async { 1 }), 1, "it may block again");
}

/// The loop that runs this future.
fn here() -> EventLoop {
    EventLoop::current().expect("run makes a loop")
}

#[test]
fn the_future_may_borrow_and_need_not_be_send() {
    within(|| {
        let text = String::from("borrowed");
        let count = Rc::new(Cell::new(0));
        let seen = run(async {
            count.set(count.get() + text.len());
            yield_now().await;
            Rc::clone(&count)
        });
        assert_eq!(seen.unwrap().get(), 8);
        assert_ordinary();
    });
}

#[test]
fn the_thread_is_a_loop_inside_and_ordinary_afterwards() {
    within(|| {
        assert_ordinary();
        let ev = run(async {
            let ev = here();
            assert!(ev.in_event_loop());
            assert_eq!((ev.index(), ev.state()), (0, LoopState::Started));
            assert_eq!(ev.parent().unwrap().len(), 1);
            ev
        })
        .unwrap();
        assert_ordinary();
        assert!(!ev.in_event_loop());
        assert_eq!(ev.state(), LoopState::Terminated);
        let rejected = ev.execute(|| ()).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::ShutDown);
        assert!(ev.parent().is_none());
    });
}

#[test]
fn local_tasks_run_in_order_on_this_thread() {
    within(|| {
        let this = thread::current().id();
        let order = run(async move {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = (0..5)
                .map(|n| {
                    let order = Rc::clone(&order);
                    spawn_local(async move {
                        assert_eq!(thread::current().id(), this);
                        order.borrow_mut().push(n);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            // The next loop of a group of one is this one.
            let home = spawn(async { thread::current().id() }).await.unwrap();
            assert_eq!(home, this);
            order.take()
        });
        assert_eq!(order.unwrap(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn tasks_that_are_left_are_dropped_here_before_it_returns() {
    within(|| {
        let log = Log::new();
        let fresh = Log::new();
        let end = run(async {
            for _ in 0..3 {
                drop(spawn_local(Probe::new(&log, pending::<()>())));
            }
            yield_now().await;
            assert_eq!(log.polls(), 3);
            drop(spawn_local(Probe::new(&fresh, async {})));
            // In a tuple: the end is to be looked at later, not awaited here.
            (here().termination(),)
        });
        assert_eq!((log.polls(), log.drops()), (3, 3));
        assert_eq!(fresh.polls(), 0);
        fresh.assert_home(thread::current().id());
        let report = end.unwrap().0.wait();
        assert_eq!((report.accepted(), report.cancelled()), (4, 4));
    });
}

#[test]
fn a_left_task_resolves_for_who_holds_its_handle() {
    within(|| {
        let (handle,) = run(async { (spawn(pending::<()>()),) }).unwrap();
        assert!(block_on(handle).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_panic_of_the_future_goes_to_the_caller_and_its_tasks_are_dropped() {
    within(|| {
        let log = Log::new();
        let payload = catch_unwind(AssertUnwindSafe(|| {
            run(async {
                drop(spawn_local(Probe::new(&log, pending::<()>())));
                yield_now().await;
                std::panic::panic_any(42_u8);
            })
        }));
        let payload = payload.unwrap_err();
        assert_eq!(*payload.downcast::<u8>().unwrap(), 42);
        assert_eq!(log.polls(), 1);
        log.assert_home(thread::current().id());
        assert_ordinary();
        assert_eq!(run(async { 3 }).unwrap(), 3);
    });
}

#[test]
fn a_panic_of_a_task_stays_in_its_handle() {
    within(|| {
        let error = run(async { spawn_local(async { panic!("task") }).await.unwrap_err() });
        assert!(error.unwrap().is_panic());
    });
}

/// A future that is ready at once and panics when it is dropped.
struct Unruly;

impl Future for Unruly {
    type Output = u8;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u8> {
        Poll::Ready(7)
    }
}

impl Drop for Unruly {
    fn drop(&mut self) {
        panic!("in the destructor");
    }
}

#[test]
fn a_panic_of_the_futures_destructor_does_not_take_the_result_away() {
    within(|| {
        assert_eq!(run(Unruly).unwrap(), 7);
        assert_ordinary();
    });
}

#[test]
fn it_refuses_on_a_loop_and_drops_its_future_unpolled() {
    within(|| {
        let log = Log::new();
        let group = EventLoopGroup::new(1).unwrap();
        let probe = Probe::new(&log, async {});
        let error = group.next().submit(move || run(probe).unwrap_err());
        let error = block_on(error).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Deadlock);
        assert!(error.to_string().contains("await the future"), "{error}");
        assert_eq!((log.polls(), log.drops()), (0, 1));
        let nested = run(async { run(async {}).unwrap_err().kind() });
        assert_eq!(nested.unwrap(), io::ErrorKind::Deadlock);
        assert!(group.shutdown_now().wait().is_clean());
    });
}

#[test]
fn a_shutdown_before_the_future_is_done_is_an_error() {
    within(|| {
        let log = Log::new();
        let error = run(Probe::new(&log, async {
            drop(here().shutdown_now());
            pending::<()>().await;
        }));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert_eq!(log.polls(), 1);
        log.assert_home(thread::current().id());
        assert_ordinary();
    });
}

#[test]
fn a_shutdown_from_another_thread_ends_it() {
    within(|| {
        let (tx, rx) = mpsc::channel::<EventLoopGroup>();
        let other = thread::spawn(move || rx.recv().unwrap().shutdown_now().wait());
        let error = run(async {
            tx.send(here().parent().unwrap()).unwrap();
            pending::<()>().await;
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert!(other.join().unwrap().loops()[0].started());
        assert_ordinary();
    });
}

#[test]
fn a_future_that_is_done_in_the_turn_of_the_shutdown_has_its_result() {
    within(|| {
        let value = run(async {
            drop(here().shutdown_now());
            4
        });
        assert_eq!(value.unwrap(), 4);
    });
}

#[test]
fn a_requested_shutdown_is_seen_by_the_future() {
    within(|| {
        let value = run(async {
            drop(here().drain(Duration::from_secs(30)));
            loopgroup::shutdown_requested().await;
            "good-bye"
        });
        assert_eq!(value.unwrap(), "good-bye");
    });
}

#[test]
fn the_future_is_woken_from_other_threads() {
    within(|| {
        const ROUNDS: usize = 300;
        let (doors, opened): (Vec<_>, Vec<_>) = (0..ROUNDS)
            .map(|_| Door::new())
            .map(|door| (door.clone(), door))
            .unzip();
        let other = thread::spawn(move || {
            for door in doors {
                eventually("the future waits", || door.waiting() == 1);
                door.open();
            }
        });
        let log = Log::new();
        run(Probe::new(&log, async {
            for door in opened {
                door.opened().await;
            }
        }))
        .unwrap();
        other.join().unwrap();
        // One poll to begin and one for each wake.
        assert_eq!(log.polls(), ROUNDS + 1);
        log.assert_home(thread::current().id());
    });
}

#[test]
fn a_future_that_always_wakes_itself_does_not_starve_its_tasks() {
    within(|| {
        let done = Rc::new(Cell::new(false));
        let flag = Rc::clone(&done);
        run(async move {
            drop(spawn_local(async move {
                for _ in 0..50 {
                    yield_now().await;
                }
                flag.set(true);
            }));
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if done.get() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        })
        .unwrap();
    });
}

#[test]
fn others_may_submit_to_it_while_it_runs() {
    within(|| {
        let this = thread::current().id();
        let (tx, rx) = mpsc::channel::<EventLoop>();
        let other = thread::spawn(move || {
            let ev = rx.recv().unwrap();
            let ran = block_on(ev.submit(|| thread::current().id())).unwrap();
            let bound = ev.bind(|| Rc::new(5));
            (ran, block_on(bound.with(|value| **value)).unwrap())
        });
        let seen = run(async {
            tx.send(here()).unwrap();
            // Not a blocking wait: the loop has to work meanwhile.
            while !other.is_finished() {
                yield_now().await;
            }
            other.join()
        });
        let seen = seen
            .unwrap()
            .unwrap_or_else(|payload| resume_unwind(payload));
        assert_eq!(seen, (this, 5));
    });
}

#[test]
fn runs_may_follow_each_other() {
    within(|| {
        let drops = DropCount::new();
        for round in 1..=30 {
            let guard = drops.guard();
            let result = run(async move {
                drop(spawn_local(async move {
                    let _guard = guard;
                    pending::<()>().await;
                }));
                yield_now().await;
                spawn_local(async move { round }).await.unwrap()
            });
            assert_eq!(result.unwrap(), round);
            assert_eq!(drops.get(), round);
        }
        assert_ordinary();
    });
}

#[test]
fn many_threads_may_run_at_once() {
    within(|| {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                thread::spawn(move || {
                    let home = thread::current().id();
                    run(async move {
                        let there = spawn(async { thread::current().id() }).await.unwrap();
                        assert_eq!(there, home);
                        n
                    })
                })
            })
            .collect();
        for (n, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap().unwrap(), n);
        }
    });
}

#[test]
fn inside_the_wait_of_a_group_the_loop_wins_and_the_group_comes_back() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        let size = || async {
            let size = async { here().parent().unwrap().len() };
            spawn(size).await.unwrap()
        };
        let seen = group.block_on(async {
            let inside = run(size()).unwrap();
            (inside, size().await)
        });
        assert_eq!(seen, (1, 3));
    });
}
