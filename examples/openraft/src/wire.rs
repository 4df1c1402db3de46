//! What nodes and clients say to each other: frames of JSON, each after its length.
//!
//! A request is answered by one frame, a [`Reply`] whose type belongs to the request. A connection carries
//! one request at a time.

use std::io;

use futures::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::TcpStream;
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::types::{Data, Set, SnapshotMeta, TypeConfig, Vote};

/// The longest frame that is read: a length that is not ours must not become a buffer.
const LONGEST: usize = 64 << 20;

/// What a node is asked: by another node, or by a client, which sets and gets.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Vote(VoteRequest<TypeConfig>),
    Append(AppendEntriesRequest<TypeConfig>),
    Snapshot(Vote, SnapshotMeta, Data),
    Set(Set),
    Get(String),
    Leader,
}

/// What a node answers; an error is a sentence.
pub type Reply<T> = Result<T, String>;

/// Sends a frame.
pub async fn send<T: Serialize>(mut stream: &TcpStream, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let frame = [&length.to_be_bytes()[..], &body].concat();
    stream.write_all(&frame).await
}

/// Receives a frame.
pub async fn receive<T: DeserializeOwned>(mut stream: &TcpStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}
