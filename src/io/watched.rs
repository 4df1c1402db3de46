//! The registration of a descriptor with a loop, from its first wait to its end.
//!
//! - The loop's thread is started before the registration: it has to wait in the selector.
//! - At its end the descriptor is removed from the selector and from the table, and the tasks that still
//!   wait for it are woken to check again.
//! - The end of the loop is not the end of the descriptor: a later wait on another loop registers it there.
//!   On the loop that ends, waits fail.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::RawFd;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::context;
use crate::event_loop::shared::{Registration, Shared, Watched};
use crate::group::entered::entered_group;
use crate::left_tasks::WaitsFor;
use crate::reactor::direction::Direction;
use crate::reactor::registrar;
use crate::reactor::source::Source;
use crate::sync::{Arc, Ordering};

impl Watched {
    /// Returns the source, if the descriptor is registered.
    pub(crate) fn source(&self) -> Option<&Source> {
        // Acquire pairs with the Release in `enter`.
        let registered = self.registered.load(Ordering::Acquire);
        registered.then_some(&self.source)
    }

    /// Returns the loop that it is registered with.
    pub(crate) fn home(&self) -> Option<Arc<Shared>> {
        let registration = self.registration.lock();
        registration.as_ref().map(|one| Arc::clone(&one.home))
    }

    /// Creates the state of a socket of a simulated network.
    pub(crate) fn of_simulated(socket: u32, network: u16) -> Watched {
        Watched {
            simulated: NonZeroU32::new(socket + 1),
            network,
            ..Watched::default()
        }
    }

    /// Whether a simulated socket belongs to the network and the host of a loop.
    fn is_at_home(&self, home: &Shared, socket: u32) -> bool {
        home.config.simulated.as_ref().is_some_and(|host| {
            let network = &host.net.network;
            network.serial() == self.network && network.host_of(socket) == Some(host.net.host)
        })
    }

    /// What a table knows the descriptor by; `fd` is asked only for one of the system.
    pub(crate) fn descriptor(&self, fd: impl FnOnce() -> RawFd) -> RawFd {
        match self.simulated {
            None => fd(),
            Some(socket) => registrar::descriptor_of(socket.get() - 1),
        }
    }

    /// Returns the source, after registering the descriptor with this thread's loop if necessary.
    #[inline]
    pub(crate) fn source_of(
        self: &Arc<Watched>,
        fd: impl FnOnce() -> RawFd,
    ) -> io::Result<&Source> {
        if self.source().is_none() {
            self.register(&home()?, self.descriptor(fd))?;
        }
        Ok(&self.source)
    }

    /// Registers a descriptor whose loop has ended with the loop of this thread, if that is another one.
    #[cold]
    pub(crate) fn move_on(
        self: &Arc<Watched>,
        fd: RawFd,
        direction: Direction,
    ) -> io::Result<&Source> {
        let Ok(home) = home() else {
            return Err(shut(Some(direction)));
        };
        home.ensure_started().map_err(not_started)?;
        let mut registration = self.registration.lock();
        let old_home_closed = registration
            .as_ref()
            .is_some_and(|one| one.home.is_closed());
        let is_other_loop = registration
            .as_ref()
            .is_some_and(|one| !Arc::ptr_eq(&one.home, &home));
        if !(old_home_closed && is_other_loop) {
            // Another thread has moved it meanwhile, or this thread's loop is the one that has ended.
            return match self.source.is_shut() {
                true => Err(shut(Some(direction))),
                false => Ok(&self.source),
            };
        }
        // Must precede the registration: from then on the selector may report readiness.
        self.source.reopen();
        let entered = self.enter(&mut registration, &home, fd);
        drop(registration);
        home.unpark_for_channel();
        if let Err(error) = entered {
            // Restores the previous state: the next wait may try another loop.
            let mut woken = Vec::new();
            self.source.shut(&mut woken);
            home.panics.wake_all(woken);
            return Err(error);
        }
        Ok(&self.source)
    }

    /// Registers a descriptor with `home`, unless it is registered: another thread may have been faster, with
    /// another loop.
    pub(crate) fn register(self: &Arc<Watched>, home: &Arc<Shared>, fd: RawFd) -> io::Result<()> {
        // A factory is user code: it is called before the lock is taken.
        if home.port.table.is_some() {
            home.ensure_started().map_err(not_started)?;
        }
        let mut registration = self.registration.lock();
        if registration.is_some() {
            return Ok(());
        }
        let entered = self.enter(&mut registration, home, fd);
        drop(registration);
        home.unpark_for_channel();
        entered
    }

    /// Registers the descriptor with another loop, whatever its state is; the caller has the only reference
    /// to its owner, so that nothing waits for it.
    pub(crate) fn migrate(self: &Arc<Watched>, home: &Arc<Shared>, fd: RawFd) -> io::Result<()> {
        self.detach();
        self.register(home, fd)
    }

    /// Registers the descriptor with no loop, until a task next waits for it; the caller has the only
    /// reference to its owner, so that nothing waits for it.
    pub(crate) fn detach(&self) {
        // When this returns, the old loop reports nothing more: its table has forgotten the descriptor.
        self.deregister();
        let mut registration = self.registration.lock();
        let old = registration.take();
        self.registered.store(false, Ordering::Release);
        self.source.reopen();
        drop(registration);
        drop(old);
    }

    /// Registers the descriptor in the table of a loop; under the lock of the registration.
    fn enter(
        self: &Arc<Watched>,
        registration: &mut Option<Registration>,
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
        if let Some(socket) = self.simulated {
            if !self.is_at_home(home, socket.get() - 1) {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this socket belongs to another simulated host, or its host has crashed or was killed: use \
                     it on the loops of its host",
                ));
            }
        }
        let token = table
            .register(fd, self)
            .ok_or_else(|| shut(None))?
            .map_err(unwatchable)?;
        let home = Arc::clone(home);
        *registration = Some(Registration { home, token });
        self.registered.store(true, Ordering::Release);
        Ok(())
    }

    /// Has the selector report the descriptor again if it is ready; `false` if it cannot.
    pub(crate) fn look_again(&self) -> bool {
        let registration = self.registration.lock();
        let Some(Registration { home, token }) = registration.as_ref() else {
            return false;
        };
        let table = home.port.table.as_ref();
        table.is_some_and(|table| table.look_again(*token))
    }

    /// Removes the descriptor from the table; afterwards the caller may close it.
    pub(crate) fn deregister(&self) {
        let registration = self.registration.lock();
        let Some((home, token)) = registration
            .as_ref()
            .map(|one| (Arc::clone(&one.home), one.token))
        else {
            return;
        };
        drop(registration);
        if let Some(table) = &home.port.table {
            table.deregister(token);
            home.note_channel_left();
        }
        let mut woken = Vec::new();
        self.source.shut(&mut woken);
        home.panics.wake_all(woken);
    }
}

/// Returns the loop that this thread's descriptors are registered with.
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

/// The error of an operation on a channel that its loop has closed, in a direction if that is known.
#[cold]
pub(crate) fn shut(direction: Option<Direction>) -> io::Error {
    context::with_local(|local| local.note_interrupted(direction.map(WaitsFor::of)));
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the event loop of this socket is shutting down or has ended",
    )
}

/// Turns a failed start of a loop into a socket error. Never `WouldBlock`, which the system may report: a
/// stream would take that for a pending read, which nothing would wake.
#[cold]
fn not_started(reason: RejectReason) -> io::Error {
    let error = io::Error::from(Rejected::new((), reason));
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other(reason),
        _ => error,
    }
}

/// Adds the likely reason to an error of the selector.
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
