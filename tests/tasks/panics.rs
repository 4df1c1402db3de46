//! No panic of user code ends a loop; each one is joined by somebody or reported once.

use std::future::{Future, pending};
use std::io::Write;
use std::os::unix::net;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use loopgroup::blocking::BlockingGroup;
use loopgroup::io::Registered;
use loopgroup::net::Server;
use loopgroup::time::sleep;
use loopgroup::{
    Builder, Chooser, EndCause, EventLoop, EventLoopGroup, GroupView, JoinError, JoinHandle,
    PanicSite, RejectReason, block_on, spawn_local,
};

use crate::util::{self, Door, DropCount, Log, Probe, eventually, stall, thread_of, within};

/// A panic, as the handler saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    site: PanicSite,
    message: String,
    line: Option<u32>,
    index: Option<usize>,
}

/// What the handler has seen.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<Seen>>>);

impl Reports {
    fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Sites and messages, which is enough for most tests.
    fn brief(&self) -> Vec<(PanicSite, String)> {
        let seen = self.take().into_iter();
        seen.map(|seen| (seen.site, seen.message)).collect()
    }

    /// Makes a builder's panics come here.
    fn of(&self, builder: Builder) -> EventLoopGroup {
        let seen = self.clone();
        let handler = move |panic: &loopgroup::TaskPanic<'_>| {
            let location = panic.location();
            assert!(location.is_none_or(|place| place.file() == file!()));
            seen.0.lock().unwrap().push(Seen {
                site: panic.site(),
                message: panic.message().to_owned(),
                line: location.map(|place| place.line()),
                index: panic.loop_index(),
            });
        };
        builder.on_panic(handler).build().unwrap()
    }
}

/// A group whose panics are noted.
fn noted(loops: usize) -> (EventLoopGroup, Reports) {
    let reports = Reports::default();
    (reports.of(EventLoopGroup::builder().loops(loops)), reports)
}

fn brief(site: PanicSite, message: &str) -> (PanicSite, String) {
    (site, message.to_owned())
}

/// A value whose drop panics.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        // Without the noise of the panic hook.
        resume_unwind(Box::new(self.0));
    }
}

/// Keeps a value from its drop.
fn leak<T: 'static>(value: T) {
    Box::leak(Box::new(value));
}

/// The error that a task ends with.
#[track_caller]
fn error_of(handle: JoinHandle<()>) -> JoinError {
    block_on(handle).unwrap_err()
}

/// The loop still works.
#[track_caller]
fn assert_alive(ev: &EventLoop) {
    assert_eq!(block_on(ev.spawn(async { 1 })).unwrap(), 1);
    assert_eq!(block_on(ev.submit(|| 2)).unwrap(), 2);
}

#[test]
fn a_panic_in_a_poll_travels_in_the_handle_and_the_siblings_go_on() {
    within(|| {
        let (group, reports) = noted(1);
        let door = Door::new();
        let sibling = group.spawn(door.opened());
        let error = error_of(group.spawn(async { panic!("boom") }));
        assert!(error.is_panic() && !error.is_cancelled() && !error.is_rejected());
        assert_eq!(*error.into_panic().downcast::<&str>().unwrap(), "boom");
        door.open();
        block_on(sibling).unwrap();
        assert_alive(group.next());
        let report = group.shutdown_now().wait();
        assert_eq!((report.panicked(), report.completed()), (1, 3));
        assert!(!report.is_clean());
        assert_eq!(reports.take(), [], "a joined panic is not reported");
    });
}

#[test]
fn a_payload_of_any_type_comes_through_whole() {
    #[derive(Debug, PartialEq)]
    struct Code(u32);

    within(|| {
        let (group, reports) = noted(1);
        let raised = group.spawn(async { panic_any(Code(1)) });
        let error = error_of(raised);
        assert_eq!(*error.into_panic().downcast::<Code>().unwrap(), Code(1));
        let resumed = group.spawn(async { resume_unwind(Box::new(Code(2))) });
        let error = error_of(resumed);
        assert!(error.to_string().ends_with("panicked: Box<dyn Any>"));
        // It can be passed on, to the next handle.
        let passed = group.spawn(async move { resume_unwind(error.into_panic()) });
        let error = error_of(passed);
        assert_eq!(*error.into_panic().downcast::<Code>().unwrap(), Code(2));
        assert_eq!(reports.take(), []);
    });
}

