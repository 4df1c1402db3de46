//! `block_on` waits on any thread that is not a loop, and on no thread that is one.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::Duration;

use loopgroup::{
    EventLoop, EventLoopGroup, RejectReason, block_on, blocking, shutdown_requested, try_spawn,
};

use crate::util::{
    self, Door, DropCount, Log, Probe, alone, eventually, panic_of, thread_of, within,
};

/// How many loops the group has that a future spawned from here lands in; 0 without a context.
async fn size_of_context() -> usize {
    let here = async { EventLoop::current().unwrap().parent().unwrap().len() };
    match try_spawn(here) {
        Ok(handle) => handle.await.unwrap(),
        Err(rejected) => {
            assert_eq!(rejected.reason(), RejectReason::NoContext);
            0
        }
    }
}

#[test]
fn a_future_is_polled_once_per_wake() {
    within(|| {
        let door = Door::new();
        let log = Log::new();
        let opener = door.clone();
        let thread = thread::spawn(move || {
            eventually("somebody waits", || opener.waiting() == 1);
            opener.open();
        });
        let future = Probe::new(&log, async {
            door.opened().await;
            5
        });
        assert_eq!(block_on(future), 5);
        thread.join().unwrap();
        assert_eq!(log.polls(), 2);
        log.assert_home(thread::current().id());
    });
}

#[test]
fn a_wake_during_the_poll_is_not_lost() {
    within(|| {
        let mut polls = 0;
        let count = block_on(poll_fn(|cx| {
            polls += 1;
            if polls == 100 {
                return Poll::Ready(polls);
            }
            cx.waker().wake_by_ref();
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        assert_eq!(count, 100);
    });
}

#[test]
fn it_may_be_nested_on_an_ordinary_thread() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let sum = block_on(async {
            let inner = block_on(async {
                let innermost = group.block_on(async { group.spawn(async { 1 }).await.unwrap() });
                innermost + group.spawn(async { 2 }).await.unwrap()
            });
            inner + group.spawn(async { 4 }).await.unwrap()
        });
        assert_eq!(sum, 7);
    });
}

#[test]
fn a_stale_wake_of_the_outer_wait_does_not_end_the_inner_one() {
    within(|| {
        let door = Door::new();
        let opener = door.clone();
        block_on(poll_fn(|cx| {
            // The outer one has a permit from here on; the inner one has a place of its own.
            cx.waker().wake_by_ref();
            let log = Log::new();
            let opener = opener.clone();
            let thread = thread::spawn(move || {
                eventually("somebody waits", || opener.waiting() == 1);
                opener.open();
            });
            block_on(Probe::new(&log, door.opened()));
            thread.join().unwrap();
            assert_eq!(log.polls(), 2);
            Poll::Ready(())
        }));
    });
}

#[test]
fn it_refuses_on_the_loops_of_every_group() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let other = EventLoopGroup::builder().loops(1).without_io();
        let other = other.build().unwrap();
        let waits = group.clone();
        let text = group.loops()[1].submit(move || {
            [
                panic_of(|| block_on(async {})),
                panic_of(|| waits.block_on(async {})),
                panic_of(|| waits.termination().wait()),
                panic_of(|| waits.termination().wait_timeout(Duration::ZERO)),
            ]
        });
        let names = [
            "block_on was",
            "EventLoopGroup::block_on was",
            "TerminationFuture::wait was",
            "TerminationFuture::wait_timeout was",
        ];
        for (text, name) in block_on(text).unwrap().iter().zip(names) {
            assert!(text.starts_with(name), "{text}");
            assert!(text.contains("event loop 1"), "{text}");
            // A task cannot have a job wait for the end of its own group, which waits for the task.
            let advice = match name.starts_with("TerminationFuture") {
                true => "outside of the group that ends",
                false => "unblock",
            };
            assert!(text.contains("Await") && text.contains(advice), "{text}");
        }
        let foreign = other
            .next()
            .submit(move || panic_of(|| group.block_on(async {})));
        let text = block_on(foreign).unwrap();
        assert!(text.contains("event loop 0"), "{text}");
        let report = other.shutdown_now().wait();
        assert!(report.is_clean(), "the loops live on");
    });
}

