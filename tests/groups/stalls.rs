//! A poll that does not return is reported while it does not, with its task and its place, and nothing else
//! is.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use loopgroup::{
    Builder, EventLoopGroup, JoinHandle, ManualLoop, Stall, StallKind, block_on, yield_now,
};

use crate::util::{
    Door, LONG, alone, alone_after, entries, eventually, in_child, is_child, ms, stall, tid_of,
    within,
};

/// Short, but longer than the machine holds a thread up in passing.
const THRESHOLD: Duration = Duration::from_millis(200);

/// A group of one loop that is watched, and what is reported of it.
fn watched(threshold: Duration) -> (EventLoopGroup, Receiver<Stall>) {
    let (builder, stalls) = builder(threshold);
    (builder.build().unwrap(), stalls)
}

fn builder(threshold: Duration) -> (Builder, Receiver<Stall>) {
    let (tx, rx) = channel();
    let builder = EventLoopGroup::builder()
        .loops(1)
        .thread_name(|index| format!("watched-{index}"))
        .watchdog(threshold)
        .on_stall(move |stall| drop(tx.send(stall.clone())));
    (builder, rx)
}

#[test]
fn a_task_that_does_not_return_is_named_while_it_does_not() {
    within(|| {
        let (group, stalls) = watched(ms(20));
        let door = Door::new();
        let until = door.clone();
        let named = group.task().name("stuck");
        let line = line!() + 1;
        let task = named.spawn(async move { until.pass() });
        let stall = stalls.recv().unwrap();
        assert!(!task.is_finished());
        assert_eq!(
            (stall.task_id(), stall.name()),
            (Some(task.id()), Some("stuck"))
        );
        let place = stall.location().unwrap();
        assert_eq!((place.file(), place.line()), (file!(), line));
        assert_eq!((stall.loop_index(), stall.thread_name()), (0, "watched-0"));
        assert!(stall.duration() >= ms(20) && stall.duration() < LONG);
        let again = stalls.recv().unwrap();
        assert_eq!(again.task_id(), Some(task.id()));
        assert_eq!((stall.reports(), again.reports()), (1, 2));
        assert!(again.duration() >= ms(40));
        door.open();
        block_on(task).unwrap();
    });
}

#[test]
fn the_second_poll_of_a_task_is_watched_as_the_first_one_is() {
    within(|| {
        let (group, stalls) = watched(ms(20));
        let door = Door::new();
        let until = door.clone();
        let task = group.spawn(async move {
            yield_now().await;
            until.pass();
        });
        let stall = stalls.recv().unwrap();
        assert_eq!((stall.task_id(), stall.name()), (Some(task.id()), None));
        door.open();
        block_on(task).unwrap();
    });
}

#[test]
fn the_name_is_that_of_the_task_which_is_stuck_among_others_with_names() {
    within(|| {
        let (group, stalls) = watched(ms(20));
        let door = Door::new();
        let tasks: Vec<_> = (0..100)
            .map(|number| {
                let until = door.clone();
                let task = group.task().name(format!("number {number}"));
                task.spawn(async move {
                    for turn in 0..100 {
                        yield_now().await;
                        if (number, turn) == (70, 50) {
                            until.pass();
                        }
                    }
                })
            })
            .collect();
        let stall = stalls.recv().unwrap();
        assert_eq!(stall.task_id(), Some(tasks[70].id()));
        assert_eq!(stall.name(), Some("number 70"));
        door.open();
        tasks.into_iter().for_each(|task| block_on(task).unwrap());
    });
}

#[test]
fn closures_hooks_destructors_and_main_futures_are_watched() {
    within(|| {
        let (group, stalls) = watched(ms(20));
        let line = line!() + 1;
        let held = held_by_a_closure(&group);
        let found = stalls.recv().unwrap();
        assert!(found.task_id().is_some());
        assert_eq!(found.location().unwrap().line(), line);
        held.open();
        let door = Door::new();
        let until = door.clone();
        group
            .next()
            .add_shutdown_hook(move || until.pass())
            .unwrap();
        let end = group.drain(LONG);
        let found = stalls
            .iter()
            .find(|stall| stall.task_id().is_none())
            .unwrap();
        assert!(
            found.to_string().contains("a shutdown hook from tests"),
            "{found}"
        );
        door.open();
        assert!(end.wait().is_clean());

        let (builder, stalls) = builder(ms(20));
        let mut manual = ManualLoop::from_builder(builder).unwrap();
        let found = manual
            .block_on(async move { stalls.recv().unwrap() })
            .unwrap();
        assert!(
            found.to_string().contains("the main future has not"),
            "{found}"
        );
    });
}

