use std::time::Duration;

use super::super::tests::*;
use super::*;

fn both_gone(world: &World) {
    assert_eq!(world.network.describe(world.a.host), [""; 0]);
    assert_eq!(world.network.describe(world.b.host), [""; 0]);
    assert_eq!(world.network.next_event(), None);
}

#[test]
fn a_closed_socket_sends_its_data_and_then_the_end() {
    let world = World::new();
    let (client, server) = world.pair();
    let mut written = 0;
    for _ in 0..2 {
        written += write_all(&client, written, 1 << 20);
        world.settle();
    }
    drop(client);
    let watcher = Watcher::of(&server);
    assert_eq!(watcher.edge(), "rw");
    let mut all = vec![0; 1 << 20];
    let first = server.read(&mut all).unwrap();
    world.settle();
    assert_eq!(watcher.edge(), "rwR");
    let second = server.read(&mut all[first..]).unwrap();
    assert!(all[..first + second] == pattern(0, written));
    assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
    drop(server);
    world.settle();
    both_gone(&world);
}

#[test]
fn a_half_closed_socket_still_reads() {
    let world = World::new();
    let (client, server) = world.pair();
    let (at_client, at_server) = (Watcher::of(&client), Watcher::of(&server));
    let _ = (at_client.edge(), at_server.edge());
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(code(client.write(b"x")), errno::EPIPE);
    world.settle();
    assert_eq!(at_server.edge(), "rwR");
    assert!(read_all(&server).1);
    server.write(b"answer").unwrap();
    world.settle();
    assert_eq!(read_all(&client), (b"answer".to_vec(), false));
    at_client.edge();
    server.shutdown(Shutdown::Write).unwrap();
    world.settle();
    assert_eq!(at_server.edge(), "rwRW", "both directions are over");
    assert_eq!(at_client.edge(), "rwRW");
    assert_eq!(world.network.reached().half_closes, 2);
    drop((client, server));
    world.settle();
    both_gone(&world);
}

#[test]
fn after_a_shutdown_for_reading_reads_find_the_end() {
    let world = World::new();
    let (client, server) = world.pair();
    client.write(b"data").unwrap();
    world.settle();
    server.shutdown(Shutdown::Read).unwrap();
    assert_eq!(read_all(&server), (b"data".to_vec(), true));
}

#[test]
fn data_for_a_socket_that_was_shut_both_ways_resets_both_ends() {
    let world = World::new();
    let (client, server) = world.pair();
    client.shutdown(Shutdown::Both).unwrap();
    world.settle();
    server.write(b"x").unwrap();
    world.settle();
    assert_eq!(
        client.take_error().unwrap().raw_os_error(),
        Some(errno::ECONNRESET)
    );
    assert_eq!(
        server.take_error().unwrap().raw_os_error(),
        Some(errno::EPIPE)
    );
}

#[test]
fn a_socket_that_is_not_connected_cannot_be_shut_down() {
    let world = World::new();
    let client = world.connect();
    assert_eq!(code(client.shutdown(Shutdown::Both)), errno::ENOTCONN);
}

#[test]
fn closing_with_unread_data_resets_the_connection() {
    let world = World::new();
    let (client, server) = world.pair();
    server.write(b"kept").unwrap();
    client.write(b"unread").unwrap();
    world.settle();
    let watcher = Watcher::of(&client);
    watcher.edge();
    drop(server);
    world.settle();
    assert_eq!(watcher.edge(), "rwRWe");
    let mut buffer = [0; 8];
    assert_eq!(
        client.read(&mut buffer).unwrap(),
        4,
        "what has arrived can be read"
    );
    assert_eq!(code(client.read(&mut buffer)), errno::ECONNRESET);
    assert_eq!(client.read(&mut buffer).unwrap(), 0);
    assert_eq!(code(client.write(b"x")), errno::EPIPE);
    assert_eq!(code(client.peer_addr()), errno::ENOTCONN);
    assert_eq!(world.network.reached().resets, 1);
    drop(client);
    world.settle();
    both_gone(&world);
}

#[test]
fn a_write_takes_the_error_of_a_reset_once() {
    let world = World::new();
    let (client, server) = world.pair();
    server.set_linger(Some(Duration::ZERO));
    drop(server);
    world.settle();
    assert_eq!(code(client.write(b"x")), errno::ECONNRESET);
    assert_eq!(code(client.write(b"x")), errno::EPIPE);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn data_for_a_closed_socket_is_answered_by_a_reset() {
    let world = World::new();
    let (client, server) = world.pair();
    drop(server);
    world.settle();
    client
        .write(b"x")
        .expect("the end of the other direction says nothing about this one");
    world.settle();
    let watcher = Watcher::of(&client);
    assert_eq!(watcher.edge(), "rwRWe");
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "the end came first");
    assert_eq!(code(client.write(b"x")), errno::EPIPE);
    assert!(client.take_error().is_none());
}

#[test]
fn a_reset_after_the_end_leaves_a_broken_pipe_to_take() {
    let world = World::new();
    let (client, server) = world.pair();
    drop(server);
    world.settle();
    client.write(b"x").unwrap();
    world.settle();
    assert_eq!(
        client.take_error().unwrap().raw_os_error(),
        Some(errno::EPIPE)
    );
}

#[test]
fn zero_linger_drops_what_was_written() {
    let world = World::new();
    let (client, server) = world.pair();
    client.set_linger(Some(Duration::ZERO));
    let written = [(); 3].map(|()| {
        let written = write_all(&client, 0, 1 << 20);
        world.settle();
        written
    });
    assert_eq!(written.iter().sum::<usize>(), 128 * 1024);
    drop(client);
    world.settle();
    let mut all = vec![0; 1 << 20];
    assert_eq!(server.read(&mut all).unwrap(), 64 * 1024);
    assert_eq!(code(server.read(&mut all)), errno::ECONNRESET);
}

#[test]
fn both_ends_closed_at_once_leave_nothing() {
    let world = World::new();
    let (client, server) = world.pair();
    drop((client, server));
    world.settle();
    both_gone(&world);
    assert_eq!(world.network.reached().resets, 0);
}
