//! The end of a group is seen by everybody who waits for it, once, and with figures that add up.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use loopgroup::blocking::BlockingGroup;
use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, JoinHandle, LoopState, LoopThread, PanicSite,
    RejectReason, TerminationFuture, TerminationReport,
};

use crate::util::{
    CountOnDrop, Door, DropCount, HOUR, eventually, poll_once, stall, thread_of, within,
};

/// A waker that counts its wakes, and panics if it is told to.
#[derive(Default)]
struct Bell {
    wakes: AtomicUsize,
    panics: bool,
}

impl Bell {
    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "the bell broke");
    }
}

fn poll_with(future: &mut TerminationFuture, bell: &Arc<Bell>) -> Poll<TerminationReport> {
    let waker = Waker::from(Arc::clone(bell));
    std::future::Future::poll(Pin::new(future), &mut Context::from_waker(&waker))
}

/// A factory that never gets a thread.
fn no_thread(_: LoopThread) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::OutOfMemory,
        "no more threads",
    ))
}

fn figures(report: &TerminationReport) -> [u64; 6] {
    [
        report.accepted(),
        report.completed(),
        report.panicked(),
        report.cancelled(),
        report.rejected(),
        report.hooks_run(),
    ]
}

#[test]
fn the_future_is_what_it_promises_to_be() {
    fn check<T: Clone + Send + Sync + Unpin + std::fmt::Debug + 'static>() {}
    check::<TerminationFuture>();
    check::<TerminationReport>();
}

// ---- many who wait ----------------------------------------------------------------------------

#[test]
fn many_awaiters_in_many_places_see_the_same_end() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let others = EventLoopGroup::new(2).unwrap();
        group.block_on(group.spawn(async {})).unwrap();
        let release = stall(&group.loops()[0]);
        let end = group.shutdown_now();
        let arrived = Arc::new(Barrier::new(13));
        let mut threads = Vec::new();
        for n in 0..12 {
            let (end, arrived) = (end.clone(), Arc::clone(&arrived));
            threads.push(thread::spawn(move || {
                arrived.wait();
                match n % 3 {
                    0 => loopgroup::block_on(end),
                    1 => end.wait(),
                    _ => end.wait_timeout(HOUR).unwrap(),
                }
            }));
        }
        let tasks: Vec<_> = (0..8).map(|_| others.spawn(end.clone())).collect();
        let local = others.spawn_with({
            let end = end.clone();
            move || async move { loopgroup::spawn_local(end).await.unwrap() }
        });
        let bell = Arc::new(Bell::default());
        let mut by_hand = end.clone();
        assert!(poll_with(&mut by_hand, &bell).is_pending());
        arrived.wait();
        assert_eq!(bell.wakes(), 0);
        release.open();
        let mut reports = vec![end.wait()];
        for thread in threads {
            reports.push(thread.join().unwrap());
        }
        for task in tasks.into_iter().chain([local]) {
            reports.push(loopgroup::block_on(task).unwrap());
        }
        eventually("the bell rings", || bell.wakes() == 1);
        let Poll::Ready(report) = poll_with(&mut by_hand, &bell) else {
            panic!("woken, so ready")
        };
        reports.push(report);
        assert_eq!(reports.len(), 23);
        for report in &reports {
            assert_eq!(figures(report), [2, 2, 0, 0, 0, 0]);
            assert_eq!(report.elapsed(), reports[0].elapsed());
        }
        // Once more after ready, and one that comes late.
        assert!(poll_with(&mut by_hand, &bell).is_ready());
        assert!(poll_once(&mut group.termination()).is_ready());
        assert_eq!(bell.wakes(), 1);
    });
}

#[test]
fn a_panicking_waker_is_reported_and_does_not_stop_the_others() {
    within(|| {
        let panics = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&panics);
        let group = EventLoopGroup::builder()
            .loops(2)
            .on_panic(move |panic| {
                let entry = (panic.site(), panic.loop_index(), panic.message().to_owned());
                seen.lock().unwrap().push(entry);
            })
            .build()
            .unwrap();
        let ev = &group.loops()[1];
        let release = stall(ev);
        let bells: Vec<_> = (0..5)
            .map(|n| {
                Arc::new(Bell {
                    panics: n % 2 == 0,
                    ..Bell::default()
                })
            })
            .collect();
        let mut ends: Vec<_> = (0..10)
            .map(|n| {
                if n < 5 {
                    ev.termination()
                } else {
                    group.termination()
                }
            })
            .collect();
        for (n, end) in ends.iter_mut().enumerate() {
            assert!(poll_with(end, &bells[n % 5]).is_pending());
        }
        let end = group.shutdown_now();
        release.open();
        end.wait();
        for bell in &bells {
            assert_eq!(bell.wakes(), 2);
        }
        assert!(ends.iter_mut().all(|end| poll_once(end).is_ready()));
        let panics = panics.lock().unwrap();
        let entry = (PanicSite::Waker, Some(1), "the bell broke".to_owned());
        assert_eq!(*panics, vec![entry; 6], "loop 1 was the last one to end");
    });
}

