//! Tasks: wake, cancel, abort, join.

use std::future::{Future, poll_fn};
use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use loopgroup::{EventLoopGroup, RejectReason, block_on, yield_now};
use shuttle_primitives::{AtomicBool, Mutex, thread};

use super::NEVER;
use crate::check::Meant;
use crate::ledger::{End, Ledger};

/// An event that happens once, for one waiter; built from shuttle's primitives.
#[derive(Default)]
pub struct Event {
    happened: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Event {
    pub fn happen(&self) {
        self.happened.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the waiter, whether the event has happened or not.
    pub fn wake(&self) {
        let waker = self.waker.lock().unwrap().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub fn wait(self: &Arc<Event>) -> impl Future<Output = ()> + Send + use<> {
        let this = Arc::clone(self);
        poll_fn(move |cx| {
            let old = this.waker.lock().unwrap().replace(cx.waker().clone());
            drop(old);
            if this.happened.load(Ordering::SeqCst) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }
}

/// Other threads wake a task while its loop ends, and afterwards: the task ends once, on its loop.
pub fn wake_against_terminate() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let event = Arc::new(Event::default());
    let task = ledger.spawn(&group, event.wait());
    let wakers = [false, true].map(|last| {
        let event = Arc::clone(&event);
        thread::spawn(move || {
            event.wake();
            if last {
                event.happen();
            }
        })
    });
    let report = group.shutdown_now().wait();
    let end = task.wait();
    assert!(matches!(end, End::Completed | End::Cancelled), "{end:?}");
    ledger.check(&report);
    for thread in wakers {
        thread.join().unwrap();
    }
    // A waker that outlives its loop has no effect.
    event.wake();
}

/// A task completes while another thread cancels it: if `cancel` returns the value, the task has completed.
/// (A cancel during the last poll does not return the value; the task has completed all the same.)
pub fn cancel_against_complete() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let event = Arc::new(Event::default());
    let wait = event.wait();
    let task = ledger.spawn(&group, async move {
        wait.await;
        yield_now().await;
        7
    });
    let join = task.into_inner();
    let canceller = thread::spawn(move || block_on(join.cancel()));
    event.happen();
    let value = canceller.join().unwrap();
    let report = group.shutdown_gracefully_with(std::time::Duration::ZERO, NEVER);
    let report = report.unwrap().wait();
    assert!(report.completed() >= u64::from(value.is_some()), "{report}");
    assert!(value.is_none_or(|value| value == 7));
    ledger.check(&report);
}

/// A task panics while another thread aborts it: it is counted as one of the two, and a panic that is not
/// joined is reported once.
pub fn abort_against_panic() {
    let ledger = Ledger::default();
    let reported = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&reported);
    let group = ledger.build(EventLoopGroup::builder().loops(1).without_io().on_panic(
        move |panic| {
            assert!(panic.payload().is::<Meant>(), "{panic}");
            heard.fetch_add(1, Ordering::Relaxed);
        },
    ));
    let task = ledger.spawn(&group, async {
        yield_now().await;
        panic_any(Meant)
    });
    let join: loopgroup::JoinHandle<()> = task.into_inner();
    let aborter = thread::spawn(move || join.abort());
    let sibling = ledger.spawn(&group, yield_now());
    assert_eq!(sibling.wait(), End::Completed);
    aborter.join().unwrap();
    let report = group.drain(NEVER).wait();
    assert_eq!(report.panicked() + report.cancelled(), 1, "{report}");
    assert_eq!(reported.load(Ordering::Relaxed) as u64, report.panicked());
    ledger.check(&report);
}

/// Two threads wake `block_on` before, during and after it parks.
pub fn block_on_wake_against_park() {
    let first = Arc::new(Event::default());
    let second = Arc::new(Event::default());
    let threads = [&first, &second].map(|event| {
        let event = Arc::clone(event);
        thread::spawn(move || {
            event.wake();
            event.happen();
        })
    });
    block_on(async {
        first.wait().await;
        // Nested: each call has its own parker.
        block_on(second.wait());
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Two loops wait for each other's tasks while the group drains: all of them complete.
pub fn join_from_two_loops() {
    let ledger = Ledger::default();
    let group = ledger.group(2);
    let event = Arc::new(Event::default());
    let wait = event.wait();
    let inner = ledger.spawn_on(&group.loops()[0], async move {
        wait.await;
        1
    });
    let middle = ledger.spawn_on(&group.loops()[1], async move {
        assert_eq!(inner.join().await, End::Completed);
    });
    let outer = ledger.spawn_on(&group.loops()[0], async move {
        assert_eq!(middle.join().await, End::Completed);
    });
    let thread = thread::spawn(move || event.happen());
    let termination = group.drain(NEVER);
    assert_eq!(outer.wait(), End::Completed);
    thread.join().unwrap();
    ledger.check(&termination.wait());
}

/// More submissions than the limit allows: refused tasks are returned, and pending ones never exceed it.
pub fn bounded_queue_against_producers() {
    let ledger = Ledger::default();
    let group = ledger.build(
        EventLoopGroup::builder()
            .loops(1)
            .without_io()
            .max_pending_tasks(2),
    );
    let producers = [(); 2].map(|()| {
        let (group, ledger) = (group.clone(), ledger.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                let task = ledger.watch(yield_now());
                let id = task.id;
                match group.try_spawn(task) {
                    Ok(join) => assert_eq!(ledger.handle(id, join).wait(), End::Completed),
                    Err(refused) => {
                        assert_eq!(refused.reason(), RejectReason::QueueFull);
                        drop(refused.into_inner());
                        ledger.note(id, End::Refused);
                    }
                }
                assert!(group.next().pending_tasks() <= 2, "the bound is exact");
            }
        })
    });
    let task = ledger.spawn(&group, async {});
    assert!(matches!(task.wait(), End::Completed | End::Refused));
    for producer in producers {
        producer.join().unwrap();
    }
    ledger.check(&group.drain(NEVER).wait());
}

/// A lazy closure wakes no loop, but runs with the next submission or with the shutdown.
pub fn lazy_against_sleep() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let lazy = {
        let (ev, ran, ledger) = (group.next().clone(), Arc::clone(&ran), ledger.clone());
        thread::spawn(move || {
            let accepted = ev.lazy_execute(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            if accepted.is_ok() {
                ledger.accepted_another();
            }
            accepted.is_ok()
        })
    };
    let task = ledger.spawn(&group, yield_now());
    let termination = group.drain(NEVER);
    assert!(matches!(task.wait(), End::Completed | End::Refused));
    let report = termination.wait();
    let accepted = lazy.join().unwrap();
    assert_eq!(
        ran.load(Ordering::Relaxed),
        usize::from(accepted),
        "{report}"
    );
    ledger.check(&report);
}

/// Closures and detached futures of two threads race with the end: each runs or is dropped, once, at home.
pub fn closures_against_the_end() {
    let ledger = Ledger::default();
    let group = ledger.group(1);
    let producers = [0, 1].map(|_| {
        let (ev, ledger) = (group.next().clone(), ledger.clone());
        thread::spawn(move || {
            for _ in 0..3 {
                let watched = ledger.watch(async {});
                let id = watched.id;
                // Polled where it runs, dropped where it ends.
                let accepted = ev.execute(move || block_once(watched)).is_ok();
                ledger.note(id, if accepted { End::Unknown } else { End::Refused });
            }
            let watched = ledger.watch(yield_now());
            let id = watched.id;
            let accepted = ev.spawn_detached(watched).is_ok();
            ledger.note(id, if accepted { End::Unknown } else { End::Refused });
        })
    });
    let termination = group.shutdown_now();
    for producer in producers {
        producer.join().unwrap();
    }
    ledger.check(&termination.wait());
}

/// Polls a future once, and drops it.
fn block_once(future: impl Future) {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = future.as_mut().poll(&mut cx);
}
