//! Races and slips that loops of this kind have had, one function each.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use loopgroup::blocking::BlockingGroup;
use loopgroup::testing::{TestGroup, TestLoop};
use loopgroup::time::{Sleep, sleep, sleep_until};
use loopgroup::{EndCause, EventLoopGroup, LoopState, LoopThread, PanicSite, RejectReason};

use crate::util::{
    self, Door, DropCount, LONG, Log, OnDrop, Probe, eventually, group_with_io, stall, thread_of,
    within,
};

/// A future that is not `Send`, never done, and shows its waker at every poll.
struct Local {
    wakers: Arc<Mutex<Vec<Waker>>>,
    drops: Arc<Mutex<Vec<ThreadId>>>,
    _stays: Rc<()>,
}

impl Future for Local {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut wakers = self.wakers.lock().unwrap();
        // One per task is enough: a task has one waker, however often it is cloned.
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.drops.lock().unwrap().push(thread::current().id());
    }
}

#[test]
fn a_foreign_wake_in_flight_keeps_a_draining_loop_waiting_for_its_task() {
    const GROUPS: usize = 400;
    const TASKS: usize = 12;
    within(|| {
        let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let over = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (wakers, over) = (Arc::clone(&wakers), Arc::clone(&over));
                thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let round = wakers.lock().unwrap().clone();
                        for _ in 0..8 {
                            round.iter().for_each(Waker::wake_by_ref);
                        }
                    }
                })
            })
            .collect();
        for round in 0..GROUPS {
            let group = group_with_io(1, round % 2 == 0);
            let drops = Arc::new(Mutex::new(Vec::new()));
            for _ in 0..TASKS {
                let (wakers, drops) = (Arc::clone(&wakers), Arc::clone(&drops));
                drop(group.spawn_with(move || Local {
                    wakers,
                    drops,
                    _stays: Rc::new(()),
                }));
            }
            let home = thread_of(group.next());
            let report = group.shutdown_now().wait();
            assert_eq!(*drops.lock().unwrap(), vec![home; TASKS]);
            assert_eq!((report.cancelled(), report.completed()), (TASKS as u64, 1));
            wakers.lock().unwrap().clear();
        }
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_submission_that_races_with_the_end_of_an_unstarted_loop_is_accepted_or_refused() {
    // It once saw the thread's seat taken, by the end, and was accepted by nobody.
    within(|| {
        for round in 0..1_500 {
            let group = group_with_io(1, round % 2 == 0);
            let ev = group.next().clone();
            let go = Arc::new(std::sync::Barrier::new(2));
            let start = Arc::clone(&go);
            let submitter = thread::spawn(move || {
                start.wait();
                ev.spawn(async {})
            });
            go.wait();
            let report = group.shutdown_now().wait();
            let handle = submitter.join().unwrap();
            let result = loopgroup::block_on(handle);
            let rejected = u64::from(result.is_err_and(|error| error.is_rejected()));
            assert_eq!(report.accepted() + rejected, 1);
            assert_eq!(report.rejected(), rejected);
        }
    });
}

#[test]
fn the_last_group_handle_dropped_while_the_loop_goes_to_sleep_ends_it() {
    within(|| {
        for round in 0..1_000 {
            let group = group_with_io(1, round % 2 == 0);
            let termination = group.termination();
            // The answer is on its way while the loop looks for more and lies down.
            group.block_on(group.spawn(async {})).unwrap();
            drop(group);
            let report = termination.wait_timeout(LONG).expect("the loop sleeps on");
            assert_eq!(report.completed(), 1);
        }
    });
}

#[test]
fn the_last_loop_handle_dropped_while_the_loop_goes_to_sleep_ends_its_quiet_period() {
    within(|| {
        for round in 0..700 {
            let group = group_with_io(1, round % 2 == 0);
            let ev = group.next().clone();
            let termination = group.termination();
            group.block_on(group.spawn(async {})).unwrap();
            drop(
                group
                    .shutdown_gracefully_with(LONG * 100, LONG * 200)
                    .unwrap(),
            );
            drop(group);
            drop(ev);
            let report = termination.wait_timeout(LONG).expect("the loop sleeps on");
            assert_eq!(report.loops()[0].cause(), EndCause::Idle);
        }
    });
}

#[test]
fn a_group_dropped_while_its_thread_starts_still_ends() {
    within(|| {
        let (group, promised) = group_with_slow_threads();
        let ev = group.next().clone();
        let termination = group.termination();
        let submitter = thread::spawn(move || ev.spawn(async { 7 }));
        let thread = promised.recv().unwrap();
        drop(group);
        // The loop is still to come: nobody may have taken its end for granted.
        assert!(termination.wait_timeout(Duration::ZERO).is_none());
        let runner = thread::spawn(move || thread.run());
        let handle = submitter.join().unwrap();
        let result = loopgroup::block_on(handle);
        let report = termination.wait();
        runner.join().unwrap();
        assert!(report.loops()[0].started());
        match result {
            Ok(value) => assert_eq!((value, report.completed()), (7, 1)),
            Err(error) => {
                assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
                assert_eq!((report.accepted(), report.rejected()), (0, 1));
            }
        }
    });
}