#[test]
fn a_clone_waits_for_itself() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
        let mut first = group.termination();
        assert!(poll_with(&mut first, &bells[0]).is_pending());
        let mut second = first.clone();
        assert!(poll_with(&mut second, &bells[1]).is_pending());
        drop(first);
        group.shutdown_now().wait();
        assert_eq!((bells[0].wakes(), bells[1].wakes()), (0, 1));
        assert!(poll_once(&mut second).is_ready());
    });
}

#[test]
fn a_future_keeps_the_last_waker_only_and_gives_it_back_when_dropped() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
        let held = || (Arc::strong_count(&bells[0]), Arc::strong_count(&bells[1]));
        let mut end = group.termination();
        for _ in 0..10 {
            assert!(poll_with(&mut end, &bells[0]).is_pending());
        }
        assert_eq!(held(), (2, 1));
        assert!(poll_with(&mut end, &bells[1]).is_pending());
        assert_eq!(held(), (1, 2));
        drop(end);
        assert_eq!(held(), (1, 1));
        group.shutdown_now().wait();
        assert_eq!((bells[0].wakes(), bells[1].wakes()), (0, 0));
    });
}

#[test]
fn wakers_are_given_back_at_the_end() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        let bell = Arc::new(Bell::default());
        let mut ends: Vec<_> = (0..5).map(|_| group.termination()).collect();
        for end in &mut ends {
            assert!(poll_with(end, &bell).is_pending());
        }
        assert_eq!(Arc::strong_count(&bell), 6);
        group.shutdown_now().wait();
        assert_eq!(bell.wakes(), 5);
        assert_eq!(Arc::strong_count(&bell), 1, "also while the futures live");
    });
}

#[test]
fn a_dropped_future_does_not_stop_the_shutdown() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        drop(group.shutdown_now());
        assert_eq!(group.termination().wait().loops()[0].cause(), EndCause::Now);
    });
}

#[test]
fn observing_does_not_ask_for_the_end() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        group.start().unwrap();
        let end = group.termination();
        assert!(end.wait_timeout(Duration::ZERO).is_none());
        assert!(end.wait_timeout(Duration::from_millis(5)).is_none());
        assert_eq!(group.next().state(), LoopState::Started);
        drop(group.shutdown_now());
        assert!(end.wait_timeout(Duration::MAX).is_some());
        assert!(end.wait_timeout(Duration::ZERO).is_some());
    });
}

#[test]
fn every_call_of_every_kind_of_shutdown_resolves() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let mut threads = Vec::new();
        for _ in 0..4 {
            let group = group.clone();
            threads.push(thread::spawn(move || {
                let mut ends = Vec::new();
                for _ in 0..5 {
                    ends.push(group.shutdown_gracefully());
                    ends.push(group.shutdown_gracefully_with(HOUR, HOUR).unwrap());
                    ends.push(group.drain(HOUR));
                    ends.push(group.shutdown_now());
                    ends.push(group.loops()[0].shutdown_now());
                    ends.push(group.loops()[1].drain(HOUR));
                }
                ends
            }));
        }
        let ends: Vec<_> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(ends.len(), 120);
        for end in ends {
            assert!(loopgroup::block_on(end.clone()).is_clean());
            assert!(end.wait().is_clean());
        }
    });
}

#[test]
fn the_group_ends_with_its_last_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let release = stall(&group.loops()[0]);
        let bell = Arc::new(Bell::default());
        let mut end = group.shutdown_now();
        group.loops()[1].termination().wait();
        assert!(poll_with(&mut end, &bell).is_pending());
        assert!(!group.is_terminated());
        release.open();
        end.wait();
        assert_eq!(bell.wakes(), 1);
        assert!(group.is_terminated());
    });
}

// ---- on loops ---------------------------------------------------------------------------------

