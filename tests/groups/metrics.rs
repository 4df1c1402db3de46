//! What loops count: exact once they rest, and readable at any time.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{TcpListener, TcpStream};
use loopgroup::testing::TestLoop;
use loopgroup::time::sleep;
use loopgroup::{EventLoop, EventLoopGroup, LoopMetrics, WaitStrategy, block_on, yield_now};

use crate::util::{LONG, eventually, group, ms, secs, stall, within};

/// The figures of a loop, with everything in them that it did before this call.
fn settled(ev: &EventLoop) -> LoopMetrics {
    // The second closure runs in a later turn than whatever is to be seen.
    for _ in 0..2 {
        block_on(ev.submit(|| ())).unwrap();
    }
    ev.metrics()
}

/// A task that is woken from wherever its waker is taken to, so many times.
fn woken(ev: &EventLoop, times: usize) -> (Arc<Mutex<Option<Waker>>>, loopgroup::JoinHandle<()>) {
    let place = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&place);
    let mut polls = 0;
    let task = ev.spawn(poll_fn(move |cx| {
        polls += 1;
        if polls > times {
            return Poll::Ready(());
        }
        *slot.lock().unwrap() = Some(cx.waker().clone());
        Poll::Pending
    }));
    (place, task)
}

/// Takes a waker that is put there, sooner or later.
fn take(place: &Mutex<Option<Waker>>) -> Waker {
    loop {
        let waker = place.lock().unwrap().take();
        match waker {
            Some(waker) => return waker,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn polls_wakes_and_ends_of_tasks_are_counted_exactly() {
    within(|| {
        let group = group(1);
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                group.spawn(async {
                    for _ in 0..5 {
                        yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            block_on(task).unwrap();
        }
        let panicked = group.spawn(async { panic!("on purpose") });
        assert!(block_on(panicked).unwrap_err().is_panic());
        let cancelled = group.spawn(std::future::pending::<()>());
        assert_eq!(block_on(cancelled.cancel()), None);
        group.drain(LONG).wait();
        drop(group.spawn(async {})); // too late
        let metrics = group.loops()[0].metrics();
        assert_eq!(metrics.local_wakes(), 50);
        assert_eq!((metrics.accepted(), metrics.completed()), (12, 10));
        assert_eq!((metrics.panicked(), metrics.cancelled()), (1, 1));
        assert_eq!(
            (metrics.rejected(), metrics.pending(), metrics.live()),
            (1, 0, 0)
        );
        // Six polls of each, one of the panic, and of what was cancelled its poll and its end, or either.
        assert!((61..=63).contains(&metrics.polls()), "{metrics}");
        assert_eq!((metrics.busy(), metrics.longest_poll()), (None, None));
    });
}

#[test]
fn the_matrix_says_who_woke_whom() {
    within(|| {
        let group = group(3);
        let other = EventLoopGroup::new(1).unwrap();
        // Loop 1 wakes a task of loop 0 seven times, another group's loop three times, this thread twice.
        let (place, task) = woken(&group.loops()[0], 12);
        let waiting = || {
            // A task that is woken while it runs goes back to its queue by itself.
            let waker = take(&place);
            block_on(group.loops()[0].submit(|| ())).unwrap();
            waker
        };
        let wake_on = |ev: &EventLoop, times: usize| {
            for _ in 0..times {
                let waker = waiting();
                block_on(ev.submit(move || waker.wake())).unwrap();
            }
        };
        wake_on(&group.loops()[1], 7);
        wake_on(&other.loops()[0], 3);
        for _ in 0..2 {
            waiting().wake();
        }
        block_on(task).unwrap();
        settled(&group.loops()[0]);
        let metrics = group.metrics();
        assert_eq!(metrics.wakes(Some(1), 0), 7);
        assert_eq!(metrics.wakes(None, 0), 5);
        assert_eq!(metrics.wakes(Some(0), 0), 0);
        assert_eq!(
            (metrics.wakes(Some(2), 0), metrics.wakes(Some(0), 1)),
            (0, 0)
        );
        assert_eq!((metrics.wakes(Some(9), 0), metrics.wakes(None, 9)), (0, 0));
        let home = &metrics.loops()[0];
        assert_eq!((home.remote_wakes(), home.outside_wakes()), (7, 5));
        let text = metrics.to_string();
        let woken = text.split("\n\n").last().unwrap();
        let headings = ["woken", "by loop 1", "from outside", "wake-up calls"];
        let words: Vec<_> = woken.lines().next().unwrap().split("  ").collect();
        let words = words
            .iter()
            .map(|word| word.trim())
            .filter(|word| !word.is_empty());
        assert!(words.eq(headings), "{text}");
        let row: Vec<_> = woken.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[..3], ["0", "7", "5"], "{text}");
    });
}

#[test]
fn one_system_call_ends_a_sleep_however_many_submit() {
    within(|| {
        let group = group(1);
        let ev = group.next();
        let release = stall(ev);
        let before = ev.metrics().wakeup_calls();
        for _ in 0..1_000 {
            ev.execute(|| ()).unwrap();
        }
        assert_eq!(ev.metrics().wakeup_calls(), before, "it is awake");
        assert_eq!(ev.metrics().pending(), 1_000);
        release.open();
        let metrics = settled(ev);
        assert!(metrics.wakeup_calls() <= metrics.parks(), "{metrics}");
    });
}

#[test]
fn events_and_timers_are_counted() {
    within(|| {
        let group = group(1);
        let task = group.spawn(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let mut client = TcpStream::connect(listener.local_addr()?).await?;
            let (mut server, _) = listener.accept().await?;
            let mut byte = [0];
            for _ in 0..20 {
                let (read, written) = futures::join!(server.read(&mut byte), async {
                    yield_now().await; // the reader waits by now
                    client.write(b"x").await
                });
                assert_eq!((read?, written?), (1, 1));
            }
            for _ in 0..5 {
                sleep(Duration::from_millis(1)).await;
            }
            std::io::Result::Ok(EventLoop::current().unwrap().metrics().channels())
        });
        assert!(block_on(task).unwrap().unwrap() >= 1);
        let metrics = settled(group.next());
        assert!(metrics.io_events() >= 20, "{metrics}");
        assert_eq!(metrics.timers_fired(), 5);
        assert_eq!((metrics.channels(), metrics.rebuilds()), (0, 0));
        assert!(metrics.stale_events() <= metrics.io_events());
        assert!(metrics.parks() >= 5, "{metrics}");
    });
}

#[test]
fn a_task_that_blocks_its_loop_shows_where_time_is_measured() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(1)
            .measure_time(true)
            .build()
            .unwrap();
        let slow = Duration::from_millis(20);
        // The time itself is what is tested.
        block_on(group.next().submit(move || std::thread::sleep(slow))).unwrap();
        let metrics = settled(group.next());
        let (busy, longest) = (metrics.busy().unwrap(), metrics.longest_poll().unwrap());
        assert!(longest >= slow && busy >= longest, "{metrics}");
    });
}

