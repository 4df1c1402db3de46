//! The work of a loop's thread, to be run by a user's factory.
//!
//! A [`LoopThread`] keeps the group alive: if the group's handles are dropped while a thread starts, the
//! group still exists when the thread runs.

use std::fmt;
use std::io;

use crate::event_loop::context;
use crate::event_loop::run;
use crate::event_loop::shared::{LoopParts, Shared};
use crate::sync::{Arc, thread};
use crate::termination::ThreadSlot;
use crate::this_thread;

/// The work of a loop's thread, to be run by a [`thread_factory`](crate::Builder::thread_factory).
///
/// Calling [`run`](LoopThread::run) turns the calling thread into the loop until the loop ends. A loop of an
/// [elastic](crate::Builder::elastic) group may end its thread earlier, and ask the factory for another one.
/// Dropping it without running it is a failed start: the submission that caused it is rejected with
/// [`ThreadStart`](crate::RejectReason::ThreadStart), and the next one tries again.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .thread_factory(|lt| {
///         std::thread::Builder::new()
///             .name(lt.name().to_owned())
///             .spawn(move || lt.run())
///             .map(drop)
///     })
///     .build()?;
/// assert_eq!(group.block_on(group.spawn(async { 1 })).unwrap(), 1);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "a LoopThread that is dropped without run() is a failed start"]
pub struct LoopThread {
    /// `None` once it runs.
    parts: Option<LoopParts>,
}

impl LoopThread {
    pub(crate) fn new(parts: LoopParts) -> LoopThread {
        LoopThread { parts: Some(parts) }
    }

    /// Spawns a thread of the system that runs the loop.
    pub(crate) fn start(self) -> io::Result<()> {
        let shared = Arc::clone(&self.parts().shared);
        let mut builder = thread::Builder::new().name(self.name().to_owned());
        if let Some(bytes) = self.stack_size() {
            builder = builder.stack_size(bytes);
        }
        // The slot is added first and filled under its lock: a thread that waits for the end of the loop
        // finds this thread to join, however soon it exits.
        let slot = ThreadSlot::default();
        let mut filling = slot.lock();
        shared.parent.add_thread(&slot);
        shared.termination.add_thread(Arc::clone(&slot));
        let body = move || {
            self.run();
            this_thread::leave();
        };
        match builder.spawn(body) {
            Ok(handle) => {
                *filling = Some(handle);
                // The system has created the thread; it will call `run`.
                shared.will_begin();
                Ok(())
            }
            Err(error) => {
                shared.parent.remove_thread(&slot);
                shared.termination.remove_thread(&slot);
                Err(error)
            }
        }
    }

    /// Returns the name that the builder chose for the thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::thread;
    ///
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .thread_name(|index| format!("api-{index}"))
    ///     .thread_stack_size(128 * 1024)
    ///     .thread_factory(|lt| {
    ///         assert_eq!((lt.name(), lt.index()), ("api-0", 0));
    ///         let thread = thread::Builder::new().name(lt.name().to_owned());
    ///         let thread = match lt.stack_size() {
    ///             Some(bytes) => thread.stack_size(bytes),
    ///             None => thread,
    ///         };
    ///         thread.spawn(|| lt.run()).map(drop)
    ///     })
    ///     .build()?;
    /// let name = group.spawn(async { thread::current().name().map(str::to_owned) });
    /// assert_eq!(group.block_on(name).unwrap().unwrap(), "api-0");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn name(&self) -> &str {
        let parts = self.parts();
        &parts.shared.config.thread_names[parts.shared.index]
    }

    /// Returns the loop's index in its group.
    pub fn index(&self) -> usize {
        self.parts().shared.index
    }

    /// Returns the stack size that was set in the builder, if any.
    pub fn stack_size(&self) -> Option<usize> {
        self.parts().shared.config.thread_stack_size
    }

    /// Turns this thread into the loop, and returns when the loop has ended, or is parked.
    ///
    /// On a thread that is already a loop, or whose thread-locals are being destroyed, this is a failed
    /// start, as if it were dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .thread_factory(|lt| {
    ///         std::thread::Builder::new()
    ///             .spawn(move || {
    ///                 lt.run(); // returns when the loop has ended
    ///                 println!("the loop has ended");
    ///             })
    ///             .map(drop)
    ///     })
    ///     .build()?;
    /// group.start()?;
    /// group.shutdown_now().wait();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn run(mut self) {
        if !context::may_be_loop() {
            return;
        }
        if let Some(parts) = self.parts.take() {
            if parts.shared.begun() {
                run::run_loop(parts);
            }
        }
    }

    fn parts(&self) -> &LoopParts {
        self.parts
            .as_ref()
            .expect("only run() takes the parts, and it takes the LoopThread too")
    }
}

impl Drop for LoopThread {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        Shared::start_failed(parts);
    }
}

impl fmt::Debug for LoopThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopThread")
            .field("name", &self.name())
            .field("index", &self.index())
            .field("stack_size", &self.stack_size())
            .finish()
    }
}
