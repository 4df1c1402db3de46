use super::super::Link;
use super::super::tests::*;
use super::*;

#[test]
fn bytes_arrive_in_order_after_the_latency() {
    let world = World::new();
    let (client, server) = world.pair();
    let watcher = Watcher::of(&server);
    assert_eq!(watcher.edge(), "w");
    client.write(b"one ").unwrap();
    client
        .write_vectored(&[IoSlice::new(b"t"), IoSlice::new(b"wo")])
        .unwrap();
    world.pass(Duration::from_micros(999));
    assert_eq!(code(server.read(&mut [0; 8])), errno::EAGAIN);
    world.pass(Duration::from_micros(1));
    assert_eq!(watcher.edge(), "rw");
    let mut peeked = [0; 3];
    assert_eq!(server.peek(&mut peeked).unwrap(), 3);
    assert_eq!(&peeked, b"one");
    let (mut one, mut two) = ([0; 2], [0; 8]);
    let both = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
    assert_eq!(server.read_vectored(both).unwrap(), 7);
    assert_eq!((&one, &two[..5]), (b"on", &b"e two"[..]));
    assert_eq!(code(server.read(&mut [0; 8])), errno::EAGAIN);
}

#[test]
fn a_segment_for_a_readable_socket_is_an_edge_again() {
    let world = World::new();
    let (client, server) = world.pair();
    let watcher = Watcher::of(&server);
    for _ in 0..2 {
        client.write(b"x").unwrap();
        world.settle();
        assert_eq!(watcher.edge(), "rw");
    }
    server.look_again();
    assert_eq!(watcher.edge(), "rw");
}

#[test]
fn a_full_window_stops_the_writer_until_half_of_it_was_read() {
    let world = World::new();
    let (client, server) = world.pair();
    let watcher = Watcher::of(&client);
    assert_eq!(watcher.edge(), "w");
    let mut written = write_all(&client, 0, 1 << 20);
    assert_eq!(written, 64 * 1024, "the send buffer");
    world.settle();
    assert_eq!(
        watcher.edge(),
        "w",
        "the first buffer was taken by the peer's"
    );
    written += write_all(&client, written, 1 << 20);
    assert_eq!(written, 128 * 1024, "both buffers");
    world.settle();
    assert_eq!(watcher.edge(), "");
    let mut half = vec![0; 32 * 1024];
    assert_eq!(server.read(&mut half[1..]).unwrap(), half.len() - 1);
    world.settle();
    assert_eq!(watcher.edge(), "");
    assert_eq!(server.read(&mut half[..1]).unwrap(), 1);
    world.settle();
    assert_eq!(watcher.edge(), "w");
    assert_eq!(write_all(&client, 0, 1 << 20), 32 * 1024);
    assert!(world.network.reached().window_full >= 3);
}

#[test]
fn a_stream_survives_losses_cuts_and_parts_unchanged() {
    for seed in 0..20 {
        let world = World::seeded(seed);
        let (client, server) = world.pair();
        world.network.set_partial(0.3);
        world.link(Link {
            jitter: ms(3),
            loss: 0.1,
            duplicate: 0.5,
            reorder: 0.5,
            bandwidth: Some(1_000_000),
            ..Link::default()
        });
        let (whole, mut sent, mut got) = (300_000, 0, Vec::new());
        let (mut open, mut ended, mut turns) = (true, false, 0);
        while !ended {
            sent += write_all(&client, sent, whole - sent);
            if sent == whole && open {
                client.shutdown(std::net::Shutdown::Write).unwrap();
                open = false;
            }
            turns += 1;
            match turns % 40 {
                10 => world.cut(),
                20 => world.network.mend_all(),
                _ => {}
            }
            world.pass(ms(7));
            let (bytes, end) = read_all(&server);
            (ended, got) = (end, [got, bytes].concat());
            assert!(
                turns < 10_000,
                "seed {seed}: {:?}",
                world.network.last_events()
            );
        }
        assert!(got == pattern(0, whole), "seed {seed}");
        let reached = world.network.reached();
        assert!(
            reached.retransmissions > 0 && reached.partial_reads > 0 && reached.partial_writes > 0
        );
        drop((client, server));
        world.network.mend_all();
        world.settle();
        assert!(
            world.network.describe(world.a.host).is_empty(),
            "seed {seed}"
        );
        assert!(
            world.network.describe(world.b.host).is_empty(),
            "seed {seed}"
        );
    }
}

