//! The tasks of one loop, for any thread to list; only in groups that
//! [track their tasks](crate::Builder::track_tasks).
//!
//! - A record exists from the submission of a task until its future is dropped: by the last poll, by a
//!   cancellation, or because the task was refused.
//! - One lock, which is taken for one record at a time and never while user code runs. So a reader gets
//!   through while the loop is stuck in a poll. Inside of the inbox' lock it may be taken; inside of it no
//!   lock is.
//! - A reader copies [`CHUNK`] records at a time, in the order of the ids, and releases the lock in between:
//!   it holds the loop up for some tens of microseconds. A task that is there from the beginning to the end
//!   of the reading is read once.
//! - Records are in a tree and not in a table that grows: the lock is never held while one is moved that has
//!   become too small.
//! - Times are those of the system's clock, also if the loop's clock is virtual; in nanoseconds since the
//!   creation of the loop.
//!
//! ```text
//!   enter ──▶ Queued ──begin──▶ Running ──end──▶ Waiting ──woken──▶ Queued
//!                │                │ └─woken in its poll, end──▶ Queued
//!                └──remove────────┴──────────────── remove (from any state)
//! ```

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use crate::event_loop::waits::Lengths;
use crate::noted::{Noted, Text};
use crate::site::Site;
use crate::sync::{self, plain};
use crate::task_id::TaskId;

/// So many records are copied under one lock.
const CHUNK: usize = 256;

/// What a task is doing; see [`TaskInfo::state`](crate::TaskInfo::state).
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, TaskState};
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// let task = group.spawn(async { loopgroup::EventLoop::current().unwrap().tasks()[0].state() });
/// assert_eq!(group.block_on(task).unwrap(), TaskState::Running);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// It is in a queue of its loop, for its first poll or because it was woken.
    Queued,
    /// Its loop polls it, or drops it.
    Running,
    /// It has returned from a poll and was not woken since.
    Waiting,
}

/// What woke a task; see [`LastWake`](crate::LastWake).
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoop, EventLoopGroup, WakeSource, time::sleep};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// let task = group.spawn(async {
///     sleep(Duration::from_millis(1)).await;
///     EventLoop::current().unwrap().tasks()[0].last_wake().map(|wake| wake.by())
/// });
/// assert_eq!(group.block_on(task).unwrap(), Some(WakeSource::Timer));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WakeSource {
    /// The task itself, during its poll. (A wake by another thread during the poll cannot be told apart.)
    Itself,
    /// Another task or a closure on the loop with this index of the group.
    Loop(usize),
    /// A timer.
    Timer,
    /// A socket that became ready.
    Io,
    /// A thread that is no loop of the group.
    Outside,
}

/// The records of a loop.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// The index of the loop in its group.
    index: usize,
    zero: Instant,
    table: plain::Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    // Boxed: a node of the tree has room for eleven, and is half full.
    records: BTreeMap<TaskId, Box<Record>>,
    current: Option<Current>,
    turn: Turn,
}

/// What is known of a task.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) listing: Listing,
    pub(crate) state: TaskState,
    /// It was woken during the poll that is under way.
    woken: bool,
    /// It was itself that woke it before the poll that is under way.
    by_itself: bool,
    /// What woke it last.
    woken_by: Option<WakeSource>,
    /// All times are in nanoseconds since `Tracker::zero`.
    spawned: u64,
    woken_at: u64,
    /// When its last poll ended, or the one under way began.
    polled_at: u64,
    pub(crate) polls: u64,
    busy: u64,
    longest_poll: u64,
    pub(crate) wakes: u64,
    pub(crate) self_wakes: u64,
    /// Which of the wakes were by other loops of the group, by their indices, and by threads that are no loop
    /// of it (`None`). The others were by the task's own loop, as all wakes of most tasks are.
    pub(crate) wakes_elsewhere: Box<[(Option<u32>, u64)]>,
    pub(crate) waits: Vec<Noted>,
}

/// What is known of a task before it is queued.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) name: Option<Text>,
    pub(crate) site: Site,
    /// In bytes.
    pub(crate) size: u32,
}

impl Listing {
    pub(crate) fn new(site: Site, name: Option<Text>, size: usize) -> Listing {
        Listing {
            name,
            site,
            size: u32::try_from(size).unwrap_or(u32::MAX),
        }
    }
}

/// What the loop is in.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) subject: Subject,
    /// Where it comes from. Not looked up in the record, which a task that has just ended has no more.
    pub(crate) site: Option<Site>,
    pub(crate) name: Option<Text>,
    since: u64,
}

/// A poll, or what is treated as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Task(TaskId),
    Closure(TaskId),
    MainFuture,
    ShutdownHook,
}

