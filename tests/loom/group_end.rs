//! The end of a group: what its loops report, and what the group decides, while other threads
//! submit and shut down.

use std::time::{Duration, Instant};

use super::group::{adds_up, group, sleeping_group};
use super::{explore, explore_to, explore_whole, unexplored};
use crate::report::EndCause;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, thread};
use crate::{EventLoop, EventLoopGroup, TerminationReport, block_on};

const HOUR: Duration = Duration::from_secs(3600);

fn causes(report: &TerminationReport) -> Vec<EndCause> {
    report.loops().iter().map(|one| one.cause()).collect()
}

/// Submits a task to `there`, from a task or a hook of a sibling; stores whether it was accepted.
fn visit(there: &EventLoop, accepted: &Arc<AtomicBool>) {
    accepted.store(there.execute(|| ()).is_ok(), Ordering::Relaxed);
}

/// A group of two in which a task of loop 0 is about to submit to loop 1.
fn about_to_visit() -> (EventLoopGroup, Arc<AtomicBool>) {
    let group = sleeping_group(2);
    let accepted = Arc::new(AtomicBool::new(false));
    let (tells, there) = (Arc::clone(&accepted), group.loops()[1].clone());
    unexplored(|| {
        let task = group.loops()[0].spawn(async move { visit(&there, &tells) });
        drop(task);
    });
    (group, accepted)
}

#[test]
fn a_task_finds_its_sibling_to_the_last() {
    explore_whole(|| {
        let (group, accepted) = about_to_visit();
        let report = group.drain(HOUR).wait();
        assert!(accepted.load(Ordering::Relaxed), "the sibling had closed");
        assert_eq!(causes(&report), [EndCause::Drained; 2]);
        assert_eq!((report.completed(), report.rejected()), (2, 0));
    });
}

#[test]
fn a_hook_finds_a_sibling_to_the_last() {
    explore_whole(|| {
        let group = sleeping_group(2);
        let accepted = Arc::new(AtomicBool::new(false));
        let (tells, there) = (Arc::clone(&accepted), group.loops()[1].clone());
        let hook = move || visit(&there, &tells);
        group.loops()[0].add_shutdown_hook(hook).unwrap();
        let report = group.drain(HOUR).wait();
        assert!(accepted.load(Ordering::Relaxed), "the sibling had closed");
        assert_eq!((report.completed(), report.hooks_run()), (1, 1));
        assert_eq!(causes(&report), [EndCause::Drained; 2]);
    });
}

#[test]
fn the_last_handle_that_goes_does_not_end_an_idle_loop_of_a_drain() {
    explore_to(1, || {
        let (group, accepted) = about_to_visit();
        let end = group.drain(HOUR);
        drop(group);
        let report = end.wait();
        assert!(accepted.load(Ordering::Relaxed), "the sibling had closed");
        assert_eq!(causes(&report), [EndCause::Drained; 2]);
    });
}

#[test]
fn a_drain_hears_of_a_sibling_that_is_ended_now() {
    explore_whole(|| {
        let group = sleeping_group(2);
        unexplored(|| drop(group.spawn_on(1, std::future::pending::<()>())));
        let one = group.loops()[1].clone();
        let ends = thread::spawn(move || drop(one.shutdown_now()));
        let report = group.drain(HOUR).wait();
        ends.join().unwrap();
        adds_up(&report);
        assert_eq!(causes(&report), [EndCause::Drained, EndCause::Now]);
        assert_eq!(report.cancelled(), 1);
    });
}

#[test]
fn a_drain_hears_of_a_sibling_that_drains_alone() {
    explore_to(1, || {
        let group = sleeping_group(2);
        let one = group.loops()[1].clone();
        let ends = thread::spawn(move || drop(one.drain(HOUR)));
        let report = group.drain(HOUR).wait();
        ends.join().unwrap();
        assert_eq!(causes(&report), [EndCause::Drained; 2]);
    });
}

