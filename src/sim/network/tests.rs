use super::super::net_event::What;
use super::super::tests::*;
use super::super::{Bell, Link, Socket};
use super::*;

/// Some traffic with faults; returns the trace and how much arrived.
fn traffic(seed: u64) -> (u64, usize) {
    let world = World::seeded(seed);
    world.network.set_partial(0.2);
    let (client, server) = world.pair();
    world.link(Link {
        jitter: ms(2),
        loss: 0.05,
        ..Link::default()
    });
    let mut arrived = 0;
    for turn in 0..100 {
        write_all(&client, 0, 3000);
        world.pass(ms(turn % 7));
        arrived += read_all(&server).0.len();
    }
    (world.network.trace(), arrived)
}

#[test]
fn a_seed_decides_everything() {
    assert_eq!(traffic(1), traffic(1));
    assert_ne!(traffic(1).0, traffic(2).0);
}

#[test]
fn partial_transfers_shift_no_other_draw() {
    let latencies = |partial| {
        let world = World::seeded(5);
        world.link(Link {
            jitter: ms(50),
            ..Link::default()
        });
        let (client, server) = world.pair();
        world.network.set_partial(partial);
        client.write(b"0123456789").unwrap();
        world.settle();
        let first = world.network.now();
        read_all(&server);
        client.write(b"x").unwrap();
        world.settle();
        (first, world.network.now())
    };
    assert_eq!(latencies(0.0), latencies(1.0));
}

#[test]
fn names_and_addresses_of_hosts_are_unique() {
    let world = World::new();
    let add = |name, last| world.network.add_host(name, ip(last));
    assert_eq!(add("a", 9), Err(AddHostError::NameTaken));
    assert_eq!(add("localhost", 9), Err(AddHostError::Localhost));
    assert_eq!(add("c", 1), Err(AddHostError::AddressTaken));
    let loopback = world.network.add_host("c", "127.0.0.1".parse().unwrap());
    assert_eq!(loopback, Err(AddHostError::NotForHosts));
    assert_eq!(
        world.network.add_address(world.a.host, ip(2)),
        Err(AddHostError::AddressTaken)
    );
    let third = add("c", 3).unwrap();
    world.network.add_address(third, ip(4)).unwrap();
    assert_eq!(world.network.host_named("c"), Some(third));
    assert_eq!(world.network.host_named("d"), None);
    assert_eq!(world.network.address_of(third), ip(3));
    assert_eq!(
        world.network.resolve(world.a.host, "c"),
        Some(vec![ip(3), ip(4)])
    );
    assert_eq!(world.network.resolve(world.a.host, "d"), None);
    let localhost = world.network.resolve(world.a.host, "localhost").unwrap();
    assert_eq!(localhost, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn the_last_events_are_kept_and_all_if_asked_to() {
    let world = World::new();
    let (client, _server) = world.pair();
    let handshake: Vec<What> = world
        .network
        .last_events()
        .iter()
        .map(|event| event.what)
        .collect();
    assert_eq!(handshake[..2], [What::Syn, What::SynAck]);
    assert!(matches!(handshake[2], What::Ack(65_536)));
    assert!(world.network.recorded().is_empty());
    world.network.record(true);
    for _ in 0..100 {
        client.write(b"x").unwrap();
    }
    assert_eq!(world.network.last_events().len(), 50);
    world.network.keep_last(3);
    let last = world.network.last_events();
    assert_eq!(last.len(), 3);
    let local = client.local_addr().unwrap();
    let line = format!("      0.003000 s  host 0 → host 1  {local} → 10.0.0.2:80  data of 1 byte");
    assert_eq!(last[2].to_string(), line);
    assert_eq!(world.network.recorded().len(), 100);
    world.network.record(false);
    assert!(world.network.recorded().is_empty());
}

#[test]
fn a_host_shows_its_sockets() {
    let world = World::new();
    let listener = world.listen();
    let client = world.connect();
    let _udp = Socket::udp_bind(&world.a, address(1, 53)).unwrap();
    world.settle();
    let port = client.local_addr().unwrap().port();
    let of_a = world.network.describe(world.a.host);
    let connection =
        format!("tcp   ESTABLISHED  10.0.0.1:{port} → 10.0.0.2:80  to read 0, to send 0");
    assert_eq!(
        of_a,
        [
            connection.as_str(),
            "udp                10.0.0.1:53 → *  to read 0"
        ]
    );
    let of_b = world.network.describe(world.b.host);
    assert_eq!(
        of_b[0],
        "tcp   LISTEN       10.0.0.2:80  to accept 1, half open 0"
    );
    assert!(of_b[1].ends_with(", not accepted"));
    let _server = listener.accept().unwrap();
    assert!(!world.network.describe(world.b.host)[1].ends_with(", not accepted"));
}

#[test]
fn the_id_of_a_closed_socket_is_never_another_one() {
    let world = World::new();
    let selector = Selector::new(Bell::new(0, Arc::default()));
    let (client, _server) = world.pair();
    let id = client.id();
    assert!(client.is_of(&world.a) && !client.is_of(&world.b));
    world.network.watch(id.number(), &selector, 1).unwrap();
    assert_eq!(
        code(world.network.watch(id.number(), &selector, 2)),
        errno::EEXIST
    );
    assert!(!selector.is_empty());
    drop(client);
    assert!(selector.is_empty(), "a closed socket has no reports");
    let other = world.connect();
    assert_ne!(other.id(), id);
    assert_eq!(
        code(world.network.watch(id.number(), &selector, 1)),
        errno::EBADF
    );
    world.network.look_again(id.number());
    world.network.unwatch(id.number());
    other.watch(&selector, 1).unwrap();
    other.unwatch();
    world.settle();
    assert!(selector.is_empty());
}

#[test]
fn everything_may_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<Network>();
    crosses::<Socket>();
    crosses::<Selector>();
    crosses::<HostNet>();
}
