//! No flood of tasks keeps the others, the tail or the shutdown from their turn.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::{Either, join_all, select};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use loopgroup::time::{interval, now, sleep, sleep_until, timeout_at};
use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, JoinHandle, WaitStrategy, block_on, spawn_local, yield_now,
};

use crate::util::{
    Door, Log, Probe, TempPath, eventually, on_a_loop, poll_once, stall, thread_of, within,
};

/// Wakes itself in every poll, until it is told to stop.
struct Restless {
    polls: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Future for Restless {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        if self.stop.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Self-waking tasks on one loop.
struct Flood {
    size: usize,
    polls: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Flood {
    fn start(ev: &EventLoop, size: usize) -> Flood {
        let flood = Flood {
            size,
            polls: Arc::default(),
            stop: Arc::default(),
        };
        for _ in 0..size {
            drop(ev.spawn(flood.drop_of_water()));
        }
        eventually("the flood is there", || flood.polls() > 4 * size as u64);
        flood
    }

    fn drop_of_water(&self) -> Restless {
        Restless {
            polls: Arc::clone(&self.polls),
            stop: Arc::clone(&self.stop),
        }
    }

    fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Ends the flood and checks that all of it was accounted for.
    #[track_caller]
    fn stop(self, group: &EventLoopGroup) {
        self.stop.store(true, Ordering::Relaxed);
        let report = group.drain(Duration::from_secs(30)).wait();
        assert!(report.completed() >= self.size as u64);
        assert_eq!(report.accepted(), report.completed());
    }
}

/// One loop of each kind.
fn groups() -> [EventLoopGroup; 4] {
    let one = || EventLoopGroup::builder().loops(1);
    [
        one(),
        one().without_io(),
        one().wait_strategy(WaitStrategy::Busy),
        one().io_ratio(100),
    ]
    .map(|builder| builder.build().unwrap())
}

#[test]
fn ten_thousand_self_waking_tasks_go_round_in_step() {
    const TASKS: usize = 10_000;
    const ROUNDS: usize = 10;
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let release = stall(group.next());
        // How many tasks have begun each round.
        let rounds: Arc<Vec<AtomicUsize>> =
            Arc::new((0..ROUNDS).map(|_| AtomicUsize::new(0)).collect());
        let handles: Vec<_> = (0..TASKS)
            .map(|_| {
                let rounds = Arc::clone(&rounds);
                group.spawn(async move {
                    for round in 0..ROUNDS {
                        if round > 0 {
                            let before = rounds[round - 1].load(Ordering::Relaxed);
                            assert_eq!(before, TASKS, "nobody laps anybody");
                        }
                        rounds[round].fetch_add(1, Ordering::Relaxed);
                        yield_now().await;
                    }
                })
            })
            .collect();
        release.open();
        for handle in handles {
            block_on(handle).unwrap();
        }
    });
}

#[test]
fn a_submission_at_home_waits_for_one_round_of_the_flood() {
    const SIZE: usize = 50;
    within(|| {
        for group in groups() {
            let ev = group.next();
            let flood = Flood::start(ev, SIZE);
            let (this, polls) = (ev.clone(), Arc::clone(&flood.polls));
            let waited = ev.spawn(async move {
                let before = polls.load(Ordering::Relaxed);
                this.submit(move || polls.load(Ordering::Relaxed) - before)
                    .await
            });
            // Exactly those that were queued before it.
            assert_eq!(block_on(waited).unwrap().unwrap(), SIZE as u64);
            flood.stop(&group);
        }
    });
}

#[test]
fn submissions_and_wakes_from_elsewhere_get_in_while_the_loop_is_flooded() {
    const PRODUCERS: usize = 4;
    const EACH: usize = 100;
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let flood = Flood::start(group.next(), 200);
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|_| {
                let ev = group.next().clone();
                thread::spawn(move || {
                    for n in 0..EACH {
                        // Each one is awaited: it has to get through on its own.
                        let door = Door::new();
                        let log = Log::new();
                        let handle = ev.spawn(Probe::new(&log, door.opened()));
                        if n % 2 == 0 {
                            eventually("the task waits", || door.waiting() == 1);
                        }
                        door.open();
                        block_on(handle).unwrap();
                        assert!((1..=2).contains(&log.polls()));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        flood.stop(&group);
    });
}

#[test]
fn tail_tasks_run_while_the_loop_is_flooded() {
    within(|| {
        for group in groups() {
            let ev = group.next().clone();
            // More than one slice of a turn.
            let flood = Flood::start(&ev, 3_000);
            for _ in 0..10 {
                let (tx, rx) = mpsc::channel();
                ev.execute_after_iteration(move || tx.send(()).unwrap())
                    .unwrap();
                rx.recv().unwrap();
            }
            flood.stop(&group);
        }
    });
}

#[test]
fn a_tail_task_that_adds_itself_for_ever_starves_nobody() {
    fn again(ev: EventLoop, runs: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
        runs.fetch_add(1, Ordering::Relaxed);
        if !stop.load(Ordering::Relaxed) {
            let next = ev.clone();
            // Refused once the loop is shut down, and that is the end of it.
            let _ = ev.execute_after_iteration(move || again(next, runs, stop));
        }
    }
    within(|| {
        for group in groups() {
            let ev = group.next().clone();
            let (runs, stop) = (
                Arc::new(AtomicU64::new(0)),
                Arc::new(AtomicBool::new(false)),
            );
            let (this, count, until) = (ev.clone(), Arc::clone(&runs), Arc::clone(&stop));
            ev.execute(move || again(this, count, until)).unwrap();
            eventually("it goes round", || runs.load(Ordering::Relaxed) > 10);
            for _ in 0..10 {
                thread_of(&ev);
            }
            // At home, one iteration lies between two runs.
            let count = Arc::clone(&runs);
            let steps = ev.spawn(async move {
                let before = count.load(Ordering::Relaxed);
                for _ in 0..10 {
                    yield_now().await;
                }
                count.load(Ordering::Relaxed) - before
            });
            assert!(block_on(steps).unwrap() <= 10);
            let report = group.shutdown_now().wait();
            assert_eq!(report.loops()[0].cause(), EndCause::Now);
            assert_eq!(report.accepted(), report.completed() + report.cancelled());
        }
    });
}

#[test]
fn a_task_that_respawns_itself_for_ever_starves_nobody() {
    fn respawn(spawns: Arc<AtomicU64>) {
        spawns.fetch_add(1, Ordering::Relaxed);
        drop(spawn_local(async move { respawn(spawns) }));
    }
    within(|| {
        for group in groups() {
            let ev = group.next();
            let spawns = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&spawns);
            ev.execute(move || respawn(count)).unwrap();
            eventually("it goes round", || spawns.load(Ordering::Relaxed) > 2_000);
            for _ in 0..10 {
                thread_of(ev);
            }
            let report = group.shutdown_now().wait();
            assert_eq!(report.loops()[0].cause(), EndCause::Now);
            assert_eq!(report.accepted(), report.completed() + report.cancelled());
        }
    });
}

#[test]
fn timers_that_are_over_before_they_begin_starve_nobody() {
    within(|| {
        for group in groups() {
            let ev = group.next();
            let past = Instant::now();
            // Each is ready whenever it is asked: the one never catches up, the other never waits.
            let ticking = ev.spawn(async {
                let mut ticks = interval(Duration::from_nanos(1));
                loop {
                    ticks.tick().await;
                }
            });
            let passing = ev.spawn(async move {
                loop {
                    sleep_until(past).await;
                }
            });
            for _ in 0..10 {
                thread_of(ev);
            }
            drop::<[JoinHandle<()>; 2]>([ticking, passing]);
            let report = group.shutdown_now().wait();
            assert_eq!((report.completed(), report.cancelled()), (10, 2));
        }
    });
}

#[test]
fn connects_and_binds_that_fail_at_once_starve_nobody() {
    /// Runs a task that tries for ever; others get in.
    fn is_fair<F: Future<Output = ()> + Send + 'static>(attempt: impl Fn() -> F + Send + 'static) {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let trying: JoinHandle<()> = ev.spawn_with(|| async move {
            loop {
                attempt().await;
            }
        });
        for _ in 0..2 {
            thread_of(ev);
        }
        drop(trying);
        let report = group.shutdown_now().wait();
        assert_eq!((report.completed(), report.cancelled()), (2, 1));
    }
    within(|| {
        let nobody = TempPath::new("nobody-listens");
        let path = nobody.0.clone();
        is_fair(move || {
            let path = path.clone();
            async move { drop(UnixStream::connect(&path).await.unwrap_err()) }
        });
        // To everybody, which TCP cannot: the system refuses at once.
        let everybody = "127.255.255.255:9";
        is_fair(move || async move { drop(TcpStream::connect(everybody).await.unwrap_err()) });
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        is_fair(move || async move { drop(TcpListener::bind(address).await.unwrap_err()) });
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        is_fair(move || async move { drop(UdpSocket::bind(address).await.unwrap_err()) });
        let socket = Arc::new(block_on(UdpSocket::bind("127.0.0.1:0")).unwrap());
        is_fair(move || {
            let socket = Arc::clone(&socket);
            async move { socket.connect(address).await.unwrap() }
        });
    });
}

/// Reads behind floods that never wait, and gives those a time that is over.
async fn read_beside_floods() -> io::Result<()> {
    let past = now();
    sleep(Duration::from_millis(1)).await; // the clock has been read since
    let (ours, mut theirs) = UnixStream::pair()?;
    let (mut other, mut its_peer) = UnixStream::pair()?;
    theirs.write_all(b"x").await?;
    ours.readable().await?; // and is from here on
    let always_ready = || async { while ours.readable().await.is_ok() {} };
    for branches in [1, 2, 20] {
        let flood = || join_all((0..branches).map(|_| always_ready()));
        assert!(timeout_at(past, flood()).await.is_err());
        its_peer.write_all(b"x").await?;
        match select(flood(), other.read(&mut [0])).await {
            Either::Left(_) => panic!("it never ends"),
            Either::Right((read, _)) => assert_eq!(read?, 1),
        }
    }
    Ok(())
}

#[test]
fn branches_that_are_always_ready_starve_neither_the_next_one_nor_their_timeout() {
    on_a_loop(read_beside_floods);
}

#[test]
fn branches_that_are_always_ready_starve_nobody_in_block_on_either() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.block_on(read_beside_floods()).unwrap();
        // Inside of each other, and with a loop in between.
        block_on(async { group.block_on(read_beside_floods()) }).unwrap();
        let loop_inside = async { loopgroup::run(read_beside_floods()) };
        group.block_on(loop_inside).unwrap().unwrap();
        group.block_on(read_beside_floods()).unwrap();
    });
}

