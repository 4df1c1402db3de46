//! A future is polled and dropped on its home loop only, under every race.

use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;

use loopgroup::{EventLoop, EventLoopGroup, JoinHandle, block_on, spawn_local, yield_now};

use crate::util::{
    self, Door, DropCount, Log, Probe, eventually, local, poll_once, stall, thread_of, within,
};

/// Leaves its waker in `wakers` and waits for ever.
fn leave_waker(wakers: Arc<Mutex<Vec<Waker>>>) -> impl Future<Output = ()> + Send {
    poll_fn(move |cx| {
        wakers.lock().unwrap().push(cx.waker().clone());
        Poll::Pending
    })
}

/// Begins a cancellation from this thread, which is not the home, and leaves it under way.
fn begin_cancel<T: Send + 'static>(
    handle: JoinHandle<T>,
) -> impl Future<Output = Option<T>> + Unpin {
    let mut cancel = Box::pin(handle.cancel());
    assert!(poll_once(&mut cancel).is_pending());
    cancel
}

#[test]
fn wake_from_another_thread_runs_on_the_home_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let door = Door::new();
        let log = Log::new();
        let handle = group.spawn_on(1, Probe::new(&log, door.opened()));
        eventually("the task waits", || door.waiting() == 1);
        let opener = door.clone();
        thread::spawn(move || opener.open()).join().unwrap();
        group.block_on(handle).unwrap();
        assert_eq!(log.polls(), 2);
        log.assert_home(thread_of(&group.loops()[1]));
    });
}

#[test]
fn local_task_woken_from_another_thread_runs_on_the_home_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let ev = &group.loops()[1];
        let (door, log) = (Door::new(), Log::new());
        let (opened, probe) = (door.opened(), Arc::clone(&log));
        let handle = local(ev, move || {
            let not_send = Rc::new(());
            Probe::new(&probe, async move {
                opened.await;
                drop(not_send);
            })
        });
        eventually("the task waits", || door.waiting() == 1);
        door.open();
        block_on(handle).unwrap();
        assert_eq!(log.polls(), 2);
        log.assert_home(thread_of(ev));
    });
}

#[test]
fn future_made_by_spawn_with_is_made_polled_and_dropped_on_the_home_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let ev = &group.loops()[0];
        let home = thread_of(ev);
        let (door, log) = (Door::new(), Log::new());
        let (opened, probe) = (door.opened(), Arc::clone(&log));
        let handle = ev.spawn_with(move || {
            assert_eq!(thread::current().id(), home);
            let not_send = Rc::new(());
            Probe::new(&probe, async move {
                opened.await;
                drop(not_send);
            })
        });
        eventually("the task waits", || door.waiting() == 1);
        door.open();
        block_on(handle).unwrap();
        assert_eq!(log.polls(), 2);
        log.assert_home(home);
    });
}

#[test]
fn wakes_from_four_threads_at_once_never_move_a_task() {
    const WAKES: usize = 2_000;
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (left, log) = (Arc::new(AtomicUsize::new(4)), Log::new());
        let (tx, rx) = mpsc::channel::<Waker>();
        let remaining = Arc::clone(&left);
        let handle = group.spawn_on(
            1,
            Probe::new(
                &log,
                poll_fn(move |cx| {
                    // Looked at before the waker is given away: the first poll finds nobody done.
                    let remaining = remaining.load(Ordering::SeqCst);
                    let _ = tx.send(cx.waker().clone());
                    match remaining {
                        0 => Poll::Ready(()),
                        _ => Poll::Pending,
                    }
                }),
            ),
        );
        let waker = rx.recv().unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (waker, left) = (waker.clone(), Arc::clone(&left));
                thread::spawn(move || {
                    for _ in 0..WAKES {
                        waker.wake_by_ref();
                    }
                    left.fetch_sub(1, Ordering::SeqCst);
                    waker.wake();
                })
            })
            .collect();
        block_on(handle).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(
            log.polls() >= 2,
            "the first poll, and one after the last wake"
        );
        assert!(
            log.polls() <= 1 + 4 * (WAKES + 1),
            "one poll per wake at most"
        );
        log.assert_home(thread_of(&group.loops()[1]));
    });
}

