use std::net::Ipv4Addr;

use super::super::socket::Peer;
use super::super::tests::*;
use super::super::{HostNet, Link, Network, Socket};
use super::*;
use crate::sync::Arc;

#[test]
fn a_connect_takes_a_round_trip_and_the_accept_half_a_one_more() {
    let world = World::new();
    let listener = world.listen();
    let (at_listener, client) = (Watcher::of(&listener), world.connect());
    let at_client = Watcher::of(&client);
    assert_eq!(code(client.connected()), errno::EAGAIN);
    assert_eq!(code(client.write(b"early")), errno::EAGAIN);
    world.network.advance(ms(2));
    client.connected().unwrap();
    assert_eq!(at_client.edge(), "w");
    assert_eq!(code(listener.accept()), errno::EAGAIN);
    assert_eq!(at_listener.edge(), "");
    world.network.advance(ms(3));
    assert_eq!(at_listener.edge(), "r");
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, Peer::Ip(client.local_addr().unwrap()));
    assert_eq!(server.local_addr().unwrap(), address(2, 80));
    assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    assert_eq!(client.peer_addr().unwrap(), address(2, 80));
    assert_eq!(client.local_addr().unwrap().ip(), ip(1));
    assert!((32_768..=60_999).contains(&client.local_addr().unwrap().port()));
}

#[test]
fn the_first_data_counts_as_the_last_part_of_the_handshake() {
    let world = World::new();
    let (listener, client) = (world.listen(), world.connect());
    world.network.advance(ms(1));
    world.network.cut(world.a.host, world.b.host);
    world.network.advance(ms(2));
    client.connected().unwrap();
    world.network.mend(world.a.host, world.b.host);
    client.write(b"data").unwrap();
    world.network.advance(ms(3));
    let (server, _) = listener.accept().unwrap();
    assert_eq!(read_all(&server).0, b"data");
}

#[test]
fn a_lost_end_of_a_handshake_is_repeated_by_the_listener() {
    let world = World::new();
    let (listener, client) = (world.listen(), world.connect());
    world.network.advance(ms(1));
    world.network.cut(world.a.host, world.b.host);
    world.network.advance(ms(2));
    world.network.mend(world.a.host, world.b.host);
    world.settle();
    client.connected().unwrap();
    listener.accept().unwrap();
    assert!(world.network.now() >= Duration::from_secs(1));
}

#[test]
fn without_a_listener_a_connect_is_refused_after_a_round_trip() {
    let world = World::new();
    let client = world.connect();
    let watcher = Watcher::of(&client);
    world.network.advance(ms(1));
    assert_eq!(code(client.connected()), errno::EAGAIN);
    world.network.advance(ms(2));
    assert_eq!(watcher.edge(), "rwRWe");
    let error = client.connected().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(error.raw_os_error(), Some(errno::ECONNREFUSED));
    assert_eq!(
        code(client.connected()),
        errno::ENOTCONN,
        "the error was taken"
    );
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(code(client.write(b"x")), errno::EPIPE);
    assert_eq!(world.network.reached().refused, 1);
}

#[test]
fn a_full_backlog_drops_the_syn_and_the_client_tries_again() {
    let world = World::new();
    let listener = Socket::tcp_listen(&world.b, address(2, 80), 1, false).unwrap();
    let clients: Vec<Socket> = (0..3).map(|_| world.connect()).collect();
    world.network.advance(ms(500));
    clients[0].connected().unwrap();
    clients[1].connected().unwrap();
    assert_eq!(
        code(clients[2].connected()),
        errno::EAGAIN,
        "a backlog of 1 holds 2"
    );
    assert_eq!(world.network.reached().backlog_full, 1);
    let accepted = listener.accept().unwrap();
    world.network.advance(ms(1002));
    clients[2].connected().unwrap();
    drop(accepted);
}

#[test]
fn a_connect_to_a_host_that_is_down_is_given_up_after_127_seconds() {
    let world = World::new();
    let _listener = world.listen();
    world.network.crash(world.b.host);
    let client = world.connect();
    world.network.record(true);
    world.network.advance(Duration::from_secs(126));
    assert_eq!(code(client.connected()), errno::EAGAIN);
    world.settle();
    assert_eq!(world.network.now(), Duration::from_secs(127));
    assert_eq!(code(client.connected()), errno::ETIMEDOUT);
    assert_eq!(world.network.reached().connect_timeouts, 1);
    let recorded = world.network.recorded();
    let sent = recorded.iter().filter(|event| event.what == What::Syn);
    let seconds: Vec<u64> = sent.map(|event| event.at.as_secs()).collect();
    assert_eq!(seconds, [1, 3, 7, 15, 31, 63], "after the first one");
}

