//! A bad network, by seed: a relay between clients and servers that delays, splits, runs chunks together,
//! passes connections on in another order, resets them and closes halves of them. What arrives is what was
//! sent; nobody waits past a bound; a reset is told once; nothing is left behind. In one storm of three the
//! connections of the server move from loop to loop all the time.
//!
//! A failing seed is printed with the command that plays it again. The long form prints a line every ten
//! seconds: `LOOPGROUP_CHAOS_SECONDS=600 cargo test --release --test proofs seeds -- --nocapture`. With
//! `LOOPGROUP_CHAOS_SEEDS` it has so many seeds.
#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, ServerHandle, TcpListener, TcpStream, Turn};
use loopgroup::time::timeout;
use loopgroup::{EventLoop, EventLoopGroup, block_on};
use socket2::SockRef;

use crate::util::{Door, Random, alone, entries, eventually, progress, setting, within};

/// The longest that a connection may take, from its first byte to its end.
const BOUND: Duration = Duration::from_secs(20);

/// Up to 32 KiB, every order of magnitude as often.
fn size(random: &mut Random) -> usize {
    let most = 1 << random.index(16);
    1 + random.index(most)
}

/// What the relay does to a connection, after so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Clean,
    /// The server hears of an end too early.
    EndForth(usize),
    /// The client does.
    EndBack(usize),
    /// Both get a reset.
    Reset(usize),
    /// Controls: a byte is changed, a byte is lost, the last byte never comes.
    Corrupt(usize),
    Lose(usize),
    Stall,
}

/// Which server is at the other end.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Echo,
    Server,
    /// One whose connections are served by turns, and move after each of them.
    Turns,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Echo, Kind::Server, Kind::Turns];
}

/// One storm: so many connections, of so many bytes each.
#[derive(Clone, Copy, Debug)]
struct Storm {
    seed: u64,
    kind: Kind,
    connections: usize,
    len: usize,
    /// Controls have their own.
    bound: Duration,
    fate: Option<Fate>,
}

impl Storm {
    fn of(seed: u64) -> Storm {
        let mut random = Random(seed);
        Storm {
            seed,
            kind: Kind::ALL[seed as usize % Kind::ALL.len()],
            connections: 4 + random.index(12),
            len: 1 + random.index(96 << 10),
            bound: BOUND,
            fate: None,
        }
    }

    fn fate(&self, random: &mut Random) -> Fate {
        let at = random.index(self.len);
        let drawn = match random.index(8) {
            0 => Fate::EndForth(at),
            1 => Fate::EndBack(at),
            2 => Fate::Reset(at),
            3 => Fate::Reset(0),
            _ => Fate::Clean,
        };
        self.fate.unwrap_or(drawn)
    }
}

/// The fates of connections, by the address of the client.
type Fates = Arc<Mutex<HashMap<SocketAddr, Fate>>>;

/// Accepts and passes on, in small crowds whose order is changed; returns when all is over.
fn relay(storm: Storm, listener: &StdListener, server: SocketAddr, fates: &Fates, late: &Door) {
    let mut random = Random(storm.seed ^ 0xA5A5);
    let mut left = storm.connections;
    thread::scope(|scope| {
        while left > 0 {
            let crowd = (1 + random.index(4)).min(left);
            left -= crowd;
            let mut clients: Vec<_> = (0..crowd).map(|_| listener.accept().unwrap()).collect();
            while !clients.is_empty() {
                let (client, address) = clients.swap_remove(random.index(clients.len()));
                let fate = storm.fate(&mut random);
                fates.lock().unwrap().insert(address, fate);
                let server = StdStream::connect(server).unwrap();
                let (forth, back) = (Random(random.next()), Random(random.next()));
                let link = Arc::new(Link {
                    client,
                    server,
                    fate,
                    cut: AtomicBool::new(false),
                });
                link.prepare();
                let other = Arc::clone(&link);
                scope.spawn(move || link.forth(storm.len, forth, late));
                scope.spawn(move || other.back(back));
            }
        }
    });
}

