//! Tests of a turn that is driven by hand.

use super::*;
use crate::builder::Builder;
use crate::clock::{Clock, VirtualClock};
use crate::time::sleep;

#[test]
fn time_spent_in_tail_tasks_shortens_the_wait() {
    let clock = Arc::new(VirtualClock::new());
    let group = Builder::new()
        .loops(1)
        .without_io()
        .clock(Clock::Virtual(Arc::clone(&clock)))
        .build()
        .expect("no selector, no error");
    let ev = group.next();
    let mut runner = Runner::new(ev.shared().take_parts().expect("it is free"));
    let entered = context::enter_loop(runner.local()).expect("a test's thread is no loop");
    let ms = Duration::from_millis;
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
