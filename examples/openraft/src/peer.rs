//! The way to a node: a connection, made when it is needed and kept while it works.

use std::io;
use std::time::Duration;

use loopgroup::{net::TcpStream, time};
use serde::de::DeserializeOwned;

use crate::wire::{self, Reply, Request};

/// Another node, as a node or a client sees it.
#[derive(Debug)]
pub struct Peer {
    address: String,
    stream: Option<TcpStream>,
}

impl Peer {
    /// Knows the node at this address; connects when it is called.
    pub fn new(address: String) -> Peer {
        Peer {
            address,
            stream: None,
        }
    }

    /// Calls the node, with a time limit.
    ///
    /// The connection is taken out meanwhile: if this is dropped halfway, so is the connection, and no later
    /// call reads the reply to this one.
    pub async fn call<T>(&mut self, request: &Request, limit: Duration) -> io::Result<T>
    where
        T: DeserializeOwned,
    {
        let kept = self.stream.take();
        let called = async {
            let stream = match kept {
                Some(stream) => stream,
                None => TcpStream::connect(&*self.address).await?,
            };
            stream.set_nodelay(true)?;
            wire::send(&stream, request).await?;
            let reply: Reply<T> = wire::receive(&stream).await?;
            io::Result::Ok((stream, reply))
        };
        let (stream, reply) = time::timeout(limit, called).await??;
        self.stream = Some(stream);
        reply.map_err(io::Error::other)
    }
}
