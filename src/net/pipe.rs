//! Pipes: between parts of a process, to and from children, and by name (FIFOs).
//!
//! - The ends are [`Registered`] files: like a socket, each belongs to the loop that first has to wait for
//!   it.
//! - A short write clears the readiness, because a pipe takes less only if it is full. A short read does
//!   not: a pipe in packet mode returns one packet at a time, with more behind.
//! - The reader sees the end when the last [`Sender`] is dropped. A write after the last [`Receiver`] is
//!   dropped is an error (`BrokenPipe`); Rust programs ignore `SIGPIPE`, which the system also raises.
//!
//! ```
//! use futures::io::{AsyncReadExt, AsyncWriteExt};
//! use loopgroup::net::pipe;
//!
//! loopgroup::run(async {
//!     let (mut sender, mut receiver) = pipe::pipe()?;
//!     sender.write_all(b"hello").await?;
//!     drop(sender); // the end, for the receiver
//!     let mut text = String::new();
//!     receiver.read_to_string(&mut text).await?;
//!     assert_eq!(text, "hello");
//!     std::io::Result::Ok(())
//! })??;
//! # std::io::Result::Ok(())
//! ```

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use socket2::SockRef;

use crate::event_loop::handle::EventLoop;
use crate::io::interest::Interest;
use crate::io::ready::Ready;
use crate::io::registered::{Registered, Short};
use crate::net::send::requested;
use crate::net::socket::descriptors;
use crate::net::stream::stream;
use crate::reactor::direction::Direction;

/// Creates a pipe that has no name.
///
/// # Errors
///
/// Returns any error from the operating system.
///
/// # Examples
///
/// ```
/// let (sender, receiver) = loopgroup::net::pipe::pipe()?;
/// sender.try_write(b"hello")?;
/// assert_eq!(receiver.try_read(&mut [0; 8])?, 5);
/// # std::io::Result::Ok(())
/// ```
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    // mio knows how each system makes one that is non-blocking and that children do not inherit.
    let (sender, receiver) = mio::unix::pipe::new()?;
    let sender = Registered::from_nonblocking(File::from(OwnedFd::from(sender)));
    let receiver = Registered::from_nonblocking(File::from(OwnedFd::from(receiver)));
    Ok((Sender { io: sender }, Receiver { io: receiver }))
}

/// How to open the ends of a FIFO, which has a path.
///
/// # Examples
///
/// ```no_run
/// use futures::io::{AsyncReadExt, AsyncWriteExt};
/// use loopgroup::net::pipe::OpenOptions;
///
/// loopgroup::run(async {
///     // Made by `mkfifo requests`.
///     let mut receiver = OpenOptions::new().open_receiver("requests")?;
///     let mut sender = OpenOptions::new().open_sender("requests")?;
///     sender.write_all(b"hello").await?;
///     receiver.read_exact(&mut [0; 5]).await
/// })??;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read_write: bool,
}

impl OpenOptions {
    /// Creates options with every setting off.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Opens either end for reading and writing, which Linux allows: a sender can be opened before there
    /// is a receiver, and a receiver sees no end when the last sender is dropped. Off by default.
    #[cfg(target_os = "linux")]
    pub fn read_write(&mut self, both: bool) -> &mut OpenOptions {
        self.read_write = both;
        self
    }

    /// Opens the receiving end.
    ///
    /// While there is no sender yet, reads return 0 bytes, as at the end; with `read_write` they wait.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `NotFound`; `InvalidInput` if `path` is not a
    /// FIFO.
    pub fn open_receiver<P: AsRef<Path>>(&self, path: P) -> io::Result<Receiver> {
        let mut options = File::options();
        options.read(true).write(self.read_write);
        Ok(Receiver {
            io: open_fifo(&options, path.as_ref())?,
        })
    }

