//! The flight recorder keeps what the loops did last, in fixed memory, and shows it as a trace: from any
//! thread, also while a loop is stuck, and as it was before a stall.

use std::collections::BTreeMap;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::sync::mpsc::channel;
use std::time::Duration;

use futures::channel::oneshot;
use loopgroup::net::{Server, TcpStream};
use loopgroup::testing::{TestGroup, TestLoop};
use loopgroup::time::sleep;
use loopgroup::{Builder, EventLoopGroup, ManualLoop, TaskId, Trace, block_on, yield_now};

use crate::util::{Door, Json, LONG, blow_up, eventually, flush, ms, secs, stall, within};

/// More than any test records.
const MANY: usize = 1 << 16;

fn recorded(loops: usize) -> EventLoopGroup {
    builder(loops).build().unwrap()
}

fn builder(loops: usize) -> Builder {
    EventLoopGroup::builder()
        .loops(loops)
        .thread_name(|index| format!("recorded-{index}"))
        .flight_recorder(MANY)
}

/// Waits until every poll that has returned has ended on its tape.
fn settle(group: &EventLoopGroup) {
    group.loops().iter().for_each(flush);
}

/// A trace as a viewer sees it; to read one checks that it is well-formed.
#[derive(Debug)]
struct Seen {
    /// Names of processes, and of threads with their processes.
    processes: BTreeMap<u64, String>,
    threads: BTreeMap<u64, (u64, String)>,
    slices: Vec<Slice>,
    marks: Vec<Json>,
    arrows: Vec<Arrow>,
}

#[derive(Clone, Debug, PartialEq)]
struct Slice {
    name: String,
    cat: String,
    tid: u64,
    /// In nanoseconds.
    start: u64,
    end: u64,
    task: Option<u64>,
    args: Json,
}

/// From a moment in a thread to another one.
#[derive(Debug)]
struct Arrow {
    name: String,
    from: (u64, u64),
    to: (u64, u64),
}

impl Slice {
    fn is_open(&self) -> bool {
        self.args.find("unfinished") == Some(&Json::Bool(true))
    }

    fn ended(&self) -> Option<&str> {
        self.args.find("ended").map(Json::text)
    }

    fn is_work(&self) -> bool {
        !["turn", "park"].contains(&&*self.cat)
    }

    fn has(&self, (tid, time): (u64, u64)) -> bool {
        self.tid == tid && (self.start..=self.end).contains(&time)
    }
}

fn nanos(micros: &Json) -> u64 {
    (micros.number() * 1_000.0) as u64 // as Perfetto does
}

fn int(number: &Json) -> u64 {
    assert_eq!(number.number().fract(), 0.0);
    number.number() as u64
}

impl Seen {
    #[track_caller]
    fn of(trace: &Trace) -> Seen {
        Seen::read(&trace.to_chrome_json())
    }

    #[track_caller]
    fn read(text: &str) -> Seen {
        let json = Json::parse(text);
        assert_eq!(json.get("displayTimeUnit").text(), "ns");
        let mut seen = Seen {
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            slices: Vec::new(),
            marks: Vec::new(),
            arrows: Vec::new(),
        };
        let (mut begins, mut ends) = (BTreeMap::new(), BTreeMap::new());
        for event in json.get("traceEvents").list() {
            let (name, pid) = (event.get("name").text(), int(event.get("pid")));
            let tid = || int(event.get("tid"));
            let moment = || (tid(), nanos(event.get("ts")));
            match event.get("ph").text() {
                "M" => {
                    let value = event.get("args").get("name").text().to_owned();
                    let known = match name {
                        "process_name" => seen.processes.insert(pid, value).is_some(),
                        "thread_name" => seen.threads.insert(tid(), (pid, value)).is_some(),
                        other => panic!("unknown metadata: {other}"),
                    };
                    assert!(!known, "a number is used once");
                }
                "X" => {
                    let (tid, start) = moment();
                    let args = event.get("args").clone();
                    seen.slices.push(Slice {
                        name: name.to_owned(),
                        cat: event.get("cat").text().to_owned(),
                        tid,
                        start,
                        end: start + nanos(event.get("dur")),
                        task: args.find("task").map(int),
                        args,
                    });
                }
                "i" => {
                    assert_eq!(event.get("s").text(), "t");
                    moment();
                    seen.marks.push(event.clone());
                }
                "s" => {
                    let id = int(event.get("id"));
                    let known = begins.insert(id, (name.to_owned(), moment()));
                    assert!(known.is_none(), "an id is used once");
                }
                "f" => {
                    assert_eq!(event.get("bp").text(), "e");
                    let known = ends.insert(int(event.get("id")), moment());
                    assert!(known.is_none(), "an id is used once");
                }
                other => panic!("unknown phase: {other}"),
            }
        }
        assert_eq!(begins.len(), ends.len());
        for (id, (name, from)) in begins {
            let to = ends[&id];
            seen.arrows.push(Arrow { name, from, to });
        }
        seen.check();
        seen
    }

