//! A group without I/O is a group like any other, without a descriptor to its name.

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::{
    Builder, EndCause, EventLoop, EventLoopGroup, JoinHandle, LoopState, WaitStrategy, block_on,
    spawn_local, yield_now,
};

use crate::util::{Door, Log, Probe, alone, entries, eventually, thread_of, within};

/// Messages between two loops; few, because on busy cores a loop that never blocks holds each one up
/// for a time slice.
const HOPS: usize = 20;

const FDS: &str = "/proc/self/fd";

fn executor(loops: usize) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(loops).without_io();
    builder.build().unwrap()
}

/// Every wait strategy, on both kinds of groups.
fn kinds() -> impl Iterator<Item = (String, Builder)> {
    let strategies = [
        WaitStrategy::Park,
        WaitStrategy::SpinThenPark(Duration::from_micros(50)),
        // Longer than an idle machine takes between two messages: they find the loop spinning.
        WaitStrategy::SpinThenPark(Duration::from_millis(2)),
        WaitStrategy::Busy,
    ];
    strategies.into_iter().flat_map(|strategy| {
        [true, false].map(|io| {
            let builder = EventLoopGroup::builder().wait_strategy(strategy);
            let builder = if io { builder } else { builder.without_io() };
            (format!("{strategy:?}, io {io}"), builder)
        })
    })
}

#[test]
fn no_descriptor_is_opened() {
    alone("no_descriptor_is_opened", || {
        let before = entries(FDS);
        let group = executor(4);
        group.start().unwrap();
        for _ in 0..8 {
            block_on(group.spawn(yield_now())).unwrap();
        }
        assert_eq!(entries(FDS), before);
        group.shutdown_now().wait();
        assert_eq!(entries(FDS), before);
    });
}

#[test]
fn a_group_with_io_closes_what_it_opened() {
    alone("a_group_with_io_closes_what_it_opened", || {
        let before = entries(FDS);
        for used in [false, true] {
            let group = EventLoopGroup::new(3).unwrap();
            let open = entries(FDS);
            assert!(open > before && (open - before) % 3 == 0, "{before} {open}");
            if used {
                group.start().unwrap();
            }
            group.shutdown_now().wait();
            drop(group);
            assert_eq!(entries(FDS), before, "used: {used}");
        }
        loopgroup::run(async {}).unwrap();
        assert_eq!(entries(FDS), before);
    });
}

#[test]
fn the_whole_interface_works_without_io() {
    within(|| {
        let group = executor(2);
        let ev = group.loops()[1].clone();
        let home = thread_of(&ev);
        assert_eq!(block_on(group.spawn_on(1, async { 1 })).unwrap(), 1);
        let local = ev.spawn_with(|| {
            let value = Rc::new(2);
            async move {
                yield_now().await;
                let inner = Rc::clone(&value);
                spawn_local(async move { *inner }).await.unwrap()
            }
        });
        assert_eq!(block_on(local).unwrap(), 2);
        let (tx, rx) = mpsc::channel();
        let send = |n: u8| {
            let tx = tx.clone();
            move || tx.send((n, thread::current().id())).unwrap()
        };
        ev.execute(send(1)).unwrap();
        ev.dispatch(send(2)).unwrap();
        ev.lazy_execute(send(3)).unwrap();
        ev.execute_after_iteration(send(4)).unwrap();
        ev.add_shutdown_hook(send(5)).unwrap();
        let bound = ev.bind(|| Rc::new(6));
        assert_eq!(block_on(bound.with(|value| **value)).unwrap(), 6);
        drop(bound);
        let waits = Door::new();
        let cancelled = ev.spawn(waits.opened());
        eventually("it waits", || waits.waiting() == 1);
        assert_eq!(block_on(cancelled.cancel()), None);
        let report = group.drain(Duration::from_secs(30)).wait();
        let mut seen: Vec<_> = rx.try_iter().collect();
        seen.sort_by_key(|&(n, _)| n);
        assert_eq!(seen, (1..=5).map(|n| (n, home)).collect::<Vec<_>>());
        assert_eq!((report.hooks_run(), report.cancelled()), (1, 1));
        assert_eq!(report.loops()[1].cause(), EndCause::Drained);
    });
}

#[test]
fn handlers_are_offloaded_and_come_back_to_their_io_loop() {
    within(|| {
        let io = EventLoopGroup::new(1).unwrap();
        let handlers = executor(2);
        let (home, workers) = (
            thread_of(io.next()),
            [0, 1].map(|index| thread_of(&handlers.loops()[index])),
        );
        let log = Log::new();
        let offload = handlers.clone();
        let task = io.spawn(Probe::new(&log, async move {
            let mut seen = Vec::new();
            for _ in 0..10 {
                let worked = offload.spawn(async {
                    yield_now().await;
                    thread::current().id()
                });
                seen.push((worked.await.unwrap(), thread::current().id()));
            }
            seen
        }));
        let seen = block_on(task).unwrap();
        for (round, (worked, resumed)) in seen.into_iter().enumerate() {
            // thread_of went past the chooser, so the turns begin at the first loop.
            assert_eq!(worked, workers[round % 2]);
            assert_eq!(resumed, home);
        }
        log.assert_home(home);
    });
}

