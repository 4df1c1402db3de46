//! The list of scenarios.

mod blocking;
mod elastic;
mod group_end;
mod io;
mod shutdown;
mod tasks;
mod time;

use std::time::Duration;

use crate::check::{Scenario, Time};

/// A timeout that is not part of the race: a thread that waits for it is blocked, and shuttle reports that.
const NEVER: Duration = Duration::MAX;

macro_rules! scenarios {
    ($($module:ident::$name:ident, $time:ident;)*) => {
        &[$(Scenario { name: stringify!($name), time: Time::$time, run: $module::$name }),*]
    };
}

pub const SCENARIOS: &[Scenario] = scenarios![
    tasks::wake_against_terminate, Still;
    tasks::cancel_against_complete, Still;
    tasks::abort_against_panic, Still;
    tasks::block_on_wake_against_park, Still;
    tasks::join_from_two_loops, Still;
    tasks::bounded_queue_against_producers, Still;
    tasks::lazy_against_sleep, Still;
    tasks::closures_against_the_end, Still;
    shutdown::spawn_against_shutdown, Still;
    shutdown::records_against_shutdown, Still;
    shutdown::loop_bound_against_shutdown, Still;
    shutdown::group_drop_against_spawn, Still;
    shutdown::drain_against_spawn, Still;
    shutdown::hook_against_shutdown, Still;
    shutdown::now_against_gracefully, Still;
    shutdown::thread_factory_against_shutdown, Runs;
    group_end::drain_against_now_of_one, Still;
    group_end::drain_against_drain_of_one, Still;
    group_end::drain_against_quiet_of_one, Still;
    group_end::drain_against_hook_and_drop, Still;
    group_end::drain_against_failed_start, Still;
    time::periodic_cancel_against_run, Runs;
    time::timer_drop_against_fire, Runs;
    time::schedule_cancel_against_fire, Runs;
    time::timers_against_shutdown, Runs;
    blocking::hand_over_against_shutdown, Still;
    blocking::retirement_against_submit, Runs;
    blocking::timeout_against_busy_thread, Runs;
    io::migrate_against_close, Still;
    elastic::park_against_submit, Runs;
    elastic::park_against_drain, Runs;
    elastic::park_against_hook_and_now, Runs;
    elastic::park_against_group_drop, Runs;
    elastic::park_against_wake_and_abort, Runs;
    elastic::park_against_visit_in_a_drain, Runs;
    elastic::park_against_two_ends, Runs;
    elastic::park_against_register, Runs;
    elastic::load_rises_and_falls, Still;
    elastic::load_against_submit, Runs;
    elastic::load_against_drain, Runs;
    elastic::load_against_now, Runs;
];
