//! The life of a loop's thread, turn by turn.
//!
//! ```text
//!   turn:  collect the inbox
//!          run I/O tasks (woken by readiness), measured
//!          run other tasks, for their share of that time
//!          run tail tasks
//!          one step of the shutdown, if there is one
//!          rest: wait in the driver, or just look if something is queued
//! ```
//!
//! - Fairness: a turn runs the I/O tasks that were queued when it began and then other tasks for
//!   `t_io·(100−r)/r`, or for 1 ms or 1,024 tasks if there was no I/O. What is woken meanwhile goes
//!   behind what is queued. So sockets, tasks and the shutdown wait for one turn at most.
//! - The reactor is looked at once per turn, not once per task.
//! - The clock is read after 64 tasks at the earliest, and once per turn while shutting down.
//! - The loop sleeps only if nothing is queued on either side; `sleeping` is set under the inbox lock.
//! - Whatever ends the turns — terms, failure, a panic — [`shutdown::finish`] comes after them.

use std::any::Any;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::builder::WaitStrategy;
use crate::event_loop::context;
use crate::event_loop::inbox::Batch;
use crate::event_loop::launch::Parts;
use crate::event_loop::local::Local;
use crate::event_loop::shared::{Ending, Mail, Notice, Shared};
use crate::event_loop::shutdown::{self, Progress, Request, Step};
use crate::panic::{PanicSite, Payload, contain, contain_drop, discard, message};
use crate::reactor::Driver;
use crate::report::Cause;
use crate::sync::{Arc, AtomicBool, Ordering};

/// Tasks between two looks at the clock.
const BATCH: u32 = 64;
/// Tasks of a turn without I/O, at most.
const SLICE_TASKS: u32 = 1024;
/// Time of a turn without I/O, at most.
const SLICE: Duration = Duration::from_millis(1);

/// Makes the calling thread the loop until its shutdown.
pub(crate) fn run_loop(parts: Parts) {
    drive(parts, |runner| {
        loop {
            match runner.turn(|| true) {
                Ok(None) => {}
                Ok(Some(cause)) => return (cause, None),
                Err(error) => return (Cause::Failed, Some(error)),
            }
        }
    });
}

/// What became of the future given to [`run_main`].
pub(crate) enum Main<T> {
    Done(T),
    Panicked(Payload),
    /// The loop ended first.
    Ended(Option<io::Error>),
}

/// Makes the calling thread the loop until `future` is done.
pub(crate) fn run_main<F: Future>(parts: Parts, future: F) -> Main<F::Output> {
    let mut outcome = Main::Ended(None);
    let shared = Arc::clone(&parts.shared);
    drive(parts, |runner| {
        let woken = Arc::new(AtomicBool::new(true));
        let waker = main_waker(&shared, &woken);
        let mut cx = Context::from_waker(&waker);
        let mut future = Box::pin(future);
        let ending = loop {
            // Relaxed is enough at home; from elsewhere the inbox lock orders the wake.
            if woken.swap(false, Ordering::Acquire) {
                match contain(|| future.as_mut().poll(&mut cx)) {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(value)) => {
                        outcome = Main::Done(value);
                        break (Cause::Now, None);
                    }
                    Err(payload) => {
                        outcome = Main::Panicked(payload);
                        break (Cause::Now, None);
                    }
                }
            }
            match runner.turn(|| !woken.load(Ordering::Acquire)) {
                Ok(None) => {}
                Ok(Some(cause)) => break (cause, None),
                Err(error) => {
                    outcome = Main::Ended(Some(io::Error::new(error.kind(), error.to_string())));
                    break (Cause::Failed, Some(error));
                }
            }
        };
        drop_main(&shared, future);
        shared.request(Request::Now);
        ending
    });
    outcome
}

/// A waker that brings the main future to its next poll.
fn main_waker(shared: &Arc<Shared>, woken: &Arc<AtomicBool>) -> std::task::Waker {
    let shared = Arc::clone(shared);
    let woken = Arc::clone(woken);
    waker_fn::waker_fn(move || {
        let first = !woken.swap(true, Ordering::Release);
        // At home the flag is looked at before the loop sleeps.
        if first && context::with_home(&shared, |_| ()).is_none() {
            shared.post(Notice::Look);
        }
    })
}

fn drop_main<F>(shared: &Shared, future: Pin<Box<F>>) {
    if let Err(payload) = contain_drop(future) {
        shared.report_panic(PanicSite::Destructor, &*payload, None);
        discard(payload);
    }
}

/// Sets a loop up, lets `body` drive it, and takes it down again, whatever `body` does.
fn drive(parts: Parts, body: impl FnOnce(&mut Runner) -> (Cause, Option<io::Error>)) {
    let Parts {
        shared,
        core,
        driver,
    } = parts;
    let group = Arc::clone(&core.termination);
    let local = Rc::new(Local::new(Arc::clone(&shared), core));
    let entered = context::enter_loop(&local).expect("the caller has looked");
    let guard = start_hook(&local);
    let mut runner = Runner {
        local,
        driver,
        mail: Batch::new(),
        progress: None,
        wait: shared.config.wait_strategy,
        io_ratio: shared.config.io_ratio,
    };
    let (cause, error) = match contain(|| body(&mut runner)) {
        Ok(ending) => ending,
        Err(payload) => {
            let error = io::Error::other(format!("event loop panicked: {}", message(&*payload)));
            discard(payload);
            (Cause::Failed, Some(error))
        }
    };
    let Runner {
        local,
        mut driver,
        mut mail,
        ..
    } = runner;
    shutdown::finish(&local, &mut driver, &mut mail, cause);
    if let Err(payload) = contain_drop(guard) {
        shared.report_panic(PanicSite::ThreadHook, &*payload, None);
        discard(payload);
    }
    drop(entered);
    // The last reference to the group may go here, and with it the user's closures.
    if let Err(payload) = contain_drop(local) {
        discard(payload);
    }
    drop(driver);
    let requested_at = shared
        .control
        .lock()
        .terms()
        .map(|terms| terms.requested_at);
    let ending = Ending {
        started: true,
        cause,
        error,
        requested_at: requested_at.unwrap_or_else(Instant::now),
    };
    shared.terminate(ending, Some(&group));
}

