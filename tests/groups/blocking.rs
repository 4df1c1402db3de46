//! A blocking group gives each job a thread, has no more threads than it may, and accounts for all jobs.

use std::collections::HashSet;
use std::io;
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::blocking::{BlockingGroup, WhenFull, unblock};
use loopgroup::{
    EndCause, EventLoopGroup, JoinHandle, LoopState, RejectReason, TerminationReport, block_on,
};

use crate::util::{self, Door, DropCount, alone, entries, eventually, within};

const LONG: Duration = Duration::from_secs(60);

fn rejecting(max: usize) -> BlockingGroup {
    let builder = BlockingGroup::builder().max_threads(max);
    builder.when_full(WhenFull::Reject).build().unwrap()
}

/// Occupies a thread until the door opens; returns once the job runs.
fn occupy(group: &BlockingGroup) -> (Door, JoinHandle<()>) {
    let (entered, release) = (Door::new(), Door::new());
    let (inside, until) = (entered.clone(), release.clone());
    let job = group.spawn(move || {
        inside.open();
        until.pass();
    });
    entered.pass();
    (release, job)
}

/// accepted, completed, panicked, cancelled, rejected.
fn figures(report: &TerminationReport) -> [u64; 5] {
    [
        report.accepted(),
        report.completed(),
        report.panicked(),
        report.cancelled(),
        report.rejected(),
    ]
}

#[track_caller]
fn assert_ended(report: &TerminationReport, cause: EndCause, expected: [u64; 5]) {
    assert_eq!(report.loops().len(), 1);
    assert_eq!(report.loops()[0].cause(), cause);
    assert_eq!(figures(report), expected);
}

#[test]
fn a_group_without_threads_is_refused() {
    within(|| {
        for error in [
            BlockingGroup::new(0).unwrap_err(),
            BlockingGroup::builder().max_threads(0).build().unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with("max_threads:"), "{error}");
        }
    });
}

#[test]
fn jobs_beyond_the_bound_wait_for_a_thread() {
    within(|| {
        let group = BlockingGroup::new(2).unwrap();
        let running = [occupy(&group), occupy(&group)];
        let (now, most) = (Arc::new(AtomicUsize::new(2)), Arc::new(AtomicUsize::new(2)));
        let waiting: Vec<_> = (0..5)
            .map(|n| {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                group.spawn(move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    now.fetch_sub(1, Ordering::SeqCst);
                    n
                })
            })
            .collect();
        assert_eq!((group.threads(), group.pending_jobs()), (2, 5));
        now.store(0, Ordering::SeqCst);
        for (release, job) in running {
            release.open();
            block_on(job).unwrap();
        }
        let done: Vec<_> = waiting
            .into_iter()
            .map(|job| block_on(job).unwrap())
            .collect();
        assert_eq!(done, [0, 1, 2, 3, 4]);
        assert!(most.load(Ordering::SeqCst) <= 2);
        assert_eq!((group.threads(), group.pending_jobs()), (2, 0));
    });
}

#[test]
fn one_thread_runs_its_jobs_in_order() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, _) = occupy(&group);
        let (tx, rx) = mpsc::channel();
        for n in 0..20 {
            let tx = tx.clone();
            drop(group.spawn(move || tx.send(n).unwrap()));
        }
        release.open();
        drop(tx);
        assert_eq!(rx.iter().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_job_that_finds_every_thread_busy_may_be_refused_and_comes_back() {
    within(|| {
        let group = rejecting(2);
        let running = [occupy(&group), occupy(&group)];
        let drops = DropCount::new();
        let guard = drops.guard();
        let rejected = group.try_spawn(move || drop(guard)).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::QueueFull);
        assert_eq!(drops.get(), 0);
        rejected.into_inner()();
        assert_eq!(drops.get(), 1);
        let error = block_on(group.spawn(|| ())).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::QueueFull));
        for (release, _) in running {
            release.open();
        }
        // A thread is free a moment after its job has resolved.
        eventually("a thread is free", || group.try_spawn(|| ()).is_ok());
        let report = group.drain(LONG).wait();
        assert_eq!(report.completed(), 3);
        assert!(report.rejected() >= 2);
    });
}

#[test]
fn a_refusing_group_still_uses_every_thread_it_may_have() {
    within(|| {
        let group = rejecting(3);
        let running: Vec<_> = (0..3).map(|_| occupy(&group)).collect();
        assert_eq!((group.threads(), group.pending_jobs()), (3, 0));
        assert!(group.try_spawn(|| ()).is_err());
        for (release, _) in running {
            release.open();
        }
    });
}

