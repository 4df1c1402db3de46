//! The inbox, step by step.

use std::time::Duration;

use super::*;
use crate::sync::plain;

/// A gate with a state and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Door {
    Open,
    Hurried,
    Draining,
    Closed,
}

impl Gate for Door {
    fn takes_new(&self) -> bool {
        *self < Door::Draining
    }

    fn takes_wakes(&self) -> bool {
        *self != Door::Closed
    }

    fn hurries(&self) -> bool {
        *self == Door::Hurried
    }

    fn shown(&self) -> u8 {
        *self as u8
    }
}

fn inbox() -> Inbox<u32, Vec<u32>, char, Door> {
    /// Keeps what is leaked within reach of a leak checker.
    static KEPT: plain::Mutex<Vec<&'static Shown>> = plain::Mutex::new(Vec::new());
    let shown: &'static Shown = Box::leak(Box::default());
    KEPT.lock().push(shown);
    Inbox::new(Door::Open, shown)
}

fn set(inbox: &Inbox<u32, Vec<u32>, char, Door>, door: Door) {
    inbox.lock().edit(|gate| *gate = door);
}

fn set_if_empty(inbox: &Inbox<u32, Vec<u32>, char, Door>, door: Door) -> bool {
    let mut guard = inbox.lock();
    let empty = guard.is_empty();
    if empty {
        guard.edit(|gate| *gate = door);
    }
    empty
}

fn drain(inbox: &Inbox<u32, Vec<u32>, char, Door>) -> Batch<u32, Vec<u32>, char> {
    let mut batch = Batch::new();
    inbox.drain(&mut batch);
    batch
}

#[test]
fn one_ring_per_sleep_whatever_the_number_of_producers() {
    let inbox = inbox();
    assert!(inbox.try_sleep(None));
    assert_eq!(
        inbox.push_new_with(Lane::Main, Urgency::Now, || 1),
        Some(Ring::Needed)
    );
    for item in 2..12 {
        assert_eq!(
            inbox.push_new_with(Lane::Main, Urgency::Now, || item),
            Some(Ring::NotNeeded)
        );
    }
    assert_eq!(
        inbox.push_wake(12, WakeSender::Outside),
        Ok(Ring::NotNeeded)
    );
    assert_eq!(inbox.post('x', Urgency::Now), Ring::NotNeeded);
    let batch = drain(&inbox);
    assert_eq!(batch.main, (1..=12).collect::<Vec<_>>());
    assert_eq!(batch.messages, ['x']);
}

#[test]
fn any_number_of_nudges_is_one_turn() {
    let inbox = inbox();
    assert!(inbox.try_sleep(None));
    assert_eq!(inbox.lock().nudge(), Ring::Needed);
    assert_eq!(inbox.lock().nudge(), Ring::NotNeeded);
    assert!(!inbox.try_sleep(None), "a turn has to come first");
    drain(&inbox);
    assert!(inbox.try_sleep(None));
}

#[test]
fn it_closes_to_new_items_only_when_it_is_empty() {
    let inbox = inbox();
    let push = |item| inbox.push_new_with(Lane::Main, Urgency::Now, || item);
    assert!(push(1).is_some());
    assert!(!set_if_empty(&inbox, Door::Draining));
    assert!(push(2).is_some(), "still open");
    assert_eq!(drain(&inbox).main, [1, 2]);
    assert!(set_if_empty(&inbox, Door::Draining));
    assert_eq!(push(3), None);
}

#[test]
fn it_refuses_to_sleep_on_mail() {
    let inbox = inbox();
    assert_eq!(
        inbox.push_new_with(Lane::Tail, Urgency::Now, || 1),
        Some(Ring::NotNeeded)
    );
    assert!(!inbox.try_sleep(None));
    assert_eq!(drain(&inbox).tail, [1]);
    assert!(inbox.try_sleep(None));
}

#[test]
fn a_lazy_item_does_not_ring_and_comes_out_before_the_one_that_does() {
    let inbox = inbox();
    assert!(inbox.try_sleep(None));
    assert_eq!(
        inbox.push_new_with(Lane::Main, Urgency::Lazy, || 1),
        Some(Ring::NotNeeded)
    );
    assert_eq!(
        inbox.push_new_with(Lane::Main, Urgency::Now, || 2),
        Some(Ring::Needed)
    );
    assert_eq!(drain(&inbox).main, [1, 2]);
}

#[test]
fn an_item_for_later_rings_only_a_sleeper_that_would_be_late() {
    let inbox = inbox();
    let at = |seconds| Instant::now() + std::time::Duration::from_secs(seconds);
    let push = |urgency| inbox.push_new_with(Lane::Main, urgency, || 1);
    let wakes_at = at(100);
    assert!(inbox.try_sleep(Some(wakes_at)));
    assert_eq!(push(Urgency::By(at(200))), Some(Ring::NotNeeded));
    assert_eq!(
        push(Urgency::By(wakes_at)),
        Some(Ring::NotNeeded),
        "just in time"
    );
    assert_eq!(push(Urgency::By(at(50))), Some(Ring::Needed));
    drain(&inbox);
    assert!(inbox.try_sleep(None), "it sleeps without a deadline now");
    assert_eq!(push(Urgency::By(at(1000))), Some(Ring::Needed));
}

