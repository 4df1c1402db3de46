//! Records what the loops of a group do, and writes it as a trace for Perfetto.
//!
//! ```sh
//! cargo run --example trace            # writes loops.json
//! cargo run --example trace -- my.json # writes my.json
//! ```
//!
//! Expect a line that says how many events were written. Open <https://ui.perfetto.dev> and drop the file
//! onto the page; nothing leaves the browser. It shows a process with two threads, the loops. Zoom in (keys W
//! and S) on the turns of a loop: inside of them are the polls, with the names of the tasks, and between them
//! the loop is parked. Click on a poll of `ping`: an arrow leads to the poll of `pong`, on the other loop,
//! that it has woken. `slow` has polls of 20 ms, behind which everything on its loop waits.

use std::{env, fs::File, io, thread, time::Duration};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use futures::{SinkExt, StreamExt};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoopGroup, block_on, time::sleep};

const ROUNDS: u32 = 200;

fn main() -> io::Result<()> {
    let path = env::args()
        .nth(1)
        .unwrap_or_else(|| "loops.json".to_owned());
    let group = EventLoopGroup::builder()
        .loops(2)
        .flight_recorder(65_536)
        .build()?;

    // Two tasks on two loops that wake each other.
    let (to_pong, from_ping) = unbounded();
    let (to_ping, from_pong) = unbounded();
    let [one, other] = [&group.loops()[0], &group.loops()[1]];
    let ping = one
        .task()
        .name("ping")
        .spawn(play(to_pong, from_pong, true));
    let pong = other
        .task()
        .name("pong")
        .spawn(play(to_ping, from_ping, false));

    // A task that blocks its loop now and then.
    let slow = one.task().name("slow").spawn(async {
        for _ in 0..3 {
            sleep(Duration::from_millis(5)).await;
            thread::sleep(Duration::from_millis(20)); // a mistake, to be seen in the trace
        }
    });

    // A server and its client.
    let server = Server::new("127.0.0.1:0")?
        .workers(&group)
        .serve(|stream, _| async move {
            let _ = futures::io::copy(&stream, &mut &stream).await;
        })?;
    let address = server.local_addr();
    let client = other.task().name("<client>").spawn(async move {
        for _ in 0..10 {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"hello").await?;
            stream.read_exact(&mut [0; 5]).await?;
        }
        io::Result::Ok(())
    });

    for task in [ping, pong, slow] {
        block_on(task).unwrap();
    }
    block_on(client).unwrap()?;
    server.stop();
    group.drain(Duration::from_secs(10)).wait();

    let trace = group.trace().named("example");
    trace.write_chrome_json(&mut File::create(&path)?)?;
    println!(
        "{} events of {} loops in {path}: open it in https://ui.perfetto.dev",
        trace.events(),
        trace.loops()
    );
    Ok(())
}

/// Answers each message with the next number.
async fn play(mut to: UnboundedSender<u32>, mut from: UnboundedReceiver<u32>, serves: bool) {
    if serves {
        let _ = to.send(0).await;
    }
    while let Some(number) = from.next().await {
        if number >= ROUNDS || to.send(number + 1).await.is_err() {
            return; // and the other one finds its channel closed
        }
    }
}
