//! The life of a loop, in one place: what it is doing, what was asked of it, and so what it accepts.
//!
//! A [`Life`] is the gate of its loop's inbox and lives under the inbox' lock. The public [`LoopState`] is read off it
//! ([`state_of`]), and every submission is let in or refused by it: the two cannot differ.
//!
//! ```text
//!            ┌─────────────fail_start (the LoopThread was dropped)─────────────┐
//!            ▼                                                                 │
//!   Free ──begin_start──▶ Starting: InFactory ──await_start──▶ Awaited ──lose_patience──▶ GivenUp
//!    │ └─claim─┐          │       └─────────────────fail_factory───────────────────────▲ │
//!    │             ▼          │                                  │                           │
//!    │          Running ◀─────┴──────────────begun───────────────┴───────────────────────────┘
//!    │             │ request                        (straight to where the terms lead, if there are some)
//!    │             ▼
//!    │        ShuttingDown ──close, request(Now)──▶ Draining ──seal──▶ Sealed ──end──▶ Ended
//!    │        (and from Running, if it fails or is to end now)           ▲
//!    └──seal_unstarted (never used; from Starting: not started in time)──┘
//! ```
//!
//! - Phases only move forward, but for a start that failed: that is as if it had not been tried.
//! - New work passes in `Starting` (only loops submit there, which must not wait; see [`launch`](super::launch)),
//!   `Running` and `ShuttingDown`. Wakes pass until `Sealed`. Hooks are taken until the end is decided.
//! - The end is decided in the critical section that closes the gate: by the loop itself, which looks that nothing
//!   is inside; by [`GroupEnd`](crate::group::end::GroupEnd) for all loops of a draining group at once; by
//!   `shutdown_now`, whoever calls it. The loop finds the cause in `Draining` and takes itself down
//!   ([`take_down`](super::shutdown::take_down)).
//! - What happens to a loop that has a thread happens on that thread; a loop that has none is ended by whoever asks.
//! - Not here are what the leaves know of themselves: whether the loop sleeps (the inbox), whether channels are still
//!   registered (the table), whether the report is made (the termination).

use std::io;

use crate::error::RejectReason;
use crate::event_loop::hooks::Hooks;
use crate::event_loop::inbox::Gate;
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::{EndCondition, ShutdownControl, ShutdownRequest, ShutdownTerms};
use crate::reactor::Driver;
use crate::report::EndCause;
use crate::sync::thread::ThreadId;
use std::time::Instant;

/// What a loop is doing.
#[derive(Debug)]
pub(crate) enum Phase {
    /// It has no thread; here is what the thread will need.
    Free(Driver),
    Starting(Start),
    /// It has its thread.
    Running,
    /// It works and accepts as before, until its terms are met.
    ShuttingDown,
    /// Its end is decided: it takes no new work, and cancels what is left.
    Draining(EndCause),
    /// Every task has ended; nothing passes.
    Sealed,
    /// Its report is made.
    Ended,
}

/// How far the start of a thread has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// This thread is at it.
    InFactory(ThreadId),
    /// The factory has returned; the `LoopThread` is on its way.
    Awaited,
    /// As before, but it was waited for in vain.
    GivenUp,
}

/// What is to be done about a start.
pub(crate) enum Begin {
    /// The caller starts the thread, with this.
    Yours(Driver),
    /// The loop has its thread, or has ended: nothing.
    Over,
    /// Somebody else is at it.
    Wait,
    /// It cannot be waited for.
    Refused(io::ErrorKind),
}

/// What is to be done about a request, once the lock is gone.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The end is decided already.
    TooLate,
    /// It changes nothing. The loop is to look all the same: the last handle of its group may be gone.
    Again,
    /// The loop's thread sees it.
    Running,
    /// The thread that starts sees it, or whoever drops its `LoopThread`.
    Starting,
    /// Nobody has used the loop: it ends here.
    Unused,
    /// There are hooks to run: it needs a thread.
    Unstarted,
}

/// The life of a loop; protected by the lock of its inbox.
pub(crate) struct Life {
    phase: Phase,
    pub(crate) control: ShutdownControl,
    pub(crate) hooks: Hooks,
    /// Why the last start failed, until one succeeds.
    pub(crate) start_error: Option<RejectReason>,
}

