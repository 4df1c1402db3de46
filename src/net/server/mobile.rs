//! Connections that can move to another loop: a list for each loop, and what is asked of them.
//!
//! - Any thread may ask a connection to move. Its task takes the request between two turns: it looks after
//!   it has stored the waker that [`Mobile::ask`] wakes, so of a request and a task that begins to wait, one
//!   sees the other. The last request counts.
//! - A connection is in the list of the loop that serves it; one that is under way is in the list of the loop
//!   that it has left. It is in one list at most, and leaves it with its last reference.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::group::scaler::Mover;
use crate::io::control::Control;
use crate::metrics::gauges::Gauge;
use crate::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering};

/// The connections of a server that can move, by the index of their loop.
#[derive(Debug)]
pub(super) struct MobileConnections {
    lists: Box<[Mutex<Slab<Arc<Mobile>>>]>,
    /// Requests to move: all of them, and those by the balancer.
    asked: AtomicU64,
    balanced: AtomicU64,
    /// The last requests by the balancer, the oldest first.
    last: Mutex<VecDeque<Decision>>,
}

/// How many decisions are kept.
const KEPT: usize = 8;

/// A request by the balancer, with the reasons.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "inspect"), allow(dead_code))]
pub(crate) struct Decision {
    pub(crate) at: Instant,
    /// The loops, and their utilization in the last period.
    pub(crate) from: (usize, f64),
    pub(crate) to: (usize, f64),
    /// The share of the time that the first one has worked for the connection.
    pub(crate) share: f64,
}

