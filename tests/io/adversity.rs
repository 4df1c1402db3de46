//! Peers that reset, stall, flood and vanish: one clear error, and nothing left behind.
#![cfg(target_os = "linux")]

use std::cell::Cell;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::io::{Interest, Registered};
use loopgroup::net::{TcpListener, TcpStream};
use loopgroup::time::{interval, timeout};
use loopgroup::{EventLoop, EventLoopGroup, block_on};
use socket2::{Domain, Socket, Type};

use crate::util::{LONG, Log, Probe, alone, entries, eventually, on_a_loop};

fn fds() -> usize {
    entries("/proc/self/fd")
}

/// Two ends of one connection.
async fn pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let address = listener.local_addr()?;
    let (client, server) = futures::join!(TcpStream::connect(address), listener.accept());
    Ok((client?, server?.0))
}

/// Two ends of a connection that holds little from the second to the first: a writer waits soon.
async fn narrow_pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let (client, server) = pair(listener).await?;
    client.set_recv_buffer_size(4 << 10)?;
    server.set_send_buffer_size(4 << 10)?;
    Ok((client, server))
}

/// Closes with a reset.
fn reset(stream: TcpStream) {
    stream.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Writes until an error ends it.
async fn write_for_ever(stream: Rc<TcpStream>) -> io::ErrorKind {
    let block = [7; 16 << 10];
    loop {
        if let Err(error) = (&*stream).write(&block).await {
            return error.kind();
        }
    }
}

/// Until the peer's buffers are full, as far as the loop has heard.
async fn stuck(stream: &TcpStream) {
    while futures::poll!(std::pin::pin!(stream.writable())).is_ready() {
        loopgroup::yield_now().await;
    }
}

#[test]
fn resets_in_every_state_are_told_once_and_leave_nothing_behind() {
    const TIMES: usize = if cfg!(debug_assertions) {
        1_000
    } else {
        10_000
    };
    alone(
        "resets_in_every_state_are_told_once_and_leave_nothing_behind",
        || {
            let main = async {
                let here = EventLoop::current().unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                drop(pair(&listener).await?);
                let (fds_before, slots_before) = (fds(), here.registered_channels());
                for turn in 0..TIMES {
                    let (client, server) = narrow_pair(&listener).await?;
                    let server = Rc::new(server);
                    let after_an_end = turn % 2 == 1;
                    let log = Log::new();
                    let reader = Rc::clone(&server);
                    let reading = loopgroup::spawn_local(Probe::new(&log, async move {
                        (&*reader).read(&mut [0; 16]).await.map_err(|e| e.kind())
                    }));
                    let writing = loopgroup::spawn_local(write_for_ever(Rc::clone(&server)));
                    loopgroup::yield_now().await;
                    stuck(&server).await;
                    assert!(!reading.is_finished() && log.polls() == 1, "it waits");
                    let read = if after_an_end {
                        client.shutdown(Shutdown::Write)?; // FIN, and then RST
                        let read = timeout(LONG, reading).await??;
                        assert_eq!(read, Ok(0), "an end first");
                        stuck(&server).await;
                        reset(client);
                        Ok(0)
                    } else {
                        reset(client);
                        timeout(LONG, reading).await??
                    };
                    assert_eq!(log.polls(), 2, "woken once, and not in vain");
                    let wrote = timeout(LONG, writing).await??;
                    // The system hands its error to whoever asks first; the other finds an end.
                    let told = (read, wrote);
                    let fine = match told {
                        (Err(io::ErrorKind::ConnectionReset), io::ErrorKind::BrokenPipe) => {
                            !after_an_end
                        }
                        (Ok(0), io::ErrorKind::ConnectionReset) => !after_an_end,
                        (Ok(0), io::ErrorKind::BrokenPipe) => after_an_end,
                        _ => false,
                    };
                    assert!(fine, "turn {turn}: {told:?}");
                    // Told once: from now on it is an end, in both directions, without a wait.
                    assert_eq!((&*server).read(&mut [0; 16]).await?, 0);
                    let error = (&*server).write(b"x").await.unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
                    assert!(here.registered_channels() > slots_before);
                    drop(server);
                    assert_eq!(here.registered_channels(), slots_before);
                }
                assert_eq!(fds(), fds_before);
                drop(listener);
                assert_eq!(here.registered_channels(), 0);
                io::Result::Ok(())
            };
            loopgroup::run(main).unwrap().unwrap();
        },
    );
}

#[test]
fn either_side_may_end_first_while_the_other_has_much_to_say() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        for swapped in [false, true] {
            let (mut quiet, mut loud) = pair(&listener).await?;
            if swapped {
                std::mem::swap(&mut quiet, &mut loud);
            }
            let log = Log::new();
            let answering = loopgroup::spawn_local(Probe::new(&log, async move {
                assert_eq!(loud.read(&mut [0; 16]).await?, 0, "the other side is done");
                loud.readable().await?; // and stays so
                loud.write_all(&vec![5; 16 << 20]).await?; // far more than fits at once
                assert_eq!(loud.read(&mut [0; 16]).await?, 0);
                loud.close().await?;
                io::Result::Ok(loud)
            }));
            while log.polls() == 0 {
                loopgroup::yield_now().await;
            }
            quiet.shutdown(Shutdown::Write)?;
            let error = quiet.write(b"x").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "its own doing");
            let mut answer = Vec::new();
            quiet.read_to_end(&mut answer).await?;
            assert!(answer.len() == 16 << 20 && answer.iter().all(|&byte| byte == 5));
            drop(answering.await??);
        }
        Ok(())
    });
}

