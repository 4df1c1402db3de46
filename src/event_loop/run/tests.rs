//! Tests of a turn that is driven by hand.

use super::*;
use crate::EventLoopGroup;
use crate::builder::Builder;
use crate::clock::{Clock, VirtualClock};
use crate::sync::Ordering;
use crate::time::sleep;

/// A loop that is driven by hand, and its clock.
fn driven() -> (EventLoopGroup, Runner, LoopGuard, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new());
    let group = Builder::new()
        .loops(1)
        .without_io()
        .clock(Clock::Virtual(Arc::clone(&clock)))
        .build()
        .expect("no selector, no error");
    let parts = group.next().shared().take_parts().expect("it is free");
    let runner = Runner::new(parts);
    let entered = context::enter_loop(runner.local()).expect("a test's thread is no loop");
    (group, runner, entered, clock)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn time_spent_in_tail_tasks_shortens_the_wait() {
    let (group, mut runner, entered, clock) = driven();
    let ev = group.next();
    drop(ev.spawn(sleep(ms(50))));
    let (slow, end) = (Arc::clone(&clock), clock.now() + ms(40));
    ev.execute_after_iteration(move || slow.move_to(end))
        .expect("the loop is open");
    let Next::Rest(Some(until)) = runner.work() else {
        panic!("a timer is armed")
    };
    assert_eq!(until.deadline - until.now, ms(10));
    runner.end(EndCause::Now, None, None, entered);
}

#[test]
fn a_reading_is_good_until_something_runs() {
    let (group, mut runner, entered, clock) = driven();
    let first = runner.read().now;
    clock.move_to(first + ms(1));
    assert_eq!(runner.recent().now, first);
    group.next().execute(|| ()).expect("the loop is open");
    runner.work();
    assert_eq!(runner.recent().now, first + ms(1));
    clock.move_to(first + ms(2));
    runner.forget_reading();
    assert_eq!(runner.recent().now, first + ms(2));
    runner.end(EndCause::Now, None, None, entered);
}

#[test]
fn a_loop_reads_the_clock_twice_per_wait_at_most() {
    const WAITS: u64 = 100;
    let (group, mut runner, entered, clock) = driven();
    let ev = group.next();
    let before = clock.reads.load(Ordering::Relaxed);
    for _ in 0..WAITS {
        drop(ev.spawn(async {}));
        ev.execute(|| ()).expect("the loop is open");
        let Next::Rest(None) = runner.work() else {
            panic!("there is no timer and no end")
        };
        assert!(runner.try_sleep(None), "there is nothing else to do");
        runner.end_sleep();
    }
    let reads = clock.reads.load(Ordering::Relaxed) - before;
    assert!(reads <= 2 * WAITS, "{reads} reads in {WAITS} waits");
    assert_eq!(group.metrics().loops()[0].completed(), 2 * WAITS);
    runner.end(EndCause::Now, None, None, entered);
}