#[test]
fn a_group_that_never_ran_has_nothing_to_show() {
    within(|| {
        let group = group(2);
        let metrics = group.metrics();
        assert_eq!(metrics.loops().len(), 2);
        for one in metrics.loops() {
            assert_eq!((one.polls(), one.parks(), one.accepted()), (0, 0, 0));
        }
        assert_eq!(metrics.wakes(Some(0), 1), 0);
        assert_eq!(metrics.to_string(), "2 loops: nothing yet");
        assert_eq!(metrics.loops()[1].to_string(), "loop 1: nothing yet");
    });
}

#[test]
fn utilization_rises_within_a_poll_that_does_not_end_and_falls_in_a_sleep_that_does_not() {
    within(|| {
        let group = group(2);
        let used = |index: usize| group.loops()[index].metrics().utilization();
        let held = stall(&group.loops()[0]);
        eventually("the loop that is held up is busy", || used(0) > 0.6);
        assert_eq!(used(1), 0.0, "it has not started");
        held.open();
        eventually("the loop sleeps", || used(0) < 0.4);
        let text = group.metrics().to_string();
        assert!(text.contains("utilized"), "{text}");
    });
}

#[test]
fn utilization_follows_the_clock_of_the_loop() {
    within(|| {
        let mut test = TestLoop::new();
        drop(test.spawn(async {
            loop {
                sleep(ms(10)).await; // virtual: its work takes no time
            }
        }));
        test.run_until_stalled();
        assert_eq!(test.metrics().utilization(), 0.0);
        test.advance(secs(10));
        assert_eq!(test.metrics().polls(), 1001);
        assert_eq!(test.metrics().utilization(), 0.0);
        drop(test.shutdown_now());
        test.run_until_stalled();
        assert!(test.report().is_some());
        assert_eq!(test.metrics().utilization(), 0.0);
    });
}

