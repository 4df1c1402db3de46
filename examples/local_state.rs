//! State without locks: an `Rc` shared by tasks of one loop, and a loop-bound value used from outside.
//!
//!     cargo run --example local_state
//!
//! Prints `4 tasks on one loop counted to 400`, then `the map has 3 entries, dropped on its loop`.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use loopgroup::EventLoopGroup;

fn main() -> std::io::Result<()> {
    let group = EventLoopGroup::new(2)?;

    // Made on a loop, the future may hold an Rc across awaits: it never leaves its thread.
    let counted = group.spawn_with(|| async {
        let count = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let count = Rc::clone(&count);
                loopgroup::spawn_local(async move {
                    for _ in 0..100 {
                        count.set(count.get() + 1);
                        loopgroup::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("nobody cancels it");
        }
        count.get()
    });
    println!(
        "4 tasks on one loop counted to {}",
        group.block_on(counted)?
    );

    // A value that lives on a loop; the handle may go anywhere.
    let map = group.next().bind(HashMap::<u32, Rc<str>>::new);
    group.block_on(async {
        for key in 0..3 {
            let insert = map.with(move |map| map.insert(key, Rc::from("value")).is_none());
            assert!(insert.await.expect("the loop runs"));
        }
        let entries = map.with(|map| map.len()).await.expect("the loop runs");
        println!("the map has {entries} entries, dropped on its loop");
    });
    drop(map);
    group.drain(Duration::from_secs(5)).wait();
    Ok(())
}
