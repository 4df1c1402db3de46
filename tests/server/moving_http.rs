//! Idle HTTP/1 connections move to another loop, and their clients cannot tell.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream as Client;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use hyper::body::{Body, Incoming};
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, StatusCode};
use loopgroup::compat::hyper::{Http, HttpHandle};
use loopgroup::net::{Rebalance, Server, ServerHandle};
use loopgroup::{Elastic, EventLoop, EventLoopGroup, GroupView, PanicSite, block_on, yield_now};

use crate::util::{
    Door, LONG, Random, allow_descriptors, alone_after, blow_up, eventually, flush, group, ms,
    stall, within,
};
use crate::{Repeated, assert_adds_up, group_that_reports};

type Answer = Result<Response<String>, Infallible>;
type AnswerFuture = Pin<Box<dyn Future<Output = Answer>>>;
type BoxService = Box<
    dyn Service<
            Request<Incoming>,
            Response = Response<String>,
            Error = Infallible,
            Future = AnswerFuture,
        >,
>;

/// A service that answers with its loop, its number of visits, the path, and the bytes of the body and
/// their sum.
///
/// `/wait` waits for the door, `/panic` panics, `/work` takes a millisecond, `/early` leaves the body to a
/// task that is spawned, and `/socket` becomes an echo.
fn service(door: &Door) -> impl Fn(&EventLoop) -> BoxService + Send + Sync + 'static + use<> {
    let door = door.clone();
    move |here| {
        let (door, index) = (door.clone(), here.index());
        let visits = Rc::new(Cell::new(0)); // not Send
        Box::new(service_fn(move |mut request: Request<Incoming>| {
            assert_eq!(
                EventLoop::current().unwrap().index(),
                index,
                "it left its loop"
            );
            visits.set(visits.get() + 1);
            let (visits, door) = (Rc::clone(&visits), door.clone());
            let answer = async move {
                let path = request.uri().path().to_owned();
                let mut response = Response::new(String::new());
                let (mut bytes, mut sum) = (0, 0);
                match &*path {
                    "/wait" => door.opened().await,
                    "/panic" => blow_up(),
                    "/work" => {
                        let end = Instant::now() + ms(1);
                        while Instant::now() < end {
                            std::hint::spin_loop();
                        }
                    }
                    "/early" => drop(loopgroup::spawn_local(async move {
                        if body_of(request.into_body()).await.0 == 10 {
                            door.open();
                        }
                    })),
                    "/socket" => {
                        let upgrade = hyper::upgrade::on(&mut request);
                        drop(loopgroup::spawn_local(async move {
                            echo(upgrade.await.unwrap()).await;
                        }));
                        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                        let headers = response.headers_mut();
                        headers.insert("upgrade", "echo".parse().unwrap());
                        headers.insert("connection", "upgrade".parse().unwrap());
                    }
                    _ => (bytes, sum) = body_of(request.into_body()).await,
                }
                if response.status() == StatusCode::OK {
                    *response.body_mut() = format!("{index} {} {path} {bytes} {sum}", visits.get());
                }
                Ok(response)
            };
            Box::pin(answer) as AnswerFuture
        }))
    }
}

