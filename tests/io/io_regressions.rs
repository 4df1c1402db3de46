//! Faults of the I/O side that were there once, one function each.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::File;
use std::future::{Future, pending, poll_fn};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::future::{join, select_all};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::io::{Interest, Registered};
use loopgroup::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use loopgroup::time::timeout;
use loopgroup::{CloseChannels, EventLoopGroup, yield_now};

use crate::util::{self, TempPath, eventually, on_a_loop, within};

/// Long enough for a wait that ends at once if it ends wrongly.
const SHORT: Duration = Duration::from_millis(20);

/// Two ends of one connection, both of which have waited and so are registered.
async fn registered_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (client, server) = join(TcpStream::connect(address), listener.accept()).await;
    let (client, server) = (client?, server?.0);
    for stream in [&client, &server] {
        assert!(timeout(SHORT, stream.readable()).await.is_err());
        assert!(stream.event_loop().is_some());
    }
    Ok((client, server))
}

#[test]
fn a_socket_whose_error_was_told_waits_again_instead_of_spinning() {
    on_a_loop(|| async {
        let other = UdpSocket::bind("127.0.0.1:0").await?;
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let address = other.local_addr()?;
        one.connect(address).await?;
        let mut buf = [0; 1];
        assert!(timeout(SHORT, one.recv(&mut buf)).await.is_err());
        drop(other);
        one.send(b"x").await?;
        let error = one.recv(&mut buf).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // The error has been fetched, so there is nothing to fetch now.
        assert!(timeout(SHORT, one.recv(&mut buf)).await.is_err());
        let again = UdpSocket::bind(address).await?;
        again.send_to(b"y", one.local_addr()?).await?;
        assert_eq!(one.recv(&mut buf).await?, 1);
        Ok(())
    });
}

#[test]
fn a_fifo_whose_writer_has_left_waits_for_the_next_one() {
    on_a_loop(|| async {
        let path = TempPath::new("fifo");
        let name = CString::new(path.0.to_str().unwrap()).unwrap();
        // SAFETY: the name is a valid string that ends in a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let fifo = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path.0)?;
        let fifo = Registered::new(fifo)?;
        let mut buf = [0; 4];
        let mut read = || fifo.try_io(Interest::READABLE, |mut fifo| fifo.read(&mut buf));
        drop(File::options().write(true).open(&path.0)?);
        fifo.readable().await?;
        assert_eq!(read()?, 0, "the first writer has left");
        let mut writer = File::options().write(true).open(&path.0)?;
        assert_eq!(read().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(timeout(SHORT, fifo.readable()).await.is_err());
        writer.write_all(b"news")?;
        fifo.readable().await?;
        assert_eq!(read()?, 4);
        Ok(())
    });
}

#[test]
fn more_buffers_than_the_system_takes_at_once_are_no_short_call() {
    on_a_loop(|| async {
        const MANY: usize = 5_000; // the system takes 1,024 in one call
        let (client, server) = registered_pair().await?;
        let sending = async {
            let mut sent = 0;
            while sent < MANY {
                let slices = vec![IoSlice::new(b"x"); MANY - sent];
                sent += (&client).write_vectored(&slices).await?;
            }
            io::Result::Ok(())
        };
        sending.await?;
        let mut received = 0;
        while received < MANY {
            let mut bytes = vec![0; MANY - received];
            let mut slices: Vec<_> = bytes.chunks_mut(1).map(IoSliceMut::new).collect();
            received += (&server).read_vectored(&mut slices).await?;
        }
        Ok(())
    });
}

#[test]
fn a_read_that_stops_at_a_passed_descriptor_leaves_the_rest_readable() {
    on_a_loop(|| async {
        let (one, other) = UnixStream::pair()?;
        assert!(timeout(SHORT, other.readable()).await.is_err());
        one.try_io(Interest::WRITABLE, |stream| {
            send_with_descriptor(stream, b"a", &File::open("/dev/null")?)
        })?;
        (&one).write_all(b"b").await?;
        let mut buf = [0; 16];
        let mut got = Vec::new();
        while got.len() < 2 {
            let n = (&other).read(&mut buf).await?;
            got.extend_from_slice(&buf[..n]);
        }
        assert_eq!(got, b"ab");
        Ok(())
    });
}

/// Sends bytes and a descriptor along with them.
fn send_with_descriptor(to: &impl AsRawFd, bytes: &[u8], file: &File) -> io::Result<()> {
    let fd = file.as_raw_fd();
    let mut control = [0_u64; 8];
    let mut data = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: every pointer is valid for the length beside it, and the control buffer is aligned and
    // large enough for one descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut data;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
        libc::sendmsg(to.as_raw_fd(), &raw const message, 0)
    };
    if sent == bytes.len() as isize {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[test]
fn a_read_that_stops_at_urgent_data_leaves_the_rest_readable() {
    on_a_loop(|| async {
        let (client, server) = registered_pair().await?;
        client.try_io(Interest::WRITABLE, |mut stream| {
            stream.write_all(b"abc")?;
            socket2::SockRef::from(stream).send_out_of_band(b"!")?;
            stream.write_all(b"def")
        })?;
        // All of it has arrived and been reported before the first read.
        assert!(timeout(SHORT, pending::<()>()).await.is_err());
        let mut buf = [0; 16];
        let mut got = Vec::new();
        while got.len() < 6 {
            let n = (&server).read(&mut buf).await?;
            got.extend_from_slice(&buf[..n]);
        }
        assert_eq!(got, b"abcdef");
        Ok(())
    });
}

#[test]
fn threads_that_register_a_socket_at_once_all_wait_for_it() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        for _ in 0..200 {
            let (one, mut other) = net::UnixStream::pair().unwrap();
            let one = Registered::new(one).unwrap();
            let start = Barrier::new(3);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        start.wait();
                        group.block_on(one.readable()).unwrap();
                    });
                }
                other.write_all(b"x").unwrap();
            });
            assert_eq!(group.next().registered_channels(), 1);
        }
        assert_eq!(group.next().registered_channels(), 0);
    });
}