#[test]
fn threads_are_reused() {
    within(|| {
        let group = BlockingGroup::new(2).unwrap();
        let mut seen = HashSet::new();
        for _ in 0..100 {
            seen.insert(block_on(group.spawn(|| thread::current().id())).unwrap());
        }
        assert!(seen.len() <= 2, "{seen:?}");
        assert!(group.threads() <= 2);
        assert!(!seen.contains(&thread::current().id()));
        let names = group.spawn(|| thread::current().name().map(str::to_owned));
        assert_eq!(block_on(names).unwrap().as_deref(), Some("loop-blocking"));
    });
}

#[test]
fn an_unused_group_ends_at_once_and_without_a_thread() {
    within(|| {
        let end = |group: &BlockingGroup, n| match n {
            0 => group.shutdown_gracefully(),
            1 => group.drain(LONG),
            _ => group.shutdown_now(),
        };
        for (n, cause) in [EndCause::Idle, EndCause::Drained, EndCause::Now]
            .into_iter()
            .enumerate()
        {
            let group = BlockingGroup::new(3).unwrap();
            assert_eq!(group.state(), LoopState::NotStarted);
            let report = end(&group, n).wait();
            assert_ended(&report, cause, [0; 5]);
            assert!(!report.loops()[0].started());
            assert_eq!((group.threads(), group.state()), (0, LoopState::Terminated));
            // A second request only observes.
            assert_ended(&group.shutdown_now().wait(), cause, [0; 5]);
        }
    });
}

#[test]
fn drain_waits_for_jobs_that_run_and_jobs_that_wait() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, first) = occupy(&group);
        let second = group.spawn(|| 2);
        let end = group.drain(LONG);
        assert!(group.is_shutting_down() && !group.is_shutdown());
        let third = group.spawn(|| 3);
        assert_eq!(end.wait_timeout(Duration::ZERO).map(|_| ()), None);
        release.open();
        block_on(first).unwrap();
        assert_eq!(block_on(second).unwrap(), 2);
        assert_eq!(block_on(third).unwrap(), 3, "it accepts until the end");
        assert_ended(&end.wait(), EndCause::Drained, [3, 3, 0, 0, 0]);
        assert!(group.is_terminated());
        let rejected = group.try_spawn(|| 5).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::ShutDown);
        assert_eq!(rejected.into_inner()(), 5);
        assert_eq!(end.wait().rejected(), 1);
    });
}

#[test]
fn a_graceful_shutdown_keeps_its_quiet_period_and_accepts_meanwhile() {
    within(|| {
        let group = BlockingGroup::new(2).unwrap();
        block_on(group.spawn(|| ())).unwrap();
        let quiet = Duration::from_millis(30);
        let begun = Instant::now();
        let end = group.shutdown_gracefully_with(quiet, LONG).unwrap();
        // If the machine is that slow the period may be over: then it is refused.
        let late = group
            .try_spawn(Instant::now)
            .map(|job| block_on(job).unwrap());
        let report = end.wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Quiet);
        let since = late.as_ref().copied().unwrap_or(begun);
        assert!(since.elapsed() >= quiet);
        assert_eq!(report.completed(), 1 + u64::from(late.is_ok()));
        let error = group.shutdown_gracefully_with(LONG, quiet).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn the_quiet_period_does_not_run_while_a_job_does() {
    within(|| {
        let group = BlockingGroup::new(2).unwrap();
        let (release, _) = occupy(&group);
        let end = group
            .shutdown_gracefully_with(Duration::ZERO, LONG)
            .unwrap();
        assert!(end.wait_timeout(Duration::from_millis(20)).is_none());
        assert_eq!(block_on(group.spawn(|| 1)).unwrap(), 1);
        release.open();
        assert_ended(&end.wait(), EndCause::Quiet, [2, 2, 0, 0, 0]);
    });
}

#[test]
fn now_cancels_what_waits_and_awaits_what_runs() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, running) = occupy(&group);
        let drops = DropCount::new();
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let guard = drops.guard();
                group.spawn(move || drop(guard))
            })
            .collect();
        let end = group.shutdown_now();
        assert!(group.is_shutdown() && !group.is_terminated());
        assert_eq!(drops.get(), 4);
        for job in waiting {
            assert!(block_on(job).unwrap_err().is_cancelled());
        }
        assert!(end.wait_timeout(Duration::from_millis(5)).is_none());
        release.open();
        block_on(running).unwrap();
        assert_ended(&end.wait(), EndCause::Now, [5, 1, 0, 4, 0]);
    });
}

