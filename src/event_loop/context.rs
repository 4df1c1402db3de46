//! The loop that runs on the current thread.
//!
//! - At most one [`Local`] per thread; it is set before the first poll and taken away after the
//!   last drop. It is put aside while another loop ends on its thread ([`step_out`]).
//! - While thread-locals are destroyed, a thread has no loop, and does not become one any more
//!   ([`may_be_loop`]).
//! - Whether a loop is this thread's is answered by [`this_thread`], without the cell.
//! - The cell is borrowed for a read or a push; a function that calls user code takes a clone of the `Rc`.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::rc::Rc;
use std::task::Waker;

use crate::event_loop::budget;
use crate::event_loop::inbox::WakeSender;
use crate::event_loop::local::{Local, cancel_task};
use crate::event_loop::run_queue::{self, RunQueue};
use crate::event_loop::shared::{Runnable, Shared, meta_offset};
use crate::event_loop::tracker::WakeSource;
use crate::panic::PanicReporter;
use crate::recorder::event::WakeCause;
use crate::sim::SimulatedHost;
use crate::sync::{Arc, thread_local};
use crate::this_thread::{self, CancelReason};

struct LoopHere {
    current: RefCell<Option<Rc<Local>>>,
    /// The loop that has refused the task which is being dropped.
    refused_by: RefCell<Option<Arc<Shared>>>,
}

/// Drops what [`HERE`] holds when the thread-locals of the thread are destroyed.
struct Cleaner;

impl Drop for Cleaner {
    fn drop(&mut self) {
        // If there is a loop, one of its tasks has called `exit`: a wait in a later thread-local destructor
        // does not block it.
        let local = HERE.try_with(|here| here.current.take());
        if let Ok(Some(local)) = &local {
            park_queue(local);
        }
        this_thread::context_destroyed();
        drop(local);
    }
}

thread_local! {
    /// Has no destructor of its own: a read need not ask whether it is destroyed.
    static HERE: ManuallyDrop<LoopHere> = const {
        ManuallyDrop::new(LoopHere {
            current: RefCell::new(None),
            refused_by: RefCell::new(None),
        })
    };
    static CLEANER: Cleaner = const { Cleaner };
}

/// Makes `local` the loop of this thread, and its queue that of the thread.
fn show(local: &Local) {
    run_queue::replace(local.away.take());
    let shared = &local.shared;
    let offset = meta_offset();
    this_thread::set_loop(
        shared.number.get(),
        shared.index,
        shared.place.get(),
        offset,
        local.observer.records(),
    );
    this_thread::set_wakes_to_run(local.wakes_to_run());
    this_thread::set_notes_waits(shared.tracker.is_some());
}

/// Gives the loop of this thread its queue back.
fn park_queue(local: &Local) {
    local.away.replace(run_queue::replace(RunQueue::default()));
}

/// Makes this thread the loop's, until the guard is dropped.
///
/// Returns `None` if the thread is a loop already.
pub(crate) fn enter_loop(local: &Rc<Local>) -> Option<LoopGuard> {
    CLEANER.with(|_| ());
    HERE.with(|here| {
        let mut current = here.current.borrow_mut();
        if current.is_some() {
            return None;
        }
        *current = Some(Rc::clone(local));
        show(local);
        Some(LoopGuard {
            _poll: this_thread::save_poll(),
            refused_by: here.refused_by.take(),
            _budget: budget::enter(),
        })
    })
}

/// Ends the thread's time as a loop.
#[derive(Debug)]
pub(crate) struct LoopGuard {
    /// The loop may be inside of a poll by another one, or by `block_on`.
    _poll: this_thread::SavedPoll,
    /// A refused task may run a loop in its destructor; tasks of that loop are not refused.
    refused_by: Option<Arc<Shared>>,
    /// A loop inside `block_on` does not spend the budget of the future that runs it.
    _budget: budget::BudgetGuard,
}

impl Drop for LoopGuard {
    fn drop(&mut self) {
        this_thread::clear_loop();
        if let Ok(Some(local)) = HERE.try_with(|here| here.current.take()) {
            park_queue(&local);
        }
        drop(set_refused_by(self.refused_by.take()));
    }
}

/// Whether this thread can become a loop: it is none, and its thread-locals are not destroyed yet.
pub(crate) fn may_be_loop() -> bool {
    CLEANER.try_with(|_| ()).is_ok() && HERE.with(|here| here.current.borrow().is_none())
}

/// Makes this thread an ordinary one until the guard is dropped: another loop can end here, and not
/// in the counters of this one.
///
/// Returns `None` while thread-locals are destroyed: then no loop can run here.
pub(crate) fn step_out() -> Option<Outside> {
    CLEANER.try_with(|_| ()).ok()?;
    let local = HERE.with(|here| here.current.take());
    this_thread::clear_loop();
    local.as_deref().inspect(|local| park_queue(local));
    Some(Outside {
        local,
        _poll: this_thread::save_poll(),
    })
}

/// Restores the loop of the thread.
pub(crate) struct Outside {
    local: Option<Rc<Local>>,
    _poll: this_thread::SavedPoll,
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            show(&local);
            let _ = HERE.try_with(|here| here.current.replace(Some(local)));
        }
    }
}

/// Returns the loop of this thread.
pub(crate) fn current() -> Option<Rc<Local>> {
    HERE.try_with(|here| here.current.borrow().clone())
        .ok()
        .flatten()
}