#[test]
fn a_loop_that_sleeps_on_lazy_items_is_hurried_once() {
    let inbox = inbox();
    assert_eq!(inbox.hurry(), Ring::NotNeeded, "it is awake");
    assert!(inbox.try_sleep(None));
    let lazy = inbox.push_new_with(Lane::Main, Urgency::Lazy, || 1);
    assert_eq!(lazy, Some(Ring::NotNeeded));
    assert_eq!(inbox.hurry(), Ring::Needed);
    assert_eq!(inbox.hurry(), Ring::NotNeeded);
}

#[test]
fn the_gate_refuses_new_items_first_and_wakes_last() {
    let inbox = inbox();
    set(&inbox, Door::Draining);
    assert_eq!(inbox.push_new_with(Lane::Main, Urgency::Now, || 1), None);
    assert_eq!(inbox.push_wake(2, WakeSender::Outside), Ok(Ring::NotNeeded));
    assert!(!set_if_empty(&inbox, Door::Closed), "a wake is queued");
    assert_eq!(drain(&inbox).main, [2]);
    assert!(set_if_empty(&inbox, Door::Closed));
    assert_eq!(inbox.push_wake(3, WakeSender::Outside), Err(3));
    assert_eq!(inbox.post('x', Urgency::Now), Ring::NotNeeded);
    assert_eq!(inbox.accepted(), 0);
}

#[test]
fn a_refused_item_is_never_constructed() {
    let inbox = inbox();
    set(&inbox, Door::Draining);
    let make = || panic!("constructed although refused");
    assert_eq!(inbox.push_new_with(Lane::Main, Urgency::Now, make), None);
}

#[test]
fn a_ring_that_failed_is_tried_again_by_the_next_producer() {
    let inbox = inbox();
    assert!(inbox.try_sleep(None));
    assert_eq!(inbox.push_wake(1, WakeSender::Outside), Ok(Ring::Needed));
    inbox.ring_failed();
    assert_eq!(inbox.push_wake(2, WakeSender::Outside), Ok(Ring::Needed));
}

#[test]
fn it_counts_new_items_and_not_wakes() {
    let inbox = inbox();
    for (lane, urgency) in [
        (Lane::Main, Urgency::Now),
        (Lane::Tail, Urgency::Now),
        (Lane::Main, Urgency::Lazy),
    ] {
        assert!(inbox.push_new_with(lane, urgency, || 1).is_some());
    }
    assert!(inbox.push_wake(1, WakeSender::Outside).is_ok());
    assert_eq!(inbox.accepted(), 3);
    set(&inbox, Door::Draining);
    assert_eq!(inbox.push_new_with(Lane::Main, Urgency::Now, || 1), None);
    assert_eq!(inbox.accepted(), 3);
}

#[test]
fn mail_is_visible_until_it_is_drained() {
    let inbox = inbox();
    assert!(!inbox.has_mail());
    assert!(!inbox.drain(&mut Batch::new()));
    assert_eq!(inbox.post('x', Urgency::Lazy), Ring::NotNeeded);
    assert!(inbox.has_mail());
    assert!(
        !inbox.try_sleep(None),
        "a message alone keeps the loop awake"
    );
    assert!(inbox.drain(&mut Batch::new()));
    assert!(!inbox.has_mail());
    assert!(inbox.try_sleep(None));
}

#[test]
fn a_loop_that_is_awake_is_not_rung() {
    let inbox = inbox();
    assert!(inbox.try_sleep(None));
    inbox.awake();
    assert_eq!(inbox.push_wake(1, WakeSender::Outside), Ok(Ring::NotNeeded));
    assert_eq!(inbox.rings.get(), 0);
}

#[test]
fn an_item_in_either_lane_keeps_the_gate_where_it_is() {
    for lane in [Lane::Main, Lane::Tail] {
        let inbox = inbox();
        assert!(inbox.push_new_with(lane, Urgency::Now, || 1).is_some());
        assert!(!set_if_empty(&inbox, Door::Draining));
        assert!(!set_if_empty(&inbox, Door::Closed));
        assert!(inbox.push_new_with(lane, Urgency::Now, || 2).is_some());
        drain(&inbox);
        assert!(set_if_empty(&inbox, Door::Draining) && set_if_empty(&inbox, Door::Closed));
        assert_eq!(inbox.push_wake(3, WakeSender::Outside), Err(3));
    }
}

