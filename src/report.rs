//! The report of a shutdown: counts that add up.
//!
//! - The counts cover the whole life of a loop: `accepted = completed + panicked + cancelled`.
//! - `running` marks some of these and is not part of the sum: jobs of a blocking group that overran
//!   the timeout. The group waits for them to end, so each has also completed or panicked.
//! - A group's counts are the sums over its loops; a success hides no failure.
//! - Some counts are parts of others: `aborted` and `unscheduled` of `cancelled`, `interrupted` of
//!   `completed`. An end is clean if what is not such a part, and must not be, is zero.
//! - Only `rejected` keeps counting after the end: a submission that is rejected later is still
//!   an attempt, and `attempted = accepted + rejected` stays true whenever it is read.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::left_tasks::LeftTasks;
use crate::sync::{Arc, AtomicU64, Ordering};

/// Why a loop ended.
///
/// # Examples
///
/// ```
/// use loopgroup::{EndCause, EventLoopGroup};
/// use std::time::Duration;
///
/// let cause = |wait: Duration, works: bool| {
///     let group = EventLoopGroup::new(1)?;
///     if works {
///         group.spawn(std::future::pending::<()>());
///     }
///     group.start()?;
///     std::io::Result::Ok(group.drain(wait).wait().loops()[0].cause())
/// };
/// assert_eq!(cause(Duration::from_secs(5), false)?, EndCause::Drained);
/// assert_eq!(cause(Duration::from_millis(1), true)?, EndCause::Timeout);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndCause {
    /// There was no activity for the whole quiet period.
    Quiet,
    /// No work was left and no handle was left that could submit more; or, at a graceful shutdown,
    /// the loop was never used.
    Idle,
    /// `drain`: no task was live or queued any longer.
    Drained,
    /// The timeout of the shutdown passed first.
    Timeout,
    /// `shutdown_now`.
    Now,
    /// The loop could not continue; [`LoopReport::error`] says why.
    Failed,
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndCause::Quiet => "quiet",
            EndCause::Idle => "idle",
            EndCause::Drained => "drained",
            EndCause::Timeout => "timeout",
            EndCause::Now => "now",
            EndCause::Failed => "failed",
        })
    }
}

/// What one loop did during its life, and how it ended.
///
/// # Examples
///
/// ```
/// use loopgroup::{EndCause, EventLoopGroup};
///
/// let group = EventLoopGroup::new(2)?;
/// group.block_on(group.spawn_on(0, async {})).unwrap();
/// let report = group.shutdown_now().wait();
/// let [used, unused] = report.loops() else { panic!("two loops") };
/// assert!(used.started() && used.completed() == 1);
/// assert!(!unused.started(), "no thread is started only to be stopped");
/// assert_eq!(used.cause(), EndCause::Now);
/// assert!(used.index() == 0 && used.is_clean() && used.error().is_none());
/// assert_eq!((used.accepted(), used.panicked(), used.cancelled(), used.rejected()), (1, 0, 0, 0));
/// assert_eq!((used.hooks_run(), used.hooks_panicked(), used.channels_closed()), (0, 0, 0));
/// println!("it took {:?}", used.elapsed());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct LoopReport {
    pub(crate) index: usize,
    pub(crate) started: bool,
    pub(crate) paused: bool,
    pub(crate) cause: EndCause,
    pub(crate) error: Option<Arc<io::Error>>,
    pub(crate) requested_at: Instant,
    pub(crate) ended_at: Instant,
    pub(crate) figures: Figures,
    /// Shared with the loop, so that rejections after the end are counted too.
    pub(crate) rejected: Arc<AtomicU64>,
    pub(crate) left: Arc<[LeftTasks]>,
}

/// The counts of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) accepted: u64,
    pub(crate) completed: u64,
    pub(crate) panicked: u64,
    pub(crate) cancelled: u64,
    /// Jobs that were running when the timeout passed; always 0 for a loop.
    pub(crate) running: u64,
    pub(crate) hooks_run: u64,
    pub(crate) hooks_panicked: u64,
    pub(crate) channels_closed: u64,
    /// Part of `cancelled`: by their handles.
    pub(crate) aborted: u64,
    /// Part of `cancelled`: scheduled closures whose schedule a shutdown has ended.
    pub(crate) unscheduled: u64,
    /// Part of `completed`: after a channel was closed under them.
    pub(crate) interrupted: u64,
    /// Part of `channels_closed`: while a task waited for them.
    pub(crate) channels_interrupted: u64,
}

impl LoopReport {
    /// Returns the loop's index in its group.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns whether the loop ever had a thread.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let report = group.shutdown_now().wait();
    /// assert!(!report.loops()[0].started()); // never used: no thread was started only to be stopped
    /// # std::io::Result::Ok(())
    /// ```
    pub fn started(&self) -> bool {
        self.started
    }

