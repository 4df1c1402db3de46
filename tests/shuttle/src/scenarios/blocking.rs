//! The blocking pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loopgroup::block_on;
use loopgroup::blocking::BlockingGroup;
use shuttle_primitives::{thread, time};

use super::NEVER;

/// Jobs are submitted while the group ends: each runs once, or its handle reports that it does not.
pub fn hand_over_against_shutdown() {
    let group = BlockingGroup::new(2).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let producers = [(); 3].map(|()| {
        let (group, ran) = (group.clone(), Arc::clone(&ran));
        thread::spawn(move || {
            let job = move || {
                thread::yield_now();
                ran.fetch_add(1, Ordering::Relaxed);
            };
            let result = block_on(group.spawn(job));
            match result {
                Ok(()) => [1, 0, 0],
                Err(error) if error.is_cancelled() => [0, 1, 0],
                Err(error) => {
                    assert!(error.is_rejected(), "{error}");
                    [0, 0, 1]
                }
            }
        })
    });
    let termination = group.shutdown_gracefully_with(Duration::ZERO, NEVER);
    drop(group);
    let report = termination.unwrap().wait();
    let mut sums = [0, 0, 0];
    for producer in producers {
        let ends = producer.join().unwrap();
        sums.iter_mut().zip(ends).for_each(|(sum, end)| *sum += end);
    }
    assert_eq!(report.completed(), sums[0], "{report}");
    assert_eq!(report.cancelled(), sums[1], "{report}");
    assert_eq!(report.rejected(), sums[2], "{report}");
    assert_eq!(report.accepted(), sums[0] + sums[1], "{report}");
    assert_eq!(ran.load(Ordering::Relaxed) as u64, sums[0]);
    assert_eq!(time::passed(), Duration::ZERO, "nobody waited in vain");
}

/// A thread retires for lack of work at the moment when a job is submitted.
pub fn retirement_against_submit() {
    let group = BlockingGroup::new(1).unwrap();
    block_on(group.spawn(|| {})).unwrap();
    let producers = [(); 2].map(|()| {
        let group = group.clone();
        thread::spawn(move || block_on(group.spawn(thread::yield_now)).unwrap())
    });
    for producer in producers {
        producer.join().unwrap();
    }
    let report = group.drain(NEVER).wait();
    assert_eq!(report.completed(), 3, "{report}");
    assert_eq!(report.accepted(), 3, "{report}");
}

/// The shutdown times out while a job on the only thread waits for a queued job: both handles resolve.
pub fn timeout_against_busy_thread() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let group = BlockingGroup::new(1).unwrap();
    let own = group.clone();
    let first = group.spawn(move || block_on(own.spawn(|| ())).unwrap_err());
    let other = group.clone();
    let producer = thread::spawn(move || block_on(other.spawn(|| ())).unwrap_err());
    let report = group.drain(TIMEOUT).wait();
    let freed = |error: loopgroup::JoinError| assert!(error.is_cancelled() || error.is_rejected());
    freed(producer.join().unwrap());
    // The job begins before the timeout, or not at all.
    let begun = match block_on(first) {
        Ok(error) => {
            freed(error);
            1
        }
        Err(error) => {
            freed(error);
            0
        }
    };
    assert_eq!(report.completed(), begun, "{report}");
    assert_eq!(report.running(), begun, "{report}");
    assert_eq!(report.accepted(), begun + report.cancelled(), "{report}");
    assert_eq!(time::passed(), TIMEOUT, "neither early nor late");
}