#[test]
fn now_shortens_a_shutdown_under_way() {
    within(|| {
        let group = BlockingGroup::new(2).unwrap();
        block_on(group.spawn(|| ())).unwrap();
        let end = group.shutdown_gracefully_with(LONG, LONG).unwrap();
        drop(group.drain(LONG));
        assert!(end.wait_timeout(Duration::from_millis(5)).is_none());
        drop(group.shutdown_now());
        assert_ended(&end.wait(), EndCause::Now, [1, 1, 0, 0, 0]);
    });
}

#[test]
fn at_the_timeout_jobs_that_have_not_begun_are_cancelled() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, running) = occupy(&group);
        let ran = Arc::new(AtomicUsize::new(0));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let ran = Arc::clone(&ran);
                group.spawn(move || ran.fetch_add(1, Ordering::SeqCst))
            })
            .collect();
        let timeout = Duration::from_millis(10);
        let begun = Instant::now();
        let end = group.drain(timeout);
        assert!(end.wait_timeout(2 * timeout).is_none(), "a job runs");
        assert!(begun.elapsed() >= timeout);
        release.open();
        block_on(running).unwrap();
        for job in waiting {
            assert!(block_on(job).unwrap_err().is_cancelled());
        }
        assert_eq!(ran.load(Ordering::SeqCst), 0);
        assert_ended(&end.wait(), EndCause::Timeout, [4, 1, 0, 3, 0]);
    });
}

#[test]
fn after_the_timeout_a_submission_is_refused_while_a_job_still_runs() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, _) = occupy(&group);
        let waiting = group.spawn(|| ());
        let timeout = Duration::from_millis(5);
        let end = group.drain(timeout);
        assert!(end.wait_timeout(2 * timeout).is_none());
        let rejected = group.try_spawn(|| ()).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::ShutDown);
        assert!(group.is_shutdown());
        assert!(block_on(waiting).unwrap_err().is_cancelled());
        release.open();
        assert_ended(&end.wait(), EndCause::Timeout, [2, 1, 0, 1, 1]);
    });
}

/// Every accepted job ended in one way; those that overran the timeout are told apart.
#[track_caller]
fn assert_overrun(report: &TerminationReport, running: u64) {
    let ended = report.completed() + report.panicked() + report.cancelled();
    assert_eq!(report.accepted(), ended, "{report}");
    assert_eq!(report.loops()[0].cause(), EndCause::Timeout, "{report}");
    assert_eq!(report.running(), running, "{report}");
    assert_eq!(report.loops()[0].running(), running);
    assert!(!report.is_clean());
}

#[test]
fn a_job_that_waits_for_a_queued_one_is_freed_at_the_timeout() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (send, queued) = mpsc::channel::<JoinHandle<()>>();
        let entered = Door::new();
        let inside = entered.clone();
        let first = group.spawn(move || {
            inside.open();
            block_on(queued.recv().unwrap()).unwrap_err()
        });
        entered.pass();
        // There is one thread, and it waits for what it would have to do itself.
        send.send(group.spawn(|| ())).unwrap();
        let timeout = Duration::from_millis(200);
        let report = group.drain(timeout).wait();
        assert!(block_on(first).unwrap().is_cancelled());
        assert_eq!(figures(&report), [2, 1, 0, 1, 0]);
        assert!(report.elapsed() >= timeout);
        assert_overrun(&report, 1);
    });
}

#[test]
fn at_the_timeout_queued_jobs_are_cancelled_while_every_thread_is_busy() {
    within(|| {
        let group = BlockingGroup::new(2).unwrap();
        let running = [occupy(&group), occupy(&group)];
        let drops = DropCount::new();
        let queued: Vec<_> = (0..3)
            .map(|_| {
                let guard = drops.guard();
                group.spawn(move || drop(guard))
            })
            .collect();
        let end = group.drain(Duration::from_millis(50));
        // Nobody but the group looks: no thread is free, and none waits for the end.
        for job in queued {
            assert!(block_on(job).unwrap_err().is_cancelled());
        }
        assert_eq!((drops.get(), group.pending_jobs()), (3, 0));
        assert!(group.is_shutdown() && !group.is_terminated());
        assert_eq!(group.threads(), 2, "who keeps the time is no worker");
        for (release, job) in running {
            release.open();
            block_on(job).unwrap();
        }
        let report = end.wait();
        assert_eq!(figures(&report), [5, 2, 0, 3, 0]);
        assert_overrun(&report, 2);
        let shown = report.to_string();
        assert!(shown.contains("2 overran the timeout"), "{shown}");
    });
}

