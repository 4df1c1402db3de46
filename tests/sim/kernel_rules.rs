//! Rules of the kernel: each body runs on the system's loopback and in a simulation, and has to see the same.
//!
//! A body notes what it saw, a line for each step: results, counts, kinds of errors. It runs on a loop, with
//! the types of `loopgroup::net` alone, and reads no clock. In the simulation it has to see the same with
//! each of 20 seeds. On the system other tests take ports and processors meanwhile: a rule passes if one of
//! five tries sees what the simulation has.
//!
//! # Never compared
//!
//! What loopback cannot show, or not within a test. Each has tests of the simulation alone, by what Linux
//! documents:
//!
//! - the time after which a connect to a dead or cut-off host gives up, and when it is repeated;
//! - when a lost segment is sent again, and when a connection is given up;
//! - the crash of a host, its silence, and the reset once it is back; a connect to an address without a host;
//! - datagrams that are lost, duplicated or overtaken on their way;
//! - latency, jitter, bandwidth, partitions, holds and clogs: loopback has none.
//!
//! # Differences
//!
//! On purpose, or too small to matter:
//!
//! - A simulated socket that is bound to a port behaves as with `SO_REUSEADDR`; there is no TIME_WAIT. What
//!   was closed gives its port back at once.
//! - A socket cannot connect to itself (a simultaneous open, which succeeds on a system).
//! - `localhost` is 127.0.0.1 alone, and a name that does not resolve is `NotFound`: what a system says
//!   depends on its resolver.
//! - A bandwidth applies to segments of up to 64 KiB as wholes: the first byte comes with the last one.
//! - Buffers are as large as the link says, without the growth of a system: how much a writer can write
//!   before it has to wait differs.
//! - Options are kept and do nothing, except a linger of zero and `SO_REUSEPORT`: keep-alive sends no probes.
//! - Unix sockets have paths and no abstract names. A path needs no folder, and is no file: what a program
//!   does with `std::fs` does not concern it.
//! - There is no multicast, no broadcast and no urgent data.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::StreamExt;
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::EventLoopGroup;
use loopgroup::io::{Interest, copy_bidirectional};
use loopgroup::net::{
    Server, TcpListener, TcpSocket, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixSocket,
    UnixStream, lookup_host,
};
use loopgroup::testing::sim::Simulation;
use loopgroup::time::{sleep, timeout};

use crate::util::{TempPath, within};

/// What a body saw.
#[derive(Default)]
struct Seen(Vec<String>);

impl Seen {
    fn saw(&mut self, what: impl Into<String>) {
        self.0.push(what.into());
    }

    fn fact(&mut self, what: &str, fact: impl Debug) {
        self.saw(format!("{what}: {fact:?}"));
    }

    /// A result: its value, or the kind of its error.
    fn result<T: Debug>(&mut self, what: &str, result: io::Result<T>) {
        let text = match result {
            Ok(value) => format!("{what}: {value:?}"),
            // Of the system, or of a loop that knows.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                format!("{what}: would block")
            }
            Err(error) => format!("{what}: {:?} (os {:?})", error.kind(), error.raw_os_error()),
        };
        self.saw(text);
    }

    /// The pending error of a socket.
    fn pending(&mut self, what: &str, error: io::Result<Option<io::Error>>) {
        let error = error.map(|error| error.map(|error| error.kind()));
        self.result(what, error);
    }
}

/// Runs a body on the system and in simulations of some seeds; all have to see the same.
fn rule<B>(body: B)
where
    B: AsyncFn(&mut Seen) -> io::Result<()> + Copy + Send + 'static,
{
    within(move || {
        let run = move || async move {
            let mut seen = Seen::default();
            let ended = body(&mut seen).await;
            seen.result("the end", ended);
            seen.0
        };
        let simulated = |seed| {
            let (tx, rx) = std::sync::mpsc::channel();
            let mut sim = Simulation::seeded(seed);
            sim.client("both", async move { tx.send(run().await).unwrap() });
            sim.run().unwrap();
            rx.recv().unwrap()
        };
        let expected = simulated(0);
        for seed in 1..20 {
            assert_eq!(simulated(seed), expected, "seed {seed}, and seed 0");
        }
        // The system has other sockets, of other tests, and other work: one of several tries is without them.
        let real = || loopgroup::run(run()).unwrap();
        let same = (1..TRIES).any(|_| real() == expected);
        if !same {
            assert_eq!(real(), expected, "left real, right simulated");
        }
    });
}

/// How often a body is tried on the system, until it sees what it sees in the simulation.
const TRIES: usize = 5;

/// Long enough for what is under way on loopback to arrive.
async fn settle() {
    sleep(Duration::from_millis(20)).await;
}

async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let ours = TcpStream::connect(listener.local_addr()?).await?;
    let (theirs, _) = listener.accept().await?;
    Ok((ours, theirs))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Writes until there is no room, also not after a while; returns how many bytes there was room for.
async fn fill(stream: &TcpStream) -> io::Result<usize> {
    let (chunk, mut sent, mut pauses) = (vec![7; 64 * 1024], 0, 0);
    while pauses < 3 {
        match stream.try_write(&chunk) {
            Ok(bytes) => (sent, pauses) = (sent + bytes, 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                settle().await; // the system may make room meanwhile
                pauses += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Whether a future is ready at its first poll.
fn is_ready(future: impl Future) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    pin!(future).poll(&mut cx).is_ready()
}

/// Reads until the end or an error.
async fn read_all(stream: &mut (impl AsyncReadExt + Unpin)) -> (usize, io::Result<()>) {
    let (mut buf, mut all) = ([0; 4096], 0);
    loop {
        match stream.read(&mut buf).await {
            Ok(0) => return (all, Ok(())),
            Ok(bytes) => all += bytes,
            Err(error) => return (all, Err(error)),
        }
    }
}

#[test]
fn a_connect_without_a_listener_is_refused() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        drop(listener);
        seen.result("connect", TcpStream::connect(address).await.map(drop));
        Ok(())
    });
}

#[test]
fn addresses_of_both_ends_are_true() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let ours = TcpStream::connect(address).await?;
        let (theirs, peer) = listener.accept().await?;
        seen.saw(format!("{}", ours.peer_addr()? == address));
        seen.saw(format!("{}", theirs.local_addr()? == address));
        seen.saw(format!("{}", ours.local_addr()? == peer));
        seen.saw(format!("{}", theirs.peer_addr()? == peer));
        seen.saw(format!("{} {}", address.ip(), peer.ip()));
        seen.saw(format!("{}", peer.port() >= 1024));
        Ok(())
    });
}

#[test]
fn a_port_in_use_is_refused_and_free_again_after_its_listener() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        seen.result("twice", TcpListener::bind(address).await.map(drop));
        drop(listener);
        seen.result("again", TcpListener::bind(address).await.map(drop));
        seen.result("foreign", TcpListener::bind("192.0.2.1:0").await.map(drop));
        Ok(())
    });
}

#[test]
fn two_listeners_share_a_port_if_both_ask_for_it() {
    rule(async |seen| {
        let first = TcpSocket::new_v4()?;
        first.set_reuseport(true)?;
        first.bind("127.0.0.1:0".parse().unwrap())?;
        let first = first.listen(16)?;
        let second = TcpSocket::new_v4()?;
        second.set_reuseport(true)?;
        second.bind(first.local_addr()?)?;
        let second = second.listen(16);
        seen.result("second", second.map(drop));
        Ok(())
    });
}

