//! Tasks that do what they are told, and keep account of it; and what a model expects of them.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::event_loop::handle::EventLoop;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
use crate::task::join::JoinHandle;
use crate::time::{Sleep, sleep};

pub(super) const GATES: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Yield,
    Sleep(u64),
    Gate(usize),
    Panic,
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Completed,
    Panicked,
    Cancelled,
    Rejected,
}

/// What a task or a closure says of itself: how far it came, and whether it is gone.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) steps: AtomicUsize,
    pub(super) fate: Mutex<Option<Fate>>,
}

/// Doors that open once; who waits is woken.
#[derive(Debug, Default)]
pub(super) struct Gates {
    pub(super) open: [bool; GATES],
    pub(super) wakers: Vec<Waker>,
}

/// The future of a task.
pub(super) struct Actor {
    pub(super) program: Vec<Act>,
    pub(super) account: Arc<Account>,
    pub(super) gates: Arc<Mutex<Gates>>,
    pub(super) home: usize,
    pub(super) sleep: Option<Sleep>,
}

impl Future for Actor {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let this = &mut *self;
        let here = EventLoop::current().map(|ev| ev.index());
        assert_eq!(here, Some(this.home), "polled away from home");
        let at = this.account.steps.load(Ordering::Relaxed);
        let Some(&act) = this.program.get(at) else {
            *this.account.fate.lock() = Some(Fate::Completed);
            return Poll::Ready(at);
        };
        match act {
            Act::Yield => {}
            Act::Sleep(millis) => {
                let start = || sleep(Duration::from_millis(millis));
                if Pin::new(this.sleep.get_or_insert_with(start))
                    .poll(cx)
                    .is_pending()
                {
                    return Poll::Pending;
                }
                this.sleep = None;
            }
            Act::Gate(gate) => {
                let mut gates = this.gates.lock();
                if !gates.open[gate] {
                    gates.wakers.push(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            Act::Panic => {
                *this.account.fate.lock() = Some(Fate::Panicked);
                // Without the noise of the panic hook.
                resume_unwind(Box::new("an actor's panic"));
            }
        }
        this.account.steps.store(at + 1, Ordering::Relaxed);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let here = EventLoop::current().map(|ev| ev.index());
        let mut fate = self.account.fate.lock();
        // One that was refused is dropped by whoever has it.
        let rejected = *fate == Some(Fate::Rejected);
        let home = here == Some(self.home);
        *fate = fate.or(Some(Fate::Cancelled));
        drop(fate);
        assert!(
            home || rejected || here.is_none(),
            "dropped on another loop"
        );
    }
}

/// A task as the model sees it.
pub(super) struct Task {
    pub(super) home: usize,
    pub(super) program: Vec<Act>,
    pub(super) handle: Option<JoinHandle<usize>>,
    pub(super) account: Arc<Account>,
    /// Where it stands, and since when, in milliseconds.
    pub(super) at: usize,
    pub(super) since: u64,
    pub(super) fate: Option<Fate>,
    /// It has to complete, by the terms of the shutdown under way.
    pub(super) protected: bool,
}

impl Task {
    /// Runs it up to `now`.
    pub(super) fn run(&mut self, now: u64, gates: &[bool; GATES]) {
        while self.fate.is_none() {
            match self.program.get(self.at) {
                None => self.fate = Some(Fate::Completed),
                Some(Act::Panic) => self.fate = Some(Fate::Panicked),
                Some(Act::Sleep(millis)) if self.since + millis > now => return,
                Some(&Act::Gate(gate)) if !gates[gate] => return,
                Some(act) => {
                    if let Act::Sleep(millis) = act {
                        self.since += millis;
                    }
                    self.at += 1;
                }
            }
        }
    }

    /// Whether what is left of it needs less than `each` at a time, and less than `all` together.
    pub(super) fn needs_less(&self, each: u64, all: u64, gates: &[bool; GATES]) -> bool {
        let rest = self.program.get(self.at..).unwrap_or_default();
        let mut sum = 0;
        rest.iter().all(|act| match *act {
            Act::Yield | Act::Panic => true,
            Act::Gate(gate) => gates[gate],
            Act::Sleep(millis) => {
                sum += millis;
                millis < each && sum < all
            }
        })
    }
}
