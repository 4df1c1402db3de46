//! A replicated key-value store: the Raft of the crate openraft, on the loops of loopgroup.
//!
//! - [`runtime`]: what openraft asks of an async runtime, by the current loop.
//! - [`node`]: a node, its peers and clients, which all speak the frames of [`wire`].
//! - [`store`]: the journal of a node, and the Raft log and the key-value store that are made from it.
//!
//! A node runs on the current loop and needs nothing but `loopgroup::{net, time}` and a [`store::Disk`]: the
//! same node runs in a process of its own and, with a disk in memory, among others in a simulation.

pub mod bugs;
pub mod network;
pub mod node;
pub mod peer;
pub mod runtime;
pub mod server;
pub mod store;
pub mod types;
pub mod wire;
