//! The future of `loopgroup::run`: it is not a task, and its loop ends when it completes.
//!
//! - It is polled between turns, if it was woken; while it is woken the loop does not sleep.
//! - Its waker sets a flag; on another thread it also wakes the loop.
//! - It is dropped on its thread, while the loop still exists.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::event_loop::local::Local;
use crate::event_loop::run::{Exit, drive};
use crate::event_loop::shared::{LoopParts, Shared};
use crate::event_loop::terms::ShutdownRequest;
use crate::event_loop::{budget, context};
use crate::panic::PanicSite;
use crate::report::EndCause;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::this_thread;
use crate::unwind::{Payload, contain};

/// The outcome of the future given to [`run_main`].
pub(crate) enum Main<T> {
    Done(T),
    Panicked(Payload),
    /// The loop ended first.
    Ended(Option<io::Error>),
}

/// Runs the loop on the calling thread until `future` completes.
pub(crate) fn run_main<F: Future>(parts: LoopParts, future: F) -> Main<F::Output> {
    let mut outcome = Main::Ended(None);
    let shared = Arc::clone(&parts.shared);
    let parked = drive(parts, |runner| {
        let woken = Arc::new(AtomicBool::new(true));
        let waker = main_waker(&shared, &woken);
        let mut future = Box::pin(future);
        let ending = loop {
            // Acquire pairs with the Release in `main_waker`.
            if woken.swap(false, Ordering::Acquire) {
                runner.forget_reading();
                match poll_main(runner.local(), future.as_mut(), &waker) {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(value)) => {
                        outcome = Main::Done(value);
                        break Exit::End(EndCause::Now, None);
                    }
                    Err(payload) => {
                        outcome = Main::Panicked(payload);
                        break Exit::End(EndCause::Now, None);
                    }
                }
            }
            match runner.turn(|| !woken.load(Ordering::Acquire)) {
                Ok(None) => {}
                Ok(Some(cause)) => break Exit::End(cause, None),
                Err(error) => {
                    outcome = Main::Ended(Some(io::Error::new(error.kind(), error.to_string())));
                    break Exit::End(EndCause::Failed, Some(error));
                }
            }
        };
        let site = PanicSite::Destructor;
        shared.panics.drop(site, None, future);
        shared.request(ShutdownRequest::Now);
        ending
    });
    debug_assert!(parked.is_none(), "a main future keeps its loop");
    outcome
}

/// Polls a main future, which is no task, on its loop; a panic ends here.
pub(crate) fn poll_main<F: Future>(
    local: &Local,
    future: Pin<&mut F>,
    waker: &Waker,
) -> Result<Poll<F::Output>, Payload> {
    budget::reset();
    this_thread::note_own_waker(waker);
    this_thread::set_no_task();
    let _observed = local.observer.begin_main();
    let polled = contain(|| future.poll(&mut Context::from_waker(waker)));
    this_thread::forget_own_waker();
    polled
}

/// Creates the waker of the main future.
pub(crate) fn main_waker(shared: &Arc<Shared>, woken: &Arc<AtomicBool>) -> Waker {
    let shared = Arc::clone(shared);
    let woken = Arc::clone(woken);
    waker_fn::waker_fn(move || {
        let first = !woken.swap(true, Ordering::Release);
        // On the loop's own thread the flag is enough: it is checked before the loop sleeps.
        if first && !context::is_home(&shared) {
            shared.nudge();
        }
    })
}
