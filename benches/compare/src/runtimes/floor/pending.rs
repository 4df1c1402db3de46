//! W11 and W14 by hand: a million boxed closures of 64 bytes in a list, and the end of it.

use std::hint::black_box;
use std::time::Instant;

use crate::alloc;
use crate::child::Figures;
use crate::params::Params;
use crate::sys;

fn fill(list: &mut Vec<Box<dyn Fn() -> u64>>, count: usize) {
    for number in 0..count {
        let state = black_box([number as u64; 8]);
        list.push(Box::new(move || state.iter().sum()));
    }
}

pub(crate) fn memory(params: &Params) -> Figures {
    let tasks = params.get("tasks");
    alloc::start();
    let (heap, resident) = (alloc::in_use(), sys::resident());
    // One growth: the slack of doubling is not what a task costs.
    let mut list = Vec::with_capacity(tasks);
    fill(&mut list, tasks);
    let (heap, resident) = (alloc::in_use() - heap, sys::resident() - resident);
    black_box(list.iter().map(|task| task()).max());
    Figures::one("heap_b", heap as f64 / tasks as f64).with("rss_b", resident as f64 / tasks as f64)
}

pub(crate) fn end(params: &Params) -> Figures {
    let tasks = params.get("tasks");
    let mut list = Vec::new();
    fill(&mut list, tasks);
    let start = Instant::now();
    drop(black_box(list));
    Figures::one("task_ns", start.elapsed().as_nanos() as f64 / tasks as f64)
}
