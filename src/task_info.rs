//! A task, as a list of tasks shows it.
//!
//! The list is copied out of the records of the loops ([`tracker`](crate::event_loop::tracker)), on whatever
//! thread asks for it; the loops do not take part.

use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

use crate::error::Caller;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::shared::Shared;
use crate::event_loop::tracker::{Record, TaskState, Tracker, WakeSource};
use crate::group::handle::EventLoopGroup;
use crate::metrics::table::{Count, Counted, Time};
use crate::noted::Text;
use crate::sync;
use crate::task_id::TaskId;
use crate::wait::Wait;

impl EventLoop {
    /// Lists the tasks of the loop, in the order of their ids; empty unless its group
    /// [tracks its tasks](crate::Builder::track_tasks).
    ///
    /// As [`EventLoopGroup::tasks`], for one loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, testing::TestLoop};
    ///
    /// let mut test = TestLoop::from_builder(EventLoopGroup::builder().track_tasks(true))?;
    /// let task = test.spawn(std::future::pending::<()>());
    /// test.run_until_stalled();
    /// assert_eq!(test.tasks()[0].id(), task.id());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn tasks(&self) -> Vec<TaskInfo> {
        let mut tasks = Vec::new();
        list(self.shared(), &mut tasks);
        tasks
    }
}

impl EventLoopGroup {
    /// Lists the tasks of the group, loop by loop, in the order of their ids; empty unless the group
    /// [tracks its tasks](crate::Builder::track_tasks).
    ///
    /// A task is listed from its submission until its future is dropped, whatever becomes of it. Closures
    /// that are submitted with [`execute`](EventLoop::execute) are no tasks; those that are
    /// [scheduled](EventLoop::schedule), or have a handle, are.
    ///
    /// It may be called anywhere and at any time: on an ordinary thread, in a task, in a destructor, while
    /// the group shuts down and afterwards. It waits for no loop, and no task is polled for it: a loop that
    /// is stuck in a poll is listed as the others are. While the loops work, the records are not taken at
    /// exactly the same instant.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, TaskState};
    ///
    /// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
    /// let task = group.task().name("session").spawn(std::future::pending::<()>());
    /// group.block_on(group.spawn(async {})).unwrap(); // behind the task, which waits by now
    /// let tasks = group.tasks();
    /// assert_eq!((tasks.len(), tasks[0].id(), tasks[0].name()), (1, task.id(), Some("session")));
    /// assert_eq!((tasks[0].state(), tasks[0].polls()), (TaskState::Waiting, 1));
    /// group.shutdown_now().wait();
    /// assert!(group.tasks().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn tasks(&self) -> Vec<TaskInfo> {
        let mut tasks = Vec::new();
        for one in self.loops() {
            list(one.shared(), &mut tasks);
        }
        tasks
    }
}

/// Adds the tasks of a loop to a list.
fn list(shared: &Shared, tasks: &mut Vec<TaskInfo>) {
    let Some(tracker) = &shared.tracker else {
        return;
    };
    tasks.reserve(tracker.len());
    let moment = Moment {
        now: sync::now(),
        loop_now: shared.config.clock.now(),
    };
    // A place is found under a lock; tasks of one place come in a row.
    let mut last = None;
    tracker.for_each(|id, record| {
        let site = record.listing.site;
        let location = match last {
            Some((known, location)) if known == site => location,
            _ => site.location(),
        };
        last = Some((site, location));
        let mut info = TaskInfo::of(id, record, location, tracker, &moment);
        info.loop_index = shared.index;
        tasks.push(info);
    });
}

/// When a list is taken.
struct Moment {
    now: Instant,
    /// By the clock of the loop.
    loop_now: Instant,
}

/// A task, as it was at one moment; see [`EventLoopGroup::tasks`].
///
/// Times are those of the system's clock, also in a test with virtual time; what a timer has
/// [left](Wait::Sleep) is by the clock of the loop.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, yield_now};
///
/// let group = EventLoopGroup::builder().loops(2).track_tasks(true).build()?;
/// let line = line!() + 1;
/// let task = group.spawn_on(1, async {
///     yield_now().await;
///     std::future::pending::<()>().await;
/// });
/// while group.tasks()[0].polls() < 2 {
///     std::thread::yield_now();
/// }
/// let info = &group.tasks()[0];
/// println!("{info}"); // task 17 from src/main.rs:12:18: waiting for something unknown; loop 1, ...
/// assert_eq!((info.loop_index(), info.location().line()), (1, line));
/// assert_eq!((info.wakes(), info.self_wakes(), info.name()), (1, 1, None));
/// assert!(info.longest_poll() <= info.busy() && info.busy() <= info.age());
/// assert!(info.last_poll() <= Some(info.age()) && info.waits_for().is_empty());
/// println!("its future has {} bytes", info.size());
/// # drop(task);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct TaskInfo {
    id: TaskId,
    name: Option<Text>,
    location: Caller,
    loop_index: usize,
    state: TaskState,
    age: Duration,
    polls: u64,
    busy: Duration,
    longest_poll: Duration,
    last_poll: Option<Duration>,
    wakes: u64,
    self_wakes: u64,
    /// See [`Record`].
    wakes_elsewhere: Box<[(Option<u32>, u64)]>,
    last_wake: Option<LastWake>,
    size: usize,
    waits: Vec<Wait>,
}

