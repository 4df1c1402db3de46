//! Which loop, or which group, the current thread works for.
//!
//! - At most one [`Local`] per thread; it is set before the first poll and taken away after the last
//!   drop. It is put aside while another loop ends on its thread ([`step_out`]).
//! - Access is by `try_with`: while thread-locals are destroyed, a thread is foreign. ([`enter_loop`]
//!   is not: nobody makes a thread a loop that late; see [`may_be_loop`].)
//! - Which loop it is can be told without touching the cell: its address stands beside it, for as long as it
//!   is set.
//! - The cell is borrowed for a look or a push; who wants to call user code takes a clone of the `Rc`.
//! - A thread inside `group.block_on` has a group but no loop; the loop, if there is one, wins.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::task::Waker;

use crate::event_loop::budget;
use crate::event_loop::inbox::Sender;
use crate::event_loop::local::Local;
use crate::event_loop::shared::Shared;
use crate::group::EventLoopGroup;
use crate::panic::{PanicSite, Payload, contain, discard};
use crate::sync::{Arc, thread_local};
use crate::task::Runnable;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
    /// The loop's shared half, by its address: to be compared with, at the price of one load.
    static HOME: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    /// The data of the waker that this crate polls with right now: an address that nothing else has meanwhile.
    static OWN_WAKER: Cell<*const ()> = const { Cell::new(ptr::null()) };
    static ENTERED: RefCell<Vec<EventLoopGroup>> = const { RefCell::new(Vec::new()) };
    static PARTING: Cell<Parting> = const { Cell::new(Parting::No) };
    /// The loop that has refused the task which is being dropped right now.
    static REFUSED_BY: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Whether this thread is on its way out of being a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    No,
    /// The loop with this index ends here right now, and is none any more, but has not told everybody.
    Loop(usize),
    /// The crate has started this thread, and it has nothing left to do.
    Thread,
}

/// Makes this thread the loop's, until the guard is dropped.
///
/// Returns `None` if the thread is a loop already.
pub(crate) fn enter_loop(local: &Rc<Local>) -> Option<LoopGuard> {
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        if current.is_some() {
            return None;
        }
        *current = Some(Rc::clone(local));
        HOME.set(Arc::as_ptr(&local.shared));
        Some(LoopGuard {
            refused_by: set_refused_by(None),
            _budget: budget::begin(),
        })
    })
}

/// Ends the thread's time as a loop.
#[derive(Debug)]
pub(crate) struct LoopGuard {
    /// A task that is refused may run a loop in its destructor, and that loop's tasks are not refused.
    refused_by: Option<Arc<Shared>>,
    /// Whoever runs a loop inside `block_on` does not pay for it.
    _budget: budget::Outer,
}

impl Drop for LoopGuard {
    fn drop(&mut self) {
        HOME.set(ptr::null());
        let local = CURRENT.try_with(RefCell::take);
        drop(local);
        drop(set_refused_by(self.refused_by.take()));
    }
}

/// Whether this thread can become a loop: it is none, and its thread-locals are still there.
pub(crate) fn may_be_loop() -> bool {
    CURRENT
        .try_with(|current| current.borrow().is_none())
        .unwrap_or(false)
}

/// Makes this thread an ordinary one until the guard is dropped: another loop can come to its end here, and not
/// in the books of this one.
///
/// Returns `None` while thread-locals are destroyed: then nothing can be a loop.
pub(crate) fn step_out() -> Option<Outside> {
    let local = CURRENT.try_with(RefCell::take).ok()?;
    HOME.set(ptr::null());
    Some(Outside { local })
}

/// Makes the thread again what it was.
pub(crate) struct Outside {
    local: Option<Rc<Local>>,
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            let home = Arc::as_ptr(&local.shared);
            if CURRENT
                .try_with(|current| current.replace(Some(local)))
                .is_ok()
            {
                HOME.set(home);
            }
        }
    }
}

/// Makes `group` the group of this thread, until the guard is dropped.
///
/// Returns `None` while thread-locals are destroyed: then there is no context.
pub(crate) fn enter_group(group: &EventLoopGroup) -> Option<GroupGuard> {
    let group = group.clone();
    ENTERED
        .try_with(|entered| entered.borrow_mut().push(group))
        .ok()
        .map(GroupGuard)
}

/// Notes that the loop of this thread ends, until the guard is dropped: whoever is told of it here must not wait
/// for it here.
pub(crate) fn end_loop(index: usize) -> EndGuard {
    let outer = PARTING.get();
    PARTING.set(Parting::Loop(index));
    EndGuard { outer }
}

/// Notes that everybody has been told.
#[derive(Debug)]
pub(crate) struct EndGuard {
    outer: Parting,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        PARTING.set(self.outer);
    }
}

/// The index of the loop that must not stand still: this thread's, to the last word of its end.
pub(crate) fn busy_loop() -> Option<usize> {
    with_local(|local| local.shared.index).or(match PARTING.get() {
        Parting::Loop(index) => Some(index),
        Parting::No | Parting::Thread => None,
    })
}

/// Notes that this thread, which the crate has started, ends now.
pub(crate) fn leave_thread() {
    PARTING.set(Parting::Thread);
}

/// Whether this thread is one of the crate's own and has come to its end: whoever joins it waits for it already.
pub(crate) fn is_leaving() -> bool {
    PARTING.get() == Parting::Thread
}

/// Restores the group that was current before.
#[derive(Debug)]
pub(crate) struct GroupGuard(());

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // The last handle of a group may go here, so it is dropped with the borrow gone.
        let group = ENTERED.try_with(|entered| entered.borrow_mut().pop());
        drop(group);
    }
}

