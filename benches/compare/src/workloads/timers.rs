//! W7: timers that never fire, and timers that all do.
//!
//! - Churn: so many live timers; one is made, armed by a poll, and takes the place of the oldest, which is
//!   dropped. That is what a timeout costs a connection that is not idle. Once as it is (`far=0`), once after
//!   a timer of an hour was armed (`far=1`), as a program has that also runs a nightly job.
//! - Lateness: tasks with a sleep each, due evenly over a second in a scrambled order. Measured is how long
//!   after its deadline a task runs, and the CPU time of it all, spawns included.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::child::{Figures, Outcome};
use crate::latch::Latch;
use crate::params::Params;
use crate::runtimes::Spawn;
use crate::stats::{Stopwatch, quantile};
use crate::sys;

pub(crate) async fn churn<R: Spawn>(params: Params) -> Figures {
    let mut far = Box::pin((params.get("far") == 1).then(|| R::sleep_until(far_deadline())));
    if far.is_some() {
        let armed = poll_fn(|cx| Poll::Ready(arm(&mut far, cx))).await;
        assert!(armed, "nothing is due for an hour");
        R::yield_now().await;
    }
    // Boxes that stay where they are: what is measured is the timer, not the allocation around it.
    let mut live: Vec<Pin<Box<Option<_>>>> = (0..params.get("live"))
        .map(|_| Box::pin(Some(R::sleep_until(deadline(Instant::now(), 0)))))
        .collect();
    let timers = params.get("timers");
    let mut watch = Stopwatch::new(timers);
    for _ in 0..=params.get("reps") {
        watch.start();
        let now = Instant::now();
        for number in 0..timers {
            let place = number % live.len();
            live[place].set(Some(R::sleep_until(deadline(now, number))));
            let armed = poll_fn(|cx| Poll::Ready(arm(&mut live[place], cx))).await;
            assert!(armed, "nothing is due for seconds");
            if number % 256 == 0 {
                R::yield_now().await; // the runtime may have to put its house in order
            }
        }
        watch.stop();
    }
    Figures::one("timer_ns", watch.nanos())
}

fn arm<F: Future>(timer: &mut Pin<Box<Option<F>>>, cx: &mut Context<'_>) -> bool {
    let timer = timer.as_mut().as_pin_mut().expect("it was made just now");
    timer.poll(cx).is_pending()
}

/// Of a timer that is armed before all others and outlives them.
pub(crate) fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Some seconds from now, in no order.
pub(crate) fn deadline(now: Instant, number: usize) -> Instant {
    now + Duration::from_micros(10_000_000 + (number as u64).wrapping_mul(61_803) % 20_000_000)
}

pub(crate) async fn lateness<R: Spawn>(params: Params) -> Outcome {
    let record = Lateness::leak(&params);
    record
        .deadlines
        .iter()
        .enumerate()
        .for_each(|(place, &deadline)| {
            R::detach_at(deadline, move || record.note(place));
        });
    record.all.opened().await;
    record.figures()
}

/// How late each of many sleeps was.
pub(crate) struct Lateness {
    pub(crate) deadlines: Vec<Instant>,
    /// In nanoseconds, by place; [`EARLY`] if it was not late at all.
    late: Vec<AtomicU64>,
    pub(crate) all: &'static Latch,
    cpu: Duration,
}

const EARLY: u64 = u64::MAX;

impl Lateness {
    pub(crate) fn leak(params: &Params) -> &'static Lateness {
        let (sleeps, millis) = (params.get("sleeps") as u64, params.get("millis") as u64);
        // Spawning takes its time: the first is due after it.
        let start = Instant::now() + Duration::from_millis(200);
        let deadlines = (0..sleeps).map(|number| {
            let place = number.wrapping_mul(61_803) % sleeps;
            start + Duration::from_nanos(place * millis * 1_000_000 / sleeps)
        });
        Box::leak(Box::new(Lateness {
            deadlines: deadlines.collect(),
            late: (0..sleeps).map(|_| AtomicU64::new(0)).collect(),
            all: Latch::leak(sleeps as usize),
            cpu: sys::cpu_time(),
        }))
    }

    /// The sleep at that place is over.
    pub(crate) fn note(&self, place: usize) {
        let late = Instant::now().checked_duration_since(self.deadlines[place]);
        let late = late.map_or(EARLY, |late| late.as_nanos() as u64);
        self.late[place].store(late, Relaxed);
        self.all.count_down();
    }

    pub(crate) fn figures(&self) -> Outcome {
        let cpu = sys::cpu_time() - self.cpu;
        let late: Vec<_> = self.late.iter().map(|late| late.load(Relaxed)).collect();
        match late.iter().filter(|&&late| late == EARLY).count() {
            0 => {}
            early => return Err(format!("{early} of {} timers were early", late.len()).into()),
        }
        let micros: Vec<_> = late.iter().map(|&late| late as f64 / 1e3).collect();
        Ok(Figures::one("p50_us", quantile(&micros, 0.5))
            .with("p99_us", quantile(&micros, 0.99))
            .with("cpu_ms", cpu.as_secs_f64() * 1e3))
    }
}