#[test]
fn a_blocking_wait_on_any_loop_panics_and_says_what_to_do() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let other = EventLoopGroup::new(1).unwrap();
        let own = group.loops()[0].termination();
        let waits: [fn(&TerminationFuture); 2] = [
            |end| drop(end.wait()),
            |end| drop(end.wait_timeout(Duration::ZERO)),
        ];
        for wait in waits {
            // On its own loop, on a sibling, on a loop of another group.
            for ev in group.loops().iter().chain(other.loops()) {
                let end = own.clone();
                let error = loopgroup::block_on(ev.submit(move || wait(&end))).unwrap_err();
                let payload = error.into_panic();
                let text = payload.downcast_ref::<String>().unwrap();
                assert!(text.contains("TerminationFuture::wait"), "{text}");
                assert!(text.contains("outside of the group that ends"), "{text}");
            }
            let panicked =
                loopgroup::run(async { catch_unwind(AssertUnwindSafe(|| wait(&own))).is_err() });
            assert!(panicked.unwrap());
        }
        // The loops have survived it, and it is no reason not to end.
        assert_eq!(group.drain(HOUR).wait().panicked(), 4);
        // Also when the end has come already: whether it blocks must not depend on luck.
        let refused = loopgroup::block_on(other.next().submit(move || drop(own.wait())));
        assert!(refused.unwrap_err().is_panic());
    });
}

#[test]
fn a_task_that_awaits_its_own_loop_is_cancelled_by_its_end() {
    within(|| {
        let ways: [fn(&EventLoopGroup) -> TerminationFuture; 3] = [
            EventLoopGroup::shutdown_now,
            |group| group.drain(Duration::from_millis(10)),
            |group| {
                let quiet = Duration::from_millis(5);
                group.shutdown_gracefully_with(quiet, HOUR).unwrap()
            },
        ];
        for way in ways {
            let group = EventLoopGroup::new(1).unwrap();
            let ev = group.next().clone();
            let tasks = [
                ev.spawn(group.termination()),
                ev.spawn(ev.termination()),
                ev.spawn(group.termination()),
            ];
            eventually("they wait", || ev.live_tasks() == 3);
            let report = way(&group).wait();
            assert_eq!((report.completed(), report.cancelled()), (0, 3));
            for task in tasks {
                assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
            }
        }
    });
}

#[test]
fn a_task_may_await_the_end_of_a_sibling() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let sibling = group.loops()[1].clone();
        let task = group.spawn_on(0, async move { sibling.shutdown_now().await });
        let report = loopgroup::block_on(task).unwrap();
        assert_eq!(report.loops()[0].index(), 1);
        assert_eq!(group.loops()[0].state(), LoopState::Started);
    });
}

// ---- what is over by then ---------------------------------------------------------------------

#[test]
fn everything_of_a_loop_is_over_before_its_end_is_told() {
    within(|| {
        let guards = DropCount::new();
        let kept = guards.clone();
        let group = EventLoopGroup::builder()
            .loops(2)
            .on_thread_start(move |_| kept.guard())
            .build()
            .unwrap();
        let futures = DropCount::new();
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let guard = futures.guard();
                group.spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                })
            })
            .collect();
        group.loops()[0].add_shutdown_hook(|| {}).unwrap();
        let report = loopgroup::block_on(group.shutdown_now());
        assert_eq!((guards.get(), futures.get()), (2, 20));
        assert!(tasks.iter().all(|task| task.is_finished()));
        assert!(group.is_terminated());
        assert_eq!(report.hooks_run(), 1);
    });
}

thread_local! {
    static KEPT: RefCell<Option<CountOnDrop>> = const { RefCell::new(None) };
}

#[test]
fn wait_joins_the_threads() {
    within(|| {
        for _ in 0..20 {
            let group = EventLoopGroup::new(2).unwrap();
            let drops = DropCount::new();
            for ev in group.loops() {
                let guard = drops.guard();
                ev.execute(move || KEPT.set(Some(guard))).unwrap();
                thread_of(ev);
            }
            // Several wait at once, and each returns after the threads' last destructor.
            let end = group.shutdown_now();
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let (end, drops) = (end.clone(), drops.clone());
                    thread::spawn(move || {
                        end.wait();
                        drops.get()
                    })
                })
                .collect();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), 2);
            }
        }
    });
}

thread_local! {
    static LAST_WORD: RefCell<Option<LastWord>> = const { RefCell::new(None) };
}

