//! Channels for one value: those of futures.

use futures::channel::oneshot;
use openraft_rt::{Oneshot, OneshotSender};

/// The one-shot channels of [`LoopRuntime`](super::LoopRuntime).
#[derive(Debug)]
pub struct LoopOneshot;

#[derive(Debug)]
pub struct Sender<T>(oneshot::Sender<T>);

impl Oneshot for LoopOneshot {
    type Sender<T> = Sender<T>;
    type Receiver<T> = oneshot::Receiver<T>;
    type ReceiverError = oneshot::Canceled;

    fn channel<T>() -> (Sender<T>, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Sender(sender), receiver)
    }
}

impl<T> OneshotSender<T> for Sender<T> {
    fn send(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }
}
