//! The state of a network, the way of a packet through it, and the clock.
//!
//! - A packet that was sent either arrives or is lost, and both happen at its time of arrival, in the
//!   order of its path: what is lost is sent again by its sender's timer, which nothing else starts.
//! - Edges are collected under the lock of the kernel and reported after it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::draws::Draws;
use super::host::{HostId, Hosts};
use super::link::Links;
use super::net_event::{NetEvent, What};
use super::packet::{Body, Packet};
use super::ports::Ports;
use super::queue::{Event, Queue};
use super::record::Record;
use super::selector::ReadyEvent;
use super::socket_id::SocketId;
use super::stream::Wire;
use super::table::{Kind, Table, Watch};

/// The latency between sockets of one host.
const INSIDE: Duration = Duration::from_micros(10);

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) now: Duration,
    pub(super) queue: Queue,
    pub(super) hosts: Hosts,
    pub(super) links: Links,
    pub(super) draws: Draws,
    pub(super) record: Record,
    pub(super) table: Table,
    pub(super) ports: Ports,
    /// The listener's side of each connection, by the id of the side that connects: a second SYN finds
    /// the first.
    pub(super) accepting: BTreeMap<SocketId, SocketId>,
    /// The paths of Unix sockets, with the last listener of each.
    pub(super) paths: BTreeMap<(HostId, PathBuf), SocketId>,
    /// The probability that a read or a write moves a part only.
    pub(super) partial: f64,
    /// Edges that have not been reported yet.
    pub(super) edges: Vec<(Watch, ReadyEvent)>,
}

impl Kernel {
    pub(super) fn new(seed: u64) -> Kernel {
        Kernel {
            now: Duration::ZERO,
            queue: Queue::default(),
            hosts: Hosts::default(),
            links: Links::default(),
            draws: Draws::new(seed),
            record: Record::new(),
            table: Table::default(),
            ports: Ports::default(),
            accepting: BTreeMap::new(),
            paths: BTreeMap::new(),
            partial: 0.1,
            edges: Vec::new(),
        }
    }

    /// Runs every event that is due by `to`.
    pub(super) fn advance(&mut self, to: Duration) {
        while let Some((at, event)) = self.queue.pop(to) {
            self.now = self.now.max(at);
            self.record.step(at);
            match event {
                Event::Arrive(packet) => self.arrive(packet),
                Event::Timer(id) => self.fire(id),
                Event::Drain(from, to) => self.drain(from, to),
            }
        }
        self.now = self.now.max(to);
    }

    /// Sends a packet after the others on its wire.
    pub(super) fn send(&mut self, mut packet: Packet, mut wire: Wire) -> Wire {
        let now = self.now;
        let event = packet.way.event(now, packet.body.what());
        let delay = match packet.way.is_inside() {
            true if packet.way.unix => Duration::ZERO,
            true => INSIDE,
            false => self.cross(&mut packet, &mut wire),
        };
        packet.sent = now;
        wire.last = wire.last.max(now.saturating_add(delay));
        let arrives = (!packet.lost).then_some(wire.last);
        self.record.note(NetEvent {
            arrives,
            content: packet.body.content(),
            ..event
        });
        self.queue.add(wire.last, Event::Arrive(Box::new(packet)));
        wire
    }

    /// How long a packet to another host takes; draws whether it is lost.
    pub(super) fn cross(&mut self, packet: &mut Packet, wire: &mut Wire) -> Duration {
        let (from, to) = (packet.way.from, packet.way.to);
        let link = self.links.get(from, to);
        if let Some(bandwidth) = link.bandwidth {
            let nanos = packet.body.size() as u128 * 1_000_000_000 / u128::from(bandwidth.max(1));
            let carried = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            wire.busy = wire.busy.max(self.now).saturating_add(carried);
        }
        let queued = wire.busy.saturating_sub(self.now);
        let jitter = self
            .draws
            .jitter(link.jitter)
            .saturating_add(self.draws.tail(link.tail));
        let delay = queued.saturating_add(link.latency).saturating_add(jitter);
        packet.lost = self.draws.fault(link.loss);
        if let Some(path) = self.links.path(from, to) {
            packet.lost |= path.cut;
            packet.cuts = path.cuts;
        }
        delay
    }

    fn arrive(&mut self, mut packet: Box<Packet>) {
        let way = packet.way;
        if !way.is_inside() {
            let now = self.now;
            if let Some(path) = self.links.path_mut(way.from, way.to) {
                if path.is_blocked(now) || !path.waiting.is_empty() {
                    path.waiting.push_back(packet);
                    return;
                }
                packet.lost |= path.cut || path.cuts != packet.cuts;
            }
            packet.lost |= !self.hosts.get(way.to).up;
        }
        match packet.lost {
            true => self.lose(*packet),
            false => self.deliver(*packet),
        }
    }

    /// Hands over what waits at the end of a path that is free again.
    fn drain(&mut self, from: HostId, to: HostId) {
        let now = self.now;
        let Some(path) = self.links.path_mut(from, to) else {
            return;
        };
        if path.is_blocked(now) {
            return;
        }
        let waiting = std::mem::take(&mut path.waiting);
        for packet in waiting {
            self.arrive(packet);
        }
    }

    fn lose(&mut self, packet: Packet) {
        let name = packet.body.what().name();
        self.record
            .note(packet.way.event(self.now, What::Lost(name)));
        match packet.body {
            Body::Datagram(_) => self.record.reached.datagrams_lost += 1,
            Body::Data { .. } | Body::Fin { .. } | Body::SynAck { .. } => self.lost_output(packet),
            Body::Ack { .. } => self.lost_answer(packet),
            // A connect has a timer of its own; nobody waits for the others.
            Body::Syn { .. } | Body::Rst | Body::PortClosed => {}
        }
    }

    fn deliver(&mut self, packet: Packet) {
        match packet.body {
            Body::Syn { .. } => self.syn(packet),
            Body::Datagram(_) => self.datagram(packet),
            Body::PortClosed => self.port_closed(packet),
            _ => self.segment(packet),
        }
    }

    /// Reports what a socket is ready for.
    pub(super) fn edge(&mut self, id: SocketId) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let Some(watch) = entry.watch.clone() else {
            return;
        };
        let mut polled = entry.polled();
        if matches!(entry.kind, Kind::Letters(_)) && self.peer_is_full(id) {
            polled.output = false;
        }
        if polled.any() {
            let token = watch.token;
            let ready = polled.ready();
            self.edges.push((watch, ReadyEvent { token, ready }));
        }
    }
}
