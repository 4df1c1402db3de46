//! Every accepted shutdown hook runs once, in order, on its loop, whatever ends the loop.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use loopgroup::{EndCause, EventLoop, EventLoopGroup, LoopState, PanicSite, RejectReason};

use crate::util::{self, Door, DropCount, HOUR, one_loop, stall, thread_of, within};

/// Writes down what runs, in order.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<u32>>>);

impl Journal {
    fn note(&self, entry: u32) {
        self.0.lock().unwrap().push(entry);
    }

    fn entries(&self) -> Vec<u32> {
        self.0.lock().unwrap().clone()
    }

    /// A hook that writes `entry`.
    fn hook(&self, entry: u32) -> impl FnOnce() + Send + 'static {
        let journal = self.clone();
        move || journal.note(entry)
    }
}

#[test]
fn hooks_run_in_the_order_of_registration() {
    within(|| {
        let (group, ev) = one_loop();
        let journal = Journal::default();
        for entry in 0..100 {
            ev.add_shutdown_hook(journal.hook(entry)).unwrap();
        }
        let report = group.drain(HOUR).wait();
        assert_eq!(journal.entries(), (0..100).collect::<Vec<_>>());
        assert_eq!(report.hooks_run(), 100);
        assert_eq!(report.accepted(), 0, "a hook is not a task");
        assert!(report.is_clean());
    });
}

#[test]
fn hooks_of_several_loops_run_on_their_own_threads() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        let seen = Arc::new(Mutex::new(vec![None; 3]));
        let mut homes = Vec::new();
        for ev in group.loops() {
            homes.push((Some(ev.index()), thread_of(ev)));
            let seen = Arc::clone(&seen);
            let index = ev.index();
            ev.add_shutdown_hook(move || {
                let current = EventLoop::current().map(|ev| ev.index());
                seen.lock().unwrap()[index] = Some((current, thread::current().id()));
            })
            .unwrap();
        }
        let report = group.shutdown_now().wait();
        let seen: Vec<_> = seen.lock().unwrap().iter().map(|s| s.unwrap()).collect();
        assert_eq!(seen, homes);
        assert!(report.loops().iter().all(|one| one.hooks_run() == 1));
    });
}

#[test]
fn hooks_wait_until_the_queue_is_empty() {
    within(|| {
        let (group, ev) = one_loop();
        let journal = Journal::default();
        ev.add_shutdown_hook(journal.hook(100)).unwrap();
        let release = stall(&ev);
        for entry in 0..10 {
            ev.execute(journal.hook(entry)).unwrap();
        }
        let end = group
            .shutdown_gracefully_with(Duration::ZERO, HOUR)
            .unwrap();
        release.open();
        assert_eq!(end.wait().loops()[0].cause(), EndCause::Quiet);
        let expected: Vec<_> = (0..10).chain([100]).collect();
        assert_eq!(journal.entries(), expected);
    });
}

#[test]
fn hooks_wait_for_a_task_that_goes_on_by_itself() {
    within(|| {
        let (group, ev) = one_loop();
        let journal = Journal::default();
        ev.add_shutdown_hook(journal.hook(2)).unwrap();
        let (asking, busy) = (group.clone(), journal.clone());
        let task = group.spawn(async move {
            // Nothing comes in from outside: it stands in the loop's own queue, for more than one turn.
            drop(asking.drain(HOUR));
            for _ in 0..10_000 {
                loopgroup::yield_now().await;
            }
            busy.note(1);
        });
        group.block_on(task).unwrap();
        group.termination().wait();
        assert_eq!(journal.entries(), [1, 2]);
    });
}

#[test]
fn hooks_do_not_run_before_the_shutdown() {
    within(|| {
        let (group, ev) = one_loop();
        let journal = Journal::default();
        ev.add_shutdown_hook(journal.hook(1)).unwrap();
        for _ in 0..100 {
            thread_of(&ev);
        }
        assert!(journal.entries().is_empty());
        group.shutdown_now().wait();
        assert_eq!(journal.entries(), [1]);
    });
}

