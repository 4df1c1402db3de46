//! What observes loops stays right where polls, loops and threads are nested in odd ways.

use std::cell::RefCell;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake};
use std::thread;

use futures::future::join;
use loopgroup::net::TcpListener;
use loopgroup::testing::TestLoop;
use loopgroup::time::sleep;
use loopgroup::{
    Builder, EventLoopGroup, ManualLoop, TaskId, TaskState, Trace, Wait, block_on, label, yield_now,
};
use serde_json::Value;

use crate::util::{
    Door, HOUR, OnDrop, Random, blow_up, eventually, flush, ms, progress, setting, within,
};

/// A group that is looked at in every way.
fn seen() -> Builder {
    EventLoopGroup::builder()
        .track_tasks(true)
        .flight_recorder(1 << 14)
        .watchdog(HOUR)
        .measure_time(true)
}

/// The slices of a trace.
fn slices(trace: &Trace) -> Vec<Value> {
    let json: Value = serde_json::from_str(&trace.to_chrome_json()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let slices = events.iter().filter(|event| event["ph"] == "X");
    slices.cloned().collect()
}

#[test]
fn a_poll_in_which_a_task_is_refused_has_not_ended_its_own_task() {
    within(|| {
        let ended = EventLoopGroup::new(1).unwrap();
        ended.shutdown_now().wait();
        let group = seen().loops(1).build().unwrap();
        let task = group.task().name("submits").spawn(async move {
            drop(ended.spawn(async {}));
            pending::<()>().await;
        });
        flush(group.next());
        let ends: Vec<_> = slices(&group.trace())
            .iter()
            .filter(|slice| slice["name"] == "submits")
            .map(|slice| slice["args"]["ended"].clone())
            .collect();
        assert_eq!(ends, [Value::Null]);
        assert_eq!(group.tasks()[0].id(), task.id());
    });
}

#[test]
fn a_closure_in_which_a_task_is_refused_is_not_cancelled() {
    within(|| {
        let ended = EventLoopGroup::new(1).unwrap();
        ended.shutdown_now().wait();
        let group = seen().loops(1).build().unwrap();
        group
            .next()
            .execute(move || drop(ended.spawn(async {})))
            .unwrap();
        flush(group.next());
        let trace = slices(&group.trace());
        let ends = trace
            .iter()
            .filter(|slice| slice["cat"] == "closure")
            .map(|slice| &slice["args"]["ended"]);
        assert!(ends.into_iter().all(Value::is_null), "{trace:#?}");
    });
}

#[test]
fn loops_that_follow_each_other_on_one_thread_do_not_mix_up_their_sockets() {
    within(|| {
        for _ in 0..3 {
            let mut manual = ManualLoop::from_builder(EventLoopGroup::builder().track_tasks(true));
            let manual = manual.as_mut().unwrap();
            let (tx, rx) = channel();
            let task = manual.spawn_local(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tx.send(listener.local_addr().unwrap()).unwrap();
                drop(listener.accept().await);
            });
            manual.turn(Some(ms(0))).unwrap();
            let address = rx.try_recv().unwrap().to_string();
            let tasks = manual.event_loop().tasks();
            match tasks[0].waits_for() {
                [Wait::Accept(socket)] => assert_eq!(socket.local(), Some(&*address)),
                other => panic!("{other:?}"),
            }
            task.abort();
            manual.drain(ms(1000)).unwrap();
        }
    });
}

#[test]
fn a_task_that_has_yielded_does_not_wait_for_what_came_before() {
    within(|| {
        let group = EventLoopGroup::builder().loops(1).track_tasks(true);
        let group = group.build().unwrap();
        let task = group.spawn(async {
            sleep(ms(1)).await;
            yield_now().await;
            pending::<()>().await;
        });
        eventually("it waits", || {
            let info = &group.tasks()[0];
            (info.polls(), info.state()) == (3, TaskState::Waiting)
        });
        assert_eq!(group.tasks()[0].waits_for(), []);
        drop(task);
    });
}

#[test]
fn a_label_is_listed_however_much_it_stands_for() {
    within(|| {
        let group = EventLoopGroup::builder().loops(1).track_tasks(true);
        let group = group.build().unwrap();
        // Polls all of them every time, other than `join_all`.
        let many = || {
            let mut all: Vec<_> = (0..100).map(|_| Box::pin(sleep(HOUR))).collect();
            poll_fn(move |cx| {
                all.iter_mut()
                    .for_each(|one| assert!(one.as_mut().poll(cx).is_pending()));
                Poll::<()>::Pending
            })
        };
        let task = group.spawn(label("outer", async move {
            let inner = label("inner", many());
            join(inner, many()).await;
        }));
        flush(group.next());
        let tasks = group.tasks();
        let waits = tasks[0].waits_for();
        assert_eq!(waits.len(), 32);
        let labels = ["outer", "inner"].map(|text| Wait::Label(text.into()));
        assert_eq!(waits[..2], labels);
        assert!(matches!(waits[2], Wait::Sleep { .. }));
        drop(task);
    });
}