#[test]
fn a_half_closed_connection_still_delivers_the_other_way() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        ours.write_all(b"question").await?;
        ours.close().await?;
        let mut text = String::new();
        seen.result("read to the end", theirs.read_to_string(&mut text).await);
        seen.saw(text);
        theirs.write_all(b"answer").await?;
        drop(theirs);
        let mut text = String::new();
        seen.result("read to the end", ours.read_to_string(&mut text).await);
        seen.saw(text);
        seen.result("read again", ours.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn a_close_with_unread_data_resets_the_connection() {
    rule(async |seen| {
        let (mut ours, theirs) = pair().await?;
        ours.write_all(b"never read").await?;
        settle().await;
        drop(theirs);
        settle().await;
        seen.result("read", ours.read(&mut [0; 8]).await);
        seen.result("read again", ours.read(&mut [0; 8]).await);
        seen.result("write", ours.write(b"x").await);
        seen.result("write again", ours.write(b"x").await);
        Ok(())
    });
}

#[test]
fn writes_to_a_closed_peer_fail_after_the_first() {
    rule(async |seen| {
        let (mut ours, theirs) = pair().await?;
        drop(theirs);
        settle().await;
        seen.result("first write", ours.write(b"x").await);
        settle().await;
        seen.result("second write", ours.write(b"x").await);
        seen.result("third write", ours.write(b"x").await);
        seen.result("read", ours.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn data_that_arrived_before_a_reset_can_be_read() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        ours.write_all(b"unread").await?;
        theirs.write_all(b"data").await?;
        settle().await;
        drop(theirs); // with unread data: a reset
        settle().await;
        let mut buf = [0; 16];
        let mut read = 0;
        while read < 4 {
            match ours.read(&mut buf[read..4]).await {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(error) => {
                    seen.result::<()>("early", Err(error));
                    break;
                }
            }
        }
        seen.saw(format!("{read} bytes"));
        seen.result("then", ours.read(&mut buf).await);
        seen.result("then", ours.read(&mut buf).await);
        Ok(())
    });
}

#[test]
fn a_linger_of_zero_resets() {
    rule(async |seen| {
        let (mut ours, theirs) = pair().await?;
        theirs.set_linger(Some(Duration::ZERO))?;
        drop(theirs);
        settle().await;
        seen.result("read", ours.read(&mut [0; 8]).await);
        seen.result("read again", ours.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn a_writer_without_a_reader_is_held_back_and_goes_on_when_it_is_read() {
    rule(async |seen| {
        let (ours, mut theirs) = pair().await?;
        let chunk = vec![7; 64 * 1024];
        let mut sent = 0;
        loop {
            match ours.try_write(&chunk) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    settle().await;
                    // The system may have made room meanwhile; in the end it is full.
                    match ours.try_write(&chunk) {
                        Ok(n) => sent += n,
                        Err(error) => {
                            seen.saw(format!("{:?}", error.kind()));
                            break;
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        seen.saw(format!("some: {}", sent > 0));
        let mut rest = sent;
        let mut buf = vec![0; 64 * 1024];
        while rest > 0 {
            rest -= theirs.read(&mut buf).await?;
        }
        ours.writable().await?;
        seen.saw(format!("room again: {}", ours.try_write(b"x").is_ok()));
        Ok(())
    });
}

#[test]
fn datagrams_are_whole_or_cut_and_never_joined() {
    rule(async |seen| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let other = UdpSocket::bind("127.0.0.1:0").await?;
        let to = other.local_addr()?;
        for text in ["first", "", "third"] {
            seen.result("send", one.send_to(text.as_bytes(), to).await);
        }
        let mut buf = [0; 3];
        for _ in 0..3 {
            let (len, from) = other.recv_from(&mut buf).await?;
            seen.saw(format!("{:?} {}", &buf[..len], from == one.local_addr()?));
        }
        seen.result("too long", one.send_to(&vec![0; 65_508], to).await);
        seen.result("longest", one.send_to(&vec![0; 65_507], to).await);
        Ok(())
    });
}

#[test]
fn a_connected_datagram_socket_hears_that_nobody_is_there() {
    rule(async |seen| {
        let gone = UdpSocket::bind("127.0.0.1:0").await?;
        let address = gone.local_addr()?;
        drop(gone);
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        seen.result("unconnected", one.send(b"x").await);
        one.connect(address).await?;
        seen.result("first", one.send(b"x").await);
        settle().await;
        seen.result("second", one.send(b"x").await); // the answer to the first
        seen.result("third", one.send(b"x").await);
        settle().await;
        seen.result("receive", one.recv(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn a_unix_socket_is_found_by_its_path_and_its_path_stays() {
    rule(async |seen| {
        let folder = std::env::temp_dir().join(format!("loops-rule-{}", std::process::id()));
        let _ = std::fs::create_dir(&folder);
        let path = folder.join("socket");
        let _ = std::fs::remove_file(&path);
        seen.result("none", UnixStream::connect(&path).await.map(drop));
        let listener = UnixListener::bind(&path)?;
        let mut ours = UnixStream::connect(&path).await?;
        let (mut theirs, _) = listener.accept().await?;
        ours.write_all(b"hello").await?;
        ours.close().await?;
        let mut text = String::new();
        theirs.read_to_string(&mut text).await?;
        seen.saw(text);
        seen.result("twice", UnixListener::bind(&path).map(drop));
        drop(listener);
        seen.result("left over", UnixStream::connect(&path).await.map(drop));
        seen.result("bind again", UnixListener::bind(&path).map(drop));
        let _ = std::fs::remove_file(&path);
        Ok(())
    });
}

#[test]
fn a_pair_of_unix_sockets_ends_as_its_peer_does() {
    rule(async |seen| {
        let (mut one, mut other) = UnixStream::pair()?;
        one.write_all(b"all").await?;
        drop(one);
        let mut text = String::new();
        seen.result("read to the end", other.read_to_string(&mut text).await);
        seen.saw(text);
        seen.result("write", other.write(b"x").await);
        let (one, mut other) = UnixStream::pair()?;
        other.write_all(b"never read").await?;
        drop(one);
        seen.result("read after unread data", other.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn connections_are_accepted_in_the_order_of_their_connects() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut ours = Vec::new();
        for _ in 0..10 {
            ours.push(TcpStream::connect(listener.local_addr()?).await?);
        }
        for one in &ours {
            let (_, peer) = listener.accept().await?;
            seen.fact("in order", peer == one.local_addr()?);
        }
        seen.result("one more", listener.try_accept().map(drop));
        Ok(())
    });
}

#[test]
fn one_listener_has_any_number_of_connections_with_ports_of_their_own() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut both = Vec::new();
        for _ in 0..100 {
            let ours = TcpStream::connect(listener.local_addr()?).await?;
            both.push((ours, listener.accept().await?.0));
        }
        let mut ports: Vec<_> = both
            .iter()
            .map(|(ours, _)| ours.local_addr().unwrap().port())
            .collect();
        ports.sort_unstable();
        ports.dedup();
        seen.fact("ports", ports.len());
        for (number, (ours, _)) in both.iter_mut().enumerate() {
            ours.write_all(&[number as u8]).await?;
        }
        for (number, (_, theirs)) in both.iter_mut().enumerate() {
            let mut byte = [0];
            theirs.read_exact(&mut byte).await?;
            assert_eq!(usize::from(byte[0]), number);
        }
        Ok(())
    });
}

#[test]
fn a_full_backlog_is_silent_and_does_not_refuse() {
    rule(async |seen| {
        for backlog in [0, 1, 3] {
            let socket = TcpSocket::new_v4()?;
            socket.bind(address("127.0.0.1:0"))?;
            let listener = socket.listen(backlog)?;
            let to = listener.local_addr()?;
            let mut waiting = Vec::new();
            let refused = loop {
                match TcpStream::connect_timeout(to, Duration::from_millis(300)).await {
                    Ok(stream) => waiting.push(stream),
                    Err(error) => break error,
                }
            };
            seen.fact("had room", (backlog, waiting.len(), refused.kind()));
            let (_first, peer) = listener.accept().await?;
            seen.fact("the first", peer == waiting[0].local_addr()?);
            seen.result(
                "there is room again",
                TcpStream::connect(to).await.map(drop),
            );
        }
        Ok(())
    });
}

#[test]
fn a_connect_that_found_the_backlog_full_succeeds_once_there_is_room() {
    rule(async |seen| {
        let socket = TcpSocket::new_v4()?;
        socket.bind(address("127.0.0.1:0"))?;
        let listener = socket.listen(0)?;
        let to = listener.local_addr()?;
        let first = TcpStream::connect(to).await?;
        let second = loopgroup::spawn_local(TcpStream::connect(to));
        settle().await;
        seen.fact("waits", !second.is_finished());
        let (_, peer) = listener.accept().await?;
        seen.fact("first", peer == first.local_addr()?);
        let second = second.await.unwrap()?; // its SYN is sent again after a second
        let (_, peer) = listener.accept().await?;
        seen.fact("second", peer == second.local_addr()?);
        Ok(())
    });
}

#[test]
fn connections_that_nobody_accepted_are_reset_with_their_listener_and_accepted_ones_live_on() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut accepted = TcpStream::connect(listener.local_addr()?).await?;
        let (mut theirs, _) = listener.accept().await?;
        let mut queued = TcpStream::connect(listener.local_addr()?).await?;
        queued.write_all(b"hello?").await?;
        settle().await;
        drop(listener);
        settle().await;
        seen.result("queued", queued.read(&mut [0; 8]).await);
        seen.result("queued again", queued.read(&mut [0; 8]).await);
        seen.result("write", queued.write(b"x").await);
        accepted.write_all(b"x").await?;
        seen.result("accepted", theirs.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn a_connection_that_ended_before_its_accept_is_accepted_with_what_it_sent() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut ours = TcpStream::connect(listener.local_addr()?).await?;
        ours.write_all(b"gone").await?;
        drop(ours);
        settle().await;
        let (mut theirs, _) = listener.accept().await?;
        let mut text = String::new();
        seen.result("read", theirs.read_to_string(&mut text).await);
        seen.saw(text);
        let ours = TcpStream::connect(listener.local_addr()?).await?;
        let from = ours.local_addr()?;
        ours.set_linger(Some(Duration::ZERO))?;
        drop(ours);
        settle().await;
        let (mut theirs, peer) = listener.accept().await?;
        seen.fact("reset, and accepted", peer == from);
        seen.result("read", theirs.read(&mut [0; 8]).await);
        seen.result("read again", theirs.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn incoming_yields_the_connections_and_a_dropped_accept_loses_none() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let to = listener.local_addr()?;
        seen.result("none", listener.try_accept().map(drop));
        for _ in 0..3 {
            drop(timeout(Duration::from_millis(1), listener.accept()).await);
        }
        let mut ours = Vec::new();
        for _ in 0..5 {
            ours.push(TcpStream::connect(to).await?.local_addr()?);
        }
        let peers = listener
            .incoming()
            .take(5)
            .map(|one| one.unwrap().peer_addr());
        let peers: Vec<_> = peers.collect().await;
        let closed = peers.iter().filter(|one| one.is_ok()).count();
        seen.fact("with a peer", closed);
        let waits = loopgroup::spawn_local(async move { listener.accept().await.map(|_| ()) });
        settle().await;
        seen.fact("waits", !waits.is_finished());
        let _one = TcpStream::connect(to).await?;
        seen.result("woken", waits.await.unwrap());
        Ok(())
    });
}

#[test]
fn a_peek_takes_nothing_and_finds_the_end() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        seen.fact("nothing", is_ready(ours.peek(&mut [0; 8])));
        theirs.write_all(b"peek").await?;
        settle().await;
        let mut buf = [0; 8];
        for _ in 0..2 {
            seen.result("peek", ours.peek(&mut buf).await);
        }
        seen.result("short peek", ours.peek(&mut buf[..2]).await);
        ours.read_exact(&mut buf[..4]).await?;
        seen.saw(String::from_utf8_lossy(&buf[..4]));
        drop(theirs);
        settle().await;
        seen.result("the end", ours.peek(&mut buf).await);
        seen.result("the end", ours.read(&mut buf).await);
        Ok(())
    });
}

#[test]
fn vectored_calls_keep_the_order_of_the_bytes() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        let text: Vec<u8> = (0..100).collect();
        let mut sent = 0;
        while sent < text.len() {
            let (one, other) = text[sent..].split_at((text.len() - sent) / 2);
            let parts = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(other)];
            sent += ours.write_vectored(&parts).await?;
        }
        let (mut one, mut other) = ([0; 7], [0; 100]);
        let mut got = Vec::new();
        while got.len() < text.len() {
            let mut parts = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
            let bytes = theirs.read_vectored(&mut parts).await?;
            got.extend_from_slice(&one[..bytes.min(7)]);
            got.extend_from_slice(&other[..bytes.saturating_sub(7)]);
        }
        seen.fact("the same", got == text);
        seen.result(
            "nothing",
            theirs.try_read_vectored(&mut [IoSliceMut::new(&mut one)]),
        );
        seen.result("no slices", ours.write_vectored(&[]).await);
        Ok(())
    });
}

#[test]
fn a_write_half_that_was_shut_down_refuses_writes_and_reads_on() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        ours.shutdown(Shutdown::Write)?;
        seen.result("write", ours.write(b"x").await);
        seen.result("write of nothing", ours.write(b"").await);
        seen.result("shut down again", ours.shutdown(Shutdown::Write));
        seen.result("the end", theirs.read(&mut [0; 8]).await);
        theirs.write_all(b"y").await?;
        seen.result("read", ours.read(&mut [0; 8]).await);
        seen.pending("no error", ours.take_error());
        Ok(())
    });
}