/// Waits for the end of its own loop from a destructor of the loop's thread.
struct LastWord {
    end: TerminationFuture,
    joining: Door,
    done: Door,
}

impl Drop for LastWord {
    fn drop(&mut self) {
        self.joining.pass();
        self.end.wait();
        self.done.open();
    }
}

#[test]
fn a_wait_in_a_destructor_of_the_loops_own_thread_does_not_wait_for_itself() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (joining, done) = (Door::new(), Door::new());
        let word = LastWord {
            end: group.termination(),
            joining: joining.clone(),
            done: done.clone(),
        };
        let set = group.next().submit(move || LAST_WORD.set(Some(word)));
        loopgroup::block_on(set).unwrap();
        let end = group.shutdown_now();
        loopgroup::block_on(end.clone());
        let waiter = thread::spawn(move || end.wait());
        // Time for the waiter to begin its join: it is then inside when the destructor comes. It
        // must be right in either order, so nothing depends on this but the severity of the test.
        thread::sleep(Duration::from_millis(20));
        joining.open();
        done.pass();
        waiter.join().unwrap();
    });
}

// ---- figures ----------------------------------------------------------------------------------

#[test]
fn the_figures_of_a_group_add_up() {
    within(|| {
        let group = EventLoopGroup::builder().loops(2).on_panic(|_| {});
        let group = group.build().unwrap();
        let [a, b] = group.loops() else {
            panic!("two loops")
        };
        for _ in 0..3 {
            loopgroup::block_on(a.spawn(async {})).unwrap();
        }
        loopgroup::block_on(b.submit(|| {})).unwrap();
        for ev in [a, b] {
            let joined: Result<(), _> = loopgroup::block_on(ev.spawn(async { panic!("joined") }));
            assert!(joined.unwrap_err().is_panic());
        }
        drop(b.submit(|| panic!("detached")));
        let live = Door::new();
        let tasks = [a.spawn(live.opened()), b.spawn(live.opened())];
        eventually("they wait", || live.waiting() == 2);
        // Cancelled by its handle, which is a cancellation as any other.
        let aborted = b.spawn(live.opened());
        assert_eq!(loopgroup::block_on(aborted.cancel()), None);
        a.add_shutdown_hook(|| {}).unwrap();
        b.add_shutdown_hook(|| panic!("hook")).unwrap();
        let stray = loopgroup::block_on(group.spawn_on(2, async {})).unwrap_err();
        assert_eq!(stray.reject_reason(), Some(RejectReason::NoSuchLoop));
        let report = group.shutdown_now().wait();
        for _ in 0..2 {
            assert!(a.execute(|| {}).is_err());
        }
        assert!(loopgroup::block_on(b.spawn(async {})).is_err());

        let [one, two] = report.loops() else {
            panic!("two reports")
        };
        assert_eq!((one.accepted(), two.accepted()), (5, 5));
        assert_eq!((one.completed(), two.completed()), (3, 1));
        assert_eq!((one.panicked(), two.panicked()), (1, 2));
        assert_eq!((one.cancelled(), two.cancelled()), (1, 2));
        assert_eq!((one.rejected(), two.rejected()), (2, 1));
        assert_eq!((one.hooks_run(), two.hooks_run()), (1, 1));
        assert_eq!((one.hooks_panicked(), two.hooks_panicked()), (0, 1));
        // The stray belongs to no loop; the refusals after the end are counted as well.
        assert_eq!(figures(&report), [10, 4, 3, 3, 4, 2]);
        assert_eq!(report.hooks_panicked(), 1);
        assert!(!report.is_clean());
        for task in tasks {
            assert!(loopgroup::block_on(task).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn the_report_of_a_loop_is_its_entry_in_the_report_of_the_group() {
    within(|| {
        let group = EventLoopGroup::new(3).unwrap();
        for (index, tasks) in [(0, 1), (2, 3)] {
            for _ in 0..tasks {
                loopgroup::block_on(group.spawn_on(index, async {})).unwrap();
            }
        }
        let whole = group.drain(HOUR).wait();
        for (ev, entry) in group.loops().iter().zip(whole.loops()) {
            let alone = ev.termination().wait();
            assert_eq!(alone.loops().len(), 1);
            let own = &alone.loops()[0];
            assert_eq!(own.index(), ev.index());
            assert_eq!(own.to_string(), entry.to_string());
            assert_eq!(alone.accepted(), entry.accepted());
            assert_eq!(alone.elapsed(), entry.elapsed());
        }
        let accepted: Vec<_> = whole.loops().iter().map(|one| one.accepted()).collect();
        assert_eq!(accepted, [1, 0, 3]);
        let longest = whole.loops().iter().map(|one| one.elapsed()).max().unwrap();
        assert!(whole.elapsed() >= longest, "from first request to last end");
    });
}

#[test]
fn the_report_reads_as_a_sentence_and_a_line_per_loop() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        loopgroup::block_on(group.spawn_on(1, async {})).unwrap();
        let line = line!() + 1;
        drop(group.spawn_on(1, std::future::pending::<()>()));
        eventually("it is live", || group.loops()[1].live_tasks() == 1);
        group.loops()[1].add_shutdown_hook(|| {}).unwrap();
        let report = group.shutdown_now().wait();
        assert!(group.loops()[1].execute(|| {}).is_err());
        let [unused, used] = report.loops() else {
            panic!("two loops")
        };
        let expected = format!(
            "terminated after {:?}, not cleanly: \
             2 accepted = 1 completed + 0 panicked + 1 cancelled; 1 rejected\n  \
             loop 0: ended (now) after {:?}, never started\n  \
             loop 1: ended (now) after {:?}, 1 completed, 0 panicked, 1 cancelled, 1 rejected, \
             1 hooks run\n  \
             ended by force:\n    \
             1 task from {}:{line}",
            report.elapsed(),
            unused.elapsed(),
            used.elapsed(),
            file!(),
        );
        assert_eq!(report.to_string(), expected);
        let causes = [
            (EndCause::Quiet, "quiet"),
            (EndCause::Idle, "idle"),
            (EndCause::Drained, "drained"),
            (EndCause::Timeout, "timeout"),
            (EndCause::Now, "now"),
            (EndCause::Failed, "failed"),
        ];
        for (cause, text) in causes {
            assert_eq!(cause.to_string(), text);
        }
    });
}

#[test]
fn refusals_are_counted_on_after_the_end() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let report = group.shutdown_now().wait();
        for refusals in 1..=3 {
            assert!(group.try_spawn(async {}).is_err());
            assert_eq!(report.rejected(), refusals);
        }
        assert!(report.is_clean(), "a refusal is an answer, not a loss");
    });
}

