//! One loop, seen from outside: the handle.
//!
//! - A handle is an `Arc` and a count: the loop ends early once nobody is left who could submit, so
//!   handles are counted, and the last one that goes tells the loop.
//! - It does not keep the group alive.
//! - Every submission goes the same way: admit (thread, bound), then push (gate, queue). `spawn`
//!   builds its task between the two, outside the lock, and refuses through the handle; `try_spawn`
//!   and the closures are built in the critical section that accepts them, because async-task does
//!   not give a future back.

pub(crate) mod arena;
pub(crate) mod bound;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod hooks;
pub(crate) mod inbox;
pub(crate) mod launch;
pub(crate) mod local;
pub(crate) mod run;
pub(crate) mod scheduled;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod state;

use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::io;
use std::panic::Location;
use std::time::Duration;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::bound::LoopBound;
use crate::event_loop::counters::End;
use crate::event_loop::hooks::HookId;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::event_loop::shared::Shared;
use crate::event_loop::shutdown::{Request, Scope};
use crate::event_loop::state::State;
use crate::group::EventLoopGroup;
use crate::panic::{PanicSite, contain, contain_drop, discard};
use crate::sync::{Arc, Ordering};
use crate::task;
use crate::task::join::JoinHandle;
use crate::task::once::Once;
use crate::task::resident::Resident;
use crate::termination::TerminationFuture;

/// A handle to one event loop.
///
/// Handles are equal if they lead to the same loop. A handle does not keep the group alive, but
/// while one exists the loop knows that somebody could still submit.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoop, EventLoopGroup};
///
/// let group = EventLoopGroup::new(2)?;
/// let ev = group.next().clone();
/// assert!(!ev.in_event_loop());
/// let inside = ev.submit(|| EventLoop::current());
/// assert_eq!(group.block_on(inside).unwrap(), Some(ev));
/// # std::io::Result::Ok(())
/// ```
pub struct EventLoop {
    shared: Arc<Shared>,
}

impl EventLoop {
    pub(crate) fn new(shared: &Arc<Shared>) -> EventLoop {
        // Relaxed: like a reference count, only the last drop has to be seen in order.
        shared.handles.fetch_add(1, Ordering::Relaxed);
        EventLoop {
            shared: Arc::clone(shared),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the loop of the calling thread, if it is one.
    pub fn current() -> Option<EventLoop> {
        context::with_local(|local| EventLoop::new(&local.shared))
    }

    /// Says whether the calling thread is this loop's.
    pub fn in_event_loop(&self) -> bool {
        context::with_home(&self.shared, |_| ()).is_some()
    }

    /// Returns the loop's index in its group.
    pub fn index(&self) -> usize {
        self.shared.index
    }

    /// Returns the loop's group; `None` once every handle of the group is gone.
    pub fn parent(&self) -> Option<EventLoopGroup> {
        self.shared.token.upgrade().map(EventLoopGroup::from_token)
    }

    /// Returns the loop itself: a loop is a group of one.
    pub fn next(&self) -> &EventLoop {
        self
    }

    /// Returns where the loop is in its life.
    pub fn state(&self) -> State {
        self.shared.state.get()
    }

    /// Returns how many tasks are accepted and wait for their first poll. Any thread, no hop.
    pub fn pending_tasks(&self) -> usize {
        self.shared.pending()
    }

    /// Returns how many tasks have been polled and are not finished. Any thread, no hop.
    pub fn live_tasks(&self) -> usize {
        self.shared.counters.live()
    }

    /// Returns how many channels are registered with the loop. Any thread, no hop.
    pub fn registered_channels(&self) -> usize {
        let table = self.shared.port.table.as_ref();
        table.map_or(0, |table| table.len())
    }

    /// Spawns a future on this loop.
    ///
    /// A refusal shows in the handle; see [`try_spawn`](EventLoop::try_spawn) to get the future back.
    /// For a future that is not `Send` see [`spawn_with`](EventLoop::spawn_with).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_by(future, Urgency::Now)
    }

    /// Spawns a future that the loop needs to see now, later, or whenever it is awake.
    #[track_caller]
    fn spawn_by<F>(&self, future: F, urgency: Urgency) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let location = Location::caller();
        // What waits unseen still takes a place below the bound: it is not to wait there for long.
        let urgency = match &self.shared.bound {
            Some(_) => Urgency::Now,
            None => urgency,
        };
        if let Err(reason) = self.shared.admit() {
            self.shared.drop_refused(future, location);
            return self.refuse(reason);
        }
        let (runnable, task) = task::new_send(&self.shared, future, location);
        match self.shared.push(runnable, Lane::Main, urgency) {
            Ok(()) => JoinHandle::of_task(task),
            Err(reason) => self.refuse(reason),
        }
    }