#[test]
fn a_read_half_that_was_shut_down_still_gets_what_comes_and_ends_after_it() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        theirs.write_all(b"before").await?;
        settle().await;
        ours.shutdown(Shutdown::Read)?;
        ours.read_exact(&mut [0; 6]).await?;
        seen.result("the end", ours.read(&mut [0; 8]).await);
        theirs.write_all(b"!").await?;
        settle().await;
        seen.result("after the end", ours.try_read(&mut [0; 8]));
        seen.result("the end", ours.read(&mut [0; 8]).await);
        seen.result("shut down again", ours.shutdown(Shutdown::Read));
        seen.result("write", ours.write(b"z").await);
        seen.result("peer reads", theirs.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn both_halves_shut_down_in_any_order_end_both_ways() {
    rule(async |seen| {
        let (read, write) = (Shutdown::Read, Shutdown::Write);
        for order in [vec![Shutdown::Both], vec![read, write], vec![write, read]] {
            seen.fact("order", &order);
            let (mut ours, mut theirs) = pair().await?;
            for how in order {
                seen.result("shutdown", ours.shutdown(how));
            }
            seen.result("read", ours.read(&mut [0; 8]).await);
            seen.result("write", ours.write(b"x").await);
            seen.result("peer reads", theirs.read(&mut [0; 8]).await);
            seen.result("peer writes", theirs.write(b"x").await);
            settle().await;
            seen.result("peer writes again", theirs.write(b"x").await);
            seen.result("then", ours.read(&mut [0; 8]).await);
        }
        Ok(())
    });
}

#[test]
fn a_connection_that_ended_both_ways_has_no_peer_any_more() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        ours.shutdown(Shutdown::Write)?;
        seen.result("the end", theirs.read(&mut [0; 8]).await);
        seen.fact(
            "half",
            (ours.peer_addr().is_ok(), theirs.peer_addr().is_ok()),
        );
        theirs.shutdown(Shutdown::Write)?;
        seen.result("the end", ours.read(&mut [0; 8]).await);
        settle().await;
        seen.result("ours", ours.peer_addr().map(drop));
        seen.result("theirs", theirs.peer_addr().map(drop));
        seen.fact(
            "local",
            (ours.local_addr().is_ok(), theirs.local_addr().is_ok()),
        );
        seen.result("shut down", ours.shutdown(Shutdown::Write));
        seen.result("shut down", theirs.shutdown(Shutdown::Both));
        seen.result("read", ours.read(&mut [0; 8]).await);
        seen.result("write", theirs.write(b"x").await);
        Ok(())
    });
}

#[test]
fn a_reset_connection_has_no_peer_any_more() {
    rule(async |seen| {
        let (ours, theirs) = pair().await?;
        theirs.set_linger(Some(Duration::ZERO))?;
        drop(theirs);
        settle().await;
        seen.result("peer", ours.peer_addr().map(drop));
        seen.fact("local", ours.local_addr().is_ok());
        seen.result("shut down", ours.shutdown(Shutdown::Write));
        seen.result("shut down", ours.shutdown(Shutdown::Read));
        Ok(())
    });
}

#[test]
fn a_reset_is_a_pending_error_that_is_taken_once() {
    rule(async |seen| {
        let (mut ours, theirs) = pair().await?;
        seen.pending("none", ours.take_error());
        theirs.set_linger(Some(Duration::ZERO))?;
        drop(theirs);
        settle().await;
        seen.pending("reset", ours.take_error());
        seen.pending("taken", ours.take_error());
        seen.result("read", ours.read(&mut [0; 8]).await);
        seen.result("write", ours.write(b"x").await);
        Ok(())
    });
}

