//! Sleeping, ticking, timing out, and closures that run later.
//!
//!     cargo run --example timers
//!
//! Prints a line for each; the heartbeat goes on until the shutdown cancels it.

use std::time::{Duration, Instant};

use loopgroup::EventLoopGroup;
use loopgroup::time::{interval, sleep, timeout};

fn main() -> std::io::Result<()> {
    let group = EventLoopGroup::new(1)?;
    let ms = Duration::from_millis;

    // A closure on a grid of 40 ms, on the loop, without a task of one's own.
    let mut beats = 0;
    let heartbeat = group
        .next()
        .schedule_at_fixed_rate(ms(0), ms(40), move || {
            beats += 1;
            println!("heartbeat {beats}");
        })?;

    let task = group.spawn(async move {
        let start = Instant::now();
        sleep(ms(30)).await;
        println!("slept for {:?}", start.elapsed());

        let mut ticks = interval(ms(10));
        for number in 0..3 {
            ticks.tick().await; // the first one comes at once
            println!("tick {number}");
        }

        let slow = timeout(ms(20), std::future::pending::<()>()).await;
        println!("the slow one: {}", slow.unwrap_err());
    });
    group.block_on(task)?;

    // Work is drained, scheduled closures are cancelled, and the handle says so.
    let report = group.drain(Duration::from_secs(5)).wait();
    let end = loopgroup::block_on(heartbeat);
    println!(
        "the heartbeat: {}",
        end.expect_err("it never ends by itself")
    );
    println!("{report}");
    Ok(())
}
