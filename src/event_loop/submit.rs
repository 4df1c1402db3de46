//! How work comes to a loop.
//!
//! Every submission ends in [`enqueue`](super::enqueue). `spawn` builds its task first, outside the
//! lock, and a refusal shows in the handle; the task of `try_spawn` is built in the critical section that
//! accepts it, because async-task does not give a future back. `execute` and `spawn_detached` submit
//! [errands](super::closures), which become tasks on the loop or need none.

use std::future::Future;
use std::panic::Location;

use crate::error::{Caller, RejectReason, Rejected};
use crate::event_loop::closures::Call;
use crate::event_loop::context;
use crate::event_loop::counters::TaskEnd;
use crate::event_loop::enqueue::Admission;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::event_loop::shared::Shared;
use crate::panic::PanicSite;
use crate::sync::Arc;
use crate::task::closure::Closure;
use crate::task::detached::Detached;
use crate::task::join::JoinHandle;
use crate::task::lazy::Lazy;
use crate::task::origin::Origin;
use crate::task::stand_in::StandIn;
use crate::task::{self, ListedAhead};
use crate::unwind::contain;

impl EventLoop {
    /// Spawns a future on this loop.
    ///
    /// A rejection shows in the handle; see [`try_spawn`](EventLoop::try_spawn) to get the future back.
    /// For a future that is not `Send` see [`spawn_with`](EventLoop::spawn_with).
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let ev = &group.loops()[1];
    /// let index = ev.spawn(async { loopgroup::EventLoop::current().map(|ev| ev.index()) });
    /// assert_eq!(group.block_on(index).unwrap(), Some(1));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // not Send? see spawn_with
        F::Output: Send + 'static,
    {
        self.spawn_by(future, Lane::Main, Urgency::Now, Location::caller())
    }

    /// Spawns a future that the loop needs to see now, later, or whenever it is awake.
    pub(crate) fn spawn_by<F>(
        &self,
        future: F,
        lane: Lane,
        urgency: Urgency,
        origin: impl Origin + Send + 'static,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let shared = self.shared();
        if !shared.is_plain() {
            return self.spawn_bounded(future, lane, urgency, origin);
        }
        let location = origin.location();
        let made = task::new_send(shared, future, origin);
        JoinHandle::queue(shared, made, lane, urgency, || location)
    }

    /// As [`EventLoop::spawn_by`], for a loop that has a bound or lists its tasks.
    #[cold]
    #[inline(never)]
    fn spawn_bounded<F>(
        &self,
        future: F,
        lane: Lane,
        urgency: Urgency,
        origin: impl Origin + Send + 'static,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let location = origin.location();
        let shared = self.shared();
        // What waits unseen still takes a place below the bound: it is not to wait there for long.
        let urgency = match shared.place.counters.limit.is_reachable() {
            true => Urgency::Now,
            false => urgency,
        };
        let made = task::new_send_listed(shared, future, origin);
        JoinHandle::queue(shared, made, lane, urgency, || location)
    }

