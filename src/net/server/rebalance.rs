//! When connections move to balance the load, and which: a pure function of what was measured.
//!
//! - The rule is Hazelcast's, with other numbers: if the least busy loop is below 0.8 of a busier one, the
//!   connection of that loop moves whose load is the nearest to half of the difference, and it may have 0.6
//!   of the difference at most. (Half would not do: two heavy connections that are alike have half of their
//!   loop each, and every other loop has something to do, so half of the difference is less than that.)
//! - So each move makes the loads strictly more equal: under a constant load moves end, and nothing goes
//!   round in circles. A connection stays if the rest of its loop has less than two thirds of its load; so
//!   the only busy connection of a loop never moves. Against loads that change, a connection rests after a
//!   move, and there are so many moves per period.
//! - A loop at its limit shows less than is asked of it, and so do its connections: both in the same
//!   proportion, so a move that is right by what is measured is right by what is asked, too. What arrives
//!   from such a loop may be more than it seems, and so may what is left there: in one period a loop takes
//!   connections of one other loop only, and none if it gives some.

use std::io;
use std::time::Duration;

use crate::net::server::listener::invalid;

/// A loop is busier than another one if that is below this part of its utilization.
const UNEVEN: f64 = 0.8;
/// A loop that is less utilized than this is left alone.
const BUSY: f64 = 0.2;
/// A connection that has less of its loop than this does not help, whichever loop it is on.
const LIGHT: f64 = 0.01;
/// A connection that has more than this part of the difference between two loops does not move. Below 1, and
/// above one half by what two equal loads differ in a measurement.
const MOST: f64 = 0.6;

/// When a server moves connections from busy loops to less busy ones; see
/// [`Server::rebalance`](super::Server::rebalance).
///
/// # Examples
///
/// ```
/// use loopgroup::net::Rebalance;
/// use std::time::Duration;
///
/// let calm = Rebalance::by_utilization()
///     .period(Duration::from_secs(1)) // looks once per second
///     .max_moves(1) // and moves one connection then, at most
///     .rest(Duration::from_secs(60)); // which stays for a minute
/// # drop(calm);
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is given to Server::rebalance"]
pub struct Rebalance {
    pub(super) period: Duration,
    pub(super) max_moves: usize,
    pub(super) rest: Duration,
}

impl Rebalance {
    /// Moves connections when loops are unevenly utilized: every 100 ms 4 connections at most, each of which
    /// then rests for 2 s.
    ///
    /// A connection moves from a loop that is utilized by 20 % at least to the least utilized loop, if that
    /// is below 80 % of it, in two periods in a row. Of the connections of the busier loop that one moves
    /// which makes the two loops the most equal; none, if each would only make the other loop the busier one.
    pub fn by_utilization() -> Rebalance {
        Rebalance {
            period: Duration::from_millis(100),
            max_moves: 4,
            rest: Duration::from_secs(2),
        }
    }

    /// Sets how often the server looks. Not zero.
    pub fn period(mut self, period: Duration) -> Rebalance {
        self.period = period;
        self
    }

    /// Sets how many connections move per period, at most. Not zero.
    pub fn max_moves(mut self, moves: usize) -> Rebalance {
        self.max_moves = moves;
        self
    }

    /// Sets how long a connection stays after a move, at least.
    pub fn rest(mut self, rest: Duration) -> Rebalance {
        self.rest = rest;
        self
    }
}

impl Rebalance {
    pub(super) fn check(&self) -> io::Result<()> {
        if self.period.is_zero() {
            return Err(invalid(
                "rebalance with a period of zero would look all the time",
            ));
        }
        if self.max_moves == 0 {
            return Err(invalid(
                "rebalance with max_moves(0) would move nothing: omit the call",
            ));
        }
        Ok(())
    }
}

/// What was measured of a loop in the last period.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopLoad {
    pub(super) utilization: f64,
    /// Whether connections may move there.
    pub(super) accepts: bool,
}