#[test]
fn a_socket_that_comes_to_a_loop_as_it_ends_unstarted_hears_of_it() {
    within(|| {
        for pause in 0..1_000 {
            let group = EventLoopGroup::new(1).unwrap();
            let (one, _other) = net::UnixStream::pair().unwrap();
            let one = Registered::new(one).unwrap();
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..pause % 400 {
                        std::hint::spin_loop();
                    }
                    assert!(group.block_on(one.readable()).is_err());
                });
                start.wait();
                drop(group.shutdown_now());
            });
        }
    });
}

#[test]
fn a_descriptor_that_is_always_readable_does_not_starve_its_loop() {
    on_a_loop(|| async {
        const BYTES: usize = 4_096;
        let (one, mut other) = net::UnixStream::pair()?;
        let one = Registered::new(one)?;
        other.write_all(&[0; BYTES])?;
        let turns = Rc::new(Cell::new(0));
        let count = Rc::clone(&turns);
        let counting = loopgroup::spawn_local(async move {
            loop {
                count.set(count.get() + 1);
                yield_now().await;
            }
        });
        one.readable().await?;
        let before = turns.get();
        for _ in 0..BYTES {
            one.readable().await?;
            one.try_io(Interest::READABLE, |mut one| one.read_exact(&mut [0]))?;
        }
        assert!(turns.get() - before >= 16, "{}", turns.get() - before);
        counting.abort();
        Ok(())
    });
}

#[test]
fn a_task_that_waits_for_hundreds_of_sockets_hears_of_each_and_rests_meanwhile() {
    on_a_loop(|| async {
        let pairs: Vec<_> = (0..300)
            .map(|_| UnixStream::pair().map(|(ours, theirs)| (ours, Rc::new(theirs))))
            .collect::<io::Result<_>>()?;
        let log = util::Log::new();
        for index in [299, 0, 150] {
            let reads = pairs.iter().map(|(ours, _)| {
                Box::pin(async move {
                    let mut reader = ours;
                    reader.read(&mut [0; 1]).await
                })
            });
            let reading = util::Probe::new(&log, select_all(reads));
            let theirs = pairs[index].1.clone();
            let writing = loopgroup::spawn_local(async move {
                assert!(timeout(SHORT, pending::<()>()).await.is_err());
                (&*theirs).write_all(b"x").await
            });
            let (read, which, _) = reading.await;
            assert_eq!((read?, which), (1, index));
            writing.await??;
        }
        assert!(log.polls() < 100, "{} polls", log.polls());
        Ok(())
    });
}

