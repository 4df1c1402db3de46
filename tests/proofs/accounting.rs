//! Whatever races with a shutdown, the figures add up and every future ends at home.
//!
//! `LOOPGROUP_SEED` replays one round, `LOOPGROUP_ROUNDS` scales the number of rounds, and
//! `LOOPGROUP_RACES` is the number of races of the soak, of a thousand tasks each.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use loopgroup::blocking::{BlockingGroup, WhenFull};
use loopgroup::{
    EventLoop, EventLoopGroup, JoinError, JoinHandle, RejectReason, TerminationFuture,
    TerminationReport, WaitStrategy, block_on,
};

use crate::util::{blow_up, discard, poll_once, progress, setting, within};

/// Far beyond every round; only a hang reaches it.
const LONG: Duration = Duration::from_secs(40);
const PRODUCERS: u64 = 2;

/// A small generator: the plan of a round comes from its seed alone.
#[derive(Clone, Copy)]
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Lets other threads get ahead, by a random little.
    fn dawdle(&mut self) {
        for _ in 0..self.below(12) {
            thread::yield_now();
        }
    }
}

/// Runs `rounds` rounds, or the one of `LOOPGROUP_SEED`; names the seed of the round that fails.
fn rounds(rounds: u64, round: impl Fn(u64) + Copy + Send + 'static) {
    let seeds = match setting("LOOPGROUP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..rounds,
    };
    let current = Arc::new(AtomicU64::new(0));
    let at = Arc::clone(&current);
    let all = move || {
        let (progress, start) = (progress("round"), Instant::now());
        for seed in seeds.clone() {
            at.store(seed, Ordering::SeqCst);
            round(seed);
            progress.tick();
            let done = seed + 1;
            if done % 1_000 == 0 {
                eprintln!("{done} of {} rounds, {:.0?}", seeds.end, start.elapsed());
            }
        }
    };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| within(all))) {
        let seed = current.load(Ordering::SeqCst);
        eprintln!("failed with LOOPGROUP_SEED={seed}");
        resume_unwind(payload);
    }
}

/// So many rounds, or a multiple of it.
fn scaled(rounds: u64) -> u64 {
    rounds * setting("LOOPGROUP_ROUNDS").unwrap_or(1)
}

/// What a future or closure went through, told by itself.
#[derive(Debug, Default)]
struct Story {
    polled_on: Vec<ThreadId>,
    finished: bool,
    panicked: bool,
    dropped_on: Vec<ThreadId>,
}

type Tale = Arc<Mutex<Story>>;

/// Travels inside a future or closure and writes its story.
struct Witness {
    tale: Tale,
    panics_in_drop: bool,
}

impl Witness {
    fn polled(&self) {
        self.tale
            .lock()
            .unwrap()
            .polled_on
            .push(thread::current().id());
    }

