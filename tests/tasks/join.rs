//! A join handle resolves in every state of its task, and each thing done to it has one meaning.

use std::cell::Cell;
use std::error::Error;
use std::future::{Future, pending};
use std::io::{self, Write};
use std::os::unix::net;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use futures::future::FusedFuture;
use loopgroup::io::Registered;
use loopgroup::signal::Signal;
use loopgroup::testing::{TestGroup, TestLoop};
use loopgroup::time::sleep;
use loopgroup::{
    EventLoop, EventLoopGroup, JoinError, JoinHandle, RejectReason, Rejected, Scheduled, TaskPanic,
    TerminationReport, block_on, spawn_local,
};

use crate::util::{
    Door, DropCount, Log, Probe, WakeCount, eventually, poll_once, stall, thread_of, within,
};

/// Where in its life a task is when something is done to its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Accepted, never polled; the loop is busy.
    Queued,
    /// Inside its first poll.
    Running,
    /// Polled once, waits.
    Waiting,
    /// Polled once, woken; the loop is busy.
    Woken,
    Completed,
    Panicked,
    /// Its loop ended while it waited.
    Cancelled,
    /// It was never accepted.
    Refused,
}

impl At {
    const ALL: [At; 8] = [
        At::Queued,
        At::Running,
        At::Waiting,
        At::Woken,
        At::Completed,
        At::Panicked,
        At::Cancelled,
        At::Refused,
    ];

    fn is_unfinished(self) -> bool {
        matches!(self, At::Queued | At::Running | At::Waiting | At::Woken)
    }
}

/// A task brought to a state, and the means to let it go on.
struct Stage {
    group: EventLoopGroup,
    home: ThreadId,
    log: Arc<Log>,
    /// Opens what the loop is busy with.
    loop_free: Door,
    /// Opens what the task waits for; its output is 7.
    door: Door,
}

/// Brings a task to a state.
fn at(state: At) -> (Stage, JoinHandle<u32>) {
    let group = EventLoopGroup::new(1).unwrap();
    let ev = group.next().clone();
    let home = thread_of(&ev);
    let (log, door, entered, mut loop_free) = (Log::new(), Door::new(), Door::new(), Door::new());
    match state {
        At::Queued => loop_free = stall(&ev),
        At::Completed => door.open(),
        At::Refused => drop(group.shutdown_now().wait()),
        _ => {}
    }
    if state != At::Running {
        entered.open();
    }
    let (opened, hold, inside) = (door.opened(), loop_free.clone(), entered.clone());
    let handle = group.spawn(Probe::new(&log, async move {
        if state == At::Running {
            inside.open();
            hold.pass();
        }
        assert!(state != At::Panicked, "on purpose");
        opened.await;
        7
    }));
    entered.pass();
    match state {
        At::Waiting | At::Woken | At::Cancelled => {
            eventually("the task waits", || door.waiting() == 1);
        }
        At::Completed | At::Panicked => eventually("the task ends", || handle.is_finished()),
        _ => {}
    }
    match state {
        At::Woken => {
            loop_free = stall(&ev);
            door.open();
        }
        At::Cancelled => drop(group.shutdown_now().wait()),
        _ => {}
    }
    let stage = Stage {
        group,
        home,
        log,
        loop_free,
        door,
    };
    (stage, handle)
}

impl Stage {
    /// Lets the loop and the task go on.
    fn go_on(&self) {
        self.loop_free.open();
        self.door.open();
    }

    /// Ends the group when the task has ended and checks what is true of every task.
    #[track_caller]
    fn end(self, state: At) -> TerminationReport {
        let ev = self.group.next();
        if !self.group.is_terminated() {
            // In this order: one that begins in between is seen before.
            eventually("all has ended", || {
                ev.pending_tasks() + ev.live_tasks() == 0
            });
        }
        let report = self.group.shutdown_now().wait();
        assert_eq!(
            report.accepted(),
            report.completed() + report.panicked() + report.cancelled()
        );
        if state == At::Refused {
            assert_eq!(self.log.polls(), 0);
            self.log.assert_home(thread::current().id());
        } else {
            self.log.assert_home(self.home);
        }
        report
    }
}

/// What kind of end an error stands for.
fn kind(error: &JoinError) -> &'static str {
    match (error.is_panic(), error.is_cancelled(), error.is_rejected()) {
        (true, false, false) => "panic",
        (false, true, false) => "cancelled",
        (false, false, true) => "rejected",
        _ => "more than one",
    }
}

