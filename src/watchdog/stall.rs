//! A poll that does not return, as a report of it.

use std::fmt;
use std::panic::Location;
use std::time::{Duration, SystemTime};

use crate::error::Caller;
use crate::task_id::TaskId;

/// A poll that has not returned for long, while it has not; see
/// [`Builder::watchdog`](crate::Builder::watchdog).
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::{sync::mpsc, time::Duration};
///
/// let (tx, rx) = mpsc::channel();
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .watchdog(Duration::from_millis(20))
///     .on_stall(move |stall| tx.send(stall.clone()).unwrap())
///     .build()?;
/// let (release, held) = mpsc::channel::<()>();
/// let line = line!() + 1;
/// let task = group.task().name("stuck").spawn(async move { held.recv().unwrap_or(()) });
/// let stall = rx.recv().unwrap(); // and the task has not returned yet
/// drop(release);
/// println!("{stall}"); // loop 0 (loop-0-0): task 1 "stuck" from src/main.rs:13:42 has not returned for 25ms: ...
/// assert_eq!((stall.task_id(), stall.name()), (Some(task.id()), Some("stuck")));
/// assert_eq!((stall.loop_index(), stall.location().map(|place| place.line())), (0, Some(line)));
/// assert!(stall.duration() >= Duration::from_millis(20));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Stall {
    pub(crate) at: SystemTime,
    /// Tells the polls of a loop apart.
    pub(crate) poll: PollNumber,
    pub(crate) index: usize,
    pub(crate) thread_name: String,
    pub(crate) subject: Subject,
    pub(crate) location: Option<Caller>,
    pub(crate) name: Option<String>,
    pub(crate) duration: Duration,
    pub(crate) kind: StallKind,
    pub(crate) reports: u32,
    pub(crate) suppressed: u64,
}

/// A poll, as a [`Beacon`](super::beacon::Beacon) shows it: two polls that follow each other differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PollNumber(u64);

impl PollNumber {
    pub(crate) fn new(shown: u64) -> PollNumber {
        PollNumber(shown)
    }

    /// The number of the place, as it is shown.
    pub(crate) fn place(self) -> u32 {
        self.0 as u32
    }
}

/// What does not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A task, or a closure, which is one as well.
    Task(TaskId),
    MainFuture,
    ShutdownHook,
}

/// What the thread of a loop did for most of a [`Stall`].
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, StallKind};
/// use std::{sync::mpsc, thread, time::Duration};
///
/// let (tx, rx) = mpsc::channel();
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .watchdog(Duration::from_millis(20))
///     .on_stall(move |stall| tx.send(stall.kind()).unwrap_or(()))
///     .build()?;
/// drop(group.spawn(async { thread::sleep(Duration::from_millis(200)) })); // blocks the loop
/// let kind = rx.recv().unwrap();
/// assert_eq!(kind == StallKind::Blocked, cfg!(target_os = "linux"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallKind {
    /// It ran: a long computation, or a loop without an end. Move it to an executor group or yield in
    /// between.
    Computing,
    /// It waited in a system call: a lock, a file, a blocking socket. Use `blocking::unblock`.
    Blocked,
    /// It was ready to run and got no processor: the machine, or the limit of its container, is
    /// overcommitted.
    Starved,
    /// The system does not say.
    Unknown,
}

impl Stall {
    /// Returns the index of the loop in its group.
    pub fn loop_index(&self) -> usize {
        self.index
    }

    /// Returns the name of the loop's thread.
    pub fn thread_name(&self) -> &str {
        &self.thread_name
    }

    /// Returns the id of the task; a closure has one as well. `None` for the future of
    /// [`run`](crate::run()) or [`ManualLoop::block_on`](crate::ManualLoop::block_on), and for a shutdown
    /// hook.
    pub fn task_id(&self) -> Option<TaskId> {
        match self.subject {
            Subject::Task(id) => Some(id),
            Subject::MainFuture | Subject::ShutdownHook => None,
        }
    }