#[test]
fn a_lost_segment_is_sent_again_after_200_ms_and_the_later_ones_wait_for_it() {
    let world = World::new();
    let (client, server) = world.pair();
    world.cut();
    client.write(b"first ").unwrap();
    world.network.mend_all();
    client.write(b"second").unwrap();
    world.pass(ms(200));
    assert_eq!(code(server.read(&mut [0; 20])), errno::EAGAIN);
    world.pass(ms(2));
    assert_eq!(read_all(&server).0, b"first second");
    assert_eq!(world.network.reached().retransmissions, 1);
}

#[test]
fn a_cut_loses_what_is_under_way_and_the_sender_sends_it_again() {
    let world = World::new();
    let (client, server) = world.pair();
    client.write(b"data").unwrap();
    world.cut();
    world.network.mend_all();
    world.pass(ms(1));
    assert_eq!(code(server.read(&mut [0; 20])), errno::EAGAIN);
    world.pass(ms(201));
    assert_eq!(read_all(&server).0, b"data");
}

#[test]
fn a_sender_gives_up_after_924_seconds() {
    let world = World::new();
    let (client, server) = world.pair();
    let watcher = Watcher::of(&client);
    watcher.edge();
    let start = world.network.now();
    world.network.crash(world.b.host);
    client.write(b"data").unwrap();
    world.settle();
    let seconds = (world.network.now() - start).as_secs();
    assert_eq!(seconds, 924);
    assert_eq!(watcher.edge(), "rwRWe");
    assert_eq!(code(client.read(&mut [0; 8])), errno::ETIMEDOUT);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(world.network.reached().retransmissions, 15);
    drop(server);
}

#[test]
fn a_cut_of_the_way_back_alone_ends_a_sender_too() {
    let world = World::new();
    let (client, server) = world.pair();
    world.network.cut(world.b.host, world.a.host);
    client.write(b"data").unwrap();
    world.settle();
    assert_eq!(read_all(&server).0, b"data");
    assert_eq!(
        client.take_error().unwrap().raw_os_error(),
        Some(errno::ETIMEDOUT)
    );
    assert!(client.take_error().is_none());
}

#[test]
fn a_lost_window_update_does_not_stop_a_stream() {
    let world = World::new();
    let (client, server) = world.pair();
    let mut written = 0;
    for _ in 0..3 {
        written += write_all(&client, written, 1 << 20);
        world.settle();
    }
    world.network.cut(world.b.host, world.a.host);
    let mut all = vec![0; 1 << 20];
    assert_eq!(server.read(&mut all).unwrap(), 64 * 1024);
    world.pass(ms(100));
    world.network.mend_all();
    world.settle();
    assert_eq!(server.read(&mut all).unwrap(), 64 * 1024);
    assert_eq!(written, 128 * 1024);
}

#[test]
fn bandwidth_delays_a_stream() {
    let world = World::new();
    let (client, server) = world.pair();
    world.link(Link {
        bandwidth: Some(10_000),
        ..Link::default()
    });
    client.write(&pattern(0, 5000)).unwrap();
    client.write(&pattern(5000, 5000)).unwrap();
    world.pass(ms(600));
    assert_eq!(read_all(&server).0.len(), 5000);
    world.pass(ms(400));
    assert_eq!(read_all(&server).0.len(), 0);
    world.pass(ms(1));
    assert_eq!(read_all(&server).0.len(), 5000);
}

#[test]
fn partial_reads_and_writes_are_followed_by_an_edge() {
    let world = World::new();
    let (client, server) = world.pair();
    world.network.set_partial(1.0);
    let (at_client, at_server) = (Watcher::of(&client), Watcher::of(&server));
    let _ = (at_client.edge(), at_server.edge());
    let written = client.write(&pattern(0, 1000)).unwrap();
    assert!(written < 1000);
    assert_eq!(at_client.edge(), "w");
    world.settle();
    assert_eq!(at_server.edge(), "rw");
    let mut read = 0;
    while read < written {
        let bytes = server.read(&mut [0; 1000]).unwrap();
        read += bytes;
        assert_eq!(at_server.edge(), if read < written { "rw" } else { "" });
    }
}

#[test]
fn nothing_comes_of_nothing() {
    let world = World::new();
    let (client, server) = world.pair();
    assert_eq!(client.write(b"").unwrap(), 0);
    assert_eq!(server.read(&mut []).unwrap(), 0);
    assert_eq!(world.network.next_event(), None);
}
