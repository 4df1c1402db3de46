//! Where parking meets something else: starts that fail, ends, sockets that come and go, guards, factories.

use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Instant;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream, Turn};
use loopgroup::{
    Builder, Elastic, EventLoop, EventLoopGroup, LoopThread, RejectReason, block_on, yield_now,
};

use crate::util::{Door, LONG, eventually, ms, stall, within};

/// A group of two loops, of which the second one is not needed.
fn builder() -> Builder {
    EventLoopGroup::builder().elastic(Elastic {
        min: 1,
        max: 2,
        patience: ms(5),
        ..Elastic::default()
    })
}

fn second(group: &EventLoopGroup) -> EventLoop {
    group.loops()[1].clone()
}

fn is_parked(ev: &EventLoop) -> bool {
    ev.metrics().is_parked()
}

fn park(ev: &EventLoop) {
    block_on(ev.submit(|| ())).unwrap();
    eventually("the loop is parked", || is_parked(ev));
}

/// How a factory fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Error,
    /// It drops the `LoopThread`, and says that all is well.
    Drop,
}

/// Loops whose threads cannot be started while the flag is set.
fn failing(failure: Failure) -> (EventLoopGroup, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&fails);
    let factory = move |lt: LoopThread| match (flag.load(Ordering::SeqCst), failure) {
        (false, _) => thread::Builder::new().spawn(move || lt.run()).map(drop),
        (true, Failure::Error) => Err(io::ErrorKind::OutOfMemory.into()),
        (true, Failure::Drop) => Ok(()),
    };
    (builder().thread_factory(factory).build().unwrap(), fails)
}

#[test]
fn an_end_does_not_wait_for_a_thread_that_cannot_be_started_again() {
    within(|| {
        for failure in [Failure::Error, Failure::Drop] {
            for hook in [true, false] {
                let (group, fails) = failing(failure);
                let ev = second(&group);
                park(&ev);
                // Either way the loop needs its thread for the end.
                match hook {
                    true => drop(ev.add_shutdown_hook(|| ()).unwrap()),
                    false => ev.lazy_execute(|| ()).unwrap(),
                }
                fails.store(true, Ordering::SeqCst);
                let end = group.drain(LONG);
                let report = end
                    .wait_timeout(LONG / 2)
                    .expect("the drain ends by itself");
                let lost = &report.loops()[1];
                assert_eq!(lost.cancelled(), u64::from(!hook), "{failure:?}: {report}");
                assert!(lost.error().is_some() && !report.is_clean(), "{report}");
            }
        }
    });
}

