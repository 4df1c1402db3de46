//! Connections come and go by the thousand, and peers send as much as they like: nothing is left of
//! them, and nothing grows with them.
//!
//! `LOOPGROUP_CONNECTS` is the number of connections, and `LOOPGROUP_MOVES` that of moves between loops;
//! 100,000 in a release build, 5,000 in a debug build.
#![cfg(target_os = "linux")]

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::panic::catch_unwind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::blocking::BlockingGroup;
use loopgroup::net::{Server, ServerHandle, TcpListener, TcpStream, Turn, UdpSocket, UnixDatagram};
use loopgroup::{EventLoop, EventLoopGroup, block_on};

use crate::allocator::{live_bytes, take_peak};
use crate::util::{
    self, Door, Progress, alone, entries, eventually, others_sleep, progress, setting, stall,
    within_for,
};

/// What a process holds, once every thread has come to rest.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    bytes: isize,
    descriptors: usize,
    threads: usize,
    /// Slots of sockets in the tables of the loops.
    slots: usize,
}

impl Held {
    fn now(group: &EventLoopGroup) -> Held {
        eventually("all threads wait", others_sleep);
        Held {
            bytes: live_bytes(),
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            slots: registered(group),
        }
    }
}

fn registered(group: &EventLoopGroup) -> usize {
    let each = group.loops().iter().map(EventLoop::registered_channels);
    each.sum()
}

/// So many of them in a debug build, twenty times as many in a release build.
const fn times(debug: usize) -> usize {
    if cfg!(debug_assertions) {
        debug
    } else {
        debug * 20
    }
}

/// Connections one after the other: the client here, the server on the other loop, both waiting for
/// each other's byte, and a reset at the end, which leaves no port behind.
async fn come_and_go(
    times: usize,
    listener: Rc<TcpListener>,
    address: SocketAddr,
    workers: EventLoop,
    progress: Progress,
) -> io::Result<usize> {
    let mut served = 0;
    for _ in 0..times {
        let (client, server) = futures::join!(TcpStream::connect(address), listener.accept());
        let (mut client, (mut server, _)) = (client?, server?);
        let serving = workers.spawn(async move {
            let mut byte = [0];
            server.read_exact(&mut byte).await?;
            server.write_all(&byte).await?;
            // Until the client is gone, one way or the other.
            server.read(&mut byte).await
        });
        client.write_all(&[7]).await?;
        let mut byte = [0];
        client.read_exact(&mut byte).await?;
        assert_eq!(byte, [7]);
        client.set_linger(Some(Duration::ZERO))?;
        drop(client);
        let error = serving.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        served += 1;
        progress.tick();
    }
    Ok(served)
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    alone("connections_that_come_and_go_leave_nothing_behind", || {
        let group = EventLoopGroup::new(2).unwrap();
        group.start().unwrap();
        let progress = progress("connection");
        let run = |times: usize| {
            let (workers, progress) = (group.loops()[1].clone(), progress.clone());
            let main = group.loops()[0].spawn_with(move || async move {
                let listener = Rc::new(TcpListener::bind("127.0.0.1:0").await?);
                let address = listener.local_addr()?;
                come_and_go(times, listener, address, workers, progress).await
            });
            assert_eq!(block_on(main).unwrap().unwrap(), times);
        };
        run(500); // tables and queues have their size then
        let before = Held::now(&group);
        let connects = setting("LOOPGROUP_CONNECTS").map_or(times(5_000), |n| n as usize);
        const PART: usize = 50_000;
        let start = Instant::now();
        for done in (0..connects).step_by(PART) {
            run(PART.min(connects - done));
            let done = connects.min(done + PART);
            let (time, held) = (start.elapsed(), Held::now(&group));
            eprintln!("{done} of {connects} connections, {time:.0?}: {held:?}");
        }
        assert_eq!(before.slots, 0);
        assert_eq!(Held::now(&group), before);
    });
}

