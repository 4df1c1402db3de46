//! Values and futures that record what happens to them.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};

/// What happened to a probed future: how often, and on which threads.
#[derive(Debug, Default)]
pub struct Log {
    polls: Mutex<Vec<ThreadId>>,
    drops: Mutex<Vec<ThreadId>>,
}

impl Log {
    pub fn new() -> Arc<Log> {
        Arc::default()
    }

    pub fn polls(&self) -> usize {
        self.polls.lock().unwrap().len()
    }

    pub fn drops(&self) -> usize {
        self.drops.lock().unwrap().len()
    }

    /// Every poll and the one drop happened on `home`.
    #[track_caller]
    pub fn assert_home(&self, home: ThreadId) {
        assert!(
            self.polls.lock().unwrap().iter().all(|&id| id == home),
            "polled away from home"
        );
        assert_eq!(*self.drops.lock().unwrap(), [home], "dropped once, at home");
    }
}

/// A future that writes down where it is polled and dropped. Not `Unpin`-dependent: it boxes.
pub struct Probe<F> {
    future: Pin<Box<F>>,
    log: Arc<Log>,
}

impl<F: Future> Probe<F> {
    pub fn new(log: &Arc<Log>, future: F) -> Probe<F> {
        Probe {
            future: Box::pin(future),
            log: Arc::clone(log),
        }
    }
}

impl<F: Future> Future for Probe<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.log.polls.lock().unwrap().push(thread::current().id());
        self.future.as_mut().poll(cx)
    }
}

impl<F> Drop for Probe<F> {
    fn drop(&mut self) {
        self.log.drops.lock().unwrap().push(thread::current().id());
    }
}

/// Counts how often it was dropped, and where last.
#[derive(Clone, Debug, Default)]
pub struct DropCount(Arc<(AtomicUsize, Mutex<Option<ThreadId>>)>);

impl DropCount {
    pub fn new() -> DropCount {
        DropCount::default()
    }

    pub fn get(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    pub fn thread(&self) -> Option<ThreadId> {
        *self.0.1.lock().unwrap()
    }

    /// A value whose drop is counted.
    pub fn guard(&self) -> CountOnDrop {
        CountOnDrop(self.clone())
    }
}

#[derive(Debug)]
pub struct CountOnDrop(DropCount);

impl Drop for CountOnDrop {
    fn drop(&mut self) {
        // The thread first: who sees the count may ask for it.
        *self.0.0.1.lock().unwrap() = Some(thread::current().id());
        self.0.0.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Calls a closure when it is dropped.
pub struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub fn new(call: F) -> OnDrop<F> {
        OnDrop(Some(call))
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// A waker that counts its wakes.
#[derive(Debug, Default)]
pub struct WakeCount(AtomicUsize);

impl WakeCount {
    pub fn new() -> Arc<WakeCount> {
        Arc::default()
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that is polled by hand, and how often it was woken.
pub struct Waiting<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    wakes: Arc<WakeCount>,
}

impl<'a, T> Waiting<'a, T> {
    /// Polls the future once; it has to be pending.
    #[track_caller]
    pub fn new(future: impl Future<Output = T> + 'a) -> Waiting<'a, T> {
        let mut waiting = Waiting {
            future: Box::pin(future),
            wakes: WakeCount::new(),
        };
        assert!(waiting.poll().is_pending(), "there is nothing yet");
        waiting
    }

    pub fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub fn wakes(&self) -> usize {
        self.wakes.get()
    }

    /// Lets the loop turn until this future is woken.
    pub async fn woken(&self) {
        while self.wakes() == 0 {
            loopgroup::yield_now().await;
        }
    }
}

/// Polls a future once, with a waker that does nothing.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A future that wakes itself for ever.
pub async fn restless() {
    loop {
        loopgroup::yield_now().await;
    }
}

/// The message that a call panics with.
#[track_caller]
pub fn panic_of<R>(call: impl FnOnce() -> R) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else {
        panic!("it did not panic")
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
    }
}

/// Panics without a line of the panic hook.
pub fn blow_up() -> ! {
    resume_unwind(Box::new("deliberate"))
}

/// Drops a value whose destructor may panic.
pub fn discard<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