#[test]
fn a_group_dropped_while_its_thread_starts_in_vain_still_ends() {
    within(|| {
        let (group, promised) = group_with_slow_threads();
        let ev = group.next().clone();
        let termination = group.termination();
        let submitter = thread::spawn(move || ev.spawn(async {}));
        let thread = promised.recv().unwrap();
        drop(group);
        drop(thread);
        let report = termination.wait();
        assert!(!report.loops()[0].started());
        let error = loopgroup::block_on(submitter.join().unwrap()).unwrap_err();
        assert!(error.is_rejected());
        assert_eq!((report.accepted(), report.rejected()), (0, 1));
    });
}

/// A group whose factory promises a thread and hands it to the test.
fn group_with_slow_threads() -> (EventLoopGroup, mpsc::Receiver<LoopThread>) {
    let (tx, rx) = mpsc::channel();
    let group = EventLoopGroup::builder()
        .loops(1)
        .thread_factory(move |thread| tx.send(thread).map_err(io::Error::other))
        .build()
        .unwrap();
    (group, rx)
}

#[test]
fn cancel_of_spawn_with_resolves_only_after_the_inner_future_is_dropped() {
    within(|| {
        let group = group_with_io(1, false);
        let home = thread_of(group.next());
        for _ in 0..200 {
            let drops = DropCount::new();
            let inside = drops.clone();
            let polled = Door::new();
            let seen = polled.clone();
            let handle = group.spawn_with(move || {
                let guard = (Rc::new(()), inside.guard());
                async move {
                    let _guard = guard;
                    seen.open();
                    std::future::pending::<()>().await;
                }
            });
            polled.pass();
            assert_eq!(loopgroup::block_on(handle.cancel()), None);
            assert_eq!((drops.get(), drops.thread()), (1, Some(home)));
        }
    });
}

#[test]
fn cancel_counts_from_its_call_on_also_if_its_future_is_kept_and_not_polled() {
    within(|| {
        let mut test = TestLoop::new();
        let log = Log::new();
        let task = test.spawn(Probe::new(&log, std::future::pending::<()>()));
        test.run_until_stalled();
        let cancelling = task.cancel();
        test.run_until_stalled();
        assert_eq!((log.polls(), log.drops()), (1, 1));
        assert_eq!(test.block_on(cancelling), None);
        // A value that was there before is kept for whoever asks.
        let task = test.spawn(async { 7 });
        test.run_until_stalled();
        let cancelling = task.cancel();
        assert_eq!(test.block_on(cancelling), Some(7));
    });
}

#[test]
fn a_factory_that_drops_its_thread_refuses_the_submission_and_is_asked_again() {
    within(|| {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(move |thread| {
                if count.fetch_add(1, Ordering::SeqCst) >= 2 {
                    thread::spawn(move || thread.run());
                }
                Ok(())
            })
            .build()
            .unwrap();
        for _ in 0..2 {
            let log = Log::new();
            let rejected = group.try_spawn(Probe::new(&log, async {})).unwrap_err();
            assert!(matches!(rejected.reason(), RejectReason::ThreadStart(_)));
            assert_eq!((log.polls(), log.drops()), (0, 0), "handed back");
            assert_eq!(group.next().state(), LoopState::NotStarted);
        }
        assert_eq!(group.block_on(group.spawn(async { 5 })).unwrap(), 5);
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        let report = group.shutdown_now().wait();
        assert_eq!((report.accepted(), report.rejected()), (1, 2));
    });
}

#[test]
fn the_report_of_a_blocking_group_waits_for_the_jobs_that_its_request_cancels() {
    // The last worker once made the report while the requester was still dropping the queue.
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (busy, release) = (Door::new(), Door::new());
        let (entered, until) = (busy.clone(), release.clone());
        let running = group.spawn(move || {
            entered.open();
            until.pass();
        });
        busy.pass();
        let observer = group.termination();
        let guard = OnDrop::new(move || {
            release.open();
            // Time for a report that does not wait; one that does comes after this destructor.
            assert!(observer.wait_timeout(Duration::from_millis(100)).is_none());
        });
        let queued = group.spawn(move || drop(guard));
        let report = group.shutdown_now().wait();
        loopgroup::block_on(running).unwrap();
        assert!(loopgroup::block_on(queued).unwrap_err().is_cancelled());
        assert_eq!((report.accepted(), report.completed()), (2, 1));
        assert_eq!((report.panicked(), report.cancelled()), (0, 1));
    });
}

