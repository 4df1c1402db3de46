//! `build` checks every setting and names the wrong one; the order of setters never matters.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use loopgroup::blocking::{BlockingGroup, WhenFull};
use loopgroup::net::Server;
use loopgroup::{
    Builder, Chooser, CloseChannels, CorePinning, EventLoopGroup, GroupView, LoopState, LoopThread,
    RejectPolicy, RejectReason, WaitStrategy, block_on,
};

use crate::util::{self, alone, entries, stall, within};

fn builder() -> Builder {
    EventLoopGroup::builder()
}

#[track_caller]
fn assert_names(builder: Builder, setting: &str) {
    let error = builder.build().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(
        error.to_string().starts_with(&format!("{setting}:")),
        "{setting} is wrong, and the error says: {error}"
    );
}

/// The name of a loop's thread, as the standard library and as the system has it.
fn names_of(group: &EventLoopGroup, index: usize) -> (String, Vec<u8>) {
    let names = group.spawn_on(index, async {
        let comm = std::fs::read("/proc/thread-self/comm").unwrap();
        let name = thread::current().name().unwrap().to_owned();
        (name, comm.strip_suffix(b"\n").unwrap().to_vec())
    });
    block_on(names).unwrap()
}

#[test]
fn zero_loops_are_refused() {
    within(|| {
        assert_names(builder().loops(0), "loops");
        let error = EventLoopGroup::new(0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn an_absurd_number_of_loops_is_an_error_and_no_abort() {
    alone("an_absurd_number_of_loops_is_an_error_and_no_abort", || {
        for loops in [usize::MAX, usize::MAX / 2, 1 << 45] {
            assert_names(builder().loops(loops), "loops");
            assert_names(builder().loops(loops).without_io(), "loops");
        }
    });
}

#[test]
fn a_stack_of_zero_bytes_is_refused() {
    within(|| assert_names(builder().thread_stack_size(0), "thread_stack_size"));
}

#[test]
fn a_bound_of_zero_is_refused() {
    within(|| assert_names(builder().max_pending_tasks(0), "max_pending_tasks"));
}

#[test]
fn an_io_ratio_is_between_1_and_100() {
    within(|| {
        for wrong in [0, 101, u32::MAX] {
            assert_names(builder().io_ratio(wrong), "io_ratio");
        }
        for right in [1, 50, 100] {
            let group = builder().loops(1).io_ratio(right).build().unwrap();
            assert_eq!(block_on(group.spawn(async move { right })).unwrap(), right);
        }
    });
}

#[test]
fn a_backoff_needs_retries_and_an_interval() {
    within(|| {
        let policy = |retries, interval| RejectPolicy::Backoff { retries, interval };
        let second = Duration::from_secs(1);
        for wrong in [policy(0, second), policy(1, Duration::ZERO)] {
            assert_names(builder().reject_policy(wrong), "reject_policy");
        }
        let right = builder().loops(1).reject_policy(policy(1, second));
        assert_eq!(right.build().unwrap().len(), 1);
    });
}

#[test]
fn a_spin_of_no_time_is_refused() {
    within(|| {
        let strategy = WaitStrategy::SpinThenPark(Duration::ZERO);
        assert_names(builder().wait_strategy(strategy), "wait_strategy");
    });
}

#[test]
fn a_name_with_a_nul_byte_is_refused_whichever_loop_has_it() {
    within(|| {
        let named = |bad: usize| {
            let name = move |i| if i == bad { "nul\0" } else { "fine" };
            builder().loops(3).thread_name(name)
        };
        for bad in 0..3 {
            assert_names(named(bad), "thread_name");
        }
        assert_eq!(named(3).build().unwrap().len(), 3);
    });
}

#[test]
fn a_panicking_name_function_is_an_error() {
    within(|| {
        let name = |i: usize| -> String {
            assert!(i < 1, "no name for {i}");
            "first".into()
        };
        assert_names(builder().loops(2).thread_name(name), "thread_name");
        let right = builder().loops(1).thread_name(name).build().unwrap();
        assert_eq!(names_of(&right, 0).0, "first");
    });
}

#[test]
fn the_name_function_is_asked_once_per_loop_in_order() {
    within(|| {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let name = move |i: usize| {
            log.lock().unwrap().push(i);
            format!("n{i}")
        };
        let group = builder().loops(3).thread_name(name).build().unwrap();
        group.start().unwrap();
        assert_eq!(*asked.lock().unwrap(), [0, 1, 2]);
    });
}

#[test]
fn default_names_tell_groups_and_loops_apart() {
    within(|| {
        let groups = [(); 2].map(|()| EventLoopGroup::new(2).unwrap());
        let mut seen = Vec::new();
        for group in &groups {
            for index in 0..2 {
                let (name, comm) = names_of(group, index);
                let (prefix, suffix) = name.rsplit_once('-').unwrap();
                assert!(prefix.starts_with("loop-"), "{name}");
                assert_eq!(suffix, index.to_string());
                assert_eq!(comm, &name.as_bytes()[..name.len().min(15)]);
                seen.push(name);
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4, "no name twice: {seen:?}");
    });
}

#[test]
fn the_system_shows_the_first_15_bytes_of_a_name() {
    within(|| {
        // The last one is cut inside a character of two bytes.
        let names = ["a", "fifteen bytes..", "sixteen bytes...", "üüüüüüüüü"];
        let group = builder()
            .loops(names.len())
            .thread_name(move |i| names[i])
            .build()
            .unwrap();
        for (index, expected) in names.iter().enumerate() {
            let (name, comm) = names_of(&group, index);
            assert_eq!(name, *expected);
            assert_eq!(comm, &expected.as_bytes()[..expected.len().min(15)]);
        }
    });
}

#[test]
fn an_empty_name_is_a_name() {
    within(|| {
        let group = builder().loops(1).thread_name(|_| "").build().unwrap();
        assert_eq!(names_of(&group, 0).0, "");
    });
}

#[test]
fn a_loop_has_the_stack_it_was_promised() {
    const MIB: usize = 1 << 20;
    // Far more than the default of 2 MiB: without its stack the process would die.
    fn deep() -> u8 {
        let block = std::hint::black_box([7_u8; 8 * MIB]);
        block[MIB]
    }
    within(|| {
        let group = builder().loops(1).thread_stack_size(32 * MIB);
        let group = group.build().unwrap();
        assert_eq!(block_on(group.next().submit(deep)).unwrap(), 7);
    });
}

#[test]
fn defaults_are_one_loop_per_core_unbounded_and_lazy() {
    within(|| {
        let group = builder().build().unwrap();
        let cores = thread::available_parallelism().unwrap().get();
        assert_eq!(group.len(), cores);
        assert!(!group.is_empty());
        for (index, ev) in group.loops().iter().enumerate() {
            assert_eq!((ev.index(), ev.state()), (index, LoopState::NotStarted));
        }
        let ev = &group.loops()[0];
        let release = stall(ev);
        for _ in 0..5000 {
            ev.execute(|| ()).unwrap();
        }
        assert_eq!(ev.pending_tasks(), 5000);
        release.open();
    });
}

#[test]
fn a_loop_that_cannot_be_made_is_named_and_the_ones_before_it_are_closed() {
    alone(
        "a_loop_that_cannot_be_made_is_named_and_the_ones_before_it_are_closed",
        || {
            let before = entries("/proc/self/fd");
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the pointer is to a live rlimit for the whole call.
            let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
            limit.rlim_cur = before as libc::rlim_t + 9;
            // SAFETY: as above.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
            assert_eq!((got, set), (0, 0));
            let error = EventLoopGroup::new(64).unwrap_err();
            assert_eq!(error.raw_os_error(), None, "it has a text of its own");
            let text = error.to_string();
            assert!(text.contains("loop ") && text.contains(" of 64"), "{text}");
            assert!(!text.contains("loop 0 "), "some were made before: {text}");
            assert_eq!(entries("/proc/self/fd"), before);
            // What is left is enough for a small group.
            let group = EventLoopGroup::new(1).unwrap();
            assert_eq!(block_on(group.spawn(async { 5 })).unwrap(), 5);
        },
    );
}

#[test]
fn a_default_group_is_that_of_a_default_builder() {
    within(|| {
        #[derive(Default)]
        struct App {
            group: EventLoopGroup,
            builder: Builder,
        }
        let App { group, builder } = App::default();
        let cores = thread::available_parallelism().unwrap().get();
        assert_eq!(group.len(), cores);
        assert_eq!(format!("{builder:?}"), format!("{:?}", self::builder()));
        assert_eq!(builder.build().unwrap().len(), cores);
        assert_eq!(block_on(group.spawn(async { 7 })).unwrap(), 7);
    });
}

#[test]
fn a_default_group_that_cannot_be_made_says_what_to_do_instead() {
    alone(
        "a_default_group_that_cannot_be_made_says_what_to_do_instead",
        || {
            let limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 1024,
            };
            // SAFETY: the pointer is to a live rlimit for the whole call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
            let text = util::panic_of(EventLoopGroup::default);
            assert!(text.contains("could not create loop 0"), "{text}");
            assert!(text.contains("use EventLoopGroup::new"), "{text}");
        },
    );
}

/// Always the last loop, so that it shows whether it was asked.
struct Last;

impl Chooser for Last {
    fn choose(&self, group: &GroupView<'_>) -> usize {
        group.len() - 1
    }
}

/// What a group shows of its settings.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    loops: usize,
    chosen: usize,
    name: String,
    stack: Option<usize>,
    hooks: usize,
    panics: usize,
    at_bound: Option<RejectReason>,
    /// The settings that no group shows.
    settings: String,
}

#[derive(Clone, Default)]
struct Observer {
    thread: Arc<Mutex<(String, Option<usize>)>>,
    hooks: Arc<AtomicUsize>,
    panics: Arc<AtomicUsize>,
}

type Setter = Box<dyn FnOnce(Builder) -> Builder>;

impl Observer {
    /// One call of every setter.
    fn setters(&self) -> Vec<Setter> {
        let (thread, hooks, panics) = (
            Arc::clone(&self.thread),
            Arc::clone(&self.hooks),
            Arc::clone(&self.panics),
        );
        let factory = move |lt: LoopThread| {
            *thread.lock().unwrap() = (lt.name().to_owned(), lt.stack_size());
            thread::Builder::new().spawn(move || lt.run()).map(drop)
        };
        vec![
            Box::new(|b| b.loops(3)),
            Box::new(|b| b.thread_name(|i| format!("own-{i}"))),
            Box::new(|b| b.thread_stack_size(1 << 21)),
            Box::new(|b| b.thread_factory(factory)),
            Box::new(move |b| {
                b.on_thread_start(move |_| {
                    hooks.fetch_add(1, Ordering::SeqCst);
                })
            }),
            Box::new(move |b| {
                b.on_panic(move |_| {
                    panics.fetch_add(1, Ordering::SeqCst);
                })
            }),
            Box::new(|b| b.chooser(Last)),
            Box::new(|b| b.max_pending_tasks(1)),
            Box::new(|b| {
                let interval = Duration::from_micros(1);
                b.reject_policy(RejectPolicy::Backoff {
                    retries: 2,
                    interval,
                })
            }),
            Box::new(|b| b.io_ratio(70)),
            Box::new(|b| b.measure_time(true)),
            Box::new(|b| b.track_tasks(true)),
            Box::new(|b| b.slow_poll(Duration::from_secs(60))),
            Box::new(|b| b.wait_strategy(WaitStrategy::SpinThenPark(Duration::from_micros(1)))),
            Box::new(|b| b.close_channels(CloseChannels::Immediately)),
            Box::new(|b| b.precise_timers(true)),
            Box::new(|b| match cfg!(target_os = "linux") {
                true => b.pin_cores(CorePinning::RoundRobin),
                false => b, // elsewhere it is an error
            }),
            Box::new(Builder::without_io),
        ]
    }

    fn look(&self, builder: Builder) -> Seen {
        let settings = format!("{builder:?}");
        let group = builder.build().unwrap();
        let ev = group.next();
        let release = stall(ev);
        // The panic is nobody's, so it goes to on_panic; it is also what fills the bound.
        ev.execute(|| panic!("on purpose")).unwrap();
        let at_bound = ev.execute(|| ()).err().map(|rejected| rejected.reason());
        release.open();
        util::eventually("the panic is reported", || {
            self.panics.load(Ordering::SeqCst) == 1
        });
        let (name, stack) = self.thread.lock().unwrap().clone();
        Seen {
            loops: group.len(),
            chosen: ev.index(),
            name,
            stack,
            hooks: self.hooks.load(Ordering::SeqCst),
            panics: self.panics.load(Ordering::SeqCst),
            at_bound,
            settings,
        }
    }
}

/// Small random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

fn apply(setters: Vec<Setter>) -> Builder {
    setters.into_iter().fold(builder(), |b, set| set(b))
}

#[test]
fn the_order_of_setters_does_not_matter() {
    within(|| {
        let expected = Seen {
            loops: 3,
            chosen: 2,
            name: "own-2".into(),
            stack: Some(1 << 21),
            hooks: 1,
            panics: 1,
            at_bound: Some(RejectReason::QueueFull),
            settings: format!(
                "Builder {{ loops: Some(3), elastic: None, thread_stack_size: Some(2097152), \
                 max_pending_tasks: Some(1), \
                 reject_policy: Backoff {{ retries: 2, interval: 1µs }}, io_ratio: 70, \
                 measure_time: true, track_tasks: true, watchdog: None, flight_recorder: None, \
                 wait_strategy: SpinThenPark(1µs), \
                 close_channels: Immediately, precise_timers: true, pinned: {}, io: false, .. }}",
                cfg!(target_os = "linux")
            ),
        };
        let mut dice = Dice(0x5EED);
        for round in 0..40 {
            let observer = Observer::default();
            let mut setters = observer.setters();
            dice.shuffle(&mut setters);
            assert_eq!(observer.look(apply(setters)), expected, "round {round}");
        }
    });
}

#[test]
fn a_limit_of_zero_for_slow_polls_is_refused() {
    let error = builder().slow_poll(Duration::ZERO).build().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let text = "slow_poll: the limit must be above zero; measure_time measures every poll";
    assert_eq!(error.to_string(), text);
}

#[test]
fn slow_polls_are_measured_whether_time_was_declined_before_or_after() {
    let limit = Duration::from_secs(60);
    for builder in [
        builder().measure_time(false).slow_poll(limit),
        builder().slow_poll(limit).measure_time(false),
    ] {
        let group = builder.loops(1).build().unwrap();
        assert!(group.next().metrics().busy().is_some());
    }
}

#[test]
fn the_order_of_setters_does_not_matter_to_the_other_builders_either() {
    within(|| {
        let (one, two) = (builder().loops(1), builder().loops(2));
        let (boss, workers) = (one.build().unwrap(), two.build().unwrap());
        let server = || Server::new("127.0.0.1:0").unwrap();
        let set = server().boss(&boss).workers(&workers).backlog(7);
        let set = set.max_connections(8).reuse_port(true);
        let back = server().reuse_port(true).max_connections(8);
        let back = back.backlog(7).workers(&workers).boss(&boss);
        // Of two setters each comes once after the other: one that takes something back shows.
        let text = format!("{set:?}");
        assert_eq!(text, format!("{back:?}"));
        let parts = [
            format!("boss: Some({boss:?})"),
            format!("workers: Some({workers:?})"),
            "backlog: Some(7), reuse_port: true".into(),
            "max_connections: Some(8)".into(),
        ];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        let set = BlockingGroup::builder().max_threads(3);
        let set = set.when_full(WhenFull::Reject);
        let back = BlockingGroup::builder().when_full(WhenFull::Reject);
        let text = "BlockingBuilder { max_threads: 3, when_full: Reject }";
        assert_eq!(format!("{set:?}"), text);
        assert_eq!(format!("{:?}", back.max_threads(3)), text);
    });
}

#[test]
fn a_wrong_setting_is_found_wherever_it_stands() {
    within(|| {
        type Wrong = (&'static str, fn(Builder) -> Builder);
        let wrong: [Wrong; 6] = [
            ("loops", |b| b.loops(0)),
            ("thread_stack_size", |b| b.thread_stack_size(0)),
            ("max_pending_tasks", |b| b.max_pending_tasks(0)),
            ("io_ratio", |b| b.io_ratio(101)),
            ("thread_name", |b| b.thread_name(|_| "\0")),
            ("wait_strategy", |b| {
                b.wait_strategy(WaitStrategy::SpinThenPark(Duration::ZERO))
            }),
        ];
        let mut dice = Dice(0xBAD);
        for round in 0..60 {
            let (setting, set) = wrong[round % wrong.len()];
            // Setters for other settings only: the same one, later, would put it right.
            let others: [(&str, Setter); 4] = [
                ("loops", Box::new(|b| b.loops(2))),
                ("io_ratio", Box::new(|b| b.io_ratio(10))),
                ("thread_name", Box::new(|b| b.thread_name(|_| "fine"))),
                ("max_pending_tasks", Box::new(|b| b.max_pending_tasks(9))),
            ];
            let mut setters: Vec<Setter> = others
                .into_iter()
                .filter(|(name, _)| *name != setting)
                .map(|(_, set)| set)
                .collect();
            setters.push(Box::new(set));
            dice.shuffle(&mut setters);
            assert_names(apply(setters), setting);
        }
    });
}

#[test]
fn the_last_call_of_a_setter_counts() {
    within(|| {
        let group = builder().loops(0).io_ratio(0).loops(2).io_ratio(1);
        let group = group.thread_name(|_| "\0").thread_name(|_| "good");
        let group = group.build().unwrap();
        assert_eq!(group.len(), 2);
        assert_eq!(names_of(&group, 1).0, "good");
    });
}
