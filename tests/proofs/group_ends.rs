//! Thousands of groups that end while their tasks and hooks submit to each other to the last.
//!
//! The promise: while a draining group lives, what its own tasks and hooks submit to any started loop of it
//! is accepted. What comes from outside may be refused from the moment the group is at rest. And the sums are
//! exact.
//!
//! `LOOPGROUP_ENDS` sets the number of groups, `LOOPGROUP_SEED` the first one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use loopgroup::time::sleep;
use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, LoopBound, TerminationFuture, WaitStrategy, block_on,
    yield_now,
};

use crate::util::{HOUR, Random, progress, setting, within};

/// What everything in a group's life shares.
struct World {
    loops: Vec<EventLoop>,
    /// A loop that is ended on other terms, and may refuse.
    alone: Option<usize>,
    attempts: AtomicU64,
    accepted: AtomicU64,
    /// Refused by a loop that had promised.
    broken: AtomicU64,
}

impl World {
    /// Submits from a task or a hook of the group.
    fn submit(self: &Arc<World>, random: &mut Random, depth: u64) {
        let there = random.below(self.loops.len() as u64) as usize;
        let (world, seed) = (Arc::clone(self), random.next());
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let child = live(world, Random(seed), depth);
        match self.loops[there].try_spawn(child) {
            Ok(_) => drop(self.accepted.fetch_add(1, Ordering::Relaxed)),
            Err(_) if self.alone == Some(there) => {}
            Err(_) => drop(self.broken.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// A task that waits now and then, and has children on any loop.
fn live(world: Arc<World>, mut random: Random, depth: u64) -> impl Future<Output = ()> + Send {
    let life: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        for _ in 0..random.below(3) {
            match random.below(4) {
                0 => sleep(Duration::from_micros(random.below(300))).await,
                1 | 2 => yield_now().await,
                _ => {}
            }
            if depth > 0 {
                world.submit(&mut random, depth - 1);
            }
        }
    });
    life
}

/// How the group is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Drain,
    /// And the last handle of the group goes.
    DrainAndDrop,
    /// One loop drains by itself, before or after.
    OneDrains,
    OneNow,
    OneQuietly,
}

fn one_group(seed: u64) {
    let mut random = Random(seed);
    let loops = 2 + random.below(2) as usize;
    let wait = match random.below(4) {
        0 => WaitStrategy::SpinThenPark(Duration::from_micros(20)),
        _ => WaitStrategy::Park,
    };
    let builder = EventLoopGroup::builder().loops(loops).wait_strategy(wait);
    let group = match random.one_in(2) {
        true => builder.without_io(),
        false => builder,
    };
    let group = group.build().unwrap();
    group.start().unwrap();
    let way = match random.below(8) {
        0..3 => Way::Drain,
        3 | 4 => Way::DrainAndDrop,
        5 => Way::OneDrains,
        6 => Way::OneNow,
        _ => Way::OneQuietly,
    };
    let alone = matches!(way, Way::OneDrains | Way::OneNow | Way::OneQuietly);
    let world = Arc::new(World {
        loops: group.loops().to_vec(),
        alone: alone.then(|| random.below(loops as u64) as usize),
        attempts: AtomicU64::new(0),
        accepted: AtomicU64::new(0),
        broken: AtomicU64::new(0),
    });
    for _ in 0..random.below(6) {
        world.submit(&mut random, 3);
    }
    let hooks = add_hooks(&world, &group, &mut random);
    let outside = random
        .one_in(2)
        .then(|| submit_from_outside(&world, random.next()));
    let end = ask(&world, group, way, &mut random);
    let report = end.wait();
    let refused = outside.map_or(0, |outside| outside.join().unwrap());
    let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    assert_eq!(count(&world.broken), 0, "seed {seed}, {way:?}: {report}");
    assert_eq!(
        report.accepted(),
        count(&world.accepted) + hooks.visits(),
        "seed {seed}: {report}"
    );
    let attempts = count(&world.attempts);
    assert_eq!(
        report.accepted() + report.rejected(),
        attempts + hooks.attempts(),
        "seed {seed}: {report}"
    );
    let ended = report.completed() + report.panicked() + report.cancelled();
    assert_eq!(report.accepted(), ended, "seed {seed}: {report}");
    assert!(refused <= report.rejected(), "seed {seed}: {report}");
    if !alone {
        assert_eq!(report.cancelled(), 0, "seed {seed}: {report}");
        let drained = report
            .loops()
            .iter()
            .all(|one| one.cause() == EndCause::Drained);
        assert!(drained, "seed {seed}: {report}");
    }
}

/// Hooks that visit what lives on a sibling, and submit.
struct Hooks {
    visited: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    /// Making the values that are visited are tasks as well.
    bound: u64,
}

impl Hooks {
    fn visits(&self) -> u64 {
        self.bound + self.visited.load(Ordering::SeqCst) as u64
    }

