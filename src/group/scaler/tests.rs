//! The scaler of a group whose loops have no threads: the test writes when each of them works, on a clock of
//! its own. Everything else is what production runs: pulses, readings, the rule, pauses, choices.

use std::time::{Duration, Instant};

use super::Scaler;
use crate::clock::{Clock, VirtualClock};
use crate::elastic::Elastic;
use crate::random::Random;
use crate::sync::Arc;
use crate::{Builder, EventLoopGroup};

/// A group, its scaler, and the time.
struct World {
    group: EventLoopGroup,
    rule: Elastic,
    now: Instant,
}

impl World {
    fn new(rule: Elastic) -> World {
        let clock = VirtualClock::new();
        let now = clock.now();
        let clock = Clock::Virtual(Arc::new(clock));
        let builder = Builder::new().elastic(rule.clone()).without_io();
        let group = builder.clock(clock).build().unwrap();
        World { group, rule, now }
    }

    fn scaler(&self) -> &Scaler {
        self.group.core().scaler.as_ref().unwrap()
    }

    fn active(&self) -> usize {
        super::active(self.group.loops()).count()
    }

    /// Lets a patience period pass in which `demand` loops' work is divided among the active loops, and what
    /// the others still have takes `rest` of their time.
    fn pass(&mut self, demand: f64, rest: f64, random: &mut Random) {
        const SLICES: u32 = 8;
        let slice = self.rule.patience / SLICES;
        for _ in 0..SLICES {
            let active = (demand / self.active() as f64).min(1.0);
            for ev in self.group.loops() {
                let share = if ev.is_paused() { rest } else { active };
                // Work begins somewhere in the slice, and ends in it.
                let begin = (1.0 - share) * (random.below(1_000) as f64 / 1_000.0);
                let pulse = &ev.shared().pulse;
                pulse.wake(pulse.tick(self.now + slice.mul_f64(begin)));
                pulse.sleep(pulse.tick(self.now + slice.mul_f64(begin + share)));
            }
            self.now += slice;
            // Each loop looks after its turn.
            for _ in self.group.loops() {
                self.scaler().look_if_due(self.group.loops(), self.now);
            }
        }
    }
}

#[test]
fn under_a_constant_load_the_number_of_loops_becomes_right_and_no_step_is_taken_back() {
    for seed in 0..10_000 {
        let mut random = Random::new(seed);
        let max = 1 + random.below(6);
        let min = 1 + random.below(max);
        let down = 0.2 + random.below(30) as f64 / 100.0;
        let mut world = World::new(Elastic {
            min,
            max,
            down,
            up: down + 0.1 + random.below(20) as f64 / 100.0,
            patience: Duration::from_millis(100 + 100 * random.below(20) as u64),
        });
        let demand = random.below(100 * max) as f64 / 100.0;
        let mut active = vec![world.active()];
        for _ in 0..2 * max + 2 {
            world.pass(demand, 0.0, &mut random);
            active.push(world.active());
        }
        let steps: Vec<i64> = active
            .windows(2)
            .map(|two| two[1] as i64 - two[0] as i64)
            .filter(|step| *step != 0)
            .collect();
        let turned = steps.windows(2).any(|two| two[0] != two[1]);
        assert!(
            !turned && steps.iter().all(|step| step.abs() == 1),
            "{seed}: {active:?}"
        );
        // At rest, and right but for what is within the precision of the measurement.
        let (rule, active) = (&world.rule, world.active());
        let enough = active == max || demand / active as f64 <= rule.up + 0.03;
        let needed = active == min || demand / (active - 1) as f64 >= rule.down - 0.03;
        assert!(enough && needed, "{seed}: {active} loops for {demand}");
    }
}

/// An optimised build needs a second for them.
const SEEDS: u64 = if cfg!(debug_assertions) {
    1_000
} else {
    10_000
};

#[test]
fn the_active_loops_follow_a_load_that_rises_and_falls_within_two_periods() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let rule = Elastic {
            min: 1,
            max: 8,
            ..Elastic::default()
        };
        let mut world = World::new(rule.clone());
        // A loop's work more or less within four periods, up to five and down again.
        let period_of = |number: u32| f64::from(number % 48);
        let mut demands = Vec::new();
        for number in 0..96 {
            let demand = 0.2 + 0.2 * (24.0 - (period_of(number) - 24.0).abs());
            demands.push(demand);
            world.pass(demand, 0.0, &mut random);
            let Some(last) = demands.len().checked_sub(3).map(|first| &demands[first..]) else {
                continue;
            };
            let active = world.active();
            // There is a demand within the last two periods for which this is neither too few nor too many.
            let fits = |demand: &f64| {
                let enough = demand / active as f64 <= rule.up + 0.02;
                let needed = active == 1 || demand / (active - 1) as f64 >= rule.down - 0.02;
                enough && needed
            };
            assert!(
                last.iter().any(fits),
                "{seed}, {number}: {active} loops for {last:?}"
            );
        }
    }
}

#[test]
fn a_step_of_the_load_by_one_loop_is_followed_within_two_periods() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let mut world = World::new(Elastic {
            min: 1,
            max: 4,
            ..Elastic::default()
        });
        for (demand, active) in [(0.5, 1), (1.2, 2), (1.9, 3), (0.7, 2), (0.3, 1)] {
            for _ in 0..1 + random.below(3) {
                world.pass(demand, 0.0, &mut random);
            }
            world.pass(demand, 0.0, &mut random);
            assert_eq!(world.active(), active, "{seed}: for {demand}");
        }
    }
}

#[test]
fn work_that_is_left_on_loops_set_aside_counts_as_load() {
    let mut random = Random::new(1);
    let mut world = World::new(Elastic {
        min: 1,
        max: 3,
        ..Elastic::default()
    });
    for _ in 0..4 {
        world.pass(0.1, 0.5, &mut random);
    }
    // Two loops that are not chosen work half of the time: that is one loop's work, and another one helps.
    assert!(world.active() >= 2);
}
