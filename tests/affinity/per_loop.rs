//! A value on every loop of a group: made, visited and dropped on its loop, and independent of the others.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};

use loopgroup::testing::TestGroup;
use loopgroup::{
    EventLoop, EventLoopGroup, LoopState, PanicSite, PerLoop, PerLoopError, RejectReason, block_on,
};

use crate::util::{
    DropCount, OnDrop, blow_up, eventually, group, one_loop, panic_of, poll_once, stall, thread_of,
    within,
};

#[test]
fn handles_can_be_sent_and_shared_whatever_the_value_is() {
    fn check<T: Send + Sync + Clone>() {}
    check::<PerLoop<Rc<Cell<u32>>>>();
}

#[test]
fn each_value_is_made_once_visited_and_dropped_on_its_loop() {
    within(|| {
        let group = group(3);
        let homes: Vec<ThreadId> = group.loops().iter().map(thread_of).collect();
        let drops: Vec<_> = (0..3).map(|_| DropCount::new()).collect();
        let counts = drops.clone();
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let values = group.per_loop(move |ev| {
            assert!(ev.in_event_loop());
            count.fetch_add(1, Ordering::SeqCst);
            let guard = counts[ev.index()].guard();
            (
                Rc::new(Cell::new(ev.index())),
                thread::current().id(),
                guard,
            )
        });
        for _ in 0..3 {
            let seen = values.map_all(|(index, made_on, _)| {
                assert_eq!(*made_on, thread::current().id());
                (index.get(), *made_on)
            });
            let seen = block_on(seen).unwrap();
            let expected: Vec<_> = homes.iter().copied().enumerate().collect();
            assert_eq!(seen, expected, "in the order of the loops");
        }
        assert_eq!(made.load(Ordering::SeqCst), 3);
        drop(values);
        for (index, ev) in group.loops().iter().enumerate() {
            // The message of the last handle comes before this task.
            let home = thread_of(ev);
            assert_eq!((drops[index].get(), drops[index].thread()), (1, Some(home)));
        }
    });
}

#[test]
fn a_loop_that_is_not_visited_has_no_thread_and_no_value() {
    within(|| {
        let group = group(3);
        let made = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&made);
        let values = group.per_loop(move |ev| log.lock().unwrap().push(ev.index()));
        assert!(values.try_here(|()| ()).is_err());
        block_on(values.on(1, |()| ())).unwrap();
        let states: Vec<_> = group.loops().iter().map(EventLoop::state).collect();
        use LoopState::{NotStarted, Started};
        assert_eq!(states, [NotStarted, Started, NotStarted]);
        assert_eq!(*made.lock().unwrap(), [1]);
        drop(values);
        assert_eq!(group.loops()[0].state(), NotStarted);
    });
}

#[test]
fn visits_nest_and_a_reference_may_be_kept() {
    within(|| {
        let group = group(2);
        let values = group.per_loop(|_| Rc::new(RefCell::new(vec![1])));
        let inner = values.clone();
        let task = group.spawn_on(1, async move {
            let sum = values.here(|outer| {
                inner.here(|same| {
                    assert!(Rc::ptr_eq(outer, same));
                    same.borrow_mut().push(2);
                });
                outer.borrow().iter().sum::<u32>()
            });
            (sum, values)
        });
        let (sum, values) = block_on(task).unwrap();
        assert_eq!(sum, 3);
        // A task keeps the value beyond its handles; it is dropped with the task, still on its loop.
        let kept = group.loops()[1].spawn_with(move || {
            let list = values.here(Rc::clone);
            drop(values);
            async move {
                loopgroup::yield_now().await;
                list.borrow().len()
            }
        });
        assert_eq!(block_on(kept).unwrap(), 2);
    });
}

