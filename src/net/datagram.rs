//! The common methods of UDP and Unix datagram sockets.
//!
//! - A datagram is sent or received whole, by one system call: any number of tasks may send and receive
//!   on one socket.
//! - What differs stays with each type: addresses, and how a socket sends to a peer that it is not
//!   connected to.

/// Defines the operations of a datagram socket whose addresses are `$addr`.
macro_rules! datagram {
    ($socket:ident, $addr:ty) => {
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
