//! When an elastic group uses more loops or fewer: a pure function of what was measured.
//!
//! - The load is the sum of the utilizations of all loops in the last patience period. With `n` active loops,
//!   the group takes one more if the mean, `load / n`, is above `up`; and one fewer if the mean *without that
//!   loop*, `load / (n - 1)`, would be below `down`.
//! - `down` is below `up`, so under a constant load no step is ever taken back: after a step up, one loop
//!   fewer would have a mean above `up`; after a step down, the mean is below `down`.
//! - One step per period: what the step has changed is measured before the next.

use std::io;
use std::time::Duration;

use crate::config::invalid_setting;

/// How many loops an elastic group uses; see [`Builder::elastic`](crate::Builder::elastic).
///
/// # Examples
///
/// ```
/// use loopgroup::{Elastic, EventLoopGroup};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder()
///     .elastic(Elastic {
///         min: 1,
///         max: 4,
///         patience: Duration::from_millis(500),
///         ..Elastic::default()
///     })
///     .build()?;
/// let active = || group.loops().iter().filter(|ev| !ev.is_paused()).count();
/// assert_eq!((group.len(), active()), (4, 1)); // the others are resumed under load
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Elastic {
    /// So many loops are always active; at least 1.
    pub min: usize,
    /// The number of loops of the group; at least `min`.
    pub max: usize,
    /// Above this mean utilization of the active loops, from 0.0 to 1.0, another loop becomes active.
    pub up: f64,
    /// If one loop fewer would have a mean utilization below this, a loop is paused. Less than `up`.
    pub down: f64,
    /// How long the load is measured before each step. Also how long a loop that is not needed has to be
    /// empty before it ends its thread.
    pub patience: Duration,
}

impl Default for Elastic {
    /// Between one loop and as many as there are processors; up above 0.7, down below 0.4, one second.
    fn default() -> Elastic {
        Elastic {
            min: 1,
            max: std::thread::available_parallelism().map_or(1, usize::from),
            up: 0.7,
            down: 0.4,
            patience: Duration::from_secs(1),
        }
    }
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Up,
    Stay,
    Down,
}

impl Elastic {
    /// Checks the settings; names the wrong one.
    pub(crate) fn check(&self) -> io::Result<()> {
        let Elastic {
            min,
            max,
            up,
            down,
            patience,
        } = self;
        let wrong = |text: &str| Err(invalid_setting("elastic", text));
        if *min == 0 {
            return wrong(
                "min must be at least 1: with no active loop nothing could be submitted, and no load \
                 would be measured that starts one",
            );
        }
        if min > max {
            return wrong(&format!("min ({min}) is above max ({max})"));
        }
        // Written so that NaN fails as well.
        if !(*down > 0.0 && down < up && *up < 1.0) {
            return wrong(&format!(
                "0 < down < up < 1 has to hold, not down = {down} and up = {up}"
            ));
        }
        if patience.is_zero() {
            return wrong("patience must be above zero: the load of no time cannot be measured");
        }
        Ok(())
    }

