//! What loops tell `tracing`, in the order in which it happens.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::io::{self, Read, Write as _};
use std::net::TcpStream as Client;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Rebalance, Server, TcpStream, Turn};
use loopgroup::{Builder, Elastic, EventLoop, EventLoopGroup, GroupView, block_on, yield_now};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::util::{self, Door, alone, stall, within};

/// Writes down everything, a line each.
#[derive(Clone)]
struct Scribe(Arc<Written>);

struct Written {
    lines: Mutex<Vec<String>>,
    entered: AtomicU64,
    /// For the scribe who cannot write.
    broken: bool,
    /// For the scribe who has each event sent away by a loop; and how many the loop took.
    sent_by: Mutex<Option<EventLoop>>,
    taken: AtomicU64,
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

thread_local! {
    /// Who writes down what this thread tells.
    static SCRIBE: RefCell<Option<Scribe>> = const { RefCell::new(None) };
}

/// The subscriber of the whole process, which passes everything on to the scribe of the thread.
///
/// One for each test would be in each other's way: what `tracing` remembers of a place in the source depends
/// on the subscribers that there are when it is first come by.
struct Ear;

impl Ear {
    fn tell<R>(call: impl FnOnce(&Written) -> R) -> Option<R> {
        let scribe = SCRIBE.try_with(|scribe| scribe.borrow().clone());
        Some(call(&scribe.ok()??.0))
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("loopgroup")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(format!("span {}", span.metadata().name()));
        span.record(&mut fields);
        Ear::tell(|written| written.lines.lock().unwrap().push(fields.0));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        Ear::tell(|written| {
            assert!(!written.broken, "a subscriber that panics");
            written.lines.lock().unwrap().push(fields.0);
            let courier = written.sent_by.lock().unwrap().clone();
            if courier.is_some_and(|courier| courier.try_spawn(async {}).is_ok()) {
                written.taken.fetch_add(1, Ordering::SeqCst);
            }
        });
    }

    fn enter(&self, _: &Id) {
        Ear::tell(|written| written.entered.fetch_add(1, Ordering::SeqCst));
    }

    fn exit(&self, _: &Id) {
        Ear::tell(|written| written.entered.fetch_sub(1, Ordering::SeqCst));
    }
}

impl Scribe {
    fn new(broken: bool) -> Scribe {
        static EAR: Once = Once::new();
        EAR.call_once(|| tracing::subscriber::set_global_default(Ear).unwrap());
        let (lines, entered, sent_by, taken) = Default::default();
        Scribe(Arc::new(Written {
            lines,
            entered,
            broken,
            sent_by,
            taken,
        }))
    }

    /// Has everything that `call` tells written down here.
    fn write<R>(&self, call: impl FnOnce() -> R) -> R {
        let outer = SCRIBE.replace(Some(self.clone()));
        let result = call();
        SCRIBE.set(outer);
        result
    }

    /// A group of one loop whose thread tells this scribe, and no other test's.
    fn group(&self, settings: impl FnOnce(Builder) -> Builder) -> EventLoopGroup {
        let scribe = self.clone();
        let builder = EventLoopGroup::builder().loops(1);
        settings(builder)
            .thread_factory(move |loop_thread| {
                let scribe = scribe.clone();
                thread::Builder::new()
                    .spawn(move || scribe.write(|| loop_thread.run()))
                    .map(drop)
            })
            .build()
            .unwrap()
    }

