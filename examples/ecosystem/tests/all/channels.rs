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
fn futures_oneshot() {
    across(|| {
        let channels = (0..MESSAGES).map(|_| futures::channel::oneshot::channel());
        let (senders, receivers): (Vec<_>, Vec<_>) = channels.unzip();
        let send = async move {
            for (sender, n) in senders.into_iter().zip(0..) {
                sender.send(n).unwrap();
                loopgroup::yield_now().await;
            }
        };
        let receive = async move {
            let mut all = Vec::new();
            for receiver in receivers {
                all.push(receiver.await.unwrap());
            }
            all
        };
        (send, receive)
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

#[test]
fn std_mpsc_sends_from_a_loop_to_an_ordinary_thread() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let sent = group.spawn(async move {
            for n in 0..MESSAGES {
                sender.send(n).unwrap();
                loopgroup::yield_now().await;
            }
        });
        assert_eq!(
            receiver.iter().collect::<Vec<_>>(),
            (0..MESSAGES).collect::<Vec<_>>()
        );
        group.block_on(sent).unwrap();
    });
}

#[test]
fn the_blocking_ends_of_flume_serve_threads_that_are_not_loops() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (there, task_receives) = flume::bounded(1);
        let (task_sends, back) = flume::bounded(1);
        let task = group.spawn(async move {
            while let Ok(n) = task_receives.recv_async().await {
                task_sends.send_async(n).await.unwrap();
            }
        });
        for n in 0..MESSAGES {
            there.send(n).unwrap();
            assert_eq!(back.recv(), Ok(n));
        }
        drop(there);
        group.block_on(task).unwrap();
    });
}

/// What the guide says that `tokio::sync` does not do here.
mod tokio_without_its_runtime {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;
    use tokio::sync::mpsc;

    #[test]
    fn blocking_calls_block_the_loop_instead_of_panicking() {
        within(|| {
            let group = EventLoopGroup::new(1).unwrap();
            let (sender, mut receiver) = mpsc::channel(1);
            let other_ran = Arc::new(AtomicBool::new(false));
            let ran = Arc::clone(&other_ran);
            let (entered, blocks) = std::sync::mpsc::channel();
            let task = group.spawn(async move {
                entered.send(()).unwrap();
                receiver.blocking_recv()
            });
            blocks.recv().unwrap();
            let other = group.spawn(async move { ran.store(true, SeqCst) });
            // The loop is stuck in the first task: nothing but a message from elsewhere ends that.
            assert_eq!(group.next().pending_tasks(), 1);
            assert!(!other_ran.load(SeqCst));
            sender.blocking_send(7).unwrap(); // an ordinary thread may
            assert_eq!(group.block_on(task).unwrap(), Some(7));
            group.block_on(other).unwrap();
            assert!(other_ran.load(SeqCst));
        });
    }

    #[test]
    fn send_timeout_panics_for_want_of_a_timer_and_a_timeout_of_ours_does_not() {
        within(|| {
            let group = EventLoopGroup::new(1).unwrap();
            let (sender, _receiver) = mpsc::channel(1);
            let full = sender.clone();
            let ours = group.spawn(async move {
                full.send(1).await.unwrap();
                let send = full.send(2);
                loopgroup::time::timeout(Duration::from_millis(1), send)
                    .await
                    .is_err()
            });
            assert!(group.block_on(ours).unwrap());
            let theirs = group.spawn(async move {
                let _ = sender.send_timeout(3, Duration::from_millis(1)).await;
            });
            let error = group.block_on(theirs).unwrap_err();
            let payload = error.into_panic();
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned());
            let text = text
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap();
            assert!(text.contains("no reactor running"), "{text}");
        });
    }

    #[test]
    fn a_channel_that_is_never_empty_does_not_yield_by_itself() {
        within(|| {
            let group = EventLoopGroup::new(1).unwrap();
            let (sender, mut receiver) = mpsc::unbounded_channel();
            for n in 0..10_000 {
                sender.send(n).unwrap();
            }
            drop(sender);
            let log = Log::new();
            let task = group.spawn(Probe::new(&log, async move {
                let mut count = 0;
                while receiver.recv().await.is_some() {
                    count += 1;
                }
                count
            }));
            assert_eq!(group.block_on(task).unwrap(), 10_000);
            assert_eq!(log.polls(), 1, "tokio's budget is tokio's runtime's");
        });
    }
}