#[test]
fn nothing_is_lazy_behind_a_gate_that_hurries() {
    let inbox = inbox();
    set(&inbox, Door::Hurried);
    let later = Instant::now() + Duration::from_secs(100);
    for urgency in [Urgency::Lazy, Urgency::By(later)] {
        assert!(inbox.try_sleep(Some(later)));
        let pushed = inbox.push_new_with(Lane::Main, urgency, || 1);
        assert_eq!(pushed, Some(Ring::Needed));
        drain(&inbox);
    }
    assert!(inbox.try_sleep(None));
    assert_eq!(inbox.post('x', Urgency::Lazy), Ring::Needed);
}

#[test]
fn the_inbox_shows_the_current_state_of_its_gate() {
    let inbox = inbox();
    for door in [Door::Hurried, Door::Draining, Door::Closed] {
        set(&inbox, door);
        assert_eq!(inbox.shown.get(), door as u8);
        assert_eq!(*inbox.lock().gate(), door);
    }
}

#[test]
fn a_message_that_is_new_work_is_counted_and_refused_like_work() {
    let inbox = inbox();
    assert_eq!(inbox.post_new_with(|| 'x'), Some(Ring::NotNeeded));
    assert_eq!(inbox.accepted(), 1);
    assert!(!set_if_empty(&inbox, Door::Draining));
    assert_eq!(drain(&inbox).messages, ['x']);
    set(&inbox, Door::Draining);
    let made = || panic!("constructed although refused");
    assert_eq!(inbox.post_new_with(made), None);
}

#[test]
fn a_large_inbox_frees_its_memory_before_a_sleep() {
    let inbox = inbox();
    let mut batch = Batch::new();
    for _ in 0..2 {
        for item in 0..10_000 {
            assert!(
                inbox
                    .push_new_with(Lane::Main, Urgency::Now, || item)
                    .is_some()
            );
        }
        assert!(inbox.drain(&mut batch));
        batch.main.clear();
    }
    assert!(
        inbox
            .push_new_with(Lane::Main, Urgency::Now, || 0)
            .is_some()
    );
    assert!(!inbox.shrink(), "something is inside");
    assert!(inbox.drain(&mut batch));
    batch.main.clear();
    assert!(batch.shrink(KEPT_CAPACITY) && inbox.shrink());
    assert!(inbox.try_sleep(None));
    let inside = inbox.state.lock().mail.main.capacity();
    assert!(batch.main.capacity() <= KEPT_CAPACITY && inside <= KEPT_CAPACITY);
}

/// Lets a new item of a run in.
fn push_run(inbox: &Inbox<u32, Vec<u32>, char, Door>, item: u32) -> Option<Ring> {
    inbox.push_run_with(Urgency::Now, |places| match places.last {
        Some(run) => {
            run.push(item);
            None
        }
        None => Some(vec![item]),
    })
}

#[test]
fn an_item_joins_the_last_run_unless_something_has_come_since_that_is_in_order_with_it() {
    let inbox = inbox();
    for item in [1, 2] {
        assert!(push_run(&inbox, item).is_some());
    }
    // Neither tail items nor messages are in order with it.
    let _ = inbox.push_new_with(Lane::Tail, Urgency::Now, || 70);
    let _ = inbox.post('m', Urgency::Now);
    assert!(push_run(&inbox, 3).is_some());
    let _ = inbox.push_new_with(Lane::Main, Urgency::Now, || 10);
    for item in [4, 5] {
        assert!(push_run(&inbox, item).is_some());
    }
    let _ = inbox.push_wake(11, WakeSender::Outside);
    assert!(push_run(&inbox, 6).is_some());
    let _ = inbox.push_new_with(Lane::Timed, Urgency::Now, || 80);
    assert!(push_run(&inbox, 7).is_some());
    assert!(push_run(&inbox, 8).is_some());
    assert_eq!(inbox.accepted(), 11);
    let batch = drain(&inbox);
    assert_eq!(batch.main, [10, 11]);
    let runs = [
        (0, vec![1, 2, 3]),
        (1, vec![4, 5]),
        (2, vec![6]),
        (2, vec![7, 8]),
    ];
    assert_eq!(batch.runs, runs);
    assert_eq!(batch.timed, [(Before { items: 2, runs: 3 }, 80)]);
    // What was drained is not joined.
    assert!(push_run(&inbox, 9).is_some());
    assert_eq!(drain(&inbox).runs, [(0, vec![9])]);
}

#[test]
fn a_run_is_let_in_and_rings_as_any_item() {
    let inbox = inbox();
    assert!(inbox.try_sleep(None));
    assert_eq!(push_run(&inbox, 1), Some(Ring::Needed));
    assert_eq!(push_run(&inbox, 2), Some(Ring::NotNeeded));
    assert!(!inbox.try_sleep(None), "something is inside");
    drain(&inbox);
    set(&inbox, Door::Closed);
    let refused = inbox.push_run_with(Urgency::Now, |_| unreachable!("the gate is closed"));
    assert_eq!(refused, None);
    assert_eq!(inbox.accepted(), 2);
}
