//! The side that asks: a client the primary, and the primary its backups.

use std::{io, time::Duration};

use futures::io::BufReader;
use loopgroup::net::TcpStream;
use loopgroup::time;

use crate::wire::{Answer, Id, Question, receive, send};

/// Between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// How long an attempt waits for its answer; then the connection counts as lost.
const ATTEMPT: Duration = Duration::from_millis(500);
/// How long an operation of a client may take, with all attempts.
const PATIENCE: Duration = Duration::from_secs(5);

/// The address of a server, and the connection to it while there is one.
pub(crate) struct Peer(String, Option<BufReader<TcpStream>>);

impl Peer {
    pub(crate) fn new(address: &str) -> Peer {
        Peer(address.into(), None)
    }

    /// After an error, nobody knows whether the question has arrived.
    pub(crate) async fn ask(&mut self, question: &Question) -> io::Result<Answer> {
        // It comes back with the answer only: a late answer would be taken for that of the next question.
        let connection = self.1.take();
        let exchange = async {
            let mut stream = match connection {
                Some(stream) => stream,
                None => open(&self.0).await?,
            };
            send(&mut stream, question).await?;
            let answer = receive(&mut stream).await?;
            io::Result::Ok((stream, answer))
        };
        let (stream, answer) = time::timeout(ATTEMPT, exchange).await??;
        self.1 = Some(stream);
        Ok(answer)
    }

    /// All attempts are the same question.
    pub(crate) async fn insist(&mut self, question: &Question) -> Answer {
        loop {
            match self.ask(question).await {
                Ok(answer) => return answer,
                Err(_) => time::sleep(PAUSE).await,
            }
        }
    }
}

async fn open(address: &str) -> io::Result<BufReader<TcpStream>> {
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    receive::<Answer>(&mut stream).await?;
    Ok(stream)
}

pub(crate) struct Client(Id, Peer);

impl Client {
    /// No other client has the name, nor had it: not even this one before a restart.
    pub(crate) fn new(name: &str, primary: &str) -> Client {
        Client((name.into(), 0), Peer::new(primary))
    }

    /// After an error, nobody knows whether the value is, or will be, written.
    pub(crate) async fn put(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.0.1 += 1;
        let question = Question::Put(self.0.clone(), key.into(), value.into());
        time::timeout(PATIENCE, self.1.insist(&question)).await?;
        Ok(())
    }

    pub(crate) async fn get(&mut self, key: &str) -> io::Result<Option<String>> {
        let question = Question::Get(key.into());
        match time::timeout(PATIENCE, self.1.insist(&question)).await? {
            Answer::Value(value) => Ok(value),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
