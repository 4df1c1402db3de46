//! What a search hands to a run when it shrinks a failure: which faults it has, and which hosts are left out.

use std::cell::RefCell;

use crate::sync::thread_local;
use crate::testing::sim::faults::Fault;

/// What differs from the run that the seed alone determines.
#[derive(Clone, Debug, Default)]
pub(super) struct Variant {
    /// The faults; those that the seed draws if `None`.
    pub(super) faults: Option<Vec<Fault>>,
    /// Hosts and clients that exist and are never started.
    pub(super) without: Vec<String>,
}

thread_local! {
    static REPLAY: RefCell<Replay> = const {
        RefCell::new(Replay {
            variant: Variant {
                faults: None,
                without: Vec::new(),
            },
            used: Vec::new(),
        })
    };
}

struct Replay {
    /// Of the next run.
    variant: Variant,
    /// The faults that the last run had.
    used: Vec<Fault>,
}

/// The faults of a plan of a run, by its number: the given ones, or those that `draw` draws.
pub(super) fn faults(plan: u64, draw: impl FnOnce() -> Vec<Fault>) -> Vec<Fault> {
    let given = REPLAY.with(|replay| replay.borrow().variant.faults.clone());
    let faults = match given {
        Some(all) => all.into_iter().filter(|one| one.plan == plan).collect(),
        None => draw(),
    };
    REPLAY.with(|replay| {
        let used = &mut replay.borrow_mut().used;
        if plan == 0 {
            used.clear(); // of another run, which no search has announced
        }
        used.extend_from_slice(&faults);
    });
    faults
}

/// Whether a host or client of this name is left out.
pub(super) fn leaves_out(name: &str) -> bool {
    REPLAY.with(|replay| {
        let replay = replay.borrow();
        replay.variant.without.iter().any(|one| one == name)
    })
}

/// Has the next run of this thread be this variant.
pub(super) fn give(variant: Variant) -> Ends {
    REPLAY.with(|replay| {
        *replay.borrow_mut() = Replay {
            variant,
            used: Vec::new(),
        };
    });
    Ends
}

/// Ends a variant, also if its run panics.
pub(super) struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        end();
    }
}

/// Has the runs that follow be what their seeds determine. What the last one had can still be asked for.
fn end() {
    REPLAY.with(|replay| replay.borrow_mut().variant = Variant::default());
}

/// The faults of the last run of this thread.
pub(super) fn used() -> Vec<Fault> {
    REPLAY.with(|replay| replay.borrow().used.clone())
}
