//! The run queue of the loop on this thread: tasks, and runs of closures between them.
//!
//! - It is in a cell of the thread, not in the loop: a wake pushes its task without looking the loop up. The
//!   bench that pays for it is `instructions yield`.
//! - The loop brings its queue along when it enters the thread, and takes it back when it leaves
//!   ([`context`](super::context)). In between there is no queue anywhere else; on a thread without a loop
//!   this one is empty.
//! - Tasks are in two stacks: they are pushed to one, and popped from the other, which is filled by turning
//!   the first one around. Both ends are then those of a `Vec`, which take a third of the instructions of a
//!   ring.
//! - Entries of the stacks are tasks alone, so that they stay small. A run of closures has a position: the
//!   number of tasks that were ever queued before it. So runs are in order with tasks, and those of one
//!   position in the order of their arrival. No task behind a run is popped before the run is taken
//!   ([`RunQueue::barrier`]).
//! - A run that is worked off is in no queue. What is left of it goes back to the front.
//! - It is borrowed for one push, pop or exchange, never while user code runs.
//! - The cell has no destructor, and can be used while thread-locals are destroyed. The loop that is then on
//!   the thread takes its queue back first.
//!
//! ```text
//!   tasks:  t0  t1  t2  t3       the position of A is 1, that of B and C is 3
//!   runs:      ▲ A     ▲ B C     order: t0 A t1 t2 B C t3
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use crate::event_loop::inbox::RunPlaces;
use crate::event_loop::runs::Run;
use crate::event_loop::shared::Runnable;
use crate::sync::thread_local;

/// What a loop runs next, in order.
pub(crate) struct RunQueue<T = Runnable> {
    /// The first tasks, in reverse.
    front: Vec<T>,
    /// The tasks after those.
    back: Vec<T>,
    /// How many tasks of `front` are behind the first run.
    barrier: usize,
    /// How many tasks were ever queued before those of `back`.
    front_end: u64,
    /// Runs of closures, and their positions.
    runs: VecDeque<(u64, Box<dyn Run>)>,
    /// The closures in `runs`.
    closures: usize,
    /// The length of the run that is worked off, when it was taken.
    taken: usize,
    /// The last run that was worked off, for the next one to use its memory.
    pub(crate) spare: Option<Box<dyn Run>>,
    /// Tasks woken on the loop's thread, ever.
    pub(crate) woken: u64,
}

impl<T> RunQueue<T> {
    pub(crate) const fn new() -> RunQueue<T> {
        RunQueue {
            front: Vec::new(),
            back: Vec::new(),
            barrier: 0,
            front_end: 0,
            runs: VecDeque::new(),
            closures: 0,
            taken: 0,
            spare: None,
            woken: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, task: T) {
        self.back.push(task);
    }

    pub(crate) fn extend(&mut self, tasks: impl Iterator<Item = T>) {
        self.back.extend(tasks);
    }

    /// Takes the next task out; `None` if there is none, or if a run is next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.front.len() > self.barrier {
            return self.front.pop();
        }
        // One task, or none, is not worth an exchange.
        if self.runs.is_empty() && self.back.len() <= 1 {
            self.front_end += self.back.len() as u64;
            return self.back.pop();
        }
        self.turn_around()
    }

    /// Pops the next task when the front has none before the first run.
    #[inline(never)] // Keeps the pop of most tasks short.
    fn turn_around(&mut self) -> Option<T> {
        if self.is_run_next() {
            return None;
        }
        self.front_end += self.back.len() as u64;
        std::mem::swap(&mut self.front, &mut self.back);
        self.front.reverse();
        // Both have room for a burst after the first one: a steady flow allocates nothing.
        self.back.reserve(self.front.len());
        self.set_barrier();
        self.front.pop()
    }

    /// Adds a run at the end. Its closures are to be [counted](RunQueue::count_closures): the runs of a long
    /// queue are in the caches of their producers, and this is no reason to visit each.
    pub(crate) fn push_run(&mut self, run: Box<dyn Run>) {
        self.runs.push_back((self.end(), run));
    }

    /// Counts the closures of runs that are pushed.
    pub(crate) fn count_closures(&mut self, closures: usize) {
        self.closures += closures;
    }

    /// Adds a closure at the end: `join` puts it into the last run, or returns a run that begins with it.
    pub(crate) fn push_closure(
        &mut self,
        join: impl FnOnce(RunPlaces<'_, Box<dyn Run>>) -> Option<Box<dyn Run>>,
    ) {
        let end = self.end();
        let last = self.runs.back_mut().filter(|(last, _)| *last == end);
        let new = join(RunPlaces {
            last: last.map(|(_, run)| run),
            spare: &mut self.spare,
        });
        self.closures += 1;
        self.runs.extend(new.map(|run| (end, run)));
    }

    /// Takes the first run if it is next.
    #[inline]
    pub(crate) fn take_run(&mut self) -> Option<Box<dyn Run>> {
        if self.runs.is_empty() {
            return None; // as for most loops
        }
        self.take_first_run()
    }

    #[inline(never)]
    fn take_first_run(&mut self) -> Option<Box<dyn Run>> {
        if !self.is_run_next() {
            return None;
        }
        let (_, run) = self.runs.pop_front()?;
        self.taken = run.len();
        self.closures -= self.taken;
        self.set_barrier();
        Some(run)
    }

    /// Puts a run that was taken back to the front, if there is anything left of it; else it is spare now.
    pub(crate) fn put_back(&mut self, run: Box<dyn Run>) {
        self.taken = 0;
        let left = run.len();
        if left > 0 {
            self.closures += left;
            self.runs.push_front((self.begin(), run));
            self.set_barrier();
        } else {
            self.spare = Some(run);
        }
    }

    /// How many tasks and closures there are.
    pub(crate) fn len(&self) -> usize {
        self.front.len() + self.back.len() + self.closures
    }

    /// How many tasks there are, and how many closures: those of the run that is worked off count until it
    /// is put back.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        (
            self.front.len() + self.back.len(),
            self.closures + self.taken,
        )
    }

    /// How many tasks and closures come before one that is queued now, at most: also those of the run that is
    /// worked off.
    pub(crate) fn ahead(&self) -> usize {
        self.len() + self.taken
    }

    /// Frees the memory of an empty queue that has room for more than so many tasks; returns whether it has
    /// not.
    pub(crate) fn shrink(&mut self, capacity: usize) -> bool {
        self.spare = None;
        let room = self.front.capacity().max(self.back.capacity());
        let is_small = room.max(self.runs.capacity()) <= capacity;
        if !is_small && self.len() == 0 {
            (self.front, self.back, self.runs) = Default::default();
            return true;
        }
        is_small
    }

    fn is_run_next(&self) -> bool {
        let begin = self.begin();
        self.runs.front().is_some_and(|(first, _)| *first == begin)
    }

    /// The position of the next task.
    fn begin(&self) -> u64 {
        self.front_end - self.front.len() as u64
    }

    /// The position behind the last task.
    fn end(&self) -> u64 {
        self.front_end + self.back.len() as u64
    }

    fn set_barrier(&mut self) {
        let behind = |&(first, _): &(u64, _)| self.front_end.saturating_sub(first) as usize;
        self.barrier = self.runs.front().map_or(0, behind);
    }
}

