//! The handles of the crate in `catch_unwind`: which of them are `UnwindSafe` and `RefUnwindSafe`, and why.
//!
//! - A handle is a reference to state behind locks and atomics. No user code runs with a lock held, and every
//!   step of the crate leaves its state whole before user code is called: a panic that unwinds past a handle
//!   leaves nothing behind that a later call could see broken.
//! - The compiler cannot see that, because the state holds user code (choosers, factories, handlers for
//!   panics) as trait objects. That code is called through `contain`; after a panic it is called again, which
//!   its documentation says.
//! - Where a handle gives out a value of the user (`Registered::get_ref`), the value decides. A
//!   [`LoopBound`] does not: a visit that panics leaves the value as it is, and says so. The output of a task
//!   is handed out once, by value, as with `std::thread::JoinHandle`.

use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::blocking::BlockingGroup;
use crate::event_loop::bound::LoopBound;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::loop_thread::LoopThread;
use crate::event_loop::scheduled::Scheduled;
use crate::group::handle::EventLoopGroup;
use crate::join_set::JoinSet;
use crate::net::ServerHandle;
use crate::report::{LoopReport, TerminationReport};
use crate::shutdown_requested::ShutdownRequested;
use crate::task::abort::AbortHandle;
use crate::task::join::JoinHandle;
use crate::termination::TerminationFuture;

macro_rules! unwind_safe {
    ($($type:ty),*) => {$(
        impl UnwindSafe for $type {}
        impl RefUnwindSafe for $type {}
    )*};
}

unwind_safe!(
    AbortHandle,
    EventLoopGroup,
    EventLoop,
    BlockingGroup,
    LoopThread,
    ServerHandle,
    ShutdownRequested,
    TerminationFuture,
    TerminationReport,
    LoopReport
);

impl<T> UnwindSafe for JoinHandle<T> {}
impl<T> RefUnwindSafe for JoinHandle<T> {}
impl<T> UnwindSafe for JoinSet<T> {}
impl<T> RefUnwindSafe for JoinSet<T> {}
impl<T> UnwindSafe for Scheduled<T> {}
impl<T> RefUnwindSafe for Scheduled<T> {}
impl<T> UnwindSafe for LoopBound<T> {}
impl<T> RefUnwindSafe for LoopBound<T> {}