    fn attempts(&self) -> u64 {
        self.visits() + self.refused.load(Ordering::SeqCst) as u64
    }
}

fn add_hooks(world: &Arc<World>, group: &EventLoopGroup, random: &mut Random) -> Hooks {
    let hooks = Hooks {
        visited: Arc::default(),
        refused: Arc::default(),
        bound: random.below(3),
    };
    for _ in 0..hooks.bound {
        let len = world.loops.len() as u64;
        let (here, there) = (random.below(len) as usize, random.below(len) as usize);
        let value: LoopBound<u64> = group.loops()[there].bind(|| 7);
        let (visited, refused) = (Arc::clone(&hooks.visited), Arc::clone(&hooks.refused));
        let (world, seed) = (Arc::clone(world), random.next());
        let hook = move || {
            // A refusal shows in the handle, at once.
            let visit = value.with(|value| *value);
            let is_refused = visit.is_finished() && block_on_elsewhere(visit);
            let counter = if is_refused { &refused } else { &visited };
            counter.fetch_add(1, Ordering::SeqCst);
            if is_refused && world.alone != Some(there) {
                world.broken.fetch_add(1, Ordering::Relaxed);
            }
            world.submit(&mut Random(seed), 2);
        };
        group.loops()[here].add_shutdown_hook(hook).unwrap();
    }
    hooks
}

/// Whether a handle that is finished says that its task was rejected; asked on a thread of its own, for loops
/// do not block.
fn block_on_elsewhere(visit: loopgroup::JoinHandle<u64>) -> bool {
    let asked = thread::spawn(move || block_on(visit).is_err_and(|error| error.is_rejected()));
    asked.join().unwrap()
}

/// Somebody outside who submits until it is refused; returns how often that was.
fn submit_from_outside(world: &Arc<World>, seed: u64) -> thread::JoinHandle<u64> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        let mut random = Random(seed);
        let mut refused = 0;
        for _ in 0..random.below(40) {
            let there = random.below(world.loops.len() as u64) as usize;
            // A loop on terms of its own may still be open when the others have drained.
            if world.alone == Some(there) {
                continue;
            }
            let child = live(Arc::clone(&world), Random(random.next()), 2);
            world.attempts.fetch_add(1, Ordering::Relaxed);
            match world.loops[there].try_spawn(child) {
                Ok(task) => {
                    world.accepted.fetch_add(1, Ordering::Relaxed);
                    if random.one_in(3) {
                        let _ = block_on(task);
                    }
                }
                Err(_) => refused += 1,
            }
        }
        refused
    })
}

fn ask(world: &World, group: EventLoopGroup, way: Way, random: &mut Random) -> TerminationFuture {
    let Some(alone) = world.alone else {
        let end = group.drain(HOUR);
        if way == Way::DrainAndDrop {
            drop(group);
        }
        return end;
    };
    let first = random.one_in(2).then(|| group.drain(HOUR));
    let one = &world.loops[alone];
    drop(match way {
        Way::OneNow => one.shutdown_now(),
        Way::OneDrains => one.drain(HOUR),
        _ => one
            .shutdown_gracefully_with(Duration::from_micros(200), HOUR)
            .unwrap(),
    });
    first.unwrap_or_else(|| group.drain(HOUR))
}

#[test]
fn what_tasks_and_hooks_of_a_draining_group_submit_is_accepted_to_the_last() {
    within(|| {
        let groups = setting("LOOPGROUP_ENDS").unwrap_or(2000);
        let first = setting("LOOPGROUP_SEED").unwrap_or(1);
        let progress = progress("groups");
        for seed in first..first + groups {
            one_group(seed);
            progress.tick();
            if (seed - first + 1) % 10_000 == 0 {
                println!("{} of {groups} groups have ended", seed - first + 1);
            }
        }
    });
}
