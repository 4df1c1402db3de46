//! The I/O traits of other crates on all our streams, written once.
//!
//! - tokio and hyper mean the same by their traits for writing, word for word, and nearly the same by those for
//!   reading: each goes by way of the `futures::io` trait of the same type.
//! - Written are streams, their halves, and shared references to streams, as with `futures::io`.

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
