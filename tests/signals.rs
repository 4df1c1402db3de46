//! Signals: heard from the call on, by everybody who listens. Each test is a process of its own.

mod util;

use std::process::Command;

use loopgroup::{EventLoopGroup, block_on, signal};
use util::{alone, entries, poll_once};

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
        assert_eq!(group.next().registered_channels(), 1);
        drop(polled);
        assert_eq!(group.next().registered_channels(), 0);
        group.shutdown_now().wait();
        assert!(entries("/proc/self/fd") <= before);
    });
}

#[test]
fn away_from_a_loop_it_says_what_is_missing() {
    alone("away_from_a_loop_it_says_what_is_missing", || {
        let error = block_on(signal::ctrl_c()).unwrap_err();
        assert!(error.to_string().contains("no event loop"), "{error}");
    });
}
