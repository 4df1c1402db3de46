//! hyper's runtime traits: `Read` and `Write` for our streams, executors, and a timer.
//!
//! - Streams need no wrapper; reads go through the buffer of `compat::streams`.
//! - hyper's `Executor` cannot report a rejection: a rejected future is dropped, and its loop counts it.
//! - A timer is armed on the loop that polls it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{self, Read, ReadBufCursor, Write};

use crate::compat::streams::{on_streams, poll_read_by_copy};
use crate::event_loop::handle::EventLoop;
use crate::group::handle::EventLoopGroup;
use crate::time::{self, Sleep};

/// Executes hyper's futures on the current loop; they need not be `Send`.
///
/// # Panics
///
/// If the thread is not a loop, like [`spawn_local`](crate::spawn_local).
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
/// use hyper::rt::Executor;
/// use loopgroup::compat::hyper::LocalExecutor;
///
/// loopgroup::run(async {
///     let (done, wait) = futures::channel::oneshot::channel();
///     let local = Rc::new(7);
///     LocalExecutor.execute(async move { done.send(*local).unwrap() });
///     assert_eq!(wait.await, Ok(7));
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalExecutor;

impl<F> rt::Executor<F> for LocalExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    #[track_caller]
    fn execute(&self, future: F) {
        drop(crate::spawn_local(future));
    }
}

impl<F> rt::Executor<F> for EventLoop
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn execute(&self, future: F) {
        drop(self.spawn(future));
    }
}

impl<F> rt::Executor<F> for EventLoopGroup
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[track_caller]
    fn execute(&self, future: F) {
        drop(self.spawn(future));
    }
}

/// hyper's timer, backed by the timers of the loop that polls: real time, or the virtual time of a test
/// loop.
///
/// # Examples
///
/// ```
/// use hyper::rt::Timer as _;
/// use loopgroup::compat::hyper::Timer;
/// use std::time::Duration;
///
/// loopgroup::run(async {
///     let start = Timer.now();
///     Timer.sleep(Duration::from_millis(2)).await;
///     assert!(Timer.now() - start >= Duration::from_millis(2));
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(time::sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(time::sleep_until(deadline))
    }

    fn now(&self) -> Instant {
        time::now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(ours) => ours.get_mut().reset(deadline),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

impl rt::Sleep for Sleep {}

fn poll_read(
    io: Pin<&mut impl futures::io::AsyncRead>,
    cx: &mut Context<'_>,
    mut buf: ReadBufCursor<'_>,
) -> Poll<io::Result<()>> {
    let room = buf.remaining();
    poll_read_by_copy(io, cx, room, |bytes| buf.put_slice(bytes))
}

on_streams!(Read, ReadBufCursor<'_>, Write);