// ---- threads that do not come -----------------------------------------------------------------

#[test]
fn a_loop_without_thread_refuses_every_submission_and_ends() {
    within(|| {
        let group = EventLoopGroup::builder().loops(1).thread_factory(no_thread);
        let group = group.build().unwrap();
        let reason = RejectReason::ThreadStart(io::ErrorKind::OutOfMemory);
        for _ in 0..3 {
            let refused = loopgroup::block_on(group.spawn(async {})).unwrap_err();
            assert_eq!(refused.reject_reason(), Some(reason));
            let rejected = group.try_spawn(async { 5 }).unwrap_err();
            assert_eq!(rejected.reason(), reason);
            assert_eq!(loopgroup::block_on(rejected.into_inner()), 5);
        }
        assert_eq!(
            group.start().unwrap_err().kind(),
            io::ErrorKind::OutOfMemory
        );
        let report = group.shutdown_gracefully().wait();
        assert!(group.is_terminated());
        assert_eq!(figures(&report), [0, 0, 0, 0, 6, 0]);
        let one = &report.loops()[0];
        assert_eq!((one.started(), one.cause()), (false, EndCause::Idle));
    });
}

#[test]
fn hooks_that_got_no_thread_make_the_loop_failed_and_visible() {
    within(|| {
        let factory: [fn(LoopThread) -> io::Result<()>; 3] = [
            no_thread,
            |_| panic!("no thread for you"),
            // Promises a thread and lets go of it.
            |lt| {
                drop(lt);
                Ok(())
            },
        ];
        for factory in factory {
            let group = EventLoopGroup::builder().loops(2).thread_factory(factory);
            let group = group.build().unwrap();
            let drops = DropCount::new();
            let guard = drops.guard();
            let ran = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&ran);
            group.loops()[1]
                .add_shutdown_hook(move || {
                    let _guard = guard;
                    count.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap();
            let report = group.shutdown_gracefully().wait();
            assert!(group.is_terminated());
            let [fine, failed] = report.loops() else {
                panic!("two loops")
            };
            assert_eq!(fine.cause(), EndCause::Idle);
            assert!(fine.error().is_none());
            assert_eq!(failed.cause(), EndCause::Failed);
            assert!(!failed.started());
            let error = failed.error().unwrap();
            assert!(error.to_string().contains("thread"), "{error}");
            assert!(!report.is_clean());
            assert!(report.to_string().contains("failed"), "{report}");
            assert_eq!(report.hooks_run(), 0);
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            assert_eq!(drops.get(), 1, "the hook is dropped with its captures");
        }
    });
}

#[test]
fn the_error_of_a_failed_start_keeps_its_kind() {
    within(|| {
        let group = EventLoopGroup::builder().loops(1).thread_factory(no_thread);
        let group = group.build().unwrap();
        group.next().add_shutdown_hook(|| {}).unwrap();
        let report = group.shutdown_now().wait();
        let error = report.loops()[0].error().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    });
}

#[test]
fn a_thread_that_the_system_refuses_makes_the_loop_failed() {
    within(|| {
        // A stack that no system has.
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_stack_size(1 << 60);
        let group = group.build().unwrap();
        assert!(group.start().is_err());
        group.next().add_shutdown_hook(|| {}).unwrap();
        let report = group.shutdown_now().wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Failed);
        assert!(group.is_terminated());
    });
}

