//! Hosts and their lives: what a program leaves behind when it ends, what its peers see, and what is refused.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Shutdown};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::oneshot;
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::blocking::{BlockingGroup, unblock};
use loopgroup::net::{
    Server, TcpListener, TcpSocket, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
    lookup_host,
};
use loopgroup::testing::sim::{self, Link, SimError, SimErrorKind, Simulation};
use loopgroup::time::{interval, sleep, sleep_until, timeout};
use loopgroup::{Elastic, EventLoop, EventLoopGroup, JoinSet, ManualLoop, yield_now};

use crate::util::{DropCount, HOUR, OnDrop, alone, entries, ms, panic_of, restless, secs, within};

/// What hosts note for the test, in the order of their notes.
#[derive(Clone, Default)]
struct Notes(Rc<RefCell<Vec<String>>>);

impl Notes {
    fn add(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

/// Counts the polls of a future, and its drop.
#[derive(Clone, Default)]
struct Counts(Rc<(Cell<usize>, Cell<usize>)>);

struct Counted<F>(Counts, Pin<Box<F>>);

impl Counts {
    fn of<F: Future>(&self, future: F) -> Counted<F> {
        Counted(self.clone(), Box::pin(future))
    }

    fn polls(&self) -> usize {
        self.0.0.get()
    }

    fn drops(&self) -> usize {
        self.0.1.get()
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polls = &self.0.0.0;
        polls.set(polls.get() + 1);
        self.1.as_mut().poll(cx)
    }
}

impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        assert!(
            EventLoop::current().is_some(),
            "futures are dropped on their loop"
        );
        let drops = &self.0.0.1;
        drops.set(drops.get() + 1);
    }
}

fn kind<T>(result: io::Result<T>) -> Result<(), ErrorKind> {
    result.map(drop).map_err(|error| error.kind())
}

/// An echo server on port 7.
async fn echo() -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:7").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        drop(loopgroup::spawn_local(async move {
            let mut buf = [0; 64];
            while let Ok(bytes @ 1..) = stream.read(&mut buf).await {
                if stream.write_all(&buf[..bytes]).await.is_err() {
                    return;
                }
            }
        }));
    }
}

async fn ask(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"?").await?;
    stream.read_exact(&mut [0]).await
}

fn failed(sim: &mut Simulation) -> SimError {
    sim.run().unwrap_err()
}

// Lives.

#[test]
fn a_restart_runs_the_program_again_with_no_memory_and_the_same_address() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        let note = notes.clone();
        sim.host("server", move |host| {
            let (note, memory) = (note.clone(), Cell::new(0));
            async move {
                memory.set(memory.get() + 1);
                let at = TcpListener::bind((host.address(), 80))
                    .await?
                    .local_addr()?;
                note.add(format!(
                    "{} {} {at} {}",
                    host.name(),
                    host.restarts(),
                    memory.get()
                ));
                assert_eq!(sim::host_name().as_deref(), Some("server"));
                pending::<()>().await;
                io::Result::Ok(())
            }
        });
        for _ in 0..3 {
            sim.run_for(secs(1)).unwrap();
            sim.restart("server");
        }
        sim.kill("server");
        sim.kill("server");
        sim.crash("server");
        sim.run_for(secs(1)).unwrap();
        sim.restart("server");
        sim.run_for(secs(1)).unwrap();
        let lives = [0, 1, 2, 4].map(|life| format!("server {life} 10.0.0.1:80 1"));
        assert_eq!(notes.take(), lives); // the fourth life was killed before it ran
    });
}

#[test]
fn a_kill_drops_all_futures_on_their_loops_without_another_poll() {
    within(|| {
        let mut sim = Simulation::builder().seed(1).loops(2).build();
        let counts = Counts::default();
        let [one, other, inner] = [(); 3].map(|()| counts.clone());
        sim.host("server", move |_| {
            let (one, other, inner) = (one.clone(), other.clone(), inner.clone());
            async move {
                drop(loopgroup::spawn_local(one.of(restless())));
                drop(loopgroup::spawn_local(other.of(pending::<()>())));
                inner.of(sleep(HOUR)).await;
            }
        });
        for _ in 0..1_000 {
            assert!(sim.step());
        }
        assert!(counts.polls() > 3);
        let polls = counts.polls();
        sim.kill("server");
        assert_eq!((counts.polls(), counts.drops()), (polls, 3));
        sim.run_for(HOUR).unwrap();
        assert_eq!((counts.polls(), counts.drops()), (polls, 3));
    });
}

#[test]
fn a_kill_does_not_poll_those_who_wait_for_sockets_either() {
    within(|| {
        for end in ["kill", "crash", "restart", "drop"] {
            let mut sim = Simulation::seeded(1);
            let counts = Counts::default();
            let tasks = counts.clone();
            sim.host("server", move |host| {
                let tasks = tasks.clone();
                async move {
                    if host.restarts() > 0 {
                        return Ok(());
                    }
                    let listener = TcpListener::bind("0.0.0.0:80").await?;
                    let udp = UdpSocket::bind("0.0.0.0:80").await?;
                    let (one, _other) = UnixStream::pair()?;
                    let mut stream = TcpStream::connect("server:80").await?;
                    drop(listener.accept().await?);
                    drop(loopgroup::spawn_local(
                        tasks.of(async move { listener.accept().await }),
                    ));
                    drop(loopgroup::spawn_local(
                        tasks.of(async move { udp.recv(&mut [0]).await }),
                    ));
                    drop(loopgroup::spawn_local(
                        tasks.of(async move { one.readable().await }),
                    ));
                    let silent = TcpStream::connect("10.9.9.9:80");
                    drop(loopgroup::spawn_local(tasks.of(silent)));
                    assert_eq!(stream.read(&mut [0]).await?, 0);
                    sleep(HOUR).await;
                    io::Result::Ok(())
                }
            });
            sim.run_for(secs(1)).unwrap();
            assert_eq!((counts.polls(), counts.drops()), (4, 0), "{end}");
            match end {
                "kill" => sim.kill("server"),
                "crash" => sim.crash("server"),
                "restart" => sim.restart("server"),
                _ => drop(std::mem::replace(&mut sim, Simulation::seeded(2))),
            }
            assert_eq!((counts.polls(), counts.drops()), (4, 4), "{end}");
            sim.run_for(secs(60)).unwrap();
            assert_eq!((counts.polls(), counts.drops()), (4, 4), "{end}");
        }
    });
}

#[test]
fn a_kill_drops_what_other_groups_of_the_host_have() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let (drops, polls) = (DropCount::new(), Arc::new(AtomicUsize::new(0)));
        let (dropped, polled) = (drops.clone(), polls.clone());
        sim.host("server", move |_| {
            let (dropped, polled) = (dropped.clone(), polled.clone());
            async move {
                let group = EventLoopGroup::new(3)?;
                let hook = polled.clone();
                let hook = group.next().add_shutdown_hook(move || {
                    hook.fetch_add(1_000_000, Ordering::Relaxed);
                });
                hook.unwrap();
                for ev in group.loops() {
                    let (guard, polled) = (dropped.guard(), polled.clone());
                    drop(ev.spawn(async move {
                        let _guard = guard;
                        loop {
                            polled.fetch_add(1, Ordering::Relaxed);
                            sleep(ms(10)).await;
                        }
                    }));
                    drop(ev.bind({
                        let guard = dropped.guard();
                        move || guard
                    }));
                }
                pending::<()>().await;
                io::Result::Ok(())
            }
        });
        sim.run_for(secs(1)).unwrap();
        let before = polls.load(Ordering::Relaxed);
        assert!((300..=303).contains(&before), "{before}");
        sim.kill("server");
        assert_eq!(drops.get(), 6);
        sim.run_for(secs(1)).unwrap();
        assert_eq!(polls.load(Ordering::Relaxed), before); // also of the hook
    });
}

