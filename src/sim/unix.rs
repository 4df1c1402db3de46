//! Unix stream sockets: connections of one host by path, without latency and without faults.
//!
//! - A connect is over at once; bytes take the way of the others, with events of the same instant.
//! - A path stays until it is unlinked or its host crashes, whether anyone listens or not.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::errno::{self, error, fail};
use super::host::HostId;
use super::kernel::Kernel;
use super::listener::{Listener, ListenerName};
use super::packet::Way;
use super::socket_id::SocketId;
use super::stream::{Names, State};
use super::table::{Kind, Owner};

impl Kernel {
    /// Binds a socket, which does not listen yet.
    pub(super) fn unix_bind(&mut self, host: HostId, path: &Path) -> io::Result<SocketId> {
        self.check_up(host)?;
        self.check_path(host, path)?;
        let key = (host, path.to_owned());
        let listener = Listener::new(ListenerName::Unix(path.to_owned()));
        let kind = Kind::Listener(Box::new(listener));
        let id = self.add(host, Owner::Program, kind, None);
        self.paths.insert(key, id);
        Ok(id)
    }

    /// Connects a socket, which is bound to `from` if that is a path.
    pub(super) fn unix_connect(
        &mut self,
        host: HostId,
        from: Option<PathBuf>,
        path: &Path,
    ) -> io::Result<SocketId> {
        self.check_up(host)?;
        let listener = self.paths.get(&(host, path.to_owned())).copied();
        let listener = listener.ok_or_else(|| error(errno::ENOENT))?;
        if self.table.letters(listener).is_some() {
            return fail(errno::EPROTOTYPE);
        }
        match self.table.listener(listener) {
            None => return fail(errno::ECONNREFUSED),
            Some(bound) if !bound.listens() => return fail(errno::ECONNREFUSED),
            Some(full) if full.is_full() => {
                self.record.reached.backlog_full += 1;
                return fail(errno::EAGAIN);
            }
            Some(_) => {}
        }
        let name = Some(path.to_owned());
        let (id, accepted) = self.unix_streams(host, from, name, Owner::Listener);
        if let Some(listener) = self.table.listener(listener) {
            listener.ready.push_back(accepted);
        }
        self.edge(listener);
        Ok(id)
    }

    pub(super) fn unix_pair(&mut self, host: HostId) -> (SocketId, SocketId) {
        self.unix_streams(host, None, None, Owner::Program)
    }

    /// Makes two connected sockets with their names; the second has an owner.
    fn unix_streams(
        &mut self,
        host: HostId,
        from: Option<PathBuf>,
        name: Option<PathBuf>,
        owner: Owner,
    ) -> (SocketId, SocketId) {
        let names = |local, peer| Names::Unix { local, peer };
        let first = self.unix_stream(
            host,
            names(from.clone(), name.clone()),
            None,
            Owner::Program,
        );
        let second = self.unix_stream(host, names(name, from), Some(first), owner);
        if let Some(stream) = self.table.stream(first) {
            stream.peer = Some(second);
        }
        (first, second)
    }

    fn unix_stream(
        &mut self,
        host: HostId,
        names: Names,
        peer: Option<SocketId>,
        owner: Owner,
    ) -> SocketId {
        let mut stream = self.new_stream(State::Open, names, Way::unix(host), peer);
        // The peer's receive buffer is as large as this one.
        let (_, window) = stream.input.acknowledgement();
        stream.output.set_limit(window);
        self.add(host, owner, Kind::Stream(Box::new(stream)), None)
    }

    /// Whether a socket may be bound to a path.
    pub(super) fn check_path(&self, host: HostId, path: &Path) -> io::Result<()> {
        SocketAddr::from_pathname(path)?; // no longer than a system allows, and without a zero byte
        match self.paths.contains_key(&(host, path.to_owned())) {
            true => fail(errno::EADDRINUSE),
            false => Ok(()),
        }
    }

    /// Removes the path of a Unix socket; says whether there was one.
    pub(super) fn unlink(&mut self, host: HostId, path: &Path) -> bool {
        self.paths.remove(&(host, path.to_owned())).is_some()
    }
}

#[cfg(test)]
mod tests;
