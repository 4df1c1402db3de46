//! A server that replaces its own process, without a failed connection.
//!
//!     cargo run --release --example handover -- serve 127.0.0.1:7070
//!     cargo run --release --example handover -- load 127.0.0.1:7070 100000
//!
//! Answers each line with the id of its process. The line `replace` starts this program again, with the
//! listener as its standard input. The new process accepts from the same queue; once it has said that it
//! serves, the old one stops accepting, lets its clients finish, and ends. If the new one does not come up,
//! the old one continues. `load` does both at once: clients that ask, and a process that is replaced under
//! them.
//!
//! A service manager can pass the first listener in the same way (systemd: `StandardInput=socket`).

mod load;
mod successor;

use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use futures::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use loopgroup::blocking::unblock;
use loopgroup::net::TcpStream;
use loopgroup::{EventLoopGroup, time};

/// How long clients may take to finish, before their reads end.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address),
        ["load", address, requests] => load::run(address, requests.parse().unwrap_or(100_000)),
        _ => Err(io::Error::other(
            "usage: handover serve ADDRESS | load ADDRESS REQUESTS",
        )),
    }
}

fn serve(address: &str) -> io::Result<()> {
    let (group, id) = (EventLoopGroup::new(2)?, std::process::id());
    let (server, listener) = successor::inherit_or_bind(address)?;
    let (replace, mut wanted) = mpsc::unbounded();
    let server = server
        .workers(&group)
        .on_error(move |error| eprintln!("{id}: {error}"))
        .serve(move |stream, _| answer(stream, replace.clone()))?;
    println!("process {id} serves {}", server.local_addr()); // the predecessor waits for this line
    group.block_on(async {
        while wanted.next().await.is_some() {
            let (listener, address) = (listener.try_clone()?, address.to_owned());
            match unblock(move || successor::start(listener, &address)).await? {
                Ok(()) => break,
                Err(error) => eprintln!("no successor, {id} continues: {error}"),
            }
        }
        server.stop(); // new clients wait for the successor; those that are connected may finish
        let _ = time::timeout(GRACE, server.clone()).await;
        io::Result::Ok(())
    })?;
    let end = group.drain(GRACE).wait(); // ends what is still connected, and silent
    eprintln!("process {id} ends: {}", loopgroup::block_on(server));
    match end.is_clean() {
        true => Ok(()),
        false => Err(io::Error::other(end.to_string())),
    }
}

async fn answer(stream: TcpStream, replace: mpsc::UnboundedSender<()>) -> io::Result<()> {
    let mut lines = BufReader::new(&stream).lines();
    while let Some(line) = lines.next().await.transpose()? {
        if line == "replace" {
            let _ = replace.unbounded_send(());
        }
        let answer = format!("{}\n", std::process::id());
        (&stream).write_all(answer.as_bytes()).await?;
    }
    Ok(())
}