    fn finish(&self, panic: bool) {
        let mut story = self.tale.lock().unwrap();
        story.finished = true;
        story.panicked |= panic;
        drop(story);
        if panic {
            blow_up();
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let panic = self.panics_in_drop && !thread::panicking();
        let mut story = self.tale.lock().unwrap();
        story.dropped_on.push(thread::current().id());
        story.panicked |= panic;
        drop(story);
        if panic {
            blow_up();
        }
    }
}

/// What the submitter was told.
enum Told {
    /// A handle that has not been asked yet.
    Handle(JoinHandle<()>),
    Accepted,
    Refused(RejectReason),
    /// Nothing: the handle was dropped, aborted or cancelled by this thread, which is no loop. A
    /// refused future is dropped by its submitter, an accepted one never is.
    Nothing(ThreadId),
}

struct Item {
    told: Told,
    tale: Tale,
    home: Option<usize>,
}

/// What all threads of a round share.
struct Round {
    loops: Vec<EventLoop>,
    homes: Arc<Mutex<Vec<Option<ThreadId>>>>,
    items: Mutex<Vec<Item>>,
    wakers: Mutex<Vec<Waker>>,
    over: AtomicBool,
    /// Whether a task may wait for ever: not if the round's end waits for it.
    may_hang: bool,
    /// What lets other threads get ahead happens once in so many times.
    pauses: u64,
}

/// How a task gets from one poll to the next.
#[derive(Clone, Copy)]
enum Pace {
    Yields,
    Foreign,
    Never,
}

/// A future that does as its seed says. `L` decides whether it is `Send`.
struct Body<L> {
    witness: Witness,
    round: Arc<Round>,
    rng: Rng,
    pace: Pace,
    left: u64,
    panics: bool,
    parent: bool,
    local: PhantomData<L>,
}

impl<L> Body<L> {
    fn new(round: &Arc<Round>, witness: Witness, seed: u64, parent: bool) -> Body<L> {
        let mut rng = Rng::new(seed);
        let pace = match rng.below(4) {
            0 | 1 => Pace::Yields,
            2 if round.may_hang => Pace::Never,
            _ => Pace::Foreign,
        };
        Body {
            witness,
            round: Arc::clone(round),
            pace,
            left: rng.below(4),
            panics: rng.one_in(6),
            parent: parent && rng.one_in(3),
            rng,
            local: PhantomData,
        }
    }
}

impl<L> Unpin for Body<L> {}

impl<L> Future for Body<L> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.witness.polled();
        if std::mem::take(&mut this.parent) {
            submit_at_home(&this.round, &mut this.rng);
        }
        match this.pace {
            _ if this.left == 0 => {
                this.witness.finish(this.panics);
                return Poll::Ready(());
            }
            Pace::Yields => cx.waker().wake_by_ref(),
            // Woken for nothing now and then, and not for ever.
            Pace::Never if this.rng.one_in(2) => {}
            Pace::Foreign | Pace::Never => {
                this.round.wakers.lock().unwrap().push(cx.waker().clone());
            }
        }
        if !matches!(this.pace, Pace::Never) {
            this.left -= 1;
        }
        Poll::Pending
    }
}

fn witness(rng: &mut Rng) -> (Tale, Witness) {
    let tale = Tale::default();
    let witness = Witness {
        tale: Arc::clone(&tale),
        panics_in_drop: rng.one_in(8),
    };
    (tale, witness)
}

/// Submits from inside a task; every handle is kept, for here a refused future is dropped at home.
fn submit_at_home(round: &Arc<Round>, rng: &mut Rng) {
    let here = EventLoop::current().unwrap();
    for _ in 0..=rng.below(2) {
        let (tale, witness) = witness(rng);
        let seed = rng.next();
        let (told, home) = match rng.below(5) {
            0 => {
                let body = Body::<Rc<()>>::new(round, witness, seed, false);
                let handle = loopgroup::spawn_local(body);
                (Told::Handle(handle), Some(here.index()))
            }
            1 => {
                let body = Body::<Rc<()>>::new(round, witness, seed, false);
                let told = match loopgroup::try_spawn_local(body) {
                    Ok(handle) => Told::Handle(handle),
                    Err(rejected) => {
                        let reason = rejected.reason();
                        discard(rejected.into_inner());
                        Told::Refused(reason)
                    }
                };
                (told, Some(here.index()))
            }
            2 => {
                let body = Body::<()>::new(round, witness, seed, false);
                (Told::Handle(loopgroup::spawn(body)), None)
            }
            3 => {
                let ran = here.dispatch(closure(witness, rng));
                (
                    told_of(ran.map_err(|no| (no.reason(), no.into_inner()))),
                    Some(here.index()),
                )
            }
            _ => {
                let other = rng.below(round.loops.len() as u64) as usize;
                let body = Body::<()>::new(round, witness, seed, false);
                (Told::Handle(round.loops[other].spawn(body)), Some(other))
            }
        };
        round.items.lock().unwrap().push(Item { told, tale, home });
    }
}

fn closure(witness: Witness, rng: &mut Rng) -> impl FnOnce() + Send + use<> {
    call(witness, rng.one_in(6))
}

fn call(witness: Witness, panics: bool) -> impl FnOnce() + Send {
    move || {
        witness.polled();
        witness.finish(panics);
    }
}

fn told_of<F: Any>(result: Result<(), (RejectReason, F)>) -> Told {
    match result {
        Ok(()) => Told::Accepted,
        Err((reason, call)) => {
            discard(call);
            Told::Refused(reason)
        }
    }
}

