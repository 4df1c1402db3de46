//! A core for each loop: as asked, within what the process may use, or an error that names the core.
#![cfg(target_os = "linux")]

use std::io::ErrorKind;

use loopgroup::{CorePinning, EventLoopGroup};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::util::{alone, alone_after, within};

/// The cores that this thread may use.
fn cores() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count())
        .filter(|&core| set.is_set(core).unwrap())
        .collect()
}

/// The cores of each loop of a group that is pinned so.
fn cores_of_loops(loops: usize, pinning: CorePinning) -> Vec<Vec<usize>> {
    let group = EventLoopGroup::builder()
        .loops(loops)
        .pin_cores(pinning)
        .build()
        .unwrap();
    let ask = |index: usize| group.block_on(group.loops()[index].submit(cores)).unwrap();
    (0..loops).map(ask).collect()
}

#[test]
fn loops_take_the_allowed_cores_in_turn() {
    within(|| {
        let allowed = cores();
        let loops = allowed.len() + 1;
        let expected: Vec<_> = (0..loops)
            .map(|index| vec![allowed[index % allowed.len()]])
            .collect();
        assert_eq!(cores_of_loops(loops, CorePinning::RoundRobin), expected);
    });
}

#[test]
fn loops_take_the_cores_of_a_list_in_turn() {
    within(|| {
        let allowed = cores();
        let last = allowed[allowed.len() - 1];
        let list = CorePinning::List(vec![last, allowed[0]]);
        assert_eq!(
            cores_of_loops(3, list),
            [vec![last], vec![allowed[0]], vec![last]]
        );
    });
}

#[test]
fn without_pinning_loops_have_all_cores() {
    within(|| assert_eq!(cores_of_loops(2, CorePinning::None), [cores(), cores()]));
}

#[test]
fn the_hook_of_a_thread_runs_on_its_core_already() {
    within(|| {
        let first = cores()[0];
        let (send, receive) = std::sync::mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_thread_start(move |_| send.send(cores()).unwrap())
            .pin_cores(CorePinning::List(vec![first]))
            .build()
            .unwrap();
        group.start().unwrap();
        assert_eq!(receive.recv().unwrap(), [first]);
    });
}

#[test]
fn a_group_made_on_a_pinned_loop_has_the_cores_of_the_process() {
    within(|| {
        let allowed = cores();
        let group = EventLoopGroup::builder()
            .loops(1)
            .pin_cores(CorePinning::RoundRobin)
            .build()
            .unwrap();
        let made = group.next().submit(|| {
            let pinning = CorePinning::RoundRobin;
            EventLoopGroup::builder()
                .loops(2)
                .pin_cores(pinning)
                .build()
                .unwrap()
        });
        let inner = group.block_on(made).unwrap();
        for (index, one) in inner.loops().iter().enumerate() {
            let core = allowed[index % allowed.len()];
            assert_eq!(inner.block_on(one.submit(cores)).unwrap(), [core]);
        }
    });
}

/// Pins a thread to one core.
fn pin(thread: Pid, core: usize) {
    let mut set = CpuSet::new();
    set.set(core).unwrap();
    sched_setaffinity(thread, &set).unwrap();
}

#[test]
fn a_main_thread_that_has_pinned_itself_does_not_narrow_the_process() {
    alone(
        "a_main_thread_that_has_pinned_itself_does_not_narrow_the_process",
        || {
            // The body of a test is not on the main thread.
            let allowed = cores();
            let (main, last) = (Pid::this(), allowed[allowed.len() - 1]);
            pin(main, allowed[0]);
            let expected: Vec<_> = allowed.iter().map(|&core| vec![core]).collect();
            let pinned = cores_of_loops(allowed.len(), CorePinning::RoundRobin);
            assert_eq!(pinned, expected);
            let pinned = cores_of_loops(1, CorePinning::List(vec![last]));
            assert_eq!(pinned, [[last]]);
            // Nor does the thread that builds the group, while another has them all.
            sched_setaffinity(main, &sched_getaffinity(Pid::from_raw(0)).unwrap()).unwrap();
            pin(Pid::from_raw(0), last);
            let pinned = cores_of_loops(allowed.len(), CorePinning::RoundRobin);
            assert_eq!(pinned, expected);
        },
    );
}

#[test]
fn a_core_that_is_not_there_is_named() {
    within(|| {
        for core in [cores()[0] + 1000, 100_000, usize::MAX] {
            let error = EventLoopGroup::builder()
                .pin_cores(CorePinning::List(vec![cores()[0], core]))
                .build()
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(
                text.contains(&format!("pin_cores: core {core} is none of")),
                "{text}"
            );
        }
    });
}

#[test]
fn an_empty_list_is_refused() {
    within(|| {
        let builder = EventLoopGroup::builder().pin_cores(CorePinning::List(Vec::new()));
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            error.to_string(),
            "pin_cores: a list needs at least one core"
        );
    });
}

#[test]
fn a_core_that_the_process_may_not_use_is_refused() {
    let first = cores()[0];
    let narrow = format!("taskset -pc {first} $$ > /dev/null");
    alone_after(
        &narrow,
        "a_core_that_the_process_may_not_use_is_refused",
        || {
            let allowed = cores();
            assert_eq!(allowed.len(), 1, "taskset has narrowed it");
            assert_eq!(
                cores_of_loops(2, CorePinning::RoundRobin),
                [allowed.clone(), allowed.clone()]
            );
            let other = allowed[0] + 1;
            let builder = EventLoopGroup::builder().pin_cores(CorePinning::List(vec![other]));
            let error = builder.build().unwrap_err();
            let text = format!(
                "pin_cores: core {other} is none of those that this process may use: {allowed:?}"
            );
            assert_eq!(
                (error.kind(), error.to_string()),
                (ErrorKind::InvalidInput, text)
            );
        },
    );
}
