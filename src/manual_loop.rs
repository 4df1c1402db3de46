//! A loop that its user drives: inside a GUI, a game, or another event loop.
//!
//! Between two turns the loop sleeps as in production, but nobody waits in its selector: the user waits for
//! the selector's descriptor instead. The protocol:
//!
//! ```text
//!   turn:    wake up    end the sleep: producers need not ring
//!            poll       collect readiness; this also takes old rings off the selector
//!            work       one turn, as in production
//!            wait       if there is time and nothing was run: sleep in the selector, then work once more
//!            settle     sleep ▸ poll ▸ still asleep?  yes: stalled
//!                                                     no:  busy, the loop rings its own bell
//! ```
//!
//! - After a turn the loop is *stalled* or *busy*. A stalled loop is asleep in the sense of its inbox
//!   (`sleeping` is set under the lock, with nothing inside), so the next producer rings. A busy loop has
//!   rung its own bell. So whenever there is something to do, the descriptor is readable or the deadline of
//!   the turn has passed.
//! - The last poll of a turn comes after the loop fell asleep, and finds nothing, or the loop is busy. What
//!   becomes ready later is an edge, so the descriptor may be watched by edges as well as by levels. That
//!   poll may take a ring off the selector; the producer has pushed before it rang, so the loop does not get
//!   back to sleep and rings itself.
//! - What enters the loop between turns (`spawn_local`, `enter`) pushes to its queue without a ring, so it
//!   makes the loop busy.
//! - The thread is the loop's thread during a call, and an ordinary thread between calls.
//! - The loop ends on this thread: in the turn that its terms say, when its selector fails, or when it is
//!   dropped.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::Location;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::builder::Builder;
use crate::clock::earlier;
use crate::error::RejectReason;
use crate::event_loop::context::{self, LoopGuard};
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::Ring;
use crate::event_loop::main_future::{main_waker, poll_main};
use crate::event_loop::run::{Next, Runner};
use crate::event_loop::terms::ShutdownRequest;
use crate::group::handle::EventLoopGroup;
use crate::panic::PanicSite;
use crate::reactor::WaitUntil;
use crate::report::{EndCause, TerminationReport};
use crate::spawn::spawn_local;
use crate::sync::{self, Arc, AtomicBool, Ordering};
use crate::task::join::JoinHandle;
use crate::this_thread;
use crate::unwind::{Payload, contain, discard, message};

/// A loop without a thread of its own, which the program drives turn by turn.
///
/// For a thread that has another loop already: of a GUI, a game, or another library. That loop calls
/// [`turn`](ManualLoop::turn) once per frame, or whenever the [descriptor](#impl-AsRawFd-for-ManualLoop) of
/// this one is readable or its [`timeout`](ManualLoop::timeout) has passed. Everything works as on any other
/// loop: tasks, timers, sockets, submissions from other threads, and the shutdown. Nothing runs between the
/// turns.
///
/// The descriptor is readable whenever there is something to run, except for timers. It is a selector
/// (`epoll`, `kqueue`) and can itself be watched by `poll`, `epoll`, `kqueue` or whatever watches
/// descriptors, by levels or by edges. Stop watching it before the loop ends.
///
/// The loop stays on its thread (it is not `Send`), but its [`EventLoop`] handle may be sent anywhere.
/// Dropping a `ManualLoop` ends the loop at once and drops its tasks on this thread;
/// [`drain`](ManualLoop::drain) lets them finish.
///
/// # Examples
///
/// A frame is 16 ms long; what is ready in the meantime is served at once:
///
/// ```
/// use loopgroup::{ManualLoop, time::sleep};
/// use std::time::{Duration, Instant};
///
/// let mut manual = ManualLoop::new()?;
/// let mut task = manual.spawn_local(async {
///     sleep(Duration::from_millis(40)).await;
///     "served"
/// });
/// let mut frames = 0;
/// while !task.is_finished() {
///     frames += 1; // draw
///     let next = Instant::now() + Duration::from_millis(16);
///     while let Some(left) = next.checked_duration_since(Instant::now()) {
///         manual.turn(Some(left))?;
///     }
/// }
/// println!("{frames} frames were drawn meanwhile");
/// assert_eq!(manual.block_on(&mut task)?.unwrap(), "served");
/// # std::io::Result::Ok(())
/// ```
///
/// It cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// let manual = loopgroup::ManualLoop::new().unwrap();
/// std::thread::spawn(move || drop(manual));
/// ```
#[must_use = "a ManualLoop runs only while it is driven, and ends when it is dropped"]
pub struct ManualLoop {
    event_loop: EventLoop,
    /// `None` once the loop has ended.
    running: Option<Running>,
    /// Keeps a group of its own alive; `None` for a loop of a group of the user's.
    _group: Option<EventLoopGroup>,
}

