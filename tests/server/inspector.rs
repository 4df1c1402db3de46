//! The inspector, seen from clients that write their bytes by hand: what it answers, and what it refuses.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::inspect::{Inspector, InspectorHandle};
use loopgroup::net::{Rebalance, TcpStream as Served, Turn};
use loopgroup::{EventLoopGroup, GroupView, Prometheus, block_on};
use serde_json::Value;

use crate::util::{HOUR, LONG, eventually, flush, group, ms, secs, within};
use crate::{connect as connect_to, serve_on};

const TOKEN: &str = "a-token-of-some-length";

fn inspector(groups: &[(&str, &EventLoopGroup)]) -> InspectorHandle {
    let watch = |inspector: Inspector, (name, group): &(&str, &EventLoopGroup)| {
        inspector.watch(*name, group)
    };
    let inspector = groups.iter().fold(Inspector::new(), watch);
    inspector.serve("127.0.0.1:0").unwrap()
}

fn connect(at: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(at).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client
}

/// A response, with the names of its headers in lower case.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(known, _)| known == name)?;
        Some(&header.1)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Reads the status and the headers.
fn read_head(reader: &mut impl BufRead) -> Answer {
    let mut lines = reader.by_ref().lines().map(Result::unwrap);
    let status = lines.next().expect("a status line");
    let status = status.split(' ').nth(1).unwrap().parse().unwrap();
    let lines = lines.take_while(|line| !line.is_empty());
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    });
    Answer {
        status,
        headers: headers.collect(),
        body: String::new(),
    }
}

/// Sends these bytes, and reads what comes until the server closes.
fn exchange(at: SocketAddr, request: &str) -> Answer {
    let mut client = connect(at);
    client.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(client);
    let mut answer = read_head(&mut reader);
    // A server that does not read a body to its end may reset the connection.
    let mut bytes = Vec::new();
    let _ = reader.read_to_end(&mut bytes);
    answer.body = String::from_utf8(bytes).unwrap();
    answer
}

fn request(at: SocketAddr, method: &str, path: &str, headers: &[&str]) -> Answer {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    exchange(
        at,
        &format!("{method} {path} HTTP/1.1\r\n{lines}connection: close\r\n\r\n"),
    )
}

fn get(inspector: &InspectorHandle, path: &str) -> Answer {
    let at = inspector.local_addr();
    request(at, "GET", path, &[&format!("host: {at}")])
}

fn picture(inspector: &InspectorHandle) -> Value {
    let answer = get(inspector, "/api/snapshot");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// A stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(inspector: &InspectorHandle) -> Result<Stream, Answer> {
        let at = inspector.local_addr();
        let mut client = connect(at);
        write!(client, "GET /api/stream HTTP/1.1\r\nhost: {at}\r\n\r\n").unwrap();
        let mut reader = BufReader::new(client);
        let head = read_head(&mut reader);
        if head.status != 200 {
            return Err(head);
        }
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("transfer-encoding"), Some("chunked"));
        Ok(Stream(reader))
    }

    /// The next event, with its blank line; `None` at the end.
    fn next(&mut self) -> Option<String> {
        let mut size = String::new();
        self.0.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk).unwrap();
        assert!(chunk.ends_with(b"\r\n"));
        chunk.truncate(size);
        (size > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    fn next_picture(&mut self) -> Value {
        let event = self.next().expect("a picture");
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        serde_json::from_str(data.unwrap()).unwrap()
    }
}

#[test]
fn every_path_answers_with_its_kind_and_the_headers_of_all() {
    within(|| {
        let group = group(2);
        let inspector = inspector(&[("workers", &group)]);
        for (path, status, kind) in [
            ("/", 200, "text/html; charset=utf-8"),
            ("/favicon.ico", 200, "image/svg+xml"),
            ("/metrics", 200, Prometheus::CONTENT_TYPE),
            ("/api/snapshot", 200, "application/json"),
            ("/api/snapshot?with=a&query=%41", 200, "application/json"),
            ("/api/nothing", 404, "text/plain; charset=utf-8"),
            ("//", 404, "text/plain; charset=utf-8"),
            ("/../etc/passwd", 404, "text/plain; charset=utf-8"),
        ] {
            let answer = get(&inspector, path);
            assert_eq!(
                (answer.status, answer.header("content-type")),
                (status, Some(kind)),
                "{path}"
            );
            assert_secured(&answer);
        }
        assert!(get(&inspector, "/").body.starts_with("<!doctype html>"));
        assert!(get(&inspector, "/nothing").body.contains("/api/stream"));
        let text = get(&inspector, "/metrics").body;
        assert!(text.contains("loopgroup_utilization_ratio{group=\"workers\",loop=\"1\"} 0\n"));
        inspector.stop();
        assert!(inspector.termination().wait().is_clean());
    });
}