    /// Opens the sending end.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system: `ENXIO` if there is no receiver; `InvalidInput` if
    /// `path` is not a FIFO.
    pub fn open_sender<P: AsRef<Path>>(&self, path: P) -> io::Result<Sender> {
        let mut options = File::options();
        options.read(self.read_write).write(true);
        Ok(Sender {
            io: open_fifo(&options, path.as_ref())?,
        })
    }
}

/// Opens a FIFO without waiting for its other end.
fn open_fifo(options: &std::fs::OpenOptions, path: &Path) -> io::Result<Registered<File>> {
    // Nothing is created or truncated: a regular file at this path stays as it is.
    let file = options.clone().custom_flags(libc::O_NONBLOCK).open(path)?;
    require_pipe(&file).map_err(|error| {
        let text = format!("cannot open {}: {error}", path.display());
        io::Error::new(error.kind(), text)
    })?;
    Ok(Registered::from_nonblocking(file))
}

/// Returns an error for a file that is not a pipe.
fn require_pipe(file: &File) -> io::Result<()> {
    match file.metadata()?.file_type().is_fifo() {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a pipe (io::Registered takes other descriptors)",
        )),
    }
}

/// The receiving end of a pipe.
///
/// Reads use `futures::io::AsyncRead`, implemented for the end and for `&Receiver`. One task at a time may
/// read.
///
/// # Examples
///
/// ```
/// use futures::io::AsyncReadExt;
/// use loopgroup::net::pipe::Receiver;
/// use std::process::{Command, Stdio};
///
/// let mut child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
/// let text = loopgroup::run(async {
///     let output = child.stdout.take().expect("stdout is piped");
///     let mut output = Receiver::from_owned_fd(output.into())?;
///     let mut text = String::new();
///     output.read_to_string(&mut text).await.map(|_| text)
/// })??;
/// assert_eq!(text, "hello\n");
/// child.wait()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Receiver {
    io: Registered<File>,
}

/// The sending end of a pipe; dropping the last one is the end for the receiver.
///
/// Writes use `futures::io::AsyncWrite`, implemented for the end and for `&Sender`. One task at a time may
/// write. `close` only flushes, which does nothing here: drop the sender to close it.
///
/// # Examples
///
/// ```
/// use futures::io::AsyncWriteExt;
/// use loopgroup::net::pipe;
/// use std::process::{Command, Stdio};
///
/// // The child reads what we write.
/// let (mut sender, receiver) = pipe::pipe()?;
/// let child = Command::new("cat").stdin(receiver.into_blocking_fd()?).stdout(Stdio::piped()).spawn()?;
/// loopgroup::run(async move { sender.write_all(b"hello").await })??;
/// assert_eq!(child.wait_with_output()?.stdout, b"hello");
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Sender {
    io: Registered<File>,
}

/// Defines the methods of both ends.
macro_rules! end {
    ($end:ident) => {
        impl $end {
            /// Converts a file, such as a FIFO that was opened elsewhere, and makes it non-blocking.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is not a pipe; any error from the operating system if it cannot be made
            /// non-blocking.
            pub fn from_file(file: File) -> io::Result<$end> {
                require_pipe(&file)?;
                let io = Registered::new(file)?;
                Ok($end { io })
            }

            /// Converts a descriptor, such as an end that a child process or a parent process has, and
            /// makes it non-blocking.
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as [`from_file`](", stringify!($end), "::from_file).")]
            pub fn from_owned_fd(fd: OwnedFd) -> io::Result<$end> {
                $end::from_file(File::from(fd))
            }

            /// Converts into a descriptor that blocks, as a child process expects it.
            ///
            /// # Errors
            ///
            /// Returns an error if it cannot be made blocking.
            pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
                let file = self.io.into_inner();
                SockRef::from(&file).set_nonblocking(false)?;
                Ok(file.into())
            }

            /// Converts into a descriptor, which stays non-blocking.
            pub fn into_nonblocking_fd(self) -> OwnedFd {
                self.io.into_inner().into()
            }

            /// Waits until the end is ready for one of the interests at least, and returns what it is
            /// ready for, of these.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::readable`].
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: nothing is consumed.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.io.ready(interest).await
            }

            /// Returns the loop that the end is registered with, if any.
            pub fn event_loop(&self) -> Option<EventLoop> {
                self.io.event_loop()
            }

            /// Moves the end to another loop.
            ///
            /// # Errors
            ///
            /// The same as [`Registered::migrate_to`].
            pub async fn migrate_to(&mut self, event_loop: &EventLoop) -> io::Result<()> {
                self.io.migrate_to(event_loop).await
            }
        }

        impl TryFrom<OwnedFd> for $end {
            type Error = io::Error;

            fn try_from(fd: OwnedFd) -> io::Result<$end> {
                $end::from_owned_fd(fd)
            }
        }

        descriptors!($end);
    };
}

