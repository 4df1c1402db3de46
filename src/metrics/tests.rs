//! What metrics look like, to the letter.

use super::*;

/// The metrics of a loop that has done nothing.
fn idle(index: usize) -> LoopMetrics {
    LoopMetrics {
        index,
        polls: 0,
        local_wakes: 0,
        remote_wakes: 0,
        outside_wakes: 0,
        wakeup_calls: 0,
        parks: 0,
        io_events: 0,
        stale_events: 0,
        rebuilds: 0,
        timers_fired: 0,
        stalls: 0,
        figures: Figures::default(),
        rejected: 0,
        pending: 0,
        live: 0,
        channels: 0,
        paused: false,
        parked: false,
        utilization: 0.0,
        wake_delay: Duration::ZERO,
        times: None,
        poll_times: Histogram::default(),
        wake_to_poll: Histogram::default(),
    }
}

/// A loop that serves connections.
fn busy(index: usize) -> LoopMetrics {
    LoopMetrics {
        polls: 1_234_567,
        local_wakes: 1_200_000,
        remote_wakes: 34,
        parks: 98_765,
        io_events: 1_199_000,
        figures: Figures {
            accepted: 33,
            completed: 1,
            ..Figures::default()
        },
        live: 32,
        channels: 32,
        ..idle(index)
    }
}

fn group(loops: Vec<LoopMetrics>) -> GroupMetrics {
    let sent = vec![vec![0; loops.len()]; loops.len()];
    GroupMetrics { loops, sent }
}

#[test]
fn a_loop_shows_one_line_of_what_is_not_zero() {
    assert_eq!(idle(3).to_string(), "loop 3: nothing yet");
    let mut one = LoopMetrics {
        polls: 1,
        parks: 2,
        wakeup_calls: 1,
        figures: Figures {
            accepted: 1,
            completed: 1,
            ..Figures::default()
        },
        ..idle(0)
    };
    assert_eq!(
        one.to_string(),
        "loop 0: 1 poll, 2 parks, 1 wake-up call, 1 accepted, 1 completed"
    );
    one.times = Some(Times {
        busy: Duration::from_micros(1_500),
        longest_poll: Duration::from_nanos(999),
    });
    one.utilization = 0.125;
    one.wake_delay = Duration::from_micros(50);
    one.local_wakes = 1;
    one.remote_wakes = 2;
    one.outside_wakes = 1_000;
    assert_eq!(
        one.to_string(),
        "loop 0: 1 poll, 2 parks, 1 wake by itself, 2 wakes by other loops, \
         1,000 wakes from outside, 1 wake-up call, 1 accepted, 1 completed, 13 % utilized, \
         wake delay 50.0 µs, busy 1.50 ms, longest poll 999 ns"
    );
}

#[test]
fn a_group_shows_tables_of_what_is_not_zero() {
    let mut metrics = group(vec![busy(0), busy(1)]);
    metrics.loops[1].polls = 1;
    metrics.loops[1].utilization = 0.5;
    metrics.sent = vec![vec![0, 34], vec![34, 0]];
    assert_eq!(
        metrics.to_string(),
        "\
loop       polls    parks  I/O events  channels  utilized
0      1,234,567   98,765   1,199,000        32       0 %
1              1   98,765   1,199,000        32      50 %
total  1,234,568  197,530   2,398,000        64      25 %

tasks  accepted  completed  live
0            33          1    32
1            33          1    32
total        66          2    64

woken  by loop 0  by loop 1
0      1,200,000         34
1             34  1,200,000
total  1,200,034  1,200,034"
    );
}

#[test]
fn a_single_loop_has_no_total_and_a_longest_poll_is_the_longest_of_all() {
    let mut one = busy(0);
    one.remote_wakes = 0;
    one.outside_wakes = 5;
    one.times = Some(Times {
        busy: Duration::from_secs(61),
        longest_poll: Duration::from_millis(3),
    });
    assert_eq!(
        group(vec![one.clone()]).to_string(),
        "\
loop      polls   parks  I/O events  channels        busy  longest poll
0     1,234,567  98,765   1,199,000        32  1 min 01 s       3.00 ms

tasks  accepted  completed  live
0            33          1    32

woken  by itself  from outside
0      1,200,000             5"
    );
    let mut two = group(vec![one.clone(), LoopMetrics { index: 1, ..one }]);
    two.loops[1].times = Some(Times {
        busy: Duration::from_secs(1),
        longest_poll: Duration::from_micros(20),
    });
    let text = two.to_string();
    let total = text.lines().nth(3).unwrap();
    assert!(total.ends_with("1 min 02 s       3.00 ms"), "{text}");
}

#[test]
fn nothing_done_is_one_line() {
    assert_eq!(group(vec![idle(0)]).to_string(), "1 loop: nothing yet");
    let two = group(vec![idle(0), idle(1)]);
    assert_eq!(two.to_string(), "2 loops: nothing yet");
}

#[test]
fn whatever_the_figures_no_line_is_wider_than_a_terminal_or_ends_in_a_space() {
    for loops in [1, 2, 3, 8, 64] {
        let huge = u64::MAX / 1_000;
        let one = |index| LoopMetrics {
            index,
            polls: huge,
            local_wakes: huge,
            remote_wakes: huge,
            outside_wakes: huge,
            wakeup_calls: huge,
            parks: huge,
            io_events: huge,
            stale_events: huge,
            rebuilds: huge,
            timers_fired: huge,
            stalls: huge,
            figures: Figures {
                accepted: huge,
                completed: huge,
                panicked: huge,
                cancelled: huge,
                ..Figures::default()
            },
            rejected: huge,
            pending: usize::MAX,
            live: usize::MAX,
            channels: usize::MAX,
            paused: false,
            parked: false,
            utilization: 1.0,
            wake_delay: Duration::MAX,
            times: Some(Times {
                busy: Duration::MAX / 1_000,
                longest_poll: Duration::MAX,
            }),
            poll_times: Histogram::from_durations([Duration::MAX]),
            wake_to_poll: Histogram::default(),
        };
        let text = group((0..loops).map(one).collect()).to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= TERMINAL, "{text}");
            assert_eq!(line, line.trim_end(), "{text}");
        }
        let rows = if loops == 1 { 2 } else { loops + 2 };
        for table in text.split("\n\n") {
            assert_eq!(table.lines().count() % rows, 0, "{text}");
        }
    }
}

#[test]
fn the_polls_are_a_column_once_there_are_tasks_even_before_a_loop_has_published_them() {
    let figures = Figures {
        accepted: 1,
        completed: 1,
        ..Figures::default()
    };
    let one = LoopMetrics {
        parks: 1,
        figures,
        ..idle(0)
    };
    let text = group(vec![one]).to_string();
    assert!(
        text.starts_with("loop  polls  parks\n0         0      1\n"),
        "{text}"
    );
    assert!(!group(vec![idle(0)]).to_string().contains("polls"));
}
