//! A loop-bound value is made, used and dropped on its loop; its handles live anywhere.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};

use loopgroup::{EventLoop, EventLoopGroup, LoopBound, PanicSite, RejectReason, block_on};

use crate::util::{
    CountOnDrop, Door, DropCount, OnDrop, eventually, one_loop, panic_of, stall, thread_of, within,
};

/// Not `Send`, and notes where it is made and dropped.
struct Value {
    number: Rc<Cell<u32>>,
    made_on: ThreadId,
    _guard: CountOnDrop,
}

fn value(drops: &DropCount) -> impl FnOnce() -> Value + Send + use<> {
    let guard = drops.guard();
    move || Value {
        number: Rc::new(Cell::new(0)),
        made_on: thread::current().id(),
        _guard: guard,
    }
}

type Panics = mpsc::Receiver<(PanicSite, String)>;

fn one_loop_with_panics() -> (EventLoopGroup, EventLoop, Panics) {
    let (tx, rx) = mpsc::channel();
    let group = EventLoopGroup::builder()
        .loops(1)
        .on_panic(move |panic| {
            let _ = tx.send((panic.site(), panic.message().to_owned()));
        })
        .build()
        .unwrap();
    let ev = group.next().clone();
    (group, ev, rx)
}

#[test]
fn a_value_is_made_used_and_dropped_on_its_loop() {
    within(|| {
        let (_group, ev) = one_loop();
        let home = thread_of(&ev);
        let drops = DropCount::new();
        let bound = ev.bind(value(&drops));
        assert_eq!(bound.event_loop(), &ev);
        let used_on = bound.with(|value| {
            value.number.set(value.number.get() + 1);
            (value.made_on, thread::current().id(), value.number.get())
        });
        assert_eq!(block_on(used_on).unwrap(), (home, home, 1));
        assert_eq!(drops.get(), 0);
        drop(bound);
        // The message of the last handle comes before this task.
        thread_of(&ev);
        assert_eq!((drops.get(), drops.thread()), (1, Some(home)));
    });
}