#[test]
fn shutdown_hooks_run_at_a_shutdown_and_not_at_a_kill_or_a_crash() {
    within(|| {
        let runs = Arc::new(AtomicUsize::new(0));
        for end in ["kill", "crash", "restart", "drop"] {
            let (mut sim, hook) = (Simulation::seeded(1), runs.clone());
            sim.host("server", move |_| {
                let hook = hook.clone();
                let ev = EventLoop::current().unwrap();
                let added = ev.add_shutdown_hook(move || {
                    hook.fetch_add(1, Ordering::Relaxed);
                });
                added.unwrap();
                pending::<()>()
            });
            sim.run_for(secs(1)).unwrap();
            match end {
                "kill" => sim.kill("server"),
                "crash" => sim.crash("server"),
                "restart" => sim.restart("server"),
                _ => {}
            }
            drop(sim);
            assert_eq!(runs.load(Ordering::Relaxed), 0, "{end}");
        }
        let hook = runs.clone();
        let mut sim = Simulation::seeded(1);
        sim.client("client", async move {
            let group = EventLoopGroup::new(2)?;
            for ev in group.loops() {
                let hook = hook.clone();
                ev.add_shutdown_hook(move || {
                    hook.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            }
            assert_eq!(group.shutdown_now().await.hooks_run(), 2);
            io::Result::Ok(())
        });
        sim.run().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn nothing_that_a_destructor_starts_outlives_the_kill() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let count = ran.clone();
        sim.host("server", move |_| {
            let count = count.clone();
            async move {
                let _last_words = OnDrop::new(move || {
                    let (one, other, third) = (count.clone(), count.clone(), count.clone());
                    drop(loopgroup::spawn_local(async move {
                        one.fetch_add(1, Ordering::Relaxed);
                    }));
                    let group = EventLoopGroup::new(1).unwrap();
                    drop(group.spawn(async move {
                        other.fetch_add(1, Ordering::Relaxed);
                        sleep(secs(1)).await;
                        other.fetch_add(1, Ordering::Relaxed);
                    }));
                    Box::leak(Box::new(group)); // no shutdown ends it
                    drop(unblock(move || third.fetch_add(1, Ordering::Relaxed)));
                });
                pending::<()>().await;
            }
        });
        sim.run_for(secs(1)).unwrap();
        sim.kill("server");
        sim.run_for(secs(5)).unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn peers_of_a_killed_host_see_the_end_or_a_reset_and_then_a_refusal() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.host("server", |_| async {
            let listener = TcpListener::bind("0.0.0.0:80").await?;
            let (mut read, _) = listener.accept().await?;
            read.read_exact(&mut [0]).await?;
            read.write_all(b"last").await?;
            let _unread = listener.accept().await?;
            pending::<()>().await;
            io::Result::Ok(())
        });
        let notes = Notes::default();
        let note = notes.clone();
        sim.client("client", async move {
            let mut ends = TcpStream::connect("server:80").await?;
            ends.write_all(b"x").await?;
            let mut reset = TcpStream::connect("server:80").await?;
            reset.write_all(b"never read").await?;
            let mut queued = TcpStream::connect("server:80").await?;
            sleep(secs(2)).await;
            let mut text = String::new();
            note.add(format!(
                "{:?} {text}",
                kind(ends.read_to_string(&mut text).await)
            ));
            note.add(format!("{:?}", kind(reset.read(&mut [0; 8]).await)));
            note.add(format!("{:?}", kind(queued.read(&mut [0; 8]).await)));
            note.add(format!("{:?}", kind(TcpStream::connect("server:80").await)));
            let before = sim::now();
            note.add(format!("{:?}", kind(ends.write(b"x").await)));
            sleep(ms(10)).await;
            note.add(format!("{:?}", kind(ends.write(b"x").await)));
            assert!(sim::now() - before < ms(20));
            io::Result::Ok(())
        });
        sim.at(secs(1), |sim| sim.kill("server"));
        sim.run().unwrap();
        let seen = [
            "Ok(()) last",
            "Err(ConnectionReset)",
            "Err(ConnectionReset)",
            "Err(ConnectionRefused)",
            "Ok(())",
            "Err(BrokenPipe)",
        ];
        assert_eq!(notes.take(), seen);
    });
}

#[test]
fn a_crash_is_silence_until_the_host_is_back_and_then_a_reset() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.host("server", |_| echo());
        let notes = Notes::default();
        let note = notes.clone();
        sim.client("client", async move {
            let start = sim::now();
            let mut stream = TcpStream::connect("server:7").await?;
            ask(&mut stream).await?;
            let mut idle = TcpStream::connect("server:7").await?;
            ask(&mut idle).await?;
            sleep(secs(2)).await; // it has crashed
            let asked = timeout(secs(60), ask(&mut stream)).await;
            note.add(format!("silence {:?}", asked.is_err()));
            let connected = timeout(secs(20), TcpStream::connect("server:7")).await;
            note.add(format!("silence {:?}", connected.is_err()));
            let until = start + secs(100);
            sleep_until(until).await; // it is back, with no memory
            let read = timeout(secs(300), stream.read(&mut [0; 8])).await;
            note.add(format!("{:?}", read.map(kind)));
            note.add(format!(
                "idle {:?}",
                timeout(HOUR / 4, idle.read(&mut [0; 8])).await.is_err()
            ));
            note.add(format!("idle {:?}", kind(ask(&mut idle).await)));
            ask(&mut TcpStream::connect("server:7").await?).await
        });
        sim.at(secs(1), |sim| sim.crash("server"));
        sim.at(secs(99), |sim| sim.restart("server"));
        sim.run().unwrap();
        let seen = [
            "silence true",
            "silence true",
            "Ok(Err(ConnectionReset))",
            "idle true",
            "idle Err(ConnectionReset)",
        ];
        assert_eq!(notes.take(), seen);
    });
}

#[test]
fn a_peer_that_never_comes_back_is_given_up_after_a_quarter_of_an_hour() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.host("server", |_| echo());
        let notes = Notes::default();
        let note = notes.clone();
        sim.client("client", async move {
            let mut stream = TcpStream::connect("server:7").await?;
            ask(&mut stream).await?;
            sleep(secs(2)).await;
            let start = sim::now();
            note.add(format!("{:?}", kind(ask(&mut stream).await)));
            assert!((secs(900)..secs(1_100)).contains(&(sim::now() - start)));
            let start = sim::now();
            note.add(format!("{:?}", kind(TcpStream::connect("server:7").await)));
            assert!((secs(120)..secs(135)).contains(&(sim::now() - start)));
            io::Result::Ok(())
        });
        sim.at(secs(1), |sim| sim.partition("server", "client"));
        sim.run().unwrap();
        assert_eq!(notes.take(), ["Err(TimedOut)", "Err(TimedOut)"]);
    });
}

#[test]
fn a_client_that_is_killed_or_crashes_counts_as_ended_and_is_not_restarted() {
    within(|| {
        for crashes in [false, true] {
            let mut sim = Simulation::seeded(1);
            let runs = Rc::new(Cell::new(0));
            let count = runs.clone();
            sim.client("victim", async move {
                count.set(count.get() + 1);
                pending::<()>().await;
            });
            sim.client("other", sleep(secs(5)));
            sim.at(secs(1), move |sim| match crashes {
                true => sim.crash("victim"),
                false => sim.kill("victim"),
            });
            sim.at(secs(2), |sim| sim.restart("victim"));
            sim.at(secs(3), |sim| sim.kill("victim"));
            let report = sim.run().unwrap();
            assert_eq!((report.elapsed(), runs.get()), (secs(5), 1));
        }
    });
}

#[test]
fn a_program_of_several_loops_begins_on_the_first_and_uses_all() {
    within(|| {
        let mut sim = Simulation::builder().seed(3).loops(3).build();
        sim.client("client", async {
            let ev = EventLoop::current().unwrap();
            assert_eq!(ev.index(), 0);
            let group = ev.parent().unwrap();
            assert_eq!(group.len(), 3);
            for one in group.loops() {
                let here = one.clone();
                assert!(
                    one.spawn(async move { here.in_event_loop() })
                        .await
                        .unwrap()
                );
            }
        });
        sim.run().unwrap();
    });
}

// Groups and threads.

#[test]
fn groups_of_a_host_shut_down_with_exact_reports() {
    within(|| {
        for seed in 0..20 {
            let mut sim = Simulation::seeded(seed);
            sim.client("client", async move {
                let group = EventLoopGroup::new(3)?;
                for number in 0..30 {
                    drop(group.spawn(async move {
                        sleep(ms(100 * (number % 3))).await;
                        assert_ne!(sim::host_name(), None);
                        if number % 10 == 9 {
                            pending::<()>().await;
                        }
                    }));
                }
                let before = sim::now();
                let report = group.drain(secs(5)).await;
                assert_eq!(sim::now() - before, secs(5)); // three never end
                let books = (report.accepted(), report.completed(), report.panicked());
                assert_eq!(books, (30, 27, 0), "{report}");
                assert_eq!(report.cancelled(), 3);
                assert_eq!(report.loops().len(), 3);
                assert!(group.is_terminated());
                let late = group.spawn(async {}).await;
                assert!(late.is_err());
                let other = EventLoopGroup::new(1)?;
                drop(other.spawn(sleep(ms(1))));
                let report = other.shutdown_gracefully().await;
                assert_eq!((report.accepted(), report.completed()), (1, 1));
                io::Result::Ok(())
            });
            sim.run().unwrap();
        }
    });
}

#[test]
fn nothing_that_a_host_does_starts_a_thread() {
    alone("nothing_that_a_host_does_starts_a_thread", || {
        let mut sim = Simulation::builder().loops(2).build();
        sim.host("server", |_| echo());
        // With the watchdog, which is the simulation's: one for the process.
        let before = entries("/proc/self/task");
        sim.client("client", async move {
            let group = EventLoopGroup::new(4)?;
            group.start()?;
            for ev in group.loops() {
                assert_eq!(ev.spawn(async { 7 }).await.unwrap(), 7);
            }
            let elastic = Elastic {
                min: 1,
                max: 3,
                patience: ms(5),
                ..Elastic::default()
            };
            let elastic = EventLoopGroup::builder().elastic(elastic).build()?;
            for _ in 0..20 {
                elastic.spawn(sleep(ms(20))).await.unwrap();
            }
            let executor = EventLoopGroup::builder().loops(2).without_io().build()?;
            executor.spawn(sleep(ms(20))).await.unwrap();
            unblock(|| ()).await.unwrap();
            let blocking = BlockingGroup::new(2)?;
            blocking.spawn(|| ()).await.unwrap();
            lookup_host("server:7").await?;
            ask(&mut TcpStream::connect("server:7").await?).await?;
            assert_eq!(entries("/proc/self/task"), before);
            blocking.drain(secs(1)).await;
            group.drain(secs(1)).await;
            assert_eq!(entries("/proc/self/task"), before);
            io::Result::Ok(())
        });
        sim.run().unwrap();
        drop(sim);
        assert!(entries("/proc/self/task") <= before);
    });
}