/// What the loop alone knows, as of the end of its last turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) queued: Lengths,
    pub(crate) timers: usize,
    pub(crate) next_deadline: Option<Instant>,
}

impl Tracker {
    pub(crate) fn new(index: usize) -> Tracker {
        Tracker {
            index,
            zero: sync::now(),
            table: plain::Mutex::new(Table::default()),
        }
    }

    /// Adds a task, which is about to be queued.
    pub(crate) fn enter(&self, id: TaskId, listing: Listing) {
        let spawned = self.now();
        let record = Box::new(Record {
            listing,
            state: TaskState::Queued,
            woken: false,
            by_itself: false,
            woken_by: None,
            spawned,
            woken_at: 0,
            polled_at: 0,
            polls: 0,
            busy: 0,
            longest_poll: 0,
            wakes: 0,
            self_wakes: 0,
            wakes_elsewhere: Box::default(),
            waits: Vec::new(),
        });
        let before = self.table.lock().records.insert(id, record);
        debug_assert!(before.is_none(), "a task is entered once");
    }

    /// Removes a task that has ended; does nothing if it is not there.
    pub(crate) fn remove(&self, id: TaskId) {
        // Freed with the lock released.
        let removed = self.table.lock().records.remove(&id);
        drop(removed);
    }

    /// Removes all tasks: the loop was dropped without its end.
    pub(crate) fn clear(&self) {
        let records = std::mem::take(&mut self.table.lock().records);
        drop(records);
    }

    /// Notes that a task is about to be queued because it was woken. One that is polled has woken itself.
    pub(crate) fn woken(&self, id: TaskId, by: WakeSource) {
        let now = self.now();
        let elsewhere = match by {
            WakeSource::Loop(index) if index != self.index => Some(u32::try_from(index).ok()),
            WakeSource::Outside => Some(None),
            _ => None,
        };
        self.edit(id, |record| {
            record.wakes += 1;
            record.woken_at = now;
            if let Some(source) = elsewhere {
                record.woken_elsewhere(source);
            }
            if record.state == TaskState::Running {
                record.woken = true;
                record.self_wakes += 1;
                record.woken_by = Some(WakeSource::Itself);
            } else {
                record.state = TaskState::Queued;
                record.woken_by = Some(by);
            }
        });
    }

    /// Corrects the size of the future of a task, which was not known when it was spawned.
    pub(crate) fn set_size(&self, id: TaskId, size: usize) {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.edit(id, |record| record.listing.size = size);
    }

    /// Begins a poll, or what is treated as one.
    pub(crate) fn begin(&self, subject: Subject, site: Option<Site>, now: Instant) {
        let since = self.nanos(now);
        let mut current = Current {
            subject,
            site,
            name: None,
            since,
        };
        let mut table = self.table.lock();
        let record = match subject {
            Subject::Task(id) => table.records.get_mut(&id),
            _ => None,
        };
        if let Some(record) = record {
            record.state = TaskState::Running;
            record.woken = false;
            record.by_itself = record.woken_by == Some(WakeSource::Itself);
            record.polls += 1;
            record.polled_at = since;
            current.site = Some(record.listing.site);
            current.name.clone_from(&record.listing.name);
        }
        table.current = Some(current);
    }

    /// Ends a poll; empties `waits`, which is what its task waits for. `reached` says whether the poll has
    /// reached any leaf.
    pub(crate) fn end(&self, waits: &mut Vec<Noted>, reached: bool, now: Instant) {
        let now = self.nanos(now);
        let mut table = self.table.lock();
        let record = match table.current.take().map(|current| current.subject) {
            Some(Subject::Task(id)) => table.records.get_mut(&id),
            _ => None,
        };
        // It has none if it has ended.
        if let Some(record) = record {
            let time = now.saturating_sub(record.polled_at);
            record.busy += time;
            record.longest_poll = record.longest_poll.max(time);
            record.polled_at = now;
            record.state = match record.woken {
                true => TaskState::Queued,
                false => TaskState::Waiting,
            };
            // A combinator that polls only what was woken, such as `FuturesUnordered`, wakes itself once more
            // when it has polled all of it, and then polls nothing.
            if reached || !record.by_itself {
                record.waits.clear();
                // Exactly: most tasks wait for one thing, and a vector would begin with room for four.
                record.waits.reserve_exact(waits.len());
                record.waits.append(waits);
            }
        }
        drop(table);
        waits.clear();
    }

    /// Publishes what the loop alone knows.
    pub(crate) fn publish(&self, turn: Turn) {
        self.table.lock().turn = turn;
    }

    /// What the loop is in, and since when.
    pub(crate) fn current(&self) -> Option<(Current, Instant)> {
        let current = self.table.lock().current.clone()?;
        let since = self.zero + Duration::from_nanos(current.since);
        Some((current, since))
    }

