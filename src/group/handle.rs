//! The user's handle to a group: cheap to clone, and counted.
//!
//! - User handles share a [`HandleToken`]; dropping the last one *requests* a shutdown and never blocks or
//!   joins, so it may happen anywhere, also on one of the group's own loops.
//! - The loop threads own the core: it outlives the token until the last loop has ended.
//! - A loop holds its group weakly, so there is no cycle.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::io;
use std::panic::Location;
use std::time::Duration;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::handle::EventLoop;
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::{self, DrainScope, ShutdownRequest};
use crate::group::core::{GroupCore, HandleToken};
use crate::group::spawn::Refused;
use crate::sync::Arc;
use crate::task::join::JoinHandle;
use crate::termination::TerminationFuture;

/// A group of event loops: each one thread, each the home of its tasks.
///
/// It is a handle: clones share the group. Dropping the last one requests a graceful shutdown with no
/// quiet period and returns at once: queued tasks still run, but a task that waits, for a timer or
/// for anything else, is cancelled as soon as its loop has nothing to run. To let tasks finish, call
/// [`drain`](EventLoopGroup::drain) and wait for its future.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(2)?;
/// assert_eq!((group.len(), group.is_empty(), group.loops()[1].index()), (2, false, 1));
/// let handles: Vec<_> = (0..4)
///     .map(|n| group.spawn(async move { n * n }))
///     .collect();
/// for (n, handle) in handles.into_iter().enumerate() {
///     assert_eq!(group.block_on(handle).unwrap(), n * n);
/// }
/// let end = group.termination(); // requests nothing
/// assert_eq!(group.shutdown_now().wait().completed(), 4);
/// assert!(group.is_shutting_down() && group.is_shutdown() && group.is_terminated());
/// assert_eq!(end.wait().completed(), 4);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct EventLoopGroup {
    core: Arc<GroupCore>,
    /// Requests the shutdown when the last handle drops it.
    _token: Arc<HandleToken>,
}

impl EventLoopGroup {
    pub(crate) fn from_parts(core: Arc<GroupCore>, token: Arc<HandleToken>) -> EventLoopGroup {
        EventLoopGroup {
            core,
            _token: token,
        }
    }

    pub(crate) fn from_token(token: Arc<HandleToken>) -> EventLoopGroup {
        EventLoopGroup {
            core: Arc::clone(token.core()),
            _token: token,
        }
    }

    /// A handle that looks at the group and does not count as one: the group ends with its other handles.
    #[cfg(feature = "inspect")]
    pub(crate) fn observer(&self) -> EventLoopGroup {
        let token = HandleToken::of_observer(Arc::clone(&self.core));
        EventLoopGroup::from_token(Arc::new(token))
    }

    pub(crate) fn core(&self) -> &Arc<GroupCore> {
        &self.core
    }

    /// Whether the loops have selectors.
    pub(crate) fn has_io(&self) -> bool {
        let mut loops = self.core.loops.iter();
        loops.all(|one| one.shared().port.table.is_some())
    }

