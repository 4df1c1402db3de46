//! The parker.

use std::time::Duration;

use super::explore_core;
use crate::park::Parker;
use crate::sync::{Arc, AtomicUsize, Ordering, thread};

#[test]
fn a_permit_that_is_left_on_the_way_to_the_parking_place_is_found_there() {
    explore_core(|| {
        let parker = Arc::new(Parker::new());
        let number = Arc::new(AtomicUsize::new(0));
        let unpark = || {
            let (parker, number) = (Arc::clone(&parker), Arc::clone(&number));
            thread::spawn(move || {
                number.fetch_add(1, Ordering::Relaxed);
                parker.unpark();
            })
        };
        let (one, other) = (unpark(), unpark());
        assert!(parker.park(None));
        assert_ne!(
            number.load(Ordering::Relaxed),
            0,
            "a permit brings its news"
        );
        one.join().unwrap();
        other.join().unwrap();
        parker.park(Some(Duration::ZERO));
        assert_eq!(number.load(Ordering::Relaxed), 2);
        assert!(!parker.park(Some(Duration::ZERO)), "two permits at most");
    });
}
