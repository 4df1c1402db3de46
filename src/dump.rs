//! What a group is doing at one moment, as text for a bug report.
//!
//! - It is taken by the thread that asks for it, from what any thread can read: no loop takes part, and none
//!   is waited for. A loop that does not get on is one that has been in one poll for [`TOO_LONG`].
//! - What a loop is in is known if its tasks are tracked; else if the watchdog has seen it.

use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

use crate::error::Caller;
use crate::event_loop::shared::Shared;
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::EndCondition;
use crate::event_loop::tracker::{Subject, Tracker, Turn};
use crate::group::handle::EventLoopGroup;
use crate::metrics::table::{count, counted, time};
use crate::noted::Text;
use crate::sync;
use crate::task_id::TaskId;
use crate::task_info::{self, TaskInfo, since};
use crate::watchdog;
use crate::watchdog::stall;

/// A loop that has been in one poll for as long does not answer.
const TOO_LONG: Duration = Duration::from_millis(100);
/// Of more places than these, a summary names the most frequent ones.
const PLACES: usize = 10;

impl EventLoopGroup {
    /// Describes what the group is doing: its loops, their queues, timers and shutdown, and its tasks if it
    /// [tracks them](crate::Builder::track_tasks). Its [`Display`](fmt::Display) is a text for a bug report.
    ///
    /// It may be called anywhere and at any time, and waits for no loop, as
    /// [`tasks`](EventLoopGroup::tasks) does. A loop that has been in one poll, closure or shutdown hook for
    /// 100 ms or longer is named as one that [does not answer](LoopDump::answered), together with what it
    /// is in.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::builder().loops(2).track_tasks(true).build()?;
    /// let task = group.task().name("session").spawn(std::future::pending::<()>());
    /// let dump = group.dump();
    /// println!("{dump}");
    /// assert_eq!((dump.loops().len(), dump.tasks().len()), (2, 1));
    /// assert!(dump.to_string().contains("\"session\""));
    /// # drop(task);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn dump(&self) -> Dump {
        let taken_at = sync::now();
        let loops = self.loops().iter().map(|one| LoopDump::of(one.shared()));
        let mut dump = Dump {
            taken_at,
            loops: loops.collect(),
            tasks: self.tasks(),
            tracked: self
                .loops()
                .iter()
                .any(|one| one.shared().tracker.is_some()),
            elapsed: Duration::ZERO,
        };
        dump.elapsed = since(taken_at);
        dump
    }
}

/// What a group was doing at one moment; see [`EventLoopGroup::dump`].
///
/// # Examples
///
/// ```
/// let group = loopgroup::EventLoopGroup::new(1)?;
/// let dump = group.dump();
/// assert!(dump.tasks().is_empty()); // the group does not track them, and the text says so
/// assert!(dump.to_string().contains("track_tasks"));
/// println!("taken in {:?}", dump.elapsed());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Dump {
    taken_at: Instant,
    elapsed: Duration,
    loops: Vec<LoopDump>,
    tasks: Vec<TaskInfo>,
    tracked: bool,
}

impl Dump {
    /// Returns the loops, in the order of their indices.
    pub fn loops(&self) -> &[LoopDump] {
        &self.loops
    }

    /// Returns the tasks, as [`EventLoopGroup::tasks`] does.
    pub fn tasks(&self) -> &[TaskInfo] {
        &self.tasks
    }

    /// Returns when the dump was begun.
    pub fn taken_at(&self) -> Instant {
        self.taken_at
    }

    /// Returns how long it took.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The most frequent places of tasks, and how many tasks are from elsewhere.
    fn places(&self) -> (Vec<(usize, Caller)>, usize) {
        let mut places: Vec<Caller> = self.tasks.iter().map(TaskInfo::location).collect();
        let key = |place: &Caller| (place.file(), place.line(), place.column());
        places.sort_by_key(key);
        let mut counts: Vec<_> = places
            .chunk_by(|one, other| key(one) == key(other))
            .map(|same| (same.len(), same[0]))
            .collect();
        counts.sort_by_key(|(tasks, place)| (usize::MAX - tasks, key(place)));
        let others = counts.iter().skip(PLACES).map(|(tasks, _)| tasks).sum();
        counts.truncate(PLACES);
        (counts, others)
    }
}

