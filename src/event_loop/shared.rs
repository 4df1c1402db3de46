//! The half of a loop that any thread may reach.
//!
//! - A submitter finds everything here: the inbox with the loop's life as its gate, the bell, the counters.
//! - Handles, tasks and watched descriptors hold it. Tasks are in its inbox and descriptors in its
//!   table in turn, so what they hold is declared here: [`TaskMeta`] and [`Watched`].
//! - It knows its group as a [`Parent`]; the group is above the loops.
//! - No lock is held while user code runs. Locks of loops nest in [`GroupEnd`](crate::group::end::GroupEnd)
//!   alone.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::ptr;
use std::time::Instant;

use mio::Token;

use crate::config::Config;
use crate::error::{Caller, RejectReason};
use crate::event_loop::arena;

use crate::event_loop::inbox::{self, Batch, Gate, Inbox, Ring, Urgency};
use crate::event_loop::lifecycle::{self, Life};
use crate::event_loop::number::{Number, Numbered};
use crate::event_loop::place::PlaceHandle;
use crate::event_loop::requests::Request;
use crate::event_loop::runs::Run;
use crate::event_loop::state::LoopState;
use crate::event_loop::tracker::Tracker;

use crate::metrics::buckets::Durations;
use crate::metrics::gauges::Gauges;
use crate::metrics::pulse::Pulse;
use crate::panic::PanicReporter;
use crate::reactor::source::Source;
use crate::reactor::table::Table;
use crate::reactor::{self, Driver};
use crate::recorder::tape::Tape;
use crate::report::LoopReport;
use crate::sync::{
    Arc, AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering, Weak, fence, plain, thread,
};
use crate::task_id::{AbortTarget, TaskId};
use crate::termination::{Termination, ThreadSlot};
use crate::time::queue;
use crate::time::timers::{Away, HomeId, TimerHome};
use crate::trace;
use crate::waiters::EventWaiters;
use crate::watchdog::beacon::Beacon;

/// A task that is ready to be polled.
pub(crate) type Runnable = async_task::Runnable<TaskMeta>;

/// The metadata of a task: what it belongs to, and its id.
///
/// It belongs to a loop. A job of a blocking group is a task as well, and so is one that was refused.
///
/// Twelve bytes with an alignment of four: together with async-task's own flag they take the room of two
/// words. A pointer to the loop and nothing else would take as much.
#[derive(Debug)]
pub(crate) struct TaskMeta {
    /// The number of a loop; or [`JOB`]; or zero, for none.
    home: u32,
    id: [u32; 2],
}

/// Instead of the number of a loop, for a job.
const JOB: u32 = u32::MAX;

impl TaskMeta {
    /// The metadata of a new task of the loop with this number.
    #[inline]
    pub(crate) fn new(home: u32) -> TaskMeta {
        TaskMeta {
            home,
            id: TaskId::next_halves(),
        }
    }

    /// The metadata of a task whose id is known already.
    pub(crate) fn with_id(home: u32, id: TaskId) -> TaskMeta {
        TaskMeta {
            home,
            id: id.to_halves(),
        }
    }

    /// The metadata of a job with this id.
    pub(crate) fn of_job(id: TaskId) -> TaskMeta {
        TaskMeta {
            home: JOB,
            id: id.to_halves(),
        }
    }

    /// The metadata of a task that is never scheduled.
    pub(crate) fn of_no_loop() -> TaskMeta {
        TaskMeta {
            home: 0,
            id: TaskId::next_halves(),
        }
    }

    pub(crate) fn is_of_no_loop(&self) -> bool {
        self.home == 0
    }

    /// The number of the task's loop; not that of a loop if it has none.
    #[inline]
    pub(crate) fn home(&self) -> u32 {
        self.home
    }

    pub(crate) fn is_job(&self) -> bool {
        self.home == JOB
    }

    pub(crate) fn id(&self) -> TaskId {
        self.try_id().expect("a task has an id")
    }

    /// As [`TaskMeta::id`], for a caller that need not know that there is one.
    #[inline]
    pub(crate) fn try_id(&self) -> Option<TaskId> {
        TaskId::from_halves(self.id)
    }

    /// What a loop needs to find the task.
    pub(crate) fn target(&self) -> AbortTarget {
        AbortTarget {
            id: self.id(),
            address: self.address() - meta_offset(),
        }
    }