/// The loop of this thread.
pub(crate) fn current() -> Option<Rc<Local>> {
    CURRENT
        .try_with(|current| current.borrow().clone())
        .ok()
        .flatten()
}

/// The group that `group.block_on` made current.
pub(crate) fn entered_group() -> Option<EventLoopGroup> {
    ENTERED
        .try_with(|entered| entered.borrow().last().cloned())
        .ok()
        .flatten()
}

/// Looks at the loop of this thread; `look` must not call user code.
pub(crate) fn with_local<R>(look: impl FnOnce(&Local) -> R) -> Option<R> {
    CURRENT
        .try_with(|current| current.borrow().as_deref().map(look))
        .ok()
        .flatten()
}

/// Looks at the loop of this thread if it is `shared`'s.
pub(crate) fn with_home<R>(shared: &Arc<Shared>, look: impl FnOnce(&Local) -> R) -> Option<R> {
    is_home(shared).then(|| with_local(look)).flatten()
}

/// Whether this thread is `shared`'s.
pub(crate) fn is_home(shared: &Arc<Shared>) -> bool {
    HOME.get() == Arc::as_ptr(shared)
}

pub(crate) fn is_loop() -> bool {
    !HOME.get().is_null()
}

/// Notes the waker that a future is about to be polled with, which is one of this crate's own.
#[inline]
pub(crate) fn note_own_waker(waker: &Waker) {
    OWN_WAKER.set(waker.data());
}

/// Notes that the poll is over: the waker may go, and its address to another.
#[inline]
pub(crate) fn forget_own_waker() {
    OWN_WAKER.set(ptr::null());
}

/// A waker that is noted, and a budget that counts, for as long as this lives: for a poll whose panic is
/// its caller's.
pub(crate) struct OwnWaker {
    _budget: budget::Outer,
}

impl OwnWaker {
    pub(crate) fn note(waker: &Waker) -> OwnWaker {
        note_own_waker(waker);
        OwnWaker {
            _budget: budget::begin(),
        }
    }
}

impl Drop for OwnWaker {
    fn drop(&mut self) {
        forget_own_waker();
    }
}

/// Whether this is the waker that this crate polls with, which does not panic.
pub(crate) fn is_own_waker(waker: &Waker) -> bool {
    !waker.data().is_null() && OWN_WAKER.get() == waker.data()
}

/// Drops a task that `shared` has refused: it is not counted, and a panic of its destructor is
/// `shared`'s to report.
pub(crate) fn drop_refused(shared: &Arc<Shared>, runnable: Runnable) {
    let outer = set_refused_by(Some(Arc::clone(shared)));
    // User code: the future's destructor, contained by the harness. Nothing is held.
    drop(runnable);
    drop(set_refused_by(outer));
}

/// Notes who refuses what is dropped from here on, and returns who did so far.
fn set_refused_by(by: Option<Arc<Shared>>) -> Option<Arc<Shared>> {
    REFUSED_BY
        .try_with(|refused_by| refused_by.replace(by))
        .ok()
        .flatten()
}

/// The loop that has refused the task which is being dropped right now.
pub(crate) fn refused_by() -> Option<Arc<Shared>> {
    REFUSED_BY
        .try_with(|refused_by| refused_by.borrow().clone())
        .ok()
        .flatten()
}

/// Wakes wakers of the user's: none that panics keeps the others from their news.
pub(crate) fn wake_foreign(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if let Err(payload) = contain(|| waker.wake()) {
            report_waker(payload);
        }
    }
}

/// Wakes whoever is next at a socket: I/O work, if it is a task of this loop, and not to wait behind other work.
pub(crate) fn wake_for_io(waker: Option<Waker>) {
    match (waker, current()) {
        (None, _) => {}
        (Some(waker), Some(local)) => local.wake_ready(&mut vec![waker]),
        (waker, None) => wake_foreign(waker),
    }
}

/// Reports the panic of a foreign waker to the loop of this thread, if it is one.
#[cold]
pub(crate) fn report_waker(payload: Payload) {
    let local = current();
    let home = local.as_ref().map(|local| &*local.shared);
    Shared::report_panic_of(home, PanicSite::Waker, &*payload, None);
    discard(payload);
}

/// Who this thread is to `home`, whose task it wakes; a sibling counts it.
pub(crate) fn sender_to(home: &Shared) -> Sender {
    let sibling = with_local(|local| {
        let sibling = ptr::eq(home.core.as_ptr(), Arc::as_ptr(&local.core));
        if sibling {
            local.shared.gauges.sent(home.index, local.core.loops.len());
        }
        sibling
    });
    match sibling {
        Some(true) => Sender::Sibling,
        Some(false) | None => Sender::Outside,
    }
}

/// Puts a woken task on the plain queue of its home, if this thread is its home.
pub(crate) fn wake_at_home(runnable: Runnable) -> Result<(), Runnable> {
    if !is_home(&runnable.metadata().home) {
        return Err(runnable);
    }
    let mut runnable = Some(runnable);
    // The address stands as long as the loop does, but a task may end the process: then this thread's locals are
    // destroyed around its loop, and one that is destroyed later may wake.
    let _ = CURRENT.try_with(|current| {
        if let Some(local) = &*current.borrow() {
            if let Some(runnable) = runnable.take() {
                local.push_wake(runnable);
            }
        }
    });
    runnable.map_or(Ok(()), Err)
}
