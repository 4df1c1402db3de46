//! Every state of a task × everything that can be done to its handle × every place that can panic × every
//! phase of a shutdown, for all four ways to spawn: each cell against an oracle.
//!
//! - The axes are the enums below. A cell is a task that is brought into a [`Stage`]; then the [`Phase`]
//!   begins, then the [`Action`] happens, then the loop runs to its end.
//! - [`expected`] is the oracle: it knows the rules of the documentation and nothing of the crate.
//! - Combinations that cannot exist are left out by [`Cell::exists`], and counted.
//! - The loops are driven by hand and their time is virtual: a cell is the same in every run.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::future::lazy;
use loopgroup::testing::TestLoop;
use loopgroup::{EventLoop, EventLoopGroup, JoinError, JoinHandle, PanicSite};

use crate::util::{blow_up, discard, progress, within};

/// How the task comes to its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `ev.spawn`, from outside.
    Send,
    /// `ev.spawn`, on the loop.
    SendAtHome,
    /// `ev.spawn_with`: a future that is not `Send`, made on the loop.
    Resident,
    /// `spawn_local`.
    Local,
}

/// Where the task stands when the phase begins and the action happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Queued, never polled.
    Fresh,
    /// In its first poll, which is its last.
    Running,
    /// In its first poll, which returns `Pending`.
    RunningWaits,
    /// In its first poll, which has woken its task and returns `Pending`.
    RunningWoken,
    /// Polled once, waiting.
    Pending,
    /// Polled once, and woken: queued again.
    Woken,
    /// Polled to its end.
    Done,
}

/// What is done with the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Kept, and asked after the end.
    Await,
    /// Polled at once, and again after the end if it was pending.
    PollThenAwait,
    PollThenDetach,
    Detach,
    /// On another thread, as the other `…Outside`.
    DetachOutside,
    Abort,
    AbortOutside,
    /// `cancel()`, polled at once, and again after the end if it was pending.
    Cancel,
    /// `cancel()`, not polled before the end.
    CancelThenAwait,
    CancelThenDrop,
    CancelThenPollThenDrop,
    /// Never dropped.
    Forget,
}

/// What panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    Nothing,
    /// The last poll.
    Poll,
    /// The destructor of the future.
    Future,
    /// The destructor of the output.
    Output,
    PollAndFuture,
    /// The waker that the action's poll leaves behind.
    Waker,
}

/// What the loop is going through. `…Woken`: the task is woken after the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: the task is woken and runs to its end.
    OpenWoken,
    /// `shutdown_now`, after the action.
    NowAfter,
    /// `shutdown_now`, before the action.
    Now,
    Quiet,
    QuietWoken,
    Drain,
    DrainWoken,
    /// The last handle of the group is dropped.
    LetGo,
    LetGoWoken,
    /// The loop has ended before the action, by `shutdown_now`.
    EndedNow,
    /// The loop has ended before the action, by a quiet period.
    EndedQuiet,
}

const KINDS: [Kind; 4] = [Kind::Send, Kind::SendAtHome, Kind::Resident, Kind::Local];
const STAGES: [Stage; 7] = [
    Stage::Fresh,
    Stage::Running,
    Stage::RunningWaits,
    Stage::RunningWoken,
    Stage::Pending,
    Stage::Woken,
    Stage::Done,
];
const ACTIONS: [Action; 12] = [
    Action::Await,
    Action::PollThenAwait,
    Action::PollThenDetach,
    Action::Detach,
    Action::DetachOutside,
    Action::Abort,
    Action::AbortOutside,
    Action::Cancel,
    Action::CancelThenAwait,
    Action::CancelThenDrop,
    Action::CancelThenPollThenDrop,
    Action::Forget,
];
const SITES: [Site; 6] = [
    Site::Nothing,
    Site::Poll,
    Site::Future,
    Site::Output,
    Site::PollAndFuture,
    Site::Waker,
];
const PHASES: [Phase; 11] = [
    Phase::OpenWoken,
    Phase::NowAfter,
    Phase::Now,
    Phase::Quiet,
    Phase::QuietWoken,
    Phase::Drain,
    Phase::DrainWoken,
    Phase::LetGo,
    Phase::LetGoWoken,
    Phase::EndedNow,
    Phase::EndedQuiet,
];

