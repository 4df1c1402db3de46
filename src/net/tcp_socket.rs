//! A TCP socket before it listens or connects.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket};

use crate::event_loop::budget;
use crate::net::address_error::{cannot_bind, cannot_bind_on};
use crate::net::behind;
use crate::net::tcp::{TcpListener, TcpStream, new_socket};
use crate::net::tcp_options::tcp_options;
use crate::sim::{self, SimulatedHost};
use crate::sync::{Arc, AtomicBool, Mutex, plain::OnceLock};

/// A TCP socket that does not listen and is not connected yet, to set options that have to precede it.
///
/// Nothing is set at first: unlike [`TcpListener::bind`], it has no `SO_REUSEADDR`. Dropping the socket
/// closes it.
///
/// # Examples
///
/// ```
/// use loopgroup::net::TcpSocket;
///
/// loopgroup::run(async {
///     let socket = TcpSocket::new_v4()?;
///     socket.set_reuseaddr(true)?;
///     socket.set_recv_buffer_size(64 * 1024)?; // before the window is negotiated
///     socket.bind("127.0.0.1:0".parse().unwrap())?;
///     let listener = socket.listen(1024)?;
///
///     let socket = TcpSocket::new_v4()?;
///     socket.bind("127.0.0.1:0".parse().unwrap())?; // from this address
///     let stream = socket.connect(listener.local_addr()?).await?;
///     assert!(stream.local_addr()?.ip().is_loopback());
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct TcpSocket {
    /// On a simulated host it only keeps the options.
    socket: Socket,
    simulated: Option<Box<Unconnected>>,
}

/// A simulated socket before it listens or connects.
struct Unconnected {
    host: Arc<SimulatedHost>,
    any: SocketAddr,
    /// Once it is bound: it has its port, and does not listen yet.
    bound: Mutex<Option<sim::Socket>>,
    linger: Mutex<Option<Duration>>,
}

tcp_options!(TcpSocket);

impl Unconnected {
    fn bind(&self, address: SocketAddr, reuse_port: bool) -> io::Result<()> {
        self.check_family(address)?;
        let mut bound = self.bound.lock();
        if bound.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        *bound = Some(sim::Socket::tcp_bind(&self.host.net, address, reuse_port)?);
        Ok(())
    }

    fn check_family(&self, address: SocketAddr) -> io::Result<()> {
        match (self.any.is_ipv4(), address.is_ipv4()) {
            (true, false) => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
            (false, true) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            _ => Ok(()),
        }
    }
}

impl TcpSocket {
    /// Creates an IPv4 socket.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn new_v4() -> io::Result<TcpSocket> {
        TcpSocket::new(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, 0).into())
    }

    /// Creates an IPv6 socket.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn new_v6() -> io::Result<TcpSocket> {
        TcpSocket::new(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, 0).into())
    }

    fn new(domain: Domain, any: SocketAddr) -> io::Result<TcpSocket> {
        let socket = new_socket(domain)?;
        let unconnected = |host| {
            Box::new(Unconnected {
                host,
                any,
                bound: Mutex::new(None),
                linger: Mutex::new(None),
            })
        };
        let simulated = behind::host().map(unconnected);
        Ok(TcpSocket { socket, simulated })
    }

    /// Converts a standard library stream that is not connected, as `socket2` makes it, and makes it
    /// non-blocking.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be made non-blocking.
    pub fn from_std_stream(stream: std::net::TcpStream) -> io::Result<TcpSocket> {
        stream.set_nonblocking(true)?;
        let socket = stream.into();
        let simulated = None;
        Ok(TcpSocket { socket, simulated })
    }

    /// Sets `SO_REUSEADDR`: an address whose old connections still linger can be bound.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system; the same holds for all options below.
    pub fn set_reuseaddr(&self, reuse: bool) -> io::Result<()> {
        self.socket.set_reuse_address(reuse)
    }

    /// Returns `SO_REUSEADDR`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.socket.reuse_address()
    }

    /// Sets `SO_REUSEPORT`: several listeners share an address, and the system distributes connections.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn set_reuseport(&self, reuse: bool) -> io::Result<()> {
        self.socket.set_reuse_port(reuse)
    }

    /// Returns `SO_REUSEPORT`.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.socket.reuse_port()
    }

    /// Restricts the socket to one network interface, such as `b"eth0"`; `None` removes the restriction
    /// (`SO_BINDTODEVICE`; Linux only).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, for example for an interface that does not exist.
    #[cfg(target_os = "linux")]
    pub fn bind_device(&self, interface: Option<&[u8]>) -> io::Result<()> {
        self.socket.bind_device(interface)
    }

    /// Returns the network interface that the socket is restricted to (Linux only).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    #[cfg(target_os = "linux")]
    pub fn device(&self) -> io::Result<Option<Vec<u8>>> {
        self.socket.device()
    }

    /// Binds to a local address.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system, such as `AddrInUse`, with the address.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        if let Some(simulated) = &self.simulated {
            let bound = simulated.bind(address, self.reuseport()?);
            let net = &simulated.host.net;
            return bound.map_err(|error| cannot_bind_on(net, address, error));
        }
        let bound = self.socket.bind(&address.into());
        bound.map_err(|error| cannot_bind(address, error))
    }

    /// Returns the local address that this socket is bound to.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        if let Some(simulated) = &self.simulated {
            return match &*simulated.bound.lock() {
                Some(bound) => bound.local_addr(),
                None => Ok(simulated.any),
            };
        }
        let address = self.socket.local_addr()?;
        let no_ip = || io::Error::new(io::ErrorKind::InvalidInput, "this is not a TCP socket");
        address.as_socket().ok_or_else(no_ip)
    }

    /// Returns and clears the pending error of the socket (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Listens, with room for `backlog` connections that wait for an accept; the system may allow fewer.
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        let backlog = usize::try_from(backlog).unwrap_or(usize::MAX);
        if let Some(simulated) = &self.simulated {
            if simulated.bound.lock().is_none() {
                simulated.bind(simulated.any, self.reuseport()?)?;
            }
            let bound = simulated.bound.lock().take();
            let bound = bound.expect("it was bound just now, and nobody else has it");
            bound.listen(backlog);
            return Ok(TcpListener::simulated(bound));
        }
        TcpListener::listen_socket(self.socket, backlog)
    }

    /// Connects to `address`.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system, which has a
    /// [`raw_os_error`](io::Error::raw_os_error).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the attempt is abandoned, and the socket closed.
    pub async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        budget::proceed_and_spend().await;
        if let Some(simulated) = self.simulated {
            simulated.check_family(address)?;
            // The port is free while the connection takes it: nothing else runs in between.
            let bound = simulated.bound.lock().take();
            let from = bound.map(|bound| bound.local_addr()).transpose()?;
            let linger = *simulated.linger.lock();
            let stand_in = OnceLock::from(std::net::TcpStream::from(self.socket));
            let host = &simulated.host;
            let stream = TcpStream::connect_simulated(host, from, address, stand_in).await?;
            stream.note_linger(linger);
            return Ok(stream);
        }
        TcpStream::connect_socket(self.socket, address).await
    }

    fn kept_nodelay(&self) -> Option<&AtomicBool> {
        None
    }

    fn note_linger(&self, linger: Option<Duration>) {
        if let Some(simulated) = &self.simulated {
            *simulated.linger.lock() = linger;
        }
    }

    fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.socket)
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for TcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpSocket")
            .field(&self.local_addr())
            .finish()
    }
}
