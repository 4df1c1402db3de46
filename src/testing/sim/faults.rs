//! Faults that a seed draws: which kinds exist at all, how often they happen, whom they hit, and for how
//! long.
//!
//! - Each seed draws first *which* kinds of faults exist in its run, and then how many of each: a run with
//!   one kind alone finds what a run with all of them hides.
//! - A fault is a whole: what begins also ends. So a fault that is left out takes its end with it, and what
//!   remains is a plan as good as the first.
//! - The plan is drawn when the simulation begins to run, from a stream of its own: nothing that happens
//!   later shifts it, and a list of faults replays without the seed's draws.
//! - Everything heals at the end of the phase: whatever is cut off is mended, and whatever is down is
//!   started.

use std::fmt;
use std::time::Duration;

use crate::random::Random;
use crate::sim::Link;

/// Among more hosts than these, pairs are too many to have a latency each.
const MOST_DISTANT: usize = 100;

/// Which faults a seed may draw.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::sim::{FaultKind, Faults, Simulation};
/// use loopgroup::time::sleep;
/// use std::time::Duration;
///
/// let mut sim = Simulation::seeded(7);
/// sim.host("server", |_| std::future::pending::<()>());
/// sim.client("client", sleep(Duration::from_secs(30)));
/// let faults = Faults::chaos().without(FaultKind::Skew).until(Duration::from_secs(20));
/// sim.faults(faults); // the last ten seconds are without faults
/// sim.run().unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Faults {
    kinds: Vec<FaultKind>,
    phase: Duration,
    most: usize,
    hosts: Option<Vec<String>>,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Two hosts, or a host and all others, do not hear each other.
    Partition,
    /// A host does not hear another one, which hears it.
    OneWay,
    /// What a host sends, or gets, or both, is kept on its way.
    Clog,
    /// About half of the hosts are clogged one after the other, and unclogged in another order.
    Swizzle,
    /// A link is slow, perhaps narrow, loses, duplicates and reorders; connections made meanwhile have small
    /// buffers.
    BadLink,
    /// A process ends without notice; its kernel says so. It is started again.
    Kill,
    /// A host vanishes, and comes back later.
    Crash,
    /// All loops of a host stand still.
    Pause,
    /// The clock of a host goes ahead.
    Skew,
    /// Each pair of hosts has a latency of its own, for the whole of the phase: some are near each other, and
    /// some far apart.
    Distance,
}

impl FaultKind {
    const ALL: [FaultKind; 10] = [
        FaultKind::Partition,
        FaultKind::OneWay,
        FaultKind::Clog,
        FaultKind::Swizzle,
        FaultKind::BadLink,
        FaultKind::Kill,
        FaultKind::Crash,
        FaultKind::Pause,
        FaultKind::Skew,
        FaultKind::Distance,
    ];
}

impl Faults {
    /// All kinds of faults, in the first 30 seconds.
    pub fn chaos() -> Faults {
        Faults {
            kinds: FaultKind::ALL.to_vec(),
            phase: Duration::from_secs(30),
            most: 4,
            hosts: None,
        }
    }

    /// Only these kinds.
    pub fn only(kinds: impl IntoIterator<Item = FaultKind>) -> Faults {
        Faults {
            kinds: kinds.into_iter().collect(),
            ..Faults::chaos()
        }
    }

    /// Leaves a kind out.
    pub fn without(mut self, kind: FaultKind) -> Faults {
        self.kinds.retain(|one| *one != kind);
        self
    }

    /// Sets when every fault has ended: from then on, what has survived must recover.
    pub fn until(mut self, phase: Duration) -> Faults {
        self.phase = phase;
        self
    }

    /// Sets how often each kind happens at most, in a run that has it; 4 if this is not called.
    pub fn at_most(mut self, times: usize) -> Faults {
        self.most = times;
        self
    }

    /// Hits only these hosts; otherwise any that is no client.
    pub fn hosts<N: Into<String>>(mut self, hosts: impl IntoIterator<Item = N>) -> Faults {
        self.hosts = Some(hosts.into_iter().map(Into::into).collect());
        self
    }

