//! W7 by hand: a binary heap of deadlines, and epoll's own timeout, which is in whole milliseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use mio::{Events, Poll};

use crate::child::{Figures, Outcome};
use crate::params::Params;
use crate::stats::Stopwatch;
use crate::workloads::timers::{Lateness, deadline, far_deadline};

/// Timers by deadline. A timer that is dropped stays in the heap until half of them are.
#[derive(Default)]
struct Timers {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
    /// How many in the heap were dropped.
    dead: usize,
}

impl Timers {
    fn arm(&mut self, deadline: Instant, number: usize) {
        self.heap.push(Reverse((deadline, number)));
    }

    /// Drops a timer; those from `oldest` on are live.
    fn drop_one(&mut self, oldest: usize) {
        self.dead += 1;
        if self.dead * 2 > self.heap.len() {
            self.heap.retain(|Reverse((_, number))| *number >= oldest);
            self.dead = 0;
        }
    }
}

pub(crate) fn churn(params: &Params) -> Figures {
    let (live, timers) = (params.get("live"), params.get("timers"));
    let mut all = Timers::default();
    let mut number = 0;
    if params.get("far") == 1 {
        all.arm(far_deadline(), usize::MAX);
    }
    let mut watch = Stopwatch::new(timers);
    for _ in 0..=params.get("reps") {
        watch.start();
        let now = Instant::now();
        for _ in 0..timers {
            all.arm(deadline(now, number), number);
            number += 1;
            if number > live {
                all.drop_one(number - live);
            }
        }
        watch.stop();
    }
    Figures::one("timer_ns", watch.nanos())
}

pub(crate) fn lateness(params: &Params) -> Outcome {
    let record = Lateness::leak(params);
    let mut timers = Timers::default();
    for (place, &deadline) in record.deadlines.iter().enumerate() {
        timers.arm(deadline, place);
    }
    let mut poll = Poll::new().map_err(|error| error.to_string())?;
    let mut events = Events::with_capacity(16);
    while let Some(&Reverse((next, _))) = timers.heap.peek() {
        let wait = next.saturating_duration_since(Instant::now());
        poll.poll(&mut events, Some(wait))
            .map_err(|error| error.to_string())?;
        let now = Instant::now();
        while let Some(&Reverse((deadline, place))) = timers.heap.peek()
            && deadline <= now
        {
            timers.heap.pop();
            record.note(place);
        }
    }
    record.figures()
}