/// One submission from a thread that is no loop.
fn submit_from_outside(round: &Arc<Round>, group: Option<&EventLoopGroup>, rng: &mut Rng) -> Item {
    let (tale, witness) = witness(rng);
    let seed = rng.next();
    let index = rng.below(round.loops.len() as u64) as usize;
    let ev = &round.loops[index];
    let mut home = Some(index);
    let body = |witness| Body::<()>::new(round, witness, seed, true);
    let told = match rng.below(8) {
        0 | 1 => after_spawn(round, ev.spawn(body(witness)), &tale, rng),
        2 => {
            let own = Arc::clone(round);
            let panics = rng.one_in(8);
            let handle = ev.spawn_with(move || {
                if panics {
                    witness.finish(true);
                }
                Body::<Rc<()>>::new(&own, witness, seed, true)
            });
            after_spawn(round, handle, &tale, rng)
        }
        3 => match ev.try_spawn(body(witness)) {
            Ok(handle) => after_spawn(round, handle, &tale, rng),
            Err(rejected) => {
                let reason = rejected.reason();
                discard(rejected.into_inner());
                Told::Refused(reason)
            }
        },
        4 if rng.one_in(2) => told_of(
            ev.spawn_detached(body(witness))
                .map_err(|no| (no.reason(), no.into_inner())),
        ),
        4 => told_of(
            ev.execute(closure(witness, rng))
                .map_err(|no| (no.reason(), no.into_inner())),
        ),
        5 => told_of(
            ev.execute_after_iteration(closure(witness, rng))
                .map_err(|no| (no.reason(), no.into_inner())),
        ),
        6 => told_of(
            ev.lazy_execute(closure(witness, rng))
                .map_err(|no| (no.reason(), no.into_inner())),
        ),
        _ => match group {
            Some(group) => {
                home = None;
                after_spawn(round, group.spawn(body(witness)), &tale, rng)
            }
            None => Told::Handle(ev.submit(closure(witness, rng))),
        },
    };
    Item { told, tale, home }
}

/// Keeps, drops, aborts or cancels a handle.
fn after_spawn(round: &Round, handle: JoinHandle<()>, tale: &Tale, rng: &mut Rng) -> Told {
    let pause = rng.one_in(round.pauses);
    match rng.below(6) {
        0 => drop(handle),
        1 => {
            if pause {
                rng.dawdle();
            }
            handle.abort();
        }
        2 if pause => {
            rng.dawdle();
            let output = loopgroup::block_on(handle.cancel());
            let story = tale.lock().unwrap();
            assert_eq!(
                story.dropped_on.len(),
                1,
                "cancel() resolved before the drop"
            );
            assert!(output.is_none() || story.finished);
        }
        _ => return Told::Handle(handle),
    }
    Told::Nothing(thread::current().id())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    accepted: u64,
    rejected: u64,
    completed: u64,
    panicked: u64,
    cancelled: u64,
}

impl Figures {
    fn of(report: &TerminationReport) -> Figures {
        Figures {
            accepted: report.accepted(),
            rejected: report.rejected(),
            completed: report.completed(),
            panicked: report.panicked(),
            cancelled: report.cancelled(),
        }
    }

    /// Adds one submission, after checking what it went through against what its submitter was told.
    fn add(&mut self, item: Item, homes: &[Option<ThreadId>]) {
        let story = std::mem::take(&mut *item.tale.lock().unwrap());
        assert_eq!(story.dropped_on.len(), 1, "dropped exactly once: {story:?}");
        let dropped_on = story.dropped_on[0];
        let refused = match item.told {
            Told::Accepted => false,
            Told::Refused(reason) => {
                assert!(matches!(
                    reason,
                    RejectReason::QueueFull | RejectReason::ShutDown
                ));
                true
            }
            Told::Nothing(by) => story.polled_on.is_empty() && dropped_on == by,
            Told::Handle(mut handle) => match poll_once(&mut handle) {
                Poll::Pending => panic!("a handle does not resolve after the end: {story:?}"),
                Poll::Ready(result) => {
                    check_handle(&result, &story);
                    result.is_err_and(|error| error.is_rejected())
                }
            },
        };
        if refused {
            self.rejected += 1;
            assert!(story.polled_on.is_empty(), "refused and polled: {story:?}");
            return;
        }
        self.accepted += 1;
        match item.home {
            Some(index) => assert_eq!(Some(dropped_on), homes[index], "dropped away from home"),
            None => assert!(homes.contains(&Some(dropped_on)), "dropped on no loop"),
        }
        assert!(
            story.polled_on.iter().all(|&on| on == dropped_on),
            "polled away from home: {story:?}"
        );
        match (story.panicked, story.finished) {
            (true, _) => self.panicked += 1,
            (false, true) => self.completed += 1,
            (false, false) => self.cancelled += 1,
        }
    }
}

