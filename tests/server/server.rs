//! The boss/worker server: who serves whom, what waits, and how it ends.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as Client};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, ServerHandle, TcpStream};
use loopgroup::{
    EventLoop, EventLoopGroup, RejectPolicy, RejectVerdict, block_on, shutdown_requested,
};

use crate::util::{self, Door, LONG, alone_after, entries, eventually, group, stall, within};
use crate::{connect, serve_on};

/// One byte there and back.
fn ask(client: &mut Client) -> u8 {
    client.write_all(b"?").unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    answer[0]
}

/// Whether the server has closed this connection, in whatever way.
fn is_closed(client: &mut Client) -> bool {
    !matches!(client.read(&mut [0]), Ok(1..))
}

async fn echo(stream: TcpStream, _peer: SocketAddr) {
    let _ = futures::io::copy(&stream, &mut &stream).await;
}

/// Answers every byte with the index of its loop.
async fn tell_home(mut stream: TcpStream, _peer: SocketAddr) {
    let home = EventLoop::current().unwrap();
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte).await {
        assert!(home.in_event_loop());
        assert_eq!(stream.event_loop().as_ref().unwrap_or(&home), &home);
        if stream.write_all(&[home.index() as u8]).await.is_err() {
            break;
        }
    }
}

#[test]
fn connections_go_round_the_workers_one_next_each() {
    within(|| {
        let (boss, workers) = (group(1), group(4));
        let server = serve_on(&workers).boss(&boss).serve(tell_home).unwrap();
        let mut homes = Vec::new();
        let mut clients = Vec::new();
        for _ in 0..64 {
            let mut client = connect(&server);
            homes.push(ask(&mut client)); // one after the other, so that the order is known
            clients.push(client);
        }
        let expected: Vec<u8> = (0..64).map(|n| n % 4).collect();
        assert_eq!(homes, expected);
        assert_eq!((server.accepted(), server.connections()), (64, 64));
        for _ in 0..3 {
            let again: Vec<u8> = clients.iter_mut().map(ask).collect();
            assert_eq!(again, expected, "a connection stays where it is");
        }
        assert_eq!(
            workers
                .loops()
                .iter()
                .map(EventLoop::registered_channels)
                .collect::<Vec<_>>(),
            [16; 4]
        );
        assert_eq!(boss.loops()[0].registered_channels(), 1, "the listener");
        drop(clients);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (64, 64));
        assert_eq!(
            (report.aborted(), report.rejected(), report.accept_errors()),
            (0, 0, 0)
        );
        assert!(workers.drain(LONG).wait().is_clean());
        assert!(boss.drain(LONG).wait().is_clean());
    });
}

#[test]
fn the_topologies_of_netty_all_serve() {
    within(|| {
        for (bosses, workers, reuse_port) in [
            (0, 1, false),
            (0, 3, false),
            (1, 2, false),
            (2, 2, false),
            (0, 2, true),
            (1, 2, true),
        ] {
            let boss = (bosses > 0).then(|| group(bosses));
            let workers = group(workers);
            let mut server = serve_on(&workers).reuse_port(reuse_port);
            if let Some(boss) = &boss {
                server = server.boss(boss);
            }
            let server = server.serve(tell_home).unwrap();
            let mut clients: Vec<_> = (0..12).map(|_| connect(&server)).collect();
            for client in &mut clients {
                assert!(usize::from(ask(client)) < workers.len());
            }
            drop(clients);
            server.stop();
            assert_eq!(block_on(server).completed(), 12);
            assert!(workers.drain(LONG).wait().is_clean());
        }
    });
}

