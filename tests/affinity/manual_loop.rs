//! A loop that its user drives: no wake-up is lost between two turns, and everything works as on any loop.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use loopgroup::net::UnixStream;
use loopgroup::time::sleep;
use loopgroup::{
    EndCause, EventLoop, EventLoopGroup, LoopState, ManualLoop, RejectReason, block_on,
};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::util::{
    DropCount, LONG, OnDrop, Random, blow_up, eventually, group, ms, panic_of, progress, restless,
    within,
};

const NOW: Option<Duration> = Some(Duration::ZERO);

/// Waits on another thread until the loop has parked once more than now.
fn next_park(ev: &EventLoop) -> impl FnOnce() + Send + use<> {
    let (ev, parks) = (ev.clone(), ev.metrics().parks());
    move || eventually("the loop parks", || ev.metrics().parks() > parks)
}

/// A foreign event loop that watches the descriptor of a manual one, by edges: it reports each change once.
struct Foreign {
    poll: Poll,
    events: Events,
}

impl Foreign {
    fn watch(manual: &ManualLoop) -> Foreign {
        let poll = Poll::new().unwrap();
        let descriptor = manual.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        let registry = poll.registry();
        registry
            .register(&mut source, Token(0), Interest::READABLE)
            .unwrap();
        Foreign {
            poll,
            events: Events::with_capacity(8),
        }
    }

    /// Waits for the descriptor; says whether it was reported.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        loop {
            match self.poll.poll(&mut self.events, timeout) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => {
                    result.unwrap();
                    return !self.events.is_empty();
                }
            }
        }
    }
}

/// Whether the descriptor is readable now, as a watcher by levels sees it.
fn is_readable(manual: &ManualLoop) -> bool {
    Foreign::watch(manual).wait(NOW)
}

/// Turns until there is nothing to run now.
fn settle(manual: &mut ManualLoop) {
    while manual.turn(NOW).unwrap().is_busy() {}
    assert!(!is_readable(manual));
}

fn settled() -> ManualLoop {
    let mut manual = ManualLoop::new().unwrap();
    settle(&mut manual);
    manual
}

fn on_another_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(call).join().unwrap()
}

#[test]
fn a_submission_makes_the_descriptor_readable_once_and_until_the_turn() {
    within(|| {
        let mut manual = settled();
        let mut foreign = Foreign::watch(&manual);
        assert!(!foreign.wait(NOW));
        let before = manual.event_loop().metrics();
        let ev = manual.event_loop().clone();
        on_another_thread(move || {
            for _ in 0..100 {
                ev.execute(|| ()).unwrap();
            }
        });
        assert!(foreign.wait(NOW));
        assert!(!foreign.wait(NOW), "one ring for all of them");
        assert!(
            is_readable(&manual) && is_readable(&manual),
            "until the turn"
        );
        let turned = manual.turn(NOW).unwrap();
        assert_eq!((turned.polls(), turned.is_busy()), (100, false));
        assert!(!is_readable(&manual) && !foreign.wait(NOW));
        let rings = manual.event_loop().metrics().wakeup_calls() - before.wakeup_calls();
        assert_eq!(rings, 1);
        assert_eq!(manual.turn(NOW).unwrap().polls(), 0);
        assert!(!is_readable(&manual));
    });
}

#[test]
fn no_wake_up_is_lost_in_ten_thousand_rounds() {
    const ROUNDS: usize = 10_000;
    within(|| {
        let progress = progress("round");
        let mut manual = settled();
        let mut foreign = Foreign::watch(&manual);
        let ev = manual.event_loop().clone();
        let (done, dones) = mpsc::channel();
        let producer = thread::spawn(move || {
            let mut random = Random(7);
            for round in 0..ROUNDS {
                // At any moment of a turn, and of the wait.
                for _ in 0..random.below(300) {
                    std::hint::spin_loop();
                }
                let done = done.clone();
                ev.execute(move || done.send(round).unwrap()).unwrap();
                if round % 7 == 0 {
                    // Sometimes a second one is under way, sometimes none.
                    thread::yield_now();
                }
            }
        });
        let mut ran = 0;
        let mut turns = 0_usize;
        while ran < ROUNDS {
            // For ever: a wake-up that is lost is a hang.
            assert!(foreign.wait(None));
            manual.turn(NOW).unwrap();
            turns += 1;
            for round in dones.try_iter() {
                assert_eq!(round, ran, "in order, each once");
                ran += 1;
                progress.tick();
            }
        }
        producer.join().unwrap();
        // A ring for each sleep, and perhaps one that came late.
        assert!(turns <= 3 * ROUNDS, "{turns} turns");
        settle(&mut manual);
    });
}