#[test]
fn a_panic_that_nobody_joins_is_reported_once_with_the_place_of_the_spawn() {
    within(|| {
        let (group, reports) = noted(2);
        let ev = group.loops()[1].clone();
        type Submit = fn(&EventLoopGroup, &EventLoop) -> u32;
        let ways: [Submit; 11] = [
            |group, _| {
                drop(group.spawn_on(1, async { panic!("boom") }));
                line!() - 1
            },
            |_, ev| {
                drop(ev.spawn(async { panic!("boom") }));
                line!() - 1
            },
            |_, ev| {
                drop(ev.try_spawn(async { panic!("boom") }).unwrap());
                line!() - 1
            },
            |_, ev| {
                drop(ev.spawn_with(|| async { panic!("boom") }));
                line!() - 1
            },
            |_, ev| {
                ev.execute(|| panic!("boom")).unwrap();
                line!() - 1
            },
            |_, ev| {
                drop(ev.submit(|| panic!("boom")));
                line!() - 1
            },
            |_, ev| {
                ev.dispatch(|| panic!("boom")).unwrap();
                line!() - 1
            },
            |_, ev| {
                ev.lazy_execute(|| panic!("boom")).unwrap();
                line!() - 1
            },
            |_, ev| {
                ev.execute_after_iteration(|| panic!("boom")).unwrap();
                line!() - 1
            },
            |_, ev| {
                let spawn = || drop(spawn_local(async { panic!("boom") }));
                let line = line!() - 1;
                block_on(ev.submit(spawn)).unwrap();
                line
            },
            |_, ev| {
                let this = ev.clone();
                let dispatch = move || this.dispatch(|| panic!("boom")).unwrap();
                let line = line!() - 1;
                block_on(ev.submit(dispatch)).unwrap();
                line
            },
        ];
        for submit in ways {
            let line = submit(&group, &ev);
            eventually("it is reported", || {
                !reports.0.lock().unwrap().is_empty() || {
                    // A lazy closure needs somebody to wake the loop.
                    thread_of(&ev);
                    false
                }
            });
            thread_of(&ev);
            let expected = Seen {
                site: PanicSite::Task,
                message: "boom".to_owned(),
                line: Some(line),
                index: Some(1),
            };
            assert_eq!(reports.take(), [expected]);
        }
        let report = group.shutdown_now().wait();
        assert_eq!(report.panicked(), 11);
        assert_eq!(reports.take(), []);
    });
}

#[test]
fn a_panic_whose_handle_is_given_up_later_is_reported_then() {
    within(|| {
        let actions: [fn(JoinHandle<()>); 3] = [
            drop,
            |handle| handle.abort(),
            |handle| assert_eq!(block_on(handle.cancel()), None),
        ];
        for action in actions {
            let (group, reports) = noted(1);
            let handle = group.spawn(async { panic!("boom") });
            eventually("the task ends", || handle.is_finished());
            assert_eq!(reports.take(), [], "somebody could still join it");
            action(handle);
            group.shutdown_now().wait();
            assert_eq!(reports.brief(), [brief(PanicSite::Task, "boom")]);
        }
    });
}

/// How a task of the matrix ends.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    poll_panics: bool,
    drop_panics: bool,
    output_panics: bool,
    payload_panics: bool,
    fate: Fate,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    Local,
    With,
}

/// What becomes of the handle, before the task is polled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Joined,
    Detached,
    Aborted,
}

impl Case {
    fn all() -> Vec<Case> {
        let mut all = Vec::new();
        for kind in [Kind::Send, Kind::Local, Kind::With] {
            for fate in [Fate::Joined, Fate::Detached, Fate::Aborted] {
                for bits in 0..16_u8 {
                    all.push(Case {
                        kind,
                        fate,
                        poll_panics: bits & 1 != 0,
                        drop_panics: bits & 2 != 0,
                        output_panics: bits & 4 != 0,
                        payload_panics: bits & 8 != 0,
                    });
                }
            }
        }
        all
    }

