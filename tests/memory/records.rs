//! What the record of a task takes, and that it is given back.
#![cfg(target_os = "linux")]

use std::time::Duration;

use loopgroup::time::sleep;
use loopgroup::{EventLoopGroup, block_on};

use crate::allocator::live_bytes;
use crate::util::{alone, flush};

const TASKS: usize = 10_000;

/// The most bytes that may be left of a task that has ended: places in the queues and tables of the loop,
/// which it may keep for the next burst. A record has more.
const LEFT: isize = 130;

/// The most bytes of a task that sleeps, if nobody lists it: its timer among them.
const NOT_LISTED: isize = 400;

/// The bytes of tasks that sleep, for each of them. When they have ended, nearly all of them are given back.
fn bytes_per_task(tracked: bool) -> isize {
    let builder = EventLoopGroup::builder().loops(1).track_tasks(tracked);
    let group = builder.build().unwrap();
    let ev = group.next();
    let mut tasks = Vec::with_capacity(TASKS);
    flush(ev);
    let before = live_bytes();
    tasks.extend((0..TASKS).map(|_| ev.spawn(sleep(Duration::from_secs(3600)))));
    flush(ev);
    let used = live_bytes() - before;
    assert_eq!(group.tasks().len(), if tracked { TASKS } else { 0 });
    for task in tasks.drain(..) {
        assert!(block_on(task.cancel()).is_none());
    }
    assert!(group.tasks().is_empty());
    flush(ev);
    let left = (live_bytes() - before) / TASKS as isize;
    assert!(left <= LEFT, "{left} bytes are left");
    used / TASKS as isize
}

#[test]
fn the_record_of_a_task_is_as_small_as_the_docs_say() {
    alone("the_record_of_a_task_is_as_small_as_the_docs_say", || {
        // The task itself, and its places in the queues and tables of the loop, which make it vary.
        let without = bytes_per_task(false);
        assert!(
            without <= NOT_LISTED,
            "{without} bytes of a group that lists none"
        );
        let record = bytes_per_task(true) - without;
        // About 200; the buffers of the inbox and of the queues make it vary.
        assert!((130..=320).contains(&record), "{record} bytes");
        println!("{without} bytes for a task that sleeps, {record} for its record");
    });
}