    /// Returns whether the loop was [paused](crate::EventLoop::pause) when it ended.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// group.loops()[1].pause();
    /// let report = group.shutdown_now().wait();
    /// assert!(report.loops()[1].paused() && !report.loops()[0].paused());
    /// assert!(report.is_clean()); // a pause ends nothing
    /// # std::io::Result::Ok(())
    /// ```
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// Returns why the loop ended.
    pub fn cause(&self) -> EndCause {
        self.cause
    }

    /// Returns the error that ended the loop, if its cause is [`EndCause::Failed`].
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EndCause, EventLoopGroup};
    /// use std::io::{Error, ErrorKind};
    ///
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .thread_factory(|_| Err(Error::from(ErrorKind::OutOfMemory)))
    ///     .build()?;
    /// group.next().add_shutdown_hook(|| println!("needs a thread")).unwrap();
    /// let report = group.shutdown_now().wait();
    /// let one = &report.loops()[0];
    /// assert_eq!(one.cause(), EndCause::Failed);
    /// assert_eq!(one.error().unwrap().kind(), ErrorKind::OutOfMemory);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_deref()
    }

    /// Returns the time from the first request for shutdown to the end.
    pub fn elapsed(&self) -> Duration {
        self.ended_at.saturating_duration_since(self.requested_at)
    }

    /// Returns how many tasks the loop accepted: futures, closures, scheduled closures and visits to
    /// [`LoopBound`](crate::LoopBound) values alike.
    pub fn accepted(&self) -> u64 {
        self.figures.accepted
    }

    /// Returns how many tasks ran to completion.
    pub fn completed(&self) -> u64 {
        self.figures.completed
    }

    /// Returns how many tasks panicked.
    pub fn panicked(&self) -> u64 {
        self.figures.panicked
    }

    /// Returns how many tasks were accepted and dropped before they completed.
    pub fn cancelled(&self) -> u64 {
        self.figures.cancelled
    }

    /// Returns how many jobs of a [`BlockingGroup`](crate::blocking::BlockingGroup) were still
    /// running when the timeout of its shutdown passed; always 0 for an event loop.
    ///
    /// A job that has begun cannot be stopped, and the group waits for it to end: it is counted
    /// here, and again when it ends, as completed or panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EndCause, blocking::BlockingGroup};
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let group = BlockingGroup::new(1)?;
    /// let (begun, wait) = mpsc::channel();
    /// let (release, blocked) = mpsc::channel::<()>();
    /// group.spawn(move || {
    ///     begun.send(()).unwrap();
    ///     blocked.recv()
    /// });
    /// wait.recv().unwrap();
    /// let queued = group.spawn(|| ());
    /// let end = group.drain(Duration::from_millis(50));
    /// assert!(loopgroup::block_on(queued).unwrap_err().is_cancelled()); // at the timeout
    /// release.send(()).unwrap();
    /// let report = end.wait();
    /// let one = &report.loops()[0];
    /// assert_eq!((one.cause(), one.running()), (EndCause::Timeout, 1));
    /// assert_eq!((one.completed(), one.cancelled(), one.is_clean()), (1, 1, false));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn running(&self) -> u64 {
        self.figures.running
    }

    /// Returns how many submissions were rejected, up to the moment of this call.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Returns how many shutdown hooks ran, those that panicked included.
    pub fn hooks_run(&self) -> u64 {
        self.figures.hooks_run
    }

    /// Returns how many shutdown hooks panicked.
    pub fn hooks_panicked(&self) -> u64 {
        self.figures.hooks_panicked
    }

    /// Returns how many channels were still registered when the loop closed them.
    pub fn channels_closed(&self) -> u64 {
        self.figures.channels_closed
    }

    /// Returns how many of the [cancelled](LoopReport::cancelled) tasks were cancelled by their handles:
    /// [`JoinHandle::abort`](crate::JoinHandle::abort), `cancel`, a dropped `JoinSet`,
    /// [`Scheduled::cancel`](crate::Scheduled::cancel).
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let task = group.spawn(std::future::pending::<()>());
    /// assert_eq!(group.block_on(task.cancel()), None);
    /// let report = group.shutdown_now().wait();
    /// assert_eq!((report.cancelled(), report.aborted()), (1, 1));
    /// assert!(report.is_clean()); // the program wanted it so
    /// # std::io::Result::Ok(())
    /// ```
    pub fn aborted(&self) -> u64 {
        self.figures.aborted
    }

    /// Returns how many of the [cancelled](LoopReport::cancelled) tasks were scheduled closures whose
    /// schedule the shutdown has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::time::Duration;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let (period, ev) = (Duration::from_secs(1), group.next());
    /// drop(ev.schedule_at_fixed_rate(period, period, || println!("heartbeat"))?);
    /// let report = group.drain(Duration::from_secs(5)).wait();
    /// assert_eq!((report.cancelled(), report.unscheduled()), (1, 1));
    /// assert!(report.is_clean()); // a heartbeat ends with its service
    /// # std::io::Result::Ok(())
    /// ```
    pub fn unscheduled(&self) -> u64 {
        self.figures.unscheduled
    }

    /// Returns how many of the [completed](LoopReport::completed) tasks ended after one of their operations
    /// had failed because the loop had closed the channel.
    pub fn interrupted(&self) -> u64 {
        self.figures.interrupted
    }

    /// Returns the tasks that the end of the loop left no choice: those it cancelled, and those that it
    /// [interrupted](LoopReport::interrupted). Empty if the end is clean.
    pub fn left(&self) -> &[LeftTasks] {
        &self.left
    }

    /// Returns whether nothing was ended by force.
    ///
    /// All accepted tasks have completed, except those that their handles [aborted](LoopReport::aborted)
    /// and closures whose [schedule](LoopReport::unscheduled) has ended; no channel was closed while a
    /// task waited for it; no task and no hook panicked; no job overran the timeout; the loop did not
    /// fail. Rejections do not count: a rejected submission was handed back or reported as rejected.
    pub fn is_clean(&self) -> bool {
        let figures = &self.figures;
        let wanted = figures.aborted + figures.unscheduled;
        self.error.is_none()
            && self.cause != EndCause::Failed
            && figures.panicked == 0
            && figures.cancelled <= wanted
            && figures.interrupted == 0
            && figures.channels_interrupted == 0
            && figures.running == 0
            && figures.hooks_panicked == 0
    }
}

