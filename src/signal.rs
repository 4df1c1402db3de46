//! Signals of the system, as futures: to end a program as its user or its supervisor asks.
//!
//! - A signal is listened for from the call on, not from the first poll: what comes in between is not lost.
//! - From the first call on the signal no longer ends the process by itself, also once every future is gone.
//! - The signal handler writes a byte into a socket pair, and the loop of whoever awaits it reads it there: any
//!   number of futures, on any loops, each with a pair of its own.
//!
//! # Examples
//!
//! ```no_run
//! use loopgroup::{EventLoopGroup, net::Server, signal};
//! use std::time::Duration;
//!
//! let group = EventLoopGroup::new(2)?;
//! let server = Server::bind("127.0.0.1:7777")?
//!     .workers(&group)
//!     .serve(|stream, _| async move {
//!         let _ = futures::io::copy(&stream, &mut &stream).await;
//!     })?;
//! group.block_on(signal::shutdown())?; // until Ctrl-C, or a SIGTERM
//! server.stop();
//! println!("{}", group.drain(Duration::from_secs(5)).wait());
//! # std::io::Result::Ok(())
//! ```

use std::fmt;
use std::future::Future;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

use crate::reactor::registered::{Registered, Short};
use crate::reactor::source::Direction;

/// Resolves when the user presses Ctrl-C (`SIGINT`).
///
/// # Errors
///
/// The future fails if the signal cannot be listened for, or if it is awaited where there is no loop: it needs
/// a task, `loopgroup::run` or `group.block_on`.
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
    Signal::listen(&[SIGINT])
}

/// Resolves when a supervisor asks the process to end (`SIGTERM`).
///
/// Errors as [`ctrl_c`].
///
/// # Examples
///
/// ```no_run
/// let group = loopgroup::EventLoopGroup::new(1)?;
/// group.block_on(loopgroup::signal::terminate())?; // what a supervisor sends
/// # std::io::Result::Ok(())
/// ```
pub fn terminate() -> Signal {
    Signal::listen(&[SIGTERM])
}

/// Resolves when somebody asks the process to end: the first of [`ctrl_c`] and [`terminate`].
///
/// Errors as [`ctrl_c`].
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
    Signal::listen(&[SIGINT, SIGTERM])
}

/// Resolves when its signal has come; awaited again, by reference, when it comes again.
///
/// # Cancel safety
///
/// Cancel safe by reference: a signal that came is seen by the next poll.
///
/// # Examples
///
/// ```no_run
/// use loopgroup::{EventLoopGroup, signal};
///
/// let group = EventLoopGroup::new(1)?;
/// let mut asked = signal::ctrl_c();
/// group.block_on(&mut asked)?; // the first: please
/// let end = group.drain(std::time::Duration::from_secs(30));
/// group.block_on(async { futures::future::select(end, asked).await });
/// group.shutdown_now().wait(); // the second: now
/// # std::io::Result::Ok(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Signal(io::Result<Listening>);

/// The end of the pair that is read, and the signals whose handlers write to the other.
struct Listening {
    ours: Registered<UnixStream>,
    ids: Vec<SigId>,
}

impl Signal {
    fn listen(signals: &[i32]) -> Signal {
        Signal(Listening::new(signals))
    }
}

impl Listening {
    fn new(signals: &[i32]) -> io::Result<Listening> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut listening = Listening {
            ours: Registered::new(ours)?,
            ids: Vec::new(),
        };
        for &signal in signals {
            // Non-blocking on its side too: signal-hook sees to that.
            listening
                .ids
                .push(pipe::register(signal, theirs.try_clone()?)?);
        }
        Ok(listening)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // All at once: signals that came together are one piece of news.
        let read = |mut stream: &UnixStream| stream.read(&mut [0; 64]).map(drop);
        self.ours.poll_io(Direction::Read, cx, read, |_| Short::No)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            unregister(id);
        }
    }
}

impl Future for Signal {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            Ok(listening) => listening.poll(cx),
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
