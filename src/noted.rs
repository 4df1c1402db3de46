//! What the task that is polled waits for, as the leaves of its future say: timers, sockets, handles.
//!
//! - Only while the loop of this thread lists its tasks
//!   ([`Builder::track_tasks`](crate::Builder::track_tasks)). Elsewhere a leaf that returns `Pending` reads
//!   one plain cell and goes on.
//! - A poll [begins](begin) and its notes are [taken](take) at its end. A loop that runs inside of a task
//!   keeps the notes of its tasks apart.
//! - A note that has become wrong during its poll is removed: a label whose future was dropped, a timer that
//!   was disarmed, a socket operation that was cancelled.
//! - Every leaf is this crate's own, and so is what it notes: no user code is called here.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::os::fd::RawFd;
use std::time::Instant;

use crate::endpoint::Endpoint;
use crate::reactor::direction::Direction;
use crate::sync::{Arc, thread_local};
use crate::task_id::TaskId;
use crate::this_thread;
use crate::time::queue::TimerKey;

/// The most notes that are kept of a poll.
const MOST: usize = 32;

/// What a task waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// A timer; `None` is one that never fires.
    Sleep(Option<Instant>),
    Socket(SocketWait, Endpoint),
    /// The end of a task.
    Join(TaskId),
    /// The end of a visit on the loop with this index.
    Visit(TaskId, u32),
    /// The end of a blocking job.
    Job(TaskId),
    /// The first of so many tasks to end.
    JoinSet(usize),
    Label(Text),
    /// Anything else.
    Event(&'static str),
}

/// What a socket is awaited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketWait {
    Read,
    Write,
    Accept,
    Connect,
}

impl SocketWait {
    fn direction(self) -> Direction {
        match self {
            SocketWait::Read | SocketWait::Accept => Direction::Read,
            SocketWait::Write | SocketWait::Connect => Direction::Write,
        }
    }
}

