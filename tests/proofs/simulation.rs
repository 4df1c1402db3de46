//! Random lives of a group, each drawn from a seed: whatever the interleaving, the promises hold.
//!
//! A life is up to sixty random operations and faults on one to four loops, of an elastic group in a
//! quarter of the lives, which pauses and resumes them by load: submissions of every kind from outside and
//! from tasks, panics in polls, destructors, outputs, hooks, wakers and values, spawns in destructors,
//! wakes and aborts from other threads, jumps of the clock, timers of every kind, bounds, shutdowns of
//! loops and of the group. Everything submitted carries a [`Token`] that tells its own fate.
//! Checked, all the while and at the end:
//!
//! - every poll, call and drop happens at home, none after the end, and each submission has one fate;
//! - the figures of the report are exactly those that the tokens tell; nothing is left;
//! - every handle resolves, and to what its task went through;
//! - timers fire at their moment, to the nanosecond, and those of one moment in the order of their making;
//! - what one submitter gives to one loop begins in that order; hooks run in order, all of them;
//! - a task that was cancelled is not polled, and a woken one is; a shutdown leaves no timer; a loop at
//!   rest has nothing queued; a state never goes back.
//!
//! A turn takes no time on this clock, so load only falls: an elastic group sets loops aside that were
//! resumed by hand, and resumes one when too few are left because of a pause by hand. A test drives all its
//! loops on one thread, so none of them gives it back.
//!
//! A failing seed is printed with the command that replays it. `LOOPGROUP_SEEDS=<count>` runs more than
//! the 10,000 of a release build (1,000 in a debug build).

use std::future::{Future, pending};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::testing::TestGroup;
use loopgroup::time::{interval, now, sleep, timeout};
use loopgroup::{
    Elastic, EventLoop, EventLoopGroup, HookId, JoinError, JoinHandle, LeastBusy, LeastLoaded,
    LoopBound, LoopState, PreferCurrent, RejectReason, Scheduled, TerminationReport,
};

use crate::util::{Random, blow_up, discard, ms, progress, setting, within};

/// Whoever submits and is no loop.
const OUTSIDE: usize = 4;

fn here() -> Option<usize> {
    EventLoop::current().map(|ev| ev.index())
}

/// On a thread of its own, and not before it is done: a life stays the same in every run.
fn on_another_thread(call: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(call).join().unwrap());
}

/// Whether a submission runs in the order of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Main,
    Tail,
    /// In no order that this test knows.
    None,
}

/// How a submission ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Completed,
    Panicked,
    Cancelled,
    Refused,
    /// Refused where there is no loop that could count it.
    Stray,
}

/// What the figures of a life should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    born: u64,
    completed: u64,
    panicked: u64,
    cancelled: u64,
    refused: u64,
    strays: u64,
}

#[derive(Debug, Default)]
struct Books {
    tally: Tally,
    /// Of the last submission that began, for each submitter, loop and lane.
    begun: [[[u64; 2]; OUTSIDE]; OUTSIDE + 1],
    /// Moment and id of the last one-time closure, for each loop.
    fired: [Option<(Instant, u64)>; OUTSIDE],
    /// Id of the last hook, for each loop.
    hooked: [u64; OUTSIDE],
    hooks_added: u64,
    hooks_removed: u64,
    hooks_panicked: u64,
    values_made: u64,
    values_dropped: u64,
    /// Who is being submitted just now, innermost last.
    submitting: Vec<u64>,
    faults: Vec<String>,
    trace: u64,
}

/// What everything in a life shares.
#[derive(Debug)]
struct World {
    start: Instant,
    loops: u64,
    ids: AtomicU64,
    books: Mutex<Books>,
    /// Tasks that wait to be woken, and whether they have been polled since.
    waiting: Mutex<Vec<(Waker, Arc<AtomicBool>)>>,
    /// The loops, for those that submit to a sibling.
    siblings: Vec<EventLoop>,
    /// The group drains, and none of its loops was asked for anything else.
    drains: AtomicBool,
    bug: Option<Bug>,
}

impl World {
    fn id(&self) -> u64 {
        self.ids.fetch_add(1, SeqCst) + 1
    }

    fn books<R>(&self, look: impl FnOnce(&mut Books) -> R) -> R {
        look(&mut self.books.lock().unwrap())
    }

    fn check(&self, holds: bool, what: &str) {
        if !holds {
            self.books(|books| books.faults.push(what.to_owned()));
        }
    }

    /// Writes an event into the trace: what, to whom, where and when.
    fn trace(&self, what: u64, id: u64) {
        let place = here().map_or(OUTSIDE, |index| index) as u64;
        let passed = now().saturating_duration_since(self.start).as_nanos() as u64;
        self.books(|books| {
            for word in [what, id, place, passed] {
                books.trace = (books.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3);
            }
        });
    }

    fn on_time(&self, due: Instant, what: &str) {
        self.check(now() >= due, &format!("{what} was early"));
        self.check(now() <= due, &format!("{what} was late"));
    }