#[test]
fn a_connect_to_an_address_of_no_host_fails_after_3_seconds() {
    let world = World::new();
    let client = Socket::tcp_connect(&world.a, None, address(77, 80)).unwrap();
    world.settle();
    assert_eq!(world.network.now(), Duration::from_secs(3));
    assert_eq!(code(client.connected()), errno::EHOSTUNREACH);
}

#[test]
fn a_listener_has_its_address_alone_unless_both_share_it() {
    let world = World::new();
    let listen = |address, shared| Socket::tcp_listen(&world.b, address, 8, shared);
    let first = listen(address(2, 80), false).unwrap();
    assert_eq!(code(listen(address(2, 80), true)), errno::EADDRINUSE);
    assert_eq!(
        code(listen("0.0.0.0:80".parse().unwrap(), false)),
        errno::EADDRINUSE
    );
    let _other = listen("127.0.0.1:80".parse().unwrap(), false).unwrap();
    assert_eq!(code(listen(address(1, 81), false)), errno::EADDRNOTAVAIL);
    drop(first);
    let _again = listen(address(2, 80), false).expect("the port of a closed listener is free");
    let any = listen("0.0.0.0:0".parse().unwrap(), false).unwrap();
    assert!((32_768..=60_999).contains(&any.local_addr().unwrap().port()));
}

#[test]
fn listeners_of_one_port_share_its_connections() {
    let world = World::new();
    let both = [(); 2].map(|()| Socket::tcp_listen(&world.b, address(2, 80), 128, true).unwrap());
    let clients: Vec<Socket> = (0..60).map(|_| world.connect()).collect();
    world.settle();
    let got = both
        .each_ref()
        .map(|one| std::iter::from_fn(|| one.accept().ok()).count());
    assert_eq!(got[0] + got[1], clients.len());
    assert!(got[0] > 10 && got[1] > 10, "{got:?}");
}

