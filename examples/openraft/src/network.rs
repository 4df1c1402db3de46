//! What openraft asks of the network: a [`Peer`] for each of the other nodes.

use std::future::Future;
use std::io;

use futures::future::{self, Either};
use loopgroup::testing::sim;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, v2::RaftNetworkV2};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse};
use openraft::raft::{VoteRequest, VoteResponse};
use openraft::{BasicNode, OptionalSend};
use serde::de::DeserializeOwned;

use crate::peer::Peer;
use crate::types::{Data, Snapshot, TypeConfig as C, Vote};
use crate::wire::Request;

/// Makes a [`Peer`] for each node that openraft asks for.
#[derive(Debug)]
pub struct Network;

impl RaftNetworkFactory<C> for Network {
    type Network = Peer;

    async fn new_client(&mut self, _id: u64, node: &BasicNode) -> Peer {
        Peer::new(node.addr.clone())
    }
}

impl RaftNetworkV2<C> for Peer {
    type SnapshotData = Data;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<C>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<C>, RPCError<C>> {
        self.ask(Request::Append(request), option).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<C>,
        option: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        self.ask(Request::Vote(request), option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<C>, StreamingError<C>> {
        let request = Request::Snapshot(vote, snapshot.meta, snapshot.snapshot);
        let asked = Box::pin(self.ask(request, option));
        match future::select(asked, Box::pin(cancel)).await {
            Either::Left((reply, _)) => {
                sim::sometimes("a snapshot is sent", reply.is_ok());
                Ok(reply?)
            }
            Either::Right((closed, _)) => Err(closed.into()),
        }
    }
}

impl Peer {
    async fn ask<T>(&mut self, request: Request, option: RPCOption) -> Result<T, RPCError<C>>
    where
        T: DeserializeOwned,
    {
        let reply = self.call(&request, option.soft_ttl()).await;
        reply.map_err(|error| match error.kind() {
            // Nobody is there: openraft waits before it asks again.
            io::ErrorKind::ConnectionRefused => Unreachable::new(&error).into(),
            _ => NetworkError::new(&error).into(),
        })
    }
}
