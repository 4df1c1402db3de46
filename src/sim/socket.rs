//! A socket, as a descriptor is one: dropping it closes it.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::errno::{self, error, fail};
use super::host::HostId;
use super::kernel::Kernel;
use super::listener::ListenerName;
use super::network::{HostNet, Network};
#[cfg(test)]
use super::selector::Selector;
use super::socket_id::SocketId;
use super::stream::Names;
use super::table::Kind;
use crate::sync::Arc;

/// One socket of a host. No call waits: what cannot be done at once fails with `WouldBlock`.
pub(crate) struct Socket {
    network: Arc<Network>,
    id: SocketId,
    host: HostId,
}

/// The other end of an accepted connection.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(crate) enum Peer {
    Ip(SocketAddr),
    Unix(Option<PathBuf>),
}

impl Peer {
    /// The address of the peer of a TCP connection.
    pub(crate) fn ip(&self) -> SocketAddr {
        match self {
            Peer::Ip(address) => *address,
            Peer::Unix(_) => unreachable!("a TCP listener accepts TCP connections"),
        }
    }

    /// The path of the peer of a Unix connection, if it has one.
    pub(crate) fn path(self) -> Option<PathBuf> {
        match self {
            Peer::Unix(path) => path,
            Peer::Ip(_) => None,
        }
    }
}

impl Socket {
    fn open(
        net: &HostNet,
        open: impl FnOnce(&mut Kernel, HostId) -> io::Result<SocketId>,
    ) -> io::Result<Socket> {
        let id = net.network.with(|kernel| open(kernel, net.host))?;
        Ok(Socket::of(net, id))
    }

    fn of(net: &HostNet, id: SocketId) -> Socket {
        Socket {
            network: Arc::clone(&net.network),
            id,
            host: net.host,
        }
    }

    /// A socket that is bound, and does not listen before [`Socket::listen`].
    pub(crate) fn tcp_bind(
        host: &HostNet,
        address: SocketAddr,
        reuse_port: bool,
    ) -> io::Result<Socket> {
        Socket::open(host, |kernel, host| {
            kernel.tcp_bind(host, address, reuse_port)
        })
    }

    pub(crate) fn tcp_listen(
        host: &HostNet,
        address: SocketAddr,
        backlog: usize,
        reuse_port: bool,
    ) -> io::Result<Socket> {
        let socket = Socket::tcp_bind(host, address, reuse_port)?;
        socket.listen(backlog);
        Ok(socket)
    }

    /// Has a bound socket listen.
    pub(crate) fn listen(&self, backlog: usize) {
        self.network.with(|kernel| {
            if let Some(listener) = kernel.table.listener(self.id) {
                listener.listen(backlog);
            }
        });
    }

