//! Controls a connection from outside of the task that uses it: ends its reads, or lets its time expire.
//!
//! - It applies to the descriptor, registered or not, and whatever loop it migrates to.
//! - The wakers of waiting tasks are woken with no lock held; panics of foreign ones are contained.

use crate::event_loop::context;
use crate::event_loop::shared::Watched;
use crate::sync::Arc;

/// The control of one connection; it does not keep the descriptor open.
#[derive(Clone, Debug)]
pub struct Control(Arc<Watched>);

impl Control {
    pub(super) fn new(watched: &Arc<Watched>) -> Control {
        Control(Arc::clone(watched))
    }

    /// The control of a connection that no loop watches.
    #[cfg(test)]
    pub(crate) fn detached() -> Control {
        Control(Arc::default())
    }

    /// Ends the reads: one that would block returns the end of the stream, also one that waits now.
    pub(crate) fn end_reads(&self) {
        let mut woken = Vec::new();
        self.0.source.end_reads(&mut woken);
        context::panics().wake_all(woken);
    }

    /// Wakes the tasks that wait to read, to look for something else.
    pub(crate) fn wake_reader(&self) {
        let mut woken = Vec::new();
        self.0.source.wake_readers(&mut woken);
        context::panics().wake_all(woken);
    }

    /// Records from now on whether the connection is used.
    pub(crate) fn record_use(&self) {
        self.0.source.record_use();
    }

    /// Whether it was ready for an operation that was asked for, since the last call.
    pub(crate) fn take_use(&self) -> bool {
        self.0.source.take_use()
    }

    /// Whether anything has arrived, the end of the stream included.
    pub(crate) fn has_received(&self) -> bool {
        self.0.source.has_received()
    }

    /// Whether a task waits for the connection, or was woken by [`wake_reader`](Control::wake_reader) while
    /// it did, since the last call.
    pub(crate) fn take_awaited(&self) -> bool {
        self.0.source.take_awaited()
    }

    /// Has every operation that would have to wait fail with `TimedOut`, also those that wait now.
    pub(crate) fn expire(&self) {
        let mut woken = Vec::new();
        self.0.source.expire(&mut woken);
        context::panics().wake_all(woken);
    }
}
