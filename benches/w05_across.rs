//! W5: a message goes to another loop and back, parked and spinning.
//!
//!     cargo bench --bench w05_across
#![allow(missing_docs)]

mod util;

use std::time::Duration;

use loopgroup::{EventLoopGroup, WaitStrategy};
use util::{bench, ping_pong};

const TRIPS: u32 = 2_000;

fn main() {
    let spin = WaitStrategy::SpinThenPark(Duration::from_millis(1));
    for (name, strategy) in [
        ("W5 ping-pong, parked", WaitStrategy::Park),
        ("W5 ping-pong, spinning", spin),
    ] {
        let builder = EventLoopGroup::builder().loops(2);
        let group = builder.wait_strategy(strategy).build().unwrap();
        bench(name, TRIPS, || ping_pong(&group, (0, 1), TRIPS));
    }
}
