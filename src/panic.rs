//! Where panics of user code end.
//!
//! - Every call into user code that is not awaited by somebody goes through [`contain`]: a loop
//!   never unwinds because of a task, a destructor, a hook, a waker, a chooser or a factory.
//! - A panic that somebody can join travels in the handle. One that nobody can join is reported,
//!   once, through [`Builder::on_panic`](crate::Builder::on_panic) or as one line on stderr. (Those of
//!   a thread factory and of a function for thread names become the error of the call.)
//! - A payload is user data with a destructor: it is dropped under `contain` as well.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::trace;

/// The payload of a panic.
pub(crate) type Payload = Box<dyn Any + Send>;

/// A handler for panics that nobody can join.
pub(crate) type PanicHandler = dyn Fn(&TaskPanic<'_>) + Send + Sync;

/// Calls user code; a panic ends here.
pub(crate) fn contain<R>(call: impl FnOnce() -> R) -> Result<R, Payload> {
    // Unwind safety: callers hand in values that are not looked at again after a panic.
    catch_unwind(AssertUnwindSafe(call))
}

/// Drops user data; a panic of its destructor ends here, and so does one of its payload.
pub(crate) fn contain_drop<T>(value: T) -> Result<(), Payload> {
    contain(|| drop(value))
}

/// A closure of the user's that may go with whatever held a group last.
///
/// That may be a waker, in the middle of async-task, which would abort the process over a panic.
pub(crate) struct Contained<F>(Option<F>);

impl<F> Contained<F> {
    pub(crate) fn new(closure: F) -> Contained<F> {
        Contained(Some(closure))
    }

    pub(crate) fn get(&self) -> &F {
        self.0.as_ref().expect("it is there until the end")
    }
}

impl<F> Drop for Contained<F> {
    fn drop(&mut self) {
        if let Err(payload) = contain_drop(self.0.take()) {
            // The group is gone, and its handler with it.
            print(&TaskPanic {
                site: PanicSite::Destructor,
                payload: &*payload,
                location: None,
                index: None,
            });
            discard(payload);
        }
    }
}

/// Payloads in a row, each out of the destructor of the one before, that are dropped.
const PAYLOADS: usize = 8;

/// Forgets a payload that nobody wants to see.
pub(crate) fn discard(mut payload: Payload) {
    for _ in 0..PAYLOADS {
        match contain_drop(payload) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    // A chain of those has an end only if we stop asking: this one is leaked on purpose.
    let _ = Box::leak(payload);
}

/// The text of a payload, as the standard panic hook would show it.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "Box<dyn Any>"
    }
}

/// Which part of the user's code panicked.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, PanicSite};
/// use std::sync::mpsc;
///
/// let (tx, rx) = mpsc::channel();
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .on_panic(move |panic| tx.send(panic.site()).unwrap())
///     .build()?;
/// group.next().add_shutdown_hook(|| panic!("in a hook")).unwrap();
/// group.shutdown_now().wait();
/// assert_eq!(rx.recv(), Ok(PanicSite::ShutdownHook));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PanicSite {
    /// A task or a closure, and its handle was dropped.
    Task,
    /// The destructor of a future, a closure or an output.
    Destructor,
    /// A shutdown hook.
    ShutdownHook,
    /// The `on_thread_start` hook, or the destructor of its guard.
    ThreadHook,
    /// A waker that does not belong to this crate.
    Waker,
    /// A [`Chooser`](crate::Chooser).
    Chooser,
    /// A [`thread_factory`](crate::Builder::thread_factory).
    ThreadFactory,
    /// A custom [`RejectPolicy`](crate::RejectPolicy).
    RejectPolicy,
    /// The `init` or the destructor of a [`LoopBound`](crate::LoopBound) value.
    LoopBound,
}

impl fmt::Display for PanicSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PanicSite::Task => "task",
            PanicSite::Destructor => "destructor of a task",
            PanicSite::ShutdownHook => "shutdown hook",
            PanicSite::ThreadHook => "thread start hook",
            PanicSite::Waker => "foreign waker",
            PanicSite::Chooser => "chooser",
            PanicSite::ThreadFactory => "thread factory",
            PanicSite::RejectPolicy => "reject policy",
            PanicSite::LoopBound => "loop-bound value",
        })
    }
}

