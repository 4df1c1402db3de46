//! How a scenario is run.

use std::panic;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId,
};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use shuttle_primitives::time::Clock;

/// A race, with a name.
pub struct Scenario {
    pub name: &'static str,
    pub time: Time,
    pub run: fn(),
}

/// When the clock may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Only when all threads stand still: a wake-up that is lost, and made good by a timeout later, shows as
    /// time that has passed.
    Still,
    /// At any point: every deadline may come before anything else.
    Runs,
}

/// A panic that was not meant has happened, whoever caught it.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Panics that a scenario means to have: they carry this, and are not reported.
pub struct Meant;

/// Runs a scenario under so many schedules.
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
        // The first thread of all: see `Clocked`.
        let clock = Clock::start();
        (scenario.run)();
        clock.stop();
        // The crate contains the panics of tasks; a failed assertion in one is a failure all the same.
        assert!(!PANICKED.load(Ordering::Relaxed), "a task has panicked");
    });
}

/// shuttle has hung its hook by the time that a model runs; this one goes before it.
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

/// A scheduler that knows of the clock.
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
        // 0 is the scenario's own thread.
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