#[test]
fn shutting_a_half_down_here_wakes_who_waits_for_it_here() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (_client, server) = narrow_pair(&listener).await?;
        let server = Rc::new(server);
        let reader = Rc::clone(&server);
        let reading = loopgroup::spawn_local(async move { (&*reader).read(&mut [0; 16]).await });
        let writing = loopgroup::spawn_local(write_for_ever(Rc::clone(&server)));
        loopgroup::yield_now().await;
        stuck(&server).await;
        server.shutdown(Shutdown::Read)?;
        assert_eq!(timeout(LONG, reading).await???, 0);
        assert!(!writing.is_finished());
        server.shutdown(Shutdown::Write)?;
        assert_eq!(timeout(LONG, writing).await??, io::ErrorKind::BrokenPipe);
        Ok(())
    });
}

/// A listener that takes no more connections, and the one that fills it.
fn full_listener() -> (Socket, SocketAddr, std::net::TcpStream) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let first = std::net::TcpStream::connect(address).unwrap();
    // The connection may be on its way into the queue still.
    let mut poll = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the pointer is valid for the one entry it is said to have.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 30_000) }, 1);
    (listener, address, first)
}

#[test]
fn a_connect_that_takes_too_long_is_given_up_and_leaves_nothing_behind() {
    alone(
        "a_connect_that_takes_too_long_is_given_up_and_leaves_nothing_behind",
        || {
            let (_listener, address, _first) = full_listener();
            let main = async {
                let here = EventLoop::current().unwrap();
                let before = fds();
                for _ in 0..20 {
                    let late = timeout(Duration::from_millis(2), async {
                        let connecting = TcpStream::connect(address);
                        let mut connecting = std::pin::pin!(connecting);
                        assert!(futures::poll!(&mut connecting).is_pending());
                        assert_eq!(here.registered_channels(), 1);
                        connecting.await
                    });
                    assert!(late.await.is_err(), "the queue is full");
                    assert_eq!((here.registered_channels(), fds()), (0, before));
                }
            };
            loopgroup::run(main).unwrap();
        },
    );
}

