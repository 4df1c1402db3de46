//! Where a task comes from: the place of its spawn, and its name if it has one.
//!
//! A task without a name holds its location and nothing more. A named task is another type, so the name costs
//! only tasks that have one.

use std::borrow::Cow;

use crate::error::Caller;
use crate::left_tasks::LeftKind;

/// The origin of a task.
pub(crate) trait Origin {
    /// Where the task was spawned.
    fn location(&self) -> Caller;

    fn name(&self) -> Option<&Cow<'static, str>> {
        None
    }

    /// The origin, for a report of tasks that were left over.
    fn left_kind(&self) -> LeftKind {
        LeftKind::new(self.location(), self.name().cloned())
    }
}

impl Origin for Caller {
    fn location(&self) -> Caller {
        self
    }
}

/// The origin of a task with a name; boxed, to take one word in the task.
#[derive(Clone, Debug)]
pub(crate) struct NamedOrigin(Box<(Caller, Cow<'static, str>)>);

impl NamedOrigin {
    pub(crate) fn new(location: Caller, name: Cow<'static, str>) -> NamedOrigin {
        NamedOrigin(Box::new((location, name)))
    }
}

impl Origin for NamedOrigin {
    fn location(&self) -> Caller {
        self.0.0
    }

    fn name(&self) -> Option<&Cow<'static, str>> {
        Some(&self.0.1).filter(|name| !name.is_empty())
    }
}
