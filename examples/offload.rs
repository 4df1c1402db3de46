//! Three kinds of threads side by side: loops, an executor group for heavy handlers, blocking jobs.
//!
//!     cargo run --example offload
//!
//! Prints the names of the threads that each part ran on; the result comes back to its home loop.

use std::time::Duration;

use loopgroup::{EventLoopGroup, blocking};

fn thread_name() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

fn main() -> std::io::Result<()> {
    let workers = EventLoopGroup::builder()
        .loops(1)
        .thread_name(|index| format!("io-{index}"))
        .build()?;
    // No selector: loops for handlers that compute, so that the I/O loops stay quick.
    let handlers = EventLoopGroup::builder()
        .loops(2)
        .without_io()
        .thread_name(|index| format!("handler-{index}"))
        .build()?;

    let offload = handlers.clone();
    let task = workers.spawn(async move {
        let home = thread_name();
        let computed = offload
            .spawn(async { (thread_name(), (1..=20_u64).product::<u64>()) })
            .await?;
        let read = blocking::unblock(|| (thread_name(), std::fs::read("/dev/null"))).await?;
        assert_eq!(
            home,
            thread_name(),
            "awaiting elsewhere does not move the task"
        );
        println!("task on {home}");
        println!("20! = {} computed on {}", computed.1, computed.0);
        println!("file of {} bytes read on {}", read.1?.len(), read.0);
        std::io::Result::Ok(())
    });
    workers.block_on(task)??;
    for group in [workers, handlers] {
        assert!(group.drain(Duration::from_secs(5)).wait().is_clean());
    }
    Ok(())
}
