//! What every test file shares: a watchdog, probes that count, and gates that open once.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::cell::RefCell;
use std::future::Future;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The longest any test may take without progress; far above what it needs, also on two busy cores.
pub const WATCHDOG: Duration = Duration::from_secs(60);

/// A limit of time, times `LOOPGROUP_PATIENCE`: under a sanitizer everything takes longer.
pub fn patiently(limit: Duration) -> Duration {
    let times = setting("LOOPGROUP_PATIENCE").unwrap_or(1);
    limit * u32::try_from(times).unwrap()
}

/// Runs a test body under the watchdog: a hang is a failure, not a silence.
///
/// A body that does something thousands of times says so with [`progress`]: then the watchdog limits the time
/// without progress, not the sum.
#[track_caller]
pub fn within<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    within_for(patiently(WATCHDOG), body)
}

/// As [`within`], with a limit of its own.
#[track_caller]
pub fn within_for<T: Send + 'static>(
    limit: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let progress = Progress::default();
    let watched = progress.clone();
    let thread = thread::Builder::new()
        .name("test-body".into())
        .spawn(move || {
            // Also when it panics.
            let _end = Ends(watched.clone());
            PROGRESS.set(Some(watched));
            body()
        })
        .unwrap();
    if let Some(hang) = progress.watch(limit) {
        panic!("watchdog: {hang}");
    }
    thread
        .join()
        .unwrap_or_else(|payload| resume_unwind(payload))
}

/// What a test has done so far; its watchdog looks at it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Steps>);

#[derive(Debug, Default)]
struct Steps {
    unit: OnceLock<&'static str>,
    done: AtomicU64,
    ended: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    /// That of the test whose body runs on this thread.
    static PROGRESS: RefCell<Option<Progress>> = const { RefCell::new(None) };
}

/// The progress of this test, in rounds, connections or whatever it counts; to be asked for in its body, and to
/// be taken along to other threads. Without a watchdog it only counts.
pub fn progress(unit: &'static str) -> Progress {
    let progress = PROGRESS.with_borrow(Clone::clone).unwrap_or_default();
    let _ = progress.0.unit.set(unit);
    progress
}

impl Progress {
    /// Notes that one more is done.
    pub fn tick(&self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the end; says what hangs if nothing is done for as long as `limit`.
    fn watch(&self, limit: Duration) -> Option<String> {
        let mut ended = self.0.ended.lock().unwrap();
        loop {
            let before = self.0.done.load(Ordering::Relaxed);
            let wait = self
                .0
                .changed
                .wait_timeout_while(ended, limit, |ended| !*ended);
            ended = wait.unwrap().0;
            if *ended {
                return None;
            }
            let done = self.0.done.load(Ordering::Relaxed);
            if done == before {
                return Some(match self.0.unit.get() {
                    None => "the test hangs".to_owned(),
                    Some(unit) => {
                        let number = grouped(done + 1);
                        format!("no progress for {limit:?} at {unit} {number}")
                    }
                });
            }
        }
    }
}

/// Tells the watchdog that the body has ended.
struct Ends(Progress);

impl Drop for Ends {
    fn drop(&mut self) {
        *self.0.0.ended.lock().unwrap() = true;
        self.0.0.changed.notify_all();
    }
}

/// `12345` as `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Runs a future as the main of a loop, under the watchdog.
#[track_caller]
pub fn on_a_loop<T, F>(main: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = std::io::Result<T>>,
{
    within(move || loopgroup::run(main()).unwrap().unwrap())
}

/// A path of a test's own, removed at its end.
pub struct TempPath(pub PathBuf);

impl TempPath {
    pub fn new(name: &str) -> TempPath {
        let file = format!("loopgroup-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        TempPath(path)
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A number from the environment, to repeat or to prolong a test: `None` if it is not set.
#[track_caller]
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Waits until `condition` holds; for things that nobody announces (the end of an OS thread).
#[track_caller]
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    eventually_within(patiently(Duration::from_secs(30)), what, condition);
}

/// As [`eventually`], with a patience of its own: short where it is known to be in vain.
#[track_caller]
pub fn eventually_within(patience: Duration, what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + patience;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        thread::yield_now();
    }
}

/// What happened to a probed future: how often, and on which threads.
#[derive(Debug, Default)]
pub struct Log {
    polls: Mutex<Vec<ThreadId>>,
    drops: Mutex<Vec<ThreadId>>,
}

impl Log {
    pub fn new() -> Arc<Log> {
        Arc::default()
    }

    pub fn polls(&self) -> usize {
        self.polls.lock().unwrap().len()
    }

    pub fn drops(&self) -> usize {
        self.drops.lock().unwrap().len()
    }

    /// Every poll and the one drop happened on `home`.
    #[track_caller]
    pub fn assert_home(&self, home: ThreadId) {
        assert!(
            self.polls.lock().unwrap().iter().all(|&id| id == home),
            "polled away from home"
        );
        assert_eq!(*self.drops.lock().unwrap(), [home], "dropped once, at home");
    }
}

/// A future that writes down where it is polled and dropped. Not `Unpin`-dependent: it boxes.
pub struct Probe<F> {
    future: Pin<Box<F>>,
    log: Arc<Log>,
}

impl<F: Future> Probe<F> {
    pub fn new(log: &Arc<Log>, future: F) -> Probe<F> {
        Probe {
            future: Box::pin(future),
            log: Arc::clone(log),
        }
    }
}

impl<F: Future> Future for Probe<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.log.polls.lock().unwrap().push(thread::current().id());
        self.future.as_mut().poll(cx)
    }
}

impl<F> Drop for Probe<F> {
    fn drop(&mut self) {
        self.log.drops.lock().unwrap().push(thread::current().id());
    }
}

/// Counts how often it was dropped, and where last.
#[derive(Clone, Debug, Default)]
pub struct DropCount(Arc<(AtomicUsize, Mutex<Option<ThreadId>>)>);

impl DropCount {
    pub fn new() -> DropCount {
        DropCount::default()
    }

