//! A deadline that passes when a model says so: a model has no clock.

use std::time::Duration;

use crate::blocking::BlockingGroup;
use crate::event_loop::terms::{DrainScope, ShutdownControl, ShutdownRequest};
use crate::sync;

impl BlockingGroup {
    /// Makes the deadline of a shutdown pass.
    pub(crate) fn expire(&self) {
        let mut inner = self.pool.inner.lock();
        let (scope, timeout) = (DrainScope::Loop, Duration::ZERO);
        inner.control = ShutdownControl::default();
        let request = ShutdownRequest::Drain { scope, timeout };
        inner.control.note(request, sync::now());
        drop(inner);
        self.pool.changed.notify_all();
        self.pool.closed.notify_all();
    }
}
