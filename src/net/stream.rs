//! The common implementation of TCP and Unix streams.
//!
//! - A short `read` or `write` on a registered stream clears its readiness, which saves the system call
//!   that would return `WouldBlock`. Reads of a Unix stream do not: they also stop at a passed
//!   descriptor, or where the data of another sender begins, with more data behind.
//! - The halves share the stream through an `Arc` and take no lock: each direction is one system call
//!   on a shared reference.

use std::os::fd::AsFd;

use socket2::SockRef;

/// The most buffers that the system accepts in one vectored call (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;

/// The number of bytes requested by a vectored call; fewer means that it was short. Buffers beyond the
/// limit do not count, since the call ignores them.
pub(super) fn requested(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.take(MAX_BUFFERS).sum()
}

/// Makes a write to a closed peer return an error instead of raising `SIGPIPE`. Apple's systems have a
/// socket option for it, which is set when the socket is created.
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: libc::c_int = libc::MSG_NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: libc::c_int = 0;

/// Writes a buffer, without `SIGPIPE`.
pub(super) fn write(socket: &impl AsFd, buf: &[u8]) -> std::io::Result<usize> {
    SockRef::from(socket).send_with_flags(buf, NO_SIGNAL)
}

/// Writes at most [`MAX_BUFFERS`] buffers, without `SIGPIPE`.
pub(super) fn write_vectored(
    socket: &impl AsFd,
    bufs: &[std::io::IoSlice<'_>],
) -> std::io::Result<usize> {
    let bufs = &bufs[..bufs.len().min(MAX_BUFFERS)];
    SockRef::from(socket).send_vectored_with_flags(bufs, NO_SIGNAL)
}

/// Defines the inherent methods, the `futures::io` traits and the halves of a stream over `$std`. A
/// read that returns fewer bytes than requested counts as `$partial`.
macro_rules! stream {
    ($stream:ident, $std:ty, $read_half:ident, $write_half:ident, $partial:expr) => {
        impl $stream {
            /// Converts a standard library stream and makes it non-blocking; see [an
            /// example](crate::guide::sockets#homes).
            ///
            /// # Errors
            ///
            /// Returns an error if it cannot be made non-blocking.
            pub fn from_std(stream: $std) -> std::io::Result<$stream> {
                Ok($stream {
                    io: Registered::new(stream)?,
                })
            }

            /// Converts into the standard library's stream, which stays non-blocking.
            pub fn into_std(self) -> $std {
                self.io.into_inner()
            }

            /// Returns the loop that the stream is registered with, if any.
            pub fn event_loop(&self) -> Option<EventLoop> {
                self.io.event_loop()
            }

            /// Moves the stream to another loop.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::migrate_to`].
            ///
            /// # Examples
            ///
            /// ```
            /// use loopgroup::{EventLoopGroup, net::UnixStream};
            ///
            /// let group = EventLoopGroup::new(2)?;
            /// let (mut stream, _other) = UnixStream::pair()?; // a TcpStream does the same
            /// group.block_on(stream.migrate_to(&group.loops()[1]))?;
            /// assert_eq!(stream.event_loop().as_ref(), Some(&group.loops()[1]));
            /// # std::io::Result::Ok(())
            /// ```
            pub async fn migrate_to(&mut self, event_loop: &EventLoop) -> std::io::Result<()> {
                self.io.migrate_to(event_loop).await
            }

            /// Waits until there is data to read, or the peer has closed the connection.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`].
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: nothing is consumed.
            ///
            /// # Examples
            ///
            /// ```
            /// use futures::io::AsyncWriteExt;
            /// use loopgroup::net::UnixStream; // a TcpStream does the same
            ///
            /// loopgroup::run(async {
            ///     let (ours, mut theirs) = UnixStream::pair()?;
            ///     ours.writable().await?; // the send buffer has room
            ///     theirs.write_all(b"!").await?;
            ///     ours.readable().await // there is data
            /// })??;
            /// # std::io::Result::Ok(())
            /// ```
            pub async fn readable(&self) -> std::io::Result<()> {
                self.io.readable().await
            }

            /// Waits until there is room to write, or the peer has closed the connection.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`].
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: nothing is consumed.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.io.writable().await
            }

            /// Tries an operation on the standard library's stream; see [`Registered::try_io`], and [an
            /// example](crate::guide::sockets#look-before-reading).
            ///
            /// # Errors
            ///
            /// `WouldBlock` if the socket is not ready; otherwise the error of `operation`.
            pub fn try_io<R>(
                &self,
                interest: Interest,
                operation: impl FnOnce(&$std) -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.io.try_io(interest, operation)
            }

            /// Shuts down the read half, the write half, or both.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            ///
            /// # Examples
            ///
            /// ```
            /// use futures::io::AsyncReadExt;
            /// use loopgroup::net::UnixStream; // a TcpStream does the same
            ///
            /// loopgroup::run(async {
            ///     let (ours, mut theirs) = UnixStream::pair()?;
            ///     ours.shutdown(std::net::Shutdown::Write)?;
            ///     assert_eq!(theirs.read(&mut [0]).await?, 0); // end of stream
            ///     std::io::Result::Ok(())
            /// })??;
            /// # std::io::Result::Ok(())
            /// ```
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                self.io.get_ref().shutdown(how)
            }

            /// Returns and clears the pending error of the socket (`SO_ERROR`).
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.io.get_ref().take_error()
            }

            /// Splits the stream into halves for use by different tasks, without a lock.
            ///
            /// Dropping the write half shuts down the write direction.
            ///
            /// # Examples
            ///
            /// ```
            /// use futures::io::{AsyncReadExt, AsyncWriteExt};
            /// use loopgroup::net::UnixStream; // a TcpStream does the same
            ///
            /// loopgroup::run(async {
            ///     let (ours, theirs) = UnixStream::pair()?;
            ///     let (mut read, mut write) = ours.into_split();
            ///     let echo = loopgroup::spawn_local(async move {
            ///         futures::io::copy(&theirs, &mut &theirs).await
            ///     });
            ///     write.write_all(b"hello").await?;
            ///     drop(write); // shuts down this direction, which ends the echo
            ///     let mut text = String::new();
            ///     read.read_to_string(&mut text).await?;
            ///     assert_eq!((text.as_str(), echo.await??), ("hello", 5));
            ///     std::io::Result::Ok(())
            /// })??;
            /// # std::io::Result::Ok(())
            /// ```
            pub fn into_split(self) -> ($read_half, $write_half) {
                let stream = std::sync::Arc::new(self);
                let read = $read_half(std::sync::Arc::clone(&stream));
                (read, $write_half { stream, open: true })
            }

            /// Returns what ends its reads, or limits its time, from elsewhere.
            pub(super) fn control(&self) -> crate::io::control::Control {
                self.io.control()
            }

            /// Registers it with this thread's loop now, not when it first has to wait.
            pub(super) fn register(&self) -> std::io::Result<()> {
                self.io.register()
            }

            fn poll_read_shared(
                &self,
                cx: &mut Context<'_>,
                mut read: impl FnMut(&$std) -> std::io::Result<usize>,
                requested: usize,
            ) -> Poll<std::io::Result<usize>> {
                // The end of the stream is not a short read: the stream stays readable.
                let short = |&n: &usize| {
                    let partial = n > 0 && n < requested;
                    if partial { $partial } else { Short::No }
                };
                // A server that shuts down ends the reads of its connections.
                let end = || Ok(0);
                self.io.poll_io_or(Direction::Read, cx, &mut read, short, end)
            }

            fn poll_write_shared(
                &self,
                cx: &mut Context<'_>,
                mut write: impl FnMut(&$std) -> std::io::Result<usize>,
                requested: usize,
            ) -> Poll<std::io::Result<usize>> {
                let short = |&n: &usize| if n < requested { Short::Yes } else { Short::No };
                self.io.poll_io(Direction::Write, cx, &mut write, short)
            }
        }

        impl AsyncRead for &$stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<std::io::Result<usize>> {
                let requested = buf.len();
                self.poll_read_shared(cx, |mut stream| stream.read(buf), requested)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> Poll<std::io::Result<usize>> {
                let requested = requested(bufs.iter().map(|buf| buf.len()));
                self.poll_read_shared(cx, |mut stream| stream.read_vectored(bufs), requested)
            }
        }

        impl AsyncWrite for &$stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<std::io::Result<usize>> {
                self.poll_write_shared(cx, |stream| write(stream, buf), buf.len())
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> Poll<std::io::Result<usize>> {
                let requested = requested(bufs.iter().map(|buf| buf.len()));
                self.poll_write_shared(cx, |stream| write_vectored(stream, bufs), requested)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                // Writes are not buffered here.
                Poll::Ready(Ok(()))
            }

            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                Poll::Ready(match self.shutdown(std::net::Shutdown::Write) {
                    // The peer has closed the connection first.
                    Err(error) if error.kind() == std::io::ErrorKind::NotConnected => Ok(()),
                    result => result,
                })
            }
        }

        stream!(@delegate $stream, |this| &mut &*this);

        /// The read half of a stream.
        ///
        #[doc = concat!("See [`into_split`](", stringify!($stream), "::into_split).")]
        ///
        /// # Examples
        ///
        /// ```
        /// let (ours, _theirs) = loopgroup::net::UnixStream::pair()?; // a TcpStream does the same
        /// let (read, _write) = ours.into_split();
        /// assert!(read.as_ref().take_error()?.is_none()); // the shared stream
        /// # std::io::Result::Ok(())
        /// ```
        #[derive(Debug)]
        pub struct $read_half(std::sync::Arc<$stream>);

        /// The write half of a stream; dropping it shuts down the write direction.
        ///
        #[doc = concat!("See [`into_split`](", stringify!($stream), "::into_split).")]
        ///
        /// # Examples
        ///
        /// ```
        /// use futures::io::AsyncReadExt;
        ///
        /// let (ours, mut theirs) = loopgroup::net::UnixStream::pair()?; // a TcpStream does the same
        /// let (_read, write) = ours.into_split();
        /// drop(write);
        /// let end = loopgroup::run(async { theirs.read(&mut [0]).await })?;
        /// assert_eq!(end?, 0); // end of stream
        /// # std::io::Result::Ok(())
        /// ```
        #[derive(Debug)]
        pub struct $write_half {
            stream: std::sync::Arc<$stream>,
            /// Whether the drop shuts down the write direction.
            open: bool,
        }

        impl $read_half {
            /// Reunites the halves into the stream.
            ///
            /// # Errors
            ///
            /// Returns both halves if they do not belong to the same stream.
            ///
            /// # Examples
            ///
            /// ```
            /// let (ours, theirs) = loopgroup::net::UnixStream::pair()?; // a TcpStream does the same
            /// let (read, write) = ours.into_split();
            /// let (other_read, _other_write) = theirs.into_split();
            /// let (_, write) = other_read.reunite(write).unwrap_err(); // of different streams
            /// assert!(read.reunite(write).is_ok());
            /// # std::io::Result::Ok(())
            /// ```
            pub fn reunite(
                self,
                mut write: $write_half,
            ) -> Result<$stream, ($read_half, $write_half)> {
                if !std::sync::Arc::ptr_eq(&self.0, &write.stream) {
                    return Err((self, write));
                }
                write.open = false;
                drop(write);
                Ok(std::sync::Arc::into_inner(self.0).expect("the write half was just dropped"))
            }
        }

        impl AsRef<$stream> for $read_half {
            fn as_ref(&self) -> &$stream {
                &self.0
            }
        }

        impl AsRef<$stream> for $write_half {
            fn as_ref(&self) -> &$stream {
                &self.stream
            }
        }

        impl Drop for $write_half {
            fn drop(&mut self) {
                if self.open {
                    let _ = self.stream.shutdown(std::net::Shutdown::Write);
                }
            }
        }

        stream!(@read $read_half, |this| &mut &*this.0);
        stream!(@write $write_half, |this| &mut &*this.stream);
    };

    (@delegate $type:ident, |$this:ident| $inner:expr) => {
        stream!(@read $type, |$this| $inner);
        stream!(@write $type, |$this| $inner);
    };

    (@read $type:ident, |$this:ident| $inner:expr) => {
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<std::io::Result<usize>> {
                let $this = self.into_ref().get_ref();
                Pin::new($inner).poll_read(cx, buf)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> Poll<std::io::Result<usize>> {
                let $this = self.into_ref().get_ref();
                Pin::new($inner).poll_read_vectored(cx, bufs)
            }
        }
    };

    (@write $type:ident, |$this:ident| $inner:expr) => {
        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<std::io::Result<usize>> {
                let $this = self.into_ref().get_ref();
                Pin::new($inner).poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> Poll<std::io::Result<usize>> {
                let $this = self.into_ref().get_ref();
                Pin::new($inner).poll_write_vectored(cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                let $this = self.into_ref().get_ref();
                Pin::new($inner).poll_flush(cx)
            }

            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                let $this = self.into_ref().get_ref();
                Pin::new($inner).poll_close(cx)
            }
        }
    };
}

pub(super) use stream;
