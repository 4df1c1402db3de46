//! The inbox, its sleep and its gate; a parker is the bell.

use std::time::{Duration, Instant};

use super::{explore, explore_core};
use crate::event_loop::inbox::{Batch, Gate, Inbox, Lane, Ring, Urgency, WakeSender};
use crate::park::Parker;
use crate::sync::{Arc, AtomicBool, Ordering, thread};

/// A gate with a state and nothing else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Open,
    Draining,
    Closed,
}

impl Gate for Door {
    fn takes_new(&self) -> bool {
        *self == Door::Open
    }

    fn takes_wakes(&self) -> bool {
        *self != Door::Closed
    }

    fn hurries(&self) -> bool {
        false
    }

    fn shown(&self) -> u8 {
        *self as u8
    }
}

/// An inbox and its bell, as a loop and its producers use them.
#[derive(Clone)]
struct Post {
    inbox: Arc<Inbox<u32, Vec<u32>, char, Door>>,
    bell: Arc<Parker>,
}

impl Post {
    fn new() -> Post {
        Post {
            inbox: Arc::new(Inbox::new(Door::Open, Box::leak(Box::default()))),
            bell: Arc::new(Parker::new()),
        }
    }

    fn ring_if_needed(&self, ring: Ring) {
        if ring == Ring::Needed {
            self.bell.unpark();
        }
    }

    fn submit(&self, item: u32, urgency: Urgency) -> bool {
        let ring = self.inbox.push_new_with(Lane::Main, urgency, || item);
        ring.map(|ring| self.ring_if_needed(ring)).is_some()
    }

    fn wake(&self, item: u32) -> bool {
        let pushed = self.inbox.push_wake(item, WakeSender::Outside);
        pushed.map(|ring| self.ring_if_needed(ring)).is_ok()
    }

    /// Lets an item in that joins the run before it.
    fn execute(&self, item: u32) -> bool {
        let ring = self
            .inbox
            .push_run_with(Urgency::Now, |places| match places.last {
                Some(run) => {
                    run.push(item);
                    None
                }
                None => Some(vec![item]),
            });
        ring.map(|ring| self.ring_if_needed(ring)).is_some()
    }

    /// Moves the gate, if the inbox is empty.
    fn set_if_empty(&self, door: Door) -> bool {
        let mut guard = self.inbox.lock();
        let empty = guard.is_empty();
        if empty {
            guard.edit(|gate| *gate = door);
        }
        empty
    }

    /// Everything inside, in order: runs have the places that they were given.
    fn collect(&self) -> Vec<u32> {
        let mut batch = Batch::new();
        self.inbox.drain(&mut batch);
        let mut received = batch.main;
        for (before, run) in batch.runs.into_iter().rev() {
            received.splice(before..before, run);
        }
        received
    }

    fn rest(&self) {
        if self.inbox.try_sleep(None) {
            self.bell.park(None);
            self.inbox.awake();
        }
    }

    /// Runs turns until `count` items have arrived.
    fn receive(&self, count: usize) -> Vec<u32> {
        let mut received = self.collect();
        while received.len() < count {
            self.rest();
            received.extend(self.collect());
        }
        received
    }
}

/// Runs a producer on its own thread.
fn producer(post: &Post, produce: impl FnOnce(&Post) + 'static) -> thread::JoinHandle<()> {
    let post = post.clone();
    thread::spawn(move || produce(&post))
}

#[test]
fn a_wake_that_races_with_parking_is_never_lost() {
    explore_core(|| {
        let post = Post::new();
        let waker = producer(&post, |post| {
            assert!(post.wake(1));
            assert!(post.wake(2));
        });
        assert_eq!(post.receive(2), [1, 2]);
        waker.join().unwrap();
    });
}

#[test]
fn of_two_producers_each_arrives_and_a_sleep_is_rung_once_at_most() {
    explore_core(|| {
        let post = Post::new();
        let one = producer(&post, |post| assert!(post.wake(1)));
        let other = producer(&post, |post| assert!(post.submit(2, Urgency::Now)));
        let mut sleeps = 0;
        let mut received = post.collect();
        while received.len() < 2 {
            if post.inbox.try_sleep(None) {
                sleeps += 1;
                post.bell.park(None);
                post.inbox.awake();
            }
            received.extend(post.collect());
        }
        received.sort_unstable();
        assert_eq!(received, [1, 2]);
        one.join().unwrap();
        other.join().unwrap();
        assert!(post.inbox.rings.get() <= sleeps);
    });
}