#[test]
fn a_datagram_to_a_full_peer_is_sent_once_there_is_room() {
    on_a_loop(|| async {
        let path = TempPath::new("full");
        let server = UnixDatagram::bind(&path.0)?;
        // Somebody else has filled the queue, so no datagram of ours leaves it.
        let other = net::UnixDatagram::unbound()?;
        other.set_nonblocking(true)?;
        while other.send_to(b"x", &path.0).is_ok() {}
        let client = UnixDatagram::unbound()?;
        let log = util::Log::new();
        let sending = util::Probe::new(&log, client.send_to(b"ours", &path.0));
        let receiving = async {
            // The sender has found out, and waits.
            assert!(timeout(SHORT, pending::<()>()).await.is_err());
            let mut buf = [0; 8];
            while server.recv(&mut buf).await? != 4 {}
            assert_eq!(&buf[..4], b"ours");
            io::Result::Ok(())
        };
        let (sent, received) = join(sending, receiving).await;
        assert_eq!(sent?, 4);
        // Once in a while, and not as often as it can.
        assert!(log.polls() < 200, "{} polls", log.polls());
        received
    });
}

#[test]
fn a_path_with_a_zero_in_it_is_refused_and_not_cut_off() {
    on_a_loop(|| async {
        let path = TempPath::new("zero");
        let _listener = UnixListener::bind(&path.0)?;
        let mut longer = path.0.clone().into_os_string();
        longer.push("\0longer");
        let error = UnixStream::connect(longer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        Ok(())
    });
}

/// A waker whose wake panics.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Bomb>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_does_not_come_out_of_the_drop_of_a_socket() {
    within(|| {
        let reports = util::DropCount::new();
        let count = reports.clone();
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |_| drop(count.guard()))
            .build()
            .unwrap();
        let (one, _other) = net::UnixStream::pair().unwrap();
        let mut one = Registered::new(one).unwrap();
        let here = group.next().clone();
        group.block_on(async {
            one.migrate_to(&here).await.unwrap();
            let waker = Waker::from(Arc::new(Bomb));
            assert!(
                one.poll_readable(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            one.migrate_to(&here).await.unwrap();
            assert!(
                one.poll_readable(&mut Context::from_waker(&waker))
                    .is_pending()
            );
        });
        drop(one);
        assert_eq!(reports.get(), 2, "of the move and of the drop");
    });
}

#[test]
fn a_task_that_ignores_the_end_of_its_listener_does_not_hold_the_shutdown() {
    for close in [CloseChannels::AtEnd, CloseChannels::Immediately] {
        within(move || {
            let group = EventLoopGroup::builder()
                .loops(1)
                .close_channels(close)
                .build()
                .unwrap();
            drop(group.spawn(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                loop {
                    let _ = listener.accept().await;
                }
            }));
            util::eventually("it is registered", || {
                group.next().registered_channels() == 1
            });
            let end = group.shutdown_gracefully_with(Duration::ZERO, SHORT);
            assert_eq!(end.unwrap().wait().channels_closed(), 1);
        });
    }
}

#[test]
fn a_write_to_a_peer_that_is_gone_is_no_signal() {
    util::alone("a_write_to_a_peer_that_is_gone_is_no_signal", || {
        // As a program has it that was not started by Rust, or wants to end with its pipe.
        // SAFETY: no handler is installed, and the process is this test's own.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        loopgroup::run(async {
            let (mut one, other) = UnixStream::pair().unwrap();
            drop(other);
            let error = one.write(b"x").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            let error = one.write_vectored(&[IoSlice::new(b"x")]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        })
        .unwrap();
    });
}

