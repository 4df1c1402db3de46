//! The lifecycle state of a loop, as seen from outside.
//!
//! States are ordered and only move forward:
//!
//! ```text
//!   NotStarted ──launch──▶ Started ──request──▶ ShuttingDown ──close gate──▶ Shutdown ──▶ Terminated
//!        └─────────────────────request (never used, no hooks)──────────────────────────────▲
//! ```

use crate::sync::{AtomicU8, Ordering};

/// The lifecycle state of a loop; later states are greater.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, State};
///
/// let group = EventLoopGroup::new(1)?;
/// let ev = group.next().clone();
/// assert_eq!(ev.state(), State::NotStarted);
/// group.start()?;
/// assert_eq!(ev.state(), State::Started);
/// group.shutdown_now().wait();
/// assert!(ev.state() > State::ShuttingDown);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
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

impl State {
    /// Returns whether a shutdown was requested.
    pub fn is_shutting_down(self) -> bool {
        self >= State::ShuttingDown
    }

    /// Returns whether new work is refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::State;
    ///
    /// let answers = |state: State| (state.is_shutting_down(), state.is_shutdown(), state.is_terminated());
    /// assert_eq!(answers(State::Started), (false, false, false));
    /// assert_eq!(answers(State::ShuttingDown), (true, false, false)); // still accepts
    /// assert_eq!(answers(State::Shutdown), (true, true, false));
    /// assert_eq!(answers(State::Terminated), (true, true, true));
    /// ```
    pub fn is_shutdown(self) -> bool {
        self >= State::Shutdown
    }

    /// Returns whether the loop has ended.
    pub fn is_terminated(self) -> bool {
        self == State::Terminated
    }
}

/// A state that only moves forward.
#[derive(Debug)]
pub(crate) struct StateCell(AtomicU8);

impl StateCell {
    pub(crate) fn new() -> StateCell {
        StateCell(AtomicU8::new(State::NotStarted as u8))
    }

    pub(crate) fn get(&self) -> State {
        // Acquire pairs with the Release in `advance`.
        match self.0.load(Ordering::Acquire) {
            0 => State::NotStarted,
            1 => State::Started,
            2 => State::ShuttingDown,
            3 => State::Shutdown,
            _ => State::Terminated,
        }
    }

    /// Moves forward to `state`, unless the current state is that or a later one.
    pub(crate) fn advance(&self, state: State) {
        self.0.fetch_max(state as u8, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_never_goes_back() {
        let cell = StateCell::new();
        cell.advance(State::Shutdown);
        cell.advance(State::Started);
        assert_eq!(cell.get(), State::Shutdown);
    }

    #[test]
    fn each_predicate_holds_from_its_state_on() {
        use State::{NotStarted, Shutdown, ShuttingDown, Started, Terminated};
        let all = [NotStarted, Started, ShuttingDown, Shutdown, Terminated];
        let table = |ask: fn(State) -> bool| all.map(ask);
        assert_eq!(
            table(State::is_shutting_down),
            [false, false, true, true, true]
        );
        assert_eq!(table(State::is_shutdown), [false, false, false, true, true]);
        assert_eq!(
            table(State::is_terminated),
            [false, false, false, false, true]
        );
    }
}
