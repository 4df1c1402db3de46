//! The common implementation of TCP and Unix streams.
//!
//! - A short `read` or `write` on a registered stream clears its readiness, which saves the system call
//!   that would return `WouldBlock`. Reads of a Unix stream do not: they also stop at a passed
//!   descriptor, or where the data of another sender begins, with more data behind.
//! - The halves share the stream through an `Arc` and take no lock: each direction is one system call
//!   on a shared reference.

/// The outcome of a read that has failed: the end of the stream if a server has ended its reads. (The system
/// does not return this kind.)
pub(super) fn end_of_stream(error: std::io::Error) -> std::io::Result<usize> {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Ok(0),
        _ => Err(error),
    }
}

/// Defines the methods, the `futures::io` traits and the halves of a stream over `$std`, whose addresses
/// are `$addr`. A read that returns fewer bytes than requested counts as `$partial`.
macro_rules! stream {
    (
        $stream:ident,
        $std:ty,
        $addr:ty,
        $read_half:ident,
        $write_half:ident,
        $partial:expr
    ) => {
        impl $stream {
            /// Returns the address of the peer.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn peer_addr(&self) -> std::io::Result<$addr> {
                self.io.get_ref().peer_addr()
            }

            /// Returns the local address.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn local_addr(&self) -> std::io::Result<$addr> {
                self.io.get_ref().local_addr()
            }

            /// Tries to read, without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is nothing to read: wait with [`readable`](Self::readable), and try
            /// again. Otherwise any error from the operating system.
            ///
            /// # Examples
            ///
            /// ```
            /// use loopgroup::net::UnixStream; // a TcpStream does the same
            /// use std::io::ErrorKind;
            ///
            /// loopgroup::run(async {
            ///     let (ours, theirs) = UnixStream::pair()?;
            ///     let mut buf = [0; 8];
            ///     assert_eq!(ours.try_read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
            ///     assert_eq!(theirs.try_write(b"hello")?, 5);
            ///     loop {
            ///         ours.readable().await?;
            ///         match ours.try_read(&mut buf) {
            ///             Err(error) if error.kind() == ErrorKind::WouldBlock => {} // readiness is a hint
            ///             read => return read,
            ///         }
            ///     }
            /// })
            /// .map(|read| assert_eq!(read.unwrap(), 5))?;
            /// # std::io::Result::Ok(())
            /// ```
            pub fn try_read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.io
                    .try_io(Interest::READABLE, |stream| stream.read(buf))
                    .or_else(end_of_stream)
            }

            /// Tries to read into several buffers, without waiting.
            ///
            /// # Errors
            ///
            /// The same as [`try_read`](Self::try_read).
            pub fn try_read_vectored(
                &self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.io
                    .try_io(Interest::READABLE, |stream| stream.read_vectored(bufs))
                    .or_else(end_of_stream)
            }

            /// Tries to write, without waiting; returns how many bytes the system has taken.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room: wait with [`writable`](Self::writable), and try again.
            /// Otherwise any error from the operating system.
            pub fn try_write(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.io
                    .try_io(Interest::WRITABLE, |stream| stream.write(buf))
            }

            /// Tries to write several buffers, without waiting.
            ///
            /// # Errors
            ///
            /// The same as [`try_write`](Self::try_write).
            pub fn try_write_vectored(
                &self,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.io
                    .try_io(Interest::WRITABLE, |stream| stream.write_vectored(bufs))
            }

            /// Polls until there is data to read, or the peer has closed the connection. It shares its
            /// waker with the reads of this stream: only the last task that polls is woken.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`].
            ///
            /// # Examples
            ///
            /// ```
            /// use loopgroup::net::UnixStream; // a TcpStream does the same
            /// use std::future::poll_fn;
            ///
            /// loopgroup::run(async {
            ///     let (ours, theirs) = UnixStream::pair()?;
            ///     poll_fn(|cx| theirs.poll_write_ready(cx)).await?;
            ///     theirs.try_write(b"hello")?;
            ///     poll_fn(|cx| ours.poll_read_ready(cx)).await
            /// })??;
            /// # std::io::Result::Ok(())
            /// ```
            pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                self.io.poll_readable(cx)
            }

            /// Polls until there is room to write, or the peer has closed the connection. It shares its
            /// waker with the writes of this stream: only the last task that polls is woken.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`].
            pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                self.io.poll_writable(cx)
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

            /// Registers it with no loop, until it next has to wait.
            pub(super) fn detach(&mut self) {
                self.io.detach();
            }

            /// Has the selector look whether there is more to read, if that is not known.
            pub(super) fn look_again(&self) {
                self.io.look_again(Direction::Read);
            }

            fn poll_read_shared(
                &self,
                cx: &mut Context<'_>,
                mut read: impl FnMut(&crate::net::behind::Behind<$std>) -> std::io::Result<usize>,
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
                mut write: impl FnMut(&crate::net::behind::Behind<$std>) -> std::io::Result<usize>,
                requested: usize,
            ) -> Poll<std::io::Result<usize>> {
                let short = |&n: &usize| if n < requested { Short::Yes } else { Short::No };
                self.io.poll_io(Direction::Write, cx, &mut write, short)
            }
        }

        impl std::fmt::Debug for $stream {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($stream))
                    .field("local", &self.local_addr().ok())
                    .field("peer", &self.peer_addr().ok())
                    .finish()
            }
        }

        impl AsyncRead for &$stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<std::io::Result<usize>> {
                let requested = buf.len();
                self.poll_read_shared(cx, |stream| stream.read(buf), requested)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> Poll<std::io::Result<usize>> {
                let requested = requested(bufs.iter().map(|buf| buf.len()));
                self.poll_read_shared(cx, |stream| stream.read_vectored(bufs), requested)
            }
        }

        impl AsyncWrite for &$stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<std::io::Result<usize>> {
                self.poll_write_shared(cx, |stream| stream.write(buf), buf.len())
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> Poll<std::io::Result<usize>> {
                let requested = requested(bufs.iter().map(|buf| buf.len()));
                self.poll_write_shared(cx, |stream| stream.write_vectored(bufs), requested)
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

            /// Waits until there is data to read, or the peer has closed the connection.
            ///
            /// Errors and cancel safety are those of the stream's method.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.0.readable().await
            }

            /// Tries to read, without waiting; the same as the stream's method.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is nothing to read; otherwise any error from the operating system.
            ///
            /// # Examples
            ///
            /// ```
            /// let (ours, theirs) = loopgroup::net::UnixStream::pair()?; // a TcpStream does the same
            /// let (read, _write) = ours.into_split();
            /// let (_read, write) = theirs.into_split();
            /// write.try_write(b"hello")?;
            /// assert_eq!(read.try_read(&mut [0; 8])?, 5);
            /// # std::io::Result::Ok(())
            /// ```
            pub fn try_read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.0.try_read(buf)
            }

            /// Tries to read into several buffers, without waiting; the same as the stream's method.
            ///
            /// # Errors
            ///
            /// The same as [`try_read`](Self::try_read).
            pub fn try_read_vectored(
                &self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.try_read_vectored(bufs)
            }
        }

        impl $write_half {
            /// Drops the half without shutting down the write direction: the connection stays open as
            /// long as the read half lives.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::io::ErrorKind;
            ///
            /// let (ours, theirs) = loopgroup::net::UnixStream::pair()?; // a TcpStream does the same
            /// let (_read, write) = ours.into_split();
            /// write.forget();
            /// let nothing = theirs.try_read(&mut [0]).unwrap_err();
            /// assert_eq!(nothing.kind(), ErrorKind::WouldBlock); // not the end of the stream
            /// # std::io::Result::Ok(())
            /// ```
            pub fn forget(mut self) {
                self.open = false;
            }

            /// Waits until there is room to write, or the peer has closed the connection.
            ///
            /// Errors and cancel safety are those of the stream's method.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.stream.writable().await
            }

            /// Tries to write, without waiting; the same as the stream's method.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room; otherwise any error from the operating system.
            pub fn try_write(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.stream.try_write(buf)
            }

            /// Tries to write several buffers, without waiting; the same as the stream's method.
            ///
            /// # Errors
            ///
            /// The same as [`try_write`](Self::try_write).
            pub fn try_write_vectored(
                &self,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.stream.try_write_vectored(bufs)
            }
        }

        stream!(@half $read_half, $stream, $addr);
        stream!(@half $write_half, $stream, $addr);

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

    (@half $half:ident, $stream:ident, $addr:ty) => {
        impl $half {
            /// Waits until the stream is ready for one of the interests at least, and returns what it is
            /// ready for, of these.
            ///
            /// Errors and cancel safety are those of the stream's method.
            pub async fn ready(&self, interest: Interest) -> std::io::Result<crate::io::Ready> {
                <Self as AsRef<$stream>>::as_ref(self).ready(interest).await
            }

            /// Returns the address of the peer.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn peer_addr(&self) -> std::io::Result<$addr> {
                <Self as AsRef<$stream>>::as_ref(self).peer_addr()
            }

            /// Returns the local address.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn local_addr(&self) -> std::io::Result<$addr> {
                <Self as AsRef<$stream>>::as_ref(self).local_addr()
            }
        }
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
