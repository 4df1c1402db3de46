//! Locks and signals of other crates, contended between two loops: nothing is lost, and everybody
//! stays at home.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use loopgroup::{EventLoop, EventLoopGroup};
use tokio::sync::{Barrier, Notify, Semaphore, broadcast, oneshot, watch};

use crate::util::within;

/// Runs a task on each of two loops, at home at its end as at its start, and returns what they return.
fn on_two_loops<F, T>(make: impl Fn(u32) -> F) -> [T; 2]
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let group = EventLoopGroup::new(2).unwrap();
    let tasks = [0, 1].map(|number: u32| {
        let task = make(number);
        group.spawn_on(number as usize, async move {
            let home = EventLoop::current();
            let output = task.await;
            assert_eq!(EventLoop::current(), home);
            output
        })
    });
    tasks.map(|task| group.block_on(task).unwrap())
}

#[test]
fn a_mutex_of_tokio_and_one_of_futures_count_right() {
    within(|| {
        let tokio = Arc::new(tokio::sync::Mutex::new(0));
        let futures = Arc::new(futures::lock::Mutex::new(0));
        on_two_loops(|_| {
            let (tokio, futures) = (Arc::clone(&tokio), Arc::clone(&futures));
            async move {
                for _ in 0..1000 {
                    *tokio.lock().await += 1;
                    let mut count = futures.lock().await;
                    loopgroup::yield_now().await; // held over an await: the other one has to wait
                    *count += 1;
                }
            }
        });
        assert_eq!(
            (*tokio.try_lock().unwrap(), *futures.try_lock().unwrap()),
            (2000, 2000)
        );
    });
}

#[test]
fn a_semaphore_and_a_barrier_of_tokio_let_pass_as_many_as_they_should() {
    within(|| {
        let state = Arc::new((Semaphore::new(1), Barrier::new(2)));
        let leaders = on_two_loops(|_| {
            let state = Arc::clone(&state);
            async move {
                let mut leader = 0;
                for _ in 0..200 {
                    let permit = state.0.acquire().await.unwrap();
                    loopgroup::yield_now().await;
                    drop(permit);
                    leader += u32::from(state.1.wait().await.is_leader());
                }
                leader
            }
        });
        assert_eq!(leaders[0] + leaders[1], 200);
    });
}

#[test]
fn notify_oneshot_watch_and_broadcast_of_tokio_cross_loops() {
    within(|| {
        let ready = Arc::new(Notify::new());
        let (say, _) = broadcast::channel(16);
        let (look, seen) = watch::channel(0);
        let (done, end) = oneshot::channel();
        let (done, end) = (Cell::new(Some(done)), Cell::new(Some(end)));
        let heard = on_two_loops(|number| {
            let (ready, seen) = (Arc::clone(&ready), seen.clone());
            let (say, look) = (say.clone(), look.clone());
            // The first task waits for the second one's word.
            let end = if number == 0 { end.take() } else { None };
            let done = if number == 1 { done.take() } else { None };
            async move {
                if number == 0 {
                    ready.notified().await;
                    say.send(7).unwrap();
                    look.send(8).unwrap();
                    return end.unwrap().await.unwrap();
                }
                let (mut hear, mut seen) = (say.subscribe(), seen);
                ready.notify_one();
                let heard = hear.recv().await.unwrap() + *seen.wait_for(|&n| n > 0).await.unwrap();
                done.unwrap().send(heard).unwrap();
                heard
            }
        });
        assert_eq!(heard, [15, 15]);
    });
}

#[test]
fn locks_of_async_lock_count_right() {
    within(|| {
        let mutex = Arc::new(async_lock::Mutex::new(0));
        let lock = Arc::new(async_lock::RwLock::new(0));
        let semaphore = Arc::new(async_lock::Semaphore::new(1));
        on_two_loops(|_| {
            let (mutex, lock) = (Arc::clone(&mutex), Arc::clone(&lock));
            let semaphore = Arc::clone(&semaphore);
            async move {
                for _ in 0..500 {
                    let mut count = mutex.lock().await;
                    loopgroup::yield_now().await; // held over an await: the other one has to wait
                    *count += 1;
                    drop(count);
                    let permit = semaphore.acquire().await;
                    let before = *lock.read().await;
                    loopgroup::yield_now().await;
                    *lock.write().await = before + 1;
                    drop(permit);
                }
            }
        });
        let count = *mutex.try_lock().unwrap();
        assert_eq!((count, *lock.try_read().unwrap()), (1000, 1000));
    });
}

#[test]
fn a_read_write_lock_and_a_cell_of_tokio_cross_loops() {
    within(|| {
        let lock = Arc::new(tokio::sync::RwLock::new(0));
        let cell = Arc::new(tokio::sync::OnceCell::new());
        let made = Arc::new(AtomicU32::new(0));
        on_two_loops(|_| {
            let (lock, cell, made) = (Arc::clone(&lock), Arc::clone(&cell), Arc::clone(&made));
            async move {
                for _ in 0..500 {
                    let mut count = lock.write().await;
                    loopgroup::yield_now().await;
                    *count += 1;
                    drop(count);
                    assert!(*lock.read().await > 0);
                }
                let make = || async {
                    loopgroup::yield_now().await;
                    made.fetch_add(1, SeqCst)
                };
                assert_eq!(cell.get_or_init(make).await, &0);
            }
        });
        assert_eq!((*lock.try_read().unwrap(), made.load(SeqCst)), (1000, 1));
    });
}

#[test]
fn a_mutex_of_std_that_is_held_briefly_counts_right() {
    within(|| {
        let count = Arc::new(std::sync::Mutex::new(0));
        on_two_loops(|_| {
            let count = Arc::clone(&count);
            async move {
                for _ in 0..1000 {
                    *count.lock().unwrap() += 1; // released before the await
                    loopgroup::yield_now().await;
                }
            }
        });
        assert_eq!(*count.lock().unwrap(), 2000);
    });
}
