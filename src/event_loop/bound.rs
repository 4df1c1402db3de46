//! A value that lives on a loop, and handles to it that live anywhere.
//!
//! - The value is created, used and dropped on its loop; it is dropped when the last handle is dropped,
//!   or when the loop ends, after its last task.
//! - `init` runs once, on the loop: when its task runs, or earlier if a visit needs the value earlier.
//! - The value of a [`LoopBound`] is taken out of the arena during a visit: a nested visit panics instead of
//!   aliasing. The value of a [`PerLoop`](crate::PerLoop) is shared, and only its `Rc` is cloned
//!   ([`Bound::shared`]).

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::event_loop::arena::{ArenaKey, Visit};
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::local::Local;
use crate::event_loop::shared::Message;
use crate::panic::PanicSite;
use crate::sync::{Arc, Mutex};
use crate::task::join::JoinHandle;
use crate::unwind::{contain, contain_drop, discard};

/// A handle to a value that lives on one loop and need not be `Send`; created by
/// [`EventLoop::bind`](crate::EventLoop::bind).
///
/// It is cheap to clone and may be sent to any thread. The value is dropped, on its loop, when the last
/// handle is dropped or when the loop ends. Its creation and each [`with`](LoopBound::with) are tasks of
/// the loop: they count in its metrics and against its limit. While a `LoopBound` exists, work can still
/// be submitted to the loop, as with an [`EventLoop`].
///
/// # Examples
///
/// ```
/// use std::{collections::HashMap, rc::Rc};
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(1)?;
/// let cache = group.next().bind(|| HashMap::<u32, Rc<str>>::new()); // no lock, not Send
/// let other = cache.clone();
/// group.block_on(async move {
///     cache.with(|map| map.insert(1, Rc::from("one")).is_none()).await.unwrap();
///     assert_eq!(other.with(|map| map[&1].len()).await.unwrap(), 3);
/// });
/// # std::io::Result::Ok(())
/// ```
#[must_use = "dropping the last handle drops the value on its loop"]
pub struct LoopBound<T> {
    inner: Arc<Bound>,
    value: PhantomData<fn() -> T>,
}

/// A value of one loop, made or to be made there; dropping this drops the value.
pub(crate) struct Bound {
    event_loop: EventLoop,
    state: Mutex<BoundState>,
}

enum BoundState {
    /// Not created yet.
    Waiting(Init),
    /// `init` is running, on the loop.
    Making,
    Made(ArenaKey),
    /// `init` panicked.
    Failed,
}

/// Creates a value, on its loop.
pub(crate) type Init = Box<dyn FnOnce(&EventLoop) -> Box<dyn Any> + Send>;

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// `init` is running, and visits its own value.
    Making,
    /// `init` panicked.
    Failed,
    /// The loop has ended.
    Ended,
}

impl EventLoop {
    /// Creates a value on this loop, where it lives and is dropped, and returns a handle to it.
    ///
    /// The value need not be `Send`; see [`LoopBound`]. `init` runs on the loop as a task, or, if the
    /// queue is full now, with the first visit that is accepted. If the loop is shut down, every visit is
    /// rejected.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{cell::RefCell, rc::Rc};
    ///
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let list = group.next().bind(|| Rc::new(RefCell::new(vec![1]))); // created there, never sent
    /// let sum = list.with(|list| {
    ///     list.borrow_mut().push(2);
    ///     list.borrow().iter().sum::<u32>()
    /// });
    /// assert_eq!(group.block_on(sum).unwrap(), 3);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn bind<T: 'static>(&self, init: impl FnOnce() -> T + Send + 'static) -> LoopBound<T> {
        LoopBound::new(self.clone(), init)
    }
}

impl<T: 'static> LoopBound<T> {
    #[track_caller]
    pub(crate) fn new(
        event_loop: EventLoop,
        init: impl FnOnce() -> T + Send + 'static,
    ) -> LoopBound<T> {
        let init: Init = Box::new(move |_| Box::new(init()));
        let inner = Arc::new(Bound::new(event_loop, init));
        let weak = Arc::downgrade(&inner);
        // If this is refused, the first visit that is accepted creates the value.
        let _ = inner.event_loop.execute(move || {
            if let (Some(inner), Some(local)) = (weak.upgrade(), context::current()) {
                let _ = inner.key(&local);
            }
        });
        LoopBound {
            inner,
            value: PhantomData,
        }
    }

    /// Calls `visit` with the value, as a task of its loop.
    ///
    /// The handle resolves to the result of `visit`; to a rejection if the loop is shut down or its queue is
    /// full; to a panic if `visit` panics (the value then stays as it is), or if `init` did. The result of
    /// `visit` must be `Send`; the value itself never leaves the loop.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let log = group.next().bind(Vec::<u32>::new);
    /// let _ = log.with(|log| log.push(1)); // detached, but in order
    /// let len = log.with(|log| {
    ///     log.push(2);
    ///     log.len()
    /// });
    /// assert_eq!(group.block_on(len).unwrap(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn with<R, F>(&self, visit: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut T) -> R + Send + 'static,
        R: Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let visit = self.inner.event_loop.submit(move || {
            let local = context::current().expect("a task runs on its loop");
            inner.visit(&local, visit)
        });
        visit.of_visit()
    }

    /// Calls `visit` with the value at once: for tasks and closures that run on its loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc};
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let hits = group.next().bind(|| Rc::new(Cell::new(0)));
    /// let task = hits.event_loop().clone().spawn(async move {
    ///     hits.with_local(|hits| hits.set(hits.get() + 1)); // no hop, no await
    ///     hits.with_local(|hits| hits.get())
    /// });
    /// assert_eq!(group.block_on(task).unwrap(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// On any other thread (use [`with`](LoopBound::with) there); inside another `with` or `with_local` of
    /// the same value; if `init` panicked; if the loop has ended.
    #[track_caller]
    pub fn with_local<R>(&self, visit: impl FnOnce(&mut T) -> R) -> R {
        let home = &self.inner.event_loop;
        if !home.in_event_loop() {
            panic!(
                "LoopBound::with_local was called outside of {}: use with(), which hops there",
                home.seen_from_elsewhere()
            );
        }
        let local = context::current().expect("checked above: this is the thread of the loop");
        self.inner.visit(&local, visit)
    }

    /// Returns the loop that the value lives on.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let value = group.loops()[1].bind(|| 7);
    /// assert_eq!(value.event_loop(), &group.loops()[1]);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn event_loop(&self) -> &EventLoop {
        &self.inner.event_loop
    }
}

