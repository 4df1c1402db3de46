//! Adaptors away from a loop, after a shutdown, or with another group: each says so, and none hangs.

use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ecosystem::certificate::SelfSigned;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use loopgroup::EventLoopGroup;
use loopgroup::io::Interest;
use loopgroup::net::UnixStream;
use tokio::io::AsyncReadExt;

use crate::quic::endpoints;
use crate::util::within;

/// Two connected streams that nobody has waited for yet.
fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

/// A group that has ended.
fn ended() -> EventLoopGroup {
    let group = EventLoopGroup::new(1).unwrap();
    group.start().unwrap();
    group.shutdown_now().wait();
    group
}

#[test]
fn away_from_a_loop_every_stream_says_so() {
    within(|| {
        let says_so = |text: String| assert!(text.contains("loop"), "{text}");
        let (one, _peer) = pair();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(SelfSigned::new().server(&[])));
        says_so(
            loopgroup::block_on(acceptor.accept(one))
                .unwrap_err()
                .to_string(),
        );
        let (one, _peer) = pair();
        says_so(
            loopgroup::block_on(tokio_tungstenite::accept_async(one))
                .unwrap_err()
                .to_string(),
        );
        let (one, _peer) = pair();
        says_so(
            loopgroup::block_on(async_tungstenite::accept_async(one))
                .unwrap_err()
                .to_string(),
        );
        let (one, _peer) = pair();
        says_so(format!(
            "{:?}",
            loopgroup::block_on(h2::server::handshake(one)).unwrap_err()
        ));
        let (one, peer) = pair();
        // hyper ends a connection quietly on which nothing has come yet.
        peer.try_io(Interest::WRITABLE, |mut peer| peer.write_all(b"GET "))
            .unwrap();
        let answer = |_| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) };
        let serve =
            hyper::server::conn::http1::Builder::new().serve_connection(one, service_fn(answer));
        says_so(format!("{:?}", loopgroup::block_on(serve).unwrap_err()));
        // In a task of tokio's, too.
        let tokio = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let (mut one, _peer) = pair();
        says_so(
            tokio
                .block_on(one.read(&mut [0; 1]))
                .unwrap_err()
                .to_string(),
        );
    });
}

#[test]
fn a_timer_in_a_task_of_tokio_says_so() {
    within(|| {
        let tokio = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let sleep = tokio.spawn(loopgroup::time::sleep(Duration::from_secs(3600)));
        let payload = tokio.block_on(sleep).unwrap_err().into_panic();
        let text = payload.downcast_ref::<&str>().unwrap();
        assert!(text.contains("use that runtime's timers"), "{text}");
    });
}

#[test]
fn what_needs_the_runtime_of_tokio_says_what_to_use_on_a_loop() {
    within(|| {
        let (lines, seen) = std::sync::mpsc::channel();
        let group = EventLoopGroup::builder()
            .loops(1)
            .on_panic(move |panic| lines.send(panic.to_string()).unwrap())
            .build()
            .unwrap();
        let sleep = || async { tokio::time::sleep(Duration::from_millis(1)).await };
        drop(group.spawn(sleep()));
        let mut texts = vec![seen.recv().unwrap()];
        let joined = |error: loopgroup::JoinError| error.to_string();
        texts.push(joined(group.block_on(group.spawn(sleep())).unwrap_err()));
        let spawn = group.spawn(async { drop(tokio::spawn(async {})) });
        texts.push(joined(group.block_on(spawn).unwrap_err()));
        let bind = group.spawn(async { drop(tokio::net::TcpListener::bind("127.0.0.1:0").await) });
        texts.push(joined(group.block_on(bind).unwrap_err()));
        for text in texts {
            assert!(text.contains("Tokio 1.x runtime"), "tokio's: {text}");
            assert!(text.contains("use loopgroup::time"), "and ours: {text}");
        }
    });
}

