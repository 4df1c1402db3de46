//! A value on every loop of a group, which need not be `Send`.
//!
//! - A loop's value is created on that loop, by the first visit there, and dropped on that loop: when the
//!   last handle is dropped, or when the loop ends, after its last task.
//! - Creating a [`PerLoop`] starts no thread; only a visit uses a loop.
//! - Visits share the value (`&T`): they nest, and no value is ever "in use". The arena keeps an `Rc`, and a
//!   visit works on a clone of it, with no borrow held.
//! - An `init` that panics fails its own loop and no other; it is not called again there.
//! - The slots of the loops are on cache lines of their own: a visit at home writes no memory that another
//!   loop reads.

use std::any::Any;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::io;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::error::{JoinError, RejectReason};
use crate::event_loop::bound::{Bound, Init, Missing};
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::group::core::GroupCore;
use crate::group::handle::EventLoopGroup;
use crate::sync::{Arc, Weak};
use crate::task::closure::Closure;
use crate::task::join::JoinHandle;

/// A handle to a value on every loop of a group; created by [`EventLoopGroup::per_loop`].
///
/// It is cheap to clone and may be sent to any thread, although `T` need not be `Send`. On a loop of the
/// group [`here`](PerLoop::here) visits the value of that loop at once. From anywhere,
/// [`on`](PerLoop::on) visits the value of one loop, [`on_key`](PerLoop::on_key) that of the loop of a key,
/// and [`map_all`](PerLoop::map_all) those of all loops; these visits are tasks of their loops and count in
/// their metrics and against their limits.
///
/// A visit gets `&T`: use [`Cell`](std::cell::Cell) and [`RefCell`](std::cell::RefCell) for what changes,
/// and `T = Rc<..>` to keep a reference. For an `init` that can fail let `T` be a `Result`.
///
/// The values are dropped on their loops, when the last handle is dropped or when their loop ends. While a
/// `PerLoop` exists, work can still be submitted to the loops, as with an [`EventLoop`].
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::{cell::Cell, rc::Rc};
///
/// let group = EventLoopGroup::new(2)?;
/// let hits = group.per_loop(|_| Rc::new(Cell::new(0_u32))); // no lock, no atomic
/// for index in [0, 1, 1] {
///     let hits = hits.clone();
///     let task = group.loops()[index].spawn_with(|| async move {
///         let hits = hits.here(Rc::clone); // the value of this loop
///         loopgroup::yield_now().await;
///         hits.set(hits.get() + 1);
///     });
///     group.block_on(task).unwrap();
/// }
/// let counts = group.block_on(hits.map_all(|hits| hits.get()))?;
/// assert_eq!(counts, [1, 2]);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "dropping the last handle drops the values"]
pub struct PerLoop<T> {
    slots: Arc<[ValueSlot]>,
    /// To find the loop of a key, and to count visits of loops that do not exist.
    group: Weak<GroupCore>,
    value: PhantomData<fn() -> T>,
}

/// The value of one loop.
#[repr(align(64))]
struct ValueSlot(Bound);

impl EventLoopGroup {
    /// Creates a value on every loop of the group, which need not be `Send`.
    ///
    /// `init` runs once on each loop, in the first visit there; it gets the handle of its loop. Loops that
    /// are never visited create no value, and none is started by this call. To create all values now, visit
    /// them: `group.block_on(values.map_all(|_| ()))`.
    ///
    /// A panic of `init` is reported like that of a [`LoopBound`](crate::LoopBound); every visit on that loop
    /// fails from then on, and the other loops are not affected.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::{cell::RefCell, collections::HashMap};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let caches = group.per_loop(|_| RefCell::new(HashMap::new()));
    /// let one = caches.clone();
    /// let task = group.spawn(async move {
    ///     one.here(|cache| cache.borrow_mut().insert("key", "value"));
    ///     one.here(|cache| cache.borrow().len())
    /// });
    /// assert_eq!(group.block_on(task).unwrap(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn per_loop<T, F>(&self, init: F) -> PerLoop<T>
    where
        T: 'static,
        F: Fn(&EventLoop) -> T + Send + Sync + 'static,
    {
        let init = Arc::new(init);
        let slot = |one: &EventLoop| {
            let init = Arc::clone(&init);
            let init: Init = Box::new(move |one| Box::new(Rc::new(init(one))) as Box<dyn Any>);
            ValueSlot(Bound::new(one.clone(), init))
        };
        PerLoop {
            slots: self.loops().iter().map(slot).collect(),
            group: Arc::downgrade(self.core()),
            value: PhantomData,
        }
    }
}