    /// A one-time closure that waited until `due`.
    fn fired(&self, due: Instant, id: u64) {
        let index = here().unwrap_or(0);
        let last = self.books(|books| books.fired[index].replace((due, id)));
        self.check(last < Some((due, id)), "timers fired out of order");
    }
}

/// Goes with everything that is submitted, and tells what becomes of it.
struct Token {
    world: Arc<World>,
    id: u64,
    submitter: usize,
    /// Where it has to run, if that is known.
    home: Option<usize>,
    lane: Lane,
    begun: bool,
    /// How it ended, if it did so by itself.
    ended: Option<Fate>,
    story: Story,
    panics_in_drop: bool,
    /// Submitted to the loop around it, where there is none.
    homeless: bool,
}

/// What token and handle of a submission share.
#[derive(Debug, Default)]
struct Tale {
    fate: Mutex<Option<Fate>>,
    /// Set before it is aborted or cancelled; from outside, so that no poll is under way.
    given_up: AtomicBool,
}

impl Tale {
    fn fate(&self) -> Option<Fate> {
        *self.fate.lock().unwrap()
    }

    fn give_up(&self) {
        self.given_up.store(true, SeqCst);
    }
}

type Story = Arc<Tale>;

impl Token {
    fn new(world: &Arc<World>, home: Option<usize>, lane: Lane, random: &mut Random) -> Token {
        world.books(|books| books.tally.born += 1);
        Token {
            world: Arc::clone(world),
            id: world.id(),
            submitter: here().unwrap_or(OUTSIDE),
            home,
            lane,
            begun: false,
            ended: None,
            story: Story::default(),
            panics_in_drop: random.one_in(12),
            homeless: false,
        }
    }

    /// A poll or a call.
    fn begin(&mut self) {
        let world = &self.world;
        world.trace(1, self.id);
        world.check(self.ended.is_none(), "polled after its end");
        let given_up = self.story.given_up.load(SeqCst);
        world.check(!given_up, "polled after it was cancelled");
        let here = here();
        world.check(here.is_some(), "polled away from home");
        let index = here.unwrap_or(0);
        let home = *self.home.get_or_insert(index);
        world.check(home == index, "polled away from home");
        if self.begun {
            return;
        }
        self.begun = true;
        if self.lane != Lane::None {
            let lane = usize::from(self.lane == Lane::Tail);
            let last = world.books(|books| {
                let last = &mut books.begun[self.submitter][index][lane];
                std::mem::replace(last, self.id)
            });
            world.check(last < self.id, "begun out of order");
        }
    }

    fn complete(&mut self) {
        self.ended = Some(Fate::Completed);
    }

    fn panic(&mut self) -> ! {
        self.ended = Some(Fate::Panicked);
        blow_up()
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let world = &self.world;
        world.trace(2, self.id);
        let refused = world.books(|books| books.submitting.contains(&self.id));
        let panics = self.panics_in_drop && !thread::panicking();
        let fate = match self.ended {
            None if self.homeless => Fate::Stray,
            None if refused => Fate::Refused,
            // Dropped by a call that unwinds before it has begun: a visit to a value that was not made.
            None if thread::panicking() => Fate::Panicked,
            _ if panics => Fate::Panicked,
            ended => ended.unwrap_or(Fate::Cancelled),
        };
        if !matches!(fate, Fate::Refused | Fate::Stray) {
            let (here, home) = (here(), self.home);
            let at_home = here.is_some() && (home.is_none() || here == home);
            world.check(at_home, "dropped away from home");
        }
        let told = self.story.fate.lock().unwrap().replace(fate);
        world.check(told.is_none(), "one fate");
        world.books(|books| {
            let tally = &mut books.tally;
            *match fate {
                Fate::Completed => &mut tally.completed,
                Fate::Panicked => &mut tally.panicked,
                Fate::Cancelled => &mut tally.cancelled,
                Fate::Refused => &mut tally.refused,
                Fate::Stray => &mut tally.strays,
            } += 1;
        });
        if panics {
            blow_up();
        }
    }
}

/// Submits what carries the token of that id: dropped meanwhile, it was refused.
fn submitting<R>(world: &Arc<World>, id: u64, submit: impl FnOnce() -> R) -> R {
    world.books(|books| books.submitting.push(id));
    let result = submit();
    world.books(|books| books.submitting.pop());
    result
}

/// The output of a task; its destructor may panic, in whosever hands it is.
struct Output {
    panics_in_drop: bool,
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.panics_in_drop && !thread::panicking() {
            blow_up();
        }
    }
}

type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that does one thing per poll.
struct Actor {
    token: Token,
    random: Random,
    steps: u64,
    /// What it waits for.
    wait: Option<Waiting>,
    polled: Option<Arc<AtomicBool>>,
    spawns_in_drop: bool,
}

impl Actor {
    fn new(world: &Arc<World>, home: Option<usize>, random: &mut Random) -> Actor {
        let token = Token::new(world, home, Lane::Main, random);
        Actor {
            random: Random(random.below(u64::MAX)),
            steps: random.below(5),
            wait: None,
            polled: None,
            spawns_in_drop: random.one_in(12),
            token,
        }
    }

