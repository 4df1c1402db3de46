//! Delays between retries, where the system does not report when the next attempt may succeed.
//!
//! - Used to connect to a Unix listener whose backlog is full, and to send a datagram to the full queue
//!   of a peer that the socket is not connected to.
//! - The delays double: short congestion adds little latency, and many waiting tasks use little CPU time.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::io::watched::no_loop;
use crate::time::here::has_timers;
use crate::time::sleep::sleep;

const FIRST_DELAY: Duration = Duration::from_millis(1);
const MAX_DELAY: Duration = Duration::from_millis(100);

/// The delay before the next retry of one operation.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff(FIRST_DELAY)
    }

    /// Waits until the next attempt; fails where there are no timers, like any other socket operation
    /// there.
    pub(super) async fn wait(&mut self) -> io::Result<()> {
        let mut pause = sleep(self.0);
        self.0 = (self.0 * 2).min(MAX_DELAY);
        poll_fn(|cx| {
            if has_timers() {
                Pin::new(&mut pause).poll(cx).map(Ok)
            } else {
                Poll::Ready(Err(no_loop()))
            }
        })
        .await
    }
}
