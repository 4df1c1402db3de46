//! The errors of submissions and tasks, as small opaque types.
//!
//! - A rejected value is handed back: [`Rejected`] carries it, [`Rejected::into_inner`] returns it.
//! - [`JoinError`] distinguishes panic, cancellation and rejection, and keeps the payload of a panic.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::Location;

use crate::sync::Mutex;
use crate::unwind::{Payload, advice, message};

/// The source location of a submission.
pub(crate) type Caller = &'static Location<'static>;

/// The reason why a submission was rejected.
///
/// Converted to an [`io::Error`], through [`Rejected`] or [`JoinError`], a rejection has the kind
/// `ResourceBusy` (queue full), `BrokenPipe` (shut down), `InvalidInput` (no such loop), `Unsupported`
/// (no context, not on the loop) or that of the failed thread start.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, RejectReason};
///
/// let group = EventLoopGroup::new(1)?;
/// let error = group.block_on(group.spawn_on(7, async {})).unwrap_err();
/// assert_eq!(error.reject_reason(), Some(RejectReason::NoSuchLoop));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// The loop has `max_pending_tasks` tasks waiting for their first poll, or every thread of a
    /// [`BlockingGroup`](crate::blocking::BlockingGroup) is busy and jobs may not wait.
    QueueFull,
    /// The loop, or the group, no longer accepts work.
    ShutDown,
    /// The group has no loop with this index.
    NoSuchLoop,
    /// The calling thread is neither a loop nor inside `group.block_on`.
    NoContext,
    /// What was submitted is not `Send`, and the calling thread is not that of the loop.
    NotOnLoop,
    /// The thread could not be started, for this reason; the next submission tries again.
    ThreadStart(io::ErrorKind),
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RejectReason::QueueFull => {
                f.write_str("the queue is full: max_pending_tasks are waiting")
            }
            RejectReason::ShutDown => f.write_str("the event loop is shut down"),
            RejectReason::NoSuchLoop => f.write_str("the group has no loop with this index"),
            RejectReason::NoContext => f.write_str(
                "this thread is not an event loop: submit through a group or loop handle, \
                 or call this inside a task or loopgroup::run (inside group.block_on spawn works, \
                 spawn_local does not)",
            ),
            RejectReason::NotOnLoop => f.write_str(
                "what is not Send can only be submitted on the thread of its event loop: submit it \
                 inside a task of that loop",
            ),
            // EAGAIN, from a thread start, means that a resource limit is reached.
            RejectReason::ThreadStart(io::ErrorKind::WouldBlock) => f.write_str(
                "the event loop's thread could not be started: a limit on threads or memory is \
                 reached, or thread_stack_size is too large",
            ),
            RejectReason::ThreadStart(kind) => {
                write!(f, "the event loop's thread could not be started: {kind}")
            }
        }
    }
}

impl Error for RejectReason {}

impl RejectReason {
    fn kind(self) -> io::ErrorKind {
        match self {
            // Not `WouldBlock`: an I/O loop would take that for a socket that is not ready.
            RejectReason::QueueFull => io::ErrorKind::ResourceBusy,
            RejectReason::ShutDown => io::ErrorKind::BrokenPipe,
            RejectReason::NoSuchLoop => io::ErrorKind::InvalidInput,
            RejectReason::NoContext | RejectReason::NotOnLoop => io::ErrorKind::Unsupported,
            RejectReason::ThreadStart(kind) => kind,
        }
    }
}

/// A rejected submission, with the value that was rejected.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, RejectReason};
///
/// let group = EventLoopGroup::new(1)?;
/// group.shutdown_now().wait();
/// let rejected = group.try_spawn(async { 42 }).unwrap_err();
/// assert_eq!(rejected.reason(), RejectReason::ShutDown);
/// let future = rejected.into_inner(); // nothing is lost: run it somewhere else
/// assert_eq!(loopgroup::block_on(future), 42);
/// # std::io::Result::Ok(())
/// ```
pub struct Rejected<F> {
    value: F,
    reason: RejectReason,
}

impl<F> Rejected<F> {
    pub(crate) fn new(value: F, reason: RejectReason) -> Rejected<F> {
        Rejected { value, reason }
    }

    /// Returns the reason for the rejection.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::RejectReason;
    ///
    /// let rejected = loopgroup::try_spawn(async {}).unwrap_err(); // not on a loop
    /// assert_eq!(rejected.reason(), RejectReason::NoContext);
    /// ```
    pub fn reason(&self) -> RejectReason {
        self.reason
    }

    /// Returns the value that was rejected.
    ///
    /// # Examples
    ///
    /// ```
    /// let rejected = loopgroup::try_spawn(async { 7 }).unwrap_err();
    /// assert_eq!(loopgroup::block_on(rejected.into_inner()), 7);
    /// ```
    pub fn into_inner(self) -> F {
        self.value
    }
}

impl<F> fmt::Debug for Rejected<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for Rejected<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "submission rejected: {}", self.reason)
    }
}

impl<F> Error for Rejected<F> {}

impl<F> From<Rejected<F>> for io::Error {
    fn from(rejected: Rejected<F>) -> io::Error {
        io::Error::new(rejected.reason.kind(), rejected.reason)
    }
}

/// The reason why a task has no result: it panicked, was cancelled, or was rejected.
///
/// Converted to an [`io::Error`], a cancellation and a panic have the kind `Other`, and a
/// rejection that of its [`RejectReason`].
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(1)?;
/// let error = group.block_on(group.spawn(async { panic!("boom") })).unwrap_err();
/// assert!(error.is_panic());
/// assert_eq!(*error.into_panic().downcast::<&str>().unwrap(), "boom");
/// # std::io::Result::Ok(())
/// ```
// One pointer, and a result of one word stays in registers. As an enum of several fields it was written in
// parts and read at once, and every join waited for that: the bench is W2 of `benches/compare`.
pub struct JoinError(Box<JoinFailure>);

