//! HTTP servers by `compat::hyper::serve`, seen from clients that write their bytes by hand.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream as Client};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::rt::{Read as _, ReadBuf, Write as _};
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, StatusCode};
use loopgroup::compat::hyper::{Http, HttpHandle, Peer, serve};
use loopgroup::net::{ConnectionEnd, Server};
use loopgroup::{EndCause, EventLoop, EventLoopGroup, PanicSite, WaitsFor, block_on};

use crate::util::{self, Door, HOUR, LONG, eventually, group, ms, secs, within};

type Answer = Result<Response<String>, Infallible>;
type BoxFuture = Pin<Box<dyn Future<Output = Answer>>>;
type BoxService = Box<
    dyn Service<
            Request<Incoming>,
            Response = Response<String>,
            Error = Infallible,
            Future = BoxFuture,
        >,
>;

/// Answers with the path; `/wait` only when the door is open, and `/panic` never.
fn paths(door: &Door) -> impl Fn(&EventLoop) -> BoxService + Send + Sync + 'static + use<> {
    let door = door.clone();
    move |_| {
        let door = door.clone();
        Box::new(service_fn(move |request: Request<Incoming>| {
            let door = door.clone();
            let answer = async move {
                let path = request.uri().path().to_owned();
                match &*path {
                    "/wait" => door.opened().await,
                    "/panic" => panic!("a request that blows up"),
                    _ => {}
                }
                Ok(Response::new(path))
            };
            Box::pin(answer) as BoxFuture
        }))
    }
}

fn connect(server: &HttpHandle) -> Client {
    let client = Client::connect(server.local_addr()).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client
}

fn ask(client: &mut Client, path: &str) {
    client
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes())
        .unwrap();
}

/// A response: status, whether the connection is to be closed, and the body.
#[derive(Debug, PartialEq)]
struct Got(u16, bool, Vec<u8>);

/// Reads one response; `None` if the connection ends before its first byte.
fn answer(reader: &mut impl BufRead) -> io::Result<Option<Got>> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(0) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset && line.is_empty() => {
            return Ok(None);
        }
        other => other?,
    };
    let cut_off = || io::Error::new(io::ErrorKind::UnexpectedEof, "cut off");
    let status = line.split(' ').nth(1).ok_or_else(cut_off)?.parse().unwrap();
    let (mut length, mut close) = (None, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(cut_off());
        }
        match line.trim_end().split_once(": ") {
            None => break,
            Some(("content-length", number)) => length = Some(number.parse().unwrap()),
            Some(("connection", "close")) => close = true,
            Some(_) => {}
        }
    }
    let mut body = vec![0; length.expect("bodies here have a length")];
    reader.read_exact(&mut body)?;
    Ok(Some(Got(status, close, body)))
}

fn get(client: &mut Client, path: &str) -> Got {
    ask(client, path);
    read_answer(client)
}

#[track_caller]
fn read_answer(client: &Client) -> Got {
    answer(&mut BufReader::new(client))
        .unwrap()
        .expect("an answer")
}

/// Whether the server has closed the connection, with nothing more to read.
#[track_caller]
fn assert_closed(client: &mut Client) {
    match client.read(&mut [0; 64]) {
        Ok(0) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        other => panic!("not closed: {other:?}"),
    }
}

fn ok(path: &str) -> Got {
    Got(200, false, path.into())
}

