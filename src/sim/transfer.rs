//! How bytes get from one end of a connection to the other.
//!
//! - A loss is a delay: what is lost is sent again after 200 ms, 400 ms, … 120 s, until 924 s have passed.
//! - The peer's window grows again when half of the receive buffer has been read.
//! - A partial read or write is followed by an edge, as if the rest of the bytes or of the space came
//!   right after it.

use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

use super::errno::{self, error, fail};
use super::handshake::seconds;
use super::kernel::Kernel;
use super::output::Segment;
use super::packet::{Body, Packet};
use super::socket_id::SocketId;
use super::stream::{State, Stream};
use super::table::{Kind, Owner};

const LAST_RTO: Duration = Duration::from_secs(120);
/// How long a sender tries.
const PATIENCE: Duration = Duration::from_secs(924);

impl Kernel {
    /// The stream, if a program has it.
    pub(super) fn owned_stream(&mut self, id: SocketId) -> io::Result<&mut Stream> {
        let entry = self.table.owned(id).ok_or_else(|| error(errno::EBADF))?;
        match &mut entry.kind {
            Kind::Stream(stream) => Ok(stream),
            Kind::Listener(_) => fail(errno::ENOTCONN),
            Kind::Datagrams(_) | Kind::Letters(_) => fail(errno::EOPNOTSUPP),
        }
    }

    pub(super) fn read(&mut self, id: SocketId, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let bytes = self.readable(id, into)?;
        let part = self.draws.part(bytes, self.partial);
        let stream = self.owned_stream(id)?;
        let mut copied = 0;
        for slice in into {
            let bytes = slice.len().min(part - copied);
            stream.input.copy_to(copied, &mut slice[..bytes]);
            copied += bytes;
        }
        stream.input.consume(part);
        if stream.input.open_window() && stream.is_open() {
            self.acknowledge(id);
        }
        if part < bytes {
            self.record.reached.partial_reads += 1;
            self.edge(id);
        }
        Ok(part)
    }

    pub(super) fn peek(&mut self, id: SocketId, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.readable(id, &[IoSliceMut::new(into)])?;
        let stream = self.owned_stream(id)?;
        stream.input.copy_to(0, &mut into[..bytes]);
        Ok(bytes)
    }

    /// How many bytes a read gets; 0 is the end, or a read of nothing.
    fn readable(&mut self, id: SocketId, into: &[IoSliceMut<'_>]) -> io::Result<usize> {
        let stream = self.owned_stream(id)?;
        let wanted: usize = into.iter().map(|slice| slice.len()).sum();
        let bytes = stream.input.len().min(wanted);
        // As on Linux, TCP finds the end that its peer has sent before the error that came later.
        if bytes > 0 || wanted == 0 || stream.input.fin && !stream.is_unix() {
            return Ok(bytes);
        }
        if let Some(code) = stream.error.take() {
            return fail(code);
        }
        let is_at_end = stream.input.fin || stream.input.shut || stream.state == State::Dead;
        match is_at_end {
            true => Ok(0),
            false => fail(errno::EAGAIN),
        }
    }

    pub(super) fn write(&mut self, id: SocketId, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let partial = self.partial;
        let stream = self.owned_stream(id)?;
        if stream.is_connecting() {
            return fail(errno::EAGAIN);
        }
        if stream.output.shut {
            let pending = stream.error.take_if(|_| !stream.way.unix);
            return fail(pending.unwrap_or(errno::EPIPE));
        }
        let whole: usize = from.iter().map(|slice| slice.len()).sum();
        let space = stream.output.space();
        if whole > 0 && space == 0 {
            stream.output.starved = true;
            self.record.reached.window_full += 1;
            return fail(errno::EAGAIN);
        }
        let bytes = whole.min(space);
        let part = self.draws.part(bytes, partial);
        let stream = self.owned_stream(id)?;
        let mut left = part;
        for slice in from {
            let bytes = slice.len().min(left);
            stream.output.put(&slice[..bytes]);
            left -= bytes;
        }
        if part < whole {
            stream.output.starved = true;
            self.record.reached.partial_writes += 1;
        }
        self.push(id);
        if part < bytes {
            self.edge(id);
        }
        Ok(part)
    }

    /// Sends what the window allows.
    pub(super) fn push(&mut self, id: SocketId) {
        let stream = self.table.stream(id).filter(|stream| stream.is_open());
        if stream.is_none() {
            return;
        }
        let output = |kernel: &mut Kernel| kernel.table.stream(id)?.output.next_segment();
        while let Some(segment) = output(self) {
            self.send_segment(id, segment);
        }
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let output = &stream.output;
        if output.stale && output.is_waiting() && !output.is_in_flight() {
            let wait = output.rto;
            self.arm(id, wait);
        }
    }

    fn send_segment(&mut self, id: SocketId, segment: Segment) {
        let closed = self
            .table
            .get(id)
            .is_some_and(|entry| entry.owner == Owner::Kernel);
        let body = match segment {
            Segment::Data { seq, bytes } => Body::Data { seq, bytes },
            Segment::Fin { seq } => Body::Fin { seq, closed },
        };
        self.emit(id, body);
    }

    /// Sends an acknowledgement.
    pub(super) fn acknowledge(&mut self, id: SocketId) {
        if let Some(stream) = self.table.stream(id) {
            let (upto, limit) = stream.input.acknowledgement();
            self.emit(id, Body::Ack { upto, limit });
        }
    }

    /// A packet of a connection has arrived.
    pub(super) fn segment(&mut self, packet: Packet) {
        let Some(id) = packet.target else {
            return;
        };
        let Some(stream) = self.table.stream(id) else {
            return self.astray(&packet);
        };
        if let (State::Dead, Body::Data { .. } | Body::Fin { .. }) = (stream.state, &packet.body) {
            return self.refuse(&packet);
        }
        match packet.body {
            Body::SynAck { window } => return self.syn_ack(id, packet.sender, window),
            Body::Rst => return self.reset(id),
            _ => self.establish(id),
        }
        let is_open = self.table.stream(id).is_some_and(|stream| stream.is_open());
        match packet.body {
            Body::Data { seq, bytes } if is_open => self.data(id, seq, &bytes),
            Body::Fin { seq, closed } if is_open => self.fin(id, seq, closed),
            Body::Ack { upto, limit } if is_open => self.ack(id, upto, limit),
            _ => {}
        }
    }

    /// A packet is for a socket that is not there any more.
    fn astray(&mut self, packet: &Packet) {
        match packet.body {
            Body::SynAck { .. } | Body::Data { .. } | Body::Fin { .. } => self.refuse(packet),
            // The last part of a handshake. Later ones may come after an orderly end, which they must
            // not spoil.
            Body::Ack { upto: 0, .. } => self.refuse(packet),
            _ => {}
        }
    }

    fn data(&mut self, id: SocketId, seq: u64, bytes: &[u8]) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        // As on Linux, TCP resets both ends if new data arrives where both directions were shut.
        let shut = stream.input.shut && stream.output.shut && !stream.is_unix();
        let is_new = stream.input.is_new(seq, bytes);
        let owner = self.table.get(id).map(|entry| entry.owner);
        if is_new && (shut || owner == Some(Owner::Kernel)) {
            self.emit(id, Body::Rst);
            return self.break_off(id, errno::ECONNRESET);
        }
        if let Some(stream) = self.table.stream(id) {
            stream.input.take(seq, bytes);
            stream.input.open_window();
        }
        self.acknowledge(id);
        if is_new {
            self.edge(id);
        }
    }

