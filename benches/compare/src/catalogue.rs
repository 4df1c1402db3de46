//! What is measured: the cases, their sizes at scale 1, and the figures that each child has to print.

/// A measurement that one child makes.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) workload: &'static str,
    /// What the child is told beside its workload.
    pub(crate) args: &'static [(&'static str, Size)],
    pub(crate) figures: &'static [Figure],
    /// Who takes part.
    pub(crate) who: Who,
    /// Whether the child may use one core only.
    pub(crate) pinned: bool,
}

/// A number in the command line of a child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    Fixed(u64),
    /// So many at scale 1, and never fewer than the second number.
    Scaled(u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Everybody,
    /// The spinning variants too, which are pointless elsewhere.
    AlsoSpinning,
    LoopgroupOnly,
}

/// One number of a child's line, and one row of the tables.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// Whether it has a place in the picture.
    pub(crate) headline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

impl Size {
    pub(crate) fn at(self, scale: f64) -> u64 {
        match self {
            Size::Fixed(number) => number,
            Size::Scaled(number, least) => ((number as f64 * scale) as u64).max(least),
        }
    }
}

use Better::{Higher, Lower};
use Size::{Fixed, Scaled};
use Who::Everybody;

const fn figure(
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

const fn case(
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
    }
}

/// Rounds inside a child, after the warm-up.
const REPS: (&str, Size) = ("reps", Fixed(5));

pub(crate) const CASES: &[Case] = &[
    case(
        "w1",
        &[("tasks", Scaled(200_000, 2_000)), REPS],
        &[headline(
            "task_ns",
            "W1 spawn from outside",
            "ns/task",
            Lower,
        )],
    ),
    case(
        "w2",
        &[("batches", Scaled(200, 10)), ("batch", Fixed(1_000)), REPS],
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
    case(
        "w6",
        &[("tasks", Scaled(400_000, 4_000)), REPS],
        &[headline(
            "task_ns",
            "W6 flood from 4 threads",
            "ns/task",
            Lower,
        )],
    ),
];