/// Connections that are served by turns, all on one of two loops.
struct Nomads {
    workers: EventLoopGroup,
    server: ServerHandle,
    clients: Vec<Client>,
    /// The number of journeys so far, of all connections together.
    journeys: usize,
}

impl Nomads {
    fn new(boss: &EventLoopGroup, clients: usize) -> Nomads {
        let workers = EventLoopGroup::new(2).unwrap();
        workers.start().unwrap();
        let server = Server::new("127.0.0.1:0").unwrap();
        let server = server
            .boss(boss)
            .workers(&workers)
            .serve_turns(
                |_, _| (),
                async |mut stream: &TcpStream, _: &mut ()| {
                    let mut byte = [0];
                    if stream.read(&mut byte).await? == 0 {
                        return Ok(Turn::Close);
                    }
                    stream.write_all(&byte).await?;
                    io::Result::Ok(Turn::Next)
                },
            )
            .unwrap();
        let address = server.local_addr();
        Nomads {
            workers,
            server,
            clients: (0..clients)
                .map(|_| Client::connect(address).unwrap())
                .collect(),
            journeys: 0,
        }
    }

    /// Moves all to the other loop; then one of them is used.
    fn travel(&mut self) {
        let (from, to) = (self.journeys % 2, (self.journeys + 1) % 2);
        let destination = &self.workers.loops()[to];
        eventually("all have arrived", || {
            self.server.move_connections(from, to, usize::MAX);
            destination.registered_channels() == self.clients.len()
        });
        self.use_one(self.journeys / 2 % self.clients.len());
        self.journeys += 1;
    }

    /// As [`travel`](Nomads::travel), with all in each queue at the same time: that is the longest they get.
    fn travel_together(&mut self) {
        let (from, to) = (self.journeys % 2, (self.journeys + 1) % 2);
        let (source, destination) = (&self.workers.loops()[from], &self.workers.loops()[to]);
        let doors = [stall(source), stall(destination)];
        let queued = destination.pending_tasks();
        self.server.move_connections(from, to, usize::MAX);
        doors[0].open();
        eventually("all are in the queue", || {
            destination.pending_tasks() == queued + self.clients.len()
        });
        doors[1].open();
        eventually("all have arrived", || {
            destination.registered_channels() == self.clients.len()
        });
        self.journeys += 1;
    }

    /// A request of one of them.
    fn use_one(&mut self, number: usize) {
        let (client, mut byte) = (&mut self.clients[number], [7]);
        client.write_all(&byte).unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
    }
}

#[test]
fn connections_that_move_leave_nothing_behind() {
    alone("connections_that_move_leave_nothing_behind", || {
        const CLIENTS: usize = 8;
        const TOGETHER: usize = 20;
        const PART: u64 = 25_000;
        let boss = EventLoopGroup::new(1).unwrap();
        let mut nomads = Nomads::new(&boss, CLIENTS);
        let progress = progress("journey");
        // Tables and queues have their size then, and every slot of both loops was used.
        nomads.travel();
        for _ in 0..TOGETHER {
            nomads.travel_together();
            (0..CLIENTS).for_each(|number| nomads.use_one(number));
        }
        (0..times(500) + 1).for_each(|_| nomads.travel());
        let moves = setting("LOOPGROUP_MOVES").unwrap_or(times(5_000) as u64);
        let mut before = Held::now(&nomads.workers);
        assert_eq!(before.slots, CLIENTS);
        // A queue may still grow, once; what is left behind grows with every part.
        for attempt in 1.. {
            let (start, first, mut part) = (Instant::now(), nomads.server.moves(), 1);
            while nomads.server.moves() - first < moves {
                // There and back: all are where they were.
                nomads.travel();
                nomads.travel();
                progress.tick();
                let done = nomads.server.moves() - first;
                if done >= moves || done >= part * PART {
                    part += 1;
                    let (time, held) = (start.elapsed(), Held::now(&nomads.workers));
                    eprintln!("{done} of {moves} moves, {time:.1?}: {held:?}");
                }
            }
            let after = Held::now(&nomads.workers);
            if after == before {
                break;
            }
            let grown = (after.bytes - before.bytes).abs();
            assert!(attempt < 4 && grown <= 512, "{before:?}, then {after:?}");
            before.bytes = after.bytes;
            assert_eq!(after, before);
        }
        let Nomads {
            workers,
            server,
            clients,
            ..
        } = nomads;
        drop(clients);
        server.stop();
        let report = block_on(server);
        assert_eq!(report.completed(), CLIENTS as u64, "{report}");
        let end = workers.drain(util::LONG).wait();
        assert!(end.is_clean(), "{end}");
        // A move is one more task; and loops were stalled.
        let others = (CLIENTS + 2 * TOGETHER) as u64;
        assert_eq!(end.completed(), others + report.moves(), "{end}");
    });
}