impl Bound {
    /// A value that does not exist until its first visit.
    pub(crate) fn new(event_loop: EventLoop, init: Init) -> Bound {
        Bound {
            event_loop,
            state: Mutex::new(BoundState::Waiting(init)),
        }
    }

    pub(crate) fn event_loop(&self) -> &EventLoop {
        &self.event_loop
    }

    /// Returns a value that is shared by reference count, if it exists; calls no user code.
    pub(crate) fn made<T: 'static>(&self, local: &Local) -> Option<Rc<T>> {
        let BoundState::Made(key) = *self.state.lock() else {
            return None;
        };
        shared_value(local, key)
    }

    /// Returns a value that is shared by reference count; it is created now if it does not exist yet.
    pub(crate) fn shared<T: 'static>(&self, local: &Rc<Local>) -> Result<Rc<T>, Missing> {
        let key = self.key(local)?;
        shared_value(local, key).ok_or(Missing::Ended)
    }

    /// Returns the key of the value, which is created now if it does not exist yet.
    fn key(&self, local: &Rc<Local>) -> Result<ArenaKey, Missing> {
        let init = {
            let mut state = self.state.lock();
            match &mut *state {
                BoundState::Made(key) => return Ok(*key),
                BoundState::Making => return Err(Missing::Making),
                BoundState::Failed => return Err(Missing::Failed),
                // A destructor at the end of the loop visits: a value created now would not be dropped on it.
                BoundState::Waiting(_) if local.shared.is_sealed() => return Err(Missing::Ended),
                BoundState::Waiting(_) => {
                    match std::mem::replace(&mut *state, BoundState::Making) {
                        BoundState::Waiting(init) => init,
                        _ => unreachable!("it was waiting a line ago"),
                    }
                }
            }
        };
        let call = || init(&self.event_loop);
        let value = local.shared.panics.call(PanicSite::LoopBound, call);
        let key = value.map(|value| local.arena.borrow_mut().insert(value));
        *self.state.lock() = key.map_or(BoundState::Failed, BoundState::Made);
        key.ok_or(Missing::Failed)
    }

    #[track_caller]
    fn visit<T: 'static, R>(&self, local: &Rc<Local>, visit: impl FnOnce(&mut T) -> R) -> R {
        let Ok(key) = self.key(local) else {
            panic!(
                "the LoopBound value was not made: its init panicked, is still at work, or came too \
                 late: the loop has ended"
            );
        };
        let taken = local.arena.borrow_mut().take(key);
        let mut value = match taken {
            Visit::Value(value) => value,
            Visit::Taken => panic!("the LoopBound value is in use: visits do not nest"),
            Visit::Gone => panic!("the LoopBound value is gone: its loop has ended"),
        };
        let target = value
            .downcast_mut::<T>()
            .expect("the key identifies a value of this type");
        let result = contain(|| visit(target));
        let orphan = local.arena.borrow_mut().give_back(key, value);
        if let Err(payload) = contain_drop(orphan) {
            discard(payload);
        }
        match result {
            Ok(result) => result,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }
}

/// Clones the `Rc` of a value out of the arena: no borrow is held while user code works on it.
fn shared_value<T: 'static>(local: &Local, key: ArenaKey) -> Option<Rc<T>> {
    let arena = local.arena.borrow();
    arena.get(key)?.downcast_ref::<Rc<T>>().cloned()
}

impl Drop for Bound {
    fn drop(&mut self) {
        let made = match *self.state.get_mut() {
            BoundState::Made(key) => Some(key),
            _ => None,
        };
        if let Some(key) = made {
            // The loop drops the value; a loop that has ended has already dropped it.
            self.event_loop.shared().post(Message::Unbind(key));
        }
    }
}

impl<T> Clone for LoopBound<T> {
    fn clone(&self) -> LoopBound<T> {
        LoopBound {
            inner: Arc::clone(&self.inner),
            value: PhantomData,
        }
    }
}

impl<T> fmt::Debug for LoopBound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopBound")
            .field("type", &std::any::type_name::<T>())
            .field("event_loop", &self.inner.event_loop)
            .finish()
    }
}