#[test]
fn a_connection_inside_a_host_has_the_address_that_it_goes_to() {
    let world = World::new();
    world.cut();
    let listener = Socket::tcp_listen(&world.b, "0.0.0.0:80".parse().unwrap(), 8, false).unwrap();
    for to in ["127.0.0.1:80", "10.0.0.2:80", "0.0.0.0:80"] {
        let client = Socket::tcp_connect(&world.b, None, to.parse().unwrap()).unwrap();
        world.pass(Duration::from_micros(20));
        client.connected().unwrap();
        world.pass(Duration::from_micros(10));
        let (server, _) = listener.accept().unwrap();
        let (local, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        assert_eq!(local.ip(), peer.ip());
        assert_eq!(server.local_addr().unwrap(), peer);
    }
}

#[test]
fn a_client_may_choose_its_address() {
    let world = World::new();
    let _listener = world.listen();
    let from = |address| Socket::tcp_connect(&world.a, Some(address), self::address(2, 80));
    let client = from(address(1, 5000)).unwrap();
    assert_eq!(client.local_addr().unwrap(), address(1, 5000));
    assert_eq!(
        code(from(address(1, 5000))),
        errno::EADDRNOTAVAIL,
        "the same connection"
    );
    assert_eq!(code(from(address(9, 5000))), errno::EADDRNOTAVAIL);
    assert_eq!(code(from("127.0.0.1:0".parse().unwrap())), errno::EINVAL);
    assert_eq!(code(from("[::]:0".parse().unwrap())), errno::EAFNOSUPPORT);
    let any = from("0.0.0.0:0".parse().unwrap()).unwrap();
    assert_eq!(any.local_addr().unwrap().ip(), ip(1));
}

#[test]
fn hosts_connect_by_their_second_addresses() {
    let world = World::new();
    let own = "fd00::2".parse().unwrap();
    world.network.add_address(world.b.host, own).unwrap();
    let to = SocketAddr::new(own, 80);
    let listener = Socket::tcp_listen(&world.b, to, 8, false).unwrap();
    assert_eq!(
        code(Socket::tcp_connect(&world.a, None, to)),
        errno::ENETUNREACH
    );
    world
        .network
        .add_address(world.a.host, "fd00::1".parse().unwrap())
        .unwrap();
    let client = Socket::tcp_connect(&world.a, None, to).unwrap();
    world.settle();
    client.connected().unwrap();
    assert_eq!(
        listener.accept().unwrap().1,
        Peer::Ip(client.local_addr().unwrap())
    );
}

#[test]
fn a_listener_of_ipv6_gets_connections_of_ipv4_too() {
    let world = World::new();
    let listen = |address: &str| Socket::tcp_listen(&world.b, address.parse().unwrap(), 8, false);
    let listener = listen("[::]:80").unwrap();
    assert_eq!(code(listen("0.0.0.0:80")), errno::EADDRINUSE);
    assert_eq!(code(listen("127.0.0.1:80")), errno::EADDRINUSE);
    let client = world.connect();
    let mapped: SocketAddr = "[::ffff:10.0.0.2]:80".parse().unwrap();
    let other = Socket::tcp_connect(&world.a, Some("[::]:0".parse().unwrap()), mapped).unwrap();
    world.settle();
    let (server, peer) = listener.accept().unwrap();
    let port = client.local_addr().unwrap().port();
    assert_eq!(
        peer,
        Peer::Ip(SocketAddr::new("::ffff:10.0.0.1".parse().unwrap(), port))
    );
    assert_eq!(server.local_addr().unwrap(), mapped);
    assert_eq!(client.peer_addr().unwrap(), address(2, 80));
    assert_eq!(other.peer_addr().unwrap(), mapped);
    assert!(other.local_addr().unwrap().is_ipv6());
    listener.accept().unwrap();
}

#[test]
fn a_slow_handshake_makes_one_connection_of_several_syns() {
    let world = World::new();
    let latency = Duration::from_secs(2);
    world.link(Link {
        latency,
        ..Link::default()
    });
    let (listener, client) = (world.listen(), world.connect());
    world.settle();
    client.connected().unwrap();
    let _server = listener.accept().unwrap();
    assert_eq!(code(listener.accept()), errno::EAGAIN);
}

#[test]
fn a_closed_listener_resets_what_was_not_accepted() {
    let world = World::new();
    let (listener, client) = (world.listen(), world.connect());
    world.settle();
    let late = world.connect();
    world.pass(Duration::from_micros(1500));
    drop(listener);
    world.settle();
    assert_eq!(code(client.read(&mut [0; 8])), errno::ECONNRESET);
    assert!(late.connected().is_err());
    assert!(world.network.describe(world.b.host).is_empty());
}

#[test]
fn a_client_that_is_gone_leaves_no_connection() {
    let world = World::new();
    let (listener, client) = (world.listen(), world.connect());
    drop(client);
    world.settle();
    assert_eq!(code(listener.accept()), errno::EAGAIN);
    assert_eq!(world.network.describe(world.b.host).len(), 1);
}

#[test]
fn a_thousand_hosts_are_cheap() {
    let network = Network::new(3);
    let hosts: Vec<HostNet> = (0..1000_u32)
        .map(|number| HostNet {
            network: Arc::clone(&network),
            host: network
                .add_host(
                    &number.to_string(),
                    Ipv4Addr::from_bits(0x0A00_0001 + number).into(),
                )
                .unwrap(),
        })
        .collect();
    let any = "0.0.0.0:80".parse().unwrap();
    let listeners: Vec<_> = hosts
        .iter()
        .map(|host| Socket::tcp_listen(host, any, 8, false).unwrap())
        .collect();
    let clients: Vec<_> = (0..1000)
        .map(|number: usize| {
            let to = network.address_of(hosts[(number * 7 + 1) % 1000].host);
            Socket::tcp_connect(&hosts[number], None, SocketAddr::new(to, 80)).unwrap()
        })
        .collect();
    network.advance(Duration::from_secs(1));
    assert!(clients.iter().all(|client| client.connected().is_ok()));
    assert_eq!(network.next_event(), None);
    assert!(listeners.iter().all(|listener| listener.accept().is_ok()));
}