#[track_caller]
fn assert_secured(answer: &Answer) {
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{answer:?}");
    }
    let policy = answer.header("content-security-policy").unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'sha256-",
        "style-src 'sha256-",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn a_head_request_gets_the_headers_alone() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let at = inspector.local_addr();
        for path in ["/", "/metrics", "/api/snapshot", "/api/stream"] {
            let answer = request(at, "HEAD", path, &[&format!("host: {at}")]);
            assert_eq!((answer.status, &*answer.body), (200, ""), "{path}");
        }
        inspector.stop();
    });
}

#[test]
fn what_is_not_a_plain_request_of_this_machine_is_refused() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let at = inspector.local_addr();
        let host = format!("host: {at}");
        let port = at.port();
        let foreign = format!("host: evil.example:{port}");
        let origin = format!("origin: http://localhost:{port}"); // not that of the Host
        let refused: &[(&str, &[&str], u16)] = &[
            ("GET", &[], 400),
            ("GET", &[&foreign], 403),
            ("GET", &["host: localhost"], 403),
            ("GET", &[&host, &host], 400),
            ("GET", &[&host, "origin: http://evil.example"], 403),
            ("GET", &[&host, "origin: null"], 403),
            ("GET", &[&host, &origin], 403),
            ("GET", &[&host, "sec-fetch-site: cross-site"], 403),
            (
                "GET",
                &[
                    &host,
                    "sec-fetch-site: same-site",
                    "sec-fetch-mode: no-cors",
                ],
                403,
            ),
            ("POST", &[&host], 405),
            ("OPTIONS", &[&host, "origin: http://evil.example"], 405),
            ("DELETE", &[&host], 405),
            ("GET", &[&host, "content-length: 3"], 413),
            ("GET", &[&host, "transfer-encoding: chunked"], 413),
        ];
        for (method, headers, status) in refused {
            let answer = request(at, method, "/api/snapshot", headers);
            assert_eq!(answer.status, *status, "{method} {headers:?}");
            assert!(!answer.body.contains("workers"), "{answer:?}");
            assert_secured(&answer);
            if *status == 405 {
                assert_eq!(answer.header("allow"), Some("GET, HEAD"));
            }
        }
        let absolute =
            format!("GET http://evil.example/ HTTP/1.1\r\n{host}\r\nconnection: close\r\n\r\n");
        assert_eq!(exchange(at, &absolute).status, 400);
        let old = exchange(at, "GET / HTTP/1.0\r\n\r\n");
        assert_eq!(old.status, 400, "HTTP/1.0 without a Host");
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let mut client = connect(at);
        client.write_all(preface.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let _ = client.read_to_end(&mut bytes);
        assert!(!bytes.starts_with(b"HTTP/1.1 200"), "HTTP/2 is not spoken");
        // And still these are fine.
        let navigation = [
            &*host,
            "sec-fetch-site: cross-site",
            "sec-fetch-mode: navigate",
            "sec-fetch-dest: document",
        ];
        assert_eq!(request(at, "GET", "/", &navigation).status, 200);
        let name = format!("host: localhost:{port}");
        assert_eq!(request(at, "GET", "/api/snapshot", &[&name]).status, 200);
        inspector.stop();
    });
}

#[test]
fn heads_that_are_too_large_are_refused() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let at = inspector.local_addr();
        let host = format!("host: {at}");
        let long = format!("x-long: {}", "x".repeat(20_000));
        assert_eq!(request(at, "GET", "/", &[&host, &long]).status, 431);
        let many: Vec<_> = (0..80).map(|number| format!("x-{number}: 1")).collect();
        let many: Vec<_> = many.iter().map(|line| &**line).chain([&*host]).collect();
        assert_eq!(request(at, "GET", "/", &many).status, 431);
        assert_eq!(get(&inspector, "/").status, 200);
        inspector.stop();
    });
}

#[test]
fn with_a_token_nothing_is_answered_without_it() {
    within(|| {
        let group = group(1);
        let inspector = Inspector::new()
            .watch("workers", &group)
            .allow_remote(TOKEN);
        let inspector = inspector.serve("0.0.0.0:0").unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], inspector.local_addr().port()));
        assert_eq!(inspector.url(), format!("http://{at}/?token={TOKEN}"));
        assert!(!format!("{inspector:?}").contains(TOKEN));
        for path in [
            "/",
            "/metrics",
            "/api/snapshot",
            "/api/stream",
            "/favicon.ico",
            "/?token=wrong",
        ] {
            let answer = request(at, "GET", path, &["host: build.example"]);
            assert_eq!(
                (answer.status, answer.header("www-authenticate")),
                (401, Some("Bearer")),
                "{path}"
            );
            assert_secured(&answer);
        }
        let bearer = format!("authorization: Bearer {TOKEN}");
        assert_eq!(
            request(at, "GET", "/metrics", &["host: build.example", &bearer]).status,
            200
        );
        let page = request(
            at,
            "GET",
            &format!("/?token={TOKEN}"),
            &["host: build.example"],
        );
        assert_eq!(page.status, 200);
        let cookie = page
            .header("set-cookie")
            .unwrap()
            .split(';')
            .next()
            .unwrap();
        let cookie = format!("cookie: {cookie}");
        let answer = request(
            at,
            "GET",
            "/api/snapshot",
            &["host: build.example", &cookie],
        );
        assert_eq!(answer.status, 200);
        inspector.stop();
    });
}