    /// Every thread has a process, slices nest, and arrows have a slice at both ends.
    #[track_caller]
    fn check(&self) {
        for (tid, (pid, _)) in &self.threads {
            assert!(self.processes.contains_key(pid) && !self.processes.contains_key(tid));
            let mut outer: Vec<&Slice> = Vec::new();
            for slice in self.slices.iter().filter(|slice| slice.tid == *tid) {
                while outer.last().is_some_and(|one| one.end <= slice.start) {
                    outer.pop();
                }
                if let Some(one) = outer.last() {
                    assert!(slice.end <= one.end, "{slice:?} is not inside of {one:?}");
                    assert!(!one.is_work(), "{slice:?} is in {one:?}");
                    assert_eq!(one.cat, "turn");
                }
                outer.push(slice);
            }
        }
        assert!(
            self.slices
                .iter()
                .all(|one| self.threads.contains_key(&one.tid))
        );
        for arrow in &self.arrows {
            assert!(arrow.from.1 <= arrow.to.1, "{arrow:?}");
            assert!(
                self.slices.iter().any(|one| one.has(arrow.from)),
                "{arrow:?}"
            );
            assert!(
                self.slices
                    .iter()
                    .any(|one| one.is_work() && one.has(arrow.to))
            );
        }
    }

    fn work(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(|one| one.is_work())
    }

    fn polls_of(&self, id: TaskId) -> Vec<&Slice> {
        let id = number(id);
        self.work().filter(|one| one.task == Some(id)).collect()
    }

    fn of_cat(&self, cat: &str) -> Vec<&Slice> {
        self.slices.iter().filter(|one| one.cat == cat).collect()
    }

    fn marks(&self, name: &str) -> Vec<&Json> {
        let is = |mark: &&Json| mark.get("name").text() == name;
        self.marks.iter().filter(is).collect()
    }

    /// The arrows between these polls.
    fn arrows_between(&self, from: &Slice, to: &Slice) -> Vec<&Arrow> {
        let between = |arrow: &&Arrow| from.has(arrow.from) && arrow.to == (to.tid, to.start);
        self.arrows.iter().filter(between).collect()
    }
}