fn check_handle(result: &Result<(), JoinError>, story: &Story) {
    match result {
        Ok(()) => assert!(story.finished && !story.panicked, "{story:?}"),
        Err(error) if error.is_panic() => assert!(story.panicked, "{story:?}"),
        // A destructor may panic while its task is cancelled, but the task has not finished.
        Err(error) if error.is_cancelled() => assert!(!story.finished, "{story:?}"),
        Err(error) => assert!(error.is_rejected()),
    }
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Now,
    Quiet,
    QuietThenNow,
    Drain,
    DrainTimeout,
    DropLastHandle,
    OneLoopFirst,
}

impl End {
    fn pick(rng: &mut Rng) -> End {
        match rng.below(7) {
            0 => End::Now,
            1 => End::Quiet,
            2 => End::QuietThenNow,
            3 => End::Drain,
            4 => End::DrainTimeout,
            5 => End::DropLastHandle,
            _ => End::OneLoopFirst,
        }
    }

    /// Whether tasks that wait for ever would hold the end up.
    fn waits(self) -> bool {
        matches!(self, End::Drain)
    }

    fn begin(self, group: EventLoopGroup, rng: &mut Rng) {
        match self {
            End::Now => drop(group.shutdown_now()),
            End::Quiet => drop(
                group
                    .shutdown_gracefully_with(Duration::ZERO, LONG)
                    .unwrap(),
            ),
            End::QuietThenNow => {
                drop(group.shutdown_gracefully_with(LONG, LONG).unwrap());
                rng.dawdle();
                drop(group.shutdown_now());
            }
            End::Drain => drop(group.drain(LONG)),
            End::DrainTimeout => drop(group.drain(Duration::ZERO)),
            End::DropLastHandle => drop(group),
            End::OneLoopFirst => {
                drop(group.loops()[0].shutdown_now());
                rng.dawdle();
                drop(group.shutdown_now());
            }
        }
    }
}

/// What a race is like, besides what its seed decides.
#[derive(Clone, Copy, Debug)]
struct Plan {
    bound: Option<usize>,
    /// What each producer submits, at least.
    submissions: u64,
    /// How much is submitted before the end begins, at least.
    before_the_end: usize,
    /// As in [`Round`].
    pauses: u64,
    mistake: Option<Mistake>,
}

/// Made here on purpose, to be found: the positive controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// A task that is neither run nor dropped.
    Abandoned,
    /// A task that is in no book.
    Uncounted,
}

