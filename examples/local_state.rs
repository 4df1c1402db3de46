//! State without locks: an `Rc` shared by tasks of one loop, a loop-bound value used from outside, and a
//! value on every loop.
//!
//!     cargo run --example local_state
//!
//! Prints `4 tasks on one loop counted to 400`, `the map has 3 entries, dropped on its loop`, and
//! `10 tasks on [5, 5] counted without a lock`.

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

    // A value on every loop: a task uses that of its own loop, without a hop.
    let hits = group.per_loop(|_| Cell::new(0_u32));
    group.block_on(async {
        for index in 0..10 {
            let hits = hits.clone();
            let hit = async move { hits.here(|hits| hits.set(hits.get() + 1)) };
            let task = group.spawn_on(index % group.len(), hit);
            task.await.expect("nobody cancels it");
        }
        let counts = hits.map_all(Cell::get).await.expect("the loops run");
        println!("10 tasks on {counts:?} counted without a lock");
    });
    group.drain(Duration::from_secs(5)).wait();
    Ok(())
}