#[test]
fn a_select_whose_branches_take_turns_for_ever_starves_nobody() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        // Of the two, there is always one that has not been told to stop last.
        let selecting: JoinHandle<()> = ev.spawn_with(|| async move {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(b"x").await.unwrap();
            loop {
                let (one, other) = (ours.readable(), ours.writable());
                drop(select(pin!(one), pin!(other)).await);
            }
        });
        for _ in 0..10 {
            thread_of(ev);
        }
        drop(selecting);
        let report = group.shutdown_now().wait();
        assert_eq!((report.completed(), report.cancelled()), (10, 1));
    });
}

#[test]
fn an_executor_inside_of_a_task_is_not_told_to_stop_for_ever() {
    on_a_loop(|| async {
        let (ours, mut theirs) = UnixStream::pair()?;
        theirs.write_all(b"x").await?;
        ours.readable().await?; // and is from here on
        // It does not return to the loop before it is done.
        for _ in 0..10_000 {
            let mut readable = pin!(ours.readable());
            while poll_once(&mut readable).is_pending() {}
        }
        Ok(())
    });
}

#[test]
fn a_flood_does_not_hold_up_shutdown_now() {
    within(|| {
        for group in groups() {
            let flood = Flood::start(group.next(), 1_000);
            let report = group.shutdown_now().wait();
            assert_eq!(report.loops()[0].cause(), EndCause::Now);
            assert_eq!(report.cancelled(), flood.size as u64);
        }
    });
}

