//! A loop inside another event loop: a "game" with a frame every 16 ms that also serves a socket.
//!
//! The game's own loop is a plain `mio::Poll` (it could be epoll, glib or winit). It watches the descriptor
//! of the `ManualLoop` beside its own events, and gives it a turn when that is readable or a timer is due.
//! Everything runs on the main thread; players ask for the score while the frames go on.
//!
//! ```sh
//! cargo run --example manual_loop
//! ```

use std::cell::Cell;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use futures::AsyncWriteExt;
use loopgroup::net::TcpListener;
use loopgroup::{ManualLoop, spawn_local};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

const FRAME: Duration = Duration::from_millis(16);
const FRAMES: u32 = 60;
const PLAYERS: usize = 5;

fn main() -> io::Result<()> {
    let mut manual = ManualLoop::new()?;
    let frame = Rc::new(Cell::new(0_u32)); // shared with the tasks: one thread, no lock
    let listener = manual.block_on(TcpListener::bind("127.0.0.1:0"))??;
    let addr = listener.local_addr()?;
    let answered = Rc::new(Cell::new(0_usize));
    let server = manual.spawn_local(serve(listener, Rc::clone(&frame), Rc::clone(&answered)));
    let players: Vec<_> = (0..PLAYERS)
        .map(|n| thread::spawn(move || ask(addr, n)))
        .collect();

    // The game's own event loop.
    let mut poll = Poll::new()?;
    let fd = manual.as_raw_fd();
    poll.registry()
        .register(&mut SourceFd(&fd), Token(0), Interest::READABLE)?;
    let mut events = Events::with_capacity(16);
    let mut next_frame = Instant::now();
    while frame.get() < FRAMES || answered.get() < PLAYERS {
        let now = Instant::now();
        if now >= next_frame {
            frame.set(frame.get() + 1); // draw
            next_frame = now + FRAME;
        }
        // Until the next frame or the next timer of the loop; a readable descriptor ends the wait earlier.
        let until_frame = next_frame.saturating_duration_since(now);
        let wait = manual
            .timeout()
            .map_or(until_frame, |left| left.min(until_frame));
        poll.poll(&mut events, Some(wait))?;
        let readable = !events.is_empty();
        if readable || manual.timeout() == Some(Duration::ZERO) {
            manual.turn(Some(Duration::ZERO))?; // does not wait
        }
    }
    poll.registry().deregister(&mut SourceFd(&fd))?;
    for player in players {
        println!("{}", player.join().expect("a player does not panic")?);
    }
    println!("{FRAMES} frames were drawn meanwhile");
    server.abort(); // it would accept for ever
    println!("{}", manual.drain(Duration::from_secs(1))?);
    Ok(())
}

/// Tells each player the number of the frame.
async fn serve(listener: TcpListener, frame: Rc<Cell<u32>>, answered: Rc<Cell<usize>>) {
    while let Ok((mut player, _)) = listener.accept().await {
        let (frame, answered) = (Rc::clone(&frame), Rc::clone(&answered));
        let answer = spawn_local(async move {
            let text = format!("frame {}", frame.get());
            let written = player.write_all(text.as_bytes()).await;
            answered.set(answered.get() + 1);
            written
        });
        drop(answer); // detached
    }
}

/// A player, on a thread of its own.
fn ask(addr: SocketAddr, number: usize) -> io::Result<String> {
    thread::sleep(number as u32 * Duration::from_millis(100));
    let mut text = String::new();
    TcpStream::connect(addr)?.read_to_string(&mut text)?;
    Ok(format!("player {number} was told: {text}"))
}
