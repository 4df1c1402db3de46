use super::super::tests::*;
use super::super::{Link, Socket};
use super::*;

fn sockets(world: &World) -> (Socket, Socket) {
    let bind = |host, last| Socket::udp_bind(host, address(last, 53)).unwrap();
    (bind(&world.a, 1), bind(&world.b, 2))
}

fn all(socket: &Socket) -> Vec<u8> {
    let mut buffer = [0; 100];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|_| buffer[0])).collect()
}

#[test]
fn a_datagram_arrives_whole_with_the_address_of_its_sender() {
    let world = World::new();
    let (one, other) = sockets(&world);
    let watcher = Watcher::of(&other);
    assert_eq!(watcher.edge(), "w");
    assert_eq!(one.send_to(b"datagram", address(2, 53)).unwrap(), 8);
    assert_eq!(code(other.recv(&mut [0; 8])), errno::EAGAIN);
    world.settle();
    assert_eq!(world.network.now(), ms(1));
    assert_eq!(watcher.edge(), "rw");
    let mut buffer = [0; 20];
    assert_eq!(other.peek_from(&mut buffer).unwrap(), (8, address(1, 53)));
    assert_eq!(other.peek_datagram(&mut buffer[..4]).unwrap(), 4);
    assert_eq!(
        other.recv_from(&mut buffer[..4]).unwrap(),
        (4, address(1, 53))
    );
    assert_eq!(&buffer[..4], b"data");
    assert_eq!(
        code(other.recv(&mut buffer)),
        errno::EAGAIN,
        "the rest of a short read is lost"
    );
}

#[test]
fn a_datagram_has_at_most_65507_bytes() {
    let world = World::new();
    let (one, other) = sockets(&world);
    assert_eq!(
        code(one.send_to(&[0; 65_508], address(2, 53))),
        errno::EMSGSIZE
    );
    one.send_to(&[0; 65_507], address(2, 53)).unwrap();
    one.send_to(b"", address(2, 53)).unwrap();
    world.settle();
    let mut buffer = vec![0; 70_000];
    assert_eq!(other.recv(&mut buffer).unwrap(), 65_507);
    assert_eq!(other.recv(&mut buffer).unwrap(), 0);
}

#[test]
fn an_address_of_udp_is_taken_once() {
    let world = World::new();
    let (one, _other) = sockets(&world);
    assert_eq!(
        code(Socket::udp_bind(&world.a, address(1, 53))),
        errno::EADDRINUSE
    );
    assert_eq!(
        code(Socket::udp_bind(&world.a, "0.0.0.0:53".parse().unwrap())),
        errno::EADDRINUSE
    );
    assert_eq!(
        code(Socket::udp_bind(&world.a, address(2, 53))),
        errno::EADDRNOTAVAIL
    );
    drop(one);
    Socket::udp_bind(&world.a, "0.0.0.0:53".parse().unwrap()).unwrap();
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    let world = World::new();
    let (one, other) = sockets(&world);
    let third = Socket::udp_bind(&world.a, "0.0.0.0:0".parse().unwrap()).unwrap();
    assert_eq!(code(one.send(b"x")), errno::EDESTADDRREQ);
    one.udp_connect(address(2, 53)).unwrap();
    other.udp_connect(address(1, 53)).unwrap();
    assert_eq!(one.peer_addr().unwrap(), address(2, 53));
    one.send(b"1").unwrap();
    third.send_to(b"3", address(2, 53)).unwrap();
    world.settle();
    assert_eq!(all(&other), b"1");
    third.udp_connect(address(2, 53)).unwrap();
    assert_eq!(
        third.local_addr().unwrap().ip(),
        ip(1),
        "a connect chooses the address"
    );
}

#[test]
fn only_a_connected_sender_learns_that_a_port_is_nobodys() {
    let world = World::new();
    let (one, other) = sockets(&world);
    drop(other);
    one.send_to(b"x", address(2, 53)).unwrap();
    world.settle();
    assert!(one.take_error().is_none());
    one.udp_connect(address(2, 53)).unwrap();
    let watcher = Watcher::of(&one);
    watcher.edge();
    one.send(b"x").unwrap();
    world.pass(ms(1));
    assert_eq!(watcher.edge(), "");
    world.pass(ms(1));
    assert_eq!(watcher.edge(), "wWe");
    assert_eq!(code(one.send(b"x")), errno::ECONNREFUSED);
    one.send(b"x").unwrap();
    world.settle();
    assert_eq!(code(one.recv(&mut [0; 8])), errno::ECONNREFUSED);
    assert_eq!(code(one.recv(&mut [0; 8])), errno::EAGAIN);
}

