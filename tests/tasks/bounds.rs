//! `max_pending_tasks` is exact, and what it refuses is handed back as it was.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::{
    EventLoop, EventLoopGroup, JoinHandle, PanicSite, RejectPolicy, RejectReason, RejectVerdict,
    block_on, spawn_local, try_spawn_local,
};

use crate::util::{self, Door, Log, Probe, eventually, stall, thread_of, within};

const FULL: Option<RejectReason> = Some(RejectReason::QueueFull);

fn bounded_with(max: usize, policy: RejectPolicy) -> EventLoopGroup {
    EventLoopGroup::builder()
        .loops(1)
        .max_pending_tasks(max)
        .reject_policy(policy)
        .build()
        .unwrap()
}

fn bounded(max: usize) -> EventLoopGroup {
    bounded_with(max, RejectPolicy::Reject)
}

/// Submits until a submission is refused; returns how many were accepted.
fn fill(ev: &EventLoop) -> usize {
    let accepted = (0..10_000).take_while(|_| ev.execute(|| ()).is_ok());
    accepted.count()
}

/// The reason of a refusal, if it is one.
fn refusal<T>(handle: JoinHandle<T>) -> Option<RejectReason> {
    block_on(handle).err()?.reject_reason()
}

/// Waits until everything that was accepted has begun and ended.
#[track_caller]
fn empties(ev: &EventLoop) {
    eventually("the queue is empty", || {
        ev.pending_tasks() == 0 && ev.live_tasks() == 0
    });
}

#[test]
fn the_bound_is_exact_and_is_free_again_when_tasks_have_begun() {
    within(|| {
        for max in [1, 2, 7, 100] {
            let group = bounded(max);
            let ev = group.next();
            for _ in 0..3 {
                let release = stall(ev);
                assert_eq!(fill(ev), max);
                assert_eq!(ev.pending_tasks(), max);
                release.open();
                empties(ev);
            }
            let report = group.shutdown_now().wait();
            let accepted = 3 * (max as u64 + 1);
            assert_eq!((report.completed(), report.rejected()), (accepted, 3));
        }
    });
}

#[test]
fn each_loop_has_a_bound_of_its_own() {
    within(|| {
        let group = EventLoopGroup::builder().loops(2).max_pending_tasks(3);
        let group = group.build().unwrap();
        let releases = [0, 1].map(|index| stall(&group.loops()[index]));
        assert_eq!(fill(&group.loops()[0]), 3);
        assert_eq!(fill(&group.loops()[1]), 3);
        for release in releases {
            release.open();
        }
    });
}

#[test]
fn submissions_on_the_loop_and_elsewhere_share_the_bound() {
    within(|| {
        let group = bounded(5);
        let ev = group.next().clone();
        let (inside, filled) = (Door::new(), Door::new());
        let (enter, go_on, own) = (inside.clone(), filled.clone(), ev.clone());
        let at_home = ev.submit(move || {
            // One of each kind at home, then two from elsewhere, then what is left at home.
            drop(own.spawn(async {}));
            drop(spawn_local(async {}));
            enter.open();
            go_on.pass();
            own.execute_after_iteration(|| ()).unwrap();
            let local = try_spawn_local(async {}).err().map(|r| r.reason());
            (local, refusal_here(own.spawn(async {})), fill(&own))
        });
        inside.pass();
        ev.execute(|| ()).unwrap();
        ev.lazy_execute(|| ()).unwrap();
        filled.open();
        assert_eq!(block_on(at_home).unwrap(), (FULL, FULL, 0));
        empties(&ev);
    });
}

/// The reason of a refusal that is known already.
fn refusal_here<T>(mut handle: JoinHandle<T>) -> Option<RejectReason> {
    match util::poll_once(&mut handle) {
        std::task::Poll::Ready(Err(error)) => error.reject_reason(),
        _ => None,
    }
}

#[test]
fn producers_at_once_fill_a_stalled_loop_exactly() {
    within(|| {
        let group = bounded(64);
        let release = stall(group.next());
        let barrier = Arc::new(Barrier::new(4));
        let producers: Vec<_> = (0..4)
            .map(|_| {
                let (group, barrier) = (group.clone(), Arc::clone(&barrier));
                thread::spawn(move || {
                    barrier.wait();
                    (0..500)
                        .filter(|_| group.try_spawn(async {}).is_ok())
                        .count()
                })
            })
            .collect();
        let accepted: usize = producers.into_iter().map(|p| p.join().unwrap()).sum();
        assert_eq!(accepted, 64);
        assert_eq!(group.next().pending_tasks(), 64);
        release.open();
        let report = group.drain(Duration::from_secs(30)).wait();
        assert_eq!((report.completed(), report.rejected()), (65, 2000 - 64));
    });
}