    pub(crate) fn turn(&self) -> Turn {
        self.table.lock().turn
    }

    /// How many tasks there are.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().records.len()
    }

    /// The record of a task.
    #[cfg(test)]
    fn find(&self, id: TaskId) -> Option<Record> {
        self.table
            .lock()
            .records
            .get(&id)
            .map(|one| (**one).clone())
    }

    /// Copies the records, a chunk at a time; calls `add` with each, with no lock held.
    pub(crate) fn for_each(&self, mut add: impl FnMut(TaskId, Record)) {
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut after = Bound::Unbounded;
        loop {
            let table = self.table.lock();
            let records = table.records.range((after, Bound::Unbounded));
            chunk.extend(records.take(CHUNK).map(|(&id, one)| (id, (**one).clone())));
            drop(table);
            let Some((last, _)) = chunk.last() else {
                return;
            };
            after = Bound::Excluded(*last);
            chunk.drain(..).for_each(|(id, record)| add(id, record));
        }
    }

    fn edit(&self, id: TaskId, edit: impl FnOnce(&mut Record)) {
        if let Some(record) = self.table.lock().records.get_mut(&id) {
            edit(record);
        }
    }

    fn now(&self) -> u64 {
        self.nanos(sync::now())
    }

    fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.zero);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How long ago a moment of a record was.
    fn ago(&self, moment: u64, now: Instant) -> Duration {
        Duration::from_nanos(self.nanos(now).saturating_sub(moment))
    }

    /// How old a task is.
    pub(crate) fn age(&self, record: &Record, now: Instant) -> Duration {
        self.ago(record.spawned, now)
    }

    /// How long ago its last poll ended, or the one under way began.
    pub(crate) fn last_poll(&self, record: &Record, now: Instant) -> Option<Duration> {
        (record.polls > 0).then(|| self.ago(record.polled_at, now))
    }

    /// How long its polls have taken, including the one under way.
    pub(crate) fn busy(&self, record: &Record, now: Instant) -> Duration {
        Duration::from_nanos(record.busy) + self.under_way(record, now)
    }

    /// How long the longest of its polls has taken, including the one under way.
    pub(crate) fn longest_poll(&self, record: &Record, now: Instant) -> Duration {
        Duration::from_nanos(record.longest_poll).max(self.under_way(record, now))
    }

    /// How long the poll has taken that is under way.
    fn under_way(&self, record: &Record, now: Instant) -> Duration {
        match record.state {
            TaskState::Running => self.ago(record.polled_at, now),
            TaskState::Queued | TaskState::Waiting => Duration::ZERO,
        }
    }

    /// What woke it last, and how long ago.
    pub(crate) fn last_wake(
        &self,
        record: &Record,
        now: Instant,
    ) -> Option<(WakeSource, Duration)> {
        let by = record.woken_by?;
        Some((by, self.ago(record.woken_at, now)))
    }
}

