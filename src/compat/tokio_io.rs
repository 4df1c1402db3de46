//! tokio's `AsyncRead` and `AsyncWrite` for our streams, without its runtime.
//!
//! - An initialised buffer is read into directly. An uninitialised one is filled by a copy: safe code
//!   cannot read into uninitialised memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::compat::streams::{on_streams, poll_read_by_copy};

fn poll_read(
    io: Pin<&mut impl futures::io::AsyncRead>,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if buf.initialized().len() < buf.capacity() {
        let room = buf.remaining();
        return poll_read_by_copy(io, cx, room, |bytes| buf.put_slice(bytes));
    }
    let read = ready!(io.poll_read(cx, buf.initialize_unfilled()))?;
    buf.advance(read);
    Poll::Ready(Ok(()))
}

on_streams!(AsyncRead, &mut ReadBuf<'_>, AsyncWrite);
