//! Tasks that a shutdown had to end by force, as a report names them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

use crate::error::Caller;
use crate::reactor::direction::Direction;

/// What a task was waiting for.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, WaitsFor, time::sleep};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::new(1)?;
/// let sleeper = group.spawn(sleep(Duration::from_secs(3600)));
/// group.block_on(group.spawn(async {})).unwrap(); // behind the sleeper, which waits by now
/// let report = group.shutdown_now().wait();
/// assert_eq!(report.left()[0].waits_for(), Some(WaitsFor::Timer));
/// # drop(sleeper);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitsFor {
    /// To read from a channel, or to accept a connection.
    Read,
    /// To write to a channel, or for a connection to be established.
    Write,
    /// A timer.
    Timer,
    /// The service of an HTTP connection, to answer a request: see `compat::hyper`.
    Service,
}

impl WaitsFor {
    pub(crate) fn of(direction: Direction) -> WaitsFor {
        match direction {
            Direction::Read => WaitsFor::Read,
            Direction::Write => WaitsFor::Write,
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitsFor::Read => "waiting to read",
            WaitsFor::Write => "waiting to write",
            WaitsFor::Timer => "waiting for a timer",
            WaitsFor::Service => "waiting for its service",
        })
    }
}

/// Tasks that a shutdown had to end by force: those from one place, with one name, that waited for the same.
///
/// [`TerminationReport::left`](crate::TerminationReport::left) lists them. A task is left if the end of its
/// loop cancelled it, or if it ended because the loop closed a channel while the task waited for it.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(1)?;
/// let line = line!() + 2;
/// for _ in 0..3 {
///     drop(group.task().name("session").spawn(std::future::pending::<()>()));
/// }
/// let report = group.shutdown_now().wait();
/// let left = &report.left()[0];
/// assert_eq!((left.count(), left.name(), left.waits_for()), (3, Some("session"), None));
/// assert_eq!(left.location().line(), line);
/// println!("{left}"); // 3 tasks from src/main.rs:40 (session)
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftTasks {
    kind: LeftKind,
    count: u64,
}

/// What tasks have in common that are one entry of a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeftKind {
    location: Caller,
    name: Option<Cow<'static, str>>,
    waits_for: Option<WaitsFor>,
}

impl LeftKind {
    pub(crate) fn new(location: Caller, name: Option<Cow<'static, str>>) -> LeftKind {
        LeftKind {
            location,
            name,
            waits_for: None,
        }
    }

    pub(crate) fn waiting_for(mut self, what: Option<WaitsFor>) -> LeftKind {
        self.waits_for = what;
        self
    }
}

impl LeftTasks {
    /// Merges what several loops have left; the largest groups come first.
    pub(crate) fn merged<'a>(loops: impl IntoIterator<Item = &'a [LeftTasks]>) -> Vec<LeftTasks> {
        let mut counts = HashMap::new();
        for one in loops.into_iter().flatten() {
            *counts.entry(one.kind.clone()).or_default() += one.count;
        }
        LeftTasks::sorted(counts)
    }

    /// The groups in an order that does not depend on chance: the largest first, then by place.
    pub(crate) fn sorted(counts: HashMap<LeftKind, u64>) -> Vec<LeftTasks> {
        let mut tasks: Vec<_> = counts
            .into_iter()
            .map(|(kind, count)| LeftTasks { kind, count })
            .collect();
        tasks.sort_by(|one, other| {
            let place = |kind: &LeftKind| {
                let at = kind.location;
                (at.file(), at.line(), at.column(), kind.waits_for)
            };
            let by_count = other.count.cmp(&one.count);
            by_count
                .then_with(|| place(&one.kind).cmp(&place(&other.kind)))
                .then_with(|| one.kind.name.cmp(&other.kind.name))
        });
        tasks
    }

    /// Returns where the tasks were spawned.
    pub fn location(&self) -> &'static Location<'static> {
        self.kind.location
    }

    /// Returns their name, if they have one.
    pub fn name(&self) -> Option<&str> {
        self.kind.name.as_deref()
    }

    /// Returns what they waited for, if that is known: for a socket of this crate, a timer or an HTTP
    /// service, and not through a combinator that has wakers of its own. The timers of a server's own time
    /// limits do not count.
    pub fn waits_for(&self) -> Option<WaitsFor> {
        self.kind.waits_for
    }

    /// Returns how many they were.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Display for LeftTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, at) = (self.count, self.kind.location);
        let tasks = if count == 1 { "task" } else { "tasks" };
        write!(f, "{count} {tasks} from {}:{}", at.file(), at.line())?;
        if let Some(name) = &self.kind.name {
            // Names are data: a line break in one must not look like a line of the report.
            write!(f, " ({})", name.escape_debug())?;
        }
        match self.kind.waits_for {
            Some(what) => write!(f, ", {what}"),
            None => Ok(()),
        }
    }
}
