//! The connections of a listener as a stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;

use crate::net::{TcpListener, TcpStream};

/// The connections of a [`TcpListener`]; the stream never ends.
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
pub struct Incoming<'a>(&'a TcpListener);

impl<'a> Incoming<'a> {
    pub(super) fn of(listener: &'a TcpListener) -> Incoming<'a> {
        Incoming(listener)
    }
}

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .poll_accept(cx)
            .map_ok(|(stream, _)| stream)
            .map(Some)
    }
}
