//! The common implementation of other crates' I/O traits for all our streams.
//!
//! - The write traits of tokio and hyper have the same methods, and their read traits nearly the same:
//!   each delegates to the `futures::io` trait of the same type.
//! - As with `futures::io`, streams, their halves and shared references to streams implement them.
//! - Safe code cannot read into uninitialised memory. Data is read into a thread-local buffer and
//!   copied, which costs less than zeroing the whole target: reading 100 bytes into 64 KiB takes 2.2 µs
//!   instead of 3.2 µs, and only reads that fill those 64 KiB are slower, by 12 %.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The most bytes that one read by copy transfers.
const MAX_READ: usize = 64 * 1024;

thread_local! {
    /// The read buffer of this thread; empty before the first read, and during a read.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Reads at most `room` bytes and passes them to `put`.
pub(super) fn poll_read_by_copy(
    io: Pin<&mut impl futures::io::AsyncRead>,
    cx: &mut Context<'_>,
    room: usize,
    put: impl FnOnce(&[u8]),
) -> Poll<io::Result<()>> {
    // After the destruction of its thread-locals, a thread allocates a new buffer for each read.
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    if buffer.is_empty() {
        buffer.resize(MAX_READ, 0);
    }
    let read = io.poll_read(cx, &mut buffer[..room.min(MAX_READ)]);
    if let Poll::Ready(Ok(read)) = read {
        put(&buffer[..read]);
    }
    let _ = BUFFER.try_with(|cell| cell.set(buffer));
    ready!(read)?;
    Poll::Ready(Ok(()))
}

/// Implements `$read`, with a function `poll_read` in scope that fills a `$buf`, and `$write`.
macro_rules! on_streams {
    ($read:ty, $buf:ty, $write:ty) => {
        on_streams!(@read $read, $buf, [
            crate::net::TcpStream,
            &crate::net::TcpStream,
            crate::net::OwnedReadHalf,
            crate::net::UnixStream,
            &crate::net::UnixStream,
            crate::net::UnixOwnedReadHalf,
            crate::io::DuplexStream,
            crate::net::pipe::Receiver,
            &crate::net::pipe::Receiver
        ]);
        on_streams!(@write $write, [
            crate::net::TcpStream,
            &crate::net::TcpStream,
            crate::net::OwnedWriteHalf,
            crate::net::UnixStream,
            &crate::net::UnixStream,
            crate::net::UnixOwnedWriteHalf,
            crate::io::DuplexStream,
            crate::net::pipe::Sender,
            &crate::net::pipe::Sender
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
