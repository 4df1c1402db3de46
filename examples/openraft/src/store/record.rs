//! The records of a journal, and what they add up to.

use std::collections::BTreeMap;

use openraft::entry::RaftEntry;
use serde::{Deserialize, Serialize};

use crate::types::{Data, Entry, LogId, SnapshotMeta, Vote};

/// A change of what a node keeps.
#[derive(Debug, Serialize, Deserialize)]
pub enum Record {
    Vote(Vote),
    Committed(Option<LogId>),
    Append(Vec<Entry>),
    /// The entries from this index on are gone.
    Truncate(u64),
    /// The entries up to this one are gone.
    Purge(LogId),
    Snapshot((SnapshotMeta, Data)),
}

/// What a node keeps.
#[derive(Debug, Default)]
pub struct State {
    pub vote: Option<Vote>,
    pub committed: Option<LogId>,
    pub entries: BTreeMap<u64, Entry>,
    pub purged: Option<LogId>,
    pub snapshot: Option<(SnapshotMeta, Data)>,
}

impl State {
    /// Makes a change.
    pub fn change(&mut self, record: Record) {
        match record {
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Committed(id) => self.committed = id,
            Record::Append(entries) => {
                let indexed = entries.into_iter().map(|entry| (entry.index(), entry));
                self.entries.extend(indexed);
            }
            Record::Truncate(from) => drop(self.entries.split_off(&from)),
            Record::Purge(id) => {
                self.entries = self.entries.split_off(&(id.index + 1));
                self.purged = Some(id);
            }
            // A snapshot that is built while a newer one arrives is late.
            Record::Snapshot((meta, data)) => {
                let newest = self.snapshot.as_ref().map(|(meta, _)| meta.last_log_id);
                if newest <= Some(meta.last_log_id) {
                    self.snapshot = Some((meta, data));
                }
            }
        }
    }
}