#[test]
fn a_task_keeps_its_name_in_a_trace_however_many_names_there_were() {
    within(|| {
        let mut test = TestLoop::from_builder(seen()).unwrap();
        let wake = Door::new();
        let number = |id: TaskId| -> u64 {
            let text = id.to_string();
            text.trim_start_matches("task ").parse().unwrap()
        };
        let opened = wake.clone();
        let old = test.group().task().name("old").spawn(async move {
            opened.opened().await;
            pending::<()>().await;
        });
        test.run_until_stalled();
        // More names than the recorder keeps, of tasks whose ids are unlike that of the old one.
        for name in 0..2_000 {
            while (number(test.spawn(async {}).id()) + 1) % 2 == number(old.id()) % 2 {}
            drop(
                test.group()
                    .task()
                    .name(format!("name {name}"))
                    .spawn(async {}),
            );
            test.run_until_stalled();
        }
        wake.open();
        test.run_until_stalled();
        let trace = slices(&test.group().trace());
        let mut polls = trace
            .iter()
            .filter(|one| one["args"]["task"] == number(old.id()));
        let last = polls.next_back().unwrap();
        assert_eq!(last["name"], "old", "{last}");
    });
}

#[test]
fn whatever_is_asked_inside_of_user_code_is_answered() {
    within(|| {
        let asked = Arc::new(AtomicUsize::new(0));
        let slot: Arc<OnceLock<EventLoopGroup>> = Arc::default();
        let ask = {
            let (asked, slot) = (asked.clone(), slot.clone());
            move || {
                let group = slot.get().unwrap();
                let dump = group.dump().to_string();
                let json = group.trace().to_chrome_json();
                let _ = (group.tasks().len(), group.metrics().to_prometheus());
                let _ = group.recent_stalls();
                assert!(!dump.is_empty() && !json.is_empty());
                asked.fetch_add(1, Ordering::SeqCst);
            }
        };
        let in_panic = ask.clone();
        let in_stall = ask.clone();
        let reported = Door::new();
        let until_reported = reported.clone();
        let group = EventLoopGroup::builder()
            .track_tasks(true)
            .flight_recorder(256)
            .measure_time(true)
            .loops(2)
            .watchdog(ms(5))
            .freeze_on_stall(false)
            .on_stall(move |_| {
                in_stall();
                reported.open();
            })
            .on_panic(move |_| in_panic())
            .build()
            .unwrap();
        slot.set(group.clone()).ok().unwrap();
        let a = ask.clone();
        group.next().add_shutdown_hook(a).unwrap();
        let a = ask.clone();
        drop(group.spawn(async move {
            let _drop = OnDrop::new(a);
            pending::<()>().await;
        }));
        let a = ask.clone();
        drop(group.spawn(label("one", async move {
            let _drop = OnDrop::new(a);
            label("two", pending::<()>()).await;
        })));
        let a = ask.clone();
        drop(group.spawn(async move {
            let _drop = OnDrop::new(a);
            blow_up()
        }));
        drop(group.spawn(async move {
            let _drop = OnDrop::new(|| blow_up());
        }));
        // A thread-local of the loop's thread that asks.
        struct Tell(Box<dyn Fn()>);
        impl Drop for Tell {
            fn drop(&mut self) {
                (self.0)();
            }
        }
        thread_local! {
            static TELL: RefCell<Option<Tell>> = const { RefCell::new(None) };
        }
        for ev in group.loops() {
            let a = ask.clone();
            let set = ev.submit(move || TELL.set(Some(Tell(Box::new(a)))));
            block_on(set).unwrap();
        }
        // A waker that asks.
        struct Asks<F>(F);
        impl<F: Fn() + Send + Sync> Wake for Asks<F> {
            fn wake(self: Arc<Self>) {
                (self.0)();
            }
        }
        let waker = Arc::new(Asks(ask.clone())).into();
        let mut slow = group.spawn(sleep(ms(20)));
        let polled = Pin::new(&mut slow);
        assert!(Future::poll(polled, &mut Context::from_waker(&waker)).is_pending());
        // A poll that does not return before a stall was reported.
        let stuck = group.spawn(async move { until_reported.pass() });
        block_on(stuck).unwrap();
        let bound = block_on(group.spawn(async { 1 })).unwrap();
        assert_eq!(bound, 1);
        eventually("the waker", || asked.load(Ordering::SeqCst) >= 4);
        let a = ask.clone();
        TELL.set(Some(Tell(Box::new(a))));
        group.drain(ms(100)).wait();
        assert!(group.tasks().is_empty());
        drop(slow);
        // Two destructors and two panics with one more destructor, a hook, the waker.
        eventually("all have asked", || asked.load(Ordering::SeqCst) >= 7);
    });
}

fn rounds() -> u64 {
    10 * setting("LOOPGROUP_ROUNDS").unwrap_or(1)
}