    /// What the handler sees, in order.
    fn expected(self) -> Vec<(PanicSite, String)> {
        let mut reports = Vec::new();
        let poll = if self.payload_panics {
            "Box<dyn Any>"
        } else {
            "poll"
        };
        let destructor = |message| brief(PanicSite::Destructor, message);
        let joined = self.fate == Fate::Joined;
        match (self.fate, self.poll_panics) {
            (Fate::Aborted, _) => reports.extend(self.drop_panics.then(|| destructor("drop"))),
            (_, true) => {
                // The first panic is the task's end; the second one has no other way out.
                reports.extend(self.drop_panics.then(|| destructor("drop")));
                reports.extend((!joined).then(|| brief(PanicSite::Task, poll)));
            }
            (_, false) => {
                let unwanted = self.output_panics && (self.drop_panics || !joined);
                reports.extend(unwanted.then(|| destructor("output")));
                let unjoined = self.drop_panics && !joined;
                reports.extend(unjoined.then(|| brief(PanicSite::Task, "drop")));
            }
        }
        reports
    }
}

/// A future that ends as its case says.
struct Fragile(Case);

impl Future for Fragile {
    type Output = Option<Bomb>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Bomb>> {
        match (self.0.poll_panics, self.0.payload_panics) {
            (true, true) => resume_unwind(Box::new(Bomb("payload"))),
            (true, false) => resume_unwind(Box::new("poll")),
            (false, _) => Poll::Ready(self.0.output_panics.then(|| Bomb("output"))),
        }
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.0.drop_panics {
            resume_unwind(Box::new("drop"));
        }
    }
}

#[test]
fn every_mixture_of_panics_is_contained_and_accounted_for() {
    within(|| {
        let (group, reports) = noted(1);
        let ev = group.next();
        let mut panicked = 0;
        for case in Case::all() {
            let this = ev.clone();
            let handle = ev.submit(move || {
                // The loop is busy with this closure: what happens to the handle comes first.
                let handle = match case.kind {
                    Kind::Send => this.spawn(Fragile(case)),
                    Kind::Local => spawn_local(Fragile(case)),
                    Kind::With => {
                        // Made here, so that there is something to drop in every case.
                        let future = Fragile(case);
                        this.spawn_with(move || future)
                    }
                };
                match case.fate {
                    Fate::Joined => return Some(handle),
                    Fate::Detached => drop(handle),
                    Fate::Aborted => handle.abort(),
                }
                None
            });
            if let Some(handle) = block_on(handle).unwrap() {
                let end = match block_on(handle) {
                    Ok(output) => {
                        // The joiner owns the output, and its destructor.
                        leak(output);
                        "value"
                    }
                    Err(error) => match error.into_panic().downcast::<Bomb>() {
                        Ok(payload) => {
                            leak(payload);
                            "payload"
                        }
                        Err(payload) => *payload.downcast::<&str>().unwrap(),
                    },
                };
                let expected = match (case.poll_panics, case.payload_panics, case.drop_panics) {
                    (true, true, _) => "payload",
                    (true, false, _) => "poll",
                    (false, _, true) => "drop",
                    (false, _, false) => "value",
                };
                assert_eq!(end, expected, "{case:?}");
            }
            thread_of(ev);
            assert_eq!(reports.brief(), case.expected(), "{case:?}");
            let polled = case.fate != Fate::Aborted;
            panicked += u64::from(case.drop_panics || (case.poll_panics && polled));
        }
        let report = group.shutdown_now().wait();
        assert_eq!(report.panicked(), panicked);
        assert_eq!(
            report.accepted(),
            report.completed() + panicked + report.cancelled()
        );
        assert_eq!(reports.take(), []);
    });
}

