//! The place of a descriptor in the table of a loop, from the day it is watched to the day it is not.
//!
//! - Somebody waits in the selector of that loop: its thread is started first.
//! - Its end: out of the selector, out of the table, and whoever still waits is woken to look again.

use std::io;
use std::os::fd::RawFd;

use mio::Token;

use crate::error::Rejected;
use crate::event_loop::context;
use crate::event_loop::shared::Shared;
use crate::reactor::source::Source;
use crate::sync::Arc;

/// Where a descriptor is watched.
pub(crate) struct Registration {
    pub(crate) home: Arc<Shared>,
    token: Token,
    pub(crate) source: Arc<Source>,
}

impl Registration {
    pub(crate) fn new(home: &Arc<Shared>, fd: RawFd) -> io::Result<Registration> {
        let Some(table) = &home.port.table else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this event loop has no selector (its group was built without_io): \
                 use the socket on a loop of a group with I/O",
            ));
        };
        home.ensure_started()
            .map_err(|reason| Rejected::new((), reason))?;
        let source = Arc::new(Source::default());
        let token = table
            .register(fd, &source)
            .ok_or_else(shut)?
            .map_err(unwatchable)?;
        Ok(Registration {
            home: Arc::clone(home),
            token,
            source,
        })
    }

    pub(crate) fn end(self) {
        if let Some(table) = &self.home.port.table {
            table.deregister(self.token);
        }
        let mut woken = Vec::new();
        self.source.shut(&mut woken);
        self.home.wake_all(woken);
    }
}

/// The loop that this thread's descriptors are registered with.
pub(crate) fn home() -> io::Result<Arc<Shared>> {
    if let Some(shared) = context::with_local(|local| Arc::clone(&local.shared)) {
        return Ok(shared);
    }
    match context::entered_group() {
        Some(group) => Ok(Arc::clone(group.next().shared())),
        None => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a socket of loopgroup waited on a thread that has no event loop: use it inside a task, \
             inside loopgroup::run or inside group.block_on",
        )),
    }
}

#[cold]
pub(crate) fn shut() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the event loop of this socket is shutting down or has ended",
    )
}

/// Says what a refusal of the selector mostly means.
#[cold]
fn unwatchable(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    io::Error::new(
        error.kind(),
        format!(
            "the system cannot watch this descriptor ({error}): it is a regular file, perhaps, \
             which loopgroup::blocking::unblock reads"
        ),
    )
}