#[test]
fn a_listener_that_goes_in_the_middle_of_a_handshake_is_a_refusal() {
    alone(
        "a_listener_that_goes_in_the_middle_of_a_handshake_is_a_refusal",
        || {
            let (listener, address, first) = full_listener();
            let main = async {
                let here = EventLoop::current().unwrap();
                let before = fds();
                let mut connecting = std::pin::pin!(TcpStream::connect(address));
                assert!(futures::poll!(&mut connecting).is_pending());
                drop((listener, first));
                // The system asks once more after a second, and hears that nobody is there.
                let error = connecting.as_mut().await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                assert_eq!(here.registered_channels(), 0);
                assert_eq!(fds(), before - 2);
            };
            loopgroup::run(main).unwrap();
        },
    );
}

#[test]
fn a_connect_under_way_does_not_hold_up_any_shutdown() {
    alone("a_connect_under_way_does_not_hold_up_any_shutdown", || {
        let (_listener, address, _first) = full_listener();
        let before = fds();
        for kind in 0..3 {
            let group = EventLoopGroup::new(1).unwrap();
            let connecting = group.spawn(async move { TcpStream::connect(address).await });
            eventually("it waits", || group.next().registered_channels() == 1);
            let moment = Duration::from_millis(20);
            let report = match kind {
                0 => group.shutdown_now(),
                1 => group.drain(moment),
                _ => group.shutdown_gracefully_with(moment, LONG).unwrap(),
            };
            // Far before the system would give the connect up, or the watchdog the test.
            let report = report.wait();
            assert_eq!(report.completed() + report.cancelled(), 1, "{report}");
            assert_eq!(report.channels_closed(), 1, "{report}");
            match block_on(connecting) {
                Err(error) => assert!(error.is_cancelled(), "{error}"),
                Ok(outcome) => {
                    let error = outcome.unwrap_err();
                    assert!(error.to_string().contains("shutting down"), "{error}");
                }
            }
            assert_eq!(group.next().registered_channels(), 0);
        }
        eventually("the descriptors are closed", || fds() == before);
    });
}