#[test]
fn handlers_are_made_polled_and_dropped_on_their_loop_and_may_hold_what_is_not_send() {
    struct Here(ThreadId, Arc<AtomicUsize>);
    impl Drop for Here {
        fn drop(&mut self) {
            assert_eq!(thread::current().id(), self.0);
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    within(|| {
        let workers = group(2);
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&drops);
        let server = serve_on(&workers)
            .serve(move |mut stream, _| {
                let here = Here(thread::current().id(), Arc::clone(&counted));
                let bytes = Rc::new(Cell::new(0));
                async move {
                    let mut buf = [0; 16];
                    while let Ok(read @ 1..) = stream.read(&mut buf).await {
                        assert_eq!(thread::current().id(), here.0);
                        bytes.set(bytes.get() + read);
                        stream.write_all(&buf[..read]).await.unwrap();
                        if buf[0] == b'x' {
                            std::future::pending::<()>().await;
                        }
                    }
                }
            })
            .unwrap();
        let mut clients: Vec<_> = (0..10).map(|_| connect(&server)).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(ask(client), b'?');
            if n < 5 {
                client.write_all(b"x").unwrap();
                client.read_exact(&mut [0]).unwrap();
            }
        }
        // Half of them end by themselves, the others never would.
        drop(clients.split_off(5));
        eventually("five are gone", || server.connections() == 5);
        workers.shutdown_now().wait();
        let report = block_on(server);
        assert_eq!((report.completed(), report.aborted()), (5, 5));
        assert_eq!(drops.load(Ordering::SeqCst), 10);
    });
}

#[test]
fn connections_above_the_limit_wait_in_the_backlog_and_none_is_lost() {
    within(|| {
        for reuse_port in [false, true] {
            let workers = group(2);
            let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let counts = (Arc::clone(&now), Arc::clone(&most));
            let server = serve_on(&workers)
                .max_connections(3)
                .reuse_port(reuse_port)
                .serve(move |stream, peer| {
                    let (now, most) = (Arc::clone(&counts.0), Arc::clone(&counts.1));
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    async move {
                        echo(stream, peer).await;
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                })
                .unwrap();
            let mut clients: Vec<_> = (0..40).map(|_| connect(&server)).collect();
            for client in &mut clients {
                client.write_all(b"?").unwrap(); // nobody waits for an answer yet
            }
            eventually("the first three are in", || server.accepted() == 3);
            assert_eq!(server.connections(), 3);
            // Whoever is answered leaves, and the next one comes in; the order is the system's.
            for client in &clients {
                client.set_nonblocking(true).unwrap();
            }
            while !clients.is_empty() {
                clients.retain_mut(|client| client.read(&mut [0]).is_err());
                thread::yield_now();
            }
            eventually("all are done", || server.connections() == 0);
            assert_eq!(server.accepted(), 40);
            assert!(most.load(Ordering::SeqCst) <= 3);
            server.stop();
            assert_eq!(block_on(server).completed(), 40);
        }
    });
}

#[test]
fn bursts_of_every_size_are_accepted_after_connections_that_came_one_by_one() {
    within(|| {
        let (boss, workers) = (group(1), group(1));
        let server = serve_on(&workers).boss(&boss).serve(tell_home).unwrap();
        let mut clients = Vec::new();
        for size in (1..40).chain([200]) {
            // One by one, until the acceptor no longer tries a second accept after each.
            for _ in 0..3 {
                ask(&mut connect(&server));
            }
            // All of them wait in the backlog when the acceptor runs again.
            let door = stall(&boss.loops()[0]);
            clients.extend((0..size).map(|_| connect(&server)));
            door.open();
            // No other connection comes that would wake the acceptor for those it had missed.
            for mut client in clients.drain(..) {
                ask(&mut client);
            }
        }
        let served: u64 = (1..40).chain([200]).map(|size| size + 3).sum();
        assert_eq!(server.accepted(), served);
    });
}

#[test]
fn stop_refuses_newcomers_and_lets_open_connections_finish() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers).serve(echo).unwrap();
        let mut client = connect(&server);
        assert_eq!(ask(&mut client), b'?');
        let mut end = server.clone();
        server.stop();
        server.stop(); // once more changes nothing
        eventually("the listener is closed", || {
            Client::connect(server.local_addr()).is_err()
        });
        assert!(
            util::poll_once(&mut end).is_pending(),
            "a connection is open"
        );
        assert_eq!(ask(&mut client), b'?', "and still served");
        client.shutdown(Shutdown::Write).unwrap();
        assert!(is_closed(&mut client));
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (1, 1));
        assert_eq!(block_on(end).accepted(), 1, "every handle sees the end");
    });
}

#[test]
fn the_port_is_free_when_the_server_has_ended() {
    within(|| {
        let workers = group(2);
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        for round in 0..50 {
            let server = Server::new(address).unwrap().workers(&workers);
            let server = server.reuse_port(round % 2 == 1).serve(echo).unwrap();
            address = server.local_addr();
            assert_eq!(ask(&mut connect(&server)), b'?');
            server.stop();
            block_on(server);
        }
    });
}

