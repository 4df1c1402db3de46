//! What a wait for readiness has found.

use std::fmt;

use crate::reactor::direction::Direction;

/// What a descriptor is ready for: the result of [`Registered::ready`](crate::io::Registered::ready) and
/// of `ready` on every socket.
///
/// Readiness is a hint: the operation may still return `WouldBlock`. A direction that the peer has
/// closed, or that has a pending error, is ready as well, because the operation does not block: it
/// returns the end of the stream, or the error.
///
/// # Examples
///
/// ```
/// use loopgroup::{io::Interest, net::UnixStream};
///
/// loopgroup::run(async {
///     let (ours, theirs) = UnixStream::pair()?;
///     let ready = ours.ready(Interest::READABLE | Interest::WRITABLE).await?;
///     assert!(ready.is_writable() && !ready.is_readable());
///     assert_eq!(format!("{ready:?}"), "WRITABLE");
///     drop(theirs);
///     assert!(ours.ready(Interest::READABLE).await?.is_readable()); // the end of the stream
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ready {
    readable: bool,
    writable: bool,
}

impl Ready {
    /// Says whether a read is worthwhile: there is data, urgent data, an end or an error.
    pub const fn is_readable(self) -> bool {
        self.readable
    }

    /// Says whether a write is worthwhile: there is room, an end or an error.
    pub const fn is_writable(self) -> bool {
        self.writable
    }

    pub(super) fn insert(&mut self, direction: Direction) {
        match direction {
            Direction::Read => self.readable = true,
            Direction::Write => self.writable = true,
        }
    }

    /// Says whether neither direction is ready, which is never returned to a user.
    pub(super) fn is_empty(self) -> bool {
        self == Ready::default()
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.readable, self.writable) {
            (true, true) => "READABLE | WRITABLE",
            (true, false) => "READABLE",
            (false, true) => "WRITABLE",
            (false, false) => "none",
        })
    }
}