#[test]
fn queued_local_task_cancelled_from_another_thread_drops_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let log = Log::new();
        let (probe, release) = (Arc::clone(&log), Door::new());
        let (tx, rx) = mpsc::channel();
        let until = release.clone();
        ev.execute(move || {
            tx.send(spawn_local(Probe::new(&probe, pending::<()>())))
                .unwrap();
            until.pass();
        })
        .unwrap();
        let cancel = begin_cancel(rx.recv().unwrap());
        assert_eq!(log.drops(), 0);
        release.open();
        assert_eq!(block_on(cancel), None);
        assert_eq!(log.polls(), 0);
        log.assert_home(thread_of(ev));
    });
}

#[test]
fn running_local_task_cancelled_from_another_thread_drops_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let (log, entered, release) = (Log::new(), Door::new(), Door::new());
        let (probe, inside, until) = (Arc::clone(&log), entered.clone(), release.clone());
        let handle = local(ev, move || {
            Probe::new(&probe, async move {
                inside.open();
                until.pass();
                pending::<()>().await;
            })
        });
        entered.pass();
        let cancel = begin_cancel(handle);
        assert_eq!(log.drops(), 0);
        release.open();
        assert_eq!(block_on(cancel), None);
        assert_eq!(log.polls(), 1);
        log.assert_home(thread_of(ev));
    });
}

#[test]
fn waiting_local_task_cancelled_from_another_thread_drops_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let (log, door) = (Log::new(), Door::new());
        let (probe, opened) = (Arc::clone(&log), door.opened());
        let handle = local(ev, move || Probe::new(&probe, opened));
        eventually("the task waits", || door.waiting() == 1);
        assert_eq!(block_on(handle.cancel()), None);
        assert_eq!(log.polls(), 1);
        log.assert_home(thread_of(ev));
    });
}

#[test]
fn woken_local_task_cancelled_from_another_thread_drops_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let (log, door) = (Log::new(), Door::new());
        let (probe, opened) = (Arc::clone(&log), door.opened());
        let handle = local(ev, move || Probe::new(&probe, opened));
        eventually("the task waits", || door.waiting() == 1);
        let release = stall(ev);
        door.open();
        let cancel = begin_cancel(handle);
        assert_eq!(log.drops(), 0);
        release.open();
        assert_eq!(block_on(cancel), None);
        assert_eq!(log.polls(), 1, "cancelled before its second poll");
        log.assert_home(thread_of(ev));
    });
}

#[test]
fn finished_local_task_cancelled_from_another_thread_was_dropped_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let log = Log::new();
        let probe = Arc::clone(&log);
        let handle = local(ev, move || Probe::new(&probe, async {}));
        eventually("the task ends", || handle.is_finished());
        assert_eq!(block_on(handle.cancel()), Some(()));
        assert_eq!(log.polls(), 1);
        log.assert_home(thread_of(ev));
    });
}

#[test]
fn abort_of_a_local_task_from_another_thread_drops_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let (log, door) = (Log::new(), Door::new());
        let (probe, opened) = (Arc::clone(&log), door.opened());
        let handle = local(ev, move || Probe::new(&probe, opened));
        eventually("the task waits", || door.waiting() == 1);
        handle.abort();
        // The loop gets to the cancelled task before anything that comes later.
        log.assert_home(thread_of(ev));
        assert_eq!(log.polls(), 1);
    });
}

#[test]
fn spawn_with_future_cancelled_from_another_thread_drops_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let (log, door) = (Log::new(), Door::new());
        let (probe, opened) = (Arc::clone(&log), door.opened());
        let handle = ev.spawn_with(move || Probe::new(&probe, opened));
        eventually("the task waits", || door.waiting() == 1);
        assert_eq!(block_on(handle.cancel()), None);
        assert_eq!(log.polls(), 1);
        log.assert_home(thread_of(ev));
    });
}