#[test]
fn a_picture_shows_which_connections_move_and_why_and_which_loops_are_paused() {
    within(|| {
        let builder = EventLoopGroup::builder().loops(2);
        let group = builder.chooser(|_: &GroupView<'_>| 0).build().unwrap();
        let busy = async |mut stream: &Served, (): &mut ()| -> io::Result<Turn> {
            let mut byte = [0];
            stream.read_exact(&mut byte).await?;
            let end = Instant::now() + ms(1);
            while Instant::now() < end {}
            stream.write_all(&byte).await?;
            Ok(Turn::Next)
        };
        let server = serve_on(&group)
            .rebalance(Rebalance::by_utilization().period(ms(50)))
            .serve_turns(|_, _| (), busy)
            .unwrap();
        let inspector = Inspector::new()
            .watch("workers", &group)
            .watch_server("busy", &server)
            .serve("127.0.0.1:0")
            .unwrap();
        let clients: Vec<_> = (0..4).map(|_| connect_to(&server)).collect();
        eventually("one is moved", || {
            for mut client in &clients {
                client.write_all(b"x").unwrap();
            }
            for mut client in &clients {
                client.read_exact(&mut [0]).unwrap();
            }
            server.moves() > 0
        });
        group.loops()[1].pause();
        let shown = picture(&inspector);
        let one = &shown["servers"][0];
        assert!(one["moves"].as_u64() >= Some(1) && one["move_requests"].as_u64() >= Some(1));
        let decisions = one["decisions"].as_array().unwrap();
        let first = decisions.last().unwrap(); // the newest one is the first
        assert_eq!((&first["from"], &first["to"]), (&0.into(), &1.into()));
        let number = |name: &str| first[name].as_f64().unwrap();
        assert!(number("to_utilization") < 0.8 * number("from_utilization"));
        assert!(number("share") > 0.0 && number("ago") >= 0.0);
        assert_eq!(shown["groups"][0]["loops"][1]["state"], "paused");
        let text = get(&inspector, "/metrics").body;
        let rebalanced = "loopgroup_server_rebalanced_total{server=\"busy\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(rebalanced));
        assert!(line.unwrap().parse::<u64>().unwrap() >= 1);
        drop(clients);
        server.stop();
        inspector.stop();
    });
}

#[test]
fn a_picture_shows_loops_wakes_and_servers() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(2)
            .measure_time(true)
            .build()
            .unwrap();
        let server = serve_on(&group)
            .serve(|stream, _| async move { futures::io::copy(&stream, &mut &stream).await })
            .unwrap();
        let inspector = Inspector::new()
            .watch("workers", &group)
            .watch_server("echo <b>", &server)
            .serve("127.0.0.1:0")
            .unwrap();
        let clients = [
            connect_to(&server),
            connect_to(&server),
            connect_to(&server),
        ];
        eventually("all are accepted", || server.connections() == 3);
        eventually("all are served, one loop has two", || {
            let by_loop = picture(&inspector)["servers"][0]["by_loop"].clone();
            by_loop == serde_json::json!([2, 1]) || by_loop == serde_json::json!([1, 2])
        });
        block_on(group.spawn_on(1, async {})).unwrap();
        eventually("the task is counted", || {
            let shown = picture(&inspector);
            let histogram = &shown["groups"][0]["poll_times"];
            let loops = shown["groups"][0]["loops"].as_array().unwrap();
            let polls: u64 = loops.iter().map(|one| one["polls"].as_u64().unwrap()).sum();
            histogram["count"].as_u64().unwrap() >= 4 && polls >= 4
        });
        let shown = picture(&inspector);
        let one = &shown["groups"][0];
        assert_eq!(
            (&one["name"], &one["state"]),
            (&"workers".into(), &"running".into())
        );
        assert_eq!(one["loops"].as_array().unwrap().len(), 2);
        assert_eq!(one["wakes"].as_array().unwrap().len(), 2);
        assert_eq!(one["wakes"][1].as_array().unwrap().len(), 2);
        assert_eq!(one["outside_wakes"].as_array().unwrap().len(), 2);
        assert_eq!(one["loops"][1]["index"], 1);
        assert_eq!(one["loops"][1]["state"], "started");
        assert!(one["loops"][0]["utilization"].is_f64());
        assert!(one["shutdown"].is_null() && one["ended_ago"].is_null());
        let buckets = one["poll_times"]["buckets"].as_array().unwrap();
        let counted: u64 = buckets.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
        assert_eq!(Some(counted), one["poll_times"]["count"].as_u64());
        let echo = &shown["servers"][0];
        assert_eq!(
            (&echo["name"], &echo["state"]),
            (&"echo <b>".into(), &"listening".into())
        );
        assert_eq!(
            (&echo["connections"], &echo["accepted"]),
            (&3.into(), &3.into())
        );
        assert_eq!(echo["address"], server.local_addr().to_string());
        assert!(echo["place"].as_str().unwrap().contains("inspector.rs:"));
        drop(clients);
        server.stop();
        block_on(server);
        assert_eq!(picture(&inspector)["servers"][0]["state"], "ended");
        inspector.stop();
    });
}