    fn ack(&mut self, id: SocketId, upto: u64, limit: u64) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let output = &mut stream.output;
        let is_progress = output.acknowledge(upto, limit);
        let (runs, rto) = (stream.timer.is_some(), output.rto);
        let still_needed = output.is_waiting() && output.is_in_flight();
        let has_space = output.starved && output.space() > 0 && !output.shut;
        output.starved &= !has_space;
        let peer = stream.peer;
        if runs && (is_progress || !still_needed) {
            self.disarm(id);
            if still_needed {
                self.arm(id, rto);
            }
        }
        if has_space {
            self.edge(id);
        }
        self.push(id);
        self.settle(id);
        if let Some(peer) = peer {
            self.settle(peer);
        }
    }

    /// A segment or a SYN-ACK was lost: its sender will send it again.
    pub(super) fn lost_output(&mut self, packet: Packet) {
        self.wait_for(packet.sender, packet.sent);
    }

    /// An acknowledgement was lost: its receiver will ask for it by sending again.
    pub(super) fn lost_answer(&mut self, packet: Packet) {
        if let Some(id) = packet.target {
            if let Some(stream) = self.table.stream(id) {
                stream.output.stale = true;
            }
            self.wait_for(id, packet.sent);
        }
    }

    fn wait_for(&mut self, id: SocketId, since: Duration) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        match stream.state {
            State::HalfOpen { again, .. } => self.arm(id, seconds(again)),
            State::Open if stream.output.is_waiting() => {
                stream.output.failing.get_or_insert(since);
                let wait = stream.output.rto;
                self.arm(id, wait);
            }
            _ => {}
        }
    }

    /// Sends everything again that was not acknowledged.
    pub(super) fn retransmit(&mut self, id: SocketId) {
        let now = self.now;
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let output = &mut stream.output;
        if !output.is_waiting() {
            return;
        }
        if output
            .failing
            .is_some_and(|since| now.saturating_sub(since) >= PATIENCE)
        {
            return self.break_off(id, errno::ETIMEDOUT);
        }
        output.rto = (output.rto * 2).min(LAST_RTO);
        output.rewind();
        let probe = output.probe();
        self.again(id);
        self.push(id);
        let sent = self
            .table
            .stream(id)
            .is_some_and(|stream| stream.output.is_in_flight());
        if !sent {
            self.send_segment(id, probe);
        }
    }
}

#[cfg(test)]
mod tests;