/// What shares one loop with a source that is always ready; ends when all have made progress.
async fn crowd_beside(progress: Rc<Cell<usize>>) {
    const TASKS: usize = 10_000;
    let done = Rc::new(Cell::new(false));
    let behind = Rc::new(Cell::new(TASKS));
    for _ in 0..TASKS {
        let (done, behind, mut runs) = (Rc::clone(&done), Rc::clone(&behind), 0);
        drop(loopgroup::spawn_local(std::future::poll_fn(move |cx| {
            runs += 1;
            behind.set(behind.get() - usize::from(runs == 10));
            if done.get() {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
    }
    let (mut ticks, mut ticked) = (interval(Duration::from_millis(1)), 0);
    while behind.get() > 0 || ticked < 20 || progress.get() < 1 << 20 {
        ticks.tick().await;
        ticked += 1;
    }
    done.set(true);
}

#[test]
fn a_connection_that_floods_ten_thousand_busy_tasks_and_a_timer_share_one_loop() {
    on_a_loop(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut flood = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept().await?;
        let flooding = std::thread::spawn(move || while flood.write_all(&[0; 64 << 10]).is_ok() {});
        let progress = Rc::new(Cell::new(0));
        let read = Rc::clone(&progress);
        let reading = loopgroup::spawn_local(async move {
            let mut buf = [0; 4 << 10]; // small: there is always more
            while let Ok(n @ 1..) = (&server).read(&mut buf).await {
                read.set(read.get() + n);
            }
        });
        crowd_beside(progress).await;
        reading.abort(); // and the connection with it
        loopgroup::blocking::unblock(move || flooding.join().unwrap()).await?;
        Ok(())
    });
}

#[test]
fn a_descriptor_that_is_always_ready_shares_its_loop_too() {
    on_a_loop(|| async {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
        let ours = Registered::new(ours)?;
        theirs.write_all(b"never taken: always ready")?;
        let progress = Rc::new(Cell::new(0));
        let looked = Rc::clone(&progress);
        let looking = loopgroup::spawn_local(async move {
            while ours.readable().await.is_ok() {
                ours.try_io(Interest::READABLE, |_| Ok(())).unwrap();
                looked.set(looked.get() + 1024);
            }
        });
        crowd_beside(progress).await;
        looking.abort();
        Ok(())
    });
}

#[test]
fn a_duplicate_of_a_closed_socket_wakes_nobody_and_one_of_a_live_socket_does() {
    // Alone: no other test may take the descriptor's number meanwhile.
    const NAME: &str = "a_duplicate_of_a_closed_socket_wakes_nobody_and_one_of_a_live_socket_does";
    alone(NAME, || {
        for taken_out in [false, true] {
            on_a_loop(move || async move {
                let here = EventLoop::current().unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let (client, server) = pair(&listener).await?;
                let server = server.into_std();
                let duplicate = server.try_clone()?;
                let number = server.as_raw_fd();
                let server = TcpStream::from_std(server)?;
                let mut buf = [0; 16];
                assert!(futures::poll!((&server).read(&mut buf)).is_pending());
                let slots = here.registered_channels();
                // Out of the selector, although the duplicate keeps the socket open.
                if taken_out {
                    drop(server.into_std());
                } else {
                    drop(server);
                }
                assert_eq!(here.registered_channels(), slots - 1);
                // The next socket has the descriptor's number, and its slot.
                let (mut peer, next) = std::os::unix::net::UnixStream::pair()?;
                let mut next = loopgroup::net::UnixStream::from_std(next)?;
                assert!(
                    [
                        peer.as_raw_fd(),
                        next.try_io(Interest::READABLE, |s| Ok(s.as_raw_fd()))?
                    ]
                    .contains(&number)
                );
                let log = Log::new();
                let waiting = loopgroup::spawn_local(Probe::new(&log, async move {
                    let mut buf = [0; 16];
                    next.read(&mut buf).await
                }));
                while log.polls() == 0 {
                    loopgroup::yield_now().await;
                }
                (&client).write_all(b"for the duplicate").await?;
                // A live duplicate hears it, after the selector has been asked.
                let duplicate = TcpStream::from_std(duplicate)?;
                timeout(LONG, duplicate.readable()).await??;
                assert_eq!((&duplicate).read(&mut buf).await?, 16);
                loopgroup::yield_now().await;
                assert_eq!(log.polls(), 1, "woken by somebody else's bytes");
                assert_eq!(here.metrics().stale_events(), 0, "nor is the loop");
                peer.write_all(b"its own")?;
                assert_eq!(timeout(LONG, waiting).await???, 7);
                assert_eq!(log.polls(), 2);
                Ok(())
            });
        }
    });
}

#[test]
fn a_write_to_a_socket_whose_peer_is_gone_is_an_error_and_no_signal() {
    const NAME: &str = "a_write_to_a_socket_whose_peer_is_gone_is_an_error_and_no_signal";
    alone(NAME, || {
        // A Rust program starts with this signal ignored; inside of others it may be deadly.
        // SAFETY: the default action is a valid one, and this process runs nothing else.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let main = async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let (client, mut server) = pair(&listener).await?;
            reset(client);
            let told = server.read(&mut [0; 1]).await.unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::ConnectionReset);
            let (mut one, other) = loopgroup::net::UnixStream::pair()?;
            drop(other);
            let bufs = [io::IoSlice::new(b"x"), io::IoSlice::new(b"y")];
            for result in [
                server.write(b"x").await,
                server.write_vectored(&bufs).await,
                one.write(b"x").await,
                one.write_vectored(&bufs).await,
            ] {
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            }
            io::Result::Ok(())
        };
        loopgroup::run(main).unwrap().unwrap();
    });
}
