//! The Raft log and the vote, as the journal has them.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;

use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{RaftLogReader, entry::RaftEntry};

use crate::store::Journal;
use crate::store::record::Record;
use crate::types::{Entry, LogId, TypeConfig, Vote};

impl RaftLogReader<TypeConfig> for Journal {
    async fn try_get_log_entries<R>(&mut self, range: R) -> io::Result<Vec<Entry>>
    where
        R: RangeBounds<u64> + Clone + Debug,
    {
        let state = self.state();
        let entries = state.entries.range(range).map(|(_, entry)| entry);
        Ok(entries.cloned().collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.state().vote)
    }
}

impl RaftLogStorage<TypeConfig> for Journal {
    type LogReader = Journal;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let state = self.state();
        let last = state.entries.values().next_back().map(RaftEntry::log_id);
        let (last_purged_log_id, last_log_id) = (state.purged, last.or(state.purged));
        Ok(LogState {
            last_purged_log_id,
            last_log_id,
        })
    }

    async fn get_log_reader(&mut self) -> Journal {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.write(Record::Vote(*vote)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.write(Record::Committed(committed)).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.state().committed)
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry>,
    {
        let written = self.write(Record::Append(entries.into_iter().collect()));
        written.await?;
        flushed.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let from = last.map_or(0, |id| id.index + 1);
        self.write(Record::Truncate(from)).await
    }

    async fn purge(&mut self, id: LogId) -> io::Result<()> {
        self.write(Record::Purge(id)).await
    }
}
