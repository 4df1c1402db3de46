//! Servers, drains and moves of the production code under faults: the books are exact in every seed.
//!
//! Each server is ended when its clients have what they wanted. What it says of its connections then has to
//! be what its handlers have counted themselves, to the last one; those of a life that a fault has ended are
//! gone with its process.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Rebalance, Server, ServerHandle, ServerReport, TcpStream, Turn};
use loopgroup::testing::sim::{self, FaultKind, Faults, Simulation};
use loopgroup::time::{sleep, timeout};
use loopgroup::{EventLoop, EventLoopGroup, TerminationReport};

use crate::util::{setting, within_for};

/// How long there are faults.
const FAULTS: Duration = Duration::from_secs(20);

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

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; 4];
    loop {
        match stream.read_exact(&mut request).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        stream.write_all(&request).await?;
    }
}

/// What the handlers of a server count themselves, to compare its books with.
#[derive(Default)]
struct Counts {
    begun: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    aborted: AtomicU64,
    /// Turns on another loop than the one before: a connection may also move twice between two turns, or
    /// after its last one.
    moves: AtomicU64,
}

/// A connection that is counted, once, at its end.
struct Counted {
    counts: Arc<Counts>,
    has_ended: bool,
    /// The loop of its last turn.
    at: Option<usize>,
}

impl Counted {
    fn begin(counts: &Arc<Counts>) -> Counted {
        counts.begun.fetch_add(1, Relaxed);
        Counted {
            counts: Arc::clone(counts),
            has_ended: false,
            at: None,
        }
    }

    fn end<T, E>(&mut self, ended: &Result<T, E>) {
        self.has_ended = true;
        match ended {
            Ok(_) => self.counts.completed.fetch_add(1, Relaxed),
            Err(_) => self.counts.failed.fetch_add(1, Relaxed),
        };
    }

    fn turn(&mut self) {
        let here = EventLoop::current().map(|here| here.index());
        if self.at.is_some() && self.at != here {
            self.counts.moves.fetch_add(1, Relaxed);
        }
        self.at = here;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.has_ended {
            self.counts.aborted.fetch_add(1, Relaxed);
        }
    }
}

/// Compares the books of a server with those of its group, and with what its handlers have counted.
fn compare(
    server: &ServerReport,
    group: &TerminationReport,
    counts: &Counts,
) -> Result<(), String> {
    let [begun, completed, failed, aborted, moves] = [
        &counts.begun,
        &counts.completed,
        &counts.failed,
        &counts.aborted,
        &counts.moves,
    ]
    .map(|count| count.load(Relaxed));
    let of_group = group.completed() + group.panicked() + group.cancelled();
    let are_exact = server.accepted() == begun + server.rejected()
        && begun == completed + failed + aborted
        && (server.completed(), server.failed()) == (completed, failed)
        && server.aborted() == aborted
        && server.moves() >= moves
        && group.accepted() == of_group;
    sim::sometimes("a connection is completed", completed > 0);
    sim::sometimes("a connection fails", failed > 0);
    sim::sometimes("a connection is aborted", aborted > 0);
    sim::sometimes("a connection has moved", moves > 0);
    match are_exact {
        true => Ok(()),
        false => Err(format!(
            "{server}\n{group}\nthe handlers: {begun} begun = {completed} completed + {failed} failed + \
             {aborted} aborted; {moves} moves seen"
        )),
    }
}

/// Stops a server, drains its workers, and compares the books.
async fn check_books(
    server: ServerHandle,
    workers: &EventLoopGroup,
    counts: &Counts,
) -> Result<(), String> {
    server.stop();
    let drained = workers.drain(Duration::from_secs(5)).await;
    let (asked, by_load) = (server.move_requests(), server.rebalanced());
    let report = server.await;
    compare(&report, &drained, counts)?;
    match report.moves() <= asked && by_load <= asked {
        true => Ok(()),
        false => Err(format!(
            "{report}: {asked} moves were asked for, {by_load} by load"
        )),
    }
}

/// Lets a server end when its clients have, and a simulation when the books of its server were compared.
#[derive(Clone, Default)]
struct Ending(Rc<EndingState>);

