//! `next` goes through the chooser: exact turns by default, and no chooser can break a group.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use loopgroup::net::UdpSocket;
use loopgroup::{
    Chooser, EventLoop, EventLoopGroup, GroupView, LeastBusy, LeastLoaded, LoopState,
    PreferCurrent, RejectReason, RoundRobin, block_on,
};

use crate::util::{LONG, eventually, stall, within};

fn choosing(loops: usize, chooser: impl Chooser + 'static) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(loops).without_io();
    builder.chooser(chooser).build().unwrap()
}

fn picks(group: &EventLoopGroup, count: usize) -> Vec<usize> {
    (0..count).map(|_| group.next().index()).collect()
}

/// `count` indices from `first` on, in turn.
fn turns(first: usize, len: usize, count: usize) -> Vec<usize> {
    (first..first + count).map(|n| n % len).collect()
}

/// How often each loop is picked by `threads` threads that pick `each` times at once.
fn shares(group: &EventLoopGroup, threads: usize, each: usize) -> Vec<usize> {
    let counts: Arc<Vec<AtomicUsize>> =
        Arc::new((0..group.len()).map(|_| AtomicUsize::new(0)).collect());
    let barrier = Arc::new(Barrier::new(threads));
    let pickers: Vec<_> = (0..threads)
        .map(|_| {
            let (group, counts) = (group.clone(), Arc::clone(&counts));
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || {
                barrier.wait();
                for _ in 0..each {
                    counts[group.next().index()].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for picker in pickers {
        picker.join().unwrap();
    }
    counts.iter().map(|n| n.load(Ordering::Relaxed)).collect()
}

/// A closure as a chooser.
struct By<F>(F);

impl<F: Fn(&GroupView<'_>) -> usize + Send + Sync> Chooser for By<F> {
    fn choose(&self, group: &GroupView<'_>) -> usize {
        (self.0)(group)
    }
}

/// Which loop a future of the current group lands on.
async fn spawned_on() -> usize {
    let here = async { EventLoop::current().unwrap().index() };
    loopgroup::spawn(here).await.unwrap()
}

#[test]
fn the_default_takes_the_loops_in_turn() {
    within(|| {
        for len in 1..=7 {
            let group = EventLoopGroup::new(len).unwrap();
            assert_eq!(picks(&group, 5 * len), turns(0, len, 5 * len));
        }
    });
}

#[test]
fn spawns_land_where_the_turn_is() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        let handles: Vec<_> = (0..9)
            .map(|_| group.spawn(async { EventLoop::current().unwrap().index() }))
            .collect();
        let landed: Vec<_> = handles.into_iter().map(|h| block_on(h).unwrap()).collect();
        assert_eq!(landed, turns(0, 3, 9));
    });
}

#[test]
fn turns_are_exact_among_callers_at_once() {
    within(|| {
        for len in [2, 3, 4, 5, 7] {
            let group = choosing(len, RoundRobin::default());
            // Four threads, a multiple of the length in all, and not for each of them.
            let each = 105 * len / 4 * 4;
            let total = 4 * each;
            let got = shares(&group, 4, each);
            assert_eq!(got.iter().sum::<usize>(), total);
            let (low, high) = (total / len, total.div_ceil(len));
            assert!(got.iter().all(|&n| n == low || n == high), "{len}: {got:?}");
            let default = EventLoopGroup::builder().loops(len).without_io();
            let got = shares(&default.build().unwrap(), 4, 25 * len);
            assert_eq!(got, vec![100; len]);
        }
    });
}

#[test]
fn turns_are_exact_across_the_overflow_of_the_counter() {
    within(|| {
        for len in 1..=9 {
            for start in [usize::MAX - 4, usize::MAX - 1, usize::MAX] {
                let group = choosing(len, RoundRobin::starting_at(start));
                let expected = turns(start % len, len, 4 * len + 6);
                assert_eq!(picks(&group, 4 * len + 6), expected, "{len} from {start}");
            }
            // Among callers at once, too.
            let group = choosing(len, RoundRobin::starting_at(usize::MAX - 50));
            assert_eq!(shares(&group, 2, 50 * len), vec![100; len]);
        }
    });
}

#[test]
fn the_least_loaded_of_two_loops_is_taken() {
    within(|| {
        let group = choosing(3, LeastLoaded::default());
        let release = stall(&group.loops()[1]);
        assert_eq!(group.loops()[1].live_tasks(), 1);
        // Two different loops are looked at: the only one with a load never wins.
        let mut seen = [0; 3];
        for index in picks(&group, 300) {
            seen[index] += 1;
        }
        assert_eq!(seen[1], 0);
        assert!(seen[0] > 0 && seen[2] > 0, "{seen:?}");
        // Now it has the smallest load of all.
        for index in [0, 0, 0, 2, 2, 2] {
            drop(group.spawn_on(index, pending::<()>()));
        }
        eventually("they are live", || {
            [0, 2].iter().all(|&i| group.loops()[i].live_tasks() == 3)
        });
        let picked = picks(&group, 300);
        assert!(picked.contains(&1));
        // Against the other two it wins every time; they meet each other in a third of the cases.
        let wins = picked.iter().filter(|&&index| index == 1).count();
        assert!(wins > 100, "{wins} of 300");
        release.open();
        group.shutdown_now().wait();
    });
}

#[test]
fn pending_tasks_are_a_load() {
    within(|| {
        let group = choosing(2, LeastLoaded::default());
        let releases = [0, 1].map(|index| stall(&group.loops()[index]));
        for _ in 0..5 {
            group.loops()[0].execute(|| ()).unwrap();
        }
        assert_eq!(picks(&group, 20), [1; 20]);
        for _ in 0..9 {
            group.loops()[1].execute(|| ()).unwrap();
        }
        assert_eq!(picks(&group, 20), [0; 20]);
        for release in releases {
            release.open();
        }
    });
}

#[test]
fn channels_are_a_load() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(2);
        let group = builder.chooser(LeastLoaded::default()).build().unwrap();
        drop(group.spawn_on(0, async {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            socket.recv_from(&mut [0]).await
        }));
        drop(group.spawn_on(1, pending::<()>()));
        eventually("both are live, and one has a channel", || {
            let loads = group.loops().iter();
            let loads = loads.map(|one| (one.live_tasks(), one.registered_channels()));
            loads.eq([(1, 1), (1, 0)])
        });
        assert_eq!(picks(&group, 10), [1; 10]);
        group.shutdown_now().wait();
    });
}