#[test]
fn each_loop_makes_one_service_and_its_connections_share_it() {
    within(|| {
        let made = Arc::new(Mutex::new(Vec::new()));
        let homes = Arc::clone(&made);
        let workers = group(2);
        let server = serve(&workers, "127.0.0.1:0", move |here| {
            assert!(here.in_event_loop());
            homes.lock().unwrap().push(here.index());
            let visits = Rc::new(Cell::new(0));
            service_fn(move |_: Request<Incoming>| {
                visits.set(visits.get() + 1);
                let visits = Rc::clone(&visits); // not Send, across an await
                async move {
                    loopgroup::yield_now().await;
                    Answer::Ok(Response::new(visits.get().to_string()))
                }
            })
        })
        .unwrap();
        assert!(made.lock().unwrap().is_empty(), "not before it is needed");
        let mut clients: Vec<_> = (0..6).map(|_| connect(&server)).collect();
        for round in 0..2 {
            for (number, client) in clients.iter_mut().enumerate() {
                let visit = 1 + round * 3 + number / 2; // three connections on each loop, in turn
                assert_eq!(get(client, "/"), ok(&visit.to_string()));
            }
        }
        made.lock().unwrap().sort_unstable();
        assert_eq!(*made.lock().unwrap(), [0, 1]);
        assert!(workers.drain(LONG).wait().is_clean());
        assert_eq!(block_on(server).completed(), 6);
    });
}

#[test]
fn idle_and_silent_connections_end_at_once_when_the_group_drains() {
    within(|| {
        let workers = group(2);
        let server = serve(&workers, "127.0.0.1:0", paths(&Door::new())).unwrap();
        let mut idle: Vec<_> = (0..8).map(|_| connect(&server)).collect();
        for client in &mut idle {
            assert_eq!(get(client, "/"), ok("/"));
        }
        let mut silent: Vec<_> = (0..8).map(|_| connect(&server)).collect();
        eventually("all connections", || server.connections() == 16);
        let start = Instant::now();
        let report = workers.drain(HOUR).wait();
        assert!(report.is_clean(), "{report}");
        assert!(start.elapsed() < secs(10), "no timeout was waited for");
        let causes = report.loops().iter().map(|one| one.cause());
        assert!(causes.into_iter().all(|cause| cause == EndCause::Drained));
        idle.iter_mut().chain(&mut silent).for_each(assert_closed);
        let report = block_on(server);
        assert_eq!((report.accepted(), report.completed()), (16, 16));
    });
}

#[test]
fn requests_under_way_are_answered_when_the_group_drains_and_told_to_close() {
    within(|| {
        let (workers, door) = (group(2), Door::new());
        let server = serve(&workers, "127.0.0.1:0", paths(&door)).unwrap();
        let mut clients: Vec<_> = (0..8).map(|_| connect(&server)).collect();
        clients.iter_mut().for_each(|client| ask(client, "/wait"));
        eventually("the requests", || door.waiting() == 8);
        let ended = workers.drain(HOUR);
        workers.loops().iter().for_each(util::flush); // all connections know
        door.open();
        for client in &mut clients {
            assert_eq!(read_answer(client), Got(200, true, b"/wait".to_vec()));
            assert_closed(client);
        }
        assert!(ended.wait().is_clean());
    });
}

/// A body of many parts, each only when it is asked for.
struct Parts(usize);

const PART: usize = 64 * 1024;

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        Poll::Ready(Some(Ok(Frame::data(vec![self.0 as u8; PART].into()))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact((self.0 * PART) as u64)
    }
}

#[test]
fn a_response_that_its_client_reads_late_is_written_to_its_end() {
    within(|| {
        let workers = group(1);
        let begun = Door::new();
        let begin = begun.clone();
        // Time limits that pass while the response is written: they are not for this.
        let http = Http::new().header_timeout(ms(20)).idle_timeout(ms(20));
        let server = http
            .serve(&workers, "127.0.0.1:0", move |_| {
                let begin = begin.clone();
                service_fn(move |_: Request<Incoming>| {
                    begin.open();
                    async { Ok::<_, Infallible>(Response::new(Parts(400))) } // more than the sockets take
                })
            })
            .unwrap();
        let mut client = connect(&server);
        ask(&mut client, "/");
        begun.pass();
        // Until the server has waited longer than its limits for a client that does not read.
        let written = Instant::now();
        while written.elapsed() < ms(100) {
            thread::sleep(ms(10));
        }
        let ended = workers.drain(HOUR);
        let got = read_answer(&client);
        assert_eq!(got.2.len(), 400 * PART);
        for (number, part) in got.2.chunks(PART).enumerate() {
            assert!(part.iter().all(|&byte| byte == (399 - number) as u8));
        }
        assert!(ended.wait().is_clean());
    });
}