#[test]
fn a_write_takes_the_error_of_a_reset_before_a_read() {
    rule(async |seen| {
        let (mut ours, theirs) = pair().await?;
        theirs.set_linger(Some(Duration::ZERO))?;
        drop(theirs);
        settle().await;
        seen.result("write", ours.write(b"x").await);
        seen.result("write", ours.write(b"x").await);
        seen.result("read", ours.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn a_half_closed_connection_that_is_reset_says_so() {
    rule(async |seen| {
        let (mut ours, theirs) = pair().await?;
        ours.shutdown(Shutdown::Write)?;
        settle().await;
        theirs.set_linger(Some(Duration::ZERO))?;
        drop(theirs);
        settle().await;
        seen.result("read", ours.read(&mut [0; 8]).await);
        seen.result("read", ours.read(&mut [0; 8]).await);
        let (mut ours, theirs) = pair().await?;
        theirs.shutdown(Shutdown::Write)?;
        ours.write_all(b"unread").await?;
        settle().await;
        drop(theirs); // a reset, after its end
        settle().await;
        seen.pending("pending", ours.take_error());
        seen.result("read", ours.read(&mut [0; 8]).await);
        seen.result("write", ours.write(b"x").await);
        Ok(())
    });
}

#[test]
fn a_fresh_connection_is_writable_and_becomes_readable_with_data_and_with_the_end() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = ours.ready(both).await?;
        seen.fact("fresh", (ready.is_readable(), ready.is_writable()));
        seen.fact("readable", is_ready(ours.readable()));
        seen.result("try_read", ours.try_read(&mut [0; 8]));
        theirs.write_all(b"!").await?;
        ours.readable().await?;
        let ready = ours.ready(both).await?;
        seen.fact("with data", (ready.is_readable(), ready.is_writable()));
        seen.result("try_read", ours.try_read(&mut [0; 8]));
        seen.result("try_read again", ours.try_read(&mut [0; 8]));
        seen.fact("readable", is_ready(ours.readable()));
        drop(theirs);
        ours.readable().await?;
        let ready = ours.ready(Interest::READABLE).await?;
        seen.fact("ended", (ready.is_readable(), ready.is_readable()));
        seen.result("try_read", ours.try_read(&mut [0; 8]));
        seen.result("try_read", ours.try_read(&mut [0; 8]));
        seen.result("still readable", ours.readable().await);
        seen.result("read", ours.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn a_reset_wakes_readers_and_writers() {
    rule(async |seen| {
        let (ours, theirs) = pair().await?;
        fill(&ours).await?;
        seen.fact("writable", is_ready(ours.writable()));
        let ours = std::rc::Rc::new(ours);
        let (one, other) = (ours.clone(), ours.clone());
        let reader = loopgroup::spawn_local(async move { one.readable().await });
        let writer = loopgroup::spawn_local(async move { other.writable().await });
        settle().await;
        seen.fact("wait", (!reader.is_finished(), !writer.is_finished()));
        drop(theirs); // with unread data
        seen.result("reader", reader.await.unwrap());
        seen.result("writer", writer.await.unwrap());
        seen.result("write", ours.try_write(b"x"));
        seen.result("write", ours.try_write(b"x"));
        Ok(())
    });
}

#[test]
fn a_write_that_waits_fails_with_the_reset_of_its_peer() {
    rule(async |seen| {
        let (mut ours, theirs) = pair().await?;
        let writer = loopgroup::spawn_local(async move {
            let all = ours.write_all(&vec![0; 64 << 20]).await;
            (all, ours.write(b"x").await)
        });
        settle().await;
        drop(theirs);
        let (all, then) = writer.await.unwrap();
        seen.result("write_all", all);
        seen.result("then", then);
        Ok(())
    });
}

#[test]
fn a_read_that_waits_ends_with_the_shutdown_of_its_own_half() {
    rule(async |seen| {
        let (ours, _theirs) = pair().await?;
        let ours = std::rc::Rc::new(ours);
        let one = ours.clone();
        let reader = loopgroup::spawn_local(async move { (&mut &*one).read(&mut [0; 8]).await });
        settle().await;
        seen.fact("waits", !reader.is_finished());
        ours.shutdown(Shutdown::Read)?;
        seen.result("woken", reader.await.unwrap());
        Ok(())
    });
}

#[test]
fn a_write_that_waits_ends_with_the_shutdown_of_its_own_half() {
    rule(async |seen| {
        let (ours, mut theirs) = pair().await?;
        let ours = std::rc::Rc::new(ours);
        let one = ours.clone();
        let writer = loopgroup::spawn_local(async move {
            let all = vec![0; 64 << 20];
            (&mut &*one).write_all(&all).await
        });
        settle().await;
        seen.fact("waits", !writer.is_finished());
        ours.shutdown(Shutdown::Write)?;
        seen.result("woken", writer.await.unwrap());
        let (all, ended) = read_all(&mut theirs).await;
        seen.fact("something arrived", all > 0);
        seen.result("ended", ended);
        Ok(())
    });
}

#[test]
fn empty_reads_and_writes_do_nothing() {
    rule(async |seen| {
        let (mut ours, mut theirs) = pair().await?;
        seen.result("write", ours.write(b"").await);
        theirs.write_all(b"x").await?;
        settle().await;
        seen.result("read", ours.read(&mut []).await);
        seen.result("read", ours.read(&mut [0; 8]).await);
        drop(theirs);
        settle().await;
        seen.result("read", ours.read(&mut []).await);
        Ok(())
    });
}

#[test]
fn megabytes_go_both_ways_at_once_and_arrive_whole() {
    rule(async |seen| {
        const SIZE: usize = 1 << 18;
        let (ours, theirs) = pair().await?;
        let one = async move |stream: TcpStream, first: u8| {
            let (mut reader, mut writer) = stream.into_split();
            let data: Vec<u8> = (0..SIZE).map(|at| (at / 3) as u8 ^ first).collect();
            let writes = loopgroup::spawn_local(async move {
                writer.write_all(&data).await?;
                writer.close().await
            });
            let mut got = Vec::new();
            reader.read_to_end(&mut got).await?;
            writes.await.unwrap()?;
            let right = |(at, byte): (usize, &u8)| *byte == (at / 3) as u8 ^ first ^ 255;
            io::Result::Ok((got.len(), got.iter().enumerate().all(right)))
        };
        let one_end = loopgroup::spawn_local(one(ours, 0));
        seen.result("theirs", one(theirs, 255).await);
        seen.result("ours", one_end.await.unwrap());
        Ok(())
    });
}

#[test]
fn halves_end_on_their_own_and_unite_again() {
    rule(async |seen| {
        let (ours, mut theirs) = pair().await?;
        let (mut reader, writer) = ours.into_split();
        drop(writer); // shuts the direction down
        seen.result("the end", theirs.read(&mut [0; 8]).await);
        theirs.write_all(b"x").await?;
        seen.result("reads on", reader.read(&mut [0; 8]).await);
        let (ours, mut theirs) = pair().await?;
        let (reader, writer) = ours.into_split();
        writer.forget(); // does not
        settle().await;
        seen.result("no end", theirs.try_read(&mut [0; 8]));
        drop(reader);
        seen.result("the end", theirs.read(&mut [0; 8]).await);
        let (ours, mut theirs) = pair().await?;
        let (reader, writer) = ours.into_split();
        let mut ours = reader.reunite(writer).unwrap();
        ours.write_all(b"y").await?;
        seen.result("read", theirs.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn a_proxy_copies_both_ways_to_both_ends() {
    rule(async |seen| {
        let (mut client, mut front) = pair().await?;
        let (mut back, mut server) = pair().await?;
        let proxy =
            loopgroup::spawn_local(async move { copy_bidirectional(&mut front, &mut back).await });
        let served = loopgroup::spawn_local(async move {
            let mut text = Vec::new();
            server.read_to_end(&mut text).await?;
            server.write_all(&text.repeat(3)).await?;
            server.close().await
        });
        client.write_all(&[1; 50_000]).await?;
        client.close().await?;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await?;
        seen.fact("answer", answer.len());
        seen.result("copied", proxy.await.unwrap());
        seen.result("served", served.await.unwrap());
        Ok(())
    });
}

#[test]
fn the_unspecified_address_listens_everywhere_and_leads_to_the_host_itself() {
    rule(async |seen| {
        let listener = TcpListener::bind("0.0.0.0:0").await?;
        let local = listener.local_addr()?;
        seen.fact("listens at", local.ip());
        for to in ["127.0.0.1", "127.1.2.3", "0.0.0.0"] {
            let ours = TcpStream::connect((to, local.port())).await?;
            let (theirs, peer) = listener.accept().await?;
            seen.fact(to, (ours.peer_addr()?.ip(), ours.local_addr()?.ip()));
            seen.fact("accepted", (theirs.local_addr()?.ip(), peer.ip()));
        }
        Ok(())
    });
}

#[test]
fn a_listener_of_both_families_sees_mapped_addresses() {
    rule(async |seen| {
        let listener = TcpListener::bind("[::]:0").await?;
        let local = listener.local_addr()?;
        seen.fact("listens at", local.ip());
        for to in ["127.0.0.1", "::1", "::", "0.0.0.0", "::ffff:127.0.0.1"] {
            let to: std::net::IpAddr = to.parse().unwrap();
            let ours = TcpStream::connect((to, local.port()).into_address()).await?;
            let (theirs, peer) = listener.accept().await?;
            seen.fact(
                "connected",
                (to, ours.peer_addr()?.ip(), ours.local_addr()?.ip()),
            );
            seen.fact("accepted", (theirs.local_addr()?.ip(), peer.ip()));
        }
        let only = TcpListener::bind("[::1]:0").await?;
        let port = only.local_addr()?.port();
        let refused = TcpStream::connect(("127.0.0.1", port).into_address()).await;
        seen.result("IPv4 to ::1", refused.map(drop));
        Ok(())
    });
}

trait IntoAddress {
    fn into_address(self) -> SocketAddr;
}

impl IntoAddress for (std::net::IpAddr, u16) {
    fn into_address(self) -> SocketAddr {
        self.into()
    }
}

impl IntoAddress for (&str, u16) {
    fn into_address(self) -> SocketAddr {
        (self.0.parse::<std::net::IpAddr>().unwrap(), self.1).into()
    }
}

#[test]
fn listeners_of_overlapping_addresses_are_in_each_others_way() {
    rule(async |seen| {
        let bind = async |ip: &str, port: u16| TcpListener::bind((ip, port).into_address()).await;
        for (first, second) in [
            ("127.0.0.1", "127.0.0.2"),
            ("127.0.0.1", "0.0.0.0"),
            ("0.0.0.0", "127.0.0.1"),
            ("::", "0.0.0.0"),
            ("::", "127.0.0.1"),
            ("0.0.0.0", "::"),
            ("::1", "127.0.0.1"),
            ("::1", "0.0.0.0"),
            ("::1", "::"),
        ] {
            let one = bind(first, 0).await?;
            let second_bound = bind(second, one.local_addr()?.port()).await;
            seen.result(&format!("{first} and {second}"), second_bound.map(drop));
        }
        Ok(())
    });
}

#[test]
fn port_zero_is_a_free_port_for_listeners_and_refused_for_connects() {
    rule(async |seen| {
        let mut ports = Vec::new();
        let mut listeners = Vec::new();
        for _ in 0..50 {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            ports.push(listener.local_addr()?.port());
            listeners.push(listener);
        }
        ports.sort_unstable();
        ports.dedup();
        seen.fact("different", ports.len());
        seen.fact("not zero", ports[0] > 0);
        seen.result("connect", TcpStream::connect("127.0.0.1:0").await.map(drop));
        Ok(())
    });
}

#[test]
fn a_port_with_connections_can_be_listened_at_again() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let mut ours = TcpStream::connect(at).await?;
        let (mut theirs, _) = listener.accept().await?;
        drop(listener);
        seen.result(
            "while it is connected",
            TcpListener::bind(at).await.map(drop),
        );
        ours.write_all(b"x").await?;
        theirs.read_exact(&mut [0]).await?;
        drop(theirs); // this end waits, in TIME_WAIT
        drop(ours);
        settle().await;
        let listener = TcpListener::bind(at).await;
        seen.result(
            "after it",
            listener.as_ref().map(drop).map_err(|one| one.kind().into()),
        );
        let _new = TcpStream::connect(at).await?;
        seen.result("accept", listener?.accept().await.map(drop));
        Ok(())
    });
}

#[test]
fn the_more_exact_listener_gets_the_connection() {
    rule(async |seen| {
        let any = TcpSocket::new_v4()?;
        any.set_reuseport(true)?;
        any.bind(address("0.0.0.0:0"))?;
        let any = any.listen(16)?;
        let port = any.local_addr()?.port();
        let exact = TcpSocket::new_v4()?;
        exact.set_reuseport(true)?;
        exact.bind(("127.0.0.1", port).into_address())?;
        let exact = exact.listen(16)?;
        let _one = TcpStream::connect(("127.0.0.1", port).into_address()).await?;
        let _other = TcpStream::connect(("127.0.0.9", port).into_address()).await?;
        settle().await;
        for listener in [&any, &exact] {
            seen.result("first", listener.try_accept().map(drop));
            seen.result("second", listener.try_accept().map(drop));
        }
        Ok(())
    });
}

#[test]
fn a_socket_connects_from_the_address_that_it_is_bound_to() {
    rule(async |seen| {
        let listener = TcpListener::bind("0.0.0.0:0").await?;
        let to = ("127.0.0.1", listener.local_addr()?.port()).into_address();
        let socket = TcpSocket::new_v4()?;
        socket.bind(address("127.0.0.2:0"))?;
        let stream = socket.connect(to).await?;
        let (_, peer) = listener.accept().await?;
        seen.fact("from", (peer.ip(), peer == stream.local_addr()?));
        // A port of its own choice, which it may have once.
        let free = TcpListener::bind("127.0.0.3:0").await?.local_addr()?;
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(free)?;
        let stream = socket.connect(to).await?;
        seen.fact("the port", stream.local_addr()? == free);
        let again = async {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(free)?;
            socket.connect(to).await
        };
        seen.fact("twice", again.await.map(drop).map_err(|error| error.kind()));
        Ok(())
    });
}

#[test]
fn a_socket_does_not_connect_to_another_family() {
    rule(async |seen| {
        let listener = TcpListener::bind("[::]:0").await?;
        let port = listener.local_addr()?.port();
        let v4 = ("127.0.0.1", port).into_address();
        let v6 = ("::1", port).into_address();
        seen.result("4 to 6", TcpSocket::new_v4()?.connect(v6).await.map(drop));
        let refused = TcpSocket::new_v6()?.connect(v4).await.is_err(); // the errors differ in any case
        seen.fact("6 to 4", refused);
        Ok(())
    });
}

#[test]
fn a_socket_is_bound_when_it_is_bound() {
    rule(async |seen| {
        let taken = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let listener = TcpListener::bind(taken).await?;
        let socket = TcpSocket::new_v4()?;
        seen.result(
            "foreign",
            socket
                .bind(address("192.0.2.1:0"))
                .map_err(|one| one.kind().into()),
        );
        seen.result("taken", socket.bind(taken).map_err(|one| one.kind().into()));
        seen.fact("another family", socket.bind(address("[::1]:0")).is_err());
        socket.bind(address("127.0.0.1:0"))?;
        seen.fact("port", socket.local_addr()?.port() > 0);
        seen.fact(
            "again",
            socket
                .bind(address("127.0.0.1:0"))
                .map_err(|one| one.kind()),
        );
        let reserved = socket.local_addr()?;
        seen.fact("reserved", TcpListener::bind(reserved).await.is_err());
        drop(listener);
        Ok(())
    });
}

#[test]
fn a_connection_has_the_options_of_its_socket() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let socket = TcpSocket::new_v4()?;
        socket.set_nodelay(true)?;
        socket.set_ttl(17)?;
        socket.set_keepalive(Some(Duration::from_secs(9)))?;
        let stream = socket.connect(listener.local_addr()?).await?;
        seen.result("nodelay", stream.nodelay());
        seen.result("ttl", stream.ttl());
        seen.result("keepalive", stream.keepalive());
        Ok(())
    });
}

#[test]
fn a_unix_socket_is_bound_before_it_listens_or_connects() {
    rule(async |seen| {
        let (ours, theirs) = (TempPath::new("rule-ours"), TempPath::new("rule-theirs"));
        let socket = UnixSocket::new_stream()?;
        socket.bind(&theirs.0)?;
        let listener = socket.listen(2)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(&ours.0)?;
        let _stream = socket.connect(&theirs.0).await?;
        let (_accepted, peer) = listener.accept().await?;
        seen.fact("who connects", peer.as_pathname() == Some(&*ours.0));
        let _other = UnixStream::connect(&theirs.0).await?;
        listener.accept().await?;
        let waits = loopgroup::spawn_local(async move { listener.accept().await.map(drop) });
        settle().await;
        seen.fact("waits", !waits.is_finished());
        Ok(())
    });
}

#[test]
fn a_socket_connects_within_its_family() {
    rule(async |seen| {
        let listener = TcpListener::bind("[::]:0").await?;
        let port = listener.local_addr()?.port();
        let v4 = ("127.0.0.1", port).into_address();
        let v6 = ("::1", port).into_address();
        seen.result("4 to 4", TcpSocket::new_v4()?.connect(v4).await.map(drop));
        seen.result("6 to 6", TcpSocket::new_v6()?.connect(v6).await.map(drop));
        Ok(())
    });
}

#[test]
fn options_are_kept() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (ours, _theirs) = pair().await?;
        seen.result("nodelay", ours.nodelay());
        seen.result("linger", ours.linger());
        seen.result("keepalive", ours.keepalive());
        ours.set_nodelay(true)?;
        ours.set_linger(Some(Duration::from_secs(3)))?;
        ours.set_keepalive(Some(Duration::from_secs(9)))?;
        ours.set_ttl(17)?;
        seen.result("nodelay", ours.nodelay());
        seen.result("linger", ours.linger());
        seen.result("keepalive", ours.keepalive());
        seen.result("ttl", ours.ttl());
        seen.result("ttl", ours.set_ttl(256));
        ours.set_linger(None)?;
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        seen.result("reuse", socket.reuseaddr());
        seen.result("reuse", socket.reuseport());
        socket.set_linger(Some(Duration::ZERO))?;
        let stream = socket.connect(listener.local_addr()?).await?;
        seen.result("linger", stream.linger());
        let (mut theirs, _) = listener.accept().await?;
        drop(stream);
        seen.result("reset", theirs.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn the_name_localhost_leads_to_the_host_itself() {
    rule(async |seen| {
        let found: Vec<_> = lookup_host("localhost:80").await?.collect();
        seen.fact("127.0.0.1", found.contains(&address("127.0.0.1:80")));
        let numbers: Vec<_> = lookup_host("127.0.0.1:81").await?.collect();
        seen.fact("numbers", numbers);
        seen.result("no port", lookup_host("localhost").await.map(drop));
        seen.result("no number", lookup_host("localhost:http").await.map(drop));
        seen.result("large", lookup_host("localhost:65536").await.map(drop));
        seen.result(
            "pair",
            lookup_host(("localhost", 7))
                .await
                .map(|all| all.count() > 0),
        );
        let listener = TcpListener::bind("localhost:0").await?;
        let port = listener.local_addr()?.port();
        let stream = TcpStream::connect(("localhost", port)).await?;
        seen.fact("connected", stream.peer_addr()?.port() == port);
        Ok(())
    });
}

#[test]
fn a_list_of_addresses_is_tried_in_its_order() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let good = listener.local_addr()?;
        let closed = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let stream = TcpStream::connect(&[closed, good][..]).await?;
        seen.fact("the second", stream.peer_addr()? == good);
        seen.result(
            "none",
            TcpStream::connect(&[closed, closed][..]).await.map(drop),
        );
        seen.result("empty", TcpStream::connect(&[][..]).await.map(drop));
        let bound = TcpListener::bind(&[good, address("127.0.0.1:0")][..]).await?;
        seen.fact("the second", bound.local_addr()? != good);
        Ok(())
    });
}

#[test]
fn a_server_serves_and_drains() {
    rule(async |seen| {
        let workers = EventLoopGroup::new(2)?;
        let server = Server::new("127.0.0.1:0")?.workers(&workers);
        let server = server.serve(|mut stream: TcpStream, _| async move {
            let mut request = [0; 4];
            while stream.read_exact(&mut request).await.is_ok() {
                if stream.write_all(&request).await.is_err() {
                    return;
                }
            }
        })?;
        let to = server.local_addr();
        for number in 0..10_u32 {
            let mut stream = TcpStream::connect(to).await?;
            stream.write_all(&number.to_be_bytes()).await?;
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await?;
            assert_eq!(answer, number.to_be_bytes());
        }
        settle().await;
        let report = workers.drain(Duration::from_secs(5)).await;
        let ended = (report.accepted(), report.completed(), report.cancelled());
        seen.fact("balanced", ended.0 == ended.1 + ended.2);
        seen.fact("served", server.await.accepted());
        seen.result("refused", TcpStream::connect(to).await.map(drop));
        Ok(())
    });
}

#[test]
fn a_datagram_socket_has_a_peer_and_an_address_once_it_is_connected() {
    rule(async |seen| {
        let other = UdpSocket::bind("127.0.0.1:0").await?;
        let one = UdpSocket::bind("0.0.0.0:0").await?;
        let port = one.local_addr()?.port();
        seen.fact("bound", (one.local_addr()?.ip(), port > 0));
        seen.result("no peer", one.peer_addr().map(drop));
        one.connect(other.local_addr()?).await?;
        seen.fact(
            "connected",
            (one.local_addr()?.ip(), one.local_addr()?.port() == port),
        );
        seen.fact("peer", one.peer_addr()? == other.local_addr()?);
        one.send(b"x").await?;
        let (len, from) = other.recv_from(&mut [0; 8]).await?;
        seen.fact("got", (len, from == one.local_addr()?));
        Ok(())
    });
}

#[test]
fn a_connected_datagram_socket_hears_only_its_peer() {
    rule(async |seen| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let friend = UdpSocket::bind("127.0.0.1:0").await?;
        let stranger = UdpSocket::bind("127.0.0.1:0").await?;
        let to = one.local_addr()?;
        stranger.send_to(b"before", to).await?;
        settle().await;
        one.connect(friend.local_addr()?).await?;
        stranger.send_to(b"after", to).await?;
        friend.send_to(b"friend", to).await?;
        settle().await;
        let mut buf = [0; 16];
        while let Ok((len, from)) = one.try_recv_from(&mut buf) {
            let who = from == friend.local_addr()?;
            seen.fact(&String::from_utf8_lossy(&buf[..len]), who);
        }
        // Sends to others are allowed; another peer takes the place of the first.
        seen.result(
            "to another",
            one.send_to(b"x", stranger.local_addr()?).await,
        );
        seen.result("got", stranger.recv(&mut buf).await);
        one.connect(stranger.local_addr()?).await?;
        friend.send_to(b"friend", to).await?;
        stranger.send_to(b"stranger", to).await?;
        settle().await;
        seen.result("recv", one.try_recv(&mut buf));
        seen.result("recv", one.try_recv(&mut buf));
        Ok(())
    });
}

