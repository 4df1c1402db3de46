//! hyper, client and server, HTTP/1 and HTTP/2, on our streams, executors and timer.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::server::conn::auto::Builder;
use loopgroup::compat::hyper::{LocalExecutor, Timer};
use loopgroup::net::{Server, ServerHandle, TcpStream};
use loopgroup::{EventLoopGroup, time};

use crate::util::{Door, on_a_loop, within};

/// Answers each request with its body; `/wait` only when the door is open.
async fn serve(stream: TcpStream, door: Door) {
    let answer = move |request: Request<Incoming>| {
        let door = door.clone();
        async move {
            if request.uri().path() == "/wait" {
                door.opened().await;
            }
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Ok::<_, Infallible>(Response::new(Full::new(body)))
        }
    };
    let builder = Builder::new(LocalExecutor);
    let _ = ecosystem::until_shutdown(builder.serve_connection(stream, service_fn(answer))).await;
}

fn server(group: &EventLoopGroup, door: &Door) -> ServerHandle {
    let door = door.clone();
    let server = Server::new("127.0.0.1:0").unwrap().workers(group);
    server
        .serve(move |stream, _| serve(stream, door.clone()))
        .unwrap()
}

fn post(path: &str, body: &[u8]) -> Request<Full<Bytes>> {
    Request::post(path)
        .header("host", "localhost")
        .body(Full::from(body.to_vec()))
        .unwrap()
}

async fn body(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[test]
fn one_connection_of_http1_carries_many_requests() {
    within(|| {
        let group = EventLoopGroup::new(2).unwrap();
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
        let group = EventLoopGroup::new(2).unwrap();
        let server = server(&group, &Door::new());
        let executor = group.clone();
        let client = group.spawn_with(move || async move {
            for local in [true, false] {
                let stream = TcpStream::connect(server.local_addr()).await.unwrap();
                let send = if local {
                    let (send, connection) = http2::Builder::new(LocalExecutor)
                        .timer(Timer)
                        .handshake(stream)
                        .await
                        .unwrap();
                    drop(loopgroup::spawn_local(connection));
                    send
                } else {
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
        let (workers, clients) = (
            EventLoopGroup::new(1).unwrap(),
            EventLoopGroup::new(1).unwrap(),
        );
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
        crate::util::eventually("the request at the door", || door.waiting() == 1);
        let ended = workers.drain(crate::util::WATCHDOG);
        door.open();
        assert_eq!(clients.block_on(client).unwrap(), "late");
        assert!(ended.wait().is_clean());
    });
}

#[test]
fn a_client_that_says_nothing_is_timed_out() {
    on_a_loop(|| async {
        let (_client, server) = crate::tcp_pair().await?;
        let mut builder = Builder::new(LocalExecutor).http1_only();
        builder
            .http1()
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