#[test]
fn no_wake_of_a_task_is_lost_whoever_wakes_it() {
    const VALUES: usize = 10_000;
    within(|| {
        let progress = progress("value");
        let mut manual = settled();
        let mut foreign = Foreign::watch(&manual);
        // Each value is sent when the previous one has arrived, so that the loop sleeps in between.
        let (to_loop, mut values) = futures::channel::mpsc::unbounded::<usize>();
        let (back, answers) = mpsc::channel();
        drop(manual.spawn_local(async move {
            while let Some(value) = values.next().await {
                back.send(value).unwrap();
            }
        }));
        settle(&mut manual);
        let other = thread::spawn(move || {
            let mut random = Random(7);
            for value in 0..VALUES {
                to_loop.unbounded_send(value).unwrap();
                // Not asleep: the next value comes while the loop is still in its turn, and about to sleep.
                let mut spins = 0_u32;
                let answer = loop {
                    match answers.try_recv() {
                        Ok(answer) => break answer,
                        Err(_) if spins < 10_000 => std::hint::spin_loop(),
                        Err(_) => thread::yield_now(),
                    }
                    spins += 1;
                };
                assert_eq!(answer, value);
                for _ in 0..random.below(400) {
                    std::hint::spin_loop();
                }
                progress.tick();
            }
        });
        while manual.event_loop().live_tasks() > 0 {
            assert!(foreign.wait(None));
            manual.turn(NOW).unwrap();
        }
        other.join().unwrap();
    });
}

#[test]
fn a_wake_by_its_own_thread_between_two_turns_is_seen() {
    within(|| {
        let mut manual = settled();
        let mut foreign = Foreign::watch(&manual);
        for _ in 0..100 {
            let (tx, rx) = oneshot::channel();
            let task = manual.spawn_local(rx);
            assert!(foreign.wait(NOW), "a spawn between two turns");
            assert_eq!(manual.timeout(), NOW);
            settle(&mut manual);
            assert!(!foreign.wait(NOW) && !task.is_finished());
            tx.send(7).unwrap();
            assert!(foreign.wait(NOW), "a wake between two turns");
            settle(&mut manual);
            assert!(task.is_finished());
            drop(task);
            foreign.wait(NOW);
        }
    });
}

#[test]
fn timers_fire_when_the_foreign_loop_waits_for_their_deadlines() {
    within(|| {
        let mut manual = settled();
        assert_eq!((manual.timeout(), manual.next_deadline()), (None, None));
        let mut foreign = Foreign::watch(&manual);
        let fired = Rc::new(Cell::new(0));
        for delay in [3, 1, 2] {
            let fired = Rc::clone(&fired);
            drop(manual.spawn_local(async move {
                let start = Instant::now();
                sleep(ms(delay)).await;
                assert!(start.elapsed() >= ms(delay), "not early");
                fired.set(fired.get() + 1);
            }));
        }
        while fired.get() < 3 {
            let turned = manual.turn(NOW).unwrap();
            assert_eq!(turned.next_deadline(), manual.next_deadline());
            if fired.get() < 3 && !turned.is_busy() {
                assert!(manual.timeout() <= Some(ms(3)));
                foreign.wait(manual.timeout().map(|left| left + ms(1)));
            }
        }
        // A closure that another thread schedules earlier than the deadline rings; a later one does not.
        drop(
            manual
                .event_loop()
                .schedule(Duration::from_secs(3600), || ()),
        );
        settle(&mut manual);
        foreign.wait(NOW);
        let ev = manual.event_loop().clone();
        let later = Duration::from_secs(7200);
        drop(on_another_thread(move || ev.schedule(later, || ())));
        assert!(!foreign.wait(NOW));
        let ev = manual.event_loop().clone();
        let earlier = Duration::from_secs(60);
        drop(on_another_thread(move || ev.schedule(earlier, || ())));
        assert!(foreign.wait(NOW));
        settle(&mut manual);
        assert!(manual.timeout() <= Some(earlier));
    });
}