#[test]
fn hooks_run_while_the_loop_still_accepts_in_a_long_quiet_period() {
    within(|| {
        let (group, ev) = one_loop();
        let (ran, during) = (Door::new(), ev.clone());
        let inside = ran.clone();
        ev.add_shutdown_hook(move || {
            assert_eq!(during.state(), LoopState::ShuttingDown);
            inside.open();
        })
        .unwrap();
        let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
        ran.pass();
        assert_eq!(loopgroup::block_on(ev.spawn(async { 7 })).unwrap(), 7);
        drop(group.shutdown_now());
        let report = end.wait();
        assert_eq!((report.hooks_run(), report.completed()), (1, 1));
        assert!(report.is_clean(), "the hook's own assertion held");
    });
}

#[test]
fn hooks_may_add_hooks() {
    within(|| {
        for drained in [true, false] {
            let (group, ev) = one_loop();
            let journal = Journal::default();
            let (again, first, second) = (ev.clone(), journal.clone(), journal.hook(2));
            ev.add_shutdown_hook(move || {
                first.note(1);
                let added = again.add_shutdown_hook(second);
                // `Now` closes the list before it runs what is left: an accepted hook runs, and a
                // refused one is handed back.
                assert_eq!(added.is_ok(), drained);
            })
            .unwrap();
            let report = if drained {
                group.drain(HOUR).wait()
            } else {
                group.shutdown_now().wait()
            };
            let expected: &[u32] = if drained { &[1, 2] } else { &[1] };
            assert_eq!(journal.entries(), expected);
            assert_eq!(report.hooks_run(), expected.len() as u64);
            assert!(report.is_clean(), "{report}");
        }
    });
}

#[test]
fn hooks_that_hooks_add_run_after_the_ones_that_were_there() {
    within(|| {
        let (group, ev) = one_loop();
        let journal = Journal::default();
        let (again, added, note) = (ev.clone(), journal.hook(3), journal.clone());
        ev.add_shutdown_hook(move || {
            note.note(1);
            again.add_shutdown_hook(added).unwrap();
        })
        .unwrap();
        ev.add_shutdown_hook(journal.hook(2)).unwrap();
        assert!(group.drain(HOUR).wait().is_clean());
        assert_eq!(journal.entries(), [1, 2, 3]);
    });
}

#[test]
fn tasks_that_hooks_spawn_run_to_their_end_in_a_drain() {
    within(|| {
        let (group, ev) = one_loop();
        let journal = Journal::default();
        let (sent, note) = (ev.clone(), journal.clone());
        ev.add_shutdown_hook(move || {
            let (local, tail) = (note.clone(), note.clone());
            // All three ways in, and one of them takes several turns.
            drop(loopgroup::spawn_local(async move {
                for _ in 0..10 {
                    loopgroup::yield_now().await;
                }
                local.note(2);
            }));
            sent.execute(note.hook(0)).unwrap();
            sent.execute_after_iteration(tail.hook(1)).unwrap();
        })
        .unwrap();
        let report = group.drain(HOUR).wait();
        let mut entries = journal.entries();
        entries.sort_unstable();
        assert_eq!(entries, [0, 1, 2]);
        assert_eq!((report.accepted(), report.completed()), (3, 3));
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
    });
}

#[test]
fn what_a_hook_spawns_runs_also_without_a_quiet_period() {
    within(|| {
        let (group, ev) = one_loop();
        let journal = Journal::default();
        let (task, sent) = (journal.hook(2), ev.clone());
        let note = journal.clone();
        ev.add_shutdown_hook(move || {
            note.note(1);
            sent.execute(task).unwrap();
        })
        .unwrap();
        let report = group
            .shutdown_gracefully_with(Duration::ZERO, HOUR)
            .unwrap()
            .wait();
        assert_eq!(journal.entries(), [1, 2]);
        assert_eq!(report.completed(), 1);
    });
}

