//! Sockets with a home loop.
//!
//! A socket belongs to the loop that first had to wait for it; a fresh one may be handed to any loop
//! before that, and [`migrate_to`](TcpStream::migrate_to) moves it later. Reads and writes go straight
//! to the system; only what would block waits in the loop's selector, which reports edges.
//!
//! Streams implement the traits of `futures::io`, on the value and on a shared reference. One task at a time
//! may read from a stream and one may write to it: of two that wait in the same direction only the last is woken.
//! Datagrams, `accept`, `incoming`, `readable` and `writable` may be awaited by any number of tasks: a datagram or a
//! connection wakes one that waits for it, in the order in which they came, however many they are.
//!
//! ```
//! use futures::io::{AsyncReadExt, AsyncWriteExt};
//! use loopgroup::net::{TcpListener, TcpStream};
//!
//! loopgroup::run(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     let echo = loopgroup::spawn_local(async move {
//!         let (stream, _) = listener.accept().await?;
//!         futures::io::copy(&stream, &mut &stream).await
//!     });
//!     let mut stream = TcpStream::connect(address).await?;
//!     stream.write_all(b"hello").await?;
//!     stream.close().await?; // our half: the echo ends with it
//!     let mut text = String::new();
//!     stream.read_to_string(&mut text).await?;
//!     assert_eq!(text, "hello");
//!     assert_eq!(echo.await??, 5);
//!     std::io::Result::Ok(())
//! })??;
//! # std::io::Result::Ok(())
//! ```
//!
//! Unix only: that is where it is tested.

/// Lends the descriptors, for options that have no method here.
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

mod addr;
mod backoff;
#[cfg(all(feature = "peer-cred", target_os = "linux"))]
mod credentials;
mod incoming;
mod server;
mod stream;
mod tcp;
mod udp;
mod unix;
mod unix_datagram;

pub use addr::ToSocketAddrs;
#[cfg(all(feature = "peer-cred", target_os = "linux"))]
#[cfg_attr(docsrs, doc(cfg(feature = "peer-cred")))]
pub use credentials::UCred;
pub use incoming::Incoming;
pub use server::{Server, ServerHandle, ServerReport};
pub use tcp::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixIncoming, UnixListener, UnixOwnedReadHalf, UnixOwnedWriteHalf, UnixStream};
pub use unix_datagram::UnixDatagram;