impl Life {
    pub(crate) fn new(driver: Driver) -> Life {
        Life {
            phase: Phase::Free(driver),
            control: ShutdownControl::default(),
            hooks: Hooks::default(),
            start_error: None,
        }
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(crate) fn terms(&self) -> Option<ShutdownTerms> {
        self.control.terms()
    }

    /// The cause of the end, once that is decided and the loop has to carry it out.
    pub(crate) fn decided(&self) -> Option<EndCause> {
        match self.phase {
            Phase::Draining(cause) => Some(cause),
            _ => None,
        }
    }

    /// Whether hooks are taken.
    pub(crate) fn takes_hooks(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Draining(_) | Phase::Sealed | Phase::Ended
        )
    }

    // ---- the start ----------------------------------------------------------------------------

    /// Lets `by` start the thread, if nobody has.
    pub(crate) fn begin_start(&mut self, by: ThreadId) -> Begin {
        match self.phase {
            Phase::Free(_) => {
                let starting = Phase::Starting(Start::InFactory(by));
                match std::mem::replace(&mut self.phase, starting) {
                    Phase::Free(driver) => Begin::Yours(driver),
                    _ => unreachable!("it was free a line ago"),
                }
            }
            // A factory that submits to the loop that it is starting would wait for itself.
            Phase::Starting(Start::InFactory(other)) if other == by => {
                Begin::Refused(io::ErrorKind::Deadlock)
            }
            Phase::Starting(Start::GivenUp) => Begin::Refused(io::ErrorKind::TimedOut),
            Phase::Starting(_) => Begin::Wait,
            _ => Begin::Over,
        }
    }

    /// The factory that `by` has called has returned, and the thread has not begun yet.
    pub(crate) fn await_start(&mut self, by: ThreadId) {
        if self.is_at_it(by) {
            self.phase = Phase::Starting(Start::Awaited);
        }
    }

    /// The factory that `by` has called has failed; its thread may come all the same, but nobody waits for it.
    /// `false` if somebody else tries by now: then that is what counts.
    pub(crate) fn fail_factory(&mut self, by: ThreadId, reason: RejectReason) -> bool {
        let free = matches!(self.phase, Phase::Free(_));
        let at_it = self.is_at_it(by);
        if free || at_it {
            self.start_error = Some(reason);
        }
        if at_it {
            self.phase = Phase::Starting(Start::GivenUp);
        }
        free || at_it
    }

    /// Somebody has waited long enough for a thread that was promised.
    pub(crate) fn lose_patience(&mut self, reason: RejectReason) {
        if let Phase::Starting(Start::Awaited) = self.phase {
            self.start_error = Some(reason);
            self.phase = Phase::Starting(Start::GivenUp);
        }
    }

    fn is_at_it(&self, by: ThreadId) -> bool {
        matches!(self.phase, Phase::Starting(Start::InFactory(other)) if other == by)
    }

    /// Why new work is refused, if it is.
    pub(crate) fn refusal(&self) -> RejectReason {
        match self.phase {
            // A start that was under way a moment ago has failed.
            Phase::Free(_) if !self.is_now() => self
                .start_error
                .unwrap_or(RejectReason::ThreadStart(io::ErrorKind::Other)),
            _ => RejectReason::ShutDown,
        }
    }

    /// Whether it is to end now.
    fn is_now(&self) -> bool {
        self.terms()
            .is_some_and(|terms| terms.until == EndCondition::Now)
    }

    /// The `LoopThread` was dropped: the loop is free again, unless it has ended meanwhile.
    pub(crate) fn fail_start(&mut self, driver: Driver) -> Result<Start, Driver> {
        let Phase::Starting(start) = self.phase else {
            return Err(driver);
        };
        if start != Start::GivenUp {
            self.start_error = Some(RejectReason::ThreadStart(io::ErrorKind::Other));
        }
        self.phase = Phase::Free(driver);
        Ok(start)
    }

    /// The thread has begun; `false` if the loop has ended without it.
    pub(crate) fn begun(&mut self) -> bool {
        if let Phase::Starting(_) = self.phase {
            self.follow_terms();
        }
        !matches!(self.phase, Phase::Sealed | Phase::Ended)
    }

    /// Gives the loop to the calling thread, if it has none.
    pub(crate) fn claim(&mut self) -> Option<Driver> {
        let Phase::Free(_) = self.phase else {
            return None;
        };
        let free = std::mem::replace(&mut self.phase, Phase::Running);
        self.follow_terms();
        match free {
            Phase::Free(driver) => Some(driver),
            _ => unreachable!("it was free a line ago"),
        }
    }

