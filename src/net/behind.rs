//! What is behind a socket of this crate: one of the system, or one of a simulated network.
//!
//! - Which of them it is was decided by the loop that the socket was made on: a loop of a simulated host
//!   makes simulated sockets ([`host`]), every other loop and every thread makes the system's.
//! - Production pays for it with the look at the tag of [`Behind`], once per operation.
//! - A simulated socket has no descriptor. Where one is asked for, it lends a stand-in: a socket of the
//!   system that is connected to nothing, made at the first request. Options are kept there; what they would
//!   do to the traffic, they do not do in a simulation.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net as unix;
use std::path::Path;

use socket2::{Domain, SockRef, Socket, Type};

use crate::event_loop::context;
use crate::io::registered::Registered;
use crate::net::send::{write, write_vectored};
use crate::sim::{self, SimulatedHost};
use crate::sync::{Arc, AtomicBool, plain::OnceLock};

/// Returns the simulated host of this thread's loop, if it is on one.
pub(super) fn host() -> Option<Arc<SimulatedHost>> {
    context::simulated_host()
}

/// A socket of the system, `T`, or one of a simulated network.
pub(crate) enum Behind<T> {
    System(T),
    Simulated(Box<Simulated<T>>),
}

/// A socket of a simulated network.
pub(crate) struct Simulated<T> {
    pub(super) socket: sim::Socket,
    /// The one option that nearly every server sets: it is kept without a descriptor.
    pub(super) nodelay: AtomicBool,
    stand_in: OnceLock<T>,
}

/// A type of the system's sockets.
pub(crate) trait SystemSocket: AsFd + Sized {
    /// Creates one that is connected to nothing.
    fn unconnected() -> io::Result<Self>;
}

macro_rules! system_sockets {
    ($($type:ty, $domain:ident, $kind:ident, |$socket:ident| $from:expr;)*) => {$(
        impl SystemSocket for $type {
            fn unconnected() -> io::Result<$type> {
                let $socket = Socket::new(Domain::$domain, Type::$kind, None)?;
                $socket.set_nonblocking(true)?;
                Ok($from)
            }
        }
    )*};
}

system_sockets! {
    std::net::TcpStream, IPV4, STREAM, |socket| socket.into();
    mio::net::TcpListener, IPV4, STREAM, |socket| mio::net::TcpListener::from_std(socket.into());
    std::net::UdpSocket, IPV4, DGRAM, |socket| socket.into();
    unix::UnixStream, UNIX, STREAM, |socket| socket.into();
    mio::net::UnixListener, UNIX, STREAM, |socket| mio::net::UnixListener::from_std(socket.into());
    unix::UnixDatagram, UNIX, DGRAM, |socket| socket.into();
}

impl<T: SystemSocket> Behind<T> {
    /// A socket of the system that is already non-blocking, to be registered when it first has to wait.
    pub(super) fn nonblocking(socket: T) -> Registered<Behind<T>> {
        Registered::from_nonblocking(Behind::System(socket))
    }

    /// A simulated socket, likewise.
    pub(super) fn simulated(socket: sim::Socket) -> Registered<Behind<T>> {
        Behind::simulated_with(socket, OnceLock::new())
    }

    /// A simulated socket that has its stand-in already, with the options that were set on it.
    pub(super) fn simulated_with(
        socket: sim::Socket,
        stand_in: OnceLock<T>,
    ) -> Registered<Behind<T>> {
        let (number, network) = (socket.number(), socket.network_serial());
        let set = stand_in.get().map(|set| SockRef::from(set).tcp_nodelay());
        let nodelay = set.and_then(Result::ok);
        let simulated = Box::new(Simulated {
            socket,
            nodelay: AtomicBool::new(nodelay.unwrap_or(false)),
            stand_in,
        });
        Registered::simulated(Behind::Simulated(simulated), number, network)
    }

    pub(super) fn is_simulated(&self) -> bool {
        matches!(self, Behind::Simulated(_))
    }

