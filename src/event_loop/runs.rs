//! A run of closures, as the queues see it: something with a length that is begun or dropped.
//!
//! What a run consists of is the affair of [`closures`](super::closures), its place between tasks that of the
//! [run queue](super::run_queue).

use std::any::Any;

use crate::error::Caller;
use crate::panic::PanicReporter;

/// A run, whatever it consists of.
pub(crate) trait Run: Send {
    /// How many closures are left.
    fn len(&self) -> usize;

    /// Takes a closure out of an `Option` of its type, if it fits behind the others; returns whether it did.
    /// An empty run takes one from any place.
    fn join(&mut self, closure: &mut dyn Any, location: Caller) -> bool;

    /// Begins closures in order, on their loop, until none is left or the loop has to read the clock; returns
    /// whether it has to.
    fn begin(&mut self, shown: u8) -> bool;

    /// Drops every closure, on its loop: they are cancelled.
    fn cancel(&mut self);

    /// Drops every closure, uncounted: there is no loop.
    fn discard(&mut self, panics: &PanicReporter);
}