#[test]
fn a_panicking_hook_is_reported_and_does_not_stop_the_others() {
    within(|| {
        let panics = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&panics);
        let group = EventLoopGroup::builder()
            .loops(2)
            .on_panic(move |panic| {
                let line = panic.location().map(|location| location.line());
                let entry = (panic.site(), panic.loop_index(), panic.message().to_owned());
                seen.lock().unwrap().push((entry, line));
            })
            .build()
            .unwrap();
        let ev = &group.loops()[1];
        let journal = Journal::default();
        ev.add_shutdown_hook(journal.hook(1)).unwrap();
        let line = line!() + 1;
        ev.add_shutdown_hook(|| panic!("first")).unwrap();
        ev.add_shutdown_hook(journal.hook(2)).unwrap();
        ev.add_shutdown_hook(|| std::panic::panic_any("second".to_owned()))
            .unwrap();
        ev.add_shutdown_hook(journal.hook(3)).unwrap();
        let report = group.drain(HOUR).wait();
        assert_eq!(journal.entries(), [1, 2, 3]);
        assert_eq!((report.hooks_run(), report.hooks_panicked()), (5, 2));
        assert!(!report.is_clean());
        assert_eq!(report.panicked(), 0, "a hook is not a task");
        assert_eq!(report.loops()[1].cause(), EndCause::Drained);
        let panics = panics.lock().unwrap();
        let entry = |text: &str| (PanicSite::ShutdownHook, Some(1), text.to_owned());
        assert_eq!(panics.len(), 2);
        assert_eq!(panics[0], (entry("first"), Some(line)));
        assert_eq!(panics[1].0, entry("second"));
    });
}

/// A value whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in the destructor");
    }
}

#[test]
fn a_hook_whose_captures_panic_when_dropped_is_reported() {
    within(|| {
        let panics = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&panics);
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |panic| {
                assert_eq!(panic.site(), PanicSite::ShutdownHook);
                count.fetch_add(1, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        let ev = group.next();
        let (run, removed) = (Bomb, Bomb);
        ev.add_shutdown_hook(move || drop(run)).unwrap();
        let id = ev.add_shutdown_hook(move || drop(removed)).unwrap();
        assert!(ev.remove_shutdown_hook(id));
        assert_eq!(panics.load(Ordering::SeqCst), 1);
        let report = group.shutdown_now().wait();
        assert_eq!((report.hooks_run(), report.hooks_panicked()), (1, 1));
        assert_eq!(panics.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_hook_that_cannot_run_and_panics_in_its_drop_is_reported() {
    within(|| {
        let (tx, rx) = mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(|_| Err(ErrorKind::OutOfMemory.into()))
            .on_panic(move |panic| {
                let line = panic.location().map(|place| place.line());
                tx.send((panic.site(), line)).unwrap();
            })
            .build()
            .unwrap();
        let bomb = Bomb;
        let line = line!() + 1;
        let added = group.next().add_shutdown_hook(move || drop(bomb));
        added.unwrap();
        let report = group.shutdown_now().wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Failed);
        assert_eq!(report.hooks_run(), 0);
        assert_eq!(
            rx.try_recv(),
            Ok((PanicSite::ShutdownHook, Some(line))),
            "once"
        );
        assert!(rx.try_recv().is_err());
    });
}

#[test]
fn a_removed_hook_never_runs_and_is_dropped_at_once() {
    within(|| {
        let (group, ev) = one_loop();
        let journal = Journal::default();
        let drops = DropCount::new();
        let keep = ev.add_shutdown_hook(journal.hook(1)).unwrap();
        let guard = drops.guard();
        let gone = ev.add_shutdown_hook(move || drop(guard)).unwrap();
        assert_ne!(keep, gone);
        assert!(ev.remove_shutdown_hook(gone));
        assert_eq!(drops.get(), 1);
        assert!(!ev.remove_shutdown_hook(gone), "removed once");
        let report = group.shutdown_now().wait();
        assert_eq!(journal.entries(), [1]);
        assert_eq!(report.hooks_run(), 1);
        assert!(!ev.remove_shutdown_hook(keep), "it has run");
    });
}

#[test]
fn a_hook_may_remove_a_later_one_but_not_itself() {
    within(|| {
        for now in [false, true] {
            let (group, ev) = one_loop();
            let journal = Journal::default();
            let ids = Arc::new(Mutex::new(Vec::new()));
            let (list, note, remover) = (Arc::clone(&ids), journal.clone(), ev.clone());
            let own = ev
                .add_shutdown_hook(move || {
                    let ids = list.lock().unwrap().clone();
                    let removed: Vec<_> = ids
                        .iter()
                        .map(|id| remover.remove_shutdown_hook(*id))
                        .collect();
                    // `false` says that it has run or is running: true of itself only.
                    assert_eq!(removed, [false, true]);
                    note.note(1);
                })
                .unwrap();
            let later = ev.add_shutdown_hook(journal.hook(2)).unwrap();
            ev.add_shutdown_hook(journal.hook(3)).unwrap();
            ids.lock().unwrap().extend([own, later]);
            let report = if now {
                group.shutdown_now().wait()
            } else {
                group.drain(HOUR).wait()
            };
            assert_eq!(journal.entries(), [1, 3]);
            assert!(report.is_clean(), "{report}");
        }
    });
}

#[test]
fn a_hook_starts_a_loop_that_never_ran_and_no_other() {
    within(|| {
        let started = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&started);
        let group = EventLoopGroup::builder()
            .loops(4)
            .on_thread_start(move |ev| seen.lock().unwrap().push(ev.index()))
            .build()
            .unwrap();
        let journal = Journal::default();
        group.loops()[2].add_shutdown_hook(journal.hook(2)).unwrap();
        assert_eq!(group.loops()[2].state(), LoopState::NotStarted);
        let report = group.shutdown_gracefully_with(Duration::ZERO, HOUR);
        let report = report.unwrap().wait();
        assert_eq!(journal.entries(), [2]);
        assert_eq!(*started.lock().unwrap(), [2]);
        let started: Vec<_> = report.loops().iter().map(|one| one.started()).collect();
        assert_eq!(started, [false, false, true, false]);
    });
}

#[test]
fn a_hook_of_a_loop_that_never_ran_runs_also_when_the_group_is_dropped() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let journal = Journal::default();
        group.loops()[1].add_shutdown_hook(journal.hook(1)).unwrap();
        let end = group.termination();
        drop(group);
        assert_eq!(end.wait().hooks_run(), 1);
        assert_eq!(journal.entries(), [1]);
    });
}