struct Running {
    runner: Runner,
    /// The guard of `Builder::on_thread_start`.
    guard: Option<Box<dyn Any>>,
    rest: Rest,
}

/// What the loop is doing between two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It has something to run, and has rung its bell.
    Busy,
    /// It is asleep, until this deadline.
    Stalled(Option<Instant>),
}

/// The outcome of a [`ManualLoop::block_on`].
enum BlockOnEnd<T> {
    Done(Result<T, Payload>),
    Ended(io::Result<TurnStep>),
}

/// What follows a turn.
enum TurnStep {
    Rest(Rest),
    End(EndCause),
}

impl ManualLoop {
    /// Creates a loop in a group of its own.
    ///
    /// # Errors
    ///
    /// The system's error if the selector cannot be created; `Other` in the destructor of a thread-local.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut manual = loopgroup::ManualLoop::new()?;
    /// let remote = manual.event_loop().clone();
    /// std::thread::spawn(move || remote.execute(|| println!("on the loop")));
    /// while manual.turn(None)?.polls() == 0 {} // waits for the closure
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new() -> io::Result<ManualLoop> {
        ManualLoop::from_builder(Builder::new())
    }

    /// Creates a loop with these settings, in a group of its own. The number of loops is 1; the settings of
    /// threads and waits have no effect, but `on_thread_start` is called, on this thread.
    ///
    /// # Errors
    ///
    /// As [`new`](ManualLoop::new); `InvalidInput` with the name of the invalid setting, `without_io` among
    /// them.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, ManualLoop};
    ///
    /// let settings = EventLoopGroup::builder().max_pending_tasks(100);
    /// let mut manual = ManualLoop::from_builder(settings)?;
    /// assert_eq!(manual.block_on(async { 7 })?, 7);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_builder(builder: Builder) -> io::Result<ManualLoop> {
        let group = builder.loops(1).build()?;
        let mut manual = ManualLoop::claim(&group, 0)?;
        manual._group = Some(group);
        Ok(manual)
    }

    /// Takes a loop of `group` over: this thread drives it, and no thread is started for it.
    ///
    /// The other loops of the group have threads as usual, so that the tasks of this one can hand work to
    /// them. Work that is submitted to this loop waits for its turns, and so does the end of the group.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no such loop, if it has its thread already (it was used before), if it was
    /// shut down, or if the group was built `without_io`; `Other` in the destructor of a thread-local.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, ManualLoop};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let mut main = ManualLoop::claim(&group, 0)?; // before its first use
    /// let worker = group.loops()[1].clone();
    /// let sum = main.block_on(async move { worker.submit(|| 1 + 2).await })?;
    /// assert_eq!(sum.unwrap(), 3);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn claim(group: &EventLoopGroup, index: usize) -> io::Result<ManualLoop> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
        if !this_thread::is_loop() && !context::may_be_loop() {
            return Err(too_late("created"));
        }
        let Some(event_loop) = group.loops().get(index).cloned() else {
            let len = group.len();
            return Err(invalid(&format!("loop {index}: the group has {len} loops")));
        };
        if event_loop.shared().port.table.is_none() {
            return Err(invalid(
                "without_io: a loop that is driven by hand needs a selector to be woken by",
            ));
        }
        let Some(parts) = event_loop.shared().take_parts() else {
            return Err(invalid(&format!(
                "loop {index}: it is {:?}, but must be claimed before its first use",
                event_loop.state()
            )));
        };
        let mut manual = ManualLoop {
            event_loop,
            running: Some(Running {
                runner: Runner::new(parts),
                guard: None,
                rest: Rest::Busy,
            }),
            _group: None,
        };
        manual.begin();
        Ok(manual)
    }

    /// Calls the hook of the group, on the loop, and has the first turn notice what was submitted before.
    fn begin(&mut self) {
        let Some(_outside) = context::step_out() else {
            return;
        };
        if let Some(running) = &mut self.running {
            let local = running.runner.local();
            let shared = Arc::clone(&local.shared);
            let _entered = context::enter_loop(local);
            running.guard = shared.parent.thread_started(&shared);
            shared.ring_if_needed(Ring::Needed);
        }
    }

    /// Returns the handle of the loop, for submissions from any thread.
    pub fn event_loop(&self) -> &EventLoop {
        &self.event_loop
    }

    /// Runs what is ready; if there is nothing, waits for something to run, for `timeout` at most. `None` is
    /// for ever, and zero does not wait.
    ///
    /// A turn is bounded, as on every loop: about a millisecond of tasks, and then a share of I/O. If
    /// more is left, [`Turned::is_busy`] says so, and the descriptor stays readable. A wait ends with the
    /// first event, which is handled in the same turn. Waits are rounded up to whole milliseconds.
    ///
    /// # Errors
    ///
    /// `Deadlock` on the thread of an event loop, for example in a task: nothing happened. The system's error
    /// if the selector fails for good: the loop has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::ManualLoop;
    /// use std::time::Duration;
    ///
    /// let mut manual = ManualLoop::new()?;
    /// let task = manual.event_loop().spawn(async { loopgroup::yield_now().await });
    /// let mut polls = 0;
    /// while !task.is_finished() {
    ///     polls += manual.turn(Some(Duration::ZERO))?.polls();
    /// }
    /// assert_eq!(polls, 2);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<Turned> {
        let entered = self.enter_loop("turn")?;
        let before = self.as_raw_fd();
        let (Some(running), Some(entered)) = (&mut self.running, entered) else {
            return Ok(Turned {
                polls: 0,
                rest: None,
                new_descriptor: false,
            });
        };
        let polls = running.runner.local().polls();
        let step = contained(|| running.turn(timeout));
        let polls = running.runner.local().polls() - polls;
        self.finish(step, entered)?;
        Ok(Turned {
            polls,
            rest: self.running.as_ref().map(|running| running.rest),
            new_descriptor: self.running.is_some() && before != self.as_raw_fd(),
        })
    }

    /// Returns when the next timer is due; `None` if there is none, or the loop has ended.
    ///
    /// The next turn is needed at this instant, or when the descriptor is readable. It changes with each turn
    /// and not in between.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{ManualLoop, time::sleep};
    /// use std::time::Duration;
    ///
    /// let mut manual = ManualLoop::new()?;
    /// manual.spawn_local(sleep(Duration::from_secs(60)));
    /// while manual.turn(Some(Duration::ZERO))?.is_busy() {}
    /// assert!(manual.next_deadline().is_some());
    /// assert!(manual.timeout() > Some(Duration::from_secs(50)));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.running.as_ref()?.rest {
            Rest::Busy => None,
            Rest::Stalled(deadline) => deadline,
        }
    }

    /// Returns how long the program may wait for the descriptor before it calls [`turn`](ManualLoop::turn):
    /// not at all if there is more to run now, and for ever, `None`, if there is neither that nor a timer.
    pub fn timeout(&self) -> Option<Duration> {
        match self.running.as_ref()?.rest {
            Rest::Busy => Some(Duration::ZERO),
            Rest::Stalled(deadline) => {
                deadline.map(|deadline| deadline.saturating_duration_since(sync::now()))
            }
        }
    }

    /// Says whether the loop has ended: it was shut down, or its selector has failed. Nothing runs any more.
    pub fn is_ended(&self) -> bool {
        self.running.is_none()
    }

    /// Spawns a future on the loop, which need not be `Send`; it runs in the turns that follow.
    ///
    /// A rejection shows in the handle: [`ShutDown`](RejectReason::ShutDown) if the loop has ended,
    /// [`NotOnLoop`](RejectReason::NotOnLoop) on the thread of another loop, for example in one of its tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut manual = loopgroup::ManualLoop::new()?;
    /// let local = std::rc::Rc::new(7);
    /// let task = manual.spawn_local(async move { *local });
    /// assert_eq!(manual.block_on(task)?.unwrap(), 7);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_local<F>(&mut self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let location = Location::caller();
        match self.enter_loop("spawn_local") {
            Ok(Some(_entered)) => {
                let handle = spawn_local(future);
                self.make_busy();
                handle
            }
            Ok(None) => {
                let reason = RejectReason::ShutDown;
                self.event_loop.refuse(reason, future, location)
            }
            Err(_) => {
                let reason = RejectReason::NotOnLoop;
                self.event_loop.refuse(reason, future, location)
            }
        }
    }

    /// Calls `call` on the loop: for what works only there, such as
    /// [`PerLoop::here`](crate::PerLoop::here) or
    /// [`EventLoop::schedule_local`](crate::EventLoop::schedule_local).
    ///
    /// # Errors
    ///
    /// `Deadlock` on the thread of an event loop; `BrokenPipe` if the loop has ended. `call` was not called.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoop, ManualLoop};
    ///
    /// let mut manual = ManualLoop::new()?;
    /// assert_eq!(EventLoop::current(), None);
    /// let inside = manual.enter(EventLoop::current)?;
    /// assert_eq!(inside.as_ref(), Some(manual.event_loop()));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn enter<R>(&mut self, call: impl FnOnce() -> R) -> io::Result<R> {
        let Some(_entered) = self.enter_loop("enter")? else {
            return Err(ended(io::ErrorKind::BrokenPipe));
        };
        // Before the call, which may panic.
        self.make_busy();
        Ok(call())
    }

    /// Drives `future` and the loop until the future completes, and waits in between.
    ///
    /// The future is polled on the loop: it may use `spawn_local`, timers and everything else, and need be
    /// neither `Send` nor `'static`. The loop stays alive afterwards, unlike that of
    /// [`loopgroup::run`](crate::run).
    ///
    /// # Errors
    ///
    /// As [`turn`](ManualLoop::turn); `Interrupted` if the loop ends before the future has completed.
    ///
    /// # Panics
    ///
    /// If the future panics, with the same payload; the loop is not affected.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{ManualLoop, time::sleep};
    /// use std::time::Duration;
    ///
    /// let mut manual = ManualLoop::new()?;
    /// let text = String::from("borrowed");
    /// let length = manual.block_on(async {
    ///     sleep(Duration::from_millis(1)).await;
    ///     text.len()
    /// })?;
    /// assert_eq!(length, 8);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn block_on<F: Future>(&mut self, future: F) -> io::Result<F::Output> {
        let entered = self.enter_loop("block_on")?;
        let (Some(running), Some(entered)) = (&mut self.running, entered) else {
            return Err(ended(io::ErrorKind::Interrupted));
        };
        let shared = Arc::clone(&running.runner.local().shared);
        let woken = Arc::new(AtomicBool::new(true));
        let waker = main_waker(&shared, &woken);
        let mut future = Box::pin(future);
        running.wake_up();
        let outcome = loop {
            // Acquire pairs with the Release in `main_waker`.
            if woken.swap(false, Ordering::Acquire) {
                running.runner.forget_reading();
                match poll_main(running.runner.local(), future.as_mut(), &waker) {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(value)) => break BlockOnEnd::Done(Ok(value)),
                    Err(payload) => break BlockOnEnd::Done(Err(payload)),
                }
            }
            match contained(|| running.runner.turn(|| !woken.load(Ordering::Acquire))) {
                Ok(None) => {}
                Ok(Some(cause)) => break BlockOnEnd::Ended(Ok(TurnStep::End(cause))),
                Err(error) => break BlockOnEnd::Ended(Err(error)),
            }
        };
        // On the loop, while it exists.
        shared.panics.drop(PanicSite::Destructor, None, future);
        match outcome {
            BlockOnEnd::Done(result) => {
                // The last turn may have left the loop with anything to run, awake.
                running.rest = Rest::Busy;
                running.ring();
                drop(entered);
                result.map_or_else(|payload| std::panic::resume_unwind(payload), Ok)
            }
            BlockOnEnd::Ended(step) => {
                self.finish(step, entered)?;
                Err(ended(io::ErrorKind::Interrupted))
            }
        }
    }

    /// Ends the loop when no task of it is live or queued any more, or at `timeout`: turns until then.
    ///
    /// # Errors
    ///
    /// As [`turn`](ManualLoop::turn).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{ManualLoop, time::sleep};
    /// use std::time::Duration;
    ///
    /// let mut manual = ManualLoop::new()?;
    /// manual.spawn_local(sleep(Duration::from_millis(1)));
    /// let report = manual.drain(Duration::from_secs(5))?;
    /// assert_eq!(report.completed(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn drain(&mut self, timeout: Duration) -> io::Result<TerminationReport> {
        drop(self.enter_loop("drain")?);
        let termination = self.event_loop.drain(timeout);
        while !self.turn(None)?.is_ended() {}
        // The loop has made its report; other threads that end with it are joined here.
        Ok(termination.wait())
    }

    /// Makes this thread the loop's; `None` if the loop has ended.
    fn enter_loop(&self, what: &str) -> io::Result<Option<LoopGuard>> {
        if this_thread::is_loop() {
            return Err(io::Error::new(
                io::ErrorKind::Deadlock,
                format!(
                    "ManualLoop::{what} was called on the thread of an event loop, inside one of its \
                     tasks or turns: call it outside, from the program's own loop"
                ),
            ));
        }
        if !context::may_be_loop() {
            return Err(too_late(what));
        }
        let Some(running) = &self.running else {
            return Ok(None);
        };
        Ok(context::enter_loop(running.runner.local()))
    }

    fn make_busy(&mut self) {
        if let Some(running) = &mut self.running {
            running.make_busy();
        }
    }

    /// Notes what follows a turn; ends the loop if it was the last.
    fn finish(&mut self, step: io::Result<TurnStep>, entered: LoopGuard) -> io::Result<()> {
        let (cause, failure) = match step {
            Ok(TurnStep::Rest(rest)) => {
                if let Some(running) = &mut self.running {
                    running.rest = rest;
                }
                return Ok(());
            }
            Ok(TurnStep::End(cause)) => (cause, None),
            Err(error) => (EndCause::Failed, Some(error)),
        };
        let copy = failure
            .as_ref()
            .map(|error| io::Error::new(error.kind(), error.to_string()));
        if let Some(Running { runner, guard, .. }) = self.running.take() {
            runner.end(cause, copy, guard, entered);
        }
        failure.map_or(Ok(()), Err)
    }
}

