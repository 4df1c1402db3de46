//! Whole loops: the same turn, inbox, tasks and threads as in a program; they park instead of polling a
//! selector.

use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::{explore, explore_whole, unexplored};
use crate::clock::{Clock, VirtualClock};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, thread};
use crate::{Builder, EventLoopGroup, TerminationReport, block_on};

/// A group whose clock does not advance.
pub(super) fn group(loops: usize) -> EventLoopGroup {
    let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
    let builder = Builder::new().loops(loops).without_io().clock(clock);
    builder.build().unwrap()
}

/// Like [`group`], with its loops started and asleep.
pub(super) fn sleeping_group(loops: usize) -> EventLoopGroup {
    unexplored(|| {
        let group = group(loops);
        group.start().unwrap();
        let awake = |one: &crate::EventLoop| one.shared().gauges.parks.get() == 0;
        while group.loops().iter().any(awake) {
            thread::yield_now();
        }
        group
    })
}

/// Ends a group that has nothing left to do.
fn end(group: &EventLoopGroup) -> TerminationReport {
    unexplored(|| group.shutdown_now().wait())
}

pub(super) fn adds_up(report: &TerminationReport) {
    let ended = report.completed() + report.panicked() + report.cancelled();
    assert_eq!(report.accepted(), ended);
}

/// A flag that a task waits for.
#[derive(Default)]
pub(super) struct Flag(Mutex<(bool, Option<Waker>)>);

impl Flag {
    pub(super) fn raise(&self) {
        let mut inside = self.0.lock();
        inside.0 = true;
        let waker = inside.1.take();
        drop(inside);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) async fn raised(&self) {
        poll_fn(|cx| {
            let mut inside = self.0.lock();
            if inside.0 {
                return Poll::Ready(());
            }
            inside.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[test]
fn a_task_from_outside_runs_and_its_handle_resolves() {
    explore(|| {
        let group = group(1);
        assert_eq!(block_on(group.spawn(async { 1 })).unwrap(), 1);
        let report = end(&group);
        assert_eq!((report.accepted(), report.completed()), (1, 1));
    });
}

#[test]
fn a_task_that_waits_is_run_by_a_wake_from_elsewhere() {
    explore(|| {
        let group = sleeping_group(1);
        let flag = Arc::new(Flag::default());
        let raises = Arc::clone(&flag);
        let task = group.spawn(async move { flag.raised().await });
        raises.raise();
        block_on(task).unwrap();
        let report = end(&group);
        assert_eq!((report.accepted(), report.completed()), (1, 1));
    });
}

#[test]
fn two_who_submit_to_an_unused_loop_start_one_thread() {
    explore_whole(|| {
        let group = group(1);
        let other = group.next().clone();
        let second = thread::spawn(move || other.submit(|| 2));
        let first = group.spawn(async { 1 });
        let second = second.join().unwrap();
        unexplored(|| {
            assert_eq!(block_on(first).unwrap(), 1);
            assert_eq!(block_on(second).unwrap(), 2);
        });
        assert_eq!(end(&group).completed(), 2);
    });
}

#[test]
fn loops_hand_work_to_each_other_and_both_are_heard() {
    explore(|| {
        let group = sleeping_group(2);
        let (one, other) = (group.loops()[0].clone(), group.loops()[1].clone());
        let there = one.spawn(async move { other.submit(|| 1).await.unwrap() + 1 });
        assert_eq!(block_on(there).unwrap(), 2);
        let report = end(&group);
        assert_eq!(report.completed(), 2);
    });
}

#[test]
fn a_task_that_is_cancelled_while_it_is_woken_ends_once() {
    explore(|| {
        let group = sleeping_group(1);
        let flag = Arc::new(Flag::default());
        let raises = Arc::clone(&flag);
        let task = group.spawn(async move { flag.raised().await });
        let waker = thread::spawn(move || raises.raise());
        let completed = block_on(task.cancel()).is_some();
        waker.join().unwrap();
        let report = end(&group);
        adds_up(&report);
        assert_eq!(report.completed(), u64::from(completed));
    });
}

#[test]
fn a_scheduled_closure_runs_if_and_only_if_it_was_not_cancelled() {
    explore(|| {
        let group = sleeping_group(1);
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let scheduled = group.next().schedule(Duration::ZERO, move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let cancelled = scheduled.cancel();
        let result = block_on(scheduled);
        assert_eq!(result.is_err(), cancelled);
        end(&group);
        assert_eq!(runs.load(Ordering::Relaxed), usize::from(!cancelled));
    });
}

#[test]
fn a_value_bound_to_a_loop_is_dropped_once_on_that_loop() {
    explore(|| {
        struct Bound(crate::EventLoop, Arc<AtomicUsize>);
        impl Drop for Bound {
            fn drop(&mut self) {
                let here = usize::from(self.0.in_event_loop());
                self.1.fetch_add(1 + 10 * here, Ordering::Relaxed);
            }
        }
        let group = sleeping_group(1);
        let drops = Arc::new(AtomicUsize::new(0));
        let (home, count) = (group.next().clone(), Arc::clone(&drops));
        let bound = group.next().bind(move || Bound(home, count));
        unexplored(|| block_on(bound.with(|_| ())).unwrap());
        let end = group.shutdown_now();
        drop(bound);
        end.wait();
        assert_eq!(drops.load(Ordering::Relaxed), 11, "once, and at home");
    });
}