    /// Where this is: the key of a task's own waker, see [`this_thread`](crate::this_thread).
    #[inline]
    pub(crate) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// The id, as it is copied with every poll.
    #[inline]
    pub(crate) fn id_halves(&self) -> [u32; 2] {
        self.id
    }
}

/// The distance between a task's address, which its wakers have, and its metadata: the same for all tasks.
pub(crate) fn meta_offset() -> usize {
    static OFFSET: plain::OnceLock<usize> = plain::OnceLock::new();
    *OFFSET.get_or_init(|| {
        let builder = async_task::Builder::new().metadata(TaskMeta::of_no_loop());
        let (runnable, task) = builder.spawn(|_| async {}, drop);
        task.detach();
        ptr::from_ref(runnable.metadata()).addr() - runnable.waker().data().addr()
    })
}

/// What a loop takes out of its inbox.
pub(crate) type Mail = Batch<Runnable, Box<dyn Run>, Message>;

/// The inbox of a loop with its lock held, and so the loop's life.
pub(crate) type InboxGuard<'a> = inbox::InboxGuard<'a, Runnable, Box<dyn Run>, Message, Life>;

/// Makes a task on its home loop.
pub(crate) type MakeTask = dyn FnOnce(&Arc<Shared>) -> Runnable + Send;

/// A message to the loop itself.
pub(crate) enum Message {
    /// Makes a task that need not be `Send`, on the loop. The task is counted when the message is accepted.
    Make(Box<MakeTask>),
    /// The last handle of a loop-bound value was dropped.
    Unbind(arena::ArenaKey),
    /// A timer of this home was dropped or reset on another thread; the loop has another one after it was
    /// parked.
    Timer(HomeId, queue::TimerKey, Away),
}

/// A descriptor that a loop watches, or will watch; see [`io::watched`](crate::io::watched).
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) source: Source,
    /// Set once there is a registration; saves the lock.
    pub(crate) registered: AtomicBool,
    pub(crate) registration: Mutex<Option<Registration>>,
    /// The number of the socket in its simulated network, and one; `None` for a descriptor of the system.
    /// (It takes the padding beside `registered`, and so does the next field.)
    pub(crate) simulated: Option<NonZeroU32>,
    /// Which simulated network that is.
    pub(crate) network: u16,
}

/// Where a descriptor is registered.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) home: Arc<Shared>,
    pub(crate) token: Token,
}

impl Borrow<Source> for Watched {
    fn borrow(&self) -> &Source {
        &self.source
    }
}

/// Something that is told when the shutdown of a loop begins.
pub(crate) trait AtShutdown: Send + Sync {
    /// The shutdown of the loop with this index has begun: called on its thread, with nothing held.
    fn shutdown_began(&self, index: usize);
}

/// What a loop asks of its group.
pub(crate) trait Parent: Send + Sync {
    /// Starts the thread of a loop: by the user's factory, or by the system.
    fn start_thread(&self, parts: LoopParts) -> io::Result<()>;
    /// Calls the user's hook for a new loop thread; returns the guard that it made.
    fn thread_started(&self, one: &Arc<Shared>) -> Option<Box<dyn Any>>;
    /// Asks the reject policy about a full queue, and waits if the policy says so; `false` refuses
    /// the submission.
    fn may_retry(&self, one: &Arc<Shared>, attempt: u32) -> bool;
    /// Whether a user's factory starts threads: then a start may take its time, or never happen.
    fn may_wait_for_thread(&self) -> bool;
    /// Returns the group itself, for a loop's thread to keep alive; `None` once it was dropped.
    fn group(&self) -> Option<Arc<dyn Any + Send + Sync>>;
    /// Returns what the user's handles of the group share, if there are any.
    fn handles(&self) -> Option<Arc<dyn Any + Send + Sync>>;
    /// Whether there is a user's handle of the group.
    fn has_handles(&self) -> bool;
    /// Keeps a thread, to be joined when the group has ended.
    fn add_thread(&self, slot: &ThreadSlot);
    /// Forgets a thread that could not be started.
    fn remove_thread(&self, slot: &ThreadSlot);
    /// Notes that a loop was asked to end, or has ended.
    fn note_leaving(&self);
    /// Notes that a loop is about to be paused: the group has to look which one before it chooses.
    fn note_paused(&self);
    /// Notes that a loop is no longer paused; once for each `note_paused`.
    fn note_resumed(&self);
    /// Has an elastic group look at its loops, which may all sleep: a user has paused or resumed one of them.
    fn look_at_load(&self);
    /// Looks whether the group needs more loops or fewer, if it is elastic and the time has come; returns
    /// when to look next, if that needs a loop to be awake.
    fn scale(&self, now: Instant) -> Option<Instant>;
    /// Loop `index` has nothing to do: a drain of the group may be over.
    fn note_idle(&self, index: usize);
    /// Loop `index` is about to take something in.
    fn note_busy(&self, index: usize);
    /// A loop that drains with its group has found the deadline passed.
    fn time_out(&self);
    /// Loop `index` has ended; a drain of the others may be over.
    fn sibling_ended(&self, index: usize);
    /// Takes the report of a loop that has ended: the last call of its life.
    fn report(&self, report: LoopReport);
}