/// Text for a bug report: a line for each loop and each task, whatever their names are. The format may
/// change; programs call the methods.
impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loops = counted(self.loops.len() as u64, "loop");
        let tasks = match self.tracked {
            true => counted(self.tasks.len() as u64, "task"),
            false => "tasks not tracked".to_owned(),
        };
        write!(f, "{loops}, {tasks}, taken in {}", time(self.elapsed))?;
        for one in &self.loops {
            write!(f, "\n{one}")?;
        }
        if !self.tracked {
            return f.write_str(
                "\nTo list the tasks and what they wait for, build the group with \
                 Builder::track_tasks(true).",
            );
        }
        if self.tasks.len() > PLACES {
            f.write_str("\ntasks by place:")?;
            let (places, others) = self.places();
            for (tasks, place) in places {
                write!(f, "\n    {} from {place}", count(tasks as u64))?;
            }
            if others > 0 {
                write!(f, "\n    {} from elsewhere", count(others as u64))?;
            }
        }
        if !self.tasks.is_empty() {
            f.write_str("\ntasks:")?;
        }
        self.tasks
            .iter()
            .try_for_each(|task| write!(f, "\n    {task}"))
    }
}

/// What one loop was doing at one moment; see [`EventLoopGroup::dump`].
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, LoopState};
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// group.block_on(group.spawn(async {})).unwrap();
/// let dump = group.dump();
/// let one = &dump.loops()[0];
/// println!("{one}"); // loop 0 (loop-0-0): Started, 0 % busy, 0 queued, 0 live tasks, ...
/// assert_eq!((one.index(), one.state(), one.answered()), (0, LoopState::Started, true));
/// assert_eq!((one.pending(), one.live(), one.channels(), one.timers()), (0, 0, 0, Some(0)));
/// assert!(one.thread_name().starts_with("loop-") && one.utilization() <= 1.0);
/// assert!(one.next_deadline().is_none() && one.shutdown().is_none());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct LoopDump {
    index: usize,
    thread_name: String,
    state: LoopState,
    running: Option<Running>,
    answered: bool,
    pending: usize,
    live: usize,
    channels: usize,
    queued: Option<usize>,
    timers: Option<usize>,
    next_deadline: Option<Duration>,
    utilization: f64,
    shutdown: Option<ShutdownDump>,
}

impl LoopDump {
    pub(crate) fn of(shared: &Shared) -> LoopDump {
        let now = shared.config.clock.now();
        let running = match &shared.tracker {
            Some(tracker) => Running::of(tracker),
            None => Running::watched(shared),
        };
        let state = shared.state();
        let turn = shared.tracker.as_ref().map(|tracker| match state {
            LoopState::Terminated => Turn::default(),
            _ => tracker.turn(),
        });
        let next_deadline = turn.and_then(|turn| turn.next_deadline);
        LoopDump {
            index: shared.index,
            thread_name: shared.config.thread_names[shared.index].clone(),
            state,
            answered: running
                .as_ref()
                .is_none_or(|running| running.duration < TOO_LONG),
            running,
            pending: shared.pending(),
            live: shared.place.counters.live(),
            channels: shared.port.table.as_ref().map_or(0, |table| table.len()),
            queued: turn.map(|turn| turn.queued.iter().sum()),
            timers: turn.map(|turn| turn.timers),
            next_deadline: next_deadline.map(|at| at.saturating_duration_since(now)),
            utilization: shared.pulse.utilization(shared.pulse.tick(now)),
            shutdown: ShutdownDump::of(shared, state, now),
        }
    }

    /// Returns the index of the loop in its group.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the name of the loop's thread.
    pub fn thread_name(&self) -> &str {
        &self.thread_name
    }

    /// Returns the state of the loop.
    pub fn state(&self) -> LoopState {
        self.state
    }

    /// Says whether the loop gets on: `false` if it has been in one poll, closure or shutdown hook for 100 ms
    /// or longer. Without [`track_tasks`](crate::Builder::track_tasks) only the
    /// [watchdog](crate::Builder::watchdog) sees that; without both it is `true`.
    pub fn answered(&self) -> bool {
        self.answered
    }