#[test]
fn the_refused_future_is_dropped_unpolled() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let log = Log::new();
        let probe = Probe::new(&log, async {});
        let panics = group.next().submit(move || block_on(probe));
        assert!(block_on(panics).unwrap_err().is_panic());
        assert_eq!((log.polls(), log.drops()), (0, 1));
    });
}

#[test]
fn it_refuses_inside_run() {
    within(|| {
        let text = loopgroup::run(async { panic_of(|| block_on(async {})) }).unwrap();
        assert!(text.contains("on the thread of event loop 0"), "{text}");
    });
}

#[test]
fn a_blocking_job_may_block() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let inner = group.clone();
        let task = group.spawn(async move {
            blocking::unblock(move || inner.block_on(inner.spawn(async { 3 })).unwrap()).await
        });
        assert_eq!(block_on(task).unwrap().unwrap(), 3);
    });
}

#[test]
fn a_group_is_the_context_inside_and_the_outer_one_is_restored() {
    within(|| {
        let [one, two, three] = [1, 2, 3].map(|loops| EventLoopGroup::new(loops).unwrap());
        let seen = one.block_on(async {
            let before = size_of_context().await;
            let inside = two.block_on(async {
                let plain = block_on(size_of_context());
                let deeper = three.block_on(size_of_context());
                [plain, deeper, size_of_context().await]
            });
            (before, inside, size_of_context().await)
        });
        assert_eq!(seen, (1, [2, 3, 2], 1));
        assert_eq!(block_on(size_of_context()), 0);
    });
}

#[test]
fn a_panic_goes_to_the_caller_and_the_outer_context_is_restored() {
    within(|| {
        let [one, two] = [1, 2].map(|loops| EventLoopGroup::new(loops).unwrap());
        let seen = one.block_on(async {
            let text = panic_of(|| two.block_on(async { panic!("inside") }));
            (text, size_of_context().await)
        });
        assert_eq!(seen, ("inside".to_owned(), 1));
        assert_eq!(panic_of(|| block_on(async { panic!("alone") })), "alone");
        assert_eq!(block_on(size_of_context()), 0);
    });
}

#[test]
fn spawn_without_a_context_panics_with_advice_and_hands_back_when_tried() {
    within(|| {
        let text = panic_of(|| loopgroup::spawn(async {}));
        assert!(text.contains("group.block_on"), "{text}");
        let text = panic_of(|| loopgroup::spawn_local(async {}));
        assert!(text.contains("loopgroup::run"), "{text}");
        let text = panic_of(shutdown_requested);
        assert!(text.contains("shutdown_requested"), "{text}");
        let rejected = try_spawn(async { 9 }).unwrap_err();
        assert_eq!(block_on(rejected.into_inner()), 9);
        // A group is no loop: there is nowhere to put a future that cannot be sent.
        let group = EventLoopGroup::new(1).unwrap();
        let reason = group.block_on(async {
            let local = loopgroup::try_spawn_local(async {});
            local.unwrap_err().reason()
        });
        assert_eq!(reason, RejectReason::NoContext);
    });
}

#[test]
fn the_last_handle_of_a_group_may_go_inside_its_own_wait() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let end = group.termination();
        let inner = group.clone();
        // The wait itself holds the group, so the context stays until it is over.
        let value = group.block_on(async move {
            drop(inner);
            loopgroup::spawn(async { 1 }).await.unwrap()
        });
        drop(group);
        assert_eq!((value, end.wait().completed()), (1, 1));
    });
}

#[test]
fn a_wait_for_shutdown_inside_a_group_resolves() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let inner = group.clone();
        group.block_on(async move {
            let mut requested = shutdown_requested();
            assert!(util::poll_once(&mut requested).is_pending());
            drop(inner.shutdown_now());
            requested.await;
            shutdown_requested().await;
        });
        group.termination().wait();
    });
}

#[test]
fn the_park_token_of_the_thread_is_the_users() {
    within(|| {
        thread::current().unpark();
        let door = Door::new();
        let log = Log::new();
        let (opener, this) = (door.clone(), thread::current());
        let thread = thread::spawn(move || {
            eventually("somebody waits", || opener.waiting() == 1);
            for _ in 0..100 {
                this.unpark();
            }
            opener.open();
        });
        block_on(Probe::new(&log, door.opened()));
        thread.join().unwrap();
        assert_eq!(log.polls(), 2, "an unpark by others is no wake");
        // The token is still there: else this would park for ever.
        thread::park();
    });
}

