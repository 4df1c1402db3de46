//! What a group takes it gives back: bytes, descriptors, threads.
//!
//! `LOOPGROUP_CYCLES` is the number of groups of each kind; 1,000 in a release build, 200 in a debug build.
#![cfg(target_os = "linux")]

use std::fs;
use std::future::{pending, poll_fn};
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::os::fd::IntoRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use loopgroup::EventLoopGroup;
use loopgroup::blocking::BlockingGroup;

use crate::allocator::live_bytes;
use crate::util::{
    DropCount, alone, entries, eventually, eventually_within, others_sleep, patiently, progress,
    setting, thread_of,
};

/// How many groups of each kind come and go.
fn cycles() -> u64 {
    let usual = if cfg!(debug_assertions) { 200 } else { 1_000 };
    setting("LOOPGROUP_CYCLES").unwrap_or(usual)
}

/// Runs `cycle` once to warm up and then `times` times; nothing may be left of those.
fn repeat(times: u64, cycle: impl FnMut()) {
    repeat_with(patiently(Duration::from_secs(30)), times, cycle);
}

/// As [`repeat`]; threads have `patience` to end.
fn repeat_with(patience: Duration, times: u64, mut cycle: impl FnMut()) {
    // The threads of the test harness allocate on their way into their own waits.
    eventually("the harness waits for this test", others_sleep);
    let progress = progress("cycle");
    let threads = || entries("/proc/self/task");
    let few = threads();
    // The system lists a thread for a moment after it was joined.
    let held = || {
        eventually_within(patience, "the threads are gone", || threads() == few);
        (live_bytes(), entries("/proc/self/fd"))
    };
    // The counters of a loop have a place that later loops use again, and that is never freed. A loop keeps
    // its own for a moment after its end was announced, so the next one may need another: there are enough
    // from here on.
    drop(EventLoopGroup::builder().loops(32).without_io().build());
    cycle();
    let before = held();
    for done in 1..=times {
        cycle();
        progress.tick();
        if done % 10_000 == 0 {
            eprintln!("{done} of {times} cycles: {:?}", held());
        }
    }
    assert_eq!(held(), before, "bytes, descriptors");
}

/// Uses a group in most of the ways there are.
fn exercise(group: &EventLoopGroup) {
    let (done, never) = (group.spawn(async { 1 }), group.spawn(pending::<()>()));
    assert_eq!(group.block_on(done).unwrap(), 1);
    drop(never);
    drop(group.spawn_with(|| {
        let local = Rc::new(vec![0_u8; 100]);
        async move {
            pending::<()>().await;
            drop(local);
        }
    }));
    group.spawn(pending::<()>()).abort();
    group.next().execute(|| ()).unwrap();
    group.next().lazy_execute(|| ()).unwrap();
    let bound = group.next().bind(|| vec![1, 2, 3]);
    let length = bound.with(|list| list.len());
    assert_eq!(group.block_on(length).unwrap(), 3);
    let left = group.next().bind(|| vec![0_u8; 50]);
    group.next().add_shutdown_hook(|| ()).unwrap();
    drop(group.next().spawn(async {
        drop(loopgroup::spawn_local(pending::<()>()));
        loopgroup::shutdown_requested().await;
    }));
    drop(left);
}

#[test]
fn groups_that_come_and_go_leave_nothing_behind() {
    alone("groups_that_come_and_go_leave_nothing_behind", || {
        repeat(cycles(), || {
            let group = EventLoopGroup::new(2).unwrap();
            exercise(&group);
            group.shutdown_now().wait();
        });
    });
}

#[test]
fn groups_without_io_that_come_and_go_leave_nothing_behind() {
    alone(
        "groups_without_io_that_come_and_go_leave_nothing_behind",
        || {
            repeat(cycles(), || {
                let group = EventLoopGroup::builder()
                    .loops(2)
                    .without_io()
                    .build()
                    .unwrap();
                exercise(&group);
                let zero = Duration::ZERO;
                drop(group.shutdown_gracefully_with(zero, zero).unwrap());
                group.termination().wait();
            });
        },
    );
}

#[test]
fn dropped_groups_that_come_and_go_leave_nothing_behind() {
    alone(
        "dropped_groups_that_come_and_go_leave_nothing_behind",
        || {
            repeat(cycles(), || {
                let unused = EventLoopGroup::new(3).unwrap();
                let group = EventLoopGroup::new(1).unwrap();
                exercise(&group);
                let ends = [unused.termination(), group.termination()];
                drop((unused, group));
                for end in ends {
                    end.wait();
                }
            });
        },
    );
}

#[test]
fn blocking_groups_that_come_and_go_leave_nothing_behind() {
    alone(
        "blocking_groups_that_come_and_go_leave_nothing_behind",
        || {
            repeat(cycles(), || {
                let group = BlockingGroup::new(2).unwrap();
                let jobs: Vec<_> = (0..4).map(|n| group.spawn(move || vec![n])).collect();
                drop(group.spawn(|| ()));
                group.spawn(|| ()).abort();
                for job in jobs {
                    loopgroup::block_on(job).unwrap();
                }
                group.drain(Duration::from_secs(30)).wait();
            });
        },
    );
}

#[test]
fn runs_leave_nothing_behind() {
    alone("runs_leave_nothing_behind", || {
        repeat(cycles(), || {
            loopgroup::run(async {
                drop(loopgroup::spawn_local(pending::<()>()));
                loopgroup::spawn_local(async { Rc::new(1) }).await.unwrap();
            })
            .unwrap();
        });
    });
}

