//! The drain of a group, racing with the end of one loop, a hook that visits, and a handle that is dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loopgroup::{EndCause, EventLoop, EventLoopGroup, TerminationFuture, yield_now};
use shuttle_primitives::{thread, time};

use super::NEVER;
use crate::ledger::{End, Ledger};

/// Spawns a task that spawns children on a sibling loop and waits for them; all of them are accepted.
fn parent(ledger: &Ledger, here: &EventLoop, there: &EventLoop) -> crate::ledger::Handle<()> {
    let (books, there) = (ledger.clone(), there.clone());
    ledger.spawn_on(here, async move {
        for _ in 0..2 {
            yield_now().await;
            let child = books.spawn_on(&there, yield_now()).join().await;
            assert_eq!(child, End::Completed, "its sibling had closed");
        }
    })
}

/// Drains a group of three loops while the last one ends on terms of its own.
fn drain_against(end_one: impl FnOnce(&EventLoop) -> TerminationFuture + Send + 'static) {
    let ledger = Ledger::default();
    let group = ledger.group(3);
    group.start().unwrap();
    let loops = group.loops();
    let tasks = [
        parent(&ledger, &loops[0], &loops[1]),
        parent(&ledger, &loops[1], &loops[0]),
    ];
    let last = ledger.spawn_on(&loops[2], yield_now());
    let one = loops[2].clone();
    let ends = thread::spawn(move || drop(end_one(&one)));
    let report = group.drain(NEVER).wait();
    ends.join().unwrap();
    for task in tasks {
        assert_eq!(task.wait(), End::Completed);
    }
    let end = last.wait();
    assert!(
        matches!(end, End::Completed | End::Refused | End::Cancelled),
        "{end:?}"
    );
    ledger.check(&report);
    let drained = |index: usize| report.loops()[index].cause() == EndCause::Drained;
    assert!(drained(0) && drained(1), "{report}");
    assert_eq!(time::passed(), Duration::ZERO, "nobody waited in vain");
}

pub fn drain_against_now_of_one() {
    drain_against(|one| one.shutdown_now());
}

pub fn drain_against_drain_of_one() {
    drain_against(|one| one.drain(NEVER));
}

pub fn drain_against_quiet_of_one() {
    drain_against(|one| one.shutdown_gracefully_with(Duration::ZERO, NEVER).unwrap());
}

/// A hook visits a value on a sibling loop, another thread submits, and the last handle is dropped.
pub fn drain_against_hook_and_drop() {
    let ledger = Ledger::default();
    let group = ledger.group(2);
    group.start().unwrap();
    let bound = group.loops()[0].bind(|| 7);
    ledger.accepted_another();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let sibling = group.loops()[0].clone();
    let books = ledger.clone();
    let hook = move || {
        match sibling.try_spawn(async {}) {
            Ok(_) => books.accepted_another(),
            Err(_) => drop(count.fetch_add(1, Ordering::Relaxed)),
        }
        drop(bound.with(|value| *value));
        books.accepted_another();
    };
    group.loops()[1].add_shutdown_hook(hook).unwrap();
    let outside = {
        let (ev, there, ledger) = (
            group.loops()[0].clone(),
            group.loops()[1].clone(),
            ledger.clone(),
        );
        thread::spawn(move || {
            let books = ledger.clone();
            let task = ledger.spawn_on(&ev, async move {
                let child = books.spawn_on(&there, async {}).join().await;
                assert_eq!(child, End::Completed, "a child was refused");
            });
            let end = task.wait();
            assert!(matches!(end, End::Completed | End::Refused), "{end:?}");
        })
    };
    let end = group.drain(NEVER);
    drop(group);
    let report = end.wait();
    outside.join().unwrap();
    assert_eq!(refused.load(Ordering::Relaxed), 0, "{report}");
    ledger.check(&report);
    let drained = |one: &loopgroup::LoopReport| one.cause() == EndCause::Drained;
    assert!(report.loops().iter().all(drained), "{report}");
    assert_eq!(time::passed(), Duration::ZERO, "nobody waited in vain");
}

/// A loop with a hook cannot start: it fails, and the others drain.
pub fn drain_against_failed_start() {
    let ledger = Ledger::default();
    let group = ledger.build(
        EventLoopGroup::builder()
            .loops(2)
            .without_io()
            .thread_factory(|lt| {
                if lt.index() == 1 {
                    return Err(io::Error::from(io::ErrorKind::OutOfMemory));
                }
                thread::spawn(move || lt.run());
                Ok(())
            }),
    );
    group.loops()[1].add_shutdown_hook(|| ()).unwrap();
    let task = ledger.spawn_on(&group.loops()[0], yield_now());
    let submitter = {
        let (ev, ledger) = (group.loops()[1].clone(), ledger.clone());
        thread::spawn(move || assert_eq!(ledger.spawn_on(&ev, yield_now()).wait(), End::Refused))
    };
    let report = group.drain(NEVER).wait();
    submitter.join().unwrap();
    assert_eq!(task.wait(), End::Completed);
    ledger.check(&report);
    let causes: Vec<_> = report.loops().iter().map(|one| one.cause()).collect();
    assert_eq!(causes, [EndCause::Drained, EndCause::Failed], "{report}");
}