impl TaskInfo {
    fn of(
        id: TaskId,
        record: Record,
        location: Caller,
        tracker: &Tracker,
        moment: &Moment,
    ) -> TaskInfo {
        let now = moment.now;
        let last_wake = tracker.last_wake(&record, now);
        let mut info = TaskInfo {
            id,
            location,
            loop_index: 0,
            state: record.state,
            age: tracker.age(&record, now),
            polls: record.polls,
            busy: tracker.busy(&record, now),
            longest_poll: tracker.longest_poll(&record, now),
            last_poll: tracker.last_poll(&record, now),
            wakes: record.wakes,
            self_wakes: record.self_wakes,
            wakes_elsewhere: record.wakes_elsewhere,
            last_wake: last_wake.map(|(by, ago)| LastWake { by, ago }),
            size: record.listing.size as usize,
            name: record.listing.name,
            waits: Vec::new(),
        };
        if record.state != TaskState::Running {
            let waits = record.waits.into_iter();
            info.waits = waits
                .map(|noted| Wait::of(noted, moment.loop_now))
                .collect();
        }
        info
    }

    /// Returns the id of the task, which its [`JoinHandle`](crate::JoinHandle::id) has as well.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Returns the name of the task, if it was [spawned with one](crate::TaskBuilder).
    pub fn name(&self) -> Option<&str> {
        self.name.as_ref().map(Text::as_str)
    }

    /// Returns where the task was spawned.
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }

    /// Returns the index of its loop in the group.
    pub fn loop_index(&self) -> usize {
        self.loop_index
    }

    /// Returns what it is doing.
    pub fn state(&self) -> TaskState {
        self.state
    }

    /// Returns how long ago it was submitted.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Returns how often it was polled, a poll that is under way included.
    pub fn polls(&self) -> u64 {
        self.polls
    }

    /// Returns how long its polls have taken, including the one that is under way so far.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// Returns how long the longest of its polls has taken; the one that is under way counts with its time so
    /// far.
    pub fn longest_poll(&self) -> Duration {
        self.longest_poll
    }

    /// Returns how long ago its last poll ended; while it runs, how long ago that poll began. `None` before
    /// the first one.
    pub fn last_poll(&self) -> Option<Duration> {
        self.last_poll
    }

    /// Returns how often it was queued again because it was woken.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Returns how often it was woken on the loop with this index of its group, or outside the group for
    /// `None`, as [`GroupMetrics::wakes`](crate::GroupMetrics::wakes) does for all tasks of a loop. Wakes by
    /// timers, sockets and the task itself are by its own loop. The counts of all loops and that of `None`
    /// add up to [`wakes`](TaskInfo::wakes); that of a loop that does not exist is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, TaskState, block_on};
    /// use futures::{SinkExt, StreamExt, channel::mpsc};
    ///
    /// let group = EventLoopGroup::builder().loops(2).track_tasks(true).build()?;
    /// let (mut jobs, mut queue) = mpsc::channel::<u32>(0);
    /// let worker = group.spawn_on(0, async move { while queue.next().await.is_some() {} });
    /// let waits = || group.tasks()[0].state() == TaskState::Waiting;
    /// while !waits() {
    ///     std::thread::yield_now();
    /// }
    /// let job = group.spawn_on(1, async move {
    ///     jobs.send(7).await.unwrap(); // wakes the worker
    ///     jobs
    /// });
    /// let jobs = block_on(job).unwrap();
    /// let info = &group.tasks()[0];
    /// assert_eq!((info.wakes_from(0), info.wakes_from(1), info.wakes_from(None)), (0, 1, 0));
    /// # drop((jobs, worker));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn wakes_from(&self, source: impl Into<Option<usize>>) -> u64 {
        let source = source.into();
        if source == Some(self.loop_index) {
            let elsewhere: u64 = self.wakes_elsewhere.iter().map(|(_, count)| count).sum();
            return self.wakes - elsewhere;
        }
        let known = |index: Option<u32>| index.map(|index| index as usize);
        let mut counts = self.wakes_elsewhere.iter();
        let found = counts.find(|(index, _)| known(*index) == source);
        found.map_or(0, |(_, count)| *count)
    }

    /// Returns how often it was woken during its own poll: by itself, as
    /// [`yield_now`](crate::yield_now()) does, or by another thread at the same time.
    pub fn self_wakes(&self) -> u64 {
        self.self_wakes
    }

    /// Returns what woke it last, and when.
    pub fn last_wake(&self) -> Option<LastWake> {
        self.last_wake
    }

    /// Returns the size of its future, in bytes, without what this crate adds to it. Before the first poll
    /// of a future that is made on its loop ([`spawn_with`](EventLoop::spawn_with)), it is that of the
    /// closure.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns what it waits for: what the timers, sockets, handles and labels of this crate that its last
    /// poll has reached wait for; at most 32 of them. Empty while it runs, and while it waits for something
    /// else; a [`label`](crate::label()) names that.
    ///
    /// A task that was woken, and is queued, still shows what it waited for. A combinator that polls only
    /// those of its futures that were woken, such as `FuturesUnordered`, hides the others.
    pub fn waits_for(&self) -> &[Wait] {
        &self.waits
    }

    /// Name and place, on one line.
    fn subject(&self) -> Subject<'_> {
        Subject(self.id, self.name(), Some(self.location))
    }
}

