//! Loops of an elastic group that become active, are set aside and end their threads, racing with
//! submissions, wakes, aborts, descriptors and with the end of the group.
//!
//! A load is a task that lets time pass while it is polled: its loop has worked for so long.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loopgroup::io::{Interest, Registered};
use loopgroup::time::sleep;
use loopgroup::{Elastic, EventLoop, EventLoopGroup, LoopState, block_on, yield_now};
use shuttle_primitives::{thread, time};

use super::NEVER;
use super::tasks::Event;
use crate::ledger::{End, Handle, Ledger};

fn rule(patience: Duration) -> Elastic {
    Elastic {
        min: 1,
        max: 2,
        patience,
        ..Elastic::default()
    }
}

/// A group of two loops, of which the second one is not needed and parks whenever it is empty.
fn elastic(ledger: &Ledger) -> (EventLoopGroup, EventLoop) {
    let rule = rule(Duration::from_nanos(1));
    let group = ledger.build(EventLoopGroup::builder().elastic(rule).without_io());
    let ev = group.loops()[1].clone();
    (group, ev)
}

/// Two threads submit to a loop that parks between their tasks, or while they submit.
pub fn park_against_submit() {
    let ledger = Ledger::default();
    let (group, ev) = elastic(&ledger);
    // A first start may take too long, and refuse; a restart does not.
    assert_eq!(ledger.spawn_on(&ev, async {}).wait(), End::Completed);
    let producers = [(); 2].map(|()| {
        let (ev, ledger) = (ev.clone(), ledger.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                assert_eq!(ledger.spawn_on(&ev, yield_now()).wait(), End::Completed);
            }
        })
    });
    for producer in producers {
        producer.join().unwrap();
    }
    assert_eq!(ev.state(), LoopState::Started);
    let report = group.drain(NEVER).wait();
    assert!(report.is_clean(), "{report}");
    ledger.check(&report);
}

/// A thread submits to a loop that parks while the group drains.
pub fn park_against_drain() {
    let ledger = Ledger::default();
    let (group, ev) = elastic(&ledger);
    assert_eq!(ledger.spawn_on(&ev, async {}).wait(), End::Completed);
    let producer = {
        let (ev, ledger) = (ev.clone(), ledger.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                let end = ledger.spawn_on(&ev, async {}).wait();
                assert!(matches!(end, End::Completed | End::Refused), "{end:?}");
            }
        })
    };
    let report = group.drain(NEVER).wait();
    producer.join().unwrap();
    ledger.check(&report);
}

/// A hook is added to a loop that parks while the group ends: it runs, or is refused.
pub fn park_against_hook_and_now() {
    let ledger = Ledger::default();
    let (group, ev) = elastic(&ledger);
    assert_eq!(ledger.spawn_on(&ev, async {}).wait(), End::Completed);
    let ran = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&ran);
    let adder = thread::spawn(move || {
        let hook = move || {
            hook.fetch_add(1, Ordering::Relaxed);
        };
        ev.add_shutdown_hook(hook).is_ok()
    });
    let report = group.shutdown_now().wait();
    let added = adder.join().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), usize::from(added), "{report}");
    ledger.check(&report);
}

/// The last handle of a group is dropped while a thread submits to a parked loop, which nobody can run then.
pub fn park_against_group_drop() {
    let ledger = Ledger::default();
    let (group, ev) = elastic(&ledger);
    assert_eq!(ledger.spawn_on(&ev, async {}).wait(), End::Completed);
    let termination = group.termination();
    let submitter = {
        let ledger = ledger.clone();
        thread::spawn(move || {
            let task = ledger.spawn_on(&ev, async {});
            drop(ev);
            let end = task.into_inner();
            block_on(end).is_ok()
        })
    };
    drop(group);
    let report = termination.wait();
    let ran = submitter.join().unwrap();
    let sums = report.completed() + report.cancelled();
    assert_eq!(report.accepted(), sums, "{report}");
    assert_eq!(report.completed(), 1 + u64::from(ran), "{report}");
}

