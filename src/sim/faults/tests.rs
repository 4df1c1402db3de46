use std::io::ErrorKind;

use super::super::net_event::What;
use super::super::tests::*;
use super::super::{Link, Socket, errno};
use super::*;

#[test]
fn a_dead_process_ends_its_connections_in_order() {
    let world = World::new();
    let (client, server) = world.pair();
    let other = Socket::tcp_listen(&world.b, address(2, 81), 8, false).unwrap();
    server.write(b"last words").unwrap();
    world.network.close_process(world.b.host);
    assert_eq!(code(server.write(b"x")), errno::EBADF);
    assert_eq!(code(other.accept()), errno::EBADF);
    world.settle();
    assert_eq!(read_all(&client), (b"last words".to_vec(), true));
    drop((server, other));
    let refused = world.connect();
    world.settle();
    assert_eq!(
        refused.connected().unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}

#[test]
fn a_dead_process_with_unread_data_resets() {
    let world = World::new();
    let (client, _server) = world.pair();
    client.write(b"unread").unwrap();
    world.settle();
    world.network.close_process(world.b.host);
    world.settle();
    assert_eq!(code(client.read(&mut [0; 8])), errno::ECONNRESET);
}

#[test]
fn a_crashed_host_is_silent_and_answers_old_segments_after_its_boot() {
    let world = World::new();
    let (client, server) = world.pair();
    let watcher = Watcher::of(&client);
    watcher.edge();
    world.network.crash(world.b.host);
    drop(server);
    assert!(!world.network.is_up(world.b.host));
    let listen = Socket::tcp_listen(&world.b, address(2, 80), 8, false);
    assert_eq!(code(listen), errno::ENETDOWN);
    world.settle();
    assert_eq!(watcher.edge(), "", "nobody says so");
    client.write(b"data").unwrap();
    world.pass(ms(500));
    assert_eq!(watcher.edge(), "");
    world.network.boot(world.b.host);
    world.settle();
    assert_eq!(watcher.edge(), "rwRWe");
    assert_eq!(code(client.read(&mut [0; 8])), errno::ECONNRESET);
    world.listen();
}

#[test]
fn what_a_host_sent_before_its_crash_still_arrives() {
    let world = World::new();
    let (client, _server) = world.pair();
    _server.write(b"data").unwrap();
    world.network.crash(world.b.host);
    world.settle();
    assert_eq!(read_all(&client), (b"data".to_vec(), false));
}

#[test]
fn a_cut_is_one_way() {
    let world = World::new();
    let (client, server) = world.pair();
    world.network.cut(world.a.host, world.b.host);
    server.write(b"to a").unwrap();
    client.write(b"to b").unwrap();
    world.pass(ms(10));
    assert_eq!(read_all(&client).0, b"to a");
    assert_eq!(read_all(&server).0, b"");
    world.network.mend(world.a.host, world.b.host);
    world.settle();
    assert_eq!(read_all(&server).0, b"to b");
}

#[test]
fn a_held_path_keeps_everything_in_order_until_it_is_released() {
    let world = World::new();
    let (client, server) = world.pair();
    let (a, b) = (world.a.host, world.b.host);
    world.network.hold(a, b);
    for number in 0..5 {
        client.write(&[number]).unwrap();
        world.pass(ms(1));
    }
    world.pass(Duration::from_secs(1000));
    assert_eq!(read_all(&server).0, b"");
    client.write(&[5]).unwrap();
    world.pass(Duration::from_micros(999));
    world.network.release(a, b);
    world.settle();
    assert_eq!(read_all(&server).0, [0, 1, 2, 3, 4, 5]);
    assert_eq!(world.network.reached().retransmissions, 0);
}

#[test]
fn nothing_arrives_through_a_clogged_path_before_its_time() {
    let world = World::new();
    let (client, server) = world.pair();
    let until = world.network.now() + ms(100);
    world.network.clog(world.a.host, world.b.host, until);
    client.write(b"one ").unwrap();
    world.pass(ms(99));
    client.write(b"two").unwrap();
    assert_eq!(read_all(&server).0, b"");
    world.network.advance(until);
    assert_eq!(read_all(&server).0, b"one two");
}

#[test]
fn links_are_directed_and_only_some_differ_from_the_default() {
    let world = World::new();
    let (client, server) = world.pair();
    let slow = Link {
        latency: ms(50),
        ..Link::default()
    };
    world.network.set_link(world.a.host, world.b.host, slow);
    let start = world.network.now();
    server.write(b"x").unwrap();
    world.pass(ms(1));
    assert_eq!(read_all(&client).0, b"x");
    client.write(b"y").unwrap();
    world.settle();
    assert_eq!(
        world.network.now() - start,
        ms(52),
        "there, and the acknowledgement back"
    );
    assert_eq!(read_all(&server).0, b"y");
}

#[test]
fn a_cut_loses_what_a_held_path_has_kept() {
    let world = World::new();
    let (client, server) = world.pair();
    let (a, b) = (world.a.host, world.b.host);
    world.network.hold(a, b);
    client.write(b"x").unwrap();
    world.pass(ms(10));
    world.network.cut(a, b);
    world.network.mend(a, b);
    world.network.release(a, b);
    world.pass(ms(1));
    let last = world.network.last_events().pop().unwrap();
    assert_eq!(last.what, What::Lost("data"));
    world.settle();
    assert_eq!(read_all(&server).0, b"x");
}