impl Running {
    /// Ends the sleep between two turns: from here on producers need not ring.
    fn wake_up(&mut self) {
        self.runner.end_sleep();
    }

    /// Has the descriptor be readable until the next turn.
    fn make_busy(&mut self) {
        if self.rest != Rest::Busy {
            self.wake_up();
            self.rest = Rest::Busy;
            self.ring();
        }
    }

    fn ring(&self) {
        self.runner.local().shared.ring_if_needed(Ring::Needed);
    }

    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<TurnStep> {
        self.wake_up();
        self.runner.poll_now()?;
        let polls = self.runner.local().polls();
        let mut next = self.runner.work();
        let found_none = self.runner.local().polls() == polls;
        if found_none && timeout != Some(Duration::ZERO) {
            if let Next::Rest(until) = next {
                if !is_due(until) && self.runner.fall_asleep(deadline(until)) {
                    self.runner.wait(until_at_most(until, timeout))?;
                    next = self.runner.work();
                }
            }
        }
        match next {
            Next::End(cause) => Ok(TurnStep::End(cause)),
            Next::Rest(until) => self.settle(until, || {}).map(TurnStep::Rest),
        }
    }

    /// Leaves the loop asleep, with an empty selector, or busy. `asleep` is called once the loop is asleep:
    /// the poll that follows takes a ring of that moment off the selector.
    fn settle(&mut self, until: Option<WaitUntil>, asleep: impl FnOnce()) -> io::Result<Rest> {
        let deadline = deadline(until);
        if !is_due(until) && self.runner.fall_asleep(deadline) {
            asleep();
            self.runner.poll_now()?;
            if self.runner.fall_asleep(deadline) {
                return Ok(Rest::Stalled(deadline));
            }
        }
        self.wake_up();
        self.ring();
        Ok(Rest::Busy)
    }
}