impl<T: 'static> PerLoop<T> {
    /// Calls `visit` with the value of the current loop, at once.
    ///
    /// Visits may nest. The value is created first if this is the first visit on the loop.
    ///
    /// # Panics
    ///
    /// On a thread that is not a loop of the group; if `init` panicked on this loop, or calls this itself;
    /// if the loop has ended. See [`try_here`](PerLoop::try_here).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let count = group.per_loop(|_| Cell::new(0));
    /// let task = group.spawn(async move {
    ///     count.here(|one| count.here(|same| same.set(one.get() + 1))); // visits nest
    ///     count.here(Cell::get)
    /// });
    /// assert_eq!(group.block_on(task).unwrap(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn here<R>(&self, visit: impl FnOnce(&T) -> R) -> R {
        match self.find() {
            Ok(value) => visit(&value),
            Err(error) => no_value::<T>(error),
        }
    }

    /// Calls `visit` with the value of the current loop, or says why there is none.
    ///
    /// # Errors
    ///
    /// [`PerLoopError`] names the reason; `visit` was not called.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::PerLoopError;
    ///
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let values = group.per_loop(|ev| ev.index());
    /// let here = values.try_here(|index| *index);
    /// assert_eq!(here, Err(PerLoopError::NotOnLoop)); // this is no loop
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_here<R>(&self, visit: impl FnOnce(&T) -> R) -> Result<R, PerLoopError> {
        self.find().map(|value| visit(&value))
    }

    /// Calls `visit` with the value of the loop with this index, as a task of that loop.
    ///
    /// The handle resolves to the result of `visit`; to a panic if `visit` panics, or if `init` did on that
    /// loop; to a rejection if the loop is shut down or its queue is full, or if there is no such loop
    /// ([`NoSuchLoop`](RejectReason::NoSuchLoop)). The value is kept until the visit has ended, even if every
    /// handle is dropped before.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let names = group.per_loop(|ev| format!("loop {}", ev.index()));
    /// let length = names.on(1, |name| name.len());
    /// assert_eq!(group.block_on(length).unwrap(), 6);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn on<R, F>(&self, index: usize, visit: F) -> JoinHandle<R>
    where
        F: FnOnce(&T) -> R + Send + 'static,
        R: Send + 'static,
    {
        let values = self.clone();
        let call = move || values.here(visit);
        if let Some(ValueSlot(bound)) = self.slots.get(index) {
            return bound.event_loop().submit(call);
        }
        match self.group.upgrade() {
            Some(group) => group.refuse_no_such_loop(Closure::new(call), Location::caller()),
            None => JoinHandle::refused(RejectReason::NoSuchLoop),
        }
    }

    /// Calls `visit` with the value of the loop that `key` belongs to, as a task of that loop.
    ///
    /// It is the loop of [`loop_for`](EventLoopGroup::loop_for) and of
    /// [`spawn_keyed`](EventLoopGroup::spawn_keyed): each key has one home, and what belongs to it is in the
    /// value there. The handle resolves as that of [`on`](PerLoop::on).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{cell::RefCell, collections::HashMap};
    ///
    /// let group = loopgroup::EventLoopGroup::new(4)?;
    /// let accounts = group.per_loop(|_| RefCell::new(HashMap::<&str, i64>::new()));
    /// let pay_in = |name, amount| {
    ///     accounts.on_key(name, move |accounts| {
    ///         let mut accounts = accounts.borrow_mut(); // no other thread has this map
    ///         let account = accounts.entry(name).or_default();
    ///         *account += amount;
    ///         *account
    ///     })
    /// };
    /// group.block_on(pay_in("ann", 40))?;
    /// group.block_on(pay_in("bob", 1))?;
    /// assert_eq!(group.block_on(pay_in("ann", 2))?, 42);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn on_key<K, R, F>(&self, key: &K, visit: F) -> JoinHandle<R>
    where
        K: Hash + ?Sized,
        F: FnOnce(&T) -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.group.upgrade() {
            Some(group) => self.on(group.index_for(key), visit),
            // Its loops have ended.
            None => JoinHandle::refused(RejectReason::ShutDown),
        }
    }

    /// Calls `visit` with the value of every loop, and returns the results in the order of the loops.
    ///
    /// Each visit is a task of its loop, submitted by this call; they run at the same time. Loops that have
    /// not started are started. For the result of each loop by itself, see
    /// [`on_each`](PerLoop::on_each).
    ///
    /// # Errors
    ///
    /// The future resolves to the first error in the order of the loops, once every visit has ended: what
    /// `visit` does on the other loops is done by then, but their results are lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// let group = loopgroup::EventLoopGroup::new(3)?;
    /// let bytes = group.per_loop(|ev| Cell::new(100 * ev.index()));
    /// let sum: usize = group.block_on(bytes.map_all(Cell::take))?.iter().sum();
    /// assert_eq!(sum, 300);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn map_all<R, F>(&self, visit: F) -> MapAll<R>
    where
        F: Fn(&T) -> R + Send + Sync + 'static,
        R: Send + 'static,
    {
        let handles = VecDeque::from(self.on_each(visit));
        MapAll {
            results: Vec::with_capacity(handles.len()),
            handles,
            state: MapState::Waiting,
        }
    }

    /// Calls `visit` with the value of every loop, and returns a handle for each, in the order of the loops.
    ///
    /// It is [`on`](PerLoop::on) for every index.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let values = group.per_loop(|ev| ev.index());
    /// group.loops()[0].shutdown_now().wait();
    /// let handles = values.on_each(|index| *index);
    /// let ends: Vec<_> = handles.into_iter().map(|handle| group.block_on(handle).ok()).collect();
    /// assert_eq!(ends, [None, Some(1)]); // one loop has ended, the other answers
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn on_each<R, F>(&self, visit: F) -> Vec<JoinHandle<R>>
    where
        F: Fn(&T) -> R + Send + Sync + 'static,
        R: Send + 'static,
    {
        let visit = Arc::new(visit);
        let mut handles = Vec::with_capacity(self.slots.len());
        // Not a closure: the location of the tasks is that of the caller.
        for index in 0..self.slots.len() {
            let visit = Arc::clone(&visit);
            handles.push(self.on(index, move |value| visit(value)));
        }
        handles
    }

    /// Returns the value of the current loop.
    fn find(&self) -> Result<Rc<T>, PerLoopError> {
        let made = context::with_local(|local| {
            let ValueSlot(bound) = self
                .slots
                .get(local.shared.index)
                .filter(|slot| Arc::ptr_eq(slot.0.event_loop().shared(), &local.shared))
                .ok_or(PerLoopError::OtherGroup)?;
            Ok((bound, bound.made(local)))
        });
        let (bound, made) = made.unwrap_or(Err(PerLoopError::NotOnLoop))?;
        if let Some(value) = made {
            return Ok(value);
        }
        // `init` is user code: it is called with no borrow of the context.
        let local = context::current().ok_or(PerLoopError::NotOnLoop)?;
        bound.shared(&local).map_err(|missing| match missing {
            Missing::Making => PerLoopError::InitRunning,
            Missing::Failed => PerLoopError::InitPanicked,
            Missing::Ended => PerLoopError::Ended,
        })
    }
}