#[test]
fn races_of_everything_lose_nothing() {
    /// Tasks that were dropped on another thread than the one that polled them.
    static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);
    let rounds = rounds();
    within(move || {
        let mut random = Random(0xA77AC);
        let mut totals = [0_u64; 6];
        for round in 0..rounds {
            progress("round").tick();
            let limit = random.below(3) == 0;
            let mut builder = seen()
                .loops(1 + random.below(2) as usize)
                .flight_recorder(64)
                .on_panic(|_| ());
            if limit {
                builder = builder.max_pending_tasks(4);
            }
            let group = builder.build().unwrap();
            let attempted = AtomicUsize::new(0);
            let stop = AtomicBool::new(false);
            let how = random.below(5);
            let seeds = [random.next(), random.next()];
            let (mut ok, mut rejected, mut cancelled, mut panicked) = (0_u64, 0, 0, 0);
            thread::scope(|scope| {
                let threads: Vec<_> = seeds
                    .into_iter()
                    .map(|seed| {
                        let (group, attempted) = (&group, &attempted);
                        scope.spawn(move || {
                            let mut random = Random(seed);
                            let mut handles = Vec::new();
                            for _ in 0..40 {
                                let ev = group.next().clone();
                                let kind = random.below(9);
                                attempted.fetch_add(1, Ordering::Relaxed);
                                let work = random.below(5);
                                let body = move || async move {
                                    let home = thread::current().id();
                                    let _guard = OnDrop::new(move || {
                                        let is_home = home == thread::current().id();
                                        ELSEWHERE
                                            .fetch_add(usize::from(!is_home), Ordering::Relaxed);
                                    });
                                    match work {
                                        0 => {}
                                        1 => yield_now().await,
                                        2 => sleep(ms(1)).await,
                                        3 => label("l", sleep(ms(2))).await,
                                        _ => blow_up(),
                                    }
                                };
                                match kind {
                                    0 => handles.push(ev.spawn(body())),
                                    1 => handles.push(ev.spawn_with(body)),
                                    2 => handles.extend(ev.try_spawn(body()).ok()),
                                    3 => drop(ev.spawn_detached(body())),
                                    4 => drop(ev.execute(|| {})),
                                    5 => handles.push(ev.submit(|| {})),
                                    6 => handles.push(ev.task().name("n").spawn(body())),
                                    7 => {
                                        let handle = ev.spawn(body());
                                        handle.abort();
                                        handles.push(handle);
                                    }
                                    _ => {
                                        let due = ev.schedule(ms(1), || {});
                                        drop(due);
                                    }
                                }
                            }
                            handles
                        })
                    })
                    .collect();
                let reader = {
                    let (group, stop) = (&group, &stop);
                    scope.spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            let tasks = group.tasks();
                            assert!(
                                tasks
                                    .windows(2)
                                    .all(|p| p[0].loop_index() < p[1].loop_index()
                                        || p[0].id() < p[1].id())
                            );
                            drop(group.dump().to_string());
                            let json = group.trace().to_chrome_json();
                            serde_json::from_str::<Value>(&json).unwrap();
                            group.freeze_recorder();
                            group.resume_recorder();
                        }
                    })
                };
                let killer = {
                    let group = &group;
                    scope.spawn(move || {
                        for _ in 0..(how * 200) {
                            std::hint::spin_loop();
                        }
                        match how {
                            0 => drop(group.shutdown_now()),
                            1 => drop(group.drain(ms(50))),
                            2 => {
                                drop(group.drain(ms(50)));
                                drop(group.shutdown_now());
                            }
                            3 => drop(group.shutdown_gracefully_with(ms(1), ms(20))),
                            _ => {}
                        }
                    })
                };
                let handles: Vec<_> = threads
                    .into_iter()
                    .flat_map(|one| one.join().unwrap())
                    .collect();
                killer.join().unwrap();
                drop(group.drain(ms(500)));
                for handle in handles {
                    match block_on(handle) {
                        Ok(()) => ok += 1,
                        Err(error) if error.is_panic() => panicked += 1,
                        Err(error) if error.is_rejected() => rejected += 1,
                        Err(_) => cancelled += 1,
                    }
                }
                stop.store(true, Ordering::Relaxed);
                reader.join().unwrap();
            });
            let report = group.drain(ms(500)).wait();
            let attempted = attempted.load(Ordering::Relaxed) as u64;
            let sums = [
                report.accepted(),
                report.rejected(),
                report.completed(),
                report.panicked(),
                report.cancelled(),
            ];
            assert_eq!(attempted, sums[0] + sums[1], "round {round}: {report:?}");
            assert_eq!(
                sums[0],
                sums[2] + sums[3] + sums[4],
                "round {round}: {report:?}"
            );
            assert_eq!(ELSEWHERE.load(Ordering::Relaxed), 0);
            let left = group.tasks();
            assert!(left.is_empty(), "round {round}: {left:?}");
            for one in group.dump().loops() {
                assert!(one.running().is_none());
                assert_eq!((one.pending(), one.live()), (0, 0));
            }
            for (total, one) in totals
                .iter_mut()
                .zip([attempted, sums[0], sums[1], sums[2], sums[3], sums[4]])
            {
                *total += one;
            }
        }
        println!(
            "{rounds} rounds: attempted, accepted, rejected, completed, panicked, cancelled {totals:?}"
        );
    });
}
