//! The loops of a simulation, its network and its clock: which of them goes on next, and when.
//!
//! - Everything runs on one thread. A loop runs a short turn when its bell was rung, when it is not done, or
//!   at its deadline; which one of several, and how many tasks, is drawn from the seed.
//! - While any loop has something to run, time stands still. Then it jumps to the next event: of the network,
//!   of a loop's timer, or of the agenda. Nothing ticks, so the cost is that of what happens.
//! - Polls take no time, unless they are given a cost: then a loop is busy for it after its turn, and others
//!   run meanwhile.
//! - A loop that is never done, because a task wakes itself without end, does not stop time: after
//!   [`BUSY_TURNS`] turns at one instant, time goes on to the next event. Its host is remembered, and named
//!   when the simulation fails.
//! - Groups that a host builds are found in the nursery after each turn.
//! - The trace is a hash over every turn and every event of the network.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::clock::{self, ReadHere, VirtualClock};
use crate::event_loop::shared::LoopParts;
use crate::random::Random;
use crate::sim::{HostId, Network, Nursery};
use crate::sync::Arc;
use crate::testing::driven_loop::{DrivenLoop, TurnResult};

/// Turns at one instant after which time goes on although a loop is not done.
const BUSY_TURNS: u64 = 200_000;

/// The end of time, which a clock of nanoseconds has after 584 years.
pub(super) const END: Duration = Duration::from_nanos(u64::MAX);

/// A loop of some host, by the number of its bell.
struct WorldLoop {
    driven: DrivenLoop,
    host: HostId,
    /// The clock of its host, which may be ahead.
    clock: Arc<VirtualClock>,
    /// It is among those that run next, or busy with what it has run.
    is_queued: bool,
    is_busy: bool,
    /// Its entry in the world's deadlines.
    deadline: Option<Instant>,
}

/// A host whose loops stand still.
struct Paused {
    host: HostId,
    /// By the time of the simulation.
    until: Duration,
    /// The loops that would run.
    waiting: Vec<usize>,
}

/// What [`World::step`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A loop of this host has run.
    Ran(HostId),
    /// Time has gone on.
    Later,
    /// Nothing will happen any more before the given limit.
    Limit,
    /// Nothing will ever happen any more.
    Nothing,
}

