//! Waits between attempts, where the system does not report when the next one may succeed.
//!
//! That is so for a connect to a full backlog, and for datagrams to the full queue of a peer that the socket is not
//! connected to. The waits double: a short jam costs little time, and a crowd in a long one takes little of a core.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::io::watched::no_loop;
use crate::time::here::has_timers;
use crate::time::sleep::sleep;

const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);

/// The waits of one operation.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff(FIRST)
    }

    /// Waits for the next attempt; an error where there is nothing to wait with, as of any other socket.
    pub(super) async fn wait(&mut self) -> io::Result<()> {
        let mut pause = sleep(self.0);
        self.0 = (self.0 * 2).min(LONGEST);
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
