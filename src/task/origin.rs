//! Where a task comes from: the place of its spawn, and its name if it has one.
//!
//! On its way to a task an origin is one value. In the task its place is a [number](crate::site), and the
//! name a type of its own: a task without a name has no room for one.

use std::borrow::Cow;

use crate::error::Caller;
use crate::left_tasks::LeftKind;
use crate::site::Site;
use crate::watchdog::beacon::Named;

/// The origin of a task.
pub(crate) trait Origin {
    type Name: TaskName + Send + 'static;

    /// Where the task was spawned.
    fn location(&self) -> Caller;

    /// The number of that place.
    #[inline]
    fn site(&self) -> Site {
        Site::of(self.location())
    }

    /// The name, for the task to keep.
    fn into_name(self) -> Self::Name;

    /// The name, if there is one.
    fn name(&self) -> Option<&Cow<'static, str>> {
        None
    }

    /// The origin, for a report of tasks that were left over.
    fn left_kind(&self) -> LeftKind;
}

/// The name of a task, or none.
pub(crate) trait TaskName {
    fn named(&self) -> Option<&Named>;

    fn get(&self) -> Option<&Cow<'static, str>> {
        self.named().map(|named| &named.text)
    }
}

impl Origin for Caller {
    type Name = Unnamed;

    fn location(&self) -> Caller {
        self
    }

    fn into_name(self) -> Unnamed {
        Unnamed
    }

    fn left_kind(&self) -> LeftKind {
        LeftKind::new(self, None)
    }
}

impl Origin for Site {
    type Name = Unnamed;

    fn location(&self) -> Caller {
        Site::location(*self)
    }

    #[inline]
    fn site(&self) -> Site {
        *self
    }

    fn into_name(self) -> Unnamed {
        Unnamed
    }

    fn left_kind(&self) -> LeftKind {
        LeftKind::new(self.location(), None)
    }
}

/// No name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unnamed;

impl TaskName for Unnamed {
    fn named(&self) -> Option<&Named> {
        None
    }
}

/// The origin of a task with a name.
#[derive(Clone, Debug)]
pub(crate) struct NamedOrigin {
    location: Caller,
    name: Name,
}

/// A name; boxed, to take one word in the task.
#[derive(Clone, Debug)]
pub(crate) struct Name(Box<Named>);

impl NamedOrigin {
    pub(crate) fn new(location: Caller, name: Cow<'static, str>) -> NamedOrigin {
        let name = Name(Box::new(Named::new(name)));
        NamedOrigin { location, name }
    }
}

impl Origin for NamedOrigin {
    type Name = Name;

    fn location(&self) -> Caller {
        self.location
    }

    fn into_name(self) -> Name {
        self.name
    }

    fn name(&self) -> Option<&Cow<'static, str>> {
        self.name.get()
    }

    fn left_kind(&self) -> LeftKind {
        LeftKind::new(self.location, self.name.get().cloned())
    }
}

impl TaskName for Name {
    fn named(&self) -> Option<&Named> {
        Some(&*self.0).filter(|named| !named.text.is_empty())
    }
}