#[test]
fn a_visit_by_key_is_on_the_loop_where_tasks_of_this_key_are() {
    within(|| {
        let group = group(3);
        let values = group.per_loop(|ev| Rc::new(ev.index()));
        let mut homes = [0; 3];
        for key in 0..50 {
            let home = block_on(values.on_key(&key, |index| **index)).unwrap();
            assert_eq!(group.loop_for(&key).index(), home);
            let task = group.spawn_keyed(&key, async { EventLoop::current().unwrap().index() });
            assert_eq!(block_on(task).unwrap(), home);
            homes[home] += 1;
        }
        assert!(homes.iter().all(|visits| *visits > 0), "{homes:?}");
        // On a loop as well, without a handle of the group.
        let inner = values.clone();
        let task = group.spawn(async move { inner.on_key("text", |index| **index).await });
        let home = group.loop_for("text").index();
        assert_eq!(block_on(task).unwrap().unwrap(), home);
        group.shutdown_now().wait();
        let error = block_on(values.on_key("text", |_| ())).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
        drop(group);
        let error = block_on(values.on_key("text", |_| ())).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
    });
}

#[test]
fn a_visit_elsewhere_is_an_error_that_says_what_to_do() {
    within(|| {
        let (one, other) = (group(2), group(3));
        let values = one.per_loop(|_| Cell::new(0));
        assert_eq!(values.try_here(Cell::get), Err(PerLoopError::NotOnLoop));
        let text = panic_of(|| values.here(Cell::get));
        assert!(
            text.contains("not an event loop") && text.contains("on(index"),
            "{text}"
        );
        // `block_on` has a group, but is no loop.
        let inside = values.clone();
        let error = one.block_on(async move { inside.try_here(Cell::get) });
        assert_eq!(error, Err(PerLoopError::NotOnLoop));
        for index in 0..3 {
            let values = values.clone();
            let task = other.spawn_on(index, async move {
                let error = values.try_here(Cell::get).unwrap_err();
                let text = panic_of(|| values.here(Cell::get));
                (error, text)
            });
            let (error, text) = block_on(task).unwrap();
            assert_eq!(error, PerLoopError::OtherGroup);
            assert!(text.contains("another group"), "{text}");
        }
        assert_eq!(one.loops()[0].state(), LoopState::NotStarted);
        assert_eq!(
            std::io::Error::from(PerLoopError::OtherGroup).kind(),
            std::io::ErrorKind::Unsupported
        );
    });
}

#[test]
fn an_init_that_panics_fails_its_loop_and_no_other() {
    within(|| {
        let (tx, panics) = mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(3)
            .on_panic(move |panic| {
                let _ = tx.send((panic.site(), panic.loop_index()));
            })
            .build()
            .unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let values = group.per_loop(move |ev| {
            count.fetch_add(1, Ordering::SeqCst);
            if ev.index() == 1 {
                blow_up();
            }
            ev.index()
        });
        for _ in 0..2 {
            let error = block_on(values.map_all(|index| *index)).unwrap_err();
            assert!(error.is_panic(), "{error}");
        }
        assert_eq!(calls.load(Ordering::SeqCst), 3, "once on each loop");
        assert_eq!(panics.try_recv(), Ok((PanicSite::LoopBound, Some(1))));
        let ends: Vec<_> = values
            .on_each(|index| *index)
            .into_iter()
            .map(|handle| block_on(handle).ok())
            .collect();
        assert_eq!(ends, [Some(0), None, Some(2)]);
        let here = values.clone();
        let task = group.spawn_on(1, async move { here.try_here(|_| ()) });
        assert_eq!(block_on(task).unwrap(), Err(PerLoopError::InitPanicked));
        let text = group.spawn_on(1, async move { panic_of(|| values.here(|_| ())) });
        let text = block_on(text).unwrap();
        assert!(text.contains("init panicked"), "{text}");
        assert_eq!(panics.try_recv().ok(), None, "reported once");
    });
}

#[test]
fn an_init_that_visits_its_own_value_is_told_so() {
    within(|| {
        let group = group(1);
        let own: Arc<Mutex<Option<PerLoop<bool>>>> = Arc::default();
        let inside = Arc::clone(&own);
        let values = group.per_loop(move |_| {
            let values = inside.lock().unwrap().take().unwrap();
            values.try_here(|_| ()) == Err(PerLoopError::InitRunning)
        });
        *own.lock().unwrap() = Some(values.clone());
        assert!(block_on(values.on(0, |told| *told)).unwrap());
    });
}

