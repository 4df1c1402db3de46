//! All nodes and some clients in one thread, in virtual time, under the faults that a seed draws.
//!
//! There are two times of faults, and a break after each in which everything heals. In each of them one node,
//! another one by each seed, does not end: if all three did before those that ended first are filled again,
//! acknowledged writes would be lost, as the head of `primary.rs` says.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loopgroup::testing::sim::{self, FaultKind, Faults, FoundFailure, SearchReport, Simulation};
use loopgroup::time;

use crate::backup::backup;
use crate::bug::Bug;
use crate::primary::primary;
use crate::workload::{History, work};
use checker::checker;

const NODES: [&str; 3] = ["primary", "backup1", "backup2"];
const PRIMARY: &str = "primary:1";
const KEYS: usize = 4;
/// Between two operations of a client: up to so much.
const PAUSE: Duration = Duration::from_millis(100);
/// Of faults, each time; and of a time without faults, in which all nodes find each other.
const FAULTS: Duration = Duration::from_secs(10);
const BREAK: Duration = Duration::from_secs(3);
const ALL: Duration = FAULTS.saturating_add(BREAK).saturating_mul(2);

/// What contradicts itself, by when it was seen and what was said of it.
type Seen = Arc<Mutex<BTreeMap<(Duration, String), String>>>;

/// Runs all seeds below this one. An error: the failure, and the operations that cannot be explained.
pub(crate) fn simulate(bug: Bug, seeds: u64) -> Result<SearchReport, (Box<FoundFailure>, String)> {
    let seen = Seen::default();
    let found = sim::try_search(0..seeds, |sim| build(sim, bug, Arc::clone(&seen)));
    found.map_err(|failure| {
        let at = (failure.error().at(), failure.error().message().to_string());
        let seen = seen.lock().unwrap().remove(&at).unwrap_or_default();
        (failure, seen)
    })
}

pub(crate) fn build(sim: &mut Simulation, bug: Bug, seen: Seen) {
    let history = History::new(sim.now());
    sim.host("primary", move |_| {
        primary("0.0.0.0:1", ["backup1:1", "backup2:1"], bug)
    });
    sim.host("backup1", |_| backup("0.0.0.0:1"));
    sim.host("backup2", |_| backup("0.0.0.0:1"));
    for name in ["client1", "client2", "client3"] {
        let history = Rc::clone(&history);
        let work = work(name.into(), PRIMARY.into(), KEYS, PAUSE, history);
        // The outcome of its last write is unknown.
        let work = time::timeout(ALL, work);
        sim.client(name, async { work.await.unwrap_or_default() });
    }
    sim.client("checker", checker(history, seen));
    for time in 0..2 {
        draw_faults(sim, time);
        if sim.run_for(FAULTS + BREAK).is_err() {
            return; // the search finds it in the simulation
        }
    }
}

fn draw_faults(sim: &mut Simulation, time: u64) {
    let survivor = NODES[((sim.seed() + time) % 3) as usize];
    let ends = [FaultKind::Kill, FaultKind::Crash];
    let others = NODES.into_iter().filter(|node| *node != survivor);
    sim.faults(Faults::only(ends).hosts(others).until(FAULTS));
    let rest = ends.into_iter().fold(Faults::chaos(), Faults::without);
    sim.faults(rest.until(FAULTS));
}

mod checker;
#[cfg(test)]
mod tests;
