//! One owner of a loop's life: what its state says, what a submission gets, and when its end comes are one
//! thing.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::net::UdpSocket;
use loopgroup::time::{sleep, sleep_until};
use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, LoopState, LoopThread, RejectReason, TerminationReport,
    block_on, yield_now,
};

use crate::util::{self, Door, DropCount, HOUR, eventually, ms, poll_once, stall, within};

/// A group whose loops run.
fn started(loops: usize) -> EventLoopGroup {
    let group = EventLoopGroup::new(loops).unwrap();
    group.start().unwrap();
    group
}

/// Keeps the thread busy, as a computation does.
fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[track_caller]
fn assert_causes(report: &TerminationReport, causes: &[EndCause]) {
    let found: Vec<_> = report.loops().iter().map(|one| one.cause()).collect();
    assert_eq!(found, causes, "{report}");
}

/// A task that is live on a loop and never ends by itself.
fn lives_on(ev: &EventLoop) {
    drop(ev.spawn(std::future::pending::<()>()));
    eventually("it is live", || ev.live_tasks() == 1);
}

// ---- the end of a group -----------------------------------------------------------------------

#[test]
fn a_drain_goes_on_when_a_sibling_is_ended_now() {
    within(|| {
        let group = started(2);
        lives_on(&group.loops()[1]);
        let end = group.drain(Duration::MAX);
        drop(group.loops()[1].shutdown_now());
        assert_causes(&end.wait(), &[EndCause::Drained, EndCause::Now]);
    });
}

#[test]
fn a_drain_goes_on_when_a_sibling_ends_on_terms_of_its_own() {
    within(|| {
        for quietly in [false, true] {
            let group = started(2);
            let one = &group.loops()[1];
            let door = Door::new();
            drop(one.spawn(door.opened()));
            eventually("it waits", || door.waiting() == 1);
            if quietly {
                drop(one.shutdown_gracefully_with(ms(5), HOUR).unwrap());
            } else {
                drop(one.drain(HOUR));
            }
            let end = group.drain(Duration::MAX);
            door.open();
            let cause = if quietly {
                EndCause::Quiet
            } else {
                EndCause::Drained
            };
            assert_causes(&end.wait(), &[EndCause::Drained, cause]);
        }
    });
}

#[test]
fn a_drain_goes_on_when_a_sibling_ends_by_its_own_timeout() {
    within(|| {
        let group = started(3);
        lives_on(&group.loops()[2]);
        drop(group.loops()[2].drain(ms(10)));
        let end = group.drain(Duration::MAX);
        assert_causes(
            &end.wait(),
            &[EndCause::Drained, EndCause::Drained, EndCause::Timeout],
        );
    });
}