#[test]
fn a_server_whose_handle_is_dropped_goes_on() {
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers).serve(echo).unwrap();
        let address = server.local_addr();
        drop(server);
        assert_eq!(ask(&mut Client::connect(address).unwrap()), b'?');
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn panics_of_handlers_end_their_connection_and_nothing_else() {
    within(|| {
        let sites = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sites);
        let workers = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |panic| {
                let file = panic.location().map(|location| location.file());
                seen.lock().unwrap().push(file);
            })
            .build()
            .unwrap();
        let calls = AtomicUsize::new(0);
        let server = serve_on(&workers)
            .serve(move |stream, peer| {
                let call = calls.fetch_add(1, Ordering::SeqCst);
                assert!(call != 1, "while the future is made");
                async move {
                    assert!(call != 0, "while it is polled");
                    echo(stream, peer).await;
                }
            })
            .unwrap();
        assert!(is_closed(&mut connect(&server)));
        assert!(is_closed(&mut connect(&server)));
        assert_eq!(ask(&mut connect(&server)), b'?');
        server.stop();
        let report = block_on(server);
        assert_eq!(
            (report.completed(), report.aborted(), report.rejected()),
            (1, 2, 0)
        );
        assert_eq!(*sites.lock().unwrap(), [Some(file!()), Some(file!())]);
        assert_eq!(workers.drain(LONG).wait().panicked(), 2);
    });
}

#[test]
fn the_shutdown_of_the_boss_closes_the_listener_and_no_connection() {
    within(|| {
        let (boss, workers) = (group(1), group(1));
        let server = serve_on(&workers).boss(&boss).serve(echo).unwrap();
        let mut client = connect(&server);
        assert_eq!(ask(&mut client), b'?');
        let report = boss.drain(LONG).wait();
        assert!(
            report.is_clean() && report.elapsed() < LONG,
            "the acceptor ends by itself"
        );
        assert!(Client::connect(server.local_addr()).is_err());
        assert_eq!(ask(&mut client), b'?');
        drop(client);
        assert_eq!(block_on(server).completed(), 1);
    });
}

