//! Copying between two streams in both directions: the heart of a proxy.
//!
//! - Each direction is a [`Transfer`] of its own: bytes of one direction never wait for the other one.
//! - The end of a direction is passed on: its writer is flushed and closed, and the other direction
//!   continues. An error ends both directions at once.
//! - The writer is flushed before a direction waits for its reader: bytes do not stay in a buffered writer
//!   while the peer that would answer them waits.
//! - Every read spends budget, whatever the streams do, so that a copy between streams that are always
//!   ready yields to other tasks. The directions take turns to be first, because the first one of a poll
//!   gets the larger share.
//!
//! ```text
//! Copying ──(reader at its end)──▶ Closing ──(writer closed)──▶ Closed
//! ```

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};

use crate::event_loop::budget;

/// The size of a buffer, unless the caller sets it.
const DEFAULT_SIZE: usize = 8 * 1024;

/// Copies from `a` to `b` and from `b` to `a` until both have ended; returns how many bytes that were, in
/// this order.
///
/// When one stream is at its end, the write side of the other one is closed, and the other direction
/// continues: clients that half-close a connection and then wait for the answer are served. Each direction
/// has a buffer of 8 KiB; see [`copy_bidirectional_with_sizes`].
///
/// # Errors
///
/// The first error of any read, write, flush or close. It ends both directions, bytes that were read but not
/// yet written are lost, and the streams stay open: drop them, or close them. A writer that accepts no bytes
/// is an error, `WriteZero`.
///
/// # Cancel safety
///
/// Not cancel safe: bytes that were read but not yet written are lost. A proxy that drops it drops both
/// streams as well.
///
/// # Examples
///
/// ```
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::io::{copy_bidirectional, duplex};
///
/// loopgroup::run(async {
///     let (mut client, mut inbound) = duplex(64);
///     let (mut outbound, mut server) = duplex(64);
///     let proxy = loopgroup::spawn(async move {
///         copy_bidirectional(&mut inbound, &mut outbound).await
///     });
///     client.write_all(b"question").await?;
///     client.close().await?; // the server sees the end, and answers
///     let mut question = String::new();
///     server.read_to_string(&mut question).await?;
///     server.write_all(format!("re: {question}").as_bytes()).await?;
///     drop(server);
///     let mut answer = String::new();
///     client.read_to_string(&mut answer).await?;
///     assert_eq!(answer, "re: question");
///     assert_eq!(proxy.await??, (8, 12));
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub async fn copy_bidirectional<A, B>(a: &mut A, b: &mut B) -> io::Result<(u64, u64)>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    copy_bidirectional_with_sizes(a, b, DEFAULT_SIZE, DEFAULT_SIZE).await
}

/// Like [`copy_bidirectional`], with buffers of these sizes: less memory for many idle connections, or fewer
/// system calls for fast ones.
///
/// # Errors
///
/// `InvalidInput` if a size is 0 or more than fits in memory; the message names it. Otherwise those of
/// [`copy_bidirectional`].
///
/// # Cancel safety
///
/// Not cancel safe, like [`copy_bidirectional`].
///
/// # Examples
///
/// ```
/// use loopgroup::io::{copy_bidirectional_with_sizes, duplex};
///
/// loopgroup::block_on(async {
///     let (mut one, _) = duplex(16); // the other ends are dropped: both streams are at their end
///     let (mut other, _) = duplex(16);
///     let copied = copy_bidirectional_with_sizes(&mut one, &mut other, 512, 64 * 1024).await?;
///     assert_eq!(copied, (0, 0));
///     let error = copy_bidirectional_with_sizes(&mut one, &mut other, 512, 0).await.unwrap_err();
///     assert!(error.to_string().contains("b_to_a_size"));
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub async fn copy_bidirectional_with_sizes<A, B>(
    a: &mut A,
    b: &mut B,
    a_to_b_size: usize,
    b_to_a_size: usize,
) -> io::Result<(u64, u64)>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let mut there = Transfer::new("a_to_b_size", a_to_b_size)?;
    let mut back = Transfer::new("b_to_a_size", b_to_a_size)?;
    let mut there_first = false;
    poll_fn(move |cx| {
        there_first = !there_first;
        let (one, other) = if there_first {
            let one = there.poll_copy(cx, Pin::new(a), Pin::new(b))?;
            (one, back.poll_copy(cx, Pin::new(b), Pin::new(a))?)
        } else {
            let other = back.poll_copy(cx, Pin::new(b), Pin::new(a))?;
            (there.poll_copy(cx, Pin::new(a), Pin::new(b))?, other)
        };
        Poll::Ready(Ok((ready!(one), ready!(other))))
    })
    .await
}

/// One direction of a copy.
struct Transfer {
    buf: Box<[u8]>,
    /// The bytes `buf[written..read]` are still to be written.
    written: usize,
    read: usize,
    /// Bytes were written since the last flush.
    unflushed: bool,
    total: u64,
    stage: CopyStage,
}

enum CopyStage {
    Copying,
    Closing,
    Closed,
}

impl Transfer {
    fn new(name: &str, size: usize) -> io::Result<Transfer> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        if size == 0 {
            return Err(invalid(format!("{name}: must not be 0")));
        }
        let mut buf = Vec::new();
        if buf.try_reserve_exact(size).is_err() {
            let text = format!("{name}: {size} bytes are more than fit in memory");
            return Err(invalid(text));
        }
        buf.resize(size, 0);
        Ok(Transfer {
            buf: buf.into_boxed_slice(),
            written: 0,
            read: 0,
            unflushed: false,
            total: 0,
            stage: CopyStage::Copying,
        })
    }

    /// Copies until the reader is at its end and the writer closed; then returns the number of bytes, at
    /// every poll.
    fn poll_copy<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        mut reader: Pin<&mut R>,
        mut writer: Pin<&mut W>,
    ) -> Poll<io::Result<u64>>
    where
        R: AsyncRead + ?Sized,
        W: AsyncWrite + ?Sized,
    {
        while let CopyStage::Copying = self.stage {
            while self.written < self.read {
                let rest = &self.buf[self.written..self.read];
                match ready!(writer.as_mut().poll_write(cx, rest))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => self.written += count,
                }
                self.unflushed = true;
            }
            match self.poll_fill(cx, reader.as_mut())? {
                Poll::Ready(0) => self.stage = CopyStage::Closing,
                Poll::Ready(count) => self.total += count as u64,
                Poll::Pending => {
                    // The reader, or the budget, wakes the task: a flush that waits changes nothing.
                    if self.unflushed {
                        ready!(writer.as_mut().poll_flush(cx))?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
        if let CopyStage::Closing = self.stage {
            // Not every writer flushes when it is closed.
            if self.unflushed {
                ready!(writer.as_mut().poll_flush(cx))?;
                self.unflushed = false;
            }
            ready!(writer.poll_close(cx))?;
            self.stage = CopyStage::Closed;
        }
        Poll::Ready(Ok(self.total))
    }

    /// Reads into the buffer, all of which is written.
    fn poll_fill<R>(&mut self, cx: &mut Context<'_>, reader: Pin<&mut R>) -> Poll<io::Result<usize>>
    where
        R: AsyncRead + ?Sized,
    {
        ready!(budget::poll_proceed(cx));
        let count = ready!(reader.poll_read(cx, &mut self.buf))?;
        budget::spend();
        (self.written, self.read) = (0, count);
        Poll::Ready(Ok(count))
    }
}
