//! The cases, with their sizes at scale 1.

use super::Better::{self, Higher, Lower};
use super::Size::{self, Fixed, Scaled};
use super::Who::{AlsoPrecise, AlsoSpinning, Everybody, Only};
use super::{Allocator, Case, Figure};
use crate::runtimes::Runtime;

/// What a user asks of a server.
macro_rules! server {
    ($who:expr, $workload:literal, [$($arg:expr),*], $title:literal) => {
        Case {
            who: Only($who),
            ..case(
                $workload,
                &[$($arg),*],
                &[
                    figure("per_s", concat!($title, ", rate"), "requests/s", Higher),
                    figure("p50_us", concat!($title, ", p50"), "µs", Lower),
                    figure("p99_us", concat!($title, ", p99"), "µs", Lower),
                    figure("cpu_ns", concat!($title, ", server CPU"), "ns/request", Lower),
                ],
            )
        }
    };
}
pub(super) use server;

pub(super) const fn figure(
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    better: Better,
) -> Figure {
    Figure {
        key,
        title,
        unit,
        better,
        headline: false,
    }
}

/// A figure that is also in the picture.
const fn headline(
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    better: Better,
) -> Figure {
    Figure {
        headline: true,
        ..figure(key, title, unit, better)
    }
}

pub(super) const fn case(
    workload: &'static str,
    args: &'static [(&'static str, Size)],
    figures: &'static [Figure],
) -> Case {
    Case {
        workload,
        args,
        figures,
        who: Everybody,
        pinned: false,
        allocator: Allocator::System,
    }
}

/// A server on the first core, its clients on the second: left alone, the system puts them now on one core
/// and now on two, and the rate of all runtimes alike doubles or halves with it.
const fn apart(case: Case) -> Case {
    Case {
        pinned: true,
        ..case
    }
}

const CLIENTS_CORE: (&str, Size) = ("core", Fixed(1));

/// Rounds inside a child, after the warm-up.
const REPS: (&str, Size) = ("reps", Fixed(5));
const TASKS: (&str, Size) = ("tasks", Scaled(200_000, 2_000));
const FLOOD: (&str, Size) = ("tasks", Scaled(400_000, 4_000));
const BATCHES: (&str, Size) = ("batches", Scaled(200, 10));
const BATCH: (&str, Size) = ("batch", Fixed(1_000));
const MILLIS: (&str, Size) = ("millis", Scaled(1_000, 100));

const TRIPS: (&str, Size) = ("trips", Scaled(20_000, 500));

/// An echo case: connections, bytes, requests under way on each connection.
macro_rules! echo {
    ($conns:literal, $size:literal, $depth:literal, $title:literal, $figure:ident) => {
        apart(case(
            "w8",
            &[
                ("conns", Fixed($conns)),
                ("size", Fixed($size)),
                ("depth", Fixed($depth)),
                CLIENTS_CORE,
                MILLIS,
            ],
            &[
                $figure("per_s", concat!("W8 echo, ", $title), "requests/s", Higher),
                $figure(
                    "cpu_ns",
                    concat!("W8 echo, ", $title, ", server CPU"),
                    "ns/request",
                    Lower,
                ),
            ],
        ))
    };
}

/// An HTTP case: connections.
#[cfg(feature = "hyper")]
macro_rules! http {
    ($conns:literal, $title:literal) => {
        apart(case(
            "w9",
            &[
                ("conns", Fixed($conns)),
                ("depth", Fixed(1)),
                CLIENTS_CORE,
                MILLIS,
            ],
            &[
                figure("per_s", concat!("W9 hyper, ", $title), "requests/s", Higher),
                figure(
                    "cpu_ns",
                    concat!("W9 hyper, ", $title, ", server CPU"),
                    "ns/request",
                    Lower,
                ),
            ],
        ))
    };
}

/// A case of two loops: whether each has a core of its own, whether they share one.
macro_rules! across {
    ($apart:literal, $pinned:literal, $where:literal, $figure:ident) => {
        Case {
            who: AlsoSpinning,
            pinned: $pinned,
            ..case(
                "w5",
                &[TRIPS, ("apart", Fixed($apart))],
                &[
                    $figure(
                        "p50_us",
                        concat!("W5 ping-pong across loops, ", $where, ", p50"),
                        "µs/round trip",
                        Lower,
                    ),
                    figure(
                        "p99_us",
                        concat!("W5 ping-pong across loops, ", $where, ", p99"),
                        "µs/round trip",
                        Lower,
                    ),
                ],
            )
        }
    };
}

