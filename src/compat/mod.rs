//! At home among other crates: their traits on our types, one file per crate.
//!
//! | crate | feature | what it gets |
//! |---|---|---|
//! | futures | always | `AsyncRead`, `AsyncWrite` on streams, halves and `&stream`; `Spawn` on [`EventLoopGroup`] and [`EventLoop`], `LocalSpawn` on [`EventLoop`]; `FusedFuture` on [`JoinHandle`] |
//! | tokio | `tokio-io` | `AsyncRead`, `AsyncWrite` on the same types: tokio-rustls, h2, tokio-util's codecs, tokio-tungstenite |
//! | hyper | `hyper` | `Read`, `Write` on the same types; `Executor` on [`EventLoopGroup`] and [`EventLoop`]; `compat::hyper::{LocalExecutor, Timer}` |
//!
//! Nothing here starts another runtime: `tokio-io` and `hyper` take traits from crates without their runtimes.
//!
//! ```
//! use loopgroup::net::UnixStream;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! loopgroup::run(async {
//!     let (mut one, mut other) = UnixStream::pair()?;
//!     one.write_all(b"hello").await?;
//!     AsyncWriteExt::shutdown(&mut one).await?; // by its full name: streams have a `shutdown` of their own
//!     let mut text = String::new();
//!     other.read_to_string(&mut text).await?;
//!     assert_eq!(text, "hello");
//!     std::io::Result::Ok(())
//! })??;
//! # std::io::Result::Ok(())
//! ```
//!
//! Channels and locks of any crate (futures, async-channel, flume, event-listener, `tokio::sync`) need no adaptor:
//! whoever wakes a task, from any thread, it goes on at home.
//!
//! Clients that want a runtime of tokio around them find one if each loop's thread has entered it: with a
//! `static TOKIO: LazyLock<Runtime>`, that is
//! [`on_thread_start`](crate::Builder::on_thread_start)`(|_| TOKIO.enter())`. The other way round, the handles of a
//! group are futures that a task of any runtime may await.
//!
//! Away from a loop a read or write that has to wait is an error, and a timer panics; after a shutdown a stream is
//! closed, and what an executor is given is dropped and counted as rejected. None waits for ever.
//!
//! The repository's `examples/ecosystem` has hyper, axum, rustls, WebSockets, QUIC and tokio side by side at work.
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