fn deadline(until: Option<WaitUntil>) -> Option<Instant> {
    until.map(|until| until.deadline)
}

fn is_due(until: Option<WaitUntil>) -> bool {
    until.is_some_and(|until| until.deadline <= until.now)
}

/// The end of a wait for `timeout`, or at the loop's own deadline if that is earlier.
fn until_at_most(until: Option<WaitUntil>, timeout: Option<Duration>) -> Option<WaitUntil> {
    let now = sync::now();
    let limit = timeout.and_then(|timeout| now.checked_add(timeout));
    let deadline = earlier(deadline(until), limit)?;
    Some(WaitUntil { deadline, now })
}

/// Calls a turn; its panic, which is none of a task, is a failure of the loop.
fn contained<T>(turn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    contain(turn).unwrap_or_else(|payload| {
        let text = format!("event loop panicked: {}", message(&*payload));
        discard(payload);
        Err(io::Error::other(text))
    })
}

fn too_late(what: &str) -> io::Error {
    io::Error::other(format!(
        "ManualLoop::{what}: the thread-locals of this thread are being destroyed, and it can no \
         longer be a loop"
    ))
}

fn ended(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "the ManualLoop has ended: it was shut down")
}

/// The descriptor of the loop's selector, to wait for; it belongs to the loop and must not be closed.
///
/// It changes only if the system's selector fails and is replaced, which
/// [`Turned::has_new_descriptor`] reports. It is -1 once the loop has ended.
impl AsRawFd for ManualLoop {
    fn as_raw_fd(&self) -> RawFd {
        let running = self.running.as_ref();
        running
            .and_then(|running| running.runner.descriptor())
            .unwrap_or(-1)
    }
}