#[test]
fn loops_with_equal_loads_are_taken_in_turn() {
    within(|| {
        let group = choosing(3, LeastLoaded::default());
        assert_eq!(picks(&group, 9), turns(0, 3, 9));
    });
}

#[test]
fn the_least_loaded_of_one_is_that_one() {
    within(|| {
        let group = choosing(1, LeastLoaded::default());
        assert_eq!(picks(&group, 5), [0; 5]);
    });
}

#[test]
fn the_least_loaded_is_not_one_that_goes_away() {
    within(|| {
        // What it says itself: the group would pass over a loop that goes away.
        let said = Arc::new(Mutex::new(Vec::new()));
        let (least, heard) = (LeastLoaded::default(), Arc::clone(&said));
        let group = choosing(2, move |group: &GroupView<'_>| {
            let choice = least.choose(group);
            heard.lock().unwrap().push(choice);
            choice
        });
        group.loops()[0].shutdown_now().wait();
        let release = stall(&group.loops()[1]);
        said.lock().unwrap().clear();
        assert_eq!(picks(&group, 10), [1; 10]);
        assert_eq!(*said.lock().unwrap(), [1; 10]);
        release.open();
    });
}

#[test]
fn a_burst_on_equally_busy_loops_is_spread_evenly() {
    within(|| {
        for len in [2, 3, 8] {
            let group = choosing(len, LeastBusy::default());
            let shares = shares(&group, 4, 2_500);
            let most = *shares.iter().max().unwrap();
            assert!(most * len * 10 <= 10_000 * 11, "{shares:?}");
        }
    });
}