#[derive(Default)]
struct EndingState {
    clients: Cell<u32>,
    /// The faults are over.
    is_calm: Cell<bool>,
    is_checked: Cell<bool>,
}

impl Ending {
    /// Adds clients that send so many requests each, one that waits for the books, and faults until then.
    fn add_clients(&self, sim: &mut Simulation, names: &[&str], requests: u32, faults: Faults) {
        for name in names {
            let state = Rc::clone(&self.0);
            state.clients.set(state.clients.get() + 1);
            sim.client(name, async move {
                ask("server:7", requests).await?;
                state.clients.set(state.clients.get() - 1);
                io::Result::Ok(())
            });
        }
        let state = Rc::clone(&self.0);
        sim.client("auditor", async move {
            while !state.is_checked.get() {
                sleep(Duration::from_millis(100)).await;
            }
        });
        let state = Rc::clone(&self.0);
        sim.faults(faults.until(FAULTS));
        sim.at(FAULTS, move |_| state.is_calm.set(true));
    }

    /// Waits until all clients have what they wanted, and no fault is left.
    async fn of_clients(&self) {
        while self.0.clients.get() > 0 || !self.0.is_calm.get() {
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn checked(&self) {
        self.0.is_checked.set(true);
    }
}

/// An echo server with two workers and a boss of its own.
async fn serve(ending: Ending) -> Result<(), String> {
    let counts = Arc::<Counts>::default();
    let (boss, workers) = (group(1), group(2));
    let server = server().boss(&boss).workers(&workers);
    let server = server.serve(counted(&counts, echo)).unwrap();
    ending.of_clients().await;
    check_books(server, &workers, &counts).await?;
    ending.checked();
    Ok(())
}

fn group(loops: usize) -> EventLoopGroup {
    EventLoopGroup::new(loops).unwrap()
}

fn server() -> Server {
    Server::new("0.0.0.0:7").unwrap()
}

type Handled = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// A handler that counts how `work` ends.
fn counted<P, W>(
    counts: &Arc<Counts>,
    work: fn(TcpStream) -> W,
) -> impl Fn(TcpStream, P) -> Handled + Clone + Send + Sync + use<P, W>
where
    W: Future<Output = io::Result<()>> + Send + 'static,
{
    let counts = Arc::clone(counts);
    move |stream, _| {
        let mut counted = Counted::begin(&counts);
        Box::pin(async move {
            let ended = work(stream).await;
            counted.end(&ended);
            ended
        })
    }
}

/// An echo that sometimes takes its time, and sometimes fails.
async fn moody_echo(stream: TcpStream) -> io::Result<()> {
    match sim::random() % 8 {
        0 => sleep(Duration::from_secs(10)).await,
        1 => return Err(io::Error::other("not now")),
        _ => {}
    }
    echo(stream).await
}

fn echoes_under_chaos(sim: &mut Simulation) {
    let ending = Ending::default();
    let of_server = ending.clone();
    sim.host("server", move |_| serve(of_server.clone()));
    ending.add_clients(sim, &["one", "two", "three"], 200, Faults::chaos());
}

#[test]
fn every_request_is_answered_in_the_end_whatever_the_faults() {
    within_for(Duration::from_secs(600), || {
        let report = sim::search(0..seeds(), echoes_under_chaos);
        for reached in ["a request is sent again", "a connection is completed"] {
            assert!(report.reached(reached) > 0, "{reached}: {report}");
        }
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
        let report = sim::search(0..seeds(), |sim| {
            sim.host("clients", |_| async {
                for _ in 0..8 {
                    drop(loopgroup::spawn_local(ask("server:7", 50)));
                }
                std::future::pending::<()>().await;
            });
            sim.client("server", async {
                let counts = Arc::<Counts>::default();
                let workers = group(3);
                let server = server().workers(&workers);
                let server = server.serve(counted(&counts, moody_echo)).unwrap();
                sleep(Duration::from_millis(sim::random() % 3_000)).await;
                let drained = workers.drain(Duration::from_secs(5)).await;
                compare(&server.await, &drained, &counts)
            });
            sim.faults(
                Faults::chaos()
                    .without(FaultKind::Crash)
                    .until(Duration::from_secs(3)),
            );
        });
        for ended in ["completed", "aborted"] {
            let reached = report.reached(&format!("a connection is {ended}"));
            assert!(reached > 0, "{ended}: {report}");
        }
        assert!(report.reached("a connection fails") > 0, "{report}");
    });
}

#[test]
fn turns_that_move_between_loops_keep_their_order() {
    within_for(Duration::from_secs(600), || {
        let report = sim::search(0..seeds(), |sim| {
            let ending = Ending::default();
            let of_server = ending.clone();
            sim.host("server", move |_| {
                let ending = of_server.clone();
                async move {
                    let counts = Arc::<Counts>::default();
                    let workers = group(3);
                    let server = serve_turns(server().workers(&workers), &counts);
                    // Loops come and go, and connections are sent from one to another.
                    let (loops, mover) = (workers.loops().to_vec(), server.clone());
                    let coming = loopgroup::spawn_local(async move {
                        loop {
                            let one = &loops[(sim::random() % 3) as usize];
                            one.pause();
                            let (from, to) = (sim::random() % 3, sim::random() % 3);
                            mover.move_connections(from as usize, to as usize, 1);
                            sleep(Duration::from_millis(sim::random() % 50)).await;
                            one.resume();
                        }
                    });
                    ending.of_clients().await;
                    coming.cancel().await;
                    check_books(server, &workers, &counts).await?;
                    ending.checked();
                    Ok::<(), String>(())
                }
            });
            let faults = Faults::only([FaultKind::Partition, FaultKind::Clog]);
            ending.add_clients(sim, &["one", "two"], 100, faults);
        });
        assert!(report.reached("a connection is completed") > 0, "{report}");
        assert!(report.reached("a connection has moved") > 0, "{report}");
    });
}

#[test]
fn connections_leave_a_busy_loop_and_every_request_is_answered_in_its_order() {
    within_for(Duration::from_secs(600), || {
        // Each takes as long as many of the others: fewer, unless a number was asked for.
        let seeds = setting("LOOPGROUP_SIM_SEEDS").unwrap_or(20);
        let cost = Simulation::builder().poll_cost(Duration::from_millis(2));
        let report = sim::search_with(&cost, 0..seeds, |sim| {
            let ending = Ending::default();
            let of_server = ending.clone();
            sim.host("server", move |_| {
                let ending = of_server.clone();
                async move {
                    let counts = Arc::<Counts>::default();
                    let workers = group(2);
                    // Whoever comes first is served by the first loop: the load is uneven.
                    workers.loops()[1].pause();
                    let rule = Rebalance::by_utilization().period(Duration::from_millis(500));
                    let server = server().workers(&workers).rebalance(rule);
                    let server = serve_turns(server, &counts);
                    sleep(Duration::from_secs(1)).await;
                    workers.loops()[1].resume();
                    ending.of_clients().await;
                    sim::sometimes("the server has moved a connection", server.moves() > 0);
                    check_books(server, &workers, &counts).await?;
                    ending.checked();
                    Ok::<(), String>(())
                }
            });
            let clients = ["one", "two", "three", "four"];
            ending.add_clients(sim, &clients, 1_000, Faults::only([]));
        });
        let moved = report.reached("a connection has moved");
        assert!(moved >= seeds * 5 / 6, "in {moved} runs of {seeds}");
    });
}

/// Serves by turns, each of which answers a request.
fn serve_turns(server: Server, counts: &Arc<Counts>) -> ServerHandle {
    let counts = Arc::clone(counts);
    let open = move |_: &TcpStream, _| Counted::begin(&counts);
    let turn = async |stream: &TcpStream, counted: &mut Counted| {
        counted.turn();
        let answered = answer(stream).await;
        if !matches!(answered, Ok(Turn::Next)) {
            counted.end(&answered);
        }
        answered
    };
    server.serve_turns(open, turn).unwrap()
}

async fn answer(mut stream: &TcpStream) -> io::Result<Turn> {
    let mut request = [0; 4];
    match stream.read_exact(&mut request).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Turn::Close),
        read => read?,
    }
    stream.write_all(&request).await?;
    Ok(Turn::Next)
}
