//! The key-value store itself: what the committed entries add up to.
//!
//! It is in memory; after a restart openraft makes it again, from the last snapshot and the log after it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use futures::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, RaftSnapshotBuilder};

use crate::store::Journal;
use crate::store::record::Record;
use crate::types::{Data, Entry, LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};

/// The key-value store of a node. A clone is the same store.
#[derive(Clone, Debug)]
pub struct Machine {
    journal: Journal,
    /// Which entries were applied last, and what all up to them add up to.
    applied: Rc<RefCell<(SnapshotMeta, Data)>>,
}

impl Machine {
    /// Makes an empty store, whose snapshots are in this journal.
    pub fn new(journal: Journal) -> Machine {
        let applied = Rc::default();
        Machine { journal, applied }
    }

    /// Returns what this node has applied, which may be old.
    pub fn get(&self, key: &str) -> Option<String> {
        self.applied.borrow().1.get(key).cloned()
    }

    fn change(&self, entry: Entry) {
        let (meta, data) = &mut *self.applied.borrow_mut();
        meta.last_log_id = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => (),
            EntryPayload::Normal(set) => drop(data.insert(set.key, set.value)),
            EntryPayload::Membership(membership) => {
                meta.last_membership = StoredMembership::new(Some(entry.log_id), membership);
            }
        }
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Data;
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let (meta, _) = &*self.applied.borrow();
        Ok((meta.last_log_id, meta.last_membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            self.change(entry);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: Data) -> io::Result<()> {
        let stored = (meta.clone(), data);
        let record = Record::Snapshot(stored.clone());
        self.journal.write(record).await?;
        self.applied.replace(stored);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let newest = self.journal.state().snapshot.clone();
        Ok(newest.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = Data;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let (meta, snapshot) = self.applied.borrow().clone();
        let record = Record::Snapshot((meta.clone(), snapshot.clone()));
        self.journal.write(record).await?;
        Ok(Snapshot { meta, snapshot })
    }
}