/// A race; returns how many tasks were accepted.
fn race(seed: u64, plan: Plan) -> u64 {
    let mut rng = Rng::new(seed);
    let end = End::pick(&mut rng);
    let loops = 1 + rng.below(3) as usize;
    let homes = Arc::new(Mutex::new(vec![None; loops]));
    let seen = Arc::clone(&homes);
    let mut builder = EventLoopGroup::builder()
        .loops(loops)
        .on_panic(|_| {})
        .on_thread_start(move |ev| {
            seen.lock().unwrap()[ev.index()] = Some(thread::current().id());
        });
    if rng.one_in(2) {
        builder = builder.without_io();
    }
    if rng.one_in(4) {
        builder = builder.wait_strategy(WaitStrategy::SpinThenPark(Duration::from_micros(20)));
    }
    if let Some(bound) = plan.bound {
        builder = builder.max_pending_tasks(bound);
    }
    let group = builder.build().unwrap();
    let termination = group.termination();
    let round = Arc::new(Round {
        loops: group.loops().to_vec(),
        homes,
        items: Mutex::default(),
        wakers: Mutex::default(),
        over: AtomicBool::new(false),
        may_hang: !end.waits(),
        pauses: plan.pauses,
    });
    let hooks = Arc::new(AtomicU64::new(0));
    let mut hooks_added = 0;
    if rng.one_in(3) {
        let ran = Arc::clone(&hooks);
        let hook = move || {
            ran.fetch_add(1, Ordering::SeqCst);
        };
        round.loops[0].add_shutdown_hook(hook).unwrap();
        hooks_added = 1;
    }

    let start = Arc::new(Barrier::new(PRODUCERS as usize + 2));
    let mut threads = Vec::new();
    for _ in 0..PRODUCERS {
        let (round, start, mut rng) =
            (Arc::clone(&round), Arc::clone(&start), Rng::new(rng.next()));
        // A producer with a group handle would keep the last one from going.
        let group = (end != End::DropLastHandle).then(|| group.clone());
        threads.push(thread::spawn(move || {
            start.wait();
            for _ in 0..plan.submissions + rng.below(12) {
                let item = submit_from_outside(&round, group.as_ref(), &mut rng);
                round.items.lock().unwrap().push(item);
                if rng.one_in(4 * plan.pauses) {
                    rng.dawdle();
                }
            }
        }));
    }
    {
        let (round, start) = (Arc::clone(&round), Arc::clone(&start));
        threads.push(thread::spawn(move || {
            start.wait();
            while !round.over.load(Ordering::SeqCst) {
                // Twice each: the second one comes late, also for tasks that are gone.
                let wakers = std::mem::take(&mut *round.wakers.lock().unwrap());
                for waker in wakers {
                    waker.wake_by_ref();
                    waker.wake();
                }
                thread::yield_now();
            }
        }));
    }
    start.wait();
    while round.items.lock().unwrap().len() < plan.before_the_end {
        thread::yield_now();
    }
    for _ in 0..1 + rng.below(4) {
        rng.dawdle();
    }
    end.begin(group, &mut rng);
    let report = termination.wait();
    round.over.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }

    let mut items = std::mem::take(&mut *round.items.lock().unwrap());
    match plan.mistake {
        Some(Mistake::Abandoned) => {
            let (tale, witness) = witness(&mut rng);
            let _ = ManuallyDrop::new(witness);
            let (told, home) = (Told::Accepted, None);
            items.push(Item { told, tale, home });
        }
        Some(Mistake::Uncounted) => drop(items.pop()),
        None => {}
    }
    let attempted = items.len() as u64;
    let homes = round.homes.lock().unwrap().clone();
    let mut counted = Figures::default();
    for item in items {
        counted.add(item, &homes);
    }
    let told = Figures::of(&report);
    assert_eq!(told, counted, "the report and the tasks disagree ({end:?})");
    assert_eq!(attempted, told.accepted + told.rejected);
    assert_eq!(
        told.accepted,
        told.completed + told.panicked + told.cancelled
    );
    assert_eq!(report.hooks_run(), hooks_added);
    assert_eq!(hooks.load(Ordering::SeqCst), hooks_added);
    for ev in &round.loops {
        assert_eq!((ev.pending_tasks(), ev.live_tasks()), (0, 0));
    }
    told.accepted
}

/// Little is under way when the end comes.
const SHORT: Plan = Plan {
    bound: None,
    submissions: 8,
    before_the_end: 0,
    pauses: 1,
    mistake: None,
};

/// A thousand tasks and more.
const SOAK: Plan = Plan {
    bound: None,
    submissions: 600,
    before_the_end: 1_000,
    pauses: 32,
    mistake: None,
};

#[test]
fn submissions_wakes_and_cancels_racing_with_a_shutdown_add_up() {
    rounds(scaled(1_400), |seed| {
        race(seed, SHORT);
    });
}

#[test]
fn the_same_race_below_a_bound_on_pending_tasks_adds_up() {
    rounds(scaled(700), |seed| {
        let bound = Some(1 + seed as usize % 4);
        race(seed, Plan { bound, ..SHORT });
    });
}

#[test]
fn a_soak_of_a_thousand_tasks_in_each_race_adds_up() {
    static ACCEPTED: AtomicU64 = AtomicU64::new(0);
    let usual = if cfg!(debug_assertions) { 50 } else { 1_000 };
    let races = setting("LOOPGROUP_RACES").unwrap_or(usual);
    let start = Instant::now();
    rounds(races, |seed| {
        let accepted = race(seed, SOAK);
        assert!(
            accepted >= 1_000,
            "the gate was open for so many: {accepted}"
        );
        ACCEPTED.fetch_add(accepted, Ordering::SeqCst);
    });
    let accepted = ACCEPTED.load(Ordering::SeqCst);
    eprintln!("{accepted} tasks in {races} races, {:.1?}", start.elapsed());
}