/// The number of bytes, and their sum.
async fn body_of(mut body: Incoming) -> (usize, u64) {
    let (mut bytes, mut sum) = (0, 0);
    // If the response is written already, hyper keeps the channel of a body open after its last byte.
    while !body.is_end_stream() {
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(Ok(frame)) = frame else { break };
        if let Ok(data) = frame.into_data() {
            bytes += data.len();
            sum += data.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
    }
    (bytes, sum)
}

async fn echo(mut upgraded: hyper::upgrade::Upgraded) {
    use hyper::rt::{Read as _, ReadBuf, Write as _};
    loop {
        let mut space = [0; 64];
        let mut buf = ReadBuf::new(&mut space);
        let read = poll_fn(|cx| Pin::new(&mut upgraded).poll_read(cx, buf.unfilled())).await;
        if read.is_err() || buf.filled().is_empty() {
            return;
        }
        let n = poll_fn(|cx| Pin::new(&mut upgraded).poll_write(cx, buf.filled())).await;
        assert_eq!(n.unwrap(), buf.filled().len());
    }
}

fn serve(workers: &EventLoopGroup, http: Http, door: &Door) -> HttpHandle {
    http.movable(true)
        .serve(workers, "127.0.0.1:0", service(door))
        .unwrap()
}

/// A client on one connection.
struct Peer(BufReader<Client>);

/// A response: where it was answered, and the rest of the body.
#[derive(Debug, PartialEq)]
struct Got {
    status: u16,
    closes: bool,
    body: String,
}

impl Got {
    fn home(&self) -> usize {
        self.word(0).parse().unwrap()
    }

    fn word(&self, number: usize) -> &str {
        self.body.split(' ').nth(number).unwrap()
    }
}

impl Peer {
    fn connect(server: &HttpHandle) -> Peer {
        let client = Client::connect(server.local_addr()).unwrap();
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        Peer(BufReader::new(client))
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Reads a response; `None` if the connection ends before.
    fn try_answer(&mut self) -> io::Result<Option<Got>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let (mut length, mut closes) = (0, false);
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line)?, 0, "cut off");
            match line.trim_end().split_once(": ") {
                None => break,
                Some(("content-length", number)) => length = number.parse().unwrap(),
                Some(("connection", "close")) => closes = true,
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let body = String::from_utf8(body).unwrap();
        Ok(Some(Got {
            status,
            closes,
            body,
        }))
    }

    #[track_caller]
    fn answer(&mut self) -> Got {
        self.try_answer().unwrap().expect("an answer")
    }

    #[track_caller]
    fn get(&mut self, path: &str) -> Got {
        self.send(head(path));
        let got = self.answer();
        assert!(!got.closes, "{got:?}");
        got
    }

    #[track_caller]
    fn assert_closed(&mut self) {
        match self.0.read(&mut [0; 64]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("not closed: {other:?}"),
        }
    }
}

fn head(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")
}

/// Moves the only connection of a server away from a loop, and waits for it.
#[track_caller]
fn move_from(server: &ServerHandle, from: usize) {
    let moves = server.moves();
    assert_eq!(server.move_connections(from, 1 - from, 1), 1);
    eventually("the connection arrives", || server.moves() > moves);
}

/// Moves connections between two loops, all the time.
fn keep_moving(server: &HttpHandle) -> Repeated {
    let server = server.server().clone();
    Repeated::start(move || {
        server.move_connections(0, 1, usize::MAX);
        server.move_connections(1, 0, usize::MAX);
        thread::yield_now();
    })
}

#[test]
fn an_idle_connection_moves_at_once_and_its_next_request_is_served_there() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mut client = Peer::connect(&server);
        let mut home = client.get("/").home();
        for round in 1..=20 {
            move_from(server.server(), home);
            let got = client.get("/");
            assert_eq!((got.home(), got.word(2)), (1 - home, "/"));
            home = got.home();
            assert_eq!(server.server().moves(), round);
        }
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.moves()), (1, 20));
    });
}

#[test]
fn a_connection_that_has_sent_nothing_moves_in_either_protocol_setting() {
    within(|| {
        for http in [Http::new(), Http::new().http1_only()] {
            let workers = group(2);
            let server = serve(&workers, http, &Door::new());
            let mut client = Peer::connect(&server);
            let handle = server.server();
            let asked = |from| handle.move_connections(from, 1 - from, 1);
            eventually("it is there", || asked(0) + asked(1) > 0);
            eventually("it moves", || handle.moves() > 0);
            assert_eq!(client.get("/").status, 200);
        }
    });
}

#[test]
fn a_busy_connection_moves_after_its_response_which_does_not_say_close() {
    within(|| {
        let workers = group(2);
        let door = Door::new();
        let server = serve(&workers, Http::new(), &door);
        let mut client = Peer::connect(&server);
        let home = client.get("/").home();
        client.send(head("/wait"));
        eventually("the service waits", || door.waiting() > 0);
        assert_eq!(server.server().move_connections(home, 1 - home, 1), 1);
        assert_eq!(
            server.server().move_connections(home, 1 - home, 1),
            0,
            "asked before"
        );
        flush(&workers.loops()[home]);
        assert_eq!(server.server().moves(), 0);
        door.open();
        let got = client.answer();
        assert_eq!((got.home(), got.closes), (home, false));
        eventually("it moves", || server.server().moves() == 1);
        assert_eq!(client.get("/").home(), 1 - home);
    });
}

