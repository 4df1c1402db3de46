//! The end of loops and groups, racing with submissions, visits, hooks and other requests.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loopgroup::{EndCause, EventLoopGroup, LoopReport, RejectReason, block_on, yield_now};
use shuttle_primitives::thread::{self, ThreadId};
use shuttle_primitives::time;

use super::NEVER;
use crate::ledger::{End, Ledger};

/// Producers on two threads submit while the group shuts down; its loops have not started.
pub fn spawn_against_shutdown() {
    let ledger = Ledger::default();
    let group = ledger.group(2);
    let producers = [(); 2].map(|()| {
        let (group, ledger) = (group.clone(), ledger.clone());
        thread::spawn(move || {
            let tasks = [
                ledger.spawn(&group, async {}),
                ledger.spawn(&group, yield_now()),
            ];
            for task in tasks {
                let end = task.wait();
                // Each of these is a valid end; no task panics.
                assert!(
                    matches!(end, End::Completed | End::Refused | End::Cancelled),
                    "{end:?}"
                );
            }
        })
    });
    let termination = group.shutdown_gracefully_with(Duration::ZERO, NEVER);
    let report = termination.unwrap().wait();
    for producer in producers {
        producer.join().unwrap();
    }
    ledger.check(&report);
    assert_eq!(time::passed(), Duration::ZERO, "nobody waited in vain");
}

/// A thread submits, wakes and aborts, and another one lists the tasks, while the group shuts down: no record
/// is left, and none is missing.
pub fn records_against_shutdown() {
    let ledger = Ledger::default();
    let builder = EventLoopGroup::builder().loops(2).without_io();
    let group = ledger.build(builder.track_tasks(true));
    let producer = {
        let (group, ledger) = (group.clone(), ledger.clone());
        thread::spawn(move || {
            let tasks = [
                ledger.spawn(&group, yield_now()),
                ledger.spawn(&group, std::future::pending()),
            ];
            drop(group.spawn_detached(async {}));
            for task in tasks {
                task.wait();
            }
        })
    };
    let reader = {
        let group = group.clone();
        thread::spawn(move || {
            // The producer's two, its detached one, and nothing else.
            assert!(group.tasks().len() <= 3);
            assert_eq!(group.dump().loops().len(), 2);
        })
    };
    let report = group.shutdown_now().wait();
    producer.join().unwrap();
    reader.join().unwrap();
    assert!(group.tasks().is_empty(), "{:?}", group.tasks());
    let ended = report.completed() + report.cancelled();
    assert_eq!(report.accepted(), ended, "{report}");
}

