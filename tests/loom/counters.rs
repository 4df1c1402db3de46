//! The counters that threads share.

use super::explore;
use super::inbox::Door;
use crate::event_loop::counters::{Counters, PendingLimit, TaskEnd};
use crate::event_loop::inbox::{Inbox, Lane, Urgency};
use crate::event_loop::state::{LoopState, StateCell};
use crate::sync::{Arc, thread};

#[test]
fn a_bound_lets_as_many_in_as_it_says_and_a_place_given_back_is_a_place() {
    explore(|| {
        let bound = Arc::new(PendingLimit::new(1));
        let attempt = || {
            let bound = Arc::clone(&bound);
            thread::spawn(move || {
                let taken = bound.try_acquire();
                if taken {
                    bound.release();
                }
                taken
            })
        };
        let (one, other) = (attempt(), attempt());
        let (one, other) = (one.join().unwrap(), other.join().unwrap());
        assert!(one || other, "there was a place");
        assert!(bound.try_acquire());
        assert!(!bound.try_acquire(), "one place, whatever went before");
    });
}

#[test]
fn who_sees_a_task_ended_sees_what_it_had_submitted() {
    explore(|| {
        // A task of one loop submits to another one and ends; a third thread reads the counters of
        // both.
        let counters = Arc::new(Counters::default());
        let inbox: Arc<Inbox<u32, Vec<u32>, char, Door>> =
            Arc::new(Inbox::new(Door::Open, Box::leak(Box::default())));
        counters.accept_local();
        counters.begin();
        let (looks, other) = (Arc::clone(&counters), Arc::clone(&inbox));
        let observer = thread::spawn(move || {
            if looks.live() == 0 {
                assert_eq!(other.accepted(), 1, "else both would seem to be at rest");
            }
        });
        let ring = inbox.push_new_with(Lane::Main, Urgency::Now, || 1);
        assert!(ring.is_some());
        counters.end(TaskEnd::Completed);
        observer.join().unwrap();
    });
}

#[test]
fn a_state_that_many_move_only_moves_forward() {
    explore(|| {
        let state = Arc::new(StateCell::new());
        let advance = |to| {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                state.advance(to);
                assert!(state.get() >= to);
            })
        };
        let movers = [
            advance(LoopState::ShuttingDown),
            advance(LoopState::Started),
        ];
        let (first, second) = (state.get(), state.get());
        assert!(first <= second);
        for mover in movers {
            mover.join().unwrap();
        }
        assert_eq!(state.get(), LoopState::ShuttingDown);
    });
}
