//! What every stream does to send: its packets, its timer.

use std::time::Duration;

use super::input::Input;
use super::kernel::Kernel;
use super::net_event::What;
use super::output::Output;
use super::packet::{Body, Packet, Way};
use super::queue::Event;
use super::socket_id::SocketId;
use super::stream::{Names, State, Stream, Wire};

impl Kernel {
    pub(super) fn new_stream(
        &self,
        state: State,
        names: Names,
        way: Way,
        peer: Option<SocketId>,
    ) -> Stream {
        Stream {
            state,
            names,
            way,
            peer,
            output: Output::new(self.links.get(way.from, way.to).buffer),
            input: Input::new(self.links.get(way.to, way.from).buffer),
            wire: Wire::default(),
            timer: None,
            error: None,
            linger_zero: false,
        }
    }

    /// Sends a packet of a stream.
    pub(super) fn emit(&mut self, id: SocketId, body: Body) {
        let Some(stream) = self.table.stream(id) else {
            return;
        };
        let wire = stream.wire;
        let packet = Packet {
            way: stream.way,
            sender: id,
            target: stream.peer,
            body,
            sent: Duration::ZERO,
            lost: false,
            cuts: 0,
        };
        let wire = self.send(packet, wire);
        if let Some(stream) = self.table.stream(id) {
            stream.wire = wire;
        }
    }

    /// Answers a packet that nobody takes with RST.
    pub(super) fn refuse(&mut self, packet: &Packet) {
        let answer = Packet {
            way: packet.way.back(),
            sender: packet.sender,
            target: Some(packet.sender),
            body: Body::Rst,
            sent: Duration::ZERO,
            lost: false,
            cuts: 0,
        };
        self.send(answer, Wire::default());
    }

    /// Starts the timer of a stream, if it does not run.
    pub(super) fn arm(&mut self, id: SocketId, wait: Duration) {
        let at = self.now.saturating_add(wait);
        if let Some(stream) = self.table.stream(id) {
            if stream.timer.is_none() {
                stream.timer = Some(self.queue.add(at, Event::Timer(id)));
            }
        }
    }

    pub(super) fn disarm(&mut self, id: SocketId) {
        let timer = self.table.stream(id).and_then(|stream| stream.timer.take());
        if let Some(timer) = timer {
            self.queue.remove(timer);
        }
    }

    /// Notes that something is sent again.
    pub(super) fn again(&mut self, id: SocketId) {
        self.record.reached.retransmissions += 1;
        if let Some(stream) = self.table.stream(id) {
            self.record.note(stream.way.event(self.now, What::Again));
        }
    }
}
