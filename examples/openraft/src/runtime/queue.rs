//! The queue of a channel of one thread, its ends, and the wakers of those who wait for it.
//!
//! A message that is taken wakes all senders that wait, since the first of them may have been dropped.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::Waker;

#[derive(Debug)]
pub(super) struct Queue<T> {
    pub(super) messages: VecDeque<T>,
    pub(super) capacity: usize,
    pub(super) senders: usize,
    pub(super) is_open: bool,
    pub(super) receiver: Option<Waker>,
    pub(super) waiting: Vec<Waker>,
}

#[derive(Debug)]
pub struct Sender<T>(pub(super) Rc<RefCell<Queue<T>>>);

#[derive(Debug)]
pub struct Receiver<T>(pub(super) Rc<RefCell<Queue<T>>>);

#[derive(Debug)]
pub struct WeakSender<T>(pub(super) Weak<RefCell<Queue<T>>>);

impl<T> Receiver<T> {
    pub(super) fn take(&mut self) -> Option<T> {
        let mut queue = self.0.borrow_mut();
        let message = queue.messages.pop_front()?;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        waiting.into_iter().for_each(Waker::wake);
        Some(message)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.borrow_mut();
        queue.is_open = false;
        let (messages, waiting) = (
            std::mem::take(&mut queue.messages),
            std::mem::take(&mut queue.waiting),
        );
        drop(queue);
        drop(messages);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.borrow_mut().senders += 1;
        Sender(Rc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut queue = self.0.borrow_mut();
        queue.senders -= 1;
        let receiver = match queue.senders {
            0 => queue.receiver.take(),
            _ => None,
        };
        drop(queue);
        receiver.into_iter().for_each(Waker::wake);
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        WeakSender(Weak::clone(&self.0))
    }
}