/// One line, whatever its name is.
impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.subject())?;
        match self.state {
            TaskState::Queued if self.polls == 0 => f.write_str("queued for its first poll")?,
            TaskState::Queued => f.write_str("queued")?,
            TaskState::Running => match self.last_poll {
                Some(since) => write!(f, "running for {}", Time(since))?,
                None => f.write_str("running")?,
            },
            TaskState::Waiting if self.waits.is_empty() => {
                f.write_str("waiting for something unknown")?
            }
            TaskState::Waiting => {
                f.write_str("waiting for ")?;
                for (index, wait) in self.waits.iter().enumerate() {
                    let before = if index > 0 { "; " } else { "" };
                    write!(f, "{before}{wait}")?;
                }
            }
        }
        write!(f, "; loop {}, age {}", self.loop_index, Time(self.age))?;
        let longest = Time(self.longest_poll);
        write!(f, ", {}", Counted(self.polls, "poll"))?;
        write!(f, " of {} (longest {longest})", Time(self.busy))?;
        if let (Some(ago), false) = (self.last_poll, self.state == TaskState::Running) {
            write!(f, ", last {} ago", Time(ago))?;
        }
        if let Some(LastWake { by, ago }) = self.last_wake {
            write!(f, ", {}", Counted(self.wakes, "wake"))?;
            if self.self_wakes > 0 {
                write!(f, " ({} by itself)", Count(self.self_wakes))?;
            }
            write!(f, ", last {} ago by {by}", Time(ago))?;
        }
        write!(f, ", {}", Counted(self.size as u64, "byte"))
    }
}

impl fmt::Debug for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskInfo")
            .field("id", &self.id)
            .field("name", &self.name())
            .field("location", &self.location)
            .field("loop_index", &self.loop_index)
            .field("state", &self.state)
            .field("polls", &self.polls)
            .field("waits_for", &self.waits)
            .finish_non_exhaustive()
    }
}

/// What a report calls a task, on one line: its id, its name, its place.
pub(crate) struct Subject<'a>(
    pub(crate) TaskId,
    pub(crate) Option<&'a str>,
    pub(crate) Option<Caller>,
);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject(id, name, location) = self;
        write!(f, "{id}")?;
        if let Some(name) = name {
            write!(f, " \"{}\"", name.escape_debug())?;
        }
        match location {
            Some(location) => write!(f, " from {location}"),
            None => Ok(()),
        }
    }
}

/// What woke a task last, and when; see [`TaskInfo::last_wake`].
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, WakeSource};
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// let task = group.spawn(async {
///     loopgroup::yield_now().await;
///     loopgroup::EventLoop::current().unwrap().tasks()[0].last_wake()
/// });
/// let wake = group.block_on(task).unwrap().unwrap();
/// assert_eq!(wake.by(), WakeSource::Itself);
/// println!("{:?} ago", wake.ago());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastWake {
    by: WakeSource,
    ago: Duration,
}

impl LastWake {
    /// Returns what woke the task.
    pub fn by(&self) -> WakeSource {
        self.by
    }

    /// Returns how long ago that was.
    pub fn ago(&self) -> Duration {
        self.ago
    }
}

impl fmt::Display for WakeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WakeSource::Itself => f.write_str("itself"),
            WakeSource::Loop(index) => write!(f, "loop {index}"),
            WakeSource::Timer => f.write_str("a timer"),
            WakeSource::Io => f.write_str("a socket"),
            WakeSource::Outside => f.write_str("another thread"),
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TaskState::Queued => "queued",
            TaskState::Running => "running",
            TaskState::Waiting => "waiting",
        })
    }
}

/// How long ago an instant was.
pub(crate) fn since(instant: Instant) -> Duration {
    sync::now().saturating_duration_since(instant)
}
