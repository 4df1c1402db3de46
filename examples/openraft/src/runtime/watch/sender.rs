//! Where the watched value comes from.

use std::cell::Ref;
use std::rc::Rc;

use openraft_rt::watch::{SendError, WatchSender};

use super::{LoopWatch, Receiver, Shared};

#[derive(Debug)]
pub struct Sender<T> {
    shared: Rc<Shared<T>>,
    /// Has a strong reference per sender and a weak one per receiver.
    ends: Rc<()>,
}

impl<T> WatchSender<LoopWatch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if Rc::weak_count(&self.ends) == 0 {
            return Err(SendError(value));
        }
        // The old value is dropped with no borrow held.
        let _old = self.shared.value.replace(value);
        self.advance();
        Ok(())
    }

    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        let modified = modify(&mut self.shared.value.borrow_mut());
        if modified {
            self.advance();
        }
        modified
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        self.shared.value.borrow()
    }

    fn subscribe(&self) -> Receiver<T> {
        Receiver {
            shared: Rc::clone(&self.shared),
            senders: Rc::downgrade(&self.ends),
            seen: self.shared.version.get(),
        }
    }
}

impl<T> Sender<T> {
    pub(super) fn new(shared: Shared<T>) -> Sender<T> {
        let (shared, ends) = (Rc::new(shared), Rc::new(()));
        Sender { shared, ends }
    }

    fn advance(&self) {
        self.shared.version.update(|version| version + 1);
        self.shared.changed.notify(usize::MAX);
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender {
            shared: Rc::clone(&self.shared),
            ends: Rc::clone(&self.ends),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // The receivers look after this poll; then this sender is no longer counted.
        self.shared.changed.notify(usize::MAX);
    }
}