    /// Returns what the loop is in, if it is in a poll and that [is known](LoopDump::answered).
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// Returns how many tasks and closures were submitted and have not begun.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Returns how many tasks have begun and not ended.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Returns how many sockets and other descriptors the loop watches.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns how many tasks and closures were in the loop's queues at the end of its last turn; `None`
    /// unless the group [tracks its tasks](crate::Builder::track_tasks).
    pub fn queued(&self) -> Option<usize> {
        self.queued
    }

    /// Returns how many timers were armed at the end of the loop's last turn; `None` unless the group
    /// [tracks its tasks](crate::Builder::track_tasks).
    pub fn timers(&self) -> Option<usize> {
        self.timers
    }

    /// Returns in how long the next timer is due, as of the end of the loop's last turn; `None` if there is
    /// none, or the group does not [track its tasks](crate::Builder::track_tasks).
    pub fn next_deadline(&self) -> Option<Duration> {
        self.next_deadline
    }

    /// Returns the busy share of the last second, as
    /// [`LoopMetrics::utilization`](crate::LoopMetrics::utilization) does.
    pub fn utilization(&self) -> f64 {
        self.utilization
    }

    /// Returns how far the shutdown of the loop is, while there is one.
    pub fn shutdown(&self) -> Option<&ShutdownDump> {
        self.shutdown.as_ref()
    }
}

impl fmt::Display for LoopDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.thread_name.escape_debug();
        let (state, busy) = (self.state, self.utilization * 100.0);
        write!(
            f,
            "loop {} ({name}): {state:?}, {busy:.0} % busy",
            self.index
        )?;
        write!(f, ", {} pending", count(self.pending as u64))?;
        write!(f, ", {}", counted(self.live as u64, "live task"))?;
        write!(f, ", {}", counted(self.channels as u64, "channel"))?;
        if let Some(timers) = self.timers {
            write!(f, ", {}", counted(timers as u64, "timer"))?;
        }
        if let Some(left) = self.next_deadline {
            write!(f, " (next in {})", time(left))?;
        }
        if let Some(shutdown) = &self.shutdown {
            write!(f, "; {shutdown}")?;
        }
        match &self.running {
            Some(running) if !self.answered => write!(f, "; DOES NOT ANSWER: in {running}"),
            Some(running) => write!(f, "; in {running}"),
            None => Ok(()),
        }
    }
}

/// What a loop is in: a poll of a task, a closure, a shutdown hook, or a poll of the main future of
/// [`run`](crate::run()) or [`ManualLoop::block_on`](crate::ManualLoop::block_on).
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::{sync::mpsc, time::Duration};
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// let (entered, inside) = mpsc::channel();
/// let (release, held) = mpsc::channel::<()>();
/// let task = group.task().name("stuck").spawn(async move {
///     entered.send(()).unwrap();
///     held.recv().unwrap_or(()) // blocks the loop
/// });
/// inside.recv().unwrap();
/// std::thread::sleep(Duration::from_millis(110));
/// let dump = group.dump();
/// let one = &dump.loops()[0];
/// let running = one.running().unwrap();
/// assert!(!one.answered() && running.duration() >= Duration::from_millis(100));
/// assert_eq!((running.task_id(), running.name()), (Some(task.id()), Some("stuck")));
/// println!("{running}"); // task 17 "stuck" from src/main.rs:9:40 for 110 ms
/// # assert_eq!(running.location().unwrap().file(), file!());
/// # drop(release);
/// # group.block_on(task).unwrap();
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Running {
    subject: Subject,
    name: Option<String>,
    location: Option<Caller>,
    duration: Duration,
}

impl Running {
    /// What a loop is in whose tasks are tracked.
    fn of(tracker: &Tracker) -> Option<Running> {
        let (current, began) = tracker.current()?;
        Some(Running {
            subject: current.subject,
            name: current.name.as_ref().map(Text::as_str).map(str::to_owned),
            location: current.site.map(|site| site.location()),
            duration: since(began),
        })
    }

