//! Metrics of running loops: polls, parks, and wakes by their origin.
//!
//! A snapshot may be taken at any time, on any thread, and costs the loops nothing: they count anyway,
//! in plain counters of their own. While the loops work, the values of a snapshot are not taken at
//! exactly the same instant; once the loops are idle, they add up.

pub(crate) mod buckets;
pub(crate) mod gauges;
pub(crate) mod histogram;
pub(crate) mod prometheus;
pub(crate) mod pulse;
pub(crate) mod table;

use std::fmt;
use std::time::Duration;

use crate::event_loop::handle::EventLoop;
use crate::event_loop::shared::Shared;
use crate::group::core::GroupCore;
use crate::group::handle::EventLoopGroup;
use crate::metrics::histogram::Histogram;
use crate::metrics::table::{TERMINAL, TextTable, count, counted, time};
use crate::report::Figures;
use crate::sync::Ordering;
use crate::watchdog::stall::Stall;

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
    stalls: u64,
    figures: Figures,
    rejected: u64,
    pending: usize,
    live: usize,
    channels: usize,
    paused: bool,
    parked: bool,
    utilization: f64,
    wake_delay: Duration,
    times: Option<Times>,
    poll_times: Histogram,
    wake_to_poll: Histogram,
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
        let tick = shared.pulse.tick(shared.config.clock.now());
        let durations = shared.durations.as_ref();
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
            stalls: shared
                .beacon
                .as_ref()
                .map_or(0, |beacon| beacon.stalls.get()),
            figures: shared.place.counters.figures(shared.inbox.accepted()),
            rejected: shared.rejected.load(Ordering::Relaxed),
            pending: shared.pending(),
            live: shared.place.counters.live(),
            channels: table.map_or(0, |table| table.len()),
            paused: shared.is_paused(),
            parked: shared.is_parked(),
            utilization: shared.pulse.utilization(tick),
            wake_delay: shared.pulse.delay(tick),
            times: shared.config.measure_time.then(|| Times {
                busy: Duration::from_nanos(gauges.busy.get()),
                longest_poll: Duration::from_nanos(gauges.longest_poll.get()),
            }),
            poll_times: durations.map_or_else(Histogram::default, |all| Histogram::of(&all.polls)),
            wake_to_poll: durations
                .map_or_else(Histogram::default, |all| Histogram::of(&all.waits)),
        }
    }

    /// Returns the loop's index in its group.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns how often a task was polled.
    ///
    /// A loop publishes its polls once per turn: right after a task has completed, this may be fewer than
    /// [`completed`](LoopMetrics::completed).
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

    /// Returns how many polls the [watchdog](crate::Builder::watchdog) has found that did not return within
    /// its threshold; 0 without one. A poll counts once, however often it is reported, and also if its
    /// reports were left out.
    pub fn stalls(&self) -> u64 {
        self.stalls
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

    /// Returns how many submissions were rejected.
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

    /// Returns whether the loop is [paused](EventLoop::pause): whether the group chooses other ones.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// group.loops()[1].pause();
    /// assert!(group.loops()[1].metrics().is_paused());
    /// assert_eq!(group.loops()[1].metrics().to_string(), "loop 1: paused");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns whether the loop is parked: a loop of an [elastic](crate::Builder::elastic) group that is not
    /// needed, and whose thread has ended. It accepts work, which starts its thread again.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(2)?;
    /// assert!(!group.metrics().loops()[0].is_parked()); // the group is not elastic
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// Returns the busy share of about the last second: 0.0 for a loop that sleeps, 1.0 for one that has
    /// worked without a pause.
    ///
    /// Work counts by its age: a second ago for 37 %, two seconds ago for 14 %, five seconds ago for less
    /// than 1 %. The value is that of this moment, also for a loop that has been in one poll, or asleep,
    /// for long. Whatever the loop does between two waits is work; spinning before a wait, or instead of
    /// one, is not.
    ///
    /// Every loop measures it: the loop reads the clock twice per wait at most, and never per task.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::{sync::mpsc, thread, time::Duration};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let (release, held) = mpsc::channel::<()>();
    /// group.loops()[0].execute(move || held.recv().unwrap_or(())).unwrap(); // occupies it
    /// while group.loops()[0].metrics().utilization() < 0.3 {
    ///     thread::sleep(Duration::from_millis(10)); // about 360 ms in all
    /// }
    /// assert_eq!(group.loops()[1].metrics().utilization(), 0.0); // has done nothing
    /// drop(release);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn utilization(&self) -> f64 {
        self.utilization
    }

    /// Returns how long the loop took to wake up when another thread woke it from its sleep, as a mean of
    /// the last wake-ups: from just before the system call of that thread to the beginning of the turn.
    ///
    /// A wake-up that is under way counts as soon as it takes longer than the mean, so a loop whose thread
    /// gets no processor shows it. Wakes by timers and sockets, and of a loop that is awake, are not in it:
    /// the latter wait for the work before them, see [`utilization`](LoopMetrics::utilization).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    /// use std::time::Duration;
    ///
    /// let mut test = TestLoop::new();
    /// test.run_until_stalled();
    /// test.spawn(async {}); // wakes the loop
    /// test.run_until_stalled(); // no virtual time has passed meanwhile
    /// assert_eq!(test.metrics().wake_delay(), Duration::ZERO);
    /// ```
    pub fn wake_delay(&self) -> Duration {
        self.wake_delay
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

    /// The utilization in percent, for people.
    fn percent(&self) -> u64 {
        (self.utilization * 100.0).round() as u64
    }

    /// Returns the duration of the longest poll, which reveals tasks that block the loop; `None` unless
    /// the group [measures time](crate::Builder::measure_time).
    pub fn longest_poll(&self) -> Option<Duration> {
        self.times.map(|times| times.longest_poll)
    }

    /// Returns how long polls took; empty unless the group [measures time](crate::Builder::measure_time).
    /// Closures count as polls.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::builder().loops(1).measure_time(true).build()?;
    /// group.block_on(group.spawn(async { loopgroup::yield_now().await })).unwrap();
    /// group.shutdown_now().wait();
    /// let one = group.loops()[0].metrics();
    /// assert_eq!(one.poll_times().count(), 2);
    /// assert_eq!(Some(one.poll_times().max()), one.longest_poll());
    /// println!("99 % of all polls took {:?} at most", one.poll_times().quantile(0.99));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn poll_times(&self) -> Histogram {
        self.poll_times.clone()
    }

    /// Returns how long tasks waited from a wake, or from their submission, to the poll that followed;
    /// empty unless the group [measures time](crate::Builder::measure_time).
    ///
    /// This is the time that tasks spend in the queues of their loop. It is exact up to the length of one
    /// poll: a wake by a task of the same loop counts from the end of the poll that it happened in, and one
    /// by another thread from the beginning of the poll during which it came. A loop that sleeps is woken
    /// by a timer, a socket or a system call, and there the wait begins.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::builder().loops(1).measure_time(true).build()?;
    /// group.block_on(group.spawn(async { loopgroup::yield_now().await })).unwrap();
    /// group.shutdown_now().wait();
    /// assert_eq!(group.loops()[0].metrics().wake_to_poll().count(), 2); // the spawn, and the yield
    /// # std::io::Result::Ok(())
    /// ```
    pub fn wake_to_poll(&self) -> Histogram {
        self.wake_to_poll.clone()
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

/// One line, of what is not zero.
impl fmt::Display for LoopMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nouns = [
            (self.polls, "poll", ""),
            (self.parks, "park", ""),
            (self.io_events, "I/O event", ""),
            (self.stale_events, "stale event", ""),
            (self.rebuilds, "rebuild", ""),
            (self.timers_fired, "timer", ""),
            (self.stalls, "stall", ""),
            (self.local_wakes, "wake", " by itself"),
            (self.remote_wakes, "wake", " by other loops"),
            (self.outside_wakes, "wake", " from outside"),
            (self.wakeup_calls, "wake-up call", ""),
            (self.channels as u64, "channel", ""),
        ];
        let states = [
            (self.accepted(), "accepted"),
            (self.completed(), "completed"),
            (self.panicked(), "panicked"),
            (self.cancelled(), "cancelled"),
            (self.rejected, "rejected"),
            (self.pending as u64, "pending"),
            (self.live as u64, "live"),
        ];
        let mut parts = Vec::new();
        for (number, noun, origin) in nouns.into_iter().filter(|part| part.0 > 0) {
            parts.push(counted(number, noun) + origin);
        }
        for (number, state) in states.into_iter().filter(|part| part.0 > 0) {
            parts.push(format!("{} {state}", count(number)));
        }
        if self.paused {
            parts.push(if self.parked { "parked" } else { "paused" }.to_owned());
        }
        if self.percent() > 0 {
            parts.push(format!("{} % utilized", self.percent()));
        }
        if !self.wake_delay.is_zero() {
            parts.push(format!("wake delay {}", time(self.wake_delay)));
        }
        if let Some(times) = self.times.filter(|times| !times.busy.is_zero()) {
            parts.push(format!("busy {}", time(times.busy)));
            parts.push(format!("longest poll {}", time(times.longest_poll)));
        }
        match parts.is_empty() {
            true => write!(f, "loop {}: nothing yet", self.index),
            false => write!(f, "loop {}: {}", self.index, parts.join(", ")),
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
/// println!("{metrics}"); // as tables, without columns of zeros
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

    /// Returns how many polls of all loops the [watchdog](crate::Builder::watchdog) has found that did not
    /// return within its threshold; see [`LoopMetrics::stalls`].
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let (tx, rx) = mpsc::channel();
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .watchdog(Duration::from_millis(20))
    ///     .on_stall(move |stall| tx.send(stall.clone()).unwrap_or(()))
    ///     .build()?;
    /// let (release, held) = mpsc::channel::<()>();
    /// group.next().execute(move || held.recv().unwrap_or(())).unwrap();
    /// rx.recv().unwrap();
    /// assert_eq!(group.metrics().stalls(), 1);
    /// drop(release);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stalls(&self) -> u64 {
        self.loops.iter().map(LoopMetrics::stalls).sum()
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
    /// println!("{}", group.metrics()); // tables: what each loop did, and which loop woke which
    /// # std::io::Result::Ok(())
    /// ```
    pub fn metrics(&self) -> GroupMetrics {
        GroupMetrics::of(self.core())
    }
}

impl EventLoopGroup {
    /// Returns the polls that the [watchdog](crate::Builder::watchdog) has last found not to return, the
    /// oldest one first: 32 at most, each once, with what its last report says. Empty without a watchdog.
    /// Any thread.
    ///
    /// Polls whose reports were left out, because there were too many, are here as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let (tx, rx) = mpsc::channel();
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .watchdog(Duration::from_millis(20))
    ///     .on_stall(move |stall| tx.send(stall.clone()).unwrap_or(()))
    ///     .build()?;
    /// let (release, held) = mpsc::channel::<()>();
    /// let task = group.task().name("stuck").spawn(async move { held.recv().unwrap_or(()) });
    /// rx.recv().unwrap();
    /// let [stall] = &group.recent_stalls()[..] else { panic!("there was one") };
    /// assert_eq!((stall.task_id(), stall.name()), (Some(task.id()), Some("stuck")));
    /// drop(release);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn recent_stalls(&self) -> Vec<Stall> {
        let beacon = self.loops()[0].shared().beacon.as_ref();
        beacon.map_or_else(Vec::new, |beacon| beacon.reporter.recent())
    }
}

