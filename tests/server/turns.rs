//! Connections that are served by turns move between two of them, and nobody outside can tell.
//!
//! `LOOPGROUP_ROUNDS` multiplies what is done while connections move. 1 GiB through connections that move is
//! in `integrity`, moves by the hundred thousand are in `churn`, and a bad network is in `chaos`.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as Client};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{ConnectionEnd, Server, ServerHandle, TcpStream, Turn, UnixStream};
use loopgroup::time::sleep;
use loopgroup::{EventLoop, EventLoopGroup, PanicSite, block_on};

use crate::util::{
    Door, LONG, Random, TempPath, alone, blow_up, entries, eventually, group, ms, progress, secs,
    setting, stall, within,
};
use crate::{Repeated, assert_adds_up, connect, group_that_reports, serve_on};

/// What has arrived and was not answered yet.
type Received = Vec<u8>;

fn here() -> u8 {
    EventLoop::current().unwrap().index() as u8
}

/// Answers each byte with the index of the loop.
async fn tell_home(mut stream: &TcpStream, _: &mut ()) -> io::Result<Turn> {
    let mut byte = [0];
    if stream.read(&mut byte).await? == 0 {
        return Ok(Turn::Close);
    }
    stream.write_all(&[here()]).await?;
    Ok(Turn::Next)
}

/// Answers each line with itself; several may arrive at once, and one in parts.
async fn echo_line(mut stream: &TcpStream, received: &mut Received) -> io::Result<Turn> {
    let end = loop {
        if let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            break end;
        }
        let mut buf = [0; 64];
        match stream.read(&mut buf).await? {
            0 => return Ok(Turn::Close),
            n => received.extend_from_slice(&buf[..n]),
        }
    };
    let line: Vec<u8> = received.drain(..=end).collect();
    stream.write_all(&line).await?;
    Ok(match received.contains(&b'\n') {
        true => Turn::Again,
        false => Turn::Next,
    })
}

fn no_state<T, A>(_: &T, _: A) {}

fn nothing_received<T, A>(_: &T, _: A) -> Received {
    Received::new()
}

fn ask(client: &mut Client) -> u8 {
    client.write_all(b"?").unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    answer[0]
}

fn ask_all(clients: &mut [Client]) {
    for client in clients {
        ask(client);
    }
}

/// So many of something, times `LOOPGROUP_ROUNDS`.
fn times(count: u64) -> u64 {
    count * setting("LOOPGROUP_ROUNDS").unwrap_or(1)
}

/// Has each turn ask all connections of its loop to move, itself among them: the handle of the server.
#[derive(Clone, Default)]
struct Restless(Arc<OnceLock<ServerHandle>>);

impl Restless {
    fn ask(&self, by: usize, loops: usize) {
        if let Some(server) = self.0.get() {
            let from = usize::from(here());
            server.move_connections(from, (from + by) % loops, usize::MAX);
        }
    }
}

/// Moves connections between all loops, as fast as possible.
fn keep_moving<A: Clone + Send + 'static>(server: &ServerHandle<A>, loops: usize) -> Repeated {
    let (server, mut random) = (server.clone(), Random(7));
    Repeated::start(move || {
        let (from, to) = (random.index(loops), random.index(loops));
        if server.move_connections(from, to, 1 + random.index(8)) == 0 {
            thread::yield_now();
        }
    })
}

#[test]
fn an_idle_connection_moves_at_once_and_its_next_turn_runs_there() {
    within(|| {
        let (boss, workers) = (group(1), group(3));
        let server = serve_on(&workers).boss(&boss);
        let server = server.serve_turns(no_state, tell_home).unwrap();
        let mut client = connect(&server);
        assert_eq!(ask(&mut client), 0);
        for (moves, (from, to)) in (1..).zip([(0, 1), (1, 2), (2, 0), (0, 2)]) {
            eventually("it can be asked", || {
                server.move_connections(from, to, usize::MAX) == 1
            });
            eventually("it has arrived", || server.moves() == moves);
            eventually("it is registered there", || {
                let channels = workers.loops().iter().map(EventLoop::registered_channels);
                channels
                    .enumerate()
                    .all(|(index, n)| n == usize::from(index == to))
            });
            assert_eq!(usize::from(ask(&mut client)), to);
        }
        assert_eq!((server.moves(), server.connections()), (4, 1));
        drop(client);
        server.stop();
        let report = block_on(server);
        assert_eq!(
            (report.accepted(), report.completed(), report.moves()),
            (1, 1, 4)
        );
        assert!(report.to_string().contains("; 4 moves;"), "{report}");
        let end = workers.drain(LONG).wait();
        assert!(end.is_clean(), "{end}");
        // Four moves are four more tasks, each of which has completed.
        assert_eq!((end.accepted(), end.completed()), (5, 5));
    });
}

