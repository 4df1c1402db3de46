//! `serve_with`: a handler for each loop, made and dropped there.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use futures::future::LocalBoxFuture;
use futures::io::AsyncWriteExt;
use loopgroup::net::TcpStream;
use loopgroup::{Elastic, EventLoop, EventLoopGroup, LoopThread, PanicSite, block_on};

use crate::util::{Door, HOUR, LONG, eventually, group, ms, thread_of, within};
use crate::{connect, group_that_reports, serve_on};

/// A value of one loop: counts itself, and checks that it is dropped where it was made.
struct Home {
    thread: ThreadId,
    alive: Arc<AtomicUsize>,
    calls: Cell<u8>,
}

impl Home {
    fn new(alive: &Arc<AtomicUsize>) -> Rc<Home> {
        alive.fetch_add(1, Ordering::SeqCst);
        Rc::new(Home {
            thread: thread::current().id(),
            alive: Arc::clone(alive),
            calls: Cell::new(0),
        })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        assert_eq!(thread::current().id(), self.thread, "dropped elsewhere");
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

type Served = LocalBoxFuture<'static, io::Result<()>>;

/// A handler that tells its loop, and how often it was called there.
fn tell(home: Rc<Home>, ev: &EventLoop) -> impl Fn(TcpStream, SocketAddr) -> Served + use<> {
    let index = ev.index() as u8;
    move |mut stream, _| {
        let home = Rc::clone(&home);
        Box::pin(async move {
            assert_eq!(thread::current().id(), home.thread);
            home.calls.set(home.calls.get() + 1);
            stream.write_all(&[index, home.calls.get()]).await
        })
    }
}

fn answer(client: &mut Client) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    answer
}

#[test]
fn a_factory_runs_once_on_each_loop_that_has_a_connection() {
    within(|| {
        let (boss, workers) = (group(1), group(3));
        let (alive, made) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (living, count) = (Arc::clone(&alive), Arc::clone(&made));
        let server = serve_on(&workers)
            .boss(&boss)
            .serve_with(move |ev| {
                assert!(ev.in_event_loop());
                count.fetch_add(1, Ordering::SeqCst);
                tell(Home::new(&living), ev)
            })
            .unwrap();
        assert_eq!(made.load(Ordering::SeqCst), 0, "nobody has come");
        let first = answer(&mut connect(&server));
        assert_eq!(
            (first.as_slice(), made.load(Ordering::SeqCst)),
            (&[0, 1][..], 1)
        );
        let answers: Vec<_> = (1..9).map(|_| answer(&mut connect(&server))).collect();
        let expected: Vec<_> = (1..9).map(|n| vec![n % 3, n / 3 + 1]).collect();
        assert_eq!(answers, expected);
        assert_eq!(
            (made.load(Ordering::SeqCst), alive.load(Ordering::SeqCst)),
            (3, 3)
        );
        server.stop();
        let report = block_on(server);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "the server has ended");
        assert_eq!((report.completed(), report.failed_loops()), (9, 0));
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn handlers_are_dropped_before_their_loops_and_their_server_have_ended() {
    within(|| {
        for reuse_port in [false, true] {
            let workers = group(2);
            let alive = Arc::new(AtomicUsize::new(0));
            let living = Arc::clone(&alive);
            let server = serve_on(&workers)
                .reuse_port(reuse_port)
                .serve_with(move |_| {
                    let home = Home::new(&living);
                    move |stream, _: SocketAddr| {
                        let home = Rc::clone(&home);
                        async move {
                            let _ = futures::io::copy(&stream, &mut &stream).await;
                            drop(home);
                        }
                    }
                })
                .unwrap();
            let clients: Vec<_> = (0..8).map(|_| connect(&server)).collect();
            eventually("all are served", || server.accepted() == 8);
            for mut client in &clients {
                client.write_all(b"!").unwrap();
                client.read_exact(&mut [0]).unwrap();
            }
            assert!(alive.load(Ordering::SeqCst) >= 1);
            let at_end = Arc::clone(&alive);
            let ended = thread::spawn(move || {
                let report = block_on(server);
                (report.completed(), at_end.load(Ordering::SeqCst))
            });
            assert!(workers.drain(HOUR).wait().is_clean());
            assert_eq!(alive.load(Ordering::SeqCst), 0);
            assert_eq!(ended.join().unwrap(), (8, 0));
        }
    });
}

#[test]
fn a_factory_that_panics_on_one_loop_leaves_its_connections_to_the_other() {
    within(|| {
        for reuse_port in [false, true] {
            let (workers, panics) = group_that_reports(2);
            let alive = Arc::new(AtomicUsize::new(0));
            let living = Arc::clone(&alive);
            let server = serve_on(&workers)
                .reuse_port(reuse_port)
                .serve_with(move |ev| {
                    assert_eq!(ev.index(), 0, "not on this loop");
                    tell(Home::new(&living), ev)
                })
                .unwrap();
            // With a shared port the system chooses: enough that each loop gets some.
            for _ in 0..64 {
                assert_eq!(answer(&mut connect(&server))[0], 0);
            }
            assert_eq!(server.failed_loops(), 1);
            assert_eq!(
                *panics.lock().unwrap(),
                [PanicSite::Server],
                "it is asked once"
            );
            server.stop();
            let report = block_on(server);
            assert_eq!((report.completed(), report.rejected()), (64, 0), "{report}");
            assert_eq!(report.failed_loops(), 1);
            assert_eq!(alive.load(Ordering::SeqCst), 0);
            workers.drain(LONG).wait();
        }
    });
}

#[test]
fn if_no_loop_has_a_handler_connections_are_rejected_and_the_server_goes_on() {
    within(|| {
        let workers = group(3);
        let errors = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&errors);
        let server = serve_on(&workers)
            .on_error(move |error| {
                let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
                let index = error.event_loop().index();
                seen.lock()
                    .unwrap()
                    .push((index, kind, error.peer(), error.to_string()));
            })
            .try_serve_with(|_| {
                let refused = io::Error::new(io::ErrorKind::NotFound, "no database");
                Err::<fn(TcpStream, SocketAddr) -> std::future::Ready<()>, _>(refused)
            })
            .unwrap();
        for _ in 0..10 {
            assert_eq!(answer(&mut connect(&server)), b"");
        }
        eventually("all are counted", || server.connections() == 0);
        assert_eq!((server.accepted(), server.failed_loops()), (10, 3));
        server.stop();
        let report = block_on(server);
        assert_eq!((report.rejected(), report.completed()), (10, 0));
        let mut errors = std::mem::take(&mut *errors.lock().unwrap());
        errors.sort_by_key(|(index, ..)| *index);
        let expected: Vec<_> = (0..3)
            .map(|index| {
                (
                    index,
                    Some(io::ErrorKind::NotFound),
                    None,
                    "no database".to_owned(),
                )
            })
            .collect();
        assert_eq!(errors, expected);
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_handler_whose_destructor_panics_ends_its_server_all_the_same() {
    struct Blast(AtomicBool);
    impl Drop for Blast {
        fn drop(&mut self) {
            assert!(!self.0.load(Ordering::SeqCst), "boom");
        }
    }
    within(|| {
        let (workers, panics) = group_that_reports(1);
        let server = serve_on(&workers)
            .serve_with(|_| {
                let blast = Blast(AtomicBool::new(true));
                move |_, _: SocketAddr| {
                    let _ = &blast;
                    async {}
                }
            })
            .unwrap();
        assert_eq!(answer(&mut connect(&server)), b"");
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
        assert_eq!(*panics.lock().unwrap(), [PanicSite::Destructor]);
        workers.drain(LONG).wait();
    });
}

#[test]
fn a_server_that_ends_while_its_loop_is_busy_waits_for_the_handler_to_be_dropped() {
    within(|| {
        let (boss, workers) = (group(1), group(1));
        let alive = Arc::new(AtomicUsize::new(0));
        let living = Arc::clone(&alive);
        let server = serve_on(&workers)
            .boss(&boss)
            .serve_with(move |ev| tell(Home::new(&living), ev))
            .unwrap();
        assert_eq!(answer(&mut connect(&server)), [0, 1]);
        eventually("it is over", || server.connections() == 0);
        // The last part of the server ends on the boss loop; the handler can only be dropped by its own.
        let worker = workers.loops()[0].clone();
        let home = thread_of(&worker);
        let stall = crate::util::stall(&worker);
        server.stop();
        let at_end = Arc::clone(&alive);
        let resolved = Door::new();
        let announced = resolved.clone();
        let waiting = thread::spawn(move || {
            block_on(server);
            announced.open();
            at_end.load(Ordering::SeqCst)
        });
        eventually("the listener is closed", || {
            boss.loops()[0].registered_channels() == 0
        });
        assert!(!resolved.is_open());
        assert_eq!(alive.load(Ordering::SeqCst), 1);
        stall.open();
        assert_eq!(waiting.join().unwrap(), 0);
        assert_ne!(home, thread::current().id());
    });
}

/// A group whose second loop is not needed, and what counts the threads that were started for it.
fn elastic() -> (EventLoopGroup, Arc<AtomicUsize>) {
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let factory = move |lt: LoopThread| {
        count.fetch_add(usize::from(lt.index() == 1), Ordering::SeqCst);
        thread::Builder::new().spawn(move || lt.run()).map(drop)
    };
    let builder = EventLoopGroup::builder().elastic(Elastic {
        min: 1,
        max: 2,
        patience: ms(5),
        ..Elastic::default()
    });
    (builder.thread_factory(factory).build().unwrap(), started)
}

#[test]
fn a_handler_is_dropped_when_its_loop_parks_and_made_again_for_the_next_connection() {
    within(|| {
        let (boss, (workers, started)) = (group(1), elastic());
        let second = &workers.loops()[1];
        let (alive, made) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (living, count) = (Arc::clone(&alive), Arc::clone(&made));
        let server = serve_on(&workers)
            .boss(&boss)
            .serve_with(move |ev| {
                count.fetch_add(usize::from(ev.index() == 1), Ordering::SeqCst);
                tell(Home::new(&living), ev)
            })
            .unwrap();
        for round in 1..=3 {
            // The user's pause of the first loop leaves only the second one, once that is resumed.
            workers.loops()[0].pause();
            second.resume();
            assert_eq!(answer(&mut connect(&server)), [1, 1], "a new handler");
            workers.loops()[0].resume();
            eventually("the loop is parked", || second.metrics().is_parked());
            assert_eq!(alive.load(Ordering::SeqCst), 0, "round {round}");
            assert_eq!(made.load(Ordering::SeqCst), round);
        }
        assert_eq!(started.load(Ordering::SeqCst), 3);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.failed_loops()), (3, 0));
        let started = started.load(Ordering::SeqCst);
        assert_eq!(started, 3, "no thread is started to drop what was dropped");
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_handler_whose_destructor_submits_work_keeps_its_loop_until_that_is_done() {
    struct Submits(EventLoop, Arc<AtomicUsize>);
    impl Drop for Submits {
        fn drop(&mut self) {
            let ran = Arc::clone(&self.1);
            self.0
                .execute(move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap();
        }
    }
    within(|| {
        let (boss, (workers, started)) = (group(1), elastic());
        let second = &workers.loops()[1];
        let ran = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ran);
        let server = serve_on(&workers)
            .boss(&boss)
            .serve_with(move |ev| {
                let handler = Submits(ev.clone(), Arc::clone(&count));
                move |stream, _| {
                    let _ = &handler;
                    async move { drop(stream) }
                }
            })
            .unwrap();
        workers.loops()[0].pause();
        second.resume();
        assert!(answer(&mut connect(&server)).is_empty());
        workers.loops()[0].resume();
        eventually("the loop is parked", || second.metrics().is_parked());
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        assert_eq!(started.load(Ordering::SeqCst), 1, "on the thread it had");
        server.stop();
        block_on(server);
        assert!(workers.drain(LONG).wait().is_clean());
    });
}