impl Drop for ManualLoop {
    fn drop(&mut self) {
        let Some(Running { runner, guard, .. }) = self.running.take() else {
            return;
        };
        // Also inside another loop, whose books are not touched. During the destruction of
        // thread-locals nothing can run, and the tasks are only dropped.
        let Some(_outside) = context::step_out() else {
            return;
        };
        if let Some(entered) = context::enter_loop(runner.local()) {
            self.event_loop.shared().request(ShutdownRequest::Now);
            runner.end(EndCause::Now, None, guard, entered);
        }
    }
}

impl fmt::Debug for ManualLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualLoop")
            .field("event_loop", &self.event_loop)
            .field("rest", &self.running.as_ref().map(|running| running.rest))
            .finish()
    }
}

/// What a [`turn`](ManualLoop::turn) did, and what it left.
///
/// # Examples
///
/// ```
/// use loopgroup::ManualLoop;
/// use std::time::Duration;
///
/// let mut manual = ManualLoop::new()?;
/// manual.spawn_local(async {});
/// let turned = manual.turn(Some(Duration::ZERO))?;
/// assert_eq!(turned.polls(), 1);
/// assert!(!turned.is_busy() && !turned.is_ended());
/// assert_eq!(turned.next_deadline(), None);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turned {
    polls: u64,
    /// `None` if the loop has ended.
    rest: Option<Rest>,
    new_descriptor: bool,
}

