//! openraft's own tests of a runtime, and of a store.

use std::rc::Rc;

use loopgroup::testing::TestLoop;
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft_on_loops::runtime::LoopRuntime;
use openraft_on_loops::store::{Journal, Machine, MemoryDisk};
use openraft_on_loops::types::{Runtime, TypeConfig};

#[test]
fn the_runtime_passes_openrafts_suite() {
    openraft_rt::testing::Suite::<LoopRuntime>::test_all();
}

#[test]
fn the_store_passes_openrafts_suite() {
    // Some of its tests sleep for a second: not on this loop's clock.
    let tested = Runtime::scope(1, Suite::test_all(EmptyStore));
    TestLoop::new()
        .block_on(tested)
        .expect("the store has no errors");
}

struct EmptyStore;

impl StoreBuilder<TypeConfig, Journal, Machine> for EmptyStore {
    async fn build(&self) -> Result<((), Journal, Machine), StorageError<TypeConfig>> {
        let journal =
            Journal::open(Rc::new(MemoryDisk::default())).expect("an empty journal is valid");
        Ok(((), journal.clone(), Machine::new(journal)))
    }
}
