//! The open connections of a server on one loop: what ends their reads when the server shuts down.
//!
//! - A connection enters when its handler is called and leaves when its handler has ended. One that enters
//!   after the reads have ended finds them ended: the flag and the list share a lock.
//! - The loop tells when its shutdown begins, in the turn that notices the request and before the loop can
//!   come to rest: handlers get their turn also if there is no quiet period.
//! - The reads are ended with no lock held: this wakes tasks.

use slab::Slab;

use crate::io::control::Control;
use crate::sync::Mutex;

/// The open connections on one loop.
#[derive(Debug, Default)]
pub(super) struct OpenConnections(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The loop tells it when its shutdown begins.
    follows: bool,
    reads_ended: bool,
    controls: Slab<Control>,
}

/// Identifies a connection in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenKey(usize);

impl OpenConnections {
    /// Whether the loop has yet to be asked to tell when its shutdown begins: `true` once.
    pub(super) fn is_to_follow(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().follows, true)
    }

    pub(super) fn enter(&self, control: Control) -> OpenKey {
        let mut inner = self.0.lock();
        let key = OpenKey(inner.controls.insert(control.clone()));
        let reads_ended = inner.reads_ended;
        drop(inner);
        if reads_ended {
            control.end_reads();
        }
        key
    }

    /// How many connections are open.
    #[cfg(feature = "inspect")]
    pub(super) fn len(&self) -> usize {
        self.0.lock().controls.len()
    }

    pub(super) fn leave(&self, key: OpenKey) {
        let control = self.0.lock().controls.remove(key.0);
        drop(control);
    }

    /// Ends the reads of all connections, and of those that enter later.
    pub(super) fn end_reads(&self) {
        let mut inner = self.0.lock();
        // Every caller tells all connections: another one may still be about to.
        inner.reads_ended = true;
        let controls: Vec<_> = inner.controls.iter().map(|(_, one)| one.clone()).collect();
        drop(inner);
        for control in controls {
            control.end_reads();
        }
    }
}