#[test]
fn tasks_that_came_from_outside_may_submit_to_every_sibling_to_the_last() {
    within(|| {
        let mut accepted = 0;
        for _ in 0..300 {
            let group = started(2);
            let refused = Arc::new(AtomicUsize::new(0));
            let submitter = {
                let (ev, sibling) = (group.loops()[1].clone(), group.loops()[0].clone());
                let refused = Arc::clone(&refused);
                // One by one, so that the group is at rest again and again.
                thread::spawn(move || {
                    let parent = || {
                        let (sibling, refused) = (sibling.clone(), Arc::clone(&refused));
                        async move {
                            if sibling.try_spawn(async {}).is_err() {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    };
                    // What comes from outside may be refused, the group being at rest.
                    (0..1000)
                        .take_while(|_| block_on(ev.spawn(parent())).is_ok())
                        .count()
                })
            };
            let report = group.drain(HOUR).wait();
            accepted += submitter.join().unwrap();
            assert_eq!(refused.load(Ordering::Relaxed), 0, "{report}");
        }
        println!("{accepted} tasks of 300 drains found their sibling");
    });
}

#[test]
fn a_drain_keeps_idle_loops_although_the_last_handle_is_gone() {
    within(|| {
        for _ in 0..100 {
            let group = started(2);
            let door = Door::new();
            let (opens, sibling) = (door.opened(), group.loops()[0].clone());
            let parent = group.spawn_on(1, async move {
                opens.await;
                for _ in 0..10 {
                    yield_now().await;
                }
                sibling.try_spawn(async {}).is_ok()
            });
            eventually("it waits", || door.waiting() == 1);
            let end = group.drain(HOUR);
            drop(group);
            door.open();
            assert!(block_on(parent).unwrap(), "the sibling was still there");
            assert_causes(&end.wait(), &[EndCause::Drained, EndCause::Drained]);
        }
    });
}

#[test]
fn a_hook_may_visit_what_lives_on_a_sibling_of_a_draining_group() {
    within(|| {
        for _ in 0..100 {
            let group = started(2);
            let bound = group.loops()[0].bind(|| 7);
            let (tell, told) = mpsc::channel();
            group.loops()[1]
                .add_shutdown_hook(move || tell.send(bound.with(|value| *value)).unwrap())
                .unwrap();
            let report = group.drain(HOUR).wait();
            assert_eq!(block_on(told.recv().unwrap()).unwrap(), 7);
            assert!(report.is_clean(), "{report}");
        }
    });
}

#[test]
fn an_idle_group_that_is_drained_in_no_time_has_drained() {
    within(|| {
        for loops in 1..=3 {
            let report = started(loops).drain(Duration::ZERO).wait();
            assert_causes(&report, &vec![EndCause::Drained; loops]);
            assert!(report.is_clean());
        }
        let report = started(1).loops()[0].drain(Duration::ZERO).wait();
        assert_causes(&report, &[EndCause::Drained]);
    });
}

#[test]
fn the_loops_of_a_group_whose_drain_times_out_close_together() {
    within(|| {
        let group = started(2);
        lives_on(&group.loops()[1]);
        let report = group.drain(ms(10)).wait();
        assert_causes(&report, &[EndCause::Timeout, EndCause::Timeout]);
        assert_eq!(report.cancelled(), 1);
    });
}

// ---- state and answer -------------------------------------------------------------------------

#[test]
fn after_shutdown_now_has_returned_nothing_is_accepted() {
    within(|| {
        for alone in [false, true] {
            let group = started(2);
            let release = stall(&group.loops()[0]);
            let end = if alone {
                group.loops()[0].shutdown_now()
            } else {
                group.shutdown_now()
            };
            let ev = &group.loops()[0];
            assert_eq!(ev.state(), LoopState::Shutdown);
            assert_eq!(
                ev.execute(|| ()).unwrap_err().reason(),
                RejectReason::ShutDown
            );
            assert!(block_on(ev.spawn(async {})).unwrap_err().is_rejected());
            assert!(ev.add_shutdown_hook(|| ()).is_err());
            release.open();
            let report = end.wait();
            assert_eq!((report.accepted(), report.rejected()), (1, 2));
        }
    });
}

#[test]
fn on_the_loop_itself_nothing_is_accepted_either_once_now_is_requested() {
    within(|| {
        let group = started(1);
        let ev = group.loops()[0].clone();
        let inside = ev.clone();
        let task = ev.submit(move || {
            let before = inside.execute(|| ()).is_ok();
            drop(inside.shutdown_now());
            (before, inside.execute(|| ()).is_ok(), inside.state())
        });
        assert_eq!(block_on(task).unwrap(), (true, false, LoopState::Shutdown));
        let report = group.termination().wait();
        // The first one may have had its turn before the loop looked.
        assert_eq!((report.accepted(), report.rejected()), (2, 1));
    });
}

#[test]
fn whoever_is_refused_by_a_loop_finds_it_shut_down() {
    within(|| {
        for round in 0..300 {
            let group = started(1);
            let ev = group.loops()[0].clone();
            let submitter = thread::spawn(move || {
                while ev.execute(|| ()).is_ok() {}
                ev.state()
            });
            drop(match round % 3 {
                0 => group.drain(HOUR),
                1 => group.drain(Duration::ZERO),
                _ => group
                    .shutdown_gracefully_with(Duration::ZERO, HOUR)
                    .unwrap(),
            });
            // What comes without end keeps a drain from its end.
            eventually("it ends", || {
                drop(group.shutdown_now());
                group.is_shutdown()
            });
            assert!(submitter.join().unwrap().is_shutdown());
        }
    });
}

#[test]
fn a_loop_that_closes_between_the_choice_and_the_push_is_passed_by() {
    within(|| {
        let slot: Arc<Mutex<Option<EventLoop>>> = Arc::default();
        let first = Arc::clone(&slot);
        let group = EventLoopGroup::builder()
            .loops(2)
            .thread_factory(move |lt| {
                // The submission has chosen loop 0 and waits for its thread.
                if let Some(ev) = first.lock().unwrap().take() {
                    drop(ev.shutdown_now());
                }
                thread::spawn(|| lt.run());
                Ok(())
            })
            .build()
            .unwrap();
        *slot.lock().unwrap() = Some(group.loops()[0].clone());
        let home = group.try_spawn(async { EventLoop::current().map(|ev| ev.index()) });
        assert_eq!(block_on(home.unwrap()).unwrap(), Some(1));
        let report = group.drain(HOUR).wait();
        assert_eq!((report.accepted(), report.rejected()), (1, 0), "{report}");
    });
}

#[test]
fn no_submission_to_a_group_is_refused_while_one_of_its_loops_accepts() {
    within(|| {
        for _ in 0..200 {
            let group = started(2);
            let submitter = {
                let group = group.clone();
                thread::spawn(move || {
                    (0..200)
                        .filter(|_| group.try_spawn(async {}).is_err())
                        .count()
                })
            };
            drop(group.loops()[0].shutdown_now());
            assert_eq!(submitter.join().unwrap(), 0);
        }
    });
}

#[test]
fn turns_go_over_the_loops_that_accept() {
    within(|| {
        let group = EventLoopGroup::new(4).unwrap();
        group.loops()[2].shutdown_now().wait();
        let mut turns = [0; 4];
        for _ in 0..3000 {
            turns[group.next().index()] += 1;
        }
        assert_eq!(turns, [1000, 1000, 0, 1000]);
    });
}

#[test]
fn the_quiet_period_counts_from_the_end_of_the_hooks() {
    within(|| {
        let group = started(1);
        let quiet = ms(60);
        let (tell, told) = mpsc::channel();
        group.loops()[0]
            .add_shutdown_hook(move || {
                compute(ms(90));
                tell.send(Instant::now()).unwrap();
            })
            .unwrap();
        let report = group.shutdown_gracefully_with(quiet, HOUR).unwrap().wait();
        let since = told.recv().unwrap().elapsed();
        assert_causes(&report, &[EndCause::Quiet]);
        assert!(since >= quiet, "{since:?}");
    });
}

#[test]
fn a_loop_is_told_of_its_shutdown_before_foreign_wakers_are() {
    within(|| {
        let group = started(1);
        eventually("it sleeps", || group.loops()[0].metrics().parks() > 0);
        let ran = Door::new();
        let opens = ran.clone();
        group.loops()[0]
            .add_shutdown_hook(move || opens.open())
            .unwrap();
        let waits = ran.clone();
        // A waker that waits until the loop has noticed.
        let waker = waker_fn::waker_fn(move || waits.pass());
        let requested = group.block_on(async { [loopgroup::shutdown_requested()] });
        let [mut requested] = requested;
        let mut cx = std::task::Context::from_waker(&waker);
        let polled = std::pin::Pin::new(&mut requested).poll(&mut cx);
        assert_eq!(polled, Poll::Pending);
        assert_causes(&group.drain(HOUR).wait(), &[EndCause::Drained]);
    });
}

// ---- bounded turns ----------------------------------------------------------------------------

/// The time of a timer, and of a task that gets in its way.
const TIMER: Duration = Duration::from_millis(50);
const TASK: Duration = Duration::from_millis(2);
/// So many tasks take 25 times as long as the timer, and no more than these fit into its time; one is running
/// then.
const CROWD: usize = 625;
const AT_MOST: usize = 26;

/// Counts what has run, each for some time.
#[derive(Clone, Default)]
struct Ran(Arc<AtomicUsize>);

impl Ran {
    fn one(&self) {
        compute(TASK);
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// A timer on a loop that is armed already; resolves to what had run when it fired.
    fn when_a_timer_fires(&self, ev: &EventLoop) -> loopgroup::JoinHandle<usize> {
        let (armed, ran) = (Door::new(), self.clone());
        let opens = armed.clone();
        let timer = ev.spawn(async move {
            let mut timer = sleep(TIMER);
            std::future::poll_fn(|cx| {
                let polled = std::pin::Pin::new(&mut timer).poll(cx);
                opens.open();
                polled
            })
            .await;
            ran.so_far()
        });
        armed.pass();
        timer
    }
}

#[track_caller]
fn assert_in_time(before: usize) {
    assert!(before <= AT_MOST, "{before} tasks ran before the timer");
}

#[test]
fn a_timer_does_not_wait_for_a_crowd_of_tail_tasks_nor_does_a_timeout() {
    within(|| {
        let group = started(1);
        let ev = group.loops()[0].clone();
        let ran = Ran::default();
        let release = stall(&ev);
        for _ in 0..CROWD {
            let ran = ran.clone();
            ev.execute_after_iteration(move || ran.one()).unwrap();
        }
        // They come in with the next turn, as the timer does.
        let timer = {
            let ran = ran.clone();
            ev.spawn(async move {
                sleep(TIMER).await;
                ran.so_far()
            })
        };
        release.open();
        assert_in_time(block_on(timer).unwrap());
        let before = ran.so_far();
        let report = group.drain(TIMER).wait();
        assert_causes(&report, &[EndCause::Timeout]);
        // One more may run between the two lines above.
        assert!(ran.so_far() - before <= AT_MOST + 1);
    });
}

#[test]
fn a_timer_does_not_wait_for_a_crowd_of_ready_sockets() {
    within(|| {
        let group = started(1);
        let ev = group.loops()[0].clone();
        let (ran, ready) = (Ran::default(), Arc::new(AtomicUsize::new(0)));
        let senders: Vec<_> = (0..100)
            .map(|_| {
                let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
                let (ran, ready) = (ran.clone(), Arc::clone(&ready));
                drop(ev.spawn(async move {
                    let ours = loopgroup::io::Registered::new(ours).unwrap();
                    // A new socket can be written: that is told once, and is no news.
                    ours.writable().await.unwrap();
                    ready.fetch_add(1, Ordering::SeqCst);
                    ours.readable().await.unwrap();
                    ran.one();
                }));
                theirs
            })
            .collect();
        eventually("all wait", || ready.load(Ordering::SeqCst) == senders.len());
        let timer = ran.when_a_timer_fires(&ev);
        let release = stall(&ev);
        for sender in &senders {
            sender.send(b"x").unwrap();
        }
        release.open();
        assert_in_time(block_on(timer).unwrap());
        assert_causes(&group.drain(HOUR).wait(), &[EndCause::Drained]);
    });
}

#[test]
fn a_timer_does_not_wait_for_the_share_that_io_leaves_to_tasks() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(1)
            .io_ratio(1)
            .build()
            .unwrap();
        let ev = group.loops()[0].clone();
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let waits = Door::new();
        let waiting = waits.clone();
        drop(ev.spawn(async move {
            let ours = loopgroup::io::Registered::new(ours).unwrap();
            ours.writable().await.unwrap();
            waiting.open();
            ours.readable().await.unwrap();
            compute(ms(10)); // leaves 990 ms to others
        }));
        waits.pass();
        let ran = Ran::default();
        let timer = ran.when_a_timer_fires(&ev);
        let release = stall(&ev);
        theirs.send(b"x").unwrap();
        for _ in 0..CROWD {
            let ran = ran.clone();
            ev.execute(move || ran.one()).unwrap();
        }
        release.open();
        assert_in_time(block_on(timer).unwrap());
        assert_causes(&group.shutdown_now().wait(), &[EndCause::Now]);
    });
}

