//! Timers, whose deadlines may pass at any point.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use loopgroup::time::{now, sleep, timeout};
use loopgroup::{block_on, yield_now};
use shuttle_primitives::{Condvar, Mutex, thread};

use super::NEVER;
use crate::ledger::{End, Ledger};

const TICK: Duration = Duration::from_millis(1);

/// Timers are armed on a loop, moved to another thread, and dropped or reset there while they fire.
pub fn timer_drop_against_fire() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let carried = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
    let away = Arc::clone(&carried);
    let armer = ledger.spawn(&group, async move {
        let mut timers = [sleep(TICK), sleep(2 * TICK)];
        poll_fn(|cx| {
            for timer in &mut timers {
                let _ = Pin::new(timer).poll(cx);
            }
            Poll::Ready(())
        })
        .await;
        away.0.lock().unwrap().extend(timers);
        away.1.notify_all();
        yield_now().await;
    });
    let waiter = ledger.spawn(&group, sleep(3 * TICK));
    let dropper = thread::spawn(move || {
        let mut timers = carried.0.lock().unwrap();
        while timers.is_empty() {
            timers = carried.1.wait(timers).unwrap();
        }
        let (mut reset, dropped) = (timers.pop().unwrap(), timers.pop().unwrap());
        drop(timers);
        drop(dropped);
        let end = now() + TICK;
        reset.reset(end);
        block_on(&mut reset);
        assert!(now() >= end, "a timer is never early");
    });
    assert_eq!(armer.wait(), End::Completed);
    assert_eq!(waiter.wait(), End::Completed);
    dropper.join().unwrap();
    ledger.check(&group.drain(NEVER).wait());
}

/// A scheduled closure is cancelled when it is due: it runs, or `cancel` returns that it does not.
pub fn schedule_cancel_against_fire() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let scheduled = Arc::new(
        group
            .next()
            .schedule(TICK, move || counter.fetch_add(1, Ordering::Relaxed)),
    );
    let cancellers = [(); 2].map(|()| {
        let scheduled = Arc::clone(&scheduled);
        thread::spawn(move || scheduled.cancel())
    });
    let sibling = ledger.spawn(&group, sleep(TICK));
    assert_eq!(sibling.wait(), End::Completed);
    let cancelled = cancellers.map(|one| one.join().unwrap());
    let mut scheduled = Arc::into_inner(scheduled).expect("the others are gone");
    let result = block_on(&mut scheduled);
    let cancelled = cancelled.into_iter().filter(|&one| one).count();
    assert!(cancelled <= 1, "one of them has cancelled it");
    assert_eq!(ran.load(Ordering::Relaxed) + cancelled, 1);
    assert_eq!(result.is_ok(), cancelled == 0);
    ledger.accepted_another();
    ledger.check(&group.drain(NEVER).wait());
}

/// A periodic closure is cancelled during a run or between two: it ends once, and does not run again.
pub fn periodic_cancel_against_run() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let (runs, inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counter, enters) = (Arc::clone(&runs), Arc::clone(&inside));
    let beat = group.next().schedule_at_fixed_rate(TICK, TICK, move || {
        enters.store(1, Ordering::SeqCst);
        counter.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        enters.store(0, Ordering::SeqCst);
    });
    let beat = beat.unwrap();
    block_on(sleep(TICK)); // it is running, or about to run
    assert!(beat.cancel(), "it was neither cancelled nor over");
    assert!(!beat.cancel(), "once");
    assert!(block_on(beat).unwrap_err().is_cancelled());
    assert_eq!(inside.load(Ordering::SeqCst), 0, "it still runs");
    let before = runs.load(Ordering::SeqCst);
    block_on(sleep(3 * TICK));
    assert_eq!(runs.load(Ordering::SeqCst), before, "it runs again");
    ledger.accepted_another();
    ledger.check(&group.drain(NEVER).wait());
}

/// Timers of all kinds are armed when the loop ends: every handle resolves, in any order.
pub fn timers_against_shutdown() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let sleeper = ledger.spawn(&group, sleep(2 * TICK));
    let periodic = group
        .next()
        .schedule_at_fixed_rate(TICK, TICK, || {})
        .unwrap();
    let ev = group.next().clone();
    let scheduler = thread::spawn(move || {
        let scheduled = ev.schedule(TICK, || 5);
        match block_on(timeout(TICK, scheduled)) {
            Ok(Ok(value)) => assert_eq!(value, 5),
            Ok(Err(error)) => assert!(!error.is_panic(), "{error}"),
            Err(_elapsed) => {}
        }
    });
    let report = group.shutdown_gracefully_with(TICK, 4 * TICK);
    let report = report.unwrap().wait();
    scheduler.join().unwrap();
    let end = sleeper.wait();
    assert!(matches!(end, End::Completed | End::Cancelled), "{end:?}");
    assert!(block_on(periodic).is_err(), "a periodic one ends cancelled");
    assert_eq!(
        report.accepted(),
        report.completed() + report.panicked() + report.cancelled(),
        "{report}"
    );
    assert_eq!(report.panicked(), 0, "{report}");
}