#[test]
fn pipelined_requests_are_answered_in_order_while_the_connection_moves() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mover = keep_moving(&server);
        let mut client = Peer::connect(&server);
        let mut random = Random(7);
        let (mut asked, mut answered) = (0, 0);
        for _ in 0..300 {
            // Cut anywhere, so that heads arrive in parts as well.
            let many = 1 + random.below(40);
            let requests: String = (asked..asked + many)
                .map(|n| head(&format!("/{n}")))
                .collect();
            let cut = random.index(requests.len());
            client.send(&requests[..cut]);
            client.send(&requests[cut..]);
            asked += many;
            while answered < asked {
                let got = client.answer();
                assert_eq!((got.word(2), got.closes), (&*format!("/{answered}"), false));
                answered += 1;
            }
        }
        drop(mover);
        drop(client);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.accepted()), (1, 1), "{report}");
        assert!(report.moves() > 20, "{report}");
    });
}

#[test]
fn part_of_a_head_survives_a_move_and_is_not_moved_again() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mut client = Peer::connect(&server);
        let home = client.get("/").home();
        // Behind a request, so that hyper has read it before the connection is idle.
        client.send(head("/whole") + "GET /par");
        assert_eq!(client.answer().word(2), "/whole");
        move_from(server.server(), home);
        assert_eq!(server.server().move_connections(1 - home, home, 1), 1);
        flush(&workers.loops()[1 - home]);
        assert_eq!(server.server().moves(), 1, "its head is read in part");
        client.send("ted HTTP/1.1\r\nhost: a\r\n\r\n");
        let got = client.answer();
        assert_eq!(
            (got.home(), got.word(2), got.closes),
            (1 - home, "/parted", false)
        );
        eventually("it moves then", || server.server().moves() == 2);
        assert_eq!(client.get("/").home(), home);
    });
}

#[test]
fn the_first_head_does_not_move_before_it_is_complete() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mut client = Peer::connect(&server);
        eventually("it is accepted", || server.connections() == 1);
        client.send("GET /sl");
        let mover = keep_moving(&server);
        client.send("ow HTTP/1.1\r\nhost: a\r\n\r\n");
        let got = client.answer();
        assert_eq!((got.word(2), got.closes), ("/slow", false));
        drop(mover);
        assert_eq!(client.get("/").status, 200);
    });
}

#[test]
fn bodies_are_exact_while_connections_move_as_often_as_possible() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mover = keep_moving(&server);
        let clients: Vec<_> = (0..4)
            .map(|seed| {
                let mut client = Peer::connect(&server);
                thread::spawn(move || {
                    let mut random = Random(seed + 1);
                    for round in 0..60 {
                        let size = random.index(if round % 10 == 0 { 300_000 } else { 3_000 });
                        let body: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
                        let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
                        let mut request = format!("POST /{round} HTTP/1.1\r\nhost: a\r\n");
                        if random.one_in(2) {
                            request += &format!("content-length: {size}\r\n\r\n");
                            client.send(request);
                            client.send(&body);
                        } else {
                            client.send(request + "transfer-encoding: chunked\r\n\r\n");
                            for chunk in body.chunks(1 + random.index(20_000)) {
                                client.send(format!("{:x}\r\n", chunk.len()));
                                client.send(chunk);
                                client.send("\r\n");
                            }
                            client.send("0\r\n\r\n");
                        }
                        let got = client.answer();
                        let expected = format!("/{round} {size} {sum}");
                        assert!(got.body.ends_with(&expected), "{got:?}, not {expected}");
                        assert!(!got.closes);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|one| one.join().unwrap());
        drop(mover);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.failed()), (4, 0), "{report}");
        assert!(report.moves() > 20, "{report}");
    });
}