#[test]
fn half_a_head_may_be_finished_after_the_shutdown_began() {
    within(|| {
        let workers = group(1);
        let server = serve(&workers, "127.0.0.1:0", paths(&Door::new())).unwrap();
        let mut first = connect(&server);
        first.write_all(b"GET /first HTTP/1.1\r\nho").unwrap();
        let mut second = connect(&server);
        assert_eq!(get(&mut second, "/"), ok("/")); // one request before
        second.write_all(b"GET /second HTTP/1.1\r\nho").unwrap();
        let (mut third, errors) = (connect(&server), server.server().accept_errors());
        third.write_all(b"P").unwrap(); // may yet become HTTP/2
        eventually("all connections", || server.connections() == 3);
        util::flush(&workers.loops()[0]);
        let ended = workers.drain(HOUR);
        for (client, path) in [(&mut first, "/first"), (&mut second, "/second")] {
            client.write_all(b"st: localhost\r\n\r\n").unwrap();
            let Got(status, _, body) = read_answer(client);
            assert_eq!((status, body), (200, path.into()));
            assert_closed(client);
        }
        third
            .write_all(b"UT /third HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        assert_eq!(read_answer(&third).2, b"/third");
        assert!(ended.wait().is_clean());
        assert_eq!(server.server().accept_errors(), errors);
    });
}

#[test]
fn half_a_head_that_stays_half_does_not_hold_up_a_drain() {
    within(|| {
        let workers = group(1);
        let errors = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&errors);
        let server = Http::new()
            .header_timeout(HOUR)
            .on_error(move |error, _| seen.lock().unwrap().push(error.to_string()))
            .serve(&workers, "127.0.0.1:0", paths(&Door::new()))
            .unwrap();
        let mut client = connect(&server);
        client.write_all(b"GET / HTTP/1.1\r\nhost: a").unwrap();
        eventually("the connection", || server.connections() == 1);
        util::flush(&workers.loops()[0]);
        let start = Instant::now();
        assert!(workers.drain(HOUR).wait().is_clean());
        assert!(start.elapsed() < secs(20));
        assert_closed(&mut client);
        let errors = errors.lock().unwrap();
        // A slow machine may not have seen the bytes before the signal.
        assert!(
            errors.iter().all(|text| text.contains("shut down before")),
            "{errors:?}"
        );
    });
}