#[test]
fn a_connected_datagram_socket_has_a_pending_error_that_is_taken_once() {
    rule(async |seen| {
        let gone = UdpSocket::bind("127.0.0.1:0").await?.local_addr()?;
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        one.connect(gone).await?;
        one.send(b"x").await?;
        one.readable().await?;
        seen.pending("refused", one.take_error());
        seen.pending("taken", one.take_error());
        seen.result("send", one.send(b"x").await);
        settle().await;
        seen.result("try_recv", one.try_recv(&mut [0; 8]));
        seen.result("try_recv", one.try_recv(&mut [0; 8]));
        Ok(())
    });
}

#[test]
fn an_unconnected_datagram_socket_does_not_hear_that_nobody_is_there() {
    rule(async |seen| {
        let gone = UdpSocket::bind("127.0.0.1:0").await?.local_addr()?;
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        for _ in 0..3 {
            seen.result("send", one.send_to(b"x", gone).await);
            settle().await;
        }
        seen.pending("no error", one.take_error());
        seen.result("recv", one.try_recv(&mut [0; 8]));
        Ok(())
    });
}

#[test]
fn a_full_datagram_socket_drops_the_newest_and_keeps_the_order() {
    rule(async |seen| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let other = UdpSocket::bind("127.0.0.1:0").await?;
        let to = other.local_addr()?;
        let mut datagram = [0; 1000];
        for number in 0..2_000_u32 {
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            one.send_to(&datagram, to).await?;
        }
        settle().await;
        let mut next = 0;
        while other.try_recv_from(&mut datagram).is_ok() {
            let number = u32::from_be_bytes(datagram[..4].try_into().unwrap());
            assert_eq!(number, next);
            next += 1;
        }
        seen.fact("some", next > 50);
        seen.fact("not all", next < 2_000);
        one.send_to(b"room again", to).await?;
        seen.result("room", other.recv(&mut datagram).await);
        Ok(())
    });
}

