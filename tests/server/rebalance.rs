//! A server that rebalances moves connections away from busy loops, and nothing else.
//!
//! `LOOPGROUP_ROUNDS` multiplies how often two heavy connections meet and are watched.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream as Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Rebalance, ServerHandle, TcpStream, Turn};
use loopgroup::{EventLoop, EventLoopGroup, GroupView, block_on};

use crate::util::{LONG, eventually, group, ms, progress, setting, within};
use crate::{connect, serve_on};

/// A group whose chooser places everything on the first loop.
fn unlucky(loops: usize) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(loops);
    builder.chooser(|_: &GroupView<'_>| 0).build().unwrap()
}

/// Works for a millisecond, and answers with the index of its loop.
async fn work(mut stream: &TcpStream, _: &mut ()) -> io::Result<Turn> {
    let mut byte = [0];
    if stream.read(&mut byte).await? == 0 {
        return Ok(Turn::Close);
    }
    let end = Instant::now() + ms(1);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
    let here = EventLoop::current().unwrap().index() as u8;
    stream.write_all(&[here]).await?;
    Ok(Turn::Next)
}

/// How often the balancer has looked; nothing else has a timer on its loop.
fn looks(workers: &EventLoopGroup) -> u64 {
    workers.loops()[0].metrics().timers_fired()
}

fn quickly() -> Rebalance {
    let rule = Rebalance::by_utilization().period(ms(50));
    rule.rest(ms(500))
}