    /// Returns the loop that the chooser picks: the loops in turn, by default.
    ///
    /// A loop that is shutting down alone is skipped while another one is not, and so is a loop that is
    /// [paused](EventLoop::pause).
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let turns: Vec<_> = (0..4).map(|_| group.next().index()).collect();
    /// assert_eq!(turns, [0, 1, 0, 1]);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn next(&self) -> &EventLoop {
        self.core.next()
    }

    /// Returns the loops, in order.
    pub fn loops(&self) -> &[EventLoop] {
        &self.core.loops
    }

    /// Returns the number of loops.
    pub fn len(&self) -> usize {
        self.core.loops.len()
    }

    /// Returns `false`: a group has at least one loop.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Starts the thread of every loop now, instead of on first use.
    ///
    /// # Errors
    ///
    /// The first error, naming the loop; loops that have started keep running, and all stay usable. A loop
    /// that is shut down cannot be started: `BrokenPipe`.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, LoopState};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// group.start()?; // the first submission need not wait for a thread
    /// assert!(group.loops().iter().all(|ev| ev.state() == LoopState::Started));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn start(&self) -> io::Result<()> {
        // Those that an elastic group sets aside start when they are needed.
        let needed = |one: &&EventLoop| !one.shared().is_set_aside();
        for one in self.core.loops.iter().filter(needed) {
            let started = if one.state().is_shutdown() {
                Err(RejectReason::ShutDown)
            } else {
                one.shared().ensure_started()
            };
            started.map_err(|reason| {
                let error = io::Error::from(Rejected::new((), reason));
                io::Error::new(error.kind(), format!("loop {}: {error}", one.index()))
            })?;
        }
        Ok(())
    }

    /// Spawns a future on [`next`](EventLoopGroup::next), or on another loop that accepts if that one closes
    /// meanwhile.
    ///
    /// A rejection is reported by the handle; see [`try_spawn`](EventLoopGroup::try_spawn) to get the future
    /// back. For a future that is not `Send` see [`spawn_with`](EventLoopGroup::spawn_with).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // not Send? spawn_with, or spawn_local
        F::Output: Send + 'static,
    {
        if let [only] = self.loops() {
            return only.spawn(future); // built outside the lock
        }
        let spawned = self.core.spawn(future, Location::caller());
        spawned.unwrap_or_else(Refused::into_handle)
    }

    /// Spawns a future on the loop with this index.
    ///
    /// If there is no such loop the handle resolves to a rejection,
    /// [`NoSuchLoop`](RejectReason::NoSuchLoop).
    #[track_caller]
    pub fn spawn_on<F>(&self, index: usize, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // not Send? loops()[index].spawn_with
        F::Output: Send + 'static,
    {
        match self.core.loops.get(index) {
            Some(one) => one.spawn(future),
            None => self.core.refuse_no_such_loop(future, Location::caller()),
        }
    }

    /// Creates a future on the next loop and runs it there; it need not be `Send`.
    ///
    /// `init` is sent to the loop and the output of the future is sent back: both must be `Send`. A rejection
    /// is reported by the handle.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc};
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let handle = group.spawn_with(|| {
    ///     let local = Rc::new(Cell::new(1)); // never leaves the loop
    ///     async move {
    ///         loopgroup::yield_now().await;
    ///         local.set(local.get() + 1);
    ///         local.get()
    ///     }
    /// });
    /// assert_eq!(group.block_on(handle).unwrap(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_with<I, F>(&self, init: I) -> JoinHandle<F::Output>
    where
        I: FnOnce() -> F + Send + 'static, // what is not Send is made inside of the closure
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let spawned = self.core.spawn_with(init, Location::caller());
        spawned.unwrap_or_else(Refused::into_handle)
    }

    /// Spawns a future on the loop that `key` belongs to: the same one for the group's whole life.
    ///
    /// Another group, or another run of the program, may assign the key to another loop. The key stays with
    /// its loop even if that loop is [paused](EventLoop::pause), or shut down alone: then the handle resolves
    /// to a rejection.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoop, EventLoopGroup};
    ///
    /// let group = EventLoopGroup::new(4)?;
    /// let home = || async { EventLoop::current().map(|ev| ev.index()) };
    /// let one = group.block_on(group.spawn_keyed("user 7", home())).unwrap();
    /// let two = group.block_on(group.spawn_keyed("user 7", home())).unwrap();
    /// assert_eq!(one, two);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_keyed<K, F>(&self, key: &K, future: F) -> JoinHandle<F::Output>
    where
        K: Hash + ?Sized,
        F: Future + Send + 'static, // not Send? loop_for(key).spawn_with
        F::Output: Send + 'static,
    {
        self.loop_for(key).spawn(future)
    }

    /// Returns the loop that `key` belongs to: the same one for the group's whole life.
    ///
    /// For a future that is not `Send`: `group.loop_for(&key).spawn_with(..)`.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(4)?;
    /// let home = group.loop_for("room 7");
    /// let task = home.spawn_with(|| async { std::rc::Rc::new(7_u32).count_ones() });
    /// assert_eq!(group.block_on(task).unwrap(), 3);
    /// assert_eq!(group.loop_for("room 7"), home);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn loop_for<K: Hash + ?Sized>(&self, key: &K) -> &EventLoop {
        &self.core.loops[self.core.index_for(key)]
    }

    /// Spawns a future on the next loop, or returns it.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason.
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        F: Future + Send + 'static, // not Send? try_spawn_with
        F::Output: Send + 'static,
    {
        let spawned = self.core.spawn(future, Location::caller());
        spawned.map_err(Refused::into_rejected)
    }

    /// Spawns a future without a handle on the next loop, or hands it back.
    ///
    /// For work from other threads it is cheaper than a spawn whose handle is dropped; see
    /// [`EventLoop::spawn_detached`].
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let (tx, rx) = std::sync::mpsc::channel();
    /// group.spawn_detached(async move { tx.send("done").unwrap() })?;
    /// assert_eq!(rx.recv(), Ok("done"));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_detached<F>(&self, future: F) -> Result<(), Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.core.spawn_detached(future, Location::caller())
    }

    /// Spawns a future on the loop with this index, or hands it back.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason, [`NoSuchLoop`](RejectReason::NoSuchLoop) among them.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, RejectReason};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let task = group.try_spawn_on(1, async { 7 })?;
    /// assert_eq!(group.block_on(task).unwrap(), 7);
    /// let rejected = group.try_spawn_on(2, async { 7 }).unwrap_err();
    /// assert_eq!(rejected.reason(), RejectReason::NoSuchLoop);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_spawn_on<F>(
        &self,
        index: usize,
        future: F,
    ) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        F: Future + Send + 'static, // not Send? loops()[index].try_spawn_with
        F::Output: Send + 'static,
    {
        match self.core.loops.get(index) {
            Some(one) => one.try_spawn(future),
            None => {
                self.core.end.termination.count_rejected();
                Err(Rejected::new(future, RejectReason::NoSuchLoop))
            }
        }
    }

    /// Spawns a future on the loop that `key` belongs to, or hands it back.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason. It does not try another loop: the key would have two.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, RejectReason};
    ///
    /// let group = EventLoopGroup::new(4)?;
    /// let task = group.try_spawn_keyed("user 7", async { 7 })?;
    /// assert_eq!(group.block_on(task).unwrap(), 7);
    /// group.loop_for("user 7").shutdown_now().wait(); // that loop alone
    /// let rejected = group.try_spawn_keyed("user 7", async { 7 }).unwrap_err();
    /// assert_eq!(rejected.reason(), RejectReason::ShutDown);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_spawn_keyed<K, F>(
        &self,
        key: &K,
        future: F,
    ) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        K: Hash + ?Sized,
        F: Future + Send + 'static, // not Send? loop_for(key).try_spawn_with
        F::Output: Send + 'static,
    {
        self.loop_for(key).try_spawn(future)
    }

    /// As [`spawn_with`](EventLoopGroup::spawn_with), or hands `init` back.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let task = group.try_spawn_with(|| {
    ///     let text = Rc::new("made at home");
    ///     async move { text.len() }
    /// })?;
    /// assert_eq!(group.block_on(task).unwrap(), 12);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_spawn_with<I, F>(&self, init: I) -> Result<JoinHandle<F::Output>, Rejected<I>>
    where
        I: FnOnce() -> F + Send + 'static, // what is not Send is made inside of the closure
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let spawned = self.core.spawn_with(init, Location::caller());
        spawned.map_err(Refused::into_rejected)
    }

    /// Shuts the group down gracefully: quiet period 2 s, timeout 15 s.
    ///
    /// The loops keep running and accepting until there was no activity for the quiet period, or no task
    /// and no handle that could submit is left, or the timeout has passed. Each loop decides for itself:
    /// one may end while a task on another loop still wants to submit to it, and reject that task's work.
    ///
    /// The first request sets the terms, later ones only observe;
    /// [`shutdown_now`](EventLoopGroup::shutdown_now) shortens them.
    ///
    /// ```
    /// let report = loopgroup::EventLoopGroup::new(1)?.shutdown_gracefully().wait();
    /// assert!(!report.loops()[0].started()); // never used: no thread, and over at once
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown_gracefully(&self) -> TerminationFuture {
        self.request(ShutdownRequest::Graceful {
            quiet: terms::QUIET,
            timeout: terms::TIMEOUT,
        })
    }

    /// Shuts the group down gracefully, on these terms.
    ///
    /// A task that waits for longer than `quiet` is cancelled at its end; if handlers wait for slow
    /// operations, see [`drain`](EventLoopGroup::drain). `timeout` bounds the shutdown even if tasks keep
    /// waking themselves. Each loop is quiet on its own: a loop without work ends although tasks of another
    /// loop may still want to submit to it, and rejects them. `drain` keeps all loops until the last is done.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `timeout` is shorter than `quiet`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// group.spawn(std::future::pending::<()>());
    /// let quiet = Duration::from_millis(5);
    /// let report = group.shutdown_gracefully_with(quiet, Duration::from_secs(5))?.wait();
    /// assert_eq!(report.cancelled(), 1); // it waited for longer than 5 ms
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown_gracefully_with(
        &self,
        quiet: Duration,
        timeout: Duration,
    ) -> io::Result<TerminationFuture> {
        Ok(self.request(terms::graceful(quiet, timeout)?))
    }

    /// Shuts the group down when no task is live or queued on any of its loops, or at `timeout`.
    ///
    /// Tasks keep running, waiting and spawning; a loop without work of its own stays until the others are
    /// done. The loops close in one step: work that tasks and hooks of the group submit to a started loop is
    /// accepted until the end. (A loop that never ran ends at once, and [`next`](EventLoopGroup::next) skips
    /// it.) A task that would wait for ever should also wait for
    /// [`shutdown_requested`](crate::shutdown_requested); otherwise it is cancelled at `timeout`. After
    /// another shutdown request this one changes nothing: the first sets the terms.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EndCause, EventLoopGroup};
    /// use std::time::Duration;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// group.spawn(async { for _ in 0..100 { loopgroup::yield_now().await } });
    /// let report = group.drain(Duration::from_secs(10)).wait();
    /// assert_eq!(report.loops()[0].cause(), EndCause::Drained);
    /// assert_eq!((report.completed(), report.cancelled()), (1, 0));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn drain(&self, timeout: Duration) -> TerminationFuture {
        let scope = DrainScope::Group;
        self.request(ShutdownRequest::Drain { scope, timeout })
    }

    /// Shuts the group down now: tasks that have not completed are cancelled. Also shortens a shutdown that
    /// is under way.
    ///
    /// When it has returned, no new work is accepted. Shutdown hooks still run.
    pub fn shutdown_now(&self) -> TerminationFuture {
        self.request(ShutdownRequest::Now)
    }

    /// Observes the end of the group without requesting it.
    pub fn termination(&self) -> TerminationFuture {
        self.core.end.termination.future()
    }

    /// Returns whether a shutdown of every loop was requested.
    pub fn is_shutting_down(&self) -> bool {
        self.all(LoopState::is_shutting_down)
    }

    /// Returns whether every loop rejects new work.
    pub fn is_shutdown(&self) -> bool {
        self.all(LoopState::is_shutdown)
    }

    /// Returns whether every loop has ended.
    pub fn is_terminated(&self) -> bool {
        self.all(LoopState::is_terminated)
    }

    fn all(&self, ask: fn(LoopState) -> bool) -> bool {
        self.core.loops.iter().all(|one| ask(one.state()))
    }

    fn request(&self, request: ShutdownRequest) -> TerminationFuture {
        self.core.request(request);
        self.termination()
    }
}

impl EventLoop {
    /// Returns the loop's group; `None` once every handle of the group is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let ev = group.next().clone();
    /// assert_eq!(ev.parent().map(|group| group.len()), Some(2));
    /// drop(group);
    /// assert!(ev.parent().is_none()); // a loop's handle does not keep the group alive
    /// # std::io::Result::Ok(())
    /// ```
    pub fn parent(&self) -> Option<EventLoopGroup> {
        let token = self.shared().parent.handles()?;
        let token = token.downcast::<HandleToken>().ok()?;
        Some(EventLoopGroup::from_token(token))
    }
}

impl fmt::Debug for EventLoopGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoopGroup")
            .field("loops", &self.core.loops)
            .finish_non_exhaustive()
    }
}