/// Calls the user's hook for a new loop thread; a panic leaves the loop without a guard.
fn start_hook(local: &Local) -> Option<Box<dyn Any>> {
    let hook = local.shared.config.on_thread_start.as_ref()?;
    let this = &local.core.loops[local.shared.index];
    match contain(|| hook(this)) {
        Ok(guard) => Some(guard),
        Err(payload) => {
            local
                .shared
                .report_panic(PanicSite::ThreadHook, &*payload, None);
            discard(payload);
            None
        }
    }
}

/// A loop at work; loop thread only.
struct Runner {
    local: Rc<Local>,
    driver: Driver,
    mail: Mail,
    /// `Some` once the loop has noticed that it shuts down.
    progress: Option<Progress>,
    wait: WaitStrategy,
    io_ratio: u32,
}

impl Runner {
    /// One turn; `Some` if it was the last. `may_sleep` is asked just before the loop would.
    fn turn(&mut self, may_sleep: impl Fn() -> bool) -> io::Result<Option<Cause>> {
        self.local.collect(&mut self.mail);
        let io_time = self.run_io_tasks();
        self.run_tasks(io_time);
        for runnable in self.local.take_tail() {
            self.local.run_one(runnable);
        }
        let deadline = match self.step() {
            Step::End(cause) => return Ok(Some(cause)),
            Step::Wait(deadline) => deadline,
        };
        self.rest(deadline, may_sleep)?;
        Ok(None)
    }

    /// Runs the tasks that readiness has woken; returns the time it took, if there were any.
    fn run_io_tasks(&self) -> Option<Duration> {
        let queued = self.local.queued_io();
        if queued == 0 {
            return None;
        }
        let start = Instant::now();
        for _ in 0..queued {
            if let Some(runnable) = self.local.next_io_task() {
                self.local.run_one(runnable);
            }
        }
        Some(start.elapsed())
    }

    /// Runs queued tasks for their share of the turn.
    fn run_tasks(&self, io_time: Option<Duration>) {
        let (mut limit, slice) = match io_time {
            // With a ratio of 100, everything that is queued now, and nothing that comes meanwhile.
            Some(_) if self.io_ratio >= 100 => {
                (u32::try_from(self.local.queued()).unwrap_or(u32::MAX), None)
            }
            Some(io_time) => {
                let share = io_time.saturating_mul(100 - self.io_ratio) / self.io_ratio;
                (u32::MAX, Some(share))
            }
            None => (SLICE_TASKS, Some(SLICE)),
        };
        let mut start = None;
        let mut run = 0;
        while limit > 0 {
            let Some(runnable) = self.local.next_task() else {
                return;
            };
            self.local.run_one(runnable);
            limit -= 1;
            run += 1;
            if run % BATCH == 0 {
                if let Some(slice) = slice {
                    // The first batch is free: most turns never read the clock.
                    let now = Instant::now();
                    if now.duration_since(*start.get_or_insert(now)) >= slice {
                        return;
                    }
                }
            }
        }
    }

    /// Looks whether the loop is to end.
    fn step(&mut self) -> Step {
        let local = &self.local;
        if !local.shared.state.get().is_shutting_down() {
            return Step::Wait(None);
        }
        let terms = local.shared.control.lock().terms();
        let terms = terms.expect("the terms are set before the state");
        let progress = self
            .progress
            .get_or_insert_with(|| Progress::begin(local, &terms));
        progress.step(local, &terms, Instant::now())
    }

    /// Waits for work as the wait strategy says; only looks if there is some.
    fn rest(&mut self, deadline: Option<Instant>, may_sleep: impl Fn() -> bool) -> io::Result<()> {
        let local = Rc::clone(&self.local);
        let shared = &local.shared;
        if local.queued() > 0 || !may_sleep() {
            return self.driver.look(&shared.bell);
        }
        match self.wait {
            WaitStrategy::Park => {}
            WaitStrategy::SpinThenPark(spin) => {
                if self.spin(spin, deadline)? {
                    return Ok(());
                }
            }
            WaitStrategy::Busy => {
                std::hint::spin_loop();
                return self.driver.look(&shared.bell);
            }
        }
        if !shared.inbox.try_sleep() {
            return self.driver.look(&shared.bell);
        }
        let result = self.driver.wait(&shared.bell, deadline);
        shared.inbox.awake();
        result
    }

    /// Looks for work without blocking, for `spin` at most; `true` if there is some.
    fn spin(&mut self, spin: Duration, deadline: Option<Instant>) -> io::Result<bool> {
        let now = Instant::now();
        let mut until = now.checked_add(spin).unwrap_or(now);
        if let Some(deadline) = deadline {
            until = until.min(deadline);
        }
        loop {
            for _ in 0..16 {
                if self.local.shared.inbox.has_mail() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            self.driver.look(&self.local.shared.bell)?;
            if self.local.queued() > 0 {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }
}
