//! Many tasks that wait for one socket: an event wakes as many as it can serve, in their order, and no more.
//!
//! Futures are polled by hand, each with a waker that counts, on the loop that reports: whoever an event
//! wakes has been woken when the first of them is seen.

use std::cell::Cell;
use std::io::{self, Write};
use std::os::unix::net;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::{Stream, StreamExt};
use loopgroup::io::{Interest, Registered};
use loopgroup::net::{TcpListener, UdpSocket, UnixListener};
use loopgroup::time::sleep;
use loopgroup::{EventLoopGroup, block_on};

use crate::util::{self, Log, Probe, TempPath, Waiting, on_a_loop, within};

fn wakes<T>(crowd: &[Waiting<'_, T>]) -> Vec<usize> {
    crowd.iter().map(Waiting::wakes).collect()
}

/// Lets the loop turn until somebody in the crowd has been woken more often than `before`.
async fn next_wake<T>(crowd: &[Waiting<'_, T>], before: usize) {
    while wakes(crowd).into_iter().sum::<usize>() == before {
        sleep(Duration::from_millis(1)).await;
    }
}

fn byte<T>(poll: Poll<io::Result<T>>) -> T {
    match poll {
        Poll::Ready(done) => done.unwrap(),
        Poll::Pending => panic!("there is something for it"),
    }
}

async fn socket() -> io::Result<(UdpSocket, impl Fn(&[u8]))> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
    client.connect(socket.local_addr()?)?;
    Ok((socket, move |bytes: &[u8]| {
        client.send(bytes).unwrap();
    }))
}

/// Waits for one datagram and returns its first byte.
async fn receive(socket: &UdpSocket) -> io::Result<u8> {
    let mut buf = [0; 1];
    socket.recv_from(&mut buf).await?;
    Ok(buf[0])
}

fn receivers(socket: &UdpSocket, count: usize) -> Vec<Waiting<'_, io::Result<u8>>> {
    (0..count).map(|_| Waiting::new(receive(socket))).collect()
}

#[test]
fn one_datagram_wakes_one_of_a_hundred_and_the_next_one_when_it_is_taken() {
    on_a_loop(|| async {
        let (socket, send) = socket().await?;
        let mut crowd = receivers(&socket, 100);
        send(b"a");
        next_wake(&crowd, 0).await;
        assert_eq!(crowd[0].wakes(), 1, "the first to come");
        assert_eq!(wakes(&crowd).into_iter().sum::<usize>(), 1);
        assert_eq!(byte(crowd[0].poll()), b'a');
        // There may be more: the second is to find out, keeps its turn, and wakes nobody else.
        assert_eq!(crowd[1].wakes(), 1);
        assert!(crowd[1].poll().is_pending());
        assert_eq!(wakes(&crowd).into_iter().sum::<usize>(), 2);
        send(b"b");
        next_wake(&crowd, 2).await;
        assert_eq!(crowd[1].wakes(), 2);
        assert_eq!(byte(crowd[1].poll()), b'b');
        Ok(())
    });
}

#[test]
fn of_one_event_for_many_datagrams_each_taker_wakes_the_next() {
    on_a_loop(|| async {
        let (socket, send) = socket().await?;
        let mut crowd = receivers(&socket, 4);
        // The loop does not turn in between: the selector reports them as one event.
        for text in [b"a", b"b", b"c"] {
            send(text);
        }
        next_wake(&crowd, 0).await;
        for (index, text) in [b'a', b'b', b'c'].into_iter().enumerate() {
            assert_eq!(crowd[index].wakes(), 1);
            assert_eq!(byte(crowd[index].poll()), text);
        }
        assert!(crowd[3].poll().is_pending());
        Ok(())
    });
}

#[test]
fn whoever_is_dropped_between_its_wake_and_its_poll_leaves_the_datagram_to_the_next() {
    on_a_loop(|| async {
        let (socket, send) = socket().await?;
        let mut crowd = receivers(&socket, 4);
        send(b"a");
        next_wake(&crowd, 0).await;
        drop(crowd.remove(0));
        assert_eq!(wakes(&crowd), [1, 0, 0]);
        drop(crowd.remove(0));
        assert_eq!(wakes(&crowd), [1, 0]);
        assert_eq!(byte(crowd[0].poll()), b'a');
        Ok(())
    });
}

#[test]
fn whoever_was_not_woken_goes_without_waking_anybody() {
    on_a_loop(|| async {
        let (socket, send) = socket().await?;
        let mut crowd = receivers(&socket, 3);
        drop(crowd.remove(1));
        send(b"a");
        next_wake(&crowd, 0).await;
        drop(crowd.remove(1));
        assert_eq!(wakes(&crowd), [1]);
        assert_eq!(byte(crowd[0].poll()), b'a');
        Ok(())
    });
}

