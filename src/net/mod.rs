//! Sockets with a home loop.
//!
//! A socket belongs to the loop that first has to wait for it. Until then it may be handed to any loop;
//! later, [`migrate_to`](TcpStream::migrate_to) moves it. Reads and writes are direct system calls; only
//! an operation that would block waits in the loop's selector, which is edge-triggered.
//!
//! Streams implement the traits of `futures::io`, for the value and for a shared reference. One task at
//! a time may read from a stream and one may write to it: of two tasks that wait in the same direction,
//! only the last is woken. Any number of tasks may await datagrams, `accept`, `incoming`, `readable`
//! and `writable`: a datagram or a connection wakes one task that waits for it, in FIFO order, however
//! many wait.
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
//!     stream.close().await?; // closes our write half, which ends the echo
//!     let mut text = String::new();
//!     stream.read_to_string(&mut text).await?;
//!     assert_eq!(text, "hello");
//!     assert_eq!(echo.await??, 5);
//!     std::io::Result::Ok(())
//! })??;
//! # std::io::Result::Ok(())
//! ```
//!
//! Available on Unix only, where it is tested.

mod addr;
mod address_error;
mod backoff;
mod behind;
mod connect;
#[cfg(all(feature = "peer-cred", target_os = "linux"))]
mod credentials;
mod datagram;
mod incoming;
mod option_values;
pub mod pipe;
mod send;
mod server;
mod socket;
mod stream;
mod tcp;
mod tcp_options;
mod tcp_socket;
mod udp;
mod udp_options;
mod unix;
mod unix_addr;
mod unix_datagram;
mod unix_socket;

pub use addr::{ToSocketAddrs, lookup_host};
pub use address_error::ConnectError;
#[cfg(all(feature = "peer-cred", target_os = "linux"))]
#[cfg_attr(docsrs, doc(cfg(feature = "peer-cred")))]
pub use credentials::UCred;
pub use incoming::Incoming;
#[cfg(feature = "inspect")]
pub(crate) use server::mobile::Decision;
#[cfg(feature = "inspect")]
pub(crate) use server::probe::ServerProbe;
pub use server::{
    ConnectionEnd, ConnectionEvent, IntoListener, Listener, Outcome, Rebalance, ServeError, Server,
    ServerHandle, ServerReport, Turn, TurnOutcome,
};
#[cfg(feature = "hyper")]
pub(crate) use server::{LegEnd, LegStart, Mover};
pub use tcp::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
pub use tcp_socket::TcpSocket;
pub use udp::UdpSocket;
pub use unix::{UnixIncoming, UnixListener, UnixOwnedReadHalf, UnixOwnedWriteHalf, UnixStream};
pub use unix_datagram::UnixDatagram;
pub use unix_socket::UnixSocket;
