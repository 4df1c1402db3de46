//! The connections of a listener as a stream.
//!
//! Each stream has a place of its own among those that wait for the listener: any number may be polled, and dropping
//! one takes nothing from the others. It is told of every event and never holds a turn, for it may live on while
//! nobody polls it: a turn that it held would be lost to those that `accept`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;

use crate::io::registered::Registered;
use crate::io::waiter::Waiter;
use crate::net::TcpStream;
use crate::reactor::crowd::Aim;
use crate::reactor::source::Direction;

/// The connections of a [`TcpListener`](crate::net::TcpListener); the stream never ends.
///
/// Any number of tasks may each poll one of the same listener, beside others that
/// [`accept`](crate::net::TcpListener::accept). All streams are told of each connection, and one of them gets it.
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
///     let accepted = incoming.next().await.expect("it never ends")?;
///     assert_eq!(accepted.peer_addr()?, client.local_addr()?);
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a>(Waiter<'a, mio::net::TcpListener>);

impl<'a> Incoming<'a> {
    pub(super) fn of(listener: &'a Registered<mio::net::TcpListener>) -> Incoming<'a> {
        Incoming(Waiter::new(listener, Direction::Read, Aim::Know))
    }
}

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .poll_io(cx, &mut |listener| listener.accept())
            .map_ok(|(stream, _)| TcpStream::of(stream.into()))
            .map(Some)
    }
}
