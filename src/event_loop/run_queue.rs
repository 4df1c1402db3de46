//! The run queue of the loop on this thread.
//!
//! - It is in a cell of the thread, not in the loop: a wake pushes its task without looking the loop up. The
//!   bench that pays for it is `instructions yield`.
//! - The loop brings its queue along when it enters the thread, and takes it back when it leaves
//!   ([`context`](super::context)). In between there is no queue anywhere else; on a thread without a loop this
//!   one is empty.
//! - It is borrowed for one push, pop or exchange, never while user code runs.
//! - The cell has no destructor, and can be used while thread-locals are destroyed. The loop that is then on the
//!   thread takes its queue back first.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use crate::event_loop::shared::Runnable;
use crate::sync::thread_local;

/// Tasks to run, in order.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    pub(crate) tasks: VecDeque<Runnable>,
    /// Tasks woken on the loop's thread, ever.
    pub(crate) woken: u64,
}

thread_local! {
    static QUEUE: ManuallyDrop<RefCell<RunQueue>> = const {
        ManuallyDrop::new(RefCell::new(RunQueue {
            tasks: VecDeque::new(),
            woken: 0,
        }))
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
    with(|queue| queue.tasks.push_back(runnable));
}

/// Queues a task that was woken here.
#[inline]
pub(crate) fn push_woken(runnable: Runnable) {
    with(|queue| {
        queue.woken += 1;
        queue.tasks.push_back(runnable);
    });
}

/// Takes the next task out.
#[inline]
pub(crate) fn pop() -> Option<Runnable> {
    with(|queue| queue.tasks.pop_front())
}

/// How many tasks are queued.
pub(crate) fn len() -> usize {
    with(|queue| queue.tasks.len())
}

/// Exchanges the queue for that of a loop which enters the thread, or for none when it leaves.
pub(crate) fn replace(queue: RunQueue) -> RunQueue {
    with(|here| std::mem::replace(here, queue))
}