    /// One that does less: children do not multiply.
    fn child(&mut self, home: Option<usize>) -> Actor {
        let mut child = Actor::new(&self.token.world, home, &mut self.random);
        child.steps = child.steps.min(1);
        child.spawns_in_drop = false;
        child
    }

    fn step(&mut self, cx: &mut Context<'_>) {
        let world = Arc::clone(&self.token.world);
        let (home, start) = (here(), now());
        let time = ms(self.random.below(20));
        self.wait = match self.random.below(14) {
            0 => {
                let own = Arc::clone(&world);
                Some(Box::pin(async move {
                    sleep(time).await;
                    own.on_time(start + time, "a sleep");
                }))
            }
            1 => {
                let (bound, own) = (ms(self.random.below(20)), Arc::clone(&world));
                Some(Box::pin(async move {
                    let in_time = timeout(bound, sleep(time)).await.is_ok();
                    own.on_time(start + time.min(bound), "a timeout");
                    own.check(in_time == (time <= bound), "a timeout tells the truth");
                }))
            }
            2 => {
                let (period, own) = (time + Duration::from_millis(1), Arc::clone(&world));
                Some(Box::pin(async move {
                    let mut ticks = interval(period);
                    for n in 0..3 {
                        ticks.tick().await;
                        own.on_time(start + period * n, "a tick");
                    }
                }))
            }
            3 => Some(Box::pin(loopgroup::shutdown_requested())),
            4 => {
                let child = self.child(home);
                let id = child.token.id;
                drop(submitting(&world, id, || loopgroup::spawn_local(child)));
                None
            }
            5 => {
                let child = self.child(None);
                let id = child.token.id;
                drop(submitting(&world, id, || loopgroup::spawn(child)));
                None
            }
            6 => {
                // Awaits a child on any loop.
                let child = self.child(None);
                let (id, story) = (child.token.id, Arc::clone(&child.token.story));
                let handle = submitting(&world, id, || loopgroup::spawn(child));
                Some(Box::pin(async move {
                    let result = handle.await;
                    world.check(agrees(&result, &story), "a handle tells the truth");
                    discard(result);
                }))
            }
            7 => {
                let mut token = Token::new(&world, home, Lane::None, &mut self.random);
                let (id, inline) = (token.id, self.random.one_in(2));
                token.lane = if inline { Lane::None } else { Lane::Tail };
                let call = call(token, self.random.one_in(6));
                let ev = EventLoop::current().expect("a task is polled on its loop");
                submitting(&world, id, || {
                    discard(match inline {
                        true => ev.dispatch(call),
                        false => ev.execute_after_iteration(call),
                    });
                });
                None
            }
            8 if self.random.one_in(2) => self.token.panic(),
            9 | 10 => {
                let polled = Arc::new(AtomicBool::new(false));
                self.polled = Some(Arc::clone(&polled));
                let waker = match world.bug {
                    Some(Bug::LostWake) => Waker::noop().clone(),
                    _ => cx.waker().clone(),
                };
                world.waiting.lock().unwrap().push((waker, polled));
                // Until somebody outside wakes it.
                return;
            }
            _ => None,
        };
        cx.waker().wake_by_ref();
    }
}

impl Future for Actor {
    type Output = Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Output> {
        self.token.begin();
        if let Some(polled) = self.polled.take() {
            polled.store(true, SeqCst);
        }
        if let Some(wait) = &mut self.wait {
            if wait.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.wait = None;
        }
        if self.steps == 0 {
            self.token.complete();
            if self.token.world.bug == Some(Bug::PolledAgain) {
                self.token.begin();
            }
            return Poll::Ready(Output {
                panics_in_drop: self.random.one_in(8),
            });
        }
        self.steps -= 1;
        self.step(cx);
        Poll::Pending
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Some(polled) = self.polled.take() {
            polled.store(true, SeqCst);
        }
        if self.spawns_in_drop {
            let mut child = self.child(here());
            child.token.homeless = here().is_none();
            let world = Arc::clone(&self.token.world);
            submitting(&world, child.token.id, || {
                if let Err(refused) = loopgroup::try_spawn_local(child) {
                    let lost = refused.reason() == RejectReason::NoContext;
                    world.check(lost == here().is_none(), "refused for the right reason");
                    discard(refused);
                }
            });
        }
    }
}

/// Whether what a handle says is what its task went through.
fn agrees<T>(result: &Result<T, JoinError>, story: &Story) -> bool {
    let told = story.fate();
    match result {
        Ok(_) => told == Some(Fate::Completed),
        Err(error) if error.is_panic() => told == Some(Fate::Panicked),
        // The destructor of a task that is cancelled may panic: then it counts as one that panicked.
        Err(error) if error.is_cancelled() => {
            matches!(told, Some(Fate::Cancelled | Fate::Panicked))
        }
        Err(_) => told == Some(Fate::Refused),
    }
}

/// A closure that tells its fate.
fn call(mut token: Token, panics: bool) -> impl FnOnce() + Send + 'static {
    move || {
        token.begin();
        if panics {
            token.panic();
        }
        token.complete();
    }
}

/// A value that lives on a loop.
struct Value {
    world: Arc<World>,
    home: usize,
    panics_in_drop: bool,
}

