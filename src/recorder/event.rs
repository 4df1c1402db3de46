//! What a recorder notes, and how that is stored in a [record](super::ring::Record).
//!
//! ```text
//!   word 0   nanoseconds since the zero of the recorder, times 16, plus the kind
//!   word 1   the id of a task, or a number
//!   word 2   the number of the place of the spawn plus one, and in the lower half that of a name; or a cause
//! ```

use crate::event_loop::counters::TaskEnd;
use crate::recorder::ring::Record;
use crate::site::Site;

/// Something that happened on a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    TurnBegan,
    TurnEnded,
    /// A poll, or something that counts as one.
    WorkBegan(Work),
    /// That has returned; and how its task has ended, if it has.
    WorkEnded(Option<TaskEnd>),
    Parked,
    Unparked,
    /// The task with this id was woken.
    Woke(u64, WakeCause),
    /// So many timers have fired.
    TimersFired(u64),
    Accepted,
    /// A task with this id was spawned.
    Spawned(u64),
    /// The recorder was frozen here, and goes on.
    Resumed,
}

/// What begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) kind: WorkKind,
    /// That of the task; or [`MAIN`](crate::task_id::MAIN), or [`HOOK`](crate::task_id::HOOK).
    pub(crate) id: u64,
    /// Where it was spawned.
    pub(crate) site: Option<Site>,
    /// The number of its name; zero if it has none.
    pub(crate) name: u32,
}

/// What kind of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A poll of a task, or of a main future, or a shutdown hook.
    Poll,
    /// The first poll of a task.
    FirstPoll,
    /// The call of a closure.
    Closure,
    /// The drop of a task that is cancelled.
    Cancel,
}

/// Why a task was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeCause {
    /// By what is polled, or by the loop itself.
    Loop,
    Io,
    Timer,
}

impl Event {
    pub(crate) fn encode(self, nanos: u64) -> Record {
        let (kind, first, second) = match self {
            Event::TurnBegan => (1, 0, 0),
            Event::TurnEnded => (2, 0, 0),
            Event::WorkBegan(work) => {
                let kind = match work.kind {
                    WorkKind::Poll => 3,
                    WorkKind::FirstPoll => 4,
                    WorkKind::Closure => 5,
                    WorkKind::Cancel => 6,
                };
                let site = work.site.map_or(0, |site| u64::from(site.number().get()));
                (kind, work.id, site << 32 | u64::from(work.name))
            }
            Event::WorkEnded(end) => {
                let end = match end {
                    None => 0,
                    Some(TaskEnd::Completed) => 1,
                    Some(TaskEnd::Panicked) => 2,
                    Some(TaskEnd::Cancelled) => 3,
                };
                (7, end, 0)
            }
            Event::Parked => (8, 0, 0),
            Event::Unparked => (9, 0, 0),
            Event::Woke(id, cause) => {
                let cause = match cause {
                    WakeCause::Loop => 0,
                    WakeCause::Io => 1,
                    WakeCause::Timer => 2,
                };
                (10, id, cause)
            }
            Event::TimersFired(count) => (11, count, 0),
            Event::Accepted => (12, 0, 0),
            Event::Spawned(id) => (13, id, 0),
            Event::Resumed => (14, 0, 0),
        };
        [nanos << 4 | kind, first, second]
    }

    /// The event of a record, and when it happened; `None` if it is no record.
    pub(crate) fn decode([word, first, second]: Record) -> Option<(u64, Event)> {
        let work = |kind| {
            Event::WorkBegan(Work {
                kind,
                id: first,
                site: Site::numbered((second >> 32) as u32),
                name: second as u32,
            })
        };
        let event = match word & 15 {
            1 => Event::TurnBegan,
            2 => Event::TurnEnded,
            3 => work(WorkKind::Poll),
            4 => work(WorkKind::FirstPoll),
            5 => work(WorkKind::Closure),
            6 => work(WorkKind::Cancel),
            7 => Event::WorkEnded(match first {
                1 => Some(TaskEnd::Completed),
                2 => Some(TaskEnd::Panicked),
                3 => Some(TaskEnd::Cancelled),
                _ => None,
            }),
            8 => Event::Parked,
            9 => Event::Unparked,
            10 => Event::Woke(
                first,
                match second {
                    1 => WakeCause::Io,
                    2 => WakeCause::Timer,
                    _ => WakeCause::Loop,
                },
            ),
            11 => Event::TimersFired(first),
            12 => Event::Accepted,
            13 => Event::Spawned(first),
            14 => Event::Resumed,
            _ => return None,
        };
        Some((word >> 4, event))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    #[test]
    fn a_record_is_read_as_what_was_written() {
        let site = Site::of(Location::caller());
        let kinds = [
            WorkKind::Poll,
            WorkKind::FirstPoll,
            WorkKind::Closure,
            WorkKind::Cancel,
        ];
        let mut events = vec![
            Event::TurnBegan,
            Event::TurnEnded,
            Event::Parked,
            Event::Unparked,
            Event::TimersFired(1_024),
            Event::Accepted,
            Event::Spawned(u64::MAX - 1),
            Event::Resumed,
        ];
        for kind in kinds {
            for (site, name) in [(None, 0), (Some(site), 0), (Some(site), u32::MAX)] {
                let id = 7;
                let work = Work {
                    kind,
                    id,
                    site,
                    name,
                };
                events.push(Event::WorkBegan(work));
            }
        }
        let ends = [TaskEnd::Completed, TaskEnd::Panicked, TaskEnd::Cancelled];
        events.extend(ends.map(|end| Event::WorkEnded(Some(end))));
        events.push(Event::WorkEnded(None));
        let causes = [WakeCause::Loop, WakeCause::Io, WakeCause::Timer];
        events.extend(causes.map(|cause| Event::Woke(3, cause)));
        let ten_years = 315_576_000_000_000_000;
        for event in events {
            for nanos in [0, 1, ten_years] {
                assert_eq!(Event::decode(event.encode(nanos)), Some((nanos, event)));
            }
        }
        assert_eq!(
            Event::decode([0; 3]),
            None,
            "a place that was never written"
        );
    }
}