    /// Begins a connect; [`Socket::connected`] says how it ends.
    pub(crate) fn tcp_connect(
        host: &HostNet,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<Socket> {
        Socket::open(host, |kernel, host| kernel.tcp_connect(host, from, to))
    }

    /// Says how a connect has ended; `WouldBlock` while it is under way.
    #[cfg(test)]
    pub(crate) fn connected(&self) -> io::Result<()> {
        self.network.with(|kernel| kernel.connected(self.id))
    }

    pub(crate) fn accept(&self) -> io::Result<(Socket, Peer)> {
        let (id, names) = self.network.with(|kernel| kernel.accept(self.id))?;
        let socket = Socket {
            network: Arc::clone(&self.network),
            id,
            host: self.host,
        };
        let peer = match names {
            Names::Tcp { peer, .. } => Peer::Ip(peer),
            Names::Unix { peer, .. } => Peer::Unix(peer),
        };
        Ok((socket, peer))
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(into)])
    }

    pub(crate) fn read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.network.with(|kernel| kernel.read(self.id, into))
    }

    pub(crate) fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.network.with(|kernel| kernel.peek(self.id, into))
    }

    pub(crate) fn write(&self, from: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(from)])
    }

    pub(crate) fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.network.with(|kernel| kernel.write(self.id, from))
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.network.with(|kernel| kernel.shutdown(self.id, how))
    }

    /// With zero, closing the socket resets its connection; everything else closes it in order.
    pub(crate) fn set_linger(&self, linger: Option<Duration>) {
        self.network.with(|kernel| {
            if let Ok(stream) = kernel.owned_stream(self.id) {
                stream.linger_zero = linger == Some(Duration::ZERO);
            }
        });
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.network.with(|kernel| kernel.take_error(self.id))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.network.with(|kernel| {
            let entry = kernel
                .table
                .owned(self.id)
                .ok_or_else(|| error(errno::EBADF))?;
            match &entry.kind {
                Kind::Datagrams(datagrams) => Ok(datagrams.local),
                Kind::Letters(_) => fail(errno::EOPNOTSUPP),
                Kind::Listener(listener) => match listener.name {
                    ListenerName::Tcp(address) => Ok(address),
                    ListenerName::Unix(_) => fail(errno::EOPNOTSUPP),
                },
                Kind::Stream(stream) => match stream.names {
                    Names::Tcp { local, .. } => Ok(local),
                    Names::Unix { .. } => fail(errno::EOPNOTSUPP),
                },
            }
        })
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.network.with(|kernel| {
            let entry = kernel
                .table
                .owned(self.id)
                .ok_or_else(|| error(errno::EBADF))?;
            match &entry.kind {
                Kind::Datagrams(datagrams) => datagrams.peer.ok_or_else(|| error(errno::ENOTCONN)),
                Kind::Stream(stream) if stream.is_open() && !stream.is_over() => match stream.names
                {
                    Names::Tcp { peer, .. } => Ok(peer),
                    Names::Unix { .. } => fail(errno::EOPNOTSUPP),
                },
                _ => fail(errno::ENOTCONN),
            }
        })
    }

    pub(crate) fn udp_bind(host: &HostNet, address: SocketAddr) -> io::Result<Socket> {
        Socket::open(host, |kernel, host| kernel.udp_bind(host, address))
    }

    pub(crate) fn udp_connect(&self, to: SocketAddr) -> io::Result<()> {
        self.network.with(|kernel| kernel.udp_connect(self.id, to))
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.network
            .with(|kernel| kernel.udp_send(self.id, bytes, None))
    }

    pub(crate) fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.network
            .with(|kernel| kernel.udp_send(self.id, bytes, Some(to)))
    }

    pub(crate) fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_from(into).map(|(bytes, _)| bytes)
    }

    pub(crate) fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.network
            .with(|kernel| kernel.udp_receive(self.id, into, false))
    }

    pub(crate) fn peek_datagram(&self, into: &mut [u8]) -> io::Result<usize> {
        self.peek_from(into).map(|(bytes, _)| bytes)
    }

    pub(crate) fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.network
            .with(|kernel| kernel.udp_receive(self.id, into, true))
    }

    /// A Unix socket that is bound, and does not listen before [`Socket::listen`].
    pub(crate) fn unix_bind(host: &HostNet, path: &Path) -> io::Result<Socket> {
        Socket::open(host, |kernel, host| kernel.unix_bind(host, path))
    }

    pub(crate) fn unix_listen(host: &HostNet, path: &Path, backlog: usize) -> io::Result<Socket> {
        let socket = Socket::unix_bind(host, path)?;
        socket.listen(backlog);
        Ok(socket)
    }

    /// Connects a Unix socket, which is bound to `from` if that is a path.
    pub(crate) fn unix_connect(
        host: &HostNet,
        from: Option<PathBuf>,
        path: &Path,
    ) -> io::Result<Socket> {
        Socket::open(host, |kernel, host| kernel.unix_connect(host, from, path))
    }

    pub(crate) fn unix_pair(host: &HostNet) -> (Socket, Socket) {
        let (one, other) = host.network.with(|kernel| kernel.unix_pair(host.host));
        (Socket::of(host, one), Socket::of(host, other))
    }

    /// A Unix socket of datagrams, which is bound if there is a path.
    pub(crate) fn letters(host: &HostNet, path: Option<&Path>) -> io::Result<Socket> {
        Socket::open(host, |kernel, host| kernel.letters_open(host, path))
    }

    pub(crate) fn letters_pair(host: &HostNet) -> io::Result<(Socket, Socket)> {
        let pair = host.network.with(|kernel| kernel.letters_pair(host.host))?;
        Ok((Socket::of(host, pair.0), Socket::of(host, pair.1)))
    }

    pub(crate) fn letters_connect(&self, path: &Path) -> io::Result<()> {
        self.network
            .with(|kernel| kernel.letters_connect(self.id, path))
    }

    /// Sends a Unix datagram: to a path, or to the peer.
    pub(crate) fn letters_send(&self, bytes: &[u8], path: Option<&Path>) -> io::Result<usize> {
        self.network
            .with(|kernel| kernel.letters_send(self.id, bytes, path))
    }

    pub(crate) fn letters_recv(&self, into: &mut [u8]) -> io::Result<(usize, Option<PathBuf>)> {
        self.network
            .with(|kernel| kernel.letters_receive(self.id, into))
    }

    /// Whether a Unix socket of datagrams is connected.
    pub(crate) fn letters_connected(&self) -> bool {
        self.network.with(|kernel| {
            let letters = kernel.table.letters(self.id);
            letters.is_some_and(|letters| letters.peer.is_some())
        })
    }

    /// The path that a Unix socket is bound to.
    pub(crate) fn unix_local(&self) -> Option<PathBuf> {
        self.network
            .with(|kernel| match &kernel.table.owned(self.id)?.kind {
                Kind::Stream(stream) => match &stream.names {
                    Names::Unix { local, .. } => local.clone(),
                    Names::Tcp { .. } => None,
                },
                Kind::Listener(listener) => match &listener.name {
                    ListenerName::Unix(path) => Some(path.clone()),
                    ListenerName::Tcp(_) => None,
                },
                Kind::Letters(letters) => letters.path.clone(),
                Kind::Datagrams(_) => None,
            })
    }

    /// The path that the peer of a Unix socket is bound to.
    pub(crate) fn unix_peer(&self) -> Option<PathBuf> {
        self.network
            .with(|kernel| match &kernel.table.owned(self.id)?.kind {
                Kind::Stream(stream) => match &stream.names {
                    Names::Unix { peer, .. } => peer.clone(),
                    Names::Tcp { .. } => None,
                },
                Kind::Letters(letters) => letters.peer_path.clone(),
                _ => None,
            })
    }

    #[cfg(test)]
    pub(crate) fn id(&self) -> SocketId {
        self.id
    }

    /// See [`Network::serial`].
    pub(crate) fn network_serial(&self) -> u16 {
        self.network.serial()
    }

    /// See [`SocketId::number`].
    pub(crate) fn number(&self) -> u32 {
        self.id.number()
    }

    /// Whether the socket is of this host of this network.
    #[cfg(test)]
    pub(crate) fn is_of(&self, host: &HostNet) -> bool {
        Arc::ptr_eq(&self.network, &host.network) && self.host == host.host
    }

    /// As `EPOLL_CTL_ADD` for both directions, edge-triggered: reports at once what is ready.
    #[cfg(test)]
    pub(crate) fn watch(&self, selector: &Arc<Selector>, token: usize) -> io::Result<()> {
        self.network.watch(self.number(), selector, token)
    }

    #[cfg(test)]
    pub(crate) fn unwatch(&self) {
        self.network.unwatch(self.number());
    }

    /// As `EPOLL_CTL_MOD`: reports again what is ready.
    #[cfg(test)]
    pub(crate) fn look_again(&self) {
        self.network.look_again(self.number());
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.network.with(|kernel| kernel.close(self.id));
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, id) = (self.host, self.id);
        f.debug_struct("Socket")
            .field("host", &host)
            .field("id", &id)
            .finish()
    }
}
