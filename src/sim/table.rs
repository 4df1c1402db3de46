//! All sockets of a network.

use std::collections::BTreeMap;

use slab::Slab;

use super::datagrams::Datagrams;
use super::host::HostId;
use super::letters::Letters;
use super::listener::Listener;
use super::ports::Port;
use super::selector::{Polled, Selector};
use super::socket_id::SocketId;
use super::stream::Stream;
use crate::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Table {
    sockets: Slab<Entry>,
    /// The places of the sockets, by their numbers.
    places: BTreeMap<u32, usize>,
    made: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    generation: u64,
    pub(super) host: HostId,
    pub(super) owner: Owner,
    pub(super) watch: Option<Watch>,
    pub(super) port: Option<Port>,
    pub(super) kind: Kind,
}

/// Who may use a socket.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Owner {
    /// A program, by a descriptor.
    Program,
    /// A listener, until it is accepted.
    Listener,
    /// The kernel, which still sends what is left.
    Kernel,
}

#[derive(Debug)]
pub(super) enum Kind {
    Stream(Box<Stream>),
    Listener(Box<Listener>),
    Datagrams(Box<Datagrams>),
    Letters(Box<Letters>),
}

/// Where the edges of a socket are reported.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) selector: Arc<Selector>,
    pub(super) token: usize,
}

impl Entry {
    /// What the socket is ready for now.
    pub(super) fn polled(&mut self) -> Polled {
        match &mut self.kind {
            Kind::Stream(stream) => stream.polled(),
            Kind::Listener(listener) => Polled {
                input: !listener.ready.is_empty(),
                ..Polled::default()
            },
            Kind::Datagrams(datagrams) => datagrams.polled(),
            // Whether its peer is full is for the kernel to see.
            Kind::Letters(letters) => letters.polled(false),
        }
    }
}

impl Table {
    pub(super) fn add(&mut self, host: HostId, owner: Owner, kind: Kind) -> SocketId {
        let generation = self.made;
        self.made += 1;
        let index = self.sockets.insert(Entry {
            generation,
            host,
            owner,
            watch: None,
            port: None,
            kind,
        });
        let id = SocketId { generation, index };
        self.places.insert(id.number(), index);
        id
    }

    /// The socket with this number, if it is still there.
    pub(super) fn numbered(&self, number: u32) -> Option<SocketId> {
        let index = *self.places.get(&number)?;
        let generation = self.sockets.get(index)?.generation;
        Some(SocketId { generation, index })
    }

    pub(super) fn remove(&mut self, id: SocketId) -> Option<Entry> {
        self.get(id)?;
        self.places.remove(&id.number());
        Some(self.sockets.remove(id.index))
    }

    pub(super) fn get(&self, id: SocketId) -> Option<&Entry> {
        let entry = self.sockets.get(id.index)?;
        (entry.generation == id.generation).then_some(entry)
    }

    pub(super) fn get_mut(&mut self, id: SocketId) -> Option<&mut Entry> {
        let entry = self.sockets.get_mut(id.index)?;
        (entry.generation == id.generation).then_some(entry)
    }

    /// The socket, if a program has it.
    pub(super) fn owned(&mut self, id: SocketId) -> Option<&mut Entry> {
        self.get_mut(id)
            .filter(|entry| entry.owner == Owner::Program)
    }

    pub(super) fn stream(&mut self, id: SocketId) -> Option<&mut Stream> {
        match &mut self.get_mut(id)?.kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub(super) fn listener(&mut self, id: SocketId) -> Option<&mut Listener> {
        match &mut self.get_mut(id)?.kind {
            Kind::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn letters(&mut self, id: SocketId) -> Option<&mut Letters> {
        match &mut self.get_mut(id)?.kind {
            Kind::Letters(letters) => Some(letters),
            _ => None,
        }
    }

    pub(super) fn datagrams(&mut self, id: SocketId) -> Option<&mut Datagrams> {
        match &mut self.get_mut(id)?.kind {
            Kind::Datagrams(datagrams) => Some(datagrams),
            _ => None,
        }
    }
}
