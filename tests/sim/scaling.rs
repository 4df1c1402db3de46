//! An elastic server in virtual time: its loops follow a load that rises and falls, its connections move with
//! them, and no request is lost.
//!
//! Parking ends threads, and a simulated host has none: here loops are paused and resumed. (What parks is in
//! the models, in the schedules, and in `groups::elastic`.)

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Rebalance, Server, TcpStream, Turn};
use loopgroup::testing::sim::{self, Simulation};
use loopgroup::time::sleep;
use loopgroup::{Elastic, EventLoopGroup, JoinSet};

use crate::util::{ms, secs, setting, within_for};

const CLIENTS: usize = 24;
const LOOPS: usize = 3;
const PATIENCE: Duration = Duration::from_millis(100);

/// What a poll takes: a loop is busy with a few thousand requests per second.
const POLL: Duration = Duration::from_micros(100);

async fn answer(mut stream: &TcpStream, turns: &mut u32) -> io::Result<Turn> {
    let mut request = [0; 4];
    if stream.read_exact(&mut request).await.is_err() {
        return Ok(Turn::Close);
    }
    *turns += 1;
    stream.write_all(&turns.to_be_bytes()).await?;
    Ok(Turn::Next)
}

/// Asks for so long, with this pause between requests. The server counts them: none is lost or answered
/// twice.
async fn ask_for(
    stream: &mut TcpStream,
    asked: &mut u32,
    time: Duration,
    pause: Duration,
) -> io::Result<()> {
    let end = loopgroup::time::now() + time;
    while loopgroup::time::now() < end {
        stream.write_all(&[7; 4]).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        *asked += 1;
        assert_eq!(u32::from_be_bytes(answer), *asked, "one answer for each");
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
    Ok(())
}

/// Load that is high, low and high again.
async fn client(asked: Rc<Cell<u64>>) -> io::Result<()> {
    let mut stream = TcpStream::connect("server:7").await?;
    let mut count = 0;
    for _ in 0..2 {
        ask_for(&mut stream, &mut count, secs(2), Duration::ZERO).await?;
        let rest = ms(200 + sim::random() % 200);
        ask_for(&mut stream, &mut count, secs(4), rest).await?;
    }
    asked.set(asked.get() + u64::from(count));
    Ok(())
}

/// How many loops are chosen, again and again.
async fn watch(group: EventLoopGroup, active: Rc<RefCell<Vec<usize>>>) {
    loop {
        let count = group.loops().iter().filter(|ev| !ev.is_paused()).count();
        active.borrow_mut().push(count);
        sleep(PATIENCE).await;
    }
}

/// More loops when the load rises, fewer when it falls, twice; and nothing in between, while it is constant.
fn assert_follows(active: &[usize]) {
    let mut steps = active.to_vec();
    steps.dedup();
    let rises: Vec<bool> = steps.windows(2).map(|pair| pair[0] < pair[1]).collect();
    let mut turns = rises.clone();
    turns.dedup();
    assert_eq!(turns, [true, false, true, false], "{active:?}");
    assert_eq!(
        (steps.first(), steps.last()),
        (Some(&1), Some(&1)),
        "{active:?}"
    );
    let first = active.iter().position(|&count| count > 1);
    assert!(
        first.is_some_and(|periods| periods <= 3),
        "it is followed at once: {active:?}"
    );
}

#[test]
fn loops_follow_a_load_that_rises_and_falls_and_connections_move_with_them() {
    within_for(secs(600), || {
        let seeds = setting("LOOPGROUP_SIM_SEEDS").unwrap_or(10);
        let settings = Simulation::builder().poll_cost(POLL);
        let report = sim::search_with(&settings, 0..seeds, |sim| {
            let active = Rc::new(RefCell::new(Vec::new()));
            let (asked, seen) = (Rc::new(Cell::new(0)), Rc::clone(&active));
            let total = Rc::clone(&asked);
            sim.client("clients", async move {
                sleep(ms(10)).await;
                let mut clients = JoinSet::new();
                for _ in 0..CLIENTS {
                    clients.spawn_local(client(Rc::clone(&asked)));
                }
                while let Some(ended) = clients.join_next().await {
                    ended.unwrap()?;
                }
                io::Result::Ok(())
            });
            sim.client("server", async move {
                let elastic = Elastic {
                    min: 1,
                    max: LOOPS,
                    patience: PATIENCE,
                    ..Elastic::default()
                };
                let workers = EventLoopGroup::builder().elastic(elastic).build()?;
                let server = Server::new("0.0.0.0:7")?
                    .workers(&workers)
                    .rebalance(Rebalance::by_utilization())
                    .serve_turns(|_, _| 0, answer)?;
                let watcher = loopgroup::spawn_local(watch(workers.clone(), Rc::clone(&seen)));
                sleep(secs(14)).await;
                watcher.abort();
                let moves = server.moves();
                server.stop();
                let ended = workers.drain(secs(5)).await;
                let served = server.await;
                assert_eq!(served.accepted(), CLIENTS as u64, "{served}");
                assert_eq!(served.completed(), CLIENTS as u64, "{served}");
                assert_eq!(served.moves(), moves);
                assert_eq!(
                    ended.accepted(),
                    ended.completed() + ended.panicked() + ended.cancelled()
                );
                let seen = seen.borrow();
                assert_follows(&seen);
                assert!(
                    moves >= 2,
                    "they left the loop that was set aside: {seen:?}"
                );
                assert!(total.get() > 0, "every client has ended");
                io::Result::Ok(())
            });
        });
        assert_eq!(report.seeds(), seeds);
    });
}
