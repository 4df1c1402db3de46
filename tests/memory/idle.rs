//! A loop that has nothing to do does nothing.
#![cfg(target_os = "linux")]

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use loopgroup::EventLoopGroup;

use crate::util::{Door, eventually, group_with_io, stall, tid_of, within};

/// How long a loop is watched; far longer than the tick of any scheduler of tasks.
const WATCH: Duration = Duration::from_millis(300);

/// A group whose loops run.
fn group(loops: usize, io: bool) -> EventLoopGroup {
    let group = group_with_io(loops, io);
    group.start().unwrap();
    group
}

/// What the system says about a thread of this process.
struct Thread {
    sleeps: bool,
    voluntary: u64,
    involuntary: u64,
}

impl Thread {
    fn look(tid: i32) -> Thread {
        let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
        let field = |name| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        Thread {
            sleeps: field("State:") == "S",
            voluntary: field("voluntary_ctxt_switches:").parse().unwrap(),
            involuntary: field("nonvoluntary_ctxt_switches:").parse().unwrap(),
        }
    }

    fn switches(&self) -> u64 {
        self.voluntary + self.involuntary
    }

    /// Waits until the thread sleeps and its way into the sleep is counted.
    fn parked(tid: i32) -> Thread {
        loop {
            eventually("the loop parks", || Thread::look(tid).sleeps);
            let first = Thread::look(tid);
            // Asleep is said a little before the switch is counted.
            thread::sleep(Duration::from_millis(30));
            let second = Thread::look(tid);
            if second.sleeps && first.switches() == second.switches() {
                return second;
            }
        }
    }
}

#[test]
fn a_parked_loop_never_runs() {
    within(|| {
        let groups = [group(2, true), group(2, false)];
        // A task that waits is no reason to look.
        let door = Door::new();
        for group in &groups {
            drop(group.spawn(door.opened()));
        }
        let tids: Vec<_> = groups
            .iter()
            .flat_map(|group| group.loops().iter().map(tid_of))
            .collect();
        let before: Vec<_> = tids
            .iter()
            .map(|&tid| Thread::parked(tid).switches())
            .collect();
        thread::sleep(WATCH);
        let after: Vec<_> = tids
            .iter()
            .map(|&tid| Thread::look(tid).switches())
            .collect();
        assert_eq!(before, after);
        door.open();
    });
}

#[test]
fn a_loop_in_its_quiet_period_sleeps_through_it() {
    within(|| {
        for io in [true, false] {
            let group = group(1, io);
            let tid = tid_of(group.next());
            let quiet = Duration::from_secs(3_600);
            drop(group.shutdown_gracefully_with(quiet, quiet).unwrap());
            let before = Thread::parked(tid);
            thread::sleep(WATCH);
            assert_eq!(Thread::look(tid).switches(), before.switches());
            group.shutdown_now().wait();
        }
    });
}

#[test]
fn a_thousand_submissions_to_a_busy_loop_wake_it_not_once() {
    within(|| {
        for io in [true, false] {
            let group = group(1, io);
            let ev = group.next();
            let tid = tid_of(ev);
            let release = stall(ev);
            let before = Thread::parked(tid);
            let ran = Arc::new(Mutex::new(Vec::new()));
            for n in 0..1_000 {
                let ran = Arc::clone(&ran);
                ev.execute(move || ran.lock().unwrap().push(n)).unwrap();
            }
            assert_eq!(Thread::look(tid).switches(), before.switches());
            release.open();
            let after = Thread::parked(tid);
            assert_eq!(*ran.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
            // Out of the stall and back into the wait; a ring left over would be one more. The lock
            // of the door may cost another.
            let voluntary = after.voluntary - before.voluntary;
            assert!(voluntary <= 4, "{voluntary} sleeps for one batch");
        }
    });
}

#[test]
fn lazy_submissions_do_not_wake_a_parked_loop() {
    within(|| {
        for io in [true, false] {
            let group = group(1, io);
            let ev = group.next();
            let tid = tid_of(ev);
            let before = Thread::parked(tid);
            let ran = Arc::new(Mutex::new(Vec::new()));
            for n in 0..100 {
                let ran = Arc::clone(&ran);
                ev.lazy_execute(move || ran.lock().unwrap().push(n))
                    .unwrap();
            }
            thread::sleep(WATCH / 3);
            assert_eq!(Thread::look(tid).switches(), before.switches());
            assert!(ran.lock().unwrap().is_empty());
            loopgroup::block_on(ev.submit(|| ())).unwrap();
            assert_eq!(*ran.lock().unwrap(), (0..100).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_group_that_was_only_built_has_no_threads() {
    within(|| {
        let ours = |name: &str| {
            fs::read_dir("/proc/self/task")
                .unwrap()
                .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok())
                .filter(|comm| comm.trim_end() == name)
                .count()
        };
        let group = EventLoopGroup::builder()
            .loops(4)
            .thread_name(|_| "idle-unused")
            .build()
            .unwrap();
        assert_eq!(ours("idle-unused"), 0);
        group.block_on(group.spawn_on(2, async {})).unwrap();
        assert_eq!(ours("idle-unused"), 1, "the one that is used");
        let report = group.drain(Duration::from_secs(30)).wait();
        let started: Vec<_> = report.loops().iter().map(|one| one.started()).collect();
        assert_eq!(started, [false, false, true, false]);
    });
}
