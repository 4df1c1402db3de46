//! What the loops of a simulated host have in common, and how a group that is built there joins them.
//!
//! - A group that is built on a loop of a simulated host belongs to that host: its loops have the host's
//!   clock and network, and no thread. The builder leaves their parts with the [`Nursery`], and the
//!   simulation runs them from there.
//! - Names, seeds and numbers are drawn in the order of the calls, so they are the same in each run of a
//!   seed.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::clock::VirtualClock;
use crate::random::{Random, Seeds};
use crate::sim::{Awake, Bell, HostNet};
use crate::sync::{Arc, Mutex, Ordering, plain};

/// A host of a simulation, as its loops know it.
pub(crate) struct SimulatedHost {
    pub(crate) name: Arc<str>,
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
    nursery: Arc<Nursery>,
}

impl SimulatedHost {
    pub(crate) fn new(
        name: &str,
        net: HostNet,
        clock: Arc<VirtualClock>,
        poll_cost: Duration,
        seed: u64,
        nursery: &Arc<Nursery>,
    ) -> SimulatedHost {
        SimulatedHost {
            name: name.into(),
            net,
            clock,
            poll_cost,
            groups: plain::AtomicUsize::new(0),
            seeds: Seeds::from(seed),
            dice: Mutex::new(Random::new(seed ^ 0x6469_6365)),
            panics: Mutex::default(),
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