/// A client that asks all the time, and where it was last answered.
struct Hot {
    home: Arc<AtomicUsize>,
    answers: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hot {
    fn start(server: &ServerHandle) -> Hot {
        let mut client: Client = connect(server);
        let (home, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (told, counted, stopping) =
            (Arc::clone(&home), Arc::clone(&answers), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                client.write_all(b"?").unwrap();
                let mut answer = [0];
                client.read_exact(&mut answer).unwrap();
                told.store(answer[0].into(), Ordering::Relaxed);
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Hot {
            home,
            answers,
            stop,
            thread: Some(thread),
        }
    }

    fn home(&self) -> usize {
        self.home.load(Ordering::Relaxed)
    }

    fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Hot {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn hot_connections_that_met_on_one_loop_are_served_by_both() {
    within(|| {
        let workers = unlucky(2);
        let server = serve_on(&workers)
            .rebalance(quickly())
            .serve_turns(|_, _| (), work)
            .unwrap();
        let clients: Vec<_> = (0..8).map(|_| Hot::start(&server)).collect();
        // How many move depends on how many it takes to keep the other loop busy.
        eventually("both loops serve some of them", || {
            let first = clients.iter().filter(|one| one.home() == 0).count();
            (1..8).contains(&first)
        });
        assert!(server.moves() >= 1 && server.move_requests() >= server.moves());
        drop(clients);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (8, 8), "{report}");
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn two_heavy_connections_that_met_on_one_of_three_loops_are_parted_and_stay_apart() {
    const PERIODS: u64 = 8;
    within(|| {
        let (rounds, progress) = (
            10 * setting("LOOPGROUP_ROUNDS").unwrap_or(1),
            progress("round"),
        );
        let mut together = Vec::new();
        for round in 1..=rounds {
            let workers = unlucky(3);
            let server = serve_on(&workers)
                .rebalance(quickly())
                .serve_turns(|_, _| (), work)
                .unwrap();
            let _idle: Vec<_> = (0..16).map(|_| connect(&server)).collect();
            let heavy = [Hot::start(&server), Hot::start(&server)];
            let are_apart = || heavy[0].home() != heavy[1].home();
            eventually("they are apart", are_apart);
            let parted = looks(&workers);
            while looks(&workers) < parted + PERIODS {
                assert!(are_apart(), "round {round}: they have met again");
                thread::yield_now();
            }
            drop(heavy);
            server.drain();
            let report = block_on(server);
            let ends = (report.accepted(), report.completed());
            assert_eq!(ends, (18, 18), "{report}");
            assert!(workers.drain(LONG).wait().is_clean());
            together.push(parted);
            progress.tick();
            if round % 100 == 0 {
                eprintln!("{round} of {rounds} rounds");
            }
        }
        together.sort_unstable();
        let (half, most) = (together[together.len() / 2], together[together.len() - 1]);
        eprintln!("of {rounds} pairs half are apart after {half} looks, and all after {most}");
    });
}

#[test]
fn under_a_steady_load_moves_come_to_an_end_although_connections_need_not_rest() {
    within(|| {
        let workers = unlucky(2);
        let rule = quickly().rest(Duration::ZERO);
        let server = serve_on(&workers)
            .rebalance(rule)
            .serve_turns(|_, _| (), work)
            .unwrap();
        let clients: Vec<_> = (0..8).map(|_| Hot::start(&server)).collect();
        eventually("some have moved", || server.moves() > 0);
        let pass = |periods| {
            let until = looks(&workers) + periods;
            eventually("so many periods pass", || looks(&workers) >= until);
        };
        pass(10);
        let even = server.moves();
        pass(40);
        // At four per period there could be 160. The load is steady, but what else runs here is not.
        let later = server.move_requests() - even;
        eprintln!("{even} moves until the loops were even, {later} in 40 periods after that");
        assert!(later <= 8, "{later} moves in 40 periods");
        drop(clients);
        server.stop();
        assert_eq!(block_on(server).completed(), 8);
    });
}

#[test]
fn a_paused_loop_gets_no_connection() {
    within(|| {
        let workers = unlucky(2);
        workers.loops()[1].pause();
        let server = serve_on(&workers)
            .rebalance(quickly())
            .serve_turns(|_, _| (), work)
            .unwrap();
        let clients: Vec<_> = (0..4).map(|_| Hot::start(&server)).collect();
        eventually("there was time for several periods", || {
            clients.iter().all(|one| one.answers() > 100)
        });
        assert_eq!((server.moves(), server.move_requests()), (0, 0));
        workers.loops()[1].resume();
        eventually("it gets some now", || {
            clients.iter().any(|one| one.home() == 1)
        });
        drop(clients);
        server.stop();
        assert_eq!(block_on(server).completed(), 4);
    });
}

#[test]
fn idle_connections_stay_where_they_are() {
    within(|| {
        let workers = unlucky(2);
        let rule = Rebalance::by_utilization().period(ms(2));
        let server = serve_on(&workers)
            .rebalance(rule)
            .serve_turns(|_, _| (), work)
            .unwrap();
        let _idle: Vec<_> = (0..32).map(|_| connect(&server)).collect();
        eventually("all are there", || server.accepted() == 32);
        let fired = || workers.loops()[0].metrics().timers_fired();
        let before = fired();
        eventually("it has looked often", || fired() > before + 100);
        assert_eq!((server.moves(), server.move_requests()), (0, 0));
        server.drain();
        assert_eq!(block_on(server).completed(), 32);
    });
}

#[test]
fn the_balancer_ends_with_its_server_and_with_its_groups() {
    within(|| {
        let every = Rebalance::by_utilization().period(Duration::from_secs(3600));
        let start = || {
            let (boss, workers) = (group(1), group(2));
            let server = serve_on(&workers).boss(&boss).rebalance(every.clone());
            let server = server.serve_turns(|_, _| (), work).unwrap();
            eventually("acceptor and balancer are there", || {
                boss.loops()[0].live_tasks() == 2
            });
            (boss, workers, server)
        };
        let (boss, workers, server) = start();
        server.stop();
        drop(block_on(server));
        eventually("both are gone", || boss.loops()[0].live_tasks() == 0);
        assert!(workers.drain(LONG).wait().is_clean());
        // In whatever order the groups end.
        for boss_first in [true, false] {
            let (boss, workers, server) = start();
            let (one, other) = match boss_first {
                true => (boss, workers),
                false => (workers, boss),
            };
            assert!(one.drain(LONG).wait().is_clean());
            assert_eq!(block_on(server).accepted(), 0);
            assert!(other.drain(LONG).wait().is_clean());
        }
        let (boss, workers, server) = start();
        drop((boss, workers)); // requests the shutdown of both
        assert_eq!(block_on(server).accepted(), 0);
    });
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    within(|| {
        let workers = group(2);
        let rule = Rebalance::by_utilization;
        let turns = |rule| {
            let server = serve_on(&workers).rebalance(rule);
            server.serve_turns(|_, _| (), work).map(drop).unwrap_err()
        };
        let handlers = serve_on(&workers).rebalance(rule());
        let handlers = handlers.serve(|_, _| async {}).map(drop).unwrap_err();
        for (error, word) in [
            (turns(rule().period(Duration::ZERO)), "period"),
            (turns(rule().max_moves(0)), "max_moves"),
            (handlers, "serve_turns"),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(word), "{error}");
        }
    });
}
