//! Input that cannot work says so, by kind and by name, and leaves nothing behind.
#![cfg(target_os = "linux")]

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdUnixStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use loopgroup::io::{Interest, Registered};
use loopgroup::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use loopgroup::time::timeout;
use loopgroup::{EventLoop, EventLoopGroup, block_on};

use crate::util::{LONG, TempPath, WakeCount, on_a_loop, within};

#[test]
fn an_address_that_is_none_is_invalid_and_named() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let none = [
            "",
            "nonsense",
            "1.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:65536",
            "host:port",
        ];
        for text in none {
            let errors = [
                TcpStream::connect(text).await.unwrap_err(),
                TcpListener::bind(text).await.unwrap_err(),
                UdpSocket::bind(text).await.unwrap_err(),
                TcpStream::connect(String::from(text)).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(
                    error.kind(),
                    io::ErrorKind::InvalidInput,
                    "{text:?}: {error}"
                );
                let expected = format!("cannot look up {text:?}: ");
                assert!(error.to_string().starts_with(&expected), "{error}");
                assert!(
                    error.to_string().ends_with("(expected \"host:port\")"),
                    "{error}"
                );
            }
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            let error = socket.send_to(b"x", text).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let error = socket.connect(text).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(here.registered_channels(), 0);
        Ok(())
    });
}

#[test]
fn an_address_in_use_is_named_and_one_of_another_machine_too() {
    on_a_loop(|| async {
        let taken = UdpSocket::bind("127.0.0.1:0").await?;
        let address = taken.local_addr()?.to_string();
        let error = UdpSocket::bind(&address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address), "{error}");
        // A documentation address: nobody has it.
        for error in [
            UdpSocket::bind("192.0.2.1:7").await.unwrap_err(),
            TcpListener::bind("192.0.2.1:7").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
            assert!(error.to_string().contains("192.0.2.1:7"), "{error}");
        }
        let path = TempPath::new("in-use");
        let _taken = UnixListener::bind(&path.0)?;
        for error in [
            UnixListener::bind(&path.0).unwrap_err(),
            UnixDatagram::bind(&path.0).unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
        Ok(())
    });
}

#[test]
fn a_path_that_is_too_long_or_has_a_hole_is_invalid() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let datagram = UnixDatagram::unbound()?;
        for path in ["x".repeat(108), "x".repeat(5_000), String::from("a\0b")] {
            for error in [
                UnixStream::connect(&path).await.unwrap_err(),
                UnixListener::bind(&path).unwrap_err(),
                UnixDatagram::bind(&path).unwrap_err(),
                datagram.connect(&path).unwrap_err(),
                datagram.send_to(b"x", &path).await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            }
        }
        assert_eq!(here.registered_channels(), 0);
        Ok(())
    });
}

#[test]
fn a_unix_address_is_named_and_one_without_a_name_is_called_so() {
    on_a_loop(|| async {
        let path = TempPath::new("taken");
        let taken = SocketAddr::from_pathname(&path.0)?;
        let _listener = UnixListener::bind_addr(&taken)?;
        for error in [
            UnixListener::bind_addr(&taken).unwrap_err(),
            UnixDatagram::bind_addr(&taken).unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            let name = path.0.to_str().unwrap();
            assert!(error.to_string().contains(name), "{error}");
        }
        // Who is not bound can be received from, and not be answered.
        let socket = UnixDatagram::unbound()?;
        let nameless = socket.local_addr()?;
        for error in [
            socket.connect_addr(&nameless).unwrap_err(),
            socket.send_to_addr(b"x", &nameless).await.unwrap_err(),
            UnixStream::connect_addr(&nameless).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("has no name"), "{error}");
        }
        Ok(())
    });
}

