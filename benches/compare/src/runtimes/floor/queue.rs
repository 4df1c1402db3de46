//! W2, W3 and W4 by hand: a `VecDeque` of boxed closures.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::rc::Rc;

use crate::child::Figures;
use crate::params::Params;
use crate::stats::Stopwatch;

type Job = Box<dyn FnOnce(&mut Queue)>;

#[derive(Default)]
struct Queue(VecDeque<Job>);

impl Queue {
    fn push(&mut self, job: impl FnOnce(&mut Queue) + 'static) {
        self.0.push_back(Box::new(job));
    }

    fn run(&mut self) {
        while let Some(job) = self.0.pop_front() {
            job(self);
        }
    }
}

/// W2: batches of closures that leave a result where the spawner finds it, and ones that only count.
pub(crate) fn spawn(params: &Params) -> Figures {
    let (batches, batch) = (params.get("batches"), params.get("batch"));
    let mut queue = Queue::default();
    let results: Rc<[Cell<usize>]> = (0..batch).map(|_| Cell::new(0)).collect();
    let mut joined = Stopwatch::new(batches * batch);
    for _ in 0..=params.get("reps") {
        joined.start();
        for _ in 0..batches {
            for place in 0..batch {
                let results = Rc::clone(&results);
                queue.push(move |_| results[place].set(place));
            }
            queue.run();
            black_box(results.iter().map(Cell::get).sum::<usize>());
        }
        joined.stop();
    }
    let count = Rc::new(Cell::new(0usize));
    let mut detached = Stopwatch::new(batches * batch);
    for _ in 0..=params.get("reps") {
        detached.start();
        for _ in 0..batches {
            for _ in 0..batch {
                let count = Rc::clone(&count);
                queue.push(move |_| count.set(count.get() + 1));
            }
            queue.run();
        }
        detached.stop();
    }
    black_box(count.get());
    Figures::one("joined_ns", joined.nanos()).with("detached_ns", detached.nanos())
}

/// W3: closures that go to the back of the queue, their box and all, until they have had their turns.
pub(crate) fn yields(params: &Params) -> Figures {
    let (tasks, turns) = (params.get("tasks"), params.get("yields"));
    let mut watch = Stopwatch::new(tasks * turns);
    for _ in 0..=params.get("reps") {
        let mut queue: VecDeque<Box<dyn FnMut() -> bool>> = (0..tasks)
            .map(|_| {
                let mut left = turns;
                Box::new(move || {
                    left -= 1;
                    black_box(left) > 0
                }) as Box<dyn FnMut() -> bool>
            })
            .collect();
        watch.start();
        while let Some(mut task) = queue.pop_front() {
            if task() {
                queue.push_back(task);
            }
        }
        watch.stop();
    }
    Figures::one("yield_ns", watch.nanos())
}

/// W4: two closures that push each other.
pub(crate) fn ping_pong(params: &Params) -> Figures {
    fn ping(queue: &mut Queue, left: usize) {
        queue.push(move |queue| pong(queue, black_box(left)));
    }
    fn pong(queue: &mut Queue, left: usize) {
        queue.push(move |queue| {
            if left > 1 {
                ping(queue, black_box(left - 1));
            }
        });
    }
    let trips = params.get("trips");
    let mut queue = Queue::default();
    let mut watch = Stopwatch::new(trips);
    for _ in 0..=params.get("reps") {
        watch.start();
        ping(&mut queue, trips);
        queue.run();
        watch.stop();
    }
    Figures::one("trip_ns", watch.nanos())
}
