//! hyper, client and server, HTTP/1 and HTTP/2, on our streams, executors and timer; servers by
//! `compat::hyper`.

use std::convert::Infallible;
use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use futures::channel::mpsc;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use loopgroup::compat::hyper::{Http, HttpHandle, LocalExecutor, Timer, serve, serve_tower};
use loopgroup::net::TcpStream;
use loopgroup::{EventLoopGroup, LoopBound, block_on, time};

use crate::util::{self, Door, HOUR, LONG, eventually, group, ms, on_a_loop, within};

/// Answers each request with its body; `/wait` only when the door is open, `/panic` never.
fn server(workers: &EventLoopGroup, door: &Door) -> HttpHandle {
    let door = door.clone();
    serve(workers, "127.0.0.1:0", move |_| {
        let door = door.clone();
        service_fn(move |request: Request<Incoming>| {
            let door = door.clone();
            async move {
                match request.uri().path() {
                    "/wait" => door.opened().await,
                    "/panic" => panic!("a request that blows up"),
                    _ => {}
                }
                let body = request.into_body().collect().await?.to_bytes();
                Ok::<_, hyper::Error>(Response::new(Full::new(body)))
            }
        })
    })
    .unwrap()
}

pub(crate) fn post(path: &str, body: &[u8]) -> Request<Full<Bytes>> {
    Request::post(path)
        .header("host", "localhost")
        .body(Full::from(body.to_vec()))
        .unwrap()
}