#[test]
fn blocking_jobs_run_on_their_host_and_are_joined() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.client("client", async {
            let here = std::thread::current().id();
            let job = unblock(move || (std::thread::current().id(), sim::host_name()));
            assert_eq!(job.await.unwrap(), (here, Some("client".to_owned())));
            let group = BlockingGroup::builder().max_threads(1).build()?;
            let jobs: Vec<_> = (0..10)
                .map(|number| group.spawn(move || number * 2))
                .collect();
            for (number, job) in jobs.into_iter().enumerate() {
                assert_eq!(job.await.unwrap(), number * 2);
            }
            let panicked = group.spawn(|| -> u32 { crate::util::blow_up() });
            assert!(panicked.await.unwrap_err().is_panic());
            assert_eq!((group.threads(), group.pending_jobs()), (0, 0));
            group.shutdown_now().await;
            assert!(group.spawn(|| ()).await.is_err());
            io::Result::Ok(())
        });
        sim.run().unwrap();
    });
}

#[test]
fn an_elastic_group_of_a_host_works_and_ends_with_exact_books() {
    within(|| {
        for seed in 0..10 {
            let mut sim = Simulation::seeded(seed);
            sim.client("client", async {
                let elastic = Elastic {
                    min: 1,
                    max: 4,
                    patience: ms(5),
                    ..Elastic::default()
                };
                let group = EventLoopGroup::builder().elastic(elastic).build()?;
                let mut tasks = JoinSet::new();
                for _ in 0..5 {
                    for ev in group.loops() {
                        tasks.spawn_on(ev, async {
                            for _ in 0..10 {
                                yield_now().await;
                            }
                            sleep(ms(3)).await;
                        });
                    }
                    while tasks.join_next().await.is_some() {}
                    sleep(secs(1)).await;
                }
                let report = group.drain(secs(5)).await;
                let ended = report.completed() + report.cancelled() + report.panicked();
                assert_eq!(report.accepted(), ended, "{report}");
                assert!(report.completed() >= 20, "{report}");
                io::Result::Ok(())
            });
            sim.run().unwrap();
        }
    });
}

#[test]
fn values_of_a_loop_live_on_the_loops_of_a_host() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let drops = DropCount::new();
        let dropped = drops.clone();
        sim.client("client", async move {
            let group = EventLoopGroup::new(3)?;
            let counters = group.per_loop({
                let dropped = dropped.clone();
                move |ev| (Cell::new(ev.index()), dropped.guard())
            });
            for _ in 0..3 {
                for index in 0..3 {
                    let visit = counters.on(index, |(count, _)| count.replace(count.get() + 10));
                    visit.await.unwrap();
                }
            }
            let all = counters.map_all(|(count, _)| count.get()).await;
            assert_eq!(all.unwrap(), [30, 31, 32]);
            let bound = group.next().bind(|| Rc::new(Cell::new(1)));
            bound.with(|one| one.set(one.get() + 1)).await.unwrap();
            assert_eq!(bound.with(|one| one.get()).await.unwrap(), 2);
            group.shutdown_now().await;
            assert_eq!(dropped.get(), 3);
            assert!(bound.with(|_| ()).await.is_err());
            io::Result::Ok(())
        });
        sim.run().unwrap();
        assert_eq!(drops.get(), 3);
    });
}

#[test]
fn a_join_set_joins_and_aborts_on_a_host() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let drops = DropCount::new();
        let dropped = drops.clone();
        sim.client("client", async move {
            let mut tasks = JoinSet::new();
            for number in 1..=5_u64 {
                tasks.spawn_local(async move {
                    sleep(ms(100 - number)).await;
                    number
                });
            }
            let mut order = Vec::new();
            while let Some(joined) = tasks.join_next().await {
                order.push(joined.unwrap());
            }
            assert_eq!(order, [5, 4, 3, 2, 1]);
            let guard = dropped.guard();
            tasks.spawn_local(async move {
                let _guard = guard;
                pending().await
            });
            yield_now().await;
            tasks.shutdown().await;
            assert_eq!(dropped.get(), 1);
        });
        sim.run().unwrap();
        assert_eq!(drops.get(), 1);
    });
}

#[test]
fn a_manual_loop_is_refused_on_a_host_and_is_the_systems_beside_a_simulation() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        let note = notes.clone();
        sim.client("client", async move {
            note.add(match ManualLoop::new() {
                Ok(_) => "made".to_owned(),
                Err(error) => error.to_string(),
            });
        });
        sim.run().unwrap();
        let [seen] = &notes.take()[..] else {
            panic!("one note")
        };
        assert_ne!(seen, "made"); // it could say why
        assert!(ManualLoop::new().unwrap().block_on(async { 7 }).unwrap() == 7);
    });
}

#[test]
fn a_signal_on_a_host_does_not_come_and_its_listener_can_be_given_up() {
    alone(
        "a_signal_on_a_host_does_not_come_and_its_listener_can_be_given_up",
        || {
            let mut sim = Simulation::seeded(1);
            sim.client("client", async {
                let given_up = timeout(secs(5), loopgroup::signal::ctrl_c()).await;
                assert!(given_up.is_err());
            });
            assert_eq!(sim.run().unwrap().elapsed(), secs(5));
        },
    );
}

// Failures.

#[test]
fn an_error_of_main_names_host_time_seed_and_text() {
    within(|| {
        for is_host in [false, true] {
            let mut sim = Simulation::seeded(77);
            let main = || async {
                sleep(ms(1_500)).await;
                Err::<(), _>("disk full")
            };
            match is_host {
                true => sim.host("store", move |_| main()),
                false => sim.client("store", main()),
            }
            sim.client("other", pending::<()>());
            let error = failed(&mut sim);
            assert_eq!(error.kind(), SimErrorKind::Failed);
            assert_eq!(
                (error.host(), error.message()),
                (Some("store"), "disk full")
            );
            assert_eq!((error.seed(), error.at()), (77, ms(1_500)));
            assert_eq!(
                error.to_string(),
                "seed 77, after 1.5s: \"store\" failed: disk full"
            );
            assert_eq!(failed(&mut sim).to_string(), error.to_string()); // and it stays
        }
    });
}

#[test]
fn a_panic_of_main_names_host_time_and_text() {
    within(|| {
        let mut sim = Simulation::seeded(5);
        sim.host("store", |_| async {
            sleep(ms(3)).await;
            std::panic::resume_unwind(Box::new("deliberate"));
        });
        sim.client("other", pending::<()>());
        let error = failed(&mut sim);
        assert_eq!(
            (error.kind(), error.host()),
            (SimErrorKind::Panicked, Some("store"))
        );
        assert!(error.message().contains("deliberate"), "{error}");
        assert_eq!((error.seed(), error.at()), (5, ms(3)));
    });
}

#[test]
fn a_panic_in_the_function_that_makes_the_program_is_a_panic_of_its_host() {
    within(|| {
        let mut sim = Simulation::seeded(5);
        sim.host("store", |host| {
            if host.restarts() == 1 {
                std::panic::resume_unwind(Box::new("deliberate"));
            }
            pending::<()>()
        });
        sim.at(secs(1), |sim| sim.restart("store"));
        let error = sim.run_for(secs(5)).unwrap_err();
        assert_eq!(
            (error.kind(), error.host()),
            (SimErrorKind::Panicked, Some("store"))
        );
        assert_eq!(error.at(), secs(1));
    });
}

#[test]
fn a_panic_of_a_detached_task_fails_the_simulation_and_one_that_is_joined_does_not() {
    within(|| {
        let mut sim = Simulation::seeded(5);
        sim.client("worker", async {
            let joined =
                loopgroup::spawn_local(async { std::panic::resume_unwind(Box::new("joined")) });
            let joined: Result<(), _> = joined.await;
            assert!(joined.unwrap_err().is_panic());
            sleep(ms(2)).await;
            drop(loopgroup::spawn_local(async {
                sleep(ms(5)).await;
                std::panic::resume_unwind(Box::new("detached"));
            }));
            sleep(HOUR).await;
        });
        let error = failed(&mut sim);
        assert_eq!(
            (error.kind(), error.host()),
            (SimErrorKind::Panicked, Some("worker"))
        );
        assert!(error.message().contains("detached"), "{error}");
        assert_eq!(error.at(), ms(7));
    });
}

#[test]
fn a_panic_of_a_detached_task_in_a_group_of_the_host_fails_the_simulation() {
    within(|| {
        let mut sim = Simulation::seeded(5);
        sim.client("worker", async {
            let group = EventLoopGroup::new(1)?;
            drop(group.spawn(async { std::panic::resume_unwind(Box::new("detached")) }));
            sleep(secs(1)).await;
            io::Result::Ok(())
        });
        let error = failed(&mut sim);
        assert_eq!(
            (error.kind(), error.host()),
            (SimErrorKind::Panicked, Some("worker"))
        );
    });
}