/// A panic that nobody can join, as [`Builder::on_panic`](crate::Builder::on_panic) sees it.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use loopgroup::EventLoopGroup;
///
/// let (tx, rx) = mpsc::channel();
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .on_panic(move |panic| tx.send(panic.message().to_owned()).unwrap())
///     .build()?;
/// drop(group.spawn(async { panic!("nobody joins me") })); // detached
/// assert_eq!(rx.recv().unwrap(), "nobody joins me");
/// # std::io::Result::Ok(())
/// ```
pub struct TaskPanic<'a> {
    pub(crate) site: PanicSite,
    pub(crate) payload: &'a (dyn Any + Send),
    pub(crate) location: Option<&'static Location<'static>>,
    pub(crate) index: Option<usize>,
}

impl TaskPanic<'_> {
    /// Says which part of the user's code panicked.
    pub fn site(&self) -> PanicSite {
        self.site
    }

    /// Returns the panic's text; `"Box<dyn Any>"` if its payload is not a string.
    pub fn message(&self) -> &str {
        message(self.payload)
    }

    /// Returns the panic's payload.
    pub fn payload(&self) -> &(dyn Any + Send) {
        self.payload
    }

    /// Returns the place in the source where the task was spawned or the hook was added; `None` if the
    /// panic belongs to neither.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::sync::mpsc;
    ///
    /// let (tx, rx) = mpsc::channel();
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .on_panic(move |panic| {
    ///         let place = panic.location().map(|place| place.line()); // where it was spawned
    ///         let number = panic.payload().downcast_ref::<u32>().copied();
    ///         tx.send((place, number, panic.loop_index())).unwrap();
    ///     })
    ///     .build()?;
    /// let line = line!() + 1;
    /// drop(group.spawn(async { std::panic::panic_any(7_u32) }));
    /// assert_eq!(rx.recv(), Ok((Some(line), Some(7), Some(0))));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }

    /// Returns the index of the loop in its group; `None` for a [`Chooser`](crate::Chooser), which runs
    /// before there is one.
    pub fn loop_index(&self) -> Option<usize> {
        self.index
    }
}

impl fmt::Debug for TaskPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPanic")
            .field("site", &self.site)
            .field("message", &self.message())
            .field("location", &self.location)
            .field("loop_index", &self.index)
            .finish()
    }
}

impl fmt::Display for TaskPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.site)?;
        if let Some(location) = self.location {
            write!(f, " from {location}")?;
        }
        if let Some(index) = self.index {
            write!(f, " panicked on loop {index}")?;
        } else {
            f.write_str(" panicked")?;
        }
        write!(f, ": {}", self.message())
    }
}

/// Shows a panic to the handler, or on stderr if there is none or it panics too.
#[cold]
pub(crate) fn report(handler: Option<&PanicHandler>, panic: &TaskPanic<'_>) {
    trace::panicked(panic);
    show(handler, panic);
}

/// Shows a panic that was told of when it happened.
pub(crate) fn show(handler: Option<&PanicHandler>, panic: &TaskPanic<'_>) {
    let Some(handler) = handler else {
        return print(panic);
    };
    if let Err(second) = contain(|| handler(panic)) {
        print(panic);
        discard(second);
    }
}

fn print(panic: &TaskPanic<'_>) {
    // One write, so that the line stays one. eprint! panics when stderr is closed; that is no reason
    // to end a loop.
    let line = format!("loopgroup: {panic}\n");
    if let Err(payload) = contain(|| eprint!("{line}")) {
        discard(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Arc, AtomicUsize, Ordering};

    /// Counts its drop, and panics in it with the next of its kind.
    struct Chain {
        left: usize,
        drops: Arc<AtomicUsize>,
    }

    impl Drop for Chain {
        fn drop(&mut self) {
            self.drops.fetch_add(1, Ordering::SeqCst);
            if self.left > 0 {
                let (left, drops) = (self.left - 1, Arc::clone(&self.drops));
                std::panic::resume_unwind(Box::new(Chain { left, drops }));
            }
        }
    }

    #[test]
    fn payloads_that_panic_when_they_go_are_dropped_too_but_not_for_ever() {
        for (left, dropped) in [(0, 1), (1, 2), (PAYLOADS - 1, PAYLOADS)] {
            let drops = Arc::new(AtomicUsize::new(0));
            discard(Box::new(Chain {
                left,
                drops: Arc::clone(&drops),
            }));
            assert_eq!(drops.load(Ordering::SeqCst), dropped);
            assert_eq!(Arc::strong_count(&drops), 1, "nothing is left of it");
        }
        // One that goes on and on is not asked for ever. It has no size, so that not a byte leaks here.
        struct Endless;
        impl Drop for Endless {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new(Endless));
            }
        }
        discard(Box::new(Endless));
    }
}