    /// Goes to where the terms lead, now that there is a thread.
    fn follow_terms(&mut self) {
        self.start_error = None;
        self.phase = match self.terms().map(|terms| terms.until) {
            None => Phase::Running,
            Some(EndCondition::Now) => Phase::Draining(EndCause::Now),
            Some(_) => Phase::ShuttingDown,
        };
    }

    // ---- the end ------------------------------------------------------------------------------

    /// Notes a request, and moves on if there is a thread.
    pub(crate) fn request(&mut self, request: ShutdownRequest, now: Instant) -> Asked {
        if !self.takes_hooks() {
            return Asked::TooLate;
        }
        let news = self.control.note(request, now);
        match self.phase {
            _ if !news => Asked::Again,
            Phase::Free(_) if self.hooks.is_empty() => Asked::Unused,
            Phase::Free(_) => Asked::Unstarted,
            Phase::Starting(_) => Asked::Starting,
            _ => {
                self.follow_terms();
                Asked::Running
            }
        }
    }

    /// Decides the end: nothing new from here on.
    pub(crate) fn close(&mut self, cause: EndCause) {
        if let Phase::Running | Phase::ShuttingDown = self.phase {
            self.phase = Phase::Draining(cause);
        }
    }

    /// Ends the loop without a thread: takes what the thread would have needed, if it is still here.
    pub(crate) fn seal_unstarted(&mut self) -> Option<Driver> {
        match std::mem::replace(&mut self.phase, Phase::Sealed) {
            Phase::Free(driver) => Some(driver),
            _ => None,
        }
    }

    /// Nothing is live and nothing is inside: nothing passes from here on.
    pub(crate) fn seal(&mut self) {
        debug_assert!(matches!(self.phase, Phase::Draining(_)));
        self.phase = Phase::Sealed;
    }

    /// The report is made.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Ended;
    }
}

/// What is shown of a phase, in the order of a life.
const UNUSED: u8 = 0;
/// A shutdown was requested, and there is no thread yet.
const UNUSED_AND_LEAVING: u8 = 1;
const RUNNING: u8 = 2;
const SHUTTING_DOWN: u8 = 3;
const DRAINING: u8 = 4;
const SEALED: u8 = 5;
const ENDED: u8 = 6;

impl Gate for Life {
    fn takes_new(&self) -> bool {
        match self.phase {
            Phase::Running | Phase::ShuttingDown => true,
            Phase::Starting(_) => !self.is_now(),
            _ => false,
        }
    }

    fn takes_wakes(&self) -> bool {
        !matches!(self.phase, Phase::Sealed | Phase::Ended)
    }

    fn hurries(&self) -> bool {
        self.control.is_requested()
    }

    fn shown(&self) -> u8 {
        match self.phase {
            // It accepts nothing, and the thread that comes finds it so.
            Phase::Free(_) | Phase::Starting(_) if self.is_now() => DRAINING,
            Phase::Free(_) | Phase::Starting(_) if self.control.is_requested() => {
                UNUSED_AND_LEAVING
            }
            Phase::Free(_) | Phase::Starting(_) => UNUSED,
            Phase::Running => RUNNING,
            Phase::ShuttingDown => SHUTTING_DOWN,
            Phase::Draining(_) => DRAINING,
            Phase::Sealed => SEALED,
            Phase::Ended => ENDED,
        }
    }
}

/// The public state, of what a life shows.
pub(crate) fn state_of(shown: u8) -> LoopState {
    match shown {
        UNUSED => LoopState::NotStarted,
        RUNNING => LoopState::Started,
        UNUSED_AND_LEAVING | SHUTTING_DOWN => LoopState::ShuttingDown,
        DRAINING | SEALED => LoopState::Shutdown,
        _ => LoopState::Terminated,
    }
}

/// Whether a loop has its thread, or needs none any more.
pub(crate) fn has_thread(shown: u8) -> bool {
    shown >= RUNNING
}

/// Whether a loop with a thread lets new work in.
pub(crate) fn is_open(shown: u8) -> bool {
    shown < DRAINING
}

/// Whether every task of the loop has ended.
pub(crate) fn is_sealed(shown: u8) -> bool {
    shown >= SEALED
}
