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
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::Inbox;
use crate::event_loop::lifecycle::Life;
use crate::event_loop::loop_thread::LoopThread;
use crate::event_loop::place::PlaceHandle;
use crate::event_loop::shared::{LOOPS, Parent, Shared, Watched};
use crate::group::core::{GroupCore, HandleToken, Keys};
use crate::group::end::GroupEnd;
use crate::group::handle::EventLoopGroup;
use crate::group::parent::{Callbacks, GroupParent, StartHook, ThreadFactory};
use crate::metrics::gauges::Gauges;
use crate::panic::{Contained, PanicHandler, PanicReporter, TaskPanic};
use crate::random::Seeds;
use crate::reactor::{Driver, Port, Precision, alarm};
use crate::reject_policy::RejectPolicy;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, plain};
use crate::termination::Termination;
use crate::unwind::{contain, discard};

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
    wait_strategy: WaitStrategy,
    close_channels: CloseChannels,
    precision: Precision,
    io: bool,
    clock: Clock,
    /// `None` is another one for each group.
    seed: Option<u64>,
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
            slow_poll_limit: None,
            wait_strategy: WaitStrategy::default(),
            close_channels: CloseChannels::default(),
            precision: Precision::Millis,
            io: true,
            clock: Clock::System,
            seed: None,
        }
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

    /// Makes the loops read the clock around every poll, for [`LoopMetrics::busy`](crate::LoopMetrics::busy)
    /// and [`longest_poll`](crate::LoopMetrics::longest_poll); off by default, as it costs as much as a short
    /// poll. [Example](crate::guide::settings#looking-at-time)
    pub fn measure_time(mut self, measure: bool) -> Builder {
        self.measure_time = measure;
        self
    }

    /// Makes the loops log every poll that takes `limit` or longer, as a warning that says where the task
    /// was spawned; implies [`measure_time`](Builder::measure_time).
    /// [Example](crate::guide::settings#looking-at-time)
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn slow_poll(mut self, limit: Duration) -> Builder {
        self.slow_poll_limit = Some(limit);
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
    pub fn build(self) -> io::Result<EventLoopGroup> {
        let loops = self.validate()?;
        let mut drivers = Vec::new();
        if drivers.try_reserve_exact(loops).is_err() {
            let text = format!("{loops} are more than fit in memory");
            return Err(invalid("loops", &text));
        }
        let thread_names = self.thread_names(loops)?;
        let pin_thread = self.pin_plan.map(|plan| plan(loops)).transpose()?;
        for index in 0..loops {
            drivers.push(if self.io {
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
            seeds: self.seed.map_or_else(Seeds::random, Seeds::from),
        });
        let plan = Plan {
            config,
            callbacks: Callbacks {
                thread_factory: self.thread_factory,
                on_thread_start: self.on_thread_start,
                reject_policy: self.reject_policy,
            },
            on_panic: self.on_panic,
            chooser: self.chooser,
            max_pending_tasks: self.max_pending_tasks,
        };
        Ok(plan.assemble(drivers))
    }

    /// Checks every setting; returns the number of loops.
    fn validate(&self) -> io::Result<usize> {
        let loops = match self.loops {
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
        if self.io && self.precision == Precision::Exact {
            alarm::check_supported().map_err(|error| {
                io::Error::new(error.kind(), format!("precise_timers: {error}"))
            })?;
        }
        Ok(loops)
    }

    fn thread_names(&self, loops: usize) -> io::Result<Vec<String>> {
        static GROUPS: plain::AtomicUsize = plain::AtomicUsize::new(0);
        let Some(name) = &self.thread_name else {
            let group = GROUPS.fetch_add(1, Ordering::Relaxed);
            return Ok((0..loops)
                .map(|index| format!("loop-{group}-{index}"))
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

pub(crate) fn invalid(setting: &str, text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{setting}: {text}"))
}

fn loop_error(index: usize, loops: usize, error: &io::Error) -> io::Error {
    let text = format!("could not create loop {index} of {loops}: {error}");
    io::Error::new(error.kind(), text)
}

/// The parts of a group, besides its drivers.
struct Plan {
    config: Arc<Config>,
    callbacks: Callbacks,
    on_panic: Option<Arc<PanicHandler>>,
    chooser: Option<Box<dyn Chooser>>,
    max_pending_tasks: Option<usize>,
}

impl Plan {
    /// Assembles the group. Its loops hold it weakly, so the references are cyclic.
    fn assemble(self, drivers: Vec<(Driver, Port<Watched>)>) -> EventLoopGroup {
        let Plan {
            config,
            callbacks,
            on_panic,
            chooser,
            max_pending_tasks,
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
                let make = |(index, (driver, port))| {
                    let place = PlaceHandle::take(max_pending_tasks);
                    let shared = Arc::new(Shared {
                        index,
                        number: LOOPS.reserve(),
                        inbox: Inbox::new(Life::new(driver), &place.get().shown),
                        port,
                        place,
                        rejected: Arc::default(),
                        gauges: Gauges::default(),
                        handles: AtomicUsize::new(0),
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
                GroupCore::new(loops, chooser, keys, Arc::clone(&end), panics)
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
            .field("thread_stack_size", &self.thread_stack_size)
            .field("max_pending_tasks", &self.max_pending_tasks)
            .field("reject_policy", &self.reject_policy)
            .field("io_ratio", &self.io_ratio)
            .field("measure_time", &self.measure_time)
            .field("wait_strategy", &self.wait_strategy)
            .field("close_channels", &self.close_channels)
            .field("precise_timers", &(self.precision == Precision::Exact))
            .field("pinned", &self.pin_plan.is_some())
            .field("io", &self.io)
            .finish_non_exhaustive()
    }
}