#[test]
fn a_drain_does_not_wait_for_a_sibling_at_rest_to_be_quiet() {
    explore_whole(|| {
        let group = sleeping_group(2);
        let one = group.loops()[1].clone();
        unexplored(|| drop(one.shutdown_gracefully_with(HOUR, HOUR).unwrap()));
        let first = group.loops()[0].termination();
        let end = group.drain(HOUR);
        // The clock does not advance: the quiet period of the other loop never ends.
        assert_eq!(first.wait().loops()[0].cause(), EndCause::Drained);
        drop(one.shutdown_now());
        assert_eq!(causes(&end.wait()), [EndCause::Drained, EndCause::Now]);
    });
}

#[test]
fn a_drain_and_a_submitter_from_outside_come_to_an_end_that_adds_up() {
    explore_to(1, || {
        let group = sleeping_group(2);
        let (there, sibling) = (group.loops()[0].clone(), group.loops()[1].clone());
        let refused = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refused);
        let submitter = thread::spawn(move || {
            let parent = there.try_spawn(async move {
                let child = sibling.execute(|| ());
                count.fetch_add(usize::from(child.is_err()), Ordering::Relaxed);
            });
            parent.is_ok()
        });
        let report = group.drain(HOUR).wait();
        let accepted = 2 * u64::from(submitter.join().unwrap());
        assert_eq!(refused.load(Ordering::Relaxed), 0, "a child was refused");
        assert_eq!(
            (report.accepted(), report.completed()),
            (accepted, accepted)
        );
        assert_eq!(causes(&report), [EndCause::Drained; 2]);
    });
}

#[test]
fn now_closes_all_loops_in_one_step() {
    explore_to(1, || {
        // Without threads: the request itself closes them.
        let group = group(2);
        let seats: Vec<_> = group
            .loops()
            .iter()
            .map(|one| one.shared().take_parts())
            .collect();
        let (one, other) = (group.loops()[0].clone(), group.loops()[1].clone());
        let looks = thread::spawn(move || {
            if one.state().is_shutdown() {
                assert!(other.execute(|| ()).is_err(), "the other one accepts");
            }
        });
        drop(group.shutdown_now());
        assert!(group.is_shutdown());
        assert!(group.try_spawn(async {}).is_err());
        looks.join().unwrap();
        drop(seats);
    });
}

#[test]
fn three_loops_that_come_to_rest_at_the_same_time_end_together() {
    explore_to(1, || {
        let group = sleeping_group(3);
        let end = unexplored(|| {
            for index in 0..3 {
                drop(group.spawn_on(index, async {}));
            }
            group.drain(HOUR)
        });
        let report = end.wait();
        assert_eq!(report.completed(), 3);
        assert_eq!(causes(&report), [EndCause::Drained; 3]);
    });
}

#[test]
fn of_three_loops_one_that_is_ended_now_does_not_hold_the_others() {
    explore_to(1, || {
        let group = sleeping_group(3);
        unexplored(|| drop(group.spawn_on(2, std::future::pending::<()>())));
        let one = group.loops()[2].clone();
        let ends = thread::spawn(move || drop(one.shutdown_now()));
        let report = group.drain(HOUR).wait();
        ends.join().unwrap();
        assert_eq!(
            causes(&report),
            [EndCause::Drained, EndCause::Drained, EndCause::Now]
        );
    });
}

#[test]
fn the_deadline_of_a_drain_closes_all_loops_whoever_finds_it_passed() {
    explore_whole(|| {
        let group = sleeping_group(2);
        unexplored(|| drop(group.spawn_on(1, std::future::pending::<()>())));
        let start = Instant::now();
        let report = group.drain(Duration::ZERO).wait();
        assert!(start.elapsed() < HOUR);
        assert_eq!(report.cancelled(), 1);
        assert_eq!(causes(&report), [EndCause::Timeout; 2]);
    });
}

#[test]
fn a_periodic_closure_that_is_cancelled_runs_no_more() {
    explore(|| {
        let group = sleeping_group(1);
        let beat = group.loops()[0].schedule_with_fixed_delay(Duration::ZERO, HOUR, || ());
        let beat = beat.unwrap();
        assert!(beat.cancel(), "it was neither cancelled nor over");
        assert!(block_on(beat).unwrap_err().is_cancelled());
        unexplored(|| group.shutdown_now().wait());
    });
}