#[test]
fn a_datagram_that_a_newcomer_took_costs_nobody_its_turn() {
    on_a_loop(|| async {
        let (socket, send) = socket().await?;
        let mut crowd = receivers(&socket, 3);
        send(b"a");
        next_wake(&crowd, 0).await;
        assert_eq!(receive(&socket).await?, b'a');
        assert!(crowd[0].poll().is_pending());
        assert_eq!(wakes(&crowd), [1, 0, 0]);
        send(b"b");
        next_wake(&crowd, 1).await;
        assert_eq!(wakes(&crowd), [2, 0, 0], "it was first, and still is");
        assert_eq!(byte(crowd[0].poll()), b'b');
        Ok(())
    });
}

#[test]
fn those_that_only_want_to_know_are_all_told_and_swallow_nothing() {
    on_a_loop(|| async {
        let (socket, send) = socket().await?;
        let mut know: Vec<_> = (0..3).map(|_| Waiting::new(socket.readable())).collect();
        let mut crowd = receivers(&socket, 2);
        send(b"a");
        send(b"b");
        next_wake(&crowd, 0).await;
        assert_eq!(wakes(&know), [1, 1, 1]);
        assert_eq!(wakes(&crowd), [1, 0]);
        drop(know.remove(0));
        byte(know[0].poll());
        assert_eq!(wakes(&crowd), [1, 0]);
        assert_eq!(byte(crowd[0].poll()), b'a');
        assert_eq!(byte(crowd[1].poll()), b'b');
        Ok(())
    });
}

#[test]
fn a_look_at_a_datagram_passes_it_on() {
    on_a_loop(|| async {
        let (socket, send) = socket().await?;
        let look = async {
            let mut buf = [0; 1];
            socket.peek_from(&mut buf).await?;
            io::Result::Ok(buf[0])
        };
        let mut crowd = vec![Waiting::new(look)];
        crowd.extend(receivers(&socket, 2));
        send(b"a");
        next_wake(&crowd, 0).await;
        assert_eq!(byte(crowd[0].poll()), b'a');
        assert_eq!(wakes(&crowd), [1, 1, 0]);
        assert_eq!(byte(crowd[1].poll()), b'a');
        Ok(())
    });
}

#[test]
fn senders_take_turns_at_the_room_that_there_is() {
    on_a_loop(|| async {
        let (ours, theirs) = net::UnixDatagram::pair()?;
        let ours = loopgroup::net::UnixDatagram::from_std(ours)?;
        let full = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let try_send = || ours.try_io(Interest::WRITABLE, |socket| socket.send(b"x"));
        let sent = std::iter::from_fn(|| try_send().ok()).count();
        assert!(try_send().is_err_and(full));
        let mut crowd: Vec<_> = (0..3).map(|_| Waiting::new(ours.send(b"y"))).collect();
        for _ in 0..sent {
            theirs.recv(&mut [0; 1])?;
        }
        next_wake(&crowd, 0).await;
        assert_eq!(wakes(&crowd), [1, 0, 0]);
        for one in &mut crowd {
            assert_eq!(one.wakes(), 1);
            assert_eq!(byte(one.poll()), 1);
        }
        Ok(())
    });
}

