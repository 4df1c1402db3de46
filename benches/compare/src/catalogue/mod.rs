//! What is measured: cases, who takes part in them, and the figures that each child has to print.

mod cases;
#[cfg(feature = "programs")]
mod programs;
mod uneven;

use crate::runtimes::Runtime;

/// All cases of this build.
pub(crate) fn cases() -> impl Iterator<Item = &'static Case> {
    #[cfg(feature = "programs")]
    let programs = programs::CASES;
    #[cfg(not(feature = "programs"))]
    let programs = &[];
    cases::CASES.iter().chain(uneven::CASES).chain(programs)
}

/// A measurement that one child makes.
#[derive(Debug)]
pub(crate) struct Case {
    /// A name as `w7.churn`; the part before the dot is what the command line calls a workload.
    pub(crate) workload: &'static str,
    /// What the child is told beside its workload.
    pub(crate) args: &'static [(&'static str, Size)],
    pub(crate) figures: &'static [Figure],
    /// Who takes part.
    pub(crate) who: Who,
    /// Whether the child may use the first core only; its clients bind themselves to another one.
    pub(crate) pinned: bool,
    pub(crate) allocator: Allocator,
}

/// Whose `malloc` the Rust runtimes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocator {
    System,
    Mimalloc,
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
    /// The variant with precise timers too.
    AlsoPrecise,
    Only(&'static [Runtime]),
}

/// A part of the report, with tables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Workloads,
    /// Load that is uneven.
    Uneven,
    /// Whole programs.
    Programs,
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

impl Case {
    pub(crate) fn family(&self) -> &'static str {
        let (family, _) = self.workload.split_once('.').unwrap_or((self.workload, ""));
        family
    }

    /// Where its figures are shown.
    pub(crate) fn section(&self) -> Section {
        match self.family() {
            "programs" => Section::Programs,
            "w16" | "w17" | "w18" => Section::Uneven,
            _ => Section::Workloads,
        }
    }

    /// Whether a loop is given its work from another thread.
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self.family(), "w1" | "w5" | "w6" | "w12")
    }
}

impl Size {
    pub(crate) fn at(self, scale: f64) -> u64 {
        match self {
            Size::Fixed(number) => number,
            Size::Scaled(number, least) => ((number as f64 * scale) as u64).max(least),
        }
    }
}