/// The last task of a loop ends, and the loop parks, while other threads wake the task, abort it, watch it
/// through its handle, await it on another loop and schedule a closure.
pub fn park_against_wake_and_abort() {
    let ledger = Ledger::default();
    let (group, ev) = elastic(&ledger);
    let event = Arc::new(Event::default());
    let task = ledger.spawn_on(&ev, event.wait()).into_inner();
    let abort = task.abort_handle();
    let awaiting = ledger.spawn_on(&group.loops()[0], async move {
        if let Err(error) = task.await {
            assert!(error.is_cancelled(), "{error}");
        }
    });
    let waker = thread::spawn(move || event.happen());
    let aborter = {
        let abort = abort.clone();
        thread::spawn(move || abort.abort())
    };
    // It may be parked by now, or park before it has looked at the requests.
    let again = abort.clone();
    let scheduled = ev.schedule(Duration::ZERO, move || again.abort());
    block_on(scheduled).unwrap();
    ledger.accepted_another();
    assert_eq!(awaiting.wait(), End::Completed);
    waker.join().unwrap();
    aborter.join().unwrap();
    assert_eq!(ledger.spawn_on(&ev, async {}).wait(), End::Completed);
    let report = group.drain(NEVER).wait();
    assert!(abort.is_finished());
    assert_eq!(report.rejected(), 0, "{report}");
    ledger.check(&report);
}

/// A task on a loop with load visits a parked one while the group drains: it finds it open to the last.
pub fn park_against_visit_in_a_drain() {
    let ledger = Ledger::default();
    let (group, ev) = elastic(&ledger);
    assert_eq!(ledger.spawn_on(&ev, async {}).wait(), End::Completed);
    let books = ledger.clone();
    let visitor = ledger.spawn_on(&group.loops()[0], async move {
        for _ in 0..2 {
            yield_now().await;
            let there = books.spawn_on(&ev, async {}).join().await;
            assert_eq!(there, End::Completed);
        }
    });
    let report = group.drain(NEVER).wait();
    assert_eq!(visitor.wait(), End::Completed);
    assert!(report.is_clean(), "{report}");
    ledger.check(&report);
}

/// A parked loop, which has to wait for its group, is asked to drain by the group and alone at the same time.
pub fn park_against_two_ends() {
    let ledger = Ledger::default();
    let (group, ev) = elastic(&ledger);
    assert_eq!(ledger.spawn_on(&ev, async {}).wait(), End::Completed);
    while !ev.metrics().is_parked() {
        thread::yield_now();
    }
    // Until then the group is not at rest.
    let waiting = ledger.spawn_on(&group.loops()[0], async {
        loopgroup::shutdown_requested().await;
    });
    let alone = thread::spawn(move || drop(ev.drain(NEVER)));
    let report = group.drain(NEVER).wait();
    alone.join().unwrap();
    assert_eq!(waiting.wait(), End::Completed);
    assert!(report.is_clean(), "{report}");
    ledger.check(&report);
}

/// A descriptor is registered with a loop from elsewhere, while that loop parks: the byte is read.
pub fn park_against_register() {
    let ledger = Ledger::default();
    let rule = rule(Duration::from_nanos(1));
    let group = ledger.build(EventLoopGroup::builder().elastic(rule));
    let there = group.loops()[1].clone();
    assert_eq!(ledger.spawn_on(&there, async {}).wait(), End::Completed);
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let mut socket = Registered::new(ours).unwrap();
    let reader = ledger.spawn_on(&group.loops()[0], async move {
        socket.migrate_to(&there).await.unwrap();
        socket.readable().await.unwrap();
        let mut byte = [0];
        let read = socket.try_io(Interest::READABLE, |mut stream| stream.read(&mut byte));
        assert_eq!((read.unwrap(), byte), (1, *b"x"));
    });
    let writer = thread::spawn(move || {
        peer.write_all(b"x").unwrap();
        peer
    });
    assert_eq!(reader.wait(), End::Completed);
    drop(writer.join().unwrap());
    let report = group.drain(NEVER).wait();
    assert!(report.is_clean(), "{report}");
    ledger.check(&report);
}

