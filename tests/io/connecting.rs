//! Connecting: which addresses are tried, for how long, and what the error says if none answers.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::time::Duration;

use loopgroup::net::{
    ConnectError, TcpListener, TcpSocket, TcpStream, UdpSocket, UnixListener, UnixStream,
    lookup_host,
};
use loopgroup::time::timeout;
use loopgroup::{EventLoop, block_on};
use socket2::{Domain, Socket, Type};

use crate::util::{self, LONG, TempPath, on_a_loop, within};

/// An address that nothing listens on: taken by a socket that is bound and does not listen.
fn closed(ip: [u8; 4]) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((ip, 0)).into())?;
    let address = socket.local_addr()?.as_socket().unwrap();
    Ok((socket, address))
}

/// A listener whose backlog is full: the system leaves further connects without an answer.
fn silent(address: SocketAddr) -> io::Result<(StdTcpListener, StdTcpStream)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(0)?;
    let listener = StdTcpListener::from(socket);
    let first = StdTcpStream::connect(listener.local_addr()?)?;
    Ok((listener, first))
}

/// The number of the system's error, which is the source of one that has a text.
fn number_of_the_source(error: &io::Error) -> Option<i32> {
    let source = error.source()?.downcast_ref::<io::Error>()?;
    source.raw_os_error()
}

#[test]
fn one_refused_address_keeps_the_number_of_the_system() {
    on_a_loop(|| async {
        let (_socket, address) = closed([127, 0, 0, 1])?;
        let socket = TcpSocket::new_v4()?;
        for error in [
            TcpStream::connect(address).await.unwrap_err(),
            TcpStream::connect(address.to_string()).await.unwrap_err(),
            TcpStream::connect(&[address][..]).await.unwrap_err(),
            TcpStream::connect_timeout(address, LONG).await.unwrap_err(),
            socket.connect(address).await.unwrap_err(),
        ] {
            assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED), "{error}");
        }
        Ok(())
    });
}

#[test]
fn if_all_addresses_fail_the_error_names_each_with_its_own_error() {
    on_a_loop(|| async {
        let here = EventLoop::current().unwrap();
        let ((_one, first), (_other, second)) = (closed([127, 0, 0, 1])?, closed([127, 0, 0, 2])?);
        let error = TcpStream::connect(&[first, second][..]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(number_of_the_source(&error), Some(libc::ECONNREFUSED));
        let text = error.to_string();
        assert!(
            text.contains(&format!("{first}: ")) && text.contains(&format!("{second}: ")),
            "{text}"
        );

        let name = format!("localhost:{}", first.port());
        let error = TcpStream::connect(&name).await.unwrap_err();
        assert_eq!(
            number_of_the_source(&error),
            Some(libc::ECONNREFUSED),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot connect to {name:?}: ")),
            "{error}"
        );
        let inner = error
            .get_ref()
            .unwrap()
            .downcast_ref::<ConnectError>()
            .unwrap();
        let mut expected: Vec<_> = lookup_host(&name).await?.collect();
        let mut tried: Vec<_> = inner.attempts().map(|(address, _)| address).collect();
        expected.sort();
        tried.sort();
        assert_eq!(tried, expected);
        assert_eq!(here.registered_channels(), 0);
        Ok(())
    });
}

#[test]
fn a_failed_bind_names_its_address_and_its_source_has_the_number() {
    on_a_loop(|| async {
        let taken = TcpListener::bind("127.0.0.1:0").await?;
        let address = taken.local_addr()?;
        let udp = UdpSocket::bind("127.0.0.1:0").await?;
        let socket = TcpSocket::new_v4()?;
        for (error, name) in [
            (TcpListener::bind(address).await.unwrap_err(), address),
            (socket.bind(address).unwrap_err(), address),
            (
                UdpSocket::bind(udp.local_addr()?).await.unwrap_err(),
                udp.local_addr()?,
            ),
        ] {
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            assert_eq!(
                number_of_the_source(&error),
                Some(libc::EADDRINUSE),
                "{error}"
            );
            assert!(error.to_string().contains(&name.to_string()), "{error}");
        }
        let path = TempPath::new("bind-number");
        let _taken = UnixListener::bind(&path.0)?;
        let error = UnixListener::bind(&path.0).unwrap_err();
        assert_eq!(
            number_of_the_source(&error),
            Some(libc::EADDRINUSE),
            "{error}"
        );
        Ok(())
    });
}

#[test]
fn a_name_with_one_dead_address_connects_to_the_other() {
    on_a_loop(|| async {
        // The family of one address is dead, in both ways: refused, or silent.
        let alive = TcpListener::bind("127.0.0.1:0").await?;
        let port = alive.local_addr()?.port();
        let name = format!("localhost:{port}");
        let stream = timeout(LONG, TcpStream::connect(&name)).await??;
        assert_eq!(
            stream.peer_addr()?,
            alive.local_addr()?,
            "nothing listens at the other"
        );
        let dead = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port));
        if !lookup_host(&name).await?.any(|address| address == dead) {
            return Ok(()); // no IPv6 here: the unit tests of `connect` have it in virtual time
        }
        let _silent = silent(dead)?;
        let here = EventLoop::current().unwrap();
        let stream = timeout(LONG, TcpStream::connect(&name)).await??;
        assert_eq!(stream.peer_addr()?, alive.local_addr()?);
        assert!(here.registered_channels() <= 1, "the loser is closed");
        Ok(())
    });
}