end!(Receiver);
end!(Sender);

impl Receiver {
    /// Waits until there is data to read, or the last sender was dropped.
    ///
    /// # Errors
    ///
    /// The same as [`Registered::readable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    pub async fn readable(&self) -> io::Result<()> {
        self.io.readable().await
    }

    /// Polls until there is data to read, or the last sender was dropped. It shares its waker with the
    /// reads of this end: only the last task that polls is woken.
    ///
    /// # Errors
    ///
    /// The same as [`Registered::readable`].
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_readable(cx)
    }

    /// Tries to read, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing to read; otherwise any error from the operating system.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io
            .try_io(Interest::READABLE, |mut file| file.read(buf))
    }

    /// Tries to read into several buffers, without waiting.
    ///
    /// # Errors
    ///
    /// The same as [`try_read`](Receiver::try_read).
    pub fn try_read_vectored(&self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        self.io
            .try_io(Interest::READABLE, |mut file| file.read_vectored(bufs))
    }
}

impl Sender {
    /// Waits until there is room to write, or the last receiver was dropped.
    ///
    /// # Errors
    ///
    /// The same as [`Registered::readable`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is written.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.writable().await
    }

    /// Polls until there is room to write, or the last receiver was dropped. It shares its waker with the
    /// writes of this end: only the last task that polls is woken.
    ///
    /// # Errors
    ///
    /// The same as [`Registered::readable`].
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_writable(cx)
    }

    /// Tries to write, without waiting; returns how many bytes the pipe has taken. Up to `PIPE_BUF` bytes
    /// (4,096 on Linux) are written whole or not at all.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, `BrokenPipe` if there is no receiver; otherwise any error from the
    /// operating system.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.io
            .try_io(Interest::WRITABLE, |mut file| file.write(buf))
    }

    /// Tries to write several buffers, without waiting.
    ///
    /// # Errors
    ///
    /// The same as [`try_write`](Sender::try_write).
    pub fn try_write_vectored(&self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.io
            .try_io(Interest::WRITABLE, |mut file| file.write_vectored(bufs))
    }

    fn poll_write_shared(
        &self,
        cx: &mut Context<'_>,
        write: impl FnMut(&File) -> io::Result<usize>,
        requested: usize,
    ) -> Poll<io::Result<usize>> {
        let short = |&n: &usize| match n < requested {
            true => Short::Yes,
            false => Short::No,
        };
        self.io.poll_io(Direction::Write, cx, write, short)
    }
}

impl AsyncRead for &Receiver {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = |mut file: &File| file.read(buf);
        self.io.poll_io(Direction::Read, cx, read, |_| Short::No)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [io::IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let read = |mut file: &File| file.read_vectored(bufs);
        self.io.poll_io(Direction::Read, cx, read, |_| Short::No)
    }
}

impl AsyncWrite for &Sender {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, |mut file| file.write(buf), buf.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let requested = requested(bufs.iter().map(|buf| buf.len()));
        self.poll_write_shared(cx, |mut file| file.write_vectored(bufs), requested)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Writes are not buffered here.
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The descriptor is closed by the drop: a pipe cannot be shut down in place.
        Poll::Ready(Ok(()))
    }
}

stream!(@read Receiver, |this| &mut &*this);
stream!(@write Sender, |this| &mut &*this);
