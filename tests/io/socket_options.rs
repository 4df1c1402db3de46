//! Options: what is set can be read again, before and after a socket is bound or connected.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixSocket};
use loopgroup::time::timeout;

use crate::util::{LONG, TempPath, on_a_loop};

fn localhost() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[test]
fn options_of_a_tcp_socket_last_through_its_connect() {
    on_a_loop(|| async {
        let listener = TcpListener::bind(localhost()).await?;
        let socket = TcpSocket::new_v4()?;
        assert!(
            !socket.reuseaddr()? && !socket.reuseport()?,
            "nothing is set at first"
        );
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.set_nodelay(true)?;
        socket.set_keepalive(Some(Duration::from_secs(60)))?;
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_ttl(33)?;
        socket.set_tos_v4(0x10)?;
        socket.set_recv_buffer_size(100_000)?;
        socket.set_send_buffer_size(100_000)?;
        assert!(socket.reuseaddr()? && socket.reuseport()?);
        socket.bind(SocketAddr::from(([127, 0, 0, 9], 0)))?;
        let own = socket.local_addr()?;
        assert!(format!("{socket:?}").contains("127.0.0.9"), "{socket:?}");
        assert!(socket.take_error()?.is_none());
        let stream = timeout(LONG, socket.connect(listener.local_addr()?)).await??;
        assert_eq!(stream.local_addr()?, own);
        assert!(stream.nodelay()? && stream.keepalive()?);
        assert_eq!((stream.ttl()?, stream.tos_v4()?), (33, 0x10));
        assert_eq!(stream.linger()?, Some(Duration::ZERO));
        assert!(stream.recv_buffer_size()? >= 100_000 && stream.send_buffer_size()? >= 100_000);
        Ok(())
    });
}

