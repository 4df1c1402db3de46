//! W12: a loop that has nothing to do: how fast it wakes, and what it costs while it sleeps.
//!
//! - Wake: from the call on another thread until the task runs, each time after a pause long enough for the
//!   loop to be parked; and how long the call itself takes.
//! - Idle: CPU time and context switches of all threads but the main one, over a second with one task that
//!   waits.

use std::future::pending;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::child::Figures;
use crate::params::Params;
use crate::runtimes::Remote;
use crate::slot::Slot;
use crate::stats::median;
use crate::sys;

pub(crate) fn wake<L: Remote>(params: &Params) -> Figures {
    let target = L::start();
    let slot = Slot::leak();
    let (say, woken) = mpsc::channel();
    target.spawn(async move {
        loop {
            slot.take().await;
            say.send(Instant::now()).expect("the main thread waits");
        }
    });
    measure_wakes(params, || slot.put(1), &woken)
}

/// Calls `wake` after pauses, and compares with when the loop says that it woke.
pub(crate) fn measure_wakes(
    params: &Params,
    wake: impl Fn(),
    woken: &mpsc::Receiver<Instant>,
) -> Figures {
    let (mut delays, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..params.get("wakes") {
        std::thread::sleep(Duration::from_micros(500));
        let start = Instant::now();
        wake();
        let called = Instant::now();
        let woken = woken.recv().expect("the loop lives");
        delays.push(woken.duration_since(start).as_nanos() as f64 / 1e3);
        calls.push(called.duration_since(start).as_nanos() as f64 / 1e3);
    }
    Figures::one("p50_us", median(&delays)).with("call_us", median(&calls))
}

pub(crate) fn idle<L: Remote>(params: &Params) -> Figures {
    let target = L::start();
    target.spawn(pending());
    measure_idle(params)
}

pub(crate) fn measure_idle(params: &Params) -> Figures {
    std::thread::sleep(Duration::from_millis(100)); // until it has settled
    let (cpu, switches) = sys::other_threads();
    std::thread::sleep(Duration::from_millis(params.get("millis") as u64));
    let (cpu_after, switches_after) = sys::other_threads();
    Figures::one("cpu_us", (cpu_after - cpu) as f64 / 1e3)
        .with("switches", (switches_after - switches) as f64)
}
