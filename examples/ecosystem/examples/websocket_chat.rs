//! Chat rooms over WebSockets: each room lives on one loop, with all who are in it, and needs no lock.
//!
//!     cargo run --release --example websocket_chat -- 8080
//!     python3 -m websockets ws://127.0.0.1:8080/kitchen        # in two terminals: what one types, both see
//!
//! The path names the room, and the room's name its loop: a connection moves there after its handshake.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use async_tungstenite::tungstenite::handshake::server::{Request, Response};
use async_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use async_tungstenite::{WebSocketStream, accept_hdr_async};
use futures::StreamExt;
use futures::channel::mpsc::{self, UnboundedSender};
use futures::stream::select;
use loopgroup::net::TcpStream;
use loopgroup::{EventLoopGroup, PerLoop, shutdown_requested};

/// Who is in a room; on this loop only.
type Room = Rc<RefCell<Vec<UnboundedSender<Utf8Bytes>>>>;

/// The rooms of each loop.
type Rooms = PerLoop<RefCell<HashMap<String, Room>>>;

/// What a member's task waits for.
enum Event {
    Said(Result<Message, Error>),
    Heard(Utf8Bytes),
}

fn main() -> std::io::Result<()> {
    let group = EventLoopGroup::new(2)?;
    let rooms: Rooms = group.per_loop(|_| RefCell::default());
    let homes = group.clone();
    ecosystem::serve_on(&group, "websocket_chat", move |stream, peer| {
        let (homes, rooms) = (homes.clone(), rooms.clone());
        async move {
            if let Err(error) = enter(stream, homes, rooms).await {
                eprintln!("{peer}: {error}");
            }
        }
    })
}

/// Shakes hands here, and goes to the room's loop.
async fn enter(stream: TcpStream, homes: EventLoopGroup, rooms: Rooms) -> Result<(), Error> {
    let mut room = String::new();
    #[allow(clippy::result_large_err)] // as tungstenite has it
    let name_room = |request: &Request, response: Response| {
        room = request.uri().path().to_owned();
        Ok(response)
    };
    let mut socket = accept_hdr_async(stream, name_room).await?;
    let home = homes.loop_for(&room);
    socket.get_mut().migrate_to(home).await?;
    let stay = home.spawn_with(move || chat(socket, room, rooms));
    stay.await
        .unwrap_or_else(|error| Err(Error::Io(error.into())))
}

async fn chat(socket: WebSocketStream<TcpStream>, name: String, rooms: Rooms) -> Result<(), Error> {
    let (member, inbox) = mpsc::unbounded();
    let room = rooms.here(|rooms| Rc::clone(rooms.borrow_mut().entry(name).or_default()));
    room.borrow_mut().push(member);
    let (mut sender, receiver) = socket.split();
    let events = select(receiver.map(Event::Said), inbox.map(Event::Heard));
    let mut events = events.take_until(shutdown_requested());
    while let Some(event) = events.next().await {
        match event {
            // Who is gone is noticed here, by the closed inbox.
            Event::Said(Ok(Message::Text(text))) => room
                .borrow_mut()
                .retain(|member| member.unbounded_send(text.clone()).is_ok()),
            Event::Said(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Event::Said(Ok(_)) => break,
            Event::Said(Err(error)) => return Err(error),
            Event::Heard(text) => sender.send(Message::Text(text)).await?,
        }
    }
    match sender.close(None).await {
        Err(Error::ConnectionClosed) => Ok(()), // they were first
        closed => closed,
    }
}
