//! What can go wrong with paths and hosts.

use std::time::Duration;

use super::host::HostId;
use super::kernel::Kernel;
use super::queue::Event;
use super::socket_id::SocketId;

impl Kernel {
    pub(super) fn cut(&mut self, from: HostId, to: HostId) {
        let path = self.links.own_path(from, to);
        path.cut = true;
        path.cuts = path.cuts.wrapping_add(1);
    }

    pub(super) fn mend(&mut self, from: HostId, to: HostId) {
        if let Some(path) = self.links.path_mut(from, to) {
            path.cut = false;
        }
    }

    pub(super) fn mend_all(&mut self) {
        for (from, to) in self.links.own_paths() {
            self.mend(from, to);
            if self.links.own_path(from, to).held {
                self.release(from, to);
            }
        }
    }

    pub(super) fn hold(&mut self, from: HostId, to: HostId) {
        self.links.own_path(from, to).held = true;
    }

    pub(super) fn release(&mut self, from: HostId, to: HostId) {
        self.links.own_path(from, to).held = false;
        self.queue.add(self.now, Event::Drain(from, to));
    }

    pub(super) fn clog(&mut self, from: HostId, to: HostId, until: Duration) {
        let path = self.links.own_path(from, to);
        path.clogged = path.clogged.max(until);
        self.queue.add(until.max(self.now), Event::Drain(from, to));
    }

    /// Closes every socket of a host, as a kernel does for a dead process.
    pub(super) fn close_process(&mut self, host: HostId) {
        for id in self.sockets_of(host) {
            self.close(id);
        }
    }

    /// Ends a host without a word.
    pub(super) fn crash(&mut self, host: HostId) {
        self.hosts.get_mut(host).up = false;
        for id in self.sockets_of(host) {
            self.remove(id);
        }
        self.paths.retain(|(of, _), _| *of != host);
    }

    pub(super) fn boot(&mut self, host: HostId) {
        self.hosts.get_mut(host).up = true;
        // What removes the paths that an earlier life has left works on files, which a simulated host has
        // not.
        self.paths.retain(|(one, _), _| *one != host);
    }

    fn sockets_of(&self, host: HostId) -> Vec<SocketId> {
        self.hosts.get(host).sockets.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests;
