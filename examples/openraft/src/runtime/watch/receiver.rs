//! Who watches.

use std::cell::Ref;
use std::rc::{Rc, Weak};

use openraft_rt::watch::{RecvError, WatchReceiver};

use super::{LoopWatch, Shared};

#[derive(Debug)]
pub struct Receiver<T> {
    pub(super) shared: Rc<Shared<T>>,
    pub(super) senders: Weak<()>,
    /// The version that this receiver has seen.
    pub(super) seen: u64,
}

impl<T> WatchReceiver<LoopWatch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        // Between the look and the wait there is no await, so nothing is missed.
        loop {
            if self.seen != self.shared.version.get() {
                self.seen = self.shared.version.get();
                return Ok(());
            }
            if self.senders.strong_count() == 0 {
                return Err(RecvError(()));
            }
            self.shared.changed.listen().await;
        }
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        self.shared.value.borrow()
    }

    fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.seen = self.shared.version.get();
        self.shared.value.borrow()
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver {
            shared: Rc::clone(&self.shared),
            senders: Weak::clone(&self.senders),
            seen: self.seen,
        }
    }
}