#[test]
fn an_init_may_use_another_value_and_spawn() {
    within(|| {
        let group = group(2);
        let first = group.per_loop(|ev| Rc::new(Cell::new(10 * ev.index())));
        let second = group.per_loop(move |_| {
            let cell = first.here(Rc::clone);
            let shared = Rc::clone(&cell);
            drop(loopgroup::spawn_local(async move {
                shared.set(shared.get() + 1)
            }));
            cell
        });
        block_on(second.map_all(|_| ())).unwrap();
        assert_eq!(
            block_on(second.map_all(|cell| cell.get())).unwrap(),
            [1, 11]
        );
    });
}

#[test]
fn queued_visits_keep_the_value_of_a_dropped_handle() {
    within(|| {
        let (_group, ev) = one_loop();
        let home = thread_of(&ev);
        let group = ev.parent().unwrap();
        let drops = DropCount::new();
        let counted = drops.clone();
        let values = group.per_loop(move |_| (Cell::new(0), counted.guard()));
        let release = stall(&ev);
        let visits: Vec<_> = (0..10)
            .map(|_| {
                values.on(0, |(count, _)| {
                    count.set(count.get() + 1);
                    count.get()
                })
            })
            .collect();
        drop(values);
        assert_eq!(drops.get(), 0);
        release.open();
        for (number, visit) in visits.into_iter().enumerate() {
            assert_eq!(block_on(visit).unwrap(), number + 1);
        }
        // The last visit drops the last handle; the loop drops the value in its next turn.
        eventually("the value is dropped", || drops.get() == 1);
        assert_eq!(drops.thread(), Some(home));
    });
}

#[test]
fn values_live_until_the_last_task_of_a_shutdown() {
    within(|| {
        let group = group(2);
        let homes: Vec<_> = group.loops().iter().map(thread_of).collect();
        let drops: Vec<_> = (0..2).map(|_| DropCount::new()).collect();
        let counts = drops.clone();
        let values = group.per_loop(move |ev| (ev.index(), counts[ev.index()].guard()));
        let (tx, rx) = mpsc::channel();
        // On loop 0 the value exists; on loop 1 a destructor at the end is the first visit.
        block_on(values.on(0, |_| ())).unwrap();
        for index in 0..2 {
            let (values, tx) = (values.clone(), tx.clone());
            let (begun, begins) = mpsc::channel();
            drop(group.spawn_on(index, async move {
                let _last = OnDrop::new(move || {
                    tx.send(values.try_here(|(index, _)| *index)).unwrap();
                });
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
            }));
            begins.recv().unwrap();
        }
        let report = group.shutdown_now().wait();
        assert_eq!(report.cancelled(), 2);
        let mut seen = [rx.recv().unwrap(), rx.recv().unwrap()];
        seen.sort_by_key(|seen| seen.ok());
        assert_eq!(seen, [Ok(0), Ok(1)]);
        for (index, home) in homes.into_iter().enumerate() {
            let dropped = (drops[index].get(), drops[index].thread());
            assert_eq!(dropped, (1, Some(home)), "before termination");
        }
        let error = block_on(values.on(0, |_| ())).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
        let error = block_on(values.map_all(|_| ())).unwrap_err();
        assert!(error.is_rejected());
        drop(values);
        assert_eq!((drops[0].get(), drops[1].get()), (1, 1));
    });
}

#[test]
fn a_destructor_of_a_value_finds_its_own_value_gone() {
    within(|| {
        let group = group(1);
        type Own = PerLoop<Box<dyn std::any::Any>>;
        let own: Arc<Mutex<Option<Own>>> = Arc::default();
        let (inside, (tx, rx)) = (Arc::clone(&own), mpsc::channel());
        let values = group.per_loop(move |_| {
            let (values, tx) = (inside.lock().unwrap().take().unwrap(), tx.clone());
            Box::new(OnDrop::new(move || {
                tx.send(values.try_here(|_| ())).unwrap();
            })) as Box<dyn std::any::Any>
        });
        *own.lock().unwrap() = Some(values.clone());
        block_on(values.on(0, |_| ())).unwrap();
        // The value owns a handle of itself: only the end of the loop drops it.
        drop(values);
        thread_of(group.next());
        assert!(rx.try_recv().is_err());
        group.shutdown_now().wait();
        assert_eq!(rx.recv(), Ok(Err(PerLoopError::Ended)));
    });
}