/// A name or a label; a clone does not copy it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Text::Static(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl From<Cow<'static, str>> for Text {
    fn from(text: Cow<'static, str>) -> Text {
        match text {
            Cow::Borrowed(text) => Text::Static(text),
            Cow::Owned(text) => Text::Shared(text.into()),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A note of the poll that is under way.
struct Note {
    what: Noted,
    stands: Stands,
}

/// How long a note is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// Until the end of the poll at least.
    ForThePoll,
    /// As long as this timer is armed.
    WhileArmed(TimerKey),
    /// Until the label with this number is retracted.
    UntilRetracted(u64),
}

/// The notes of a thread.
struct Notes {
    list: Vec<Note>,
    /// Where those of the poll that is under way begin.
    base: usize,
}

impl Notes {
    /// The notes of the poll that is under way.
    fn current(&mut self) -> &mut [Note] {
        let base = self.base.min(self.list.len());
        &mut self.list[base..]
    }

    fn is_full(&self) -> bool {
        self.list.len() >= self.base + MOST
    }

    /// Keeps the notes of the poll that is under way for which `keep` says so.
    fn retain(&mut self, keep: impl Fn(&Note) -> bool) {
        let mut index = 0;
        self.list.retain(|note| {
            index += 1;
            index <= self.base || keep(note)
        });
    }
}

thread_local! {
    static NOTES: RefCell<Notes> = const {
        RefCell::new(Notes {
            list: Vec::new(),
            base: 0,
        })
    };
    /// The number of the last label.
    static LABELS: Cell<u64> = const { Cell::new(0) };
}

/// Begins a poll; returns what [`take`] needs at its end.
pub(crate) fn begin() -> OuterPoll {
    let outer = edit(|notes| std::mem::replace(&mut notes.base, notes.list.len()));
    OuterPoll(outer.unwrap_or(0))
}

/// The poll inside of which another one has begun, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OuterPoll(usize);

/// Ends a poll: moves those of its notes that are still right to `waits`, which is empty. Returns whether
/// there were any.
pub(crate) fn take(
    outer: OuterPoll,
    waits: &mut Vec<Noted>,
    is_armed: impl Fn(TimerKey) -> bool,
) -> bool {
    let reached = edit(|notes| {
        let base = std::mem::replace(&mut notes.base, outer.0);
        if notes.list.len() <= base {
            return false;
        }
        let stands = |note: &Note| match note.stands {
            Stands::WhileArmed(key) => is_armed(key),
            Stands::ForThePoll | Stands::UntilRetracted(_) => true,
        };
        let notes = notes.list.drain(base..).filter(stands);
        waits.extend(notes.map(|note| note.what));
        true
    });
    reached.unwrap_or(false)
}

/// Notes what the task that is polled waits for.
#[inline]
pub(crate) fn waits_for(what: impl FnOnce() -> Noted) {
    if this_thread::notes_waits() {
        push_made(what);
    }
}

#[cold]
#[inline(never)]
fn push_made(what: impl FnOnce() -> Noted) {
    push(what(), Stands::ForThePoll);
}

/// Notes that the task waits for a timer, if [notes are taken](this_thread::notes_waits).
pub(crate) fn waits_for_timer(key: TimerKey, until: Option<Instant>) {
    push(Noted::Sleep(until), Stands::WhileArmed(key));
}

fn push(what: Noted, stands: Stands) {
    edit(|notes| {
        // A future that is polled twice in a poll is one: it was reset, or is polled in a loop.
        let known = notes.current().iter_mut().find(|note| match stands {
            Stands::ForThePoll => note.what == what,
            Stands::WhileArmed(_) => note.stands == stands,
            Stands::UntilRetracted(_) => false,
        });
        if let Some(note) = known {
            note.what = what;
        } else if !notes.is_full() {
            notes.list.push(Note { what, stands });
        }
    });
}

/// Corrects a note: the wait to write to this descriptor was the wait for a connect to this peer.
#[inline]
pub(crate) fn was_connect(descriptor: RawFd, peer: impl FnOnce() -> String) {
    if this_thread::notes_waits() {
        correct_to_connect(descriptor, peer());
    }
}

#[cold]
fn correct_to_connect(descriptor: RawFd, peer: String) {
    edit(|notes| {
        let writes = notes
            .current()
            .iter_mut()
            .filter_map(|note| match &mut note.what {
                Noted::Socket(wait @ SocketWait::Write, endpoint) => Some((wait, endpoint)),
                _ => None,
            });
        let found = writes
            .into_iter()
            .find(|(_, one)| one.descriptor() == descriptor);
        if let Some((wait, endpoint)) = found {
            *wait = SocketWait::Connect;
            *endpoint = endpoint.with_peer(peer);
        }
    });
}

/// Removes the wait for a descriptor in a direction: the operation was cancelled.
#[inline]
pub(crate) fn cancelled(descriptor: RawFd, direction: Direction) {
    if this_thread::notes_waits() {
        retract_socket(descriptor, direction);
    }
}

#[cold]
fn retract_socket(descriptor: RawFd, direction: Direction) {
    edit(|notes| {
        notes.retain(|note| match &note.what {
            Noted::Socket(wait, endpoint) => {
                wait.direction() != direction || endpoint.descriptor() != descriptor
            }
            _ => true,
        });
    });
}

/// How many notes there are: those behind this position are of futures that are polled from here on.
pub(crate) fn position() -> usize {
    edit(|notes| notes.list.len()).unwrap_or(0)
}

/// Adds a label in front of the notes behind a position; returns the number by which it is
/// [retracted](retract_label).
#[cold]
pub(crate) fn label(position: usize, text: Text) -> u64 {
    let next = |labels: &Cell<u64>| {
        labels.set(labels.get() + 1);
        labels.get()
    };
    let number = LABELS.try_with(next).unwrap_or(0);
    edit(|notes| {
        let position = position.clamp(notes.base.min(notes.list.len()), notes.list.len());
        if notes.is_full() {
            // It says more than the last one of what it stands for.
            notes.list.truncate(position.max(notes.list.len() - 1));
        }
        if !notes.is_full() {
            let what = Noted::Label(text);
            let stands = Stands::UntilRetracted(number);
            notes.list.insert(position, Note { what, stands });
        }
    });
    number
}

/// Removes a label, if it belongs to the poll that is under way.
#[cold]
pub(crate) fn retract_label(number: u64) {
    edit(|notes| notes.retain(|note| note.stands != Stands::UntilRetracted(number)));
}

/// Removes the notes behind a position.
#[cold]
pub(crate) fn forget(position: usize) {
    edit(|notes| notes.list.truncate(position.max(notes.base)));
}

/// Edits the notes; `None` while thread-locals are destroyed. `edit` calls no user code.
fn edit<R>(edit: impl FnOnce(&mut Notes) -> R) -> Option<R> {
    NOTES.try_with(|notes| edit(&mut notes.borrow_mut())).ok()
}