/// What the thread of a loop needs.
pub(crate) struct LoopParts {
    pub(crate) shared: Arc<Shared>,
    /// Keeps the group alive while the thread runs.
    pub(crate) group: Arc<dyn Any + Send + Sync>,
    pub(crate) driver: Driver,
}

/// A user has paused the loop.
pub(crate) const BY_HAND: u8 = 1;
/// The load of an elastic group needs fewer loops.
pub(crate) const BY_LOAD: u8 = 2;

/// All loops of the process, by number.
pub(crate) static LOOPS: Numbered<Shared> = Numbered::new();

/// The shared half.
pub(crate) struct Shared {
    pub(crate) index: usize,
    /// How tasks name the loop.
    pub(crate) number: Number<Shared>,
    /// The mailbox; under its lock, the life of the loop.
    pub(crate) inbox: Inbox<Runnable, Box<dyn Run>, Message, Life>,
    pub(crate) port: reactor::Port<Watched>,
    /// The counters, and what the inbox shows.
    pub(crate) place: PlaceHandle,
    /// Submissions that were refused, counted by their threads; outlives the loop in its report.
    pub(crate) rejected: Arc<AtomicU64>,
    pub(crate) gauges: Gauges,
    pub(crate) pulse: Pulse,
    /// Only if the group measures time.
    pub(crate) durations: Option<Durations>,
    /// Only if the group has a flight recorder.
    pub(crate) tape: Option<Arc<Tape>>,
    /// Only if the group has a watchdog.
    pub(crate) beacon: Option<Arc<Beacon>>,
    /// Only if the group lists its tasks.
    pub(crate) tracker: Option<Box<Tracker>>,
    /// Why the group is to choose other loops, as bits: [`BY_HAND`], [`BY_LOAD`].
    pub(crate) paused: AtomicU8,
    /// `EventLoop` values in existence, the group's own one included.
    pub(crate) handles: AtomicUsize,
    /// Told when the shutdown begins; what has ended is dropped when the next one is added. Loop thread.
    pub(crate) at_shutdown: Mutex<Vec<Weak<dyn AtShutdown>>>,
    /// Futures that wait for the start of the shutdown.
    pub(crate) shutdown_waiters: Mutex<EventWaiters>,
    pub(crate) termination: Arc<Termination>,
    pub(crate) panics: PanicReporter,
    pub(crate) config: Arc<Config>,
    pub(crate) parent: Arc<dyn Parent>,
}

impl Shared {
    /// Returns the public state of the loop.
    #[inline]
    pub(crate) fn state(&self) -> LoopState {
        lifecycle::state_of(self.place.shown.get())
    }