#[derive(Clone, Copy, Debug)]
struct Cell {
    kind: Kind,
    stage: Stage,
    action: Action,
    site: Site,
    phase: Phase,
}

impl Cell {
    fn all() -> impl Iterator<Item = Cell> {
        KINDS.into_iter().flat_map(|kind| {
            STAGES.into_iter().flat_map(move |stage| {
                ACTIONS.into_iter().flat_map(move |action| {
                    SITES.into_iter().flat_map(move |site| {
                        PHASES.into_iter().map(move |phase| Cell {
                            kind,
                            stage,
                            action,
                            site,
                            phase,
                        })
                    })
                })
            })
        })
    }

    fn exists(self) -> bool {
        // A waker that nobody left behind cannot panic.
        let no_waker = self.site == Site::Waker && !self.action.polls();
        // A loop does not end in the middle of a poll.
        let ends_in_a_poll = self.stage.is_running() && self.phase.has_ended();
        !no_waker && !ends_in_a_poll
    }
}

impl Stage {
    fn is_running(self) -> bool {
        matches!(
            self,
            Stage::Running | Stage::RunningWaits | Stage::RunningWoken
        )
    }

    /// Whether its first poll is its last.
    fn ends_in_the_first_poll(self) -> bool {
        matches!(self, Stage::Fresh | Stage::Running | Stage::Done)
    }

    /// Whether it is in a queue of its loop, or will be after the poll under way.
    fn is_queued(self) -> bool {
        matches!(self, Stage::Fresh | Stage::RunningWoken | Stage::Woken)
    }
}

impl Action {
    /// Whether it polls with a waker of the test's.
    fn polls(self) -> bool {
        use Action::{Cancel, CancelThenPollThenDrop, PollThenAwait, PollThenDetach};
        matches!(
            self,
            PollThenAwait | PollThenDetach | Cancel | CancelThenPollThenDrop
        )
    }

    fn cancels(self) -> bool {
        use Action::{Abort, AbortOutside, Cancel, CancelThenAwait, CancelThenDrop};
        matches!(
            self,
            Abort | AbortOutside | Cancel | CancelThenAwait | CancelThenDrop
        ) || self == Action::CancelThenPollThenDrop
    }
}

impl Phase {
    fn has_ended(self) -> bool {
        matches!(self, Phase::EndedNow | Phase::EndedQuiet)
    }

    fn wakes(self) -> bool {
        use Phase::{DrainWoken, LetGoWoken, OpenWoken, QuietWoken};
        matches!(self, OpenWoken | QuietWoken | DrainWoken | LetGoWoken)
    }
}

impl Site {
    fn in_poll(self) -> bool {
        matches!(self, Site::Poll | Site::PollAndFuture)
    }

    fn in_future(self) -> bool {
        matches!(self, Site::Future | Site::PollAndFuture)
    }
}

/// What whoever asked was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    NotAsked,
    Value,
    Panic,
    Cancelled,
    /// `cancel()` found no value.
    NoValue,
    /// It never resolved.
    Silence,
}

/// Everything that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// `is_finished()` just before the action.
    finished: bool,
    polls: usize,
    /// Of the future.
    drops: usize,
    /// Polls and drops of the future that did not happen on its loop.
    astray: usize,
    /// Of the output.
    output_drops: usize,
    answer: Answer,
    /// Of the waker that the action left.
    wakes: usize,
    /// What `on_panic` was told: tasks, destructors, wakers.
    reported: [usize; 3],
    /// Of the loop: accepted, completed, panicked, cancelled, rejected.
    figures: [u64; 5],
    /// Pending and live after the end.
    left: usize,
}

