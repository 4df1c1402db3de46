//! What the current thread is to this crate, in plain cells.
//!
//! - A read is one load: the cells have no destructor, so they can also be read while thread-locals
//!   are destroyed.
//! - They mirror [`context`](crate::event_loop::context), which owns the loop of a thread and writes them.

use std::cell::Cell;
use std::task::Waker;

use crate::event_loop::budget;
use crate::event_loop::place::Place;
use crate::sync::thread_local;
use crate::task_id::TaskId;

struct ThisThread {
    /// Number of the loop that runs on this thread; zero if there is none.
    home: Cell<u32>,
    /// Index of that loop, until its context is destroyed: then a wait does not block it.
    index: Cell<Option<usize>>,
    /// Identifies the waker that this crate polls with: our own wakers never panic. Its data pointer, plus
    /// `meta_offset`; zero if there is none.
    own_waker: Cell<usize>,
    exit: Cell<Exit>,
    /// The id of the task that is polled, or was polled last; zero if it is none of ours.
    task: Cell<[u32; 2]>,
    /// How the next poll of a task differs from others.
    special: Cell<Option<SpecialPoll>>,
    /// The place of the loop that runs on this thread, and again if the loop has no limit on its queue and no
    /// recorder: then its tasks are counted, and nothing more.
    place: Cell<Option<&'static Place>>,
    unlimited_place: Cell<Option<&'static Place>>,
    /// The distance of the metadata of a task from its address.
    meta_offset: Cell<usize>,
    /// Whether tasks that are woken here go to the run queue.
    wakes_to_run: Cell<bool>,
    /// Whether the loop that runs on this thread has a recorder.
    records: Cell<bool>,
    /// Whether leaves note what they wait for: the loop that runs on this thread lists its tasks.
    notes_waits: Cell<bool>,
}

/// How a poll of a task differs from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpecialPoll {
    /// The future is dropped instead.
    Cancel(CancelReason),
    /// If it is the last one, the loop takes a note.
    NoteEnd,
    /// The loop shows what is polled.
    Shown,
}

/// Why a task is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// By its handle.
    Aborted,
    /// It is a scheduled closure, and a shutdown has ended the schedule.
    Unscheduled,
    /// Its loop has ended.
    Ended,
    /// Its loop has refused it.
    Refused,
}

/// Whether this thread is about to stop being a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    No,
    /// The loop with this index has left the thread, but has not notified all observers of its end.
    Loop(usize),
    /// The thread was started by this crate and has nothing left to do.
    Thread,
}

impl ThisThread {
    fn key_of(&self, waker: &Waker) -> usize {
        waker.data().addr().wrapping_add(self.meta_offset.get())
    }
}

thread_local! {
    static THIS: ThisThread = const {
        ThisThread {
            home: Cell::new(0),
            index: Cell::new(None),
            own_waker: Cell::new(0),
            exit: Cell::new(Exit::No),
            task: Cell::new([0; 2]),
            special: Cell::new(None),
            place: Cell::new(None),
            unlimited_place: Cell::new(None),
            meta_offset: Cell::new(0),
            wakes_to_run: Cell::new(false),
            records: Cell::new(false),
            notes_waits: Cell::new(false),
        }
    };
}

/// Notes that the loop with this number, index and place runs on this thread, and whether it is recorded.
pub(crate) fn set_loop(
    home: u32,
    index: usize,
    place: &'static Place,
    meta_offset: usize,
    records: bool,
) {
    THIS.with(|this| {
        // From zero to what it is, once in the life of a thread; a wait around this loop may have noted its
        // waker.
        if this.meta_offset.replace(meta_offset) == 0 && this.own_waker.get() != 0 {
            this.own_waker.set(this.own_waker.get() + meta_offset);
        }
        this.home.set(home);
        this.index.set(Some(index));
        this.place.set(Some(place));
        // A spawn looks at the loop if there is a limit, or if it is recorded.
        let limited = place.counters.limit.is_set() || records;
        this.unlimited_place.set((!limited).then_some(place));
        this.records.set(records);
    });
}