#[test]
fn all_hooks_run_on_now_and_on_timeout() {
    within(|| {
        for (cause, timeout) in [
            (EndCause::Now, None),
            (EndCause::Timeout, Some(Duration::from_millis(20))),
        ] {
            let (group, ev) = one_loop();
            let journal = Journal::default();
            for entry in 0..3 {
                ev.add_shutdown_hook(journal.hook(entry)).unwrap();
            }
            // The queue never runs empty, so the hooks have to wait for the very end.
            let busy = ev.spawn(async {
                loop {
                    loopgroup::yield_now().await;
                }
            });
            let end = match timeout {
                None => group.shutdown_now(),
                Some(timeout) => group.drain(timeout),
            };
            let report = end.wait();
            assert_eq!(report.loops()[0].cause(), cause);
            assert_eq!(journal.entries(), [0, 1, 2]);
            assert_eq!(report.hooks_run(), 3);
            let busy: Result<(), _> = loopgroup::block_on(busy);
            assert!(busy.unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_hook_that_adds_itself_for_ever_does_not_hold_the_end() {
    fn again(ev: EventLoop, runs: Arc<AtomicUsize>, refusals: Arc<AtomicUsize>) {
        runs.fetch_add(1, Ordering::SeqCst);
        let (next, more, last) = (ev.clone(), Arc::clone(&runs), Arc::clone(&refusals));
        if ev
            .add_shutdown_hook(move || again(next, more, last))
            .is_err()
        {
            refusals.fetch_add(1, Ordering::SeqCst);
        }
    }
    within(|| {
        let (group, ev) = one_loop();
        let runs = Arc::new(AtomicUsize::new(0));
        let refusals = Arc::new(AtomicUsize::new(0));
        let (first, more, last) = (ev.clone(), Arc::clone(&runs), Arc::clone(&refusals));
        ev.add_shutdown_hook(move || again(first, more, last))
            .unwrap();
        let report = group.drain(Duration::from_millis(30)).wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert!(report.elapsed() >= Duration::from_millis(30));
        let runs = runs.load(Ordering::SeqCst);
        assert_eq!(report.hooks_run(), runs as u64, "every accepted hook ran");
        assert_eq!(refusals.load(Ordering::SeqCst), 1, "only the last one");
    });
}

#[test]
fn a_hook_that_comes_after_the_end_is_handed_back() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.loops()[0].execute(|| {}).unwrap();
        let report = group.shutdown_now().wait();
        // One loop that ran and one that never did.
        for ev in group.loops() {
            let drops = DropCount::new();
            let guard = drops.guard();
            let rejected = ev.add_shutdown_hook(move || drop(guard)).unwrap_err();
            assert_eq!(rejected.reason(), RejectReason::ShutDown);
            assert_eq!(drops.get(), 0, "still ours");
            rejected.into_inner()();
            assert_eq!(drops.get(), 1);
        }
        assert_eq!(report.hooks_run(), 0);
    });
}

#[test]
fn a_hook_runs_before_live_tasks_are_cancelled() {
    within(|| {
        let (group, ev) = one_loop();
        let door = Door::new();
        let task = ev.spawn(door.opened());
        util::eventually("the task waits", || door.waiting() == 1);
        let inside = ev.clone();
        ev.add_shutdown_hook(move || assert_eq!(inside.live_tasks(), 1))
            .unwrap();
        let report = group
            .shutdown_gracefully_with(Duration::ZERO, HOUR)
            .unwrap()
            .wait();
        assert_eq!((report.hooks_run(), report.hooks_panicked()), (1, 0));
        assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_hook_lets_a_live_task_end_by_itself() {
    within(|| {
        let (group, ev) = one_loop();
        let door = Door::new();
        let task = ev.spawn(door.opened());
        util::eventually("the task waits", || door.waiting() == 1);
        ev.add_shutdown_hook(move || door.open()).unwrap();
        let report = group.drain(HOUR).wait();
        loopgroup::block_on(task).unwrap();
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        assert!(report.is_clean());
    });
}

#[test]
fn hooks_added_against_the_end_run_or_are_handed_back() {
    within(|| {
        for round in 0..100 {
            let (group, ev) = one_loop();
            // Every second loop has a thread: both ways to the end are raced.
            if round % 2 == 0 {
                group.start().unwrap();
            }
            let ran = Arc::new(AtomicUsize::new(0));
            let barrier = Arc::new(Barrier::new(2));
            let (count, ready, adder) = (Arc::clone(&ran), Arc::clone(&barrier), ev.clone());
            let thread = thread::spawn(move || {
                ready.wait();
                let mut accepted = 0;
                for _ in 0..20 {
                    let count = Arc::clone(&count);
                    let hook = move || {
                        count.fetch_add(1, Ordering::SeqCst);
                    };
                    accepted += usize::from(adder.add_shutdown_hook(hook).is_ok());
                }
                accepted
            });
            barrier.wait();
            let end = group.shutdown_now();
            let accepted = thread.join().unwrap();
            let report = end.wait();
            assert_eq!(ran.load(Ordering::SeqCst), accepted);
            assert_eq!(report.hooks_run(), accepted as u64);
        }
    });
}

#[test]
fn a_hook_removed_while_the_shutdown_begins_does_not_hold_the_end() {
    within(|| {
        for _ in 0..500 {
            // Never started: the hook is all that could make the shutdown start a thread.
            let group = EventLoopGroup::builder().loops(1).without_io().build();
            let group = group.unwrap();
            let ev = group.next().clone();
            let journal = Journal::default();
            let id = ev.add_shutdown_hook(journal.hook(1)).unwrap();
            let barrier = Arc::new(Barrier::new(2));
            let ready = Arc::clone(&barrier);
            let remover = thread::spawn(move || {
                ready.wait();
                ev.remove_shutdown_hook(id)
            });
            barrier.wait();
            let end = group.shutdown_now();
            let removed = remover.join().unwrap();
            let ran = end.wait().hooks_run();
            assert_eq!((removed, ran), if removed { (true, 0) } else { (false, 1) });
            assert_eq!(journal.entries().len() as u64, ran);
        }
    });
}

#[test]
fn a_hook_added_in_a_long_quiet_period_runs_at_once() {
    within(|| {
        let (group, ev) = one_loop();
        group.start().unwrap();
        let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
        for _ in 0..10 {
            let ran = Door::new();
            let inside = ran.clone();
            ev.add_shutdown_hook(move || inside.open()).unwrap();
            ran.pass();
        }
        drop((group, ev));
        assert_eq!(end.wait().hooks_run(), 10);
    });
}
