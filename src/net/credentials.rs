//! Credentials of the peer process of a Unix stream, as recorded by the kernel.

use std::io;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use crate::net::UnixStream;

/// The credentials of a peer process at the time of the connection.
///
/// # Examples
///
/// ```
/// use loopgroup::net::UnixStream;
///
/// let (one, _other) = UnixStream::pair()?;
/// let cred = one.peer_cred()?;
/// assert_eq!(cred.pid(), Some(std::process::id()));
/// println!("user {} of group {}", cred.uid(), cred.gid());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl UCred {
    /// Returns the user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the group id.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the process id, if it is known; the process may have exited since.
    pub fn pid(&self) -> Option<u32> {
        // 0: the process is in another PID namespace, invisible to this one.
        (self.pid != 0).then_some(self.pid)
    }
}

impl UnixStream {
    /// Returns the credentials of the peer process (`SO_PEERCRED`; Linux only).
    ///
    /// # Errors
    ///
    /// Returns any error from the operating system.
    ///
    /// # Examples
    ///
    /// ```
    /// let (one, other) = loopgroup::net::UnixStream::pair()?;
    /// let cred = one.peer_cred()?;
    /// println!("user {}, group {}, process {:?}", cred.uid(), cred.gid(), cred.pid());
    /// assert_eq!(cred, other.peer_cred()?); // both ends are ours
    /// # std::io::Result::Ok(())
    /// ```
    pub fn peer_cred(&self) -> io::Result<UCred> {
        let cred = getsockopt(self, PeerCredentials)?;
        Ok(UCred {
            uid: cred.uid(),
            gid: cred.gid(),
            pid: u32::try_from(cred.pid()).unwrap_or(0),
        })
    }
}