#[test]
fn a_test_that_goes_on_has_all_the_time_and_one_that_stops_is_told_where() {
    let limit = Duration::from_secs(1);
    within_for(limit, move || {
        let (progress, start) = (progress("moment"), Instant::now());
        while start.elapsed() < 5 * limit / 2 {
            progress.tick();
            thread::yield_now();
        }
    });
    let stuck = || {
        within_for(limit / 10, || {
            let progress = progress("connection");
            (1..12_345).for_each(|_| progress.tick());
            Door::new().pass();
        });
    };
    let payload = catch_unwind(stuck).unwrap_err();
    let text = payload.downcast_ref::<String>().unwrap();
    assert_eq!(text, "watchdog: no progress for 100ms at connection 12,345");
}

#[test]
fn a_connection_that_is_kept_is_found() {
    alone("a_connection_that_is_kept_is_found", || {
        let group = EventLoopGroup::new(1).unwrap();
        let open = || {
            let opening = group.spawn(async {
                let socket = UdpSocket::bind("127.0.0.1:0").await?;
                // It has a slot once it was waited for.
                assert!(futures::poll!(pin!(socket.readable())).is_pending());
                io::Result::Ok(socket)
            });
            block_on(opening).unwrap().unwrap()
        };
        for _ in 0..20 {
            drop(open()); // tables and queues have their size then
        }
        let before = Held::now(&group);
        drop(open());
        assert_eq!(Held::now(&group), before, "closed again");
        let kept = open();
        let after = Held::now(&group);
        assert_eq!(after.slots, before.slots + 1);
        assert_eq!(after.descriptors, before.descriptors + 1);
        assert!(after.bytes > before.bytes);
        drop(kept);
        assert_eq!(Held::now(&group), before);
    });
}

#[test]
fn idle_connections_cost_little_memory_and_no_time() {
    const IDLE: usize = 400;
    alone("idle_connections_cost_little_memory_and_no_time", || {
        let main = async {
            let here = EventLoop::current().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let polls = Rc::new(Cell::new(0));
            // Reads what comes, and is looked at only when something does.
            let serve = |mut stream: TcpStream| {
                let polls = Rc::clone(&polls);
                let mut serving = Box::pin(async move {
                    let mut byte = [0];
                    while stream.read(&mut byte).await? == 1 {
                        stream.write_all(&byte).await?;
                    }
                    io::Result::Ok(())
                });
                loopgroup::spawn_local(std::future::poll_fn(move |cx| {
                    polls.set(polls.get() + 1);
                    serving.as_mut().poll(cx)
                }))
            };
            let mut busy = std::net::TcpStream::connect(address)?;
            let mut tasks = vec![serve(listener.accept().await?.0)];
            let mut idle = Vec::with_capacity(IDLE);
            let before = live_bytes();
            for _ in 0..IDLE {
                idle.push(std::net::TcpStream::connect(address)?);
                tasks.push(serve(listener.accept().await?.0));
            }
            while here.registered_channels() <= IDLE {
                loopgroup::yield_now().await;
            }
            let each = (live_bytes() - before) / IDLE as isize;
            eprintln!("{each} bytes for each idle connection");
            assert!(each < 512, "{each} bytes for each idle connection");
            let mut byte = [0];
            for seldom in idle.iter_mut().take(100) {
                // One that sends a byte now and then wakes its own task, and so does a busy one.
                for stream in [&mut busy, seldom] {
                    polls.set(0);
                    stream.write_all(b"x")?;
                    while polls.get() == 0 {
                        loopgroup::yield_now().await;
                    }
                    assert_eq!(polls.get(), 1, "one of {IDLE} was spoken to");
                    stream.read_exact(&mut byte)?;
                }
            }
            drop((busy, idle));
            for task in tasks {
                task.await??;
            }
            io::Result::Ok(())
        };
        loopgroup::run(main).unwrap().unwrap();
    });
}

