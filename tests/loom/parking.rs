//! Loops that become active, are set aside and give their threads back, and what races with that.
//!
//! - Time advances only where a model moves the clock, and wakes nobody: a loop that would wake up to look,
//!   or to park, is told to take a turn.
//! - Some models park a loop that has not run, as [`run_loop`](crate::event_loop::run::run_loop) does after
//!   its patience. In those that begin with `leaving` a loop has run, and its thread takes the last turn,
//!   leaves and parks it.
//! - A model with a selector never waits in it: its loops run only to end, on the thread of the model.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::group::adds_up;
use super::{explore, explore_core, explore_to, explore_whole, unexplored};
use crate::clock::{Clock, VirtualClock};
use crate::event_loop::requests::{EndFlag, Request, Wish};
use crate::event_loop::run;
use crate::event_loop::shared::{BY_HAND, BY_LOAD, Shared, Watched};
use crate::sync::{Arc, Mutex, thread};
use crate::task_id::{AbortTarget, TaskId};
use crate::{Builder, Elastic, EventLoop, EventLoopGroup, LoopThread, block_on};

const PATIENCE: Duration = Duration::from_secs(1);

/// The settings of an elastic group of two loops, and its clock.
fn settings() -> (Builder, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new());
    let elastic = Elastic {
        min: 1,
        max: 2,
        patience: PATIENCE,
        ..Elastic::default()
    };
    let builder = Builder::new().elastic(elastic);
    (builder.clock(Clock::Virtual(Arc::clone(&clock))), clock)
}

/// An elastic group of two loops, and a thread that parks the second one and runs it if it cannot.
fn parking_group() -> (EventLoopGroup, EventLoop, thread::JoinHandle<()>) {
    unexplored(|| {
        let group = settings().0.without_io().build().unwrap();
        let ev = group.loops()[1].clone();
        let parts = ev.shared().take_parts().expect("it has no thread yet");
        let body = move || {
            if let Err(parts) = Shared::park(parts) {
                run::run_loop(parts);
            }
        };
        let parker = thread::Builder::new().spawn(body).unwrap();
        (group, ev, parker)
    })
}

/// An elastic group of two loops of which the second one runs and sleeps, and its clock.
fn sleeping() -> (EventLoopGroup, Arc<VirtualClock>) {
    unexplored(|| {
        let (builder, clock) = settings();
        let group = builder.without_io().build().unwrap();
        let shared = group.loops()[1].shared();
        shared.ensure_started().unwrap();
        while shared.gauges.parks.get() == 0 {
            thread::yield_now();
        }
        (group, clock)
    })
}

fn look(group: &EventLoopGroup, clock: &VirtualClock) {
    let scaler = group.core().scaler.as_ref().expect("it is elastic");
    scaler.look_if_due(group.loops(), clock.now());
}

/// Two active loops, of which the next look sets the second one aside. That one sleeps, and is chosen next;
/// the first one is not used yet.
fn about_to_be_set_aside() -> (EventLoopGroup, Arc<VirtualClock>) {
    let (group, clock) = sleeping();
    unexplored(|| {
        group.loops()[1].shared().resume(BY_LOAD);
        look(&group, &clock);
        clock.move_to(clock.now() + PATIENCE);
        assert_eq!(group.next().index(), 0);
    });
    (group, clock)
}

#[test]
fn a_submission_that_races_with_parking_runs() {
    explore_whole(|| {
        let (group, ev, parker) = parking_group();
        let handle = ev.spawn(async { 7 });
        assert_eq!(block_on(handle).unwrap(), 7);
        let report = unexplored(|| group.shutdown_now().wait());
        unexplored(|| parker.join().unwrap());
        assert_eq!((report.accepted(), report.completed()), (1, 1));
    });
}