#[test]
fn what_waits_without_a_loop_or_a_selector_says_so_and_works_afterwards() {
    within(|| {
        let executors = EventLoopGroup::builder()
            .loops(1)
            .without_io()
            .build()
            .unwrap();
        let group = EventLoopGroup::new(1).unwrap();
        let udp = Arc::new(block_on(UdpSocket::bind("127.0.0.1:0")).unwrap());
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (Arc::new(one), Arc::new(other));
        let wait = || {
            let (udp, stream) = (Arc::clone(&udp), Arc::clone(&one));
            async move {
                let mut buf = [0; 1];
                let errors = [
                    udp.recv(&mut buf).await.err(),
                    udp.readable().await.err(),
                    (&*stream).read(&mut buf).await.err(),
                    stream.readable().await.err(),
                ];
                errors.map(|error| error.expect("there is nothing to wait with"))
            }
        };
        for (errors, text) in [
            (block_on(wait()), "no event loop"),
            (block_on(executors.spawn(wait())).unwrap(), "without_io"),
            (executors.block_on(wait()), "without_io"),
        ] {
            for error in errors {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                assert!(error.to_string().contains(text), "{error}");
            }
        }
        assert!(udp.event_loop().is_none() && one.event_loop().is_none());
        // What need not wait needs no loop.
        block_on(udp.send_to(b"x", udp.local_addr().unwrap())).unwrap();
        block_on((&*other).write_all(b"y")).unwrap();
        let both = async move {
            let mut buf = [0; 1];
            udp.recv(&mut buf).await?;
            (&*one).read(&mut buf).await
        };
        assert_eq!(group.block_on(both).unwrap(), 1);
        assert_eq!(group.next().registered_channels(), 0);
    });
}

#[test]
fn a_full_unix_peer_without_a_loop_is_an_error_and_no_panic() {
    within(|| {
        /// Polls on a thread of another runtime: the attempts that need not wait succeed.
        fn first_error<F: Future<Output = io::Result<()>>>(attempt: impl Fn() -> F) -> io::Error {
            let mut cx = Context::from_waker(Waker::noop());
            loop {
                match Box::pin(attempt()).as_mut().poll(&mut cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return error,
                    Poll::Pending => panic!("nobody would wake it"),
                }
            }
        }
        let (full, backlog) = (TempPath::new("full-peer"), TempPath::new("full-backlog"));
        let _peer = UnixDatagram::bind(&full.0).unwrap();
        let _listener = UnixListener::bind(&backlog.0).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        let connected = Mutex::new(Vec::new());
        for error in [
            first_error(|| async { sender.send_to(b"x", &full.0).await.map(drop) }),
            first_error(|| async {
                let stream = UnixStream::connect(&backlog.0).await?;
                connected.lock().unwrap().push(stream);
                Ok(())
            }),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().contains("no event loop"), "{error}");
        }
    });
}

#[test]
fn one_descriptor_registered_twice_is_an_error_to_the_second_and_nothing_to_the_first() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let (ours, mut theirs) = StdUnixStream::pair()?;
        let ours = Arc::new(ours);
        let first = Registered::new(Arc::clone(&ours))?;
        let second = Registered::new(ours)?;
        assert!(futures::poll!(std::pin::pin!(first.readable())).is_pending());
        let error = second.readable().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("watches it already"), "{error}");
        assert_eq!(here.registered_channels(), 1);
        drop(second);
        assert_eq!(here.registered_channels(), 1);
        theirs.write_all(b"x")?;
        timeout(LONG, first.readable()).await??;
        Ok(())
    });
}

#[test]
fn what_cannot_be_watched_can_still_be_tried() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        for path in ["/proc/self/exe", "/dev/null", "/"] {
            let file = Registered::new(File::open(path)?)?;
            for _ in 0..2 {
                let error = file.readable().await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path}");
                let error = file.writable().await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path}");
            }
            assert!(file.event_loop().is_none());
            let length = file
                .try_io(Interest::READABLE, |file| file.metadata())?
                .len();
            assert_eq!(length, file.into_inner().metadata()?.len());
        }
        assert_eq!(here.registered_channels(), 0);
        Ok(())
    });
}

