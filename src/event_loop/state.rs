//! The lifecycle state of a loop, as seen from outside.
//!
//! States are ordered and only move forward:
//!
//! ```text
//!   NotStarted ──launch──▶ Started ──request──▶ ShuttingDown ──close gate──▶ Shutdown ──▶ Terminated
//!        └─────────────────────request (never used, no hooks)──────────────────────────────▲
//! ```

use std::fmt;

use crate::sync::{AtomicU8, Ordering};

/// The lifecycle state of a loop; later states are greater.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, LoopState};
///
/// let group = EventLoopGroup::new(1)?;
/// let ev = group.next().clone();
/// assert_eq!(ev.state(), LoopState::NotStarted);
/// group.start()?;
/// assert_eq!(ev.state(), LoopState::Started);
/// group.shutdown_now().wait();
/// assert!(ev.state() > LoopState::ShuttingDown);
/// assert_eq!(ev.state().to_string(), "terminated");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LoopState {
    /// The loop has a reactor but no thread yet; the first use starts it.
    NotStarted,
    /// The loop runs.
    Started,
    /// A shutdown was requested; the loop still runs and still accepts work.
    ShuttingDown,
    /// The loop accepts no more work and cancels what is left.
    Shutdown,
    /// The loop has ended.
    Terminated,
}

impl LoopState {
    /// Returns whether a shutdown was requested.
    pub fn is_shutting_down(self) -> bool {
        self >= LoopState::ShuttingDown
    }

    /// Returns whether new work is rejected.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::LoopState;
    ///
    /// let answers = |state: LoopState| (state.is_shutting_down(), state.is_shutdown(), state.is_terminated());
    /// assert_eq!(answers(LoopState::Started), (false, false, false));
    /// assert_eq!(answers(LoopState::ShuttingDown), (true, false, false)); // still accepts
    /// assert_eq!(answers(LoopState::Shutdown), (true, true, false));
    /// assert_eq!(answers(LoopState::Terminated), (true, true, true));
    /// ```
    pub fn is_shutdown(self) -> bool {
        self >= LoopState::Shutdown
    }

    /// Returns whether the loop has ended.
    pub fn is_terminated(self) -> bool {
        self == LoopState::Terminated
    }
}

impl fmt::Display for LoopState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LoopState::NotStarted => "not started",
            LoopState::Started => "started",
            LoopState::ShuttingDown => "shutting down",
            LoopState::Shutdown => "shut down",
            LoopState::Terminated => "terminated",
        })
    }
}

/// A state that only moves forward.
#[derive(Debug)]
pub(crate) struct StateCell(AtomicU8);

impl StateCell {
    pub(crate) fn new() -> StateCell {
        StateCell(AtomicU8::new(LoopState::NotStarted as u8))
    }

    pub(crate) fn get(&self) -> LoopState {
        // Acquire pairs with the Release in `advance`.
        match self.0.load(Ordering::Acquire) {
            0 => LoopState::NotStarted,
            1 => LoopState::Started,
            2 => LoopState::ShuttingDown,
            3 => LoopState::Shutdown,
            _ => LoopState::Terminated,
        }
    }

    /// Moves forward to `state`, unless the current state is that or a later one.
    pub(crate) fn advance(&self, state: LoopState) {
        self.0.fetch_max(state as u8, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_never_goes_back() {
        let cell = StateCell::new();
        cell.advance(LoopState::Shutdown);
        cell.advance(LoopState::Started);
        assert_eq!(cell.get(), LoopState::Shutdown);
    }

    #[test]
    fn each_predicate_holds_from_its_state_on() {
        use LoopState::{NotStarted, Shutdown, ShuttingDown, Started, Terminated};
        let all = [NotStarted, Started, ShuttingDown, Shutdown, Terminated];
        let table = |ask: fn(LoopState) -> bool| all.map(ask);
        assert_eq!(
            table(LoopState::is_shutting_down),
            [false, false, true, true, true]
        );
        assert_eq!(
            table(LoopState::is_shutdown),
            [false, false, false, true, true]
        );
        assert_eq!(
            table(LoopState::is_terminated),
            [false, false, false, false, true]
        );
    }
}
