//! The settings of a group, and how a group is built from them.
//!
//! - Setters only store; `build` checks everything and names the wrong setting, so the order of
//!   setters never matters and no setter resets another.
//! - Reactors are created eagerly, threads are not: a lack of descriptors or memory shows here. If
//!   loop k fails, loops 0..k are closed by being dropped, and the error says which loop failed.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::chooser::Chooser;
use crate::clock::Clock;
use crate::config::{CloseChannels, Config, PinThread, WaitStrategy};
use crate::elastic::Elastic;
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::Inbox;
use crate::event_loop::lifecycle::Life;
use crate::event_loop::loop_thread::LoopThread;
use crate::event_loop::place::PlaceHandle;
use crate::event_loop::shared::{BY_LOAD, LOOPS, Parent, Shared, Watched};
use crate::event_loop::tracker::Tracker;
use crate::group::core::{GroupCore, HandleToken, Keys};
use crate::group::end::GroupEnd;
use crate::group::handle::EventLoopGroup;
use crate::group::parent::{Callbacks, GroupParent, StartHook, ThreadFactory};
use crate::group::scaler::Scaler;
use crate::metrics::buckets::Durations;
use crate::metrics::gauges::Gauges;
use crate::metrics::pulse::Pulse;
use crate::panic::{Contained, PanicHandler, PanicReporter, TaskPanic};
use crate::random::Seeds;
use crate::reactor::{Driver, Port, Precision, alarm};
use crate::recorder::tape::{self, Recorder, Tape};
use crate::reject_policy::RejectPolicy;
use crate::sim::SimulatedHost;
use crate::sync::{Arc, AtomicU8, AtomicUsize, Mutex, Ordering, plain};
use crate::termination::Termination;
use crate::unwind::{contain, discard};
use crate::watchdog::beacon::Beacon;
use crate::watchdog::reporter::{StallHandler, StallReporter};
use crate::watchdog::stall::Stall;

type ThreadName = dyn Fn(usize) -> String + Send + Sync;
/// Chooses a core for each loop, given the number of loops.
pub(crate) type PinPlan = dyn FnOnce(usize) -> io::Result<Box<PinThread>> + Send + Sync;

impl EventLoopGroup {
    /// Creates a group of `loops` loops with default settings; threads start on first use.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `loops` is 0 or too large to fit in memory; otherwise the system's error if a
    /// selector cannot be created.
    pub fn new(loops: usize) -> io::Result<EventLoopGroup> {
        EventLoopGroup::builder().loops(loops).build()
    }

    /// Configures a group.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

/// Configures an [`EventLoopGroup`].
///
/// Each setting has an example in [the guide](crate::guide::settings).
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, LeastLoaded};
///
/// let group = EventLoopGroup::builder()
///     .loops(4)
///     .thread_name(|i| format!("worker-{i}"))
///     .max_pending_tasks(10_000)
///     .chooser(LeastLoaded::default())
///     .build()?;
/// assert_eq!(group.len(), 4);
///
/// let error = EventLoopGroup::builder().io_ratio(101).build().unwrap_err();
/// assert!(error.to_string().contains("io_ratio"));
/// # std::io::Result::Ok(())
/// ```
#[must_use = "a builder does nothing until build()"]
pub struct Builder {
    loops: Option<usize>,
    elastic: Option<Elastic>,
    thread_name: Option<Box<ThreadName>>,
    thread_stack_size: Option<usize>,
    thread_factory: Option<Box<ThreadFactory>>,
    on_thread_start: Option<Box<StartHook>>,
    /// Checks the requested pinning, and assigns a core to each loop.
    pub(crate) pin_plan: Option<Box<PinPlan>>,
    on_panic: Option<Arc<PanicHandler>>,
    chooser: Option<Box<dyn Chooser>>,
    max_pending_tasks: Option<usize>,
    reject_policy: RejectPolicy,
    io_ratio: u32,
    measure_time: bool,
    /// Set by `slow_poll`. It has another name: for a call without the feature, the compiler would point at a
    /// private field.
    slow_poll_limit: Option<Duration>,
    track_tasks: bool,
    watchdog: Option<Duration>,
    on_stall: Option<Arc<StallHandler>>,
    flight_recorder: Option<usize>,
    freeze_on_stall: bool,
    wait_strategy: WaitStrategy,
    close_channels: CloseChannels,
    precision: Precision,
    io: bool,
    clock: Clock,
    /// `None` is another one for each group.
    seed: Option<u64>,
    /// `None` is the simulated host of the loop that builds the group, if it is on one.
    simulated: Option<Arc<SimulatedHost>>,
}

