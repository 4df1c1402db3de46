//! Work from outside for runtimes that take none: a channel, and a task that spawns what comes out of it.
//!
//! - This is what a user of such a runtime would write; it costs a box, a node of the channel and a second
//!   spawn. Tables mark these figures.

use std::future::Future;

use futures::StreamExt;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures::channel::oneshot::{self, Receiver};
use futures::future::BoxFuture;

use super::Spawn;

pub(crate) type Inbox = UnboundedReceiver<BoxFuture<'static, ()>>;

pub(crate) struct Fed {
    sender: UnboundedSender<BoxFuture<'static, ()>>,
}

impl Fed {
    /// Starts a thread on which `run` is to run [`feed`].
    pub(crate) fn start(run: impl FnOnce(Inbox) + Send + 'static) -> Fed {
        let (sender, inbox) = mpsc::unbounded();
        std::thread::spawn(move || run(inbox));
        Fed { sender }
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.sender
            .unbounded_send(Box::pin(future))
            .expect("the loop ends with the process");
    }

    /// A channel for the result, too.
    pub(crate) fn spawn_joined<F>(&self, future: F) -> Receiver<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.spawn(async move {
            // Nobody need wait for it.
            let _ = sender.send(future.await);
        });
        receiver
    }
}

/// Spawns on this loop what comes from outside.
pub(crate) async fn feed<R: Spawn>(mut inbox: Inbox) {
    while let Some(future) = inbox.next().await {
        R::detach(future);
    }
}

/// Makes a type the loop of a runtime that has to be fed.
macro_rules! fed_loop {
    ($runtime:ident) => {
        /// A loop on a thread of its own, fed through a channel.
        pub(crate) struct FedLoop(super::fed::Fed);

        impl super::Remote for FedLoop {
            type Handle<T: Send + 'static> = ::futures::channel::oneshot::Receiver<T>;

            fn start() -> FedLoop {
                FedLoop(super::fed::Fed::start(|inbox| {
                    $runtime::run(super::fed::feed::<$runtime>(inbox))
                }))
            }

            fn spawn_joined<F>(&self, future: F) -> Self::Handle<F::Output>
            where
                F: Future + Send + 'static,
                F::Output: Send + 'static,
            {
                self.0.spawn_joined(future)
            }

            fn spawn<F>(&self, future: F)
            where
                F: Future<Output = ()> + Send + 'static,
            {
                self.0.spawn(future);
            }
        }
    };
}
pub(super) use fed_loop;