    /// What the watchdog has seen a loop in.
    fn watched(shared: &Shared) -> Option<Running> {
        let (polled, seen) = watchdog::sighting(shared.beacon.as_ref()?)?;
        Some(Running {
            subject: match polled.subject {
                stall::Subject::Task(id) => Subject::Task(id),
                stall::Subject::MainFuture => Subject::MainFuture,
                stall::Subject::ShutdownHook => Subject::ShutdownHook,
            },
            name: polled.name,
            location: polled.location,
            duration: since(seen),
        })
    }

    /// Returns the id of the task; a closure has one as well. `None` for a main future and a shutdown hook.
    pub fn task_id(&self) -> Option<TaskId> {
        match self.subject {
            Subject::Task(id) | Subject::Closure(id) => Some(id),
            Subject::MainFuture | Subject::ShutdownHook => None,
        }
    }

    /// Returns the name of the task, if it was [spawned with one](crate::TaskBuilder).
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns where the task was spawned, the closure submitted or the hook added.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }

    /// Returns for how long the loop has been in it; from when the watchdog first saw that, if only the
    /// watchdog did.
    pub fn duration(&self) -> Duration {
        self.duration
    }
}

/// On one line, whatever its name is.
impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            Subject::Task(id) => {
                write!(f, "{}", task_info::Subject(id, self.name(), self.location))?
            }
            Subject::Closure(_) => f.write_str("a closure")?,
            Subject::MainFuture => f.write_str("the main future")?,
            Subject::ShutdownHook => f.write_str("a shutdown hook")?,
        }
        if let (Some(place), false) = (self.location, matches!(self.subject, Subject::Task(_))) {
            write!(f, " from {place}")?;
        }
        write!(f, " for {}", time(self.duration))
    }
}

/// How far the shutdown of a loop is; see [`LoopDump::shutdown`].
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// let task = group.spawn(std::future::pending::<()>());
/// let end = group.drain(Duration::from_secs(3600)); // waits for the task
/// let dump = group.dump();
/// let shutdown = dump.loops()[0].shutdown().unwrap();
/// println!("{shutdown}"); // shutting down for 20 µs: waits until its tasks have ended, for 60 min 00 s at most
/// assert!(shutdown.left() > Some(Duration::from_secs(3500)));
/// assert_eq!(shutdown.hooks(), 0);
/// assert!(shutdown.age() < Duration::from_secs(3600));
/// # group.shutdown_now();
/// # end.wait();
/// # drop(task);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct ShutdownDump {
    age: Duration,
    left: Option<Duration>,
    hooks: usize,
    until: EndCondition,
}

impl ShutdownDump {
    fn of(shared: &Shared, state: LoopState, now: Instant) -> Option<ShutdownDump> {
        if !state.is_shutting_down() || state.is_terminated() {
            return None;
        }
        let guard = shared.inbox.lock();
        let terms = guard.gate().terms()?;
        let hooks = guard.gate().hooks.len();
        drop(guard);
        let deadline = terms.deadline;
        Some(ShutdownDump {
            age: now.saturating_duration_since(terms.requested_at),
            left: deadline.map(|deadline| deadline.saturating_duration_since(now)),
            hooks,
            until: terms.until,
        })
    }

    /// Returns how long ago the shutdown was requested.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Returns the time until its deadline, if it has one.
    pub fn left(&self) -> Option<Duration> {
        self.left
    }

    /// Returns how many shutdown hooks have not run yet.
    pub fn hooks(&self) -> usize {
        self.hooks
    }
}

impl fmt::Display for ShutdownDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shutting down for {}: ", time(self.age))?;
        match self.until {
            EndCondition::Quiet(quiet) => {
                write!(f, "waits until nothing happens for {}", time(quiet))?
            }
            EndCondition::Drained(_) => f.write_str("waits until its tasks have ended")?,
            EndCondition::Now => f.write_str("ends now")?,
        }
        if let (Some(left), false) = (self.left, self.until == EndCondition::Now) {
            write!(f, ", for {} at most", time(left))?;
        }
        match self.hooks {
            0 => Ok(()),
            hooks => write!(f, ", {} to run", counted(hooks as u64, "hook")),
        }
    }
}
