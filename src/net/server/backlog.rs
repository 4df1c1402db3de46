//! How an acceptor finds out whether another connection waits behind the one that it has just accepted.
//!
//! - *Trying* is an accept, which costs as much as a successful one if there is nothing: the system makes the
//!   new socket first. For connections that come one by one that is a tenth of all that they cost.
//! - *Asking* clears the readiness and has the selector look again. That costs a tenth of a try; but if there
//!   is a connection, it is accepted in the next turn of the loop, so a burst would take a turn for each.
//! - So an acceptor tries, and asks after tries that were in vain: once after the first, twice as often after
//!   each further one, up to [`MAX_ASKS`]. A try that finds a connection ends that, and a burst is accepted
//!   in one turn.
//!
//! ```text
//!            a try in vain: asks doubled
//!   Trying ──────────────────────────────▶ Asking
//!      ▲ └─┐ another connection: asks = 0     │ as many connections as there are asks
//!      └───┴────────────────────────────◀─────┘
//! ```

/// The most connections for which an acceptor only asks; then it tries again.
const MAX_ASKS: u32 = 16;

/// What an acceptor does after an accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextLook {
    /// Calls accept again.
    Try,
    /// Has the selector look.
    Ask,
}

/// The state of one acceptor.
#[derive(Debug, Default)]
pub(super) struct BacklogLooks {
    /// Connections since the acceptor last waited, or asked.
    batch: u32,
    /// How often it asks before it tries again.
    asks_left: u32,
    /// How often it asked after the last try in vain.
    asks: u32,
}

impl BacklogLooks {
    /// A connection was accepted.
    pub(super) fn accepted(&mut self) -> NextLook {
        match self.asks_left.checked_sub(1) {
            Some(left) => {
                self.asks_left = left;
                self.batch = 0;
                NextLook::Ask
            }
            None => {
                self.batch = self.batch.saturating_add(1);
                NextLook::Try
            }
        }
    }

    /// There is no further connection.
    pub(super) fn empty(&mut self) {
        match std::mem::take(&mut self.batch) {
            0 => {} // it was woken for something else, or has asked
            1 => {
                self.asks = (self.asks * 2).clamp(1, MAX_ASKS);
                self.asks_left = self.asks;
            }
            _ => self.asks = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets connections come one by one; returns how many were followed by a try.
    fn tries_for(looks: &mut BacklogLooks, lone: u32) -> u32 {
        let mut tries = 0;
        for _ in 0..lone {
            tries += u32::from(looks.accepted() == NextLook::Try);
            looks.empty();
        }
        tries
    }

    #[test]
    fn connections_that_come_one_by_one_are_tried_for_ever_less_often() {
        let mut looks = BacklogLooks::default();
        // 1 ask, 2, 4, 8, 16, and a try before each of them.
        assert_eq!(tries_for(&mut looks, 5 + 31), 5);
        assert_eq!(tries_for(&mut looks, 17 * 10), 10, "16 asks for a try");
    }

    #[test]
    fn a_burst_is_found_out_after_sixteen_asks_at_most_and_accepted_in_one_go() {
        let mut looks = BacklogLooks::default();
        tries_for(&mut looks, 1000);
        let asks = (0..100).take_while(|_| looks.accepted() == NextLook::Ask);
        assert!(asks.count() <= 16);
        for _ in 0..1000 {
            assert_eq!(looks.accepted(), NextLook::Try);
        }
        looks.empty();
        assert_eq!(
            looks.accepted(),
            NextLook::Try,
            "the next may be a burst, too"
        );
        looks.empty();
        assert_eq!(looks.accepted(), NextLook::Ask);
    }

    #[test]
    fn a_wake_up_without_a_connection_changes_nothing() {
        let mut looks = BacklogLooks::default();
        (0..10).for_each(|_| looks.empty());
        assert_eq!(looks.accepted(), NextLook::Try);
    }
}