impl Drop for Value {
    fn drop(&mut self) {
        let at_home = here() == Some(self.home);
        self.world.check(at_home, "a value dropped away from home");
        self.world.books(|books| books.values_dropped += 1);
        if self.panics_in_drop && !thread::panicking() {
            blow_up();
        }
    }
}

/// A waker that panics.
struct BadWaker;

impl Wake for BadWaker {
    fn wake(self: Arc<Self>) {
        blow_up();
    }
}

type Cancelling = Pin<Box<dyn Future<Output = Option<Output>> + Send>>;

/// What a life holds of what it submitted.
enum Held {
    Task(JoinHandle<Output>, Story),
    Call(JoinHandle<()>, Story),
    Cancelling(Cancelling, Story),
    /// With its loop.
    Timer(Scheduled<()>, Story, usize),
    /// A handle that is asked only whether it resolves.
    Other(JoinHandle<()>),
}

impl Held {
    /// Asks; `None` if it does not know yet, else whether it told the truth.
    fn ask(&mut self, waker: &Waker) -> Option<bool> {
        let cx = &mut Context::from_waker(waker);
        let polled = match self {
            Held::Task(handle, story) => Pin::new(handle).poll(cx).map(|result| {
                let agrees = agrees(&result, story);
                discard(result);
                agrees
            }),
            Held::Call(handle, story) => {
                let polled = Pin::new(handle).poll(cx);
                polled.map(|result| agrees(&result, story))
            }
            Held::Timer(timer, story, _) => {
                let polled = Pin::new(timer).poll(cx);
                polled.map(|result| {
                    // Whoever cancels a timer need not wait for the drop of its closure.
                    let soon = result.as_ref().is_err_and(JoinError::is_cancelled)
                        && story.fate().is_none();
                    soon || agrees(&result, story)
                })
            }
            Held::Cancelling(cancelling, story) => cancelling.as_mut().poll(cx).map(|output| {
                let told = story.fate();
                let agrees = told.is_some() && (output.is_none() || told == Some(Fate::Completed));
                discard(output);
                agrees
            }),
            Held::Other(handle) => Pin::new(handle).poll(cx).map(|_| true),
        };
        match polled {
            Poll::Ready(agrees) => Some(agrees),
            Poll::Pending => None,
        }
    }
}

/// One life, as it is lived.
struct Life {
    world: Arc<World>,
    random: Random,
    test: TestGroup,
    held: Vec<Held>,
    hooks: Vec<(usize, HookId)>,
    values: Vec<LoopBound<Value>>,
    /// Submissions that carry no token: the making of values.
    binds: u64,
    states: Vec<LoopState>,
    /// A loop was asked to end alone.
    one_ended: bool,
    elastic: bool,
    /// Which loops were paused when it last looked.
    paused: Vec<bool>,
    /// Loops that were resumed and paused by load.
    steps: [u64; 2],
}

impl Life {
    fn new(seed: u64, bug: Option<Bug>) -> Life {
        let mut random = Random(seed);
        let loops = 1 + random.below(OUTSIDE as u64);
        let mut builder = EventLoopGroup::builder()
            .loops(loops as usize)
            .on_panic(|_| {});
        let elastic = random.one_in(4);
        if elastic {
            builder = builder.elastic(Elastic {
                min: 1 + random.below(loops) as usize,
                max: loops as usize,
                patience: ms(1 + random.below(30)),
                ..Elastic::default()
            });
        }
        if random.one_in(4) {
            builder = builder.max_pending_tasks(1 + random.below(6) as usize);
        }
        builder = match random.below(4) {
            0 => builder.chooser(LeastLoaded::default()),
            1 => builder.chooser(LeastBusy::default()),
            2 => builder.chooser(PreferCurrent::default()),
            _ => builder,
        };
        let test = TestGroup::from_builder(seed, builder).unwrap();
        let world = Arc::new(World {
            start: test.now(),
            loops,
            ids: AtomicU64::new(0),
            books: Mutex::default(),
            waiting: Mutex::default(),
            siblings: test.group().loops().to_vec(),
            drains: AtomicBool::new(false),
            bug,
        });
        let paused = world.siblings.iter().map(EventLoop::is_paused).collect();
        Life {
            paused,
            steps: [0; 2],
            elastic,
            world,
            random,
            test,
            held: Vec::new(),
            hooks: Vec::new(),
            values: Vec::new(),
            binds: 0,
            states: vec![LoopState::NotStarted; loops as usize],
            one_ended: false,
        }
    }

