//! A shutdown that accounts for everything: work in flight, a hook, a task that will not end.
//!
//!     cargo run --example graceful_shutdown
//!
//! Prints what each part does when the shutdown reaches it, and the report: one task completed by
//! itself, one was told and completed, one was cancelled at the timeout.

use std::time::Duration;

use loopgroup::EventLoopGroup;

fn main() -> std::io::Result<()> {
    let group = EventLoopGroup::builder()
        .loops(1)
        .thread_name(|index| format!("worker-{index}"))
        .build()?;
    let worker = group.next();

    worker
        .add_shutdown_hook(|| println!("hook: the queue has run empty, or the time is over"))
        .expect("the loop is not shut down yet");

    let quick = group.spawn(async { println!("task 1: done before the shutdown looks") });
    let polite = group.spawn(async {
        loopgroup::shutdown_requested().await;
        println!("task 2: told about the shutdown, says good-bye");
    });
    let stubborn = group.spawn(async {
        loop {
            loopgroup::yield_now().await; // always busy: no quiet period would ever come
        }
    });
    group.block_on(quick)?;

    // Graceful, yet bounded: quiet for 100 ms or over after 300 ms.
    let quiet = Duration::from_millis(100);
    let end = group.shutdown_gracefully_with(quiet, Duration::from_millis(300))?;
    let report = end.wait();
    assert!(loopgroup::block_on(polite).is_ok());
    let stubborn: Result<(), _> = loopgroup::block_on(stubborn);
    println!("task 3: {}", stubborn.expect_err("it never ends by itself"));
    println!("{report}");
    Ok(())
}
