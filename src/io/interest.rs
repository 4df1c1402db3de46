//! Which readiness an operation needs.

use std::fmt;
use std::ops::BitOr;

use crate::reactor::direction::Direction;

/// Which readiness an operation needs: a set, not empty.
///
/// # Examples
///
/// ```
/// use loopgroup::io::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.is_readable() && both.is_writable());
/// assert!(!Interest::READABLE.is_writable());
/// assert_eq!(format!("{both:?}"), "READABLE | WRITABLE");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interest(u8);

const READABLE: u8 = 1;
const WRITABLE: u8 = 1 << 1;
const PRIORITY: u8 = 1 << 2;

impl Interest {
    /// The operation reads.
    pub const READABLE: Interest = Interest(READABLE);
    /// The operation writes.
    pub const WRITABLE: Interest = Interest(WRITABLE);
    /// The operation reads urgent data (Linux; elsewhere as [`READABLE`](Interest::READABLE)).
    pub const PRIORITY: Interest = Interest(PRIORITY);

    /// Returns the union of two interests; `|` in constants.
    #[must_use]
    pub const fn add(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }

    /// Returns the interests that are not in `other`; `None` if none is left.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::io::Interest;
    ///
    /// let both = Interest::READABLE | Interest::WRITABLE;
    /// assert_eq!(both.remove(Interest::WRITABLE), Some(Interest::READABLE));
    /// assert_eq!(Interest::READABLE.remove(both), None);
    /// ```
    #[must_use]
    pub const fn remove(self, other: Interest) -> Option<Interest> {
        match self.0 & !other.0 {
            0 => None,
            left => Some(Interest(left)),
        }
    }

    /// Says whether the operation reads.
    pub const fn is_readable(self) -> bool {
        self.0 & READABLE != 0
    }

    /// Says whether the operation writes.
    pub const fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// Says whether the operation reads urgent data.
    pub const fn is_priority(self) -> bool {
        self.0 & PRIORITY != 0
    }

    /// The directions whose readiness counts.
    pub(super) fn directions(self) -> [Option<Direction>; 2] {
        let reads = self.is_readable() || self.is_priority();
        [
            reads.then_some(Direction::Read),
            self.is_writable().then_some(Direction::Write),
        ]
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.is_readable(), "READABLE"),
            (self.is_writable(), "WRITABLE"),
            (self.is_priority(), "PRIORITY"),
        ];
        let set = names.into_iter().filter(|(is_set, _)| *is_set);
        for (place, (_, name)) in set.enumerate() {
            let separator = if place == 0 { "" } else { " | " };
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        self.add(other)
    }
}
