//! How the faults of a plan happen: each begins at its time, and puts its own end on the agenda.

use std::time::Duration;

use crate::testing::sim::faults::{Fault, Faults, Way, What};
use crate::testing::sim::replay;
use crate::testing::sim::simulation::Simulation;

impl Simulation {
    /// Has faults happen, drawn by the seed when the simulation begins to run; see [`Faults`].
    ///
    /// Each call is a plan of its own, with its own hosts and its own end.
    pub fn faults(&mut self, faults: Faults) {
        let plan = self.fault_plans;
        self.fault_plans += 1;
        self.plan(move |sim| {
            let (start, hosts, all) = (sim.elapsed(), sim.names(false), sim.names(true));
            let drawn = replay::faults(plan, || {
                let drawn = faults.draw(sim.seed(), plan, &hosts, &all);
                drawn.into_iter().map(|fault| fault.after(start)).collect()
            });
            for fault in drawn {
                sim.at(fault.at(), move |sim| {
                    sim.note_fault(fault.to_string());
                    fault.begin(sim);
                });
            }
        });
    }
}

impl Fault {
    /// Has it happen; its end is put on the agenda.
    pub(super) fn begin(&self, sim: &mut Simulation) {
        let lasts = self.lasts;
        let end = sim.elapsed().saturating_add(lasts);
        match self.what.clone() {
            What::Isolated(one, others) => {
                for other in &others {
                    sim.cut_by_fault(&one, other);
                    sim.cut_by_fault(other, &one);
                }
                sim.at(end, move |sim| {
                    for other in &others {
                        sim.mend_by_fault(&one, other);
                        sim.mend_by_fault(other, &one);
                    }
                });
            }
            What::Unheard(from, to) => {
                sim.cut_by_fault(&from, &to);
                sim.at(end, move |sim| sim.mend_by_fault(&from, &to));
            }
            What::Clogged(one, others, way) => {
                for other in &others {
                    clog(sim, &one, other, way, lasts);
                }
            }
            What::Swizzled(clogs, all) => {
                let start = sim.elapsed();
                for (host, from, until) in clogs {
                    let all = all.clone();
                    sim.at(start.saturating_add(from), move |sim| {
                        let others = all.iter().filter(|other| **other != host);
                        others.for_each(|other| {
                            clog(sim, &host, other, Way::Both, until.saturating_sub(from));
                        });
                    });
                }
            }
            What::BadLink(one, other, link) => {
                sim.spoil_by_fault(&one, &other, link);
                sim.at(end, move |sim| sim.restore_by_fault(&one, &other));
            }
            What::Distances(distances) => {
                for (one, other, link) in &distances {
                    sim.spoil_by_fault(one, other, link.clone());
                }
                sim.at(end, move |sim| {
                    for (one, other, _) in &distances {
                        sim.restore_by_fault(one, other);
                    }
                });
            }
            What::Killed(host) => {
                sim.down_by_fault(&host, Simulation::kill);
                sim.at(end, move |sim| sim.up_by_fault(&host));
            }
            What::Crashed(host) => {
                sim.down_by_fault(&host, Simulation::crash);
                sim.at(end, move |sim| sim.up_by_fault(&host));
            }
            What::Paused(host) => sim.pause(&host, lasts),
            What::Skewed(host) => sim.skew(&host, lasts),
        }
    }
}

fn clog(sim: &mut Simulation, one: &str, other: &str, way: Way, time: Duration) {
    if let Way::Out | Way::Both = way {
        sim.clog(one, other, time);
    }
    if let Way::In | Way::Both = way {
        sim.clog(other, one, time);
    }
}
