//! Closures that run later: once or never, in their rhythm, and cancelled for good.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use loopgroup::testing::TestLoop;
use loopgroup::{EventLoopGroup, RejectReason, Scheduled, block_on};

use crate::util::{self, DropCount, ms, within};

/// When each run of a closure happened, in virtual milliseconds since `start`.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<u128>>>);

impl Runs {
    fn note(&self, start: Instant, now: Instant) {
        self.0.lock().unwrap().push((now - start).as_millis());
    }

    fn take(&self) -> Vec<u128> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn handles_can_be_sent_and_shared() {
    fn check<T: Send + Sync + Unpin>() {}
    check::<Scheduled<u32>>();
}

#[test]
fn a_closure_runs_once_after_its_delay_and_not_before() {
    let mut test = TestLoop::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let later = test.schedule(ms(500), move || counted.fetch_add(1, Ordering::SeqCst));
    test.advance(ms(499));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert!(!later.is_finished());
    test.advance(ms(1));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(!later.cancel(), "too late");
    assert_eq!(test.block_on(later).unwrap(), 0);
    test.advance(ms(5_000));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_zero_delay_runs_exactly_once_on_the_next_turn() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        assert_eq!(
            block_on(group.next().schedule(Duration::ZERO, || 7)).unwrap(),
            7
        );
    });
}

#[test]
fn closures_with_one_deadline_run_in_the_order_of_scheduling() {
    let mut test = TestLoop::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..101 {
        let order = Arc::clone(&order);
        drop(test.schedule(ms(10), move || order.lock().unwrap().push(number)));
    }
    test.advance(ms(10));
    assert_eq!(*order.lock().unwrap(), (0..101).collect::<Vec<_>>());
}

#[test]
fn a_cancelled_closure_never_runs_and_is_dropped_at_once_on_its_loop() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let home = util::thread_of(ev);
        let drops = DropCount::new();
        let captured = drops.guard();
        let later = ev.schedule(Duration::from_secs(3600), move || {
            drop(captured);
            unreachable!("it was cancelled");
        });
        block_on(ev.spawn(async {})).unwrap(); // armed by now
        assert!(later.cancel());
        assert!(!later.cancel(), "once");
        util::eventually("the closure is dropped", || drops.get() == 1);
        assert_eq!(drops.thread(), Some(home));
        assert!(block_on(later).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_closure_cancelled_before_the_loop_has_seen_it_never_runs() {
    let mut test = TestLoop::new();
    let drops = DropCount::new();
    let captured = drops.guard();
    let later = test.schedule(Duration::ZERO, move || drop(captured));
    assert!(later.cancel());
    test.advance(ms(10));
    assert_eq!(drops.get(), 1, "dropped, not run twice");
    assert!(test.block_on(later).unwrap_err().is_cancelled());
    let report = {
        drop(test.shutdown_now());
        test.run_until_stalled();
        test.report().unwrap()
    };
    assert_eq!((report.completed(), report.cancelled()), (0, 1));
}

#[test]
fn dropping_the_handle_detaches_the_closure() {
    let mut test = TestLoop::new();
    let (tx, rx) = mpsc::channel();
    drop(test.schedule(ms(1), move || tx.send(()).unwrap()));
    test.advance(ms(1));
    assert_eq!(rx.try_recv(), Ok(()));
}

#[test]
fn a_fixed_rate_keeps_its_grid_whatever_the_runs_take() {
    let mut test = TestLoop::new();
    let (start, runs) = (test.now(), Runs::default());
    let noted = runs.clone();
    let beat = test
        .schedule_at_fixed_rate(ms(100), ms(100), move || noted.note(start, loop_now()))
        .unwrap();
    test.advance(ms(550));
    assert_eq!(runs.take(), [100, 200, 300, 400, 500]);
    assert!(beat.cancel());
    test.advance(ms(1_000));
    assert!(runs.take().is_empty(), "no runs after the cancel");
    assert_eq!(test.pending(), 0);
}

#[test]
fn a_fixed_rate_that_fell_behind_makes_up_for_it() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (tx, rx) = mpsc::channel();
        let release = util::stall(group.next());
        let start = Instant::now();
        let beat = group
            .next()
            .schedule_at_fixed_rate(ms(1), ms(1), move || {
                let _ = tx.send(Instant::now());
            })
            .unwrap();
        // About time itself: the loop is held for many periods.
        std::thread::sleep(ms(40));
        release.open();
        // Forty were due when the first one ran. Who does not make up for them stays behind for ever;
        // who does has, at some run, as many runs behind it as milliseconds have passed.
        let mut runs = 0_u32;
        loop {
            let run = rx.recv().unwrap();
            runs += 1;
            assert!(run >= start + ms(1) * runs, "run {runs} is early");
            if runs == 1 {
                assert!(run >= start + ms(40), "it was held");
            }
            if run < start + ms(1) * (runs + 3) {
                break;
            }
        }
        assert!(runs > 30, "caught up after {runs} runs");
        assert!(beat.cancel());
    });
}