#[test]
fn a_request_to_move_that_makes_no_sense_is_refused() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers).serve_turns(no_state, tell_home).unwrap();
        let mut client = connect(&server);
        ask(&mut client);
        for (from, to, count) in [
            (0, 0, 1),
            (0, 2, 1),
            (2, 0, 1),
            (0, 1, 0),
            (usize::MAX, 0, 1),
        ] {
            assert_eq!(server.move_connections(from, to, count), 0);
        }
        let plain = serve_on(&workers).serve(|_, _| std::future::pending::<()>());
        let plain = plain.unwrap();
        let _idle = connect(&plain);
        eventually("it is served", || plain.connections() == 1);
        assert_eq!(
            plain.move_connections(0, 1, 1) + plain.move_connections(1, 0, 1),
            0
        );
        drop(client);
        server.stop();
        assert_eq!(block_on(server).moves(), 0);
        workers.shutdown_now().wait();
    });
}

#[test]
fn a_connection_in_a_turn_moves_after_it() {
    within(|| {
        let workers = group(2);
        let (began, door) = (Door::new(), Door::new());
        let (inside, until) = (began.clone(), door.clone());
        let server = serve_on(&workers)
            .serve_turns(no_state, async move |mut stream: &TcpStream, _: &mut ()| {
                let mut byte = [0];
                if stream.read(&mut byte).await? == 0 {
                    return Ok(Turn::Close);
                }
                let before = here();
                inside.open();
                until.opened().await;
                stream.write_all(&[before, here()]).await?;
                io::Result::Ok(Turn::Next)
            })
            .unwrap();
        let mut client = connect(&server);
        client.write_all(b"?").unwrap();
        eventually("the turn has begun", || began.is_open());
        let asked = server.move_connections(0, 1, 9) + server.move_connections(1, 0, 9);
        assert_eq!(asked, 1);
        let again = server.move_connections(0, 1, 9) + server.move_connections(1, 0, 9);
        assert_eq!(again, 0, "it was asked already");
        assert_eq!(server.moves(), 0);
        door.open();
        let mut first = [0; 2];
        client.read_exact(&mut first).unwrap();
        assert_eq!(first[0], first[1], "a turn stays on its loop");
        eventually("it moves", || server.moves() == 1);
        client.write_all(b"?").unwrap();
        let mut second = [0; 2];
        client.read_exact(&mut second).unwrap();
        assert_eq!(second, [1 - first[0]; 2]);
        drop(client);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
    });
}

#[test]
fn a_turn_that_reads_exactly_what_has_arrived_leaves_an_idle_connection() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers)
            .serve_turns(no_state, async |mut stream: &TcpStream, _: &mut ()| {
                let mut request = [0; 8];
                match stream.read_exact(&mut request).await {
                    Ok(()) => stream.write_all(&[here()]).await.map(|()| Turn::Next),
                    Err(_) => Ok(Turn::Close),
                }
            })
            .unwrap();
        let mut client = connect(&server);
        for round in 0..100 {
            client.write_all(b"8 bytes!").unwrap();
            let mut home = [0];
            client.read_exact(&mut home).unwrap();
            let from = usize::from(home[0]);
            // If the server took the connection for ready, it would be in a turn, and wait there for bytes.
            eventually("it can be asked", || {
                server.move_connections(from, 1 - from, 1) == 1
            });
            eventually("it moves without a byte", || server.moves() == round + 1);
        }
        drop(client);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
    });
}

