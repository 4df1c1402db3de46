//! The `try_`, `poll_` and `ready` forms of what sockets do: at once or not at all, beside tasks that wait.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::io::{Interest, Registered};
use loopgroup::net::{
    Incoming, OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpSocket, TcpStream, UdpSocket,
    UnixDatagram, UnixIncoming, UnixListener, UnixOwnedReadHalf, UnixOwnedWriteHalf, UnixSocket,
    UnixStream, pipe,
};
use loopgroup::time::timeout;

use crate::util::{LONG, Log, Probe, TempPath, WakeCount, on_a_loop, within};

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// Two ends of a TCP connection.
async fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}

/// Two UDP sockets that are connected to each other.
async fn udp_pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let one = UdpSocket::bind("127.0.0.1:0").await?;
    let other = UdpSocket::bind("127.0.0.1:0").await?;
    one.connect(other.local_addr()?).await?;
    other.connect(one.local_addr()?).await?;
    Ok((one, other))
}

#[track_caller]
fn assert_would_block<R: std::fmt::Debug>(result: io::Result<R>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Tries until it is not told to wait, and waits where it is told to.
macro_rules! once_ready {
    ($socket:expr, $wait:ident, $operation:expr) => {
        loop {
            timeout(LONG, $socket.$wait()).await??;
            match $operation {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => break result?,
            }
        }
    };
}

macro_rules! a_stream_is_tried {
    ($pair:expr) => {
        on_a_loop(|| async {
            let (one, other) = $pair;
            let mut buf = [0; 16];
            assert_would_block(other.try_read(&mut buf)); // not registered: the system says so
            assert!(futures::poll!(pin!(other.readable())).is_pending());
            assert_would_block(other.try_read(&mut buf)); // registered: its readiness says so
            one.try_write_vectored(&[io::IoSlice::new(b"he"), io::IoSlice::new(b"llo")])?;
            let read = once_ready!(other, readable, {
                let (first, second) = buf.split_at_mut(3);
                let mut bufs = [io::IoSliceMut::new(first), io::IoSliceMut::new(second)];
                other.try_read_vectored(&mut bufs)
            });
            assert_eq!(&buf[..read], b"hello");
            assert_would_block(other.try_read(&mut buf));

            // Until it is full, and again once there is room.
            timeout(LONG, one.writable()).await??;
            let block = vec![7; 1 << 16];
            let mut sent = 0;
            let full = loop {
                match one.try_write(&block) {
                    Ok(n) => sent += n,
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), ErrorKind::WouldBlock);
            assert!(
                futures::poll!(pin!(one.writable())).is_pending(),
                "it is full"
            );
            let mut received = 0;
            let mut big = vec![0; 1 << 16];
            while received < sent {
                received += once_ready!(other, readable, other.try_read(&mut big));
            }
            once_ready!(one, writable, one.try_write(b"!"));
            drop(one);
            assert_eq!((&other).read(&mut buf).await?, 1);
            assert_eq!(
                once_ready!(other, readable, other.try_read(&mut buf)),
                0,
                "the end"
            );
            Ok(())
        })
    };
}

#[test]
fn a_tcp_stream_is_tried_and_waited_for_in_turns() {
    a_stream_is_tried!(tcp_pair().await?);
}

#[test]
fn a_unix_stream_is_tried_and_waited_for_in_turns() {
    a_stream_is_tried!(UnixStream::pair()?);
}

#[test]
fn a_wait_for_both_directions_tells_which_is_ready_and_leaves_nothing_behind() {
    on_a_loop(|| async {
        let (one, other) = tcp_pair().await?;
        let ready = timeout(LONG, one.ready(BOTH)).await??;
        assert!(ready.is_writable() && !ready.is_readable(), "{ready:?}");
        // Cancelled: an event wakes nothing any more.
        let wakes = WakeCount::new();
        let waker = wakes.clone().into();
        let mut cx = Context::from_waker(&waker);
        {
            let mut reading = pin!(one.ready(Interest::READABLE | Interest::PRIORITY));
            assert!(reading.as_mut().poll(&mut cx).is_pending());
        }
        let mut kept = pin!(one.ready(Interest::READABLE));
        assert!(futures::poll!(kept.as_mut()).is_pending());
        (&other).write_all(b"!").await?;
        let ready = timeout(LONG, kept).await??;
        assert!(
            ready.is_readable() && !ready.is_writable(),
            "only what was asked for"
        );
        assert_eq!(wakes.get(), 0);
        assert_eq!(one.try_read(&mut [0; 8])?, 1);
        // Either direction ends a wait for both.
        let (one, other) = UnixStream::pair()?;
        assert_would_block(one.try_read(&mut [0; 8]));
        while one.try_write(&[0; 1 << 16]).is_ok() {}
        let mut either = pin!(one.ready(BOTH));
        assert!(futures::poll!(either.as_mut()).is_pending());
        drop(other);
        let ready = timeout(LONG, either).await??;
        assert!(ready.is_readable(), "the peer has closed: {ready:?}");
        Ok(())
    });
}

#[test]
fn halves_are_tried_peeked_and_waited_for_like_the_stream() {
    on_a_loop(|| async {
        let (one, other) = tcp_pair().await?;
        let (ours, theirs) = (one.local_addr()?, one.peer_addr()?);
        let ((read, write), (other_read, other_write)) = (one.into_split(), other.into_split());
        assert_eq!((read.local_addr()?, read.peer_addr()?), (ours, theirs));
        assert_eq!((write.local_addr()?, write.peer_addr()?), (ours, theirs));
        assert!(timeout(LONG, write.ready(BOTH)).await??.is_writable());
        timeout(LONG, write.writable()).await??;
        write.try_write(b"hello")?;
        let mut buf = [0; 8];
        assert_eq!(timeout(LONG, other_read.peek(&mut buf)).await??, 5);
        timeout(LONG, other_read.readable()).await??;
        assert_eq!(other_read.try_read(&mut buf)?, 5);
        other_write.try_write_vectored(&[io::IoSlice::new(b"!")])?;
        timeout(LONG, read.readable()).await??;
        assert_eq!(
            read.try_read_vectored(&mut [io::IoSliceMut::new(&mut buf)])?,
            1
        );
        // Forgotten, not shut down: the other side sees no end, until both halves are gone.
        write.forget();
        assert_would_block(other_read.try_read(&mut buf));
        drop(read);
        assert_eq!(
            once_ready!(other_read, readable, other_read.try_read(&mut buf)),
            0
        );
        Ok(())
    });
}

#[test]
fn a_tried_accept_takes_a_connection_that_others_wait_for_and_they_wait_on() {
    on_a_loop(|| async {
        let path = TempPath::new("try-accept");
        let unix = UnixListener::bind(&path.0)?;
        assert_would_block(unix.try_accept());
        let _client = UnixStream::connect(&path.0).await?;
        unix.try_accept()?;

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut waiting = pin!(listener.accept());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        let first = TcpStream::connect(address).await?;
        let stolen = loop {
            match listener.try_accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => loopgroup::yield_now().await,
                accepted => break accepted?,
            }
        };
        assert_eq!(stolen.1, first.local_addr()?);
        assert!(
            futures::poll!(waiting.as_mut()).is_pending(),
            "it was taken"
        );
        let second = TcpStream::connect(address).await?;
        assert_eq!(timeout(LONG, waiting).await??.1, second.local_addr()?);
        Ok(())
    });
}

