//! tokio's `AsyncRead` and `AsyncWrite` on our streams, without its runtime.
//!
//! - A read takes the buffer as it is if it is initialised, and zeroes what is not, which tokio's `ReadBuf`
//!   remembers: safe code cannot hand out bytes that were never written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::compat::streams::on_streams;

fn poll_read(
    io: Pin<&mut impl futures::io::AsyncRead>,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let read = ready!(io.poll_read(cx, buf.initialize_unfilled()))?;
    buf.advance(read);
    Poll::Ready(Ok(()))
}

on_streams!(AsyncRead, &mut ReadBuf<'_>, AsyncWrite);
