//! Runs a scenario under many schedules, or replays one.

use std::panic;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId,
};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use shuttle_primitives::time::Clock;

/// A race, with its name.
pub struct Scenario {
    pub name: &'static str,
    pub time: Time,
    pub run: fn(),
}

/// When the clock may advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Only when all threads are blocked: a lost wake-up that a timeout repairs later shows as time that has
    /// passed.
    Still,
    /// At any point: every deadline may pass before anything else happens.
    Runs,
}

/// Whether an unintended panic has happened, even if it was caught.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// The payload of panics that a scenario intends: they are not reported.
pub struct Meant;

/// Runs a scenario under the given number of schedules.
pub fn explore(scenario: &'static Scenario, schedules: u64, seed: u64, traces: &Path) {
    let schedules = usize::try_from(schedules).expect("not that many");
    let persistence = FailurePersistence::File(Some(traces.to_owned()));
    let random = schedules / 2;
    run(
        scenario,
        RandomScheduler::new_from_seed(seed, random),
        &persistence,
    );
    let each = (schedules - random) / 3;
    for (depth, count) in [(3, schedules - random - 2 * each), (4, each), (5, each)] {
        run(
            scenario,
            PctScheduler::new_from_seed(seed, depth, count),
            &persistence,
        );
    }
}

/// Runs a scenario under a schedule from a file.
pub fn replay(scenario: &'static Scenario, file: &Path) {
    let scheduler = ReplayScheduler::new_from_file(file).expect("a schedule is in that file");
    run_with(scenario, scheduler, &FailurePersistence::None);
}

fn run(
    scenario: &'static Scenario,
    scheduler: impl Scheduler + 'static,
    persistence: &FailurePersistence,
) {
    let scheduler = Clocked {
        inner: scheduler,
        time: scenario.time,
    };
    run_with(scenario, scheduler, persistence);
}

fn run_with(
    scenario: &'static Scenario,
    scheduler: impl Scheduler + 'static,
    persistence: &FailurePersistence,
) {
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.failure_persistence = persistence.clone();
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(|| {
        keep_meant_panics_quiet();
        // Must be the first thread that is spawned: see `Clocked`.
        let clock = Clock::start();
        (scenario.run)();
        clock.stop();
        // The crate contains panics of tasks; a failed assertion in a task is a failure all the same.
        assert!(!PANICKED.load(Ordering::Relaxed), "a task has panicked");
    });
}

/// Installs a panic hook before shuttle's, which is installed by the time that a model runs.
fn keep_meant_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Meant>() {
                PANICKED.store(true, Ordering::Relaxed);
                hook(info);
            }
        }));
    });
}

/// A scheduler that controls the clock.
struct Clocked<S> {
    inner: S,
    time: Time,
}

impl<S: Scheduler> Scheduler for Clocked<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.inner.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        // Task 0 is the scenario's own thread.
        let is_clock = |task: &&Task| usize::from(task.id()) == 1;
        if self.time == Time::Still && runnable.len() > 1 && runnable.iter().any(is_clock) {
            let others: Vec<&Task> = runnable
                .iter()
                .copied()
                .filter(|task| !is_clock(task))
                .collect();
            return self.inner.next_task(&others, current, is_yielding);
        }
        self.inner.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}