#[test]
fn a_destructor_that_panics_on_completion_is_the_end_of_its_task() {
    within(|| {
        let (group, reports) = noted(1);
        let (bomb, output) = (Bomb("destructor"), DropCount::new());
        let guard = output.guard();
        let mut value = Some(guard);
        // The bomb is captured and not used, so it goes with the future.
        let handle = group.spawn(std::future::poll_fn(move |_| {
            let _ = &bomb;
            Poll::Ready(value.take().unwrap())
        }));
        let error = block_on(handle).unwrap_err();
        assert_eq!(
            *error.into_panic().downcast::<&str>().unwrap(),
            "destructor"
        );
        let home = thread_of(group.next());
        assert_eq!(
            (output.get(), output.thread()),
            (1, Some(home)),
            "its value goes with it"
        );
        assert_eq!(reports.take(), []);
        assert_eq!(group.shutdown_now().wait().panicked(), 1);
    });
}

#[test]
fn a_destructor_that_panics_on_cancel_is_reported_and_the_cancel_resolves() {
    within(|| {
        let (group, reports) = noted(1);
        let (door, bomb) = (Door::new(), Bomb("destructor"));
        let opened = door.opened();
        let line = line!() + 1;
        let handle = group.spawn(async move {
            let _bomb = bomb;
            opened.await;
        });
        eventually("the task waits", || door.waiting() == 1);
        assert_eq!(block_on(handle.cancel()), None);
        let expected = Seen {
            site: PanicSite::Destructor,
            message: "destructor".to_owned(),
            line: Some(line),
            index: Some(0),
        };
        assert_eq!(reports.take(), [expected]);
        assert_alive(group.next());
        let report = group.shutdown_now().wait();
        assert_eq!(
            (report.panicked(), report.cancelled(), report.completed()),
            (1, 0, 2)
        );
    });
}

#[test]
fn destructors_that_panic_in_the_teardown_do_not_stop_it() {
    within(|| {
        let (group, reports) = noted(1);
        let ev = group.next();
        let home = thread_of(ev);
        let door = Door::new();
        let mut logs = Vec::new();
        for _ in 0..3 {
            let waits = |door: &Door| {
                let opened = door.opened();
                move || async move {
                    let _bomb = Bomb("teardown");
                    opened.await;
                }
            };
            drop(ev.spawn(waits(&door)()));
            drop(ev.spawn_with(waits(&door)));
            let make = waits(&door);
            block_on(ev.submit(move || drop(spawn_local(make())))).unwrap();
            let log = Log::new();
            drop(ev.spawn(Probe::new(&log, door.opened())));
            logs.push(log);
        }
        eventually("all wait", || door.waiting() == 12);
        let report = group.shutdown_now().wait();
        assert_eq!((report.panicked(), report.cancelled()), (9, 3));
        assert_eq!(report.accepted(), report.completed() + 12);
        for log in logs {
            log.assert_home(home);
        }
        assert_eq!(
            reports.brief(),
            vec![brief(PanicSite::Destructor, "teardown"); 9]
        );
    });
}

#[test]
fn a_closure_that_is_dropped_unrun_and_panics_is_reported() {
    within(|| {
        let (group, reports) = noted(1);
        let ev = group.next();
        let release = stall(ev);
        let bomb = Bomb("captured");
        ev.execute(move || drop(bomb)).unwrap();
        let termination = group.shutdown_now();
        release.open();
        let report = termination.wait();
        assert_eq!(
            (report.completed(), report.panicked(), report.cancelled()),
            (1, 1, 0)
        );
        assert_eq!(reports.brief(), [brief(PanicSite::Destructor, "captured")]);
    });
}

#[test]
fn what_is_refused_by_no_loop_in_particular_and_panics_in_its_drop_does_not_hurt_the_submitter() {
    within(|| {
        let (group, reports) = noted(1);
        let bomb = Bomb("nowhere");
        let line = line!() + 1;
        let stray = group.spawn_on(1, async move { drop(bomb) });
        let reason = error_of(stray).reject_reason();
        assert_eq!(reason, Some(RejectReason::NoSuchLoop));
        let seen = Seen {
            site: PanicSite::Destructor,
            message: "nowhere".to_owned(),
            line: Some(line),
            index: None,
        };
        assert_eq!(reports.take(), [seen]);

        let blocking = BlockingGroup::new(1).unwrap();
        blocking.shutdown_now().wait();
        let bomb = Bomb("refused job");
        let refused = blocking.spawn(move || drop(bomb));
        let reason = error_of(refused).reject_reason();
        assert_eq!(reason, Some(RejectReason::ShutDown));
    });
}