    pub fn get(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    pub fn thread(&self) -> Option<ThreadId> {
        *self.0.1.lock().unwrap()
    }

    /// A value whose drop is counted.
    pub fn guard(&self) -> CountOnDrop {
        CountOnDrop(self.clone())
    }
}

#[derive(Debug)]
pub struct CountOnDrop(DropCount);

impl Drop for CountOnDrop {
    fn drop(&mut self) {
        // The thread first: who sees the count may ask for it.
        *self.0.0.1.lock().unwrap() = Some(thread::current().id());
        self.0.0.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A door that is shut until `open`: blocking for threads, awaitable for tasks.
#[derive(Clone, Debug, Default)]
pub struct Door(Arc<(Mutex<DoorState>, Condvar)>);

#[derive(Debug, Default)]
struct DoorState {
    open: bool,
    wakers: Vec<Waker>,
}

impl Door {
    pub fn new() -> Door {
        Door::default()
    }

    pub fn open(&self) {
        let wakers = {
            let mut state = self.0.0.lock().unwrap();
            state.open = true;
            std::mem::take(&mut state.wakers)
        };
        self.0.1.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    pub fn is_open(&self) -> bool {
        self.0.0.lock().unwrap().open
    }

    /// Blocks the thread.
    pub fn pass(&self) {
        let mut state = self.0.0.lock().unwrap();
        while !state.open {
            state = self.0.1.wait(state).unwrap();
        }
    }

    /// How many tasks wait at the door.
    pub fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().wakers.len()
    }

    /// Awaits the opening.
    pub fn opened(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let door = self.clone();
        std::future::poll_fn(move |cx| {
            let mut state = door.0.0.lock().unwrap();
            if state.open {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// Polls a future once, with a waker that does nothing.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Keeps a loop's thread busy until the door opens; returns once it is.
pub fn stall(ev: &loopgroup::EventLoop) -> Door {
    let entered = Door::new();
    let release = Door::new();
    let (inside, until) = (entered.clone(), release.clone());
    ev.execute(move || {
        inside.open();
        until.pass();
    })
    .unwrap();
    entered.pass();
    release
}

/// The thread of a loop.
pub fn thread_of(ev: &loopgroup::EventLoop) -> ThreadId {
    loopgroup::block_on(ev.submit(|| thread::current().id())).unwrap()
}

/// Runs one test of this binary in a process of its own, with `LOOPGROUP_CHILD=1` in its environment.
///
/// Returns its exit status and what it printed. The test calls [`is_child`] to know where it is.
pub fn in_child(test: &str) -> std::process::Output {
    in_child_after("true", test)
}

/// As [`in_child`], after a command of the shell: `ulimit`, say.
///
/// `LOOPGROUP_RUNNER` says what runs this binary if the system does not by itself: `qemu-aarch64 -L ...`.
pub fn in_child_after(command: &str, test: &str) -> std::process::Output {
    let runner = std::env::var("LOOPGROUP_RUNNER").unwrap_or_default();
    std::process::Command::new("sh")
        .args(["-c", &format!("{command} && exec \"$0\" \"$@\"")])
        .args(runner.split_whitespace())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("LOOPGROUP_CHILD", "1")
        .output()
        .unwrap()
}

pub fn is_child() -> bool {
    std::env::var_os("LOOPGROUP_CHILD").is_some()
}

/// Runs a test body in a process of its own: for figures of the whole process (threads,
/// descriptors) and for failures that would take the process along.
///
/// `test` is the name of the calling test.
#[track_caller]
pub fn alone(test: &str, body: impl FnOnce() + Send + 'static) {
    alone_after("true", test, body);
}

/// As [`alone`], after a command of the shell: `ulimit`, say.
#[track_caller]
pub fn alone_after(command: &str, test: &str, body: impl FnOnce() + Send + 'static) {
    if is_child() {
        return within(body);
    }
    let output = in_child_after(command, test);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// How many entries a directory has: `/proc/self/task` for threads, `/proc/self/fd` for descriptors.
pub fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}