#[test]
fn a_fixed_delay_counts_from_the_end_of_the_run() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (tx, rx) = mpsc::channel();
        let beat = group
            .next()
            .schedule_with_fixed_delay(Duration::ZERO, ms(5), move || {
                let begun = Instant::now();
                std::thread::sleep(ms(3)); // a run that takes its time
                tx.send((begun, Instant::now())).unwrap();
            })
            .unwrap();
        let runs: Vec<_> = (0..4).map(|_| rx.recv().unwrap()).collect();
        for pair in runs.windows(2) {
            let (end, begun) = (pair[0].1, pair[1].0);
            assert!(begun >= end + ms(5), "{:?}", begun - end);
        }
        assert!(beat.cancel());
    });
}

#[test]
fn zero_periods_are_refused_by_name() {
    let test = TestLoop::new();
    let rate = test.schedule_at_fixed_rate(ms(1), Duration::ZERO, || ());
    let delay = test.schedule_with_fixed_delay(ms(1), Duration::ZERO, || ());
    for (result, name) in [(rate, "period"), (delay, "delay")] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_panicking_periodic_closure_stops_and_says_so() {
    let mut test = TestLoop::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let beat = test
        .schedule_at_fixed_rate(ms(1), ms(1), move || {
            assert!(
                counted.fetch_add(1, Ordering::SeqCst) < 2,
                "third time unlucky"
            );
        })
        .unwrap();
    test.advance(ms(100));
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert!(!beat.cancel(), "it has ended by itself");
    assert!(test.block_on(beat).unwrap_err().is_panic());
}

#[test]
fn a_periodic_closure_can_cancel_itself() {
    let mut test = TestLoop::new();
    let slot: Arc<Mutex<Option<Scheduled<()>>>> = Arc::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let (own, counted) = (Arc::clone(&slot), Arc::clone(&runs));
    let beat = test
        .schedule_with_fixed_delay(ms(1), ms(1), move || {
            if counted.fetch_add(1, Ordering::SeqCst) == 2 {
                let own = own.lock().unwrap().take().expect("it is there by now");
                assert!(own.cancel());
            }
        })
        .unwrap();
    *slot.lock().unwrap() = Some(beat);
    test.advance(ms(100));
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!(test.pending(), 0);
}

#[test]
fn the_longest_delay_means_never_and_does_not_spin() {
    let mut test = TestLoop::new();
    let never = test.schedule(Duration::MAX, || ());
    let rarely = test
        .schedule_at_fixed_rate(Duration::ZERO, Duration::MAX, || ())
        .unwrap();
    test.advance(Duration::from_secs(3600));
    assert_eq!(test.run_until_stalled(), 0, "nothing to do");
    assert!(never.cancel() && rarely.cancel());
}

#[test]
fn a_shutdown_cancels_what_is_not_due_and_resolves_its_handles() {
    let mut test = TestLoop::new();
    let drops = DropCount::new();
    let captured = drops.guard();
    let day = Duration::from_secs(24 * 3600);
    let later = test.schedule(day, move || drop(captured));
    let beat = test.schedule_at_fixed_rate(day, day, || ()).unwrap();
    test.run_until_stalled();
    // Long quiet period: the closures do not wait for its end.
    drop(test.shutdown_gracefully_with(ms(500), ms(1_000)).unwrap());
    test.run_until_stalled();
    assert!(later.is_finished() && beat.is_finished());
    assert_eq!(drops.get(), 1);
    // Neither does one that comes while the loop shuts down.
    let late = test.schedule(ms(1), || ());
    test.run_until_stalled();
    assert!(late.is_finished());
    for error in [
        test.block_on(later).unwrap_err(),
        test.block_on(beat).unwrap_err(),
        test.block_on(late).unwrap_err(),
    ] {
        assert!(error.is_cancelled());
    }
    test.advance(ms(500));
    let report = test.report().unwrap();
    assert_eq!((report.accepted(), report.cancelled()), (3, 3));
}

#[test]
fn scheduled_closures_do_not_hold_a_drain() {
    let mut test = TestLoop::new();
    drop(test.schedule(Duration::from_secs(3600), || ()));
    test.run_until_stalled();
    drop(test.drain(Duration::from_secs(7200)));
    test.run_until_stalled();
    assert_eq!(test.elapsed(), Duration::ZERO);
    assert_eq!(
        test.report().unwrap().loops()[0].cause(),
        loopgroup::EndCause::Drained
    );
}

#[test]
fn scheduling_after_the_end_is_refused() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.shutdown_now().wait();
        let refused = block_on(group.next().schedule(ms(1), || ())).unwrap_err();
        assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));
    });
}

