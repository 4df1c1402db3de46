//! W5: ping-pong of two tasks on two loops, each on a thread of its own.
//!
//! Measured is each round trip: two wakes of the other loop, which in the meantime had nothing to do and so
//! was parked, or was spinning. Where the loops run matters more than what they are: on one core nothing
//! but the scheduler decides, on two cores the wake of a halted core does. So there are three cases: as the
//! system places the two threads, one on each of two cores (`apart=1`), and both on one (the parent sees to
//! that).

use std::time::Instant;

use crate::child::Figures;
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::Remote;
use crate::slot::Slot;
use crate::stats::quantile;
use crate::sys;

pub(crate) fn run<L: Remote>(params: &Params) -> Figures {
    let (trips, apart) = (params.get("trips"), params.get("apart") == 1);
    let warm_up = trips / 10;
    let (one, other) = (L::start(), L::start());
    let (there, back) = (Slot::leak(), Slot::leak());
    let done = Latch::leak(1);
    let (say, samples) = std::sync::mpsc::channel();
    other.spawn(async move {
        settle(apart, 1);
        for _ in 0..warm_up + trips {
            back.put(there.take().await);
        }
    });
    one.spawn(async move {
        settle(apart, 0);
        let mut micros = Vec::with_capacity(trips);
        for trip in 0..warm_up + trips {
            let start = Instant::now();
            there.put(1);
            back.take().await;
            if trip >= warm_up {
                micros.push(start.elapsed().as_nanos() as f64 / 1e3);
            }
        }
        say.send(micros).expect("the main thread waits for them");
        done.count_down();
    });
    done.wait();
    figures(&samples.recv().expect("they were sent"))
}

/// Binds this thread to that core, if the ends are to be apart.
pub(crate) fn settle(apart: bool, core: usize) {
    if apart {
        sys::bind_to_core(core).expect("the system lets a thread choose its core");
    }
}

/// The figures of round trips in microseconds.
pub(crate) fn figures(micros: &[f64]) -> Figures {
    Figures::one("p50_us", quantile(micros, 0.5)).with("p99_us", quantile(micros, 0.99))
}