/// What was measured of a connection in the last period.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLoad {
    /// The index of its loop.
    pub(super) on: usize,
    /// The share of the time that its loop has worked for it.
    pub(super) share: f64,
    /// `None` if it has never moved.
    pub(super) since_move: Option<Duration>,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// The position of the connection among those that were looked at.
    pub(super) connection: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Whether there may be something to move: the connections need not be looked at otherwise.
pub(super) fn is_uneven(loops: &[LoopLoad]) -> bool {
    let most = loops.iter().map(|one| one.utilization).fold(0.0, f64::max);
    least_busy(loops).is_some_and(|least| is_busier(most, loops[least].utilization))
}

/// Decides which connections move, and where.
pub(super) fn decide(
    rule: &Rebalance,
    loops: &[LoopLoad],
    connections: &[ConnectionLoad],
) -> Vec<Move> {
    let mut loops = loops.to_vec();
    let mut moves: Vec<Move> = Vec::new();
    while moves.len() < rule.max_moves {
        let Some(to) = least_busy(&loops) else {
            break;
        };
        let free = |number: usize, one: &ConnectionLoad| {
            let rests = one.since_move.is_some_and(|since| since < rule.rest);
            let may_follow = |done: &Move| {
                done.connection != number
                    && done.from != to
                    && (done.to != to || done.from == one.on)
            };
            !rests && moves.iter().all(may_follow)
        };
        let Some(connection) = next_to_move(&loops, connections, to, free) else {
            break;
        };
        let ConnectionLoad {
            on: from, share, ..
        } = connections[connection];
        loops[from].utilization -= share;
        loops[to].utilization += share;
        moves.push(Move {
            connection,
            from,
            to,
        });
    }
    moves
}

fn least_busy(loops: &[LoopLoad]) -> Option<usize> {
    let accepting = loops.iter().enumerate().filter(|(_, one)| one.accepts);
    let least =
        accepting.min_by(|(_, one), (_, other)| one.utilization.total_cmp(&other.utilization));
    least.map(|(index, _)| index)
}

fn is_busier(one: f64, least: f64) -> bool {
    one >= BUSY && least < UNEVEN * one
}