#[test]
fn a_long_task_late_in_a_slice_is_not_followed_by_sixty_three_others() {
    within(|| {
        let group = started(1);
        let ev = group.loops()[0].clone();
        let ran = Ran::default();
        let timer = ran.when_a_timer_fires(&ev);
        let release = stall(&ev);
        for _ in 0..64 {
            ev.execute(|| ()).unwrap();
        }
        for _ in 0..CROWD {
            let ran = ran.clone();
            ev.execute(move || ran.one()).unwrap();
        }
        release.open();
        assert_in_time(block_on(timer).unwrap());
        assert_causes(&group.shutdown_now().wait(), &[EndCause::Now]);
    });
}

#[test]
fn a_timer_that_is_armed_in_a_slice_counts_in_that_slice() {
    within(|| {
        let group = started(1);
        let ev = group.loops()[0].clone();
        let ran = Ran::default();
        let release = stall(&ev);
        let counted = ran.clone();
        let timer = ev.spawn(async move {
            sleep(TIMER).await;
            counted.so_far()
        });
        for _ in 0..CROWD {
            let ran = ran.clone();
            ev.execute(move || ran.one()).unwrap();
        }
        release.open();
        assert_in_time(block_on(timer).unwrap());
        assert_causes(&group.shutdown_now().wait(), &[EndCause::Now]);
    });
}