#[test]
fn the_first_failure_wins() {
    within(|| {
        let mut sim = Simulation::seeded(5);
        for (name, after) in [("late", 20), ("early", 10)] {
            sim.client(name, async move {
                sleep(ms(after)).await;
                Err::<(), _>(name)
            });
        }
        let error = failed(&mut sim);
        assert_eq!((error.host(), error.at()), (Some("early"), ms(10)));
        let error = sim.run_for(secs(1)).unwrap_err();
        assert_eq!(error.host(), Some("early"));
    });
}

#[test]
fn a_time_limit_names_what_still_waits_with_its_sockets() {
    within(|| {
        let mut sim = Simulation::builder().seed(9).time_limit(secs(10)).build();
        sim.host("server", |_| echo());
        sim.client("client", async {
            let mut stream = TcpStream::connect("server:7").await?;
            let _clock = UdpSocket::bind("0.0.0.0:123").await?;
            let _own = UnixListener::bind("/run/own")?;
            loop {
                sleep(ms(100)).await;
                if sim::now().elapsed() > HOUR {
                    ask(&mut stream).await?;
                }
            }
            #[allow(unreachable_code)]
            io::Result::Ok(())
        });
        let error = failed(&mut sim);
        assert_eq!(
            (error.kind(), error.host()),
            (SimErrorKind::TimeLimit, None)
        );
        assert!(error.message().contains("10s"), "{error}");
        let text = error.to_string();
        for part in [
            "still waiting",
            "client \"client\": running, 1 loops",
            "host \"server\": running, 1 loops",
            "LISTEN       0.0.0.0:7",
            "ESTABLISHED",
            "10.0.0.1:7",
            "0.0.0.0:123",
            "/run/own",
            // One waits for a timer, and the other one for a connection.
            "loop client-0-0: its next deadline is at 10.0",
            "loop server-0-0: no timer",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(error.at(), secs(10));
        assert!(!error.last_events().is_empty());
    });
}

#[test]
fn a_simulation_in_which_nothing_happens_any_more_is_stuck_and_says_who_waits() {
    within(|| {
        let mut sim = Simulation::seeded(9);
        sim.host("idle", |_| pending::<()>());
        sim.client("done", async {});
        sim.client("reader", async {
            let listener = TcpListener::bind("0.0.0.0:80").await?;
            listener.accept().await.map(drop)
        });
        let error = failed(&mut sim);
        assert_eq!((error.kind(), error.host()), (SimErrorKind::Stuck, None));
        let text = error.to_string();
        assert!(
            text.contains("client \"reader\": running") && text.contains("0.0.0.0:80"),
            "{text}"
        );
        assert!(!text.contains("\"done\""), "{text}");
        assert!(
            text.contains("threads of your own are not waited for"),
            "{text}"
        );
        // What it waited for may still come: the test is outside of the simulation.
        sim.client("late", async {
            TcpStream::connect("reader:80").await.map(drop)
        });
        sim.run().unwrap();
        let error = failed(&mut Simulation::seeded(1));
        assert!(error.message().contains("no client"), "{error}");
    });
}

#[test]
fn wrong_names_panic_with_those_that_there_are() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.host("server", |_| pending::<()>());
        sim.client("client", async {});
        type Call = fn(&mut Simulation);
        let unknown: [Call; 19] = [
            |sim| assert!(sim.address("nobody").is_ipv4()),
            |sim| sim.link("nobody", "server", Link::default()),
            |sim| sim.link("server", "nobody", Link::default()),
            |sim| sim.partition("server", "nobody"),
            |sim| sim.partition("nobody", "server"),
            |sim| sim.partition_one_way("server", "nobody"),
            |sim| sim.partition_one_way("nobody", "server"),
            |sim| sim.repair("server", "nobody"),
            |sim| sim.repair("nobody", "server"),
            |sim| sim.hold("server", "nobody"),
            |sim| sim.hold("nobody", "server"),
            |sim| sim.release("server", "nobody"),
            |sim| sim.release("nobody", "server"),
            |sim| sim.clog("server", "nobody", secs(1)),
            |sim| sim.kill("nobody"),
            |sim| sim.crash("nobody"),
            |sim| sim.restart("nobody"),
            |sim| sim.pause("nobody", secs(1)),
            |sim| sim.skew("nobody", secs(1)),
        ];
        for call in unknown {
            let text = panic_of(|| call(&mut sim));
            assert!(
                text.contains("\"nobody\"") && text.contains("\"server\""),
                "{text}"
            );
            assert!(text.contains("\"client\""), "{text}");
        }
        let taken: [Call; 4] = [
            |sim| sim.host("server", |_| pending::<()>()),
            |sim| sim.host("client", |_| pending::<()>()),
            |sim| sim.client("server", pending::<()>()),
            |sim| sim.client("client", pending::<()>()),
        ];
        for call in taken {
            let text = panic_of(|| call(&mut sim));
            assert!(
                text.contains("\"server\"") && text.contains("\"client\""),
                "{text}"
            );
        }
        for name in ["", "localhost"] {
            let text = panic_of(|| sim.host(name, |_| pending::<()>()));
            assert!(text.contains("name"), "{text}");
            let text = panic_of(|| sim.client(name, pending::<()>()));
            assert!(text.contains("name"), "{text}");
            assert!(!text.contains("another host"), "{text}");
        }
        // None of them has become a client that is waited for.
        sim.run().unwrap();
        sim.host("another", |_| pending::<()>());
        assert_eq!(sim.address("another").to_string(), "10.0.0.3");
    });
}

#[test]
fn names_addresses_and_paths_of_others_are_clear_errors() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let server = "10.0.0.1";
        sim.host("server", |_| async {
            let _listener = UnixListener::bind("/run/server")?;
            echo().await
        });
        assert_eq!(sim.address("server").to_string(), server);
        sim.client("client", async move {
            sleep(ms(1)).await;
            let error = TcpStream::connect("sevrer:7").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains("\"sevrer\""), "{error}");
            let there_are = "there are [\"server\", \"client\"]";
            assert!(error.to_string().contains(there_are), "{error}");
            let error = lookup_host("server").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            for error in [
                TcpListener::bind((server, 80)).await.map(drop).unwrap_err(),
                TcpListener::bind("server:80").await.map(drop).unwrap_err(),
                TcpSocket::new_v4()?
                    .bind((Ipv4Addr::new(10, 0, 0, 1), 80).into())
                    .unwrap_err(),
                UdpSocket::bind((server, 80)).await.map(drop).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
                let text = error.to_string();
                for part in [
                    "10.0.0.1:80",
                    "that is the address of host \"server\"; this host has 10.0.0.2: bind that or 0.0.0.0",
                ] {
                    assert!(text.contains(part), "{part} is not in {text}");
                }
                let source = std::error::Error::source(&error).unwrap();
                let source = source.downcast_ref::<io::Error>().unwrap();
                assert_eq!(source.raw_os_error(), Some(libc::EADDRNOTAVAIL));
            }
            let nobodys = UdpSocket::bind("10.9.9.9:80").await.unwrap_err();
            assert_eq!(nobodys.kind(), ErrorKind::AddrNotAvailable);
            assert!(
                nobodys.to_string().contains("no host has that address"),
                "{nobodys}"
            );
            let taken = UdpSocket::bind("0.0.0.0:81").await?;
            let error = UdpSocket::bind("0.0.0.0:81").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            assert!(!error.to_string().contains("this host has"), "{error}");
            drop(taken);
            let error = UnixStream::connect("/run/server").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            UnixListener::bind("/run/server")?; // each host has paths of its own
            let start = sim::now();
            let error = TcpStream::connect("10.9.9.9:80").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HostUnreachable);
            assert!(sim::now() - start <= secs(3));
            // The loopback address is that of the host itself.
            let error = TcpStream::connect("127.0.0.1:7").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            ask(&mut TcpStream::connect("server:7").await?).await
        });
        sim.run().unwrap();
    });
}

#[test]
fn a_program_that_removes_its_path_first_can_bind_it_in_the_next_life() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.host("server", |_| async {
            let path = "/run/loopgroup-test-socket";
            let _ = std::fs::remove_file(path);
            let _listener = UnixListener::bind(path)?;
            pending::<()>().await;
            io::Result::Ok(())
        });
        sim.at(secs(1), |sim| sim.restart("server"));
        sim.run_for(secs(2)).unwrap();
    });
}

#[test]
fn the_path_of_a_unix_socket_is_gone_in_the_next_life() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        let note = notes.clone();
        sim.host("server", move |_| {
            let note = note.clone();
            async move {
                note.add(format!(
                    "{:?}",
                    kind(UnixStream::connect("/run/socket").await)
                ));
                let listener = UnixListener::bind("/run/socket");
                note.add(format!(
                    "{:?}",
                    listener.as_ref().map(drop).map_err(|one| one.kind())
                ));
                pending::<()>().await;
            }
        });
        sim.run_for(secs(1)).unwrap();
        sim.restart("server");
        sim.run_for(secs(1)).unwrap();
        sim.crash("server");
        sim.restart("server");
        sim.run_for(secs(1)).unwrap();
        let life = ["Err(NotFound)", "Ok(())"];
        assert_eq!(notes.take(), [life; 3].concat());
    });
}