/// A waker whose clone panics.
fn unclonable() -> Waker {
    const VTABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic!("cannot clone"), |_| (), |_| (), |_| ());
    // SAFETY: the data pointer is never looked at, so every function of the table is sound with it.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) }
}

#[test]
fn a_waker_that_cannot_be_cloned_panics_for_its_caller_only() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let door = Door::new();
        let mut handle = group.spawn(door.opened());
        let waker = unclonable();
        let mut cx = Context::from_waker(&waker);
        let text = panic_of(|| Pin::new(&mut handle).poll(&mut cx).is_ready());
        assert_eq!(text, "cannot clone");
        let mut end = group.termination();
        let text = panic_of(|| Pin::new(&mut end).poll(&mut cx).is_ready());
        assert_eq!(text, "cannot clone");
        // The handle, the loop and the end are what they were.
        door.open();
        block_on(handle).unwrap();
        thread_of(group.next());
        assert!(group.shutdown_now().wait().is_clean());
        assert!(
            Pin::new(&mut end)
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        );
    });
}

/// A waker that panics when it is woken, and counts.
#[derive(Default)]
struct Broken(AtomicUsize);

impl Wake for Broken {
    fn wake(self: Arc<Broken>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("broken waker");
    }
}

#[test]
fn a_waker_that_panics_does_not_reach_the_loop_or_the_other_waiters() {
    within(|| {
        let group = EventLoopGroup::builder().loops(1).on_panic(|_| ());
        let group = group.build().unwrap();
        let broken = Arc::new(Broken::default());
        let waker = Waker::from(Arc::clone(&broken));
        let mut cx = Context::from_waker(&waker);
        let door = Door::new();
        let mut handle = group.spawn(door.opened());
        assert!(Pin::new(&mut handle).poll(&mut cx).is_pending());
        let mut ends = [group.termination(), group.termination()];
        for end in &mut ends {
            assert!(Pin::new(end).poll(&mut cx).is_pending());
        }
        door.open();
        eventually("the waker was woken", || {
            broken.0.load(Ordering::SeqCst) == 1
        });
        block_on(handle).unwrap();
        let report = group.shutdown_now().wait();
        assert!(report.is_clean());
        // The announcement wakes after the report is there.
        eventually("both were woken", || broken.0.load(Ordering::SeqCst) == 3);
    });
}

#[test]
fn a_waker_at_the_address_of_one_whose_wait_panicked_is_foreign() {
    const NAME: &str = "a_waker_at_the_address_of_one_whose_wait_panicked_is_foreign";
    const VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| RawWaker::new(data, &VTABLE),
        |_| panic!("broken waker"),
        |_| panic!("broken waker"),
        |_| (),
    );
    // One that was taken for the crate's own was not shielded, and its panic ended the process.
    alone(NAME, || {
        let reports = DropCount::new();
        let count = reports.clone();
        let group = EventLoopGroup::builder().loops(1);
        let group = group.on_panic(move |_| drop(count.guard()));
        let group = group.build().unwrap();
        let mut address = std::ptr::null();
        let text = panic_of(|| {
            block_on(poll_fn(|cx| -> Poll<()> {
                address = cx.waker().data();
                panic!("on purpose")
            }));
        });
        assert_eq!(text, "on purpose");
        // As the next waker that is allocated may.
        // SAFETY: the data pointer is never looked at, so every function of the table is sound with it.
        let waker = unsafe { Waker::from_raw(RawWaker::new(address, &VTABLE)) };
        let door = Door::new();
        let mut handle = group.spawn(door.opened());
        let poll = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
        door.open();
        eventually("the panic is reported", || reports.get() == 1);
        block_on(handle).unwrap();
        assert!(group.shutdown_now().wait().is_clean());
    });
}

#[test]
fn many_waits_at_once_each_get_their_own() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let threads: Vec<_> = (0..8_u64)
            .map(|n| {
                let group = group.clone();
                thread::spawn(move || {
                    let sum = (0..100).map(|i| {
                        let answer = group.spawn(async move { n * 1000 + i });
                        group.block_on(answer).unwrap()
                    });
                    sum.sum::<u64>()
                })
            })
            .collect();
        for (n, thread) in (0..).zip(threads) {
            assert_eq!(thread.join().unwrap(), n * 100_000 + 4950);
        }
    });
}