/// An id as a number, which is what it is displayed with.
fn number(id: TaskId) -> u64 {
    id.to_string()
        .strip_prefix("task ")
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn every_poll_is_on_the_tape_and_none_overlaps_another() {
    within(|| {
        let group = recorded(2);
        let tasks: Vec<_> = (0..20)
            .map(|round| {
                group.spawn(async move {
                    for _ in 0..round {
                        yield_now().await;
                    }
                    sleep(ms(round)).await;
                })
            })
            .collect();
        let ids: Vec<_> = tasks.iter().map(|task| task.id()).collect();
        tasks.into_iter().for_each(|task| block_on(task).unwrap());
        group.loops()[1].execute(|| ()).unwrap();
        assert!(group.drain(LONG).wait().is_clean());
        let seen = Seen::of(&group.trace());
        let names: Vec<_> = seen.threads.values().map(|(_, name)| &**name).collect();
        assert_eq!(names, ["recorded-0", "recorded-1"]);
        let polls: u64 = group.metrics().loops().iter().map(|one| one.polls()).sum();
        assert_eq!(seen.work().count() as u64, polls);
        for (round, id) in ids.into_iter().enumerate() {
            let polls = seen.polls_of(id);
            let waits = usize::from(round > 0);
            assert_eq!(polls.len(), 1 + round + waits, "task {round}");
            let (last, others) = polls.split_last().unwrap();
            assert_eq!(last.ended(), Some("completed"));
            assert!(others.iter().all(|one| one.ended().is_none()));
            let place = last.args.get("spawned_at").text();
            assert_eq!((last.name.as_str(), place), (place, place));
            assert!(place.contains("recorder.rs:"), "{place}");
        }
        assert_eq!(seen.of_cat("closure").len(), 1);
        assert!(seen.of_cat("park").len() >= 2);
        assert!(seen.of_cat("turn").len() >= 2);
        assert!(
            seen.slices.iter().all(|one| !one.is_open()),
            "all have ended"
        );
    });
}

#[test]
fn an_arrow_leads_from_the_poll_that_wakes_to_the_one_that_is_woken_also_on_another_loop() {
    within(|| {
        let group = recorded(2);
        let (tx, rx) = oneshot::channel();
        let waits = group.spawn_on(0, rx);
        flush(&group.loops()[0]); // its first poll is over
        let wakes = group.spawn_on(1, async move { tx.send(7).unwrap() });
        let (waiter, waker) = (waits.id(), wakes.id());
        block_on(wakes).unwrap();
        assert_eq!(block_on(waits).unwrap(), Ok(7));
        let yields = group.spawn_on(0, yield_now());
        let yielder = yields.id();
        block_on(yields).unwrap();
        settle(&group);
        let seen = Seen::of(&group.trace());
        let (polls, wakes) = (seen.polls_of(waiter), seen.polls_of(waker));
        assert_eq!((polls.len(), wakes.len()), (2, 1));
        assert_ne!(polls[1].tid, wakes[0].tid);
        assert_eq!(seen.arrows_between(wakes[0], polls[1]).len(), 1);
        assert_eq!(seen.arrows_between(wakes[0], polls[1])[0].name, "wake");
        let polls = seen.polls_of(yielder);
        assert_eq!(
            seen.arrows_between(polls[0], polls[1]).len(),
            1,
            "by itself"
        );
    });
}

#[test]
fn an_arrow_leads_from_the_poll_that_spawns_to_the_first_one_of_the_task() {
    within(|| {
        let group = recorded(2);
        let spawns = group.spawn_on(0, async {
            let here = loopgroup::spawn_local(async {});
            let group = loopgroup::EventLoop::current().unwrap().parent().unwrap();
            let there = group.spawn_on(1, async {});
            let ids = [here.id(), there.id()];
            here.await.unwrap();
            there.await.unwrap();
            ids
        });
        let spawner = spawns.id();
        let ids = block_on(spawns).unwrap();
        settle(&group);
        let seen = Seen::of(&group.trace());
        let spawner = seen.polls_of(spawner);
        for id in ids {
            let polls = seen.polls_of(id);
            let arrows = seen.arrows_between(spawner[0], polls[0]);
            assert_eq!(arrows.len(), 1);
            assert_eq!(arrows[0].name, "spawn");
        }
        assert_eq!(seen.marks("spawn").len(), 2, "those by loops");
    });
}

#[test]
fn a_loop_that_is_stuck_for_ever_is_shown_in_its_poll() {
    within(|| {
        let group = recorded(1);
        let (entered, door) = (Door::new(), Door::new());
        let (inside, until) = (entered.clone(), door.clone());
        let stuck = group.task().name("stuck").spawn(async move {
            inside.open();
            until.pass();
        });
        entered.pass();
        for _ in 0..3 {
            let seen = Seen::of(&group.trace());
            let polls = seen.polls_of(stuck.id());
            assert_eq!((polls.len(), &*polls[0].name), (1, "stuck"));
            assert!(polls[0].is_open() && polls[0].end > polls[0].start);
            let last = Seen::of(&group.trace().last(Duration::ZERO));
            assert_eq!(
                last.polls_of(stuck.id()).len(),
                1,
                "however long ago it began"
            );
        }
        door.open();
        block_on(stuck).unwrap();
        group.shutdown_now().wait();
        let seen = Seen::of(&group.trace());
        assert!(seen.work().all(|one| !one.is_open()));
    });
}

#[test]
fn the_tape_is_bounded_and_the_newest_events_are_kept() {
    within(|| {
        let group = EventLoopGroup::builder().loops(1).flight_recorder(100);
        let group = group.build().unwrap();
        let many = group.spawn(async {
            for _ in 0..10_000 {
                yield_now().await;
            }
        });
        block_on(many).unwrap();
        let last = group.spawn(async {});
        let id = last.id();
        block_on(last).unwrap();
        group.shutdown_now().wait();
        let trace = group.trace();
        assert!((100..128).contains(&trace.events()), "{trace:?}");
        let seen = Seen::of(&trace);
        assert_eq!(seen.polls_of(id).len(), 1);
        assert!(seen.work().count() >= 20);
    });
}

#[test]
fn a_trace_can_be_taken_at_any_time_while_the_loops_work() {
    within(|| {
        let group = EventLoopGroup::builder().loops(2).flight_recorder(64);
        let group = group.build().unwrap();
        let busy: Vec<_> = (0..2)
            .map(|index| {
                group.spawn_on(index, async {
                    loop {
                        yield_now().await;
                    }
                })
            })
            .collect();
        for _ in 0..200 {
            let trace = group.trace();
            assert!(trace.events() < 128);
            let seen = Seen::of(&trace);
            let ids: Vec<_> = busy.iter().map(|task| number(task.id())).collect();
            assert!(seen.work().all(|one| ids.contains(&one.task.unwrap())));
        }
    });
}

#[test]
fn a_recorder_that_is_frozen_by_hand_keeps_what_it_has_until_it_is_resumed() {
    within(|| {
        let group = recorded(1);
        let poll = |name: &'static str| block_on(group.task().name(name).spawn(async {})).unwrap();
        poll("before");
        settle(&group);
        group.freeze_recorder();
        group.freeze_recorder();
        assert!(group.is_recorder_frozen());
        let before = group.trace();
        for _ in 0..100 {
            poll("frozen");
        }
        assert_eq!(group.trace().to_chrome_json(), before.to_chrome_json());
        group.resume_recorder();
        group.resume_recorder();
        assert!(!group.is_recorder_frozen());
        poll("after");
        group.shutdown_now().wait();
        let seen = Seen::of(&group.trace());
        let count = |name: &str| seen.work().filter(|one| one.name == name).count();
        assert_eq!((count("before"), count("after")), (1, 1));
        assert!(
            count("frozen") <= 1,
            "the loop may have been resumed in its last poll"
        );
        group.freeze_recorder();
        assert!(group.is_recorder_frozen(), "also of a group that has ended");
    });
}

#[test]
fn what_was_under_way_when_the_recorder_was_frozen_does_not_reach_into_what_came_later() {
    within(|| {
        let group = recorded(1);
        let door = stall(&group.loops()[0]);
        group.freeze_recorder();
        let frozen = Seen::of(&group.trace());
        let stuck = frozen.of_cat("closure")[0].clone();
        assert!(stuck.is_open());
        assert_eq!(
            Seen::of(&group.trace()).slices,
            frozen.slices,
            "time stands still"
        );
        door.open();
        settle(&group);
        group.resume_recorder();
        block_on(group.spawn(async {})).unwrap();
        settle(&group);
        let seen = Seen::of(&group.trace());
        let again = seen.of_cat("closure")[0];
        assert_eq!((again.start, again.end), (stuck.start, stuck.end));
    });
}

#[test]
fn a_stall_freezes_the_recorder_so_that_what_came_before_it_is_kept() {
    within(|| {
        let (tx, rx) = channel();
        let group = EventLoopGroup::builder().loops(2).flight_recorder(256);
        let group = group
            .watchdog(ms(20))
            .on_stall(move |stall| drop(tx.send(stall.clone())))
            .build()
            .unwrap();
        let before = group.spawn_on(0, async {});
        let id = before.id();
        block_on(before).unwrap();
        let door = stall(&group.loops()[0]);
        let stall = rx.recv().unwrap();
        assert!(group.is_recorder_frozen());
        // The other loop works on, and overwrites nothing.
        block_on(group.spawn_on(1, async {
            for _ in 0..10_000 {
                yield_now().await;
            }
        }))
        .unwrap();
        let seen = Seen::of(&group.trace());
        assert_eq!(seen.polls_of(id).len(), 1);
        let stuck = seen.polls_of(stall.task_id().unwrap())[0];
        assert!(stuck.is_open());
        let shown = Duration::from_nanos(stuck.end - stuck.start);
        assert!(shown >= stall.duration() && shown < LONG, "{shown:?}");
        // It is resumed while the loop is still stuck: the same stall does not freeze it again.
        group.resume_recorder();
        while rx.recv().unwrap().reports() < 3 {}
        assert!(!group.is_recorder_frozen());
        door.open();
        settle(&group);
    });
}

#[test]
fn a_stall_does_not_freeze_a_recorder_that_is_told_to_go_on() {
    within(|| {
        let (tx, rx) = channel();
        let group = builder(1)
            .watchdog(ms(20))
            .on_stall(move |_| tx.send(()).unwrap_or(()))
            .freeze_on_stall(false)
            .build()
            .unwrap();
        let door = stall(&group.loops()[0]);
        rx.recv().unwrap();
        assert!(!group.is_recorder_frozen());
        door.open();
    });
}

#[test]
fn timers_accepts_and_readiness_are_marked() {
    within(|| {
        let group = recorded(1);
        block_on(group.spawn(async { sleep(ms(1)).await })).unwrap();
        let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
        let server = server.serve(|stream, _| async move { drop(stream) });
        let server = server.unwrap();
        let address = server.local_addr();
        let client = group.spawn(async move {
            for _ in 0..3 {
                TcpStream::connect(address).await?;
            }
            io::Result::Ok(())
        });
        block_on(client).unwrap().unwrap();
        eventually("all are served", || server.accepted() == 3);
        settle(&group);
        let seen = Seen::of(&group.trace());
        assert_eq!(seen.marks("accept").len(), 3);
        assert!(!seen.marks("timers fired").is_empty());
        assert!(!seen.marks("timer").is_empty() && !seen.marks("ready").is_empty());
        assert!(seen.marks("spawn").len() >= 3, "a task for each connection");
    });
}

#[test]
fn tasks_show_how_they_have_ended() {
    within(|| {
        let group = builder(1).on_panic(|_| ()).build().unwrap();
        let completes = group.spawn(async {});
        let panics = group.spawn(async { blow_up() });
        let waits = group.spawn(pending::<()>());
        let left = group.spawn(pending::<()>());
        let ids = [completes.id(), panics.id(), waits.id(), left.id()];
        block_on(completes).unwrap();
        assert!(block_on(panics).is_err());
        eventually("both wait", || group.loops()[0].live_tasks() == 2);
        assert!(block_on(waits.cancel()).is_none());
        group.shutdown_now().wait();
        let seen = Seen::of(&group.trace());
        let ends = ids.map(|id| seen.polls_of(id).last().unwrap().ended());
        let expected = ["completed", "panicked", "cancelled", "cancelled"];
        assert_eq!(ends, expected.map(Some));
        assert_eq!(seen.of_cat("cancel").len(), 2);
        drop(left);
    });
}

#[test]
fn main_futures_and_shutdown_hooks_are_shown() {
    within(|| {
        let mut manual = ManualLoop::from_builder(builder(1)).unwrap();
        let group = manual.event_loop().parent().unwrap();
        group.next().add_shutdown_hook(|| ()).unwrap();
        manual.block_on(async { yield_now().await }).unwrap();
        let seen = Seen::of(&group.trace());
        let main = seen.of_cat("main");
        assert!(main.len() == 2 && main.iter().all(|one| one.name == "main future"));
        let end = group.shutdown_now();
        drop(manual);
        assert!(end.wait_timeout(Duration::ZERO).is_some());
        let seen = Seen::of(&group.trace());
        let [hook] = seen.of_cat("hook")[..] else {
            panic!("one hook has run");
        };
        assert!(hook.name.contains("recorder.rs:"), "{hook:?}");
    });
}

#[test]
fn several_groups_are_processes_of_their_own_and_share_their_time() {
    within(|| {
        let (one, other) = (recorded(1), recorded(2));
        let (tx, rx) = oneshot::channel();
        let waits = one.spawn(rx);
        flush(one.next()); // its first poll is over
        let wakes = other.spawn_on(1, async move { tx.send(7).unwrap() });
        let (waiter, waker) = (waits.id(), wakes.id());
        block_on(wakes).unwrap();
        assert_eq!(block_on(waits).unwrap(), Ok(7));
        settle(&one);
        settle(&other);
        let alone = Seen::of(&one.trace());
        assert_eq!(Vec::from_iter(alone.processes.values()), ["group"]);
        let both = Trace::new()
            .with(one.trace().named("one \"<group>\""))
            .with(other.trace().named("other"));
        assert_eq!((both.loops(), format!("{both:?}").len() < 80), (3, true));
        let seen = Seen::of(&both);
        let names: Vec<_> = seen.processes.values().collect();
        assert_eq!(names, ["one \"<group>\"", "other"]);
        assert_eq!((seen.processes.len(), seen.threads.len()), (2, 3));
        let (polls, wakes) = (seen.polls_of(waiter), seen.polls_of(waker));
        assert_ne!(seen.threads[&polls[1].tid].0, seen.threads[&wakes[0].tid].0);
        assert_eq!(seen.arrows_between(wakes[0], polls[1]).len(), 1);
    });
}

#[test]
fn a_trace_without_events_is_valid() {
    let without = EventLoopGroup::new(2).unwrap();
    without.freeze_recorder();
    without.resume_recorder();
    assert!(!without.is_recorder_frozen());
    for trace in [Trace::new(), without.trace(), without.trace().last(secs(1))] {
        assert!(trace.is_empty() && trace.loops() == 0 && trace.events() == 0);
        let seen = Seen::of(&trace);
        assert!(seen.processes.is_empty() && seen.slices.is_empty());
    }
    let unused = recorded(3).trace();
    assert_eq!((unused.is_empty(), unused.loops()), (true, 3));
    let seen = Seen::of(&unused);
    assert_eq!((seen.threads.len(), seen.slices.len()), (3, 0));
}

#[test]
fn names_are_data_whatever_characters_they_have() {
    within(|| {
        let names = [
            "plain",
            "a \"quoted\" one\\",
            "<script>alert('x')</script>&amp;",
            "line\nfeed\ttab\r\0bell\u{7}\u{1b}[31m\u{7f}",
            "\u{2028}\u{2029}\u{feff}",
            "漢字 🦀 é \u{202e}",
            "},{\"ph\":\"X\"",
        ];
        let group = recorded(1);
        for name in names {
            block_on(group.task().name(name).spawn(async {})).unwrap();
        }
        let long = "é".repeat(1_000);
        block_on(group.task().name(long.clone()).spawn(async {})).unwrap();
        settle(&group);
        let text = group.trace().to_chrome_json();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert!(!text.contains("</"), "it would end a script");
        let seen = Seen::read(&text);
        let shown: Vec<_> = seen.work().filter(|one| one.cat == "poll").collect();
        let shown: Vec<_> = shown.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(shown[..names.len()], names);
        assert!(long.starts_with(shown[names.len()]) && shown[names.len()].len() == 128);
    });
}

#[test]
fn a_file_gets_what_the_text_says() {
    within(|| {
        let group = recorded(1);
        block_on(group.spawn(async {})).unwrap();
        group.shutdown_now().wait();
        let trace = group.trace();
        let mut file = Vec::new();
        trace.write_chrome_json(&mut file).unwrap();
        // A poll may not have ended when the trace was taken; but nothing moves any more.
        assert_eq!(String::from_utf8(file).unwrap(), trace.to_chrome_json());
        struct Full;
        impl io::Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = trace.write_chrome_json(&mut Full).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    });
}

#[test]
fn the_last_moments_are_those_before_the_trace_was_taken() {
    let mut test = TestLoop::from_builder(builder(1)).unwrap();
    let poll = |test: &mut TestLoop, name: &'static str| {
        drop(test.group().task().name(name).spawn(async {}));
        test.run_until_stalled();
        test.advance(secs(10));
    };
    for name in ["first", "second", "third"] {
        poll(&mut test, name);
    }
    let trace = test.group().trace();
    let names = |trace: &Trace| {
        let seen = Seen::of(trace);
        seen.work().map(|one| one.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&trace), ["first", "second", "third"]);
    assert_eq!(names(&trace.last(secs(11))), ["third"]);
    assert_eq!(names(&trace.last(secs(21))), ["second", "third"]);
    assert_eq!(names(&trace.last(secs(31))), ["first", "second", "third"]);
    assert_eq!(trace.last(Duration::MAX).events(), trace.events());
    let nothing = trace.last(secs(1));
    assert_eq!(Seen::of(&nothing).work().count(), 0);
    let slept = Seen::of(&nothing);
    assert!(!slept.of_cat("park").is_empty(), "it sleeps since then");
}

