//! The smallest program: spawn on a group, wait, shut down.
//!
//!     cargo run --example hello
//!
//! Prints one line per task with its loop and thread, and the report of the shutdown.

use std::time::Duration;

use loopgroup::{EventLoop, EventLoopGroup};

fn main() -> std::io::Result<()> {
    let group = EventLoopGroup::new(2)?;
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            group.spawn(async move {
                let home = EventLoop::current().expect("a task has a loop");
                let thread = std::thread::current();
                let name = thread.name().unwrap_or("?");
                format!("task {number} on loop {} ({name})", home.index())
            })
        })
        .collect();
    for task in tasks {
        println!("{}", group.block_on(task)?);
    }
    println!("{}", group.drain(Duration::from_secs(5)).wait());
    Ok(())
}
