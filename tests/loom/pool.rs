//! Blocking groups: jobs, threads and shutdown, on async-task's own tasks.

use std::time::Duration;

use super::{explore, explore_core, unexplored};
use crate::block_on;
use crate::blocking::{BlockingGroup, WhenFull};
use crate::park::Parker;
use crate::report::EndCause;
use crate::sync::{Arc, AtomicUsize, Ordering, thread};
use crate::{RejectReason, TerminationReport};

/// A timeout that passes when a model calls `expire`, or never.
const HOUR: Duration = Duration::from_secs(3600);

fn group(threads: usize) -> BlockingGroup {
    BlockingGroup::new(threads).unwrap()
}

fn adds_up(report: &TerminationReport) {
    let ended = report.completed() + report.panicked() + report.cancelled();
    assert_eq!(report.accepted(), ended);
}

#[test]
fn a_job_finds_the_worker_that_goes_idle() {
    explore_core(|| {
        let group = group(1);
        assert_eq!(block_on(group.spawn(|| 1)).unwrap(), 1);
        // The worker is about to sleep, or asleep.
        assert_eq!(block_on(group.spawn(|| 2)).unwrap(), 2);
        let report = group.shutdown_now().wait();
        assert_eq!(report.completed(), 2);
    });
}

#[test]
fn jobs_of_two_threads_are_all_done_by_one_worker() {
    explore(|| {
        let group = group(1);
        let other = group.clone();
        let submitter = thread::spawn(move || block_on(other.spawn(|| 1)).unwrap());
        assert_eq!(block_on(group.spawn(|| 2)).unwrap(), 2);
        assert_eq!(submitter.join().unwrap(), 1);
        let report = group.drain(Duration::MAX).wait();
        assert_eq!(report.completed(), 2);
    });
}

#[test]
fn a_job_that_races_with_the_end_is_done_cancelled_or_handed_back() {
    explore_core(|| {
        let group = group(1);
        let first = group.try_spawn(|| 1).expect("it is open");
        let other = group.clone();
        let submitter = thread::spawn(move || match other.try_spawn(|| 2) {
            Ok(handle) => match block_on(handle) {
                Ok(value) => assert_eq!(value, 2),
                Err(error) => assert!(error.is_cancelled()),
            },
            Err(refused) => {
                assert_eq!(refused.reason(), RejectReason::ShutDown);
                assert_eq!(refused.into_inner()(), 2);
            }
        });
        let report = group.shutdown_now().wait();
        adds_up(&report);
        submitter.join().unwrap();
        assert_eq!(report.accepted() + report.rejected(), 2);
        // It has ended, whatever its outcome.
        assert!(first.is_finished());
    });
}

#[test]
fn a_drain_waits_for_what_was_accepted_and_refuses_the_rest() {
    explore(|| {
        let group = group(2);
        let done = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&done);
        drop(group.spawn(move || counts.fetch_add(1, Ordering::Relaxed)));
        let other = group.clone();
        let submitter = thread::spawn(move || other.try_spawn(|| ()).map(drop).is_ok());
        let report = group.drain(Duration::MAX).wait();
        assert_eq!(done.load(Ordering::Relaxed), 1);
        let accepted = 1 + u64::from(submitter.join().unwrap());
        assert_eq!(
            (report.accepted(), report.completed()),
            (accepted, accepted)
        );
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
    });
}

#[test]
fn two_who_end_a_group_at_once_get_one_report() {
    explore(|| {
        let group = group(1);
        drop(group.spawn(|| ()));
        let other = group.clone();
        let second = thread::spawn(move || other.shutdown_now().wait().accepted());
        let report = group.drain(Duration::MAX).wait();
        adds_up(&report);
        assert_eq!((report.accepted(), second.join().unwrap()), (1, 1));
    });
}

#[test]
fn a_full_group_refuses_at_once_and_loses_no_job_that_it_took() {
    explore(|| {
        let group = BlockingGroup::builder()
            .max_threads(1)
            .when_full(WhenFull::Reject)
            .build()
            .unwrap();
        let other = group.clone();
        let attempt = |group: &BlockingGroup| match group.try_spawn(|| ()) {
            Ok(handle) => block_on(handle).is_ok(),
            Err(refused) => {
                assert_eq!(refused.reason(), RejectReason::QueueFull);
                false
            }
        };
        let second = thread::spawn(move || attempt(&other));
        let first = attempt(&group);
        let second = second.join().unwrap();
        assert!(first || second, "there was a place");
        let report = group.shutdown_now().wait();
        assert_eq!(report.completed(), u64::from(first) + u64::from(second));
        assert_eq!(report.accepted() + report.rejected(), 2);
    });
}

#[test]
fn a_job_does_not_wait_for_another_while_there_is_room_for_a_thread() {
    explore(|| {
        let group = group(2);
        let parker = Arc::new(Parker::new());
        let bell = Arc::clone(&parker);
        let waits = group.spawn(move || parker.park(None));
        let rings = group.spawn(move || bell.unpark());
        block_on(rings).unwrap();
        assert!(block_on(waits).unwrap());
        assert_eq!(group.shutdown_now().wait().completed(), 2);
    });
}

#[test]
fn a_queued_job_is_cancelled_at_the_deadline_while_the_only_thread_is_busy() {
    explore(|| {
        let group = group(1);
        let parker = Arc::new(Parker::new());
        let bell = Arc::clone(&parker);
        drop(group.spawn(move || parker.park(None)));
        let queued = group.spawn(|| ());
        let end = group.drain(HOUR);
        group.expire();
        // The thread is running the first job, or has begun neither.
        assert!(block_on(queued).unwrap_err().is_cancelled());
        bell.unpark();
        let report = end.wait();
        adds_up(&report);
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert_eq!(report.running(), report.completed());
    });
}

#[test]
fn the_deadline_is_watched_although_the_idle_thread_takes_a_job() {
    explore_core(|| {
        let group = group(1);
        unexplored(|| block_on(group.spawn(|| ())).unwrap());
        let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
        let parker = Arc::new(Parker::new());
        let bell = Arc::clone(&parker);
        drop(group.spawn(move || parker.park(None)));
        let queued = group.spawn(|| ());
        group.expire();
        assert!(block_on(queued).unwrap_err().is_cancelled());
        bell.unpark();
        let report = end.wait();
        adds_up(&report);
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert_eq!(report.running() + 1, report.completed());
    });
}

#[test]
fn whoever_keeps_the_time_ends_with_the_last_job() {
    explore(|| {
        let group = group(1);
        let job = group.spawn(|| 1);
        // It ends within the hour, with or without a timekeeper thread, and once.
        let report = group.drain(HOUR).wait();
        assert_eq!(block_on(job).unwrap(), 1);
        adds_up(&report);
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
    });
}
