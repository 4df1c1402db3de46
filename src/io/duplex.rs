//! A stream in memory: two ends, and a bounded buffer in each direction.
//!
//! - A direction is one [`Pipe`], shared by its writer and its reader, with one lock. Wakers are cloned,
//!   woken and dropped with the lock released, and a waker that panics is contained.
//! - A write is accepted while its buffer has room, and waits otherwise: back-pressure. A buffer is
//!   allocated as bytes are written, never beyond its limit.
//! - A pipe ends from either side. After its writer closed it or was dropped, reads return the buffered
//!   bytes and then the end. After its reader was dropped, the bytes are discarded and writes fail.
//! - Nothing here belongs to a loop: the ends may live on any two threads, and no clock, socket or
//!   thread is involved, so a run in virtual time is deterministic.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use futures::io::{AsyncRead, AsyncWrite};

use crate::event_loop::budget;
use crate::noted::{self, Noted};
use crate::panic::PanicReporter;
use crate::sync::{Arc, Mutex};

/// Creates a stream in memory: what is written to one end is read from the other one, in both directions.
///
/// Each direction buffers at most `max_buf` bytes; a write to a full buffer waits until the other end reads.
/// The ends may be used on different loops, threads and runtimes, and in the virtual time of
/// [`TestLoop`](crate::testing::TestLoop). They stand in for sockets in tests, and connect two parts of a
/// program that both speak a protocol of bytes.
///
/// # Panics
///
/// If `max_buf` is zero: every write would wait for ever.
///
/// # Examples
///
/// ```
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(2)?;
/// let (mut client, mut server) = loopgroup::io::duplex(64);
/// group.spawn_on(1, async move {
///     let mut question = [0; 4];
///     server.read_exact(&mut question).await?;
///     server.write_all(b"pong").await // then the end: the stream is dropped
/// });
/// let answer = group.spawn_on(0, async move {
///     client.write_all(b"ping").await?;
///     let mut answer = String::new();
///     client.read_to_string(&mut answer).await?;
///     std::io::Result::Ok(answer)
/// });
/// assert_eq!(group.block_on(answer)??, "pong");
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn duplex(max_buf: usize) -> (DuplexStream, DuplexStream) {
    assert!(
        max_buf > 0,
        "the buffers of loopgroup::io::duplex must have room for at least one byte"
    );
    let [there, back] = [(); 2].map(|()| Arc::new(Pipe::new(max_buf)));
    let one = DuplexStream {
        incoming: Arc::clone(&back),
        outgoing: Arc::clone(&there),
    };
    let other = DuplexStream {
        incoming: there,
        outgoing: back,
    };
    (one, other)
}

/// One end of a stream in memory; created by [`duplex`].
///
/// Reads and writes are those of `futures::io`, and with the features `tokio-io` and `hyper` those of the
/// other crates' traits. To use both directions in different tasks, split it with
/// [`AsyncReadExt::split`](futures::io::AsyncReadExt::split).
///
/// - `close` ends the direction that this end writes to. The other end reads the buffered bytes and then
///   the end of the stream, and may still write.
/// - Dropping an end closes both directions. The other end reads the buffered bytes and then the end of the
///   stream; its writes fail, and a write that waits is woken.
///
/// # Errors
///
/// A write fails with `BrokenPipe` if the other end was dropped or this end was closed. Nothing else fails.
///
/// # Cancel safety
///
/// A read or write that is dropped before it is ready has transferred nothing.
///
/// # Examples
///
/// ```
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::io::{DuplexStream, duplex};
///
/// async fn greet(mut stream: DuplexStream) -> std::io::Result<()> {
///     stream.write_all(b"hello").await
/// }
///
/// loopgroup::block_on(async {
///     let (ours, mut theirs) = duplex(1024);
///     greet(ours).await?; // fits in the buffer, so that no reader is needed yet
///     let mut text = String::new();
///     theirs.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     let error = theirs.write_all(b"anybody?").await.unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub struct DuplexStream {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
}

/// One direction.
struct Pipe(Mutex<PipeState>);

struct PipeState {
    bytes: VecDeque<u8>,
    /// The most bytes that are buffered.
    limit: usize,
    /// The writer has closed the pipe or was dropped: no bytes follow the buffered ones.
    write_closed: bool,
    /// The reader was dropped: nothing is buffered any more.
    read_closed: bool,
    /// Set while the reader waits for bytes or the end.
    reader: Option<Waker>,
    /// Set while the writer waits for room.
    writer: Option<Waker>,
}

/// What a finished operation returns, and the waker of the opposite side.
type Finished = (io::Result<usize>, Option<Waker>);

impl Pipe {
    fn new(limit: usize) -> Pipe {
        Pipe(Mutex::new(PipeState {
            bytes: VecDeque::new(),
            limit,
            write_closed: false,
            read_closed: false,
            reader: None,
            writer: None,
        }))
    }

