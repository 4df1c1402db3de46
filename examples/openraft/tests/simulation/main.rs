//! The node of production in a simulation: faults of every kind, and answers that one copy of the data
//! would give.

mod cluster;
mod history;

use std::time::{Duration, Instant};

use loopgroup::testing::sim::{self, FaultKind, Faults};
use openraft_on_loops::bugs::Bug;

use crate::cluster::Setting;

const THREE: Setting = Setting {
    nodes: 3,
    clients: 3,
    chaos: Duration::from_secs(10),
    faults: Faults::chaos,
    is_busy: false,
    bug: None,
};

const FIVE: Setting = Setting { nodes: 5, ..THREE };

/// How many seeds are searched: the more, the better.
fn seeds() -> u64 {
    let set = std::env::var("LOOPGROUP_SIM_SEEDS").ok();
    set.and_then(|seeds| seeds.parse().ok()).unwrap_or(50)
}

/// Searches, and looks whether the runs have come into these situations.
fn search(seeds: u64, setting: Setting, situations: &[&str]) {
    let began = Instant::now();
    let report = sim::search(0..seeds, |sim| setting.build(sim));
    println!("{:?} for {report}", began.elapsed());
    // One seed alone may miss them.
    let situations = if report.seeds() > 1 { situations } else { &[] };
    for situation in situations {
        assert!(
            report.reached(situation) > 0,
            "never: {situation}; {report}"
        );
    }
}

#[test]
fn three_nodes_under_chaos_are_like_one_copy() {
    let situations = [
        "the leader has changed",
        "a write is retried",
        "a node is restarted with a log",
    ];
    search(seeds(), THREE, &situations);
}

#[test]
fn five_nodes_under_chaos_are_like_one_copy() {
    search(seeds() / 5, FIVE, &["a write is retried"]);
}

#[test]
fn a_node_that_was_away_for_long_is_sent_a_snapshot() {
    // Without the faults that would start it again too early.
    let busy = Setting {
        is_busy: true,
        chaos: Duration::from_secs(8),
        faults: || {
            let faults = Faults::chaos().without(FaultKind::Kill);
            faults.without(FaultKind::Crash)
        },
        ..THREE
    };
    search((seeds() / 10).max(4), busy, &["a snapshot is sent"]);
}

#[test]
fn a_cluster_under_chaos_repeats_exactly() {
    for seed in 0..10 {
        println!("{}", sim::check(seed, |sim| THREE.build(sim)));
    }
}

/// Plants a bug, and prints the smallest story in which it shows.
fn is_found(seeds: u64, setting: Setting) {
    let found = sim::try_search(0..seeds, |sim| setting.build(sim));
    let found = found.expect_err("a planted bug is found");
    println!("{:?}: {found}", setting.bug);
    assert_eq!(found.error().host(), Some("judge"), "{found}");
    let text = found.error().message();
    assert!(text.starts_with("not linearizable"), "{found}");
    assert!(found.faults().len() <= 5, "{found}");
}

#[test]
fn a_write_that_is_acknowledged_early_is_found() {
    let bug = Some(Bug::AnswersEarly);
    is_found(500, Setting { bug, ..THREE });
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimisation")]
fn a_read_from_an_old_leader_is_found() {
    // No node is started again: then an old leader is one that has not heard yet that there is another. It
    // has to be away for long, and most faults are short: so there are many of the two kinds that do it.
    let faults = || Faults::only([FaultKind::Partition, FaultKind::Pause]).at_most(16);
    let setting = Setting {
        bug: Some(Bug::ReadsAlone),
        chaos: Duration::from_secs(20),
        faults,
        ..THREE
    };
    // One seed in several hundreds shows it.
    is_found(2_000, setting);
}

/// `LOOPGROUP_SIM_SEEDS=1000 cargo test --release --test simulation a_minute -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn a_minute_of_five_nodes() {
    let chaos = Duration::from_secs(60);
    search(seeds(), Setting { chaos, ..FIVE }, &[]);
}
