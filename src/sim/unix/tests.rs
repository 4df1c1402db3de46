use super::super::Socket;
use super::super::socket::Peer;
use super::super::tests::*;
use super::*;

fn path() -> &'static Path {
    Path::new("/run/socket")
}

#[test]
fn a_connect_by_path_is_over_at_once() {
    let world = World::new();
    let listener = Socket::unix_listen(&world.a, path(), 8).unwrap();
    let watcher = Watcher::of(&listener);
    let client = Socket::unix_connect(&world.a, None, path()).unwrap();
    client.connected().unwrap();
    assert_eq!(watcher.edge(), "r");
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, Peer::Unix(None));
    assert_eq!(client.unix_peer().as_deref(), Some(path()));
    assert_eq!((client.unix_local(), server.unix_peer()), (None, None));
    assert_eq!(server.unix_local().as_deref(), Some(path()));
    assert_eq!(listener.unix_local().as_deref(), Some(path()));
    client.write(b"data").unwrap();
    world.settle();
    assert_eq!(world.network.now(), std::time::Duration::ZERO);
    assert_eq!(read_all(&server), (b"data".to_vec(), false));
}

#[test]
fn paths_belong_to_a_host_and_outlive_their_listeners() {
    let world = World::new();
    let connect = || code(Socket::unix_connect(&world.a, None, path()));
    assert_eq!(connect(), errno::ENOENT);
    let listener = Socket::unix_listen(&world.a, path(), 8).unwrap();
    assert_eq!(
        code(Socket::unix_listen(&world.a, path(), 8)),
        errno::EADDRINUSE
    );
    Socket::unix_listen(&world.b, path(), 8).unwrap();
    world.network.close_process(world.a.host);
    assert_eq!(connect(), errno::ECONNREFUSED);
    assert_eq!(
        code(Socket::unix_listen(&world.a, path(), 8)),
        errno::EADDRINUSE
    );
    assert!(world.network.unlink(world.a.host, path()));
    assert!(!world.network.unlink(world.a.host, path()));
    assert_eq!(connect(), errno::ENOENT);
    let again = Socket::unix_listen(&world.a, path(), 8).unwrap();
    world.network.crash(world.a.host);
    world.network.boot(world.a.host);
    assert_eq!(connect(), errno::ENOENT);
    drop((listener, again));
}

#[test]
fn a_full_backlog_refuses_for_now() {
    let world = World::new();
    let _listener = Socket::unix_listen(&world.a, path(), 0).unwrap();
    let _client = Socket::unix_connect(&world.a, None, path()).unwrap();
    assert_eq!(
        code(Socket::unix_connect(&world.a, None, path())),
        errno::EAGAIN
    );
}

#[test]
fn a_peer_that_closes_breaks_the_pipe() {
    let world = World::new();
    let (one, other) = Socket::unix_pair(&world.a);
    let watcher = Watcher::of(&one);
    assert_eq!(watcher.edge(), "w");
    other.write(b"last").unwrap();
    drop(other);
    world.settle();
    assert_eq!(watcher.edge(), "rwRW");
    assert_eq!(read_all(&one), (b"last".to_vec(), true));
    assert_eq!(code(one.write(b"x")), errno::EPIPE);
    drop(one);
    world.settle();
    assert!(world.network.describe(world.a.host).is_empty());
}

#[test]
fn a_peer_that_closes_with_unread_data_resets() {
    let world = World::new();
    let (one, other) = Socket::unix_pair(&world.a);
    one.write(b"unread").unwrap();
    world.settle();
    drop(other);
    world.settle();
    assert_eq!(code(one.write(b"x")), errno::EPIPE);
    assert_eq!(code(one.read(&mut [0; 8])), errno::ECONNRESET);
    assert_eq!(one.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn half_a_unix_socket_can_be_closed() {
    let world = World::new();
    let (one, other) = Socket::unix_pair(&world.a);
    one.shutdown(std::net::Shutdown::Write).unwrap();
    other.write(b"answer").unwrap();
    world.settle();
    assert!(read_all(&other).1);
    assert_eq!(read_all(&one), (b"answer".to_vec(), false));
    drop(one);
    world.settle();
    assert_eq!(
        code(other.write(b"x")),
        errno::EPIPE,
        "the other half is closed now, too"
    );
    let (one, other) = Socket::unix_pair(&world.a);
    one.shutdown(std::net::Shutdown::Read).unwrap();
    assert_eq!(code(other.write(b"x")), errno::EPIPE);
}

#[test]
fn no_fault_reaches_a_unix_socket() {
    let world = World::new();
    world.link(super::super::Link {
        loss: 1.0,
        ..Default::default()
    });
    world.network.cut(world.a.host, world.a.host);
    world.network.hold(world.a.host, world.a.host);
    let (one, other) = Socket::unix_pair(&world.a);
    one.write(b"x").unwrap();
    world.settle();
    assert_eq!(read_all(&other).0, b"x");
}
