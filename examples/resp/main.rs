//! A cache that speaks Redis' protocol: PING, ECHO, SET, GET, DEL and DBSIZE, pipelined as deep as one likes.
//!
//!     cargo run --release --example resp -- 127.0.0.1:6380
//!     redis-cli -p 6380 SET name loopgroup               # OK
//!     redis-benchmark -p 6380 -t ping,set,get -n 100000 -P 16 -q
//!
//! One loop accepts, one serves all connections, as in Redis itself: the map is the loop's own, and
//! no handler needs a lock. Ctrl-C ends it, after what has arrived is answered.

mod protocol;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures::io::{AsyncReadExt, AsyncWriteExt};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoopGroup, signal};
use protocol::{LIMIT, bad, bulk, parse};

/// Of one loop.
type Cache = RefCell<HashMap<Vec<u8>, Vec<u8>>>;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:6380".into());
    let (boss, worker) = (EventLoopGroup::new(1)?, EventLoopGroup::new(1)?);
    let server = Server::new(address)?
        .boss(&boss)
        .workers(&worker)
        .on_error(|error| eprintln!("{:?}: {error}", error.peer()))
        .serve_with(|_loop| {
            let cache = Rc::<Cache>::default();
            move |stream, _peer| commands(stream, Rc::clone(&cache))
        })?;
    println!("redis-cli -p {}", server.local_addr().port());
    boss.block_on(signal::shutdown())?;
    println!("{} connections served", server.accepted());
    println!("{}", worker.drain(Duration::from_secs(1)).wait());
    Ok(())
}

/// Answers whatever has arrived with one write.
async fn commands(mut stream: TcpStream, cache: Rc<Cache>) -> io::Result<()> {
    let (mut input, mut output, mut chunk) = (Vec::new(), Vec::new(), vec![0; 16 * 1024]);
    loop {
        let read = stream.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..read]);
        let mut rest = &input[..];
        while let Some((command, after)) = parse(rest)? {
            run(&command, &cache, &mut output);
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

fn run(command: &[&[u8]], cache: &Cache, output: &mut Vec<u8>) {
    let Some((name, arguments)) = command.split_first() else {
        return; // an empty command has no answer
    };
    let name = name.to_ascii_uppercase();
    let mut cache = cache.borrow_mut();
    match (&*name, arguments) {
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
    }
}
