//! hyper, client and server, unchanged, across a link that loses, delays and is cut.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use loopgroup::EventLoopGroup;
use loopgroup::compat::hyper::Http;
use loopgroup::net::{Server, TcpStream};
use loopgroup::testing::sim::{self, FaultKind, Faults, Link, Simulation};
use loopgroup::time::{sleep, timeout};

/// Answers with the path, on two loops; connections move between them.
async fn server() -> io::Result<()> {
    let workers = EventLoopGroup::new(2)?;
    let service = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(Response::new(request.uri().path().to_owned()))
    });
    let listener = Server::new("0.0.0.0:80")?;
    let http = Http::new().movable(true);
    let server = http.serve(&workers, listener, move |_| service)?;
    server.await;
    Ok(())
}

/// Asks for a number of paths, each until it is answered, over connections that last as long as they do.
async fn client(requests: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut sender = None;
    for number in 0..requests {
        let path = format!("/{number}");
        loop {
            let asked = timeout(Duration::from_secs(5), ask(&mut sender, &path)).await;
            match asked {
                Ok(Ok(body)) if body == path => break,
                Ok(Ok(body)) => return Err(format!("{path} is answered with {body}").into()),
                _ => {
                    sim::sometimes("a request is repeated", true);
                    sender = None;
                    sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }
    Ok(())
}

type Sender = hyper::client::conn::http1::SendRequest<String>;

async fn ask(
    sender: &mut Option<Sender>,
    path: &str,
) -> Result<String, Box<dyn std::error::Error>> {
    if sender.is_none() {
        let stream = TcpStream::connect("server:80").await?;
        let (new, connection) = hyper::client::conn::http1::handshake(stream).await?;
        drop(loopgroup::spawn_local(connection));
        *sender = Some(new);
    }
    let sender = sender.as_mut().expect("just connected");
    sender.ready().await?;
    let request = Request::get(path)
        .header("host", "server")
        .body(String::new())?;
    let body = sender.send_request(request).await?.into_body();
    let text = body.collect().await?.to_bytes();
    Ok(String::from_utf8(text.to_vec())?)
}

#[test]
fn every_request_of_hypers_client_is_answered_across_a_lossy_link() {
    let report = sim::search(0..40, |sim: &mut Simulation| {
        sim.host("server", |_| server());
        let lossy = Link::default()
            .latency(Duration::from_millis(20))
            .jitter(Duration::from_millis(20))
            .loss(0.05);
        for name in ["one", "two"] {
            sim.client(name, client(30));
            sim.link(name, "server", lossy.clone());
        }
        let kinds = [
            FaultKind::Partition,
            FaultKind::Clog,
            FaultKind::Kill,
            FaultKind::Crash,
        ];
        sim.faults(Faults::only(kinds).until(Duration::from_secs(10)));
    });
    assert!(report.reached("a request is repeated") > 0, "{report}");
    assert!(
        report.reached("network: a segment is sent again") > 0,
        "{report}"
    );
}
