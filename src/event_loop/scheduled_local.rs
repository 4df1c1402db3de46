//! Scheduled closures that are not `Send`: only the loop itself may schedule them.
//!
//! - They are local tasks, created on their loop, and in all else closures like the others.
//! - On any other thread the closure is rejected and dropped where it is: it has never left its thread.

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::panic::Location;
use std::time::Duration;

use crate::error::RejectReason;
use crate::event_loop::course::Repetition;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::event_loop::repeat::Repeat;
use crate::event_loop::scheduled::{Delayed, Periodic, Scheduled, endless};
use crate::panic::PanicSite;
use crate::task;
use crate::task::join::JoinHandle;

impl EventLoop {
    /// As [`schedule`](EventLoop::schedule), for a closure that is not `Send`: only on the loop itself.
    ///
    /// On any other thread it is rejected, [`NotOnLoop`](RejectReason::NotOnLoop), which the handle reports.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoop, RejectReason};
    /// use std::{rc::Rc, time::Duration};
    ///
    /// let ms = Duration::from_millis(1);
    /// let text = loopgroup::run(async move {
    ///     let here = EventLoop::current().expect("run makes this thread a loop");
    ///     let text = Rc::new("later");
    ///     here.schedule_local(ms, move || text).await.unwrap()
    /// })?;
    /// assert_eq!(*text, "later");
    ///
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let rejected = group.next().schedule_local(ms, || ()); // this thread is no loop
    /// let error = loopgroup::block_on(rejected).unwrap_err();
    /// assert_eq!(error.reject_reason(), Some(RejectReason::NotOnLoop));
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn schedule_local<F, T>(&self, delay: Duration, call: F) -> Scheduled<T>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let (task, state) = Delayed::new(self.deadline_after(delay), call);
        let handle = self.spawn_here(task, Lane::Timed);
        Scheduled::new(handle, state, self.shared(), Repetition::Once)
    }

    /// As [`schedule_at_fixed_rate`](EventLoop::schedule_at_fixed_rate), for a closure that is not `Send`:
    /// only on the loop itself.
    ///
    /// On any other thread it is rejected, [`NotOnLoop`](RejectReason::NotOnLoop), which the handle reports.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `period` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoop, testing::TestLoop, time::sleep};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let second = Duration::from_secs(1);
    /// TestLoop::new().block_on(async {
    ///     let here = EventLoop::current().expect("a test loop is a loop");
    ///     let beats = Rc::new(Cell::new(0)); // no atomic
    ///     let count = Rc::clone(&beats);
    ///     let beat = here
    ///         .schedule_at_fixed_rate_local(second, second, move || count.set(count.get() + 1))
    ///         .unwrap();
    ///     sleep(10 * second + second / 2).await;
    ///     assert_eq!(beats.get(), 10);
    ///     assert!(beat.cancel());
    /// });
    /// ```
    #[track_caller]
    pub fn schedule_at_fixed_rate_local<F>(
        &self,
        initial: Duration,
        period: Duration,
        call: F,
    ) -> io::Result<Scheduled<()>>
    where
        F: FnMut() + 'static,
    {
        let repeat = Repeat::at_fixed_rate(period).starting_in(initial);
        self.repeat_local(repeat, endless(call))
    }

    /// As [`schedule_with_fixed_delay`](EventLoop::schedule_with_fixed_delay), for a closure that is not
    /// `Send`: only on the loop itself.
    ///
    /// On any other thread it is rejected, [`NotOnLoop`](RejectReason::NotOnLoop), which the handle reports.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `delay` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoop, testing::TestLoop, time::sleep};
    /// use std::{cell::Cell, rc::Rc, time::Duration};
    ///
    /// let second = Duration::from_secs(1);
    /// TestLoop::new().block_on(async {
    ///     let here = EventLoop::current().expect("a test loop is a loop");
    ///     let runs = Rc::new(Cell::new(0));
    ///     let count = Rc::clone(&runs);
    ///     drop(here.schedule_with_fixed_delay_local(second, second, move || {
    ///         count.set(count.get() + 1);
    ///     }));
    ///     sleep(3 * second + second / 2).await;
    ///     assert_eq!(runs.get(), 3);
    /// });
    /// ```
    #[track_caller]
    pub fn schedule_with_fixed_delay_local<F>(
        &self,
        initial: Duration,
        delay: Duration,
        call: F,
    ) -> io::Result<Scheduled<()>>
    where
        F: FnMut() + 'static,
    {
        let repeat = Repeat::with_fixed_delay(delay).starting_in(initial);
        self.repeat_local(repeat, endless(call))
    }

    /// As [`repeat`](EventLoop::repeat), for a closure that is not `Send`: only on the loop itself.
    ///
    /// On any other thread it is rejected, [`NotOnLoop`](crate::RejectReason::NotOnLoop), which the handle
    /// reports.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the period or the delay is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoop, Repeat};
    /// use std::{cell::Cell, ops::ControlFlow, rc::Rc, time::Duration};
    ///
    /// loopgroup::run(async {
    ///     let here = EventLoop::current().expect("run makes this thread a loop");
    ///     let left = Rc::new(Cell::new(3));
    ///     let count = Rc::clone(&left);
    ///     let down = here.repeat_local(Repeat::at_fixed_rate(Duration::from_millis(1)), move || {
    ///         count.set(count.get() - 1);
    ///         if count.get() > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    ///     })?;
    ///     down.await?;
    ///     assert_eq!(left.get(), 0);
    ///     std::io::Result::Ok(())
    /// })?
    /// # ;std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn repeat_local<F, T>(&self, repeat: Repeat, call: F) -> io::Result<Scheduled<T>>
    where
        F: FnMut() -> ControlFlow<T> + 'static,
        T: 'static,
    {
        let (timing, first) = repeat.start(&self.shared().config)?;
        let (task, state) = Periodic::new(first, timing, call);
        let handle = self.spawn_here(task, Lane::Timed);
        let rule = Repetition::Periodic;
        Ok(Scheduled::new(handle, state, self.shared(), rule))
    }

    /// Spawns a future that need not be `Send` if this thread is the loop's, or rejects it.
    #[track_caller]
    fn spawn_here<F>(&self, future: F, lane: Lane) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let location = Location::caller();
        let shared = self.shared();
        if !self.in_event_loop() {
            return self.refuse(RejectReason::NotOnLoop, future, location);
        }
        let made = task::new_local_listed(shared, future, location);
        JoinHandle::queue(shared, made, lane, Urgency::Now, || location)
    }

    /// Rejects a future, and drops it here.
    pub(crate) fn refuse<F: Future>(
        &self,
        reason: RejectReason,
        future: F,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F::Output: 'static,
    {
        let shared = self.shared();
        shared.note_refusal(reason, location);
        let site = PanicSite::Destructor;
        shared.panics.drop(site, Some(location), future);
        JoinHandle::refused(reason)
    }
}
