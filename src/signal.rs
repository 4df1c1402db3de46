//! Signals of the system, as futures: to end a program as its user or its supervisor asks.
//!
//! - A signal is listened for from the call on, not from the first poll: what comes in between is not lost.
//! - From the first call on the signal no longer ends the process by itself, also once every future is gone.
//! - A signal has one handler, however many listen: it sets a flag, and then writes a byte into a socket pair of the
//!   process. Whoever looks first takes the flag, under a lock, and tells everybody who listens by then: a thread that
//!   reads the byte, or a future that is polled or made. Signals that come together, before a poll, are one piece of
//!   news, and one that came before a future was made is none to it.
//! - That thread, `loopgroup-signals`, starts with the first future and stays: a signal belongs to the process, and
//!   outlives every loop and every group, also the one that it ends. So a future may be awaited anywhere.
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
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{pipe, unregister};
use slab::Slab;

use crate::panic::PanicReporter;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, thread};

/// Resolves when the user presses Ctrl-C (`SIGINT`).
///
/// # Errors
///
/// The future fails if the signal cannot be listened for: no descriptor or no thread is to be had. Once it listens, it
/// does not fail; it may be awaited anywhere, also away from a loop and after the end of a group.
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

/// One future that listens.
struct Listening {
    hub: Arc<Hub>,
    /// Its place among the ears.
    key: usize,
}

/// What one future has heard; protected by the lock of the hub.
struct Ear {
    signals: Vec<i32>,
    heard: bool,
    waker: Option<Waker>,
}

/// Who listens in this process, and the end of the pair that handlers write to.
struct Hub {
    bell: UnixStream,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// The signals that have a handler, each with the flag that it sets.
    flags: Vec<(i32, Arc<AtomicBool>)>,
    ears: Slab<Ear>,
}

impl Inside {
    /// Tells everybody who listens of the signals that have come; hands out who is to be woken, with no lock held.
    fn tell(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (signal, flag) in &self.flags {
            // As the handler stores it, before its byte: whoever reads the byte finds the flag.
            if !flag.swap(false, Ordering::SeqCst) {
                continue;
            }
            for (_, ear) in &mut self.ears {
                if ear.signals.contains(signal) {
                    ear.heard = true;
                    wakers.extend(ear.waker.take());
                }
            }
        }
        wakers
    }

    /// Gives a signal its handler, if it has none.
    fn handle(&mut self, signal: i32, bell: &UnixStream) -> io::Result<()> {
        if self.flags.iter().any(|(handled, _)| *handled == signal) {
            return Ok(());
        }
        let set = Arc::new(AtomicBool::new(false));
        let flag = flag::register(signal, Arc::clone(&set))?;
        // After the flag: handlers run what is registered in its order. Non-blocking: signal-hook sees to that.
        let rings = bell
            .try_clone()
            .and_then(|bell| pipe::register(signal, bell));
        if let Err(error) = rings {
            unregister(flag);
            return Err(error);
        }
        self.flags.push((signal, set));
        Ok(())
    }
}

/// Between two looks for signals, should there be no bell to wait for.
const PAUSE: Duration = Duration::from_millis(50);

/// Made by the first future; or by the next one, if it could not be.
static HUB: Mutex<Option<Arc<Hub>>> = Mutex::new(None);

impl Hub {
    fn get() -> io::Result<Arc<Hub>> {
        let mut place = HUB.lock();
        if let Some(hub) = &*place {
            return Ok(Arc::clone(hub));
        }
        let (bell, ringing) = UnixStream::pair()?;
        let hub = Arc::new(Hub {
            bell,
            inside: Mutex::default(),
        });
        let serving = Arc::clone(&hub);
        let thread = thread::Builder::new().name("loopgroup-signals".to_owned());
        let started = thread.spawn(move || serving.serve(&ringing));
        // Not `WouldBlock`, as the system calls it: there is nothing to wait for.
        started.map_err(|error| {
            io::Error::other(format!("cannot start the thread for signals: {error}"))
        })?;
        *place = Some(Arc::clone(&hub));
        Ok(hub)
    }

    /// Wakes whoever has heard something, for as long as the process lives.
    fn serve(&self, mut ringing: &UnixStream) {
        loop {
            match ringing.read(&mut [0; 64]) {
                Ok(_) => self.wake(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The pair is ours and does not fail. Should it, signals are looked for now and then.
                Err(_) => {
                    self.wake();
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    fn wake(&self) {
        let wakers = self.inside.lock().tell();
        PanicReporter::STDERR.wake_all(wakers);
    }
}

impl Signal {
    fn listen(signals: &[i32]) -> Signal {
        Signal(Listening::new(signals))
    }
}

impl Listening {
    fn new(signals: &[i32]) -> io::Result<Listening> {
        let hub = Hub::get()?;
        let mut inside = hub.inside.lock();
        // What has come before is news to those before.
        let wakers = inside.tell();
        let handled = signals
            .iter()
            .try_for_each(|&signal| inside.handle(signal, &hub.bell));
        let key = inside.ears.insert(Ear {
            signals: signals.to_vec(),
            heard: false,
            waker: None,
        });
        drop(inside);
        PanicReporter::STDERR.wake_all(wakers);
        let listening = Listening { hub, key };
        handled.map(|()| listening)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Cloning and dropping wakers is user code: both happen outside the lock.
        let waker = cx.waker().clone();
        let mut inside = self.hub.inside.lock();
        let wakers = inside.tell();
        let ear = &mut inside.ears[self.key];
        let heard = std::mem::take(&mut ear.heard);
        let old = match heard {
            true => ear.waker.take(),
            false => ear.waker.replace(waker),
        };
        drop(inside);
        drop(old);
        PanicReporter::STDERR.wake_all(wakers);
        match heard {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let ear = self.hub.inside.lock().ears.try_remove(self.key);
        drop(ear);
    }
}

impl Future for Signal {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            Ok(listening) => listening.poll(cx).map(Ok),
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
