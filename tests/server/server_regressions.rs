//! What once went wrong with servers and with what is around them, and must not again.

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;

use loopgroup::net::{Server, ServerHandle};
use loopgroup::{EventLoop, EventLoopGroup, PanicSite, block_on};

use crate::util::{Door, LONG, OnDrop, alone, eventually, group, poll_once, stall, within};
use crate::{connect, serve_on};

/// A place for the handle of a server that its own handler needs.
type Place = Arc<Mutex<Option<ServerHandle>>>;

#[test]
fn what_a_handler_holds_is_gone_before_its_server_has_ended() {
    within(|| {
        let workers = group(1);
        let place = Place::default();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (handle, seen) = (Arc::clone(&place), Arc::clone(&ended));
        let held = OnDrop::new(move || {
            let mut server = handle.lock().unwrap().take().unwrap();
            let ended = poll_once(&mut server).is_ready();
            seen.lock().unwrap().push(ended);
        });
        let server = serve_on(&workers)
            .serve(move |_, _| {
                let _held = &held;
                async {}
            })
            .unwrap();
        *place.lock().unwrap() = Some(server.clone());
        server.stop();
        block_on(server);
        assert_eq!(*ended.lock().unwrap(), [false]);
    });
}

#[test]
fn a_handler_that_panics_and_whose_destructor_panics_too_does_not_end_the_process() {
    let name = "a_handler_that_panics_and_whose_destructor_panics_too_does_not_end_the_process";
    alone(name, || {
        let sites = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sites);
        let workers = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |panic| seen.lock().unwrap().push(panic.site()))
            .build()
            .unwrap();
        let boss = group(1);
        let (called, released) = (Door::new(), Door::new());
        let (inside, until) = (called.clone(), released.clone());
        let held = OnDrop::new(|| panic!("in the destructor"));
        let server = serve_on(&workers)
            .boss(&boss)
            .serve(move |_, _| {
                let _held = &held;
                inside.open();
                until.pass();
                assert!(!until.is_open(), "in the handler");
                async {}
            })
            .unwrap();
        let _client = connect(&server);
        called.pass();
        // The acceptor goes first, so that the handler goes with its last connection.
        boss.drain(LONG).wait();
        released.open();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.aborted()), (1, 1));
        assert_eq!(workers.drain(LONG).wait().panicked(), 1);
        assert_eq!(
            *sites.lock().unwrap(),
            [PanicSite::Destructor, PanicSite::Task]
        );
    });
}

#[test]
fn a_connection_counts_as_open_until_the_future_of_its_handler_is_gone() {
    within(|| {
        let workers = group(1);
        let place = Place::default();
        let open = Arc::new(Mutex::new(Vec::new()));
        let (handle, seen) = (Arc::clone(&place), Arc::clone(&open));
        let server = serve_on(&workers)
            .serve(move |stream, _| {
                let (handle, seen) = (Arc::clone(&handle), Arc::clone(&seen));
                let held = OnDrop::new(move || {
                    let connections = handle.lock().unwrap().as_ref().unwrap().connections();
                    seen.lock().unwrap().push(connections);
                });
                // Unlike an async block, this one holds what it holds also when it is done.
                poll_fn(move |_| {
                    let _held = (&stream, &held);
                    Poll::Ready(())
                })
            })
            .unwrap();
        *place.lock().unwrap() = Some(server.clone());
        assert_eq!(connect(&server).read(&mut [0]).unwrap(), 0);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
        assert_eq!(*open.lock().unwrap(), [1]);
    });
}

#[test]
fn a_loop_that_accepts_for_itself_keeps_to_its_bound() {
    within(|| {
        for reuse_port in [false, true] {
            let workers = EventLoopGroup::builder()
                .loops(1)
                .max_pending_tasks(2)
                .build()
                .unwrap();
            let most = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&most);
            let server = serve_on(&workers)
                .reuse_port(reuse_port)
                .serve(move |stream, _| {
                    let seen = Arc::clone(&seen);
                    async move {
                        let pending = EventLoop::current().unwrap().pending_tasks();
                        // The one that runs has left the queue a moment ago.
                        seen.fetch_max(pending + 1, Ordering::SeqCst);
                        drop(stream);
                    }
                })
                .unwrap();
            // They come all at once.
            let release = stall(workers.next());
            let mut clients: Vec<_> = (0..32).map(|_| connect(&server)).collect();
            release.open();
            for client in &mut clients {
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
            }
            server.stop();
            let report = block_on(server);
            assert_eq!((report.completed(), report.rejected()), (32, 0));
            assert!(most.load(Ordering::SeqCst) <= 2, "{most:?}");
            // No place is lost, and none is won.
            let release = stall(workers.next());
            let tasks: Vec<_> = (0..3)
                .map(|_| workers.try_spawn(async {}).is_ok())
                .collect();
            assert_eq!(tasks, [true, true, false]);
            release.open();
        }
    });
}

