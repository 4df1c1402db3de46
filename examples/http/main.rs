//! HTTP/1.1 by hand: keep-alive, pipelining, and a page that counts its visits without a lock.
//!
//!     cargo run --release --example http -- 127.0.0.1:8080
//!     curl -i http://127.0.0.1:8080/hello          # 200, "hello from loop-1-0, visit 1 here"
//!     curl -i http://127.0.0.1:8080/other          # 404
//!
//! Ctrl-C lets the requests that are under way finish. (For real HTTP, take a library; this shows how a
//! handler keeps state on its loop.)

mod request;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures::io::{AsyncWriteExt, BufReader};
use loopgroup::net::{Server, TcpStream};
use loopgroup::time::timeout;
use loopgroup::{EventLoopGroup, signal};

/// The longest wait for a request.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let workers = EventLoopGroup::builder().build()?; // a loop per core
    let server = Server::new(address)?
        .workers(&workers)
        .serve_with(|_loop| {
            let visits = Rc::new(Cell::new(0)); // of this loop: neither an atomic nor a lock
            move |stream, _peer| {
                let visits = Rc::clone(&visits);
                async move { requests(&stream, &visits).await }
            }
        })?;
    println!("http://{}/hello", server.local_addr());
    workers.block_on(signal::shutdown())?;
    println!("{}", workers.drain(Duration::from_secs(5)).wait());
    Ok(())
}

/// Answers one request after the other, until the end of the connection, or of the program.
async fn requests(stream: &TcpStream, visits: &Cell<u64>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let Ok(request) = timeout(PATIENCE, request::read(&mut reader)).await else {
            return Ok(()); // idle for too long
        };
        let (status, body, close) = match request {
            Ok(None) => return Ok(()),
            Ok(Some(request)) => {
                let (status, body) = page(&request.path, visits);
                (status, body, request.close)
            }
            Err(error) => ("400 Bad Request", format!("{error}\n"), true),
        };
        let connection = if close { "close" } else { "keep-alive" };
        let length = body.len();
        let reply = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
             Connection: {connection}\r\n\r\n{body}"
        );
        (&mut &*stream).write_all(reply.as_bytes()).await?;
        if close {
            return Ok(());
        }
    }
}

fn page(path: &str, visits: &Cell<u64>) -> (&'static str, String) {
    if path != "/hello" {
        return ("404 Not Found", format!("there is no {path}, try /hello\n"));
    }
    visits.set(visits.get() + 1);
    let (thread, visits) = (std::thread::current(), visits.get());
    let name = thread.name().unwrap_or("?");
    (
        "200 OK",
        format!("hello from {name}, visit {visits} here\n"),
    )
}
