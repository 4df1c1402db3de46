//! Where a server's connections come from: listeners, descriptors, Unix sockets; what they inherit.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream as Client, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::mpsc;
use std::time::Duration;

use futures::io::AsyncReadExt;
use loopgroup::block_on;
use loopgroup::net::{self, Server};

use crate::util::{HOUR, LONG, TempPath, group, secs, within};
use crate::{connect, serve_on};

#[test]
fn an_existing_listener_is_served_with_what_waits_in_its_backlog() {
    within(|| {
        let workers = group(2);
        let echo = |stream: net::TcpStream, _| async move {
            futures::io::copy(&stream, &mut &stream).await.map(drop)
        };
        for kind in 0..3 {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let mut early = Client::connect(address).unwrap();
            early.write_all(b"early").unwrap();
            let server = match kind {
                0 => Server::from_listener(listener),
                1 => Server::from_listener(net::TcpListener::from_std(listener).unwrap()),
                _ => Server::from_fd(listener.into()),
            };
            let server = server.unwrap().workers(&workers).serve(echo).unwrap();
            assert_eq!(server.local_addr(), address);
            let mut answer = [0; 5];
            early.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"early");
            drop(early);
            server.stop();
            assert_eq!(block_on(server).completed(), 1);
            assert_eq!(
                Client::connect(address).unwrap_err().kind(),
                ErrorKind::ConnectionRefused
            );
        }
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_descriptor_that_cannot_be_served_is_an_error_that_says_why() {
    within(|| {
        let unbound = || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
            OwnedFd::from(socket.unwrap())
        };
        let path = TempPath::new("listener");
        let unix = UnixListener::bind(&path.0).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let connected = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Client::connect(listener.local_addr().unwrap()).unwrap()
        };
        for (fd, text) in [
            (unbound(), "does not listen"),
            (connected.into(), "does not listen"),
            (UdpSocket::bind("127.0.0.1:0").unwrap().into(), "datagram"),
            (unix.into(), "unix_from_fd"),
            (file.into(), "not a socket"),
        ] {
            let error = Server::from_fd(fd).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(text), "{error}");
        }
        let (pair, _other) = UnixStream::pair().unwrap();
        for (fd, text) in [
            (unbound(), "from_fd"),
            (pair.into(), "does not listen"),
            (UnixDatagram::unbound().unwrap().into(), "datagram"),
        ] {
            let error = Server::unix_from_fd(fd).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(text), "{error}");
        }
        let not_listening = std::net::TcpListener::from(unbound());
        let error = Server::from_listener(not_listening).unwrap_err();
        assert!(error.to_string().contains("does not listen"), "{error}");
    });
}

#[test]
fn settings_that_make_no_sense_are_named() {
    within(|| {
        let workers = group(1);
        let new = || serve_on(&workers);
        let zero = Duration::ZERO;
        let existing = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Server::from_listener(listener).unwrap().workers(&workers)
        };
        for (server, text) in [
            (new().backlog(0), "backlog(0)"),
            (new().max_connections(0), "max_connections(0)"),
            (new().max_accept_rate(0), "max_accept_rate(0)"),
            (new().first_byte_timeout(zero), "first_byte_timeout"),
            (new().idle_timeout(zero), "idle_timeout"),
            (new().keepalive(zero), "keepalive"),
            (new().send_buffer_size(0), "send_buffer_size(0)"),
            (new().recv_buffer_size(0), "recv_buffer_size(0)"),
            (existing().backlog(5), "backlog"),
            (existing().reuse_port(true), "reuse_port"),
        ] {
            let error = server.serve(|_, _| async {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(text), "{error}");
        }
    });
}

#[test]
fn connections_inherit_the_options_of_the_server() {
    within(|| {
        let workers = group(1);
        let (tell, told) = mpsc::channel();
        let report = move |stream: net::TcpStream, _| {
            let tell = tell.clone();
            async move {
                let buffers = (stream.recv_buffer_size()?, stream.send_buffer_size()?);
                tell.send((stream.nodelay()?, stream.keepalive()?, buffers))
                    .unwrap();
                std::io::Result::Ok(())
            }
        };
        let look = |server: Server| {
            let server = server.serve(report.clone()).unwrap();
            let client = connect(&server);
            let seen = told.recv().unwrap();
            drop(client);
            server.stop();
            assert_eq!(block_on(server).completed(), 1);
            seen
        };
        let (nodelay, keepalive, default_sizes) = look(serve_on(&workers));
        assert_eq!((nodelay, keepalive), (true, false));
        let set = serve_on(&workers).nodelay(false).keepalive(secs(60));
        let set = set.send_buffer_size(16 * 1024).recv_buffer_size(24 * 1024);
        let (nodelay, keepalive, sizes) = look(set);
        assert_eq!((nodelay, keepalive), (false, true));
        assert!(sizes.0 >= 24 * 1024 && sizes.1 >= 16 * 1024, "{sizes:?}");
        assert_ne!(sizes, default_sizes);
        // An existing listener keeps its own, except what is asked for.
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let existing = || Server::from_listener(listener()).unwrap().workers(&workers);
        assert!(!look(existing()).0);
        assert!(look(existing().nodelay(true)).0);
    });
}

#[test]
fn a_unix_server_serves_and_its_idle_clients_do_not_delay_a_drain() {
    within(|| {
        let path = TempPath::new("server");
        let workers = group(2);
        let server = Server::unix(&path.0)
            .workers(&workers)
            .max_connections(10)
            .serve(|stream, peer| async move {
                assert!(peer.is_unnamed());
                futures::io::copy(&stream, &mut &stream).await.map(drop)
            })
            .unwrap();
        assert_eq!(server.local_addr().as_pathname(), Some(path.0.as_path()));
        let mut clients: Vec<_> = (0..10)
            .map(|_| UnixStream::connect(&path.0).unwrap())
            .collect();
        for client in &mut clients {
            client.write_all(b"hello").unwrap();
            client.read_exact(&mut [0; 5]).unwrap();
        }
        let in_use = Server::unix(&path.0)
            .workers(&workers)
            .serve(|_, _| async {});
        let error = in_use.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(
            error.to_string().contains(path.0.to_str().unwrap()),
            "{error}"
        );
        assert!(workers.drain(HOUR).wait().is_clean());
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (10, 10));
    });
}

#[test]
fn a_unix_listener_may_be_made_by_another() {
    within(|| {
        let workers = group(1);
        for by_descriptor in [false, true] {
            let path = TempPath::new("made");
            let listener = UnixListener::bind(&path.0).unwrap();
            let server = match by_descriptor {
                true => Server::unix_from_fd(listener.into()),
                false => Server::from_listener(listener),
            };
            let handler = |mut stream: net::UnixStream, _| async move {
                let mut text = String::new();
                stream.read_to_string(&mut text).await.map(drop)
            };
            let server = server
                .unwrap()
                .workers(&workers)
                .serve_with(move |_| handler)
                .unwrap();
            let mut client = UnixStream::connect(&path.0).unwrap();
            client.write_all(b"hello").unwrap();
            drop(client);
            while server.accepted() < 1 {
                std::thread::yield_now();
            }
            server.stop();
            assert_eq!(block_on(server).completed(), 1);
        }
    });
}
