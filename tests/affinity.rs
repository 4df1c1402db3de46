//! A future is polled and dropped on its home loop only, under every race.

mod util;

use std::thread;

use loopgroup::EventLoopGroup;
use util::{Door, Log, Probe, thread_of, within};

#[test]
fn wake_from_another_thread_runs_on_the_home_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let door = Door::new();
        let log = Log::new();
        let handle = group.spawn_on(1, Probe::new(&log, door.opened()));
        util::eventually("the task waits", || door.waiting() == 1);
        let opener = door.clone();
        thread::spawn(move || opener.open()).join().unwrap();
        group.block_on(handle).unwrap();
        assert_eq!(log.polls(), 2);
        log.assert_home(thread_of(&group.loops()[1]));
    });
}