    fn operation(&mut self) {
        let index = self.random.below(self.world.loops) as usize;
        let ev = self.test.group().loops()[index].clone();
        match self.random.below(22) {
            0..=4 => self.spawn(index, &ev),
            5 | 6 => self.call(index, &ev),
            7 => self.schedule(index, &ev),
            8 if self.random.one_in(3) => self.schedule_again_and_again(index, &ev),
            8 | 9 => self.wake_all(),
            10 => self.hook(index, &ev),
            11 => self.value(index, &ev),
            12 | 13 => self.with_a_handle(),
            14 => {
                let far = self.random.one_in(10);
                let time = ms(self.random.below(if far { 100_000 } else { 25 }));
                self.test.advance(time);
                self.at_rest();
            }
            15 if self.random.one_in(6) => self.end_one(&ev),
            16 => {
                self.test.run_until_stalled();
                self.at_rest();
            }
            17 if self.random.one_in(2) => self.pause(&ev),
            18 | 19 if self.elastic => self.pause(&ev),
            20 | 21 if self.elastic => {
                // Time for some looks, once a loop has had a turn.
                self.test.step();
                let time = ms(self.random.below(100));
                self.test.advance(time);
                self.at_rest();
            }
            _ => self.test.step(),
        }
        self.look_at_states();
    }

    /// Pauses a loop, or resumes it; from then on the next one is one that is to be chosen, if there is one.
    fn pause(&mut self, ev: &EventLoop) {
        match ev.is_paused() {
            true => ev.resume(),
            false => ev.pause(),
        }
        self.paused[ev.index()] = ev.is_paused();
        let group = self.test.group();
        let is_open = |one: &EventLoop| !one.state().is_shutting_down() && !one.is_paused();
        let holds = is_open(group.next()) || !group.loops().iter().any(is_open);
        self.world.check(holds, "chosen although it is paused");
    }

    fn spawn(&mut self, index: usize, ev: &EventLoop) {
        let (world, random) = (Arc::clone(&self.world), &mut self.random);
        let way = random.below(4);
        let home = (way != 3).then_some(index);
        let actor = Actor::new(&world, home, random);
        let (id, story) = (actor.token.id, Arc::clone(&actor.token.story));
        let group = self.test.group();
        let handle = submitting(&world, id, || match way {
            0 => Some(group.spawn_on(index, actor)),
            1 => Some(ev.spawn_with(move || actor)),
            2 => ev.try_spawn(actor).map_err(discard).ok(),
            _ => Some(group.spawn(actor)),
        });
        if let Some(handle) = handle {
            self.held.push(Held::Task(handle, story));
        }
    }

    fn call(&mut self, index: usize, ev: &EventLoop) {
        let (world, random) = (Arc::clone(&self.world), &mut self.random);
        let way = random.below(4);
        let lane = if way == 0 { Lane::Tail } else { Lane::Main };
        let mut token = Token::new(&world, Some(index), lane, random);
        if world.bug == Some(Bug::Swapped) {
            // The later of two has the smaller number.
            token.id = u64::MAX - token.id;
        }
        let (id, story) = (token.id, Arc::clone(&token.story));
        let call = call(token, random.one_in(6));
        submitting(&world, id, || match way {
            0 => discard(ev.execute_after_iteration(call)),
            1 => discard(ev.execute(call)),
            2 => discard(ev.lazy_execute(call)),
            _ => self.held.push(Held::Call(ev.submit(call), story)),
        });
    }

    fn schedule(&mut self, index: usize, ev: &EventLoop) {
        let (world, random) = (Arc::clone(&self.world), &mut self.random);
        let delay = ms(random.below(30));
        let token = Token::new(&world, Some(index), Lane::None, random);
        let due = match world.bug {
            Some(Bug::EarlyTimer) => now() + delay + Duration::from_nanos(1),
            _ => now() + delay,
        };
        let (id, story, own) = (token.id, Arc::clone(&token.story), Arc::clone(&world));
        let call = call(token, random.one_in(6));
        let timer = submitting(&world, id, || {
            ev.schedule(delay, move || {
                own.on_time(due, "a scheduled closure");
                // One that was due at once was in no queue of timers.
                if !delay.is_zero() {
                    own.fired(due, id);
                }
                call();
            })
        });
        self.held.push(Held::Timer(timer, story, index));
    }

    fn schedule_again_and_again(&mut self, index: usize, ev: &EventLoop) {
        let (world, random) = (Arc::clone(&self.world), &mut self.random);
        let (initial, period) = (ms(random.below(30)), ms(random.below(2_000)));
        let period = period + Duration::from_secs(1);
        let mut left = random.below(20);
        let mut token = Token::new(&world, Some(index), Lane::None, random);
        let (id, story, own) = (token.id, Arc::clone(&token.story), Arc::clone(&world));
        let mut due = now() + initial;
        let tick = move || {
            token.begin();
            own.on_time(due, "a periodic closure");
            due += period;
            if left == 0 {
                token.panic();
            }
            left -= 1;
        };
        let rate = random.one_in(2);
        let timer = submitting(&world, id, || match rate {
            true => ev.schedule_at_fixed_rate(initial, period, tick),
            false => ev.schedule_with_fixed_delay(initial, period, tick),
        });
        self.held.push(Held::Timer(timer.unwrap(), story, index));
    }

    /// Wakes from outside, also of tasks that are gone; then those that are not have been polled.
    fn wake_all(&mut self) {
        let waiting = std::mem::take(&mut *self.world.waiting.lock().unwrap());
        let wake = || waiting.iter().for_each(|(waker, _)| waker.wake_by_ref());
        if self.random.one_in(10) {
            on_another_thread(wake);
        } else {
            wake();
        }
        self.test.run_until_stalled();
        let polled = waiting.iter().all(|(_, polled)| polled.load(SeqCst));
        self.world.check(polled, "a wake was lost");
        self.at_rest();
    }

