//! Metrics of running loops: polls, parks, and wakes by their origin.
//!
//! A snapshot may be taken at any time, on any thread, and costs the loops nothing: they count anyway,
//! in plain counters of their own. While the loops work, the values of a snapshot are not taken at
//! exactly the same instant; once the loops are idle, they add up.

pub(crate) mod gauges;

use std::fmt;
use std::time::Duration;

use crate::event_loop::handle::EventLoop;
use crate::event_loop::shared::Shared;
use crate::group::core::GroupCore;
use crate::group::handle::EventLoopGroup;
use crate::report::Figures;

/// The metrics of one loop; see [`EventLoop::metrics`](crate::EventLoop::metrics).
///
/// While the loop works, the values are not taken at exactly the same instant; once it is idle, they
/// add up.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::builder().loops(1).measure_time(true).build()?;
/// group.block_on(group.spawn(async { loopgroup::yield_now().await })).unwrap();
/// group.shutdown_now().wait(); // now idle: the values add up
///
/// let one = group.loops()[0].metrics();
/// assert_eq!((one.index(), one.polls(), one.local_wakes(), one.timers_fired()), (0, 2, 1, 0));
/// assert_eq!((one.accepted(), one.completed(), one.panicked(), one.cancelled()), (1, 1, 0, 0));
/// assert_eq!((one.rejected(), one.pending(), one.live(), one.channels()), (0, 0, 0, 0));
/// assert_eq!((one.io_events(), one.stale_events(), one.rebuilds()), (0, 0, 0));
/// assert_eq!((one.remote_wakes(), one.outside_wakes()), (0, 0)); // by other loops, by other threads
/// assert!(one.longest_poll() <= one.busy());
/// println!("slept {} times, woken by {} system calls", one.parks(), one.wakeup_calls());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct LoopMetrics {
    index: usize,
    polls: u64,
    local_wakes: u64,
    remote_wakes: u64,
    outside_wakes: u64,
    wakeup_calls: u64,
    parks: u64,
    io_events: u64,
    stale_events: u64,
    rebuilds: u64,
    timers_fired: u64,
    figures: Figures,
    rejected: u64,
    pending: usize,
    live: usize,
    channels: usize,
    times: Option<Times>,
}

/// The values of a group that measures time.
#[derive(Clone, Copy, Debug)]
struct Times {
    busy: Duration,
    longest_poll: Duration,
}

impl LoopMetrics {
    pub(crate) fn of(shared: &Shared) -> LoopMetrics {
        let gauges = &shared.gauges;
        let table = shared.port.table.as_ref();
        LoopMetrics {
            index: shared.index,
            polls: gauges.polls.get(),
            local_wakes: gauges.woken_here.get(),
            remote_wakes: shared.inbox.woken_by_siblings.get(),
            outside_wakes: shared.inbox.woken_from_outside.get(),
            wakeup_calls: shared.inbox.rings.get(),
            parks: gauges.parks.get(),
            io_events: table.map_or(0, |table| table.events.get()),
            stale_events: table.map_or(0, |table| table.stale.get()),
            rebuilds: table.map_or(0, |table| table.rebuilds.get()),
            timers_fired: gauges.timers_fired.get(),
            figures: shared.counters.figures(shared.inbox.accepted()),
            rejected: shared.counters.rejected(),
            pending: shared.pending(),
            live: shared.counters.live(),
            channels: table.map_or(0, |table| table.len()),
            times: shared.config.measure_time.then(|| Times {
                busy: Duration::from_nanos(gauges.busy.get()),
                longest_poll: Duration::from_nanos(gauges.longest_poll.get()),
            }),
        }
    }

    /// Returns the loop's index in its group.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns how often a task was polled.
    pub fn polls(&self) -> u64 {
        self.polls
    }

    /// Returns how many wakes came from the loop itself: its tasks, timers and sockets.
    pub fn local_wakes(&self) -> u64 {
        self.local_wakes
    }