    /// Whether the loop, which has its thread, accepts new work; the answer on that thread.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        lifecycle::is_open(self.place.shown.get())
    }

    /// Whether every task of the loop has ended.
    pub(crate) fn is_sealed(&self) -> bool {
        lifecycle::is_sealed(self.place.shown.get())
    }

    /// Whether the loop's selector watches no descriptor any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.port.table.as_ref().is_none_or(Table::is_closed)
    }

    /// Has the group choose other loops, for one more reason: [`BY_HAND`] or [`BY_LOAD`].
    pub(crate) fn pause(&self, reason: u8) {
        // Before the flag is set: the group never counts fewer paused loops than there are.
        self.parent.note_paused();
        if self.paused.fetch_or(reason, Ordering::AcqRel) != 0 {
            self.parent.note_resumed();
        } else {
            trace::paused(self.index, true);
        }
    }

    /// Ends these reasons; without another one, the group chooses this loop again.
    pub(crate) fn resume(&self, reasons: u8) {
        let before = self.paused.fetch_and(!reasons, Ordering::AcqRel);
        if before != 0 && before & !reasons == 0 {
            self.parent.note_resumed();
            trace::paused(self.index, false);
        }
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire) != 0
    }

    /// Whether an elastic group has no need of the loop.
    pub(crate) fn is_set_aside(&self) -> bool {
        self.paused.load(Ordering::Acquire) & BY_LOAD != 0
    }

    /// Whether an elastic group has no need of the loop, and nothing else pauses it.
    pub(crate) fn is_set_aside_only(&self) -> bool {
        self.paused.load(Ordering::Acquire) == BY_LOAD
    }

    /// Counts a submission that was refused.
    pub(crate) fn note_refusal(&self, reason: RejectReason, location: Caller) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        trace::rejected(self.index, reason, location);
    }

    /// Rings the bell if the inbox asks for it.
    #[inline]
    pub(crate) fn ring_if_needed(&self, ring: Ring) {
        if ring == Ring::Needed {
            self.ring();
        }
    }

    #[inline(never)] // Most submissions find the loop awake.
    fn ring(&self) {
        if lifecycle::is_parked(self.place.shown.get()) && self.restart() {
            return;
        }
        self.pulse.ring(self.pulse.tick(self.config.clock.now()));
        // The write of a few bytes to an eventfd does not fail; should it, the next producer takes
        // the duty to ring.
        for _ in 0..16 {
            if self.port.bell.ring().is_ok() {
                return;
            }
            thread::yield_now();
        }
        self.inbox.ring_failed();
    }

    /// Has the loop take a turn: something has changed that it checks in every turn.
    pub(crate) fn nudge(&self) {
        // The lock is released first: a ring that fails takes it again.
        let ring = self.inbox.lock().nudge();
        self.ring_if_needed(ring);
    }

    /// Leaves a message for the loop.
    pub(crate) fn post(&self, message: Message) {
        self.ring_if_needed(self.inbox.post(message, Urgency::Now));
    }

    /// Leaves a request for one of the loop's tasks.
    pub(crate) fn post_request(&self, request: Request) {
        let mut guard = self.inbox.lock();
        if !guard.gate().takes_wakes() {
            drop(guard);
            return request.wish.ended();
        }
        guard.edit(|life| life.requests.push(request));
        let ring = guard.nudge();
        drop(guard);
        self.ring_if_needed(ring);
    }

    /// Returns the number of tasks ever accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.place.counters.accepted_local() + self.inbox.accepted()
    }

    /// Whether no task is queued or live: on the loop's own thread, or with its inbox held.
    pub(crate) fn is_at_rest(&self) -> bool {
        // Every ended task was accepted before, and both counts only grow: if they are equal, read
        // in this order, there was no task at the first reading. (Live and then pending would miss
        // a task that begins in between.)
        let ended = self.place.counters.ended();
        self.accepted() == ended
    }

    pub(crate) fn pending(&self) -> usize {
        self.place.counters.pending(self.inbox.accepted())
    }

    /// Whether no handle is left that could submit, besides the loop's own tasks; for a loop that shuts down.
    pub(crate) fn is_unreachable(&self) -> bool {
        if self.parent.has_handles() {
            return false;
        }
        // Pairs with the fence in `handle_dropped`.
        fence(Ordering::SeqCst);
        self.handles.load(Ordering::Acquire) <= 1
    }

    /// Notes that a handle was dropped.
    pub(crate) fn handle_dropped(&self) {
        match self.handles.fetch_sub(1, Ordering::AcqRel) {
            // The last one besides the group's own: a loop that shuts down may end now.
            2 => {
                // Pairs with the fence in `is_unreachable`: either the shutdown is seen here, or
                // the loop sees that this handle was dropped.
                fence(Ordering::SeqCst);
                if self.state().is_shutting_down() {
                    self.nudge();
                }
            }
            // The group's own one as well: the loop has ended. Only wakers may keep it.
            1 => self.termination.release_threads(),
            _ => {}
        }
    }

    /// Wakes the futures that wait for the start of the shutdown.
    pub(crate) fn announce_shutdown(&self) {
        // The state has changed by now; a future that comes later reads it under this lock.
        let wakers = self.shutdown_waiters.lock().fire();
        self.panics
            .wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }
}

impl TimerHome for Shared {
    fn notify(&self, home: HomeId, key: queue::TimerKey, away: Away) {
        self.post(Message::Timer(home, key, away));
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("index", &self.index)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