fn result<T>(result: Result<T, JoinError>) -> Result<T, &'static str> {
    result.map_err(|error| kind(&error))
}

#[test]
fn awaiting_gives_the_end_of_the_task_in_every_state() {
    within(|| {
        for state in At::ALL {
            let (stage, mut handle) = at(state);
            assert_eq!(
                poll_once(&mut handle).is_pending(),
                state.is_unfinished(),
                "{state:?}"
            );
            let (stage, handle) = if state.is_unfinished() {
                (stage, handle)
            } else {
                // The poll above has taken the result: bring another task there.
                at(state)
            };
            stage.go_on();
            let expected = match state {
                At::Panicked => Err("panic"),
                At::Cancelled => Err("cancelled"),
                At::Refused => Err("rejected"),
                _ => Ok(7),
            };
            assert_eq!(result(block_on(handle)), expected, "{state:?}");
            stage.end(state);
        }
    });
}

#[test]
fn is_finished_is_true_from_the_end_on_and_not_before() {
    within(|| {
        for state in At::ALL {
            let (stage, handle) = at(state);
            assert_eq!(handle.is_finished(), !state.is_unfinished(), "{state:?}");
            stage.go_on();
            eventually("the task ends", || handle.is_finished());
            drop(handle);
            stage.end(state);
        }
    });
}

#[test]
fn dropping_the_handle_detaches_in_every_state() {
    within(|| {
        for state in At::ALL {
            let (stage, handle) = at(state);
            drop(handle);
            stage.go_on();
            let completed = state.is_unfinished() || state == At::Completed;
            let report = stage.end(state);
            assert_eq!(
                report.panicked(),
                u64::from(state == At::Panicked),
                "{state:?}"
            );
            assert_eq!(
                report.cancelled(),
                u64::from(state == At::Cancelled),
                "{state:?}"
            );
            assert_eq!(
                report.rejected(),
                u64::from(state == At::Refused),
                "{state:?}"
            );
            // Besides the task, `thread_of` and, in two states, the closure of `stall` completed.
            let others = 1 + u64::from(matches!(state, At::Queued | At::Woken));
            assert_eq!(
                report.completed(),
                others + u64::from(completed),
                "{state:?}"
            );
        }
    });
}

#[test]
fn abort_drops_an_unfinished_future_at_home_in_every_state() {
    within(|| {
        for state in At::ALL {
            let (stage, handle) = at(state);
            let polls = stage.log.polls();
            handle.abort();
            stage.loop_free.open();
            let log = Arc::clone(&stage.log);
            let cancelled = state.is_unfinished() || state == At::Cancelled;
            assert_eq!(
                stage.end(state).cancelled(),
                u64::from(cancelled),
                "{state:?}"
            );
            assert_eq!(log.polls(), polls, "{state:?}: no poll after an abort");
        }
    });
}

#[test]
fn cancel_resolves_once_the_future_is_dropped_in_every_state() {
    within(|| {
        for state in At::ALL {
            let (stage, handle) = at(state);
            let mut cancel = Box::pin(handle.cancel());
            let mut first = poll_once(&mut cancel);
            if matches!(state, At::Queued | At::Running | At::Woken) {
                assert!(first.is_pending(), "{state:?}: the loop is busy");
                assert_eq!(stage.log.drops(), 0, "{state:?}");
            }
            stage.loop_free.open();
            if first.is_pending() {
                first = Poll::Ready(block_on(cancel));
            }
            let expected = (state == At::Completed).then_some(7);
            assert_eq!(first, Poll::Ready(expected), "{state:?}");
            assert_eq!(
                stage.log.drops(),
                1,
                "{state:?}: dropped before it resolves"
            );
            stage.end(state);
        }
    });
}

#[test]
fn dropping_a_cancellation_does_not_take_it_back() {
    within(|| {
        for polled in [true, false] {
            for state in [At::Queued, At::Running, At::Waiting, At::Woken] {
                let (stage, handle) = at(state);
                let mut cancel = Box::pin(handle.cancel());
                if polled {
                    let _ = poll_once(&mut cancel);
                }
                drop(cancel);
                stage.loop_free.open();
                let ev = stage.group.next();
                // Everything before this had its turn: a task that still lives was not cancelled.
                thread_of(ev);
                let left = ev.pending_tasks() + ev.live_tasks();
                stage.go_on();
                assert_eq!(left, 0, "{state:?}, polled: {polled}");
                assert_eq!(stage.end(state).cancelled(), 1, "{state:?}");
            }
        }
    });
}

