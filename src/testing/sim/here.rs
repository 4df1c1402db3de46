//! What a program asks of the simulation that it runs in, and what it gets where there is none.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::io;
use std::path::Path;
use std::time::Instant;

use crate::event_loop::context;
use crate::sync::thread_local;
use crate::time::here;

/// Hashes with fixed keys: a `HashMap` with it iterates in the same order in each run.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::sim::FixedHasher;
/// use std::collections::HashMap;
///
/// let mut map: HashMap<&str, u32, FixedHasher> = HashMap::default();
/// map.insert("one", 1);
/// assert_eq!(map["one"], 1);
/// ```
pub type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// Returns 64 random bits: of the seed on a simulated host, of the system elsewhere. Not for secrets.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::sim::{self, Simulation};
///
/// let run = |seed| {
///     let mut sim = Simulation::seeded(seed);
///     let (tx, rx) = std::sync::mpsc::channel();
///     sim.client("dice", async move { tx.send(sim::random() % 6).unwrap() });
///     sim.run().unwrap();
///     rx.recv().unwrap()
/// };
/// assert_eq!(run(7), run(7));
/// ```
pub fn random() -> u64 {
    match context::simulated_host() {
        Some(host) => host.random_bits(),
        None => RandomState::new().hash_one(0_u8),
    }
}

/// Returns the time by the clock of this thread's loop: virtual on a simulated host, the system's elsewhere.
pub fn now() -> Instant {
    here::now()
}

/// Removes the path of a Unix socket: on a simulated host, which has no other files, that of a simulated one;
/// elsewhere by `std::fs::remove_file`.
///
/// A path outlives its listener, as on a real host. It does not outlive the life of the host.
///
/// # Errors
///
/// `NotFound` if there is no such path, and whatever the system returns.
///
/// # Examples
///
/// ```
/// use loopgroup::net::UnixListener;
/// use loopgroup::testing::sim::{self, Simulation};
///
/// let mut sim = Simulation::seeded(1);
/// sim.client("service", async {
///     for _ in 0..2 {
///         let _ = sim::remove_socket("/run/service"); // what an earlier one may have left
///         drop(UnixListener::bind("/run/service")?);
///     }
///     std::io::Result::Ok(())
/// });
/// sim.run().unwrap();
/// ```
pub fn remove_socket(path: impl AsRef<Path>) -> io::Result<()> {
    let Some(host) = context::simulated_host() else {
        return std::fs::remove_file(path);
    };
    match host.net.network.unlink(host.net.host, path.as_ref()) {
        true => Ok(()),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Returns the name of the simulated host that this thread's loop is on, if it is on one.
pub fn host_name() -> Option<String> {
    context::simulated_host().map(|host| host.name.to_string())
}

thread_local! {
    /// What the runs of this thread have reached: how often each was looked at, and how often it was true.
    static REACHED: RefCell<BTreeMap<&'static str, Count>> = const { RefCell::new(BTreeMap::new()) };
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) looks: u64,
    pub(super) hits: u64,
}

/// Notes whether something that should happen in some runs has happened: a search prints what never did.
///
/// A simulation in which a connection is never reset does not test what happens then. Outside of a simulated
/// host it does nothing.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::sim;
///
/// let retries = 3;
/// sim::sometimes("a request is repeated twice", retries > 2);
/// ```
pub fn sometimes(name: &'static str, reached: bool) {
    if context::simulated_host().is_some() {
        note(name, 1, u64::from(reached));
    }
}

pub(super) fn note(name: &'static str, looks: u64, hits: u64) {
    let _ = REACHED.try_with(|all| {
        let mut all = all.borrow_mut();
        let count = all.entry(name).or_default();
        count.looks += looks;
        count.hits += hits;
    });
}

/// Takes what was reached on this thread since the last call.
pub(super) fn take_reached() -> BTreeMap<&'static str, Count> {
    REACHED.with(|all| std::mem::take(&mut *all.borrow_mut()))
}