#[test]
fn requests_that_arrive_together_are_all_answered_in_order_while_the_connection_moves() {
    within(|| {
        let workers = group(3);
        let restless = Restless::default();
        let place = restless.0.clone();
        let server = serve_on(&workers)
            .serve_turns(
                nothing_received,
                async move |stream: &TcpStream, received: &mut Received| {
                    let turn = echo_line(stream, received).await;
                    restless.ask(1, 3);
                    turn
                },
            )
            .unwrap();
        place.set(server.clone()).unwrap();
        let progress = progress("line");
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let (client, progress) = (connect(&server), progress.clone());
                thread::spawn(move || {
                    let text: String = (0..times(2_000))
                        .map(|line| format!("{number}:{line}\n"))
                        .collect();
                    let mut writer = client.try_clone().unwrap();
                    let (sent, mut random) = (text.clone(), Random(number));
                    let writing = thread::spawn(move || {
                        // Parts that end anywhere; mostly several lines, sometimes less than one.
                        let mut rest = sent.as_bytes();
                        while !rest.is_empty() {
                            let (part, others) =
                                rest.split_at((1 + random.index(200)).min(rest.len()));
                            writer.write_all(part).unwrap();
                            rest = others;
                        }
                        writer.shutdown(Shutdown::Write).unwrap();
                    });
                    let lines = BufReader::new(client)
                        .lines()
                        .inspect(|_| progress.tick())
                        .map(|line| line.unwrap() + "\n");
                    assert!(lines.collect::<String>() == text);
                    writing.join().unwrap();
                })
            })
            .collect();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        server.stop();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (4, 4));
        // Nearly every line is a turn, and nearly every turn is followed by a move.
        assert!(report.moves() > times(1_000), "{report}");
        eprintln!(
            "{} lines of 4 clients, {} moves",
            times(8_000),
            report.moves()
        );
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_request_in_parts_is_whole_although_the_connection_moves_between_them() {
    within(|| {
        let workers = group(2);
        // Takes what there is, and keeps it: a part of a line ends the turn.
        let server = serve_on(&workers)
            .serve_turns(
                nothing_received,
                async |mut stream: &TcpStream, received: &mut Received| {
                    let mut buf = [0; 16];
                    match stream.read(&mut buf).await? {
                        0 => return Ok(Turn::Close),
                        n => received.extend_from_slice(&buf[..n]),
                    }
                    if received.ends_with(b"\n") {
                        stream.write_all(received).await?;
                        received.clear();
                    }
                    io::Result::Ok(Turn::Next)
                },
            )
            .unwrap();
        let mut client = connect(&server);
        for round in 0..50 {
            for part in ["a line ", "in three ", "parts\n"] {
                client.write_all(part.as_bytes()).unwrap();
                let before = server.moves();
                eventually("it moves", || {
                    server.move_connections(0, 1, 1);
                    server.move_connections(1, 0, 1);
                    server.moves() > before
                });
            }
            let mut answer = [0; 22];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"a line in three parts\n", "{round}");
        }
        drop(client);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
    });
}

