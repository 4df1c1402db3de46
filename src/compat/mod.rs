//! At home among other crates: their traits on our types, one file per crate.
//!
//! | crate | feature | what it gets |
//! |---|---|---|
//! | futures | always | `AsyncRead`, `AsyncWrite` on streams, halves and `&stream`; `Spawn` on [`EventLoopGroup`] and [`EventLoop`], `LocalSpawn` on [`EventLoop`]; `FusedFuture` on [`JoinHandle`] |
//! | tokio | `tokio-io` | `AsyncRead`, `AsyncWrite` on the same types: tokio-rustls, h2, tokio-util's codecs, tokio-tungstenite |
//! | hyper | `hyper` | `Read`, `Write` on the same types; `Executor` on [`EventLoopGroup`] and [`EventLoop`]; `compat::hyper::{LocalExecutor, Timer}` |
//!
//! Nothing here starts another runtime: `tokio-io` and `hyper` take traits from crates without their runtimes.
//! Channels and locks of any crate (futures, async-channel, flume, event-listener, `tokio::sync`) need no adaptor:
//! whoever wakes a task, from any thread, it goes on at home. A runtime of tokio beside a group is found by
//! tokio-only clients if each loop's thread has entered it:
//! `builder.on_thread_start(|_| handle.enter())`-like, with a guard that lives as long as the thread.
//!
//! The repository's `examples/ecosystem` shows hyper, axum, rustls, WebSockets, QUIC and a tokio side by side.
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