#[test]
fn a_shutdown_while_a_thread_fails_to_start_comes_to_its_end() {
    within(|| {
        for hook in [false, true] {
            let (entered, fail) = (Door::new(), Door::new());
            let (inside, until) = (entered.clone(), fail.clone());
            let group = EventLoopGroup::builder()
                .loops(1)
                .thread_factory(move |_lt| {
                    inside.open();
                    until.pass();
                    Err(io::Error::from(io::ErrorKind::OutOfMemory))
                })
                .build()
                .unwrap();
            if hook {
                group.next().add_shutdown_hook(|| {}).unwrap();
            }
            let spawner = group.clone();
            let submission = thread::spawn(move || loopgroup::block_on(spawner.spawn(async {})));
            entered.pass();
            // A request does not wait for a start that is under way.
            let end = group.shutdown_now();
            assert!(group.is_shutting_down());
            assert!(end.wait_timeout(Duration::from_millis(5)).is_none());
            fail.open();
            let report = end.wait();
            let refused = submission.join().unwrap().unwrap_err();
            assert!(refused.is_rejected());
            let cause = if hook {
                EndCause::Failed
            } else {
                EndCause::Now
            };
            assert_eq!(report.loops()[0].cause(), cause);
        }
    });
}

#[test]
fn a_shutdown_while_a_thread_starts_is_seen_by_the_thread() {
    within(|| {
        let (entered, go) = (Door::new(), Door::new());
        let (inside, until) = (entered.clone(), go.clone());
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(move |lt| {
                inside.open();
                until.pass();
                thread::spawn(move || lt.run());
                Ok(())
            })
            .build()
            .unwrap();
        let spawner = group.clone();
        let submission = thread::spawn(move || loopgroup::block_on(spawner.spawn(async { 1 })));
        entered.pass();
        let end = group.drain(HOUR);
        assert!(end.wait_timeout(Duration::from_millis(5)).is_none());
        go.open();
        let report = end.wait();
        match submission.join().unwrap() {
            Ok(value) => assert_eq!((value, report.completed()), (1, 1)),
            Err(error) => assert!(error.is_rejected() && report.rejected() == 1),
        }
        assert!(report.loops()[0].started());
        assert!(report.is_clean());
    });
}

#[test]
fn a_factory_may_ask_for_the_shutdown_of_its_own_group() {
    within(|| {
        let slot: Arc<Mutex<Option<EventLoop>>> = Arc::default();
        let own = Arc::clone(&slot);
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(move |lt| {
                if let Some(ev) = own.lock().unwrap().take() {
                    drop(ev.shutdown_now());
                }
                thread::spawn(move || lt.run());
                Ok(())
            })
            .build()
            .unwrap();
        let ev = group.next();
        *slot.lock().unwrap() = Some(ev.clone());
        ev.add_shutdown_hook(|| {}).unwrap();
        let _ = ev.execute(|| {});
        let report = group.termination().wait();
        assert_eq!(report.hooks_run(), 1);
        assert_eq!(report.loops()[0].cause(), EndCause::Now);
    });
}

