//! The common methods of all sockets over a type of the standard library.
//!
//! - `socket!` is expanded once for each type, beside its declaration: the field `io` is a
//!   [`Registered`](crate::io::Registered) of the standard library's socket, or of a simulated one
//!   ([`Behind`](super::behind::Behind)).
//! - Every method forwards to `Registered`: readiness, homes and budgets are its business.

/// Implements `AsFd` and `AsRawFd`, for socket options that have no method here.
macro_rules! descriptors {
    ($($type:ty),*) => {$(
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.io.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsFd::as_fd(self).as_raw_fd()
            }
        }
    )*};
}

/// Implements `TryFrom`, which is `from_std` for generic code.
macro_rules! try_from_std {
    ($socket:ident, $std:ty) => {
        impl TryFrom<$std> for $socket {
            type Error = std::io::Error;

            #[doc = concat!("The same as [`from_std`](", stringify!($socket), "::from_std).")]
            fn try_from(socket: $std) -> std::io::Result<$socket> {
                $socket::from_std(socket)
            }
        }
    };
}

/// Defines the methods that every socket over `$std` has, and its descriptor traits.
macro_rules! socket {
    ($socket:ident, $std:ty) => {
        impl $socket {
            /// Converts a socket of the standard library and makes it non-blocking; see [an
            /// example](crate::guide::sockets#homes).
            ///
            /// # Errors
            ///
            /// Returns an error if it cannot be made non-blocking.
            pub fn from_std(socket: $std) -> std::io::Result<$socket> {
                socket2::SockRef::from(&socket).set_nonblocking(true)?;
                Ok($socket {
                    io: crate::net::behind::Behind::nonblocking(socket),
                })
            }

            /// Converts into the standard library's socket, which stays non-blocking.
            pub fn into_std(self) -> $std {
                self.io.into_inner().into_system()
            }

            /// Returns the loop that the socket is registered with, if any.
            pub fn event_loop(&self) -> Option<crate::event_loop::handle::EventLoop> {
                self.io.event_loop()
            }

            /// Moves the socket to another loop.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::migrate_to`](crate::io::Registered::migrate_to).
            ///
            /// # Examples
            ///
            /// ```
            /// use loopgroup::{EventLoopGroup, net::UnixStream};
            ///
            /// let group = EventLoopGroup::new(2)?;
            /// let (mut socket, _other) = UnixStream::pair()?; // every socket does the same
            /// group.block_on(socket.migrate_to(&group.loops()[1]))?;
            /// assert_eq!(socket.event_loop().as_ref(), Some(&group.loops()[1]));
            /// # std::io::Result::Ok(())
            /// ```
            pub async fn migrate_to(
                &mut self,
                event_loop: &crate::event_loop::handle::EventLoop,
            ) -> std::io::Result<()> {
                self.io.migrate_to(event_loop).await
            }

            /// Waits until there is data to read, or the peer has closed the connection.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`](crate::io::Registered::readable).
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: nothing is consumed.
            ///
            /// # Examples
            ///
            /// ```
            /// use futures::io::AsyncWriteExt;
            /// use loopgroup::net::UnixStream; // every socket does the same
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
            /// The same as [`Registered::readable`](crate::io::Registered::readable).
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: nothing is consumed.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.io.writable().await
            }

            /// Waits until the socket is ready for one of the interests at least, and returns what it is
            /// ready for, of these.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`](crate::io::Registered::readable).
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: nothing is consumed.
            ///
            /// # Examples
            ///
            /// ```
            /// use loopgroup::{io::Interest, net::UnixStream}; // every socket does the same
            ///
            /// loopgroup::run(async {
            ///     let (ours, _theirs) = UnixStream::pair()?;
            ///     let ready = ours.ready(Interest::READABLE | Interest::WRITABLE).await?;
            ///     assert!(ready.is_writable() && !ready.is_readable());
            ///     std::io::Result::Ok(())
            /// })??;
            /// # std::io::Result::Ok(())
            /// ```
            pub async fn ready(
                &self,
                interest: crate::io::interest::Interest,
            ) -> std::io::Result<crate::io::ready::Ready> {
                self.io.ready(interest).await
            }

            /// Tries an operation on the standard library's socket if that is, or may be, ready for it;
            /// see [`Registered::try_io`](crate::io::Registered::try_io).
            ///
            /// # Errors
            ///
            /// `WouldBlock` if the socket is not ready; otherwise the error of `operation`.
            ///
            /// # Examples
            ///
            /// ```
            /// use loopgroup::{io::Interest, net::UnixDatagram}; // every socket does the same
            ///
            /// let text = loopgroup::run(async {
            ///     let (one, other) = UnixDatagram::pair()?;
            ///     one.send(b"hello").await?;
            ///     let mut buf = [0; 8];
            ///     loop {
            ///         other.readable().await?;
            ///         match other.try_io(Interest::READABLE, |socket| socket.recv(&mut buf)) {
            ///             Ok(len) => return std::io::Result::Ok(buf[..len].to_vec()),
            ///             Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {} // a hint
            ///             Err(error) => return Err(error),
            ///         }
            ///     }
            /// })??;
            /// assert_eq!(text, b"hello");
            /// # std::io::Result::Ok(())
            /// ```
            pub fn try_io<R>(
                &self,
                interest: crate::io::interest::Interest,
                operation: impl FnOnce(&$std) -> std::io::Result<R>,
            ) -> std::io::Result<R> {
                self.io
                    .try_io(interest, |socket| operation(socket.system_only()?))
            }

            /// Returns and clears the pending error of the socket (`SO_ERROR`).
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.io.get_ref().take_error()
            }
        }

        crate::net::socket::descriptors!($socket);
        crate::net::socket::try_from_std!($socket, $std);
    };
}

pub(super) use {descriptors, socket, try_from_std};