/// A case of work from outside: how many tasks, and in which way.
macro_rules! outside {
    ($workload:literal, $tasks:expr, $title:literal, $figure:ident) => {
        case(
            $workload,
            &[$tasks, REPS],
            &[$figure("task_ns", $title, "ns/task", Lower)],
        )
    };
    ($workload:literal, $tasks:expr, $title:literal, $figure:ident, mimalloc) => {
        Case {
            allocator: Allocator::Mimalloc,
            ..outside!($workload, $tasks, $title, $figure)
        }
    };
}

/// A case of timers that never fire: whether one that is far off was armed first.
macro_rules! churn {
    ($far:literal, $title:literal, $figure:ident) => {
        case(
            "w7.churn",
            &[
                ("live", Fixed(10_000)),
                ("timers", Scaled(200_000, 20_000)),
                ("far", Fixed($far)),
                REPS,
            ],
            &[$figure("timer_ns", $title, "ns/timer", Lower)],
        )
    };
}

/// A case of loopgroup alone, on so many loops.
macro_rules! loops {
    ($workload:literal, $loops:literal, [$($arg:expr),*], $key:literal, $title:literal,
        $unit:literal, $better:ident) => {
        Case {
            who: Only(&[Runtime::Loopgroup]),
            ..case(
                $workload,
                &[("loops", Fixed($loops)), $($arg),*],
                &[figure($key, concat!("W13 ", $title, ", loops: ", $loops), $unit, $better)],
            )
        }
    };
}

/// An echo case of so many loops, or workers, with so many microseconds of work for each request.
macro_rules! loops_echo {
    ($loops:literal, $work:literal, $title:literal) => {
        Case {
            who: Only(&[Runtime::Loopgroup, Runtime::TokioMulti]),
            ..case(
                "w13.echo",
                &[
                    ("loops", Fixed($loops)),
                    ("work", Fixed($work)),
                    ("conns", Fixed(64)),
                    ("size", Fixed(64)),
                    ("depth", Fixed(1)),
                    MILLIS,
                ],
                &[
                    figure(
                        "per_s",
                        concat!("W13 ", $title, ", loops: ", $loops),
                        "requests/s",
                        Higher,
                    ),
                    figure(
                        "cpu_ns",
                        concat!("W13 ", $title, ", loops: ", $loops, ", server CPU"),
                        "ns/request",
                        Lower,
                    ),
                    figure(
                        "client_ns",
                        concat!("W13 ", $title, ", loops: ", $loops, ", clients' CPU"),
                        "ns/request",
                        Lower,
                    ),
                ],
            )
        }
    };
}

