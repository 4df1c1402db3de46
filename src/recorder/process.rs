//! A copy of the tapes of loops that belong together: those of a group, which a viewer shows as a process.

use std::collections::HashMap;

use crate::recorder::ring::Record;
use crate::sync::Arc;

/// The traces of loops that belong together: a group.
#[derive(Clone)]
pub(crate) struct ProcessTrace {
    pub(crate) name: String,
    pub(crate) loops: Vec<LoopTrace>,
    /// When the trace was taken, or the recorder frozen.
    pub(crate) until: u64,
}

/// The trace of a loop.
#[derive(Clone)]
pub(crate) struct LoopTrace {
    pub(crate) thread_name: String,
    pub(crate) records: Vec<Record>,
    /// The names that the records refer to.
    pub(crate) names: Arc<HashMap<u32, Arc<str>>>,
}
