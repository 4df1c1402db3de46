//! The handle of a running inspector.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::group::handle::EventLoopGroup;
use crate::termination::TerminationFuture;

/// How long an answer that is under way may take after the stop.
const DRAIN: Duration = Duration::from_secs(2);

/// A handle to a running [`Inspector`](super::Inspector).
///
/// Dropping it detaches the inspector, which then runs until the process ends; so
/// `println!("{}", inspector.serve("127.0.0.1:0")?.url())` is all that a program needs.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, inspect::Inspector};
///
/// let group = EventLoopGroup::new(1)?;
/// let inspector = Inspector::new().watch("workers", &group).serve("127.0.0.1:0")?;
/// assert_eq!(inspector.url(), format!("http://{}/", inspector.local_addr()));
/// inspector.stop();
/// assert!(inspector.termination().wait().is_clean());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct InspectorHandle {
    own: EventLoopGroup,
    address: SocketAddr,
    token: Option<String>,
}

impl InspectorHandle {
    pub(super) fn new(
        own: EventLoopGroup,
        address: SocketAddr,
        token: Option<String>,
    ) -> InspectorHandle {
        InspectorHandle {
            own,
            address,
            token,
        }
    }

    /// Returns the link to the page, for a person to open; it contains the token, if there is one.
    ///
    /// For an inspector that listens on all addresses of the machine, the link is that of this machine.
    pub fn url(&self) -> String {
        let mut address = self.address;
        // A browser would write ::ffff:127.0.0.1 in another way, which is no host of ours.
        address.set_ip(address.ip().to_canonical());
        match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        match &self.token {
            Some(token) => format!("http://{address}/?token={token}"),
            None => format!("http://{address}/"),
        }
    }

    /// Returns the address that the inspector listens on, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops the inspector: closes the listener, and the open pages. It does not block, and may be called
    /// more than once.
    pub fn stop(&self) {
        drop(self.own.drain(DRAIN));
    }

    /// Observes the end of the inspector, without requesting it.
    pub fn termination(&self) -> TerminationFuture {
        self.own.termination()
    }
}

/// Without the token.
impl fmt::Debug for InspectorHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InspectorHandle")
            .field("local_addr", &self.address)
            .field("needs_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}