#[test]
fn the_output_of_a_detached_task_that_panics_in_its_drop_is_contained_at_home() {
    within(|| {
        let (group, reports) = noted(2);
        let release = stall(&group.loops()[1]);
        drop(group.spawn_on(1, async { Bomb("output") }));
        release.open();
        assert_alive(&group.loops()[1]);
        let seen = reports.take();
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].site, &*seen[0].message),
            (PanicSite::Destructor, "output")
        );
        assert_eq!(seen[0].index, Some(1));
        // The task itself came to its end.
        assert_eq!(group.shutdown_now().wait().panicked(), 0);
    });
}

#[test]
fn an_output_that_panics_in_its_drop_does_not_hurt_whoever_gives_up_the_handle() {
    within(|| {
        let (group, _) = noted(1);
        for action in [drop as fn(JoinHandle<Bomb>), |handle| handle.abort()] {
            let handle = group.spawn(async { Bomb("output") });
            eventually("the task ends", || handle.is_finished());
            let given_up = catch_unwind(AssertUnwindSafe(|| action(handle)));
            assert!(given_up.is_ok());
        }
        assert_alive(group.next());
    });
}

#[test]
fn a_dispatched_closure_that_panics_inline_does_not_end_its_caller() {
    within(|| {
        let (group, reports) = noted(1);
        let this = group.next().clone();
        let after = group.next().submit(move || {
            this.dispatch(|| panic!("inline")).unwrap();
            "the caller goes on"
        });
        assert_eq!(block_on(after).unwrap(), "the caller goes on");
        assert_eq!(reports.brief(), [brief(PanicSite::Task, "inline")]);
        let report = group.shutdown_now().wait();
        assert_eq!((report.panicked(), report.completed()), (1, 1));
    });
}

#[test]
fn spawn_with_contains_a_panic_of_its_init() {
    within(|| {
        let (group, reports) = noted(1);
        let handle = group.spawn_with(|| -> std::future::Ready<()> { panic!("init") });
        let error = block_on(handle).unwrap_err();
        assert_eq!(*error.into_panic().downcast::<&str>().unwrap(), "init");
        assert_alive(group.next());
        assert_eq!(reports.take(), []);
        assert_eq!(group.shutdown_now().wait().panicked(), 1);
    });
}

/// An awaiter's waker that panics when it is woken, or when it is dropped.
#[derive(Default)]
struct BadWaker {
    calls: AtomicUsize,
    bomb: Option<Bomb>,
}

impl Wake for BadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.bomb.is_none() {
            resume_unwind(Box::new("waker"));
        }
    }
}

#[test]
fn a_foreign_waker_that_panics_when_a_task_ends_is_contained() {
    within(|| {
        for drop_panics in [false, true] {
            let (group, reports) = noted(1);
            let door = Door::new();
            let mut handle = group.spawn(door.opened());
            let waker = Waker::from(Arc::new(BadWaker {
                calls: AtomicUsize::new(0),
                bomb: drop_panics.then(|| Bomb("waker")),
            }));
            let poll = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
            assert!(poll.is_pending());
            if drop_panics {
                // From here on the task holds the only copy, and drops it on the loop.
                drop(waker);
            }
            door.open();
            eventually("it is reported", || !reports.0.lock().unwrap().is_empty());
            assert_alive(group.next());
            block_on(handle).unwrap();
            let seen = reports.take();
            assert_eq!(seen.len(), 1);
            assert_eq!(
                (seen[0].site, &*seen[0].message),
                (PanicSite::Waker, "waker")
            );
            assert_eq!(seen[0].index, Some(0));
            assert_eq!(group.shutdown_now().wait().panicked(), 0);
        }
    });
}