#[test]
fn a_running_loop_never_has_more_than_the_bound() {
    within(|| {
        let max = 8;
        let group = bounded(max);
        let ev = group.next().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, end) = (ev.clone(), Arc::clone(&stop));
        let watcher = thread::spawn(move || {
            let mut most = 0;
            while !end.load(Ordering::SeqCst) {
                most = most.max(seen.pending_tasks());
            }
            most
        });
        let ran = Arc::new(AtomicUsize::new(0));
        let producers: Vec<_> = (0..3)
            .map(|_| {
                let (ev, ran) = (ev.clone(), Arc::clone(&ran));
                thread::spawn(move || {
                    let submit = |_: &i32| {
                        let ran = Arc::clone(&ran);
                        let count = move || {
                            ran.fetch_add(1, Ordering::SeqCst);
                        };
                        ev.execute(count).is_ok()
                    };
                    (0..3000).filter(submit).count()
                })
            })
            .collect();
        let accepted: usize = producers.into_iter().map(|p| p.join().unwrap()).sum();
        stop.store(true, Ordering::SeqCst);
        assert!(watcher.join().unwrap() <= max);
        let report = group.drain(Duration::from_secs(30)).wait();
        assert_eq!(ran.load(Ordering::SeqCst), accepted);
        assert_eq!(report.accepted(), accepted as u64);
        assert_eq!(report.accepted() + report.rejected(), 9000);
    });
}

#[test]
fn a_refused_future_comes_back_untouched() {
    within(|| {
        let group = bounded(1);
        let release = stall(group.next());
        assert_eq!(fill(group.next()), 1);
        let log = Log::new();
        let text = String::from("mine");
        let address = text.as_ptr() as usize;
        let future = Probe::new(&log, async move { text });
        let rejected = group.try_spawn(future).unwrap_err();
        assert_eq!(Some(rejected.reason()), FULL);
        assert_eq!((log.polls(), log.drops()), (0, 0));
        let text = block_on(rejected.into_inner());
        assert_eq!((text.as_str(), text.as_ptr() as usize), ("mine", address));
        log.assert_home(thread::current().id());
        release.open();
    });
}

#[test]
fn refused_closures_come_back_untouched() {
    within(|| {
        let group = bounded(1);
        let ev = group.next();
        let release = stall(ev);
        assert_eq!(fill(ev), 1);
        let (tx, rx) = mpsc::channel();
        let send = |n: u8| {
            let tx = tx.clone();
            move || tx.send(n).unwrap()
        };
        ev.execute(send(1)).unwrap_err().into_inner()();
        ev.lazy_execute(send(2)).unwrap_err().into_inner()();
        ev.execute_after_iteration(send(3))
            .unwrap_err()
            .into_inner()();
        ev.dispatch(send(4)).unwrap_err().into_inner()();
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
        release.open();
    });
}

#[test]
fn a_refused_spawn_shows_in_its_handle_and_drops_its_future_here() {
    within(|| {
        let group = bounded(1);
        let release = stall(group.next());
        assert_eq!(fill(group.next()), 1);
        let log = Log::new();
        let handle = group.spawn(Probe::new(&log, async {}));
        assert!(handle.is_finished());
        assert_eq!(log.polls(), 0);
        log.assert_home(thread::current().id());
        assert_eq!(refusal(handle), FULL);
        let init = |log: Arc<Log>| move || Probe::new(&log, async {});
        assert_eq!(refusal(group.spawn_with(init(Arc::clone(&log)))), FULL);
        assert_eq!(log.drops(), 1, "the second future was never made");
        release.open();
    });
}

#[test]
fn dispatch_at_home_needs_no_place() {
    within(|| {
        let group = bounded(1);
        let ev = group.next().clone();
        let own = ev.clone();
        let ran = ev.submit(move || {
            assert_eq!(fill(&own), 1);
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..3 {
                let ran = Arc::clone(&ran);
                let count = move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                };
                own.dispatch(count).unwrap();
            }
            ran.load(Ordering::SeqCst)
        });
        assert_eq!(block_on(ran).unwrap(), 3);
    });
}

#[test]
fn wakes_are_never_refused() {
    within(|| {
        let group = bounded(1);
        let ev = group.next();
        let door = Door::new();
        let tasks: Vec<_> = (1..=5)
            .map(|n| {
                let task = ev.spawn(door.opened());
                eventually("it waits", || door.waiting() == n);
                task
            })
            .collect();
        let release = stall(ev);
        assert_eq!(fill(ev), 1);
        assert_eq!(ev.live_tasks(), 6);
        door.open();
        release.open();
        for task in tasks {
            block_on(task).unwrap();
        }
        let report = group.shutdown_now().wait();
        assert_eq!((report.completed(), report.rejected()), (7, 1));
    });
}