/// Notes that no loop runs on this thread.
pub(crate) fn clear_loop() {
    THIS.with(|this| {
        this.home.set(0);
        this.index.set(None);
        this.place.set(None);
        this.unlimited_place.set(None);
        this.records.set(false);
        this.notes_waits.set(false);
    });
}

/// Returns the place of the loop that runs on this thread.
#[inline]
pub(crate) fn place() -> Option<&'static Place> {
    THIS.with(|this| this.place.get())
}

/// Returns the place of the loop that runs on this thread, if it has neither a limit on its queue nor a
/// recorder.
#[inline]
pub(crate) fn unlimited_place() -> Option<&'static Place> {
    THIS.with(|this| this.unlimited_place.get())
}

/// Returns the number of the loop that runs on this thread; zero if there is none.
#[inline]
pub(crate) fn home() -> u32 {
    THIS.with(|this| this.home.get())
}

/// Sets whether tasks that are woken here go to the run queue.
pub(crate) fn set_wakes_to_run(to_run: bool) {
    THIS.with(|this| this.wakes_to_run.set(to_run));
}

/// Whether tasks that are woken here go to the run queue.
#[inline]
pub(crate) fn wakes_to_run() -> bool {
    THIS.with(|this| this.wakes_to_run.get())
}

/// Whether the loop that runs on this thread has a recorder.
#[inline]
pub(crate) fn records() -> bool {
    THIS.with(|this| this.records.get())
}

/// Sets whether leaves note what they wait for.
pub(crate) fn set_notes_waits(notes: bool) {
    THIS.with(|this| this.notes_waits.set(notes));
}

/// Whether leaves note what they wait for.
#[inline]
pub(crate) fn notes_waits() -> bool {
    THIS.with(|this| this.notes_waits.get())
}

/// Notes that the loop's context is destroyed: a task has called `exit`.
pub(crate) fn context_destroyed() {
    // A model destroys its thread-locals in any order; elsewhere these cells are never destroyed.
    // It is still the home of its tasks, which are not submitted to it from here any more.
    let _ = THIS.try_with(|this| {
        this.index.set(None);
        this.place.set(None);
        this.unlimited_place.set(None);
        this.wakes_to_run.set(false);
        this.records.set(false);
        this.notes_waits.set(false);
    });
}

/// Whether the loop with this number runs on this thread.
#[inline]
pub(crate) fn is_home(home: u32) -> bool {
    self::home() == home
}

/// Whether a loop runs on this thread.
#[inline]
pub(crate) fn is_loop() -> bool {
    home() != 0
}

/// Panics on the thread of a loop, also while the loop announces its end: a wait there would block the loop.
#[track_caller]
pub(crate) fn refuse_on_loop(what: &str) {
    let instead = "Await the future instead, or move the waiting to another thread with \
                   loopgroup::blocking::unblock";
    refuse_on_loop_with(what, instead);
}

/// As [`refuse_on_loop`], with what to do instead.
#[track_caller]
pub(crate) fn refuse_on_loop_with(what: &str, instead: &str) {
    let index = THIS.with(|this| match this.exit.get() {
        Exit::Loop(index) => this.index.get().or(Some(index)),
        Exit::No | Exit::Thread => this.index.get(),
    });
    if let Some(index) = index {
        panic!(
            "{what} was called on the thread of event loop {index}: it would block the loop and \
             every task on it, and deadlock if it waits for one of them. {instead}"
        );
    }
}

/// Notes that loop `index` ends on this thread, until the guard is dropped: its observers must not
/// wait for it here.
pub(crate) fn end_loop(index: usize) -> EndGuard {
    EndGuard(THIS.with(|this| this.exit.replace(Exit::Loop(index))))
}

/// Restores what the thread was before [`end_loop`].
#[derive(Debug)]
pub(crate) struct EndGuard(Exit);

