//! `loopgroup::run`: the calling thread is a loop until a future completes.

use std::future::Future;
use std::io;

use crate::builder::Builder;
use crate::event_loop::context;
use crate::event_loop::main_future::{Main, run_main};
use crate::this_thread;

/// Turns this thread into an event loop until `future` completes.
///
/// The future need be neither `Send` nor `'static`; tasks that it spawns with
/// [`spawn_local`](crate::spawn_local) need not be `Send` either. When it completes, the remaining tasks
/// are cancelled and the thread is an ordinary thread again.
///
/// # Errors
///
/// The system's error if the selector cannot be created or fails; `Deadlock` on a thread that is
/// already a loop; `Interrupted` if the loop was shut down before the future completed; `Other` in the
/// destructor of a thread-local.
///
/// # Panics
///
/// If the future panics, with the same payload.
///
/// # Examples
///
/// ```
/// use std::{cell::Cell, rc::Rc};
///
/// let sum = loopgroup::run(async {
///     let sum = Rc::new(Cell::new(0));
///     let tasks: Vec<_> = (1..=4)
///         .map(|n| {
///             let sum = Rc::clone(&sum);
///             loopgroup::spawn_local(async move { sum.set(sum.get() + n) })
///         })
///         .collect();
///     for task in tasks {
///         task.await.unwrap();
///     }
///     sum.get()
/// })?;
/// assert_eq!(sum, 10);
/// # std::io::Result::Ok(())
/// ```
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    if this_thread::is_loop() {
        return Err(io::Error::new(
            io::ErrorKind::Deadlock,
            "loopgroup::run was called on the thread of an event loop: \
             await the future there, or call run on a thread of its own",
        ));
    }
    if !context::may_be_loop() {
        return Err(io::Error::other(
            "loopgroup::run was called while the thread-locals of its thread are destroyed: \
             it is too late to become a loop",
        ));
    }
    let group = Builder::new().loops(1).build()?;
    let parts = group.next().shared().take_parts();
    let parts = parts.expect("the loop of a new group has no thread");
    match run_main(parts, future) {
        Main::Done(output) => Ok(output),
        Main::Panicked(payload) => std::panic::resume_unwind(payload),
        Main::Ended(Some(error)) => Err(error),
        Main::Ended(None) => Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "the loop of loopgroup::run was shut down before its future was done",
        )),
    }
}