    /// The socket of the system, or the stand-in for it.
    pub(super) fn system(&self) -> &T {
        match self {
            Behind::System(socket) => socket,
            Behind::Simulated(simulated) => simulated.stand_in(),
        }
    }

    /// The socket of the system, or the stand-in for it; a simulated socket is closed.
    pub(super) fn into_system(self) -> T {
        match self {
            Behind::System(socket) => socket,
            Behind::Simulated(simulated) => {
                simulated.stand_in();
                let stand_in = simulated.stand_in.into_inner();
                stand_in.expect("it was made just now")
            }
        }
    }

    /// The socket of the system.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a simulated socket.
    pub(super) fn system_only(&self) -> io::Result<&T> {
        match self {
            Behind::System(socket) => Ok(socket),
            Behind::Simulated(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a simulated socket has no descriptor for system calls of your own: use its methods",
            )),
        }
    }
}

impl<T: SystemSocket> Simulated<T> {
    #[cold]
    fn stand_in(&self) -> &T {
        self.stand_in.get_or_init(|| {
            T::unconnected()
                .expect("a simulated socket could not lend a descriptor: too many are open")
        })
    }
}

impl<T: SystemSocket> AsFd for Behind<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.system().as_fd()
    }
}

impl<T: fmt::Debug> fmt::Debug for Behind<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Behind::System(socket) => socket.fmt(f),
            Behind::Simulated(simulated) => simulated.socket.fmt(f),
        }
    }
}

/// Calls the system, or the simulated network.
macro_rules! either {
    ($behind:expr, |$system:ident| $real:expr, |$simulated:ident| $virtual:expr) => {
        match $behind {
            Behind::System($system) => $real,
            Behind::Simulated(simulated) => {
                let $simulated = &simulated.socket;
                $virtual
            }
        }
    };
}

/// Connections: `&T` reads, as those of the standard library do.
impl<T: SystemSocket> Behind<T>
where
    for<'a> &'a T: io::Read,
{
    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, |one| io::Read::read(&mut &*one, buf), |one| one
            .read(buf))
    }

    pub(super) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        either!(
            self,
            |one| io::Read::read_vectored(&mut &*one, bufs),
            |one| one.read_vectored(bufs)
        )
    }

    pub(super) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        either!(self, |one| write(one, buf), |one| one.write(buf))
    }

    pub(super) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        either!(self, |one| write_vectored(one, bufs), |one| one
            .write_vectored(bufs))
    }
}

impl Behind<std::net::TcpStream> {
    pub(super) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, |one| one.peek(buf), |one| one.peek(buf))
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        either!(self, |one| one.local_addr(), |one| one.local_addr())
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        either!(self, |one| one.peer_addr(), |one| one.peer_addr())
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        either!(self, |one| one.shutdown(how), |one| one.shutdown(how))
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        either!(self, |one| one.take_error(), |one| Ok(one.take_error()))
    }
}

impl Behind<mio::net::TcpListener> {
    pub(super) fn accept(
        &self,
    ) -> io::Result<(Registered<Behind<std::net::TcpStream>>, SocketAddr)> {
        either!(
            self,
            |one| one
                .accept()
                .map(|(stream, peer)| (Behind::nonblocking(stream.into()), peer)),
            |one| one
                .accept()
                .map(|(socket, peer)| (Behind::simulated(socket), peer.ip()))
        )
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        either!(self, |one| one.local_addr(), |one| one.local_addr())
    }
}

impl Behind<std::net::UdpSocket> {
    pub(super) fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        either!(self, |one| one.connect(peer), |one| one.udp_connect(peer))
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        either!(self, |one| one.local_addr(), |one| one.local_addr())
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        either!(self, |one| one.peer_addr(), |one| one.peer_addr())
    }

    pub(super) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        either!(self, |one| one.send(buf), |one| one.send(buf))
    }

    pub(super) fn send_to(&self, buf: &[u8], peer: SocketAddr) -> io::Result<usize> {
        either!(self, |one| one.send_to(buf, peer), |one| one
            .send_to(buf, peer))
    }

    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, |one| one.recv(buf), |one| one.recv(buf))
    }

    pub(super) fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        either!(self, |one| one.recv_from(buf), |one| one.recv_from(buf))
    }

    pub(super) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, |one| one.peek(buf), |one| one.peek_datagram(buf))
    }

    pub(super) fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        either!(self, |one| one.peek_from(buf), |one| one.peek_from(buf))
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        either!(self, |one| one.take_error(), |one| Ok(one.take_error()))
    }
}