#[test]
fn a_thread_that_was_promised_and_given_up_later_comes_to_its_end() {
    within(|| {
        for hook in [false, true] {
            // Fails and keeps the thread's work: the loop waits for it as long as it exists.
            let kept: Arc<Mutex<Option<LoopThread>>> = Arc::default();
            let keep = Arc::clone(&kept);
            let group = EventLoopGroup::builder()
                .loops(1)
                .thread_factory(move |lt| {
                    *keep.lock().unwrap() = Some(lt);
                    Err(io::Error::from(io::ErrorKind::OutOfMemory))
                })
                .build()
                .unwrap();
            let refused = loopgroup::block_on(group.spawn(async {})).unwrap_err();
            let reason = RejectReason::ThreadStart(io::ErrorKind::OutOfMemory);
            assert_eq!(refused.reject_reason(), Some(reason));
            if hook {
                group.next().add_shutdown_hook(|| {}).unwrap();
            }
            let end = group.shutdown_now();
            assert!(end.wait_timeout(Duration::from_millis(5)).is_none());
            let lt = kept.lock().unwrap().take();
            drop(lt);
            let cause = if hook {
                EndCause::Failed
            } else {
                EndCause::Now
            };
            assert_eq!(end.wait().loops()[0].cause(), cause);
        }
    });
}

#[test]
fn a_thread_that_comes_late_still_becomes_the_loop() {
    within(|| {
        let kept: Arc<Mutex<Option<LoopThread>>> = Arc::default();
        let keep = Arc::clone(&kept);
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(move |lt| {
                *keep.lock().unwrap() = Some(lt);
                Err(io::Error::from(io::ErrorKind::WouldBlock))
            })
            .build()
            .unwrap();
        assert!(group.start().is_err());
        let lt = kept.lock().unwrap().take().unwrap();
        let thread = thread::spawn(move || lt.run());
        eventually("it has begun", || {
            group.next().state() == LoopState::Started
        });
        assert_eq!(loopgroup::block_on(group.spawn(async { 1 })).unwrap(), 1);
        assert!(group.drain(HOUR).wait().is_clean());
        thread.join().unwrap();
    });
}

// ---- loops that die ---------------------------------------------------------------------------

/// The selectors of this process, in the order of their making.
#[cfg(target_os = "linux")]
fn selectors() -> Vec<i32> {
    let is_selector = |fd: &i32| {
        let target = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        target.is_ok_and(|target| target.to_string_lossy().contains("eventpoll"))
    };
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let fds = names.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let mut selectors: Vec<i32> = fds.filter(is_selector).collect();
    selectors.sort_unstable();
    selectors
}

/// Breaks a selector, and sees to it that no other can be made.
#[cfg(target_os = "linux")]
fn break_for_good(selector: i32) {
    use std::os::fd::AsRawFd;
    let null = std::fs::File::open("/dev/null").unwrap();
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls on a descriptor that stays open and a limit that lives on the
    // stack. Who owns the selector finds it broken, which is the purpose.
    unsafe {
        assert_eq!(libc::dup2(null.as_raw_fd(), selector), selector);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &none), 0);
    }
}

/// In a process of its own: it takes the descriptors of the whole process away.
#[test]
#[cfg(target_os = "linux")]
fn a_loop_that_dies_ends_its_tasks_and_is_seen_in_the_report_of_the_group() {
    if !crate::util::is_child() {
        let test = "a_loop_that_dies_ends_its_tasks_and_is_seen_in_the_report_of_the_group";
        let output = crate::util::in_child(test);
        assert!(output.status.success(), "{output:?}");
        return;
    }
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let [dying, healthy] = group.loops() else {
            panic!("two loops")
        };
        let futures = DropCount::new();
        let guard = futures.guard();
        let live = dying.spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        eventually("it is live", || dying.live_tasks() == 1);
        let home = thread_of(dying);
        dying.add_shutdown_hook(|| {}).unwrap();
        // Held meanwhile: the loop finds both when it next waits.
        let release = stall(dying);
        break_for_good(selectors()[0]);
        release.open();
        let alone = dying.termination().wait();
        let one = &alone.loops()[0];
        assert_eq!(one.cause(), EndCause::Failed);
        assert!(one.error().is_some());
        assert_eq!((one.cancelled(), one.hooks_run()), (1, 1));
        assert!(loopgroup::block_on(live).unwrap_err().is_cancelled());
        assert_eq!((futures.get(), futures.thread()), (1, Some(home)));
        let refused = loopgroup::block_on(dying.spawn(async {})).unwrap_err();
        assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));

        // The others go on, and the end of the group does not hide it.
        assert_eq!(group.next().index(), 1);
        assert_eq!(loopgroup::block_on(healthy.submit(|| 1)).unwrap(), 1);
        let report = group.drain(HOUR).wait();
        let causes: Vec<_> = report.loops().iter().map(|one| one.cause()).collect();
        assert_eq!(causes, [EndCause::Failed, EndCause::Drained]);
        assert!(!report.is_clean());
        let error = report.loops()[0].error().unwrap().to_string();
        assert!(report.to_string().contains(&error), "{report}");
    });
}

