//! The place of a descriptor in the table of a loop, from the day it is watched to the day it is not.
//!
//! - Somebody waits in the selector of that loop: its thread is started first.
//! - Its end: out of the selector, out of the table, and whoever still waits is woken to look again.
//! - The end of the loop is not the end of the descriptor: whoever waits for it on another loop, from then on, has it
//!   registered there. On the loop that ends, waits fail.

use std::io;
use std::os::fd::RawFd;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::context;
use crate::event_loop::shared::{Registration, Shared, Watched};
use crate::group::entered::entered_group;
use crate::reactor::source::Source;
use crate::sync::{Arc, Ordering};

impl Watched {
    /// The source, if the descriptor is registered.
    pub(crate) fn source(&self) -> Option<&Source> {
        // Acquire pairs with the Release in `enter`.
        let registered = self.registered.load(Ordering::Acquire);
        registered.then_some(&self.source)
    }

    /// The loop that it is registered with.
    pub(crate) fn home(&self) -> Option<Arc<Shared>> {
        let place = self.registration.lock();
        place.as_ref().map(|place| Arc::clone(&place.home))
    }

    /// The source of a descriptor, which is registered with this thread's loop if it was not.
    pub(crate) fn source_of(self: &Arc<Watched>, fd: RawFd) -> io::Result<&Source> {
        if self.source().is_none() {
            self.register(&home()?, fd)?;
        }
        Ok(&self.source)
    }

    /// Registers a descriptor whose loop has ended with that of this thread, if it is another one.
    #[cold]
    pub(crate) fn move_on(self: &Arc<Watched>, fd: RawFd) -> io::Result<&Source> {
        let Ok(home) = home() else {
            return Err(shut());
        };
        home.ensure_started().map_err(not_started)?;
        let mut place = self.registration.lock();
        let gone = place.as_ref().is_some_and(|place| place.home.is_closed());
        let elsewhere = place
            .as_ref()
            .is_some_and(|place| !Arc::ptr_eq(&place.home, &home));
        if !(gone && elsewhere) {
            // Somebody else has moved it by now, or there is nowhere to go.
            return match self.source.is_shut() {
                true => Err(shut()),
                false => Ok(&self.source),
            };
        }
        // Before the selector can report anything.
        self.source.reopen();
        let entered = self.enter(&mut place, &home, fd);
        drop(place);
        if let Err(error) = entered {
            // As it was: the next one may try another loop.
            let mut woken = Vec::new();
            self.source.shut(&mut woken);
            home.panics.wake_all(woken);
            return Err(error);
        }
        Ok(&self.source)
    }

    /// Registers a descriptor, unless it is; perhaps another thread was first, with another loop.
    pub(crate) fn register(self: &Arc<Watched>, home: &Arc<Shared>, fd: RawFd) -> io::Result<()> {
        // A factory is user code: it is called before the lock is taken.
        if home.port.table.is_some() {
            home.ensure_started().map_err(not_started)?;
        }
        let mut place = self.registration.lock();
        if place.is_some() {
            return Ok(());
        }
        self.enter(&mut place, home, fd)
    }

    /// Takes a place in the table of a loop, with the old one held.
    fn enter(
        self: &Arc<Watched>,
        place: &mut Option<Registration>,
        home: &Arc<Shared>,
        fd: RawFd,
    ) -> io::Result<()> {
        let Some(table) = &home.port.table else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this event loop has no selector (its group was built without_io, or it is a loop of \
                 loopgroup::testing): use the socket on a loop of a group with I/O",
            ));
        };
        let token = table
            .register(fd, self)
            .ok_or_else(shut)?
            .map_err(unwatchable)?;
        let home = Arc::clone(home);
        *place = Some(Registration { home, token });
        self.registered.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends its time in the table; the caller may close the descriptor then.
    pub(crate) fn end(&self) {
        let place = self.registration.lock();
        let Some((home, token)) = place
            .as_ref()
            .map(|place| (Arc::clone(&place.home), place.token))
        else {
            return;
        };
        drop(place);
        if let Some(table) = &home.port.table {
            table.deregister(token);
        }
        let mut woken = Vec::new();
        self.source.shut(&mut woken);
        home.panics.wake_all(woken);
    }
}

/// The loop that this thread's descriptors are registered with.
fn home() -> io::Result<Arc<Shared>> {
    if let Some(shared) = context::with_local(|local| Arc::clone(&local.shared)) {
        return Ok(shared);
    }
    match entered_group() {
        Some(group) => Ok(Arc::clone(group.next().shared())),
        None => Err(no_loop()),
    }
}

#[cold]
pub(crate) fn no_loop() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a socket of loopgroup waited on a thread that has no event loop: use it inside a task, \
         inside loopgroup::run or inside group.block_on",
    )
}

#[cold]
pub(crate) fn shut() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the event loop of this socket is shutting down or has ended",
    )
}

/// A loop that cannot start, as an error of a socket. Not `WouldBlock`, as the system may call it: whoever
/// reads through a stream takes that for a wait, which nobody would end.
#[cold]
fn not_started(reason: RejectReason) -> io::Error {
    let error = io::Error::from(Rejected::new((), reason));
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other(reason),
        _ => error,
    }
}

/// Says what a refusal of the selector mostly means.
#[cold]
fn unwatchable(error: io::Error) -> io::Error {
    let reason = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "it is a regular file, perhaps, which loopgroup::blocking::unblock reads"
        }
        Some(libc::EEXIST) => "this loop watches it already, for another owner",
        Some(libc::ENOSPC) => {
            "the user's limit on watched descriptors is reached (fs.epoll.max_user_watches)"
        }
        _ => return error,
    };
    let text = format!("the system cannot watch this descriptor ({error}): {reason}");
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_selector_says_what_it_means_and_what_the_system_said() {
        for (errno, meaning) in [
            (libc::EPERM, "regular file"),
            (libc::EEXIST, "watches it already"),
            (libc::ENOSPC, "max_user_watches"),
            (libc::ENOMEM, "os error"),
        ] {
            let system = io::Error::from_raw_os_error(errno);
            let error = unwatchable(io::Error::from_raw_os_error(errno));
            assert_eq!(error.kind(), system.kind());
            let text = error.to_string();
            assert!(text.contains(meaning), "{text}");
            assert!(text.contains(&system.to_string()), "{text}");
        }
    }
}
