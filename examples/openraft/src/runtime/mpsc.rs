//! Bounded channels with many senders, of one thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use openraft_rt::mpsc::{Mpsc, MpscReceiver, MpscSender, MpscWeakSender, SendError, TryRecvError};

use super::queue::{Queue, Receiver, Sender, WeakSender};

/// The channels of [`LoopRuntime`](super::LoopRuntime).
#[derive(Debug)]
pub struct LoopMpsc;

impl Mpsc for LoopMpsc {
    type Sender<T> = Sender<T>;
    type Receiver<T> = Receiver<T>;
    type WeakSender<T> = WeakSender<T>;

    fn channel<T>(buffer: usize) -> (Sender<T>, Receiver<T>) {
        let queue = Rc::new(RefCell::new(Queue {
            messages: VecDeque::new(),
            capacity: buffer.max(1),
            senders: 1,
            is_open: true,
            receiver: None,
            waiting: Vec::new(),
        }));
        (Sender(Rc::clone(&queue)), Receiver(queue))
    }
}

impl<T> MpscSender<LoopMpsc, T> for Sender<T> {
    async fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut message = Some(message);
        let mut push = |queue: &mut Queue<T>| queue.messages.extend(message.take());
        let sent = poll_fn(|cx| {
            let mut queue = self.0.borrow_mut();
            if queue.is_open && queue.messages.len() >= queue.capacity {
                queue.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            if queue.is_open {
                push(&mut queue);
            }
            Poll::Ready((queue.is_open, queue.receiver.take()))
        });
        let (sent, receiver) = sent.await;
        receiver.into_iter().for_each(Waker::wake);
        match message {
            Some(refused) if !sent => Err(SendError(refused)),
            _ => Ok(()),
        }
    }

    fn downgrade(&self) -> WeakSender<T> {
        WeakSender(Rc::downgrade(&self.0))
    }
}

impl<T> MpscReceiver<T> for Receiver<T> {
    async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| match self.try_recv() {
            Ok(message) => Poll::Ready(Some(message)),
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
            Err(TryRecvError::Empty) => {
                self.0.borrow_mut().receiver = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.take() {
            Some(message) => Ok(message),
            None if self.0.borrow().senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }
}

impl<T> MpscWeakSender<LoopMpsc, T> for WeakSender<T> {
    fn upgrade(&self) -> Option<Sender<T>> {
        let queue = self
            .0
            .upgrade()
            .filter(|queue| queue.borrow().senders > 0)?;
        queue.borrow_mut().senders += 1;
        Some(Sender(queue))
    }
}