// In the wrong place.

#[test]
fn a_simulation_on_a_loop_is_refused() {
    within(|| {
        let refused = loopgroup::run(async {
            let mut sim = Simulation::seeded(1);
            let texts = [
                panic_of(|| sim.client("client", async {})),
                panic_of(|| sim.host("host", |_| pending::<()>())),
                panic_of(|| sim.run()),
                panic_of(|| sim.run_for(secs(1))),
                panic_of(|| sim.step()),
            ];
            drop(sim);
            texts
        });
        for text in refused.unwrap() {
            assert!(text.contains("event loop"), "{text}");
        }
        let mut sim = Simulation::seeded(1);
        sim.client("client", async {
            let text = panic_of(|| Simulation::seeded(2).run());
            assert!(text.contains("event loop"), "{text}");
        });
        sim.run().unwrap();
    });
}

#[test]
fn a_simulation_that_is_moved_into_a_loop_is_dropped_there_with_all_of_its_tasks() {
    within(|| {
        let counts = Counts::default();
        let mut sim = Simulation::seeded(1);
        let mains = counts.clone();
        sim.host("host", move |_| mains.of(pending::<()>()));
        sim.run_for(secs(1)).unwrap();
        loopgroup::run(async move { drop(sim) }).unwrap();
        assert_eq!((counts.polls(), counts.drops()), (1, 1));
    });
}

#[test]
fn a_socket_of_the_system_does_not_wait_on_a_simulated_loop() {
    within(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut sim = Simulation::seeded(1);
        sim.client("client", async move {
            let mut stream = TcpStream::from_std(ours)?;
            let listener = TcpListener::from_std(listener)?;
            let (_accepted, _) = listener.accept().await?; // what does not wait works
            let (one, _other) = std::os::unix::net::UnixStream::pair()?;
            let pipe = UnixStream::from_std(one)?;
            let udp = UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
            let (one, _peer) = std::os::unix::net::UnixDatagram::pair()?;
            let datagram = UnixDatagram::from_std(one)?;
            let (reader, _writer) = std::os::unix::net::UnixDatagram::pair()?;
            let registered = loopgroup::io::Registered::new(reader)?;
            for error in [
                stream.read(&mut [0; 8]).await.map(drop).unwrap_err(),
                listener.accept().await.map(drop).unwrap_err(),
                pipe.readable().await.unwrap_err(),
                udp.recv(&mut [0; 8]).await.map(drop).unwrap_err(),
                datagram.recv(&mut [0; 8]).await.map(drop).unwrap_err(),
                registered.readable().await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains("simulat"), "{error}");
            }
            io::Result::Ok(())
        });
        sim.run().unwrap();
    });
}

#[test]
fn a_simulated_socket_does_not_wait_on_a_loop_of_the_system() {
    within(|| {
        let (tx, rx) = mpsc::channel();
        let mut sim = Simulation::seeded(1);
        sim.client("client", async move {
            let listener = TcpListener::bind("127.0.0.1:80").await?;
            let _ours = TcpStream::connect("127.0.0.1:80").await?;
            let (accepted, _) = listener.accept().await?;
            let udp = UdpSocket::bind("127.0.0.1:0").await?;
            tx.send((accepted, udp, UnixStream::pair()?)).unwrap();
            pending::<()>().await;
            io::Result::Ok(())
        });
        sim.run_for(secs(1)).unwrap();
        let (accepted, udp, (mut unix, other)) = rx.recv().unwrap();
        loopgroup::run(async move {
            for error in [
                accepted.readable().await.unwrap_err(),
                udp.recv(&mut [0; 8]).await.map(drop).unwrap_err(),
                unix.read(&mut [0; 8]).await.map(drop).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains("simulat"), "{error}");
            }
        })
        .unwrap();
        drop(sim);
        let error = other.try_read(&mut [0; 8]).unwrap_err(); // there is no network any more
        assert_ne!(error.kind(), ErrorKind::WouldBlock, "{error}");
    });
}

/// A socket that waited on its host before the test took it away.
fn registered(sim: &mut Simulation) -> UdpSocket {
    let (tx, rx) = mpsc::channel();
    sim.client("client", async move {
        let udp = UdpSocket::bind("127.0.0.1:0").await?;
        drop(timeout(ms(1), udp.readable()).await);
        tx.send(udp).unwrap();
        io::Result::Ok(())
    });
    sim.run().unwrap();
    rx.recv().unwrap()
}

#[test]
fn a_socket_of_a_simulation_that_is_gone_fails_on_a_loop_of_the_system() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let udp = registered(&mut sim);
        drop(sim);
        let waited = loopgroup::run(async move { timeout(secs(5), udp.readable()).await });
        let error = waited.unwrap().expect("it does not hang").unwrap_err();
        assert_ne!(error.kind(), ErrorKind::WouldBlock, "{error}");
    });
}

#[test]
fn a_socket_of_another_simulation_is_refused() {
    within(|| {
        let (tx, rx) = mpsc::channel();
        let mut sim = Simulation::seeded(1);
        sim.client("client", async move {
            tx.send(UdpSocket::bind("0.0.0.0:9").await).unwrap()
        });
        sim.run().unwrap();
        let theirs = rx.recv().unwrap().unwrap();
        let mut second = Simulation::seeded(2);
        second.client("other", async move {
            let own = UdpSocket::bind("0.0.0.0:9").await?; // has the same number
            let waited = timeout(secs(1), theirs.readable()).await;
            let error = waited.expect("it does not hang").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            own.send_to(b"x", "127.0.0.1:9").await?;
            own.recv(&mut [0]).await?;
            io::Result::Ok(())
        });
        second.run().unwrap();
    });
}

#[test]
fn a_simulated_socket_of_another_host_is_refused() {
    within(|| {
        let moved = Rc::new(RefCell::new(None));
        let (give, take) = (moved.clone(), moved);
        let mut sim = Simulation::seeded(1);
        sim.host("one", move |_| {
            let give = give.clone();
            async move {
                let socket = UdpSocket::bind("0.0.0.0:9").await?;
                give.borrow_mut().replace(socket);
                pending::<()>().await;
                io::Result::Ok(())
            }
        });
        sim.client("other", async move {
            sleep(secs(1)).await;
            let socket = take.borrow_mut().take().unwrap();
            let waited = timeout(secs(1), socket.readable()).await;
            let error = waited.expect("it does not hang").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        });
        sim.run().unwrap();
    });
}

#[test]
fn a_simulated_socket_lends_a_descriptor_and_is_closed_when_it_becomes_one_of_the_system() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.client("client", async {
            let listener = TcpListener::bind("127.0.0.1:80").await?;
            let stream = TcpStream::connect("127.0.0.1:80").await?;
            let (mut theirs, _) = listener.accept().await?;
            let copy = stream.as_fd().try_clone_to_owned()?;
            let real = std::net::TcpStream::from(copy);
            assert_eq!(kind(real.peer_addr()), Err(ErrorKind::NotConnected));
            let refused = stream.try_io(loopgroup::io::Interest::WRITABLE, |one| one.peer_addr());
            assert_eq!(kind(refused), Err(ErrorKind::Unsupported));
            let real = stream.into_std();
            assert_eq!(kind(real.peer_addr()), Err(ErrorKind::NotConnected));
            assert_eq!(theirs.read(&mut [0; 8]).await?, 0); // it was closed
            let real = listener.into_std();
            assert!(kind(TcpStream::connect("127.0.0.1:80").await).is_err());
            drop(real);
            let udp = UdpSocket::bind("127.0.0.1:53").await?;
            udp.as_std().set_broadcast(true)?;
            assert!(udp.broadcast()?);
            drop(udp.into_std());
            UdpSocket::bind("127.0.0.1:53").await?;
            io::Result::Ok(())
        });
        sim.run().unwrap();
    });
}

// Time and faults.

#[test]
fn timers_have_the_clock_of_their_host() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.client("client", async {
            let start = sim::now();
            let mut ticks = interval(ms(250));
            for tick in 0..5 {
                ticks.tick().await;
                assert_eq!(sim::now() - start, ms(250) * tick);
            }
            sleep_until(start + secs(7)).await;
            assert_eq!(sim::now() - start, secs(7));
            assert!(timeout(secs(2), pending::<()>()).await.is_err());
            assert_eq!(sim::now() - start, secs(9));
            assert_eq!(timeout(secs(2), sleep(secs(1))).await, Ok(()));
            let ev = EventLoop::current().unwrap();
            let late = ev.schedule(secs(3), sim::now).await.unwrap();
            assert_eq!(late - start, secs(13));
        });
        assert_eq!(sim.run().unwrap().elapsed(), secs(13));
    });
}