#[test]
fn a_stream_begins_with_a_picture_and_goes_on_at_its_period() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let mut stream = Stream::open(&inspector).unwrap_or_else(|head| panic!("{head:?}"));
        let first = stream.next().unwrap();
        assert!(
            first.starts_with("retry: 1000\nevent: picture\ndata: {"),
            "{first:.80}"
        );
        assert!(first.ends_with("}\n\n") && first.matches('\n').count() == 4);
        let second = stream.next().unwrap();
        assert!(
            second.starts_with("event: picture\ndata: {"),
            "{second:.80}"
        );
        let (one, two) = (stream.next_picture(), stream.next_picture());
        assert_eq!(one["instance"], two["instance"]);
        let between = two["at"].as_f64().unwrap() - one["at"].as_f64().unwrap();
        assert!(
            between > 0.2,
            "{between} s between two pictures: four a second at most"
        );
        assert_eq!(two["inspector"]["streams"], 1);
        inspector.stop();
        while stream.next().is_some() {}
        assert!(inspector.termination().wait().is_clean());
    });
}

#[test]
fn nothing_is_read_while_nobody_looks() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let taken = || {
            picture(&inspector)["inspector"]["pictures"]
                .as_u64()
                .unwrap()
        };
        let mut stream = Stream::open(&inspector).unwrap_or_else(|head| panic!("{head:?}"));
        stream.next_picture();
        drop(stream);
        eventually("the stream is closed", || {
            picture(&inspector)["inspector"]["streams"] == 0
        });
        let before = taken();
        block_on(group.spawn(loopgroup::time::sleep(ms(600)))).unwrap(); // two periods and more
        assert_eq!(taken(), before + 1, "the one that tells");
        inspector.stop();
    });
}

#[test]
fn streams_are_limited_and_those_of_several_pages_share_their_pictures() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let open = || Stream::open(&inspector);
        let mut streams: Vec<_> = (0..16)
            .map(|_| open().unwrap_or_else(|head| panic!("there is room: {head:?}")))
            .collect();
        let refused = open().err().expect("the seventeenth is refused");
        assert_eq!(refused.status, 503);
        assert_secured(&refused);
        let pictures: Vec<_> = streams.iter_mut().map(|one| one.next_picture()).collect();
        let taken = pictures
            .iter()
            .map(|one| one["inspector"]["pictures"].as_u64());
        assert!(taken.max().unwrap() <= Some(16));
        drop(streams.pop());
        eventually("there is room again", || open().is_ok());
        inspector.stop();
    });
}

#[test]
fn idle_connections_wait_for_each_other_and_not_for_the_watched_group() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let idle: Vec<_> = (0..200).map(|_| connect(inspector.local_addr())).collect();
        assert_eq!(block_on(group.spawn(async { 7 })).unwrap(), 7);
        drop(idle);
        assert_eq!(get(&inspector, "/").status, 200);
        inspector.stop();
    });
}

#[test]
fn a_watched_group_ends_when_its_last_handle_is_dropped_and_stays_on_the_page() {
    within(|| {
        let group = group(2);
        let inspector = inspector(&[("workers", &group)]);
        block_on(group.spawn(async {})).unwrap();
        let mut stream = Stream::open(&inspector).unwrap_or_else(|head| panic!("{head:?}"));
        assert_eq!(stream.next_picture()["groups"][0]["state"], "running");
        let end = group.termination();
        drop(group);
        let report = end.wait();
        assert_eq!(report.completed(), 1);
        let last = loop {
            let shown = stream.next_picture();
            if !shown["groups"][0]["ended_ago"].is_null() {
                break shown;
            }
        };
        let one = &last["groups"][0];
        assert_eq!(one["state"], "ended");
        assert_eq!(one["loops"][0]["completed"], 1);
        let shutdown = &one["shutdown"];
        assert_eq!(
            (&shutdown["until"], &shutdown["clean"]),
            (&"quiet".into(), &true.into())
        );
        assert_eq!(shutdown["report"], report.to_string());
        assert!(shutdown["took"].is_f64() && shutdown["loops"][0]["ended"].is_f64());
        assert!(
            get(&inspector, "/metrics")
                .body
                .contains("loopgroup_tasks_accepted_total{group=\"workers\",loop=\"0\"} 1\n")
        );
        inspector.stop();
        assert!(inspector.termination().wait().is_clean());
    });
}

