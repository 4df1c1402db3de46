//! Signals as futures and streams: to shut a program down on request of its user or supervisor, to read
//! its configuration again on `SIGHUP`, and for any other signal.
//!
//! - A future or stream listens from its creation, not from its first poll: signals in between are not lost.
//! - From the first call on, the signal does nothing else any more, even after every future and stream was
//!   dropped: `SIGINT` and `SIGHUP` no longer terminate the process.
//! - Every future and stream that listens sees the signal. Several signals before a poll are reported once,
//!   and a signal from before a future was created is not reported to it.
//! - They wait on a thread of the process, not on a loop: they may be awaited anywhere, also after the end of
//!   the group that a signal shut down.
//!
//! | to wait for | call |
//! |---|---|
//! | Ctrl-C or SIGTERM, to shut down | [`shutdown`] |
//! | one of them | [`ctrl_c`], [`terminate`] |
//! | any other signal | [`on`] |
//!
//! # Examples
//!
//! ```no_run
//! use loopgroup::{EventLoopGroup, net::Server, signal};
//! use std::time::Duration;
//!
//! let group = EventLoopGroup::new(2)?;
//! let server = Server::new("127.0.0.1:7777")?
//!     .workers(&group)
//!     .serve(|stream, _| async move {
//!         let _ = futures::io::copy(&stream, &mut &stream).await;
//!     })?;
//! group.block_on(signal::shutdown())?; // until Ctrl-C or SIGTERM
//! server.stop();
//! println!("{}", group.drain(Duration::from_secs(5)).wait());
//! # std::io::Result::Ok(())
//! ```

mod hub;
mod kind;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;

use crate::signal::hub::Subscription;

pub use kind::SignalKind;

/// Resolves when the user presses Ctrl-C (`SIGINT`).
///
/// # Errors
///
/// The future fails if no handler can be installed for lack of a descriptor or a thread. Once it
/// listens, it does not fail. It may be awaited anywhere, also outside of a loop and after the end of a
/// group.
///
/// # Examples
///
/// ```no_run
/// loopgroup::run(async {
///     loopgroup::signal::ctrl_c().await?;
///     println!("interrupted");
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub fn ctrl_c() -> Signal {
    Signal::listen(&[SignalKind::INTERRUPT])
}

/// Resolves when a supervisor requests termination (`SIGTERM`).
///
/// Fails like [`ctrl_c`].
///
/// # Examples
///
/// ```no_run
/// let group = loopgroup::EventLoopGroup::new(1)?;
/// group.block_on(loopgroup::signal::terminate())?; // sent by a supervisor
/// # std::io::Result::Ok(())
/// ```
pub fn terminate() -> Signal {
    Signal::listen(&[SignalKind::TERMINATE])
}

/// Resolves when the process is asked to end: the first of [`ctrl_c`] and [`terminate`].
///
/// Fails like [`ctrl_c`].
///
/// # Examples
///
/// ```no_run
/// let group = loopgroup::EventLoopGroup::new(1)?;
/// group.block_on(loopgroup::signal::shutdown())?;
/// println!("{}", group.drain(std::time::Duration::from_secs(5)).wait());
/// # std::io::Result::Ok(())
/// ```
pub fn shutdown() -> Signal {
    Signal::listen(&[SignalKind::INTERRUPT, SignalKind::TERMINATE])
}

/// Listens for a signal, by its kind or its number, from this call on.
///
/// # Errors
///
/// `InvalidInput` if there is no such signal, or if it cannot be handled: `SIGKILL` and `SIGSTOP`, which the
/// system does not let a process handle, and `SIGSEGV`, `SIGBUS`, `SIGFPE` and `SIGILL`, which report faults
/// of the program. The message names the signal. Any other error is a lack of descriptors or threads.
///
/// # Examples
///
/// ```no_run
/// use loopgroup::{EventLoopGroup, signal::{self, SignalKind}};
///
/// let group = EventLoopGroup::new(1)?;
/// let mut hangups = signal::on(SignalKind::HANGUP)?; // or signal::on(libc::SIGHUP)
/// group.spawn(async move {
///     loop {
///         hangups.recv().await;
///         println!("reading the configuration again");
///     }
/// });
/// # std::io::Result::Ok(())
/// ```
pub fn on(signal: impl Into<SignalKind>) -> io::Result<Signals> {
    let kind = signal.into();
    Ok(Signals {
        subscription: Subscription::new(&[kind])?,
        kind,
    })
}

/// The stream of [`on`]: an item whenever its signal was received. It never ends.
///
/// Signals are not counted. The stream is ready once for all signals since it was last ready, as the system
/// itself merges signals that are sent faster than they are handled: on an item, look at all there is to do.
/// Several streams and futures for the same signal each see it.
///
/// # Cancel safety
///
/// `recv` and `next` are cancel safe: a signal is consumed only when they are ready. Dropping the stream
/// stops listening; the signal does not get its default effect back.
///
/// # Examples
///
/// ```
/// use futures::StreamExt;
/// use loopgroup::signal::{self, SignalKind};
///
/// let mut window = signal::on(SignalKind::WINDOW_CHANGE)?;
/// assert_eq!(window.kind(), SignalKind::WINDOW_CHANGE);
/// # std::process::Command::new("kill").arg("-WINCH").arg(std::process::id().to_string()).status()?;
/// loopgroup::block_on(window.next()); // or window.recv()
/// # std::io::Result::Ok(())
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct Signals {
    subscription: Subscription,
    kind: SignalKind,
}

impl Signals {
    /// Waits until the signal is received.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use loopgroup::signal::{self, SignalKind};
    ///
    /// let mut asked = signal::on(SignalKind::USER_DEFINED1)?;
    /// loopgroup::block_on(asked.recv());
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn recv(&mut self) {
        poll_fn(|cx| self.poll_recv(cx)).await;
    }

    /// Polls for the signal.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.subscription.poll(cx)
    }

    /// Returns the signal that it listens for.
    pub fn kind(&self) -> SignalKind {
        self.kind
    }
}

impl Stream for Signals {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.poll_recv(cx).map(Some)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signals").field(&self.kind).finish()
    }
}

/// Resolves when its signal is received; awaited again, by reference, when it is received again.
///
/// # Cancel safety
///
/// Cancel safe by reference: the next poll sees a signal that was received in the meantime.
///
/// # Examples
///
/// ```no_run
/// use loopgroup::{EventLoopGroup, signal};
///
/// let group = EventLoopGroup::new(1)?;
/// let mut interrupted = signal::ctrl_c();
/// group.block_on(&mut interrupted)?; // the first: a graceful shutdown
/// let end = group.drain(std::time::Duration::from_secs(30));
/// group.block_on(async { futures::future::select(end, interrupted).await });
/// group.shutdown_now().wait(); // the second: an immediate one
/// # std::io::Result::Ok(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Signal(io::Result<Subscription>);

impl Signal {
    fn listen(signals: &[SignalKind]) -> Signal {
        Signal(Subscription::new(signals))
    }
}

impl Future for Signal {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            Ok(subscription) => subscription.poll(cx).map(Ok),
            Err(error) => Poll::Ready(Err(io::Error::new(error.kind(), error.to_string()))),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.as_ref().map(|_| "listening");
        f.debug_tuple("Signal").field(&state).finish()
    }
}
