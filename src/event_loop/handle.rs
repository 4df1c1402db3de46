//! The handle of a loop.
//!
//! - A handle is an `Arc` and a count: a loop that shuts down ends early once no handle could
//!   submit any more, so handles are counted, and the drop of the last one notifies the loop.
//! - It does not keep the group alive.
//! - Submissions are in [`submit`](super::submit), delayed ones in [`scheduled`](super::scheduled).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::panic::Location;
use std::ptr;
use std::time::Duration;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::context;
use crate::event_loop::hooks::{Hook, HookId};
use crate::event_loop::shared::{BY_HAND, BY_LOAD, Shared};
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::{self, DrainScope, ShutdownRequest};
use crate::sync::{Arc, Ordering};
use crate::termination::TerminationFuture;

/// A handle to one event loop.
///
/// Handles are equal if they lead to the same loop. A handle does not keep the group alive, but
/// while one exists the loop knows that a task could still be submitted.
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

    /// Names the loop, and the thread that a panic happens on, which is not the loop's: the index alone would
    /// not tell apart loops of two groups.
    #[cold]
    pub(crate) fn seen_from_elsewhere(&self) -> String {
        let parent = |shared: &Shared| Arc::as_ptr(&shared.parent);
        let here = context::with_local(|local| {
            let sibling = ptr::addr_eq(parent(&local.shared), parent(&self.shared));
            let group = if sibling { "the same" } else { "another" };
            format!("on {}, a loop of {group} group", thread_name(&local.shared))
        });
        let here = here.unwrap_or_else(|| "on a thread that is no loop".to_owned());
        format!(
            "event loop {} ({}), {here}",
            self.index(),
            thread_name(&self.shared)
        )
    }

    /// Returns the loop of the calling thread, if it is one.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoop;
    ///
    /// assert_eq!(EventLoop::current(), None); // an ordinary thread
    /// let index = loopgroup::run(async { EventLoop::current().map(|ev| ev.index()) })?;
    /// assert_eq!(index, Some(0));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn current() -> Option<EventLoop> {
        context::with_local(|local| EventLoop::new(&local.shared))
    }

    /// Says whether the calling thread is this loop's.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let (one, other) = (group.loops()[0].clone(), group.loops()[1].clone());
    /// let here = group.spawn_on(0, async move { (one.in_event_loop(), other.in_event_loop()) });
    /// assert_eq!(group.block_on(here).unwrap(), (true, false));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn in_event_loop(&self) -> bool {
        context::with_home(&self.shared, |_| ()).is_some()
    }

    /// Returns the loop's index in its group.
    pub fn index(&self) -> usize {
        self.shared.index
    }

    /// Returns the loop itself: a loop is a group of one.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let ev = group.next();
    /// assert_eq!(ev.next(), ev);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn next(&self) -> &EventLoop {
        self
    }

    /// Returns where the loop is in its life.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, LoopState};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// assert_eq!(group.next().state(), LoopState::NotStarted); // no thread before the first use
    /// group.block_on(group.spawn(async {})).unwrap();
    /// assert_eq!(group.next().state(), LoopState::Started);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn state(&self) -> LoopState {
        self.shared.state()
    }

    /// Has [`EventLoopGroup::next`](crate::EventLoopGroup::next) choose other loops, until
    /// [`resume`](EventLoop::resume).
    ///
    /// So nothing new comes from `group.spawn`, from a [`Server`](crate::net::Server) or from anything else
    /// that takes the next loop, whatever the chooser says. The loop keeps the tasks and sockets that it has,
    /// and runs them as before. It also accepts what is submitted to it directly: by its handle, by
    /// `spawn_on`, by `spawn_local` on the loop, and by
    /// [`spawn_keyed`](crate::EventLoopGroup::spawn_keyed), since a key keeps its loop. A server with
    /// [`reuse_port`](crate::net::Server::reuse_port) has a listener on this loop: it stays open, and other
    /// loops serve what it accepts.
    ///
    /// If all loops of a group are paused, `next` chooses among them as if none were. A loop that shuts down
    /// is only chosen if there is no other, paused or not. Calls may come from any thread, more than once,
    /// and at any time in the life of the loop; a shutdown takes place as without them. A call that returns
    /// before `next` is called, on the same thread or ordered otherwise, is seen by it.
    ///
    /// [`LoopMetrics::is_paused`](crate::LoopMetrics::is_paused) and
    /// [`LoopReport::paused`](crate::LoopReport::paused) show it.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(3)?;
    /// let quiet = &group.loops()[1];
    /// quiet.pause();
    /// let turns: Vec<_> = (0..4).map(|_| group.next().index()).collect();
    /// assert_eq!(turns, [0, 2, 0, 2]);
    /// assert!(group.block_on(quiet.spawn(async {})).is_ok()); // directly
    /// quiet.resume();
    /// assert!((0..3).any(|_| group.next() == quiet));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pause(&self) {
        self.shared.pause(BY_HAND);
        self.shared.parent.look_at_load();
    }

    /// Ends a [pause](EventLoop::pause); has no effect if there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let ev = &group.loops()[0];
    /// ev.pause();
    /// ev.pause(); // one resume is enough for any number of pauses
    /// ev.resume();
    /// assert!(!ev.is_paused());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn resume(&self) {
        self.shared.resume(BY_HAND | BY_LOAD);
        self.shared.parent.look_at_load();
    }

    /// Says whether the loop is [paused](EventLoop::pause).
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// group.loops()[0].pause();
    /// let paused: Vec<_> = group.loops().iter().map(|ev| ev.is_paused()).collect();
    /// assert_eq!(paused, [true, false]);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_paused(&self) -> bool {
        self.shared.is_paused()
    }

    /// Returns how many tasks are accepted and wait for their first poll. Any thread, no hop.
    pub fn pending_tasks(&self) -> usize {
        self.shared.pending()
    }

    /// Returns how many tasks have been polled and are not finished. Any thread, no hop.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// test.spawn(std::future::pending::<()>());
    /// assert_eq!((test.pending_tasks(), test.live_tasks()), (1, 0)); // accepted
    /// test.run_until_stalled();
    /// assert_eq!((test.pending_tasks(), test.live_tasks()), (0, 1)); // polled, and waiting
    /// ```
    pub fn live_tasks(&self) -> usize {
        self.shared.place.counters.live()
    }

    /// Returns how many channels are registered with the loop. Any thread, no hop.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoop, net::UnixStream};
    ///
    /// loopgroup::run(async {
    ///     let (one, _other) = UnixStream::pair()?;
    ///     one.writable().await?; // registered where it first waits
    ///     let here = EventLoop::current().map(|ev| ev.registered_channels());
    ///     assert_eq!(here, Some(1));
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn registered_channels(&self) -> usize {
        let table = self.shared.port.table.as_ref();
        table.map_or(0, |table| table.len())
    }

    /// Adds a closure that runs on this loop when it shuts down.
    ///
    /// Hooks run in the order of registration, when the queue first runs empty, or at the end if it
    /// never does; they may spawn and add hooks, but not once the end is decided. A hook is a use:
    /// a loop that never ran starts to run its hooks. (If its thread cannot be started they are
    /// dropped, and the report says [`Failed`](crate::EndCause::Failed).)
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
        let mut guard = self.shared.inbox.lock();
        if !guard.gate().takes_hooks() {
            return Err(Rejected::new(hook, RejectReason::ShutDown));
        }
        let call = Box::new(hook);
        let id = guard.edit(|life| life.hooks.add(Hook { call, location }));
        // A loop that waits for its end is to run the hook now, and not when its wait is over.
        if guard.gate().control.is_requested() {
            let ring = guard.nudge();
            drop(guard);
            self.shared.ring_if_needed(ring);
        }
        Ok(id)
    }

    /// Takes a hook back; `false` if it has run or is running.
    ///
    /// The id has to be one of this loop.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let id = group.next().add_shutdown_hook(|| unreachable!("it was taken back")).unwrap();
    /// assert!(group.next().remove_shutdown_hook(id));
    /// assert!(!group.next().remove_shutdown_hook(id));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn remove_shutdown_hook(&self, id: HookId) -> bool {
        let removed = self.shared.inbox.lock().edit(|life| life.hooks.remove(id));
        removed.map(|hook| self.shared.drop_hook(hook)).is_some()
    }

    /// Ends this loop alone, gracefully: quiet period 2 s, timeout 15 s.
    ///
    /// [`EventLoopGroup::next`](crate::EventLoopGroup::next) skips it from here on, while another
    /// loop accepts. The terms are those of
    /// [`EventLoopGroup::shutdown_gracefully`](crate::EventLoopGroup::shutdown_gracefully).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EndCause, testing::TestLoop};
    /// use std::time::Duration;
    ///
    /// let mut test = TestLoop::new();
    /// test.run_until_stalled();
    /// test.shutdown_gracefully();
    /// test.advance(Duration::from_secs(2)); // in virtual time, and quietly
    /// assert_eq!(test.report().unwrap().loops()[0].cause(), EndCause::Quiet);
    /// ```
    pub fn shutdown_gracefully(&self) -> TerminationFuture {
        self.request(ShutdownRequest::Graceful {
            quiet: terms::QUIET,
            timeout: terms::TIMEOUT,
        })
    }

    /// Ends this loop alone, on these terms.
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
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let end = group.loops()[0].shutdown_gracefully_with(Duration::ZERO, Duration::from_secs(5))?;
    /// assert_eq!(end.wait().loops().len(), 1);
    /// assert_eq!(group.next().index(), 1); // the other loop still accepts
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown_gracefully_with(
        &self,
        quiet: Duration,
        timeout: Duration,
    ) -> io::Result<TerminationFuture> {
        Ok(self.request(terms::graceful(quiet, timeout)?))
    }

    /// Ends this loop alone when no task of it is live or queued any more, or at `timeout`.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let task = group.spawn_on(0, async { loopgroup::yield_now().await });
    /// let report = group.loops()[0].drain(std::time::Duration::from_secs(5)).wait();
    /// assert!(task.is_finished() && report.is_clean());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn drain(&self, timeout: Duration) -> TerminationFuture {
        let scope = DrainScope::Loop;
        self.request(ShutdownRequest::Drain { scope, timeout })
    }

    /// Ends this loop alone, now: what has not completed is cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// group.loops()[0].shutdown_now().wait();
    /// let error = group.block_on(group.spawn_on(0, async {})).unwrap_err();
    /// assert!(error.is_rejected());
    /// assert!(group.block_on(group.spawn_on(1, async {})).is_ok());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown_now(&self) -> TerminationFuture {
        self.request(ShutdownRequest::Now)
    }

    /// Observes the end of this loop; its report has one entry.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let end = group.loops()[0].termination(); // asks for nothing
    /// group.shutdown_now();
    /// assert_eq!(end.wait().loops()[0].index(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn termination(&self) -> TerminationFuture {
        self.shared.termination.future()
    }

    fn request(&self, request: ShutdownRequest) -> TerminationFuture {
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
        self.shared.handle_dropped();
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
            .field("thread", &thread_name(&self.shared))
            .field("state", &self.state())
            .field("pending_tasks", &self.pending_tasks())
            .field("live_tasks", &self.live_tasks())
            .finish()
    }
}

fn thread_name(shared: &Shared) -> &str {
    let name = shared.config.thread_names.get(shared.index);
    name.map_or("a loop without a name", String::as_str)
}
