//! A socket that a task waits for, as a report names it.

use std::fmt;
use std::os::fd::RawFd;

use crate::sync::Arc;

/// A socket, or another descriptor, that a task waits for: its addresses, as they were when the task began to
/// wait. See [`Wait`](crate::Wait).
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, Wait, net::TcpListener};
///
/// let group = EventLoopGroup::builder().loops(1).track_tasks(true).build()?;
/// let (tx, rx) = std::sync::mpsc::channel();
/// let server = group.spawn(async move {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     tx.send(listener.local_addr()?).unwrap();
///     listener.accept().await.map(drop)
/// });
/// let address = rx.recv().unwrap();
/// group.block_on(group.spawn(async {})).unwrap(); // behind the server, which waits by now
/// match &group.tasks()[0].waits_for()[0] {
///     Wait::Accept(socket) => assert_eq!(socket.local(), Some(&*address.to_string())),
///     other => unreachable!("{other}"),
/// }
/// # drop(server);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Endpoint(Arc<Names>);

struct Names {
    descriptor: RawFd,
    local: Option<Box<str>>,
    peer: Option<Box<str>>,
}

impl Endpoint {
    pub(crate) fn new(descriptor: RawFd, local: Option<String>, peer: Option<String>) -> Endpoint {
        let [local, peer] = [local, peer].map(|name| name.map(String::into_boxed_str));
        Endpoint(Arc::new(Names {
            descriptor,
            local,
            peer,
        }))
    }

    /// The same socket, with another peer.
    pub(crate) fn with_peer(&self, peer: String) -> Endpoint {
        let local = self.0.local.as_deref().map(str::to_owned);
        Endpoint::new(self.0.descriptor, local, Some(peer))
    }

    /// Returns the number of the descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.0.descriptor
    }

    /// Returns the address of this end: an IP address with its port, the path of a Unix socket, or `@` and
    /// the name of an abstract one. `None` for what is no socket, and for a Unix socket without a name.
    pub fn local(&self) -> Option<&str> {
        self.0.local.as_deref()
    }

    /// Returns the address of the other end, if there is one; while a task connects, the address that it
    /// connects to.
    pub fn peer(&self) -> Option<&str> {
        self.0.peer.as_deref()
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Endpoint) -> bool {
        fn names(one: &Endpoint) -> (RawFd, Option<&str>, Option<&str>) {
            (one.descriptor(), one.local(), one.peer())
        }
        Arc::ptr_eq(&self.0, &other.0) || names(self) == names(other)
    }
}

impl Eq for Endpoint {}

/// `127.0.0.1:80 with 127.0.0.1:40000`, on one line whatever the path of a socket contains.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (
            self.local().map(str::escape_debug),
            self.peer().map(str::escape_debug),
        ) {
            (Some(local), Some(peer)) => write!(f, "{local} with {peer}"),
            (Some(local), None) => write!(f, "{local}"),
            (None, Some(peer)) => write!(f, "descriptor {} with {peer}", self.0.descriptor),
            (None, None) => write!(f, "descriptor {}", self.0.descriptor),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("descriptor", &self.descriptor())
            .field("local", &self.local())
            .field("peer", &self.peer())
            .finish()
    }
}