#[test]
fn an_abandoned_task_and_one_that_is_in_no_book_are_found() {
    for (mistake, found) in [
        (Mistake::Abandoned, "dropped exactly once"),
        (Mistake::Uncounted, "the report and the tasks disagree"),
    ] {
        let mistake = Some(mistake);
        for plan in [SHORT, SOAK] {
            let race = move || race(1, Plan { mistake, ..plan });
            let payload = catch_unwind(|| within(race)).unwrap_err();
            let text = payload
                .downcast_ref::<String>()
                .expect("an assertion failed");
            assert!(text.contains(found), "{text}");
        }
    }
}

/// Blocking jobs against the shutdown of their group, with the same book-keeping.
fn race_blocking(seed: u64) {
    let mut rng = Rng::new(seed);
    let group = BlockingGroup::builder()
        .max_threads(1 + rng.below(2) as usize)
        .when_full(if rng.one_in(3) {
            WhenFull::Reject
        } else {
            WhenFull::Wait
        })
        .build()
        .unwrap();
    let start = Arc::new(Barrier::new(PRODUCERS as usize + 1));
    let threads: Vec<_> = (0..PRODUCERS)
        .map(|_| {
            let (group, start, mut rng) = (group.clone(), Arc::clone(&start), Rng::new(rng.next()));
            thread::spawn(move || {
                start.wait();
                let mut items = Vec::new();
                for _ in 0..8 + rng.below(8) {
                    let (tale, mut witness) = witness(&mut rng);
                    // A job that is cancelled counts so, whatever its destructor does.
                    witness.panics_in_drop = false;
                    // A panic that nobody joins would be printed: a blocking group has no handler.
                    let aborts = rng.one_in(3);
                    let panics = !aborts && rng.one_in(6);
                    let told = match group.try_spawn(call(witness, panics)) {
                        Ok(handle) if aborts => {
                            handle.abort();
                            Told::Accepted
                        }
                        Ok(handle) => Told::Handle(handle),
                        Err(no) => {
                            let reason = no.reason();
                            discard(no.into_inner());
                            Told::Refused(reason)
                        }
                    };
                    items.push((told, tale));
                }
                items
            })
        })
        .collect();
    start.wait();
    rng.dawdle();
    let termination = match rng.below(4) {
        0 => group.shutdown_now(),
        1 => group.drain(LONG),
        2 => group.drain(Duration::ZERO),
        _ => group
            .shutdown_gracefully_with(Duration::ZERO, LONG)
            .unwrap(),
    };
    let report = termination.wait();
    let mut counted = Figures::default();
    for thread in threads {
        for (told, tale) in thread.join().unwrap() {
            // Jobs have no home: the check of the thread is that of the story's own.
            let homes: Vec<_> = tale
                .lock()
                .unwrap()
                .dropped_on
                .iter()
                .map(|&id| Some(id))
                .collect();
            counted.add(
                Item {
                    told,
                    tale,
                    home: None,
                },
                &homes,
            );
        }
    }
    let told = Figures::of(&report);
    assert_eq!(told, counted, "the report and the jobs disagree");
    assert_eq!(
        told.accepted,
        told.completed + told.panicked + told.cancelled
    );
}

#[test]
fn blocking_jobs_racing_with_a_shutdown_add_up() {
    rounds(scaled(500), race_blocking);
}

#[test]
fn a_loop_that_runs_in_the_destructor_of_a_refused_task_counts_its_own_tasks() {
    struct RunsALoop(mpsc::Sender<TerminationFuture>);
    impl Drop for RunsALoop {
        fn drop(&mut self) {
            let mut end = None;
            loopgroup::run(async {
                drop(loopgroup::spawn_local(async {})); // never polled: the loop ends first
                end = Some(EventLoop::current().unwrap().termination());
            })
            .unwrap();
            self.0.send(end.unwrap()).unwrap();
        }
    }
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        let end = group.shutdown_now();
        end.wait();
        let (tx, rx) = mpsc::channel();
        let held = RunsALoop(tx);
        let refused = group.spawn(async move { drop(held) });
        assert!(block_on(refused).unwrap_err().is_rejected());
        let inside = rx.recv().unwrap().wait();
        assert_eq!((inside.accepted(), inside.cancelled()), (1, 1));
        let outside = end.wait();
        assert_eq!((outside.accepted(), outside.rejected()), (0, 1));
    });
}