#[test]
fn a_client_that_sends_its_head_drop_by_drop_is_closed() {
    within(|| {
        let workers = group(1);
        let (errors, seen) = std::sync::mpsc::channel();
        let errors = Mutex::new(errors);
        let server = Http::new()
            .header_timeout(ms(50))
            .on_error(move |error, _| errors.lock().unwrap().send(error.kind()).unwrap())
            .serve(&workers, "127.0.0.1:0", paths(&Door::new()))
            .unwrap();
        let mut slow = connect(&server);
        let start = Instant::now();
        // Each byte is in time, the head is not.
        while seen.try_recv() != Ok(io::ErrorKind::TimedOut) {
            let _ = slow.write_all(b"G");
            thread::sleep(ms(2));
            assert!(start.elapsed() < LONG, "never closed");
        }
        assert!(start.elapsed() >= ms(50), "not early");
        assert_closed(&mut slow);
        // After a request as well, and half of the preface of HTTP/2 is no excuse.
        for part in ["G", "P", "PRI * HTTP/2.0\r\n"] {
            let mut slow = connect(&server);
            if part == "G" {
                assert_eq!(get(&mut slow, "/"), ok("/"));
            }
            slow.write_all(part.as_bytes()).unwrap();
            assert_eq!(seen.recv().unwrap(), io::ErrorKind::TimedOut);
            assert_closed(&mut slow);
        }
        // Who says nothing at all has done nothing wrong.
        let mut silent = connect(&server);
        assert_closed(&mut silent);
        assert!(seen.try_recv().is_err());
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn an_idle_connection_is_closed_in_time_and_a_long_request_is_not() {
    within(|| {
        let (workers, door) = (group(1), Door::new());
        let http = Http::new().idle_timeout(ms(50)).header_timeout(HOUR);
        let server = http.serve(&workers, "127.0.0.1:0", paths(&door)).unwrap();
        let (mut idle, mut busy) = (connect(&server), connect(&server));
        ask(&mut busy, "/wait");
        let start = Instant::now();
        assert_eq!(get(&mut idle, "/"), ok("/"));
        assert_closed(&mut idle);
        assert!(start.elapsed() >= ms(50));
        while start.elapsed() < ms(200) {
            thread::sleep(ms(10)); // four times the limit
        }
        door.open();
        assert_eq!(read_answer(&busy), ok("/wait"));
        assert_closed(&mut busy);
    });
}

#[test]
fn a_service_that_is_late_is_dropped_on_its_loop_and_answered_408() {
    within(|| {
        let (workers, drops) = (group(1), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&drops);
        let http = Http::new().request_timeout(ms(40));
        let server = http
            .serve(&workers, "127.0.0.1:0", move |_| {
                let log = Arc::clone(&log);
                service_fn(move |request: Request<Incoming>| {
                    let mark = DroppedOn(Arc::clone(&log));
                    async move {
                        let _mark = mark;
                        if request.uri().path() == "/late" {
                            std::future::pending::<()>().await;
                        }
                        Answer::Ok(Response::new("in time".to_owned()))
                    }
                })
            })
            .unwrap();
        let mut client = connect(&server);
        assert_eq!(get(&mut client, "/"), ok("in time"));
        drops.lock().unwrap().clear();
        let start = Instant::now();
        assert_eq!(get(&mut client, "/late"), Got(408, false, Vec::new()));
        assert!(start.elapsed() >= ms(40), "not early");
        assert_eq!(
            *drops.lock().unwrap(),
            [util::thread_of(&workers.loops()[0])]
        );
        assert_eq!(get(&mut client, "/"), ok("in time")); // the connection goes on
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_factory_that_panics_fails_that_connection_and_is_asked_again() {
    within(|| {
        let (calls, panics) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, seen) = (Arc::clone(&calls), Arc::clone(&panics));
        let workers = EventLoopGroup::builder()
            .loops(2)
            .on_panic(move |panic| {
                assert_eq!(panic.message(), "no service today");
                seen.fetch_add(1, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        let make = paths(&Door::new());
        let boss = group(1); // the first connection is on loop 0 then
        let listener = Server::new("127.0.0.1:0").unwrap().boss(&boss);
        let server = serve(&workers, listener, move |here: &EventLoop| {
            // The first two calls on loop 0.
            if here.index() == 0 && count.fetch_add(1, Ordering::SeqCst) < 2 {
                panic!("no service today");
            }
            make(here)
        })
        .unwrap();
        let mut answered = 0;
        for number in 0..6 {
            let mut client = connect(&server);
            ask(&mut client, "/");
            let got = answer(&mut BufReader::new(&client)).unwrap();
            let fails = number == 0 || number == 2; // the loops take turns
            assert_eq!(got, (!fails).then(|| ok("/")), "connection {number}");
            answered += u64::from(got.is_some());
        }
        assert_eq!((answered, panics.load(Ordering::SeqCst)), (4, 2));
        workers.drain(LONG).wait();
        let report = block_on(server);
        assert_eq!((report.completed(), report.aborted()), (4, 2));
    });
}

#[test]
fn a_request_that_panics_is_answered_500_and_its_connection_goes_on() {
    within(|| {
        let line = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&line);
        let workers = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |panic| {
                assert_eq!(panic.message(), "a request that blows up");
                assert_eq!(panic.site(), PanicSite::Service);
                *seen.lock().unwrap() = panic.location().map(|place| (place.file(), place.line()));
            })
            .build()
            .unwrap();
        let here = line!() + 1;
        let server = serve(&workers, "127.0.0.1:0", paths(&Door::new())).unwrap();
        let mut client = connect(&server);
        assert_eq!(get(&mut client, "/"), ok("/"));
        assert_eq!(get(&mut client, "/panic"), Got(500, false, Vec::new()));
        assert_eq!(get(&mut client, "/after"), ok("/after"));
        assert_eq!(*line.lock().unwrap(), Some((file!(), here)));
        // Also where the service panics before it has made a future.
        let direct = serve(&workers, "127.0.0.1:0", |_| {
            service_fn(|_: Request<Incoming>| -> std::future::Ready<Answer> {
                panic!("a request that blows up")
            })
        })
        .unwrap();
        let mut client = connect(&direct);
        for _ in 0..3 {
            assert_eq!(get(&mut client, "/"), Got(500, false, Vec::new()));
        }
        assert_eq!((server.service_panics(), direct.service_panics()), (1, 3));
        assert!(workers.drain(LONG).wait().is_clean());
        let below = block_on(server.server().clone());
        assert_eq!(below.service_panics(), 1);
        let (report, direct) = (block_on(server), block_on(direct));
        assert_eq!((report.completed(), report.service_panics()), (1, 1));
        assert_eq!((direct.completed(), direct.service_panics()), (1, 3));
        let text = direct.to_string();
        assert!(text.contains("; 3 panics of the service"), "{text}");
    });
}

#[test]
fn stop_ends_one_server_and_no_other() {
    within(|| {
        let (workers, door) = (group(2), Door::new());
        let stopped = serve(&workers, "127.0.0.1:0", paths(&door)).unwrap();
        let other = serve(&workers, "127.0.0.1:0", paths(&door)).unwrap();
        let (mut idle, mut busy, mut stays) =
            (connect(&stopped), connect(&stopped), connect(&other));
        assert_eq!(get(&mut idle, "/"), ok("/"));
        assert_eq!(get(&mut stays, "/"), ok("/"));
        ask(&mut busy, "/wait");
        eventually("the request", || door.waiting() == 1);
        stopped.stop();
        assert_closed(&mut idle);
        stopped.stop(); // again
        workers.loops().iter().for_each(util::flush); // both connections know
        door.open();
        assert_eq!(read_answer(&busy), Got(200, true, b"/wait".to_vec()));
        assert_eq!(block_on(stopped.clone()).completed(), 2);
        assert_eq!(get(&mut stays, "/"), ok("/"));
        assert_eq!((stopped.connections(), other.connections()), (0, 1));
    });
}

/// Notes the thread that drops it.
struct DroppedOn(Arc<Mutex<Vec<thread::ThreadId>>>);

impl Drop for DroppedOn {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(thread::current().id());
    }
}

#[test]
fn services_are_dropped_on_their_loops_after_the_last_connection() {
    within(|| {
        let workers = group(2);
        let drops = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&drops);
        let server = serve(&workers, "127.0.0.1:0", move |_| {
            let mark = Rc::new(DroppedOn(Arc::clone(&log)));
            service_fn(move |_: Request<Incoming>| {
                let _mark = Rc::clone(&mark);
                async { Answer::Ok(Response::default()) }
            })
        })
        .unwrap();
        for _ in 0..4 {
            get(&mut connect(&server), "/");
        }
        assert!(
            drops.lock().unwrap().is_empty(),
            "they wait for the next one"
        );
        server.stop();
        block_on(server);
        eventually("both services dropped", || drops.lock().unwrap().len() == 2);
        let mut expected: Vec<_> = workers.loops().iter().map(util::thread_of).collect();
        let mut dropped = drops.lock().unwrap().clone();
        expected.sort_by_key(|id| format!("{id:?}"));
        dropped.sort_by_key(|id| format!("{id:?}"));
        assert_eq!(dropped, expected);
    });
}

#[test]
fn under_load_no_answer_is_cut_off_by_a_drain() {
    within(|| {
        for round in 0..5 {
            let workers = group(2);
            let server = serve(&workers, "127.0.0.1:0", |_| {
                service_fn(|request: Request<Incoming>| async move {
                    loopgroup::yield_now().await;
                    let length = request.uri().path()[1..].parse().unwrap();
                    Answer::Ok(Response::new("x".repeat(length)))
                })
            })
            .unwrap();
            let answered = Arc::new(AtomicUsize::new(0));
            let clients: Vec<_> = (0..16_usize)
                .map(|number| {
                    let mut client = connect(&server);
                    let answered = Arc::clone(&answered);
                    thread::spawn(move || {
                        let mut reader = BufReader::new(client.try_clone().unwrap());
                        for turn in 0.. {
                            let length = (number * 7919 + turn * 104_729) % 300_000;
                            let request = format!("GET /{length} HTTP/1.1\r\nhost: a\r\n\r\n");
                            if client.write_all(request.as_bytes()).is_err() {
                                return;
                            }
                            // Whole, or not begun.
                            match answer(&mut reader).expect("cut off") {
                                None => return,
                                Some(Got(status, close, body)) => {
                                    assert_eq!((status, body.len()), (200, length));
                                    answered.fetch_add(1, Ordering::SeqCst);
                                    if close {
                                        return;
                                    }
                                }
                            }
                        }
                    })
                })
                .collect();
            eventually("load", || {
                answered.load(Ordering::SeqCst) > 100 * (round + 1)
            });
            let report = workers.drain(LONG).wait();
            assert!(report.is_clean(), "{report}");
            clients
                .into_iter()
                .for_each(|client| client.join().unwrap());
            assert_eq!(block_on(server).completed(), 16);
        }
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    within(|| {
        let workers = group(1);
        let server = serve(&workers, "127.0.0.1:0", paths(&Door::new())).unwrap();
        let mut client = connect(&server);
        let mut bytes = String::new();
        for number in 0..20 {
            bytes += &format!("GET /{number} HTTP/1.1\r\nhost: a\r\n\r\n");
        }
        for part in bytes.as_bytes().chunks(13) {
            client.write_all(part).unwrap();
        }
        let mut reader = BufReader::new(&client);
        for number in 0..20 {
            let got = answer(&mut reader).unwrap();
            assert_eq!(got, Some(ok(&format!("/{number}"))));
        }
    });
}

/// The preface, and a SETTINGS frame without settings.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[test]
fn the_protocol_is_told_by_its_first_bytes_however_they_come() {
    within(|| {
        let workers = group(1);
        let server = serve(&workers, "127.0.0.1:0", paths(&Door::new())).unwrap();
        for size in [1, 5, 24, HTTP2.len()] {
            let mut client = connect(&server);
            client.set_nodelay(true).unwrap();
            for part in HTTP2.chunks(size) {
                client.write_all(part).unwrap();
                util::flush(&workers.loops()[0]);
            }
            let mut frame = [0; 9];
            client.read_exact(&mut frame).unwrap();
            assert_eq!(frame[3], 4, "a SETTINGS frame");
        }
        for method in ["GET", "POST", "PUT", "PRI"] {
            let mut client = connect(&server);
            client.set_nodelay(true).unwrap();
            let request = format!("{method} /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
            for part in request.as_bytes().chunks(1) {
                client.write_all(part).unwrap();
                util::flush(&workers.loops()[0]);
            }
            assert_eq!(read_answer(&client), ok("/x"), "{method}");
        }
        // An end in the middle of it.
        let mut client = connect(&server);
        client.write_all(&HTTP2[..10]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
        let only = Http::new().http1_only();
        let server = only
            .serve(&workers, "127.0.0.1:0", paths(&Door::new()))
            .unwrap();
        let mut client = connect(&server);
        client.write_all(HTTP2).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert!(!rest.starts_with(&[0, 0]), "no frame: {rest:?}");
    });
}

#[test]
fn an_upgraded_connection_is_the_handlers() {
    within(|| {
        let workers = group(1);
        let server = serve(&workers, "127.0.0.1:0", |_| {
            service_fn(|request: Request<Incoming>| async move {
                drop(loopgroup::spawn_local(async move {
                    let mut stream = hyper::upgrade::on(request).await.unwrap();
                    let mut space = [0; 64];
                    loop {
                        let mut buf = ReadBuf::new(&mut space);
                        std::future::poll_fn(|cx| {
                            Pin::new(&mut stream).poll_read(cx, buf.unfilled())
                        })
                        .await
                        .unwrap();
                        let bytes = buf.filled();
                        if bytes.is_empty() {
                            return;
                        }
                        let write =
                            std::future::poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, bytes));
                        assert_eq!(write.await.unwrap(), bytes.len());
                    }
                }));
                let mut response = Response::new(String::new());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                let headers = response.headers_mut();
                headers.insert("upgrade", "echo".parse().unwrap());
                headers.insert("connection", "upgrade".parse().unwrap());
                Answer::Ok(response)
            })
        })
        .unwrap();
        let mut client = connect(&server);
        let request = "GET / HTTP/1.1\r\nhost: a\r\nupgrade: echo\r\nconnection: upgrade\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(client.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 101"), "{line}");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        for _ in 0..3 {
            client.write_all(b"ping").unwrap();
            let mut echo = [0; 4];
            reader.read_exact(&mut echo).unwrap();
            assert_eq!(&echo, b"ping");
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn the_peer_is_in_the_extensions_if_it_is_asked_for() {
    within(|| {
        let workers = group(1);
        let listener = Server::new("127.0.0.1:0").unwrap().reuse_port(true);
        let answer_peer = |_: &EventLoop| {
            service_fn(|request: Request<Incoming>| async move {
                let peer = request.extensions().get::<Peer>();
                Answer::Ok(Response::new(format!("{:?}", peer.map(|peer| peer.0))))
            })
        };
        let server = Http::new()
            .peer_extension(true)
            .serve(&workers, listener, answer_peer)
            .unwrap();
        let mut client = connect(&server);
        let address = client.local_addr().unwrap();
        assert_eq!(get(&mut client, "/"), ok(&format!("Some({address})")));
        let server = serve(&workers, ([127, 0, 0, 1], 0), answer_peer).unwrap();
        assert_eq!(get(&mut connect(&server), "/"), ok("None"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = serve(&workers, listener, answer_peer).unwrap();
        assert_eq!(get(&mut connect(&server), "/"), ok("None"));
    });
}

#[test]
fn what_cannot_work_is_an_error_that_says_so() {
    within(|| {
        let workers = group(1);
        let try_serve = |http: Http, workers: &EventLoopGroup| {
            http.serve(workers, "127.0.0.1:0", paths(&Door::new()))
                .unwrap_err()
        };
        for (http, name) in [
            (
                Http::new().header_timeout(Duration::ZERO),
                "header_timeout(0)",
            ),
            (Http::new().idle_timeout(Duration::ZERO), "idle_timeout(0)"),
            (
                Http::new().request_timeout(Duration::ZERO),
                "request_timeout(0)",
            ),
        ] {
            let error = try_serve(http, &workers);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(name), "{error}");
        }
        let without_io = util::group_with_io(1, false);
        let error = try_serve(Http::new(), &without_io);
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let error = serve(&workers, "nowhere", paths(&Door::new())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        workers.shutdown_now().wait();
        let error = try_serve(Http::new(), &workers);
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_connection_with_an_error_counts_as_failed_and_one_that_is_closed_while_idle_does_not() {
    within(|| {
        let workers = group(1);
        let failed = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&failed);
        let listener = Server::new("127.0.0.1:0")
            .unwrap()
            .on_connection(move |event| {
                if let Some((ConnectionEnd::Failed, _)) = event.end() {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            });
        let server = serve(&workers, listener, paths(&Door::new())).unwrap();
        let mut polite = connect(&server);
        assert_eq!(get(&mut polite, "/"), ok("/"));
        drop(polite);
        // One that is reset: before its first byte, and while it is idle.
        for requests in [0, 1] {
            let mut rude = connect(&server);
            for _ in 0..requests {
                assert_eq!(get(&mut rude, "/"), ok("/"));
            }
            eventually("it is served", || server.connections() > 0);
            socket2::SockRef::from(&rude)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            drop(rude);
            eventually("it has ended", || server.connections() == 0);
        }
        assert_eq!(server.server().failed(), 0);
        let mut bad = connect(&server);
        bad.write_all(b"this is no request\r\n\r\n").unwrap();
        assert_eq!(read_answer(&bad).0, 400);
        // One that goes away in the middle of its request.
        let mut gone = connect(&server);
        gone.write_all(b"GET / HTTP/1.1\r\nho").unwrap();
        drop((bad, gone));
        eventually("all have come", || server.server().accepted() == 5);
        eventually("all have ended", || server.connections() == 0);
        workers.drain(LONG).wait();
        let report = block_on(server);
        assert_eq!(
            (report.completed(), report.failed(), report.aborted()),
            (3, 2, 0)
        );
        assert_eq!(failed.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_service_that_never_answers_is_counted_as_aborted() {
    within(|| {
        let (workers, door) = (group(1), Door::new());
        let server = serve(&workers, "127.0.0.1:0", paths(&door)).unwrap();
        let (mut stuck, mut idle) = (connect(&server), connect(&server));
        ask(&mut stuck, "/wait");
        assert_eq!(get(&mut idle, "/"), ok("/"));
        eventually("the request", || door.waiting() == 1);
        let report = workers.drain(ms(30)).wait();
        assert!(!report.is_clean());
        let waits: Vec<_> = report.left().iter().map(|left| left.waits_for()).collect();
        assert_eq!(waits, [Some(WaitsFor::Service)], "{report}");
        let text = report.to_string();
        assert!(text.ends_with("waiting for its service"), "{text}");
        let report = block_on(server);
        assert_eq!((report.completed(), report.aborted()), (1, 1), "{report}");
        assert_eq!((report.failed(), report.rejected()), (0, 0), "{report}");
    });
}

#[test]
fn a_request_that_is_no_http_ends_its_connection_only() {
    within(|| {
        let workers = group(1);
        let errors = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&errors);
        let server = Http::new()
            .on_error(move |error, _| {
                assert!(
                    error
                        .get_ref()
                        .is_some_and(|inner| inner.is::<hyper::Error>())
                );
                seen.fetch_add(1, Ordering::SeqCst);
            })
            .serve(&workers, "127.0.0.1:0", paths(&Door::new()))
            .unwrap();
        let mut good = connect(&server);
        assert_eq!(get(&mut good, "/"), ok("/"));
        let mut bad = connect(&server);
        bad.write_all(b"\x16\x03\x01 this is no request\r\n\r\n")
            .unwrap();
        let Got(status, _, _) = read_answer(&bad);
        assert_eq!(status, 400);
        assert_closed(&mut bad);
        assert_eq!(get(&mut good, "/"), ok("/"));
        eventually("the error", || errors.load(Ordering::SeqCst) == 1);
    });
}