pub(crate) async fn body(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

type Sender = http2::SendRequest<Full<Bytes>>;
type Driver = loopgroup::JoinHandle<hyper::Result<()>>;

/// A client of HTTP/2 on the current loop, and the task that drives its connection.
async fn http2_client(server: std::net::SocketAddr) -> (Sender, Driver) {
    let stream = TcpStream::connect(server).await.unwrap();
    let mut builder = http2::Builder::new(LocalExecutor);
    let handshake = builder.timer(Timer).handshake(stream);
    let (send, connection) = handshake.await.unwrap();
    (send, loopgroup::spawn_local(connection))
}

#[test]
fn one_connection_of_http1_carries_many_requests() {
    within(|| {
        let group = group(2);
        let server = server(&group, &Door::new());
        let client = group.spawn(async move {
            let stream = TcpStream::connect(server.local_addr()).await.unwrap();
            let (mut send, connection) = http1::handshake(stream).await.unwrap();
            let connection = loopgroup::spawn_local(connection);
            for size in [0, 10, 300_000] {
                let sent = vec![7; size];
                let response = send.send_request(post("/", &sent)).await.unwrap();
                assert!(body(response).await == sent);
                send.ready().await.unwrap();
            }
            drop(send);
            connection.await.unwrap().unwrap();
        });
        group.block_on(client).unwrap();
    });
}

#[test]
fn http2_requests_run_at_once_with_a_send_and_with_a_local_executor() {
    within(|| {
        let group = group(2);
        let server = server(&group, &Door::new());
        let executor = group.clone();
        let client = group.spawn_with(move || async move {
            for local in [true, false] {
                let send = if local {
                    http2_client(server.local_addr()).await.0
                } else {
                    let stream = TcpStream::connect(server.local_addr()).await.unwrap();
                    let builder = http2::Builder::new(executor.clone());
                    let (send, connection) = builder.handshake(stream).await.unwrap();
                    drop(loopgroup::spawn(connection));
                    send
                };
                let requests = (0..50).map(|number| {
                    let mut send = send.clone();
                    async move {
                        let sent = vec![number; 20_000];
                        let request = post("http://localhost/", &sent);
                        assert!(body(send.send_request(request).await.unwrap()).await == sent);
                    }
                });
                futures::future::join_all(requests).await;
            }
        });
        group.block_on(client).unwrap();
    });
}

#[test]
fn a_request_at_hand_is_answered_when_the_group_drains() {
    within(|| {
        let (workers, clients) = (group(1), group(1));
        let door = Door::new();
        let server = server(&workers, &door);
        let client = clients.spawn(async move {
            let stream = TcpStream::connect(server.local_addr()).await.unwrap();
            let (mut send, connection) = http1::handshake(stream).await.unwrap();
            let connection = loopgroup::spawn_local(connection);
            let answered = body(send.send_request(post("/wait", b"late")).await.unwrap()).await;
            connection.await.unwrap().unwrap(); // ended by the server, though it was to be kept
            answered
        });
        eventually("the request at the door", || door.waiting() == 1);
        let ended = workers.drain(util::WATCHDOG);
        door.open();
        assert_eq!(clients.block_on(client).unwrap(), "late");
        assert!(ended.wait().is_clean());
    });
}

#[test]
fn http2_streams_finish_during_a_drain_and_idle_connections_end() {
    within(|| {
        let (workers, clients) = (group(2), group(1));
        let door = Door::new();
        let server = server(&workers, &door);
        let address = server.local_addr();
        let client = clients.spawn_with(move || async move {
            let (mut idle, idle_end) = http2_client(address).await;
            let request = post("http://localhost/", b"idle");
            assert_eq!(
                body(idle.send_request(request).await.unwrap()).await,
                "idle"
            );
            let (send, end) = http2_client(address).await;
            let requests = (0..20_u8).map(|number| {
                let mut send = send.clone();
                async move {
                    let sent = vec![number; 100_000];
                    let request = post("http://localhost/wait", &sent);
                    assert!(body(send.send_request(request).await.unwrap()).await == sent);
                }
            });
            futures::future::join_all(requests).await;
            // Both by the server, without an error, though the clients keep them.
            end.await.unwrap().unwrap();
            idle_end.await.unwrap().unwrap();
            assert!(send.is_closed() && idle.is_closed());
        });
        eventually("the streams", || door.waiting() >= 20);
        let ended = workers.drain(HOUR);
        workers.loops().iter().for_each(util::flush);
        door.open();
        clients.block_on(client).unwrap();
        assert!(ended.wait().is_clean());
        assert_eq!(block_on(server).completed(), 2);
    });
}

#[test]
fn under_load_every_http2_request_that_the_service_has_seen_is_answered() {
    within(|| {
        let (workers, clients) = (group(2), group(1));
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let server = serve(&workers, "127.0.0.1:0", move |_| {
            let count = Arc::clone(&count);
            service_fn(move |request: Request<Incoming>| {
                count.fetch_add(1, Ordering::SeqCst);
                async move {
                    let body = request.into_body().collect().await?.to_bytes();
                    Ok::<_, hyper::Error>(Response::new(Full::new(body)))
                }
            })
        })
        .unwrap();
        let address = server.local_addr();
        let client = clients.spawn_with(move || async move {
            let mut tasks = Vec::new();
            for number in 0..4_u8 {
                let send = http2_client(address).await.0;
                for stream in 0..16_u8 {
                    let mut send = send.clone();
                    tasks.push(loopgroup::spawn_local(async move {
                        let mut answered = 0;
                        loop {
                            let sent = vec![16 * number + stream; 3_000];
                            // Refused by the GOAWAY, or answered completely.
                            let request = send.send_request(post("http://localhost/", &sent));
                            match request.await {
                                Err(_) => return answered,
                                Ok(response) => assert!(body(response).await == sent),
                            }
                            answered += 1;
                        }
                    }));
                }
            }
            let mut answered = 0;
            for task in tasks {
                answered += task.await.unwrap();
            }
            answered
        });
        eventually("load", || calls.load(Ordering::SeqCst) > 500);
        assert!(workers.drain(HOUR).wait().is_clean());
        let answered: usize = clients.block_on(client).unwrap();
        assert_eq!(answered, calls.load(Ordering::SeqCst));
    });
}

#[test]
fn a_stream_that_panics_is_answered_and_the_others_go_on() {
    within(|| {
        let workers = EventLoopGroup::builder().loops(1).on_panic(|_| {});
        let workers = workers.build().unwrap();
        let (clients, door) = (group(1), Door::new());
        let server = server(&workers, &door);
        let opens = door.clone();
        let client = clients.spawn_with(move || async move {
            let (send, _end) = http2_client(server.local_addr()).await;
            let mut other = send.clone();
            let waiting = loopgroup::spawn_local(async move {
                let request = post("http://localhost/wait", b"slow");
                body(other.send_request(request).await.unwrap()).await
            });
            for _ in 0..10 {
                let request = post("http://localhost/panic", b"");
                let response = send.clone().send_request(request).await.unwrap();
                assert_eq!(response.status(), 500);
            }
            opens.open();
            assert_eq!(waiting.await.unwrap(), "slow");
        });
        clients.block_on(client).unwrap();
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn an_idle_http2_connection_is_told_to_go_and_a_stream_under_way_is_not() {
    within(|| {
        let (workers, clients) = (group(1), group(1));
        // A response that takes much longer than the limit, part by part.
        let server = Http::new()
            .idle_timeout(ms(40))
            .serve(&workers, "127.0.0.1:0", |_| {
                service_fn(|_: Request<Incoming>| async {
                    let (mut parts, body) = mpsc::channel(0);
                    drop(loopgroup::spawn_local(async move {
                        use futures::SinkExt;
                        for _ in 0..10 {
                            time::sleep(ms(20)).await;
                            let frame = Ok::<_, Infallible>(Frame::data(Bytes::from("part ")));
                            parts.send(frame).await.unwrap();
                        }
                    }));
                    Ok::<_, Infallible>(Response::new(StreamBody::new(body)))
                })
            })
            .unwrap();
        let client = clients.spawn_with(move || async move {
            let (mut send, end) = http2_client(server.local_addr()).await;
            let start = time::now();
            let response = send.send_request(post("http://localhost/", b"")).await;
            assert_eq!(body(response.unwrap()).await, "part ".repeat(10));
            assert!(time::now() - start >= ms(200));
            end.await.unwrap().unwrap(); // by the server
        });
        clients.block_on(client).unwrap();
    });
}

#[test]
fn a_client_that_says_nothing_is_timed_out() {
    on_a_loop(|| async {
        let (_client, server) = crate::tcp_pair().await?;
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(Timer)
            .header_read_timeout(Duration::from_millis(20));
        let answer = |_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
        let start = time::now();
        let served = builder.serve_connection(server, service_fn(answer)).await;
        assert!(served.unwrap_err().to_string().contains("timeout"));
        assert!(time::now() - start >= Duration::from_millis(20));
        Ok(())
    });
}

#[test]
fn axum_serves_with_state_of_its_loop() {
    type Visits = LoopBound<std::rc::Rc<std::cell::Cell<u64>>>;
    within(|| {
        let workers = group(2);
        let server = serve_tower(&workers, "127.0.0.1:0", |here| {
            let count = |State(visits): State<Visits>| async move {
                visits.with_local(|visits| {
                    visits.set(visits.get() + 1);
                    visits.get().to_string()
                })
            };
            let visits: Visits = here.bind(Default::default);
            Router::new().route("/", get(count)).with_state(visits)
        })
        .unwrap();
        let clients = group(1);
        let address = server.local_addr();
        let client = clients.spawn_with(move || async move {
            for visit in 1..=3 {
                for _ in 0..2 {
                    // One connection on each loop, in turn.
                    let (mut send, _end) = http2_client(address).await;
                    let request = Request::get("http://localhost/").body(Full::default());
                    let response = send.send_request(request.unwrap()).await.unwrap();
                    assert_eq!(body(response).await, visit.to_string());
                }
            }
        });
        clients.block_on(client).unwrap();
        assert!(workers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn curl_gets_answers_over_both_protocols_and_a_body_of_megabytes() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("curl is not installed: not tested here");
        return;
    }
    within(|| {
        let workers = group(2);
        let server = server(&workers, &Door::new());
        let url = format!("http://{}/", server.local_addr());
        let file = util::TempPath::new("body");
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::File::create(&file.0)
            .unwrap()
            .write_all(&sent)
            .unwrap();
        let data = format!("@{}", file.0.display());
        for protocol in ["--http1.1", "--http2-prior-knowledge", "--http1.0"] {
            let curl = Command::new("curl")
                .args(["--silent", "--show-error", "--fail", "--max-time", "30"])
                .args([protocol, "--data-binary", &data, &url])
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&curl.stderr);
            assert!(curl.status.success(), "{protocol}: {errors}");
            assert!(curl.stdout == sent, "{protocol}");
        }
        assert!(workers.drain(LONG).wait().is_clean());
    });
}