#[test]
fn a_flood_does_not_outlive_the_timeout() {
    const TIMEOUT: Duration = Duration::from_millis(30);
    within(|| {
        for group in groups() {
            let flood = Flood::start(group.next(), 1_000);
            let begin = Instant::now();
            let termination = group.drain(TIMEOUT);
            let report = termination.wait();
            assert!(begin.elapsed() >= TIMEOUT, "the tasks had their time");
            assert!(begin.elapsed() < Duration::from_secs(20));
            assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
            assert_eq!(
                (report.cancelled(), report.completed()),
                (flood.size as u64, 0)
            );
        }
    });
}

#[test]
fn a_flood_does_not_let_a_quiet_period_end() {
    const TIMEOUT: Duration = Duration::from_millis(30);
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let flood = Flood::start(group.next(), 10);
        let termination = group
            .shutdown_gracefully_with(Duration::ZERO, TIMEOUT)
            .unwrap();
        let report = termination.wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Timeout);
        assert_eq!(report.cancelled(), flood.size as u64);
    });
}

#[test]
fn shutdown_requested_reaches_a_task_under_a_flood() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let flood = Flood::start(group.next(), 1_000);
        let stop = Arc::clone(&flood.stop);
        let polite = group.spawn(async move {
            loopgroup::shutdown_requested().await;
            stop.store(true, Ordering::Relaxed);
        });
        let report = group.drain(Duration::from_secs(30)).wait();
        block_on(polite).unwrap();
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        assert_eq!(report.completed(), 1_001);
    });
}