/// FNV-1a.
fn hash(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[test]
fn bytes_are_exact_while_connections_move_as_often_as_possible() {
    within(|| {
        const BYTES: usize = 512 * 1024;
        let workers = group(3);
        let restless = Restless::default();
        let place = restless.0.clone();
        let server = serve_on(&workers)
            .serve_turns(no_state, async move |mut stream: &TcpStream, _: &mut ()| {
                let mut buf = [0; 4096];
                let n = stream.read(&mut buf).await?;
                stream.write_all(&buf[..n]).await?;
                restless.ask(1 + usize::from(buf[0] % 2), 3);
                io::Result::Ok(if n == 0 { Turn::Close } else { Turn::Next })
            })
            .unwrap();
        place.set(server.clone()).unwrap();
        let progress = progress("block");
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let (mut client, progress) = (connect(&server), progress.clone());
                thread::spawn(move || {
                    let mut writer = client.try_clone().unwrap();
                    let writing = thread::spawn(move || {
                        let (mut random, mut left, mut sent) = (Random(number), BYTES, 0);
                        while left > 0 {
                            let len = (1 + random.index(6000)).min(left);
                            let block: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
                            writer.write_all(&block).unwrap();
                            (sent, left) = (hash(sent, &block), left - len);
                        }
                        writer.shutdown(Shutdown::Write).unwrap();
                        sent
                    });
                    let (mut buf, mut received, mut bytes) = ([0; 8192], 0, 0);
                    loop {
                        let n = client.read(&mut buf).unwrap();
                        if n == 0 {
                            break;
                        }
                        progress.tick();
                        (received, bytes) = (hash(received, &buf[..n]), bytes + n);
                    }
                    assert_eq!(bytes, BYTES);
                    assert_eq!(received, writing.join().unwrap());
                })
            })
            .collect();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        server.stop();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (8, 8));
        // A turn at least for 4 KiB.
        assert!(report.moves() > 500, "{report}");
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn peers_that_close_half_close_and_reset_during_moves_are_seen_exactly_once() {
    within(|| {
        let (workers, sites) = group_that_reports(2);
        // By the number that the client has sent: how often its end was seen.
        let ends: Arc<Mutex<HashMap<u32, u32>>> = Arc::default();
        let (seen, restless) = (Arc::clone(&ends), Restless::default());
        let place = restless.0.clone();
        let server = serve_on(&workers)
            .serve_turns(
                |_, _| None,
                async move |mut stream: &TcpStream, id: &mut Option<u32>| {
                    let mut number = [0; 4];
                    let read = stream.read_exact(&mut number).await;
                    if read.is_ok() {
                        *id = Some(u32::from_be_bytes(number));
                        stream.write_all(&number).await?;
                        // What the peer does now, it does to a connection that moves.
                        restless.ask(1, 2);
                        return Ok(Turn::Next);
                    }
                    let id = id.expect("each has sent its number");
                    *seen.lock().unwrap().entry(id).or_default() += 1;
                    match read {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            Ok(Turn::Close)
                        }
                        read => read.map(|()| Turn::Close),
                    }
                },
            )
            .unwrap();
        place.set(server.clone()).unwrap();
        let mover = keep_moving(&server, 2);
        let progress = progress("client");
        let clients = u32::try_from(times(300)).unwrap();
        let (mut resets, mut halves) = (0, VecDeque::new());
        for id in 0..clients {
            progress.tick();
            let mut client = connect(&server);
            client.write_all(&id.to_be_bytes()).unwrap();
            client.read_exact(&mut [0; 4]).unwrap();
            match id % 3 {
                0 => drop(client),
                1 => {
                    client.shutdown(Shutdown::Write).unwrap();
                    halves.push_back(client);
                    // Not all of them at once: descriptors are few.
                    if halves.len() > 100 {
                        let mut client = halves.pop_front().unwrap();
                        assert_eq!(client.read(&mut [0]).unwrap(), 0, "closed by the server");
                    }
                }
                _ => {
                    let socket = socket2::SockRef::from(&client);
                    socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
                    drop(client);
                    resets += 1;
                }
            }
        }
        for mut client in halves {
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "closed by the server");
        }
        eventually("all have ended", || server.connections() == 0);
        drop(mover);
        let ends = ends.lock().unwrap();
        assert_eq!(ends.len(), clients as usize);
        assert!(ends.values().all(|times| *times == 1), "{ends:?}");
        server.stop();
        let report = block_on(server);
        assert_adds_up(&report);
        assert_eq!(
            (report.accepted(), report.aborted()),
            (u64::from(clients), 0)
        );
        assert!(report.failed() <= resets, "{report}");
        assert!(report.moves() > u64::from(clients / 2), "{report}");
        eprintln!("{clients} clients, {} moves", report.moves());
        assert!(sites.lock().unwrap().is_empty());
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn thousands_of_moves_leave_no_descriptor_and_no_slot_behind() {
    let name = "thousands_of_moves_leave_no_descriptor_and_no_slot_behind";
    alone(name, || {
        let workers = group(2);
        let server = serve_on(&workers).serve_turns(no_state, tell_home).unwrap();
        let mut clients: Vec<_> = (0..8).map(|_| connect(&server)).collect();
        ask_all(&mut clients);
        let channels = || -> usize {
            let loops = workers.loops().iter();
            loops.map(EventLoop::registered_channels).sum()
        };
        let (fds, slots) = (entries("/proc/self/fd"), channels());
        let progress = progress("move");
        while server.moves() < 5_000 {
            let before = server.moves();
            let asked = server.move_connections(0, 1, 8) + server.move_connections(1, 0, 8);
            if asked > 0 {
                eventually("one moves", || server.moves() > before);
            }
            progress.tick();
        }
        ask_all(&mut clients);
        eventually("all are at rest", || channels() == slots);
        assert_eq!(entries("/proc/self/fd"), fds);
        let live: usize = workers.loops().iter().map(EventLoop::live_tasks).sum();
        assert_eq!(live, 8 + 1, "and the acceptor");
        drop(clients);
        server.stop();
        let report = block_on(server);
        assert_eq!(report.completed(), 8);
        eventually("all are closed", || channels() == 0);
        assert_eq!(entries("/proc/self/fd"), fds - 17);
        let end = workers.drain(LONG).wait();
        assert!(end.is_clean(), "{end}");
        assert_eq!(end.completed(), 9 + report.moves());
    });
}

#[test]
fn a_loop_that_has_ended_or_shuts_down_gets_no_connection() {
    within(|| {
        let (boss, workers) = (group(1), group(3));
        let server = serve_on(&workers).boss(&boss);
        let server = server.serve_turns(no_state, tell_home).unwrap();
        let mut client = connect(&server);
        assert_eq!(ask(&mut client), 0);
        workers.loops()[1].shutdown_now().wait();
        let held = workers.spawn_on(2, std::future::pending::<()>());
        eventually("it is live", || workers.loops()[2].live_tasks() == 1);
        drop(workers.loops()[2].drain(LONG));
        for to in [1, 2] {
            eventually("it can be asked", || server.move_connections(0, to, 1) == 1);
            assert_eq!(ask(&mut client), 0);
        }
        assert_eq!(server.moves(), 0);
        held.abort();
        drop(client);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
        workers.shutdown_now().wait();
    });
}

#[test]
fn a_connection_in_the_queue_of_a_loop_that_closes_returns_to_where_it_was() {
    within(|| {
        for _ in 0..20 {
            let workers = group(2);
            let server = serve_on(&workers).serve_turns(no_state, tell_home).unwrap();
            let mut clients: Vec<_> = (0..4).map(|_| connect(&server)).collect();
            // Beginning with the acceptor's loop, in turn.
            let homes: Vec<_> = clients.iter_mut().map(ask).collect();
            let stay = homes.iter().position(|home| *home == 0).unwrap();
            let release = stall(&workers.loops()[1]);
            let queued = workers.loops()[1].pending_tasks();
            eventually("it can be asked", || server.move_connections(0, 1, 1) == 1);
            eventually("it is in the queue", || {
                workers.loops()[1].pending_tasks() > queued
            });
            let end = workers.loops()[1].shutdown_now();
            release.open();
            let report = end.wait();
            assert!(report.cancelled() >= 1, "{report}");
            for (client, home) in clients.iter_mut().zip(&homes) {
                if *home == 0 {
                    assert_eq!(ask(client), 0);
                }
            }
            assert_eq!(ask(&mut clients[stay]), 0);
            assert_eq!(server.moves(), 0);
            drop(clients);
            server.stop();
            let report = block_on(server);
            assert_adds_up(&report);
            // Those that were served by the loop that has ended.
            assert_eq!((report.completed(), report.aborted()), (2, 2), "{report}");
            assert!(workers.loops()[0].drain(LONG).wait().is_clean());
        }
    });
}

#[test]
fn a_loop_whose_queue_is_full_gets_no_connection() {
    within(|| {
        let workers = EventLoopGroup::builder()
            .loops(2)
            .max_pending_tasks(1)
            .build()
            .unwrap();
        let server = serve_on(&workers).serve_turns(no_state, tell_home).unwrap();
        let mut client = connect(&server);
        let home = usize::from(ask(&mut client));
        let other = 1 - home;
        let release = stall(&workers.loops()[other]);
        workers.loops()[other].execute(|| ()).unwrap();
        eventually("it can be asked", || {
            server.move_connections(home, other, 1) == 1
        });
        assert_eq!(usize::from(ask(&mut client)), home);
        assert_eq!(server.moves(), 0);
        release.open();
        eventually("it has room", || {
            server.move_connections(home, other, 1);
            server.moves() == 1
        });
        assert_eq!(usize::from(ask(&mut client)), other);
        drop(client);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
    });
}

#[test]
fn shutdowns_during_moves_account_for_every_connection_once() {
    within(|| {
        let progress = progress("round");
        for round in 0..times(24) {
            let boss = group(1);
            let workers = group(3);
            let ends: Arc<Mutex<HashMap<SocketAddr, Vec<ConnectionEnd>>>> = Arc::default();
            let told = Arc::clone(&ends);
            let server = serve_on(&workers)
                .boss(&boss)
                .on_connection(move |event| {
                    if let Some((how, _)) = event.end() {
                        let peer = event.peer().unwrap();
                        told.lock().unwrap().entry(peer).or_default().push(how);
                    }
                })
                .serve_turns(nothing_received, echo_line)
                .unwrap();
            let mover = keep_moving(&server, 3);
            let clients: Vec<_> = (0..12)
                .map(|_| {
                    let client = connect(&server);
                    thread::spawn(move || {
                        // Until the server has had enough.
                        let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
                        while (&client).write_all(b"line\n").is_ok() {
                            match lines.next() {
                                Some(Ok(line)) => assert_eq!(line, "line"),
                                _ => break,
                            }
                        }
                    })
                })
                .collect();
            eventually("they move", || {
                server.accepted() == 12 && server.moves() > 20
            });
            let end = match round % 4 {
                0 => workers.drain(LONG),
                1 => workers.shutdown_now(),
                2 => workers.shutdown_gracefully_with(ms(100), LONG).unwrap(),
                _ => {
                    server.drain();
                    block_on(server.clone());
                    workers.drain(LONG)
                }
            };
            let report = end.wait();
            let served = block_on(server);
            drop(mover);
            assert_adds_up(&served);
            assert_eq!((served.accepted(), served.rejected()), (12, 0), "{served}");
            let ended = report.completed() + report.panicked() + report.cancelled();
            assert_eq!(report.accepted(), ended);
            if round % 4 != 1 {
                assert_eq!(served.completed(), 12, "{round}: {served}\n{report}");
                assert!(report.is_clean(), "{report}");
            }
            let ends = ends.lock().unwrap();
            assert!(ends.values().all(|ends| ends.len() == 1), "{ends:?}");
            assert_eq!(ends.len(), 12);
            clients.into_iter().for_each(|one| one.join().unwrap());
            boss.drain(LONG).wait();
            progress.tick();
        }
    });
}

#[test]
fn loops_that_end_one_after_the_other_during_moves_lose_no_connection_from_the_books() {
    within(|| {
        for _ in 0..8 {
            let boss = group(1);
            let workers = group(4);
            let server = serve_on(&workers).boss(&boss);
            let server = server.serve_turns(no_state, tell_home).unwrap();
            let mut clients: Vec<_> = (0..16).map(|_| connect(&server)).collect();
            ask_all(&mut clients);
            let mover = keep_moving(&server, 4);
            eventually("they move", || server.moves() > 20);
            let reports: Vec<_> = workers
                .loops()
                .iter()
                .map(|ev| ev.shutdown_now().wait())
                .collect();
            drop(mover);
            drop(clients);
            server.stop();
            let served = block_on(server);
            assert_adds_up(&served);
            assert_eq!(served.accepted(), 16);
            for report in reports {
                let ended = report.completed() + report.panicked() + report.cancelled();
                assert_eq!(report.accepted(), ended);
            }
        }
    });
}

#[test]
fn panics_of_turns_and_of_opens_abort_their_connections_and_nothing_else() {
    within(|| {
        let (workers, sites) = group_that_reports(2);
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let server = serve_on(&workers)
            .serve_turns(
                move |_, _| {
                    if count.fetch_add(1, Ordering::SeqCst) == 1 {
                        blow_up();
                    }
                },
                async |mut stream: &TcpStream, _: &mut ()| {
                    let mut byte = [0];
                    if stream.read(&mut byte).await? == 0 {
                        return Ok(Turn::Close);
                    }
                    if byte[0] == b'!' {
                        blow_up();
                    }
                    stream.write_all(&byte).await?;
                    io::Result::Ok(Turn::Next)
                },
            )
            .unwrap();
        let mut good = connect(&server);
        assert_eq!(ask(&mut good), b'?');
        let mut not_opened = connect(&server);
        assert!(!matches!(not_opened.read(&mut [0]), Ok(1..)));
        let mut bad = connect(&server);
        assert_eq!(ask(&mut bad), b'?');
        bad.write_all(b"!").unwrap();
        assert!(!matches!(bad.read(&mut [0]), Ok(1..)));
        assert_eq!(ask(&mut good), b'?');
        drop(good);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.aborted()), (1, 2), "{report}");
        assert_adds_up(&report);
        assert_eq!(workers.drain(LONG).wait().panicked(), 2);
        assert_eq!(*sites.lock().unwrap(), [PanicSite::Task; 2]);
    });
}