/// Both halves of a relayed connection; a reset goes out when both threads have let go of it.
struct Link {
    client: StdStream,
    server: StdStream,
    fate: Fate,
    cut: AtomicBool,
}

impl Link {
    fn prepare(&self) {
        for stream in [&self.client, &self.server] {
            stream.set_nodelay(true).unwrap();
            if let Fate::Reset(_) = self.fate {
                SockRef::from(stream)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap();
                // So that the way back notices the cut.
                stream
                    .set_read_timeout(Some(Duration::from_millis(2)))
                    .unwrap();
            }
        }
    }

    fn forth(&self, len: usize, random: Random, late: &Door) {
        let (from, to) = (&self.client, &self.server);
        match self.fate {
            Fate::EndForth(at) => self.end_early(from, to, at, random),
            Fate::Reset(at) => {
                self.pass(from, to, at, random);
                self.cut.store(true, Ordering::SeqCst);
            }
            Fate::Stall => {
                self.pass(from, to, len - 1, random);
                late.pass();
                let _ = to.shutdown(Shutdown::Write);
            }
            _ => self.whole(from, to, random),
        }
    }

    fn back(&self, random: Random) {
        let (from, to) = (&self.server, &self.client);
        match self.fate {
            Fate::EndBack(at) => self.end_early(from, to, at, random),
            Fate::Corrupt(at) | Fate::Lose(at) => {
                self.pass(from, to, at, random.clone());
                let mut byte = [0];
                let mut from = from;
                from.read_exact(&mut byte).unwrap();
                if let Fate::Corrupt(_) = self.fate {
                    let _ = (&mut &*to).write_all(&[!byte[0]]);
                }
                self.whole(from, to, random);
            }
            _ => self.whole(from, to, random),
        }
    }

    /// Everything, and then the end.
    fn whole(&self, from: &StdStream, to: &StdStream, random: Random) {
        self.pass(from, to, usize::MAX, random);
        if !self.cut.load(Ordering::SeqCst) {
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    /// So many bytes, then an end; what comes after them is read and thrown away.
    fn end_early(&self, mut from: &StdStream, to: &StdStream, at: usize, random: Random) {
        self.pass(from, to, at, random);
        let _ = to.shutdown(Shutdown::Write);
        let _ = io::copy(&mut from, &mut io::sink());
    }

    /// Passes at most `limit` bytes on, in pieces and with pauses; ends with the stream, or with the link.
    fn pass(&self, mut from: &StdStream, mut to: &StdStream, limit: usize, mut random: Random) {
        let (mut left, mut pauses) = (limit, 8);
        let mut buf = vec![0; 32 << 10];
        while left > 0 && !self.cut.load(Ordering::SeqCst) {
            if pauses > 0 && random.index(4) == 0 {
                // What comes meanwhile comes together afterwards. The delay is what is simulated.
                pauses -= 1;
                thread::sleep(Duration::from_micros(random.index(2_000) as u64));
            }
            let most = size(&mut random).min(left);
            let read = match from.read(&mut buf[..most]) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                // Somebody is gone who had no more to say.
                Err(_) => return,
            };
            left = left.saturating_sub(read);
            let mut rest = &buf[..read];
            while !rest.is_empty() {
                let (piece, other) = rest.split_at(size(&mut random).min(rest.len()));
                if to.write_all(piece).is_err() {
                    return;
                }
                rest = other;
            }
        }
    }
}

/// How the servers' connections ended.
#[derive(Debug, Default)]
struct Tally {
    ended: usize,
    reset: usize,
    otherwise: Vec<String>,
}

impl Tally {
    fn note(&mut self, end: io::Result<()>) {
        match end {
            Ok(()) => self.ended += 1,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.reset += 1,
            Err(error) => self.otherwise.push(format!("{error:?}")),
        }
    }
}

async fn echo(mut stream: TcpStream, tally: Arc<Mutex<Tally>>) {
    let mut buf = vec![0; 16 << 10];
    let result = async {
        loop {
            let read = stream.read(&mut buf).await?;
            if read == 0 {
                return stream.close().await;
            }
            stream.write_all(&buf[..read]).await?;
        }
    };
    let result: io::Result<()> = result.await;
    tally.lock().unwrap().note(result);
}

/// One read and its echo.
async fn echo_once(mut stream: &TcpStream, buf: &mut [u8]) -> io::Result<Turn> {
    let read = stream.read(buf).await?;
    if read == 0 {
        return stream.close().await.map(|()| Turn::Close);
    }
    stream.write_all(&buf[..read]).await?;
    Ok(Turn::Next)
}

/// What a client has to tell.
struct Told {
    address: SocketAddr,
    sent: Vec<u8>,
    received: Vec<u8>,
    wrote: io::Result<()>,
    read: io::Result<()>,
}

async fn client(address: SocketAddr, len: usize, mut random: Random) -> io::Result<Told> {
    let mut sent = vec![0; len];
    sent.chunks_mut(8)
        .for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]));
    let stream = TcpStream::connect(address).await?;
    let address = stream.local_addr()?;
    let mut sizes = random.clone();
    let write = async {
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let (piece, other) = rest.split_at(size(&mut sizes).min(rest.len()));
            (&stream).write_all(piece).await?;
            rest = other;
        }
        (&stream).close().await
    };
    let mut received = Vec::new();
    let read = async {
        let mut buf = vec![0; 32 << 10];
        loop {
            let most = size(&mut random);
            let read = (&stream).read(&mut buf[..most]).await?;
            if read == 0 {
                return Ok(());
            }
            received.extend_from_slice(&buf[..read]);
        }
    };
    let (wrote, read) = futures::join!(write, read);
    Ok(Told {
        address,
        sent,
        received,
        wrote,
        read,
    })
}