impl Default for EventLoopGroup {
    /// Creates a group of a loop per core with default settings, as `EventLoopGroup::builder().build()` does.
    ///
    /// For programs that cannot go on without a group, and for structs that derive `Default`. To handle the
    /// error, use [`EventLoopGroup::new`] or [`Builder::build`].
    ///
    /// # Panics
    ///
    /// If the system has no descriptors or memory left for the selectors of the loops; the message says
    /// which loop could not be created, and why.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// #[derive(Default)]
    /// struct App {
    ///     workers: EventLoopGroup,
    /// }
    ///
    /// let app = App::default();
    /// assert!(app.workers.len() >= 1);
    /// ```
    #[track_caller]
    fn default() -> EventLoopGroup {
        match Builder::default().build() {
            Ok(group) => group,
            Err(error) => panic!(
                "the default group could not be created: {error}; to handle this error, use \
                 EventLoopGroup::new or EventLoopGroup::builder"
            ),
        }
    }
}

impl Default for Builder {
    /// Returns the settings of [`EventLoopGroup::builder`]: a loop per core, no limits.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::Builder;
    ///
    /// let group = Builder::default().loops(2).build()?;
    /// assert_eq!(group.len(), 2);
    /// # std::io::Result::Ok(())
    /// ```
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder {
            loops: None,
            elastic: None,
            thread_name: None,
            thread_stack_size: None,
            thread_factory: None,
            on_thread_start: None,
            pin_plan: None,
            on_panic: None,
            chooser: None,
            max_pending_tasks: None,
            reject_policy: RejectPolicy::default(),
            io_ratio: 50,
            measure_time: false,
            track_tasks: false,
            watchdog: None,
            on_stall: None,
            flight_recorder: None,
            freeze_on_stall: true,
            slow_poll_limit: None,
            wait_strategy: WaitStrategy::default(),
            close_channels: CloseChannels::default(),
            precision: Precision::Millis,
            io: true,
            clock: Clock::System,
            simulated: None,
            seed: None,
        }
    }

    /// Puts the loops on a simulated host.
    pub(crate) fn on_host(mut self, host: Arc<SimulatedHost>) -> Builder {
        self.simulated = Some(host);
        self
    }

    /// Sets the clock that the loops read.
    pub(crate) fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// Sets the seed of everything that is random in the loops.
    pub(crate) fn seed(mut self, seed: u64) -> Builder {
        self.seed = Some(seed);
        self
    }

    /// Sets the number of loops; the default is the parallelism available to the calling thread. Not 0.
    /// [Example](crate::guide::settings#loops-and-threads)
    pub fn loops(mut self, loops: usize) -> Builder {
        self.loops = Some(loops);
        self
    }

    /// Makes the group elastic: it uses more loops under load, and fewer without.
    ///
    /// The group has `max` loops, of which `min` are active at the start. A loop that is not needed is
    /// [paused](EventLoop::pause): `next()` chooses other loops, and connections that
    /// [can move](crate::net::Server::serve_turns) leave it. Once it has been empty for `patience`, it is
    /// parked: its thread ends and its memory is freed. It still counts as started, and whatever is
    /// submitted to it, by a key or by its index, starts its thread again. A loop is empty without tasks,
    /// timers, registered sockets and [bound](EventLoop::bind) values; a listener keeps its loop, and so does
    /// a handler that a server has created for it.
    ///
    /// What [`on_thread_start`](Builder::on_thread_start) has returned is dropped when a thread ends, and
    /// the hook is called again on the next one. [Guide](crate::guide::balance#elastic-groups)
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{Elastic, EventLoopGroup};
    ///
    /// let group = EventLoopGroup::builder()
    ///     .elastic(Elastic { min: 1, max: 8, ..Elastic::default() })
    ///     .build()?;
    /// assert_eq!(group.next().index(), 0); // the only one that is active
    /// assert_eq!(group.block_on(group.spawn_on(7, async { 7 })).unwrap(), 7); // accepted all the same
    ///
    /// let none = Elastic { min: 0, ..Elastic::default() };
    /// let error = EventLoopGroup::builder().elastic(none).build().unwrap_err();
    /// assert!(error.to_string().contains("min must be at least 1"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn elastic(mut self, elastic: Elastic) -> Builder {
        self.elastic = Some(elastic);
        self
    }

    /// Names the threads by the index of their loop; Linux shows the first 15 bytes.
    /// [Example](crate::guide::settings#loops-and-threads)
    ///
    /// The default is `loop-<group>-<index>`. A name must not contain a NUL byte.
    pub fn thread_name<N>(mut self, name: impl Fn(usize) -> N + Send + Sync + 'static) -> Builder
    where
        N: Into<String>,
    {
        self.thread_name = Some(Box::new(move |index| name(index).into()));
        self
    }

    /// Sets the stack size of the threads, in bytes. Not 0.
    /// [Example](crate::guide::settings#loops-and-threads)
    pub fn thread_stack_size(mut self, bytes: usize) -> Builder {
        self.thread_stack_size = Some(bytes);
        self
    }

    /// Sets how a thread starts: with other attributes, inside another runtime's context, ...
    ///
    /// The factory receives a [`LoopThread`] and runs it on a thread of its choice. If it fails, panics
    /// or drops the `LoopThread` without running it, the submission that needed the thread is rejected
    /// with [`ThreadStart`](crate::RejectReason::ThreadStart), and the next one tries again. A
    /// submission waits for the thread to begin, 5 s at most.
    /// [Example](crate::guide::settings#how-a-thread-starts)
    pub fn thread_factory(
        mut self,
        factory: impl Fn(LoopThread) -> io::Result<()> + Send + Sync + 'static,
    ) -> Builder {
        let factory = Contained::new(factory);
        self.thread_factory = Some(Box::new(move |thread| factory.get()(thread)));
        self
    }

    /// Calls `hook` on each loop's thread before its first task.
    ///
    /// Its return value is kept as a guard and dropped on the same thread, after the last task and
    /// before the termination is announced. If the hook panics, the loop runs without a guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// struct Leaving(usize);
    ///
    /// impl Drop for Leaving {
    ///     fn drop(&mut self) {
    ///         println!("loop {} ends", self.0);
    ///     }
    /// }
    ///
    /// let group = EventLoopGroup::builder()
    ///     .loops(2)
    ///     .on_thread_start(|ev| Leaving(ev.index()))
    ///     .build()?;
    /// group.start()?;
    /// group.shutdown_now().wait();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_thread_start<G: 'static>(
        mut self,
        hook: impl Fn(&EventLoop) -> G + Send + Sync + 'static,
    ) -> Builder {
        let hook = Contained::new(hook);
        self.on_thread_start = Some(Box::new(move |this| Box::new(hook.get()(this))));
        self
    }

    /// Handles panics that no handle can join; the default prints one line on stderr.
    ///
    /// The handler may be called on any thread: a panic is reported where its last handle is dropped.
    /// The program's panic hook has already run, as for every panic. See [`TaskPanic`] for an example.
    pub fn on_panic(mut self, handler: impl Fn(&TaskPanic<'_>) + Send + Sync + 'static) -> Builder {
        let handler = Contained::new(handler);
        self.on_panic = Some(Arc::new(move |panic: &TaskPanic<'_>| handler.get()(panic)));
        self
    }

    /// Sets how [`EventLoopGroup::next`] chooses a loop; the default is [`RoundRobin`](crate::RoundRobin).
    /// [Example](crate::guide::settings#who-gets-the-next-task)
    pub fn chooser(mut self, chooser: impl Chooser + 'static) -> Builder {
        self.chooser = Some(Box::new(Contained::new(chooser)));
        self
    }

    /// Limits the number of tasks of each loop that wait for their first poll; the default is no limit.
    /// Not 0.
    ///
    /// The limit is exact. Futures, closures, scheduled closures and visits of
    /// [`LoopBound`](crate::LoopBound) values count, wherever they are submitted, the loop itself
    /// included. A wake of a task that has begun is never rejected. Submissions above the limit are
    /// handled by the [`reject_policy`](Builder::reject_policy).
    /// [Example](crate::guide::settings#a-bound-for-what-waits)
    pub fn max_pending_tasks(mut self, max: usize) -> Builder {
        self.max_pending_tasks = Some(max);
        self
    }

    /// Sets what happens to a submission that exceeds
    /// [`max_pending_tasks`](Builder::max_pending_tasks); without that limit the policy is never used.
    /// [Example](crate::guide::settings#a-bound-for-what-waits)
    pub fn reject_policy(mut self, policy: RejectPolicy) -> Builder {
        self.reject_policy = policy;
        self
    }

    /// Sets the share of time for tasks woken by I/O, in percent: 1 to 100, default 50.
    ///
    /// After `t` of I/O work a loop gives `t·(100−ratio)/ratio` to other tasks; with 100 it runs
    /// all tasks that are queued. [Example](crate::guide::settings#sockets-against-other-tasks)
    pub fn io_ratio(mut self, percent: u32) -> Builder {
        self.io_ratio = percent;
        self
    }

    /// Makes the loops read the clock around every poll, for
    /// [`LoopMetrics::busy`](crate::LoopMetrics::busy), [`longest_poll`](crate::LoopMetrics::longest_poll)
    /// and the histograms [`poll_times`](crate::LoopMetrics::poll_times) and
    /// [`wake_to_poll`](crate::LoopMetrics::wake_to_poll); off by default, as it costs as much as a short
    /// poll. [Example](crate::guide::settings#looking-at-time)
    pub fn measure_time(mut self, measure: bool) -> Builder {
        self.measure_time = measure;
        self
    }

    /// Makes the loops log every poll that takes `limit` or longer, as a warning that says where the task
    /// was spawned; implies [`measure_time`](Builder::measure_time). `limit` must not be zero.
    /// [Example](crate::guide::settings#looking-at-time)
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn slow_poll(mut self, limit: Duration) -> Builder {
        self.slow_poll_limit = Some(limit);
        self
    }

    /// Makes the loops keep a record of every task, for [`EventLoopGroup::tasks`] and
    /// [`EventLoopGroup::dump`]: its name and place, how often and for how long it was polled, what woke it
    /// last, and what it waits for. Off by default. [Example](crate::guide::look_at_it#tasks)
    ///
    /// The record of a task takes about 200 bytes, and its name if that is not a constant. A poll, a wake and
    /// a spawn take a lock of the loop and a reading of the clock: some hundred nanoseconds each. A socket is
    /// asked for its addresses when a task first waits for it, which are kept and take some 150 bytes; a
    /// datagram socket is asked every time. A group that does not track its tasks pays nothing.
    pub fn track_tasks(mut self, track: bool) -> Builder {
        self.track_tasks = track;
        self
    }

    /// Watches the loops of the group: a poll that has not returned for `threshold` is reported while it
    /// has not, to [`on_stall`](Builder::on_stall) or as one line on stderr, and through `tracing` with
    /// that feature. It is reported again after twice that time, four times, and so on. Off by default.
    ///
    /// A report names the loop, the task with its name, the place of the spawn, and on Linux whether the
    /// thread computes, is blocked in a system call, or gets no processor. Closures, shutdown hooks, and
    /// the future of [`run`](crate::run()) or [`ManualLoop::block_on`](crate::ManualLoop::block_on) are
    /// watched as tasks are. A group reports ten stalls at once, and then ten a minute; the next report
    /// counts those that were left out.
    ///
    /// One thread watches all loops of the process, four times per threshold, and ends with the last of
    /// them. A loop that is watched pays for two plain stores per poll. `threshold` must not be zero.
    /// [Example](crate::guide::look_at_it#stalls)
    pub fn watchdog(mut self, threshold: Duration) -> Builder {
        self.watchdog = Some(threshold);
        self
    }

    /// Handles polls that do not return, which the [`watchdog`](Builder::watchdog) has found; the default
    /// prints one line on stderr. See [`Stall`] for an example.
    ///
    /// The handler is called on the watchdog's thread: while it works, no loop is watched. A panic in it is
    /// contained, and the stall goes to stderr.
    pub fn on_stall(mut self, handler: impl Fn(&Stall) + Send + Sync + 'static) -> Builder {
        let handler = Contained::new(handler);
        self.on_stall = Some(Arc::new(move |stall: &Stall| handler.get()(stall)));
        self
    }

    /// Gives each loop a flight recorder: a ring of the last `events` turns, polls, waits, wakes, spawns,
    /// timers and accepts, in fixed memory, which any thread can look at with
    /// [`EventLoopGroup::trace`]. Off by default.
    ///
    /// `events` is rounded up to a power of two, and to 64 at least; an event takes 24 bytes. A poll is two
    /// events, and a request of a server about seven: 65,536 events are 1.5 MiB per loop. A loop that is
    /// recorded reads the clock once or twice per poll, and once per wake by a task.
    ///
    /// The recorder works until it is [frozen](EventLoopGroup::freeze_recorder), by hand or by a stall.
    /// On a [`TestLoop`](crate::testing::TestLoop) or [`TestGroup`](crate::testing::TestGroup) it records
    /// virtual time, in which every event takes a nanosecond. [Example](crate::guide::look_at_it#a-trace)
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) returns `InvalidInput` for zero, for more than 16,777,216 events, and if
    /// the recorders do not fit in memory.
    pub fn flight_recorder(mut self, events: usize) -> Builder {
        self.flight_recorder = Some(events);
        self
    }

    /// Sets whether a stall that the [`watchdog`](Builder::watchdog) has found freezes the
    /// [`flight_recorder`](Builder::flight_recorder), so that what came before it is kept until
    /// [`EventLoopGroup::resume_recorder`]; the default is `true`. Has no effect without both.
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
    ///     .flight_recorder(10_000)
    ///     .watchdog(Duration::from_millis(20))
    ///     .on_stall(move |stall| tx.send(stall.clone()).unwrap_or(()))
    ///     .build()?;
    /// let (release, held) = mpsc::channel::<()>();
    /// group.next().execute(move || held.recv().unwrap_or(())).unwrap();
    /// rx.recv().unwrap(); // there is a stall
    /// assert!(group.is_recorder_frozen());
    /// let path = std::env::temp_dir().join("before-the-stall.json");
    /// std::fs::write(path, group.trace().to_chrome_json())?;
    /// group.resume_recorder(); // for the next one
    /// drop(release);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn freeze_on_stall(mut self, freeze: bool) -> Builder {
        self.freeze_on_stall = freeze;
        self
    }

    /// Sets how a loop waits when it has nothing to do; the default blocks at once.
    /// [Example](crate::guide::settings#how-to-wait)
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Builder {
        self.wait_strategy = strategy;
        self
    }

    /// Sets when a loop that shuts down closes its channels; the default is at the end.
    /// [Example](crate::guide::settings#sockets-at-the-end)
    pub fn close_channels(mut self, when: CloseChannels) -> Builder {
        self.close_channels = when;
        self
    }

    /// Makes an idle loop wake up for its timers within microseconds instead of a millisecond; off by
    /// default. [Example](crate::guide::settings#precise-timers)
    ///
    /// A timer is never early in either case. Without this setting an idle loop waits for whole milliseconds,
    /// as epoll does; nearby timers share a wake-up, which saves CPU time. With it the loop wakes up at the
    /// deadline, or 50 µs after it fell asleep if that is later: timers that are due within 50 µs share a
    /// wake-up. A wait for a new deadline costs a system call more, and each loop has a descriptor more.
    ///
    /// | loops | what it takes |
    /// |---|---|
    /// | on Linux | the feature `precise-timers`: a timerfd in the selector |
    /// | on macOS and FreeBSD | nothing: kqueue waits for nanoseconds, with this setting and without it |
    /// | [`without_io`](Builder::without_io) | nothing: a condition variable waits for nanoseconds |
    ///
    /// (Linux ends the wait of a condition variable up to 50 µs late, which is the timer slack of a thread.)
    ///
    /// # Errors
    ///
    /// [`build`](Builder::build) returns `Unsupported` on Linux without the feature, unless the group is
    /// `without_io`.
    pub fn precise_timers(mut self, precise: bool) -> Builder {
        self.precision = match precise {
            true => Precision::Exact,
            false => Precision::Millis,
        };
        self
    }

    /// Makes the group an executor group: loops without a selector, to offload handlers to. Timers work
    /// there too; `io_ratio` has no effect. [Example](crate::guide::settings#without-sockets)
    pub fn without_io(mut self) -> Builder {
        self.io = false;
        self
    }

    /// Builds the group; no thread is started yet. [Example](crate::guide::settings#loops-and-threads)
    ///
    /// # Errors
    ///
    /// `InvalidInput` names the setting that is wrong. Any other error is the system's and says which
    /// loop could not be created; the loops before it are closed again.
    pub fn build(mut self) -> io::Result<EventLoopGroup> {
        let simulated = self.simulated.take().or_else(context::simulated_host);
        if let Some(host) = &simulated {
            self.clock = Clock::Virtual(Arc::clone(&host.clock));
            self.precision = Precision::Millis; // virtual timers are exact in any case
        }
        let loops = self.validate()?;
        let mut drivers = Vec::new();
        if drivers.try_reserve_exact(loops).is_err() {
            let text = format!("{loops} are more than fit in memory");
            return Err(invalid("loops", &text));
        }
        let thread_names = self.thread_names(loops, simulated.as_deref())?;
        let tapes = self.tapes(loops)?;
        let freezes = tapes
            .first()
            .map(|tape| &tape.recorder)
            .filter(|_| self.freeze_on_stall)
            .cloned();
        let pin_plan = self.pin_plan.filter(|_| simulated.is_none());
        let pin_thread = pin_plan.map(|plan| plan(loops)).transpose()?;
        for index in 0..loops {
            drivers.push(if let Some(host) = &simulated {
                Driver::simulated(&host.net.network, host.bell(), self.io)
            } else if self.io {
                Driver::with_io(self.precision).map_err(|error| loop_error(index, loops, &error))?
            } else {
                Driver::without_io(self.precision)
            });
        }
        let config = Arc::new(Config {
            thread_names,
            thread_stack_size: self.thread_stack_size,
            pin_thread,
            wait_strategy: self.wait_strategy,
            io_ratio: self.io_ratio,
            measure_time: self.measure_time || self.slow_poll_limit.is_some(),
            slow_poll: self.slow_poll_limit,
            close_channels: self.close_channels,
            clock: self.clock,
            simulated: simulated.clone(),
            patience: self.elastic.as_ref().map(|elastic| elastic.patience),
            seeds: match (self.seed, &simulated) {
                (Some(seed), _) => Seeds::from(seed),
                (None, Some(host)) => Seeds::from(host.random().bits()),
                (None, None) => Seeds::random(),
            },
        });
        let plan = Plan {
            elastic: self.elastic,
            config,
            callbacks: Callbacks {
                thread_factory: self.thread_factory,
                on_thread_start: self.on_thread_start,
                reject_policy: self.reject_policy,
            },
            on_panic: self.on_panic.or_else(|| {
                let host = simulated.clone()?;
                let note: Arc<PanicHandler> =
                    Arc::new(move |panic: &TaskPanic<'_>| host.note_panic(panic.to_string()));
                Some(note)
            }),
            chooser: self.chooser,
            max_pending_tasks: self.max_pending_tasks,
            track_tasks: self.track_tasks,
            stalls: self
                .watchdog
                .map(|threshold| StallReporter::new(threshold, self.on_stall, freezes))
                .or_else(|| simulated.as_ref().map(SimulatedHost::stall_reporter))
                .map(Arc::new),
            tapes,
        };
        let group = plan.assemble(drivers);
        if let Some(host) = simulated {
            for one in group.loops() {
                let parts = one.shared().take_parts();
                host.adopt(Box::new(
                    parts.expect("no loop of a new group has been started"),
                ));
            }
        }
        Ok(group)
    }

    /// Checks every setting; returns the number of loops.
    fn validate(&self) -> io::Result<usize> {
        if let Some(elastic) = &self.elastic {
            elastic.check()?;
            if self.loops.is_some_and(|loops| loops != elastic.max) {
                let text = "an elastic group has `max` loops; leave `loops` out";
                return Err(invalid("loops", text));
            }
        }
        let elastic = self.elastic.as_ref().map(|elastic| elastic.max);
        let loops = match self.loops.or(elastic) {
            Some(loops) => loops,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        if loops == 0 {
            return Err(invalid("loops", "a group needs at least one loop"));
        }
        if self.thread_stack_size == Some(0) {
            return Err(invalid("thread_stack_size", "must not be 0"));
        }
        if self.max_pending_tasks == Some(0) {
            return Err(invalid(
                "max_pending_tasks",
                "0 would reject everything; leave it out for no bound",
            ));
        }
        if !(1..=100).contains(&self.io_ratio) {
            let text = format!("must be between 1 and 100, not {}", self.io_ratio);
            return Err(invalid("io_ratio", &text));
        }
        if let RejectPolicy::Backoff { retries, interval } = &self.reject_policy {
            if *retries == 0 || interval.is_zero() {
                return Err(invalid(
                    "reject_policy",
                    "Backoff needs at least one retry and an interval above zero",
                ));
            }
        }
        if let WaitStrategy::SpinThenPark(Duration::ZERO) = self.wait_strategy {
            return Err(invalid(
                "wait_strategy",
                "SpinThenPark needs a time above zero; use Park",
            ));
        }
        if self.watchdog == Some(Duration::ZERO) {
            let text = "the threshold must be above zero; leave it out for no watchdog";
            return Err(invalid("watchdog", text));
        }
        if self.slow_poll_limit == Some(Duration::ZERO) {
            let text = "the limit must be above zero; measure_time measures every poll";
            return Err(invalid("slow_poll", text));
        }
        if self.on_stall.is_some() && self.watchdog.is_none() {
            let text = "nothing finds stalls; set a threshold with watchdog";
            return Err(invalid("on_stall", text));
        }
        if let Some(0 | tape::TOO_MANY..) = self.flight_recorder {
            let text = format!("must be between 1 and {} events", tape::MOST);
            return Err(invalid("flight_recorder", &text));
        }
        if self.io && self.precision == Precision::Exact {
            alarm::check_supported().map_err(|error| {
                io::Error::new(error.kind(), format!("precise_timers: {error}"))
            })?;
        }
        Ok(loops)
    }

    /// Creates the tapes of the flight recorder: one for each loop, or none.
    fn tapes(&self, loops: usize) -> io::Result<Vec<Arc<Tape>>> {
        let Some(events) = self.flight_recorder else {
            return Ok(Vec::new());
        };
        let recorder = Arc::new(Recorder::new(self.clock.clone()));
        let records = events.next_power_of_two().max(tape::FEWEST);
        let make = |_| {
            let tape = Tape::new(Arc::clone(&recorder), records);
            tape.map(Arc::new).ok_or_else(|| {
                let text = format!("{events} events of each loop are more than fit in memory");
                invalid("flight_recorder", &text)
            })
        };
        (0..loops).map(make).collect()
    }

    fn thread_names(
        &self,
        loops: usize,
        simulated: Option<&SimulatedHost>,
    ) -> io::Result<Vec<String>> {
        static GROUPS: plain::AtomicUsize = plain::AtomicUsize::new(0);
        let Some(name) = &self.thread_name else {
            let (prefix, group) = match simulated {
                Some(host) => (&*host.name, host.next_group()),
                None => ("loop", GROUPS.fetch_add(1, Ordering::Relaxed)),
            };
            return Ok((0..loops)
                .map(|index| format!("{prefix}-{group}-{index}"))
                .collect());
        };
        let names = contain(|| (0..loops).map(name).collect::<Vec<_>>()).map_err(|payload| {
            discard(payload);
            invalid("thread_name", "the function panicked")
        })?;
        match names.iter().find(|name| name.contains('\0')) {
            Some(name) => Err(invalid(
                "thread_name",
                &format!("{name:?} contains a NUL byte"),
            )),
            None => Ok(names),
        }
    }
}

pub(crate) use crate::config::invalid_setting as invalid;

fn loop_error(index: usize, loops: usize, error: &io::Error) -> io::Error {
    let text = format!("could not create loop {index} of {loops}: {error}");
    io::Error::new(error.kind(), text)
}

/// The parts of a group, besides its drivers.
struct Plan {
    elastic: Option<Elastic>,
    config: Arc<Config>,
    callbacks: Callbacks,
    on_panic: Option<Arc<PanicHandler>>,
    chooser: Option<Box<dyn Chooser>>,
    max_pending_tasks: Option<usize>,
    track_tasks: bool,
    stalls: Option<Arc<StallReporter>>,
    /// One for each loop, or none.
    tapes: Vec<Arc<Tape>>,
}

impl Plan {
    /// Assembles the group. Its loops hold it weakly, so the references are cyclic.
    fn assemble(self, drivers: Vec<(Driver, Port<Watched>)>) -> EventLoopGroup {
        let Plan {
            elastic,
            config,
            callbacks,
            on_panic,
            chooser,
            max_pending_tasks,
            track_tasks,
            stalls,
            tapes,
        } = self;
        let termination = Termination::new(drivers.len(), on_panic.clone());
        let end = Arc::new(GroupEnd::new(drivers.len(), termination));
        let mut group = None;
        let token = Arc::new_cyclic(|token| {
            let core = Arc::new_cyclic(|core| {
                let parent: Arc<dyn Parent> = Arc::new(GroupParent {
                    core: core.clone(),
                    token: token.clone(),
                    end: Arc::clone(&end),
                    callbacks,
                });
                let make = |(index, (driver, port)): (usize, _)| {
                    let place = PlaceHandle::take(max_pending_tasks, track_tasks);
                    let beacon = stalls.as_ref().map(|reporter| {
                        let name = config.thread_names[index].clone();
                        Arc::new(Beacon::new(index, name, Arc::clone(reporter)))
                    });
                    let shared = Arc::new(Shared {
                        index,
                        number: LOOPS.reserve(),
                        inbox: Inbox::new(Life::new(driver), &place.get().shown),
                        port,
                        place,
                        rejected: Arc::default(),
                        gauges: Gauges::default(),
                        pulse: Pulse::new(config.clock.now()),
                        durations: config.measure_time.then(Durations::new),
                        tape: tapes.get(index).cloned(),
                        beacon,
                        tracker: track_tasks.then(|| Box::new(Tracker::new(index))),
                        paused: AtomicU8::new(0),
                        handles: AtomicUsize::new(0),
                        at_shutdown: Mutex::default(),
                        shutdown_waiters: Mutex::default(),
                        termination: Termination::new(1, on_panic.clone()),
                        panics: PanicReporter::new(Some(index), on_panic.clone()),
                        config: Arc::clone(&config),
                        parent: Arc::clone(&parent),
                    });
                    shared.number.assign(&shared);
                    EventLoop::new(&shared)
                };
                let loops: Box<[EventLoop]> = drivers.into_iter().enumerate().map(make).collect();
                let members = loops.iter().map(|one| Arc::downgrade(one.shared()));
                end.set_members(members.collect());
                let panics = PanicReporter::new(None, on_panic.clone());
                let keys = Keys::for_clock(&config.clock);
                let needed = elastic.as_ref().map_or(loops.len(), |elastic| elastic.min);
                for one in &loops[needed..] {
                    one.shared().pause(BY_LOAD);
                }
                let scaler = elastic.map(|elastic| Scaler::new(elastic, config.clock.now()));
                GroupCore::new(loops, chooser, keys, Arc::clone(&end), panics, scaler)
            });
            group = Some(Arc::clone(&core));
            HandleToken::new(core)
        });
        EventLoopGroup::from_parts(group.expect("created with its token"), token)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("loops", &self.loops)
            .field("elastic", &self.elastic)
            .field("thread_stack_size", &self.thread_stack_size)
            .field("max_pending_tasks", &self.max_pending_tasks)
            .field("reject_policy", &self.reject_policy)
            .field("io_ratio", &self.io_ratio)
            .field("measure_time", &self.measure_time)
            .field("track_tasks", &self.track_tasks)
            .field("watchdog", &self.watchdog)
            .field("flight_recorder", &self.flight_recorder)
            .field("wait_strategy", &self.wait_strategy)
            .field("close_channels", &self.close_channels)
            .field("precise_timers", &(self.precision == Precision::Exact))
            .field("pinned", &self.pin_plan.is_some())
            .field("io", &self.io)
            .finish_non_exhaustive()
    }
}
