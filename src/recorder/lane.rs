//! What a tape shows, as a time line: slices that nest, and marks.
//!
//! - A loop does one thing at a time: turns and waits follow each other, and polls are inside of turns. So
//!   the slices of a lane nest, whatever records are missing: the oldest ones, which were overwritten, and
//!   those that were not written while the recorder was frozen.
//! - An end without a beginning is left out. A beginning without an end is ended by what comes next; if
//!   nothing does, it has not ended when the tape was read.

use std::time::Duration;

use crate::event_loop::counters::TaskEnd;
use crate::recorder::event::{Event, WakeCause, Work};
use crate::recorder::ring::Record;

/// The time line of a loop.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// In the order of their beginnings, the outer ones first.
    pub(crate) slices: Vec<Slice>,
    pub(crate) marks: Vec<Mark>,
    /// The number of the record that is read.
    number: usize,
}

/// Something that took time.
#[derive(Debug)]
pub(crate) struct Slice {
    /// The number of the record that it begins with.
    pub(crate) number: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) what: What,
    /// Whether it has not ended: then `end` is when the tape was read.
    pub(crate) open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Turn,
    Park,
    /// And how the task has ended, if it has.
    Work(Work, Option<TaskEnd>),
}

/// Something that happened at a moment.
#[derive(Debug)]
pub(crate) struct Mark {
    /// The number of its record.
    pub(crate) number: usize,
    pub(crate) time: u64,
    pub(crate) what: Happened,
    /// Whether it happened inside of a slice.
    pub(crate) inside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Woke(u64, WakeCause),
    Spawned(u64),
    TimersFired(u64),
    Accepted,
}

impl Lane {
    /// Reads the records of a tape, as it was at `until`.
    pub(crate) fn of(records: &[Record], until: u64) -> Lane {
        let mut lane = Lane::default();
        let mut open = Open::default();
        let mut last = 0;
        for (number, record) in records.iter().enumerate() {
            let Some((time, event)) = Event::decode(*record) else {
                continue;
            };
            (lane.number, last) = (number, time);
            match event {
                Event::TurnBegan => {
                    open.close_all(&mut lane, time);
                    open.turn = lane.begin(time, What::Turn);
                }
                Event::TurnEnded => open.close_all(&mut lane, time),
                Event::WorkBegan(work) => {
                    lane.end(&mut open.work, time);
                    lane.end(&mut open.park, time);
                    open.work = lane.begin(time, What::Work(work, None));
                }
                Event::WorkEnded(end) => {
                    if let Some(What::Work(_, ended)) = lane.what(open.work) {
                        *ended = end;
                    }
                    lane.end(&mut open.work, time);
                }
                Event::Parked => {
                    open.close_all(&mut lane, time);
                    open.park = lane.begin(time, What::Park);
                }
                Event::Unparked => lane.end(&mut open.park, time),
                Event::Resumed => open.close_all(&mut lane, time),
                Event::Woke(id, cause) => lane.mark(time, Happened::Woke(id, cause), &open),
                Event::Spawned(id) => lane.mark(time, Happened::Spawned(id), &open),
                Event::TimersFired(count) => lane.mark(time, Happened::TimersFired(count), &open),
                Event::Accepted => lane.mark(time, Happened::Accepted, &open),
            }
        }
        for one in [open.turn, open.work, open.park].into_iter().flatten() {
            let slice = &mut lane.slices[one];
            (slice.end, slice.open) = (until.max(last), true);
        }
        lane
    }

    /// Begins a slice; returns its index.
    fn begin(&mut self, start: u64, what: What) -> Option<usize> {
        self.slices.push(Slice {
            number: self.number,
            start,
            end: start,
            what,
            open: false,
        });
        Some(self.slices.len() - 1)
    }

    fn what(&mut self, index: Option<usize>) -> Option<&mut What> {
        index.map(|index| &mut self.slices[index].what)
    }

    /// Ends a slice, if there is one.
    fn end(&mut self, index: &mut Option<usize>, end: u64) {
        if let Some(index) = index.take() {
            self.slices[index].end = end;
        }
    }

    fn mark(&mut self, time: u64, what: Happened, open: &Open) {
        let inside = open.turn.is_some() || open.work.is_some();
        self.marks.push(Mark {
            number: self.number,
            time,
            what,
            inside,
        });
    }
}

/// The slices that have not ended, by their indices.
#[derive(Default)]
struct Open {
    turn: Option<usize>,
    work: Option<usize>,
    park: Option<usize>,
}

impl Open {
    fn close_all(&mut self, lane: &mut Lane, time: u64) {
        for one in [&mut self.work, &mut self.turn, &mut self.park] {
            lane.end(one, time);
        }
    }
}