#[test]
fn a_value_whose_destructor_panics_is_reported_and_ends_nothing() {
    within(|| {
        let (tx, panics) = mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(2)
            .on_panic(move |panic| {
                let _ = tx.send(panic.site());
            })
            .build()
            .unwrap();
        let values = group.per_loop(|_| OnDrop::new(|| blow_up()));
        block_on(values.map_all(|_| ())).unwrap();
        drop(values);
        let sites = [panics.recv().unwrap(), panics.recv().unwrap()];
        assert_eq!(sites, [PanicSite::LoopBound; 2]);
        for ev in group.loops() {
            thread_of(ev);
        }
    });
}

#[test]
fn a_visit_of_no_loop_and_of_a_full_loop_is_refused_and_counted() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(2)
            .max_pending_tasks(1)
            .build()
            .unwrap();
        let values = group.per_loop(|_| ());
        let drops = DropCount::new();
        let guard = drops.guard();
        let refused = values.on(2, move |()| drop(guard));
        let error = block_on(refused).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::NoSuchLoop));
        assert_eq!(drops.get(), 1);
        let release = stall(&group.loops()[0]);
        let first = values.on(0, |()| ());
        let error = block_on(values.on(0, |()| ())).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::QueueFull));
        release.open();
        block_on(first).unwrap();
        assert_eq!(group.shutdown_now().wait().rejected(), 2);
    });
}

#[test]
fn a_panic_in_a_visit_is_its_own_and_the_value_stays() {
    within(|| {
        let group = group(1);
        let values = group.per_loop(|_| Cell::new(7));
        let visit: Result<(), _> = block_on(values.on(0, |_| blow_up()));
        let error = visit.unwrap_err();
        assert!(error.is_panic());
        assert_eq!(block_on(values.on(0, Cell::get)).unwrap(), 7);
    });
}

#[test]
fn visits_that_are_dropped_still_run() {
    let mut test = TestGroup::seeded(7, 3);
    let values = test.group().per_loop(|_| Cell::new(0));
    drop(values.map_all(|count| count.set(1)));
    let task = test.group().spawn(values.map_all(Cell::get));
    test.run_until_stalled();
    assert!(task.is_finished());
    assert_eq!(block_on(task).unwrap().unwrap(), [1, 1, 1]);
    drop(values);
    test.run_until_stalled();
    assert_eq!(test.pending(), 0);
}

#[test]
fn map_all_reports_an_error_when_every_visit_has_ended() {
    within(|| {
        let group = group(2);
        let values = group.per_loop(|ev| ev.index());
        let release = stall(&group.loops()[1]);
        let (tx, rx) = mpsc::channel();
        let mut all = values.map_all(move |index| match index {
            0 => blow_up(),
            _ => tx.send(()).unwrap(),
        });
        thread_of(&group.loops()[0]);
        assert!(poll_once(&mut all).is_pending(), "loop 1 has not answered");
        release.open();
        let error = block_on(&mut all).unwrap_err();
        assert!(error.is_panic());
        rx.try_recv().unwrap();
        let text = panic_of(|| poll_once(&mut all).is_ready());
        assert!(text.contains("after it was ready"), "{text}");
    });
}

#[test]
fn the_main_future_of_run_visits_its_loop() {
    let seen = loopgroup::run(async {
        let group = EventLoop::current().unwrap().parent().unwrap();
        let values = group.per_loop(|_| Rc::new(Cell::new(1)));
        values.here(|cell| cell.set(2));
        values.map_all(|cell| cell.get()).await.unwrap()
    });
    assert_eq!(seen.unwrap(), [2]);
}