    /// Draws the faults of a seed, in the order of their beginnings; `plan` counts the calls of
    /// [`Simulation::faults`](super::Simulation::faults), each of which has a stream of its own.
    pub(super) fn draw(
        &self,
        seed: u64,
        plan: u64,
        hosts: &[String],
        all: &[String],
    ) -> Vec<Fault> {
        let hosts = match &self.hosts {
            Some(chosen) => chosen,
            None => hosts,
        };
        let mut random = Random::new(seed ^ 0x6661_756c_7473 ^ plan << 48);
        let mut faults = Vec::new();
        if hosts.is_empty() || self.phase.is_zero() || self.most == 0 {
            return faults;
        }
        for kind in FaultKind::ALL {
            // Drawn for every kind, so that leaving one out does not change the others.
            let exists = random.below(2) == 0;
            let mut own = Random::new(random.bits());
            if !exists || !self.kinds.contains(&kind) {
                continue;
            }
            if kind == FaultKind::Distance {
                if all.len() > MOST_DISTANT {
                    continue;
                }
                let fault = self.draw_distances(&mut own, all);
                faults.push(Fault { plan, ..fault });
                continue;
            }
            for _ in 0..1 + own.below(self.most) {
                let fault = self.draw_one(kind, &mut own, hosts, all);
                faults.push(Fault { plan, ..fault });
            }
        }
        faults.sort_by_key(|fault| fault.at);
        faults
    }

    /// A latency for each pair of hosts.
    fn draw_distances(&self, random: &mut Random, all: &[String]) -> Fault {
        let mut distances = Vec::new();
        for (place, one) in all.iter().enumerate() {
            for other in &all[..place] {
                // Near is as likely as far.
                let farthest = Duration::from_micros(100 << random.below(12));
                let latency = random.up_to(farthest);
                let link = Link::default().latency(latency).tail(latency / 10);
                distances.push((one.clone(), other.clone(), link));
            }
        }
        Fault {
            plan: 0,
            at: Duration::ZERO,
            lasts: self.phase,
            what: What::Distances(distances),
        }
    }

    fn draw_one(
        &self,
        kind: FaultKind,
        random: &mut Random,
        hosts: &[String],
        all: &[String],
    ) -> Fault {
        let at = random.up_to(self.phase);
        // Short ones are as likely as long ones: a millisecond, or ten seconds.
        let longest = Duration::from_millis(1 << random.below(14));
        let lasts = random.up_to(longest).min(self.phase.saturating_sub(at));
        let one = hosts[random.below(hosts.len())].clone();
        let others: Vec<&String> = all.iter().filter(|other| **other != one).collect();
        let other = match others.len() {
            0 => one.clone(),
            count => others[random.below(count)].clone(),
        };
        let what = match kind {
            FaultKind::Partition if random.below(2) == 0 => What::Isolated(one, owned(&others)),
            FaultKind::Partition => What::Isolated(one, vec![other]),
            FaultKind::OneWay if random.below(2) == 0 => What::Unheard(one, other),
            FaultKind::OneWay => What::Unheard(other, one),
            FaultKind::Clog => What::Clogged(one, owned(&others), Way::draw(random)),
            FaultKind::Swizzle => What::Swizzled(swizzle(random, lasts, hosts), all.to_vec()),
            FaultKind::BadLink => What::BadLink(one, other, bad_link(random)),
            FaultKind::Kill => What::Killed(one),
            FaultKind::Crash => What::Crashed(one),
            FaultKind::Pause => What::Paused(one),
            FaultKind::Skew => What::Skewed(one),
            FaultKind::Distance => unreachable!("it is drawn once, for all hosts"),
        };
        Fault {
            plan: 0,
            at,
            lasts,
            what,
        }
    }
}

fn owned(names: &[&String]) -> Vec<String> {
    names.iter().map(|name| (*name).clone()).collect()
}

fn bad_link(random: &mut Random) -> Link {
    let share = |random: &mut Random, most: usize| random.below(most) as f64 / 100.0;
    let link = Link::default()
        .latency(random.up_to(Duration::from_millis(200)))
        .jitter(random.up_to(Duration::from_millis(200)))
        .loss(share(random, 30))
        .duplicate(share(random, 20))
        .reorder(share(random, 20))
        // 512 bytes to 64 KiB: writers wait for readers sooner.
        .buffer(512 << random.below(8));
    match random.below(2) {
        0 => link,
        // 16 KiB to 2 MiB a second: what is still under way when the fault ends comes within seconds.
        _ => link.bandwidth((16 * 1024) << random.below(8)),
    }
}

