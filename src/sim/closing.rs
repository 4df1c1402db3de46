//! How connections and sockets end: FIN, RST, and what the kernel still does for a socket that was closed.
//!
//! - A socket that was closed in order stays in the table until both ends have got the other's FIN, so
//!   that no late packet finds it missing. There is no TIME_WAIT.

use std::io;
use std::net::Shutdown;

use super::errno::{self, error, fail};
use super::kernel::Kernel;
use super::packet::Body;
use super::socket_id::SocketId;
use super::stream::State;
use super::table::{Kind, Owner};

impl Kernel {
    pub(super) fn shutdown(&mut self, id: SocketId, how: Shutdown) -> io::Result<()> {
        if self.table.letters(id).is_some() {
            return self.letters_shutdown(id, how);
        }
        let stream = self.owned_stream(id)?;
        if !stream.is_open() || stream.is_over() {
            return fail(errno::ENOTCONN);
        }
        if how != Shutdown::Write {
            stream.input.shut = true;
            let unix_peer = stream.peer.filter(|_| stream.way.unix);
            if let Some(peer) = unix_peer {
                self.close_output(peer);
            }
        }
        if how != Shutdown::Read && self.owned_stream(id)?.output.finish() {
            self.record.reached.half_closes += u64::from(how == Shutdown::Write);
            self.push(id);
        }
        self.edge(id);
        Ok(())
    }

    /// The peer of a Unix socket does not read any more: writes fail at once.
    fn close_output(&mut self, id: SocketId) {
        if let Some(stream) = self.table.stream(id) {
            stream.output.shut = true;
            self.edge(id);
        }
    }

    pub(super) fn fin(&mut self, id: SocketId, seq: u64, closed: bool) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let is_new = stream.input.take_fin(seq);
        let unix = stream.is_unix();
        self.acknowledge(id);
        match unix && closed {
            true => self.close_output(id),
            false if is_new => self.edge(id),
            false => {}
        }
        self.settle(id);
    }

    /// A RST has arrived.
    pub(super) fn reset(&mut self, id: SocketId) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let code = match stream.state {
            State::Connecting(_) => errno::ECONNREFUSED,
            State::HalfOpen { .. } => return self.remove(id),
            State::NoRoute | State::Dead => return,
            // Both directions had ended: to a real socket this is the past.
            State::Open if stream.input.fin && stream.output.finished => return,
            State::Open if stream.input.fin && !stream.is_unix() => errno::EPIPE,
            State::Open => errno::ECONNRESET,
        };
        if stream.is_open() {
            self.record.reached.resets += 1;
        }
        self.break_off(id, code);
    }

    /// Ends a connection with an error.
    pub(super) fn break_off(&mut self, id: SocketId, code: i32) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        stream.state = State::Dead;
        stream.error = Some(code);
        stream.output.clear();
        self.disarm(id);
        match self.table.get(id).map(|entry| entry.owner) {
            Some(Owner::Kernel) => self.remove(id),
            _ => self.edge(id),
        }
    }

    /// A program closes a socket, or dies.
    pub(super) fn close(&mut self, id: SocketId) {
        let Some(entry) = self.table.owned(id) else {
            return;
        };
        if let Some(watch) = entry.watch.take() {
            watch.selector.forget(watch.token);
        }
        match &mut entry.kind {
            Kind::Datagrams(_) | Kind::Letters(_) => self.remove(id),
            Kind::Listener(listener) => {
                let queued = listener.ready.drain(..);
                let children: Vec<_> = queued.chain(listener.half_open.iter().copied()).collect();
                for child in children {
                    self.emit(child, Body::Rst);
                    self.remove(child);
                }
                self.remove(id);
            }
            Kind::Stream(stream) if !stream.is_open() => self.remove(id),
            Kind::Stream(stream) if stream.linger_zero || stream.input.len() > 0 => {
                self.emit(id, Body::Rst);
                self.remove(id);
            }
            Kind::Stream(_) => self.close_in_order(id),
        }
    }

    fn close_in_order(&mut self, id: SocketId) {
        if let Some(entry) = self.table.get_mut(id) {
            entry.owner = Owner::Kernel;
        }
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let is_first = stream.output.finish();
        let (unix, fin) = (stream.is_unix(), stream.output.fin());
        match fin {
            // The peer of a Unix socket learns of this, too.
            Some(seq) if unix && !is_first => self.emit(id, Body::Fin { seq, closed: true }),
            _ => self.push(id),
        }
        self.settle(id);
    }

    /// Removes a closed socket once both ends have got the other's FIN.
    pub(super) fn settle(&mut self, id: SocketId) {
        let Some(entry) = self.table.get(id) else {
            return;
        };
        let Kind::Stream(stream) = &entry.kind else {
            return;
        };
        if entry.owner != Owner::Kernel || !stream.output.finished {
            return;
        }
        let (peer, fin) = (stream.peer, stream.input.fin);
        let is_over = match peer.and_then(|peer| self.table.stream(peer)) {
            Some(peer) => fin && peer.output.finished,
            None => true,
        };
        if is_over {
            self.remove(id);
        }
    }

    /// Removes a socket, without a word to anyone.
    pub(super) fn remove(&mut self, id: SocketId) {
        self.disarm(id);
        let Some(entry) = self.table.remove(id) else {
            return;
        };
        self.hosts.get_mut(entry.host).sockets.remove(&id);
        if let Some(watch) = entry.watch {
            watch.selector.forget(watch.token);
        }
        if let Some(port) = entry.port {
            self.ports.give_back(port, id);
        }
        let Kind::Stream(stream) = entry.kind else {
            return;
        };
        if let State::HalfOpen { listener, .. } = stream.state {
            if let Some(listener) = self.table.listener(listener) {
                listener.half_open.remove(&id);
            }
        }
        if let Some(peer) = stream.peer {
            if self.accepting.get(&peer) == Some(&id) {
                self.accepting.remove(&peer);
            }
            self.settle(peer);
        }
    }

    pub(super) fn take_error(&mut self, id: SocketId) -> Option<io::Error> {
        let code = match &mut self.table.owned(id)?.kind {
            Kind::Stream(stream) => stream.error.take(),
            Kind::Datagrams(datagrams) => datagrams.error.take(),
            Kind::Listener(_) | Kind::Letters(_) => None,
        };
        code.map(error)
    }
}

#[cfg(test)]
mod tests;