#[test]
fn a_periodic_closure_that_is_always_late_lets_others_have_their_turn() {
    within(|| {
        let group = started(1);
        let ev = &group.loops()[0];
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let beat = ev
            .schedule_at_fixed_rate(Duration::ZERO, ms(1), move || {
                compute(ms(4));
                count.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        const ROUNDS: usize = 20;
        for _ in 0..ROUNDS {
            block_on(ev.submit(|| ())).unwrap();
            block_on(ev.spawn(sleep(ms(1)))).unwrap();
        }
        let runs = runs.load(Ordering::SeqCst);
        assert!(
            runs < ROUNDS * 64,
            "{runs} runs for {ROUNDS} rounds of others"
        );
        assert!(beat.cancel());
        assert_causes(&group.drain(HOUR).wait(), &[EndCause::Drained]);
    });
}

#[test]
fn a_task_whose_timer_has_fired_runs_although_no_timer_is_left() {
    within(|| {
        let group = started(1);
        let due = Instant::now() + ms(30);
        // What a `timeout` around a slow task does: its own timer goes, unfired, after the others were due.
        let slow = group.spawn(async move {
            let mut other = Box::pin(sleep_until(due + ms(10)));
            assert!(futures::poll!(&mut other).is_pending());
            sleep_until(due).await;
            compute(ms(30));
            drop(other);
        });
        let other = group.spawn(sleep_until(due));
        block_on(slow).unwrap();
        block_on(other).unwrap();
    });
}

#[test]
fn a_timeout_waits_for_one_long_task_and_not_for_a_batch() {
    within(|| {
        for tail in [false, true] {
            let group = started(1);
            let ev = group.loops()[0].clone();
            let ran = Arc::new(AtomicUsize::new(0));
            let release = stall(&ev);
            for _ in 0..100 {
                let ran = Arc::clone(&ran);
                let long = move || {
                    compute(ms(50));
                    ran.fetch_add(1, Ordering::SeqCst);
                };
                match tail {
                    true => ev.execute_after_iteration(long).unwrap(),
                    false => ev.execute(long).unwrap(),
                }
            }
            let end = group.drain(ms(500));
            release.open();
            assert_causes(&end.wait(), &[EndCause::Timeout]);
            // So many fit in, and one is running then.
            let ran = ran.load(Ordering::SeqCst);
            assert!(ran <= 11, "{ran} tasks of 50 ms in 500 ms");
        }
    });
}

#[test]
fn tasks_have_their_turn_beside_a_closure_that_is_always_late() {
    within(|| {
        let group = started(1);
        let ev = group.loops()[0].clone();
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let beat = ev
            .schedule_at_fixed_rate(Duration::ZERO, Duration::from_micros(50), move || {
                compute(Duration::from_micros(100));
                count.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        eventually("it is late", || runs.load(Ordering::SeqCst) > 100);
        let release = stall(&ev);
        for _ in 0..20_000 {
            ev.execute(|| ()).unwrap();
        }
        let last = ev.submit(|| ());
        let before = runs.load(Ordering::SeqCst);
        release.open();
        block_on(last).unwrap();
        let between = runs.load(Ordering::SeqCst) - before;
        assert!(between < 2_000, "{between} runs for 20,000 tasks");
        drop(beat);
    });
}

#[test]
fn a_scheduled_closure_is_not_late_by_a_queue() {
    within(|| {
        let group = started(1);
        let ev = group.loops()[0].clone();
        let ran = Ran::default();
        let release = stall(&ev);
        for _ in 0..CROWD {
            let ran = ran.clone();
            ev.execute(move || ran.one()).unwrap();
        }
        let counted = ran.clone();
        let scheduled = ev.schedule(TIMER, move || counted.so_far());
        release.open();
        assert_in_time(block_on(scheduled).unwrap());
        assert_causes(&group.shutdown_now().wait(), &[EndCause::Now]);
    });
}

#[test]
fn a_crowd_of_hooks_lets_tasks_and_the_timeout_in() {
    within(|| {
        let group = started(1);
        let ev = group.loops()[0].clone();
        let ran = Ran::default();
        for _ in 0..CROWD {
            let ran = ran.clone();
            ev.add_shutdown_hook(move || ran.one()).unwrap();
        }
        let counted = ran.clone();
        let task = ev.spawn(async move {
            loopgroup::shutdown_requested().await;
            // The loop is notified before this task: hooks may have run by now.
            let before = counted.so_far();
            sleep(TIMER).await;
            counted.so_far() - before
        });
        drop(group.drain(HOUR));
        assert_in_time(block_on(task).unwrap());
        assert_eq!(
            group.shutdown_now().wait().hooks_run(),
            CROWD as u64,
            "all of them run"
        );
    });
}

// ---- scheduled closures -----------------------------------------------------------------------

#[test]
fn a_periodic_closure_that_is_cancelled_once_does_not_run_for_ever() {
    within(|| {
        let group = started(1);
        let ev = &group.loops()[0];
        for _ in 0..2000 {
            let beat = ev
                .schedule_at_fixed_rate(Duration::ZERO, Duration::from_micros(1), || ())
                .unwrap();
            for _ in 0..20 {
                std::hint::spin_loop();
            }
            assert!(beat.cancel(), "it was neither cancelled nor over");
            assert!(block_on(beat).unwrap_err().is_cancelled());
        }
        assert_causes(&group.drain(HOUR).wait(), &[EndCause::Drained]);
    });
}

#[test]
fn a_closure_that_is_cancelled_while_it_runs_is_finished_when_the_run_ends() {
    within(|| {
        let group = started(1);
        let (inside, release) = (Door::new(), Door::new());
        let (enters, until) = (inside.clone(), release.clone());
        let captured = DropCount::new();
        let guard = captured.guard();
        let mut beat = group.loops()[0]
            .schedule_at_fixed_rate(Duration::ZERO, ms(1), move || {
                let _captured = &guard;
                enters.open();
                until.pass();
            })
            .unwrap();
        inside.pass();
        assert!(beat.cancel());
        assert!(!beat.cancel(), "once");
        assert!(!beat.is_finished(), "it runs");
        assert!(poll_once(&mut beat).is_pending());
        release.open();
        assert!(block_on(&mut beat).unwrap_err().is_cancelled());
        assert!(beat.is_finished());
        eventually("what it captured is dropped", || captured.get() == 1);
    });
}

// ---- starts -----------------------------------------------------------------------------------

type Kept = Arc<Mutex<Option<LoopThread>>>;

/// A group whose factory keeps the thread of its loop and says that all is well.
fn kept() -> (EventLoopGroup, Kept) {
    let kept = Kept::default();
    let keep = Arc::clone(&kept);
    let group = EventLoopGroup::builder()
        .loops(1)
        .thread_factory(move |lt| {
            *keep.lock().unwrap() = Some(lt);
            Ok(())
        })
        .build()
        .unwrap();
    (group, kept)
}

#[test]
fn a_shutdown_does_not_wait_for_ever_for_a_thread_that_was_promised() {
    within(|| {
        for now in [false, true] {
            let (group, kept) = kept();
            group.loops()[0].add_shutdown_hook(|| ()).unwrap();
            let end = if now {
                group.shutdown_now()
            } else {
                group.drain(ms(20))
            };
            let report = end.wait();
            assert_causes(&report, &[EndCause::Failed]);
            assert!(report.loops()[0].error().is_some() && !report.is_clean());
            // A thread that comes now has nothing to run.
            let late = kept.lock().unwrap().take().unwrap();
            late.run();
            assert!(group.is_terminated());
        }
    });
}

#[test]
fn a_loop_that_submits_to_a_sibling_which_is_starting_goes_on_at_once() {
    within(|| {
        let (entered, go) = (Door::new(), Door::new());
        let (inside, until) = (entered.clone(), go.clone());
        let group = EventLoopGroup::builder()
            .loops(2)
            .thread_factory(move |lt| {
                let (inside, until) = (inside.clone(), until.clone());
                thread::spawn(move || {
                    if lt.index() == 1 {
                        inside.open();
                        until.pass();
                    }
                    lt.run();
                });
                Ok(())
            })
            .build()
            .unwrap();
        let sibling = group.loops()[1].clone();
        // Twice: it asks for the start, and it finds it under way.
        let children = group.spawn_on(
            0,
            async move { [(); 2].map(|()| sibling.spawn(async { 7 })) },
        );
        let children = block_on(children).unwrap();
        entered.pass();
        assert!(children.iter().all(|child| !child.is_finished()));
        go.open();
        for child in children {
            assert_eq!(block_on(child).unwrap(), 7);
        }
        assert!(group.drain(HOUR).wait().is_clean());
    });
}

#[test]
fn what_a_loop_has_submitted_to_one_that_fails_to_start_is_cancelled() {
    within(|| {
        let kept = Kept::default();
        let keep = Arc::clone(&kept);
        let group = EventLoopGroup::builder()
            .loops(2)
            .thread_factory(move |lt| {
                if lt.index() == 1 {
                    *keep.lock().unwrap() = Some(lt);
                } else {
                    thread::spawn(|| lt.run());
                }
                Ok(())
            })
            .build()
            .unwrap();
        let sibling = group.loops()[1].clone();
        let child = group.loops()[0].submit(move || sibling.spawn(async {}));
        let child = block_on(child).unwrap();
        assert!(!child.is_finished());
        drop(kept.lock().unwrap().take());
        assert!(block_on(child).unwrap_err().is_cancelled());
        assert_eq!(group.loops()[1].pending_tasks(), 0);
        let report = group.drain(HOUR).wait();
        let one = &report.loops()[1];
        assert_eq!(
            (one.accepted(), one.cancelled(), one.started()),
            (1, 1, false)
        );
        assert!(one.error().is_some());
    });
}

#[test]
fn a_loop_that_could_never_start_is_told_apart() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(2)
            .thread_factory(|lt| {
                if lt.index() == 1 {
                    return Err(io::Error::from(io::ErrorKind::OutOfMemory));
                }
                thread::spawn(|| lt.run());
                Ok(())
            })
            .build()
            .unwrap();
        assert!(group.start().is_err());
        let report = group.drain(HOUR).wait();
        assert!(report.loops()[0].is_clean());
        let error = report.loops()[1].error().expect("it could not start");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert!(!report.loops()[1].is_clean() && !report.is_clean());
    });
}

#[test]
fn a_start_that_failed_is_forgotten_when_another_succeeds() {
    within(|| {
        let tries = AtomicUsize::new(0);
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(move |lt| {
                if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                    return Err(io::Error::from(io::ErrorKind::OutOfMemory));
                }
                thread::spawn(|| lt.run());
                Ok(())
            })
            .build()
            .unwrap();
        assert!(group.start().is_err());
        group.start().unwrap();
        let report = group.drain(HOUR).wait();
        assert!(report.is_clean() && report.loops()[0].error().is_none());
    });
}

