//! A loop gets its thread on first use, in the user's way if there is one; a failed start loses nothing.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, LoopState, LoopThread, PanicSite, RejectReason, block_on,
};

use crate::util::{
    self, Door, Log, Probe, alone, entries, eventually, poll_once, stall, thread_of, within,
};

const TASKS: &str = "/proc/self/task";

fn with_factory(
    loops: usize,
    factory: impl Fn(LoopThread) -> io::Result<()> + Send + Sync + 'static,
) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(loops);
    builder.thread_factory(factory).build().unwrap()
}

/// Runs a loop on a new thread, as a factory without wishes would.
fn start(lt: LoopThread) -> io::Result<()> {
    thread::Builder::new().spawn(move || lt.run()).map(drop)
}

/// A factory whose first start goes wrong by `fail`; the others work.
fn failing_once(
    fail: impl Fn(LoopThread) -> io::Result<()> + Send + Sync + 'static,
) -> EventLoopGroup {
    let failed = AtomicBool::new(false);
    with_factory(1, move |lt| {
        if failed.swap(true, Ordering::SeqCst) {
            start(lt)
        } else {
            fail(lt)
        }
    })
}

/// The first submission is refused with its future intact, and the next one is accepted.
#[track_caller]
fn assert_usable_after_failure(group: &EventLoopGroup, kind: io::ErrorKind) {
    let log = Log::new();
    let rejected = group.try_spawn(Probe::new(&log, async { 4 })).unwrap_err();
    assert_eq!(rejected.reason(), RejectReason::ThreadStart(kind));
    assert_eq!(group.next().state(), LoopState::NotStarted);
    assert_eq!((log.polls(), log.drops()), (0, 0));
    let again = group.try_spawn(rejected.into_inner()).unwrap();
    assert_eq!(block_on(again).unwrap(), 4);
    assert_eq!((log.polls(), log.drops()), (1, 1));
    let report = group.shutdown_now().wait();
    assert_eq!((report.completed(), report.rejected()), (1, 1));
    assert!(report.is_clean() && report.loops()[0].started());
}

#[test]
fn threads_start_on_first_use_and_are_gone_after_the_wait() {
    alone(
        "threads_start_on_first_use_and_are_gone_after_the_wait",
        || {
            let before = entries(TASKS);
            let group = EventLoopGroup::new(4).unwrap();
            assert_eq!(entries(TASKS), before);
            block_on(group.spawn_on(2, async {})).unwrap();
            assert_eq!(entries(TASKS), before + 1);
            let states: Vec<_> = group.loops().iter().map(EventLoop::state).collect();
            let unused = LoopState::NotStarted;
            assert_eq!(states, [unused, unused, LoopState::Started, unused]);
            group.start().unwrap();
            assert_eq!(entries(TASKS), before + 4);
            let observer = group.termination();
            drop(group);
            assert!(observer.wait().loops().iter().all(|one| one.started()));
            // The wait has joined them; the system may still have them in its list for a moment.
            eventually("all threads are gone", || entries(TASKS) == before);
        },
    );
}

#[test]
fn an_unused_loop_ends_without_a_thread() {
    alone("an_unused_loop_ends_without_a_thread", || {
        let before = entries(TASKS);
        let group = with_factory(3, |_| panic!("started only to be stopped"));
        let report = group.shutdown_gracefully().wait();
        assert!(report.loops().iter().all(|one| !one.started()));
        assert_eq!(entries(TASKS), before);
    });
}

#[test]
fn start_starts_every_loop_once() {
    within(|| {
        let started = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&started);
        let group = EventLoopGroup::builder()
            .loops(3)
            .on_thread_start(move |ev| log.lock().unwrap().push(ev.index()))
            .build()
            .unwrap();
        group.start().unwrap();
        group.start().unwrap();
        for ev in group.loops() {
            assert_eq!(ev.state(), LoopState::Started);
            thread_of(ev);
        }
        let mut started = started.lock().unwrap().clone();
        started.sort_unstable();
        assert_eq!(started, [0, 1, 2]);
    });
}

