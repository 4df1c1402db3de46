//! How long tasks wait from their wake to their poll; kept only in groups that measure time.
//!
//! - A task has no room for the moment of its wake. The queues are in order, so a [`Line`] of stamps beside
//!   each queue is enough: a stamp says when the tasks up to some position were first seen in the queue.
//! - The loop looks at its queues, all at once, after every poll, and when the selector, a timer or the
//!   inbox has added to them. So a wake by a task has the end of the poll that it happened in: the wait
//!   that is counted is too short by the rest of that poll at most.
//! - Mail from other threads has the beginning of the poll during which it came, or the ring that woke the
//!   loop up. What comes during a long poll is why waits are looked at: it is counted too long rather than
//!   not at all.
//! - A line has a stamp per batch of tasks that are queued, so its memory is bounded by that of the queue.
//!   A task that leaves its queue on another way than a poll is made up for when the loop next looks.

use std::collections::VecDeque;
use std::time::Instant;

/// The queues that tasks wait in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueName {
    Tasks,
    Closures,
    Io,
    Timed,
    Tail,
}

/// How many tasks are in each queue, in the order of [`QueueName`].
pub(crate) type Lengths = [usize; 5];

/// The stamps of all queues; loop thread only.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    lines: [Line; 5],
    /// When mail was first seen in the inbox, which is there still.
    mail_since: Option<Instant>,
    /// When there was no mail.
    no_mail_at: Option<Instant>,
}

/// The stamps of a queue.
#[derive(Debug, Default)]
struct Line {
    /// How many tasks have left the queue.
    taken: u64,
    /// How many tasks were ever stamped.
    stamped: u64,
    /// The number of tasks up to which a stamp counts.
    stamps: VecDeque<(u64, Instant)>,
}

impl Waits {
    /// Stamps what is new in the queues.
    pub(crate) fn look(&mut self, lengths: Lengths, now: Instant) {
        for (line, length) in self.lines.iter_mut().zip(lengths) {
            line.look(length as u64, now);
        }
    }

    /// Notes whether there is mail after a poll from `start` to `end`.
    pub(crate) fn look_at_mail(&mut self, has_mail: bool, start: Instant, end: Instant) {
        match has_mail {
            true => self.mail_since = self.mail_since.or(Some(start)),
            false => self.no_mail_at = Some(end),
        }
    }

    /// Stamps mail that was queued just now; `rung` is when the bell of the loop was last rung.
    pub(crate) fn collected(&mut self, lengths: Lengths, rung: Option<Instant>, now: Instant) {
        let rung = rung.filter(|&rung| self.no_mail_at.is_some_and(|then| rung > then));
        let since = self.mail_since.take().or(rung).unwrap_or(now);
        self.look(lengths, since.min(now));
        self.no_mail_at = Some(now);
    }

    /// Takes a task out of a queue, of which `length` are left; returns when it was woken.
    pub(crate) fn take(&mut self, queue: QueueName, length: usize, now: Instant) -> Instant {
        let line = &mut self.lines[queue as usize];
        // One that nobody has seen in its queue was queued just now.
        line.look(length as u64 + 1, now);
        line.take().unwrap_or(now)
    }
}

impl Line {
    fn look(&mut self, length: u64, now: Instant) {
        let end = self.taken + length;
        if end > self.stamped {
            self.stamps.push_back((end, now));
            self.stamped = end;
        } else {
            self.taken = self.stamped - length;
        }
    }

    fn take(&mut self) -> Option<Instant> {
        self.taken += 1;
        while self
            .stamps
            .front()
            .is_some_and(|(end, _)| *end < self.taken)
        {
            self.stamps.pop_front();
        }
        self.stamps.front().map(|(_, stamp)| *stamp)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TASKS: QueueName = QueueName::Tasks;

    fn moments() -> impl Fn(u64) -> Instant {
        let zero = Instant::now();
        move |micros| zero + Duration::from_micros(micros)
    }

    fn tasks(length: usize) -> Lengths {
        [length, 0, 0, 0, 0]
    }

    #[test]
    fn tasks_have_the_stamp_of_the_look_that_first_saw_them() {
        let at = moments();
        let mut waits = Waits::default();
        waits.look(tasks(2), at(1));
        waits.look(tasks(2), at(2)); // nothing new
        waits.look(tasks(3), at(3));
        assert_eq!(waits.take(TASKS, 2, at(9)), at(1));
        waits.look(tasks(4), at(10)); // two were woken by the first
        let left = (0..4).rev().map(|left| waits.take(TASKS, left, at(20)));
        assert_eq!(Vec::from_iter(left), [at(1), at(3), at(10), at(10)]);
        assert_eq!(waits.lines[0].stamps.len(), 1, "those of others are gone");
    }

    #[test]
    fn a_task_that_was_never_seen_waited_for_nothing() {
        let at = moments();
        let mut waits = Waits::default();
        assert_eq!(waits.take(TASKS, 0, at(5)), at(5));
        assert_eq!(waits.take(TASKS, 3, at(6)), at(6));
        let left = (0..3).rev().map(|left| waits.take(TASKS, left, at(7)));
        assert_eq!(
            Vec::from_iter(left),
            [at(6); 3],
            "but they were seen behind it"
        );
    }

    #[test]
    fn a_task_that_leaves_on_another_way_is_made_up_for() {
        let at = moments();
        let mut waits = Waits::default();
        waits.look(tasks(10), at(1));
        waits.look(tasks(4), at(2)); // six were cancelled
        waits.look(tasks(5), at(3));
        let left = (0..5).rev().map(|left| waits.take(TASKS, left, at(4)));
        assert_eq!(Vec::from_iter(left), [at(1), at(1), at(1), at(1), at(3)]);
    }

    #[test]
    fn queues_do_not_mix() {
        let at = moments();
        let mut waits = Waits::default();
        waits.look([1, 1, 0, 0, 0], at(1));
        waits.look([1, 1, 1, 1, 1], at(2));
        let names = [QueueName::Tail, QueueName::Timed, QueueName::Io];
        assert!(
            names
                .iter()
                .all(|&name| waits.take(name, 0, at(9)) == at(2))
        );
        assert_eq!(waits.take(QueueName::Closures, 0, at(9)), at(1));
        assert_eq!(waits.take(TASKS, 0, at(9)), at(1));
    }

    #[test]
    fn mail_has_the_stamp_of_the_poll_that_it_came_in_or_of_the_ring() {
        let at = moments();
        let mut waits = Waits::default();
        waits.look_at_mail(false, at(0), at(1));
        waits.look_at_mail(true, at(2), at(3));
        waits.look_at_mail(true, at(3), at(4));
        waits.collected(tasks(1), None, at(4));
        assert_eq!(waits.take(TASKS, 0, at(5)), at(2));
        waits.collected(tasks(1), Some(at(6)), at(8)); // it slept from 5 to 8
        assert_eq!(waits.take(TASKS, 0, at(9)), at(6));
        waits.collected(tasks(1), Some(at(6)), at(11)); // that ring is known
        assert_eq!(waits.take(TASKS, 0, at(12)), at(11));
    }
}