impl MobileConnections {
    pub(super) fn new(loops: usize) -> MobileConnections {
        MobileConnections {
            lists: (0..loops).map(|_| Mutex::default()).collect(),
            asked: AtomicU64::new(0),
            balanced: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// Asks connections of one loop to move to another one, `count` at most; returns how many were asked.
    pub(super) fn ask(&self, from: usize, to: usize, count: usize) -> usize {
        if from == to || to >= self.lists.len() {
            return 0;
        }
        let asked: Vec<_> = match self.lists.get(from) {
            None => return 0,
            Some(list) => {
                let list = list.lock();
                let all = list.iter().map(|(_, one)| one);
                let free = all.filter(|one| !one.is_asked());
                free.take(count).map(Arc::clone).collect()
            }
        };
        // Wakers are woken with no lock held.
        asked.iter().for_each(|one| self.ask_one(one, to));
        asked.len()
    }

    /// Asks one connection to move.
    fn ask_one(&self, one: &Mobile, to: usize) {
        self.asked.fetch_add(1, Ordering::Release);
        one.ask(to);
    }

    /// Asks one connection to move, to balance the load.
    pub(super) fn balance(&self, one: &Mobile, decision: Decision) {
        *one.seen.asked.lock() = Some(decision.at);
        self.balanced.fetch_add(1, Ordering::Release);
        let mut last = self.last.lock();
        if last.len() == KEPT {
            last.pop_front();
        }
        last.push_back(decision);
        drop(last);
        self.ask_one(one, decision.to.0);
    }

    /// How often the balancer has asked a connection to move.
    pub(super) fn balanced(&self) -> u64 {
        self.balanced.load(Ordering::Acquire)
    }

    /// The last decisions of the balancer, the newest first.
    #[cfg(feature = "inspect")]
    pub(super) fn decisions(&self) -> Vec<Decision> {
        self.last.lock().iter().rev().copied().collect()
    }

    /// Asks all connections of one loop to move to others, in turn.
    pub(super) fn ask_all(&self, from: usize, to: &[usize]) {
        let Some(list) = self.lists.get(from) else {
            return;
        };
        let list = list.lock();
        let all = list.iter().map(|(_, one)| one);
        let asked: Vec<_> = all.filter(|one| !one.is_asked()).map(Arc::clone).collect();
        drop(list);
        // Wakers are woken with no lock held.
        for (one, to) in asked.iter().zip(to.iter().cycle()) {
            self.ask_one(one, *to);
        }
    }

    /// How often a connection was asked to move.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// All connections, with the index of their loop.
    pub(super) fn all(&self) -> Vec<(usize, Arc<Mobile>)> {
        let mut all = Vec::new();
        for (index, list) in self.lists.iter().enumerate() {
            let list = list.lock();
            all.extend(list.iter().map(|(_, one)| (index, Arc::clone(one))));
        }
        all
    }
}

impl Mover for MobileConnections {
    fn move_away(&self, from: usize, to: &[usize]) {
        self.ask_all(from, to);
    }

    fn has_any(&self, from: usize) -> bool {
        self.lists
            .get(from)
            .is_some_and(|list| !list.lock().is_empty())
    }
}

/// What other threads see of a connection that can move.
#[derive(Debug)]
pub(super) struct Mobile {
    control: Control,
    /// One more than the index of the loop that it is asked to move to; zero if it is not asked.
    target: AtomicUsize,
    /// How long its turns have worked, in nanoseconds; written by its task, if the server rebalances.
    busy: Gauge,
    /// What the balancer has seen; it alone writes it.
    seen: Seen,
}

/// What the balancer has seen of a connection.
#[derive(Debug, Default)]
struct Seen {
    busy: Gauge,
    /// The number of that look.
    look: Gauge,
    /// When it last asked the connection to move.
    asked: Mutex<Option<Instant>>,
}

impl Mobile {
    fn new(control: Control) -> Arc<Mobile> {
        Arc::new(Mobile {
            control,
            target: AtomicUsize::new(0),
            busy: Gauge::default(),
            seen: Seen::default(),
        })
    }

    /// Asks the connection to move to the loop of this index.
    pub(super) fn ask(&self, to: usize) {
        // Before the wake: a task that is woken finds it.
        self.target.store(to + 1, Ordering::Release);
        self.control.wake_reader();
    }

    /// Adds the time of a poll; only its task calls this.
    pub(super) fn worked(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy.add(nanos);
    }

    /// How long its turns have worked since the last look; `None` if that was not the one before this.
    pub(super) fn busy_since_look(&self, look: u64) -> Option<Duration> {
        let (busy, last) = (self.busy.get(), self.seen.look.get());
        let before = self.seen.busy.get();
        self.seen.busy.set(busy);
        self.seen.look.set(look);
        let nanos = busy.saturating_sub(before);
        (last + 1 == look && last > 0).then(|| Duration::from_nanos(nanos))
    }

    /// How long ago the balancer asked it to move, if ever.
    pub(super) fn since_balanced(&self, now: Instant) -> Option<Duration> {
        let asked = *self.seen.asked.lock();
        asked.map(|asked| now.saturating_duration_since(asked))
    }

    /// Whether it is asked to move.
    pub(super) fn is_asked(&self) -> bool {
        self.target.load(Ordering::Acquire) != 0
    }

    /// Takes the request, if there is one: the index of the loop to move to.
    pub(super) fn take_request(&self) -> Option<usize> {
        if !self.is_asked() {
            return None;
        }
        self.target.swap(0, Ordering::AcqRel).checked_sub(1)
    }
}

/// The place of a connection in the list of its loop; dropped, it is free.
#[derive(Debug)]
pub(super) struct MobileSeat {
    lists: Arc<MobileConnections>,
    one: Arc<Mobile>,
    index: usize,
    key: usize,
}

impl MobileSeat {
    /// Enters a connection in the list of the loop of this index.
    pub(super) fn take(
        lists: &Arc<MobileConnections>,
        index: usize,
        control: Control,
    ) -> MobileSeat {
        let one = Mobile::new(control);
        MobileSeat {
            key: lists.lists[index].lock().insert(Arc::clone(&one)),
            lists: Arc::clone(lists),
            one,
            index,
        }
    }

    pub(super) fn connection(&self) -> &Mobile {
        &self.one
    }

    /// The connection, for a holder that may live longer than its seat.
    #[cfg(feature = "hyper")]
    pub(super) fn shared(&self) -> Arc<Mobile> {
        Arc::clone(&self.one)
    }

    /// The index of the loop whose list it is in.
    #[cfg(feature = "hyper")]
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Enters the connection in the list of another loop.
    pub(super) fn change(&mut self, index: usize) {
        self.leave();
        self.key = self.lists.lists[index].lock().insert(Arc::clone(&self.one));
        self.index = index;
    }

    fn leave(&self) {
        let one = self.lists.lists[self.index].lock().remove(self.key);
        drop(one);
    }
}

impl Drop for MobileSeat {
    fn drop(&mut self) {
        self.leave();
    }
}
