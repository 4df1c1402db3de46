//! Paths and abstract names of Unix sockets.
//!
//! - A path that begins with a zero byte is an abstract name (Linux). A zero byte within a path is an
//!   error: the system would truncate the path there, and mean another socket.
//! - An unnamed address cannot be connected or sent to.

use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::SockAddr;

/// Converts a path, or an abstract name.
pub(super) fn from_path(path: &Path) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = path.as_os_str().as_bytes().strip_prefix(b"\0") {
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(path)
}

/// Converts an address that has a name.
pub(super) fn to_sock_addr(address: &SocketAddr) -> io::Result<SockAddr> {
    if let Some(path) = address.as_pathname() {
        return SockAddr::unix(path);
    }
    #[cfg(target_os = "linux")]
    if let Some(name) = address.as_abstract_name() {
        // socket2 takes a path that begins with a zero byte for an abstract name.
        let path = [b"\0", name].concat();
        return SockAddr::unix(std::ffi::OsStr::from_bytes(&path));
    }
    Err(unnamed_address())
}

/// Returns an error for an unnamed address.
pub(super) fn require_name(address: &SocketAddr) -> io::Result<()> {
    match address.is_unnamed() {
        true => Err(unnamed_address()),
        false => Ok(()),
    }
}

#[cold]
fn unnamed_address() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "this Unix socket address has no name: no socket can be reached by it",
    )
}

/// A path or an abstract name as an error shows it.
pub(super) struct ShownPath<'a>(pub(super) &'a Path);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShownPath(path) = self;
        match path.as_os_str().as_bytes().contains(&0) {
            // With its zero bytes visible.
            true => write!(f, "{path:?}"),
            false => write!(f, "{}", path.display()),
        }
    }
}