pub(super) struct World {
    pub(super) network: Arc<Network>,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) nursery: Arc<Nursery>,
    _reading: ReadHere,
    loops: Vec<Option<WorldLoop>>,
    /// The host and the name of each loop; kept when it has ended.
    names: Vec<Option<(HostId, String)>>,
    /// Loops that have something to run.
    queue: Vec<usize>,
    deadlines: BTreeSet<(Instant, usize)>,
    /// Hosts that are paused.
    paused: Vec<Paused>,
    /// How long a poll takes.
    pub(super) poll_cost: Duration,
    random: Random,
    start: Instant,
    /// Hosts whose loops had something to run after [`BUSY_TURNS`] turns.
    restless: BTreeSet<HostId>,
    /// Turns since time has last gone on.
    turns_here: u64,
    pub(super) turns: u64,
    trace: u64,
    /// Every turn, if they are kept: when, of which loop, and its polls.
    kept: Option<Vec<(Duration, usize, u64)>>,
    rung: Vec<usize>,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let clock = Arc::new(VirtualClock::new());
        World {
            network: Network::new(seed),
            _reading: clock::read_here(&clock),
            start: clock.now(),
            clock,
            nursery: Arc::new(Nursery::new()),
            loops: Vec::new(),
            names: Vec::new(),
            queue: Vec::new(),
            deadlines: BTreeSet::new(),
            paused: Vec::new(),
            poll_cost: Duration::ZERO,
            random: Random::new(seed ^ 0x7363_6865_6475_6c65),
            restless: BTreeSet::new(),
            turns_here: 0,
            turns: 0,
            trace: 0xCBF2_9CE4_8422_2325,
            kept: None,
            rung: Vec::new(),
        }
    }

    /// How much time has passed.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.passed()
    }

    /// A hash over all that has happened.
    pub(super) fn trace(&self) -> u64 {
        self.trace ^ self.network.trace()
    }

    /// Keeps every turn and every event of the network, from now on.
    pub(super) fn record(&mut self) {
        self.kept = Some(Vec::new());
        self.network.record(true);
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.kept.is_some()
    }

    /// The host and the name of each loop that there ever was, by its number.
    pub(super) fn loop_names(&self) -> Vec<Option<(HostId, String)>> {
        self.names.clone()
    }

    /// The turns that were kept: when, of which host and loop, and its polls so far.
    pub(super) fn turns_kept(&self) -> &[(Duration, usize, u64)] {
        self.kept.as_deref().unwrap_or_default()
    }

    /// What was kept, a line each, in the order of time.
    pub(super) fn recorded(&self, names: &[Arc<str>]) -> Vec<String> {
        let turns = self.kept.iter().flatten().map(|(at, number, polls)| {
            let text = format!("{at:?}: loop {number} has polled {polls} times");
            (*at, text)
        });
        let events = self.network.recorded();
        let events = events.iter().map(|event| {
            let text = match event.content {
                0 => event.line(names),
                hash => format!("{} (hash of the bytes {hash:x})", event.line(names)),
            };
            (event.at, text)
        });
        let mut lines: Vec<_> = events.chain(turns).collect();
        lines.sort_by_key(|(at, _)| *at);
        lines.into_iter().map(|(_, text)| text).collect()
    }

    /// Runs one turn of one loop, or goes on to the next event, which must not be after `limit`.
    pub(super) fn step(&mut self, limit: Duration) -> Step {
        let mut next = self.next_loop();
        if next.is_none() {
            self.collect(); // the test may have rung, from outside
            next = self.next_loop();
        }
        if let Some((number, host)) = next {
            self.turn(number);
            return Step::Ran(host);
        }
        if self.turns_here >= BUSY_TURNS {
            self.note_restless();
        }
        let next = self.next_event();
        match next {
            Some(next) if next <= limit => {
                self.go_to(next);
                Step::Later
            }
            Some(_) => Step::Limit,
            // A loop that never sleeps has nothing to wait for, but a limit.
            None if !self.queue.is_empty() => Step::Limit,
            None => Step::Nothing,
        }
    }

    /// Lets time pass up to `to`, and wakes what is due.
    pub(super) fn go_to(&mut self, to: Duration) {
        self.turns_here = 0;
        let to = to.min(END);
        let now = self.start + to;
        self.clock.move_to(now);
        self.network.advance(to);
        while let Some(&(deadline, number)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            if let Some(one) = &mut self.loops[number] {
                one.deadline = None;
                if std::mem::take(&mut one.is_busy) {
                    one.is_queued = false;
                }
            }
            self.enqueue(number);
        }
        self.collect();
    }

    /// When something happens next, if no loop has anything to run.
    pub(super) fn next_event(&self) -> Option<Duration> {
        let timer = self.deadlines.first().map(|(deadline, _)| {
            let after = deadline.saturating_duration_since(self.start);
            after.max(self.elapsed())
        });
        let packet = self.network.next_event().filter(|at| *at <= END);
        match (timer, packet) {
            (Some(timer), Some(packet)) => Some(timer.min(packet)),
            (timer, packet) => timer.or(packet),
        }
    }

    /// Calls `call` on a loop; `None` if it has ended.
    pub(super) fn run_inside<R>(&mut self, number: usize, call: impl FnOnce() -> R) -> Option<R> {
        let one = self.loops.get_mut(number)?.as_mut()?;
        let result = one.driven.run_inside(call);
        self.enqueue(number);
        self.collect();
        result
    }

    /// Takes the loops that were made since the last call; returns their numbers.
    pub(super) fn adopt(&mut self, clock: &Arc<VirtualClock>) -> Vec<usize> {
        let mut numbers = Vec::new();
        for born in self.nursery.take() {
            let parts = born.parts.downcast::<LoopParts>();
            let parts = parts.expect("the builder leaves the parts of a loop");
            let clock = match &parts.shared.config.simulated {
                Some(host) => Arc::clone(&host.clock),
                None => Arc::clone(clock),
            };
            let name = parts.shared.config.thread_names[parts.shared.index].clone();
            let driven = DrivenLoop::new(*parts);
            let bell = driven.bell().expect("it was made for a simulation");
            let number = bell.number();
            if self.loops.len() <= number {
                self.loops.resize_with(number + 1, || None);
                self.names.resize(number + 1, None);
            }
            self.names[number] = Some((born.host, name));
            self.loops[number] = Some(WorldLoop {
                driven,
                host: born.host,
                clock,
                is_queued: false,
                is_busy: false,
                deadline: None,
            });
            self.enqueue(number);
            numbers.push(number);
        }
        numbers
    }

    /// Ends all loops of a host, as the end of its process does.
    pub(super) fn kill(&mut self, host: HostId) {
        self.collect();
        // Again, because destructors may have built groups.
        while self.loops_of(host) > 0 {
            for number in 0..self.loops.len() {
                let is_its = |one: &&mut WorldLoop| one.host == host;
                if let Some(one) = self.loops[number].as_mut().filter(is_its) {
                    one.driven.kill();
                    self.remove(number);
                }
            }
            self.collect();
        }
        self.paused.retain(|paused| paused.host != host);
    }

    /// Has all loops of a host look at their clock.
    pub(super) fn wake_host(&mut self, host: HostId) {
        for number in 0..self.loops.len() {
            if self.loops[number]
                .as_ref()
                .is_some_and(|one| one.host == host)
            {
                self.enqueue(number);
            }
        }
    }

    /// Stops the loops of a host, until this time at least.
    pub(super) fn pause(&mut self, host: HostId, until: Duration) {
        match self.paused.iter_mut().find(|one| one.host == host) {
            Some(paused) => paused.until = paused.until.max(until),
            None => {
                let waiting = Vec::new();
                self.paused.push(Paused {
                    host,
                    until,
                    waiting,
                });
            }
        }
    }

    /// Lets the loops of a host go on if the last of its pauses is over.
    pub(super) fn end_pause(&mut self, host: HostId) {
        let now = self.elapsed();
        let is_over = |one: &Paused| one.host == host && one.until <= now;
        if let Some(place) = self.paused.iter().position(is_over) {
            for number in self.paused.remove(place).waiting {
                if let Some(one) = &mut self.loops[number] {
                    one.is_queued = false;
                }
                self.enqueue(number);
            }
        }
    }

    /// How many loops of a host live.
    pub(super) fn loops_of(&self, host: HostId) -> usize {
        let its = |one: &&WorldLoop| one.host == host;
        self.loops.iter().flatten().filter(its).count()
    }

    /// Hosts of which some loop never has nothing to run: a task wakes itself without end.
    pub(super) fn restless(&self) -> &BTreeSet<HostId> {
        &self.restless
    }

    /// What each loop of a host waits for, a line each.
    pub(super) fn describe(&self, host: HostId) -> Vec<String> {
        let its = |number: usize| self.loops[number].as_ref().filter(|one| one.host == host);
        let its = (0..self.loops.len()).filter_map(|number| Some((number, its(number)?)));
        let lines = its.map(|(number, one)| {
            let name = self.names[number].as_ref().map_or("", |(_, name)| name);
            let waits = match one.deadline {
                Some(at) => {
                    let at = at.saturating_duration_since(self.start);
                    format!("its next deadline is at {at:?}")
                }
                None if one.is_queued => "it has something to run".to_owned(),
                None => "no timer: for a socket, a channel or a wake-up".to_owned(),
            };
            format!("loop {name}: {waits}")
        });
        lines.collect()
    }

    fn note_restless(&mut self) {
        for &number in &self.queue {
            if let Some(one) = &self.loops[number] {
                self.restless.insert(one.host);
            }
        }
    }

    /// Takes a loop out of the queue, drawn by the seed.
    fn next_loop(&mut self) -> Option<(usize, HostId)> {
        while !self.queue.is_empty() && self.turns_here < BUSY_TURNS {
            let place = self.random.below(self.queue.len());
            let number = self.queue.swap_remove(place);
            let Some(one) = &mut self.loops[number] else {
                continue;
            };
            let host = one.host;
            match self.paused.iter_mut().find(|paused| paused.host == host) {
                Some(paused) => paused.waiting.push(number), // it stays marked as queued
                None => {
                    one.is_queued = false;
                    return Some((number, host));
                }
            }
        }
        None
    }

    fn turn(&mut self, number: usize) {
        let tasks = 1 + self.random.below(4);
        let Some(one) = &mut self.loops[number] else {
            return;
        };
        // Also if the loop was not asleep: a ring that is not answered silences those that follow.
        if let Some(bell) = one.driven.bell() {
            bell.answer();
        }
        let (before, cost) = (one.driven.polls(), self.poll_cost);
        let mut result = one.driven.turn_with(tasks as u32, cost.is_zero());
        let polls = one.driven.polls();
        let worked = u32::try_from(polls - before).unwrap_or(u32::MAX);
        if result == TurnResult::Busy && !cost.is_zero() && worked == 0 {
            result = one.driven.turn_with(tasks as u32, true);
        }
        self.turns += 1;
        self.turns_here += 1;
        self.note(number as u64, polls);
        let now = self.elapsed();
        if let Some(kept) = &mut self.kept {
            kept.push((now, number, polls));
        }
        match result {
            TurnResult::Busy if worked > 0 && !cost.is_zero() => {
                self.occupy(number, now.saturating_add(cost.saturating_mul(worked)));
            }
            TurnResult::Busy => self.enqueue(number),
            TurnResult::Stalled(deadline) => self.sleep(number, deadline),
            TurnResult::Ended => self.remove(number),
        }
        self.collect();
    }

    /// Has a loop be busy until then.
    fn occupy(&mut self, number: usize, until: Duration) {
        self.sleep(number, None);
        if let Some(one) = &mut self.loops[number] {
            let until = self.start + until;
            (one.is_queued, one.is_busy) = (true, true);
            one.deadline = Some(until);
            self.deadlines.insert((until, number));
        }
    }

    /// Notes when a loop that sleeps has to run again, by the clock of the simulation.
    fn sleep(&mut self, number: usize, deadline: Option<Instant>) {
        let Some(one) = &mut self.loops[number] else {
            return;
        };
        let ahead = one.clock.ahead();
        let deadline = deadline.map(|at| at.checked_sub(ahead).unwrap_or(self.start));
        if one.deadline == deadline {
            return;
        }
        if let Some(old) = std::mem::replace(&mut one.deadline, deadline) {
            self.deadlines.remove(&(old, number));
        }
        self.deadlines.extend(deadline.map(|at| (at, number)));
    }

    fn enqueue(&mut self, number: usize) {
        if let Some(Some(one)) = self.loops.get_mut(number) {
            if !std::mem::replace(&mut one.is_queued, true) {
                self.queue.push(number);
            }
        }
    }

    fn remove(&mut self, number: usize) {
        self.sleep(number, None);
        self.loops[number] = None;
    }

    /// Finds new loops, and those that were rung.
    fn collect(&mut self) {
        let clock = Arc::clone(&self.clock);
        self.adopt(&clock);
        let mut rung = std::mem::take(&mut self.rung);
        self.nursery.awake.take(&mut rung);
        for number in rung.drain(..) {
            self.enqueue(number);
        }
        self.rung = rung;
    }

    fn note(&mut self, what: u64, count: u64) {
        for word in [what, count, self.elapsed().as_nanos() as u64] {
            // FNV-1a, a word at a time.
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}