#[test]
fn a_blocking_group_begins_no_job_after_its_timeout() {
    // A worker that came back from a job once took the next one before it looked at the terms.
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (busy, release) = (Door::new(), Door::new());
        let (entered, until) = (busy.clone(), release.clone());
        let running = group.spawn(move || {
            entered.open();
            until.pass();
        });
        busy.pass();
        let queued: Vec<_> = (0..3).map(|_| group.spawn(|| ())).collect();
        let timeout = Duration::from_millis(5);
        let termination = group.drain(timeout);
        thread::sleep(timeout);
        release.open();
        let report = termination.wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert_eq!((report.completed(), report.cancelled()), (1, 3));
        loopgroup::block_on(running).unwrap();
        for job in queued {
            assert!(loopgroup::block_on(job).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_refused_future_whose_destructor_panics_does_not_unwind_into_its_submitter() {
    within(|| {
        let sites = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sites);
        let group = EventLoopGroup::builder()
            .loops(1)
            .max_pending_tasks(1)
            .on_panic(move |panic| seen.lock().unwrap().push(panic.site()))
            .build()
            .unwrap();
        let bomb = || OnDrop::new(|| resume_unwind(Box::new("bomb")));
        let spawn_bomb = || {
            let bomb = bomb();
            group.spawn(async move { drop(bomb) })
        };
        let release = stall(group.next());
        drop(group.spawn(async {}));
        let full = loopgroup::block_on(spawn_bomb()).unwrap_err();
        assert_eq!(full.reject_reason(), Some(RejectReason::QueueFull));
        release.open();
        group.shutdown_now().wait();
        let closed = loopgroup::block_on(spawn_bomb()).unwrap_err();
        assert_eq!(closed.reject_reason(), Some(RejectReason::ShutDown));
        assert_eq!(
            *sites.lock().unwrap(),
            [PanicSite::Destructor, PanicSite::Destructor],
            "each is reported to the group's handler"
        );
    });
}

#[test]
fn a_waker_that_outlives_its_group_is_inert() {
    within(|| {
        let wakers = Arc::new(Mutex::new(Vec::new()));
        let log = Log::new();
        let group = group_with_io(1, true);
        let shown = Arc::clone(&wakers);
        let handle = group.spawn(Probe::new(
            &log,
            poll_fn(move |cx| {
                shown.lock().unwrap().push(cx.waker().clone());
                Poll::<()>::Pending
            }),
        ));
        eventually("the task waits", || log.polls() == 1);
        let home = thread_of(group.next());
        group.shutdown_now().wait();
        for waker in wakers.lock().unwrap().drain(..) {
            waker.wake_by_ref();
            waker.wake();
        }
        log.assert_home(home);
        assert_eq!(log.polls(), 1);
        assert!(loopgroup::block_on(handle).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_destructor_that_wakes_every_other_task_does_not_disturb_the_drain() {
    const TASKS: usize = 50;
    within(|| {
        let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let group = group_with_io(1, true);
        let logs: Vec<_> = (0..TASKS).map(|_| Log::new()).collect();
        for log in &logs {
            let (shown, all) = (Arc::clone(&wakers), Arc::clone(&wakers));
            let wake_all = OnDrop::new(move || {
                let wakers = all.lock().unwrap().clone();
                wakers.iter().for_each(Waker::wake_by_ref);
            });
            let task = poll_fn(move |cx| {
                let _keeps = &wake_all;
                shown.lock().unwrap().push(cx.waker().clone());
                Poll::<()>::Pending
            });
            drop(group.spawn(Probe::new(log, task)));
        }
        let home = thread_of(group.next());
        let report = group.shutdown_now().wait();
        assert_eq!(report.cancelled(), TASKS as u64);
        for log in logs {
            assert_eq!(log.polls(), 1, "woken to be dropped, not to be polled");
            log.assert_home(home);
        }
    });
}

#[test]
fn a_drain_refuses_nothing_that_its_own_tasks_submit() {
    within(|| {
        for _ in 0..100 {
            let group = EventLoopGroup::new(3).unwrap();
            group.start().unwrap();
            // Each task hops over the loops; the last hop comes long after two of them are idle.
            async fn hop(group: EventLoopGroup, left: usize) {
                for step in 0..left {
                    group
                        .spawn_on(step % 3, async {})
                        .await
                        .expect("accepted to the last");
                }
            }
            let hops: Vec<_> = (0..6)
                .map(|n| group.spawn(hop(group.clone(), 5 * n)))
                .collect();
            let report = group.drain(Duration::from_secs(30)).wait();
            for hop in hops {
                loopgroup::block_on(hop).unwrap();
            }
            assert!(report.is_clean(), "{report}");
            assert_eq!((report.accepted(), report.rejected()), (6 + 75, 0));
        }
    });
}

#[test]
fn letting_go_of_a_group_with_hooks_does_not_wait_for_a_slow_thread() {
    within(|| {
        let kept: Arc<Mutex<Option<LoopThread>>> = Arc::default();
        let keep = Arc::clone(&kept);
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(move |lt| {
                *keep.lock().unwrap() = Some(lt);
                Ok(())
            })
            .build()
            .unwrap();
        let ran = Door::new();
        let hook = ran.clone();
        group.next().add_shutdown_hook(move || hook.open()).unwrap();
        let end = group.termination();
        let begun = Instant::now();
        drop(group);
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "dropping does not block"
        );
        // The thread comes late, and finds what was asked of it.
        let lt = kept.lock().unwrap().take().expect("it was asked for");
        lt.run();
        assert!(ran.is_open());
        assert_eq!(end.wait().hooks_run(), 1);
    });
}

#[test]
fn a_handle_that_stays_keeps_no_descriptor_open() {
    util::alone("a_handle_that_stays_keeps_no_descriptor_open", || {
        let before = util::entries("/proc/self/fd");
        let group = EventLoopGroup::new(4).unwrap();
        let kept: Vec<_> = group.loops().to_vec();
        group.spawn_on(0, async {}).abort();
        group.shutdown_now().wait();
        assert_eq!(util::entries("/proc/self/fd"), before);
        drop((group, kept));
    });
}

#[test]
fn a_group_that_has_ended_cannot_be_started() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.shutdown_now().wait();
        let error = group.start().unwrap_err();
        assert!(error.to_string().contains("loop 0") && error.to_string().contains("shut down"));
    });
}

#[test]
fn a_panicking_chooser_is_reported() {
    struct Broken;
    impl loopgroup::Chooser for Broken {
        fn choose(&self, _: &loopgroup::GroupView<'_>) -> usize {
            std::panic::resume_unwind(Box::new("no choice"))
        }
    }
    within(|| {
        let (tx, rx) = std::sync::mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(2)
            .chooser(Broken)
            .on_panic(move |panic| tx.send((panic.site(), panic.message().to_owned())).unwrap())
            .build()
            .unwrap();
        assert_eq!([group.next().index(), group.next().index()], [0, 1]);
        for _ in 0..2 {
            let (site, message) = rx.try_recv().unwrap();
            assert_eq!(
                (site, &*message),
                (loopgroup::PanicSite::Chooser, "no choice")
            );
        }
    });
}

#[test]
fn a_closure_that_is_never_due_does_not_hold_a_drain() {
    // Without a deadline there is no timer; the start of a shutdown has to find it all the same.
    let mut test = TestLoop::new();
    let seen = test.schedule(Duration::MAX, || ());
    let far = test
        .schedule_at_fixed_rate(Duration::ZERO, Duration::MAX, || ())
        .unwrap();
    test.run_until_stalled();
    let unseen = test.schedule(Duration::MAX, || ());
    drop(test.drain(LONG));
    test.run_until_stalled();
    let report = test.report().expect("nothing is left to wait for");
    assert_eq!(report.loops()[0].cause(), EndCause::Drained);
    assert_eq!((report.accepted(), report.cancelled()), (3, 3));
    for handle in [seen, far, unseen] {
        assert!(handle.is_finished());
        assert!(!handle.cancel(), "the shutdown was first");
    }
}

#[test]
fn a_closure_that_is_never_due_never_runs_however_much_virtual_time_passes() {
    let mut test = TestLoop::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let never = test.schedule(Duration::MAX, move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    for _ in 0..8 {
        test.advance(Duration::MAX); // a century each: past the 584 years of the clock
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert!(never.cancel());
    test.run_until_stalled();
    assert_eq!(test.pending(), 0);
}

#[test]
fn a_periodic_closure_that_is_always_late_does_not_hold_a_drain() {
    within(|| {
        let group = group_with_io(1, true);
        let beat = group
            .next()
            .schedule_at_fixed_rate(Duration::ZERO, Duration::from_nanos(1), || ())
            .unwrap();
        group.next().submit(|| ()).abort();
        let report = group.drain(LONG).wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        assert!(loopgroup::block_on(beat).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_sleep_of_zero_lets_others_go_first_also_in_virtual_time() {
    within(|| {
        let mut test = TestLoop::new();
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        drop(test.spawn(async move {
            loop {
                sleep(Duration::ZERO).await;
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }));
        let hour = test.schedule(Duration::from_secs(3600), || "an hour later");
        test.run_until_stalled(); // gives up at some point, as for every restless task
        test.advance(Duration::from_secs(3600));
        assert_eq!(test.block_on(hour).unwrap(), "an hour later");
        assert!(turns.load(Ordering::SeqCst) > 1);
    });
}

#[test]
fn a_restless_task_does_not_stop_the_time_of_a_blocking_test() {
    within(|| {
        let mut test = TestLoop::new();
        drop(test.spawn(async {
            loop {
                loopgroup::yield_now().await;
            }
        }));
        test.block_on(sleep(LONG));
        assert_eq!(test.elapsed(), LONG);
    });
}

#[test]
fn a_test_group_runs_a_crowd_to_its_end_before_it_calls_itself_stalled() {
    for seed in 0..4 {
        let mut test = TestGroup::seeded(seed, 3);
        let group = test.group().clone();
        // The crowd comes out of one task: nothing can be told from what is queued at first.
        drop(test.group().spawn(async move {
            for _ in 0..3_000 {
                drop(group.spawn(async {
                    for _ in 0..3 {
                        loopgroup::yield_now().await;
                    }
                }));
            }
        }));
        test.run_until_stalled();
        assert_eq!(test.pending(), 0, "seed {seed}");
    }
}

#[test]
fn a_test_group_sees_what_a_destructor_gives_to_another_loop() {
    struct SpawnOnDrop(EventLoopGroup, usize);
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            drop(self.0.spawn_on(self.1, async {}));
        }
    }
    for seed in 0..40 {
        let mut test = TestGroup::seeded(seed, 3);
        let group = test.group().clone();
        let bound = test.group().loops()[0].bind(move || SpawnOnDrop(group, 1));
        test.run_until_stalled();
        // Told by a message to the loop, not by a task: no poll shows it.
        drop(bound);
        test.run_until_stalled();
        assert_eq!(test.pending(), 0, "seed {seed}");
    }
}

#[test]
fn a_seed_decides_where_keys_live() {
    let run = || {
        let mut test = TestGroup::seeded(7, 8);
        let handles: Vec<_> = (0..32)
            .map(|key| {
                test.group().spawn_keyed(&key, async {
                    loopgroup::EventLoop::current().unwrap().index()
                })
            })
            .collect();
        test.run_until_stalled();
        let homes: Vec<_> = handles
            .into_iter()
            .map(|handle| loopgroup::block_on(handle).unwrap())
            .collect();
        (homes, test.trace())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_sleep_armed_in_block_on_fires_in_run_on_the_same_thread() {
    within(|| {
        let mut wait = sleep(Duration::from_millis(20));
        loopgroup::block_on(async { assert!(futures::poll!(&mut wait).is_pending()) });
        // The thread's own timers rest while it is a loop.
        loopgroup::run(wait).unwrap();

        let mut wait = sleep(Duration::from_millis(20));
        loopgroup::block_on(async { assert!(futures::poll!(&mut wait).is_pending()) });
        let mut test = TestLoop::new();
        test.block_on(wait);
    });
}

#[test]
fn block_on_works_in_a_thread_local_destructor_after_the_timers_are_gone() {
    struct BlockOnDrop(mpsc::Sender<u32>);
    impl Drop for BlockOnDrop {
        fn drop(&mut self) {
            let value = loopgroup::block_on(async {
                loopgroup::yield_now().await; // pending once: looks for timers
                7
            });
            self.0.send(value).unwrap();
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<BlockOnDrop>> = const { std::cell::RefCell::new(None) };
    }
    // In a process of its own: a panic in such a destructor takes the process along.
    util::alone(
        "block_on_works_in_a_thread_local_destructor_after_the_timers_are_gone",
        || {
            for timers_first in [false, true] {
                let (tx, rx) = mpsc::channel();
                let use_timers = || loopgroup::block_on(sleep(Duration::from_millis(1)));
                thread::spawn(move || {
                    if timers_first {
                        use_timers();
                    }
                    // Destroyed in one order or the other: both are tried.
                    LAST.set(Some(BlockOnDrop(tx)));
                    use_timers();
                })
                .join()
                .unwrap();
                assert_eq!(rx.try_recv(), Ok(7));
            }
        },
    );
}

#[test]
fn the_waker_of_a_timer_dropped_elsewhere_may_block_on_when_it_goes() {
    struct BlockOnDrop;
    impl std::task::Wake for BlockOnDrop {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for BlockOnDrop {
        fn drop(&mut self) {
            loopgroup::block_on(sleep(Duration::from_millis(1)));
        }
    }
    within(|| {
        loopgroup::block_on(async {
            let mut wait = sleep(LONG);
            let waker = Waker::from(Arc::new(BlockOnDrop));
            assert!(
                Pin::new(&mut wait)
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            drop(waker);
            thread::spawn(move || drop(wait)).join().unwrap();
            sleep(Duration::from_millis(1)).await; // its turn removes the timer
        });
    });
}

#[test]
fn a_panicking_waker_does_not_take_the_wake_of_another_timer_along() {
    struct Broken;
    impl std::task::Wake for Broken {
        fn wake(self: Arc<Self>) {
            resume_unwind(Box::new("broken waker"));
        }
    }
    within(|| {
        loopgroup::block_on(async {
            let wakes = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&wakes);
            let counting = waker_fn(move || {
                counted.fetch_add(1, Ordering::SeqCst);
            });
            let deadline = Instant::now() + Duration::from_millis(5);
            let mut waits = [sleep_until(deadline), sleep_until(deadline)];
            for (wait, waker) in waits
                .iter_mut()
                .zip([Waker::from(Arc::new(Broken)), counting])
            {
                let polled = Pin::new(wait).poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
            }
            let inner = std::panic::catch_unwind(|| loopgroup::block_on(sleep(LONG)));
            assert!(inner.is_err(), "the caller's own waker");
            sleep(Duration::from_millis(1)).await;
            assert_eq!(wakes.load(Ordering::SeqCst), 1);
        });
    });
}

/// A waker out of a closure.
fn waker_fn(call: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Call<F>(F);
    impl<F: Fn() + Send + Sync> std::task::Wake for Call<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Call(call)))
}

/// A sleep that several threads can reach.
#[derive(Clone)]
struct SharedSleep(Arc<Mutex<Sleep>>);

impl SharedSleep {
    fn new(wait: Sleep) -> SharedSleep {
        SharedSleep(Arc::new(Mutex::new(wait)))
    }

    async fn wait(self, armed: Door) {
        poll_fn(|cx| {
            let polled = Pin::new(&mut *self.0.lock().unwrap()).poll(cx);
            armed.open();
            polled
        })
        .await;
    }

    fn reset_elsewhere(&self, deadline: Instant) {
        let this = self.clone();
        thread::spawn(move || this.0.lock().unwrap().reset(deadline))
            .join()
            .unwrap();
    }
}

#[test]
fn a_sleep_that_is_reset_on_another_thread_still_wakes_its_task() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let armed = Door::new();
        let wait = SharedSleep::new(sleep(LONG * 100));
        let waiting = group.spawn(wait.clone().wait(armed.clone()));
        armed.pass();
        let deadline = Instant::now() + Duration::from_millis(5);
        wait.reset_elsewhere(deadline);
        group.block_on(waiting).unwrap();
        assert!(Instant::now() >= deadline);
    });
}

#[test]
fn a_sleep_in_block_on_that_is_reset_on_another_thread_still_wakes_it() {
    within(|| {
        let armed = Door::new();
        let wait = SharedSleep::new(sleep(LONG * 100));
        let (other, known) = (wait.clone(), armed.clone());
        let resetting = thread::spawn(move || {
            known.pass();
            other.reset_elsewhere(Instant::now() + Duration::from_millis(5));
        });
        loopgroup::block_on(wait.wait(armed));
        resetting.join().unwrap();
    });
}

#[test]
fn what_a_cancelled_closure_has_captured_goes_soon_also_if_its_loop_sleeps() {
    within(|| {
        let group = group_with_io(1, true);
        let ev = group.next();
        drop(ev.schedule(LONG * 100, || ()));
        eventually("the loop has seen it", || ev.live_tasks() == 1);
        let drops = DropCount::new();
        // Not worth a wake-up, so that a loop that sleeps has not seen it when it is cancelled. Nobody
        // can say when it sleeps: some of a hundred times it does.
        for round in 1..=100 {
            let captured = drops.guard();
            let delay = if round % 2 == 0 {
                LONG * 200
            } else {
                Duration::MAX
            };
            let later = ev.schedule(delay, move || drop(captured));
            assert!(later.cancel());
            eventually("it is dropped", || drops.get() == round);
        }
        assert_eq!(drops.thread(), Some(thread_of(ev)));
    });
}

#[test]
fn a_test_that_panics_resolves_the_handles_of_its_loop() {
    within(|| {
        let drops = DropCount::new();
        let (tx, rx) = mpsc::channel();
        let mut guards = vec![drops.guard(), drops.guard()];
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut test = TestLoop::new();
            let mut group = TestGroup::seeded(1, 2);
            for (ev, number) in [(&*test, 0), (group.group().next(), 1)] {
                let guard = guards.pop().unwrap();
                let task = ev.spawn(async move {
                    let _guard = guard;
                    sleep(LONG).await;
                });
                tx.send((number, task)).unwrap();
            }
            test.advance(LONG / 2);
            group.advance(LONG / 2);
            test.block_on(async { resume_unwind(Box::new("a failed assertion")) })
        }));
        assert!(unwound.is_err());
        assert_eq!(drops.get(), 2);
        for (number, task) in rx.try_iter() {
            let error = loopgroup::block_on(task).unwrap_err();
            assert!(error.is_cancelled(), "{number}");
        }
        // The clocks went with the loops: this thread reads the system's again.
        let wait = sleep(Duration::ZERO);
        assert!(wait.deadline().unwrap() <= Instant::now());
    });
}

#[test]
fn what_can_wait_does_not_wait_for_a_loop_that_shuts_down() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let door = Door::new();
        let held = group.spawn_on(1, door.opened());
        let ev = &group.loops()[0];
        thread_of(ev);
        let draining = group.drain(LONG * 100);
        // Its loop has nothing to do but to wait for the other, asleep most of these times.
        for round in 0..50 {
            let delay = if round % 2 == 0 {
                LONG * 200
            } else {
                Duration::MAX
            };
            let later = ev.schedule(delay, || ());
            assert!(loopgroup::block_on(later).unwrap_err().is_cancelled());
            let (tx, rx) = mpsc::channel();
            ev.lazy_execute(move || tx.send(round).unwrap()).unwrap();
            assert_eq!(rx.recv(), Ok(round));
        }
        door.open();
        let report = draining.wait();
        assert!(
            report
                .loops()
                .iter()
                .all(|one| one.cause() == EndCause::Drained)
        );
        assert_eq!((report.accepted(), report.cancelled()), (102, 50));
        loopgroup::block_on(held).unwrap();
    });
}