#[test]
fn a_factory_gets_what_the_builder_knows() {
    within(|| {
        let (tx, rx) = mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(2)
            .thread_name(|i| format!("made-{i}"))
            .thread_stack_size(1 << 22)
            .thread_factory(move |lt| {
                tx.send((lt.name().to_owned(), lt.index(), lt.stack_size()))
                    .unwrap();
                assert!(format!("{lt:?}").contains("made-"));
                start(lt)
            })
            .build()
            .unwrap();
        assert_eq!(block_on(group.spawn_on(1, async { 3 })).unwrap(), 3);
        assert_eq!(rx.recv().unwrap(), ("made-1".to_owned(), 1, Some(1 << 22)));
        assert!(rx.try_recv().is_err(), "the other loop has not been used");
    });
}

#[test]
fn first_uses_at_once_start_one_thread() {
    within(|| {
        let starts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&starts);
        let group = with_factory(1, move |lt| {
            count.fetch_add(1, Ordering::SeqCst);
            start(lt)
        });
        let barrier = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (group, barrier) = (group.clone(), Arc::clone(&barrier));
                thread::spawn(move || {
                    barrier.wait();
                    block_on(group.spawn(async move { n })).unwrap()
                })
            })
            .collect();
        let sum: i32 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(sum, 28);
        assert_eq!(starts.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_factory_that_fails_refuses_with_its_error() {
    within(|| {
        let kind = io::ErrorKind::PermissionDenied;
        let group = failing_once(move |_| Err(io::Error::new(kind, "not today")));
        assert_usable_after_failure(&group, kind);
    });
}

#[test]
fn a_factory_that_panics_refuses() {
    within(|| {
        let group = failing_once(|_| panic!("no threads here"));
        assert_usable_after_failure(&group, io::ErrorKind::Other);
    });
}

#[test]
fn a_factory_that_drops_its_loop_thread_refuses() {
    within(|| {
        let group = failing_once(|lt| {
            drop(lt);
            Ok(())
        });
        assert_usable_after_failure(&group, io::ErrorKind::Other);
    });
}

#[test]
fn a_factory_whose_loop_thread_is_dropped_elsewhere_refuses() {
    within(|| {
        let group = failing_once(|lt| {
            thread::spawn(move || drop(lt));
            Ok(())
        });
        assert_usable_after_failure(&group, io::ErrorKind::Other);
    });
}

#[test]
fn a_loop_thread_that_runs_on_a_loop_is_a_failed_start() {
    within(|| {
        let other = EventLoopGroup::new(1).unwrap();
        let ev = other.next().clone();
        let group = failing_once(move |lt| ev.execute(move || lt.run()).map_err(io::Error::from));
        assert_usable_after_failure(&group, io::ErrorKind::Other);
        let report = other.shutdown_now().wait();
        assert_eq!(report.completed(), 1, "the other loop lives on");
    });
}

#[test]
fn a_factory_that_submits_to_its_own_loop_is_refused_there() {
    within(|| {
        let ev: Arc<Mutex<Option<EventLoop>>> = Arc::default();
        let (own, (tx, rx)) = (Arc::clone(&ev), mpsc::channel());
        let group = with_factory(1, move |lt| {
            let own = own.lock().unwrap().clone().unwrap();
            let refused = own.execute(|| ()).map_err(|rejected| rejected.reason());
            tx.send(refused).unwrap();
            start(lt)
        });
        *ev.lock().unwrap() = Some(group.next().clone());
        assert_eq!(block_on(group.spawn(async { 8 })).unwrap(), 8);
        let deadlock = RejectReason::ThreadStart(io::ErrorKind::Deadlock);
        assert_eq!(rx.recv().unwrap(), Err(deadlock));
        // A closure of the group that holds a loop of the group would keep both for ever.
        ev.lock().unwrap().take();
    });
}

#[test]
fn a_promised_thread_that_does_not_come_refuses_in_time_and_may_come_later() {
    within(|| {
        let kept: Arc<Mutex<Option<LoopThread>>> = Arc::default();
        let keep = Arc::clone(&kept);
        let group = with_factory(1, move |lt| {
            *keep.lock().unwrap() = Some(lt);
            Ok(())
        });
        let begun = Instant::now();
        let reason = group.try_spawn(async {}).unwrap_err().reason();
        let timed_out = RejectReason::ThreadStart(io::ErrorKind::TimedOut);
        assert_eq!(reason, timed_out);
        assert!(begun.elapsed() >= Duration::from_secs(5));
        // Nobody waits for it again; but it may still come.
        let asked = Instant::now();
        assert_eq!(group.try_spawn(async {}).unwrap_err().reason(), timed_out);
        assert!(asked.elapsed() < Duration::from_secs(5), "refused at once");
        let lt = kept.lock().unwrap().take().unwrap();
        let late = thread::spawn(move || lt.run());
        util::eventually("the thread has come", || {
            group.next().state() == LoopState::Started
        });
        assert_eq!(block_on(group.try_spawn(async { 6 }).unwrap()).unwrap(), 6);
        drop(group);
        late.join().unwrap();
    });
}

#[test]
fn a_factory_may_run_the_loop_on_the_submitting_thread() {
    within(|| {
        let begun = Door::new();
        let inside = begun.clone();
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(|lt| {
                lt.run();
                Ok(())
            })
            .on_thread_start(move |_| inside.open())
            .build()
            .unwrap();
        let handle = group.clone();
        let submitter = thread::spawn(move || {
            let reason = handle.try_spawn(async {}).unwrap_err().reason();
            (thread::current().id(), reason)
        });
        begun.pass();
        let home = thread_of(group.next());
        group.shutdown_now().wait();
        assert_eq!(
            submitter.join().unwrap(),
            (home, RejectReason::ShutDown),
            "the thread was the loop until its end"
        );
    });
}

#[test]
fn a_failed_start_of_one_loop_is_named_and_the_others_stay() {
    within(|| {
        let broken = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&broken);
        let group = with_factory(3, move |lt| {
            if lt.index() == 1 && flag.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            start(lt)
        });
        let error = group.start().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().contains("loop 1"), "{error}");
        let states: Vec<_> = group.loops().iter().map(EventLoop::state).collect();
        let unused = LoopState::NotStarted;
        assert_eq!(states, [LoopState::Started, unused, unused]);
        broken.store(false, Ordering::SeqCst);
        group.start().unwrap();
        for index in 0..3 {
            block_on(group.spawn_on(index, async {})).unwrap();
        }
        assert!(group.shutdown_now().wait().is_clean());
    });
}