#[test]
fn a_foreign_waker_that_panics_at_termination_does_not_silence_the_others() {
    within(|| {
        let (group, reports) = noted(1);
        group.start().unwrap();
        let bad = Arc::new(BadWaker {
            calls: AtomicUsize::new(0),
            bomb: None,
        });
        let waker = Waker::from(Arc::clone(&bad));
        let (mut first, mut second) = (group.termination(), group.termination());
        for future in [&mut first, &mut second] {
            let poll = Pin::new(future).poll(&mut Context::from_waker(&waker));
            assert!(poll.is_pending());
        }
        let third = thread::spawn({
            let termination = group.termination();
            move || block_on(termination)
        });
        group.shutdown_now().wait();
        assert_eq!(third.join().unwrap().loops().len(), 1);
        assert_eq!(bad.calls.load(Ordering::SeqCst), 2);
        assert_eq!(reports.brief(), vec![brief(PanicSite::Waker, "waker"); 2]);
    });
}

#[test]
fn a_foreign_waker_that_panics_at_any_event_does_not_silence_the_others() {
    within(|| {
        let (group, reports) = noted(1);
        let (bad, good) = (Arc::new(BadWaker::default()), DropCount::new());
        let counted = good.clone();
        // The one who hears of it stands between two who break.
        let wakers = [
            Waker::from(Arc::clone(&bad)),
            waker_fn::waker_fn(move || drop(counted.guard())),
            Waker::from(Arc::clone(&bad)),
        ];
        let news = |events: usize| {
            eventually("all are woken", || {
                (good.get(), bad.calls.load(Ordering::SeqCst)) == (events, 2 * events)
            });
        };
        let all = wakers.clone();
        let kept = group.spawn(async move {
            let pair = |_| net::UnixStream::pair().unwrap();
            let (readable, peers): (Vec<_>, Vec<_>) = (0..6).map(pair).unzip();
            let sockets: Vec<_> = readable
                .into_iter()
                .map(|one| Registered::new(one).unwrap())
                .collect();
            let mut sleeps = all.each_ref().map(|_| sleep(Duration::from_secs(3600)));
            let mut requests = all.each_ref().map(|_| loopgroup::shutdown_requested());
            for (n, waker) in all.iter().enumerate() {
                let cx = &mut Context::from_waker(waker);
                assert!(sockets[n].poll_readable(cx).is_pending());
                assert!(sockets[n + 3].poll_readable(cx).is_pending());
                assert!(Pin::new(&mut sleeps[n]).poll(cx).is_pending());
                assert!(Pin::new(&mut requests[n]).poll(cx).is_pending());
            }
            for wait in &mut sleeps {
                wait.reset(Instant::now());
            }
            // In one turn of the selector; the others never hear anything but the end of their loop.
            for mut peer in &peers[..3] {
                peer.write_all(b"x").unwrap();
            }
            (sockets, peers, sleeps, requests)
        });
        let _kept = block_on(kept).unwrap();
        news(2);
        assert_alive(group.next());
        let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
        let server = server.serve(|_, _| async {}).unwrap();
        let mut ends = [server.clone(), server.clone(), server];
        for (end, waker) in ends.iter_mut().zip(&wakers) {
            let poll = Pin::new(end).poll(&mut Context::from_waker(waker));
            assert!(poll.is_pending());
        }
        let report = group.drain(Duration::from_secs(30)).wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        news(5);
        assert_eq!(reports.brief(), vec![brief(PanicSite::Waker, "waker"); 10]);
    });
}

#[test]
fn a_chooser_that_panics_falls_back_to_round_robin() {
    struct Broken;

    impl Chooser for Broken {
        fn choose(&self, _: &GroupView<'_>) -> usize {
            panic!("chooser");
        }
    }

    within(|| {
        let builder = EventLoopGroup::builder().loops(3).chooser(Broken);
        let group = Reports::default().of(builder);
        let here = || async { EventLoop::current().unwrap().index() };
        let seen: Vec<_> = (0..6)
            .map(|_| block_on(group.spawn(here())).unwrap())
            .collect();
        assert_eq!(seen, [0, 1, 2, 0, 1, 2]);
        let inside = group.spawn_on(0, async move { loopgroup::spawn(here()).await.unwrap() });
        assert_eq!(block_on(inside).unwrap(), 0, "also on a loop");
        assert!(group.shutdown_now().wait().is_clean());
    });
}