    fn hook(&mut self, index: usize, ev: &EventLoop) {
        if self.random.one_in(3) && !self.hooks.is_empty() {
            let at = self.random.below(self.hooks.len() as u64) as usize;
            let (index, id) = self.hooks.swap_remove(at);
            let removed = self.test.group().loops()[index].remove_shutdown_hook(id);
            self.world
                .books(|books| books.hooks_removed += u64::from(removed));
            return;
        }
        let way = self.random.below(5);
        let seed = self.random.below(u64::MAX);
        if let Some(id) = add_hook(&self.world, index, ev, way, seed) {
            self.hooks.push((index, id));
        }
    }

    fn value(&mut self, index: usize, ev: &EventLoop) {
        let (world, random) = (Arc::clone(&self.world), &mut self.random);
        match random.below(3) {
            0 => {
                self.binds += 1;
                let (init_panics, panics_in_drop) = (random.one_in(30), random.one_in(8));
                self.values.push(ev.bind(move || {
                    if init_panics {
                        blow_up();
                    }
                    world.books(|books| books.values_made += 1);
                    Value {
                        world,
                        home: index,
                        panics_in_drop,
                    }
                }));
            }
            1 if !self.values.is_empty() => {
                let at = random.below(self.values.len() as u64) as usize;
                discard(self.values.swap_remove(at));
            }
            _ if !self.values.is_empty() => {
                let at = random.below(self.values.len() as u64) as usize;
                let value = self.values[at].clone();
                let home = value.event_loop().index();
                let mut token = Token::new(&world, Some(home), Lane::Main, random);
                let (id, story, own) = (token.id, Arc::clone(&token.story), Arc::clone(&world));
                let handle = submitting(&world, id, || {
                    value.with(move |value| {
                        token.begin();
                        own.check(here() == Some(value.home), "a visit away from home");
                        token.complete();
                    })
                });
                self.held.push(Held::Call(handle, story));
            }
            _ => {}
        }
    }

    fn with_a_handle(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.random.below(self.held.len() as u64) as usize;
        let mut held = self.held.swap_remove(at);
        let asked = match self.random.below(8) {
            0 => held.ask(&Waker::from(Arc::new(BadWaker))),
            1 => held.ask(Waker::noop()),
            _ => None,
        };
        if let Some(truth) = asked {
            return self.world.check(truth, "a handle tells the truth");
        }
        let elsewhere = self.random.one_in(10);
        match (self.random.below(5), held) {
            (0, Held::Task(handle, story)) => {
                story.give_up();
                match self.world.bug {
                    Some(Bug::AbortDetaches) => drop(handle),
                    _ if elsewhere => on_another_thread(|| handle.abort()),
                    _ => handle.abort(),
                }
            }
            (0, Held::Call(handle, story)) => {
                story.give_up();
                handle.abort();
            }
            (0 | 1, Held::Timer(timer, story, index)) => {
                if timer.cancel() {
                    story.give_up();
                    self.world.check(timer.is_finished(), "cancelled");
                    let ran = story.fate() == Some(Fate::Completed);
                    self.world.check(!ran, "it ran and was cancelled");
                }
                self.held.push(Held::Timer(timer, story, index));
            }
            (1, Held::Task(handle, story)) => {
                story.give_up();
                let cancelling = Box::pin(handle.cancel());
                self.held.push(Held::Cancelling(cancelling, story));
            }
            (2, held) => drop(held),
            (_, held) => self.held.push(held),
        }
    }

    fn end_one(&mut self, ev: &EventLoop) {
        self.one_ended = true;
        let (quiet, bound) = (ms(self.random.below(10)), Duration::from_millis(50));
        drop(match self.random.below(3) {
            0 => ev.shutdown_now(),
            1 => ev.drain(bound),
            _ => ev.shutdown_gracefully_with(quiet, bound).unwrap(),
        });
    }

    fn end(&mut self) {
        let (quiet, bound) = (ms(self.random.below(10)), Duration::from_millis(50));
        let group = self.test.group();
        let way = self.random.below(4);
        let drains = matches!(way, 1 | 2) && !self.one_ended;
        self.world.drains.store(drains, SeqCst);
        drop(match way {
            0 => group.shutdown_now(),
            1 => group.drain(bound),
            2 => group.drain(Duration::ZERO),
            _ => group.shutdown_gracefully_with(quiet, bound).unwrap(),
        });
        if self.random.one_in(4) {
            self.test.step();
            self.world.drains.store(false, SeqCst);
            drop(self.test.group().shutdown_now());
        }
        self.test.advance(Duration::from_millis(60));
        self.look_at_states();
    }

    /// Nothing is queued on a loop that has come to rest, and none of its timers waits if it shuts down.
    fn at_rest(&self) {
        let loops = self.test.group().loops();
        let queued = loops.iter().any(|ev| ev.pending_tasks() > 0);
        self.world.check(!queued, "queued at rest");
        for held in &self.held {
            if let Held::Timer(timer, _, index) = held {
                let waits = !timer.is_finished() && loops[*index].state().is_shutting_down();
                self.world.check(!waits, "a timer waits in a shutdown");
            }
        }
    }