#[test]
fn a_body_that_is_read_after_the_response_is_not_cut_off_by_a_request_to_move() {
    within(|| {
        let workers = group(2);
        let door = Door::new();
        let server = serve(&workers, Http::new(), &door);
        let mut client = Peer::connect(&server);
        client.send("POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello");
        let got = client.answer();
        assert_eq!((got.status, got.closes), (200, false));
        let mover = keep_moving(&server);
        client.send("world");
        door.pass(); // all of it was read
        drop(mover);
    });
}

#[test]
fn a_connection_that_is_to_close_closes_although_it_is_asked_to_move() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mover = keep_moving(&server);
        for _ in 0..200 {
            let mut client = Peer::connect(&server);
            client.get("/");
            client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            assert!(client.answer().closes);
            client.assert_closed();
            let mut old = Peer::connect(&server);
            old.send("GET / HTTP/1.0\r\n\r\n");
            assert_eq!(old.answer().status, 200);
            old.assert_closed();
        }
        drop(mover);
        server.stop();
        assert_eq!(block_on(server).completed(), 400);
    });
}

/// Reads HTTP/2 frames until the end of this stream.
fn read_stream(client: &mut Client, number: u8) {
    loop {
        let mut frame = [0; 9];
        client.read_exact(&mut frame).unwrap();
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        let mut payload = vec![0; length as usize];
        client.read_exact(&mut payload).unwrap();
        let (kind, flags, stream) = (frame[3], frame[4], frame[8]);
        assert_ne!(kind, 7, "GOAWAY");
        if stream == number && kind <= 1 && flags & 1 == 1 {
            return;
        }
    }
}

#[test]
fn http2_connections_do_not_move_and_go_on() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mut client = Client::connect(server.local_addr()).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        client
            .write_all(&[&preface[..], &settings].concat())
            .unwrap();
        for number in [1, 3, 5, 7] {
            // GET, http, /, with authority `a`; the end of the headers and of the stream.
            let request = [
                0, 0, 6, 1, 5, 0, 0, 0, number, 0x82, 0x86, 0x84, 0x01, 1, b'a',
            ];
            client.write_all(&request).unwrap();
            read_stream(&mut client, number);
            let handle = server.server();
            assert_eq!(
                handle.move_connections(0, 1, 1) + handle.move_connections(1, 0, 1),
                0
            );
        }
        drop(client);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.moves()), (1, 0));
    });
}

#[test]
fn an_upgraded_connection_does_not_move_and_goes_on() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mut client = Peer::connect(&server);
        let home = client.get("/").home();
        move_from(server.server(), home);
        let mover = keep_moving(&server);
        client.send(
            "GET /socket HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        );
        assert_eq!(client.answer().status, 101);
        eventually("it is no longer the server's", || server.connections() == 0);
        let moves = server.server().moves();
        for round in 0..50_u8 {
            client.send([round; 3]);
            let mut echoed = [0; 3];
            client.0.read_exact(&mut echoed).unwrap();
            assert_eq!(echoed, [round; 3]);
        }
        drop(mover);
        assert_eq!(server.server().moves(), moves);
    });
}

#[test]
fn a_loop_that_ends_meanwhile_gives_the_connection_back() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mut client = Peer::connect(&server);
        let home = client.get("/").home();
        let target = &workers.loops()[1 - home];
        let door = stall(target);
        let queued = target.pending_tasks();
        assert_eq!(server.server().move_connections(home, 1 - home, 1), 1);
        eventually("it is in the queue", || target.pending_tasks() > queued);
        let ended = target.shutdown_now();
        door.open();
        ended.wait();
        assert_eq!(client.get("/").home(), home);
        server.stop();
        assert_eq!(block_on(server).completed(), 1);
    });
}