#[test]
fn a_stack_that_the_system_refuses_is_a_refused_submission() {
    alone(
        "a_stack_that_the_system_refuses_is_a_refused_submission",
        || {
            for bytes in [1 << 60, usize::MAX / 2, usize::MAX - 1, usize::MAX] {
                let group = EventLoopGroup::builder().loops(1).thread_stack_size(bytes);
                let group = group.build().unwrap();
                for _ in 0..2 {
                    let rejected = group.try_spawn(async { 1 }).unwrap_err();
                    let reason = rejected.reason();
                    assert!(matches!(reason, RejectReason::ThreadStart(_)), "{reason}");
                    assert_eq!(block_on(rejected.into_inner()), 1);
                }
                assert!(group.start().unwrap_err().to_string().contains("loop 0"));
                let report = group.shutdown_now().wait();
                assert_eq!((report.accepted(), report.rejected()), (0, 2));
                assert!(!report.loops()[0].started());
            }
        },
    );
}

#[test]
fn a_hook_of_a_loop_that_cannot_start_is_dropped_and_the_report_says_failed() {
    // A start that is tried again by its own failure would exhaust the stack.
    alone(
        "a_hook_of_a_loop_that_cannot_start_is_dropped_and_the_report_says_failed",
        || {
            type Fail = fn(LoopThread) -> io::Result<()>;
            let ways: [Fail; 3] = [
                |_| Err(io::ErrorKind::OutOfMemory.into()),
                |_| panic!("no thread"),
                |lt| {
                    drop(lt);
                    Ok(())
                },
            ];
            for fail in ways {
                let group = with_factory(1, fail);
                let dropped = util::DropCount::new();
                let guard = dropped.guard();
                group.next().add_shutdown_hook(move || drop(guard)).unwrap();
                let report = group.shutdown_now().wait();
                assert_eq!(report.hooks_run(), 0);
                assert_eq!(dropped.get(), 1);
                let [one] = report.loops() else {
                    panic!("one loop")
                };
                assert_eq!((one.cause(), one.started()), (EndCause::Failed, false));
                assert!(one.error().is_some() && !report.is_clean());
            }
        },
    );
}