impl Drop for EndGuard {
    fn drop(&mut self) {
        THIS.with(|this| this.exit.set(self.0));
    }
}

/// Notes that this thread, which the crate has started, is about to exit.
pub(crate) fn leave() {
    THIS.with(|this| this.exit.set(Exit::Thread));
}

/// Whether this thread was started by the crate and is about to exit: a thread that joins it is
/// waiting already.
pub(crate) fn is_leaving() -> bool {
    THIS.with(|this| this.exit.get()) == Exit::Thread
}

/// Notes the waker that a future is about to be polled with, which is one of this crate's own.
#[inline]
pub(crate) fn note_own_waker(waker: &Waker) {
    THIS.with(|this| this.own_waker.set(this.key_of(waker)));
}

/// Notes that the poll has ended: the waker may be freed and its address be reused.
#[inline]
pub(crate) fn forget_own_waker() {
    THIS.with(|this| this.own_waker.set(0));
}

/// Notes the task that is about to be polled, by its id and the address of its metadata.
#[inline]
pub(crate) fn set_task(id: [u32; 2], meta: usize) {
    THIS.with(|this| {
        this.task.set(id);
        this.own_waker.set(meta);
    });
}

/// Notes that no task is about to be polled.
pub(crate) fn set_no_task() {
    THIS.with(|this| this.task.set([0; 2]));
}

/// Notes the closure that is about to be called, which is a task with this id, until [`forget_own_waker`].
#[inline]
pub(crate) fn enter_closure(id: TaskId) {
    // A closure has no waker: nothing is at this address.
    set_task(id.to_halves(), 1);
}

/// Saves what is noted of the poll that is under way, for another one inside of it.
pub(crate) fn save_poll() -> SavedPoll {
    THIS.with(|this| SavedPoll {
        task: this.task.get(),
        own_waker: this.own_waker.replace(0),
    })
}

/// Guard of [`save_poll`]: restores it.
#[derive(Debug)]
pub(crate) struct SavedPoll {
    task: [u32; 2],
    own_waker: usize,
}

impl Drop for SavedPoll {
    fn drop(&mut self) {
        // A model destroys its thread-locals in any order.
        let _ = THIS.try_with(|this| {
            this.task.set(self.task);
            this.own_waker.set(self.own_waker);
        });
    }
}

/// Returns the id of the task that was polled last.
pub(crate) fn last_task() -> Option<TaskId> {
    TaskId::from_halves(THIS.with(|this| this.task.get()))
}

/// Returns the id of the task that is being polled.
pub(crate) fn task() -> Option<TaskId> {
    let polled = THIS.with(|this| this.own_waker.get() != 0);
    polled.then(last_task).flatten()
}

/// Sets how the next poll of a task differs from others.
pub(crate) fn set_special_poll(special: Option<SpecialPoll>) {
    THIS.with(|this| this.special.set(special));
}

/// Whether the poll that begins differs from others.
#[inline]
pub(crate) fn is_special_poll() -> bool {
    THIS.with(|this| this.special.get().is_some())
}

/// Returns how the poll that begins differs from others; a poll inside of this one does not.
pub(crate) fn take_special_poll() -> Option<SpecialPoll> {
    THIS.with(|this| this.special.take())
}

/// Whether this is the waker that this crate polls with.
pub(crate) fn is_own_waker(waker: &Waker) -> bool {
    !waker.data().is_null() && THIS.with(|this| this.own_waker.get() == this.key_of(waker))
}

/// Notes a waker, and starts a budget, for as long as this lives: for a poll whose panics unwind to
/// its caller.
pub(crate) struct OwnWaker {
    _budget: budget::BudgetGuard,
}

impl OwnWaker {
    pub(crate) fn note(waker: &Waker) -> OwnWaker {
        note_own_waker(waker);
        set_no_task();
        OwnWaker {
            _budget: budget::enter(),
        }
    }
}

impl Drop for OwnWaker {
    fn drop(&mut self) {
        forget_own_waker();
    }
}
