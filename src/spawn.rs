//! Spawning on the current loop, or in the group of the current thread.
//!
//! Without a context the short forms panic, at the caller's location and with a message that says what
//! is missing; the `try_` forms return the future.

use std::future::Future;
use std::panic::Location;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::context;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::event_loop::lifecycle;
use crate::event_loop::run_queue;
use crate::group::core::GroupCore;
use crate::group::entered::{entered_group, no_context};
use crate::group::spawn::Refused;
use crate::site::Site;
use crate::sync::Arc;
use crate::task;
use crate::task::join::JoinHandle;
use crate::task::origin::Origin;
use crate::this_thread;

/// Spawns a future on the next loop of the current group: that of this loop, or of `group.block_on`.
///
/// A rejection is reported by the handle. For a future that is not `Send` see [`spawn_local`].
///
/// # Panics
///
/// If the thread is neither a loop nor inside `group.block_on`; see [`try_spawn`].
///
/// # Examples
///
/// ```
/// let group = loopgroup::EventLoopGroup::new(2)?;
/// let answer = group.block_on(async { loopgroup::spawn(async { 42 }).await });
/// assert_eq!(answer.unwrap(), 42);
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static, // not Send? see spawn_local
    F::Output: Send + 'static,
{
    // The chooser is user code: it is called with no borrow of the context.
    if let Some(local) = context::current() {
        let core = GroupCore::of(&local);
        if let [only] = &*core.loops {
            return only.spawn(future); // there is no choice
        }
        let spawned = core.spawn(future, Location::caller());
        return spawned.unwrap_or_else(Refused::into_handle);
    }
    match entered_group() {
        Some(group) => group.spawn(future),
        None => no_context("spawn"),
    }
}

/// Spawns a future on the next loop of the current group, or returns it.
///
/// # Errors
///
/// [`Rejected`] carries the future and the reason, [`NoContext`](RejectReason::NoContext) if the
/// thread is neither a loop nor inside `group.block_on`.
///
/// # Examples
///
/// ```
/// use loopgroup::RejectReason;
///
/// let rejected = loopgroup::try_spawn(async {}).unwrap_err();
/// assert_eq!(rejected.reason(), RejectReason::NoContext);
/// ```
#[track_caller]
pub fn try_spawn<F>(future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if let Some(local) = context::current() {
        let spawned = GroupCore::of(&local).spawn(future, Location::caller());
        return spawned.map_err(Refused::into_rejected);
    }
    match entered_group() {
        Some(group) => group.try_spawn(future),
        None => Err(Rejected::new(future, RejectReason::NoContext)),
    }
}

/// Spawns a future without a handle on the next loop of the current group, or returns it.
///
/// See [`EventLoop::spawn_detached`](crate::EventLoop::spawn_detached).
///
/// # Errors
///
/// [`Rejected`] carries the future and the reason, [`NoContext`](RejectReason::NoContext) if the
/// thread is neither a loop nor inside `group.block_on`.
///
/// # Examples
///
/// ```
/// use loopgroup::RejectReason;
///
/// let group = loopgroup::EventLoopGroup::new(2)?;
/// let (tx, rx) = futures::channel::oneshot::channel();
/// group.block_on(async {
///     loopgroup::spawn_detached(async { tx.send(7).unwrap() }).unwrap();
///     assert_eq!(rx.await, Ok(7));
/// });
/// let rejected = loopgroup::spawn_detached(async {}).unwrap_err();
/// assert_eq!(rejected.reason(), RejectReason::NoContext);
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn spawn_detached<F>(future: F) -> Result<(), Rejected<F>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn_detached_from(future, Location::caller())
}

/// As [`spawn_detached`], for a task of this origin.
pub(crate) fn spawn_detached_from<F>(
    future: F,
    origin: impl Origin + Clone + Send + 'static,
) -> Result<(), Rejected<F>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // The chooser is user code: it is called with no borrow of the context.
    if let Some(local) = context::current() {
        return GroupCore::of(&local).spawn_detached(future, origin);
    }
    match entered_group() {
        Some(group) => group.core().spawn_detached(future, origin),
        None => Err(Rejected::new(future, RejectReason::NoContext)),
    }
}

/// Spawns a future on the current loop; it need not be `Send`.
///
/// A rejection is reported by the handle.
///
/// # Panics
///
/// If the thread is not a loop; see [`try_spawn_local`].
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
///
/// let length = loopgroup::run(async {
///     let text = Rc::new("loop");
///     loopgroup::spawn_local(async move { text.len() }).await.unwrap()
/// })?;
/// assert_eq!(length, 4);
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    spawn_local_from(future, Site::of(Location::caller()))
}

/// As [`spawn_local`], for a task of this origin.
#[track_caller]
pub(crate) fn spawn_local_from<F>(future: F, origin: impl Origin + 'static) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    if let Some(place) = this_thread::unlimited_place() {
        if lifecycle::is_open(place.shown.get()) {
            let (runnable, task) = task::new_local(this_thread::home(), future, origin);
            place.counters.accept_local();
            run_queue::push(runnable);
            return JoinHandle::new(task);
        }
    }
    enqueue_or_refuse(future, origin)
}

/// Spawns a future on a loop that is closed or has a limit, or refuses it through its handle.
#[cold]
#[inline(never)]
#[track_caller]
fn enqueue_or_refuse<F>(future: F, origin: impl Origin + 'static) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let site = origin.site();
    let Some(home) = context::with_local(|local| Arc::clone(&local.shared)) else {
        no_context("spawn_local")
    };
    let made = task::new_local_listed(&home, future, origin);
    JoinHandle::queue(&home, made, Lane::Main, Urgency::Now, || site.location())
}

/// Spawns a future on the current loop, or returns it; it need not be `Send`.
///
/// # Errors
///
/// [`Rejected`] carries the future and the reason, [`NoContext`](RejectReason::NoContext) if the
/// thread is not a loop.
///
/// # Examples
///
/// ```
/// use loopgroup::RejectReason;
///
/// let rejected = loopgroup::try_spawn_local(async {}).unwrap_err();
/// assert_eq!(rejected.reason(), RejectReason::NoContext);
/// ```
#[track_caller]
pub fn try_spawn_local<F>(future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
where
    F: Future + 'static,
    F::Output: 'static,
{
    try_spawn_local_from(future, Location::caller())
}

/// As [`try_spawn_local`], for a task of this origin.
pub(crate) fn try_spawn_local_from<F>(
    future: F,
    origin: impl Origin + 'static,
) -> Result<JoinHandle<F::Output>, Rejected<F>>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let location = origin.location();
    let Some(home) = context::with_local(|local| Arc::clone(&local.shared)) else {
        return Err(Rejected::new(future, RejectReason::NoContext));
    };
    let mut future = Some(future);
    let mut made = None;
    let queued = home.enqueue(Lane::Main, Urgency::Now, || {
        let future = future.take().expect("the task is created once");
        let (runnable, task) = task::new_local_listed(&home, future, origin);
        made = Some(task);
        runnable
    });
    match (queued, made, future) {
        (Err(reason), _, Some(future)) => {
            home.note_refusal(reason, location);
            Err(Rejected::new(future, reason))
        }
        (_, Some(task), _) => Ok(JoinHandle::new(task)),
        (_, None, _) => unreachable!("a future that was taken has become a task"),
    }
}