#[test]
fn an_error_of_a_turn_counts_as_failed_and_is_reported_with_its_loop() {
    within(|| {
        let workers = group(2);
        let errors = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&errors);
        let server = serve_on(&workers)
            .on_error(move |error| {
                let text = format!("{error} of {}", error.peer().unwrap());
                seen.lock()
                    .unwrap()
                    .push((text, error.event_loop().index()));
            })
            .serve_turns(no_state, async |mut stream: &TcpStream, _: &mut ()| {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.map_err(|_| "no byte")?;
                stream.write_all(&[here()]).await.map_err(|_| "no answer")?;
                Ok::<_, &str>(Turn::Next)
            })
            .unwrap();
        let mut client = connect(&server);
        let home = usize::from(ask(&mut client));
        eventually("it can be asked", || {
            server.move_connections(home, 1 - home, 1) == 1
        });
        eventually("it moves", || server.moves() == 1);
        let peer = client.local_addr().unwrap();
        drop(client);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.failed(), report.completed()), (1, 0));
        let expected = (format!("no byte of {peer}"), 1 - home);
        assert_eq!(*errors.lock().unwrap(), [expected]);
    });
}

#[test]
fn a_connection_that_moves_keeps_its_place_below_the_limit() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers).max_connections(3);
        let server = server.serve_turns(no_state, tell_home).unwrap();
        let mut clients: Vec<_> = (0..3).map(|_| connect(&server)).collect();
        ask_all(&mut clients);
        let mut late = connect(&server); // waits in the backlog
        let mover = keep_moving(&server, 2);
        eventually("they move", || server.moves() > 100);
        assert_eq!((server.accepted(), server.connections()), (3, 3));
        drop(clients.pop());
        ask(&mut late);
        assert_eq!((server.accepted(), server.connections()), (4, 3));
        drop(mover);
        drop((clients, late));
        server.stop();
        assert_eq!(block_on(server).completed(), 4);
    });
}

