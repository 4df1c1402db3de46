//! One fault each, by name, for the sanitizers to find; `none` has none.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("use-after-free") => use_after_free(),
        Some("race") => race(),
        Some("uninitialised") => uninitialised(),
        Some("leak") => leak(),
        Some("none") => none(),
        other => panic!("no such fault: {other:?}"),
    }
}

/// What an executor shares with the wakers of its tasks.
struct State {
    queue: Mutex<Vec<u32>>,
    awake: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Borrowed(*const State);
// SAFETY: none. That the state may be gone is the fault.
unsafe impl Send for Borrowed {}

impl Borrowed {
    fn get(&self) -> &State {
        // SAFETY: none, as above.
        unsafe { &*self.0 }
    }
}

/// As in async-executor 1.14.0: a wake publishes the task, then touches the executor once more; whoever runs the
/// task drops the executor in between.
fn use_after_free() {
    static RAN: Barrier = Barrier::new(2);
    let state = Box::new(State {
        queue: Mutex::default(),
        awake: AtomicUsize::new(0),
    });
    let borrowed = Borrowed(&*state);
    let waking = thread::spawn(move || {
        borrowed.get().queue.lock().unwrap().push(1);
        RAN.wait();
        borrowed.get().awake.fetch_add(1, Ordering::SeqCst);
    });
    while state.queue.lock().unwrap().pop().is_none() {
        thread::yield_now();
    }
    drop(state);
    RAN.wait();
    waking.join().unwrap();
}

fn race() {
    static mut COUNT: usize = 0;
    // SAFETY: none. That nothing orders the two threads is the fault.
    let count = || (0..1000).for_each(|_| unsafe { COUNT += 1 });
    let other = thread::spawn(count);
    count();
    other.join().unwrap();
}

fn uninitialised() {
    let bytes: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(64);
    // SAFETY: none. That nobody wrote to it is the fault.
    let byte = unsafe { black_box(bytes)[7].assume_init() };
    if byte == 7 {
        println!("seven");
    }
}

fn leak() {
    drop(thread::spawn(|| std::mem::forget(black_box(vec![7_u8; 4321]))).join());
}

/// The same things, done as they should be.
fn none() {
    let (ready, count) = (Barrier::new(2), Mutex::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                ready.wait();
                *count.lock().unwrap() += vec![7_u8; 4321].len();
            });
        }
    });
    assert_eq!(*count.lock().unwrap(), 2 * 4321);
}
