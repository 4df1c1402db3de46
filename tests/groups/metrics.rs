//! What loops count: exact once they rest, and readable at any time.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{TcpListener, TcpStream};
use loopgroup::time::sleep;
use loopgroup::{EventLoop, EventLoopGroup, LoopMetrics, block_on, yield_now};

use crate::util::{LONG, group, stall, within};

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