impl<T> Default for RunQueue<T> {
    fn default() -> RunQueue<T> {
        RunQueue::new()
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

/// Takes the next task out; `None` if there is none, or if a run is next.
#[inline]
pub(crate) fn pop() -> Option<Runnable> {
    with(RunQueue::pop)
}

/// How many tasks and closures are queued.
pub(crate) fn len() -> usize {
    with(|queue| queue.len())
}

/// Exchanges the queue for that of a loop which enters the thread, or for none when it leaves.
pub(crate) fn replace(queue: RunQueue) -> RunQueue {
    with(|here| std::mem::replace(here, queue))
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::collections::VecDeque;

    use super::*;
    use crate::error::Caller;
    use crate::panic::PanicReporter;
    use crate::random::Random;

    /// A run of numbers.
    struct Numbers(VecDeque<u64>);

    impl Run for Numbers {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn join(&mut self, _: &mut dyn Any, _: Caller) -> bool {
            unreachable!("the test joins by itself")
        }

        fn begin(&mut self, _: u8) -> bool {
            self.0.pop_front();
            true
        }

        fn cancel(&mut self) {}

        fn discard(&mut self, _: &PanicReporter) {}
    }

    /// Takes the next task, or the next closure of the next run; the rest of the run goes back. `closures`
    /// are the numbers of all closures, in order.
    fn next(queue: &mut RunQueue<u64>, closures: &mut VecDeque<u64>) -> Option<u64> {
        if let Some(task) = queue.pop() {
            return Some(task);
        }
        let mut run = queue.take_run()?;
        let left = run.len();
        run.begin(0);
        assert_eq!(run.len(), left - 1);
        queue.put_back(run);
        closures.pop_front()
    }

    #[test]
    fn tasks_and_closures_come_out_in_the_order_in_which_they_went_in() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut queue = RunQueue::new();
            let (mut model, mut closures) = (VecDeque::new(), VecDeque::new());
            for number in 0..500_u64 {
                match random.below(8) {
                    0..=2 => {
                        queue.push(number);
                        model.push_back(number);
                    }
                    3 => {
                        let run = Numbers(VecDeque::from([number]));
                        queue.push_run(Box::new(run));
                        queue.count_closures(1);
                        closures.push_back(number);
                        model.push_back(number);
                    }
                    4 => {
                        queue.push_closure(|places| {
                            assert!(places.last.is_none_or(|last| last.len() > 0));
                            Some(Box::new(Numbers(VecDeque::from([number]))))
                        });
                        closures.push_back(number);
                        model.push_back(number);
                    }
                    _ => assert_eq!(
                        next(&mut queue, &mut closures),
                        model.pop_front(),
                        "seed {seed}"
                    ),
                }
                assert_eq!(queue.len(), model.len());
            }
            while let Some(number) = model.pop_front() {
                assert_eq!(next(&mut queue, &mut closures), Some(number), "seed {seed}");
            }
            assert_eq!((next(&mut queue, &mut closures), queue.len()), (None, 0));
        }
    }

    #[test]
    fn what_is_left_of_a_run_comes_before_what_was_queued_meanwhile() {
        let mut queue = RunQueue::new();
        queue.push(1);
        queue.push_run(Box::new(Numbers(VecDeque::from([2, 3]))));
        queue.count_closures(2);
        queue.push(4);
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.pop(), None, "closures are next");
        let mut run = queue.take_run().unwrap();
        run.begin(0);
        queue.push(5);
        queue.put_back(run);
        assert_eq!((queue.pop(), queue.len()), (None, 3));
        let run = queue.take_run().unwrap();
        assert_eq!(run.len(), 1);
        assert!(queue.take_run().is_none());
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some(4), Some(5), None]
        );
    }

    #[test]
    fn the_memory_of_a_burst_is_freed() {
        let mut queue = RunQueue::new();
        queue.extend(0..1_000);
        queue.shrink(10);
        assert_eq!(queue.len(), 1_000, "only an empty one shrinks");
        while queue.pop().is_some() {}
        queue.shrink(10);
        assert_eq!(queue.front.capacity() + queue.back.capacity(), 0);
    }
}