#[test]
fn a_factory_may_use_the_socket_that_asked_for_its_loop() {
    within(|| {
        let other = started(1);
        let shared: Arc<Mutex<Option<Arc<UdpSocket>>>> = Arc::default();
        let (socket, elsewhere) = (Arc::clone(&shared), other.clone());
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(move |lt| {
                let socket = socket.lock().unwrap().clone();
                let elsewhere = elsewhere.clone();
                // Registers the same socket on a thread of its own, and waits for that.
                let registered = thread::spawn(move || {
                    if let Some(socket) = socket {
                        elsewhere.block_on(async {
                            let mut readable = Box::pin(socket.readable());
                            assert!(poll_once(&mut readable).is_pending());
                        });
                    }
                });
                registered.join().unwrap();
                thread::spawn(|| lt.run());
                Ok(())
            })
            .build()
            .unwrap();
        let socket = other.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        let socket = Arc::new(socket);
        *shared.lock().unwrap() = Some(Arc::clone(&socket));
        group.block_on(async {
            let mut readable = Box::pin(socket.readable());
            assert!(poll_once(&mut readable).is_pending());
        });
        assert_eq!(other.loops()[0].registered_channels(), 1);
    });
}

#[test]
fn a_start_that_fails_does_not_spoil_the_next_one() {
    within(|| {
        let (dropped, tried, fail) = (Door::new(), Door::new(), Door::new());
        let (first, second, until) = (dropped.clone(), tried.clone(), fail.clone());
        let calls = AtomicUsize::new(0);
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(move |lt| {
                if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                    // Free again, before the factory says that it has failed.
                    drop(lt);
                    first.open();
                    until.pass();
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                second.open();
                let until = until.clone();
                thread::spawn(move || {
                    until.pass();
                    lt.run();
                });
                Ok(())
            })
            .build()
            .unwrap();
        let other = group.clone();
        let one = thread::spawn(move || other.try_spawn(async {}).map_err(|r| r.reason()).err());
        dropped.pass();
        let other = group.clone();
        let two = thread::spawn(move || other.try_spawn(async { 7 }).map(block_on));
        tried.pass();
        fail.open();
        let reason = RejectReason::ThreadStart(io::ErrorKind::OutOfMemory);
        assert_eq!(one.join().unwrap(), Some(reason));
        assert_eq!(two.join().unwrap().unwrap().unwrap(), 7);
        assert!(group.drain(HOUR).wait().loops()[0].error().is_none());
    });
}