#[test]
fn spawning_from_a_closure_that_a_shutdown_drops_is_refused_not_lost() {
    struct SpawnOnDrop(EventLoopGroup, mpsc::Sender<bool>);
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            let handle = self.0.spawn(async {});
            let refused = block_on_elsewhere(handle);
            self.1.send(refused).unwrap();
        }
    }
    fn block_on_elsewhere(handle: loopgroup::JoinHandle<()>) -> bool {
        // On a loop one may not block: the handle is looked at by another thread.
        std::thread::spawn(move || block_on(handle).is_err_and(|error| error.is_rejected()))
            .join()
            .unwrap()
    }
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (tx, rx) = mpsc::channel();
        let captured = SpawnOnDrop(group.clone(), tx);
        let later = group
            .next()
            .schedule(Duration::from_secs(3600), move || drop(captured));
        drop(later);
        group.next().submit(|| ()).abort();
        let end = group.shutdown_now();
        assert!(rx.recv().unwrap(), "refused at the end of the loop");
        end.wait();
    });
}

#[test]
fn thousands_of_fast_periodic_closures_survive_random_cancels_from_outside() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let beats: Vec<_> = (0..2_000)
            .map(|_| {
                group
                    .next()
                    .schedule_at_fixed_rate(ms(1), ms(1), || ())
                    .unwrap()
            })
            .collect();
        let mut state = 12345_u32;
        let (gone, kept): (Vec<_>, Vec<_>) = beats.into_iter().partition(|beat| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            (state >> 16) % 2 == 0 && beat.cancel()
        });
        assert!(!gone.is_empty() && !kept.is_empty());
        let report = group.shutdown_now().wait();
        for beat in gone.into_iter().chain(kept) {
            assert!(block_on(beat).unwrap_err().is_cancelled());
        }
        assert_eq!((report.accepted(), report.cancelled()), (2_000, 2_000));
    });
}