#[test]
fn the_timeout_is_kept_although_the_idle_thread_that_watched_it_takes_a_job() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        block_on(group.spawn(|| ())).unwrap();
        // The thread is idle, or about to be, and watches: the quiet period is as long as the timeout.
        let time = Duration::from_millis(300);
        let end = group.shutdown_gracefully_with(time, time).unwrap();
        let release = Door::new();
        let until = release.clone();
        let occupied = group.spawn(move || until.pass());
        // It cannot run; on a machine that is slow enough it comes too late to be queued.
        block_on(group.spawn(|| ())).unwrap_err();
        assert!(group.is_shutdown());
        release.open();
        drop(occupied);
        let report = end.wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert_eq!(report.accepted(), report.completed() + report.cancelled());
    });
}

#[test]
fn now_frees_who_keeps_the_time() {
    alone("now_frees_who_keeps_the_time", || {
        let before = entries("/proc/self/task");
        let group = BlockingGroup::new(1).unwrap();
        let (release, running) = occupy(&group);
        drop(group.drain(LONG));
        assert_eq!(entries("/proc/self/task"), before + 2);
        let end = group.shutdown_now();
        eventually("the keeper is gone", || {
            entries("/proc/self/task") == before + 1
        });
        release.open();
        block_on(running).unwrap();
        let report = end.wait();
        assert_ended(&report, EndCause::Now, [1, 1, 0, 0, 0]);
        assert!(report.is_clean() && report.running() == 0);
        eventually("all threads are gone", || {
            entries("/proc/self/task") == before
        });
    });
}

/// Lets no thread start while it lives: there is no address space for a stack.
#[cfg(target_os = "linux")]
struct NoThreads(libc::rlimit);

#[cfg(target_os = "linux")]
impl NoThreads {
    fn begin() -> NoThreads {
        let mut before = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the pointer is valid for the call, which only writes it.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut before) }, 0);
        NoThreads::set(libc::rlimit {
            rlim_cur: 1 << 20,
            ..before
        });
        NoThreads(before)
    }

    fn set(limit: libc::rlimit) {
        // SAFETY: the pointer is valid for the call, which only reads it.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    }
}

#[cfg(target_os = "linux")]
impl Drop for NoThreads {
    fn drop(&mut self) {
        NoThreads::set(self.0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn without_a_thread_to_keep_the_time_whoever_waits_for_the_end_keeps_it() {
    const NAME: &str = "without_a_thread_to_keep_the_time_whoever_waits_for_the_end_keeps_it";
    alone(NAME, || {
        type Look = fn(&mut loopgroup::TerminationFuture);
        let waits: Look = |end| {
            assert!(end.wait_timeout(Duration::from_secs(1)).is_none());
        };
        let polls: Look = |end| {
            thread::sleep(Duration::from_millis(60)); // the timeout passes, and nobody sees it
            assert!(util::poll_once(end).is_pending());
        };
        for look in [waits, polls] {
            let group = BlockingGroup::new(1).unwrap();
            let (release, running) = occupy(&group);
            let queued = group.spawn(|| ());
            let threads = entries("/proc/self/task");
            let none = NoThreads::begin();
            let mut end = group.drain(Duration::from_millis(50));
            drop(none);
            assert_eq!(entries("/proc/self/task"), threads);
            look(&mut end);
            assert!(block_on(queued).unwrap_err().is_cancelled());
            release.open();
            block_on(running).unwrap();
            assert_overrun(&end.wait(), 1);
        }
    });
}

/// Blocks in its destructor.
struct SlowDrop {
    entered: Door,
    release: Door,
}

impl Drop for SlowDrop {
    fn drop(&mut self) {
        self.entered.open();
        self.release.pass();
    }
}

#[test]
fn the_end_waits_for_the_destructors_of_cancelled_jobs() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, running) = occupy(&group);
        let slow = SlowDrop {
            entered: Door::new(),
            release: Door::new(),
        };
        let (entered, let_go) = (slow.entered.clone(), slow.release.clone());
        let waiting = group.spawn(move || drop(slow));
        let requester = group.clone();
        let requester = thread::spawn(move || drop(requester.shutdown_now()));
        entered.pass();
        release.open();
        block_on(running).unwrap();
        // The only thread is done, but a job that was accepted is not accounted for yet.
        let end = group.termination();
        let early = end.wait_timeout(Duration::from_millis(50));
        assert!(early.is_none(), "announced too early: {early:?}");
        let_go.open();
        requester.join().unwrap();
        assert!(block_on(waiting).unwrap_err().is_cancelled());
        assert_ended(&end.wait(), EndCause::Now, [2, 1, 0, 1, 0]);
    });
}

