//! The four ways to give loops their parts, served one after the other.
//!
//!     cargo run --example topologies
//!
//! Prints which threads served the connections, and which ones computed the answers:
//!
//!     one loop for everything        served on {"loop-0"}, computed on {"loop-0"}
//!     every loop accepts and serves  served on {"loop-0", "loop-1"}, computed on {"loop-0", "loop-1"}
//!     one accepts, others serve      served on {"worker-0", "worker-1"}, computed on {"worker-0",
//!     "worker-1"}
//!     and others compute             served on {"worker-0", "worker-1"}, computed on
//!     {"executor-0", "executor-1"}

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::Duration;

use futures::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{Builder, EventLoopGroup};

fn main() -> io::Result<()> {
    let server = || Server::new("127.0.0.1:0");
    let group = |name, loops| named(name, loops).build();

    let one = group("loop", 1)?;
    let alone = server()?.workers(&one);
    show("one loop for everything", alone, &one, None)?;

    let many = group("loop", 2)?;
    let each = server()?.workers(&many).reuse_port(true);
    show("every loop accepts and serves", each, &many, None)?;

    let (boss, workers) = (group("boss", 1)?, group("worker", 2)?);
    let apart = server()?.boss(&boss).workers(&workers);
    show("one accepts, others serve", apart, &workers, None)?;

    let (boss, workers) = (group("boss", 1)?, group("worker", 2)?);
    let executors = named("executor", 2).without_io().build()?;
    let apart = server()?.boss(&boss).workers(&workers);
    show("and others compute", apart, &workers, Some(executors))
}

fn named(name: &'static str, loops: usize) -> Builder {
    let builder = EventLoopGroup::builder().loops(loops);
    builder.thread_name(move |index| format!("{name}-{index}"))
}

/// Serves sixteen clients and prints who did what.
fn show(
    name: &str,
    server: Server,
    workers: &EventLoopGroup,
    executors: Option<EventLoopGroup>,
) -> io::Result<()> {
    let server = server.serve(move |stream, _peer| {
        let answered = answer(stream, executors.clone());
        async { answered.await.expect("the client waits for its answer") }
    })?;
    let [mut served, mut computed] = [BTreeSet::new(), BTreeSet::new()];
    for _ in 0..16 {
        let reply = loopgroup::run(ask(server.local_addr()))??; // this thread is a loop for a moment
        let (one, other) = reply.split_once(' ').expect("two names");
        served.insert(one.to_owned());
        computed.insert(other.to_owned());
    }
    println!("{name:30} served on {served:?}, computed on {computed:?}");
    server.stop();
    workers.drain(Duration::from_secs(5)).wait();
    Ok(())
}

/// Computes here, which keeps the loop's other connections waiting, or elsewhere, which does not.
async fn answer(stream: TcpStream, executors: Option<EventLoopGroup>) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).await?;
    let computed = match executors {
        None => name(),
        Some(executors) => executors.spawn(async { name() }).await?,
    };
    let reply = name() + " " + &computed;
    (&stream).write_all(reply.as_bytes()).await
}

fn name() -> String {
    thread::current().name().unwrap_or("?").to_owned()
}

async fn ask(server: std::net::SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"who?\n").await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    Ok(reply)
}