#[test]
fn an_idle_limit_is_kept_although_the_connection_moves() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers)
            .idle_timeout(secs(1))
            .serve_turns(no_state, tell_home)
            .unwrap();
        let mut client = connect(&server);
        ask(&mut client);
        let start = Instant::now();
        // A move is no use of the connection.
        eventually("its time is up", || {
            server.move_connections(0, 1, 1);
            server.move_connections(1, 0, 1);
            server.connections() == 0
        });
        // Counted from the last use, which was a little earlier.
        assert!(start.elapsed() >= ms(500), "{:?}", start.elapsed());
        server.stop();
        let report = block_on(server);
        assert_eq!((report.timed_out(), report.failed()), (1, 1), "{report}");
        assert!(report.moves() > 3, "{report}");
    });
}

#[test]
fn a_connection_that_is_asked_to_move_all_the_time_answers() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers).serve_turns(no_state, tell_home).unwrap();
        let mut client = connect(&server);
        ask(&mut client);
        let asking = [(0, 1), (1, 0)].map(|(from, to)| {
            let server = server.clone();
            Repeated::start(move || {
                server.move_connections(from, to, 1);
            })
        });
        eventually("it moves", || server.moves() > 10);
        for _ in 0..20 {
            ask(&mut client);
        }
        drop(client);
        eventually("it sees the end", || server.connections() == 0);
        drop(asking);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
    });
}

