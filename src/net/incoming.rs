//! The connections of a listener as a stream.
//!
//! - Each stream has its own entry among the listener's waiters: any number may be polled, and dropping
//!   one does not affect the others.
//! - A stream is woken for every event, and never as the only waiter: it may stay alive without being
//!   polled, and the tasks in `accept` would then miss the event.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;

use crate::io::registered::Registered;
use crate::io::waiter::Waiter;
use crate::net::TcpStream;
use crate::net::behind::Behind;
use crate::reactor::direction::Direction;
use crate::reactor::wait_list::Intent;

/// The connections of a [`TcpListener`](crate::net::TcpListener); the stream never ends.
///
/// Any number of tasks may each poll a stream of the same listener, while others
/// [`accept`](crate::net::TcpListener::accept) from it. Each connection wakes all streams, and one of
/// them gets it.
///
/// # Examples
///
/// ```
/// use futures::StreamExt;
/// use loopgroup::net::{TcpListener, TcpStream};
///
/// loopgroup::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     let mut incoming = listener.incoming();
///     let accepted = incoming.next().await.expect("the stream never ends")?;
///     assert_eq!(accepted.peer_addr()?, client.local_addr()?);
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a>(Waiter<'a, Behind<mio::net::TcpListener>>);

impl<'a> Incoming<'a> {
    pub(super) fn new(listener: &'a Registered<Behind<mio::net::TcpListener>>) -> Incoming<'a> {
        Incoming(Waiter::new(listener, Direction::Read, Intent::Observe))
    }
}

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .poll_io(cx, &mut |listener| listener.accept())
            .map_ok(|accepted| TcpStream::accepted(accepted).0)
            .map(Some)
    }
}