    /// Returns how many wakes came from other loops of the group.
    pub fn remote_wakes(&self) -> u64 {
        self.remote_wakes
    }

    /// Returns how many wakes came from other threads, loops of other groups included.
    pub fn outside_wakes(&self) -> u64 {
        self.outside_wakes
    }

    /// Returns how often another thread had to wake the sleeping loop, with one system call each. On a
    /// busy loop this is small compared to the number of wakes and submissions.
    pub fn wakeup_calls(&self) -> u64 {
        self.wakeup_calls
    }

    /// Returns how often the loop went to sleep.
    pub fn parks(&self) -> u64 {
        self.parks
    }

    /// Returns how many events the selector reported for channels.
    pub fn io_events(&self) -> u64 {
        self.io_events
    }

    /// Returns how many of these events were for channels that no longer existed.
    pub fn stale_events(&self) -> u64 {
        self.stale_events
    }

    /// Returns how often the selector was found broken and replaced.
    pub fn rebuilds(&self) -> u64 {
        self.rebuilds
    }

    /// Returns how many timers fired.
    pub fn timers_fired(&self) -> u64 {
        self.timers_fired
    }

    /// Returns how many tasks the loop accepted.
    pub fn accepted(&self) -> u64 {
        self.figures.accepted
    }

    /// Returns how many tasks ran to completion.
    pub fn completed(&self) -> u64 {
        self.figures.completed
    }

    /// Returns how many tasks panicked.
    pub fn panicked(&self) -> u64 {
        self.figures.panicked
    }

    /// Returns how many tasks were cancelled.
    pub fn cancelled(&self) -> u64 {
        self.figures.cancelled
    }

    /// Returns how many submissions were refused.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Returns how many accepted tasks wait for their first poll.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Returns how many tasks have been polled and are not finished.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Returns how many channels are registered.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the time spent in polls; `None` unless the group
    /// [measures time](crate::Builder::measure_time).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::{thread, time::Duration};
    ///
    /// let group = EventLoopGroup::builder().loops(1).measure_time(true).build()?;
    /// group.block_on(group.spawn(async { thread::sleep(Duration::from_millis(2)) })).unwrap();
    /// group.shutdown_now().wait();
    /// let one = group.loops()[0].metrics();
    /// assert!(one.busy() >= Some(Duration::from_millis(2)));
    /// assert!(one.longest_poll() >= Some(Duration::from_millis(2)));
    ///
    /// let unmeasured = EventLoopGroup::new(1)?;
    /// assert_eq!(unmeasured.loops()[0].metrics().busy(), None);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn busy(&self) -> Option<Duration> {
        self.times.map(|times| times.busy)
    }

    /// Returns the duration of the longest poll, which reveals tasks that block the loop; `None` unless
    /// the group [measures time](crate::Builder::measure_time).
    pub fn longest_poll(&self) -> Option<Duration> {
        self.times.map(|times| times.longest_poll)
    }
}

impl EventLoop {
    /// Returns what the loop has done so far. Any thread, no hop.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// group.block_on(group.spawn(async {})).unwrap();
    /// group.shutdown_gracefully_with(Default::default(), Default::default())?.wait();
    /// let metrics = group.loops()[0].metrics();
    /// assert_eq!((metrics.polls(), metrics.completed()), (1, 1));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn metrics(&self) -> LoopMetrics {
        LoopMetrics::of(self.shared())
    }
}

impl fmt::Display for LoopMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loop {}: {} polls, {} parks, {} I/O events, {} timers; woken {} times by itself, \
             {} by other loops, {} from outside, {} by a system call; {} accepted, {} completed, \
             {} panicked, {} cancelled, {} rejected; {} pending, {} live, {} channels",
            self.index,
            self.polls,
            self.parks,
            self.io_events,
            self.timers_fired,
            self.local_wakes,
            self.remote_wakes,
            self.outside_wakes,
            self.wakeup_calls,
            self.accepted(),
            self.completed(),
            self.panicked(),
            self.cancelled(),
            self.rejected,
            self.pending,
            self.live,
            self.channels
        )?;
        match self.times {
            Some(times) => write!(
                f,
                "; busy {:?}, longest poll {:?}",
                times.busy, times.longest_poll
            ),
            None => Ok(()),
        }
    }
}