/// Much longer than the millisecond to which waits are rounded up.
const PATIENCE: Duration = Duration::from_millis(100);

/// A group of two loops whose second one is needed under load.
fn scaling(ledger: &Ledger) -> (EventLoopGroup, EventLoop) {
    let builder = EventLoopGroup::builder().elastic(rule(PATIENCE));
    let group = ledger.build(builder.without_io());
    let ev = group.loops()[1].clone();
    (group, ev)
}

/// A task that works for so many quarters of the patience, with a turn of its loop for each.
async fn work(quarters: usize) {
    for _ in 0..quarters {
        time::pass(PATIENCE / 4);
        sleep(Duration::from_nanos(1)).await;
    }
}

/// Load rises and falls: the second loop becomes active, is chosen, is set aside, and ends its thread.
pub fn load_rises_and_falls() {
    let ledger = Ledger::default();
    let (group, ev) = scaling(&ledger);
    for _ in 0..2 {
        assert!(ev.is_paused());
        assert_eq!(group.next().index(), 0);
        let needed = ev.clone();
        let first = ledger.spawn_on(&group.loops()[0], async move {
            work(12).await;
            assert!(!needed.is_paused(), "there is work for more than one");
        });
        let spawner = {
            let (group, ledger) = (group.clone(), ledger.clone());
            thread::spawn(move || ledger.spawn(&group, yield_now()).wait())
        };
        assert_eq!(first.wait(), End::Completed);
        assert_eq!(spawner.join().unwrap(), End::Completed);
        // It has a thread in every schedule, and gives it back.
        assert_eq!(ledger.spawn_on(&ev, yield_now()).wait(), End::Completed);
        // Time passes only while all others stand still: by now every look has been had.
        thread::sleep(16 * PATIENCE);
        assert!(ev.is_paused(), "there is no load");
        assert!(ev.metrics().is_parked(), "it is empty");
    }
    let report = group.drain(NEVER).wait();
    assert!(report.is_clean(), "{report}");
    ledger.check(&report);
}

/// Looks decide while other threads choose the next loop, and in the end all that was accepted completes.
fn under_load(end: impl FnOnce(&EventLoopGroup, [Handle<()>; 2])) {
    let ledger = Ledger::default();
    let (group, ev) = scaling(&ledger);
    group.start().unwrap();
    let loads = [0, 1].map(|index| ledger.spawn_on(&group.loops()[index], work(6)));
    let spawner = {
        let (group, ledger) = (group.clone(), ledger.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                let end = ledger.spawn(&group, yield_now()).wait();
                assert!(matches!(
                    end,
                    End::Completed | End::Cancelled | End::Refused
                ));
            }
        })
    };
    let pauser = thread::spawn(move || {
        ev.pause();
        ev.resume();
    });
    end(&group, loads);
    spawner.join().unwrap();
    pauser.join().unwrap();
    ledger.check(&group.termination().wait());
}

/// Loops are activated and set aside, by load and by hand, while the group is used; then it ends.
pub fn load_against_submit() {
    under_load(|group, loads| {
        for load in loads {
            assert_eq!(load.wait(), End::Completed);
        }
        drop(group.drain(NEVER));
    });
}

/// As before, while the group drains.
pub fn load_against_drain() {
    under_load(|group, loads| {
        let report = group.drain(NEVER).wait();
        for load in loads {
            assert_eq!(load.wait(), End::Completed);
        }
        assert_eq!(report.cancelled(), 0, "{report}");
    });
}

/// As before, while the group ends now.
pub fn load_against_now() {
    under_load(|group, loads| {
        drop(group.shutdown_now());
        for load in loads {
            let end = load.wait();
            assert!(matches!(end, End::Completed | End::Cancelled), "{end:?}");
        }
    });
}
