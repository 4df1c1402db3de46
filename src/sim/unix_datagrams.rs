//! Unix sockets of datagrams, of one host by path.
//!
//! - What is sent is there at once: there is no packet on its way, and no fault.
//! - A connected sender hears once that its peer is gone, and is not connected from then on.

use std::io;
use std::net::Shutdown;
use std::path::{Path, PathBuf};

use super::errno::{self, error, fail};
use super::host::HostId;
use super::kernel::Kernel;
use super::letters::{HELD, LONGEST, Letters};
use super::socket_id::SocketId;
use super::table::{Kind, Owner};

impl Kernel {
    pub(super) fn letters_open(
        &mut self,
        host: HostId,
        path: Option<&Path>,
    ) -> io::Result<SocketId> {
        self.check_up(host)?;
        if let Some(path) = path {
            self.check_path(host, path)?;
        }
        let letters = Letters {
            path: path.map(Path::to_owned),
            ..Letters::default()
        };
        let id = self.add(host, Owner::Program, Kind::Letters(Box::new(letters)), None);
        if let Some(path) = path {
            self.paths.insert((host, path.to_owned()), id);
        }
        Ok(id)
    }

    pub(super) fn letters_pair(&mut self, host: HostId) -> io::Result<(SocketId, SocketId)> {
        let (one, other) = (
            self.letters_open(host, None)?,
            self.letters_open(host, None)?,
        );
        for (id, peer) in [(one, other), (other, one)] {
            self.letters(id)?.peer = Some(peer);
        }
        Ok((one, other))
    }

    pub(super) fn letters_connect(&mut self, id: SocketId, path: &Path) -> io::Result<()> {
        let peer = self.letters_at(id, path)?;
        let letters = self.letters(id)?;
        letters.peer = Some(peer);
        letters.peer_path = Some(path.to_owned());
        self.edge(id);
        Ok(())
    }

    /// Sends to a path, or to the peer.
    pub(super) fn letters_send(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        path: Option<&Path>,
    ) -> io::Result<usize> {
        let letters = self.letters(id)?;
        let (from, connected) = (letters.path.clone(), letters.peer);
        if letters.write_shut {
            return fail(errno::EPIPE);
        }
        if bytes.len() > LONGEST {
            return fail(errno::EMSGSIZE);
        }
        let to = match path {
            Some(path) => self.letters_at(id, path)?,
            None => connected.ok_or_else(|| error(errno::ENOTCONN))?,
        };
        let Some(receiver) = self.table.letters(to) else {
            // It hears of the end of its peer once, and is not connected from then on.
            self.letters(id)?.peer = None;
            return fail(errno::ECONNREFUSED);
        };
        if receiver.read_shut {
            return fail(errno::EPIPE);
        }
        if receiver.is_full(id) {
            self.record.reached.window_full += 1;
            return fail(errno::EAGAIN);
        }
        receiver.received.push_back((bytes.to_vec(), from));
        self.edge(to);
        Ok(bytes.len())
    }

    pub(super) fn letters_receive(
        &mut self,
        id: SocketId,
        into: &mut [u8],
    ) -> io::Result<(usize, Option<PathBuf>)> {
        let letters = self.letters(id)?;
        let held = letters.received.len();
        let Some((bytes, from)) = letters.received.pop_front() else {
            return match letters.read_shut {
                true => Ok((0, None)),
                false => fail(errno::EAGAIN),
            };
        };
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        if held >= HELD {
            let host = self.host_of(id)?;
            let all: Vec<_> = self.hosts.get(host).sockets.iter().copied().collect();
            for one in all {
                let waits = self
                    .table
                    .letters(one)
                    .is_some_and(|other| other.peer == Some(id));
                if waits {
                    self.edge(one);
                }
            }
        }
        Ok((len, from))
    }

    pub(super) fn letters_shutdown(&mut self, id: SocketId, how: Shutdown) -> io::Result<()> {
        let letters = self.letters(id)?;
        letters.read_shut |= how != Shutdown::Write;
        letters.write_shut |= how != Shutdown::Read;
        self.edge(id);
        Ok(())
    }

    /// Whether the peer of a socket holds as much as it can.
    pub(super) fn peer_is_full(&mut self, id: SocketId) -> bool {
        let peer = self.table.letters(id).and_then(|letters| letters.peer);
        let peer = peer.and_then(|peer| self.table.letters(peer));
        peer.is_some_and(|peer| peer.is_full(id))
    }

    /// The socket, if a program has it, and it is one of datagrams.
    fn letters(&mut self, id: SocketId) -> io::Result<&mut Letters> {
        let entry = self.table.owned(id).ok_or_else(|| error(errno::EBADF))?;
        match &mut entry.kind {
            Kind::Letters(letters) => Ok(letters),
            _ => fail(errno::EOPNOTSUPP),
        }
    }

    /// The socket of datagrams at a path of the same host.
    fn letters_at(&mut self, id: SocketId, path: &Path) -> io::Result<SocketId> {
        let host = self.host_of(id)?;
        let at = self.paths.get(&(host, path.to_owned())).copied();
        let at = at.ok_or_else(|| error(errno::ENOENT))?;
        match self.table.get(at).map(|entry| &entry.kind) {
            Some(Kind::Letters(_)) => Ok(at),
            Some(_) => fail(errno::EPROTOTYPE),
            None => fail(errno::ECONNREFUSED),
        }
    }
}
