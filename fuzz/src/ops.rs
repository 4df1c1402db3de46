//! A group in the hands of a seed, beside a model that knows how every task has to end.
//!
//! - Tasks have little programs: yield, sleep, wait at a gate, panic. They touch nothing of each other, so
//!   whatever the interleaving, the model knows where each one stands whenever the group is stalled.
//! - Between stalls it does not: there the task's own account counts, which the model checks at the next one.
//! - While a loop ends, a task may be cancelled; but none that the terms of the shutdown protect.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::builder::Builder;
use crate::error::{JoinError, RejectReason};
use crate::event_loop::handle::EventLoop;
use crate::event_loop::scheduled::Scheduled;
use crate::fuzzing::Bytes;
use crate::fuzzing::actor::{Account, Act, Actor, Fate, GATES, Gates, Task};
use crate::sync::{Arc, Mutex, Ordering};
use crate::testing::TestGroup;

/// At most so many operations and tasks: longer strings find nothing that shorter ones do not.
const MOST: usize = 200;

/// A closure that runs once: at once, or at its deadline.
struct Call {
    home: usize,
    deadline: u64,
    account: Arc<Account>,
    timer: Option<Scheduled<()>>,
    cancelled: bool,
}

/// What is known of a loop.
#[derive(Clone, Default)]
struct Home {
    /// The end was requested; it has to be over when this moment has passed.
    ends_by: Option<u64>,
    /// Closures in the order of their runs, by their numbers.
    ran: Arc<Mutex<Vec<usize>>>,
}

struct World {
    test: TestGroup,
    now: u64,
    gates: Arc<Mutex<Gates>>,
    homes: Vec<Home>,
    tasks: Vec<Task>,
    calls: Vec<Call>,
}

/// Runs the operations that `data` spells.
pub fn ops(data: &[u8]) {
    let mut bytes = Bytes(data);
    let loops = 1 + bytes.below(4);
    let seed = bytes.below(256) as u64;
    // The panics of actors are meant.
    let builder = Builder::new().loops(loops).on_panic(|_| {});
    let mut world = World {
        test: TestGroup::from_builder(seed, builder).expect("the settings are right"),
        now: 0,
        gates: Arc::default(),
        homes: (0..loops).map(|_| Home::default()).collect(),
        tasks: Vec::new(),
        calls: Vec::new(),
    };
    for _ in 0..MOST {
        let Some(operation) = bytes.next() else { break };
        world.apply(operation, &mut bytes);
    }
    world.end();
}

impl World {
    fn apply(&mut self, operation: u8, bytes: &mut Bytes<'_>) {
        let home = bytes.below(self.homes.len());
        match operation % 20 {
            0..=5 => self.spawn(home, bytes),
            6 => self.execute(home),
            7 => self.schedule(home, bytes.below(32) as u64),
            8 => self.abort(bytes.below(256)),
            9 => self.cancel_timer(bytes.below(256)),
            // Detached: it goes on.
            10 => drop(
                self.some_task(bytes.below(256))
                    .and_then(|task| task.handle.take()),
            ),
            11 => self.open(bytes.below(GATES)),
            12 => self.wake(),
            13..=14 => self.advance(bytes.below(16) as u64),
            15 => self.advance(0),
            16 => match operation / 20 % 6 {
                0 => self.shutdown_now(home..home + 1),
                1 => self.drain(home..home + 1, bytes.below(64) as u64),
                2 => self.graceful(
                    home..home + 1,
                    bytes.below(16) as u64,
                    bytes.below(64) as u64,
                ),
                3 => self.shutdown_now(0..self.homes.len()),
                4 => self.drain(0..self.homes.len(), bytes.below(64) as u64),
                _ => {
                    let (quiet, more) = (bytes.below(16) as u64, bytes.below(64) as u64);
                    self.graceful(0..self.homes.len(), quiet, more);
                }
            },
            _ => self.test.step(),
        }
    }

    fn spawn(&mut self, home: usize, bytes: &mut Bytes<'_>) {
        let act = |byte: usize| match byte % 8 {
            0..=2 => Act::Yield,
            3..=4 => Act::Sleep(byte as u64 / 8),
            5..=6 => Act::Gate(byte / 8 % GATES),
            _ => Act::Panic,
        };
        let len = bytes.below(5);
        let program: Vec<Act> = (0..len).map(|_| act(bytes.below(256))).collect();
        let account: Arc<Account> = Arc::default();
        let refuses = self.refuses(home);
        if refuses {
            *account.fate.lock() = Some(Fate::Rejected);
        }
        let handle = self.test.group().spawn_on(
            home,
            Actor {
                program: program.clone(),
                account: Arc::clone(&account),
                gates: Arc::clone(&self.gates),
                home,
                sleep: None,
            },
        );
        self.tasks.push(Task {
            home,
            program,
            handle: Some(handle),
            account,
            at: 0,
            since: self.now,
            fate: refuses.then_some(Fate::Rejected),
            protected: false,
        });
    }