/// Two threads visit a value that must not leave its loop while the loop ends.
pub fn loop_bound_against_shutdown() {
    struct Guarded {
        visits: Rc<usize>,
        made_on: ThreadId,
        dropped: Arc<AtomicUsize>,
    }
    impl Drop for Guarded {
        fn drop(&mut self) {
            assert_eq!(self.made_on, thread::current().id(), "dropped elsewhere");
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let made = Arc::new(AtomicUsize::new(0));
    let dropped = Arc::new(AtomicUsize::new(0));
    let (making, dropping) = (Arc::clone(&made), Arc::clone(&dropped));
    let bound = group.next().bind(move || {
        making.fetch_add(1, Ordering::Relaxed);
        Guarded {
            visits: Rc::new(0),
            made_on: thread::current().id(),
            dropped: dropping,
        }
    });
    let visitors = [(); 2].map(|()| {
        let bound = bound.clone();
        thread::spawn(move || {
            let visit = bound.with(|value| {
                assert_eq!(value.made_on, thread::current().id());
                value.visits = Rc::new(*value.visits + 1);
            });
            drop(bound);
            if let Err(error) = block_on(visit) {
                assert!(!error.is_panic(), "{error}");
            }
        })
    });
    drop(bound);
    let report = group.shutdown_now().wait();
    for visitor in visitors {
        visitor.join().unwrap();
    }
    assert_eq!(
        report.accepted(),
        report.completed() + report.panicked() + report.cancelled(),
        "{report}"
    );
    assert_eq!(report.panicked(), 0, "{report}");
    assert_eq!(
        made.load(Ordering::Relaxed),
        dropped.load(Ordering::Relaxed),
        "what was made is dropped"
    );
}

/// The last handle of a group is dropped while other threads submit: the loops end without a timeout.
pub fn group_drop_against_spawn() {
    let ledger = Ledger::default();
    let group = ledger.group(2);
    let termination = group.termination();
    let last = {
        let (ev, ledger) = (group.loops()[1].clone(), ledger.clone());
        thread::spawn(move || {
            let task = ledger.spawn_on(&ev, yield_now());
            drop(ev);
            let end = task.wait();
            assert!(matches!(end, End::Completed | End::Refused), "{end:?}");
        })
    };
    let other = {
        let (group, ledger) = (group.clone(), ledger.clone());
        thread::spawn(move || {
            let task = ledger.spawn(&group, yield_now());
            drop(group);
            let end = task.wait();
            assert!(matches!(end, End::Completed | End::Refused), "{end:?}");
        })
    };
    drop(group);
    let report = termination.wait();
    last.join().unwrap();
    other.join().unwrap();
    ledger.check(&report);
    assert_eq!(time::passed(), Duration::ZERO, "nobody waited in vain");
}

/// A task spawns on a sibling loop while the group drains and another thread submits: every accepted task
/// completes.
pub fn drain_against_spawn() {
    let ledger = Ledger::default();
    let group = ledger.group(2);
    // A loop that was never started would end at once.
    group.start().unwrap();
    let (there, books) = (group.loops()[1].clone(), ledger.clone());
    let parent = ledger.spawn_on(&group.loops()[0], async move {
        yield_now().await;
        let child = books.spawn_on(&there, yield_now());
        assert_eq!(
            child.join().await,
            End::Completed,
            "no loop ends before its parent"
        );
    });
    let submitter = {
        let (ev, ledger) = (group.loops()[1].clone(), ledger.clone());
        thread::spawn(move || {
            let end = ledger.spawn_on(&ev, yield_now()).wait();
            assert!(matches!(end, End::Completed | End::Refused), "{end:?}");
        })
    };
    let report = group.drain(NEVER).wait();
    assert_eq!(parent.wait(), End::Completed);
    submitter.join().unwrap();
    ledger.check(&report);
    assert_eq!(report.cancelled(), 0, "{report}");
    let drained = |one: &LoopReport| matches!(one.cause(), EndCause::Drained | EndCause::Idle);
    assert!(report.loops().iter().all(drained), "{report}");
}

/// Hooks are added while the loop ends: each runs once, on the loop, or is returned.
pub fn hook_against_shutdown() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let ran_on = Arc::new(Mutex::new(Vec::new()));
    let adders = [(); 2].map(|()| {
        let (ev, ran_on) = (group.next().clone(), Arc::clone(&ran_on));
        thread::spawn(move || {
            let hook = move || ran_on.lock().unwrap().push(thread::current().id());
            match ev.add_shutdown_hook(hook) {
                Ok(_) => 1,
                Err(refused) => {
                    assert_eq!(refused.reason(), RejectReason::ShutDown);
                    drop(refused.into_inner());
                    0
                }
            }
        })
    });
    let removed = {
        let ran_on = Arc::clone(&ran_on);
        let hook = move || ran_on.lock().unwrap().push(thread::current().id());
        let id = group.next().add_shutdown_hook(hook).unwrap();
        let ev = group.next().clone();
        thread::spawn(move || ev.remove_shutdown_hook(id))
    };
    let report = group.shutdown_gracefully_with(Duration::ZERO, NEVER);
    let report = report.unwrap().wait();
    let added: u64 = adders.map(|adder| adder.join().unwrap()).into_iter().sum();
    let kept = u64::from(!removed.join().unwrap());
    let ran_on = ran_on.lock().unwrap();
    assert_eq!(ran_on.len() as u64, added + kept, "{report}");
    assert_eq!(report.hooks_run(), added + kept, "{report}");
    assert!(ran_on.windows(2).all(|two| two[0] == two[1]));
    ledger.check(&report);
}

/// Two threads request the end in different ways, and all wait for it: one end, one report.
pub fn now_against_gracefully() {
    let ledger = Ledger::default();
    let group = ledger.group(2);
    let task = ledger.spawn_on(&group.loops()[0], std::future::pending::<()>());
    let waiters = [false, true].map(|now| {
        let group = group.clone();
        thread::spawn(move || {
            let termination = if now {
                group.shutdown_now()
            } else {
                group.shutdown_gracefully_with(NEVER, NEVER).unwrap()
            };
            drop(group);
            block_on(termination).to_string()
        })
    });
    let one_alone = group.loops()[0].termination();
    let report = group.termination().wait();
    assert_eq!(one_alone.wait().accepted(), report.loops()[0].accepted());
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), report.to_string());
    }
    assert_eq!(task.wait(), End::Cancelled);
    ledger.check(&report);
}

/// A factory starts the thread late, or drops its `LoopThread`, while others submit and the group shuts down.
pub fn thread_factory_against_shutdown() {
    let ledger = Ledger::default();
    let threads = Arc::new(Mutex::new(Vec::new()));
    let tries = Arc::new(AtomicUsize::new(0));
    let started = Arc::clone(&threads);
    let group = ledger.build(
        EventLoopGroup::builder()
            .loops(1)
            .without_io()
            .thread_factory(move |loop_thread| {
                let first = tries.fetch_add(1, Ordering::Relaxed) == 0;
                let thread = thread::spawn(move || {
                    if first {
                        drop(loop_thread);
                    } else {
                        loop_thread.run();
                    }
                });
                started.lock().unwrap().push(thread);
                Ok(())
            }),
    );
    let producers = [(); 2].map(|()| {
        let (group, ledger) = (group.clone(), ledger.clone());
        thread::spawn(move || {
            let end = ledger.spawn(&group, yield_now()).wait();
            assert!(!matches!(end, End::Panicked), "{end:?}");
        })
    });
    let report = group.shutdown_gracefully_with(Duration::ZERO, NEVER);
    let report = report.unwrap().wait();
    for producer in producers {
        producer.join().unwrap();
    }
    let threads = std::mem::take(&mut *threads.lock().unwrap());
    for thread in threads {
        thread.join().unwrap();
    }
    ledger.check(&report);
}