/// Whether a client was told what the relay did, and nothing else.
fn judge(told: &Told, fate: Fate) -> Result<(), String> {
    let (got, len) = (told.received.len(), told.sent.len());
    let same = told
        .sent
        .iter()
        .zip(&told.received)
        .position(|(sent, got)| sent != got);
    if let Some(place) = same {
        return Err(format!("byte {place} of {len} differs"));
    }
    let expected = match fate {
        Fate::EndForth(at) | Fate::EndBack(at) => at,
        Fate::Reset(at) => {
            let resets = [&told.wrote, &told.read]
                .iter()
                .filter(|result| kind(result) == Some(io::ErrorKind::ConnectionReset))
                .count();
            return if resets == 1 && got <= at {
                Ok(())
            } else {
                Err(format!(
                    "{resets} resets, {got} bytes of {at}: {:?}",
                    (&told.wrote, &told.read)
                ))
            };
        }
        _ => len,
    };
    if got != expected || told.wrote.is_err() || told.read.is_err() {
        return Err(format!(
            "{got} of {expected} bytes: {:?}",
            (&told.wrote, &told.read)
        ));
    }
    Ok(())
}

fn kind(result: &io::Result<()>) -> Option<io::ErrorKind> {
    result.as_ref().err().map(io::Error::kind)
}

/// The groups of both sides, for as many storms as one likes.
struct World {
    servers: EventLoopGroup,
    clients: EventLoopGroup,
    /// How often connections have moved.
    moves: AtomicU64,
}

impl World {
    fn new() -> World {
        World {
            servers: EventLoopGroup::new(2).unwrap(),
            clients: EventLoopGroup::new(2).unwrap(),
            moves: AtomicU64::new(0),
        }
    }

    /// Descriptors of the process, and slots of the loops.
    fn held(&self) -> (usize, usize) {
        let loops = self.servers.loops().iter().chain(self.clients.loops());
        let slots = loops.map(EventLoop::registered_channels).sum();
        (entries("/proc/self/fd"), slots)
    }

