//! Bytes survive: what is sent is what arrives, over many connections, in chunks of every size.
//!
//! `LOOPGROUP_INTEGRITY_MIB` sets the volume of the TCP test, in MiB each way, and `LOOPGROUP_MOVED_MIB` that
//! of the test whose connections move.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use futures::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use loopgroup::net::{
    Server, ServerHandle, TcpListener, TcpStream, Turn, UnixListener, UnixStream,
};
use loopgroup::{EventLoop, EventLoopGroup, JoinHandle, block_on};

use crate::util::{LONG, Progress, progress, setting, within};

const LARGEST: usize = 256 << 10;
/// The volume of the TCP test, in bytes each way.
fn volume() -> u64 {
    let default = if cfg!(debug_assertions) { 64 } else { 1024 };
    setting("LOOPGROUP_INTEGRITY_MIB").unwrap_or(default) << 20
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 1 byte to [`LARGEST`], every order of magnitude as often.
    fn size(&mut self) -> usize {
        let most = 1 << ((self.next() >> 32) % (u64::from(LARGEST.ilog2()) + 1));
        1 + (self.next() >> 32) as usize % most
    }

    fn fill(&mut self, buf: &mut [u8]) {
        for word in buf.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
    }
}

/// A hash of all bytes in their order, eight at a time, however they are cut.
#[derive(Default)]
struct Hash {
    state: u64,
    /// Bytes that do not fill a word yet.
    rest: u64,
    len: u64,
}

impl Hash {
    fn mix(&mut self, word: u64) {
        let mixed = (self.state ^ word).wrapping_mul(0x9FB2_1C65_1E98_DF25);
        self.state = mixed ^ mixed >> 29;
    }

    fn byte(&mut self, byte: u8) {
        self.rest |= u64::from(byte) << (self.len % 8 * 8);
        self.len += 1;
        if self.len % 8 == 0 {
            let word = std::mem::take(&mut self.rest);
            self.mix(word);
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        let missing = (8 - self.len % 8) as usize % 8;
        let (head, tail) = bytes.split_at(missing.min(bytes.len()));
        head.iter().for_each(|&byte| self.byte(byte));
        let words = tail.chunks_exact(8);
        let rest = words.remainder();
        for word in words {
            self.mix(u64::from_le_bytes(word.try_into().expect("eight bytes")));
            self.len += 8;
        }
        rest.iter().for_each(|&byte| self.byte(byte));
    }

    fn finish(mut self) -> [u8; 16] {
        self.mix(self.rest);
        let mut sum = [0; 16];
        sum[..8].copy_from_slice(&self.state.to_le_bytes());
        sum[8..].copy_from_slice(&self.len.to_le_bytes());
        sum
    }
}

/// Echoes until the end, and says then what it has seen: the way back is open still.
async fn serve(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    seed: u64,
) -> io::Result<()> {
    let (mut random, mut hash) = (Random::new(!seed >> 1), Hash::default());
    let mut buf = vec![0; LARGEST];
    loop {
        let asked = random.size();
        let n = read.read(&mut buf[..asked]).await?;
        if n == 0 {
            break;
        }
        hash.update(&buf[..n]);
        write.write_all(&buf[..n]).await?;
    }
    assert_eq!(read.read(&mut buf).await?, 0, "an end stays one");
    write.write_all(&hash.finish()).await?;
    write.close().await
}

/// Sends `len` bytes and ends its half; returns their hash.
async fn send(mut write: impl AsyncWrite + Unpin, seed: u64, len: u64) -> io::Result<[u8; 16]> {
    let (mut random, mut hash) = (Random::new(seed), Hash::default());
    let mut buf = vec![0; LARGEST];
    while hash.len < len {
        let left = usize::try_from(len - hash.len).unwrap_or(usize::MAX);
        let size = random.size().min(left);
        random.fill(&mut buf[..size]);
        if seed % 2 == 0 {
            write.write_all(&buf[..size]).await?;
            hash.update(&buf[..size]);
        } else {
            // In three pieces, one of them empty now and then; what was not taken is drawn anew.
            let (one, two) = (size / 3, size / 3 * 2);
            let bufs = [&buf[..one], &buf[one..two], &buf[two..size]].map(IoSlice::new);
            let n = write.write_vectored(&bufs).await?;
            assert!((1..=size).contains(&n), "{n} of {size}");
            hash.update(&buf[..n]);
        }
    }
    if seed % 4 < 2 {
        write.close().await?;
    } // else: dropping the half is an end, too
    Ok(hash.finish())
}

/// Receives `len` bytes and the server's word on them, up to the end; returns their hash.
async fn receive(
    mut read: impl AsyncRead + Unpin,
    seed: u64,
    len: u64,
    progress: Progress,
) -> io::Result<[u8; 16]> {
    let (mut random, mut hash) = (Random::new(!seed), Hash::default());
    let mut buf = vec![0; LARGEST];
    while hash.len < len {
        let left = usize::try_from(len - hash.len).unwrap_or(usize::MAX);
        let asked = random.size().min(left);
        let n = read.read(&mut buf[..asked]).await?;
        assert_ne!(n, 0, "an end after {} of {len} bytes", hash.len);
        hash.update(&buf[..n]);
        progress.tick();
    }
    let mut trailer = [0; 16];
    read.read_exact(&mut trailer).await?;
    assert_eq!(read.read(&mut buf).await?, 0);
    let hash = hash.finish();
    assert_eq!(trailer, hash, "what the server saw, and what came back");
    Ok(hash)
}

type Sum = io::Result<[u8; 16]>;

/// One client: the writer on one loop, the reader on the next, and at once.
fn client(
    group: &EventLoopGroup,
    (read, write): (
        impl AsyncRead + Unpin + Send + 'static,
        impl AsyncWrite + Unpin + Send + 'static,
    ),
    seed: u64,
    len: u64,
) -> (JoinHandle<Sum>, JoinHandle<Sum>) {
    let sending = group.spawn(send(write, seed, len));
    let receiving = receive(read, seed, len, progress("read"));
    (sending, group.spawn(receiving))
}

/// Waits for all clients and compares; nothing may be left of them.
fn compare(group: &EventLoopGroup, clients: Vec<(JoinHandle<Sum>, JoinHandle<Sum>)>) {
    for (number, (sending, receiving)) in clients.into_iter().enumerate() {
        let sent = block_on(sending).unwrap().unwrap();
        let received = block_on(receiving).unwrap().unwrap();
        assert_eq!(sent, received, "client {number}");
    }
    // The acceptor has ended, and every server its connection.
    let loops = group.loops().to_vec();
    let report = group.drain(LONG).wait();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.channels_closed(), 0, "all were closed before");
    let registered: usize = loops.iter().map(EventLoop::registered_channels).sum();
    assert_eq!(registered, 0);
}