#[test]
fn the_shutdown_of_all_workers_ends_the_server_on_its_boss() {
    within(|| {
        let (boss, workers) = (group(1), group(2));
        let server = serve_on(&workers)
            .boss(&boss)
            .serve(|mut stream, _| async move {
                let mut byte = [0];
                while let Ok(1) = stream.read(&mut byte).await {
                    let home = EventLoop::current().unwrap().index();
                    stream.write_all(&[home as u8]).await.unwrap();
                    shutdown_requested().await;
                    stream.write_all(b".").await.unwrap();
                }
            })
            .unwrap();
        let mut client = connect(&server);
        let home = ask(&mut client);
        // One worker alone is passed by, and the server goes on.
        workers.loops()[1 - usize::from(home)].shutdown_now().wait();
        assert_eq!(ask(&mut connect(&server)), home);
        let end = workers.drain(LONG);
        let mut last = [0];
        client.read_exact(&mut last).unwrap();
        assert_eq!(&last, b".", "the handler was told");
        drop(client);
        end.wait();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (2, 2));
        assert_eq!(boss.loops()[0].registered_channels(), 0);
        assert!(boss.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_handler_that_returns_because_its_loop_ended_by_force_is_aborted_whatever_it_returns() {
    within(|| {
        for swallows in [false, true] {
            let workers = group(1);
            let server = serve_on(&workers)
                .end_reads_on_shutdown(false)
                .serve(move |mut stream, _| async move {
                    let read = stream.read(&mut [0]).await.map(drop);
                    if swallows { Ok(()) } else { read }
                })
                .unwrap();
            let (_waits, leaves) = (connect(&server), connect(&server));
            eventually("both are served", || server.connections() == 2);
            drop(leaves);
            eventually("one has left", || server.connections() == 1);
            let report = workers.drain(util::ms(20)).wait();
            assert_eq!(report.left().len(), 1);
            let report = block_on(server);
            assert_eq!((report.completed(), report.aborted()), (1, 1), "{report}");
            assert_eq!(report.failed(), 0, "{report}");
        }
    });
}

#[test]
fn a_report_counts_one_connection_and_two_connections() {
    within(|| {
        let workers = group(1);
        for (connections, begins) in [
            (1, "1 connection accepted ="),
            (2, "2 connections accepted ="),
        ] {
            let server = serve_on(&workers).serve(|_, _| async {}).unwrap();
            (0..connections).for_each(|_| drop(connect(&server)));
            eventually("all are accepted", || server.accepted() == connections);
            server.stop();
            let text = block_on(server).to_string();
            assert!(text.starts_with(begins), "{text}");
            assert!(text.ends_with("; 0 accept errors"), "{text}");
        }
    });
}

#[test]
fn a_server_keeps_no_group_alive() {
    within(|| {
        let (boss, workers) = (group(1), group(1));
        let server = serve_on(&workers).boss(&boss).serve(echo).unwrap();
        assert_eq!(ask(&mut connect(&server)), b'?');
        let end = workers.termination();
        drop(workers);
        end.wait();
        assert_eq!(block_on(server).accepted(), 1);
        let end = boss.termination();
        drop(boss);
        end.wait();
    });
}

#[test]
fn an_acceptor_waits_for_workers_with_full_queues() {
    within(|| {
        let boss = group(1);
        static REFUSALS: AtomicUsize = AtomicUsize::new(0);
        let workers = EventLoopGroup::builder()
            .loops(1)
            .max_pending_tasks(1)
            .reject_policy(RejectPolicy::Custom(|_, _| {
                REFUSALS.fetch_add(1, Ordering::SeqCst);
                RejectVerdict::Reject
            }))
            .build()
            .unwrap();
        let server = serve_on(&workers).boss(&boss).serve(echo).unwrap();
        let release = stall(workers.next());
        let mut clients: Vec<_> = (0..8).map(|_| connect(&server)).collect();
        // One is in the worker's queue, one in the acceptor's hands, the others wait in the backlog.
        eventually("the second is accepted", || server.accepted() == 2);
        eventually("the second is refused", || {
            REFUSALS.load(Ordering::SeqCst) > 1
        });
        assert_eq!(server.accepted(), 2);
        release.open();
        for client in &mut clients {
            assert_eq!(ask(client), b'?');
        }
        drop(clients);
        server.stop();
        let report = block_on(server);
        assert_eq!(
            (report.accepted(), report.completed(), report.rejected()),
            (8, 8, 0)
        );
    });
}

#[test]
fn a_connection_that_no_worker_takes_is_counted() {
    within(|| {
        let boss = group(1);
        let workers = EventLoopGroup::builder()
            .loops(1)
            .max_pending_tasks(1)
            .build()
            .unwrap();
        let server = serve_on(&workers).boss(&boss).serve(echo).unwrap();
        let release = stall(workers.next());
        let mut clients: Vec<_> = (0..2).map(|_| connect(&server)).collect();
        eventually("both are accepted", || server.accepted() == 2);
        server.stop(); // with one in the worker's queue and one in hand
        assert!(is_closed(&mut clients[1]));
        release.open();
        assert_eq!(ask(&mut clients[0]), b'?');
        drop(clients);
        let report = block_on(server);
        assert_eq!(
            (report.accepted(), report.completed(), report.rejected()),
            (2, 1, 1)
        );
    });
}

#[test]
fn with_a_shared_port_each_loop_accepts_and_keeps_its_own() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers)
            .reuse_port(true)
            .serve(tell_home)
            .unwrap();
        eventually("a listener each", || {
            workers
                .loops()
                .iter()
                .all(|ev| ev.registered_channels() == 1)
        });
        let mut clients: Vec<_> = (0..64).map(|_| connect(&server)).collect();
        let homes: Vec<_> = clients.iter_mut().map(ask).collect();
        for (index, ev) in workers.loops().iter().enumerate() {
            let served = homes
                .iter()
                .filter(|&&home| usize::from(home) == index)
                .count();
            assert_eq!(ev.registered_channels(), 1 + served);
            assert!(served > 0, "the system spreads them: {homes:?}");
        }
        drop(clients);
        server.stop();
        assert_eq!(block_on(server).completed(), 64);
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn what_a_server_cannot_use_is_an_error_that_says_so() {
    within(|| {
        let workers = group(1);
        let error = |result: io::Result<ServerHandle>, kind, words: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        };
        use io::ErrorKind::{AddrInUse, BrokenPipe, InvalidInput, Unsupported};
        let bound = || Server::new("127.0.0.1:0").unwrap();
        error(bound().serve(echo), InvalidInput, "workers(&group)");
        let server = bound().workers(&workers).max_connections(0);
        error(server.serve(echo), InvalidInput, "max_connections(0)");
        let server = bound().workers(&workers).backlog(0);
        error(server.serve(echo), InvalidInput, "backlog(0)");
        let executors = EventLoopGroup::builder()
            .loops(1)
            .without_io()
            .build()
            .unwrap();
        error(
            bound().workers(&executors).serve(echo),
            Unsupported,
            "the workers group was built without_io",
        );
        let server = bound().workers(&workers).boss(&executors);
        error(server.serve(echo), Unsupported, "the boss group");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let server = Server::new(address).unwrap().workers(&workers);
        error(server.serve(echo), AddrInUse, &address.to_string());
        let ended = group(1);
        ended.shutdown_now().wait();
        let server = bound().workers(&ended);
        error(server.serve(echo), BrokenPipe, "the workers group");
        let server = bound().boss(&workers).workers(&ended);
        error(server.serve(echo), BrokenPipe, "the workers group");
        let server = bound().boss(&ended).workers(&workers);
        error(server.serve(echo), BrokenPipe, "the boss group");

        for nonsense in [
            "",
            "nonsense",
            "127.0.0.1",
            "127.0.0.1:port",
            "127.0.0.1:70000",
        ] {
            let error = Server::new(nonsense).unwrap_err();
            assert!(
                error.to_string().contains("host:port"),
                "{nonsense:?}: {error}"
            );
        }
        let error = Server::new(&[][..]).unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn out_of_descriptors_it_waits_without_spinning_and_then_serves_the_backlog() {
    let name = "out_of_descriptors_it_waits_without_spinning_and_then_serves_the_backlog";
    alone_after("ulimit -n 64", name, || {
        let workers = group(1);
        let server = serve_on(&workers).serve(echo).unwrap();
        assert_eq!(ask(&mut connect(&server)), b'?');
        // Sockets that need no descriptor more to connect.
        let sockets: Vec<_> = (0..5)
            .map(|_| {
                let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::STREAM);
                socket2::Socket::new(domain, kind, None).unwrap()
            })
            .collect();
        let mut fillers = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            fillers.push(file);
        }
        let mut clients: Vec<Client> = sockets
            .into_iter()
            .map(|socket| {
                socket.connect(&server.local_addr().into()).unwrap();
                Client::from(socket)
            })
            .collect();
        eventually("accepts fail", || server.accept_errors() >= 4);
        let error = server.last_accept_error().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        let (errors, start) = (server.accept_errors(), Instant::now());
        drop(fillers);
        // Nobody new comes, and nothing is heard from the selector: the timer does it.
        for client in &mut clients {
            assert_eq!(ask(client), b'?');
        }
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        assert!(server.accept_errors() <= errors + 2);
        drop(clients);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (6, 6));
        assert!(report.accept_errors() < 12, "it does not spin: {report}");
        assert!(entries("/proc/self/fd") < 64);
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn stop_is_heard_while_descriptors_or_room_are_waited_for() {
    within(|| {
        let workers = group(1);
        let server = serve_on(&workers).max_connections(1).serve(echo).unwrap();
        let mut first = connect(&server);
        assert_eq!(ask(&mut first), b'?');
        let mut second = connect(&server);
        server.stop();
        assert!(is_closed(&mut second), "it was never accepted");
        drop(first);
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (1, 1));
    });
}

#[test]
fn a_handle_can_be_awaited_on_the_loops_themselves() {
    within(|| {
        let workers = group(2);
        let server = serve_on(&workers).serve(echo).unwrap();
        let opened = Door::new();
        let (door, handle) = (opened.clone(), server.clone());
        let report = workers.spawn(async move {
            door.open();
            handle.await
        });
        opened.pass();
        assert_eq!(ask(&mut connect(&server)), b'?');
        server.stop();
        assert_eq!(block_on(report).unwrap().completed(), 1);
    });
}