/// In a process of its own, as above.
#[test]
#[cfg(target_os = "linux")]
fn a_drain_goes_on_when_a_sibling_dies() {
    if !crate::util::is_child() {
        let output = crate::util::in_child("a_drain_goes_on_when_a_sibling_dies");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let dying = &group.loops()[0];
        drop(dying.spawn(std::future::pending::<()>()));
        eventually("it is live", || dying.live_tasks() == 1);
        let release = stall(dying);
        break_for_good(selectors()[0]);
        let end = group.drain(Duration::MAX);
        release.open();
        let causes: Vec<_> = end.wait().loops().iter().map(|one| one.cause()).collect();
        assert_eq!(causes, [EndCause::Failed, EndCause::Drained]);
    });
}

/// Does something with every piece of text that it is given.
struct Reader<F>(F);

impl<F: FnMut()> fmt::Write for Reader<F> {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        (self.0)();
        Ok(())
    }
}

#[test]
fn an_end_and_an_error_are_shown_with_no_lock_held() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let task: JoinHandle<()> = group.spawn(async { panic!("on purpose") });
        let error = loopgroup::block_on(task).unwrap_err();
        let mut looks_again =
            Reader(|| assert!(format!("{error} {error:?}").contains("on purpose")));
        write!(looks_again, "{error} {error:?}").unwrap();
        let end = group.termination();
        let mut waits = Reader(|| assert_eq!(group.shutdown_now().wait().panicked(), 1));
        write!(waits, "{end:?}").unwrap();
    });
}

/// A waker that waits for the end of a group when it is woken, once `ready`.
struct WaitsWhenWoken {
    end: TerminationFuture,
    ready: Door,
}

impl Wake for WaitsWhenWoken {
    fn wake(self: Arc<Self>) {
        self.ready.pass();
        self.end.wait();
    }
}

/// Has `observer` tell a waker that then waits for `end`.
fn tell_who_waits(
    mut observer: TerminationFuture,
    end: TerminationFuture,
) -> (TerminationFuture, Door) {
    let ready = Door::new();
    let waker = Waker::from(Arc::new(WaitsWhenWoken {
        end,
        ready: ready.clone(),
    }));
    let poll = Pin::new(&mut observer).poll(&mut Context::from_waker(&waker));
    assert!(poll.is_pending());
    (observer, ready)
}

#[test]
fn a_waker_that_is_told_of_the_end_by_the_loop_itself_cannot_wait_for_it_there() {
    within(|| {
        for of_the_group in [false, true] {
            let (tx, rx) = mpsc::channel();
            let group = EventLoopGroup::builder()
                .loops(1)
                .on_panic(move |panic| {
                    let _ = tx.send((panic.site(), panic.message().to_owned()));
                })
                .build()
                .unwrap();
            group.start().unwrap();
            let observer = if of_the_group {
                group.termination()
            } else {
                group.next().termination()
            };
            let (observer, ready) = tell_who_waits(observer, group.termination());
            let end = group.shutdown_now();
            let joining = thread::spawn(move || end.wait());
            eventually("it is over", || group.is_terminated());
            ready.open();
            assert!(joining.join().unwrap().is_clean());
            assert!(observer.wait().is_clean());
            let (site, message) = rx.recv().unwrap();
            assert_eq!(site, PanicSite::Waker);
            assert!(
                message.contains("was called on the thread of event loop 0"),
                "{message}"
            );
        }
    });
}

#[test]
fn a_waker_that_is_told_of_the_end_of_a_blocking_group_by_its_thread_may_wait_for_it() {
    within(|| {
        let group = BlockingGroup::new(1).unwrap();
        loopgroup::block_on(group.spawn(|| ())).unwrap();
        let (observer, ready) = tell_who_waits(group.termination(), group.termination());
        let end = group.drain(HOUR);
        let joining = thread::spawn(move || end.wait());
        eventually("it is over", || group.is_terminated());
        ready.open();
        assert!(joining.join().unwrap().is_clean());
        drop(observer);
    });
}