#[test]
fn refused_connections_leave_nothing_behind() {
    alone("refused_connections_leave_nothing_behind", || {
        let group = EventLoopGroup::new(1).unwrap();
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = gone.local_addr().unwrap();
        drop(gone);
        let progress = progress("connection");
        let run = |times: usize| {
            let progress = progress.clone();
            let main = group.spawn(async move {
                for _ in 0..times {
                    let error = TcpStream::connect(address).await.unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                    progress.tick();
                }
            });
            block_on(main).unwrap();
        };
        run(50);
        // Few of them have to wait; tables have their size when one has waited and was woken.
        let waited = group.spawn(async {
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            let mut readable = pin!(socket.readable());
            assert!(futures::poll!(&mut readable).is_pending());
            socket.send_to(b"x", socket.local_addr()?).await?;
            readable.await
        });
        block_on(waited).unwrap().unwrap();
        let before = Held::now(&group);
        run(times(2_000));
        assert_eq!(before.slots, 0);
        assert_eq!(Held::now(&group), before);
    });
}

#[test]
fn a_crowd_of_blocking_jobs_leaves_no_room_behind() {
    const CROWD: usize = 50_000;
    alone("a_crowd_of_blocking_jobs_leaves_no_room_behind", || {
        let group = BlockingGroup::new(1).unwrap();
        block_on(group.spawn(|| ())).unwrap(); // the thread is there then
        eventually("all threads wait", others_sleep);
        let before = live_bytes();
        let (release, blocked) = mpsc::channel::<()>();
        drop(group.spawn(move || blocked.recv()));
        for _ in 0..CROWD {
            drop(group.spawn(|| ()));
        }
        assert!(
            live_bytes() - before > 8 * CROWD as isize,
            "a word each at least"
        );
        release.send(()).unwrap();
        block_on(group.spawn(|| ())).unwrap(); // the last one: the queue is empty
        drop(release);
        eventually("all threads wait", others_sleep);
        let kept = live_bytes() - before;
        assert!(kept < 16 << 10, "{kept} bytes are kept for a crowd");
    });
}

#[test]
fn a_crowd_of_tasks_leaves_no_room_behind() {
    const CROWD: usize = 200_000;
    alone("a_crowd_of_tasks_leaves_no_room_behind", || {
        let group = EventLoopGroup::new(1).unwrap();
        let ev = group.next().clone();
        let round = || {
            let release = util::stall(&ev);
            let door = util::Door::new();
            for _ in 0..CROWD {
                drop(ev.spawn(door.opened())); // queued, and live after that
            }
            release.open();
            eventually("they wait", || ev.live_tasks() == CROWD);
            door.open();
            eventually("they have ended", || ev.live_tasks() == 0);
            eventually("all threads wait", others_sleep);
        };
        block_on(ev.submit(|| ())).unwrap();
        eventually("all threads wait", others_sleep);
        let before = live_bytes();
        round();
        // A sleep gives one of the two buffers of the inbox back, and the next one the other.
        for _ in 0..3 {
            block_on(ev.submit(|| ())).unwrap();
            eventually("all threads wait", others_sleep);
        }
        let kept = live_bytes() - before;
        assert!(kept < 256 << 10, "{kept} bytes are kept for a crowd");
    });
}

