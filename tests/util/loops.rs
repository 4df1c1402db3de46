//! Groups and loops for tests.

use std::future::Future;
use std::thread::{self, ThreadId};

use loopgroup::{EventLoop, EventLoopGroup, JoinHandle};

use super::{Door, within};

/// Runs a future as the main of a loop, under the watchdog.
#[track_caller]
pub fn on_a_loop<T, F>(main: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = std::io::Result<T>>,
{
    within(move || loopgroup::run(main()).unwrap().unwrap())
}

/// A group of so many loops.
pub fn group(loops: usize) -> EventLoopGroup {
    EventLoopGroup::new(loops).unwrap()
}

/// A group of so many loops, with I/O or without.
pub fn group_with_io(loops: usize, io: bool) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(loops);
    let builder = if io { builder } else { builder.without_io() };
    builder.build().unwrap()
}

/// A group of one loop, and the loop.
pub fn one_loop() -> (EventLoopGroup, EventLoop) {
    let group = group(1);
    let ev = group.next().clone();
    (group, ev)
}

/// Spawns a future on `ev` through `spawn_local`: it need not be `Send`.
pub fn local<F: Future<Output = ()> + 'static>(
    ev: &EventLoop,
    make: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<()> {
    loopgroup::block_on(ev.submit(move || loopgroup::spawn_local(make()))).unwrap()
}

/// Keeps a loop's thread busy until the door opens; returns once it is.
pub fn stall(ev: &EventLoop) -> Door {
    let entered = Door::new();
    let release = Door::new();
    let (inside, until) = (entered.clone(), release.clone());
    ev.execute(move || {
        inside.open();
        until.pass();
    })
    .unwrap();
    entered.pass();
    release
}

/// The thread of a loop.
pub fn thread_of(ev: &EventLoop) -> ThreadId {
    loopgroup::block_on(ev.submit(|| thread::current().id())).unwrap()
}

/// Waits until everything that was submitted to `ev` before has had its turn.
pub fn flush(ev: &EventLoop) {
    thread_of(ev);
}
