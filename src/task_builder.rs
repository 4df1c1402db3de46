//! Spawning with a name.
//!
//! A task that is spawned with a name is of another type than one without, so that only named tasks pay for
//! names. Everything else is as in the plain functions.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::Location;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::group::core::GroupCore;
use crate::group::entered::{entered_group, no_context};
use crate::group::handle::EventLoopGroup;
use crate::group::spawn::Refused;
use crate::spawn::{spawn_detached_from, spawn_local_from, try_spawn_local_from};
use crate::task::join::JoinHandle;
use crate::task::origin::NamedOrigin;
use crate::task::stand_in::StandIn;
use crate::task_id::TaskId;
use crate::this_thread;

/// Returns the id of the task that is being polled; `None` outside of tasks.
///
/// The destructor of a result that no handle takes is still the task's. That of a future that is cancelled is
/// not.
///
/// # Examples
///
/// ```
/// let group = loopgroup::EventLoopGroup::new(1)?;
/// assert_eq!(loopgroup::task_id(), None);
/// let task = group.spawn(async { loopgroup::task_id() });
/// let id = task.id();
/// assert_eq!(group.block_on(task).unwrap(), Some(id));
/// # std::io::Result::Ok(())
/// ```
pub fn task_id() -> Option<TaskId> {
    this_thread::task()
}

/// Begins a task with a name: on the next loop of the current group, or on this loop.
///
/// # Examples
///
/// ```
/// loopgroup::run(async {
///     let task = loopgroup::task().name("session").spawn_local(async { 7 });
///     assert_eq!(task.await.unwrap(), 7);
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub fn task() -> TaskBuilder<'static> {
    TaskBuilder::new(SpawnPlace::Here)
}

impl EventLoopGroup {
    /// Begins a task with a name, on the next loop of the group.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let task = group.task().name("session 7").spawn(async { panic!("no more coffee") });
    /// let error = group.block_on(task).map(|()| ()).unwrap_err();
    /// assert!(error.to_string().starts_with("task \"session 7\" spawned at"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn task(&self) -> TaskBuilder<'_> {
        TaskBuilder::new(SpawnPlace::Group(self))
    }
}

impl EventLoop {
    /// Begins a task with a name, on this loop.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let task = group.loops()[1].task().name("ticker").spawn(async {});
    /// group.block_on(task).unwrap();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn task(&self) -> TaskBuilder<'_> {
        TaskBuilder::new(SpawnPlace::Loop(self))
    }
}

/// Spawns a task with a name.
///
/// [`task`], [`EventLoopGroup::task`] and [`EventLoop::task`] create it. The name appears in the message of a
/// panic, in [`TaskPanic::name`](crate::TaskPanic::name), and in the [report](crate::TerminationReport::left)
/// of a shutdown that had to end the task by force.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::rc::Rc;
///
/// let group = EventLoopGroup::new(1)?;
/// let task = group.task().name("counter").spawn_with(|| {
///     let count = Rc::new(41);
///     async move { *count + 1 }
/// });
/// assert_eq!(group.block_on(task).unwrap(), 42);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "nothing is spawned until one of the spawn methods is called"]
pub struct TaskBuilder<'a> {
    place: SpawnPlace<'a>,
    name: Cow<'static, str>,
}

