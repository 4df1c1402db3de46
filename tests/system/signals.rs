//! Signals: heard from the call on, by everybody who listens. Each test is a process of its own.

use std::process::Command;
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use loopgroup::{CloseChannels, EventLoopGroup, block_on, shutdown_requested, signal};

use crate::util::{alone, entries, poll_once};

/// Sends this process a signal and returns when it is delivered or on its way.
fn send(name: &str) {
    let id = std::process::id().to_string();
    assert!(
        Command::new("kill")
            .args([name, &id])
            .status()
            .unwrap()
            .success()
    );
}

/// Sends this thread a signal, which has been handled when this returns.
fn raise(signal: libc::c_int) {
    // SAFETY: it takes a number, and checks it.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

#[test]
fn each_signal_reaches_whoever_listens_for_it() {
    alone("each_signal_reaches_whoever_listens_for_it", || {
        let group = EventLoopGroup::new(2).unwrap();
        for _ in 0..20 {
            let on_a_loop = group.spawn(signal::shutdown());
            let here = signal::ctrl_c();
            let mut other = signal::terminate();
            let also = signal::shutdown();
            send("-INT");
            group.block_on(here).unwrap();
            group.block_on(also).unwrap();
            block_on(on_a_loop).unwrap().unwrap();
            group.block_on(async { assert!(poll_once(&mut other).is_pending()) });
            send("-TERM");
            group.block_on(other).unwrap();
        }
    });
}

#[test]
fn a_signal_before_the_first_poll_is_not_lost_and_the_next_one_is_heard_too() {
    alone(
        "a_signal_before_the_first_poll_is_not_lost_and_the_next_one_is_heard_too",
        || {
            loopgroup::run(async {
                let mut heard = signal::ctrl_c();
                for _ in 0..10 {
                    send("-INT");
                    (&mut heard).await.unwrap();
                }
            })
            .unwrap();
        },
    );
}

#[test]
fn listeners_leave_nothing_behind() {
    alone("listeners_leave_nothing_behind", || {
        let group = EventLoopGroup::new(1).unwrap();
        drop(signal::shutdown());
        let before = entries("/proc/self/fd");
        for _ in 0..100 {
            drop(signal::shutdown());
        }
        let mut polled = signal::shutdown();
        group.block_on(async { assert!(poll_once(&mut polled).is_pending()) });
        assert_eq!(group.next().registered_channels(), 0, "it waits elsewhere");
        drop(polled);
        group.shutdown_now().wait();
        assert!(entries("/proc/self/fd") <= before);
    });
}

#[test]
fn it_needs_no_loop() {
    alone("it_needs_no_loop", || {
        let mut heard = signal::ctrl_c();
        for _ in 0..10 {
            assert!(poll_once(&mut heard).is_pending());
            let sender = std::thread::spawn(|| raise(libc::SIGINT));
            block_on(&mut heard).unwrap();
            sender.join().unwrap();
        }
    });
}

#[test]
fn signals_that_come_together_are_one_however_many_they_are() {
    alone(
        "signals_that_come_together_are_one_however_many_they_are",
        || {
            let group = EventLoopGroup::new(1).unwrap();
            group.block_on(async {
                let mut heard = signal::shutdown();
                for _ in 0..1_000 {
                    raise(libc::SIGINT);
                    raise(libc::SIGTERM);
                }
                (&mut heard).await.unwrap();
                assert!(poll_once(&mut heard).is_pending(), "it was told of all");
                raise(libc::SIGTERM);
                assert!(matches!(poll_once(&mut heard), Poll::Ready(Ok(()))));
            });
        },
    );
}

/// The recipe for Ctrl-C, in a group with a task that takes its time to end.
fn one_signal_drains(group: EventLoopGroup, number: libc::c_int) {
    group.start().unwrap();
    let flushed = group.spawn(async {
        shutdown_requested().await;
        loopgroup::time::sleep(Duration::from_millis(300)).await;
    });
    let mut asked = signal::shutdown();
    raise(number);
    group.block_on(&mut asked).unwrap();
    let end = group.drain(Duration::from_secs(30));
    match group.block_on(select(end.clone(), &mut asked)) {
        Either::Left((report, _)) => assert!(report.is_clean(), "{report}"),
        Either::Right((second, _)) => panic!("there was no second signal, but {second:?}"),
    }
    block_on(flushed).unwrap();
    // The group is gone, and the signal is heard all the same.
    assert!(poll_once(&mut asked).is_pending());
    raise(number);
    block_on(asked).unwrap();
}

#[test]
fn one_signal_drains_a_group_and_its_end_is_not_taken_for_another() {
    alone(
        "one_signal_drains_a_group_and_its_end_is_not_taken_for_another",
        || {
            for number in [libc::SIGINT, libc::SIGTERM] {
                one_signal_drains(EventLoopGroup::new(2).unwrap(), number);
            }
        },
    );
}

#[test]
fn a_signal_does_not_end_with_the_channels_of_a_group() {
    alone("a_signal_does_not_end_with_the_channels_of_a_group", || {
        let group = EventLoopGroup::builder()
            .loops(2)
            .close_channels(CloseChannels::Immediately)
            .build()
            .unwrap();
        one_signal_drains(group, libc::SIGTERM);
    });
}

#[test]
fn a_waker_that_panics_does_not_make_others_deaf() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("a waker of somebody else");
        }
    }
    alone("a_waker_that_panics_does_not_make_others_deaf", || {
        let mut first = signal::ctrl_c();
        let waker = std::sync::Arc::new(Panics).into();
        let mut context = std::task::Context::from_waker(&waker);
        let first = std::pin::Pin::new(&mut first);
        assert!(std::future::Future::poll(first, &mut context).is_pending());
        let mut heard = signal::ctrl_c();
        for _ in 0..3 {
            assert!(poll_once(&mut heard).is_pending());
            let sender = std::thread::spawn(|| raise(libc::SIGINT));
            block_on(&mut heard).unwrap();
            sender.join().unwrap();
        }
    });
}
