//! A node: Raft, and a listener for its peers and clients.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use loopgroup::{net::TcpListener, time};
use openraft::{BasicNode, Config, SnapshotPolicy};
use openraft_rt::AsyncRuntime;

use crate::network::Network;
use crate::server::Server;
use crate::store::{Disk, Journal, Machine};
use crate::types::{Raft, Runtime};

/// Runs node `id` of a cluster on the current loop; it ends only by an error, or when it is dropped.
///
/// `addresses` are those of all nodes, by their ids. The random numbers of the node follow from `seed`.
pub async fn run(
    id: u64,
    addresses: BTreeMap<u64, String>,
    disk: Rc<dyn Disk>,
    seed: u64,
) -> io::Result<()> {
    let node = async {
        let address = addresses.get(&id).ok_or(io::ErrorKind::InvalidInput)?;
        let listener = TcpListener::bind(&**address).await?;
        let server = start(id, &addresses, disk).await?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(Runtime::spawn(server.clone().serve(stream))),
                // Out of descriptors, perhaps: the listener is still good.
                Err(_) => time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    Runtime::scope(seed, node).await
}

async fn start(
    id: u64,
    addresses: &BTreeMap<u64, String>,
    disk: Rc<dyn Disk>,
) -> io::Result<Server> {
    let config = Config {
        heartbeat_interval: 200,
        election_timeout_min: 600,
        election_timeout_max: 1200,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(500),
        max_in_snapshot_log_to_keep: 100,
        ..Config::default()
    };
    let config = Arc::new(config.validate().map_err(io::Error::other)?);
    let journal = Journal::open(disk)?;
    let machine = Machine::new(journal.clone());
    let raft = Raft::new(id, config, Network, journal, machine.clone()).await;
    let raft = raft.map_err(io::Error::other)?;
    let nodes = addresses.iter().map(|(&id, at)| (id, BasicNode::new(at)));
    // Every node says the same, so it does not matter whose word is first. A node that has a vote or
    // a log refuses this, as it should.
    let _ = raft.initialize(nodes.collect::<BTreeMap<_, _>>()).await;
    Ok(Server { raft, machine })
}