#[test]
fn a_loop_that_starts_accepts_nothing_after_shutdown_now() {
    within(|| {
        let kept = Kept::default();
        let keep = Arc::clone(&kept);
        let group = EventLoopGroup::builder()
            .loops(2)
            .thread_factory(move |lt| {
                if lt.index() == 1 {
                    *keep.lock().unwrap() = Some(lt);
                } else {
                    thread::spawn(|| lt.run());
                }
                Ok(())
            })
            .build()
            .unwrap();
        let sibling = group.loops()[1].clone();
        let answers = group.loops()[0].submit(move || {
            let before = sibling.execute(|| ()).is_ok();
            drop(sibling.shutdown_now());
            let after = sibling.execute(|| ()).map_err(|r| r.reason()).err();
            (before, after, sibling.state())
        });
        let expected = (true, Some(RejectReason::ShutDown), LoopState::Shutdown);
        assert_eq!(block_on(answers).unwrap(), expected);
        drop(kept.lock().unwrap().take());
        let report = group.shutdown_now().wait();
        assert_eq!((report.loops()[1].cancelled(), report.rejected()), (1, 1));
    });
}

#[test]
fn a_hook_of_a_loop_that_is_ended_now_finds_its_draining_sibling() {
    within(|| {
        for _ in 0..300 {
            let group = EventLoopGroup::builder()
                .loops(2)
                .without_io()
                .wait_strategy(loopgroup::WaitStrategy::Busy)
                .build()
                .unwrap();
            group.start().unwrap();
            let (here, one) = (group.loops()[0].clone(), group.loops()[1].clone());
            drop(one.shutdown_gracefully_with(HOUR, HOUR).unwrap());
            let refused = Arc::new(AtomicUsize::new(0));
            let (count, there) = (Arc::clone(&refused), here.clone());
            drop(here.spawn(async move {
                for _ in 0..20 {
                    yield_now().await;
                }
                let _ = one.add_shutdown_hook(move || {
                    compute(Duration::from_micros(200));
                    count.fetch_add(usize::from(there.execute(|| ()).is_err()), Ordering::SeqCst);
                });
                drop(one.shutdown_now());
            }));
            let report = group.drain(HOUR).wait();
            assert_eq!(refused.load(Ordering::SeqCst), 0, "{report}");
        }
    });
}

