//! A future that is not `Send`, driven by a task that is: `spawn_with`.
//!
//! - The task carries `init` to the loop; there it creates the future and stores it in the loop's arena.
//!   The task holds a closure first and a key afterwards, both `Send`.
//! - Dropping the task drops the future at once, on the loop, so once `cancel()` has resolved the future
//!   is dropped. (A task that awaited a second, local task would resolve too early.)
//! - The future is taken out of the arena while it is polled or dropped: no borrow is held.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::event_loop::arena::{ArenaKey, Visit};
use crate::event_loop::context;
use crate::unwind::contain;

/// The `Send` stand-in for a future of type `F`.
pub(crate) struct StandIn<I, F> {
    state: StandInState<I>,
    /// The future is created, polled and dropped on the loop only: the stand-in never owns an `F`, so it
    /// is `Send` even if `F` is not.
    future: PhantomData<fn() -> F>,
}

enum StandInState<I> {
    New(I),
    /// The future is in the loop's arena.
    Stored(ArenaKey),
    Done,
}

impl<I, F> StandIn<I, F> {
    pub(crate) fn new(init: I) -> StandIn<I, F> {
        StandIn {
            state: StandInState::New(init),
            future: PhantomData,
        }
    }
}

// Neither the closure, which is moved out, nor the key is ever pinned.
impl<I, F> Unpin for StandIn<I, F> {}

impl<I, F> Future for StandIn<I, F>
where
    I: FnOnce() -> F,
    F: Future + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let local = context::current().expect("a task is polled on its loop");
        let key = match std::mem::replace(&mut self.state, StandInState::Done) {
            StandInState::New(init) => {
                let future: Pin<Box<F>> = Box::pin(init());
                local.observer.made(size_of::<F>());
                local.arena.borrow_mut().insert(Box::new(future))
            }
            StandInState::Stored(key) => key,
            StandInState::Done => unreachable!("a finished future is not polled"),
        };
        self.state = StandInState::Stored(key);
        let visit = local.arena.borrow_mut().take(key);
        let Visit::Value(mut value) = visit else {
            unreachable!("the arena keeps a future until its task is done")
        };
        let future = value
            .downcast_mut::<Pin<Box<F>>>()
            .expect("the key identifies a future of this type");
        let polled = contain(|| future.as_mut().poll(cx));
        // Put back first, also after a panic: the future is dropped by `drop`, not while unwinding.
        let orphan = local.arena.borrow_mut().give_back(key, value);
        debug_assert!(orphan.is_none(), "only the drop removes the slot");
        match polled {
            Ok(poll) => poll,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }
}

impl<I, F> Drop for StandIn<I, F> {
    fn drop(&mut self) {
        if let StandInState::Stored(key) = self.state {
            let future = context::with_local(|local| local.arena.borrow_mut().remove(key));
            drop(future);
        }
    }
}