#[test]
fn sockets_are_made_from_the_standard_library_by_try_from() {
    within(|| {
        fn both<T: TryFrom<S, Error = io::Error>, S>(socket: S) -> T {
            socket.try_into().unwrap()
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // A read that blocked would be caught by the watchdog.
        assert_would_block(both::<TcpStream, _>(stream).try_read(&mut [0; 1]));
        let _: TcpListener = both(listener);
        let udp: UdpSocket = both(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        assert_would_block(udp.try_recv_from(&mut [0; 1]));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_would_block(both::<UnixStream, _>(one).try_read(&mut [0; 1]));
        let (one, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        assert_would_block(both::<UnixDatagram, _>(one).try_recv(&mut [0; 1]));
        let path = TempPath::new("try-from");
        let _: UnixListener = both(std::os::unix::net::UnixListener::bind(&path.0).unwrap());
    });
}

#[test]
fn a_datagram_that_try_recv_takes_from_the_holder_of_the_baton_costs_nobody_a_wake_up() {
    on_a_loop(|| async {
        let (one, other) = udp_pair().await?;
        let other = Rc::new(other);
        let (log, order) = (Log::new(), Rc::new(std::cell::RefCell::new(Vec::new())));
        let waiters: Vec<_> = (0..4)
            .map(|index| {
                let (other, order) = (Rc::clone(&other), Rc::clone(&order));
                loopgroup::spawn_local(Probe::new(&log, async move {
                    let mut buf = [0; 8];
                    let received = other.recv(&mut buf).await;
                    order.borrow_mut().push((index, buf[0]));
                    received
                }))
            })
            .collect();
        while log.polls() < 4 {
            loopgroup::yield_now().await;
        }
        // An observer is woken by the same event as the first waiter, and before it.
        let thief = Rc::clone(&other);
        let theft = loopgroup::spawn_local(async move {
            let mut buf = [0; 8];
            thief.readable().await?;
            let stolen = thief.try_recv(&mut buf)?;
            assert_would_block(thief.try_recv(&mut buf)); // which clears the readiness
            io::Result::Ok((stolen, buf[0]))
        });
        loopgroup::yield_now().await;
        one.send(&[9]).await?;
        assert_eq!(timeout(LONG, theft).await???, (1, 9));
        while log.polls() < 5 {
            loopgroup::yield_now().await; // the holder of the baton finds nothing
        }
        assert_eq!(*order.borrow(), []);
        for number in 0..4 {
            one.send(&[number]).await?;
        }
        for waiter in waiters {
            assert_eq!(timeout(LONG, waiter).await???, 1);
        }
        assert_eq!(*order.borrow(), [(0, 0), (1, 1), (2, 2), (3, 3)]);
        Ok(())
    });
}

#[test]
fn polled_datagrams_spend_budget_and_all_arrive() {
    on_a_loop(|| async {
        const MANY: usize = 200;
        let (one, other) = udp_pair().await?;
        assert!(futures::poll!(pin!(other.readable())).is_pending()); // registered
        let all = loopgroup::spawn_local(async move {
            let (mut polls, mut most, mut received) = (0, 0, 0);
            poll_fn(|cx| {
                polls += 1;
                let before = received;
                loop {
                    let mut buf = [0; 8];
                    match other.poll_recv_from(cx, &mut buf) {
                        Poll::Ready(Ok(_)) => received += 1,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => break,
                    }
                }
                most = most.max(received - before);
                match received {
                    MANY => Poll::Ready(Ok(())),
                    _ => Poll::Pending,
                }
            })
            .await?;
            io::Result::Ok((polls, most))
        });
        let sent = one.as_std().try_clone()?; // all at once: this task does not yield
        for _ in 0..MANY {
            sent.send(b"x")?;
        }
        let (polls, most) = timeout(LONG, all).await???;
        assert!(polls >= 2 && most <= 128, "{polls} polls, {most} in one");
        Ok(())
    });
}

#[test]
fn every_polled_and_tried_form_of_a_datagram_works_with_its_address() {
    on_a_loop(|| async {
        let (one, other) = udp_pair().await?;
        let from = one.local_addr()?;
        let third = UdpSocket::bind("127.0.0.1:0").await?;
        let mut buf = [0; 8];
        poll_fn(|cx| one.poll_send_ready(cx)).await?;
        one.try_send(b"1")?;
        poll_fn(|cx| other.poll_recv_ready(cx)).await?;
        assert_eq!(other.peek(&mut buf).await?, 1);
        assert_eq!(poll_fn(|cx| other.poll_peek(cx, &mut buf)).await?, 1);
        let peeked = poll_fn(|cx| other.poll_peek_from(cx, &mut buf)).await?;
        assert_eq!(
            (peeked, other.try_peek_from(&mut buf)?),
            ((1, from), (1, from))
        );
        assert_eq!(other.try_recv_from(&mut buf)?, (1, from));
        assert_would_block(other.try_peek_from(&mut buf));
        let address = third.local_addr()?;
        let free = UdpSocket::bind("127.0.0.1:0").await?;
        poll_fn(|cx| free.poll_send_to(cx, b"22", address)).await?;
        free.try_send_to(b"333", address)?;
        for len in [2, 3] {
            let received = poll_fn(|cx| third.poll_recv_from(cx, &mut buf)).await?;
            assert_eq!(received, (len, free.local_addr()?));
        }
        Ok(())
    });
}

#[test]
fn a_full_queue_elsewhere_does_not_make_a_datagram_socket_unready() {
    on_a_loop(|| async {
        let path = TempPath::new("try-full");
        let server = UnixDatagram::bind(&path.0)?;
        let client = UnixDatagram::unbound()?;
        timeout(LONG, client.writable()).await??; // registered
        while client.try_send_to(b"x", &path.0).is_ok() {}
        assert_would_block(client.try_send_to(b"x", &path.0));
        // The socket itself has room: the wait returns at once, as is documented.
        timeout(LONG, client.writable()).await??;
        server.recv(&mut [0; 8]).await?;
        assert_eq!(client.try_send_to(b"x", &path.0)?, 1);
        let missing = TempPath::new("try-missing");
        let error = client.try_send_to(b"x", &missing.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_descriptor_that_cannot_be_wrapped_comes_back() {
    use std::os::unix::fs::OpenOptionsExt;

    within(|| {
        // A descriptor that only names a file has no flags to set.
        let open = || {
            let mut options = std::fs::File::options();
            options.read(true).custom_flags(libc::O_PATH).open("/")
        };
        let failed = Registered::try_new(open().unwrap()).unwrap_err();
        assert_eq!(failed.error().raw_os_error(), Some(libc::EBADF));
        assert!(failed.to_string().contains("non-blocking"), "{failed}");
        let (error, file) = failed.into_parts();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert!(file.metadata().unwrap().is_dir(), "it is still open");
        let error = Registered::new(file).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    });
}

#[test]
fn sockets_may_cross_a_caught_panic() {
    fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    unwind_safe::<Registered<std::net::TcpStream>>();
    unwind_safe::<(TcpListener, TcpStream, TcpSocket, UdpSocket)>();
    unwind_safe::<(UnixListener, UnixStream, UnixSocket, UnixDatagram)>();
    unwind_safe::<(OwnedReadHalf, OwnedWriteHalf, Incoming<'static>)>();
    unwind_safe::<(UnixOwnedReadHalf, UnixOwnedWriteHalf, UnixIncoming<'static>)>();
    unwind_safe::<(pipe::Sender, pipe::Receiver)>();
}