#[test]
fn a_datagram_that_does_not_fit_is_cut_and_an_empty_one_arrives() {
    rule(async |seen| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        one.connect(one.local_addr()?).await?; // to itself
        for len in [0, 1, 8, 1_500, 20_000, 65_507] {
            seen.result("send", one.send(&vec![3; len]).await);
            seen.result("peek", one.peek(&mut [0; 4]).await);
            seen.result(
                "peek",
                one.peek_from(&mut [0; 70_000]).await.map(|(len, _)| len),
            );
            seen.result("recv", one.recv(&mut [0; 4]).await);
            seen.result("the rest is lost", one.try_recv(&mut [0; 4]));
        }
        one.send(b"gone").await?;
        settle().await;
        seen.result("into nothing", one.recv(&mut []).await);
        seen.result("gone", one.try_recv(&mut [0; 4]));
        seen.result("too long", one.send(&vec![0; 65_508]).await);
        seen.result("much too long", one.send(&vec![0; 1 << 20]).await);
        seen.pending("no error", one.take_error());
        Ok(())
    });
}

#[test]
fn datagrams_are_tried_and_polled() {
    rule(async |seen| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let other = UdpSocket::bind("127.0.0.1:0").await?;
        let (from, to) = (one.local_addr()?, other.local_addr()?);
        let mut buf = [0; 8];
        seen.result("recv", other.try_recv_from(&mut buf).map(drop));
        seen.result("peek", other.try_peek_from(&mut buf).map(drop));
        seen.result("no peer", one.try_send(b"x"));
        seen.result("send", one.try_send_to(b"tried", to));
        other.readable().await?;
        seen.result(
            "peek",
            other
                .try_peek_from(&mut buf)
                .map(|(len, who)| (len, who == from)),
        );
        seen.result(
            "recv",
            other
                .try_recv_from(&mut buf)
                .map(|(len, who)| (len, who == from)),
        );
        seen.result("recv", other.try_recv_from(&mut buf).map(drop));
        seen.result(
            "poll",
            poll_fn(|cx| one.poll_send_to(cx, b"polled", to)).await,
        );
        poll_fn(|cx| other.poll_recv_ready(cx)).await?;
        let peeked = poll_fn(|cx| other.poll_peek_from(cx, &mut buf)).await;
        seen.result("peek", peeked.map(|(len, who)| (len, who == from)));
        let received = poll_fn(|cx| other.poll_recv_from(cx, &mut buf)).await;
        seen.result("recv", received.map(|(len, who)| (len, who == from)));
        let pending = poll_fn(|cx| Poll::Ready(other.poll_recv_from(cx, &mut buf).is_pending()));
        seen.fact("pending", pending.await);
        let ready = one.ready(Interest::READABLE | Interest::WRITABLE).await?;
        seen.fact("ready", (ready.is_readable(), ready.is_writable()));
        Ok(())
    });
}

#[test]
fn datagram_ports_are_taken_apart_from_those_of_streams() {
    rule(async |seen| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let at = one.local_addr()?;
        seen.result("twice", UdpSocket::bind(at).await.map(drop));
        let any = ("0.0.0.0", at.port()).into_address();
        seen.result("everywhere", UdpSocket::bind(any).await.map(drop));
        seen.result(
            "elsewhere",
            UdpSocket::bind(("127.0.0.2", at.port())).await.map(drop),
        );
        seen.result("TCP", TcpListener::bind(at).await.map(drop));
        seen.result("foreign", UdpSocket::bind("192.0.2.1:0").await.map(drop));
        drop(one);
        seen.result("again", UdpSocket::bind(at).await.map(drop));
        Ok(())
    });
}

