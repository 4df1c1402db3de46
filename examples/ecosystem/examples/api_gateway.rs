//! An API that calls an upstream: a pooled client per loop, a time limit per request, a graceful end.
//!
//!     cargo run --release --example axum_app -- 9000           # an upstream
//!     cargo run --release --example api_gateway -- 8080 http://127.0.0.1:9000
//!     curl -i http://127.0.0.1:8080/hello/you                  # hello, you    (and x-gateway: loop 1)
//!     curl -i http://127.0.0.1:8080/slow                       # 504: the upstream takes longer than 500 ms
//!
//! Without an upstream the answer is 502. Ctrl-C ends it after the requests under way.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri, Version};
use loopgroup::compat::hyper::{Client, client, serve};
use loopgroup::{EventLoop, EventLoopGroup, time};

const LIMIT: Duration = Duration::from_millis(500);

type Body = Either<Incoming, Full<Bytes>>;

fn main() -> std::io::Result<()> {
    let address = ("127.0.0.1", ecosystem::port());
    let upstream = upstream();
    let workers = EventLoopGroup::new(2)?;
    let server = serve(&workers, address, move |_loop| {
        // A pool of this loop: a request and its upstream connection share a thread.
        let (client, upstream) = (client(), upstream.clone());
        service_fn(move |request| forward(client.clone(), upstream.clone(), request))
    })?;
    ecosystem::until_ctrl_c("api_gateway", &workers, server)
}

/// Asks the upstream; an answer of the gateway's own if there is none in time.
async fn forward(
    client: Client<Incoming>,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let mut target = std::mem::take(request.uri_mut()).into_parts();
    target.scheme = Some(Scheme::HTTP);
    target.authority = Some(upstream);
    *request.uri_mut() = Uri::from_parts(target).expect("whole: scheme, authority and path");
    *request.version_mut() = Version::HTTP_11; // whatever the client speaks
    for own in [HOST, CONNECTION] {
        request.headers_mut().remove(own); // of this connection, not of the next
    }
    let mut response = match time::timeout(LIMIT, client.request(request)).await {
        Ok(Ok(response)) => response.map(Either::Left),
        Ok(Err(error)) => failed(StatusCode::BAD_GATEWAY, &causes(&error)),
        Err(_) => failed(StatusCode::GATEWAY_TIMEOUT, "the upstream is too slow"),
    };
    let home = EventLoop::current().expect("a service has a loop").index();
    let value = HeaderValue::try_from(format!("loop {home}")).expect("plain text");
    response.headers_mut().insert("x-gateway", value);
    response.headers_mut().remove(CONNECTION);
    Ok(response)
}

fn failed(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::from(format!("{why}\n"))));
    *response.status_mut() = status;
    response
}

/// An error with all its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}

/// The upstream of the command line; without one that makes sense, the program ends here.
fn upstream() -> Authority {
    let argument = std::env::args().nth(2).unwrap_or_default();
    let authority = argument.strip_prefix("http://").map(str::parse);
    authority.and_then(Result::ok).unwrap_or_else(|| {
        eprintln!(
            "the second argument is the upstream, as in http://127.0.0.1:9000, not {argument:?}"
        );
        std::process::exit(2)
    })
}
