//! Errors that name their address, and keep the error of the system.
//!
//! - An `io::Error` has either the number of the system (`raw_os_error`) or a text of its own, never
//!   both. Where the caller cannot know the address that failed, the error has a text that names it, and
//!   the error of the system is its [`source`](std::error::Error::source). A connect to one given address
//!   returns the error of the system untouched.
//! - The kind is always that of the system's error.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::sim::HostNet;

/// The error of [`TcpStream::connect`](crate::net::TcpStream::connect) if every address of a host name,
/// or of a list, has failed: each address with its error.
///
/// It is inside the `io::Error`: [`get_ref`](io::Error::get_ref) and a downcast find it. The kind of the
/// `io::Error`, and its source, are those of the last address.
///
/// # Examples
///
/// ```
/// use loopgroup::net::{ConnectError, TcpStream};
/// use std::error::Error;
/// use std::{io, net::SocketAddr};
///
/// // Bound, and not listening: nothing else can listen there.
/// let closed = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
/// let backup = SocketAddr::from(([127, 0, 0, 2], closed.port()));
/// let error = loopgroup::run(TcpStream::connect(&[closed, backup][..]))?.unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
/// assert!(error.to_string().contains(&closed.to_string()));
///
/// let of_the_system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
/// assert!(of_the_system.unwrap().raw_os_error().is_some());
///
/// let all = error.get_ref().and_then(|inner| inner.downcast_ref::<ConnectError>()).unwrap();
/// assert_eq!(all.attempts().map(|(address, _)| address).collect::<Vec<_>>(), [closed, backup]);
/// # io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ConnectError {
    /// What the caller asked for: a host name, or nothing for a list.
    name: Option<String>,
    /// At least one, in the order in which the addresses were to be tried.
    attempts: Vec<(SocketAddr, io::Error)>,
}

impl ConnectError {
    /// Creates an `io::Error`; there is at least one attempt.
    pub(super) fn from_attempts(
        name: Option<String>,
        attempts: Vec<(SocketAddr, io::Error)>,
    ) -> io::Error {
        let error = ConnectError { name, attempts };
        io::Error::new(error.last().kind(), error)
    }

    /// Returns each address and its error, in the order in which the addresses were tried.
    pub fn attempts(&self) -> impl Iterator<Item = (SocketAddr, &io::Error)> {
        self.attempts
            .iter()
            .map(|(address, error)| (*address, error))
    }

    fn last(&self) -> &io::Error {
        let last = self.attempts.last();
        &last.expect("there is at least one attempt").1
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "cannot connect to {name:?}")?,
            None => write!(f, "cannot connect to any address")?,
        }
        for (place, (address, error)) in self.attempts.iter().enumerate() {
            let separator = if place == 0 { ":" } else { ";" };
            write!(f, "{separator} {address}: {error}")?;
        }
        Ok(())
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.last())
    }
}

/// Adds the address to an error of `bind`; the error of the system stays its source.
pub(super) fn cannot_bind(address: impl fmt::Display, error: io::Error) -> io::Error {
    let text = format!("cannot bind {address}: {error}");
    io::Error::new(error.kind(), AddressedError { text, error })
}

/// As [`cannot_bind`], on a simulated host: it knows whose address that is.
pub(super) fn cannot_bind_on(host: &HostNet, address: SocketAddr, error: io::Error) -> io::Error {
    let is_foreign = error.kind() == io::ErrorKind::AddrNotAvailable;
    let why = is_foreign
        .then(|| host.why_not_bind(address.ip()))
        .flatten();
    match why {
        Some(why) => {
            let text = format!("cannot bind {address}: {error}: {why}");
            io::Error::new(error.kind(), AddressedError { text, error })
        }
        None => cannot_bind(address, error),
    }
}

/// An error of the system, with a text that names its address.
#[derive(Debug)]
struct AddressedError {
    text: String,
    error: io::Error,
}

impl fmt::Display for AddressedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for AddressedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