#[test]
fn a_connect_has_a_limit_that_is_never_zero_and_leaves_no_descriptor() {
    util::alone(
        "a_connect_has_a_limit_that_is_never_zero_and_leaves_no_descriptor",
        || {
            loopgroup::run(async {
                let here = EventLoop::current().unwrap();
                let (listener, _first) = silent(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
                let address = listener.local_addr().unwrap();
                let before = util::entries("/proc/self/fd");
                let limit = Duration::from_millis(20);
                let error = TcpStream::connect_timeout(address, limit)
                    .await
                    .unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                let text = format!("cannot connect to {address} within 20ms");
                assert_eq!(error.to_string(), text);
                let error = TcpStream::connect_timeout(address, Duration::ZERO)
                    .await
                    .unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains("zero"), "{error}");
                // Cancelled half way, from the outside.
                let addresses = [address, address];
                assert!(
                    timeout(limit, TcpStream::connect(&addresses[..]))
                        .await
                        .is_err()
                );
                let socket = TcpSocket::new_v4().unwrap();
                assert!(timeout(limit, socket.connect(address)).await.is_err());
                assert_eq!(util::entries("/proc/self/fd"), before);
                assert_eq!(here.registered_channels(), 0);
            })
            .unwrap();
        },
    );
}

#[test]
fn a_task_that_retries_a_connect_for_ever_lets_others_run() {
    util::alone(
        "a_task_that_retries_a_connect_for_ever_lets_others_run",
        || {
            loopgroup::run(async {
                let (_socket, address) = closed([127, 0, 0, 1]).unwrap();
                let v6 = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 1));
                let mut spare: Vec<_> = (0..2).map(|_| TcpSocket::new_v4().unwrap()).collect();
                let mut hoard = Vec::new();
                while let Ok(file) = std::fs::File::open("/dev/null") {
                    hoard.push(file);
                }
                for round in 0..3 {
                    let other = loopgroup::spawn_local(async {});
                    // Would never end if it never yielded.
                    while !other.is_finished() {
                        let error = match round {
                            0 => TcpStream::connect(address).await.unwrap_err(),
                            1 => UnixStream::connect("/nonexistent").await.unwrap_err(),
                            _ => match spare.pop() {
                                Some(socket) => socket.connect(v6).await.unwrap_err(),
                                None => TcpStream::connect(&[address, v6][..]).await.unwrap_err(),
                            },
                        };
                        assert!(
                            error.raw_os_error().is_some() || error.source().is_some(),
                            "{error}"
                        );
                    }
                }
                drop(hoard);
            })
            .unwrap();
        },
    );
}

#[test]
fn a_look_up_needs_no_loop_and_says_what_it_could_not_find() {
    within(|| {
        let found: Vec<_> = block_on(lookup_host("127.0.0.1:80")).unwrap().collect();
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 80))]);
        let found = block_on(lookup_host(("localhost", 7))).unwrap();
        assert!(found.len() > 0);
        let none: &[SocketAddr] = &[];
        let error = block_on(lookup_host(none)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = block_on(lookup_host("no such host.invalid:80")).unwrap_err();
        assert!(
            error.to_string().contains("no such host.invalid:80"),
            "{error}"
        );
    });
}

#[test]
fn a_connect_where_nothing_waits_fails_as_it_did() {
    within(|| {
        let (listener, _first) = silent(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let error = block_on(TcpStream::connect_timeout(address, LONG)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("no event loop"), "{error}");
    });
}
