//! Signals: heard from the call on, by everybody who listens. Each test is a process of its own.

use std::io::ErrorKind;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use loopgroup::signal::SignalKind;
use loopgroup::{CloseChannels, EventLoopGroup, block_on, shutdown_requested, signal};

use crate::util::{Waiting, alone, entries, poll_once};

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

#[test]
fn any_signal_is_a_stream_and_each_of_its_listeners_sees_it() {
    alone(
        "any_signal_is_a_stream_and_each_of_its_listeners_sees_it",
        || {
            let group = EventLoopGroup::new(2).unwrap();
            let kinds = [
                SignalKind::HANGUP,
                SignalKind::USER_DEFINED1,
                SignalKind::USER_DEFINED2,
                SignalKind::WINDOW_CHANGE,
                SignalKind::ALARM,
                SignalKind::QUIT,
                SignalKind::CHILD,
                SignalKind::PIPE,
                SignalKind::from(libc::SIGTSTP),
            ];
            for kind in kinds {
                let mut other = signal::on(if kind == SignalKind::HANGUP {
                    SignalKind::QUIT
                } else {
                    SignalKind::HANGUP
                })
                .unwrap();
                let [mut first, mut second, mut third] =
                    [(); 3].map(|()| signal::on(kind.as_raw()).unwrap());
                assert_eq!((first.kind(), i32::from(kind)), (kind, kind.as_raw()));
                for _ in 0..10 {
                    let on_a_loop = group.spawn(async move {
                        second.next().await.unwrap();
                        second
                    });
                    raise(kind.as_raw());
                    block_on(first.recv());
                    assert_eq!(group.block_on(third.next()), Some(()));
                    second = block_on(on_a_loop).unwrap();
                    assert!(poll_once(&mut first.next()).is_pending());
                }
                assert!(poll_once(&mut other.next()).is_pending(), "not its signal");
            }
        },
    );
}

#[test]
fn signals_before_a_poll_are_one_item_and_a_cancelled_wait_loses_none() {
    alone(
        "signals_before_a_poll_are_one_item_and_a_cancelled_wait_loses_none",
        || {
            let mut heard = signal::on(SignalKind::USER_DEFINED1).unwrap();
            for _ in 0..100 {
                raise(libc::SIGUSR1);
            }
            assert_eq!(poll_once(&mut heard.next()), Poll::Ready(Some(())));
            assert!(poll_once(&mut heard.next()).is_pending(), "it was all");
            for _ in 0..10 {
                let waiting = Waiting::new(heard.recv());
                raise(libc::SIGUSR1);
                drop(waiting); // before it is polled again
                assert_eq!(poll_once(&mut heard.next()), Poll::Ready(Some(())));
                assert!(poll_once(&mut heard.next()).is_pending());
            }
            // From before its creation, and for others.
            raise(libc::SIGUSR1);
            let mut late = signal::on(SignalKind::USER_DEFINED1).unwrap();
            assert!(poll_once(&mut late.next()).is_pending());
            assert_eq!(poll_once(&mut heard.next()), Poll::Ready(Some(())));
        },
    );
}

#[test]
fn listeners_that_are_dropped_while_a_signal_arrives_disturb_no_other() {
    alone(
        "listeners_that_are_dropped_while_a_signal_arrives_disturb_no_other",
        || {
            let group = EventLoopGroup::new(2).unwrap();
            let over = Arc::new(AtomicBool::new(false));
            let comers: Vec<_> = (0..2)
                .map(|_| {
                    let over = Arc::clone(&over);
                    group.spawn(async move {
                        let mut count = 0_u32;
                        while !over.load(Ordering::SeqCst) {
                            let mut short = signal::on(SignalKind::USER_DEFINED2).unwrap();
                            let _ = poll_once(&mut short.next());
                            drop(short);
                            count += 1;
                            loopgroup::yield_now().await;
                        }
                        count
                    })
                })
                .collect();
            let mut heard = signal::on(SignalKind::USER_DEFINED2).unwrap();
            for _ in 0..1_000 {
                let sender = std::thread::spawn(|| raise(libc::SIGUSR2));
                block_on(heard.recv());
                sender.join().unwrap();
            }
            over.store(true, Ordering::SeqCst);
            for comer in comers {
                assert!(block_on(comer).unwrap() > 0);
            }
            // Nobody listens any more: the signal has no effect.
            drop(heard);
            raise(libc::SIGUSR2);
        },
    );
}

#[test]
fn a_signal_that_cannot_be_handled_is_refused_by_name() {
    alone("a_signal_that_cannot_be_handled_is_refused_by_name", || {
        let before = (entries("/proc/self/fd"), entries("/proc/self/task"));
        for (signal, name) in [
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGSTOP, "SIGSTOP"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGBUS, "SIGBUS"),
            (libc::SIGFPE, "SIGFPE"),
            (libc::SIGILL, "SIGILL"),
            (0, "signal 0"),
            (-1, "signal -1"),
        ] {
            let error = signal::on(signal).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        let after = (entries("/proc/self/fd"), entries("/proc/self/task"));
        assert_eq!(before, after, "a refusal needs neither");
        for signal in [32, 65, 1_000, i32::MAX] {
            let error = signal::on(signal).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(&signal.to_string()), "{error}");
        }
        // And the others still work.
        let mut heard = signal::on(SignalKind::HANGUP).unwrap();
        assert_eq!(format!("{heard:?}"), "Signals(SignalKind(SIGHUP))");
        raise(libc::SIGHUP);
        block_on(heard.recv());
    });
}