#[test]
fn a_drain_under_submissions_from_tasks_and_threads_accounts_for_each() {
    /// What came of all submissions.
    #[derive(Default)]
    struct Sums {
        accepted: AtomicUsize,
        refused: AtomicUsize,
        ran: AtomicUsize,
    }

    fn submit(group: &EventLoopGroup, index: usize, depth: usize, sums: &Arc<Sums>) {
        let (again, noted) = (group.clone(), Arc::clone(sums));
        let submitted = group.loops()[index % 3].try_spawn(async move {
            noted.ran.fetch_add(1, Ordering::SeqCst);
            loopgroup::yield_now().await;
            if depth > 0 {
                submit(&again, index + 1, depth - 1, &noted);
                submit(&again, index + 2, depth - 1, &noted);
            }
        });
        let sum = match submitted {
            Ok(_) => &sums.accepted,
            Err(_) => &sums.refused,
        };
        sum.fetch_add(1, Ordering::SeqCst);
    }

    within(|| {
        for round in 0..40 {
            let group = EventLoopGroup::new(3).unwrap();
            group.start().unwrap();
            let sums = Arc::new(Sums::default());
            let report = thread::scope(|scope| {
                for index in 0..2 {
                    let (group, sums) = (&group, &sums);
                    scope.spawn(move || {
                        for _ in 0..60 {
                            submit(group, index, 2, sums);
                        }
                    });
                }
                if round % 2 == 0 {
                    submit(&group, 0, 6, &sums);
                }
                group.drain(LONG)
            })
            .wait();
            let sum = |sum: &AtomicUsize| sum.load(Ordering::SeqCst) as u64;
            assert!(
                report
                    .loops()
                    .iter()
                    .all(|one| one.cause() == EndCause::Drained)
            );
            assert_eq!(report.accepted(), sum(&sums.accepted));
            assert_eq!(report.completed(), sum(&sums.ran));
            assert_eq!((report.cancelled(), report.panicked()), (0, 0));
            assert_eq!(report.accepted(), report.completed());
            assert_eq!(report.rejected(), sum(&sums.refused));
        }
    });
}