pub(super) const CASES: &[Case] = &[
    outside!("w1", TASKS, "W1 spawn from outside", headline),
    outside!("w1.execute", TASKS, "W1 execute from outside", headline),
    outside!(
        "w1.two_types",
        TASKS,
        "W1 execute, two types in turn",
        figure
    ),
    outside!(
        "w1.detached",
        TASKS,
        "W1 spawn from outside, detached",
        figure
    ),
    outside!("w1.joined", TASKS, "W1 spawn from outside, joined", figure),
    outside!(
        "w1",
        TASKS,
        "W1 spawn from outside, mimalloc",
        figure,
        mimalloc
    ),
    outside!(
        "w1.execute",
        TASKS,
        "W1 execute from outside, mimalloc",
        figure,
        mimalloc
    ),
    outside!(
        "w1.detached",
        TASKS,
        "W1 spawn from outside, detached, mimalloc",
        figure,
        mimalloc
    ),
    case(
        "w2",
        &[BATCHES, BATCH, REPS],
        &[
            headline("joined_ns", "W2 spawn at home, joined", "ns/task", Lower),
            headline(
                "detached_ns",
                "W2 spawn at home, detached",
                "ns/task",
                Lower,
            ),
        ],
    ),
    case(
        "w3",
        &[("tasks", Fixed(1_000)), ("yields", Scaled(200, 10)), REPS],
        &[headline(
            "yield_ns",
            "W3 yield, 1,000 tasks",
            "ns/yield",
            Lower,
        )],
    ),
    case(
        "w4",
        &[("trips", Scaled(200_000, 2_000)), REPS],
        &[headline(
            "trip_ns",
            "W4 ping-pong on one loop",
            "ns/round trip",
            Lower,
        )],
    ),
    across!(0, false, "as placed", figure),
    across!(1, false, "on two cores", headline),
    across!(0, true, "on one core", headline),
    outside!("w6", FLOOD, "W6 flood from 4 threads", headline),
    outside!("w6.execute", FLOOD, "W6 execute from 4 threads", headline),
    outside!(
        "w6.two_types",
        FLOOD,
        "W6 execute from 4 threads, two types in turn",
        figure
    ),
    outside!(
        "w6.detached",
        FLOOD,
        "W6 flood from 4 threads, detached",
        figure
    ),
    outside!(
        "w6.joined",
        FLOOD,
        "W6 flood from 4 threads, joined",
        figure
    ),
    outside!(
        "w6",
        FLOOD,
        "W6 flood from 4 threads, mimalloc",
        figure,
        mimalloc
    ),
    outside!(
        "w6.execute",
        FLOOD,
        "W6 execute from 4 threads, mimalloc",
        figure,
        mimalloc
    ),
    outside!(
        "w6.detached",
        FLOOD,
        "W6 flood from 4 threads, detached, mimalloc",
        figure,
        mimalloc
    ),
    churn!(0, "W7 timer made, armed, dropped", headline),
    churn!(1, "W7 timer made, armed, dropped; a far one first", figure),
    Case {
        who: AlsoPrecise,
        ..case(
            "w7.lateness",
            &[("sleeps", Scaled(100_000, 1_000)), MILLIS],
            &[
                headline("p50_us", "W7 lateness of 100,000 sleeps, p50", "µs", Lower),
                figure("p99_us", "W7 lateness of 100,000 sleeps, p99", "µs", Lower),
                headline("cpu_ms", "W7 lateness of 100,000 sleeps, CPU", "ms", Lower),
            ],
        )
    },
    echo!(1, 64, 1, "1 × 64 B", figure),
    echo!(64, 64, 1, "64 × 64 B", headline),
    echo!(1_000, 64, 1, "1,000 × 64 B", figure),
    echo!(1, 16_384, 1, "1 × 16 KiB", figure),
    echo!(64, 16_384, 1, "64 × 16 KiB", headline),
    echo!(1_000, 16_384, 1, "1,000 × 16 KiB", figure),
    echo!(64, 64, 16, "64 × 64 B, 16 deep", headline),
    #[cfg(feature = "hyper")]
    http!(1, "1 connection"),
    #[cfg(feature = "hyper")]
    http!(64, "64 connections"),
    case(
        "w10.idle",
        &[("conns", Scaled(10_000, 100))],
        &[
            headline("heap_b", "W10 idle connection, heap", "bytes", Lower),
            figure("rss_b", "W10 idle connection, resident", "bytes", Lower),
        ],
    ),
    apart(case(
        "w10.rate",
        &[CLIENTS_CORE, MILLIS],
        &[
            figure("per_s", "W10 connect, echo, reset", "connections/s", Higher),
            headline(
                "cpu_ns",
                "W10 connect, echo, reset, server CPU",
                "ns/connection",
                Lower,
            ),
        ],
    )),
    case(
        "w11",
        &[("tasks", Scaled(1_000_000, 10_000))],
        &[
            headline("heap_b", "W11 task that waits, heap", "bytes", Lower),
            figure("rss_b", "W11 task that waits, resident", "bytes", Lower),
        ],
    ),
    case(
        "w12.wake",
        &[("wakes", Scaled(1_000, 50))],
        &[
            headline("p50_us", "W12 wake of a parked loop, p50", "µs", Lower),
            figure(
                "call_us",
                "W12 wake of a parked loop, the call",
                "µs",
                Lower,
            ),
        ],
    ),
    case(
        "w12.idle",
        &[MILLIS],
        &[
            figure("cpu_us", "W12 a second of idling, CPU", "µs", Lower),
            figure(
                "switches",
                "W12 a second of idling, switches",
                "switches",
                Lower,
            ),
        ],
    ),
    loops!(
        "w13.outside",
        1,
        [TASKS, REPS],
        "task_ns",
        "spawn from outside",
        "ns/task",
        Lower
    ),
    loops!(
        "w13.outside",
        2,
        [TASKS, REPS],
        "task_ns",
        "spawn from outside",
        "ns/task",
        Lower
    ),
    loops!(
        "w13.home",
        1,
        [BATCHES, BATCH, REPS],
        "joined_ns",
        "spawn at home, joined",
        "ns/task",
        Lower
    ),
    loops!(
        "w13.home",
        2,
        [BATCHES, BATCH, REPS],
        "joined_ns",
        "spawn at home, joined",
        "ns/task",
        Lower
    ),
    loops_echo!(1, 0, "echo, 64 × 64 B"),
    loops_echo!(2, 0, "echo, 64 × 64 B"),
    loops_echo!(1, 20, "echo with 20 µs of work"),
    loops_echo!(2, 20, "echo with 20 µs of work"),
    case(
        "w14",
        &[("tasks", Scaled(1_000_000, 10_000))],
        &[headline(
            "task_ns",
            "W14 shutdown with 1,000,000 tasks",
            "ns/task",
            Lower,
        )],
    ),
];