#[test]
fn refused_submissions_leave_nothing_behind() {
    alone("refused_submissions_leave_nothing_behind", || {
        let group = EventLoopGroup::new(1).unwrap();
        group.block_on(group.spawn(async {})).unwrap();
        group.shutdown_now().wait();
        repeat(cycles(), || {
            drop(group.spawn(async {}));
            drop(group.try_spawn(async {}).unwrap_err());
            assert!(group.next().execute(|| ()).is_err());
            drop(group.next().bind(|| vec![1]));
            drop(group.termination());
        });
    });
}

#[test]
fn a_waker_that_outlives_its_group_holds_a_task_and_gives_it_back() {
    alone(
        "a_waker_that_outlives_its_group_holds_a_task_and_gives_it_back",
        || {
            repeat(50, || {
                let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
                let group = EventLoopGroup::new(1).unwrap();
                let drops = DropCount::new();
                for _ in 0..20 {
                    let (shown, guard) = (Arc::clone(&wakers), drops.guard());
                    drop(group.spawn(poll_fn(move |cx| {
                        let _keeps = &guard;
                        shown.lock().unwrap().push(cx.waker().clone());
                        Poll::<()>::Pending
                    })));
                }
                thread_of(group.next());
                group.shutdown_now().wait();
                drop(group);
                assert_eq!(
                    drops.get(),
                    20,
                    "the futures are gone, whoever holds a waker"
                );
                for waker in wakers.lock().unwrap().drain(..) {
                    waker.wake();
                }
            });
        },
    );
}

/// Kilobytes of address space.
fn mapped() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let number = line.unwrap().trim().split(' ').next().unwrap();
    number.parse().unwrap()
}

#[test]
fn a_waker_that_outlives_its_group_keeps_no_stack_of_a_thread_that_nobody_joins() {
    const STACK: usize = 64 << 20; // too large for the cache of the C library
    alone(
        "a_waker_that_outlives_its_group_keeps_no_stack_of_a_thread_that_nobody_joins",
        || {
            let wakers = Arc::new(Mutex::new(Vec::<Waker>::new()));
            let few = entries("/proc/self/task");
            let before = mapped();
            for round in 0..32 {
                let builder = EventLoopGroup::builder().loops(1).thread_stack_size(STACK);
                let group = builder.build().unwrap();
                let shown = Arc::clone(&wakers);
                drop(group.spawn(poll_fn(move |cx| {
                    shown.lock().unwrap().push(cx.waker().clone());
                    Poll::<()>::Pending
                })));
                thread_of(group.next());
                // The future of one loop goes before all handles, or after them.
                let end = group.next().termination();
                loopgroup::block_on(group.shutdown_now());
                if round % 2 == 0 {
                    drop(end);
                    drop(group);
                } else {
                    drop(group);
                    drop(end);
                }
                eventually("the thread is gone", || entries("/proc/self/task") == few);
            }
            assert_eq!(wakers.lock().unwrap().len(), 32);
            let more = mapped() - before;
            assert!(more < 16 * (STACK as u64 >> 10), "{more} kB more");
        },
    );
}

#[test]
fn a_hundred_thousand_live_tasks_are_freed_by_a_shutdown() {
    const TASKS: usize = 100_000;
    /// About a hundred for the task and its entry; the queues may have had to grow.
    const MOST: isize = 256;
    alone(
        "a_hundred_thousand_live_tasks_are_freed_by_a_shutdown",
        || {
            repeat(1, || {
                let before = live_bytes();
                let group = EventLoopGroup::new(2).unwrap();
                for _ in 0..TASKS {
                    drop(group.spawn(pending::<()>()));
                }
                for ev in group.loops() {
                    thread_of(ev);
                }
                let live: usize = group.loops().iter().map(|ev| ev.live_tasks()).sum();
                assert_eq!(live, TASKS);
                let held = live_bytes() - before;
                let each = held / TASKS as isize;
                eprintln!("{each} bytes for each live task");
                assert!((32..MOST).contains(&each), "{each} bytes for each task");
                let report = group.shutdown_now().wait();
                assert_eq!(report.cancelled(), TASKS as u64);
            });
        },
    );
}

/// What a check of leaks is worth: it finds the smallest one.
#[test]
fn a_byte_a_descriptor_or_a_thread_that_is_left_is_found() {
    alone(
        "a_byte_a_descriptor_or_a_thread_that_is_left_is_found",
        || {
            let found = |what: &str, patience: Duration, leak: &mut dyn FnMut()| {
                let repeating = AssertUnwindSafe(|| repeat_with(patience, 1, leak));
                let payload = catch_unwind(repeating).expect_err("a leak passes for none");
                let text = payload.downcast_ref::<String>().expect("an assertion");
                assert!(text.contains(what), "{text}");
            };
            let usual = patiently(Duration::from_secs(30));
            found("bytes, descriptors", usual, &mut || {
                // Hidden from the optimiser, which would save the allocation.
                black_box(Box::leak(Box::new(0_u8)));
            });
            found("bytes, descriptors", usual, &mut || {
                let _ = fs::File::open("/dev/null").unwrap().into_raw_fd();
            });
            // A group that is never ended, with its loop and what that holds.
            found("bytes, descriptors", usual, &mut || {
                let group = EventLoopGroup::new(1).unwrap();
                let _ = ManuallyDrop::new(group);
            });
            // The same, with its loop at work: the thread is what is seen first.
            found(
                "the threads are gone",
                Duration::from_millis(100),
                &mut || {
                    let group = ManuallyDrop::new(EventLoopGroup::new(1).unwrap());
                    thread_of(group.next());
                },
            );
            repeat(1, || ());
        },
    );
}
