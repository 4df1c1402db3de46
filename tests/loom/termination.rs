//! The termination of a group, and the futures and threads that wait for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::{explore, explore_core};
use crate::block_on;
use crate::report::{EndCause, Figures, LoopReport};
use crate::sync::{Arc, thread};
use crate::termination::Termination;

/// Child `index` ends, having accepted one task.
fn end(termination: &Termination, index: usize) {
    let now = Instant::now();
    let report = LoopReport {
        index,
        started: true,
        cause: EndCause::Now,
        error: None,
        requested_at: now,
        ended_at: now,
        paused: false,
        figures: Figures {
            accepted: 1,
            completed: 1,
            ..Figures::default()
        },
        rejected: Arc::default(),
        left: Arc::default(),
    };
    termination.child_done(index, report);
}

fn child(termination: &Arc<Termination>, index: usize) -> thread::JoinHandle<()> {
    let termination = Arc::clone(termination);
    thread::spawn(move || end(&termination, index))
}

#[test]
fn the_last_child_makes_the_report_and_who_awaits_it_is_woken() {
    explore_core(|| {
        let termination = Termination::new(2, None);
        let children = [child(&termination, 0), child(&termination, 1)];
        let report = block_on(termination.future());
        assert_eq!(report.accepted(), 2, "both are in it");
        for child in children {
            child.join().unwrap();
        }
    });
}

#[test]
fn who_waits_for_the_end_on_a_thread_is_never_left_behind() {
    explore(|| {
        let termination = Termination::new(2, None);
        let children = [child(&termination, 0), child(&termination, 1)];
        let observer = termination.future();
        let other = thread::spawn(move || observer.wait().accepted());
        assert_eq!(termination.future().wait().accepted(), 2);
        assert_eq!(other.join().unwrap(), 2);
        for child in children {
            child.join().unwrap();
        }
    });
}

#[test]
fn many_futures_hear_of_one_end() {
    explore(|| {
        let termination = Termination::new(1, None);
        let ending = child(&termination, 0);
        let observer = termination.future();
        let other = thread::spawn(move || block_on(observer).accepted());
        assert_eq!(block_on(termination.future()).accepted(), 1);
        assert_eq!(other.join().unwrap(), 1);
        ending.join().unwrap();
    });
}

#[test]
fn a_future_that_is_dropped_leaves_the_place_of_another_alone() {
    explore(|| {
        let termination = Termination::new(1, None);
        let mut dropped = termination.future();
        let polled = Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
        let ending = child(&termination, 0);
        let observer = termination.future();
        let other = thread::spawn(move || block_on(observer).accepted());
        drop(dropped); // before the end, or after it, when its key is stale
        assert_eq!(other.join().unwrap(), 1);
        ending.join().unwrap();
    });
}