#[test]
fn an_error_concerns_everybody_and_the_rest_wait_again_in_their_order() {
    on_a_loop(|| async {
        let gone = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let address = gone.local_addr()?;
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        socket.connect(address).await?;
        let mut crowd = receivers(&socket, 3);
        drop(gone);
        socket.send(b"x").await?; // nobody is there, and the answer says so
        next_wake(&crowd, 0).await;
        assert_eq!(wakes(&crowd), [1, 1, 1]);
        let error = match crowd.remove(0).poll() {
            Poll::Ready(result) => result.unwrap_err(),
            Poll::Pending => panic!("it is told of the error"),
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        for one in &mut crowd {
            assert!(one.poll().is_pending(), "an error is told once");
        }
        let back = std::net::UdpSocket::bind(address)?;
        back.send_to(b"a", socket.local_addr()?)?;
        next_wake(&crowd, 2).await;
        assert_eq!(wakes(&crowd), [2, 1]);
        assert_eq!(byte(crowd[0].poll()), b'a');
        Ok(())
    });
}

/// Takes one of many connections; whichever kind of listener it is.
type Connections<'a> = Vec<Waiting<'a, io::Result<()>>>;

/// One client at a time, of four that wait: one is cancelled before, one after it was woken.
async fn one_client_at_a_time(mut crowd: Connections<'_>, connect: impl Fn()) {
    assert_eq!(crowd.len(), 4);
    drop(crowd.remove(1));
    connect();
    next_wake(&crowd, 0).await;
    assert_eq!(wakes(&crowd), [1, 0, 0]);
    drop(crowd.remove(0));
    assert_eq!(wakes(&crowd), [1, 0]);
    byte(crowd[0].poll());
    connect();
    if crowd[1].wakes() == 0 {
        next_wake(&crowd, 1).await;
    }
    byte(crowd[1].poll());
}

/// The next connection of a stream of them.
async fn next<S: Stream<Item = io::Result<T>> + Unpin, T>(mut incoming: S) -> io::Result<()> {
    incoming.next().await.unwrap().map(drop)
}

#[test]
fn acceptors_take_turns() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let connect = || drop(std::net::TcpStream::connect(address).unwrap());
        let accept = || Waiting::new(async { listener.accept().await.map(drop) });
        one_client_at_a_time((0..4).map(|_| accept()).collect(), connect).await;
        let path = TempPath::new("acceptors");
        let listener = UnixListener::bind(&path.0)?;
        let connect = || drop(net::UnixStream::connect(&path.0).unwrap());
        let accept = || Waiting::new(async { listener.accept().await.map(drop) });
        one_client_at_a_time((0..4).map(|_| accept()).collect(), connect).await;
        Ok(())
    });
}

/// Streams are told of every connection, and one of them gets it; one that is cancelled takes it from nobody.
async fn all_are_told(mut crowd: Vec<Waiting<'_, io::Result<()>>>, connect: impl Fn()) {
    drop(crowd.remove(1));
    while !crowd.is_empty() {
        let before = wakes(&crowd);
        connect();
        next_wake(&crowd, before.iter().sum()).await;
        let told: Vec<_> = before.iter().map(|wakes| wakes + 1).collect();
        assert_eq!(wakes(&crowd), told);
        assert!(crowd.remove(0).poll().is_ready());
        for one in &mut crowd {
            assert!(one.poll().is_pending(), "there was one connection");
        }
    }
}

#[test]
fn streams_of_connections_are_told_of_each_whoever_is_cancelled() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let connect = || drop(std::net::TcpStream::connect(address).unwrap());
        let incoming = || Waiting::new(next(listener.incoming()));
        all_are_told((0..4).map(|_| incoming()).collect(), connect).await;
        let path = TempPath::new("incoming");
        let listener = UnixListener::bind(&path.0)?;
        let connect = || drop(net::UnixStream::connect(&path.0).unwrap());
        let incoming = || Waiting::new(next(listener.incoming()));
        all_are_told((0..4).map(|_| incoming()).collect(), connect).await;
        Ok(())
    });
}

#[test]
fn a_stream_that_lives_on_unpolled_takes_no_connection_from_those_that_accept() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut incoming = listener.incoming();
        // `next` is given up, the stream is not.
        assert!(futures::poll!(pin!(incoming.next())).is_pending());
        let mut accept = Waiting::new(async { listener.accept().await.map(drop) });
        drop(std::net::TcpStream::connect(address)?);
        next_wake(std::slice::from_ref(&accept), accept.wakes()).await;
        assert!(accept.poll().is_ready());
        drop(incoming);
        Ok(())
    });
}

#[test]
fn a_stream_whose_errors_are_skipped_does_not_hold_its_loop_at_the_end() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        drop(group.spawn(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut incoming = listener.incoming();
            while let Some(connection) = incoming.next().await {
                let Ok(_connection) = connection else {
                    continue;
                };
            }
        }));
        util::eventually("it listens", || group.next().registered_channels() == 1);
        assert_eq!(group.shutdown_now().wait().cancelled(), 1);
    });
}