/// Holds the loop up in a closure, which comes from the line of the caller.
#[track_caller]
fn held_by_a_closure(group: &EventLoopGroup) -> Door {
    let door = Door::new();
    let until = door.clone();
    group.next().execute(move || until.pass()).unwrap();
    door
}

#[test]
fn a_destructor_that_does_not_return_is_reported_too() {
    within(|| {
        struct Slow(Door);
        impl Drop for Slow {
            fn drop(&mut self) {
                self.0.pass();
            }
        }
        let (group, stalls) = watched(ms(20));
        let door = Door::new();
        let slow = Slow(door.clone());
        let task = group.spawn(async move {
            let _slow = slow;
            std::future::pending::<()>().await;
        });
        eventually("it waits", || group.loops()[0].live_tasks() == 1);
        let end = group.shutdown_now();
        assert_eq!(stalls.recv().unwrap().task_id(), Some(task.id()));
        door.open();
        end.wait();
    });
}

#[test]
fn the_kind_of_a_stall_is_what_its_thread_does() {
    if !cfg!(target_os = "linux") {
        return;
    }
    within(|| {
        let (group, stalls) = watched(THRESHOLD);
        let door = stall(&group.loops()[0]);
        assert_eq!(stalls.recv().unwrap().kind(), StallKind::Blocked);
        door.open();
        // On a machine that is busy with other tests the loop may get no processor for some time, and is
        // starved. So it counts itself: a poll that had one for nearly all of its time has computed.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            let (group, stalls) = watched(ms(20));
            let (stop, without) = spin(&group);
            let found = stalls.recv().unwrap();
            stop.store(true, Ordering::Relaxed);
            if block_on(without).unwrap() <= ms(5) {
                return assert_eq!(found.kind(), StallKind::Computing, "{found}");
            }
            let kinds = [StallKind::Computing, StallKind::Starved];
            assert!(kinds.contains(&found.kind()), "it does not sleep: {found}");
        }
        println!("skipped: there is not a fiftieth of a second of processor time for one thread");
    });
}

/// Has the loop compute until the flag is set. The handle has for how long of that it had no processor.
fn spin(group: &EventLoopGroup) -> (Arc<AtomicBool>, JoinHandle<Duration>) {
    // A kernel that does not count does not tell starved from computing either.
    let running = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ')
            .next()?
            .parse()
            .ok()
            .map(Duration::from_nanos)
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let without = group.next().submit(move || {
        let (start, before) = (Instant::now(), running());
        while !stopped.load(Ordering::Relaxed) {}
        let ran = before.and_then(|before| Some(running()? - before));
        ran.map_or(Duration::ZERO, |ran| start.elapsed().saturating_sub(ran))
    });
    (stop, without)
}

/// In a process of its own, whose threads share a processor: those that compute beside the loop leave it a
/// hundredth.
#[test]
fn a_loop_that_gets_no_processor_is_starved() {
    const TEST: &str = "a_loop_that_gets_no_processor_is_starved";
    if is_child() {
        return within(|| {
            let (group, stalls) = watched(ms(400));
            let thread = tid_of(group.next()).to_string();
            let renice = Command::new("renice")
                .args(["-n", "19", "-p", &thread])
                .output();
            assert!(renice.unwrap().status.success());
            // It begins while there is a processor for it.
            let (begun, begins) = channel();
            group
                .next()
                .execute(move || begun.send(()).unwrap())
                .unwrap();
            let (stop, _) = spin(&group);
            begins.recv().unwrap();
            let compute = |stop: &Arc<AtomicBool>| {
                let stop = Arc::clone(stop);
                thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            };
            let others = [compute(&stop), compute(&stop), compute(&stop)];
            let found = stalls.recv().unwrap();
            stop.store(true, Ordering::Relaxed);
            others.into_iter().for_each(|one| one.join().unwrap());
            assert_eq!(found.kind(), StallKind::Starved, "{found}");
            let text = found.to_string();
            assert!(text.contains("ready, but without a processor"), "{text}");
        });
    }
    let tools = "command -v taskset && command -v renice";
    let has_tools = Command::new("sh").args(["-c", tools]).output().unwrap();
    if !cfg!(target_os = "linux") || !has_tools.status.success() {
        return println!("skipped: there is no taskset or no renice");
    }
    let first =
        "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\\([0-9]*\\).*/\\1/p' /proc/self/status)";
    let pin = format!("taskset -cp {first} $$ >/dev/null");
    alone_after(&pin, TEST, || ());
}