#[test]
fn the_hash_does_not_care_how_bytes_are_cut_but_for_each_of_them() {
    let mut bytes = vec![0; 10_000];
    Random::new(7).fill(&mut bytes);
    let whole = |bytes: &[u8]| {
        let mut hash = Hash::default();
        hash.update(bytes);
        hash.finish()
    };
    let (mut cut, mut random, mut rest) = (Hash::default(), Random::new(3), &bytes[..]);
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(random.size().min(rest.len()).min(77));
        cut.update(head);
        rest = tail;
    }
    assert_eq!(cut.finish(), whole(&bytes));
    let sum = whole(&bytes);
    for place in [0, 1, 4_999, 9_999] {
        let mut other = bytes.clone();
        other[place] ^= 1;
        assert_ne!(whole(&other), sum);
        other = bytes.clone();
        other.remove(place);
        assert_ne!(whole(&other), sum);
    }
    bytes.swap(100, 200);
    assert_ne!(whole(&bytes), sum);
}

#[test]
fn sixty_four_tcp_connections_carry_every_byte_both_ways() {
    const CONNECTIONS: u64 = 64;
    let volume = volume();
    within(move || {
        let group = EventLoopGroup::new(2).unwrap();
        let (tx, rx) = mpsc::channel();
        let workers = group.clone();
        let accepting = group.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            tx.send(listener.local_addr()?).unwrap();
            for seed in 0..CONNECTIONS {
                let (stream, _) = listener.accept().await?;
                let (read, write) = stream.into_split();
                drop(workers.spawn(async move { serve(read, write, seed).await.unwrap() }));
            }
            io::Result::Ok(())
        });
        let address = rx.recv().unwrap();
        let clients = (0..CONNECTIONS).map(|seed| {
            let stream = block_on(group.spawn(TcpStream::connect(address)));
            let halves = stream.unwrap().unwrap().into_split();
            client(&group, halves, seed, volume / CONNECTIONS + seed * 7)
        });
        let clients = clients.collect();
        block_on(accepting).unwrap().unwrap();
        compare(&group, clients);
    });
}

