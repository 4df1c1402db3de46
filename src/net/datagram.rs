//! The common methods of UDP and Unix datagram sockets.
//!
//! - A datagram is sent or received whole, by one system call: any number of tasks may send and receive
//!   on one socket.
//! - What differs stays with each type: addresses, and how a socket sends to a peer that it is not
//!   connected to.

/// Defines the operations of a datagram socket over `$std` whose addresses are `$addr`.
macro_rules! datagram {
    ($socket:ident, $std:ty, $addr:ty) => {
        impl $socket {
            /// Returns the local address that this socket is bound to.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            pub fn local_addr(&self) -> std::io::Result<$addr> {
                self.io.get_ref().local_addr()
            }

            /// Returns the address of the connected peer.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system; `NotConnected` if the socket is not connected.
            pub fn peer_addr(&self) -> std::io::Result<$addr> {
                self.io.get_ref().peer_addr()
            }

            /// Sends a datagram to the connected peer.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system; `ConnectionRefused` may refer to an earlier
            /// datagram.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: the datagram is sent whole or not at all.
            pub async fn send(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.io
                    .io(Direction::Write, |socket| socket.send(buf))
                    .await
            }

            /// Receives a datagram from the connected peer.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: no datagram is lost.
            pub async fn recv(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.io.io(Direction::Read, |socket| socket.recv(buf)).await
            }

            /// Receives a datagram and returns the address of its sender.
            ///
            /// # Errors
            ///
            /// Returns any error from the operating system.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: no datagram is lost.
            pub async fn recv_from(&self, buf: &mut [u8]) -> std::io::Result<(usize, $addr)> {
                self.io
                    .io(Direction::Read, |socket| socket.recv_from(buf))
                    .await
            }

            /// Tries to send a datagram to the connected peer, without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room: wait with [`writable`](Self::writable), and try again.
            /// Otherwise any error from the operating system.
            ///
            /// # Examples
            ///
            /// ```
            /// use loopgroup::net::UnixDatagram; // a UdpSocket does the same
            /// use std::io::ErrorKind;
            ///
            /// let (one, other) = UnixDatagram::pair()?;
            /// let mut buf = [0; 8];
            /// assert_eq!(other.try_recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
            /// one.try_send(b"hello")?;
            /// assert_eq!(other.try_recv(&mut buf)?, 5);
            /// # std::io::Result::Ok(())
            /// ```
            pub fn try_send(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.io
                    .try_io(Interest::WRITABLE, |socket| socket.send(buf))
            }

            /// Tries to receive a datagram from the connected peer, without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is none: wait with [`readable`](Self::readable), and try again.
            /// Otherwise any error from the operating system.
            pub fn try_recv(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.io
                    .try_io(Interest::READABLE, |socket| socket.recv(buf))
            }

            /// Tries to receive a datagram, without waiting, and returns the address of its sender.
            ///
            /// # Errors
            ///
            /// The same as [`try_recv`](Self::try_recv).
            pub fn try_recv_from(&self, buf: &mut [u8]) -> std::io::Result<(usize, $addr)> {
                self.io
                    .try_io(Interest::READABLE, |socket| socket.recv_from(buf))
            }

            /// Polls to send a datagram to the connected peer; of the tasks that poll to send, only the
            /// last is woken.
            ///
            /// # Errors
            ///
            /// The same as [`send`](Self::send).
            ///
            /// # Examples
            ///
            /// ```
            /// use loopgroup::net::UnixDatagram; // a UdpSocket does the same
            /// use std::future::poll_fn;
            ///
            /// loopgroup::run(async {
            ///     let (one, other) = UnixDatagram::pair()?;
            ///     poll_fn(|cx| one.poll_send(cx, b"hello")).await?;
            ///     let mut buf = [0; 8];
            ///     assert_eq!(poll_fn(|cx| other.poll_recv(cx, &mut buf)).await?, 5);
            ///     std::io::Result::Ok(())
            /// })??;
            /// # std::io::Result::Ok(())
            /// ```
            pub fn poll_send(
                &self,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<std::io::Result<usize>> {
                let send = |socket: &crate::net::behind::Behind<$std>| socket.send(buf);
                self.io.poll_io(Direction::Write, cx, send, |_| Short::No)
            }

            /// Polls to receive a datagram from the connected peer; of the tasks that poll to receive,
            /// only the last is woken.
            ///
            /// # Errors
            ///
            /// The same as [`recv`](Self::recv).
            pub fn poll_recv(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<std::io::Result<usize>> {
                let recv = |socket: &crate::net::behind::Behind<$std>| socket.recv(buf);
                self.io.poll_io(Direction::Read, cx, recv, |_| Short::No)
            }

            /// Polls to receive a datagram with the address of its sender; of the tasks that poll to
            /// receive, only the last is woken.
            ///
            /// # Errors
            ///
            /// The same as [`recv_from`](Self::recv_from).
            pub fn poll_recv_from(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<std::io::Result<(usize, $addr)>> {
                let recv = |socket: &crate::net::behind::Behind<$std>| socket.recv_from(buf);
                self.io.poll_io(Direction::Read, cx, recv, |_| Short::No)
            }

            /// Polls until there is room to send; of the tasks that poll to send, only the last is woken.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`].
            pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                self.io.poll_writable(cx)
            }

            /// Polls until there is a datagram; of the tasks that poll to receive, only the last is
            /// woken.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`].
            pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                self.io.poll_readable(cx)
            }
        }

        impl std::fmt::Debug for $socket {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($socket))
                    .field(&self.local_addr())
                    .finish()
            }
        }
    };
}

pub(super) use datagram;