#[test]
fn closures_that_are_due_when_the_shutdown_starts_run_however_many_they_are() {
    const CLOSURES: u64 = 4_000; // several turns' worth of timers
    let mut test = TestLoop::new();
    let group = test.group().clone();
    let first = test.schedule(LONG, move || drop(group.drain(LONG)));
    for _ in 1..CLOSURES {
        drop(test.schedule(LONG, || ()));
    }
    drop(test.schedule(LONG + Duration::from_nanos(1), || ()));
    test.advance(LONG);
    assert!(first.is_finished());
    let report = test.report().expect("drained");
    assert_eq!((report.completed(), report.cancelled()), (CLOSURES, 1));
}

#[test]
fn a_thread_local_destructor_may_block_on_a_thread_that_has_used_timers() {
    struct BlockOnDrop;
    impl Drop for BlockOnDrop {
        fn drop(&mut self) {
            let mut polls = 0;
            let second_time = poll_fn(|cx| {
                polls += 1;
                cx.waker().wake_by_ref();
                if polls > 1 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            });
            loopgroup::block_on(second_time);
        }
    }
    thread_local! {
        // Initialised before the timers, so destroyed after them.
        static LAST: BlockOnDrop = const { BlockOnDrop };
    }
    util::alone(
        "a_thread_local_destructor_may_block_on_a_thread_that_has_used_timers",
        || {
            let thread = thread::spawn(|| {
                LAST.with(|_| ());
                loopgroup::block_on(loopgroup::time::sleep(Duration::from_millis(1)));
            });
            thread.join().unwrap();
        },
    );
}