#[cold]
#[track_caller]
fn no_value<T>(error: PerLoopError) -> ! {
    let name = std::any::type_name::<T>();
    panic!("PerLoop<{name}>::here: {error}")
}

impl<T> Clone for PerLoop<T> {
    fn clone(&self) -> PerLoop<T> {
        PerLoop {
            slots: Arc::clone(&self.slots),
            group: Weak::clone(&self.group),
            value: PhantomData,
        }
    }
}

impl<T> fmt::Debug for PerLoop<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerLoop")
            .field("type", &std::any::type_name::<T>())
            .field("loops", &self.slots.len())
            .finish()
    }
}

/// The reason why [`PerLoop::try_here`] finds no value.
///
/// Converted to an [`io::Error`] it has the kind `Unsupported` (not on a loop of the group), `BrokenPipe`
/// (the loop has ended) or `Other`.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, PerLoopError};
///
/// let (one, other) = (EventLoopGroup::new(1)?, EventLoopGroup::new(1)?);
/// let values = one.per_loop(|_| 7);
/// let task = other.spawn(async move { values.try_here(|value| *value) });
/// assert_eq!(other.block_on(task).unwrap(), Err(PerLoopError::OtherGroup));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PerLoopError {
    /// The calling thread is not an event loop.
    NotOnLoop,
    /// The calling thread is a loop of another group.
    OtherGroup,
    /// `init` panicked on this loop.
    InitPanicked,
    /// `init` is running on this loop, and visits its own value.
    InitRunning,
    /// The loop has ended, and its value was dropped.
    Ended,
}