#[test]
fn a_remote_schedule_wakes_the_loop_only_if_it_is_the_earliest() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let status = block_on(ev.submit(|| {
            let task = std::fs::read_link("/proc/thread-self").unwrap();
            std::path::Path::new("/proc").join(task).join("status")
        }))
        .unwrap();
        // Each time the thread goes to sleep the kernel counts a voluntary switch.
        let look = move || {
            let text = std::fs::read_to_string(&status).unwrap();
            let line = text.lines().find(|line| line.starts_with("voluntary"));
            let count = line.and_then(|line| line.split_whitespace().nth(1));
            let sleeps = text.contains("State:\tS");
            (sleeps, count.unwrap().parse::<u64>().unwrap())
        };
        let parks = || look().1;
        let hour = Duration::from_secs(3600);
        drop(ev.schedule(hour, || ())); // the earliest so far
        util::eventually("the loop is parked again", || {
            ev.live_tasks() == 1 && {
                let before = look();
                std::thread::sleep(ms(20)); // about time itself: nothing moves meanwhile
                before.0 && look() == before
            }
        });
        let before = parks();
        for _ in 0..100 {
            drop(ev.schedule(2 * hour, || ()));
        }
        std::thread::sleep(ms(20)); // about time itself: it stays asleep
        assert_eq!(parks(), before, "later ones do not wake it");
        assert_eq!(ev.pending_tasks(), 100);
        drop(ev.schedule(hour / 2, || ()));
        // Counted when it goes to sleep again.
        util::eventually("an earlier one does", || {
            ev.live_tasks() == 102 && parks() > before
        });
    });
}

/// Reads the clock of the current loop: a sleep of zero knows what time the loop thinks it is.
fn loop_now() -> Instant {
    loopgroup::time::sleep(Duration::ZERO)
        .deadline()
        .expect("zero is not beyond the end of the clock")
}

/// What became of one closure: how often it ran and how many cancels said that they made the difference.
#[derive(Default)]
struct Fate {
    runs: AtomicUsize,
    cancels: AtomicUsize,
}

/// The ways of ending a group that the races below take in turn.
fn end(group: &EventLoopGroup, round: usize) -> loopgroup::TerminationFuture {
    match round % 3 {
        0 => group.shutdown_now(),
        1 => group.drain(Duration::from_secs(30)),
        _ => group
            .shutdown_gracefully_with(Duration::ZERO, Duration::from_secs(30))
            .unwrap(),
    }
}