#[test]
fn datagrams_to_the_unspecified_address_go_to_the_host_itself() {
    rule(async |seen| {
        let other = UdpSocket::bind("0.0.0.0:0").await?;
        let port = other.local_addr()?.port();
        let one = UdpSocket::bind("0.0.0.0:0").await?;
        for to in ["0.0.0.0", "127.0.0.1", "127.4.4.4"] {
            one.send_to(b"x", (to, port).into_address()).await?;
            let (_, from) = other.recv_from(&mut [0; 8]).await?;
            seen.fact(to, (from.ip(), from.port() == one.local_addr()?.port()));
        }
        one.connect(("0.0.0.0", port).into_address()).await?;
        seen.fact("connected", (one.local_addr()?.ip(), one.peer_addr()?.ip()));
        seen.result("port 0", one.send_to(b"x", address("127.0.0.1:0")).await);
        Ok(())
    });
}

#[test]
fn datagrams_of_both_families_reach_a_socket_of_both() {
    rule(async |seen| {
        let both = UdpSocket::bind("[::]:0").await?;
        let port = both.local_addr()?.port();
        let v4 = UdpSocket::bind("127.0.0.1:0").await?;
        let v6 = UdpSocket::bind("[::1]:0").await?;
        v4.send_to(b"4", ("127.0.0.1", port).into_address()).await?;
        let (_, from) = both.recv_from(&mut [0; 8]).await?;
        seen.fact("4", from.ip());
        both.send_to(b"back", from).await?;
        seen.result("back", v4.recv(&mut [0; 8]).await);
        v6.send_to(b"6", ("::1", port).into_address()).await?;
        let (_, from) = both.recv_from(&mut [0; 8]).await?;
        seen.fact("6", from.ip());
        both.send_to(b"back", from).await?;
        seen.result("back", v6.recv(&mut [0; 8]).await);
        seen.result("4 to 6", v4.send_to(b"x", v6.local_addr()?).await);
        seen.result(
            "both to plain 4",
            both.send_to(b"x", v4.local_addr()?).await,
        );
        let (_, from) = v4.recv_from(&mut [0; 8]).await?;
        seen.fact("from", (from.ip(), from.port() == port));
        both.connect(v4.local_addr()?).await?;
        seen.fact(
            "connected",
            (both.local_addr()?.ip(), both.peer_addr()?.ip()),
        );
        Ok(())
    });
}

#[test]
fn a_crowd_of_datagram_sockets_is_told_apart() {
    rule(async |seen| {
        let server = UdpSocket::bind("127.0.0.1:0").await?;
        let mut sockets = Vec::new();
        for _ in 0..100 {
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            socket.connect(server.local_addr()?).await?;
            socket
                .send(&socket.local_addr()?.port().to_be_bytes())
                .await?;
            sockets.push(socket);
        }
        let mut buf = [0; 8];
        for _ in 0..100 {
            let (len, from) = server.recv_from(&mut buf).await?;
            assert_eq!(buf[..len], from.port().to_be_bytes());
            server.send_to(&buf[..len], from).await?;
        }
        for socket in &sockets {
            let len = socket.recv(&mut buf).await?;
            assert_eq!(buf[..len], socket.local_addr()?.port().to_be_bytes());
        }
        seen.fact("all", sockets.len());
        Ok(())
    });
}

#[test]
fn unix_addresses_are_paths_of_the_listener_and_nothing_of_the_others() {
    rule(async |seen| {
        let path = TempPath::new("rule-addresses");
        let listener = UnixListener::bind(&path.0)?;
        let is_it = |address: std::os::unix::net::SocketAddr| {
            (
                address.is_unnamed(),
                address.as_pathname() == Some(&*path.0),
            )
        };
        seen.result("listener", listener.local_addr().map(is_it));
        let ours = UnixStream::connect(&path.0).await?;
        let (theirs, peer) = listener.accept().await?;
        seen.fact("accepted", is_it(peer));
        seen.result("our peer", ours.peer_addr().map(is_it));
        seen.result("our own", ours.local_addr().map(is_it));
        seen.result("their peer", theirs.peer_addr().map(is_it));
        seen.result("their own", theirs.local_addr().map(is_it));
        let (one, other) = UnixStream::pair()?;
        seen.result("pair", one.local_addr().map(is_it));
        seen.result("pair", other.peer_addr().map(is_it));
        Ok(())
    });
}

#[test]
fn unix_connections_are_accepted_in_order_and_reset_with_their_listener() {
    rule(async |seen| {
        let path = TempPath::new("rule-order");
        let listener = UnixListener::bind(&path.0)?;
        seen.result("none", listener.try_accept().map(drop));
        let mut ours = Vec::new();
        for number in 0..20_u8 {
            let mut stream = UnixStream::connect(&path.0).await?;
            stream.write_all(&[number]).await?;
            ours.push(stream);
        }
        for number in 0..10 {
            let (mut theirs, _) = listener.accept().await?;
            let mut byte = [0];
            theirs.read_exact(&mut byte).await?;
            assert_eq!(byte[0], number);
        }
        drop(listener);
        settle().await;
        let mut first = ours.swap_remove(0);
        let mut last = ours.pop().unwrap();
        seen.result("accepted, and closed", first.read(&mut [0; 8]).await);
        seen.result("in the queue", last.read(&mut [0; 8]).await);
        seen.result("in the queue", last.read(&mut [0; 8]).await);
        seen.result("write", last.write(b"x").await);
        Ok(())
    });
}

#[test]
fn unix_halves_are_shut_down_in_any_order() {
    rule(async |seen| {
        let (read, write) = (Shutdown::Read, Shutdown::Write);
        let orders = [
            vec![write],
            vec![read],
            vec![read, write],
            vec![write, read],
        ];
        for order in orders.into_iter().chain([vec![Shutdown::Both]]) {
            seen.fact("order", &order);
            let (mut one, mut other) = UnixStream::pair()?;
            other.write_all(b"before").await?;
            settle().await;
            for how in order {
                seen.result("shutdown", one.shutdown(how));
                seen.result("again", one.shutdown(how));
            }
            settle().await;
            seen.result("write", one.write(b"x").await);
            seen.result("peer writes", other.write(b"y").await);
            settle().await;
            let mut got = Vec::new();
            while let Ok(bytes @ 1..) = one.try_read(&mut [0; 1]) {
                got.push(bytes);
            }
            seen.fact("read", got.len());
            seen.result("then", one.try_read(&mut [0; 8]));
            seen.result("peer reads", other.try_read(&mut [0; 8]));
            seen.result("peer reads", other.try_read(&mut [0; 8]));
            seen.pending("no error", one.take_error());
            seen.pending("no error", other.take_error());
        }
        Ok(())
    });
}

#[test]
fn unread_data_at_the_close_of_a_unix_socket_is_a_reset_after_the_data() {
    rule(async |seen| {
        let (mut one, mut other) = UnixStream::pair()?;
        one.write_all(b"data").await?;
        other.write_all(b"never read").await?;
        settle().await;
        drop(one);
        settle().await;
        other.read_exact(&mut [0; 4]).await?;
        seen.result("then", other.read(&mut [0; 8]).await);
        seen.result("then", other.read(&mut [0; 8]).await);
        seen.result("write", other.write(b"x").await);
        let (one, mut other) = UnixStream::pair()?;
        other.write_all(b"never read").await?;
        settle().await;
        drop(one);
        settle().await;
        seen.result("write first", other.write(b"x").await);
        seen.pending("pending", other.take_error());
        seen.pending("taken", other.take_error());
        seen.result("read", other.read(&mut [0; 8]).await);
        Ok(())
    });
}

#[test]
fn a_full_unix_socket_holds_its_writer_back() {
    rule(async |seen| {
        let (mut one, mut other) = UnixStream::pair()?;
        let mut sent = 0;
        loop {
            match one.try_write(&[5; 10_000]) {
                Ok(bytes) => sent += bytes,
                Err(error) => {
                    settle().await;
                    match one.try_write(b"x") {
                        Ok(bytes) => sent += bytes,
                        Err(_) => break seen.fact("full", error.kind()),
                    }
                }
            }
        }
        seen.fact("writable", is_ready(one.writable()));
        let reader = loopgroup::spawn_local(async move {
            let mut got = 0;
            while got < sent {
                got += other.read(&mut [0; 5_000]).await?;
            }
            io::Result::Ok((other, got))
        });
        one.writable().await?;
        let (mut other, got) = reader.await.unwrap()?;
        seen.fact("all", got == sent);
        one.write_all(b"more").await?;
        one.close().await?;
        seen.fact("rest", read_all(&mut other).await.0);
        Ok(())
    });
}

#[test]
fn a_unix_writer_that_waits_fails_when_its_peer_closes() {
    rule(async |seen| {
        let (mut one, other) = UnixStream::pair()?;
        let writer = loopgroup::spawn_local(async move {
            let all = one.write_all(&vec![0; 16 << 20]).await;
            (all, one.write(b"x").await, one.read(&mut [0; 8]).await)
        });
        settle().await;
        seen.fact("waits", !writer.is_finished());
        drop(other);
        let (all, then, read) = writer.await.unwrap();
        seen.result("write_all", all);
        seen.result("then", then);
        seen.result("read", read);
        Ok(())
    });
}