#[test]
fn the_next_at_a_socket_does_not_wait_behind_other_work() {
    on_a_loop(|| async {
        const OTHERS: usize = 100;
        const DATAGRAMS: usize = 8;
        let (socket, send) = socket().await?;
        let socket = Rc::new(socket);
        let (got, polls) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (last, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        for _ in 0..OTHERS {
            let (polls, ended) = (Rc::clone(&polls), Rc::clone(&ended));
            drop(loopgroup::spawn_local(async move {
                while !ended.get() {
                    polls.set(polls.get() + 1);
                    loopgroup::yield_now().await;
                }
            }));
        }
        let receivers: Vec<_> = (0..DATAGRAMS)
            .map(|_| {
                let (socket, got) = (Rc::clone(&socket), Rc::clone(&got));
                let (polls, last) = (Rc::clone(&polls), Rc::clone(&last));
                loopgroup::spawn_local(async move {
                    socket.recv_from(&mut [0; 8]).await.unwrap();
                    got.set(got.get() + 1);
                    if got.get() == 1 {
                        last.set(polls.get());
                    }
                    polls.get() - last.get()
                })
            })
            .collect();
        loopgroup::yield_now().await;
        loopgroup::yield_now().await;
        for _ in 0..DATAGRAMS {
            send(b"x");
        }
        for receiver in receivers {
            // Each hop is a turn, and a turn has a slice of others; it is not a round of all of them, and
            // then another.
            let others = receiver.await?;
            assert!(
                others <= OTHERS * DATAGRAMS * 16,
                "{others} polls of others"
            );
        }
        ended.set(true);
        Ok(())
    });
}

#[test]
fn a_stream_of_connections_waits_again_after_each() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let listener = Rc::new(listener);
        let theirs = Rc::clone(&listener);
        let served = loopgroup::spawn_local(async move {
            theirs
                .incoming()
                .take(50)
                .filter(|one| std::future::ready(one.is_ok()))
                .count()
                .await
        });
        let ours = async { listener.incoming().take(50).count().await };
        let clients = async {
            for _ in 0..100 {
                loopgroup::net::TcpStream::connect(address).await.unwrap();
            }
        };
        let (ours, ()) = futures::join!(ours, clients);
        assert_eq!((ours, served.await?), (50, 50));
        Ok(())
    });
}

#[test]
fn a_crowd_of_tasks_costs_no_more_polls_than_two_for_a_datagram() {
    on_a_loop(|| async {
        const CROWD: usize = 1_000;
        const DATAGRAMS: usize = 100;
        let (socket, send) = socket().await?;
        let socket = Rc::new(socket);
        let log = Log::new();
        let (told, mut hears) = futures::channel::mpsc::unbounded();
        let tasks: Vec<_> = (0..CROWD)
            .map(|_| {
                let (socket, told) = (Rc::clone(&socket), told.clone());
                loopgroup::spawn_local(Probe::new(&log, async move {
                    loop {
                        told.unbounded_send(receive(&socket).await).unwrap();
                    }
                }))
            })
            .collect();
        while log.polls() < CROWD {
            loopgroup::yield_now().await;
        }
        for number in 0..DATAGRAMS {
            send(&[number as u8]);
            assert_eq!(hears.next().await.unwrap()?, number as u8);
        }
        // Who takes it, and who finds that there is no more.
        let polls = log.polls() - CROWD;
        assert!(polls <= 2 * DATAGRAMS, "{polls} polls");
        drop(tasks);
        Ok(())
    });
}

#[test]
fn receivers_on_several_loops_that_come_and_go_miss_no_datagram() {
    within(|| {
        const DATAGRAMS: usize = 500;
        let group = EventLoopGroup::new(2).unwrap();
        let (socket, send) = block_on(socket()).unwrap();
        let (socket, taken) = (Arc::new(socket), Arc::new(AtomicUsize::new(0)));
        let (told, hears) = std::sync::mpsc::channel();
        for (index, ev) in group.loops().iter().cycle().take(20).enumerate() {
            let (socket, taken, told) = (Arc::clone(&socket), Arc::clone(&taken), told.clone());
            drop(ev.spawn(async move {
                loop {
                    // Every third future is given up as soon as it has waited, woken or not.
                    let mut one = Box::pin(receive(&socket));
                    if index % 3 == 0 {
                        let polled = futures::poll!(&mut one);
                        loopgroup::yield_now().await;
                        if polled.is_pending() {
                            continue;
                        }
                    } else {
                        one.await.unwrap();
                    }
                    taken.fetch_add(1, Ordering::SeqCst);
                    let _ = told.send(());
                }
            }));
        }
        for _ in 0..DATAGRAMS {
            send(b"x");
            // One at a time: if it is left lying, nobody sends another.
            hears.recv().unwrap();
        }
        assert_eq!(taken.load(Ordering::SeqCst), DATAGRAMS);
        group.shutdown_now().wait();
    });
}

#[test]
fn a_registered_descriptor_tells_all_who_want_to_know() {
    on_a_loop(|| async {
        let (ours, mut theirs) = net::UnixStream::pair()?;
        let ours = Registered::new(ours)?;
        let crowd: Vec<_> = (0..10).map(|_| Waiting::new(ours.readable())).collect();
        theirs.write_all(b"x")?;
        next_wake(&crowd, 0).await;
        assert_eq!(wakes(&crowd), [1; 10]);
        Ok(())
    });
}
