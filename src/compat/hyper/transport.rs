//! The byte stream below hyper: finds out the protocol, replays what that took, and notes the traffic.
//!
//! - An HTTP/2 client that has prior knowledge begins with a preface of 24 bytes. The first byte that differs
//!   decides for HTTP/1.
//! - Bytes read for this are returned by the next reads, before any others.
//! - The first read is as large as a typical request: detection costs no system call of its own.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use crate::compat::hyper::activity::HttpActivity;
use crate::sync::Arc;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The size of the reads that look for the preface.
const FIRST_READ: usize = 2048;

/// The protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// A stream with its notes, and with bytes that were read ahead.
#[derive(Debug)]
pub(super) struct Transport<I> {
    io: I,
    activity: Arc<HttpActivity>,
    ahead: Vec<u8>,
    /// How many bytes of `ahead` have been returned.
    returned: usize,
}

impl<I> Transport<I> {
    pub(super) fn new(io: I, activity: Arc<HttpActivity>) -> Transport<I> {
        Transport {
            io,
            activity,
            ahead: Vec::new(),
            returned: 0,
        }
    }
}

impl<I> Transport<I> {
    /// A stream of which these bytes have been read ahead.
    pub(super) fn resume(io: I, activity: Arc<HttpActivity>, ahead: Vec<u8>) -> Transport<I> {
        Transport {
            ahead,
            ..Transport::new(io, activity)
        }
    }

    /// Returns the stream, and the bytes that have been read ahead and not returned.
    pub(super) fn into_parts(mut self) -> (I, Vec<u8>) {
        self.ahead.drain(..self.returned);
        (self.io, self.ahead)
    }
}

impl<I: Read + Unpin> Transport<I> {
    /// Reads until the bytes tell the version; `None` if the stream ends before the first byte.
    pub(super) fn poll_version(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Version>>> {
        loop {
            let compared = self.ahead.len().min(PREFACE.len());
            if self.ahead[..compared] != PREFACE[..compared] {
                return Poll::Ready(Ok(Some(Version::Http1)));
            }
            if compared == PREFACE.len() {
                return Poll::Ready(Ok(Some(Version::Http2)));
            }
            let mut space = [0; FIRST_READ];
            let mut buf = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.io).poll_read(cx, buf.unfilled())) {
                // A client that has nothing to say, as one that closes: hyper treats an idle one alike.
                Err(error) if compared == 0 && error.kind() == io::ErrorKind::ConnectionReset => {
                    return Poll::Ready(Ok(None));
                }
                read => read?,
            }
            if buf.filled().is_empty() {
                // The end, in the middle of the preface: hyper reports it.
                return Poll::Ready(Ok((compared > 0).then_some(Version::Http1)));
            }
            self.activity.note_bytes();
            self.ahead.extend_from_slice(buf.filled());
        }
    }

    /// Notes whether a write has to wait.
    fn noted<T>(&self, write: Poll<T>) -> Poll<T> {
        self.activity.note_write(write.is_pending());
        write
    }
}

impl<I: Read + Unpin> Read for Transport<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.returned < this.ahead.len() {
            let rest = &this.ahead[this.returned..];
            let part = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..part]);
            this.returned += part;
            if this.returned == this.ahead.len() {
                (this.ahead, this.returned) = (Vec::new(), 0); // frees the memory
            }
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        // The end of the stream counts as well: hyper ends the connection then.
        this.activity.note_bytes();
        Poll::Ready(Ok(()))
    }
}

impl<I: Read + Write + Unpin> Write for Transport<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.noted(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
