//! Integration with other crates: implementations of their traits, one file per crate.
//!
//! - **futures** (always): `AsyncRead`, `AsyncWrite` for streams, halves and `&stream`; `Spawn` for
//!   [`EventLoopGroup`] and [`EventLoop`], `LocalSpawn` for [`EventLoop`]; `FusedFuture` for [`JoinHandle`].
//! - **tokio** (feature `tokio-io`): `AsyncRead`, `AsyncWrite` for the same types, as used by tokio-rustls,
//!   h2, tokio-util's codecs and tokio-tungstenite.
//! - **hyper** (feature `hyper`): servers for hyper, tower and axum in one line; `Read`, `Write` for the same
//!   types; `Executor` for [`EventLoopGroup`] and [`EventLoop`]; `compat::hyper::{LocalExecutor, Timer}`.
//! - **hyper-util** (feature `hyper-client`): its pooled client, by `compat::hyper::{client, Connector}`.
//!
//! Nothing here starts another runtime: of tokio, only traits and channels are used. (hyper-util's client
//! has cargo compile tokio's `rt` and `net`, which is why it has a feature of its own.)
//!
//! ```
//! use loopgroup::net::UnixStream;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! loopgroup::run(async {
//!     let (mut one, mut other) = UnixStream::pair()?;
//!     one.write_all(b"hello").await?;
//!     AsyncWriteExt::shutdown(&mut one).await?; // streams also have an inherent `shutdown`
//!     let mut text = String::new();
//!     other.read_to_string(&mut text).await?;
//!     assert_eq!(text, "hello");
//!     std::io::Result::Ok(())
//! })??;
//! # std::io::Result::Ok(())
//! ```
//!
//! Channels and locks of any crate (futures, async-channel, flume, event-listener, `tokio::sync`) need no
//! adaptor: a task may be woken from any thread, and always runs on its own loop.
//!
//! Clients that require a tokio runtime context find one if each loop's thread has entered it: with a
//! `static TOKIO: LazyLock<Runtime>`, that is [`on_thread_start`](crate::Builder::on_thread_start)`(|_|
//! TOKIO.enter())`. Conversely, the handles of a group are futures that a task of any runtime may
//! await.
//!
//! Outside of a loop, a read or write that has to wait returns an error, and a timer panics. After a
//! shutdown, streams are closed, and futures passed to an executor are dropped and counted as rejected.
//! None of these hangs.
//!
//! The repository's `examples/ecosystem` shows hyper, axum, rustls, WebSockets, QUIC and tokio in use.
//!
//! [`EventLoop`]: crate::EventLoop
//! [`EventLoopGroup`]: crate::EventLoopGroup
//! [`JoinHandle`]: crate::JoinHandle

mod futures_traits;
#[cfg(feature = "hyper")]
#[cfg_attr(docsrs, doc(cfg(feature = "hyper")))]
pub mod hyper;
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
mod streams;
#[cfg(feature = "tokio-io")]
mod tokio_io;