#[test]
fn a_group_that_has_ended_can_be_watched() {
    within(|| {
        let group = group(1);
        group.shutdown_now().wait();
        let inspector = inspector(&[("workers", &group)]);
        eventually("it is shown", || {
            picture(&inspector)["groups"][0]["state"] == "ended"
        });
        inspector.stop();
    });
}

#[test]
fn a_shutdown_is_shown_with_what_it_waits_for() {
    within(|| {
        let group = group(2);
        let inspector = inspector(&[("workers", &group)]);
        let (release, held) = futures::channel::oneshot::channel::<()>();
        let task = group.spawn_on(1, held);
        eventually("the task waits", || group.loops()[1].live_tasks() == 1);
        let end = group.drain(HOUR);
        let shown = picture(&inspector);
        let shutdown = &shown["groups"][0]["shutdown"];
        assert_eq!(shown["groups"][0]["state"], "shutting down");
        assert_eq!(
            (&shutdown["until"], &shutdown["timeout"]),
            (&"drained".into(), &3600.0.into())
        );
        assert!(shutdown["took"].is_null() && shutdown["clean"].is_null());
        assert_eq!(shutdown["loops"][1]["live"], 1);
        drop(release);
        assert!(block_on(task).unwrap().is_err());
        end.wait();
        eventually("the end is shown", || {
            let shutdown = &picture(&inspector)["groups"][0]["shutdown"];
            shutdown["clean"] == true && shutdown["loops"][1]["cause"] == "drained"
        });
        inspector.stop();
    });
}