    fn look_at_states(&mut self) {
        for (ev, last) in self.test.group().loops().iter().zip(&mut self.states) {
            let state = ev.state();
            self.world.check(state >= *last, "a state went back");
            *last = state;
        }
        for (ev, last) in self.test.group().loops().iter().zip(&mut self.paused) {
            let paused = ev.is_paused();
            if std::mem::replace(last, paused) != paused {
                self.steps[usize::from(paused)] += 1;
            }
        }
    }

    /// What has to hold after the end; returns the trace.
    fn reckon(mut self) -> Result<Lived, Vec<String>> {
        let world = Arc::clone(&self.world);
        let Some(report) = self.test.report() else {
            return Err(vec!["the timeout has passed".into()]);
        };
        world.check(self.test.pending() == 0, "something is left");
        for mut held in self.held.drain(..) {
            match held.ask(Waker::noop()) {
                None => world.check(false, "a handle does not resolve"),
                Some(truth) => world.check(truth, "a handle tells the truth"),
            }
        }
        self.values.drain(..).for_each(discard);
        self.reckon_figures(&report);
        let trace = self.test.trace();
        world.books(|books| match books.faults.is_empty() {
            true => Ok(Lived {
                trace: trace ^ books.trace.rotate_left(1),
                steps: self.steps,
            }),
            false => Err(std::mem::take(&mut books.faults)),
        })
    }

    fn reckon_figures(&self, report: &TerminationReport) {
        let (world, binds) = (&self.world, self.binds);
        let (tally, hooks, values) = world.books(|books| {
            let hooks = [
                books.hooks_added - books.hooks_removed,
                books.hooks_panicked,
            ];
            (books.tally, hooks, books.values_made - books.values_dropped)
        });
        world.check(values == 0, "a value is left");
        let told = [report.hooks_run(), report.hooks_panicked()];
        world.check(told == hooks, "every hook runs once");
        let ends = tally.completed + tally.panicked + tally.cancelled;
        let fates = ends + tally.refused + tally.strays;
        world.check(tally.born == fates, "every submission has one fate");
        // Those that make a value carry no token: they were accepted or refused, and accepted ones
        // completed or were cancelled.
        let accepted_binds = report.accepted().wrapping_sub(ends);
        world.check(accepted_binds <= binds, "accepted");
        let refused = tally.refused + binds.wrapping_sub(accepted_binds);
        world.check(report.rejected() == refused, "refused");
        world.check(report.panicked() == tally.panicked, "panicked");
        let completed = report.completed().wrapping_sub(tally.completed);
        let cancelled = report.cancelled().wrapping_sub(tally.cancelled);
        let others = completed.wrapping_add(cancelled);
        let plausible = completed <= binds && cancelled <= binds;
        world.check(
            plausible && others == accepted_binds,
            "completed, cancelled",
        );
        for one in report.loops() {
            let ends = one.completed() + one.panicked() + one.cancelled();
            world.check(one.accepted() == ends, "the sum of a loop");
        }
    }
}

/// Adds a hook that panics, submits, adds another one, or does nothing.
fn add_hook(
    world: &Arc<World>,
    index: usize,
    ev: &EventLoop,
    way: u64,
    seed: u64,
) -> Option<HookId> {
    let id = world.id();
    let own = Arc::clone(world);
    let hook = move || {
        own.trace(3, id);
        let last = own.books(|books| std::mem::replace(&mut books.hooked[index], id));
        own.check(last < id, "hooks ran out of order");
        own.check(here() == Some(index), "a hook away from home");
        let mut random = Random(seed);
        match way {
            0 => {
                own.books(|books| books.hooks_panicked += 1);
                blow_up();
            }
            1 => {
                let actor = Actor::new(&own, Some(index), &mut random);
                let id = actor.token.id;
                drop(submitting(&own, id, || loopgroup::spawn_local(actor)));
            }
            2 => {
                let ev = EventLoop::current().expect("a hook runs on its loop");
                add_hook(&own, index, &ev, 3, seed);
            }
            3 => visit_a_sibling(&own, index, &mut random),
            _ => {}
        }
    };
    let added = ev.add_shutdown_hook(hook).ok();
    let lost = world.bug == Some(Bug::LostHook);
    world.books(|books| books.hooks_added += u64::from(added.is_some() || lost));
    added
}

/// A hook submits to a sibling: while its group drains, that accepts.
fn visit_a_sibling(world: &Arc<World>, index: usize, random: &mut Random) {
    let there = random.below(world.loops) as usize;
    let actor = Actor::new(world, Some(there), random);
    let id = actor.token.id;
    // A hook that is left at the end runs behind a closed gate.
    let promised = world.drains.load(SeqCst) && !world.siblings[index].state().is_shutdown();
    let refused = submitting(world, id, || match world.siblings[there].try_spawn(actor) {
        Ok(_) => world.bug == Some(Bug::Deserted),
        Err(rejected) => {
            let closed = rejected.reason() == RejectReason::ShutDown;
            discard(rejected);
            closed
        }
    });
    world.check(!(promised && refused), "refused in a drain");
}

