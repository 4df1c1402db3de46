//! Channels of every crate, between two loops and with every message waited for: both ends keep their homes.

use std::future::Future;

use event_listener::Event;
use futures::{SinkExt, StreamExt};
use loopgroup::EventLoopGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::util::{Log, Probe, within};

const MESSAGES: u32 = 1000;

/// Runs both ends, each on a loop of its own, and checks what came and where they ran.
fn across<S, R>(ends: impl FnOnce() -> (S, R) + Send + 'static)
where
    S: Future<Output = ()> + Send + 'static,
    R: Future<Output = Vec<u32>> + Send + 'static,
{
    within(move || {
        let group = EventLoopGroup::new(2).unwrap();
        let (send, receive) = ends();
        let homes = [0, 1].map(|index: usize| {
            let home = group.loops()[index].submit(|| std::thread::current().id());
            group.block_on(home).unwrap()
        });
        let logs = [Log::new(), Log::new()];
        let sent = group.spawn_on(0, Probe::new(&logs[0], send));
        let received = group.spawn_on(1, Probe::new(&logs[1], receive));
        assert_eq!(
            group.block_on(received).unwrap(),
            (0..MESSAGES).collect::<Vec<_>>()
        );
        group.block_on(sent).unwrap();
        for (log, home) in logs.iter().zip(homes) {
            log.assert_home(home);
        }
    });
}

#[test]
fn futures_mpsc() {
    across(|| {
        let (mut sender, receiver) = futures::channel::mpsc::channel(1);
        let send = async move {
            for n in 0..MESSAGES {
                sender.send(n).await.unwrap();
            }
        };
        (send, receiver.collect())
    });
}

#[test]
fn async_channel() {
    across(|| {
        let (sender, receiver) = async_channel::bounded(1);
        let send = async move {
            for n in 0..MESSAGES {
                sender.send(n).await.unwrap();
            }
        };
        (send, async move { Box::pin(receiver).collect().await })
    });
}

#[test]
fn flume() {
    across(|| {
        let (sender, receiver) = flume::bounded(1);
        let send = async move {
            for n in 0..MESSAGES {
                sender.send_async(n).await.unwrap();
            }
        };
        (send, receiver.into_stream().collect())
    });
}

#[test]
fn tokio_mpsc() {
    across(|| {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let send = async move {
            for n in 0..MESSAGES {
                sender.send(n).await.unwrap();
            }
        };
        let receive = async move {
            let mut all = Vec::new();
            while let Some(n) = receiver.recv().await {
                all.push(n);
            }
            all
        };
        (send, receive)
    });
}

#[test]
fn event_listener() {
    across(|| {
        let told = Arc::new((AtomicU32::new(0), Event::new()));
        let heard = Arc::clone(&told);
        // Even: the sender's turn; odd: the receiver's.
        async fn turn(state: &(AtomicU32, Event), is: impl Fn(u32) -> bool) {
            loop {
                let listener = state.1.listen();
                if is(state.0.load(SeqCst)) {
                    return;
                }
                listener.await;
            }
        }
        let send = async move {
            for n in 0..MESSAGES {
                turn(&told, |at| at == 2 * n).await;
                told.0.store(2 * n + 1, SeqCst);
                told.1.notify(1);
            }
        };
        let receive = async move {
            let mut all = Vec::new();
            for n in 0..MESSAGES {
                turn(&heard, |at| at == 2 * n + 1).await;
                all.push(n);
                heard.0.store(2 * n + 2, SeqCst);
                heard.1.notify(1);
            }
            all
        };
        (send, receive)
    });
}