impl GroupMetrics {
    fn table(&self, title: &'static str) -> TextTable {
        let labels = self.loops.iter().map(|one| one.index.to_string());
        TextTable::new(title, labels.collect())
    }

    fn column(&self, figure: impl Fn(&LoopMetrics) -> u64) -> impl Iterator<Item = u64> {
        self.loops.iter().map(figure)
    }

    /// What the loops did.
    fn work(&self) -> TextTable {
        let mut table = self.table("loop");
        // A column even of zeros if there were tasks: loops publish their polls a little later.
        if self.column(LoopMetrics::accepted).any(|tasks| tasks > 0) {
            table.all_counts("polls", self.column(LoopMetrics::polls));
        } else {
            table.counts("polls", self.column(LoopMetrics::polls));
        }
        table.counts("parks", self.column(LoopMetrics::parks));
        table.counts("I/O events", self.column(LoopMetrics::io_events));
        table.counts("stale", self.column(LoopMetrics::stale_events));
        table.counts("rebuilds", self.column(LoopMetrics::rebuilds));
        table.counts("timers", self.column(LoopMetrics::timers_fired));
        table.counts("stalls", self.column(LoopMetrics::stalls));
        table.counts("channels", self.column(|one| one.channels as u64));
        table.counts("paused", self.column(|one| u64::from(one.paused)));
        table.counts("parked", self.column(|one| u64::from(one.parked)));
        table.percents("utilized", self.column(LoopMetrics::percent));
        let times = || self.loops.iter().filter_map(|one| one.times);
        table.times("busy", times().map(|times| times.busy), |one, other| {
            one.saturating_add(other)
        });
        let longest = times().map(|times| times.longest_poll);
        table.times("longest poll", longest, Duration::max);
        table
    }