#[test]
fn a_task_aborted_before_its_first_poll_gives_its_place_back() {
    within(|| {
        let group = bounded(4);
        let ev = group.next();
        for _ in 0..3 {
            let release = stall(ev);
            let log = Log::new();
            let tasks: Vec<_> = (0..4)
                .map(|_| ev.try_spawn(Probe::new(&log, async {})).unwrap())
                .collect();
            assert_eq!(fill(ev), 0);
            for task in tasks {
                task.abort();
            }
            release.open();
            empties(ev);
            assert_eq!((log.polls(), log.drops()), (0, 4));
        }
        let release = stall(ev);
        assert_eq!(fill(ev), 4);
        release.open();
    });
}

#[test]
fn tasks_that_panic_give_their_places_back() {
    within(|| {
        let group = bounded(2);
        for _ in 0..20 {
            let panics = group.next().spawn(async { panic!("on purpose") });
            assert!(block_on(panics).unwrap_err().is_panic());
        }
        let release = stall(group.next());
        assert_eq!(fill(group.next()), 2);
        release.open();
    });
}

#[test]
fn backoff_tries_again_until_there_is_room() {
    within(|| {
        let group = bounded_with(
            1,
            RejectPolicy::Backoff {
                retries: u32::MAX,
                interval: Duration::from_millis(1),
            },
        );
        let ev = group.next().clone();
        let release = stall(&ev);
        ev.execute(|| ()).unwrap();
        let own = ev.clone();
        let patient = thread::spawn(move || block_on(own.try_spawn(async { 3 }).unwrap()).unwrap());
        release.open();
        assert_eq!(patient.join().unwrap(), 3);
        let report = group.shutdown_now().wait();
        assert_eq!((report.completed(), report.rejected()), (3, 0));
    });
}

#[test]
fn backoff_wakes_a_loop_whose_queue_is_full_of_lazy_tasks() {
    within(|| {
        let group = bounded_with(
            1,
            RejectPolicy::Backoff {
                retries: u32::MAX,
                interval: Duration::from_millis(1),
            },
        );
        thread_of(group.next());
        group.next().lazy_execute(|| ()).unwrap();
        // Nothing but the caller that waits for room could wake the loop.
        assert_eq!(block_on(group.spawn(async { 4 })).unwrap(), 4);
    });
}

#[test]
fn backoff_gives_up_after_its_retries() {
    within(|| {
        let interval = Duration::from_millis(4);
        let group = bounded_with(
            1,
            RejectPolicy::Backoff {
                retries: 5,
                interval,
            },
        );
        let ev = group.next();
        let release = stall(ev);
        ev.execute(|| ()).unwrap();
        let begun = Instant::now();
        assert_eq!(Some(ev.execute(|| ()).unwrap_err().reason()), FULL);
        assert!(begun.elapsed() >= 5 * interval);
        release.open();
    });
}

#[test]
fn backoff_refuses_a_caller_that_is_a_loop_at_once() {
    within(|| {
        // An interval that no test would survive.
        let group = bounded_with(
            1,
            RejectPolicy::Backoff {
                retries: 1,
                interval: Duration::from_secs(3600),
            },
        );
        let ev = group.next().clone();
        let own = ev.clone();
        let at_home = ev.submit(move || {
            own.execute(|| ()).unwrap();
            own.execute(|| ()).err().map(|rejected| rejected.reason())
        });
        assert_eq!(block_on(at_home).unwrap(), FULL);
        // A submission of this thread that found the queue full would sleep.
        empties(&ev);
        let release = stall(&ev);
        ev.execute(|| ()).unwrap();
        let other = EventLoopGroup::new(1).unwrap();
        let elsewhere = other.next().submit(move || {
            let refused = ev.execute(|| ());
            refused.err().map(|rejected| rejected.reason())
        });
        assert_eq!(block_on(elsewhere).unwrap(), FULL);
        release.open();
    });
}

#[test]
fn a_custom_policy_hears_the_number_of_the_attempt() {
    static ATTEMPTS: Mutex<Vec<(usize, u32)>> = Mutex::new(Vec::new());
    fn thrice(ev: &EventLoop, attempt: u32) -> RejectVerdict {
        ATTEMPTS.lock().unwrap().push((ev.index(), attempt));
        if attempt < 3 {
            RejectVerdict::Retry
        } else {
            RejectVerdict::Reject
        }
    }
    within(|| {
        let group = bounded_with(1, RejectPolicy::Custom(thrice));
        let release = stall(group.next());
        group.next().execute(|| ()).unwrap();
        assert!(ATTEMPTS.lock().unwrap().is_empty(), "there was room");
        for _ in 0..2 {
            assert_eq!(refusal(group.spawn(async {})), FULL);
            let heard = std::mem::take(&mut *ATTEMPTS.lock().unwrap());
            assert_eq!(heard, [(0, 1), (0, 2), (0, 3)]);
        }
        release.open();
        assert_eq!(group.shutdown_now().wait().rejected(), 2);
    });
}

