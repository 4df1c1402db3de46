//! How whole loops end while other threads submit, wake and drop handles.

use std::time::Duration;

use super::group::{Flag, adds_up, group, sleeping_group};
use super::{explore, explore_whole, unexplored};
use crate::report::EndCause;
use crate::shutdown_requested::ShutdownRequested;
use crate::sync::{Arc, AtomicUsize, Ordering, thread};
use crate::{RejectReason, block_on};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_task_that_races_with_the_end_runs_is_cancelled_or_is_handed_back() {
    explore_whole(|| {
        let group = sleeping_group(1);
        let other = group.next().clone();
        let submitter = thread::spawn(move || other.try_spawn(async { 1 }));
        let report = group.shutdown_now().wait();
        let submitted = submitter.join().unwrap();
        adds_up(&report);
        assert_eq!(report.accepted() + report.rejected(), 1);
        unexplored(|| match submitted.map(block_on) {
            Ok(Ok(value)) => assert_eq!((value, report.completed()), (1, 1)),
            Ok(Err(error)) => assert!(error.is_cancelled() && report.cancelled() == 1),
            Err(refused) => {
                assert_eq!(refused.reason(), RejectReason::ShutDown);
                assert_eq!(block_on(refused.into_inner()), 1);
            }
        });
    });
}

#[test]
fn a_submission_that_meets_the_end_of_an_unused_loop_is_served_or_refused() {
    explore_whole(|| {
        let group = group(1);
        let other = group.next().clone();
        let submitter = thread::spawn(move || match block_on(other.spawn(async { 1 })) {
            Ok(value) => assert_eq!(value, 1),
            Err(error) => assert!(error.is_cancelled() || error.is_rejected()),
        });
        let report = group.shutdown_now().wait();
        adds_up(&report);
        submitter.join().unwrap();
        assert_eq!(report.accepted() + report.rejected(), 1);
    });
}

#[test]
fn a_wake_that_meets_the_end_of_its_loop_neither_hangs_it_nor_is_it_a_second_end() {
    explore(|| {
        let group = sleeping_group(1);
        let flag = Arc::new(Flag::default());
        let raises = Arc::clone(&flag);
        let task = group.spawn(async move { flag.raised().await });
        let waker = thread::spawn(move || raises.raise());
        let report = group.shutdown_now().wait();
        adds_up(&report);
        let completed = block_on(task).is_ok();
        assert_eq!(report.completed(), u64::from(completed));
        waker.join().unwrap();
    });
}

#[test]
fn the_last_handle_of_a_group_that_goes_ends_its_loop() {
    explore(|| {
        let group = sleeping_group(1);
        let end = group.termination();
        let other = group.clone();
        let second = thread::spawn(move || drop(other));
        drop(group);
        let report = end.wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Idle);
        second.join().unwrap();
    });
}

#[test]
fn a_loop_that_waits_for_quiet_is_told_when_nobody_is_left_to_break_it() {
    explore_whole(|| {
        let group = sleeping_group(1);
        let handle = group.next().clone();
        let lets_go = thread::spawn(move || drop(handle));
        let end = group.shutdown_gracefully_with(HOUR, HOUR).unwrap();
        drop(group);
        // The clock does not advance: only the drop of the last handle can end it.
        assert_eq!(end.wait().loops()[0].cause(), EndCause::Idle);
        lets_go.join().unwrap();
    });
}

#[test]
fn loops_that_come_to_rest_at_the_same_time_end_a_drain_together() {
    explore_whole(|| {
        let group = sleeping_group(2);
        // The loops find their tasks and the request when they are woken.
        let end = unexplored(|| {
            drop(group.spawn_on(0, async {}));
            drop(group.spawn_on(1, async {}));
            group.drain(HOUR)
        });
        let report = end.wait();
        assert_eq!(report.completed(), 2);
        assert!(
            report
                .loops()
                .iter()
                .all(|one| one.cause() == EndCause::Drained)
        );
    });
}

#[test]
fn a_hook_that_was_accepted_runs_once_whenever_the_end_comes() {
    explore(|| {
        let group = group(1);
        let runs = Arc::new(AtomicUsize::new(0));
        let (count, other) = (Arc::clone(&runs), group.next().clone());
        let adds = thread::spawn(move || {
            let hook = move || {
                count.fetch_add(1, Ordering::Relaxed);
            };
            other.add_shutdown_hook(hook).is_ok()
        });
        let report = group.shutdown_now().wait();
        let accepted = adds.join().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), usize::from(accepted));
        assert_eq!(report.hooks_run(), u64::from(accepted));
    });
}

#[test]
fn who_waits_for_the_request_of_a_shutdown_hears_of_it() {
    explore(|| {
        let group = group(1);
        let loops = vec![Arc::clone(group.next().shared())];
        let waits = thread::spawn(move || block_on(ShutdownRequested::of(loops)));
        let end = group.shutdown_now();
        waits.join().unwrap();
        end.wait();
    });
}

#[test]
fn a_lazy_closure_is_not_left_behind_in_a_loop_that_drains() {
    explore_whole(|| {
        let group = sleeping_group(1);
        let other = group.next().clone();
        let submitter = thread::spawn(move || other.lazy_execute(|| ()).is_ok());
        let report = group.drain(HOUR).wait();
        let accepted = u64::from(submitter.join().unwrap());
        assert_eq!(
            (report.accepted(), report.completed()),
            (accepted, accepted)
        );
    });
}