/// Has three threads cancel everything, each from another end, while another ends the group.
fn cancel_and_end(
    group: &EventLoopGroup,
    round: usize,
    closures: &[(Scheduled<()>, Arc<Fate>)],
) -> loopgroup::TerminationReport {
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for canceller in 0..3 {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let len = closures.len();
                for step in 0..len {
                    let (closure, fate) = match canceller {
                        0 => &closures[step],
                        1 => &closures[len - 1 - step],
                        _ => &closures[(step + len / 2) % len],
                    };
                    if closure.cancel() {
                        fate.cancels.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        start.wait();
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        end(group, round)
    })
    .wait()
}

#[test]
fn a_closure_runs_or_is_cancelled_by_one_or_by_the_shutdown_never_two_of_these() {
    const CLOSURES: usize = 60;
    within(|| {
        for round in 0..90 {
            let group = EventLoopGroup::new(2).unwrap();
            let drops = DropCount::new();
            let closures: Vec<_> = (0..CLOSURES)
                .map(|number| {
                    let fate = Arc::new(Fate::default());
                    let (noted, captured) = (Arc::clone(&fate), drops.guard());
                    let delay = Duration::from_micros((number * 7 % 20) as u64 * 10);
                    let closure = group.next().schedule(delay, move || {
                        noted.runs.fetch_add(1, Ordering::SeqCst);
                        drop(captured);
                    });
                    (closure, fate)
                })
                .collect();
            let report = cancel_and_end(&group, round, &closures);
            let (mut ran, mut cancelled) = (0, 0);
            for (closure, fate) in closures {
                let runs = fate.runs.load(Ordering::SeqCst);
                let cancels = fate.cancels.load(Ordering::SeqCst);
                assert!(runs + cancels <= 1, "ran {runs}, cancelled {cancels} times");
                assert!(!closure.cancel(), "it is over");
                match block_on(closure) {
                    Ok(()) => assert_eq!((runs, cancels), (1, 0)),
                    Err(error) => {
                        assert!(error.is_cancelled());
                        assert_eq!(runs, 0);
                    }
                }
                ran += runs as u64;
                cancelled += 1 - runs as u64;
            }
            assert_eq!(drops.get(), CLOSURES, "each is dropped, once");
            assert_eq!(
                (report.accepted(), report.completed(), report.cancelled()),
                (CLOSURES as u64, ran, cancelled)
            );
        }
    });
}

#[test]
fn a_periodic_closure_is_cancelled_once_and_does_not_run_again() {
    const CLOSURES: usize = 30;
    within(|| {
        for round in 0..60 {
            let group = EventLoopGroup::new(2).unwrap();
            let drops = DropCount::new();
            let closures: Vec<_> = (0..CLOSURES)
                .map(|number| {
                    let fate = Arc::new(Fate::default());
                    let (noted, captured) = (Arc::clone(&fate), drops.guard());
                    let period = Duration::from_micros(1 + (number % 5) as u64 * 20);
                    let call = move || {
                        let _captured = &captured;
                        noted.runs.fetch_add(1, Ordering::SeqCst);
                    };
                    let ev = group.next();
                    let closure = match number % 2 {
                        0 => ev.schedule_at_fixed_rate(period, period, call),
                        _ => ev.schedule_with_fixed_delay(period, period, call),
                    };
                    (closure.unwrap(), fate)
                })
                .collect();
            let report = cancel_and_end(&group, round, &closures);
            assert_eq!(drops.get(), CLOSURES, "each is dropped, once");
            for (closure, fate) in closures {
                assert!(fate.cancels.load(Ordering::SeqCst) <= 1);
                assert!(block_on(closure).unwrap_err().is_cancelled());
            }
            assert_eq!(
                (report.accepted(), report.cancelled()),
                (CLOSURES as u64, CLOSURES as u64)
            );
        }
    });
}

#[test]
fn closures_that_come_while_the_loop_ends_are_cancelled_or_refused_but_resolve() {
    within(|| {
        for round in 0..60 {
            let group = EventLoopGroup::new(2).unwrap();
            group.start().unwrap();
            let start = Barrier::new(4);
            let drops = DropCount::new();
            let (results, ending) = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3)
                    .map(|_| {
                        scope.spawn(|| {
                            start.wait();
                            let schedule = |number: u32| {
                                let captured = drops.guard();
                                let delay = [Duration::MAX, ms(3_600_000)][number as usize % 2];
                                group.next().schedule(delay, move || drop(captured))
                            };
                            (0..40).map(schedule).collect::<Vec<_>>()
                        })
                    })
                    .collect();
                start.wait();
                let ending = end(&group, round);
                let results = threads
                    .into_iter()
                    .flat_map(|thread| thread.join().unwrap());
                (results.collect::<Vec<_>>(), ending)
            });
            let (cancelled, refused): (Vec<_>, Vec<_>) = results
                .into_iter()
                .map(|closure| block_on(closure).unwrap_err())
                .partition(|error| error.is_cancelled());
            assert!(refused.iter().all(|error| error.is_rejected()));
            let report = ending.wait();
            assert_eq!(report.accepted(), cancelled.len() as u64);
            assert_eq!(report.cancelled(), cancelled.len() as u64);
            assert_eq!(report.rejected(), refused.len() as u64);
            assert_eq!(drops.get(), 120);
        }
    });
}

#[test]
fn closures_and_sleeps_with_one_deadline_fire_in_the_order_of_their_arming() {
    let mut test = TestLoop::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let deadline = test.now() + ms(10);
    for number in 0..40 {
        let noted = Arc::clone(&order);
        let note = move || noted.lock().unwrap().push(number);
        if number % 2 == 0 {
            drop(test.schedule(ms(10), note));
        } else {
            drop(test.spawn(async move {
                loopgroup::time::sleep_until(deadline).await;
                note();
            }));
        }
    }
    test.advance(ms(10));
    assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
}