impl Record {
    /// Counts a wake that was not by the task's own loop.
    fn woken_elsewhere(&mut self, source: Option<u32>) {
        let mut known = self.wakes_elsewhere.iter_mut();
        if let Some((_, count)) = known.find(|(known, _)| *known == source) {
            *count += 1;
            return;
        }
        // Exactly as long as it has to be: there are few sources, and most tasks never get a second one.
        let counts = self.wakes_elsewhere.iter().copied();
        self.wakes_elsewhere = counts.chain([(source, 1)]).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Listing {
        Listing::new(Site::numbered(u32::MAX).unwrap(), None, 8)
    }

    fn ids(tracker: &Tracker) -> Vec<TaskId> {
        let mut ids = Vec::new();
        tracker.for_each(|id, _| ids.push(id));
        ids
    }

    #[test]
    fn a_task_is_queued_runs_waits_and_is_queued_again() {
        let tracker = Tracker::new(0);
        let id = TaskId::next();
        let state = || tracker.find(id).unwrap().state;
        tracker.enter(id, listing());
        assert_eq!(state(), TaskState::Queued);
        tracker.begin(Subject::Task(id), None, sync::now());
        assert_eq!(state(), TaskState::Running);
        tracker.woken(id, WakeSource::Outside);
        assert_eq!(state(), TaskState::Running);
        let mut waits = vec![Noted::Event("one"), Noted::Event("two")];
        tracker.end(&mut waits, true, sync::now());
        assert_eq!((state(), waits.len()), (TaskState::Queued, 0));
        tracker.begin(Subject::Task(id), None, sync::now());
        tracker.end(&mut vec![Noted::Event("three")], true, sync::now());
        assert_eq!(state(), TaskState::Waiting);
        tracker.woken(id, WakeSource::Loop(3));
        let record = tracker.find(id).unwrap();
        assert_eq!(*record.wakes_elsewhere, [(None, 1), (Some(3), 1)]);
        assert_eq!(record.waits, [Noted::Event("three")]);
        assert_eq!((record.polls, record.wakes, record.self_wakes), (2, 2, 1));
        let (by, _) = tracker.last_wake(&record, sync::now()).unwrap();
        assert_eq!((record.state, by), (TaskState::Queued, WakeSource::Loop(3)));
        let now = sync::now();
        assert!(tracker.longest_poll(&record, now) <= tracker.busy(&record, now));
        tracker.remove(id);
        tracker.remove(id);
        assert_eq!(ids(&tracker), []);
    }

    #[test]
    fn the_poll_that_is_under_way_counts() {
        let tracker = Tracker::new(0);
        let (id, start) = (TaskId::next(), sync::now());
        let after = |millis| start + Duration::from_millis(millis);
        let times = |now| {
            let record = tracker.find(id).unwrap();
            let (busy, longest) = (
                tracker.busy(&record, now),
                tracker.longest_poll(&record, now),
            );
            (busy.as_millis(), longest.as_millis())
        };
        tracker.enter(id, listing());
        tracker.begin(Subject::Task(id), None, start);
        assert_eq!(times(after(300)), (300, 300), "its first poll");
        assert_eq!(
            times(start - Duration::from_millis(1)),
            (0, 0),
            "read before it began"
        );
        tracker.end(&mut Vec::new(), true, after(400));
        assert_eq!(times(after(1_000)), (400, 400));
        tracker.begin(Subject::Task(id), None, after(1_000));
        assert_eq!(times(after(1_100)), (500, 400));
        assert_eq!(times(after(2_000)), (1_400, 1_000));
    }

    #[test]
    fn wakes_are_counted_by_the_loop_that_they_come_from() {
        let tracker = Tracker::new(1);
        let id = TaskId::next();
        tracker.enter(id, listing());
        let own = [
            WakeSource::Loop(1),
            WakeSource::Timer,
            WakeSource::Io,
            WakeSource::Itself,
        ];
        own.into_iter().for_each(|by| tracker.woken(id, by));
        let elsewhere = || tracker.find(id).unwrap().wakes_elsewhere;
        assert!(elsewhere().is_empty(), "they take no memory");
        for by in [
            WakeSource::Outside,
            WakeSource::Loop(0),
            WakeSource::Outside,
        ] {
            tracker.woken(id, by);
        }
        tracker.begin(Subject::Task(id), None, sync::now());
        tracker.woken(id, WakeSource::Loop(0)); // during its poll
        assert_eq!(*elsewhere(), [(None, 2), (Some(0), 2)]);
        assert_eq!(tracker.find(id).unwrap().wakes, 8);
    }

    #[test]
    fn a_poll_that_reaches_nothing_keeps_what_was_there_if_the_task_has_woken_itself() {
        let tracker = Tracker::new(0);
        let id = TaskId::next();
        tracker.enter(id, listing());
        let poll = |waits: &[Noted], wakes_itself: bool| {
            tracker.begin(Subject::Task(id), None, sync::now());
            if wakes_itself {
                tracker.woken(id, WakeSource::Outside);
            }
            tracker.end(&mut waits.to_vec(), !waits.is_empty(), sync::now());
            tracker.find(id).unwrap().waits
        };
        let some = [Noted::Event("some")];
        assert_eq!(poll(&some, true), some);
        assert_eq!(poll(&[], false), some);
        tracker.woken(id, WakeSource::Timer);
        assert_eq!(poll(&[], false), []);
    }

    #[test]
    fn a_task_that_ends_in_its_poll_leaves_nothing() {
        let tracker = Tracker::new(0);
        let id = TaskId::next();
        tracker.enter(id, listing());
        tracker.begin(Subject::Task(id), None, sync::now());
        assert_eq!(tracker.current().unwrap().0.subject, Subject::Task(id));
        tracker.remove(id);
        let mut waits = vec![Noted::Event("nothing")];
        tracker.end(&mut waits, true, sync::now());
        assert!(waits.is_empty() && tracker.find(id).is_none() && tracker.current().is_none());
    }

    #[test]
    fn many_records_are_read_once_each_in_order() {
        let tracker = Tracker::new(0);
        let mut all: Vec<_> = (0..3 * CHUNK + 7).map(|_| TaskId::next()).collect();
        all.iter().for_each(|&id| tracker.enter(id, listing()));
        all.sort();
        assert_eq!(ids(&tracker), all);
        let gone = all.remove(CHUNK);
        tracker.remove(gone);
        assert_eq!(ids(&tracker), all);
        tracker.clear();
        assert_eq!(ids(&tracker), []);
    }
}