#[test]
fn a_burst_of_tasks_that_are_queued_is_spread_evenly() {
    within(|| {
        let group = choosing(3, LeastBusy::default());
        let releases: Vec<_> = group.loops().iter().map(stall).collect();
        for _ in 0..9_000 {
            group.spawn_detached(async {}).unwrap();
        }
        let waiting = group.loops().iter().map(EventLoop::pending_tasks);
        assert!(waiting.max().unwrap() <= 3_300);
        releases.iter().for_each(|release| release.open());
        assert!(group.drain(LONG).wait().is_clean());
    });
}

#[test]
fn of_equally_busy_loops_not_always_the_first_is_taken() {
    within(|| {
        // After one placement on each, both are equal again.
        let group = choosing(2, LeastBusy::default());
        let picked = picks(&group, 200);
        let firsts: Vec<_> = picked.chunks(2).map(|pair| pair[0]).collect();
        assert!(picked.chunks(2).all(|pair| pair[0] + pair[1] == 1));
        let zeros = firsts.iter().filter(|&&index| index == 0).count();
        assert!((20..=80).contains(&zeros), "{zeros} of 100");
    });
}

#[test]
fn a_loop_that_works_without_a_pause_is_not_taken_although_it_has_a_single_task() {
    within(|| {
        let group = choosing(2, LeastBusy::default());
        for _ in 0..3 {
            drop(group.spawn_on(1, pending::<()>())); // three tasks that do nothing
        }
        let release = stall(&group.loops()[0]);
        eventually("its utilization rises", || {
            group.loops()[0].metrics().utilization() > 0.7
        });
        assert_eq!(picks(&group, 8), [1; 8]);
        release.open();
        group.shutdown_now().wait();
    });
}

#[test]
fn a_chooser_sees_how_busy_a_loop_is_and_nothing_of_loops_that_do_not_exist() {
    within(|| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&seen);
        let group = choosing(2, move |view: &GroupView<'_>| {
            let busy = [0, 1, 2].map(|i| view.utilization(i) > 0.01);
            heard.lock().unwrap().push((busy, view.wake_delay(2)));
            1
        });
        let release = stall(&group.loops()[0]);
        eventually("its utilization rises", || {
            group.loops()[0].metrics().utilization() > 0.02
        });
        assert_eq!(picks(&group, 1), [1]);
        let expected = ([true, false, false], Duration::ZERO);
        assert_eq!(*seen.lock().unwrap(), [expected]);
        release.open();
    });
}

#[test]
fn the_least_busy_is_not_one_that_shuts_down() {
    within(|| {
        let said = Arc::new(Mutex::new(Vec::new()));
        let (least, heard) = (LeastBusy::default(), Arc::clone(&said));
        let group = choosing(3, move |group: &GroupView<'_>| {
            let choice = least.choose(group);
            heard.lock().unwrap().push(choice);
            choice
        });
        group.loops()[0].shutdown_now().wait();
        picks(&group, 100);
        assert!(!said.lock().unwrap().contains(&0));
        group.loops()[2].shutdown_now().wait();
        said.lock().unwrap().clear();
        assert_eq!(picks(&group, 10), [1; 10]);
        assert_eq!(*said.lock().unwrap(), [1; 10]);
        group.shutdown_now().wait();
        assert!(picks(&group, 10).iter().all(|index| *index < 3));
    });
}

#[test]
fn the_least_busy_of_one_is_that_one() {
    within(|| {
        let group = choosing(1, LeastBusy::default());
        assert_eq!(picks(&group, 5), [0; 5]);
    });
}

#[test]
fn prefer_current_stays_on_the_callers_loop() {
    within(|| {
        let group = choosing(4, PreferCurrent::default());
        for home in [2, 0, 3] {
            let handle = group.spawn_on(home, async { [spawned_on().await, spawned_on().await] });
            assert_eq!(block_on(handle).unwrap(), [home, home]);
        }
    });
}

