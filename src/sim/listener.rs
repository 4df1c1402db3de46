//! A socket that listens, or is bound and will: the connections that wait to be accepted.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;

use super::socket_id::SocketId;

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) name: ListenerName,
    /// `None` while it is bound and does not listen.
    backlog: Option<usize>,
    /// Connections to accept.
    pub(super) ready: VecDeque<SocketId>,
    /// Connections whose peers have not said yet that they are connected.
    pub(super) half_open: BTreeSet<SocketId>,
}

#[derive(Debug)]
pub(super) enum ListenerName {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listener {
    /// A socket that is bound.
    pub(super) fn new(name: ListenerName) -> Listener {
        Listener {
            name,
            backlog: None,
            ready: VecDeque::new(),
            half_open: BTreeSet::new(),
        }
    }

    pub(super) fn listen(&mut self, backlog: usize) {
        self.backlog = Some(backlog);
    }

    pub(super) fn listens(&self) -> bool {
        self.backlog.is_some()
    }

    /// Whether it drops further connects: it holds one connection more than its backlog says, as on Linux.
    pub(super) fn is_full(&self) -> bool {
        let held = self.ready.len() + self.half_open.len();
        self.backlog.is_some_and(|backlog| held > backlog)
    }
}