/// Calls `read` with the loop of this thread; `read` must not call user code.
pub(crate) fn with_local<R>(read: impl FnOnce(&Local) -> R) -> Option<R> {
    HERE.try_with(|here| here.current.borrow().as_deref().map(read))
        .ok()
        .flatten()
}

/// Returns the simulated host of this thread's loop, if it is on one.
pub(crate) fn simulated_host() -> Option<Arc<SimulatedHost>> {
    with_local(|local| local.shared.config.simulated.clone()).flatten()
}

/// As [`with_local`], if the loop of this thread is `shared`'s.
pub(crate) fn with_home<R>(shared: &Arc<Shared>, read: impl FnOnce(&Local) -> R) -> Option<R> {
    is_home(shared).then(|| with_local(read)).flatten()
}

/// Whether the loop of this thread is `shared`'s.
pub(crate) fn is_home(shared: &Shared) -> bool {
    this_thread::is_home(shared.number.get())
}

/// Drops a task that `shared` has refused: it is not counted, and `shared` reports a panic of its destructor.
pub(crate) fn drop_refused(shared: &Arc<Shared>, runnable: Runnable) {
    let outer = set_refused_by(Some(Arc::clone(shared)));
    let id = runnable.metadata().try_id();
    // User code: the future's destructor, contained by the harness. Nothing is held.
    cancel_task(runnable, CancelReason::Refused);
    if let (Some(tracker), Some(id)) = (&shared.tracker, id) {
        tracker.remove(id);
    }
    drop(set_refused_by(outer));
}

/// Notes the loop that refuses the tasks dropped from here on, and returns the previous one.
fn set_refused_by(by: Option<Arc<Shared>>) -> Option<Arc<Shared>> {
    HERE.try_with(|here| here.refused_by.replace(by))
        .ok()
        .flatten()
}

/// Returns the loop that has refused the task which is being dropped.
pub(crate) fn refused_by() -> Option<Arc<Shared>> {
    HERE.try_with(|here| here.refused_by.borrow().clone())
        .ok()
        .flatten()
}

/// Reports panics of wakers and callbacks on this thread: through its loop, or on stderr.
pub(crate) fn panics() -> PanicReporter {
    with_local(|local| local.shared.panics.clone()).unwrap_or(PanicReporter::STDERR)
}

/// Reports panics of destructors on this thread: through the loop that refused a task, or as
/// [`panics`].
pub(crate) fn panics_in_drop() -> PanicReporter {
    refused_by().map_or_else(panics, |shared| shared.panics.clone())
}

/// Wakes the next waiter of a socket: I/O work, ahead of other work, if it is a task of this loop.
pub(crate) fn wake_for_io(waker: Option<Waker>) {
    match (waker, current()) {
        (None, _) => {}
        (Some(waker), Some(local)) => local.wake_ready(&mut vec![waker]),
        (waker, None) => panics().wake_all(waker),
    }
}

/// Says what this thread is to `home`, whose task with this id it wakes; a sibling counts the wake.
pub(crate) fn sender_to(home: &Shared, id: [u32; 2]) -> WakeSender {
    let sibling = with_local(|local| {
        let sender = &local.shared;
        local.observer.woke(id, WakeCause::Loop);
        let sibling = ptr::addr_eq(Arc::as_ptr(&home.parent), Arc::as_ptr(&sender.parent));
        if sibling {
            sender
                .gauges
                .sent(home.index, sender.config.thread_names.len());
        }
        sibling
    });
    match sibling {
        Some(true) => WakeSender::Sibling,
        Some(false) | None => WakeSender::Outside,
    }
}

/// Notes that a task with this id is about to be queued on another loop, if this one has a recorder.
#[inline]
pub(crate) fn record_spawn(id: [u32; 2]) {
    if this_thread::records() {
        with_local(|local| local.observer.spawned(id));
    }
}

/// Notes that a connection was accepted, if the loop of this thread has a recorder.
pub(crate) fn record_accept() {
    if this_thread::records() {
        with_local(|local| local.observer.accepted());
    }
}

/// Says what this thread is to `home`, for the record of the task that it wakes.
pub(crate) fn wake_source(home: &Shared) -> WakeSource {
    let sibling = with_local(|local| {
        let sender = &local.shared;
        let sibling = ptr::addr_eq(Arc::as_ptr(&home.parent), Arc::as_ptr(&sender.parent));
        sibling.then_some(WakeSource::Loop(sender.index))
    });
    sibling.flatten().unwrap_or(WakeSource::Outside)
}

/// Puts a woken task on the plain queue of its home, if this thread is its home.
pub(crate) fn wake_at_home(runnable: Runnable) -> Result<(), Runnable> {
    if !this_thread::is_home(runnable.metadata().home()) {
        return Err(runnable);
    }
    if this_thread::wakes_to_run() {
        run_queue::push_woken(runnable);
        return Ok(());
    }
    push_wake(runnable)
}

/// Queues a task that the reactor or a timer has woken.
#[inline(never)]
fn push_wake(runnable: Runnable) -> Result<(), Runnable> {
    // A task may call `exit`: then the thread-locals are destroyed around the loop, and one that is
    // destroyed later may wake a task.
    let mut runnable = Some(runnable);
    with_local(|local| {
        runnable
            .take()
            .into_iter()
            .for_each(|one| local.push_wake(one))
    });
    runnable.map_or(Ok(()), Err)
}