impl Turned {
    /// Returns how many tasks were polled.
    pub fn polls(&self) -> u64 {
        self.polls
    }

    /// Says whether there is more to run now: the next turn should not wait.
    pub fn is_busy(&self) -> bool {
        self.rest == Some(Rest::Busy)
    }

    /// Says whether the loop has ended.
    pub fn is_ended(&self) -> bool {
        self.rest.is_none()
    }

    /// Returns when the next timer is due, as [`ManualLoop::next_deadline`] does.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.rest {
            Some(Rest::Stalled(deadline)) => deadline,
            Some(Rest::Busy) | None => None,
        }
    }

    /// Says whether the selector was replaced in this turn, so that another descriptor is to be watched.
    pub fn has_new_descriptor(&self) -> bool {
        self.new_descriptor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::unix::SourceFd;
    use mio::{Events, Interest, Poll, Token};

    fn is_readable(manual: &ManualLoop) -> bool {
        let mut poll = Poll::new().unwrap();
        let mut events = Events::with_capacity(1);
        let fd = manual.as_raw_fd();
        let registry = poll.registry();
        registry
            .register(&mut SourceFd(&fd), Token(0), Interest::READABLE)
            .unwrap();
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        !events.is_empty()
    }

    /// A settled loop that settles again, with `between` at the moment after it fell asleep.
    fn settle_with(between: impl FnOnce(&EventLoop)) -> (Rest, bool) {
        let mut manual = ManualLoop::new().unwrap();
        while manual.turn(Some(Duration::ZERO)).unwrap().is_busy() {}
        assert!(!is_readable(&manual));
        let ev = manual.event_loop().clone();
        let running = manual.running.as_mut().unwrap();
        let entered = context::enter_loop(running.runner.local()).unwrap();
        running.wake_up();
        running.rest = running.settle(None, || between(&ev)).unwrap();
        drop(entered);
        let rest = running.rest;
        (rest, is_readable(&manual))
    }

    #[test]
    fn a_ring_that_the_last_poll_takes_is_not_lost() {
        let submit = |ev: &EventLoop| {
            let ev = ev.clone();
            let other = std::thread::spawn(move || ev.execute(|| ()).unwrap());
            other.join().unwrap();
        };
        assert_eq!(settle_with(submit), (Rest::Busy, true));
        let nudge = |ev: &EventLoop| {
            let ev = ev.clone();
            let other = std::thread::spawn(move || drop(ev.drain(Duration::from_secs(5))));
            other.join().unwrap();
        };
        assert_eq!(settle_with(nudge), (Rest::Busy, true));
        assert_eq!(settle_with(|_| {}), (Rest::Stalled(None), false));
    }

    #[test]
    fn a_ring_that_comes_late_is_one_turn_too_many_and_no_more() {
        // A producer that took its duty in an earlier sleep, whose work is done by now.
        let ring = |ev: &EventLoop| ev.shared().ring_if_needed(Ring::Needed);
        assert_eq!(settle_with(ring), (Rest::Stalled(None), false));
    }
}