#[test]
fn an_operation_with_two_interests_is_tried_on_either_and_clears_what_it_was_tried_on() {
    let both = Interest::READABLE | Interest::WRITABLE;
    on_a_loop(move || async move {
        let (ours, mut theirs) = net::UnixStream::pair()?;
        let ours = Registered::new(ours)?;
        ours.writable().await?;
        // Ready in one direction is ready.
        assert_eq!(ours.try_io(both, |mut stream| stream.write(b"x"))?, 1);
        theirs.write_all(b"y")?;
        ours.readable().await?;
        let blocked = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        assert!(ours.try_io(both, |_| blocked()).is_err());
        let mut tried = false;
        for interest in [Interest::READABLE, Interest::WRITABLE, both] {
            let again = ours.try_io(interest, |_| {
                tried = true;
                Ok(())
            });
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        assert!(!tried, "it waits for news");
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn urgent_data_that_is_not_there_does_not_stop_a_writer() {
    on_a_loop(|| async {
        let (ours, _theirs) = net::UnixStream::pair()?;
        let ours = Registered::new(ours)?;
        ours.writable().await?;
        let none = ours.try_io(Interest::PRIORITY, |_| {
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        ours.writable().await
    });
}

#[test]
fn a_loop_that_cannot_start_is_no_would_block_to_its_socket() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(1)
            .thread_factory(|_| Err(io::ErrorKind::WouldBlock.into()))
            .build()
            .unwrap();
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        let error = group.block_on(ours.read(&mut [0])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert!(error.to_string().contains("a limit on threads"), "{error}");
    });
}

/// Leaves the process less address space than the stack of a thread takes.
#[cfg(target_os = "linux")]
fn no_more_threads() {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let bytes = pages * 4096 + (1 << 20);
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: the pointer is valid for the call, which only reads it.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_no_thread_can_look_up_is_no_would_block() {
    util::alone(
        "a_name_that_no_thread_can_look_up_is_no_would_block",
        || {
            let group = EventLoopGroup::new(1).unwrap();
            // The thread runs, and has all that it needs.
            group.block_on(group.spawn(async {})).unwrap();
            no_more_threads();
            let error = group
                .block_on(UdpSocket::bind("localhost:0"))
                .map(drop)
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other, "{error}");
            let error = group
                .block_on(TcpStream::connect("localhost:1"))
                .map(drop)
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other, "{error}");
        },
    );
}

#[test]
fn a_socket_whose_loop_has_ended_waits_on_the_loop_of_whoever_has_it_now() {
    within(|| {
        let (first, second) = (
            EventLoopGroup::new(1).unwrap(),
            EventLoopGroup::new(1).unwrap(),
        );
        let (ours, theirs) = net::UnixDatagram::pair().unwrap();
        let socket = Arc::new(UnixDatagram::from_std(ours).unwrap());
        let here = Arc::clone(&socket);
        // It waits on the first loop, and so belongs to it.
        loopgroup::block_on(first.spawn(async move {
            let mut waits = pin!(here.readable());
            assert!(futures::poll!(&mut waits).is_pending());
        }))
        .unwrap();
        assert_eq!(first.loops()[0].registered_channels(), 1);
        let there = Arc::clone(&socket);
        let waiting = Arc::new(AtomicUsize::new(0));
        let polls = Arc::clone(&waiting);
        let reader = second.spawn(async move {
            let mut buffer = [0; 8];
            let mut receive = pin!(there.recv(&mut buffer));
            poll_fn(|cx| {
                let polled = receive.as_mut().poll(cx);
                polls.fetch_add(1, Ordering::SeqCst);
                polled
            })
            .await
        });
        eventually("it waits", || waiting.load(Ordering::SeqCst) == 1);
        first.shutdown_now().wait();
        eventually("it is told", || waiting.load(Ordering::SeqCst) == 2);
        assert_eq!(second.loops()[0].registered_channels(), 1);
        theirs.send(b"hello").unwrap();
        assert_eq!(loopgroup::block_on(reader).unwrap().unwrap(), 5);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_forked_child_that_drops_a_socket_takes_nothing_from_its_parent() {
    util::alone(
        "a_forked_child_that_drops_a_socket_takes_nothing_from_its_parent",
        || {
            let group = EventLoopGroup::new(1).unwrap();
            let (ours, theirs) = net::UnixDatagram::pair().unwrap();
            let socket = Arc::new(UnixDatagram::from_std(ours).unwrap());
            let there = Arc::clone(&socket);
            let reader = group.spawn(async move {
                let mut buffer = [0; 8];
                there.recv(&mut buffer).await
            });
            eventually("it waits", || group.next().registered_channels() == 1);
            let parks = group.next().metrics().parks();
            eventually("the loop sleeps", || {
                group.next().metrics().parks() >= parks
            });
            // SAFETY: the child calls nothing but a destructor that takes an uncontended lock, and `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // What the child has is a copy, with the reader's share: it gives up all there are.
                while Arc::strong_count(&socket) > 1 {
                    // SAFETY: the other owner, a task of a thread that does not exist here, never runs.
                    unsafe { Arc::decrement_strong_count(Arc::as_ptr(&socket)) };
                }
                drop(socket);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child above.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
            theirs.send(b"hello").unwrap();
            assert_eq!(loopgroup::block_on(reader).unwrap().unwrap(), 5);
        },
    );
}
