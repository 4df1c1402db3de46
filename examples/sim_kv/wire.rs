//! Questions and answers, and the side that answers: each a line of JSON; an error ends the connection.

use std::{collections::BTreeMap, io, rc::Rc};

use futures::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use loopgroup::net::{TcpListener, TcpStream};
use loopgroup::{spawn_local, time};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::client::PAUSE;

#[derive(Serialize, Deserialize)]
pub(crate) enum Question {
    /// A key and its new value.
    Put(Id, String, String),
    Get(String),
    /// What does the backup have?
    Fetch,
    /// Forget that, have this.
    Install(Store),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Value(Option<String>),
    State(Store),
}

/// A client, and the number of its request: numbers increase, and a retry has that of the first attempt.
pub(crate) type Id = (String, u64);

/// The outcome of all writes so far. Of two, the greater one is the longer one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Store {
    /// How many there were: this is compared first.
    pub(crate) writes: u64,
    pub(crate) values: BTreeMap<String, String>,
    /// The last of each client: replicated as well, since a retry may reach a restarted primary.
    pub(crate) requests: BTreeMap<String, u64>,
}

pub(crate) trait Node {
    /// Connections have numbers, from 1 as they are accepted.
    async fn answer(&self, connection: u64, question: Question) -> io::Result<Answer>;
}

pub(crate) async fn serve(address: &str, node: Rc<impl Node + 'static>) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    for number in 1.. {
        match listener.accept().await {
            Ok((stream, _)) => drop(spawn_local(talk(stream, number, Rc::clone(&node)))),
            Err(_) => time::sleep(PAUSE).await, // no file descriptor is free, or the like
        }
    }
    Ok(())
}

async fn talk(stream: TcpStream, number: u64, node: Rc<impl Node>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    // The server speaks first: whoever has heard it knows that the connection has its number.
    let mut next = Answer::Done;
    loop {
        send(&mut stream, &next).await?;
        next = node.answer(number, receive(&mut stream).await?).await?;
    }
}

type Stream = BufReader<TcpStream>;

pub(crate) async fn send(stream: &mut Stream, message: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(message)? + "\n";
    stream.get_mut().write_all(line.as_bytes()).await
}

pub(crate) async fn receive<M: DeserializeOwned>(stream: &mut Stream) -> io::Result<M> {
    let mut line = String::new();
    stream.take(16 << 20).read_line(&mut line).await?; // the state of a node is in one
    Ok(serde_json::from_str(&line)?) // which half a line is not
}