    /// One storm; `Err` says what went wrong.
    fn weather(&self, storm: Storm) -> Result<u64, String> {
        let tally: Arc<Mutex<Tally>> = Arc::default();
        let (address, stop) = self.serve(storm, &tally);
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let entrance = listener.local_addr().unwrap();
        let (fates, late) = (Fates::default(), Door::new());
        let (known, held) = (Arc::clone(&fates), late.clone());
        let between = thread::spawn(move || relay(storm, &listener, address, &known, &held));
        let clients: Vec<_> = (0..storm.connections)
            .map(|index| {
                let random = Random(storm.seed ^ (index as u64) << 32);
                let all = move || timeout(storm.bound, client(entrance, storm.len, random));
                self.clients.spawn_with(all)
            })
            .collect();
        let told = block_on(join_all(clients));
        late.open();
        between.join().unwrap();
        stop(storm.connections);
        let (mut bytes, mut resets, mut unconnected) = (0, 0, 0);
        let mut fates = fates.lock().unwrap();
        for result in told {
            let told = match result.unwrap() {
                Ok(Ok(told)) => told,
                // A reset may be there before the loop has looked at the connection: then connecting tells
                // it.
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                    unconnected += 1;
                    continue;
                }
                Ok(Err(error)) => return Err(format!("a client could not connect: {error}")),
                Err(_) => return Err("a connection stalls".into()),
            };
            bytes += told.received.len() as u64;
            let fate = fates.remove(&told.address).expect("relayed");
            resets += usize::from(matches!(fate, Fate::Reset(_)));
            judge(&told, fate).map_err(|wrong| format!("{fate:?}: {wrong}"))?;
        }
        let resets_at_once = fates.values().all(|&fate| fate == Fate::Reset(0));
        if fates.len() != unconnected || !resets_at_once {
            return Err(format!("{unconnected} could not connect: {fates:?}"));
        }
        resets += unconnected;
        let tally = tally.lock().unwrap();
        let fine = tally.otherwise.is_empty()
            && (tally.reset, tally.ended) == (resets, storm.connections - resets);
        if !fine {
            return Err(format!(
                "{resets} of {} were reset: {tally:?}",
                storm.connections
            ));
        }
        Ok(bytes)
    }

    /// Starts a server; returns where it is, and how to wait for the end of so many connections.
    fn serve(
        &self,
        storm: Storm,
        tally: &Arc<Mutex<Tally>>,
    ) -> (SocketAddr, Box<dyn FnOnce(usize) + '_>) {
        let tally = Arc::clone(tally);
        match storm.kind {
            Kind::Echo => {
                let group = &self.servers;
                let listener = group.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
                let address = listener.local_addr().unwrap();
                let accepting = group.spawn(async move {
                    let mut all = Vec::new();
                    for _ in 0..storm.connections {
                        let (stream, _) = listener.accept().await.unwrap();
                        let tally = Arc::clone(&tally);
                        all.push(loopgroup::spawn(echo(stream, tally)));
                    }
                    join_all(all).await
                });
                let stop = move |_| {
                    let all = block_on(accepting).unwrap();
                    assert!(all.iter().all(Result::is_ok));
                };
                (address, Box::new(stop))
            }
            Kind::Server => {
                let server = Server::new("127.0.0.1:0").unwrap().workers(&self.servers);
                let handle = server
                    .serve(move |stream, _| echo(stream, Arc::clone(&tally)))
                    .unwrap();
                let stop = self.end_of(handle.clone());
                (handle.local_addr(), Box::new(stop))
            }
            Kind::Turns => {
                // Each turn asks all connections of its loop to move, itself among them.
                let place: Arc<Mutex<Option<ServerHandle>>> = Arc::default();
                let restless = Arc::clone(&place);
                let server = Server::new("127.0.0.1:0").unwrap().workers(&self.servers);
                let handle = server
                    .serve_turns(
                        |_, _| vec![0; 16 << 10],
                        async move |stream: &TcpStream, buf: &mut Vec<u8>| {
                            let turn = echo_once(stream, buf).await;
                            let end = match turn {
                                Ok(Turn::Close) => Some(Ok(())),
                                Ok(_) => None,
                                Err(error) => Some(Err(error)),
                            };
                            let turn = end.map_or(Turn::Next, |end| {
                                tally.lock().unwrap().note(end);
                                Turn::Close
                            });
                            let server = restless.lock().unwrap().clone();
                            let from = EventLoop::current().unwrap().index();
                            server.unwrap().move_connections(from, 1 - from, usize::MAX);
                            turn
                        },
                    )
                    .unwrap();
                *place.lock().unwrap() = Some(handle.clone());
                let end = self.end_of(handle.clone());
                let stop = move |connections| {
                    end(connections);
                    place.lock().unwrap().take();
                };
                (handle.local_addr(), Box::new(stop))
            }
        }
    }

    /// Waits until so many connections of a server have ended, each as it should, and ends the server.
    fn end_of(&self, handle: ServerHandle) -> impl FnOnce(usize) + '_ {
        move |connections| {
            eventually("all connections end", || {
                handle.accepted() == connections as u64 && handle.connections() == 0
            });
            handle.stop();
            let report = block_on(handle);
            assert_eq!(report.completed(), connections as u64);
            self.moves.fetch_add(report.moves(), Ordering::Relaxed);
        }
    }
}

