//! A value that is watched by tasks of the same loop.
//!
//! Not tokio's, which wakes its receivers in a random order: here they are woken in the order in which they
//! began to wait, so a simulation can repeat a run.

mod receiver;
mod sender;

use std::cell::{Cell, Ref, RefCell};

use event_listener::Event;
use openraft_rt::watch::{Watch, WatchSender};

pub use receiver::Receiver;
pub use sender::Sender;

/// The watch channels of [`LoopRuntime`](super::LoopRuntime).
#[derive(Debug)]
pub struct LoopWatch;

#[derive(Debug)]
pub struct Shared<T> {
    value: RefCell<T>,
    /// How many times the value has changed.
    version: Cell<u64>,
    /// Notified when the version grows, and when a sender is dropped.
    changed: Event,
}

impl Watch for LoopWatch {
    type Sender<T> = Sender<T>;
    type Receiver<T> = Receiver<T>;
    type Ref<'a, T: 'a> = Ref<'a, T>;

    fn channel<T>(init: T) -> (Sender<T>, Receiver<T>) {
        let sender = Sender::new(Shared {
            value: RefCell::new(init),
            version: Cell::new(0),
            changed: Event::new(),
        });
        let receiver = sender.subscribe();
        (sender, receiver)
    }
}