/// What a group did during its life, and how it ended: the result of a
/// [`TerminationFuture`](crate::TerminationFuture).
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::new(2)?;
/// for _ in 0..10 {
///     group.spawn(async {});
/// }
/// let report = group.drain(Duration::from_secs(5)).wait();
/// assert_eq!(report.completed(), 10);
/// assert!(report.is_clean());
/// println!("{report}"); // one line; more if something was ended by force
/// assert_eq!(report.accepted(), report.completed() + report.panicked() + report.cancelled());
/// assert_eq!((report.rejected(), report.channels_closed()), (0, 0));
/// assert_eq!((report.hooks_run(), report.hooks_panicked()), (0, 0));
/// assert!(report.loops().iter().all(|one| one.elapsed() <= report.elapsed()));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct TerminationReport {
    loops: Arc<[LoopReport]>,
    left: Arc<[LeftTasks]>,
    elapsed: Duration,
    /// Submissions rejected by the group itself, before any loop was chosen.
    strays: Arc<AtomicU64>,
}

impl TerminationReport {
    pub(crate) fn new(loops: Vec<LoopReport>, strays: Arc<AtomicU64>) -> TerminationReport {
        let requested = loops.iter().map(|one| one.requested_at).min();
        let ended = loops.iter().map(|one| one.ended_at).max();
        let elapsed = match (requested, ended) {
            (Some(requested), Some(ended)) => ended.saturating_duration_since(requested),
            _ => Duration::ZERO,
        };
        let left = LeftTasks::merged(loops.iter().map(LoopReport::left));
        TerminationReport {
            left: left.into(),
            loops: loops.into(),
            elapsed,
            strays,
        }
    }

    /// Returns the reports of the individual loops, in order.
    pub fn loops(&self) -> &[LoopReport] {
        &self.loops
    }

    /// Returns the time from the first request to the end of the last loop.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns whether every loop is [clean](LoopReport::is_clean).
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// group.spawn(std::future::pending::<()>());
    /// assert!(!group.shutdown_now().wait().is_clean()); // a task was cancelled
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_clean(&self) -> bool {
        self.loops.iter().all(LoopReport::is_clean)
    }

    /// Returns how many tasks were accepted.
    pub fn accepted(&self) -> u64 {
        self.sum(LoopReport::accepted)
    }

    /// Returns how many tasks ran to completion.
    pub fn completed(&self) -> u64 {
        self.sum(LoopReport::completed)
    }

    /// Returns how many tasks panicked.
    pub fn panicked(&self) -> u64 {
        self.sum(LoopReport::panicked)
    }

    /// Returns how many tasks were accepted and dropped before they completed.
    pub fn cancelled(&self) -> u64 {
        self.sum(LoopReport::cancelled)
    }

