//! The process' signals, and the futures and streams that listen for them.
//!
//! - A signal has one handler, however many listen. It sets a flag, then writes a byte to a socket pair of
//!   the process. The first thread to see the flag clears it, under a lock, and notifies every subscriber
//!   that listens by then: that is a thread that reads the bytes, or a thread that polls or creates a
//!   subscription.
//! - The thread that reads the bytes, `loopgroup-signals`, starts with the first subscription and never ends:
//!   signals belong to the process, not to a loop or group.
//! - A handler stays installed when its last subscriber is gone. To remove it would not restore what the
//!   signal did before.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use signal_hook::flag;
use signal_hook::low_level::{pipe, unregister};
use slab::Slab;

use crate::noted::{self, Noted};
use crate::panic::PanicReporter;
use crate::signal::kind::SignalKind;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, thread};

/// The registration of one future or stream with the hub.
pub(super) struct Subscription {
    hub: Arc<Hub>,
    /// The key of its [`Subscriber`].
    key: usize,
}

/// The hub's record of one subscription; protected by the lock of the hub.
struct Subscriber {
    signals: Vec<SignalKind>,
    /// A signal was received and not yet returned by a poll.
    notified: bool,
    waker: Option<Waker>,
}

/// The subscriptions of this process, and the end of the socket pair that handlers write to.
struct Hub {
    write_end: UnixStream,
    subscribers: Mutex<Subscribers>,
}

#[derive(Default)]
struct Subscribers {
    /// The signals that have a handler, each with the flag that it sets.
    flags: Vec<(SignalKind, Arc<AtomicBool>)>,
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
    fn install_handler(&mut self, signal: SignalKind, write_end: &UnixStream) -> io::Result<()> {
        if self.flags.iter().any(|(handled, _)| *handled == signal) {
            return Ok(());
        }
        let received = Arc::new(AtomicBool::new(false));
        let flag = flag::register(signal.as_raw(), Arc::clone(&received)).map_err(|error| {
            let text = format!("no handler can be installed for {signal}: {error}");
            io::Error::new(error.kind(), text)
        })?;
        // After the flag: actions run in the order of registration. signal-hook makes the write
        // non-blocking.
        let write = write_end
            .try_clone()
            .and_then(|write_end| pipe::register(signal.as_raw(), write_end));
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

/// Created by the first subscription, or by a later one if that failed.
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

    /// The main function of the signal thread: wakes notified subscribers, for the life of the process.
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

impl Subscription {
    pub(super) fn new(signals: &[SignalKind]) -> io::Result<Subscription> {
        // First: a wrong signal starts no thread.
        signals.iter().try_for_each(|signal| signal.check())?;
        let hub = Hub::get()?;
        let mut subscribers = hub.subscribers.lock();
        // Before the new entry is inserted: earlier signals are for earlier subscribers only.
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

    /// Ready once for all signals since the last time that it was.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
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
            false => {
                noted::waits_for(|| Noted::Event("a signal"));
                Poll::Pending
            }
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