/// Where a task is spawned.
#[derive(Clone, Copy)]
enum SpawnPlace<'a> {
    Group(&'a EventLoopGroup),
    Loop(&'a EventLoop),
    /// In the group of the current loop or `block_on`.
    Here,
}

impl<'a> TaskBuilder<'a> {
    fn new(place: SpawnPlace<'a>) -> TaskBuilder<'a> {
        TaskBuilder {
            place,
            name: Cow::Borrowed(""),
        }
    }

    /// Sets the name; it need not be unique. An empty name is none.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> TaskBuilder<'a> {
        self.name = name.into();
        self
    }

    /// Spawns a future, as [`EventLoopGroup::spawn`] and its kin.
    ///
    /// # Panics
    ///
    /// A builder of [`task`](crate::task()) panics without a loop or `block_on` to take the group from.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // not Send? spawn_with, or spawn_local
        F::Output: Send + 'static,
    {
        let origin = NamedOrigin::new(Location::caller(), self.name);
        let from_group = |core: &GroupCore, future, origin| {
            let spawned = core.spawn(future, origin);
            spawned.unwrap_or_else(Refused::into_handle)
        };
        match self.place {
            SpawnPlace::Group(group) => from_group(group.core(), future, origin),
            SpawnPlace::Loop(one) => one.spawn_by(future, Lane::Main, Urgency::Now, origin),
            SpawnPlace::Here => match context::current() {
                Some(local) => from_group(GroupCore::of(&local), future, origin),
                None => match entered_group() {
                    Some(group) => from_group(group.core(), future, origin),
                    None => no_context("task().spawn"),
                },
            },
        }
    }

    /// Spawns a future, or hands it back, as [`EventLoopGroup::try_spawn`] and its kin.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::RejectReason;
    ///
    /// let rejected = loopgroup::task().name("too early").try_spawn(async {}).unwrap_err();
    /// assert_eq!(rejected.reason(), RejectReason::NoContext);
    /// ```
    #[track_caller]
    pub fn try_spawn<F>(self, future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        F: Future + Send + 'static, // not Send? spawn_with, or spawn_local
        F::Output: Send + 'static,
    {
        let origin = NamedOrigin::new(Location::caller(), self.name);
        let from_group = |core: &GroupCore, future, origin| {
            core.spawn(future, origin).map_err(Refused::into_rejected)
        };
        match self.place {
            SpawnPlace::Group(group) => from_group(group.core(), future, origin),
            SpawnPlace::Loop(one) => {
                let (lane, urgency) = (Lane::Main, Urgency::Now);
                one.try_submit_from(future, |future| future, lane, urgency, origin)
            }
            SpawnPlace::Here => match context::current() {
                Some(local) => from_group(GroupCore::of(&local), future, origin),
                None => match entered_group() {
                    Some(group) => from_group(group.core(), future, origin),
                    None => Err(Rejected::new(future, RejectReason::NoContext)),
                },
            },
        }
    }

    /// Spawns a future without a handle, or hands it back, as [`EventLoopGroup::spawn_detached`] and its
    /// kin.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = std::sync::mpsc::channel();
    /// let group = loopgroup::EventLoopGroup::builder()
    ///     .loops(1)
    ///     .on_panic(move |panic| tx.send(panic.name().map(str::to_owned)).unwrap())
    ///     .build()?;
    /// group.task().name("audit").spawn_detached(async { panic!("no handle carries this") })?;
    /// assert_eq!(rx.recv().unwrap().as_deref(), Some("audit"));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_detached<F>(self, future: F) -> Result<(), Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let origin = NamedOrigin::new(Location::caller(), self.name);
        match self.place {
            SpawnPlace::Group(group) => group.core().spawn_detached(future, origin),
            SpawnPlace::Loop(one) => one.spawn_detached_from(future, origin),
            SpawnPlace::Here => spawn_detached_from(future, origin),
        }
    }

    /// Makes a future on its loop, which need not be `Send`, as [`EventLoopGroup::spawn_with`] and its kin.
    ///
    /// # Panics
    ///
    /// As [`spawn`](TaskBuilder::spawn).
    #[track_caller]
    pub fn spawn_with<I, F>(self, init: I) -> JoinHandle<F::Output>
    where
        I: FnOnce() -> F + Send + 'static, // what is not Send is made inside of the closure
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn(StandIn::<I, F>::new(init))
    }

    /// Spawns a future on the current loop, which need not be `Send`, as
    /// [`spawn_local`](crate::spawn_local()).
    ///
    /// # Panics
    ///
    /// Panics on a thread that is no event loop. A builder of [`EventLoop::task`] panics on any thread but
    /// that loop's, a builder of [`EventLoopGroup::task`] on any thread that is none of its loops.
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        if let Err(place) = self.check_here() {
            panic!(
                "task().spawn_local was called outside of {place}: use spawn_with, which hops there"
            );
        }
        spawn_local_from(future, NamedOrigin::new(Location::caller(), self.name))
    }

    /// As [`spawn_local`](TaskBuilder::spawn_local), or hands the future back.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason.
    #[track_caller]
    pub fn try_spawn_local<F>(self, future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        if self.check_here().is_err() {
            return Err(Rejected::new(future, RejectReason::NoContext));
        }
        try_spawn_local_from(future, NamedOrigin::new(Location::caller(), self.name))
    }

    /// Whether a task can be spawned here and be in its place; if not, returns the place.
    fn check_here(&self) -> Result<(), String> {
        match self.place {
            SpawnPlace::Here => Ok(()),
            SpawnPlace::Loop(one) if one.in_event_loop() => Ok(()),
            SpawnPlace::Group(group) if group.loops().iter().any(EventLoop::in_event_loop) => {
                Ok(())
            }
            SpawnPlace::Loop(one) => Err(one.seen_from_elsewhere()),
            SpawnPlace::Group(_) => Err("the loops of its group".to_owned()),
        }
    }
}

impl fmt::Debug for TaskBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