impl fmt::Display for PerLoopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PerLoopError::NotOnLoop => {
                "this thread is not an event loop: visit the value inside a task of its group, or use \
                 on(index, ..) or map_all(..), which may be called anywhere"
            }
            PerLoopError::OtherGroup => {
                "this event loop belongs to another group than the value: create a value with the \
                 per_loop of this group, or use on(index, ..) or map_all(..)"
            }
            PerLoopError::InitPanicked => {
                "there is no value on this loop: its init panicked here, as was reported then"
            }
            PerLoopError::InitRunning => {
                "there is no value on this loop yet: its init is running, and must not visit the value"
            }
            PerLoopError::Ended => "the value was dropped: its event loop has ended",
        })
    }
}

impl Error for PerLoopError {}

impl From<PerLoopError> for io::Error {
    fn from(error: PerLoopError) -> io::Error {
        let kind = match error {
            PerLoopError::NotOnLoop | PerLoopError::OtherGroup => io::ErrorKind::Unsupported,
            PerLoopError::Ended => io::ErrorKind::BrokenPipe,
            PerLoopError::InitPanicked | PerLoopError::InitRunning => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// The future of [`PerLoop::map_all`].
///
/// # Cancel safety
///
/// Cancel safe. Dropping it detaches the visits, which still run.
///
/// # Panics
///
/// If it is polled again after it was ready.
///
/// # Examples
///
/// ```
/// let group = loopgroup::EventLoopGroup::new(2)?;
/// let values = group.per_loop(|ev| ev.index());
/// let all = values.map_all(|index| index + 1); // submitted now
/// assert_eq!(group.block_on(all)?, [1, 2]);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "dropping it detaches the visits; use drop() to say so"]
pub struct MapAll<R> {
    /// Visits whose results were not taken yet.
    handles: VecDeque<JoinHandle<R>>,
    results: Vec<R>,
    state: MapState,
}

enum MapState {
    Waiting,
    /// A visit failed; the others are waited for.
    Failed(JoinError),
    Done,
}

// Results are moved, never pinned.
impl<R> Unpin for MapAll<R> {}

impl<R> Future for MapAll<R> {
    type Output = Result<Vec<R>, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The visits run at the same time, so waiting for one after the other takes no longer.
        while let Some(handle) = self.handles.front_mut() {
            let result = ready!(Pin::new(handle).poll(cx));
            self.handles.pop_front();
            match result {
                Ok(value) => self.results.push(value),
                Err(error) if matches!(self.state, MapState::Waiting) => {
                    self.state = MapState::Failed(error);
                }
                Err(_) => {}
            }
        }
        match std::mem::replace(&mut self.state, MapState::Done) {
            MapState::Waiting => Poll::Ready(Ok(std::mem::take(&mut self.results))),
            MapState::Failed(error) => Poll::Ready(Err(error)),
            MapState::Done => panic!("MapAll polled after it was ready"),
        }
    }
}

impl<R> fmt::Debug for MapAll<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapAll")
            .field("waiting_for", &self.handles.len())
            .finish_non_exhaustive()
    }
}
