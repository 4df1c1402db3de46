//! `block_on`, and the timers of the thread that waits in it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::{explore, explore_core};
use crate::block_on;
use crate::sync::{Arc, Mutex, thread};
use crate::time::sleep;

/// A value that arrives, and the waker of the task that waits for it.
#[derive(Default)]
struct Slot {
    value: Option<u32>,
    waker: Option<Waker>,
}

type Shared = Arc<Mutex<Slot>>;

fn put(slot: &Shared, value: u32) {
    let mut slot = slot.lock();
    slot.value = Some(value);
    let waker = slot.waker.take();
    drop(slot);
    if let Some(waker) = waker {
        waker.wake();
    }
}

async fn get(slot: &Shared) -> u32 {
    poll_fn(|cx| {
        let mut slot = slot.lock();
        match slot.value {
            Some(value) => Poll::Ready(value),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

#[test]
fn block_on_hears_a_wake_between_its_poll_and_its_parking() {
    explore_core(|| {
        let (first, second) = (Shared::default(), Shared::default());
        let (to_first, to_second) = (Arc::clone(&first), Arc::clone(&second));
        let one = thread::spawn(move || put(&to_first, 1));
        let other = thread::spawn(move || put(&to_second, 2));
        assert_eq!(
            block_on(async { get(&first).await + get(&second).await }),
            3
        );
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_nested_block_on_does_not_take_the_wake_of_the_outer_one() {
    explore(|| {
        let (outer, inner) = (Shared::default(), Shared::default());
        let (to_outer, to_inner) = (Arc::clone(&outer), Arc::clone(&inner));
        let one = thread::spawn(move || put(&to_outer, 1));
        let other = thread::spawn(move || put(&to_inner, 2));
        let mut nested = None;
        let mut waits = Box::pin(get(&outer));
        let value = block_on(poll_fn(|cx| {
            let polled = Pin::new(&mut waits).poll(cx);
            nested.get_or_insert_with(|| block_on(get(&inner)));
            polled
        }));
        assert_eq!((value, nested), (1, Some(2)));
        one.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_timer_that_is_reset_elsewhere_rings_the_thread_that_waits_for_it() {
    explore(|| {
        let hour = Duration::from_secs(3600);
        let timer = Arc::new(Mutex::new(sleep(hour)));
        let reset = Arc::clone(&timer);
        let other = thread::spawn(move || reset.lock().reset(Instant::now()));
        block_on(poll_fn(|cx| Pin::new(&mut *timer.lock()).poll(cx)));
        other.join().unwrap();
    });
}