#[test]
fn taking_a_descriptor_out_wakes_who_waited_for_it_once_and_forgets_them() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let (ours, mut theirs) = StdUnixStream::pair()?;
        let ours = Registered::new(ours)?;
        let wakes = WakeCount::new();
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..3 {
            assert!(ours.poll_readable(&mut cx).is_pending());
        }
        {
            let mut given_up = std::pin::pin!(ours.readable());
            assert!(given_up.as_mut().poll(&mut cx).is_pending());
            assert_eq!(
                Arc::strong_count(&wakes),
                4,
                "ours two, and one for each wait"
            );
        }
        assert_eq!(
            Arc::strong_count(&wakes),
            3,
            "a wait that is given up is forgotten"
        );
        let mut inner = ours.into_inner();
        assert_eq!((wakes.get(), Arc::strong_count(&wakes)), (1, 2));
        assert_eq!(here.registered_channels(), 0);
        theirs.write_all(b"still non-blocking")?;
        let mut buf = [0; 64];
        assert_eq!(inner.read(&mut buf)?, 18);
        let empty = inner.read(&mut buf).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        loopgroup::yield_now().await;
        assert_eq!(wakes.get(), 1, "it is nothing to them any more");
        Ok(())
    });
}

#[test]
fn halves_that_come_together_and_leave_wake_the_reader_that_waited() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let (one, mut other) = UnixStream::pair()?;
        let (mut read, write) = one.into_split();
        let wakes = WakeCount::new();
        let waker = Waker::from(Arc::clone(&wakes));
        let mut buf = [0; 8];
        let waiting = Pin::new(&mut read).poll_read(&mut Context::from_waker(&waker), &mut buf);
        assert!(waiting.is_pending());
        assert_eq!(here.registered_channels(), 1);
        let stream = read.reunite(write).expect("they are of one stream");
        assert_eq!(wakes.get(), 0, "the stream is where it was");
        let mut std = stream.into_std();
        assert_eq!((wakes.get(), Arc::strong_count(&wakes)), (1, 2));
        assert_eq!(here.registered_channels(), 0);
        // The direction is open: the halves came together.
        std.write_all(b"hello")?;
        assert_eq!(other.read(&mut buf).await?, 5);
        Ok(())
    });
}

#[test]
fn a_fifo_that_loses_its_writer_waits_for_the_next_one() {
    on_a_loop(|| async {
        let path = TempPath::new("fifo");
        let name = CString::new(path.0.as_os_str().as_bytes())?;
        // SAFETY: the name ends with a zero and lives for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut open = OpenOptions::new();
        let reader = open
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path.0)?;
        let reader = Registered::new(reader)?;
        let mut buf = [0; 8];
        for turn in 0..3 {
            let mut writer = OpenOptions::new().write(true).open(&path.0)?;
            // The end of the last writer may be tried once more, and is no news then.
            let mut tries = 0;
            while futures::poll!(std::pin::pin!(reader.readable())).is_ready() {
                let tried = reader.try_io(Interest::READABLE, |mut file| file.read(&mut buf));
                assert_eq!(tried.unwrap_err().kind(), io::ErrorKind::WouldBlock);
                tries += 1;
                assert!(tries < 10, "turn {turn}: ready for ever, and for nothing");
                loopgroup::yield_now().await;
            }
            writer.write_all(b"news")?;
            timeout(LONG, reader.readable()).await??;
            let n = reader.try_io(Interest::READABLE, |mut file| file.read(&mut buf))?;
            assert_eq!(n, 4);
            let tried = reader.try_io(Interest::READABLE, |mut file| file.read(&mut buf));
            assert_eq!(tried.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            drop(writer);
            // Told by the selector, for nothing else speaks for it any more.
            timeout(LONG, reader.readable()).await??;
            let n = reader.try_io(Interest::READABLE, |mut file| file.read(&mut buf))?;
            assert_eq!(n, 0, "an end");
        }
        Ok(())
    });
}
