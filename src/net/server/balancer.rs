//! The task that measures the loops of a server, and asks connections to move as `rebalance` decides.
//!
//! - The utilization that loops publish decays over seconds. The balancer needs that of the last period, and
//!   computes it from two readings.
//! - Connections are looked at only while loops are uneven: a balanced server pays for a look at its loops.
//!   The first look stores how busy each connection was so far, the second one compares: so loops have to be
//!   uneven in two periods in a row. Loops are first read when the server starts, so the end of its second
//!   period is the first moment at which a connection can move.
//! - It holds neither the groups nor the server: it ends with the signals that stop the acceptors.

use std::time::Instant;

use crate::group::core::GroupCore;
use crate::metrics::pulse;
use crate::net::server::acceptor::{StopSignals, WorkerChoice};
use crate::net::server::mobile::{Decision, Mobile};
use crate::net::server::rebalance::{ConnectionLoad, LoopLoad, Rebalance, decide, is_uneven};
use crate::net::server::state::ServerState;
use crate::sync::{Arc, Weak};
use crate::time::here;
use crate::time::sleep;
use crate::trace;

/// The balancer of a server.
pub(super) struct Balancer {
    pub(super) rule: Rebalance,
    pub(super) workers: Weak<GroupCore>,
    pub(super) state: Arc<ServerState>,
}

/// The last look.
struct Look {
    at: Instant,
    /// As the loops publish it.
    utilizations: Vec<f64>,
    /// Numbers the looks at connections, which are skipped while loops are even.
    number: u64,
}

impl Balancer {
    /// Looks once per period, until a stop signal.
    pub(super) async fn run(self) {
        let workers = WorkerChoice::NextOf(Weak::clone(&self.workers));
        let mut stop = StopSignals::new(&self.state, &workers);
        let mut last: Option<Look> = None;
        while let Some(group) = self.workers.upgrade() {
            last = Some(self.look(&group, last, here::now()));
            drop(group); // it is not held across the wait
            if stop.unless_stopped(sleep(self.rule.period)).await.is_none() {
                return;
            }
        }
    }

    fn look(&self, group: &GroupCore, last: Option<Look>, now: Instant) -> Look {
        let utilization = |index: usize| {
            let pulse = &group.loops[index].shared().pulse;
            pulse.utilization(pulse.tick(now))
        };
        let look = Look {
            at: now,
            utilizations: (0..group.loops.len()).map(utilization).collect(),
            number: last.as_ref().map_or(0, |last| last.number) + 1,
        };
        let Some(last) = last else {
            return look;
        };
        let period = now.saturating_duration_since(last.at);
        let readings = last.utilizations.iter().zip(&look.utilizations);
        let loops: Vec<_> = readings
            .zip(&group.loops)
            .map(|((before, after), one)| LoopLoad {
                utilization: pulse::share_between(*before, *after, period),
                accepts: !one.state().is_shutting_down() && !one.is_paused(),
            })
            .collect();
        if is_uneven(&loops) {
            self.balance(&loops, &look, last.at);
        }
        look
    }

    fn balance(&self, loops: &[LoopLoad], look: &Look, last: Instant) {
        let period = look.at.saturating_duration_since(last);
        let measured: Vec<(Arc<Mobile>, ConnectionLoad)> = self
            .state
            .mobile
            .all()
            .into_iter()
            .filter_map(|(on, one)| {
                let busy = one.busy_since_look(look.number)?;
                let load = ConnectionLoad {
                    on,
                    share: busy.as_secs_f64() / period.as_secs_f64().max(f64::EPSILON),
                    since_move: one.since_balanced(look.at),
                };
                Some((one, load))
            })
            .collect();
        let connections: Vec<_> = measured.iter().map(|(_, load)| *load).collect();
        for one in decide(&self.rule, loops, &connections) {
            let (mobile, load) = &measured[one.connection];
            let decision = Decision {
                at: look.at,
                from: (one.from, loops[one.from].utilization),
                to: (one.to, loops[one.to].utilization),
                share: load.share,
            };
            self.state.mobile.balance(mobile, decision);
            let utilizations = (decision.from.1, decision.to.1);
            trace::rebalanced(one.from, one.to, load.share, utilizations);
        }
    }
}

#[cfg(test)]
mod tests;