#[test]
fn a_hook_starts_an_unused_loop_and_runs_on_it() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (tx, rx) = mpsc::channel();
        let hook = move || tx.send(EventLoop::current().map(|ev| ev.index())).unwrap();
        group.loops()[1].add_shutdown_hook(hook).unwrap();
        let report = group.shutdown_gracefully_with(Duration::ZERO, Duration::from_secs(10));
        let report = report.unwrap().wait();
        assert_eq!(rx.recv().unwrap(), Some(1));
        let started: Vec<_> = report.loops().iter().map(|one| one.started()).collect();
        assert_eq!(started, [false, true]);
    });
}

#[test]
fn a_hook_removed_while_an_unused_loop_shuts_down_does_not_hang_it() {
    within(|| {
        for _ in 0..300 {
            let group = EventLoopGroup::builder().loops(1).without_io();
            let group = group.build().unwrap();
            let ev = group.next().clone();
            let id = ev.add_shutdown_hook(|| ()).unwrap();
            let barrier = Arc::new(Barrier::new(2));
            let other = Arc::clone(&barrier);
            let remover = thread::spawn(move || {
                other.wait();
                ev.remove_shutdown_hook(id)
            });
            barrier.wait();
            let report = group.shutdown_now().wait();
            let removed = remover.join().unwrap();
            assert_eq!(report.hooks_run(), u64::from(!removed));
        }
    });
}

#[test]
fn a_submission_that_meets_the_end_of_an_unused_loop_is_accepted_or_refused() {
    within(|| {
        for round in 0..600 {
            // The selector that has to be closed makes the window of the race wide.
            let group = EventLoopGroup::new(1).unwrap();
            let ev = group.next().clone();
            let barrier = Arc::new(Barrier::new(2));
            let other = Arc::clone(&barrier);
            let submitter = thread::spawn(move || {
                other.wait();
                if round % 2 == 0 {
                    block_on(ev.spawn(async {})).is_ok()
                } else {
                    ev.execute(|| ()).is_ok()
                }
            });
            barrier.wait();
            let report = group.shutdown_now().wait();
            let completed = submitter.join().unwrap();
            assert_eq!(report.accepted() + report.rejected(), 1);
            assert_eq!(
                report.accepted(),
                report.completed() + report.panicked() + report.cancelled()
            );
            if round % 2 == 0 {
                assert_eq!(report.completed(), u64::from(completed));
            } else {
                assert_eq!(report.accepted(), u64::from(completed));
            }
        }
    });
}

/// Writes its name down when it is dropped, and whether the end had been announced by then.
struct Note {
    name: &'static str,
    log: Arc<Mutex<Vec<String>>>,
}

impl Drop for Note {
    fn drop(&mut self) {
        let ev = EventLoop::current().expect("dropped on the loop");
        let announced = poll_once(&mut ev.termination()).is_ready();
        let text = format!("{} {:?} {announced}", self.name, ev.state());
        self.log.lock().unwrap().push(text);
    }
}

#[test]
fn the_guard_of_the_thread_hook_goes_after_the_last_task_and_before_the_announcement() {
    within(|| {
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let note = |name| Note {
            name,
            log: Arc::clone(&log),
        };
        let hook_log = Arc::clone(&log);
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_thread_start(move |ev| {
                assert!(ev.in_event_loop());
                hook_log.lock().unwrap().push("hook".into());
                Note {
                    name: "guard",
                    log: Arc::clone(&hook_log),
                }
            })
            .build()
            .unwrap();
        let task = note("task");
        let waits = Door::new();
        let opened = waits.opened();
        drop(group.spawn(async move {
            opened.await;
            drop(task);
        }));
        let value = note("value");
        let bound = group.next().bind(move || value);
        eventually("the task waits", || waits.waiting() == 1);
        group.shutdown_now().wait();
        drop(bound);
        let expected = [
            "hook",
            "task Shutdown false",
            "value Shutdown false",
            "guard Shutdown false",
        ];
        assert_eq!(*log.lock().unwrap(), expected);
    });
}

/// A group whose thread hook is given, and the sites of the panics it reported.
fn hooked<G: 'static>(
    hook: impl Fn(&EventLoop) -> G + Send + Sync + 'static,
) -> (EventLoopGroup, mpsc::Receiver<(PanicSite, String)>) {
    let (tx, rx) = mpsc::channel();
    let group = EventLoopGroup::builder()
        .loops(1)
        .on_thread_start(hook)
        .on_panic(move |panic| {
            let _ = tx.send((panic.site(), panic.message().to_owned()));
        })
        .build()
        .unwrap();
    (group, rx)
}