#[test]
fn every_task_drops_at_home_while_three_threads_wake_during_shutdown() {
    const ROUNDS: usize = 30;
    const TASKS: usize = 12;
    within(|| {
        for _ in 0..ROUNDS {
            let group = EventLoopGroup::new(2).unwrap();
            let homes: Vec<_> = group.loops().iter().map(thread_of).collect();
            let wakers = Arc::new(Mutex::new(Vec::new()));
            let mut probes = Vec::new();
            for n in 0..TASKS {
                let (log, inner) = (Log::new(), leave_waker(Arc::clone(&wakers)));
                let (probe, ev) = (Arc::clone(&log), &group.loops()[n % 2]);
                drop(match n % 3 {
                    0 => ev.spawn(Probe::new(&probe, inner)),
                    1 => local(ev, move || Probe::new(&probe, inner)),
                    _ => ev.spawn_with(move || Probe::new(&probe, inner)),
                });
                probes.push((log, homes[n % 2]));
            }
            eventually("all wait", || wakers.lock().unwrap().len() >= TASKS);
            let stop = Arc::new(AtomicBool::new(false));
            let started = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let mine: Vec<Waker> = wakers.lock().unwrap().clone();
                    let (stop, started) = (Arc::clone(&stop), Arc::clone(&started));
                    thread::spawn(move || {
                        while !stop.load(Ordering::SeqCst) {
                            mine.iter().for_each(Waker::wake_by_ref);
                            started.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            eventually("the wakes have begun", || {
                started.load(Ordering::SeqCst) > 3
            });
            let report = group.shutdown_now().wait();
            stop.store(true, Ordering::SeqCst);
            for thread in threads {
                thread.join().unwrap();
            }
            for (log, home) in probes {
                log.assert_home(home);
            }
            assert_eq!(report.cancelled(), TASKS as u64);
            assert_eq!(report.accepted(), report.completed() + report.cancelled());
        }
    });
}

#[test]
fn task_wakes_across_loops_leave_everybody_at_home() {
    const PAIRS: usize = 20;
    const ROUNDS: usize = 50;
    within(|| {
        let group = EventLoopGroup::new(4).unwrap();
        let mut tasks = Vec::new();
        for n in 0..PAIRS {
            // Each pair plays ping-pong over two different loops.
            let (ping, mut pinged) = futures::channel::mpsc::unbounded();
            let (pong, mut ponged) = futures::channel::mpsc::unbounded();
            let (one, two) = (Log::new(), Log::new());
            let (a, b) = (n % 4, (n + 1 + n / 4) % 4);
            let first = group.spawn_on(
                a,
                Probe::new(&one, async move {
                    for round in 0..ROUNDS {
                        ping.unbounded_send(round).unwrap();
                        assert_eq!(next(&mut ponged).await, Some(round));
                    }
                }),
            );
            let second = group.spawn_on(
                b,
                Probe::new(&two, async move {
                    while let Some(round) = next(&mut pinged).await {
                        pong.unbounded_send(round).unwrap();
                    }
                }),
            );
            tasks.push((first, one, a));
            tasks.push((second, two, b));
        }
        for (handle, log, index) in tasks {
            block_on(handle).unwrap();
            log.assert_home(thread_of(&group.loops()[index]));
        }
    });
}

/// The next message of a channel.
async fn next<T>(receiver: &mut futures::channel::mpsc::UnboundedReceiver<T>) -> Option<T> {
    use futures::Stream;
    poll_fn(|cx| std::pin::Pin::new(&mut *receiver).poll_next(cx)).await
}

#[test]
fn a_panicking_future_is_dropped_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let log = Log::new();
        let handle = group.spawn(Probe::new(&log, async { panic!("on purpose") }));
        let handle: Result<(), _> = block_on(handle);
        assert!(handle.unwrap_err().is_panic());
        assert_eq!(log.polls(), 1);
        log.assert_home(thread_of(group.next()));
    });
}

#[test]
fn the_output_of_a_detached_task_is_dropped_at_home() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let dropped = DropCount::new();
        let output = dropped.guard();
        let release = stall(ev);
        drop(ev.spawn(async move { output }));
        release.open();
        let home = thread_of(ev);
        assert_eq!((dropped.get(), dropped.thread()), (1, Some(home)));
    });
}

#[test]
fn a_refused_future_is_dropped_by_its_submitter_and_never_polled() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        group.shutdown_now().wait();
        let log = Log::new();
        let error = block_on(group.spawn(Probe::new(&log, async {}))).unwrap_err();
        assert!(error.is_rejected());
        assert_eq!(log.polls(), 0);
        log.assert_home(thread::current().id());
    });
}