#[test]
fn a_stall_is_reported_again_at_twice_and_at_four_times_the_threshold() {
    within(|| {
        let (group, stalls) = watched(ms(20));
        let door = stall(&group.loops()[0]);
        let mut last = None;
        for number in 1..=3 {
            let found = stalls.recv().unwrap();
            assert_eq!((found.reports(), found.suppressed()), (number, 0));
            assert!(found.duration() >= ms(20) * (1 << (number - 1)), "{found}");
            assert!(last.is_none_or(|id| id == found.task_id()), "one poll");
            last = Some(found.task_id());
        }
        door.open();
        assert_eq!(group.metrics().stalls(), 1);
    });
}

#[test]
fn of_many_stalls_some_are_left_out_and_a_later_report_has_their_number() {
    within(|| {
        let (builder, stalls) = builder(ms(20));
        let group = builder.loops(12).build().unwrap();
        let start = Instant::now();
        let mut doors: Vec<_> = group.loops().iter().map(stall).collect();
        eventually("every loop is found", || group.metrics().stalls() == 12);
        // Ten at once, and one more after six seconds. (The same stalls are due again by then, some of them.)
        let first: Vec<_> = stalls.iter().take(10).collect();
        assert!(first.iter().all(|stall| stall.suppressed() == 0));
        let mut later = Vec::new();
        while later.is_empty() {
            // A loop goes on, and stalls anew.
            doors[0].open();
            doors[0] = stall(&group.loops()[0]);
            later.extend(stalls.recv_timeout(ms(100)));
        }
        assert!(
            start.elapsed() >= Duration::from_secs(6),
            "not before its time"
        );
        assert!(later[0].suppressed() >= 2, "{}", later[0]);
        let text = format!("({} reports were left out)", later[0].suppressed());
        assert!(later[0].to_string().ends_with(&text), "{}", later[0]);
        doors.iter().for_each(Door::open);
    });
}

#[test]
fn a_loop_that_sleeps_or_is_busy_with_many_short_polls_is_no_stall() {
    within(|| {
        let (group, stalls) = watched(THRESHOLD);
        let busy = group.spawn(async {
            let start = Instant::now();
            while start.elapsed() < THRESHOLD * 3 {
                yield_now().await;
            }
        });
        block_on(busy).unwrap();
        let start = Instant::now();
        eventually("it has slept for long", || start.elapsed() > THRESHOLD * 2);
        // A loop that is held up by the machine for so long in one poll is not what is tested here.
        let starved = |stall: &Stall| stall.kind() == StallKind::Starved;
        assert!(stalls.try_iter().all(|stall| starved(&stall)));
    });
}

#[test]
fn one_thread_watches_all_groups_and_ends_with_the_last() {
    alone(
        "one_thread_watches_all_groups_and_ends_with_the_last",
        || {
            let threads = || entries("/proc/self/task");
            let before = threads();
            let groups: Vec<_> = (0..3).map(|_| watched(ms(50)).0).collect();
            assert_eq!(threads(), before, "no loop has started");
            for group in &groups {
                block_on(group.spawn(async {})).unwrap();
            }
            assert_eq!(threads(), before + 3 + 1);
            groups
                .iter()
                .for_each(|group| drop(group.shutdown_now().wait()));
            eventually("the watchdog has ended", || threads() == before);
            let (group, stalls) = watched(ms(20));
            let door = stall(&group.loops()[0]);
            assert!(stalls.recv().is_ok(), "there is a new one");
            door.open();
            group.shutdown_now().wait();
            eventually("the watchdog has ended again", || threads() == before);
        },
    );
}

