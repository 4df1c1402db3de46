//! Bugs that a test plants, to see that its search finds them. Only with the feature `planted-bugs`, which a
//! build of the program does not have: there `has` is a constant.

/// A bug that a node can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A write is acknowledged when the leader has asked for it, not when a majority has it.
    AnswersEarly,
    /// A node that takes itself for the leader answers reads without asking the others.
    ReadsAlone,
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        // Of a thread, since each simulation lives on one, and a search has several.
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Gives a bug to all nodes that run on this thread, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    pub fn has(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use planted::{has, plant};

#[cfg(not(feature = "planted-bugs"))]
pub const fn has(_bug: Bug) -> bool {
    false
}
