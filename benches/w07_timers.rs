//! W7: timers that are made, armed and dropped among ten thousand live ones: all in one poll,
//! behind a timer that is far away, and with a turn of the loop after every sixty-four.
//!
//!     cargo bench --bench w07_timers
#![allow(missing_docs)]

mod util;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use loopgroup::run;
use loopgroup::time::{Sleep, sleep_until};
use util::bench;

const LIVE: usize = 10_000;
const TIMERS: u32 = 100_000;
const HOUR: Duration = Duration::from_secs(3600);

fn main() {
    for (name, far, turn) in [
        ("W7 timer made, armed, dropped", false, usize::MAX),
        ("W7 the same, a far one first", true, usize::MAX),
        ("W7 the same, in many turns", true, 64),
    ] {
        bench(name, TIMERS, || run(churn(far, turn)).unwrap());
    }
}

/// Replaces timers among the live ones; the loop takes a turn after every `turn` of them.
async fn churn(far: bool, turn: usize) {
    let start = Instant::now();
    let mut first = far.then(|| sleep_until(start + HOUR));
    let mut live: Vec<Option<Sleep>> = (0..LIVE).map(|_| None).collect();
    let mut number = 0;
    poll_fn(|cx| {
        if let Some(first) = &mut first {
            assert!(Pin::new(first).poll(cx).is_pending());
        }
        for _ in 0..turn {
            if number == LIVE + TIMERS as usize {
                return Poll::Ready(());
            }
            live[number % LIVE] = Some(armed(start, number, cx));
            number += 1;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A timer some seconds from now, in no order.
fn armed(start: Instant, number: usize, cx: &mut Context<'_>) -> Sleep {
    let micros = 10_000_000 + (number as u64).wrapping_mul(61_803) % 20_000_000;
    let mut sleep = sleep_until(start + Duration::from_micros(micros));
    assert!(Pin::new(&mut sleep).poll(cx).is_pending());
    sleep
}