#[test]
fn sockets_are_served_inside_the_foreign_loop() {
    const MESSAGES: usize = 2_000;
    within(|| {
        let progress = progress("message");
        let mut manual = settled();
        let mut foreign = Foreign::watch(&manual);
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let echo = manual.spawn_local(async move {
            let mut stream = UnixStream::from_std(ours).unwrap();
            let mut buffer = [0; 64];
            let mut total = 0;
            loop {
                match stream.read(&mut buffer).await.unwrap() {
                    0 => return total,
                    n => stream.write_all(&buffer[..n]).await.unwrap(),
                }
                total += 1;
            }
        });
        let client = thread::spawn(move || {
            let mut buffer = [0; 3];
            for _ in 0..MESSAGES {
                theirs.write_all(b"abc").unwrap();
                theirs.read_exact(&mut buffer).unwrap();
                assert_eq!(&buffer, b"abc");
                progress.tick();
            }
        });
        manual.turn(NOW).unwrap();
        while !echo.is_finished() {
            if manual.timeout() != NOW {
                assert!(foreign.wait(None));
            }
            manual.turn(NOW).unwrap();
        }
        client.join().unwrap();
        assert!(block_on(echo).unwrap() >= MESSAGES);
    });
}

#[test]
fn a_turn_waits_for_its_timeout_at_most_and_not_after_an_event() {
    within(|| {
        let mut manual = settled();
        let start = Instant::now();
        let turned = manual.turn(Some(ms(20))).unwrap();
        assert_eq!(turned.polls(), 0);
        assert!(start.elapsed() >= ms(15), "nothing has ended the wait");
        assert!(!is_readable(&manual));
        // Nor with something to run: the caller may have waited for just that.
        let ev = manual.event_loop().clone();
        on_another_thread(move || ev.execute(|| ()).unwrap());
        assert_eq!(manual.turn(None).unwrap().polls(), 1);
        drop(manual.spawn_local(async {}));
        assert_eq!(manual.turn(None).unwrap().polls(), 1);
        // What ends a wait runs in the same turn.
        let ev = manual.event_loop().clone();
        let (tx, rx) = mpsc::channel();
        let parked = next_park(&ev);
        let other = thread::spawn(move || {
            parked();
            ev.execute(move || tx.send(()).unwrap()).unwrap();
        });
        let mut polls = 0;
        while polls == 0 {
            polls = manual.turn(None).unwrap().polls();
        }
        rx.try_recv().unwrap();
        other.join().unwrap();
        // A timer as well.
        let task = manual.spawn_local(sleep(ms(5)));
        while !task.is_finished() {
            manual.turn(None).unwrap();
        }
    });
}

#[test]
fn a_restless_task_leaves_the_loop_busy_and_every_turn_bounded() {
    within(|| {
        let mut manual = settled();
        let mut foreign = Foreign::watch(&manual);
        drop(manual.spawn_local(restless()));
        for _ in 0..20 {
            assert!(foreign.wait(NOW), "there is more to run");
            // Even with a timeout: there is nothing to wait for.
            let turned = manual.turn(Some(LONG)).unwrap();
            assert!(turned.is_busy() && turned.polls() > 0);
            assert_eq!(manual.timeout(), NOW);
        }
    });
}

#[test]
fn a_lazy_closure_waits_for_the_next_turn() {
    within(|| {
        let mut manual = settled();
        let (tx, rx) = mpsc::channel();
        let lazy = move || tx.send(()).unwrap();
        manual.event_loop().lazy_execute(lazy).unwrap();
        assert!(!is_readable(&manual));
        assert_eq!(manual.turn(NOW).unwrap().polls(), 1);
        rx.try_recv().unwrap();
    });
}