#[test]
fn two_submissions_to_a_parked_loop_start_one_thread() {
    explore_whole(|| {
        let (group, ev, parker) = parking_group();
        unexplored(|| parker.join().unwrap());
        assert!(ev.shared().is_parked());
        let other = ev.clone();
        let second = thread::Builder::new().spawn(move || block_on(other.spawn(async {})).unwrap());
        block_on(ev.spawn(async {})).unwrap();
        second.unwrap().join().unwrap();
        let report = unexplored(|| group.shutdown_now().wait());
        assert_eq!((report.accepted(), report.completed()), (2, 2));
    });
}

#[test]
fn an_end_that_races_with_parking_is_carried_out() {
    explore_whole(|| {
        let (group, _ev, parker) = parking_group();
        let report = group.shutdown_now().wait();
        unexplored(|| parker.join().unwrap());
        assert!(report.is_clean() && report.loops()[1].started());
    });
}

#[test]
fn an_end_that_races_with_a_submission_to_a_parked_loop_accounts_for_it() {
    explore_whole(|| {
        let (group, ev, parker) = parking_group();
        unexplored(|| parker.join().unwrap());
        let submitter = thread::Builder::new().spawn(move || block_on(ev.spawn(async {})).is_ok());
        let report = group.drain(Duration::from_secs(1)).wait();
        let ran = submitter.unwrap().join().unwrap();
        adds_up(&report);
        assert_eq!(report.completed(), u64::from(ran));
        assert_eq!(report.cancelled(), 0, "it was accepted in time");
    });
}

/// A group whose second loop has run, and whose thread is about to leave it.
fn leaving() -> EventLoopGroup {
    let (group, clock) = sleeping();
    unexplored(|| {
        clock.move_to(clock.now() + PATIENCE);
        group.loops()[1].shared().nudge();
    });
    group
}

#[test]
fn a_loop_that_has_run_gives_its_thread_back_and_gets_another_one() {
    explore(|| {
        let group = leaving();
        let task = group.loops()[1].spawn(async { 7 });
        assert_eq!(block_on(task).unwrap(), 7);
        let report = unexplored(|| group.shutdown_now().wait());
        assert_eq!((report.accepted(), report.completed()), (1, 1));
    });
}

#[test]
fn a_loop_that_is_needed_again_while_its_thread_leaves_runs_what_it_was_chosen_for() {
    explore_whole(|| {
        let group = leaving();
        unexplored(|| assert_eq!(group.next().index(), 0));
        group.loops()[1].shared().resume(BY_LOAD);
        // By that one, unless its last turn has set it aside again.
        assert_eq!(block_on(group.spawn(async { 7 })).unwrap(), 7);
        let report = unexplored(|| group.shutdown_now().wait());
        assert_eq!((report.accepted(), report.completed()), (1, 1));
    });
}

#[test]
fn an_end_that_meets_a_loop_whose_thread_leaves_is_carried_out() {
    explore_whole(|| {
        let group = leaving();
        let report = group.drain(PATIENCE).wait();
        assert!(report.is_clean() && report.loops()[1].started());
    });
}

#[test]
fn a_descriptor_that_is_registered_while_its_loop_parks_is_not_left_alone() {
    explore_core(|| {
        let (group, ev, started, parker) = unexplored(|| {
            let started = Arc::new(Mutex::new(None));
            let slot = Arc::clone(&started);
            let factory = move |thread: LoopThread| {
                *slot.lock() = Some(thread);
                Ok(())
            };
            let group = settings().0.thread_factory(factory).build().unwrap();
            let ev = group.loops()[1].clone();
            let parts = ev.shared().take_parts().expect("it has no thread yet");
            let parker = thread::Builder::new().spawn(move || Shared::park(parts).err());
            (group, ev, started, parker.unwrap())
        });
        let (socket, _peer) = UnixStream::pair().unwrap();
        let watched = Arc::new(Watched::default());
        watched.register(ev.shared(), socket.as_raw_fd()).unwrap();
        let kept = parker.join().unwrap();
        let restarted = started.lock().take();
        assert!(
            kept.is_some() != restarted.is_some(),
            "one thread watches it"
        );
        unexplored(|| {
            watched.deregister();
            let end = group.shutdown_now();
            kept.into_iter().for_each(run::run_loop);
            restarted.into_iter().for_each(LoopThread::run);
            assert!(end.wait().is_clean());
        });
    });
}

