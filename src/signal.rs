//! Signals of the system, as futures: to end a program as its user or its supervisor asks.
//!
//! - A signal is listened for from the call on, not from the first poll: what comes in between is not lost.
//! - From the first call on the signal no longer ends the process by itself, also once every future is gone.
//! - The handler notes the signal in a flag of each future that listens: signals that come together, before a poll, are
//!   one piece of news. Then it writes a byte into a socket pair of the process, which a thread reads that wakes
//!   the futures with a flag set. In that order: whoever is woken finds its flag.
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

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};
use signal_hook::{SigId, flag};
use slab::Slab;

use crate::panic::{PanicSite, TaskPanic, contain, discard, report};
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

/// One future that listens, and what is to be undone at its end.
struct Listening {
    hub: Arc<Hub>,
    ear: Arc<Ear>,
    key: usize,
    ids: Vec<SigId>,
}

/// What the handlers, the thread and one future share.
struct Ear {
    /// Set by the handlers, taken by the future.
    heard: Arc<AtomicBool>,
    waker: Mutex<Option<Waker>>,
}

/// Who listens in this process, and the end of the pair that handlers write to.
struct Hub {
    bell: UnixStream,
    ears: Mutex<Slab<Arc<Ear>>>,
}

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
            ears: Mutex::new(Slab::new()),
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
                Err(error) => panic!("the socket pair of the signals is ours, and fails: {error}"),
            }
        }
    }

    fn wake(&self) {
        let ears = self.ears.lock();
        let heard = ears.iter().filter(|(_, ear)| ear.has_heard());
        let wakers: Vec<_> = heard
            .filter_map(|(_, ear)| ear.waker.lock().take())
            .collect();
        drop(ears);
        for waker in wakers {
            if let Err(payload) = contain(|| waker.wake()) {
                let panic = TaskPanic {
                    site: PanicSite::Waker,
                    payload: &*payload,
                    location: None,
                    index: None,
                };
                report(None, &panic);
                discard(payload);
            }
        }
    }
}

impl Ear {
    fn has_heard(&self) -> bool {
        self.heard.load(Ordering::SeqCst)
    }

    /// Takes the news, if there are.
    fn take(&self) -> Poll<()> {
        // As the handler stores it: before its byte, which the thread reads before it looks for a waker.
        if !self.heard.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let waker = self.waker.lock().take();
        drop(waker);
        Poll::Ready(())
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.take().is_ready() {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        let old = self.waker.lock().replace(waker);
        drop(old);
        // Stored first, looked at again after: the thread may have looked for a waker in between.
        self.take()
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
        let ear = Arc::new(Ear {
            heard: Arc::default(),
            waker: Mutex::new(None),
        });
        let key = hub.ears.lock().insert(Arc::clone(&ear));
        let mut listening = Listening {
            hub,
            ear,
            key,
            ids: Vec::new(),
        };
        for &signal in signals {
            let flag = flag::register(signal, Arc::clone(&listening.ear.heard))?;
            listening.ids.push(flag);
            // After the flag: handlers run what is registered in its order. Non-blocking: signal-hook sees to that.
            let bell = pipe::register(signal, listening.hub.bell.try_clone()?)?;
            listening.ids.push(bell);
        }
        Ok(listening)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            unregister(id);
        }
        let ear = self.hub.ears.lock().try_remove(self.key);
        drop(ear);
        let waker = self.ear.waker.lock().take();
        drop(waker);
    }
}

impl Future for Signal {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            Ok(listening) => listening.ear.poll(cx).map(Ok),
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