#[test]
fn a_pause_makes_timers_late_while_the_kernel_goes_on() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        let note = notes.clone();
        let paused = note.clone();
        sim.host("server", move |_| {
            let note = paused.clone();
            async move {
                let listener = TcpListener::bind("0.0.0.0:80").await?;
                let start = sim::now();
                sleep(secs(2)).await;
                note.add(format!("2 s are {:?}", sim::now() - start));
                let (mut stream, _) = listener.accept().await?;
                stream.read_exact(&mut [0; 4]).await?;
                note.add(format!("read after {:?}", sim::now() - start));
                pending::<()>().await;
                io::Result::Ok(())
            }
        });
        sim.client("client", async move {
            sleep(secs(3)).await;
            let start = sim::now();
            let mut stream = TcpStream::connect("server:80").await?; // the kernel accepts
            stream.write_all(b"data").await?;
            note.add(format!("connected after {:?}", sim::now() - start));
            sleep(secs(20)).await;
            io::Result::Ok(())
        });
        sim.at(secs(1), |sim| sim.pause("server", secs(9)));
        sim.run().unwrap();
        let seen = ["connected after 2ms", "2 s are 10s", "read after 10s"];
        assert_eq!(notes.take(), seen);
    });
}

#[test]
fn the_longest_of_several_pauses_counts_and_a_new_life_is_not_paused() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        let note = notes.clone();
        sim.host("server", move |host| {
            let note = note.clone();
            async move {
                let start = sim::now();
                sleep(secs(2)).await;
                note.add(format!(
                    "{}: 2 s are {:?}",
                    host.restarts(),
                    sim::now() - start
                ));
                pending::<()>().await;
            }
        });
        sim.at(secs(1), |sim| sim.pause("server", secs(9)));
        sim.at(secs(2), |sim| sim.pause("server", secs(2)));
        sim.at(secs(3), |sim| sim.pause("server", Duration::ZERO));
        sim.run_for(secs(20)).unwrap();
        assert_eq!(notes.take(), ["0: 2 s are 10s"]);
        sim.restart("server");
        sim.pause("server", secs(50));
        sim.run_for(secs(1)).unwrap();
        sim.restart("server");
        sim.run_for(secs(5)).unwrap();
        assert_eq!(notes.take(), ["2: 2 s are 2s"]);
        // The end of the first life's pause does not end that of a later one.
        sim.restart("server");
        sim.run_for(secs(1)).unwrap();
        sim.pause("server", secs(100));
        sim.run_for(secs(90)).unwrap();
        assert_eq!(notes.take(), [""; 0]);
        sim.run_for(secs(20)).unwrap();
        assert_eq!(notes.take(), ["3: 2 s are 101s"]);
    });
}

#[test]
fn a_skew_fires_the_timers_of_its_host_early_and_of_no_other() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        for name in ["ahead", "right"] {
            let note = notes.clone();
            sim.client(name, async move {
                let start = sim::now();
                sleep(secs(10)).await;
                note.add(format!("{name} {:?}", sim::now() - start));
                sleep(secs(10)).await; // once only
                note.add(format!("{name} {:?}", sim::now() - start));
            });
        }
        sim.at(secs(4), |sim| sim.skew("ahead", secs(5)));
        let report = sim.run().unwrap();
        assert_eq!(report.elapsed(), secs(20));
        assert_eq!(
            notes.take(),
            ["ahead 10s", "right 10s", "ahead 20s", "right 20s"]
        );
        let mut sim = Simulation::seeded(1);
        let note = notes.clone();
        sim.host("ahead", move |_| {
            let note = note.clone();
            async move {
                let start = sim::now();
                sleep(secs(10)).await;
                note.add(format!("{:?}", sim::now() - start));
            }
        });
        sim.run_for(secs(1)).unwrap();
        sim.skew("ahead", secs(60)); // past the timer
        sim.run_for(Duration::ZERO).unwrap();
        assert_eq!(notes.take(), ["61s"]);
    });
}

/// A host that notes when the datagrams of another arrive, which sends one each second, with its number.
fn postmen(sim: &mut Simulation, notes: &Notes) {
    let note = notes.clone();
    sim.host("from", |_| async {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        for number in 1..=8_u8 {
            sleep(secs(1)).await;
            socket.send_to(&[number], "to:9").await?;
        }
        pending::<()>().await;
        io::Result::Ok(())
    });
    sim.host("to", move |_| {
        let note = note.clone();
        async move {
            let socket = UdpSocket::bind("0.0.0.0:9").await?;
            let start = sim::now();
            loop {
                let mut number = [0];
                socket.recv_from(&mut number).await?;
                note.add(format!(
                    "{} at {}",
                    number[0],
                    (sim::now() - start).as_millis()
                ));
            }
            #[allow(unreachable_code)]
            io::Result::Ok(())
        }
    });
}

#[test]
fn what_is_clogged_comes_later_and_all_of_it_in_order() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        postmen(&mut sim, &notes);
        sim.at(ms(1_500), |sim| sim.clog("from", "to", secs(3)));
        sim.at(ms(2_500), |sim| sim.clog("from", "to", secs(1))); // the longer one counts
        sim.at(ms(6_500), |sim| sim.clog("to", "from", secs(9))); // the other way
        sim.run_for(secs(20)).unwrap();
        let seen = [
            "1 at 1001",
            "2 at 4500",
            "3 at 4500",
            "4 at 4500",
            "5 at 5001",
            "6 at 6001",
            "7 at 7001",
            "8 at 8001",
        ];
        assert_eq!(notes.take(), seen);
    });
}

#[test]
fn what_is_held_comes_at_the_release_and_what_is_cut_off_never() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        postmen(&mut sim, &notes);
        sim.at(ms(1_500), |sim| sim.hold("to", "from")); // both ways
        sim.at(ms(3_500), |sim| sim.release("from", "to"));
        sim.at(ms(4_500), |sim| sim.partition_one_way("from", "to"));
        sim.at(ms(5_500), |sim| sim.repair("to", "from"));
        sim.at(ms(6_000), |sim| sim.partition_one_way("to", "from")); // the other way
        sim.at(ms(7_000), |sim| sim.hold("from", "to"));
        sim.at(ms(8_500), |sim| sim.partition("from", "to")); // loses what is under way
        sim.at(ms(8_600), |sim| sim.repair("from", "to"));
        sim.at(ms(8_700), |sim| sim.release("from", "to"));
        sim.run_for(secs(20)).unwrap();
        let seen = [
            "1 at 1001",
            "2 at 3500",
            "3 at 3500",
            "4 at 4001",
            "6 at 6001",
        ];
        assert_eq!(notes.take(), seen);
    });
}

#[test]
fn repair_all_ends_partitions_and_holds() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        postmen(&mut sim, &notes);
        sim.at(ms(500), |sim| sim.partition("from", "to"));
        sim.at(ms(1_500), |sim| sim.repair_all());
        sim.at(ms(2_500), |sim| sim.hold("from", "to"));
        sim.at(ms(4_500), |sim| sim.repair_all());
        sim.run_for(ms(6_500)).unwrap();
        let seen = [
            "2 at 2001",
            "3 at 4500",
            "4 at 4500",
            "5 at 5001",
            "6 at 6001",
        ];
        assert_eq!(notes.take(), seen);
    });
}

#[test]
fn links_are_as_they_were_set_before_and_during_the_run() {
    within(|| {
        let slow = Link::default().latency(ms(100));
        let mut sim = Simulation::builder().link(slow).build();
        let notes = Notes::default();
        sim.host("server", |_| echo());
        let note = notes.clone();
        sim.client("client", async move {
            let mut stream = TcpStream::connect("server:7").await?;
            for second in 1..=4 {
                let start = sim::now();
                ask(&mut stream).await?;
                note.add(format!("{:?}", sim::now() - start));
                sleep_until(start + secs(second)).await;
            }
            let mut own = TcpStream::connect("client:7").await;
            assert_eq!(
                kind(own.as_mut().map(drop).map_err(|_| ErrorKind::Other.into())),
                Err(ErrorKind::Other)
            );
            io::Result::Ok(())
        });
        sim.at(ms(700), |sim| {
            sim.link("client", "server", Link::default().latency(ms(7)))
        });
        sim.at(secs(3), |sim| {
            sim.link("server", "client", Link::default().latency(ms(300)))
        });
        sim.run().unwrap();
        assert_eq!(notes.take(), ["200ms", "14ms", "600ms", "600ms"]);
    });
}

#[test]
fn a_link_with_loss_still_delivers_a_stream_in_order_and_one_with_little_bandwidth_takes_its_time()
{
    within(|| {
        for seed in 0..10 {
            let lossy = Link::default()
                .loss(0.3)
                .jitter(ms(5))
                .duplicate(0.2)
                .reorder(0.2);
            let mut sim = Simulation::builder().seed(seed).link(lossy).build();
            sim.host("server", |_| echo());
            sim.client("client", async {
                let mut stream = TcpStream::connect("server:7").await?;
                for number in 0..50_u8 {
                    stream.write_all(&[number; 40]).await?;
                    let mut answer = [0; 40];
                    stream.read_exact(&mut answer).await?;
                    assert_eq!(answer, [number; 40]);
                }
                io::Result::Ok(())
            });
            sim.run().unwrap();
        }
        let narrow = Link::default().bandwidth(10_000);
        let mut sim = Simulation::builder().link(narrow).build();
        sim.host("server", |_| echo());
        sim.client("client", async {
            let (mut reader, mut writer) = TcpStream::connect("server:7").await?.into_split();
            let writes = loopgroup::spawn_local(async move {
                writer.write_all(&[1; 100_000]).await?;
                writer.close().await
            });
            let mut all = Vec::new();
            reader.read_to_end(&mut all).await?;
            assert_eq!(all.len(), 100_000);
            writes.await.unwrap()
        });
        let report = sim.run().unwrap();
        assert!((secs(10)..secs(17)).contains(&report.elapsed()), "{report}");
    });
}

