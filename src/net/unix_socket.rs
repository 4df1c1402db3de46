//! A Unix socket before it listens, connects or exchanges datagrams.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net;
use std::path::Path;

use socket2::{Socket, Type};

use crate::event_loop::budget;
use crate::net::address_error::cannot_bind;
use crate::net::behind;
use crate::net::unix::{UnixListener, UnixStream, new_socket};
use crate::net::unix_addr::{ShownPath, from_path, to_sock_addr};
use crate::net::unix_datagram::UnixDatagram;
use crate::sim::{self, SimulatedHost};
use crate::sync::{Arc, Mutex};

/// A Unix socket that does not listen and is not connected yet: to bind a stream before it connects, or
/// to choose the backlog of a listener.
///
/// # Examples
///
/// ```
/// use loopgroup::net::UnixSocket;
///
/// let path = |name| std::env::temp_dir().join(format!("loopgroup-doc-{}-{name}", std::process::id()));
/// let (ours, theirs) = (path("us-ours"), path("us-theirs"));
/// loopgroup::run(async {
///     let socket = UnixSocket::new_stream()?;
///     socket.bind(&theirs)?;
///     let listener = socket.listen(16)?;
///
///     let socket = UnixSocket::new_stream()?;
///     socket.bind(&ours)?; // the listener sees who connects
///     let _stream = socket.connect(&theirs).await?;
///     let (_accepted, peer) = listener.accept().await?;
///     assert_eq!(peer.as_pathname(), Some(&*ours));
///     std::fs::remove_file(&ours)?;
///     std::fs::remove_file(&theirs)
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct UnixSocket {
    socket: Socket,
    kind: Type,
    /// On a simulated host.
    simulated: Option<Box<Unconnected>>,
}

/// A simulated socket before it listens, connects or exchanges datagrams.
struct Unconnected {
    host: Arc<SimulatedHost>,
    bound: Mutex<Option<sim::Socket>>,
}

impl Unconnected {
    fn bind(&self, kind: Type, path: &Path) -> io::Result<()> {
        let mut bound = self.bound.lock();
        if bound.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        *bound = Some(match kind {
            Type::STREAM => sim::Socket::unix_bind(&self.host.net, path)?,
            _ => sim::Socket::letters(&self.host.net, Some(path))?,
        });
        Ok(())
    }
}

impl UnixSocket {
    /// Creates a stream socket.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn new_stream() -> io::Result<UnixSocket> {
        UnixSocket::new(Type::STREAM)
    }

    /// Creates a datagram socket.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::net::UnixSocket;
    ///
    /// let socket = UnixSocket::new_datagram()?.datagram()?;
    /// assert!(socket.local_addr()?.is_unnamed());
    /// let wrong = UnixSocket::new_datagram()?.listen(16).unwrap_err();
    /// assert!(wrong.to_string().contains("datagram socket"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new_datagram() -> io::Result<UnixSocket> {
        UnixSocket::new(Type::DGRAM)
    }

    fn new(kind: Type) -> io::Result<UnixSocket> {
        let socket = new_socket(kind)?;
        let unconnected = |host| {
            let bound = Mutex::new(None);
            Box::new(Unconnected { host, bound })
        };
        let simulated = behind::host().map(unconnected);
        Ok(UnixSocket {
            socket,
            kind,
            simulated,
        })
    }

    /// Binds to `path`, which must not exist yet; a path that begins with a zero byte is an abstract name
    /// (Linux).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `AddrInUse`, with the path.
    pub fn bind<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        if let Some(simulated) = &self.simulated {
            let bound = simulated.bind(self.kind, path);
            return bound.map_err(|error| cannot_bind(ShownPath(path), error));
        }
        let address = from_path(path).and_then(|address| to_sock_addr(&address));
        let bound = address.and_then(|address| self.socket.bind(&address));
        bound.map_err(|error| cannot_bind(ShownPath(path), error))
    }

    /// Listens, with room for `backlog` connections that wait for an accept; the system may allow fewer.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; `InvalidInput` for a datagram socket.
    pub fn listen(self, backlog: u32) -> io::Result<UnixListener> {
        self.require(
            Type::STREAM,
            "a datagram socket cannot listen: make it with new_stream",
        )?;
        if let Some(simulated) = self.simulated {
            let bound = simulated.bound.lock().take();
            let bound = bound.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
            bound.listen(usize::try_from(backlog).unwrap_or(usize::MAX));
            return Ok(UnixListener::simulated(bound));
        }
        self.socket
            .listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        UnixListener::from_std(net::UnixListener::from(self.socket))
    }

    /// Connects to the listener at `path`, like [`UnixStream::connect`].
    ///
    /// # Errors
    ///
    /// The same as [`UnixStream::connect`]; `InvalidInput` for a datagram socket.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the attempt is abandoned, and the socket closed.
    pub async fn connect<P: AsRef<Path>>(self, path: P) -> io::Result<UnixStream> {
        let instead =
            "a datagram socket does not become a stream: make it with new_stream, or use datagram";
        self.require(Type::STREAM, instead)?;
        if let Some(simulated) = self.simulated {
            budget::proceed_and_spend().await;
            let from = simulated.bound.lock().take();
            let from = from.and_then(|bound| bound.unix_local());
            let address = from_path(path.as_ref())?;
            return UnixStream::connect_simulated(&simulated.host, from, &address).await;
        }
        let address = to_sock_addr(&from_path(path.as_ref())?)?;
        budget::proceed_and_spend().await;
        UnixStream::connect_socket(self.socket, address).await
    }

    /// Converts into a datagram socket, bound or not.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a stream socket.
    pub fn datagram(self) -> io::Result<UnixDatagram> {
        self.require(
            Type::DGRAM,
            "a stream socket has no datagrams: make it with new_datagram",
        )?;
        if let Some(simulated) = self.simulated {
            return match simulated.bound.lock().take() {
                Some(bound) => Ok(UnixDatagram::from_simulated(bound)),
                None => UnixDatagram::simulated(&simulated.host, None),
            };
        }
        UnixDatagram::from_std(net::UnixDatagram::from(self.socket))
    }

    /// Returns an error that says what to do instead if the socket is of another kind.
    fn require(&self, kind: Type, instead: &'static str) -> io::Result<()> {
        match self.kind == kind {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, instead)),
        }
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UnixSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl fmt::Debug for UnixSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.socket.local_addr().ok();
        let path = address.as_ref().and_then(|address| address.as_pathname());
        f.debug_struct("UnixSocket")
            .field("is_stream", &(self.kind == Type::STREAM))
            .field("path", &path)
            .finish()
    }
}