#[test]
fn the_block_on_of_futures_panics_on_a_loop_that_has_entered_its_executor() {
    within(|| {
        let group = EventLoopGroup::builder()
            .loops(2)
            .on_thread_start(|_| futures::executor::enter())
            .build()
            .unwrap();
        for index in 0..2 {
            let waits = group.spawn_on(index, async {
                // The task is on this loop: without the guard, the loop would wait for itself.
                futures::executor::block_on(loopgroup::spawn_local(async {}))
            });
            let error = group.block_on(waits).unwrap_err();
            assert!(
                error.to_string().contains("within another executor"),
                "{error}"
            );
        }
        // Elsewhere it is of use.
        assert_eq!(
            futures::executor::block_on(group.spawn(async { 7 })).unwrap(),
            7
        );
    });
}

#[test]
fn a_stream_whose_loop_has_ended_goes_on_in_another_group() {
    within(|| {
        let (first, second) = (
            EventLoopGroup::new(1).unwrap(),
            EventLoopGroup::new(1).unwrap(),
        );
        let (mut one, peer) = pair();
        let moved = first.spawn(async move {
            let _ = futures::poll!(Box::pin(one.read(&mut [0; 1]))); // at home here now
            one
        });
        let mut one = first.block_on(moved).unwrap();
        first.shutdown_now().wait();
        let read = second.spawn(async move { one.read(&mut [0; 1]).await });
        peer.try_io(Interest::WRITABLE, |mut peer| peer.write_all(b"x"))
            .unwrap();
        assert_eq!(second.block_on(read).unwrap().unwrap(), 1);
    });
}

#[test]
fn an_executor_that_has_ended_ends_the_requests_given_to_it() {
    within(|| {
        let (group, over) = (EventLoopGroup::new(1).unwrap(), ended());
        let request = || {
            Request::get("http://localhost/")
                .body(Empty::<Bytes>::new())
                .unwrap()
        };
        let asked = group.spawn(async move {
            let (client, server) = pair();
            let answer = |_| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) };
            let builder = hyper::server::conn::http2::Builder::new(over.clone());
            drop(loopgroup::spawn(
                builder.serve_connection(server, service_fn(answer)),
            ));
            let (mut send, connection) = http2::Builder::new(over).handshake(client).await.unwrap();
            drop(loopgroup::spawn(connection));
            send.send_request(request()).await.map(drop)
        });
        assert!(group.block_on(asked).unwrap().is_err());
    });
}

#[test]
fn a_client_whose_connection_was_cancelled_by_a_shutdown_gets_an_error() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (client, _peer) = pair();
        let made = group.spawn(async move { http1::handshake::<_, Empty<Bytes>>(client).await });
        let (mut send, connection) = group.block_on(made).unwrap().unwrap();
        drop(group.spawn(connection));
        let asked = send.send_request(Request::new(Empty::new()));
        group.shutdown_now().wait();
        loopgroup::block_on(asked).unwrap_err(); // cancelled, or closed, as it comes
    });
}

#[test]
fn an_endpoint_of_a_group_that_has_ended_neither_connects_nor_accepts() {
    within(|| {
        let (server, client) = endpoints(&ended(), Duration::from_secs(30));
        let address = server.local_addr().unwrap();
        let connected = client.connect(address, "localhost").map(drop);
        assert_eq!(
            connected.unwrap_err(),
            quinn::ConnectError::EndpointStopping
        );
        assert!(loopgroup::block_on(server.accept()).is_none());
    });
}

#[test]
fn a_connection_under_way_ends_with_its_group() {
    within(|| {
        let group = EventLoopGroup::new(1).unwrap();
        let (_server, client) = endpoints(&group, Duration::from_secs(3600));
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let connecting = client
            .connect(silent.local_addr().unwrap(), "localhost")
            .unwrap();
        group.shutdown_now().wait();
        loopgroup::block_on(connecting).unwrap_err();
    });
}