#[test]
fn run_for_takes_exactly_its_time_and_plans_of_the_past_are_done_at_once() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let notes = Notes::default();
        assert_eq!(sim.run_for(secs(1)).unwrap().elapsed(), secs(1)); // with nothing in it
        sim.run_for(Duration::ZERO).unwrap();
        let note = notes.clone();
        sim.host("host", move |_| {
            let note = note.clone();
            async move {
                loop {
                    sleep(ms(400)).await;
                    note.add("tick");
                }
            }
        });
        assert_eq!(sim.run_for(secs(1)).unwrap().elapsed(), secs(2));
        assert_eq!(notes.take().len(), 2);
        let note = notes.clone();
        sim.at(secs(1), move |sim| {
            let inner = note.clone();
            note.add(format!("past at {:?}", sim.elapsed()));
            sim.at(Duration::ZERO, move |sim| {
                inner.add(format!("inner at {:?}", sim.elapsed()))
            });
        });
        let note = notes.clone();
        sim.at(secs(3), move |sim| {
            note.add(format!("planned at {:?}", sim.elapsed()))
        });
        sim.run_for(ms(100)).unwrap();
        assert_eq!(notes.take(), ["past at 2s", "inner at 2s"]);
        sim.run_for(ms(900)).unwrap();
        assert_eq!(notes.take(), ["tick", "tick", "planned at 3s", "tick"]);
        assert_eq!(sim.elapsed(), secs(3));
    });
}

#[test]
fn steps_end_when_nothing_will_happen_any_more() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        assert!(!sim.step());
        let (runs, ran) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let count = runs.clone();
        sim.client("client", async move {
            sleep(secs(1)).await;
            count.set(1);
        });
        let count = ran.clone();
        sim.at(secs(5), move |_| count.set(1));
        let mut steps = 0;
        while sim.step() {
            steps += 1;
            assert!(steps < 1_000);
        }
        assert_eq!((runs.get(), ran.get(), sim.elapsed()), (1, 1, secs(5)));
        assert!(!sim.step());
        sim.run().unwrap();
    });
}

#[test]
fn what_a_test_does_from_outside_wakes_the_simulation() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let (tx, rx) = oneshot::channel::<u32>();
        let got = Rc::new(Cell::new(0));
        let note = got.clone();
        let handle = Rc::new(RefCell::new(None));
        let give = handle.clone();
        sim.client("client", async move {
            *give.borrow_mut() = EventLoop::current();
            note.set(rx.await.unwrap());
        });
        sim.run_for(secs(1)).unwrap();
        assert!(!sim.step());
        tx.send(7).unwrap();
        assert!(sim.step()); // the channel has woken the task
        sim.run().unwrap();
        assert_eq!(got.get(), 7);
        let ev = handle.borrow_mut().take().unwrap();
        let task = ev.spawn(async { 9 });
        assert!(sim.step());
        while sim.step() {}
        assert!(task.is_finished());
    });
}

#[test]
fn a_task_that_wakes_itself_for_ever_does_not_stop_time() {
    within(|| {
        let mut sim = Simulation::builder().time_limit(secs(10)).build();
        sim.host("busy", |_| restless());
        sim.client("client", async { sleep(secs(1)).await });
        assert_eq!(sim.run().unwrap().elapsed(), secs(1));
        sim.client("endless", pending::<()>());
        let error = failed(&mut sim);
        assert_eq!(error.kind(), SimErrorKind::TimeLimit);
        assert!(
            error
                .message()
                .contains("host \"busy\" never waits: await something"),
            "{error}"
        );
        assert!(!error.message().contains("endless"), "{error}");
        assert!(
            error.to_string().contains("it has something to run"),
            "{error}"
        );
        // Not of hosts that have much to do, and then wait.
        let mut sim = Simulation::builder().time_limit(secs(10)).build();
        sim.client("diligent", async {
            for _ in 0..10_000 {
                loopgroup::yield_now().await;
            }
            pending::<()>().await
        });
        sim.host("other", |_| sleep(HOUR));
        let error = failed(&mut sim);
        assert!(!error.message().contains("never waits"), "{error}");
    });
}

/// A host that sleeps in real time `times` times, each time in a poll of its own.
#[cfg(target_os = "linux")]
fn sleeper(millis: u64, times: u32) -> Simulation {
    let mut sim = Simulation::seeded(5);
    sim.host("sleeper", move |_| async move {
        // Also in a group that the host has built, and in a task.
        let workers = loopgroup::EventLoopGroup::new(1)?;
        let task = workers.spawn(async move {
            for _ in 0..times {
                std::thread::sleep(ms(millis));
                sleep(ms(1)).await;
            }
        });
        task.await.map_err(io::Error::other)
    });
    sim.client("client", sleep(secs(10)));
    sim
}

#[cfg(target_os = "linux")]
#[test]
fn a_task_that_sleeps_in_real_time_is_an_error_that_says_what_to_do() {
    within(|| {
        for (millis, times) in [(200, 8), (1_200, 1)] {
            let error = failed(&mut sleeper(millis, times));
            assert_eq!(
                (error.kind(), error.host()),
                (SimErrorKind::RealTime, Some("sleeper"))
            );
            let text = error.to_string();
            for part in ["a task from tests/sim/hosts.rs:", "loopgroup::time::sleep"] {
                assert!(text.contains(part), "{part} is not in\n{text}");
            }
        }
        let mut sim = Simulation::seeded(5);
        sim.client("client", async { std::thread::sleep(ms(1_200)) });
        let error = failed(&mut sim);
        assert!(
            error.message().starts_with("the main future waited"),
            "{error}"
        );
        // Little of it is none of a simulation's business, and neither is what takes long because it
        // computes.
        sleeper(5, 20).run().unwrap();
        let mut sim = Simulation::seeded(5);
        sim.client("busy", async {
            let start = std::time::Instant::now();
            while start.elapsed() < ms(1_000) {}
        });
        sim.run().unwrap();
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_poll_that_does_not_return_is_told_while_it_does_not() {
    const TEST: &str = "a_poll_that_does_not_return_is_told_while_it_does_not";
    if crate::util::is_child() {
        // The line comes while the test is still in its only run: the process ends before it does.
        drop(sleeper(HOUR.as_millis() as u64, 1).run());
        unreachable!("it sleeps");
    }
    within(|| {
        let line = first_line_of_child(TEST);
        for part in [
            "simulation of seed 5, host \"sleeper\": loop 0 ",
            "from tests/sim/hosts.rs:",
            "blocked in a system call; virtual time stands still meanwhile: use loopgroup::time::sleep",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    });
}

/// The first line about a simulation that a test says in a process of its own, which is then ended.
#[cfg(target_os = "linux")]
fn first_line_of_child(test: &str) -> String {
    use std::io::BufRead;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("hosts::{test}"), "--nocapture"])
        .env("LOOPGROUP_CHILD", "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = io::BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines
        .map(Result::unwrap)
        .find(|line| line.contains("simulation of seed"));
    child.kill().unwrap();
    child.wait().unwrap();
    line.expect("a line, before the end")
}

#[test]
fn times_that_never_come_overflow_nothing() {
    within(|| {
        let never = Duration::MAX;
        let mut sim = Simulation::builder().time_limit(secs(10)).build();
        sim.host("sleeper", |_| sleep(Duration::MAX));
        sim.host("paused", |_| echo());
        sim.host("far", |_| echo());
        sim.host("clogged", |_| echo());
        for server in ["paused:7", "far:7", "clogged:7"] {
            sim.client(server, async move {
                sleep(secs(1)).await;
                let asked = async { ask(&mut TcpStream::connect(server).await?).await };
                assert!(!matches!(timeout(secs(5), asked).await, Ok(Ok(()))));
                let socket = UdpSocket::bind("0.0.0.0:0").await?;
                socket.send_to(b"x", server).await.map(drop)
            });
        }
        sim.pause("paused", never);
        let far = Link::default()
            .latency(never)
            .jitter(never)
            .reorder(1.0)
            .duplicate(1.0);
        sim.link("far", "far:7", far);
        sim.clog("clogged:7", "clogged", never);
        sim.at(never, |_| {});
        sim.run().unwrap();
        sim.skew("sleeper", never);
        sim.run_for(secs(1)).unwrap();
        assert_eq!(sim.elapsed(), secs(7));
        sim.run_for(never).unwrap();
        let mut steps = 0;
        while sim.step() {
            steps += 1;
            assert!(steps < 10_000, "it ends");
        }
    });
}

#[test]
fn the_smallest_buffers_and_the_worst_links_still_work_or_time_out() {
    within(|| {
        for (link, works) in [
            (Link::default().buffer(0), true),
            (
                Link::default().buffer(3).bandwidth(100).jitter(ms(50)),
                true,
            ),
            (Link::default().latency(Duration::ZERO), true),
            (Link::default().bandwidth(0), true),
            (Link::default().loss(1.0), false),
            (Link::default().loss(7.0), false),
        ] {
            let mut sim = Simulation::builder().seed(4).link(link.clone()).build();
            sim.host("server", |_| echo());
            sim.client("client", async move {
                let stream = TcpStream::connect("server:7").await;
                if !works {
                    assert_eq!(kind(stream), Err(ErrorKind::TimedOut));
                    return Ok(());
                }
                let (mut reader, mut writer) = stream?.into_split();
                let text: Vec<u8> = (0..100).collect();
                let sent = text.clone();
                let writes = loopgroup::spawn_local(async move {
                    writer.write_all(&sent).await?;
                    writer.close().await
                });
                let mut answer = Vec::new();
                reader.read_to_end(&mut answer).await?;
                assert_eq!(answer, text);
                writes.await.unwrap()
            });
            sim.run()
                .unwrap_or_else(|error| panic!("{link:?}: {error}"));
        }
    });
}

#[test]
fn a_stream_over_a_partition_of_one_way_loses_and_repeats_nothing() {
    within(|| {
        for (from, to) in [("client", "server"), ("server", "client")] {
            let mut sim = Simulation::seeded(1);
            sim.host("server", |_| echo());
            let start = sim.now();
            sim.client("client", async move {
                let mut stream = TcpStream::connect("server:7").await?;
                sleep_until(start + secs(2)).await;
                for number in 0..20_u8 {
                    stream.write_all(&[number; 30]).await?;
                    let mut answer = [0; 30];
                    stream.read_exact(&mut answer).await?;
                    assert_eq!(answer, [number; 30]);
                }
                assert!(sim::now() - start > secs(11));
                assert!(timeout(secs(1), stream.read(&mut [0])).await.is_err());
                io::Result::Ok(())
            });
            sim.at(secs(1), move |sim| sim.partition_one_way(from, to));
            sim.at(secs(11), |sim| sim.repair("client", "server"));
            sim.run().unwrap();
        }
    });
}

#[test]
fn a_host_that_is_cut_off_still_reaches_itself() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        sim.host("server", |_| pending::<()>());
        sim.client("client", async {
            sleep(secs(1)).await;
            let _echo = loopgroup::spawn_local(echo());
            yield_now().await;
            for own in ["127.0.0.1:7", "localhost:7", "client:7"] {
                ask(&mut TcpStream::connect(own).await?).await?;
            }
            let _listener = UnixListener::bind("/run/own")?;
            UnixStream::connect("/run/own").await.map(drop)
        });
        sim.partition("server", "client");
        sim.partition("client", "client");
        sim.hold("client", "client");
        sim.clog("client", "client", HOUR);
        assert!(sim.run().unwrap().elapsed() < secs(2));
    });
}