/// The records of the last `duration` before `until`, with the beginnings of what had not ended by then.
pub(crate) fn last(records: &[Record], until: u64, duration: Duration) -> Vec<Record> {
    let duration = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let Some(cut) = until.checked_sub(duration) else {
        return records.to_vec();
    };
    let time_of = |record: &Record| Event::decode(*record).map_or(0, |(time, _)| time);
    let first = records.partition_point(|record| time_of(record) < cut);
    let (mut turn, mut work, mut park) = (None, None, None);
    for record in &records[..first] {
        match Event::decode(*record).map(|(_, event)| event) {
            Some(Event::TurnBegan) => (turn, work, park) = (Some(*record), None, None),
            Some(Event::WorkBegan(_)) => (work, park) = (Some(*record), None),
            Some(Event::WorkEnded(_)) => work = None,
            Some(Event::Unparked) => park = None,
            Some(Event::Parked) => (turn, work, park) = (None, None, Some(*record)),
            Some(Event::TurnEnded | Event::Resumed) => (turn, work, park) = (None, None, None),
            _ => {}
        }
    }
    let open = [turn, work, park].into_iter().flatten();
    open.chain(records[first..].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::recorder::event::WorkKind;

    fn work(id: u64) -> Work {
        Work {
            kind: WorkKind::Poll,
            id,
            site: None,
            name: 0,
        }
    }

    fn poll(id: u64) -> Event {
        Event::WorkBegan(work(id))
    }

    const END: Event = Event::WorkEnded(None);

    fn records(events: &[(u64, Event)]) -> Vec<Record> {
        events
            .iter()
            .map(|(time, event)| event.encode(*time))
            .collect()
    }

    fn shown(lane: &Lane) -> Vec<(u64, u64, &'static str, bool)> {
        let name = |what| match what {
            What::Turn => "turn",
            What::Park => "park",
            What::Work(..) => "work",
        };
        let slices = lane.slices.iter();
        slices
            .map(|one| (one.start, one.end, name(one.what), one.open))
            .collect()
    }

    #[test]
    fn polls_are_inside_of_turns_and_waits_between_them() {
        let lane = Lane::of(
            &records(&[
                (1, Event::TurnBegan),
                (2, poll(1)),
                (3, END),
                (3, poll(2)),
                (5, Event::WorkEnded(Some(TaskEnd::Completed))),
                (6, Event::TurnEnded),
                (6, Event::Parked),
                (9, Event::Unparked),
                (9, Event::TurnBegan),
                (9, Event::Woke(3, WakeCause::Io)),
                (10, poll(3)),
            ]),
            20,
        );
        assert_eq!(
            shown(&lane),
            [
                (1, 6, "turn", false),
                (2, 3, "work", false),
                (3, 5, "work", false),
                (6, 9, "park", false),
                (9, 20, "turn", true),
                (10, 20, "work", true),
            ]
        );
        assert_eq!(
            lane.slices[2].what,
            What::Work(work(2), Some(TaskEnd::Completed))
        );
        assert!(lane.marks[0].inside);
    }

    #[test]
    fn what_was_open_when_the_recorder_was_frozen_ends_there() {
        let lane = Lane::of(
            &records(&[
                (1, Event::TurnBegan),
                (2, poll(1)),
                (7, Event::Resumed),
                (50, Event::TurnBegan),
                (50, poll(2)),
                (51, END),
            ]),
            60,
        );
        assert_eq!(
            shown(&lane),
            [
                (1, 7, "turn", false),
                (2, 7, "work", false),
                (50, 60, "turn", true),
                (50, 51, "work", false),
            ]
        );
    }

    #[test]
    fn ends_without_beginnings_are_left_out() {
        let ends = [(1, END), (2, Event::TurnEnded), (3, Event::Unparked)];
        assert!(Lane::of(&records(&ends), 9).slices.is_empty());
    }

    #[test]
    fn slices_nest_whatever_the_records_are() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let mut time = 0;
            let events: Vec<_> = (0..200)
                .map(|number| {
                    time += random.below(3) as u64;
                    let event = match random.below(8) {
                        0 => Event::TurnBegan,
                        1 => Event::TurnEnded,
                        2 | 3 => poll(number),
                        4 => END,
                        5 => Event::Parked,
                        6 => Event::Unparked,
                        _ => Event::Resumed,
                    };
                    (time, event)
                })
                .collect();
            let lane = Lane::of(&records(&events), time + 1);
            let mut outer: Vec<u64> = Vec::new();
            for slice in &lane.slices {
                assert!(slice.start <= slice.end);
                while outer.last().is_some_and(|end| *end <= slice.start) {
                    outer.pop();
                }
                let inside = outer.last().is_none_or(|end| slice.end <= *end);
                assert!(inside, "seed {seed}: {slice:?}");
                outer.push(slice.end);
            }
        }
    }

    #[test]
    fn the_last_moments_keep_what_had_not_ended() {
        let all = records(&[
            (1, Event::TurnBegan),
            (2, poll(1)),
            (3, END),
            (4, poll(2)),
            (90, Event::Woke(3, WakeCause::Loop)),
        ]);
        let kept = last(&all, 100, Duration::from_nanos(50));
        assert_eq!(kept, [all[0], all[3], all[4]]);
        assert_eq!(last(&all, 100, Duration::from_nanos(97)), all);
        assert_eq!(last(&all, 100, Duration::MAX), all);
        assert_eq!(last(&all, 100, Duration::ZERO), [all[0], all[3]]);
        assert_eq!(last(&[], 100, Duration::from_secs(1)), Vec::<Record>::new());
    }
}