#[test]
fn a_stuck_loop_is_seen_standing_still() {
    within(|| {
        let group = group(2);
        let inspector = inspector(&[("workers", &group)]);
        let (release, held) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        group.loops()[1]
            .execute(move || {
                begun.send(()).unwrap();
                held.recv().unwrap_or(())
            })
            .unwrap();
        begins.recv().unwrap();
        let mut stream = Stream::open(&inspector).unwrap_or_else(|head| panic!("{head:?}"));
        let busy = |shown: &Value| {
            shown["groups"][0]["loops"][1]["utilization"]
                .as_f64()
                .unwrap()
        };
        let mut last = busy(&stream.next_picture());
        while last < 0.6 {
            let now = busy(&stream.next_picture());
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        assert_eq!(get(&inspector, "/metrics").status, 200);
        assert_eq!(get(&inspector, "/").status, 200);
        drop(release);
        inspector.stop();
    });
}

#[test]
fn mistakes_are_errors_of_serve_that_say_what_to_do() {
    within(|| {
        let (one, other) = (group(1), group(1));
        let server = serve_on(&one).serve(|_, _| async {}).unwrap();
        let new = Inspector::new;
        let long = "x".repeat(65);
        for (inspector, address, part) in [
            (
                new().watch("", &one),
                "127.0.0.1:0",
                "name of a watched group is empty",
            ),
            (
                new().watch("  ", &one),
                "127.0.0.1:0",
                "name of a watched group is empty",
            ),
            (
                new().watch("a\nb", &one),
                "127.0.0.1:0",
                "control characters: \"a\\nb\"",
            ),
            (
                new().watch("\u{202e}a", &one),
                "127.0.0.1:0",
                "control characters",
            ),
            (
                new().watch(&*long, &one),
                "127.0.0.1:0",
                "has 65 characters: use 64 at most",
            ),
            (
                new().watch("a", &one).watch("a", &other),
                "127.0.0.1:0",
                "two watched groups have the name \"a\"",
            ),
            (
                new().watch("a", &one).watch("b", &one),
                "127.0.0.1:0",
                "\"b\" is the same group as \"a\"",
            ),
            (
                new().watch_server("", &server),
                "127.0.0.1:0",
                "name of a watched server is empty",
            ),
            (
                new().watch_server("a", &server).watch_server("b", &server),
                "127.0.0.1:0",
                "same server as \"a\"",
            ),
            (new().watch("a", &one), "0.0.0.0:0", "allow_remote"),
            (new().watch("a", &one), "[::]:0", "allow_remote"),
            (new().watch("a", &one), "192.0.2.1:9000", "127.0.0.1:9000"),
            (
                new().watch("a", &one).allow_remote("short"),
                "127.0.0.1:0",
                "has 5 characters: use 16 or more",
            ),
            (
                new().watch("a", &one).allow_remote(""),
                "0.0.0.0:0",
                "has 0 characters",
            ),
            (new().watch("a", &one), "127.0.0.1", "host:port"),
        ] {
            let error = inspector.serve(address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = new().watch("a", &one).serve(&[][..]).unwrap_err();
        assert!(error.to_string().contains("the list is empty"), "{error}");
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = new().watch("a", &one).serve(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        server.stop();
    });
}

#[test]
fn an_inspector_can_be_started_and_stopped_on_a_loop_of_the_watched_group() {
    within(|| {
        let group = group(1);
        let watched = group.clone();
        let inspector = group.spawn(async move { inspector(&[("workers", &watched)]) });
        let inspector = block_on(inspector).unwrap();
        assert_eq!(picture(&inspector)["groups"][0]["state"], "running");
        let stopped = inspector.clone();
        block_on(group.spawn(async move { stopped.stop() })).unwrap();
        assert!(inspector.termination().wait().is_clean());
    });
}

#[test]
fn a_stopped_inspector_releases_its_address_and_a_dropped_handle_does_not() {
    within(|| {
        let group = group(1);
        let address = inspector(&[("workers", &group)]).local_addr();
        let ask = || {
            request(
                address,
                "GET",
                "/api/snapshot",
                &[&format!("host: {address}")],
            )
        };
        assert_eq!(ask().status, 200, "the handle is dropped");
        let first = inspector(&[("workers", &group)]);
        let address = first.local_addr();
        first.stop();
        first.stop();
        first.termination().wait();
        let again = Inspector::new()
            .watch("workers", &group)
            .serve(address)
            .unwrap();
        assert_eq!(picture(&again)["groups"][0]["name"], "workers");
        again.stop();
    });
}

#[test]
fn pages_that_are_open_do_not_keep_an_inspector_from_stopping() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let mut streams: Vec<_> = (0..3)
            .filter_map(|_| Stream::open(&inspector).ok())
            .collect();
        let _silent = connect(inspector.local_addr());
        streams
            .iter_mut()
            .for_each(|stream| drop(stream.next_picture()));
        inspector.stop();
        for stream in &mut streams {
            while stream.next().is_some() {}
        }
        let end = inspector.termination().wait_timeout(secs(20));
        assert!(end.is_some_and(|report| report.elapsed() < Duration::from_secs(10)));
        let refused = TcpStream::connect(inspector.local_addr()).map(drop);
        assert_eq!(
            refused.map_err(|error: io::Error| error.kind()),
            Err(ErrorKind::ConnectionRefused)
        );
    });
}

/// A group whose tasks can be listed, with a watchdog and a flight recorder.
fn seen_group(loops: usize) -> EventLoopGroup {
    let builder = EventLoopGroup::builder().loops(loops).track_tasks(true);
    let builder = builder.watchdog(ms(20)).on_stall(|_| ());
    builder.flight_recorder(1_000).build().unwrap()
}

fn tasks(inspector: &InspectorHandle, question: &str) -> Value {
    let answer = get(inspector, &format!("/api/tasks?{question}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// One field of every task of an answer.
fn column(answer: &Value, name: &str) -> Vec<Value> {
    let tasks = answer["tasks"].as_array().unwrap();
    tasks.iter().map(|task| task[name].clone()).collect()
}

#[test]
fn tasks_are_sorted_filtered_and_cut_into_pages() {
    within(|| {
        let group = seen_group(2);
        let inspector = inspector(&[("workers", &group)]);
        for number in 0..60 {
            let one = group.loops()[number % 2]
                .task()
                .name(format!("task {:02}", 59 - number));
            drop(one.spawn(std::future::pending::<()>()));
        }
        let sleeper = group.loops()[1].task().name("<img src=x>\n");
        drop(sleeper.spawn(loopgroup::time::sleep(HOUR)));
        eventually("all tasks wait", || {
            group
                .metrics()
                .loops()
                .iter()
                .map(|one| one.live())
                .sum::<usize>()
                == 61
        });

        let all = tasks(&inspector, "group=workers");
        assert_eq!(
            (&all["total"], &all["matching"], &all["tracked"]),
            (&61.into(), &61.into(), &true.into())
        );
        assert_eq!(all["tasks"].as_array().unwrap().len(), 50, "a page");
        let by_name = tasks(&inspector, "sort=name&order=asc&limit=3&offset=1");
        assert_eq!(column(&by_name, "name"), ["task 00", "task 01", "task 02"]);
        let down = tasks(&inspector, "sort=name&order=desc&limit=2");
        assert_eq!(column(&down, "name"), ["task 59", "task 58"]);
        let last = tasks(&inspector, "limit=50&offset=1000");
        assert_eq!(
            (&last["offset"], column(&last, "id").len()),
            (&50.into(), 11)
        );
        let most = tasks(&inspector, "limit=1000000");
        assert_eq!(column(&most, "id").len(), 61, "up to 200");
        let here = tasks(&inspector, "loop=1&limit=200");
        assert_eq!(here["matching"], 31);
        assert!(column(&here, "loop").iter().all(|index| index == 1));
        let found = tasks(&inspector, "q=TASK%2007");
        assert_eq!(column(&found, "name"), ["task 07"]);
        let odd = tasks(&inspector, "q=%3Cimg");
        assert_eq!(
            column(&odd, "name"),
            ["<img src=x>\\n"],
            "a line break is shown, and is none"
        );
        assert!(
            column(&odd, "waits")[0][0]
                .as_str()
                .unwrap()
                .starts_with("a timer in")
        );
        assert_eq!(column(&odd, "state"), ["waiting"]);
        assert!(
            column(&odd, "place")[0]
                .as_str()
                .unwrap()
                .contains("tests/server/inspector.rs:")
        );
        assert_eq!(tasks(&inspector, "q=timer")["matching"], 1);
        assert_eq!(tasks(&inspector, "q=nothing+like+it")["matching"], 0);
        assert_eq!(tasks(&inspector, "state=running")["matching"], 0);
        for name in [
            "id", "state", "loop", "polls", "busy", "longest", "wakes", "idle", "age", "size",
            "waits", "place",
        ] {
            for order in ["asc", "desc"] {
                let sorted = tasks(&inspector, &format!("sort={name}&order={order}&limit=200"));
                assert_eq!(sorted["matching"], 61, "{name}");
            }
        }
        for (question, reason) in [
            ("sort=nothing", "sort is a column"),
            ("order=sideways", "order is asc or desc"),
            ("loop=first", "index of a loop"),
            ("state=asleep", "queued, running or waiting"),
            ("limit=-1", "limit is a number"),
            ("limit=0", "limit is a number, 1 or more"),
            ("offset=x", "offset is a number"),
        ] {
            let answer = get(&inspector, &format!("/api/tasks?{question}"));
            assert!(
                answer.status == 400 && answer.body.contains(reason),
                "{answer:?}"
            );
        }
        assert_eq!(get(&inspector, "/api/tasks?group=nobody").status, 404);
        inspector.stop();
    });
}

#[test]
fn a_group_that_does_not_track_its_tasks_says_so() {
    within(|| {
        let group = group(1);
        let inspector = inspector(&[("workers", &group)]);
        let answer = tasks(&inspector, "");
        assert_eq!(
            (&answer["tracked"], &answer["total"]),
            (&false.into(), &0.into())
        );
        assert_eq!(
            picture(&inspector)["groups"][0]["settings"]["track_tasks"],
            false
        );
        let dump = get(&inspector, "/api/dump");
        assert!(dump.body.contains("track_tasks(true)"), "{dump:?}");
        let trace = get(&inspector, "/api/trace");
        assert!(
            trace.status == 404 && trace.body.contains("flight_recorder"),
            "{trace:?}"
        );
        inspector.stop();
    });
}

#[test]
fn a_stall_is_shown_while_it_lasts_and_so_is_the_loop_that_is_in_it() {
    within(|| {
        let group = seen_group(2);
        let inspector = inspector(&[("workers", &group)]);
        let mut stream = Stream::open(&inspector).unwrap_or_else(|head| panic!("{head:?}"));
        assert_eq!(
            stream.next_picture()["groups"][0]["stalls"],
            serde_json::json!([])
        );
        let (release, held) = mpsc::channel::<()>();
        let line = line!() + 2;
        let named = group.loops()[1].task().name("stuck <b>");
        let task = named.spawn(async move { held.recv().unwrap_or(()) });
        let shown = loop {
            let shown = stream.next_picture();
            if shown["groups"][0]["stalls"][0].is_object() {
                break shown["groups"][0].clone();
            }
        };
        let stall = &shown["stalls"][0];
        assert_eq!(
            (&stall["loop"], &stall["name"]),
            (&1.into(), &"stuck <b>".into())
        );
        assert!(
            stall["place"]
                .as_str()
                .unwrap()
                .contains(&format!("inspector.rs:{line}:"))
        );
        assert!(stall["duration"].as_f64().unwrap() >= 0.02);
        assert_eq!(shown["loops"][1]["stalls"], 1);
        let running = &shown["loops"][1]["running"];
        assert_eq!(
            (&running["id"], &running["name"]),
            (&stall["id"], &stall["name"])
        );
        assert!(shown["loops"][0]["running"].is_null());
        let dump = get(&inspector, "/api/dump?group=workers").body;
        assert!(
            dump.starts_with("workers: 2 loops") && dump.contains("stuck <b>"),
            "{dump}"
        );
        let trace = get(&inspector, "/api/trace?seconds=60");
        assert_eq!(trace.header("content-type"), Some("application/json"));
        assert!(!trace.json()["traceEvents"].as_array().unwrap().is_empty());
        for seconds in ["0", "00", "long", "-1", "0.5", "18446744073709551616"] {
            let refused = get(&inspector, &format!("/api/trace?seconds={seconds}"));
            assert_eq!(refused.status, 400, "{seconds}");
            let reason = "seconds is a whole number above zero";
            assert!(refused.body.contains(reason), "{}", refused.body);
        }
        let all = get(&inspector, "/api/trace?seconds=18446744073709551615");
        assert_eq!(all.status, 200);
        assert_eq!(get(&inspector, "/api/dump?group=nobody").status, 404);
        drop(release);
        block_on(task).unwrap();
        inspector.stop();
    });
}

#[test]
fn a_shutdown_names_the_tasks_that_are_left_and_the_dump_outlives_the_group() {
    within(|| {
        let group = seen_group(1);
        let inspector = inspector(&[("workers", &group)]);
        let (release, held) = futures::channel::oneshot::channel::<()>();
        let last = group
            .task()
            .name("the last")
            .spawn(loopgroup::label("its release", held));
        flush(group.next()); // it is live from the beginning of its first poll, and waits at the end
        let end = group.drain(HOUR);
        let shown = picture(&inspector);
        let waits_for = shown["groups"][0]["shutdown"]["waits_for"][0]
            .as_str()
            .unwrap();
        assert!(
            waits_for.contains("“the last” on loop 0") && waits_for.contains("\"its release\""),
            "{waits_for}"
        );
        drop(release);
        assert!(block_on(last).unwrap().is_err());
        drop(group);
        end.wait();
        eventually("the end is shown", || {
            !picture(&inspector)["groups"][0]["ended_ago"].is_null()
        });
        assert_eq!(
            picture(&inspector)["groups"][0]["shutdown"]["waits_for"],
            serde_json::json!([])
        );
        assert_eq!(tasks(&inspector, "group=workers")["total"], 0);
        assert!(get(&inspector, "/api/dump").body.contains("Terminated"));
        assert_eq!(get(&inspector, "/api/trace").status, 200);
        inspector.stop();
        assert!(inspector.termination().wait().is_clean());
    });
}

/// A client that asks for a path, and does not read the answer.
fn silent(inspector: &InspectorHandle, path: &str) -> TcpStream {
    let at = inspector.local_addr();
    let mut client = connect(at);
    write!(client, "GET {path} HTTP/1.1\r\nhost: {at}\r\n\r\n").unwrap();
    client
}

#[test]
fn clients_that_do_not_read_take_neither_the_memory_nor_the_page() {
    within(|| {
        let group = seen_group(1);
        // A dump that is longer than what the system keeps of it for a client.
        let long = group.task().name("x".repeat(2 << 20));
        drop(long.spawn(std::future::pending::<()>()));
        let inspector = inspector(&[("workers", &group)]);
        let deaf: Vec<_> = (0..4).map(|_| silent(&inspector, "/api/dump")).collect();
        let status = || get(&inspector, "/api/dump").status;
        eventually("four dumps are held, and no fifth", || status() == 503);
        let refused = get(&inspector, "/api/trace");
        assert_eq!(refused.status, 503);
        assert!(refused.body.contains("try again"), "{refused:?}");
        assert_secured(&refused);
        assert_eq!(get(&inspector, "/").status, 200, "the page is still there");
        // They are closed after ten seconds, although they stay connected.
        eventually("there is room again", || {
            std::thread::sleep(ms(100)); // asks less often
            status() == 200
        });
        drop(deaf);
        inspector.stop();
        assert!(inspector.termination().wait().is_clean());
    });
}

#[test]
fn a_long_answer_that_is_read_slowly_arrives_as_a_whole() {
    within(|| {
        let group = seen_group(1);
        let long = group.task().name("x".repeat(4 << 20));
        drop(long.spawn(std::future::pending::<()>()));
        let inspector = inspector(&[("workers", &group)]);
        let mut reader = BufReader::new(silent(&inspector, "/api/dump"));
        let head = read_head(&mut reader);
        let length: usize = head.header("content-length").unwrap().parse().unwrap();
        assert!(length > 4 << 20);
        let mut body = vec![0; length];
        for part in body.chunks_mut(10_000) {
            reader.read_exact(part).unwrap();
        }
        assert!(String::from_utf8(body).unwrap().ends_with('\n'));
        inspector.stop();
    });
}