#[test]
fn forgetting_the_handle_leaks_no_task() {
    within(|| {
        for state in At::ALL {
            let (stage, handle) = at(state);
            #[allow(clippy::mem_forget)] // what this test is about
            std::mem::forget(handle);
            stage.go_on();
            let cancelled = u64::from(state == At::Cancelled);
            assert_eq!(stage.end(state).cancelled(), cancelled, "{state:?}");
        }
    });
}

#[test]
fn a_forgotten_termination_future_and_loop_handle_hold_nothing_up() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let (door, log) = (Door::new(), Log::new());
        let home = thread_of(&group.loops()[0]);
        let handle = group.spawn_on(0, Probe::new(&log, door.opened()));
        eventually("the task waits", || door.waiting() == 1);
        let mut waiting = group.termination();
        assert!(poll_once(&mut waiting).is_pending());
        let ev = group.next().clone();
        #[allow(clippy::mem_forget)] // what this test is about
        {
            std::mem::forget(waiting);
            std::mem::forget(ev);
            std::mem::forget(handle);
        }
        assert_eq!(group.shutdown_now().wait().cancelled(), 1);
        log.assert_home(home);
    });
}

#[test]
fn forgotten_waits_timers_closures_and_values_hold_nothing_up() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next().clone();
        let (value, closure) = (DropCount::new(), DropCount::new());
        let (kept, captured) = (value.guard(), closure.guard());
        let (one, mut other) = net::UnixStream::pair().unwrap();
        let inside = ev.clone();
        #[allow(clippy::mem_forget)] // what this test is about
        let task = group.spawn(async move {
            let socket = Registered::new(one)?;
            let mut wait = Box::pin(socket.readable());
            assert!(futures::poll!(&mut wait).is_pending());
            std::mem::forget(wait);
            let mut timer = sleep(Duration::from_secs(3600));
            assert!(futures::poll!(&mut timer).is_pending());
            std::mem::forget(timer);
            let later = inside.schedule(Duration::from_secs(3600), move || drop(captured));
            std::mem::forget(later);
            std::mem::forget(inside.bind(move || kept));
            // Somebody else waits for the same descriptor, beside the one who never comes back.
            socket.readable().await?;
            std::mem::forget(socket);
            io::Result::Ok(())
        });
        thread_of(&ev); // behind the first poll, which ends in that wait
        other.write_all(b"x").unwrap();
        block_on(task).unwrap().unwrap();
        let end = group.shutdown_gracefully_with(Duration::ZERO, Duration::MAX);
        let report = end.unwrap().wait();
        assert_eq!((report.cancelled(), report.channels_closed()), (1, 1));
        assert_eq!((value.get(), closure.get()), (1, 1), "they were the loop's");
    });
}

#[test]
fn polling_after_ready_panics_and_never_reports_a_false_result() {
    within(|| {
        for state in [At::Completed, At::Panicked, At::Cancelled, At::Refused] {
            let (stage, mut handle) = at(state);
            assert!(poll_once(&mut handle).is_ready());
            assert!(handle.is_finished(), "{state:?}");
            for _ in 0..2 {
                let again = catch_unwind(AssertUnwindSafe(|| poll_once(&mut handle)));
                let payload = again.expect_err("polled after it was ready");
                let text = payload.downcast_ref::<&str>().unwrap();
                assert_eq!(*text, "JoinHandle polled after it was ready", "{state:?}");
            }
            assert_eq!(format!("{handle:?}"), "JoinHandle(\"joined\")");
            stage.end(state);
        }
    });
}

#[test]
fn a_handle_is_fused() {
    within(|| {
        for state in At::ALL {
            let (stage, mut handle) = at(state);
            assert!(!handle.is_terminated(), "{state:?}");
            stage.go_on();
            eventually("the task ends", || handle.is_finished());
            assert!(
                !handle.is_terminated(),
                "{state:?}: the result is still there"
            );
            assert!(
                block_on(&mut handle).is_ok() == (state.is_unfinished() || state == At::Completed)
            );
            assert!(handle.is_terminated(), "{state:?}");
            stage.end(state);
        }
    });
}

