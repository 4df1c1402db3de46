//! Many seeds on all cores, until one of them fails; then the smallest story that still fails.
//!
//! - A run is what the closure builds, run to its end. Runs share nothing: each core has a thread, and a
//!   simulation lives on one.
//! - The failure that is reported is that of the lowest seed that fails, whatever the number of cores: when a
//!   seed has failed, lower ones are still run.
//! - The failure is then [shrunk](super::shrink), on the caller's thread.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::sync::{Mutex, Ordering, plain};
use crate::testing::sim::here::{self, Count};
use crate::testing::sim::outcome::{SimError, SimReport};
use crate::testing::sim::replay::{self, Variant};
use crate::testing::sim::search_report::SearchReport;
use crate::testing::sim::shrink::{FoundFailure, SEED, shrink};
use crate::testing::sim::simulation::{Simulation, SimulationBuilder, refuse_on_loop};

/// How much of a failing run is kept for Perfetto.
const KEPT: Duration = Duration::from_secs(60);

/// Runs the simulations of many seeds on all cores; panics with the story of the first one that fails.
///
/// `build` adds hosts, clients and faults; the simulation then runs to its end, unless `build` has run it. A
/// panic in `build` is a failure like any other, so it may check what it likes after a run of its own.
///
/// With `LOOPGROUP_SIM_SEED` in the environment only that seed is run. What no seed has reached of the
/// situations of a network, and of those that [`sometimes`](super::sometimes) names, is printed on stderr at
/// the end.
///
/// # Panics
///
/// If a seed fails: with the seed, the virtual time, the host, the last events of the network, the fewest
/// faults that it takes, and how to see it again. Pictures of it are in files: the last packets (SVG), and
/// the last minute for Perfetto. Also on the thread of an event loop, which it would block.
///
/// # Examples
///
/// ```
/// use loopgroup::net::{TcpListener, TcpStream};
/// use loopgroup::testing::sim::{self, Faults};
/// use std::io;
///
/// async fn server() -> io::Result<()> {
///     let listener = TcpListener::bind("0.0.0.0:80").await?;
///     loop {
///         listener.accept().await?;
///     }
/// }
///
/// let report = sim::search(0..20, |sim| {
///     sim.host("server", |_| server());
///     sim.client("client", async {
///         let refused = TcpStream::connect("server:80").await.is_err();
///         sim::sometimes("the server is away", refused);
///     });
///     sim.faults(Faults::chaos());
/// });
/// assert_eq!(report.seeds(), 20);
/// ```
#[track_caller]
pub fn search(seeds: Range<u64>, build: impl Fn(&mut Simulation) + Sync) -> SearchReport {
    search_with(&Simulation::builder(), seeds, build)
}

/// Writes the pictures of a failure into files; says where they are.
fn draw(
    failure: &FoundFailure,
    settings: &SimulationBuilder,
    build: &impl Fn(&mut Simulation),
) -> String {
    /// Searches of one process may fail with the same seed.
    static PICTURES: plain::AtomicUsize = plain::AtomicUsize::new(0);
    let number = PICTURES.fetch_add(1, Ordering::Relaxed);
    let (process, seed) = (std::process::id(), failure.error().seed());
    let name = format!("loopgroup-{process}-{number}-seed-{seed}");
    let path = std::env::temp_dir().join(name);
    let mut said = String::new();
    let mut add = |what: &str, extension: &str, bytes: &[u8]| {
        let path = path.with_extension(extension);
        if std::fs::write(&path, bytes).is_ok() {
            said += &format!("\n{what}: {}", path.display());
        }
    };
    let diagram = failure.error().diagram().as_bytes();
    add("its last packets, for a browser", "svg", diagram);
    if let Some(trace) = record(failure, settings, build) {
        add("its last minute, for ui.perfetto.dev", "json", &trace);
    }
    said
}