    /// What was written, of what has all of these words.
    fn lines(&self, words: &[&str]) -> Vec<String> {
        let lines = self.0.lines.lock().unwrap();
        let fits = |line: &&String| words.iter().all(|word| line.contains(word));
        lines.iter().filter(fits).cloned().collect()
    }
}

/// The place of the call, as events write it.
#[track_caller]
fn here() -> String {
    let place = Location::caller();
    format!("{}:{}", place.file(), place.line())
}

#[test]
fn a_pause_and_its_end_are_told_once_each() {
    within(|| {
        let scribe = Scribe::new(false);
        let group = EventLoopGroup::new(2).unwrap();
        scribe.write(|| {
            for _ in 0..2 {
                group.loops()[1].pause();
            }
            for _ in 0..2 {
                group.loops()[1].resume();
            }
        });
        assert_eq!(scribe.lines(&["event loop paused", "index=1"]).len(), 1);
        assert_eq!(scribe.lines(&["event loop resumed", "index=1"]).len(), 1);
    });
}

#[test]
fn a_loop_tells_of_its_start_its_phases_and_its_end() {
    within(|| {
        let scribe = Scribe::new(false);
        let group = scribe.group(|builder| builder);
        block_on(group.spawn(async {})).unwrap();
        assert_eq!(scribe.lines(&["span event_loop index=0"]).len(), 1);
        assert_eq!(scribe.0.entered.load(Ordering::SeqCst), 1);
        block_on(group.shutdown_now());
        let told = [
            "event loop started",
            "\"shutting down\"",
            "\"hooks\"",
            "\"channels\"",
            "\"tasks\"",
            "event loop ended",
        ];
        let lines = scribe.lines(&["event loop"]);
        assert_eq!(lines.len(), told.len(), "{lines:#?}");
        for (line, told) in lines.iter().zip(told) {
            assert!(line.contains(told), "{line} instead of {told}");
        }
        assert!(lines[5].contains("cause=Now"), "{}", lines[5]);
        assert!(lines[5].contains("completed=1"), "{}", lines[5]);
        util::eventually("the thread leaves the span", || {
            scribe.0.entered.load(Ordering::SeqCst) == 0
        });
    });
}

#[test]
fn an_elastic_group_tells_that_it_scales_and_that_a_loop_parks() {
    within(|| {
        let scribe = Scribe::new(false);
        let group = scribe.group(|builder| {
            builder.loops(2).elastic(Elastic {
                min: 1,
                max: 2,
                patience: Duration::from_millis(5),
                ..Elastic::default()
            })
        });
        let ev = &group.loops()[1];
        let door = Door::new();
        let busy = {
            let door = door.clone();
            group.spawn_on(0, async move {
                while !door.is_open() {
                    yield_now().await;
                }
            })
        };
        util::eventually("the second loop is active", || !ev.is_paused());
        block_on(ev.submit(|| ())).unwrap(); // it has a thread now
        door.open();
        block_on(busy).unwrap();
        util::eventually("it is told that the loop parks", || {
            scribe.lines(&["INFO", "event loop parks", "index=1"]).len() == 1
        });
        let up = scribe.lines(&["INFO", "event loop group scales", "active=2 utilization=0."]);
        assert!(!up.is_empty(), "{:#?}", scribe.lines(&[]));
        let down = scribe.lines(&["INFO", "event loop group scales", "active=1 utilization="]);
        assert!(!down.is_empty(), "{:#?}", scribe.lines(&[]));
        assert!(scribe.lines(&["event loop parks", "index=0"]).is_empty());
        assert!(group.drain(util::LONG).wait().is_clean());
    });
}

/// A turn that works for a millisecond.
async fn work(mut stream: &TcpStream, (): &mut ()) -> io::Result<Turn> {
    let mut byte = [0];
    if stream.read(&mut byte).await? == 0 {
        return Ok(Turn::Close);
    }
    let end = Instant::now() + Duration::from_millis(1);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
    stream.write_all(&byte).await?;
    Ok(Turn::Next)
}

#[test]
fn a_connection_that_is_rebalanced_is_told_with_its_share_and_its_loops() {
    within(|| {
        let scribe = Scribe::new(false);
        let group = scribe.group(|builder| builder.loops(2).chooser(|_: &GroupView<'_>| 0));
        let rule = Rebalance::by_utilization().period(Duration::from_millis(20));
        let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
        let server = server.rebalance(rule).serve_turns(|_, _| (), work).unwrap();
        let mut clients: Vec<_> = (0..4)
            .map(|_| Client::connect(server.local_addr()).unwrap())
            .collect();
        // All ask before one is answered: the loop has work for all the time.
        while server.moves() == 0 {
            for client in &mut clients {
                client.write_all(b"?").unwrap();
            }
            for client in &mut clients {
                client.read_exact(&mut [0]).unwrap();
            }
        }
        let lines = scribe.lines(&["DEBUG", "connection rebalanced"]);
        let first = &lines[0];
        let field = |name: &str| -> f64 {
            let word = first.split(' ').find_map(|word| word.strip_prefix(name));
            word.unwrap_or_else(|| panic!("no {name} in {first}"))
                .parse()
                .unwrap()
        };
        assert_eq!((field("from="), field("to=")), (0.0, 1.0), "{first}");
        let (from, to) = (field("from_utilization="), field("to_utilization="));
        assert!((0.2..=1.0).contains(&from) && to < 0.8 * from, "{first}");
        assert!(0.01 <= field("share=") && field("share=") < from, "{first}");
        drop(clients);
        server.stop();
        assert_eq!(block_on(server).completed(), 4);
        assert!(group.drain(util::LONG).wait().is_clean());
    });
}

#[test]
fn a_panic_is_told_once_with_the_place_of_the_spawn_joined_or_not() {
    within(|| {
        let scribe = Scribe::new(false);
        let group = scribe.group(|builder| builder.on_panic(|_| {}));
        let (joined, place) = (group.spawn(async { panic!("joined") }), here());
        assert!(block_on(joined).unwrap_err().is_panic());
        drop(group.spawn(async { panic!("alone") }));
        group
            .shutdown_gracefully_with(Duration::ZERO, Duration::from_secs(20))
            .unwrap()
            .wait();
        let lines = scribe.lines(&["ERROR", "panic caught", "message=\"joined\"", &place]);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert_eq!(
            scribe
                .lines(&["panic caught", "message=\"alone\"", "index=0"])
                .len(),
            1
        );
        assert_eq!(scribe.lines(&["panic caught"]).len(), 2);
    });
}

#[test]
fn a_refusal_is_told_to_the_submitter_with_its_reason_and_place() {
    within(|| {
        let scribe = Scribe::new(false);
        let group = scribe.group(|builder| builder);
        group.shutdown_now().wait();
        let place = scribe.write(|| {
            let (refused, place) = (group.spawn(async {}), here());
            assert!(block_on(refused).unwrap_err().is_rejected());
            place
        });
        let lines = scribe.lines(&["WARN", "task rejected", "shut", &place]);
        assert_eq!(lines.len(), 1, "{:#?}", scribe.lines(&[]));
    });
}

#[test]
fn a_slow_poll_is_told_with_the_place_of_the_spawn_and_a_quick_one_is_not() {
    within(|| {
        for (limit, told) in [(Duration::from_millis(20), 1), (Duration::MAX, 0)] {
            let scribe = Scribe::new(false);
            let group = scribe.group(|builder| builder.slow_poll(limit));
            let slow = async { thread::sleep(Duration::from_millis(21)) };
            let (slow, place) = (group.spawn(slow), here());
            block_on(slow).unwrap();
            let closure = || thread::sleep(Duration::from_millis(21));
            let (called, place_of_call) = (group.next().submit(closure), here());
            block_on(called).unwrap();
            group.shutdown_now().wait();
            for place in [place, place_of_call] {
                assert_eq!(scribe.lines(&["WARN", "slow poll", &place]).len(), told);
            }
        }
    });
}

#[test]
fn a_stall_is_told_while_it_lasts_with_the_task_and_the_place_of_the_spawn() {
    alone(
        "a_stall_is_told_while_it_lasts_with_the_task_and_the_place_of_the_spawn",
        || {
            let scribe = Scribe::new(false);
            // The watchdog's thread tells the scribe from its second report on: it hears of the first one
            // before the handler does.
            let told = scribe.clone();
            let (tx, rx) = channel();
            let builder = EventLoopGroup::builder().loops(1);
            let group = builder
                .watchdog(Duration::from_millis(20))
                .on_stall(move |stall| {
                    SCRIBE.set(Some(told.clone()));
                    tx.send(stall.clone()).unwrap_or(());
                })
                .build()
                .unwrap();
            let door = Door::new();
            let until = door.clone();
            let named = group.task().name("stuck");
            let (task, place) = (named.spawn(async move { until.pass() }), here());
            let stalls: Vec<_> = rx.iter().take(2).collect();
            assert_eq!((stalls[0].reports(), stalls[1].reports()), (1, 2));
            let lines = scribe.lines(&["stall"]);
            assert_eq!(lines.len(), 1, "{lines:#?}");
            let (id, time, kind) = (task.id(), stalls[1].duration(), stalls[1].kind());
            let words = [
                "WARN message=stall index=0",
                &format!("task={id} name=\"stuck\" spawned_at={place}"),
                &format!("time={time:?} kind={kind} suppressed=0"),
            ];
            for word in words {
                assert!(lines[0].contains(word), "no {word:?} in {:?}", lines[0]);
            }
            door.open();
            block_on(task).unwrap();
        },
    );
}

#[test]
fn a_subscriber_that_panics_ends_no_loop() {
    within(|| {
        let scribe = Scribe::new(true);
        let group = scribe.group(|builder| builder.on_panic(|_| {}));
        assert!(block_on(group.spawn(async { panic!("once") })).is_err());
        assert_eq!(block_on(group.spawn(async { 7 })).unwrap(), 7);
        let report = group.shutdown_now().wait();
        assert_eq!((report.completed(), report.panicked()), (1, 1));
    });
}

#[test]
fn a_subscriber_that_submits_to_a_full_loop_does_not_hear_of_itself() {
    // It would take its process along.
    alone(
        "a_subscriber_that_submits_to_a_full_loop_does_not_hear_of_itself",
        || {
            let scribe = Scribe::new(false);
            let group = scribe.group(|builder| builder.max_pending_tasks(1));
            let release = stall(group.next());
            let waits = group.spawn(async {});
            *scribe.0.sent_by.lock().unwrap() = Some(group.next().clone());
            for told in 1..=3 {
                scribe.write(|| assert!(group.try_spawn(async {}).is_err()));
                // Of the task; that the event was refused, too, is not told.
                assert_eq!(scribe.lines(&["task rejected"]).len(), told);
            }
            *scribe.0.sent_by.lock().unwrap() = None;
            release.open();
            block_on(waits).unwrap();
            // The thread is not silent from there on, and what a subscriber submits is a task like any other.
            *scribe.0.sent_by.lock().unwrap() = Some(group.next().clone());
            group.shutdown_now().wait();
            scribe.write(|| assert!(group.try_spawn(async {}).is_err()));
            assert_eq!(scribe.lines(&["task rejected"]).len(), 4);
        },
    );
}

#[test]
fn a_subscriber_may_submit_what_it_hears() {
    within(|| {
        let scribe = Scribe::new(false);
        let group = scribe.group(|builder| builder.on_panic(|_| {}));
        let courier = EventLoopGroup::new(1).unwrap();
        *scribe.0.sent_by.lock().unwrap() = Some(courier.next().clone());
        for sent in 1..=2 {
            assert!(block_on(group.spawn(async { panic!("once") })).is_err());
            util::eventually("the event is on its way", || {
                scribe.lines(&["panic caught"]).len() == sent
                    && scribe.0.taken.load(Ordering::SeqCst) >= sent as u64
            });
        }
        *scribe.0.sent_by.lock().unwrap() = None;
    });
}