#[test]
fn a_shutdown_from_outside_is_seen_by_the_foreign_loop_and_ends_in_a_turn() {
    within(|| {
        let mut manual = settled();
        let mut foreign = Foreign::watch(&manual);
        let drops = DropCount::new();
        let guard = drops.guard();
        let (tx, rx) = oneshot::channel::<()>();
        let task = manual.spawn_local(async move {
            let _guard = guard;
            let _ = rx.await;
        });
        settle(&mut manual);
        foreign.wait(NOW);
        let ev = manual.event_loop().clone();
        let end = on_another_thread(move || ev.drain(LONG));
        assert!(
            end.wait_timeout(Duration::ZERO).is_none(),
            "nobody has turned it"
        );
        assert_eq!(manual.event_loop().state(), LoopState::ShuttingDown);
        assert!(foreign.wait(NOW));
        settle(&mut manual);
        assert!(!manual.is_ended() && manual.next_deadline().is_some());
        tx.send(()).unwrap();
        while !manual.turn(NOW).unwrap().is_ended() {}
        let report = end.wait();
        assert_eq!(report.loops()[0].cause(), EndCause::Drained);
        assert!(report.is_clean(), "{report}");
        assert!(task.is_finished());
        assert_eq!(
            (drops.get(), drops.thread()),
            (1, Some(thread::current().id()))
        );
        // What is left is an empty shell, which says so.
        assert!(manual.is_ended());
        assert_eq!((manual.as_raw_fd(), manual.timeout()), (-1, None));
        assert!(manual.turn(None).unwrap().is_ended());
        let refused = block_on(manual.spawn_local(async {})).unwrap_err();
        assert_eq!(refused.reject_reason(), Some(RejectReason::ShutDown));
        assert_eq!(
            manual.enter(|| ()).unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        let error = manual.block_on(async {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert!(manual.drain(LONG).unwrap().is_clean());
    });
}

#[test]
fn dropping_it_drops_its_tasks_on_this_thread_and_resolves_their_handles() {
    within(|| {
        let mut manual = settled();
        let drops = DropCount::new();
        let (one, other) = (drops.guard(), drops.guard());
        let waiting = manual.spawn_local(async move {
            let _guard = one;
            std::future::pending::<()>().await;
        });
        settle(&mut manual);
        let queued = manual.event_loop().spawn(async move { drop(other) });
        let end = manual.event_loop().termination();
        drop(manual);
        assert_eq!(
            (drops.get(), drops.thread()),
            (2, Some(thread::current().id()))
        );
        assert!(block_on(waiting).unwrap_err().is_cancelled());
        assert!(block_on(queued).unwrap_err().is_cancelled());
        let report = end.wait();
        assert_eq!(
            (report.cancelled(), report.loops()[0].cause()),
            (2, EndCause::Now)
        );
        assert_eq!(EventLoop::current(), None);
    });
}

#[test]
fn dropping_it_inside_another_loop_leaves_that_ones_books_alone() {
    within(|| {
        let report = {
            let mut outer = ManualLoop::new().unwrap();
            let mut inner = ManualLoop::new().unwrap();
            drop(inner.spawn_local(std::future::pending::<()>()));
            let outside = outer.event_loop().clone();
            let task = outer.spawn_local(async move {
                drop(inner);
                EventLoop::current() == Some(outside)
            });
            assert!(outer.block_on(task).unwrap().unwrap());
            outer.drain(LONG).unwrap()
        };
        assert_eq!((report.completed(), report.cancelled()), (1, 0));
    });
}

#[test]
fn two_loops_on_one_thread_take_turns_but_do_not_nest() {
    within(|| {
        let (mut one, mut two) = (settled(), settled());
        let (to_two, from_one) = oneshot::channel();
        let answer = two.spawn_local(from_one);
        drop(one.spawn_local(async move { to_two.send(7).unwrap() }));
        while !answer.is_finished() {
            one.turn(NOW).unwrap();
            two.turn(NOW).unwrap();
        }
        assert_eq!(block_on(answer).unwrap(), Ok(7));
        let nested = one.block_on(async move {
            let turn = two.turn(NOW).unwrap_err();
            let block = two.block_on(async {}).unwrap_err();
            let enter = two.enter(|| ()).unwrap_err();
            let drain = two.drain(LONG).unwrap_err();
            assert_eq!(
                two.event_loop().state(),
                LoopState::Started,
                "not even requested"
            );
            let spawn = two.spawn_local(async {}).await.unwrap_err();
            assert_eq!(spawn.reject_reason(), Some(RejectReason::NotOnLoop));
            let run = loopgroup::run(async {}).unwrap_err();
            ([turn, block, enter, drain, run], two)
        });
        let (errors, mut two) = nested.unwrap();
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
        }
        // Neither has noticed.
        settle(&mut one);
        settle(&mut two);
        assert_eq!(two.block_on(async { 7 }).unwrap(), 7);
    });
}

#[test]
fn a_blocking_wait_inside_its_turn_is_refused() {
    within(|| {
        let mut manual = settled();
        let task = manual.spawn_local(async { panic_of(|| block_on(async {})) });
        let text = manual.block_on(task).unwrap().unwrap();
        assert!(text.contains("thread of event loop"), "{text}");
        // Between the turns the thread is an ordinary one.
        assert_eq!(block_on(async { 7 }), 7);
        assert_eq!(loopgroup::run(async { 8 }).unwrap(), 8);
    });
}

#[test]
fn block_on_polls_on_the_loop_and_waits_for_other_threads() {
    within(|| {
        let mut manual = settled();
        let ev = manual.event_loop().clone();
        let (tx, rx) = oneshot::channel();
        let parked = next_park(&ev);
        let other = thread::spawn(move || {
            parked();
            tx.send(7).unwrap();
        });
        let local = Rc::new(Cell::new(0));
        let seen = Rc::clone(&local);
        let value = manual.block_on(async {
            assert_eq!(EventLoop::current(), Some(ev));
            drop(loopgroup::spawn_local(async move { seen.set(1) }));
            sleep(ms(1)).await;
            rx.await.unwrap()
        });
        assert_eq!((value.unwrap(), local.get()), (7, 1));
        other.join().unwrap();
        // What it left behind is seen by whoever watches the descriptor.
        let task = manual.block_on(async { (loopgroup::spawn_local(async { 8 }),) });
        let (task,) = task.unwrap();
        assert!(is_readable(&manual));
        settle(&mut manual);
        assert_eq!(block_on(task).unwrap(), 8);
    });
}

#[test]
fn a_future_that_always_wakes_itself_does_not_starve_the_tasks() {
    within(|| {
        let mut manual = settled();
        let done = Rc::new(Cell::new(false));
        let set = Rc::clone(&done);
        drop(manual.spawn_local(async move {
            loopgroup::yield_now().await;
            set.set(true);
        }));
        manual
            .block_on(std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                match done.get() {
                    true => std::task::Poll::Ready(()),
                    false => std::task::Poll::Pending,
                }
            }))
            .unwrap();
    });
}