#[test]
fn prefer_current_takes_turns_for_callers_that_are_no_loop_of_the_group() {
    within(|| {
        let group = choosing(3, PreferCurrent::default());
        assert_eq!(picks(&group, 4), turns(0, 3, 4));
        let foreign = EventLoopGroup::new(3).unwrap();
        let inner = group.clone();
        let seen = foreign.loops()[2].submit(move || picks(&inner, 5));
        assert_eq!(block_on(seen).unwrap(), turns(4, 3, 5));
    });
}

#[test]
fn a_current_loop_that_goes_away_is_not_preferred() {
    within(|| {
        let group = choosing(2, PreferCurrent::default());
        let inner = group.clone();
        let seen = group.loops()[0].submit(move || {
            let before = inner.next().index();
            drop(inner.loops()[0].drain(Duration::from_secs(30)));
            (before, inner.next().index())
        });
        assert_eq!(block_on(seen).unwrap(), (0, 1));
    });
}

#[test]
fn a_chooser_sees_its_group() {
    #[derive(Debug, PartialEq)]
    struct Row {
        pending: usize,
        live: usize,
        accepting: bool,
    }
    within(|| {
        type Seen = (usize, Option<usize>, Vec<Row>);
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let log = Arc::clone(&seen);
        let group = choosing(
            3,
            By(move |view: &GroupView<'_>| {
                assert!(!view.is_empty());
                assert!(format!("{view:?}").contains("len: 3"));
                // One beyond the end: no loop, no load.
                let row = |i| Row {
                    pending: view.pending(i),
                    live: view.live(i),
                    accepting: view.is_accepting(i),
                };
                let rows = (0..=view.len()).map(row).collect();
                log.lock().unwrap().push((view.len(), view.current(), rows));
                0
            }),
        );
        let release = stall(&group.loops()[1]);
        for _ in 0..2 {
            group.loops()[1].execute(|| ()).unwrap();
        }
        group.loops()[2].shutdown_now().wait();
        group.next();
        let row = |pending, live, accepting| Row {
            pending,
            live,
            accepting,
        };
        let rows = vec![
            row(0, 0, true),
            row(2, 1, true),
            row(0, 0, false),
            row(0, 0, false),
        ];
        assert_eq!(seen.lock().unwrap().pop().unwrap(), (3, None, rows));
        release.open();
        let inner = group.clone();
        block_on(group.loops()[1].submit(move || inner.next().index())).unwrap();
        assert_eq!(seen.lock().unwrap().pop().unwrap().1, Some(1));
        let foreign = EventLoopGroup::new(2).unwrap();
        let inner = group.clone();
        block_on(foreign.loops()[1].submit(move || inner.next().index())).unwrap();
        assert_eq!(seen.lock().unwrap().pop().unwrap().1, None);
    });
}

#[test]
fn an_index_out_of_range_is_taken_modulo_the_length() {
    within(|| {
        for (answer, expected) in [(3, 0), (5, 2), (usize::MAX, usize::MAX % 3)] {
            let group = choosing(3, By(move |_: &GroupView<'_>| answer));
            assert_eq!(picks(&group, 3), [expected; 3]);
        }
    });
}

#[test]
fn a_chooser_that_panics_falls_back_to_turns() {
    within(|| {
        let group = choosing(3, By(|_: &GroupView<'_>| panic!("cannot choose")));
        assert_eq!(picks(&group, 7), turns(0, 3, 7));
        assert_eq!(block_on(group.spawn(async { 1 })).unwrap(), 1);
        // On a loop of the group as well: the loop lives on.
        let inner = group.clone();
        let seen = group.loops()[0].submit(move || picks(&inner, 3));
        assert_eq!(block_on(seen).unwrap(), turns(8, 3, 3));
        assert!(group.shutdown_now().wait().is_clean());
    });
}

#[test]
fn a_chooser_that_panics_now_and_then_is_asked_every_time() {
    within(|| {
        let asked = AtomicUsize::new(0);
        let chooser = By(move |_: &GroupView<'_>| {
            let turn = asked.fetch_add(1, Ordering::SeqCst);
            assert!(turn % 2 == 0, "every other time");
            3
        });
        let group = choosing(4, chooser);
        assert_eq!(picks(&group, 6), [3, 0, 3, 1, 3, 2]);
    });
}

#[test]
fn next_skips_a_loop_that_was_shut_down_alone() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        group.loops()[1].shutdown_now().wait();
        assert_eq!(
            picks(&group, 6),
            [0, 2, 0, 2, 0, 2],
            "in turn, over those that accept"
        );
        group.loops()[2].shutdown_now().wait();
        assert_eq!(picks(&group, 6), [0; 6]);
        assert_eq!(block_on(group.spawn(async { 1 })).unwrap(), 1);
        group.loops()[0].shutdown_now().wait();
        assert!(group.is_terminated());
        let rejected = group.try_spawn(async {}).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::ShutDown);
        assert_eq!(group.termination().wait().rejected(), 1);
    });
}