#[test]
fn a_shared_port_passes_by_a_loop_that_was_shut_down_alone() {
    within(|| {
        let workers = group(2);
        workers.loops()[0].shutdown_now().wait();
        let server = serve_on(&workers).reuse_port(true);
        let server = server.serve(|_, _| async {}).unwrap();
        for _ in 0..16 {
            assert_eq!(connect(&server).read(&mut [0]).unwrap(), 0);
        }
        server.stop();
        assert_eq!(block_on(server).completed(), 16);
        workers.shutdown_now().wait();
        let server = serve_on(&workers).reuse_port(true);
        let error = server.serve(|_, _| async {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_waker_that_outlives_a_group_whose_closures_panic_when_they_go_does_not_end_the_process() {
    let name =
        "a_waker_that_outlives_a_group_whose_closures_panic_when_they_go_does_not_end_the_process";
    alone(name, || {
        let held = || OnDrop::new(|| panic!("in the destructor"));
        let (one, two, three) = (held(), held(), held());
        let (threads, thread) = mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |_| _ = &one)
            .on_thread_start(move |_| _ = &two)
            .thread_factory(move |thread| {
                let _held = &three;
                let thread = std::thread::spawn(|| thread.run());
                threads.send(thread).map_err(io::Error::other)
            })
            .build()
            .unwrap();
        let task = group.spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
        let waker = block_on(task).unwrap();
        group.shutdown_now().wait();
        drop(group);
        thread.recv().unwrap().join().unwrap();
        drop(waker); // the last one to know the group
    });
}

#[test]
fn the_handle_of_a_server_that_has_ended_keeps_nothing_of_its_loops() {
    within(|| {
        for (reuse_port, max) in [(false, 8), (true, 1)] {
            let held = Arc::new(());
            let theirs = Arc::clone(&held);
            let workers = EventLoopGroup::builder()
                .loops(2)
                .on_panic(move |_| _ = &theirs)
                .build()
                .unwrap();
            let server = serve_on(&workers)
                .reuse_port(reuse_port)
                .max_connections(max)
                .serve(|mut stream, _| async move {
                    let _ = futures::AsyncReadExt::read(&mut stream, &mut [0]).await;
                })
                .unwrap();
            // With room for one, the others' acceptors wait for it.
            let clients: Vec<_> = (0..8).map(|_| connect(&server)).collect();
            eventually("as many as may are served", || server.connections() == max);
            workers.shutdown_now().wait();
            drop((workers, clients));
            let report = block_on(server.clone());
            let ended = report.completed() + report.aborted() + report.rejected();
            assert_eq!(report.accepted(), ended);
            eventually("what the group held is gone", || {
                Arc::strong_count(&held) == 1
            });
            drop(server);
        }
    });
}

#[test]
fn one_stuck_worker_leaves_its_connections_to_the_others() {
    within(|| {
        let boss = EventLoopGroup::new(1).unwrap();
        let workers = EventLoopGroup::builder()
            .loops(2)
            .max_pending_tasks(2)
            .build()
            .unwrap();
        // Loop 0 is busy, and its queue is full.
        let release = stall(&workers.loops()[0]);
        for _ in 0..2 {
            workers.loops()[0].execute(|| ()).unwrap();
        }
        let server = Server::new("127.0.0.1:0").unwrap();
        let server = server.boss(&boss).workers(&workers);
        let server = server
            .serve(|mut stream, _| async move {
                futures::AsyncWriteExt::write_all(&mut stream, b"x")
                    .await
                    .unwrap();
            })
            .unwrap();
        for _ in 0..20 {
            let mut client = std::net::TcpStream::connect(server.local_addr()).unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        server.stop();
        block_on(server);
        release.open();
        let report = workers.drain(LONG).wait();
        assert_eq!(report.loops()[1].completed(), 20, "{report}");
        assert_eq!(report.rejected(), 0, "an offer is no refusal: {report}");
    });
}