#[test]
fn a_loop_that_spins_without_work_is_not_busy() {
    within(|| {
        for strategy in [
            WaitStrategy::Busy,
            WaitStrategy::SpinThenPark(secs(3600)),
            WaitStrategy::Park,
        ] {
            let builder = EventLoopGroup::builder().loops(1).wait_strategy(strategy);
            let group = builder.build().unwrap();
            let used = || group.loops()[0].metrics().utilization();
            let held = stall(&group.loops()[0]);
            eventually("it is held up", || used() > 0.4);
            held.open();
            eventually("it has nothing to do", || used() < 0.3);
        }
    });
}

#[test]
fn an_ended_loop_is_not_utilized_any_more() {
    within(|| {
        let group = group(1);
        block_on(group.spawn(async {})).unwrap();
        group.shutdown_now().wait();
        let before = group.metrics().loops()[0].utilization();
        assert!(before < 0.9, "{before}");
        eventually("it decays", || {
            let now = group.metrics().loops()[0].utilization();
            now <= before * 0.9
        });
    });
}

#[test]
fn a_loop_that_another_thread_wakes_shows_how_long_that_took() {
    within(|| {
        let group = group(1);
        let ev = &group.loops()[0];
        assert_eq!(ev.metrics().wake_delay(), Duration::ZERO);
        eventually("a wake-up of a loop that slept", || {
            block_on(ev.submit(|| ())).unwrap();
            ev.metrics().wake_delay() > Duration::ZERO
        });
        assert!(ev.metrics().wakeup_calls() > 0);
        assert!(ev.metrics().wake_delay() < LONG);
    });
}

/// A group of one loop that measures time.
fn measured() -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(1).measure_time(true);
    builder.build().unwrap()
}

#[test]
fn every_poll_has_its_time_and_its_wait() {
    within(|| {
        let group = measured();
        let ev = group.loops()[0].clone();
        for _ in 0..100 {
            ev.execute(|| ()).unwrap();
            group.spawn_detached(async { yield_now().await }).unwrap();
            ev.execute_after_iteration(|| ()).unwrap();
        }
        let timers = group.spawn(async {
            for _ in 0..3 {
                sleep(ms(1)).await;
            }
        });
        block_on(timers).unwrap();
        group.drain(LONG).wait();
        let metrics = ev.metrics();
        assert_eq!(metrics.polls(), 100 + 200 + 100 + 4);
        assert_eq!(metrics.poll_times().count(), metrics.polls());
        assert_eq!(metrics.wake_to_poll().count(), metrics.polls());
        assert_eq!(Some(metrics.poll_times().sum()), metrics.busy());
        assert_eq!(Some(metrics.poll_times().max()), metrics.longest_poll());
        assert!(metrics.wake_to_poll().max() < LONG);
    });
}

#[test]
fn what_comes_from_elsewhere_waits_for_the_poll_that_is_under_way() {
    within(|| {
        let group = measured();
        let held = stall(&group.loops()[0]);
        let (start, wait) = (std::time::Instant::now(), ms(30));
        let task = group.spawn(async {});
        let closure = group.loops()[0].submit(|| ());
        while start.elapsed() < wait {
            std::thread::yield_now();
        }
        held.open();
        block_on(async { (task.await.unwrap(), closure.await.unwrap()) });
        group.drain(LONG).wait();
        let waits = group.loops()[0].metrics().wake_to_poll();
        assert_eq!(waits.count(), 3);
        assert!(waits.quantile(0.5).unwrap() >= wait, "{waits}");
        assert!(waits.max() >= wait, "{waits}");
    });
}

#[test]
fn tasks_that_are_woken_together_wait_for_those_before_them() {
    within(|| {
        let group = measured();
        let tasks = block_on(group.spawn(async {
            let one = |_| {
                loopgroup::spawn_local(async {
                    let start = std::time::Instant::now();
                    while start.elapsed() < ms(5) {} // computes
                })
            };
            (0..4).map(one).map(|task| task.id()).collect::<Vec<_>>()
        }));
        assert_eq!(tasks.unwrap().len(), 4);
        group.drain(LONG).wait();
        let waits = group.loops()[0].metrics().wake_to_poll();
        assert_eq!(waits.count(), 5);
        assert!(
            waits.max() >= ms(15) && waits.sum() >= ms(5 + 10 + 15),
            "{waits}"
        );
    });
}

#[test]
fn without_measurements_there_are_no_histograms() {
    within(|| {
        let group = group(1);
        block_on(group.spawn(async { yield_now().await })).unwrap();
        let one = settled(&group.loops()[0]);
        assert!(one.poll_times().is_empty() && one.wake_to_poll().is_empty());
        assert_eq!(one.poll_times().to_string(), "nothing yet");
    });
}