#[test]
fn unix_readiness_follows_data_and_the_end() {
    rule(async |seen| {
        let (one, mut other) = UnixStream::pair()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = one.ready(both).await?;
        seen.fact("fresh", (ready.is_readable(), ready.is_writable()));
        seen.result("try_read", one.try_read(&mut [0; 8]));
        other.write_all(b"!").await?;
        one.readable().await?;
        seen.result("try_read", one.try_read(&mut [0; 8]));
        seen.result("try_read", one.try_read(&mut [0; 8]));
        seen.fact("readable", is_ready(one.readable()));
        other.shutdown(Shutdown::Write)?;
        one.readable().await?;
        let ready = one.ready(both).await?;
        seen.fact("half", (ready.is_readable(), ready.is_writable()));
        seen.result("try_read", one.try_read(&mut [0; 8]));
        drop(other);
        settle().await;
        let ready = one.ready(both).await?;
        seen.fact("closed", (ready.is_readable(), ready.is_writable()));
        seen.result("try_write", one.try_write(b"x"));
        Ok(())
    });
}

#[test]
fn unix_streams_are_split_and_copied() {
    rule(async |seen| {
        let (client, mut front) = UnixStream::pair()?;
        let (mut back, mut server) = UnixStream::pair()?;
        let proxy =
            loopgroup::spawn_local(async move { copy_bidirectional(&mut front, &mut back).await });
        let (mut reader, mut writer) = client.into_split();
        let reads = loopgroup::spawn_local(async move { read_all(&mut reader).await.0 });
        for _ in 0..100 {
            writer.write_all(&[1; 1_000]).await?;
        }
        let served = loopgroup::spawn_local(async move {
            let got = read_all(&mut server).await.0;
            server.write_all(&vec![2; got]).await?;
            io::Result::Ok(got)
        });
        drop(writer);
        seen.result("served", served.await.unwrap());
        seen.fact("read", reads.await.unwrap());
        seen.result("copied", proxy.await.unwrap());
        Ok(())
    });
}

#[test]
fn paths_that_cannot_be_sockets_are_refused() {
    rule(async |seen| {
        let long = "/tmp/".to_owned() + &"x".repeat(200);
        seen.fact(
            "too long",
            UnixListener::bind(&long)
                .map(drop)
                .map_err(|one| one.kind()),
        );
        seen.result("too long", UnixStream::connect(&long).await.map(drop));
        let zero = "/tmp/a\0b";
        seen.fact(
            "zero",
            UnixListener::bind(zero).map(drop).map_err(|one| one.kind()),
        );
        seen.result("zero", UnixStream::connect(zero).await.map(drop));
        seen.result(
            "missing",
            UnixStream::connect("/nonexistent/socket").await.map(drop),
        );
        Ok(())
    });
}

#[test]
fn a_port_is_shared_only_if_both_ask_for_it() {
    rule(async |seen| {
        for (first, second) in [(true, false), (false, true), (false, false)] {
            let one = TcpSocket::new_v4()?;
            one.set_reuseport(first)?;
            one.bind(address("127.0.0.1:0"))?;
            let one = one.listen(16)?;
            let other = TcpSocket::new_v4()?;
            other.set_reuseport(second)?;
            let both = other
                .bind(one.local_addr()?)
                .and_then(|()| other.listen(16).map(drop));
            seen.fact("refused", both.map_err(|error| error.kind()));
        }
        Ok(())
    });
}

#[test]
fn a_datagram_socket_may_connect_to_port_zero_but_not_send_to_it() {
    rule(async |seen| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        seen.result("connect", one.connect(address("127.0.0.1:0")).await);
        seen.result("send", one.send(b"x").await);
        seen.result("send to", one.send_to(b"x", address("127.0.0.1:0")).await);
        let v6 = UdpSocket::bind("[::1]:0").await?;
        seen.result("4 to 6", one.connect(v6.local_addr()?).await);
        Ok(())
    });
}

#[test]
fn listeners_and_dropped_connections_have_no_pending_errors() {
    rule(async |seen| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let to = listener.local_addr()?;
        drop(TcpStream::connect(to).await?);
        let abandoned = timeout(Duration::from_nanos(1), TcpStream::connect(to)).await;
        drop(abandoned);
        settle().await;
        seen.result(
            "accept",
            listener
                .try_accept()
                .map(|(stream, _)| stream.peer_addr().is_ok()),
        );
        let (mut ours, theirs) = pair().await?;
        let (halves, _keep) = (theirs.into_split(), ours.write_all(b"x").await?);
        drop(halves.0);
        seen.result("the write half still works", ours.try_read(&mut [0; 1]));
        drop(halves.1);
        settle().await;
        seen.fact("ended or reset", read_all(&mut ours).await.0);
        Ok(())
    });
}

#[test]
fn unix_datagrams_are_whole_and_name_their_sender() {
    rule(async |seen| {
        let (ours, theirs) = (
            TempPath::new("letters-ours"),
            TempPath::new("letters-theirs"),
        );
        let one = UnixDatagram::bind(&ours.0)?;
        let other = UnixDatagram::bind(&theirs.0)?;
        seen.result(
            "twice",
            UnixDatagram::bind(&theirs.0)
                .map(drop)
                .map_err(|one| one.kind().into()),
        );
        for text in ["first", "", "third"] {
            seen.result("send", one.send_to(text.as_bytes(), &theirs.0).await);
        }
        let mut buf = [0; 3];
        for _ in 0..3 {
            let (len, from) = other.recv_from(&mut buf).await?;
            seen.fact(
                "got",
                (buf[..len].to_vec(), from.as_pathname() == Some(&*ours.0)),
            );
        }
        let unnamed = UnixDatagram::unbound()?;
        unnamed.send_to(b"x", &theirs.0).await?;
        seen.fact("unnamed", other.recv_from(&mut buf).await?.1.is_unnamed());
        seen.result("unconnected", unnamed.send(b"x").await);
        seen.result("no peer", unnamed.peer_addr().map(drop));
        seen.result(
            "nowhere",
            one.send_to(b"x", ours.0.with_extension("none")).await,
        );
        unnamed.connect(&theirs.0)?;
        seen.result("connected", unnamed.send(b"y").await);
        seen.fact(
            "peer",
            unnamed.peer_addr()?.as_pathname() == Some(&*theirs.0),
        );
        seen.fact("read", other.recv(&mut buf).await?);
        drop(other);
        seen.result("closed", unnamed.send(b"y").await);
        seen.result("closed again", unnamed.send(b"y").await);
        seen.result("left over", one.send_to(b"x", &theirs.0).await);
        seen.result("too long", one.send_to(&vec![0; 300_000], &ours.0).await);
        Ok(())
    });
}

#[test]
fn a_full_receiver_of_unix_datagrams_holds_its_sender_back() {
    rule(async |seen| {
        let path = TempPath::new("letters-full");
        let (one, other) = (UnixDatagram::unbound()?, UnixDatagram::bind(&path.0)?);
        one.connect(&path.0)?;
        let mut sent = 0;
        while one.try_send(&[sent]).is_ok() {
            sent += 1;
        }
        seen.fact("sent", sent);
        let late = loopgroup::spawn_local(async move {
            one.send(b"late").await?;
            one.shutdown(Shutdown::Write)?;
            one.send(b"after").await
        });
        settle().await;
        seen.fact("waits", !late.is_finished());
        let mut buf = [0; 8];
        for number in 0..sent {
            let len = other.recv(&mut buf).await?;
            seen.fact("got", (buf[..len] == [number], len));
        }
        let len = other.recv(&mut buf).await?;
        seen.fact("late", buf[..len].to_vec());
        seen.result("after", late.await.unwrap());
        Ok(())
    });
}

#[test]
fn a_pair_of_unix_datagram_sockets_is_bounded_too() {
    rule(async |seen| {
        let (one, other) = UnixDatagram::pair()?;
        let mut sent = 0_u32;
        while sent < 100_000 && one.try_send(&[7; 100]).is_ok() {
            sent += 1;
        }
        seen.fact(
            "more than others, and not without end",
            (20..100_000).contains(&sent),
        );
        for _ in 0..sent {
            other.recv(&mut [0; 100]).await?;
        }
        seen.result("room again", one.send(b"x").await);
        Ok(())
    });
}

#[test]
fn unix_sockets_of_another_kind_are_told_apart() {
    rule(async |seen| {
        let (letters, streams) = (
            TempPath::new("kinds-letters"),
            TempPath::new("kinds-streams"),
        );
        let socket = UnixSocket::new_datagram()?;
        socket.bind(&letters.0)?;
        let one = socket.datagram()?;
        let _listener = UnixListener::bind(&streams.0)?;
        seen.result(
            "a stream to datagrams",
            UnixStream::connect(&letters.0).await.map(drop),
        );
        seen.result(
            "a datagram to a listener",
            one.send_to(b"x", &streams.0).await,
        );
        seen.fact(
            "bound",
            one.local_addr()?.as_pathname() == Some(&*letters.0),
        );
        Ok(())
    });
}