#[test]
fn a_timeout_holds_against_a_factory_that_does_not_return() {
    within(|| {
        let go = Door::new();
        let until = go.clone();
        let group = EventLoopGroup::builder()
            .loops(2)
            .thread_factory(move |lt| {
                until.pass();
                thread::spawn(|| lt.run());
                Ok(())
            })
            .build()
            .unwrap();
        group.loops()[0].add_shutdown_hook(|| ()).unwrap();
        let end = group.termination();
        let asks = thread::spawn(move || drop(group.drain(ms(50))));
        let report = end.wait();
        assert_causes(&report, &[EndCause::Failed, EndCause::Drained]);
        go.open();
        asks.join().unwrap();
    });
}

#[test]
fn asking_again_for_what_was_asked_for_starts_no_threads() {
    util::alone(
        "asking_again_for_what_was_asked_for_starts_no_threads",
        || {
            let (group, kept) = kept();
            group.loops()[0].add_shutdown_hook(|| ()).unwrap();
            drop(group.drain(HOUR));
            eventually("it is promised", || kept.lock().unwrap().is_some());
            let before = util::entries("/proc/self/task");
            for _ in 0..100 {
                drop(group.drain(HOUR));
            }
            assert_eq!(util::entries("/proc/self/task"), before);
            drop(kept.lock().unwrap().take());
            group.termination().wait();
        },
    );
}

// ---- the books --------------------------------------------------------------------------------

#[test]
fn a_served_connection_is_one_task_with_a_bound_and_without() {
    within(|| {
        for bound in [None, Some(100)] {
            let builder = EventLoopGroup::builder().loops(1);
            let builder = match bound {
                None => builder,
                Some(bound) => builder.max_pending_tasks(bound),
            };
            let workers = builder.build().unwrap();
            let boss = started(1);
            let server = loopgroup::net::Server::new("127.0.0.1:0").unwrap();
            let served = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&served);
            let server = server
                .boss(&boss)
                .workers(&workers)
                .serve(move |stream, _| {
                    let count = Arc::clone(&count);
                    async move {
                        drop(stream);
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                })
                .unwrap();
            for _ in 0..5 {
                drop(std::net::TcpStream::connect(server.local_addr()).unwrap());
            }
            eventually("all are served", || served.load(Ordering::SeqCst) == 5);
            server.stop();
            block_on(server);
            let report = workers.drain(HOUR).wait();
            assert_eq!((report.accepted(), report.completed()), (5, 5), "{bound:?}");
        }
    });
}
