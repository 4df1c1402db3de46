//! What a task waits for, as a list of tasks shows it.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::metrics::table::Time;
use crate::noted::{Noted, SocketWait, Text};
use crate::task_id::TaskId;

/// What a task waits for; see [`TaskInfo::waits_for`](crate::TaskInfo::waits_for).
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, Wait, time::sleep};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// let task = group.spawn(sleep(Duration::from_secs(3600)));
/// group.block_on(group.spawn(async {})).unwrap(); // behind the task, which waits by now
/// let tasks = group.tasks();
/// let wait = &tasks[0].waits_for()[0];
/// println!("{wait}"); // a timer in 3600 s
/// assert!(matches!(wait, Wait::Sleep { left, .. } if *left > Duration::from_secs(3500)));
/// # drop(task);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// A timer of this crate: [`sleep`](crate::time::sleep()), [`interval`](crate::time::interval()),
    /// [`timeout`](crate::time::timeout()), a scheduled closure.
    #[non_exhaustive]
    Sleep {
        /// When it is due, by the clock of the loop.
        until: Instant,
        /// How long that was from the moment of the listing.
        left: Duration,
    },
    /// A timer that is so far off that it never fires.
    Never,
    /// A socket or another descriptor, to become readable.
    Read(Endpoint),
    /// A socket or another descriptor, to become writable.
    Write(Endpoint),
    /// A connection, at this listener.
    Accept(Endpoint),
    /// A connection to this peer, to be established.
    Connect(Endpoint),
    /// The end of a task, through its [`JoinHandle`](crate::JoinHandle).
    Join(TaskId),
    /// The first of so many tasks to end, through a [`JoinSet`](crate::JoinSet).
    JoinSet(usize),
    /// A visit of a value that is bound to a loop, see [`LoopBound::with`](crate::LoopBound::with).
    #[non_exhaustive]
    LoopBound {
        /// The index of that loop in its group.
        loop_index: usize,
        /// The task that makes the visit.
        task: TaskId,
    },
    /// A job on a thread of a [`BlockingGroup`](crate::blocking::BlockingGroup), such as that of
    /// [`unblock`](crate::blocking::unblock), by its id.
    Blocking(TaskId),
    /// What a [label](crate::label()) says.
    Label(Cow<'static, str>),
    /// Something else of this crate, in words: the end of a group, a signal.
    Event(&'static str),
}

impl Wait {
    /// What was noted, as it is `now` by the loop's clock.
    pub(crate) fn of(noted: Noted, now: Instant) -> Wait {
        match noted {
            Noted::Sleep(None) => Wait::Never,
            Noted::Sleep(Some(until)) => Wait::Sleep {
                until,
                left: until.saturating_duration_since(now),
            },
            Noted::Socket(SocketWait::Read, endpoint) => Wait::Read(endpoint),
            Noted::Socket(SocketWait::Write, endpoint) => Wait::Write(endpoint),
            Noted::Socket(SocketWait::Accept, endpoint) => Wait::Accept(endpoint),
            Noted::Socket(SocketWait::Connect, endpoint) => Wait::Connect(endpoint),
            Noted::Join(id) => Wait::Join(id),
            Noted::JoinSet(tasks) => Wait::JoinSet(tasks),
            Noted::Visit(task, index) => Wait::LoopBound {
                loop_index: index as usize,
                task,
            },
            Noted::Job(id) => Wait::Blocking(id),
            Noted::Label(Text::Static(text)) => Wait::Label(Cow::Borrowed(text)),
            Noted::Label(Text::Shared(text)) => Wait::Label(Cow::Owned(text.as_ref().to_owned())),
            Noted::Event(what) => Wait::Event(what),
        }
    }
}

/// Without line breaks, whatever a label or a path contains.
impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Sleep { left, .. } => write!(f, "a timer in {}", Time(*left)),
            Wait::Never => f.write_str("a timer that never fires"),
            Wait::Read(endpoint) => write!(f, "a read from {endpoint}"),
            Wait::Write(endpoint) => write!(f, "a write to {endpoint}"),
            Wait::Accept(endpoint) => write!(f, "a connection at {endpoint}"),
            Wait::Connect(endpoint) => match endpoint.peer() {
                Some(peer) => write!(f, "a connect to {}", peer.escape_debug()),
                None => write!(f, "a connect of {endpoint}"),
            },
            Wait::Join(id) => write!(f, "the end of {id}"),
            Wait::JoinSet(1) => f.write_str("the end of 1 task"),
            Wait::JoinSet(tasks) => write!(f, "the end of one of {tasks} tasks"),
            Wait::LoopBound { loop_index, task } => {
                write!(f, "a visit of a value on loop {loop_index} ({task})")
            }
            Wait::Blocking(id) => write!(f, "a blocking job ({id})"),
            Wait::Label(text) => write!(f, "\"{}\"", text.escape_debug()),
            Wait::Event(what) => f.write_str(what),
        }
    }
}
