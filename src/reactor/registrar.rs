//! Where a table registers its descriptors: with the selector of the system, or with one of a simulation.
//!
//! - Which of them it is was decided when the loop was made. A descriptor of the one kind is refused by the
//!   other, with an error that says where it belongs.
//! - A socket of a simulated network is a negative number here, which no descriptor of the system is: a table
//!   has no more bytes per descriptor for it.

use std::io;
use std::os::fd::RawFd;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::sim::{Network, Selector};
use crate::sync::Arc;

/// Both directions; and urgent data where the selector reports it separately, since a read stops
/// short of it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) const INTEREST: Interest = Interest::READABLE
    .add(Interest::WRITABLE)
    .add(Interest::PRIORITY);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) const INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// Whether a registration that is modified is reported again if it is ready: epoll promises that.
const MODIFYING_LOOKS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The number of a simulated socket as it stands in a table.
pub(crate) fn descriptor_of(socket: u32) -> RawFd {
    debug_assert!(socket < i32::MAX as u32, "a simulation has fewer sockets");
    -(socket as RawFd) - 1
}

/// The simulated socket behind a number of a table, if it is one.
pub(crate) fn socket_of(fd: RawFd) -> Option<u32> {
    (fd < 0).then(|| (-(fd + 1)) as u32)
}

/// What reports the readiness of the descriptors in a table.
#[derive(Debug)]
pub(crate) enum Registrar {
    System(Registry),
    Simulated(Arc<Network>, Arc<Selector>),
}

impl From<Registry> for Registrar {
    fn from(registry: Registry) -> Registrar {
        Registrar::System(registry)
    }
}

impl Registrar {
    pub(super) fn register(&self, fd: RawFd, token: Token) -> io::Result<()> {
        match (self, socket_of(fd)) {
            (Registrar::System(registry), None) => {
                registry.register(&mut SourceFd(&fd), token, INTEREST)
            }
            (Registrar::Simulated(network, selector), Some(socket)) => {
                network.watch(socket, selector, token.0)
            }
            (Registrar::System(_), Some(_)) => Err(misplaced(
                "this socket belongs to a simulated network: use it on the loops of its host",
            )),
            (Registrar::Simulated(..), None) => Err(misplaced(
                "this descriptor is the system's, and the loop is one of a simulation: make the socket on a \
                 loop of the simulated host, or keep what has to be real out of it",
            )),
        }
    }

    /// Fails only if the selector is broken.
    pub(super) fn deregister(&self, fd: RawFd) {
        match (self, socket_of(fd)) {
            (Registrar::System(registry), None) => {
                // A rebuild leaves the descriptor out if this fails.
                let _ = registry.deregister(&mut SourceFd(&fd));
            }
            (Registrar::Simulated(network, _), Some(socket)) => network.unwatch(socket),
            _ => {}
        }
    }

    /// Has the descriptor reported again if it is ready; `false` if that cannot be asked for.
    pub(super) fn look_again(&self, fd: RawFd, token: Token) -> bool {
        match (self, socket_of(fd)) {
            (Registrar::System(registry), None) => {
                let fd = &mut SourceFd(&fd);
                MODIFYING_LOOKS && registry.reregister(fd, token, INTEREST).is_ok()
            }
            (Registrar::Simulated(network, _), Some(socket)) => {
                network.look_again(socket);
                true
            }
            _ => false,
        }
    }
}

#[cold]
fn misplaced(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}