/// A message that goes there and back `rounds` times between two loops.
async fn ping_pong(there: EventLoop, rounds: usize) -> usize {
    let mut back = 0;
    for round in 0..rounds {
        back += usize::from(there.submit(move || round).await.unwrap() == round);
    }
    back
}

#[test]
fn every_wait_strategy_carries_messages_between_loops() {
    within(|| {
        for (kind, builder) in kinds() {
            let group = builder.loops(2).build().unwrap();
            let [here, there] = group.loops() else {
                panic!("two loops")
            };
            let back = block_on(here.spawn(ping_pong(there.clone(), HOPS)));
            assert_eq!(back.unwrap(), HOPS, "{kind}");
            let report = group.shutdown_now().wait();
            assert_eq!(report.completed(), HOPS as u64 + 1, "{kind}");
        }
    });
}

#[test]
fn every_wait_strategy_hears_a_wake_from_outside() {
    within(|| {
        for (kind, builder) in kinds() {
            let group = builder.loops(1).build().unwrap();
            for round in 0..8 {
                let door = Door::new();
                let task: JoinHandle<()> = group.spawn(door.opened());
                // Every other time the loop has had the time to find nothing to do.
                if round % 2 == 0 {
                    eventually("the task waits", || door.waiting() == 1);
                }
                door.open();
                block_on(task).unwrap();
            }
            assert_eq!(group.shutdown_now().wait().completed(), 8, "{kind}");
        }
    });
}

#[test]
fn every_wait_strategy_runs_tasks_that_wake_themselves() {
    within(|| {
        for (kind, builder) in kinds() {
            let group = builder.loops(1).build().unwrap();
            let mut left = 1000;
            let polls = group.spawn(poll_fn(move |cx| {
                left -= 1;
                if left == 0 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }));
            block_on(polls).unwrap();
            assert!(group.shutdown_now().wait().is_clean(), "{kind}");
        }
    });
}

#[test]
fn every_wait_strategy_keeps_the_quiet_period() {
    within(|| {
        for (kind, builder) in kinds() {
            let group = builder.loops(1).build().unwrap();
            thread_of(group.next());
            let quiet = Duration::from_millis(15);
            let begun = Instant::now();
            let end = group.shutdown_gracefully_with(quiet, Duration::from_secs(60));
            let report = end.unwrap().wait();
            assert!(begun.elapsed() >= quiet, "{kind}");
            assert_eq!(report.loops()[0].cause(), EndCause::Quiet, "{kind}");
        }
    });
}

#[test]
fn every_wait_strategy_keeps_the_timeout() {
    within(|| {
        for (kind, builder) in kinds() {
            let group = builder.loops(1).build().unwrap();
            let log = Log::new();
            drop(group.spawn(Probe::new(&log, pending::<()>())));
            let home = thread_of(group.next());
            let timeout = Duration::from_millis(15);
            let begun = Instant::now();
            let report = group.drain(timeout).wait();
            assert!(begun.elapsed() >= timeout, "{kind}");
            assert_eq!(report.loops()[0].cause(), EndCause::Timeout, "{kind}");
            assert_eq!((report.cancelled(), log.polls()), (1, 1), "{kind}");
            log.assert_home(home);
        }
    });
}

#[test]
fn every_wait_strategy_ends_when_the_last_handle_goes() {
    within(|| {
        for (kind, builder) in kinds() {
            let group = builder.loops(2).build().unwrap();
            group.start().unwrap();
            let end = group.termination();
            drop(group);
            let report = end.wait();
            assert!(report.is_clean(), "{kind}");
            assert!(report.loops().iter().all(|one| one.started()), "{kind}");
        }
    });
}

#[test]
fn every_wait_strategy_sees_lazy_tasks_with_the_next_message() {
    within(|| {
        for (kind, builder) in kinds() {
            let group = builder.loops(1).build().unwrap();
            let ev = group.next();
            thread_of(ev);
            let (tx, rx) = mpsc::channel();
            let send = |text: &'static str| {
                let tx = tx.clone();
                move || tx.send(text).unwrap()
            };
            ev.lazy_execute(send("lazy")).unwrap();
            ev.execute(send("urgent")).unwrap();
            assert_eq!([rx.recv(), rx.recv()], [Ok("lazy"), Ok("urgent")], "{kind}");
        }
    });
}

#[test]
fn an_unused_executor_group_ends_without_a_thread() {
    within(|| {
        let group = executor(3);
        let report = group.shutdown_gracefully().wait();
        assert!(report.loops().iter().all(|one| !one.started()));
        assert!(
            group
                .loops()
                .iter()
                .all(|ev| ev.state() == LoopState::Terminated)
        );
    });
}