#[test]
fn debug_shows_where_the_task_is() {
    within(|| {
        for state in At::ALL {
            let (stage, handle) = at(state);
            let expected = match state {
                At::Refused => "rejected",
                _ if state.is_unfinished() => "running",
                _ => "finished",
            };
            assert_eq!(format!("{handle:?}"), format!("JoinHandle({expected:?})"));
            stage.go_on();
            drop(handle);
            stage.end(state);
        }
    });
}

#[test]
fn awaiting_a_reference_may_be_given_up_and_taken_up_again() {
    within(|| {
        let (stage, mut handle) = at(At::Waiting);
        for _ in 0..3 {
            assert!(poll_once(&mut &mut handle).is_pending());
        }
        stage.go_on();
        assert_eq!(block_on(&mut handle).unwrap(), 7);
        stage.end(At::Waiting);
    });
}

#[test]
fn the_last_awaiter_is_woken_once() {
    within(|| {
        let (stage, mut handle) = at(At::Waiting);
        let counts = [(); 3].map(|()| WakeCount::new());
        for count in &counts {
            let waker = Waker::from(Arc::clone(count));
            let poll = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
            assert!(poll.is_pending());
        }
        stage.go_on();
        eventually("the last one is woken", || counts[2].get() > 0);
        assert_eq!(block_on(handle).unwrap(), 7);
        assert_eq!(counts.map(|count| count.get()), [0, 0, 1]);
        stage.end(At::Waiting);
    });
}

#[test]
fn a_handle_is_awaited_from_another_loop_and_moves_between_threads() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        let door = Door::new();
        let opened = door.opened();
        let mut handle = group.spawn_on(0, async move {
            opened.await;
            EventLoop::current().unwrap().index()
        });
        assert!(poll_once(&mut handle).is_pending());
        // Polled on a thread, then on loop 1, then awaited on loop 2.
        let mut handle = thread::spawn(move || {
            assert!(poll_once(&mut handle).is_pending());
            handle
        })
        .join()
        .unwrap();
        let polled = group.loops()[1].submit(move || {
            assert!(poll_once(&mut handle).is_pending());
            handle
        });
        let handle = block_on(polled).unwrap();
        let awaited = group.spawn_on(2, async move {
            let ran_on = handle.await.unwrap();
            (ran_on, EventLoop::current().unwrap().index())
        });
        door.open();
        assert_eq!(block_on(awaited).unwrap(), (0, 2));
    });
}

#[test]
fn the_handle_of_a_local_task_is_awaited_from_another_thread() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let handle = block_on(group.next().submit(|| {
            let local = Rc::new(Cell::new(1));
            spawn_local(async move {
                loopgroup::yield_now().await;
                local.get() + 1
            })
        }));
        assert_eq!(block_on(handle.unwrap()).unwrap(), 2);
    });
}

#[test]
fn an_output_that_is_not_send_is_joined_on_its_loop() {
    within(|| {
        let text = loopgroup::run(async {
            let shared: Rc<str> = spawn_local(async { Rc::from("rc") }).await.unwrap();
            shared.to_string()
        });
        assert_eq!(text.unwrap(), "rc");
    });
}

#[test]
fn the_output_belongs_to_the_one_who_joins() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let dropped = DropCount::new();
        let output = dropped.guard();
        let joined = block_on(group.spawn(async move { output })).unwrap();
        thread_of(group.next());
        assert_eq!(dropped.get(), 0);
        drop(joined);
        assert_eq!(
            (dropped.get(), dropped.thread()),
            (1, Some(thread::current().id()))
        );
    });
}

#[test]
fn an_output_that_nobody_takes_is_dropped_once() {
    within(|| {
        for action in ["drop", "abort"] {
            let group = EventLoopGroup::new(1).unwrap();
            let dropped = DropCount::new();
            let output = dropped.guard();
            let handle = group.spawn(async move { output });
            eventually("the task ends", || handle.is_finished());
            match action {
                "drop" => drop(handle),
                _ => {
                    handle.abort(); // too late: the output is there, for the handle
                    drop(handle);
                }
            }
            eventually("the output is dropped", || dropped.get() == 1);
            group.shutdown_now().wait();
            assert_eq!(dropped.get(), 1, "{action}");
        }
    });
}

