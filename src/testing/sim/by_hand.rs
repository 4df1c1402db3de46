//! What a test does to the network and the hosts, at the moment at which it says so.
//!
//! - Faults of a plan are done by the same functions; where several may overlap, each is counted, and the
//!   last one to end mends what they have broken.
//! - A process that ends by force takes its sockets first: no destructor of it says anything on the network.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sim::{HostId, Link};
use crate::testing::sim::replay;
use crate::testing::sim::simulation::Simulation;

impl Simulation {
    /// Sets what the links between two hosts are like, both ways.
    #[track_caller]
    pub fn link(&mut self, one: &str, other: &str, link: Link) {
        let pair = (
            self.id(one).min(self.id(other)),
            self.id(one).max(self.id(other)),
        );
        self.links.insert(pair, link);
        self.set_link(one, other, None);
    }

    /// Sets what a link is like for a while; `None` is what it was before.
    pub(super) fn set_link(&mut self, one: &str, other: &str, link: Option<Link>) {
        let (one, other) = (self.id(one), self.id(other));
        let own = self.links.get(&(one.min(other), one.max(other)));
        let link = link.as_ref().or(own).unwrap_or(&self.settings.link).clone();
        self.network().set_link(one, other, link.clone());
        self.network().set_link(other, one, link);
    }

    /// Cuts a path off for a fault; several may do so at a time.
    pub(super) fn cut_by_fault(&mut self, from: &str, to: &str) {
        let path = (self.id(from), self.id(to));
        *self.cuts.entry(path).or_default() += 1;
        self.network().cut(path.0, path.1);
    }

    /// Ends what [`cut_by_fault`](Simulation::cut_by_fault) has begun: the last one mends the path.
    pub(super) fn mend_by_fault(&mut self, from: &str, to: &str) {
        let path = (self.id(from), self.id(to));
        if last_of(&mut self.cuts, path) {
            self.network().mend(path.0, path.1);
        }
    }

    /// Makes a link bad for a fault; several may do so at a time, and the last one to begin says how.
    pub(super) fn spoil_by_fault(&mut self, one: &str, other: &str, link: Link) {
        *self.spoilt.entry(self.pair(one, other)).or_default() += 1;
        self.set_link(one, other, Some(link));
    }

    /// Ends what [`spoil_by_fault`](Simulation::spoil_by_fault) has begun: the last one restores the link.
    pub(super) fn restore_by_fault(&mut self, one: &str, other: &str) {
        let pair = self.pair(one, other);
        if last_of(&mut self.spoilt, pair) {
            self.set_link(one, other, None);
        }
    }

    /// Takes a host down for a fault, by `how`; several may do so at a time.
    pub(super) fn down_by_fault(&mut self, host: &str, how: fn(&mut Simulation, &str)) {
        *self.downs.entry(self.id(host)).or_default() += 1;
        how(self, host);
    }

    /// Ends what [`down_by_fault`](Simulation::down_by_fault) has begun: the last one starts the host.
    pub(super) fn up_by_fault(&mut self, host: &str) {
        let id = self.id(host);
        if last_of(&mut self.downs, id) {
            self.revive(host);
        }
    }

    fn pair(&self, one: &str, other: &str) -> (HostId, HostId) {
        let (one, other) = (self.id(one), self.id(other));
        (one.min(other), one.max(other))
    }

    /// Starts a host again if it does not run.
    pub(super) fn revive(&mut self, host: &str) {
        if !self.machine(self.id(host)).is_running() && !replay::leaves_out(host) {
            self.restart(host);
        }
    }

    /// Cuts two hosts off from each other: nothing arrives any more, also of what is under way. Nobody is
    /// told.
    #[track_caller]
    pub fn partition(&mut self, one: &str, other: &str) {
        self.partition_one_way(one, other);
        self.partition_one_way(other, one);
    }

    /// As [`partition`](Simulation::partition), in one direction.
    #[track_caller]
    pub fn partition_one_way(&mut self, from: &str, to: &str) {
        self.network().cut(self.id(from), self.id(to));
    }

    /// Ends a partition of two hosts, both ways. What was lost is sent again when its sender next tries.
    #[track_caller]
    pub fn repair(&mut self, one: &str, other: &str) {
        let (one, other) = (self.id(one), self.id(other));
        self.network().mend(one, other);
        self.network().mend(other, one);
    }

    /// Ends all partitions and holds.
    pub fn repair_all(&mut self) {
        self.network().mend_all();
    }

    /// Keeps what two hosts send each other on its way, until it is [released](Simulation::release).
    #[track_caller]
    pub fn hold(&mut self, one: &str, other: &str) {
        let (one, other) = (self.id(one), self.id(other));
        self.network().hold(one, other);
        self.network().hold(other, one);
    }

    /// Has what was held arrive, in its order.
    #[track_caller]
    pub fn release(&mut self, one: &str, other: &str) {
        let (one, other) = (self.id(one), self.id(other));
        self.network().release(one, other);
        self.network().release(other, one);
    }

    /// Keeps what one host sends to another on its way for so long.
    #[track_caller]
    pub fn clog(&mut self, from: &str, to: &str, time: Duration) {
        let until = self.elapsed().saturating_add(time);
        self.network().clog(self.id(from), self.id(to), until);
    }

    /// Ends the process of a host, as `kill -9` does: its tasks are dropped without another poll, and its
    /// kernel closes its sockets.
    #[track_caller]
    pub fn kill(&mut self, host: &str) {
        let id = self.id(host);
        self.network().close_process(id);
        self.stop(id);
    }

    /// Has a host vanish, as if its power had failed: its peers hear nothing of it.
    #[track_caller]
    pub fn crash(&mut self, host: &str) {
        let id = self.id(host);
        self.network().crash(id);
        self.stop(id);
    }

    /// Starts a host again, after a [`crash`](Simulation::crash) or a [`kill`](Simulation::kill); one that
    /// runs is killed first. A client has one life, and stays as it is.
    #[track_caller]
    pub fn restart(&mut self, host: &str) {
        let id = self.id(host);
        if self.machine(id).is_client() || replay::leaves_out(host) {
            return;
        }
        if self.machine(id).is_running() {
            self.kill(host);
        }
        self.network().boot(id);
        self.start(id);
    }

    /// Stops all loops of a host for so long, as a debugger or a busy machine does. Its kernel goes on.
    #[track_caller]
    pub fn pause(&mut self, host: &str, time: Duration) {
        let id = self.id(host);
        let until = self.elapsed().saturating_add(time);
        self.world.pause(id, until);
        self.at(until, move |sim| sim.world.end_pause(id));
    }

    /// Puts the clock of a host further ahead of the others: its timers fire early by so much, once.
    #[track_caller]
    pub fn skew(&mut self, host: &str, ahead: Duration) {
        let id = self.id(host);
        self.machine(id).clock.skip(ahead);
        self.world.wake_host(id);
    }
}

/// Takes one of those that a thing is counted for; whether it was the last.
fn last_of<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) -> bool {
    match counts.get_mut(&key) {
        Some(count) if *count > 1 => {
            *count -= 1;
            false
        }
        _ => counts.remove(&key).is_some(),
    }
}