#[test]
fn visits_come_in_the_order_of_their_submission() {
    within(|| {
        let (_group, ev) = one_loop();
        let bound = ev.bind(Vec::new);
        let release = stall(&ev);
        for n in 0..50 {
            drop(bound.with(move |list: &mut Vec<u32>| list.push(n)));
        }
        release.open();
        let list = block_on(bound.with(std::mem::take)).unwrap();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn clones_reach_the_same_value_from_every_thread() {
    within(|| {
        let (_group, ev) = one_loop();
        let drops = DropCount::new();
        let bound = ev.bind(value(&drops));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let bound = bound.clone();
                thread::spawn(move || {
                    for _ in 0..100 {
                        let add = |value: &mut Value| value.number.set(value.number.get() + 1);
                        block_on(bound.with(add)).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let sum = block_on(bound.with(|value| value.number.get()));
        assert_eq!(sum.unwrap(), 400);
        assert_eq!(drops.get(), 0, "a handle is left");
        drop(bound);
        thread_of(&ev);
        assert_eq!(drops.get(), 1);
    });
}

#[test]
fn with_local_works_at_once_and_the_value_need_not_wait_for_its_turn() {
    within(|| {
        let (_group, ev) = one_loop();
        let own = ev.clone();
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let seen = ev.submit(move || {
            let bound = own.bind(move || {
                count.fetch_add(1, Ordering::SeqCst);
                Rc::new(Cell::new(5))
            });
            // The task that makes the value is still behind this one.
            bound.with_local(|cell| cell.set(cell.get() + 1));
            let now = bound.with_local(|cell| cell.get());
            (now, bound)
        });
        let (now, bound) = block_on(seen).unwrap();
        assert_eq!(now, 6);
        assert_eq!(block_on(bound.with(|cell| cell.get())).unwrap(), 6);
        assert_eq!(made.load(Ordering::SeqCst), 1, "made once");
    });
}

#[test]
fn with_local_elsewhere_panics_with_advice() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
        let bound = group.loops()[1].bind(|| 1);
        let text = panic_of(|| bound.with_local(|value| *value));
        assert!(
            text.contains("event loop 1") && text.contains("with()"),
            "{text}"
        );
        // On a sibling as well.
        let other = bound.clone();
        let sibling = group.loops()[0].submit(move || other.with_local(|value| *value));
        assert!(block_on(sibling).unwrap_err().is_panic());
        assert_eq!(block_on(bound.with(|value| *value)).unwrap(), 1);
    });
}

#[test]
fn a_nested_visit_panics_and_the_value_survives() {
    within(|| {
        let (_group, ev) = one_loop();
        let drops = DropCount::new();
        let bound = ev.bind(value(&drops));
        let inner = bound.clone();
        let nested = bound.with(move |value| {
            let text = panic_of(|| inner.with_local(|_| ()));
            value.number.set(3);
            text
        });
        let text = block_on(nested).unwrap();
        assert!(text.contains("in use"), "{text}");
        // A visit that lets the panic through: the value stays even so.
        let inner = bound.clone();
        let through = bound.with(move |_| inner.with_local(|_| ()));
        assert!(block_on(through).unwrap_err().is_panic());
        let number = block_on(bound.with(|value| value.number.get())).unwrap();
        assert_eq!((number, drops.get()), (3, 0));
    });
}

#[test]
fn visits_of_two_values_may_nest() {
    within(|| {
        let (_group, ev) = one_loop();
        let (one, two) = (ev.bind(|| 1), ev.bind(|| 2));
        let sum = one.with(move |one| two.with_local(|two| *one + *two));
        assert_eq!(block_on(sum).unwrap(), 3);
    });
}

#[test]
fn a_visit_that_panics_leaves_the_value_in_place() {
    within(|| {
        let (_group, ev) = one_loop();
        let bound = ev.bind(|| Cell::new(1));
        let panics = bound.with(|cell| {
            cell.set(2);
            panic!("in the visit");
        });
        let error = block_on(panics).unwrap_err();
        assert!(error.to_string().contains("in the visit"), "{error}");
        assert_eq!(block_on(bound.with(|cell| cell.get())).unwrap(), 2);
    });
}

#[test]
fn an_init_that_panics_is_reported_once_and_every_visit_says_so() {
    within(|| {
        let (group, ev, panics) = one_loop_with_panics();
        let bound = ev.bind(|| -> u8 { panic!("cannot make it") });
        for _ in 0..2 {
            let error = block_on(bound.with(|value| *value)).unwrap_err();
            assert!(error.to_string().contains("was not made"), "{error}");
        }
        let reported = panics.recv().unwrap();
        assert_eq!(reported, (PanicSite::LoopBound, "cannot make it".into()));
        drop(bound);
        group.shutdown_now().wait();
        assert!(panics.try_recv().is_err(), "reported once");
    });
}

#[test]
fn a_value_that_wants_itself_while_it_is_made_fails_and_the_loop_goes_on() {
    within(|| {
        let (_group, ev, panics) = one_loop_with_panics();
        let slot: Arc<Mutex<Option<LoopBound<u8>>>> = Arc::default();
        let own = Arc::clone(&slot);
        let release = stall(&ev);
        let bound = ev.bind(move || {
            let own = own.lock().unwrap().take().unwrap();
            own.with_local(|value| *value)
        });
        *slot.lock().unwrap() = Some(bound.clone());
        release.open();
        assert!(block_on(bound.with(|value| *value)).unwrap_err().is_panic());
        assert_eq!(panics.recv().unwrap().0, PanicSite::LoopBound);
        thread_of(&ev);
    });
}

#[test]
fn a_value_that_is_dropped_before_it_was_made_is_never_made() {
    within(|| {
        let (_group, ev) = one_loop();
        let release = stall(&ev);
        let drops = DropCount::new();
        let init = value(&drops);
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        drop(ev.bind(move || {
            count.fetch_add(1, Ordering::SeqCst);
            init()
        }));
        assert_eq!(drops.get(), 1, "the closure goes with its handle");
        release.open();
        thread_of(&ev);
        assert_eq!(made.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_visit_on_its_way_keeps_the_value() {
    within(|| {
        let (_group, ev) = one_loop();
        let drops = DropCount::new();
        let release = stall(&ev);
        let bound = ev.bind(value(&drops));
        let visit = bound.with(|value| value.number.get());
        drop(bound);
        release.open();
        assert_eq!(block_on(visit).unwrap(), 0);
        eventually("the value is dropped", || drops.get() == 1);
        assert_eq!(drops.thread(), Some(thread_of(&ev)));
    });
}

#[test]
fn after_the_end_of_its_loop_a_value_is_gone_and_visits_are_refused() {
    within(|| {
        let (group, ev) = one_loop();
        let home = thread_of(&ev);
        let drops = DropCount::new();
        let bound = ev.bind(value(&drops));
        block_on(bound.with(|_| ())).unwrap();
        group.shutdown_now().wait();
        assert_eq!((drops.get(), drops.thread()), (1, Some(home)));
        let error = block_on(bound.with(|_| ())).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
        drop(bound);
        assert_eq!(drops.get(), 1, "dropped once");
    });
}

#[test]
fn a_value_bound_after_the_end_is_never_made() {
    within(|| {
        let (group, ev) = one_loop();
        group.shutdown_now().wait();
        let drops = DropCount::new();
        let bound = ev.bind(value(&drops));
        let error = block_on(bound.with(|_| ())).unwrap_err();
        assert_eq!(error.reject_reason(), Some(RejectReason::ShutDown));
        assert_eq!(drops.get(), 0);
        drop(bound);
        assert_eq!(drops.get(), 1);
    });
}

/// Writes its name down when it is dropped.
struct Note(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Note {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

#[test]
fn at_the_end_of_a_loop_its_values_go_after_its_tasks() {
    within(|| {
        let (group, ev) = one_loop();
        let log: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let note = |name| Note(name, Arc::clone(&log));
        let value = note("value");
        let bound = ev.bind(move || Rc::new(value));
        let waits = Door::new();
        let (task, opened, used) = (note("task"), waits.opened(), bound.clone());
        drop(ev.spawn(async move {
            // Declared last, so dropped first: the value is there for a task's destructor.
            let _task = task;
            let _uses = OnDrop::new(move || used.with_local(|value| assert_eq!(value.0, "value")));
            opened.await;
        }));
        eventually("the task waits", || waits.waiting() == 1);
        let report = group.shutdown_now().wait();
        assert_eq!(*log.lock().unwrap(), ["task", "value"]);
        assert_eq!((report.cancelled(), report.panicked()), (1, 0));
        drop(bound);
    });
}

#[test]
fn a_value_that_is_first_wanted_when_the_values_go_is_not_made() {
    within(|| {
        let (group, ev, panics) = one_loop_with_panics();
        let home = ev.clone();
        let last = ev.bind(move || {
            OnDrop::new(move || {
                // Nobody would drop them on the loop, and two that panic would end the process.
                for _ in 0..2 {
                    let late = home.bind(|| OnDrop::new(|| panic!("made too late")));
                    let text = panic_of(|| late.with_local(|_| ()));
                    assert!(text.contains("the loop has ended"), "{text}");
                }
            })
        });
        block_on(last.with(|_| ())).unwrap();
        group.shutdown_now().wait();
        assert_eq!(panics.try_recv().ok(), None);
    });
}

#[test]
fn a_value_whose_destructor_panics_is_reported_and_the_loop_goes_on() {
    within(|| {
        let (group, ev, panics) = one_loop_with_panics();
        let broken = || OnDrop::new(|| panic!("broken value"));
        let (early, late) = (ev.bind(broken), ev.bind(broken));
        thread_of(&ev);
        drop(early);
        thread_of(&ev);
        let expected = (PanicSite::LoopBound, "broken value".to_owned());
        assert_eq!(panics.recv().unwrap(), expected);
        group.shutdown_now().wait();
        assert_eq!(
            panics.try_recv().unwrap(),
            expected,
            "at the end of the loop too"
        );
        drop(late);
    });
}

#[test]
fn a_value_whose_first_turn_was_refused_is_made_on_demand() {
    within(|| {
        let group = EventLoopGroup::builder().loops(1).max_pending_tasks(1);
        let group = group.build().unwrap();
        let ev = group.next();
        let release = stall(ev);
        ev.execute(|| ()).unwrap();
        let bound = ev.bind(|| 11);
        release.open();
        eventually("there is room", || ev.pending_tasks() == 0);
        assert_eq!(block_on(bound.with(|value| *value)).unwrap(), 11);
    });
}

#[test]
fn the_last_handle_may_be_dropped_on_the_loop_and_inside_a_visit() {
    within(|| {
        let (_group, ev) = one_loop();
        let drops = DropCount::new();
        let bound = ev.bind(value(&drops));
        let own = bound.clone();
        let visit = bound.with(move |value| {
            drop(own);
            value.number.get()
        });
        drop(bound);
        assert_eq!(block_on(visit).unwrap(), 0);
        eventually("the value is dropped", || drops.get() == 1);
        assert_eq!(drops.thread(), Some(thread_of(&ev)));
    });
}

#[test]
fn a_handle_is_sendable_and_shows_what_it_leads_to() {
    fn sendable<T: Send + Sync + Clone>(_: &T) {}
    within(|| {
        let (_group, ev) = one_loop();
        let bound = ev.bind(|| Rc::new(1));
        sendable(&bound);
        let text = format!("{bound:?}");
        assert!(
            text.contains("Rc<i32>") && text.contains("index: 0"),
            "{text}"
        );
    });
}

#[test]
fn a_visit_on_a_loop_of_another_group_says_that_it_is_of_another_group() {
    within(|| {
        let build = |name: &'static str| {
            let builder = EventLoopGroup::builder().loops(2);
            let builder = builder.thread_name(move |index| format!("{name}-{index}"));
            builder.build().unwrap()
        };
        let (one, other) = (build("one"), build("other"));
        let value = one.loops()[0].bind(|| 7);
        for (visitor, place) in [
            (&other.loops()[0], "on other-0, a loop of another group"),
            (&one.loops()[1], "on one-1, a loop of the same group"),
        ] {
            let value = value.clone();
            let visit = visitor.submit(move || value.with_local(|value| *value));
            let text = block_on(visit).unwrap_err().to_string();
            assert!(text.contains("outside of event loop 0 (one-0), "), "{text}");
            assert!(text.contains(place), "{text}");
        }
        let text = panic_of(|| value.with_local(|value| *value));
        assert!(text.contains("on a thread that is no loop"), "{text}");
        let shown = format!("{:?}", other.loops()[1]);
        assert!(shown.contains("thread: \"other-1\""), "{shown}");
    });
}
