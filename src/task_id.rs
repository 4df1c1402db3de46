//! The identity of a task: a number that no other task of the process has.
//!
//! - Every thread takes numbers from a block of its own, so that a spawn touches nothing that threads share.
//!   Numbers are unique, but not in the order of the spawns.
//! - An [`AbortTarget`] also has the address of the task. The address finds the task fast, and the number
//!   decides: an address is used again once its task is freed.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;

use crate::sync::{Ordering, plain, thread_local};

/// The number of a task, unique in the process.
///
/// [`JoinHandle::id`](crate::JoinHandle::id) returns the id of a task, [`task_id`](crate::task_id()) that
/// of the task that calls it. Ids of tasks that were spawned one after the other need not be consecutive.
///
/// # Examples
///
/// ```
/// let group = loopgroup::EventLoopGroup::new(1)?;
/// let task = group.spawn(async { loopgroup::task_id() });
/// let id = task.id();
/// println!("spawned {id}"); // such as "task 17"
/// assert_eq!(group.block_on(task).unwrap(), Some(id));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(NonZeroU64);

/// Numbers that no task has, for what is polled and is none: a main future, and a shutdown hook.
pub(crate) const MAIN: u64 = 0;
pub(crate) const HOOK: u64 = u64::MAX;

/// How many numbers a thread takes at a time.
const BLOCK: u64 = 1024;

static NEXT_BLOCK: plain::AtomicU64 = plain::AtomicU64::new(0);

thread_local! {
    /// The number that this thread has used last; the next one begins a new block if it is a multiple of
    /// the block's length.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

impl TaskId {
    /// Not the id of any task.
    pub(crate) const NONE: TaskId = TaskId(NonZeroU64::MAX);

    /// Returns an id that was not used before.
    #[inline]
    pub(crate) fn next() -> TaskId {
        TaskId::from_halves(TaskId::next_halves()).expect("a number above zero")
    }

    /// As [`TaskId::next`], in halves.
    #[inline]
    pub(crate) fn next_halves() -> [u32; 2] {
        LAST.with(|last| {
            let mut number = last.get();
            if number % BLOCK == 0 {
                // Relaxed: only the count itself is shared.
                number = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed) * BLOCK;
            }
            number += 1;
            last.set(number);
            halves(number)
        })
    }

    /// The number in two halves, which need only four bytes of alignment.
    pub(crate) fn to_halves(self) -> [u32; 2] {
        halves(self.0.get())
    }

    /// The number of two halves; zero is no id.
    #[inline]
    pub(crate) fn number_of([low, high]: [u32; 2]) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    /// The id with this number; `None` if it is zero.
    pub(crate) fn from_number(number: u64) -> Option<TaskId> {
        NonZeroU64::new(number).map(TaskId)
    }

    /// The id of two halves; `None` if both are zero.
    pub(crate) fn from_halves(halves: [u32; 2]) -> Option<TaskId> {
        TaskId::from_number(TaskId::number_of(halves))
    }
}

fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.0)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskId").field(&self.0).finish()
    }
}

/// A task that is to be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbortTarget {
    pub(crate) id: TaskId,
    /// The address of the task, which its wakers have as well.
    pub(crate) address: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_of_several_threads_are_unique_beyond_a_block() {
        let take = || (0..3 * BLOCK).map(|_| TaskId::next()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(take)).collect();
        let ids: Vec<_> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }

    #[test]
    fn halves_make_the_same_id() {
        for number in [1, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            let id = TaskId(NonZeroU64::new(number).unwrap());
            assert_eq!(TaskId::from_halves(id.to_halves()), Some(id));
        }
        assert_eq!(TaskId::from_halves([0, 0]), None);
    }
}