#[test]
fn a_panic_of_the_future_is_the_callers_and_the_loop_goes_on() {
    within(|| {
        let mut manual = settled();
        let drops = DropCount::new();
        let guard = drops.guard();
        let text = panic_of(|| {
            manual.block_on(async {
                let _guard = guard;
                loopgroup::yield_now().await;
                drop(loopgroup::spawn_local(async {}));
                blow_up()
            })
        });
        assert_eq!((text.as_str(), drops.get()), ("deliberate", 1));
        assert_eq!(EventLoop::current(), None);
        assert!(is_readable(&manual), "there may be something to run");
        settle(&mut manual);
        let text = panic_of(|| manual.enter(|| blow_up()));
        assert_eq!(text, "deliberate");
        // The panic of a task is the task's.
        let task = manual.spawn_local(async { blow_up() });
        settle(&mut manual);
        let joined: Result<(), _> = block_on(task);
        assert!(joined.unwrap_err().is_panic());
        assert_eq!(manual.block_on(async { 7 }).unwrap(), 7);
    });
}

#[test]
fn a_shutdown_during_block_on_ends_it() {
    within(|| {
        let mut manual = settled();
        let drops = DropCount::new();
        let guard = drops.guard();
        let ev = manual.event_loop().clone();
        let parked = next_park(&ev);
        let other = thread::spawn(move || {
            parked();
            ev.shutdown_now().wait()
        });
        let error = manual.block_on(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!(drops.get(), 1);
        assert!(manual.is_ended());
        other.join().unwrap();
    });
}

#[test]
fn what_works_on_a_loop_works_inside_enter() {
    within(|| {
        let mut manual = settled();
        let group = manual.event_loop().parent().unwrap();
        let values = group.per_loop(|_| Rc::new(Cell::new(1)));
        let cell = manual.enter(|| values.here(Rc::clone)).unwrap();
        let shared = Rc::clone(&cell);
        let ev = manual.event_loop().clone();
        let later = manual.enter(|| ev.schedule_local(ms(1), move || shared.set(2)));
        assert!(is_readable(&manual), "it is to arm its timer");
        manual.block_on(later.unwrap()).unwrap().unwrap();
        assert_eq!(cell.get(), 2);
        assert_eq!(
            manual
                .block_on(values.map_all(|cell| cell.get()))
                .unwrap()
                .unwrap(),
            [2]
        );
    });
}

#[test]
fn a_loop_of_a_group_is_claimed_before_its_first_use_and_no_thread_is_started_for_it() {
    within(|| {
        let group = group(2);
        let mut manual = ManualLoop::claim(&group, 0).unwrap();
        assert_eq!(manual.event_loop(), &group.loops()[0]);
        let states: Vec<_> = group.loops().iter().map(EventLoop::state).collect();
        assert_eq!(states, [LoopState::Started, LoopState::NotStarted]);
        let here = thread::current().id();
        let on_manual = group.spawn_on(0, async { thread::current().id() });
        let on_worker = group.spawn_on(1, async { thread::current().id() });
        assert_eq!(manual.block_on(on_manual).unwrap().unwrap(), here);
        assert_ne!(manual.block_on(on_worker).unwrap().unwrap(), here);
        // Its loops end together: the other one waits for this one's turn.
        let end = group.drain(LONG);
        while !manual.turn(None).unwrap().is_ended() {}
        let report = end.wait();
        assert!(report.is_clean(), "{report}");
        assert!(
            report
                .loops()
                .iter()
                .all(|one| one.cause() == EndCause::Drained)
        );
    });
}

#[test]
fn what_cannot_be_claimed_is_refused_by_name() {
    within(|| {
        let group = group(2);
        let refused = |group: &EventLoopGroup, index, word: &str| {
            let error = ManualLoop::claim(group, index).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(word), "{error}");
        };
        refused(&group, 2, "2 loops");
        block_on(group.spawn_on(1, async {})).unwrap();
        refused(&group, 1, "before its first use");
        let manual = ManualLoop::claim(&group, 0).unwrap();
        refused(&group, 0, "before its first use");
        drop(manual);
        refused(&group, 0, "Terminated");
        let ended = crate::util::group(1);
        ended.shutdown_now().wait();
        refused(&ended, 0, "Terminated");
        let error = ManualLoop::from_builder(EventLoopGroup::builder().without_io()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("without_io"), "{error}");
        let error = ManualLoop::from_builder(EventLoopGroup::builder().io_ratio(0)).unwrap_err();
        assert!(error.to_string().contains("io_ratio"), "{error}");
    });
}