#[test]
fn two_listeners_share_a_port_and_a_third_that_does_not_ask_is_refused() {
    on_a_loop(|| async {
        let listen = |address: SocketAddr, share| {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseport(share)?;
            socket.bind(address)?;
            socket.listen(16)
        };
        let first = listen(localhost(), true)?;
        let address = first.local_addr()?;
        let _second = listen(address, true)?;
        assert_eq!(
            listen(address, false).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        // Whatever backlog is asked for: the system cuts it.
        let socket = TcpSocket::new_v4()?;
        socket.bind(localhost())?;
        let listener = socket.listen(u32::MAX)?;
        let (client, accepted) = futures::join!(
            TcpStream::connect(listener.local_addr()?),
            listener.accept()
        );
        (&client?).write_all(b"x").await?;
        assert_eq!((&accepted?.0).read(&mut [0; 8]).await?, 1);
        Ok(())
    });
}

#[test]
fn a_socket_that_another_crate_has_made_is_taken_and_a_wrong_family_is_an_error() {
    on_a_loop(|| async {
        let listener = TcpListener::bind(localhost()).await?;
        let made = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        let socket = TcpSocket::from_std_stream(made.into())?;
        let stream = timeout(LONG, socket.connect(listener.local_addr()?)).await??;
        assert_eq!(stream.peer_addr()?, listener.local_addr()?);
        let socket = TcpSocket::new_v4()?;
        assert!(
            socket
                .bind(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)))
                .is_err()
        );
        assert!(
            socket
                .connect(SocketAddr::from((Ipv6Addr::LOCALHOST, 1)))
                .await
                .is_err()
        );
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_tcp_socket_is_restricted_to_a_device_that_exists() {
    on_a_loop(|| async {
        let socket = TcpSocket::new_v4()?;
        assert_eq!(socket.device()?, None);
        assert!(socket.bind_device(Some(b"no-such-device")).is_err());
        socket.bind_device(Some(b"lo"))?;
        assert_eq!(socket.device()?.as_deref(), Some(&b"lo"[..]));
        let listener = TcpListener::bind(localhost()).await?;
        timeout(LONG, socket.connect(listener.local_addr()?)).await??;
        Ok(())
    });
}

#[test]
fn a_multicast_datagram_reaches_its_members_and_no_longer_who_has_left() {
    on_a_loop(|| async {
        let (group, interface) = (Ipv4Addr::new(239, 255, 77, 7), Ipv4Addr::LOCALHOST);
        let member = UdpSocket::bind("0.0.0.0:0").await?;
        let sender = UdpSocket::bind("127.0.0.1:0").await?;
        sender.set_multicast_if_v4(interface)?;
        assert_eq!(sender.multicast_if_v4()?, interface);
        sender.set_multicast_ttl_v4(1)?;
        sender.set_multicast_loop_v4(true)?;
        assert!(sender.multicast_loop_v4()? && sender.multicast_ttl_v4()? == 1);
        member.join_multicast_v4(group, interface)?;
        let address = SocketAddr::from((group, member.local_addr()?.port()));
        sender.send_to(b"hello", address).await?;
        let mut buf = [0; 8];
        let (n, from) = timeout(LONG, member.recv_from(&mut buf)).await??;
        assert_eq!((&buf[..n], from), (&b"hello"[..], sender.local_addr()?));
        member.leave_multicast_v4(group, interface)?;
        assert!(
            member.leave_multicast_v4(group, interface).is_err(),
            "no member any more"
        );
        assert!(
            member
                .join_multicast_v4(Ipv4Addr::LOCALHOST, interface)
                .is_err()
        );
        Ok(())
    });
}

#[test]
fn options_of_a_udp_socket_are_read_as_they_were_set() {
    on_a_loop(|| async {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let broadcast = SocketAddr::from(([127, 255, 255, 255], 9));
        let error = socket.send_to(b"x", broadcast).await.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::PermissionDenied,
            "broadcast is off"
        );
        socket.set_broadcast(true)?;
        socket.set_ttl(5)?;
        socket.set_tos_v4(0x08)?;
        assert!(socket.broadcast()?);
        assert_eq!((socket.ttl()?, socket.tos_v4()?), (5, 0x08));
        let Ok(socket) = UdpSocket::bind("[::1]:0").await else {
            return Ok(()); // no IPv6 here
        };
        socket.set_multicast_loop_v6(false)?;
        socket.set_tclass_v6(0x20)?;
        assert!(!socket.multicast_loop_v6()? && socket.tclass_v6()? == 0x20);
        assert!(socket.join_multicast_v6(&Ipv6Addr::LOCALHOST, 0).is_err());
        assert!(socket.leave_multicast_v6(&Ipv6Addr::LOCALHOST, 0).is_err());
        Ok(())
    });
}

#[test]
fn a_value_that_has_no_room_in_a_byte_is_an_error_and_not_cut_off() {
    on_a_loop(|| async {
        let (udp, tcp) = (UdpSocket::bind("127.0.0.1:0").await?, TcpSocket::new_v4()?);
        let before = (
            tcp.ttl()?,
            tcp.tos_v4()?,
            udp.ttl()?,
            udp.multicast_ttl_v4()?,
        );
        for wrong in [256, 0x110, u32::MAX] {
            for error in [
                tcp.set_ttl(wrong).unwrap_err(),
                tcp.set_tos_v4(wrong).unwrap_err(),
                tcp.set_tclass_v6(wrong).unwrap_err(),
                udp.set_ttl(wrong).unwrap_err(),
                udp.set_tos_v4(wrong).unwrap_err(),
                udp.set_tclass_v6(wrong).unwrap_err(),
                udp.set_multicast_ttl_v4(wrong).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains(&wrong.to_string()), "{error}");
            }
        }
        let after = (
            tcp.ttl()?,
            tcp.tos_v4()?,
            udp.ttl()?,
            udp.multicast_ttl_v4()?,
        );
        assert_eq!(after, before);
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn abstract_names_are_bound_connected_and_sent_to_like_paths() {
    use loopgroup::net::{UnixDatagram, UnixListener, UnixStream};
    use std::os::linux::net::SocketAddrExt;

    on_a_loop(|| async {
        let name = |which| format!("\0loopgroup-{}-{which}", std::process::id());
        let (streams, datagrams) = (name("streams"), name("datagrams"));
        let listener = UnixListener::bind(&streams)?;
        let bound = listener.local_addr()?;
        assert_eq!(bound.as_abstract_name(), Some(&streams.as_bytes()[1..]));
        let (client, accepted) = futures::join!(UnixStream::connect(&streams), listener.accept());
        (&client?).write_all(b"x").await?;
        assert_eq!((&accepted?.0).read(&mut [0; 8]).await?, 1);

        let server = UnixDatagram::bind(&datagrams)?;
        let client = UnixDatagram::unbound()?;
        client.send_to(b"1", &datagrams).await?;
        client.try_send_to(b"22", &datagrams)?;
        client.connect(&datagrams)?;
        client.send(b"333").await?;
        for len in 1..=3 {
            assert_eq!(server.recv(&mut [0; 8]).await?, len);
        }

        // In use, and too long: said, with the name readable.
        for error in [
            UnixDatagram::bind(&datagrams).unwrap_err(),
            UnixListener::bind(&streams).unwrap_err(),
            UnixSocket::new_datagram()?.bind(&datagrams).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
            assert!(error.to_string().contains("\\0loopgroup-"), "{error}");
        }
        let long = format!("\0{}", "x".repeat(200));
        for error in [
            UnixListener::bind(&long).unwrap_err(),
            UnixDatagram::bind(&long).unwrap_err(),
            client.send_to(b"x", &long).await.unwrap_err(),
            client.connect(&long).unwrap_err(),
            UnixStream::connect(&long).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        drop(listener); // and free again, without a file to remove
        UnixListener::bind(&streams)?;
        let error = UnixStream::connect(name("nothing")).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
        Ok(())
    });
}

#[test]
fn a_unix_socket_becomes_what_it_was_made_for_and_nothing_else() {
    on_a_loop(|| async {
        let (path, own) = (
            TempPath::new("unix-socket"),
            TempPath::new("unix-socket-own"),
        );
        let socket = UnixSocket::new_stream()?;
        socket.bind(&path.0)?;
        assert!(format!("{socket:?}").contains("unix-socket"), "{socket:?}");
        let listener = socket.listen(1)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(&own.0)?;
        let _stream = timeout(LONG, socket.connect(&path.0)).await??;
        let (_accepted, peer) = timeout(LONG, listener.accept()).await??;
        assert_eq!(peer.as_pathname(), Some(&*own.0));

        let socket = UnixSocket::new_datagram()?.datagram()?;
        assert!(socket.local_addr()?.is_unnamed());
        let wrong: [io::Error; 3] = [
            UnixSocket::new_datagram()?.listen(1).unwrap_err(),
            UnixSocket::new_datagram()?
                .connect(&path.0)
                .await
                .unwrap_err(),
            UnixSocket::new_stream()?.datagram().unwrap_err(),
        ];
        for error in wrong {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("make it with"), "{error}");
        }
        Ok(())
    });
}