    /// What became of tasks.
    fn tasks(&self) -> TextTable {
        let mut table = self.table("tasks");
        table.counts("accepted", self.column(LoopMetrics::accepted));
        table.counts("completed", self.column(LoopMetrics::completed));
        table.counts("panicked", self.column(LoopMetrics::panicked));
        table.counts("cancelled", self.column(LoopMetrics::cancelled));
        table.counts("rejected", self.column(LoopMetrics::rejected));
        table.counts("pending", self.column(|one| one.pending as u64));
        table.counts("live", self.column(|one| one.live as u64));
        table
    }

    /// Which loop woke tasks of which: in full if that fits, else only whether it was the same.
    fn woken(&self) -> TextTable {
        let mut full = self.table("woken");
        for from in 0..self.loops.len() {
            let wakes = (0..self.loops.len()).map(|to| self.wakes(Some(from), to));
            full.counts(&format!("by loop {from}"), wakes);
        }
        self.woken_from_outside(&mut full);
        if self.loops.len() > 1 && full.width() <= TERMINAL {
            return full;
        }
        let mut brief = self.table("woken");
        brief.counts("by itself", self.column(LoopMetrics::local_wakes));
        brief.counts("by other loops", self.column(LoopMetrics::remote_wakes));
        self.woken_from_outside(&mut brief);
        brief
    }

    fn woken_from_outside(&self, table: &mut TextTable) {
        table.counts("from outside", self.column(LoopMetrics::outside_wakes));
        table.counts("wake-up calls", self.column(LoopMetrics::wakeup_calls));
    }
}

/// Tables for people: a row for each loop and one for the total, without columns of zeros, 80 columns wide at
/// most. The format may change; programs call the methods.
impl fmt::Display for GroupMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = [self.work(), self.tasks(), self.woken()];
        let mut shown = tables.iter().filter(|table| !table.is_empty());
        match shown.next() {
            Some(first) => write!(f, "{first}")?,
            None => {
                let loops = counted(self.loops.len() as u64, "loop");
                return write!(f, "{loops}: nothing yet");
            }
        }
        shown.try_for_each(|table| write!(f, "\n\n{table}"))
    }
}

#[cfg(test)]
mod tests;
