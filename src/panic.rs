//! Reporting panics of user code that no handle can carry.
//!
//! - A panic that a handle can carry travels in the handle. Any other panic is reported, once,
//!   through [`Builder::on_panic`](crate::Builder::on_panic) or as one line on stderr. (A panic of
//!   a thread factory or of a function for thread names becomes the error of the call.)
//! - [`PanicReporter`] calls, wakes and drops what belongs to the user, and reports what that panics with.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::task::Waker;

use crate::error::{Caller, PanicRecord};
use crate::sync::Arc;
use crate::trace;
use crate::unwind::{Payload, advice, contain, contain_drop, discard, message};

/// A handler for panics that no handle carries.
pub(crate) type PanicHandler = dyn Fn(&TaskPanic<'_>) + Send + Sync;

/// Runs user code for a loop, and reports its panics under the loop's index to the handler of its group.
#[derive(Clone)]
pub(crate) struct PanicReporter {
    index: Option<usize>,
    handler: Option<Arc<PanicHandler>>,
}

impl PanicReporter {
    /// For code that belongs to no loop and no group.
    pub(crate) const STDERR: PanicReporter = PanicReporter {
        index: None,
        handler: None,
    };

    pub(crate) fn new(index: Option<usize>, handler: Option<Arc<PanicHandler>>) -> PanicReporter {
        PanicReporter { index, handler }
    }

    /// Calls user code; `None` if it panicked.
    pub(crate) fn call<R>(&self, site: PanicSite, call: impl FnOnce() -> R) -> Option<R> {
        self.call_from(site, None, call)
    }

    /// As [`PanicReporter::call`], for code that was submitted at `location`.
    pub(crate) fn call_from<R>(
        &self,
        site: PanicSite,
        location: Option<Caller>,
        call: impl FnOnce() -> R,
    ) -> Option<R> {
        contain(call)
            .map_err(|payload| self.report(site, payload, location))
            .ok()
    }

    /// Drops a value whose destructor is user code.
    pub(crate) fn drop<T>(&self, site: PanicSite, location: Option<Caller>, value: T) {
        self.call_from(site, location, || drop(value));
    }

    /// Wakes tasks of ours and of others; a waker that panics does not keep the others from being woken.
    pub(crate) fn wake_all(&self, wakers: impl IntoIterator<Item = Waker>) {
        for waker in wakers {
            self.call(PanicSite::Waker, || waker.wake());
        }
    }

    /// Reports a panic, and drops its payload.
    #[cold]
    pub(crate) fn report(&self, site: PanicSite, payload: Payload, location: Option<Caller>) {
        self.trace(site, &payload, location);
        self.show(site, payload, location);
    }

    /// Tells `tracing` of a panic that may be reported later.
    pub(crate) fn trace(&self, site: PanicSite, payload: &Payload, location: Option<Caller>) {
        trace::panicked(&site, message(&**payload), self.index, location);
    }

    /// Shows a panic to the handler, or on stderr if there is none or it panics too.
    #[cold]
    pub(crate) fn show(&self, site: PanicSite, payload: Payload, location: Option<Caller>) {
        self.show_named(site, payload, location, None);
    }

    /// As [`show`](PanicReporter::show), for the panic of a task.
    #[cold]
    pub(crate) fn show_task(&self, record: PanicRecord) {
        let (payload, location, name) = record.into_parts();
        self.show_named(PanicSite::Task, payload, Some(location), name.as_deref());
    }

    fn show_named(
        &self,
        site: PanicSite,
        payload: Payload,
        location: Option<Caller>,
        name: Option<&str>,
    ) {
        let panic = TaskPanic {
            site,
            payload: &*payload,
            location,
            name,
            index: self.index,
        };
        match &self.handler {
            None => print(&panic),
            Some(handler) => {
                if let Err(second) = contain(|| handler(&panic)) {
                    print(&panic);
                    discard(second);
                }
            }
        }
        discard(payload);
    }
}

impl fmt::Debug for PanicReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PanicReporter")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// A closure of the user's, dropped under [`contain`]: the last owner of a group may be a waker
/// inside async-task, which aborts the process over a panic.
pub(crate) struct Contained<F>(Option<F>);

impl<F> Contained<F> {
    pub(crate) fn new(closure: F) -> Contained<F> {
        Contained(Some(closure))
    }

    pub(crate) fn get(&self) -> &F {
        self.0.as_ref().expect("present until it is dropped")
    }
}

impl<F> Drop for Contained<F> {
    fn drop(&mut self) {
        // The group was dropped, and its handler with it.
        if let Err(payload) = contain_drop(self.0.take()) {
            PanicReporter::STDERR.show(PanicSite::Destructor, payload, None);
        }
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
    /// A hook or a handler factory of a [`Server`](crate::net::Server).
    Server,
    /// An HTTP service, while it answered a request: see `compat::hyper`.
    Service,
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
            PanicSite::Server => "hook or handler factory of a server",
            PanicSite::Service => "HTTP service",
        })
    }
}

/// A panic that no handle carries, as [`Builder::on_panic`](crate::Builder::on_panic) sees it.
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
/// drop(group.spawn(async { panic!("detached") })); // detached
/// assert_eq!(rx.recv().unwrap(), "detached");
/// # std::io::Result::Ok(())
/// ```
pub struct TaskPanic<'a> {
    pub(crate) site: PanicSite,
    pub(crate) payload: &'a (dyn Any + Send),
    pub(crate) location: Option<Caller>,
    pub(crate) name: Option<&'a str>,
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

    /// Returns the name of the task, if it was [spawned with one](crate::TaskBuilder) and its own code
    /// panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// let (tx, rx) = std::sync::mpsc::channel();
    /// let group = loopgroup::EventLoopGroup::builder()
    ///     .loops(1)
    ///     .on_panic(move |panic| tx.send(panic.name().map(str::to_owned)).unwrap())
    ///     .build()?;
    /// drop(group.task().name("session 7").spawn(async { panic!("no handle is left") }));
    /// assert_eq!(rx.recv().unwrap().as_deref(), Some("session 7"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.name
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
            .field("name", &self.name)
            .field("loop_index", &self.index)
            .finish()
    }
}

impl fmt::Display for TaskPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.site)?;
        if let Some(name) = self.name {
            write!(f, " {name:?}")?;
        }
        if let Some(location) = self.location {
            write!(f, " from {location}")?;
        }
        f.write_str(" panicked")?;
        if let Some(index) = self.index {
            write!(f, " on loop {index}")?;
        }
        let message = self.message();
        write!(f, ": {message}{}", advice(message))
    }
}

fn print(panic: &TaskPanic<'_>) {
    // One write, so that the line stays whole. eprint! panics when stderr is closed, which must not
    // end a loop.
    let line = format!("loopgroup: {panic}\n");
    if let Err(payload) = contain(|| eprint!("{line}")) {
        discard(payload);
    }
}