#[test]
fn the_trace_of_a_test_group_is_that_of_its_seed() {
    fn run(seed: u64) -> (Seen, [TaskId; 2]) {
        let mut test = TestGroup::from_builder(seed, builder(3)).unwrap();
        let (tx, rx) = oneshot::channel();
        let waits = test.group().spawn_on(0, rx);
        let wakes = test.group().spawn_on(1, async move {
            sleep(secs(3600)).await;
            tx.send(()).unwrap();
        });
        let ids = [waits.id(), wakes.id()];
        test.advance(secs(7200));
        assert!(waits.is_finished() && wakes.is_finished());
        (Seen::of(&test.group().trace()), ids)
    }
    for seed in 0..10 {
        let (seen, [waiter, waker]) = run(seed);
        let (polls, wakes) = (seen.polls_of(waiter), seen.polls_of(waker));
        assert_eq!((polls.len(), wakes.len()), (2, 2));
        let hour = 3_600_000_000_000;
        let late = wakes[1].start.checked_sub(hour).unwrap();
        assert!(
            late < 1_000,
            "virtual time, a nanosecond for each event: {late}"
        );
        assert_eq!(seen.arrows_between(wakes[1], polls[1]).len(), 1);
        let times = |seen: &Seen| {
            let slices = seen.slices.iter();
            slices
                .map(|one| (one.tid, one.start, one.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(times(&run(seed).0), times(&seen));
    }
}

#[test]
fn a_recorder_needs_room_for_events_and_not_for_too_many() {
    let build = |events| {
        EventLoopGroup::builder()
            .loops(1)
            .flight_recorder(events)
            .build()
    };
    for wrong in [0, (1 << 24) + 1, usize::MAX / 2 + 2, usize::MAX] {
        let error = build(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert_eq!(
            text,
            "flight_recorder: must be between 1 and 16777216 events"
        );
    }
    let smallest = build(1).unwrap();
    block_on(smallest.spawn(async {})).unwrap();
    settle(&smallest);
    assert!(smallest.trace().events() >= 3);
}