    /// Decides, with so many active loops under this load.
    pub(crate) fn decide(&self, active: usize, load: f64) -> Step {
        let mean_of = |loops: usize| load / loops as f64;
        if active < self.min || (active < self.max && mean_of(active) > self.up) {
            return Step::Up;
        }
        if active > self.min && mean_of(active - 1) < self.down {
            return Step::Down;
        }
        Step::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn rule(min: usize, max: usize) -> Elastic {
        Elastic {
            min,
            max,
            ..Elastic::default()
        }
    }

    #[test]
    fn wrong_settings_are_named() {
        let text = |rule: Elastic| rule.check().unwrap_err().to_string();
        assert!(text(rule(0, 2)).contains("min must be at least 1"));
        assert!(text(rule(3, 2)).contains("min (3) is above max (2)"));
        for (down, up) in [
            (0.5, 0.5),
            (0.0, 0.5),
            (0.5, 1.0),
            (f64::NAN, 0.5),
            (0.1, f64::NAN),
        ] {
            let rule = Elastic {
                up,
                down,
                ..rule(1, 2)
            };
            assert!(text(rule).contains("0 < down < up < 1"), "{down} {up}");
        }
        let patience = Duration::ZERO;
        assert!(
            text(Elastic {
                patience,
                ..rule(1, 2)
            })
            .contains("patience")
        );
        assert!(rule(1, 1).check().is_ok() && Elastic::default().check().is_ok());
    }

    #[test]
    fn steps_follow_the_mean_within_the_limits() {
        let rule = rule(1, 3);
        assert_eq!(rule.decide(1, 0.71), Step::Up);
        assert_eq!(rule.decide(1, 0.69), Step::Stay);
        assert_eq!(rule.decide(3, 3.0), Step::Stay);
        assert_eq!(rule.decide(2, 0.39), Step::Down);
        assert_eq!(rule.decide(2, 0.41), Step::Stay);
        assert_eq!(rule.decide(1, 0.0), Step::Stay);
        assert_eq!(rule.decide(0, 0.0), Step::Up); // a user has paused the last one
    }

    /// A demand of so many loops' work is spread over the active ones.
    fn load_of(demand: f64, active: usize) -> f64 {
        demand.min(active as f64)
    }

    fn step(active: usize, step: Step) -> usize {
        match step {
            Step::Up => active + 1,
            Step::Stay => active,
            Step::Down => active - 1,
        }
    }

    #[test]
    fn under_constant_load_no_step_is_taken_back() {
        for seed in 0..10_000 {
            let mut random = Random::new(seed);
            let max = 1 + random.below(16);
            let min = 1 + random.below(max);
            let (down, up) = (1 + random.below(90), 1 + random.below(8));
            let rule = Elastic {
                min,
                max,
                down: down as f64 / 100.0,
                up: (down + up) as f64 / 100.0,
                ..Elastic::default()
            };
            rule.check().unwrap();
            let demand = random.below(100 * max + 50) as f64 / 100.0;
            let mut active = min + random.below(max - min + 1);
            let mut last = Step::Stay;
            for period in 0.. {
                assert!(period <= max, "{seed}: it does not come to rest");
                let now = rule.decide(active, load_of(demand, active));
                if now == Step::Stay {
                    break;
                }
                let turned_around = last != Step::Stay && now != last;
                assert!(!turned_around, "{seed}: {last:?}, then {now:?}");
                active = step(active, now);
                assert!((min..=max).contains(&active), "{seed}");
                last = now;
            }
        }
    }

    #[test]
    fn noise_below_the_distance_of_the_thresholds_does_not_make_it_oscillate() {
        let mut most = 0;
        for seed in 0..10_000 {
            let mut random = Random::new(seed);
            let rule = rule(1, 8);
            let demand = random.below(700) as f64 / 100.0;
            let (mut active, mut steps) = (1, 0);
            for _ in 0..200 {
                // Up to a tenth more or less in each period.
                let noise = (random.below(201) as f64 - 100.0) / 1000.0;
                let now = rule.decide(active, load_of(demand * (1.0 + noise), active));
                steps += u32::from(now != Step::Stay);
                active = step(active, now);
            }
            most = most.max(steps);
        }
        // From one loop to the seven others, and not one step back.
        assert!(most <= 7, "{most}");
    }

    #[test]
    fn the_number_of_loops_follows_a_load_that_rises_and_falls() {
        let rule = rule(1, 8);
        let mut active = 1;
        for period in 0..400 {
            // A triangle between 0.2 and 5.2 loops' work; it changes by less than a loop in two periods.
            let phase = f64::from(period % 200);
            let demand = 0.2 + 5.0 * (1.0 - (phase - 100.0).abs() / 100.0);
            active = step(active, rule.decide(active, load_of(demand, active)));
            if period > 2 {
                let mean = demand / active as f64;
                assert!(
                    mean < rule.up + 0.1,
                    "{period}: {active} loops for {demand}"
                );
                let fewer = demand / (active - 1).max(1) as f64;
                assert!(
                    active == 1 || fewer > rule.down - 0.1,
                    "{period}: {active} for {demand}"
                );
            }
        }
    }
}
