//! W4: a message goes to another task of the same loop and back.
//!
//!     cargo bench --bench w04_ping_pong
#![allow(missing_docs)]

mod util;

use loopgroup::EventLoopGroup;
use util::{bench, ping_pong};

const TRIPS: u32 = 50_000;

fn main() {
    let group = EventLoopGroup::new(1).unwrap();
    bench("W4 ping-pong on one loop", TRIPS, || {
        ping_pong(&group, (0, 0), TRIPS);
    });
}