    fn execute(&mut self, home: usize) {
        let (call, closure) = self.call(home, 0);
        let refused = self.test.group().loops()[home].execute(closure);
        assert_eq!(refused.is_err(), call.cancelled);
        self.calls.push(call);
    }

    fn schedule(&mut self, home: usize, delay: u64) {
        let (mut call, closure) = self.call(home, delay);
        let delay = Duration::from_millis(delay);
        call.timer = Some(self.test.group().loops()[home].schedule(delay, closure));
        self.calls.push(call);
    }

    /// A closure that keeps an account of itself.
    fn call(&self, home: usize, delay: u64) -> (Call, impl FnOnce() + Send + use<>) {
        let (account, number) = (Arc::<Account>::default(), self.calls.len());
        let (inside, ran) = (Arc::clone(&account), Arc::clone(&self.homes[home].ran));
        let closure = move || {
            let here = EventLoop::current().map(|ev| ev.index());
            assert_eq!(here, Some(home), "called away from home");
            inside.steps.fetch_add(1, Ordering::Relaxed);
            ran.lock().push(number);
        };
        let call = Call {
            home,
            deadline: self.now + delay,
            account,
            timer: None,
            cancelled: self.refuses(home),
        };
        (call, closure)
    }

    fn some_task(&mut self, which: usize) -> Option<&mut Task> {
        let len = self.tasks.len().max(1);
        self.tasks.get_mut(which % len)
    }

    fn abort(&mut self, which: usize) {
        let Some(task) = self.some_task(which) else {
            return;
        };
        if let Some(handle) = task.handle.take() {
            handle.abort();
            // As far as it came, and no further.
            let known = *task.account.fate.lock();
            task.fate = known.or(Some(Fate::Cancelled));
            task.at = task.account.steps.load(Ordering::Relaxed);
            task.protected = false;
        }
    }

    fn cancel_timer(&mut self, which: usize) {
        let len = self.calls.len().max(1);
        let Some(call) = self.calls.get_mut(which % len) else {
            return;
        };
        if let Some(timer) = &call.timer {
            let ran = call.account.steps.load(Ordering::Relaxed) == 1;
            let prevented = timer.cancel();
            assert!(!(prevented && ran), "what ran was not prevented");
            let ending = self.homes[call.home].ends_by.is_some();
            assert!(
                prevented || ran || call.cancelled || ending,
                "prevented, if it is in time"
            );
            call.cancelled |= !ran;
        }
    }

    fn open(&mut self, gate: usize) {
        // Up to the moment of the opening the model has to know where everybody stands.
        self.advance(0);
        self.gates.lock().open[gate] = true;
        for task in &mut self.tasks {
            if matches!(task.program.get(task.at), Some(&Act::Gate(other)) if other == gate) {
                task.since = self.now;
            }
        }
        self.wake();
    }

    /// Wakes from outside, in vain or not, also tasks that are gone.
    fn wake(&mut self) {
        let wakers = std::mem::take(&mut self.gates.lock().wakers);
        for waker in wakers {
            waker.wake();
        }
    }

    fn shutdown_now(&mut self, homes: std::ops::Range<usize>) {
        self.request(homes.clone(), 0, |_, _| false);
        for task in self
            .tasks
            .iter_mut()
            .filter(|task| homes.contains(&task.home))
        {
            task.protected = false;
        }
        for home in homes.clone() {
            self.homes[home].ends_by = Some(self.now);
        }
        if homes.len() == 1 {
            drop(self.test.group().loops()[homes.start].shutdown_now());
        } else {
            drop(self.test.group().shutdown_now());
        }
    }

    fn drain(&mut self, homes: std::ops::Range<usize>, millis: u64) {
        let timeout = Duration::from_millis(millis);
        self.request(homes.clone(), millis, |task, gates| {
            task.needs_less(u64::MAX, millis, gates)
        });
        if homes.len() == 1 {
            drop(self.test.group().loops()[homes.start].drain(timeout));
        } else {
            drop(self.test.group().drain(timeout));
        }
    }

    fn graceful(&mut self, homes: std::ops::Range<usize>, quiet: u64, more: u64) {
        let all = quiet + more;
        let (pause, timeout) = (Duration::from_millis(quiet), Duration::from_millis(all));
        self.request(homes.clone(), all, |task, gates| {
            task.needs_less(quiet, all, gates)
        });
        let future = if homes.len() == 1 {
            self.test.group().loops()[homes.start].shutdown_gracefully_with(pause, timeout)
        } else {
            self.test.group().shutdown_gracefully_with(pause, timeout)
        };
        drop(future.expect("the terms are in order"));
    }

