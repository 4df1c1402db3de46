//! The invariants of every scenario: accepted tasks end, once and on their home loop; refused tasks are
//! known; every handle resolves; and the report agrees.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use loopgroup::{Builder, EventLoop, EventLoopGroup, JoinHandle, TerminationReport, block_on};
use shuttle_primitives::thread::{self, ThreadId};

/// The records of one group. (The lock is std's: not a scheduling point for shuttle.)
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    /// The thread of each loop that has started.
    homes: Vec<(usize, ThreadId)>,
    tasks: Vec<Record>,
    /// The number of accepted tasks that are not in `tasks`: closures and the like.
    others: u64,
}

#[derive(Default)]
struct Record {
    polled_on: Option<ThreadId>,
    dropped_on: Option<ThreadId>,
    end: Option<End>,
}

/// How a task ended, according to its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Completed,
    Panicked,
    Cancelled,
    Refused,
    /// Its handle was taken out of the ledger.
    Unknown,
}

impl Ledger {
    /// Builds a group of `loops` loops without I/O whose threads are recorded here.
    pub fn group(&self, loops: usize) -> EventLoopGroup {
        self.build(EventLoopGroup::builder().loops(loops).without_io())
    }

    pub fn build(&self, builder: Builder) -> EventLoopGroup {
        let ledger = self.clone();
        let builder = builder.on_thread_start(move |ev| {
            let home = (ev.index(), thread::current().id());
            ledger.books().homes.push(home);
        });
        builder.build().expect("nothing can fail here")
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wraps a future to record its polls and its drop.
    pub fn watch<F: Future>(&self, future: F) -> Watched<F> {
        let mut books = self.books();
        books.tasks.push(Record::default());
        Watched {
            future: Box::pin(future),
            id: books.tasks.len() - 1,
            ledger: self.clone(),
        }
    }

    /// Spawns a watched future on the next loop of the group.
    pub fn spawn<F>(&self, group: &EventLoopGroup, future: F) -> Handle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let future = self.watch(future);
        self.handle(future.id, group.spawn(future))
    }

    /// Spawns a watched future on a loop.
    pub fn spawn_on<F>(&self, ev: &EventLoop, future: F) -> Handle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let future = self.watch(future);
        self.handle(future.id, ev.spawn(future))
    }

    pub fn handle<T>(&self, id: usize, join: JoinHandle<T>) -> Handle<T> {
        Handle {
            join,
            id,
            ledger: self.clone(),
        }
    }

    /// Records how a task ended.
    pub fn note(&self, id: usize, end: End) {
        let before = self.books().tasks[id].end.replace(end);
        assert_eq!(before, None, "a task ends once");
    }

    /// Records an accepted task that is not watched.
    pub fn accepted_another(&self) {
        self.books().others += 1;
    }

    /// Compares the records with the report of the group, which has ended.
    pub fn check(&self, report: &TerminationReport) {
        let books = self.books();
        let count = |end| {
            books
                .tasks
                .iter()
                .filter(|one| one.end == Some(end))
                .count() as u64
        };
        assert_eq!(
            report.accepted(),
            report.completed() + report.panicked() + report.cancelled(),
            "{report}"
        );
        let accepted = books.tasks.len() as u64 - count(End::Refused) + books.others;
        assert_eq!(report.accepted(), accepted, "{report}");
        assert!(report.completed() >= count(End::Completed), "{report}");
        assert!(report.panicked() >= count(End::Panicked), "{report}");
        assert!(report.cancelled() >= count(End::Cancelled), "{report}");
        if count(End::Unknown) + books.others == 0 {
            assert_eq!(report.completed(), count(End::Completed), "{report}");
            assert_eq!(report.panicked(), count(End::Panicked), "{report}");
        }
        for task in &books.tasks {
            let end = task
                .end
                .expect("every handle was waited for, or given away");
            let dropped_on = task.dropped_on.expect("no future is left");
            let at_home = books.homes.iter().any(|&(_, home)| home == dropped_on);
            if end == End::Refused {
                assert_eq!(task.polled_on, None, "a refused task is not polled");
            } else {
                assert!(at_home, "an accepted task is dropped by its loop ({end:?})");
                assert!(
                    task.polled_on.is_none_or(|on| on == dropped_on),
                    "a task has one home"
                );
            }
        }
    }
}

/// The handle of a watched task.
pub struct Handle<T> {
    join: JoinHandle<T>,
    pub id: usize,
    ledger: Ledger,
}

impl<T> Handle<T> {
    /// Blocks until the task has ended.
    pub fn wait(self) -> End {
        block_on(self.join())
    }

    /// Waits until the task has ended.
    pub async fn join(self) -> End {
        let end = match self.join.await {
            Ok(_) => End::Completed,
            Err(error) if error.is_panic() => End::Panicked,
            Err(error) if error.is_cancelled() => End::Cancelled,
            Err(_) => End::Refused,
        };
        self.ledger.note(self.id, end);
        end
    }

    /// Takes the handle out of the ledger.
    pub fn into_inner(self) -> JoinHandle<T> {
        self.ledger.note(self.id, End::Unknown);
        self.join
    }
}

/// A future that records the threads that poll and drop it.
pub struct Watched<F> {
    future: Pin<Box<F>>,
    pub id: usize,
    ledger: Ledger,
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let here = thread::current().id();
        let before = self.ledger.books().tasks[self.id].polled_on.replace(here);
        assert!(before.is_none_or(|on| on == here), "polled on two threads");
        self.future.as_mut().poll(cx)
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        let here = thread::current().id();
        let before = self.ledger.books().tasks[self.id].dropped_on.replace(here);
        assert_eq!(before, None, "dropped twice");
    }
}
