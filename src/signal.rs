//! Signals as futures, to shut a program down on request of its user or supervisor.
//!
//! - A future listens from its creation, not from its first poll: signals in between are not lost.
//! - From the first call on, the signal no longer terminates the process by default, even after every
//!   future was dropped.
//! - A signal has one handler, however many futures listen. It sets a flag, then writes a byte to a
//!   socket pair of the process. The first thread to see the flag clears it, under a lock, and notifies
//!   every future that listens by then: that is a thread that reads the bytes, or a thread that polls
//!   or creates a future. Several signals before a poll are reported once, and a signal from before a
//!   future was created is not reported to it.
//! - The thread that reads the bytes, `loopgroup-signals`, starts with the first future and never ends:
//!   signals belong to the process, not to a loop or group. So a future may be awaited anywhere, also
//!   after the end of the group that it shut down.
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
    Signal::listen(&[SIGINT])
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
    Signal::listen(&[SIGTERM])
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
    Signal::listen(&[SIGINT, SIGTERM])
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

/// The registration of one future with the hub.
struct Subscription {
    hub: Arc<Hub>,
    /// The key of its [`Subscriber`].
    key: usize,
}

/// The hub's record of one future; protected by the lock of the hub.
struct Subscriber {
    signals: Vec<i32>,
    /// A signal was received and not yet returned by a poll.
    notified: bool,
    waker: Option<Waker>,
}

/// The futures that listen in this process, and the end of the socket pair that handlers write to.
struct Hub {
    write_end: UnixStream,
    subscribers: Mutex<Subscribers>,
}

#[derive(Default)]
struct Subscribers {
    /// The signals that have a handler, each with the flag that it sets.
    flags: Vec<(i32, Arc<AtomicBool>)>,
    entries: Slab<Subscriber>,
}

impl Subscribers {
    /// Notifies the subscribers of all received signals; returns the wakers to wake with no lock held.
    fn notify(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (signal, flag) in &self.flags {
            // The handler stores the flag before it writes its byte: a thread that reads the byte sees
            // it.
            if !flag.swap(false, Ordering::SeqCst) {
                continue;
            }
            for (_, subscriber) in &mut self.entries {
                if subscriber.signals.contains(signal) {
                    subscriber.notified = true;
                    wakers.extend(subscriber.waker.take());
                }
            }
        }
        wakers
    }

    /// Installs the handler of a signal, if it has none yet.
    fn install_handler(&mut self, signal: i32, write_end: &UnixStream) -> io::Result<()> {
        if self.flags.iter().any(|(handled, _)| *handled == signal) {
            return Ok(());
        }
        let received = Arc::new(AtomicBool::new(false));
        let flag = flag::register(signal, Arc::clone(&received))?;
        // After the flag: actions run in the order of registration. signal-hook makes the write
        // non-blocking.
        let write = write_end
            .try_clone()
            .and_then(|write_end| pipe::register(signal, write_end));
        if let Err(error) = write {
            unregister(flag);
            return Err(error);
        }
        self.flags.push((signal, received));
        Ok(())
    }
}

/// How often to check for signals if the socket pair cannot be read.
const FALLBACK_INTERVAL: Duration = Duration::from_millis(50);

/// Created by the first future, or by a later one if that failed.
static HUB: Mutex<Option<Arc<Hub>>> = Mutex::new(None);

impl Hub {
    fn get() -> io::Result<Arc<Hub>> {
        let mut global = HUB.lock();
        if let Some(hub) = &*global {
            return Ok(Arc::clone(hub));
        }
        let (write_end, read_end) = UnixStream::pair()?;
        let hub = Arc::new(Hub {
            write_end,
            subscribers: Mutex::default(),
        });
        let thread_hub = Arc::clone(&hub);
        let thread = thread::Builder::new().name("loopgroup-signals".to_owned());
        let started = thread.spawn(move || thread_hub.run(&read_end));
        // The system may call it `WouldBlock`, but there is nothing that the caller could wait for.
        started.map_err(|error| {
            io::Error::other(format!("cannot start the thread for signals: {error}"))
        })?;
        *global = Some(Arc::clone(&hub));
        Ok(hub)
    }

    /// The main function of the signal thread: wakes notified futures, for the life of the process.
    fn run(&self, mut read_end: &UnixStream) {
        loop {
            match read_end.read(&mut [0; 64]) {
                Ok(_) => self.wake(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Not expected, since both ends of the pair stay open. If it happens, poll for signals.
                Err(_) => {
                    self.wake();
                    thread::sleep(FALLBACK_INTERVAL);
                }
            }
        }
    }

    fn wake(&self) {
        let wakers = self.subscribers.lock().notify();
        PanicReporter::STDERR.wake_all(wakers);
    }
}

impl Signal {
    fn listen(signals: &[i32]) -> Signal {
        Signal(Subscription::new(signals))
    }
}

impl Subscription {
    fn new(signals: &[i32]) -> io::Result<Subscription> {
        let hub = Hub::get()?;
        let mut subscribers = hub.subscribers.lock();
        // Before the new entry is inserted: earlier signals are for earlier futures only.
        let wakers = subscribers.notify();
        let installed = signals
            .iter()
            .try_for_each(|&signal| subscribers.install_handler(signal, &hub.write_end));
        let key = subscribers.entries.insert(Subscriber {
            signals: signals.to_vec(),
            notified: false,
            waker: None,
        });
        drop(subscribers);
        PanicReporter::STDERR.wake_all(wakers);
        let subscription = Subscription { hub, key };
        installed.map(|()| subscription)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Cloning and dropping wakers is user code: both happen outside the lock.
        let waker = cx.waker().clone();
        let mut subscribers = self.hub.subscribers.lock();
        let wakers = subscribers.notify();
        let own = &mut subscribers.entries[self.key];
        let notified = std::mem::take(&mut own.notified);
        let old = match notified {
            true => own.waker.take(),
            false => own.waker.replace(waker),
        };
        drop(subscribers);
        drop(old);
        PanicReporter::STDERR.wake_all(wakers);
        match notified {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscribers = self.hub.subscribers.lock();
        let removed = subscribers.entries.try_remove(self.key);
        // The waker is user code: it is dropped outside the lock.
        drop(subscribers);
        drop(removed);
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