#[test]
fn a_custom_policy_may_wait_for_room() {
    static RELEASE: OnceLock<Door> = OnceLock::new();
    fn wait(ev: &EventLoop, _: u32) -> RejectVerdict {
        RELEASE.get().unwrap().open();
        eventually("there is room", || ev.pending_tasks() == 0);
        RejectVerdict::Retry
    }
    within(|| {
        let group = bounded_with(1, RejectPolicy::Custom(wait));
        RELEASE.set(stall(group.next())).unwrap();
        group.next().execute(|| ()).unwrap();
        let waited = group.try_spawn(async { 2 }).unwrap();
        assert_eq!(block_on(waited).unwrap(), 2);
    });
}

#[test]
fn a_retry_on_the_full_loop_itself_counts_as_a_refusal() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    fn again(_: &EventLoop, _: u32) -> RejectVerdict {
        ASKED.fetch_add(1, Ordering::SeqCst);
        RejectVerdict::Retry
    }
    within(|| {
        let group = bounded_with(1, RejectPolicy::Custom(again));
        let ev = group.next().clone();
        let own = ev.clone();
        let refused = ev.submit(move || {
            own.execute(|| ()).unwrap();
            let spawned = refusal_here(own.spawn(async {}));
            let local = try_spawn_local(async {}).err().map(|r| r.reason());
            (spawned, local)
        });
        assert_eq!(block_on(refused).unwrap(), (FULL, FULL));
        assert_eq!(ASKED.load(Ordering::SeqCst), 2, "asked once for each");
    });
}

#[test]
fn a_custom_policy_that_panics_refuses_and_is_reported() {
    fn broken(_: &EventLoop, _: u32) -> RejectVerdict {
        panic!("no idea")
    }
    within(|| {
        let (tx, rx) = mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(1)
            .max_pending_tasks(1)
            .reject_policy(RejectPolicy::Custom(broken))
            .on_panic(move |panic| {
                let _ = tx.send((panic.site(), panic.message().to_owned()));
            })
            .build()
            .unwrap();
        let release = stall(group.next());
        group.next().execute(|| ()).unwrap();
        let rejected = group.try_spawn(async { 5 }).unwrap_err();
        assert_eq!(Some(rejected.reason()), FULL);
        assert_eq!(block_on(rejected.into_inner()), 5);
        assert_eq!(
            rx.try_recv().unwrap(),
            (PanicSite::RejectPolicy, "no idea".into())
        );
        release.open();
        // The place of the refused one was never taken.
        empties(group.next());
        thread_of(group.next());
    });
}

#[test]
fn a_retry_ends_when_the_loop_does() {
    static ASKED: OnceLock<Door> = OnceLock::new();
    fn for_ever(_: &EventLoop, _: u32) -> RejectVerdict {
        ASKED.get_or_init(Door::new).open();
        thread::yield_now();
        RejectVerdict::Retry
    }
    within(|| {
        ASKED.get_or_init(Door::new);
        let group = bounded_with(1, RejectPolicy::Custom(for_ever));
        let ev = group.next().clone();
        // The queue stays full: the loop is shut down before it gets to it.
        let release = stall(&ev);
        ev.execute(|| ()).unwrap();
        let own = ev.clone();
        let retrying = thread::spawn(move || refusal(own.spawn(std::future::pending::<()>())));
        ASKED.get().unwrap().pass();
        let end = group.shutdown_now();
        release.open();
        let report = end.wait();
        // Room may come in the last moment; a task that got in then is cancelled.
        let refused = retrying.join().unwrap();
        assert!(
            matches!(refused, None | Some(RejectReason::ShutDown)),
            "{refused:?}"
        );
        assert_eq!(report.rejected(), u64::from(refused.is_some()));
        assert_eq!(report.accepted() + report.rejected(), 3);
    });
}

#[test]
fn a_place_is_taken_for_the_wait_only_and_not_for_the_life() {
    within(|| {
        let group = bounded(2);
        let door = Door::new();
        let live: Vec<JoinHandle<()>> = (1..=10)
            .map(|n| {
                let task = group.spawn(door.opened());
                eventually("it has begun", || door.waiting() == n);
                task
            })
            .collect();
        assert_eq!(group.next().live_tasks(), 10);
        door.open();
        for task in live {
            assert_done(task);
        }
    });
}

#[track_caller]
fn assert_done(task: impl Future<Output = Result<(), loopgroup::JoinError>>) {
    block_on(task).unwrap();
}
