//! What the loops of a simulated host have in common, and how a group that is built there joins them.
//!
//! - A group that is built on a loop of a simulated host belongs to that host: its loops have the host's
//!   clock and network, and no thread. The builder leaves their parts with the [`Nursery`], and the
//!   simulation runs them from there.
//! - The watchdog looks at every loop of a host, from its thread: virtual time stands still during a poll, so
//!   a poll that sleeps by the system's clock is a mistake. What it has slept is noted here, and ends the
//!   simulation when the poll has returned.
//! - Names, seeds and numbers are drawn in the order of the calls, so they are the same in each run of a
//!   seed.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::clock::VirtualClock;
use crate::random::{Random, Seeds};
use crate::sim::{Awake, Bell, HostNet};
use crate::sync::{Arc, Mutex, Ordering, plain};
use crate::watchdog::reporter::StallReporter;
use crate::watchdog::stall::{PollNumber, Stall, StallKind};

/// After what time a poll is looked at, and reported to its host: shorter ones have not slept for long, or
/// the machine is busy.
const STALL: Duration = Duration::from_millis(125);
/// The most time that the polls of a host may sleep, all together. What comes in at once from a disk, or
/// waits for a lock, is less.
const MOST_SLEEP: Duration = Duration::from_millis(500);
/// When a poll that does not sleep is reported: it may compute without an end.
const LONG_POLL: Duration = Duration::from_secs(2);

/// The name of the task that runs the main future of a host.
pub(crate) const MAIN: &str = "main future";

const SLEEP_HINT: &str = "use loopgroup::time::sleep, and sockets and locks that are awaited";

/// A host of a simulation, as its loops know it.
pub(crate) struct SimulatedHost {
    pub(crate) name: Arc<str>,
    /// The seed of the simulation.
    seed: u64,
    pub(crate) net: HostNet,
    pub(crate) clock: Arc<VirtualClock>,
    /// What each poll of a task takes, in virtual time.
    pub(crate) poll_cost: Duration,
    /// How many groups were built in this life of the host; for the names of their loops.
    groups: plain::AtomicUsize,
    seeds: Seeds,
    /// What the host's program draws from.
    dice: Mutex<Random>,
    /// Panics that nobody can join.
    panics: Mutex<Vec<String>>,
    /// Written by the watchdog's thread.
    slept: plain::Mutex<Slept>,
    nursery: Arc<Nursery>,
}

/// How long the polls of a host have slept by the system's clock.
#[derive(Default)]
struct Slept {
    all: Duration,
    /// The poll of the last report, and how much of it is in `all`.
    last: Option<(PollNumber, Duration)>,
    /// Where the time went, once it is too much.
    place: Option<String>,
}

impl SimulatedHost {
    pub(crate) fn new(
        name: &str,
        net: HostNet,
        clock: Arc<VirtualClock>,
        poll_cost: Duration,
        seeds: (u64, u64),
        nursery: &Arc<Nursery>,
    ) -> SimulatedHost {
        let (of_simulation, seed) = seeds;
        SimulatedHost {
            name: name.into(),
            seed: of_simulation,
            net,
            clock,
            poll_cost,
            groups: plain::AtomicUsize::new(0),
            seeds: Seeds::from(seed),
            dice: Mutex::new(Random::new(seed ^ 0x6469_6365)),
            panics: Mutex::default(),
            slept: plain::Mutex::default(),
            nursery: Arc::clone(nursery),
        }
    }

    /// The number of a new group of the host.
    pub(crate) fn next_group(&self) -> usize {
        self.groups.fetch_add(1, Ordering::Relaxed)
    }

    /// A new stream of random numbers of the host.
    pub(crate) fn random(&self) -> Random {
        self.seeds.next()
    }

    /// Random bits for the host's program.
    pub(crate) fn random_bits(&self) -> u64 {
        self.dice.lock().bits()
    }

    /// Notes a panic that nobody can join: it ends the simulation.
    pub(crate) fn note_panic(&self, text: String) {
        self.panics.lock().push(text);
    }

    pub(crate) fn take_panic(&self) -> Option<String> {
        let mut panics = self.panics.lock();
        (!panics.is_empty()).then(|| panics.remove(0))
    }