/// The oracle.
fn expected(cell: Cell) -> Seen {
    let Cell {
        stage,
        action,
        site,
        phase,
        ..
    } = cell;
    // A loop looks at its shutdown at the end of a turn: what is queued, or woken, runs before, also when
    // the request is `shutdown_now`. What waits for longer is cancelled.
    let polled_again = stage.is_queued() || phase.wakes();
    // What has ended, by itself or with its loop, cannot be cancelled any more.
    let cancelled = action.cancels() && stage != Stage::Done && !phase.has_ended();
    // A poll under way is never interrupted.
    let runs_out = matches!(stage, Stage::Done | Stage::Running) || (polled_again && !cancelled);

    let first_poll = usize::from(stage != Stage::Fresh);
    let last_poll = usize::from(runs_out && !matches!(stage, Stage::Done | Stage::Running));
    let panics = site.in_future() || (runs_out && site.in_poll());
    let makes_output = runs_out && !site.in_poll();
    // A value whose future panics on its way out goes the way of its task.
    let has_value = makes_output && !site.in_future();
    // Whether it had ended when the action came.
    let over = stage == Stage::Done || phase.has_ended();

    let result = match () {
        () if !runs_out => Answer::Cancelled,
        () if panics => Answer::Panic,
        () => Answer::Value,
    };
    // What `cancel()` comes to: the value, also if the poll under way was the one that returns it.
    let rest = if has_value {
        Answer::Value
    } else {
        Answer::NoValue
    };
    let answer = match action {
        Action::Await | Action::PollThenAwait => result,
        Action::PollThenDetach if over => result,
        Action::Cancel | Action::CancelThenAwait => rest,
        Action::CancelThenPollThenDrop if over => rest,
        _ => Answer::NotAsked,
    };
    let joined = matches!(answer, Answer::Value | Answer::Panic);
    let kept_for_ever = action == Action::Forget;
    // A panic that nobody joins is reported; of two the first is the task's.
    let task = runs_out && panics && !joined && !kept_for_ever;
    let future = site.in_future() && (!runs_out || site.in_poll());
    // The destructor of a value is user code of whoever drops it: reported if that is the loop. A value
    // that is dropped elsewhere has no loop around it that could tell.
    let output = has_value && site == Site::Output && !joined && !kept_for_ever && !over;
    // Whoever asked too early is woken once, when the task ends, also if the handle has gone since.
    let wakes = usize::from(action.polls() && !over);
    let ended = |yes: bool| u64::from(yes);
    Seen {
        finished: over,
        polls: first_poll + last_poll,
        drops: 1,
        astray: 0,
        output_drops: usize::from(makes_output && !(has_value && kept_for_ever)),
        answer,
        wakes,
        reported: [
            usize::from(task),
            usize::from(future) + usize::from(output),
            wakes * usize::from(site == Site::Waker),
        ],
        figures: [
            1,
            ended(runs_out && !panics),
            ended(panics),
            ended(!runs_out && !panics),
            0,
        ],
        left: 0,
    }
}

/// What the parts of a cell tell.
#[derive(Default)]
struct Log {
    polls: AtomicUsize,
    drops: AtomicUsize,
    astray: AtomicUsize,
    output_drops: AtomicUsize,
    wakes: AtomicUsize,
    reported: [AtomicUsize; 3],
    /// The task's own waker, from its last poll.
    waker: Mutex<Option<Waker>>,
}

impl Log {
    fn at_home(&self) {
        if EventLoop::current().is_none() {
            self.astray.fetch_add(1, SeqCst);
        }
    }
}

struct Output {
    log: Arc<Log>,
    site: Site,
}

impl Drop for Output {
    fn drop(&mut self) {
        self.log.output_drops.fetch_add(1, SeqCst);
        if self.site == Site::Output {
            blow_up();
        }
    }
}

