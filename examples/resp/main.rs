//! A cache that speaks Redis' protocol: PING, ECHO, SET, GET, DEL and DBSIZE, pipelined as deep as one likes.
//!
//!     cargo run --release --example resp -- 127.0.0.1:6380
//!     redis-cli -p 6380 SET name loopgroup               # OK
//!     redis-benchmark -p 6380 -t ping,set,get -n 100000 -P 16 -q
//!
//! One loop accepts, one serves all connections, as in Redis itself: the map is the loop's own, and
//! no handler needs a lock. Ctrl-C ends it.

mod protocol;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoopGroup, signal};
use protocol::{LIMIT, bad, bulk, parse};

thread_local! {
    static CACHE: RefCell<HashMap<Vec<u8>, Vec<u8>>> = RefCell::default();
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:6380".into());
    let (boss, worker) = (EventLoopGroup::new(1)?, EventLoopGroup::new(1)?);
    let server =
        Server::new(address)?
            .boss(&boss)
            .workers(&worker)
            .serve(|stream, peer| async move {
                if let Err(error) = commands(stream).await {
                    eprintln!("{peer}: {error}");
                }
            })?;
    println!("redis-cli -p {}", server.local_addr().port());
    boss.block_on(signal::shutdown())?;
    println!("{} connections served", server.accepted());
    println!("{}", worker.shutdown_now().wait());
    Ok(())
}

/// Answers whatever has arrived with one write.
async fn commands(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut output, mut chunk) = (Vec::new(), Vec::new(), vec![0; 16 * 1024]);
    loop {
        let read = stream.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..read]);
        let mut rest = &input[..];
        while let Some((command, after)) = parse(rest)? {
            run(&command, &mut output);
            rest = after;
            if output.len() > LIMIT {
                // A short command may have a long answer.
                stream.write_all(&std::mem::take(&mut output)).await?;
            }
        }
        let done = input.len() - rest.len();
        input.drain(..done);
        if input.len() > LIMIT {
            return Err(bad("a command of more than a megabyte"));
        }
        stream.write_all(&output).await?;
        output.clear();
    }
}

fn run(command: &[&[u8]], output: &mut Vec<u8>) {
    let Some((name, arguments)) = command.split_first() else {
        return; // an empty command has no answer
    };
    let name = name.to_ascii_uppercase();
    CACHE.with_borrow_mut(|cache| match (&*name, arguments) {
        (b"PING", []) => output.extend(b"+PONG\r\n"),
        (b"PING" | b"ECHO", [text]) => bulk(text, output),
        (b"SET", [key, value]) => {
            cache.insert(key.to_vec(), value.to_vec());
            output.extend(b"+OK\r\n");
        }
        (b"GET", [key]) => match cache.get(*key) {
            Some(value) => bulk(value, output),
            None => output.extend(b"$-1\r\n"),
        },
        (b"DEL", keys) => {
            let gone = keys.iter().filter(|key| cache.remove(**key).is_some());
            output.extend(format!(":{}\r\n", gone.count()).bytes());
        }
        (b"DBSIZE", []) => output.extend(format!(":{}\r\n", cache.len()).bytes()),
        (name, _) => {
            let name = name.escape_ascii(); // it may hold the end of a line
            output.extend(format!("-ERR unknown command or arguments: {name}\r\n").bytes());
        }
    });
}
