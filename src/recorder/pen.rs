//! What writes the tape of a loop: loop thread only.
//!
//! - Times on a tape never go back, whichever reading of the clock they are from.
//! - A turn begins with the first record after a wait or after the turn before, so that turns without work
//!   leave no record. A turn that follows a wait begins with the end of the wait.
//! - A poll that directly follows another one in its turn begins when that one has ended: one reading of the
//!   clock for both.

use std::borrow::Cow;
use std::cell::Cell;
use std::time::Instant;

use crate::event_loop::counters::TaskEnd;
use crate::recorder::event::{Event, WakeCause, Work};
use crate::recorder::names;
use crate::recorder::tape::Tape;
use crate::sync::Arc;

/// Names that are looked up without the lock of the table: those of the tasks that were polled last.
const KNOWN: usize = 64;

/// The pen of a loop.
#[derive(Debug)]
pub(crate) struct Pen {
    tape: Arc<Tape>,
    /// The state of the recorder that the tape is up to date with.
    state: Cell<u64>,
    /// The time of the last record.
    last: Cell<u64>,
    /// What the last record was.
    after: Cell<After>,
    /// Whether there is a turn on the tape that has not ended.
    turn: Cell<bool>,
    /// How the task that is polled has ended, if it has.
    task_end: Cell<Option<TaskEnd>>,
    /// The numbers of names, by the ids of their tasks.
    names: Box<[Cell<(u64, u32)>]>,
    /// The number of the newest name.
    newest: Cell<u32>,
}

/// What the last record was, as far as the next one depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The end of a poll.
    Poll,
    /// The end of a wait.
    Wait,
    /// A wake by a timer or a socket.
    Wakes,
    Other,
}

impl Pen {
    pub(crate) fn new(tape: &Arc<Tape>) -> Pen {
        Pen {
            tape: Arc::clone(tape),
            state: Cell::new(0),
            last: Cell::new(0),
            after: Cell::new(After::Other),
            turn: Cell::new(false),
            task_end: Cell::new(None),
            names: (0..KNOWN).map(|_| Cell::new((0, 0))).collect(),
            newest: Cell::new(0),
        }
    }

    /// Begins a poll or what counts as one; `start` is a reading of the clock, if there is one.
    pub(crate) fn begin(
        &self,
        mut work: Work,
        name: Option<&Cow<'static, str>>,
        start: Option<Instant>,
    ) {
        if !self.may_write() {
            return;
        }
        let time = match (start, self.after.get()) {
            (Some(start), _) => self.time_of(start),
            (None, After::Poll) => self.last.get(),
            (None, _) => self.now(),
        };
        work.name = name.map_or(0, |name| self.number_of(work.id, name));
        self.task_end.set(None);
        self.write(time, Event::WorkBegan(work));
    }

    /// Notes that the task that is polled has ended.
    pub(crate) fn note_task_end(&self, end: TaskEnd) {
        self.task_end.set(Some(end));
    }

    /// Ends a poll in a turn, which another one may follow; `end` is a reading of the clock, if there is one.
    pub(crate) fn end_poll(&self, end: Option<Instant>) {
        let event = Event::WorkEnded(self.task_end.take());
        if self.may_write() {
            let time = end.map_or_else(|| self.now(), |end| self.time_of(end));
            self.write(time, event);
            self.after.set(After::Poll);
        }
    }

    /// Ends what has begun.
    pub(crate) fn end_work(&self) {
        let end = self.task_end.take();
        self.note(Event::WorkEnded(end));
    }

    /// Notes that timers have fired, whose tasks are woken now.
    pub(crate) fn timers_fired(&self, count: usize) {
        self.note(Event::TimersFired(count as u64));
        self.after.set(After::Wakes);
    }

    /// Notes an event of now.
    pub(crate) fn note(&self, event: Event) {
        if self.may_write() {
            self.write(self.now(), event);
        }
    }

    /// Notes a wake by the loop's own thread; those of one batch have one time.
    pub(crate) fn woke(&self, id: u64, cause: WakeCause) {
        if self.may_write() {
            let time = match (cause, self.after.get()) {
                (WakeCause::Io | WakeCause::Timer, After::Wait | After::Wakes) => self.last.get(),
                _ => self.now(),
            };
            self.write(time, Event::Woke(id, cause));
            if cause != WakeCause::Loop {
                self.after.set(After::Wakes);
            }
        }
    }

    /// Notes that the polls of a turn are over.
    pub(crate) fn end_turn(&self) {
        if self.turn.get() {
            self.end_turn_at(self.now());
        } else {
            self.after.set(After::Other);
        }
    }

    fn end_turn_at(&self, time: u64) {
        self.turn.set(false);
        if self.may_write() {
            self.put(time, Event::TurnEnded);
        }
    }

    /// Notes that the loop sleeps.
    pub(crate) fn park(&self, now: Instant) {
        let now = self.time_of(now);
        if self.turn.get() {
            self.end_turn_at(now);
        }
        if self.may_write() {
            self.put(now, Event::Parked);
        }
    }

    /// Notes that the loop is awake.
    pub(crate) fn unpark(&self, now: Instant) {
        if self.may_write() {
            self.put(self.time_of(now), Event::Unparked);
            self.after.set(After::Wait);
        }
    }

    /// Writes a record of a turn.
    fn write(&self, time: u64, event: Event) {
        if !self.turn.replace(true) {
            let began = match self.after.get() {
                After::Wait => self.last.get(),
                After::Poll | After::Wakes | After::Other => time,
            };
            self.put(began, Event::TurnBegan);
        }
        self.put(time, event);
    }

    #[inline]
    fn put(&self, time: u64, event: Event) {
        let time = time.max(self.last.get());
        self.last.set(time);
        self.after.set(After::Other);
        self.tape.ring.push(event.encode(time));
    }

    fn now(&self) -> u64 {
        self.tape.recorder.now()
    }

    fn time_of(&self, now: Instant) -> u64 {
        self.tape.recorder.time_of(now)
    }

    /// Whether the recorder is not frozen.
    #[inline]
    fn may_write(&self) -> bool {
        let state = self.tape.recorder.state();
        state == self.state.get() || self.catch_up(state)
    }

    /// Notes that the recorder was frozen, if it is not any more.
    #[cold]
    fn catch_up(&self, state: u64) -> bool {
        if state % 2 == 1 {
            return false;
        }
        self.state.set(state);
        self.turn.set(false);
        self.put(self.tape.recorder.last_frozen(), Event::Resumed);
        true
    }

    /// The number of the name of the task with this id.
    fn number_of(&self, id: u64, name: &str) -> u32 {
        let known = &self.names[id as usize % KNOWN];
        match known.get() {
            (task, number) if task == id && !self.is_forgotten(number) => number,
            _ => {
                let number = self.tape.number_of(name);
                known.set((id, number));
                if self.newest.get().wrapping_sub(number) as i32 <= 0 {
                    self.newest.set(number);
                }
                number
            }
        }
    }

    /// Whether the table has forgotten a name: so many were added since.
    fn is_forgotten(&self, number: u32) -> bool {
        self.newest.get().wrapping_sub(number) as usize >= names::MOST
    }
}
