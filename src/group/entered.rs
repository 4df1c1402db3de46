//! The group of a thread inside `group.block_on`, which has a group but no loop of its own.

use std::cell::RefCell;
use std::future::Future;

use crate::block_on::block_on;
use crate::group::handle::EventLoopGroup;
use crate::sync::thread_local;
use crate::this_thread;

thread_local! {
    static ENTERED: RefCell<Vec<EventLoopGroup>> = const { RefCell::new(Vec::new()) };
}

impl EventLoopGroup {
    /// Polls `future` on this thread until it is done; inside, [`loopgroup::spawn`](crate::spawn)
    /// spawns on this group.
    ///
    /// # Panics
    ///
    /// On a thread that is an event loop, of any group; see [`block_on`](crate::block_on).
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let sum = group.block_on(async {
    ///     let (one, two) = (loopgroup::spawn(async { 1 }), loopgroup::spawn(async { 2 }));
    ///     one.await.unwrap() + two.await.unwrap()
    /// });
    /// assert_eq!(sum, 3);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        this_thread::refuse_on_loop("EventLoopGroup::block_on");
        let _entered = enter(self);
        block_on(future)
    }
}

/// Makes `group` the group of this thread, until the guard is dropped.
///
/// Returns `None` while thread-locals are destroyed: then there is no context.
fn enter(group: &EventLoopGroup) -> Option<GroupGuard> {
    let group = group.clone();
    ENTERED
        .try_with(|entered| entered.borrow_mut().push(group))
        .ok()
        .map(GroupGuard)
}

/// Restores the group that was current before.
#[derive(Debug)]
struct GroupGuard(());

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // This may be the last handle of the group, so it is dropped after the borrow.
        let group = ENTERED.try_with(|entered| entered.borrow_mut().pop());
        drop(group);
    }
}

/// Returns the group of the innermost `group.block_on` on this thread.
pub(crate) fn entered_group() -> Option<EventLoopGroup> {
    ENTERED
        .try_with(|entered| entered.borrow().last().cloned())
        .ok()
        .flatten()
}

#[cold]
#[track_caller]
pub(crate) fn no_context(what: &str) -> ! {
    // What `group.block_on` lends its thread are the group's loops; none of them is this thread.
    let (places, instead) = match what {
        "spawn_local" => ("or inside loopgroup::run", "group.spawn_with"),
        _ => (
            "inside loopgroup::run or inside group.block_on",
            "group.spawn",
        ),
    };
    panic!(
        "loopgroup::{what} needs an event loop around it, and this thread is none: call it inside \
         a task, {places}; from anywhere else submit through a handle, such as {instead} or \
         ev.spawn_with"
    )
}
