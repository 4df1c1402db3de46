//! How a loop waits when it has nothing to do.
//!
//! - While a task is queued, or the inbox has mail, it polls the driver without waiting.
//! - It sleeps in its driver and nowhere else; `sleeping` is set under the inbox lock, where producers
//!   check it.
//! - What it waits for is no work: [`Pulse`](crate::metrics::pulse::Pulse) is told when a wait begins and
//!   ends, with readings of the clock that the turns before and after use as well.
//! - An idle loop that is about to wake tasks notifies its group first that it is busy.

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::config::WaitStrategy;
use crate::event_loop::inbox::KEPT_CAPACITY;
use crate::event_loop::run::Runner;
use crate::reactor::WaitUntil;
use crate::sync;

impl Runner {
    /// Waits for work as the wait strategy says; does not wait if a task is queued.
    pub(super) fn rest(
        &mut self,
        mut until: Option<WaitUntil>,
        may_sleep: impl Fn() -> bool,
    ) -> io::Result<()> {
        let local = Rc::clone(&self.local);
        let shared = &local.shared;
        if local.queued() > 0 || !may_sleep() {
            return self.poll_now();
        }
        // Looked at without the lock first: while items flow, producers want it as well.
        if shared.inbox.has_mail() {
            if let WaitStrategy::SpinThenPark(spin) = shared.config.wait_strategy {
                if self.spin_policy.should_spin() {
                    self.spin_policy.spun(spin, true); // it would find the mail at once
                }
            }
            self.flow.pause();
            return self.poll_now();
        }
        match shared.config.wait_strategy {
            WaitStrategy::SpinThenPark(spin) if self.spin_policy.should_spin() => {
                let found_work = self.spin(spin, until)?;
                self.spin_policy.spun(spin, found_work);
                if found_work {
                    shared.pulse.wake(self.read().tick);
                    return Ok(());
                }
                // The time spent spinning must not be added to the wait.
                self.forget_reading();
                until = until.map(|until| until.read_again());
            }
            WaitStrategy::Park | WaitStrategy::SpinThenPark(_) => {}
            WaitStrategy::Busy => {
                let polls = local.polls();
                let worked = std::mem::replace(&mut self.rested_polls, polls) != polls;
                shared.pulse.turned(self.read().tick, worked);
                std::hint::spin_loop();
                return self.poll_now();
            }
        }
        self.shrink();
        if !shared.inbox.try_sleep(until.map(|until| until.deadline)) {
            if let WaitStrategy::SpinThenPark(_) = shared.config.wait_strategy {
                shared.pulse.wake(self.read().tick);
            }
            return self.poll_now();
        }
        self.wait(until)
    }

    /// Waits in the driver, asleep, and is awake afterwards.
    pub(crate) fn wait(&mut self, until: Option<WaitUntil>) -> io::Result<()> {
        match self.local.observer.is_on() {
            true => self.wait_observed(until),
            false => self.wait_as::<false>(until),
        }
    }

    #[cold]
    fn wait_observed(&mut self, until: Option<WaitUntil>) -> io::Result<()> {
        self.wait_as::<true>(until)
    }

    /// Two functions rather than two more branches: most loops are not observed.
    #[inline(always)]
    fn wait_as<const OBSERVED: bool>(&mut self, until: Option<WaitUntil>) -> io::Result<()> {
        let shared = &self.local.shared;
        shared.gauges.parks.add(1);
        let asleep = self.recent();
        shared.pulse.sleep(asleep.tick);
        if OBSERVED {
            self.local.observer.park(asleep.now);
        }
        let result = self.driver.wait(&shared.port, until, &mut self.due);
        let awake = self.read();
        shared.pulse.wake(awake.tick);
        if OBSERVED {
            self.local.observer.unpark(awake.now);
        }
        shared.inbox.awake();
        self.wake_ready();
        result
    }

    /// Wakes the tasks that waited for what the selector found ready.
    fn wake_ready(&mut self) {
        if !self.due.is_empty() {
            self.note_busy();
            self.local.wake_ready(&mut self.due);
        }
    }

    /// Polls the driver without waiting.
    pub(crate) fn poll_now(&mut self) -> io::Result<()> {
        let result = self.driver.poll_now(&self.local.shared.port, &mut self.due);
        self.wake_ready();
        result
    }

    /// Looks for work without blocking, for `spin` at most; returns `true` if there is some, or `until` has
    /// passed.
    fn spin(&mut self, spin: Duration, until: Option<WaitUntil>) -> io::Result<bool> {
        let start = sync::now();
        let pulse = &self.local.shared.pulse;
        pulse.sleep(pulse.tick(start));
        loop {
            for _ in 0..16 {
                if self.local.shared.inbox.has_mail() {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            self.poll_now()?;
            if self.local.queued() > 0 {
                return Ok(true);
            }
            let now = sync::now();
            if until.is_some_and(|until| now >= until.deadline) {
                return Ok(true);
            }
            if now.saturating_duration_since(start) >= spin {
                return Ok(false);
            }
        }
    }

    /// Frees the memory of a past burst, before the loop sleeps.
    ///
    /// What fills a queue or a table is polled: after fewer polls than they keep room for, none of them is
    /// twice as large as that.
    #[inline]
    fn shrink(&mut self) {
        if self.local.polls() >= self.shrinks_at {
            self.shrink_all();
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink_all(&mut self) {
        let is_small = self.local.shrink();
        let are_small = [
            self.mail.shrink(KEPT_CAPACITY),
            self.local.shared.inbox.shrink(),
        ];
        self.shrinks_at = match is_small && are_small == [true; 2] {
            true => self.local.polls() + KEPT_CAPACITY as u64,
            false => 0,
        };
    }

    /// Falls asleep until `deadline`, but does not wait: from here on producers ring the bell. Returns
    /// `false` if there is work. For a loop that is driven by hand.
    pub(crate) fn fall_asleep(&mut self, deadline: Option<Instant>) -> bool {
        if self.local.queued() > 0 {
            return false;
        }
        self.shrink();
        self.try_sleep(deadline)
    }

    /// Sets the loop asleep, but does not wait; `false` if its inbox has mail.
    pub(crate) fn try_sleep(&self, deadline: Option<Instant>) -> bool {
        let shared = &self.local.shared;
        let asleep = shared.inbox.try_sleep(deadline);
        if asleep {
            let asleep = self.read();
            shared.pulse.sleep(asleep.tick);
            self.local.observer.park(asleep.now);
        }
        asleep
    }

    /// The descriptor of the selector, if there is one.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.driver.descriptor()
    }

    /// Whether the bell was rung since the loop fell asleep; for a loop that is driven by hand.
    pub(crate) fn was_rung(&self) -> bool {
        self.driver.was_rung()
    }

    /// Ends the sleep of a loop that is driven by hand.
    pub(crate) fn end_sleep(&mut self) {
        self.local.shared.inbox.awake();
        let awake = self.read();
        self.local.shared.pulse.wake(awake.tick);
        self.local.observer.unpark(awake.now);
        self.driver.forget_ring();
    }
}