    /// What the watchdog of a group of this host tells it.
    pub(crate) fn stall_reporter(self: &Arc<SimulatedHost>) -> StallReporter {
        let host = Arc::clone(self);
        let note = move |stall: &Stall| host.note_stall(stall);
        StallReporter::new(STALL, Some(Arc::new(note)), None)
    }

    /// Notes a poll that has not returned, on the watchdog's thread: one that sleeps has the simulation fail,
    /// and one that does not return at all can only be told while it does not.
    fn note_stall(&self, stall: &Stall) {
        let is_asleep = stall.kind() == StallKind::Blocked;
        let is_too_long = is_asleep && self.slept.lock().add(stall);
        if is_too_long || stall.duration() >= LONG_POLL {
            let hint = match is_asleep {
                true => SLEEP_HINT,
                false => "yield, or end it",
            };
            let (seed, name) = (self.seed, &self.name);
            eprintln!(
                "simulation of seed {seed}, host {name:?}: {stall}; virtual time stands still meanwhile: \
                 {hint}"
            );
        }
    }

    /// Tells that the polls of this host have slept for too long.
    pub(crate) fn take_sleep(&self) -> Option<String> {
        let mut slept = self.slept.lock();
        let (place, all) = (slept.place.take()?, slept.all.as_secs_f64());
        Some(format!(
            "{place} waited in a system call for {all:.1} s of real time, in which virtual time \
             stands still: {SLEEP_HINT}"
        ))
    }

    /// A bell for a new loop.
    pub(crate) fn bell(&self) -> Bell {
        let number = self.nursery.numbers.fetch_add(1, Ordering::Relaxed);
        Bell::new(number, Arc::clone(&self.nursery.awake))
    }

    /// Leaves the parts of a new loop for the simulation.
    pub(crate) fn adopt(&self, parts: Box<dyn Any + Send>) {
        let host = self.net.host;
        self.nursery.born.lock().push(Born { host, parts });
    }
}

impl Slept {
    /// Adds what a poll has slept since its last report; whether it is too much now, and was not before.
    fn add(&mut self, stall: &Stall) -> bool {
        // One loop of a simulation runs at a time.
        let known = self.last.filter(|(poll, _)| *poll == stall.poll);
        let known = known.filter(|(_, known)| *known < stall.duration());
        let known = known.map_or(Duration::ZERO, |(_, known)| known);
        let before = self.all;
        self.all += stall.duration() - known;
        self.last = Some((stall.poll, stall.duration()));
        let is_too_long = before < MOST_SLEEP && self.all >= MOST_SLEEP;
        if is_too_long {
            self.place = Some(place_of(stall));
        }
        is_too_long
    }
}

/// What sleeps, by the place of its spawn.
fn place_of(stall: &Stall) -> String {
    let what = match (stall.task_id(), stall.name()) {
        (None, _) => "a shutdown hook".to_owned(),
        (Some(_), Some(MAIN)) => return "the main future".to_owned(), // spawned by the simulation
        (Some(_), Some(name)) => format!("the task {name:?}"),
        (Some(_), None) => "a task".to_owned(),
    };
    match stall.location() {
        Some(place) => format!("{what} from {place}"),
        None => what,
    }
}

impl fmt::Debug for SimulatedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimulatedHost").field(&self.name).finish()
    }
}

/// Where a simulation finds the loops that were made since it last looked, and those that were rung.
pub(crate) struct Nursery {
    numbers: plain::AtomicUsize,
    pub(crate) awake: Arc<Awake>,
    born: Mutex<Vec<Born>>,
}

/// The parts of a loop that no simulation runs yet.
pub(crate) struct Born {
    pub(crate) host: crate::sim::HostId,
    pub(crate) parts: Box<dyn Any + Send>,
}

impl Nursery {
    pub(crate) fn new() -> Nursery {
        Nursery {
            numbers: plain::AtomicUsize::new(0),
            awake: Arc::new(Awake::new()),
            born: Mutex::default(),
        }
    }

    /// Takes the loops that were made since the last call.
    pub(crate) fn take(&self) -> Vec<Born> {
        std::mem::take(&mut *self.born.lock())
    }
}

impl fmt::Debug for Nursery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nursery").finish_non_exhaustive()
    }
}
