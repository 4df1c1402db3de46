//! What a loop allocates: one block per task, and nothing for wakes, events, timers and turns.
//!
//! Each test warms its path up, so that queues and tables have grown, and then counts the allocations of the
//! threads that take part.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use futures::task::AtomicWaker;
use loopgroup::net::{TcpListener, TcpStream};
use loopgroup::time::{interval, sleep};
use loopgroup::{EventLoopGroup, spawn_local, yield_now};

use crate::allocator::allocations;
use crate::util::{self, within};

const TASKS: usize = 1_000;

/// Runs `body` on a loop of this thread's.
fn on_a_loop<F: Future<Output = ()>>(body: impl FnOnce() -> F + Send + 'static) {
    within(move || loopgroup::run(body()).unwrap());
}

#[test]
fn a_task_spawned_on_its_loop_and_joined_is_one_allocation() {
    on_a_loop(|| async {
        let mut handles = Vec::with_capacity(TASKS);
        for round in 0..3 {
            let before = allocations();
            handles.extend((0..TASKS).map(|n| spawn_local(async move { n })));
            for (n, handle) in handles.drain(..).enumerate() {
                assert_eq!(handle.await.unwrap(), n);
            }
            if round > 0 {
                assert_eq!(allocations() - before, TASKS);
            }
        }
    });
}

#[test]
fn a_detached_task_is_one_allocation_also_if_it_waits() {
    on_a_loop(|| async {
        let left = Rc::new(Cell::new(0));
        for round in 0..3 {
            let before = allocations();
            left.set(TASKS);
            for _ in 0..TASKS {
                let left = Rc::clone(&left);
                drop(spawn_local(async move {
                    yield_now().await; // into the live table, and out of it
                    left.set(left.get() - 1);
                }));
            }
            while left.get() > 0 {
                yield_now().await;
            }
            if round > 0 {
                assert_eq!(allocations() - before, TASKS);
            }
        }
    });
}

#[test]
fn a_recorder_allocates_nothing_once_its_group_is_built() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(1).flight_recorder(1_000);
        let group = builder.watchdog(Duration::from_secs(60)).build().unwrap();
        let on_the_loop = || loopgroup::block_on(group.next().submit(allocations)).unwrap();
        let mut grown = 0;
        for round in 0..4 {
            let before = on_the_loop();
            let task = group.task().name("named").spawn(async {
                for _ in 0..TASKS {
                    yield_now().await;
                }
                sleep(Duration::from_millis(1)).await;
            });
            loopgroup::block_on(task).unwrap();
            if round > 1 {
                grown += on_the_loop() - before;
            }
        }
        assert_eq!(grown, 0, "thousands of polls, wakes and waits");
        assert!(group.trace().events() > 900, "which are on the tape");
    });
}

#[test]
fn polls_of_tasks_with_names_allocate_nothing_under_a_watchdog() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(1);
        let group = builder.watchdog(Duration::from_secs(60)).build().unwrap();
        let tasks = (0..100).map(|number| {
            let task = group.task().name(format!("a name of its own: {number}"));
            task.spawn(async move {
                let mut before = 0;
                for poll in 0..TASKS {
                    if poll == 10 {
                        before = allocations(); // every task was polled, and all of them take turns
                    }
                    yield_now().await;
                }
                allocations() - before
            })
        });
        let release = util::stall(group.next());
        let tasks: Vec<_> = tasks.collect();
        release.open();
        // The first task to end finds that none of the others has allocated anything either.
        let grown = tasks
            .into_iter()
            .map(|task| loopgroup::block_on(task).unwrap());
        assert_eq!(grown.min(), Some(0));
    });
}

#[test]
fn a_task_spawned_from_outside_is_one_allocation_there_and_none_on_the_loop() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let on_the_loop = || loopgroup::block_on(group.next().submit(allocations)).unwrap();
        let mut growths = (0, 0);
        for _ in 0..10 {
            let start = on_the_loop();
            let release = util::stall(group.next()); // all of them wait in the inbox at once
            let before = allocations();
            for _ in 0..TASKS {
                drop(group.spawn(async {}));
            }
            growths.0 += usize::from(allocations() - before > TASKS);
            release.open();
            growths.1 += usize::from(on_the_loop() > start);
        }
        // The inbox has two buffers that take turns, and the queue may be just too small once.
        assert!(growths.0 <= 2, "{growths:?}");
        assert!(growths.1 <= 2, "{growths:?}");
    });
}

#[test]
fn closures_of_one_type_share_their_allocations() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let numbers: Vec<_> = (0..10)
            .map(|_| {
                let release = util::stall(ev);
                let before = allocations();
                for n in 0..TASKS {
                    ev.execute(move || _ = std::hint::black_box(n)).unwrap();
                }
                let after = allocations();
                release.open();
                util::flush(ev);
                after - before
            })
            .collect();
        // The run, and its deque whenever that grows.
        assert!(numbers.iter().all(|number| *number <= 16), "{numbers:?}");
    });
}

