//! Readiness of any descriptor, streams in memory, and copying between streams; sockets are in
//! [`net`](crate::net).
//!
//! - [`Registered`] waits until a descriptor is readable or writable.
//! - [`duplex`] is a stream in memory, for tests and between parts of a program.
//! - [`copy_bidirectional`] connects two streams, as a proxy does.
//!
//! ```
//! use loopgroup::io::{Interest, Registered};
//! use std::process::{Command, Stdio};
//! use std::{fs::File, io::Read, os::fd::OwnedFd};
//!
//! // Reads the output of a child process without blocking a thread.
//! let mut child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
//! let text = loopgroup::run(async {
//!     let pipe = OwnedFd::from(child.stdout.take().expect("stdout is piped"));
//!     let output = Registered::new(File::from(pipe))?; // `File` can be read through `&File`
//!     let (mut text, mut buf) = (Vec::new(), [0; 64]);
//!     loop {
//!         output.readable().await?;
//!         match output.try_io(Interest::READABLE, |mut pipe| pipe.read(&mut buf)) {
//!             Ok(0) => return std::io::Result::Ok(text),
//!             Ok(n) => text.extend_from_slice(&buf[..n]),
//!             Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
//!             Err(error) => return Err(error),
//!         }
//!     }
//! })??;
//! assert_eq!(text, b"hello\n");
//! child.wait()?;
//! # std::io::Result::Ok(())
//! ```

pub(crate) mod control;
mod copy;
mod described;
mod duplex;
pub(crate) mod interest;
pub(crate) mod ready;
pub(crate) mod register_error;
pub(crate) mod registered;
pub(crate) mod waiter;
pub(crate) mod watched;

pub use copy::{copy_bidirectional, copy_bidirectional_with_sizes};
pub use duplex::{DuplexStream, duplex};
pub use interest::Interest;
pub use ready::Ready;
pub use register_error::RegisterError;
pub use registered::Registered;