/// Runs the smallest story of a failure once more, and keeps the end of it, for Perfetto.
fn record(
    failure: &FoundFailure,
    settings: &SimulationBuilder,
    build: &impl Fn(&mut Simulation),
) -> Option<Vec<u8>> {
    if !failure.repeats() {
        return None;
    }
    let error = failure.error();
    let from = error.at().saturating_sub(KEPT);
    let variant = Variant {
        faults: Some(failure.faults().to_vec()),
        without: failure.not_needed().to_vec(),
    };
    let _ends = replay::give(variant);
    let mut sim = settings.clone().seed(error.seed()).build();
    match from.is_zero() {
        true => sim.keep_events(),
        false => sim.at(from, Simulation::keep_events),
    }
    // It has failed before, perhaps by a panic; what it has done until then is what is written.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        build(&mut sim);
        sim.run_to_end()
    }));
    let mut trace = Vec::new();
    let written = sim.is_recorded().then(|| sim.write_chrome_json(&mut trace));
    here::take_reached();
    written?.ok().map(|()| trace)
}

/// As [`search`], and returns the failure.
///
/// # Errors
///
/// The failure of the lowest seed that fails.
///
/// # Panics
///
/// On the thread of an event loop, and if `LOOPGROUP_SIM_SEED` is set, and is no number.
#[track_caller]
pub fn try_search(
    seeds: Range<u64>,
    build: impl Fn(&mut Simulation) + Sync,
) -> Result<SearchReport, Box<FoundFailure>> {
    try_search_with(&Simulation::builder(), seeds, build)
}

/// As [`search`], with settings: loops, time limit, link, and the cost of a poll.
///
/// # Panics
///
/// If a seed fails, as [`search`] does.
///
/// # Examples
///
/// ```
/// use loopgroup::{testing::sim::{self, Simulation}, time::sleep};
/// use std::time::Duration;
///
/// let settings = Simulation::builder().loops(2).time_limit(Duration::from_secs(60));
/// let report = sim::search_with(&settings, 0..10, |sim| {
///     sim.client("short", sleep(Duration::from_secs(59)));
/// });
/// assert_eq!(report.seeds(), 10);
/// ```
#[track_caller]
pub fn search_with(
    settings: &SimulationBuilder,
    seeds: Range<u64>,
    build: impl Fn(&mut Simulation) + Sync,
) -> SearchReport {
    match try_search_with(settings, seeds, &build) {
        Ok(report) => {
            if let Some(never) = report.never_line() {
                eprintln!("{never}");
            }
            report
        }
        Err(failure) => {
            let pictures = draw(&failure, settings, &build);
            panic!("{failure}{pictures}")
        }
    }
}

/// As [`search_with`], and returns the failure.
///
/// # Errors
///
/// The failure of the lowest seed that fails.
///
/// # Panics
///
/// On the thread of an event loop, and if `LOOPGROUP_SIM_SEED` is set, and is no number.
#[track_caller]
pub fn try_search_with(
    settings: &SimulationBuilder,
    seeds: Range<u64>,
    build: impl Fn(&mut Simulation) + Sync,
) -> Result<SearchReport, Box<FoundFailure>> {
    // Here, and not by its first run: that is on another thread, and only what shrinks it is on this one.
    refuse_on_loop();
    let seeds = match std::env::var(SEED) {
        Ok(text) => match text.parse::<u64>() {
            Ok(seed) => seed..seed.saturating_add(1),
            Err(_) => panic!("{SEED} is {text:?}: it has to be the number of a seed"),
        },
        Err(_) => seeds,
    };
    let total = seeds.end.saturating_sub(seeds.start);
    let shared = Mutex::new(Progress {
        next: seeds.start,
        end: seeds.end,
        total,
        done: 0,
        failed: None,
        reached: BTreeMap::new(),
        printed: Instant::now(),
    });
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = cores.min(total.try_into().unwrap_or(cores));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = next_seed(&shared) {
                    let failed = run(seed, Variant::default(), settings, &build).0.err();
                    let reached = here::take_reached();
                    note(&shared, seed, failed, reached);
                }
            });
        }
    });
    let progress = shared.into_inner();
    let report = SearchReport {
        seeds: progress.done,
        reached: progress.reached,
    };
    match progress.failed {
        Some((seed, error)) => {
            let found = shrink(seed, error, report, |variant| {
                let (outcome, hosts) = run(seed, variant, settings, &build);
                (outcome.err(), hosts)
            });
            here::take_reached();
            Err(Box::new(found))
        }
        None => Ok(report),
    }
}