/// The metrics of the loops of a group, and the wakes between them; see
/// [`EventLoopGroup::metrics`](crate::EventLoopGroup::metrics).
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(2)?;
/// let (tx, rx) = futures::channel::oneshot::channel();
/// let receiver = group.spawn_on(0, rx);
/// let sender = group.spawn_on(1, async move { tx.send(7) });
/// group.block_on(sender).unwrap().unwrap();
/// assert_eq!(group.block_on(receiver).unwrap(), Ok(7));
///
/// let metrics = group.metrics();
/// println!("{metrics}");
/// assert!(metrics.wakes(Some(1), 0) <= 1); // loop 1 woke the receiver, if it was already waiting
/// assert!(metrics.loops()[0].polls() >= 1);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct GroupMetrics {
    loops: Vec<LoopMetrics>,
    /// `sent[from][to]`: the wakes that loop `from` sent to loop `to`.
    sent: Vec<Vec<u64>>,
}

impl GroupMetrics {
    pub(crate) fn of(group: &GroupCore) -> GroupMetrics {
        let shared = || group.loops.iter().map(|one| &**one.shared());
        GroupMetrics {
            loops: shared().map(LoopMetrics::of).collect(),
            sent: shared()
                .map(|one| {
                    (0..group.loops.len())
                        .map(|to| one.gauges.sent_to(to))
                        .collect()
                })
                .collect(),
        }
    }

    /// Returns the metrics of each loop, in order.
    pub fn loops(&self) -> &[LoopMetrics] {
        &self.loops
    }

    /// Returns how often a task of loop `to` was woken on loop `from`, or outside the group for `None`.
    ///
    /// Returns 0 for loops that do not exist.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// let (tx, rx) = futures::channel::oneshot::channel::<()>();
    /// let waits = group.spawn_on(0, rx);
    /// while group.loops()[0].live_tasks() == 0 {
    ///     std::thread::yield_now(); // until it waits
    /// }
    /// tx.send(()).unwrap();
    /// group.block_on(waits).unwrap().unwrap();
    /// assert!(group.metrics().wakes(None, 0) <= 1); // by this thread, if the task was already waiting
    /// assert_eq!(group.metrics().wakes(Some(1), 0), 0); // not by loop 1
    /// # std::io::Result::Ok(())
    /// ```
    pub fn wakes(&self, from: Option<usize>, to: usize) -> u64 {
        let Some(home) = self.loops.get(to) else {
            return 0;
        };
        match from {
            None => home.outside_wakes,
            Some(from) if from == to => home.local_wakes,
            Some(from) => self.sent.get(from).map_or(0, |row| row[to]),
        }
    }
}

impl EventLoopGroup {
    /// Returns what the loops have done so far, and how often each loop woke each other one. Any
    /// thread, no hop.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// group.block_on(group.spawn(async {})).unwrap();
    /// println!("{}", group.metrics()); // a line for each loop, and the wakes between them
    /// # std::io::Result::Ok(())
    /// ```
    pub fn metrics(&self) -> GroupMetrics {
        GroupMetrics::of(self.core())
    }
}

impl fmt::Display for GroupMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in &self.loops {
            writeln!(f, "{one}")?;
        }
        write!(f, "wakes to ")?;
        for to in 0..self.loops.len() {
            write!(f, "{:>12}", format!("loop {to}"))?;
        }
        let senders = (0..self.loops.len()).map(Some).chain([None]);
        for from in senders {
            let name = from.map_or("outside".into(), |from| format!("loop {from}"));
            write!(f, "\n{name:>8} ")?;
            for to in 0..self.loops.len() {
                write!(f, "{:>12}", self.wakes(from, to))?;
            }
        }
        Ok(())
    }
}