#[test]
fn a_first_byte_limit_is_kept_although_the_connection_moves_and_a_turn_that_ignores_it_is_the_last()
{
    within(|| {
        let workers = group(2);
        let turns = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&turns);
        let server = serve_on(&workers)
            .first_byte_timeout(ms(200))
            .serve_turns(no_state, async move |mut stream: &TcpStream, _: &mut ()| {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0]).await; // whatever it says
                Turn::Next
            })
            .unwrap();
        let _silent = connect(&server);
        eventually("its time is up", || {
            server.move_connections(0, 1, 1);
            server.move_connections(1, 0, 1);
            server.accepted() == 1 && server.connections() == 0
        });
        server.stop();
        let report = block_on(server);
        assert_eq!((report.timed_out(), report.completed()), (1, 1), "{report}");
        assert_eq!(turns.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn hooks_are_told_of_one_start_and_one_end() {
    within(|| {
        let workers = group(2);
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let server = serve_on(&workers)
            .on_connection(move |event| {
                let how = event.end().map(|(how, _)| how);
                seen.lock().unwrap().push((how, event.event_loop().index()));
            })
            .serve_turns(no_state, tell_home)
            .unwrap();
        let mut client = connect(&server);
        let home = usize::from(ask(&mut client));
        eventually("it can be asked", || {
            server.move_connections(home, 1 - home, 1) == 1
        });
        eventually("it moves", || server.moves() == 1);
        drop(client);
        server.stop();
        drop(block_on(server));
        let completed = (Some(ConnectionEnd::Completed), 1 - home);
        assert_eq!(*events.lock().unwrap(), [(None, home), completed]);
    });
}

#[test]
fn a_turn_may_hold_what_is_not_send_and_is_made_and_dropped_on_its_loop() {
    struct Home(thread::ThreadId);
    impl Drop for Home {
        fn drop(&mut self) {
            assert_eq!(thread::current().id(), self.0);
        }
    }
    within(|| {
        let (workers, sites) = group_that_reports(2);
        let server = serve_on(&workers)
            .serve_turns(
                |_, _| 0_u64,
                async |mut stream: &TcpStream, turns: &mut u64| {
                    let _home = Home(thread::current().id());
                    let bytes = Rc::new(Cell::new(0));
                    let mut byte = [0];
                    bytes.set(stream.read(&mut byte).await?);
                    loopgroup::yield_now().await;
                    if bytes.get() == 0 {
                        return Ok(Turn::Close);
                    }
                    *turns += 1;
                    stream.write_all(&turns.to_be_bytes()).await?;
                    io::Result::Ok(Turn::Next)
                },
            )
            .unwrap();
        let mover = keep_moving(&server, 2);
        let mut client = connect(&server);
        for turn in 1..=500_u64 {
            client.write_all(b"?").unwrap();
            let mut answer = [0; 8];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(u64::from_be_bytes(answer), turn, "the state moves along");
        }
        drop(mover);
        drop(client);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
        assert!(sites.lock().unwrap().is_empty());
    });
}

#[test]
fn turns_without_a_wait_between_them_let_others_in_and_can_be_moved() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers)
            .serve_turns(
                |_, _| false,
                async |mut stream: &TcpStream, restless: &mut bool| {
                    if *restless {
                        return Ok(Turn::Again); // for ever
                    }
                    let mut byte = [0];
                    if stream.read(&mut byte).await? == 0 {
                        return Ok(Turn::Close);
                    }
                    *restless = byte[0] == b'!';
                    stream.write_all(&[here()]).await?;
                    io::Result::Ok(Turn::Again)
                },
            )
            .unwrap();
        let mut busy = connect(&server);
        busy.write_all(b"!").unwrap();
        let mut home = [0];
        busy.read_exact(&mut home).unwrap();
        let home = usize::from(home[0]);
        let neighbours: Vec<_> = (0..4)
            .map(|_| {
                let mut client = connect(&server);
                (ask(&mut client), client)
            })
            .collect();
        assert!(neighbours.iter().any(|(one, _)| usize::from(*one) == home));
        eventually("it moves as well", || {
            server.move_connections(home, 1 - home, usize::MAX);
            server.moves() >= 1
        });
        workers.shutdown_now().wait();
        let report = block_on(server);
        assert_adds_up(&report);
        assert_eq!(report.accepted(), 5);
    });
}