#[test]
fn what_one_thread_pushes_comes_out_in_its_order() {
    explore(|| {
        let post = Post::new();
        let one = producer(&post, |post| {
            assert!(post.submit(1, Urgency::Now));
            assert!(post.wake(2));
        });
        let other = producer(&post, |post| assert!(post.wake(11)));
        let mut received = post.receive(3);
        received.retain(|item| *item != 11);
        assert_eq!(received, [1, 2]);
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn the_gate_closes_only_behind_the_last_item_that_passed_it() {
    explore_core(|| {
        let post = Post::new();
        let accepted = |handle: thread::JoinHandle<usize>| handle.join().unwrap();
        let submit = |item| {
            let post = post.clone();
            thread::spawn(move || usize::from(post.submit(item, Urgency::Now)))
        };
        let (one, other) = (submit(1), submit(2));
        let mut received = 0;
        while !post.set_if_empty(Door::Draining) {
            received += post.collect().len();
        }
        while !post.set_if_empty(Door::Closed) {
            received += post.collect().len();
        }
        assert_eq!(accepted(one) + accepted(other), received);
        assert_eq!(post.inbox.accepted(), received as u64);
        assert_eq!(post.collect().len(), 0, "nothing is left inside");
    });
}

#[test]
fn a_wake_passes_a_gate_that_drains_and_is_handed_back_by_a_closed_one() {
    explore(|| {
        let post = Post::new();
        let wake = |item| {
            let post = post.clone();
            thread::spawn(move || usize::from(post.wake(item)))
        };
        let (one, other) = (wake(1), wake(2));
        post.inbox.lock().edit(|gate| *gate = Door::Draining);
        assert!(!post.submit(3, Urgency::Now));
        let mut received = 0;
        while !post.set_if_empty(Door::Closed) {
            received += post.collect().len();
        }
        let let_in = one.join().unwrap() + other.join().unwrap();
        assert_eq!(let_in, received);
        assert_eq!(post.collect().len(), 0, "nothing is left inside");
    });
}

#[test]
fn a_nudge_that_races_with_parking_gives_a_turn() {
    explore_core(|| {
        let post = Post::new();
        let asked = Arc::new(AtomicBool::new(false));
        let asks = Arc::clone(&asked);
        let nudger = producer(&post, move |post| {
            asks.store(true, Ordering::Relaxed);
            post.ring_if_needed(post.inbox.lock().nudge());
        });
        // The flag is read on every turn, without an ordering of its own.
        loop {
            post.collect();
            if asked.load(Ordering::Relaxed) {
                break;
            }
            post.rest();
        }
        nudger.join().unwrap();
    });
}

#[test]
fn items_of_runs_arrive_once_and_in_order_with_others_whenever_the_loop_drains() {
    explore(|| {
        let post = Post::new();
        let one = producer(&post, |post| {
            assert!(post.execute(1));
            assert!(post.wake(2));
            assert!(post.execute(3));
        });
        let other = producer(&post, |post| assert!(post.execute(9)));
        let (others, own): (Vec<_>, Vec<_>) = post.receive(4).into_iter().partition(|&n| n == 9);
        assert_eq!((own, others), (vec![1, 2, 3], vec![9]));
        assert_eq!(post.inbox.accepted(), 3, "a wake is not new");
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn an_urgent_message_to_the_loop_is_read_and_takes_the_lazy_one_before_it_along() {
    explore(|| {
        let post = Post::new();
        let messenger = producer(&post, |post| {
            post.ring_if_needed(post.inbox.post('a', Urgency::Lazy));
            post.ring_if_needed(post.inbox.post('b', Urgency::Now));
        });
        let mut batch = Batch::new();
        let mut messages = Vec::new();
        loop {
            post.inbox.drain(&mut batch);
            messages.append(&mut batch.messages);
            if messages.contains(&'b') {
                break;
            }
            post.rest();
        }
        assert_eq!(messages, ['a', 'b']);
        messenger.join().unwrap();
    });
}

#[test]
fn lazy_items_come_out_once_somebody_hurries_the_loop() {
    explore(|| {
        let post = Post::new();
        let lazy = producer(&post, |post| {
            assert!(post.submit(1, Urgency::Lazy));
            post.ring_if_needed(post.inbox.hurry());
        });
        let other = producer(&post, |post| {
            assert!(post.submit(2, Urgency::Lazy));
            post.ring_if_needed(post.inbox.hurry());
        });
        let mut received = post.receive(2);
        received.sort_unstable();
        assert_eq!(received, [1, 2]);
        lazy.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn an_item_for_later_is_found_by_a_loop_that_wakes_before_and_rings_one_that_does_not() {
    explore(|| {
        let post = Post::new();
        let start = Instant::now();
        let at = move |seconds| start + Duration::from_secs(seconds);
        let submitter = producer(&post, move |post| {
            assert!(post.submit(1, Urgency::By(at(200))));
        });
        // The first sleep ends by its deadline, in time for the item; the second one has no deadline.
        if post.inbox.try_sleep(Some(at(100))) {
            post.inbox.awake();
        }
        assert_eq!(post.receive(1), [1]);
        submitter.join().unwrap();
    });
}

#[test]
fn a_ring_that_failed_is_made_good_by_the_next_producer() {
    explore(|| {
        let post = Post::new();
        let failing = producer(&post, |post| {
            if post.inbox.push_wake(1, WakeSender::Outside) == Ok(Ring::Needed) {
                post.inbox.ring_failed();
            }
            assert!(post.wake(2));
        });
        assert_eq!(post.receive(2), [1, 2]);
        failing.join().unwrap();
    });
}

#[test]
fn whoever_is_refused_finds_the_gate_where_it_was_refused() {
    explore(|| {
        let post = Post::new();
        let submitter = producer(&post, |post| {
            if !post.submit(1, Urgency::Now) {
                assert_eq!(post.inbox.shown.get(), Door::Draining as u8);
            }
        });
        let reader = producer(&post, |post| {
            let first = post.inbox.shown.get();
            assert!(post.inbox.shown.get() >= first, "it goes no way back");
        });
        post.inbox.lock().edit(|gate| *gate = Door::Draining);
        submitter.join().unwrap();
        reader.join().unwrap();
    });
}