#[test]
fn stops_drains_and_shutdowns_during_moves_answer_or_close_and_the_sums_are_exact() {
    within(|| {
        for round in 0..12 {
            let workers = group(2);
            let server = serve(&workers, Http::new(), &Door::new());
            let mover = keep_moving(&server);
            let answers = Arc::new(AtomicUsize::new(0));
            let clients: Vec<_> = (0..8)
                .map(|_| {
                    let (mut client, answers) = (Peer::connect(&server), Arc::clone(&answers));
                    thread::spawn(move || {
                        loop {
                            if client.0.get_mut().write_all(head("/").as_bytes()).is_err() {
                                return;
                            }
                            // Answered completely, or not at all.
                            match client.try_answer() {
                                Ok(Some(got)) => assert_eq!(got.status, 200),
                                Ok(None) | Err(_) => return,
                            }
                            answers.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            eventually("there is traffic", || answers.load(Ordering::Relaxed) > 200);
            match round % 3 {
                0 => server.stop(),
                1 => server.server().drain(),
                _ => assert!(workers.drain(LONG).wait().is_clean()),
            }
            clients.into_iter().for_each(|one| one.join().unwrap());
            drop(mover);
            let report = block_on(server);
            assert_adds_up(&report);
            assert_eq!((report.accepted(), report.aborted()), (8, 0), "{report}");
        }
    });
}

#[test]
fn limits_hold_across_moves() {
    within(|| {
        let workers = group(2);
        let listener = Server::new("127.0.0.1:0").unwrap().max_connections(1);
        let http = Http::new().movable(true).idle_timeout(ms(300));
        let http = http.request_timeout(ms(50)).header_timeout(ms(400));
        let door = Door::new();
        let server = http.serve(&workers, listener, service(&door)).unwrap();
        let mover = keep_moving(&server);
        let mut client = Peer::connect(&server);
        client.get("/");
        client.send(head("/wait"));
        assert_eq!(client.answer().status, 408);
        // The limit of connections is of the server, not of a loop.
        let mut second = Peer::connect(&server);
        second.send(head("/"));
        let begun = Instant::now();
        client.assert_closed();
        assert!(
            begun.elapsed() >= ms(200),
            "moves do not shorten the time between requests"
        );
        assert_eq!(second.answer().status, 200);
        drop(second);
        // A connection that says nothing.
        let mut silent = Peer::connect(&server);
        silent.assert_closed();
        // Half a head.
        let mut slow = Peer::connect(&server);
        slow.get("/");
        slow.send("GET / HT");
        slow.assert_closed();
        drop(mover);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (4, 3), "{report}");
        assert_eq!(report.failed(), 1, "half a head is an error");
    });
}

#[test]
fn the_limits_of_the_server_below_hold_across_moves() {
    within(|| {
        let workers = group(2);
        let listener = Server::new("127.0.0.1:0").unwrap();
        let listener = listener.idle_timeout(ms(200)).first_byte_timeout(ms(200));
        let http = Http::new().movable(true);
        let server = http
            .serve(&workers, listener, service(&Door::new()))
            .unwrap();
        let mover = keep_moving(&server);
        let (mut silent, mut idle) = (Peer::connect(&server), Peer::connect(&server));
        idle.get("/");
        silent.assert_closed();
        idle.assert_closed();
        drop(mover);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.accepted(), report.timed_out()), (2, 2), "{report}");
        assert_adds_up(&report);
    });
}

#[test]
fn a_service_that_panics_during_moves_answers_500_and_the_connection_goes_on() {
    within(|| {
        let (workers, sites) = group_that_reports(2);
        let server = serve(&workers, Http::new(), &Door::new());
        let mover = keep_moving(&server);
        let mut client = Peer::connect(&server);
        for _ in 0..50 {
            assert_eq!(client.get("/panic").status, 500);
            assert_eq!(client.get("/").status, 200);
        }
        drop(mover);
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.service_panics()), (1, 50));
        assert_eq!(*sites.lock().unwrap(), vec![PanicSite::Service; 50]);
    });
}

#[test]
fn a_factory_that_panics_where_a_connection_arrives_aborts_it() {
    within(|| {
        let (workers, _sites) = group_that_reports(2);
        let first = Arc::new(AtomicUsize::new(usize::MAX));
        let make = service(&Door::new());
        let server = Http::new()
            .movable(true)
            .serve(&workers, "127.0.0.1:0", move |here| {
                let first = first.fetch_min(here.index() + 10, Ordering::Relaxed);
                assert_eq!(first, usize::MAX, "only one loop has a service");
                make(here)
            })
            .unwrap();
        let mut client = Peer::connect(&server);
        let home = client.get("/").home();
        assert_eq!(server.server().move_connections(home, 1 - home, 1), 1);
        client.assert_closed();
        server.stop();
        assert_eq!(block_on(server).aborted(), 1);
    });
}