#[test]
fn dropping_the_last_handle_lets_the_jobs_finish() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, running) = occupy(&group);
        let waiting = group.spawn(|| 8);
        let end = group.termination();
        let last = group.clone();
        drop(group);
        assert!(!last.is_shutting_down());
        drop(last);
        assert!(end.wait_timeout(Duration::from_millis(5)).is_none());
        release.open();
        block_on(running).unwrap();
        assert_eq!(block_on(waiting).unwrap(), 8);
        assert_ended(&end.wait(), EndCause::Idle, [2, 2, 0, 0, 0]);
    });
}

#[test]
fn the_last_handle_may_go_inside_a_job() {
    within(|| {
        let group = BlockingGroup::new(2).unwrap();
        let end = group.termination();
        let go = Door::new();
        let (own, until) = (group.clone(), go.clone());
        let job = group.spawn(move || {
            until.pass();
            drop(own);
            1
        });
        drop(group);
        go.open();
        assert_eq!(block_on(job).unwrap(), 1);
        assert_ended(&end.wait(), EndCause::Idle, [1, 1, 0, 0, 0]);
    });
}

#[test]
fn dropping_the_last_handle_ends_a_quiet_period_early() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        block_on(group.spawn(|| ())).unwrap();
        let end = group.shutdown_gracefully_with(LONG, LONG).unwrap();
        drop(group);
        assert_ended(&end.wait(), EndCause::Idle, [1, 1, 0, 0, 0]);
    });
}

#[test]
fn a_panic_travels_in_the_handle_and_the_thread_goes_on() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let home = block_on(group.spawn(|| thread::current().id())).unwrap();
        let error = block_on(group.spawn(|| panic_any(5_u16))).unwrap_err();
        assert_eq!(*error.into_panic().downcast::<u16>().unwrap(), 5);
        drop(group.spawn(|| panic!("nobody joins me")));
        let after = block_on(group.spawn(|| thread::current().id())).unwrap();
        assert_eq!(home, after);
        let report = group.drain(LONG).wait();
        assert_ended(&report, EndCause::Drained, [4, 2, 2, 0, 0]);
        assert!(!report.is_clean());
    });
}

/// Panics in its destructor.
struct Unruly;

impl Drop for Unruly {
    fn drop(&mut self) {
        panic!("in the destructor");
    }
}

#[test]
fn destructors_that_panic_do_not_reach_the_thread() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, _) = occupy(&group);
        let (value, cancelled) = (Unruly, Unruly);
        // An output that nobody takes, and a closure that is never called.
        drop(group.spawn(move || value));
        group.spawn(move || drop(cancelled)).abort();
        release.open();
        assert_eq!(block_on(group.spawn(|| 1)).unwrap(), 1);
        // As on a loop: a closure that panics while it is dropped has panicked.
        assert_ended(
            &group.drain(LONG).wait(),
            EndCause::Drained,
            [4, 3, 1, 0, 0],
        );
    });
}

#[test]
fn a_job_aborted_before_it_began_never_runs() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, _) = occupy(&group);
        let (ran, drops) = (Arc::new(AtomicUsize::new(0)), DropCount::new());
        for _ in 0..3 {
            let (ran, guard) = (Arc::clone(&ran), drops.guard());
            let count = move || {
                let _guard = guard;
                ran.fetch_add(1, Ordering::SeqCst)
            };
            group.spawn(count).abort();
        }
        release.open();
        assert_ended(
            &group.drain(LONG).wait(),
            EndCause::Drained,
            [4, 1, 0, 3, 0],
        );
        assert_eq!((ran.load(Ordering::SeqCst), drops.get()), (0, 3));
    });
}