#[test]
fn a_thread_hook_that_panics_is_reported_and_the_loop_goes_on() {
    within(|| {
        let (group, panics) = hooked(|_| panic!("no guard"));
        assert_eq!(block_on(group.spawn(async { 2 })).unwrap(), 2);
        let reported = panics.recv().unwrap();
        assert_eq!(reported, (PanicSite::ThreadHook, "no guard".into()));
        assert!(group.shutdown_now().wait().is_clean());
        assert!(panics.try_recv().is_err(), "reported once");
    });
}

#[test]
fn a_guard_that_panics_is_reported_and_the_end_is_announced() {
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            panic!("guard broke");
        }
    }
    within(|| {
        let (group, panics) = hooked(|_| Guard);
        block_on(group.spawn(async {})).unwrap();
        assert_eq!(group.shutdown_now().wait().completed(), 1);
        let reported = panics.try_recv().unwrap();
        assert_eq!(reported, (PanicSite::ThreadHook, "guard broke".into()));
    });
}

#[test]
fn a_thread_hook_may_submit_to_its_loop_and_comes_first() {
    within(|| {
        let order: Arc<Mutex<Vec<&str>>> = Arc::default();
        let log = Arc::clone(&order);
        let (group, _) = hooked(move |ev| {
            let log = Arc::clone(&log);
            let other = Arc::clone(&log);
            ev.execute(move || log.lock().unwrap().push("remote"))
                .unwrap();
            drop(loopgroup::spawn_local(async move {
                other.lock().unwrap().push("local");
            }));
        });
        let log = Arc::clone(&order);
        // Two hops: the first may be in the inbox before the hook runs, the second is not.
        thread_of(group.next());
        block_on(group.spawn(async move { log.lock().unwrap().push("task") })).unwrap();
        assert_eq!(*order.lock().unwrap(), ["remote", "local", "task"]);
    });
}

/// Drops the last handle of a group while the factory holds its thread up; then lets it go by `end`.
fn orphan_while_starting(
    end: fn(LoopThread),
) -> (Result<u8, Option<RejectReason>>, EndCause, bool) {
    let (entered, release) = (Door::new(), Door::new());
    let (inside, until) = (entered.clone(), release.clone());
    let group = with_factory(1, move |lt| {
        inside.open();
        until.pass();
        thread::spawn(move || end(lt));
        Ok(())
    });
    let ev = group.next().clone();
    let observer = group.termination();
    let submitter = thread::spawn(move || {
        block_on(ev.spawn(async { 9 })).map_err(|error| error.reject_reason())
    });
    entered.pass();
    drop(group);
    assert!(observer.wait_timeout(Duration::ZERO).is_none());
    release.open();
    let report = observer.wait();
    let [one] = report.loops() else {
        panic!("one loop")
    };
    // The loop may be gone before the submission knows that it is refused.
    let result = submitter.join().unwrap();
    assert_eq!(report.accepted() + report.rejected(), 1);
    (result, one.cause(), one.started())
}

#[test]
fn a_loop_whose_group_died_while_its_thread_started_still_ends() {
    within(|| {
        let (result, _, started) = orphan_while_starting(LoopThread::run);
        // With no quiet period the loop may be gone before the submission comes.
        assert!(
            matches!(result, Ok(9) | Err(Some(RejectReason::ShutDown))),
            "{result:?}"
        );
        assert!(started);
        let (result, cause, started) = orphan_while_starting(drop);
        let refused = result.unwrap_err().unwrap();
        assert!(
            matches!(
                refused,
                RejectReason::ThreadStart(_) | RejectReason::ShutDown
            ),
            "{refused}"
        );
        assert_eq!((cause, started), (EndCause::Idle, false));
    });
}

#[test]
fn a_stalled_loop_has_its_thread_and_its_siblings_have_none() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let release = stall(&group.loops()[0]);
        assert_eq!(group.loops()[1].state(), LoopState::NotStarted);
        let home = thread_of(&group.loops()[1]);
        release.open();
        assert_ne!(home, thread_of(&group.loops()[0]));
        assert_ne!(home, thread::current().id());
    });
}