    /// Makes a future on this loop and runs it there; it need not be `Send`.
    ///
    /// `init` runs on the loop. It and what the future returns have to be `Send`. Task and future are
    /// one: when [`JoinHandle::cancel`] resolves, the future is dropped. A rejection shows in the handle.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let task = group.next().spawn_with(|| {
    ///     let text = Rc::new("made at home"); // an Rc, across an await
    ///     async move {
    ///         loopgroup::yield_now().await;
    ///         text.len()
    ///     }
    /// });
    /// assert_eq!(group.block_on(task).unwrap(), 12);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_with<I, F>(&self, init: I) -> JoinHandle<F::Output>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.spawn(StandIn::<I, F>::new(init))
    }

    /// As [`spawn_with`](EventLoop::spawn_with), or hands `init` back.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// group.shutdown_now().wait();
    /// let rejected = group.next().try_spawn_with(|| async { 7 }).unwrap_err();
    /// let init = rejected.into_inner();
    /// assert_eq!(loopgroup::block_on(init()), 7);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_spawn_with<I, F>(&self, init: I) -> Result<JoinHandle<F::Output>, Rejected<I>>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.try_submit(init, StandIn::new, Lane::Main, Urgency::Now)
    }

    /// Spawns a future on this loop, or hands it back.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let task = group.next().try_spawn(async { 7 })?;
    /// assert_eq!(group.block_on(task).unwrap(), 7);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_submit(future, |future| future, Lane::Main, Urgency::Now)
    }

    /// Spawns a future without a handle on this loop, or hands it back.
    ///
    /// It is as `try_spawn` with its handle dropped, and cheaper if the work comes from other threads: the
    /// future travels to the loop without a task, and the loop creates the task when it begins. What one
    /// thread spawns and executes on a loop begins in that order, whichever function it uses. A panic is
    /// reported through [`Builder::on_panic`](crate::Builder::on_panic). Use [`spawn`](EventLoop::spawn) if
    /// anything is to be known of the end: the handle tells, and can abort the task.
    ///
    /// An accepted future is polled and dropped on the loop only, also if the loop ends before it has begun.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the future and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let (tx, rx) = mpsc::channel();
    /// for n in 0..3 {
    ///     let tx = tx.clone();
    ///     group.next().spawn_detached(async move { tx.send(n).unwrap() })?;
    /// }
    /// drop(tx);
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), [0, 1, 2]);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_detached<F>(&self, future: F) -> Result<(), Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_detached_from(future, Location::caller())
    }

    /// As [`EventLoop::spawn_detached`], for a task of this origin.
    pub(crate) fn spawn_detached_from<F>(
        &self,
        future: F,
        origin: impl Origin + Send + 'static,
    ) -> Result<(), Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let location = origin.location();
        self.offer_detached(future, origin)
            .inspect_err(|rejected| self.shared().note_refusal(rejected.reason(), location))
    }

    /// As [`EventLoop::spawn_detached`], but a refusal is not counted: another loop may accept the future.
    pub(crate) fn offer_detached<F>(
        &self,
        future: F,
        origin: impl Origin + Send + 'static,
    ) -> Result<(), Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if context::is_home(self.shared()) {
            // The task is created here in any case, and takes less room in the queue.
            let offered = self.offer(future, |future| future, Lane::Main, Urgency::Now, origin);
            return offered.map(drop);
        }
        let location = origin.location();
        let errand = Detached { future, origin };
        let queued = self.shared().enqueue_errand(errand, Urgency::Now, location);
        queued.map_err(|rejected| {
            let reason = rejected.reason();
            Rejected::new(rejected.into_inner().future, reason)
        })
    }

    /// Runs a closure on this loop, once, in its turn.
    ///
    /// What one thread spawns and executes on a loop begins in that order. A closure is a task of its own,
    /// with an [id](crate::task_id()), in every count, bound and report; but closures of one type that come
    /// one after the other share their memory, so a flow of them is cheaper than one of tasks.
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
        self.try_execute(call, Urgency::Now, Location::caller())
    }

    /// Runs a closure on this loop, once, in its turn, and returns a handle to its result.
    ///
    /// A rejection shows in the handle.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let name = group.next().submit(|| std::thread::current().name().map(str::to_owned));
    /// assert!(group.block_on(name).unwrap().unwrap().starts_with("loop-"));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn submit<F, T>(&self, call: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn(Closure::new(call))
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
        let shared = self.shared();
        if !context::is_home(shared) {
            return self.execute(call);
        }
        // Not without a context, either: a task has called `exit`, and thread-locals are being destroyed.
        if context::with_home(shared, |local| local.shared.is_open()) != Some(true) {
            let reason = RejectReason::ShutDown;
            shared.note_refusal(reason, location);
            return Err(Rejected::new(call, reason));
        }
        let counters = &shared.place.counters;
        counters.accept_local();
        counters.begin_unlimited();
        // Counted before it is reported: the handler of panics may read the counters.
        match contain(call) {
            Ok(()) => counters.end(TaskEnd::Completed),
            Err(payload) => {
                counters.end(TaskEnd::Panicked);
                shared
                    .panics
                    .report(PanicSite::Task, payload, Some(location));
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
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let (tx, rx) = std::sync::mpsc::channel();
    /// let late = tx.clone();
    /// group.next().lazy_execute(move || late.send("statistics").unwrap())?; // can wait
    /// group.next().execute(move || tx.send("work").unwrap())?; // brings it along
    /// assert_eq!([rx.recv(), rx.recv()], [Ok("statistics"), Ok("work")]);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn lazy_execute<F>(&self, call: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.try_execute(call, Urgency::Lazy, Location::caller())
    }

    /// Queues a closure, or hands it back and counts the refusal.
    fn try_execute<F>(&self, call: F, urgency: Urgency, location: Caller) -> Result<(), Rejected<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let queued = self.shared().enqueue_errand(Call(call), urgency, location);
        queued.map_err(|rejected| {
            let reason = rejected.reason();
            self.shared().note_refusal(reason, location);
            Rejected::new(rejected.into_inner().0, reason)
        })
    }

    /// Runs a closure once, after the tasks of the iteration that takes it in: to flush what they
    /// wrote, say.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    /// use std::sync::mpsc;
    ///
    /// let (tx, rx) = mpsc::channel();
    /// let mut test = TestLoop::new();
    /// let flush = tx.clone();
    /// test.execute_after_iteration(move || flush.send("flush").unwrap())?;
    /// test.execute(move || tx.send("write").unwrap())?; // submitted later, run earlier
    /// test.run_until_stalled();
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), ["write", "flush"]);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn execute_after_iteration<F>(&self, call: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.try_submit(call, Closure::new, Lane::Tail, Urgency::Now)
            .map(drop)
    }

    /// Runs a closure as [`execute_after_iteration`](EventLoop::execute_after_iteration) does, and returns a
    /// handle to its result.
    ///
    /// The handle can take the closure back: one that is aborted before it runs does not run, and is dropped
    /// on the loop. [`cancel`](JoinHandle::cancel) resolves to `None` then. A rejection shows in the handle.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// let flush = test.submit_after_iteration(|| unreachable!("it was taken back"));
    /// test.execute(move || flush.abort())?; // submitted later, run earlier
    /// test.run_until_stalled();
    /// assert_eq!(test.metrics().cancelled(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn submit_after_iteration<F, T>(&self, call: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_by(
            Closure::new(call),
            Lane::Tail,
            Urgency::Now,
            Location::caller(),
        )
    }

    /// Submits what `wrap` makes of a value; hands the value back, and counts a refusal, if the
    /// loop refuses it.
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
        self.try_submit_from(value, wrap, lane, urgency, Location::caller())
    }

    /// As [`EventLoop::try_submit`], for a task of this origin.
    pub(crate) fn try_submit_from<V, F>(
        &self,
        value: V,
        wrap: impl FnOnce(V) -> F,
        lane: Lane,
        urgency: Urgency,
        origin: impl Origin + Send + 'static,
    ) -> Result<JoinHandle<F::Output>, Rejected<V>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let location = origin.location();
        self.offer(value, wrap, lane, urgency, origin)
            .inspect_err(|rejected| self.shared().note_refusal(rejected.reason(), location))
    }

    /// As [`EventLoop::try_submit`], but a refusal is not counted: another loop may accept the value.
    pub(crate) fn offer<V, F>(
        &self,
        value: V,
        wrap: impl FnOnce(V) -> F,
        lane: Lane,
        urgency: Urgency,
        origin: impl Origin + Send + 'static,
    ) -> Result<JoinHandle<F::Output>, Rejected<V>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if !self.shared().is_plain() {
            return self.offer_bounded(value, wrap, lane, urgency, origin);
        }
        let mut value = Some(value);
        let mut handle = None;
        let make = || {
            let future = wrap(value.take().expect("the value is wrapped once"));
            let (runnable, task) = task::new_send(self.shared(), future, origin);
            handle = Some(JoinHandle::new(task));
            runnable
        };
        match self.shared().enqueue_plain(lane, urgency, make) {
            Ok(()) => Ok(handle.expect("an accepted task was made")),
            Err(reason) => {
                let value = value.expect("a refused value was not wrapped");
                Err(Rejected::new(value, reason))
            }
        }
    }

    /// As [`EventLoop::offer`], for a loop that has a bound or lists its tasks.
    #[cold]
    #[inline(never)]
    fn offer_bounded<V, F>(
        &self,
        value: V,
        wrap: impl FnOnce(V) -> F,
        lane: Lane,
        urgency: Urgency,
        origin: impl Origin + Send + 'static,
    ) -> Result<JoinHandle<F::Output>, Rejected<V>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut value = Some(value);
        let mut handle = None;
        let make = || {
            let future = wrap(value.take().expect("the value is wrapped once"));
            let (runnable, task) = task::new_send_listed(self.shared(), future, origin);
            handle = Some(JoinHandle::new(task));
            runnable
        };
        match self.shared().enqueue(lane, urgency, make) {
            Ok(()) => Ok(handle.expect("an accepted task was made")),
            Err(reason) => {
                let value = value.expect("a refused value was not wrapped");
                Err(Rejected::new(value, reason))
            }
        }
    }

    /// Makes a future on this loop, in the first poll of its task, and runs it there, detached.
    ///
    /// The task is a plain local one, smaller than that of `spawn_with`. A refusal is not counted:
    /// another loop may take the closure.
    pub(crate) fn offer_local<I, F>(
        &self,
        init: I,
        admission: Admission,
        location: Caller,
    ) -> Result<(), Rejected<I>>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let mut init = Some(init);
        let queued = self.shared().enqueue_local(admission, || {
            let init = init.take().expect("the closure is sent once");
            let listed = ListedAhead::new::<Lazy<I, F>>(self.shared(), &location);
            move |home: &Arc<Shared>| {
                let (home, future) = (home.number.get(), Lazy::new(init));
                let (runnable, task) = match listed {
                    Some(listed) => listed.new_local(home, future, location),
                    None => task::new_local(home, future, location),
                };
                task.detach();
                runnable
            }
        });
        queued.map_err(|reason| {
            let init = init.take().expect("a refused closure was not sent");
            Rejected::new(init, reason)
        })
    }
}