#[test]
fn cancel_resolves_once_the_closure_is_gone_or_the_job_has_ended() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        let (release, running) = occupy(&group);
        let drops = DropCount::new();
        let guard = drops.guard();
        let waiting = group.spawn(move || drop(guard));
        let mut waiting = Box::pin(waiting.cancel());
        let mut running = Box::pin(running.cancel());
        assert!(util::poll_once(&mut waiting).is_pending(), "it is queued");
        assert!(util::poll_once(&mut running).is_pending(), "it runs");
        assert_eq!(drops.get(), 0);
        release.open();
        assert_eq!((block_on(waiting), drops.get()), (None, 1));
        block_on(running);
        let done = group.spawn(|| 4);
        eventually("it is done", || done.is_finished());
        assert_eq!(block_on(done.cancel()), Some(4));
        assert_ended(
            &group.drain(LONG).wait(),
            EndCause::Drained,
            [3, 2, 0, 1, 0],
        );
    });
}

#[test]
fn the_figures_add_up_when_producers_race_with_the_end() {
    within(|| {
        for round in 0..60 {
            let group = BlockingGroup::builder().max_threads(1 + round % 3);
            let when_full = [WhenFull::Wait, WhenFull::Reject][round % 2];
            let group = group.when_full(when_full).build().unwrap();
            let barrier = Arc::new(Barrier::new(4));
            let producers: Vec<_> = (0..3)
                .map(|_| {
                    let (group, barrier) = (group.clone(), Arc::clone(&barrier));
                    thread::spawn(move || {
                        barrier.wait();
                        let jobs: Vec<_> = (0..40).map(|n| group.spawn(move || n)).collect();
                        let results: Vec<_> = jobs.into_iter().map(block_on).collect();
                        let refused = |error: &loopgroup::JoinError| error.is_rejected();
                        let done = results.iter().filter(|result| result.is_ok()).count();
                        let errors = results.iter().filter_map(|result| result.as_ref().err());
                        (
                            done as u64,
                            errors.filter(|error| refused(error)).count() as u64,
                        )
                    })
                })
                .collect();
            barrier.wait();
            let end = match round % 4 {
                0 => group.shutdown_now(),
                1 => group.drain(Duration::ZERO),
                2 => group.drain(LONG),
                _ => group
                    .shutdown_gracefully_with(Duration::ZERO, LONG)
                    .unwrap(),
            };
            let report = end.wait();
            let (mut done, mut refused) = (0, 0);
            for producer in producers {
                let (one_done, one_refused) = producer.join().unwrap();
                done += one_done;
                refused += one_refused;
            }
            assert_eq!(group.threads(), 0);
            let expected = [120 - refused, done, 0, 120 - refused - done, refused];
            assert_eq!(figures(&report), expected, "round {round}");
        }
    });
}

#[test]
fn threads_are_gone_after_the_wait() {
    alone("threads_are_gone_after_the_wait", || {
        let before = entries("/proc/self/task");
        let group = BlockingGroup::new(4).unwrap();
        let running: Vec<_> = (0..4).map(|_| occupy(&group)).collect();
        assert_eq!(entries("/proc/self/task"), before + 4);
        for (release, _) in running {
            release.open();
        }
        assert_eq!(group.drain(LONG).wait().completed(), 4);
        eventually("all threads are gone", || {
            entries("/proc/self/task") == before
        });
    });
}

#[test]
fn unblock_leaves_the_loop_free() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next().clone();
        let task = group.spawn(async move {
            let home = thread::current().id();
            // The job needs the loop: it would wait for ever if it were on it.
            let job = unblock(move || {
                let inner = block_on(ev.submit(|| thread::current().id())).unwrap();
                (inner, thread::current().id())
            });
            let (inner, worker) = job.await.unwrap();
            (
                inner == home,
                worker != home,
                thread::current().id() == home,
            )
        });
        assert_eq!(block_on(task).unwrap(), (true, true, true));
        let error = block_on(unblock(|| panic!("in the job"))).unwrap_err();
        assert!(error.is_panic());
    });
}

#[test]
fn the_end_may_be_awaited_on_a_loop() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let jobs = BlockingGroup::new(2).unwrap();
        let task = group.spawn(async move {
            let done = jobs.spawn(|| 1).await.unwrap();
            let report = jobs.drain(LONG).await;
            (done, report.completed())
        });
        assert_eq!(block_on(task).unwrap(), (1, 1));
    });
}