    /// Makes a future on this loop and runs it there; it need not be `Send`.
    ///
    /// `init` runs on the loop. It and what the future returns have to be `Send`. Task and future are
    /// one: when [`JoinHandle::cancel`] resolves, the future is dropped. A refusal shows in the handle.
    #[track_caller]
    pub fn spawn_with<I, F>(&self, init: I) -> JoinHandle<F::Output>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn(Resident::<I, F>::new(init))
    }

    /// As [`spawn_with`](EventLoop::spawn_with), or hands `init` back.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    #[track_caller]
    pub fn try_spawn_with<I, F>(&self, init: I) -> Result<JoinHandle<F::Output>, Rejected<I>>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.try_submit(init, Resident::<I, F>::new, Lane::Main, Urgency::Now)
    }

    /// Spawns a future on this loop, or hands it back.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason.
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_submit(future, |future| future, Lane::Main, Urgency::Now)
    }

    /// Runs a closure on this loop, once, in its turn.
    ///
    /// What one thread spawns and executes on a loop begins in that order.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::sync::mpsc;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let (tx, rx) = mpsc::channel();
    /// for n in 0..3 {
    ///     let tx = tx.clone();
    ///     group.next().execute(move || tx.send(n).unwrap())?;
    /// }
    /// drop(tx);
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), [0, 1, 2]);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    #[track_caller]
    pub fn execute<F>(&self, call: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.try_submit(call, Once::new, Lane::Main, Urgency::Now)
            .map(drop)
    }

    /// Runs a closure on this loop, once, in its turn, and returns a handle to its result.
    ///
    /// A refusal shows in the handle.
    #[track_caller]
    pub fn submit<F, T>(&self, call: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn(Once::new(call))
    }

    /// Runs a closure at once if this thread is the loop, else as [`execute`](EventLoop::execute).
    ///
    /// A panic of a closure that runs at once is contained and reported, as it would be elsewhere. Such
    /// a closure was never queued, so no bound refuses it.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// static DONE: AtomicBool = AtomicBool::new(false);
    /// let group = EventLoopGroup::new(1)?;
    /// let ev = group.next().clone();
    /// let task = group.spawn(async move {
    ///     ev.dispatch(|| DONE.store(true, Ordering::Relaxed)).unwrap(); // at home: now, not later
    ///     DONE.load(Ordering::Relaxed)
    /// });
    /// assert!(group.block_on(task).unwrap());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    #[track_caller]
    pub fn dispatch<F>(&self, call: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let location = Location::caller();
        let open = context::with_home(&self.shared, |local| local.is_open());
        let Some(open) = open else {
            return self.execute(call);
        };
        if !open {
            self.shared.counters.reject();
            return Err(Rejected::new(call, RejectReason::ShutDown));
        }
        let counters = &self.shared.counters;
        counters.accept_at_home();
        counters.begin();
        match contain(call) {
            Ok(()) => counters.end(End::Completed),
            Err(payload) => {
                counters.end(End::Panicked);
                let site = PanicSite::Task;
                self.shared.report_panic(site, &*payload, Some(location));
                discard(payload);
            }
        }
        Ok(())
    }

    /// Queues a closure without waking the loop: it stays queued until something else wakes the loop,
    /// and then runs in its place, which is before that something.
    ///
    /// On the loop itself it is as [`execute`](EventLoop::execute). A loop that never ran is started.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    #[track_caller]
    pub fn lazy_execute<F>(&self, call: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.try_submit(call, Once::new, Lane::Main, Urgency::Lazy)
            .map(drop)
    }

    /// Runs a closure once, after the tasks of the iteration that takes it in: to flush what they
    /// wrote, say.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    #[track_caller]
    pub fn execute_after_iteration<F>(&self, call: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.try_submit(call, Once::new, Lane::Tail, Urgency::Now)
            .map(drop)
    }

    /// The way of everything that is handed back when it is refused.
    #[track_caller]
    fn try_submit<V, F>(
        &self,
        value: V,
        wrap: impl FnOnce(V) -> F,
        lane: Lane,
        urgency: Urgency,
    ) -> Result<JoinHandle<F::Output>, Rejected<V>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let location = Location::caller();
        if let Err(reason) = self.shared.admit() {
            self.shared.counters.reject();
            return Err(Rejected::new(value, reason));
        }
        let mut value = Some(value);
        let mut handle = None;
        let make = || {
            let future = wrap(value.take().expect("the value is wrapped once"));
            let (runnable, task) = task::new_send(&self.shared, future, location);
            handle = Some(JoinHandle::of_task(task));
            runnable
        };
        match self.shared.push_with(lane, urgency, make) {
            Ok(()) => Ok(handle.expect("an accepted task was made")),
            Err(reason) => {
                self.shared.counters.reject();
                let value = value.expect("a refused value was not wrapped");
                Err(Rejected::new(value, reason))
            }
        }
    }

    fn refuse<T>(&self, reason: RejectReason) -> JoinHandle<T> {
        self.shared.counters.reject();
        JoinHandle::refused(reason)
    }

    /// Adds a closure that runs on this loop when it shuts down.
    ///
    /// Hooks run in the order of registration, when the queue first runs empty, or at the end if it
    /// never does; they may spawn and add hooks. A hook is a use: a loop that never ran starts to run
    /// its hooks. (If its thread cannot be started they are dropped, and the report says
    /// [`Failed`](crate::Cause::Failed).)
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure if the loop has run its last hook.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// group.next().add_shutdown_hook(|| println!("bye")).unwrap();
    /// assert_eq!(group.shutdown_now().wait().hooks_run(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn add_shutdown_hook<F>(&self, hook: F) -> Result<HookId, Rejected<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let location = Location::caller();
        let added = self.shared.hooks.add(hook, location);
        // A loop that waits for its end is to run the hook now, and not when its wait is over.
        if added.is_ok() && self.state().is_shutting_down() {
            self.shared.nudge();
        }
        added.map_err(|hook| Rejected::new(hook, RejectReason::ShutDown))
    }

    /// Takes a hook back; `false` if it has run or is running.
    ///
    /// The id has to be one of this loop: each loop counts its own hooks.
    pub fn remove_shutdown_hook(&self, id: HookId) -> bool {
        let Some(hook) = self.shared.hooks.remove(id) else {
            return false;
        };
        if let Err(payload) = contain_drop(hook) {
            let site = PanicSite::ShutdownHook;
            self.shared.report_panic(site, &*payload, None);
            discard(payload);
        }
        true
    }

    /// Makes a value on this loop, where it lives and is dropped, and returns a handle to it.
    ///
    /// The value need not be `Send`; see [`LoopBound`]. `init` runs on the loop in its turn, or, should
    /// the queue be full now, with the first visit that is accepted. If the loop is shut down, every
    /// visit is refused.
    #[track_caller]
    pub fn bind<T: 'static>(&self, init: impl FnOnce() -> T + Send + 'static) -> LoopBound<T> {
        LoopBound::new(self.clone(), init)
    }

    /// Ends this loop alone, gracefully: quiet period 2 s, timeout 15 s.
    ///
    /// [`EventLoopGroup::next`] skips it from here on, while another loop goes on. The terms are those
    /// of [`EventLoopGroup::shutdown_gracefully`].
    pub fn shutdown_gracefully(&self) -> TerminationFuture {
        self.request(Request::Graceful {
            quiet: shutdown::QUIET,
            timeout: shutdown::TIMEOUT,
        })
    }

    /// Ends this loop alone, on these terms.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `timeout` is shorter than `quiet`.
    pub fn shutdown_gracefully_with(
        &self,
        quiet: Duration,
        timeout: Duration,
    ) -> io::Result<TerminationFuture> {
        Ok(self.request(shutdown::graceful(quiet, timeout)?))
    }

    /// Ends this loop alone when no task of it is live or queued any more, or at `timeout`.
    pub fn drain(&self, timeout: Duration) -> TerminationFuture {
        let scope = Scope::Loop;
        self.request(Request::Drain { scope, timeout })
    }

    /// Ends this loop alone, now: what has not completed is cancelled.
    pub fn shutdown_now(&self) -> TerminationFuture {
        self.request(Request::Now)
    }

    /// Observes the end of this loop; its report has one entry.
    pub fn termination(&self) -> TerminationFuture {
        self.shared.termination.future()
    }

    fn request(&self, request: Request) -> TerminationFuture {
        self.shared.request(request);
        self.termination()
    }
}

impl Clone for EventLoop {
    fn clone(&self) -> EventLoop {
        EventLoop::new(&self.shared)
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        // SeqCst: see `StateCell::get`.
        let before = self.shared.handles.fetch_sub(1, Ordering::SeqCst);
        // The last one besides the group's own: a loop that shuts down may end now.
        if before == 2 && self.state().is_shutting_down() {
            self.shared.nudge();
        }
    }
}

impl PartialEq for EventLoop {
    fn eq(&self, other: &EventLoop) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for EventLoop {}

impl Hash for EventLoop {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.shared).hash(state);
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop")
            .field("index", &self.index())
            .field("state", &self.state())
            .field("pending_tasks", &self.pending_tasks())
            .field("live_tasks", &self.live_tasks())
            .finish()
    }
}