/// An error of each kind.
fn errors() -> [JoinError; 3] {
    let group = EventLoopGroup::new(1).unwrap();
    let panicked: Result<(), _> =
        block_on(group.spawn(async { panic!("boom {}", std::hint::black_box(1)) }));
    let waiting = group.spawn(pending::<()>());
    group.shutdown_now().wait();
    let refused = block_on(group.spawn(async {}));
    [
        panicked.unwrap_err(),
        block_on(waiting).unwrap_err(),
        refused.unwrap_err(),
    ]
}

#[test]
fn an_error_is_of_one_kind_and_says_so() {
    within(|| {
        let errors = errors();
        assert_eq!(
            errors.each_ref().map(kind),
            ["panic", "cancelled", "rejected"]
        );
        assert_eq!(
            errors.each_ref().map(JoinError::reject_reason),
            [None, None, Some(RejectReason::ShutDown)]
        );
        let texts = errors.each_ref().map(ToString::to_string);
        assert!(
            texts[0].starts_with(concat!("task spawned at ", file!(), ":")),
            "{}",
            texts[0]
        );
        assert!(texts[0].ends_with(" panicked: boom 1"), "{}", texts[0]);
        assert_eq!(texts[1], "task was cancelled");
        assert_eq!(texts[2], "task was rejected: the event loop is shut down");
        let debugs = errors.each_ref().map(|error| format!("{error:?}"));
        assert!(
            debugs[0].starts_with("JoinError::Panic { message: \"boom 1\""),
            "{}",
            debugs[0]
        );
        assert_eq!(debugs[1], "JoinError::Cancelled");
        assert_eq!(debugs[2], "JoinError::Rejected(ShutDown)");
        assert!(errors.iter().all(|error| error.source().is_none()));
    });
}

#[test]
fn an_error_becomes_an_io_error_with_itself_inside() {
    within(|| {
        let kinds = errors().map(|error| {
            let (before, kind) = (error.to_string(), kind(&error));
            let error = io::Error::from(error);
            assert_eq!(error.to_string(), before);
            let inner = error
                .get_ref()
                .unwrap()
                .downcast_ref::<JoinError>()
                .unwrap();
            assert_eq!(self::kind(inner), kind);
            error.kind()
        });
        use io::ErrorKind::{BrokenPipe, Other};
        assert_eq!(kinds, [Other, Other, BrokenPipe]);
    });
}

#[test]
fn into_panic_gives_the_payload_and_panics_without_one() {
    within(|| {
        let [panicked, cancelled, refused] = errors();
        assert_eq!(
            *panicked.into_panic().downcast::<String>().unwrap(),
            "boom 1"
        );
        for error in [cancelled, refused] {
            let before = error.to_string();
            let error = error.try_into_panic().expect_err("there is no payload");
            assert_eq!(error.to_string(), before, "unchanged");
            let payload = catch_unwind(AssertUnwindSafe(|| error.into_panic())).unwrap_err();
            let text = payload.downcast_ref::<String>().unwrap();
            assert!(
                text.contains(&before) && text.contains("is_panic()"),
                "{text}"
            );
        }
    });
}

#[test]
fn a_refusal_is_an_error_whatever_was_refused() {
    within(|| {
        fn is_error<E: Error + Send + 'static>(error: E) -> String {
            error.to_string()
        }
        let rejected = loopgroup::try_spawn(async {}).unwrap_err();
        assert_eq!(
            format!("{rejected:?}"),
            "Rejected { reason: NoContext, .. }"
        );
        assert!(is_error(rejected).starts_with("submission rejected: "));
        let rejected = loopgroup::try_spawn(async {}).unwrap_err();
        assert_eq!(io::Error::from(rejected).kind(), io::ErrorKind::Unsupported);
        let group = EventLoopGroup::new(1).unwrap();
        group.shutdown_now().wait();
        let rejected = group.next().execute(|| ()).unwrap_err();
        let error = io::Error::from(rejected);
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let inner = error.get_ref().unwrap().downcast_ref::<RejectReason>();
        assert_eq!(inner, Some(&RejectReason::ShutDown));
    });
}