/// The address of a Unix socket by its path, if it has one.
fn unix_address(path: Option<std::path::PathBuf>) -> io::Result<unix::SocketAddr> {
    match path {
        Some(path) => unix::SocketAddr::from_pathname(path),
        // The only way to an unnamed address in safe code.
        None => unix::UnixDatagram::unbound()?.local_addr(),
    }
}

impl Behind<unix::UnixStream> {
    pub(super) fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        either!(self, |one| one.local_addr(), |one| unix_address(
            one.unix_local()
        ))
    }

    pub(super) fn peer_addr(&self) -> io::Result<unix::SocketAddr> {
        either!(self, |one| one.peer_addr(), |one| unix_address(
            one.unix_peer()
        ))
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        either!(self, |one| one.shutdown(how), |one| one.shutdown(how))
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        either!(self, |one| one.take_error(), |one| Ok(one.take_error()))
    }
}

/// The path of an address, which is what a simulated host has.
pub(super) fn path_of(address: &unix::SocketAddr) -> io::Result<&Path> {
    address.as_pathname().ok_or_else(|| {
        let text =
            "Unix sockets of a simulated host have paths: use one instead of an abstract name";
        io::Error::new(io::ErrorKind::Unsupported, text)
    })
}

impl Behind<unix::UnixDatagram> {
    pub(super) fn connect_addr(&self, peer: &unix::SocketAddr) -> io::Result<()> {
        either!(self, |one| one.connect_addr(peer), |one| one
            .letters_connect(path_of(peer)?))
    }

    pub(super) fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        either!(self, |one| one.local_addr(), |one| unix_address(
            one.unix_local()
        ))
    }

    pub(super) fn peer_addr(&self) -> io::Result<unix::SocketAddr> {
        either!(self, |one| one.peer_addr(), |one| {
            match one.letters_connected() {
                true => unix_address(one.unix_peer()),
                false => Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
            }
        })
    }

    pub(super) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        either!(self, |one| one.send(buf), |one| one.letters_send(buf, None))
    }

    pub(super) fn send_to_addr(&self, buf: &[u8], peer: &unix::SocketAddr) -> io::Result<usize> {
        either!(self, |one| one.send_to_addr(buf, peer), |one| one
            .letters_send(buf, Some(path_of(peer)?)))
    }

    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, |one| one.recv(buf), |one| one
            .letters_recv(buf)
            .map(|(len, _)| len))
    }

    pub(super) fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, unix::SocketAddr)> {
        either!(self, |one| one.recv_from(buf), |one| {
            let (len, from) = one.letters_recv(buf)?;
            Ok((len, unix_address(from)?))
        })
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        either!(self, |one| one.shutdown(how), |one| one.shutdown(how))
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        either!(self, |one| one.take_error(), |one| Ok(one.take_error()))
    }
}

impl Behind<mio::net::UnixListener> {
    pub(super) fn accept(
        &self,
    ) -> io::Result<(Registered<Behind<unix::UnixStream>>, unix::SocketAddr)> {
        either!(
            self,
            |one| one
                .accept()
                .map(|(stream, peer)| (Behind::nonblocking(stream.into()), peer)),
            |one| {
                let (socket, peer) = one.accept()?;
                Ok((Behind::simulated(socket), unix_address(peer.path())?))
            }
        )
    }

    pub(super) fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        either!(self, |one| one.local_addr(), |one| unix_address(
            one.unix_local()
        ))
    }
}