/// The task of a cell.
struct Body {
    log: Arc<Log>,
    stage: Stage,
    site: Site,
    /// What happens in the first poll of a task that is running.
    during: Option<Box<dyn FnOnce() + Send>>,
}

impl Future for Body {
    type Output = Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Output> {
        self.log.at_home();
        let first = self.log.polls.fetch_add(1, SeqCst) == 0;
        *self.log.waker.lock().unwrap() = Some(cx.waker().clone());
        if first {
            if self.stage == Stage::RunningWoken {
                cx.waker().wake_by_ref();
            }
            if let Some(during) = self.during.take() {
                during();
            }
            if !self.stage.ends_in_the_first_poll() {
                return Poll::Pending;
            }
        }
        if self.site.in_poll() {
            blow_up();
        }
        Poll::Ready(Output {
            log: Arc::clone(&self.log),
            site: self.site,
        })
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.log.at_home();
        self.log.drops.fetch_add(1, SeqCst);
        if self.site.in_future() {
            blow_up();
        }
    }
}

/// The same, not `Send`.
struct LocalBody(Body, #[allow(dead_code)] Rc<()>);

impl Future for LocalBody {
    type Output = Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// The waker that an action leaves behind.
struct Witness {
    log: Arc<Log>,
    site: Site,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        self.log.wakes.fetch_add(1, SeqCst);
        if self.site == Site::Waker {
            blow_up();
        }
    }
}

type Cancelling = Pin<Box<dyn Future<Output = Option<Output>> + Send>>;

/// What is left to ask after the end.
enum Left {
    Nothing,
    Handle(JoinHandle<Output>),
    Cancelling(Cancelling),
}

/// What both the test and the task of a cell can reach.
struct Scene {
    cell: Cell,
    log: Arc<Log>,
    /// The only handle of the group.
    group: Mutex<Option<EventLoopGroup>>,
    handle: Mutex<Option<JoinHandle<Output>>>,
    finished: Mutex<Option<bool>>,
    answer: Mutex<Answer>,
    left: Mutex<Left>,
    forgotten: Mutex<Option<JoinHandle<Output>>>,
}

impl Scene {
    fn with_group(&self, call: impl FnOnce(&EventLoopGroup)) {
        let group = self.group.lock().unwrap().clone();
        call(&group.expect("it is there until it is let go"));
    }

    fn begin_phase(&self) {
        let (quiet, timeout) = (Duration::from_millis(10), Duration::from_millis(100));
        match self.cell.phase {
            Phase::OpenWoken | Phase::NowAfter => {}
            Phase::Now | Phase::EndedNow => self.with_group(|group| drop(group.shutdown_now())),
            Phase::Quiet | Phase::QuietWoken | Phase::EndedQuiet => self.with_group(|group| {
                drop(group.shutdown_gracefully_with(quiet, timeout).unwrap());
            }),
            Phase::Drain | Phase::DrainWoken => {
                self.with_group(|group| drop(group.drain(timeout)));
            }
            Phase::LetGo | Phase::LetGoWoken => {
                let group = self.group.lock().unwrap().take();
                drop(group);
            }
        }
    }

    fn act(&self) {
        let mut handle = self.handle.lock().unwrap().take().unwrap();
        *self.finished.lock().unwrap() = Some(handle.is_finished());
        let waker = Waker::from(Arc::new(Witness {
            log: Arc::clone(&self.log),
            site: self.cell.site,
        }));
        match self.cell.action {
            Action::Await => self.leave(Left::Handle(handle)),
            Action::PollThenAwait => {
                if self.ask(&mut handle, &waker).is_pending() {
                    self.leave(Left::Handle(handle));
                }
            }
            Action::PollThenDetach => {
                let _ = self.ask(&mut handle, &waker);
                drop(handle);
            }
            Action::Detach => drop(handle),
            Action::DetachOutside => outside(move || drop(handle)),
            Action::Abort => handle.abort(),
            Action::AbortOutside => outside(move || handle.abort()),
            Action::Cancel => {
                let mut cancelling: Cancelling = Box::pin(handle.cancel());
                if self.ask_cancelling(&mut cancelling, &waker).is_pending() {
                    self.leave(Left::Cancelling(cancelling));
                }
            }
            Action::CancelThenAwait => self.leave(Left::Cancelling(Box::pin(handle.cancel()))),
            Action::CancelThenDrop => drop(handle.cancel()),
            Action::CancelThenPollThenDrop => {
                let mut cancelling: Cancelling = Box::pin(handle.cancel());
                let _ = self.ask_cancelling(&mut cancelling, &waker);
            }
            // Until everything has been seen: only then can a leak of the crate's be told from this one.
            Action::Forget => *self.forgotten.lock().unwrap() = Some(handle),
        }
    }

    fn after_action(&self) {
        if self.cell.phase == Phase::NowAfter {
            self.with_group(|group| drop(group.shutdown_now()));
        }
        if self.cell.phase.wakes() {
            self.wake();
        }
    }

    fn wake(&self) {
        let waker = self.log.waker.lock().unwrap().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn leave(&self, left: Left) {
        *self.left.lock().unwrap() = left;
    }

    fn ask(&self, handle: &mut JoinHandle<Output>, waker: &Waker) -> Poll<()> {
        let polled = Pin::new(handle).poll(&mut Context::from_waker(waker));
        polled.map(|result: Result<Output, JoinError>| {
            self.answer(match result {
                Ok(value) => {
                    discard(value);
                    Answer::Value
                }
                Err(error) if error.is_panic() => Answer::Panic,
                Err(error) if error.is_cancelled() => Answer::Cancelled,
                Err(error) => panic!("nothing was refused: {error}"),
            });
        })
    }

    fn ask_cancelling(&self, cancelling: &mut Cancelling, waker: &Waker) -> Poll<()> {
        let polled = cancelling.as_mut().poll(&mut Context::from_waker(waker));
        polled.map(|value| {
            assert_eq!(self.log.drops.load(SeqCst), 1, "resolved before the drop");
            self.answer(match value {
                Some(value) => {
                    discard(value);
                    Answer::Value
                }
                None => Answer::NoValue,
            });
        })
    }

    fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Asks what was left to ask.
    fn ask_at_the_end(&self) {
        let left = std::mem::replace(&mut *self.left.lock().unwrap(), Left::Nothing);
        let polled = match left {
            Left::Nothing => return,
            Left::Handle(mut handle) => {
                assert!(handle.is_finished());
                self.ask(&mut handle, Waker::noop())
            }
            Left::Cancelling(mut cancelling) => self.ask_cancelling(&mut cancelling, Waker::noop()),
        };
        if polled.is_pending() {
            self.answer(Answer::Silence);
        }
    }
}

fn outside(call: impl FnOnce() + Send) {
    thread::scope(|scope| {
        // A destructor that panics there is contained by the crate, or this join tells.
        scope.spawn(call).join().unwrap();
    });
}

/// Lives through a cell. The sabotage, if any, is the positive control.
fn observe(cell: Cell, sabotage: Option<Sabotage>) -> Seen {
    let log = Arc::new(Log::default());
    let told = Arc::clone(&log);
    let builder = EventLoopGroup::builder().on_panic(move |panic| {
        let which = match panic.site() {
            PanicSite::Task => 0,
            PanicSite::Destructor => 1,
            PanicSite::Waker => 2,
            other => unreachable!("{other} does not occur here"),
        };
        told.reported[which].fetch_add(1, SeqCst);
    });
    let mut test = TestLoop::from_builder(builder).unwrap();
    let scene = Arc::new(Scene {
        cell,
        log: Arc::clone(&log),
        group: Mutex::new(Some(test.group().clone())),
        handle: Mutex::new(None),
        finished: Mutex::new(None),
        answer: Mutex::new(Answer::NotAsked),
        left: Mutex::new(Left::Nothing),
        forgotten: Mutex::new(None),
    });
    test.let_go();

    let mut body = Body {
        log: Arc::clone(&log),
        stage: cell.stage,
        site: cell.site,
        during: None,
    };
    if cell.stage.is_running() {
        let scene = Arc::clone(&scene);
        body.during = Some(Box::new(move || {
            scene.begin_phase();
            scene.act();
            if sabotage != Some(Sabotage::WakeIsLost) {
                scene.after_action();
            }
        }));
    }
    let handle = spawn(&mut test, cell.kind, body);
    if sabotage == Some(Sabotage::Twin) {
        drop(test.spawn(async {}));
    }
    *scene.handle.lock().unwrap() = Some(handle);
    if !matches!(cell.stage, Stage::Fresh) {
        test.run_until_stalled();
    }
    if !cell.stage.is_running() {
        if cell.stage == Stage::Woken {
            scene.wake();
        }
        scene.begin_phase();
        if cell.phase.has_ended() {
            test.advance(Duration::from_secs(1));
            assert!(test.state().is_terminated());
        }
        scene.act();
        if sabotage != Some(Sabotage::WakeIsLost) {
            scene.after_action();
        }
    }
    test.advance(Duration::from_secs(1));
    // Only a loop that nobody asked to end is still there.
    assert_eq!(test.report().is_none(), cell.phase == Phase::OpenWoken);
    drop(test.shutdown_now());
    test.advance(Duration::ZERO);
    scene.ask_at_the_end();

    let report = test.report().unwrap();
    let count = |counter: &AtomicUsize| counter.load(SeqCst);
    let (finished, answer) = (
        *scene.finished.lock().unwrap(),
        *scene.answer.lock().unwrap(),
    );
    let seen = Seen {
        finished: finished.unwrap(),
        polls: count(&log.polls),
        drops: count(&log.drops),
        astray: count(&log.astray),
        output_drops: count(&log.output_drops),
        answer,
        wakes: count(&log.wakes),
        reported: [0, 1, 2].map(|which: usize| count(&log.reported[which])),
        figures: [
            report.accepted(),
            report.completed(),
            report.panicked(),
            report.cancelled(),
            report.rejected(),
        ],
        left: test.pending(),
    };
    drop(scene.forgotten.lock().unwrap().take());
    // A circle: it keeps its task, whose loop keeps the handler of panics, which keeps the log.
    drop(log.waker.lock().unwrap().take());
    seen
}

fn spawn(test: &mut TestLoop, kind: Kind, body: Body) -> JoinHandle<Output> {
    match kind {
        Kind::Send => test.spawn(body),
        Kind::Resident => test.spawn_with(move || LocalBody(body, Rc::new(()))),
        // The future is polled on the loop, at once, and no turn is run.
        Kind::SendAtHome => {
            let here = |_: &mut Context<'_>| EventLoop::current().expect("on the loop").spawn(body);
            test.block_on(lazy(here))
        }
        Kind::Local => {
            let here = |_: &mut Context<'_>| loopgroup::spawn_local(LocalBody(body, Rc::new(())));
            test.block_on(lazy(here))
        }
    }
}

/// Lives through `cells`; returns how many there were, and those that differ from the oracle.
fn compare(
    cells: impl Iterator<Item = Cell>,
    oracle: impl Fn(Cell) -> Seen,
    sabotage: Option<Sabotage>,
) -> (usize, Vec<String>) {
    let progress = progress("cell");
    let (mut lived, mut wrong) = (0, Vec::new());
    for cell in cells.filter(|cell| cell.exists()) {
        lived += 1;
        let (seen, expected) = (observe(cell, sabotage), oracle(cell));
        progress.tick();
        if seen != expected {
            wrong.push(format!(
                "{cell:?}\n  is       {seen:?}\n  expected {expected:?}"
            ));
        }
    }
    (lived, wrong)
}

fn check(kind: Kind) {
    within(move || {
        let mine = |cell: &Cell| cell.kind == kind;
        let (lived, wrong) = compare(Cell::all().filter(mine), expected, None);
        let some = wrong.iter().take(10).cloned().collect::<Vec<_>>();
        assert!(
            wrong.is_empty(),
            "{} cells:\n{}",
            wrong.len(),
            some.join("\n")
        );
        assert_eq!(lived, CELLS / KINDS.len());
    });
}

/// Those that exist.
const CELLS: usize = 18_176;

#[test]
fn the_matrix_has_the_cells_that_it_says_and_leaves_none_out_silently() {
    let all = KINDS.len() * STAGES.len() * ACTIONS.len() * SITES.len() * PHASES.len();
    assert_eq!(Cell::all().count(), all);
    // Eight actions leave no waker.
    let no_waker = KINDS.len() * STAGES.len() * 8 * PHASES.len();
    // Three stages are in a poll, two phases have ended; twelve actions with five sites, four with six.
    let ends_in_a_poll = KINDS.len() * 3 * 2 * (12 * 5 + 4);
    assert_eq!(Cell::all().filter(|cell| cell.exists()).count(), CELLS);
    assert_eq!(CELLS, all - no_waker - ends_in_a_poll);
}

#[test]
fn every_cell_of_a_task_that_is_sent_is_as_expected() {
    check(Kind::Send);
}

#[test]
fn every_cell_of_a_task_that_is_sent_at_home_is_as_expected() {
    check(Kind::SendAtHome);
}

#[test]
fn every_cell_of_a_task_that_is_made_on_its_loop_is_as_expected() {
    check(Kind::Resident);
}

#[test]
fn every_cell_of_a_local_task_is_as_expected() {
    check(Kind::Local);
}

/// A mistake that the matrix has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    /// What should come after the action does not.
    WakeIsLost,
    /// Somebody else's task is in the figures.
    Twin,
}

/// One in so many cells, to be quick.
const SAMPLE: usize = 97;

#[test]
fn a_wrong_cell_is_found_whichever_figure_is_wrong() {
    within(|| {
        let mistakes: [fn(&mut Seen); 10] = [
            |seen| seen.finished ^= true,
            |seen| seen.polls += 1,
            |seen| seen.drops += 1,
            |seen| seen.astray += 1,
            |seen| seen.output_drops += 1,
            |seen| seen.answer = Answer::Silence,
            |seen| seen.wakes += 1,
            |seen| seen.reported[1] += 1,
            |seen| seen.figures[3] += 1,
            |seen| seen.left += 1,
        ];
        for mistake in mistakes {
            let wrong_oracle = |cell| {
                let mut seen = expected(cell);
                mistake(&mut seen);
                seen
            };
            let (lived, wrong) = compare(Cell::all().step_by(SAMPLE), wrong_oracle, None);
            assert!(lived > 100);
            assert_eq!(wrong.len(), lived);
        }
    });
}

#[test]
fn a_lost_wake_and_a_task_too_many_are_found() {
    within(|| {
        let waits = |cell: &Cell| {
            let alive = !cell.action.cancels() && cell.phase == Phase::QuietWoken;
            alive && cell.stage == Stage::Pending
        };
        let lost = Some(Sabotage::WakeIsLost);
        let (lived, wrong) = compare(Cell::all().filter(waits), expected, lost);
        assert!(lived > 0);
        assert_eq!(wrong.len(), lived, "a task that was not woken");
        let (lived, wrong) = compare(Cell::all().step_by(SAMPLE), expected, Some(Sabotage::Twin));
        assert_eq!(wrong.len(), lived, "a task that is not in the cell");
    });
}
