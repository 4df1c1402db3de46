//! A dump of very many tasks is there at once, also while a loop is stuck, and names what that is stuck in.
//!
//! The bound is for optimised code, on a machine that does other things as well: the quickest of some dumps.

use std::future::Future;
use std::time::{Duration, Instant};

use loopgroup::time::sleep;
use loopgroup::{Dump, EventLoopGroup, JoinHandle, TaskState, block_on, label};

use crate::util::{Door, HOUR, eventually, flush, ms, patiently, within};

const TASKS: usize = 100_000;

/// How many dumps, and what the quickest may take; a build without optimisation is several times as slow.
const DUMPS: usize = if cfg!(debug_assertions) { 2 } else { 10 };
const LIMIT: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(2),
    false => Duration::from_millis(200),
};

#[test]
fn a_dump_of_100_000_tasks_is_quick_and_names_the_one_that_its_loop_is_stuck_in() {
    within(|| {
        let group = EventLoopGroup::builder().loops(2).track_tasks(true);
        let group = group.build().unwrap();
        let others = sleepers(&group);
        for ev in group.loops() {
            flush(ev);
        }
        let door = Door::new();
        let until = door.clone();
        let named = group.loops()[0].task().name("stuck");
        let stuck = named.spawn(async move { until.pass() });
        let behind = group.spawn_on(0, async {});
        let does_not_answer = || !group.dump().loops()[0].answered();
        eventually("the loop does not answer", does_not_answer);

        let dumps: Vec<_> = (0..DUMPS).map(|_| timed(&group)).collect();
        for (dump, text, ..) in &dumps {
            assert_eq!(dump.tasks().len(), TASKS + 2);
            let one = dump.loops()[0].running().unwrap();
            assert_eq!(
                (one.task_id(), one.name()),
                (Some(stuck.id()), Some("stuck"))
            );
            let line = text.lines().find(|line| line.contains("DOES NOT ANSWER"));
            let task = format!("in {} \"stuck\" from ", stuck.id());
            assert!(line.unwrap().contains(&task), "{line:?}");
            assert!(text.lines().count() > TASKS, "a line for each task");
            let find = |id| dump.tasks().iter().find(|one| one.id() == id).unwrap();
            assert_eq!(find(stuck.id()).state(), TaskState::Running);
            assert!(find(stuck.id()).longest_poll() >= ms(100));
            assert_eq!(find(behind.id()).state(), TaskState::Queued);
        }
        let quickest = |time: fn(&Timed) -> Duration| dumps.iter().map(time).min().unwrap();
        let (taken, written) = (quickest(|one| one.2), quickest(|one| one.2 + one.3));
        println!("a dump of {TASKS} tasks: {taken:?}, and as text {written:?}");
        assert!(taken <= patiently(LIMIT), "{taken:?}");
        door.open();
        block_on(stuck).unwrap();
        drop((others, behind));
    });
}

/// A dump, its text, how long it took, and how long its text took.
type Timed = (Dump, String, Duration, Duration);

fn timed(group: &EventLoopGroup) -> Timed {
    let start = Instant::now();
    let dump = group.dump();
    let taken = start.elapsed();
    let text = dump.to_string();
    (dump, text, taken, start.elapsed() - taken)
}

/// Tasks of both loops, every tenth with a name of its own and a label.
fn sleepers(group: &EventLoopGroup) -> Vec<JoinHandle<()>> {
    let spawn = |number: usize| {
        let ev = &group.loops()[number % 2];
        match number % 10 {
            0 => {
                let task = ev.task().name(format!("session {number}"));
                task.spawn(label("the end of the day", sleeps()))
            }
            _ => ev.spawn(sleeps()),
        }
    };
    (0..TASKS).map(spawn).collect()
}

fn sleeps() -> impl Future<Output = ()> {
    sleep(HOUR)
}
