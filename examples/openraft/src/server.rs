//! What a node answers.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use futures::TryFutureExt;
use loopgroup::{net::TcpStream, time};
use openraft::ReadPolicy;
use serde::Serialize;

use crate::bugs::{self, Bug};
use crate::store::Machine;
use crate::types::{Raft, Set, Snapshot};
use crate::wire::{self, Reply, Request};

/// What answers the requests of a connection.
#[derive(Clone)]
pub struct Server {
    pub raft: Raft,
    pub machine: Machine,
}

impl Server {
    /// Answers one request after the other, until the other side has gone.
    pub async fn serve(self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        loop {
            let reply = match wire::receive(&stream).await? {
                Request::Vote(request) => reply(self.raft.vote(request).await),
                Request::Append(request) => reply(self.raft.append_entries(request).await),
                Request::Snapshot(vote, meta, snapshot) => {
                    let snapshot = Snapshot { meta, snapshot };
                    reply(self.raft.install_full_snapshot(vote, snapshot).await)
                }
                Request::Set(set) => reply(self.set(set).await),
                Request::Get(key) => reply(self.get(&key).await),
                Request::Leader => reply(Reply::Ok(self.raft.current_leader().await)),
            };
            wire::send(&stream, &reply?).await?;
        }
    }

    /// Writes a key; returns when a majority has it.
    async fn set(&self, set: Set) -> Reply<()> {
        let written = self.raft.client_write(set).map_ok(drop);
        let written = written.map_err(|error| error.to_string());
        match bugs::has(Bug::AnswersEarly) {
            true => time::timeout(Duration::from_millis(1), written)
                .await
                .unwrap_or(Ok(())),
            false => written.await,
        }
    }

    /// Reads a key once a majority has confirmed that this node is the leader.
    async fn get(&self, key: &str) -> Reply<Option<String>> {
        if bugs::has(Bug::ReadsAlone) && self.raft.is_leader() {
            return Ok(self.machine.get(key));
        }
        let linearizer = self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await;
        let linearizer = linearizer.map_err(|error| error.to_string())?;
        let ready = linearizer.await_ready(&self.raft).await;
        ready.map_err(|error| error.to_string())?;
        Ok(self.machine.get(key))
    }
}

/// Makes replies of all types the same, so that one place sends them.
fn reply<T: Serialize, E: Display>(result: Result<T, E>) -> io::Result<Reply<serde_json::Value>> {
    Ok(match result {
        Ok(value) => Ok(serde_json::to_value(value)?),
        Err(error) => Err(error.to_string()),
    })
}