/// Storm after storm, until there are no more seeds or there is no more time.
fn storms(seeds: std::ops::Range<u64>, time: Duration) {
    let (start, mut line, mut bytes) = (Instant::now(), Instant::now(), 0);
    let world = Arc::new(World::new());
    let progress = progress("storm");
    // What is made once, is made.
    for seed in 0..3 {
        world.weather(Storm::of(seed)).unwrap();
        progress.tick();
    }
    let before = world.held();
    for seed in seeds.clone() {
        let here = Arc::clone(&world);
        let result = within(move || here.weather(Storm::of(seed)));
        let replay = format!("LOOPGROUP_SEED={seed} cargo test --test proofs seeds -- --nocapture");
        match result {
            Ok(more) => bytes += more,
            Err(wrong) => panic!("{:?}: {wrong}\n{replay}", Storm::of(seed)),
        }
        eventually(&format!("nothing is left; {replay}"), || {
            world.held() == before
        });
        progress.tick();
        if line.elapsed() > Duration::from_secs(10) {
            line = Instant::now();
            let (storms, mib) = (seed + 1 - seeds.start, bytes >> 20);
            let moves = world.moves.load(Ordering::Relaxed);
            eprintln!(
                "chaos: {storms} storms, {mib} MiB, {moves} moves, {} s",
                start.elapsed().as_secs()
            );
        }
        if start.elapsed() > time {
            break;
        }
    }
    // The first three had one of each kind.
    assert!(world.moves.load(Ordering::Relaxed) > 0);
    for group in [&world.servers, &world.clients] {
        let report = group.drain(BOUND).wait();
        assert!(report.is_clean(), "{report}");
    }
}

#[test]
fn what_arrives_is_what_was_sent_whatever_the_network_does_by_seeds() {
    const SHORT: u64 = 12;
    let time = setting("LOOPGROUP_CHAOS_SECONDS").map(Duration::from_secs);
    match (setting("LOOPGROUP_SEED"), setting("LOOPGROUP_CHAOS_SEEDS")) {
        (Some(seed), _) => storms(seed..seed + 1, Duration::MAX),
        (None, Some(seeds)) => storms(0..seeds, time.unwrap_or(Duration::MAX)),
        (None, None) if time.is_some() => storms(0..u64::MAX, time.unwrap_or_default()),
        (None, None) => alone(
            "what_arrives_is_what_was_sent_whatever_the_network_does_by_seeds",
            || storms(0..SHORT, Duration::MAX),
        ),
    }
}

#[test]
fn a_byte_that_is_changed_or_lost_or_late_is_noticed() {
    within(|| {
        let world = World::new();
        let control = |kind, fate, bound| {
            let storm = Storm {
                seed: 1,
                kind,
                connections: 3,
                len: 20_000,
                bound,
                fate: Some(fate),
            };
            world.weather(storm).unwrap_err()
        };
        for kind in Kind::ALL {
            let wrong = control(kind, Fate::Corrupt(12_345), BOUND);
            assert!(wrong.contains("byte 12345 of 20000 differs"), "{wrong}");
            let wrong = control(kind, Fate::Lose(19_999), BOUND);
            assert!(wrong.contains("19999 of 20000 bytes"), "{wrong}");
            let wrong = control(kind, Fate::Stall, Duration::from_millis(50));
            assert_eq!(wrong, "a connection stalls");
        }
    });
}