#[test]
fn a_chooser_that_panics_when_it_goes_does_not_hurt_whoever_lets_the_group_go() {
    within(|| {
        let bomb = Bomb("chooser");
        let first = move |_: &GroupView<'_>| {
            let _held = &bomb;
            0
        };
        let builder = EventLoopGroup::builder().loops(2).chooser(first);
        let group = Reports::default().of(builder);
        let end = group.termination();
        drop(group);
        assert!(end.wait().is_clean());
    });
}

#[test]
fn a_panic_handler_may_use_the_loop_it_is_called_on() {
    within(|| {
        let (tx, rx) = mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |panic| {
                let (tx, text) = (tx.clone(), panic.to_string());
                drop(loopgroup::spawn(async move { tx.send(text).unwrap() }));
            })
            .build()
            .unwrap();
        let line = line!() + 2;
        let release = stall(group.next());
        drop(group.spawn(async { panic!("boom") }));
        release.open();
        let text = rx.recv().unwrap();
        assert!(
            text.starts_with(&format!("task from {}:{line}:", file!())),
            "{text}"
        );
        assert!(text.ends_with(" panicked on loop 0: boom"), "{text}");
    });
}

/// Runs a test of this file in a process of its own and returns the lines that the crate printed.
#[track_caller]
fn lines_of_child(test: &'static str) -> Vec<String> {
    let output = within(move || util::in_child(test));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let ours = text.lines().filter(|line| line.contains("loopgroup: "));
    ours.map(str::to_owned).collect()
}

#[test]
fn without_a_handler_a_panic_is_one_line_on_stderr() {
    const LINE: u32 = line!() + 4;
    if util::is_child() {
        return within(|| {
            let group = EventLoopGroup::new(1).unwrap();
            drop(group.spawn(async { panic!("boom") }));
            error_of(group.spawn(async { panic!("joined") }));
            assert_alive(group.next());
            group.shutdown_now().wait();
        });
    }
    let lines = lines_of_child("without_a_handler_a_panic_is_one_line_on_stderr");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let place = format!("loopgroup: task from {}:{LINE}:", file!());
    assert!(lines[0].contains(&place), "{lines:?}");
    assert!(lines[0].ends_with(" panicked on loop 0: boom"), "{lines:?}");
}

#[test]
fn a_panic_handler_that_panics_is_contained_and_the_line_goes_to_stderr() {
    if util::is_child() {
        return within(|| {
            let builder = EventLoopGroup::builder().loops(1);
            let group = builder
                .on_panic(|_| panic_any(Bomb("handler")))
                .build()
                .unwrap();
            for _ in 0..2 {
                drop(group.spawn(async { panic!("boom") }));
                thread_of(group.next());
            }
            assert_alive(group.next());
            assert_eq!(group.shutdown_now().wait().panicked(), 2);
        });
    }
    let lines =
        lines_of_child("a_panic_handler_that_panics_is_contained_and_the_line_goes_to_stderr");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines
            .iter()
            .all(|line| line.ends_with(" panicked on loop 0: boom")),
        "{lines:?}"
    );
}

#[test]
fn a_thread_hook_that_panics_leaves_the_loop_at_work() {
    within(|| {
        let reports = Reports::default();
        let group = reports.of(EventLoopGroup::builder()
            .loops(2)
            .on_thread_start(|ev| assert!(ev.index() != 1, "hook")));
        for ev in group.loops() {
            assert_alive(ev);
        }
        let report = group.shutdown_now().wait();
        assert_eq!((report.completed(), report.panicked()), (4, 0));
        let seen = reports.take();
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].site, &*seen[0].message),
            (PanicSite::ThreadHook, "hook")
        );
        assert_eq!(seen[0].index, Some(1));
    });
}

