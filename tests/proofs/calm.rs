//! A watchdog is silent about loops that are only busy: an echo server and a chat under load raise no alarm.
//!
//! `LOOPGROUP_CALM_SECONDS` sets for how long. A machine that gives a loop no processor for the whole
//! threshold is a stall, and none of the loop's: such reports say so, are printed, and are no false alarm.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::{Either, select};
use futures::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use loopgroup::net::{Server, TcpStream};
use loopgroup::{EventLoopGroup, StallKind, TaskId, task_id};

use crate::util::{LONG, progress, setting, within};

const THRESHOLD: Duration = Duration::from_millis(100);
/// Connections of each kind.
const CLIENTS: usize = 16;

#[test]
fn an_echo_server_and_a_chat_under_load_raise_no_alarm() {
    within(|| {
        let time = Duration::from_secs(setting("LOOPGROUP_CALM_SECONDS").unwrap_or(2));
        let (tx, stalls) = mpsc::channel();
        let workers = EventLoopGroup::builder()
            .loops(2)
            .watchdog(THRESHOLD)
            .on_stall(move |stall| drop(tx.send(stall.clone())))
            .build()
            .unwrap();
        let clients = EventLoopGroup::new(1).unwrap();
        let server = || Server::new("127.0.0.1:0").unwrap().workers(&workers);
        let echoes = server().serve(|stream, _| echo(stream)).unwrap();
        // The peers of a loop share a room.
        let rooms = workers.per_loop(|_| Room::default());
        let chat = server()
            .serve(move |stream, _| chat(stream, rooms.here(Rc::clone)))
            .unwrap();
        let done = progress("messages");
        let end = Instant::now() + time;
        // Says its name again and again, each time when it has come back.
        let talk = |address, name: String| {
            let done = done.clone();
            clients.spawn(async move {
                let stream = TcpStream::connect(address).await.unwrap();
                let (said, mut write) = (format!("{name}\n"), &stream);
                let mut lines = BufReader::new(&stream).lines();
                while Instant::now() < end {
                    write.write_all(said.as_bytes()).await.unwrap();
                    while lines.next().await.unwrap().unwrap() != name {}
                    done.tick();
                }
            })
        };
        let tasks: Vec<_> = (0..CLIENTS)
            .flat_map(|number| {
                let to = [echoes.local_addr(), chat.local_addr()];
                to.map(|address| talk(address, format!("client {number}")))
            })
            .collect();
        for task in tasks {
            clients.block_on(task).unwrap();
        }
        echoes.stop();
        chat.stop();
        clients.drain(LONG).wait();
        workers.drain(LONG).wait();
        let (starved, alarms): (Vec<_>, Vec<_>) = stalls
            .try_iter()
            .partition(|stall| stall.kind() == StallKind::Starved);
        println!("without a processor: {starved:#?}");
        assert!(alarms.is_empty(), "false alarms: {alarms:#?}");
    });
}

async fn echo(mut stream: TcpStream) {
    let mut buf = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut buf).await {
        if stream.write_all(&buf[..read]).await.is_err() {
            return;
        }
    }
}

/// The peers of a loop.
type Room = Rc<RefCell<HashMap<TaskId, UnboundedSender<Rc<str>>>>>;

async fn chat(stream: TcpStream, room: Room) {
    let (tx, mut rx) = unbounded::<Rc<str>>();
    let id = task_id().expect("a handler is a task");
    room.borrow_mut().insert(id, tx);
    let mut lines = BufReader::new(&stream).lines();
    let mut to_peer = &stream;
    loop {
        match select(lines.next(), rx.next()).await {
            Either::Left((Some(Ok(line)), _)) => {
                let line: Rc<str> = format!("{line}\n").into();
                let peers: Vec<_> = room.borrow().values().cloned().collect();
                for peer in peers {
                    let _ = peer.unbounded_send(Rc::clone(&line));
                }
            }
            Either::Right((Some(line), _)) => {
                if to_peer.write_all(line.as_bytes()).await.is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    room.borrow_mut().remove(&id);
}