/// Says at compile time that a type has none of a trait: were it otherwise, `_` would be ambiguous.
macro_rules! assert_not {
    ($type:ty: $trait:ident) => {
        const _: fn() = || {
            trait Ambiguous<A> {
                fn ask() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            struct Has;
            impl<T: ?Sized + $trait> Ambiguous<Has> for T {}
            let _ = <$type as Ambiguous<_>>::ask;
        };
    };
}

assert_not!(JoinHandle<Rc<()>>: Send);
assert_not!(Scheduled<Rc<()>>: Send);
assert_not!(Registered<Rc<net::UnixStream>>: Send);
assert_not!(Registered<Rc<net::UnixStream>>: Sync);
assert_not!(TestLoop: Send);
assert_not!(TestGroup: Send);
assert_not!(TaskPanic<'static>: Clone);
assert_not!(Rejected<Rc<()>>: Send);
assert_not!(JoinHandle<()>: Clone);
assert_not!(JoinError: Clone);

#[test]
fn public_types_cross_threads_as_promised() {
    use loopgroup::blocking::{BlockingBuilder, BlockingGroup, WhenFull};
    use loopgroup::net::{
        Incoming, OwnedReadHalf, OwnedWriteHalf, Server, ServerHandle, ServerReport, TcpListener,
        TcpStream, UdpSocket, UnixDatagram, UnixIncoming, UnixListener, UnixOwnedReadHalf,
        UnixOwnedWriteHalf, UnixStream,
    };
    use loopgroup::{
        Builder, CloseChannels, CorePinning, EndCause, GroupMetrics, GroupView, Histogram, HookId,
        LeastBusy, LeastLoaded, LoopBound, LoopMetrics, LoopReport, LoopState, LoopThread,
        PanicSite, PreferCurrent, Prometheus, RejectPolicy, RejectVerdict, RoundRobin,
        ShutdownRequested, Stall, StallKind, TerminationFuture, Trace, WaitStrategy, YieldNow,
    };
    fn all<T: Send + Sync + Unpin>() {}
    fn send<T: Send>() {}
    fn future<T: Future + Send + Unpin>() {}
    fn error<T: Error + Send + Sync + 'static>() {}

    all::<EventLoopGroup>();
    all::<EventLoop>();
    all::<TerminationFuture>();
    all::<TerminationReport>();
    all::<LoopReport>();
    all::<EndCause>();
    all::<LoopState>();
    all::<HookId>();
    all::<RejectReason>();
    all::<RejectPolicy>();
    all::<WaitStrategy>();
    all::<RoundRobin>();
    all::<LeastLoaded>();
    all::<LeastBusy>();
    all::<PreferCurrent>();
    all::<BlockingGroup>();
    all::<BlockingBuilder>();
    all::<JoinHandle<()>>();
    all::<Scheduled<()>>();
    all::<CloseChannels>();
    all::<CorePinning>();
    all::<RejectVerdict>();
    all::<WhenFull>();
    all::<PanicSite>();
    all::<LoopMetrics>();
    all::<Histogram>();
    all::<Prometheus>();
    all::<Stall>();
    all::<StallKind>();
    all::<Trace>();
    all::<GroupMetrics>();
    all::<GroupView<'_>>();
    // Any loop may have a socket, and any number of tasks may share it.
    all::<TcpListener>();
    all::<TcpStream>();
    all::<OwnedReadHalf>();
    all::<OwnedWriteHalf>();
    all::<Incoming<'_>>();
    all::<UdpSocket>();
    all::<UnixListener>();
    all::<UnixStream>();
    all::<UnixOwnedReadHalf>();
    all::<UnixOwnedWriteHalf>();
    all::<UnixIncoming<'_>>();
    all::<UnixDatagram>();
    #[cfg(target_os = "linux")]
    all::<loopgroup::net::UCred>();
    all::<Registered<net::UnixStream>>();
    all::<Server>();
    all::<ServerHandle>();
    all::<ServerReport>();
    future::<ServerHandle>();
    future::<Signal>();
    // A handle to a value that is neither is both.
    all::<LoopBound<Rc<Cell<()>>>>();
    send::<Builder>();
    send::<LoopThread>();
    future::<JoinHandle<()>>();
    // The output is handed out, never shared: it need not be Sync, nor Unpin.
    future::<JoinHandle<Cell<std::marker::PhantomPinned>>>();
    future::<TerminationFuture>();
    future::<ShutdownRequested>();
    future::<YieldNow>();
    error::<JoinError>();
    error::<Rejected<()>>();
    error::<RejectReason>();
}

#[test]
fn the_future_of_cancel_is_send() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let handle = group.spawn(pending::<()>());
        let cancelled = loopgroup::EventLoopGroup::new(1)
            .unwrap()
            .block_on(async move { loopgroup::spawn(send(handle.cancel())).await });
        assert_eq!(cancelled.unwrap(), None);
    });
}
