//! hyper-util's pooled client by `compat::hyper::{client, Connector}`: per loop, shared by loops, and in a
//! service.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use loopgroup::compat::hyper::{Connector, CurrentExecutor, HttpHandle, Timer, client, serve};
use loopgroup::{EventLoop, EventLoopGroup, block_on, time};

use crate::http::{body, post};
use crate::util::{Door, HOUR, LONG, eventually, group, within};

type Pooled = Client<Connector, Full<Bytes>>;

/// Answers with the path; `/wait` only when the door is open.
fn upstream(workers: &EventLoopGroup, door: &Door) -> HttpHandle {
    let door = door.clone();
    serve(workers, "127.0.0.1:0", move |_| {
        let door = door.clone();
        service_fn(move |request: Request<Incoming>| {
            let door = door.clone();
            async move {
                if request.uri().path() == "/wait" {
                    door.opened().await;
                }
                Ok::<_, Infallible>(Response::new(request.uri().path().to_owned()))
            }
        })
    })
    .unwrap()
}

async fn get(client: &Pooled, server: std::net::SocketAddr, path: &str) -> Bytes {
    let request = post(&format!("http://{server}{path}"), b"");
    body(client.request(request).await.unwrap()).await
}

#[test]
fn a_client_of_one_loop_uses_its_connection_again() {
    within(|| {
        let (servers, clients) = (group(1), group(1));
        let server = upstream(&servers, &Door::new());
        let address = server.local_addr();
        let asked = clients.spawn(async move {
            let client: Pooled = client();
            for number in 0..50 {
                let path = format!("/{number}");
                assert_eq!(get(&client, address, &path).await, path);
            }
        });
        block_on(asked).unwrap();
        assert_eq!(server.accepted(), 1);
        // The client is gone, and its connection with it.
        assert!(clients.drain(HOUR).wait().is_clean());
        assert!(servers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_client_that_many_loops_share_works_on_all_of_them_and_outside() {
    within(|| {
        let (servers, clients) = (group(1), group(3));
        let server = upstream(&servers, &Door::new());
        let address = server.local_addr();
        for http2 in [false, true] {
            let pooled: Pooled = Client::builder(CurrentExecutor)
                .timer(Timer)
                .pool_timer(Timer)
                .http2_only(http2)
                .build(Connector::new().connect_timeout(None).nodelay(false));
            let tasks: Vec<_> = (0..30)
                .map(|task| {
                    let pooled = pooled.clone();
                    clients.spawn_on(task % 3, async move {
                        let home = EventLoop::current();
                        for number in 0..20 {
                            let path = format!("/{task}/{number}");
                            assert_eq!(get(&pooled, address, &path).await, path);
                            assert_eq!(EventLoop::current(), home);
                        }
                    })
                })
                .collect();
            // The main thread as well, where there is no loop but a group.
            assert_eq!(clients.block_on(get(&pooled, address, "/main")), "/main");
            for task in tasks {
                block_on(task).unwrap();
            }
            // A connect that an idle connection overtakes goes to the pool as well: a few more than tasks.
            assert!(server.accepted() < 100, "{} connections", server.accepted());
        }
        assert!(clients.drain(HOUR).wait().is_clean());
        assert!(servers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn an_upstream_that_refuses_is_an_error_that_names_it_and_so_is_a_wrong_scheme() {
    within(|| {
        let clients = group(1);
        // A port that was free a moment ago.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let asked = clients.spawn(async move {
            let client: Pooled = client();
            let wrong = [
                (format!("http://{address}/"), address.to_string()),
                ("https://localhost/".to_owned(), "speaks http".to_owned()),
                ("http://[::1]:1/".to_owned(), "::1:1".to_owned()),
            ];
            for (url, text) in wrong {
                let error = client.request(post(&url, b"")).await.unwrap_err();
                assert!(error.is_connect(), "{error:?}");
                let cause = std::error::Error::source(&error).unwrap().to_string();
                assert!(cause.contains(&text), "{cause}");
            }
        });
        block_on(asked).unwrap();
        assert!(clients.drain(HOUR).wait().is_clean());
    });
}

#[test]
fn a_request_that_takes_too_long_is_cancelled_and_the_client_goes_on() {
    within(|| {
        let (servers, clients) = (group(1), group(1));
        let door = Door::new();
        let server = upstream(&servers, &door);
        let address = server.local_addr();
        let asked = clients.spawn(async move {
            let client: Pooled = client();
            for _ in 0..3 {
                let limit = Duration::from_millis(20);
                let late = time::timeout(limit, get(&client, address, "/wait")).await;
                assert!(late.is_err());
                assert_eq!(get(&client, address, "/now").await, "/now");
            }
        });
        block_on(asked).unwrap();
        assert!(clients.drain(HOUR).wait().is_clean());
        door.open();
        assert!(servers.drain(LONG).wait().is_clean());
    });
}

#[test]
fn a_gateway_answers_what_is_under_way_and_drops_its_pool_when_it_drains() {
    within(|| {
        let (upstreams, gateways) = (group(1), group(2));
        let door = Door::new();
        let upstream = upstream(&upstreams, &door);
        let address = upstream.local_addr();
        let gateway = serve(&gateways, "127.0.0.1:0", move |_| {
            let client: Pooled = client(); // of this loop
            service_fn(move |request: Request<Incoming>| {
                let client = client.clone();
                async move {
                    let text = get(&client, address, request.uri().path()).await;
                    Ok::<_, Infallible>(Response::new(Full::new(text)))
                }
            })
        })
        .unwrap();
        let entry = gateway.local_addr();
        let clients = group(1);
        let asked = clients.spawn(async move {
            let client: Pooled = client();
            for path in ["/1", "/2", "/3", "/4"] {
                assert_eq!(get(&client, entry, path).await, path);
            }
            let waiting = (0..8).map(|_| get(&client, entry, "/wait"));
            let answers = futures::future::join_all(waiting).await;
            assert!(answers.iter().all(|answer| answer == "/wait"));
        });
        eventually("the requests", || door.waiting() == 8);
        let ended = gateways.drain(HOUR);
        door.open();
        block_on(asked).unwrap();
        // Also the connections of the pools, which nobody else would close.
        let report = ended.wait();
        assert!(report.is_clean(), "{report}");
        eventually("the upstream's connections", || upstream.connections() == 0);
    });
}
