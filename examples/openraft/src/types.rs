//! What the store and openraft know of each other.

use std::collections::BTreeMap;
use std::fmt;

use openraft::alias;
use openraft_rt::deterministic_rng::DeterministicRng;
use serde::{Deserialize, Serialize};

use crate::runtime::LoopRuntime;
use crate::store::Machine;

/// The current loop, with random numbers from the seed of the node: they decide who stands for election when.
pub type Runtime = DeterministicRng<LoopRuntime>;

openraft::declare_raft_types!(
    /// The types of this store; those that are not named are openraft's own.
    pub TypeConfig: D = Set, R = (), AsyncRuntime = Runtime,
);

pub type Raft = openraft::Raft<TypeConfig, Machine>;
pub type Entry = alias::EntryOf<TypeConfig>;
pub type LogId = alias::LogIdOf<TypeConfig>;
pub type SnapshotMeta = alias::SnapshotMetaOf<TypeConfig>;
pub type Snapshot = alias::SnapshotOf<TypeConfig, Data>;
pub type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
pub type Vote = alias::VoteOf<TypeConfig>;

/// All keys and their values.
pub type Data = BTreeMap<String, String>;

/// The one command of the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Set {
    pub key: String,
    pub value: String,
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}