// Ends.

#[test]
fn a_dropped_simulation_drops_all_futures_and_polls_none() {
    within(|| {
        let counts = Counts::default();
        let drops = DropCount::new();
        let mut sim = Simulation::builder().loops(2).build();
        let (mains, dropped) = (counts.clone(), drops.clone());
        sim.host("server", move |_| {
            let tasks = mains.clone();
            let dropped = dropped.clone();
            mains.of(async move {
                let listener = TcpListener::bind("0.0.0.0:80").await?;
                let workers = EventLoopGroup::new(2)?;
                for ev in workers.loops() {
                    let guard = dropped.guard();
                    drop(ev.spawn(async move {
                        let _guard = guard;
                        pending::<()>().await;
                    }));
                }
                let _server = Server::new("0.0.0.0:81")?
                    .workers(&workers)
                    .serve(|_, _| pending::<()>())?;
                loop {
                    let (mut stream, _) = listener.accept().await?;
                    drop(loopgroup::spawn_local(tasks.of(async move {
                        while stream.read(&mut [0; 8]).await.is_ok() {}
                    })));
                }
                #[allow(unreachable_code)]
                io::Result::Ok(())
            })
        });
        for client in ["one", "two", "three"] {
            let task = counts.clone();
            sim.client(
                client,
                counts.of(async move {
                    let mut stream = TcpStream::connect("server:80").await?;
                    drop(loopgroup::spawn_local(task.of(async {
                        loop {
                            sleep(ms(1)).await;
                        }
                    })));
                    stream.write_all(b"x").await?;
                    pending::<()>().await;
                    io::Result::Ok(())
                }),
            );
        }
        sim.run_for(secs(1)).unwrap();
        let polls = counts.polls();
        assert!(polls > 3_000);
        drop(sim);
        assert_eq!(
            (counts.polls(), counts.drops(), drops.get()),
            (polls, 10, 2)
        );
    });
}

#[test]
fn destructors_of_a_dropped_simulation_may_use_whatever_they_like() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let ran = Rc::new(Cell::new(0));
        let count = ran.clone();
        sim.client("client", async move {
            let stream = UnixStream::pair()?.0;
            let _guard = OnDrop::new(move || {
                let _ = stream.try_write(b"bye");
                let _ = stream.shutdown(Shutdown::Both);
                let _ = UnixStream::pair();
                let _ = EventLoopGroup::new(1);
                drop(sleep(secs(1)));
                drop(loopgroup::spawn_local(async {}));
                count.set(count.get() + 1);
            });
            pending::<()>().await;
            io::Result::Ok(())
        });
        sim.run_for(secs(1)).unwrap();
        drop(sim);
        assert_eq!(ran.get(), 1);
    });
}

#[test]
fn a_destructor_that_panics_in_a_kill_spares_the_others() {
    within(|| {
        let mut sim = Simulation::seeded(1);
        let drops = DropCount::new();
        let dropped = drops.clone();
        sim.host("server", move |_| {
            let dropped = dropped.clone();
            async move {
                for number in 0..4 {
                    let guard = dropped.guard();
                    drop(loopgroup::spawn_local(async move {
                        let _guard = guard;
                        let _panics = OnDrop::new(move || {
                            if number % 2 == 0 {
                                std::panic::resume_unwind(Box::new("deliberate"));
                            }
                        });
                        pending::<()>().await;
                    }));
                }
                pending::<()>().await;
            }
        });
        sim.run_for(secs(1)).unwrap();
        sim.kill("server");
        assert_eq!(drops.get(), 4);
        let _ = sim.run_for(secs(1)); // whether that is a failure is not promised
    });
}

#[test]
fn two_simulations_on_one_thread_do_not_meet() {
    within(|| {
        let notes = Notes::default();
        let mut sims = [1, 2].map(|number| {
            let mut sim = Simulation::seeded(number);
            sim.host("server", |_| echo());
            let note = notes.clone();
            sim.client("client", async move {
                let start = sim::now();
                let mut stream = TcpStream::connect("server:7").await?;
                ask(&mut stream).await?;
                sleep(secs(number)).await;
                note.add(format!(
                    "{number} after {:?}",
                    (sim::now() - start).as_secs()
                ));
                io::Result::Ok(())
            });
            sim
        });
        while sims
            .iter_mut()
            .map(|sim| sim.step())
            .filter(|stepped| *stepped)
            .count()
            > 0
        {}
        for (sim, number) in sims.iter_mut().zip(1..) {
            assert!(sim.run().unwrap().elapsed() >= secs(number));
        }
        let [one, mut two] = sims;
        drop(one);
        two.client("late", async {
            ask(&mut TcpStream::connect("server:7").await?).await
        });
        two.run().unwrap();
        assert_eq!(notes.take(), ["1 after 1", "2 after 2"]);
    });
}

#[test]
fn simulations_on_several_threads_have_the_traces_of_their_seeds() {
    within(|| {
        let run = |seed| {
            let mut sim = Simulation::builder().seed(seed).loops(2).build();
            sim.host("server", |_| echo());
            for client in ["one", "two"] {
                sim.client(client, async {
                    let mut stream = TcpStream::connect("server:7").await?;
                    for _ in 0..50 {
                        ask(&mut stream).await?;
                        sleep(ms(sim::random() % 10)).await;
                    }
                    io::Result::Ok(())
                });
            }
            sim.run().unwrap().trace()
        };
        let alone: Vec<_> = (0..8).map(run).collect();
        let threads: Vec<_> = (0..8)
            .map(|seed| std::thread::spawn(move || run(seed)))
            .collect();
        let together: Vec<_> = threads.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(alone, together);
        let mut different = alone.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 8);
    });
}

#[test]
fn a_million_idle_seconds_cost_nothing_and_hosts_can_come_at_any_time() {
    within(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut sim = Simulation::builder().time_limit(Duration::MAX).build();
        sim.client("first", sleep(secs(1_000_000)));
        let note = order.clone();
        sim.at(secs(999_999), move |sim| {
            sim.client("second", async move {
                sleep(secs(10)).await;
                note.lock().unwrap().push("second");
            });
        });
        let report = sim.run().unwrap();
        assert_eq!(report.elapsed(), secs(1_000_009));
        assert!(report.turns() < 100, "{report}");
        assert_eq!(*order.lock().unwrap(), ["second"]);
    });
}