    /// Notes a request, which counts where it is the first.
    fn request(
        &mut self,
        homes: std::ops::Range<usize>,
        timeout: u64,
        protects: impl Fn(&Task, &[bool; GATES]) -> bool,
    ) {
        // Up to this moment the model has to know where everybody stands.
        self.advance(0);
        let open = self.gates.lock().open;
        for home in homes {
            if self.homes[home].ends_by.is_some() {
                continue;
            }
            self.homes[home].ends_by = Some(self.now + timeout);
            for task in self.tasks.iter_mut().filter(|task| task.home == home) {
                task.protected = timeout > 0 && task.fate.is_none() && protects(task, &open);
            }
        }
    }

    fn refuses(&self, home: usize) -> bool {
        self.test.group().loops()[home].state().is_shutdown()
    }

    /// Lets time pass, in both worlds, and compares them.
    fn advance(&mut self, millis: u64) {
        self.test.advance(Duration::from_millis(millis));
        self.now += millis;
        assert_eq!(self.test.elapsed(), Duration::from_millis(self.now));
        let (open, now) = (self.gates.lock().open, self.now);
        for (index, home) in self.homes.iter().enumerate() {
            let over = home.ends_by.is_some_and(|end| end <= now);
            assert!(
                !over || self.test.group().loops()[index].state().is_terminated(),
                "in time"
            );
            let ran = home.ran.lock();
            let deadline = |number: usize| self.calls[number].deadline;
            // One that is due at once and one that has no timer are in no order.
            let ordered = [true, false].iter().all(|&timed| {
                let alike = ran
                    .iter()
                    .filter(|&&number| self.calls[number].timer.is_some() == timed);
                alike.is_sorted_by_key(|&number| (deadline(number), number))
            });
            assert!(
                ordered && ran.is_sorted_by_key(|&number| deadline(number)),
                "by deadline, and in order: {ran:?}"
            );
        }
        for task in &mut self.tasks {
            let known = *task.account.fate.lock();
            let before = task.fate;
            task.run(now, &open);
            if self.homes[task.home].ends_by.is_some() && before.is_none() && known != task.fate {
                assert_eq!(known, Some(Fate::Cancelled), "a shutdown does nothing else");
                assert!(!task.protected, "it was given its time");
                assert!(self.test.group().loops()[task.home].state().is_shutdown());
                task.fate = known;
            }
            assert_eq!(known, task.fate, "after {} steps", task.at);
            let steps = task.account.steps.load(Ordering::Relaxed);
            assert!(task.fate == Some(Fate::Cancelled) || steps == task.at);
        }
        for call in &mut self.calls {
            let ran = call.account.steps.load(Ordering::Relaxed);
            assert!(
                ran <= usize::from(!call.cancelled && call.deadline <= now),
                "early, or twice"
            );
            // A shutdown cancels what has not run.
            call.cancelled |= ran == 0 && self.homes[call.home].ends_by.is_some();
            assert!(ran == 1 || call.cancelled || call.deadline > now, "late");
        }
    }

    /// Ends what has not ended, and looks at the sums and at every handle.
    fn end(mut self) {
        self.shutdown_now(0..self.homes.len());
        self.advance(0);
        let report = self.test.report().expect("every loop has ended");
        let fates = |fate| {
            self.tasks
                .iter()
                .filter(|task| task.fate == Some(fate))
                .count() as u64
        };
        let ran = |call: &&Call| call.account.steps.load(Ordering::Relaxed) == 1;
        let ran = self.calls.iter().filter(ran).count() as u64;
        assert_eq!(report.completed(), fates(Fate::Completed) + ran);
        assert_eq!(report.panicked(), fates(Fate::Panicked));
        let all = self.tasks.len() + self.calls.len();
        assert_eq!(report.accepted() + report.rejected(), all as u64);
        assert_eq!(
            report.accepted(),
            report.completed() + report.panicked() + report.cancelled()
        );
        let mut cx = Context::from_waker(Waker::noop());
        for task in &mut self.tasks {
            let Some(handle) = &mut task.handle else {
                continue;
            };
            let polled = Pin::new(handle).poll(&mut cx);
            let Poll::Ready(result) = polled else {
                panic!("every handle resolves")
            };
            let told = match &result {
                Ok(steps) => {
                    assert_eq!(*steps, task.program.len());
                    Fate::Completed
                }
                Err(error) if error.is_panic() => Fate::Panicked,
                Err(error) if error.is_cancelled() => Fate::Cancelled,
                Err(error) => {
                    assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
                    Fate::Rejected
                }
            };
            assert_eq!(Some(told), task.fate);
        }
        for call in &mut self.calls {
            let Some(timer) = &mut call.timer else {
                continue;
            };
            let ran = call.account.steps.load(Ordering::Relaxed) == 1;
            let polled = Pin::new(timer)
                .poll(&mut cx)
                .map_err(|error: JoinError| error.is_panic());
            let told = if ran { Ok(()) } else { Err(false) };
            assert_eq!(polled, Poll::Ready(told), "every handle resolves");
        }
    }
}