#[test]
fn what_nobody_can_get_is_lost_in_silence() {
    let world = World::new();
    let (one, other) = sockets(&world);
    one.send_to(b"no host", address(99, 53)).unwrap();
    world.cut();
    one.send_to(b"no path", address(2, 53)).unwrap();
    world.settle();
    world.network.mend_all();
    world.network.crash(world.b.host);
    one.send_to(b"no power", address(2, 53)).unwrap();
    world.settle();
    assert_eq!(world.network.reached().datagrams_lost, 3);
    assert!(one.take_error().is_none());
    drop(other);
}

#[test]
fn a_full_receive_buffer_drops_datagrams() {
    let world = World::new();
    let (one, other) = sockets(&world);
    for _ in 0..1000 {
        one.send_to(&[7; 1024 - 256], address(2, 53)).unwrap();
    }
    world.settle();
    assert_eq!(all(&other).len(), 208);
    assert_eq!(world.network.reached().datagrams_overflowed, 1000 - 208);
}

#[test]
fn datagrams_are_lost_doubled_and_overtaken() {
    let world = World::new();
    let (one, other) = sockets(&world);
    world.link(Link {
        loss: 0.2,
        duplicate: 0.2,
        reorder: 0.2,
        ..Link::default()
    });
    let mut got = Vec::new();
    for number in 0..200 {
        one.send_to(&[number], address(2, 53)).unwrap();
        world.pass(ms(1));
        got.extend(all(&other));
    }
    let reached = world.network.reached();
    for count in [
        reached.datagrams_lost,
        reached.datagrams_duplicated,
        reached.datagrams_reordered,
    ] {
        assert!((15..90).contains(&count), "{reached:?}");
    }
    assert!(!got.is_sorted());
    got.sort_unstable();
    let all = got.len();
    got.dedup();
    assert!(got.len() < all && got.len() < 200);
}

#[test]
fn the_bandwidth_is_used_by_one_datagram_after_the_other() {
    let world = World::new();
    let (one, other) = sockets(&world);
    world.link(Link {
        bandwidth: Some(1000),
        ..Link::default()
    });
    for number in 0..3 {
        one.send_to(&[number; 100], address(2, 53)).unwrap();
    }
    world.pass(ms(201));
    assert_eq!(all(&other), [0, 1]);
    world.pass(ms(100));
    assert_eq!(all(&other), [2]);
}

#[test]
fn a_socket_of_ipv6_gets_datagrams_of_ipv4_too() {
    let world = World::new();
    let one = Socket::udp_bind(&world.a, address(1, 53)).unwrap();
    let other = Socket::udp_bind(&world.b, "[::]:53".parse().unwrap()).unwrap();
    one.send_to(b"ask", address(2, 53)).unwrap();
    world.settle();
    let (_, from) = other.recv_from(&mut [0; 8]).unwrap();
    assert_eq!(from, "[::ffff:10.0.0.1]:53".parse().unwrap());
    other.udp_connect(from).unwrap();
    assert_eq!(
        other.local_addr().unwrap(),
        "[::ffff:10.0.0.2]:53".parse().unwrap()
    );
    other.send(b"answer").unwrap();
    world.settle();
    assert_eq!(one.recv_from(&mut [0; 8]).unwrap(), (6, address(2, 53)));
    one.send_to(b"more", address(2, 53)).unwrap();
    world.settle();
    assert_eq!(other.recv(&mut [0; 8]).unwrap(), 4);
    assert_eq!(code(one.send_to(b"x", from)), errno::EAFNOSUPPORT);
}

#[test]
fn datagrams_stay_on_a_host_without_faults() {
    let world = World::new();
    world.link(Link {
        loss: 1.0,
        ..Link::default()
    });
    let any = Socket::udp_bind(&world.a, "0.0.0.0:53".parse().unwrap()).unwrap();
    let here = Socket::udp_bind(&world.a, "127.0.0.1:0".parse().unwrap()).unwrap();
    here.send_to(b"x", "127.0.0.1:53".parse().unwrap()).unwrap();
    world.pass(Duration::from_micros(10));
    let (_, from) = any.recv_from(&mut [0; 8]).unwrap();
    assert_eq!(from, here.local_addr().unwrap());
    assert_eq!(code(here.send_to(b"x", address(2, 53))), errno::EINVAL);
}