#[test]
fn a_factory_that_waits_for_the_loop_it_starts_again_is_refused() {
    within(|| {
        let target: Arc<OnceLock<EventLoop>> = Arc::default();
        let known = Arc::clone(&target);
        let (tell, told) = mpsc::channel();
        let factory = move |lt: LoopThread| {
            if let Some(ev) = known.get().filter(|ev| ev.index() == lt.index()) {
                let refused = block_on(ev.spawn(async {})).unwrap_err();
                tell.send(refused.reject_reason()).unwrap();
            }
            thread::Builder::new().spawn(move || lt.run()).map(drop)
        };
        let group = builder().thread_factory(factory).build().unwrap();
        let ev = second(&group);
        park(&ev);
        target.set(ev.clone()).unwrap();
        block_on(ev.spawn(async {})).unwrap();
        let reason = told.recv().unwrap();
        assert_eq!(
            reason,
            Some(RejectReason::ThreadStart(io::ErrorKind::Deadlock))
        );
        assert!(group.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_guard_that_waits_for_its_loop_is_refused_when_the_loop_parks() {
    struct Guard(EventLoop, mpsc::Sender<bool>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let handle = self.0.spawn(async {});
            let wait = std::panic::AssertUnwindSafe(|| block_on(handle).is_ok());
            let refused = std::panic::catch_unwind(wait).is_err();
            self.1.send(refused).unwrap();
        }
    }
    within(|| {
        let (tell, told) = mpsc::channel();
        let start = move |ev: &EventLoop| Guard(ev.clone(), tell.clone());
        let group = builder().on_thread_start(start).build().unwrap();
        let ev = second(&group);
        block_on(ev.submit(|| ())).unwrap();
        assert!(told.recv().unwrap(), "a wait that could not end");
        // What the guard has submitted runs: by then it is the work of the loop, which keeps its thread.
        eventually("it has run", || ev.metrics().completed() >= 2);
        let report = group.shutdown_now().wait();
        assert_eq!(
            report.accepted(),
            report.completed() + report.cancelled(),
            "{report}"
        );
    });
}

#[test]
fn wait_returns_after_the_thread_of_a_loop_that_has_parked() {
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    struct Last(OnceLock<Door>);
    impl Drop for Last {
        fn drop(&mut self) {
            block_on(self.0.get().expect("it is set at once").opened());
            LEFT.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local!(static LAST: Last = const { Last(OnceLock::new()) });
    within(|| {
        let group = builder().build().unwrap();
        let (ev, door) = (second(&group), Door::new());
        let inside = door.clone();
        let set = move || LAST.with(|last| last.0.set(inside).is_ok());
        assert!(block_on(ev.submit(set)).unwrap());
        eventually("the loop is parked", || is_parked(&ev));
        let end = group.drain(LONG);
        end.wait_timeout(LONG)
            .expect("the loops end without that thread");
        assert_eq!(LEFT.load(Ordering::SeqCst), 0);
        door.open();
        end.wait();
        assert_eq!(LEFT.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_group_at_rest_ends_without_a_thread_for_its_parked_loop() {
    within(|| {
        let starts = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&starts);
        let start = move |_: &EventLoop| counter.fetch_add(1, Ordering::SeqCst);
        let group = builder().on_thread_start(start).build().unwrap();
        park(&second(&group));
        assert!(group.drain(LONG).wait().is_clean());
        assert_eq!(starts.load(Ordering::SeqCst), 1);
    });
}

/// A stream that loop `home` watches, and its peer.
fn watched_by(home: &EventLoop) -> (TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let task = home.spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.read_exact(&mut [0; 1]).await.unwrap();
        stream
    });
    let (mut peer, _) = listener.accept().unwrap();
    eventually("it waits for a byte", || home.registered_channels() == 1);
    block_on(home.submit(|| ())).unwrap();
    peer.write_all(b"a").unwrap();
    (block_on(task).unwrap(), peer)
}

#[test]
fn a_loop_whose_last_socket_is_dropped_elsewhere_parks() {
    within(|| {
        let group = builder().build().unwrap();
        let ev = second(&group);
        let (stream, _peer) = watched_by(&ev);
        // Longer than its patience: by now it sleeps without an end.
        let until = Instant::now() + ms(50);
        while Instant::now() < until {
            assert!(!is_parked(&ev));
        }
        drop(stream);
        eventually("the loop is parked", || is_parked(&ev));
    });
}

#[test]
fn a_group_whose_polls_are_longer_than_its_patience_gets_another_loop() {
    within(|| {
        let group = builder().build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let busy = || {
            let stop = Arc::clone(&stop);
            group.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let end = Instant::now() + ms(15);
                    while Instant::now() < end {}
                    yield_now().await;
                }
            })
        };
        let tasks: Vec<_> = (0..4).map(|_| busy()).collect();
        eventually("another loop is active", || !second(&group).is_paused());
        stop.store(true, Ordering::Relaxed);
        tasks.into_iter().for_each(|task| block_on(task).unwrap());
    });
}

#[test]
fn a_connection_returns_to_a_loop_whose_queue_is_full() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(2).max_pending_tasks(1);
        let group = builder.build().unwrap();
        group.start().unwrap();
        let answer = async |mut stream: &TcpStream, (): &mut ()| -> io::Result<Turn> {
            let mut byte = [0];
            if stream.read(&mut byte).await? == 0 {
                return Ok(Turn::Close);
            }
            stream.write_all(&byte).await?;
            Ok(Turn::Next)
        };
        let server = Server::new("127.0.0.1:0").unwrap().workers(&group);
        let server = server.serve_turns(|_, _| (), answer).unwrap();
        let mut client = std::net::TcpStream::connect(server.local_addr()).unwrap();
        let mut ask = || {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        };
        ask();
        let asked = server.move_connections(0, 1, 1);
        eventually("it is on the second loop", || {
            server.moves() == asked as u64
        });
        let from = 1;
        ask();
        let (origin, target) = (&group.loops()[from], &group.loops()[1 - from]);
        let held = stall(target);
        assert_eq!(server.move_connections(from, 1 - from, 1), 1);
        eventually("it is in the queue of the target", || {
            target.pending_tasks() == 1
        });
        let full = stall(origin);
        let filler = origin.spawn(async {});
        assert_eq!(origin.pending_tasks(), 1);
        let end = target.shutdown_now();
        held.open();
        end.wait();
        full.open();
        block_on(filler).unwrap();
        ask();
        drop(client);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.aborted()), (1, 0), "{report}");
    });
}
