//! The I/O traits of other crates on all our streams, written once.
//!
//! - tokio and hyper mean the same by their traits for writing, word for word, and nearly the same by those for
//!   reading: each goes by way of the `futures::io` trait of the same type.
//! - They are on streams, their halves, and shared references to streams, as with `futures::io`.
//! - Safe code cannot read into memory that was never written. What is read lands in a buffer of the thread's and is
//!   copied, which costs less than to zero all that might be read: a request of 100 bytes into 64 KiB takes 2.2 µs
//!   instead of 3.2 µs, and only reads as large as that are 12 % slower.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What one read by copy takes at most.
const MOST: usize = 64 * 1024;

thread_local! {
    /// Where the reads of this thread land; empty before the first, and while one is under way.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads, and has `put` take what came, `room` bytes at most.
pub(super) fn poll_read_by_copy(
    io: Pin<&mut impl futures::io::AsyncRead>,
    cx: &mut Context<'_>,
    room: usize,
    put: impl FnOnce(&[u8]),
) -> Poll<io::Result<()>> {
    // A thread whose locals are gone has a new one each time.
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    if buffer.is_empty() {
        buffer.resize(MOST, 0);
    }
    let read = io.poll_read(cx, &mut buffer[..room.min(MOST)]);
    if let Poll::Ready(Ok(read)) = read {
        put(&buffer[..read]);
    }
    let _ = BUFFER.try_with(|place| place.set(buffer));
    ready!(read)?;
    Poll::Ready(Ok(()))
}

/// Implements `$read`, by a function `poll_read` in scope that fills a `$buf`, and `$write`.
macro_rules! on_streams {
    ($read:ty, $buf:ty, $write:ty) => {
        on_streams!(@read $read, $buf, [
            crate::net::TcpStream,
            &crate::net::TcpStream,
            crate::net::OwnedReadHalf,
            crate::net::UnixStream,
            &crate::net::UnixStream,
            crate::net::UnixOwnedReadHalf
        ]);
        on_streams!(@write $write, [
            crate::net::TcpStream,
            &crate::net::TcpStream,
            crate::net::OwnedWriteHalf,
            crate::net::UnixStream,
            &crate::net::UnixStream,
            crate::net::UnixOwnedWriteHalf
        ]);
    };

    (@read $read:ty, $buf:ty, [$($type:ty),*]) => {$(
        impl $read for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: $buf,
            ) -> std::task::Poll<std::io::Result<()>> {
                poll_read(self, cx, buf)
            }
        }
    )*};

    (@write $write:ty, [$($type:ty),*]) => {$(
        impl $write for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                futures::io::AsyncWrite::poll_write(self, cx, buf)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                futures::io::AsyncWrite::poll_write_vectored(self, cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                futures::io::AsyncWrite::poll_flush(self, cx)
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                futures::io::AsyncWrite::poll_close(self, cx)
            }
        }
    )*};
}

pub(super) use on_streams;
