use super::*;

/// Of the correct program; `LOOPGROUP_SIM_SEEDS` sets another number.
fn seeds() -> u64 {
    let given = std::env::var("LOOPGROUP_SIM_SEEDS").ok();
    given.map_or(200, |seeds| seeds.parse().expect("a number of seeds"))
}

#[test]
fn without_a_bug_nothing_is_lost_and_all_answer_in_the_end() {
    match simulate(Bug::None, seeds()) {
        // One seed alone, or a few of them, need not reach it.
        Ok(report) if report.seeds() < 200 => {}
        Ok(report) => assert!(
            report.reached("a write has an unknown outcome") > 0,
            "{report}"
        ),
        Err((failure, seen)) => panic!("{failure}\n{seen}"),
    }
}

#[test]
fn a_run_repeats_exactly() {
    for seed in 0..5 {
        sim::check(seed, |sim| build(sim, Bug::None, Seen::default()));
    }
}

#[track_caller]
fn is_found(bug: Bug) {
    let (failure, seen) = simulate(bug, 500).unwrap_err();
    println!("{failure}\n{seen}");
    let faults = failure.faults().len();
    assert!((1..=5).contains(&faults), "{failure}");
    assert_eq!(failure.error().host(), Some("checker"), "{failure}");
    assert!(failure.error().message().contains("older"), "{failure}");
    assert!(seen.contains("get"), "{failure}\n{seen}");
}

#[test]
fn an_ack_before_the_backups_have_it_is_found() {
    is_found(Bug::AckBeforeReplication);
}

#[test]
fn a_lost_ack_is_found() {
    is_found(Bug::LostAck);
}

#[test]
fn a_stale_read_is_found() {
    is_found(Bug::StaleRead);
}

#[test]
fn a_write_that_is_applied_twice_is_found() {
    is_found(Bug::DoubleApply);
}