    /// Tries `operation`; stores the waker in `slot` if it has to wait.
    fn poll(
        &self,
        cx: &mut Context<'_>,
        slot: fn(&mut PipeState) -> &mut Option<Waker>,
        mut operation: impl FnMut(&mut PipeState) -> Option<Finished>,
    ) -> Poll<io::Result<usize>> {
        ready!(budget::poll_proceed(cx));
        // Cloning, waking and dropping wakers is user code: all of it happens with the lock released.
        let mut new = None;
        loop {
            let mut state = self.0.lock();
            if let Some((result, opposite)) = operation(&mut state) {
                drop(state);
                PanicReporter::STDERR.wake_all(opposite);
                budget::spend();
                return Poll::Ready(result);
            }
            let other_end = || Noted::Event("the other end of a duplex stream");
            let stored = slot(&mut state);
            if stored.as_ref().is_some_and(|it| it.will_wake(cx.waker())) {
                drop(state);
                noted::waits_for(other_end);
                return Poll::Pending;
            }
            if let Some(new) = new.take() {
                let old = stored.replace(new);
                drop(state);
                drop(old);
                noted::waits_for(other_end);
                return Poll::Pending;
            }
            drop(state);
            new = Some(cx.waker().clone()); // and again: the pipe may have changed
        }
    }

    /// Ends the pipe at its writer.
    fn close_write(&self) {
        let mut state = self.0.lock();
        state.write_closed = true;
        let (own, opposite) = (state.writer.take(), state.reader.take());
        drop(state);
        PanicReporter::STDERR.wake_all(opposite);
        drop(own);
    }

    /// Ends the pipe at its reader.
    fn close_read(&self) {
        let mut state = self.0.lock();
        state.read_closed = true;
        state.bytes = VecDeque::new(); // frees the buffer as well
        let (own, opposite) = (state.reader.take(), state.writer.take());
        drop(state);
        PanicReporter::STDERR.wake_all(opposite);
        drop(own);
    }
}

impl PipeState {
    /// Moves buffered bytes to `bufs`; `None` if there are none yet.
    fn read(&mut self, bufs: &mut [IoSliceMut<'_>]) -> Option<Finished> {
        if self.bytes.is_empty() {
            let at_once = self.write_closed || bufs.iter().all(|buf| buf.is_empty());
            return at_once.then_some((Ok(0), None));
        }
        let count = bufs.iter_mut().map(|buf| self.take(buf)).sum();
        Some((Ok(count), self.writer.take()))
    }

    /// Moves as many bytes to `buf` as there are.
    fn take(&mut self, buf: &mut [u8]) -> usize {
        let count = buf.len().min(self.bytes.len());
        let (front, back) = self.bytes.as_slices();
        let first = front.len().min(count);
        buf[..first].copy_from_slice(&front[..first]);
        buf[first..count].copy_from_slice(&back[..count - first]);
        self.bytes.drain(..count);
        count
    }

    /// Buffers bytes of `bufs`; `None` if there is no room.
    fn write(&mut self, bufs: &[IoSlice<'_>]) -> Option<Finished> {
        if self.read_closed {
            let text = "the other end of the duplex stream was dropped";
            let error = io::Error::new(io::ErrorKind::BrokenPipe, text);
            return Some((Err(error), None));
        }
        if self.write_closed {
            let text = "this end of the duplex stream was closed";
            let error = io::Error::new(io::ErrorKind::BrokenPipe, text);
            return Some((Err(error), None));
        }
        let room = self.limit - self.bytes.len();
        if room == 0 && bufs.iter().any(|buf| !buf.is_empty()) {
            return None;
        }
        let mut count = 0;
        for buf in bufs {
            let part = &buf[..buf.len().min(room - count)];
            self.bytes.extend(part);
            count += part.len();
        }
        // After a write of no bytes the reader has nothing to look at.
        let reader = if count > 0 { self.reader.take() } else { None };
        Some((Ok(count), reader))
    }
}

impl AsyncRead for DuplexStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_read_vectored(cx, &mut [IoSliceMut::new(buf)])
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let read = |state: &mut PipeState| state.read(bufs);
        self.incoming.poll(cx, |state| &mut state.reader, read)
    }
}

impl AsyncWrite for DuplexStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = |state: &mut PipeState| state.write(bufs);
        self.outgoing.poll(cx, |state| &mut state.writer, write)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.close_write();
        Poll::Ready(Ok(()))
    }
}

impl Drop for DuplexStream {
    fn drop(&mut self) {
        // In this order: a peer on another thread that has read the end must not find room for a write.
        self.incoming.close_read();
        self.outgoing.close_write();
    }
}

impl fmt::Debug for DuplexStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readable = self.incoming.0.lock().bytes.len();
        let outgoing = self.outgoing.0.lock();
        let (unread, limit) = (outgoing.bytes.len(), outgoing.limit);
        drop(outgoing); // the formatter is user code
        f.debug_struct("DuplexStream")
            .field("readable", &readable)
            .field("unread_by_peer", &unread)
            .field("max_buf", &limit)
            .finish()
    }
}