#[test]
fn hot_connections_move_off_a_busy_loop() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(2);
        let workers = builder.chooser(|_: &GroupView<'_>| 0).build().unwrap();
        let rule = Rebalance::by_utilization().period(ms(50)).rest(ms(500));
        let listener = Server::new("127.0.0.1:0").unwrap().rebalance(rule);
        let http = Http::new(); // movable, since the server rebalances
        let server = http
            .serve(&workers, listener, service(&Door::new()))
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let homes: Arc<[AtomicUsize; 4]> = Arc::default();
        let clients: Vec<_> = (0..4)
            .map(|number| {
                let (homes, stop) = (Arc::clone(&homes), Arc::clone(&stop));
                let mut client = Peer::connect(&server);
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        homes[number].store(client.get("/work").home(), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let there = || {
            homes
                .iter()
                .filter(|home| home.load(Ordering::Relaxed) == 1)
                .count()
        };
        eventually("some of them move", || {
            there() >= 1 && server.server().moves() >= 1
        });
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|one| one.join().unwrap());
        server.stop();
        let report = block_on(server);
        assert_eq!((report.completed(), report.accepted()), (4, 4), "{report}");
    });
}

#[test]
fn idle_connections_leave_a_loop_that_an_elastic_group_does_not_need_and_none_is_closed() {
    const IDLE: usize = 1_000;
    let name =
        "idle_connections_leave_a_loop_that_an_elastic_group_does_not_need_and_none_is_closed";
    alone_after(&allow_descriptors(4 * IDLE), name, || {
        let builder = EventLoopGroup::builder().elastic(Elastic {
            min: 1,
            max: 2,
            patience: ms(5),
            ..Elastic::default()
        });
        let group = builder.build().unwrap();
        // Everything may take long here.
        let http = Http::new().header_timeout(None).idle_timeout(None);
        let server = serve(&group, http, &Door::new());
        let ev = &group.loops()[1];
        // Work for both loops, so that the second one is needed while the connections come.
        let stop = Arc::new(AtomicBool::new(false));
        for ev in group.loops() {
            let stop = Arc::clone(&stop);
            drop(ev.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    yield_now().await;
                }
            }));
            let second = &group.loops()[1];
            eventually("both loops are active", || !second.is_paused());
        }
        let mut peers: Vec<_> = (0..IDLE).map(|_| Peer::connect(&server)).collect();
        // All ask before the first answer is read; returns where they were answered.
        let mut ask = || -> Vec<usize> {
            peers.iter_mut().for_each(|peer| peer.send(head("/")));
            peers.iter_mut().map(|peer| peer.answer().home()).collect()
        };
        ask();
        eventually("the connections are all on the second loop", || {
            server.server().move_connections(0, 1, usize::MAX);
            ev.registered_channels() == IDLE
        });
        assert_eq!(ask(), [1; IDLE]);
        let moves = server.server().moves();
        stop.store(true, Ordering::Relaxed);
        eventually(
            "the loop is empty, drops its service, and is parked",
            || ev.metrics().is_parked() && server.server().moves() == moves + IDLE as u64,
        );
        assert_eq!(ev.registered_channels(), 0);
        assert_eq!(ask(), [0; IDLE]);
        assert_eq!(server.connections(), IDLE);
        drop(peers);
        server.stop();
        let report = block_on(server);
        let ends = (report.accepted(), report.completed());
        assert_eq!(ends, (IDLE as u64, IDLE as u64), "{report}");
    });
}

#[test]
fn settings_that_cannot_move_are_refused_and_connections_stay_unless_told() {
    within(|| {
        let workers = group(2);
        let http = Http::new().movable(true).http2_only();
        let error = http.serve(&workers, "127.0.0.1:0", service(&Door::new()));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
        let server = Http::new()
            .serve(&workers, "127.0.0.1:0", service(&Door::new()))
            .unwrap();
        let mut client = Peer::connect(&server);
        client.get("/");
        let handle = server.server();
        assert_eq!(
            handle.move_connections(0, 1, 1) + handle.move_connections(1, 0, 1),
            0
        );
    });
}