#[test]
fn the_id_of_a_hook_means_nothing_to_another_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let [one, other] = group.loops() else {
            panic!("two loops")
        };
        let id = one.add_shutdown_hook(|| ()).unwrap();
        other.add_shutdown_hook(|| ()).unwrap();
        assert!(!other.remove_shutdown_hook(id));
        assert!(one.remove_shutdown_hook(id));
        assert_eq!(group.shutdown_now().wait().hooks_run(), 1);
    });
}

#[test]
fn a_task_whose_timer_fired_runs_before_a_long_queue() {
    within(|| {
        let before = loopgroup::run(async {
            let ran = Rc::new(Cell::new(0));
            let count = Rc::clone(&ran);
            let timed = loopgroup::spawn_local(async move {
                sleep(Duration::from_millis(5)).await;
                count.get()
            });
            loopgroup::yield_now().await; // it sleeps now
            // A queue longer than any slice, and the timer is due before the first of them runs.
            for _ in 0..50_000 {
                let ran = Rc::clone(&ran);
                drop(loopgroup::spawn_local(
                    async move { ran.set(ran.get() + 1) },
                ));
            }
            thread::sleep(Duration::from_millis(10)); // about time itself
            timed.await.unwrap()
        });
        let before = before.unwrap();
        assert!(before <= 2_048, "{before} tasks went first");
    });
}