#[test]
fn a_drain_lets_a_turn_finish_and_ends_idle_connections() {
    within(|| {
        let workers = group(2);
        let (began, door) = (Door::new(), Door::new());
        let (inside, until) = (began.clone(), door.clone());
        let server = serve_on(&workers)
            .serve_turns(no_state, async move |mut stream: &TcpStream, _: &mut ()| {
                let mut byte = [0];
                if stream.read(&mut byte).await? == 0 {
                    return Ok(Turn::Close);
                }
                if byte[0] == b'!' {
                    inside.open();
                    until.opened().await;
                }
                stream.write_all(&byte).await?;
                io::Result::Ok(Turn::Next)
            })
            .unwrap();
        let mut clients: Vec<_> = (0..5).map(|_| connect(&server)).collect();
        ask_all(&mut clients);
        clients[4].write_all(b"!").unwrap();
        eventually("a turn is under way", || began.is_open());
        let end = workers.drain(LONG);
        for client in &mut clients[..4] {
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
        door.open();
        let mut answer = [0];
        clients[4].read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"!");
        assert_eq!(clients[4].read(&mut [0]).unwrap(), 0);
        let report = end.wait();
        assert!(report.is_clean(), "{report}");
        assert_eq!(block_on(server).completed(), 5);
    });
}

#[test]
fn connections_of_a_unix_socket_move_as_well() {
    within(|| {
        let path = TempPath::new("turns");
        let workers = group(2);
        let server = Server::unix(&path.0).workers(&workers);
        let server = server
            .serve_turns(no_state, async |mut stream: &UnixStream, _: &mut ()| {
                let mut byte = [0];
                if stream.read(&mut byte).await? == 0 {
                    return Ok(Turn::Close);
                }
                stream.write_all(&[here()]).await?;
                io::Result::Ok(Turn::Next)
            })
            .unwrap();
        let mut client = std::os::unix::net::UnixStream::connect(&path.0).unwrap();
        let mut ask = || {
            client.write_all(b"?").unwrap();
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap();
            usize::from(answer[0])
        };
        for moves in 1..=20 {
            let home = ask();
            eventually("it can be asked", || {
                server.move_connections(home, 1 - home, 1) == 1
            });
            eventually("it moves", || server.moves() == moves);
            assert_eq!(ask(), 1 - home);
        }
        drop(client);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
    });
}

#[test]
fn a_turn_that_sleeps_is_not_disturbed_by_requests_to_move() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers)
            .serve_turns(no_state, async |mut stream: &TcpStream, _: &mut ()| {
                let mut byte = [0];
                if stream.read(&mut byte).await? == 0 {
                    return Ok(Turn::Close);
                }
                let before = here();
                for _ in 0..5 {
                    sleep(ms(2)).await;
                }
                assert_eq!(here(), before);
                stream.write_all(&byte).await?;
                io::Result::Ok(Turn::Next)
            })
            .unwrap();
        let mover = keep_moving(&server, 2);
        let mut client = connect(&server);
        for _ in 0..20 {
            assert_eq!(ask(&mut client), b'?');
        }
        drop(mover);
        drop(client);
        server.stop();
        let report = block_on(server);
        assert_eq!(report.completed(), 1);
        assert!(report.moves() >= 10, "{report}");
    });
}