/// A mistake, made here on purpose, that a life has to find: the positive controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    Abandoned,
    Astray,
    LostWake,
    EarlyTimer,
    Swapped,
    PolledAgain,
    LostHook,
    Unresolved,
    StateBack,
    Leftover,
    AbortDetaches,
    Deserted,
}

impl Bug {
    /// Each with what has to be found.
    const ALL: [(Bug, &str); 12] = [
        (Bug::Abandoned, "every submission has one fate"),
        (Bug::Astray, "polled away from home"),
        (Bug::LostWake, "a wake was lost"),
        (Bug::EarlyTimer, "a scheduled closure was early"),
        (Bug::Swapped, "begun out of order"),
        (Bug::PolledAgain, "polled after its end"),
        (Bug::LostHook, "every hook runs once"),
        (Bug::Unresolved, "a handle does not resolve"),
        (Bug::StateBack, "a state went back"),
        (Bug::Leftover, "accepted"),
        (Bug::AbortDetaches, "polled after it was cancelled"),
        (Bug::Deserted, "refused in a drain"),
    ];

    /// Those that are made once in a life, at its beginning.
    fn make(self, life: &mut Life) {
        let world = Arc::clone(&life.world);
        match self {
            Bug::Abandoned => {
                let token = Token::new(&world, None, Lane::None, &mut life.random);
                let _ = ManuallyDrop::new(token);
            }
            Bug::Astray => {
                let mut token = Token::new(&world, Some(OUTSIDE), Lane::None, &mut life.random);
                token.panics_in_drop = false;
                discard(life.test.group().loops()[0].execute(call(token, false)));
            }
            Bug::Unresolved => {
                let elsewhere = EventLoopGroup::builder().loops(1).without_io().build();
                let group = ManuallyDrop::new(elsewhere.unwrap());
                life.held.push(Held::Other(group.spawn(pending())));
            }
            Bug::StateBack => life.states[0] = LoopState::Terminated,
            Bug::Leftover => drop(life.test.group().spawn_on(0, async {})),
            _ => {}
        }
    }
}

/// What is kept of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lived {
    trace: u64,
    /// Loops that were resumed and paused by load.
    steps: [u64; 2],
}

/// One life, all of it drawn from the seed; returns what is kept of it, or what was wrong.
fn live(seed: u64, bug: Option<Bug>) -> Result<Lived, Vec<String>> {
    let mut life = Life::new(seed, bug);
    if let Some(bug) = bug {
        bug.make(&mut life);
    }
    for _ in 0..life.random.below(60) {
        life.operation();
    }
    life.end();
    life.reckon()
}

#[test]
fn the_promises_hold_in_thousands_of_random_lives() {
    let seeds = match setting("LOOPGROUP_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let usual = if cfg!(debug_assertions) {
                1_000
            } else {
                10_000
            };
            0..setting("LOOPGROUP_SEEDS").unwrap_or(usual)
        }
    };
    let start = Instant::now();
    let all = seeds.clone();
    within(move || {
        let progress = progress("life");
        let mut steps = [0; 2];
        for seed in all.clone() {
            let lived = catch_unwind(AssertUnwindSafe(|| live(seed, None)));
            let Ok(Ok(life)) = lived else {
                panic!(
                    "seed {seed}: {lived:?}\nreplay it: \
                     LOOPGROUP_SEED={seed} cargo test --test proofs -- promises"
                );
            };
            steps = [steps[0] + life.steps[0], steps[1] + life.steps[1]];
            progress.tick();
            let done = seed + 1;
            if done % 10_000 == 0 {
                eprintln!("{done} of {} seeds, {:.0?}", all.end, start.elapsed());
            }
        }
        eprintln!("loops resumed by load: {}, paused: {}", steps[0], steps[1]);
        assert!(all.end - all.start < 1_000 || steps.iter().all(|&count| count > 0));
    });
    let (count, time) = (seeds.end - seeds.start, start.elapsed());
    eprintln!("{count} seeds, {:?} each", time / count as u32);
}

#[test]
fn one_seed_lives_the_same_life_twice() {
    within(|| {
        let traces: Vec<_> = (0..200).map(|seed| live(seed, None).unwrap()).collect();
        for (seed, trace) in (0..).zip(&traces) {
            assert_eq!(live(seed, None).as_ref(), Ok(trace), "seed {seed}");
        }
        // The trace tells lives apart, or it would say nothing.
        let mut different: Vec<_> = traces.iter().map(|life| life.trace).collect();
        different.sort_unstable();
        different.dedup();
        // Some of the few that have no operation may be the same.
        assert!(different.len() > 195, "{}", different.len());
    });
}

#[test]
fn every_seeded_bug_is_found() {
    within(|| {
        for (bug, what) in Bug::ALL {
            let mut lives = (0..100).filter_map(|seed| live(seed, Some(bug)).err());
            let found = lives.any(|faults| faults.iter().any(|fault| fault == what));
            assert!(found, "{bug:?} passes for right");
        }
    });
}