#[test]
fn a_closure_between_others_is_one_allocation_as_a_task_is() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let on_the_loop = || loopgroup::block_on(ev.submit(allocations)).unwrap();
        let mut growths = (0, 0);
        for _ in 0..10 {
            let start = on_the_loop();
            let release = util::stall(ev);
            let before = allocations();
            for n in 0..TASKS / 2 {
                ev.execute(move || _ = std::hint::black_box(n)).unwrap();
                ev.execute(move || _ = std::hint::black_box([n; 3]))
                    .unwrap();
            }
            growths.0 += usize::from(allocations() - before > TASKS);
            release.open();
            growths.1 += usize::from(on_the_loop() > start);
        }
        assert!(growths.0 <= 2, "{growths:?}");
        assert!(growths.1 <= 2, "{growths:?}");
    });
}

#[test]
fn closures_executed_on_their_loop_share_their_allocations() {
    on_a_loop(|| async {
        let ev = loopgroup::EventLoop::current().unwrap();
        for _ in 0..3 {
            let before = allocations();
            for n in 0..TASKS {
                ev.execute(move || _ = std::hint::black_box(n)).unwrap();
            }
            yield_now().await;
            let after = allocations() - before;
            assert!(after <= 20, "{after}");
        }
    });
}

/// One place for a value, and for the waker of whoever waits for it.
#[derive(Default)]
struct Slot {
    value: Cell<Option<usize>>,
    waker: RefCell<Option<Waker>>,
}

impl Slot {
    fn put(&self, value: usize) {
        self.value.set(Some(value));
        let waker = self.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn take(&self) -> usize {
        poll_fn(|cx| match self.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

#[test]
fn wakes_on_the_loop_allocate_nothing() {
    on_a_loop(|| async {
        let (there, back) = (Rc::new(Slot::default()), Rc::new(Slot::default()));
        let (input, output) = (Rc::clone(&there), Rc::clone(&back));
        let other = spawn_local(async move {
            for _ in 0..2 * TASKS {
                output.put(input.take().await);
            }
        });
        for round in 0..2 {
            let before = allocations();
            for n in 0..TASKS {
                there.put(n);
                assert_eq!(back.take().await, n);
            }
            if round > 0 {
                assert_eq!(allocations() - before, 0);
            }
        }
        other.await.unwrap();
    });
}

#[test]
fn wakes_from_another_thread_allocate_nothing_on_either() {
    static WAKER: AtomicWaker = AtomicWaker::new();
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (tx, rx) = mpsc::sync_channel(1);
        let task = group.spawn(async move {
            let mut polls = 0;
            let mut counted = (0, 0);
            poll_fn(|cx| {
                WAKER.register(cx.waker());
                polls += 1;
                match polls {
                    100 => counted.0 = allocations(),
                    1_000 => {
                        counted.1 = allocations();
                        return Poll::Ready(());
                    }
                    _ => {}
                }
                let _ = tx.try_send(());
                Poll::Pending
            })
            .await;
            counted.1 - counted.0
        });
        let mut counted = Vec::with_capacity(1_000);
        while rx.recv().is_ok() {
            counted.push(allocations());
            WAKER.wake();
        }
        assert_eq!(loopgroup::block_on(task).unwrap(), 0, "on the loop");
        // The inbox has two buffers; the second may get its first item late.
        assert!(counted[counted.len() - 1] - counted[100] <= 1, "here");
    });
}

#[test]
fn readiness_of_sockets_allocates_nothing() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let echo = spawn_local(async move {
            let mut byte = [0; 64];
            while let Ok(read @ 1..) = server.read(&mut byte).await {
                server.write_all(&byte[..read]).await.unwrap();
            }
        });
        let mut buf = [0; 64];
        for round in 0..2 {
            let before = allocations();
            for _ in 0..TASKS {
                client.write_all(&[7; 64]).await.unwrap();
                client.read_exact(&mut buf).await.unwrap();
            }
            if round > 0 {
                assert_eq!(allocations() - before, 0);
            }
        }
        drop(client);
        echo.await.unwrap();
    });
}

#[test]
fn timers_that_are_armed_again_allocate_nothing() {
    on_a_loop(|| async {
        let mut ticks = interval(Duration::from_micros(100));
        let mut wait = sleep(Duration::from_secs(3600));
        for round in 0..2 {
            let before = allocations();
            for _ in 0..50 {
                ticks.tick().await;
                // A long wait that is put off again and again, and one that is dropped unfinished.
                wait.reset(Instant::now() + Duration::from_secs(3600));
                assert!(futures::poll!(&mut wait).is_pending());
                assert!(futures::poll!(&mut sleep(Duration::from_secs(60))).is_pending());
            }
            if round > 0 {
                assert_eq!(allocations() - before, 0);
            }
        }
    });
}

#[test]
fn turns_allocate_nothing() {
    on_a_loop(|| async {
        for round in 0..2 {
            let before = allocations();
            for _ in 0..10 * TASKS {
                yield_now().await; // alone on its loop: a turn each
            }
            if round > 0 {
                assert_eq!(allocations() - before, 0);
            }
        }
    });
}