#[test]
fn scheduled_closures_do_not_fill_the_bound_of_an_idle_loop() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(1)
            .max_pending_tasks(2)
            .build()
            .unwrap();
        let ev = group.next();
        for scheduled in 1..=20 {
            // Each is seen by the loop soon, although it is due in an hour.
            let later = ev.schedule(Duration::from_secs(3600), || ());
            eventually("the loop has seen it", || ev.live_tasks() == scheduled);
            drop(later);
        }
        assert_eq!(ev.pending_tasks(), 0);
        assert_eq!(group.shutdown_now().wait().rejected(), 0);
    });
}

#[test]
fn a_refused_init_is_handed_back_and_a_key_leads_to_its_loop() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        let home = group.loop_for("key").index();
        let found = group.spawn_keyed("key", async {
            loopgroup::EventLoop::current().map(|ev| ev.index())
        });
        assert_eq!(group.block_on(found).unwrap(), Some(home));
        let local = group.loop_for("key").try_spawn_with(|| {
            let local = Rc::new(7);
            async move { *local }
        });
        assert_eq!(group.block_on(local.unwrap()).unwrap(), 7);
        group.shutdown_now().wait();
        let init = || async { 8 };
        let refused = group.loop_for("key").try_spawn_with(init).unwrap_err();
        assert_eq!(refused.reason(), RejectReason::ShutDown);
        assert_eq!(loopgroup::block_on(refused.into_inner()()), 8);
    });
}