/// The connection whose move to loop `to` makes two loops the most equal, of the busiest loop that has one.
fn next_to_move(
    loops: &[LoopLoad],
    connections: &[ConnectionLoad],
    to: usize,
    free: impl Fn(usize, &ConnectionLoad) -> bool,
) -> Option<usize> {
    let least = loops[to].utilization;
    let candidates = connections.iter().enumerate().filter(|(number, one)| {
        let from = loops[one.on].utilization;
        one.on != to
            && is_busier(from, least)
            && one.share >= LIGHT
            && one.share <= MOST * (from - least)
            && free(*number, one)
    });
    let order = |one: &ConnectionLoad| {
        let from = loops[one.on].utilization;
        (from, -(one.share - (from - least) / 2.0).abs())
    };
    let best = candidates.max_by(|(_, one), (_, other)| {
        let (one, other) = (order(one), order(other));
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    best.map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn loads(utilizations: &[f64]) -> Vec<LoopLoad> {
        let load = |utilization: &f64| LoopLoad {
            utilization: *utilization,
            accepts: true,
        };
        utilizations.iter().map(load).collect()
    }

    fn connection(on: usize, share: f64) -> ConnectionLoad {
        ConnectionLoad {
            on,
            share,
            since_move: None,
        }
    }

    fn unlimited() -> Rebalance {
        Rebalance::by_utilization().max_moves(usize::MAX)
    }

    #[test]
    fn the_connection_moves_that_makes_two_loops_the_most_equal() {
        let shares = [0.05, 0.53, 0.4, 0.1];
        let connections = shares.map(|share| connection(0, share));
        let rule = Rebalance::by_utilization().max_moves(1);
        let moves = decide(&rule, &loads(&[0.95, 0.3, 0.1]), &connections);
        let expected = Move {
            connection: 2, // half of the difference is 0.425
            from: 0,
            to: 2,
        };
        assert_eq!(moves, [expected]);
    }

    #[test]
    fn eight_hot_connections_on_one_of_two_loops_are_halved_in_two_periods() {
        let hot = [connection(0, 0.125); 8];
        let moves = decide(&Rebalance::by_utilization(), &loads(&[1.0, 0.0]), &hot);
        assert_eq!(moves.len(), 4);
        let after = [connection(0, 0.25); 4];
        assert!(decide(&unlimited(), &loads(&[1.0, 1.0]), &after).is_empty());
    }

    #[test]
    fn two_heavy_connections_that_met_on_one_of_three_loops_are_parted() {
        let heavy = [connection(1, 0.5), connection(1, 0.48)];
        let moves = decide(&unlimited(), &loads(&[0.0, 1.0, 0.01]), &heavy);
        assert_eq!(moves.len(), 1);
        assert_eq!((moves[0].connection, moves[0].to), (0, 0));
        let alone = [connection(1, 1.0)];
        assert!(decide(&unlimited(), &loads(&[0.0, 1.0, 0.0]), &alone).is_empty());
        // They are alike, and the other loops have something to do, too.
        for (heavy, others) in [(0.5, 0.01), (0.3, 0.09), (0.2, 0.0)] {
            let alike = [connection(1, heavy), connection(1, heavy)];
            let loops = loads(&[others, 2.0 * heavy, others]);
            assert_eq!(decide(&unlimited(), &loops, &alike).len(), 1, "{heavy}");
        }
        // But not if that only makes the other loop the busy one.
        let mostly_one = [connection(1, 0.7), connection(1, 0.009)];
        assert!(decide(&unlimited(), &loads(&[0.0, 1.0, 0.0]), &mostly_one).is_empty());
    }

    #[test]
    fn even_idle_resting_and_closed_loops_are_left_alone() {
        let one = [connection(0, 0.05); 10];
        assert!(decide(&unlimited(), &loads(&[0.5, 0.41]), &one).is_empty());
        assert!(decide(&unlimited(), &loads(&[0.19, 0.0]), &one).is_empty());
        assert!(!is_uneven(&loads(&[0.5, 0.41])) && !is_uneven(&loads(&[0.19, 0.0])));
        let uneven = loads(&[0.5, 0.1]);
        assert!(is_uneven(&uneven));
        assert!(!decide(&unlimited(), &uneven, &one).is_empty());
        let idle = [connection(0, 0.0); 10];
        assert!(decide(&unlimited(), &uneven, &idle).is_empty());
        let mut resting = one;
        for one in &mut resting {
            one.since_move = Some(Duration::from_millis(1999));
        }
        assert!(decide(&unlimited(), &uneven, &resting).is_empty());
        resting[3].since_move = Some(Duration::from_secs(2));
        assert_eq!(decide(&unlimited(), &uneven, &resting)[0].connection, 3);
        let mut closed = uneven;
        closed[1].accepts = false;
        assert!(decide(&unlimited(), &closed, &one).is_empty() && !is_uneven(&closed));
    }

    #[test]
    fn a_loop_with_one_giant_does_not_keep_the_others_uneven() {
        let connections = [connection(0, 0.99), connection(1, 0.3), connection(1, 0.3)];
        let moves = decide(&unlimited(), &loads(&[1.0, 0.65, 0.0]), &connections);
        assert_eq!(moves.len(), 1);
        assert_eq!((moves[0].from, moves[0].to), (1, 2));
    }

    /// Loops with connections whose demand is constant, and with other work.
    struct World {
        other_work: Vec<f64>,
        /// Loop and demand of each connection.
        connections: Vec<(usize, f64)>,
        since_move: Vec<Option<Duration>>,
    }

    impl World {
        fn new(seed: u64) -> World {
            let mut random = Random::new(seed);
            let loops = 2 + random.below(7);
            let connections = 1 + random.below(40);
            let scale = 1 + random.below(200);
            World {
                other_work: (0..loops)
                    .map(|_| random.below(40) as f64 / 100.0)
                    .collect(),
                connections: (0..connections)
                    .map(|_| {
                        (
                            random.below(loops),
                            (1 + random.below(scale)) as f64 / 400.0,
                        )
                    })
                    .collect(),
                since_move: vec![None; connections],
            }
        }

        fn demand(&self, index: usize) -> f64 {
            let here = self.connections.iter().filter(|one| one.0 == index);
            self.other_work[index] + here.map(|one| one.1).sum::<f64>()
        }

        /// What is measured: of a loop that is asked for too much, each gets its share.
        fn measure(&self) -> (Vec<LoopLoad>, Vec<ConnectionLoad>) {
            let demands: Vec<_> = (0..self.other_work.len()).map(|i| self.demand(i)).collect();
            let utilizations: Vec<_> = demands.iter().map(|demand| demand.min(1.0)).collect();
            let connections = self.connections.iter().zip(&self.since_move);
            let connections = connections.map(|(&(on, demand), &since_move)| ConnectionLoad {
                on,
                share: demand / demands[on].max(1.0),
                since_move,
            });
            (loads(&utilizations), connections.collect())
        }

        fn squares(&self) -> f64 {
            let demands = (0..self.other_work.len()).map(|index| self.demand(index));
            demands.map(|demand| demand * demand).sum()
        }
    }

    #[test]
    fn under_constant_load_each_move_makes_loads_more_equal_and_moves_come_to_an_end() {
        let seeds = if cfg!(miri) { 20 } else { 10_000 };
        let (mut all, mut returns) = (0_u32, 0_u32);
        for seed in 0..seeds {
            let mut world = World::new(seed);
            let mut rule = Rebalance::by_utilization();
            rule.max_moves = 1 + seed as usize % 6;
            let (mut quiet, mut visited) = (0, vec![Vec::new(); world.connections.len()]);
            for period in 0.. {
                assert!(period < 2_000, "{seed}: it never comes to rest");
                let (loops, connections) = world.measure();
                let moves = decide(&rule, &loops, &connections);
                assert!(moves.len() <= rule.max_moves);
                assert!(moves.is_empty() || is_uneven(&loops), "{seed}");
                for since in world.since_move.iter_mut().flatten() {
                    *since += rule.period;
                }
                for one in &moves {
                    let squares = world.squares();
                    let (from, demand) = world.connections[one.connection];
                    assert_eq!(from, one.from, "{seed}");
                    all += 1;
                    returns += u32::from(visited[one.connection].contains(&one.to));
                    visited[one.connection].push(from);
                    let since = world.since_move[one.connection].replace(Duration::ZERO);
                    assert!(since.is_none_or(|since| since >= rule.rest), "{seed}");
                    world.connections[one.connection].0 = one.to;
                    let (giver, taker) = (world.demand(from), world.demand(one.to));
                    // The other loop is not the busier one by more than a fifth of the difference before.
                    let before = giver + demand - (taker - demand);
                    assert!(
                        taker - giver <= before / 5.0 + 1e-9,
                        "{seed}: {giver} and {taker} by {demand}"
                    );
                    assert!(world.squares() < squares, "{seed}");
                }
                quiet = if moves.is_empty() { quiet + 1 } else { 0 };
                // Longer than a rest.
                if quiet > 30 {
                    break;
                }
            }
            let most = visited.iter().map(Vec::len).max();
            assert!(most <= Some(3), "{seed}: {visited:?}");
        }
        // After others have moved, the first loop may have become the better one again.
        assert!(returns * 1_000 < all, "{returns} of {all} moves");
    }
}