    /// Returns the name of the task, if it was [spawned with one](crate::TaskBuilder).
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns where the task was spawned, or the closure submitted.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }

    /// Returns when the watchdog has reported it.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::{sync::mpsc, time::{Duration, SystemTime}};
    ///
    /// let (tx, rx) = mpsc::channel();
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .watchdog(Duration::from_millis(20))
    ///     .on_stall(move |stall| tx.send(stall.clone()).unwrap_or(()))
    ///     .build()?;
    /// let (release, held) = mpsc::channel::<()>();
    /// let start = SystemTime::now();
    /// group.next().execute(move || held.recv().unwrap_or(())).unwrap();
    /// let stall = rx.recv().unwrap();
    /// drop(release);
    /// assert!(stall.at() >= start);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn at(&self) -> SystemTime {
        self.at
    }

    /// Returns for how long the watchdog has seen the poll: it has lasted at least as long, and at most a
    /// quarter of the threshold, or 100 ms, longer.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Returns what the loop's thread did for most of that time; known on Linux.
    pub fn kind(&self) -> StallKind {
        self.kind
    }

    /// Returns how often this poll was to be reported, this report included: 1 at the threshold, 2 at twice
    /// the threshold, 3 at four times.
    pub fn reports(&self) -> u32 {
        self.reports
    }

    /// Returns how many reports of the group were left out since the one before, because there were too many.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

/// One line, whatever the names are.
impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = self.thread_name.escape_debug();
        write!(f, "loop {} ({thread}): ", self.index)?;
        match self.subject {
            Subject::Task(id) => write!(f, "{id}")?,
            Subject::MainFuture => f.write_str("the main future")?,
            Subject::ShutdownHook => f.write_str("a shutdown hook")?,
        }
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        if let Some(location) = self.location {
            write!(f, " from {location}")?;
        }
        let micros = self.duration.as_micros() as u64;
        let rounded = Duration::from_micros(micros - micros % 100);
        write!(f, " has not returned for {rounded:?}: {}", self.kind)?;
        match self.suppressed {
            0 => Ok(()),
            1 => f.write_str(" (1 report was left out)"),
            n => write!(f, " ({n} reports were left out)"),
        }
    }
}

impl fmt::Display for StallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StallKind::Computing => "computing",
            StallKind::Blocked => "blocked in a system call",
            StallKind::Starved => "ready, but without a processor",
            StallKind::Unknown => "the system does not say why",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_one_line_whatever_the_names_are() {
        let id = TaskId::next();
        let mut stall = Stall {
            at: SystemTime::now(),
            poll: PollNumber::new(1),
            index: 2,
            thread_name: "loop-0-2".to_owned(),
            subject: Subject::Task(id),
            location: None,
            name: Some("line\nfeed \"quoted\"".to_owned()),
            duration: Duration::from_nanos(123_456_789),
            kind: StallKind::Computing,
            reports: 1,
            suppressed: 0,
        };
        let text = format!(
            "loop 2 (loop-0-2): {id} \"line\\nfeed \\\"quoted\\\"\" has not returned for 123.4ms: computing"
        );
        assert_eq!(stall.to_string(), text);
        stall.subject = Subject::ShutdownHook;
        stall.name = None;
        stall.suppressed = 2;
        stall.kind = StallKind::Starved;
        assert_eq!(
            stall.to_string(),
            "loop 2 (loop-0-2): a shutdown hook has not returned for 123.4ms: ready, but without a \
             processor (2 reports were left out)"
        );
        assert_eq!(stall.task_id(), None);
        stall.thread_name = "two\nlines\u{1b}[31m\u{2028}".to_owned();
        let text = stall.to_string();
        let breaks = |letter: char| letter.is_control() || letter == '\u{2028}';
        assert!(!text.contains(breaks), "{text:?}");
        assert!(
            text.starts_with("loop 2 (two\\nlines\\u{1b}[31m\\u{2028}): "),
            "{text}"
        );
        assert_eq!(
            stall.thread_name(),
            "two\nlines\u{1b}[31m\u{2028}",
            "as it is"
        );
    }
}
