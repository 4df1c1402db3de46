//! The balancer of a server whose loops have no threads: the test writes when each of them works and what
//! each connection costs, on a clock of its own. Everything else is what production runs: pulses, readings,
//! the rule, and requests to move, which a connection carries out after its turn.

use std::time::Instant;

use super::{Balancer, Look};
use crate::clock::{Clock, VirtualClock};
use crate::io::control::Control;
use crate::net::server::mobile::MobileSeat;
use crate::net::server::rebalance::Rebalance;
use crate::net::server::state::ServerState;
use crate::random::Random;
use crate::sync::Arc;
use crate::{Builder, EventLoopGroup};

/// The parts that a period is simulated in. A turn is shorter than such a part.
const SLICES: u32 = 8;

struct Connection {
    seat: MobileSeat,
    on: usize,
    /// The share of a loop that it asks for.
    demand: f64,
}

/// A group, the balancer of its server, the connections, and the time.
struct World {
    group: EventLoopGroup,
    balancer: Balancer,
    connections: Vec<Connection>,
    last: Option<Look>,
    now: Instant,
    random: Random,
    moves: u32,
    slices: u32,
}

impl World {
    fn new(loops: usize, seed: u64) -> World {
        let clock = VirtualClock::new();
        let now = clock.now();
        let builder = Builder::new().loops(loops).without_io();
        let builder = builder.clock(Clock::Virtual(Arc::new(clock)));
        let group = builder.build().unwrap();
        let balancer = Balancer {
            rule: Rebalance::by_utilization(),
            workers: Arc::downgrade(group.core()),
            state: Arc::new(ServerState::for_tests(loops)),
        };
        let mut world = World {
            group,
            balancer,
            connections: Vec::new(),
            last: None,
            now,
            random: Random::new(seed),
            moves: 0,
            slices: 0,
        };
        world.look(); // as when a server starts
        world
    }

    fn connect(&mut self, demand: f64) {
        let on = self.random.below(self.group.len());
        let mobile = &self.balancer.state.mobile;
        self.connections.push(Connection {
            seat: MobileSeat::take(mobile, on, Control::detached()),
            on,
            demand,
        });
    }

    fn look(&mut self) {
        let last = self.last.take();
        self.last = Some(self.balancer.look(self.group.core(), last, self.now));
    }

    /// A number between 0 and 1.
    fn part(&mut self) -> f64 {
        self.random.below(1_001) as f64 / 1_000.0
    }

    /// Lets a part of a period pass; what each connection asks for differs by a fifth from one to the next.
    fn pass_slice(&mut self) {
        let slice = self.balancer.rule.period / SLICES;
        let demands: Vec<_> = (0..self.connections.len())
            .map(|number| self.connections[number].demand * (0.8 + 0.4 * self.part()))
            .collect();
        for index in 0..self.group.len() {
            let here = self.connections.iter().zip(&demands);
            let here = here.filter(|(one, _)| one.on == index);
            // A loop has something else to do, too.
            let asked = here.map(|(_, demand)| demand).sum::<f64>() + 0.01 * self.part();
            let awake = asked.min(1.0);
            let begin = (1.0 - awake) * self.part();
            let pulse = &self.group.loops()[index].shared().pulse;
            pulse.wake(pulse.tick(self.now + slice.mul_f64(begin)));
            pulse.sleep(pulse.tick(self.now + slice.mul_f64(begin + awake)));
            for (one, demand) in self.connections.iter().zip(&demands) {
                if one.on == index {
                    let share = demand / asked.max(1.0);
                    one.seat.connection().worked(slice.mul_f64(share));
                }
            }
        }
        self.now += slice;
        for one in &mut self.connections {
            if let Some(to) = one.seat.connection().take_request() {
                one.seat.change(to);
                one.on = to;
                self.moves += 1;
            }
        }
        self.slices += 1;
        if self.slices % SLICES == 0 {
            self.look();
        }
    }
}

/// "The first period" of a pair that has met is the first one whose end can part it: the second whole period
/// of their load, since loops have to be uneven in two in a row.
#[test]
fn two_heavy_connections_on_three_loops_are_apart_after_the_first_period_and_stay_apart() {
    let seeds = if cfg!(miri) { 5 } else { 3_200 };
    let (mut met, mut moves) = (0, 0);
    for seed in 0..seeds {
        let mut world = World::new(3, seed);
        for _ in 0..world.random.below(12) {
            // Idle, or light.
            let demand = world.part().powi(3) * 0.02;
            world.connect(demand);
        }
        // They arrive with the server, or at any time while it runs.
        for _ in 0..world.random.below(2) * world.random.below(50) {
            world.pass_slice();
        }
        for _ in 0..2 {
            let demand = 0.3 + 0.7 * world.part();
            world.connect(demand);
        }
        let heavy = world.connections.len() - 2;
        let apart = |world: &World| world.connections[heavy].on != world.connections[heavy + 1].on;
        met += u32::from(!apart(&world));
        // To the end of the period that has begun, two whole ones, and the turns that are under way then.
        let begun = world.slices % SLICES;
        (0..(SLICES - begun) % SLICES + 2 * SLICES + 1).for_each(|_| world.pass_slice());
        let first = world.moves;
        for _ in 0..60 * SLICES {
            let [one, other] = [heavy, heavy + 1].map(|one| &world.connections[one]);
            let (loops, demands) = ((one.on, other.on), (one.demand, other.demand));
            assert!(loops.0 != loops.1, "{seed}: on {loops:?} with {demands:?}");
            world.pass_slice();
        }
        // A few light ones, whose measured share is now below a hundredth and now above it, follow later.
        let later = world.moves - first;
        assert!(later <= 8, "{seed}: {later} moves in sixty periods");
        moves += world.moves;
    }
    assert!(cfg!(miri) || met > 1_000, "{met} pairs have met");
    eprintln!("{met} of {seeds} pairs have met, none is left; {moves} moves");
}