    /// Returns how many of the cancelled tasks were [cancelled by their handles](LoopReport::aborted).
    pub fn aborted(&self) -> u64 {
        self.sum(LoopReport::aborted)
    }

    /// Returns how many of the cancelled tasks were [scheduled closures](LoopReport::unscheduled).
    pub fn unscheduled(&self) -> u64 {
        self.sum(LoopReport::unscheduled)
    }

    /// Returns how many of the completed tasks were [interrupted](LoopReport::interrupted).
    pub fn interrupted(&self) -> u64 {
        self.sum(LoopReport::interrupted)
    }

    /// Returns the tasks that were ended by force, of all loops, the largest groups first; empty if there
    /// were none.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// for _ in 0..4 {
    ///     group.spawn(std::future::pending::<()>());
    /// }
    /// let report = group.shutdown_now().wait();
    /// assert_eq!(report.left().len(), 1); // all from one place
    /// assert_eq!(report.left()[0].count(), 4);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn left(&self) -> &[LeftTasks] {
        &self.left
    }

    /// Returns how many jobs of a blocking group [overran the timeout](LoopReport::running).
    pub fn running(&self) -> u64 {
        self.sum(LoopReport::running)
    }

    /// Returns how many submissions were rejected, up to the moment of this call.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let report = group.shutdown_now().wait();
    /// drop(group.spawn(async {})); // too late
    /// assert_eq!(report.rejected(), 1); // still counted
    /// assert!(report.is_clean());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn rejected(&self) -> u64 {
        self.sum(LoopReport::rejected) + self.strays.load(Ordering::Relaxed)
    }

    /// Returns how many shutdown hooks ran, those that panicked included.
    pub fn hooks_run(&self) -> u64 {
        self.sum(LoopReport::hooks_run)
    }

    /// Returns how many shutdown hooks panicked.
    pub fn hooks_panicked(&self) -> u64 {
        self.sum(LoopReport::hooks_panicked)
    }

    /// Returns how many channels were still registered when their loops closed them.
    pub fn channels_closed(&self) -> u64 {
        self.sum(LoopReport::channels_closed)
    }

    fn sum(&self, figure: impl Fn(&LoopReport) -> u64) -> u64 {
        self.loops.iter().map(figure).sum()
    }
}

impl fmt::Display for LoopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loop {}: ended ({}) after {:?}",
            self.index,
            self.cause,
            self.elapsed()
        )?;
        if let Some(error) = &self.error {
            write!(f, ", {error}")?;
        }
        if self.paused {
            f.write_str(", paused")?;
        }
        if !self.started {
            return f.write_str(", never started");
        }
        write!(
            f,
            ", {} completed, {} panicked, {} cancelled, {} rejected, {} hooks run",
            self.completed(),
            self.panicked(),
            self.cancelled(),
            self.rejected(),
            self.hooks_run()
        )?;
        for (count, what) in [
            (
                self.interrupted(),
                "interrupted by the close of their channels",
            ),
            (self.aborted(), "of the cancelled aborted by their handles"),
            (self.unscheduled(), "of the cancelled unscheduled"),
            (self.running(), "overran the timeout"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for TerminationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return self.fmt_clean(f);
        }
        write!(
            f,
            "terminated after {:?}, not cleanly: {} accepted = {} completed + {} panicked + {} cancelled; \
             {} rejected",
            self.elapsed,
            self.accepted(),
            self.completed(),
            self.panicked(),
            self.cancelled(),
            self.rejected()
        )?;
        if self.running() > 0 {
            write!(f, "; {} overran the timeout", self.running())?;
        }
        for one in &*self.loops {
            write!(f, "\n  {one}")?;
        }
        if !self.left.is_empty() {
            f.write_str("\n  ended by force:")?;
        }
        for tasks in &*self.left {
            write!(f, "\n    {tasks}")?;
        }
        Ok(())
    }
}

impl TerminationReport {
    /// One line, with what is not zero.
    fn fmt_clean(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let completed = self.completed();
        let tasks = if completed == 1 { "task" } else { "tasks" };
        write!(
            f,
            "terminated cleanly after {:?}: {completed} {tasks} completed",
            self.elapsed
        )?;
        for (count, what) in [
            (self.aborted(), "aborted"),
            (self.unscheduled(), "unscheduled"),
            (self.rejected(), "rejected"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        match self.hooks_run() {
            0 => {}
            1 => f.write_str(", 1 hook run")?,
            hooks => write!(f, ", {hooks} hooks run")?,
        }
        match self.loops.iter().filter(|one| one.paused).count() {
            0 => Ok(()),
            1 => f.write_str(", 1 loop paused"),
            loops => write!(f, ", {loops} loops paused"),
        }
    }
}