#[test]
fn a_flood_on_one_loop_is_nothing_to_its_sibling() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let flood = Flood::start(&group.loops()[0], 100);
        let release = stall(&group.loops()[0]);
        let before = flood.polls();
        for _ in 0..100 {
            thread_of(&group.loops()[1]);
        }
        assert_eq!(
            flood.polls(),
            before,
            "nobody else runs the tasks of a busy loop"
        );
        release.open();
        flood.stop(&group);
    });
}

#[test]
fn the_main_future_and_the_tasks_of_run_take_turns() {
    within(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let polls = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&order);
        loopgroup::run(async {
            // The main future gets through a flood of tasks ...
            for _ in 0..2_000 {
                drop(spawn_local(Restless {
                    polls: Arc::clone(&polls),
                    stop: Arc::clone(&stop),
                }));
            }
            for _ in 0..20 {
                yield_now().await;
                seen.lock().unwrap().push(polls.load(Ordering::Relaxed));
            }
            stop.store(true, Ordering::Relaxed);
            // ... and does not starve a task by waking itself.
            let task = spawn_local(async {
                for _ in 0..20 {
                    yield_now().await;
                }
            });
            while !task.is_finished() {
                yield_now().await;
            }
        })
        .unwrap();
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 20);
        assert!(
            order.windows(2).all(|pair| pair[0] < pair[1]),
            "tasks run in between"
        );
    });
}

#[test]
fn two_tasks_that_wake_each_other_let_a_third_one_in() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next();
        let stop = Arc::new(AtomicBool::new(false));
        let wakers = Arc::new(Mutex::new([const { None }; 2]));
        let rounds = Arc::new(AtomicU64::new(0));
        let mutual = [0, 1].map(|me: usize| {
            let (stop, wakers, rounds) =
                (Arc::clone(&stop), Arc::clone(&wakers), Arc::clone(&rounds));
            ev.spawn(poll_fn(move |cx| {
                rounds.fetch_add(1, Ordering::Relaxed);
                let mut wakers: std::sync::MutexGuard<'_, [Option<std::task::Waker>; 2]> =
                    wakers.lock().unwrap();
                wakers[me] = Some(cx.waker().clone());
                let other = wakers[1 - me].clone();
                drop(wakers);
                if let Some(other) = other {
                    other.wake();
                }
                if stop.load(Ordering::Relaxed) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }))
        });
        eventually("they play", || rounds.load(Ordering::Relaxed) > 1_000);
        for _ in 0..100 {
            thread_of(ev);
        }
        stop.store(true, Ordering::Relaxed);
        for task in mutual {
            block_on(task).unwrap();
        }
    });
}
