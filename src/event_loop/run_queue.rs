//! The run queue of the loop on this thread.
//!
//! - It is in a cell of the thread, not in the loop: a wake pushes its task without looking the loop up. The
//!   bench that pays for it is `instructions yield`.
//! - The loop brings its queue along when it enters the thread, and takes it back when it leaves
//!   ([`context`](super::context)). In between there is no queue anywhere else; on a thread without a loop this
//!   one is empty.
//! - It is two stacks: tasks are pushed to one, and popped from the other, which is filled by turning the first
//!   one around. Both ends are then those of a `Vec`, which take a third of the instructions of a ring.
//! - It is borrowed for one push, pop or exchange, never while user code runs.
//! - The cell has no destructor, and can be used while thread-locals are destroyed. The loop that is then on the
//!   thread takes its queue back first.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use crate::event_loop::shared::Runnable;
use crate::sync::thread_local;

/// Tasks to run, in order.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    /// The first tasks, in reverse.
    front: Vec<Runnable>,
    /// The tasks after those.
    back: Vec<Runnable>,
    /// Tasks woken on the loop's thread, ever.
    pub(crate) woken: u64,
}

impl RunQueue {
    const fn new() -> RunQueue {
        RunQueue {
            front: Vec::new(),
            back: Vec::new(),
            woken: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, runnable: Runnable) {
        self.back.push(runnable);
    }

    pub(crate) fn extend(&mut self, runnables: impl Iterator<Item = Runnable>) {
        self.back.extend(runnables);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Runnable> {
        if self.front.is_empty() {
            // One task, or none, is not worth an exchange.
            if self.back.len() <= 1 {
                return self.back.pop();
            }
            self.turn_around();
        }
        self.front.pop()
    }

    #[inline(never)] // Keeps the pop of most tasks short.
    fn turn_around(&mut self) {
        std::mem::swap(&mut self.front, &mut self.back);
        self.front.reverse();
        // Both have room for a burst after the first one: a steady flow allocates nothing.
        self.back.reserve(self.front.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.front.len() + self.back.len()
    }

    /// Frees the memory of an empty queue that has room for more than so many tasks.
    pub(crate) fn shrink(&mut self, capacity: usize) {
        if self.len() == 0 && self.front.capacity().max(self.back.capacity()) > capacity {
            (self.front, self.back) = Default::default();
        }
    }
}

thread_local! {
    static QUEUE: ManuallyDrop<RefCell<RunQueue>> = const {
        ManuallyDrop::new(RefCell::new(RunQueue::new()))
    };
}

/// Calls `edit` with the queue; `edit` must not call user code.
#[inline]
pub(crate) fn with<R>(edit: impl FnOnce(&mut RunQueue) -> R) -> R {
    QUEUE.with(|queue| edit(&mut queue.borrow_mut()))
}

/// Queues a task.
#[inline]
pub(crate) fn push(runnable: Runnable) {
    with(|queue| queue.push(runnable));
}

/// Queues a task that was woken here.
#[inline]
pub(crate) fn push_woken(runnable: Runnable) {
    with(|queue| {
        queue.woken += 1;
        queue.push(runnable);
    });
}

/// Takes the next task out.
#[inline]
pub(crate) fn pop() -> Option<Runnable> {
    with(RunQueue::pop)
}

/// How many tasks are queued.
pub(crate) fn len() -> usize {
    with(|queue| queue.len())
}

/// Exchanges the queue for that of a loop which enters the thread, or for none when it leaves.
pub(crate) fn replace(queue: RunQueue) -> RunQueue {
    with(|here| std::mem::replace(here, queue))
}