/// What a connection that moves takes along.
struct Echo {
    random: Random,
    hash: Hash,
    buf: Vec<u8>,
}

impl Echo {
    fn new(seed: u64) -> Echo {
        Echo {
            random: Random::new(!seed >> 1),
            hash: Hash::default(),
            buf: vec![0; LARGEST],
        }
    }

    /// One read, and its echo; at the end the hash of all, as [`serve`] has it.
    async fn turn(&mut self, mut stream: &TcpStream) -> io::Result<Turn> {
        let asked = self.random.size();
        let n = stream.read(&mut self.buf[..asked]).await?;
        if n == 0 {
            let hash = std::mem::take(&mut self.hash).finish();
            stream.write_all(&hash).await?;
            return Ok(Turn::Close);
        }
        self.hash.update(&self.buf[..n]);
        stream.write_all(&self.buf[..n]).await?;
        Ok(Turn::Next)
    }
}

#[test]
fn sixty_four_connections_that_move_as_often_as_possible_carry_every_byte_both_ways() {
    const CONNECTIONS: u64 = 64;
    const LOOPS: usize = 3;
    let default = if cfg!(debug_assertions) { 16 } else { 1024 };
    let volume = setting("LOOPGROUP_MOVED_MIB").unwrap_or(default) << 20;
    within(move || {
        let start = Instant::now();
        let (workers, group) = (
            EventLoopGroup::new(LOOPS).unwrap(),
            EventLoopGroup::new(2).unwrap(),
        );
        // Each turn asks all connections of its loop to move, itself among them.
        let place: Arc<Mutex<Option<ServerHandle>>> = Arc::default();
        let (restless, seeds) = (Arc::clone(&place), AtomicU64::new(0));
        let server = Server::new("127.0.0.1:0").unwrap().workers(&workers);
        let server = server
            .serve_turns(
                move |_, _| Echo::new(seeds.fetch_add(1, Ordering::Relaxed)),
                async move |stream: &TcpStream, echo: &mut Echo| {
                    let turn = echo.turn(stream).await;
                    let server = restless.lock().unwrap().clone();
                    let from = EventLoop::current().unwrap().index();
                    let to = (from + 1 + (echo.random.next() >> 32) as usize % 2) % LOOPS;
                    server.unwrap().move_connections(from, to, usize::MAX);
                    turn
                },
            )
            .unwrap();
        *place.lock().unwrap() = Some(server.clone());
        let clients = (0..CONNECTIONS).map(|seed| {
            let stream = block_on(group.spawn(TcpStream::connect(server.local_addr())));
            let halves = stream.unwrap().unwrap().into_split();
            client(&group, halves, seed, volume / CONNECTIONS + seed * 7)
        });
        compare(&group, clients.collect());
        place.lock().unwrap().take(); // all turns are over: each client has seen an end
        server.stop();
        let report = block_on(server);
        assert_eq!(
            (report.accepted(), report.completed()),
            (CONNECTIONS, CONNECTIONS),
            "{report}"
        );
        // Most turns are followed by a move.
        assert!(report.moves() > 10 * CONNECTIONS, "{report}");
        let end = workers.drain(LONG).wait();
        assert!(end.is_clean(), "{end}");
        let (mib, time) = (volume >> 20, start.elapsed());
        eprintln!("{mib} MiB each way, {} moves, {time:.1?}", report.moves());
    });
}

#[test]
fn sixteen_unix_connections_carry_every_byte_both_ways() {
    const CONNECTIONS: u64 = 16;
    let volume = volume() / 4;
    within(move || {
        let file = format!("loopgroup-{}-integrity", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let group = EventLoopGroup::new(2).unwrap();
        let workers = group.clone();
        let accepting = group.spawn(async move {
            for seed in 0..CONNECTIONS {
                let (stream, _) = listener.accept().await?;
                let (read, write) = stream.into_split();
                drop(workers.spawn(async move { serve(read, write, seed).await.unwrap() }));
            }
            io::Result::Ok(())
        });
        let clients = (0..CONNECTIONS).map(|seed| {
            let stream = block_on(group.spawn(UnixStream::connect(path.clone())));
            let halves = stream.unwrap().unwrap().into_split();
            client(&group, halves, seed, volume / CONNECTIONS + seed * 7)
        });
        let clients = clients.collect();
        block_on(accepting).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        compare(&group, clients);
    });
}