#[test]
fn a_group_of_one_loop_does_not_ask_its_chooser() {
    within(|| {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let group = EventLoopGroup::builder()
            .loops(1)
            .chooser(move |_: &loopgroup::GroupView<'_>| counter.fetch_add(1, Ordering::SeqCst))
            .build()
            .unwrap();
        let inner = group.loops()[0].spawn(async { loopgroup::spawn(async { 7 }).await.unwrap() });
        assert_eq!(group.block_on(inner).unwrap(), 7);
        assert_eq!(group.block_on(group.spawn(async { 8 })).unwrap(), 8);
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_panic_is_counted_before_its_handler_is_called() {
    within(|| {
        let (seen, sees) = std::sync::mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |panic| {
                let ev = loopgroup::EventLoop::current().unwrap();
                seen.send((panic.site(), ev.metrics().panicked(), ev.live_tasks()))
                    .unwrap();
            })
            .build()
            .unwrap();
        let ev = group.loops()[0].clone();
        let dispatching = ev.clone();
        let task = ev.spawn(async move {
            dispatching
                .dispatch(|| panic!("a closure that runs at once"))
                .unwrap();
        });
        group.block_on(task).unwrap();
        let (site, panicked, live) = sees.recv().unwrap();
        assert_eq!((site, panicked, live), (loopgroup::PanicSite::Task, 1, 1));
    });
}
