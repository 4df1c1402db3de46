//! A small busy system, and a page that shows it.
//!
//!     cargo run --release --example inspect -- 127.0.0.1:9100
//!
//! Open the link that it prints; Ctrl-C ends it. A second argument is a number of tasks that only wait.

use std::time::{Duration, Instant};
use std::{io, net::SocketAddr, pin::pin, thread};

use futures::channel::mpsc::{Receiver, Sender, channel};
use futures::{AsyncReadExt, AsyncWriteExt, SinkExt, StreamExt, future::select};
use loopgroup::inspect::Inspector;
use loopgroup::net::{Server, TcpStream};
use loopgroup::time::sleep;
use loopgroup::{EventLoopGroup, label, shutdown_requested, signal};

const MS: Duration = Duration::from_millis(1);

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:0".to_owned());
    let idle = args.next().map_or(0, |text| text.parse().unwrap());
    let builder = EventLoopGroup::builder().loops(4).measure_time(true);
    let builder = builder.track_tasks(true).flight_recorder(1 << 15);
    let builder = builder.watchdog(100 * MS).on_stall(|_| ()); // the page shows them
    let workers = builder.freeze_on_stall(false).build()?;
    let clients = EventLoopGroup::new(1)?;
    let echo = Server::new("127.0.0.1:0")?.workers(&workers);
    let echo = echo.serve(|one, _| async move { futures::io::copy(&one, &mut &one).await })?;
    let page = Inspector::new().watch("workers", &workers);
    let page = page.watch("clients", &clients).watch_server("echo", &echo);
    println!("{}", page.serve(&*address)?.url());

    let task = |index: usize, name: &'static str| workers.loops()[index].task().name(name);
    task(0, "hot").spawn_detached(until_shutdown(hot()))?;
    let ((mut ping, pings), (pong, pongs)) = (channel(4), channel(4));
    ping.try_send(0).expect("there is room");
    task(1, "ping").spawn_detached(until_shutdown(chat(ping, pongs)))?;
    task(2, "pong").spawn_detached(until_shutdown(chat(pong, pings)))?;
    task(3, "slow poll").spawn_detached(until_shutdown(slow_poll()))?;
    task(3, "<script>alert(1)</script>").spawn_detached(until_shutdown(sleep(600_000 * MS)))?;
    task(1, "farewell").spawn_detached(farewell())?;
    for number in 0..9 {
        let client = clients.task().name(format!("client {number}"));
        client.spawn_detached(until_shutdown(talk(echo.local_addr(), number)))?;
    }
    let sleepers = (0..idle).map(|_| until_shutdown(sleep(600_000 * MS)));
    let _asleep: Vec<_> = sleepers.map(|sleeper| workers.spawn(sleeper)).collect();
    workers.block_on(signal::shutdown())?;
    println!("{}", clients.drain(5_000 * MS).wait());
    println!("{}", workers.drain(10_000 * MS).wait());
    thread::sleep(1_000 * MS); // for the page to show the end
    Ok(())
}

async fn until_shutdown<T>(work: impl Future<Output = T>) {
    select(pin!(work), shutdown_requested()).await;
}

/// Computes for nine tenths of the time.
async fn hot() {
    loop {
        let start = Instant::now();
        while start.elapsed() < 9 * MS {}
        sleep(MS).await;
    }
}

/// Sends every number on, a little later.
async fn chat(mut there: Sender<u64>, mut here: Receiver<u64>) -> Option<()> {
    loop {
        let number = label("a message", here.next()).await?;
        sleep(2 * MS).await;
        there.send(number + 1).await.ok()?;
    }
}

/// Blocks its loop now and then, as it should not.
async fn slow_poll() {
    loop {
        sleep(5_000 * MS).await;
        thread::sleep(250 * MS);
    }
}

/// Takes its time at the end, such as for a last write to a slow disk.
async fn farewell() {
    label("the order to shut down", shutdown_requested()).await;
    sleep(4_000 * MS).await;
}

/// Sends a line every now and then, and waits for the echo.
async fn talk(echo: SocketAddr, number: u32) -> io::Result<()> {
    let mut stream = TcpStream::connect(echo).await?;
    loop {
        stream.write_all(b"hello\n").await?;
        stream.read_exact(&mut [0; 6]).await?;
        sleep((10 + 7 * number) * MS).await;
    }
}
