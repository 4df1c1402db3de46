//! W7: timers that are made, armed and dropped among ten thousand live ones.
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

fn main() {
    bench("W7 timer made, armed, dropped", TIMERS, || {
        run(poll_fn(|cx| {
            let start = Instant::now();
            let mut live: Vec<_> = (0..LIVE).map(|n| armed(start, n, cx)).collect();
            for n in LIVE..LIVE + TIMERS as usize {
                live[n % LIVE] = armed(start, n, cx);
            }
            Poll::Ready(())
        }))
        .unwrap();
    });
}

/// A timer some seconds from now, in no order.
fn armed(start: Instant, number: usize, cx: &mut Context<'_>) -> Sleep {
    let micros = 10_000_000 + (number as u64).wrapping_mul(61_803) % 20_000_000;
    let mut sleep = sleep_until(start + Duration::from_micros(micros));
    assert!(Pin::new(&mut sleep).poll(cx).is_pending());
    sleep
}