#[test]
fn next_prefers_loops_that_stay_and_then_those_that_still_accept() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        // Live tasks keep the draining loops in their phase.
        for index in 1..3 {
            drop(group.spawn_on(index, pending::<()>()));
            eventually("it is live", || group.loops()[index].live_tasks() == 1);
            drop(group.loops()[index].drain(Duration::from_secs(60)));
        }
        assert_eq!(group.loops()[1].state(), LoopState::ShuttingDown);
        assert_eq!(picks(&group, 3), [0; 3]);
        group.loops()[0].shutdown_now().wait();
        let picked = picks(&group, 6);
        assert!(picked.iter().all(|&index| index != 0), "{picked:?}");
        assert_eq!(block_on(group.spawn(async { 7 })).unwrap(), 7);
        group.shutdown_now().wait();
    });
}

#[test]
fn a_key_has_one_loop_for_life() {
    within(|| {
        let group = EventLoopGroup::new(4).unwrap();
        let home = |group: &EventLoopGroup, key: &str| {
            let here = async { EventLoop::current().unwrap().index() };
            block_on(group.spawn_keyed(key, here)).unwrap()
        };
        let keys: Vec<String> = (0..64).map(|n| format!("key {n}")).collect();
        let homes: Vec<usize> = keys.iter().map(|key| home(&group, key)).collect();
        for index in 0..4 {
            // One of four loops without any of 64 keys: once in a hundred million runs.
            assert!(homes.contains(&index), "{homes:?}");
        }
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (group, keys) = (group.clone(), keys.clone());
                thread::spawn(move || keys.iter().map(|k| home(&group, k)).collect::<Vec<_>>())
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), homes);
        }
    });
}

#[test]
fn a_key_whose_loop_is_shut_down_is_refused_and_does_not_move() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let key = [1_u8, 2, 3];
        let here = || async { EventLoop::current().unwrap().index() };
        let home = block_on(group.spawn_keyed(&key, here())).unwrap();
        group.loops()[home].shutdown_now().wait();
        let error = block_on(group.spawn_keyed(&key, here())).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
    });
}

#[test]
fn an_index_beyond_the_group_is_refused_and_counted() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        for index in [2, usize::MAX] {
            let error = block_on(group.spawn_on(index, async {})).unwrap_err();
            assert_eq!(error.reject_reason(), Some(RejectReason::NoSuchLoop));
        }
        let report = group.shutdown_now().wait();
        assert_eq!((report.accepted(), report.rejected()), (0, 2));
    });
}

#[test]
fn spawn_on_a_loop_goes_through_the_chooser_of_its_group() {
    within(|| {
        let group = choosing(
            3,
            By(|view: &GroupView<'_>| view.current().map_or(0, |i| i + 1)),
        );
        assert_eq!(block_on(group.spawn_on(1, spawned_on())).unwrap(), 2);
        assert_eq!(block_on(group.spawn_on(2, spawned_on())).unwrap(), 0);
        assert_eq!(group.block_on(spawned_on()), 0);
    });
}

#[test]
fn a_closure_chooses() {
    within(|| {
        let last = |group: &GroupView<'_>| group.len() - 1;
        let group = EventLoopGroup::builder()
            .loops(3)
            .chooser(last)
            .build()
            .unwrap();
        assert!((0..5).all(|_| group.next().index() == 2));
    });
}