#[test]
fn stalled_polls_are_counted_once_each_and_the_last_ones_are_kept() {
    within(|| {
        let start = SystemTime::now();
        let (group, stalls) = watched(ms(20));
        assert_eq!(
            (group.metrics().stalls(), group.recent_stalls().len()),
            (0, 0)
        );
        for count in 1..=3 {
            let door = stall(&group.loops()[0]);
            let found = stalls.iter().find(|stall| stall.reports() == 2).unwrap();
            let metrics = group.metrics();
            assert_eq!(
                (metrics.stalls(), metrics.loops()[0].stalls()),
                (count, count)
            );
            let recent = group.recent_stalls();
            assert_eq!(recent.len() as u64, count);
            let last = recent.last().unwrap();
            assert_eq!(last.task_id(), found.task_id());
            assert!(last.reports() >= 2, "what was said last: {last}");
            assert!((start..=SystemTime::now()).contains(&last.at()));
            door.open();
        }
        let text = group.metrics().to_prometheus();
        let sample = "\nloopgroup_stalls_total{group=\"default\",loop=\"0\"} 3\n";
        assert!(text.contains(sample), "{text}");
        assert!(group.metrics().to_string().contains("stalls"));
        let ids: Vec<_> = group.recent_stalls().iter().map(Stall::task_id).collect();
        group.shutdown_now().wait();
        let after: Vec<_> = group.recent_stalls().iter().map(Stall::task_id).collect();
        assert_eq!(ids, after, "also when the group has ended");
        assert!(EventLoopGroup::new(1).unwrap().recent_stalls().is_empty());
    });
}

#[test]
fn without_a_handler_a_stall_is_one_line_on_stderr_as_it_is_if_the_handler_panics() {
    if is_child() {
        return within(|| {
            let plain = EventLoopGroup::builder().loops(1).watchdog(ms(20));
            let plain = plain.thread_name(|_| "two\nlines".to_owned());
            let panics = EventLoopGroup::builder().loops(1).watchdog(ms(20));
            let (tx, rx) = channel();
            let panics = panics.on_stall(move |_| {
                tx.send(()).unwrap();
                std::panic::resume_unwind(Box::new("a handler"));
            });
            let (plain, panics) = (plain.build().unwrap(), panics.build().unwrap());
            let held = [stall(&plain.loops()[0]), stall(&panics.loops()[0])];
            // Both are looked at together, so the other one has been reported by the second time.
            (0..2).for_each(|_| rx.recv().unwrap());
            held.iter().for_each(Door::open);
        });
    }
    let output =
        in_child("without_a_handler_a_stall_is_one_line_on_stderr_as_it_is_if_the_handler_panics");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let lines = text.lines().filter(|line| {
        line.starts_with("loopgroup: loop 0 (") && line.contains(" has not returned for ")
    });
    assert!(lines.count() >= 3, "{text}");
    assert!(text.contains("loopgroup: loop 0 (two\\nlines): "), "{text}");
}

#[test]
fn a_watchdog_needs_a_threshold_and_a_handler_needs_a_watchdog() {
    let error = |builder: Builder| builder.build().unwrap_err();
    let zero = error(EventLoopGroup::builder().watchdog(Duration::ZERO));
    assert_eq!(zero.kind(), std::io::ErrorKind::InvalidInput);
    let text = "watchdog: the threshold must be above zero; leave it out for no watchdog";
    assert_eq!(zero.to_string(), text);
    let alone = error(EventLoopGroup::builder().on_stall(|_| ()));
    assert_eq!(alone.kind(), std::io::ErrorKind::InvalidInput);
    assert!(alone.to_string().starts_with("on_stall:"), "{alone}");
    let longest = EventLoopGroup::builder().loops(1).watchdog(Duration::MAX);
    let group = longest.measure_time(true).build().unwrap();
    block_on(group.spawn(async { thread::yield_now() })).unwrap();
    eventually("the poll has ended, and been measured", || {
        group.loops()[0].metrics().poll_times().count() == 1
    });
}
