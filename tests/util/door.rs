//! A door that opens once.

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};

/// A door that is shut until `open`: blocking for threads, awaitable for tasks.
#[derive(Clone, Debug, Default)]
pub struct Door(Arc<(Mutex<DoorState>, Condvar)>);

#[derive(Debug, Default)]
struct DoorState {
    open: bool,
    wakers: Vec<Waker>,
}

impl Door {
    pub fn new() -> Door {
        Door::default()
    }

    pub fn open(&self) {
        let wakers = {
            let mut state = self.0.0.lock().unwrap();
            state.open = true;
            std::mem::take(&mut state.wakers)
        };
        self.0.1.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    pub fn is_open(&self) -> bool {
        self.0.0.lock().unwrap().open
    }

    /// Blocks the thread.
    pub fn pass(&self) {
        let mut state = self.0.0.lock().unwrap();
        while !state.open {
            state = self.0.1.wait(state).unwrap();
        }
    }

    /// How many tasks wait at the door.
    pub fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().wakers.len()
    }

    /// Awaits the opening.
    pub fn opened(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let door = self.clone();
        std::future::poll_fn(move |cx| {
            let mut state = door.0.0.lock().unwrap();
            if state.open {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
    }
}
