//! Servers, drains and moves of the production code under faults: the books are exact in every seed.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::EventLoopGroup;
use loopgroup::net::{Rebalance, Server, TcpStream, Turn};
use loopgroup::testing::sim::{self, FaultKind, Faults, Simulation};
use loopgroup::time::{sleep, timeout};

use crate::util::{setting, within_for};

fn seeds() -> u64 {
    setting("LOOPGROUP_SIM_SEEDS").unwrap_or(100)
}

/// Sends numbered requests, one at a time, each until it is answered; connects again when it must.
async fn ask(server: &'static str, requests: u32) -> io::Result<()> {
    let mut stream = None;
    for number in 0..requests {
        loop {
            let asked = timeout(
                Duration::from_secs(2),
                ask_once(&mut stream, server, number),
            );
            match asked.await {
                Ok(Ok(())) => break,
                Ok(Err(_)) | Err(_) => {
                    stream = None;
                    sim::sometimes("a request is sent again", true);
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
    Ok(())
}

async fn ask_once(stream: &mut Option<TcpStream>, server: &str, number: u32) -> io::Result<()> {
    if stream.is_none() {
        *stream = Some(TcpStream::connect(server).await?);
    }
    let stream = stream.as_mut().expect("just connected");
    stream.write_all(&number.to_be_bytes()).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    if answer != number.to_be_bytes() {
        return Err(io::Error::other("another answer"));
    }
    Ok(())
}

async fn echo(mut stream: TcpStream) {
    let mut request = [0; 4];
    while stream.read_exact(&mut request).await.is_ok() {
        if stream.write_all(&request).await.is_err() {
            return;
        }
    }
}

/// An echo server with two workers and a boss of its own.
async fn serve() -> io::Result<()> {
    let (boss, workers) = (EventLoopGroup::new(1)?, EventLoopGroup::new(2)?);
    let server = Server::new("0.0.0.0:7")?;
    let server = server
        .boss(&boss)
        .workers(&workers)
        .serve(|stream, _| echo(stream))?;
    server.await;
    Ok(())
}

fn echoes_under_chaos(sim: &mut Simulation) {
    sim.host("server", |_| serve());
    for client in ["one", "two", "three"] {
        sim.client(client, ask("server:7", 200));
    }
    sim.faults(Faults::chaos().until(Duration::from_secs(20)));
}

#[test]
fn every_request_is_answered_in_the_end_whatever_the_faults() {
    within_for(Duration::from_secs(600), || {
        let report = sim::search(0..seeds(), echoes_under_chaos);
        assert!(report.reached("a request is sent again") > 0, "{report}");
    });
}

#[test]
fn a_system_under_chaos_repeats_exactly() {
    within_for(Duration::from_secs(600), || {
        for seed in 0..2 * seeds() {
            sim::check(seed, echoes_under_chaos);
        }
    });
}

#[test]
fn a_drain_under_faults_has_exact_books() {
    within_for(Duration::from_secs(600), || {
        sim::search(0..seeds(), |sim| {
            sim.host("clients", |_| async {
                for _ in 0..8 {
                    drop(loopgroup::spawn_local(ask("server:7", 50)));
                }
                std::future::pending::<()>().await;
            });
            sim.client("server", async {
                let workers = EventLoopGroup::new(3)?;
                let server = Server::new("0.0.0.0:7")?.workers(&workers);
                let server = server.serve(|stream, _| echo(stream))?;
                sleep(Duration::from_millis(sim::random() % 3_000)).await;
                let report = workers.drain(Duration::from_secs(5)).await;
                let served = server.await;
                let accepted: u64 = report.accepted();
                let ended = report.completed() + report.panicked() + report.cancelled();
                sim::sometimes("something is cut off", report.cancelled() > 0);
                sim::sometimes("connections are served", served.accepted() > 0);
                match accepted == ended {
                    true => Ok(()),
                    false => Err(io::Error::other(format!("{report}"))),
                }
            });
            sim.faults(
                Faults::chaos()
                    .without(FaultKind::Crash)
                    .until(Duration::from_secs(3)),
            );
        });
    });
}

#[test]
fn turns_that_move_between_loops_keep_their_order() {
    within_for(Duration::from_secs(600), || {
        sim::search(0..seeds(), |sim| {
            sim.host("server", |_| async {
                let workers = EventLoopGroup::new(3)?;
                let _server = Server::new("0.0.0.0:7")?.workers(&workers).serve_turns(
                    |_, _| 0_u32,
                    async |stream, next: &mut u32| {
                        let mut request = [0; 4];
                        if (&mut &*stream).read_exact(&mut request).await.is_err() {
                            return Turn::Close;
                        }
                        *next += 1;
                        if (&mut &*stream).write_all(&request).await.is_err() {
                            return Turn::Close;
                        }
                        Turn::Next
                    },
                )?;
                // Loops come and go, so that connections have to move.
                let loops = workers.loops().to_vec();
                loop {
                    let one = &loops[(sim::random() % 3) as usize];
                    one.pause();
                    sleep(Duration::from_millis(sim::random() % 50)).await;
                    one.resume();
                }
                #[allow(unreachable_code)]
                io::Result::Ok(())
            });
            for client in ["one", "two"] {
                sim.client(client, ask("server:7", 100));
            }
            sim.faults(Faults::only([FaultKind::Partition, FaultKind::Clog]));
        });
    });
}

#[test]
fn connections_leave_a_busy_loop_and_every_request_is_answered_in_its_order() {
    within_for(Duration::from_secs(600), || {
        let mut moved = 0;
        for seed in 0..seeds() / 5 {
            let cost = Duration::from_millis(2);
            let mut sim = Simulation::builder().seed(seed).poll_cost(cost).build();
            let moves = Rc::new(RefCell::new(0));
            let noted = Rc::clone(&moves);
            sim.host("server", move |_| {
                let noted = Rc::clone(&noted);
                async move {
                    let workers = EventLoopGroup::new(2)?;
                    // Whoever comes first is served by the first loop: the load is uneven.
                    workers.loops()[1].pause();
                    let rule = Rebalance::by_utilization().period(Duration::from_millis(500));
                    let server = Server::new("0.0.0.0:7")?.workers(&workers).rebalance(rule);
                    let server = server.serve_turns(|_, _| (), answer)?;
                    sleep(Duration::from_secs(1)).await;
                    workers.loops()[1].resume();
                    for _ in 0..200 {
                        sleep(Duration::from_millis(100)).await;
                        *noted.borrow_mut() = server.moves();
                    }
                    io::Result::Ok(())
                }
            });
            for client in ["one", "two", "three", "four"] {
                sim.client(client, ask("server:7", 1_000));
            }
            sim.run().unwrap();
            moved += u64::from(*moves.borrow() > 0);
        }
        assert!(moved >= seeds() / 6, "in {moved} runs of {}", seeds() / 5);
    });
}

async fn answer(stream: &TcpStream, (): &mut ()) -> Turn {
    let mut request = [0; 4];
    if (&mut &*stream).read_exact(&mut request).await.is_err() {
        return Turn::Close;
    }
    match (&mut &*stream).write_all(&request).await {
        Ok(()) => Turn::Next,
        Err(_) => Turn::Close,
    }
}