#[test]
fn a_peer_that_never_reads_costs_no_memory_and_its_writer_can_be_cancelled() {
    const NAME: &str = "a_peer_that_never_reads_costs_no_memory_and_its_writer_can_be_cancelled";
    alone(NAME, || {
        let group = EventLoopGroup::new(1).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let before = entries("/proc/self/fd");
        let (tx, rx) = mpsc::channel();
        let writing = group.spawn(async move {
            let stream = TcpStream::connect(address).await.unwrap();
            let (peer, _) = listener.accept().unwrap(); // it waits already
            stream.set_send_buffer_size(16 << 10).unwrap();
            let block = [7; 16 << 10];
            let (mut sent, mut waits, mut first) = (0_usize, 0, 0);
            // Until it would not go on for as long as anybody has tried.
            while waits < 10_000 {
                match futures::poll!((&stream).write(&block)) {
                    Poll::Ready(n) => {
                        sent += n.unwrap();
                        waits = 0;
                    }
                    Poll::Pending => waits += 1,
                }
                if waits == 1 {
                    eventually("the test waits", others_sleep);
                    first = live_bytes();
                }
                loopgroup::yield_now().await;
            }
            let last = live_bytes();
            tx.send((sent, first, last, peer, listener)).unwrap();
            (&stream).write_all(&block).await.unwrap();
            unreachable!("there is no room");
        });
        let (sent, first, last, peer, _listener) = rx.recv().unwrap();
        assert!((1..64 << 20).contains(&sent), "{sent} bytes were taken");
        assert_eq!(first, last, "ten thousand tries, and not a byte more");
        assert!(!writing.is_finished());
        assert_eq!(registered(&group), 1);
        assert_eq!(entries("/proc/self/fd"), before + 2);
        writing.abort();
        eventually("the stream is dropped", || registered(&group) == 0);
        drop(peer);
        eventually("it is closed", || entries("/proc/self/fd") == before);
    });
}

#[test]
fn what_a_peer_sends_is_never_allocated_for() {
    const VOLUME: usize = if cfg!(debug_assertions) {
        32 << 20
    } else {
        256 << 20
    };
    const BUFFER: usize = 4 << 10;
    alone("what_a_peer_sends_is_never_allocated_for", || {
        eventually("all threads wait", others_sleep);
        let progress = progress("read");
        let main = async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let mut peer = std::net::TcpStream::connect(listener.local_addr()?)?;
            let (mut stream, _) = listener.accept().await?;
            let (one, other) = UnixDatagram::pair()?;
            let flooding = thread::spawn(move || {
                // It announces more than there is memory, and sends a lot.
                let mut block = [0; 64 << 10];
                block[..8].copy_from_slice(&u64::MAX.to_be_bytes());
                for _ in 0..VOLUME / block.len() {
                    peer.write_all(&block).unwrap();
                }
            });
            let datagram = vec![0; 60 << 10];
            let mut buf = [0; BUFFER];
            stream.read_exact(&mut buf[..8]).await?;
            take_peak();
            let mut read = 8;
            while read < VOLUME {
                let n = stream.read(&mut buf).await?;
                assert_ne!(n, 0);
                read += n;
                progress.tick();
            }
            for _ in 0..100 {
                one.send(&datagram).await?;
                assert_eq!(other.recv(&mut buf).await?, BUFFER, "cut off");
            }
            let peak = take_peak();
            assert!(peak < 4 << 10, "{peak} bytes at the most");
            flooding.join().unwrap();
            io::Result::Ok(())
        };
        loopgroup::run(main).unwrap().unwrap();
    });
}