enum JoinFailure {
    Panic(PanicRecord),
    Cancelled,
    Rejected(RejectReason),
}

/// The panic of a task.
pub(crate) struct PanicRecord {
    // A payload is Send but not Sync; the lock makes the error Sync without unsafe code.
    payload: Mutex<Payload>,
    location: Caller,
    name: Option<Cow<'static, str>>,
}

impl PanicRecord {
    pub(crate) fn new(
        payload: Payload,
        location: Caller,
        name: Option<Cow<'static, str>>,
    ) -> PanicRecord {
        PanicRecord {
            payload: Mutex::new(payload),
            location,
            name,
        }
    }

    /// The payload, the place of the spawn and the name of the task.
    pub(crate) fn into_parts(self) -> (Payload, Caller, Option<Cow<'static, str>>) {
        (self.payload.into_inner(), self.location, self.name)
    }

    fn message(&self) -> String {
        message(&**self.payload.lock()).to_owned()
    }
}

impl JoinError {
    pub(crate) fn panic(record: PanicRecord) -> JoinError {
        JoinError(Box::new(JoinFailure::Panic(record)))
    }

    #[cold]
    pub(crate) fn cancelled() -> JoinError {
        JoinError(Box::new(JoinFailure::Cancelled))
    }

    #[cold]
    pub(crate) fn rejected(reason: RejectReason) -> JoinError {
        JoinError(Box::new(JoinFailure::Rejected(reason)))
    }

    /// Returns whether the task panicked, in its poll or in its destructor after that.
    ///
    /// If a cancelled task panics while it is dropped, its handle reports it as cancelled; the panic is
    /// passed to [`Builder::on_panic`](crate::Builder::on_panic) and counted in the report.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let task = group.spawn(async { panic!("boom") });
    /// assert!(group.block_on(task).unwrap_err().is_panic());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_panic(&self) -> bool {
        matches!(*self.0, JoinFailure::Panic(_))
    }

    /// Returns whether the task was accepted and then cancelled, by its handle or by a shutdown.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let task = group.spawn(std::future::pending::<()>());
    /// group.shutdown_now().wait();
    /// assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_cancelled(&self) -> bool {
        matches!(*self.0, JoinFailure::Cancelled)
    }

    /// Returns whether the task was rejected and never accepted.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// group.shutdown_now().wait();
    /// let late = group.spawn(async {}); // does not panic: the handle resolves to an error
    /// assert!(loopgroup::block_on(late).unwrap_err().is_rejected());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_rejected(&self) -> bool {
        matches!(*self.0, JoinFailure::Rejected(_))
    }

    /// Returns why the task was rejected, if it was.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, RejectReason};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let error = group.block_on(group.spawn_on(1, async {})).unwrap_err();
    /// assert_eq!(error.reject_reason(), Some(RejectReason::NoSuchLoop));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn reject_reason(&self) -> Option<RejectReason> {
        match *self.0 {
            JoinFailure::Rejected(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns the payload of the panic, for [`std::panic::resume_unwind`] or a downcast.
    ///
    /// # Panics
    ///
    /// If the task did not panic; see [`JoinError::try_into_panic`].
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let error = group.block_on(group.spawn(async { panic!("{}", 7) })).unwrap_err();
    /// assert_eq!(error.into_panic().downcast_ref::<String>().unwrap(), "7");
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => {
                panic!("the task did not panic ({error}): ask is_panic() before into_panic()")
            }
        }
    }

    /// Returns the payload of the panic, or the error unchanged if the task did not panic.
    ///
    /// # Errors
    ///
    /// The error itself, if it is not a panic.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let error = group.block_on(group.spawn_on(9, async {})).unwrap_err();
    /// match error.try_into_panic() {
    ///     Ok(payload) => std::panic::resume_unwind(payload), // propagate a panic
    ///     Err(error) => assert!(error.is_rejected()),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match *self.0 {
            JoinFailure::Panic(record) => Ok(record.into_parts().0),
            other => Err(JoinError(Box::new(other))),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            JoinFailure::Panic(record) => f
                .debug_struct("JoinError::Panic")
                .field("message", &record.message())
                .field("name", &record.name)
                .field("spawned_at", &format_args!("{}", record.location))
                .finish(),
            JoinFailure::Cancelled => f.write_str("JoinError::Cancelled"),
            JoinFailure::Rejected(reason) => {
                f.debug_tuple("JoinError::Rejected").field(reason).finish()
            }
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            JoinFailure::Panic(record) => {
                f.write_str("task ")?;
                if let Some(name) = &record.name {
                    write!(f, "{name:?} ")?;
                }
                let (location, message) = (record.location, record.message());
                write!(f, "spawned at {location} panicked: {message}")?;
                f.write_str(advice(&message))
            }
            JoinFailure::Cancelled => f.write_str("task was cancelled"),
            JoinFailure::Rejected(reason) => write!(f, "task was rejected: {reason}"),
        }
    }
}

/// Copies the message of a panic, so that it is written with no lock held: the formatter may use the
/// error again.
impl Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> io::Error {
        let kind = match &*error.0 {
            JoinFailure::Rejected(reason) => reason.kind(),
            // Not `Interrupted`: readers of the standard library retry that without a word.
            JoinFailure::Cancelled | JoinFailure::Panic(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