#[test]
fn in_event_loop_is_false_for_dead_loops_whose_threads_are_reused() {
    const GROUPS: usize = 100;
    const LOOPS: usize = 4;
    within(|| {
        let mut dead: Vec<EventLoop> = Vec::new();
        for _ in 0..GROUPS {
            let group = EventLoopGroup::new(LOOPS).unwrap();
            for ev in group.loops() {
                let (this, earlier) = (ev.clone(), dead.clone());
                let seen = ev.submit(move || {
                    let mine = this.in_event_loop() && EventLoop::current() == Some(this);
                    (
                        mine,
                        earlier.iter().filter(|old| old.in_event_loop()).count(),
                    )
                });
                assert_eq!(block_on(seen).unwrap(), (true, 0));
                assert!(!ev.in_event_loop());
            }
            group.shutdown_now().wait();
            dead.extend(group.loops().iter().cloned());
        }
        assert_eq!(dead.len(), GROUPS * LOOPS);
        assert!(dead.iter().all(|ev| !ev.in_event_loop()));
    });
}

#[test]
fn in_event_loop_tells_siblings_apart() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        for ev in group.loops() {
            let all = group.loops().to_vec();
            let inside = ev.submit(move || {
                all.iter()
                    .filter(|one| one.in_event_loop())
                    .map(EventLoop::index)
                    .collect::<Vec<_>>()
            });
            assert_eq!(block_on(inside).unwrap(), [ev.index()]);
        }
    });
}

#[test]
fn a_group_whose_last_handle_goes_on_its_own_loop_ends_without_a_join() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let termination = group.termination();
        let (log, door) = (Log::new(), Door::new());
        let home = thread_of(&group.loops()[0]);
        let last = group.clone();
        let opened = door.opened();
        // Detached: a handle would outlive the group just as well.
        drop(group.spawn_on(
            0,
            Probe::new(&log, async move {
                opened.await;
                drop(last);
                yield_now().await;
            }),
        ));
        eventually("the task waits", || door.waiting() == 1);
        drop(group);
        door.open();
        let report = termination.wait();
        log.assert_home(home);
        assert_eq!(report.accepted(), report.completed() + report.cancelled());
    });
}

#[test]
fn a_group_kept_in_a_thread_local_ends_when_its_thread_does() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<EventLoopGroup>> =
            const { std::cell::RefCell::new(None) };
    }
    within(|| {
        let (log, door) = (Log::new(), Door::new());
        let (probe, opened) = (Arc::clone(&log), door.clone());
        let (termination, home) = thread::spawn(move || {
            let group = EventLoopGroup::new(1).unwrap();
            let home = thread_of(group.next());
            drop(group.spawn(Probe::new(&probe, opened.opened())));
            eventually("the task waits", || opened.waiting() == 1);
            let termination = group.termination();
            KEPT.with(|kept| *kept.borrow_mut() = Some(group));
            (termination, home)
        })
        .join()
        .unwrap();
        let report = termination.wait();
        assert_eq!(report.cancelled(), 1);
        assert_eq!(log.polls(), 1);
        log.assert_home(home);
    });
}

#[test]
fn a_thread_local_destructor_may_block_on_a_group() {
    /// Blocks on its group when the thread ends.
    struct Farewell(EventLoopGroup, mpsc::Sender<u32>);

    impl Drop for Farewell {
        fn drop(&mut self) {
            let answer = self.0.block_on(self.0.spawn(async { 42 })).unwrap();
            self.1.send(answer).unwrap();
        }
    }

    thread_local! {
        static KEPT: std::cell::RefCell<Option<Farewell>> =
            const { std::cell::RefCell::new(None) };
    }
    // A panic in a thread-local destructor ends the process: hence the child.
    if !util::is_child() {
        let output = within(|| util::in_child("a_thread_local_destructor_may_block_on_a_group"));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    within(|| {
        let (tx, rx) = mpsc::channel();
        thread::spawn(move || {
            let group = EventLoopGroup::new(1).unwrap();
            // First the user's thread-local, then ours: ours is destroyed first.
            KEPT.with(|kept| *kept.borrow_mut() = Some(Farewell(group.clone(), tx)));
            group.block_on(async {});
        })
        .join()
        .unwrap();
        assert_eq!(rx.recv(), Ok(42));
    });
}