#[test]
fn a_request_that_meets_a_loop_that_parks_is_answered() {
    explore(|| {
        let (group, ev, parker) = parking_group();
        let flag = Arc::<EndFlag>::default();
        let target = AbortTarget {
            id: TaskId::next(),
            address: 64,
        };
        let wish = Wish::Watch(Arc::clone(&flag));
        ev.shared().post_request(Request { target, wish });
        let report = unexplored(|| {
            block_on(ev.spawn(async {})).unwrap();
            let end = group.shutdown_now();
            parker.join().unwrap();
            end.wait()
        });
        assert!(flag.has_ended(), "its task has ended before");
        assert_eq!((report.accepted(), report.completed()), (1, 1));
    });
}

#[test]
fn loops_that_are_paused_for_two_reasons_are_counted_and_chosen_exactly() {
    explore_core(|| {
        let group = unexplored(|| settings().0.without_io().build().unwrap());
        let by_hand = group.loops()[1].clone();
        let user = thread::spawn(move || {
            by_hand.pause();
            by_hand.shared().resume(BY_HAND);
        });
        let one = group.loops()[1].shared();
        one.resume(BY_LOAD);
        let seen = group.next().index();
        one.pause(BY_LOAD);
        assert_eq!(group.next().index(), 0, "the only one that is not paused");
        user.join().unwrap();
        assert!(seen < 2 && one.is_set_aside_only());
        one.resume(BY_LOAD);
        assert!(
            !group.core().end.some_set_apart(),
            "none is paused any more"
        );
    });
}

#[test]
fn looks_that_meet_take_one_step() {
    explore(|| {
        let (group, clock) = unexplored(|| {
            let (builder, clock) = settings();
            let group = builder.without_io().build().unwrap();
            // A loop works for a patience period, and the group has looked at its beginning.
            let pulse = &group.loops()[0].shared().pulse;
            pulse.wake(pulse.tick(clock.now()));
            look(&group, &clock);
            clock.move_to(clock.now() + PATIENCE);
            (group, clock)
        });
        let (other, same) = (group.clone(), Arc::clone(&clock));
        let second = thread::spawn(move || look(&other, &same));
        look(&group, &clock);
        let chosen = [group.next().index(), group.next().index()];
        second.join().unwrap();
        assert!(!group.loops()[1].is_paused(), "there is work for two");
        assert!(chosen.iter().all(|&index| index < 2));
    });
}

#[test]
fn a_loop_that_is_set_aside_by_load_runs_what_it_was_chosen_for() {
    explore_to(1, || {
        let (group, clock) = about_to_be_set_aside();
        let looking = group.clone();
        let scaler = thread::spawn(move || look(&looking, &clock));
        assert_eq!(block_on(group.spawn(async { 7 })).unwrap(), 7);
        scaler.join().unwrap();
        let report = unexplored(|| group.shutdown_now().wait());
        // By the thread, or by the loop itself after a turn.
        assert!(group.loops()[1].shared().is_set_aside());
        assert_eq!((report.accepted(), report.completed()), (1, 1));
    });
}

#[test]
fn a_loop_that_is_set_aside_by_load_while_it_drains_comes_to_its_end() {
    explore_to(1, || {
        let (group, clock) = about_to_be_set_aside();
        let looking = group.clone();
        let scaler = thread::spawn(move || look(&looking, &clock));
        drop(group.loops()[1].drain(PATIENCE).wait());
        scaler.join().unwrap();
        let report = unexplored(|| group.shutdown_now().wait());
        assert!(report.is_clean() && report.loops()[1].started());
    });
}