/// When each of about half of the hosts is clogged, and until when.
fn swizzle(
    random: &mut Random,
    lasts: Duration,
    hosts: &[String],
) -> Vec<(String, Duration, Duration)> {
    let mut clogs = Vec::new();
    for host in hosts {
        if random.below(2) == 0 || hosts.len() == 1 {
            let from = random.up_to(lasts / 2);
            clogs.push((host.clone(), from, lasts / 2 + random.up_to(lasts / 2)));
        }
    }
    clogs
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    In,
    Out,
    Both,
}

impl Way {
    fn draw(random: &mut Random) -> Way {
        [Way::In, Way::Out, Way::Both][random.below(3)]
    }
}

/// A fault of a plan: when, for how long, and what.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The number of the plan that it belongs to.
    pub(super) plan: u64,
    at: Duration,
    pub(super) lasts: Duration,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Isolated(String, Vec<String>),
    /// The second does not hear the first.
    Unheard(String, String),
    Clogged(String, Vec<String>, Way),
    Swizzled(Vec<(String, Duration, Duration)>, Vec<String>),
    BadLink(String, String, Link),
    Killed(String),
    Crashed(String),
    Paused(String),
    Skewed(String),
    Distances(Vec<(String, String, Link)>),
}

impl Fault {
    /// Returns when it begins, after the start of the run.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// Returns how long it lasts, by the time of the simulation; for a [`Skew`](FaultKind::Skew), by how much
    /// the clock goes ahead.
    pub fn lasts(&self) -> Duration {
        self.lasts
    }

    /// The same fault of a plan that begins then.
    pub(super) fn after(self, start: Duration) -> Fault {
        let at = start.saturating_add(self.at);
        Fault { at, ..self }
    }

    /// The same fault, for half of the time.
    pub(super) fn halved(&self) -> Fault {
        let mut fault = self.clone();
        fault.lasts /= 2;
        if let What::Swizzled(clogs, _) = &mut fault.what {
            for (_, from, until) in clogs {
                (*from, *until) = (*from / 2, *until / 2);
            }
        }
        fault
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            at, lasts, what, ..
        } = self;
        write!(f, "{at:?}: ")?;
        match what {
            What::Isolated(one, others) => {
                write!(f, "{one} is cut off from {}", others.join(", "))?
            }
            What::Unheard(from, to) => write!(f, "{to} does not hear {from}")?,
            What::Clogged(one, others, way) => {
                let way = match way {
                    Way::In => "to",
                    Way::Out => "from",
                    Way::Both => "to and from",
                };
                write!(
                    f,
                    "what goes {way} {one} is kept on its way ({})",
                    others.join(", ")
                )?;
            }
            What::Swizzled(clogs, _) => {
                let hosts: Vec<&str> = clogs.iter().map(|(host, ..)| &**host).collect();
                write!(f, "{} are clogged in turn", hosts.join(", "))?;
            }
            What::BadLink(one, other, _) => write!(f, "a bad link between {one} and {other}")?,
            What::Killed(host) => write!(f, "the process of {host} is killed")?,
            What::Crashed(host) => write!(f, "{host} crashes")?,
            What::Distances(_) => write!(f, "each pair of hosts has a latency of its own")?,
            What::Paused(host) => write!(f, "{host} stands still")?,
            What::Skewed(host) => return write!(f, "the clock of {host} goes ahead by {lasts:?}"),
        }
        write!(f, ", for {lasts:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_links_are_bad_in_all_ways_and_some_of_them_are_narrow() {
        let mut random = Random::new(7);
        let links: Vec<_> = (0..200).map(|_| bad_link(&mut random)).collect();
        let narrow = links.iter().filter_map(|link| link.bandwidth);
        assert!((50..150).contains(&narrow.clone().count()));
        assert!(narrow.clone().min() < Some(32 * 1024) && narrow.max() > Some(1024 * 1024));
        let buffers = links.iter().map(|link| link.buffer);
        assert_eq!(
            (buffers.clone().min(), buffers.max()),
            (Some(512), Some(64 * 1024))
        );
        let differ = |share: fn(&Link) -> f64| links.iter().any(|link| share(link) > 0.1);
        assert!(differ(|link| link.loss) && differ(|link| link.duplicate));
        assert!(differ(|link| link.reorder));
    }
}