#[test]
fn the_guard_of_a_thread_hook_that_panics_does_not_hold_up_the_end() {
    within(|| {
        let reports = Reports::default();
        let builder = EventLoopGroup::builder().loops(2);
        let group = reports.of(builder.on_thread_start(|_| Bomb("guard")));
        group.start().unwrap();
        let report = group.shutdown_now().wait();
        assert_eq!(report.loops().len(), 2);
        assert_eq!(
            reports.brief(),
            vec![brief(PanicSite::ThreadHook, "guard"); 2]
        );
    });
}

#[test]
fn a_shutdown_hook_that_panics_does_not_keep_the_others_from_running() {
    within(|| {
        let (group, reports) = noted(1);
        let ev = group.next();
        let (tx, rx) = mpsc::channel();
        let (first, last) = (tx.clone(), tx);
        ev.add_shutdown_hook(move || first.send(1).unwrap())
            .unwrap();
        ev.add_shutdown_hook(|| panic!("hook")).unwrap();
        let line = line!() - 1;
        ev.add_shutdown_hook(move || last.send(3).unwrap()).unwrap();
        let report = group.drain(Duration::from_secs(30)).wait();
        assert_eq!(rx.iter().collect::<Vec<_>>(), [1, 3]);
        assert_eq!((report.hooks_run(), report.hooks_panicked()), (3, 1));
        assert!(!report.is_clean());
        let expected = Seen {
            site: PanicSite::ShutdownHook,
            message: "hook".to_owned(),
            line: Some(line),
            index: Some(0),
        };
        assert_eq!(reports.take(), [expected]);
    });
}

#[test]
fn a_panic_in_block_on_goes_to_its_caller_and_the_context_is_restored() {
    within(|| {
        let (group, reports) = noted(1);
        let result: Result<(), _> = catch_unwind(AssertUnwindSafe(|| {
            group.block_on(async { panic!("mine") })
        }));
        let payload = result.unwrap_err();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "mine");
        let rejected = loopgroup::try_spawn(async {}).unwrap_err();
        assert_eq!(rejected.reason(), RejectReason::NoContext);
        assert_alive(group.next());
        assert_eq!(reports.take(), []);
    });
}

#[test]
fn a_panic_of_the_main_future_of_run_goes_to_its_caller_and_leaves_no_loop_behind() {
    within(|| {
        let log = Log::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            loopgroup::run(async {
                drop(spawn_local(Probe::new(&log, pending::<()>())));
                loopgroup::yield_now().await;
                panic!("main");
            })
        }));
        let payload = result.map(|_: Result<(), _>| ()).unwrap_err();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "main");
        assert_eq!(log.polls(), 1);
        log.assert_home(thread::current().id());
        assert!(EventLoop::current().is_none());
        assert_eq!(
            loopgroup::run(async { 1 }).unwrap(),
            1,
            "and it can be a loop again"
        );
    });
}

#[test]
fn a_panic_while_joining_does_not_touch_the_joined_task() {
    within(|| {
        let (group, reports) = noted(1);
        let door = Door::new();
        let inner = group.spawn(door.opened());
        let (tx, rx) = mpsc::channel();
        // It panics with the handle of the other in its hands: that one is detached.
        let outer = group.spawn(async move {
            let _inner = inner;
            tx.send(()).unwrap();
            panic!("outer");
        });
        rx.recv().unwrap();
        assert!(error_of(outer).is_panic());
        door.open();
        let report = group.drain(Duration::from_secs(30)).wait();
        assert_eq!(
            (report.completed(), report.panicked(), report.cancelled()),
            (1, 1, 0)
        );
        assert_eq!(reports.take(), []);
    });
}

#[test]
fn a_task_that_panics_during_a_shutdown_is_counted_and_the_end_comes() {
    within(|| {
        let (group, reports) = noted(1);
        drop(group.spawn(async {
            loopgroup::shutdown_requested().await;
            panic!("late");
        }));
        thread_of(group.next());
        let report = group.drain(Duration::from_secs(30)).wait();
        assert_eq!((report.completed(), report.panicked()), (1, 1));
        assert_eq!(reports.brief(), [brief(PanicSite::Task, "late")]);
    });
}
