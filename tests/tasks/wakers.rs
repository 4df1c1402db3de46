//! A wake is never lost, never doubles a poll, never blocks, and is harmless after the end.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use loopgroup::{EventLoop, EventLoopGroup, JoinHandle, block_on, spawn_local};

use crate::util::{
    Door, DropCount, Log, Probe, eventually, flush, group, local, poll_once, stall, thread_of,
    within,
};

/// A future that is ready once it is told so, counts its polls and shows its waker.
#[derive(Clone, Default)]
struct Beacon(Arc<State>);

#[derive(Default)]
struct State {
    polls: AtomicUsize,
    ready: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Beacon {
    fn future(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let state = Arc::clone(&self.0);
        poll_fn(move |cx| {
            let old = state.waker.lock().unwrap().replace(cx.waker().clone());
            drop(old);
            let ready = state.ready.load(Ordering::SeqCst);
            // Counted last: who sees the count may set `ready` for the next poll.
            state.polls.fetch_add(1, Ordering::SeqCst);
            if ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }

    fn polls(&self) -> usize {
        self.0.polls.load(Ordering::SeqCst)
    }

    /// What the next poll returns; wakes nobody.
    fn set_ready(&self) {
        self.0.ready.store(true, Ordering::SeqCst);
    }

    /// The waker of the last poll, once there was one and the task waits.
    fn waker(&self) -> Waker {
        eventually("the task is polled", || self.polls() > 0);
        self.0.waker.lock().unwrap().clone().unwrap()
    }
}

/// One task of each kind: Send, local, made on its loop.
fn of_each_kind(ev: &EventLoop) -> [(Beacon, Arc<Log>, JoinHandle<()>); 3] {
    [0, 1, 2].map(|kind| {
        let (beacon, log) = (Beacon::default(), Log::new());
        let (future, probe) = (beacon.future(), Arc::clone(&log));
        let handle = match kind {
            0 => ev.spawn(Probe::new(&probe, future)),
            1 => local(ev, move || Probe::new(&probe, future)),
            _ => ev.spawn_with(move || Probe::new(&probe, future)),
        };
        (beacon, log, handle)
    })
}

#[test]
fn wake_after_ready_does_not_poll_again() {
    within(|| {
        let group = group(1);
        for (beacon, log, handle) in of_each_kind(group.next()) {
            let waker = beacon.waker();
            beacon.set_ready();
            waker.wake_by_ref();
            block_on(handle).unwrap();
            assert_eq!(beacon.polls(), 2);
            // From here, from another thread, and at home.
            waker.wake_by_ref();
            let far = waker.clone();
            thread::spawn(move || far.wake()).join().unwrap();
            block_on(group.next().submit(move || waker.wake())).unwrap();
            flush(group.next());
            assert_eq!(beacon.polls(), 2);
            log.assert_home(thread_of(group.next()));
        }
    });
}

#[test]
fn many_wakes_before_the_poll_are_one_poll() {
    within(|| {
        let group = group(1);
        for (beacon, _, handle) in of_each_kind(group.next()) {
            let waker = beacon.waker();
            let release = stall(group.next());
            waker.wake_by_ref();
            let copy = waker.clone();
            copy.wake();
            waker.wake_by_ref();
            waker.wake();
            release.open();
            flush(group.next());
            assert_eq!(beacon.polls(), 2);
            handle.abort();
        }
    });
}

#[test]
fn wakes_at_home_before_the_poll_are_one_poll() {
    within(|| {
        let group = group(1);
        let ev = group.next();
        let beacon = Beacon::default();
        drop(ev.spawn(beacon.future()));
        let waker = beacon.waker();
        block_on(ev.submit(move || {
            waker.wake_by_ref();
            waker.wake_by_ref();
            waker.wake();
        }))
        .unwrap();
        flush(ev);
        assert_eq!(beacon.polls(), 2);
    });
}

#[test]
fn wake_by_ref_and_then_drop_of_every_waker_is_one_poll() {
    within(|| {
        let group = group(1);
        let beacon = Beacon::default();
        drop(group.spawn(beacon.future()));
        let waker = beacon.waker();
        let release = stall(group.next());
        waker.wake_by_ref();
        drop(waker);
        drop(beacon.0.waker.lock().unwrap().take());
        release.open();
        flush(group.next());
        assert_eq!(beacon.polls(), 2);
    });
}

#[test]
fn wakes_during_the_own_poll_are_one_poll_more() {
    within(|| {
        let group = group(1);
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let handle = group.spawn(poll_fn(move |cx| {
            match count.fetch_add(1, Ordering::SeqCst) {
                0 => {
                    cx.waker().wake_by_ref();
                    let copy = cx.waker().clone();
                    copy.wake();
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                1 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        }));
        eventually("the second poll", || polls.load(Ordering::SeqCst) == 2);
        flush(group.next());
        assert_eq!(
            polls.load(Ordering::SeqCst),
            2,
            "no third poll without a wake"
        );
        handle.abort();
    });
}

#[test]
fn a_wake_from_another_thread_during_the_poll_is_one_poll_more() {
    within(|| {
        let group = group(1);
        let (entered, release, beacon) = (Door::new(), Door::new(), Beacon::default());
        let (inside, until, mut inner) = (entered.clone(), release.clone(), beacon.future());
        let handle = group.spawn(poll_fn(move |cx| {
            let poll = std::pin::Pin::new(&mut inner).poll(cx);
            inside.open();
            until.pass();
            poll
        }));
        entered.pass();
        let waker = beacon.waker();
        waker.wake_by_ref();
        waker.wake();
        release.open();
        eventually("the second poll", || beacon.polls() == 2);
        flush(group.next());
        assert_eq!(beacon.polls(), 2);
        handle.abort();
    });
}

#[test]
fn a_wake_during_the_poll_that_ends_the_task_is_nothing() {
    within(|| {
        let group = group(1);
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let handle = group.spawn(poll_fn(move |cx| {
            count.fetch_add(1, Ordering::SeqCst);
            cx.waker().wake_by_ref();
            Poll::Ready(())
        }));
        block_on(handle).unwrap();
        flush(group.next());
        assert_eq!(polls.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_task_has_the_same_waker_in_every_poll() {
    within(|| {
        let group = group(1);
        let beacon = Beacon::default();
        let handle = group.spawn(beacon.future());
        let first = beacon.waker();
        first.wake_by_ref();
        eventually("the second poll", || beacon.polls() == 2);
        assert!(first.will_wake(&beacon.waker()));
        handle.abort();
    });
}

#[test]
fn a_detached_task_without_wakers_lives_until_its_loop_ends() {
    within(|| {
        let group = group(1);
        let log = Log::new();
        drop(group.spawn(Probe::new(&log, std::future::pending::<()>())));
        flush(group.next());
        assert_eq!(
            (log.polls(), log.drops(), group.next().live_tasks()),
            (1, 0, 1)
        );
        let home = thread_of(group.next());
        assert_eq!(group.shutdown_now().wait().cancelled(), 1);
        log.assert_home(home);
    });
}

#[test]
fn wakes_after_termination_do_nothing_whatever_the_kind_of_task() {
    within(|| {
        let group = group(1);
        let home = thread_of(group.next());
        let tasks = of_each_kind(group.next());
        for (beacon, ..) in &tasks {
            beacon.waker();
        }
        assert_eq!(group.shutdown_now().wait().cancelled(), 3);
        drop(group);
        for (beacon, log, handle) in tasks {
            log.assert_home(home);
            assert!(block_on(handle).unwrap_err().is_cancelled());
            let waker = beacon.waker();
            waker.wake_by_ref();
            thread::spawn(move || waker.wake()).join().unwrap();
            assert_eq!(beacon.polls(), 1);
            log.assert_home(home);
        }
    });
}

#[test]
fn a_waker_that_outlives_everything_may_be_dropped_last_on_any_thread() {
    within(|| {
        let group = group(1);
        let ev = group.next().clone();
        let home = thread_of(&ev);
        let (beacon, captured) = (Beacon::default(), DropCount::new());
        let (future, guard) = (beacon.future(), captured.guard());
        drop(group.spawn(async move {
            let _guard = guard;
            future.await;
        }));
        beacon.waker();
        let waker = beacon.0.waker.lock().unwrap().take().unwrap();
        let termination = group.shutdown_now();
        drop(group);
        drop(ev);
        termination.wait();
        drop(termination);
        assert_eq!((captured.get(), captured.thread()), (1, Some(home)));
        // The waker is all that is left.
        let copies: Vec<_> = (0..100).map(|_| waker.clone()).collect();
        thread::spawn(move || {
            copies.iter().for_each(Waker::wake_by_ref);
            drop(copies);
            drop(waker);
        })
        .join()
        .unwrap();
        assert_eq!((captured.get(), beacon.polls()), (1, 1));
    });
}

thread_local! {
    static AT_EXIT: RefCell<Option<WakeOnDrop>> = const { RefCell::new(None) };
}

/// Wakes when it is dropped.
struct WakeOnDrop(Waker, Arc<AtomicUsize>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        // Counted first: who sees the wake sees the count.
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.wake_by_ref();
    }
}

// As the waker of an awaiter: only its end wakes, and somebody else.
impl Wake for WakeOnDrop {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_wake_from_a_thread_local_destructor_arrives() {
    within(|| {
        let group = group(1);
        for (beacon, log, handle) in of_each_kind(group.next()) {
            let (waker, fired) = (beacon.waker(), Arc::new(AtomicUsize::new(0)));
            beacon.set_ready();
            let at_exit = WakeOnDrop(waker, Arc::clone(&fired));
            thread::spawn(move || {
                AT_EXIT.with(|slot| *slot.borrow_mut() = Some(at_exit));
                // Now the crate's own thread-locals are younger, and destroyed first.
                assert!(EventLoop::current().is_none());
            })
            .join()
            .unwrap();
            block_on(handle).unwrap();
            assert_eq!((beacon.polls(), fired.load(Ordering::SeqCst)), (2, 1));
            log.assert_home(thread_of(group.next()));
        }
    });
}

#[test]
fn a_wake_from_a_thread_local_destructor_of_the_home_thread_is_nothing() {
    within(|| {
        let group = group(1);
        let ev = group.next();
        let home = thread_of(ev);
        let fired = Arc::new(AtomicUsize::new(0));
        // One of a task that has ended and one of a task that the end cancels.
        for end_first in [true, false] {
            let group = EventLoopGroup::new(1).unwrap();
            let (beacon, log, count) = (Beacon::default(), Log::new(), Arc::clone(&fired));
            if end_first {
                beacon.set_ready();
            }
            drop(group.spawn(Probe::new(&log, beacon.future())));
            let waker = beacon.waker();
            let own = block_on(group.next().submit(move || {
                AT_EXIT.with(|slot| *slot.borrow_mut() = Some(WakeOnDrop(waker, count)));
                thread::current().id()
            }))
            .unwrap();
            assert_ne!(own, home);
            // `wait` joins the thread, so its thread-locals are gone.
            group.shutdown_now().wait();
            assert_eq!(beacon.polls(), 1);
            log.assert_home(own);
        }
        assert_eq!(fired.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_waker_cloned_by_a_thread_that_has_exited_works() {
    within(|| {
        let group = group(1);
        let beacon = Beacon::default();
        let (far, source) = (group.clone(), beacon.clone());
        // The thread spawns, clones, and is gone before the wake.
        let (handle, waker) = thread::spawn(move || {
            let handle = far.spawn(source.future());
            (handle, source.waker().clone())
        })
        .join()
        .unwrap();
        beacon.set_ready();
        waker.wake();
        block_on(handle).unwrap();
        assert_eq!(beacon.polls(), 2);
    });
}

#[test]
fn a_million_wakes_from_four_threads_lose_none_and_add_none() {
    const EACH: usize = 250_000;
    within(|| {
        let group = group(1);
        let (beacon, log) = (Beacon::default(), Log::new());
        let handle = group.spawn(Probe::new(&log, beacon.future()));
        let waker = beacon.waker();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let waker = waker.clone();
                thread::spawn(move || (0..EACH).for_each(|_| waker.wake_by_ref()))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        flush(group.next());
        let polls = beacon.polls();
        assert!((2..=1 + 4 * EACH).contains(&polls), "{polls} polls");
        // At rest: nothing is queued twice, and the next wake still arrives.
        flush(group.next());
        assert_eq!(beacon.polls(), polls);
        beacon.set_ready();
        waker.wake();
        block_on(handle).unwrap();
        assert_eq!(beacon.polls(), polls + 1);
        log.assert_home(thread_of(group.next()));
    });
}

#[test]
fn wakes_return_while_the_loop_stands_still() {
    const TASKS: usize = 1_000;
    const EACH: usize = 100;
    within(|| {
        let group = group(1);
        let beacons: Vec<_> = (0..TASKS).map(|_| Beacon::default()).collect();
        let handles: Vec<_> = beacons.iter().map(|b| group.spawn(b.future())).collect();
        let wakers: Vec<_> = beacons.iter().map(Beacon::waker).collect();
        let release = stall(group.next());
        // If one of these waited for the loop, the loop would never be released.
        for _ in 0..EACH {
            wakers.iter().for_each(Waker::wake_by_ref);
        }
        assert!(beacons.iter().all(|beacon| beacon.polls() == 1));
        beacons.iter().for_each(Beacon::set_ready);
        release.open();
        for handle in handles {
            block_on(handle).unwrap();
        }
        assert!(beacons.iter().all(|beacon| beacon.polls() == 2));
    });
}

#[test]
fn a_wake_from_the_drop_of_a_foreign_waker_arrives() {
    within(|| {
        let group = group(1);
        let (one, two) = (Beacon::default(), Beacon::default());
        let mut first = group.spawn(one.future());
        let second = group.spawn(two.future());
        let fired = Arc::new(AtomicUsize::new(0));
        let awaiter = Waker::from(Arc::new(WakeOnDrop(two.waker(), Arc::clone(&fired))));
        two.set_ready();
        let waiting = std::pin::Pin::new(&mut first).poll(&mut Context::from_waker(&awaiter));
        assert!(waiting.is_pending());
        drop(awaiter);
        assert_eq!(
            fired.load(Ordering::SeqCst),
            0,
            "the task holds its awaiter"
        );
        one.set_ready();
        one.waker().wake();
        block_on(second).unwrap();
        block_on(first).unwrap();
        assert_eq!(fired.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn wakes_race_with_the_drop_of_the_last_handle() {
    within(|| {
        for round in 0..200 {
            let group = group(1);
            let (beacon, log) = (Beacon::default(), Log::new());
            let handle = group.spawn(Probe::new(&log, beacon.future()));
            let home = thread_of(group.next());
            let waker = beacon.waker();
            if round % 2 == 0 {
                beacon.set_ready();
            }
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let waker = waker.clone();
                    thread::spawn(move || (0..20).for_each(|_| waker.wake_by_ref()))
                })
                .collect();
            let termination = group.termination();
            drop(waker);
            drop(group);
            let report = termination.wait();
            for thread in threads {
                thread.join().unwrap();
            }
            log.assert_home(home);
            assert_eq!(report.accepted(), 2);
            match block_on(handle) {
                Ok(()) => assert_eq!(report.completed(), 2),
                Err(error) => {
                    assert!(error.is_cancelled());
                    assert_eq!(report.cancelled(), 1);
                }
            }
        }
    });
}

/// Bounces a flag between a task and this thread: each side waits for the other, so one lost wake-up
/// is a hang.
fn ping_pong(group: &EventLoopGroup, rounds: usize) {
    let (to_task, mut task_side) = futures::channel::mpsc::unbounded::<usize>();
    let (to_thread, thread_side) = std::sync::mpsc::channel();
    let handle = group.spawn(async move {
        use futures::Stream;
        let mut seen = 0;
        while let Some(n) = poll_fn(|cx| std::pin::Pin::new(&mut task_side).poll_next(cx)).await {
            seen += 1;
            to_thread.send(n).unwrap();
        }
        seen
    });
    for n in 0..rounds {
        to_task.unbounded_send(n).unwrap();
        assert_eq!(thread_side.recv(), Ok(n));
    }
    drop(to_task);
    assert_eq!(block_on(handle).unwrap(), rounds);
}

#[test]
fn no_wake_is_lost_between_the_last_look_and_the_park() {
    within(|| {
        ping_pong(&group(1), 3_000);
        let parking = EventLoopGroup::builder().loops(1).without_io();
        ping_pong(&parking.build().unwrap(), 3_000);
        let spinning = EventLoopGroup::builder().loops(1).wait_strategy(
            loopgroup::WaitStrategy::SpinThenPark(std::time::Duration::from_micros(5)),
        );
        ping_pong(&spinning.build().unwrap(), 3_000);
    });
}

#[test]
fn wakes_of_the_main_future_of_run_arrive_from_anywhere() {
    within(|| {
        let (beacon, log) = (Beacon::default(), Log::new());
        let source = beacon.clone();
        let far = thread::spawn(move || {
            let waker = source.waker();
            source.set_ready();
            waker.wake_by_ref();
            waker
        });
        loopgroup::run(Probe::new(&log, beacon.future())).unwrap();
        // The loop is gone; its waker is harmless.
        far.join().unwrap().wake();
        assert_eq!(beacon.polls(), 2);
        log.assert_home(thread::current().id());
        // At home, from a task of the same loop.
        let beacon = Beacon::default();
        loopgroup::run(async {
            let source = beacon.clone();
            drop(spawn_local(async move {
                source.set_ready();
                source.waker().wake();
            }));
            beacon.future().await;
        })
        .unwrap();
        assert_eq!(beacon.polls(), 2);
    });
}

#[test]
fn a_cancelled_task_ignores_its_wakers() {
    within(|| {
        let group = group(1);
        for (beacon, log, handle) in of_each_kind(group.next()) {
            let waker = beacon.waker();
            let release = stall(group.next());
            waker.wake_by_ref();
            let mut cancel = Box::pin(handle.cancel());
            assert!(poll_once(&mut cancel).is_pending());
            waker.wake_by_ref();
            release.open();
            assert_eq!(block_on(cancel), None);
            waker.wake();
            flush(group.next());
            assert_eq!(beacon.polls(), 1);
            log.assert_home(thread_of(group.next()));
        }
    });
}

#[test]
fn a_foreign_waker_that_an_ended_task_wakes_is_not_inside_of_the_task() {
    struct TellsId(mpsc::Sender<Option<loopgroup::TaskId>>);
    impl Wake for TellsId {
        fn wake(self: Arc<Self>) {
            self.0.send(loopgroup::task_id()).unwrap();
        }
    }
    within(|| {
        let (tx, rx) = mpsc::channel();
        let waker = Waker::from(Arc::new(TellsId(tx)));
        let mut test = loopgroup::testing::TestLoop::new();
        let mut task = test.spawn(async {});
        let mut cx = Context::from_waker(&waker);
        assert!(std::pin::Pin::new(&mut task).poll(&mut cx).is_pending());
        drop(task); // it is freed before it wakes its awaiter: its address is anybody's by then
        test.run_until_stalled();
        assert_eq!(rx.recv().unwrap(), None);
    });
}