#[test]
fn dropping_the_last_handle_of_its_group_ends_a_claimed_loop() {
    within(|| {
        let group = group(1);
        let mut manual = ManualLoop::claim(&group, 0).unwrap();
        settle(&mut manual);
        let mut foreign = Foreign::watch(&manual);
        drop(group);
        assert!(foreign.wait(NOW));
        while !manual.turn(NOW).unwrap().is_ended() {}
    });
}

#[test]
fn the_hook_of_threads_is_called_and_its_guard_dropped_on_this_thread() {
    within(|| {
        let drops = DropCount::new();
        let counted = drops.clone();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let settings = EventLoopGroup::builder().on_thread_start(move |ev| {
            assert!(ev.in_event_loop());
            count.fetch_add(1, Ordering::SeqCst);
            counted.guard()
        });
        let mut manual = ManualLoop::from_builder(settings).unwrap();
        assert_eq!((calls.load(Ordering::SeqCst), drops.get()), (1, 0));
        settle(&mut manual);
        manual.drain(LONG).unwrap();
        assert_eq!(
            (drops.get(), drops.thread()),
            (1, Some(thread::current().id()))
        );
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_loop_in_a_thread_local_ends_with_its_thread() {
    thread_local! {
        static LOOP: std::cell::RefCell<ManualLoop> = std::cell::RefCell::new(ManualLoop::new().unwrap());
    }
    within(|| {
        let drops = DropCount::new();
        let guard = drops.guard();
        let end = on_another_thread(move || {
            LOOP.with_borrow_mut(|manual| {
                drop(manual.spawn_local(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                }));
                settle(manual);
                manual.event_loop().termination()
            })
        });
        assert_eq!(end.wait().cancelled(), 1);
        assert_eq!(drops.get(), 1);
    });
}

#[test]
fn a_destructor_of_a_task_may_use_the_loop_while_it_ends() {
    within(|| {
        let mut manual = settled();
        let (tx, rx) = mpsc::channel();
        drop(manual.spawn_local(async move {
            let _end = OnDrop::new(move || {
                let late = loopgroup::try_spawn_local(async {}).unwrap_err();
                tx.send((EventLoop::current().is_some(), late.reason()))
                    .unwrap();
            });
            std::future::pending::<()>().await;
        }));
        settle(&mut manual);
        drop(manual);
        assert_eq!(rx.recv(), Ok((true, RejectReason::ShutDown)));
    });
}