struct Progress {
    next: u64,
    /// No seed from here on is run.
    end: u64,
    total: u64,
    done: u64,
    failed: Option<(u64, SimError)>,
    reached: BTreeMap<&'static str, Count>,
    printed: Instant,
}

fn next_seed(shared: &Mutex<Progress>) -> Option<u64> {
    let mut progress = shared.lock();
    let seed = progress.next;
    (seed < progress.end).then(|| {
        progress.next += 1;
        seed
    })
}

fn note(
    shared: &Mutex<Progress>,
    seed: u64,
    failed: Option<SimError>,
    reached: BTreeMap<&'static str, Count>,
) {
    let mut progress = shared.lock();
    progress.done += 1;
    for (name, Count { looks, hits }) in reached {
        let count = progress.reached.entry(name).or_default();
        count.looks += looks;
        count.hits += hits;
    }
    if let Some(error) = failed {
        let is_lowest = progress
            .failed
            .as_ref()
            .is_none_or(|(lowest, _)| seed < *lowest);
        if is_lowest {
            progress.failed = Some((seed, error));
        }
        progress.end = progress.end.min(seed);
    }
    if progress.printed.elapsed().as_secs() >= 10 {
        progress.printed = Instant::now();
        eprintln!("{} of {} seeds run", progress.done, progress.total);
    }
}

/// Runs one seed, or a variant of it.
fn run(
    seed: u64,
    variant: Variant,
    settings: &SimulationBuilder,
    build: &impl Fn(&mut Simulation),
) -> (Result<SimReport, SimError>, Vec<String>) {
    let _ends = replay::give(variant);
    let mut sim = settings.clone().seed(seed).build();
    // A panic of a test's closures is a failure like any other: in `build`, and in what was planned.
    let ran = catch_unwind(AssertUnwindSafe(|| {
        build(&mut sim);
        sim.run_to_end()
    }));
    let outcome = ran.unwrap_or_else(|payload| Err(sim.panicked(&*payload)));
    sim.note_reached();
    (outcome, sim.names(true))
}

/// Runs a seed twice, and compares all that has happened.
///
/// # Panics
///
/// If the runs differ: with the first event that does. The [module](super#what-leaks) lists what makes a
/// program depend on more than its seed. Also if a run fails, and on the thread of an event loop.
///
/// # Examples
///
/// ```
/// use loopgroup::{testing::sim, time::sleep};
/// use std::time::Duration;
///
/// sim::check(7, |sim| sim.client("sleeper", sleep(Duration::from_secs(3600))));
/// ```
#[track_caller]
pub fn check(seed: u64, build: impl Fn(&mut Simulation)) -> SimReport {
    check_with(&Simulation::builder(), seed, build)
}

/// As [`check`], with settings.
///
/// # Panics
///
/// As [`check`] does.
#[track_caller]
pub fn check_with(
    settings: &SimulationBuilder,
    seed: u64,
    build: impl Fn(&mut Simulation),
) -> SimReport {
    refuse_on_loop();
    let once = || {
        let _ends = replay::give(Variant::default());
        let mut sim = settings.clone().seed(seed).build();
        sim.record();
        build(&mut sim);
        let outcome = sim.run_to_end();
        assert!(
            sim.is_recorded(),
            "the simulation was replaced: give its settings to check_with"
        );
        (outcome, sim.recorded(), sim.trace())
    };
    let ((first, events, trace), (second, again, other_trace)) = (once(), once());
    let differ = events
        .iter()
        .zip(&again)
        .position(|(one, other)| one != other);
    let differ = differ.or((events.len() != again.len()).then_some(events.len().min(again.len())));
    if let Some(place) = differ {
        let show = |events: &[String]| match events.get(place) {
            Some(event) => event.clone(),
            None => "nothing more".to_owned(),
        };
        panic!(
            "seed {seed} does not repeat: event {place} is\n    {}\nin the first run, and\n    {}\nin the second: \
             something depends on more than the seed, such as a HashMap, a thread, or the system's clock",
            show(&events),
            show(&again)
        );
    }
    assert_eq!(
        trace, other_trace,
        "seed {seed} does not repeat: the traces of two runs differ, although their events do not"
    );
    match (first, second) {
        (Ok(report), Ok(_)) => report,
        (Err(error), _) | (_, Err(error)) => panic!("{error}"),
    }
}
